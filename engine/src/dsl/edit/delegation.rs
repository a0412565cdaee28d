//! Delegated permissions that are granted and taken away (`zfs allow`, `zfs unallow`).
//!
//! Each key of a directory's list leads to an object of its own with the permissions ([`ondisk::deleg`]).
//! That object goes with its last permission; the list itself stays, empty, until its dataset is destroyed,
//! as OpenZFS leaves it.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_deleg.c`.

use std::collections::BTreeMap;

use ondisk::ObjectId;
use ondisk::deleg::{DelegKey, Scope, Who};
use ondisk::dmu::DmuType;
use ondisk::dsl_dir::DslDirPhys;
use ondisk::pool_directory::PROPS;
use ondisk::pool_version as version;

use super::{FoundHead, events, find_head, objects, space};
use crate::dmu::zap::edit::NewZap;
use crate::dsl::delegation::{Delegation, Subject, User, allows, is_set_name, permission};
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};

/// What is granted or taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// To whom, and where.
    pub key: DelegKey,
    /// The permissions, or names of sets where the key is of sets. None at all stand for all that there are,
    /// where they are taken away.
    pub permissions: Vec<String>,
}

/// Whether grants make sense.
fn check(grants: &[Grant]) -> Result<()> {
    for Grant { key, permissions } in grants {
        if let Who::NamedSet(name) = &key.who
            && !is_set_name(name)
        {
            return Err(Error::Invalid(format!("invalid set name '{name}'")));
        }
        let is_known = |name: &String| match key.sets {
            true => is_set_name(name),
            false => permission(name) == Some(name.as_str()),
        };
        if let Some(unknown) = permissions.iter().find(|name| !is_known(name)) {
            return Err(Error::Invalid(format!("invalid permission '{unknown}'")));
        }
    }
    Ok(())
}

async fn find(s: &SyncTask, name: &str, grants: &[Grant]) -> Result<FoundHead> {
    if !s.has_version(version::DELEGATED_PERMS) {
        return Err(Error::Unsupported("pool must be upgraded to use 'allow' delegation".to_owned()));
    }
    check(grants)?;
    let head = find_head(s, name).await?;
    let count: usize = grants.iter().map(|grant| 1 + grant.permissions.len()).sum();
    s.require_for_change(Spare::Reserved, 1 + count as u64)?;
    Ok(head)
}

async fn note(s: &SyncTask, head: &FoundHead, event: &str, key: &str, permission: &str) -> Result<()> {
    let text = if permission.is_empty() { key.to_owned() } else { format!("{key} {permission}") };
    events::note(s, event, &head.name, head.object, &text).await
}

/// The list of a directory, made where there is none.
async fn list_of(s: &SyncTask, dir: ObjectId) -> Result<ObjectId> {
    let found = objects::dir(s, dir).await?.deleg_zap;
    if !found.is_none() {
        return Ok(found);
    }
    let list = objects::create_zap(s, NewZap::of(DmuType::DSL_PERMS)).await?;
    objects::change_dir(s, dir, |dir| dir.deleg_zap = list).await?;
    Ok(list)
}

/// The object of a key, made where there is none.
async fn permissions_of(s: &SyncTask, list: ObjectId, key: &str) -> Result<ObjectId> {
    if let Some(found) = objects::lookup(s, list, &objects::name(key)).await? {
        return Ok(ObjectId(found));
    }
    let made = objects::create_zap(s, NewZap::of(DmuType::DSL_PERMS)).await?;
    objects::add(s, list, &objects::name(key), &objects::one(made.get())).await?;
    Ok(made)
}

/// Grants permissions on a filesystem or volume.
pub async fn allow(s: &SyncTask, name: &str, grants: &[Grant]) -> Result<()> {
    if grants.iter().any(|grant| grant.permissions.is_empty()) {
        return Err(Error::Invalid("no permissions are named".to_owned()));
    }
    let head = find(s, name, grants).await?;
    let list = list_of(s, head.phys.dir).await?;
    for Grant { key, permissions } in grants {
        let key = key.encode();
        let object = permissions_of(s, list, &key).await?;
        for permission in permissions {
            objects::set(s, object, &objects::name(permission), &objects::one(0)).await?;
            note(s, &head, "permission update", &key, permission).await?;
        }
    }
    Ok(())
}

