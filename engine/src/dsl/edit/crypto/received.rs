//! Keys that come with raw streams, and the order of encryption roots after them.
//!
//! # The idea
//! A raw stream brings the key of its dataset as it is wrapped on the sender. A new dataset gets it and is an
//! encryption root, whose key is asked for (`keylocation=prompt`): nothing here says whether the parent of
//! the dataset has the same user's key. A dataset that was received before gets it anew with each stream, as
//! the user's key may be another one now. The random keys inside stay the same, and that is checked by their
//! guid.
//!
//! A replication stream says which of its datasets are encryption roots. When all of it was received, the
//! others inherit from theirs again ([`inherit_unasked`], [`become_root`]). No key is needed for either: what
//! the keys are wrapped with does not change, only whose name it has.
//!
//! # When the wrapping is not taken over
//! A dataset that is no encryption root here keeps its wrapping where the stream's was made with another
//! user's key than that of its root: it could be opened with neither of the two. That is so after its key was
//! made that of its parent here (`change-key -i`). What tells is how a passphrase becomes a key: the salt is
//! random. OpenZFS takes the key in any case, and it cannot be opened any more.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_crypt.c` (`dsl_crypto_recv_raw_key_*`), `libzfs_sendrecv.c`
//! (`recv_fix_encryption_hierarchy`).

use std::sync::Arc;

use codec::crypt::{Suite, WrappedKey};
use ondisk::crypto_key::{DslCryptoKey, key};
use ondisk::dsl_dir::field::CRYPTO_KEY_OBJ;
use ondisk::features::Feature;
use ondisk::send::KeyData;
use ondisk::{ObjectId, ObjsetId};

use super::super::properties::Assignment;
use super::change_key::{set, take_location, users};
use super::{is_clone, object_of, root_of, store, stored};
use crate::dmu::zap::edit::NewZap;
use crate::dsl::edit::{FoundHead, events, features, find_head, objects, properties};
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};
use crate::properties::{Prop, Value};

const PROMPT: &str = "prompt";

fn refuse<T>(why: &str) -> Result<T> {
    Err(Error::Invalid(why.to_owned()))
}

/// Checks keys that came with a raw stream; with `dir`, whether they are those of that directory.
pub(in crate::dsl::edit) async fn check_received(
    s: &SyncTask,
    dir: Option<ObjectId>,
    keys: &KeyData,
) -> Result<()> {
    if let Err(error) = Suite::from_raw(keys.suite) {
        let what = "stream uses crypto parameters not compatible with this pool";
        return Err(Error::Unsupported(format!("{what}: {error}")));
    }
    let Some(dir) = dir else { return Ok(()) };
    let ours = stored(s, dir).await?;
    match ours.guid == keys.guid && ours.suite == keys.suite {
        true => Ok(()),
        false => refuse("encryption key does not match existing key"),
    }
}

/// As the key object of a directory says it.
fn key_object(keys: &KeyData, root: ObjectId, refcount: u64) -> DslCryptoKey {
    DslCryptoKey {
        suite: keys.suite,
        guid: keys.guid,
        version: keys.version,
        iv: keys.iv,
        mac: keys.mac,
        master_key: keys.master_key,
        hmac_key: keys.hmac_key,
        root_dd: root,
        refcount,
        keyformat: keys.keyformat,
        pbkdf2_salt: keys.pbkdf2_salt,
        pbkdf2_iters: keys.pbkdf2_iters,
    }
}

/// Makes the head of a new directory an encryption root with keys that came with a raw stream.
pub(in crate::dsl::edit) async fn adopt(
    s: &SyncTask,
    (dir, head): (ObjectId, ObjectId),
    keys: &KeyData,
) -> Result<()> {
    let object = objects::create_zap(s, NewZap::of(objects::ZAP_METADATA)).await?;
    store(s, object, &key_object(keys, dir, 1)).await?;
    objects::set_field(s, dir, CRYPTO_KEY_OBJ, &objects::one(object.get())).await?;
    features::activate(s, head, Feature::Encryption, &objects::one(0)).await?;
    let location = Assignment::of(Prop::Keylocation, Value::Text(PROMPT.to_owned()));
    properties::store(s, dir, &location).await
}

