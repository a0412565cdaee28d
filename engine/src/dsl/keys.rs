//! Loading and unloading encryption keys, by encryption root.
//!
//! Each encrypted directory has a random key of its own, kept in an object of the MOS, wrapped. The datasets
//! that share one wrapping key name the same *encryption root*, the directory whose user knows that key; it
//! says how the key is given (`keyformat`) and how a passphrase becomes one. Loading the key of a root
//! therefore unwraps the key of every directory that names it, in the whole pool, since a clone keeps its
//! origin's key wherever it lies. What is registered with the pool is a key for each object set: heads and
//! snapshots; and the wrapping key of the root, with which the keys of new children are wrapped. Key files
//! are read by the caller. What a user gives becomes a key in `user`; new keys and other users' keys are made
//! in [`super::edit`]. Source of the facts: OpenZFS 2.3 `dsl_crypt.c`, `libzfs_crypto.c`.

mod user;

use std::sync::Arc;

pub use codec::crypt::WrappingKey;
use codec::crypt::{self, DatasetKey, Suite, WrappedKey};
pub use ondisk::crypto_key::KeyFormat;
use ondisk::crypto_key::{DslCryptoKey, key};
use ondisk::{ObjectId, ObjsetId};

pub(crate) use user::check_iterations;
pub use user::{UserKey, asked};

use super::{Dataset, Dir, Dsl, ValueExt};
use crate::error::{Error, Result};

/// A dataset whose user knows a key.
#[derive(Debug, Clone)]
pub struct EncryptionRoot {
    /// Its directory.
    pub dir: Arc<Dir>,
    /// How the key is given.
    pub format: KeyFormat,
    /// Where the key is found (`keylocation`): `prompt`, or a URI.
    pub location: String,
    /// Whether the key is loaded.
    pub loaded: bool,
}

impl Dsl {
    /// Whether the blocks of a dataset can be decrypted now.
    pub fn key_is_loaded(&self, dataset: &Dataset) -> bool {
        self.pool().keystore().is_loaded(dataset.objset_id())
    }

    /// The encryption root of a directory; `None` where it is not encrypted.
    pub async fn encryption_root(&self, dir: &Dir) -> Result<Option<Arc<Dir>>> {
        let Some(object) = self.crypto_object(dir).await? else { return Ok(None) };
        match self.mos().u64(object, key::ROOT_DDOBJ).await? {
            Some(root) => self.dir_of_object(ObjectId(root)).await.map(Some),
            None => Err(Error::corrupt(&dir.name, "its key names no encryption root")),
        }
    }

    /// The encryption root of the dataset called `name`.
    pub async fn encryption_root_of(&self, name: &str) -> Result<EncryptionRoot> {
        let dir = self.find_dir(name).await?;
        match self.encryption_root(&dir).await? {
            Some(root) => self.describe_root(root).await,
            None => Err(Error::WrongType { what: name.to_owned(), detail: "is not encrypted".to_owned() }),
        }
    }

    /// All encryption roots at and below `name` (of the whole pool when no name is given), in the order of
    /// names.
    pub async fn encryption_roots(&self, name: Option<&str>) -> Result<Vec<EncryptionRoot>> {
        let start = match name {
            Some(name) => self.find_dir(name).await?,
            None => Arc::clone(self.root()),
        };
        let mut roots = Vec::new();
        for dir in self.dirs(&start).await? {
            if self.encryption_root(&dir).await?.is_some_and(|root| root.object == dir.object) {
                roots.push(self.describe_root(dir).await?);
            }
        }
        Ok(roots)
    }

    async fn describe_root(&self, dir: Arc<Dir>) -> Result<EncryptionRoot> {
        let format = self.wrapped_key(&dir).await?.keyformat;
        let location = match dir.phys.props_zap.is_none() {
            true => None,
            false => self.mos().value(dir.phys.props_zap, "keylocation").await?,
        };
        let location = location.and_then(|value| value.text()).unwrap_or_else(|| "prompt".to_owned());
        let loaded = self.pool().keystore().is_loaded(ObjsetId(dir.phys.head_dataset.0));
        Ok(EncryptionRoot { dir, format, location, loaded })
    }

    /// Loads the key of the encryption root called `name` for all datasets that use it.
    ///
    /// `material` is what the user gave in the root's format. With `check_only` the key is tried and not
    /// kept. Gives the number of directories that can be read with it.
    pub async fn load_key(&self, name: &str, material: &[u8], check_only: bool) -> Result<usize> {
        let derived = self.derive_key(name, material).await?;
        self.load_derived_key(name, &derived, check_only).await
    }

    /// What the material that a user gave for the encryption root called `name` is as a key. Takes time where
    /// it is a passphrase.
    pub async fn derive_key(&self, name: &str, material: &[u8]) -> Result<Arc<WrappingKey>> {
        let root = self.own_root(name).await?;
        let stored = self.wrapped_key(&root.dir).await?;
        let (salt, iterations) = (stored.pbkdf2_salt, stored.pbkdf2_iters);
        user::derive(stored.keyformat, material, salt, iterations).map(Arc::new)
    }

