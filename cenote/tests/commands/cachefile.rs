//! Pools that come back after the daemon's end, by the cache file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::session::Session;

/// Pools `kept` and `loose`, on a file each, and where the daemon keeps them.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for disk in ["kept", "loose"] {
            File::create(directory.path().join(disk)).unwrap().set_len(128 << 20).unwrap();
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn cachefile(&self) -> PathBuf {
        self.path("state/zpool.cache")
    }

    fn start(&self, environment: &[(&str, &str)]) -> Session {
        Session::start_keeping(&self.cachefile(), environment)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn open(session: &Session) -> String {
    session.print(&["zpool", "list", "-H", "-o", "name"])
}

#[test]
fn pools_on_files_come_back_after_the_end_of_the_daemon_however_it_came() {
    let place = Place::new();
    let session = place.start(&[]);
    session.print(&["zpool", "create", "-m", "none", "kept", text(&place.path("kept"))]);
    session.print(&[
        "zpool",
        "create",
        "-m",
        "none",
        "-o",
        "cachefile=none",
        "loose",
        text(&place.path("loose")),
    ]);
    session.print(&["zfs", "create", "kept/fs"]);
    let cachefile = place.cachefile();
    if let Some(theirs) = testkit::oracle::zdb(&["-U", text(&cachefile), "-C", "kept"]) {
        assert!(theirs.contains(text(&place.path("kept"))), "{theirs}");
    }
    assert_eq!(open(&session), "kept\nloose\n");

    // In good order.
    session.stop();
    let session = place.start(&[]);
    assert_eq!(open(&session), "kept\n");
    assert!(session.print(&["zfs", "list", "-H", "-o", "name"]).contains("kept/fs"));

    // As in a crash. Another host does not take it without being told to.
    session.kill();
    let session = place.start(&[("ZFS_HOSTID", "0x12345678")]);
    assert_eq!(open(&session), "");
    session.stop();
    let session = place.start(&[]);
    assert_eq!(open(&session), "kept\n");

    // What is exported stays so.
    session.print(&["zpool", "export", "kept"]);
    assert!(!cachefile.exists());
    session.stop();
    assert_eq!(open(&place.start(&[])), "");
}

#[test]
fn a_cache_file_of_ones_own_is_kept_and_imported_from() {
    let place = Place::new();
    let session = place.start(&[]);
    let own = place.path("own.cache");
    let property = format!("cachefile={}", text(&own));
    session.print(&["zpool", "create", "-m", "none", "-o", &property, "kept", text(&place.path("kept"))]);
    assert!(own.exists() && !place.cachefile().exists());
    assert_eq!(
        session.print(&["zpool", "get", "-H", "-o", "value", "cachefile", "kept"]),
        format!("{}\n", text(&own))
    );
    session.print(&["zpool", "set", "comment=as it is now", "kept"]);
    let bytes = fs::read(&own).unwrap();
    assert!(bytes.windows(12).any(|text| text == b"as it is now"), "what is set later is in it too");
    session.print(&["zpool", "set", "cachefile=", "kept"]);
    assert!(!own.exists() && place.cachefile().exists());
    session.print(&["zpool", "set", &property, "kept"]);
    assert!(own.exists() && !place.cachefile().exists());
    let copy = place.path("copy.cache");
    fs::copy(&own, &copy).unwrap();
    session.print(&["zpool", "export", "kept"]);
    assert!(!own.exists());

    let listed = session.print(&["zpool", "import", "-c", text(&copy)]);
    assert!(listed.contains("pool: kept"), "{listed}");
    session.print(&["zpool", "import", "-c", text(&copy), "kept"]);
    assert_eq!(open(&session), "kept\n");
    assert!(place.cachefile().exists());
    // Devices with other names are found beside those that the file knows, and so are those that came later.
    File::create(place.path("more")).unwrap().set_len(128 << 20).unwrap();
    session.print(&["zpool", "add", "kept", text(&place.path("more"))]);
    session.print(&["zpool", "export", "kept"]);
    fs::rename(place.path("kept"), place.path("moved")).unwrap();
    session.print(&["zpool", "import", "-c", text(&copy), "kept"]);
    // The daemon's own file is in no pool's property.
    let property = format!("cachefile={}", text(&place.cachefile()));
    session.print(&["zpool", "set", &property, "kept"]);
    let shown = || session.print(&["zpool", "get", "-Ho", "value", "cachefile", "kept"]);
    assert_eq!(shown(), "-\n");
    session.print(&["zpool", "export", "kept"]);
    session.print(&["zpool", "import", "-o", &property, "-d", text(place.directory.path()), "kept"]);
    assert_eq!(shown(), "-\n");
    assert!(place.cachefile().exists());
    // Nothing of a pool that may only be read is kept.
    session.print(&["zpool", "export", "kept"]);
    session.print(&["zpool", "import", "-o", "readonly=on", "-c", text(&copy), "kept"]);
    assert!(!place.cachefile().exists());
    for wrong in ["cachefile=relative", "cachefile=/no/such/directory/file"] {
        let refused = session.run(&["zpool", "set", wrong, "kept"]);
        assert!(
            refused.code == 1 && refused.err.contains("cachefile") || refused.err.contains("not a valid"),
            "{refused:?}"
        );
    }
}

#[test]
fn devices_that_were_attached_after_an_old_cache_file_was_written_are_found() {
    let place = Place::new();
    let session = place.start(&[]);
    let (own, old) = (place.path("own.cache"), place.path("old.cache"));
    let property = format!("cachefile={}", text(&own));
    let (first, second) = (place.path("kept"), place.path("loose"));
    let create = ["zpool", "create", "-m", "none", "-o", &property, "tank", "mirror"];
    session.print(&[&create[..], &[text(&first), text(&second)]].concat());
    fs::copy(&own, &old).unwrap();
    // Beside the others. All devices that the file knows stay where they are.
    let third = place.path("third");
    File::create(&third).unwrap().set_len(128 << 20).unwrap();
    session.print(&["zpool", "attach", "-w", "tank", text(&second), text(&third)]);
    session.print(&["zpool", "export", "tank"]);
    session.print(&["zpool", "import", "-c", text(&old), "tank"]);
    let status = session.print(&["zpool", "status", "-P", "tank"]);
    for disk in [&first, &second, &third] {
        let line = status.lines().find(|line| line.contains(text(disk)));
        assert!(line.is_some_and(|line| line.contains("ONLINE")), "{} in {status}", disk.display());
    }
    assert_eq!(session.print(&["zpool", "list", "-Ho", "health", "tank"]), "ONLINE\n");
}

#[test]
fn a_pool_that_is_exported_hard_is_opened_by_the_next_start() {
    let place = Place::new();
    let session = place.start(&[]);
    let own = place.path("own.cache");
    let property = format!("cachefile={}", text(&own));
    File::create(place.path("other")).unwrap().set_len(128 << 20).unwrap();
    for (name, options) in [("kept", &[][..]), ("other", &["-o", &property])] {
        let create = ["zpool", "create", "-m", "none"].iter().chain(options).copied();
        let disk = place.path(name);
        let create: Vec<&str> = create.chain([name, text(&disk)]).collect();
        session.print(&create);
    }
    for name in ["kept", "other"] {
        session.print(&["zpool", "export", "-F", name]);
    }
    assert_eq!(open(&session), "");
    // Their labels say that they are open here, so that only this host may have them without force.
    session.print(&["zpool", "import", "-c", text(&own), "other"]);
    assert_eq!(open(&session), "other\n");
    session.print(&["zpool", "export", "other"]);
    assert!(place.cachefile().exists());
    session.stop();
    let session = place.start(&[]);
    assert_eq!(open(&session), "kept\n");
    session.print(&["zpool", "export", "kept"]);
    assert!(!place.cachefile().exists());
}

#[test]
fn pools_on_files_of_another_pool_come_back_after_that_one() {
    if testkit::skipped("fuse", "pools on files of mounts") {
        return;
    }
    let place = Place::new();
    let session = place.start(&[]);
    // By name, and by the labels that are found first, the others come before the pool that they lie on.
    let (outer, beside) = (place.path("kept"), place.path("loose"));
    let mount = place.path("mount");
    session.print(&["zpool", "create", "-m", text(&mount), "zone", text(&outer)]);
    let inside = |name: &str| {
        let path = mount.join(name);
        File::create(&path).unwrap().set_len(65 << 20).unwrap();
        path
    };
    // Each is told to lie on a filesystem of the same daemon.
    let create = |arguments: &[&str]| {
        let created = session.run(&[&["zpool", "create", "-f", "-m"], arguments].concat());
        assert!(created.code == 0 && created.err.contains("lies on files of 'zone'"), "{created:?}");
    };
    create(&["none", "mixed", "mirror", text(&beside), text(&inside("half"))]);
    create(&[text(&place.path("deep")), "alone", text(&inside("alone"))]);
    session.stop();

    let session = place.start(&[]);
    let states = |session: &Session| session.print(&["zpool", "list", "-H", "-o", "name,health"]);
    let all = "alone\tONLINE\nmixed\tONLINE\nzone\tONLINE\n";
    assert_eq!(states(&session), all);
    session.stop();

    // The outer one is not there at the start. A fifo in place of a device does not hide other pools.
    // Beside the place where it was it would be found.
    fs::create_dir(place.path("elsewhere")).unwrap();
    let away = place.path("elsewhere/away");
    fs::rename(&outer, &away).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&outer).status().unwrap();
    assert!(made.success());
    let session = place.start(&[]);
    assert_eq!(states(&session), "mixed\tDEGRADED\n");
    fs::remove_file(&outer).unwrap();
    fs::rename(&away, &outer).unwrap();
    session.print(&["zpool", "import", "-d", text(&outer), "zone"]);
    assert!(states(&session).starts_with("alone\tONLINE\nmixed\t"), "{}", states(&session));

    // What was exported stays so, whatever is mounted.
    session.print(&["zpool", "export", "alone"]);
    session.print(&["zfs", "unmount", "zone"]);
    session.print(&["zfs", "mount", "zone"]);
    assert!(!open(&session).contains("alone"));
    session.stop();
}

#[test]
fn a_device_that_was_replaced_leaves_the_cache_file_by_itself() {
    let place = Place::new();
    let session = place.start(&[]);
    let (old, new) = (place.path("kept"), place.path("loose"));
    session.print(&["zpool", "create", "-m", "none", "tank", text(&old)]);
    session.print(&["zpool", "replace", "-w", "tank", text(&old), text(&new)]);
    let names = |path: &Path| {
        let kept = fs::read(place.cachefile()).unwrap_or_default();
        kept.windows(text(path).len()).any(|window| window == text(path).as_bytes())
    };
    let start = Instant::now();
    while names(&old) || !names(&new) {
        assert!(start.elapsed() < Duration::from_secs(60), "the cache file has another list of devices");
        std::thread::sleep(Duration::from_millis(20));
    }
    session.print(&["zpool", "export", "tank"]);
    session.stop();
}
