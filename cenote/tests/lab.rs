//! Experiments, from a file to the report, by the binary and real fio.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ::lab::environment::Environment;
use ::lab::experiment::Experiment;
use ::lab::fio::Figures;
use ::lab::report::document::{Block, Document};
use ::lab::store::{Run, Stage, Store};

const SMALL: &str = r#"
name = "small"
question = "What does a log device change?"
rounds = 2
[target]
kind = "volume"
size = "16M"
layout = "mirror 2"
[settings]
volblocksize = "16K"
[[factor]]
name = "log"
values = ["none", "file"]
[[workload]]
name = "stable writes"
rw = "randwrite"
bs = "4K"
seconds = 0.8
options = { fsync = "1" }
[[workload]]
name = "cold reads"
rw = "randread"
bs = "4K"
seconds = 0.8
cache = "cold"
"#;

fn lab(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.arg("lab").args(arguments).current_dir(directory);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// The document in the page of a report, which is one script's content.
fn document(page: &Path) -> Document {
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"document\">").unwrap();
    let (json, rest) = rest.split_once("</script>").unwrap();
    assert!(!json.contains('<') && rest.contains("</html>"), "{json}");
    serde_json::from_str(json).unwrap()
}

/// Results of two rounds, as if they had been measured.
fn planted(directory: &Path) {
    planted_of(SMALL, directory);
}

fn planted_of(experiment: &str, directory: &Path) {
    let experiment = Experiment::parse(experiment).unwrap();
    let mut store = Store::create(directory, experiment, Environment::default()).unwrap();
    for (round, iops) in [(0, 100.0), (1, 101.0)] {
        for variant in ["baseline", "log=file"] {
            for workload in ["stable writes", "cold reads"] {
                let figures = Figures { iops, ..Figures::default() };
                let run = Run {
                    stage: Stage::Rounds,
                    round,
                    variant: variant.into(),
                    workload: workload.into(),
                    began: 1,
                    command: Vec::new(),
                    figures,
                    served: None,
                    space: None,
                    sector: None,
                    series: None,
                    passes: None,
                    prepared: None,
                    busy: None,
                    notes: Vec::new(),
                };
                store.add(&run, &"fio said this. ".repeat(900)).unwrap();
            }
        }
    }
}

#[test]
fn damaged_results_are_told_of_and_what_was_left_can_be_removed() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        planted(&directory.path().join(name));
    }
    let path = directory.path().join("two/results.redb");
    let whole = fs::read(&path).unwrap();
    let mut within = whole.clone();
    within[4096..].fill(0xa5);
    for damaged in [&within[..], &whole[..whole.len() / 2], &vec![0; whole.len()]] {
        fs::write(&path, damaged).unwrap();
        for arguments in [
            &["report", "two"][..],
            &["report", "two", "--run", "1"],
            &["resume", "two"],
            &["compare", "one", "two"],
        ] {
            let output = lab(directory.path(), arguments);
            let told = text(&output);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
            assert!(told.contains("two/results.redb: it is damaged: "), "{arguments:?}: {told}");
            assert!(told.contains("cenote lab run two/experiment.toml"), "{arguments:?}: {told}");
            assert!(!told.contains("panicked") && !told.contains("backtrace"), "{arguments:?}: {told}");
        }
        let left = directory.path().join("two/devices");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(".cenote-lab"), "file left-0\n").unwrap();
        fs::write(left.join("left-0"), "of a pool").unwrap();
        let cleaned = lab(directory.path(), &["clean", "two"]);
        assert!(cleaned.status.success(), "{}", text(&cleaned));
        assert!(!left.exists());
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
}

#[test]
fn pages_carry_their_documents_and_only_comparisons_are_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let hostile = "</script><script>alert(1)</script> \u{2028} 'so' & `co\\de`";
    let question = format!("question = {}", serde_json::Value::from(hostile));
    let experiment = SMALL.replace("question = \"What does a log device change?\"", &question);
    assert!(experiment.contains("alert(1)"));
    for name in ["one", "two"] {
        planted_of(&experiment, &place.join(name));
    }
    let told = |arguments: &[&str]| -> serde_json::Value {
        let output = lab(place, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let json = told(&["report", "one", "--json"]);
    let shown = document(&place.join("one/report.html"));
    assert_eq!(shown.question, hostile);
    assert_eq!(json["document"], serde_json::to_value(&shown).unwrap());
    assert_eq!(json["verdicts"], serde_json::json!([]));
    let kept: serde_json::Value =
        serde_json::from_slice(&fs::read(place.join("one/report.json")).unwrap()).unwrap();
    assert_eq!(kept, json);
    let compare = ["compare", "one", "two", "--json", "-o", "page.html"];
    let json = told(&compare);
    let shown = document(&place.join("page.html"));
    assert_eq!(json["document"], serde_json::to_value(&shown).unwrap());
    assert_eq!(json["results"].as_array().map(Vec::len), Some(2));
    // It may be written over, and so may a page of versions that made it by hand.
    told(&compare);
    let by_hand = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
        content=\"width=device-width\"><meta name=\"generator\" content=\"cenote lab\"><title>Results \
        compared</title>";
    fs::write(place.join("page.html"), by_hand).unwrap();
    told(&compare);
    document(&place.join("page.html"));
    // The report of an experiment may not.
    let before = fs::read(place.join("one/report.html")).unwrap();
    let refused = lab(place, &["compare", "one", "two", "-o", "one/report.html"]);
    assert!(!refused.status.success() && text(&refused).contains("--force"), "{}", text(&refused));
    assert_eq!(fs::read(place.join("one/report.html")).unwrap(), before);
}

#[test]
fn results_that_cannot_be_written_are_read() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        planted(&directory.path().join(name));
    }
    let place = directory.path().display();
    let read_only = |arguments: &str| {
        let script = format!(
            "mount --bind {place} {place} && mount -o remount,bind,ro {place} && cd {place} && ! touch it \
             2>/dev/null && exec {} lab {arguments}",
            env!("CARGO_BIN_EXE_cenote")
        );
        Command::new("unshare").args(["-r", "-m", "sh", "-c", &script]).output().unwrap()
    };
    let first = read_only("report one");
    if text(&first).contains("unshare:") || text(&first).contains("mount:") {
        println!("skipped: nothing can be mounted here: {}", text(&first));
        return;
    }
    let told = text(&first);
    assert!(first.status.success() && told.contains("files were not written"), "{told}");
    let json = read_only("report one --json");
    assert!(json.status.success(), "{}", text(&json));
    serde_json::from_slice::<serde_json::Value>(&json.stdout).unwrap();
    for arguments in ["report one --run 1", "compare one two"] {
        let output = read_only(arguments);
        assert!(output.status.success(), "{arguments}: {}", text(&output));
    }
}

#[test]
fn a_record_lasts_for_a_time_that_there_is() {
    let directory = tempfile::tempdir().unwrap();
    for seconds in ["nan", "inf", "0", "-1", "1e300"] {
        let seconds = format!("--seconds={seconds}");
        let refused = lab(directory.path(), &["record", "tank/none", "-o", "trace", &seconds]);
        let told = text(&refused);
        assert!(!refused.status.success() && told.contains("a number from 0.1 to 31536000"), "{told}");
    }
    assert!(!directory.path().join("trace").exists());
}