    /// Loads the key of the encryption root called `name`, which was made of a user's key before
    /// ([`Dsl::derive_key`]).
    pub async fn load_derived_key(
        &self,
        name: &str,
        wrapping: &Arc<WrappingKey>,
        check_only: bool,
    ) -> Result<usize> {
        let root = self.own_root(name).await?;
        if root.loaded && !check_only {
            return Err(Error::Busy(format!("the key of '{name}' is already loaded")));
        }
        let own = self.unwrap_key(&root.dir, wrapping, name).await?;
        if check_only {
            return Ok(1);
        }
        let mut keys = vec![(Arc::clone(&root.dir), own)];
        for dir in self.dirs(self.root()).await? {
            let uses = self.uses_root(&dir, &root.dir).await?;
            if uses && dir.object != root.dir.object {
                // One damaged key must not keep all others from being used.
                match self.unwrap_key(&dir, wrapping, name).await {
                    Ok(key) => keys.push((dir, key)),
                    Err(error) => tracing::warn!(dataset = dir.name, %error, "its key cannot be loaded"),
                }
            }
        }
        let count = keys.len();
        for (dir, key) in keys {
            let key = Arc::new(key);
            for dataset in self.versions(&dir).await? {
                self.pool().keystore().insert(dataset.objset_id(), Arc::clone(&key));
            }
        }
        self.pool().keystore().insert_wrapping(root.dir.object, Arc::clone(wrapping));
        Ok(count)
    }

    /// Forgets the key of the encryption root called `name`, in a pool that is only read. The caller has made
    /// sure that nothing is mounted with it.
    pub async fn unload_key(&self, name: &str) -> Result<()> {
        let root = self.own_root(name).await?;
        if !root.loaded {
            return Err(Error::Invalid(format!("the key of '{name}' is not loaded")));
        }
        self.pool().keystore().remove_wrapping(root.dir.object);
        for dir in self.key_users(&root.dir).await? {
            for dataset in self.versions(&dir).await? {
                self.pool().keystore().remove(dataset.objset_id());
            }
        }
        Ok(())
    }

    /// All directories whose keys are wrapped with the key of an encryption root, itself among them.
    pub async fn key_users(&self, root: &Dir) -> Result<Vec<Arc<Dir>>> {
        let mut users = Vec::new();
        for dir in self.dirs(self.root()).await? {
            if self.uses_root(&dir, root).await? {
                users.push(dir);
            }
        }
        Ok(users)
    }

    /// The dataset called `name` as an encryption root, which it must be.
    async fn own_root(&self, name: &str) -> Result<EncryptionRoot> {
        let root = self.encryption_root_of(name).await?;
        match root.dir.name == name {
            true => Ok(root),
            false => Err(Error::Invalid(format!(
                "'{name}' is not an encryption root: it uses the key of '{}'",
                root.dir.name
            ))),
        }
    }

    async fn uses_root(&self, dir: &Dir, root: &Dir) -> Result<bool> {
        let Some(object) = self.crypto_object(dir).await? else { return Ok(false) };
        Ok(self.mos().u64(object, key::ROOT_DDOBJ).await? == Some(root.object.0))
    }

    /// The head of a directory and its snapshots.
    async fn versions(&self, dir: &Arc<Dir>) -> Result<Vec<Dataset>> {
        let head = self.head(dir).await?;
        let mut versions = self.snapshots(&head).await?;
        versions.push(head);
        Ok(versions)
    }

    /// The key of one directory.
    async fn unwrap_key(&self, dir: &Dir, wrapping: &WrappingKey, root: &str) -> Result<DatasetKey> {
        let unsupported = |error: crypt::Error| Error::Unsupported(format!("key of '{}': {error}", dir.name));
        let stored = self.wrapped_key(dir).await?;
        let wrapped = WrappedKey {
            suite: Suite::from_raw(stored.suite).map_err(unsupported)?,
            guid: stored.guid.0,
            version: stored.version,
            iv: stored.iv,
            mac: stored.mac,
            master_key: stored.master_key,
            hmac_key: stored.hmac_key,
        };
        wrapped.unwrap(wrapping).map_err(|error| match error {
            crypt::Error::WrongKey => Error::WrongKey { dataset: root.to_owned() },
            other => unsupported(other),
        })
    }

    /// The key of one directory as it is stored.
    pub(crate) async fn wrapped_key(&self, dir: &Dir) -> Result<DslCryptoKey> {
        let object = self.crypto_object(dir).await?;
        let object = object.ok_or_else(|| Error::corrupt(&dir.name, "encrypted without a key"))?;
        let entries = self.mos().entries(object).await?;
        DslCryptoKey::from_entries(entries.iter().map(|(name, value)| (name.as_bytes(), value)))
            .map_err(|error| Error::corrupt(format!("key of '{}'", dir.name), error))
    }
}
