//! Mounts below a directory at which another filesystem is about to be mounted.
//!
//! The new mount would hide them. So each of them is moved to the same path inside the new filesystem, as if
//! it had been mounted afterwards, and stays usable meanwhile ([`DetachedMount`]); directories are made for
//! it as for a mount. If that is impossible, the new filesystem is not mounted. The mounts may belong to
//! other pools. Mounts that the daemon did not make are hidden, as by every mount.
//!
//! A pool below an altroot is a guest: mounts of other pools make no directory in it, and its own mounts make
//! none in other pools. When its filesystems are unmounted by force, filesystems of other pools that are
//! mounted inside them stay where they are ([`ForeignMounts`]).

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::in_words;

use super::{leads_nowhere_else, make_directories, remove_directories};
use crate::api::ApiError;
use crate::daemon::{Daemon, OpenPool, lock};
use crate::fuse::{DetachedMount, FuseMount, clone_mount_tree, device_at, move_mount};

/// Mounts that are about to be hidden.
#[derive(Debug)]
pub(in crate::daemon) struct NestedMounts {
    /// Where the other one is mounted, as that is said and without symbolic links.
    at: (PathBuf, PathBuf),
    /// The present mount below it.
    below: Option<DetachedMount>,
    mounts: Vec<NestedMount>,
}

/// One of them, with all that is inside it.
#[derive(Debug)]
struct NestedMount {
    pool: Option<Arc<OpenPool>>,
    name: String,
    at: PathBuf,
    mount: DetachedMount,
}

impl NestedMounts {
    /// The mounts inside `at`, where a filesystem of `pool` is to be mounted.
    ///
    /// # Errors
    /// It could not be put there again.
    pub fn of(daemon: &Daemon, pool: &OpenPool, doing: &str, at: &Path) -> Result<Self, ApiError> {
        let nothing = |real: PathBuf| Self { at: (at.to_owned(), real), below: None, mounts: Vec::new() };
        let Ok(real) = at.canonicalize() else { return Ok(nothing(at.to_owned())) };
        let others = daemon.open_pools().into_iter().filter(|other| !std::ptr::eq(&**other, pool)).map(Some);
        let is_inside = |path: &Path| path != real && path.starts_with(&real);
        let mut found: Vec<(Option<Arc<OpenPool>>, String, Arc<FuseMount>)> = Vec::new();
        for other in others.chain([None]) {
            let mounts = lock(&other.as_deref().unwrap_or(pool).mounts);
            let inside = mounts.iter().filter(|(_, mount)| is_inside(&mount.fuse().real_path()));
            found.extend(inside.map(|(name, mount)| (other.clone(), name.clone(), mount.fuse())));
        }
        found.retain(|(_, _, fuse)| fuse.is_alive() && fuse.is_in_place());
        let paths: Vec<PathBuf> = found.iter().map(|(_, _, fuse)| fuse.real_path()).collect();
        // What is inside another one of them goes with that.
        let is_outermost = |path: &Path| !paths.iter().any(|other| other != path && path.starts_with(other));
        found.retain(|(_, _, fuse)| is_outermost(&fuse.real_path()));
        let refuse = |(_, name, fuse): &(_, String, Arc<FuseMount>), why: &str| {
            let inside = fuse.mountpoint();
            ApiError::busy(format!(
                "{doing}: it would hide '{name}', which is mounted at {}{why}; unmount '{name}' first",
                inside.display()
            ))
        };
        if let Some(first) = found.first().filter(|_| !super::is_root()) {
            return Err(refuse(first, ""));
        }
        let mut inside = nothing(real);
        inside.below = (!found.is_empty()).then(|| DetachedMount::of(&inside.at.1).ok()).flatten();
        for found in found {
            let at = found.2.real_path();
            let mount = DetachedMount::of(&at)
                .map_err(|error| refuse(&found, &format!(" and cannot be moved: {}", in_words(&error))))?;
            inside.mounts.push(NestedMount { pool: found.0, name: found.1, at, mount });
        }
        Ok(inside)
    }

