//! Experiments whose program is a script: it says how it stands in the file for that, and ends when it is
//! told.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use device::block_on;

use super::*;
use crate::api::{
    ApplyLab, CompareLab, ErrorKind, ListLab, PlanLab, RemoveLab, ReportLab, ResumeLab, StartLab, StopLab,
};
use crate::progress_file::Process;

/// Plans, runs until it is told to end, reports.
const SCRIPT: &str = r#"#!/bin/sh
for word; do
  case "$word" in
    --progress=*) file="${word#--progress=}" ;;
    --output=*) into="${word#--output=}" ;;
    --more-rounds=*) more="${word#--more-rounds=}" ;;
  esac
  last="$word"
done
say() {
  printf '{"state": "%s", "runs": %s, "of_runs": 8, "seconds_left": 5, "now": "at it"}' "$1" "$2" > "$file.sh"
  mv "$file.sh" "$file"
}
case "$1 $2 $3" in
  "lab run --dry-run") grep -q wrong "$last" && { echo '{"faults": ["it is wrong"]}'; exit 1; }
    echo '{"question": "Why?", "runs": 8}' ;;
  "lab run "*)
    grep -q fails "$last" && { echo "cenote: no room" >&2; exit 1; }
    cp "$last" "$into/experiment.toml"
    trap 'say stopped 3; exit 1' TERM
    say running 3
    while :; do sleep 0.02; done ;;
  "lab resume "*)
    [ -n "$more" ] && say running "$more"
    printf '{"is_answered": true, "verdict": "Yes.", "document": {"title": "t"}}' > "$last/report.json"
    say ended 8 ;;
  "lab report "*) echo '{"document": {"title": "made anew"}}' ;;
  "lab clean "*) touch "$last/../cleaned" ;;
esac
"#;

