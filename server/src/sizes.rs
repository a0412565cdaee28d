//! Sizes as users type them: `10G`, `1.5T`, `512`, `128KiB`.
//!
//! Source of the facts: OpenZFS 2.3 `libzfs_util.c` (`zfs_nicestrtonum`).

/// Bytes of a size; the units are powers of 1024.
///
/// # Errors
/// The fault.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    if number.is_empty() {
        return Err(format!("bad numeric value '{text}'"));
    }
    let shift = shift_of(unit).ok_or_else(|| format!("invalid numeric suffix '{unit}'"))?;
    let too_large = || "numeric value is too large".to_owned();
    if number.contains('.') {
        let value: f64 = number.parse().map_err(|_| format!("bad numeric value '{text}'"))?;
        let bytes = value * (1u128 << shift) as f64;
        return if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(too_large()) };
    }
    let value: u64 = number.parse().map_err(|_| too_large())?;
    let bytes = u128::from(value).checked_mul(1 << shift).and_then(|bytes| u64::try_from(bytes).ok());
    bytes.ok_or_else(too_large)
}

/// The power of two that a unit stands for: `K`, `KB` and `KiB` mean the same.
fn shift_of(unit: &str) -> Option<u32> {
    let upper = unit.to_ascii_uppercase();
    let letter = match upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')) {
        Some(letter) => letter,
        None => &upper,
    };
    match (letter, upper.as_str()) {
        ("", "" | "B") => Some(0),
        (letter, _) if letter.len() == 1 => {
            let place = "KMGTPEZ".find(letter)?;
            Some(10 * (u32::try_from(place).ok()? + 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_however_they_are_written() {
        for (text, bytes) in [
            ("512", 512),
            ("4k", 4096),
            ("4KB", 4096),
            ("4KiB", 4096),
            ("1.5M", 3 << 19),
            ("2T", 2 << 40),
            ("7b", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "x", "-1", "4KK", "4Q", "99999999999999999999", "16E", "1.2.3"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        for large in ["16E", "1z", "0.5ZB", "99999999999999999999"] {
            assert_eq!(parse_size(large).unwrap_err(), "numeric value is too large", "{large}");
        }
    }
}
