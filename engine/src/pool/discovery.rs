//! Finding pools: look at the labels of devices and group them.
//!
//! # The idea
//! A device belongs to the pool whose guid its best label names, at the place in the vdev tree that its own
//! guid has. Paths mean nothing: a renamed or moved device is found all the same. A label knows only the
//! top-level vdev that its device is part of; put together, the labels of all devices give a tree that is
//! good enough to read the MOS with, which then says everything.
//!
//! # When labels disagree
//! - Several devices claim one guid (a copy, a snapshot of a disk, two paths to one device): the one whose
//!   label has the highest txg counts, then the first path found. The others are listed as duplicates.
//! - Two labels describe a top-level vdev differently (one device missed a change): the description with the
//!   highest txg counts.
//! - A top-level vdev of which no device was found is a gap in the tree.
//!
//! Devices without a good label are not an error: most files of a directory are no devices.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::address::is_address;
use device::{Device, Lock, OpenOptions, Ownership};
use futures_util::future::ready;
use futures_util::{StreamExt, TryStreamExt, stream};
use ondisk::nvlist::Nvlist;
use ondisk::vdev_config::{PoolConfig, PoolState, VdevConfig, VdevKind};
use ondisk::{Guid, Txg};

use crate::error::{Error, Result};
use crate::vdev::config::Devices;
use crate::vdev::label::{best_label, read_labels};
use crate::vdev::open::reopen_for_writing;
use crate::vdev::spares::shared;

/// Top-level vdevs without any device that labels are believed: missing ones, and removed ones, which have
/// none. The pool's own configuration says more, once it can be read.
const MAX_TOPS_WITHOUT_DEVICES: u64 = 1 << 10;
/// Most entries of one directory that are looked at.
const MAX_ENTRIES: usize = 1 << 16;
/// Smaller files cannot hold four labels and a boot area.
const MIN_DEVICE_BYTES: u64 = 5 << 20;
/// Devices that are read together: each may have to spin up first.
pub(super) const DEVICES_AT_ONCE: usize = 64;

/// Directories that are searched when none is named, best names first.
pub const DEFAULT_DIRECTORIES: [&str; 9] = [
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-label",
    "/dev/disk/by-uuid",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
    "/dev",
];

/// A device with at least one good label.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The device, open.
    pub device: Arc<dyn Device>,
    /// Its best label.
    pub label: PoolConfig,
    /// Other guids that it has in its pool by its other labels. The last device of a mirror gets the guid of
    /// the mirror, and a crash may leave labels of before and after that; which group counts, and so which
    /// guid, is decided later.
    pub other_guids: Vec<Guid>,
}

impl Candidate {
    /// Looks at the labels of a device. `None` when none is good.
    pub async fn examine(device: Arc<dyn Device>) -> Option<Self> {
        let labels = read_labels(&*device).await;
        let ids: Vec<_> = labels.iter().flatten().map(|label| (label.pool_guid, label.guid)).collect();
        let label = best_label(labels)?;
        let of_pool = ids.into_iter().filter(|(pool, guid)| *pool == label.pool_guid && *guid != label.guid);
        let mut other_guids: Vec<Guid> = of_pool.filter_map(|(_, guid)| guid).collect();
        other_guids.dedup();
        Some(Self { device, label, other_guids })
    }

    /// Looks at it once more, by another opening of the same device.
    async fn examine_again(&self, device: Arc<dyn Device>) -> Result<Self> {
        let is_same = |again: &Self| {
            again.label.guid == self.label.guid && again.label.pool_guid == self.label.pool_guid
        };
        Self::examine(device).await.filter(is_same).ok_or_else(|| {
            let path = self.path().display();
            Error::Invalid(format!("{path}: it belongs to something else than when it was found"))
        })
    }

    /// Where the device is.
    pub fn path(&self) -> &Path {
        self.device.path()
    }

    fn txg(&self) -> Txg {
        self.label.txg.unwrap_or(Txg::NONE)
    }
}

