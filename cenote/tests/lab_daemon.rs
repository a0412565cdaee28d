//! Experiments that the daemon runs: started, watched, stopped, resumed, read, applied and reverted through
//! the API, with the real lab and fio; and what becomes of one when daemons come and go.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::lab::environment::Environment;
use ::lab::experiment::Experiment;
use ::lab::fio::Figures;
use ::lab::store::{Run, Stage, Store};
use serde_json::{Value, json};
use server::progress_file::Process;

/// How long anything here may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);

/// What no log may repeat.
const SECRET: &str = "tell-no-log";

fn small(rounds: usize) -> String {
    format!(
        r#"
name = "small"
question = "Does {SECRET} matter?"
rounds = {rounds}
[target]
kind = "volume"
size = "16M"
[settings]
volblocksize = "16K"
[[factor]]
name = "sync"
values = ["standard", "disabled"]
[[workload]]
name = "stable writes"
rw = "randwrite"
bs = "4K"
seconds = 2.0
options = {{ fsync = "1" }}
"#
    )
}

/// A daemon with its state below a directory, ended with the test.
struct Daemon {
    directory: PathBuf,
    child: Child,
}

impl Daemon {
    fn start(directory: &Path) -> Self {
        Self::start_with(directory, &[])
    }

    fn start_with(directory: &Path, arguments: &[&str]) -> Self {
        let at = |name: &str| directory.join(name).display().to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_cenote"))
            .args(["serve", "--socket", &at("api.sock"), "--cachefile", &at("zpool.cache")])
            .args(arguments)
            .env("CENOTE_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        if arguments.is_empty() {
            let began = Instant::now();
            while UnixStream::connect(at("api.sock")).is_err() {
                assert_eq!(child.try_wait().unwrap(), None, "the daemon ended");
                assert!(began.elapsed() < LIMIT, "the daemon does not listen");
                std::thread::sleep(Duration::from_millis(5));
            }
        } else {
            let mut said = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
            assert!(said.starts_with("took over"), "{said}");
        }
        Self { directory: directory.to_owned(), child }
    }

