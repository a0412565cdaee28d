//! Filesystems: which are mounted, where, in which order, and with which options.
//!
//! The rules are those of `zfs mount`: the property `mountpoint` (below the altroot) says where, `canmount`
//! whether it is mounted by itself, and an encrypted filesystem waits for its key. Parents are mounted before
//! filesystems below them and unmounted after them. A filesystem with the mountpoint `legacy` is mounted by
//! the system's `mount`, through its helper. Directories that were made for a mountpoint are removed with it.
//! Those inside another filesystem of the pool are only removed when the mounted filesystem moves or is
//! destroyed, so that an export and an import write nothing.
//!
//! A filesystem is *mounted* when the kernel's table of mounts has it at its mountpoint. A filesystem that
//! was unmounted there and is still mounted at another place (a bind mount, a container) is *in use*: it is
//! not listed as mounted, keeps its key and its pool, and comes back to its mountpoint as it is.
//!
//! | module | what it does |
//! |---|---|
//! | here | the list of mounts, and what is known of each |
//! | `mounting`, `unmounting` | both, on request and around changes of datasets |
//! | `changing` | mounts that stay and get other options |
//! | `remount` | filesystems whose mountpoints change |
//! | `nested` | mounts below a directory at which a filesystem is mounted |
//! | `directories` | directories that are made for mountpoints |
//! | `snapshot_dir` | snapshots that are taken and destroyed through `.zfs/snapshot` |

mod changing;
mod directories;
mod mounting;
pub(super) mod nested;
pub(super) mod remount;
mod snapshot_dir;
mod unmounting;

pub(super) use directories::{leads_nowhere_else, make_directories, remove_directories};

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::dsl::{Dsl, Entry, Wanted};
use engine::events::feed::What;
use engine::properties::{Environment, Mounted as MountedAs, PropertySet};

use super::{Daemon, OpenPool, lock};
use crate::api::{self, ApiError, Mounted};
use crate::fuse::{Elsewhere, FuseMount, GivenMount, MountError, SnapshotsClosed, Table};
use unmounting::Emptied;

/// A session whose mount is gone ends within this time after the last file was closed, unless another program
/// else has files open.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// A mounted filesystem and what was made for it.
#[derive(Debug)]
pub(super) struct Mount {
    /// The dataset that is mounted, under its present name.
    dataset: String,
    /// Shared with requests that change its options, which may wait for devices.
    fuse: Arc<FuseMount>,
    /// Directories that did not exist before, the deepest first.
    made: Vec<PathBuf>,
    /// Options that were given for this mount.
    words: Vec<String>,
    /// The system's `mount` mounted it.
    by_system: bool,
    /// It was at its mountpoint, and stayed there when a rename was asked not to move it: the next one
    /// does.
    is_left_behind: bool,
}

impl Mount {
    /// Its FUSE mount.
    pub(super) fn fuse(&self) -> Arc<FuseMount> {
        Arc::clone(&self.fuse)
    }

    fn described(&self) -> Mounted {
        Mounted {
            dataset: self.dataset.clone(),
            mountpoint: self.fuse.mountpoint(),
            options: self.fuse.options_words(),
            given: self.words.clone(),
            by_system: self.by_system,
            answered_through_rings: self.fuse.answered_through_rings(),
        }
    }
}

/// A filesystem that is to be mounted after a change around it.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) dataset: String,
    pub(super) at: PathBuf,
    /// That is where its properties say, and not where a user wanted it.
    pub(super) is_place: bool,
    /// Options that were given for the mount.
    pub(super) given: Vec<String>,
    /// The system's `mount` mounted it.
    pub(super) by_system: bool,
}

impl OpenPool {
    /// How each filesystem is mounted that is.
    pub(super) fn mounted(&self) -> HashMap<String, MountedAs> {
        let table = Table::read().ok();
        let is_listed = is_listed();
        let mounts = lock(&self.mounts);
        let listed = mounts.iter().filter(|(_, mount)| is_listed(mount));
        let words = |mount: &Mount| match &table {
            Some(table) => mount.fuse.options_words_in(table),
            None => mount.fuse.options_words(),
        };
        listed.map(|(name, mount)| (name.clone(), MountedAs { options: words(mount) })).collect()
    }

