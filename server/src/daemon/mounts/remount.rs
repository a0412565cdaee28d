//! Where filesystems are to be mounted, and what happens to their mounts when that changes.
//!
//! # The rules
//! They are OpenZFS's. Setting or inheriting `mountpoint` affects the filesystem itself and those below that
//! inherit it:
//! - A filesystem that was mounted is mounted at its new mountpoint, unless `canmount` is `off`.
//! - A filesystem that was not mounted is mounted too if it is mounted by itself (`canmount=on`) and its key
//!   is loaded.
//!
//! `canmount` itself only unmounts, when it becomes `off`. A filesystem that becomes zoned (`zoned=on`), with
//! those below that inherit it, is unmounted: it belongs to a container, and this daemon does not mount it.
//!
//! Mounts inside a filesystem that has to be unmounted are unmounted with it and mounted again at the same
//! place.
//!
//! A renamed filesystem stays mounted where it is if its mountpoint does not depend on its name, if the
//! system's `mount` put it there, or if the request says so (`zfs rename -u`): from then on it has its new
//! name. A mount that stayed because of the request moves with the next rename. The kernel's table of mounts
//! shows the old name as long as the request forbids remounting or a process uses the mount.

use std::path::{Path, PathBuf};

use engine::dsl::{Dsl, Entry, Kind, Walk};
use engine::properties::{Environment, Prop, Shown, Source, Style};

use super::Again;
use crate::api::{ApiError, Mounted};
use crate::daemon::names;
use crate::daemon::names::is_at_or_below;
use crate::daemon::open_pool::Changing;
use crate::daemon::{Daemon, OpenPool};

/// Where the properties of a filesystem say that it is to be mounted.
#[derive(Debug, Clone)]
pub(in crate::daemon) struct MountPlan {
    /// The filesystem.
    pub name: String,
    /// Below the altroot; `None` for `none` and `legacy`, and of a snapshot.
    pub at: Option<PathBuf>,
    /// It is `legacy`: the system's `mount` and `umount` are for it.
    pub is_legacy: bool,
    /// `canmount`.
    pub canmount: String,
    /// `zoned`: a container mounts it.
    pub is_zoned: bool,
    /// It is not encrypted, or its key is loaded.
    has_key: bool,
    /// The dataset whose `mountpoint` it inherits: its own name where that is set there, `None` where it is
    /// the default.
    from: Option<String>,
    /// The same of `zoned`.
    zoned_from: Option<String>,
}

impl MountPlan {
    async fn of(dsl: &Dsl, entry: &Entry, name: &str) -> engine::Result<Self> {
        let properties = dsl.properties(entry, &Environment::UNMOUNTED).await?;
        let shown = |prop| properties.get(prop, Style::PARSABLE);
        let mountpoint = shown(Prop::Mountpoint);
        let from_of = |shown: Option<&Shown>| match shown.map(|shown| &shown.source) {
            Some(Source::Inherited(other)) => Some(other.clone()),
            Some(Source::Default) | None => None,
            Some(_) => Some(name.to_owned()),
        };
        let from = from_of(mountpoint.as_ref());
        let zoned = shown(Prop::Zoned);
        let zoned_from = from_of(zoned.as_ref());
        let is_zoned = zoned.is_some_and(|shown| shown.value == "on");
        let value = mountpoint.map(|shown| shown.value);
        let is_legacy = value.as_deref() == Some("legacy");
        let has_key = shown(Prop::Keystatus).is_none_or(|shown| shown.value != "unavailable");
        let at = value.filter(|value| value.starts_with('/'));
        let canmount = shown(Prop::Canmount).map(|shown| shown.value).unwrap_or_default();
        let (name, at) = (name.to_owned(), at.map(PathBuf::from));
        Ok(Self { name, at, is_legacy, canmount, is_zoned, has_key, from, zoned_from })
    }

    /// Whether it is another one when `mountpoint` of the filesystem `top`, at or above it, is.
    fn follows(&self, top: &str) -> bool {
        self.name == top || self.from.as_ref().is_none_or(|from| is_at_or_below(top, from))
    }

