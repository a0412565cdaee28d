//! Names of targets.
//!
//! A volume `tank/vm/disk` is the target `iqn.2026-11.org.cenote:tank:vm:disk`. Names of targets have only
//! lower-case letters, digits, `-`, `.` and `:`. Any other character of a dataset's name is written as `--`
//! and two hexadecimal digits for each of its bytes; so is a `-` that another `-` follows, and a `:`. So each
//! name has one target, and each target one name.
//!
//! Where a volume's share names a target, it is a unit of that one: `vms` is `iqn.2026-11.org.cenote:vms`,
//! which no volume of its own is, because its name has a pool and a volume.
//!
//! Source of the facts: RFC 7143, section 4.2.7; RFC 3722.

use crate::block::Share;

/// What the names of this daemon's targets begin with.
const PREFIX: &str = "iqn.2026-11.org.cenote:";
/// What whole names of targets and initiators begin with.
const WHOLE: [&str; 3] = ["iqn.", "eui.", "naa."];
/// The most bytes that a name of a target may have.
pub(super) const MOST_NAME_BYTES: usize = 223;

/// Whether a name of an initiator or a target is a whole one, and not a word.
pub(super) fn is_whole(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WHOLE.iter().any(|start| name.len() > start.len() && name.starts_with(start))
}

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

/// The target that a volume is a unit of.
pub(super) fn of(volume: &str, share: &Share) -> Option<String> {
    match &share.target {
        Some(word) if !WHOLE.iter().any(|start| word.starts_with(start)) => Some(format!("{PREFIX}{word}")),
        Some(name) => Some(name.clone()),
        None => target(volume),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_volume_has_a_name_of_its_own() {
        let names =
            ["tank/vm/disk", "tank/Vm_1@yesterday", "a--b/c-d", "a/-", "a---/x", "p/ü:x", "p/-", "p/--2d"];
        let targets = names.map(|name| target(name).expect("short enough"));
        for (at, target) in targets.iter().enumerate() {
            assert!(target.bytes().all(|byte| b"abcdefghijklmnopqrstuvwxyz0123456789-.:".contains(&byte)));
            assert!(!targets[..at].contains(target), "{target}");
        }
        assert_eq!(targets[0], "iqn.2026-11.org.cenote:tank:vm:disk");
        assert_eq!(targets[1], "iqn.2026-11.org.cenote:tank:--56m--5f1--40yesterday");
        assert_eq!(target(&"x".repeat(210)), None);
    }

    #[test]
    fn a_share_may_name_the_target() {
        let of =
            |name: Option<&str>| of("tank/v", &Share { target: name.map(str::to_owned), ..Share::default() });
        assert_eq!(of(None).as_deref(), Some("iqn.2026-11.org.cenote:tank:v"));
        assert_eq!(of(Some("vms")).as_deref(), Some("iqn.2026-11.org.cenote:vms"));
        assert_eq!(of(Some("iqn.2005-10.org.example:a")).as_deref(), Some("iqn.2005-10.org.example:a"));
    }
}