/// A directory gets the keys of a further raw stream, which may be wrapped with another user's key.
pub(in crate::dsl::edit) async fn take_over(s: &SyncTask, dir: ObjectId, keys: &KeyData) -> Result<()> {
    let object = object_of(s, dir).await?.ok_or_else(|| objects::corrupt(dir, "lost its key"))?;
    let ours = stored(s, dir).await?;
    let theirs = key_object(keys, ours.root_dd, ours.refcount);
    if ours == theirs {
        return Ok(());
    }
    if ours.root_dd != dir {
        let root = stored(s, ours.root_dd).await?;
        let of = |key: &DslCryptoKey| (key.keyformat, key.pbkdf2_salt, key.pbkdf2_iters);
        if of(&root) != of(&theirs) {
            return Ok(());
        }
    }
    store(s, object, &theirs).await?;
    if ours.root_dd == dir {
        // Keys of what is created below would be wrapped with the old one.
        s.pool().keystore().remove_wrapping(dir);
    }
    Ok(())
}

/// What an encryption root is that a stream does not call one: it has the key of its parent's root from now
/// on, with which its key was wrapped on the sender. No key is needed.
pub async fn inherit_unasked(s: &SyncTask, name: &str) -> Result<()> {
    let head = find_head(s, name).await?;
    let dir = head.phys.dir;
    if root_of(s, dir).await? != Some(dir) || is_clone(s, dir).await? {
        return refuse("Key inheritting can only be performed on encryption roots.");
    }
    let above = objects::dir(s, dir).await?.parent;
    if above.is_none() {
        return refuse("Root dataset cannot inherit key.");
    }
    let Some(root) = root_of(s, above).await? else { return refuse("Parent must be encrypted.") };
    name_root(s, &head, (dir, root)).await?;
    take_location(s, dir).await?;
    s.pool().keystore().remove_wrapping(dir);
    open_loaded(s, root, dir).await
}

/// Makes what inherits its key an encryption root, with the wrapping that it has. No key is needed.
pub async fn become_root(s: &SyncTask, name: &str) -> Result<()> {
    let head = find_head(s, name).await?;
    let dir = head.phys.dir;
    match root_of(s, dir).await? {
        None => return refuse("Dataset not encrypted."),
        Some(root) if root == dir => return refuse("it is an encryption root already"),
        Some(root) => {
            if is_clone(s, dir).await? {
                return refuse("Keys cannot be changed on clones.");
            }
            name_root(s, &head, (root, dir)).await?;
        }
    }
    set(s, &head, &Assignment::of(Prop::Keylocation, Value::Text(PROMPT.to_owned()))).await
}

/// All that has its key from the root `from`, from a head on, has it from the root `to`.
async fn name_root(s: &SyncTask, head: &FoundHead, (from, to): (ObjectId, ObjectId)) -> Result<()> {
    let users = users(s, from, head.phys.dir).await?;
    s.require_for_change(Spare::Reserved, 2 + users.len() as u64)?;
    for user in users {
        if let Some(object) = object_of(s, user).await? {
            objects::set(s, object, &objects::name(key::ROOT_DDOBJ), &objects::one(to.get())).await?;
        }
    }
    events::set(s, &head.name, head.phys.guid, "keyformat");
    Ok(())
}

/// Where the key of a root is loaded, that of what inherits it now is too.
async fn open_loaded(s: &SyncTask, root: ObjectId, from: ObjectId) -> Result<()> {
    let keystore = s.pool().keystore();
    let Some(wrapping) = keystore.wrapping(root) else { return Ok(()) };
    for dir in users(s, root, from).await? {
        let stored = stored(s, dir).await?;
        let Ok(suite) = Suite::from_raw(stored.suite) else { continue };
        let DslCryptoKey { guid, version, iv, mac, master_key, hmac_key, .. } = stored;
        let wrapped = WrappedKey { suite, guid: guid.get(), version, iv, mac, master_key, hmac_key };
        let Ok(opened) = wrapped.unwrap(&wrapping) else {
            tracing::warn!(%dir, "its key is not wrapped with that of its encryption root");
            continue;
        };
        let opened = Arc::new(opened);
        let mut at = objects::dir(s, dir).await?.head_dataset;
        while !at.is_none() {
            let phys = objects::dataset(s, at).await?;
            if phys.dir != dir {
                break;
            }
            keystore.insert(ObjsetId(at.get()), Arc::clone(&opened));
            at = phys.prev_snap;
        }
    }
    Ok(())
}