    /// Puts all at their paths, above what was mounted there. Directories that were made for them before, and
    /// are not hidden: it is for who mounted above them to remove those.
    ///
    /// # Errors
    /// A mount cannot be moved; and whether none was.
    pub fn move_up(self, pool: &OpenPool) -> Result<Vec<PathBuf>, (ApiError, bool)> {
        let Self { at: (shown, real), below, mounts } = self;
        let refuse = |hidden: &NestedMount, why: &str| {
            let at = hidden.at.display();
            ApiError::refused(format!("it would hide '{}', which is mounted at {at}: {why}", hidden.name))
        };
        let mut made: Vec<Vec<PathBuf>> = Vec::new();
        for hidden in &mounts {
            let is_foreign = hidden.pool.is_some() && pool.altroot().is_some();
            let ready = match leads_nowhere_else(&hidden.at, Some(&real)) {
                true if is_foreign && !hidden.at.exists() => {
                    Err("it would have no directory then; unmount it, or use another altroot".to_owned())
                }
                true => make_directories(&hidden.at).map_err(|error| in_words(&error)),
                false => Err("that leads elsewhere then".to_owned()),
            };
            match ready {
                Ok(ready) => made.push(ready),
                Err(why) => {
                    made.iter().for_each(|made| remove_directories(made));
                    return Err((refuse(hidden, &why), true));
                }
            }
        }
        let (mut failed, mut kept) = (None, Vec::new());
        let all = mounts.len();
        let mut hidden_still = 0;
        for (hidden, made) in mounts.into_iter().zip(made) {
            if let Err(error) = hidden.mount.put(&hidden.at) {
                remove_directories(&made);
                failed = Some(refuse(&hidden, &in_words(&error)));
                hidden_still += 1;
                continue;
            }
            let before = hidden.pool.as_deref().unwrap_or(pool).exchange_made(&hidden.name, made);
            for directory in before {
                match directory.strip_prefix(&shown) {
                    Ok(inside) if !inside.as_os_str().is_empty() => {
                        // One that is not empty is in use now.
                        let _ = below.as_ref().map(|below| below.remove_directory(inside));
                    }
                    _ => kept.push(directory),
                }
            }
        }
        match failed {
            Some(error) => Err((error, hidden_still == all)),
            None => Ok(kept),
        }
    }
}

/// Refuses to make a mountpoint of a pool below an altroot inside a filesystem of another pool.
pub(in crate::daemon) fn require_own_filesystem(
    daemon: &Daemon,
    pool: &OpenPool,
    at: &Path,
) -> Result<(), String> {
    let existing = at.ancestors().find(|path| path.exists());
    let Some(ground) = existing.filter(|path| *path != at && pool.altroot().is_some()) else { return Ok(()) };
    let Ok(device) = device_at(ground) else { return Ok(()) };
    for other in daemon.open_pools().iter().filter(|other| !std::ptr::eq(&***other, pool)) {
        let mounts = lock(&other.mounts);
        if let Some((name, _)) = mounts.iter().find(|(_, mount)| mount.fuse().device() == device) {
            let at = at.display();
            return Err(format!(
                "{at} would be made in '{name}', a filesystem of another pool; make the directory, or use \
                 another altroot"
            ));
        }
    }
    Ok(())
}

/// Filesystems of other pools that are mounted inside those of a pool which are about to go by force.
#[derive(Debug, Default)]
pub(in crate::daemon) struct ForeignMounts(Vec<ForeignMount>);

#[derive(Debug)]
struct ForeignMount {
    pool: Arc<OpenPool>,
    name: String,
    mount: Arc<FuseMount>,
    /// One more mount of it, with what is inside.
    copy: OwnedFd,
}

impl ForeignMounts {
    /// Those inside the mounts of `pool`. Only root can keep them.
    pub fn of(daemon: &Daemon, pool: &OpenPool) -> Self {
        let own: HashSet<PathBuf> =
            lock(&pool.mounts).values().map(|mount| mount.fuse().real_path()).collect();
        let mut found = Self::default();
        for other in daemon.open_pools().into_iter().filter(|other| !std::ptr::eq(&**other, pool)) {
            let mounts: Vec<_> = {
                let mounts = lock(&other.mounts);
                mounts.iter().map(|(name, mount)| (name.clone(), mount.fuse())).collect()
            };
            for (name, mount) in mounts {
                let at = mount.real_path();
                if !at.ancestors().skip(1).any(|path| own.contains(path)) || !mount.is_in_place() {
                    continue;
                }
                match clone_mount_tree(&at) {
                    Ok(copy) => found.0.push(ForeignMount { pool: Arc::clone(&other), name, mount, copy }),
                    Err(error) => {
                        tracing::warn!(%error, "'{name}' may be unmounted with the filesystem that \
                        it is mounted in")
                    }
                }
            }
        }
        // What is inside another one of them comes after it.
        found.0.sort_by_key(|bystander| bystander.mount.real_path().components().count());
        found
    }

    /// Puts them where they were, if they are not there any more.
    pub fn put_back(self) {
        for ForeignMount { pool, name, mount, copy } in self.0 {
            let at = mount.real_path();
            if mount.is_in_place() {
                continue;
            }
            let put = make_directories(&at).and_then(|made| {
                let put = move_mount(copy.as_raw_fd(), &at);
                put.inspect_err(|_| remove_directories(&made)).map(|()| made)
            });
            match put {
                Ok(mut made) => {
                    made.extend(pool.exchange_made(&name, Vec::new()));
                    pool.exchange_made(&name, made);
                }
                Err(error) => {
                    tracing::warn!(%error, "'{name}' was unmounted with the filesystem that it was \
                    mounted in")
                }
            }
        }
    }
}
