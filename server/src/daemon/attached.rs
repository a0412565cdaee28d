//! Volumes as block devices of the kernel ([`crate::blockdev`]), with links `/dev/zvol/POOL/VOLUME` to them.
//!
//! # Which volumes
//! Those whose property `volmode` is `dev` or `full`, set there or inherited, and those that were asked for
//! ([`api::AttachVolume`]). `volmode=default` is without a device: each takes one of the few that the kernel has. After
//! each change of a pool the devices are brought in line with its volumes ([`Daemon::settle_devices`]); where the kernel
//! makes none that is said in the log, and when one was asked for, as an error.
//!
//! A device is a client of the volume as any other, over the daemon's own NBD socket. It does not keep its volume or pool
//! from changes, as long as nothing in the kernel uses it: before a change that allows no client it is detached, and
//! attached again afterwards if the volume is still there. One that is mounted does keep them from it.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Devices::attached` | the list; across waiting for the kernel, never across an `.await` | after `OpenPool::changes` |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use engine::dataset::properties::{Environment, Prop};

use super::{Daemon, OpenPool, lock};
use crate::api::{self, ApiError, AttachedVolume, ErrorKind};
use crate::blockdev::{BlockDevice, BlockDevices, KernelNbd};
use crate::nbd;

/// Values of `volmode` with which a volume is a device.
const FULL: u64 = 1;
const DEV: u64 = 2;

/// Makes devices, and knows where links to them go.
#[derive(Debug, Clone)]
pub struct DeviceMaker {
    /// What makes them.
    pub devices: Arc<dyn BlockDevices>,
    /// The directory of the links.
    pub links: PathBuf,
}

impl Default for DeviceMaker {
    fn default() -> Self {
        Self { devices: Arc::<KernelNbd>::default(), links: "/dev/zvol".into() }
    }
}

/// The volumes of one pool that are devices.
#[derive(Debug, Default)]
pub(super) struct Devices {
    attached: Mutex<BTreeMap<String, Attached>>,
    /// Volumes for which somebody asked.
    asked: Mutex<BTreeSet<String>>,
}

#[derive(Debug)]
struct Attached {
    device: Box<dyn BlockDevice>,
    link: PathBuf,
    links: PathBuf,
    size_bytes: u64,
}

impl Attached {
    fn told(&self, volume: &str) -> AttachedVolume {
        let (node, link) = (self.device.node().to_owned(), self.link.clone());
        AttachedVolume { volume: volume.to_owned(), node, link }
    }

    fn detach(&mut self) -> io::Result<()> {
        self.device.detach()?;
        // A link to what is there no more harms less than a volume that stays.
        if fs::read_link(&self.link).is_ok_and(|target| target == self.device.node()) {
            let _ = fs::remove_file(&self.link);
        }
        let above = self.link.ancestors().skip(1).take_while(|above| *above != self.links);
        for directory in above {
            // One that has other links in it stays.
            if fs::remove_dir(directory).is_err() {
                break;
            }
        }
        Ok(())
    }
}

impl Devices {
    /// The volumes that are devices.
    fn list(&self) -> Vec<AttachedVolume> {
        lock(&self.attached).iter().map(|(volume, attached)| attached.told(volume)).collect()
    }
}

impl OpenPool {
    /// Detaches the volumes that are meant. One that is in use stays, unless forced. Blocks the thread.
    pub(super) fn detach_devices(&self, is_meant: impl Fn(&str) -> bool, force: bool) -> Vec<ApiError> {
        // What the kernel keeps would wait for the pool's devices.
        let flushes = !force && !self.is_suspended();
        let mut attached = lock(&self.devices.attached);
        let mut failed = Vec::new();
        attached.retain(|volume, attached| {
            if !is_meant(volume) {
                return true;
            }
            let node = attached.device.node().display().to_string();
            if !force && attached.device.is_in_use() {
                failed.push(ApiError::busy(format!(
                    "volume '{volume}' is in use as {node}: unmount it there, or force"
                )));
                return true;
            }
            let flushed = if flushes { attached.device.flush() } else { Ok(()) };
            match flushed.and_then(|()| attached.detach()) {
                Ok(()) => false,
                Err(error) => {
                    failed.push(ApiError::failed(format!(
                        "volume '{volume}' stays attached as {node}: {error}"
                    )));
                    true
                }
            }
        });
        failed
    }
}

