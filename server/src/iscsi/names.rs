//! Names of targets.
//!
//! A volume `tank/vm/disk` is the target `iqn.2026-11.org.cenote:tank:vm:disk`. Names of targets have only
//! lower-case letters, digits, `-`, `.` and `:`. Any other character of a dataset's name is written as `--`
//! and two hexadecimal digits for each of its bytes; so is a `-` that another `-` follows, and a `:`. So each
//! name has one target, and each target one name.
//!
//! Source of the facts: RFC 7143, section 4.2.7; RFC 3722.

/// What all names of targets begin with.
const PREFIX: &str = "iqn.2026-11.org.cenote:";
/// The most bytes that a name of a target may have.
pub(super) const MOST_NAME_BYTES: usize = 223;

/// The target that a volume is; none where its name would be too long.
pub(super) fn target(volume: &str) -> Option<String> {
    let mut name = PREFIX.to_owned();
    for (index, byte) in volume.bytes().enumerate() {
        match byte {
            b'/' => name.push(':'),
            b'-' if volume.as_bytes().get(index + 1) == Some(&b'-') => name.push_str("--2d"),
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' => name.push(char::from(byte)),
            _ => name.push_str(&format!("--{byte:02x}")),
        }
    }
    (name.len() <= MOST_NAME_BYTES).then_some(name)
}

/// The volume that a target is. The case of letters does not matter in names of targets.
pub(super) fn volume(target: &str) -> Option<String> {
    let target = target.to_ascii_lowercase();
    let mut rest = target.strip_prefix(PREFIX)?.as_bytes();
    let mut name = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'-', [b'-', high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                name.push((digit(high)? << 4 | digit(low)?) as u8);
                rest = after;
            }
            (b':', _) => name.push(b'/'),
            (byte, _) => name.push(*byte),
        }
    }
    String::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_comes_back() {
        for name in ["tank/vm/disk", "tank/Vm_1@yesterday", "a--b/c-d", "a---", "p/ü:x", "p/-"] {
            let target = target(name).expect("short enough");
            assert!(target.bytes().all(|byte| b"abcdefghijklmnopqrstuvwxyz0123456789-.:".contains(&byte)));
            assert_eq!(volume(&target).as_deref(), Some(name), "{target}");
            assert_eq!(volume(&target.to_uppercase()).as_deref(), Some(name));
        }
        assert_eq!(target("tank/vm/disk").as_deref(), Some("iqn.2026-11.org.cenote:tank:vm:disk"));
        assert_eq!(
            (target(&"x".repeat(210)), volume("iqn.1.other:a"), volume("iqn.2026-11.org.cenote:--zz")),
            (None, None, None)
        );
    }
}
