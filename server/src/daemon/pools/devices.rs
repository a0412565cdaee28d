//! Devices of open pools: taking them offline and back, clearing their errors.
//!
//! A device is named by its path, by the last part of it, or by its guid. A command takes effect at once; it
//! is answered when the configuration contains the change and the history the command.
//!
//! Source of the texts: OpenZFS 2.3 `libzfs_pool.c` (`zpool_vdev_offline`, `zpool_vdev_online`,
//! `zpool_clear`).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use engine::jobs::{JobState, Stop};
use engine::pool::live::{LivePool, Sweep, TakeOffline};
use engine::pool::status::{self, VdevClass, VdevNode};
use engine::vdev::{State, Status};
use futures_util::future::{Either, select};
use ondisk::Guid;
use tokio::time::sleep;

use super::vdevs::is_called;
use crate::api::edge::Edge;
use crate::api::{self, ApiError, Listed, OnlinedDevice, SweepAction};
use crate::daemon::refusals::refused;
use crate::daemon::sync_tasks;
use crate::daemon::{Daemon, OpenPool};

/// How often a command that waits for a group looks whether the pool is suspended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

impl Daemon {
    /// Forgets errors, takes devices back that failed, and lets a suspended pool go on.
    ///
    /// # Errors
    /// There is no such pool or vdev; the pool is open read-only; what it lost is not known.
    pub async fn clear_errors(&self, request: api::ClearErrors) -> Result<(), ApiError> {
        let pool = self.pool(&request.pool)?;
        let vdev = match &request.device {
            Some(name) => {
                let doing = format!("cannot clear errors for {name}");
                Some(find_in_use(&pool, name, &doing)?)
            }
            None => None,
        };
        let doing = format!("cannot clear errors for '{}'", request.pool);
        let Some(live) = pool.live() else {
            return pool.writable(&doing).map(drop);
        };
        let was_suspended = pool.is_suspended();
        live.clear(vdev).await.map_err(|error| refused(&doing, error))?;
        if was_suspended {
            // It may be suspended again at once, and nothing is to wait for that.
            return match status::vdevs(&pool.view()).state {
                State::CantOpen => Err(ApiError::failed(format!("{doing}: I/O error"))),
                _ => Ok(()),
            };
        }
        let noted = sync_tasks::change(live, request.command, |_| async { Ok(()) });
        noted.await.map_err(|error| refused(&doing, error))
    }

    /// Takes devices offline.
    ///
    /// # Errors
    /// The pool is open read-only. A device that cannot be missed becomes an entry of `failed`.
    pub async fn offline_devices(&self, request: api::OfflineDevices) -> Result<Listed<String>, ApiError> {
        let pool = self.pool(&request.pool)?;
        let live = pool.writable(&format!("cannot offline devices of '{}'", request.pool))?;
        let how = match (request.fault, request.temporary) {
            (true, true) => TakeOffline::FaultedTemporarily,
            (true, false) => TakeOffline::Faulted,
            (false, true) => TakeOffline::Temporarily,
            (false, false) => TakeOffline::Persistently,
        };
        let mut listed = Listed::default();
        for name in request.devices {
            let doing = format!("cannot offline {name}");
            let taken = match find_leaf(&pool, &name, &doing, "taken offline") {
                Ok(guid) => live.offline(guid, how).await.map_err(|error| refused(&doing, error)),
                Err(error) => Err(error),
            };
            match taken {
                Ok(()) => listed.entries.push(name),
                Err(error) => listed.failed.push(error),
            }
        }
        if !listed.entries.is_empty() {
            sync_tasks::change(live, request.command, |_| async { Ok(()) }).await?;
        }
        Ok(listed)
    }

