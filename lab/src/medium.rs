//! What a device, or a file, lies on, as the kernel tells it.

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a device lies on.
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
    /// Of a file: the kind of filesystem that it lies on.
    pub filesystem: Option<String>,
    /// A model that it plays.
    pub modelled: Option<String>,
}

/// What the kernel tells of a block device.
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

impl Medium {
    /// That of a device, or of a file or directory, with the device below its filesystem where that is one.
    pub fn of(path: &Path) -> Self {
        if let Some(device) = sysfs(path) {
            return Self::at(&device);
        }
        let Ok(metadata) = fs::metadata(path) else { return Self::default() };
        let below = of_number(metadata.dev()).map(|device| Self::at(&device)).unwrap_or_default();
        let filesystem = filesystem_of(metadata.dev());
        // Pools see the filesystem, which does not pass on how its device takes writes.
        Self {
            unit: Some(metadata.blksize()),
            filesystem,
            turns: None,
            is_virtual: false,
            is_writethrough: false,
            ..below
        }
    }

    /// What the kernel tells of a block device, by its directory.
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
            is_virtual: name.starts_with("vd") || name.starts_with("xvd"),
            is_writethrough: read("write_cache").is_some_and(|text| text == "write through"),
            ..Self::default()
        }
    }
}

/// The kind of the filesystem with this device number, as the kernel lists its mounts.
fn filesystem_of(device: u64) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let wanted = format!("{}:{}", major(device), minor(device));
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    line.split(" - ").nth(1)?.split(' ').next().map(str::to_owned)
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(filesystem) = &self.filesystem {
            write!(f, "{filesystem} on ")?;
        }
        f.write_str(self.model.as_deref().unwrap_or("a device that nothing is known of"))?;
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
        assert_eq!(Medium::of(Path::new("/no/such/device")), Medium::default());
    }
}
