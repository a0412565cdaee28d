//! Devices that are taken away and come back, through the binary.

use std::fs::{self, File};
use std::path::Path;

use crate::session::Session;

/// Sparse files in a directory of the session.
fn disks(session: &Session, count: usize) -> Vec<String> {
    let place = session.directory().join("disks");
    fs::create_dir_all(&place).unwrap();
    let disk = |number: usize| {
        let path = place.join(format!("d{number}"));
        File::create(&path).unwrap().set_len(128 << 20).unwrap();
        path.to_str().unwrap().to_owned()
    };
    (0..count).map(disk).collect()
}

#[test]
fn devices_are_taken_offline_and_back_in_openzfs_s_words() {
    let session = Session::start();
    let disks = disks(&session, 2);
    let [first, second] = [&*disks[0], &*disks[1]];
    let place = session.directory().join("disks");
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", first, second]);
    session.print(&["zpool", "offline", "tank", first]);
    let status = session.print(&["zpool", "status", "tank"]);
    assert!(status.contains("state: DEGRADED"), "{status}");
    assert!(status.contains("One or more devices has been taken offline by the administrator."), "{status}");
    let line = |status: &str, disk: &str| {
        let line = status.lines().find(|line| line.contains(disk)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{disk} in {status}"))
    };
    assert!(line(&status, first).contains("OFFLINE"), "{status}");
    let refused = session.run(&["zpool", "offline", "tank", "d1"]);
    assert_eq!((refused.code, &*refused.err), (1, "cannot offline d1: no valid replicas\n"));
    session.print(&["zfs", "create", "tank/while-away"]);
    let told = session.print(&["zpool", "online", "tank", "d0"]);
    assert!(told.contains("'d0' onlined, but does not hold what was written while it was away"), "{told}");
    // What it missed it has not, until somebody resilvers it: nobody is told that all is well.
    let awaits = || {
        let status = session.print(&["zpool", "status", "tank"]);
        assert!(status.contains("state: ONLINE") && status.contains("OpenZFS, which\n"), "{status}");
        assert!(line(&status, first).ends_with("(awaiting resilver)"), "{status}");
        assert!(!line(&status, second).contains("resilver"), "{status}");
        assert!(session.print(&["zpool", "status", "-x"]).contains("do not hold what was written"));
        let waited = session.run(&["zpool", "wait", "-t", "resilver", "tank"]);
        assert!(waited.code == 1 && waited.err.contains("awaits a resilver"), "{}", waited.err);
    };
    awaits();
    session.print(&["zpool", "export", "tank"]);
    let listed = session.print(&["zpool", "import", "-d", place.to_str().unwrap()]);
    assert!(listed.contains("missed writes and await a resilver"), "{listed}");
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    awaits();

    session.print(&["zpool", "offline", "-f", "tank", "d0"]);
    let faulted = line(&session.print(&["zpool", "status", "tank"]), first);
    assert!(faulted.contains("FAULTED") && faulted.contains("external device fault"), "{faulted}");
    let told = session.print(&["zpool", "online", "tank", "d0"]);
    assert!(told.contains("remains in faulted state\nuse 'zpool clear'"), "{told}");
    session.print(&["zpool", "clear", "tank", first]);
    awaits();
    assert!(session.print(&["zpool", "status", "tank"]).contains("state: ONLINE"));
    let history = session.print(&["zpool", "history", "tank"]);
    for command in ["zpool offline -f tank d0", "zpool clear tank", "zpool online tank d0"] {
        assert!(history.contains(command), "{history}");
    }
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn a_file_that_was_away_comes_back_and_another_one_in_its_place_does_not() {
    let session = Session::start();
    let disks = disks(&session, 2);
    let place = session.directory().join("disks");
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", &disks[0], &disks[1]]);
    session.print(&["zpool", "export", "tank"]);
    let away = session.directory().join("away");
    fs::rename(&disks[0], &away).unwrap();
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    let state = || session.print(&["zpool", "list", "-H", "-o", "health", "tank"]);
    assert_eq!(state(), "DEGRADED\n");
    session.print(&["zfs", "create", "tank/while-away"]);
    // Something else in its place.
    File::create(&disks[0]).unwrap().set_len(128 << 20).unwrap();
    let told = session.print(&["zpool", "online", "tank", &disks[0]]);
    assert!(told.contains("use 'zpool replace'"), "{told}");
    assert_eq!(state(), "DEGRADED\n");
    fs::rename(&away, &disks[0]).unwrap();
    session.print(&["zpool", "online", "tank", &disks[0]]);
    assert_eq!(state(), "ONLINE\n");
    session.print(&["zfs", "create", "tank/after"]);
    session.print(&["zpool", "export", "tank"]);
    let Some(verdict) = testkit::oracle::zdb_of(Path::new(&place), "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

#[test]
fn a_pool_grows_with_its_devices() {
    let session = Session::start();
    let disks = disks(&session, 2);
    let place = session.directory().join("disks");
    let list = |columns: &str| session.print(&["zpool", "list", "-Hp", "-o", columns, "tank"]);
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", &disks[0], &disks[1]]);
    let before = list("size");
    let grow = |bytes: u64| {
        for disk in &disks {
            File::options().write(true).open(disk).unwrap().set_len(bytes).unwrap();
        }
    };
    grow(256 << 20);
    session.print(&["zpool", "reopen", "tank"]);
    assert_eq!(list("size,expandsize"), format!("{}\t{}\n", before.trim_end(), 128 << 20));
    let verbose = session.print(&["zpool", "list", "-vHp", "tank"]);
    let mirror = verbose.lines().find(|line| line.contains("mirror-0")).unwrap();
    assert_eq!(mirror.split('\t').nth(6), Some("134217728"), "{verbose}");
    assert_eq!(session.print(&["zpool", "online", "-e", "tank", "d1"]), "");
    let size = |text: &str| text.trim_end().parse::<u64>().unwrap();
    assert_eq!(size(&list("size")), size(&before) + (128 << 20));
    assert_eq!(list("expandsize"), "-\n");
    session.print(&["zpool", "set", "autoexpand=on", "tank"]);
    grow(512 << 20);
    session.print(&["zpool", "reopen", "tank"]);
    assert_eq!(size(&list("size")), size(&before) + (384 << 20));
    let refused = session.run(&["zpool", "set", "autoreplace=on", "tank"]);
    assert!(refused.code == 1 && refused.err.contains("never replaced unasked"), "{refused:?}");
    session.print(&["zpool", "export", "tank"]);
    let Some(verdict) = testkit::oracle::zdb_of(Path::new(&place), "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

#[test]
fn pools_are_administered() {
    let session = Session::start();
    let disks = disks(&session, 5);
    let place = session.directory().join("disks");
    let print = |line: &str| {
        let words = line.split(' ').map(|word| match word.strip_prefix('%') {
            Some(number) => &*disks[number.parse::<usize>().unwrap()],
            None => word,
        });
        session.print(&words.collect::<Vec<_>>())
    };
    print("zpool create -m none -t other tank mirror %0 %1");
    assert_eq!(print("zpool list -H -o name"), "other\n");
    print("zpool add other spare %2 cache %3 log %4");
    let status = print("zpool status other");
    assert!(status.contains("spares\n") && status.contains("cache\n") && status.contains("logs"), "{status}");
    print("zfs create -V 16M other/v");
    print("zpool sync other");
    let before = print("zpool get -Hp -o value guid other");
    print("zpool reguid other");
    let after = print("zpool get -Hp -o value guid other");
    assert_ne!(before, after);
    let io = print("zpool iostat -Hpv other");
    let written: u64 = io.lines().next().unwrap().split('\t').nth(6).unwrap().parse().unwrap();
    assert!(written > 0 && io.lines().count() == 6, "{io}");
    assert!(print("zpool iostat -w other").starts_with("\nother"));
    // Nothing was to be durable at once: all that was written is in the column of asynchronous writes.
    let sizes = print("zpool iostat -Hpr other");
    let column = |column: usize| -> u64 {
        sizes.lines().filter_map(|line| line.split('\t').nth(column)?.parse::<u64>().ok()).sum()
    };
    assert!((column(3), column(7) > 0) == (0, true), "{sizes}");
    print("zpool remove other %2 %3 %4");
    let refused = session.run(&["zpool", "remove", "other", &disks[0]]);
    assert!(refused.code == 1 && refused.err.contains("can be removed"), "{refused:?}");
    let status = print("zpool status other");
    let gone = ["spares\n", "cache\n", "logs"];
    assert!(gone.iter().all(|section| !status.contains(section)), "{status}");
    let unknown = session.run(&["zpool", "labelclear", "-f", &disks[4]]);
    assert!(unknown.err.contains("failed to read label"), "it is nobody's: {unknown:?}");
    print("zpool wait other");
    print("zpool add other log %4");
    print("zpool checkpoint other");
    let refused = session.run(&["zpool", "remove", "other", &disks[4]]);
    assert!(refused.code == 1 && refused.err.contains("checkpoint exists"), "{refused:?}");
    let status = print("zpool status other");
    assert!(status.contains("checkpoint: created "), "{status}");
    assert_ne!(print("zpool list -H -o ckpoint other"), "-\n");
    print("zpool checkpoint -d -w other");
    print("zpool wait -t discard,trim other");
    print("zpool remove other %4");
    print("zpool export other");
    let Some(verdict) = testkit::oracle::zdb_of(&place, "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "-t", "tank", "temporary"]);
    assert_eq!(print("zpool list -H -o name,guid"), format!("temporary\t{after}"));
    print("zpool destroy temporary");
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "-D", "tank"]);
    assert_eq!(print("zpool list -H -o name"), "tank\n");
    print("zpool export tank");
}
