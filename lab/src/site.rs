//! Where an experiment takes place.
//!
//! An experiment names its target in `[target]`, and a target is of a *kind*: volumes of pools that the lab
//! makes, a file that the user named, a host that runs OpenZFS. A [`Site`] is a target as the rest of the lab
//! sees it: it answers what is measured there, what can be varied and reported, what the lab may write, and
//! what is left to be removed. The lab asks these questions and never looks at the kind.
//!
//! A site lies below experiments and benches: of an experiment it knows the [`Design`]; what is made by its
//! answers, [`crate::target`] makes.
//!
//! # Kinds
//! | kind | what it is | fields |
//! |---|---|---|
//! | `volume` | a volume for each variant, in pools on files in the experiment's directory, served over NBD by a process of their own, which can do the work itself as well (`through`); with `devices` the files play a medium, with `link` clients are behind one | `size`, `layout`, `device_size`, `devices`, `link`; or `disks`, of which the pools are made instead, and `overwrite`: each pool of the first of them, so that variants are compared on the same disks. Variants that need pools of their own take turns on them, in each round in one stretch, and are filled anew each time |
//! | `filesystem` | a filesystem for each variant, in such pools, mounted in the experiment's directory by that process | as of volumes |
//! | `guest` | volumes or images as disks of guests ([`crate::guest`]) | as of volumes |
//! | `path` | a file, made if it is missing, a file in a directory, or a block device. A target that no workload writes is only read. What workloads write is refused where it is in use, and where it holds anything unless `overwrite` says that this may be overwritten ([`crate::target::in_use`]) | `path`, `size`, `overwrite` |
//! | `nbd` | a volume that some NBD server serves. What workloads write is refused unless `overwrite` says that what is in it may be overwritten | `uri`, `size`, `overwrite` |
//! | `iscsi` | a disk behind iSCSI, by a fio that was built with libiscsi, and libiscsi's `iscsi-readcapacity16`, which says whether it has `size`. What workloads write is refused unless `overwrite` says that what is in it may be overwritten | `uri`, `size`, `overwrite` |
//! | `layers` | the layers of a stack, each measured by itself: the device, what lies on it, what exports that, what a guest or an encryption makes of it. Exports are as `nbd` and `iscsi`, files and devices as `path`; with `by` fio runs where that command runs a shell ([`crate::remote`]), as in a guest, and what workloads write is refused as of exports | `[[target.layer]]` with `name`, `at` (a path or URI) and `by`, `size`, `overwrite` |
//! | `host` | volumes below a dataset of a pool that this host's OpenZFS has imported | `dataset`, `size` |
//! | `existing` | a volume that holds data, of a pool that the running daemon has open. Variants are set on it one after the other, another `volblocksize` by rewriting it, and it is set back afterwards. What workloads write is refused unless `overwrite` says that what is in it may be overwritten | `volume`, `size`, `overwrite` |
//!
//! # Questions, and who asks
//! | question | answer | asked by |
//! |---|---|---|
//! | what holds for the kind, whatever its fields say? | [`Facts`], a row of a table | all |
//! | how much is used, and may its contents be overwritten? | [`Site::used`] | [`crate::fio`], [`crate::target`] |
//! | what makes the measured datasets, and where? | [`Site::pools`], [`Site::below`], [`Site::dataset`], [`Site::server`] | [`crate::target`] |
//! | what did the user name that is measured itself? | [`Site::named`], [`Site::measured`] | [`crate::preflight`], [`crate::target`] |
//! | what reaches it? | [`Site::accesses`] | [`crate::preflight`], [`crate::experiment`] |
//! | what of an experiment can it not do? | [`Site::faults`], [`Site::faults_here`], [`Site::faults_of_server`], [`Site::fault_of_settings`] | [`crate::preflight`], [`crate::plan`], [`crate::target`] |
//! | which runs follow each other in a round? | [`Site::turn`] | [`crate::plan`] |
//! | what was measured? | [`Site::described`], [`Site::environment`] | [`crate::report`] |
//!
//! Answers that follow from others are methods of `dyn Site` itself: no kind repeats them.
//!
//! # A further kind
//! It is one file, its `mod` and one line of the list. The file below `site/` has:
//!
//! 1. a struct with the fields of its `[target]`, which refuses unknown ones (`deny_unknown_fields`);
//! 2. `KIND`: its name, its tables of the reference ([`crate::experiment::format`]), and the words by which
//!    `cenote lab new` knows it ([`Kind`]);
//! 3. its [`Facts`], with [`Facts::POOLED`] or [`Facts::NAMED`] for all that is not particular to it;
//! 4. `impl Site`: [`Site::facts`], [`Site::used`] and [`Site::described`], then [`Site::pools`],
//!    [`Site::below`] or [`Site::named`], and what of the rest differs from the default.
//!
//! The line stands in the list of `site/kinds.rs`. The tests of that module ask each kind all questions, and
//! those of the reference ask the parser whether it has all fields. What remains is a row in the table above
//! and in `docs/src/lab.md`, and, where its volumes are served by a program of another sort, a [`Server`].
//!
//! | module | what it owns |
//! |---|---|
//! | `kinds` | the list of kinds |
//! | `facts` | what holds for a kind, whatever its fields say |
//! | `pools` | pools that the lab makes: what volumes, filesystems and guests have in common |
//! | `volume`, `filesystem`, `guest`, `path`, `nbd`, `iscsi`, `layers`, `host`, `existing` | a kind each |

