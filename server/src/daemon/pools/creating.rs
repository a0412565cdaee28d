//! Creating, changing and destroying pools.
//!
//! A pool is created on devices that were checked and locked first ([`super::disks`]); it is added to the
//! open pools when its first transaction group is committed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use device::{IgnorePoison, OpenOptions};
use engine::dsl::Dsl;
use engine::pool::discovery::Candidate;
use engine::pool::live::{Auxiliary, LivePool, NewPool, set_version};
use engine::pool::properties::{PoolEnvironment, PoolProperties};
use engine::pool::status;
use engine::properties::{Style, kept};
use engine::vdev::label::wipe_labels;
use objects::lease;
use ondisk::Txg;
use ondisk::features::Feature;
use ondisk::pool_version as version;
use ondisk::vdev_config::PoolState;

use super::closing::{Opening, Order};
use super::disks::{self, Allowed};
use super::import::Options;
use super::properties::{self, When, refusal};
use super::{replication, vdevs};
use crate::api::edge::Edge;
use crate::api::{self, ApiError, Listed, OpenedPool, UpgradedPool, VdevNode};
use crate::daemon::datasets::{key_of_new, set_quotas_at_once, take_quotas};
use crate::daemon::open_pool::Held;
use crate::daemon::refusals::refused;
use crate::daemon::{Daemon, OpenPool, dataset_error};
use crate::daemon::{names, sync_tasks};
use crate::fuse;

/// Groups that are waited for in addition, while dedup tables have entries in logs (`TXG_DEFER_SIZE`).
const MORE_SYNCED: usize = 2;

impl Daemon {
    /// Creates a pool.
    ///
    /// # Errors
    /// A bad name or property, devices that cannot be used.
    pub async fn create_pool(&self, request: api::CreatePool) -> Result<OpenedPool, ApiError> {
        let name = &request.name;
        let doing = format!("cannot create '{name}'");
        let refuse = |why: String| ApiError::invalid(format!("{doing}: {why}"));
        if let Some(fault) = names::pool_name_fault(name) {
            return Err(refuse(fault));
        }
        let open_name = request.temporary_name.as_ref().unwrap_or(name);
        if let Some(fault) = names::pool_name_fault(open_name) {
            return Err(refuse(fault));
        }
        for (property, value) in &request.properties {
            if let Some(fault) = refusal(property, value, When::Create) {
                return Err(refuse(fault));
            }
        }
        let version = properties::version_of_new(&request.properties).map_err(refuse)?;
        let no_features = request.no_features || version != version::FEATURES;
        let features = properties::features_of_new(no_features, &request.properties);
        let features = features.map_err(refuse)?;
        let opening = self.begin_opening(&doing, open_name)?;
        if self.find_pool(open_name).is_some() {
            return Err(ApiError::busy(format!("{doing}: pool already exists")));
        }
        let options = Options::of(request.altroot.clone(), &request.properties);
        let options = options.map_err(|error| ApiError { message: format!("{doing}: {error}"), ..error })?;
        if !request.no_mount {
            check_mountpoint(name, options.altroot.as_deref(), &request.root_properties)?;
        }
        let mut root_properties = request.root_properties.clone();
        let quotas = take_quotas(&doing, &mut root_properties)?;
        let devices = &request.devices;
        let (guids, how) = (self.guids(), (None, asked_ashift(&request.properties)));
        let mut opened = disks::open(devices, &doing, Allowed::all(request.force), &guids, how).await?;
        let mut new = NewPool { root_properties, ..new_pool(&request, &options, (version, features)) };
        new.tops = opened.tops.clone();
        // What the devices hold is still there when this is refused, and a dry run is refused what the pool
        // would be.
        new.check().map_err(|error| refused(&doing, error))?;
        if request.dry_run {
            return Ok(OpenedPool { name: name.clone(), ..OpenedPool::default() });
        }
        let env = &*self.surroundings().env;
        let key = key_of_new(&doing, env, &new.root_properties, request.key.clone())?;
        // Disks can be partitioned only when they are not open.
        new.tops.clear();
        opened.partition(&doing).await?;
        (new.tops, new.spares, new.l2cache) = (opened.tops, opened.spares, opened.l2cache);
        let live = LivePool::create_with_key(new, key, self.surroundings()).await;
        let live = live.map_err(|error| refused(&doing, error))?;
        // Until here nothing waits for devices: a pool that they do not take is dropped, and can be created
        // anew.
        self.start(&live).map_err(|error| refused(&doing, error))?;
        let held = Held::Writing(live, Mutex::default());
        let open = self.held_open(held, self.named(options.cachefile));
        let (open, mut opened) = self.add(open, request.no_mount, opening).await?;
        opened.warnings.extend(kept::notes(&request.root_properties));
        opened.warnings.extend(self.nfs_notes(&request.root_properties));
        opened.warnings.extend(self.keep(&open));
        if let Some(live) = open.live()
            && let Err(error) = set_quotas_at_once(&open, live, open_name, &quotas).await
        {
            opened
                .warnings
                .push(format!("pool '{open_name}' was created without its quotas of users: {error}"));
        }
        Ok(opened)
    }

