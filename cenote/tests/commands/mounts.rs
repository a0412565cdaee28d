//! `zfs mount`, `zfs unmount`, and the helper of the system's `mount`. Needs `/dev/fuse`; `CENOTE_SKIP=fuse`
//! leaves this out.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::session::Session;

/// Unmounts as the system does. A mount is busy for a moment while another process looks at it, such as a
/// program that a test beside this one starts.
fn system_unmounts(words: &[&str]) {
    let patience = Instant::now() + Duration::from_secs(10);
    while !Command::new("umount").args(words).status().unwrap().success() {
        assert!(Instant::now() < patience, "umount {words:?} goes on failing");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn filesystems_are_mounted_named_by_path_and_unmounted() {
    if testkit::skipped("fuse", "mounts") {
        return;
    }
    let Some(golden) = testkit::golden::pool("single") else { return };
    let session = Session::start();
    let root = session.directory().join("root");
    let (place, root) = (golden.dir.to_str().unwrap(), root.to_str().unwrap());
    session.print(&["zpool", "import", "-N", "-o", "readonly=on", "-R", root, "-d", place, "single"]);
    assert_eq!(session.print(&["zfs", "mount"]), "");

    session.print(&["zfs", "mount", "single/fs"]);
    let at = format!("{root}/fs");
    assert_eq!(session.print(&["zfs", "mount"]), format!("{:<30}  {at}\n", "single/fs"));
    let again = session.run(&["zfs", "mount", "single/fs"]);
    let message = "cannot mount 'single/fs': filesystem already mounted\n";
    assert_eq!((again.code, again.err.as_str()), (1, message));
    assert_eq!(session.print(&["zfs", "list", "-Ho", "name,mounted", &at]), "single/fs\tyes\n");
    let source = session.print(&["zfs", "get", "-Ho", "value,source", "readonly", "single/fs"]);
    assert_eq!(source, "on\ttemporary\n");

    let snapshot = session.directory().join("snapshot");
    let snapshot = snapshot.to_str().unwrap();
    session.print(&["zfs", "mount", "--at", snapshot, "single/fs@one"]);
    let has_entries = std::fs::read_dir(snapshot).unwrap().next().is_some();
    assert!(has_entries, "the snapshot shows its files");
    let listed: serde_json::Value = serde_json::from_str(&session.print(&["zfs", "mount", "-j"])).unwrap();
    assert_eq!(listed["datasets"].as_object().unwrap().keys().collect::<Vec<_>>(), ["single/fs"]);

    session.print(&["zfs", "unmount", snapshot]);
    session.print(&["zfs", "unmount", "single/fs"]);
    session.print(&["zfs", "mount", "-a"]);
    let count = session.print(&["zfs", "mount"]).lines().count();
    assert_eq!(count, 9, "all filesystems");
    session.print(&["zfs", "umount", "-a"]);
    assert_eq!(session.print(&["zfs", "mount"]), "");

    assert_eq!(session.run(&["zfs", "mount", "-R"]).code, 2);
    session.print(&["zfs", "mount", "-fR", "-o", "noexec", "single/fs"]);
    let mounted = session.print(&["zfs", "mount"]);
    assert!(!mounted.is_empty() && mounted.lines().all(|line| line.starts_with("single/fs")), "{mounted}");
    assert_eq!(
        session.print(&["zfs", "get", "-Hpo", "value,source", "exec", "single/fs"]),
        "off\ttemporary\n"
    );
    session.print(&["zfs", "unmount", "-fu", "-a"]);
    assert_eq!(session.print(&["zfs", "mount"]), "");
}

#[test]
fn the_system_mounts_what_is_legacy_again_and_otherwise() {
    if testkit::skipped("fuse", "legacy mounts") {
        return;
    }
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("left out: legacy mounts need root");
        return;
    }
    let session = Session::start();
    let disk = session.directory().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let (disk, root) = (disk.to_str().unwrap(), session.directory().join("root"));
    session.print(&["zpool", "create", "-R", root.to_str().unwrap(), "tank", disk]);
    session.print(&["zfs", "create", "-o", "mountpoint=legacy", "tank/fs"]);
    let at = session.directory().join("at");
    std::fs::create_dir(&at).unwrap();
    let at = at.to_str().unwrap();
    let refused = session.run(&["mount.cenote", "tank", at]);
    assert_eq!(refused.code, 32);
    assert!(refused.err.contains("its mountpoint is not legacy"), "{}", refused.err);
    session.print(&["zfs", "create", "-o", "canmount=off", "tank/off"]);
    for nowhere in ["nowhere", "/dev/null"] {
        let refused = session.run(&["mount.cenote", "-o", "zfsutil", "tank/off", nowhere]);
        assert_eq!(refused.code, 32);
        assert!(refused.err.contains(nowhere), "{}", refused.err);
    }
    // With `zfsutil` any filesystem is mounted, and a pool's by its device too.
    session.print(&["mount.cenote", "-o", "zfsutil,ro", "tank/off", at]);
    session.print(&["zfs", "unmount", "tank/off"]);
    session.print(&["zfs", "unmount", "tank"]);
    session.print(&["mount.cenote", "-s", "-o", "zfsutil,nonsense", disk, at]);
    assert!(session.print(&["zfs", "mount"]).contains(at));
    session.print(&["zfs", "unmount", "tank"]);
    session.print(&["zfs", "mount", "tank"]);
    session.print(&["zfs", "create", "-V", "1M", "tank/volume"]);
    let use_mount = "legacy mountpoint\nuse mount(8) to mount this filesystem, or --at DIR";
    for (what, name, why) in [
        ("unmount", "tank/fs", "legacy mountpoint\nuse umount(8) to unmount this filesystem"),
        ("mount", "tank/fs", use_mount),
        ("mount", "tank/off", "'canmount' property is set to 'off'"),
        ("unmount", "tank/off", "not currently mounted"),
        ("mount", "tank", "filesystem already mounted"),
    ] {
        let ended = session.run(&["zfs", what, name]);
        assert_eq!((ended.code, ended.err), (1, format!("cannot {what} '{name}': {why}\n")));
    }
    for (what, name, why) in [
        ("mount", "tank/volume", "operation not applicable to datasets of this type"),
        ("unmount", "tank/volume", "operation not applicable to datasets of this type"),
        ("unmount", "tank/nothing", "dataset does not exist"),
    ] {
        let ended = session.run(&["zfs", what, name]);
        assert_eq!((ended.code, ended.err), (1, format!("cannot open '{name}': {why}\n")));
    }

    // Projects are given to files, not to what snapshots hold.
    let shown = root.join("tank");
    session.print(&["zfs", "set", "snapdir=visible", "tank"]);
    std::fs::create_dir(shown.join("dir")).unwrap();
    std::fs::write(shown.join("dir/file"), "").unwrap();
    let project = |words: &[&str]| {
        session.print(&[&["zfs", "project", "-r"], words, &[shown.to_str().unwrap()]].concat())
    };
    assert_eq!(project(&["-s", "-p", "7"]), "");
    let listed = project(&[]);
    assert!(listed.lines().count() == 3 && listed.lines().all(|line| line.starts_with("    7 ")), "{listed}");

    // Who mounts it by `zfs` unmounts it so, after a rename too; the system's mounts are the system's.
    session.print(&["zfs", "mount", "--at", at, "tank/fs"]);
    session.print(&["zfs", "rename", "tank/fs", "tank/named"]);
    session.print(&["zfs", "unmount", "tank/named"]);
    session.print(&["zfs", "rename", "tank/named", "tank/fs"]);
    session.print(&["mount.cenote", "tank/fs", at]);
    let refused = session.run(&["zfs", "unmount", at]);
    assert!(refused.code == 1 && refused.err.contains("use umount(8)"), "{}", refused.err);
    system_unmounts(&[at]);

    let file = format!("{at}/file");
    // Each time right after it was unmounted without the daemon.
    for round in 0..5 {
        session.print(&["mount.cenote", "tank/fs", at, "-o", "rw,noexec,nofail"]);
        std::fs::write(&file, [round]).unwrap();
        if round < 4 {
            system_unmounts(&[at]);
            assert!(!std::fs::exists(&file).unwrap());
        }
    }
    session.print(&["mount.cenote", "tank/fs", at, "-o", "remount,ro,noexec,relatime,user_id=0"]);
    let kind = std::fs::write(&file, b"no").unwrap_err().kind();
    assert_eq!(kind, std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(std::fs::read(&file).unwrap(), [4]);
    let words =
        session.print(&["zfs", "get", "-Hpo", "property,value,source", "exec,readonly,atime", "tank/fs"]);
    assert_eq!(words, "exec\toff\ttemporary\nreadonly\ton\ttemporary\natime\ton\tdefault\n");
    session.print(&["zfs", "mount", "-o", "remount,rw", "tank/fs"]);
    std::fs::write(&file, b"yes").unwrap();
    let holds = || session.print(&["zfs", "get", "-Hpo", "value", "exec,readonly,atime", "tank/fs"]);
    // What is not forbidden is allowed.
    session.print(&["mount.cenote", "tank/fs", at, "-o", "rw,noatime,remount,user_id=0,default_permissions"]);
    assert_eq!(holds(), "on\noff\noff\n");
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(table.contains(&format!(" {at} fuse.zfs rw,noatime,")), "{table}");
    session.print(&["mount.cenote", "tank/fs", at, "-o", "rw,remount,relatime,user_id=0"]);
    assert_eq!(holds(), "on\noff\non\n");
    // The kernel's table has the name that a filesystem had when it was mounted.
    session.print(&["zfs", "rename", "tank/fs", "tank/other"]);
    session.print(&["zfs", "create", "tank/fs"]);
    session.print(&["mount.cenote", "tank/fs", at, "-o", "ro,remount,relatime,user_id=0"]);
    assert!(std::fs::write(&file, b"no").is_err());
    session.print(&["zfs", "mount", "-o", "remount,rw", "tank/other"]);
    session.print(&["zfs", "destroy", "tank/fs"]);
    session.print(&["zfs", "rename", "tank/other", "tank/fs"]);
    // A remount by the kernel alone (without the helper) contradicts no property.
    let remount = ["-i", "-o", "remount,noexec,ro", at];
    assert!(std::process::Command::new("mount").args(remount).status().unwrap().success());
    assert_eq!(holds(), "off\non\non\n");
    assert!(std::fs::write(&file, b"no").is_err());
    session.print(&["zfs", "set", "setuid=off", "tank/fs"]);
    assert_eq!(holds(), "off\non\non\n");
    session.print(&["zfs", "mount", "-o", "remount,rw", "tank/fs"]);
    assert_eq!(holds(), "on\noff\non\n");
    std::fs::write(&file, b"yes").unwrap();
    session.print(&["zpool", "export", "tank"]);
}

/// What mounts everything else than a user may, and where; `None` for others than root.
pub fn root_session(what: &str) -> Option<(Session, tempfile::TempDir)> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if testkit::skipped("fuse", what) || unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let disks = tempfile::tempdir().unwrap();
    File::create(disks.path().join("disk")).unwrap().set_len(128 << 20).unwrap();
    let session = Session::start();
    let (disk, root) = (disks.path().join("disk"), disks.path().join("root"));
    session.print(&["zpool", "create", "-R", root.to_str().unwrap(), "tank", disk.to_str().unwrap()]);
    session.print(&["zfs", "create", "tank/fs"]);
    Some((session, disks))
}

const MAPPED_BYTES: usize = 16 << 10;

/// A file that is mapped, which another process serves.
struct Mapped(*mut u8);

impl Mapped {
    fn of(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of an open file; nothing else is replaced.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), MAPPED_BYTES, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(at.cast())
    }

    fn fill(&self, byte: u8) {
        // SAFETY: the mapping has so many bytes, and no other code uses it.
        unsafe { self.0.write_bytes(byte, MAPPED_BYTES) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and is not used any more.
        unsafe { libc::munmap(self.0.cast(), MAPPED_BYTES) };
    }
}

#[test]
fn what_programs_mapped_and_changed_is_kept_however_a_filesystem_goes() {
    let Some((session, disks)) = root_session("forced unmounts") else { return };
    let disk_directory = disks.path().to_str().unwrap().to_owned();
    let root = disks.path().join("root").to_str().unwrap().to_owned();
    let file = disks.path().join("root/tank/fs/file");
    let import = ["zpool", "import", "-R", &root, "-d", &disk_directory, "tank"];
    let holds = |byte: u8| {
        let content = fs::read(&file).unwrap();
        assert!(
            content.len() == MAPPED_BYTES && content.iter().all(|at| *at == byte),
            "{byte}: {:?}",
            content[0]
        );
    };
    fs::write(&file, [0; MAPPED_BYTES]).unwrap();

    // Back to a snapshot: what was changed before that is in it, and nothing of what was changed after.
    let mapped = Mapped::of(&file);
    mapped.fill(1);
    session.print(&["zfs", "snapshot", "tank/fs@one"]);
    mapped.fill(2);
    session.print(&["zfs", "rollback", "tank/fs@one"]);
    holds(1);
    mapped.fill(3);
    drop(mapped);
    holds(3);

    // Times that a program sets stay, although what was changed before comes later. What is changed then
    // counts.
    let metadata = || fs::metadata(&file).unwrap();
    let set = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let write_only = File::options().write(true).open(&file).unwrap();
    let mapped = Mapped::of(&file);
    mapped.fill(7);
    write_only.set_modified(set).unwrap();
    write_only.sync_all().unwrap();
    assert_eq!(metadata().modified().unwrap(), set);
    let began = Instant::now();
    while metadata().modified().unwrap() == set {
        assert!(began.elapsed() < Duration::from_secs(20), "later changes count");
        mapped.fill(8);
        write_only.sync_all().unwrap();
    }
    drop(mapped);
    holds(8);
    // What is read through a handle for both was accessed, also where the kernel had it.
    write_only.set_times(fs::FileTimes::new().set_accessed(set)).unwrap();
    let mut both = File::options().read(true).write(true).open(&file).unwrap();
    assert_eq!(metadata().accessed().unwrap(), set, "it was only opened");
    both.read_exact(&mut [0; 10]).unwrap();
    assert_ne!(metadata().accessed().unwrap(), set);
    drop((both, write_only));

    let mapped = Mapped::of(&file);
    mapped.fill(4);
    let busy = session.run(&["zfs", "unmount", "tank/fs"]).err;
    let said = format!("cannot unmount '{root}/tank/fs': pool or dataset is busy\nin use by ");
    assert!(busy.starts_with(&said) && busy.ends_with("/tank/fs/file is mapped)\n"), "{busy}");
    session.print(&["zfs", "unmount", "-f", "tank/fs"]);
    session.print(&["zfs", "mount", "tank/fs"]);
    holds(4);
    drop(mapped);

    let mapped = Mapped::of(&file);
    mapped.fill(5);
    session.print(&["zpool", "export", "-f", "tank"]);
    // Another process has the devices at once, although the file is still mapped.
    let other = Session::start_heard();
    other.print(&import);
    holds(5);
    drop(mapped);

    let mapped = Mapped::of(&file);
    mapped.fill(6);
    let ended = other.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    session.print(&import);
    holds(6);
    drop(mapped);
    session.print(&["zpool", "export", "tank"]);
}

/// A process with a mount namespace of its own, as that of a container.
pub struct Container(Child);

impl Container {
    pub fn start() -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sleep", "1000"]).stdin(Stdio::null());
        let child = unshare.spawn().unwrap();
        let container = Self(child);
        // By then it has its namespace, in which nothing is changed that is changed outside.
        while fs::read_to_string(format!("/proc/{}/comm", container.0.id())).unwrap() != "sleep\n" {
            std::thread::yield_now();
        }
        container
    }

    pub fn process(&self) -> u32 {
        self.0.id()
    }

    /// A path as it is there.
    fn sees(&self, path: &Path) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.0.id())).join(path.strip_prefix("/").unwrap())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_filesystem_that_somebody_has_elsewhere_leaves_its_place_and_comes_back_as_it_is() {
    let Some((session, disks)) = root_session("mount namespaces") else { return };
    let at = disks.path().join("root/tank/fs");
    let file = at.join("file");
    fs::write(&file, "before").unwrap();
    let device = fs::metadata(&at).unwrap().dev();
    let mounted = || session.print(&["zfs", "get", "-Ho", "value", "mounted", "tank/fs"]);
    let container = Container::start();

    session.print(&["zfs", "unmount", "tank/fs"]);
    assert_eq!(mounted(), "no\n");
    assert!(!file.exists());
    assert_eq!(fs::read(container.sees(&file)).unwrap(), b"before");
    fs::write(container.sees(&file), "within").unwrap();
    let busy = session.run(&["zpool", "export", "tank"]);
    assert_eq!(busy.code, 1);
    assert!(busy.err.contains("(sleep) has it mounted at "), "{}", busy.err);
    let busy = session.run(&["zfs", "destroy", "tank/fs"]);
    assert_eq!((busy.code, busy.err.as_str()), (1, "cannot destroy 'tank/fs': dataset is busy\n"));

    session.print(&["zfs", "mount", "tank/fs"]);
    assert_eq!(mounted(), "yes\n");
    assert_eq!(fs::metadata(&at).unwrap().dev(), device, "the same session");
    assert_eq!(fs::read(&file).unwrap(), b"within");
    fs::write(&file, "after").unwrap();
    assert_eq!(fs::read(container.sees(&file)).unwrap(), b"after");

    // What was created is created, although it could not be mounted; any other change without its mount is a
    // failure.
    fs::write(disks.path().join("root/file"), "").unwrap();
    let unmounted = session.run(&["zfs", "create", "-o", "mountpoint=/file", "tank/new"]);
    assert_eq!(unmounted.code, 0);
    assert!(unmounted.err.starts_with("cannot mount 'tank/new': "), "{}", unmounted.err);
    assert!(
        unmounted.err.ends_with("filesystem successfully created, but not mounted\n"),
        "{}",
        unmounted.err
    );
    session.print(&["zfs", "set", "mountpoint=/new", "tank/new"]);
    assert_eq!(session.print(&["zfs", "get", "-Ho", "value", "mounted", "tank/new"]), "yes\n");
    let unmounted = session.run(&["zfs", "set", "mountpoint=/file", "tank/new"]);
    assert_eq!(unmounted.code, 1);
    assert!(
        unmounted.err.starts_with("property may be set but unable to remount filesystem: "),
        "{}",
        unmounted.err
    );
    let refused = session.run(&["zfs", "set", "mountpoint=/x/../y", "tank/new"]);
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (1, "cannot set property for 'tank/new': 'mountpoint' must be a path without '.' and '..'\n")
    );
    // Parents that a rename makes are mounted as others are.
    session.print(&["zfs", "rename", "-p", "tank/new", "tank/a/b/new"]);
    let mounted_now = session.print(&["zfs", "get", "-Ho", "value", "mounted", "tank/a", "tank/a/b"]);
    assert_eq!(mounted_now, "yes\nyes\n");

    // Another place, and another program that unmounts it.
    session.print(&["zfs", "set", "mountpoint=/moved", "tank/fs"]);
    let moved = disks.path().join("root/moved");
    assert_eq!(fs::read(moved.join("file")).unwrap(), b"after");
    assert_eq!(fs::metadata(&moved).unwrap().dev(), device);
    system_unmounts(&[moved.to_str().unwrap()]);
    assert_eq!(mounted(), "no\n");

    drop(container);
    session.print(&["zfs", "mount", "tank/fs"]);
    assert_eq!(fs::read(moved.join("file")).unwrap(), b"after");
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn what_was_written_is_on_disk_when_it_is_unmounted() {
    let Some((session, disks)) = root_session("durable unmounts") else { return };
    let at = disks.path().join("root/tank/fs");
    let root = disks.path().join("root").to_str().unwrap().to_owned();
    let disk = disks.path().join("disk");
    let copies = tempfile::tempdir().unwrap();
    // What a crash in this moment leaves.
    let mut copied = 0;
    let mut has = |name: &str| {
        copied += 1;
        let copy = copies.path().join(copied.to_string());
        let copying = Command::new("cp").arg("--sparse=always").args([&disk, &copy]).status().unwrap();
        assert!(copying.success());
        let target = format!("tank/fs:/{name}");
        let ended = session.run(&["cat", "-d", copy.to_str().unwrap(), &target]);
        assert_eq!((ended.code, ended.out.as_str()), (0, name), "{}", ended.err);
        fs::remove_file(copy).unwrap();
    };
    let write = |name: &str| fs::write(at.join(name), name).unwrap();
    write("by-name");
    session.print(&["zfs", "unmount", "tank/fs"]);
    has("by-name");
    session.print(&["zfs", "mount", "tank/fs"]);
    write("all");
    session.print(&["zfs", "unmount", "-a"]);
    has("all");
    session.print(&["zfs", "mount", "-a"]);
    write("forced");
    let open = File::open(at.join("forced")).unwrap();
    session.print(&["zfs", "unmount", "-f", "tank/fs"]);
    has("forced");
    drop(open);
    session.print(&["zfs", "mount", "tank/fs"]);
    write("helper");
    session.print(&["umount.fuse.cenote", at.to_str().unwrap()]);
    has("helper");
    session.print(&["zfs", "mount", "tank/fs"]);
    write("lazy");
    let open = File::open(at.join("lazy")).unwrap();
    session.print(&["umount.fuse.cenote", "-l", at.to_str().unwrap()]);
    has("lazy");
    drop(open);
    // The system's own call tells the daemon nothing before it returns: the daemon commits as soon as it
    // notices.
    session.print(&["zfs", "mount", "tank/fs"]);
    write("system");
    system_unmounts(&["-i", at.to_str().unwrap()]);
    session.print(&["zfs", "mount", "tank/fs"]);
    write("read-only");
    session.print(&["zfs", "mount", "-o", "remount,ro", "tank/fs"]);
    has("read-only");
    session.print(&["zfs", "mount", "-o", "remount,rw", "tank/fs"]);
    write("moved");
    session.print(&["zfs", "set", "mountpoint=/moved", "tank/fs"]);
    has("moved");
    fs::write(format!("{root}/moved/exported"), "exported").unwrap();
    session.print(&["zpool", "export", "tank"]);
    has("exported");
    let refused = session.run(&["umount.fuse.cenote", at.to_str().unwrap()]);
    assert_eq!(refused.code, 32);
}

