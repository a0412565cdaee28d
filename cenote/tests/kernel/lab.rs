//! The lab on a host that runs OpenZFS in its kernel: recipes work through `zpool` and `zfs` alone, whatever
//! interrupts them, and leave the host as they found it.
//!
//! The host has a pool `tank` with the files and volumes of its owner (`scripts/lab.sh`). What its owner can
//! see is listed before and after, and must be the same: properties, history but for the lab's own volumes,
//! contents, devices, mounts, parameters of the module, processes. Its results come back, and each figure of
//! a report is looked up in what fio said of its run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::analysis;
use lab::experiment::Metric;
use lab::store::{Stage, Store};
use tempfile::TempDir;
use testkit::kernel::{Job, KernelVm};

use crate::judge::{files_of, new_disks};

const LAB: &str = include_str!("scripts/lab.sh");
const PACK: &str = include_str!("scripts/pack.sh");

/// Of each of the two disks of the pool.
const DISK_BYTES: u64 = 4 << 30;
/// Room for the results.
const RESULTS_BYTES: u64 = 256 << 20;
/// An emulated machine takes long for what compresses well.
const PATIENCE: Duration = Duration::from_secs(7200);

/// What came of lines of shell on such a host.
struct Told {
    said: String,
    /// The experiments' directories of results.
    results: TempDir,
}

