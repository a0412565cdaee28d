//! What is asked of the dedup tables of a pool from outside: pruning, reading them ahead, how look-ups end.

mod filter;
mod prune;

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use ondisk::brt::{self, BrtVdevPhys};
use ondisk::pool_directory::DIRECTORY_OBJECT;
use ondisk::{ObjectId, VdevId};

use super::LivePool;
use super::parts::Part;
use crate::dmu::{Object, zap};
use crate::error::{Error, Result};
use crate::tables::ddt::stored::{mos_of, stored_tables};

pub use prune::DedupPruneStatus;
pub(super) use prune::Prunes;

pub use crate::tables::ddt::{DedupCounters, Prune};

/// Blocks that are read ahead side by side.
const AT_ONCE: usize = 32;

/// Has filters of the dedup tables filled.
#[derive(Debug, Default)]
pub(super) struct Filters;

impl Part for Filters {
    fn committed(&self, pool: &Arc<LivePool>) {
        pool.fill_begun_filter();
    }
}

impl LivePool {
    /// Reads the ZAPs of all dedup tables into the ARC, as far as they fit there. Gives their bytes.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub async fn prefetch_dedup(&self) -> Result<u64> {
        let view = self.view();
        let tables = stored_tables(&mos_of(&view).await?).await?;
        let zaps = tables.into_iter().flat_map(|table| table.zaps).map(|(_, zap)| zap);
        load(zaps.collect(), view.store().cache().budget_bytes()).await
    }

    /// Reads the tables of cloned blocks into the ARC, as far as they fit there. Gives their bytes.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub async fn prefetch_cloned(&self) -> Result<u64> {
        let view = self.view();
        let mos = mos_of(&view).await?;
        let directory = mos.object(DIRECTORY_OBJECT).await?;
        let mut objects = Vec::new();
        for vdev in (0u32..).take(view.vdevs().tops.len()) {
            let key = brt::directory_key(VdevId(vdev));
            let Some(id) = zap::lookup_u64(&directory, &key).await? else { continue };
            let counts = mos.object(ObjectId(id)).await?;
            let (bonus, order) = counts.bonus();
            let phys = BrtVdevPhys::parse(bonus, order).map_err(Error::format(&key))?;
            objects.extend([mos.object(phys.mos_entries).await?, counts]);
        }
        load(objects, view.store().cache().budget_bytes()).await
    }

    /// Makes a filter that has begun complete, if there is one and no job does it. For callers without the
    /// thread that commits.
    ///
    /// # Errors
    /// A table cannot be read.
    pub async fn fill_dedup_filter(&self) -> Result<()> {
        let ddt = self.dsl.tables().ddt();
        if let Some(mut fill) = ddt.fill() {
            while ddt.fill_some(&mut fill, &self.view()).await? {}
        }
        Ok(())
    }

    /// Whether entries of dedup tables are in their logs, and not in their ZAPs.
    pub fn has_logged_dedup(&self) -> bool {
        self.dsl.tables().ddt().has_logged()
    }

    /// What became of look-ups in dedup tables since the import.
    pub fn dedup_counters(&self) -> DedupCounters {
        self.dsl.tables().ddt().counters()
    }
}

/// Reads the blocks of objects into the ARC, up to so many bytes.
async fn load(objects: Vec<Object>, most_bytes: u64) -> Result<u64> {
    let mut loaded_bytes = 0u64;
    for object in objects {
        let size = object.block_size().max(1);
        let blocks = object.end().div_ceil(size).min(most_bytes.saturating_sub(loaded_bytes) / size);
        let object = &object;
        let reads = stream::iter(0..blocks).map(|id| async move { object.warm(id).await });
        reads.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        loaded_bytes = loaded_bytes.saturating_add(blocks.saturating_mul(size));
    }
    Ok(loaded_bytes)
}
