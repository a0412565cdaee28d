//! Names of datasets and snapshots, and promotion.

use engine::dsl::{Kind, edit};

use super::create::missing_parents;
use super::entry;
use crate::api::{self, ApiError, DatasetKind, Warnings};
use crate::daemon::names;
use crate::daemon::names::is_at_or_below;
use crate::daemon::refusals::said;
use crate::daemon::sync_tasks::{self, New};
use crate::daemon::{Daemon, dataset_error, not_of_this_type};

impl Daemon {
    /// Renames a filesystem, volume, or snapshot.
    ///
    /// # Errors
    /// A bad name, one that exists, another pool; it is in use.
    pub async fn rename_dataset(&self, request: api::RenameDataset) -> Result<Warnings, ApiError> {
        let from = &request.from;
        let doing = format!("cannot rename '{from}'");
        let pool = self.pool_of(from)?;
        let failed = |error| dataset_error("open", from, error);
        let there = pool.dsl().await.map_err(failed)?.entry(from).await.map_err(failed)?;
        match there.kind {
            Kind::Snapshot { .. } => return self.rename_snapshot(&request).await,
            Kind::Bookmark => return Err(not_of_this_type(from)),
            _ => {}
        }
        if request.recursive {
            return Err(ApiError::invalid(format!("{doing}: recursive rename must be a snapshot")));
        }
        let to = &request.to;
        if from == to {
            return Ok(Warnings::default());
        }
        if let Some(fault) = names::dataset_name_fault(to, DatasetKind::Filesystem) {
            return Err(ApiError::invalid(format!("cannot create '{to}': {fault}")));
        }
        let refuse = |why: &str| Err(ApiError::refused(format!("{doing}: {why}")));
        if names::parent_of(from).is_none() {
            return refuse(
                "the root dataset of a pool has the pool's name; export the pool and import it under another",
            );
        }
        if names::pool_of(from) != names::pool_of(to) {
            return refuse("datasets must be within same pool");
        }
        if is_at_or_below(to, from) {
            return refuse("New dataset name cannot be a descendant of current dataset name");
        }
        let dsl = pool.dsl().await.map_err(failed)?;
        let making = format!("cannot rename to '{to}'");
        if entry(&dsl, to).await.map_err(failed)?.is_some() {
            return Err(ApiError::busy(format!("{making}: dataset already exists")));
        }
        let missing = missing_parents(&dsl, to, request.parents.then_some(&|_| false), &making)
            .await?
            .unwrap_or_default();
        drop(dsl);
        let live = pool.writable(&doing)?;
        let changing = pool.change().await?;
        pool.refuse_reshaped(&doing, |volume| is_at_or_below(volume, from))?;
        let _closed = pool.keep_unused(&doing, |volume| is_at_or_below(volume, from))?;
        let top = from.clone();
        let _shares = pool.close_shares(&doing, move |name| is_at_or_below(name, &top))?;
        let how = (request.no_remount, request.force);
        let moving = self.begin_rename(&pool, &changing, (from, to), how).await?;
        let (old, new) = (from.clone(), to.clone());
        let made = missing.clone();
        let done = sync_tasks::change(live, request.command, move |s| async move {
            for name in missing {
                sync_tasks::create(&s, &New::filesystem(name)).await?;
            }
            edit::rename(&s, &old, &new).await
        });
        if let Err(error) = done.await {
            self.cancel_remount(&pool, &changing, moving).await;
            return Err(said(&doing, error));
        }
        pool.rename_asked_devices(from, to);
        let mut failed = Vec::new();
        for parent in &made {
            failed.extend(self.mount_if_wanted(&pool, &changing, parent).await.err());
        }
        failed.extend(self.finish_rename(&pool, &changing, (from, to), moving).await);
        let mut warnings: Vec<String> = failed.into_iter().map(|error| error.message).collect();
        if let Err(error) = pool.find_volumes().await {
            warnings.push(format!("not all volumes of '{}' are served: {error}", pool.name()));
        }
        Ok(Warnings { warnings })
    }

