//! Which files and volumes paths mean: files by filesystem and number, as the daemon knows them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use server::api::{ListAttached, ListMounts, ListVolumes};
use server::fuse::ZFS_DIRECTORY_INODE;

use crate::client;

/// Files that are asked for at once.
pub const MOST_AT_ONCE: usize = 1024;
/// Files of snapshots have numbers from here on, and so have `.zfs` and `.zfs/snapshot`: what can be written
/// has lower ones.
const FIRST_OF_SNAPSHOTS: u64 = ZFS_DIRECTORY_INODE - 2;

/// A file or volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The filesystem or volume.
    pub dataset: String,
    /// The number of the file; none for a volume.
    pub file: Option<u64>,
    /// The path by which it was found, or the name of the volume.
    pub path: PathBuf,
}

impl Subject {
    /// The pool that it is in.
    pub fn pool(&self) -> &str {
        self.dataset.split('/').next().unwrap_or_default()
    }

    /// For messages.
    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// The files and volumes that paths mean.
#[derive(Debug, Default)]
pub struct Found {
    /// Each of them once.
    pub subjects: Vec<Subject>,
    /// What could not be looked at.
    pub complaints: Vec<String>,
    seen: HashSet<(String, Option<u64>)>,
    /// Filesystems by the device numbers of their mounts.
    mounts: HashMap<u64, String>,
}

impl Found {
    /// Looks at all paths.
    ///
    /// # Errors
    /// No daemon can be asked. What is wrong with a path is a complaint.
    pub fn look(&mut self, paths: &[PathBuf], one_filesystem: bool) -> Result<()> {
        let mounts = client::call_running(&ListMounts {})?.unwrap_or_default();
        for mount in mounts.into_iter().filter(|mount| !mount.dataset.contains('@')) {
            if let Ok(root) = fs::metadata(&mount.mountpoint) {
                self.mounts.insert(root.dev(), mount.dataset);
            }
        }
        for path in paths {
            if let Err(error) = self.visit(path, one_filesystem) {
                self.complaints.push(format!("{error:#}"));
            }
        }
        Ok(())
    }

    fn visit(&mut self, path: &Path, one_filesystem: bool) -> Result<()> {
        let shown = path.display();
        let found = match fs::metadata(path) {
            Ok(found) => found,
            Err(error) => match self.add_volume(path, None)? {
                true => return Ok(()),
                false => return Err(error).with_context(|| format!("cannot look at '{shown}'")),
            },
        };
        if found.file_type().is_block_device() {
            return match self.add_volume(path, Some(&fs::canonicalize(path)?))? {
                true => Ok(()),
                false => Err(anyhow!("cannot look at '{shown}': it is no volume of an open pool")),
            };
        }
        if !self.mounts.contains_key(&found.dev()) {
            return match self.add_volume(path, None)? {
                true => Ok(()),
                false => Err(anyhow!("cannot look at '{shown}': it is not on a filesystem of an open pool")),
            };
        }
        if found.is_file() {
            self.add_file(path, &found);
        } else if found.is_dir() {
            self.walk(path.to_owned(), one_filesystem.then(|| found.dev()));
        }
        Ok(())
    }

    /// All files in a directory, at any depth; with `device`, only those of that filesystem.
    fn walk(&mut self, directory: PathBuf, device: Option<u64>) {
        let mut waiting = vec![directory];
        while let Some(directory) = waiting.pop() {
            let entries = match fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) => {
                    self.complaints.push(format!("cannot list '{}': {error}", directory.display()));
                    continue;
                }
            };
            for entry in entries.flatten() {
                // A file may be gone by now.
                let Ok(found) = entry.metadata() else { continue };
                let is_meant = self.mounts.contains_key(&found.dev())
                    && device.is_none_or(|device| device == found.dev())
                    && found.ino() < FIRST_OF_SNAPSHOTS;
                match () {
                    () if !is_meant => {}
                    () if found.is_file() => self.add_file(&entry.path(), &found),
                    () if found.is_dir() => waiting.push(entry.path()),
                    () => {}
                }
            }
        }
    }

    fn add_file(&mut self, path: &Path, found: &Metadata) {
        let Some(dataset) = self.mounts.get(&found.dev()).cloned() else { return };
        if found.ino() < FIRST_OF_SNAPSHOTS {
            self.add(Subject { dataset, file: Some(found.ino()), path: path.to_owned() });
        } else {
            self.complaints.push(format!("'{}' is in a snapshot, which cannot be changed", path.display()));
        }
    }

    /// The volume of this name, or with this device.
    fn add_volume(&mut self, path: &Path, device: Option<&Path>) -> Result<bool> {
        let name = match device {
            Some(device) => {
                let attached = client::call_running(&ListAttached {})?.unwrap_or_default();
                attached.into_iter().find(|one| one.node == device).map(|one| one.volume)
            }
            None => {
                let volumes = client::call_running(&ListVolumes {})?.unwrap_or_default();
                volumes.into_iter().map(|one| one.name).find(|name| Path::new(name) == path)
            }
        };
        let Some(dataset) = name.filter(|name| !name.contains('@')) else { return Ok(false) };
        self.add(Subject { dataset, file: None, path: path.to_owned() });
        Ok(true)
    }

    fn add(&mut self, subject: Subject) {
        if self.seen.insert((subject.dataset.clone(), subject.file)) {
            self.subjects.push(subject);
        }
    }

    /// What was found, with its numbers, by dataset.
    pub fn by_dataset(&self) -> BTreeMap<&str, Vec<(usize, &Subject)>> {
        let mut all: BTreeMap<&str, Vec<(usize, &Subject)>> = BTreeMap::new();
        for (number, subject) in self.subjects.iter().enumerate() {
            all.entry(&subject.dataset).or_default().push((number, subject));
        }
        all
    }
}
