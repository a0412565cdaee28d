//! An experiment, as it stands in a TOML file.
//!
//! ```toml
//! name = "volblocksize"
//! question = "Which volblocksize is best for random writes of 4K?"
//! rounds = 5                    # at least; more while intervals are wider than `precision`
//! max_rounds = 10
//! precision = 0.05              # half the width of an interval that is narrow enough, as a share
//!
//! [goal]
//! metric = "iops"               # iops, throughput, latency, latency_p99, space, cpu
//! workload = "4K random write"  # the first one, where left out
//! at_least = 20000              # what counts as success; may be left out
//!
//! [target]
//! kind = "volume"               # volume, path, nbd, host: see below
//! size = "512M"
//!
//! [settings]                    # held fixed
//! compression = "lz4"
//!
//! [[factor]]
//! name = "volblocksize"
//! values = ["16K", "8K", "64K"] # the first is the baseline's
//!
//! [[workload]]
//! name = "4K random write"
//! rw = "randwrite"
//! bs = "4K"
//! seconds = 10
//! ```
//!
//! # Targets
//! | kind | what it is | fields |
//! |---|---|---|
//! | `volume` | a volume for each variant, in pools on files in the experiment's directory, served over NBD by a process of their own; with `devices` the files play a medium, with `link` clients are behind one | `size`, `layout`, `device_size`, `devices`, `link` |
//! | `path` | a file, made if it is missing, or a block device. **What is in it is overwritten** | `path`, `size` |
//! | `nbd` | a volume that some NBD server serves. **What is in it is overwritten** | `uri`, `size` |
//! | `host` | volumes below a dataset of a pool that this host's OpenZFS has imported | `dataset`, `size` |
//!
//! # Settings
//! A setting is known by its name. [`Place::of`] says what has it: the job (`iodepth`, `bs` …: fio's options), the pool (`layout`, `log`, `ashift`, `devices`, `feature@…`), else
//! it is a property of the volume. So a factor is data: a property that the engine learns is at once one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::size::Size;

/// Most runs that a plan may have.
const MOST_RUNS: usize = 20_000;
/// Options of fio that a workload does not take, because the lab decides them.
const OURS: [&str; 9] =
    ["filename", "uri", "ioengine", "output", "output-format", "name", "runtime", "time_based", "size"];

/// What is asked, of what, under which load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// A short name, for directories and titles.
    pub name: String,
    /// The question in a sentence.
    #[serde(default)]
    pub question: String,
    /// Rounds at least.
    #[serde(default = "five")]
    pub rounds: usize,
    /// Rounds at most; as `rounds` where left out.
    #[serde(default)]
    pub max_rounds: Option<usize>,
    /// Half the width of a ratio's interval, as a share, that needs no more rounds.
    #[serde(default = "five_percent")]
    pub precision: f64,
    /// Whether all combinations of the factors' values are run instead of one change at a time.
    #[serde(default)]
    pub full: bool,
    /// What counts.
    #[serde(default)]
    pub goal: Goal,
    /// What is measured.
    pub target: Target,
    /// Settings that all variants have.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Settings that differ.
    #[serde(default, rename = "factor")]
    pub factors: Vec<Factor>,
    /// What is done to each variant.
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
}

fn five() -> usize {
    5
}

fn five_percent() -> f64 {
    0.05
}

/// What counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// By what variants are judged.
    #[serde(default)]
    pub metric: Metric,
    /// With which workload; the first where left out.
    #[serde(default)]
    pub workload: Option<String>,
    /// A value that must be reached.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// A value that must not be exceeded.
    #[serde(default)]
    pub at_most: Option<f64>,
}

