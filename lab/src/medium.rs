//! The medium of a device or file, as the kernel reports it.

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The medium of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Medium {
    /// Its model, as it calls itself.
    #[serde(default)]
    pub model: Option<String>,
    /// Bytes of the smallest piece that it can be asked for.
    #[serde(default)]
    pub sector: Option<u64>,
    /// Bytes that it writes in one piece.
    pub unit: Option<u64>,
    /// Whether it turns.
    pub turns: Option<bool>,
    /// Whether it is a guest's disk.
    pub is_virtual: bool,
    /// Whether each write goes through to its medium.
    pub is_writethrough: bool,
    /// Whether a layer of it encrypts (dm-crypt, as LUKS does).
    #[serde(default, skip_serializing_if = "is_not")]
    pub is_encrypted: bool,
    /// Of a file: the kind of filesystem that it lies on.
    pub filesystem: Option<String>,
    /// A model that it plays.
    pub modelled: Option<String>,
}

fn is_not(it: &bool) -> bool {
    !*it
}

/// Devices below each other that are looked at.
const MOST_LAYERS: usize = 16;

/// SCSI vendor names of guests' disks.
const VIRTUAL_VENDORS: [&str; 5] = ["QEMU", "VMware", "VBOX", "Msft", "Virtual"];

/// The kernel's facts about a block device.
pub(crate) fn sysfs(path: &Path) -> Option<PathBuf> {
    let metadata = fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_block_device())?;
    of_number(metadata.rdev())
}

/// The same of the device with that number.
fn of_number(device: u64) -> Option<PathBuf> {
    fs::canonicalize(format!("/sys/dev/block/{}:{}", major(device), minor(device))).ok()
}

/// Linux's number of a driver, out of that of a device.
pub(crate) fn major(device: u64) -> u64 {
    device >> 8 & 0xfff | device >> 32 & !0xfff
}

/// The number within the driver.
pub(crate) fn minor(device: u64) -> u64 {
    device & 0xff | device >> 12 & !0xff
}

/// Whether a filesystem of this kind is served by a process: `fuse`, `fuseblk`, `fuse.zfs`.
fn is_fuse(kind: &str) -> bool {
    kind.starts_with("fuse")
}

/// The prefix of Linux's names of zvols: `zd0`, `zd16p1`.
const ZVOL: &str = "zd";

impl Medium {
    /// What it lies on that never writes in place, in words, where that is so: a filesystem, or a volume of a
    /// pool.
    pub fn copies_on_write(&self) -> Option<String> {
        let is_number =
            |rest: &str| !rest.is_empty() && rest.bytes().all(|it| it.is_ascii_digit() || it == b'p');
        match (self.filesystem.as_deref(), self.model.as_deref()) {
            (Some(kind), _) => {
                let name = kind.strip_prefix("fuse.").unwrap_or(kind);
                let is_so = ["btrfs", "bcachefs", "cenote"].contains(&name) || name.starts_with("zfs");
                is_so.then(|| format!("a file on {kind}"))
            }
            // Zvols have no model, and are called by their name.
            (None, Some(name)) if name.strip_prefix(ZVOL).is_some_and(is_number) => {
                Some(format!("{name}, a volume of a pool of OpenZFS"))
            }
            _ => None,
        }
    }

    /// That of a device, or of a file or directory, with the device below its filesystem where that is one.
    pub fn of(path: &Path) -> Self {
        if let Some(device) = sysfs(path) {
            return Self::at(&device);
        }
        let Ok(metadata) = fs::metadata(path) else { return Self::default() };
        let mount = fs::canonicalize(path).ok().and_then(|path| {
            // It holds bytes, of any encoding.
            let mounts = fs::read("/proc/self/mountinfo").ok()?;
            mount_of(&String::from_utf8_lossy(&mounts), &path)
        });
        // Filesystems with several devices, as btrfs, have numbers that are no device's.
        let source = || sysfs(&mount.as_ref()?.source);
        let below = of_number(metadata.dev()).or_else(source);
        let below = below.map(|device| Self::at(&device)).unwrap_or_default();
        let filesystem = mount.map(|mount| mount.kind);
        // A FUSE server names its preferred request size, which is no unit of a medium.
        let is_of_its_own = !filesystem.as_deref().is_some_and(is_fuse);
        // Pools see the filesystem, which does not pass on how its device takes writes.
        Self {
            unit: is_of_its_own.then(|| metadata.blksize()),
            filesystem,
            turns: None,
            is_virtual: false,
            is_writethrough: false,
            ..below
        }
    }

