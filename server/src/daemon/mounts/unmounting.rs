//! Unmounting: a filesystem by name with everything mounted below it, all of a pool, and mounts that a change
//! of datasets affects.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::dsl::Kind;
use engine::events::feed::What;

use super::directories::remove_directories;
use super::nested::ForeignMounts;
use super::{Mount, is_root, mount_error};
use crate::api::{self, ApiError, Mounted, MountsChanged};
use crate::commit_on_unmount::commit;
use crate::daemon::names::is_at_or_below;
use crate::daemon::open_pool::Changing;
use crate::daemon::{Daemon, OpenPool, dataset_error, lock, not_of_this_type};
use crate::fuse::{self, Elsewhere};

/// How long a mount that is taken away by force may take to be on disk.
const COMMITTED_WITHIN: Duration = Duration::from_secs(20);

/// What to do with directories that were made for a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emptied {
    /// The filesystem is to be elsewhere, or is no more.
    Removed,
    /// It is mounted there again one day: those inside another filesystem of the pool stay, so that this is
    /// not written for it.
    KeptInside,
}

/// Where the filesystems are mounted that are meant.
fn tops_of(mounts: &[Mounted], is_meant: impl Fn(&str) -> bool) -> HashSet<PathBuf> {
    let meant = mounts.iter().filter(|mount| is_meant(&mount.dataset));
    meant.map(|mount| mount.mountpoint.clone()).collect()
}

/// Where filesystems are mounted, before several are unmounted. One alone looks when it is, and force does
/// not ask.
fn look_before(force: bool, count: usize) -> Option<Elsewhere> {
    if force || count < 2 { None } else { Elsewhere::read().ok() }
}

impl OpenPool {
    /// Unmounts one filesystem; it stays mounted where that fails. `before` is where else filesystems were
    /// mounted, for a caller that unmounts many.
    pub(super) fn unmount_one(
        &self,
        name: &str,
        force: bool,
        emptied: Emptied,
        before: Option<&Elsewhere>,
    ) -> Result<Option<Mounted>, ApiError> {
        if lock(&self.mounts).contains_key(name) {
            // Its servers let go of it then.
            self.end_smb(name);
        }
        let Some(mount) = lock(&self.mounts).remove(name) else { return Ok(None) };
        let described = mount.described();
        match mount.fuse.take_away(force, before) {
            Ok(left) => {
                match left {
                    fuse::Left::Nothing => self.remove_emptied(&mount.made, emptied),
                    // A directory that is removed takes with it what is mounted on it in other mount
                    // namespaces.
                    fuse::Left::Elsewhere => drop(lock(&self.mounts).insert(name.to_owned(), mount)),
                }
                self.tell(What::Served { name: name.to_owned(), how: "unmounted" });
                Ok(Some(described))
            }
            Err(error) => {
                lock(&self.mounts).insert(name.to_owned(), mount);
                Err(mount_error(error))
            }
        }
    }

    /// Removes directories that were made for a mount which is no more.
    pub(super) fn remove_emptied(&self, made: &[PathBuf], emptied: Emptied) {
        let devices: HashSet<_> = match emptied {
            _ if made.is_empty() => return,
            Emptied::Removed => HashSet::new(),
            Emptied::KeptInside => lock(&self.mounts).values().map(|mount| mount.fuse.device()).collect(),
        };
        let is_inside = |directory: &Path| {
            let above = directory.parent().and_then(|above| fuse::device_at(above).ok());
            above.is_some_and(|device| devices.contains(&device))
        };
        let removed: Vec<_> = made.iter().filter(|directory| !is_inside(directory)).cloned().collect();
        remove_directories(&removed);
    }

