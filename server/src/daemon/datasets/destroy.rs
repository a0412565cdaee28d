//! Destroying: a dataset with all that depends on it, snapshots by name or range, bookmarks.
//!
//! What depends on a dataset goes before it: children, then its snapshots, before each snapshot its clones.
//! Each head is destroyed in a transaction group of its own, snapshots that follow each other together.
//!
//! Source of the facts: OpenZFS 2.3 `zfs_main.c` (`zfs_do_destroy`), `libzfs_iter.c` (`zfs_iter_snapspec`).

use std::collections::HashSet;
use std::sync::Arc;

use engine::dsl::{Dataset, Dir, Dsl, Found, edit, is_hidden};
use engine::receive::RECEIVE_CHILD;
use ondisk::ObjectId;

use super::word_of;
use crate::api::{self, ApiError, Destroyed};
use crate::daemon::names::is_at_or_below;
use crate::daemon::refusals::said;
use crate::daemon::sync_tasks;
use crate::daemon::{Daemon, OpenPool, dataset_error};

/// The datasets to destroy, in order.
#[derive(Debug, Default)]
struct Doomed {
    names: Vec<String>,
    seen: HashSet<String>,
    /// Clones elsewhere, which only go when that was asked for.
    foreign: Vec<String>,
    /// A dataset that depends on itself.
    circle: Option<String>,
}

impl Doomed {
    fn add(&mut self, name: &str) {
        if self.seen.insert(name.to_owned()) {
            self.names.push(name.to_owned());
        }
    }

    /// There is no order in which datasets can be destroyed that depend on each other.
    fn refuse_circle(&self) -> Result<(), ApiError> {
        let Some(name) = &self.circle else { return Ok(()) };
        Err(ApiError::refused(format!(
            "cannot determine dependent datasets: recursive dependency at '{name}'\n\
             it is a clone of a snapshot of a dataset below it: rename one of the two away from the other \
             first"
        )))
    }
}

impl Daemon {
    /// Destroys a filesystem or volume, snapshots, or a bookmark.
    ///
    /// # Errors
    /// It does not exist, is in use, or something depends on it.
    pub async fn destroy_dataset(&self, request: api::DestroyDataset) -> Result<Destroyed, ApiError> {
        let name = &request.name;
        let pool = self.pool_of_any(name)?;
        if name.contains('#') {
            return self.destroy_bookmark(&pool, &request).await;
        }
        pool.writable(&format!("cannot destroy '{name}'"))?;
        match name.split_once('@') {
            Some((of, which)) => self.destroy_snapshots(&pool, of, which, &request).await,
            None => self.destroy_tree(&pool, &request).await,
        }
    }

    async fn destroy_bookmark(
        &self,
        pool: &Arc<OpenPool>,
        request: &api::DestroyDataset,
    ) -> Result<Destroyed, ApiError> {
        let name = &request.name;
        let doing = format!("cannot destroy bookmark '{name}'");
        let found = pool.dsl().await.map_err(|error| said(&doing, error))?.lookup(name).await;
        if !matches!(found, Ok(Found::Bookmark(_))) {
            return Err(ApiError::not_found(format!("bookmark '{name}' does not exist.")));
        }
        let destroyed = Destroyed { names: vec![name.clone()], reclaimed_bytes: None };
        if !request.dry_run {
            let (live, mark) = (pool.writable(&doing)?, name.clone());
            let done = sync_tasks::change(live, request.command.clone(), move |s| async move {
                sync_tasks::destroy_bookmark(&s, &mark).await
            });
            done.await.map_err(|error| said(&doing, error))?;
        }
        Ok(destroyed)
    }