    /// Serves a pool that was created elsewhere in this process, on devices of whatever kind. Nothing is
    /// mounted, and no cache file knows it.
    ///
    /// # Errors
    /// A pool of this name is open.
    pub async fn adopt(&self, live: Arc<LivePool>) -> Result<OpenedPool, ApiError> {
        let name = live.view().name().to_owned();
        let doing = format!("cannot adopt '{name}'");
        let opening = self.begin_opening(&doing, &name)?;
        if self.find_pool(&name).is_some() {
            return Err(ApiError::busy(format!("{doing}: pool already exists")));
        }
        self.start(&live).map_err(|error| refused(&doing, error))?;
        let open = self.held_open(Held::Writing(live, Mutex::default()), None);
        Ok(self.add(open, true, opening).await?.1)
    }

    fn held_open(&self, held: Held, cachefile: Option<String>) -> OpenPool {
        OpenPool::new(held, Vec::new(), cachefile, self.volume_changes.clone())
    }

    /// Adds a new pool to the open ones, and serves it.
    async fn add(
        &self,
        open: OpenPool,
        no_mount: bool,
        opening: Opening<'_>,
    ) -> Result<(Arc<OpenPool>, OpenedPool), ApiError> {
        let open = Arc::new(open);
        let changing = open.change().await?;
        self.pools.write().ignore_poison().insert(open.name().to_owned(), Arc::clone(&open));
        drop(opening);
        self.report_events_of(&open, "pool_create");
        let opened = self.serve(&open, &changing, no_mount, None).await;
        tracing::info!(pool = open.name(), guid = opened.guid, "a pool is created");
        drop(changing);
        Ok((open, opened))
    }

    /// The guids and names of the open pools.
    pub(in crate::daemon) fn guids(&self) -> Vec<(ondisk::Guid, String)> {
        self.open_pools().iter().map(|pool| (pool.guid(), pool.name().to_owned())).collect()
    }

