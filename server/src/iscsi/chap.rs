//! CHAP: both sides can prove that they know a secret, without sending it.
//!
//! The answer to a challenge is MD5 of the identifier, the secret and the challenge. The protocol knows
//! nothing better that initiators have. The secret is worth what the network is worth; nothing is encrypted.
//!
//! # Whose secret it is
//! An initiator says two names: its own (`InitiatorName`), which decides which volumes it may have, and the
//! name of a secret (`CHAP_N`). A proof says something about the first only where the secret is *bound* to
//! it. A line of the file has one of these forms:
//!
//! | line | bound to |
//! |---|---|
//! | `iqn.… SECRET` | the initiator of that name, which is the secret's name too |
//! | `INITIATOR[,…] NAME SECRET [TARGET-NAME TARGET-SECRET]` | these initiators; a name may end with `*` |
//! | `NAME SECRET` | all initiators if it is the only line of initiators, otherwise none |
//! | `target NAME SECRET` | it is the target's, for initiators whose line has none of the target |
//!
//! A secret that is bound to no initiator lets one in under a name that no line has in full, and proves
//! nothing of that name: volumes that are shared with named initiators are not for it. Where a line has a
//! name in full, only such lines are for it, whatever patterns others have.
//!
//! Source of the facts: RFC 1994; RFC 7143, section 12.1.3.

use std::fmt;
use std::io::Read as _;

use md5::{Digest as _, Md5};

use super::names;

/// The algorithm that all initiators have.
pub(super) const MD5: &str = "5";
/// The longest challenge that is taken.
pub(super) const MOST_CHALLENGE_BYTES: usize = 1024;
const CHALLENGE_BYTES: usize = 16;
/// The lengths that secrets may have, in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 12..=255;
/// What the name of an initiator ends with that stands for all that begin so.
const ANY_REST: char = '*';

/// A name and a secret, which debug output does not show.
#[derive(Clone, PartialEq, Eq)]
struct Credential {
    name: String,
    secret: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// What initiators prove themselves with.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OfInitiators {
    line: usize,
    /// Names in lower case, or what they begin with and `*`. None for a secret that is bound to none.
    initiators: Vec<String>,
    theirs: Credential,
    /// With which the target answers them.
    own: Option<Credential>,
}

impl OfInitiators {
    fn names(&self, initiator: &str) -> bool {
        self.initiators.iter().any(|name| name == initiator)
    }

    fn is_for(&self, initiator: &str) -> bool {
        self.initiators.iter().any(|name| match name.strip_suffix(ANY_REST) {
            Some(start) => initiator.starts_with(start),
            None => name == initiator,
        })
    }
}

/// Names and secrets, and which initiators they are for. Debug output does not show secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    initiators: Vec<OfInitiators>,
    /// With which this target answers initiators that ask for it, where their line has nothing else.
    own: Option<Credential>,
}

/// Why a file of secrets is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {why}")]
pub struct Malformed {
    line: usize,
    why: String,
}

/// What an initiator proved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proven<'a> {
    /// That the name that it gave is its own.
    pub is_name: bool,
    own: Option<&'a Credential>,
}

impl<'a> Proven<'a> {
    /// The target's name and its answer, where it has a secret for this initiator.
    pub fn answer(&self, identifier: u8, challenge: &[u8]) -> Option<(&'a str, [u8; 16])> {
        let own = self.own?;
        Some((&own.name, answer(identifier, &own.secret, challenge)))
    }
}