#[test]
fn an_experiment_ends_with_a_report_and_leaves_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("small.toml"), SMALL).unwrap();
    let run = lab(directory.path(), &["run", "small.toml", "-o", "out", "--json"]);
    assert!(run.status.success(), "{}", text(&run));
    let findings: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    // Baseline, its twin, the log device and the raw device, with two workloads, twice.
    assert_eq!((findings["runs"].as_u64(), findings["rounds"].as_u64()), (Some(16), Some(2)));
    let of = |variant: &str, metric: &str| {
        let all = findings["findings"].as_array().unwrap();
        let found = all.iter().find(|it| {
            it["variant"] == variant && it["metric"] == metric && it["workload"] == "stable writes"
        });
        found.and_then(|it| it["median"]["value"].as_f64())
    };
    assert!(of("log=file", "iops").unwrap() > 0.0);
    assert!(of("raw device", "iops").unwrap() > 0.0);
    // A mirror writes everything twice at least, and nothing tells what the raw device's server does.
    assert!(of("baseline", "amplification").unwrap() >= 2.0);
    let layers = findings["layers"].as_array().unwrap();
    let layers = layers.iter().find(|it| it["variant"] == "baseline" && it["workload"] == "stable writes");
    let layers: Vec<f64> =
        layers.unwrap()["layers"].as_array().unwrap().iter().filter_map(|bytes| bytes.as_f64()).collect();
    let [logical, compressed, allocated, mirrored, metadata, log, device] = layers[..] else {
        panic!("{layers:?}")
    };
    // Blocks of 16K hold 4K that were written; what is flushed goes to the log as well.
    assert!(logical > 1.0 && compressed <= logical && allocated >= compressed, "{layers:?}");
    assert!(metadata > 0.0 && log >= 1.0, "{layers:?}");
    assert!((mirrored / allocated - 2.0).abs() < 1e-9 && log >= 2.0, "a mirror of two: {layers:?}");
    assert!(device >= (mirrored + metadata + log) * 0.999, "{layers:?}");
    assert_eq!(of("raw device", "cpu"), None);
    // What a mirror takes is taken on both of its devices; a log without a mirror is told of.
    assert!(of("baseline", "space").unwrap() >= 2.0);
    let risks = findings["risks"].as_array().unwrap();
    assert!(risks.len() == 1 && risks[0]["setting"] == "log=file", "{risks:?}");
    let out = directory.path().join("out");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    let shown = document(&out.join("report.html"));
    let of_kind = |is: fn(&Block) -> bool| shown.blocks.iter().filter(|block| is(block)).count();
    assert!(of_kind(|block| matches!(block, Block::Bars { .. })) > 2, "{shown:?}");
    assert_eq!(of_kind(|block| matches!(block, Block::Courses { .. })), 2, "{shown:?}");
    assert!(page.contains("log=file"), "{page}");
    // What happened within each run is there, under the run's number.
    let within = findings["within"].as_array().unwrap();
    assert_eq!(within.len(), 8, "{within:?}");
    for it in within {
        let (runs, rates) = (it["runs"].as_array().unwrap(), it["rates"].as_array().unwrap());
        assert!(runs.len() == 2 && rates.len() == 2 && it["step"].as_f64() == Some(0.1), "{it}");
        let rates = rates.iter().map(|rates| rates.as_array().unwrap());
        assert!(rates.flatten().filter_map(|rate| rate.as_f64()).sum::<f64>() > 0.0, "{it}");
    }
    assert_eq!(page.matches("within the runs").count(), 2, "{page}");
    // Three volumes and the raw device.
    assert!(page.contains("4 volumes and files were filled with 0.06 GiB"), "{page}");
    assert!(page.contains("What it costs in safety"), "{page}");
    assert_eq!(fs::read_to_string(out.join("report.csv")).unwrap().lines().count(), 17);
    assert!(!out.join("devices").exists(), "the pools are gone");

    // Each figure leads to what fio said.
    let number = findings["findings"][0]["runs"][0].as_u64().unwrap().to_string();
    let value = findings["findings"][0]["values"][0].as_f64().unwrap();
    let shown = lab(directory.path(), &["report", "out", "--run", &number]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let job = &shown["fio"]["jobs"][0];
    let iops = job["read"]["iops"].as_f64().unwrap() + job["write"]["iops"].as_f64().unwrap();
    assert!((iops - value).abs() < 1e-6 * value, "{iops} {value}");
    assert_eq!(shown["run"]["figures"]["iops"].as_f64(), Some(value));
    assert_eq!(shown["number"].as_u64().map(|number| number.to_string()), Some(number));
    // So does each byte that was written, to what the pool's process counted.
    let mut written: Vec<f64> = Vec::new();
    let of_layers = findings["layers"].as_array().unwrap();
    let of_layers =
        of_layers.iter().find(|it| it["variant"] == "baseline" && it["workload"] == "stable writes");
    for number in of_layers.unwrap()["runs"].as_array().unwrap() {
        let shown = lab(directory.path(), &["report", "out", "--run", &number.to_string()]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        let [device, client] =
            [&shown["run"]["served"]["layers"]["device"], &shown["run"]["figures"]["written_bytes"]]
                .map(|bytes| bytes.as_f64().unwrap());
        written.push(device / client);
    }
    assert!(
        written.len() == 2 && (written.iter().sum::<f64>() / 2.0 / device - 1.0).abs() < 1e-9,
        "{written:?}"
    );
    let has_runs = |block: &Block| matches!(block, Block::Table { rows, .. } if rows[0].last().is_some_and(|head| head == "runs"));
    assert!(of_kind(has_runs) > 2 && findings["modelled"].is_null(), "{shown:?}");

    // Nothing is left to do, and nothing is measured again.
    let before = fs::read(out.join("report.csv")).unwrap();
    let again = lab(directory.path(), &["resume", "out"]);
    assert!(again.status.success(), "{}", text(&again));
    assert_eq!(fs::read(out.join("report.csv")).unwrap(), before);
    let twice = lab(directory.path(), &["run", "small.toml", "-o", "out"]);
    assert!(!twice.status.success() && text(&twice).contains("resume that"), "{}", text(&twice));
}

const FILES: &str = r#"
name = "files"
rounds = 2
[target]
kind = "filesystem"
size = "32M"
[settings]
arc_max = "64M"
[[factor]]
name = "recordsize"
values = ["128K", "16K"]
[[workload]]
preset = "small-files"
files = 50
[[workload]]
name = "dirty"
rw = "randread"
bs = "16K"
size = "8M"
seconds = 0.2
cache = "dirty"
[[workload]]
name = "warm"
rw = "randread"
bs = "16K"
size = "8M"
seconds = 20
once = true
cache = "warm"
[[workload]]
name = "cold"
rw = "randread"
bs = "16K"
size = "8M"
seconds = 20
once = true
cache = "cold"
"#;

#[test]
fn filesystems_are_mounted_filled_and_read_in_every_state_of_the_cache() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("files.toml"), FILES).unwrap();
    let run = lab(directory.path(), &["run", "files.toml", "-o", "out", "--json"]);
    assert!(run.status.success(), "{}", text(&run));
    let findings: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    // Baseline, its twin, the other record size and the host's filesystem, with seven workloads, twice.
    assert_eq!(findings["runs"].as_u64(), Some(56));
    let has = |workload: &str, metric: &str| {
        findings["findings"].as_array().unwrap().iter().any(|it| {
            it["variant"] == "recordsize=16K" && it["workload"] == workload && it["metric"] == metric
        })
    };
    for workload in
        ["create files", "open and read files", "stat files", "delete files", "dirty", "warm", "cold"]
    {
        assert!(has(workload, "iops"), "{workload}");
    }
    assert!(has("create files", "throughput") && !has("stat files", "throughput"));
    let from_devices = |workload: &str| {
        let all = findings["findings"].as_array().unwrap();
        let found = all.iter().find(|it| {
            it["variant"] == "baseline" && it["workload"] == workload && it["metric"] == "read_amplification"
        });
        found.unwrap()["median"]["value"].as_f64().unwrap()
    };
    // All that is read fits into the cache; what a commit meanwhile reads for itself is little.
    let (cold, warm) = (from_devices("cold"), from_devices("warm"));
    assert!(cold > 4.0 * warm && cold > 0.0, "{cold} {warm}");
    assert!(!directory.path().join("out/mnt").exists() && !directory.path().join("out/devices").exists());
}

const SEARCHED: &str = r#"
name = "searched"
rounds = 2
mode = "search"
budget = 5
[goal]
metric = "throughput"
also = ["latency"]
[target]
kind = "path"
path = "data"
size = "8M"
[[factor]]
name = "bs"
values = ["4K", "64K", "1M"]
[[factor]]
name = "iodepth"
values = ["1", "2"]
[[workload]]
name = "reads"
rw = "read"
seconds = 0.1
"#;