    /// The kernel's facts about a block device, by its directory.
    fn at(device: &Path) -> Self {
        // A partition has the queue of its disk.
        let queue = [device.join("queue"), device.join("../queue")].into_iter().find(|queue| queue.is_dir());
        let disk = queue.as_ref().and_then(|queue| queue.parent()).unwrap_or(device);
        let line = |path: PathBuf| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let read = |name: &str| line(queue.as_ref()?.join(name));
        let name = device.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self {
            model: line(disk.join("device/model")).filter(|model| !model.is_empty()).or(Some(name.clone())),
            sector: read("logical_block_size").and_then(|text| text.parse().ok()),
            unit: read("physical_block_size").and_then(|text| text.parse().ok()),
            turns: read("rotational").map(|text| text == "1"),
            is_virtual: any_layer(device, MOST_LAYERS, &is_of_guest),
            is_encrypted: any_layer(device, MOST_LAYERS, &is_crypt),
            is_writethrough: read("write_cache").is_some_and(|text| text == "write through"),
            ..Self::default()
        }
    }
}

/// Whether `is` is so of a device, or of one that it is made of.
fn any_layer(device: &Path, left: usize, is: &dyn Fn(&Path) -> bool) -> bool {
    let below = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let mut below = below.filter_map(|entry| fs::canonicalize(entry.path()).ok());
    is(device) || left > 0 && below.any(|device| any_layer(&device, left - 1, is))
}

/// Whether it is a disk that a hypervisor makes: virtio's (`vda`), Xen's, or a SCSI disk (`sda`) that says
/// so, or hangs on virtio-scsi.
fn is_of_guest(device: &Path) -> bool {
    let name = device.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.starts_with("vd") || name.starts_with("xvd") {
        return true;
    }
    if !name.starts_with("sd") {
        return false;
    }
    let disk = [device.to_owned(), device.join("..")].into_iter().find(|disk| disk.join("device").is_dir());
    let vendor =
        disk.and_then(|disk| fs::read_to_string(disk.join("device/vendor")).ok()).unwrap_or_default();
    let is_known = VIRTUAL_VENDORS.iter().any(|known| vendor.trim_start().starts_with(known));
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    let mut buses = device.components().filter_map(|part| part.as_os_str().to_str()?.strip_prefix("virtio"));
    is_known || buses.any(is_number)
}

/// Whether it is one of dm-crypt.
fn is_crypt(device: &Path) -> bool {
    fs::read_to_string(device.join("dm/uuid")).is_ok_and(|uuid| uuid.starts_with("CRYPT-"))
}

/// Where a filesystem comes from.
#[derive(Debug, PartialEq)]
struct Mount {
    /// Its kind.
    kind: String,
    /// The device, or whatever else it is made of.
    source: PathBuf,
}

/// The mount that a path lies on, out of the kernel's list of all: the one with the longest place above it,
/// of those at one place the last, which covers the others. `path` has no links.
///
/// Source: Linux `proc_pid_mountinfo(5)`.
fn mount_of(mounts: &str, path: &Path) -> Option<Mount> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let place = PathBuf::from(unescaped(before.split(' ').nth(4)?));
        let mut after = after.split(' ');
        let (kind, source) = (after.next()?.to_owned(), unescaped(after.next()?).into());
        path.starts_with(&place).then(|| (place.components().count(), Mount { kind, source }))
    };
    mounts.lines().filter_map(mount).max_by_key(|(length, _)| *length).map(|(_, mount)| mount)
}

