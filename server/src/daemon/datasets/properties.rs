//! Setting and inheriting properties.

use std::sync::Arc;

use engine::dataset::dsl::Kind;
use engine::dataset::properties::Prop;

use super::super::{Daemon, OpenPool, dataset_error, edits};
use super::userspace::{Quota, set_quotas, take_quotas};
use super::{is_at_or_below, said};
use crate::api::{self, ApiError, Mounted, PropertiesSet};

/// Properties that say where and whether a filesystem is mounted.
const PLACES: [Prop; 2] = [Prop::Mountpoint, Prop::Canmount];

impl Daemon {
    /// Sets properties of datasets, each although others may fail.
    ///
    /// # Errors
    /// None: a dataset whose properties cannot be set becomes an entry of `failed`.
    pub async fn set_properties(&self, request: api::SetProperties) -> Result<PropertiesSet, ApiError> {
        let mut set = PropertiesSet::default();
        let moves = request.properties.iter().any(|(name, _)| is_place(name)) && !request.no_mount;
        for name in &request.datasets {
            let doing = format!("cannot set property for '{name}'");
            let (dataset, mut properties) = (name.clone(), request.properties.clone());
            let quotas = match take_quotas(&doing, &mut properties) {
                Ok(quotas) => quotas,
                Err(error) => {
                    set.failed.push(error);
                    continue;
                }
            };
            let changed = self.with_mounts(
                &doing,
                name,
                (moves, &quotas),
                &mut set,
                request.command.clone(),
                move |s| async move {
                    match properties.is_empty() {
                        true => Ok(None),
                        false => edits::set(&s, &dataset, &properties).await,
                    }
                },
            );
            if let Err(error) = changed.await {
                set.failed.push(error);
            }
        }
        Ok(set)
    }

    /// Takes a property away from datasets.
    ///
    /// # Errors
    /// None: a dataset that fails becomes an entry of `failed`.
    pub async fn inherit_property(&self, request: api::InheritProperty) -> Result<PropertiesSet, ApiError> {
        let mut set = PropertiesSet::default();
        for top in &request.datasets {
            let names = match self.names_below(top, request.recursive).await {
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
                let moves = is_place(&property);
                let changed = self.with_mounts(
                    &doing,
                    &name,
                    (moves, &[]),
                    &mut set,
                    command.take(),
                    move |s| async move { edits::inherit(&s, &dataset, &property, received).await },
                );
                if let Err(error) = changed.await {
                    set.failed.push(error);
                }
            }
        }
        Ok(set)
    }

    async fn names_below(&self, top: &str, recursive: bool) -> Result<Vec<String>, ApiError> {
        let pool = self.pool_of(top)?;
        let failed = |error| dataset_error("open", top, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let entry = dsl.entry(top).await.map_err(failed)?;
        match (recursive, entry.kind) {
            (true, Kind::Filesystem | Kind::Volume) => {
                let dir = dsl.find_dir(top).await.map_err(failed)?;
                let dirs = dsl.dirs(&dir).await.map_err(failed)?;
                Ok(dirs.iter().map(|dir| dir.name.clone()).collect())
            }
            _ => Ok(vec![top.to_owned()]),
        }
    }

    /// Makes a change of one dataset, quotas of its users among it. Where that `moves` mounts, they are taken down before and put up after it.
    async fn with_mounts<F>(
        &self,
        doing: &str,
        name: &str,
        (moves, quotas): (bool, &[Quota]),
        set: &mut PropertiesSet,
        command: Option<String>,
        task: impl FnOnce(engine::pool::live::Syncing) -> F + Send + 'static,
    ) -> Result<(), ApiError>
    where
        F: Future<Output = engine::Result<Option<u64>>> + Send + 'static,
    {
        let pool = self.pool_of(name)?;
        let failed = |error| dataset_error("open", name, error);
        pool.dsl().await.map_err(failed)?.lookup(name).await.map_err(failed)?;
        let live = pool.writable(doing)?;
        let changing = pool.change().await?;
        let unmounted = match moves {
            true => {
                self.unmount_mounts(&pool, &changing, false, |mounted| is_at_or_below(mounted, name)).await?
            }
            false => Vec::new(),
        };
        let changed = async {
            set_quotas(&pool, live, name, quotas).await?;
            if let Some(bytes) = edits::change(live, command, task).await? {
                let id = pool.dsl().await?.find(name).await?.objset_id();
                edits::resize(live, id, bytes).await?;
            }
            Ok(())
        };
        if let Err(error) = changed.await {
            self.mount_again(&pool, &changing, unmounted).await;
            return Err(said(doing, error));
        }
        if moves {
            self.mount_moved(&pool, &changing, name, &unmounted, set).await;
        } else {
            let updated = self.update_mounts(&pool, &changing, |mounted| is_at_or_below(mounted, name)).await;
            set.warnings.extend(updated);
        }
        if let Err(error) = pool.find_volumes().await {
            set.warnings.push(format!("not all volumes of '{}' are served: {error}", pool.name()));
        }
        Ok(())
    }

    /// Mounts what was mounted, and the dataset itself, where they are to be now.
    async fn mount_moved(
        &self,
        pool: &Arc<OpenPool>,
        changing: &super::super::pools::Changing<'_>,
        name: &str,
        unmounted: &[Mounted],
        set: &mut PropertiesSet,
    ) {
        let others =
            unmounted.iter().rev().map(|mount| mount.dataset.as_str()).filter(|other| *other != name);
        for filesystem in [name].into_iter().chain(others) {
            if let Err(error) = self.mount_if_wanted(pool, changing, filesystem).await {
                set.warnings.push(format!("property may be set but unable to remount filesystem: {error}"));
            }
        }
    }
}

fn is_place(name: &str) -> bool {
    Prop::from_name(name).is_some_and(|prop| PLACES.contains(&prop))
}
