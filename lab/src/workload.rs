//! The load for each variant.

mod options;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(super) use options::decided;
pub(crate) use options::faults as faults_of_options;

use super::{FIO, Metric, Place, Settings, Target};
use crate::copy::Sort;
use crate::error::{Error, Result};
use crate::load;
use crate::size::Size;
use crate::trace::Trace;

/// Files that a workload makes at most.
const MOST_FILES: u32 = 1_000_000;

/// A job of fio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// fio's `rw` (`randwrite`, `read` …), or another of [`Work`]'s.
    pub rw: String,
    /// Size of an operation; of each file, where files are made.
    #[serde(default = "four_kib")]
    pub bs: Size,
    /// How much of the target is used; all of it where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Operations under way at once.
    #[serde(default = "one")]
    pub iodepth: u32,
    /// Seconds that are measured. Files are made, found, removed and copied once each, and a trace is
    /// replayed to its end, however long that takes.
    #[serde(default = "ten")]
    pub seconds: f64,
    /// Seconds before that.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ramp_seconds: f64,
    /// Whether reading or writing ends when all was read or written once, and after `seconds` at the latest:
    /// what is cold at first stays cold.
    #[serde(default, skip_serializing_if = "is_default")]
    pub once: bool,
    /// The state of the caches before a run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache: CacheState,
    /// The number of devices of the first vdev that are offline. Variants whose layout does not survive that
    /// are left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub missing: u64,
    /// Share of the data that compresses away, in per cent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub compressible: u32,
    /// Share of the data that are duplicates, in per cent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub duplicates: u32,
    /// How many files are made, where files are made.
    #[serde(default = "thousand", skip_serializing_if = "is_thousand")]
    pub files: u32,
    /// The trace, where one is replayed: fio's log of version 3, as `lab record` writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<PathBuf>,
    /// The files that are copied, where some are: a directory, or a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<PathBuf>,
    /// Whether files that are copied lie in the stream as on a disk that has room left ([`crate::copy`]),
    /// instead of one behind the other.
    #[serde(default, skip_serializing_if = "is_default")]
    pub as_disk: bool,
    /// Which of these files are copied; all where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Sort>,
    /// Whether a trace is replayed as fast as that goes, instead of with its own pauses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at_once: bool,
    /// Whether the experiment's quick form has it.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub quick: bool,
    /// More options of fio, of those that cannot write anywhere but to the target.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// The contents of caches when a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// The state after the previous run; all that was written is on the devices.
    #[default]
    AsItIs,
    /// Nothing: the pool is exported and imported before, and the system's page cache dropped where that is
    /// allowed.
    Cold,
    /// Data that were read last: all that the workload works on is read once before.
    Warm,
    /// Data that were written last, and need not be on the devices yet: all that the workload works on is
    /// written once before.
    Dirty,
}

/// The kinds of `rw`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Reads and writes in one file or device: fio's own words.
    Transfers,
    /// `create`: files are made and written.
    Create,
    /// `open`: files are opened and read.
    Open,
    /// `stat`: attributes of files are read.
    Stat,
    /// `delete`: files are removed.
    Delete,
    /// `replay`: what a trace says.
    Replay,
    /// `copy`: the user's files, as one stream ([`crate::copy`]).
    Copy,
}

/// The operations of fio on files.
const OF_FIO: [&str; 11] = [
    "read",
    "write",
    "trim",
    "randread",
    "randwrite",
    "randtrim",
    "rw",
    "readwrite",
    "randrw",
    "trimwrite",
    "randtrimwrite",
];

/// Whether fio knows it, with what may stand behind it: `randread:8`.
fn is_of_fio(rw: &str) -> bool {
    let (kind, more) = rw.split_once(':').unwrap_or((rw, "1"));
    OF_FIO.contains(&kind) && more.trim_start_matches('-').parse::<Size>().is_ok()
}