/// A figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Operations in a second.
    #[default]
    Iops,
    /// Bytes in a second.
    Throughput,
    /// Mean time of an operation, in nanoseconds.
    Latency,
    /// The time that one operation of a hundred exceeds, in nanoseconds.
    LatencyP99,
    /// CPU seconds of the server for a gigabyte.
    Cpu,
    /// Bytes written to devices for each byte that the client wrote.
    Amplification,
    /// Bytes that the variant takes for each byte in it.
    Space,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Iops,
        Self::Throughput,
        Self::Latency,
        Self::LatencyP99,
        Self::Cpu,
        Self::Amplification,
        Self::Space,
    ];

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::Throughput => "throughput",
            Self::Latency => "mean latency",
            Self::LatencyP99 => "99th percentile latency",
            Self::Cpu => "CPU",
            Self::Amplification => "write amplification",
            Self::Space => "space",
        }
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Iops | Self::Throughput)
    }
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// Volumes of pools that the lab makes.
    Volume {
        /// Size of a volume.
        size: Size,
        /// The pool's vdevs, where the setting `layout` says nothing: `mirror 2`, `raidz1 3` …, several with `+`.
        #[serde(default = "one_device")]
        layout: String,
        /// Size of each device's file; what the volume needs twice, where left out.
        #[serde(default)]
        device_size: Option<Size>,
        /// The medium that the devices play, where the setting `devices` says nothing: `hdd-7200` and others; real files where left out.
        #[serde(default)]
        devices: Option<String>,
        /// The link that clients are behind: `1gbe`, `10gbe`; none where left out.
        #[serde(default)]
        link: Option<String>,
    },
    /// A file or block device.
    Path {
        /// Where.
        path: PathBuf,
        /// How much of it is used.
        size: Size,
    },
    /// An NBD export.
    Nbd {
        /// Its URI.
        uri: String,
        /// How much of it is used.
        size: Size,
    },
    /// Volumes on a host that runs OpenZFS.
    Host {
        /// The dataset below which they are made, and removed afterwards.
        dataset: String,
        /// Size of a volume.
        size: Size,
    },
}

fn one_device() -> String {
    "1".to_owned()
}

impl Target {
    /// Bytes that workloads use.
    pub fn size(&self) -> Size {
        match self {
            Self::Volume { size, .. }
            | Self::Path { size, .. }
            | Self::Nbd { size, .. }
            | Self::Host { size, .. } => *size,
        }
    }

    /// Whether it has properties that variants can differ in.
    pub fn has_properties(&self) -> bool {
        matches!(self, Self::Volume { .. } | Self::Host { .. })
    }
}

/// A setting and the values to compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Its name.
    pub name: String,
    /// Its values; the first is the baseline's.
    pub values: Vec<String>,
}

/// What has a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The load: an option of fio.
    Job,
    /// The pool: it must be made anew.
    Pool,
    /// The volume: a property.
    Volume,
}

impl Place {
    /// Of the setting `name`.
    pub fn of(name: &str) -> Self {
        match name {
            "rw"
            | "bs"
            | "iodepth"
            | "numjobs"
            | "rwmixread"
            | "fsync"
            | "fdatasync"
            | "sync_job"
            | "direct"
            | "random_distribution"
            | "buffer_compress_percentage"
            | "dedupe_percentage" => Self::Job,
            "layout" | "log" | "ashift" | "devices" => Self::Pool,
            _ if name.starts_with("feature@") => Self::Pool,
            _ => Self::Volume,
        }
    }
}

/// A job of fio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// fio's `rw`: `randwrite`, `read` ….
    pub rw: String,
    /// Size of an operation.
    pub bs: Size,
    /// Operations under way at once.
    #[serde(default = "one")]
    pub iodepth: u32,
    /// Seconds that are measured.
    #[serde(default = "ten")]
    pub seconds: f64,
    /// Seconds before that.
    #[serde(default)]
    pub ramp_seconds: f64,
    /// What is read was not read before: the pool is exported and imported first, and the system's page cache dropped where that is allowed.
    #[serde(default)]
    pub cold: bool,
    /// Share of the data that compresses away, in per cent.
    #[serde(default)]
    pub compressible: u32,
    /// More options of fio.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

fn ten() -> f64 {
    10.0
}

impl Experiment {
    /// Reads and checks one.
    pub fn parse(text: &str) -> Result<Self> {
        let experiment: Self = toml::from_str(text).map_err(|error| Error::Experiment(error.to_string()))?;
        experiment.check()?;
        Ok(experiment)
    }

