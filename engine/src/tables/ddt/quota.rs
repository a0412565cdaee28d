//! The limit of the size of dedup tables: the pool property `dedup_table_quota`.
//!
//! Where there is no room for one more entry, blocks that have none yet get none, and are ordinary blocks;
//! entries that exist go on counting.
//!
//! # Within a group
//! What tables take is known when a group is written, and a large group adds many entries. So the room is
//! measured when the sync of a group begins, from what the tables take then: so many bytes are left below the
//! quota, and so many entries fit into them, by what an entry takes in a table that is not small
//! ([`ENTRY_BYTES`]). The group adds no more than these. Entries that it removes make room for the next
//! group. A table may still end up larger than its quota, as its first blocks are hardly filled; it gets no
//! entry then until it is smaller.
//!
//! With `auto`, which is the default, the vdevs that are meant for tables are the limit: those of the class
//! `dedup`, or of `special` where there are none, when 85 % of them are allocated, or all but 8 GiB where
//! that is more. Without such vdevs there is no limit.
//!
//! Source of the facts: OpenZFS 2.4 `ddt.c` (`ddt_over_quota`, `ddt_special_over_quota`), which looks at the
//! size that tables had when the group began.

use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::ObjectId;
use ondisk::pool_directory::PROPS;

use crate::alloc::ClassSpace;
use crate::dmu::zap::edit;
use crate::error::{Error, Result};
use crate::mos::MosTask;
use crate::vdev::Class;

const NAME: &str = "dedup_table_quota";
const NONE: u64 = 0;
const AUTO: u64 = u64::MAX;
/// What large classes keep free.
const KEPT_BYTES: u64 = 8 << 30;
/// What an entry takes on disk, with the copies that metadata of a pool have: as measured in a table of
/// 700,000 entries.
const ENTRY_BYTES: u64 = 196;

/// How many entries the group that is being written may still add.
#[derive(Debug)]
pub(super) struct Room {
    entries: AtomicU64,
}

impl Default for Room {
    fn default() -> Self {
        Self { entries: AtomicU64::new(u64::MAX) }
    }
}

impl Room {
    /// A group begins, while these are the ZAPs and logs of all tables.
    pub(super) async fn measure(&self, m: &MosTask, objects: &[ObjectId]) -> Result<()> {
        self.entries.store(measured(m, objects).await?, Ordering::Relaxed);
        Ok(())
    }

    /// Whether there is room for one entry more than these.
    pub(super) fn has_one_after(&self, entries: usize) -> bool {
        self.entries.load(Ordering::Relaxed) > entries as u64
    }

    /// An entry was added.
    pub(super) fn take_one(&self) {
        let less = |entries: u64| Some(entries.saturating_sub(1));
        let _ = self.entries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

async fn measured(m: &MosTask, objects: &[ObjectId]) -> Result<u64> {
    let props = match m.directory_u64(PROPS).await {
        // The first group of a new pool makes the directory.
        Err(Error::NotFound(_)) => return Ok(u64::MAX),
        props => props?.filter(|props| *props != 0),
    };
    let quota = match props {
        Some(props) => edit::lookup_u64(&m.mos().object(ObjectId(props)).await?, NAME).await?,
        None => None,
    };
    let left_bytes = match quota.unwrap_or(AUTO) {
        NONE => None,
        AUTO => {
            let classes = [Class::Dedup, Class::Special].map(|class| m.allocator().space(class));
            classes.into_iter().find(|space| space.size_bytes > 0).map(|space| left_in(&space))
        }
        bytes => {
            let mut taken = 0u64;
            for id in objects {
                taken = taken.saturating_add(m.mos().object(*id).await?.dnode().used_bytes());
            }
            Some(bytes.saturating_sub(taken))
        }
    };
    Ok(left_bytes.map_or(u64::MAX, |bytes| bytes / ENTRY_BYTES))
}

/// Bytes of a class that tables may still take.
fn left_in(space: &ClassSpace) -> u64 {
    let most = space.size_bytes.saturating_sub(KEPT_BYTES).max(space.size_bytes / 100 * 85);
    most.saturating_sub(space.allocated_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_classes_are_full_at_85_percent_and_large_ones_with_8_gib_left() {
        let left = |size_bytes, allocated_bytes| {
            left_in(&ClassSpace { size_bytes, allocated_bytes, ..Default::default() })
        };
        assert_eq!((left(1000 << 20, 849 << 20), left(1000 << 20, 850 << 20)), (1 << 20, 0));
        assert_eq!((left(1000 << 30, 991 << 30), left(1000 << 30, 993 << 30)), (1 << 30, 0));
    }

    #[test]
    fn a_group_adds_as_many_entries_as_there_is_room_for() {
        let room = Room::default();
        assert!(room.has_one_after(usize::MAX - 1), "there is no limit");
        room.entries.store(3, Ordering::Relaxed);
        room.take_one();
        assert!(room.has_one_after(0) && room.has_one_after(1) && !room.has_one_after(2));
        (0..5).for_each(|_| room.take_one());
        assert!(!room.has_one_after(0));
    }
}
