//! Named files and directories that exist already, and what the lab does to them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

use lab::environment::Environment;
use lab::experiment::Experiment;
use lab::progress::Progress;
use lab::store::{Run, Store};
use lab::target::{Bench, Placement};

struct Silent;

impl Progress for Silent {
    fn begins(&self, _: usize, _: usize, _: Option<std::time::Duration>, _: &str) {}
    fn ended(&self, _: &Run) {}
    fn stops(&self) -> bool {
        false
    }
}

/// Runs a workload on what is at `path`; the report, or what is wrong.
fn run(path: &Path, results: &Path, workload: &str) -> Result<String, String> {
    run_with("", path, results, workload)
}

/// The same, with more said of the target.
fn run_with(more: &str, path: &Path, results: &Path, workload: &str) -> Result<String, String> {
    let text = format!(
        "name = \"named\"\nrounds = 2\n[target]\nkind = \"path\"\npath = \"{}\"\nsize = \"1M\"\n{more}\n\
         [[workload]]\nname = \"w\"\nbs = \"4K\"\nseconds = 0.1\n{workload}\n",
        path.display()
    );
    let experiment = Experiment::parse(&text).map_err(|error| error.to_string())?;
    let mut store = Store::create(results, experiment.clone(), Environment::default()).unwrap();
    let mut bench = Bench::new(&experiment, results, None);
    let ended = lab::run::run(&mut store, &mut bench, &Silent);
    bench.remove().unwrap();
    ended.map_err(|error| error.to_string())?;
    Ok(lab::report::markdown(&store, &lab::analysis::findings(&store)))
}

fn holes(path: &Path) -> usize {
    fs::read(path).unwrap().chunks(4096).filter(|block| block.iter().all(|byte| *byte == 0)).count()
}

#[test]
fn what_is_written_anyway_is_filled_first_and_what_is_only_read_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::File::create(at("sparse")).unwrap().set_len(1 << 20).unwrap();
    let report = run(&at("sparse"), &at("written"), "rw = \"randwrite\"\nsize = \"64K\"").unwrap();
    assert_eq!(holes(&at("sparse")), 0);
    assert!(report.contains("filled with") && !report.contains("as it was found"), "{report}");

    fs::write(at("theirs"), vec![7; 1 << 20]).unwrap();
    let report = run(&at("theirs"), &at("read"), "rw = \"randread\"\ncache = \"cold\"").unwrap();
    assert!(report.contains("as it was found") && report.contains("caches of the devices"), "{report}");
    assert_eq!(fs::read(at("theirs")).unwrap(), vec![7; 1 << 20]);

    fs::write(at("short"), "theirs").unwrap();
    let refused = run(&at("short"), &at("refused"), "rw = \"randread\"").unwrap_err();
    assert!(refused.contains("not extended"), "{refused}");
    assert_eq!(fs::read_to_string(at("short")).unwrap(), "theirs");
    // One that is not there is the lab's own.
    let report = run(&at("new"), &at("made"), "rw = \"randread\"").unwrap();
    assert!(holes(&at("new")) == 0 && !report.contains("as it was found"), "{report}");
}

