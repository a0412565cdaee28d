//! Keys that are forgotten in a pool that is written.
//!
//! Nothing of a dataset may be waiting to be written when its key goes: it could not be encrypted. So the keys
//! go in syncing context, after the datasets of the group were written, and only if none of them is in use or
//! was changed since. What is open of them and is not used is closed.

use ondisk::{ObjectId, ObjsetId};

use super::super::{find_head, objects};
use super::root_of;
use crate::dsl::SyncTask;
use crate::error::{Error, Result};

/// Forgets the key of the encryption root called `name`. The intent logs of what is open with it must be
/// closed before.
///
/// # Errors
/// It is no root, its key is not loaded, or something that takes it is in use.
pub async fn unload_key(s: &SyncTask, name: &str) -> Result<()> {
    let head = find_head(s, name).await?;
    let dir = head.phys.dir;
    match root_of(s, dir).await? {
        Some(root) if root == dir => {}
        _ => return Err(Error::Invalid(format!("'{name}' is not an encryption root"))),
    }
    let keystore = s.pool().keystore();
    if keystore.wrapping(dir).is_none() && !keystore.is_loaded(ObjsetId(head.object.get())) {
        return Err(Error::Invalid(format!("the key of '{name}' is not loaded")));
    }
    let datasets = datasets_of(s, dir).await?;
    if !s.dsl_pool().close_unused(&datasets) {
        return Err(Error::Busy(format!("'{name}' is busy: a dataset that takes its key is in use")));
    }
    for id in &datasets {
        keystore.remove(*id);
    }
    keystore.remove_wrapping(dir);
    Ok(())
}

/// The heads and snapshots of all directories whose keys are wrapped with that of a root.
async fn datasets_of(s: &SyncTask, root: ObjectId) -> Result<Vec<ObjsetId>> {
    let mut found = Vec::new();
    // A clone may lie anywhere.
    let mut pending = vec![super::super::root_dir(s).await?];
    while let Some(dir) = pending.pop() {
        let phys = objects::dir(s, dir).await?;
        let children = objects::entries(s, phys.child_dir_zap).await?;
        pending.extend(children.into_iter().map(|(_, child)| ObjectId(child)));
        if phys.head_dataset.is_none() || root_of(s, dir).await? != Some(root) {
            continue;
        }
        found.push(ObjsetId(phys.head_dataset.get()));
        let head = objects::dataset(s, phys.head_dataset).await?;
        let snapshots = objects::entries(s, head.snapnames_zap).await?;
        found.extend(snapshots.into_iter().map(|(_, snapshot)| ObjsetId(snapshot)));
    }
    Ok(found)
}