    /// As a file that [`Experiment::parse`] reads.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::Experiment(error.to_string()))
    }

    /// The workload that the goal is about.
    pub fn goal_workload(&self) -> &str {
        let first = self.workloads.first().map_or("", |workload| &workload.name);
        self.goal.workload.as_deref().unwrap_or(first)
    }

    /// Asks of other factors, each `name=value,value…`, and where given of pools of another layout. What was held fixed and is a factor now is held fixed no more.
    pub fn vary(&mut self, factors: &[String], layout: Option<&str>) -> Result<()> {
        if !factors.is_empty() {
            self.factors.clear();
        }
        for text in factors {
            let (name, values) = text.split_once('=').ok_or_else(|| {
                Error::Experiment(format!("factor '{text}': write for example sync=standard,always"))
            })?;
            let values = values.split(',').map(|value| value.trim().to_owned()).collect();
            self.settings.remove(name);
            self.factors.push(Factor { name: name.to_owned(), values });
        }
        if let (Some(wanted), Target::Volume { layout, .. }) = (layout, &mut self.target) {
            wanted.parse::<crate::layout::Layout>()?;
            wanted.clone_into(layout);
            self.settings.remove("layout");
        }
        self.check()
    }

    /// Makes it short: fewer rounds, less time and data. Its findings are less certain, and say so by their intervals.
    pub fn quick(&mut self, seconds: f64) {
        self.rounds = self.rounds.min(3);
        self.max_rounds = None;
        for workload in &mut self.workloads {
            workload.seconds = workload.seconds.min(seconds);
            workload.ramp_seconds = 0.0;
        }
    }

    /// Says what is wrong with it, where something is.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Experiment(what));
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= 64
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        if !is_name(&self.name) {
            return wrong(format!(
                "'{}' is not a name: letters, digits, '-', '_' and '.', at most 64",
                self.name
            ));
        }
        if self.rounds < 2 || self.max_rounds.is_some_and(|most| most < self.rounds) {
            return wrong("rounds: at least 2, and max_rounds not fewer than rounds".into());
        }
        if !(0.001..1.0).contains(&self.precision) {
            return wrong(format!("precision {} is not between 0.001 and 1", self.precision));
        }
        if self.target.size().0 < 1 << 20 {
            return wrong(format!("target: size {} is less than 1M", self.target.size()));
        }
        if self.workloads.is_empty() {
            return wrong("there is no [[workload]]".into());
        }
        let mut names = BTreeSet::new();
        for workload in &self.workloads {
            let name = &workload.name;
            if name.is_empty() || !names.insert(name) {
                return wrong(format!("workload '{name}': names must differ, and say something"));
            }
            if !(0.1..=86_400.0).contains(&workload.seconds)
                || !(0.0..=86_400.0).contains(&workload.ramp_seconds)
            {
                return wrong(format!("workload '{name}': seconds from 0.1 to 86400"));
            }
            if workload.bs.0 == 0 || workload.bs > self.target.size() {
                return wrong(format!("workload '{name}': bs {} does not fit the target", workload.bs));
            }
            if workload.compressible > 99 {
                return wrong(format!("workload '{name}': compressible is a percentage below 100"));
            }
            if let Some(option) = workload.options.keys().find(|option| OURS.contains(&option.as_str())) {
                return wrong(format!("workload '{name}': the lab decides fio's option '{option}'"));
            }
        }
        if !names.iter().any(|name| *name == self.goal_workload()) {
            return wrong(format!("goal: there is no workload '{}'", self.goal_workload()));
        }
        let mut factors = BTreeSet::new();
        for factor in &self.factors {
            let name = &factor.name;
            if !factors.insert(name) {
                return wrong(format!("factor '{name}' is there twice"));
            }
            let values: BTreeSet<&String> = factor.values.iter().collect();
            if values.len() != factor.values.len() || values.len() < 2 {
                return wrong(format!("factor '{name}': it needs two values or more, each once"));
            }
            if self.settings.contains_key(name) {
                return wrong(format!(
                    "'{name}' is a factor and also among the settings that are held fixed"
                ));
            }
        }
        let all = self.factors.iter().map(|factor| &factor.name).chain(self.settings.keys());
        for name in all {
            match (Place::of(name), &self.target) {
                (Place::Job, _) | (_, Target::Volume { .. }) | (Place::Volume, Target::Host { .. }) => {}
                _ => return wrong(format!("this target has no setting '{name}'")),
            }
        }
        let runs = self.variant_count().saturating_mul(self.workloads.len()).saturating_mul(self.rounds);
        if runs > MOST_RUNS {
            return wrong(format!(
                "it would take {runs} runs, more than {MOST_RUNS}: leave out values or workloads"
            ));
        }
        Ok(())
    }

    /// What is modelled in it, in words; nothing where all of it is real.
    pub fn modelled(&self) -> Option<String> {
        let Target::Volume { devices, link, .. } = &self.target else { return None };
        let values = |name: &str| {
            let of_factors =
                self.factors.iter().filter(|factor| factor.name == name).flat_map(|factor| &factor.values);
            of_factors.chain(self.settings.get(name)).cloned().collect::<Vec<_>>()
        };
        let mut models: Vec<String> = values("devices");
        models.extend(devices.clone().filter(|_| models.is_empty()));
        models.extend(values("log").into_iter().filter(|log| log != "none" && log != "file"));
        models.extend(link.clone());
        models.dedup();
        (!models.is_empty()).then(|| models.join(", "))
    }

    fn variant_count(&self) -> usize {
        match self.full {
            true => self.factors.iter().fold(1, |all, factor| all.saturating_mul(factor.values.len())),
            false => 1 + self.factors.iter().map(|factor| factor.values.len() - 1).sum::<usize>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        name = "small"
        [target]
        kind = "volume"
        size = "64M"
        [settings]
        compression = "lz4"
        [[factor]]
        name = "volblocksize"
        values = ["16K", "8K"]
        [[workload]]
        name = "w"
        rw = "randwrite"
        bs = "4K"
    "#;

    #[test]
    fn an_experiment_survives_writing_and_reading() {
        let experiment = Experiment::parse(SMALL).unwrap();
        assert_eq!(Experiment::parse(&experiment.to_toml().unwrap()).unwrap(), experiment);
        assert_eq!(experiment.goal_workload(), "w");
    }

    #[test]
    fn factors_and_layout_can_be_others() {
        let mut experiment = Experiment::parse(SMALL).unwrap();
        let factors = ["compression=off, lz4".to_owned(), "layout=2,raidz1 3".to_owned()];
        experiment.vary(&factors, Some("mirror 2")).unwrap();
        assert_eq!(experiment.factors.len(), 2);
        assert_eq!(experiment.factors[0].values, ["off", "lz4"]);
        assert!(experiment.settings.is_empty());
        assert!(matches!(&experiment.target, Target::Volume { layout, .. } if layout == "mirror 2"));
        assert!(experiment.vary(&["sync".to_owned()], None).is_err());
        assert!(experiment.vary(&["sync=always".to_owned()], None).is_err());
        assert!(experiment.vary(&[], Some("mirrored")).is_err());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, named) in [
            ("name = \"small\"", "name = \"a/b\"", "a/b"),
            ("\"64M\"", "\"64\"", "size"),
            ("\"64M\"", "\"many\"", "many"),
            ("[\"16K\", \"8K\"]", "[\"16K\"]", "volblocksize"),
            ("compression", "volblocksize", "held fixed"),
            ("kind = \"volume\"", "kind = \"path\"\npath = \"x\"", "this target has no setting"),
            ("bs = \"4K\"", "bs = \"1G\"", "does not fit"),
            ("bs = \"4K\"", "bs = \"4K\"\noptions = { filename = \"/etc/passwd\" }", "filename"),
            ("rw =", "wr =", "wr"),
        ] {
            let text = SMALL.replace(from, to);
            assert_ne!(text, SMALL, "{from}");
            let error = Experiment::parse(&text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