#[test]
fn what_no_workload_writes_is_never_written_whatever_else_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let theirs = vec![7; 1 << 20];
    fs::write(at("theirs"), &theirs).unwrap();
    fs::write(at("trace"), "fio version 3 iolog\n0 v add\n0 v open\n0 v read 0 4096\n5 v read 4096 4096\n")
        .unwrap();
    let replay = format!("rw = \"replay\"\nat_once = true\ntrace = \"{}\"", at("trace").display());
    for (number, workload) in [
        // fio would make the file longer for the last job, and remove the one that is there to do so.
        "rw = \"read\"\ncache = \"warm\"\noptions = \
         { numjobs = \"4\", offset = \"64K\", offset_increment = \"25%\" }",
        &replay,
    ]
    .into_iter()
    .enumerate()
    {
        run(&at("theirs"), &at(&format!("out{number}")), workload).unwrap();
        assert!(fs::read(at("theirs")).unwrap() == theirs, "{workload}");
    }
    // Nor is it for a state of the cache.
    let refused = run(&at("theirs"), &at("dirty"), "rw = \"randread\"\ncache = \"dirty\"").unwrap_err();
    assert!(refused.contains("no workload writes to this target"), "{refused}");
    // Options that would write, remove or lead elsewhere are not taken, whatever they are called by.
    let elsewhere = at("empty").display().to_string();
    for option in [
        "rw = \"write\"",
        "readwrite = \"write\"",
        "readwrit = \"write\"",
        "unlink = \"1\"",
        "unlink_each = \"1\"",
        "nr_files = \"2\"",
        "file_append = \"1\"",
        &format!("write_iolog = \"{elsewhere}\""),
        &format!("replay_redirect = \"{elsewhere}\""),
        &format!("mem = \"mmapshared:{elsewhere}\""),
        &format!("directo = \"{elsewhere}\""),
        &format!("exec_prerun = \"touch {elsewhere}\""),
    ] {
        let refused = run(&at("theirs"), &at("option"), &format!("rw = \"read\"\noptions = {{ {option} }}"));
        let refused = refused.unwrap_err();
        assert!(
            refused.contains("the lab decides") || refused.contains("the lab allows"),
            "{option}: {refused}"
        );
    }
    assert!(!at("empty").exists() && !at("option").exists());
    // An empty file of the user is not a missing one.
    fs::write(at("empty"), "").unwrap();
    assert!(run(&at("empty"), &at("out"), "rw = \"read\"").unwrap_err().contains("0 bytes"));
    assert!(fs::read(at("theirs")).unwrap() == theirs && fs::read(at("empty")).unwrap().is_empty());
}

#[test]
fn what_holds_anything_is_overwritten_only_with_consent_and_never_beyond_the_size() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("theirs"), vec![7; 2 << 20]).unwrap();
    let writes = "rw = \"randwrite\"\noptions = { numjobs = \"2\", offset_increment = \"50%\" }";
    let refused = run(&at("theirs"), &at("refused"), writes).unwrap_err();
    assert!(refused.contains("holds data") && refused.contains("overwrite = true"), "{refused}");
    assert!(fs::read(at("theirs")).unwrap() == vec![7; 2 << 20]);
    run_with("overwrite = true", &at("theirs"), &at("written"), writes).unwrap();
    let written = fs::read(at("theirs")).unwrap();
    assert!(written[..1 << 20] != vec![7; 1 << 20] && written[1 << 20..] == vec![7; 1 << 20]);
    // What the lab made itself it writes again.
    for out in ["first", "second"] {
        run(&at("new"), &at(out), "rw = \"randwrite\"").unwrap();
    }
}

#[test]
fn files_in_a_directory_are_filled_and_removed_and_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("theirs"), "x").unwrap();
    let report = run(&target, &directory.path().join("out"), "rw = \"randread\"").unwrap();
    assert!(report.contains("filled with"), "{report}");
    let left: Vec<_> = fs::read_dir(&target).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["theirs"]);
}

#[test]
fn what_somebody_put_beside_the_labs_files_outlives_a_lab_that_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (target, out) = (directory.path().join("target"), directory.path().join("out"));
    fs::create_dir(&target).unwrap();
    let text = format!(
        "name = \"killed\"\nrounds = 2\n[target]\nkind = \"path\"\npath = \"{}\"\nsize = \"1M\"\n\
         [[workload]]\nname = \"w\"\nrw = \"randread\"\nbs = \"4K\"\nseconds = 0.1\n\
         [[workload]]\nname = \"o\"\nrw = \"open\"\nbs = \"4K\"\nfiles = 4\n",
        target.display()
    );
    let experiment = Experiment::parse(&text).unwrap();
    let mut store = Store::create(&out, experiment.clone(), Environment::default()).unwrap();
    let mut bench = Bench::new(&experiment, &out, None);
    lab::run::run(&mut store, &mut bench, &Silent).unwrap();
    // One that is killed leaves what is there now.
    let left = directory.path().join("left");
    fs::create_dir(&left).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").args([&target, &out, &left]).status();
    assert!(copied.unwrap().success());
    // Meanwhile no other lab works in the same directory, or removes its files.
    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    let mut another = Bench::new(&experiment, &other, None);
    assert!(another.remove().unwrap_err().to_string().contains("another 'cenote lab'"));
    drop((another, bench));
    assert!(!target.join("lab-files").exists() && !out.join("devices").exists());
    fs::remove_dir(&target).unwrap();
    fs::remove_dir_all(&out).unwrap();
    for name in ["target", "out"] {
        fs::rename(left.join(name), directory.path().join(name)).unwrap();
    }
    drop(store);
    let files = target.join("lab-files/kept-4-of-4096");
    assert_eq!(fs::read_dir(&files).unwrap().count(), 4);
    let theirs = [target.join("lab-files/theirs"), files.join("theirs"), out.join("devices/theirs")];
    theirs.iter().for_each(|path| fs::write(path, "x").unwrap());
    let mut bench = Bench::new(&experiment, &out, None);
    bench.remove().unwrap();
    let mut left = bench.left_alone();
    left.sort();
    let mut expected = theirs.clone();
    expected.sort();
    assert_eq!(left, expected);
    // And nothing of the lab's is left beside it.
    for (within, count) in [(target.join("lab-files"), 2), (files, 1), (out.join("devices"), 1)] {
        assert_eq!(fs::read_dir(&within).unwrap().count(), count, "{}", within.display());
    }
}

