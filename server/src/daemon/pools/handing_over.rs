//! Closing all pools for another daemon, and opening pools as another one had them ([`crate::handover`]).
//!
//! What is asked for here is all or nothing. Whatever refuses is found as early as can be: first without
//! holding anything back, then with requests held back, and last with clients at a boundary.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use engine::dsl::keys::WrappingKey;
use ondisk::Guid;
use ondisk::nvlist::Nvlist;
use ondisk::vdev_config::PoolState;

use super::closing::Order;
use super::import::Options;
use crate::api::{self, ApiError, Secret};
use crate::cachefile::Cached;
use crate::commit_on_unmount::commit;
use crate::daemon::mounts::mount_error;
use crate::daemon::{Daemon, OpenPool};
use crate::fuse::{self, GivenMount};
use crate::gate::{Closed, Parked};
use crate::handover::OpenedAs;

/// How long requests under way may take.
const REQUESTS_LIMIT: Duration = Duration::from_secs(5);
/// How long a pool may take to commit what was written before clients are held back.
const COMMIT_LIMIT: Duration = Duration::from_secs(10);
/// How long the requests of clients of volumes may take.
const CLIENTS_LIMIT: Duration = Duration::from_secs(5);

/// A key that is loaded.
#[derive(Debug)]
pub struct LoadedKey {
    /// The guid of the pool.
    pub pool: u64,
    /// The encryption root.
    pub root: String,
    /// The key, which is wiped when this is dropped.
    pub key: Secret,
}

/// All that a daemon had, and another one may have. The gate for requests is closed as long as this is there.
#[derive(Debug)]
pub struct HandedOver {
    /// The pools, those last that are on files of others.
    pub pools: Vec<OpenedAs>,
    /// Their keys.
    pub keys: Vec<LoadedKey>,
    /// The clients of volumes.
    pub clients: Vec<Parked>,
    /// Mounted filesystems, the outer ones first.
    pub mounts: Vec<GivenMount>,
    _requests: Closed,
}

impl Daemon {
    /// Brings everything to a boundary, and closes all pools. With `force` also what is in use. Blocks the
    /// thread.
    ///
    /// # Errors
    /// What cannot be handed over, by its name. Everything goes on then.
    pub fn hand_over(self: &Arc<Self>, force: bool) -> Result<HandedOver, ApiError> {
        let doing = "cannot hand over";
        if !self.has_imported() {
            return Err(ApiError::busy(format!("{doing}: pools are still being imported; try again")));
        }
        let late = |late: Vec<String>, limit: Duration| {
            let (late, seconds) = (late.join(", "), limit.as_secs());
            ApiError::busy(format!("{doing}: still under way after {seconds} s: {late}"))
        };
        for pool in self.open_pools() {
            pool.refuse_hand_over(doing, force)?;
        }
        if let [_, .., last] = &*self.inside_out(self.open_pools())
            && let Some(outer) = last.first()
        {
            // They would have to be mounted before the other daemon owns anything.
            return Err(ApiError::refused(format!(
                "{doing}: files in '{}' are devices of another pool; restart the daemon instead",
                outer.name()
            )));
        }
        let requests = self.requests_gate().close(REQUESTS_LIMIT);
        let requests = requests.map_err(|names| late(names, REQUESTS_LIMIT))?;
        for pool in self.open_pools() {
            pool.refuse_hand_over(doing, force)?;
            let Some(live) = pool.live() else { continue };
            commit(live, Some(COMMIT_LIMIT)).map_err(|why| {
                ApiError::busy(format!("{doing}: pool '{}' does not commit: {why}", pool.name()))
            })?;
        }
        // Block devices of this machine are clients, too: the kernel writes back through them.
        let detached = self.open_pools().into_iter().try_for_each(|pool| {
            let _changing = device::block_on(pool.change())?;
            pool.detach_devices(|_| true, force).into_iter().next().filter(|_| !force).map_or(Ok(()), Err)
        });
        let clients = detached.and_then(|()| {
            let clients = self.clients_gate().close(CLIENTS_LIMIT);
            clients.map_err(|names| late(names, CLIENTS_LIMIT))
        });
        let clients = clients.inspect_err(|_| self.make_devices_again())?;
        self.close_for_another(doing, force, requests, clients)
    }

    /// Makes the block devices of volumes again that a hand-over removed.
    fn make_devices_again(&self) {
        for pool in self.open_pools() {
            let warnings = device::block_on(async {
                let _changing = pool.change().await.ok()?;
                Some(self.settle_devices_of(&pool).await)
            });
            warnings.iter().flatten().for_each(|warning| tracing::warn!(pool = pool.name(), "{warning}"));
        }
    }