    async fn rename_snapshot(&self, request: &api::RenameDataset) -> Result<Warnings, ApiError> {
        let from = &request.from;
        let doing = format!("cannot rename '{from}'");
        let (of, _) = from.split_once('@').unwrap_or((from, ""));
        let to = match request.to.split_once('@') {
            Some(("", short)) => format!("{of}@{short}"),
            Some(_) => request.to.clone(),
            None if request.to.contains('/') => {
                return Err(ApiError::invalid(format!(
                    "cannot create '{}': missing '@' delimiter in snapshot name",
                    request.to
                )));
            }
            None => format!("{of}@{}", request.to),
        };
        names::check_dataset_name("create", &to, DatasetKind::Snapshot)?;
        let (to_of, short) = to.split_once('@').unwrap_or((&to, ""));
        if to_of != of {
            return Err(ApiError::invalid(format!("{doing}: snapshots must be part of same dataset")));
        }
        if *from == to {
            return Ok(Warnings::default());
        }
        let pool = self.pool_of(from)?;
        let live = pool.writable(&doing)?;
        let failed = |error| said(&doing, error);
        if entry(&*pool.dsl().await.map_err(failed)?, &to).await.map_err(failed)?.is_some() {
            return Err(ApiError::busy(format!("{doing}: dataset already exists")));
        }
        let changing = pool.change().await?;
        let mut renamed = vec![(from.clone(), to.clone())];
        if request.recursive {
            let dsl = pool.dsl().await.map_err(failed)?;
            let top = dsl.find_dir(of).await.map_err(failed)?;
            let old = from.rsplit_once('@').map_or("", |(_, short)| short);
            for dir in dsl.dirs(&top).await.map_err(failed)?.iter().filter(|dir| dir.object != top.object) {
                let head = dsl.head(dir).await.map_err(failed)?;
                if dsl.snapshot(&head, old).await.map_err(failed)?.is_some() {
                    if dsl.snapshot(&head, short).await.map_err(failed)?.is_some() {
                        return Err(ApiError::busy(format!(
                            "cannot rename '{}@{old}': a child dataset already has a snapshot with the new \
                             name",
                            dir.name
                        )));
                    }
                    renamed.push((format!("{}@{old}", dir.name), format!("{}@{short}", dir.name)));
                }
            }
        }
        let is_meant = |name: &str| renamed.iter().any(|(old, _)| old == name);
        let _closed = pool.keep_unused(&doing, is_meant)?;
        let stay_mounted = pool.in_use_where(is_meant);
        let names = renamed.clone();
        let done = sync_tasks::change(live, request.command.clone(), move |s| async move {
            edit::rename_snapshots(&s, &renamed).await
        });
        done.await.map_err(failed)?;
        names.iter().for_each(|(old, new)| pool.rename_asked_devices(old, new));
        let mut warnings = Vec::new();
        for (old, new) in names.iter().filter(|(old, _)| stay_mounted.contains(old)) {
            pool.rename_mount(old, new, false);
            if !request.no_remount {
                warnings.extend(pool.show_name(new).err().map(|error| error.message));
            }
        }
        if let Err(error) = pool.follow_volumes().await {
            warnings.push(format!("not all volumes of '{}' are served: {error}", pool.name()));
        }
        drop(changing);
        Ok(Warnings { warnings })
    }

    /// Makes a clone the origin of what it was cloned from.
    ///
    /// # Errors
    /// It is no clone.
    pub async fn promote(&self, request: api::Promote) -> Result<(), ApiError> {
        let name = &request.dataset;
        let doing = format!("cannot promote '{name}'");
        let pool = self.pool_of(name)?;
        let failed = |error| dataset_error("open", name, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let there = dsl.entry(name).await.map_err(failed)?;
        if there.kind == Kind::Bookmark {
            return Err(not_of_this_type(name));
        }
        let Some(dataset) = there.dataset().filter(|dataset| !dataset.is_snapshot()) else {
            return Err(ApiError::invalid(format!("{doing}: snapshots can not be promoted")));
        };
        let Some(origin) = dsl.origin(&dataset.dir).await.map_err(failed)? else {
            return Err(ApiError::refused(format!("{doing}: not a cloned filesystem")));
        };
        // Its snapshots would go to the clone, and so would those that are being copied.
        let of = origin.split_once('@').map_or(origin.as_str(), |(of, _)| of).to_owned();
        pool.refuse_reshaped(&doing, |volume| volume == of)?;
        drop(dsl);
        let live = pool.writable(&doing)?;
        let _changing = pool.change().await?;
        let clone = name.clone();
        let done =
            sync_tasks::change(
                live,
                request.command,
                move |s| async move { edit::promote(&s, &clone).await },
            );
        done.await.map_err(|error| said(&doing, error))?;
        pool.follow_volumes().await.map_err(|error| said(&doing, error))
    }
}
