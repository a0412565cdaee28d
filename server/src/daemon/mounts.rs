//! Filesystems: which are mounted, where, in which order, and with which options.
//!
//! The rules are those of `zfs mount`: the property `mountpoint` (below the altroot) says where, `canmount` whether without
//! being asked, and an encrypted filesystem waits for its key. Parents come before what lies below them, and go after it. What has the mountpoint
//! `legacy` is mounted by the system's `mount`, through its helper.
//! Directories that had to be made for a mountpoint are removed with it; those inside another filesystem of the pool only when what was mounted there moves or is destroyed, so that an export
//! and an import write nothing.
//!
//! What is *mounted* is what the kernel's table of mounts has at its mountpoint. A filesystem that left it and that somebody has elsewhere (a bind mount, a container) is *in use*: it is not listed as
//! mounted, keeps its key and its pool, and comes back to its mountpoint as it is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::in_words;
use engine::dataset::dsl::{Dataset, Dsl, Entry, Kind, Walk};
use engine::dataset::properties::{Environment, Mounted as MountedAs, Prop, PropertySet, Style};

use super::covering::Inside;
use super::datasets::is_at_or_below;
use super::pools::Changing;
use super::{Daemon, OpenPool, dataset_error, lock, not_of_this_type};
use crate::api::{self, ApiError, Mounted, MountsChanged};
use crate::fuse::{self, FuseMount, LiveSource, MountError, MountOptions, SnapshotsClosed, Source, Table};

/// A session whose mount was taken away ends within this time after it let the last file go, unless somebody else has files open.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// A mounted filesystem and what was made for it.
#[derive(Debug)]
pub(super) struct Mount {
    /// What it is a mount of, under the name that this has now.
    dataset: String,
    /// Shared with whoever changes its options, which may take as long as devices take.
    fuse: Arc<FuseMount>,
    /// Directories that did not exist before, the deepest first.
    made: Vec<PathBuf>,
    /// Options that were given for this mount.
    words: Vec<String>,
    /// The system's `mount` mounted it.
    by_system: bool,
    /// It was where its properties say, and stayed there when nobody wanted a rename to move it: the next one does.
    is_left_behind: bool,
}

impl Mount {
    /// What it is to the kernel.
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

/// How a filesystem would be mounted.
struct Plan {
    dsl: Arc<Dsl>,
    dataset: Dataset,
    at: PathBuf,
    /// The directory that its mountpoint must be in, where the pool says where that is and not the user.
    confined_to: Option<PathBuf>,
    options: MountOptions,
    /// The property `overlay`: the directory may have contents.
    overlay: bool,
    /// `mountpoint=legacy`, or a snapshot, which has none: the system's `mount` is to mount it.
    is_legacy: bool,
    /// The system's `mount` mounts it.
    by_system: bool,
}

/// Why a filesystem is not mounted with the others.
enum Left {
    /// Its properties say so.
    AsConfigured,
    /// Something that its user may not expect.
    With(String),
}

/// What becomes of directories that were made for a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Emptied {
    /// The filesystem is to be elsewhere, or is no more.
    Removed,
    /// It is mounted there again one day: those inside another filesystem of the pool stay, so that this is not written for it.
    KeptInside,
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

    fn find_mount(&self, is_wanted: impl Fn(&Path) -> bool) -> Option<Mounted> {
        self.mounts_described().into_iter().find(|mount| is_wanted(&mount.mountpoint))
    }

    /// What is mounted at a path, which may lead there through links or not.
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

    /// All properties of a dataset, where `mounted` is how filesystems are mounted now.
    pub(super) async fn properties(
        &self,
        dsl: &Dsl,
        entry: &Entry,
        mounted: &HashMap<String, MountedAs>,
    ) -> engine::Result<PropertySet> {
        let environment = Environment { mounted: &|name| mounted.get(name).cloned() };
        dsl.properties(entry, &environment).await
    }

    /// What is in use of one encryption root or below one dataset, mounted or not: names for which `is_wanted` holds.
    pub(super) fn in_use_where(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        self.forget_dead();
        let mounts = lock(&self.mounts);
        mounts.keys().filter(|name| is_wanted(name)).cloned().collect()
    }