    /// Where each filesystem is mounted that is.
    pub(super) fn mountpoints(&self) -> HashMap<String, PathBuf> {
        let mounted = self.mounts_described().into_iter();
        mounted.map(|mount| (mount.dataset, mount.mountpoint)).collect()
    }

    /// Has the kernel write back what programs mapped and changed. Blocks the thread.
    pub(super) fn write_back(&self, is_meant: impl Fn(&str) -> bool) {
        let meant: Vec<_> = {
            let mounts = lock(&self.mounts);
            let meant = mounts.values().filter(|mount| mount.fuse.is_alive() && is_meant(&mount.dataset));
            meant.map(|mount| Arc::clone(&mount.fuse)).collect()
        };
        meant.iter().for_each(|mount| mount.write_back());
    }

    /// All was committed: from now on the space of files is known.
    pub(super) fn space_is_known(&self) {
        let mounts: Vec<_> = lock(&self.mounts).values().map(Mount::fuse).collect();
        mounts.iter().for_each(|mount| mount.space_is_known());
    }

    /// What is mounted at a path; the kernel's table is read only where something may be.
    fn find_mount(&self, is_wanted: impl Fn(&Path) -> bool) -> Option<Mounted> {
        let may_be = lock(&self.mounts)
            .values()
            .any(|mount| mount.fuse.is_alive() && is_wanted(&mount.fuse.mountpoint()));
        let listed = if may_be { self.mounts_described() } else { Vec::new() };
        listed.into_iter().find(|mount| is_wanted(&mount.mountpoint))
    }

    /// How a filesystem is mounted, if it is at its mountpoint.
    fn described_in_place(&self, name: &str) -> Option<Mounted> {
        let mounts = lock(&self.mounts);
        let mount = mounts.get(name).filter(|mount| mount.fuse.is_alive() && mount.fuse.is_in_place());
        mount.map(Mount::described)
    }

    /// The mount at a path, which may contain links.
    fn mounted_at(&self, at: &Path) -> Option<String> {
        let mounts = lock(&self.mounts);
        let is_there = |fuse: &FuseMount| fuse.mountpoint() == at || fuse.real_path() == at;
        let found = mounts.iter().find(|(_, mount)| mount.fuse.is_alive() && is_there(&mount.fuse));
        found.map(|(name, _)| name.clone())
    }

    fn mounts_described(&self) -> Vec<Mounted> {
        let is_listed = is_listed();
        let mounts = lock(&self.mounts);
        mounts.values().filter(|mount| is_listed(mount)).map(Mount::described).collect()
    }

    /// The properties of a dataset that are wanted, at least, where `mounted` is how filesystems are mounted
    /// now.
    pub(super) async fn properties_of(
        &self,
        dsl: &Dsl,
        entry: &Entry,
        wanted: &Wanted<'_>,
        mounted: &HashMap<String, MountedAs>,
    ) -> engine::Result<PropertySet> {
        let environment = Environment { mounted: &|name| mounted.get(name).cloned() };
        dsl.properties_of(entry, &environment, wanted).await
    }

    /// Datasets in use of one encryption root or below one dataset, mounted or not: names for which
    /// `is_wanted` holds.
    pub(super) fn in_use_where(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        self.forget_dead();
        let mounts = lock(&self.mounts);
        mounts.keys().filter(|name| is_wanted(name)).cloned().collect()
    }

    /// Replaces the list of directories that were made for a mount. Returns the old list.
    pub(super) fn exchange_made(&self, name: &str, made: Vec<PathBuf>) -> Vec<PathBuf> {
        let mut mounts = lock(&self.mounts);
        mounts.get_mut(name).map(|mount| std::mem::replace(&mut mount.made, made)).unwrap_or_default()
    }

    /// Mounts that other programs unmounted.
    fn forget_dead(&self) {
        let aside: Vec<_> = {
            let mounts = lock(&self.mounts);
            let aside = mounts.values().filter(|mount| mount.fuse.is_aside());
            aside.map(|mount| Arc::clone(&mount.fuse)).collect()
        };
        let_go_unused(&aside);
        drop(aside);
        self.forget_sessions_that_ended();
    }

