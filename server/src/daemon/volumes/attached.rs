//! Volumes as block devices of the kernel ([`crate::blockdev`]), with links `/dev/zvol/POOL/VOLUME` to them.
//!
//! # Which volumes
//! Volumes whose property `volmode` is `dev` or `full`, set there or inherited; their snapshots if `snapdev`
//! is `visible`; and those that were attached by request ([`api::AttachVolume`]). `volmode=default` means
//! what the tunable `zvol_volmode` says: no device, as not every volume is for this machine; or one through
//! ublk, where the kernel has that. Its NBD client has few devices, which are not taken unasked. The devices
//! follow the feed of changes ([`crate::daemon::watch::following`]). If the kernel cannot make a device, the
//! log says so, and a request for it fails.
//!
//! A device that a volume has by default is not made again after it was detached by request, until the pool
//! is imported again, and gives way to a request for another way.
//!
//! A device is made in the first way that the kernel has ([`DeviceMaker::ways`]), unless the request names
//! another.
//!
//! A device is a client of the volume like any other. It does not keep its volume or pool from changes, as
//! long as nothing in the kernel uses it: before a change that allows no client it is detached, and attached
//! again afterwards if the volume still exists. A mounted device does prevent such changes.
//!
//! # Nothing is lost at the end
//! Before a device is detached the kernel writes its dirty data; if that fails, the device stays. With force
//! it stays for no longer than [`FORCED_FLUSH`], and a suspended pool is not waited for.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Devices::attached` | the list; across waiting for the kernel, never across an `.await` | after `OpenPool::changes` |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use engine::events::feed::What;
use engine::properties::{Environment, Prop};
use engine::tunables::ZVOL_VOLMODE;

use super::VolumeExport;
use super::clients::Client;
use super::exports::NO_KEY;
use crate::api::{self, ApiError, AttachedVolume, ErrorKind, Through};
use crate::blockdev::{BlockDevice, BlockDevices, KernelNbd, Offered, Ublk};
use crate::daemon::names::is_at_or_below;
use crate::daemon::{Daemon, OpenPool, lock};

/// The value of `volmode` that leaves it to the daemon.
const DEFAULT: u64 = 0;
/// Those with which a volume is a device.
const FULL: u64 = 1;
const DEV: u64 = 2;

/// The value of `snapdev` with which its snapshots are devices too.
const VISIBLE: u64 = 1;

/// How long the kernel may write what it keeps of a device that goes by force.
const FORCED_FLUSH: Duration = Duration::from_secs(10);
/// The same of another one: as long as it takes, but not for ever.
const FLUSH: Duration = Duration::from_secs(3600);
/// Most links and directories that are looked at for what daemons left that died.
const MOST_LEFT: usize = 65_536;

/// Makes devices, and knows where links to them go.
#[derive(Debug, Clone)]
pub struct DeviceMaker {
    /// The makers of devices, the best first.
    pub ways: Vec<(Through, Arc<dyn BlockDevices<VolumeExport>>)>,
    /// The directory of the links.
    pub links: PathBuf,
}

impl Default for DeviceMaker {
    fn default() -> Self {
        let ublk: Arc<dyn BlockDevices<VolumeExport>> = Arc::<Ublk>::default();
        let ways = vec![(Through::Ublk, ublk), (Through::Nbd, Arc::<KernelNbd>::default())];
        Self { ways, links: "/dev/zvol".into() }
    }
}

impl DeviceMaker {
    fn is_there(&self) -> bool {
        self.ways.iter().any(|(_, devices)| devices.is_there())
    }

    fn has_ublk(&self) -> bool {
        self.ways.iter().any(|(way, devices)| *way == Through::Ublk && devices.is_there())
    }