    /// What a mount serves. In a pool that is open for writing it must not keep a committed state, whose space could never be reused: it is the live
    /// filesystem, also where the mount is read-only (its quotas can be set all the same, and files that were unlinked before a crash are freed), or a snapshot, whose blocks stay, and
    /// which finds them in a state that does not count. A filesystem that can only be read here is as a snapshot: nobody changes it.
    async fn source(&self, plan: &Plan, options: &MountOptions) -> engine::Result<Source> {
        let dataset = &plan.dataset;
        let Some(live) = self.live() else {
            return Ok(Source::Committed(Arc::clone(&plan.dsl), dataset.clone()));
        };
        if !dataset.is_snapshot() {
            match live.filesystem(dataset.objset_id()).await {
                Ok(zpl) => {
                    let (pool, dataset) = (Arc::clone(live), dataset.clone());
                    return Ok(Source::Live(LiveSource { pool, dataset, zpl }));
                }
                Err(engine::Error::Unsupported(why)) => {
                    tracing::warn!("'{}' is mounted read-only: {why}", dataset.name);
                }
                // What is damaged can still be read, where nobody wants more.
                Err(error) if !options.writable => {
                    tracing::warn!("'{}' can only be read: {error}", dataset.name);
                }
                Err(error) => return Err(error),
            }
        }
        if !dataset.is_snapshot() {
            // It may have been written until now.
            live.txgs().wait_synced(live.txgs().open_txg()).await?;
        }
        let dsl = Arc::new(Dsl::open(&live.view_of_snapshots()).await?);
        let dataset = match dataset.is_snapshot() {
            true => dataset.clone(),
            false => dsl.dataset_of_object(dataset.object).await?,
        };
        Ok(Source::Committed(dsl, dataset))
    }

    /// Where a filesystem is to be mounted without being asked for by name.
    async fn plan(
        &self,
        dsl: &Arc<Dsl>,
        entry: &Entry,
        dataset: &Dataset,
        mounted: &HashMap<String, MountedAs>,
    ) -> engine::Result<Result<Plan, Left>> {
        let properties = self.properties(dsl, entry, mounted).await?;
        let word = |prop| properties.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default();
        let mountpoint = word(Prop::Mountpoint);
        if word(Prop::Canmount) != "on" || word(Prop::Zoned) == "on" || !mountpoint.starts_with('/') {
            return Ok(Err(Left::AsConfigured));
        }
        if word(Prop::Keystatus) == "unavailable" {
            let root = word(Prop::EncryptionRoot);
            return Ok(Err(Left::With(format!(
                "'{}' is not mounted: it is encrypted, and the key of '{root}' is not loaded",
                dataset.name
            ))));
        }
        Ok(Ok(Plan {
            dsl: Arc::clone(dsl),
            dataset: dataset.clone(),
            at: mountpoint.into(),
            confined_to: self.altroot().map(Path::to_owned),
            options: MountOptions::from_properties(&properties),
            overlay: word(Prop::Overlay) != "off",
            is_legacy: false,
            by_system: false,
        }))
    }

