//! Pools whose devices cannot be written for a while: what commands and clients are told meanwhile, and that
//! nothing is lost.
//!
//! A limit on the size of the daemon's files makes all writes fail, and lifting it brings the devices back.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::session::{Ended, Session};

const LIMIT: Duration = Duration::from_secs(60);

/// Lets the daemon write no further into files than this.
fn limit(session: &Session, bytes: &str) {
    let pid = session.daemon_id().to_string();
    let set = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")]).status();
    assert!(set.unwrap().success());
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_suspended_pool_says_so_and_goes_on_when_its_devices_are_back() {
    let session = Session::start_silent();
    let place = session.directory().join("disks");
    fs::create_dir(&place).unwrap();
    let disk = place.join("d0");
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    session.print(&["zpool", "create", "-m", "none", "tank", disk.to_str().unwrap()]);
    session.print(&["zfs", "create", "-V", "8M", "tank/vol"]);
    session.print(&["zpool", "set", "failmode=continue", "tank"]);
    let health = || session.print(&["zpool", "list", "-H", "-o", "health", "tank"]);
    let is_suspended = || health() == "SUSPENDED\n";

    limit(&session, "0");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| session.run(&["zfs", "create", "tank/waited"]));
        until("the pool is not suspended", is_suspended);
        let status = session.print(&["zpool", "status", "tank"]);
        assert!(status.contains("state: SUSPENDED"), "{status}");
        for json in [["zpool", "status", "-j"], ["zpool", "list", "-j"]] {
            let told = session.print(&json);
            assert!(told.contains("\"state\":\"SUSPENDED\""), "{told}");
        }
        let refused = session.run(&["zfs", "create", "tank/refused"]);
        assert!(refused.code == 1 && refused.err.contains("suspended"), "{refused:?}");
        let socket = session.nbd_socket();
        let uri = format!("nbd+unix:///tank/vol?socket={}", socket.display());
        let opened = Command::new("qemu-img").args(["info", &uri]).output().unwrap();
        let told = String::from_utf8_lossy(&opened.stderr).into_owned();
        assert!(!opened.status.success() && told.contains("pool 'tank' is suspended"), "{told}");

        // In vain: the device is still away. What it was given before is in doubt from here on.
        let cleared = session.run(&["zpool", "clear", "tank"]);
        assert!(cleared.code == 1 && cleared.err.contains("I/O error"), "{cleared:?}");
        until("the pool is not suspended again", is_suspended);
        limit(&session, "unlimited");
        session.print(&["zpool", "clear", "tank"]);
        let waited = waiting.join().unwrap();
        assert_eq!((waited.code, &*waited.err), (0, ""));
    });
    assert_eq!(health(), "ONLINE\n");
    assert_eq!(session.print(&["zfs", "list", "-H", "-o", "name", "tank/waited"]), "tank/waited\n");
    session.print(&["zpool", "export", "tank"]);
    let Some(verdict) = testkit::oracle::zdb_of(Path::new(&place), "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

/// A file for a pool, in a directory of its own.
fn disk(place: &Path, name: &str) -> PathBuf {
    let place = place.join(name);
    fs::create_dir(&place).unwrap();
    let disk = place.join("d0");
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    disk
}

fn create(session: &Session, pool: &str, disk: &Path) {
    session.print(&["zpool", "create", "-m", "none", pool, disk.to_str().unwrap()]);
}

/// Suspends a pool: a command waits for it from then on. How that ended, after `then`.
fn suspended(session: &Session, pool: &str, then: impl FnOnce()) -> Ended {
    limit(session, "0");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| session.run(&["zfs", "create", &format!("{pool}/waited")]));
        until("the pool is not suspended", || {
            session.print(&["zpool", "list", "-H", "-o", "health", pool]) == "SUSPENDED\n"
        });
        limit(session, "unlimited");
        then();
        waiting.join().unwrap()
    })
}

