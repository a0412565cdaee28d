//! Devices for a new or growing pool: finding them, whether they are in use, and whether vdevs of them go
//! together.
//!
//! One refusal reports everything that is wrong, and separates what force overrides from what must be
//! repaired. Devices are opened for writing here, with their locks, so that no other program takes them
//! between the check and the use.
//!
//! A whole disk is partitioned after all checks, and the pool gets its first partition
//! ([`engine::vdev::gpt`]). Block devices that are not disks (partitions, device mapper, loop devices without
//! partitions) are used as they are.
//!
//! Source of the facts: OpenZFS 2.3 `zpool_vdev.c`, `zpool_vdev_os.c`.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::address::{is_address, is_complete};
use device::signatures::{SIGNATURE_BYTES, Signature, signature};
use device::{Cause, Device, MemoryDevice, OpenOptions, in_words};
use engine::env::{Env, System};
use engine::pool::discovery::{Candidate, DEFAULT_DIRECTORIES};
use engine::pool::live::{Layout, NewLeaf, NewTop};
use engine::properties::format::nicebytes;
use engine::vdev::Class;
use engine::vdev::open::take_whole_disk;
use engine::vdev::spares;
use ondisk::vdev_config::PoolState;
use ondisk::{Guid, Txg};

use super::replication::{self, Replication};
use crate::api::{ApiError, NewClass, NewDevices, NewLayout};

/// The smallest device that a pool is made of.
const MIN_DEVICE_BYTES: u64 = 64 << 20;
/// `ashift` of files, unless another one was asked for.
const FILE_ASHIFT: u8 = 9;
/// How long the system may take to show a partition.
const PARTITION_PATIENCE: Duration = Duration::from_secs(10);

/// Devices that are open for writing, as the engine takes them.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Opened {
    pub tops: Vec<NewTop>,
    pub spares: Vec<NewLeaf>,
    pub l2cache: Vec<NewLeaf>,
}

/// The errors of a choice of devices.
#[derive(Debug, Default)]
struct Faults {
    /// Must be repaired.
    errors: Vec<String>,
    /// Only with force.
    forcible: Vec<String>,
}

/// Who may have a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The pool alone.
    Own,
    /// A hot spare, which other pools of this daemon may have too.
    Spare,
}

/// Unusual layouts that the user allows.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) struct Allowed {
    /// Devices that seem to be in use.
    pub in_use: bool,
    /// Vdevs of different redundancy.
    pub replication: bool,
}

impl Allowed {
    /// Errors that force overrides.
    pub(in crate::daemon) fn all(force: bool) -> Self {
        Self { in_use: force, replication: force }
    }
}

impl Faults {
    fn check(self) -> Result<(), ApiError> {
        let (what, lines) = match (self.errors.is_empty(), self.forcible.is_empty()) {
            (true, true) => return Ok(()),
            (false, _) => ("the following errors must be manually repaired:", self.errors),
            (true, false) => ("use '-f' to override the following errors:", self.forcible),
        };
        Err(ApiError::refused(format!("invalid vdev specification\n{what}\n{}", lines.join("\n"))))
    }
}