    async fn destroy_tree(
        &self,
        pool: &Arc<OpenPool>,
        request: &api::DestroyDataset,
    ) -> Result<Destroyed, ApiError> {
        let name = &request.name;
        let failed = |error| dataset_error("open", name, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let entry = dsl.entry(name).await.map_err(failed)?;
        let recursive = request.recursive || request.clones;
        if !name.contains('/') && !recursive {
            return Err(ApiError::refused(format!(
                "cannot destroy '{name}': operation does not apply to pools\n\
                 use 'zfs destroy -r {name}' to destroy all datasets in the pool\n\
                 use 'zpool destroy {name}' to destroy the pool itself"
            )));
        }
        if request.defer {
            return Err(ApiError::refused(format!(
                "cannot destroy '{name}': only snapshots can be deferred (-d)"
            )));
        }
        let top = dsl.find_dir(name).await.map_err(failed)?;
        let exchanged = match request.dry_run {
            true => Vec::new(),
            false => exchanged(&dsl, &top).await.map_err(failed)?,
        };
        if !exchanged.is_empty() {
            drop((dsl, entry));
            self.promote_back(pool, exchanged, request).await?;
            return Box::pin(self.destroy_tree(pool, request)).await;
        }
        let mut doomed = Search::new(&dsl, name, request.clones).below(&top).await.map_err(failed)?;
        let refusal = |why: &str, option: &str, names: &[String]| {
            ApiError::busy(format!(
                "cannot destroy '{name}': {} has {why}\nuse '{option}' to destroy the following \
                 datasets:\n{}",
                word_of(&entry),
                names.join("\n")
            ))
        };
        // What a broken receive left goes with the dataset into which it was received.
        let is_shown = |name: &&String| !name.ends_with(&format!("/{RECEIVE_CHILD}"));
        let children: Vec<String> = doomed.names.iter().filter(is_shown).cloned().collect();
        if !children.is_empty() && !recursive {
            return Err(refusal("children", "-r", &children));
        }
        if !doomed.foreign.is_empty() {
            return Err(refusal("dependent clones", "-R", &doomed.foreign));
        }
        doomed.refuse_circle()?;
        if name.contains('/') {
            doomed.add(name);
        }
        drop(dsl);
        self.destroy_all(pool, doomed.names, None, request).await
    }

    /// Datasets whose snapshots went to the hidden child that a receive fills get them back.
    async fn promote_back(
        &self,
        pool: &Arc<OpenPool>,
        names: Vec<String>,
        request: &api::DestroyDataset,
    ) -> Result<(), ApiError> {
        let doing = format!("cannot destroy '{}'", request.name);
        let live = pool.writable(&doing)?;
        let _changing = pool.change().await?;
        let done = sync_tasks::change(live, None, move |s| async move {
            for name in names {
                edit::promote_back(&s, &name).await?;
            }
            Ok(())
        });
        done.await.map_err(|error| said(&doing, error))
    }

    /// Destroys what was chosen, in this order.
    pub(super) async fn destroy_all(
        &self,
        pool: &Arc<OpenPool>,
        names: Vec<String>,
        reclaimed_bytes: Option<u64>,
        request: &api::DestroyDataset,
    ) -> Result<Destroyed, ApiError> {
        let doing = format!("cannot destroy '{}'", request.name);
        let destroyed = Destroyed { names: names.clone(), reclaimed_bytes };
        if request.dry_run {
            return Ok(destroyed);
        }
        let live = pool.writable(&doing)?;
        let changing = pool.change().await?;
        let doomed: HashSet<&str> = names.iter().map(String::as_str).collect();
        let is_doomed = |name: &str| doomed.contains(name);
        // A snapshot that was mounted by its name is wanted.
        let mounted = pool.mountpoints().into_iter().find(|(name, _)| name.contains('@') && is_doomed(name));
        if let Some((name, at)) = mounted.filter(|_| !request.force) {
            let at = at.display();
            return Err(ApiError::busy(format!("{doing}: '{name}' is mounted at {at}: dataset is busy")));
        }
        pool.refuse_reshaped(&doing, is_doomed)?;
        let _closed = pool.keep_unused(&doing, is_doomed)?;
        let of_doomed: HashSet<String> = names
            .iter()
            .map(|name| name.split_once('@').map_or(name.as_str(), |(of, _)| of).to_owned())
            .collect();
        let _shares = pool.close_shares(&doing, move |name| of_doomed.contains(name))?;
        let _snapshots = pool.close_snapshots(&doing, &names)?;
        let unmounted = self.unmount_mounts(pool, &changing, request.force, is_doomed).await?;
        if !pool.in_use_where(is_doomed).is_empty() {
            // It is mounted at another place.
            self.mount_again(pool, &changing, unmounted).await;
            return Err(ApiError::busy(format!("{doing}: dataset is busy")));
        }
        let mut rest = names.as_slice();
        while let Some(first) = rest.first() {
            let snapshots = rest.iter().take_while(|name| name.contains('@')).count();
            let (now, later) = rest.split_at(snapshots.max(1));
            let now = now.to_vec();
            // The command is noted with the last of its changes.
            let command = request.command.clone().filter(|_| later.is_empty());
            let (many, defer) = (now.clone(), request.defer);
            if !first.contains('@') {
                self.settle_log(pool, first).await?;
            }
            let done = sync_tasks::change(live, command, move |s| async move {
                match many.as_slice() {
                    [head] if !head.contains('@') => sync_tasks::destroy(&s, head).await,
                    snapshots => sync_tasks::destroy_snapshots(&s, snapshots, defer).await,
                }
            });
            let failed = match (first.contains('@'), now.len()) {
                (true, 1) => format!("cannot destroy snapshot {first}"),
                (true, _) => "cannot destroy snapshots".to_owned(),
                (false, _) => format!("cannot destroy '{first}'"),
            };
            let done = done.await.map_err(|error| said(&failed, error));
            if done.is_err() {
                // Those before it are gone.
                let _ = pool.find_volumes().await;
            }
            done?;
            rest = later;
        }
        if let Err(error) = pool.find_volumes().await {
            tracing::warn!(%error, pool = pool.name(), "not all volumes are served");
        }
        Ok(destroyed)
    }

    async fn destroy_snapshots(
        &self,
        pool: &Arc<OpenPool>,
        of: &str,
        which: &str,
        request: &api::DestroyDataset,
    ) -> Result<Destroyed, ApiError> {
        let failed = |error| dataset_error("open", of, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let top = dsl.find_dir(of).await.map_err(failed)?;
        let dirs = match request.recursive || request.clones {
            true => dsl.dirs(&top).await.map_err(failed)?,
            false => vec![top],
        };
        let mut search = Search::new(&dsl, "", request.clones);
        let mut reclaimed = 0u64;
        for dir in &dirs {
            let head = dsl.head(dir).await.map_err(failed)?;
            let snapshots = dsl.snapshots(&head).await.map_err(failed)?;
            for chosen in select(&snapshots, which)? {
                for snapshot in &snapshots[chosen.clone()] {
                    search.snapshot(snapshot).await.map_err(failed)?;
                }
                let (first, last) = (&snapshots[chosen.start], &snapshots[chosen.end - 1]);
                reclaimed += dsl.space_between(first, last).await.map_err(failed)?;
            }
        }
        let doomed = search.doomed;
        if doomed.names.is_empty() {
            return Err(ApiError::not_found(
                "could not find any snapshots to destroy; check snapshot names.",
            ));
        }
        if !doomed.foreign.is_empty() && !request.defer {
            return Err(ApiError::busy(format!(
                "cannot destroy '{}': snapshot has dependent clones\nuse '-R' to destroy the following \
                 datasets:\n{}",
                request.name,
                doomed.foreign.join("\n")
            )));
        }
        doomed.refuse_circle()?;
        drop(dsl);
        self.destroy_all(pool, doomed.names, Some(reclaimed), request).await
    }
}

/// The datasets at and below a directory, or around it where it is hidden, whose hidden child was promoted:
/// earlier versions did so when they were asked to. The two depend on each other until that is undone.
async fn exchanged(dsl: &Dsl, top: &Arc<Dir>) -> engine::Result<Vec<String>> {
    let mut dirs = dsl.dirs(top).await?;
    dirs.extend(top.parent.clone().filter(|_| is_hidden(&top.name)));
    let mut found = Vec::new();
    for dir in dirs {
        let inside = format!("{}/{RECEIVE_CHILD}@", dir.name);
        if dsl.origin(&dir).await?.is_some_and(|origin| origin.starts_with(&inside)) {
            found.push(dir.name.clone());
        }
    }
    Ok(found)
}

/// The ranges of snapshots (oldest first) that a list like `a,b%c,%d` means. Names that are not there mean
/// nothing.
fn select(snapshots: &[Dataset], which: &str) -> Result<Vec<std::ops::Range<usize>>, ApiError> {
    let short = |snapshot: &Dataset| snapshot.name.split_once('@').map(|(_, name)| name.to_owned());
    let place = |name: &str| snapshots.iter().position(|snapshot| short(snapshot).as_deref() == Some(name));
    let mut ranges = Vec::new();
    for part in which.split(',') {
        let Some((from, to)) = part.split_once('%') else {
            ranges.extend(place(part).map(|place| place..place + 1));
            continue;
        };
        let first = if from.is_empty() { Some(0) } else { place(from) };
        let last = if to.is_empty() { snapshots.len().checked_sub(1) } else { place(to) };
        match (first, last) {
            (Some(first), Some(last)) if first <= last && last < snapshots.len() => {
                ranges.push(first..last + 1)
            }
            (Some(first), Some(last)) if first > last => {
                return Err(ApiError::invalid(format!(
                    "'{part}': the first snapshot is newer than the last"
                )));
            }
            _ => {}
        }
    }
    Ok(ranges)
}

/// A step of the search for what depends on something.
enum Step {
    /// The dependents of a directory's head: its children, then its snapshots.
    Dependents(Arc<Dir>),
    /// The clones of a snapshot.
    Clones(Box<Dataset>),
    /// The dataset or snapshot, all that depends on which was found.
    Add(String),
    /// As [`Step::Add`], for a directory that was searched.
    Leave(Arc<Dir>),
}

/// Finds what depends on something, in the order in which it can be destroyed.
///
/// Clones of clones may form a chain of any length, so the search keeps its own stack. A promoted clone that
/// lies below the filesystem it was a clone of closes a circle: each of the two depends on the other one.
struct Search<'a> {
    dsl: &'a Dsl,
    /// Clones inside of this dataset go with it in any case.
    top: &'a str,
    with_clones: bool,
    steps: Vec<Step>,
    /// Directories that the search is inside of.
    path: HashSet<ObjectId>,
    doomed: Doomed,
}

impl<'a> Search<'a> {
    fn new(dsl: &'a Dsl, top: &'a str, with_clones: bool) -> Self {
        let (steps, path, doomed) = Default::default();
        Self { dsl, top, with_clones, steps, path, doomed }
    }

