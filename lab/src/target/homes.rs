//! Homes of variants: the volume or filesystem of each, and the pools and disks below them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::Placement;
use crate::fio::Endpoint;
use crate::setting::Settings;

/// Where a variant lives.
#[derive(Debug, Clone)]
pub(super) struct Home {
    /// The settings of its server.
    pub server: Settings,
    /// Its pool.
    pub pool: String,
    /// Its volume or filesystem.
    pub dataset: String,
    /// Where fio reaches it.
    pub endpoint: Endpoint,
}

/// The volumes and filesystems that were made.
#[derive(Debug, Default)]
pub(super) struct Homes {
    all: BTreeMap<Placement, Home>,
    /// Numbers that were given to pools, datasets and guests.
    numbered: usize,
}

impl Homes {
    /// A number that was not given before, so that no name is used twice.
    pub(super) fn number(&mut self) -> usize {
        self.numbered += 1;
        self.numbered
    }

    /// That of a placement, where it was made.
    pub(super) fn get(&self, lodging: &Placement) -> Option<&Home> {
        self.all.get(lodging)
    }

    /// Keeps one, in the place of what was known of it.
    pub(super) fn insert(&mut self, lodging: Placement, home: Home) {
        self.all.insert(lodging, home);
    }

    /// Forgets one, which is removed next.
    pub(super) fn remove(&mut self, lodging: &Placement) -> Option<Home> {
        self.all.remove(lodging)
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Home> {
        self.all.values()
    }

    /// Those of a variant.
    pub(super) fn of_variant(&self, variant: &str) -> Vec<Placement> {
        self.all.keys().filter(|lodging| lodging.variant == variant).cloned().collect()
    }

    /// Those in some pools.
    pub(super) fn in_pools(&self, pools: &BTreeSet<String>) -> Vec<Placement> {
        let its = self.all.iter().filter(|(_, home)| pools.contains(&home.pool));
        its.map(|(lodging, _)| lodging.clone()).collect()
    }
}

/// The pools that were made.
#[derive(Debug, Default)]
pub(super) struct PoolsMade {
    /// By the settings that only a pool or its server can have.
    names: BTreeMap<Settings, String>,
    /// The user's disks that they are made of.
    disks: BTreeMap<String, Vec<PathBuf>>,
    /// The devices that they will miss as soon as something is in them.
    to_be_missed: BTreeMap<String, Vec<String>>,
}

impl PoolsMade {
    /// The pool with these settings, where it was made.
    pub(super) fn with(&self, settings: &Settings) -> Option<&String> {
        self.names.get(settings)
    }

    /// All of them, with their settings.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Settings, &String)> {
        self.names.iter()
    }

    /// Keeps one, with the devices that it is to miss.
    pub(super) fn insert(&mut self, settings: Settings, pool: &str, missing: Vec<String>) {
        if !missing.is_empty() {
            self.to_be_missed.insert(pool.to_owned(), missing);
        }
        self.names.insert(settings, pool.to_owned());
    }

    /// The devices that a pool is to miss from now on; asked once.
    pub(super) fn take_missing(&mut self, pool: &str) -> Option<Vec<String>> {
        self.to_be_missed.remove(pool)
    }

    /// Gives a pool disks of the user's.
    pub(super) fn give_disks(&mut self, pool: &str, disks: Vec<PathBuf>) {
        self.disks.insert(pool.to_owned(), disks);
    }

    /// The user's disks of a pool.
    pub(super) fn disks_of(&self, pool: &str) -> &[PathBuf] {
        self.disks.get(pool).map_or(&[], Vec::as_slice)
    }

    /// The pools that are on disks of the user's.
    pub(super) fn on_disks(&self) -> BTreeSet<String> {
        self.disks.keys().cloned().collect()
    }

    /// Forgets one, which was destroyed.
    pub(super) fn remove(&mut self, pool: &str) {
        self.names.retain(|_, name| name != pool);
        self.disks.remove(pool);
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.disks.clear();
    }
}
