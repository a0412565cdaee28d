//! Faults on demand, the events that they lead to, and what the daemon does about them, through the binary.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::session::Session;

/// How long the daemon may take to act.
const PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn disk(&self, name: &str) -> String {
        File::create(self.path(name)).unwrap().set_len(128 << 20).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    fn daemon(&self) -> Session {
        Session::start_keeping(&self.path("zpool.cache"), &[])
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The state of a device in `zpool status`.
fn state(session: &Session, disk: &str) -> String {
    let status = session.print(&["zpool", "status", "-P", "tank"]);
    let line = status.lines().find(|line| line.trim_start().starts_with(disk)).unwrap_or_default();
    line.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

fn mirror(session: &Session, place: &Place) -> [String; 2] {
    let disks = [place.disk("d0"), place.disk("d1")];
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", &disks[0], &disks[1]]);
    disks
}

#[test]
fn a_device_that_fails_is_told_by_events_and_hooks_and_outlives_the_daemon() {
    let place = Place::new();
    let session = place.daemon();
    let disks = mirror(&session, &place);
    let told = place.path("told");
    let command = format!("echo $ZEVENT_POOL $ZEVENT_VDEV_PATH $ZEVENT_VDEV_STATE_STR >> {}", told.display());
    session.print(&["hooks", "add", "-e", "fault", "--command", &command, "mail"]);
    let listed = session.print(&["hooks", "list"]);
    assert!(listed.contains("mail") && listed.contains("fault"), "{listed}");
    let tested = session.print(&["hooks", "test", "--dry-run", "mail"]);
    assert!(
        tested.contains("ZEVENT_SUBCLASS=statechange") && tested.ends_with("not run (--dry-run)\n"),
        "{tested}"
    );
    assert!(!told.exists());
    let refused = session.run(&["hooks", "add", "-e", "fault", "--webhook", "ftp://x/", "web"]);
    assert!(refused.code == 1 && refused.err.contains("https://HOST"), "{}", refused.err);

    let added = session.print(&["inject", "-d", &disks[0], "-e", "io", "tank"]);
    assert!(added.starts_with("Added handler "), "{added}");
    session.print(&["inject", "-d", &disks[0], "-e", "io", "-T", "probe", "tank"]);
    session.print(&["zfs", "create", "tank/fs"]);
    until("the device is given up", || state(&session, &disks[0]) == "FAULTED");
    until("the hook ran", || told.exists());
    let line = std::fs::read_to_string(&told).unwrap();
    assert_eq!(line, format!("tank {} FAULTED\n", disks[0]));
    let listed = session.print(&["inject"]);
    assert!(listed.contains(&format!("{}: io on all", disks[0])), "{listed}");

    let events = session.print(&["zpool", "events", "-H", "tank"]);
    let classes: Vec<&str> = events.lines().filter_map(|line| line.split('\t').nth(1)).collect();
    for class in [
        "sysevent.fs.zfs.pool_create",
        "sysevent.fs.zfs.history_event",
        "ereport.fs.zfs.io",
        "ereport.fs.zfs.probe_failure",
        "resource.fs.zfs.statechange",
    ] {
        assert!(classes.contains(&class), "{class} in {events}");
    }
    let refused = session.run(&["zpool", "events", "tank/fs"]);
    assert!(refused.code == 1 && refused.err.contains("invalid pool name 'tank/fs'"), "{}", refused.err);
    let verbose = session.print(&["zpool", "events", "-v"]);
    assert!(verbose.starts_with("TIME                           CLASS\n"), "{verbose}");
    assert!(verbose.contains("        vdev_state = \"FAULTED\" (0x5)\n"), "{verbose}");
    assert!(verbose.contains("        vdev_laststate = \"ONLINE\" (0x7)\n"), "{verbose}");
    let json = session.print(&["zpool", "events", "-j"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["events"][0]["eid"], 1);

    assert_eq!(session.print(&["inject", "-c", "all"]), "removed all registered handlers\n");
    session.print(&["zpool", "clear", "tank"]);
    assert_eq!(state(&session, &disks[0]), "ONLINE");
    let count = session.print(&["zpool", "events", "-H"]).lines().count();
    session.stop();

    let session = place.daemon();
    let later = session.print(&["zpool", "events", "-H"]);
    assert!(later.lines().count() > count && later.contains("sysevent.fs.zfs.pool_import"), "{later}");
    assert!(session.print(&["hooks", "list"]).contains("mail"));
    session.print(&["hooks", "remove", "mail"]);
    let refused = session.run(&["zpool", "events", "-c", "-v"]);
    assert!(
        refused.code == 2 && refused.err.starts_with("invalid options combined with -c"),
        "{}",
        refused.err
    );
    let cleared = session.print(&["zpool", "events", "-c"]);
    assert!(cleared.starts_with("cleared ") && cleared.ends_with(" events\n"), "{cleared}");
    assert_eq!(session.print(&["zpool", "events", "-H"]), "");
    session.stop();
}

#[test]
fn a_device_that_is_back_is_taken_online_and_damage_needs_force() {
    let place = Place::new();
    let session = place.daemon();
    let disks = mirror(&session, &place);
    session.print(&["inject", "-d", &disks[1], "--gone", "tank"]);
    session.print(&["zfs", "create", "tank/fs"]);
    until("the device is removed", || state(&session, &disks[1]) == "REMOVED");
    session.print(&["inject", "-c", "all"]);
    until("the device is back", || !["REMOVED", "UNAVAIL"].contains(&&*state(&session, &disks[1])));

    for harm in [
        &["-d", &disks[0], "-e", "corrupt", "-T", "write"][..],
        &["-d", &disks[0], "-e", "noop"],
        &["-I"],
        &["-b", "36:1:0:0", "--flip", "before-checksum"],
    ] {
        let refused = session.run(&[&["inject"], harm, &["tank"]].concat());
        assert!(refused.code == 1 && refused.err.contains("--force"), "{harm:?}: {}", refused.err);
    }
    let id = session.print(&["inject", "-q", "-b", "0:1:0:0", "--flip", "after-check", "--force", "tank"]);
    session.print(&["inject", "-c", id.trim()]);
    let refused = session.run(&["inject", "-c", id.trim()]);
    assert!(refused.code == 1 && refused.err.contains("there is no handler"), "{}", refused.err);
    let refused = session.run(&["inject", "-d", "nothing", "tank"]);
    assert!(refused.code == 1 && refused.err.contains("no such device in pool"), "{}", refused.err);
    session.print(&["inject", "-d", &disks[0], "-A", "degrade", "tank"]);
    assert_eq!(state(&session, &disks[0]), "DEGRADED");
    session.stop();
}
