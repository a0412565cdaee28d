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
//! made, which lists what the lab makes in them: nothing else is removed (`created_files`).
//!
//! The programs that make pools are behind [`Programs`]; [`Launch`] starts them.
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `checks` | checks what can be checked before anything is made |
//! | `pools` | makes pools, and volumes and filesystems in them, and removes them |
//! | `named` | takes files, devices and exports that the user named |
//! | `existing` | sets what variants differ in on a volume that holds data, and sets it back |
//! | `guests` | boots the guest of a volume or image |
//! | `filling`, `caches` | writes the data that workloads find; brings caches into the state that they want |
//! | `job`, `space` | the work of runs; what variants take on devices |
//! | `placement`, `created_files`, `in_use` | which runs share a volume; what the lab made; which devices other programs use |
//! | `programs`, `export`, `limit` | programs that make pools; servers of exports; measuring the raw device |
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
//! [`Bench::ready`] prepares the cache state that a workload asks for ([`crate::experiment::CacheState`]).
//! Data that the pool's own process does not cache may be cached by the system: jobs on files bypass its page
//! cache (`direct=1`) unless they say otherwise, and a cold run drops it where that is allowed.

mod caches;
mod checks;
pub(crate) mod created_files;
mod existing;
pub(crate) mod export;
mod filling;
mod guests;
pub mod in_use;
mod job;
mod limit;
mod named;
mod placement;
mod pools;
mod programs;
mod space;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::experiment::{Experiment, Place, Rates, Settings, TUNABLE, Workload};
use crate::fio::{self, Endpoint};
use crate::guest::{Accelerator, Boots};
use crate::run::Progress;
use crate::store::Prepared;

use filling::{make_files, whole};
use guests::Guest;
use in_use::Claim;
use pools::destroy;

pub(crate) use checks::needs;
pub use checks::{consent, faults};
pub use job::{Job, Stream};
pub use placement::Placement;
pub use programs::{Counters, KernelPrograms, Layers, Programs, output};

/// The directory of devices that play a medium.
const MODELLED: &str = "modelled";
/// The file or directory by which the raw device is measured.
const RAW: &str = "raw";

/// A property of a host's volumes: the directory of the experiment that made them.
pub const OWNER: &str = "cenote:lab";

/// Starts the process that serves pools, with its settings.
pub type Launch<'a> = Box<dyn Fn(&Settings) -> Result<Box<dyn Programs>> + 'a>;

/// The variants' volumes and filesystems, made as they are needed.
pub struct Bench<'a> {
    experiment: &'a Experiment,
    launch: Option<Launch<'a>>,
    directory: PathBuf,
    devices: PathBuf,
    mounts: PathBuf,
    /// Those that run, by the settings that they were started with.
    servers: BTreeMap<Settings, Box<dyn Programs>>,
    /// The pools that were made, by the settings that only a pool or its server can have.
    pools: BTreeMap<Settings, String>,
    /// The user's disks that pools are made of.
    disks: BTreeMap<String, Vec<PathBuf>>,
    /// The devices that pools will miss as soon as something is in them.
    to_be_missed: BTreeMap<String, Vec<String>>,
    /// The files and pools that were made.
    homes: BTreeMap<Placement, Home>,
    /// The guests of those that are measured in one.
    guests: BTreeMap<Placement, Guest>,
    /// What carries out their instructions, as soon as that is known.
    accelerator: Option<Accelerator>,
    /// How long their guests took to boot.
    boots: Boots,
    /// Numbers that were given to pools and datasets, so that no name is used twice.
    numbered: usize,
    raw_is_filled: bool,
    /// Named files and devices that were filled.
    filled: BTreeSet<String>,
    /// Named files and devices that are held because workloads write to them.
    claims: BTreeMap<PathBuf, Claim>,
    /// Whether what files and devices hold may be overwritten.
    may_overwrite: bool,
    /// Whether workloads write to a named file or device; traces are read to find out.
    overwrites: OnceCell<bool>,
    /// How often workloads replay their traces on end in a run, by their names: one time may be over too
    /// soon.
    passes: BTreeMap<String, usize>,
    /// Whether the last run did more than what it measured, before.
    did_more: bool,
    /// Notes for readers since they were last taken.
    notes: Vec<String>,
    /// Targets filled since they were last taken.
    prepared: Prepared,
    /// Where all files of a workload were made.
    whole_files: BTreeSet<PathBuf>,
    /// The volume that holds data and was changed for variants.
    changed: Option<String>,
    /// The lab's directories inside named ones, which no other lab uses meanwhile.
    held: BTreeMap<PathBuf, File>,
}

