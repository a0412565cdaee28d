//! Setting and inheriting properties.

use engine::dsl::Kind;
use engine::events::feed::What;
use engine::properties::{Prop, Types, kept};

use super::userspace::{Quota, open_for_quotas, set_quotas, take_quotas};
use crate::api::{self, ApiError, PropertiesSet, ReshapeAction};
use crate::daemon::mounts::remount::{MountChange, Remounting};
use crate::daemon::names::is_at_or_below;
use crate::daemon::refusals::said;
use crate::daemon::volumes::sharing;
use crate::daemon::{Daemon, dataset_error, not_of_this_type};
use crate::daemon::{names, sync_tasks};
use crate::sizes::parse_size;

impl Daemon {
    /// Sets properties of datasets, each although others may fail.
    ///
    /// # Errors
    /// None: a dataset whose properties cannot be set, or that cannot be mounted then, becomes an entry of
    /// `failed`.
    pub async fn set_properties(&self, request: api::SetProperties) -> Result<PropertiesSet, ApiError> {
        let mut set = PropertiesSet::default();
        let change = match request.no_mount {
            true => MountChange::default(),
            false => moves(&request.properties),
        };
        for name in &request.datasets {
            let doing = format!("cannot set property for '{name}'");
            if let Ok(pool) = self.pool_of(name)
                && let Err(error) = pool.check_zone(&doing, Some(name), &request.properties).await
            {
                set.failed.push(error);
                continue;
            }
            if let Err(error) = sharing::check(&doing, &request.properties) {
                set.failed.push(error);
                continue;
            }
            let (dataset, mut properties) = (name.clone(), request.properties.clone());
            let quotas = match take_quotas(&doing, &mut properties) {
                Ok(quotas) => quotas,
                Err(error) => {
                    set.failed.push(error);
                    continue;
                }
            };
            let block = match self.take_volblocksize(&doing, name, &mut properties).await {
                Ok(block) => block,
                Err(error) => {
                    set.failed.push(error);
                    continue;
                }
            };
            if let Some(block) = block.filter(|_| properties.is_empty() && quotas.is_empty()) {
                self.reshape_as_set(name, block, request.command.clone(), &mut set).await;
                continue;
            }
            let changed = self.with_mounts(
                &doing,
                name,
                (change, &quotas),
                &mut set,
                request.command.clone(),
                move |s| async move {
                    match properties.is_empty() {
                        true => Ok(None),
                        false => sync_tasks::set(&s, &dataset, &properties).await,
                    }
                },
            );
            match (changed.await, block) {
                (Err(error), _) => set.failed.push(error),
                (Ok(()), Some(block)) => self.reshape_as_set(name, block, None, &mut set).await,
                (Ok(()), None) => {}
            }
        }
        if set.failed.len() < request.datasets.len() {
            set.warnings.extend(kept::notes(&request.properties));
            set.warnings.extend(self.nfs_notes(&request.properties));
        }
        Ok(set)
    }

    /// Takes the block size that a volume is to have out of the properties that are to be set. Refuses what
    /// cannot be set while a volume is copied for another one.
    async fn take_volblocksize(
        &self,
        doing: &str,
        name: &str,
        properties: &mut Vec<(String, String)>,
    ) -> Result<Option<u64>, ApiError> {
        let has = |wanted: Prop| properties.iter().any(|(name, _)| Prop::from_name(name) == Some(wanted));
        let Ok(pool) = self.pool_of(name) else { return Ok(None) };
        pool.refuse_copies(doing, |copy| copy == name)?;
        if has(Prop::Volsize) {
            pool.refuse_reshaped(doing, |volume| volume == name)?;
        }
        if !has(Prop::Volblocksize) || pool.volumes().get(name).is_none() {
            return Ok(None);
        }
        let mut taken =
            properties.extract_if(.., |(name, _)| Prop::from_name(name) == Some(Prop::Volblocksize));
        let block = taken.next().map(|(_, text)| parse_size(&text));
        let block = block.transpose().map_err(|fault| ApiError::invalid(format!("{doing}: {fault}")))?;
        match taken.next() {
            Some(_) => Err(ApiError::invalid(format!("{doing}: 'volblocksize' is given more than once"))),
            None => Ok(block),
        }
    }

    /// Begins to give a volume another block size because a property says so.
    async fn reshape_as_set(
        &self,
        name: &str,
        volblocksize: u64,
        command: Option<String>,
        set: &mut PropertiesSet,
    ) {
        let (volume, action) = (name.to_owned(), ReshapeAction::Start);
        let begun =
            self.reshape_volume(api::ReshapeVolume { volume, action, volblocksize, dry_run: false, command });
        match begun.await {
            Ok(plan) => {
                let time = plan.and_then(|plan| plan.time);
                let takes =
                    time.map_or_else(String::new, |time| format!(", for at least {} s", time.seconds));
                set.warnings.push(format!(
                    "'{name}' is being copied, with blocks of {volblocksize} bytes{takes}, and can be used \
                     meanwhile; 'cenote reshape {name} --status' shows how far it is"
                ));
            }
            Err(error) => set.failed.push(error),
        }
    }

