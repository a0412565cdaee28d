//! Golden pools mounted through FUSE, compared with what OpenZFS showed of them.
//!
//! Needs `/dev/fuse`; `CENOTE_SKIP=fuse` leaves these tests out. Who is not root mounts through
//! `fusermount3`; then what only root may do, or read, is left out, which is told. What is said to come
//! through rings does so where the kernel's switch for them is on
//! (`/sys/module/fuse/parameters/enable_uring`), and through the device where it is off.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "system calls under test")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::pool::import::{ImportOptions, import};
use engine::pool::{discovery, errlog};
use engine::properties::Environment;
use engine::zpl::{Zpl, ZplOptions};
use ondisk::ObjectId;
use ondisk::zpl::FileType;
use server::fuse::{self, FuseMount, Left, MountError, MountOptions, Source};
use testkit::GoldenPool;
use testkit::manifest::HostTree;

fn golden(name: &str) -> Option<GoldenPool> {
    if testkit::skipped("fuse", name) { None } else { testkit::golden::pool(name) }
}

/// The datasets of a golden pool, opened read-only, its keys loaded.
fn open(golden: &GoldenPool) -> Arc<Dsl> {
    block_on(async {
        let found = discovery::scan(&[&golden.dir]).await.unwrap();
        let pool = import(&found[0], &ImportOptions::read_only()).await.unwrap();
        let dsl = Dsl::open(&pool).await.unwrap();
        for root in dsl.encryption_roots(None).await.unwrap() {
            let material = match format!("{:?}", root.format).to_lowercase().as_str() {
                "passphrase" => "pass",
                "raw" => "rawkey",
                _ => "hex",
            };
            let material = std::fs::read(golden.expect(material)).unwrap();
            let material = material.strip_suffix(b"\n").unwrap_or(&material);
            dsl.load_key(&root.dir.name, material, false).await.unwrap();
        }
        Arc::new(dsl)
    })
}

/// How requests are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Device,
    Rings,
}

/// Whether the kernel has rings for who wants them.
fn has_rings() -> bool {
    std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|word| word.trim() == "Y")
}

fn mount(dsl: &Arc<Dsl>, name: &str, at: &Path, way: Way) -> FuseMount {
    let (dataset, mut options) = block_on(async {
        let entry = dsl.entry(name).await.unwrap();
        let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await.unwrap();
        (entry.dataset().unwrap().clone(), MountOptions::from_properties(&properties))
    });
    options.ring = way == Way::Rings;
    let mount = fuse::mount(Source::Committed(Arc::clone(dsl), dataset), at, &options).unwrap();
    assert_eq!(mount.answered_through_rings().is_some(), way == Way::Rings && has_rings());
    assert_eq!(mount.options_words().contains(&"ring".to_owned()), mount.answered_through_rings().is_some());
    mount
}

/// Every filesystem of the pool, and every snapshot below `.zfs/snapshot`, is what the manifests say.
fn check(name: &str, way: Way) {
    let Some(golden) = golden(name) else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let recorded = golden.filesystems().unwrap();
    assert!(!recorded.is_empty(), "{name} has no manifests");
    for filesystem in recorded.iter().filter(|name| !name.contains('@')) {
        let mount = mount(&dsl, filesystem, place.path(), way);
        golden
            .manifest(filesystem)
            .unwrap()
            .assert_same_as_far_as_allowed(filesystem, &HostTree::new(place.path()));
        let below = format!("{filesystem}@");
        for snapshot in recorded.iter().filter(|name| name.starts_with(&below)) {
            let path = place.path().join(".zfs/snapshot").join(&snapshot[below.len()..]);
            golden.manifest(snapshot).unwrap().assert_same_as_far_as_allowed(snapshot, &HostTree::new(path));
        }
        // Looking at its root alone takes some.
        assert!(mount.answered_through_rings().is_none_or(|answered| answered > 3));
        mount.unmount(false).map_err(|failed| failed.1).unwrap();
    }
}

macro_rules! pools {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name), Way::Device); })*

        mod through_rings {
            $(#[test] fn $name() { super::check(stringify!($name), super::Way::Rings); })*
        }
    };
}

pools! {
    single volumes triple rz1 rz2 rz3 rz1s9 dr2 codecs dedupold dedupfast crypt classes removed expanded bclone
    checkpoint legacy28 features0 degraded corrupt streams
}

