//! One lock for each file that somebody changes or walks through.
//!
//! Locks exist while somebody holds them or waits for them. Several are taken in the order of their files' numbers, so that nobody waits in a
//! circle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::lock::{Mutex as AsyncMutex, OwnedMutexGuard};
use ondisk::ObjectId;

/// The locks of a filesystem.
#[derive(Debug, Default)]
pub(super) struct FileLocks {
    locks: Mutex<HashMap<u64, Arc<AsyncMutex<()>>>>,
}

/// Files that are locked. Dropped, it lets others go on.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    locks: &'a FileLocks,
    held: Vec<(u64, Option<OwnedMutexGuard<()>>)>,
}

impl FileLocks {
    fn locks(&self) -> MutexGuard<'_, HashMap<u64, Arc<AsyncMutex<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks some files.
    pub(super) async fn lock(&self, files: &[ObjectId]) -> Locked<'_> {
        let mut ids: Vec<u64> = files.iter().map(|id| id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut locked = Locked { locks: self, held: Vec::with_capacity(ids.len()) };
        for id in ids {
            let lock = Arc::clone(self.locks().entry(id).or_default());
            // Noted before the wait: one that gives up waiting forgets the lock as well.
            locked.held.push((id, None));
            let guard = lock.lock_owned().await;
            if let Some(last) = locked.held.last_mut() {
                last.1 = Some(guard);
            }
        }
        locked
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.locks();
        for (id, guard) in self.held.drain(..) {
            drop(guard);
            // Others who want it have handles of their own; they got them under this map's lock.
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
}