#[test]
fn files_are_rewritten_in_pools_with_the_features_of_openzfs_2_4() {
    if testkit::skipped("fuse", "rewriting files") {
        return;
    }
    let session = Session::start();
    let root = session.directory().join("root");
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let (shown, disk) = (root.to_str().unwrap(), disk.to_str().unwrap());
    session.print(&["zpool", "create", "-o", "compatibility=openzfs-2.4", "-R", shown, "tank", disk]);
    let feature = || session.print(&["zpool", "get", "-Ho", "value", "feature@physical_rewrite", "tank"]);
    assert_eq!(feature(), "enabled\n");
    session.print(&["zfs", "create", "-o", "compression=off", "tank/fs"]);
    let folder = root.join("tank/fs/folder");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    session.print(&["zfs", "snapshot", "tank/fs@before"]);
    let used = || {
        let used = session.print(&["zfs", "get", "-Hpo", "value", "used", "tank/fs@before"]);
        used.trim().parse::<u64>().unwrap()
    };
    let folder = folder.to_str().unwrap();
    assert_eq!(session.print(&["zfs", "rewrite", "-P", "-v", folder]), "", "not what is in it");
    let listed = session.print(&["zfs", "rewrite", "-Prvx", folder]);
    assert_eq!(listed, format!("{}\n", file.display()));
    session.print(&["zpool", "sync", "tank"]);
    assert!(used() >= 1 << 20, "{}", used());
    assert_eq!(feature(), "active\n");
    session.print(&["zfs", "rewrite", "-o", "0x20000", "-l", "131072", file.to_str().unwrap()]);
    assert_eq!(fs::read(&file).unwrap(), vec![7; 1 << 20]);
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), modified);
    // Of a sparse file only what is there, however far away.
    let path = file.with_file_name("sparse");
    let sparse = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let places = [0, (1 << 40) + (5 << 17), (1 << 42) - 1];
    places.iter().for_each(|at| sparse.write_all_at(b"x", *at).unwrap());
    let blocks = || {
        session.print(&["zpool", "sync", "tank"]);
        sparse.metadata().unwrap().blocks()
    };
    let before = blocks();
    session.print(&["zfs", "rewrite", path.to_str().unwrap()]);
    assert_eq!(blocks(), before);
    let mut byte = [0];
    for at in places {
        sparse.read_exact_at(&mut byte, at).unwrap();
        assert_eq!(byte, *b"x");
    }
    drop(sparse);
    let missing = session.run(&["zfs", "rewrite", "-r", "/nowhere at all"]);
    assert_eq!((missing.code, missing.err.starts_with("failed to stat /nowhere at all")), (1, true));

    session.print(&["zfs", "set", "defaultuserquota=5M", "tank/fs"]);
    session.print(&["zfs", "set", "special_small_blocks=20000", "tank/fs"]);
    session.print(&["zfs", "create", "-s", "-V", "8M", "-o", "special_small_blocks=3K", "tank/vol"]);
    session.print(&["zfs", "create", "tank/fs/child"]);
    session.print(&["zpool", "sync", "tank"]);
    let value = |property: &str, dataset: &str| {
        session.print(&["zfs", "get", "-Hpo", "value", property, dataset]).trim().to_owned()
    };
    assert_eq!(value("defaultuserquota", "tank/fs"), (5 << 20).to_string());
    assert_eq!(value("defaultuserquota", "tank/fs/child"), (5 << 20).to_string(), "as its parent");
    assert_eq!(value("special_small_blocks", "tank/fs/child"), "20000");
    assert_eq!(value("special_small_blocks", "tank/vol"), "3072");
    session.print(&["zpool", "trim", "-a", "-w"]);
    session.print(&["zpool", "initialize", "-a", "-w"]);
    assert_eq!(session.run(&["zpool", "trim", "-a", "tank"]).code, 2);

    // What has no such feature is as it was.
    let old = session.directory().join("old");
    File::create(&old).unwrap().set_len(128 << 20).unwrap();
    session.print(&["zpool", "create", "-R", shown, "old", old.to_str().unwrap()]);
    let other = root.join("old/file");
    fs::write(&other, b"some").unwrap();
    let other = other.to_str().unwrap();
    let refused = session.run(&["zfs", "rewrite", "-P", other]);
    assert_eq!((refused.code, refused.err.contains("failed to rewrite")), (1, true), "{}", refused.err);
    assert!(refused.err.contains("zpool set feature@physical_rewrite=enabled"), "{}", refused.err);
    let plain = session.directory().join("plain");
    fs::write(&plain, b"some").unwrap();
    let elsewhere = session.run(&["zfs", "rewrite", plain.to_str().unwrap()]);
    let is_told = elsewhere.err.contains("not on a filesystem of a pool");
    assert!(elsewhere.code == 1 && is_told, "{}", elsewhere.err);
    session.print(&["zfs", "rewrite", other]);
    let state = session.print(&["zpool", "get", "-Ho", "value", "feature@physical_rewrite", "old"]);
    assert_eq!(state, "disabled\n");
}