/// Where the link to a volume goes. Names on disks are what somebody wrote there.
fn link_of(links: &Path, volume: &str) -> Option<PathBuf> {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    volume.split('/').all(is_plain).then(|| links.join(volume))
}

fn put_link(link: &Path, node: &Path) -> io::Result<()> {
    if let Some(above) = link.parent() {
        fs::create_dir_all(above)?;
    }
    // One that a daemon left behind which died.
    if fs::symlink_metadata(link).is_ok_and(|found| found.file_type().is_symlink()) {
        fs::remove_file(link)?;
    }
    std::os::unix::fs::symlink(node, link)
}

impl Daemon {
    /// The same, with devices made otherwise: for tests.
    #[must_use]
    pub fn making_devices(self, device_maker: DeviceMaker) -> Self {
        Self { device_maker, ..self }
    }

    /// Makes a device of a volume.
    ///
    /// # Errors
    /// There is no such volume, or the kernel makes none.
    pub async fn attach_volume(&self, request: api::AttachVolume) -> Result<AttachedVolume, ApiError> {
        let name = &request.volume;
        let pool = self.pool_of(name)?;
        let _changing = pool.change().await?;
        let volumes = pool.volumes();
        let volume = volumes.iter().find(|volume| volume.name() == name).ok_or_else(|| {
            ApiError::not_found(format!("cannot attach '{name}': it is not a volume that can be read"))
        })?;
        let attached = self.attach(&pool, name, volume.size_bytes())?;
        lock(&pool.devices.asked).insert(name.clone());
        Ok(attached)
    }

    /// Ends the device of a volume.
    ///
    /// # Errors
    /// It has none, or the device is in use.
    pub async fn detach_volume(&self, request: api::DetachVolume) -> Result<(), ApiError> {
        let name = &request.volume;
        let doing = format!("cannot detach '{name}'");
        let pool = self.pool_of(name)?;
        let _changing = pool.change().await?;
        if !pool.devices.list().iter().any(|attached| attached.volume == *name) {
            return Err(ApiError::not_found(format!("{doing}: it is not attached")));
        }
        let failed = pool.detach_devices(|volume| volume == name, request.force).into_iter().next();
        if let Some(ApiError { kind, message }) = failed {
            return Err(ApiError { kind, message: format!("{doing}: {message}") });
        }
        lock(&pool.devices.asked).remove(name);
        Ok(())
    }

    /// The volumes that are devices.
    ///
    /// # Errors
    /// None.
    pub fn list_attached(&self, _: api::ListAttached) -> Result<Vec<AttachedVolume>, ApiError> {
        Ok(self.open_pools().iter().flat_map(|pool| pool.devices.list()).collect())
    }

    /// Makes the device and its link, unless they are there. Blocks the thread.
    fn attach(&self, pool: &OpenPool, name: &str, size_bytes: u64) -> Result<AttachedVolume, ApiError> {
        let doing = format!("cannot attach '{name}'");
        let mut attached = lock(&pool.devices.attached);
        if let Some(there) = attached.get(name) {
            return Ok(there.told(name));
        }
        let DeviceMaker { devices, links } = &self.device_maker;
        let link = link_of(links, name);
        let link = link.ok_or_else(|| ApiError::refused(format!("{doing}: it has no name for a path")))?;
        let socket = self.nbd.get().map(|nbd| nbd.socket.clone());
        let socket =
            socket.ok_or_else(|| ApiError::refused(format!("{doing}: this daemon serves no volumes")))?;
        let device =
            nbd::choose(&socket, name).and_then(|chosen| devices.attach(chosen)).map_err(|error| {
                let kind = match error.kind() {
                    io::ErrorKind::ResourceBusy => ErrorKind::Busy,
                    io::ErrorKind::NotFound => ErrorKind::Refused,
                    _ => ErrorKind::Failed,
                };
                ApiError::new(kind, format!("{doing}: {error}"))
            })?;
        let mut new = Attached { device, link, links: links.clone(), size_bytes };
        if let Err(error) = put_link(&new.link, new.device.node()) {
            let link = new.link.display().to_string();
            let left =
                new.detach().err().map_or_else(String::new, |error| format!("; and it stays: {error}"));
            return Err(ApiError::failed(format!("{doing}: no link {link} to its device: {error}{left}")));
        }
        let told = new.told(name);
        attached.insert(name.to_owned(), new);
        Ok(told)
    }