const MIXED: &str = r#"
name = "mixed"
rounds = 3
[target]
kind = "volume"
size = "16M"
[settings]
compression = "lz4"
volblocksize = "64K"
[[factor]]
name = "checksum"
values = ["fletcher4", "sha256"]
[[workload]]
name = "half compresses away"
rw = "write"
bs = "1M"
compressible = 50
seconds = 0.3
[[workload]]
name = "nothing compresses"
rw = "write"
bs = "1M"
seconds = 0.3
[[workload]]
name = "read"
rw = "read"
bs = "1M"
compressible = 50
seconds = 0.2
[[workload]]
name = "all alike"
rw = "copy"
source = "alike"
bs = "1M"
"#;

#[test]
fn what_a_workload_finds_and_leaves_is_its_own_whatever_others_write() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("alike"), vec![1; 8 << 20]).unwrap();
    let mixed = MIXED.replace("\"alike\"", &format!("{:?}", at("alike")));
    fs::write(at("mixed.toml"), mixed).unwrap();
    let run = lab(directory.path(), &["run", "mixed.toml", "-o", "out", "--json"]);
    assert!(run.status.success(), "{}", text(&run));
    let findings: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let findings = findings["findings"].as_array().unwrap();
    for (workload, expected) in [
        ("half compresses away", 0.4..0.65),
        ("nothing compresses", 0.98..1.1),
        ("read", 0.4..0.65),
        ("all alike", 0.05..0.15),
    ] {
        let its = findings.iter().filter(|it| {
            it["workload"] == workload && it["metric"] == "space" && it["variant"] != "raw device"
        });
        let spaces: Vec<f64> = its
            .flat_map(|it| it["values"].as_array().unwrap())
            .filter_map(serde_json::Value::as_f64)
            .collect();
        // Both variants and the twin, three rounds.
        let all = spaces.iter().all(|space| expected.contains(space));
        assert!(spaces.len() == 9 && all, "{workload}: {spaces:?}");
    }
}

#[test]
fn a_search_finds_something_within_its_budget_and_measures_it_again() {
    let directory = tempfile::tempdir().unwrap();
    for mode in ["search", "improve"] {
        let text_of = SEARCHED.replace("\"search\"", &format!("\"{mode}\""));
        let text_of = if mode == "improve" { text_of.replace("budget = 5", "") } else { text_of };
        fs::write(directory.path().join("searched.toml"), text_of).unwrap();
        let run = lab(directory.path(), &["run", "searched.toml", "-o", mode, "--json"]);
        assert!(run.status.success(), "{}", text(&run));
        let findings: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        let sought = &findings["search_result"];
        assert!(sought["settings"]["bs"].is_string(), "{sought}");
        let csv = fs::read_to_string(directory.path().join(mode).join("report.csv")).unwrap();
        let searched = csv.lines().filter(|line| line.contains(",search,")).count();
        assert_eq!(sought["runs"].as_u64(), Some(searched as u64), "{csv}");
        assert!(if mode == "search" { searched <= 5 } else { searched == 10 }, "{searched}");
        assert_eq!(sought["steps"].as_array().unwrap().len(), if mode == "search" { 0 } else { 2 });
        // Whatever it found is compared with the baseline, twice, and its twin.
        assert_eq!(findings["rounds"].as_u64(), Some(2));
        assert!(!findings["front"].as_array().unwrap().is_empty());
        // The report needs no second look at anything.
        let again = lab(directory.path(), &["resume", mode]);
        assert!(again.status.success(), "{}", text(&again));
        assert_eq!(fs::read_to_string(directory.path().join(mode).join("report.csv")).unwrap(), csv);
    }
}

#[test]
fn what_is_wrong_with_an_experiment_is_said() {
    let directory = tempfile::tempdir().unwrap();
    for (wrong, named) in [
        (SMALL.replace("mirror 2", "mirrored two"), "mirrored two"),
        (SMALL.replace("\"16K\"", "\"17K\""), "volblocksize"),
        (SMALL.replace("randread", "sideways"), "sideways"),
    ] {
        fs::write(directory.path().join("wrong.toml"), wrong).unwrap();
        let run = lab(directory.path(), &["run", "wrong.toml", "-o", named.split(' ').next().unwrap()]);
        assert!(!run.status.success() && text(&run).contains(named), "{named}: {}", text(&run));
    }
    // All of it at once, with what was meant, before anything is made.
    let many = SMALL
        .replace("volblocksize", "volblocksise")
        .replace("randread", "sideways")
        .replace("mirror 2", "mirrored two");
    fs::write(directory.path().join("many.toml"), &many).unwrap();
    for way in [&["--dry-run"][..], &[]] {
        let run = lab(directory.path(), &[&["run", "many.toml", "-o", "many"], way].concat());
        let told = text(&run);
        for named in ["did you mean 'volblocksize'?", "sideways", "mirrored two"] {
            assert!(!run.status.success() && told.contains(named), "{named}: {told}");
        }
        assert!(!directory.path().join("many").exists());
    }
    let option = SMALL.replace("fsync", "fsink");
    fs::write(directory.path().join("option.toml"), option).unwrap();
    let run = lab(directory.path(), &["run", "option.toml", "-o", "option"]);
    assert!(!run.status.success() && text(&run).contains("fsink"), "{}", text(&run));
    fs::write(directory.path().join("right.toml"), SMALL).unwrap();
    let dry = lab(directory.path(), &["run", "right.toml", "-o", "right", "--dry-run", "--rounds", "3"]);
    assert!(dry.status.success() && text(&dry).contains("24 runs in 3 rounds"), "{}", text(&dry));
    assert!(!directory.path().join("right").exists());
    let format = lab(directory.path(), &["format"]);
    assert!(text(&format).contains("[[workload]]") && text(&format).contains("ramp_seconds = 1.0"));
    let unknown = lab(directory.path(), &["run", "no-such-recipe"]);
    assert!(!unknown.status.success() && text(&unknown).contains("volblocksize"), "{}", text(&unknown));
}

#[test]
fn recipes_are_listed_and_written() {
    let directory = tempfile::tempdir().unwrap();
    let listed = lab(directory.path(), &["recipes", "--json"]);
    let recipes: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(recipes.as_array().unwrap().iter().any(|recipe| recipe["name"] == "volblocksize"));
    assert!(lab(directory.path(), &["new", "sync", "-o", "mine.toml"]).status.success());
    assert!(fs::read_to_string(directory.path().join("mine.toml")).unwrap().contains("[[factor]]"));
    assert!(!lab(directory.path(), &["new", "sync", "-o", "mine.toml"]).status.success(), "it is kept");
    assert!(lab(directory.path(), &["new", "sync", "-o", "mine.toml", "--force"]).status.success());
}