/// Whether fio's `rw` of this kind writes or trims.
pub(crate) fn does_write(rw: &str) -> bool {
    ["write", "rw", "trim"].iter().any(|word| rw.contains(word))
}

fn four_kib() -> Size {
    Size(4096)
}

fn one() -> u32 {
    1
}

fn ten() -> f64 {
    10.0
}

fn yes() -> bool {
    true
}

fn is_yes(it: &bool) -> bool {
    *it
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_thousand(number: &u32) -> bool {
    *number == thousand()
}

fn thousand() -> u32 {
    1000
}

impl Workload {
    /// One with these options of fio, and nothing else that is asked for.
    pub(crate) fn of_options(name: &str, options: BTreeMap<String, String>) -> Self {
        Self {
            name: name.to_owned(),
            rw: "randrw".to_owned(),
            bs: four_kib(),
            size: None,
            iodepth: 1,
            seconds: 1.0,
            ramp_seconds: 0.0,
            once: false,
            cache: CacheState::default(),
            missing: 0,
            compressible: 0,
            duplicates: 0,
            files: thousand(),
            trace: None,
            source: None,
            as_disk: false,
            only: None,
            at_once: false,
            quick: true,
            options,
        }
    }

    /// The kind of its `rw`.
    pub fn work(&self) -> Work {
        match self.rw.as_str() {
            "create" => Work::Create,
            "open" => Work::Open,
            "stat" => Work::Stat,
            "delete" => Work::Delete,
            "replay" => Work::Replay,
            "copy" => Work::Copy,
            _ => Work::Transfers,
        }
    }

    /// Operations under way at once where a trace is replayed. With the trace's own pauses it is one: fio
    /// looks for what is done only when as many as may be are under way, so that the pauses would be in the
    /// latencies (fio 3.33: reads 100 ms apart took 0.9 ms with a depth of 1, and 300 ms with a depth of 4).
    pub(crate) fn replay_depth(&self) -> u32 {
        if self.at_once { self.iodepth } else { 1 }
    }

    /// How much of a target it works on.
    pub fn extent(&self, target: Size) -> Size {
        self.size.unwrap_or(target)
    }

    /// Where its last job begins, in a target of `size`, and how much further on each job begins than the one
    /// before: fio's `offset`, `offset_increment` and `numjobs`. Shares of a target are rounded to whole
    /// operations.
    fn beginnings(&self, target: Size) -> (u64, u64) {
        let least = load::smallest(self).0.max(1);
        let of = |name: &str| {
            let Some(text) = self.options.get(name) else { return 0 };
            let bytes = load::increment(text, target).unwrap_or_default().0;
            if text.ends_with('%') { bytes / least * least } else { bytes }
        };
        let jobs = self.options.get("numjobs").and_then(|jobs| jobs.parse().ok()).unwrap_or(1_u64).max(1);
        let increment = of("offset_increment");
        (of("offset").saturating_add(increment.saturating_mul(jobs - 1)), increment)
    }

    /// How much each of its jobs works on: its extent, or less where the last job would go past the end of a
    /// target of that size. fio would make a file longer then, and to do so remove the one that is there. It
    /// is of whole operations, since fio goes past the end with the last one of those that are one after the
    /// other.
    pub(crate) fn share(&self, target: Size) -> Size {
        let (last, _) = self.beginnings(target);
        let left = self.extent(target).0.min(target.0.saturating_sub(last));
        Size(left / self.bs.0.max(1) * self.bs.0)
    }

    /// Its option `offset` or `offset_increment` in bytes of a target of that size, where it has it as a
    /// share: fio takes that of all that a file or device has.
    pub(crate) fn in_bytes(&self, name: &str, target: Size) -> Option<u64> {
        self.options.get(name).filter(|text| text.ends_with('%'))?;
        match name {
            "offset_increment" => Some(self.beginnings(target).1),
            "offset" => {
                let mut first = self.clone();
                first.options.remove("numjobs");
                Some(first.beginnings(target).0)
            }
            _ => None,
        }
    }

    /// Whether it writes to what transfers go to, or takes something away from it. A trace does, where it has
    /// such requests; one that cannot be read is reported elsewhere.
    pub(crate) fn writes(&self) -> bool {
        match self.work() {
            Work::Transfers => does_write(&self.rw),
            Work::Copy => true,
            Work::Replay => self
                .trace
                .as_ref()
                .and_then(|path| Trace::read(path).ok())
                .is_some_and(|trace| trace.writes()),
            Work::Create | Work::Open | Work::Stat | Work::Delete => false,
        }
    }

    /// Whether what it writes is made stable again and again: because it asks for that, or as everything
    /// always is.
    pub(crate) fn flushes(&self, is_always: bool) -> bool {
        let asks = |name: &str| self.options.get(name).is_some_and(|value| value != "0");
        self.work() == Work::Transfers
            && ["write", "rw"].iter().any(|word| self.rw.contains(word))
            && (is_always || ["fsync", "fdatasync", "sync"].into_iter().any(asks))
    }

    /// What the counters of a pool have of a run beside what it measured, in words, where they have
    /// something. They are taken before fio starts, and after everything is on the devices.
    pub(crate) fn counted_beside(&self) -> Option<&'static str> {
        match self.work() {
            Work::Transfers if self.ramp_seconds > 0.0 => Some("operations during `ramp_seconds`"),
            Work::Transfers if self.cache == CacheState::Dirty && does_write(&self.rw) => {
                Some("writes before it, for a dirty cache")
            }
            _ => None,
        }
    }

    /// Why there is no figure of a metric with it; nothing where there is. What a trace has is known only
    /// when it is read.
    pub(super) fn has_no(&self, metric: Metric) -> Option<&'static str> {
        let (reads, writes) = match self.work() {
            Work::Transfers => (
                self.rw.contains("read") || self.rw.contains("rw"),
                self.rw.contains("write") || self.rw.contains("rw"),
            ),
            Work::Create | Work::Copy => (false, true),
            Work::Open => (true, false),
            Work::Stat | Work::Delete => (false, false),
            Work::Replay => (true, true),
        };
        match metric {
            Metric::Amplification if !writes => Some("its workload writes nothing"),
            Metric::ReadAmplification if !reads => Some("its workload reads nothing"),
            Metric::Throughput | Metric::Cpu if !reads && !writes => Some("its workload moves no bytes"),
            _ => None,
        }
    }

    /// It with those of `settings` that are of the job.
    pub(crate) fn with(&self, settings: &Settings) -> Result<Self> {
        let mut job = self.clone();
        for (name, value) in &Place::Job.pick(settings) {
            let wrong = |what: String| Error::Experiment(format!("{name}={value}: {what}"));
            match name.as_str() {
                "rw" => job.rw.clone_from(value),
                "bs" => job.bs = value.parse().map_err(wrong)?,
                "iodepth" => job.iodepth = value.parse().map_err(|_| wrong("not a number".into()))?,
                "sync_job" => drop(job.options.insert("sync".into(), value.clone())),
                _ => {
                    let option = name.strip_prefix(FIO).unwrap_or(name);
                    // What differs takes the place of what the workload says.
                    match option {
                        "buffer_compress_percentage" => job.compressible = 0,
                        "dedupe_percentage" => job.duplicates = 0,
                        _ => {}
                    }
                    drop(job.options.insert(option.to_owned(), value.clone()));
                }
            }
        }
        Ok(job)
    }

    /// All that is wrong with it, each in a sentence.
    pub(crate) fn faults(&self, target: &Target) -> Vec<String> {
        let mut faults: Vec<String> = Vec::new();
        if !(0.1..=86_400.0).contains(&self.seconds) || !(0.0..=86_400.0).contains(&self.ramp_seconds) {
            faults.push("seconds from 0.1 to 86400".into());
        }
        if self.once && self.work() != Work::Transfers {
            faults.push(
                "once is for reads and writes; everything else is done once anyway: leave it \
                out"
                .into(),
            );
        } else if self.once && self.ramp_seconds > 0.0 {
            faults.push("once and ramp_seconds exclude each other: leave one out".into());
        }
        let extent = self.extent(target.size());
        if extent > target.size() {
            faults.push(format!("size {extent} is more than the target's {}", target.size()));
        }
        if self.bs.0 == 0 || self.bs > extent {
            faults.push(format!("bs {} does not fit the target", self.bs));
        }
        let is_one_left = self.bs > extent || self.share(target.size()) >= self.bs;
        if self.work() == Work::Transfers && !is_one_left {
            faults.push(format!(
                "its options offset, offset_increment and numjobs leave nothing of the target's {} for its \
                 last job",
                target.size()
            ));
        }
        if self.compressible > 99 || self.duplicates > 99 {
            faults.push("compressible and duplicates are percentages below 100".into());
        }
        faults.extend(options::faults(&self.options, target.size()));
        for (key, percent, option) in [
            ("compressible", self.compressible, "buffer_compress_percentage"),
            ("duplicates", self.duplicates, "dedupe_percentage"),
        ] {
            if percent > 0 && self.options.contains_key(option) {
                faults.push(format!("{key} and fio's option '{option}' say the same: leave the option out"));
            }
        }
        match self.work() {
            Work::Transfers if !is_of_fio(&self.rw) => {
                faults.push(format!(
                    "rw = \"{}\" is not one of {}, or create, open, stat, delete, replay, copy",
                    self.rw,
                    OF_FIO.join(", ")
                ));
            }
            Work::Transfers => {}
            Work::Create | Work::Open | Work::Stat | Work::Delete => {
                if !target.holds_files() {
                    faults.push(format!("rw = \"{}\" needs a filesystem or directory", self.rw));
                }
                let bytes = u64::from(self.files).checked_mul(self.bs.0);
                if self.files == 0
                    || self.files > MOST_FILES
                    || bytes.is_none_or(|bytes| bytes > target.size().0)
                {
                    faults.push(format!("{} files of {} do not fit the target", self.files, self.bs));
                }
            }
            Work::Replay if self.trace.is_none() => faults.push("rw = \"replay\" needs a trace".into()),
            Work::Copy if self.source.is_none() => faults.push("rw = \"copy\" needs a source".into()),
            Work::Replay | Work::Copy => {}
        }
        if let (Work::Replay | Work::Copy, Some(layer)) = (self.work(), target.elsewhere().next()) {
            faults.push(format!(
                "rw = \"{}\" works on files of this machine, and layer '{}' is remote (by)",
                self.rw, layer.name
            ));
        }
        if self.missing > 0 && target.pools().is_none() {
            faults.push("missing: only pools of the lab can have missing devices".into());
        }
        if self.as_disk && self.work() != Work::Copy {
            faults.push("as_disk: only rw = \"copy\" has it".into());
        }
        if self.only.is_some() && self.work() != Work::Copy {
            faults.push("only: only rw = \"copy\" has it".into());
        }
        if self.source.is_some() && self.work() != Work::Copy {
            faults.push("source: only rw = \"copy\" has one".into());
        }
        if self.trace.is_some() && self.work() != Work::Replay {
            faults.push("trace: only rw = \"replay\" has one".into());
        }
        faults.into_iter().map(|what| format!("workload '{}': {what}", self.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::path::AtPath;

    fn at_path() -> Target {
        Target::Path(AtPath { path: "/x".into(), size: Size(1 << 30), overwrite: true })
    }

    #[test]
    fn an_option_does_not_say_otherwise_what_a_key_says() {
        let target = at_path();
        let workload = |text: &str| -> Workload {
            toml::from_str(&format!("name = \"w\"\nrw = \"randwrite\"\n{text}")).unwrap()
        };
        let twice = workload("compressible = 50\noptions = { buffer_compress_percentage = \"20\" }");
        let faults = twice.faults(&target);
        assert!(faults.len() == 1 && faults[0].contains("compressible and"), "{faults:?}");
        // A factor takes its place.
        let settings = Settings::from([("dedupe_percentage".to_owned(), "20".to_owned())]);
        let varied = workload("duplicates = 50").with(&settings).unwrap();
        assert_eq!((varied.faults(&target), varied.duplicates), (Vec::new(), 0));
    }

    #[test]
    fn once_is_for_what_would_go_on() {
        let target = at_path();
        let faults = |text: &str| -> Vec<String> {
            let workload: Workload = toml::from_str(&format!("name = \"w\"\nonce = true\n{text}")).unwrap();
            workload.faults(&target)
        };
        assert_eq!(faults("rw = \"randread\""), [""; 0]);
        for wrong in ["rw = \"read\"\nramp_seconds = 1", "rw = \"replay\"\ntrace = \"t\""] {
            assert!(faults(wrong).iter().any(|fault| fault.contains("once")), "{wrong}");
        }
    }

    #[test]
    fn what_counters_have_beside_a_run_is_known() {
        for (text, beside) in [
            ("rw = \"randwrite\"", false),
            ("rw = \"read\"\nramp_seconds = 1", true),
            ("rw = \"randrw\"\ncache = \"dirty\"", true),
            ("rw = \"write\"\ncache = \"dirty\"", true),
            ("rw = \"randread\"\ncache = \"dirty\"", false),
            ("rw = \"write\"\ncache = \"warm\"", false),
        ] {
            let workload: Workload = toml::from_str(&format!("name = \"w\"\n{text}")).unwrap();
            assert_eq!(workload.counted_beside().is_some(), beside, "{text}");
        }
    }

    #[test]
    fn what_a_workload_does_not_do_has_no_figure() {
        for (rw, amplification, outside, throughput) in [
            ("randwrite", true, false, true),
            ("trimwrite", true, false, true),
            ("read:8", false, true, true),
            ("rw", true, true, true),
            ("randrw", true, true, true),
            ("copy", true, false, true),
            ("open", false, true, true),
            ("stat", false, false, false),
            ("replay", true, true, true),
        ] {
            let workload: Workload = toml::from_str(&format!("name = \"w\"\nrw = \"{rw}\"")).unwrap();
            let has = [Metric::Amplification, Metric::ReadAmplification, Metric::Throughput]
                .map(|metric| workload.has_no(metric).is_none());
            assert_eq!(has, [amplification, outside, throughput], "{rw}");
        }
    }

    #[test]
    fn the_last_operation_ends_within_the_target() {
        let share = |text: &str| -> u64 {
            let workload: Workload =
                toml::from_str(&format!("name = \"w\"\nrw = \"write\"\n{text}")).unwrap();
            workload.share(Size(1 << 20)).0
        };
        assert_eq!(share("bs = \"300K\""), 900 << 10);
        assert_eq!(share("bs = \"300K\"\nsize = \"700K\""), 600 << 10);
        assert_eq!(share("bs = \"64K\"\noptions = { offset = \"100K\" }"), 896 << 10);
        assert_eq!(share("bs = \"4K\""), 1 << 20);
    }

    #[test]
    fn who_flushes_is_who_writes_and_asks_for_it() {
        let workload = |rw: &str, options: &str| -> Workload {
            toml::from_str(&format!("name = \"w\"\nrw = \"{rw}\"\noptions = {{ {options} }}")).unwrap()
        };
        for (rw, options, expected, always) in [
            ("randwrite", "fsync = \"1\"", true, true),
            ("randrw", "fdatasync = \"8\"", true, true),
            ("write", "sync = \"1\"", true, true),
            ("write", "", false, true),
            ("write", "fsync = \"0\"", false, true),
            ("randread", "fsync = \"1\"", false, false),
            ("create", "fsync = \"1\"", false, false),
        ] {
            let workload = workload(rw, options);
            assert_eq!(
                (workload.flushes(false), workload.flushes(true)),
                (expected, always),
                "{rw} {options}"
            );
        }
    }
}
