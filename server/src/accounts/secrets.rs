//! Random texts, their hashes, and whether two are the same.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

/// Random bytes of a text.
const RANDOM_BYTES: usize = 32;

/// So many random bytes.
///
/// # Errors
/// The system gives none, for a person.
pub(super) fn random_bytes<const BYTES: usize>() -> Result<[u8; BYTES], String> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "the system gives no random bytes".to_owned())?;
    Ok(bytes)
}

/// A text with 256 random bits, of letters, digits, `-` and `_`.
///
/// # Errors
/// As those of [`random_bytes`].
pub(super) fn random() -> Result<String, String> {
    Ok(URL_SAFE_NO_PAD.encode(random_bytes::<RANDOM_BYTES>()?))
}

/// SHA-256 of a text, as a text.
pub(super) fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

/// Whether two are the same, in a time that does not depend on where they differ.
pub(super) fn are_same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_texts_differ_and_their_hashes_do_not_say_them() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 43);
        assert_eq!(hash(&one), hash(&one.clone()));
        assert!(!are_same(hash(&one).as_bytes(), hash(&other).as_bytes()));
        assert!(are_same(b"a", b"a") && !are_same(b"a", b"ab"));
    }
}
