//! Opening pools.
//!
//! An import examines the devices and loads the pool before other requests see it. Only then is the pool
//! added to the open pools, its volumes are served, and its filesystems are mounted. Until then nothing waits
//! for devices: a pool whose first groups cannot be committed is dropped again, and the import fails with the
//! error. [`super::closing`] reverses this.
//!
//! # Two ways to be open
//! A pool that is open read-only never changes. A pool that is open for writing ([`LivePool`]) is reported as
//! of its last commit: each listing reads one committed state, and every change is answered after its commit,
//! so that a caller that asks after a change sees it. A request holds such a state only until it is answered,
//! because the space that the state refers to cannot be reused meanwhile.

#![allow(unsafe_code, reason = "`gethostid`")]

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock, Weak};

use device::{Device, IgnorePoison};
use engine::Pool;
use engine::dsl::Dsl;
use engine::env::System;
use engine::pool::discovery::{self, DEFAULT_DIRECTORIES, FoundPool};
use engine::pool::import::{self, ImportError, ImportOptions};
use engine::pool::live::{LivePool, Surroundings, note_version};
use engine::pool::replayed;
use engine::txg::Limits;
use ondisk::vdev_config::PoolState;
use ondisk::{Guid, Txg};

use super::attached::Devices;
use super::creating::refused;
use super::held_clients::Leaving;
use super::lent_views::LentViews;
use super::mounts::Mount;
use super::names::MAX_NAME_BYTES;
use super::pool_properties::When;
use super::receive::input::Receives;
use super::recording::Recorders;
use super::{Daemon, VolumeExport, VolumeList, lock, pool_properties, sharing, sync_tasks};
use crate::api::{self, ApiError, Imported, OpenedPool};
use crate::block::Announcer;
use crate::fuse;

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
    pub(super) volumes: RwLock<Arc<VolumeList>>,
    /// Told of each change of those.
    pub(super) volume_changes: Announcer,
    /// `None` once no more may come.
    pub(super) connections: Mutex<Option<Vec<Weak<VolumeExport>>>>,
    /// Volumes that no client may open, because they are about to go.
    pub(super) leaving: Mutex<Leaving>,
    pub(super) recorders: Recorders,
    pub(super) holds: LentViews,
    /// Streams that are being received.
    pub(super) receives: Arc<Receives>,
    pub(super) devices: Devices,
    /// Its volumes have other names, and their devices do not know it yet.
    pub(super) devices_are_old: AtomicBool,
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
        Self {
            name: pool.name().to_owned(),
            altroot: pool.altroot().map(Path::to_owned),
            held,
            load_guid: RandomState::new().hash_one(pool.guid().0),
            cachefile: Mutex::new(cachefile),
            mount_options,
            changes: tokio::sync::RwLock::new(true),
            mounts: Mutex::default(),
            volumes: RwLock::default(),
            volume_changes,
            connections: Mutex::new(Some(Vec::new())),
            leaving: Mutex::default(),
            recorders: Recorders::default(),
            holds: LentViews::default(),
            receives: Arc::default(),
            devices: Devices::default(),
            devices_are_old: AtomicBool::new(false),
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

impl Daemon {
    /// Imports one pool, or every pool that is found.
    ///
    /// # Errors
    /// The error of the search, and if one pool was asked for, of opening it.
    pub async fn import(&self, request: api::ImportPool) -> Result<Imported, ApiError> {
        let options = Options::parse(&request)?;
        let mut found = match &request.cachefile {
            Some(file) => self.search_cached(file).await?,
            None => self.search(&request.search).await?,
        };
        found.retain(|pool| (pool.state() == PoolState::Destroyed) == request.destroyed);
        let Some(wanted) = &request.pool else {
            if request.new_name.is_some() {
                return Err(ApiError::invalid("a new name needs the name or guid of one pool"));
            }
            let mut imported = Imported::default();
            for pool in &found {
                match self.import_one(pool, &request, &options).await {
                    Ok(opened) => imported.pools.push(opened),
                    Err(error) => imported.failed.push(error),
                }
            }
            return Ok(imported);
        };
        let pool = import::select(found, wanted)?;
        Ok(Imported { pools: vec![self.import_one(&pool, &request, &options).await?], failed: Vec::new() })
    }

    /// The pools on the devices at `places` that are not open already.
    pub(super) async fn search(&self, places: &[PathBuf]) -> Result<Vec<FoundPool>, ApiError> {
        let defaults = DEFAULT_DIRECTORIES.iter().map(PathBuf::from).filter(|path| path.exists());
        let places = if places.is_empty() { defaults.collect() } else { places.to_vec() };
        let mut found = discovery::scan(&places).await?;
        let open: Vec<_> = self.open_pools().iter().map(|open| open.guid()).collect();
        found.retain(|pool| !open.contains(&pool.guid));
        Ok(found)
    }

    pub(super) async fn import_one(
        &self,
        found: &FoundPool,
        request: &api::ImportPool,
        options: &Options,
    ) -> Result<OpenedPool, ApiError> {
        let name = request.new_name.as_deref().unwrap_or(&found.name);
        if !is_pool_name(name) {
            return Err(ApiError::invalid(format!(
                "cannot import '{}': {name:?} is not a pool's name; give it a new one",
                found.name.escape_debug()
            )));
        }
        self.refuse_open(name, found)?;
        let doing = format!("cannot import '{}'", found.name);
        let opening = self.begin_opening(&doing, name)?;
        let import_options = ImportOptions {
            new_name: request.new_name.clone(),
            temporary: request.temporary,
            force: request.force,
            readonly: options.readonly,
            rewind: options.rewind,
            missing_log: request.missing_log,
            rewind_to_checkpoint: request.rewind_to_checkpoint,
            destroyed: request.destroyed,
            altroot: options.altroot.clone(),
            no_mount: request.no_mount,
            host_id: host_id(),
            cache: Some(Arc::clone(&self.cache)),
            at: None,
        };
        let dry_run = request.rewind.as_ref().is_some_and(|rewind| rewind.dry_run);
        let held = if options.readonly || dry_run {
            let import_options = ImportOptions { readonly: true, ..import_options };
            let pool = import::import(found, &import_options).await.map_err(explain)?;
            Held::Reading(Arc::new(Dsl::open(&pool).await?))
        } else {
            // An older state may have devices that left the pool since.
            let with_former = (options.rewind != import::Rewind::Never).then(|| found.with_former());
            let found = with_former.as_ref().unwrap_or(found);
            let found = found.for_writing().await.map_err(|error| match error {
                engine::Error::Os { what, errno: libc::EBUSY } => {
                    ApiError::busy(format!("{doing}: {what} is in use by another process"))
                }
                other => refused(&doing, other),
            })?;
            let live =
                LivePool::import(&found, &import_options, self.surroundings()).await.map_err(explain)?;
            if request.command.is_some() || !options.to_set.is_empty() {
                let to_set = options.to_set.clone();
                let noted = sync_tasks::change(&live, request.command.clone(), move |s| async move {
                    for (name, value) in &to_set {
                        sync_tasks::set_pool_property(&s, name, value).await?;
                    }
                    note_version(&s, "import").await
                });
                noted.await.map_err(|error| refused(&doing, error))?;
            }
            self.start(&live).map_err(|error| refused(&doing, error))?;
            Held::Writing(live, Mutex::default())
        };
        let cachefile = self.named(options.cachefile.clone());
        let (options, changes) = (request.mount_options.clone(), self.volume_changes.clone());
        let open = Arc::new(OpenPool::new(held, options, cachefile, changes));
        if dry_run {
            return Ok(described(&open));
        }
        // No other request can have it yet; a request that finds it from now on waits until it is served.
        let changing = open.change().await?;
        {
            let mut pools = self.pools.write().ignore_poison();
            refuse_among(&pools, open.name(), found)?;
            pools.insert(open.name().to_owned(), Arc::clone(&open));
        }
        drop(opening);
        self.report_events_of(&open, "pool_import");
        if found.name != open.name() {
            fuse::clear_stale_of(&found.name);
        }
        let mut opened = self.serve(&open, &changing, request.no_mount, request.load_keys).await;
        opened.warnings.extend(self.keep(&open));
        Ok(opened)
    }

    /// Serves a pool that was just opened: keys, volumes, filesystems.
    pub(super) async fn serve(
        &self,
        open: &Arc<OpenPool>,
        changing: &Changing<'_>,
        no_mount: bool,
        load_keys: bool,
    ) -> OpenedPool {
        let mut opened = described(open);
        opened.warnings.extend(self.nested(open));
        if let Held::Reading(dsl) = &open.held {
            let names = replayed::unreplayed(dsl.pool()).await.unwrap_or_default();
            opened.warnings.extend(names.iter().map(|name| {
                let what = "before a crash are in its intent log and not shown";
                format!("the last changes of '{name}' {what}: import the pool without readonly=on for them")
            }));
        }
        if load_keys {
            opened.warnings.extend(self.load_keys_from_files(open, changing).await);
        }
        if let Err(error) = open.find_volumes().await {
            opened.warnings.push(format!("not all volumes of '{}' are served: {error}", open.name()));
        }
        if let Err(error) = sharing::leave_targets(open).await {
            opened.warnings.push(format!("two volumes of '{}' may be one unit: {error}", open.name()));
        }
        open.serve_reshapes();
        opened.volumes = self.served_volumes(open);
        opened.warnings.extend(self.settle_devices_of(open).await);
        fuse::clear_stale_of(open.name());
        if !no_mount {
            let changed = self.mount_all(open, changing, None, &[], false).await;
            opened.mounts = changed.done;
            opened.warnings.extend(changed.warnings);
            opened.warnings.extend(changed.failed.into_iter().map(|error| error.message));
        }
        opened
    }

    /// The environment of pools that are open for writing.
    pub(super) fn surroundings(&self) -> Surroundings {
        Surroundings {
            env: Arc::new(System),
            cache: Some(Arc::clone(&self.cache)),
            limits: Limits::beside(&self.cache),
            host: (host_id(), host_name()),
        }
    }

    /// Has a pool that is written commit by itself from now on.
    pub(super) fn start(&self, live: &Arc<LivePool>) -> engine::Result<()> {
        live.start()?;
        if self.gives_up {
            live.never_wait();
        }
        Ok(())
    }

    fn refuse_open(&self, name: &str, found: &FoundPool) -> Result<(), ApiError> {
        refuse_among(&self.pools.read().ignore_poison(), name, found)
    }
}

/// The error about a pool whose devices are missing.
pub(super) fn suspended(doing: &str) -> ApiError {
    ApiError::refused(format!("{doing}: pool I/O is currently suspended"))
}

fn described(open: &OpenPool) -> OpenedPool {
    let view = open.view();
    OpenedPool {
        name: open.name().to_owned(),
        guid: open.guid().0,
        txg: view.uberblock().txg.0,
        timestamp: view.uberblock().timestamp,
        ..OpenedPool::default()
    }
}

/// A second pool of one name, or one pool twice.
fn refuse_among(
    pools: &BTreeMap<String, Arc<OpenPool>>,
    name: &str,
    found: &FoundPool,
) -> Result<(), ApiError> {
    if let Some(same) = pools.values().find(|open| open.guid() == found.guid) {
        return Err(ApiError::busy(format!(
            "cannot import '{}': it is already imported as '{}'",
            found.name,
            same.name()
        )));
    }
    if pools.contains_key(name) {
        return Err(ApiError::busy(format!(
            "cannot import '{name}': a pool with that name already exists\n\
             use the form 'zpool import <pool | id> <newpool>' to give it a new name"
        )));
    }
    Ok(())
}

/// Whether a pool may have this name. Names on disks are untrusted, and become parts of paths.
fn is_pool_name(name: &str) -> bool {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.: ".contains(character);
    name.len() < MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(is_plain)
}

/// The options of an import or of a new pool.
pub(super) struct Options {
    pub readonly: bool,
    pub altroot: Option<PathBuf>,
    pub cachefile: Option<String>,
    rewind: import::Rewind,
    /// Properties to set once the pool is open.
    pub to_set: Vec<(String, String)>,
}

impl Options {
    pub(super) fn parse(request: &api::ImportPool) -> Result<Self, ApiError> {
        let mut options = Self::of(request.altroot.clone(), &request.properties)?;
        options.rewind = match &request.rewind {
            None => import::Rewind::Never,
            Some(api::Rewind { txg: Some(txg), .. }) => import::Rewind::ToTxg(Txg(*txg)),
            Some(api::Rewind { extreme: true, .. }) => import::Rewind::Extreme,
            Some(_) => import::Rewind::Recent,
        };
        let cachefile = request.properties.iter().filter(|(name, _)| name == "cachefile");
        for (name, value) in cachefile.chain(&options.to_set) {
            if let Some(fault) = pool_properties::refusal(name, value, When::Import) {
                return Err(ApiError::invalid(fault));
            }
        }
        if let (true, Some((name, _))) = (options.readonly, options.to_set.first()) {
            return Err(ApiError::refused(format!(
                "property '{name}' cannot be set: the pool is imported read-only"
            )));
        }
        Ok(options)
    }

    /// The properties that say how the pool is open, apart from the others.
    pub(super) fn of(altroot: Option<PathBuf>, properties: &[(String, String)]) -> Result<Self, ApiError> {
        let mut options = Self {
            readonly: false,
            altroot,
            cachefile: None,
            rewind: import::Rewind::Never,
            to_set: Vec::new(),
        };
        for (name, value) in properties {
            match (name.as_str(), value.as_str()) {
                ("readonly", "on") => options.readonly = true,
                ("readonly", "off") => options.readonly = false,
                ("altroot", path) => options.altroot = Some(path.into()),
                ("cachefile", path) => options.cachefile = Some(path.to_owned()),
                ("readonly", other) => {
                    return Err(ApiError::invalid(format!("'{other}' is not a value of readonly: use 'on'")));
                }
                _ => options.to_set.push((name.clone(), value.clone())),
            }
        }
        if let Some(altroot) =
            options.altroot.as_ref().filter(|path| !path.is_absolute() || path.to_str().is_none())
        {
            let shown = altroot.display();
            let why = format!("bad alternate root '{shown}': it must be an absolute path in UTF-8");
            return Err(ApiError::invalid(why));
        }
        Ok(options)
    }
}

/// Adds to a refusal what a person can do with this program.
fn explain(error: ImportError) -> ApiError {
    let hint = match &error {
        ImportError::Damaged { rewind: Some(point), .. } => format!(
            "\nGoing back by about {} seconds of changes to transaction group {} would open it: use -F{}",
            point.seconds_lost,
            point.txg,
            if point.extreme { "X" } else { "" }
        ),
        _ => String::new(),
    };
    let ApiError { kind, message } = error.into();
    ApiError { kind, message: message + &hint }
}

/// This host's id, as OpenZFS's tools determine it.
pub(super) fn host_id() -> u64 {
    let parse = |text: &str| {
        let text = text.trim();
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    };
    let of_module = || std::fs::read_to_string("/sys/module/spl/parameters/spl_hostid").ok();
    let given = std::env::var("ZFS_HOSTID").ok().and_then(|text| parse(&text));
    let id = given.or_else(|| of_module().and_then(|text| parse(&text))).filter(|id| *id != 0);
    // SAFETY: gethostid has no preconditions.
    id.unwrap_or_else(|| unsafe { libc::gethostid() } as u64) & 0xffff_ffff
}

/// This host's name.
pub(super) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_name_cannot_lead_out_of_its_directory() {
        for good in ["tank", "rpool-2", "a.b:c d", "0day"] {
            assert!(is_pool_name(good), "{good}");
        }
        for bad in ["", ".", "..", "../tank", "tank/fs", "tank@x", "ta\u{1b}nk", "-f", " tank"] {
            assert!(!is_pool_name(bad), "{bad}");
        }
    }
}
