//! The pools that come back when the daemon starts again: those in its cache file ([`crate::cachefile`]).
//!
//! A pool is in the file that its property `cachefile` names, by default the daemon's own, from when it is
//! open for writing until it is exported or destroyed. The end of the daemon is no export: pools that are
//! open then are open again after its next start. Read-only pools are not in the file, as with OpenZFS.
//!
//! The import at the start is not forced: a pool that another host used since, that another process has open,
//! or that OpenZFS's module has imported is left alone, with a line in the log, and stays in the file.
//!
//! A pool on files in a filesystem of another pool is imported after that filesystem is mounted, at the start
//! or later.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::address::is_address;
use engine::pool::discovery::{self, DEFAULT_DIRECTORIES, FoundPool};
use ondisk::vdev_config::PoolState;

use super::import::Options;
use crate::api::{self, ApiError};
use crate::cachefile::{self, Cached};
use crate::daemon::{Daemon, OpenPool};

/// Statistics of OpenZFS's module about each pool that it has imported.
const POOLS_OF_THE_MODULE: &str = "/proc/spl/kstat/zfs";
/// The value of `cachefile` that keeps a pool in no file.
const NONE: &str = "none";

impl Daemon {
    /// The same, which keeps its pools in this file unless they say otherwise.
    #[must_use]
    pub fn keeping(self, cachefile: Option<PathBuf>) -> Self {
        Self { cachefile, ..self }
    }

    /// A pool's property for this value: the daemon's own file is what a pool has that names
    /// none.
    pub(in crate::daemon) fn named(&self, cachefile: Option<String>) -> Option<String> {
        let is_own = |path: &str| self.cachefile.as_deref() == Some(Path::new(path));
        cachefile.filter(|path| !path.is_empty() && !is_own(path))
    }

    /// The file that a pool is kept in.
    fn file_of(&self, open: &OpenPool) -> Option<PathBuf> {
        match open.cachefile().as_deref() {
            None | Some("") => self.cachefile.clone(),
            Some(NONE) => None,
            Some(path) => Some(path.into()),
        }
    }

    /// Enters a pool into its file, or brings its entry up to date. What to say where that fails.
    pub(in crate::daemon) fn keep(&self, open: &OpenPool) -> Option<String> {
        let file = self.file_of(open).filter(|_| open.live().is_some())?;
        let config = open.view().config().raw.clone();
        let kept = match Cached::of(open.name(), config) {
            Some(cached) => cachefile::enter(&file, &cached),
            None => Err(std::io::Error::other("its configuration is not complete")),
        };
        let error = kept.err()?;
        tracing::warn!(pool = open.name(), file = %file.display(), %error, "not entered in the cache file");
        Some(format!("pool '{}' is not in the cache file {}: {error}", open.name(), file.display()))
    }

    /// Removes a pool from its file.
    pub(in crate::daemon) fn keep_no_more(&self, open: &OpenPool) {
        let Some(file) = self.file_of(open).filter(|_| open.live().is_some()) else { return };
        if let Err(error) = cachefile::remove(&file, open.guid()) {
            tracing::warn!(pool = open.name(), file = %file.display(), %error, "not removed from the cache \
                file");
        }
    }

    /// Keeps a pool in another file from now on.
    pub(in crate::daemon) fn keep_in(&self, open: &OpenPool, cachefile: String) -> Result<(), ApiError> {
        let before = self.file_of(open);
        open.set_cachefile(self.named(Some(cachefile)));
        if let Some(before) = before.filter(|before| self.file_of(open).as_ref() != Some(before)) {
            let removed = cachefile::remove(&before, open.guid());
            removed
                .map_err(|error| ApiError::failed(format!("cannot change {}: {error}", before.display())))?;
        }
        self.keep(open).map_or(Ok(()), |why| Err(ApiError::failed(why)))
    }

    /// The pools of a cache file, on the devices where they were or wherever devices are looked for.
    pub(in crate::daemon) async fn search_cached(&self, file: &Path) -> Result<Vec<FoundPool>, ApiError> {
        self.search_for(&read(file)?).await
    }

