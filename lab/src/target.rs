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
//! | `pools` | makes pools, and volumes and filesystems in them |
//! | `guests` | boots the guest of a volume or image |
//! | `filling` | writes the data that workloads find |
//! | `placement`, `created_files`, `in_use` | which runs share a volume; what the lab made; which devices other programs use |
//! | `programs`, `export`, `limit` | programs that make pools; servers of exports; measuring the raw device |
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
//! [`Bench::ready`] prepares the cache state that a workload asks for ([`CacheState`]). Data that the pool's
//! own process does not cache may be cached by the system: jobs on files bypass its page cache (`direct=1`)
//! unless they say otherwise, and a cold run drops it where that is allowed.

mod checks;
pub(crate) mod created_files;
pub(crate) mod export;
mod filling;
mod guests;
pub mod in_use;
mod limit;
mod placement;
mod pools;
mod programs;

use std::cell::OnceCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::copy::{self, Sort};
use crate::error::{Error, Result};
use crate::experiment::{
    CacheState, Experiment, PROCESS, Place, Rates, Settings, THROUGH, TUNABLE, Target, Work, Workload,
};
use crate::fio::{self, Endpoint};
use crate::guest::{Accelerator, Machine};
use crate::layout::Layout;
use crate::load::Load;
use crate::models::space;
use crate::remote;
use crate::run::{Part, Progress};
use crate::size::Size;
use crate::store::Prepared;
use crate::trace::Trace;

use filling::{make_files, whole};
use in_use::Claim;
use pools::destroy;

pub(crate) use checks::needs;
pub use checks::{consent, faults};
pub use placement::Placement;
pub use programs::{Counters, KernelPrograms, Layers, Programs, output};

/// A trace that is over sooner is replayed several times on end: fio counts milliseconds.
const LEAST_REPLAY: Duration = Duration::from_millis(100);

/// The directory of devices that play a medium.
const MODELLED: &str = "modelled";
/// The file or directory by which the raw device is measured.
const RAW: &str = "raw";
/// The trace that fio replays.
const REPLAYED: &str = "replayed.trace";
/// The directory of what fio notes of the time within a run.
const STEPS: &str = "steps";

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
    guests: BTreeMap<Placement, Machine>,
    /// What carries out their instructions, as soon as that is known.
    accelerator: Option<Accelerator>,
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

/// The work of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// fio does it.
    Fio {
        /// Its arguments.
        arguments: Vec<String>,
        /// How long that takes, if it is known before.
        seconds: Option<f64>,
        /// The command that runs a shell where it does it; no words where that is here.
        by: Vec<String>,
        /// How long that is waited for.
        limit: Duration,
    },
    /// fio replays a trace.
    Replay {
        /// Its arguments.
        arguments: Vec<String>,
        /// How long one time takes, if it is known before.
        seconds: Option<f64>,
        /// The trace.
        trace: Trace,
        /// From where it was read.
        path: PathBuf,
        /// The workload that does.
        workload: String,
        /// The file that fio reads it from, and the name that it has for what it goes to.
        here: (PathBuf, String),
    },
    /// Files are copied.
    Copy {
        /// Which.
        stream: Stream,
        /// To where.
        at: Endpoint,
    },
    /// The process that has the pool open does it by itself.
    Load {
        /// To which volume.
        volume: String,
        /// Its effect.
        load: Load,
    },
}

impl Job {
    /// It in words, to repeat it.
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Fio { arguments, by, .. } => [by, &["fio".to_owned()][..], arguments].concat(),
            Self::Replay { arguments, .. } => {
                std::iter::once("fio".to_owned()).chain(arguments.iter().cloned()).collect()
            }
            Self::Copy { stream, at } => stream.words(at),
            Self::Load { volume, load } => load.words(volume),
        }
    }
}

/// Files that are copied.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    source: PathBuf,
    as_disk: bool,
    only: Option<Sort>,
    /// How many bytes at most.
    extent: Size,
    /// Bytes of a piece.
    bs: Size,
}

