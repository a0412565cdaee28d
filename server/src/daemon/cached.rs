//! The pools that come back when the daemon starts anew: those in its cache file ([`crate::cachefile`]).
//!
//! A pool is in the file that its property `cachefile` names, by default the daemon's own, from the time that it is open
//! for writing until it is exported or destroyed. The end of the daemon is no export: what is open then is there again
//! after its next start. Pools that are open read-only are not kept, as with OpenZFS.
//!
//! What is imported at the start is not forced: a pool that another host used since, that another process has open, or
//! that OpenZFS's module has imported is left alone, with a word in the log, and stays in the file.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::pool::discovery::{self, DEFAULT_DIRECTORIES, FoundPool};
use ondisk::vdev_config::PoolState;

use super::pools::Options;
use super::{Daemon, OpenPool};
use crate::api::{self, ApiError};
use crate::cachefile::{self, Cached};

/// What OpenZFS's module tells of each pool that it has imported.
const POOLS_OF_THE_MODULE: &str = "/proc/spl/kstat/zfs";
/// The value of `cachefile` that keeps a pool in no file.
const NONE: &str = "none";

impl Daemon {
    /// The same, which keeps its pools in this file unless they say otherwise.
    #[must_use]
    pub fn keeping(self, cachefile: Option<PathBuf>) -> Self {
        Self { cachefile, ..self }
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
    pub(super) fn keep(&self, open: &OpenPool) -> Option<String> {
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
    pub(super) fn keep_no_more(&self, open: &OpenPool) {
        let Some(file) = self.file_of(open).filter(|_| open.live().is_some()) else { return };
        if let Err(error) = cachefile::remove(&file, open.guid()) {
            tracing::warn!(pool = open.name(), file = %file.display(), %error, "not removed from the cache file");
        }
    }

    /// Keeps a pool in another file from now on.
    pub(super) fn keep_in(&self, open: &OpenPool, cachefile: String) -> Result<(), ApiError> {
        let before = self.file_of(open);
        open.set_cachefile(Some(cachefile).filter(|path| !path.is_empty()));
        if let Some(before) = before.filter(|before| self.file_of(open).as_ref() != Some(before)) {
            let removed = cachefile::remove(&before, open.guid());
            removed
                .map_err(|error| ApiError::failed(format!("cannot change {}: {error}", before.display())))?;
        }
        self.keep(open).map_or(Ok(()), |why| Err(ApiError::failed(why)))
    }

    /// The pools of a cache file, on the devices where they were or wherever devices are looked for.
    pub(super) async fn search_cached(&self, file: &Path) -> Result<Vec<FoundPool>, ApiError> {
        let cached = cachefile::read(file).map_err(|error| {
            ApiError::failed(format!("cannot read cache file {}: {error}", file.display()))
        })?;
        let exist = |path: &PathBuf| path.exists();
        let known: Vec<PathBuf> = cached
            .iter()
            .flat_map(|pool| &pool.devices)
            .map(|(_, path)| path.clone())
            .filter(exist)
            .collect();
        let mut found = discovery::scan(&known).await?;
        let is_whole = |pool: &Cached| {
            let of_pool = found.iter().find(|found| found.guid == pool.guid);
            of_pool
                .is_some_and(|found| pool.devices.iter().all(|(guid, _)| found.candidates.contains_key(guid)))
        };
        if !cached.iter().all(is_whole) {
            // Disks get other names. Files do not move by themselves.
            let defaults = DEFAULT_DIRECTORIES.iter().map(PathBuf::from).filter(exist);
            found = discovery::scan(&known.iter().cloned().chain(defaults).collect::<Vec<_>>()).await?;
        }
        let wanted: HashSet<_> = cached.iter().map(|pool| pool.guid).collect();
        let open: HashSet<_> = self.open_pools().iter().map(|open| open.guid()).collect();
        found.retain(|pool| wanted.contains(&pool.guid) && !open.contains(&pool.guid));
        Ok(found)
    }

    /// Imports the pools of the daemon's cache file, at its start. Blocks the thread.
    pub fn import_cached(self: &Arc<Self>) {
        let Some(file) = self.cachefile.clone().filter(|file| file.exists()) else { return };
        let found = match device::block_on(self.search_cached(&file)) {
            Ok(found) => found,
            Err(error) => return tracing::error!("no pools are imported: {error}"),
        };
        for pool in found.iter().filter(|pool| pool.state() != PoolState::Destroyed) {
            if is_with_the_module(&pool.name) {
                tracing::error!(pool = pool.name, "not imported: OpenZFS's kernel module has it");
                continue;
            }
            let request = api::ImportPool::default();
            let imported = Options::parse(&request).map(|options| (request, options));
            let imported = imported
                .and_then(|(request, options)| device::block_on(self.import_one(pool, &request, &options)));
            match imported {
                Ok(opened) => {
                    opened.warnings.iter().for_each(|warning| tracing::warn!(pool = pool.name, "{warning}"));
                }
                Err(error) => tracing::error!("a pool of {} is not imported: {error}", file.display()),
            }
        }
    }
}

/// Whether OpenZFS's kernel module of this host has a pool of this name.
fn is_with_the_module(pool: &str) -> bool {
    !pool.contains('/') && Path::new(POOLS_OF_THE_MODULE).join(pool).exists()
}

/// Why `cachefile` cannot have a value, in OpenZFS's words.
pub(super) fn fault(value: &str) -> Option<String> {
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