    fn close_for_another(
        self: &Arc<Self>,
        doing: &str,
        force: bool,
        requests: Closed,
        clients: Closed,
    ) -> Result<HandedOver, ApiError> {
        let groups = self.inside_out(self.open_pools());
        let (mut pools, mut keys) = (Vec::new(), Vec::new());
        for pool in groups.iter().flatten().rev() {
            pools.push(pool.opened_as());
            let loaded = device::block_on(pool.loaded_keys());
            keys.extend(loaded.map_err(|error| {
                self.make_devices_again();
                ApiError::failed(format!("{doing}: the keys of '{}' cannot be listed: {error}", pool.name()))
            })?);
        }
        let parked = clients.take();
        self.keep_events();
        let (mounts, stay) = self.give_mounts(&pools, force);
        let order = Order { force, state: PoolState::Exported, command: None, hands_over: true };
        // The owner is this host all the time.
        groups.iter().flatten().for_each(|pool| pool.leave_leases(None));
        let mut failed = stay.err();
        for group in groups {
            if failed.is_none() {
                failed = self.close_side_by_side(group, &order).into_iter().find_map(Result::err);
            }
        }
        // From here on, those who served the clients have no pools.
        clients.give_away();
        let handed = HandedOver { pools, keys, clients: parked, mounts, _requests: requests };
        match failed {
            None => Ok(handed),
            Some(error) => {
                self.take_back(handed);
                Err(error)
            }
        }
    }

    /// Stops serving mounts, the inner ones first: from then on a path through them leads nowhere. Those that
    /// cannot go over are unmounted before. Blocks the thread.
    fn give_mounts(&self, pools: &[OpenedAs], force: bool) -> (Vec<GivenMount>, Result<(), ApiError>) {
        let mut open: Vec<Arc<OpenPool>> = self.open_pools();
        open.retain(|pool| pools.iter().any(|told| told.guid == pool.guid().0));
        let unmounted = open.iter().try_for_each(|pool| {
            let _changing = device::block_on(pool.change())?;
            pool.unmount_those_that_stay(force)
        });
        if unmounted.is_err() {
            return (Vec::new(), unmounted);
        }
        let places = open.iter().flat_map(|pool| {
            pool.mount_places().into_iter().map(move |(name, at)| (Arc::clone(pool), name, at))
        });
        let mut places: Vec<_> = places.collect();
        places.sort_by_key(|(_, _, at)| Reverse(at.components().count()));
        let mut given = Vec::new();
        for (pool, name, _) in places {
            match pool.give_mount(&name) {
                Some(mount) => given.push(mount),
                None if force => {}
                None => {
                    given.reverse();
                    let why = "files that were removed are still open in it, or requests do not end";
                    let message = format!("cannot hand over '{name}': {why}; close them, or force");
                    return (given, Err(ApiError::busy(message)));
                }
            }
        }
        given.reverse();
        (given, Ok(()))
    }

    /// Goes on with what was to be handed over. Blocks the thread.
    pub fn take_back(self: &Arc<Self>, handed: HandedOver) {
        let HandedOver { pools, keys, clients, mounts, _requests: requests } = handed;
        for error in self.take_up(&pools, &keys) {
            tracing::error!("a pool stays closed after a hand-over that failed: {error}");
        }
        self.clients_gate().hand_in(clients);
        self.clients_gate().open();
        self.serve_again(&pools, mounts);
        drop(requests);
    }

    /// Opens pools as another daemon had them, as far as they are not open. What could not be opened. Blocks
    /// the thread.
    pub fn take_up(self: &Arc<Self>, pools: &[OpenedAs], keys: &[LoadedKey]) -> Vec<ApiError> {
        let _taking_up = self.takes_up();
        let opened = pools.iter().map(|pool| {
            let keys = keys.iter().filter(|key| key.pool == pool.guid);
            device::block_on(self.open_as(pool, &keys.collect::<Vec<_>>()))
        });
        opened.filter_map(Result::err).collect()
    }

    /// Goes on with mounts, mounts what else was mounted, and makes block devices, for the owner of the
    /// pools. Blocks the thread.
    pub fn serve_again(self: &Arc<Self>, pools: &[OpenedAs], mut mounts: Vec<GivenMount>) {
        // The outer ones first: paths of the others lead through them.
        mounts.sort_by_key(|mount| mount.told.mounted.mountpoint.components().count());
        for mount in mounts {
            let open = self.open_pools().into_iter().find(|open| mount.told.is_of(open.name()));
            match open {
                Some(open) => device::block_on(async {
                    match open.change().await {
                        Ok(changing) => self.resume_mounts(&open, &changing, vec![mount]).await,
                        Err(_) => mount.cut(),
                    }
                }),
                None => mount.cut(),
            }
        }
        for pool in pools {
            let Some(open) = self.find_pool(&pool.name) else { continue };
            device::block_on(async {
                let Ok(changing) = open.change().await else { return };
                let mut others = pool.mounts.clone();
                others.retain(|mount| !open.is_mounted(&mount.dataset));
                self.mount_again(&open, &changing, others).await;
            });
        }
        self.make_devices_again();
    }

