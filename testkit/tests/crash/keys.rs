//! Keys of the encrypted datasets of a run.
//!
//! An encrypted pool has two encryption roots: its root filesystem, whose key the clients' volume `a`
//! inherits, and the volume that the administrator has to itself, with its clones. Volume `b` is plain. A
//! user's key has a number; which ones may open a root after a power cut the history says, and exactly one
//! must.

use std::sync::Arc;

use engine::dsl::Dsl;
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::env::Env;
use engine::pool::live::LivePool;
use engine::{Error, Pool};

use super::support::{POOL, committing};

/// One of the two encryption roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The root filesystem.
    Pool,
    /// The administrator's own volume, or the clone that took its place.
    Own,
}

impl Root {
    fn of(name: &str) -> Self {
        if name == POOL { Self::Pool } else { Self::Own }
    }

    /// The user's key of this number.
    pub fn material(self, number: u64) -> [u8; 32] {
        let mut bytes = [if self == Self::Pool { 0x50 } else { 0x4f }; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    /// The same, to be given to a dataset.
    pub fn key(self, number: u64, env: &dyn Env) -> Arc<UserKey> {
        let key = UserKey::new(KeyFormat::Raw, &self.material(number), None, env);
        Arc::new(key.expect("a raw key has 32 bytes"))
    }

    /// The name of its dataset now, if it is there.
    pub async fn name(self, pool: &Arc<LivePool>) -> engine::Result<Option<String>> {
        let roots = Dsl::open(&pool.view()).await?.encryption_roots(None).await?;
        let found = roots.into_iter().find(|root| Self::of(&root.dir.name) == self);
        Ok(found.map(|root| root.dir.name.clone()))
    }
}

/// What makes a new dataset an encryption root with the suite `encryption`.
pub fn properties(encryption: &str) -> Vec<(String, String)> {
    vec![("encryption".into(), encryption.into()), ("keyformat".into(), "raw".into())]
}

/// Loads the keys of a pool that was imported, and has its logs replayed. Of the numbers that `may_be` gives,
/// exactly one must be right.
pub async fn unlock(pool: &Arc<LivePool>, may_be: impl Fn(Root) -> Vec<u64>) -> Result<(), String> {
    load(&pool.view(), may_be).await?;
    let replayed = committing(pool, pool.replay_unlocked()).await;
    replayed.map_err(|error| format!("replay with the keys: {error}"))
}

/// Loads the keys of a pool. Those of a root for which there is no number are left out.
pub async fn load(pool: &Arc<Pool>, may_be: impl Fn(Root) -> Vec<u64>) -> Result<(), String> {
    let dsl = Dsl::open(pool).await.map_err(|error| format!("encryption roots: {error}"))?;
    let roots = dsl.encryption_roots(None).await.map_err(|error| format!("encryption roots: {error}"))?;
    for root in roots {
        let name = &root.dir.name;
        if root.loaded {
            return Err(format!("{name}: its key is there after the import"));
        }
        let (which, mut right) = (Root::of(name), Vec::new());
        let numbers = may_be(which);
        if numbers.is_empty() {
            continue;
        }
        for number in numbers {
            match dsl.load_key(name, &which.material(number), true).await {
                Ok(_) => right.push(number),
                Err(Error::WrongKey { .. }) => {}
                Err(error) => return Err(format!("{name}: key {number}: {error}")),
            }
        }
        let [number] = right[..] else {
            return Err(format!("{name}: keys {right:?} of {:?} are right", may_be(which)));
        };
        let loaded = dsl.load_key(name, &which.material(number), false).await;
        loaded.map_err(|error| format!("{name}: key {number}: {error}"))?;
    }
    Ok(())
}
