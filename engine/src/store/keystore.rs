//! The loaded keys of encrypted datasets, by objset.
//!
//! All objsets of an encryption root (datasets, snapshots, clones) share the root's wrapping key, and a
//! dataset shares its key with its snapshots and clones. The caller that loads a key registers it for each
//! objset that it opens; the caller that unloads it removes all of them. Reads of protected blocks look here
//! first, so that cached and uncached blocks become unreadable together.
//!
//! The lock is held only for a look-up, and not together with any other lock.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use codec::crypt::DatasetKey;
use device::IgnorePoison;
use ondisk::ObjsetId;

/// The loaded keys of a pool.
#[derive(Default)]
pub struct Keystore {
    keys: RwLock<HashMap<ObjsetId, Arc<DatasetKey>>>,
}

impl Keystore {
    /// The key of an objset, if it is loaded.
    pub fn get(&self, objset: ObjsetId) -> Option<Arc<DatasetKey>> {
        self.keys.read().ignore_poison().get(&objset).cloned()
    }

    /// Whether the key of an objset is loaded.
    pub fn is_loaded(&self, objset: ObjsetId) -> bool {
        self.keys.read().ignore_poison().contains_key(&objset)
    }

    /// Loads a key for an objset.
    pub fn insert(&self, objset: ObjsetId, key: Arc<DatasetKey>) {
        self.keys.write().ignore_poison().insert(objset, key);
    }

    /// Unloads the key of an objset. Returns false when no key was loaded.
    pub fn remove(&self, objset: ObjsetId) -> bool {
        self.keys.write().ignore_poison().remove(&objset).is_some()
    }
}

impl std::fmt::Debug for Keystore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = self.keys.read().ignore_poison();
        write!(f, "Keystore({} keys)", keys.len())
    }
}