/// Opens and checks the devices for a pool. `doing` begins what is said of them, `open_pools` are those of
/// this daemon, `existing` are vdevs that the pool has already. Nothing is written to them yet. `ashift` is
/// what was asked for.
pub(in crate::daemon) async fn open(
    devices: &NewDevices,
    doing: &str,
    allowed: Allowed,
    open_pools: &[(Guid, String)],
    (existing, ashift): (Option<&Replication>, Option<u8>),
) -> Result<Opened, ApiError> {
    let mut faults = Faults::default();
    let mut opened = Opened::default();
    let mut seen = Vec::new();
    let mut open_all =
        async |paths: &[PathBuf], (ashift, role), faults: &mut Faults| -> Result<Vec<NewLeaf>, ApiError> {
            let mut leaves = Vec::new();
            for path in paths {
                let path = find(path)?;
                let same = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
                if seen.contains(&same) {
                    return Err(ApiError::refused(format!(
                        "{doing}: one or more vdevs refer to the same device, or one of\n\
                     the devices is part of an active md or lvm device"
                    )));
                }
                seen.push(same);
                leaves
                    .push(open_one(&path, doing, (open_pools, ashift, role, allowed.in_use), faults).await?);
            }
            Ok(leaves)
        };
    for vdev in &devices.vdevs {
        let leaves = open_all(&vdev.devices, (ashift, Role::Own), &mut faults).await?;
        opened.tops.push(NewTop { layout: layout(vdev.layout), class: class(vdev.class), leaves });
    }
    opened.spares = open_all(&devices.spares, (ashift, Role::Spare), &mut faults).await?;
    // A cache device has sectors of its own, whatever those of the pool are.
    opened.l2cache = open_all(&devices.cache, (None, Role::Own), &mut faults).await?;
    if allowed.in_use {
        faults.forcible.clear();
    }
    if !allowed.replication {
        faults.forcible.extend(replication::fault(&devices.vdevs, &opened.tops, existing));
    }
    faults.check()?;
    let all = opened.tops.iter().flat_map(|top| &top.leaves).chain(&opened.spares).chain(&opened.l2cache);
    let small: Vec<String> = all
        .filter(|leaf| leaf.device.size_bytes() < MIN_DEVICE_BYTES)
        .map(|leaf| format!("{} ({})", leaf.path.display(), nicebytes(leaf.device.size_bytes())))
        .collect();
    if !small.is_empty() {
        return Err(ApiError::refused(format!(
            "{doing}: one or more devices is less than the minimum size (64M): {}",
            small.join(", ")
        )));
    }
    Ok(opened)
}

impl Opened {
    /// Puts the first partition in the place of each disk that was given as a whole, which is partitioned
    /// anew.
    pub(in crate::daemon) async fn partition(&mut self, doing: &str) -> Result<(), ApiError> {
        let tops = self.tops.iter_mut().flat_map(|top| &mut top.leaves);
        for leaf in tops.chain(&mut self.spares).chain(&mut self.l2cache) {
            if is_disk(&leaf.path) {
                *leaf = partitioned(leaf, doing).await?;
            }
        }
        Ok(())
    }
}

/// The first partition of a disk, which is partitioned anew.
async fn partitioned(leaf: &mut NewLeaf, doing: &str) -> Result<NewLeaf, ApiError> {
    // Its partitions can be claimed only by who has not claimed the disk.
    leaf.device = Arc::new(MemoryDevice::new("<a disk>", 0));
    let taken = take_whole_disk(&leaf.path, PARTITION_PATIENCE, || System.random()).await;
    let (device, path) = taken.map_err(|error| {
        ApiError::failed(
            match matches!(error.errno(), libc::ENOENT | libc::ENXIO) && error.path != leaf.path {
                true => format!(
                    "{doing}: {} was partitioned, but this system does not show its first partition\n\
                 (a kernel without CONFIG_EFI_PARTITION does not); use a partition that it shows",
                    leaf.path.display()
                ),
                false => format!("{doing}: {error}"),
            },
        )
    })?;
    Ok(NewLeaf { device: Arc::new(device), path, is_file: false, whole_disk: true })
}

/// Whether a block device is a disk that could be partitioned, and that the system would show the partitions
/// of.
fn is_disk(path: &Path) -> bool {
    let Ok(path) = std::fs::canonicalize(path) else { return false };
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let place = Path::new("/sys/block").join(name);
    let has_partitions = match name.starts_with("loop") {
        true => std::fs::read_to_string(place.join("loop/partscan")).is_ok_and(|text| text.trim() == "1"),
        false => ["sd", "hd", "vd", "xvd", "nvme", "mmcblk"].iter().any(|kind| name.starts_with(kind)),
    };
    path.starts_with("/dev") && place.exists() && has_partitions
}

/// The partitions that a disk has.
fn partitions(disk: &Path) -> Vec<PathBuf> {
    let Ok(disk) = std::fs::canonicalize(disk) else { return Vec::new() };
    let Some(name) = disk.file_name() else { return Vec::new() };
    let entries = std::fs::read_dir(Path::new("/sys/block").join(name)).into_iter().flatten().flatten();
    let partitions = entries.filter(|entry| entry.path().join("partition").exists());
    let mut paths: Vec<PathBuf> = partitions
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .filter(|path| path.exists())
        .collect();
    paths.sort();
    paths
}

