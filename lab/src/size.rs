//! Sizes as users write them: `8K`, `1.5G`, `512`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

const UNITS: [(char, u64); 5] =
    [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40), ('P', 1 << 50)];

/// A number of bytes, written with a unit of powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(into = "String")]
pub struct Size(pub u64);

/// The forms of a size, in words.
pub(crate) const WANTED: &str = "a size like 16K, or a number of bytes";

struct Written;

impl Visitor<'_> for Written {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WANTED)
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(bytes), &self);
        u64::try_from(bytes).map(Size).map_err(wrong)
    }

    fn visit_str<E: de::Error>(self, words: &str) -> Result<Size, E> {
        words.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a size like 8K, 1.5G or 512");
        let words = text.trim().trim_end_matches(['B', 'b']).trim_end_matches('i');
        let unit = words.chars().last().ok_or_else(wrong)?.to_ascii_uppercase();
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let number = if factor.is_some() { &words[..words.len() - 1] } else { words };
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let bytes = number * factor.unwrap_or(1) as f64;
        if !(0.0..9e18).contains(&bytes) {
            return Err(wrong());
        }
        Ok(Self(bytes as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits =
            UNITS.iter().rev().find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(factor / 4));
        match fits {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 as f64 / *factor as f64),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for (text, bytes) in
            [("8K", 8192), ("8k", 8192), ("1.5G", 3 << 29), ("512", 512), ("4KiB", 4096), ("1MB", 1 << 20)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for size in [0, 512, 8192, 3 << 29, 1 << 40, 12345] {
            assert_eq!(Size(size).to_string().parse(), Ok(Size(size)));
        }
        for wrong in ["", "K", "8X", "-1", "1e30G", "NaN"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
