//! Clients that work meanwhile.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::daemons::{Place, fio, free_port, longest};

/// What the daemon is replaced.
const TIMES: usize = 3;

#[test]
fn clients_of_nbd_see_a_pause_and_no_error() {
    if testkit::skipped("fio", "clients_of_nbd_see_a_pause_and_no_error") {
        return;
    }
    let address = format!("127.0.0.1:{}", free_port());
    let mut place = Place::start(&["--nbd-tcp", &address]);
    let disk = place.disk("disk", 512);
    place.print(&["zpool", "create", "-m", "none", "tank", &disk]);
    let encrypted = ["-o", "encryption=on", "-o", "keyformat=raw", "-o", "keylocation=prompt"];
    let key = place
        .run_with(&[&["zfs", "create", "-V", "64M"], &encrypted[..], &["tank/secret"]].concat(), &[7; 32]);
    assert!(key.status.success(), "{key:?}");
    place.print(&["zfs", "create", "-V", "64M", "tank/plain"]);
    let over_unix = fio(&place, "unix", &place.uri("tank/secret"));
    let over_tcp = fio(&place, "tcp", &format!("nbd://{address}/tank/plain"));
    crate::daemons::until("fio does not write", || {
        let written =
            place.print(&["zfs", "get", "-Hpo", "value", "logicalused", "tank/plain", "tank/secret"]);
        written.lines().all(|bytes| bytes.parse::<u64>().unwrap() > 1 << 20)
    });
    place.print(&["zpool", "scrub", "tank"]);
    let (is_over, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // Commands that change the pool all the time.
        let (socket, is_over, taken) = (place.socket(), &is_over, &taken);
        scope.spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                let name = format!("tank/plain@{}", taken.fetch_add(1, Ordering::Relaxed));
                let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"));
                let output = command.args(["zfs", "snapshot", &name]).env("CENOTE_SOCKET", &socket).output();
                let output = output.unwrap();
                assert!(output.status.success(), "{output:?}");
            }
        });
        for time in 1..=TIMES {
            let took = place.replace();
            eprintln!("take-over {time}: {} ms from the start of the process", took.as_millis());
            place.print(&["zpool", "status", "tank"]);
        }
        is_over.store(true, Ordering::Release);
    });
    let unix = longest(&place, "unix", over_unix);
    let tcp = longest(&place, "tcp", over_tcp);
    eprintln!("the longest request: {unix} ms over the Unix socket, {tcp} ms over TCP");
    let snapshots = place.print(&["zfs", "list", "-H", "-t", "snapshot", "-o", "name"]);
    assert_eq!(snapshots.lines().count(), taken.load(Ordering::Relaxed));
    assert_eq!(place.print(&["zfs", "get", "-H", "-o", "value", "keystatus", "tank/secret"]), "available\n");
}

#[test]
fn a_pool_is_open_as_it_was() {
    let mut place = Place::start(&[]);
    let (one, two) = (place.disk("one", 64), place.disk("two", 64));
    place.print(&["zpool", "create", "-m", "none", "-o", "cachefile=none", "-R", "/m/there", "tank", &one]);
    place.print(&["zfs", "create", "-V", "8M", "tank/vol"]);
    for name in ["tank/shared", "tank/unshared"] {
        place.print(&["zfs", "create", "-u", "-o", "mountpoint=/share", "-o", "sharenfs=rw", name]);
    }
    place.print(&["zfs", "unshare", "tank/unshared"]);
    assert_eq!(place.print(&["nfs"]).matches("see 'zfs share'").count(), 1);
    place.print(&["zpool", "create", "-m", "none", "other", &two]);
    place.print(&["zpool", "export", "other"]);
    let directory = place.path().to_str().unwrap().to_owned();
    let import = ["zpool", "import", "-N", "-o", "readonly=on", "-t", "-d", &directory, "other", "temporary"];
    place.print(&import);
    let told = |place: &Place| {
        let columns = ["zpool", "get", "-Hpo", "name,property,value", "altroot,cachefile,readonly,guid"];
        (
            place.print(&columns),
            place.print(&["zpool", "list", "-H", "-o", "name,health"]),
            place.print(&["nfs"]),
        )
    };
    let before = told(&place);
    place.replace();
    assert_eq!(told(&place), before);
    place.replace();
    assert_eq!(told(&place), before);
}