    /// Takes a property away from datasets.
    ///
    /// # Errors
    /// None: a dataset that fails becomes an entry of `failed`.
    pub async fn inherit_property(&self, request: api::InheritProperty) -> Result<PropertiesSet, ApiError> {
        let mut set = PropertiesSet::default();
        for top in &request.datasets {
            let prop = Prop::from_name(&request.property);
            let names = match self.names_below(top, request.recursive, prop).await {
                Ok(names) => names,
                Err(error) => {
                    set.failed.push(error);
                    continue;
                }
            };
            let mut command = request.command.clone();
            for name in names {
                let doing = format!("cannot inherit {} for '{name}'", request.property);
                let (dataset, property, received) =
                    (name.clone(), request.property.clone(), request.received);
                let is_mountpoint = prop == Some(Prop::Mountpoint);
                let zoned = prop == Some(Prop::Zoned) && (received || self.is_zoned_above(&name).await);
                let change = MountChange {
                    mountpoint: is_mountpoint.then_some(None),
                    off: false,
                    zoned,
                    acls: prop == Some(Prop::Acltype),
                };
                let changed = self.with_mounts(
                    &doing,
                    &name,
                    (change, &[]),
                    &mut set,
                    command.take(),
                    move |s| async move { sync_tasks::inherit(&s, &dataset, &property, received).await },
                );
                if let Err(error) = changed.await {
                    set.failed.push(error);
                }
            }
        }
        Ok(set)
    }

    /// Whether a filesystem without a value of its own would be zoned.
    async fn is_zoned_above(&self, name: &str) -> bool {
        let (Some(above), Ok(pool)) = (names::parent_of(name), self.pool_of(name)) else { return false };
        pool.mount_plan_of(above).await.is_ok_and(|place| place.is_zoned)
    }

    /// The datasets to remove a property from: with `-r` all below `top` that can have it.
    async fn names_below(
        &self,
        top: &str,
        recursive: bool,
        prop: Option<Prop>,
    ) -> Result<Vec<String>, ApiError> {
        let pool = self.pool_of(top)?;
        let failed = |error| dataset_error("open", top, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let entry = dsl.entry(top).await.map_err(failed)?;
        match (recursive, entry.kind) {
            (true, Kind::Filesystem | Kind::Volume) => {
                let dir = dsl.find_dir(top).await.map_err(failed)?;
                let mut names = Vec::new();
                for dir in dsl.dirs(&dir).await.map_err(failed)? {
                    let types = match dsl.entry(&dir.name).await.map_err(failed)?.kind {
                        Kind::Volume => Types::VOLUME,
                        _ => Types::FILESYSTEM,
                    };
                    if prop.is_none_or(|prop| prop.desc().valid_for(types, false)) {
                        names.push(dir.name.clone());
                    }
                }
                Ok(names)
            }
            _ => Ok(vec![top.to_owned()]),
        }
    }

    /// Makes a change of one dataset, quotas of its users among it. What is mounted somewhere else then is
    /// taken down before and put up after it.
    async fn with_mounts<F>(
        &self,
        doing: &str,
        name: &str,
        (change, quotas): (MountChange<'_>, &[Quota]),
        set: &mut PropertiesSet,
        command: Option<String>,
        task: impl FnOnce(engine::pool::live::Syncing) -> F + Send + 'static,
    ) -> Result<(), ApiError>
    where
        F: Future<Output = engine::Result<Option<sync_tasks::Left>>> + Send + 'static,
    {
        let pool = self.pool_of(name)?;
        let failed = |error| dataset_error("open", name, error);
        if pool.dsl().await.map_err(failed)?.entry(name).await.map_err(failed)?.kind == Kind::Bookmark {
            return Err(not_of_this_type(name));
        }
        let live = pool.writable(doing)?;
        let changing = pool.change().await?;
        let moving = match change.moves() {
            true => self.begin_remount(&pool, &changing, name, change).await?,
            false => Remounting::default(),
        };
        let changed = async {
            // What can be refused of quotas is before anything is changed.
            let with_quotas = open_for_quotas(&pool, live, name, quotas).await?;
            let left = sync_tasks::change(live, command, task).await?;
            if let Some(filesystem) = with_quotas {
                set_quotas(live, &filesystem, quotas).await?;
            }
            if let Some(left) = left {
                let id = pool.dsl().await?.find(name).await?.objset_id();
                left.finish(live, id).await?;
                if let sync_tasks::Left::Resize(bytes) = left {
                    pool.tell(What::Resized { name: name.to_owned(), bytes });
                }
            }
            Ok(())
        };
        if let Err(error) = changed.await {
            self.cancel_remount(&pool, &changing, moving).await;
            return Err(said(doing, error));
        }
        for error in self.finish_remount(&pool, &changing, moving).await {
            set.failed.push(not_mounted(error));
        }
        let is_meant = |mounted: &str| is_at_or_below(mounted, name);
        let updated = self.update_mounts(&pool, &changing, change.acls, is_meant).await;
        set.failed.extend(updated.into_iter().map(not_mounted));
        if let Err(error) = pool.follow_volumes().await {
            set.warnings.push(format!("not all volumes of '{}' are served: {error}", pool.name()));
        }
        Ok(())
    }
}

/// The message that a property was set but a filesystem could not be mounted accordingly.
fn not_mounted(error: ApiError) -> ApiError {
    let message = format!("property may be set but unable to remount filesystem: {}", error.message);
    ApiError { message, ..error }
}

/// How properties that are to be set affect mounts.
fn moves(properties: &[(String, String)]) -> MountChange<'_> {
    let mut change = MountChange::default();
    for (name, value) in properties {
        match Prop::from_name(name) {
            Some(Prop::Mountpoint) => change.mountpoint = Some(Some(value)),
            Some(Prop::Canmount) => change.off = value == "off",
            Some(Prop::Zoned) => change.zoned = value == "on",
            Some(Prop::Acltype) => change.acls = true,
            _ => {}
        }
    }
    change
}
