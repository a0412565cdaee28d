//! Mounting: one filesystem by name, all that are mounted by themselves, and again those that a change of
//! datasets unmounted.
//!
//! The properties of a filesystem and the request make a [`Plan`], and nothing else; then it is mounted as
//! planned.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::in_words;
use engine::dsl::{Dataset, Dsl, Entry, Kind, Walk};
use engine::events::feed::What;
use engine::properties::{Environment, Prop, Style};

use super::directories::{leads_nowhere_else, make_directories, remove_directories};
use super::nested::{NestedMounts, require_own_filesystem};
use super::unmounting::Emptied;
use super::{Again, Mount, is_root, let_go_unused, mount_error};
use crate::api::{self, ApiError, Mounted, MountsChanged};
use crate::daemon::names::is_at_or_below;
use crate::daemon::open_pool::Changing;
use crate::daemon::{Daemon, OpenPool, dataset_error, lock, not_of_this_type};
use crate::fuse::{self, LiveSource, MountOptions, Source};

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

impl Plan {
    /// Filesystems that others are in come first.
    fn order(&self) -> (usize, PathBuf) {
        (self.at.components().count(), self.at.clone())
    }
}

/// Why a filesystem is not mounted with the others.
enum Left {
    /// Its properties say so.
    AsConfigured,
    /// Something that its user may not expect.
    With(String),
}

