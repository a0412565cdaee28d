//! Another user's key, and another encryption root: `zfs change-key`, and what a promotion does to a root.
//!
//! All keys that are wrapped with the one that changes are wrapped anew, in one group: those of the directory
//! and of all below it that inherit from the same root, and those of what lies below their clones. Clones
//! themselves have no key objects of their own. So after a crash either the old user's key opens all of them,
//! or the new one does.
//!
//! A key is wrapped anew from the opened one that is registered with the pool. So all must be loaded; none is
//! left wrapped with a key that its root does not have any more.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_crypt.c` (`spa_keystore_change_key_*`,
//! `dsl_dataset_promote_crypt_*`).

use std::collections::HashSet;
use std::sync::Arc;

use ondisk::crypto_key::key;
use ondisk::dsl_dir::prop_suffix::INHERIT;
use ondisk::{ObjectId, ObjsetId};

use super::super::properties::{Assignment, Setting, check_user_only, store};
use super::super::{FoundHead, events, find_head, name_of_dir, objects};
use super::{Wrapping, asked, is_clone, loaded, object_of, root_of, stored, wrapping_of};
use crate::dsl::keys::UserKey;
use crate::dsl::{Spare, SyncTask, is_hidden};
use crate::error::{Error, Result};
use crate::properties::{Prop, Value};

/// More directories than a pool has.
const MAX_DIRS: usize = 4 << 20;
const LOCATION: &str = "keylocation";

/// What becomes of the key of a dataset's user.
#[derive(Debug, Clone)]
pub enum KeyChange {
    /// It becomes another one. A dataset that is no encryption root becomes one.
    New {
        /// The key.
        key: Arc<UserKey>,
        /// Where it is found from now on; where it was before, or `prompt` at a new root, unless given.
        location: Option<String>,
    },
    /// An encryption root becomes none: it has the key of its parent.
    Inherit,
}

fn refuse<T>(why: &str) -> Result<T> {
    Err(Error::Invalid(why.to_owned()))
}

/// Changes the user's key of a filesystem or volume, whose key must be loaded, and sets user properties of
/// it.
pub async fn change_key(
    s: &SyncTask,
    name: &str,
    change: &KeyChange,
    properties: &[(String, String)],
) -> Result<()> {
    let head = find_head(s, name).await?;
    let dir = head.phys.dir;
    let Some(root) = root_of(s, dir).await? else { return refuse("Dataset not encrypted.") };
    if is_clone(s, dir).await? {
        return refuse("Keys cannot be changed on clones.");
    }
    check_user_only(s, properties)?;
    let above = objects::dir(s, dir).await?.parent;
    let inherited;
    let (wrapping, location) = match change {
        KeyChange::New { key, location } => {
            let is_new = root != dir;
            let location = location.clone().or(is_new.then(|| "prompt".to_owned()));
            if let Some(location) = &location {
                asked::check_value(Prop::Keylocation, &Value::Text(location.clone()))?;
                if location == "none" {
                    return refuse("keylocation must not be 'none' for encrypted datasets");
                }
            }
            (Wrapping::by(key, dir), location)
        }
        KeyChange::Inherit => {
            if root != dir {
                return refuse("Key inheritting can only be performed on encryption roots.");
            }
            if above.is_none() {
                return refuse("Root dataset cannot inherit key.");
            }
            if object_of(s, above).await?.is_none() {
                return refuse("Parent must be encrypted.");
            }
            let Ok((root, key)) = wrapping_of(s, above).await else {
                return refuse("Parent key must be loaded.");
            };
            inherited = key;
            (Wrapping::of_root(s, root, &inherited).await?, None)
        }
    };
    let users = users(s, root, dir).await?;
    let mut keys = Vec::new();
    for user in &users {
        match loaded(s, *user).await? {
            Some(key) => keys.push(key),
            None if *user == dir => return refuse("Key must be loaded."),
            None => {
                let name = name_of_dir(s, *user).await?;
                return Err(Error::Invalid(format!("the key of '{name}', which it would be, is not loaded")));
            }
        }
    }
    s.require_for_change(Spare::Reserved, 2 + users.len() as u64)?;

    for (user, key) in users.iter().zip(keys) {
        let before = stored(s, *user).await?;
        let object = object_of(s, *user).await?.ok_or_else(|| objects::corrupt(*user, "lost its key"))?;
        super::store(s, object, &wrapping.of(s, &key, before.refcount)?).await?;
    }
    let keystore = s.pool().keystore();
    match change {
        KeyChange::New { key, .. } => keystore.insert_wrapping(dir, Arc::clone(&key.wrapping)),
        KeyChange::Inherit => drop(keystore.remove_wrapping(dir)),
    }
    if root == dir && location.is_none() && matches!(change, KeyChange::Inherit) {
        take_location(s, dir).await?;
    }
    let user_properties = properties.iter().map(|(name, text)| {
        let value = Value::Text(text.clone());
        Assignment { name: name.clone(), value, setting: Setting::Stored }
    });
    let location = location.map(|at| Assignment::of(Prop::Keylocation, Value::Text(at)));
    for assignment in location.into_iter().chain(user_properties) {
        set(s, &head, &assignment).await?;
    }
    // What is shown of its key is different.
    events::set(s, name, head.phys.guid, "keyformat");
    Ok(())
}

