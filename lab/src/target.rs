//! Where variants live.
//!
//! A variant's volume or filesystem is made once, filled once, and used by every round; there is one for each
//! kind of data ([`Placement`]). If devices are to be missing, they are taken offline then. Variants that
//! differ in a property of a whole pool (`layout`, `log`, `ashift`), or in an option of the serving process
//! (`arc_max`), have pools or processes of their own. All others share them, so that they share free space
//! and age as well.
//!
//! | in the experiment's directory | contents |
//! |---|---|
//! | `devices/lab0-0`, `devices/lab0-1` … | the devices of pool `lab0` |
//! | `devices/key` | the key of encrypted datasets, and of devices that LUKS encrypts |
//! | `devices/modelled/MODEL/lab0-0` | devices that play a medium: the experiment's own daemon slows them down by their directory |
//! | `devices/raw` | the file or directory by which the raw device is measured |
//! | `mnt/` | where filesystems are mounted |
//! | `claims.json` | files and devices of the user that are written ([`in_use`]) |
//!
//! If the experiment names `disks`, pools are made of those instead of files, each of the first of them:
//! variants on different disks would be compared by these disks as well. So there is one pool at a time; a
//! variant that needs another pool replaces it and fills it again. A round has the runs of each pool in one
//! stretch ([`crate::Plan`]).
//!
//! Both directories, and the directory of files inside a target directory, have a mark file since they were
//! made, which lists what the lab makes in them: nothing else is removed (`crate::created_files`).
//!
//! The programs that make pools are behind [`crate::programs::Programs`]; [`Launch`] starts them.
//!
//! # Parts
//! A [`Bench`] puts these parts together. Each keeps one thing, and knows none of the others:
//!
//! | part | module | what it keeps |
//! |---|---|---|
//! | `Folders` | `folders` | the lab's directories within that of the results |
//! | `Servers` | `servers` | the processes that serve pools |
//! | `PoolsMade`, `Homes` | `homes` | pools with their disks; the volume or filesystem of each variant |
//! | `Guests` | `guests` | the guests of volumes and images, and how long they take to boot |
//! | `Claims`, `Filled` | `claims` | files and devices that the user named: which are held, and which were filled |
//! | `Remarks`, `Replays` | `remarks` | notes and preparations for the report; how often traces are replayed |
//!
//! What concerns several parts is a method of the bench, in the module of what it is for:
//!
//! | module | what it does |
//! |---|---|
//! | `checks` | checks what can be checked before anything is made |
//! | `pools` | makes pools, and volumes and filesystems in them, and removes them |
//! | `luks` | has devices of pools encrypted below them; makes keys |
//! | `named` | takes files, devices and exports that the user named |
//! | `existing` | sets what variants differ in on a volume that holds data, and sets it back |
//! | `guests` | boots the guest of a volume or image |
//! | `filling`, `caches` | writes the data that workloads find; brings caches into the state that they want |
//! | `job`, `space` | the work of runs; what variants take on devices |
//! | `placement`, `in_use`, `limit` | which runs share a volume; which devices other programs use; measuring the raw device |
//!
//! Which of this a target needs its [`crate::site::Site`] says; no module here looks at the kind.
//!
//! # Ways
//! With `through = "process"` a variant's volume is made and filled as any other, over NBD; only the measured
//! load runs in the process that has the pool open ([`crate::load`]).
//!
//! # Volumes of a host
//! They are made below the named dataset, and nothing else there is touched. The property [`OWNER`] of each
//! names its experiment: so [`Bench::remove_left`] finds what a killed lab left there, and so does an
//! administrator.
//!
//! # Intent logs
//! A run that flushes its writes finds an intent log that has begun, as a pool in use has.
//!
//! # Caches
//! [`Bench::ready`] prepares the cache state that a workload asks for ([`crate::workload::CacheState`]).
//! Data that the pool's own process does not cache may be cached by the system: jobs on files bypass its page
//! cache (`direct=1`) unless they say otherwise, and a cold run drops it where that is allowed.

mod caches;
mod checks;
mod claims;
mod existing;
mod filling;
mod folders;
mod guests;
mod homes;
pub mod in_use;
mod job;
mod limit;
mod luks;
mod named;
mod placement;
mod pools;
mod remarks;
mod servers;
mod space;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::created_files;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Rates, SettingOwner, Settings, TUNABLE, Workload};
use crate::fio::{self, Endpoint};
use crate::progress::Progress;
use crate::store::Prepared;

