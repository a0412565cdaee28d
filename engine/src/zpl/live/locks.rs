//! Locks of files: of a file's metadata (its attributes, a directory's entries), and of ranges of its
//! content.
//!
//! Both are in one list of ranges for each file: content has the bytes up to the largest size of a file, and
//! one byte beyond them represents the metadata. A change of attributes locks that byte exclusively. Writers
//! of content share it, so that writers to different ranges do not wait for each other.
//!
//! Locks exist while an operation holds them or waits for them. Content is locked before metadata; the
//! metadata of several files are locked in the order of their numbers, so that there is no deadlock.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use device::IgnorePoison;
use ondisk::ObjectId;

use crate::range_locks::{Access, Locked as LockedRange, RangeLocks};

/// Content of files has offsets below this.
pub(super) const CONTENT_END: u64 = i64::MAX as u64;
/// Represents the metadata of a file.
const DESCRIPTION: Range<u64> = CONTENT_END + 1..CONTENT_END + 2;

/// The locks of a filesystem.
#[derive(Debug, Default)]
pub(super) struct FileLocks {
    locks: Mutex<HashMap<u64, Arc<RangeLocks>>>,
}

/// Locked files or ranges. Dropping it releases them.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    locks: &'a FileLocks,
    held: Vec<(u64, Option<LockedRange<Arc<RangeLocks>>>)>,
}

impl FileLocks {
    fn locks(&self) -> MutexGuard<'_, HashMap<u64, Arc<RangeLocks>>> {
        self.locks.lock().ignore_poison()
    }

    /// Locks the metadata of some files exclusively.
    pub(super) async fn lock(&self, files: &[ObjectId]) -> Locked<'_> {
        let mut ids: Vec<u64> = files.iter().map(|id| id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut locked = Locked { locks: self, held: Vec::with_capacity(ids.len()) };
        for id in ids {
            locked.add(id, DESCRIPTION, Access::Alone).await;
        }
        locked
    }

    /// Locks the metadata of a file, shared with others that write its content, or `alone`.
    pub(super) async fn describe(&self, file: ObjectId, access: Access) -> Locked<'_> {
        let mut locked = Locked { locks: self, held: Vec::with_capacity(1) };
        locked.add(file.0, DESCRIPTION, access).await;
        locked
    }

    /// Locks a range of the content of a file.
    pub(super) async fn content(&self, file: ObjectId, range: Range<u64>, access: Access) -> Locked<'_> {
        let mut locked = Locked { locks: self, held: Vec::with_capacity(1) };
        locked.add(file.0, range.start..range.end.min(CONTENT_END), access).await;
        locked
    }

    /// Locks all of the content of a file.
    pub(super) async fn whole(&self, file: ObjectId) -> Locked<'_> {
        self.content(file, 0..CONTENT_END, Access::Alone).await
    }
}

impl Locked<'_> {
    /// Locks the metadata of one more file exclusively, if the order allows it: the holder of a lock may only
    /// wait for files with greater numbers. Returns false if the operation has to begin anew.
    pub(super) async fn has(&mut self, file: ObjectId) -> bool {
        if self.held.iter().any(|(held, guard)| *held == file.0 && guard.is_some()) {
            return true;
        }
        let is_in_order = self.held.iter().all(|(held, _)| *held < file.0);
        if is_in_order {
            self.add(file.0, DESCRIPTION, Access::Alone).await;
        }
        is_in_order
    }

    async fn add(&mut self, id: u64, range: Range<u64>, access: Access) {
        let lock = Arc::clone(self.locks.locks().entry(id).or_default());
        // Noted before the wait: an operation that gives up waiting forgets the lock as well.
        self.held.push((id, None));
        let guard = RangeLocks::lock_in(lock, range, access).await;
        if let Some(last) = self.held.last_mut() {
            last.1 = Some(guard);
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.locks();
        for (id, guard) in self.held.drain(..) {
            drop(guard);
            // Other operations that want it have handles of their own; they got them under this map's lock.
            if locks.get(&id).is_some_and(|lock| Arc::strong_count(lock) == 1) {
                locks.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use device::block_on;
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_file_is_locked_by_one_and_forgotten_by_all() {
        let locks = FileLocks::default();
        let both = block_on(locks.lock(&[ObjectId(2), ObjectId(1), ObjectId(2)]));
        assert!(locks.lock(&[ObjectId(3)]).now_or_never().is_some());
        assert!(locks.lock(&[ObjectId(1)]).now_or_never().is_none());
        drop(both);
        assert!(locks.lock(&[ObjectId(1)]).now_or_never().is_some());
        assert!(locks.locks().is_empty());
    }

    #[test]
    fn another_file_is_locked_in_the_order_of_numbers() {
        let locks = FileLocks::default();
        let mut held = block_on(locks.lock(&[ObjectId(5)]));
        assert!(!block_on(held.has(ObjectId(4))) && block_on(held.has(ObjectId(5))));
        assert!(locks.lock(&[ObjectId(4)]).now_or_never().is_some());
        let other = locks.lock(&[ObjectId(6)]).now_or_never();
        assert!(other.is_some() && held.has(ObjectId(6)).now_or_never().is_none());
        drop((held, other));
        let mut held = block_on(locks.lock(&[ObjectId(5)]));
        assert!(block_on(held.has(ObjectId(6))) && !block_on(held.has(ObjectId(4))));
        assert!(locks.lock(&[ObjectId(6)]).now_or_never().is_none());
        drop(held);
        assert!(locks.locks().is_empty());
    }

    #[test]
    fn writers_of_different_ranges_do_not_wait_for_each_other_and_whoever_changes_attributes_waits_for_all() {
        let locks = FileLocks::default();
        let file = ObjectId(1);
        let write = |range| async {
            (locks.content(file, range, Access::Alone).await, locks.describe(file, Access::Shared).await)
        };
        let first = write(0..10).now_or_never().unwrap();
        let second = write(10..20).now_or_never().unwrap();
        assert!(write(5..6).now_or_never().is_none());
        assert!(locks.whole(file).now_or_never().is_none());
        assert!(locks.lock(&[file]).now_or_never().is_none());
        drop((first, second));
        assert!(locks.lock(&[file]).now_or_never().is_some());
        assert!(locks.locks().is_empty());
    }
}
