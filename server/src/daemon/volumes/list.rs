//! The volumes of a pool that can be read, found by name without looking at the others; and those that cannot
//! be read until their keys are loaded, of which the size is not known.

use std::collections::HashMap;
use std::slice;

use ondisk::Guid;

use crate::block::{Protocol, Share, Shares};

/// A volume, or a snapshot of one, that can be read.
#[derive(Debug, Clone)]
pub struct Volume {
    pub(in crate::daemon) name: String,
    /// The number by which clients recognize it.
    pub(in crate::daemon) guid: Guid,
    /// Its size when it was found.
    pub(in crate::daemon) size_bytes: u64,
    pub(in crate::daemon) block_bytes: u32,
    /// How it is served, or why that is not understood.
    pub(in crate::daemon) shares: Result<Shares, String>,
}

impl Volume {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How a protocol serves it, if it does.
    pub(in crate::daemon) fn share(&self, protocol: Protocol) -> Option<Share> {
        let mut share = self.shares.as_ref().ok()?.through(protocol)?.clone();
        if self.name.contains('@') {
            (share.target, share.lun) = (None, 0);
        }
        Some(share)
    }
}

/// The volumes of a pool as of one look, each followed by its snapshots.
#[derive(Debug, Default)]
pub struct VolumeList {
    all: Vec<Volume>,
    /// Those whose keys are not loaded.
    locked: Vec<Volume>,
    by_name: HashMap<String, usize>,
}

impl VolumeList {
    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&Volume> {
        self.all.get(*self.by_name.get(name)?)
    }

    /// All of them.
    pub fn iter(&self) -> slice::Iter<'_, Volume> {
        self.all.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that cannot be read because their keys are not loaded. Their sizes are 0.
    pub(in crate::daemon) fn locked(&self) -> slice::Iter<'_, Volume> {
        self.locked.iter()
    }

    /// Whether it is one of those.
    pub(in crate::daemon) fn is_locked(&self, name: &str) -> bool {
        self.locked.iter().any(|volume| volume.name == name)
    }

    /// A list of volumes that can be read, and of those whose keys are not loaded.
    pub(in crate::daemon) fn new(all: Vec<Volume>, locked: Vec<Volume>) -> Self {
        let by_name = all.iter().enumerate().map(|(place, volume)| (volume.name().to_owned(), place));
        Self { by_name: by_name.collect(), all, locked }
    }
}