/// Where a variant lives.
#[derive(Debug, Clone)]
struct Home {
    server: Settings,
    pool: String,
    dataset: String,
    endpoint: Endpoint,
}

impl<'a> Bench<'a> {
    /// For an experiment whose files are in `directory`. A target with pools needs to launch their programs.
    pub fn new(experiment: &'a Experiment, directory: &Path, launch: Option<Launch<'a>>) -> Self {
        Self {
            experiment,
            launch,
            directory: directory.to_owned(),
            devices: directory.join("devices"),
            mounts: directory.join("mnt"),
            servers: BTreeMap::new(),
            pools: BTreeMap::new(),
            disks: BTreeMap::new(),
            to_be_missed: BTreeMap::new(),
            homes: BTreeMap::new(),
            guests: BTreeMap::new(),
            accelerator: None,
            boots: Boots::of(experiment.boot_seconds),
            numbered: 0,
            raw_is_filled: false,
            filled: BTreeSet::new(),
            claims: BTreeMap::new(),
            may_overwrite: experiment.target.may_overwrite(),
            overwrites: OnceCell::new(),
            passes: BTreeMap::new(),
            did_more: false,
            notes: Vec::new(),
            prepared: Prepared::default(),
            whole_files: BTreeSet::new(),
            changed: None,
            held: BTreeMap::new(),
        }
    }

    /// The same, with consent to overwrite the contents of named files, devices and exports, or
    /// with that only which was noted before ([`consent`]). Where this is not said, the experiment itself
    /// says it.
    pub fn overwriting(mut self, is_allowed: bool) -> Self {
        self.may_overwrite = is_allowed;
        self
    }

    /// Measures the speed of the user's disks, before a pool is made of them; notes why, where no
    /// limit is measured.
    pub fn limits(&mut self, progress: &dyn Progress) -> Result<Option<Rates>> {
        if let Some(why) = self.experiment.target.facts().no_limit {
            self.notes.push(format!("The limit of the devices was not measured: {why}."));
            return Ok(None);
        }
        match limit::measure(self.experiment, self.may_overwrite, &self.directory, &mut || progress.stops()) {
            // As a file where fio cannot go around the page cache.
            Err(Error::Failed { output, .. }) => {
                self.notes.push(format!(
                    "The limit of the devices was not measured: fio failed on them ({output})."
                ));
                Ok(None)
            }
            measured => measured,
        }
    }

    fn overwrites(&self) -> bool {
        *self.overwrites.get_or_init(|| self.experiment.overwrites())
    }

    /// The programs of a server that was started.
    fn programs(&self, server: &Settings) -> Result<&dyn Programs> {
        let programs = self.servers.get(server).map(Box::as_ref);
        programs.ok_or_else(|| Error::Experiment("this target has no pools".into()))
    }

    fn start(&mut self, server: &Settings) -> Result<()> {
        if self.servers.contains_key(server) {
            return Ok(());
        }
        let launch = self.launch.as_ref();
        let launch = launch.ok_or_else(|| Error::Experiment("this target has no pools".into()))?;
        let programs = launch(server)?;
        self.servers.insert(server.clone(), programs);
        Ok(())
    }

    /// The filling since the last call; nothing if there was none.
    pub fn prepared(&mut self) -> Option<Prepared> {
        let prepared = std::mem::take(&mut self.prepared);
        (prepared.count + prepared.rewritten > 0).then_some(prepared)
    }

    /// Notes for readers about preparations and the job, since the last call.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Brings about what a run begins with: the files that it needs, everything else on the devices, and the
    /// caches as the workload wants them.
    pub fn ready(&mut self, lodging: &Placement, workload: &Workload, progress: &dyn Progress) -> Result<()> {
        created_files::make(&self.devices)?;
        let endpoint = self.experiment.target.endpoint(self, lodging, workload, progress)?;
        self.tune(lodging)?;
        if let Endpoint::Directory(directory) = &endpoint {
            make_files(workload, directory, &mut self.whole_files, progress)?;
        }
        self.settle(lodging)?;
        self.prepare_caches(lodging, workload, &endpoint, progress)?;
        let is_always = lodging.settings.get("sync").is_some_and(|sync| sync == "always");
        if self.homes.contains_key(lodging) && workload.flushes(is_always) {
            // The first flush after a pause begins an intent log, which waits for a transaction group: it
            // would be most of what a short run shows.
            let one = workload.bs.min(workload.extent(self.experiment.target.size()));
            let arguments = fio::once(&whole("write", workload, one), &endpoint, one, true);
            let limit = self.limit(0.0, one.0);
            fio::run_by(endpoint.by(), &arguments, limit, &mut || progress.stops()).map(drop)?;
        }
        Ok(())
    }