impl Stream {
    /// The source of a workload's copies to a target of `size`; nothing if it is not a copy.
    fn of(workload: &Workload, size: Size) -> Option<Self> {
        let (as_disk, only, extent, bs) =
            (workload.as_disk, workload.only, workload.extent(size), workload.bs);
        Some(Self { source: workload.source.clone()?, as_disk, only, extent, bs })
    }

    fn words(&self, at: &Endpoint) -> Vec<String> {
        let as_disk = self.as_disk.then_some(["as", "a", "disk"]).into_iter().flatten().map(str::to_owned);
        let (source, at) = (self.source.display().to_string(), at.file());
        let what = self.only.map(|only| format!("{} in", only.words()));
        let words = ["copy".into(), self.extent.to_string(), "of".into()].into_iter().chain(what);
        let words = words.chain([source, "to".into(), at]);
        words.chain(["by".into(), self.bs.to_string()]).chain(as_disk).collect()
    }

    fn run(&self, at: &Endpoint, what: &str, progress: &dyn Progress) -> Result<fio::Outcome> {
        let began = Instant::now();
        let files = copy::Files { source: &self.source, as_disk: self.as_disk, only: self.only };
        copy::run(files, at, self.extent, self.bs, &mut |done| {
            progress.goes_on(Part { what, done, total: self.extent, elapsed: began.elapsed() });
            progress.stops()
        })
    }
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
        if let Some(why) = limit::unmeasured(self.experiment) {
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

    /// Where a workload is measured; what there is none of is made, and filled as the workload's data are.
    fn endpoint(
        &mut self,
        lodging: &Placement,
        workload: &Workload,
        progress: &dyn Progress,
    ) -> Result<Endpoint> {
        match &self.experiment.target {
            Target::Path { path, .. } => self.at_path(path, progress),
            Target::Nbd { uri, .. } => self.at_named(Endpoint::Nbd(uri.clone()), uri, progress),
            Target::Iscsi { uri, .. } => self.at_named(Endpoint::Iscsi(uri.clone()), uri, progress),
            Target::Layers { layers, .. } => {
                let name = lodging.settings.get("layer");
                let layer = layers.iter().find(|layer| Some(&layer.name) == name).or(layers.first());
                let layer = layer.ok_or_else(|| Error::Experiment("this target has no layers".into()))?;
                if let Some(by) = &layer.by {
                    let endpoint = Endpoint::Elsewhere {
                        by: by.clone(),
                        path: PathBuf::from(&layer.at),
                        engine: layer.engine().to_owned(),
                    };
                    return self.at_named(endpoint, &layer.title(), progress);
                }
                match (layer.path(), layer.at.as_str()) {
                    (Some(path), _) => self.at_path(path, progress),
                    (None, uri) if uri.starts_with("iscsi://") => {
                        self.at_named(Endpoint::Iscsi(uri.to_owned()), uri, progress)
                    }
                    (None, uri) => self.at_named(Endpoint::Nbd(uri.to_owned()), uri, progress),
                }
            }
            target if lodging.is_device => {
                let endpoint = match target {
                    Target::Filesystem(_) => {
                        Endpoint::Directory(created_files::take_directory(&self.devices, RAW)?)
                    }
                    _ => {
                        let raw = created_files::take(&self.devices, RAW)?;
                        make_file(&raw, target.size().0)?;
                        Endpoint::Path(raw)
                    }
                };
                if !self.raw_is_filled {
                    self.fill_first(&endpoint, &lodging.variant, progress)?;
                    self.raw_is_filled = true;
                }
                Ok(endpoint)
            }
            _ => {
                if let Some(home) = self.homes.get(lodging) {
                    return Ok(home.endpoint.clone());
                }
                let home = self.make(lodging)?;
                let pool = home.pool.clone();
                let server = home.server.clone();
                self.homes.insert(lodging.clone(), home.clone());
                let endpoint = match self.guest_of(lodging)? {
                    None => home.endpoint,
                    Some(spec) => {
                        let endpoint = self.start_guest(lodging, &home, &spec, progress)?;
                        self.homes.insert(lodging.clone(), Home { endpoint: endpoint.clone(), ..home });
                        endpoint
                    }
                };
                self.fill(&endpoint, &lodging.variant, workload, progress)?;
                if let Some(devices) = self.to_be_missed.remove(&pool) {
                    let programs = self.programs(&server)?;
                    programs.zpool(&["sync".to_owned(), pool.clone()])?;
                    let offline = ["offline".to_owned(), pool].into_iter().chain(devices);
                    programs.zpool(&offline.collect::<Vec<_>>())?;
                }
                Ok(endpoint)
            }
        }
    }

    /// A directory, a device, or a file that is made and filled where it is not there.
    fn at_path(&mut self, path: &Path, progress: &dyn Progress) -> Result<Endpoint> {
        self.experiment.target.require_paths()?;
        let name = path.display().to_string();
        if path.is_dir() {
            let own = path.join(fio::OWN_DIRECTORY);
            if let Entry::Vacant(entry) = self.held.entry(own) {
                let held = created_files::hold(entry.key())?;
                entry.insert(held);
            }
            return self.at_named(Endpoint::Directory(path.to_owned()), &name, progress);
        }
        let endpoint = Endpoint::Path(path.to_owned());
        let size = self.experiment.target.size();
        let is_there = path.exists();
        if !self.overwrites() && is_there && !in_use::is_made(path) {
            // It belongs to the user, and is only read.
            self.experiment.target.require_length(path)?;
            return Ok(endpoint);
        }
        if !self.claims.contains_key(path) {
            let claim = in_use::claim(path, self.may_overwrite, &self.directory)?;
            self.claims.insert(path.to_owned(), claim);
        }
        self.experiment.target.require_device_length(path)?;
        if !is_there {
            make_file(path, 0)?;
            in_use::mark(path, false);
            self.claims.insert(path.to_owned(), in_use::claim(path, self.may_overwrite, &self.directory)?);
        }
        let length = fs::metadata(path).map_or(0, |metadata| metadata.len());
        let is_short = make_file(path, size.0)?;
        if is_short || (in_use::is_made(path) && !in_use::is_filled(path)) {
            // Reading what was never written reads nothing.
            let filled = self.fill_first(&endpoint, &name, progress);
            if filled.is_err() && !is_there {
                fs::remove_file(path).map_err(Error::file(path))?;
            } else if filled.is_err() && is_short {
                // As short as it was, so that a continued experiment fills it.
                let file = File::options().write(true).open(path).map_err(Error::file(path))?;
                file.set_len(length).map_err(Error::file(path))?;
            }
            filled?;
            if in_use::is_made(path) {
                in_use::mark(path, true);
            }
            self.filled.insert(name.clone());
        }
        self.at_named(endpoint, &name, progress)
    }

    /// A named file or device is filled once, if it may be written: by workloads that write it anyway, or
    /// because it is a file of the lab's own.
    fn at_named(&mut self, endpoint: Endpoint, name: &str, progress: &dyn Progress) -> Result<Endpoint> {
        // What is elsewhere can be looked at no more than what an export holds.
        let is_export =
            matches!(endpoint, Endpoint::Nbd(_) | Endpoint::Iscsi(_) | Endpoint::Elsewhere { .. });
        if is_export && self.overwrites() {
            let fault = in_use::fault_of_export(name, self.may_overwrite, Some(&self.directory))?;
            fault.map_or(Ok(()), |what| Err(Error::Experiment(what)))?;
        }
        if self.may_write(&endpoint) && !self.filled.contains(name) {
            self.fill_first(&endpoint, name, progress)?;
            self.filled.insert(name.to_owned());
        }
        Ok(endpoint)
    }

    /// Whether a named file or device may be written. All else belongs to the lab.
    fn may_write(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::Directory(_)) || self.overwrites()
    }

