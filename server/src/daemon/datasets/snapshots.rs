//! Taking, holding and bookmarking snapshots, and going back to one.

use std::collections::HashSet;
use std::time::Duration;

use engine::dsl::{Found, Kind};
use ondisk::dsl_dataset::FLAG_DEFER_DESTROY;

use super::destroy::clones_and_dependents;
use super::entry;
use crate::api::{self, ApiError, DatasetKind, Warnings};
use crate::daemon::refusals::said;
use crate::daemon::volumes::clients::Connected;
use crate::daemon::volumes::held_clients::InUse;
use crate::daemon::{Daemon, dataset_error, not_of_this_type};
use crate::daemon::{names, sync_tasks};

/// How long requests of clients may take that a rollback waits for.
const REQUESTS_LIMIT: Duration = Duration::from_secs(30);

impl Daemon {
    /// Takes snapshots of datasets of one pool, all in the same moment.
    ///
    /// # Errors
    /// A bad name, a dataset that does not exist, a snapshot that does, datasets of several pools.
    pub async fn take_snapshots(&self, request: api::TakeSnapshots) -> Result<Vec<String>, ApiError> {
        let first = request.names.first().map_or("", String::as_str);
        for name in &request.names {
            names::check_dataset_name("create snapshot", name, DatasetKind::Snapshot)?;
            if names::pool_of(name) != names::pool_of(first) {
                let detail = "they are taken at the same moment and so must be in one pool";
                return Err(ApiError::invalid(format!(
                    "cannot create snapshots '{first}' and '{name}': {detail}"
                )));
            }
        }
        let doing = format!("cannot create snapshot '{first}'");
        let pool = self.pool_of(first)?;
        let live = pool.writable(&doing)?;
        let all = self.snapshots_of(&request.names, request.recursive).await?;
        let mut seen = HashSet::new();
        if let Some(twice) = all.iter().find(|name| !seen.insert(name.split('@').next())) {
            return Err(ApiError::invalid(format!(
                "cannot create snapshot '{twice}': multiple snapshots of same fs not allowed\n\
                 no snapshots were created"
            )));
        }
        pool.refuse_copies(&doing, |copy| all.iter().any(|name| name.split('@').next() == Some(copy)))?;
        let dsl = pool.dsl().await.map_err(|error| said(&doing, error))?;
        for name in &all {
            let doing = format!("cannot create snapshot '{name}'");
            if entry(&dsl, name).await.map_err(|error| said(&doing, error))?.is_some() {
                let rest = if all.len() > 1 { "\nno snapshots were created" } else { "" };
                return Err(ApiError::busy(format!("{doing}: dataset already exists{rest}")));
            }
        }
        drop(dsl);
        let adding = pool.add().await?;
        pool.write_back(|mounted| all.iter().any(|name| name.split('@').next() == Some(mounted)));
        let (wanted, properties) = (all.clone(), request.properties.clone());
        let done = sync_tasks::change(live, request.command.clone(), move |s| async move {
            sync_tasks::snapshot(&s, &wanted, &properties).await
        });
        done.await.map_err(|error| said(&doing, error))?;
        drop(adding);
        self.catch_up_in(&pool).await;
        Ok(all)
    }

    /// The snapshots of these names, and with `recursive` those that everything below would have.
    async fn snapshots_of(&self, names: &[String], recursive: bool) -> Result<Vec<String>, ApiError> {
        let mut all = Vec::new();
        for name in names {
            let (of, short) = name.split_once('@').unwrap_or((name, ""));
            let pool = self.pool_of(of)?;
            let failed = |error| dataset_error("open", of, error);
            let dsl = pool.dsl().await.map_err(failed)?;
            let dir = dsl.find_dir(of).await.map_err(failed)?;
            let dirs = if recursive { dsl.dirs(&dir).await.map_err(failed)? } else { vec![dir] };
            let copies = pool.unfinished_copies();
            let is_left_out = |name: &String| name.contains(['$', '%']) || recursive && copies.contains(name);
            let shown = dirs.iter().map(|dir| &dir.name).filter(|name| !is_left_out(name));
            all.extend(shown.map(|name| format!("{name}@{short}")));
        }
        let mut seen = HashSet::new();
        all.retain(|name| seen.insert(name.clone()));
        Ok(all)
    }

