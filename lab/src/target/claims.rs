//! Files, devices and exports that the user named: which of them are written, with whose consent, and that no
//! other program takes them meanwhile.

use std::cell::OnceCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use super::in_use::{self, Claim};
use crate::created_files;
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::fio::Endpoint;

/// What is held of what the user named.
pub(super) struct Claims<'a> {
    experiment: &'a Experiment,
    /// Whether what files and devices hold may be overwritten.
    pub may_overwrite: bool,
    /// Whether workloads write to a named file or device; traces are read to find out.
    overwrites: OnceCell<bool>,
    /// Files and devices that are held because workloads write to them.
    taken: BTreeMap<PathBuf, Claim>,
    /// The lab's directories inside named ones, which no other lab uses meanwhile.
    held: BTreeMap<PathBuf, File>,
}

impl<'a> Claims<'a> {
    /// None as yet of an experiment's.
    pub(super) fn of(experiment: &'a Experiment) -> Self {
        Self {
            experiment,
            may_overwrite: experiment.target.may_overwrite(),
            overwrites: OnceCell::new(),
            taken: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Whether workloads write to what is named.
    pub(super) fn overwrites(&self) -> bool {
        *self.overwrites.get_or_init(|| self.experiment.design().overwrites())
    }

    /// Whether a named file or device may be written. All else belongs to the lab.
    pub(super) fn may_write(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::Directory(_)) || self.overwrites()
    }

    /// Refuses to write to an export or volume without consent, where workloads write to it. `directory` is
    /// that of the results.
    pub(super) fn require_consent(&self, name: &str, directory: &Path) -> Result<()> {
        if !self.overwrites() {
            return Ok(());
        }
        let fault = in_use::fault_of_export(name, self.may_overwrite, Some(directory))?;
        fault.map_or(Ok(()), |what| Err(Error::Experiment(what)))
    }

    /// Whether a file or device is held.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.taken.contains_key(path)
    }

    /// Takes a file or device to write to, or what is there now.
    pub(super) fn take(&mut self, path: &Path, directory: &Path) -> Result<()> {
        let claim = in_use::claim(path, self.may_overwrite, directory)?;
        self.taken.insert(path.to_owned(), claim);
        Ok(())
    }

    /// Holds a directory of the lab's inside a named one.
    pub(super) fn hold(&mut self, own: PathBuf) -> Result<()> {
        if let Entry::Vacant(entry) = self.held.entry(own) {
            let held = created_files::hold(entry.key())?;
            entry.insert(held);
        }
        Ok(())
    }

    /// Lets go of a directory, which is removed next: its lock, where it was held.
    pub(super) fn let_go(&mut self, own: &Path) -> Option<File> {
        self.held.remove(own)
    }

    /// Lets go of files and devices.
    pub(super) fn release(&mut self) {
        self.taken.clear();
    }

    /// Lets go of directories.
    pub(super) fn release_directories(&mut self) {
        self.held.clear();
    }
}

/// What was filled, so that it is filled once.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// Whether the raw device was.
    pub raw: bool,
    /// Named files, devices and exports.
    pub named: BTreeSet<String>,
    /// Directories where all files of a workload were made.
    pub files: BTreeSet<PathBuf>,
}