struct Rig {
    directory: tempfile::TempDir,
    daemon: Arc<Daemon>,
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::write(&program, SCRIPT).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let daemon = daemon(directory.path());
        Self { directory, daemon }
    }

    fn start(&self, name: &str, text: &str) -> Result<(), ApiError> {
        start(&self.daemon, name, text)
    }

    fn only(&self) -> LabExperiment {
        let mut all = self.daemon.lab_list(ListLab {}).unwrap();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// The only one, once it is like that.
    fn once(&self, is: impl Fn(&LabExperiment) -> bool) -> LabExperiment {
        let until = std::time::Instant::now() + Duration::from_secs(120);
        loop {
            let found = self.only();
            if is(&found) {
                return found;
            }
            assert!(std::time::Instant::now() < until, "{found:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn folder(&self) -> Folder {
        self.daemon.experiments().remove(0)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.daemon.end_experiments();
    }
}

/// A daemon that keeps its state there.
fn daemon(directory: &Path) -> Arc<Daemon> {
    let daemon = Daemon::with_cache(64 << 20).keeping(Some(directory.join("zpool.cache")));
    Arc::new(daemon.with_lab_program(directory.join("program")))
}

fn start(daemon: &Daemon, name: &str, text: &str) -> Result<(), ApiError> {
    let request = StartLab { name: name.into(), experiment: text.into(), ..StartLab::default() };
    block_on(daemon.lab_start(request))
}

fn named<T: Default>(set: impl FnOnce(&mut T)) -> T {
    let mut request = T::default();
    set(&mut request);
    request
}

#[test]
fn an_experiment_is_started_watched_stopped_resumed_and_removed() {
    let rig = Rig::new();
    let stop = named(|it: &mut StopLab| it.name = "a".into());
    let resume = named(|it: &mut ResumeLab| it.name = "a".into());
    let remove = named(|it: &mut RemoveLab| it.name = "a".into());
    assert!(rig.daemon.lab_list(ListLab {}).unwrap().is_empty());
    assert_eq!(rig.daemon.lab_stop(&stop).unwrap_err().kind, ErrorKind::NotFound);
    rig.start("a", "right").unwrap();
    let running = rig.once(|it| it.progress.is_some());
    assert_eq!((running.state, running.question.as_str()), (LabState::Running, "Why?"));
    let progress = running.progress.unwrap();
    assert_eq!((progress.runs, progress.of_runs, progress.now.as_str()), (3, 8, "at it"));
    assert_eq!(progress.seconds_left, Some(5.0));
    for refused in [rig.start("b", "right"), block_on(rig.daemon.lab_resume(resume.clone()))] {
        assert!(refused.unwrap_err().message.contains("one runs at a time"));
    }
    assert_eq!(block_on(rig.daemon.lab_remove(remove.clone())).unwrap_err().kind, ErrorKind::Busy);
    let report = named(|it: &mut ReportLab| it.name = "a".into());
    assert_eq!(rig.daemon.lab_report(&report).unwrap_err().kind, ErrorKind::Busy);
    rig.daemon.lab_stop(&stop).unwrap();
    let stopped = rig.only();
    assert_eq!((stopped.state, stopped.error), (LabState::Stopped, None));
    assert_eq!(stopped.progress.unwrap().seconds_left, None);
    assert_eq!(rig.daemon.lab_stop(&stop).unwrap_err().kind, ErrorKind::Refused);
    // It has no report of its own yet.
    let told = rig.daemon.lab_report(&report).unwrap();
    assert_eq!((told.document["title"].as_str(), told.experiment.as_str()), (Some("made anew"), "right"));
    block_on(rig.daemon.lab_resume(ResumeLab { more_rounds: Some(2), ..resume })).unwrap();
    let ended = rig.once(|it| it.state == LabState::Ended);
    assert_eq!((ended.is_answered, ended.answer.as_deref()), (Some(true), Some("Yes.")));
    assert!(ended.space_bytes > 0 && ended.began == stopped.began);
    assert_eq!(rig.daemon.lab_report(&report).unwrap().document["title"].as_str(), Some("t"));
    assert!(rig.start("a", "right").unwrap_err().message.contains("already"));
    block_on(rig.daemon.lab_remove(remove)).unwrap();
    assert!(rig.daemon.lab_list(ListLab {}).unwrap().is_empty());
    assert!(rig.daemon.lab_directory().join("cleaned").exists());
    let left: Vec<_> = std::fs::read_dir(rig.daemon.lab_directory()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn of_two_that_start_at_once_one_does() {
    let rig = Rig::new();
    let gate = std::sync::Barrier::new(4);
    let all: Vec<Result<(), ApiError>> = std::thread::scope(|scope| {
        let begin = |name: &'static str| {
            let (gate, daemon) = (&gate, &rig.daemon);
            scope.spawn(move || {
                gate.wait();
                start(daemon, name, "right")
            })
        };
        let threads = ["a", "a", "b", "c"].map(begin);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1, "{all:?}");
    assert_eq!(rig.only().state, LabState::Running);
}

#[test]
fn faults_and_failures_are_told() {
    let rig = Rig::new();
    let told = rig.start("a", "wrong").unwrap_err();
    assert!(told.kind == ErrorKind::Invalid && told.message.contains("it is wrong"), "{told:?}");
    let plan = PlanLab { experiment: "wrong".into(), ..PlanLab::default() };
    assert_eq!(rig.daemon.lab_plan(&plan).unwrap().faults, ["it is wrong"]);
    for name in ["..", "a/b", ""] {
        assert_eq!(rig.start(name, "right").unwrap_err().kind, ErrorKind::Invalid);
    }
    assert!(rig.start("a", &"x".repeat(api::MOST_OF_EXPERIMENT + 1)).is_err());
    assert!(rig.daemon.lab_list(ListLab {}).unwrap().is_empty());
    rig.start("a", "fails").unwrap();
    let failed = rig.once(|it| it.state != LabState::Running);
    assert_eq!((failed.state, failed.error.as_deref()), (LabState::Failed, Some("cenote: no room")));
    // One that made no results begins anew.
    std::fs::write(rig.folder().asked(), "right").unwrap();
    block_on(rig.daemon.lab_resume(named(|it: &mut ResumeLab| it.name = "a".into()))).unwrap();
    rig.once(|it| it.progress.is_some());
    let names = CompareLab { names: vec!["a".into(), "b".into()] };
    assert!(rig.daemon.lab_compare(&names).is_err());
    let apply = ApplyLab { name: "../a".into(), ..ApplyLab::default() };
    assert_eq!(block_on(rig.daemon.lab_apply(apply)).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn what_is_shown_is_true_after_a_crash_of_the_daemon_or_of_the_experiment() {
    let rig = Rig::new();
    rig.start("a", "right").unwrap();
    rig.once(|it| it.progress.is_some());
    // Another daemon, as after a crash or an upgrade of this one.
    let other = daemon(rig.directory.path());
    assert_eq!(other.lab_list(ListLab {}).unwrap()[0].state, LabState::Running);
    assert!(start(&other, "b", "right").unwrap_err().message.contains("one runs at a time"));
    // One that was killed before it wrote down what it had started: the process says so itself.
    let folder = rig.folder();
    let record = folder.record().unwrap();
    let process = record.process.clone().unwrap();
    folder.write(&Record { process: None, ..record.clone() }).unwrap();
    let said = Progress { process: process.clone(), ..folder.progress().unwrap() };
    said.write(&folder.path().join(".watcher/progress.json")).unwrap();
    assert_eq!(rig.only().state, LabState::Running);
    folder.write(&record).unwrap();
    programs::kill(&process);
    let killed = rig.only();
    assert_eq!(killed.state, LabState::Stopped);
    assert!(killed.error.unwrap().contains("killed"));
    // Another process with its number is another process.
    let own = Process { id: std::process::id(), ..process };
    folder.write(&Record { process: Some(own), ..record }).unwrap();
    assert_eq!(rig.only().state, LabState::Stopped);
    other.lab_stop(&named(|it: &mut StopLab| it.name = "a".into())).unwrap_err();
}

#[test]
fn none_begins_when_the_daemon_ends() {
    let rig = Rig::new();
    rig.start("a", "right").unwrap();
    rig.once(|it| it.progress.is_some());
    rig.daemon.end_experiments();
    assert_eq!(rig.only().state, LabState::Stopped);
    let resume = named(|it: &mut ResumeLab| it.name = "a".into());
    for refused in [rig.start("b", "right"), block_on(rig.daemon.lab_resume(resume))] {
        assert_eq!(refused.unwrap_err().message, ENDING);
    }
}

#[test]
fn a_directory_that_another_user_could_write_is_not_used() {
    let rig = Rig::new();
    let directory = rig.daemon.lab_directory();
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(rig.start("a", "right").unwrap_err().kind, ErrorKind::Refused);
    std::fs::remove_dir(&directory).unwrap();
    std::os::unix::fs::symlink("/tmp", &directory).unwrap();
    assert!(rig.start("a", "right").is_err() && rig.daemon.lab_list(ListLab {}).unwrap().is_empty());
}
