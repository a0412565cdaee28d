//! What a service manager sees.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use crate::daemons::{LIMIT, Place, until};

/// Waits for a message of a daemon that begins so, and passes over others.
fn told(manager: &UnixDatagram, begin: &str) -> String {
    let mut bytes = [0; 256];
    loop {
        let length = manager.recv(&mut bytes).unwrap();
        let told = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if told.starts_with(begin) {
            return told;
        }
    }
}

#[test]
fn a_reload_in_the_background_changes_the_main_process() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("notify");
    let manager = UnixDatagram::bind(&at).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let mut place =
        Place::start_in(&[], &[("NOTIFY_SOCKET", at.to_str().unwrap()), ("WATCHDOG_USEC", "200000")]);
    told(&manager, "READY=1");
    let disk = place.disk("disk", 128);
    place.print(&["zpool", "create", "-m", "none", "tank", &disk]);
    // As the unit does, without the variables of the main process.
    let output = Command::new(env!("CARGO_BIN_EXE_cenote"))
        .args(["serve", "--socket", place.socket().to_str().unwrap(), "--take-over", "--background"])
        .env("CENOTE_LOG", "error")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let process = said.strip_prefix("took over as process ").and_then(|rest| rest.split(';').next()).unwrap();
    assert_eq!(told(&manager, "MAINPID="), format!("MAINPID={process}"));
    told(&manager, "READY=1");
    assert!(place.daemon.wait().unwrap().success(), "the daemon before did not end in order");
    // The new one says that it lives, to the manager of the one before.
    told(&manager, "WATCHDOG=1");
    assert_eq!(place.print(&["zpool", "list", "-H", "-o", "name"]), "tank\n");
    let ended = Command::new("kill").args(["-TERM", process]).status().unwrap();
    assert!(ended.success());
    told(&manager, "STOPPING=1");
    until("it does not end", || !std::path::Path::new(&format!("/proc/{process}")).exists());
    assert!(!place.socket().exists());
}
