//! [`UserKey`]: what a user gives as the key of an encryption root, ready to wrap and to open keys.
//!
//! | `keyformat` | what is given | which part of it counts |
//! |---|---|---|
//! | `raw` | 32 bytes | all of it |
//! | `hex` | 64 hexadecimal digits | the first line |
//! | `passphrase` | 8 to 512 bytes | the first line, up to a zero byte |
//!
//! The length of a passphrase is checked when it becomes the key of something; one that is loaded is as long
//! as it was then. A passphrase becomes a key by PBKDF2, which takes time by design: no lock of a pool is
//! held meanwhile. The number of rounds of an existing root comes from the pool, so it is bounded
//! ([`MAX_PBKDF2_ITERATIONS`]): a pool that was made by an attacker must not keep a thread busy for hours.
//!
//! Source of the facts: OpenZFS 2.4 `libzfs_crypto.c` (`validate_key`, `get_key_material_stream`).

use std::fmt;
use std::sync::Arc;

use codec::crypt::WrappingKey;
use ondisk::crypto_key::KeyFormat;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::properties::{Prop, Value, typed};

/// The fewest rounds of PBKDF2 of a new key.
const MIN_PBKDF2_ITERATIONS: u64 = 100_000;
/// The rounds of PBKDF2 of a new key whose owner says nothing of them.
const DEFAULT_PBKDF2_ITERATIONS: u64 = 350_000;
/// The most rounds of PBKDF2 that are done: some tens of seconds.
const MAX_PBKDF2_ITERATIONS: u64 = 100_000_000;
/// Bytes of a new passphrase.
const PASSPHRASE_BYTES: std::ops::RangeInclusive<usize> = 8..=512;
/// The longest passphrase that is tried.
const MAX_TRIED_BYTES: usize = 4096;
const RAW_BYTES: usize = 32;
const HEX_DIGITS: usize = 64;

/// The key of a new encryption root, or a new key of one that is there.
#[derive(Clone)]
pub struct UserKey {
    pub(crate) wrapping: Arc<WrappingKey>,
    pub(crate) format: KeyFormat,
    /// Zero unless it is made from a passphrase.
    pub(crate) salt: u64,
    /// Zero unless it is made from a passphrase.
    pub(crate) iterations: u64,
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserKey({}, …)", self.format.name())
    }
}

impl UserKey {
    /// Makes a key from what the user gave. A passphrase takes time.
    ///
    /// # Errors
    /// The material is not of the format's form; rounds of PBKDF2 out of bounds, or for no passphrase.
    pub fn new(
        format: KeyFormat,
        material: &[u8],
        iterations: Option<u64>,
        env: &dyn Env,
    ) -> Result<UserKey> {
        check_new(format, material, iterations)?;
        let (mut salt, mut rounds) = (0, 0);
        if format == KeyFormat::Passphrase {
            let mut bytes = [0; 8];
            while salt == 0 {
                env.fill_secret(&mut bytes)?;
                salt = u64::from_le_bytes(bytes);
            }
            rounds = iterations.unwrap_or(DEFAULT_PBKDF2_ITERATIONS);
        }
        let wrapping = Arc::new(derive(format, material, salt, rounds)?);
        Ok(UserKey { wrapping, format, salt, iterations: rounds })
    }
}

/// Checks what can be said of a new key without making it.
///
/// # Errors
/// As of [`UserKey::new`].
fn check_new(format: KeyFormat, material: &[u8], iterations: Option<u64>) -> Result<()> {
    check_form(format, material)?;
    let refuse = |why: String| Err(Error::Invalid(why));
    match (format, iterations) {
        (KeyFormat::Passphrase, Some(iterations)) => check_iterations(iterations)?,
        (KeyFormat::Passphrase, None) | (_, None) => {}
        (_, Some(_)) => {
            return refuse("Cannot specify pbkdf2iters with a non-passphrase keyformat.".to_owned());
        }
    }
    if format == KeyFormat::Passphrase {
        let length = counted(format, material).len();
        if length > *PASSPHRASE_BYTES.end() {
            return refuse(format!("Passphrase too long (max {}).", PASSPHRASE_BYTES.end()));
        }
        if length < *PASSPHRASE_BYTES.start() {
            return refuse(format!("Passphrase too short (min {}).", PASSPHRASE_BYTES.start()));
        }
    }
    Ok(())
}

/// Checks rounds of PBKDF2 that a user asks for.
pub(crate) fn check_iterations(iterations: u64) -> Result<()> {
    if iterations < MIN_PBKDF2_ITERATIONS {
        return Err(Error::Invalid(format!("minimum pbkdf2 iterations is {MIN_PBKDF2_ITERATIONS}")));
    }
    if iterations > MAX_PBKDF2_ITERATIONS {
        return Err(Error::Invalid(format!("maximum pbkdf2 iterations is {MAX_PBKDF2_ITERATIONS}")));
    }
    Ok(())
}

/// The format and the rounds that typed properties ask for.
///
/// # Errors
/// Values that the properties cannot have.
pub fn asked(properties: &[(String, String)]) -> Result<(Option<KeyFormat>, Option<u64>)> {
    let number = |wanted: Prop| -> Result<Option<u64>> {
        let given = properties.iter().rev().find(|(name, _)| Prop::from_name(name) == Some(wanted));
        Ok(match given {
            Some((_, text)) => match typed::parse(wanted, text)? {
                Value::Number(number) => Some(number),
                Value::Text(_) => None,
            },
            None => None,
        })
    };
    let format = number(Prop::Keyformat)?.and_then(|raw| KeyFormat::from_raw(raw).ok());
    Ok((format, number(Prop::Pbkdf2Iters)?))
}

