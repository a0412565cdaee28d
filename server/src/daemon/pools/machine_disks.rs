//! The disks of the machine: what they are, who has them, and what lies on them.
//!
//! What a disk is stands in `/sys/block`. Who has it is asked in several places: labels of pools, the lists
//! of mounts and of swap, and what the kernel made of it (device mapper, RAID). What lies on it is known by
//! signatures, as it is when a pool is made ([`super::disks`], which looks again, under a lock, before
//! anything is written).
//!
//! Disks are looked at beside each other, so that a slow one holds up only its own line.

mod smart;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::signatures::Signature;
use device::{Device, OpenOptions};
use futures_util::future::join_all;
use ondisk::Guid;

use super::disks::{signature_of, user_of};
use crate::api::{ApiError, DiskEntry, DiskPartition, ListDisks};
use crate::daemon::Daemon;
use crate::fuse::unescaped;

/// Where the kernel lists block devices.
const SYS_BLOCK: &str = "/sys/block";
/// Where names are that stay the same, the better ones first.
const BY_ID: &str = "/dev/disk/by-id";
/// The most disks, and the most partitions of one.
const MAX_DISKS: usize = 1024;
const MAX_PARTITIONS: usize = 128;
/// The unit of sizes in `/sys`, in bytes.
const SYS_SECTOR: u64 = 512;
/// The longest text of a file in `/sys` that is shown, in characters.
const MAX_TEXT: usize = 128;
/// Devices that no pool is made of: memory, drives for discs and tapes.
const NOT_DISKS: [&str; 5] = ["ram", "zram", "sr", "fd", "st"];

/// What programs of the machine do with block devices.
#[derive(Debug, Default)]
struct Uses {
    /// Where devices are mounted or used otherwise, by their paths.
    by_path: HashMap<PathBuf, String>,
    open_pools: Vec<(Guid, String)>,
}

/// Who has a device, or what lies on it.
#[derive(Debug, Default)]
struct Held {
    /// In words.
    by: Option<String>,
    pool: Option<String>,
    /// A program uses it now.
    is_busy: bool,
    /// It has a table of partitions.
    has_table: bool,
}

impl Daemon {
    /// The disks of the machine. Blocks the thread where their health is asked for.
    ///
    /// # Errors
    /// The system does not list them.
    pub async fn list_disks(&self, request: ListDisks) -> Result<Vec<DiskEntry>, ApiError> {
        let failed = |error| ApiError::failed(format!("cannot list disks: {SYS_BLOCK}: {error}"));
        let mut names: Vec<String> = fs::read_dir(SYS_BLOCK)
            .map_err(failed)?
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_disk_name(name))
            .take(MAX_DISKS)
            .collect();
        names.sort_by_key(|name| {
            (name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(), name.len(), name.clone())
        });
        let mut uses = Uses::of_machine(self.guids());
        for attached in self.list_attached(crate::api::ListAttached {})? {
            let what = format!("the block device of the volume '{}'", attached.volume);
            uses.by_path.insert(attached.node, what);
        }
        let ids = ids();
        let looked = names.iter().map(|name| look(name, &uses, &ids));
        let mut disks: Vec<DiskEntry> = join_all(looked).await.into_iter().flatten().collect();
        if request.smart {
            smart::ask(&mut disks);
        }
        Ok(disks)
    }
}

fn is_disk_name(name: &str) -> bool {
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
    !NOT_DISKS.contains(&kind)
}

impl Uses {
    fn of_machine(open_pools: Vec<(Guid, String)>) -> Self {
        let mut by_path = HashMap::new();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for line in mounts.lines() {
            let mut words = line.split(' ').map(listed);
            let (Some(device), Some(at)) = (words.next(), words.next()) else { continue };
            if device.starts_with("/dev") {
                by_path.entry(canonical(&device)).or_insert_with(|| format!("mounted at {}", at.display()));
            }
        }
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        for line in swaps.lines().skip(1) {
            if let Some(device) = line.split_whitespace().next() {
                by_path.insert(canonical(&listed(device)), "used as swap".to_owned());
            }
        }
        Self { by_path, open_pools }
    }
}

/// A path as the kernel lists it.
fn listed(word: &str) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescaped(word)))
}

fn canonical(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Names of devices that stay the same, by their paths. A name by the maker's is better than a number.
fn ids() -> HashMap<PathBuf, PathBuf> {
    let rank = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let order = ["ata-", "nvme-", "scsi-", "usb-", "virtio-", "wwn-"];
        (order.iter().position(|kind| name.starts_with(kind)).unwrap_or(order.len()), name.len(), name)
    };
    let mut found: HashMap<PathBuf, PathBuf> = HashMap::new();
    for entry in fs::read_dir(BY_ID).into_iter().flatten().flatten().take(16 * MAX_DISKS) {
        let (name, device) = (entry.path(), canonical(&entry.path()));
        match found.get(&device) {
            Some(other) if rank(other) <= rank(&name) => {}
            _ => drop(found.insert(device, name)),
        }
    }
    found
}

/// A file of `/sys`, as a short text.
fn text(place: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(place.join(file)).ok()?;
    let text: String = text.trim().chars().filter(|letter| !letter.is_control()).take(MAX_TEXT).collect();
    (!text.is_empty()).then_some(text)
}