    /// Takes devices back, and lets vdevs grow with theirs.
    ///
    /// # Errors
    /// The pool is open read-only. A device that does not exist, or cannot be expanded, becomes an entry of
    /// `failed`.
    pub async fn online_devices(
        &self,
        request: api::OnlineDevices,
    ) -> Result<Listed<OnlinedDevice>, ApiError> {
        let pool = self.pool(&request.pool)?;
        let live = pool.writable(&format!("cannot online devices of '{}'", request.pool))?;
        let mut listed = Listed::default();
        for device in request.devices {
            let doing = format!("cannot {} {device}", if request.expand { "expand" } else { "online" });
            let what = if request.expand { "expanded" } else { "brought online" };
            let guid = find_leaf(&pool, &device, &doing, what);
            let online = match &guid {
                Ok(guid) => online(live, *guid, request.expand).await.map_err(|error| refused(&doing, error)),
                Err(error) => Err(error.clone()),
            };
            match online {
                Ok(status) => {
                    let root = status::vdevs(&pool.view());
                    let is_it = |vdev: &VdevNode| guid.as_ref().is_ok_and(|guid| guid.0 == vdev.guid);
                    let awaits_resilver = root.walk().any(|vdev| is_it(vdev) && vdev.awaits_resilver);
                    listed.entries.push(OnlinedDevice {
                        device,
                        state: status.state.edge(),
                        awaits_resilver,
                    });
                }
                Err(error) => listed.failed.push(error),
            }
        }
        if !listed.entries.is_empty() {
            sync_tasks::change(live, request.command, |_| async { Ok(()) }).await?;
        }
        Ok(listed)
    }

    /// Removes spares, cache and log devices.
    ///
    /// # Errors
    /// The pool is open read-only. A device that cannot be removed becomes an entry of `failed`.
    pub async fn remove_devices(&self, request: api::RemoveDevices) -> Result<Listed<String>, ApiError> {
        let pool = self.pool(&request.pool)?;
        let live = pool.writable(&format!("cannot remove devices of '{}'", request.pool))?;
        let mut listed = Listed::default();
        for name in request.devices {
            let doing = format!("cannot remove {name}");
            let removed = match find(&pool, &name) {
                Some(guid) => live.remove(guid).await.map_err(|error| refused(&doing, error)),
                None => Err(no_such_device(&doing)),
            };
            match removed {
                Ok(()) => listed.entries.push(name),
                Err(error) => listed.failed.push(error),
            }
        }
        if !listed.entries.is_empty() {
            sync_tasks::change(live, request.command, |_| async { Ok(()) }).await?;
            self.catch_up_in(&pool).await;
        }
        Ok(listed)
    }

    /// Begins, suspends or ends going through the free space of devices.
    ///
    /// # Errors
    /// The pool is open read-only; a device with which this cannot be done, or that is not gone through.
    pub async fn sweep_devices(&self, request: api::SweepDevices) -> Result<Vec<u64>, ApiError> {
        let pool = self.pool(&request.pool)?;
        let (work, verb, noun) = match request.work {
            api::Sweep::Trim => (Sweep::Trim, "trim", "trim"),
            api::Sweep::Initialize => (Sweep::Initialize, "initialize", "initialization"),
        };
        let doing = format!("cannot {verb} '{}'", request.pool);
        let live = pool.writable(&doing)?;
        let root = status::vdevs(&pool.view());
        let mut leaves = Vec::new();
        for name in &request.devices {
            let found = root.walk().filter(|vdev| vdev.kind != "root").find(|vdev| is_called(vdev, name));
            let found = found.ok_or_else(|| no_such_device(&format!("cannot {verb} '{name}'")))?;
            leaves.extend(found.walk().filter(|vdev| vdev.children.is_empty()).map(|leaf| Guid(leaf.guid)));
        }
        if request.devices.is_empty() {
            let data = |vdev: &&VdevNode| !matches!(vdev.class, VdevClass::Spare | VdevClass::L2cache);
            let known = live.sweeps();
            let all = root.children.iter().filter(data).flat_map(VdevNode::walk);
            for leaf in all.filter(|vdev| vdev.children.is_empty() && vdev.state >= State::Degraded) {
                let run = known.get(&(work, Guid(leaf.guid))).map(|run| run.state);
                // Of all devices those are meant that this can be done with.
                let is_meant = match request.action {
                    SweepAction::Start => run != Some(JobState::Active),
                    SweepAction::Suspend => run == Some(JobState::Active),
                    SweepAction::Cancel => matches!(run, Some(JobState::Active | JobState::Suspended)),
                    SweepAction::Forget => run.is_some(),
                };
                if is_meant {
                    leaves.push(Guid(leaf.guid));
                }
            }
        }
        let stop = match request.action {
            SweepAction::Suspend => Some(Stop::Suspend),
            SweepAction::Cancel => Some(Stop::Cancel),
            SweepAction::Start | SweepAction::Forget => None,
        };
        let done = match (stop, request.action) {
            (Some(stop), _) => live.stop_sweep(work, &leaves, stop).await.and_then(|stopped| match stopped {
                0 => Err(engine::Error::Busy(format!("there is no active {noun}"))),
                _ => Ok(()),
            }),
            (None, SweepAction::Forget) if work == Sweep::Initialize => live.uninitialize(&leaves).await,
            (None, SweepAction::Forget) => {
                Err(engine::Error::Unsupported("a trim cannot be forgotten".into()))
            }
            _ => live.sweep(work, &leaves, request.rate_bytes).await,
        };
        done.map_err(|error| refused(&doing, error))?;
        sync_tasks::change(live, request.command, |_| async { Ok(()) }).await?;
        Ok(leaves.into_iter().map(Guid::get).collect())
    }

