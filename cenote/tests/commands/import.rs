//! `zpool import`: what it lists, what it refuses.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use testkit::GoldenPool;

use crate::session::Session;

/// A directory with links to those disks of a pool that `keep` lets through.
fn some_disks(golden: &GoldenPool, in_directory: &Path, keep: impl Fn(usize) -> bool) -> PathBuf {
    let place = in_directory.join("disks");
    std::fs::create_dir_all(&place).unwrap();
    for (number, disk) in golden.disks().iter().enumerate().filter(|(number, _)| keep(*number)) {
        symlink(disk, place.join(format!("d{number}"))).unwrap();
    }
    place
}

#[test]
fn a_healthy_pool_is_listed_with_its_devices() {
    let Some(golden) = testkit::golden::pool("classes") else { return };
    let session = Session::start();
    let place = some_disks(&golden, session.directory(), |_| true);
    let place = place.to_str().unwrap();
    let text = session.print(&["zpool", "import", "-d", place]);
    let guid = session.print(&["zpool", "import", "-d", place]);
    let guid = guid.lines().find_map(|line| line.strip_prefix("    id: ")).unwrap();
    let line = |depth: usize, name: &str| {
        let width = place.len() + "/d0".len() + 4;
        format!("\t{}{name:width$}  ONLINE\n", " ".repeat(depth), width = width - depth)
    };
    let disk = |number: usize| format!("{place}/d{number}");
    let expected = [
        "  pool: classes\n".to_owned(),
        format!("    id: {guid}\n"),
        " state: ONLINE\n".to_owned(),
        "action: The pool can be imported using its name or numeric identifier.\n".to_owned(),
        "config:\n\n".to_owned(),
        line(0, "classes"),
        line(2, "mirror-0"),
        line(4, &disk(0)),
        line(4, &disk(1)),
        format!("\tcache\n\t  {}\n", disk(5)),
        "\tspecial\t\n".to_owned(),
        line(2, "mirror-1"),
        line(4, &disk(2)),
        line(4, &disk(3)),
        "\tlogs\t\n".to_owned(),
        line(2, &disk(4)),
    ];
    assert_eq!(text, expected.concat());
    session.import(place.as_ref(), guid);
    let ended = session.run(&["zpool", "import", "-d", place]);
    assert_eq!((ended.code, ended.err.as_str()), (0, "no pools available to import\n"));
    let ended = session.run(&["zpool", "import", "-o", "readonly=on", "-d", place, "classes"]);
    assert_eq!(ended.code, 1);
    let message = "cannot import 'classes': a pool with that name already exists\n";
    assert!(ended.err.starts_with(message), "{}", ended.err);
}

#[test]
fn a_pool_that_is_not_there_cannot_be_imported() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let session = Session::start();
    let place = golden.dir.to_str().unwrap();
    let ended = session.run(&["zpool", "import", "-o", "readonly=on", "-d", place, "tank"]);
    assert_eq!((ended.code, ended.err.as_str()), (1, "cannot import 'tank': no such pool available\n"));
}

#[test]
fn a_pool_that_is_open_read_only_cannot_be_changed() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let session = Session::start();
    session.import(&golden.dir, "single");
    for (arguments, doing) in [
        (&["zfs", "create", "single/new"][..], "cannot create 'single/new'"),
        (&["zfs", "destroy", "single/clone"][..], "cannot destroy 'single/clone'"),
        (&["zfs", "set", "atime=off", "single/fs"][..], "cannot set property for 'single/fs'"),
        (&["zfs", "snapshot", "single/fs@new"][..], "cannot create snapshot 'single/fs@new'"),
    ] {
        let ended = session.run(arguments);
        assert_eq!(ended.code, 1, "{arguments:?}");
        assert!(ended.err.starts_with(&format!("{doing}: pool is read-only")), "{}", ended.err);
    }
}

#[test]
fn a_pool_without_one_of_its_devices_is_degraded() {
    let Some(golden) = testkit::golden::pool("rz1") else { return };
    let session = Session::start();
    let place = some_disks(&golden, session.directory(), |number| number != 2);
    let place = place.to_str().unwrap();
    let text = session.print(&["zpool", "import", "-d", place]);
    for part in [
        " state: DEGRADED\n",
        "status: One or more devices are missing from the system.\n",
        "action: The pool can be imported despite missing or damaged devices.  The\n\
         \tfault tolerance of the pool may be compromised if imported.\n",
        "   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q\n",
        "  UNAVAIL  cannot open\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    session.print(&["zpool", "import", "-N", "-o", "readonly=on", "-d", place, "rz1", "other"]);
    let text = session.print(&["zpool", "status"]);
    for part in [
        "  pool: other\n state: DEGRADED\n",
        "status: One or more devices could not be opened.  Sufficient replicas exist for\n",
        "UNAVAIL      0     0     0  was /img/rz1/d2\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    assert_eq!(session.print(&["zpool", "status", "-x"]), text);
}

#[test]
fn a_pool_without_too_many_devices_cannot_be_imported() {
    let Some(golden) = testkit::golden::pool("rz1") else { return };
    let session = Session::start();
    let place = some_disks(&golden, session.directory(), |number| number > 1);
    let place = place.to_str().unwrap();
    let text = session.print(&["zpool", "import", "-d", place]);
    for part in [
        " state: UNAVAIL\n",
        "action: The pool cannot be imported. Attach the missing\n\tdevices and try again.\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let ended = session.run(&["zpool", "import", "-N", "-o", "readonly=on", "-d", place, "rz1"]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.starts_with("cannot import 'rz1': "), "{}", ended.err);
}

#[test]
fn a_pool_that_another_host_did_not_export_needs_force() {
    let Some(golden) = testkit::golden::pool("zilreplay") else { return };
    let session = Session::start();
    let place = golden.dir.to_str().unwrap();
    let text = session.print(&["zpool", "import", "-d", place]);
    assert!(text.contains("status: The pool was last accessed by another system.\n"), "{text}");
    let import = ["zpool", "import", "-N", "-o", "readonly=on", "-d", place, "zilreplay"];
    let ended = session.run(&import);
    assert_eq!(ended.code, 1);
    let first =
        "cannot import 'zilreplay': pool was previously in use from another system.\nLast accessed by ";
    assert!(ended.err.starts_with(first), "{}", ended.err);
    let last = "The pool can be imported, use 'zpool import -f' to import the pool.\n";
    assert!(ended.err.ends_with(last), "{}", ended.err);
    let ended = session.run(&[&import[..2], &["-f"], &import[2..]].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    // Reading never replays an intent log, and says so.
    for dataset in ["fs", "vol"] {
        let warned = format!(
            "the last changes of 'zilreplay/{dataset}' before a crash are in its intent log and not shown"
        );
        assert!(ended.err.contains(&warned), "{}", ended.err);
    }
}