    /// The way that is asked for, else the first one that there is.
    fn way(&self, through: Option<Through>) -> io::Result<(Through, &dyn BlockDevices<VolumeExport>)> {
        let is_meant = |way: Through, devices: &dyn BlockDevices<VolumeExport>| match through {
            Some(asked) => asked == way,
            None => devices.is_there(),
        };
        let mut ways = self.ways.iter().map(|(way, devices)| (*way, &**devices));
        ways.find(|(way, devices)| is_meant(*way, *devices)).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "the kernel cannot make a block device for it: load ublk ('modprobe ublk_drv'; Linux 6.5 or \
                 later) or its NBD client ('modprobe nbd'), or use the volume through its NBD socket",
            )
        })
    }
}

/// The volumes of one pool that are devices.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Devices {
    attached: Mutex<BTreeMap<String, Attached>>,
    /// Volumes that were attached by request, and how.
    asked: Mutex<BTreeMap<String, Option<Through>>>,
    /// Volumes that were detached by request, and have no device by default any more.
    unwanted: Mutex<BTreeSet<String>>,
}

#[derive(Debug)]
struct Attached {
    device: Box<dyn BlockDevice>,
    through: Through,
    link: PathBuf,
    links: PathBuf,
    size_bytes: u64,
}

impl Attached {
    fn told(&self, volume: &str) -> AttachedVolume {
        let (node, link) = (self.device.node().to_owned(), self.link.clone());
        AttachedVolume { volume: volume.to_owned(), through: self.through, node, link }
    }

    fn detach(&mut self, fails: bool) -> io::Result<()> {
        self.device.detach(fails)?;
        // A link to what is there no more harms less than a volume that stays.
        if fs::read_link(&self.link).is_ok_and(|target| target == self.device.node()) {
            remove_link(&self.link, &self.links);
        }
        Ok(())
    }
}

/// Removes a link, and the directories above it that have no other.
fn remove_link(link: &Path, links: &Path) {
    if fs::remove_file(link).is_ok() {
        let above = link.ancestors().skip(1).take_while(|above| *above != links);
        // One that has other links in it stays.
        above.map_while(|directory| fs::remove_dir(directory).ok()).for_each(drop);
    }
}

/// Removes links to devices that nothing serves any more.
fn clear_links(links: &Path, is_left: impl Fn(&Path) -> bool) {
    let mut directories = vec![links.to_owned()];
    let mut left = MOST_LEFT;
    while let Some(directory) = directories.pop() {
        // It need not be there, and may go meanwhile.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            left = left.saturating_sub(1);
            match entry.file_type() {
                _ if left == 0 => return,
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind)
                    if kind.is_symlink() && fs::read_link(entry.path()).is_ok_and(|node| is_left(&node)) =>
                {
                    remove_link(&entry.path(), links);
                }
                _ => {}
            }
        }
    }
}

impl Devices {
    /// The volumes that are devices.
    fn list(&self) -> Vec<AttachedVolume> {
        lock(&self.attached).iter().map(|(volume, attached)| attached.told(volume)).collect()
    }

    /// Says that one of them is in use, where one is.
    pub(in crate::daemon) fn in_use(&self) -> Option<ApiError> {
        let attached = lock(&self.attached);
        let (volume, used) = attached.iter().find(|(_, attached)| attached.device.is_in_use())?;
        let node = used.device.node().display();
        Some(ApiError::busy(format!("volume '{volume}' is in use as {node}")))
    }
}

impl OpenPool {
    /// Whether a volume has a device, or there is one that could.
    pub(in crate::daemon) fn may_have_devices(&self) -> bool {
        !self.volumes().is_empty() || !lock(&self.devices.attached).is_empty()
    }

    /// Detaches the volumes that are meant, after the kernel wrote what it keeps of them. One that is in use
    /// stays, unless forced. Those that are to have devices afterwards get them with
    /// [`Daemon::catch_up`]. Blocks the thread.
    pub(in crate::daemon) fn detach_devices(
        &self,
        is_meant: impl Fn(&str) -> bool,
        force: bool,
    ) -> Vec<ApiError> {
        self.followed.note_devices();
        self.detach_for_good(is_meant, force)
    }

