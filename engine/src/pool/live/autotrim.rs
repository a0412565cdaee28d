//! Automatic TRIM (`autotrim=on`): telling devices which ranges of theirs hold nothing any more.
//!
//! What becomes free is noted by the metaslabs; every few groups what of it is still free is trimmed. How
//! that is kept from those who allocate, and what is trimmed by hand: [`super::Sweep`].
//!
//! A device that keeps what was overwritten until it is cleared away ([`device::Overwriting::Elsewhere`]) is
//! always told of all that becomes free, in each group: what it is not told of, it keeps and moves for ever.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_trim.c`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;

use super::parts::{Doing, Part};
use super::sweep::unused;
use super::{LivePool, Syncing};
use crate::pool::properties::PoolProp;
use crate::tunables;

/// Most runs that one group trims.
const MAX_RUNS: usize = 1024;
/// The same of devices that are told of all.
const MAX_RUNS_OF_KEEPING: usize = 1 << 17;

/// Whether what becomes free is trimmed.
#[derive(Debug, Default)]
pub(super) struct Autotrim {
    is_on: AtomicBool,
}

impl Part for Autotrim {
    fn property(&self) -> Option<PoolProp> {
        Some(PoolProp::Autotrim)
    }

    fn turn(&self, pool: &Arc<LivePool>, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
        pool.allocator().note_freed(is_on);
    }

    fn sync<'a>(&'a self, s: &'a Syncing) -> Doing<'a> {
        self.trim(s).map(Ok).boxed()
    }
}

impl Autotrim {
    /// Every few groups: trims what became free.
    async fn trim(&self, s: &Syncing) {
        let vdevs = s.pool.pool.vdevs();
        let keeping = vdevs.tops_that_keep_freed();
        let is_on = self.is_on.load(Ordering::Relaxed);
        let is_time = is_on && s.txg().get().is_multiple_of(tunables::ZFS_TRIM_TXG_BATCH.get());
        if keeping.is_empty() && !is_time {
            return;
        }
        let allocator = s.pool.allocator();
        // Vdevs that were added since note it too from now on.
        allocator.note_freed(true);
        let mut runs = Vec::new();
        for (id, freed) in allocator.take_freed(|id| is_time || !is_on || keeping.contains(&id)) {
            let (min, most) = match keeping.contains(&id.vdev) {
                true => (1, MAX_RUNS_OF_KEEPING),
                false if is_on => (tunables::ZFS_TRIM_EXTENT_BYTES_MIN.get(), MAX_RUNS),
                // It was only noted because others of the pool are told.
                false => continue,
            };
            let room = most.saturating_sub(runs.len());
            runs.extend(allocator.borrow_within(id, &freed, min, (room, u64::MAX), s.txg()));
        }
        let unused: Vec<_> = runs.iter().map(unused).collect();
        let bytes = vdevs.discard(&unused, &|leaf| is_on || leaf.keeps_freed()).await;
        tracing::debug!(pool = s.pool.pool.name(), runs = runs.len(), bytes, "trimmed");
        allocator.give_back(&runs, s.txg());
    }
}