    /// Whether it becomes zoned when the filesystem `top`, at or above it, does.
    fn follows_zone(&self, top: &str) -> bool {
        self.name == top || self.zoned_from.as_ref().is_none_or(|from| is_at_or_below(top, from))
    }

    /// Whether it is zoned as what is above the filesystem `top`, at or above it.
    fn follows_zone_above(&self, top: &str) -> bool {
        self.zoned_from.as_ref().is_none_or(|from| !is_at_or_below(from, top))
    }

    /// Where it is to be mounted again after it was mounted; `None` if it is not to be mounted.
    fn remount_path(self) -> Option<PathBuf> {
        self.at.filter(|_| self.canmount != "off" && !self.is_zoned)
    }

    /// Whether it is another one when the filesystem `top`, at or above it, gets another name.
    fn follows_name(&self, top: &str) -> bool {
        self.from.as_ref().is_none_or(|from| !is_at_or_below(from, top))
    }
}

/// The filesystems that were unmounted because mountpoints are about to change.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Remounting {
    /// All that was unmounted, deepest first.
    unmounted: Vec<Mounted>,
    /// Filesystems that are to be somewhere else afterwards.
    moved: Vec<String>,
    /// Those of them that are to be mounted although they were not.
    also: Vec<String>,
    /// Mounts must not be touched.
    stays: bool,
}

/// How properties are about to change.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::daemon) struct MountChange<'a> {
    /// `mountpoint` becomes another one: what is known of its value.
    pub mountpoint: Option<Option<&'a str>>,
    /// `canmount` becomes `off`.
    pub off: bool,
    /// `zoned` may become `on`.
    pub zoned: bool,
    /// `acltype` becomes another one, of which the kernel is told when something is mounted.
    pub acls: bool,
}

impl MountChange<'_> {
    /// Whether it moves anything.
    pub(in crate::daemon) fn moves(&self) -> bool {
        self.mountpoint.is_some() || self.off || self.zoned
    }
}

impl OpenPool {
    /// Where a filesystem is to be mounted.
    pub(in crate::daemon) async fn mount_plan_of(&self, name: &str) -> engine::Result<MountPlan> {
        let dsl = self.dsl().await?;
        MountPlan::of(&dsl, &dsl.entry(name).await?, name).await
    }

    /// Whether a filesystem, or the nearest above it that there is, is zoned.
    async fn is_zoned_at_or_above(&self, name: &str) -> bool {
        let mut nearest = Some(name);
        while let Some(name) = nearest {
            if let Ok(place) = self.mount_plan_of(name).await {
                return place.is_zoned;
            }
            nearest = names::parent_of(name);
        }
        false
    }

    /// Refuses properties that only the zone of a filesystem may set: `above` is zoned, or the nearest above
    /// it that there is.
    pub(in crate::daemon) async fn check_zone(
        &self,
        doing: &str,
        above: Option<&str>,
        properties: &[(String, String)],
    ) -> Result<(), ApiError> {
        const OF_THE_ZONE: [Prop; 3] = [Prop::Mountpoint, Prop::Sharenfs, Prop::Sharesmb];
        let is_of_the_zone =
            |name: &str| Prop::from_name(name).is_some_and(|prop| OF_THE_ZONE.contains(&prop));
        let (Some((property, _)), Some(above)) =
            (properties.iter().find(|(name, _)| is_of_the_zone(name)), above)
        else {
            return Ok(());
        };
        match self.is_zoned_at_or_above(above).await {
            true => Err(ApiError::refused(format!(
                "{doing}: '{property}' cannot be set on dataset in a non-global zone"
            ))),
            false => Ok(()),
        }
    }

    /// The places of all filesystems at or below one.
    async fn mount_plans_below(&self, top: &str) -> engine::Result<Vec<MountPlan>> {
        let dsl = self.dsl().await?;
        let mut places = Vec::new();
        for entry in dsl.list(None, Walk::HEADS).await? {
            let (Kind::Filesystem, Some(dataset)) = (entry.kind, entry.dataset()) else { continue };
            if is_at_or_below(&dataset.name, top) {
                places.push(MountPlan::of(&dsl, &entry, &dataset.name).await?);
            }
        }
        Ok(places)
    }
}