/// A name in which the kernel wrote blanks and the like as `\040`.
fn unescaped(name: &str) -> String {
    let mut pieces = name.split('\\');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&piece[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(piece);
            }
        }
    }
    plain
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(filesystem) = &self.filesystem {
            write!(f, "{filesystem} on ")?;
        }
        f.write_str(self.model.as_deref().unwrap_or("an unknown device"))?;
        if self.is_encrypted {
            f.write_str(", encrypted")?;
        }
        match self.turns {
            Some(true) => f.write_str(", which turns")?,
            Some(false) => f.write_str(", which does not turn")?,
            None => {}
        }
        if let Some(sector) = self.sector {
            write!(f, ", sectors of {sector} bytes")?;
        }
        self.unit.map_or(Ok(()), |unit| write!(f, ", {unit} written in one piece"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lies_on_a_filesystem() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let medium = Medium::of(file.path());
        assert!(medium.unit.is_some_and(u64::is_power_of_two), "{medium:?}");
        assert!(medium.filesystem.is_some(), "{medium:?}");
        assert_eq!(Medium::of(Path::new("/no/such/device")), Medium::default());
    }

    #[test]
    fn what_copies_on_write_is_known_by_its_filesystem_or_its_name() {
        let of = |filesystem: Option<&str>, model: &str| {
            let (filesystem, model) = (filesystem.map(str::to_owned), Some(model.to_owned()));
            Medium { filesystem, model, ..Medium::default() }.copies_on_write()
        };
        for kind in ["zfs", "btrfs", "bcachefs", "fuse.cenote", "fuse.zfs", "fuse.zfs-fuse"] {
            assert_eq!(of(Some(kind), "sda"), Some(format!("a file on {kind}")));
        }
        assert!(
            of(None, "zd16").is_some_and(|it| it.contains("volume of a pool")) && of(None, "zd0p1").is_some()
        );
        assert_eq!(
            [of(Some("ext4"), "zd0"), of(Some("fuse.sshfs"), "sda"), of(None, "zdisk")],
            [None, None, None]
        );
        assert!(is_fuse("fuse.cenote") && is_fuse("fuse") && !is_fuse("ext4"));
    }

    #[test]
    fn guests_disks_and_layers_that_encrypt_are_known_by_what_the_kernel_tells() {
        let root = tempfile::tempdir().unwrap();
        let device = |path: &str, files: &[(&str, &str)]| {
            let device = root.path().join(path);
            for (name, text) in files.iter().chain(&[("queue/rotational", "0\n")]) {
                let file = device.join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            device
        };
        let through = ("queue/write_cache", "write through\n");
        let vda = device("devices/pci/virtio1/block/vda", &[through]);
        let scsi =
            device("devices/pci/virtio2/host2/0:0:0:0/block/sda", &[through, ("device/vendor", "ATA\n")]);
        let emulated = device("devices/pci/ata1/block/sdb", &[through, ("device/vendor", "QEMU    \n")]);
        let real = device(
            "devices/pci/ata2/block/sdc",
            &[("queue/write_cache", "write back\n"), ("device/vendor", "ATA     \n")],
        );
        let of = |device: &Path| {
            let medium = Medium::at(device);
            (medium.is_virtual, medium.is_writethrough, medium.is_encrypted)
        };
        for guest in [&vda, &scsi, &emulated] {
            assert_eq!(of(guest), (true, true, false), "{guest:?}");
        }
        assert_eq!(of(&real), (false, false, false));
        // A volume of LVM on LUKS on a guest's disk.
        let crypt = device("devices/virtual/block/dm-0", &[("dm/uuid", "CRYPT-LUKS2-1234-root\n"), through]);
        let lvm = device("devices/virtual/block/dm-1", &[("dm/uuid", "LVM-5678\n"), through]);
        for (above, below) in [(&crypt, &vda), (&lvm, &crypt)] {
            fs::create_dir_all(above.join("slaves")).unwrap();
            std::os::unix::fs::symlink(below, above.join("slaves/below")).unwrap();
        }
        assert_eq!([of(&crypt), of(&lvm)], [(true, true, true); 2]);
        assert!(Medium::at(&lvm).to_string().contains("encrypted"));
    }

    #[test]
    fn a_filesystem_is_found_by_where_it_is_mounted_and_not_by_its_number() {
        // The numbers of btrfs are those of its subvolumes, which are not in the list.
        let mounts = "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n\
                      40 22 0:35 /@pool /srv/my\\040pool rw,noatime shared:9 - btrfs /dev/sda1 \
                      rw,subvol=/@pool\n\
                      41 22 0:40 / /srv rw - tmpfs none rw\n\
                      42 22 0:41 / /srv rw - xfs /dev/sdb rw\n";
        let kind = |path: &str| mount_of(mounts, Path::new(path)).map(|mount| mount.kind);
        assert_eq!(kind("/srv/my pool/device").as_deref(), Some("btrfs"));
        assert_eq!(kind("/srv/my pool, other/device").as_deref(), Some("xfs"));
        assert_eq!(kind("/etc/passwd").as_deref(), Some("ext4"));
        let source = mount_of(mounts, Path::new("/srv/my pool")).map(|mount| mount.source);
        assert_eq!(source.as_deref(), Some(Path::new("/dev/sda1")));
        assert_eq!(unescaped("a\\x\\134\\04"), "a\\x\\\\04");
    }
}