pub(crate) mod existing;
pub(crate) mod facts;
pub(crate) mod filesystem;
pub(crate) mod guest;
pub(crate) mod host;
pub(crate) mod iscsi;
pub(crate) mod kinds;
pub(crate) mod layers;
pub(crate) mod nbd;
pub(crate) mod path;
pub(crate) mod pools;
pub(crate) mod volume;

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use crate::design::Design;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::fio::Endpoint;
use crate::layer::Layer;
use crate::metric::Metric;
use crate::programs::Programs;
use crate::reference::TableOf;
use crate::setting::{SettingOwner, Settings};
use crate::size::Size;
use crate::workload::Workload;

pub use facts::{Cold, Facts, Quick, Turns};
pub use kinds::{ExperimentTarget, KINDS};
pub use pools::Pools;

/// A target as the rest of the lab sees it.
pub trait Site: Debug {
    /// What holds for its kind.
    fn facts(&self) -> &'static Facts;

    /// How much of it is used.
    fn used(&self) -> Used;

    /// What was measured, in a sentence of the report.
    fn described(&self, design: Design<'_>) -> String;

    /// The pools that are made for it.
    fn pools(&self) -> Option<&Pools> {
        None
    }

    /// The same, to be changed.
    fn pools_mut(&mut self) -> Option<&mut Pools> {
        None
    }

    /// The dataset of the user's below which datasets are made, each removed afterwards. What its properties
    /// may be, only its own programs know.
    fn below(&self) -> Option<&str> {
        None
    }

    /// The dataset that is made for a variant with these settings.
    ///
    /// # Errors
    /// Settings that mean nothing together.
    fn dataset(&self, settings: &Settings) -> Result<Option<Dataset>> {
        let _ = settings;
        Ok(self.facts().dataset.map(|kind| Dataset { kind, size: self.used().size }))
    }

    /// The program that makes datasets and serves them.
    fn server(&self) -> Option<Server<'_>> {
        let link = self.pools()?.link.as_deref();
        Some(Server::Own { link, serves_guests: self.facts().has(SettingOwner::Guest) })
    }

