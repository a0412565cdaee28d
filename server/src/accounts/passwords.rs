//! Passwords: argon2id, few at a time.
//!
//! The costs are those that OWASP names for argon2id: 19 MiB, two passes, one lane. They are kept with each
//! hash, so that they can be raised later. A check of a name that is not there costs the same.

use std::sync::Arc;

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::secrets;
use crate::api::Password;

/// Memory, in KiB.
const MEMORY_KIB: u32 = 19 << 10;
/// Passes over it.
const PASSES: u32 = 2;
/// Lanes.
const LANES: u32 = 1;
/// Bounds of the costs in a file.
const MAX_MEMORY_KIB: u32 = 1 << 20;
const MAX_PASSES: u32 = 16;
const MAX_LANES: u32 = 4;
/// Bytes of a salt and of a hash.
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
/// The shortest password, in characters.
const MIN_CHARACTERS: usize = 10;
/// How many are hashed at a time.
const MAX_HASHING: usize = 2;
/// How many may wait for that.
const MAX_WAITING: usize = 16;

/// A password as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hashed {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    salt: String,
    hash: String,
}

impl Hashed {
    /// Hashes a password. It takes some time, and blocks the thread.
    ///
    /// # Errors
    /// The system gives no random bytes, or no memory.
    pub fn of(password: &Password) -> Result<Self, String> {
        let salt = secrets::random_bytes::<SALT_BYTES>()?;
        let hash = compute(password, &salt, (MEMORY_KIB, PASSES, LANES))?;
        Ok(Self {
            memory_kib: MEMORY_KIB,
            passes: PASSES,
            lanes: LANES,
            salt: STANDARD_NO_PAD.encode(salt),
            hash: STANDARD_NO_PAD.encode(hash),
        })
    }

    /// Whether it is of this password. It takes some time, and blocks the thread.
    pub fn is_of(&self, password: &Password) -> bool {
        let costs = (self.memory_kib, self.passes, self.lanes);
        let (Ok(salt), Ok(hash)) = (STANDARD_NO_PAD.decode(&self.salt), STANDARD_NO_PAD.decode(&self.hash))
        else {
            return false;
        };
        compute(password, &salt, costs).is_ok_and(|found| secrets::are_same(&found, &hash))
    }

    /// What a file may say.
    ///
    /// # Errors
    /// Why it may not, for a person.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_bounded = self.memory_kib <= MAX_MEMORY_KIB
            && self.passes <= MAX_PASSES
            && self.lanes <= MAX_LANES
            && self.salt.len() <= 128
            && self.hash.len() <= 128;
        match is_bounded {
            true => Ok(()),
            false => Err("the costs of a password are too high".to_owned()),
        }
    }
}

fn compute(
    password: &Password,
    salt: &[u8],
    (memory_kib, passes, lanes): (u32, u32, u32),
) -> Result<[u8; HASH_BYTES], String> {
    let failed = |error: argon2::Error| format!("the password cannot be hashed: {error}");
    let params = Params::new(memory_kib, passes, lanes, Some(HASH_BYTES)).map_err(failed)?;
    let mut hash = [0; HASH_BYTES];
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon.hash_password_into(password.bytes(), salt, &mut hash).map_err(failed)?;
    Ok(hash)
}

/// Whether a password may be a new one.
///
/// # Errors
/// Why not, for a person.
pub(super) fn check_new(password: &Password) -> Result<(), String> {
    let characters = std::str::from_utf8(password.bytes()).map_or(0, |text| text.chars().count());
    match characters >= MIN_CHARACTERS {
        true => Ok(()),
        false => Err(format!("its password is too short: it has at least {MIN_CHARACTERS} characters")),
    }
}

/// Checks passwords, few at a time.
#[derive(Debug)]
pub struct Passwords {
    waiting: Arc<Semaphore>,
    hashing: Arc<Semaphore>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            hashing: Arc::new(Semaphore::new(MAX_HASHING)),
        }
    }
}

/// The turn to hash.
#[derive(Debug)]
pub struct HashTurn {
    _waiting: OwnedSemaphorePermit,
    _hashing: OwnedSemaphorePermit,
}

impl Passwords {
    /// Waits for its turn; none where too many wait.
    pub async fn turn(&self) -> Option<HashTurn> {
        let waiting = Arc::clone(&self.waiting).try_acquire_owned().ok()?;
        let hashing = Arc::clone(&self.hashing).acquire_owned().await.ok()?;
        Some(HashTurn { _waiting: waiting, _hashing: hashing })
    }

    /// Whether a password is that of a user; as long for one who is not there. It blocks the thread.
    pub fn is_right(kept: Option<&Hashed>, password: &Password, _turn: HashTurn) -> bool {
        match kept {
            Some(kept) => kept.is_of(password),
            None => {
                // Its outcome is no matter, its time is.
                let _ =
                    std::hint::black_box(compute(password, &[0; SALT_BYTES], (MEMORY_KIB, PASSES, LANES)));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_told_from_others_and_salted() {
        let password = Password::from("correct horse".to_owned());
        let (one, other) = (Hashed::of(&password).unwrap(), Hashed::of(&password).unwrap());
        assert_ne!(one, other);
        assert!(one.is_of(&password) && other.is_of(&password));
        assert!(!one.is_of(&Password::from("correct hors".to_owned())));
        assert!(!Hashed { salt: "!".into(), ..one.clone() }.is_of(&password));
        assert!(!Hashed { memory_kib: 0, ..one.clone() }.is_of(&password));
        assert!(Hashed { memory_kib: u32::MAX, ..one.clone() }.check().is_err());
        one.check().unwrap();
        assert!(check_new(&Password::from("123456789".to_owned())).is_err());
        check_new(&Password::from("ääääääääää".to_owned())).unwrap();
    }

    #[test]
    fn few_wait_for_their_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let passwords = Passwords::default();
            let first = passwords.turn().await.unwrap();
            let _second = passwords.turn().await.unwrap();
            let mut third = std::pin::pin!(passwords.turn());
            tokio::select! { biased; _ = &mut third => panic!("it has its turn"), () = async {} => {} }
            drop(first);
            assert!(third.await.is_some());
            let _all: Vec<_> =
                std::iter::from_fn(|| Arc::clone(&passwords.waiting).try_acquire_owned().ok()).collect();
            assert!(passwords.turn().await.is_none());
        });
    }
}