#[test]
fn an_experiment_is_written_from_options_and_from_answers() {
    use std::io::Write;
    let directory = tempfile::tempdir().unwrap();
    let words = ["new", "-t", "filesystem", "--size", "32M", "-w", "randwrite,4K,2", "-g", "latency_p99"];
    let more = ["--at-most", "5ms", "-f", "recordsize=16K,128K", "--bound", "1gbe", "-o", "mine.toml"];
    let made = lab(directory.path(), &[&words[..], &more[..]].concat());
    assert!(made.status.success(), "{}", text(&made));
    let written = fs::read_to_string(directory.path().join("mine.toml")).unwrap();
    for expected in
        ["kind = \"filesystem\"", "latency_p99", "at_most = \"5ms\"", "4K randwrite, depth 2", "1gbe"]
    {
        assert!(written.contains(expected), "{expected}: {written}");
    }

    let words = ["new", "-t", "guest", "-w", "randwrite,4K,8", "-f", "disk=vhost-user,nbd,raw"];
    let made = lab(directory.path(), &[&words[..], &["-o", "guest.toml"]].concat());
    assert!(made.status.success(), "{}", text(&made));
    let written = fs::read_to_string(directory.path().join("guest.toml")).unwrap();
    assert!(written.contains("kind = \"guest\""), "{written}");

    let mut asked = Command::new(env!("CARGO_BIN_EXE_cenote"));
    asked.args(["lab", "new"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut asked = asked.spawn().unwrap();
    // A workload that is none is asked for again.
    let answers = b"volume\n64M\nwebb\ndatabase-8k\n\n20000\nsync=standard,always\n\n\n";
    asked.stdin.take().unwrap().write_all(answers).unwrap();
    let made = asked.wait_with_output().unwrap();
    assert!(made.status.success(), "{}", text(&made));
    let written = String::from_utf8(made.stdout).unwrap();
    assert!(written.contains("at_least = 20000") && written.contains("database 8K"), "{written}");
    assert!(String::from_utf8_lossy(&made.stderr).contains("'webb'"));
    // Faults of a user's file are reported while the experiment is written.
    fs::write(directory.path().join("theirs"), vec![7; 1 << 20]).unwrap();
    let words = ["new", "-t", "./theirs", "--size", "1M", "-w", "randwrite,4K"];
    let told = lab(directory.path(), &words);
    assert!(
        told.status.success()
            && text(&told).contains(
                "would be refused as it is: \
        target"
            ),
        "{}",
        text(&told)
    );
    let left_out = lab(directory.path(), &["new", "sync", "--target", "./file"]);
    assert!(
        !left_out.status.success() && text(&left_out).contains("no setting 'sync'"),
        "{}",
        text(&left_out)
    );
}

const LAYERS: &str = r#"
name = "stack"
rounds = 3
[target]
kind = "layers"
size = "4M"
overwrite = true
[[target.layer]]
name = "device"
at = "./device"
[[target.layer]]
name = "export"
at = "nbd+unix:///tank/vol?socket=SOCKET"
[[target.layer]]
name = "guest"
at = "PLACE/the guest's $disk"
by = ["env", "IN_GUEST=1"]
[[workload]]
name = "reads"
rw = "randread"
seconds = 0.1
cache = "cold"
[[workload]]
name = "writes"
rw = "randwrite"
seconds = 0.1
"#;

#[test]
fn the_layers_of_a_stack_are_measured_beside_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let _served = Served::start(place);
    let socket = place.join("nbd.sock").display().to_string();
    let layers = LAYERS.replace("SOCKET", &socket).replace("PLACE", &place.display().to_string());
    // The contents of an export are only overwritten with consent.
    fs::write(place.join("stack.toml"), layers.replace("overwrite = true\n", "")).unwrap();
    let run = lab(place, &["run", "stack.toml", "-o", "out", "--dry-run"]);
    assert!(
        text(&run).matches("overwrite what it holds").count() == 2 && !run.status.success(),
        "{}",
        text(&run)
    );
    // Nothing is made where the lab cannot look.
    assert!(text(&run).contains("the guest's $disk is not there"), "{}", text(&run));
    fs::write(place.join("the guest's $disk"), vec![0; 4 << 20]).unwrap();
    fs::write(place.join("stack.toml"), layers).unwrap();
    let run = lab(place, &["run", "stack.toml", "-o", "out", "--dry-run"]);
    assert!(text(&run).contains("by 'env IN_GUEST=1'): written"), "{}", text(&run));
    let run = lab(place, &["run", "stack.toml", "-o", "out"]);
    assert!(run.status.success(), "{}", text(&run));
    let told = text(&run);
    assert!(told.contains("layer=export") && told.contains("All at one look"), "{told}");
    assert!(told.contains("baseline (layer=device)"), "{told}");
    // What was read had been written before.
    for name in ["device", "the guest's $disk"] {
        let device = fs::read(place.join(name)).unwrap();
        assert_eq!(device.len(), 4 << 20, "{name}");
        assert!(device.iter().filter(|byte| **byte == 0).count() < device.len() / 2, "{name}");
    }
    let page = fs::read_to_string(place.join("out/report.html")).unwrap();
    for expected in
        ["Latency percentiles", "IOPS over time", "\"courses\"", "Layer 'guest' was measured by fio-"]
    {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(place.join("out/report.json")).unwrap()).unwrap();
    let machine = &json["environment"];
    assert_eq!(machine["guests"]["guest"]["cpu_flags"], machine["cpu_flags"]);
    let written = fs::read_to_string(place.join("out/report.md")).unwrap();
    assert!(
        written.contains("Steps within a run are not reported for") && !written.contains("Caution: layer"),
        "{written}"
    );
}

const DEGRADED: &str = r#"
name = "degraded"
rounds = 2
[target]
kind = "volume"
size = "8M"
[settings]
volblocksize = "16K"
compression = "off"
[[factor]]
name = "layout"
values = ["mirror 2", "2", "raidz1 3"]
[[variant]]
layout = "mirror 2 + mirror 2"
sync = "always"
[[workload]]
name = "reads"
rw = "randread"
bs = "16K"
seconds = 0.1
cache = "cold"
[[workload]]
name = "with a device missing"
rw = "randread"
bs = "16K"
seconds = 0.1
cache = "cold"
missing = 1
"#;

#[test]
fn pools_are_measured_with_a_device_missing_and_their_space_is_as_foretold() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("degraded.toml"), DEGRADED).unwrap();
    let run = lab(directory.path(), &["run", "degraded.toml", "-o", "out", "--json"]);
    assert!(run.status.success(), "{}", text(&run));
    let findings: lab::analysis::Findings = serde_json::from_slice(&run.stdout).unwrap();
    let of = |variant: &str, workload: &str, metric| {
        findings.find(variant, workload, metric).map(|finding| finding.median.value)
    };
    use lab::experiment::Metric;
    let both = "layout=mirror 2 + mirror 2 sync=always";
    for variant in ["baseline", "layout=raidz1 3", both] {
        assert!(of(variant, "with a device missing", Metric::Iops).unwrap() > 0.0, "{variant}");
    }
    assert_eq!(of("layout=2", "with a device missing", Metric::Iops), None, "it bears none");
    // Five variants and the raw device, then four.
    assert_eq!((findings.runs, findings.rounds), (2 * (6 + 4), 2));
    for (variant, takes) in [("baseline", 2.0), ("layout=2", 1.0), ("layout=raidz1 3", 1.5)] {
        let space = of(variant, "reads", Metric::Space).unwrap();
        assert!((space / takes - 1.0).abs() < 0.03, "{variant}: {space}");
    }
    assert!(of("baseline", "reads", Metric::Memory).unwrap() > 1e6);
    let report = fs::read_to_string(directory.path().join("out/report.md")).unwrap();
    assert!(report.contains("Space, predicted and measured") && report.contains("lies on"), "{report}");
    assert!(!directory.path().join("out/devices").exists());
}

const ON_DISKS: &str = r#"
name = "disks"
rounds = 2
[target]
kind = "volume"
size = "8M"
layout = "mirror 2"
disks = ["one", "two"]
[settings]
"pool.autotrim" = "on"
[[workload]]
name = "reads"
rw = "randread"
bs = "16K"
seconds = 0.1
cache = "cold"
"#;

#[test]
fn pools_are_made_of_disks_that_are_free_and_of_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for disk in ["one", "two"] {
        fs::File::create(at(disk)).unwrap().set_len(256 << 20).unwrap();
    }
    fs::write(at("disks.toml"), ON_DISKS).unwrap();
    let run = lab(directory.path(), &["run", "disks.toml", "-o", "out"]);
    assert!(run.status.success(), "{}", text(&run));
    // The label of the pool that was destroyed is what they hold now.
    let again = lab(directory.path(), &["run", "disks.toml", "-o", "again", "--dry-run"]);
    assert!(text(&again).contains("destroyed pool 'lab1'"), "{}", text(&again));
    let again = lab(directory.path(), &["run", "disks.toml", "-o", "again", "--dry-run", "--overwrite"]);
    assert!(again.status.success(), "{}", text(&again));
    // Two pools take turns on the same disks.
    let two = ON_DISKS.to_owned() + "[[factor]]\nname = \"ashift\"\nvalues = [\"12\", \"13\"]\n";
    fs::write(at("two.toml"), two).unwrap();
    let run = lab(directory.path(), &["run", "two.toml", "-o", "turns", "--overwrite"]);
    assert!(run.status.success() && text(&run).contains("took turns on the same disks"), "{}", text(&run));
    let layout = ["run", "two.toml", "-o", "more", "--overwrite", "--use-disks", "one", "--dry-run"];
    assert!(text(&lab(directory.path(), &layout)).contains("has 2 devices, and 1 disks are named"));
    // One that a daemon has open is never taken.
    let _served = Served::start(directory.path());
    let taken = ["run", "disks.toml", "-o", "taken", "--overwrite", "--use-disks", "two,disk"];
    let run = lab(directory.path(), &taken);
    let told = text(&run);
    assert!(!run.status.success() && told.contains("disk is open for writing in process"), "{told}");
    assert!(!at("taken").exists());
}