#[test]
fn clones_of_files_and_of_snapshots_are_counted_as_in_openzfs() {
    let Some((session, disks)) = root_session("clones on mounts") else { return };
    let at = disks.path().join("root/tank");
    let sync = || session.print(&["zpool", "sync", "tank"]);
    let pool = |property: &str| session.print(&["zpool", "get", "-Hpo", "value", property, "tank"]);
    session.print(&["zfs", "set", "compression=off", "tank"]);
    let copy = |from: &str, to: &str| {
        assert_eq!(fs::copy(at.join(from), at.join(to)).unwrap(), 100_000);
    };
    let clones = || {
        sync();
        let number = |property: &str| pool(property).trim().parse::<u64>().unwrap();
        (number("bcloneused"), number("bclonesaved"), pool("bcloneratio").trim().to_owned())
    };
    fs::write(at.join("file"), vec![7; 100_000]).unwrap();
    sync();
    ["a", "b", "c"].into_iter().for_each(|to| copy("file", to));
    assert_eq!(clones(), (100_352, 3 * 100_352, "4.00".into()));
    // A copy of what was copied in the same group.
    copy("a", "d");
    copy("d", "e");
    assert_eq!(clones(), (100_352, 5 * 100_352, "6.00".into()));
    fs::remove_file(at.join("file")).unwrap();
    assert_eq!(clones(), (100_352, 4 * 100_352, "5.00".into()));
    // What is not on disk yet is copied.
    fs::write(at.join("new"), vec![8; 100_000]).unwrap();
    copy("new", "copied");
    sync();
    assert_eq!(fs::read(at.join("e")).unwrap(), vec![7; 100_000]);
    assert_eq!(fs::read(at.join("copied")).unwrap(), vec![8; 100_000]);

    // A clone lists its blocks as long as most are its origin's.
    session.print(&["zfs", "set", "compression=off", "tank/fs"]);
    fs::write(at.join("fs/file"), vec![7; 5 << 20]).unwrap();
    assert_eq!(fs::metadata(at.join("fs/.zfs/snapshot")).unwrap().mtime(), 0);
    session.print(&["zfs", "snapshot", "tank/fs@now"]);
    let changed = session.print(&["zfs", "get", "-Hpo", "value", "snapshots_changed", "tank/fs"]);
    let listed = fs::metadata(at.join("fs/.zfs/snapshot")).unwrap();
    assert_eq!(changed.trim(), listed.mtime().to_string());
    session.print(&["zfs", "clone", "tank/fs@now", "tank/clone"]);
    assert_eq!(pool("feature@livelist"), "active\n");
    fs::write(at.join("clone/other"), vec![9; 3 << 20]).unwrap();
    sync();
    sync();
    assert_eq!(pool("feature@livelist"), "enabled\n");
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn filesystems_are_mounted_with_all_below_each_of_them() {
    let Some((session, _disks)) = root_session("mounting filesystems with those below") else { return };
    for name in ["tank/fs/below", "tank/two", "tank/two/child", "tank/two/child/deep", "tank/three"] {
        session.print(&["zfs", "create", name]);
    }
    let mounted = || {
        let listed = session.print(&["zfs", "list", "-Ho", "name,mounted"]);
        let names = listed.lines().filter_map(|line| line.strip_suffix("\tyes"));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    session.print(&["zfs", "unmount", "-a"]);
    assert_eq!(mounted(), [""; 0]);
    session.print(&["zfs", "mount", "-R", "tank/fs", "tank/two/child"]);
    assert_eq!(mounted(), ["tank/fs", "tank/fs/below", "tank/two/child", "tank/two/child/deep"]);
    session.print(&["zfs", "unmount", "-a"]);
    let some = session.run(&["zfs", "mount", "-R", "tank/nothing", "tank/three"]);
    assert!(some.code == 1 && some.err.contains("tank/nothing"), "{some:?}");
    assert_eq!(mounted(), ["tank/three"], "the others are mounted although one cannot be");
    session.print(&["zfs", "mount", "-R", "tank"]);
    assert_eq!(mounted().len(), 7);
    assert_eq!(session.run(&["zfs", "mount", "tank/two", "tank/three"]).code, 2);
}