impl OpenPool {
    /// The filesystem that a mount serves. In a pool that is open for writing it must not keep a committed
    /// state, whose space could never be reused: it is the live filesystem, also where the mount is read-only
    /// (its quotas can be set all the same, and files that were unlinked before a crash are freed), or a
    /// snapshot, whose blocks stay, and which finds them in a state that does not count. A filesystem that
    /// can only be read here is like a snapshot: it does not change.
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
                // A damaged one can still be read, if that is enough.
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
    ) -> engine::Result<Result<Plan, Left>> {
        let properties = dsl.properties(entry, &Environment::UNMOUNTED).await?;
        let word = |prop| properties.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default();
        if dataset.is_inconsistent() {
            let why = "a stream is being received into it, or was in part";
            return Ok(Err(Left::With(format!("'{}' is not mounted: {why}", dataset.name))));
        }
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

    /// Filesystems of a pool, or at and below one filesystem, that are to be mounted and are not; and why
    /// others are not.
    async fn plans(&self, below: Option<&str>) -> (Vec<Plan>, MountsChanged) {
        let (mut plans, mut changed) = (Vec::new(), MountsChanged::default());
        let listed = async {
            let dsl = self.dsl().await?;
            Ok((dsl.list(None, Walk::HEADS).await?, dsl))
        };
        let (entries, dsl) = match listed.await {
            Ok(listed) => listed,
            Err(error) => {
                changed.failed.push(dataset_error("list", self.name(), error));
                return (plans, changed);
            }
        };
        let mounted = self.mounted();
        for entry in &entries {
            let (Kind::Filesystem, Some(dataset)) = (entry.kind, entry.dataset()) else { continue };
            if mounted.contains_key(&dataset.name)
                || below.is_some_and(|top| !is_at_or_below(&dataset.name, top))
            {
                continue;
            }
            match self.plan(&dsl, entry, dataset).await {
                Ok(Ok(plan)) => plans.push(plan),
                Ok(Err(Left::AsConfigured)) => {}
                Ok(Err(Left::With(warning))) => changed.warnings.push(warning),
                Err(error) => changed.failed.push(dataset_error("mount", &dataset.name, error)),
            }
        }
        (plans, changed)
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
        self.forget_sessions_that_ended();
        if let Some(other) = self.find_mount(|at| at == plan.at) {
            return Err(ApiError::busy(refuse(format!(
                "'{}' is already mounted at {}",
                other.dataset,
                plan.at.display()
            ))));
        }
        if !fuse::answers(&plan.at) {
            return Err(ApiError::failed(refuse(format!(
                "a filesystem that is mounted at {} or above does not answer; unmount it ('umount -f'), or \
                 use another mountpoint",
                plan.at.display()
            ))));
        }
        self.clear_stale(&plan.at);
        if !leads_nowhere_else(&plan.at, plan.confined_to.as_deref()) {
            return Err(ApiError::refused(refuse(format!(
                "the mountpoint {} leads elsewhere; use another one",
                plan.at.display()
            ))));
        }
        require_own_filesystem(daemon, self, &plan.at).map_err(|why| ApiError::refused(refuse(why)))?;
        let made = make_directories(&plan.at).map_err(|error| {
            let shown = plan.at.display();
            ApiError::failed(refuse(format!("failed to create mountpoint {shown}: {}", in_words(&error))))
        })?;
        let not_empty = || fs::read_dir(&plan.at).is_ok_and(|mut entries| entries.next().is_some());
        if !plan.overlay && !overlay && not_empty() {
            return Err(ApiError::refused(refuse(format!("directory '{}' is not empty", plan.at.display()))));
        }
        let doing = format!("cannot mount '{name}'");
        let inside =
            NestedMounts::of(daemon, self, &doing, &plan.at).inspect_err(|_| remove_directories(&made))?;
        if let Some(fuse) = self.left_aside(name, &options) {
            // It is mounted at another place, and may have got another name meanwhile.
            let put = fuse.put_back(&plan.at, &options).and_then(|()| fuse.name_anew(name));
            if fuse.is_in_place() {
                self.describe_anew(plan, &made, words);
            } else {
                remove_directories(&made);
            }
            return match put {
                Ok(()) => {
                    self.move_up(name, inside)?;
                    self.described_in_place(name).ok_or_else(|| {
                        ApiError::failed(refuse("it was not mounted there any more at once".into()))
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
                fuse.take_snapshots_by(daemon.snapshot_taker(self.name()));
                let (fuse, words) = (Arc::new(fuse), words.to_vec());
                let (dataset, by_system) = (name.clone(), plan.by_system);
                let mount = Mount { dataset, fuse, made, words, by_system, is_left_behind: false };
                let described = mount.described();
                lock(&self.mounts).insert(name.clone(), mount);
                self.tell(What::Served { name: name.clone(), how: "mounted" });
                self.move_up(name, inside)?;
                Ok(described)
            }
            Err(mut error) => {
                remove_directories(&made);
                let is_outer = |at: &Path| at != plan.at && plan.at.starts_with(at);
                if !is_root() && self.find_mount(is_outer).is_some() {
                    error.message += &format!(
                        "\nwithout root no filesystem can be mounted inside another: use 'zfs mount --at DIR \
                         {name}'"
                    );
                }
                Err(error)
            }
        }
    }

    /// The session of a filesystem that is still there, unless it needs another one and can have it.
    fn left_aside(&self, name: &str, options: &MountOptions) -> Option<Arc<fuse::FuseMount>> {
        let left = lock(&self.mounts).get(name).map(|mount| Arc::clone(&mount.fuse))?;
        if left.is_aside() && left.needs_another_session(options) {
            // It can have one where no other program has it any more.
            let_go_unused(std::slice::from_ref(&left));
            self.await_unmounted();
            self.forget_sessions_that_ended();
        }
        lock(&self.mounts).contains_key(name).then_some(left)
    }

    /// Brings up what was mounted inside the place where a filesystem now is; where that cannot be, takes the
    /// filesystem away again.
    fn move_up(&self, name: &str, inside: NestedMounts) -> Result<(), ApiError> {
        let (error, none) = match inside.move_up(self) {
            Ok(made) => {
                if let Some(mount) = lock(&self.mounts).get_mut(name) {
                    mount.made.extend(made);
                }
                return Ok(());
            }
            Err(failed) => failed,
        };
        if none && let Err(error) = self.unmount_one(name, false, Emptied::Removed, None) {
            tracing::warn!(%error, "a filesystem stays mounted over others");
        }
        Err(ApiError { message: format!("cannot mount '{name}': {}", error.message), ..error })
    }

    /// A filesystem is at a place again.
    fn describe_anew(&self, plan: &Plan, made: &[PathBuf], words: &[String]) {
        if let Some(mount) = lock(&self.mounts).get_mut(&plan.dataset.name) {
            mount.by_system = plan.by_system;
            mount.made.splice(..0, made.iter().cloned());
            mount.words = words.to_vec();
        }
    }

    /// Unmounts what a killed daemon left behind: at the mountpoint, and below the altroot on the way to it.
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
}

impl Daemon {
    /// Mounts all filesystems of a pool, or of what is at or below one, that are to be mounted and are not:
    /// with options beside those that properties say.
    pub(in crate::daemon) async fn mount_all(
        &self,
        pool: &OpenPool,
        _: &Changing<'_>,
        below: Option<&str>,
        words: &[String],
        overlay: bool,
    ) -> MountsChanged {
        let (mut plans, mut changed) = pool.plans(below).await;
        plans.sort_by_key(Plan::order);
        for plan in &plans {
            match pool.mount_planned(self, plan, words, overlay).await {
                Ok(mounted) => changed.done.push(mounted),
                Err(error) => changed.failed.push(error),
            }
        }
        changed
    }

    /// The same of several pools, those filesystems first that others are in.
    async fn mount_all_of(&self, pools: &[Arc<OpenPool>], words: &[String], overlay: bool) -> MountsChanged {
        let mut changed = MountsChanged::default();
        let mut planned: Vec<(&Arc<OpenPool>, Plan)> = Vec::new();
        for pool in pools {
            let Ok(_changing) = pool.change().await else { continue };
            let (plans, of_pool) = pool.plans(None).await;
            planned.extend(plans.into_iter().map(|plan| (pool, plan)));
            changed.failed.extend(of_pool.failed);
            changed.warnings.extend(of_pool.warnings);
        }
        planned.sort_by_key(|(_, plan)| plan.order());
        for (pool, plan) in &planned {
            // A pool that was closed meanwhile mounts nothing.
            let Ok(_changing) = pool.change().await else { continue };
            if pool.is_in_place(&plan.dataset.name) {
                continue;
            }
            match pool.mount_planned(self, plan, words, overlay).await {
                Ok(mounted) => changed.done.push(mounted),
                Err(error) => changed.failed.push(error),
            }
        }
        changed
    }

    /// Mounts one filesystem where its properties say so, as when all are mounted. Nothing where they say
    /// otherwise.
    pub(in crate::daemon) async fn mount_if_wanted(
        &self,
        pool: &OpenPool,
        _: &Changing<'_>,
        name: &str,
    ) -> Result<(), ApiError> {
        let failed = |error| dataset_error("mount", name, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let entry = dsl.entry(name).await.map_err(failed)?;
        let (Kind::Filesystem, Some(dataset)) = (entry.kind, entry.dataset()) else { return Ok(()) };
        if pool.mounted().contains_key(name) {
            return Ok(());
        }
        match pool.plan(&dsl, &entry, dataset).await.map_err(failed)? {
            Ok(plan) => pool.mount_planned(self, &plan, &[], false).await.map(|_| ()),
            Err(_) => Ok(()),
        }
    }

    /// Mounts again what lost its place because the directory that it was mounted on is no more.
    pub(in crate::daemon) async fn mount_displaced(
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
                    if let Err(error) = pool.unmount_one(&mount.dataset, true, Emptied::KeptInside, None) {
                        tracing::warn!(%error, "a filesystem lost its place");
                    }
                }
                displaced.push(mount);
            }
            kept.push(fuse);
        }
        self.mount_again(pool, changing, displaced).await;
        kept.iter().for_each(|fuse| fuse.settle());
        let_go_unused(&kept);
    }

    /// Mounts where it was what an export that failed halfway had unmounted.
    pub(in crate::daemon) async fn mount_again(
        &self,
        pool: &OpenPool,
        _: &Changing<'_>,
        unmounted: Vec<Mounted>,
    ) {
        for mounted in unmounted.into_iter().rev() {
            let again = async {
                let plan = self.plan_at(pool, &mounted.dataset, Some(&mounted.mountpoint)).await?;
                let plan = Plan { by_system: mounted.by_system, ..plan };
                pool.mount_planned(self, &plan, &mounted.given, true).await
            };
            if let Err(error) = again.await {
                tracing::warn!(%error, "cannot mount a filesystem again that was unmounted");
            }
        }
    }

    /// Mounts filesystems, those first that others are in. What could not be.
    pub(in crate::daemon) async fn mount_where_wanted(
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
        let properties = dsl
            .properties(&entry, &Environment::UNMOUNTED)
            .await
            .map_err(|error| dataset_error("mount", name, error))?;
        let word = |prop| properties.get(prop, Style::PARSABLE).map(|shown| shown.value).unwrap_or_default();
        if word(Prop::Zoned) == "on" {
            return refuse("dataset is exported to a local zone");
        }
        let confined_to = if at.is_none() { pool.altroot().map(Path::to_owned) } else { None };
        let at = match (at, word(Prop::Mountpoint).as_str()) {
            (Some(at), _) => at.to_owned(),
            (None, _) if dataset.is_snapshot() => return refuse("a snapshot needs a mountpoint"),
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
            // The kernel's table, which the system's `mount` has the name from, may have the one that it had
            // before.
            let at = request.at.as_deref().filter(|_| request.legacy && is_remount);
            let found = at.and_then(|at| self.open_pools().iter().find_map(|pool| pool.mounted_at(at)));
            let name = found.as_ref().unwrap_or(name);
            let pool = self.pool_of(name)?;
            let keys = match request.load_keys {
                true => Some(self.find_keys(&pool, Some((name, request.recursive))).await),
                false => None,
            };
            let changing = pool.change().await?;
            let mut changed = MountsChanged::default();
            if let Some(keys) = keys {
                changed.warnings = self.load_found(&pool, &changing, keys).await;
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
                let is_written = words.iter().rfind(|word| ["ro", "rw"].contains(&word.as_str()));
                if is_written.is_some_and(|word| word == "rw")
                    && (name.contains('@') || pool.live().is_none())
                {
                    return Err(ApiError::refused(format!("cannot remount '{name}': it is read-only")));
                }
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
                    "cannot mount '{name}': its mountpoint is not legacy; use 'zfs mount', or 'zfs set \
                     mountpoint=legacy'"
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
        let mut warnings = Vec::new();
        if request.load_keys {
            for pool in &pools {
                let keys = self.find_keys(pool, None).await;
                let Ok(changing) = pool.change().await else { continue };
                warnings.extend(self.load_found(pool, &changing, keys).await);
            }
        }
        let mut all = self.mount_all_of(&pools, &request.options, request.overlay).await;
        all.warnings.splice(..0, warnings);
        Ok(all)
    }
}