    /// The filling since the last call; nothing if there was none.
    pub fn prepared(&mut self) -> Option<Prepared> {
        let prepared = std::mem::take(&mut self.prepared);
        (prepared.count > 0).then_some(prepared)
    }

    /// Notes for readers about preparations and the job, since the last call.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Goes over the first `extent` bytes once, with data as the workload's.
    fn pass(
        &self,
        rw: &str,
        like: &Workload,
        extent: Size,
        endpoint: &Endpoint,
        progress: &dyn Progress,
    ) -> Result<()> {
        let workload = whole(rw, like, extent);
        let arguments = fio::once(&workload, endpoint, extent, false);
        let limit = fio::limit(0.0, extent.0);
        fio::run_by(endpoint.by(), &arguments, limit, &mut || progress.stops()).map(drop)
    }

    /// Brings about what a run begins with: the files that it needs, everything else on the devices, and the
    /// caches as the workload wants them.
    pub fn ready(&mut self, lodging: &Placement, workload: &Workload, progress: &dyn Progress) -> Result<()> {
        created_files::make(&self.devices)?;
        let endpoint = self.endpoint(lodging, workload, progress)?;
        self.tune(lodging)?;
        if let Endpoint::Directory(directory) = &endpoint {
            make_files(workload, directory, &mut self.whole_files, progress)?;
        }
        self.settle(lodging)?;
        let extent = workload.extent(self.experiment.target.size());
        match workload.cache {
            CacheState::AsItIs => {}
            CacheState::Cold => self.make_cold(lodging, &endpoint)?,
            CacheState::Warm => self.pass("read", workload, extent, &endpoint, progress)?,
            CacheState::Dirty if !self.experiment.target.is_as_found() || self.may_write(&endpoint) => {
                self.pass("write", workload, extent, &endpoint, progress)?;
            }
            CacheState::Dirty => {
                return Err(Error::Experiment(format!(
                    "workload '{}': cache = \"dirty\" would write to {}, to which no workload writes",
                    workload.name,
                    endpoint.file()
                )));
            }
        }
        let is_always = lodging.settings.get("sync").is_some_and(|sync| sync == "always");
        if self.homes.contains_key(lodging) && workload.flushes(is_always) {
            // The first flush after a pause begins an intent log, which waits for a transaction group: it
            // would be most of what a short run shows.
            let one = Size(workload.bs.0.min(extent.0));
            let arguments = fio::once(&whole("write", workload, one), &endpoint, one, true);
            let limit = fio::limit(0.0, one.0);
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

    /// The work of a run in a round.
    pub fn job(
        &mut self,
        lodging: &Placement,
        workload: &Workload,
        round: usize,
        progress: &dyn Progress,
    ) -> Result<Job> {
        let seed = self.experiment.seed_of_round(round);
        let at = self.endpoint(lodging, workload, progress)?;
        let way = lodging.settings.get(THROUGH);
        if let Some(home) = self.homes.get(lodging).filter(|_| way.is_some_and(|way| way == PROCESS)) {
            let load = Load::of(workload, self.experiment.target.size(), seed)?;
            return Ok(Job::Load { volume: home.dataset.clone(), load });
        }
        if let Some(stream) = Stream::of(workload, self.experiment.target.size()) {
            return Ok(Job::Copy { stream, at });
        }
        self.fio_job(&at, workload, seed)
    }

    /// Does a job, unless it is to stop.
    pub fn run(&mut self, lodging: &Placement, job: &Job, progress: &dyn Progress) -> Result<fio::Outcome> {
        let mut stops = || progress.stops();
        match job {
            Job::Replay { .. } => self.replay(job, progress),
            Job::Fio { arguments, seconds: None, by, limit } => {
                fio::run_by(by, arguments, *limit, &mut stops)
            }
            Job::Fio { arguments, seconds: Some(seconds), .. } => {
                fio::in_steps(arguments, *seconds, &self.steps()?, &mut stops)
            }
            Job::Copy { stream, at } => {
                stream.run(at, &format!("copying {}", stream.source.display()), progress)
            }
            Job::Load { volume, load } => {
                let server = Place::Server.pick(&lodging.settings);
                fio::outcome(&self.programs(&server)?.load(volume, load, &stops)?, load.fsync > 0)
            }
        }
    }

    /// Replays a trace: several times on end, where one time is over before that can be measured. How often
    /// is found by the first run of a workload, and the same for all that follow, whatever they take: figures
    /// of unlike numbers of passes cannot be compared.
    fn replay(&mut self, job: &Job, progress: &dyn Progress) -> Result<fio::Outcome> {
        let Job::Replay { arguments, seconds, trace, path, workload, here: (here, name) } = job else {
            return Err(Error::Experiment("this is no trace".into()));
        };
        let mut stops = || progress.stops();
        let steps = self.steps()?;
        let held = self.passes.get(workload).copied();
        let mut passes = held.unwrap_or(1);
        loop {
            fs::write(here, trace.for_fio(name, passes)).map_err(Error::file(here))?;
            let outcome = match seconds {
                Some(seconds) => fio::in_steps(arguments, seconds * passes as f64, &steps, &mut stops)?,
                None => fio::run_unless(arguments, &mut stops)?,
            };
            let took = fio::runtime(&outcome)?;
            let more = (LEAST_REPLAY.as_secs_f64() * 1.5 / took.as_secs_f64().max(1e-3)).ceil() as usize;
            let more = passes.saturating_mul(more).min(trace.most_times());
            if held.is_some() || took >= LEAST_REPLAY || more <= passes {
                self.passes.insert(workload.clone(), passes);
                if passes > 1 {
                    self.notes.push(format!(
                        "{} is too short to be measured: each run replays it several times in a row, and its \
                         figures are of all of these.",
                        path.display()
                    ));
                }
                if took < LEAST_REPLAY {
                    self.notes.push(format!(
                        "Some runs of '{workload}' took less than {} ms, and fio counts whole milliseconds: \
                         their figures are rough.",
                        LEAST_REPLAY.as_millis()
                    ));
                }
                return Ok(outcome);
            }
            (passes, self.did_more) = (more, true);
        }
    }

    /// Has a workload replay its trace so often on end, as its runs did before.
    pub fn hold_passes(&mut self, workload: &str, passes: usize) {
        self.passes.insert(workload.to_owned(), passes);
    }

    /// How often a workload replays its trace on end; nothing before its first run.
    pub fn passes(&self, workload: &str) -> Option<usize> {
        self.passes.get(workload).copied()
    }

    /// Where fio notes what happens within a run.
    fn steps(&self) -> Result<PathBuf> {
        created_files::take_files(&self.devices, &format!("{STEPS}/{}", fio::STEP_LOGS))
    }

    /// Whether the last run did more than what it measured, so that counters have more too; asked once.
    pub fn did_more(&mut self) -> bool {
        std::mem::take(&mut self.did_more)
    }

    fn fio_job(&mut self, endpoint: &Endpoint, workload: &Workload, seed: u64) -> Result<Job> {
        let size = self.experiment.target.size();
        if let Some(path) = &workload.trace {
            let trace = Trace::read(path)
                .and_then(|trace| trace.within(workload.extent(size)))
                .map_err(|what| Error::Results { path: path.clone(), what })?;
            let trims = trace.trims();
            if trims > 0 {
                self.notes.push(format!(
                    "{trims} of the {} requests in {} are trims, which fio does not replay: they were left \
                     out.",
                    trace.events.len(),
                    path.display()
                ));
            }
            let here = created_files::take(&self.devices, REPLAYED)?;
            let mut arguments = fio::replay(workload, endpoint, &here, !trace.writes(), size);
            arguments.push(format!("--randseed={seed}"));
            let seconds = (!workload.at_once).then(|| trace.seconds()).filter(|seconds| *seconds > 0.0);
            let here = (here, endpoint.file());
            let (path, workload) = (path.clone(), workload.name.clone());
            return Ok(Job::Replay { arguments, seconds, trace, path, workload, here });
        }
        let by = endpoint.by().to_vec();
        if !by.is_empty() && self.guests.is_empty() {
            self.notes.push(format!(
                "Steps within a run are not reported for {}: fio writes them to files on the machine where \
                 '{}' runs it.",
                endpoint.file(),
                by.join(" ")
            ));
        }
        let is_in_steps = workload.work() == Work::Transfers && by.is_empty() && !workload.once;
        let seconds = is_in_steps.then_some(workload.seconds);
        let limit = fio::limit(workload.seconds + workload.ramp_seconds, 0);
        Ok(Job::Fio { arguments: fio::arguments(workload, endpoint, size, seed), seconds, by, limit })
    }

    /// Waits until all that was written is on the devices, so that no run pays for the one before.
    pub fn settle(&self, lodging: &Placement) -> Result<()> {
        match self.homes.get(lodging) {
            Some(home) => {
                let sync = ["sync".to_owned(), home.pool.clone()];
                self.programs(&home.server)?.zpool(&sync).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// Empties the caches that can be emptied.
    fn make_cold(&mut self, lodging: &Placement, endpoint: &Endpoint) -> Result<()> {
        if let (Some(home), Some(_)) = (self.homes.get(lodging), self.experiment.target.pools()) {
            let programs = self.programs(&home.server)?;
            programs.zpool(&["export".to_owned(), home.pool.clone()])?;
            let mut arguments = vec!["import".to_owned()];
            let disks = self.disks.get(&home.pool).into_iter().flatten();
            let disks = disks.flat_map(|disk| in_use::devices_of(disk));
            for place in self.device_directories().into_iter().chain(disks) {
                arguments.extend(["-d".to_owned(), place.display().to_string()]);
            }
            arguments.push(home.pool.clone());
            programs.zpool(&arguments)?;
        }
        if !self.homes.contains_key(lodging) {
            match endpoint {
                Endpoint::Nbd(at) | Endpoint::Iscsi(at) => self.notes.push(format!(
                    "The server of {at} has caches that cannot be emptied from here: data called cold may \
                     have been cached there."
                )),
                Endpoint::Elsewhere { by, path, .. } => {
                    if let Err(why) = remote::drop_caches(by) {
                        self.notes.push(format!(
                            "The page cache where '{}' runs fio could not be dropped ({why}): data of {} \
                             called cold may have been cached there.",
                            by.join(" "),
                            path.display()
                        ));
                    }
                }
                Endpoint::Path(_) | Endpoint::Directory(_) => {
                    self.notes.push(
                        "For devices and files only the system's page cache is emptied; data called cold may \
                         be in caches of the devices themselves."
                            .into(),
                    );
                    // Every user may for a file that they can open; what is not on the device yet stays.
                    if let Ok(file) = File::open(endpoint.file()) {
                        let _ = file.sync_all();
                        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                    }
                }
            }
        }
        if let Err(error) = fs::write("/proc/sys/vm/drop_caches", "3") {
            self.notes.push(format!(
                "The system's page cache could not be dropped as a whole ({error}), which only root may: \
                 data that go through it may have been cached where they are called cold."
            ));
        }
        Ok(())
    }

    /// Where the pools' devices are.
    fn device_directories(&self) -> Vec<PathBuf> {
        let models = fs::read_dir(modelled(&self.devices)).into_iter().flatten().flatten();
        std::iter::once(self.devices.clone()).chain(models.map(|entry| entry.path())).collect()
    }

    /// The counters of its server.
    pub fn counters(&self, lodging: &Placement) -> Result<Option<Counters>> {
        match self.homes.get(lodging) {
            Some(home) => self.programs(&home.server)?.counters(&home.pool),
            None => Ok(None),
        }
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

    /// Bytes that it takes on the devices, and bytes in it.
    pub fn space(&self, lodging: &Placement) -> Result<Option<(u64, u64)>> {
        let Some(home) = self.homes.get(lodging) else { return Ok(None) };
        let words = ["get", "-Hp", "-o", "value", "used,logicalused", &home.dataset];
        let text = self.programs(&home.server)?.zfs(&words.map(str::to_owned))?;
        let mut values = text.lines().map(|line| line.trim().parse().ok());
        let Some((used, logical)) = values.next().flatten().zip(values.next().flatten()) else {
            return Ok(None);
        };
        Ok(Some((self.on_devices(lodging, home, used)?, logical)))
    }

    /// What `used` bytes of a dataset take on the devices. Of a pool that was not made here it is what the
    /// pool counts.
    ///
    /// It is that of the dataset alone: pools have metadata of their own, of which a variant that shares its
    /// pool would have a smaller part than one that has a pool to itself.
    fn on_devices(&self, lodging: &Placement, home: &Home, used: u64) -> Result<u64> {
        let Some(pools) = self.experiment.target.pools() else { return Ok(used) };
        let ashift = self.ashift(home)?;
        let layout: Layout = lodging.settings.get("layout").unwrap_or(&pools.layout).parse()?;
        Ok((used as f64 * space::raw_for_used(layout.vdevs(), ashift)) as u64)
    }

    /// Bytes of a sector of its pool, where that was made for it.
    pub fn sector(&self, lodging: &Placement) -> Result<Option<u64>> {
        match (self.homes.get(lodging), self.experiment.target.pools()) {
            (Some(home), Some(_)) => Ok(Some(1 << self.ashift(home)?)),
            _ => Ok(None),
        }
    }

    /// Of the largest sectors of a pool, as a power of two.
    fn ashift(&self, home: &Home) -> Result<u32> {
        let words = ["get", "-Hp", "-o", "value", "ashift", &home.pool, "all-vdevs"];
        let told = self.programs(&home.server)?.zpool(&words.map(str::to_owned))?;
        let ashifts = told.lines().filter_map(|line| line.trim().parse::<u32>().ok());
        let ashift = ashifts.filter(|ashift| (9..=16).contains(ashift)).max();
        ashift.ok_or_else(|| Error::Output {
            program: "zpool",
            what: format!("it does not report the sector size of {}", home.pool),
        })
    }

    /// Removes a variant's volumes or filesystems, and their pools where no other is in them.
    pub fn release(&mut self, variant: &str) -> Result<()> {
        let its = self.homes.keys().filter(|lodging| lodging.variant == variant);
        let its: Vec<Placement> = its.cloned().collect();
        its.iter().try_for_each(|lodging| self.release_home(lodging))
    }

    fn release_home(&mut self, lodging: &Placement) -> Result<()> {
        let Some(home) = self.homes.remove(lodging) else { return Ok(()) };
        self.guests.remove(lodging);
        let programs = self.programs(&home.server)?;
        destroy(programs, &home.dataset)?;
        let is_used = self.homes.values().any(|other| other.pool == home.pool);
        if is_used || self.experiment.target.pools().is_none() {
            return Ok(());
        }
        programs.zpool(&["destroy".to_owned(), "-f".to_owned(), home.pool.clone()])?;
        self.pools.retain(|_, pool| *pool != home.pool);
        self.disks.remove(&home.pool);
        created_files::remove_some(&self.devices, &format!("{}-", home.pool))?;
        if self.homes.values().all(|other| other.server != home.server) {
            self.servers.remove(&home.server);
        }
        Ok(())
    }

    /// Removes from a host what this experiment left there when it was killed. Gives back what others left,
    /// or measure just now: their volumes, each with the directory of its experiment.
    pub fn remove_left(&mut self) -> Result<Vec<(String, PathBuf)>> {
        let Target::Host { dataset, .. } = &self.experiment.target else { return Ok(Vec::new()) };
        let words =
            ["get", "-Hp", "-d", "1", "-t", "volume", "-s", "local", "-o", "name,value", OWNER, dataset];
        let server = Settings::new();
        self.start(&server)?;
        let programs = self.programs(&server)?;
        let listed = programs.zfs(&words.map(str::to_owned))?;
        let volumes = listed.lines().filter_map(|line| line.split_once('\t'));
        let is_of_a_lab = |name: &str| name.rsplit('/').next().is_some_and(|name| name.starts_with("lab-"));
        let volumes = volumes.filter(|(name, _)| is_of_a_lab(name));
        let volumes = volumes.map(|(name, owner)| (name.to_owned(), PathBuf::from(owner)));
        let (own, others): (Vec<_>, Vec<_>) = volumes.partition(|(_, owner)| *owner == self.directory);
        own.iter().try_for_each(|(name, _)| destroy(programs, name))?;
        Ok(others)
    }

    /// Removes all that was made.
    pub fn remove(&mut self) -> Result<()> {
        let mut first = Ok(());
        // Before what their disks are.
        self.guests.clear();
        if let Target::Host { .. } = self.experiment.target {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs of pools of which each has metadata of its own size.
    struct Told;

    impl Programs for Told {
        fn zpool(&self, arguments: &[String]) -> Result<String> {
            let of = |pool: &str| if pool == "lab1" { "9000000\n" } else { "5000000\n" }.to_owned();
            match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                [.., "ashift", _, "all-vdevs"] => Ok("-\n0\n12\n12\n".to_owned()),
                [.., "allocated", pool] => Ok(of(pool)),
                _ => Ok(String::new()),
            }
        }

        fn zfs(&self, arguments: &[String]) -> Result<String> {
            let is_of_dataset = arguments.iter().any(|word| word == "used,logicalused");
            Ok(if is_of_dataset { "3000000\n4000000\n" } else { "4500000\n" }.to_owned())
        }

        fn volume(&self, name: &str) -> Result<Endpoint> {
            Ok(Endpoint::Path(name.into()))
        }

        fn counters(&self, _: &str) -> Result<Option<Counters>> {
            Ok(None)
        }
    }

    #[test]
    fn a_variant_takes_the_same_space_whether_or_not_others_are_in_its_pool() {
        let text = "name = \"space\"\n[target]\nkind = \"volume\"\nsize = \"4M\"\nlayout = \"raidz1 3\"\n\
                    [[factor]]\nname = \"pool.autotrim\"\nvalues = [\"off\", \"on\"]\n\
                    [[workload]]\nname = \"w\"\nrw = \"write\"\n";
        let experiment = Experiment::parse(text).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::new(&experiment, directory.path(), Some(Box::new(|_| Ok(Box::new(Told)))));
        bench.start(&Settings::new()).unwrap();
        let plan = crate::plan::Plan::new(&experiment, None, 1);
        let variants = plan.variants();
        let of = |index: usize| Placement::of(&variants[index], &experiment.workloads[0]);
        let lodgings: Vec<Placement> = (0..2).map(of).collect();
        for (lodging, pool) in lodgings.iter().zip(["lab1", "lab2"]) {
            let endpoint = Endpoint::Path("volume".into());
            let (server, dataset) = (Settings::new(), format!("{pool}/lab-1"));
            bench.homes.insert(lodging.clone(), Home { server, pool: pool.into(), dataset, endpoint });
        }
        // Two data sectors and one of parity; of 512 bytes 341 count as used.
        let expected = Some(((3_000_000.0 * 512.0 / 341.0) as u64, 4_000_000));
        let spaces: Vec<_> = lodgings.iter().map(|lodging| bench.space(lodging).unwrap()).collect();
        bench.homes.clear();
        assert_eq!(spaces, [expected, expected]);
    }
}
