//! Changing mounts that stay: by `remount`, and by properties that are set.

use std::sync::Arc;

use engine::properties::Environment;

use super::{Mount, mount_error};
use crate::api::{ApiError, Mounted};
use crate::daemon::open_pool::Changing;
use crate::daemon::{Daemon, OpenPool, dataset_error, lock};
use crate::fuse::{MountError, MountOptions};

impl Daemon {
    /// Lets what the properties of filesystems say now hold for those of them that are mounted. What could
    /// not be made to.
    ///
    /// `is_wish`: something was changed that a mount takes over when it begins. Otherwise nothing is
    /// unmounted because of an earlier change while a process uses it and another filesystem is mounted
    /// inside.
    pub(in crate::daemon) async fn update_mounts(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        is_wish: bool,
        is_meant: impl Fn(&str) -> bool,
    ) -> Vec<ApiError> {
        let mut failed = Vec::new();
        let in_use: Vec<Mounted> = {
            let mounts = lock(&pool.mounts);
            mounts.values().filter(|mount| mount.fuse.is_alive()).map(Mount::described).collect()
        };
        for mount in in_use.into_iter().filter(|mount| is_meant(&mount.dataset)) {
            failed.extend(self.update_mount(pool, changing, &mount, (false, is_wish)).await.err());
        }
        failed
    }

    /// Lets options hold for what is mounted, beside those that it was mounted with. The system's `mount`
    /// repeats the present value: that was not asked for.
    pub(super) async fn remount(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        name: &str,
        (mut words, is_repeated): (Vec<String>, bool),
    ) -> Result<Mounted, ApiError> {
        let given = |set: &dyn Fn(&mut Vec<String>)| {
            let mut mounts = lock(&pool.mounts);
            let mount = mounts.get_mut(name).filter(|mount| mount.fuse.is_alive());
            mount.map(|mount| {
                set(&mut mount.words);
                mount.described()
            })
        };
        let not_mounted = || ApiError::invalid(format!("cannot remount '{name}': not currently mounted"));
        let before = given(&|_| {}).ok_or_else(not_mounted)?;
        if let Some(fuse) = pool.fuse_of(name).filter(|_| is_repeated) {
            let mut options = fuse.options_now();
            words.retain(|word| {
                let had = options.words();
                options.apply_word(word).is_err() || options.words() != had || word.ends_with("ring")
            });
        }
        // Of two that contradict each other the later one holds.
        let mount = given(&|all| all.extend(words.iter().cloned())).ok_or_else(not_mounted)?;
        let updated = self.update_mount(pool, changing, &mount, (true, true)).await;
        if let Err(error) = updated {
            given(&|all| all.clone_from(&before.given));
            return Err(error);
        }
        given(&|_| {}).ok_or_else(not_mounted)
    }

    async fn update_mount(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        mount: &Mounted,
        (anew, is_wish): (bool, bool),
    ) -> Result<(), ApiError> {
        let name = &mount.dataset;
        let failed = |error| dataset_error("mount", name, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let entry = dsl.entry(name).await.map_err(failed)?;
        let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await.map_err(failed)?;
        drop(dsl);
        let get =
            || lock(&pool.mounts).get(name).map(|mounted| (Arc::clone(&mounted.fuse), mounted.words.clone()));
        let Some((fuse, words)) = get() else { return Ok(()) };
        let mut options = MountOptions::from_properties(&properties);
        for word in pool.mount_options().iter().chain(&words) {
            options.apply_word(word).map_err(ApiError::invalid)?;
        }
        options.writable &= pool.live().is_some() && !name.contains('@');
        let needs_another_session = fuse.needs_another_session(&options);
        if !needs_another_session {
            fuse.forget_postponed();
            // May wait for devices: listing mounts meanwhile, or ending, does not wait with it.
            match fuse.update(&options, anew) {
                // Only root may tell the kernel so.
                Err(MountError::Refused { error, .. })
                    if error.kind() == std::io::ErrorKind::PermissionDenied => {}
                updated => return updated.map_err(mount_error),
            }
        }
        let is_in_place = fuse.is_in_place();
        let waits = !is_wish && fuse.is_postponed(&options) && !pool.mounted_inside(name).is_empty();
        drop(fuse);
        let busy = match is_in_place && !waits {
            true => match self.unmount_mounts(pool, changing, false, |other| other == name).await {
                Ok(unmounted) => {
                    self.mount_again(pool, changing, unmounted).await;
                    return Ok(());
                }
                Err(busy) => Some(busy),
            },
            // It begins another session when this one is unused, or when it is mounted again.
            false => None,
        };
        let Some((fuse, _)) = get() else { return busy.map_or(Ok(()), Err) };
        let (now, is_new) = fuse.without_another_session(options);
        match fuse.update(&now, anew) {
            // This is not root: nothing of what the kernel keeps follows, until it is mounted again.
            Err(MountError::Refused { error, .. })
                if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            updated => updated.map_err(mount_error)?,
        }
        // Another change is not affected.
        busy.filter(|_| is_new || is_wish || !needs_another_session).map_or(Ok(()), Err)
    }
}