    /// Sets the tunables of a variant in the process that serves it. Those that only other variants have are
    /// set back.
    fn tune(&self, lodging: &Placement) -> Result<()> {
        let Some(home) = self.homes.get(lodging) else { return Ok(()) };
        let all = self.experiment.all_settings().into_iter();
        let names: BTreeSet<&String> =
            all.map(|(name, _)| name).filter(|name| Place::of(name) == Place::Tunable).collect();
        let value = |name: &String| {
            let tunable = name.strip_prefix(TUNABLE).unwrap_or(name);
            (tunable.to_owned(), lodging.settings.get(name).cloned())
        };
        self.programs(&home.server)?.tune(&names.into_iter().map(value).collect::<Vec<_>>())
    }

    /// Waits until all that was written is on the devices, so that no run pays for the one before.
    pub fn settle(&self, lodging: &Placement) -> Result<()> {
        let (server, pool) = match (self.homes.get(lodging), &self.changed) {
            (Some(home), _) => (&home.server, home.pool.as_str()),
            (None, Some(volume)) => (&Settings::new(), volume.split('/').next().unwrap_or_default()),
            (None, None) => return Ok(()),
        };
        self.programs(server)?.zpool(&["sync".to_owned(), pool.to_owned()]).map(drop)
    }

    /// The cause of an error: if a pool was lost, everything else follows from that.
    pub fn explained(&self, error: Error) -> Error {
        if matches!(error, Error::Stopped) {
            return error;
        }
        let lost = self.pools.iter().find_map(|(settings, pool)| {
            let programs = self.servers.get(&Place::Server.pick(settings))?;
            Some(Error::Lost { pool: pool.clone(), why: programs.lost(pool)? })
        });
        lost.unwrap_or(error)
    }

    /// Removes all that was made.
    pub fn remove(&mut self) -> Result<()> {
        let mut first = self.set_back_silently();
        // Before what their disks are.
        self.guests.clear();
        if self.experiment.target.below().is_some() {
            for home in self.homes.values() {
                let programs = self.programs(&home.server);
                first = first.and(programs.and_then(|programs| destroy(programs, &home.dataset)));
            }
        }
        for (settings, pool) in &self.pools {
            let destroy = ["destroy".to_owned(), "-f".to_owned(), pool.clone()];
            let server = Place::Server.pick(settings);
            let destroyed = self.programs(&server).and_then(|programs| programs.zpool(&destroy));
            first = first.and(destroyed.map(|_| ()));
        }
        self.homes.clear();
        self.pools.clear();
        self.disks.clear();
        self.servers.clear();
        self.raw_is_filled = false;
        self.filled.clear();
        self.claims.clear();
        self.whole_files.clear();
        for made in self.own_directories().into_iter().filter(|made| created_files::is_own(made)) {
            // Held until it is gone.
            let held = self.held.remove(&made).map_or_else(|| created_files::lock(&made), Ok);
            first = first.and(held.and_then(|_held| created_files::remove(&made)));
        }
        self.held.clear();
        first
    }

    /// The directories that the lab makes, those within others first.
    fn own_directories(&self) -> Vec<PathBuf> {
        let paths = self.experiment.target.paths().into_iter().filter(|at| at.is_dir());
        let of_raw = self.devices.join(RAW).join(fio::OWN_DIRECTORY);
        let all = [of_raw, self.devices.clone(), self.mounts.clone()].into_iter();
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

/// The directory of devices that play a medium, below that of all devices.
fn modelled(devices: &Path) -> PathBuf {
    devices.join(MODELLED)
}

/// The same, for the daemon that slows them down, made where it does not exist. `directory` is the
/// experiment's.
pub fn modelled_devices(directory: &Path) -> Result<PathBuf> {
    let devices = directory.join("devices");
    created_files::make(&devices)?;
    created_files::take_directory(&devices, MODELLED)
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