fn layout(layout: NewLayout) -> Layout {
    match layout {
        NewLayout::Single => Layout::Single,
        NewLayout::Mirror => Layout::Mirror,
        NewLayout::Raidz { nparity } => Layout::Raidz { nparity },
        NewLayout::Draid { nparity, ndata, nspares } => Layout::Draid { nparity, ndata, nspares },
    }
}

fn class(class: NewClass) -> Class {
    match class {
        NewClass::Normal => Class::Normal,
        NewClass::Log => Class::Log,
        NewClass::Special => Class::Special,
        NewClass::Dedup => Class::Dedup,
    }
}

/// Where a device is: at its absolute path, or by its name in one of the directories of devices.
fn find(path: &Path) -> Result<PathBuf, ApiError> {
    if is_complete(path) {
        return Ok(path.to_owned());
    }
    let mut places = DEFAULT_DIRECTORIES.iter().map(|directory| Path::new(directory).join(path));
    places.find(|place| place.exists()).ok_or_else(|| {
        ApiError::not_found(format!(
            "cannot open '{}': no such device in /dev\nmust be a full path or shorthand device name",
            path.display()
        ))
    })
}

async fn open_one(
    path: &Path,
    doing: &str,
    (open_pools, ashift, role, may_be_in_use): (&[(Guid, String)], Option<u8>, Role, bool),
    faults: &mut Faults,
) -> Result<NewLeaf, ApiError> {
    if is_address(path) {
        return open_address(path, doing, (open_pools, may_be_in_use), faults).await;
    }
    let shown = path.display();
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            ApiError::not_found(format!("cannot open '{shown}': No such file or directory"))
        }
        _ => ApiError::failed(format!("cannot open '{shown}': {}", in_words(&error))),
    })?;
    let is_block = metadata.file_type().is_block_device();
    if !is_block && !metadata.is_file() {
        return Err(ApiError::invalid(format!(
            "cannot use '{shown}': must be a block device or regular file"
        )));
    }
    // Labels first: who uses a device of ours has it locked too, and this says which pool it is.
    let looked_at = OpenOptions::read_only().open(path);
    let looked_at =
        looked_at.map_err(|error| ApiError::failed(format!("cannot open '{shown}': {}", error.cause)))?;
    let looked_at: Arc<dyn Device> = Arc::new(looked_at);
    let new = |device| NewLeaf { device, path: path.into(), is_file: !is_block, whole_disk: false };
    if let Some(user) = user_of(Arc::clone(&looked_at), open_pools).await.filter(|user| !user.force_helps) {
        faults.errors.push(format!("{shown} is {}", user.how));
        // Locked by its user.
        return Ok(new(looked_at));
    }
    if is_disk(path) {
        for partition in partitions(path) {
            check_partition(&partition, open_pools, faults).await;
        }
    }
    let options = match is_block {
        true => OpenOptions::read_write(),
        // Sectors of files are as small as the pool's, whatever the filesystem that they are in can do
        // directly.
        false => OpenOptions::read_write().unit_at_most(1 << ashift.unwrap_or(FILE_ASHIFT)),
    };
    let device = match options.open_device(path) {
        Ok(device) => device,
        Err(error) if matches!(error.cause, Cause::InUse) => {
            let shared = spares::shared(&*looked_at);
            if let (Role::Spare, Some(device)) = (role, &shared) {
                return Ok(new(Arc::clone(device)));
            }
            faults.errors.push(match is_block {
                _ if shared.is_some() => format!("{shown} is in use as a hot spare of an open pool"),
                true => format!("{shown} is in use and contains a unknown filesystem."),
                false => format!("{shown} is in use by another process"),
            });
            looked_at
        }
        Err(error) => return Err(ApiError::failed(format!("{doing}: {error}"))),
    };
    // Once more, under its lock: nothing else makes it a part of a pool from now on.
    if let Some(user) = user_of(Arc::clone(&device), open_pools).await {
        let list = if user.force_helps { &mut faults.forcible } else { &mut faults.errors };
        list.push(format!("{shown} is {}", user.how));
    } else if is_block && let Some(kind) = contents_of(&*device).await {
        faults.forcible.push(format!("{shown} contains a filesystem of type '{kind}'"));
    }
    Ok(new(device))
}

