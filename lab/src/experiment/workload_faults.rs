//! What is wrong with a workload for a target.

use crate::site::ExperimentTarget;
use crate::size::Size;
use crate::workload::{Work, Workload, faults_of_options};

/// Files that a workload makes at most.
const MOST_FILES: u32 = 1_000_000;

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

impl Workload {
    /// All that is wrong with it, each in a sentence.
    pub(crate) fn faults(&self, target: &ExperimentTarget) -> Vec<String> {
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
        faults.extend(faults_of_options(&self.options, target.size()));
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
    use crate::setting::Settings;
    use crate::site::path::AtPath;

    fn at_path() -> ExperimentTarget {
        ExperimentTarget::Path(AtPath { path: "/x".into(), size: Size(1 << 30), overwrite: true })
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
}
