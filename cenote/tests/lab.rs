//! Experiments, from a file to the report, by the binary and real fio.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

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
seconds = 0.2
options = { fsync = "1" }
[[workload]]
name = "cold reads"
rw = "randread"
bs = "4K"
seconds = 0.2
cold = true
"#;

fn lab(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.arg("lab").args(arguments).current_dir(directory);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
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
    if let Some(amplification) = of("baseline", "amplification") {
        assert!(amplification >= 2.0 || amplification == 0.0, "{amplification}");
    }
    assert_eq!(of("raw device", "cpu"), None);
    let out = directory.path().join("out");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("log=file") && page.contains("<svg"), "{page}");
    assert_eq!(fs::read_to_string(out.join("report.csv")).unwrap().lines().count(), 17);
    assert!(!out.join("devices").exists(), "the pools are gone");

    // Nothing is left to do, and nothing is measured again.
    let before = fs::read(out.join("runs.jsonl")).unwrap();
    let again = lab(directory.path(), &["resume", "out"]);
    assert!(again.status.success(), "{}", text(&again));
    assert_eq!(fs::read(out.join("runs.jsonl")).unwrap(), before);
    let twice = lab(directory.path(), &["run", "small.toml", "-o", "out"]);
    assert!(!twice.status.success() && text(&twice).contains("resume it"), "{}", text(&twice));
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
}
