//! The lab's directories within that of an experiment's results.

use std::fs;
use std::path::{Path, PathBuf};

use crate::created_files;
use crate::error::Result;

/// The directory of devices that play a medium.
pub(super) const MODELLED: &str = "modelled";
/// The file or directory by which the raw device is measured.
pub(super) const RAW: &str = "raw";

/// Where the files of an experiment are.
#[derive(Debug)]
pub(super) struct Folders {
    /// The directory of results.
    pub results: PathBuf,
    /// The devices of pools, in that.
    pub devices: PathBuf,
    /// Where filesystems are mounted, in that.
    pub mounts: PathBuf,
}

impl Folders {
    /// Of an experiment whose results are in `directory`.
    pub(super) fn of(directory: &Path) -> Self {
        Self {
            results: directory.to_owned(),
            devices: directory.join("devices"),
            mounts: directory.join("mnt"),
        }
    }

    /// Where the pools' devices are: those that play a medium have a directory for each.
    pub(super) fn of_devices(&self) -> Vec<PathBuf> {
        let models = fs::read_dir(self.devices.join(MODELLED)).into_iter().flatten().flatten();
        std::iter::once(self.devices.clone()).chain(models.map(|entry| entry.path())).collect()
    }
}

/// The directory of devices that play a medium, for the daemon that slows them down, made where it does not
/// exist. `directory` is the experiment's.
pub fn modelled_devices(directory: &Path) -> Result<PathBuf> {
    let devices = Folders::of(directory).devices;
    created_files::make(&devices)?;
    created_files::take_directory(&devices, MODELLED)
}
