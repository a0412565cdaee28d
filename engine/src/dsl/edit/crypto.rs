//! Keys of encrypted datasets, as changes of datasets make, share, wrap anew and free them.
//!
//! # The shape of things
//! An encrypted directory names an object of the MOS, its *key* ([`ondisk::crypto_key`]): two random keys
//! with which all of its blocks are encrypted and authenticated, wrapped with what a user knows. That user's
//! key belongs to the *encryption root* that the object names: the directory itself, or one from which it
//! inherits. A clone shares the key object of its origin, and so its root, wherever it lies; the object
//! counts its directories.
//!
//! | change | of keys |
//! |---|---|
//! | create | a new key below the parent's root, or as a root of its own; of any suite |
//! | clone | the origin's object has one more user |
//! | snapshot | none; the snapshot numbers the set of IVs of its blocks ([`super::snapshot`]) |
//! | rename | none: what inherits cannot leave its root |
//! | promote | the clone becomes the root in the place of its origin, where that was one |
//! | change of the user's key | all keys below are wrapped anew |
//! | raw stream | the key of its sender, as it is wrapped there |
//! | destroy | the object has one user less; the last one frees it |
//!
//! A change that makes a dataset readable registers its key with the pool before anything of it is written
//! ([`crate::store::keystore`]), and one that takes it away forgets it: object numbers are used again.
//!
//! # Random numbers
//! Keys, the guids by which they are known, and the IVs of wrappings come from the environment
//! ([`Env::fill_secret`](crate::env::Env::fill_secret)). Each wrapping has an IV of its own, of 96 random
//! bits: under one user's key so few keys are wrapped that none comes twice. A key that is wrapped anew stays
//! the same key, so no block is encrypted anew.
//!
//! | module | what it does |
//! |---|---|
//! | `asked` | what properties of something new ask for |
//! | `change_key` | another user's key, another root |
//! | `received` | keys of raw streams |
//!
//! Source of the facts: OpenZFS 2.4 `dsl_crypt.c`, `libzfs_crypto.c`.

mod asked;
mod change_key;
mod received;

use std::sync::Arc;

use codec::crypt::{DatasetKey, Suite, WrappedKey, WrappingKey};
use ondisk::crypto_key::{DslCryptoKey, KeyFormat, key};
use ondisk::dsl_dir::field::CRYPTO_KEY_OBJ;
use ondisk::features::Feature;
use ondisk::zap::ZapValue;
use ondisk::{Guid, ObjectId, ObjsetId};

pub(super) use asked::{Encryption, check_nothing_asked, check_pool, check_set, check_value, plan, typed};
pub use change_key::{KeyChange, change_key};
pub(super) use change_key::{check_promote, promoted};
pub(super) use received::{adopt, check_received, take_over};
pub use received::{become_root, inherit_unasked};

use super::{FoundHead, contents, features, objects, origin_snapshot, policy};
use crate::Bookmark;
use crate::dmu::zap::edit::NewZap;
use crate::dsl::SyncTask;
use crate::dsl::keys::UserKey;
use crate::error::{Error, Result};

/// What is said where a change needs a key that is not loaded.
const NOT_LOADED: &str = "encryption root's key is not loaded or provided";

/// The object that is the key of a directory, where it is encrypted.
async fn object_of(s: &SyncTask, dir: ObjectId) -> Result<Option<ObjectId>> {
    let field = objects::field(s, dir, CRYPTO_KEY_OBJ).await?;
    Ok(field.filter(|object| *object != 0).map(ObjectId))
}

/// The encryption root of a directory, where it is encrypted.
async fn root_of(s: &SyncTask, dir: ObjectId) -> Result<Option<ObjectId>> {
    let Some(object) = object_of(s, dir).await? else { return Ok(None) };
    let root = objects::lookup(s, object, &objects::name(key::ROOT_DDOBJ)).await?;
    let root = root.ok_or_else(|| objects::corrupt(object, "a key that names no encryption root"))?;
    Ok(Some(ObjectId(root)))
}

/// With what the datasets of a directory are encrypted.
async fn suite_of(s: &SyncTask, dir: ObjectId) -> Result<Option<Suite>> {
    let Some(object) = object_of(s, dir).await? else { return Ok(None) };
    let suite = objects::lookup(s, object, &objects::name(key::SUITE)).await?.unwrap_or_default();
    let unknown = |error: codec::crypt::Error| Error::Unsupported(error.to_string());
    Suite::from_raw(suite).map(Some).map_err(unknown)
}

/// The suite of a head of which a copy is to be made beside it, with a key that is wrapped as its own: `None`
/// where it is not encrypted.
///
/// # Errors
/// The copy could not have such a key: that of its parent is another one, or not loaded.
pub(super) async fn suite_for_copy(s: &SyncTask, of: &FoundHead) -> Result<Option<&'static str>> {
    let Some(suite) = suite_of(s, of.phys.dir).await? else { return Ok(None) };
    let parent = objects::dir(s, of.phys.dir).await?.parent;
    if root_of(s, of.phys.dir).await? != root_of(s, parent).await? {
        let detail = "the copy would get another key: an encrypted volume must inherit the key of its parent \
                      (zfs change-key -i)";
        return Err(Error::Unsupported(format!("{}: {detail}", of.name)));
    }
    if loaded(s, of.phys.dir).await?.is_none() {
        return Err(Error::KeyNotLoaded { at: Bookmark::objset_root(of.object.get()) });
    }
    wrapping_of(s, parent).await?;
    Ok(Some(suite.name()))
}