    /// Mounts one filesystem, making its mountpoint.
    async fn mount_planned(
        &self,
        daemon: &Daemon,
        plan: &Plan,
        words: &[String],
        overlay: bool,
    ) -> Result<Mounted, ApiError> {
        let name = &plan.dataset.name;
        let refuse = |why: String| format!("cannot mount '{name}': {why}");
        if plan.at == Path::new("/") {
            return Err(ApiError::refused(refuse(
                "it would hide this system's own '/'; import the pool with an altroot (-R)".into(),
            )));
        }
        let mut options = MountOptions { allow_other: is_root(), ..plan.options.clone() };
        for word in self.mount_options().iter().chain(words) {
            options.apply_word(word).map_err(|why| ApiError::invalid(refuse(why)))?;
        }
        options.writable &= self.live().is_some() && !plan.dataset.is_snapshot();
        self.forget_dead();
        if let Some(other) = self.find_mount(|at| at == plan.at) {
            return Err(ApiError::busy(refuse(format!(
                "'{}' is already mounted at {}",
                other.dataset,
                plan.at.display()
            ))));
        }
        if !fuse::answers(&plan.at) {
            return Err(ApiError::failed(refuse(format!(
                "what is mounted at {} or above it does not answer; unmount that ('umount -f'), or say where to mount it",
                plan.at.display()
            ))));
        }
        self.clear_stale(&plan.at);
        if !leads_nowhere_else(&plan.at, plan.confined_to.as_deref()) {
            return Err(ApiError::refused(refuse(format!(
                "the mountpoint {} leads elsewhere; say where to mount it",
                plan.at.display()
            ))));
        }
        let made = make_directories(&plan.at).map_err(|error| {
            let shown = plan.at.display();
            ApiError::failed(refuse(format!("failed to create mountpoint {shown}: {}", in_words(&error))))
        })?;
        let not_empty = || fs::read_dir(&plan.at).is_ok_and(|mut entries| entries.next().is_some());
        if !plan.overlay && !overlay && not_empty() {
            return Err(ApiError::refused(refuse(format!("directory '{}' is not empty", plan.at.display()))));
        }
        let doing = format!("cannot mount '{name}'");
        let inside = Inside::of(daemon, self, &doing, &plan.at).inspect_err(|_| remove_directories(&made))?;
        let left = lock(&self.mounts).get(name).map(|mount| Arc::clone(&mount.fuse));
        if let Some(fuse) = left {
            // Somebody has it elsewhere, and it may have got another name meanwhile.
            let put = fuse.put_back(&plan.at, &options).and_then(|()| fuse.name_anew(name));
            if fuse.is_in_place() {
                self.describe_anew(plan, &made, words);
            } else {
                remove_directories(&made);
            }
            return match put {
                Ok(()) => {
                    self.bring_up(name, inside)?;
                    self.find_mount(|at| at == plan.at).ok_or_else(|| {
                        ApiError::failed(refuse("it did not stay where it was mounted".into()))
                    })
                }
                Err(error) => Err(ApiError { message: refuse(error.to_string()), ..mount_error(error) }),
            };
        }
        let source = self.source(plan, &options).await;
        let mounted = match source {
            Ok(source) => fuse::mount(source, &plan.at, &options).map_err(mount_error),
            Err(error) => Err(dataset_error("mount", name, error)),
        };
        match mounted {
            Ok(fuse) => {
                let (fuse, words) = (Arc::new(fuse), words.to_vec());
                let (dataset, by_system) = (name.clone(), plan.by_system);
                let mount = Mount { dataset, fuse, made, words, by_system, is_left_behind: false };
                let described = mount.described();
                lock(&self.mounts).insert(name.clone(), mount);
                self.bring_up(name, inside)?;
                Ok(described)
            }
            Err(mut error) => {
                remove_directories(&made);
                let is_outer = |at: &Path| at != plan.at && plan.at.starts_with(at);
                if !is_root() && self.find_mount(is_outer).is_some() {
                    error.message += &format!(
                        "\nwithout root no filesystem can be mounted inside another: use 'zfs mount --at DIR {name}'"
                    );
                }
                Err(error)
            }
        }
    }

    /// Brings up what was mounted inside the place where a filesystem now is; where that cannot be, takes the filesystem away again.
    fn bring_up(&self, name: &str, inside: Inside) -> Result<(), ApiError> {
        let (error, none) = match inside.bring_up(self) {
            Ok(made) => {
                if let Some(mount) = lock(&self.mounts).get_mut(name) {
                    mount.made.extend(made);
                }
                return Ok(());
            }
            Err(failed) => failed,
        };
        if none && let Err(error) = self.unmount_one(name, false, Emptied::Removed) {
            tracing::warn!(%error, "a filesystem stays where it hides others");
        }
        Err(ApiError { message: format!("cannot mount '{name}': {}", error.message), ..error })
    }

    /// What was made for a mount is something else from now on. What it was.
    pub(super) fn exchange_made(&self, name: &str, made: Vec<PathBuf>) -> Vec<PathBuf> {
        let mut mounts = lock(&self.mounts);
        mounts.get_mut(name).map(|mount| std::mem::replace(&mut mount.made, made)).unwrap_or_default()
    }

    /// A filesystem is at a place again.
    fn describe_anew(&self, plan: &Plan, made: &[PathBuf], words: &[String]) {
        if let Some(mount) = lock(&self.mounts).get_mut(&plan.dataset.name) {
            mount.by_system = plan.by_system;
            mount.made.splice(..0, made.iter().cloned());
            mount.words = words.to_vec();
        }
    }