impl Daemon {
    /// Unmounts what a change of a filesystem's properties moves.
    pub(in crate::daemon) async fn begin_remount(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        name: &str,
        change: MountChange<'_>,
    ) -> Result<Remounting, ApiError> {
        let places = pool.mount_plans_below(name).await?;
        let Some(top) = places.iter().find(|place| place.name == name) else {
            return Ok(Remounting::default());
        };
        let mut moved: Vec<String> = Vec::new();
        let mut also = Vec::new();
        if let Some(value) = change.mountpoint {
            let stays = top.from.as_deref() == Some(name)
                && value.is_some_and(|value| is_same(top.at.as_deref(), value, pool.altroot()));
            also.extend(places.iter().filter(|place| place.follows(name)).map(|place| place.name.clone()));
            if !stays {
                moved.clone_from(&also);
            }
        }
        for place in &places {
            let goes = (change.off && place.name == name) || (change.zoned && place.follows_zone(name));
            if goes && !moved.contains(&place.name) {
                moved.push(place.name.clone());
            }
        }
        let is_moved = |other: &str| moved.iter().any(|moved| moved == other);
        let unmounted = self.unmount_mounts(pool, changing, false, is_moved).await?;
        Ok(Remounting { unmounted, moved, also, stays: false })
    }

    /// Mounts again what was unmounted for a change that was not made.
    pub(in crate::daemon) async fn cancel_remount(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        moving: Remounting,
    ) {
        self.mount_again(pool, changing, moving.unmounted).await;
    }

    /// Mounts what was unmounted for a change that was made. What could not be.
    pub(in crate::daemon) async fn finish_remount(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        moving: Remounting,
    ) -> Vec<ApiError> {
        let mut wanted: Vec<Again> = Vec::new();
        let mut failed = Vec::new();
        for mount in &moving.unmounted {
            let again = |at, is_place| Again {
                dataset: mount.dataset.clone(),
                at,
                is_place,
                given: mount.given.clone(),
                by_system: mount.by_system,
            };
            if !moving.moved.contains(&mount.dataset) {
                wanted.push(again(mount.mountpoint.clone(), false));
                continue;
            }
            match pool.mount_plan_of(&mount.dataset).await {
                Ok(place) => wanted.extend(place.remount_path().map(|at| again(at, true))),
                Err(error) => failed.push(error.into()),
            }
        }
        let mounted = pool.mounted();
        for name in &moving.also {
            if mounted.contains_key(name) || wanted.iter().any(|again| again.dataset == *name) {
                continue;
            }
            match pool.mount_plan_of(name).await {
                Ok(MountPlan { at: Some(at), canmount, is_zoned: false, has_key: true, .. })
                    if canmount == "on" =>
                {
                    let (dataset, given) = (name.clone(), Vec::new());
                    wanted.push(Again { dataset, at, is_place: true, given, by_system: false });
                }
                Ok(_) => {}
                Err(error) => failed.push(error.into()),
            }
        }
        failed.extend(self.mount_where_wanted(pool, changing, wanted).await);
        failed
    }