/// A daemon with a pool `tank` that has a volume `tank/vol`; it ends with the test.
struct Served {
    daemon: std::process::Child,
}

impl Served {
    fn start(directory: &Path) -> Self {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_cenote"));
        let daemon = serve.args(["serve", "--socket"]).arg(directory.join("api.sock")).spawn().unwrap();
        let served = Self { daemon };
        wait_for(&directory.join("api.sock"));
        let disk = directory.join("disk");
        fs::File::create(&disk).unwrap().set_len(256 << 20).unwrap();
        let run = |arguments: &[&str]| {
            let ran = cenote(directory, arguments);
            assert!(ran.status.success(), "{arguments:?}: {}", text(&ran));
        };
        run(&["zpool", "create", "-m", "none", "tank", disk.to_str().unwrap()]);
        run(&["zfs", "create", "-s", "-V", "16M", "tank/vol"]);
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn cenote(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.args(arguments).env("CENOTE_SOCKET", directory.join("api.sock")).output().unwrap()
}

fn wait_for(path: &Path) {
    until(|| path.exists());
}

#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it does not come about");
}

const REPLAYED: &str = r#"
name = "replayed"
rounds = 2
[target]
kind = "volume"
size = "16M"
[[workload]]
name = "what was recorded"
rw = "replay"
trace = "vol.trace"
at_once = true
iodepth = 4
"#;

#[test]
fn what_clients_ask_of_a_volume_is_recorded_and_replayed_by_fio() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let _served = Served::start(place);
    let trace = place.join("vol.trace");
    let mut record = Command::new(env!("CARGO_BIN_EXE_cenote"));
    record.args(["lab", "record", "tank/vol", "--most", "200", "-o"]).arg(&trace);
    let mut record = record.env("CENOTE_SOCKET", place.join("api.sock")).spawn().unwrap();
    // It is made once the recording has begun.
    wait_for(&trace);
    let mut fio = Command::new("fio");
    fio.args(["--name=load", "--ioengine=nbd", "--rw=randrw", "--bs=8k", "--size=16M", "--number_ios=300"]);
    fio.arg(format!("--uri=nbd+unix:///tank/vol?socket={}", place.join("nbd.sock").display()));
    let load = fio.output().unwrap();
    assert!(load.status.success(), "{}", text(&load));
    assert!(record.wait().unwrap().success());

    let recorded = fs::read_to_string(&trace).unwrap();
    let count = |operation: &str| recorded.lines().filter(|line| line.contains(operation)).count() as u64;
    let (reads, writes) = (count(" read "), count(" write "));
    assert!(reads > 50 && writes > 50 && reads + writes <= 200, "{recorded}");
    assert!(recorded.lines().filter(|line| line.contains(" read ")).all(|line| line.ends_with(" 8192")));

    fs::write(place.join("replayed.toml"), REPLAYED).unwrap();
    let run = lab(place, &["run", "replayed.toml", "-o", "out", "--json"]);
    assert!(run.status.success(), "{}", text(&run));
    let shown = lab(place, &["report", "out", "--run", "1"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let done = |direction: &str| shown["fio"]["jobs"][0][direction]["total_ios"].as_u64().unwrap();
    // As often as it takes to be measured, each time all of it.
    let times = done("read") / reads;
    assert!(times > 0, "{shown}");
    assert_eq!((done("read"), done("write")), (reads * times, writes * times));

    let missing = cenote(place, &["lab", "record", "tank/none", "-o", "none.trace"]);
    assert!(!missing.status.success() && text(&missing).contains("tank/none"), "{}", text(&missing));
}

const ON_EXISTING: &str = r#"
name = "existing"
rounds = 2
seed = 3
[target]
kind = "existing"
volume = "tank/vol"
size = "16M"
[[factor]]
name = "volblocksize"
values = ["64K", "16K"]
[[factor]]
name = "primarycache"
values = ["all", "metadata"]
[[workload]]
name = "reads"
rw = "randread"
bs = "4K"
seconds = 0.3
"#;

impl Served {
    /// Fills its volume with blocks that say what they are.
    fn fill(place: &Path) {
        Self::fio(place, &["--rw=write", "--do_verify=0"]);
    }

    /// That all of these blocks are there.
    fn verify(place: &Path) {
        Self::fio(place, &["--rw=read"]);
    }

    fn fio(place: &Path, arguments: &[&str]) {
        let mut fio = Command::new("fio");
        fio.args(["--name=data", "--ioengine=nbd", "--bs=64k", "--size=16M", "--verify=crc32c"]);
        fio.arg(format!("--uri=nbd+unix:///tank/vol?socket={}", place.join("nbd.sock").display()));
        let did = fio.args(arguments).current_dir(place).output().unwrap();
        assert!(did.status.success(), "{}", text(&did));
    }

    /// Volumes, and of the one that holds data what the lab may set, where that comes from, and its room.
    fn state(place: &Path) -> String {
        let properties = "volblocksize,primarycache,compression,checksum,dedup,sync,logbias,refreservation,\
                          volsize";
        let volumes = cenote(place, &["zfs", "list", "-H", "-o", "name", "-t", "volume,snapshot"]);
        let get = ["zfs", "get", "-Hp", "-o", "property,value,source", properties, "tank/vol"];
        text(&volumes) + &text(&cenote(place, &get))
    }
}

#[test]
fn a_volume_that_holds_data_is_rewritten_for_variants_and_is_as_before_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let _served = Served::start(place);
    for set in ["compression=gzip-2", "sync=always", "refreservation=20M"] {
        assert!(cenote(place, &["zfs", "set", set, "tank/vol"]).status.success());
    }
    Served::fill(place);
    let before = Served::state(place);
    let (file, out) = (place.join("existing.toml"), place.join("out"));
    fs::write(&file, ON_EXISTING).unwrap();
    let run = |arguments: &[&str]| {
        let named = ["lab", "run", file.to_str().unwrap(), "-o", out.to_str().unwrap()];
        cenote(place, &[&named[..], arguments].concat())
    };
    let refused = |what: &str| {
        let refused = run(&[]);
        assert!(!refused.status.success() && text(&refused).contains(what), "{what}: {}", text(&refused));
        assert!(!out.exists());
    };
    assert!(cenote(place, &["zfs", "snapshot", "tank/vol@kept"]).status.success());
    refused("(tank/vol@kept), which would stay with the old volume");
    assert!(cenote(place, &["zfs", "destroy", "tank/vol@kept"]).status.success());
    fs::write(&file, ON_EXISTING.replace("randread", "randwrite")).unwrap();
    refused("target tank/vol: workloads would overwrite what it holds");
    fs::write(&file, ON_EXISTING.replace("16M", "32M")).unwrap();
    refused("target tank/vol: it has 16M");
    fs::write(&file, ON_EXISTING.replace("64K", "12K")).unwrap();
    refused("power of 2");
    fs::write(&file, ON_EXISTING).unwrap();
    let planned = run(&["--dry-run"]);
    let told = "2 block sizes take turns: the volume is rewritten for each in every round";
    assert!(planned.status.success() && text(&planned).contains(told), "{}", text(&planned));
    assert!(!out.exists() && Served::state(place) == before);

    let ran = run(&["--json"]);
    assert!(ran.status.success(), "{}", text(&ran));
    assert_eq!(Served::state(place), before);
    assert!(!out.join("existing.json").exists());
    Served::verify(place);
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("the volume tank/vol, which held data"), "{report}");
    assert!(report.contains("and was read as it was found"), "{report}");
    // At most once for each of two block sizes in each of two rounds; the first may have been there.
    let times = report.split("before a run: ").nth(1).unwrap().split(' ').next().unwrap();
    assert!((2..=4).contains(&times.parse::<u32>().unwrap()), "{times}");
    let history = text(&cenote(place, &["zpool", "history", "-i", "tank"]));
    assert!(history.contains("reshape tank/vol"), "{history}");
}

