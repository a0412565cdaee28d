//! Devices that are attached to others, replace them, and are detached.
//!
//! The new device is opened and checked as for a new vdev ([`super::disks`]). A hot spare of the pool may
//! replace a device; it is open already. A device may be replaced by itself: what is at its path is another
//! device now, or has lost its contents. Then the pool lets go of the old one first.
//!
//! Source of the texts: OpenZFS 2.4 `libzfs_pool.c` (`zpool_vdev_attach`, `zpool_vdev_detach`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, OpenOptions};
use engine::pool::discovery::Candidate;
use engine::pool::live::{LivePool, NewLeaf, TakeOffline};
use engine::pool::properties::{PoolEnvironment, PoolProperties};
use engine::pool::status::{self, VdevClass, VdevNode};
use engine::properties::Style;
use engine::vdev::State;
use engine::vdev::topology::Purpose;
use ondisk::Guid;

use super::creating::{asked_ashift, pool_ashift};
use super::devices::{find_in_use, no_such_device};
use super::disks::{self, Allowed};
use super::properties::{When, refusal};
use super::vdevs::is_called;
use crate::api::{self, ApiError, NewDevices, NewLayout, NewVdev};
use crate::daemon::refusals::refused;
use crate::daemon::sync_tasks;
use crate::daemon::{Daemon, OpenPool};

impl Daemon {
    /// Attaches a device to another one, or replaces that one by it. Answered when the pool has the device;
    /// its resilver follows.
    ///
    /// # Errors
    /// There is no such device, or nothing can be attached to it; the new device cannot be used, is too
    /// small, or its sectors are too large; the pool is open read-only.
    pub async fn attach_device(&self, request: api::AttachDevice) -> Result<u64, ApiError> {
        let pool = self.pool(&request.pool)?;
        let new = request.new_device.as_deref().unwrap_or(Path::new(&request.device));
        let (old, shown) = (&request.device, new.display());
        let doing = match request.replace {
            true => format!("cannot replace {old} with {shown}"),
            false => format!("cannot attach {shown} to {old}"),
        };
        let live = pool.writable(&doing)?;
        for (property, value) in &request.properties {
            if let Some(fault) = refusal(property, value, When::Create) {
                return Err(ApiError::invalid(format!("{doing}: {fault}")));
            }
        }
        let at = find_in_use(&pool, old, &doing)?;
        let root = status::vdevs(&pool.view());
        let vdev = root.walk().find(|vdev| vdev.guid == at.0).ok_or_else(|| no_such_device(&doing))?;
        if vdev.class == VdevClass::L2cache {
            return Err(ApiError::refused(format!("{doing}: device is in use as a cache")));
        }
        let spare = request.new_device.as_ref().and_then(|new| spare_called(&root, new));
        let attached = match spare.filter(|_| request.replace) {
            Some(spare) => {
                live.replace_with_spare(at, spare).await.map_err(|error| refused(&doing, error))?;
                spare
            }
            None => self.attach_new(&pool, live, &request, (at, vdev), &doing).await?,
        };
        sync_tasks::change(live, request.command, |_| async { Ok(()) }).await?;
        self.catch_up_in(&pool).await;
        Ok(attached.0)
    }