    /// The same for those that are to have none.
    fn detach_for_good(&self, is_meant: impl Fn(&str) -> bool, force: bool) -> Vec<ApiError> {
        // Nothing waits for the pool's devices.
        let mut is_stuck = self.is_suspended();
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
            let flushed = match (is_stuck, force) {
                (true, _) => Ok(()),
                (false, false) => attached.device.flush(FLUSH),
                (false, true) => attached.device.flush(FORCED_FLUSH).or_else(|error| {
                    is_stuck = error.kind() == io::ErrorKind::TimedOut;
                    tracing::warn!(volume, node, %error, "a device is removed before all data written to it \
                        are on disk");
                    Ok(())
                }),
            };
            match flushed.and_then(|()| attached.detach(is_stuck)) {
                Ok(()) => {
                    self.tell(What::Served { name: volume.clone(), how: "detached" });
                    false
                }
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

/// Where the link to a volume goes. Names on disks are untrusted.
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
        let volume = volumes.get(name).ok_or_else(|| match volumes.is_locked(name) {
            true => ApiError::refused(format!("cannot attach '{name}': {NO_KEY}")),
            false => {
                ApiError::not_found(format!("cannot attach '{name}': it is not a volume that can be read"))
            }
        })?;
        self.give_way(&pool, name, request.through);
        let attached = self.attach(&pool, name, volume.size_bytes, request.through)?;
        lock(&pool.devices.asked).insert(name.clone(), request.through);
        lock(&pool.devices.unwanted).remove(name);
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
        lock(&pool.devices.unwanted).insert(name.clone());
        Ok(())
    }

    /// Detaches a device that was not asked for, where another way is. One that is in use stays. Blocks the
    /// thread.
    fn give_way(&self, pool: &OpenPool, name: &str, through: Option<Through>) {
        let is_other = |attached: &AttachedVolume| {
            attached.volume == name && through.is_some_and(|asked| asked != attached.through)
        };
        if !lock(&pool.devices.asked).contains_key(name) && pool.devices.list().iter().any(is_other) {
            for error in pool.detach_devices(|volume| volume == name, false) {
                tracing::debug!(volume = name, "{error}");
            }
        }
    }

    /// The volumes that are devices.
    ///
    /// # Errors
    /// None.
    pub fn list_attached(&self, _: api::ListAttached) -> Result<Vec<AttachedVolume>, ApiError> {
        Ok(self.open_pools().iter().flat_map(|pool| pool.devices.list()).collect())
    }

    /// Makes the device and its link, unless they are there. Blocks the thread.
    fn attach(
        &self,
        pool: &Arc<OpenPool>,
        name: &str,
        size_bytes: u64,
        through: Option<Through>,
    ) -> Result<AttachedVolume, ApiError> {
        let doing = format!("cannot attach '{name}'");
        let refused = |why: &str| ApiError::refused(format!("{doing}: {why}"));
        let mut attached = lock(&pool.devices.attached);
        if let Some(there) = attached.get(name) {
            let told = there.told(name);
            return match through.filter(|asked| *asked != there.through) {
                None => Ok(told),
                Some(_) => Err(ApiError::busy(format!(
                    "{doing}: it is attached through {} as {}; detach it first",
                    there.through.word(),
                    told.node.display()
                ))),
            };
        }
        let links = &self.device_maker.links;
        let link = link_of(links, name).ok_or_else(|| refused("its name cannot be a path"))?;
        let (Some(nbd), Some(shards)) = (self.nbd.get(), self.shards.get().and_then(Weak::upgrade)) else {
            return Err(refused("this daemon serves no volumes"));
        };
        let open = || {
            let opened = device::block_on(pool.connect(name, Client::unnamed("ublk"), self.link.clone()));
            opened.map_err(|error| match error {
                engine::Error::Busy(_) => io::Error::new(io::ErrorKind::ResourceBusy, error.to_string()),
                _ => io::Error::other(error.to_string()),
            })
        };
        let offered = Offered { name, socket: &nbd.socket, shards: &shards, open: &open };
        let way = self.device_maker.way(through);
        let made = way.and_then(|(way, devices)| Ok((way, devices.attach(&offered)?)));
        let (through, device) = made.map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::ResourceBusy => ErrorKind::Busy,
                io::ErrorKind::NotFound | io::ErrorKind::Unsupported => ErrorKind::Refused,
                _ => ErrorKind::Failed,
            };
            ApiError::new(kind, format!("{doing}: {error}"))
        })?;
        let mut new = Attached { device, through, link, links: links.clone(), size_bytes };
        if let Err(error) = put_link(&new.link, new.device.node()) {
            let link = new.link.display().to_string();
            let left =
                new.detach(true).err().map_or_else(String::new, |error| format!("; and it stays: {error}"));
            return Err(ApiError::failed(format!("{doing}: no link {link} to its device: {error}{left}")));
        }
        let told = new.told(name);
        attached.insert(name.to_owned(), new);
        pool.tell(What::Served { name: name.to_owned(), how: "attached" });
        Ok(told)
    }

    /// Detaches all devices, also those in use, while volumes are still served: for the end of the daemon, so
    /// that the kernel can write what it keeps. Blocks the thread.
    pub fn detach_all_devices(&self) {
        for pool in self.open_pools() {
            for error in pool.detach_devices(|_| true, true) {
                tracing::warn!(pool = pool.name(), "{error}");
            }
        }
    }

    /// Removes devices that daemons left behind which died, and links to them. What cannot be done is said in
    /// the log. Blocks the thread.
    pub fn clear_left_devices(&self) {
        let DeviceMaker { ways, links } = &self.device_maker;
        for (way, devices) in ways.iter().filter(|(_, devices)| devices.is_there()) {
            if let Err(error) = devices.clear_left() {
                tracing::warn!(%error, through = way.word(), "cannot remove the devices of a daemon that \
                    died");
            }
        }
        clear_links(links, |node| ways.iter().any(|(_, devices)| devices.is_left(node)));
    }

    /// Brings the devices of a pool in line with its volumes, for a caller with the right to change it. Gives
    /// what could not be done.
    pub(in crate::daemon) async fn settle_devices_of(&self, pool: &Arc<OpenPool>) -> Vec<String> {
        if pool.devices.list().is_empty() && !self.device_maker.is_there() {
            return Vec::new();
        }
        let volumes: BTreeMap<String, u64> =
            pool.volumes().iter().map(|volume| (volume.name().to_owned(), volume.size_bytes)).collect();
        lock(&pool.devices.asked).retain(|asked, _| volumes.contains_key(asked));
        lock(&pool.devices.unwanted).retain(|unwanted| volumes.contains_key(unwanted));
        let mut asked = lock(&pool.devices.asked).clone();
        let mut wanted: BTreeSet<String> = asked.keys().cloned().collect();
        match with_device(pool, &volumes, self.device_maker.has_ublk()).await {
            Ok(WithDevice { said, by_default }) => {
                wanted.extend(said);
                for name in by_default.into_iter().filter(|name| !wanted.contains(name)) {
                    asked.insert(name, Some(Through::Ublk));
                }
                wanted.extend(asked.keys().cloned());
            }
            Err(error) => return vec![format!("cannot update the devices of volumes: {error}")],
        }
        let failed = pool.detach_for_good(|volume| !wanted.contains(volume), false);
        let mut warnings: Vec<String> = failed.into_iter().map(|error| error.message).collect();
        // A size that the kernel keeps is that of a device which is attached again.
        let again = pool.resize_devices(&volumes, &mut warnings);
        let failed = pool.detach_for_good(|volume| again.contains(volume), false);
        warnings
            .extend(failed.into_iter().map(|error| format!("a device keeps its size: {}", error.message)));
        for name in &wanted {
            let Some(size_bytes) = volumes.get(name) else { continue };
            let through = asked.get(name).copied().flatten();
            if let Err(error) = self.attach(pool, name, *size_bytes, through) {
                warnings.push(error.message);
            }
        }
        warnings
    }
}

