//! What the lab does when runs fail, and what it says of what is not there.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const SMALL: &str = r#"
name = "small"
rounds = 3
seed = 7
[target]
kind = "volume"
size = "4M"
[[factor]]
name = "volblocksize"
values = ["16K", "8K"]
[[workload]]
name = "reads"
rw = "randread"
seconds = 0.1
"#;

/// A fio that counts its measured runs, and fails in those whose numbers are in the file `failing`.
const FIO: &str = r#"#!/bin/sh
here=$(dirname "$0")
case "$* " in
*--parse-only*) ;;
*--runtime=*)
    number=$(($(cat "$here/count" 2>/dev/null || echo 0) + 1))
    echo $number >"$here/count"
    if grep -qx -e $number -e all "$here/failing"; then
        echo "fio is broken today" >&2
        exit 1
    fi ;;
esac
PATH=${PATH#"$here:"} exec fio "$@"
"#;

/// A lab whose fio fails in the measured runs of these numbers.
struct Failing(tempfile::TempDir);

impl Failing {
    fn at(numbers: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bin = directory.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("fio"), FIO).unwrap();
        fs::set_permissions(bin.join("fio"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(directory.path().join("small.toml"), SMALL).unwrap();
        let failing = Self(directory);
        failing.fails_at(numbers);
        failing
    }

    fn fails_at(&self, numbers: &[&str]) {
        let _ = fs::remove_file(self.0.path().join("bin/count"));
        fs::write(self.0.path().join("bin/failing"), numbers.join("\n")).unwrap();
    }

    fn lab(&self, arguments: &[&str]) -> Output {
        let path = format!("{}:{}", self.0.path().join("bin").display(), std::env::var("PATH").unwrap());
        lab(self.0.path(), |command| command.args(arguments).env("PATH", path))
    }
}

fn lab(directory: &Path, with: impl FnOnce(&mut Command) -> &mut Command) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    with(command.arg("lab").current_dir(directory)).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[test]
fn a_run_that_fails_is_tried_again_and_then_left_out_with_a_word() {
    // A round has four runs. The fourth one fails each time; the next succeeds at its second try.
    let failing = Failing::at(&["4", "5", "6", "7"]);
    let run = failing.lab(&["run", "small.toml", "-o", "out", "--json"]);
    assert!(run.status.success(), "{}", text(&run));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(said.matches("fio is broken today; it is tried again").count(), 3, "{said}");
    assert!(said.contains("it failed each time that it was tried"), "{said}");
    let findings: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((findings["runs"].as_u64(), findings["rounds"].as_u64()), (Some(11), Some(3)));
    let left_out = findings["left_out"].as_array().unwrap();
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    assert_eq!((&left_out[0]["rounds"], &left_out[0]["measured"]), (&serde_json::json!([1]), &2.into()));
    assert!(left_out[0]["why"].as_str().unwrap().contains("It failed 3 times"), "{left_out:?}");
    assert!(findings["unfinished"].is_null(), "{findings}");
    let facts = findings["facts"].to_string();
    assert!(facts.contains("A run succeeded at try 2"), "{facts}");
    let page = fs::read_to_string(failing.0.path().join("out/report.html")).unwrap();
    assert!(page.contains("Left out: ") && page.contains("fio is broken today"), "{page}");
    assert!(!failing.0.path().join("out/devices").exists());
}

#[test]
fn an_experiment_that_fails_as_a_whole_ends_with_its_error_and_goes_on_later() {
    let failing = Failing::at(&["all"]);
    let run = failing.lab(&["run", "small.toml", "-o", "out"]);
    let said = text(&run);
    assert!(!run.status.success() && said.contains("fio is broken today"), "{said}");
    assert!(said.contains("cenote lab resume out"), "{said}");
    // After one run that succeeded, others that fail are left out, but not all that there are.
    let numbers: Vec<String> = (2..40).map(|number: usize| number.to_string()).collect();
    failing.fails_at(&numbers.iter().map(String::as_str).collect::<Vec<_>>());
    let run = failing.lab(&["resume", "out"]);
    assert!(!run.status.success() && text(&run).contains("fio is broken today"), "{}", text(&run));
    // What was left out before that is no gap.
    failing.fails_at(&[]);
    let run = failing.lab(&["resume", "out", "--json"]);
    assert!(run.status.success(), "{}", text(&run));
    let findings: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&findings["left_out"], &findings["rounds"]), (&serde_json::json!([]), &3.into()));
}

#[test]
fn what_cannot_be_run_is_said_with_where_it_was_looked_for_and_what_there_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("mine.toml"), SMALL).unwrap();
    let said = |name: &str| {
        let run = lab(directory.path(), |command| command.args(["run", name]));
        assert!(!run.status.success());
        text(&run)
    };
    let file = said("nosuch.toml");
    let at = fs::canonicalize(directory.path()).unwrap();
    assert!(file.contains("there is no file 'nosuch.toml'"), "{file}");
    assert!(file.contains(&format!("{} has mine.toml", at.display())), "{file}");
    assert!(file.contains("scrub-of-death") && file.contains("volblocksize"), "{file}");
    assert_eq!(file.matches("there is no").count(), 1, "{file}");
    let elsewhere = said("none/nosuch.toml");
    assert!(elsewhere.contains("No such file or directory"), "{elsewhere}");
    let recipe = said("scrub-of-deth");
    assert!(recipe.contains("no recipe, no scenario and no file"), "{recipe}");
    assert!(recipe.contains("did you mean 'scrub-of-death'"), "{recipe}");
}

#[test]
fn advice_on_a_pool_that_is_not_open_says_which_are() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("api.sock");
    let cenote = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(arguments).env("CENOTE_SOCKET", &socket).output().unwrap()
    };
    let none = cenote(&["lab", "advise", "nosuch"]);
    assert!(!none.status.success(), "{}", text(&none));
    for told in ["'nosuch'", "no pool is open", "cenote zpool import", socket.to_str().unwrap()] {
        assert!(text(&none).contains(told), "{told}: {}", text(&none));
    }
    let mut serve = Command::new(env!("CARGO_BIN_EXE_cenote"));
    let mut serve = serve.arg("serve").env("CENOTE_SOCKET", &socket).current_dir(&directory).spawn().unwrap();
    let disk = directory.path().join("disk");
    fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let started = std::time::Instant::now();
    while !socket.exists() {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "the daemon does not listen");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let made = cenote(&["zpool", "create", "-m", "none", "tank", disk.to_str().unwrap()]);
    let (other, dataset) = (cenote(&["lab", "advise", "tnak"]), cenote(&["lab", "advise", "tank/fs"]));
    let right = cenote(&["lab", "advise", "tank"]);
    let _ = cenote(&["zpool", "export", "tank"]);
    let _ = (serve.kill(), serve.wait());
    assert!(made.status.success(), "{}", text(&made));
    assert!(right.status.success(), "{}", text(&right));
    assert!(!other.status.success() && text(&other).contains("its pools are tank"), "{}", text(&other));
    assert!(text(&dataset).contains("cenote lab advise tank"), "{}", text(&dataset));
}