    async fn attach_new(
        &self,
        pool: &OpenPool,
        live: &Arc<LivePool>,
        request: &api::AttachDevice,
        (at, vdev): (Guid, &VdevNode),
        doing: &str,
    ) -> Result<Guid, ApiError> {
        let purpose = if request.replace { Purpose::Replace } else { Purpose::Mirror };
        let asked = match asked_ashift(&request.properties) {
            Some(ashift) => Some(ashift),
            // What the pool has for new vdevs is no reason to refuse a device for one that there is.
            None => {
                let top = live.pool().vdevs().top_above(at).and_then(|top| u8::try_from(top.ashift).ok());
                let of_pool = pool_ashift(&*pool.dsl().await?).await?;
                of_pool.map(|ashift| ashift.min(top.unwrap_or(ashift)))
            }
        };
        let path = match &request.new_device {
            Some(new) => new.clone(),
            None => own_path(vdev).ok_or_else(|| no_such_device(doing))?,
        };
        let was_let_go = purpose == Purpose::Replace && self.let_go_of(live, vdev, &path, doing).await?;
        let attached = async {
            let leaf = self.open_new(&path, request.force, asked, doing).await?;
            // What the device holds is still there when this is refused.
            let checked = live.check_attachment(at, &leaf.0, purpose, asked);
            checked.map_err(|error| refused(doing, error))?;
            let leaf = leaf.partitioned(doing).await?;
            let attached = live.attach(at, leaf, purpose, asked).await;
            attached.map_err(|error| refused(doing, error))
        };
        let attached = attached.await;
        if attached.is_err()
            && was_let_go
            && let Err(error) = live.online(at).await
        {
            tracing::warn!(%error, "a device that was to be replaced does not come back");
        }
        attached
    }

    async fn open_new(
        &self,
        path: &Path,
        force: bool,
        ashift: Option<u8>,
        doing: &str,
    ) -> Result<Opened, ApiError> {
        let vdev = NewVdev {
            layout: NewLayout::Single,
            class: api::NewClass::Normal,
            devices: vec![path.to_owned()],
        };
        let devices = NewDevices { vdevs: vec![vdev], ..NewDevices::default() };
        let mut opened =
            disks::open(&devices, doing, Allowed::all(force), &self.guids(), (None, ashift)).await?;
        let leaf = opened.tops.first_mut().and_then(|top| top.leaves.pop());
        leaf.map(|leaf| Opened(leaf, opened)).ok_or_else(|| no_such_device(doing))
    }

    /// Lets go of a device that is to be replaced by what is at its path now. Not of one that has its label:
    /// that is still the same. Returns whether it was let go.
    async fn let_go_of(
        &self,
        live: &Arc<LivePool>,
        old: &VdevNode,
        path: &Path,
        doing: &str,
    ) -> Result<bool, ApiError> {
        let same = |other: &str| {
            let there = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            there(Path::new(other)) == there(path)
        };
        if old.state < State::Degraded || !old.path.as_deref().is_some_and(same) {
            return Ok(false);
        }
        let Ok(device) = OpenOptions::read_only().open(path) else { return Ok(false) };
        let device: Arc<dyn Device> = Arc::new(device);
        let label = Candidate::examine(device).await.map(|candidate| candidate.label);
        if label.is_some_and(|label| label.guid == Some(Guid(old.guid))) {
            return Ok(false);
        }
        let offline = live.offline(Guid(old.guid), TakeOffline::Temporarily).await;
        offline.map(|()| true).map_err(|error| refused(doing, error))
    }

    /// Replaces devices that are gone by new ones in their places, if the pool has `autoreplace=on`.
    /// A new device that holds anything is left alone.
    pub(in crate::daemon) async fn autoreplace(&self, pool: &OpenPool) -> Result<(), ApiError> {
        let Some(live) = pool.live().filter(|_| !pool.is_suspended()) else { return Ok(()) };
        let root = status::vdevs(&pool.view());
        let of_data = |vdev: &&VdevNode| !matches!(vdev.class, VdevClass::Spare | VdevClass::L2cache);
        let is_gone = |vdev: &&VdevNode| {
            vdev.children.is_empty() && matches!(vdev.state, State::CantOpen | State::Removed)
        };
        let leaves = root.children.iter().filter(of_data).flat_map(VdevNode::walk).filter(is_gone);
        let gone: Vec<(&VdevNode, PathBuf)> =
            leaves.filter_map(|vdev| Some((vdev, own_path(vdev).filter(|path| path.exists())?))).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let environment = PoolEnvironment {
            cachefile: None,
            load_guid: 0,
            suspended: false,
            read_only: false,
            dedup_cached_bytes: 0,
        };
        let properties = PoolProperties::load(&*pool.dsl().await?, &environment).await?;
        if properties.get_named("autoreplace", Style::PARSABLE).is_none_or(|it| it.value != "on") {
            return Ok(());
        }
        let doing = "cannot replace devices by themselves";
        for (vdev, path) in gone {
            let request = api::AttachDevice {
                pool: pool.name().to_owned(),
                device: vdev.guid.to_string(),
                new_device: Some(path),
                replace: true,
                ..api::AttachDevice::default()
            };
            match self.attach_new(pool, live, &request, (Guid(vdev.guid), vdev), doing).await {
                // The agents catch up with it.
                Ok(_) => {}
                Err(error) => {
                    tracing::info!(vdev = vdev.name, %error, "not replaced by what is in its place")
                }
            }
        }
        Ok(())
    }