    /// Unmounts the filesystems that are meant and what is mounted inside them, deepest first: until one
    /// fails, or with `force` all that can be.
    fn unmount_with_what_is_inside(&self, is_meant: impl Fn(&str) -> bool, force: bool) -> MountsChanged {
        let mut mounts = self.mounts_deepest_first();
        let tops = tops_of(&mounts, is_meant);
        mounts.retain(|mount| mount.mountpoint.ancestors().any(|path| tops.contains(path)));
        let before = look_before(force, mounts.len());
        let mut changed = MountsChanged::default();
        for mount in mounts {
            match self.unmount_one(&mount.dataset, force, Emptied::KeptInside, before.as_ref()) {
                Ok(done) => changed.done.extend(done),
                Err(error) => {
                    changed.failed.push(error);
                    if !force {
                        break;
                    }
                }
            }
        }
        if force {
            // What was covered by another one could not be taken away before that was.
            changed.done.iter().for_each(|gone| fuse::clear_stale(&gone.mountpoint));
        }
        changed
    }

    /// Returns when what was written to filesystems that were unmounted is on disk. What is said where it is
    /// not: a pool that is suspended, or is told to by force and takes long, is not waited for.
    fn commit_unmounted(&self, unmounted: &[Mounted], force: bool) -> Option<String> {
        let live = self.live().filter(|_| !unmounted.is_empty())?;
        let error = commit(live, force.then_some(COMMITTED_WITHIN)).err()?;
        let name = self.name();
        Some(format!("'{name}' was unmounted, but its last changes are not on disk yet: {error}"))
    }

    /// Refuses where a filesystem of this pool is in use, before any is unmounted. Blocks the thread.
    ///
    /// # Errors
    /// What keeps the first filesystem from being unmounted.
    pub(in crate::daemon) fn require_unused_mounts(&self) -> Result<(), ApiError> {
        self.forget_dead();
        let mounts: Vec<_> = lock(&self.mounts).values().map(Mount::fuse).collect();
        fuse::require_unused(&mounts).map_err(mount_error)
    }

    /// Unmounts what no other daemon could go on with, the deepest first.
    ///
    /// # Errors
    /// One of them is in use; the others before it are unmounted.
    pub(in crate::daemon) fn unmount_those_that_stay(&self, force: bool) -> Result<(), ApiError> {
        let mut stay = self.mounts_that_stay();
        stay.sort_by_key(|(_, mount)| Reverse(mount.mountpoint().components().count()));
        stay.into_iter().try_for_each(|(name, mount)| {
            drop(mount);
            self.unmount_one(&name, force, Emptied::KeptInside, None).map(drop)
        })
    }

    /// Stops serving a mount, even if it is in use.
    pub(in crate::daemon) fn abandon_mounts(&self) {
        let left = std::mem::take(&mut *lock(&self.mounts));
        left.keys().for_each(|name| self.end_smb(name));
        left.keys().for_each(|name| self.tell(What::Served { name: name.clone(), how: "unmounted" }));
        drop(left);
    }
}