    /// These pools, as far as they are found and not open.
    pub(in crate::daemon) async fn search_for(&self, cached: &[Cached]) -> Result<Vec<FoundPool>, ApiError> {
        let known: Vec<PathBuf> = cached.iter().flat_map(Cached::places).map(Path::to_owned).collect();
        let mut found = discovery::scan(&known).await?;
        let is_there = |pool: &Cached| found.iter().any(|found| is_whole(found, pool));
        if !cached.iter().all(is_there) {
            // Disks get other names. Files were moved, or came later than the file, mostly beside the others.
            let defaults = DEFAULT_DIRECTORIES.iter().map(PathBuf::from);
            let paths = cached.iter().flat_map(|pool| &pool.devices).map(|(_, path)| path);
            let beside =
                paths.filter(|path| !is_address(path)).filter_map(|path| path.parent()).map(Path::to_owned);
            let places: BTreeSet<PathBuf> = defaults.chain(beside).filter(|path| path.exists()).collect();
            found = discovery::scan(&known.iter().cloned().chain(places).collect::<Vec<_>>()).await?;
        }
        let wanted: HashSet<_> = cached.iter().map(|pool| pool.guid).collect();
        let open: HashSet<_> = self.open_pools().iter().map(|open| open.guid()).collect();
        found.retain(|pool| wanted.contains(&pool.guid) && !open.contains(&pool.guid));
        Ok(found)
    }

    /// Says that pools are about to be imported, until what is returned is dropped: clients of volumes that
    /// do not exist yet wait, or are told to try again.
    pub fn expect_imports(self: &Arc<Self>) -> Importing {
        self.importing.send_modify(|imports| *imports += 1);
        Importing(Arc::clone(self))
    }

    /// Whether all pools are there that were to be imported.
    pub(in crate::daemon) fn has_imported(&self) -> bool {
        *self.importing.borrow() == 0
    }

    /// Imports the pools of the daemon's cache file, at its start. Blocks the thread.
    pub fn import_cached(self: &Arc<Self>) {
        device::block_on(self.import_those_that(|_| true));
    }

    /// Imports the pools of the cache file that lie in filesystems of this daemon, called after mounting
    /// some: these pools were not there before.
    pub(in crate::daemon) async fn import_nested(&self) {
        let Some(file) = self.cachefile.as_deref().filter(|file| file.exists()) else { return };
        // What is wrong with the file was said at the start.
        let Ok(cached) = cachefile::read(file) else { return };
        let open: HashSet<_> = self.open_pools().iter().map(|open| open.guid()).collect();
        let is_nested = |pool: &Cached| pool.devices.iter().any(|(_, path)| self.serves(path));
        let nested = cached.iter().filter(|pool| !open.contains(&pool.guid) && is_nested(pool));
        let nested: HashSet<_> = nested.map(|pool| pool.guid).collect();
        if !nested.is_empty() {
            self.import_those_that(|pool| nested.contains(&pool.guid)).await;
        }
    }

    /// Imports pools of the daemon's cache file. Each may have files in a filesystem of another one, and is
    /// found when that is mounted; one that is not whole may become so. So those that are go first.
    async fn import_those_that(&self, are_wanted: impl Fn(&Cached) -> bool) {
        let Some(file) = self.cachefile.as_deref().filter(|file| file.exists()) else { return };
        let mut tried = HashSet::new();
        loop {
            let searched = async {
                let mut cached = read(file)?;
                cached.retain(|pool| are_wanted(pool) && !tried.contains(&pool.guid));
                let found = self.search_for(&cached).await?;
                Ok::<_, ApiError>((cached, found))
            };
            let (cached, mut found) = match searched.await {
                Ok(searched) => searched,
                Err(error) => return tracing::error!("no pools are imported: {error}"),
            };
            found.retain(|pool| pool.state() != PoolState::Destroyed);
            let is_there = |found: &FoundPool| cached.iter().any(|pool| is_whole(found, pool));
            let (whole, lacking): (Vec<_>, Vec<_>) = found.into_iter().partition(is_there);
            let next = if whole.is_empty() { lacking.into_iter().take(1).collect() } else { whole };
            if next.is_empty() {
                return;
            }
            for pool in &next {
                tried.insert(pool.guid);
                self.import_again(pool, file).await;
            }
        }
    }

