//! Destroying: a dataset with all that depends on it, snapshots by name or range, bookmarks.
//!
//! What depends on a dataset goes before it: children, then its snapshots, before each snapshot its clones. Each head is destroyed in a
//! transaction group of its own, snapshots that follow each other together.
//!
//! Source of the facts: OpenZFS 2.3 `zfs_main.c` (`zfs_do_destroy`), `libzfs_iter.c` (`zfs_iter_snapspec`).

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use engine::dataset::dsl::{Dataset, Dir, Dsl, Found, edit};

use super::super::{Daemon, OpenPool, dataset_error, edits};
use super::{is_at_or_below, said, word_of};
use crate::api::{self, ApiError, Destroyed};

/// What is to be destroyed, in order.
#[derive(Debug, Default)]
struct Doomed {
    names: Vec<String>,
    seen: HashSet<String>,
    /// Clones elsewhere, which only go when that was asked for.
    foreign: Vec<String>,
}

impl Doomed {
    fn add(&mut self, name: &str) {
        if self.seen.insert(name.to_owned()) {
            self.names.push(name.to_owned());
        }
    }
}

impl Daemon {
    /// Destroys a filesystem or volume, snapshots, or a bookmark.
    ///
    /// # Errors
    /// It does not exist, is in use, or something depends on it.
    pub async fn destroy_dataset(&self, request: api::DestroyDataset) -> Result<Destroyed, ApiError> {
        let name = &request.name;
        let pool = self.pool_of(name)?;
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
            let done = edits::change(live, request.command.clone(), move |s| async move {
                edit::destroy_bookmark(&s, &mark).await
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
                "cannot destroy '{name}': only snapshots can be destroyed later (-d)"
            )));
        }
        let top = dsl.find_dir(name).await.map_err(failed)?;
        let mut doomed = Doomed::default();
        dependents(&dsl, &top, name, request.clones, &mut doomed).await.map_err(failed)?;
        let refusal = |why: &str, option: &str, names: &[String]| {
            ApiError::busy(format!(
                "cannot destroy '{name}': {} has {why}\nuse '{option}' to destroy the following datasets:\n{}",
                word_of(&entry),
                names.join("\n")
            ))
        };
        if !doomed.names.is_empty() && !recursive {
            return Err(refusal("children", "-r", &doomed.names));
        }
        if !doomed.foreign.is_empty() {
            return Err(refusal("dependent clones", "-R", &doomed.foreign));
        }
        if name.contains('/') {
            doomed.add(name);
        }
        drop(dsl);
        self.destroy_all(pool, doomed.names, None, request).await
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
        let is_doomed = |name: &str| names.iter().any(|doomed| doomed == name);
        // Whoever mounted a snapshot by its name wants to have it.
        let mounted = pool.mountpoints().into_iter().find(|(name, _)| name.contains('@') && is_doomed(name));
        if let Some((name, at)) = mounted.filter(|_| !request.force) {
            let at = at.display();
            return Err(ApiError::busy(format!("{doing}: '{name}' is mounted at {at}: dataset is busy")));
        }
        let _closed = pool.keep_unused(&doing, is_doomed)?;
        let _snapshots = pool.close_snapshots(&doing, &names)?;
        let unmounted = self.unmount_mounts(pool, &changing, request.force, is_doomed).await?;
        if !pool.in_use_where(is_doomed).is_empty() {
            // Somebody has it elsewhere.
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
                self.close_log(pool, first).await?;
            }
            let done = edits::change(live, command, move |s| async move {
                match many.as_slice() {
                    [head] if !head.contains('@') => edits::destroy(&s, head).await,
                    snapshots => edit::destroy_snapshots(&s, snapshots, defer).await,
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
        let mut doomed = Doomed::default();
        let mut reclaimed = 0u64;
        for dir in &dirs {
            let head = dsl.head(dir).await.map_err(failed)?;
            let snapshots = dsl.snapshots(&head).await.map_err(failed)?;
            for chosen in select(&snapshots, which)? {
                for snapshot in &snapshots[chosen.clone()] {
                    clones_of(&dsl, snapshot, "", request.clones, &mut doomed).await.map_err(failed)?;
                    doomed.add(&snapshot.name);
                }
                let (first, last) = (&snapshots[chosen.start], &snapshots[chosen.end - 1]);
                reclaimed += dsl.space_between(first, last).await.map_err(failed)?;
            }
        }
        if doomed.names.is_empty() {
            return Err(ApiError::not_found(
                "could not find any snapshots to destroy; check snapshot names.",
            ));
        }
        if !doomed.foreign.is_empty() && !request.defer {
            return Err(ApiError::busy(format!(
                "cannot destroy '{}': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\n{}",
                request.name,
                doomed.foreign.join("\n")
            )));
        }
        drop(dsl);
        self.destroy_all(pool, doomed.names, Some(reclaimed), request).await
    }
}

/// The ranges of snapshots (oldest first) that a list like `a,b%c,%d` means. Names that are not there mean nothing.
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

type Walk<'a> = Pin<Box<dyn Future<Output = engine::Result<()>> + Send + 'a>>;

/// All that depends on a directory's head, in the order in which it can be destroyed. Depth is bounded by that of names.
fn dependents<'a>(
    dsl: &'a Dsl,
    dir: &'a Arc<Dir>,
    top: &'a str,
    with_clones: bool,
    doomed: &'a mut Doomed,
) -> Walk<'a> {
    Box::pin(async move {
        for child in dsl.children(dir).await? {
            dependents(dsl, &child, top, with_clones, doomed).await?;
            doomed.add(&child.name);
        }
        let head = dsl.head(dir).await?;
        for snapshot in dsl.snapshots(&head).await? {
            clones_of(dsl, &snapshot, top, with_clones, doomed).await?;
            doomed.add(&snapshot.name);
        }
        Ok(())
    })
}

/// The clones of a snapshot with what depends on them. Those outside of `top` go only when that was asked for.
fn clones_of<'a>(
    dsl: &'a Dsl,
    snapshot: &'a Dataset,
    top: &'a str,
    with_clones: bool,
    doomed: &'a mut Doomed,
) -> Walk<'a> {
    Box::pin(async move {
        for clone in dsl.clones(snapshot).await? {
            let inside = !top.is_empty() && is_at_or_below(&clone, top);
            if !inside && !with_clones {
                doomed.foreign.push(clone);
            } else if !doomed.seen.contains(&clone) {
                let dir = dsl.find_dir(&clone).await?;
                dependents(dsl, &dir, top, with_clones, doomed).await?;
                doomed.add(&clone);
            }
        }
        Ok(())
    })
}

/// Whether all that would be lost with these snapshots is told; used by rollback.
pub(super) async fn clones_and_dependents(
    dsl: &Dsl,
    snapshots: &[Dataset],
) -> engine::Result<(Vec<String>, Vec<String>)> {
    let mut doomed = Doomed::default();
    let mut foreign = Doomed::default();
    for snapshot in snapshots {
        clones_of(dsl, snapshot, "", false, &mut foreign).await?;
        clones_of(dsl, snapshot, "", true, &mut doomed).await?;
        doomed.add(&snapshot.name);
    }
    Ok((doomed.names, foreign.foreign))
}