impl Secrets {
    /// Reads lines as the module describes them. Empty lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// A line that is something else; a secret of fewer than 12 or more than 255 bytes; a name of a secret
    /// that two lines have; a secret of the target that initiators have too; no initiator at all.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut secrets = Self::default();
        let (mut last, mut line_of_own) = (0, 0);
        for (line, text) in (1..).zip(text.lines()) {
            last = line;
            let refused = |why: &str| Malformed { line, why: why.to_owned() };
            let credential = |name: &str, secret: &str| match SECRET_BYTES.contains(&secret.len()) {
                true => Ok(Credential { name: name.to_owned(), secret: secret.to_owned() }),
                false => Err(refused("a secret has 12 to 255 characters")),
            };
            let words: Vec<&str> = text.split_whitespace().collect();
            let (initiators, name, secret, own) = match *words.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                ["target", name, secret] => {
                    if secrets.own.is_some() {
                        let why = format!("the target has a name and a secret in line {line_of_own} already");
                        return Err(Malformed { line, why });
                    }
                    (secrets.own, line_of_own) = (Some(credential(name, secret)?), line);
                    continue;
                }
                [name, secret] if names::is_whole(name) => {
                    (vec![name.to_ascii_lowercase()], name, secret, None)
                }
                [name, secret] => (Vec::new(), name, secret, None),
                [list, name, secret] => (bound(line, list)?, name, secret, None),
                [list, name, secret, own, own_secret] => {
                    (bound(line, list)?, name, secret, Some(credential(own, own_secret)?))
                }
                _ => {
                    return Err(refused(
                        "it is not 'INITIATOR SECRET', 'INITIATOR NAME SECRET [TARGET-NAME TARGET-SECRET]' \
                         or 'target NAME SECRET'",
                    ));
                }
            };
            let theirs = credential(name, secret)?;
            if let Some(first) = secrets.initiators.iter().find(|first| first.theirs.name == name) {
                let first = first.line;
                let why = format!(
                    "the name '{name}' is in line {first} already; several initiators may be in one line: \
                     INITIATOR,INITIATOR NAME SECRET"
                );
                return Err(Malformed { line, why });
            }
            secrets.initiators.push(OfInitiators { line, initiators, theirs, own });
        }
        secrets.refuse_common(line_of_own)?;
        match secrets.initiators.as_mut_slice() {
            [] => Err(Malformed { line: last, why: "no initiator has a secret".into() }),
            // There are no others that it could pass for.
            [only] if only.initiators.is_empty() => {
                only.initiators.push(ANY_REST.to_string());
                Ok(secrets)
            }
            _ => Ok(secrets),
        }
    }

    /// Refuses secrets of the target that an initiator has too: the target's own answers would let others in.
    fn refuse_common(&self, line_of_own: usize) -> Result<(), Malformed> {
        let of_lines = self.initiators.iter().filter_map(|one| Some((one.line, one.own.as_ref()?)));
        for (line, own) in of_lines.chain(self.own.iter().map(|own| (line_of_own, own))) {
            if let Some(same) = self.initiators.iter().find(|one| one.theirs.secret == own.secret) {
                let why = format!("the target's secret is that of the initiator in line {}", same.line);
                return Err(Malformed { line, why });
            }
        }
        Ok(())
    }

    /// The names of secrets that are bound to no initiator.
    pub fn unbound(&self) -> Vec<&str> {
        let unbound = self.initiators.iter().filter(|one| one.initiators.is_empty());
        unbound.map(|one| one.theirs.name.as_str()).collect()
    }

    /// What it proves that an initiator of this name gave this answer with the secret of that name.
    pub(super) fn check(
        &self,
        initiator: &str,
        name: &str,
        challenge: &Challenge,
        answered: &[u8],
    ) -> Option<Proven<'_>> {
        let initiator = initiator.to_ascii_lowercase();
        let known = self.initiators.iter().find(|known| known.theirs.name == name)?;
        if !is_same(&answer(challenge.identifier, &known.theirs.secret, &challenge.bytes), answered) {
            return None;
        }
        let is_named_in_full = self.initiators.iter().any(|one| one.names(&initiator));
        let is_for = match is_named_in_full {
            true => known.names(&initiator),
            false => known.initiators.is_empty() || known.is_for(&initiator),
        };
        let own = known.own.as_ref().or(self.own.as_ref());
        is_for.then_some(Proven { is_name: !known.initiators.is_empty(), own })
    }
}

