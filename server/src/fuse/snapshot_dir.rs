//! `mkdir` in `.zfs/snapshot`: a snapshot is taken.
//!
//! Whether the process may take one is decided where all requests are: as root, by its role, or by what `zfs
//! allow` granted. As in OpenZFS the tunable `zfs_admin_snapshot` turns this on; `mv` and `rmdir` are not
//! there.
//!
//! Taking a snapshot may wait for changes of the pool that wait for requests of this mount. So it is done on
//! a thread that reads no requests, and not inside ([`super::freeze`]). Few are done at a time for each
//! mount, so that threads are left for requests that others wait for.

use engine::tunables::ZFS_ADMIN_SNAPSHOT;
use fuser::{Errno, INodeNo};

use super::filesystem::Mounted;
use super::groups;
use super::node::SNAPSHOT_DIR;
use super::served::Served;
use super::wire::{Caller, Room};
use crate::caller;

/// The operation, for the log.
const WHAT: &str = "take a snapshot of";

impl Served {
    /// Whether a process may try to take snapshots by `mkdir`.
    pub(super) fn takes_snapshots(&self) -> bool {
        ZFS_ADMIN_SNAPSHOT.get() != 0 && self.is_writable() && self.snapshot_taker().is_some()
    }
}

impl Mounted {
    /// Takes a snapshot, and writes the answer to `mkdir` into `room`. Not for a thread that others wait for.
    pub fn take_snapshot(&self, name: &[u8], by: Caller, room: &mut [u8]) -> Result<usize, Errno> {
        let served = self.freezable.served().ok_or(Errno::ENOTCONN)?;
        let taker = served.snapshot_taker().filter(|_| served.takes_snapshots()).ok_or(Errno::EROFS)?;
        let short = std::str::from_utf8(name).map_err(|_| Errno::EINVAL)?;
        let caller = caller::Caller::process_of(caller::Process {
            uid: by.uid,
            gid: by.gid,
            groups: groups::others(by.pid).collect(),
            pid: i32::try_from(by.pid).ok(),
        });
        taker.take(&caller, served.trees.object(), short)?;
        drop(served);
        let served = self.freezable.enter().ok_or(Errno::ENOTCONN)?;
        let parent = INodeNo(SNAPSHOT_DIR);
        match served.find(parent, name) {
            Ok(Some(told)) => Room::new(room).entry(&told.entry()),
            Ok(None) => Err(Errno::ENOENT),
            Err(error) => Err(served.failed(WHAT, parent, &error)),
        }
    }
}
