//! Values as users type them: `4194304`, `0x400000`, `4M`, `4MiB`.

/// The number that a text means. Suffixes are powers of 1024, as in OpenZFS.
pub(super) fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // The standard library would take a sign.
        return u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let suffix = suffix.trim().to_ascii_lowercase();
    let suffix = suffix.strip_suffix("ib").or_else(|| suffix.strip_suffix('b')).unwrap_or(&suffix);
    let shift = match suffix {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_with_suffixes_and_nothing_else_is() {
        let right =
            [("7", 7), (" 0x10\n", 16), ("4M", 4 << 20), ("4 MiB", 4 << 20), ("1g", 1 << 30), ("2kb", 2048)];
        right.iter().for_each(|(text, value)| assert_eq!(parse(text), Some(*value), "{text}"));
        for wrong in ["", "-1", "+1", "0x", "0x+1", "1.5", "M", "4MM", "99999999999999999999", "99999999T"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
