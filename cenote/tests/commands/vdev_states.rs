//! States of vdevs and devices that are told, and devices that are given up, through the binary.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::session::Session;

/// How long the daemon may take to act.
const PATIENCE: Duration = Duration::from_secs(60);

/// New files for devices.
fn disks<const COUNT: usize>(session: &Session) -> [String; COUNT] {
    let place = session.directory().join("disks");
    fs::create_dir_all(&place).unwrap();
    std::array::from_fn(|number| {
        let path = place.join(format!("d{number}"));
        File::create(&path).unwrap().set_len(128 << 20).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

fn create(session: &Session, vdevs: &[&str]) {
    session.print(&[&["zpool", "create", "-f", "-m", "none", "tank"], vdevs].concat());
}

/// The line of a vdev in a status.
fn line<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find(|line| line.split_whitespace().next() == Some(name))
}

/// One that cannot be used is told by its guid, with the path at the end.
fn line_of_device<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    line(status, name).or_else(|| status.lines().find(|line| line.split_whitespace().last() == Some(name)))
}

fn state(session: &Session, name: &str) -> String {
    let status = session.print(&["zpool", "status", "-P", "tank"]);
    let line = line_of_device(&status, name).unwrap_or_else(|| panic!("{name} in {status}"));
    line.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_device_that_is_resilvered_does_not_lower_its_parents() {
    let session = Session::start();
    let [first, second, third, fourth] = disks::<4>(&session);
    session.print(&["tunable", "set", "zfs_scan_suspend_progress=1"]);
    create(&session, &[&first, &second]);
    session.print(&["zpool", "replace", "tank", &second, &third]);
    let health = || session.print(&["zpool", "list", "-Ho", "health", "tank"]);
    for vdev in ["tank", "replacing-1", &second, &third] {
        assert_eq!(state(&session, vdev), "ONLINE", "{vdev}");
    }
    assert_eq!(health(), "ONLINE\n");
    session.print(&["zpool", "export", "tank"]);
    let place = session.directory().join("disks");
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    assert_eq!((state(&session, "replacing-1"), health()), ("ONLINE".into(), "ONLINE\n".into()));
    session.print(&["zpool", "attach", "tank", &first, &fourth]);
    assert_eq!((state(&session, "mirror-0"), health()), ("ONLINE".into(), "ONLINE\n".into()));
    session.print(&["tunable", "set", "zfs_scan_suspend_progress=0"]);
    session.print(&["zpool", "wait", "tank"]);
}

#[test]
fn reopen_asks_devices_whether_they_are_there() {
    let session = Session::start_silent();
    let [first, second] = disks::<2>(&session);
    create(&session, &["mirror", &first, &second]);
    session.print(&["inject", "-d", &first, "-e", "nxio", "-T", "all", "-f", "100", "tank"]);
    session.print(&["zpool", "reopen", "tank"]);
    let status = session.print(&["zpool", "status", "-P", "tank"]);
    let told = status.lines().find(|line| line.contains(&*first)).unwrap_or_default();
    assert!(told.contains("UNAVAIL"), "{status}");
    assert_eq!((state(&session, &second), state(&session, "mirror-0")), ("ONLINE".into(), "DEGRADED".into()));
    session.print(&["inject", "-c", "all"]);
    session.print(&["zpool", "reopen", "tank"]);
    let began = Instant::now();
    while state(&session, &first) != "ONLINE" {
        assert!(began.elapsed() < PATIENCE, "the device comes back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_status_of_unhealthy_vdevs_has_slow_ones_where_these_are_shown() {
    let session = Session::start_silent();
    let [first, second] = disks::<2>(&session);
    create(&session, &["mirror", &first, &second]);
    session.print(&["tunable", "set", "zio_slow_io_ms=750"]);
    session.print(&["inject", "-d", &first, "-D", "1000:100", "tank"]);
    session.print(&["zfs", "create", "tank/fs"]);
    session.print(&["inject", "-c", "all"]);
    session.print(&["tunable", "set", "zio_slow_io_ms=30000"]);
    let status = |shown: &str| session.print(&["zpool", "status", "-P", shown, "tank"]);
    let slow = status("-es");
    assert!(line(&slow, &first).is_some_and(|line| line.contains("ONLINE")), "{slow}");
    assert!(line(&status("-e"), &first).is_none(), "it is healthy");
}

#[test]
fn the_json_of_a_status_has_sizes() {
    let session = Session::start();
    let [first, second] = disks::<2>(&session);
    create(&session, &["mirror", &first, &second]);
    let status = session.print(&["zpool", "status", "-j", "--json-int", "-P", "tank"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let root = &status["pools"]["tank"]["vdevs"]["tank"];
    let top = &root["vdevs"]["mirror-0"];
    let leaf = &top["vdevs"][&first];
    let number =
        |vdev: &serde_json::Value, key: &str| vdev[key].as_u64().unwrap_or_else(|| panic!("{key} of {vdev}"));
    for vdev in [root, top] {
        assert!(number(vdev, "alloc_space") > 0);
        // A mirror has no parity.
        assert_eq!(number(vdev, "def_space"), number(vdev, "total_space"));
    }
    let labels = (4 << 20) + (512 << 10);
    assert_eq!(number(leaf, "phys_space"), 128 << 20);
    assert_eq!(number(leaf, "rep_dev_size"), number(top, "rep_dev_size") + labels);
    assert!(number(leaf, "rep_dev_size") <= number(leaf, "phys_space"));
    let listed = session.print(&["zpool", "list", "-Hpo", "size,allocated", "tank"]);
    let sizes = format!("{}\t{}\n", number(root, "total_space"), number(root, "alloc_space"));
    assert_eq!(listed, sizes);
}

/// Whether no other process uses a file as a device.
fn is_free(path: &str) -> bool {
    File::open(path).unwrap().try_lock().is_ok()
}

#[test]
fn a_device_that_was_given_up_is_free_when_the_command_ends() {
    let session = Session::start();
    let [first, second, third, cache, spare, log] = disks::<6>(&session);
    create(&session, &["mirror", &first, &second, "cache", &cache, "spare", &spare, "log", &log]);
    for disk in [&first, &second, &cache, &spare, &log] {
        assert!(!is_free(disk), "{disk} is in use");
    }
    for _ in 0..8 {
        session.print(&["zpool", "scrub", "tank"]);
        session.print(&["zpool", "detach", "tank", &first]);
        assert!(is_free(&first), "it was detached");
        session.print(&["zpool", "attach", "-w", "tank", &second, &first]);
    }
    session.print(&["zpool", "replace", "-w", "tank", &second, &third]);
    assert!(is_free(&second), "it was replaced");
    for disk in [&cache, &spare, &log] {
        session.print(&["zpool", "remove", "tank", disk]);
        assert!(is_free(disk), "it was removed");
    }
    session.print(&["zpool", "offline", "tank", &third]);
    assert!(is_free(&third), "it is offline");
    session.print(&["zpool", "online", "tank", &third]);
    session.print(&["zpool", "export", "tank"]);
    assert!(is_free(&first) && is_free(&third), "the pool was exported");
}

#[test]
fn only_leaf_devices_go_offline_and_a_refusal_names_what_was_typed() {
    let session = Session::start();
    let [first, second] = disks::<2>(&session);
    create(&session, &["mirror", &first, &second]);
    for (command, treated) in [("offline", "taken offline"), ("online", "brought online")] {
        let refused = session.run(&["zpool", command, "tank", "mirror-0"]);
        let why = format!("cannot {command} mirror-0: only leaf devices can be {treated}");
        assert!(refused.code == 1 && refused.err.contains(&why), "{refused:?}");
    }
    let refused = session.run(&["zdb", "nosuch"]);
    assert!(refused.code != 0 && refused.err.contains("'nosuch': no such pool exists"), "{refused:?}");
    assert!(!refused.err.contains("tank"), "{refused:?}");
}

#[test]
fn a_listing_without_pools_says_which_mounts_are_dead_and_what_to_do() {
    if testkit::skipped("fuse", "mounts that a daemon leaves behind") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (disk, mount) = (path("disk"), path("mount"));
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let pool = format!("dead{}", std::process::id());
    let session = Session::start();
    session.print(&["zpool", "create", "-m", &mount, &pool, &disk]);
    session.kill();
    let session = Session::start();
    let listed = session.run(&["zpool", "list"]);
    let again = session.run(&["zpool", "import", "-d", place.path().to_str().unwrap(), &pool]);
    let is_back = Path::new(&mount).metadata().is_ok();
    session.print(&["zpool", "export", &pool]);
    assert_eq!((listed.code, &*listed.out), (0, "no pools available\n"));
    let (named, advice) = (format!("pool '{pool}'"), format!("zpool import {pool}"));
    for part in [&*named, &*mount, &*advice, "umount -l"] {
        assert!(listed.err.contains(part), "{part} in {}", listed.err);
    }
    assert!(again.code == 0 && is_back, "{again:?}");
}

/// Writes zeros over all that a file holds, or over the places of its labels.
fn wipe(path: &str, all: bool) {
    let file = File::options().write(true).open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let zeros = vec![0; if all { size as usize } else { 512 << 10 }];
    for offset in [0, size - zeros.len() as u64] {
        file.write_all_at(&zeros, offset).unwrap();
    }
}

#[test]
fn a_scan_asks_devices_for_their_labels() {
    let session = Session::start();
    let [first, second, third, fourth] = disks::<4>(&session);
    for scan in
        [&["zpool", "scrub", "-w", "tank"][..], &["zpool", "resilver", "tank"], &["zpool", "reopen", "tank"]]
    {
        create(&session, &["mirror", &first, &second, "log", "mirror", &third, &fourth]);
        session.print(&["zfs", "create", "tank/fs"]);
        wipe(&second, true);
        wipe(&fourth, true);
        session.print(scan);
        for (device, expected) in
            [(&first, "ONLINE"), (&second, "UNAVAIL"), (&third, "ONLINE"), (&fourth, "UNAVAIL")]
        {
            assert_eq!(state(&session, device), expected, "{device} after {scan:?}");
        }
        let status = session.print(&["zpool", "status", "-P", "tank"]);
        assert!(line(&status, &second).is_some_and(|line| line.contains("invalid label")), "{status}");
        // Its label does not come back by itself.
        session.print(&["zpool", "online", "tank", &second]);
        assert_eq!(state(&session, &second), "UNAVAIL");
        for device in [&second, &fourth] {
            session.print(&["zpool", "replace", "-w", "tank", device]);
            assert_eq!(state(&session, device), "ONLINE");
        }
        let status = session.print(&["zpool", "status", "tank"]);
        assert!(status.contains("state: ONLINE") && status.contains("No known data errors"), "{status}");
        session.print(&["zpool", "scrub", "-w", "tank"]);
        assert!(session.print(&["zpool", "status", "tank"]).contains("with 0 errors"));
        session.print(&["zpool", "destroy", "tank"]);
    }
}

#[test]
fn a_scrub_writes_nothing_to_a_device_of_another_pool() {
    let session = Session::start();
    let [first, second, third] = disks::<3>(&session);
    session.print(&["zpool", "create", "-m", "none", "other", &third]);
    session.print(&["zpool", "export", "other"]);
    let others = fs::read(&third).unwrap();
    create(&session, &["mirror", &first, &second]);
    let file = File::options().write(true).open(&second).unwrap();
    file.write_all_at(&others, 0).unwrap();
    session.print(&["zpool", "scrub", "-w", "tank"]);
    assert_eq!(state(&session, &second), "FAULTED");
    let there = fs::read(&second).unwrap();
    session.print(&["zfs", "create", "tank/fs"]);
    session.print(&["zpool", "sync", "tank"]);
    assert!(fs::read(&second).unwrap() == there, "it is left alone");
    session.print(&["zpool", "destroy", "tank"]);
}

#[test]
fn a_device_that_no_other_can_stand_in_for_gets_lost_labels_anew() {
    let session = Session::start();
    let [first] = disks::<1>(&session);
    create(&session, &[&first]);
    session.print(&["zfs", "create", "tank/fs"]);
    wipe(&first, false);
    session.print(&["zpool", "scrub", "-w", "tank"]);
    assert_eq!(state(&session, &first), "ONLINE");
    session.print(&["zpool", "sync", "tank"]);
    // As after a crash.
    let directory = session.directory().join("disks");
    session.print(&["zpool", "export", "-f", "tank"]);
    session.print(&["zpool", "import", "-d", directory.to_str().unwrap(), "tank"]);
    assert!(session.print(&["zfs", "list", "-Ho", "name", "-r", "tank"]).contains("tank/fs\n"));
    session.print(&["zpool", "destroy", "tank"]);
}

/// The bytes at the beginning and at the end of a file where its labels are.
fn labels(path: &str) -> [Vec<u8>; 2] {
    let all = fs::read(path).unwrap();
    [all[..512 << 10].to_vec(), all[all.len() - (512 << 10)..].to_vec()]
}

fn write_labels(path: &str, [first, last]: &[Vec<u8>; 2]) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(first, 0).unwrap();
    file.write_all_at(last, file.metadata().unwrap().len() - last.len() as u64).unwrap();
}

#[test]
fn reopening_ends_where_the_only_device_is_another_pool_s() {
    let session = Session::start();
    let [first, second] = disks::<2>(&session);
    session.print(&["zpool", "create", "-m", "none", "other", &second]);
    session.print(&["zpool", "export", "other"]);
    create(&session, &[&first]);
    session.print(&["zpool", "sync", "tank"]);
    let own = labels(&first);
    write_labels(&first, &labels(&second));
    session.print(&["zpool", "reopen", "tank"]);
    assert_eq!(state(&session, &first), "FAULTED");
    let status = session.print(&["zpool", "status", "tank"]);
    assert!(status.contains("SUSPENDED") || status.contains("UNAVAIL"), "{status}");
    // What the pool had is back, and it goes on.
    write_labels(&first, &own);
    session.print(&["zpool", "clear", "tank"]);
    assert_eq!(state(&session, &first), "ONLINE");
    session.print(&["zfs", "create", "tank/fs"]);
    session.print(&["zpool", "destroy", "tank"]);
}