#[test]
fn a_mount_in_use_is_busy_until_forced() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    for way in [Way::Device, Way::Rings] {
        let held = mount(&dsl, "single/fs", place.path(), way);
        let open_file = File::open(place.path()).unwrap();
        let (held, error) = *held.unmount(false).unwrap_err();
        assert!(matches!(error, MountError::Busy { .. }), "{error}");
        assert!(held.is_alive());
        held.unmount(true).map_err(|failed| failed.1).unwrap();
        assert!(!place.path().join("a").exists());
        drop(open_file);
    }
}

/// Runs a test once more in a process of its own, where no other test starts threads or opens files; true in
/// that one.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "CENOTE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let output = again.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

#[test]
fn an_idle_mount_costs_a_thread_and_a_descriptor_and_no_memory_to_speak_of() {
    const MOUNTS: usize = 60;
    let Some(golden) = golden("single") else { return };
    if !is_alone("an_idle_mount_costs_a_thread_and_a_descriptor_and_no_memory_to_speak_of") {
        return;
    }
    let dsl = open(&golden);
    let places: Vec<_> = (0..=MOUNTS).map(|_| tempfile::tempdir().unwrap()).collect();
    let costs = || {
        let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let resident_kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
        (count("task"), count("fd"), resident_kib)
    };
    // What all of them share begins with the first.
    let first = mount(&dsl, "single/fs", places[0].path(), Way::Device);
    assert!(places[0].path().join("empty").exists());
    let before = costs();
    let mut mounts: Vec<_> = places[1..]
        .iter()
        .map(|place| {
            let mount = mount(&dsl, "single/fs", place.path(), Way::Device);
            assert!(place.path().join("empty").exists());
            mount
        })
        .collect();
    let after = costs();
    println!("{MOUNTS} mounts: threads, descriptors and KiB {before:?}, then {after:?}");
    assert!(after.0 - before.0 <= MOUNTS, "threads: {before:?}, {after:?}");
    // A thread that has read from the device keeps its ring for a while: two more.
    assert!(after.1 - before.1 <= 3 * MOUNTS, "descriptors: {before:?}, {after:?}");
    assert!(after.2 - before.2 <= 512 * MOUNTS, "KiB of memory: {before:?}, {after:?}");
    mounts.push(first);
    mounts.into_iter().for_each(|mount| mount.unmount(false).map_err(|failed| failed.1).unwrap());
    // Threads tell that they end before they have.
    while costs().0 > before.0 {
        std::thread::yield_now();
    }
}

/// What a test needs and only root may do; `None`, told, where that is not allowed.
fn by_root<T>(code: libc::c_int, done: T) -> Option<T> {
    let error = std::io::Error::last_os_error();
    match code {
        0 => Some(done),
        _ => {
            eprintln!("skipped: only root may mount what this test needs ({error})");
            None
        }
    }
}

/// Where the kernel lists its connections for the time of a test; `None` where that is not allowed.
struct Connections(tempfile::TempDir);

impl Connections {
    fn mount() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let at = std::ffi::CString::new(place.path().to_str().unwrap()).unwrap();
        let kind = c"fusectl".as_ptr();
        // SAFETY: all are terminated strings that live through the call.
        let code = unsafe { libc::mount(kind, at.as_ptr(), kind, 0, std::ptr::null()) };
        by_root(code, Self(place))
    }

    fn abort(&self, at: &Path) {
        let device = std::fs::metadata(at).unwrap().dev();
        std::fs::write(self.0.path().join(libc::minor(device).to_string()).join("abort"), "1").unwrap();
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let at = std::ffi::CString::new(self.0.path().to_str().unwrap()).unwrap();
        // SAFETY: a terminated string that lives through the call.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_connection_that_is_aborted_ends_its_session_and_leaves_no_mount() {
    let Some(golden) = golden("single") else { return };
    let Some(connections) = Connections::mount() else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    for way in [Way::Device, Way::Rings] {
        let held = mount(&dsl, "single/fs", place.path(), way);
        let open_file = File::open(place.path().join("huge")).unwrap();
        connections.abort(place.path());
        // All threads are gone by then. A test that never gets there shows it.
        while held.is_alive() {
            std::thread::yield_now();
        }
        assert!(open_file.read_at(&mut [0; 512], 1 << 20).is_err());
        drop(open_file);
        fuse::clear_stale(place.path());
        held.unmount(false).map_err(|failed| failed.1).unwrap();
        assert!(std::fs::read_dir(place.path()).unwrap().next().is_none(), "{way:?}");
    }
}