    /// Imports a pool of a cache file. What is wrong goes to the log.
    async fn import_again(&self, pool: &FoundPool, file: &Path) {
        if is_with_the_module(&pool.name) {
            return tracing::error!(pool = pool.name, "not imported: OpenZFS's kernel module has it");
        }
        let request = api::ImportPool::default();
        let imported = match Options::parse(&request) {
            Ok(options) => self.import_one(pool, &request, &options).await,
            Err(error) => Err(error),
        };
        match imported {
            Ok(opened) => {
                opened.warnings.iter().for_each(|warning| tracing::warn!(pool = pool.name, "{warning}"));
                for volume in &opened.volumes {
                    if let Some(why) = &volume.unavailable {
                        tracing::warn!(volume = volume.name, "a volume is not served: {why}");
                    }
                }
            }
            Err(error) => tracing::error!("a pool of {} is not imported: {error}", file.display()),
        }
    }
}

/// An import that is about to be, or goes on.
#[derive(Debug)]
#[must_use]
pub struct Importing(Arc<Daemon>);

impl Drop for Importing {
    fn drop(&mut self) {
        self.0.importing.send_modify(|imports| *imports -= 1);
        // What is not there now is not awaited any more.
        self.0.volume_changes.announce();
    }
}

fn read(file: &Path) -> Result<Vec<Cached>, ApiError> {
    cachefile::read(file)
        .map_err(|error| ApiError::failed(format!("cannot read cache file {}: {error}", file.display())))
}

/// Whether all devices of a pool of a cache file were found, and those that came later than the file: the
/// newest labels know them.
fn is_whole(found: &FoundPool, pool: &Cached) -> bool {
    found.guid == pool.guid
        && pool.devices.iter().all(|(guid, _)| found.candidates.contains_key(guid))
        && has_all_tops(found)
        && found.lacks().is_empty()
}

/// Whether a device of each top-level vdev was found that the newest label counts.
fn has_all_tops(found: &FoundPool) -> bool {
    let tops: HashSet<_> = found.candidates.values().filter_map(|device| device.label.top_guid).collect();
    let there = (tops.len() + found.label.hole_array.len()) as u64;
    found.label.vdev_children.is_none_or(|count| count <= there)
}

/// Whether OpenZFS's kernel module of this host has a pool of this name.
fn is_with_the_module(pool: &str) -> bool {
    !pool.contains('/') && Path::new(POOLS_OF_THE_MODULE).join(pool).exists()
}

/// Why `cachefile` cannot have a value, in OpenZFS's words.
pub(in crate::daemon) fn fault(value: &str) -> Option<String> {
    if matches!(value, "" | NONE) {
        return None;
    }
    let path = Path::new(value);
    if !path.is_absolute() {
        return Some(format!("property 'cachefile' must be empty, an absolute path, or '{NONE}'"));
    }
    let last = value.rsplit('/').next().unwrap_or_default();
    if matches!(last, "" | "." | "..") {
        return Some(format!("'{value}' is not a valid file"));
    }
    let directory = path.parent().unwrap_or(path);
    (!directory.is_dir()).then(|| format!("'{}' is not a valid directory", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_file_has_an_absolute_path_in_a_directory() {
        for fine in ["", "none", "/tmp/zpool.cache"] {
            assert_eq!(fault(fine), None, "{fine}");
        }
        for wrong in ["zpool.cache", "/tmp/", "/tmp/.", "/tmp/..", "/no/such/directory/file"] {
            assert!(fault(wrong).is_some(), "{wrong}");
        }
    }
}