#[test]
fn a_volume_that_holds_data_is_as_before_after_an_experiment_that_was_stopped_or_killed() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let _served = Served::start(place);
    Served::fill(place);
    let before = Served::state(place);
    let long = ON_EXISTING.replace("seconds = 0.3", "seconds = 120");
    let is_rewritten = || Served::state(place).contains("volblocksize\t65536");
    interrupted_when(place, &long, |out| out.join("existing.json").exists() && is_rewritten());
    assert_eq!(Served::state(place), before);
    assert!(!place.join("out/existing.json").exists());

    let mut resume = Command::new(env!("CARGO_BIN_EXE_cenote"));
    resume.args(["lab", "resume", "out"]).current_dir(place).env("CENOTE_SOCKET", place.join("api.sock"));
    let mut resume = resume.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until(is_rewritten);
    resume.kill().unwrap();
    resume.wait().unwrap();
    assert!(place.join("out/existing.json").exists());
    // What others made meanwhile is not destroyed.
    assert!(cenote(place, &["zfs", "snapshot", "tank/vol@theirs"]).status.success());
    let out = place.join("out");
    let clean = || cenote(place, &["lab", "clean", out.to_str().unwrap()]);
    let cleaned = clean();
    let told = "tank/vol.volblocksize-64K is what tank/vol was before it was rewritten, and is kept";
    assert!(!cleaned.status.success() && text(&cleaned).contains(told), "{}", text(&cleaned));
    let kept = Served::state(place);
    assert!(kept.contains("tank/vol.volblocksize-64K@theirs\n"), "{kept}");
    assert!(cenote(place, &["zfs", "destroy", "-r", "tank/vol.volblocksize-64K"]).status.success());
    assert!(clean().status.success() && !out.join("existing.json").exists());
    assert_eq!(Served::state(place), before);
    Served::verify(place);
}

#[test]
fn presets_that_flush_run_on_volumes() {
    let directory = tempfile::tempdir().unwrap();
    let of = |name| format!("[[workload]]\npreset = \"{name}\"\nseconds = 0.1\n");
    let workloads: String = ["database-8k", "log-writer", "mail"].map(of).concat();
    let text_of =
        format!("name = \"presets\"\nrounds = 2\n[target]\nkind = \"volume\"\nsize = \"16M\"\n{workloads}");
    fs::write(directory.path().join("presets.toml"), text_of).unwrap();
    let run = lab(directory.path(), &["run", "presets.toml", "-o", "out", "--json"]);
    assert!(run.status.success(), "{}", text(&run));
}

/// Runs an experiment in `out` of a directory, and interrupts it as soon as there is `seen` in that.
fn interrupted(directory: &Path, experiment: &str, seen: &str) {
    interrupted_when(directory, experiment, |out| out.join(seen).exists());
}

/// Runs an experiment in `out` of a directory, and interrupts it as soon as `is_time` says so, which gets
/// `out`.
fn interrupted_when(directory: &Path, experiment: &str, is_time: impl Fn(&Path) -> bool) {
    use std::os::unix::process::CommandExt;
    fs::write(directory.join("experiment.toml"), experiment).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_cenote"));
    run.args(["lab", "run", "experiment.toml", "-o", "out"]).current_dir(directory).process_group(0);
    // Where a daemon runs for the test, it is that one.
    run.env("CENOTE_SOCKET", directory.join("api.sock"));
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let signal = |signal: &str, run: &std::process::Child| {
        // As a terminal does: to all that is in the foreground.
        let group = format!("-{}", run.id());
        assert!(Command::new("kill").args([signal, "--", &group]).status().unwrap().success());
    };
    let started = std::time::Instant::now();
    while !is_time(&directory.join("out")) {
        let ended = run.try_wait().unwrap();
        if ended.is_some() || started.elapsed() > std::time::Duration::from_secs(120) {
            if ended.is_none() {
                signal("-QUIT", &run);
            }
            let run = run.wait_with_output().unwrap();
            panic!("not to be interrupted after {:?}: {:?}\n{}", started.elapsed(), run.status, text(&run));
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let interrupted = std::time::Instant::now();
    signal("-INT", &run);
    let ended = run.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended));
    assert!(interrupted.elapsed() < std::time::Duration::from_secs(60), "{:?}", interrupted.elapsed());
    assert!(text(&ended).contains("stopped; to go on: cenote lab resume out"), "{}", text(&ended));
    assert!(!directory.join("out/devices").exists());
}

#[test]
fn ctrl_c_ends_the_run_that_is_under_way_and_keeps_those_before() {
    let directory = tempfile::tempdir().unwrap();
    // The runs of one workload would go on for two minutes each.
    let long = SMALL.replace("seconds = 0.8\ncache", "seconds = 120\ncache");
    interrupted_when(directory.path(), &long, |out| {
        // What fio was called with ends each word with a null byte.
        let words = [format!("{}/devices/steps/", out.display()), "--runtime=120000ms".to_owned()];
        let is_long = |process: fs::DirEntry| {
            let called = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let called = String::from_utf8_lossy(&called);
            called.starts_with("fio") && words.iter().all(|word| called.contains(word))
        };
        fs::read_dir("/proc").unwrap().flatten().any(is_long)
    });
    let resumed = fs::read_to_string(directory.path().join("out/experiment.toml")).unwrap();
    assert!(resumed.contains("seconds = 120"), "{resumed}");
    fs::write(directory.path().join("out/experiment.toml"), resumed.replace("120.0", "0.8")).unwrap();
    let resumed = lab(directory.path(), &["resume", "out", "--json"]);
    assert!(resumed.status.success(), "{}", text(&resumed));
    let findings: serde_json::Value = serde_json::from_slice(&resumed.stdout).unwrap();
    assert_eq!((findings["runs"].as_u64(), findings["rounds"].as_u64()), (Some(16), Some(2)));
}

const IN_PROCESS: &str = r#"
name = "inside"
rounds = 2
[target]
kind = "volume"
size = "16M"
devices = "nvme"
[settings]
through = "process"
[[workload]]
name = "writes"
rw = "randwrite"
bs = "16K"
iodepth = 8
seconds = 600
options = { fsync = "8" }
"#;

#[test]
fn ctrl_c_ends_a_run_in_the_process_that_has_the_pool_open() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    interrupted_when(directory.path(), IN_PROCESS, |out| {
        let device = out.join("devices/modelled/nvme/lab1-0");
        // Much more than what the volume is filled with.
        fs::metadata(&device).is_ok_and(|it| it.blocks() * 512 > 64 << 20)
    });
    let report = lab(directory.path(), &["report", "out"]);
    assert!(text(&report).contains("no run has ended yet"), "{}", text(&report));
}

/// Its disk takes seconds to be filled.
const SLOW: &str = r#"
name = "slow"
rounds = 2
[target]
kind = "volume"
size = "256M"
devices = "hdd-7200+100%"
[[workload]]
name = "reads"
rw = "randread"
seconds = 0.1
"#;

#[test]
fn ctrl_c_ends_the_filling_of_a_volume() {
    let directory = tempfile::tempdir().unwrap();
    interrupted(directory.path(), SLOW, "devices/modelled/hdd-7200+100%/lab1-0");
    // Nothing was measured in what is half full.
    let report = lab(directory.path(), &["report", "out"]);
    assert!(text(&report).contains("no run has ended yet"), "{}", text(&report));
}

const LOST: &str = r#"
name = "lost"
rounds = 2
[target]
kind = "volume"
size = "16M"
layout = "1"
[[factor]]
name = "volblocksize"
values = ["16K", "8K"]
[[workload]]
name = "writes"
rw = "randwrite"
bs = "4K"
seconds = 0.5
"#;

