//! What takes snapshots on behalf of processes that ask a mount for them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fuser::Errno;
use ondisk::ObjectId;

use crate::caller;

/// The most that are taken at a time through a mount.
const MOST: usize = 4;
type Take = dyn Fn(&caller::Caller, ObjectId, &str) -> Result<(), Errno> + Send + Sync;

/// Takes snapshots on behalf of processes: of a dataset, with a short name.
#[derive(Clone)]
pub struct SnapshotTaker {
    take: Arc<Take>,
    under_way: Arc<AtomicUsize>,
}

impl fmt::Debug for SnapshotTaker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SnapshotTaker").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl SnapshotTaker {
    /// Takes them by a function, which may wait.
    pub fn new(
        take: impl Fn(&caller::Caller, ObjectId, &str) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Self {
        Self { take: Arc::new(take), under_way: Arc::default() }
    }

    /// Takes one, unless many are being taken.
    pub(super) fn take(&self, caller: &caller::Caller, dataset: ObjectId, name: &str) -> Result<(), Errno> {
        struct Taking<'a>(&'a AtomicUsize);
        impl Drop for Taking<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        let _taking = Taking(&self.under_way);
        if before >= MOST { Err(Errno::EBUSY) } else { (self.take)(caller, dataset, name) }
    }
}