    /// Looks again for devices that are missing, and at the sizes of the others.
    ///
    /// # Errors
    /// A pool stops meanwhile. One that is not open becomes an entry of `failed`.
    pub async fn reopen_pools(&self, request: api::ReopenPools) -> Result<Listed<String>, ApiError> {
        let (pools, failed) = self.pools_named(&request.pools);
        let mut listed = Listed { entries: Vec::new(), failed };
        for pool in pools {
            if let Some(live) = pool.live() {
                let looked = reopen_and_commit(&pool, live).await;
                looked.map_err(|error| refused("cannot reopen devices", error))?;
                self.autoreplace(&pool).await?;
            }
            listed.entries.push(pool.name().to_owned());
        }
        Ok(listed)
    }
}

/// Asks devices, and waits for the next group, with which their sizes are looked at. A pool that is
/// suspended, or becomes it because of what its devices answered, commits nothing that could be waited for.
async fn reopen_and_commit(pool: &OpenPool, live: &Arc<LivePool>) -> engine::Result<()> {
    if pool.is_suspended() {
        live.reopen().await;
        return Ok(());
    }
    let suspended = async {
        while !pool.is_suspended() {
            sleep(LOOK_INTERVAL).await;
        }
    };
    let committed = async {
        live.reopen().await;
        live.txgs().wait_synced(live.txgs().open_txg()).await
    };
    match select(pin!(suspended), pin!(committed)).await {
        Either::Left(_) => Ok(()),
        Either::Right((committed, _)) => committed,
    }
}

async fn online(live: &Arc<LivePool>, leaf: Guid, expand: bool) -> engine::Result<Status> {
    if expand {
        live.expand(leaf)?;
    }
    live.online(leaf).await
}

/// The vdev of a pool that is called so. Hot spares hold nothing of the pool until they stand in for a
/// device.
pub(in crate::daemon) fn find_in_use(pool: &OpenPool, name: &str, doing: &str) -> Result<Guid, ApiError> {
    let guid = find(pool, name).ok_or_else(|| no_such_device(doing))?;
    let root = status::vdevs(&pool.view());
    let mut places = root.walk().filter(|vdev| vdev.guid == guid.0);
    match places.all(|vdev| vdev.class == VdevClass::Spare) {
        true => Err(ApiError::refused(format!("{doing}: device is reserved as a hot spare"))),
        false => Ok(guid),
    }
}

/// The leaf device of a pool that is called so: only those can be treated in some way.
fn find_leaf(pool: &OpenPool, name: &str, doing: &str, treated: &str) -> Result<Guid, ApiError> {
    let guid = find_in_use(pool, name, doing)?;
    let root = status::vdevs(&pool.view());
    let found = root.walk().find(|vdev| vdev.guid == guid.0).ok_or_else(|| no_such_device(doing))?;
    match found.kind.as_str() {
        "disk" | "file" => Ok(guid),
        "dspare" => Err(ApiError::refused(format!(
            "{doing}: only leaf devices can be {treated}, and a distributed spare is no device of its own"
        ))),
        kind => Err(ApiError::refused(format!(
            "{doing}: only leaf devices can be {treated}, and this is a {kind} vdev; name one of its devices"
        ))),
    }
}

/// The vdev of a pool that is called so.
pub(in crate::daemon) fn find(pool: &OpenPool, name: &str) -> Option<Guid> {
    let root = status::vdevs(&pool.view());
    let by_path = std::path::Path::new("/dev").join(name);
    let named = |vdev: &&VdevNode| is_called(vdev, name) || vdev.path.as_deref() == by_path.to_str();
    root.walk().filter(|vdev| vdev.kind != "root").find(named).map(|vdev| Guid(vdev.guid))
}

pub(in crate::daemon) fn no_such_device(doing: &str) -> ApiError {
    ApiError::not_found(format!("{doing}: no such device in pool"))
}