    /// Adds vdevs to a pool, and returns what it had before.
    ///
    /// # Errors
    /// Devices that cannot be used, a pool that is open read-only.
    pub async fn add_vdevs(&self, request: api::AddVdevs) -> Result<VdevNode, ApiError> {
        let name = &request.pool;
        let pool = self.pool(name)?;
        let doing = format!("cannot add to '{name}'");
        for (property, value) in &request.properties {
            if let Some(fault) = refusal(property, value, When::Create) {
                return Err(ApiError::invalid(format!("{doing}: {fault}")));
            }
        }
        let dsl = pool.dsl().await?;
        let root = status::vdevs_with_space(&dsl).await?;
        let existing = replication::of_pool(&root);
        let allowed = Allowed {
            in_use: request.force || request.allow_in_use,
            replication: request.force || request.allow_replication_mismatch,
        };
        // Where none is asked for, the pool's own property says it.
        let asked = match asked_ashift(&request.properties) {
            Some(ashift) => Some(ashift),
            None => pool_ashift(&dsl).await?,
        };
        drop(dsl);
        let how = (existing.as_ref(), asked);
        let mut opened = disks::open(&request.devices, &doing, allowed, &self.guids(), how).await?;
        let are_files = opened.tops.iter().flat_map(|top| &top.leaves).all(|leaf| leaf.is_file);
        // Files have no sectors of their own: these get those of the pool.
        let tops = pool.live().map(|live| live.pool().vdevs().tops.iter());
        let of_pool = tops.into_iter().flatten().filter_map(|top| u8::try_from(top.ashift).ok()).max();
        let ashift = asked.or(of_pool.filter(|_| are_files));
        let mixed = request.force || request.allow_ashift_mismatch;
        let check = |live: &LivePool| {
            live.check_addition(&opened.tops, ashift, mixed).map_err(|error| refused(&doing, error))
        };
        if request.dry_run {
            pool.live().map_or(Ok(()), |live| check(live))?;
            return Ok(root.edge());
        }
        let live = pool.writable(&doing)?;
        check(live)?;
        opened.partition(&doing).await?;
        if !opened.tops.is_empty() {
            live.add(opened.tops, ashift).await.map_err(|error| refused(&doing, error))?;
        }
        for (kind, leaves) in [(Auxiliary::Spares, opened.spares), (Auxiliary::Cache, opened.l2cache)] {
            if !leaves.is_empty() {
                live.add_auxiliary(kind, leaves).await.map_err(|error| refused(&doing, error))?;
            }
        }
        sync_tasks::change(live, request.command.clone(), |_| async { Ok(()) }).await?;
        self.catch_up_in(&pool).await;
        Ok(root.edge())
    }

    /// Destroys a pool. Blocks the thread, which is the request's own. One that is open read-only is closed,
    /// as OpenZFS does it, and its devices stay as they are.
    ///
    /// # Errors
    /// It is in use, or suspended.
    pub async fn destroy_pool(
        self: &Arc<Self>,
        request: api::DestroyPool,
    ) -> Result<api::Warnings, ApiError> {
        let name = &request.pool;
        let pool = self.pool(name)?;
        let mut done = api::Warnings::default();
        if pool.live().is_some() {
            pool.writable(&format!("cannot destroy '{name}'"))?;
        } else {
            let note = "it was open read-only: it is closed, and can be imported again";
            done.warnings.push(format!("pool '{name}' was not destroyed: {note}"));
        }
        let order = Order {
            force: request.force,
            state: PoolState::Destroyed,
            command: request.command,
            hands_over: false,
        };
        pool.leave_leases(Some(lease::State::Exported));
        self.close(&pool, &order).inspect_err(|_| pool.leave_leases(Some(lease::State::Free)))?;
        self.keep_no_more(&pool);
        Ok(done)
    }

    /// Stops committing a pool, for tests.
    ///
    /// # Errors
    /// It is open read-only, or suspended.
    pub async fn freeze_pool(&self, request: api::FreezePool) -> Result<(), ApiError> {
        let doing = format!("cannot freeze '{}'", request.pool);
        let pool = self.pool(&request.pool)?;
        pool.writable(&doing)?.freeze().await.map_err(|error| refused(&doing, error))
    }

    /// Commits what was written so far. Entries of dedup tables that are in a log have two groups more to
    /// come into their tables, as OpenZFS waits for so many always.
    ///
    /// # Errors
    /// None: a pool that cannot be synced becomes an entry of `failed`.
    pub async fn sync_pools(&self, request: api::SyncPools) -> Result<Listed<String>, ApiError> {
        let (pools, failed) = self.pools_named(&request.pools);
        let mut listed = Listed { entries: Vec::new(), failed };
        for pool in pools {
            if pool.live().is_some() {
                let live = match pool.writable(&format!("cannot sync '{}'", pool.name())) {
                    Ok(live) => live,
                    Err(error) => {
                        listed.failed.push(error);
                        continue;
                    }
                };
                let txgs = live.txgs();
                let mut synced = txgs.wait_synced(txgs.open_txg()).await;
                for _ in 0..MORE_SYNCED {
                    if synced.is_ok() && live.has_logged_dedup() {
                        synced = txgs.wait_synced(txgs.open_txg()).await;
                    }
                }
                if let Err(error) = synced {
                    listed.failed.push(dataset_error("sync", pool.name(), error));
                    continue;
                }
                pool.space_is_known();
            }
            listed.entries.push(pool.name().to_owned());
        }
        Ok(listed)
    }

