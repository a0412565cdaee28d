//! Parsing the text that a user types for a property into the stored value.
//!
//! Numbers may have a fraction and a suffix for a power of 1024 (`1.5G`, `10M`, `16KiB`); `none` means no
//! limit. Index properties take their words. Only the dataset can decide whether a well-formed value is
//! allowed: see [`crate::dsl::edit`].
//!
//! Source of the facts: OpenZFS 2.3 `libzfs_util.c` (`zprop_parse_value`, `zfs_nicestrtonum`).

use super::index;
use super::set::Value;
use super::shares;
use super::table::{Kind, Prop};
use crate::error::{Error, Result};

/// `auto`, for properties that accept it.
pub const AUTO: u64 = u64::MAX;
/// The longest text of a property, including its end (`ZAP_MAXVALUELEN`).
const MAX_TEXT_BYTES: usize = 8192;
/// The longest path of a mountpoint (`MAXPATHLEN`).
const MAX_PATH_BYTES: usize = 4096;

/// A number of bytes (or of anything) in the form that users write.
pub fn parse_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let shift = suffix_shift(suffix)?;
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_shl(shift).filter(|shifted| shifted >> shift == whole);
    }
    // A fraction of a unit; single bytes have no fractions.
    let (whole, fraction) = digits.split_once('.')?;
    if shift == 0 || fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let value: f64 = digits.parse().ok()?;
    let scaled = value * 2f64.powi(i32::try_from(shift).ok()?);
    (scaled < 18_446_744_073_709_551_615.0).then_some(scaled as u64)
}

fn suffix_shift(suffix: &str) -> Option<u32> {
    let mut letters = suffix.chars().map(|c| c.to_ascii_uppercase());
    let Some(first) = letters.next() else { return Some(0) };
    let rest: String = letters.collect();
    let power = "BKMGTPEZ".find(first)? as u32;
    let allowed = match power {
        0 => rest.is_empty(),
        _ => matches!(rest.as_str(), "" | "B" | "IB"),
    };
    allowed.then_some(power * 10)
}

/// The value that `text` means for a native property.
pub fn parse(prop: Prop, text: &str) -> Result<Value> {
    let desc = prop.desc();
    let invalid = |what: &str| Error::Invalid(format!("'{}' {what}", desc.name));
    match desc.kind {
        Kind::Text(_) => {
            if text.len() >= MAX_TEXT_BYTES || text.contains('\0') {
                return Err(invalid("is too long"));
            }
            if prop == Prop::Mountpoint {
                check_mountpoint(text)?;
            }
            shares::check(prop, text)
                .map_err(|why| invalid(&format!("cannot be set to invalid options: {why}")))?;
            Ok(Value::Text(text.to_owned()))
        }
        Kind::Index(_, names) => {
            let number = index::number(names, text);
            number.map(Value::Number).ok_or_else(|| {
                Error::Invalid(format!("'{}' must be one of '{}'", desc.name, index::choices(names)))
            })
        }
        Kind::Number(_) => parse_limit(prop, text),
    }
}

fn parse_limit(prop: Prop, text: &str) -> Result<Value> {
    let invalid = |what: &str| Error::Invalid(format!("'{}' {what}", prop.desc().name));
    let no_limit = match prop {
        Prop::FilesystemLimit | Prop::SnapshotLimit => Some(u64::MAX),
        Prop::Quota | Prop::Refquota | Prop::Reservation | Prop::Refreservation => Some(0),
        quota if quota.default_quota().is_some() => Some(0),
        _ => None,
    };
    if text == "none" {
        return no_limit.map(Value::Number).ok_or_else(|| invalid("must be a number"));
    }
    if text == "auto" && prop == Prop::Refreservation {
        return Ok(Value::Number(AUTO));
    }
    let number = parse_number(text).ok_or_else(|| Error::Invalid(format!("bad numeric value '{text}'")))?;
    match (prop, number) {
        (Prop::Quota | Prop::Refquota, 0) => {
            Err(Error::Invalid("use 'none' to disable quota/refquota".to_owned()))
        }
        (Prop::Refreservation, AUTO) => Err(invalid("is too large")),
        _ => Ok(Value::Number(number)),
    }
}

fn check_mountpoint(text: &str) -> Result<()> {
    if matches!(text, "none" | "legacy") {
        return Ok(());
    }
    if !text.starts_with('/') {
        return Err(Error::Invalid("'mountpoint' must be an absolute path, 'none', or 'legacy'".to_owned()));
    }
    if text.split('/').any(|component| matches!(component, "." | "..")) {
        return Err(Error::Invalid("'mountpoint' must be a path without '.' and '..'".to_owned()));
    }
    if text.len() >= MAX_PATH_BYTES || text.split('/').any(|component| component.len() > 255) {
        return Err(Error::Invalid("'mountpoint' is too long".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_fractions_and_suffixes() {
        let cases = [
            ("0", Some(0)),
            ("512", Some(512)),
            ("512B", Some(512)),
            ("16K", Some(16 << 10)),
            ("16k", Some(16 << 10)),
            ("1.5G", Some(3 << 29)),
            ("2MiB", Some(2 << 20)),
            ("2MB", Some(2 << 20)),
            ("15E", Some(15 << 60)),
            (".5K", Some(512)),
            ("16E", None),
            ("1Z", None),
            ("1.5", None),
            ("1.2.3K", None),
            ("-1", None),
            ("", None),
            ("K", None),
            ("1KK", None),
            ("18446744073709551616", None),
        ];
        for (text, number) in cases {
            assert_eq!(parse_number(text), number, "{text:?}");
        }
    }

    #[test]
    fn no_limit_has_a_word_and_a_quota_of_nothing_has_none() {
        assert_eq!(parse(Prop::Quota, "none").unwrap(), Value::Number(0));
        assert_eq!(parse(Prop::SnapshotLimit, "none").unwrap(), Value::Number(u64::MAX));
        assert!(parse(Prop::Quota, "0").is_err());
        assert_eq!(parse(Prop::Reservation, "0").unwrap(), Value::Number(0));
        assert!(parse(Prop::Recordsize, "none").is_err());
        assert_eq!(parse(Prop::Refreservation, "auto").unwrap(), Value::Number(AUTO));
    }

    #[test]
    fn words_become_their_numbers() {
        assert_eq!(parse(Prop::Compression, "zstd-3").unwrap(), Value::Number(16 | 3 << 7));
        assert!(parse(Prop::Compression, "best").is_err());
        assert_eq!(parse(Prop::Mountpoint, "/srv").unwrap(), Value::Text("/srv".to_owned()));
        assert!(parse(Prop::Mountpoint, "srv").is_err());
        assert!(parse(Prop::Mountpoint, "legacy").is_ok());
    }
}