impl OpenPool {
    /// Volumes for which devices were asked have other names: what was called `from`, and what lies below it.
    pub(in crate::daemon) fn rename_asked_devices(&self, from: &str, to: &str) {
        let mut asked = lock(&self.devices.asked);
        let renamed =
            std::mem::take(&mut *asked).into_iter().map(|(name, through)| match name.strip_prefix(from) {
                Some(rest) if is_at_or_below(&name, from) => (format!("{to}{rest}"), through),
                _ => (name, through),
            });
        asked.extend(renamed);
    }

    /// Gives devices the sizes of their volumes. Those whose size the kernel keeps.
    fn resize_devices(
        &self,
        volumes: &BTreeMap<String, u64>,
        warnings: &mut Vec<String>,
    ) -> BTreeSet<String> {
        let mut kept = BTreeSet::new();
        for (name, attached) in lock(&self.devices.attached).iter_mut() {
            let Some(size_bytes) = volumes.get(name).filter(|size| **size != attached.size_bytes) else {
                continue;
            };
            match attached.device.resize(*size_bytes) {
                Ok(()) => attached.size_bytes = *size_bytes,
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    kept.insert(name.clone());
                }
                Err(error) => warnings.push(format!(
                    "cannot change the size of the device of '{name}': \
                    {error}"
                )),
            }
        }
        kept
    }
}

