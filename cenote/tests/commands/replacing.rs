//! Devices that are attached, detached and replaced, through the binary.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::session::Session;

/// A sparse file in a directory of the session.
fn disk(session: &Session, name: &str, mib: u64) -> String {
    let place = session.directory().join("disks");
    fs::create_dir_all(&place).unwrap();
    let path = place.join(name);
    File::create(&path).unwrap().set_len(mib << 20).unwrap();
    path.to_str().unwrap().to_owned()
}

fn status(session: &Session) -> String {
    session.print(&["zpool", "status", "tank"])
}

/// The lines of the devices in the status, without the path and in one line.
fn tree(session: &Session) -> String {
    let status = status(session);
    let config = status.lines().skip_while(|line| !line.trim_start().starts_with("NAME")).skip(2);
    let config = config.take_while(|line| !line.is_empty());
    let short = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
        format!("{name} {}", words.next().unwrap_or_default()).trim().to_owned()
    };
    config.map(short).collect::<Vec<_>>().join(", ")
}

fn until(session: &Session, expected: &str) {
    let start = Instant::now();
    while tree(session) != expected {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", status(session));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn refusal(session: &Session, words: &[&str]) -> String {
    let ended = session.run(words);
    assert_eq!(ended.code, 1, "{words:?}: {}", ended.err);
    ended.err
}

#[test]
fn devices_are_attached_replaced_and_detached_in_openzfs_s_words() {
    let session = Session::start();
    let [a, b, c, small] =
        [("a", 128), ("b", 128), ("c", 128), ("small", 80)].map(|(name, mib)| disk(&session, name, mib));
    session.print(&["zpool", "create", "-m", "none", "tank", &a]);
    session.print(&["zfs", "create", "tank/fs"]);
    assert!(refusal(&session, &["zpool", "detach", "tank", "a"]).contains("only applicable to mirror"));
    let error = refusal(&session, &["zpool", "attach", "tank", "a", &small]);
    assert_eq!(error, format!("cannot attach {small} to a: device is too small\n"));
    let error = refusal(&session, &["zpool", "attach", "tank", "a", &a]);
    assert!(error.contains("is part of active pool 'tank'"), "{error}");
    assert!(refusal(&session, &["zpool", "attach", "-s", "tank", "a", &b]).contains("not there yet"));

    session.print(&["zpool", "attach", "-w", "tank", "a", &b]);
    assert_eq!(tree(&session), "mirror-0 ONLINE, a ONLINE, b ONLINE");
    assert!(status(&session).contains("state: ONLINE"));
    session.print(&["zpool", "replace", "-w", "tank", "a", &c]);
    assert_eq!(tree(&session), "mirror-0 ONLINE, c ONLINE, b ONLINE");
    session.print(&["zpool", "detach", "tank", "b"]);
    assert_eq!(tree(&session), "c ONLINE");
    let history = session.print(&["zpool", "history", "-i", "tank"]);
    for text in ["zpool attach -w tank a", "attach vdev=", "replace vdev=", "detach vdev="] {
        assert!(history.contains(text), "{text}: {history}");
    }
    // What is free can be used without force.
    session.print(&["zpool", "add", "tank", "spare", &a]);
    session.print(&["zpool", "export", "tank"]);
    let place = session.directory().join("disks");
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    assert_eq!(tree(&session), "c ONLINE, spares, a AVAIL");
    session.print(&["zpool", "export", "tank"]);
    let Some(verdict) = testkit::oracle::zdb_of(Path::new(&place), "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

#[test]
fn a_device_that_lost_its_contents_is_replaced_by_itself() {
    let session = Session::start();
    let [a, b] = ["a", "b"].map(|name| disk(&session, name, 128));
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", &a, &b]);
    session.print(&["zfs", "create", "tank/fs"]);
    // While it is open.
    let file = fs::OpenOptions::new().write(true).open(&a).unwrap();
    file.set_len(0).unwrap();
    file.set_len(128 << 20).unwrap();
    session.print(&["zpool", "replace", "-w", "tank", &a]);
    assert_eq!(tree(&session), "mirror-0 ONLINE, a ONLINE, b ONLINE");
    // Another one in its place.
    session.print(&["zpool", "offline", "tank", "b"]);
    fs::remove_file(&b).unwrap();
    disk(&session, "b", 256);
    session.print(&["zpool", "replace", "-w", "tank", "b"]);
    assert_eq!(tree(&session), "mirror-0 ONLINE, a ONLINE, b ONLINE");
    // And by itself, if that is wanted.
    session.print(&["zpool", "set", "autoreplace=on", "tank"]);
    session.print(&["zpool", "export", "tank"]);
    fs::remove_file(&a).unwrap();
    let place = session.directory().join("disks");
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    disk(&session, "a", 128);
    session.print(&["zpool", "reopen", "tank"]);
    until(&session, "mirror-0 ONLINE, a ONLINE, b ONLINE");
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn a_spare_is_used_by_hand_and_goes_back() {
    let session = Session::start();
    let [a, b, s, t] = ["a", "b", "s", "t"].map(|name| disk(&session, name, 128));
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", &a, &b, "spare", &s, &t]);
    session.print(&["zpool", "replace", "tank", "a", &s]);
    let spared = "mirror-0 ONLINE, spare-0 ONLINE, a ONLINE, s ONLINE, b ONLINE, spares, s INUSE, t AVAIL";
    until(&session, spared);
    assert!(status(&session).contains("currently in use"));
    assert!(refusal(&session, &["zpool", "replace", "tank", "b", &s]).contains("in use"));
    assert!(refusal(&session, &["zpool", "remove", "tank", "s"]).contains("in use"));
    assert!(refusal(&session, &["zpool", "detach", "tank", "t"]).contains("reserved as a hot spare"));
    session.print(&["zpool", "detach", "tank", "s"]);
    assert_eq!(tree(&session), "mirror-0 ONLINE, a ONLINE, b ONLINE, spares, s AVAIL, t AVAIL");
    session.print(&["zpool", "replace", "tank", "a", "t"]);
    until(&session, &spared.replace("s ONLINE", "t ONLINE").replace("s INUSE, t AVAIL", "s AVAIL, t INUSE"));
    session.print(&["zpool", "detach", "tank", "a"]);
    assert_eq!(tree(&session), "mirror-0 ONLINE, t ONLINE, b ONLINE, spares, s AVAIL");
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn a_device_gets_one_place_when_commands_race_for_it() {
    let session = Session::start();
    let rounds = 3;
    for round in 0..rounds {
        let name = |of: &str| format!("{of}{round}");
        let [a, b, c, d, s] = ["a", "b", "c", "d", "s"].map(|of| disk(&session, &name(of), 128));
        let races: [(&[&str], [&[&str]; 2]); 3] = [
            (&["spare", &s], [&["replace", "tank", &a, &s], &["replace", "tank", &b, &s]]),
            (&["spare", &s], [&["replace", "tank", &a, &s], &["offline", "-f", "tank", &b]]),
            (&[], [&["replace", "tank", &a, &s], &["add", "-f", "tank", "spare", &s]]),
        ];
        for (spares, commands) in races {
            let base = ["zpool", "create", "-f", "-m", "none", "tank", "raidz2", &a, &b, &c, &d];
            session.print(&[&base[..], spares].concat());
            let run = |words: &[&str]| session.run(&[&["zpool"][..], words].concat());
            let run = &run;
            let [one, other] = commands;
            let ended = std::thread::scope(|scope| {
                let one = scope.spawn(move || run(one));
                let other = scope.spawn(move || run(other));
                [one.join().unwrap(), other.join().unwrap()]
            });
            let shown = status(&session);
            let (used, free) = shown.split_once("spares").unwrap_or((&shown, ""));
            let places = used.matches(&s).count() + free.matches(&format!("{s} ")).count();
            let in_use = free.matches("INUSE").count();
            assert!(places - in_use == 1, "{one:?}, {other:?}: {ended:?}: {shown}");
            session.print(&["zpool", "destroy", "-f", "tank"]);
        }
    }
}

#[test]
fn pools_share_a_spare_that_one_of_them_uses() {
    let session = Session::start();
    let [a, b, c, d, s] = ["a", "b", "c", "d", "s"].map(|name| disk(&session, name, 128));
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", &a, &b, "spare", &s]);
    let error = refusal(&session, &["zpool", "create", "two", "mirror", &c, &s]);
    assert!(error.contains("is in use"), "{error}");
    session.print(&["zpool", "create", "-m", "none", "two", "mirror", &c, &d]);
    session.print(&["zpool", "add", "two", "spare", &s]);
    assert!(refusal(&session, &["zpool", "add", "two", "spare", &s]).contains("is busy"));
    let of = |pool: &str| {
        let shown = session.print(&["zpool", "status", pool]);
        let spares = shown.split_once("spares\n").unwrap().1;
        let line = spares.lines().next().unwrap().split_whitespace().skip(1);
        line.collect::<Vec<_>>().join(" ")
    };
    assert_eq!([of("tank"), of("two")], ["AVAIL", "AVAIL"]);
    session.print(&["zpool", "replace", "-w", "tank", &a, &s]);
    assert_eq!([of("tank"), of("two")], ["INUSE currently in use", "INUSE in use by pool 'tank'"]);
    let error = refusal(&session, &["zpool", "replace", "two", &c, &s]);
    assert!(error.contains("is in use as a hot spare by pool 'tank'"), "{error}");
    assert!(refusal(&session, &["zpool", "offline", "two", &s]).contains("reserved as a hot spare"));
    assert!(refusal(&session, &["zpool", "export", "tank"]).contains("active shared spare"));
    session.print(&["zpool", "detach", "tank", &s]);
    assert_eq!([of("tank"), of("two")], ["AVAIL", "AVAIL"]);
    session.print(&["zpool", "replace", "-w", "two", &c, &s]);
    session.print(&["zpool", "export", "tank"]);
    session.print(&["zpool", "export", "-f", "two"]);
}

#[test]
fn waiting_for_a_replacement_ends_when_the_labels_are_written() {
    let session = Session::start();
    let [a, b, mut old] = ["a", "b", "0"].map(|name| disk(&session, name, 128));
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", &a, &b, &old]);
    for round in 1..6 {
        let new = disk(&session, &round.to_string(), 128);
        session.print(&["zpool", "replace", "-w", "tank", &old, &new]);
        let labels = |path: &str| {
            let device = device::FileDevice::open(path).unwrap();
            device::block_on(engine::vdev::label::read_labels(&device))
        };
        let names = labels(&old).into_iter().flatten().filter_map(|label| label.name);
        assert_eq!(names.collect::<Vec<_>>(), [], "the label of the old one names a pool");
        for path in [&a, &new] {
            let tops = labels(path).into_iter().flatten().filter_map(|label| label.vdev_tree);
            let kinds: Vec<_> = tops.flat_map(|top| top.children).map(|child| child.kind).collect();
            let is_replacing = |kind| matches!(kind, ondisk::vdev_config::VdevKind::Replacing);
            assert!(!kinds.into_iter().any(is_replacing), "{path} names both");
        }
        old = new;
    }
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn a_pool_grows_when_its_devices_are_replaced_by_larger_ones() {
    let session = Session::start();
    let small = ["a", "b", "c"].map(|name| disk(&session, name, 128));
    let large = ["x", "y", "z"].map(|name| disk(&session, name, 512));
    session.print(&["zpool", "create", "-m", "none", "tank", "raidz", &small[0], &small[1], &small[2]]);
    let size = |property: &str| {
        let value = session.print(&["zpool", "list", "-Hp", "-o", property, "tank"]);
        value.trim().parse::<u64>().unwrap_or(0)
    };
    let before = size("size");
    for (old, new) in ["a", "b", "c"].iter().zip(&large) {
        assert_eq!(size("expandsize"), 0);
        session.print(&["zpool", "replace", "-w", "tank", old, new]);
    }
    assert_eq!(tree(&session), "raidz1-0 ONLINE, x ONLINE, y ONLINE, z ONLINE");
    assert!(size("size") == before && size("expandsize") > before, "{}", size("expandsize"));
    session.print(&["zpool", "online", "-e", "tank", "x"]);
    session.print(&["zpool", "sync", "tank"]);
    assert!(size("size") > 3 * before, "{}", size("size"));
    session.print(&["zpool", "export", "tank"]);
}

/// The last group that was committed.
fn last_group(session: &Session) -> String {
    let uberblock = session.print(&["zdb", "-u", "tank"]);
    let txg = uberblock.lines().find_map(|line| line.trim().strip_prefix("txg = "));
    txg.unwrap_or_else(|| panic!("{uberblock}")).to_owned()
}

#[test]
fn a_pool_goes_back_to_a_group_that_had_a_device_which_was_replaced_since() {
    let session = Session::start();
    let place = session.directory().join("disks");
    let place = place.to_str().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| disk(&session, name, 128));
    for (vdevs, tree_then) in [
        (&[&*a, &*b][..], "a ONLINE, b ONLINE"),
        (&["mirror", &a, &b], "mirror-0 ONLINE, a ONLINE, b ONLINE"),
    ] {
        session.print(&[&["zpool", "create", "-f", "-m", "none", "tank"][..], vdevs].concat());
        session.print(&["zfs", "create", "tank/then"]);
        let then = last_group(&session);
        session.print(&["zpool", "replace", "-w", "-f", "tank", &b, &c]);
        session.print(&["zfs", "create", "tank/later"]);
        session.print(&["zpool", "export", "tank"]);
        // The device that left the pool is not taken for part of it.
        session.print(&["zpool", "import", "-d", place, "tank"]);
        assert_eq!(tree(&session), tree_then.replace("b ", "c "));
        session.print(&["zpool", "export", "tank"]);
        let away = session.directory().join("c");
        fs::rename(&c, &away).unwrap();
        session.print(&["zpool", "import", "-d", place, "-T", &then, "tank"]);
        assert_eq!(tree(&session), tree_then);
        let datasets = || session.print(&["zfs", "list", "-Ho", "name", "-r", "tank"]);
        assert_eq!(datasets(), "tank\ntank/then\n");
        session.print(&["zpool", "scrub", "-w", "tank"]);
        assert!(status(&session).contains("with 0 errors"), "{}", status(&session));
        session.print(&["zpool", "export", "tank"]);
        // From then on it is a device as any other.
        session.print(&["zpool", "import", "-d", place, "tank"]);
        assert_eq!((tree(&session), datasets()), (tree_then.to_owned(), "tank\ntank/then\n".to_owned()));
        session.print(&["zpool", "destroy", "tank"]);
        fs::rename(&away, &c).unwrap();
    }
}

#[test]
fn what_is_written_after_going_back_is_there_at_the_next_import() {
    let session = Session::start();
    let place = session.directory().join("disks");
    let place = place.to_str().unwrap();
    let a = disk(&session, "a", 128);
    session.print(&["zpool", "create", "-m", "none", "tank", &a]);
    session.print(&["zfs", "create", "tank/then"]);
    let then = last_group(&session);
    for number in 0..12 {
        session.print(&["zfs", "create", &format!("tank/given-up-{number}")]);
    }
    session.print(&["zpool", "export", "tank"]);
    session.print(&["zpool", "import", "-d", place, "-T", &then, "tank"]);
    session.print(&["zfs", "create", "tank/new"]);
    session.print(&["zpool", "export", "tank"]);
    session.print(&["zpool", "import", "-d", place, "tank"]);
    let datasets = session.print(&["zfs", "list", "-Ho", "name", "-r", "tank"]);
    assert_eq!(datasets, "tank\ntank/new\ntank/then\n");
    session.print(&["zpool", "export", "tank"]);
    let Some(verdict) = testkit::oracle::zdb_of(Path::new(place), "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

#[test]
fn a_device_that_left_a_pool_is_free_for_others() {
    let session = Session::start();
    let [a, b, c] = ["a", "b", "c"].map(|name| disk(&session, name, 128));
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", &a, &b, &c]);
    session.print(&["zpool", "detach", "tank", &b]);
    session.print(&["zpool", "detach", "tank", &c]);
    // Nor is it a pool of its own.
    assert!(!session.run(&["zpool", "import", "-d", &b]).out.contains("tank"));
    session.print(&["zpool", "labelclear", &b]);
    assert!(refusal(&session, &["zpool", "labelclear", &b]).contains("failed to read label"));
    session.print(&["zpool", "create", "-m", "none", "other", &c]);
    session.print(&["zpool", "add", "tank", "spare", &b]);
    session.print(&["zpool", "destroy", "other"]);
}

#[test]
fn the_ashift_of_a_pool_is_no_reason_to_refuse_a_device_for_a_vdev_with_smaller_sectors() {
    let session = Session::start();
    let [a, b, c] = ["a", "b", "c"].map(|name| disk(&session, name, 128));
    session.print(&["zpool", "create", "-m", "none", "-o", "ashift=9", "tank", &a]);
    session.print(&["zpool", "set", "ashift=12", "tank"]);
    session.print(&["zpool", "replace", "-w", "tank", &a, &b]);
    session.print(&["zpool", "attach", "-w", "tank", &b, &c]);
    assert_eq!(tree(&session), "mirror-0 ONLINE, b ONLINE, c ONLINE");
    let error = refusal(&session, &["zpool", "replace", "-o", "ashift=12", "tank", &b, &a]);
    assert!(error.contains("optimal sector size"), "{error}");
}

#[test]
fn a_replacement_inside_a_spare_is_shown_while_it_goes_on_and_the_pool_can_grow() {
    let session = Session::start();
    for layout in ["mirror", "raidz1"] {
        let [a, b, c, s, t, new, more] =
            ["a", "b", "c", "s", "t", "new", "more"].map(|name| disk(&session, name, 128));
        session.print(&["zpool", "create", "-f", "-m", "none", "tank", layout, &a, &b, &c, "spare", &s]);
        session.print(&["inject", "-d", &a, "-e", "nxio", "-T", "all", "-f", "100", "tank"]);
        session.print(&["zpool", "reopen", "tank"]);
        let spared =
            format!("{layout}-0 DEGRADED, spare-0 DEGRADED, a UNAVAIL, s ONLINE, b ONLINE, c ONLINE");
        until(&session, &format!("{spared}, spares, s INUSE"));
        session.print(&["zpool", "wait", "tank"]);
        session.print(&["tunable", "set", "zfs_scan_suspend_progress=1"]);
        session.print(&["zpool", "replace", "tank", &a, &new]);
        let nested = spared.replace("a UNAVAIL,", "replacing-0 DEGRADED, a UNAVAIL, new ONLINE,");
        assert_eq!(tree(&session), format!("{nested}, spares, s INUSE"));
        session.print(&["zpool", "add", "tank", "spare", &t]);
        session.print(&["zpool", "add", "-f", "tank", &more]);
        assert_eq!(tree(&session), format!("{nested}, more ONLINE, spares, s INUSE, t AVAIL"));
        session.print(&["tunable", "set", "zfs_scan_suspend_progress=0"]);
        let whole = format!("{layout}-0 ONLINE, new ONLINE, b ONLINE, c ONLINE, more ONLINE");
        until(&session, &format!("{whole}, spares, s AVAIL, t AVAIL"));
        session.print(&["inject", "-c", "all"]);
        session.print(&["zpool", "destroy", "tank"]);
    }
}