    /// Asks for an action; its reply, or its error.
    fn ask(&self, action: &str, request: Value) -> Result<Value, String> {
        let mut stream = UnixStream::connect(self.directory.join("api.sock")).unwrap();
        let body = request.to_string();
        write!(
            stream,
            "POST /v1/{action} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let value: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
        match head.starts_with("HTTP/1.1 200") {
            true => Ok(value),
            false => Err(value["message"].as_str().unwrap().to_owned()),
        }
    }

    fn get(&self, action: &str, request: Value) -> Value {
        self.ask(action, request.clone()).unwrap_or_else(|error| panic!("{action} {request}: {error}"))
    }

    fn refused(&self, action: &str, request: Value) -> String {
        self.ask(action, request.clone()).err().unwrap_or_else(|| panic!("{action} {request} was done"))
    }

    /// An experiment as it is listed.
    fn experiment(&self, name: &str) -> Value {
        let all = self.get("lab-list", json!({}));
        let found = all.as_array().unwrap().iter().find(|it| it["name"] == name).cloned();
        found.unwrap_or_else(|| panic!("{name}: {all}"))
    }

    /// The same, once it is like that.
    fn once(&self, name: &str, is: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let found = self.experiment(name);
            if is(&found) {
                return found;
            }
            assert!(began.elapsed() < LIMIT, "{found}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(arguments).env("CENOTE_SOCKET", self.directory.join("api.sock"));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}");
        text
    }

    fn property(&self, dataset: &str, property: &str) -> (String, String) {
        let text = self.run(&["zfs", "get", "-Hp", "-o", "value,source", property, dataset]);
        let (value, source) = text.trim().split_once('\t').unwrap();
        (value.to_owned(), source.to_owned())
    }

    /// Waits for its end, because another one took over.
    fn succeeded(mut self) {
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn stop(mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process of an experiment.
fn process(directory: &Path, name: &str) -> Process {
    let file = directory.join("lab").join(name).join(".watcher/record.json");
    let record: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    serde_json::from_value(record["process"].clone()).unwrap()
}

#[test]
fn an_experiment_is_started_watched_stopped_resumed_and_read() {
    if testkit::skipped("fio", "fio") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(directory.path());
    let recipes = daemon.get("lab-recipes", json!({}));
    let recipe = recipes.as_array().unwrap().iter().find(|it| it["name"] == "sync").unwrap();
    assert!(recipe["target"] == "volume" && !recipe["workloads"].as_array().unwrap().is_empty(), "{recipe}");
    assert!(
        !recipe["question"].as_str().unwrap().is_empty() && !recipe["factors"][0][1].is_null(),
        "{recipe}"
    );
    assert!(daemon.get("lab-presets", json!({})).as_array().unwrap().len() > 3);
    let request =
        json!({ "workloads": ["randwrite,4K,8"], "size": "64M", "factors": [["sync", "standard,always"]] });
    let draft = daemon.get("lab-draft", request);
    let text = draft["experiment"].as_str().unwrap();
    assert!(Experiment::parse(text).is_ok(), "{text}");
    assert!(daemon.refused("lab-draft", json!({})).contains("recipe"));
    assert!(daemon.refused("lab-draft", json!({ "recipe": "--help" })).contains("there is no recipe"));

    let plan = daemon.get("lab-plan", json!({ "experiment": small(3) }));
    // The baseline twice, the change, and the raw device.
    assert_eq!((&plan["faults"], &plan["runs"]), (&json!([]), &json!(12)), "{plan}");
    assert!(plan["seconds"].as_f64().unwrap() > 23.0 && plan["space_bytes"].as_u64().unwrap() > 32 << 20);
    let disks = small(3).replace("kind = \"volume\"", "kind = \"volume\"\ndisks = [\"/dev/sdx\"]");
    for (wrong, named) in [("nonsense", "the text"), (disks.as_str(), "only on the command line")] {
        let plan = daemon.get("lab-plan", json!({ "experiment": wrong }));
        assert!(plan["faults"].to_string().contains(named), "{plan}");
        assert!(daemon.refused("lab-start", json!({ "name": "x", "experiment": wrong })).contains(named));
    }
    assert_eq!(daemon.get("lab-list", json!({})), json!([]));

    daemon.get("lab-start", json!({ "name": "one", "experiment": small(3) }));
    assert!(
        daemon.refused("lab-start", json!({ "name": "two", "experiment": small(3) })).contains("'one' runs")
    );
    let far = daemon.once("one", |it| it["progress"]["runs"].as_u64() >= Some(1));
    assert_eq!((&far["state"], &far["progress"]["of_runs"]), (&json!("running"), &json!(12)), "{far}");
    daemon.get("lab-stop", json!({ "name": "one" }));
    let stopped = daemon.experiment("one");
    assert_eq!(stopped["state"], "stopped", "{stopped}");
    let results = directory.path().join("lab/one");
    assert!(!results.join("devices").exists(), "its pools are removed");
    daemon.get("lab-resume", json!({ "name": "one" }));
    let ended = daemon.once("one", |it| it["state"] != "running");
    // A round that was interrupted is done again.
    let runs = |it: &Value| it["progress"]["runs"].as_u64().unwrap();
    assert!(ended["state"] == "ended" && (12..=16).contains(&runs(&ended)), "{ended}");
    assert!(ended["answer"].is_string() && ended["is_answered"].is_boolean(), "{ended}");
    let report = daemon.get("lab-report", json!({ "name": "one" }));
    assert!(report["document"]["blocks"].as_array().is_some_and(|all| !all.is_empty()), "{report}");
    assert!(report["experiment"].as_str().unwrap().contains(SECRET));
    daemon.get("lab-resume", json!({ "name": "one", "more_rounds": 1 }));
    let more = daemon.once("one", |it| it["state"] != "running");
    assert!(more["state"] == "ended" && runs(&more) == runs(&ended) + 4, "{more}");

    let layouts =
        daemon.get("lab-layouts", json!({ "disks": 6, "disk_bytes": 8_u64 << 40, "rotational": true }));
    assert!(layouts.as_array().unwrap().iter().any(|it| it["layout"] == "raidz2 6"), "{layouts}");
    assert!(daemon.refused("lab-layouts", json!({ "disks": 0 })).contains("0 disks"));
    assert_eq!(daemon.get("lab-advise", json!({})), json!([]));
    daemon.get("lab-remove", json!({ "name": "one" }));
    assert!(!results.exists());
    let log = fs::read_to_string(directory.path().join("audit.log")).unwrap();
    assert!(log.contains("lab-start") && log.contains("\"one\""), "{log}");
    assert!(!log.contains(SECRET) && !log.contains("randwrite"), "{log}");
    daemon.stop();
}

#[test]
fn an_experiment_outlives_daemons_and_ends_with_the_last_in_order() {
    if testkit::skipped("fio", "fio") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let first = Daemon::start(directory.path());
    first.get("lab-start", json!({ "name": "long", "experiment": small(500) }));
    first.once("long", |it| it["progress"]["runs"].as_u64() >= Some(1));
    let process = process(directory.path(), "long");
    assert!(process.is_alive());
    let second = Daemon::start_with(directory.path(), &["--take-over"]);
    first.succeeded();
    let runs = second.experiment("long")["progress"]["runs"].as_u64();
    second.once("long", |it| it["progress"]["runs"].as_u64() > runs);
    assert!(process.is_alive() && second.experiment("long")["state"] == "running");
    second.kill();
    assert!(process.is_alive());
    let third = Daemon::start(directory.path());
    assert_eq!(third.experiment("long")["state"], "running");
    assert!(third.refused("lab-remove", json!({ "name": "long" })).contains("stop it first"));
    third.stop();
    assert!(!process.is_alive());
    let fourth = Daemon::start(directory.path());
    let stopped = fourth.experiment("long");
    assert!(stopped["state"] == "stopped" && stopped["error"].is_null(), "{stopped}");
    // Killed, with its pools as they are; removing it removes them.
    fourth.get("lab-resume", json!({ "name": "long" }));
    let runs = stopped["progress"]["runs"].as_u64();
    fourth.once("long", |it| it["progress"]["runs"].as_u64() > runs);
    let process = self::process(directory.path(), "long");
    let id = rustix::process::Pid::from_raw(i32::try_from(process.id).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    let killed = fourth.once("long", |it| it["state"] != "running");
    assert!(killed["state"] == "stopped" && killed["error"].as_str().unwrap().contains("killed"), "{killed}");
    // Its own daemon ends with it.
    let began = Instant::now();
    while let Err(error) = fourth.ask("lab-remove", json!({ "name": "long" })) {
        assert!(began.elapsed() < LIMIT, "{error}");
    }
    assert!(!directory.path().join("lab/long").exists());
}

/// The fields of both.
fn with(mut one: Value, other: Value) -> Value {
    one.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    one
}

/// An experiment with results as if they had been measured: twice as fast with another block size.
fn planted(directory: &Path) {
    let text = "name = \"planted\"\nquestion = \"Which?\"\nrounds = 6\n[target]\nkind = \"volume\"\nsize = \
                \"16M\"\n[settings]\nsync = \"standard\"\nvolblocksize = \"16K\"\n[[variant]]\nsync = \
                \"disabled\"\nvolblocksize = \"64K\"\n[[workload]]\nname = \"w\"\nrw = \"randread\"\n";
    let watcher = directory.join(".watcher");
    fs::create_dir_all(&watcher).unwrap();
    fs::write(watcher.join("asked.toml"), text).unwrap();
    fs::write(watcher.join("record.json"), "{}").unwrap();
    let experiment = Experiment::parse(text).unwrap();
    let plan = ::lab::plan::Plan::new(&experiment, None, 0);
    let names: Vec<String> = plan.variants().iter().map(|variant| variant.name.clone()).collect();
    let mut store = Store::create(directory, experiment, Environment::default()).unwrap();
    for round in 0..6 {
        for (at, variant) in names.iter().enumerate() {
            let figures = Figures { iops: (100.0 + round as f64) * (at + 1) as f64, ..Figures::default() };
            let run = Run {
                stage: Stage::Rounds,
                round,
                variant: variant.clone(),
                workload: "w".into(),
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
            store.add(&run, "{}").unwrap();
        }
    }
}

#[test]
fn what_an_experiment_found_is_applied_to_a_dataset_and_reverted() {
    let directory = tempfile::tempdir().unwrap();
    let lab = directory.path().join("lab");
    fs::create_dir(&lab).unwrap();
    for name in ["planted", "again"] {
        planted(&lab.join(name));
    }
    let daemon = Daemon::start(directory.path());
    let disk = directory.path().join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    daemon.run(&["zpool", "create", "-m", "none", "tank", disk.to_str().unwrap()]);
    daemon.run(&["zfs", "create", "-V", "16M", "-o", "volblocksize=16K", "tank/vol"]);
    let report = daemon.get("lab-report", json!({ "name": "planted" }));
    let verdict = &report["verdicts"][0];
    let variant = verdict["variant"].as_str().unwrap_or_else(|| panic!("{report}"));
    assert!(verdict["why_not"].is_null(), "{verdict}");
    let compared = daemon.get("lab-compare", json!({ "names": ["planted", "again"] }));
    assert!(compared["document"].to_string().contains("again"), "{compared}");
    assert!(!compared["document"].to_string().contains(lab.to_str().unwrap()), "{compared}");

    let apply = |dataset: &str, dry_run: bool| {
        let of = json!({ "name": "planted", "variant": variant });
        with(of, json!({ "dataset": dataset, "dry_run": dry_run }))
    };
    assert!(daemon.refused("lab-apply", apply("tank", false)).contains("'volblocksize' is no property"));
    assert!(daemon.refused("lab-apply", apply("tank/none", false)).contains("does not exist"));
    let other = json!({ "name": "planted", "variant": "baseline", "dataset": "tank/vol" });
    assert!(daemon.refused("lab-apply", other).contains("no 'baseline' that is better"));
    let told = daemon.get("lab-apply", apply("tank/vol", true));
    assert!(told["commands"][0].as_str().unwrap().starts_with("cenote zfs set "), "{told}");
    assert_eq!(daemon.property("tank/vol", "sync").1, "default");
    assert_eq!(daemon.experiment("planted")["applied"], json!([]));

    let done = daemon.get("lab-apply", apply("tank/vol", false));
    assert_eq!(done["commands"], told["commands"]);
    let was = done["was"].as_array().unwrap();
    assert!(was.contains(&json!(["sync", null])) && was.contains(&json!(["volblocksize", "16K"])), "{done}");
    daemon.run(&["zpool", "wait", "-t", "reshape", "tank"]);
    assert_eq!(daemon.property("tank/vol", "sync"), ("disabled".into(), "local".into()));
    assert_eq!(daemon.property("tank/vol", "volblocksize").0, "65536");
    assert_eq!(daemon.experiment("planted")["applied"][0]["dataset"], "tank/vol");
    assert!(
        daemon.run(&["zpool", "history", "tank"]).contains("zfs set sync=disabled volblocksize=64K tank/vol")
    );
    assert!(daemon.refused("lab-apply", apply("tank/vol", false)).contains("revert that first"));
    assert!(daemon.refused("lab-remove", json!({ "name": "planted" })).contains("tank/vol"));

    let revert = json!({ "name": "planted", "dataset": "tank/vol" });
    let reverted = daemon.get("lab-revert", revert.clone());
    assert!(reverted["commands"].to_string().contains("zfs inherit sync tank/vol"), "{reverted}");
    daemon.run(&["zpool", "wait", "-t", "reshape", "tank"]);
    assert_eq!(daemon.property("tank/vol", "sync").1, "default");
    assert_eq!(daemon.property("tank/vol", "volblocksize").0, "16384");
    assert!(daemon.refused("lab-revert", revert).contains("nothing of the experiment"));
    let log = fs::read_to_string(directory.path().join("audit.log")).unwrap();
    assert!(log.contains("lab-apply") && log.contains("lab-revert") && log.contains("tank/vol"), "{log}");
    daemon.get("lab-remove", json!({ "name": "planted" }));
    let advice = daemon.get("lab-advise", json!({ "pools": ["tank"] }));
    assert!(advice.as_array().unwrap().iter().all(|it| it["pool"] == "tank"), "{advice}");
    assert!(daemon.refused("lab-advise", json!({ "pools": ["none"] })).contains("no such pool"));
    daemon.run(&["zpool", "export", "tank"]);
    daemon.stop();
}
