//! The loaded keys of encrypted datasets, by objset.
//!
//! All objsets of an encryption root (datasets, snapshots, clones) share the root's wrapping key, and a
//! dataset shares its key with its snapshots and clones. The caller that loads a key registers it for each
//! objset that it opens; the caller that unloads it removes all of them. Reads of protected blocks look here
//! first, so that cached and uncached blocks become unreadable together. A dataset that is written is
//! encrypted with the key that is registered here for its object set.
//!
//! Beside these are the *wrapping keys* of encryption roots, by the root's directory: what the user knows. A
//! dataset that is created below a root gets a key of its own, which is wrapped with that of the root.
//!
//! Each lock is held only for a look-up, and not together with any other lock.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use codec::crypt::{DatasetKey, WrappingKey};
use device::IgnorePoison;
use ondisk::{ObjectId, ObjsetId};

/// The loaded keys of a pool.
#[derive(Default)]
pub struct Keystore {
    keys: RwLock<HashMap<ObjsetId, Arc<DatasetKey>>>,
    wrapping: RwLock<HashMap<ObjectId, Arc<WrappingKey>>>,
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

    /// The key of an object set is that of another one from now on too, if that is loaded, and else none.
    pub fn share(&self, from: ObjsetId, to: ObjsetId) {
        let mut keys = self.keys.write().ignore_poison();
        match keys.get(&from).cloned() {
            Some(key) => drop(keys.insert(to, key)),
            None => drop(keys.remove(&to)),
        }
    }

    /// The wrapping key of the encryption root whose directory this is, if it is loaded.
    pub fn wrapping(&self, root: ObjectId) -> Option<Arc<WrappingKey>> {
        self.wrapping.read().ignore_poison().get(&root).cloned()
    }

    /// Keeps the wrapping key of an encryption root.
    pub fn insert_wrapping(&self, root: ObjectId, key: Arc<WrappingKey>) {
        self.wrapping.write().ignore_poison().insert(root, key);
    }

    /// Forgets the wrapping key of what is no encryption root any more, or whose key is unloaded.
    pub fn remove_wrapping(&self, root: ObjectId) -> Option<Arc<WrappingKey>> {
        self.wrapping.write().ignore_poison().remove(&root)
    }
}

impl std::fmt::Debug for Keystore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = self.keys.read().ignore_poison();
        write!(f, "Keystore({} keys)", keys.len())
    }
}