    /// Sets a property of a pool.
    ///
    /// # Errors
    /// A property or value that does not exist.
    pub async fn set_pool_property(&self, request: api::SetPoolProperty) -> Result<(), ApiError> {
        let doing = format!("cannot set property for '{}'", request.pool);
        let pool = self.pool(&request.pool)?;
        if let Some(name) = &request.vdev {
            let vdev = vdevs::find(&status::vdevs(&pool.view()), name).map(|vdev| ondisk::Guid(vdev.guid));
            let vdev = vdev.ok_or_else(|| {
                let why = format!("cannot find '{name}' in '{}': device not in pool", request.pool);
                ApiError::not_found(why)
            })?;
            let doing = format!("cannot set property for '{name}'");
            let (property, value) = (request.property, request.value);
            let changed = sync_tasks::change(pool.writable(&doing)?, request.command, move |s| async move {
                sync_tasks::set_vdev_property(&s, vdev, &property, &value).await
            });
            return changed.await.map_err(|error| refused(&doing, error));
        }
        if let Some(fault) = refusal(&request.property, &request.value, When::Set) {
            return Err(ApiError::invalid(format!("{doing}: {fault}")));
        }
        if request.property == "cachefile" {
            let kept = self.keep_in(&pool, request.value);
            return kept
                .map_err(|error| ApiError { message: format!("{doing}: {}", error.message), ..error });
        }
        let live = pool.writable(&doing)?;
        let (property, value) = (request.property, request.value);
        let changed = sync_tasks::change(live, request.command, move |s| async move {
            sync_tasks::set_pool_property(&s, &property, &value).await
        });
        changed.await.map_err(|error| refused(&doing, error))?;
        // Some are part of the configuration.
        self.catch_up_in(&pool).await;
        Ok(())
    }

    /// Gives a pool another guid.
    ///
    /// # Errors
    /// The pool is open read-only.
    pub async fn reguid_pool(&self, request: api::ReguidPool) -> Result<(), ApiError> {
        let doing = format!("cannot reguid '{}'", request.pool);
        let pool = self.pool(&request.pool)?;
        let live = pool.writable(&doing)?;
        let guid = request.guid.map(ondisk::Guid);
        // No other pool gets it between the check and the commit.
        let _claimed = guid.map(|guid| self.begin_opening(&doing, &format!("guid {guid}"))).transpose()?;
        if guid.is_some_and(|guid| self.guids().iter().any(|(open, _)| *open == guid)) {
            return Err(ApiError::busy(format!("{doing}: a pool with that guid is already imported")));
        }
        live.reguid(guid).await.map_err(|error| refused(&doing, error))?;
        let noted = sync_tasks::change(live, request.command, |_| async { Ok(()) });
        noted.await.map_err(|error| refused(&doing, error))?;
        self.catch_up_in(&pool).await;
        Ok(())
    }

    /// Takes a checkpoint, or gives it up.
    ///
    /// # Errors
    /// The pool is open read-only, or has a checkpoint already, or none to give up.
    pub async fn checkpoint_pool(&self, request: api::CheckpointPool) -> Result<(), ApiError> {
        let doing = match request.discard {
            true => format!("cannot discard checkpoint in '{}'", request.pool),
            false => format!("cannot checkpoint '{}'", request.pool),
        };
        let pool = self.pool(&request.pool)?;
        let live = pool.writable(&doing)?;
        let done = match request.discard {
            true => live.discard_checkpoint().await,
            false => live.take_checkpoint().await,
        };
        done.map_err(|error| refused(&doing, error))?;
        let noted = sync_tasks::change(live, request.command, |_| async { Ok(()) });
        noted.await.map_err(|error| refused(&doing, error))?;
        while request.wait && live.is_discarding() {
            live.change(|_| async { Ok(()) }).await.map_err(|error| refused(&doing, error))?;
        }
        Ok(())
    }