fn number(place: &Path, file: &str) -> u64 {
    text(place, file).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A disk; nothing for one without a medium.
async fn look(name: &str, uses: &Uses, ids: &HashMap<PathBuf, PathBuf>) -> Option<DiskEntry> {
    let place = Path::new(SYS_BLOCK).join(name);
    let path = Path::new("/dev").join(name.replace('!', "/"));
    let size = number(&place, "size").saturating_mul(SYS_SECTOR);
    if size == 0 || !path.exists() {
        return None;
    }
    let mut names: Vec<String> = fs::read_dir(&place)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("partition").exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .take(MAX_PARTITIONS)
        .collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    let held = join_all(names.iter().map(|name| {
        let (place, path) = (place.join(name), Path::new("/dev").join(name.replace('!', "/")));
        async move { (number(&place, "size"), hold(&place, &path, uses).await, path) }
    }))
    .await;
    let own = hold(&place, &path, uses).await;
    let mut is_busy = own.is_busy;
    let (mut in_use, mut pool) = (own.by, own.pool);
    let mut partitions = Vec::new();
    for (sectors, held, path) in held {
        is_busy |= held.is_busy;
        // The disk as a whole is used where one of its partitions is.
        in_use = in_use.or_else(|| held.by.as_ref().map(|by| format!("{}: {by}", path.display())));
        pool = pool.or(held.pool);
        partitions.push(DiskPartition { path, size: sectors.saturating_mul(SYS_SECTOR), in_use: held.by });
    }
    if in_use.is_none() && !partitions.is_empty() {
        in_use = Some(format!("{} partitions without anything known in them", partitions.len()));
    } else if in_use.is_none() && own.has_table {
        in_use = Some("an empty table of partitions".to_owned());
    }
    let sector = |file: &str| u32::try_from(number(&place, file)).unwrap_or(0);
    let vendor = text(&place, "device/vendor").filter(|vendor| !vendor.starts_with("0x") && vendor != "ATA");
    let model = match (vendor, text(&place, "device/model").or_else(|| text(&place, "dm/name"))) {
        (Some(vendor), Some(model)) => Some(format!("{vendor} {model}")),
        (vendor, model) => model.or(vendor),
    };
    Some(DiskEntry {
        by_id: ids.get(&canonical(&path)).cloned(),
        model,
        serial: text(&place, "device/serial").or_else(|| text(&place, "serial")),
        size,
        sector: sector("queue/logical_block_size"),
        physical_sector: sector("queue/physical_block_size"),
        rotational: number(&place, "queue/rotational") == 1,
        removable: number(&place, "removable") == 1,
        read_only: number(&place, "ro") == 1,
        in_use,
        pool,
        may_be_forced: !is_busy,
        partitions,
        smart: None,
        path,
    })
}

/// Who has a device, or what lies on it.
async fn hold(place: &Path, path: &Path, uses: &Uses) -> Held {
    if let Some(by) = uses.by_path.get(&canonical(path)) {
        return Held { by: Some(by.clone()), is_busy: true, ..Held::default() };
    }
    let holders = fs::read_dir(place.join("holders")).into_iter().flatten().flatten();
    let holders: Vec<String> =
        holders.filter_map(|entry| entry.file_name().into_string().ok()).take(4).collect();
    if !holders.is_empty() {
        let by = format!("used by {}", holders.join(", "));
        return Held { by: Some(by), is_busy: true, ..Held::default() };
    }
    let device: Arc<dyn Device> = match OpenOptions::read_only().open(path) {
        Ok(device) => Arc::new(device),
        Err(error) => {
            let by = format!("it cannot be read: {}", error.cause);
            return Held { by: Some(by), is_busy: true, ..Held::default() };
        }
    };
    if let Some(user) = user_of(Arc::clone(&device), &uses.open_pools).await {
        let pool = user.pool.clone();
        return Held { by: Some(user.how), pool, is_busy: !user.force_helps, ..Held::default() };
    }
    match signature_of(&*device).await {
        Some(Signature { is_table: true, .. }) => Held { has_table: true, ..Held::default() },
        Some(Signature { kind, .. }) => {
            Held { by: Some(format!("contains a filesystem of type '{kind}'")), ..Held::default() }
        }
        None => Held::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_told_from_memory_and_discs() {
        for name in ["sda", "nvme0n1", "vda", "loop7", "dm-3", "md127", "mmcblk0"] {
            assert!(is_disk_name(name), "{name}");
        }
        for name in ["ram0", "zram1", "sr0", "fd0"] {
            assert!(!is_disk_name(name), "{name}");
        }
    }

    #[test]
    fn the_disks_of_this_machine_are_listed() {
        let daemon = Arc::new(Daemon::with_cache(64 << 20));
        let disks = device::block_on(daemon.list_disks(ListDisks::default())).unwrap();
        // One that has a size and a node is not left out.
        for entry in fs::read_dir(SYS_BLOCK).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let node = Path::new("/dev").join(&name);
            if is_disk_name(&name) && number(&entry.path(), "size") > 0 && node.exists() {
                assert!(disks.iter().any(|disk| disk.path == node), "{name}");
            }
        }
        for disk in disks {
            assert!(disk.size > 0 && disk.path.starts_with("/dev"), "{disk:?}");
            assert!(disk.partitions.iter().all(|partition| partition.path.starts_with("/dev")), "{disk:?}");
        }
    }
}