    fn forget_sessions_that_ended(&self) {
        let dead: Vec<Mount> = {
            let mut mounts = lock(&self.mounts);
            let names: Vec<String> = mounts
                .iter()
                .filter(|(_, mount)| !mount.fuse.is_alive())
                .map(|(name, _)| name.clone())
                .collect();
            names.iter().filter_map(|name| mounts.remove(name)).collect()
        };
        for mount in dead {
            // It is not alive: nothing is unmounted.
            drop(mount.fuse);
            self.tell(What::Served { name: mount.dataset.clone(), how: "unmounted" });
            self.remove_emptied(&mount.made, Emptied::KeptInside);
        }
    }

    /// Ends sessions whose mounts another program just unmounted: the kernel reports that a moment later. One
    /// that has many files to let go takes its time, and is waited for as long as there are fewer and fewer.
    fn await_unmounted(&self) {
        let held = || {
            let mounts = lock(&self.mounts);
            let leaving = mounts
                .values()
                .filter(|mount| mount.fuse.is_alive() && !mount.fuse.is_aside() && !mount.fuse.is_in_place());
            leaving.map(|mount| mount.fuse.files_held()).reduce(|all, more| all + more)
        };
        let (mut deadline, mut last) = (Instant::now() + ENDS_WITHIN, None);
        while let Some(left) = held() {
            if last.is_none_or(|last| left < last) {
                (deadline, last) = (Instant::now() + ENDS_WITHIN, Some(left));
            } else if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(ENDS_WITHIN / 100);
        }
    }

    /// Keeps the sessions of what is mounted although the directories that it is mounted on may go, until
    /// [`Daemon::mount_displaced`].
    pub(super) fn keep_mounts(&self, mounted: &[Mounted]) {
        for mount in mounted {
            if let Some(fuse) = self.fuse_of(&mount.dataset) {
                fuse.keep();
            }
        }
    }

    fn fuse_of(&self, name: &str) -> Option<Arc<FuseMount>> {
        lock(&self.mounts).get(name).map(|mount| Arc::clone(&mount.fuse))
    }

    /// A dataset that stays mounted has another name from now on, and is left behind where its properties say
    /// no longer.
    pub(super) fn rename_mount(&self, from: &str, to: &str, is_left_behind: bool) {
        let mut mounts = lock(&self.mounts);
        if let Some(mount) = mounts.remove(from) {
            let is_left_behind = is_left_behind || mount.is_left_behind;
            mounts.insert(to.to_owned(), Mount { dataset: to.to_owned(), is_left_behind, ..mount });
        }
    }

    /// Whether a filesystem is mounted where its properties said before a rename that moved nothing.
    pub(super) fn is_left_behind(&self, name: &str) -> bool {
        lock(&self.mounts).get(name).is_some_and(|mount| mount.is_left_behind)
    }

    /// Has the kernel's table of mounts show a filesystem by the name that it has now, where that can be done
    /// without notice.
    ///
    /// # Errors
    /// It is not mounted any more.
    pub(super) fn show_name(&self, name: &str) -> Result<(), ApiError> {
        self.fuse_of(name).map_or(Ok(()), |fuse| fuse.name_anew(name).map_err(mount_error))
    }

    /// Refuses to open files of snapshots below `.zfs/snapshot`, as long as the guard that is
    /// returned is kept. Refuses where a file is open in one.
    pub(super) fn close_snapshots(
        &self,
        doing: &str,
        names: &[String],
    ) -> Result<Vec<SnapshotsClosed>, ApiError> {
        let mut of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (filesystem, snapshot) in names.iter().filter_map(|name| name.split_once('@')) {
            of.entry(filesystem).or_default().push(snapshot);
        }
        let mounts: Vec<_> = {
            let mounts = lock(&self.mounts);
            of.iter()
                .filter_map(|(of, names)| Some((*of, Arc::clone(&mounts.get(*of)?.fuse), names)))
                .collect()
        };
        let closed = mounts.iter().filter_map(|(of, mount, names)| {
            let busy =
                |name| ApiError::busy(format!("{doing}: a file is open in '{of}@{name}': dataset is busy"));
            mount.close_snapshots(names).map_err(busy).transpose()
        });
        closed.collect()
    }

    /// The mount of a filesystem that is written, as long as it is mounted.
    pub(super) fn live_mount(&self, name: &str) -> Option<Arc<FuseMount>> {
        let mounts = lock(&self.mounts);
        let mount = mounts.get(name).filter(|mount| mount.fuse.is_alive() && mount.fuse.live().is_some())?;
        Some(Arc::clone(&mount.fuse))
    }