/// The daemon that a lab started.
fn daemon_of(lab: u32) -> Option<String> {
    let children = fs::read_to_string(format!("/proc/{lab}/task/{lab}/children")).unwrap_or_default();
    let is_daemon = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.contains("\0serve\0"))
    };
    children.split_whitespace().find(is_daemon).map(str::to_owned)
}

#[test]
fn a_pool_whose_devices_take_nothing_more_ends_an_experiment_that_can_be_gone_on_with() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("lost.toml"), LOST).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_cenote"));
    run.args(["lab", "run", "lost.toml", "-o", "out"]).current_dir(directory.path());
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let device = directory.path().join("out/devices/lab1-0");
    // The pool is there, and a volume is being filled.
    until(|| fs::metadata(&device).is_ok_and(|it| it.blocks() * 512 > 4 << 20));
    let daemon = daemon_of(run.id()).unwrap();
    let set = Command::new("prlimit").args(["--pid", &daemon, "--fsize=0:unlimited"]).status();
    assert!(set.unwrap().success());
    let ended = run.wait_with_output().unwrap();
    let told = text(&ended);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    for expected in ["lab resume out", "lab1", device.to_str().unwrap()] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    // Of the write that failed, or of one that found no place afterwards.
    assert!(told.contains("File too large") || told.contains("is away"), "{told}");
    let resumed = lab(directory.path(), &["resume", "out", "--json"]);
    assert!(resumed.status.success(), "{}", text(&resumed));
    let findings: serde_json::Value = serde_json::from_slice(&resumed.stdout).unwrap();
    assert_eq!(findings["rounds"].as_u64(), Some(2));
}

const LEVELS: &str = r#"
name = "levels"
rounds = 3
[target]
kind = "volume"
size = "8M"
[settings]
volblocksize = "16K"
compression = "lz4"
[[factor]]
name = "through"
values = ["nbd", "process"]
[[workload]]
name = "stable writes"
rw = "randwrite"
bs = "4K"
seconds = 0.2
compressible = 50
options = { fsync = "4" }
[[workload]]
name = "mixed"
rw = "randrw"
bs = "4K"
iodepth = 8
seconds = 0.2
compressible = 50
options = { rwmixread = "75", numjobs = "2" }
cache = "cold"
"#;

#[test]
fn a_volume_is_measured_with_and_without_its_export() {
    use lab::experiment::Metric;
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("levels.toml"), LEVELS).unwrap();
    let run = lab(directory.path(), &["run", "levels.toml", "-o", "out", "--json"]);
    assert!(run.status.success(), "{}", text(&run));
    let findings: lab::analysis::Findings = serde_json::from_slice(&run.stdout).unwrap();
    let finding = |variant: &str, workload: &str, metric| {
        findings.find(variant, workload, metric).unwrap_or_else(|| panic!("{variant} {workload} {metric:?}"))
    };
    // Both go to a volume of their own that is made and filled alike: the volume tells them apart by nothing
    // but its client.
    for workload in ["stable writes", "mixed"] {
        for metric in [Metric::Iops, Metric::LatencyP99, Metric::Amplification, Metric::Cpu] {
            assert!(finding("through=process", workload, metric).median.value > 0.0, "{workload} {metric:?}");
        }
        let space = |variant| finding(variant, workload, Metric::Space).median.value;
        assert!((space("through=process") / space("baseline") - 1.0).abs() < 0.1, "{workload}");
    }
    // What the process said of a run is kept as fio's words are, and so is what it was asked for.
    let number = finding("through=process", "stable writes", Metric::Iops).runs[0].to_string();
    let shown = lab(directory.path(), &["report", "out", "--run", &number]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let said = &shown["fio"];
    let job = &said["jobs"][0];
    let (writes, flushes) =
        (job["write"]["total_ios"].as_u64().unwrap(), job["sync"]["total_ios"].as_u64().unwrap());
    assert!(flushes > 0 && (flushes * 4..flushes * 4 + 5).contains(&writes), "{said}");
    assert_eq!(job["write"]["io_bytes"].as_u64().unwrap(), writes * 4096);
    let iops = finding("through=process", "stable writes", Metric::Iops).values[0];
    assert!((job["write"]["iops"].as_f64().unwrap() / iops - 1.0).abs() < 1e-6, "{said}");
    // Both tell how long reads took and writes, and that of both together is between them.
    for variant in ["baseline", "through=process", "raw device"] {
        let its = |it: &&lab::analysis::Directions| it.variant == variant && it.workload == "mixed";
        let both = findings.directions.iter().find(its).unwrap_or_else(|| panic!("{variant}"));
        assert!(both.reads.operations > both.writes.operations && both.writes.operations > 0, "{both:?}");
        assert!(both.reads.p50 > 0.0 && both.writes.p99 >= both.writes.p50, "{both:?}");
        let all = finding(variant, "mixed", Metric::LatencyP999).values[0];
        let shown = lab(directory.path(), &["report", "out", "--run", &both.runs[0].to_string()]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        let of = |way: usize| shown["run"]["figures"]["by_direction"][way]["p999"].as_f64().unwrap();
        assert!((of(0).min(of(1))..=of(0).max(of(1))).contains(&all), "{variant}: {all} {} {}", of(0), of(1));
    }
    let report = fs::read_to_string(directory.path().join("out/report.md")).unwrap();
    assert!(report.contains("of all its operations together"), "{report}");
    assert!(report.contains("The gap by layer") && report.contains("pool to export"), "{report}");
    // The way is measured; it is nothing to choose.
    assert!(
        report.contains("In the process that has the pool open") && !findings.verdict.contains("best"),
        "{report}"
    );
    assert!(!directory.path().join("out/devices").exists());
}

#[test]
fn what_a_pools_process_does_not_do_is_refused_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    for (wrong, named) in [
        (LEVELS.replace("\"process\"", "\"iscsi\""), "through=iscsi"),
        (
            LEVELS
                .replace("kind = \"volume\"", "kind = \"filesystem\"")
                .replace("volblocksize", "recordsize"),
            "through",
        ),
        (LEVELS.replace("rwmixread = \"75\"", "bssplit = \"4k/50:8k/40\""), "bssplit=4k/50:8k/40"),
        (LEVELS.replace("rwmixread = \"75\"", "thinktime = \"100\""), "thinktime=100"),
        (LEVELS.replace("rounds = 3", "rounds = 3\nmode = \"search\""), "nothing to search for"),
        (
            LEVELS.replace(
                "[[workload]]\nname = \"mixed\"",
                "[[factor]]\nname = \"direct\"\nvalues = [\"0\", \"1\"]\n[[workload]]\nname = \"mixed\"",
            ),
            "factor 'direct'",
        ),
    ] {
        fs::write(directory.path().join("levels.toml"), wrong).unwrap();
        let run = lab(directory.path(), &["run", "levels.toml", "-o", "out"]);
        assert!(!run.status.success() && text(&run).contains(named), "{named}: {}", text(&run));
        assert!(!directory.path().join("out").exists(), "{named}");
    }
    let made =
        lab(directory.path(), &["new", "-w", "database-8k", "-f", "through=nbd,process", "-o", "mine.toml"]);
    assert!(made.status.success(), "{}", text(&made));
    let refused = lab(directory.path(), &["new", "-w", "randtrim,4K", "-f", "through=nbd,process"]);
    assert!(!refused.status.success() && text(&refused).contains("randtrim"), "{}", text(&refused));
}