    /// What the user named that is measured itself.
    fn named(&self) -> Vec<Named<'_>> {
        Vec::new()
    }

    /// That of what is named which a variant with these settings measures.
    fn measured(&self, settings: &Settings) -> Option<Named<'_>> {
        let _ = settings;
        self.named().into_iter().next()
    }

    /// The layers of a stack.
    fn layers(&self) -> &[Layer] {
        &[]
    }

    /// Makes its paths absolute, so that it means the same in any directory.
    ///
    /// # Errors
    /// The current directory is unknown.
    fn make_absolute(&mut self) -> Result<()> {
        self.pools_mut().into_iter().flat_map(|pools| &mut pools.disks).try_for_each(make_absolute)
    }

    /// How the variants of an experiment reach it.
    fn accesses<'a>(&'a self, design: Design<'a>) -> Vec<Access<'a>> {
        let _ = design;
        match self.named().iter().map(Named::access).collect::<Vec<_>>() {
            none if none.is_empty() => vec![Access::File],
            all => all,
        }
    }

    /// Whether workloads that only read find data that the lab did not write, which is not to be written.
    fn is_as_found(&self) -> bool {
        !self.named().is_empty()
    }

    /// Whether workloads can make files in it.
    fn holds_files(&self) -> bool {
        self.facts().dataset == Some(DatasetKind::Filesystem)
    }

    /// What is wrong with its fields, and what an experiment asks that it cannot do, on any machine.
    fn faults(&self, design: Design<'_>) -> Vec<String> {
        let _ = design;
        Vec::new()
    }

    /// What this machine does not have for it and so many variants, beside its programs
    /// ([`Facts::programs`]).
    fn faults_here(&self, design: Design<'_>, variants: usize) -> Vec<String> {
        let _ = (design, variants);
        Vec::new()
    }

    /// What a server that runs anyway refuses, which is asked before anything is changed.
    fn faults_of_server(&self, design: Design<'_>, programs: &dyn Programs) -> Vec<String> {
        let _ = (design, programs);
        Vec::new()
    }

    /// The settings whose runs follow each other in a round, because to change them takes long; nothing where
    /// runs follow in any order.
    fn turn(&self, settings: &Settings, workload: &Workload) -> Option<Settings> {
        let has_disks = self.pools().is_some_and(|pools| !pools.disks.is_empty());
        has_disks.then(|| pool_of(settings, workload))
    }

    /// Why these settings mean nothing together, where they do not: no variant has them.
    fn fault_of_settings(&self, settings: &Settings) -> Option<String> {
        let _ = settings;
        None
    }

    /// What it is on, with the media that lie below, for an experiment in `directory`.
    ///
    /// # Errors
    /// A machine that has a part of it does not answer.
    fn environment(&self, directory: &Path) -> Result<Environment> {
        let named = self.named();
        let paths: Vec<PathBuf> = match self.pools() {
            Some(pools) if pools.disks.is_empty() => vec![absolute(directory)?],
            Some(pools) => pools.disks.clone(),
            None => named.iter().filter_map(Named::path).map(Path::to_owned).collect(),
        };
        Ok(paths.iter().fold(Environment::of_this_machine(), |it, path| it.with(path)))
    }
}

/// What follows from the answers of a site.
impl dyn Site {
    /// Bytes that workloads use.
    pub fn size(&self) -> Size {
        self.used().size
    }

    /// Whether the experiment says that what a file or device holds may be overwritten.
    pub fn may_overwrite(&self) -> bool {
        self.used().overwrite
    }

    /// The user's disks that pools are made of.
    pub fn disks(&self) -> &[PathBuf] {
        self.pools().map_or(&[], |pools| &pools.disks)
    }

    /// Whether variants can differ in a setting of `place`.
    pub fn has(&self, place: SettingOwner) -> bool {
        self.facts().has(place)
    }

    /// Why it has no figure of a metric; nothing where it has.
    pub(crate) fn has_no(&self, metric: Metric) -> Option<&'static str> {
        let unreported = self.facts().unreported.iter();
        unreported.filter(|(metrics, _)| metrics.contains(&metric)).map(|(_, why)| *why).next()
    }

    /// What the dataset of a variant is; that of the kind for settings that mean nothing.
    pub(crate) fn dataset_kind(&self, settings: &Settings) -> Option<DatasetKind> {
        let dataset = self.dataset(settings).ok().flatten();
        dataset.map(|it| it.kind).or(self.facts().dataset)
    }

    /// The named paths of this machine.
    pub fn paths(&self) -> Vec<&Path> {
        self.named()
            .into_iter()
            .filter_map(|it| if let Named::Path(path) = it { Some(path) } else { None })
            .collect()
    }

    /// The names of what is named and whose contents cannot be examined from here: to write it needs consent.
    pub(crate) fn unexamined(&self) -> Vec<String> {
        let name = |named| match named {
            Named::Path(_) => None,
            Named::Uri(name) | Named::Volume(name) => Some(name.to_owned()),
            Named::Elsewhere(layer) => Some(layer.title()),
        };
        self.named().into_iter().filter_map(name).collect()
    }

    /// The URIs of named exports.
    pub fn uris(&self) -> Vec<&str> {
        self.named()
            .into_iter()
            .filter_map(|it| if let Named::Uri(uri) = it { Some(uri) } else { None })
            .collect()
    }

    /// The remote layers, with the commands that run shells there.
    pub fn elsewhere(&self) -> impl Iterator<Item = &Layer> {
        self.named()
            .into_iter()
            .filter_map(|it| if let Named::Elsewhere(layer) = it { Some(layer) } else { None })
    }
}