    /// The mounts inside another filesystem, deepest first.
    pub(super) fn mounted_inside(&self, name: &str) -> Vec<Mounted> {
        let mut mounts = self.mounts_deepest_first();
        let top = mounts.iter().find(|mount| mount.dataset == name).map(|mount| mount.mountpoint.clone());
        mounts.retain(|mount| {
            mount.dataset != name && top.as_ref().is_some_and(|top| mount.mountpoint.starts_with(top))
        });
        mounts
    }

    /// Whether a filesystem is mounted.
    pub(super) fn is_mounted(&self, name: &str) -> bool {
        lock(&self.mounts).contains_key(name)
    }

    /// Whether a filesystem is mounted and at its mountpoint.
    pub(super) fn is_in_place(&self, name: &str) -> bool {
        lock(&self.mounts).get(name).is_some_and(|mount| mount.fuse.is_alive() && mount.fuse.is_in_place())
    }

    /// The mounts that no other daemon could go on with.
    pub(super) fn mounts_that_stay(&self) -> Vec<(String, Arc<FuseMount>)> {
        self.forget_dead();
        let mounts: Vec<_> =
            lock(&self.mounts).iter().map(|(name, mount)| (name.clone(), mount.fuse())).collect();
        mounts.into_iter().filter(|(_, mount)| !mount.may_be_given()).collect()
    }

    /// Where its filesystems are mounted, by name.
    pub(super) fn mount_places(&self) -> Vec<(String, PathBuf)> {
        let mounts = lock(&self.mounts);
        mounts.iter().map(|(name, mount)| (name.clone(), mount.fuse.mountpoint())).collect()
    }

    /// Stops serving a mount, for another daemon to go on. Nothing where that cannot be.
    pub(super) fn give_mount(&self, name: &str) -> Option<GivenMount> {
        let (fuse, mounted) = {
            let mounts = lock(&self.mounts);
            let mount = mounts.get(name).filter(|mount| !mount.is_left_behind)?;
            (mount.fuse(), mount.described())
        };
        let mut given = fuse.give(mounted)?;
        // It may be forgotten already, as one that ended.
        given.told.made = lock(&self.mounts).remove(name).map(|mount| mount.made).unwrap_or_default();
        Some(given)
    }

    /// The mounts, in an order in which they can be unmounted.
    pub(super) fn mounts_deepest_first(&self) -> Vec<Mounted> {
        self.forget_dead();
        let mut mounts = self.mounts_described();
        mounts.sort_by_key(|mount| Reverse(mount.mountpoint.components().count()));
        mounts
    }
}

impl Daemon {
    /// The mounts, by name.
    ///
    /// # Errors
    /// None.
    pub fn list_mounts(&self, _: api::ListMounts) -> Result<Vec<Mounted>, ApiError> {
        Ok(self.open_pools().iter().flat_map(|pool| pool.mounts_described()).collect())
    }
}

pub(super) fn mount_error(error: MountError) -> ApiError {
    let kind = match &error {
        MountError::Busy { .. }
        | MountError::Covered { .. }
        | MountError::BusyElsewhere { .. }
        | MountError::Stuck { .. } => api::ErrorKind::Busy,
        MountError::Open { error: engine::Error::KeyNotLoaded { .. }, .. } => api::ErrorKind::Refused,
        _ => api::ErrorKind::Failed,
    };
    // What the helper says ends with a line end.
    ApiError::new(kind, error.to_string().trim_end())
}

/// Releases filesystems that are at no mountpoint and not mounted at any other place: one look for all.
fn let_go_unused(mounts: &[Arc<FuseMount>]) {
    if mounts.iter().any(|mount| mount.is_aside())
        && let Ok(now) = Elsewhere::read()
    {
        mounts.iter().for_each(|mount| mount.let_go_if_unused(&now));
    }
}

/// Whether a mount lives and is in the kernel's table of mounts, as that is now. All that live are, where it
/// cannot be read.
fn is_listed() -> impl Fn(&Mount) -> bool {
    let table = Table::read().ok();
    move |mount| mount.fuse.is_alive() && table.as_ref().is_none_or(|table| mount.fuse.is_listed(table))
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
