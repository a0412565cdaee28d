//! `cenote snapshot-schedule`: what is taken, what goes and what stays, by command and by the daemon itself.

use std::fs::File;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::session::Session;

/// How long the daemon may take for what it does by itself.
const LIMIT: Duration = Duration::from_secs(90);

fn create(session: &Session) {
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    session.print(&["zpool", "create", "-O", "mountpoint=none", "tank", disk.to_str().unwrap()]);
}

fn snapshots(session: &Session) -> Vec<String> {
    let listed = session.print(&["zfs", "list", "-H", "-t", "snapshot", "-o", "name", "-s", "createtxg"]);
    listed.lines().map(str::to_owned).collect()
}

fn json(session: &Session, arguments: &[&str]) -> Value {
    let printed = session.print(&[&["snapshot-schedule", "--json"], arguments].concat());
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// Snapshots that a schedule made, with names of another year. They are taken now, so that none is due.
fn older(session: &Session, dataset: &str, hours: &[u32]) -> Vec<String> {
    let name = |hour: &u32| format!("{dataset}@autosnap_2020-01-01_{hour:02}:00:00_weekly");
    let names: Vec<String> = hours.iter().map(name).collect();
    for name in &names {
        session.print(&["zfs", "snapshot", "-o", "org.cenote:snapshot-kind=weekly", name]);
    }
    names
}

#[test]
fn a_schedule_is_set_shown_run_and_taken_away() {
    let session = Session::start();
    create(&session);
    session.print(&["zfs", "create", "tank/a"]);
    session.print(&["zfs", "create", "tank/a/b"]);
    session.print(&["zfs", "create", "-s", "-V", "8M", "tank/a/v"]);
    let shown = session.print(&["snapshot-schedule", "tank/a", "--weekly", "3", "-r", "--daily", "2"]);
    assert!(shown.contains("tank/a/b") && shown.contains("inherited from tank/a"), "{shown}");
    let value = ["zfs", "get", "-Ho", "value", "org.cenote:snapshots", "tank/a/b"];
    assert_eq!(session.print(&value), "daily=2,weekly=3,recursive\n");
    let taken = snapshots(&session);
    assert_eq!(taken.len(), 6, "{taken:?}");
    let kinds = ["weekly", "daily"].map(|kind| {
        let of_kind: Vec<&String> = taken.iter().filter(|name| name.ends_with(kind)).collect();
        let short = of_kind[0].split_once('@').unwrap().1;
        assert!(short.starts_with("autosnap_2"), "{short}");
        // They were taken in the same moment.
        assert!(of_kind.iter().all(|name| name.ends_with(short)), "{of_kind:?}");
        of_kind.len()
    });
    assert_eq!(kinds, [3, 3]);
    assert_eq!(session.print(&["snapshot-schedule", "--run"]), "", "nothing more is due on this day");
    let listed = json(&session, &["tank/a/v"]);
    assert_eq!(listed["schedules"][0]["kinds"][1]["kind"], "weekly");
    assert_eq!(listed["schedules"][0]["kinds"][1]["keep"], 3);

    // Without -r it is for the dataset alone.
    session.print(&["zfs", "create", "tank/c"]);
    session.print(&["zfs", "create", "tank/c/d"]);
    session.print(&["snapshot-schedule", "tank/c", "--monthly", "1", "--names", "zfs-auto-snapshot"]);
    let of_c: Vec<String> =
        snapshots(&session).into_iter().filter(|name| name.starts_with("tank/c")).collect();
    assert_eq!(of_c.len(), 1, "{of_c:?}");
    assert!(of_c[0].starts_with("tank/c@zfs-auto-snap_monthly-2"), "{of_c:?}");

    session.print(&["snapshot-schedule", "tank/a", "off"]);
    session.print(&["snapshot-schedule", "tank/c", "inherit"]);
    assert_eq!(session.print(&["snapshot-schedule"]), "no snapshots by schedule\n");
    assert_eq!(session.print(&["snapshot-schedule", "--run"]), "");
    assert!(snapshots(&session).len() >= 7, "what was taken stays");
}

#[test]
fn only_what_a_schedule_made_is_destroyed_and_nothing_that_is_held() {
    let session = Session::start();
    create(&session);
    session.print(&["zfs", "create", "tank/a"]);
    let made = older(&session, "tank/a", &[0, 1, 2, 3, 4]);
    session.print(&["zfs", "snapshot", "tank/a@autosnap_2020-01-01_09:00:00_weekly"]);
    session.print(&["zfs", "snapshot", "tank/a@mine"]);
    session.print(&["zfs", "snapshot", "-o", "org.cenote:snapshot-kind=weekly", "tank/a@renamed"]);
    session.print(&["zfs", "hold", "keep", &made[1]]);
    session.print(&["zfs", "clone", &made[2], "tank/clone"]);
    session.print(&["zfs", "set", "org.cenote:snapshots=weekly=2,names=sanoid", "tank/a"]);
    let would = json(&session, &["--run", "--dry-run", "tank/a"]);
    assert_eq!(texts(&would["run"]["in_use"]), [&*made[1], &*made[2]]);
    let log = session.print(&["zpool", "history", "tank"]);
    assert!(!log.contains("--dry-run"), "a dry run does nothing: {log}");
    let done = json(&session, &["--run", "tank/a"]);
    let left = snapshots(&session);
    assert_eq!((left.len(), left.contains(&made[0])), (7, false), "{left:?}");
    for name in &made[1..] {
        assert!(left.contains(name), "{name}: {left:?}");
    }
    // The daemon may have been faster than the command.
    if !texts(&done["run"]["destroyed"]).is_empty() {
        assert_eq!(texts(&would["run"]["destroyed"]), [&*made[0]]);
        assert_eq!(texts(&done["run"]["destroyed"]), [&*made[0]]);
        let log = session.print(&["zpool", "history", "tank"]);
        assert!(log.contains("snapshot-schedule --json --run tank/a"), "{log}");
    }
    // Released, it goes with the next run.
    session.print(&["zfs", "release", "keep", &made[1]]);
    session.print(&["snapshot-schedule", "--run"]);
    assert!(!snapshots(&session).contains(&made[1]));
}

#[test]
fn a_property_of_openzfs_rules_datasets_and_kinds_out() {
    let session = Session::start();
    create(&session);
    for name in ["tank/a", "tank/b", "tank/c", "tank/d"] {
        session.print(&["zfs", "create", name]);
    }
    let made = older(&session, "tank/b", &[0, 1]);
    session.print(&["zfs", "set", "com.sun:auto-snapshot=false", "tank/b"]);
    session.print(&["zfs", "set", "com.sun:auto-snapshot:weekly=false", "tank/c"]);
    session.print(&["zfs", "set", "com.sun:auto-snapshot=false", "tank/d"]);
    session.print(&["zfs", "set", "com.sun:auto-snapshot:daily=true", "tank/d"]);
    session.print(&["zfs", "set", "org.cenote:snapshots=weekly=1,daily=1,recursive", "tank"]);
    session.print(&["snapshot-schedule", "--run"]);
    let kind =
        |name: &String| format!("{} {}", name.split('@').next().unwrap(), name.rsplit('_').next().unwrap());
    let there = snapshots(&session);
    let mut taken: Vec<String> = there.iter().filter(|name| !made.contains(name)).map(kind).collect();
    taken.sort();
    let expected =
        ["tank daily", "tank weekly", "tank/a daily", "tank/a weekly", "tank/c daily", "tank/d daily"];
    assert_eq!(taken, expected);
    assert!(made.iter().all(|name| there.contains(name)), "what is ruled out is left alone");
}

#[test]
fn commands_that_meet_take_one_snapshot_for_one_slot() {
    let session = Session::start();
    create(&session);
    session.print(&["zfs", "set", "org.cenote:snapshots=yearly=9", "tank"]);
    let commands: Vec<_> = (0..6).map(|_| session.start_command(&["snapshot-schedule", "--run"])).collect();
    for command in commands {
        let ended = command.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    assert_eq!(snapshots(&session).len(), 1, "{:?}", snapshots(&session));
}

#[test]
fn a_wrong_schedule_is_refused_or_shown_and_a_received_one_does_not_run() {
    let session = Session::start();
    create(&session);
    session.print(&["zfs", "create", "tank/a"]);
    session.print(&["zfs", "create", "tank/a/below"]);
    let refused = session.run(&["snapshot-schedule", "tank/none", "--daily", "1"]);
    assert_eq!((refused.code, refused.err.contains("'tank/none'")), (1, true), "{}", refused.err);
    let refused = session.run(&["snapshot-schedule", "tank/a", "-r"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    let refused = session.run(&["snapshot-schedule", "tank/a", "--daily", "10001"]);
    assert_eq!((refused.code, refused.err.contains("10000")), (2, true), "{}", refused.err);
    session.print(&["zfs", "set", "org.cenote:snapshots=each day", "tank"]);
    let shown = session.print(&["snapshot-schedule", "tank"]);
    assert!(shown.contains("does not run: 'each day' is neither"), "{shown}");
    session.print(&["zfs", "inherit", "org.cenote:snapshots", "tank"]);

    session.print(&["snapshot-schedule", "tank/a", "--yearly", "1", "--recursive"]);
    session.print(&["zfs", "snapshot", "-r", "tank/a@x"]);
    let (stream, _) = session.run_bytes(&["zfs", "send", "-R", "tank/a@x"]);
    let received = session.run_with(&["zfs", "receive", "-u", "tank/copy"], &stream);
    assert_eq!(received.code, 0, "{}", received.err);
    let before = snapshots(&session);
    let shown = session.print(&["snapshot-schedule", "tank/copy"]);
    assert!(shown.contains("does not run: it was received"), "{shown}");
    assert!(shown.contains("does not run: tank/copy received it"), "{shown}");
    assert_eq!(session.print(&["snapshot-schedule", "--run", "tank/copy"]), "");
    assert_eq!(snapshots(&session), before);
}

#[test]
fn the_daemon_runs_schedules_by_itself_and_a_restart_takes_no_second_one() {
    let place = tempfile::tempdir().unwrap();
    let cachefile = place.path().join("cache");
    let disk = place.path().join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    let session = Session::start_keeping(&cachefile, &[]);
    session.print(&["zpool", "create", "-O", "mountpoint=none", "tank", disk.to_str().unwrap()]);
    session.print(&["zfs", "set", "org.cenote:snapshots=yearly=2", "tank"]);
    let wait = |session: &Session| {
        let began = Instant::now();
        while snapshots(session).is_empty() {
            assert!(began.elapsed() < LIMIT, "the daemon takes no snapshot");
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    // The pool may have been looked at before the schedule was there: then the next daemon does it.
    session.stop();
    let session = Session::start_keeping(&cachefile, &[]);
    wait(&session);
    let first = snapshots(&session);
    assert_eq!(first.len(), 1);
    session.kill();
    let session = Session::start_keeping(&cachefile, &[]);
    wait(&session);
    // It looks at the pool after the import; this run comes after that one or does the same.
    assert_eq!(session.print(&["snapshot-schedule", "--run"]), "");
    assert_eq!(snapshots(&session), first);
}
