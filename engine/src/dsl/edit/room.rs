//! How much a dataset may still write, so that writes can be refused before they are accepted.
//!
//! The figure is that of the last group; code that accepts writes keeps account of what it has accepted
//! since, and asks again when the next group is written. Overwriting needs new space before the old is free,
//! so room is for what is written and not for what grows.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dir.c` (`dsl_dir_tempreserve_space`), `dsl_dataset.c`
//! (`dsl_dataset_check_quota`).

use ondisk::{ObjectId, ObjsetId};

use super::{objects, properties, space};
use crate::dsl::{Level, SyncTask};
use crate::error::Result;
use crate::properties::Prop;

/// What a dataset may still write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// Bytes until the dataset refers to as much as it may at most; `u64::MAX` without a `refquota`.
    pub below_refquota: u64,
    /// Bytes that the dataset refers to.
    pub referenced_bytes: u64,
    /// The head, and the directories from its own to the root: what they leave is left for all heads below
    /// them together.
    pub way: Vec<Level>,
}

/// What a head may still write.
pub async fn room(s: &SyncTask, dataset: ObjsetId) -> Result<Room> {
    let phys = objects::dataset(s, ObjectId(dataset.get())).await?;
    let chain = space::chain(s, phys.dir).await?;
    let reserved = properties::number(s, phys.dir, Prop::Refreservation).await?;
    let refquota = properties::number(s, phys.dir, Prop::Refquota).await?;
    let below_refquota =
        if refquota == 0 { u64::MAX } else { refquota.saturating_sub(phys.referenced_bytes) };
    let quota = |quota: u64| if quota == 0 { u64::MAX } else { quota };
    let head = Level {
        id: ObjectId(dataset.get()),
        used: phys.unique_bytes,
        reserved,
        quota: u64::MAX,
        pool: u64::MAX,
    };
    let pool = space::pool_bytes(s);
    let directories = chain.iter().map(|(id, dir)| Level {
        id: *id,
        used: dir.used_bytes,
        reserved: dir.reserved,
        quota: quota(dir.quota),
        pool: if dir.parent.is_none() { pool } else { u64::MAX },
    });
    let way = std::iter::once(head).chain(directories).collect();
    Ok(Room { below_refquota, referenced_bytes: phys.referenced_bytes, way })
}