/// How much of a target is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Bytes that workloads use.
    pub size: Size,
    /// Whether what it holds may be overwritten.
    pub overwrite: bool,
}

/// A dataset that is made for a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dataset {
    /// What it is.
    pub kind: DatasetKind,
    /// Bytes of a volume.
    pub size: Size,
}

/// What a dataset is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatasetKind {
    /// A volume.
    Volume,
    /// A mounted filesystem.
    Filesystem,
}

impl DatasetKind {
    /// The property that says how large its blocks are, and the default.
    pub(crate) fn block(self) -> (&'static str, &'static str) {
        match self {
            Self::Volume => ("volblocksize", "16K"),
            Self::Filesystem => ("recordsize", "128K"),
        }
    }

    /// It in a word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Filesystem => "filesystem",
        }
    }
}

/// The program that makes datasets and serves them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server<'a> {
    /// A daemon of the lab's own for each set of its settings.
    Own {
        /// The link that its clients are behind.
        link: Option<&'a str>,
        /// Whether guests use its volumes as their disks.
        serves_guests: bool,
    },
    /// The OpenZFS of this host's kernel.
    Kernel,
    /// The daemon that has the user's pools open.
    Running,
}

/// What the user named that is measured itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// A file, directory or device of this machine.
    Path(&'a Path),
    /// An NBD export, or a disk behind iSCSI.
    Uri(&'a str),
    /// A file or device where a command runs a shell ([`crate::remote`]).
    Elsewhere(&'a Layer),
    /// A volume of a pool that the running daemon has open.
    Volume(&'a str),
}

impl<'a> Named<'a> {
    /// A layer, as what is measured.
    fn of(layer: &'a Layer) -> Self {
        match (layer.path(), layer.uri()) {
            (Some(path), _) => Self::Path(path),
            (None, Some(uri)) => Self::Uri(uri),
            (None, None) => Self::Elsewhere(layer),
        }
    }

    fn path(&self) -> Option<&'a Path> {
        if let Self::Path(path) = self { Some(path) } else { None }
    }

    fn access(&self) -> Access<'a> {
        match self {
            Self::Path(_) | Self::Elsewhere(_) => Access::File,
            Self::Uri(uri) if Endpoint::is_iscsi(uri) => Access::Iscsi(uri),
            Self::Uri(uri) => Access::Nbd(uri),
            Self::Volume(_) => Access::Nbd(ANY_URI),
        }
    }
}

/// A URI as those are by which fio reaches a volume.
const ANY_URI: &str = "nbd+unix:///lab?socket=/nbd.sock";

/// How a workload reaches its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// By an export with this URI.
    Nbd(&'a str),
    /// By a disk with this URI.
    Iscsi(&'a str),
    /// As a file or device.
    File,
    /// By the process that has the pool open.
    Process,
}

/// A kind of target.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Its tables of the reference.
    pub tables: &'static [TableOf],
    /// What names one on a command line; nothing where only a file can.
    pub words: Option<Words>,
}

/// What names a target on a command line.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// It in words: `a path that begins with / or ./`.
    pub about: &'static str,
    /// The fields of its table that a text says, beside `size`; nothing where the text names no target of
    /// this kind.
    pub fields: fn(&str) -> Option<Fields<'_>>,
}

/// Fields of a target's table, with their values.
pub type Fields<'a> = Vec<(&'static str, &'a str)>;

/// The settings that decide which pool a variant is in with a workload: what only a pool has, or who
/// serves it. Where pools are made of disks, those that differ in it take turns.
fn pool_of(settings: &Settings, workload: &Workload) -> Settings {
    let mut own = SettingOwner::Server.pick(settings);
    own.extend(SettingOwner::of_a_pool(settings));
    if workload.missing > 0 {
        own.insert("missing".into(), workload.missing.to_string());
    }
    own
}

/// For fields that are left out where they are false.
fn is_not(it: &bool) -> bool {
    !*it
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::file(path))
}

fn make_absolute(path: &mut PathBuf) -> Result<()> {
    *path = absolute(path)?;
    Ok(())
}