/// A pool of which at least one device was found.
#[derive(Debug, Clone)]
pub struct FoundPool {
    /// Its guid, which nothing else has.
    pub guid: Guid,
    /// Its name, which other pools may have too.
    pub name: String,
    /// The label with the highest txg.
    pub label: PoolConfig,
    /// The vdev tree as far as the labels tell it: a root whose children are the top-level vdevs.
    pub tree: VdevConfig,
    /// The devices, by the guid of the vdev that they are.
    pub candidates: BTreeMap<Guid, Candidate>,
    /// Devices whose labels are of no group: those that left the pool, and some that were to become part of
    /// it. None is used but by [`FoundPool::with_former`].
    pub former: BTreeMap<Guid, Candidate>,
    /// Devices that claim to be a vdev of which a better one was found.
    pub duplicates: Vec<PathBuf>,
}

impl FoundPool {
    /// Active, exported or destroyed, as the newest label says.
    pub fn state(&self) -> PoolState {
        self.label.state
    }

    /// The same pool with the devices that left it: for going back to a group whose configuration has them.
    /// They held then what they hold now, because each gets a label of another kind before it is used for
    /// anything else. The tree and the uberblocks are those that the other devices tell.
    pub fn with_former(&self) -> Self {
        let mut found = self.clone();
        for (guid, former) in std::mem::take(&mut found.former) {
            found.candidates.entry(guid).or_insert(former);
        }
        found
    }

    /// Whether opening its devices to write takes them from another host that may have them.
    pub fn is_taken_by_opening(&self) -> bool {
        let mut devices = self.candidates.values().map(|candidate| candidate.device.traits().ownership);
        devices.any(|ownership| ownership == Ownership::Last)
    }

    /// The same pool with its devices opened for writing, locked against everybody else, and their labels
    /// read once more under the lock. Devices that are not files or block devices (in tests) and open for
    /// writing already stay as they are. Those that are gone by now are left out.
    ///
    /// # Errors
    /// A device is in use, cannot be written, or is not what it was.
    pub async fn for_writing(&self) -> Result<Self> {
        let mut opened = Vec::with_capacity(self.candidates.len());
        for candidate in self.candidates.values() {
            let path = candidate.path().display();
            let sector = candidate.label.vdev_tree.as_ref().and_then(|top| top.ashift).unwrap_or(9);
            let device = match reopen_for_writing(&candidate.device, sector.into()) {
                Ok(Some(device)) => device,
                Ok(None) => {
                    tracing::warn!(%path, "gone since it was found");
                    continue;
                }
                // A hot spare may be one of other pools of this process too.
                Err(_) if candidate.label.pool_guid.is_none() => match shared(&*candidate.device) {
                    Some(device) => device,
                    None => {
                        tracing::info!(%path, "a spare or cache device that cannot be opened for writing");
                        continue;
                    }
                },
                Err(error) => return Err(Error::Os { what: path.to_string(), errno: error.errno() }),
            };
            opened.push((candidate, device));
        }
        let candidates = stream::iter(opened)
            .map(|(known, device)| known.examine_again(device))
            .buffered(DEVICES_AT_ONCE)
            .try_collect()
            .await?;
        let mut found =
            group(candidates).into_iter().find(|found| found.guid == self.guid).ok_or_else(|| {
                Error::Invalid(format!("none of the devices of '{}' is there any more", self.name))
            })?;
        found.duplicates.clone_from(&self.duplicates);
        // Those that are wanted were opened.
        Ok(found.with_former())
    }

    /// The vdevs of devices that the newest labels know and that were not found.
    pub fn lacks(&self) -> Vec<Guid> {
        let devices = self.devices();
        let (mut lacking, mut left) = (Vec::new(), vec![&self.tree]);
        while let Some(vdev) = left.pop() {
            let is_device = matches!(vdev.kind, VdevKind::Disk | VdevKind::File);
            if is_device && !devices.contains_key(&vdev.guid) {
                lacking.push(vdev.guid);
            }
            left.extend(&vdev.children);
        }
        lacking
    }

    /// The devices by vdev guid, for building a tree.
    pub fn devices(&self) -> Devices {
        let others = self.candidates.values().flat_map(|candidate| {
            candidate.other_guids.iter().map(|guid| (*guid, Arc::clone(&candidate.device)))
        });
        let own = self.candidates.iter().map(|(guid, candidate)| (*guid, Arc::clone(&candidate.device)));
        // The last one of a guid counts.
        others.chain(own).collect()
    }
}