    async fn open_as(&self, pool: &OpenedAs, keys: &[&LoadedKey]) -> Result<(), ApiError> {
        if self.open_pools().iter().any(|open| open.guid().0 == pool.guid) {
            return Ok(());
        }
        let failed = |why: &str| ApiError::failed(format!("cannot open '{}' again: {why}", pool.name));
        let devices = pool.devices.iter().map(|(guid, path)| (Guid(*guid), path.clone())).collect();
        let guid = Guid(pool.guid);
        let cached = Cached { name: pool.name.clone(), guid, devices, config: Nvlist::new() };
        let found = self.search_for(&[cached]).await?;
        let found = found.into_iter().next().ok_or_else(|| failed("its devices are not found"))?;
        let mut properties = Vec::new();
        if pool.is_read_only {
            properties.push(("readonly".to_owned(), "on".to_owned()));
        }
        properties.extend(pool.cachefile.iter().map(|file| ("cachefile".to_owned(), file.clone())));
        let is_temporary = found.name != pool.name;
        let request = api::ImportPool {
            new_name: is_temporary.then(|| pool.name.clone()),
            temporary: is_temporary,
            altroot: pool.altroot.clone(),
            mount_options: pool.mount_options.clone(),
            properties,
            no_mount: true,
            ..api::ImportPool::default()
        };
        let options = Options::parse(&request)?;
        let opened = self.import_one(&found, &request, &options).await?;
        let mut warnings = opened.warnings;
        let open = self.pool(&pool.name)?;
        open.unshare_again(&pool.unshared);
        let changing = open.change().await?;
        for LoadedKey { root, key, .. } in keys {
            let loaded = match WrappingKey::from_raw(key.bytes()) {
                Ok(key) => self.load_again(&open, &changing, root, &Arc::new(key)).await,
                Err(error) => Err(ApiError::failed(error.to_string())),
            };
            warnings.extend(match loaded {
                Ok(warnings) => warnings,
                Err(error) => vec![format!("the key of '{root}' is not loaded any more: {error}")],
            });
        }
        warnings.iter().for_each(|warning| tracing::warn!(pool = pool.name, "{warning}"));
        Ok(())
    }
}

impl OpenPool {
    /// Refuses where users of the pool would notice more than a pause.
    fn refuse_hand_over(&self, doing: &str, force: bool) -> Result<(), ApiError> {
        let name = self.name();
        if self.is_suspended() {
            return Err(ApiError::refused(format!(
                "{doing}: pool '{name}' is suspended: its devices do not answer"
            )));
        }
        if let Some(error) = self.live().and_then(|live| live.txgs().stopped()) {
            return Err(ApiError::refused(format!("{doing}: pool '{name}' commits nothing more: {error}")));
        }
        if force {
            return Ok(());
        }
        if self.receives.are_under_way() {
            return Err(ApiError::busy(format!(
                "{doing}: a stream is being received into '{name}': wait for it, or force"
            )));
        }
        let stay: Vec<_> = self.mounts_that_stay().into_iter().map(|(_, mount)| mount).collect();
        let in_use = fuse::require_unused(&stay).map_err(mount_error).err();
        let in_use = in_use.or_else(|| self.devices.in_use());
        match in_use {
            None => Ok(()),
            Some(ApiError { kind, message }) => {
                let message = format!("{doing}: {message}\nclose what uses it, or force");
                Err(ApiError { kind, message })
            }
        }
    }

    /// How it is open.
    fn opened_as(&self) -> OpenedAs {
        let view = self.view();
        let cached = Cached::of(self.name(), view.config().raw.clone());
        let devices = cached.map(|cached| cached.devices).unwrap_or_default();
        OpenedAs {
            name: self.name().to_owned(),
            guid: self.guid().0,
            devices: devices.into_iter().map(|(guid, path)| (guid.0, path)).collect(),
            is_read_only: self.live().is_none(),
            altroot: self.altroot().map(ToOwned::to_owned),
            cachefile: self.cachefile(),
            mount_options: self.mount_options().to_vec(),
            mounts: self.mounts_deepest_first(),
            unshared: self.unshared(),
        }
    }

    /// The keys that are loaded.
    async fn loaded_keys(&self) -> engine::Result<Vec<LoadedKey>> {
        let dsl = self.dsl().await?;
        let mut keys = Vec::new();
        for root in dsl.encryption_roots(None).await? {
            let Some(key) = dsl.pool().keystore().wrapping(root.dir.object) else { continue };
            let key = Secret::from(key.for_another_process().to_vec());
            keys.push(LoadedKey { pool: self.guid().0, root: root.dir.name.clone(), key });
        }
        Ok(keys)
    }
}