    /// Mounts that somebody else took away.
    fn forget_dead(&self) {
        let aside: Vec<_> = {
            let mounts = lock(&self.mounts);
            let aside = mounts.values().filter(|mount| mount.fuse.is_aside());
            aside.map(|mount| Arc::clone(&mount.fuse)).collect()
        };
        aside.iter().for_each(|mount| mount.let_go_if_unused());
        drop(aside);
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
            self.remove_emptied(&mount.made, Emptied::KeptInside);
        }
    }

    /// Lets sessions end whose mounts somebody else just took away: the kernel tells them a moment later. One that has many files to let go takes its time, and is waited for
    /// as long as there are fewer and fewer.
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

    /// What a daemon left behind that was killed: at the mountpoint, and below the altroot on the way to it.
    fn clear_stale(&self, at: &Path) {
        let altroot = self.altroot();
        let mut way: Vec<&Path> = at
            .ancestors()
            .take_while(|path| altroot.is_some_and(|altroot| path.starts_with(altroot)))
            .collect();
        if way.is_empty() {
            way.push(at);
        }
        for path in way.into_iter().rev() {
            fuse::clear_stale(path);
        }
    }

    /// Unmounts one filesystem; it stays mounted where that fails.
    fn unmount_one(&self, name: &str, force: bool, emptied: Emptied) -> Result<Option<Mounted>, ApiError> {
        let Some(mount) = lock(&self.mounts).remove(name) else { return Ok(None) };
        let described = mount.described();
        match mount.fuse.take_away(force) {
            Ok(left) => {
                match left {
                    fuse::Left::Nothing => self.remove_emptied(&mount.made, emptied),
                    // A directory that is removed takes with it what is mounted on it in other mount namespaces.
                    fuse::Left::Elsewhere => drop(lock(&self.mounts).insert(name.to_owned(), mount)),
                }
                Ok(Some(described))
            }
            Err(error) => {
                lock(&self.mounts).insert(name.to_owned(), mount);
                Err(mount_error(error))
            }
        }
    }

    /// Removes directories that were made for a mount which is no more.
    fn remove_emptied(&self, made: &[PathBuf], emptied: Emptied) {
        let devices: Vec<_> = match emptied {
            Emptied::Removed => Vec::new(),
            Emptied::KeptInside => lock(&self.mounts).values().map(|mount| mount.fuse.device()).collect(),
        };
        let is_inside = |directory: &Path| {
            let above = directory.parent().and_then(|above| fuse::device_at(above).ok());
            above.is_some_and(|device| devices.contains(&device))
        };
        let removed: Vec<_> = made.iter().filter(|directory| !is_inside(directory)).cloned().collect();
        remove_directories(&removed);
    }

    /// Keeps the sessions of what is mounted although the directories that it is mounted on may go, until [`Daemon::mount_displaced`].
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

    /// A dataset that stays mounted has another name from now on, and is left behind where its properties say no longer.
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

    /// Has the kernel's table of mounts show a filesystem by the name that it has now, where that can be done without anybody noticing.
    ///
    /// # Errors
    /// It is not mounted any more.
    pub(super) fn show_name(&self, name: &str) -> Result<(), ApiError> {
        self.fuse_of(name).map_or(Ok(()), |fuse| fuse.name_anew(name).map_err(mount_error))
    }

    /// Closes snapshots to whoever would open a file in them below `.zfs/snapshot`, as long as what is returned is kept. Refuses where a file is open in one.
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

    /// The mount of a filesystem that is written, as long as somebody has it.
    pub(super) fn live_mount(&self, name: &str) -> Option<Arc<FuseMount>> {
        let mounts = lock(&self.mounts);
        let mount = mounts.get(name).filter(|mount| mount.fuse.is_alive() && mount.fuse.live().is_some())?;
        Some(Arc::clone(&mount.fuse))
    }

    /// What is mounted inside another filesystem, deepest first.
    pub(super) fn mounted_inside(&self, name: &str) -> Vec<Mounted> {
        let mut mounts = self.mounts_deepest_first();
        let top = mounts.iter().find(|mount| mount.dataset == name).map(|mount| mount.mountpoint.clone());
        mounts.retain(|mount| {
            mount.dataset != name && top.as_ref().is_some_and(|top| mount.mountpoint.starts_with(top))
        });
        mounts
    }

    /// Whether a filesystem is mounted and at its mountpoint.
    pub(super) fn is_in_place(&self, name: &str) -> bool {
        lock(&self.mounts).get(name).is_some_and(|mount| mount.fuse.is_alive() && mount.fuse.is_in_place())
    }

    /// What is mounted, in an order in which it can be unmounted.
    pub(super) fn mounts_deepest_first(&self) -> Vec<Mounted> {
        self.forget_dead();
        let mut mounts = self.mounts_described();
        mounts.sort_by_key(|mount| Reverse(mount.mountpoint.components().count()));
        mounts
    }

    /// Unmounts what is mounted at or below `top`, deepest first: until one fails, or with `force` all that can be.
    fn unmount_below(&self, top: &Path, force: bool) -> MountsChanged {
        let mut mounts = self.mounts_deepest_first();
        mounts.retain(|mount| mount.mountpoint.starts_with(top));
        let mut changed = MountsChanged::default();
        for mount in mounts {
            match self.unmount_one(&mount.dataset, force, Emptied::KeptInside) {
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

    /// Serves no mount any longer, whoever has it.
    pub(super) fn abandon_mounts(&self) {
        let left = std::mem::take(&mut *lock(&self.mounts));
        drop(left);
    }
}

impl Daemon {
    /// Mounts all filesystems of a pool, or of what is at or below one, that are to be mounted and are not: with options beside those that properties say.
    pub(super) async fn mount_all(
        &self,
        pool: &OpenPool,
        _: &Changing<'_>,
        below: Option<&str>,
        words: &[String],
        overlay: bool,
    ) -> MountsChanged {
        let mut changed = MountsChanged::default();
        let listed = async {
            let dsl = pool.dsl().await?;
            Ok((dsl.list(None, Walk::HEADS).await?, dsl))
        };
        let (entries, dsl) = match listed.await {
            Ok(listed) => listed,
            Err(error) => {
                changed.failed.push(dataset_error("list", pool.name(), error));
                return changed;
            }
        };
        let mounted = pool.mounted();
        let mut plans = Vec::new();
        for entry in &entries {
            let (Kind::Filesystem, Some(dataset)) = (entry.kind, entry.dataset()) else { continue };
            if mounted.contains_key(&dataset.name)
                || below.is_some_and(|top| !is_at_or_below(&dataset.name, top))
            {
                continue;
            }
            match pool.plan(&dsl, entry, dataset, &mounted).await {
                Ok(Ok(plan)) => plans.push(plan),
                Ok(Err(Left::AsConfigured)) => {}
                Ok(Err(Left::With(warning))) => changed.warnings.push(warning),
                Err(error) => changed.failed.push(dataset_error("mount", &dataset.name, error)),
            }
        }
        plans.sort_by_key(|plan| (plan.at.components().count(), plan.at.clone()));
        for plan in &plans {
            match pool.mount_planned(self, plan, words, overlay).await {
                Ok(mounted) => changed.done.push(mounted),
                Err(error) => changed.failed.push(error),
            }
        }
        changed
    }

    /// Mounts one filesystem where its properties say so, as when all are mounted. Nothing where they say otherwise.
    pub(super) async fn mount_if_wanted(
        &self,
        pool: &OpenPool,
        _: &Changing<'_>,
        name: &str,
    ) -> Result<(), ApiError> {
        let failed = |error| dataset_error("mount", name, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let entry = dsl.entry(name).await.map_err(failed)?;
        let (Kind::Filesystem, Some(dataset)) = (entry.kind, entry.dataset()) else { return Ok(()) };
        let mounted = pool.mounted();
        if mounted.contains_key(name) {
            return Ok(());
        }
        match pool.plan(&dsl, &entry, dataset, &mounted).await.map_err(failed)? {
            Ok(plan) => pool.mount_planned(self, &plan, &[], false).await.map(|_| ()),
            Err(_) => Ok(()),
        }
    }

    /// Lets what the properties of filesystems say now hold for those of them that are mounted. What could not be made to.
    ///
    /// `is_wish`: something was changed that a mount takes over when it begins. Otherwise nothing is unmounted for the sake of what was changed before while somebody was in it and something is mounted inside.
    pub(super) async fn update_mounts(
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

    /// Lets options hold for what is mounted, beside those that it was mounted with. The system's `mount` repeats what holds already: that is nobody's wish.
    async fn remount(
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
            // May wait for devices: whoever lists mounts meanwhile, or ends, does not wait with it.
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
            // It begins another session when nobody has this one any more, or somebody mounts it again.
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
        // Whoever changes something else has nothing to do with it.
        busy.filter(|_| is_new || is_wish || !needs_another_session).map_or(Ok(()), Err)
    }

    /// Unmounts filesystems and what is mounted inside them, deepest first; all are mounted again when one is in use. Those that were unmounted.
    pub(super) async fn unmount_mounts(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        force: bool,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<Vec<Mounted>, ApiError> {
        let mounts = pool.mounts_deepest_first();
        let tops: Vec<&Path> = mounts
            .iter()
            .filter(|mount| is_meant(&mount.dataset))
            .map(|mount| mount.mountpoint.as_path())
            .collect();
        let is_inside = |mount: &&Mounted| tops.iter().any(|top| mount.mountpoint.starts_with(top));
        let mut unmounted = Vec::new();
        for mount in mounts.iter().filter(is_inside) {
            match pool.unmount_one(&mount.dataset, force, Emptied::Removed) {
                Ok(done) => unmounted.extend(done),
                Err(error) => {
                    self.mount_again(pool, changing, unmounted).await;
                    return Err(error);
                }
            }
        }
        if force {
            // Whoever has it elsewhere loses it.
            for name in pool.in_use_where(|name| is_meant(name)) {
                pool.unmount_one(&name, true, Emptied::Removed)?;
            }
        }
        Ok(unmounted)
    }

    /// Unmounts all filesystems of a pool, until one is in use. One that somebody has elsewhere is.
    pub(super) async fn unmount_all(&self, pool: &OpenPool, _: &Changing<'_>, force: bool) -> MountsChanged {
        let mut changed = pool.unmount_below(Path::new("/"), force);
        if !changed.failed.is_empty() && !force {
            return changed;
        }
        for name in pool.in_use_where(|_| true) {
            let left = pool.unmount_one(&name, force, Emptied::KeptInside);
            let error = match left {
                Err(error) => Some(error),
                Ok(_) => lock(&pool.mounts).get(&name).map(|mount| {
                    let at = mount.fuse.mountpoint();
                    mount_error(MountError::BusyElsewhere { dataset: name.clone(), at })
                }),
            };
            changed.failed.extend(error);
        }
        changed
    }

    /// Unmounts what `zfs mount -a` mounts: what says so itself is left alone (`canmount=noauto`, `mountpoint=legacy` or `none`), and so are snapshots.
    async fn unmount_those_of_mount_all(
        &self,
        pool: &OpenPool,
        _: &Changing<'_>,
        force: bool,
    ) -> MountsChanged {
        let mut changed = MountsChanged::default();
        for mount in pool.mounts_deepest_first() {
            let name = &mount.dataset;
            let is_meant = match pool.place_of(name).await {
                Ok(place) => place.canmount != "noauto" && place.at.is_some(),
                Err(error) => {
                    changed.failed.push(dataset_error("unmount", name, error));
                    continue;
                }
            };
            if name.contains('@') || !is_meant {
                continue;
            }
            match pool.unmount_one(name, force, Emptied::KeptInside) {
                Ok(done) => changed.done.extend(done),
                Err(error) => changed.failed.push(error),
            }
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

    /// Mounts again what lost its place because the directory that it was mounted on is no more.
    pub(super) async fn mount_displaced(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        before: Vec<Mounted>,
    ) {
        let (mut displaced, mut kept) = (Vec::new(), Vec::new());
        for mount in before {
            let Some(fuse) = pool.fuse_of(&mount.dataset) else { continue };
            if !pool.is_in_place(&mount.dataset) {
                if !fuse.is_aside() {
                    // It cannot come back as it is.
                    if let Err(error) = pool.unmount_one(&mount.dataset, true, Emptied::KeptInside) {
                        tracing::warn!(%error, "a filesystem lost its place");
                    }
                }
                displaced.push(mount);
            }
            kept.push(fuse);
        }
        self.mount_again(pool, changing, displaced).await;
        kept.iter().for_each(|fuse| fuse.settle());
    }

    /// Mounts where it was what an export that failed halfway had unmounted.
    pub(super) async fn mount_again(&self, pool: &OpenPool, _: &Changing<'_>, unmounted: Vec<Mounted>) {
        for mounted in unmounted.into_iter().rev() {
            let again = async {
                let plan = self.plan_at(pool, &mounted.dataset, Some(&mounted.mountpoint)).await?;
                let plan = Plan { by_system: mounted.by_system, ..plan };
                pool.mount_planned(self, &plan, &mounted.given, true).await
            };
            if let Err(error) = again.await {
                tracing::warn!(%error, "a filesystem stays unmounted after an export that failed");
            }
        }
    }

    /// Mounts filesystems, those first that others are in. What could not be.
    pub(super) async fn mount_where_wanted(
        &self,
        pool: &OpenPool,
        _: &Changing<'_>,
        mut wanted: Vec<Again>,
    ) -> Vec<ApiError> {
        wanted.sort_by_key(|again| again.at.components().count());
        let mut failed = Vec::new();
        for again in wanted {
            let mounted = async {
                let at = Some(again.at.as_path()).filter(|_| !again.is_place);
                let plan = self.plan_at(pool, &again.dataset, at).await?;
                let plan = Plan { by_system: again.by_system, ..plan };
                pool.mount_planned(self, &plan, &again.given, !again.is_place).await
            };
            failed.extend(mounted.await.err());
        }
        failed
    }

    /// How a filesystem or snapshot that was asked for by name is to be mounted.
    async fn plan_at(&self, pool: &OpenPool, name: &str, at: Option<&Path>) -> Result<Plan, ApiError> {
        let cannot_open = |error| dataset_error("open", name, error);
        let dsl = pool.dsl().await.map_err(cannot_open)?;
        let entry = dsl.entry(name).await.map_err(cannot_open)?;
        let (Kind::Filesystem | Kind::Snapshot { of_volume: false }, Some(dataset)) =
            (entry.kind, entry.dataset())
        else {
            return Err(not_of_this_type(name));
        };
        let refuse = |why: &str| Err(ApiError::refused(format!("cannot mount '{name}': {why}")));
        let properties = pool
            .properties(&dsl, &entry, &pool.mounted())
            .await
            .map_err(|error| dataset_error("mount", name, error))?;
        let word = |prop| properties.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default();
        if word(Prop::Zoned) == "on" {
            return refuse("dataset is exported to a local zone");
        }
        let confined_to = if at.is_none() { pool.altroot().map(Path::to_owned) } else { None };
        let at = match (at, word(Prop::Mountpoint).as_str()) {
            (Some(at), _) => at.to_owned(),
            (None, _) if dataset.is_snapshot() => return refuse("a snapshot needs a place to be mounted at"),
            (None, "legacy") => {
                return refuse("legacy mountpoint\nuse mount(8) to mount this filesystem, or --at DIR");
            }
            (None, "none") => return refuse("no mountpoint set"),
            (None, _) if word(Prop::Canmount) == "off" => {
                return refuse("'canmount' property is set to 'off'");
            }
            (None, path) if path.starts_with('/') => path.into(),
            (None, _) => return refuse("its mountpoint is not known"),
        };
        if !dsl.key_is_loaded(dataset) && !["", "off"].contains(&word(Prop::Encryption).as_str()) {
            return refuse("encryption key not loaded");
        }
        let options = MountOptions::from_properties(&properties);
        let overlay = word(Prop::Overlay) != "off";
        let is_legacy = dataset.is_snapshot() || word(Prop::Mountpoint) == "legacy";
        Ok(Plan {
            dataset: dataset.clone(),
            dsl,
            at,
            confined_to,
            options,
            overlay,
            is_legacy,
            by_system: false,
        })
    }

    /// Mounts one filesystem, or all that are to be mounted.
    ///
    /// # Errors
    /// Where one filesystem was asked for, why it cannot be mounted.
    pub async fn mount(&self, request: api::Mount) -> Result<MountsChanged, ApiError> {
        if let Some(name) = &request.dataset {
            let is_remount = request.options.iter().any(|word| word == "remount");
            // The kernel's table, which the system's `mount` has the name from, may have the one that it had before.
            let at = request.at.as_deref().filter(|_| request.legacy && is_remount);
            let found = at.and_then(|at| self.open_pools().iter().find_map(|pool| pool.mounted_at(at)));
            let name = found.as_ref().unwrap_or(name);
            let pool = self.pool_of(name)?;
            let changing = pool.change().await?;
            let mut changed = MountsChanged::default();
            if request.load_keys {
                changed.warnings = self.load_keys_from_files(&pool, &changing).await;
            }
            let at = match &request.at {
                Some(path) => Some(std::path::absolute(path).map_err(|error| {
                    ApiError::invalid(format!("cannot mount at '{}': {error}", path.display()))
                })?),
                None => None,
            };
            pool.await_unmounted();
            let words: Vec<_> = request.options.iter().filter(|word| *word != "remount").cloned().collect();
            if is_remount {
                changed.done.push(self.remount(&pool, &changing, name, (words, request.legacy)).await?);
                return Ok(changed);
            }
            if request.recursive {
                let failed = |error| dataset_error("open", name, error);
                let kind = pool.dsl().await.map_err(failed)?.entry(name).await.map_err(failed)?.kind;
                if kind != Kind::Filesystem {
                    return Err(not_of_this_type(name));
                }
                return Ok(self.mount_all(&pool, &changing, Some(name), &words, request.overlay).await);
            }
            let plan = self.plan_at(&pool, name, at.as_deref()).await?;
            if request.legacy && !plan.is_legacy {
                return Err(ApiError::refused(format!(
                    "cannot mount '{name}': its mountpoint is not legacy; use 'zfs mount', or 'zfs set mountpoint=legacy'"
                )));
            }
            if pool.mounted().contains_key(name) {
                return Err(ApiError::busy(format!("cannot mount '{name}': filesystem already mounted")));
            }
            let plan = Plan { by_system: request.legacy, ..plan };
            let overlay = request.overlay || request.legacy;
            changed.done.push(pool.mount_planned(self, &plan, &words, overlay).await?);
            return Ok(changed);
        }
        let pools = match &request.pool {
            Some(name) => vec![self.pool(name)?],
            None => self.open_pools(),
        };
        let mut all = MountsChanged::default();
        for pool in pools {
            let Ok(changing) = pool.change().await else { continue };
            if request.load_keys {
                all.warnings.extend(self.load_keys_from_files(&pool, &changing).await);
            }
            let changed = self.mount_all(&pool, &changing, None, &request.options, request.overlay).await;
            all.done.extend(changed.done);
            all.failed.extend(changed.failed);
            all.warnings.extend(changed.warnings);
        }
        Ok(all)
    }

    /// Unmounts one filesystem with what is mounted below it, or all.
    ///
    /// # Errors
    /// Where one filesystem was asked for, why it cannot be unmounted.
    pub async fn unmount(&self, request: api::Unmount) -> Result<MountsChanged, ApiError> {
        let mut all = MountsChanged::default();
        let Some(target) = &request.target else {
            for pool in self.open_pools() {
                let changed = {
                    let Ok(changing) = pool.change().await else { continue };
                    self.unmount_those_of_mount_all(&pool, &changing, request.force).await
                };
                all.done.extend(changed.done);
                all.failed.extend(changed.failed);
            }
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
            let mut changed = pool.unmount_below(&mount.mountpoint, request.force);
            if !changed.failed.is_empty() && !request.force {
                self.mount_again(&pool, &changing, std::mem::take(&mut changed.done)).await;
            }
            drop(changing);
            if request.unload_keys && changed.failed.is_empty() {
                changed.failed.extend(self.unload_keys_of(&changed.done).await);
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

    /// Refuses what `zfs unmount` is not for: other than filesystems and snapshots, and what is legacy, unless `zfs mount --at` mounted it. What cannot be read
    /// can be unmounted, and nobody waits for devices that are away.
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
            let is_legacy = kind == Kind::Filesystem && !is_ours && pool.place_of(name).await?.is_legacy;
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

    /// What is mounted, by name.
    ///
    /// # Errors
    /// None.
    pub fn list_mounts(&self, _: api::ListMounts) -> Result<Vec<Mounted>, ApiError> {
        Ok(self.open_pools().iter().flat_map(|pool| pool.mounts_described()).collect())
    }
}

/// Whether a mountpoint that a pool names stays where it seems to be: no step of it goes up, and what exists of it is no symbolic link
/// out of `confined_to`. The links may be the pool's own, in a filesystem that was mounted before.
pub(super) fn leads_nowhere_else(at: &Path, confined_to: Option<&Path>) -> bool {
    let goes_up = |path: &Path| path.components().any(|component| component == Component::ParentDir);
    let Some(directory) = confined_to else { return !goes_up(at) };
    let Ok(inside) = at.strip_prefix(directory) else { return false };
    if goes_up(inside) {
        return false;
    }
    let Ok(mut real) = directory.canonicalize() else {
        // What does not exist yet has no links in it.
        return directory.symlink_metadata().is_err();
    };
    for component in inside {
        real.push(component);
        match real.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
        }
    }
    true
}

/// Makes a directory and those above it that do not exist. Those that were made, the deepest first.
pub(super) fn make_directories(at: &Path) -> std::io::Result<Vec<PathBuf>> {
    let made = at.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect();
    fs::create_dir_all(at)?;
    Ok(made)
}

/// Removes directories as long as they are empty.
pub(super) fn remove_directories(made: &[PathBuf]) {
    for directory in made {
        // One that is not empty is somebody's now.
        let _ = fs::remove_dir(directory);
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

/// Whether a mount lives and is in the kernel's table of mounts, as that is now. All that live are, where it cannot be read.
fn is_listed() -> impl Fn(&Mount) -> bool {
    let table = Table::read().ok();
    move |mount| mount.fuse.is_alive() && table.as_ref().is_none_or(|table| mount.fuse.is_listed(table))
}

pub(super) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mountpoint_cannot_lead_out_of_its_altroot() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        assert!(leads_nowhere_else(&root.join("a"), Some(&root)), "nothing exists yet");
        fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink(place.path(), root.join("a/out")).unwrap();
        assert!(leads_nowhere_else(&root.join("a/b/c"), Some(&root)));
        assert!(!leads_nowhere_else(&root.join("a/../../etc"), Some(&root)));
        assert!(!leads_nowhere_else(&root.join("a/out/etc"), Some(&root)));
        assert!(!leads_nowhere_else(&root.join("a/out"), Some(&root)));
        assert!(!leads_nowhere_else(Path::new("/etc"), Some(&root)));
        assert!(leads_nowhere_else(Path::new("/etc"), None));
    }

    #[test]
    fn only_directories_that_were_made_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let there = place.path().join("there");
        fs::create_dir(&there).unwrap();
        let made = make_directories(&there.join("a/b")).unwrap();
        assert_eq!(made, [there.join("a/b"), there.join("a")]);
        fs::write(there.join("a/file"), b"").unwrap();
        remove_directories(&made);
        assert!(there.join("a").exists() && !there.join("a/b").exists());
        fs::remove_file(there.join("a/file")).unwrap();
        remove_directories(&made[1..]);
        assert!(there.exists() && !there.join("a").exists());
    }
}
