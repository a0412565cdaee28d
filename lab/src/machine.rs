//! The machine according to `/proc` and `/sys`, below a root that tests choose.
//!
//! Programs' time is counted in ticks, of all processors together. `/proc/self/stat` has the time of the lab
//! and its children. The rest of the busy time belongs to other programs ([`Busy`]) and to the kernel's own
//! threads, which is why small amounts mean nothing.
//!
//! Source: Linux `proc_stat(5)`, `proc_pid_stat(5)`, `proc_loadavg(5)`, and its
//! `Documentation/admin-guide/pm/cpufreq.rst`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The share of all processors' time from which others, or the kernel for them, take so much that it is
/// reported.
const MUCH: f64 = 0.2;
/// The share of stolen time from which it is reported.
const MUCH_STOLEN: f64 = 0.02;
/// In what `/proc` counts time (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;
/// Ticks that a share needs, at least: with fewer it is chance.
const LEAST_TICKS: u64 = 20;

/// A machine.
#[derive(Debug, Clone)]
pub struct Machine {
    root: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self::below(Path::new("/"))
    }
}

/// Ticks since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ticks {
    /// Of all processors, whatever they did.
    pub all: u64,
    /// In which they worked for programs or the kernel.
    pub busy: u64,
    /// In which a hypervisor let others run, though there was work.
    pub stolen: u64,
    /// In which this process worked, and its children that have ended.
    pub own: u64,
}

/// The processors' time during a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Busy {
    /// The load averages when it began, as the kernel writes them: of one, five and fifteen minutes.
    pub load: String,
    /// The share of all processors' time that a hypervisor gave to others.
    pub stolen: f64,
    /// The share that others than the lab and its pools' process took, where their part is known.
    pub others: Option<f64>,
}

impl Machine {
    /// One whose `/proc` and `/sys` are below a directory.
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The contents of a file, trimmed; nothing if it cannot be read.
    pub fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The load averages of one, five and fifteen minutes.
    pub fn load(&self) -> Option<String> {
        let text = self.read("proc/loadavg")?;
        let words: Vec<&str> = text.split_whitespace().take(3).collect();
        (words.len() == 3).then(|| words.join(" "))
    }

    /// Time that was taken so far; nothing if the kernel does not report it.
    pub fn ticks(&self) -> Option<Ticks> {
        let stat = self.read("proc/stat")?;
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let words: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; of guests is in user and nice.
        let [user, nice, system, idle, waits, irq, soft, stolen] = *words.first_chunk::<8>()?;
        let busy = user + nice + system + irq + soft;
        // After the name, which may have anything in it: from the third field on, of which the 14th to 17th
        // are wanted.
        let own = self.read("proc/self/stat").and_then(|text| {
            let (_, rest) = text.rsplit_once(')')?;
            let times = rest.split_whitespace().skip(11).take(4);
            Some(times.filter_map(|word| word.parse::<u64>().ok()).sum())
        });
        Some(Ticks { all: busy + idle + waits + stolen, busy, stolen, own: own.unwrap_or(0) })
    }

    /// The frequency governors of all processors: one, or how many processors have which; nothing where there
    /// are none.
    pub fn governor(&self) -> Option<String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for entry in fs::read_dir(self.root.join("sys/devices/system/cpu")).ok()?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_processor = name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok());
            let governor = self.read(&format!("sys/devices/system/cpu/{name}/cpufreq/scaling_governor"));
            if let Some(governor) = governor.filter(|_| is_processor) {
                *counts.entry(governor).or_default() += 1;
            }
        }
        let of = |(governor, count): (&String, &usize)| format!("{governor} ({count} processors)");
        match counts.len() {
            0 => None,
            1 => counts.into_keys().next(),
            _ => Some(counts.iter().map(of).collect::<Vec<_>>().join(", ")),
        }
    }
}