    /// Takes pools to a version and enables all features that they may have, or reports which.
    ///
    /// # Errors
    /// None: a pool that cannot be upgraded becomes an entry of `failed`.
    pub async fn upgrade_pools(&self, request: api::UpgradePools) -> Result<Listed<UpgradedPool>, ApiError> {
        let (pools, failed) = self.pools_named(&request.pools);
        let mut listed = Listed { entries: Vec::new(), failed };
        for pool in pools {
            match upgrade(&pool, &request).await {
                Ok(upgraded) => listed.entries.push(upgraded),
                Err(error) => listed.failed.push(error),
            }
        }
        Ok(listed)
    }

    /// Wipes the labels of a device that no pool uses.
    ///
    /// # Errors
    /// A pool uses it, or seems to and force was not given; no label is there.
    pub async fn clear_label(&self, request: api::ClearLabel) -> Result<(), ApiError> {
        let shown = request.device.display();
        let open = |options: OpenOptions| {
            let opened = options.open(&request.device);
            opened.map_err(|error| ApiError::failed(format!("failed to open {shown}: {error}")))
        };
        let looked_at = Candidate::examine(Arc::new(open(OpenOptions::read_only())?)).await;
        let Some(Candidate { label, .. }) = looked_at else {
            return Err(ApiError::invalid(format!("failed to read label from {shown}")));
        };
        let name = label.name.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        let name = name.unwrap_or_default();
        // One of no group says nothing: the device left its pool, or was to become part of one.
        let pool_guid = label.pool_guid.filter(|_| label.txg.is_some_and(|txg| txg != Txg::NONE));
        if pool_guid.is_some_and(|guid| self.guids().iter().any(|(open, _)| *open == guid)) {
            return Err(ApiError::busy(format!("{shown} is a member (ACTIVE) of pool \"{name}\"")));
        }
        let how = match label.state {
            PoolState::Active if pool_guid.is_some() => Some("potentially active"),
            PoolState::Exported => Some("exported"),
            _ => None,
        };
        if let (Some(how), false) = (how, request.force) {
            return Err(ApiError::refused(format!(
                "use '-f' to override the following error:\n{shown} is a member of {how} pool \"{name}\""
            )));
        }
        // Headers of cache devices are of 512 bytes, whatever a filesystem asks of direct I/O.
        let device = open(OpenOptions::read_write().unit_at_most(512))?;
        let wiped = wipe_labels(&device).await;
        wiped.map_err(|error| ApiError::failed(format!("failed to clear label for {shown}: {error}")))
    }
}

async fn upgrade(pool: &OpenPool, request: &api::UpgradePools) -> Result<UpgradedPool, ApiError> {
    let doing = format!("cannot upgrade '{}'", pool.name());
    let wanted = request.version.unwrap_or(version::FEATURES);
    let before = pool.view().uberblock().version;
    let upgraded = |features: &[Feature]| UpgradedPool {
        pool: pool.name().to_owned(),
        version: before,
        features: features.iter().map(|feature| feature.name().to_owned()).collect(),
    };
    if request.dry_run {
        let missing = match pool.live() {
            Some(live) if before == version::FEATURES => sync_tasks::missing_features(live),
            _ => Vec::new(),
        };
        return Ok(upgraded(&missing));
    }
    let live = pool.writable(&doing)?;
    if before > wanted {
        return Ok(upgraded(&[]));
    }
    let compatibility = live.compatibility().unwrap_or_default();
    if before < wanted && compatibility == "legacy" {
        let why = "Upgrade not performed because 'compatibility' property set to 'legacy'.";
        return Err(ApiError::refused(why.to_owned()));
    }
    let mut missing: Vec<Feature> = Vec::new();
    if wanted == version::FEATURES {
        let allowed = properties::features_of(&compatibility);
        let allowed = allowed.map_err(|why| ApiError::invalid(format!("{doing}: {why}")))?;
        missing = sync_tasks::missing_features(live);
        missing.retain(|feature| {
            feature.is_upgraded() && allowed.as_ref().is_none_or(|allowed| allowed.contains(feature))
        });
    }
    let answer = upgraded(&missing);
    if before < wanted || !missing.is_empty() {
        let changed = sync_tasks::change(live, request.command.clone(), move |s| async move {
            set_version(&s, wanted).await?;
            for feature in missing {
                sync_tasks::enable_feature(&s, feature).await?;
            }
            Ok(())
        });
        changed.await.map_err(|error| refused(&doing, error))?;
    }
    Ok(answer)
}