/// Refuses a copy whose key is not wrapped as that of its original, as a user changed that meanwhile.
pub(super) async fn check_same_root(s: &SyncTask, of: &FoundHead, copy: &FoundHead) -> Result<()> {
    match root_of(s, of.phys.dir).await? == root_of(s, copy.phys.dir).await? {
        true => Ok(()),
        false => {
            Err(Error::Unsupported(format!("{}: its key was changed, and the copy has another", of.name)))
        }
    }
}

/// Whether a directory is that of a clone, whose key is its origin's.
async fn is_clone(s: &SyncTask, dir: ObjectId) -> Result<bool> {
    let origin = objects::dir(s, dir).await?.origin;
    Ok(!origin.is_none() && Some(origin) != origin_snapshot(s).await?)
}

/// The key of the head of a directory, if it is loaded.
async fn loaded(s: &SyncTask, dir: ObjectId) -> Result<Option<Arc<DatasetKey>>> {
    let head = objects::dir(s, dir).await?.head_dataset;
    Ok(s.pool().keystore().get(ObjsetId(head.get())))
}

/// The wrapping key of the encryption root that a directory has.
async fn wrapping_of(s: &SyncTask, dir: ObjectId) -> Result<(ObjectId, Arc<WrappingKey>)> {
    let refused = || Error::Invalid(NOT_LOADED.to_owned());
    let root = root_of(s, dir).await?.ok_or_else(refused)?;
    Ok((root, s.pool().keystore().wrapping(root).ok_or_else(refused)?))
}

/// Whether a head is encrypted and its key not loaded.
pub(super) async fn is_locked(s: &SyncTask, of: &FoundHead) -> Result<bool> {
    let is_loaded = s.pool().keystore().is_loaded(ObjsetId(of.object.get()));
    Ok(!is_loaded && policy::is_encrypted(s, of.phys.dir).await?)
}

/// Refuses a head or snapshot whose intent log cannot be taken out of its contents, as that takes the key.
pub(super) async fn check_log_is_reachable(s: &SyncTask, of: &FoundHead) -> Result<()> {
    if !is_locked(s, of).await? || !contents::has_header_of_log(s, of).await? {
        return Ok(());
    }
    Err(Error::Invalid(format!("{}: it has an intent log, which takes its key; {NOT_LOADED}", of.name)))
}

/// How the wrapping of a key is described beside it.
struct Wrapping<'a> {
    key: &'a WrappingKey,
    root: ObjectId,
    format: KeyFormat,
    salt: u64,
    iterations: u64,
}

impl<'a> Wrapping<'a> {
    /// By a new key of the user's, whose encryption root is this directory.
    fn by(user: &'a UserKey, root: ObjectId) -> Self {
        let UserKey { wrapping, format, salt, iterations } = user;
        Self { key: wrapping, root, format: *format, salt: *salt, iterations: *iterations }
    }

    /// By the key of an encryption root that is there.
    async fn of_root(s: &SyncTask, root: ObjectId, key: &'a WrappingKey) -> Result<Self> {
        let stored = stored(s, root).await?;
        Ok(Self {
            key,
            root,
            format: stored.keyformat,
            salt: stored.pbkdf2_salt,
            iterations: stored.pbkdf2_iters,
        })
    }

    /// What a key object says of a key that is wrapped in this way.
    fn of(&self, s: &SyncTask, key: &DatasetKey, refcount: u64) -> Result<DslCryptoKey> {
        let mut iv = [0; 12];
        s.secret(&mut iv)?;
        let wrapped = key.wrap(self.key, iv).map_err(|error| Error::Invalid(error.to_string()))?;
        let WrappedKey { suite, guid, version, iv, mac, master_key, hmac_key } = wrapped;
        Ok(DslCryptoKey {
            suite: suite as u64,
            guid: Guid(guid),
            version,
            iv,
            mac,
            master_key,
            hmac_key,
            root_dd: self.root,
            refcount,
            keyformat: self.format,
            pbkdf2_salt: self.salt,
            pbkdf2_iters: self.iterations,
        })
    }
}

/// The key of a directory as it is stored.
async fn stored(s: &SyncTask, dir: ObjectId) -> Result<DslCryptoKey> {
    let object = object_of(s, dir).await?.ok_or_else(|| objects::corrupt(dir, "encrypted without a key"))?;
    let entries = objects::mos(s).entries(object).await?;
    DslCryptoKey::from_entries(entries.iter().map(|(name, value)| (name.as_bytes(), value)))
        .map_err(|error| objects::corrupt(object, error))
}