    /// Holds snapshots, or releases them.
    ///
    /// # Errors
    /// A snapshot that does not exist, or that has the hold already (or not).
    pub async fn hold_snapshots(&self, request: api::HoldSnapshots) -> Result<(), ApiError> {
        let verb = if request.release { "release hold from" } else { "hold" };
        for name in &request.snapshots {
            let doing = format!("cannot {verb} snapshot '{name}'");
            let Some((of, short)) = name.split_once('@') else {
                return Err(ApiError::invalid(format!("'{name}' is not a snapshot")));
            };
            let pool = self.pool_of(name)?;
            let live = pool.writable(&doing)?;
            let failed = |error| said(&doing, error);
            let dsl = pool.dsl().await.map_err(failed)?;
            let dir = dsl.find_dir(of).await.map_err(failed)?;
            let dirs = if request.recursive { dsl.dirs(&dir).await.map_err(failed)? } else { vec![dir] };
            let (mut wanted, mut waiting) = (Vec::new(), Vec::new());
            for dir in dirs {
                let head = dsl.head(&dir).await.map_err(failed)?;
                let Some(snapshot) = dsl.snapshot(&head, short).await.map_err(failed)? else { continue };
                let tags = dsl.holds(&snapshot).await.map_err(failed)?;
                let held = tags.iter().any(|hold| hold.tag == request.tag);
                let doing = format!("cannot {verb} snapshot '{}'", snapshot.name);
                match (request.release, held) {
                    (false, true) => {
                        return Err(ApiError::busy(format!("{doing}: tag already exists on this dataset")));
                    }
                    (true, false) if !request.recursive => {
                        return Err(ApiError::not_found(format!("{doing}: no such tag on this dataset")));
                    }
                    (true, false) => {}
                    (release, _) => {
                        if release && snapshot.phys.has(FLAG_DEFER_DESTROY) {
                            waiting.push(snapshot.name.clone());
                        }
                        wanted.push(snapshot.name);
                    }
                }
            }
            if wanted.is_empty() {
                let why = if request.release && request.recursive {
                    "no such tag on this dataset"
                } else {
                    "dataset does not exist"
                };
                return Err(ApiError::not_found(format!("{doing}: {why}")));
            }
            drop(dsl);
            // Those that wait for being destroyed may go with their last hold.
            let changing = if waiting.is_empty() { None } else { Some(pool.change().await?) };
            let is_waiting = |volume: &str| waiting.iter().any(|name| name == volume);
            let _closed = changing.is_some().then(|| pool.keep_unused(&doing, is_waiting)).transpose()?;
            let (tag, release) = (request.tag.clone(), request.release);
            let done = sync_tasks::change(live, request.command.clone(), move |s| async move {
                match release {
                    true => sync_tasks::release(&s, &wanted, &tag).await,
                    false => sync_tasks::hold(&s, &wanted, &tag).await,
                }
            });
            done.await.map_err(failed)?;
            if !waiting.is_empty() {
                pool.follow_volumes().await.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Bookmarks a snapshot, or copies a bookmark.
    ///
    /// # Errors
    /// A bad name; the bookmark exists; the source does not.
    pub async fn create_bookmark(&self, request: api::CreateBookmark) -> Result<(), ApiError> {
        let (mark, source) = (&request.bookmark, &request.source);
        let doing = format!("cannot create bookmark '{mark}'");
        names::check_dataset_name("create bookmark", mark, DatasetKind::Bookmark)?;
        let pool = self.pool_of(source)?;
        let live = pool.writable(&doing)?;
        let failed = |error| said(&doing, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        match dsl.lookup(source).await.map_err(failed)? {
            Found::Dataset(dataset) if !dataset.is_snapshot() => {
                return Err(ApiError::invalid(format!(
                    "{doing}: invalid source name '{source}': must contain a '@' or '#'"
                )));
            }
            _ => {}
        }
        if entry(&dsl, mark).await.map_err(failed)?.is_some() {
            return Err(ApiError::busy(format!("{doing}: bookmark exists")));
        }
        drop(dsl);
        let (new, of) = (mark.clone(), source.clone());
        let done = sync_tasks::change(live, request.command, move |s| async move {
            sync_tasks::bookmark(&s, &new, &of).await
        });
        done.await.map_err(failed)
    }

    /// Takes a filesystem or volume back to a snapshot.
    ///
    /// # Errors
    /// Later snapshots that were not allowed to go; it is in use.
    pub async fn rollback(&self, request: api::Rollback) -> Result<Warnings, ApiError> {
        let name = &request.snapshot;
        let pool = self.pool_of(name)?;
        let failed = |error| dataset_error("open", name, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let target = dsl.entry(name).await.map_err(failed)?;
        let (Kind::Snapshot { .. }, Some(snapshot)) = (target.kind, target.dataset()) else {
            return Err(not_of_this_type(name));
        };
        let doing = format!("cannot rollback to '{name}'");
        let of = snapshot.dir.name.clone();
        let live = pool.writable(&doing)?;
        let head = dsl.head(&snapshot.dir).await.map_err(failed)?;
        let since = snapshot.phys.creation_txg;
        let mut later = dsl.snapshots(&head).await.map_err(failed)?;
        later.retain(|other| other.phys.creation_txg > since);
        let bookmarks = dsl.bookmarks(&head).await.map_err(failed)?;
        let marks: Vec<String> = bookmarks
            .into_iter()
            .filter(|mark| mark.phys.creation_txg > since)
            .map(|mark| mark.name)
            .collect();
        let (doomed, clones) = clones_and_dependents(&dsl, &later, &doing).await?;
        let may_destroy = request.destroy_later || request.destroy_clones;
        let is_newest = later.is_empty() && marks.is_empty();
        if !is_newest && !may_destroy {
            let names: Vec<String> = later.iter().map(|later| later.name.clone()).chain(marks).collect();
            return Err(ApiError::busy(format!(
                "{doing}: more recent snapshots or bookmarks exist\n\
                 use '-r' to force deletion of the following snapshots and bookmarks:\n{}",
                names.join("\n")
            )));
        }
        if !clones.is_empty() && !request.destroy_clones {
            return Err(ApiError::busy(format!(
                "{doing}: clones of previous snapshots exist\n\
                 use '-R' to force deletion of the following clones and dependents:\n{}",
                clones.join("\n")
            )));
        }
        drop(dsl);
        pool.refuse_reshaped(&doing, |volume| volume == of)?;
        let gone = api::DestroyDataset { name: of.clone(), force: request.force, ..Default::default() };
        self.destroy_all(&pool, doomed, None, &gone).await?;
        let changing = pool.change().await?;
        let clients = pool.hold_clients(&of, REQUESTS_LIMIT).map_err(|InUse(connected)| {
            let clients = Connected::clients(&connected);
            ApiError::busy(format!("{doing}: requests to '{of}' do not finish, of {clients}"))
        })?;
        let share = of.clone();
        let _shares = pool.close_shares(&doing, move |name| name == share)?;
        let inside = pool.mounted_inside(&of);
        pool.keep_mounts(&inside);
        let begun = async {
            let exchange = self.begin_rollback(&pool, &changing, &doing, &of, name).await?;
            match self.settle_log(&pool, &of).await {
                Ok(()) => Ok(exchange),
                Err(error) => {
                    self.cancel_rollback(&pool, &changing, exchange).await;
                    Err(error)
                }
            }
        };
        let exchange = match begun.await {
            Ok(exchange) => exchange,
            Err(error) => {
                self.mount_displaced(&pool, &changing, inside).await;
                return Err(error);
            }
        };
        let snapshot = name.clone();
        let done = sync_tasks::change(live, request.command, move |s| async move {
            for mark in &marks {
                sync_tasks::destroy_bookmark(&s, mark).await?;
            }
            sync_tasks::rollback(&s, &snapshot).await
        });
        let done = done.await.map_err(|error| said(&doing, error));
        let mut warnings = Vec::new();
        match &done {
            Ok(_) => {
                warnings.extend(self.finish_rollback(&pool, &changing, &of, exchange).await.err());
                let went_on = async {
                    let dataset = pool.dsl().await?.find(&of).await?;
                    clients.go_on_with(live, &dataset).await
                };
                let why = |error| ApiError::failed(format!("clients of '{of}' were disconnected: {error}"));
                warnings.extend(went_on.await.map_err(why).err());
            }
            Err(_) => self.cancel_rollback(&pool, &changing, exchange).await,
        }
        self.mount_displaced(&pool, &changing, inside).await;
        let found = pool.find_volumes().await;
        done?;
        let unserved =
            found.err().map(|error| format!("not all volumes of '{}' are served: {error}", pool.name()));
        let warnings = warnings.into_iter().map(|error| error.message).chain(unserved);
        Ok(Warnings { warnings: warnings.collect() })
    }
}
