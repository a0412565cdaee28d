//! Every initialization vector that encrypts a block is counted.
//!
//! A key, a salt and an initialization vector may be used together once, whatever happens: in the life of a
//! pool, and in all that becomes of it after crashes, for the same keys go on there. So all lives of a pool
//! are counted together. Those of deduplicated blocks follow from the bytes, and may come again for the same
//! bytes alone. Tests of other crates take this file along.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::IgnorePoison;
use engine::env::{Env, Seeded};

/// The key's guid, the salt and the initialization vector of a block.
type Triple = (u64, [u8; 8], [u8; 12]);

#[derive(Debug, Default)]
struct Seen {
    /// With the authentication codes of those that follow from the bytes.
    all: HashMap<Triple, Option<[u8; 16]>>,
    twice: Option<Triple>,
    /// How often one came again for the same bytes.
    again: usize,
}

impl Seen {
    fn see(&mut self, triple: Triple, mac: Option<[u8; 16]>) {
        match self.all.insert(triple, mac) {
            None => {}
            Some(Some(before)) if Some(before) == mac => self.again += 1,
            Some(_) => self.twice = Some(triple),
        }
    }
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

    /// How often bytes were encrypted as they had been before, to be deduplicated.
    #[allow(dead_code, reason = "for tests of deduplication")]
    pub fn again(&self) -> usize {
        self.0.lock().ignore_poison().again
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
        self.ivs.0.lock().ignore_poison().see((key, salt, iv), None);
    }

    fn note_iv_of_bytes(&self, key: u64, (salt, iv): ([u8; 8], [u8; 12]), mac: [u8; 16]) {
        self.ivs.0.lock().ignore_poison().see((key, salt, iv), Some(mac));
    }
}