async fn store(s: &SyncTask, object: ObjectId, stored: &DslCryptoKey) -> Result<()> {
    for (name, value) in stored.entries() {
        // Keys of the first version have no version.
        if name == key::VERSION && stored.version == 0 {
            continue;
        }
        objects::set(s, object, &objects::name(name), &value).await?;
    }
    Ok(())
}

/// Makes the head of a new directory an encrypted one: with a key of its own, which is registered.
pub(super) async fn encrypt(
    s: &SyncTask,
    (parent, dir, head): (Option<ObjectId>, ObjectId, ObjectId),
    encryption: &Encryption,
) -> Result<()> {
    let (suite, inherited);
    let wrapping = match encryption {
        Encryption::Off => return Ok(()),
        Encryption::Inherited(of) => {
            suite = *of;
            let parent = parent.ok_or_else(|| Error::Invalid(NOT_LOADED.to_owned()))?;
            let (root, key) = wrapping_of(s, parent).await?;
            inherited = key;
            Wrapping::of_root(s, root, &inherited).await?
        }
        Encryption::Root(of, user) => {
            suite = *of;
            Wrapping::by(user, dir)
        }
    };
    let key = Arc::new(new_key(s, suite)?);
    let object = objects::create_zap(s, NewZap::of(objects::ZAP_METADATA)).await?;
    store(s, object, &wrapping.of(s, &key, 1)?).await?;
    objects::set_field(s, dir, CRYPTO_KEY_OBJ, &objects::one(object.get())).await?;
    features::activate(s, head, Feature::Encryption, &objects::one(0)).await?;
    let keystore = s.pool().keystore();
    keystore.insert(ObjsetId(head.get()), key);
    if let Encryption::Root(_, user) = encryption {
        keystore.insert_wrapping(dir, Arc::clone(&user.wrapping));
    }
    Ok(())
}

fn new_key(s: &SyncTask, suite: Suite) -> Result<DatasetKey> {
    let (mut guid, mut master, mut hmac) = ([0; 8], [0; 32], [0; 64]);
    s.secret(&mut guid)?;
    s.secret(&mut master)?;
    s.secret(&mut hmac)?;
    let key = DatasetKey::from_random(suite, u64::from_le_bytes(guid), master, hmac);
    // They are in the key now.
    master.fill(0);
    hmac.fill(0);
    std::hint::black_box((&master, &hmac));
    Ok(key)
}

/// A new clone has the key of its origin. What everything is a clone of has none.
pub(super) async fn share_with_clone(
    s: &SyncTask,
    (origin, origin_dir): (ObjectId, ObjectId),
    (dir, head): (ObjectId, ObjectId),
) -> Result<()> {
    let Some(object) = object_of(s, origin_dir).await? else { return Ok(()) };
    count(s, object, 1).await?;
    objects::set_field(s, dir, CRYPTO_KEY_OBJ, &objects::one(object.get())).await?;
    share(s, origin, head);
    Ok(())
}

/// A new dataset can be read with the key of another one, where that is loaded.
pub(super) fn share(s: &SyncTask, from: ObjectId, to: ObjectId) {
    s.pool().keystore().share(ObjsetId(from.get()), ObjsetId(to.get()));
}

/// A dataset that was received raw can be read with the key of its origin, where that is loaded. A key of its
/// own stays.
pub(super) fn share_loaded(s: &SyncTask, origin: ObjectId, head: ObjectId) {
    if s.pool().keystore().is_loaded(ObjsetId(origin.get())) {
        share(s, origin, head);
    }
}

/// A dataset is there no more, or is new. Its number may become that of one with another key, or with none,
/// and a change that failed may have left a key for it.
pub(super) fn forget(s: &SyncTask, dataset: ObjectId) {
    s.pool().keystore().remove(ObjsetId(dataset.get()));
}

/// A directory goes, and uses its key no more.
pub(super) async fn release(s: &SyncTask, dir: ObjectId) -> Result<()> {
    let Some(object) = object_of(s, dir).await? else { return Ok(()) };
    s.pool().keystore().remove_wrapping(dir);
    match count(s, object, -1).await? {
        0 => objects::free_object(s, object).await,
        _ => Ok(()),
    }
}

/// More or fewer directories use a key. Gives how many do now.
async fn count(s: &SyncTask, object: ObjectId, change: i64) -> Result<u64> {
    let name = objects::name(key::REFCOUNT);
    let now = objects::lookup(s, object, &name).await?.unwrap_or(1);
    let then = now.checked_add_signed(change);
    let then = then.ok_or_else(|| objects::corrupt(object, "a key that is used by less than nothing"))?;
    if then > 0 {
        objects::set(s, object, &name, &ZapValue::U64(vec![then])).await?;
    }
    Ok(then)
}

/// Checks that a directory can be moved below another one: what inherits its key cannot leave its root.
pub(super) async fn check_move(s: &SyncTask, dir: ObjectId, to: ObjectId) -> Result<()> {
    let Some(root) = root_of(s, dir).await? else { return Ok(()) };
    if root == dir || root_of(s, to).await? == Some(root) {
        return Ok(());
    }
    Err(Error::Invalid("cannot move encrypted child outside of its encryption root".to_owned()))
}