/// The wrapping key that a user's key is, with the salt and the rounds of its root.
pub(super) fn derive(format: KeyFormat, material: &[u8], salt: u64, iterations: u64) -> Result<WrappingKey> {
    check_form(format, material)?;
    let counted = counted(format, material);
    let derived = match format {
        KeyFormat::Raw => WrappingKey::from_raw(counted),
        KeyFormat::Hex => WrappingKey::from_hex(counted),
        KeyFormat::Passphrase if iterations > MAX_PBKDF2_ITERATIONS => {
            return Err(Error::Unsupported(format!(
                "its passphrase takes {iterations} rounds of PBKDF2, and at most {MAX_PBKDF2_ITERATIONS} are \
                 done"
            )));
        }
        KeyFormat::Passphrase => WrappingKey::from_passphrase(counted, salt, iterations),
    };
    derived.map_err(|error| Error::Invalid(error.to_string()))
}

/// Whether raw keys and digits have their length, and a passphrase can be one.
fn check_form(format: KeyFormat, material: &[u8]) -> Result<()> {
    let refuse = |why: &str| Err(Error::Invalid(why.to_owned()));
    let counted = counted(format, material);
    match format {
        KeyFormat::Raw if counted.len() < RAW_BYTES => refuse("Raw key too short (expected 32)."),
        KeyFormat::Raw if counted.len() > RAW_BYTES => refuse("Raw key too long (expected 32)."),
        KeyFormat::Hex if counted.len() < HEX_DIGITS => refuse("Hex key too short (expected 64)."),
        KeyFormat::Hex if counted.len() > HEX_DIGITS => refuse("Hex key too long (expected 64)."),
        KeyFormat::Hex if !counted.iter().all(u8::is_ascii_hexdigit) => {
            refuse("Invalid hex character detected.")
        }
        KeyFormat::Passphrase if counted.len() > MAX_TRIED_BYTES => refuse("Passphrase too long (max 512)."),
        _ => Ok(()),
    }
}

/// The part of the material that counts.
fn counted(format: KeyFormat, material: &[u8]) -> &[u8] {
    let until = |ends: &dyn Fn(&u8) -> bool| {
        let end = material.iter().position(ends).unwrap_or(material.len());
        material.get(..end).unwrap_or_default()
    };
    match format {
        KeyFormat::Raw => material,
        KeyFormat::Hex => until(&|byte| *byte == b'\n'),
        KeyFormat::Passphrase => until(&|byte| matches!(byte, b'\n' | 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Seeded;

    fn refusal(format: KeyFormat, material: &[u8], iterations: Option<u64>) -> String {
        check_new(format, material, iterations).unwrap_err().to_string()
    }

    #[test]
    fn material_that_cannot_be_a_key_is_refused_in_the_words_of_openzfs() {
        let (raw, hex, words) = (KeyFormat::Raw, KeyFormat::Hex, KeyFormat::Passphrase);
        assert_eq!(refusal(raw, &[1; 31], None), "Raw key too short (expected 32).");
        assert_eq!(refusal(raw, &[1; 33], None), "Raw key too long (expected 32).");
        assert_eq!(refusal(hex, &[b'a'; 63], None), "Hex key too short (expected 64).");
        assert_eq!(refusal(hex, &[b'a'; 65], None), "Hex key too long (expected 64).");
        assert_eq!(refusal(hex, &[b'g'; 64], None), "Invalid hex character detected.");
        assert_eq!(refusal(words, b"seven77", None), "Passphrase too short (min 8).");
        assert_eq!(refusal(words, &[b'a'; 513], None), "Passphrase too long (max 512).");
        assert_eq!(refusal(words, b"eight888", Some(99_999)), "minimum pbkdf2 iterations is 100000");
        assert!(refusal(words, b"eight888", Some(1 << 40)).starts_with("maximum pbkdf2 iterations"));
        assert!(refusal(raw, &[1; 32], Some(100_000)).contains("non-passphrase keyformat"));
        for good in [&b"eight888"[..], b"eight888\n", &[b'a'; 512]] {
            check_new(words, good, None).unwrap();
        }
        check_new(hex, &[&[b'A'; 64][..], b"\n"].concat(), None).unwrap();
        // A line end is a byte of a raw key like any other.
        assert!(check_new(raw, &[&[1; 31][..], b"\n"].concat(), None).is_ok());
    }

    #[test]
    fn only_the_first_line_of_a_passphrase_counts() {
        assert_eq!(counted(KeyFormat::Passphrase, b"first line\nsecond"), b"first line");
        assert_eq!(counted(KeyFormat::Passphrase, b"first\0rest"), b"first");
        assert_eq!(counted(KeyFormat::Hex, b"0a\n0b"), b"0a");
        assert_eq!(counted(KeyFormat::Raw, b"a\nb"), b"a\nb");
        assert_eq!(refusal(KeyFormat::Passphrase, b"short\nand a long second line", None), {
            "Passphrase too short (min 8)."
        });
    }

    #[test]
    fn rounds_that_a_pool_asks_for_are_bounded() {
        let error = derive(KeyFormat::Passphrase, b"eight888", 1, MAX_PBKDF2_ITERATIONS + 1).unwrap_err();
        assert!(error.to_string().contains("rounds of PBKDF2"), "{error}");
        let key = UserKey::new(KeyFormat::Raw, &[7; 32], None, &Seeded::new(1)).unwrap();
        assert_eq!((key.salt, key.iterations), (0, 0));
        assert_eq!(format!("{key:?}"), "UserKey(raw, …)");
    }
}