fn on_a_host(vm: &KernelVm, lines: &str) -> Told {
    let (tools, disks, results) = (folder(), folder(), folder());
    let tar = tools.path().join("tools.tar");
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src");
    let mut pack = Command::new("sh");
    pack.args(["-c", PACK, "pack"]).arg(tools.path().join("root")).arg(env!("CARGO_BIN_EXE_cenote"));
    assert!(pack.arg(text).arg(&tar).status().expect("a shell").success(), "the tools cannot be packed");
    new_disks(disks.path(), 2, DISK_BYTES);
    let back = results.path().join("results.tar");
    std::fs::File::create(&back).and_then(|file| file.set_len(RESULTS_BYTES)).expect("room for results");

    let mut all = vec![tar];
    all.extend(files_of(disks.path()));
    all.push(back.clone());
    let [tools_disk, first, second, back_disk] =
        [0, 1, 2, 3].map(|at| format!("/dev/{}", Job::disk_name(at)));
    let script = format!("{LAB}\nprepare {tools_disk} {first} {second}\n{lines}\nhand_over {back_disk}\n");
    let mut job = Job::new(script, all);
    job.limit = PATIENCE;
    let outcome = vm.run(&job).expect("a machine");
    println!("{}", outcome.output);
    assert_eq!(outcome.code, Some(0), "the machine did not get to the end");
    let unpacked = Command::new("tar").arg("-xf").arg(&back).arg("-C").arg(results.path()).status();
    assert!(unpacked.is_ok_and(|status| status.success()), "the results cannot be unpacked");
    Told { said: outcome.output, results }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

impl Told {
    /// What was said after a mark, up to the next.
    #[track_caller]
    fn after(&self, mark: &str) -> &str {
        let after = self.said.split("@@ ").find(|part| part.starts_with(mark));
        after.unwrap_or_else(|| panic!("nothing was said of '{mark}'"))
    }

    #[track_caller]
    fn assert_unchanged(&self, name: &str) {
        assert!(self.said.contains(&format!("@@ unchanged {name}: ")), "{}", self.after("changed by"));
    }

    /// The results of a complete experiment of so many runs, those of interrupted rounds aside, whose figures
    /// are those of its runs.
    #[track_caller]
    fn assert_traced(&self, directory: &str, runs: usize) {
        let directory = self.results.path().join(directory);
        let store = Store::open(&directory).expect("results");
        assert_eq!(store.runs().iter().filter(|run| run.stage != Stage::Torn).count(), runs);
        let json = std::fs::read_to_string(directory.join("report.json")).expect("a report");
        let reported: analysis::Findings = serde_json::from_str(&json).expect("findings");
        let (mut traced, csv) = (0, std::fs::read_to_string(directory.join("report.csv")).expect("a table"));
        for finding in reported.findings.iter().filter(|finding| finding.metric == Metric::Iops) {
            assert_eq!(finding.values.len(), finding.runs.len());
            for (value, number) in finding.values.iter().zip(&finding.runs) {
                let ran = store.fio_json(*number).expect("a run");
                let ran: serde_json::Value = serde_json::from_str(&ran).expect("JSON");
                let of = |direction: &str| ran["jobs"][0][direction]["iops"].as_f64().unwrap_or(0.0);
                // A copy of files is the lab's own.
                let copied = ran["figures"]["iops"].as_f64();
                let said = copied.unwrap_or_else(|| of("read") + of("write"));
                assert!((value / said - 1.0).abs() < 1e-9, "run {number}: {value}, and it said {said}");
                assert!(csv.lines().any(|line| line.starts_with(&format!("{number},"))), "run {number}");
                traced += 1;
            }
        }
        assert_eq!(traced, runs);
    }
}

#[test]
#[ignore = "takes half an hour, and more on a busy machine"]
fn recipes_measure_a_host_by_its_commands_and_leave_it_as_it_was() {
    let Some(vm) = KernelVm::find() else { return };
    // Gzip is slow where it is emulated: of that recipe a smaller one.
    let told = on_a_host(
        &vm,
        "cenote lab new compression --size 64M -o compression.toml\n\
         unchanged volblocksize lab first run volblocksize --host tank/lab --quick\n\
         unchanged compression lab second run compression.toml --host tank/lab --quick --rounds 2\n",
    );
    for (name, mark, runs, value) in [
        ("volblocksize", "first", 75, "volblocksize=64K"),
        ("compression", "second", 112, "compression=gzip-9"),
    ] {
        let said = told.after(mark);
        assert!(said.starts_with(&format!("{mark} ended with 0 ")), "{said}");
        for expected in [
            "left out, because the host decides it or does not report it: arc_max=64M",
            "may have been cached",
            value,
        ] {
            assert!(said.contains(expected), "{expected}: {said}");
        }
        told.assert_unchanged(name);
        told.assert_traced(&format!("lab-{name}"), runs);
    }
}

#[test]
#[ignore = "takes ten minutes"]
fn a_lab_that_is_interrupted_leaves_a_host_as_it_was_when_it_has_gone_on() {
    let Some(vm) = KernelVm::find() else { return };
    let told = on_a_host(
        &vm,
        "cenote lab new volblocksize --size 16M --factor volblocksize=16K,8K -o small.toml\n\
         run='run small.toml --host tank/lab --quick --rounds 2'\n\
         after_interrupt() { interrupt INT $run -o int; unchanged int-only true; lab int resume int; }\n\
         unchanged INT after_interrupt\n\
         after_term() { interrupt TERM $run -o term; }\n\
         unchanged TERM after_term\n\
         after_kill() {\n\
           interrupt KILL $run -o kill\n\
           zfs snapshot $(volumes | head -n 1 | cut -f 1)@by-somebody\n\
           lab beside $run -o beside\n\
           lab kill resume kill\n\
         }\n\
         unchanged KILL after_kill\n\
         clean_kill() { interrupt KILL resume term; lab clean clean term; volumes; }\n\
         unchanged clean clean_kill\n",
    );
    for name in ["INT", "TERM", "KILL", "clean"] {
        told.assert_unchanged(name);
    }
    for (signal, code) in [("INT", 1), ("TERM", 1), ("KILL", 137)] {
        let said = told.after(&format!("{signal} ended it"));
        assert!(said.starts_with(&format!("{signal} ended it with {code}\n")), "{said}");
        assert_eq!(said.contains("to go on: cenote lab resume"), code == 1, "{said}");
    }
    assert!(
        !told.said.split("@@ still running: ").skip(1).any(|rest| !rest.starts_with('\n')),
        "{}",
        told.said
    );
    let left: Vec<&str> =
        told.said.split("@@ volumes left: ").skip(1).filter_map(|rest| rest.lines().next()).collect();
    assert_eq!(left[..2], ["0", "0"]);
    assert!(left[2..].iter().all(|count| count.parse::<u32>().is_ok_and(|count| count >= 3)), "{left:?}");
    let beside = told.after("beside ended with 0");
    assert!(beside.contains("cenote lab clean /root/kill"), "{beside}");
    for (directory, mark) in [("int", "int"), ("kill", "kill"), ("beside", "beside")] {
        told.after(&format!("{mark} ended with 0"));
        told.assert_traced(directory, 18);
    }
    told.after("clean ended with 0");
}
