//! Keys and values of logins and texts: `key=value`, each ended by a zero byte.
//!
//! Source of the facts: RFC 7143, section 6.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;

/// Keys and their values, in the order in which they came.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Text(pub Vec<(String, String)>);

impl Text {
    /// Reads them. `None` where it is no such text.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let pairs = text.split('\0').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())))
            .collect::<Option<Vec<_>>>()
            .map(Self)
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub fn push(&mut self, key: &str, value: impl ToString) {
        self.0.push((key.to_owned(), value.to_string()));
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
    }
}

/// Reads a number, decimal or hexadecimal.
pub(super) fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

/// Reads bytes, as hexadecimal digits (`0x`) or in base 64 (`0b`); at most `most`.
pub(super) fn bytes(value: &str, most: usize) -> Option<Vec<u8>> {
    let (kind, digits) = value.split_at_checked(2)?;
    let digits = digits.as_bytes();
    let found: Vec<u8> = match kind {
        "0x" | "0X" if digits.len().is_multiple_of(2) && digits.len() <= 2 * most => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let pairs = digits.chunks_exact(2);
            pairs
                .map(|pair| Some((digit(*pair.first()?)? << 4 | digit(*pair.last()?)?) as u8))
                .collect::<Option<_>>()?
        }
        "0b" | "0B" if digits.len() <= 2 * most + 4 => BASE64.decode(digits).ok()?,
        _ => return None,
    };
    (found.len() <= most).then_some(found)
}

/// Bytes as hexadecimal digits, as keys have them.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        let text = Text::parse(b"InitiatorName=iqn.x\0AuthMethod=CHAP,None\0\0").expect("a text");
        assert_eq!(text.get("AuthMethod"), Some("CHAP,None"));
        assert_eq!(text.to_bytes(), b"InitiatorName=iqn.x\0AuthMethod=CHAP,None\0");
        assert_eq!((Text::parse(b"no pair\0"), Text::parse(b"\xff=\0")), (None, None));
    }

    #[test]
    fn numbers_and_bytes_in_all_forms() {
        assert_eq!((number("512"), number("0x200"), number("-1")), (Some(512), Some(512), None));
        assert_eq!(bytes("0x00ff10", 3), Some(vec![0, 255, 16]));
        assert_eq!(bytes("0bAP8Q", 3), Some(vec![0, 255, 16]));
        assert_eq!((bytes("0bAP8=", 3), bytes("0bAP8", 3)), (Some(vec![0, 255]), None));
        assert_eq!(
            (bytes("0x00ff10", 2), bytes("0x0", 2), bytes("é", 2), bytes("12", 2)),
            (None, None, None, None)
        );
        assert_eq!(hex(&[0, 255]), "0x00ff");
    }
}
