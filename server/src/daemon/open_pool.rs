//! An open pool: plain data, and the right to change it.
//!
//! Opening (`pools`, `creating`) and closing (`closing`) stand on top of this; what is served of a pool keeps
//! its state in a field here.
//!
//! # Two ways to be open
//! A pool that is open read-only never changes. A pool that is open for writing ([`LivePool`]) is reported as
//! of its last commit: each listing reads one committed state, and every change is answered after its commit,
//! so that a caller that asks after a change sees it. A request holds such a state only until it is answered,
//! because the space that the state refers to cannot be reused meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, Weak};

use device::Device;
use engine::Pool;
use engine::dsl::Dsl;
use engine::pool::live::LivePool;
use ondisk::Guid;

use super::mounts::Mount;
use super::refusals::suspended;
use super::shares::PoolShares;
use super::streams::lent_views::LentViews;
use super::streams::receive::input::Receives;
use super::volumes::attached::Devices;
use super::volumes::fence::Fence;
use super::volumes::held_clients::Leaving;
use super::volumes::recording::Recorders;
use super::watch::following::Followed;
use super::{VolumeExport, VolumeList, lock};
use crate::api::ApiError;
use crate::block::Announcer;
use crate::cachefile::Cached;

/// An open pool and what is served of it.
#[derive(Debug)]
pub struct OpenPool {
    name: String,
    altroot: Option<PathBuf>,
    held: Held,
    /// A number drawn at each import.
    load_guid: u64,
    cachefile: Mutex<Option<String>>,
    /// Options for each mount, as given to the import.
    mount_options: Vec<String>,
    /// Held while a request mounts, unmounts, loads or unloads keys, changes datasets, or closes; shared by
    /// requests that add datasets. False once it is closed.
    changes: tokio::sync::RwLock<bool>,
    pub(super) mounts: Mutex<BTreeMap<String, Mount>>,
    /// What is shared with a network.
    pub(super) shares: PoolShares,
    pub(super) volumes: RwLock<Arc<VolumeList>>,
    /// Told of each change of those.
    pub(super) volume_changes: Announcer,
    /// `None` once no more may come.
    pub(super) connections: Mutex<Option<Vec<Weak<VolumeExport>>>>,
    /// Volumes that no client may open, because they are about to go.
    pub(super) leaving: Mutex<Leaving>,
    pub(super) recorders: Recorders,
    /// Whether another host has it by now.
    pub(super) fence: Arc<Fence>,
    pub(super) holds: LentViews,
    /// Streams that are being received.
    pub(super) receives: Arc<Receives>,
    pub(super) devices: Devices,
    /// How far what follows the feed of changes is.
    pub(super) followed: Followed,
}

/// How a pool is open.
pub(super) enum Held {
    /// For reading: it never changes.
    Reading(Arc<Dsl>),
    /// For writing. With the tree of datasets that was opened last, as long as it is in use.
    Writing(Arc<LivePool>, Mutex<Weak<Dsl>>),
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading(_) => "Reading",
            Self::Writing(..) => "Writing",
        })
    }
}

/// The right to change how a pool is served.
pub(super) struct Changing<'a>(tokio::sync::RwLockWriteGuard<'a, bool>);

/// The right to add datasets and snapshots to a pool, beside others that do. Nothing else changes meanwhile.
pub(super) struct Adding<'a>(
    #[expect(dead_code, reason = "it is held")] tokio::sync::RwLockReadGuard<'a, bool>,
);

impl Changing<'_> {
    /// The pool is closed: no other request gets this right.
    pub(super) fn closed(&mut self) {
        *self.0 = false;
    }
}

