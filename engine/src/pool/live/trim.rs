//! Automatic TRIM (`autotrim=on`): telling devices which ranges of theirs hold nothing any more.
//!
//! What becomes free is noted by the metaslabs; every few groups what of it is still free is trimmed. How
//! that is kept from those who allocate, and what is trimmed by hand: [`super::Sweep`].
//!
//! Source of the facts: OpenZFS 2.3 `vdev_trim.c`.

use std::sync::atomic::Ordering;

use super::jobs::unused;
use super::{LivePool, Syncing};

use crate::tunables;

/// Most runs that one group trims.
const MAX_RUNS: usize = 1024;

impl LivePool {
    /// Whether what becomes free is trimmed.
    pub(super) fn set_autotrim(&self, on: bool) {
        self.autotrim.store(on, Ordering::Relaxed);
        self.allocator().note_freed(on);
    }

    /// Every few groups: trims what became free.
    pub(super) async fn autotrim(&self, s: &Syncing) {
        if !self.autotrim.load(Ordering::Relaxed)
            || !s.txg().get().is_multiple_of(tunables::ZFS_TRIM_TXG_BATCH.get())
        {
            return;
        }
        let allocator = self.allocator();
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
        let bytes = self.pool.vdevs().discard(&unused, &|_| true).await;
        tracing::debug!(pool = self.pool.name(), runs = runs.len(), bytes, "trimmed");
        allocator.give_back(&runs, s.txg());
    }
}