    /// Unmounts what has another place when a filesystem is called otherwise, or is zoned then, unless mounts
    /// are to stay as they are.
    pub(in crate::daemon) async fn begin_rename(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        (from, to): (&str, &str),
        (stay, force): (bool, bool),
    ) -> Result<Remounting, ApiError> {
        let mounted = pool.mountpoints();
        let places = pool.mount_plans_below(from).await?;
        let is_zoned_there = match names::parent_of(to) {
            // What is made with it inherits from further above.
            Some(above) => pool.is_zoned_at_or_above(above).await,
            None => false,
        };
        let has_its_place = |place: &MountPlan| {
            let at = place.at.as_ref();
            let is_there = mounted.get(&place.name) == at || pool.is_left_behind(&place.name);
            place.follows_name(from) && at.is_some() && is_there
        };
        if stay {
            let there = places.into_iter().filter(has_its_place);
            return Ok(Remounting {
                moved: there.map(|place| place.name).collect(),
                stays: true,
                ..Remounting::default()
            });
        }
        let is_moved =
            |place: &MountPlan| has_its_place(place) || (is_zoned_there && place.follows_zone_above(from));
        let moved: Vec<String> = places.into_iter().filter(is_moved).map(|place| place.name).collect();
        let is_moved = |other: &str| moved.iter().any(|moved| moved == other);
        let unmounted = self.unmount_mounts(pool, changing, force, is_moved).await?;
        Ok(Remounting { unmounted, moved, ..Remounting::default() })
    }

    /// Mounts what was unmounted for a rename that was made, and calls what stayed mounted by its new name.
    /// The filesystems that could not be mounted.
    pub(in crate::daemon) async fn finish_rename(
        &self,
        pool: &OpenPool,
        changing: &Changing<'_>,
        (from, to): (&str, &str),
        mut moving: Remounting,
    ) -> Vec<ApiError> {
        let renamed = |name: &str| match is_at_or_below(name, from) {
            true => format!("{to}{}", name.strip_prefix(from).unwrap_or_default()),
            false => name.to_owned(),
        };
        let mut failed = Vec::new();
        for name in pool.in_use_where(|name| is_at_or_below(name, from)) {
            pool.rename_mount(&name, &renamed(&name), moving.stays && moving.moved.contains(&name));
            if !moving.stays {
                failed.extend(pool.show_name(&renamed(&name)).err());
            }
        }
        for mount in &mut moving.unmounted {
            mount.dataset = renamed(&mount.dataset);
        }
        for name in &mut moving.moved {
            *name = renamed(name);
        }
        failed.extend(self.finish_remount(pool, changing, moving).await);
        failed
    }
}

/// Whether a value of `mountpoint` means the place where a filesystem is.
fn is_same(at: Option<&Path>, value: &str, altroot: Option<&Path>) -> bool {
    let wanted = match altroot {
        Some(altroot) => altroot.join(value.trim_start_matches('/')),
        None => PathBuf::from(value),
    };
    at.is_some_and(|at| value.starts_with('/') && at.components().eq(wanted.components()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_follows_where_it_is_inherited_from() {
        let place = |name: &str, from: Option<&str>| MountPlan {
            name: name.into(),
            at: None,
            is_legacy: false,
            canmount: "on".into(),
            is_zoned: false,
            has_key: true,
            from: from.map(str::to_owned),
            zoned_from: from.map(str::to_owned),
        };
        assert!(place("t/a/b", Some("t/a")).follows("t/a"));
        assert!(place("t/a/b", Some("t")).follows("t/a"));
        assert!(place("t/a/b", None).follows("t/a"));
        assert!(place("t/a", Some("t/a")).follows("t/a"));
        assert!(!place("t/a/b", Some("t/a/b")).follows("t/a"), "it has its own");
        assert!(!place("t/a/b/c", Some("t/a/b")).follows("t/a"), "or one in between has");
        assert!(
            place("t/a/b", None).follows_zone("t/a") && !place("t/a/b", Some("t/a/b")).follows_zone("t/a")
        );
        assert!(place("t/a/b", Some("t")).follows_name("t/a"));
        assert!(place("t/a", None).follows_name("t/a"));
        assert!(!place("t/a/b", Some("t/a")).follows_name("t/a"), "the path is the same");
    }

    #[test]
    fn the_same_place_is_known_below_an_altroot() {
        let (at, altroot) = (Path::new("/mnt/x"), Some(Path::new("/mnt")));
        assert!(is_same(Some(at), "/x", altroot) && is_same(Some(at), "/mnt/x", None));
        assert!(!is_same(Some(at), "/y", altroot) && !is_same(Some(at), "legacy", altroot));
        assert!(!is_same(None, "/x", altroot));
    }
}
