//! The load for each variant.

mod options;
pub(crate) mod sizes;
mod sort;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use options::decided;
pub(crate) use options::faults as faults_of_options;
pub use sort::Sort;

use crate::error::{Error, Result};
use crate::metric::Metric;
use crate::setting::{FIO, SettingOwner, Settings};
use crate::size::Size;
use crate::trace::Trace;

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

    /// The smallest size of its operations.
    fn smallest(&self) -> Size {
        let sizes = self.options.get("bssplit").and_then(|text| sizes::parse(text).ok());
        let sizes = sizes.iter().flatten().flatten().map(|share| share.size);
        sizes.min().unwrap_or(self.bs)
    }

    /// Where its last job begins, in a target of `size`, and how much further on each job begins than the one
    /// before: fio's `offset`, `offset_increment` and `numjobs`. Shares of a target are rounded to whole
    /// operations.
    fn beginnings(&self, target: Size) -> (u64, u64) {
        let least = self.smallest().0.max(1);
        let of = |name: &str| {
            let Some(text) = self.options.get(name) else { return 0 };
            let bytes = sizes::increment(text, target).unwrap_or_default().0;
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
    pub(crate) fn has_no(&self, metric: Metric) -> Option<&'static str> {
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
        for (name, value) in &SettingOwner::Job.pick(settings) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