/// Names of initiators, in lower case.
fn bound(line: usize, list: &str) -> Result<Vec<String>, Malformed> {
    let names = list.split(',').map(|name| {
        let start = name.strip_suffix(ANY_REST).unwrap_or(name);
        let is_right = name == "*" || names::is_whole(start) && !start.contains(ANY_REST);
        is_right.then(|| name.to_ascii_lowercase()).ok_or_else(|| {
            let why = format!(
                "'{name}' is no name of an initiator: iqn.…, eui.… or naa.…, what it begins with and '*', \
                 or '*'"
            );
            Malformed { line, why }
        })
    });
    names.collect()
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

    /// Whether an initiator gets in with a name and a secret, and whether its own name is proven then.
    fn check(secrets: &Secrets, initiator: &str, name: &str, secret: &str) -> Option<bool> {
        let challenge = Challenge::new().expect("random bytes");
        let answered = answer(challenge.identifier, secret, &challenge.bytes);
        secrets.check(initiator, name, &challenge, &answered).map(|proven| proven.is_name)
    }

    #[test]
    fn only_who_knows_the_secret_is_right() {
        let secrets =
            Secrets::parse("# who may\nvm-host 0123456789ab\n\ntarget nas ba9876543210\n").expect("secrets");
        let challenge = Challenge::new().expect("random bytes");
        let right = answer(challenge.identifier, "0123456789ab", &challenge.bytes);
        let checked = |name, challenge: &Challenge, answered: &[u8]| {
            secrets.check("iqn.x", name, challenge, answered).map(|proven| proven.answer(1, b"x"))
        };
        assert_eq!(
            checked("vm-host", &challenge, &right),
            Some(Some(("nas", answer(1, "ba9876543210", b"x"))))
        );
        assert!(checked("other", &challenge, &right).is_none());
        assert!(checked("vm-host", &challenge, &right[..15]).is_none());
        assert!(checked("vm-host", &challenge, &[]).is_none());
        let other = Challenge { identifier: challenge.identifier.wrapping_add(1), ..challenge };
        assert!(checked("vm-host", &other, &right).is_none());
        assert!(!format!("{secrets:?}").contains("0123456789ab"));
    }

    #[test]
    fn a_secret_is_for_the_initiators_that_it_is_bound_to() {
        let secrets = Secrets::parse(
            "iqn.a:1 secret-of-a-1\n\
             iqn.B:1,iqn.b:2 both secret-of-b-12\n\
             iqn.c:* all-c secret-of-c-12\n\
             old secret-of-old\n",
        )
        .expect("secrets");
        let check = |initiator, name, secret| check(&secrets, initiator, name, secret);
        assert_eq!(check("IQN.a:1", "iqn.a:1", "secret-of-a-1"), Some(true));
        assert_eq!(check("iqn.b:1", "iqn.a:1", "secret-of-a-1"), None);
        assert_eq!(check("iqn.x", "iqn.a:1", "secret-of-a-1"), None);
        assert_eq!(check("iqn.b:2", "both", "secret-of-b-12"), Some(true));
        assert_eq!(check("iqn.b:3", "both", "secret-of-b-12"), None);
        assert_eq!(check("iqn.c:host", "all-c", "secret-of-c-12"), Some(true));
        assert_eq!(check("iqn.x", "old", "secret-of-old"), Some(false), "it may say what it likes");
        assert_eq!(check("iqn.a:1", "old", "secret-of-old"), None, "but not another one's name");
        assert_eq!(secrets.unbound(), ["old"]);
        // A name in full is only for its own line.
        let secrets = Secrets::parse("* all secret-of-all\niqn.a:1 secret-of-a-1\n").expect("secrets");
        assert_eq!(super::tests::check(&secrets, "iqn.a:1", "all", "secret-of-all"), None);
        assert_eq!(super::tests::check(&secrets, "iqn.a:2", "all", "secret-of-all"), Some(true));
        // There is no other initiator that the only one could pass for.
        let secrets = Secrets::parse("only 0123456789ab").expect("secrets");
        assert_eq!(super::tests::check(&secrets, "iqn.x", "only", "0123456789ab"), Some(true));
    }

    #[test]
    fn the_target_proves_itself_to_each_initiator_with_the_secret_for_it() {
        let text = "iqn.a x secret-of-a-1 nas-a nas-secret-a\niqn.b secret-of-b-1\ntarget nas nas-secret-b\n";
        let secrets = Secrets::parse(text).expect("secrets");
        let challenge = Challenge::new().expect("random bytes");
        let proof = |initiator, name, secret| {
            let answered = answer(challenge.identifier, secret, &challenge.bytes);
            secrets.check(initiator, name, &challenge, &answered).and_then(|proven| proven.answer(1, b"x"))
        };
        assert_eq!(proof("iqn.a", "x", "secret-of-a-1"), Some(("nas-a", answer(1, "nas-secret-a", b"x"))));
        assert_eq!(proof("iqn.b", "iqn.b", "secret-of-b-1"), Some(("nas", answer(1, "nas-secret-b", b"x"))));
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
        for (text, expected) in [
            ("a b\n", "line 1: a secret has 12"),
            ("\na 0123456789ab x y\n", "line 2: it is not"),
            ("\na b 0123456789ab\n", "line 2: 'a' is no name of an initiator"),
            ("a\n", "line 1: it is not"),
            ("iqn.a b 0123456789ab c\n", "line 1: it is not"),
            ("iqn.a, b 0123456789ab\n", "line 1: '' is no name of an initiator"),
            ("target a 0123456789ab\n", "line 1: no initiator has a secret"),
            ("a 0123456789ab\n#\na 0123456789cd\n", "line 3: the name 'a' is in line 1 already"),
            ("iqn.a 0123456789ab\niqn.b iqn.a 0123456789cd", "line 2: the name 'iqn.a' is in line 1 already"),
            ("target a 0123456789ab\ntarget b 0123456789ab", "line 2: the target has a name"),
            ("target a 0123456789ab\niqn.b 0123456789ab", "line 1: the target's secret is that of the"),
            ("iqn.b b 0123456789ab t 0123456789ab", "line 1: the target's secret is that of the"),
        ] {
            assert!(why(text).is_err_and(|why| why.starts_with(expected)), "{text}: {:?}", why(text));
        }
    }
}