    /// All that depends on a directory's head, without the head.
    async fn below(mut self, dir: &Arc<Dir>) -> engine::Result<Doomed> {
        self.steps.push(Step::Dependents(Arc::clone(dir)));
        self.run().await?;
        Ok(self.doomed)
    }

    /// A snapshot, after all that depends on it.
    async fn snapshot(&mut self, snapshot: &Dataset) -> engine::Result<()> {
        self.steps.push(Step::Add(snapshot.name.clone()));
        self.steps.push(Step::Clones(Box::new(snapshot.clone())));
        self.run().await
    }

    async fn run(&mut self) -> engine::Result<()> {
        while let Some(step) = self.steps.pop() {
            match step {
                Step::Dependents(dir) => self.enter(dir).await?,
                Step::Clones(snapshot) => self.clones(&snapshot).await?,
                Step::Add(name) => self.doomed.add(&name),
                Step::Leave(dir) => {
                    self.path.remove(&dir.object);
                    self.doomed.add(&dir.name);
                }
            }
        }
        Ok(())
    }

    async fn enter(&mut self, dir: Arc<Dir>) -> engine::Result<()> {
        if self.doomed.seen.contains(&dir.name) {
            return Ok(());
        }
        self.path.insert(dir.object);
        let mut steps = Vec::new();
        for child in self.dsl.children(&dir).await? {
            steps.push(Step::Dependents(Arc::clone(&child)));
            steps.push(Step::Leave(child));
        }
        let head = self.dsl.head(&dir).await?;
        for snapshot in self.dsl.snapshots(&head).await? {
            let name = snapshot.name.clone();
            steps.push(Step::Clones(Box::new(snapshot)));
            steps.push(Step::Add(name));
        }
        self.steps.extend(steps.into_iter().rev());
        Ok(())
    }

