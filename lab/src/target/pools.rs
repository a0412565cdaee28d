//! The pools of variants, and the volumes and filesystems in them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::folders::{MODELLED, RAW};
use super::{Bench, Home, OWNER, Placement, in_use, luks, make_file, placement};
use crate::created_files;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, POOL, Pools, SettingOwner, Settings, Workload};
use crate::fio::Endpoint;
use crate::guest::Spec;
use crate::layout::{Layout, Vdev};
use crate::models::{object_store, speed};
use crate::programs::Programs;
use crate::progress::Progress;
use crate::setting::{DEVICE_LUKS, has_device_luks, is_deduplicated, is_encrypted};
use crate::site::DatasetKind;
use crate::size::Size;

/// A device is at least this large.
const LEAST_DEVICE_BYTES: u64 = 256 << 20;

/// Settings of pools that are no properties of them.
const NO_PROPERTIES: [&str; 6] = ["layout", "log", "l2arc", "devices", "missing", DEVICE_LUKS];

/// How often what is in a pool would fit beside what is being written, for the rounding of raidz.
const ROOM: u64 = 2;

/// How often what is busy is tried to be destroyed, and the pauses between.
const BUSY_TRIES: usize = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(200);

impl Bench<'_> {
    /// Where a workload of a variant is measured: what there is none of is made, and filled.
    ///
    /// # Errors
    /// It cannot be made or written, or is not the lab's to write.
    pub(super) fn endpoint(
        &mut self,
        lodging: &Placement,
        workload: &Workload,
        progress: &dyn Progress,
    ) -> Result<Endpoint> {
        match self.experiment.target.measured(&lodging.settings) {
            Some(named) => self.at_named(named, lodging, progress),
            None => self.in_dataset(lodging, workload, progress),
        }
    }

    /// Where a workload of a variant is measured that has a dataset, or is the raw device beside those: what
    /// there is none of is made, and filled as the workload's data are.
    fn in_dataset(
        &mut self,
        lodging: &Placement,
        workload: &Workload,
        progress: &dyn Progress,
    ) -> Result<Endpoint> {
        if lodging.is_device {
            return self.raw_device(lodging, progress);
        }
        if let Some(home) = self.homes.get(lodging) {
            return Ok(home.endpoint.clone());
        }
        let home = self.make(lodging)?;
        self.homes.insert(lodging.clone(), home.clone());
        let Home { server, pool, endpoint, .. } = &home;
        let is_in_guest = self.experiment.target.has(SettingOwner::Guest);
        let spec = if is_in_guest { Spec::of(&lodging.settings)? } else { None };
        let endpoint = match spec {
            Some(spec) => self.start_guest(lodging, endpoint.clone(), &spec, progress)?,
            None => endpoint.clone(),
        };
        self.homes.insert(lodging.clone(), Home { endpoint: endpoint.clone(), ..home.clone() });
        self.fill(&endpoint, &lodging.variant, workload, progress)?;
        if let Some(devices) = self.pools.take_missing(pool) {
            let programs = self.servers.programs(server)?;
            programs.zpool(&["sync".to_owned(), pool.clone()])?;
            let offline = ["offline".to_owned(), pool.clone()].into_iter().chain(devices);
            programs.zpool(&offline.collect::<Vec<_>>())?;
        }
        Ok(endpoint)
    }

    /// The file or directory by which the raw device is measured.
    fn raw_device(&mut self, lodging: &Placement, progress: &dyn Progress) -> Result<Endpoint> {
        let target = &self.experiment.target;
        let endpoint = match target.dataset_kind(&lodging.settings) {
            Some(DatasetKind::Filesystem) => {
                Endpoint::Directory(created_files::take_directory(&self.folders.devices, RAW)?)
            }
            _ => {
                let raw = created_files::take(&self.folders.devices, RAW)?;
                make_file(&raw, target.size().0)?;
                Endpoint::Path(raw)
            }
        };
        if !self.filled.raw {
            self.fill_first(&endpoint, &lodging.variant, progress)?;
            self.filled.raw = true;
        }
        Ok(endpoint)
    }

    /// Makes a volume or filesystem, with its pool and server where there is none for it.
    fn make(&mut self, lodging: &Placement) -> Result<Home> {
        let server = SettingOwner::Server.pick(&lodging.settings);
        self.servers.start(&server)?;
        let (pool, parent) = self.parent(lodging, &server)?;
        let name = format!("lab-{}-{}", std::process::id(), self.homes.number());
        let dataset = format!("{parent}/{name}");
        let mut arguments: Vec<String> = vec!["create".into()];
        for (name, value) in SettingOwner::Dataset.pick(&lodging.settings) {
            arguments.extend(["-o".to_owned(), format!("{name}={value}")]);
        }
        if is_encrypted(&lodging.settings) {
            let key = luks::key(&self.folders.devices)?;
            let location = format!("keylocation=file://{}", key.display());
            arguments.extend(["-o", "keyformat=raw", "-o", &location].map(str::to_owned));
        }
        if self.experiment.target.below().is_some() {
            // Programs that snapshot everything leave these out.
            let owner = format!("{OWNER}={}", self.folders.results.display());
            arguments.extend([
                "-o".to_owned(),
                owner,
                "-o".to_owned(),
                "com.sun:auto-snapshot=false".to_owned(),
            ]);
        }
        let made = self.experiment.target.dataset(&lodging.settings)?;
        let made = made.ok_or_else(|| Error::Experiment("this target has no datasets".into()))?;
        let programs = self.servers.programs(&server)?;
        let endpoint = if made.kind == DatasetKind::Filesystem {
            created_files::make(&self.folders.mounts)?;
            let at = created_files::expect_directory(&self.folders.mounts, &name)?;
            arguments.extend(["-o".to_owned(), format!("mountpoint={}", at.display()), dataset.clone()]);
            programs.zfs(&arguments)?;
            if !created_files::is_mounted(&at).map_err(Error::file(&at))? {
                let what = "the filesystem that is to be measured is not mounted there".to_owned();
                return Err(Error::Results { path: at, what });
            }
            Endpoint::Directory(at)
        } else {
            let size = made.size.0.to_string();
            arguments.extend(["-s".to_owned(), "-V".to_owned(), size, dataset.clone()]);
            programs.zfs(&arguments)?;
            programs.volume(&dataset)?
        };
        Ok(Home { server, pool, dataset, endpoint })
    }

    /// The pool and the dataset below which it belongs.
    fn parent(&mut self, lodging: &Placement, server: &Settings) -> Result<(String, String)> {
        if let Some(dataset) = self.experiment.target.below() {
            let pool = dataset.split('/').next().unwrap_or_default().to_owned();
            return Ok((pool, dataset.to_owned()));
        }
        let settings = SettingOwner::Pool.pick(&lodging.settings);
        let mut key = server.clone();
        key.extend(SettingOwner::of_a_pool(&lodging.settings));
        let has_files = self.experiment.target.pools().is_some_and(|pools| pools.disks.is_empty());
        if is_deduplicated(&lodging.settings) && has_files {
            // The baseline's twin has the same settings and the same data.
            key.insert("variant".to_owned(), lodging.variant.clone());
        }
        if let Some(pool) = self.pools.with(&key) {
            return Ok((pool.clone(), pool.clone()));
        }
        let pool = format!("lab{}", self.homes.number());
        let missing = self.make_pool(&pool, server, &settings)?;
        self.pools.insert(key, &pool, missing);
        Ok((pool.clone(), pool))
    }

    /// Makes a pool; the devices that it is to miss once it has been filled.
    fn make_pool(&mut self, pool: &str, server: &Settings, settings: &Settings) -> Result<Vec<String>> {
        let Some(pools) = self.experiment.target.pools() else { return Ok(Vec::new()) };
        let layout: Layout = settings.get("layout").unwrap_or(&pools.layout).parse()?;
        let device_size = device_size(self.experiment, pools, &layout);
        if pools.disks.is_empty() {
            self.require_room(device_size, layout.devices())?;
        } else {
            self.take_disks(pool, server, &layout, device_size)?;
        }
        let mut disks = self.pools.disks_of(pool).iter();
        let mut count = 0;
        let mut device = |model: Option<&String>| -> Result<String> {
            if let Some(store) = model.and_then(|model| object_store::store(model)) {
                if has_device_luks(settings) {
                    return Err(Error::Experiment(format!("{DEVICE_LUKS}: {} is no file", store.name)));
                }
                count += 1;
                // It is in the memory of the pool's process, and goes with it.
                let name = format!("{pool}-{}", count - 1);
                return Ok(format!("memory://{name}?size={}&model={}", device_size.0, store.name));
            }
            let directory = match model {
                Some(model) => format!("{MODELLED}/{}/", speed::device(model)?),
                None => String::new(),
            };
            let path = created_files::take(&self.folders.devices, &format!("{directory}{pool}-{count}"))?;
            count += 1;
            let _ = fs::remove_file(&path);
            if has_device_luks(settings) {
                make_file(&path, device_size.0 + luks::HEADER_BYTES)?;
                return Ok(luks::open(&self.folders.devices, &path)?.display().to_string());
            }
            make_file(&path, device_size.0)?;
            Ok(path.display().to_string())
        };
        let mut arguments: Vec<String> = vec!["create".into(), "-f".into(), "-m".into(), "none".into()];
        for (name, value) in settings.iter().filter(|(name, _)| !NO_PROPERTIES.contains(&name.as_str())) {
            let name = name.strip_prefix(POOL).unwrap_or(name);
            arguments.extend(["-o".to_owned(), format!("{name}={value}")]);
        }
        if pools.disks.is_empty() && settings.get("ashift").is_none() {
            // Files lie on filesystems whose blocks have 4 KiB.
            arguments.extend(["-o".to_owned(), "ashift=12".to_owned()]);
        }
        arguments.push(pool.to_owned());
        let first = arguments.len() + usize::from(layout.vdevs().first().is_some_and(|it| *it != Vdev::Disk));
        for vdev in layout.vdevs() {
            arguments.extend(vdev.keyword());
            for _ in 0..vdev.devices() {
                arguments.push(match disks.next() {
                    Some(disk) => disk.display().to_string(),
                    None => device(settings.get("devices").or(pools.devices.as_ref()))?,
                });
            }
        }
        for (setting, class) in [("log", "log"), ("l2arc", "cache")] {
            match settings.get(setting).map(String::as_str) {
                None | Some("none") => {}
                Some("file") => arguments.extend([class.to_owned(), device(None)?]),
                Some(_) => arguments.extend([class.to_owned(), device(settings.get(setting))?]),
            }
        }
        self.servers.programs(server)?.zpool(&arguments)?;
        let missing = settings.get("missing").map_or(Ok(0), |count| count.parse::<usize>());
        let missing = missing.map_err(|error| Error::Experiment(format!("missing: {error}")))?;
        Ok(arguments.into_iter().skip(first).take(missing).collect())
    }

    /// Gives a pool the first of the disks, if no other program needs them; a pool of another variant that is
    /// on them is destroyed.
    fn take_disks(&mut self, pool: &str, server: &Settings, layout: &Layout, least: Size) -> Result<()> {
        let before = self.pools.on_disks();
        if !before.is_empty() {
            self.homes.in_pools(&before).iter().try_for_each(|lodging| self.release_home(lodging))?;
            // Who served the last of them has ended with it.
            self.servers.start(server)?;
        }
        let mut own = Vec::new();
        for disk in self.experiment.target.disks() {
            if own.len() as u64 == layout.devices() {
                break;
            }
            require_disk(disk, least)?;
            // The pool holds it from then on.
            in_use::claim_for_pool(disk, self.claims.may_overwrite, &self.folders.results)?;
            own.push(disk.clone());
        }
        if (own.len() as u64) < layout.devices() {
            return Err(Error::Experiment(format!("there are not enough disks for a pool of {layout}")));
        }
        self.pools.give_disks(pool, own);
        Ok(())
    }

    /// Devices take as much as is ever written to them at once: where the system's disk was full, the pool
    /// would wait for ever.
    fn require_room(&self, device_size: Size, devices: u64) -> Result<()> {
        let at = &self.folders.devices;
        let stat = rustix::fs::statvfs(at).map_err(|error| Error::file(at)(error.into()))?;
        let free = Size(stat.f_bavail.saturating_mul(stat.f_frsize) >> 20 << 20);
        let needed = Size(device_size.0.saturating_mul(devices));
        if needed.0 <= free.0 {
            return Ok(());
        }
        Err(Error::Experiment(format!(
            "{}: {devices} devices of {device_size} may take {needed}, and {free} are free there: make the \
             target's `size` smaller, or choose another directory (-o)",
            at.display()
        )))
    }

    /// Removes a variant's volumes or filesystems, and their pools where no other is in them.
    pub fn release(&mut self, variant: &str) -> Result<()> {
        self.homes.of_variant(variant).iter().try_for_each(|lodging| self.release_home(lodging))
    }

    /// Has a variant made anew for its next run, because one failed: what that left may be why. Where not
    /// even that can be removed, everything is made anew.
    pub(crate) fn renew(&mut self, lodging: &Placement) {
        if self.release_home(lodging).is_err() {
            // What cannot be removed now either, `lab clean` removes.
            let _ = self.remove();
        }
    }

    pub(super) fn release_home(&mut self, lodging: &Placement) -> Result<()> {
        let Some(home) = self.homes.remove(lodging) else { return Ok(()) };
        self.guests.end(lodging);
        let programs = self.servers.programs(&home.server)?;
        destroy(programs, &home.dataset)?;
        let is_used = self.homes.all().any(|other| other.pool == home.pool);
        if is_used || self.experiment.target.pools().is_none() {
            return Ok(());
        }
        programs.zpool(&["destroy".to_owned(), "-f".to_owned(), home.pool.clone()])?;
        luks::close(&self.folders.devices, Some(&home.pool))?;
        self.pools.remove(&home.pool);
        created_files::remove_some(&self.folders.devices, &format!("{}-", home.pool))?;
        if self.homes.all().all(|other| other.server != home.server) {
            self.servers.end(&home.server);
        }
        Ok(())
    }

    /// Removes from a host what this experiment left there when it was killed. Gives back what others left,
    /// or measure just now: their volumes, each with the directory of its experiment.
    pub fn remove_left(&mut self) -> Result<Vec<(String, PathBuf)>> {
        let Some(dataset) = self.experiment.target.below() else { return Ok(Vec::new()) };
        let words =
            ["get", "-Hp", "-d", "1", "-t", "volume", "-s", "local", "-o", "name,value", OWNER, dataset];
        let server = Settings::new();
        self.servers.start(&server)?;
        let programs = self.servers.programs(&server)?;
        let listed = programs.zfs(&words.map(str::to_owned))?;
        let volumes = listed.lines().filter_map(|line| line.split_once('\t'));
        let is_of_a_lab = |name: &str| name.rsplit('/').next().is_some_and(|name| name.starts_with("lab-"));
        let volumes = volumes.filter(|(name, _)| is_of_a_lab(name));
        let volumes = volumes.map(|(name, owner)| (name.to_owned(), PathBuf::from(owner)));
        let (own, others): (Vec<_>, Vec<_>) = volumes.partition(|(_, owner)| *owner == self.folders.results);
        own.iter().try_for_each(|(name, _)| destroy(programs, name))?;
        Ok(others)
    }
}