/// Looks for pools in `places`: directories, whose files and devices are looked at, and single files or
/// devices.
pub async fn scan<P: AsRef<Path>>(places: &[P]) -> Result<Vec<FoundPool>> {
    let mut devices = Vec::new();
    for path in device_paths(places)? {
        // A device that cannot be opened may belong to another program; what it means for a pool shows when
        // the pool lacks it.
        let opened = match OpenOptions::read_only().lock(Lock::None).open_device(&path) {
            Ok(device) => device,
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "not looked at");
                continue;
            }
        };
        if opened.size_bytes() >= MIN_DEVICE_BYTES {
            devices.push(opened);
        }
    }
    let examined = stream::iter(devices).map(Candidate::examine).buffered(DEVICES_AT_ONCE);
    Ok(group(examined.filter_map(ready).collect().await))
}

/// The files and block devices at `places`, and addresses among them, each once however many names it has.
///
/// # Errors
/// A place that does not exist, cannot be listed, or is of another kind.
pub fn device_paths<P: AsRef<Path>>(places: &[P]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for place in places {
        let place = place.as_ref();
        if is_address(place) {
            paths.push(place.to_owned());
            continue;
        }
        let what = || format!("cannot look for devices in {}", place.display());
        let metadata = std::fs::metadata(place).map_err(|error| Error::os(what(), &error))?;
        if metadata.is_file() || metadata.file_type().is_block_device() {
            paths.push(place.to_owned());
            continue;
        }
        if !metadata.is_dir() {
            // Opening a fifo would wait for a writer.
            let place = place.display();
            return Err(Error::Invalid(format!(
                "{place}: neither a directory nor a file nor a block device"
            )));
        }
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(place).map_err(|error| Error::os(what(), &error))?.take(MAX_ENTRIES) {
            let path = entry.map_err(|error| Error::os(what(), &error))?.path();
            // Follows symbolic links, of which /dev/disk is made.
            let Ok(metadata) = std::fs::metadata(&path) else { continue };
            let large_file = metadata.is_file() && metadata.len() >= MIN_DEVICE_BYTES;
            if large_file || metadata.file_type().is_block_device() {
                inside.push(path);
            }
        }
        inside.sort();
        paths.extend(inside);
    }
    let mut seen = HashSet::new();
    paths.retain(|path| seen.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    Ok(paths)
}

/// Opens one device for reading, as `scan` does.
pub fn open_device(path: &Path) -> Result<Arc<dyn Device>> {
    let opened = OpenOptions::read_only().open_device(path);
    opened.map_err(|error| Error::Os { what: path.display().to_string(), errno: error.errno() })
}

/// Groups devices by pool. Spares and cache devices, whose labels name no pool, are given to every pool: its
/// config knows them by guid.
pub fn group(candidates: Vec<Candidate>) -> Vec<FoundPool> {
    let mut pools: BTreeMap<Guid, Vec<Candidate>> = BTreeMap::new();
    let mut former: BTreeMap<Guid, BTreeMap<Guid, Candidate>> = BTreeMap::new();
    let mut auxiliary = Vec::new();
    for candidate in candidates {
        match (candidate.label.pool_guid, candidate.label.guid) {
            // It left the pool, or was to become a vdev, and no group of its pool with it was committed.
            (Some(pool), Some(guid)) if candidate.txg() == Txg::NONE => {
                tracing::debug!(path = %candidate.path().display(), "label of no group");
                former.entry(pool).or_default().insert(guid, candidate);
            }
            (Some(pool), Some(_)) if candidate.label.vdev_tree.is_some() => {
                pools.entry(pool).or_default().push(candidate);
            }
            (None, Some(_)) => auxiliary.push(candidate),
            _ => tracing::debug!(path = %candidate.path().display(), "label without pool or vdev"),
        }
    }
    let found = pools.into_iter().filter_map(|(guid, devices)| found_pool(guid, devices, &auxiliary));
    found.map(|found| FoundPool { former: former.remove(&found.guid).unwrap_or_default(), ..found }).collect()
}

fn found_pool(guid: Guid, devices: Vec<Candidate>, auxiliary: &[Candidate]) -> Option<FoundPool> {
    let newest = devices.iter().rev().max_by_key(|candidate| candidate.txg())?;
    let label = newest.label.clone();
    let tree = tree_of(&label, &devices)?;
    let name = label.name.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
    let mut candidates: BTreeMap<Guid, Candidate> = BTreeMap::new();
    let mut duplicates = Vec::new();
    for candidate in devices.into_iter().chain(auxiliary.iter().cloned()) {
        let Some(guid) = candidate.label.guid else { continue };
        match candidates.get_mut(&guid) {
            Some(known) if known.txg() < candidate.txg() => {
                let worse = std::mem::replace(known, candidate);
                duplicates.push(worse.path().to_owned());
            }
            Some(_) => duplicates.push(candidate.path().to_owned()),
            None => {
                candidates.insert(guid, candidate);
            }
        }
    }
    Some(FoundPool { guid, name: name?, label, tree, candidates, former: BTreeMap::new(), duplicates })
}

/// A root over the best description of each top-level vdev, with gaps for those that nothing is known of.
fn tree_of(label: &PoolConfig, devices: &[Candidate]) -> Option<VdevConfig> {
    let mut tops: BTreeMap<u64, (Txg, &VdevConfig)> = BTreeMap::new();
    for candidate in devices {
        let Some(top) = &candidate.label.vdev_tree else { continue };
        let Some(id) = top.id else { continue };
        let txg = candidate.txg();
        match tops.get(&id.get().into()) {
            Some((known, _)) if *known >= txg => {}
            _ => {
                tops.insert(id.get().into(), (txg, top));
            }
        }
    }
    let known = tops.keys().next_back().map_or(0, |last| last + 1);
    // Each costs memory, and labels may say anything.
    let limit = tops.len() as u64 + MAX_TOPS_WITHOUT_DEVICES;
    let count = label.vdev_children.unwrap_or(0).max(known).min(limit);
    let children = (0..count)
        .map(|id| match tops.get(&id) {
            _ if label.hole_array.contains(&id) => placeholder("hole", id),
            Some((_, top)) => Some((*top).clone()),
            None => placeholder("missing", id),
        })
        .collect::<Option<Vec<_>>>()?;
    Some(VdevConfig { children, ..placeholder("root", 0)? })
}

/// A vdev without a device.
fn placeholder(kind: &str, id: u64) -> Option<VdevConfig> {
    let mut config = Nvlist::new();
    config.push("type", kind);
    config.push("id", id);
    config.push("guid", 0u64);
    VdevConfig::parse(&config).ok()
}

#[cfg(test)]
mod tests {
    use device::MemoryDevice;

    use super::*;

    fn candidate(vdev_children: u64, id: u64) -> Candidate {
        let mut top = Nvlist::new();
        top.push("type", "file");
        top.push("id", id);
        top.push("guid", 7u64);
        top.push("ashift", 12u64);
        let mut label = Nvlist::new();
        for (name, value) in [
            ("version", 5000u64),
            ("state", 0),
            ("txg", 10),
            ("pool_guid", 3),
            ("top_guid", 7),
            ("guid", 7),
            ("vdev_children", vdev_children),
        ] {
            label.push(name, value);
        }
        label.push("name", "tank");
        label.push("vdev_tree", top);
        let label = PoolConfig::parse(label).expect("well-formed");
        let device = Arc::new(MemoryDevice::new("<memory>", 1 << 20));
        Candidate { device, label, other_guids: Vec::new() }
    }

    #[test]
    fn labels_are_not_believed_any_number_of_vdevs() {
        for (vdev_children, id) in [(u64::MAX, 0), (1 << 16, 0), (1, u64::from(u32::MAX) - 1)] {
            let found = group(vec![candidate(vdev_children, id)]);
            assert_eq!(found[0].tree.children.len() as u64, 1 + MAX_TOPS_WITHOUT_DEVICES);
        }
        assert_eq!(group(vec![candidate(90, 4)])[0].tree.children.len(), 90, "missing ones are listed");
    }
}