impl Daemon {
    /// Unmounts filesystems and what is mounted inside them, deepest first; all are mounted again when one is
    /// in use. Those that were unmounted.
    pub(in crate::daemon) async fn unmount_mounts(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        force: bool,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<Vec<Mounted>, ApiError> {
        let mounts = pool.mounts_deepest_first();
        let tops = tops_of(&mounts, &is_meant);
        let is_inside = |mount: &&Mounted| mount.mountpoint.ancestors().any(|path| tops.contains(path));
        let before = look_before(force, mounts.iter().filter(is_inside).count());
        let mut unmounted = Vec::new();
        for mount in mounts.iter().filter(is_inside) {
            match pool.unmount_one(&mount.dataset, force, Emptied::Removed, before.as_ref()) {
                Ok(done) => unmounted.extend(done),
                Err(error) => {
                    self.mount_again(pool, changing, unmounted).await;
                    return Err(error);
                }
            }
        }
        if force {
            // Other mounts of it are lost.
            for name in pool.in_use_where(|name| is_meant(name)) {
                pool.unmount_one(&name, true, Emptied::Removed, None)?;
            }
        }
        Ok(unmounted)
    }

    /// Unmounts all filesystems of a pool, until one is in use. One that is mounted at another place is in
    /// use.
    pub(in crate::daemon) async fn unmount_all(
        &self,
        pool: &OpenPool,
        _: &Changing<'_>,
        force: bool,
    ) -> MountsChanged {
        let bystanders = if force { ForeignMounts::of(self, pool) } else { ForeignMounts::default() };
        let mut changed = pool.unmount_with_what_is_inside(|_| true, force);
        bystanders.put_back();
        if !changed.failed.is_empty() && !force {
            return changed;
        }
        let in_use = pool.in_use_where(|_| true);
        let now = look_before(force, in_use.len());
        for name in in_use {
            let left = pool.unmount_one(&name, force, Emptied::KeptInside, now.as_ref());
            let error = match left {
                Err(error) => Some(error),
                Ok(_) => {
                    lock(&pool.mounts).get(&name).map(|mount| mount_error(mount.fuse.busy_elsewhere(None)))
                }
            };
            changed.failed.extend(error);
        }
        changed
    }

    /// Unmounts what `zfs mount -a` mounts, over all pools from the inside out. What says so itself is left
    /// alone (`canmount=noauto`, `mountpoint=legacy` or `none`), and so are snapshots.
    async fn unmount_those_of_mount_all(&self, force: bool) -> MountsChanged {
        let mut changed = MountsChanged::default();
        let mut all: Vec<(Arc<OpenPool>, Mounted)> = Vec::new();
        for pool in self.open_pools() {
            let mounts = pool.mounts_deepest_first();
            all.extend(mounts.into_iter().map(|mount| (Arc::clone(&pool), mount)));
        }
        all.sort_by_key(|(_, mount)| Reverse(mount.mountpoint.components().count()));
        let mut unmounted: Vec<(Arc<OpenPool>, Vec<Mounted>)> = Vec::new();
        let before = look_before(force, all.len());
        for (pool, mount) in all {
            // A pool that was closed meanwhile has nothing mounted.
            let Ok(_changing) = pool.change().await else { continue };
            let name = &mount.dataset;
            let is_meant = match pool.mount_plan_of(name).await {
                Ok(place) => place.canmount != "noauto" && place.at.is_some(),
                Err(error) => {
                    changed.failed.push(dataset_error("unmount", name, error));
                    continue;
                }
            };
            if name.contains('@') || !is_meant {
                continue;
            }
            match pool.unmount_one(name, force, Emptied::KeptInside, before.as_ref()) {
                Ok(done) => match unmounted.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &pool)) {
                    Some((_, of_pool)) => of_pool.extend(done),
                    None => unmounted.push((Arc::clone(&pool), done.into_iter().collect())),
                },
                Err(error) => changed.failed.push(error),
            }
        }
        for (pool, done) in unmounted {
            changed.warnings.extend(pool.commit_unmounted(&done, force));
            changed.done.extend(done);
        }
        changed
    }

    /// Unloads the keys of encryption roots that were unmounted. What could not be unloaded.
    async fn unload_keys_of(&self, unmounted: &[Mounted]) -> Vec<ApiError> {
        let mut failed = Vec::new();
        for mount in unmounted {
            let name = &mount.dataset;
            let unloaded = async {
                let dsl = self.pool_of(name)?.dsl().await?;
                // What is not encrypted has no root.
                let root = dsl.encryption_root_of(name).await;
                drop(dsl);
                match root.is_ok_and(|root| root.loaded && root.dir.name == *name) {
                    true => self.unload_key(api::UnloadKey { dataset: name.clone() }).await,
                    false => Ok(()),
                }
            };
            failed.extend(unloaded.await.err());
        }
        failed
    }

    /// Unmounts one filesystem with what is mounted below it, or all.
    ///
    /// # Errors
    /// Where one filesystem was asked for, why it cannot be unmounted.
    pub async fn unmount(&self, request: api::Unmount) -> Result<MountsChanged, ApiError> {
        let Some(target) = &request.target else {
            let mut all = self.unmount_those_of_mount_all(request.force).await;
            self.open_pools().iter().for_each(|pool| self.shares_follow(pool, &all.done, false));
            if request.unload_keys {
                all.failed.extend(self.unload_keys_of(&all.done).await);
            }
            return Ok(all);
        };
        let is_path = target.starts_with('/');
        if !is_path {
            self.check_unmountable(target).await?;
        }
        let is_target = |mount: &Mounted| mount.dataset == *target || mount.mountpoint == Path::new(target);
        for pool in self.open_pools() {
            let Ok(changing) = pool.change().await else { continue };
            let Some(mount) = pool.mounts_described().into_iter().find(|mount| is_target(mount)) else {
                continue;
            };
            if is_path {
                self.check_unmountable(&mount.dataset).await?;
            }
            // Children go with it wherever they are mounted; snapshots of theirs do not.
            let is_child = |name: &str| !name.contains('@') && is_at_or_below(name, &mount.dataset);
            let is_meant = |name: &str| name == mount.dataset || is_child(name);
            let mut changed = pool.unmount_with_what_is_inside(is_meant, request.force);
            if !changed.failed.is_empty() && !request.force {
                self.mount_again(&pool, &changing, std::mem::take(&mut changed.done)).await;
            }
            drop(changing);
            self.shares_follow(&pool, &changed.done, false);
            changed.warnings.extend(pool.commit_unmounted(&changed.done, request.force));
            if request.unload_keys && changed.failed.is_empty() {
                changed.failed.extend(self.unload_keys_of(&changed.done).await);
                if !changed.failed.is_empty() {
                    // What has its key still is mounted as before.
                    let changing = pool.change().await?;
                    self.mount_again(&pool, &changing, std::mem::take(&mut changed.done)).await;
                }
            }
            return match changed.failed.pop() {
                Some(error) => Err(error),
                None => Ok(changed),
            };
        }
        Err(ApiError::invalid(if is_path {
            format!("cannot unmount '{target}': not a mountpoint of this daemon")
        } else {
            format!("cannot unmount '{target}': not currently mounted")
        }))
    }

    /// Refuses what `zfs unmount` is not for: other than filesystems and snapshots, and what is legacy,
    /// unless `zfs mount --at` mounted it. A filesystem that cannot be read can be unmounted, and no request
    /// waits for devices that are away.
    async fn check_unmountable(&self, name: &str) -> Result<(), ApiError> {
        let pool = self.pool_of(name)?;
        if pool.is_suspended() {
            return Ok(());
        }
        let looked = async {
            let dsl = pool.dsl().await?;
            let kind = dsl.entry(name).await?.kind;
            drop(dsl);
            let is_ours = lock(&pool.mounts).get(name).is_some_and(|mount| !mount.by_system);
            let is_legacy = kind == Kind::Filesystem && !is_ours && pool.mount_plan_of(name).await?.is_legacy;
            Ok((kind, is_legacy))
        };
        match looked.await {
            Ok((_, true)) => {
                let at = pool.mountpoints().remove(name).filter(|_| !is_root());
                // umount(8) is root's.
                let of_users = at.map(|at| format!(", or 'fusermount3 -u {}'", at.display()));
                Err(ApiError::refused(format!(
                    "cannot unmount '{name}': legacy mountpoint\nuse umount(8) to unmount this filesystem{}",
                    of_users.unwrap_or_default()
                )))
            }
            Ok((Kind::Filesystem | Kind::Snapshot { of_volume: false }, false)) => Ok(()),
            Ok(_) => Err(not_of_this_type(name)),
            Err(error @ engine::Error::NotFound(_)) => Err(dataset_error("open", name, error)),
            Err(_) => Ok(()),
        }
    }
}