    /// Clones outside of the top go only when that was asked for.
    async fn clones(&mut self, snapshot: &Dataset) -> engine::Result<()> {
        let mut steps = Vec::new();
        for clone in self.dsl.clones(snapshot).await? {
            let inside = !self.top.is_empty() && is_at_or_below(&clone, self.top);
            if !inside && !self.with_clones {
                self.doomed.foreign.push(clone);
                continue;
            }
            if self.doomed.seen.contains(&clone) {
                continue;
            }
            let dir = self.dsl.find_dir(&clone).await?;
            if self.path.contains(&dir.object) {
                self.doomed.circle.get_or_insert(clone);
                continue;
            }
            steps.push(Step::Dependents(Arc::clone(&dir)));
            steps.push(Step::Leave(dir));
        }
        self.steps.extend(steps.into_iter().rev());
        Ok(())
    }
}

/// Whether all that would be lost with these snapshots is told; used by rollback.
pub(super) async fn clones_and_dependents(
    dsl: &Dsl,
    snapshots: &[Dataset],
    doing: &str,
) -> Result<(Vec<String>, Vec<String>), ApiError> {
    let mut doomed = Search::new(dsl, "", true);
    let mut foreign = Search::new(dsl, "", false);
    for snapshot in snapshots {
        for search in [&mut foreign, &mut doomed] {
            search.snapshot(snapshot).await.map_err(|error| said(doing, error))?;
        }
    }
    doomed.doomed.refuse_circle()?;
    Ok((doomed.doomed.names, foreign.doomed.foreign))
}