/// The volumes that are to have a device because of their properties, and their snapshots.
#[derive(Debug, Default)]
struct WithDevice {
    /// Their properties say so.
    said: Vec<String>,
    /// Their properties leave it to the daemon.
    by_default: Vec<String>,
}

async fn with_device(
    pool: &OpenPool,
    volumes: &BTreeMap<String, u64>,
    has_ublk: bool,
) -> engine::Result<WithDevice> {
    let heads: Vec<&String> = volumes.keys().filter(|name| !name.contains('@')).collect();
    let mut found = WithDevice::default();
    if heads.is_empty() {
        return Ok(found);
    }
    let dsl = pool.dsl().await?;
    let is_by_default = has_ublk && matches!(ZVOL_VOLMODE.get(), FULL | DEV);
    let unwanted = lock(&pool.devices.unwanted).clone();
    for name in heads {
        let Some(entry) = dsl.entry(name).await.map(Some).or_else(absent)? else { continue };
        let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await?;
        let with_device = match properties.number(Prop::Volmode) {
            Some(FULL | DEV) => &mut found.said,
            Some(DEFAULT) | None if is_by_default => &mut found.by_default,
            _ => continue,
        };
        with_device.push(name.clone());
        if properties.number(Prop::Snapdev) == Some(VISIBLE) {
            let is_snapshot =
                |other: &&String| other.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('@'));
            with_device.extend(volumes.keys().filter(is_snapshot).cloned());
        }
    }
    found.by_default.retain(|name| !unwanted.contains(name));
    Ok(found)
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

    #[test]
    fn links_that_lead_to_devices_of_others_stay() {
        let place = tempfile::tempdir().unwrap();
        let links = place.path().join("zvol");
        let link = |name: &str, node: &str| put_link(&links.join(name), Path::new(node)).unwrap();
        clear_links(&links, |_| true);
        link("tank/a/v", "/dev/ublkb7");
        link("tank/v", "/dev/ublkb8");
        link("old/b/v@s", "/dev/ublkb7");
        link("theirs/v", "../../zd0");
        clear_links(&links, |node| node == Path::new("/dev/ublkb7"));
        let is_there = |name: &str| fs::symlink_metadata(links.join(name)).is_ok();
        assert_eq!(["tank/a", "tank/v", "old", "theirs/v"].map(is_there), [false, true, false, true]);
    }
}