/// Something that is mounted for the time of a test, as only root can.
struct MountedBeside<'a>(&'a Path);

impl<'a> MountedBeside<'a> {
    /// `None` where that is not allowed.
    fn new(kind: &std::ffi::CStr, what: &Path, at: &'a Path, flags: libc::c_ulong) -> Option<Self> {
        let [from, to] = [what, at].map(|path| std::ffi::CString::new(path.to_str().unwrap()).unwrap());
        // SAFETY: all are terminated strings that live through the call.
        let code = unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
        by_root(code, Self(at))
    }
}

impl Drop for MountedBeside<'_> {
    fn drop(&mut self) {
        let at = std::ffi::CString::new(self.0.to_str().unwrap()).unwrap();
        // SAFETY: a terminated string that lives through the call.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn what_was_mounted_there_before_stays_when_a_filesystem_goes() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let Some(_below) = MountedBeside::new(c"tmpfs", Path::new("below"), place.path(), 0) else { return };
    let below = place.path().join("of the lower one");
    std::fs::write(&below, "").unwrap();
    for force in [false, true] {
        let mount = mount(&dsl, "single/fs", place.path(), Way::Device);
        assert!(!below.exists());
        mount.unmount(force).map_err(|failed| failed.1).unwrap();
        assert!(below.exists(), "{force}");
    }
    let mount = mount(&dsl, "single/fs", place.path(), Way::Device);
    drop(mount);
    assert!(below.exists());
}

#[test]
fn what_somebody_mounted_over_a_filesystem_stays_when_that_goes() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let held = mount(&dsl, "single/fs", place.path(), Way::Device);
    let Some(above) = MountedBeside::new(c"tmpfs", Path::new("above"), place.path(), 0) else { return };
    let file = place.path().join("of the upper one");
    std::fs::write(&file, "").unwrap();
    let (held, error) = *held.unmount(false).unwrap_err();
    assert!(matches!(error, MountError::Covered { .. }), "{error}");
    assert!(file.exists());
    drop(above);
    held.unmount(false).map_err(|failed| failed.1).unwrap();
    assert!(std::fs::read_dir(place.path()).unwrap().next().is_none());
}

#[test]
fn a_filesystem_that_is_mounted_elsewhere_too_leaves_its_place_and_stays_there() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let there = other.path().join("empty");
    for force in [false, true] {
        let held = mount(&dsl, "single/fs", place.path(), Way::Device);
        let beside = MountedBeside::new(c"none", place.path(), other.path(), libc::MS_BIND);
        let Some(beside) = beside else { return };
        let device = std::fs::metadata(place.path()).unwrap().dev();
        let before = fuse::Elsewhere::read().unwrap();
        assert_eq!(held.take_away(false, Some(&before)).unwrap(), Left::Elsewhere);
        assert!(!place.path().join("empty").exists() && there.exists());
        held.put_back(place.path(), &MountOptions { writable: false, ..MountOptions::default() }).unwrap();
        assert_eq!(std::fs::metadata(place.path()).unwrap().dev(), device, "the same session");
        assert_eq!(held.take_away(force, None).unwrap(), if force { Left::Nothing } else { Left::Elsewhere });
        assert_eq!(File::open(&there).is_ok(), !force, "by force nobody has it");
        drop(beside);
        held.let_go_if_unused(&fuse::Elsewhere::read().unwrap());
        while held.is_alive() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_mountpoint_may_be_a_symbolic_link() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let (real, link) = (place.path().join("real"), place.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink("real", &link).unwrap();
    for force in [false, true] {
        let mount = mount(&dsl, "single/fs", &link, Way::Device);
        assert_eq!(mount.mountpoint(), link);
        assert!(real.join("empty").exists());
        mount.unmount(force).map_err(|failed| failed.1).unwrap();
        assert!(!real.join("empty").exists());
    }
}

#[test]
fn more_requests_at_once_than_a_queue_has_threads_are_all_answered() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let mount = mount(&dsl, "single/fs", place.path(), Way::Rings);
    let path = place.path().join("rand-odd");
    let file = std::fs::read(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let mut options = File::options();
                    let direct = options.read(true).custom_flags(libc::O_DIRECT);
                    let direct = direct.open(&path).unwrap();
                    let mut read = vec![0; file.len()];
                    direct.read_exact_at(&mut read, 0).unwrap();
                    assert!(read == file, "other bytes than before");
                }
            });
        }
    });
    if let Some(answered) = mount.answered_through_rings() {
        // Opened, read and closed.
        assert!(answered >= 40 * 10 * 2, "{answered}");
        assert!(mount.ring_threads() > 1);
    }
}

