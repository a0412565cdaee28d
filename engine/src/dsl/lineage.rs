//! Changes of who follows whom among datasets, for those who walk datasets one after the other over many
//! groups: a scrub or a resilver ([`crate::scan`]).
//!
//! A task that makes such a change notes it with the pool ([`DslPool::note_lineage`]). The pool layer takes
//! the notes in the sync of the same group ([`DslPool::take_lineage`]), so that what it stores of a walk is
//! true of the datasets of that group.

use device::IgnorePoison;
use ondisk::ObjectId;

use super::DslPool;

/// A change that matters to a walk from a snapshot to those that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lineage {
    /// A head got a snapshot.
    Snapshotted {
        /// The head.
        head: ObjectId,
        /// The snapshot, which has the contents of the head from now on.
        snapshot: ObjectId,
    },
    /// A snapshot is gone.
    SnapshotDestroyed {
        /// The snapshot.
        snapshot: ObjectId,
        /// The snapshot or head that came after it.
        next: ObjectId,
    },
    /// A head is gone.
    HeadDestroyed(ObjectId),
    /// Two heads exchanged their contents.
    Swapped(ObjectId, ObjectId),
}

impl DslPool {
    /// Notes a change as part of the group that is being written.
    pub(super) fn note_lineage(&self, change: Lineage) {
        self.lineage.lock().ignore_poison().push(change);
    }

    /// The changes since the last call, in order. For the sync of a group.
    pub(crate) fn take_lineage(&self) -> Vec<Lineage> {
        std::mem::take(&mut *self.lineage.lock().ignore_poison())
    }
}