/// A device in an object store, which is made if there is none.
async fn open_address(
    path: &Path,
    doing: &str,
    (open_pools, may_be_in_use): (&[(Guid, String)], bool),
    faults: &mut Faults,
) -> Result<NewLeaf, ApiError> {
    let text = path.to_str().ok_or_else(|| ApiError::invalid(format!("{doing}: an address is text")))?;
    let failed = |error: &dyn std::fmt::Display| ApiError::failed(format!("{doing}: {error}"));
    let address = objects::provide(text).map_err(|error| failed(&error))?;
    let path = PathBuf::from(address.to_string());
    let shown = path.display();
    let new = |device| NewLeaf { device, path: path.clone(), is_file: true, whole_disk: false };
    // Before it is taken over from a host that may have it.
    let looked_at = OpenOptions::read_only().open_device(&path).map_err(|error| failed(&error))?;
    if let Some(user) = user_of(Arc::clone(&looked_at), open_pools).await {
        let list = if user.force_helps { &mut faults.forcible } else { &mut faults.errors };
        list.push(format!("{shown} is {}", user.how));
        if !(user.force_helps && may_be_in_use) {
            return Ok(new(looked_at));
        }
    }
    match OpenOptions::read_write().open_device(&path) {
        Ok(device) => Ok(new(device)),
        Err(error) if matches!(error.cause, Cause::InUse) => {
            faults.errors.push(format!("{shown} is in use by another process"));
            Ok(new(looked_at))
        }
        Err(error) => Err(failed(&error)),
    }
}

/// The present contents of a disk.
async fn check_partition(path: &Path, open_pools: &[(Guid, String)], faults: &mut Faults) {
    let shown = path.display();
    let Ok(device) = OpenOptions::read_only().open(path) else { return };
    let device: Arc<dyn Device> = Arc::new(device);
    if let Some(user) = user_of(Arc::clone(&device), open_pools).await {
        let list = if user.force_helps { &mut faults.forcible } else { &mut faults.errors };
        list.push(format!("{shown} is {}", user.how));
    } else if let Some(kind) = contents_of(&*device).await {
        faults.forcible.push(format!("{shown} contains a filesystem of type '{kind}'"));
    }
}

/// The pool that uses a device.
pub(super) struct User {
    /// How, in words.
    pub how: String,
    /// Its name.
    pub pool: Option<String>,
    /// The device can be had by force.
    pub force_helps: bool,
}

/// Which pool uses a device, as its label says.
pub(super) async fn user_of(device: Arc<dyn Device>, open_pools: &[(Guid, String)]) -> Option<User> {
    let label = Candidate::examine(device).await?.label;
    // It left its pool, or was to become part of one, and no group of that was committed.
    let is_of_group = label.pool_guid.is_none() || label.txg.is_some_and(|txg| txg != Txg::NONE);
    if !is_of_group {
        return None;
    }
    let name = label.name.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
    let open = open_pools.iter().find(|(guid, _)| Some(*guid) == label.pool_guid);
    if let Some((_, name)) = open {
        let how = format!("part of active pool '{name}'");
        return Some(User { how, pool: Some(name.clone()), force_helps: false });
    }
    let name = name?;
    let how = match label.state {
        PoolState::Exported => format!("part of exported pool '{name}'"),
        PoolState::Active => format!("part of potentially active pool '{name}'"),
        // Destroyed pools, and unused spares and cache devices.
        _ => return None,
    };
    Some(User { how, pool: Some(name), force_helps: true })
}

/// The kind of file system, or of something else that a person would miss. Tables of partitions are no such
/// thing: what counts is what is in the partitions.
async fn contents_of(device: &dyn Device) -> Option<&'static str> {
    signature_of(device).await.filter(|found| !found.is_table).map(|found| found.kind)
}

/// The format on a device, by its signature.
pub(super) async fn signature_of(device: &dyn Device) -> Option<Signature> {
    let length = device.size_bytes().min(SIGNATURE_BYTES as u64);
    let start = device.read(0, usize::try_from(length).ok()?).await.ok()?;
    signature(&start)
}
