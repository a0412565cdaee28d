//! Every initialization vector that encrypts a block is counted.
//!
//! A key, a salt and an initialization vector may be used together once, whatever happens: in the life of a
//! pool, and in all that becomes of it after crashes, for the same keys go on there. So all lives of a pool
//! are counted together. Tests of other crates take this file along.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::IgnorePoison;
use engine::env::{Env, Seeded};

/// The key's guid, the salt and the initialization vector of a block.
type Triple = (u64, [u8; 8], [u8; 12]);

#[derive(Debug, Default)]
struct Seen {
    all: HashSet<Triple>,
    twice: Option<Triple>,
}

/// What was used to encrypt, in a run and after it. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Ivs(Arc<Mutex<Seen>>);

impl Ivs {
    /// The environment of a seed, whose initialization vectors are counted.
    pub fn env(&self, seed: u64) -> Arc<dyn Env> {
        Arc::new(Counting { seeded: Seeded::new(seed), ivs: self.clone() })
    }

    /// How many there were; an error if one came twice.
    pub fn count(&self) -> Result<usize, String> {
        let seen = self.0.lock().ignore_poison();
        match seen.twice {
            None => Ok(seen.all.len()),
            Some(twice) => Err(format!("key, salt and IV come twice: {twice:x?}")),
        }
    }
}

#[derive(Debug)]
struct Counting {
    seeded: Seeded,
    ivs: Ivs,
}

impl Env for Counting {
    fn now(&self) -> Duration {
        self.seeded.now()
    }

    fn random(&self) -> u64 {
        self.seeded.random()
    }

    fn note_iv(&self, key: u64, salt: [u8; 8], iv: [u8; 12]) {
        let mut seen = self.ivs.0.lock().ignore_poison();
        if !seen.all.insert((key, salt, iv)) {
            seen.twice = Some((key, salt, iv));
        }
    }
}
