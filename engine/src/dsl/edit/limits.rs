//! Counts of filesystems and snapshots below a directory, and the times at which snapshots changed.
//!
//! Counts are kept from the moment when a limit is first set somewhere above: a directory without a count
//! ends the climb, since there is no limit above it either.
//!
//! # Whom limits bind
//! Users, not root ([`Asker`]). A user who may change a limit, by what `zfs allow` granted, is not bound by
//! it, but by those above that the user may not change. In what is `zoned` such a grant does not count.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_dir.c` (`dsl_fs_ss_limit_check`, `dsl_enforce_ds_ss_limits`).

use ondisk::ObjectId;
use ondisk::dsl_dir::DslDirPhys;
use ondisk::dsl_dir::field::{FILESYSTEM_COUNT, SNAPSHOT_COUNT, SNAPSHOTS_CHANGED};
use ondisk::features::Feature;
use ondisk::zap::ZapValue;

use super::{delegation, features, objects, properties, space};
use crate::dsl::delegation::User;
use crate::dsl::{Asker, SyncTask};
use crate::error::{Error, Result};
use crate::properties::Prop;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    Filesystems,
    Snapshots,
}

impl Counted {
    fn field(self) -> &'static str {
        match self {
            Counted::Filesystems => FILESYSTEM_COUNT,
            Counted::Snapshots => SNAPSHOT_COUNT,
        }
    }

    fn limit(self) -> Prop {
        match self {
            Counted::Filesystems => Prop::FilesystemLimit,
            Counted::Snapshots => Prop::SnapshotLimit,
        }
    }
}

/// The count of a directory, where it is kept.
pub(super) async fn count(s: &SyncTask, dir: ObjectId, counted: Counted) -> Result<Option<u64>> {
    objects::field(s, dir, counted.field()).await
}

/// Adds to the counts of a directory and of those above it (`dsl_fs_ss_count_adjust`).
pub(super) async fn adjust(s: &SyncTask, dir: ObjectId, counted: Counted, change: i64) -> Result<()> {
    if change == 0 {
        return Ok(());
    }
    for (at, _) in space::chain(s, dir).await? {
        let Some(count) = count(s, at, counted).await? else { return Ok(()) };
        let value = objects::one(space::moved(count, change));
        objects::set(s, at, &objects::name(counted.field()), &value).await?;
    }
    Ok(())
}

/// Refuses what would exceed a limit of a directory or of one above it, up to `ancestor`, which has it
/// already, if that limit binds the one who asks.
pub(super) async fn check(
    s: &SyncTask,
    dir: ObjectId,
    counted: Counted,
    more: u64,
    ancestor: Option<ObjectId>,
) -> Result<()> {
    let Asker::User { uid, gid, groups } = s.asker() else { return Ok(()) };
    if more == 0 {
        return Ok(());
    }
    let user = User { uid: *uid, gid: *gid, groups };
    let chain = space::chain(s, dir).await?;
    let mut rest = chain.as_slice();
    while let Some(((at, phys), above)) = rest.split_first() {
        if ancestor == Some(*at) {
            return Ok(());
        }
        let Some(count) = count(s, *at, counted).await? else { return Ok(()) };
        let limit = properties::number_at(s, phys.props_zap, counted.limit()).await?;
        if limit.is_some_and(|limit| count.saturating_add(more) > limit)
            && !may_change(s, rest, counted, &user).await?
        {
            let what = match counted {
                Counted::Filesystems => "filesystem",
                Counted::Snapshots => "snapshot",
            };
            return Err(Error::NoSpace(format!("the {what} limit of a dataset above is reached")));
        }
        rest = above;
    }
    Ok(())
}

/// Whether a user may change the limit of the first of these directories, each of which lies above the one
/// before it.
async fn may_change(
    s: &SyncTask,
    chain: &[(ObjectId, DslDirPhys)],
    counted: Counted,
    user: &User<'_>,
) -> Result<bool> {
    for (_, phys) in chain {
        if let Some(zoned) = properties::number_at(s, phys.props_zap, Prop::Zoned).await? {
            if zoned != 0 {
                return Ok(false);
            }
            break;
        }
    }
    delegation::has_permission(s, chain, user, counted.limit().desc().name).await
}

/// A new directory's counts, where counts are kept at all.
pub(super) async fn begin(s: &SyncTask, dir: ObjectId) -> Result<()> {
    if features::is_active(s, Feature::FilesystemLimits).await? {
        objects::set_field(s, dir, FILESYSTEM_COUNT, &objects::one(0)).await?;
        objects::set_field(s, dir, SNAPSHOT_COUNT, &objects::one(0)).await?;
    }
    Ok(())
}

/// Sees to it that a directory and all below it have counts (`dsl_dir_init_fs_ss_count`). Counts that are
/// there are right.
pub(super) async fn initialize(s: &SyncTask, dir: ObjectId) -> Result<()> {
    // Parents first, so that the counts can be added up from the end.
    let mut order = vec![(dir, None)];
    let mut next = 0;
    while let Some(&(at, _)) = order.get(next) {
        if count(s, at, Counted::Filesystems).await?.is_none() {
            for (name, child) in objects::entries(s, objects::dir(s, at).await?.child_dir_zap).await? {
                if !name.starts_with('$') {
                    order.push((ObjectId(child), Some(next)));
                }
            }
        }
        next += 1;
    }
    let mut sums = vec![(0u64, 0u64); order.len()];
    for (index, (at, parent)) in order.iter().enumerate().rev() {
        let mut counts = sums.get(index).copied().unwrap_or_default();
        match count(s, *at, Counted::Filesystems).await? {
            Some(filesystems) => {
                counts = (filesystems, count(s, *at, Counted::Snapshots).await?.unwrap_or(0));
            }
            None => {
                let head = objects::dir(s, *at).await?.head_dataset;
                if !head.is_none() {
                    let snapshots = objects::dataset(s, head).await?.snapnames_zap;
                    let names = objects::entries(s, snapshots).await?;
                    counts.1 += names.iter().filter(|(name, _)| !name.starts_with('%')).count() as u64;
                }
                objects::set_field(s, *at, FILESYSTEM_COUNT, &objects::one(counts.0)).await?;
                objects::set_field(s, *at, SNAPSHOT_COUNT, &objects::one(counts.1)).await?;
            }
        }
        if let Some(of_parent) = parent.and_then(|parent: usize| sums.get_mut(parent)) {
            of_parent.0 += counts.0 + 1;
            of_parent.1 += counts.1;
        }
    }
    Ok(())
}

/// Notes that the set of snapshots of a directory changed just now.
pub(super) async fn snapshots_changed(s: &SyncTask, dir: ObjectId) -> Result<()> {
    if s.feature_enabled(Feature::ExtensibleDataset) {
        let time = ZapValue::U64(vec![s.now(), 0]);
        objects::set_field(s, dir, SNAPSHOTS_CHANGED, &time).await?;
    }
    Ok(())
}
