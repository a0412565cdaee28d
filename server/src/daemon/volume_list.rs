//! The volumes of a pool that can be read, found by name without looking at the others.

use std::collections::HashMap;
use std::slice;

use super::volumes::Volume;

/// The volumes of a pool as of one look, each followed by its snapshots.
#[derive(Debug, Default)]
pub struct VolumeList {
    all: Vec<Volume>,
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
}

impl From<Vec<Volume>> for VolumeList {
    fn from(all: Vec<Volume>) -> Self {
        let by_name = all.iter().enumerate().map(|(place, volume)| (volume.name().to_owned(), place));
        Self { by_name: by_name.collect(), all }
    }
}
