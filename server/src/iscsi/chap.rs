//! CHAP: both sides can prove that they know a secret, without sending it.
//!
//! The answer to a challenge is MD5 of the identifier, the secret and the challenge. The protocol knows
//! nothing better that initiators have. The secret is worth what the network is worth; nothing is encrypted.
//!
//! Source of the facts: RFC 1994; RFC 7143, section 12.1.3.

use std::fmt;
use std::io::Read as _;

use md5::{Digest as _, Md5};

/// The algorithm that all initiators have.
pub(super) const MD5: &str = "5";
/// The longest challenge that is taken.
pub(super) const MOST_CHALLENGE_BYTES: usize = 1024;
const CHALLENGE_BYTES: usize = 16;

/// Names and secrets. Debug output does not show secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// Of initiators that may log in.
    initiators: Vec<(String, String)>,
    /// With which this target answers initiators that ask for it.
    own: Option<(String, String)>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.initiators.iter().map(|(name, _)| name);
        f.debug_struct("Secrets")
            .field("initiators", &names.collect::<Vec<_>>())
            .field("own", &self.own.as_ref().map(|(name, _)| name))
            .finish()
    }
}

/// Why a file of secrets is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {why}")]
pub struct Malformed {
    line: usize,
    why: &'static str,
}

impl Secrets {
    /// Reads lines `NAME SECRET`, and at most one `target NAME SECRET`, which answers initiators that ask
    /// the target for a proof. Empty lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// A line that is something else; a secret of fewer than 12 or more than 255 bytes; no name at all.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut secrets = Self::default();
        let mut last = 0;
        for (line, words) in (1..).zip(text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>())) {
            last = line;
            let (is_own, name, secret) = match *words.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                ["target", name, secret] => (true, name, secret),
                [name, secret] => (false, name, secret),
                _ => return Err(Malformed { line, why: "it is not 'NAME SECRET' or 'target NAME SECRET'" }),
            };
            if !(12..=255).contains(&secret.len()) {
                return Err(Malformed { line, why: "a secret has 12 to 255 characters" });
            }
            let pair = (name.to_owned(), secret.to_owned());
            match is_own {
                true if secrets.own.is_some() => {
                    return Err(Malformed { line, why: "there is a second line of the target" });
                }
                true => secrets.own = Some(pair),
                false => secrets.initiators.push(pair),
            }
        }
        match secrets.initiators.is_empty() {
            true => Err(Malformed { line: last, why: "no initiator has a line 'NAME SECRET'" }),
            false => Ok(secrets),
        }
    }

    /// Whether this is the answer of an initiator of that name.
    pub(super) fn is_right(&self, name: &str, challenge: &Challenge, answered: &[u8]) -> bool {
        let mut known = self.initiators.iter().filter(|(known, _)| known == name);
        known.any(|(_, secret)| is_same(&answer(challenge.identifier, secret, &challenge.bytes), answered))
    }

    /// The target's name and its answer, where it has a secret of its own.
    pub(super) fn prove(&self, identifier: u8, challenge: &[u8]) -> Option<(&str, [u8; 16])> {
        let (name, secret) = self.own.as_ref()?;
        Some((name, answer(identifier, secret, challenge)))
    }
}

/// What an initiator has to answer.
#[derive(Debug)]
pub(super) struct Challenge {
    pub identifier: u8,
    pub bytes: [u8; CHALLENGE_BYTES],
}

impl Challenge {
    /// Random bytes, which an attacker cannot foresee.
    pub fn new() -> std::io::Result<Self> {
        let mut random = [0; CHALLENGE_BYTES + 1];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let [identifier, bytes @ ..] = random;
        Ok(Self { identifier, bytes })
    }
}

fn answer(identifier: u8, secret: &str, challenge: &[u8]) -> [u8; 16] {
    Md5::new().chain_update([identifier]).chain_update(secret).chain_update(challenge).finalize().into()
}

/// Compares in a time that does not tell where the difference is.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_secret_is_right() {
        let secrets =
            Secrets::parse("# who may\nvm-host 0123456789ab\n\ntarget nas ba9876543210\n").expect("secrets");
        let challenge = Challenge::new().expect("random bytes");
        let right = answer(challenge.identifier, "0123456789ab", &challenge.bytes);
        assert!(secrets.is_right("vm-host", &challenge, &right));
        assert!(!secrets.is_right("other", &challenge, &right));
        assert!(
            !secrets.is_right("vm-host", &challenge, &right[..15])
                && !secrets.is_right("vm-host", &challenge, &[])
        );
        let other = Challenge { identifier: challenge.identifier.wrapping_add(1), ..challenge };
        assert!(!secrets.is_right("vm-host", &other, &right));
        assert_eq!(secrets.prove(1, b"x"), Some(("nas", answer(1, "ba9876543210", b"x"))));
        assert!(!format!("{secrets:?}").contains("0123456789ab"));
    }

    #[test]
    fn the_answer_is_as_others_compute_it() {
        // printf '\001secretsecret!challenge' | md5sum
        let expected = 0x2a1e_b0ac_cbd4_132a_0539_4e94_e061_1899_u128.to_be_bytes();
        assert_eq!(answer(1, "secretsecret!", b"challenge"), expected);
    }

    #[test]
    fn files_of_secrets_are_refused_with_their_line() {
        let why = |text| Secrets::parse(text).map_err(|error| error.to_string());
        assert!(why("a b\n").is_err_and(|why| why.starts_with("line 1: a secret has 12")));
        assert!(why("\na 0123456789ab x y\n").is_err_and(|why| why.starts_with("line 2: it is not")));
        assert!(why("target a 0123456789ab\n").is_err_and(|why| why.contains("no initiator")));
    }
}
