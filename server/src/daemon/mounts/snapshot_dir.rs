//! Snapshots that processes take by `mkdir` in `.zfs/snapshot` of a mount.
//!
//! Each is a request like any other, of the process that made the directory: admitted by its role or by what
//! was granted to its user, and written down.

use std::sync::{Arc, OnceLock, Weak};

use fuser::Errno;
use ondisk::ObjectId;

use crate::api::{Action, ApiError, ErrorKind, TakeSnapshots};
use crate::caller::Caller;
use crate::daemon::names;
use crate::daemon::{Daemon, dispatch_for};
use crate::fuse::SnapshotTaker;

impl Daemon {
    /// What takes snapshots of the filesystems of a pool that are mounted.
    pub(super) fn snapshot_taker(&self, pool: &str) -> SnapshotTaker {
        let (own, pool) = (Arc::clone(&self.own), pool.to_owned());
        SnapshotTaker::new(move |caller, dataset, name| {
            take(&own, &pool, caller, dataset, name).map_err(|error| {
                tracing::debug!(%error, "no snapshot is taken");
                errno(&error)
            })
        })
    }
}

fn take(
    own: &OnceLock<Weak<Daemon>>,
    pool: &str,
    caller: &Caller,
    dataset: ObjectId,
    name: &str,
) -> Result<(), ApiError> {
    let ends = || ApiError::failed("the daemon ends");
    let daemon = own.get().and_then(Weak::upgrade).ok_or_else(ends)?;
    let open = daemon.pool(pool)?;
    // It may have got another name since it was mounted.
    let dataset = device::block_on(async { open.dsl().await?.name_of_object(dataset).await })?;
    let name = format!("{dataset}@{name}");
    names::check_dataset_name("create snapshot", &name, crate::api::DatasetKind::Snapshot)?;
    let request = TakeSnapshots { names: vec![name], ..TakeSnapshots::default() };
    let body = serde_json::to_vec(&request).map_err(|error| ApiError::failed(error.to_string()))?;
    dispatch_for(&daemon, caller, TakeSnapshots::NAME, &body).map(drop)
}

/// What `mkdir` says.
fn errno(error: &ApiError) -> Errno {
    match error.kind {
        ErrorKind::Refused => Errno::EPERM,
        ErrorKind::Busy => Errno::EEXIST,
        ErrorKind::Invalid => Errno::EINVAL,
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::Failed => Errno::EIO,
    }
}
