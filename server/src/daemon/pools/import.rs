//! Opening pools.
//!
//! An import examines the devices and loads the pool before other requests see it. Only then is the pool
//! added to the open pools, its volumes are served, and its filesystems are mounted. Until then nothing waits
//! for devices: a pool whose first groups cannot be committed is dropped again, and the import fails with the
//! error. [`super::closing`] reverses this.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use device::IgnorePoison;
use engine::dsl::Dsl;
use engine::env::System;
use engine::pool::discovery::{self, DEFAULT_DIRECTORIES, FoundPool};
use engine::pool::import::{self, ImportError, ImportOptions};
use engine::pool::live::{LivePool, Surroundings, note_version};
use engine::pool::replayed;
use engine::txg::Limits;
use ondisk::Txg;
use ondisk::vdev_config::PoolState;

use super::properties;
use super::properties::When;
use crate::api::{self, ApiError, Imported, OpenedPool};
use crate::daemon::datasets::FoundKeys;
use crate::daemon::host::{host_id, host_name};
use crate::daemon::names::MAX_NAME_BYTES;
use crate::daemon::open_pool::{Changing, Held};
use crate::daemon::refusals::refused;
use crate::daemon::sync_tasks;
use crate::daemon::volumes::sharing;
use crate::daemon::{Daemon, OpenPool};
use crate::fuse;

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
    pub(in crate::daemon) async fn search(&self, places: &[PathBuf]) -> Result<Vec<FoundPool>, ApiError> {
        let defaults = DEFAULT_DIRECTORIES.iter().map(PathBuf::from).filter(|path| path.exists());
        let places = if places.is_empty() { defaults.collect() } else { places.to_vec() };
        let mut found = discovery::scan(&places).await?;
        let open: Vec<_> = self.open_pools().iter().map(|open| open.guid()).collect();
        found.retain(|pool| !open.contains(&pool.guid));
        Ok(found)
    }

    pub(in crate::daemon) async fn import_one(
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
        let began = Instant::now();
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
            // A pool that is refused stays with the host that has it.
            if found.is_taken_by_opening() {
                import::check(found, &import_options).await.map_err(explain)?;
            }
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
        // A server that has a key must keep only this import waiting.
        let keys = match request.load_keys {
            true => Some(self.find_keys(&open, None).await),
            false => None,
        };
        // No other request can have it yet; a request that finds it from now on waits until it is served.
        let changing = open.change().await?;
        {
            let mut pools = self.pools.write().ignore_poison();
            refuse_among(&pools, open.name(), found)?;
            pools.insert(open.name().to_owned(), Arc::clone(&open));
        }
        drop(opening);
        self.report_events_of(&open, "pool_import");
        if found.name != open.name() && !self.is_taking_up() {
            fuse::clear_stale_of(&found.name);
        }
        let mut opened = self.serve(&open, &changing, request.no_mount, keys).await;
        tracing::info!(
            pool = open.name(),
            guid = opened.guid,
            is_writable = open.live().is_some(),
            mounts = opened.mounts.len(),
            volumes = opened.volumes.len(),
            seconds = began.elapsed().as_secs_f64(),
            "a pool is imported"
        );
        opened.warnings.extend(self.keep(&open));
        Ok(opened)
    }

    /// Serves a pool that was just opened: keys, volumes, filesystems.
    pub(in crate::daemon) async fn serve(
        &self,
        open: &Arc<OpenPool>,
        changing: &Changing<'_>,
        no_mount: bool,
        keys: Option<FoundKeys>,
    ) -> OpenedPool {
        let mut opened = described(open);
        opened.warnings.extend(self.nested(open));
        if let Held::Reading(dsl) = open.held() {
            let names = replayed::unreplayed(dsl.pool()).await.unwrap_or_default();
            opened.warnings.extend(names.iter().map(|name| {
                let what = "before a crash are in its intent log and not shown";
                format!("the last changes of '{name}' {what}: import the pool without readonly=on for them")
            }));
        }
        if let Some(keys) = keys {
            opened.warnings.extend(self.load_found(open, changing, keys).await);
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
        if !self.is_taking_up() {
            fuse::clear_stale_of(open.name());
        }
        if !no_mount {
            let changed = self.mount_all(open, changing, None, &[], false).await;
            opened.mounts = changed.done;
            opened.warnings.extend(changed.warnings);
            opened.warnings.extend(changed.failed.into_iter().map(|error| error.message));
        }
        opened
    }

    /// The environment of pools that are open for writing.
    pub(in crate::daemon) fn surroundings(&self) -> Surroundings {
        Surroundings {
            env: Arc::new(System),
            cache: Some(Arc::clone(&self.cache)),
            limits: Limits::beside(&self.cache),
            host: (host_id(), host_name()),
        }
    }

    /// Has a pool that is written commit by itself from now on.
    pub(in crate::daemon) fn start(&self, live: &Arc<LivePool>) -> engine::Result<()> {
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
pub(in crate::daemon) struct Options {
    pub readonly: bool,
    pub altroot: Option<PathBuf>,
    pub cachefile: Option<String>,
    rewind: import::Rewind,
    /// Properties to set once the pool is open.
    pub to_set: Vec<(String, String)>,
}

impl Options {
    pub(in crate::daemon) fn parse(request: &api::ImportPool) -> Result<Self, ApiError> {
        let mut options = Self::of(request.altroot.clone(), &request.properties)?;
        options.rewind = match &request.rewind {
            None => import::Rewind::Never,
            Some(api::Rewind { txg: Some(txg), .. }) => import::Rewind::ToTxg(Txg(*txg)),
            Some(api::Rewind { extreme: true, .. }) => import::Rewind::Extreme,
            Some(_) => import::Rewind::Recent,
        };
        let cachefile = request.properties.iter().filter(|(name, _)| name == "cachefile");
        for (name, value) in cachefile.chain(&options.to_set) {
            if let Some(fault) = properties::refusal(name, value, When::Import) {
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
    pub(in crate::daemon) fn of(
        altroot: Option<PathBuf>,
        properties: &[(String, String)],
    ) -> Result<Self, ApiError> {
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