use claims::{Claims, Filled};
use filling::{make_files, whole};
use folders::{Folders, RAW};
use guests::Guests;
use homes::{Home, Homes, PoolsMade};
use pools::destroy;
use remarks::{Remarks, Replays};
use servers::Servers;

pub(crate) use checks::needs;
pub use checks::{consent, faults};
pub use folders::modelled_devices;
pub use job::{Job, Stream};
pub use luks::fault as fault_of_luks;
pub use placement::Placement;
pub use servers::Launch;

/// A property of a host's volumes: the directory of the experiment that made them.
pub const OWNER: &str = "cenote:lab";

/// The variants' volumes and filesystems, made as they are needed. Each part of it is a struct with its own
/// methods; what concerns several is a method of the whole.
pub struct Bench<'a> {
    experiment: &'a Experiment,
    folders: Folders,
    servers: Servers<'a>,
    pools: PoolsMade,
    homes: Homes,
    guests: Guests,
    claims: Claims<'a>,
    filled: Filled,
    replays: Replays,
    remarks: Remarks,
    /// The volume that holds data and was changed for variants.
    changed: Option<String>,
}

impl<'a> Bench<'a> {
    /// For an experiment whose files are in `directory`. A target with pools needs to launch their programs.
    pub fn new(experiment: &'a Experiment, directory: &Path, launch: Option<Launch<'a>>) -> Self {
        Self {
            experiment,
            folders: Folders::of(directory),
            servers: Servers::new(launch),
            pools: PoolsMade::default(),
            homes: Homes::default(),
            guests: Guests::of(experiment.boot_seconds),
            claims: Claims::of(experiment),
            filled: Filled::default(),
            replays: Replays::default(),
            remarks: Remarks::default(),
            changed: None,
        }
    }

    /// The same, with consent to overwrite the contents of named files, devices and exports, or
    /// with that only which was noted before ([`consent`]). Where this is not said, the experiment itself
    /// says it.
    pub fn overwriting(mut self, is_allowed: bool) -> Self {
        self.claims.may_overwrite = is_allowed;
        self
    }

    /// Measures the speed of the user's disks, before a pool is made of them; notes why, where no
    /// limit is measured.
    pub fn limits(&mut self, progress: &dyn Progress) -> Result<Option<Rates>> {
        if let Some(why) = self.experiment.target.facts().no_limit {
            self.remarks.note(format!("The limit of the devices was not measured: {why}."));
            return Ok(None);
        }
        match limit::measure(self.experiment, self.claims.may_overwrite, &self.folders.results, &mut || {
            progress.stops()
        }) {
            // As a file where fio cannot go around the page cache.
            Err(Error::Failed { output, .. }) => {
                self.remarks.note(format!(
                    "The limit of the devices was not measured: fio failed on them ({output})."
                ));
                Ok(None)
            }
            measured => measured,
        }
    }

    /// The filling since the last call; nothing if there was none.
    pub fn prepared(&mut self) -> Option<Prepared> {
        self.remarks.take_prepared()
    }

    /// Notes for readers about preparations and the job, since the last call.
    pub fn notes(&mut self) -> Vec<String> {
        self.remarks.take_notes()
    }

    /// Brings about what a run begins with: the files that it needs, everything else on the devices, and the
    /// caches as the workload wants them.
    pub fn ready(&mut self, lodging: &Placement, workload: &Workload, progress: &dyn Progress) -> Result<()> {
        created_files::make(&self.folders.devices)?;
        let endpoint = self.endpoint(lodging, workload, progress)?;
        self.tune(lodging)?;
        if let Endpoint::Directory(directory) = &endpoint {
            make_files(workload, directory, &mut self.filled.files, progress)?;
        }
        self.settle(lodging)?;
        self.prepare_caches(lodging, workload, &endpoint, progress)?;
        let is_always = lodging.settings.get("sync").is_some_and(|sync| sync == "always");
        if self.homes.get(lodging).is_some() && workload.flushes(is_always) {
            // The first flush after a pause begins an intent log, which waits for a transaction group: it
            // would be most of what a short run shows.
            let one = workload.bs.min(workload.extent(self.experiment.target.size()));
            let arguments = fio::once(&whole("write", workload, one), &endpoint, one, true);
            let limit = self.guests.limit(0.0, one.0);
            fio::run_by(endpoint.by(), &arguments, limit, &mut || progress.stops()).map(drop)?;
        }
        Ok(())
    }