#[test]
fn presets_with_sizes_and_places_of_their_own_are_done_alike_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    let presets = ["vm-boot-storm", "mail", "web", "media-streaming"];
    let of = |name| format!("[[workload]]\npreset = \"{name}\"\nseconds = 0.3\n");
    let text_of = format!(
        "name = \"presets\"\nrounds = 2\n[target]\nkind = \"volume\"\nsize = \"16M\"\n\
         [[factor]]\nname = \"through\"\nvalues = [\"nbd\", \"process\"]\n{}",
        presets.map(of).concat()
    );
    fs::write(directory.path().join("presets.toml"), text_of).unwrap();
    let run = lab(directory.path(), &["run", "presets.toml", "-o", "out", "--json"]);
    assert!(run.status.success(), "{}", text(&run));
    let findings: lab::analysis::Findings = serde_json::from_slice(&run.stdout).unwrap();
    for (workload, sizes) in [
        ("boot storm", &[(4, 40), (16, 30), (32, 15), (64, 15)][..]),
        ("mail", &[(4, 60), (16, 25), (64, 15)]),
        ("web 95/5", &[(4, 30), (16, 40), (64, 30)]),
        ("media streaming", &[(1024, 100)]),
    ] {
        for variant in ["baseline", "through=process"] {
            let found = findings.find(variant, workload, lab::experiment::Metric::Iops).unwrap();
            for number in &found.runs {
                let shown = lab(directory.path(), &["report", "out", "--run", &number.to_string()]);
                let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
                let said = &shown["fio"];
                let all = |what: &str| {
                    ["read", "write"]
                        .map(|way| said["jobs"][0][way][what].as_u64().unwrap())
                        .iter()
                        .sum::<u64>()
                };
                let (count, bytes) = (all("total_ios") as f64, all("io_bytes") as f64 / 1024.0);
                // By their shares; chance has less to say the more there are.
                let mean = sizes.iter().map(|(kib, percent)| kib * percent).sum::<u64>() as f64 / 100.0;
                let square =
                    sizes.iter().map(|(kib, percent)| kib * kib * percent).sum::<u64>() as f64 / 100.0;
                let off =
                    (bytes / count - mean).abs() / ((square - mean * mean).max(0.0) / count).sqrt().max(1e-9);
                println!(
                    "{variant} {workload}: {count} of {:.2} KiB, expected {mean}: {off:.1}",
                    bytes / count
                );
                assert!(count > 0.0 && (off < 6.0 || bytes == count * mean), "{variant} {workload}: {said}");
            }
        }
    }
}

#[test]
fn nothing_is_removed_that_the_lab_did_not_make() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("small.toml"), SMALL).unwrap();
    for theirs in ["home/mnt", "home/devices", "target/lab-files"] {
        fs::create_dir_all(at(theirs)).unwrap();
        fs::write(at(theirs).join("theirs"), "x").unwrap();
    }
    // A home is no place for results.
    let run = lab(&at("home"), &["run", "../small.toml", "-o", "."]);
    assert!(!run.status.success() && text(&run).contains("not empty"), "{}", text(&run));
    // Nor does a user's directory become the lab's by its name.
    let files = SEARCHED.replace("\"search\"", "\"each\"").replace("budget = 5", "");
    let files = files.replace("path = \"data\"", &format!("path = \"{}\"", at("target").display()));
    fs::write(at("files.toml"), &files).unwrap();
    let dry = lab(directory.path(), &["run", "files.toml", "-o", "out", "--dry-run"]);
    let run = lab(directory.path(), &["run", "files.toml", "-o", "out"]);
    assert!(!run.status.success() && text(&run).contains("did not make it"), "{}", text(&run));
    assert_eq!((dry.status.code(), text(&dry)), (run.status.code(), text(&run)));
    // What appears in a directory of results is not the lab's either.
    Store::create(&at("out"), Experiment::parse(&files).unwrap(), Environment::default()).unwrap();
    for theirs in ["out/mnt", "out/devices"] {
        fs::create_dir_all(at(theirs)).unwrap();
        fs::write(at(theirs).join("theirs"), "x").unwrap();
    }
    let clean = lab(directory.path(), &["clean", "out"]);
    assert!(clean.status.success() && text(&clean).contains("left alone"), "{}", text(&clean));
    for theirs in ["home/mnt", "home/devices", "target/lab-files", "out/mnt", "out/devices"] {
        assert!(at(theirs).join("theirs").exists(), "{theirs}");
    }
}

const AT_A_PATH: &str = r#"
name = "path"
rounds = 2
[target]
kind = "path"
path = "data"
size = "4M"
[[factor]]
name = "iodepth"
values = ["1", "2"]
[[workload]]
name = "writes"
rw = "randwrite"
seconds = 0.5
"#;

#[test]
fn what_is_gone_on_with_elsewhere_measures_the_same_file() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("data"), "theirs").unwrap();
    interrupted(directory.path(), AT_A_PATH, "devices/steps");
    let resumed = lab(&elsewhere, &["resume", "../out"]);
    assert!(resumed.status.success(), "{}", text(&resumed));
    assert_eq!(fs::read_to_string(elsewhere.join("data")).unwrap(), "theirs");
    // One that was begun before paths were kept whole says what it needs.
    let written = directory.path().join("out/experiment.toml");
    let whole = directory.path().canonicalize().unwrap().join("data");
    let relative = fs::read_to_string(&written).unwrap().replace(whole.to_str().unwrap(), "data");
    fs::write(&written, relative).unwrap();
    let resumed = lab(&elsewhere, &["resume", "../out"]);
    assert!(!resumed.status.success() && text(&resumed).contains("whole path"), "{}", text(&resumed));
}

#[test]
fn a_device_that_is_not_there_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let missing = format!("/dev/cenote-lab-{}", std::process::id());
    fs::write(directory.path().join("path.toml"), AT_A_PATH.replace("\"data\"", &format!("\"{missing}\"")))
        .unwrap();
    let run = lab(directory.path(), &["run", "path.toml", "-o", "out"]);
    assert!(!run.status.success() && text(&run).contains("no such device"), "{}", text(&run));
    assert!(!Path::new(&missing).exists() && !directory.path().join("out").exists());
}

/// `zpool` of OpenZFS 0.8, as far as a look at a pool asks it: it has no JSON and no properties of vdevs.
const HOST_ZPOOL: &str = r#"#!/bin/sh
case "$*" in
"list -H -o name") echo tank;;
"get -Hp -o property,value all tank") printf 'capacity\t10\nashift\t12\n';;
"status -Pp tank") printf '  pool: tank\n state: DEGRADED\n  scan: none requested\nconfig:\n\n\tNAME        STATE     READ WRITE CKSUM\n'
  printf '\ttank        DEGRADED     0     0     0\n\t  mirror-0  DEGRADED     0     0     0\n'
  printf '\t    /no/sda  ONLINE       0     0     0\n\t    /no/sdb  ONLINE       0     0     0\n'
  printf '\t    /no/sdc  FAULTED      0     0     0  too many errors\n\nerrors: No known data errors\n';;
"get -Hp -o name,value read_ops tank all-vdevs"|"get -Hp -o name,value write_ops tank all-vdevs")
  printf 'mirror-0\t9000\nsda\t3000\nsdb\t3000\nsdc\t3000\n';;
"iostat -HplvP tank") for it in tank:9 mirror-0:9 /no/sda:1000 /no/sdb:1000 /no/sdc:90000; do
  printf '%s\t-\t-\t1\t1\t1\t1\t-\t%s\t-\t-\t-\t-\t-\t-\t-\t-\n' "${it%:*}" "${it#*:}"; done;;
*) echo "invalid option: $*" >&2; exit 2;;
esac
"#;
const HOST_ZFS: &str = r#"#!/bin/sh
printf 'tank\ttype\tfilesystem\t-\ntank\tchecksum\toff\tlocal\ntank/fs\ttype\tfilesystem\t-\ntank/fs\tchecksum\toff\tinherited from tank\n'
"#;

#[test]
fn a_host_is_advised_by_what_its_own_commands_have() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    for (name, script) in [("zpool", HOST_ZPOOL), ("zfs", HOST_ZFS)] {
        let path = directory.path().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let mut advise = Command::new(env!("CARGO_BIN_EXE_cenote"));
    let advised = advise.args(["lab", "advise", "--host"]).env("PATH", path).output().unwrap();
    assert!(advised.status.success(), "{}", text(&advised));
    let told = text(&advised);
    assert!(told.contains("/no/sdc (pool tank): watch it") && told.contains("/no/sdc is FAULTED"), "{told}");
    assert!(told.contains("DANGER tank: set checksum=on") && !told.contains("tank/fs"), "{told}");
}