    /// Detaches a device from others that hold the same data.
    ///
    /// # Errors
    /// There is no such device, it is not one of several copies, or the others do not hold everything.
    pub async fn detach_device(&self, request: api::DetachDevice) -> Result<(), ApiError> {
        let pool = self.pool(&request.pool)?;
        let doing = format!("cannot detach {}", request.device);
        let live = pool.writable(&doing)?;
        let leaf = find_in_use(&pool, &request.device, &doing)?;
        live.detach(leaf).await.map_err(|error| refused(&doing, error))?;
        sync_tasks::change(live, request.command, |_| async { Ok(()) }).await?;
        self.catch_up_in(&pool).await;
        Ok(())
    }
}

/// A new device, with what it was opened as part of.
struct Opened(NewLeaf, disks::Opened);

impl Opened {
    /// The device, or its first partition, if it is a disk, which is partitioned anew.
    async fn partitioned(self, doing: &str) -> Result<NewLeaf, ApiError> {
        let Self(leaf, mut opened) = self;
        opened.spares = vec![leaf];
        opened.partition(doing).await?;
        opened.spares.pop().ok_or_else(|| no_such_device(doing))
    }
}

/// The hot spare of the pool that is called so.
fn spare_called(root: &VdevNode, name: &Path) -> Option<Guid> {
    let name = name.to_str()?;
    let in_dev = PathBuf::from("/dev").join(name);
    let is_it = |vdev: &&VdevNode| is_called(vdev, name) || vdev.path.as_deref() == in_dev.to_str();
    let mut spares = root.children.iter().filter(|vdev| vdev.class == VdevClass::Spare);
    spares.find(is_it).map(|vdev| Guid(vdev.guid))
}

/// The path at which a device is, or was.
fn own_path(vdev: &VdevNode) -> Option<PathBuf> {
    let path = PathBuf::from(vdev.path.as_ref()?);
    match vdev.whole_disk && !path.exists() {
        // A new disk has no partition yet.
        true => disk_of(&path).filter(|disk| disk.exists()).or(Some(path)),
        false => Some(path),
    }
}

/// The disk of which this is the path of the first partition.
fn disk_of(partition: &Path) -> Option<PathBuf> {
    let path = partition.to_str()?;
    let disk = path.strip_suffix("-part1").or_else(|| path.strip_suffix('1'))?;
    let disk = disk.strip_suffix('p').filter(|disk| disk.ends_with(|last: char| last.is_ascii_digit()));
    let whole = path.strip_suffix("-part1").or_else(|| path.strip_suffix('1'));
    disk.or(whole).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_a_first_partition_is_known_by_its_name() {
        for (partition, disk) in [
            ("/dev/sda1", "/dev/sda"),
            ("/dev/nvme0n1p1", "/dev/nvme0n1"),
            ("/dev/disk/by-id/ata-A-part1", "/dev/disk/by-id/ata-A"),
        ] {
            assert_eq!(disk_of(Path::new(partition)), Some(PathBuf::from(disk)));
        }
        assert_eq!(disk_of(Path::new("/dev/sda")), None);
    }
}