impl OpenPool {
    pub(super) fn new(
        held: Held,
        mount_options: Vec<String>,
        cachefile: Option<String>,
        volume_changes: Announcer,
    ) -> Self {
        let pool = match &held {
            Held::Reading(dsl) => Arc::clone(dsl.pool()),
            Held::Writing(live, _) => live.view(),
        };
        let paths = Cached::of(pool.name(), pool.config().raw.clone()).map(|cached| cached.devices);
        let fence = Fence::of(paths.iter().flatten().map(|(_, path)| path.as_path()));
        Self {
            name: pool.name().to_owned(),
            altroot: pool.altroot().map(Path::to_owned),
            held,
            load_guid: RandomState::new().hash_one(pool.guid().0),
            cachefile: Mutex::new(cachefile),
            mount_options,
            changes: tokio::sync::RwLock::new(true),
            mounts: Mutex::default(),
            shares: PoolShares::default(),
            volumes: RwLock::default(),
            volume_changes,
            connections: Mutex::new(Some(Vec::new())),
            leaving: Mutex::default(),
            recorders: Recorders::default(),
            fence: Arc::new(fence),
            holds: LentViews::default(),
            receives: Arc::default(),
            devices: Devices::default(),
            followed: Followed::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its guid.
    pub fn guid(&self) -> Guid {
        match &self.held {
            Held::Reading(dsl) => dsl.pool().guid(),
            Held::Writing(live, _) => live.guid(),
        }
    }

    /// The pool as of its last commit. Not to be kept for longer than a request.
    pub fn view(&self) -> Arc<Pool> {
        match &self.held {
            Held::Reading(dsl) => Arc::clone(dsl.pool()),
            Held::Writing(live, _) => live.view(),
        }
    }

    /// Its datasets as of its last commit. Not to be kept for longer than a request.
    ///
    /// # Errors
    /// The root of the tree cannot be read.
    pub async fn dsl(&self) -> engine::Result<Arc<Dsl>> {
        let (live, last) = match &self.held {
            Held::Reading(dsl) => return Ok(Arc::clone(dsl)),
            Held::Writing(live, last) => (live, last),
        };
        let view = live.view();
        if let Some(dsl) = lock(last).upgrade().filter(|dsl| Arc::ptr_eq(dsl.pool(), &view)) {
            return Ok(dsl);
        }
        let dsl = Arc::new(Dsl::open(&view).await?);
        *lock(last) = Arc::downgrade(&dsl);
        Ok(dsl)
    }

    /// The pool as it is written; `None` where it is open read-only.
    pub fn live(&self) -> Option<&Arc<LivePool>> {
        match &self.held {
            Held::Reading(_) => None,
            Held::Writing(live, _) => Some(live),
        }
    }

    /// How it is open.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// Whether nothing is written at the moment, because devices are away.
    pub fn is_suspended(&self) -> bool {
        self.live().is_some_and(|live| live.suspended().is_some())
    }

    /// The pool as it is written. Refuses what `doing` says of a pool that is open read-only.
    pub(super) fn writable(&self, doing: &str) -> Result<&Arc<LivePool>, ApiError> {
        let live = self.live().ok_or_else(|| {
            ApiError::refused(format!(
                "{doing}: pool is read-only; export it and import it without readonly=on"
            ))
        })?;
        match live.suspended() {
            // It would wait for as long as the devices are away.
            Some(_) => Err(suspended(doing)),
            None => Ok(live),
        }
    }

    /// Lets go of its devices, even if the pool is still referred to. Returns them.
    pub(super) fn let_go(&self) -> Vec<Arc<dyn Device>> {
        match &self.held {
            Held::Reading(dsl) => dsl.pool().vdevs().let_go(),
            Held::Writing(live, _) => live.let_go(),
        }
    }

    /// Where its mountpoints begin.
    pub fn altroot(&self) -> Option<&Path> {
        self.altroot.as_deref()
    }

    pub(super) fn cachefile(&self) -> Option<String> {
        lock(&self.cachefile).clone()
    }

    pub(super) fn set_cachefile(&self, path: Option<String>) {
        *lock(&self.cachefile) = path;
    }

    pub(super) fn load_guid(&self) -> u64 {
        self.load_guid
    }

    pub(super) fn mount_options(&self) -> &[String] {
        &self.mount_options
    }

    /// The right to change how the pool is served, if no other request has it and the pool is open.
    pub(super) fn try_change(&self) -> Option<Changing<'_>> {
        self.changes.try_write().ok().filter(|open| **open).map(Changing)
    }

    /// Waits until no other request changes how the pool is served. Not for reading.
    pub(super) async fn change(&self) -> Result<Changing<'_>, ApiError> {
        let open = self.changes.write().await;
        if *open { Ok(Changing(open)) } else { Err(self.is_closed()) }
    }

    /// Waits until no request changes how the pool is served but such that add to it, too. Changes that are
    /// made with this right share a group where they come at the same time; each is checked in the group,
    /// after those before it.
    pub(super) async fn add(&self) -> Result<Adding<'_>, ApiError> {
        let open = self.changes.read().await;
        if *open { Ok(Adding(open)) } else { Err(self.is_closed()) }
    }

    fn is_closed(&self) -> ApiError {
        ApiError::not_found(format!("cannot open '{}': no such pool", self.name()))
    }
}