/// Takes permissions on a filesystem or volume away. Those that are not there do no harm.
pub async fn unallow(s: &SyncTask, name: &str, grants: &[Grant]) -> Result<()> {
    let head = find(s, name, grants).await?;
    let list = objects::dir(s, head.phys.dir).await?.deleg_zap;
    if list.is_none() {
        return Ok(());
    }
    for Grant { key, permissions } in grants {
        let key = key.encode();
        let name = objects::name(&key);
        let found = objects::lookup(s, list, &name).await?.map(ObjectId);
        if permissions.is_empty() {
            if let Some(object) = found {
                objects::take(s, list, &name).await?;
                objects::free_object(s, object).await?;
            }
            note(s, &head, "permission who remove", &key, "").await?;
            continue;
        }
        let Some(object) = found else { continue };
        for permission in permissions {
            objects::remove(s, object, &objects::name(permission)).await?;
            note(s, &head, "permission remove", &key, permission).await?;
        }
        if objects::entries(s, object).await?.is_empty() {
            objects::take(s, list, &name).await?;
            objects::free_object(s, object).await?;
        }
    }
    Ok(())
}

/// Grants the creator of a new filesystem or volume what those above it say that creators get
/// (`dsl_deleg_set_create_perms`).
pub async fn grant_to_creator(s: &SyncTask, name: &str, uid: u32) -> Result<()> {
    if !s.has_version(version::DELEGATED_PERMS) {
        return Ok(());
    }
    let head = find_head(s, name).await?;
    let mut granted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, above) in space::chain(s, head.phys.dir).await?.iter().skip(1) {
        if above.deleg_zap.is_none() {
            continue;
        }
        for sets in [false, true] {
            let of_creators = DelegKey { who: Who::Creator, scope: Scope::None, sets };
            let found = objects::lookup(s, above.deleg_zap, &objects::name(&of_creators.encode())).await?;
            let Some(object) = found else { continue };
            let key = DelegKey { who: Who::User(uid.into()), scope: Scope::Local, sets };
            let names = objects::entries(s, ObjectId(object)).await?;
            granted.entry(key.encode()).or_default().extend(names.into_iter().map(|(name, _)| name));
        }
    }
    if granted.is_empty() {
        return Ok(());
    }
    let list = list_of(s, head.phys.dir).await?;
    for (key, permissions) in granted {
        let object = permissions_of(s, list, &key).await?;
        for permission in permissions {
            objects::set(s, object, &objects::name(&permission), &objects::one(0)).await?;
        }
    }
    Ok(())
}

/// Whether a user has a permission on the dataset of the first of these directories, each of which lies above
/// the one before it, up to the root (`dsl_deleg_access_impl`).
pub(super) async fn has_permission(
    s: &SyncTask,
    chain: &[(ObjectId, DslDirPhys)],
    user: &User<'_>,
    permission: &str,
) -> Result<bool> {
    let properties = s.directory_u64(PROPS).await?.map(ObjectId).filter(|properties| !properties.is_none());
    let is_on = match properties {
        Some(properties) => objects::lookup(s, properties, &objects::name("delegation")).await? != Some(0),
        None => true,
    };
    if !is_on {
        return Ok(false);
    }
    let mut granted = Vec::with_capacity(chain.len());
    for (_, dir) in chain {
        granted.push(granted_by(s, dir).await?);
    }
    Ok(allows(&granted, Subject::Dataset, user, permission))
}

/// What a directory grants. What makes no sense grants nothing.
async fn granted_by(s: &SyncTask, dir: &DslDirPhys) -> Result<Delegation> {
    let mut found = Delegation::default();
    if dir.deleg_zap.is_none() {
        return Ok(found);
    }
    for (key, object) in objects::entries(s, dir.deleg_zap).await? {
        let Some(key) = DelegKey::parse(&key) else { continue };
        let permissions = objects::entries(s, ObjectId(object)).await?;
        found.lists.insert(key, permissions.into_iter().map(|(name, _)| name).collect());
    }
    Ok(found)
}

/// Frees what a directory that goes grants.
pub(super) async fn free(s: &SyncTask, dir: &DslDirPhys) -> Result<()> {
    if dir.deleg_zap.is_none() {
        return Ok(());
    }
    for (_, permissions) in objects::entries(s, dir.deleg_zap).await? {
        objects::free_object(s, ObjectId(permissions)).await?;
    }
    objects::free_object(s, dir.deleg_zap).await
}