    /// Sets the tunables of a variant in the process that serves it. Those that only other variants have are
    /// set back.
    fn tune(&self, lodging: &Placement) -> Result<()> {
        let Some(home) = self.homes.get(lodging) else { return Ok(()) };
        let all = self.experiment.design().all_settings().into_iter();
        let names: BTreeSet<&String> = all
            .map(|(name, _)| name)
            .filter(|name| SettingOwner::of(name) == SettingOwner::Tunable)
            .collect();
        let value = |name: &String| {
            let tunable = name.strip_prefix(TUNABLE).unwrap_or(name);
            (tunable.to_owned(), lodging.settings.get(name).cloned())
        };
        self.servers.programs(&home.server)?.tune(&names.into_iter().map(value).collect::<Vec<_>>())
    }

    /// Waits until all that was written is on the devices, so that no run pays for the one before.
    pub fn settle(&self, lodging: &Placement) -> Result<()> {
        let (server, pool) = match (self.homes.get(lodging), &self.changed) {
            (Some(home), _) => (&home.server, home.pool.as_str()),
            (None, Some(volume)) => (&Settings::new(), volume.split('/').next().unwrap_or_default()),
            (None, None) => return Ok(()),
        };
        self.servers.programs(server)?.zpool(&["sync".to_owned(), pool.to_owned()]).map(drop)
    }

    /// The cause of an error: if a pool was lost, everything else follows from that.
    pub fn explained(&self, error: Error) -> Error {
        if matches!(error, Error::Stopped) {
            return error;
        }
        let lost = self.pools.all().find_map(|(settings, pool)| {
            let programs = self.servers.programs(&SettingOwner::Server.pick(settings)).ok()?;
            Some(Error::Lost { pool: pool.clone(), why: programs.lost(pool)? })
        });
        lost.unwrap_or(error)
    }

    /// Removes all that was made.
    pub fn remove(&mut self) -> Result<()> {
        let mut first = self.set_back_silently();
        // Before what their disks are.
        self.guests.end_all();
        if self.experiment.target.below().is_some() {
            for home in self.homes.all() {
                let programs = self.servers.programs(&home.server);
                first = first.and(programs.and_then(|programs| destroy(programs, &home.dataset)));
            }
        }
        for (settings, pool) in self.pools.all() {
            let destroy = ["destroy".to_owned(), "-f".to_owned(), pool.clone()];
            let server = SettingOwner::Server.pick(settings);
            let destroyed = self.servers.programs(&server).and_then(|programs| programs.zpool(&destroy));
            first = first.and(destroyed.map(|_| ()));
        }
        self.homes.clear();
        self.pools.clear();
        self.servers.end_all();
        first = first.and(luks::close(&self.folders.devices, None));
        self.filled = Filled::default();
        self.claims.release();
        for made in self.own_directories().into_iter().filter(|made| created_files::is_own(made)) {
            // Held until it is gone.
            let held = self.claims.let_go(&made).map_or_else(|| created_files::lock(&made), Ok);
            first = first.and(held.and_then(|_held| created_files::remove(&made)));
        }
        self.claims.release_directories();
        first
    }

    /// The directories that the lab makes, those within others first.
    fn own_directories(&self) -> Vec<PathBuf> {
        let paths = self.experiment.target.paths().into_iter().filter(|at| at.is_dir());
        let of_raw = self.folders.devices.join(RAW).join(fio::OWN_DIRECTORY);
        let all = [of_raw, self.folders.devices.clone(), self.folders.mounts.clone()].into_iter();
        all.chain(paths.map(|at| at.join(fio::OWN_DIRECTORY))).collect()
    }

    /// What is in directories of the names that the lab's own have, and it did not make: it stays there when
    /// all else is removed. Some of the names, where there are many.
    pub fn left_alone(&self) -> Vec<PathBuf> {
        let theirs =
            self.own_directories().into_iter().filter(|path| path.is_dir() && !created_files::is_own(path));
        let mut all: Vec<PathBuf> = theirs.flat_map(|path| created_files::theirs(&path)).collect();
        all.sort();
        all.dedup();
        all
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        // An error was told before, or is told when the directory is used again.
        let _ = self.remove();
    }
}

/// A sparse file of at least `bytes`; whether it was shorter before. A block device stays as it is.
fn make_file(path: &Path, bytes: u64) -> Result<bool> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    let file =
        File::options().write(true).create(true).truncate(false).open(path).map_err(Error::file(path))?;
    let metadata = file.metadata().map_err(Error::file(path))?;
    let is_short = metadata.is_file() && metadata.len() < bytes;
    if is_short {
        file.set_len(bytes).map_err(Error::file(path))?;
    }
    Ok(is_short)
}
