//! Names that change: a directory moves, with all below it.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dir.c` (`dsl_dir_rename_sync`).

use ondisk::features::Feature;
use ondisk::holds::MAX_DATASET_NAME_BYTES;
use ondisk::{ObjectId, ObjsetId};

use super::limits::{self, Counted};
use super::space::{self, Change, Used, did_use};
use super::{create, crypto, events, features, find_head, objects, policy, snapshot};
use crate::dmu::Space;
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};

/// Gives a filesystem or volume (with all below it), or a snapshot within its dataset, another name.
pub async fn rename(s: &SyncTask, from: &str, to: &str) -> Result<()> {
    if from.contains('@') || to.contains('@') {
        return snapshot::rename_snapshots(s, &[(from.to_owned(), to.to_owned())]).await;
    }
    let head = find_head(s, from).await?;
    let dir_id = head.phys.dir;
    let dir = objects::dir(s, dir_id).await?;
    if dir.parent.is_none() {
        return Err(Error::Invalid(format!("{from}: the pool's own filesystem cannot be renamed")));
    }
    let (parent_name, short) =
        to.rsplit_once('/').ok_or_else(|| Error::Invalid(format!("'{to}': is in no pool")))?;
    create::check_name(to, short)?;
    let parent = find_head(s, parent_name).await?;
    create::check_parent(s, &parent, short, to).await?;
    if dir.parent != parent.phys.dir {
        crypto::check_move(s, dir_id, parent.phys.dir).await?;
    }
    let above = space::chain(s, parent.phys.dir).await?;
    if above.iter().any(|(id, _)| *id == dir_id) {
        return Err(Error::Invalid(format!("{from}: cannot be moved below itself")));
    }
    check_names_below(s, dir_id, from, to).await?;
    s.require_for_change(Spare::Reserved, 3)?;
    if dir.parent != parent.phys.dir {
        move_counts(s, dir_id, parent.phys.dir).await?;
    }
    let old = objects::dir(s, dir.parent).await?.child_dir_zap;
    let new = objects::dir(s, parent.phys.dir).await?.child_dir_zap;
    let old_short = from.rsplit('/').next().unwrap_or_default();
    objects::take(s, old, &objects::name(old_short)).await?;
    objects::change_dir(s, dir_id, |dir| dir.parent = parent.phys.dir).await?;
    objects::add(s, new, &objects::name(short), &objects::one(dir_id.get())).await?;
    events::note(s, "rename", from, head.object, &format!("-> {to}")).await?;
    events::renamed(s, from, to, head.phys.guid);
    s.rename_open(from, to);
    // Others may be inherited from now on.
    let moved = objsets_below(s, to).await?;
    policy::refresh(s, &moved).await
}

/// Checks that the names of all below, and of their snapshots, are still short enough.
pub(super) async fn check_names_below(s: &SyncTask, dir: ObjectId, from: &str, to: &str) -> Result<()> {
    let mut pending = vec![(dir, to.to_owned())];
    if to.len() <= from.len() && to.split('/').count() <= from.split('/').count() {
        return Ok(());
    }
    while let Some((dir, name)) = pending.pop() {
        let phys = objects::dir(s, dir).await?;
        let mut longest = name.len();
        if !phys.head_dataset.is_none() {
            let head = objects::dataset(s, phys.head_dataset).await?;
            for (snapshot, _) in objects::entries(s, head.snapnames_zap).await? {
                longest = longest.max(name.len() + 1 + snapshot.len());
            }
        }
        if longest >= MAX_DATASET_NAME_BYTES || name.split('/').count() > create::MAX_NESTING {
            return Err(Error::Invalid(format!("{name}: names would become too long or nest too deep")));
        }
        for (child, id) in objects::entries(s, phys.child_dir_zap).await? {
            pending.push((ObjectId(id), format!("{name}/{child}")));
        }
    }
    Ok(())
}

/// What a directory counts goes from its old parent to its new one.
async fn move_counts(s: &SyncTask, id: ObjectId, to: ObjectId) -> Result<()> {
    let dir = objects::dir(s, id).await?;
    let from = dir.parent;
    space::check_transfer(s, from, to, dir.used_bytes.max(dir.reserved)).await?;
    let ancestor = common_ancestor(s, from, to).await?;
    let (mut filesystems, mut snapshots) = (0, 0);
    if features::is_active(s, Feature::FilesystemLimits).await? {
        limits::initialize(s, id).await?;
        filesystems = limits::count(s, id, Counted::Filesystems).await?.unwrap_or(0) + 1;
        snapshots = limits::count(s, id, Counted::Snapshots).await?.unwrap_or(0);
        limits::check(s, to, Counted::Filesystems, filesystems, ancestor).await?;
        limits::check(s, to, Counted::Snapshots, snapshots, ancestor).await?;
    }
    for (counted, count) in [(Counted::Filesystems, filesystems), (Counted::Snapshots, snapshots)] {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        limits::adjust(s, from, counted, -count).await?;
        limits::adjust(s, to, counted, count).await?;
    }
    let used = Space {
        used: dir.used_bytes,
        compressed: dir.compressed_bytes,
        uncompressed: dir.uncompressed_bytes,
    };
    did_use(s, from, Used::Child, Change::less(used)).await?;
    did_use(s, to, Used::Child, Change::more(used)).await?;
    let unused = i64::try_from(dir.reserved.saturating_sub(dir.used_bytes)).unwrap_or(i64::MAX);
    did_use(s, from, Used::ChildReserved, Change::used(-unused)).await?;
    did_use(s, to, Used::ChildReserved, Change::used(unused)).await
}

async fn common_ancestor(s: &SyncTask, a: ObjectId, b: ObjectId) -> Result<Option<ObjectId>> {
    let (of_a, of_b) = (space::chain(s, a).await?, space::chain(s, b).await?);
    Ok(of_a.iter().map(|(id, _)| *id).find(|id| of_b.iter().any(|(other, _)| other == id)))
}

/// Names of the object sets of a directory and of all below it: those that are open under another name after
/// a rename.
pub async fn objsets_below(s: &SyncTask, name: &str) -> Result<Vec<ObjsetId>> {
    let mut found = Vec::new();
    let mut pending = vec![find_head(s, name).await?.phys.dir];
    while let Some(dir) = pending.pop() {
        let phys = objects::dir(s, dir).await?;
        if !phys.head_dataset.is_none() {
            found.push(ObjsetId(phys.head_dataset.get()));
        }
        let children = objects::entries(s, phys.child_dir_zap).await?;
        pending.extend(children.into_iter().map(|(_, id)| ObjectId(id)));
    }
    Ok(found)
}