impl Busy {
    /// What happened since `before`. Of what pools' processes took meanwhile `served_seconds` are known;
    /// nothing is said of others where that is not.
    pub fn since(before: Ticks, after: Ticks, load: String, served_seconds: Option<f64>) -> Self {
        let all = after.all.saturating_sub(before.all);
        let share = |ticks: u64| if all < LEAST_TICKS { 0.0 } else { ticks as f64 / all as f64 };
        let busy = after.busy.saturating_sub(before.busy);
        let own = after.own.saturating_sub(before.own);
        let others = served_seconds.map(|seconds| {
            let served = (seconds * TICKS_PER_SECOND) as u64;
            share(busy.saturating_sub(own + served))
        });
        Self { load, stolen: share(after.stolen.saturating_sub(before.stolen)), others }
    }

    /// What a reader must know of a run in that time. All runs say it in the same words; how much it was is
    /// kept with each.
    pub fn cautions(&self) -> Vec<String> {
        let stolen = (self.stolen > MUCH_STOLEN).then_some(
            "In some runs the hypervisor gave this machine's processors to others for more than 2 % of the \
             time (steal): such figures say less about this machine. `lab report --run N` has the share, as \
             `busy`.",
        );
        let others = self.others.is_some_and(|share| share > MUCH).then_some(
            "In some runs other programs, or the kernel for them, took more than 20 % of the processors' \
             time: such figures are of a busy machine. `lab report --run N` has the share, as `busy`.",
        );
        stolen.into_iter().chain(others).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine::below(root.path());
        (root, machine)
    }

    #[test]
    fn time_of_others_and_stolen_time_are_told_apart_from_ones_own() {
        let at = |busy: u64, stolen: u64, own: u64| {
            let stat = format!("cpu  {busy} 0 0 {} 0 0 0 {stolen} 5 0\ncpu0 1 2 3\n", 1000 - busy - stolen);
            let own = format!("7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 {own} 0 0 0 20 0\n");
            let (_root, machine) = machine(&[("proc/stat", &stat), ("proc/self/stat", &own)]);
            machine.ticks().unwrap()
        };
        let before = Ticks { all: 0, ..at(0, 0, 10) };
        let quiet = Busy::since(before, at(300, 0, 210), "0.1 0.1 0.1".into(), Some(1.0));
        assert_eq!((quiet.stolen, quiet.others, quiet.cautions().len()), (0.0, Some(0.0), 0));
        let loud = Busy::since(before, at(500, 100, 110), String::new(), Some(1.0));
        assert_eq!((loud.stolen, loud.others), (0.1, Some(0.3)));
        assert!(loud.cautions()[0].contains("steal") && loud.cautions()[1].contains("other programs"));
        assert_eq!(
            Busy::since(before, at(500, 0, 110), String::new(), None).cautions(),
            Vec::<String>::new()
        );
        let (_root, nothing) = machine(&[("proc/stat", "cpu  1 2\n")]);
        assert_eq!((nothing.ticks(), nothing.load(), nothing.governor()), (None, None, None));
        assert!(Machine::default().ticks().is_some_and(|ticks| ticks.all > 0));
    }

    #[test]
    fn governors_are_those_of_all_processors() {
        let governor = |number: u32| format!("sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor");
        let (_root, alike) = machine(&[(&governor(0), "performance\n"), (&governor(11), "performance\n")]);
        assert_eq!(alike.governor().as_deref(), Some("performance"));
        let (_root, mixed) = machine(&[
            (&governor(0), "performance\n"),
            (&governor(1), "powersave\n"),
            (&governor(2), "powersave\n"),
            ("proc/loadavg", "9.00 4.50 1.25 2/345 6789\n"),
        ]);
        assert_eq!(mixed.governor().as_deref(), Some("performance (1 processors), powersave (2 processors)"));
        assert_eq!(mixed.load().as_deref(), Some("9.00 4.50 1.25"));
    }
}