#[test]
fn a_pool_that_is_to_be_given_up_is_not_waited_for() {
    let session = Session::start_silent();
    let disk = disk(session.directory(), "disks");
    create(&session, "tank", &disk);
    session.print(&["zfs", "create", "tank/before"]);
    let waited = suspended(&session, "tank", || {
        let refused = session.run(&["zpool", "export", "tank"]);
        assert!(refused.code == 1 && refused.err.contains("suspended"), "{refused:?}");
        let given_up = session.run(&["zpool", "export", "-f", "tank"]);
        assert_eq!(given_up.code, 1);
        for told in ["it is closed as after a crash", disk.to_str().unwrap(), "File too large"] {
            assert!(given_up.err.contains(told), "{told}: {given_up:?}");
        }
        assert_eq!(session.print(&["zpool", "list", "-H"]), "");
    });
    assert!(waited.code == 1 && waited.err.contains("was given up"), "{waited:?}");
    // Its devices are free, and what was committed is there.
    let place = disk.parent().unwrap().to_str().unwrap();
    session.print(&["zpool", "import", "-N", "-d", place, "tank"]);
    let names = session.print(&["zfs", "list", "-H", "-r", "-o", "name", "tank"]);
    assert_eq!(names, "tank\ntank/before\n");
}

#[test]
fn the_daemon_ends_whatever_state_its_pools_are_in() {
    let place = tempfile::tempdir().unwrap();
    let session = Session::start_heard();
    let disks = ["bad", "good"].map(|name| {
        let disk = disk(place.path(), name);
        create(&session, name, &disk);
        disk
    });
    // A waiting request does not keep it, either.
    std::thread::scope(|scope| {
        let waiting = suspended(&session, "bad", || {
            session.print(&["zfs", "create", "good/late"]);
            let pid = session.daemon_id();
            scope.spawn(move || terminate(pid));
        });
        assert_eq!(waiting.code, 1, "{waiting:?}");
    });
    let ended = session.end();
    assert_eq!(ended.code, 1, "{ended:?}");
    for told in ["cannot export 'bad': it is closed as after a crash", disks[0].to_str().unwrap()] {
        assert!(ended.err.contains(told), "{told}: {ended:?}");
    }
    assert!(!ended.err.contains("'good'"), "{ended:?}");

    let session = Session::start();
    for (disk, name) in disks.iter().zip(["bad", "good"]) {
        let place = disk.parent().unwrap().to_str().unwrap();
        session.print(&["zpool", "import", "-N", "-d", place, name]);
    }
    let names = session.print(&["zfs", "list", "-H", "-o", "name"]);
    assert_eq!(names, "bad\ngood\ngood/late\n");
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let place = tempfile::tempdir().unwrap();
    let session = Session::start_logging(File::create(place.path().join("log")).unwrap());
    create(&session, "tank", &disk(place.path(), "disks"));
    let waited = suspended(&session, "tank", || {
        session.print(&["zpool", "clear", "tank"]);
    });
    assert_eq!((waited.code, &*waited.err), (0, ""));
}

fn terminate(pid: u32) {
    assert!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap().success());
}

#[test]
fn a_pool_whose_first_group_cannot_be_committed_is_not_left_half_open() {
    let session = Session::start_silent();
    let disk = disk(session.directory(), "disks");
    let place = disk.parent().unwrap().to_str().unwrap().to_owned();
    let make = ["zpool", "create", "-m", "none", "tank", disk.to_str().unwrap()];
    let import = ["zpool", "import", "-N", "-o", "comment=mine", "-d", &place, "tank"];
    let fails = |command: &[&str]| {
        // There is room for half of the labels.
        limit(&session, "1048576");
        let failed = session.run(command);
        limit(&session, "unlimited");
        let is_told = [disk.to_str().unwrap(), "File too large"].iter().all(|told| failed.err.contains(told));
        assert!(failed.code == 1 && is_told && !failed.err.contains("damaged"), "{failed:?}");
        assert_eq!(session.print(&["zpool", "list", "-H"]), "");
    };
    fails(&make);
    assert_eq!(session.run(&["zpool", "import", "-d", &place]).out, "");
    session.print(&make);
    session.print(&["zpool", "export", "tank"]);
    fails(&import);
    session.print(&import);
    assert_eq!(session.print(&["zpool", "get", "-H", "-o", "value", "comment", "tank"]), "mine\n");
}
