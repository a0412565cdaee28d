//! Pools whose devices cannot be written for a while: what commands and clients are told meanwhile, and that nothing is lost.
//!
//! A limit on the size of the daemon's files makes all writes fail, and lifting it brings the devices back.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::session::Session;

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
