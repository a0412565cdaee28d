//! Automatic TRIM (`autotrim=on`): telling devices which ranges of theirs hold nothing any more.
//!
//! What becomes free is noted by the metaslabs; every few groups what of it is still free is trimmed. How
//! that is kept from those who allocate, and what is trimmed by hand: [`super::Sweep`].
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
        if !self.is_on.load(Ordering::Relaxed)
            || !s.txg().get().is_multiple_of(tunables::ZFS_TRIM_TXG_BATCH.get())
        {
            return;
        }
        let allocator = s.pool.allocator();
        // Vdevs that were added since note it too from now on.
        allocator.note_freed(true);
        let mut runs = Vec::new();
        for (id, freed) in allocator.take_freed() {
            for (from, to) in freed {
                let room = MAX_RUNS.saturating_sub(runs.len());
                runs.extend(allocator.borrow_free(
                    id,
                    (from, to),
                    tunables::ZFS_TRIM_EXTENT_BYTES_MIN.get(),
                    room,
                    u64::MAX,
                    s.txg(),
                ));
            }
        }
        let unused: Vec<_> = runs.iter().map(unused).collect();
        let bytes = s.pool.pool.vdevs().discard(&unused, &|_| true).await;
        tracing::debug!(pool = s.pool.pool.name(), runs = runs.len(), bytes, "trimmed");
        allocator.give_back(&runs, s.txg());
    }
}