/// The sector size that was asked for, as a power of two.
pub(in crate::daemon) fn asked_ashift(properties: &[(String, String)]) -> Option<u8> {
    let given = properties.iter().rev().find(|(name, _)| name == "ashift");
    given.and_then(|(_, value)| value.parse().ok()).filter(|ashift| *ashift > 0)
}

/// The sector size of new vdevs that a pool's property says, if any, as a power of two.
pub(in crate::daemon) async fn pool_ashift(dsl: &Dsl) -> Result<Option<u8>, ApiError> {
    let environment = PoolEnvironment {
        cachefile: None,
        load_guid: 0,
        suspended: false,
        read_only: false,
        dedup_cached_bytes: 0,
    };
    let properties = PoolProperties::load(dsl, &environment).await?;
    let shown = properties.get_named("ashift", Style::PARSABLE);
    Ok(shown.and_then(|shown| shown.value.parse().ok()).filter(|ashift| *ashift > 0))
}

/// A new pool as the engine wants it, without devices.
fn new_pool(
    request: &api::CreatePool,
    options: &Options,
    (version, features): (u64, Vec<Feature>),
) -> NewPool {
    let of_engine = |name: &str| {
        !name.starts_with("feature@") && !["altroot", "cachefile", "readonly", "version"].contains(&name)
    };
    let given = request.properties.iter().filter(|(name, _)| of_engine(name)).cloned();
    let temporary = request.temporary_name.clone().map(|name| ("tname".to_owned(), name));
    NewPool {
        name: request.name.clone(),
        tops: Vec::new(),
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: asked_ashift(&request.properties),
        version,
        features,
        properties: given.chain(temporary).collect(),
        root_properties: request.root_properties.clone(),
        altroot: options.altroot.clone(),
        command: request.command.clone(),
    }
}

/// Where the root filesystem of a new pool goes there must be nothing else.
fn check_mountpoint(
    name: &str,
    altroot: Option<&Path>,
    root_properties: &[(String, String)],
) -> Result<(), ApiError> {
    let given =
        |wanted: &str| root_properties.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value);
    if given("canmount").is_some_and(|value| value == "off") {
        return Ok(());
    }
    let at: PathBuf = match given("mountpoint").map(String::as_str) {
        None => Path::new("/").join(name),
        Some("none" | "legacy") => return Ok(()),
        Some(path) if path.starts_with('/') => path.into(),
        Some(path) => {
            return Err(ApiError::invalid(format!(
                "invalid mountpoint '{path}': must be an absolute path, 'legacy', or 'none'"
            )));
        }
    };
    let place = match altroot {
        Some(altroot) => altroot.join(at.strip_prefix("/").unwrap_or(&at)),
        None => at,
    };
    let shown = place.display();
    if !fuse::answers(&place) {
        return Err(ApiError::refused(format!(
            "mountpoint '{shown}' : a filesystem that is mounted there or above does not answer\nunmount it \
             ('umount -f'), or use '-m' option to provide a different default"
        )));
    }
    let entries = std::fs::read_dir(&place).map(|mut entries| entries.next().is_some());
    match entries {
        Ok(true) => Err(ApiError::refused(format!(
            "mountpoint '{shown}' exists and is not empty\nuse '-m' option to provide a different default"
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Err(ApiError::refused(format!(
            "mountpoint '{shown}' : {error}\nuse '-m' option to provide a different default"
        ))),
        _ => Ok(()),
    }
}