    /// Detaches all devices that nothing uses, while volumes are still served: for the end of the daemon, so that the kernel
    /// can write what it keeps. Blocks the thread.
    pub fn detach_all_devices(&self) {
        for pool in self.open_pools() {
            for error in pool.detach_devices(|_| true, false) {
                tracing::warn!(pool = pool.name(), "{error}");
            }
        }
    }

    /// Brings the devices of all pools in line with their volumes, after something changed. What cannot be done is said
    /// in the log.
    pub(super) async fn settle_devices(&self) {
        for pool in self.open_pools() {
            // A pool that is being closed, or whose devices are away, gets no new ones.
            if pool.is_suspended() || pool.volumes().is_empty() && pool.devices.list().is_empty() {
                continue;
            }
            let Ok(_changing) = pool.change().await else { continue };
            for warning in self.settle_devices_of(&pool).await {
                tracing::warn!(pool = pool.name(), "{warning}");
            }
        }
    }

    /// The same for one pool, by who has the right to change it.
    pub(super) async fn settle_devices_of(&self, pool: &OpenPool) -> Vec<String> {
        if !self.device_maker.devices.is_there() && pool.devices.list().is_empty() {
            return Vec::new();
        }
        let volumes: BTreeMap<String, u64> =
            pool.volumes().iter().map(|volume| (volume.name().to_owned(), volume.size_bytes())).collect();
        lock(&pool.devices.asked).retain(|asked| volumes.contains_key(asked));
        let mut wanted: BTreeSet<String> = lock(&pool.devices.asked).clone();
        match with_device(pool, &volumes).await {
            Ok(with_device) => wanted.extend(with_device),
            Err(error) => return vec![format!("devices of volumes are as they were: {error}")],
        }
        let failed = pool.detach_devices(|volume| !wanted.contains(volume), false);
        let mut warnings: Vec<String> = failed.into_iter().map(|error| error.message).collect();
        for name in &wanted {
            let Some(size_bytes) = volumes.get(name) else { continue };
            if let Err(error) = self.attach(pool, name, *size_bytes) {
                warnings.push(error.message);
            }
        }
        for (name, attached) in lock(&pool.devices.attached).iter_mut() {
            let Some(size_bytes) = volumes.get(name).filter(|size| **size != attached.size_bytes) else {
                continue;
            };
            match attached.device.resize(*size_bytes) {
                Ok(()) => attached.size_bytes = *size_bytes,
                Err(error) => warnings.push(format!("the device of '{name}' keeps its size: {error}")),
            }
        }
        warnings
    }
}

/// The volumes that are to have a device because of their properties. Snapshots have none.
async fn with_device(pool: &OpenPool, volumes: &BTreeMap<String, u64>) -> engine::Result<Vec<String>> {
    let heads: Vec<&String> = volumes.keys().filter(|name| !name.contains('@')).collect();
    if heads.is_empty() {
        return Ok(Vec::new());
    }
    let dsl = pool.dsl().await?;
    let mut with_device = Vec::new();
    for name in heads {
        let Some(entry) = dsl.entry(name).await.map(Some).or_else(absent)? else { continue };
        let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await?;
        if matches!(properties.number(Prop::Volmode), Some(FULL | DEV)) {
            with_device.push(name.clone());
        }
    }
    Ok(with_device)
}

fn absent<T>(error: engine::Error) -> engine::Result<Option<T>> {
    match error {
        engine::Error::NotFound(_) => Ok(None),
        other => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_below_its_directory() {
        let links = Path::new("/dev/zvol");
        assert_eq!(link_of(links, "tank/a/v"), Some("/dev/zvol/tank/a/v".into()));
        for wrong in ["", "tank/../v", "tank//v", "..", "/v", "tank/."] {
            assert_eq!(link_of(links, wrong), None, "{wrong}");
        }
    }
}