#[test]
fn a_trace_says_what_of_it_was_not_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(
        at("trace"),
        "fio version 3 iolog\n0 v add\n0 v open\n0 v write 0 4096\n5 v trim 0 4096\n9 v read 0 4096\n",
    )
    .unwrap();
    let workload = format!("rw = \"replay\"\nat_once = true\ntrace = \"{}\"", at("trace").display());
    let report = run(&at("data"), &at("out"), &workload).unwrap();
    assert!(report.contains("1 of the 3 requests") && report.contains("left out"), "{report}");
    // Two requests are over before a millisecond is, and are counted all the same.
    assert!(report.contains("several times in a row"), "{report}");
}

#[test]
fn a_short_trace_is_replayed_as_often_in_all_runs_of_a_workload_whoever_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let trace = "fio version 3 iolog\n0 v add\n0 v open\n0 v read 0 4096\n5 v read 4096 4096\n";
    fs::write(at("trace"), trace).unwrap();
    let workload = |name: &str| {
        format!(
            "[[workload]]\nname = \"{name}\"\nrw = \"replay\"\nat_once = true\ntrace = \"{}\"\n",
            at("trace").display()
        )
    };
    let text = format!(
        "name = \"passes\"\nrounds = 2\n[target]\nkind = \"path\"\npath = \"{}\"\nsize = \"1M\"\n{}{}",
        at("data").display(),
        workload("one"),
        workload("again")
    );
    let experiment = Experiment::parse(&text).unwrap();
    let out = at("out");
    let mut store = Store::create(&out, experiment.clone(), Environment::default()).unwrap();
    let carry_out = |store: &mut Store| {
        // A continued experiment finds only the kept runs.
        let mut bench = Bench::new(&experiment, &out, None);
        lab::run::run(store, &mut bench, &Silent).unwrap();
        bench.remove().unwrap();
    };
    carry_out(&mut store);
    drop(store);
    let mut store = Store::open(&out).unwrap();
    store.want_rounds(4).unwrap();
    carry_out(&mut store);
    for name in ["one", "again"] {
        let runs: Vec<&Run> = store.runs().iter().filter(|run| run.workload == name).collect();
        let passes = runs[0].passes.unwrap();
        assert!(runs.len() == 8 && passes > 1, "{name}: {passes}");
        for run in runs {
            assert_eq!((run.passes, run.figures.read_bytes), (Some(passes), 8192 * passes as u64), "{name}");
        }
    }

    // What was found is held, also where a run is over too soon.
    let mut bench = Bench::new(&experiment, &out, None);
    bench.hold_passes("one", 2);
    let plan = lab::plan::Plan::new(&experiment, None, 1);
    let (variant, one) = (&plan.variants()[0], &experiment.workloads[0]);
    let lodging = Placement::of(variant, one);
    bench.ready(&lodging, one, &Silent).unwrap();
    let job = bench.job(&lodging, one, 0, &Silent).unwrap();
    let figures = bench.run(&lodging, &job, &Silent).unwrap().figures;
    assert_eq!((figures.read_bytes, bench.passes("one"), bench.passes("again")), (2 * 8192, Some(2), None));
    assert!(bench.notes().concat().contains("figures are rough"));
    bench.remove().unwrap();
}