/// A block that is damaged on the only device: its file says so, at that place, and no other file is touched.
#[test]
fn a_damaged_block_is_an_error_in_its_file_and_in_the_log() {
    let Some(golden) = golden("single") else { return };
    let copies = tempfile::tempdir().unwrap();
    let disk = golden.private_copy(copies.path()).unwrap().remove(0);
    let dsl = open(&GoldenPool { name: golden.name.clone(), dir: copies.path().to_owned() });

    // Some file of several blocks, and where its second block lies.
    let (dataset, zpl) = block_on(async {
        let dataset = dsl.find("single/r4k").await.unwrap();
        let objset = dsl.open_objset(&dataset).await.unwrap();
        (dataset, Zpl::open(&objset, ZplOptions::default()).await.unwrap())
    });
    let (object, pointer) = block_on(async {
        let mut id = ObjectId(2);
        loop {
            id = zpl
                .objset()
                .next_object(ObjectId(id.0 + 1))
                .await
                .unwrap()
                .expect("a file of several blocks");
            if let Ok(node) = zpl.node(id).await
                && node.file_type() == FileType::Regular
                && let Some(pointer) = node.object().blkptr(0, 1).await.unwrap()
                && !pointer.is_embedded()
            {
                break (id, pointer);
            }
        }
    });
    let path = String::from_utf8(block_on(zpl.path_of(object)).unwrap().unwrap()).unwrap();
    let dva = pointer.dva(0).unwrap();
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0xa5; 512], dva.offset.get() + (4 << 20)).unwrap();

    let place = tempfile::tempdir().unwrap();
    let _mount = mount(&dsl, &dataset.name, place.path(), Way::Rings);
    let file = File::open(place.path().join(&path[1..])).unwrap();
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 0).unwrap();
    assert_eq!(file.read_exact_at(&mut block, 4096).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(
        golden
            .manifest(&dataset.name)
            .unwrap()
            .differences_as_far_as_allowed(&HostTree::new(place.path()))
            .len()
            == 1
    );

    let damaged = block_on(errlog::read(&dsl)).unwrap();
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert_eq!((damaged[0].objset.0, damaged[0].object, damaged[0].block.0), (dataset.object.0, object, 1));
}

#[test]
fn nothing_can_be_written() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let _mount = mount(&dsl, "single/fs", place.path(), Way::Rings);
    for result in [
        std::fs::write(place.path().join("new"), b"x"),
        std::fs::remove_file(place.path().join("empty")),
        std::fs::create_dir(place.path().join("dir")),
        std::fs::rename(place.path().join("empty"), place.path().join("full")),
    ] {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EROFS));
    }
}

#[test]
fn the_snapshot_directory_is_hidden_but_there() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let _mount = mount(&dsl, "single/fs", place.path(), Way::Rings);
    let names = |path: &Path| -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert!(!names(place.path()).contains(&".zfs".to_owned()));
    assert_eq!(names(&place.path().join(".zfs")), ["snapshot"]);
    assert_eq!(names(&place.path().join(".zfs/snapshot")), ["one", "two"]);
    assert!(!place.path().join(".zfs/snapshot/three").exists());
}

#[test]
fn holes_are_told_from_data() {
    let Some(golden) = golden("single") else { return };
    let dsl = open(&golden);
    let place = tempfile::tempdir().unwrap();
    let _mount = mount(&dsl, "single/fs", place.path(), Way::Rings);
    let huge = File::open(place.path().join("huge")).unwrap();
    // SAFETY: the descriptor is open.
    let data = unsafe { libc::lseek(huge.as_raw_fd(), 0, libc::SEEK_DATA) };
    // SAFETY: as above.
    let hole = unsafe { libc::lseek(huge.as_raw_fd(), 0, libc::SEEK_HOLE) };
    assert!(data >= 0 && hole >= 0 && data != hole, "data at {data}, hole at {hole}");
}