/// How large each device of a pool is.
pub(super) fn device_size(experiment: &Experiment, pools: &Pools, layout: &Layout) -> Size {
    let of_each = placement::bytes_of_a_variant(experiment);
    // One more, for what is written while it is there still.
    let inside = of_each.saturating_mul(ROOM * (experiment.most_in_a_pool() as u64 + 1));
    let room = (inside as f64 / data_devices(layout)) as u64;
    pools.device_size.unwrap_or(Size(room.next_multiple_of(1 << 20).max(LEAST_DEVICE_BYTES)))
}

/// Devices' worth of data that a layout has, were there no rounding.
pub(super) fn data_devices(layout: &Layout) -> f64 {
    layout.vdevs().iter().map(|vdev| vdev.devices() as f64 * vdev.ideal()).sum()
}

/// Says that a disk is none, or has less room than a pool needs, where that is so.
pub(super) fn require_disk(path: &Path, least: Size) -> Result<()> {
    let refused = |what: String| Err(Error::Experiment(format!("disk {}: {what}", path.display())));
    if !path.exists() || path.is_dir() {
        return refused("there is no such disk or file".to_owned());
    }
    let file = File::open(path).map_err(Error::file(path))?;
    let size = Size(in_use::size(&file).map_err(Error::file(path))?);
    if size < least {
        return refused(format!(
            "it has {size}, fewer than the {least} that its pool needs: make the target's `size` smaller"
        ));
    }
    Ok(())
}

/// Destroys a volume or filesystem, with snapshots that others made of it. On a host others look at a device
/// that was just closed, as udev does: for so long it is busy.
pub(super) fn destroy(programs: &dyn Programs, dataset: &str) -> Result<()> {
    let words = ["destroy".to_owned(), "-r".to_owned(), dataset.to_owned()];
    for _ in 0..BUSY_TRIES {
        match programs.zfs(&words) {
            Err(error) if error.to_string().contains("busy") => thread::sleep(BUSY_PAUSE),
            done => return done.map(drop),
        }
    }
    programs.zfs(&words).map(drop)
}