pub(super) async fn set(s: &SyncTask, head: &FoundHead, assignment: &Assignment) -> Result<()> {
    store(s, head.phys.dir, assignment).await?;
    if let Value::Text(text) = &assignment.value {
        events::note(s, "set", &head.name, head.object, &format!("{}={text}", assignment.name)).await?;
    }
    events::set(s, &head.name, head.phys.guid, &assignment.name);
    Ok(())
}

/// A directory has no location of a key any more. Gives the one that it had.
pub(super) async fn take_location(s: &SyncTask, dir: ObjectId) -> Result<Option<String>> {
    use crate::dsl::ValueExt;
    let zap = objects::dir(s, dir).await?.props_zap;
    let had = objects::mos(s).value(zap, LOCATION).await?.and_then(|value| value.text());
    for name in [LOCATION.to_owned(), format!("{LOCATION}{INHERIT}")] {
        objects::remove(s, zap, &objects::name(&name)).await?;
    }
    Ok(had)
}

/// The directories from `start` on whose own keys are wrapped with that of `root`.
pub(super) async fn users(s: &SyncTask, root: ObjectId, start: ObjectId) -> Result<Vec<ObjectId>> {
    let mut users = Vec::new();
    // Clones are passed through: their key is their origin's, but that of what lies below is its own.
    let mut pending = vec![(start, false)];
    let mut seen = HashSet::new();
    while let Some((dir, is_passed)) = pending.pop() {
        if !seen.insert((dir, is_passed)) {
            continue;
        }
        if seen.len() > MAX_DIRS {
            return Err(objects::corrupt(start, "too many directories use its key"));
        }
        let Some(current) = root_of(s, dir).await? else { continue };
        if !is_passed && (current != root || is_clone(s, dir).await?) {
            continue;
        }
        if !is_passed {
            users.push(dir);
        }
        let phys = objects::dir(s, dir).await?;
        for (name, child) in objects::entries(s, phys.child_dir_zap).await? {
            if !is_hidden(&name) {
                pending.push((ObjectId(child), false));
            }
        }
        if !phys.clones.is_none() {
            for (_, clone) in objects::entries(s, phys.clones).await? {
                pending.push((objects::dataset(s, ObjectId(clone)).await?.dir, true));
            }
        }
    }
    Ok(users)
}

/// Checks that a clone can take its origin's place. What inherits its key cannot get another root by that.
pub(in crate::dsl::edit) async fn check_promote(
    s: &SyncTask,
    clone: ObjectId,
    origin: ObjectId,
) -> Result<()> {
    let Some(root) = root_of(s, origin).await? else { return Ok(()) };
    if root == origin || is_clone(s, origin).await? {
        return Ok(());
    }
    let above = async |dir: ObjectId| -> Result<Option<ObjectId>> {
        let parent = objects::dir(s, dir).await?.parent;
        if parent.is_none() { Ok(None) } else { root_of(s, parent).await }
    };
    match (above(origin).await?, above(clone).await?) {
        (Some(a), Some(b)) if a == b => Ok(()),
        _ => refuse("cannot promote dataset outside its encryption root"),
    }
}

/// A clone is about to take the place of its origin: where that is an encryption root, the clone is it from
/// now on. Called before anything else of the promotion.
pub(in crate::dsl::edit) async fn promoted(s: &SyncTask, clone: &FoundHead, origin: ObjectId) -> Result<()> {
    if root_of(s, origin).await? != Some(origin) || is_clone(s, origin).await? {
        return Ok(());
    }
    let dir = clone.phys.dir;
    for user in users(s, origin, origin).await? {
        if let Some(object) = object_of(s, user).await? {
            objects::set(s, object, &objects::name(key::ROOT_DDOBJ), &objects::one(dir.get())).await?;
        }
    }
    let location = take_location(s, origin).await?.unwrap_or_else(|| "prompt".to_owned());
    set(s, clone, &Assignment::of(Prop::Keylocation, Value::Text(location))).await?;
    let head_of_origin = objects::dir(s, origin).await?.head_dataset;
    let guid = objects::dataset(s, head_of_origin).await?.guid;
    events::set(s, &name_of_dir(s, origin).await?, guid, LOCATION);
    let keystore = s.pool().keystore();
    if let Some(key) = keystore.remove_wrapping(origin) {
        keystore.insert_wrapping(dir, key);
    }
    debug_assert!(!keystore.is_loaded(ObjsetId(clone.object.get())) || keystore.wrapping(dir).is_some());
    Ok(())
}
