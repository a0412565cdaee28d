//! Filesystems that are written through their mounts. Needs `/dev/fuse`; `CENOTE_SKIP=fuse` leaves these
//! tests out.
//!
//! All of this is tested twice: in `filesystems_through_rings` the pool is mounted with the option `ring`,
//! which changes something where the kernel has rings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use device::block_on;
use server::api::{
    CreateDataset, CreatePool, DestroyDataset, ErrorKind, ExportPool, ImportPool, ListDatasets, ListMounts,
    ListSpace, NewDevices, NewLayout, NewVdev, Owner, Rollback, SetProperties, TakeSnapshots, Unmount,
};

use crate::harness::{Running, skips_fuse};

const DISK_BYTES: u64 = 256 << 20;

/// A daemon with a new pool `tank` on one file, mounted at the returned directory.
pub fn start() -> Option<(Running, PathBuf)> {
    if skips_fuse() {
        return None;
    }
    let running = Running::start();
    let disk = running.place.path().join("disk");
    File::create(&disk).unwrap().set_len(DISK_BYTES).unwrap();
    let vdev = NewVdev { layout: NewLayout::Single, class: Default::default(), devices: vec![disk] };
    let create = CreatePool {
        name: "tank".into(),
        devices: NewDevices { vdevs: vec![vdev], ..NewDevices::default() },
        altroot: Some(running.altroot()),
        ..CreatePool::default()
    };
    let opened = block_on(running.daemon.create_pool(create)).unwrap();
    assert_eq!(opened.warnings, Vec::<String>::new());
    let at = opened.mounts[0].mountpoint.clone();
    if !mount_options().is_empty() {
        again(&running);
    }
    Some((running, at))
}

/// With what filesystems are mounted in this one of the two runs.
fn mount_options() -> Vec<String> {
    if module_path!().ends_with("through_rings") { vec!["ring".into()] } else { Vec::new() }
}

pub fn create(running: &Running, name: &str, properties: &[(&str, &str)]) {
    let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let request = CreateDataset { name: name.into(), properties, ..CreateDataset::default() };
    assert_eq!(block_on(running.daemon.create_dataset(request)).unwrap().warnings, Vec::<String>::new());
}

pub fn set(running: &Running, name: &str, property: &str, value: &str) {
    let request = SetProperties {
        datasets: vec![name.into()],
        properties: vec![(property.into(), value.into())],
        ..SetProperties::default()
    };
    let set = block_on(running.daemon.set_properties(request)).unwrap();
    assert!(set.failed.is_empty() && set.warnings.is_empty(), "{set:?}");
}

pub fn snapshot(running: &Running, name: &str) {
    let request = TakeSnapshots { names: vec![name.into()], ..TakeSnapshots::default() };
    assert!(block_on(running.daemon.take_snapshots(request)).is_ok());
}

/// Exports the pool and imports it again.
pub fn again(running: &Running) {
    again_as(running, None);
}

/// As [`again`], by another name if one is given.
pub fn again_as(running: &Running, new_name: Option<&str>) {
    let export = ExportPool { all: true, ..ExportPool::default() };
    block_on(running.daemon.export(export)).unwrap();
    let import = ImportPool {
        pool: Some("tank".into()),
        search: vec![running.place.path().to_owned()],
        altroot: Some(running.altroot()),
        mount_options: mount_options(),
        new_name: new_name.map(str::to_owned),
        ..ImportPool::default()
    };
    let imported = block_on(running.daemon.import(import)).unwrap();
    assert_eq!(imported.pools[0].warnings, Vec::<String>::new());
    let has_rings =
        fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|word| word.trim() == "Y");
    for mount in running.daemon.list_mounts(ListMounts {}).unwrap() {
        let comes_through_rings = mount.answered_through_rings.is_some();
        assert_eq!(comes_through_rings, has_rings && !mount_options().is_empty(), "{mount:?}");
    }
}

/// What `zdb` must say of the pool, which is exported for it.
pub fn judge(running: &Running) {
    block_on(running.daemon.export(ExportPool { all: true, ..ExportPool::default() })).unwrap();
    let Some(verdict) = testkit::oracle::zdb_of(running.place.path(), "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// What can be seen of a tree: type and mode, links, owner, size, time, content or target.
type Seen = BTreeMap<PathBuf, (u32, u64, u32, u64, i64, Vec<u8>)>;

fn see(top: &Path) -> Seen {
    let mut seen = Seen::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let content = if metadata.is_dir() {
            waiting.extend(names(&path).iter().map(|name| path.join(name)));
            Vec::new()
        } else if metadata.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if metadata.is_file() {
            fs::read(&path).unwrap()
        } else {
            metadata.rdev().to_le_bytes().to_vec()
        };
        let size = if metadata.is_dir() { 0 } else { metadata.size() };
        let entry = (metadata.mode(), metadata.nlink(), metadata.uid(), size, metadata.mtime_nsec(), content);
        seen.insert(path.strip_prefix(top).unwrap().to_owned(), entry);
    }
    seen
}

#[test]
fn what_is_written_is_there_after_an_export_and_zdb_finds_nothing_wrong() {
    let Some((running, at)) = start() else { return };
    let deep = at.join("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("small"), b"hello").unwrap();
    fs::write(deep.join("large"), (0..3_000_000u32).map(|at| (at / 7) as u8).collect::<Vec<_>>()).unwrap();
    symlink("../somewhere", deep.join("link")).unwrap();
    fs::hard_link(deep.join("small"), at.join("small too")).unwrap();
    fs::rename(at.join("a/b"), at.join("moved")).unwrap();
    let sparse = File::create(at.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 10_000_000).unwrap();
    sparse.set_len(20_000_000).unwrap();
    fs::set_permissions(at.join("sparse"), fs::Permissions::from_mode(0o604)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    sparse.set_times(FileTimes::new().set_modified(then)).unwrap();
    sparse.sync_all().unwrap();
    let mut appended = File::options().append(true).create(true).open(at.join("appended")).unwrap();
    for line in 0..100 {
        writeln!(appended, "line {line}").unwrap();
    }
    for number in 0..500 {
        fs::write(at.join(format!("moved/file{number}")), number.to_string()).unwrap();
    }
    for number in (0..500).step_by(3) {
        fs::remove_file(at.join(format!("moved/file{number}"))).unwrap();
    }
    drop((sparse, appended));
    let before = see(&at);
    assert_eq!(before[Path::new("sparse")].3, 20_000_000);
    again(&running);
    assert!(see(&at) == before, "another tree than was written");
    judge(&running);
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_open() {
    let Some((running, at)) = start() else { return };
    let path = at.join("file");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(&[8; 100_000]).unwrap();
    file.seek(SeekFrom::Start(99_999)).unwrap();
    let mut read = [0; 2];
    file.read_exact(&mut read).unwrap();
    assert_eq!(read, [7, 8]);
    fs::write(&path, b"another").unwrap();
    assert_eq!(file.metadata().unwrap().size(), 200_000);
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"another");
    judge(&running);
}

#[test]
fn what_is_refused_is_refused_with_the_right_number() {
    let Some((running, at)) = start() else { return };
    fs::create_dir(at.join("dir")).unwrap();
    fs::write(at.join("dir/file"), b"").unwrap();
    let new = |path: &Path| File::options().write(true).create_new(true).open(path);
    assert_eq!(errno(new(&at.join("dir/file"))), libc::EEXIST);
    assert_eq!(errno(fs::create_dir(at.join("dir"))), libc::EEXIST);
    assert_eq!(errno(fs::remove_dir(at.join("dir"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::remove_dir(at.join("dir/file"))), libc::ENOTDIR);
    assert_eq!(errno(fs::rename(at.join("dir"), at.join("dir/below"))), libc::EINVAL);
    assert_eq!(errno(fs::write(at.join("n".repeat(256)), b"")), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::remove_file(at.join("n".repeat(256)))), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::create_dir(at.join(".zfs"))), libc::EEXIST);
    set(&running, "tank", "quota", "40M");
    for pass in 0..4 {
        fs::write(at.join("again and again"), vec![pass; 25 << 20]).expect("what is replaced gives room");
    }
    let mut noise = vec![0; 60 << 20];
    File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
    assert_eq!(errno(fs::write(at.join("too large"), &noise)), libc::EDQUOT);
    fs::remove_file(at.join("too large")).unwrap();
    judge(&running);
}

#[test]
fn a_file_can_be_made_without_a_name() {
    let Some((running, at)) = start() else { return };
    let open = |flags| {
        File::options().read(true).write(true).mode(0o640).custom_flags(libc::O_TMPFILE | flags).open(&at)
    };
    let link = |file: &File, name: &str| {
        let old = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        rustix::fs::linkat(
            rustix::fs::CWD,
            &old,
            rustix::fs::CWD,
            at.join(name),
            rustix::fs::AtFlags::SYMLINK_FOLLOW,
        )
    };
    let mut file = open(0).unwrap();
    file.write_all(&[5; 300_000]).unwrap();
    assert_eq!(names(&at), Vec::<String>::new());
    assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().size()), (0, 300_000));
    link(&file, "named").unwrap();
    assert_eq!(names(&at), ["named"]);
    let named = fs::metadata(at.join("named")).unwrap();
    assert_eq!((named.nlink(), named.mode() & 0o7777), (1, 0o640));
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(at.join("named")).unwrap(), [5; 300_000]);

    let exclusive = open(libc::O_EXCL).unwrap();
    assert_eq!(link(&exclusive, "exclusive"), Err(rustix::io::Errno::NOENT));
    let mut gone = open(0).unwrap();
    gone.write_all(&[6; 300_000]).unwrap();
    drop((gone, exclusive));
    assert_eq!(names(&at), ["named"]);
    judge(&running);
}

#[test]
fn names_of_several_spellings_are_never_stale() {
    let Some((running, at)) = start() else { return };
    create(&running, "tank/case", &[("casesensitivity", "insensitive")]);
    create(&running, "tank/form", &[("normalization", "formD")]);
    for (dataset, first, second) in [("case", "Name", "nAME"), ("form", "\u{e9}", "e\u{301}")] {
        let top = at.join(dataset);
        let (first, second, other) = (top.join(first), top.join(second), top.join("other"));
        let both = || [first.exists(), second.exists()];
        assert_eq!(both(), [false; 2]);
        fs::write(&first, dataset).unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), dataset);
        // A list tells names, too.
        assert_eq!(names(&top), [first.file_name().unwrap().to_str().unwrap()]);
        fs::rename(&second, &other).unwrap();
        assert_eq!(both(), [false; 2], "{dataset}");
        fs::hard_link(&other, &second).unwrap();
        assert_eq!(both(), [true; 2]);
        assert_eq!(errno(fs::create_dir(&first)), libc::EEXIST);
        names(&top);
        fs::remove_file(&first).unwrap();
        assert_eq!(both(), [false; 2], "{dataset}");
        fs::create_dir(&second).unwrap();
        names(&top);
        fs::remove_dir(&first).unwrap();
        assert_eq!(both(), [false; 2], "{dataset}");
    }
    judge(&running);
}

#[test]
fn a_directory_can_change_while_it_is_listed() {
    let Some((_running, mount)) = start() else { return };
    let dir = mount.join("dir");
    let name = |number: usize| format!("a file of many in this directory, number {number:05}");
    // Of a small directory, whose names one block has, and of a large one.
    for files in [1500, 5000] {
        fs::create_dir(&dir).unwrap();
        for number in 0..files {
            fs::write(dir.join(name(number)), b"").unwrap();
        }
        let order: Vec<PathBuf> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(order.len(), files);

        // So that the kernel does not keep the list of before.
        fs::write(dir.join("other"), b"").unwrap();
        let mut listing = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        // What the kernel asks for first, and more.
        let mut seen: Vec<PathBuf> = listing.by_ref().take(40).collect();
        // All over what was read and not yet asked for.
        let gone: BTreeSet<&PathBuf> = order.iter().skip(100).step_by(20).collect();
        for (number, path) in gone.iter().enumerate() {
            if number % 2 == 0 {
                fs::rename(path, dir.join(format!("renamed {number}"))).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }
        // A program looks at files whose attributes the kernel has, so that it asks for more of them.
        assert!(seen.iter().take(15).all(|path| path.exists()));
        seen.extend(listing);
        for path in &gone {
            assert!(!path.exists(), "{}", path.display());
        }
        let is_new = |path: &PathBuf| path.ends_with("other") || path.to_string_lossy().contains("renamed");
        let changed = |path: &PathBuf| gone.contains(path) || is_new(path);
        seen.retain(|path| !changed(path));
        let mut expected: Vec<_> = order.iter().filter(|path| !changed(path)).cloned().collect();
        seen.sort();
        expected.sort();
        assert!(seen == expected, "each of the others once");
        // From the beginning the list is that of now.
        let now = names(&dir);
        assert_eq!(now.len(), files + 1 - gone.len() / 2);
        assert!(now.contains(&"renamed 0".to_owned()) && now.contains(&"other".to_owned()));
        fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn a_file_that_was_made_read_only_elsewhere_can_be_freed_from_it() {
    let Some((running, at)) = start() else { return };
    const GET: libc::c_ulong = 0x8008_8301;
    const SET: libc::c_ulong = 0x4008_8302;
    let (read_only, hidden, immutable, opaque) = (1u64 << 32, 1u64 << 33, 1u64 << 36, 1u64 << 40);
    let path = at.join("file");
    fs::write(&path, "content").unwrap();
    let call = |file: &File, command, mut flags: u64| {
        // SAFETY: the descriptor is open, and the argument lives through the call.
        match unsafe { libc::ioctl(file.as_raw_fd(), command, &raw mut flags) } {
            0 => Ok(flags),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    let file = File::open(&path).unwrap();
    let before = call(&file, GET, 0).unwrap();
    call(&file, SET, before | read_only | hidden).unwrap();
    drop(file);
    again(&running);
    let file = File::open(&path).unwrap();
    assert_eq!(call(&file, GET, 0).unwrap(), before | read_only | hidden);
    // Root alone may write it, like a file without write permissions.
    match file.metadata().unwrap().uid() {
        0 => fs::write(&path, "content").unwrap(),
        _ => assert_eq!(errno(fs::write(&path, "other")), libc::EPERM),
    }
    assert_eq!(errno(call(&file, SET, before | opaque)), libc::EOPNOTSUPP);
    assert_eq!(errno(call(&file, SET, before | immutable)), libc::EPERM);
    if file.metadata().unwrap().uid() == 0 {
        assert_eq!(errno(as_user(1234, 1234, || call(&file, SET, before))), libc::EACCES);
    }
    call(&file, SET, before).unwrap();
    let generation = |file: &File| call(file, 0x8008_7601, 0).unwrap();
    let first = generation(&file);
    assert_ne!(first, 0, "it is the group that it was made in");
    drop(file);
    fs::write(&path, "other").unwrap();
    again(&running);
    assert_eq!(generation(&File::open(&path).unwrap()), first);
    judge(&running);
}

/// The names in the next part of a directory's list.
fn next_names(dir: &File) -> Vec<String> {
    const NAME_AT: usize = 19;
    let mut bytes = vec![0u8; 32 << 10];
    // SAFETY: the descriptor is open, and the kernel writes no more than the room that it is told.
    let size =
        unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), bytes.as_mut_ptr(), bytes.len()) };
    let (mut rest, mut names) = (&bytes[..usize::try_from(size).unwrap()], Vec::new());
    while !rest.is_empty() {
        let length = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
        let name = rest[NAME_AT..length].split(|byte| *byte == 0).next().unwrap();
        names.push(String::from_utf8(name.to_vec()).unwrap());
        rest = &rest[length..];
    }
    names
}

#[test]
fn who_began_a_list_before_a_change_spoils_it_for_nobody() {
    let Some((_running, mount)) = start() else { return };
    let dir = mount.join("dir");
    fs::create_dir(&dir).unwrap();
    for number in 0..100 {
        fs::write(dir.join(format!("a file of many in this directory, number {number:05}")), b"").unwrap();
    }
    for round in 0..20 {
        let slow = File::open(&dir).unwrap();
        assert!(!next_names(&slow).is_empty());
        assert_eq!(names(&dir).len(), 100 + round);
        let new = format!("new {round}");
        fs::write(dir.join(&new), b"").unwrap();
        assert!(!next_names(&File::open(&dir).unwrap()).is_empty());
        while !next_names(&slow).is_empty() {}
        assert!(names(&dir).contains(&new), "{new}");
    }
}

/// Takes a mount out of the tree, although files are open.
fn detach(at: &Path) -> bool {
    let at = terminated(at.to_str().unwrap());
    // SAFETY: a terminated string that lives through the call.
    unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) == 0 }
}

#[test]
fn a_mount_that_was_taken_out_of_the_tree_holds_up_no_forced_export() {
    let Some((running, at)) = start() else { return };
    let mut file = File::create(at.join("file")).unwrap();
    file.write_all(b"written, and not made stable").unwrap();
    if !detach(&at) {
        return;
    }
    let export = |force| ExportPool { all: true, force, ..ExportPool::default() };
    let error = block_on(running.daemon.export(export(false))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    block_on(running.daemon.export(export(true))).unwrap();
    assert_eq!(errno(file.write_all(b"no more")), libc::ENOTCONN);
    let import = ImportPool {
        pool: Some("tank".into()),
        search: vec![running.place.path().to_owned()],
        altroot: Some(running.altroot()),
        ..ImportPool::default()
    };
    // Its devices are let go, although the file is open.
    block_on(running.daemon.import(import)).unwrap();
    assert_eq!(fs::read(at.join("file")).unwrap(), b"written, and not made stable");
}

#[test]
fn a_directory_that_is_listed_was_accessed() {
    let Some((running, at)) = start() else { return };
    for (name, property, is_noted) in [("on", "on", true), ("off", "off", false)] {
        create(&running, &format!("tank/{name}"), &[("atime", property)]);
        let top = at.join(name);
        fs::write(top.join("file"), "").unwrap();
        let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::open(&top).unwrap().set_times(FileTimes::new().set_accessed(past)).unwrap();
        assert_eq!(fs::metadata(&top).unwrap().accessed().unwrap(), past);
        assert_eq!(names(&top), ["file"]);
        let accessed = fs::metadata(&top).unwrap().accessed().unwrap();
        assert_eq!(accessed > past, is_noted, "atime={property}: {accessed:?}");
    }
    judge(&running);
}

#[test]
fn a_rename_can_leave_a_whiteout() {
    let Some((running, at)) = start() else { return };
    let (old, new) = (at.join("old"), at.join("new"));
    fs::write(&old, "content").unwrap();
    fs::write(&new, "goes").unwrap();
    let [from, to] = [&old, &new].map(|path| terminated(path.to_str().unwrap()));
    // SAFETY: both paths are terminated strings that live through the call.
    let code = unsafe {
        libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_WHITEOUT)
    };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    // One that takes no file's place. That there is one the kernel finds itself.
    let third = at.join("third");
    fs::write(&third, "third").unwrap();
    let flags = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
    for (to, expected) in [(&new, -1), (&at.join("fourth"), 0)] {
        let [from, to] = [&third, to].map(|path| terminated(path.to_str().unwrap()));
        // SAFETY: as above.
        let code =
            unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) };
        assert_eq!(code, expected, "{}", std::io::Error::last_os_error());
    }
    assert_eq!(fs::read_to_string(at.join("fourth")).unwrap(), "third");
    assert_eq!(fs::symlink_metadata(&third).unwrap().mode() & libc::S_IFMT, libc::S_IFCHR);
    let see = || {
        assert_eq!(fs::read_to_string(&new).unwrap(), "content");
        let left = fs::symlink_metadata(&old).unwrap();
        assert_eq!((left.mode() & libc::S_IFMT, left.rdev()), (libc::S_IFCHR, 0));
    };
    see();
    again(&running);
    see();
    judge(&running);
}

/// Does `work` as a user and group, with one more group. Credentials are a thread's own.
pub fn as_user<T: Send>(id: u32, group: u32, work: impl FnOnce() -> T + Send) -> T {
    let become_user = move || {
        // SAFETY: none of these calls touches memory but the one group.
        let codes = unsafe {
            [
                libc::syscall(libc::SYS_setgroups, 1, &raw const group),
                libc::syscall(libc::SYS_setresgid, id, id, id),
                libc::syscall(libc::SYS_setresuid, id, id, id),
            ]
        };
        assert_eq!(codes, [0; 3]);
        work()
    };
    std::thread::scope(|scope| scope.spawn(become_user).join().unwrap())
}

#[test]
fn who_changes_a_file_without_privileges_leaves_none_in_it() {
    const USER: u32 = 12_345;
    let Some((running, at)) = start() else { return };
    create(&running, "tank/fs", &[("acltype", "posix")]);
    fs::set_permissions(running.place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = at.join("fs/file");
    let reset = |group: u32| {
        fs::write(&path, "content").unwrap();
        std::os::unix::fs::chown(&path, Some(USER), Some(group)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6711)).unwrap();
    };
    // Only the mode: asked for times too, the kernel would look again because of them.
    let mode = || {
        let name = terminated(path.to_str().unwrap());
        // SAFETY: an all-zero `statx` is a valid one; it and the terminated name live through the call.
        let answer = unsafe {
            let mut answer: libc::statx = std::mem::zeroed();
            assert_eq!(libc::statx(libc::AT_FDCWD, name.as_ptr(), 0, libc::STATX_MODE, &mut answer), 0);
            answer
        };
        answer.stx_mode & 0o7777
    };
    for flags in [0, libc::O_DIRECT] {
        reset(USER);
        assert_eq!(mode(), 0o6711);
        as_user(USER, USER, || {
            #[repr(align(4096))]
            struct Page([u8; 4096]);
            let page = Page([1; 4096]);
            let file = fs::OpenOptions::new().write(true).custom_flags(flags).open(&path).unwrap();
            file.write_all_at(&page.0, 0).unwrap();
        });
        assert_eq!(mode(), 0o711, "flags {flags:#x}");
    }
    // Of a range that is allocated, zeroed, punched or copied the kernel does not say so.
    let allocate = |flags| {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), flags, 0, 4096) }, 0);
    };
    fs::write(at.join("fs/other"), "other content").unwrap();
    let copy = || {
        let from = File::open(at.join("fs/other")).unwrap();
        let to = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let nowhere = std::ptr::null_mut();
        // SAFETY: the descriptors are open, and the offsets are theirs.
        let copied =
            unsafe { libc::copy_file_range(from.as_raw_fd(), nowhere, to.as_raw_fd(), nowhere, 5, 0) };
        assert_eq!(copied, 5);
    };
    let write = || fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(b"x").unwrap();
    let ways: [&(dyn Fn() + Sync); 6] = [
        &write,
        &|| fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(3).unwrap(),
        &|| allocate(0),
        &|| allocate(libc::FALLOC_FL_ZERO_RANGE),
        &|| allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
        &copy,
    ];
    for (number, change) in ways.into_iter().enumerate() {
        reset(USER);
        change();
        assert_eq!(mode(), 0o6711, "way {number}: root may");
        as_user(USER, USER, change);
        assert_eq!(mode(), 0o711, "way {number}");
        // A file that its group may not execute: only who is of the group keeps its bit.
        for (group, other, left) in [(USER, USER, 0o2700), (7, 7, 0o2700), (7, 8, 0o700)] {
            reset(group);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6700)).unwrap();
            as_user(USER, other, change);
            assert_eq!(mode(), left, "way {number}, group {group}, user also of {other}");
        }
    }
    for (group, other, left) in [(7, 7, 0o2700), (7, 8, 0o700)] {
        reset(group);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6700)).unwrap();
        as_user(USER, other, || std::os::unix::fs::chown(&path, None, Some(USER)).unwrap());
        assert_eq!(mode(), left, "chown, group {group}, user also of {other}");
    }
    let acl = small_acl();
    for (group, other, left) in [(USER, 0, 0o6711_u16), (7, 7, 0o6711), (7, 8, 0o4711)] {
        reset(group);
        as_user(USER, other, || set_xattr(&path, "system.posix_acl_access", &acl).unwrap());
        assert_eq!(mode(), left, "file of group {group}, user also of {other}");
    }
    judge(&running);
}

/// An ACL that says no more than the mode 0711: owner, group and others, each with its bits, as the kernel
/// has it.
fn small_acl() -> Vec<u8> {
    let entry =
        |tag: u16, bits: u16| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    [2u32.to_le_bytes().to_vec(), entry(1, 7), entry(4, 1), entry(32, 1)].concat()
}

#[test]
fn extended_attributes_are_kept() {
    let Some((running, at)) = start() else { return };
    let path = at.join("file");
    fs::write(&path, b"").unwrap();
    let attribute = |name: &str, value: &[u8]| set_xattr(&path, name, value);
    attribute("user.color", b"red").unwrap();
    attribute("user.large", &[3; 60_000]).unwrap();
    attribute("user.color", b"blue").unwrap();
    assert_eq!(errno(attribute("nobody.knows", b"")), libc::EOPNOTSUPP);
    for name in
        ["user.", "user.user.a", "user.trusted.a", "user.security.a", "user.system.a", "user.freebsd:a"]
    {
        assert_eq!(errno(attribute(name, b"")), libc::EINVAL, "{name}: nobody could read it");
    }
    attribute("trusted.secret", b"of root").unwrap();
    again(&running);
    // Other users than root do not even see that there is one.
    fs::set_permissions(running.place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    as_user(12_345, 12_345, || {
        assert_eq!(xattr_names(&path), ["user.color", "user.large"]);
        assert_eq!(errno(xattr(&path, "trusted.secret")), libc::ENODATA);
        assert_eq!(errno(set_xattr(&path, "trusted.secret", b"")), libc::EPERM);
    });
    assert_eq!(xattr_names(&path), ["trusted.secret", "user.color", "user.large"]);
    assert_eq!(xattr(&path, "trusted.secret").unwrap(), b"of root");
    assert_eq!(xattr(&path, "user.color").unwrap(), b"blue");
    assert_eq!(xattr(&path, "user.large").unwrap(), [3; 60_000]);
    assert_eq!(errno(xattr(&path, "user.none")), libc::ENODATA);

    // Attributes that are files stand in a directory, which has entries that are none.
    set(&running, "tank", "xattr", "dir");
    let other = at.join("other");
    fs::write(&other, b"what is in it").unwrap();
    set_xattr(&other, "user.color", b"blue").unwrap();
    for name in ["user..", "user..."] {
        assert_eq!(errno(xattr(&other, name)), libc::ENODATA, "{name}");
        set_xattr(&other, name, b"dots").unwrap();
        assert_eq!(xattr(&other, name).unwrap(), b"dots", "{name}");
    }
    judge(&running);
}

#[test]
fn a_long_name_stays_one_when_no_other_may_be_so_long() {
    let Some((running, at)) = start() else { return };
    create(&running, "tank/long", &[("longname", "on")]);
    let at = at.join("long");
    let long = |letter: &str| at.join(letter.repeat(300));
    for letter in ["a", "b"] {
        fs::write(long(letter), letter).unwrap();
    }
    fs::create_dir(long("d")).unwrap();
    fs::write(long("d").join("inside"), b"inside").unwrap();
    set(&running, "tank/long", "longname", "off");
    again(&running);
    assert_eq!(names(&at).len(), 3);
    assert_eq!(fs::read(long("a")).unwrap(), b"a");
    assert_eq!(fs::read(long("d").join("inside")).unwrap(), b"inside");
    let too_long = [
        errno(fs::write(long("c"), b"")),
        errno(fs::create_dir(long("c"))),
        errno(fs::hard_link(long("a"), long("c"))),
        errno(fs::rename(long("a"), long("c"))),
        errno(fs::metadata(long("c"))),
        errno(fs::metadata(at.join("a".repeat(1024)))),
    ];
    assert_eq!(too_long, [libc::ENAMETOOLONG; 6]);
    fs::rename(long("a"), at.join("short")).unwrap();
    fs::rename(at.join("short"), at.join("shorter")).unwrap();
    fs::remove_file(long("b")).unwrap();
    fs::remove_dir_all(long("d")).unwrap();
    assert_eq!(names(&at), ["shorter"]);
    judge(&running);
}

/// Marks a mount so that it is told from another one at the same place.
fn mark_mount(at: &Path) {
    let at = std::ffi::CString::new(at.to_str().unwrap()).unwrap();
    // SAFETY: it is terminated and lives through the call; nothing else is used.
    let code = unsafe {
        libc::mount(c"".as_ptr(), at.as_ptr(), c"".as_ptr(), libc::MS_UNBINDABLE, std::ptr::null())
    };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn filesystems_are_mounted_in_one_another_and_follow_their_properties() {
    let Some((running, at)) = start() else { return };
    create(&running, "tank/a", &[]);
    create(&running, "tank/a/b", &[]);
    let inner = at.join("a/b");
    fs::write(inner.join("file"), b"inner").unwrap();
    let device = |path: &Path| path.metadata().unwrap().dev();
    assert!(device(&at) != device(&at.join("a")) && device(&at.join("a")) != device(&inner));
    assert_eq!(errno(fs::hard_link(inner.join("file"), at.join("a/file"))), libc::EXDEV);

    set(&running, "tank/a", "readonly", "on");
    assert_eq!(errno(fs::write(inner.join("file"), b"x")), libc::EROFS, "what is inherited counts");
    set(&running, "tank/a", "readonly", "off");
    fs::write(inner.join("file"), b"again").unwrap();

    // A process uses it, and writes.
    let writer = File::create(inner.join("open")).unwrap();
    writer.write_all_at(b"one", 0).unwrap();
    set(&running, "tank/a", "readonly", "on");
    assert_eq!(errno(writer.write_all_at(b"two", 0)), libc::EROFS);
    assert_eq!(errno(File::create(inner.join("new"))), libc::EROFS);
    set(&running, "tank/a", "readonly", "off");
    writer.write_all_at(b"two", 0).unwrap();
    set(&running, "tank/a", "xattr", "off");
    assert_eq!(errno(set_xattr(&inner.join("file"), "user.color", b"")), libc::EOPNOTSUPP);
    set(&running, "tank/a", "xattr", "sa");
    set_xattr(&inner.join("file"), "user.color", b"blue").unwrap();
    set(&running, "tank/a/b", "longname", "on");
    // Whether there are ACLs the kernel is told when it is mounted: a user who sets them gets the note, and
    // no other.
    let set_acl = || set_xattr(&inner.join("file"), "system.posix_acl_access", &small_acl());
    let acltype = SetProperties {
        datasets: vec!["tank/a/b".into()],
        properties: vec![("acltype".into(), "posix".into())],
        ..SetProperties::default()
    };
    let failed = || block_on(running.daemon.set_properties(acltype.clone())).unwrap().failed.len();
    create(&running, "tank/a/b/c", &[]);
    let shown = || {
        let list = ListDatasets {
            names: vec!["tank/a/b".into()],
            depth: Some(0),
            properties: vec!["acltype".into()],
            ..ListDatasets::default()
        };
        let listed = block_on(running.daemon.list_datasets(list)).unwrap();
        let property = listed.entries[0].property("acltype").unwrap();
        (property.value.clone().unwrap(), property.source.to_string())
    };
    assert_eq!((failed(), failed()), (1, 1));
    // What holds is shown, and nothing inside is unmounted for something else.
    assert_eq!(shown(), ("off".to_owned(), "temporary".to_owned()));
    mark_mount(&inner.join("c"));
    set(&running, "tank/a/b", "compression", "lz4");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert_eq!(
        table.lines().filter(|line| line.contains("/a/b/c ") && line.contains("unbindable")).count(),
        1
    );
    assert_eq!(errno(set_acl()), libc::EOPNOTSUPP);
    let below = Unmount { target: Some("tank/a/b/c".into()), ..Unmount::default() };
    block_on(running.daemon.unmount(below)).unwrap();
    drop(writer);
    set(&running, "tank/a/b", "compression", "off");
    set_acl().unwrap();
    assert_eq!(shown(), ("posix".to_owned(), "local".to_owned()));

    set(&running, "tank/a/b", "mountpoint", "/elsewhere");
    let moved = running.altroot().join("elsewhere");
    assert_eq!(fs::read(moved.join("file")).unwrap(), b"again");
    assert!(!inner.join("file").exists());
    again(&running);
    assert_eq!(fs::read(moved.join("file")).unwrap(), b"again");
    judge(&running);
}

#[test]
fn snapshots_appear_and_disappear_below_a_mount_and_it_can_go_back_to_one() {
    let Some((running, at)) = start() else { return };
    fs::write(at.join("file"), b"one").unwrap();
    let snapshots = at.join(".zfs/snapshot");
    assert_eq!(names(&snapshots), [] as [&str; 0]);
    snapshot(&running, "tank@one");
    let read = |name: &str| fs::read(snapshots.join(name).join("file"));
    assert_eq!(read("one").unwrap(), b"one", "what was written before is in it");
    fs::write(at.join("file"), b"two").unwrap();
    snapshot(&running, "tank@two");
    assert_eq!(names(&snapshots), ["one", "two"]);
    assert_eq!((read("one").unwrap(), read("two").unwrap()), (b"one".to_vec(), b"two".to_vec()));
    assert_eq!(errno(fs::write(snapshots.join("one/file"), b"x")), libc::EROFS);
    let destroy = DestroyDataset { name: "tank@two".into(), ..DestroyDataset::default() };
    block_on(running.daemon.destroy_dataset(destroy)).unwrap();
    assert_eq!(names(&snapshots), ["one"]);
    assert_eq!(errno(read("two")), libc::ENOENT);
    let rollback = Rollback { snapshot: "tank@one".into(), ..Rollback::default() };
    block_on(running.daemon.rollback(rollback)).unwrap();
    assert_eq!(fs::read(at.join("file")).unwrap(), b"one");
    fs::write(at.join("file"), b"three").unwrap();
    again(&running);
    assert_eq!(fs::read(at.join("file")).unwrap(), b"three");
    judge(&running);
}

#[test]
fn a_filesystem_goes_back_under_those_who_use_it() {
    let Some((running, at)) = start() else { return };
    create(&running, "tank/child", &[]);
    let child = at.join("child");
    fs::write(at.join("kept"), b"before\n").unwrap();
    fs::write(at.join("old name"), b"renamed").unwrap();
    fs::write(at.join("removed"), b"comes back").unwrap();
    fs::create_dir(at.join("dir")).unwrap();
    fs::create_dir_all(at.join("removed dir/inner")).unwrap();
    snapshot(&running, "tank@s");
    // Of a directory that it saw removed the kernel lists nothing, as long as it is in use.
    let removed_dir = File::open(at.join("removed dir")).unwrap();
    fs::remove_dir_all(at.join("removed dir")).unwrap();
    // A child that is mounted on a directory that the snapshot does not have.
    create(&running, "tank/later", &[]);
    let in_later = File::create(at.join("later/file")).unwrap();
    in_later.write_all_at(b"later", 0).unwrap();
    let in_child = File::create(child.join("file")).unwrap();
    in_child.write_all_at(b"child", 0).unwrap();
    let mut kept = File::options().read(true).append(true).open(at.join("kept")).unwrap();
    kept.write_all(b"after\n").unwrap();
    let renamed = File::open(at.join("old name")).unwrap();
    fs::rename(at.join("old name"), at.join("dir/new name")).unwrap();
    fs::remove_file(at.join("removed")).unwrap();
    // Of which the number may be one that was just freed.
    let new =
        File::options().read(true).write(true).create(true).truncate(true).open(at.join("new")).unwrap();
    new.write_all_at(b"new", 0).unwrap();
    fs::create_dir(at.join("new dir")).unwrap();
    let new_dir = File::options().read(true).custom_flags(libc::O_PATH).open(at.join("new dir")).unwrap();
    let top = File::open(&at).unwrap();
    // What the kernel is to know: attributes, lists, names that do not exist.
    assert_eq!(see(&at.join("dir")).len(), 2);
    assert_eq!(names(&at), ["child", "dir", "kept", "later", "new", "new dir"]);
    assert!(!at.join("removed").exists());
    // But for how much was answered.
    let mounts = || {
        let mut mounts = running.daemon.list_mounts(ListMounts {}).unwrap();
        mounts.iter_mut().for_each(|mount| mount.answered_through_rings = None);
        mounts
    };
    let mounted = mounts();

    let rollback = Rollback { snapshot: "tank@s".into(), ..Rollback::default() };
    assert_eq!(block_on(running.daemon.rollback(rollback)).unwrap().warnings, [] as [&str; 0]);
    assert_eq!(names(&at), ["child", "dir", "kept", "later", "old name", "removed", "removed dir"]);
    assert_eq!(names(&at.join("removed dir")), ["inner"]);
    assert_eq!(fs::read(at.join("kept")).unwrap(), b"before\n");
    assert_eq!(fs::read(at.join("removed")).unwrap(), b"comes back");
    assert!(!at.join("dir/new name").exists() && !at.join("new").exists());
    // What is open goes on, if it is there.
    kept.write_all(b"again\n").unwrap();
    let mut content = String::new();
    kept.seek(SeekFrom::Start(0)).unwrap();
    kept.read_to_string(&mut content).unwrap();
    assert_eq!(content, "before\nagain\n");
    assert_eq!(fs::metadata(at.join("kept")).unwrap().size(), 13);
    assert_eq!(renamed.metadata().unwrap().size(), 7);
    let link = fs::read_link(format!("/proc/self/fd/{}", renamed.as_raw_fd())).unwrap();
    assert!(link.starts_with(&at), "{}", link.display());
    for errno in [errno(new.read_at(&mut [0], 0)), errno(new.write_at(b"x", 0)), errno(new_dir.metadata())] {
        assert!([libc::ESTALE, libc::EIO].contains(&errno), "{errno}");
    }
    rustix::fs::openat(&top, "kept", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    // Others of the same names, and perhaps of the same numbers.
    fs::create_dir(at.join("new dir")).unwrap();
    fs::write(at.join("new dir/new"), b"another").unwrap();
    assert_eq!(fs::read(at.join("new dir/new")).unwrap(), b"another");
    // Nothing of what is inside was touched.
    in_child.write_all_at(b"CHILD", 5).unwrap();
    assert_eq!(fs::read(child.join("file")).unwrap(), b"childCHILD");
    in_later.write_all_at(b"LATER", 5).unwrap();
    assert_eq!(fs::read(at.join("later/file")).unwrap(), b"laterLATER");
    assert_eq!(mounts(), mounted);
    drop((kept, renamed, new, new_dir, removed_dir, top, in_child, in_later));
    let changed = || fs::metadata(&at).unwrap().modified().unwrap();
    let before = changed();
    again(&running);
    assert_eq!(changed(), before, "the directories that children are mounted on stay");
    assert_eq!(fs::read(at.join("later/file")).unwrap(), b"laterLATER");
    assert_eq!(fs::read(at.join("kept")).unwrap(), b"before\nagain\n");
    assert_eq!(fs::read(child.join("file")).unwrap(), b"childCHILD");
    judge(&running);
}

#[test]
fn ranges_are_allocated_punched_and_copied() {
    let Some((running, at)) = start() else { return };
    let file = File::options().read(true).write(true).create(true).truncate(true).open(at.join("f")).unwrap();
    file.write_all_at(&[5; 1 << 20], 0).unwrap();
    let allocate = |mode, offset, length| {
        // SAFETY: the descriptor is open.
        match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 128 << 10, 256 << 10).unwrap();
    allocate(0, 1 << 20, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 2 << 20);
    assert_eq!(errno(allocate(libc::FALLOC_FL_COLLAPSE_RANGE, 0, 128 << 10)), libc::EOPNOTSUPP);
    let mut expected = vec![5; 1 << 20];
    expected[128 << 10..384 << 10].fill(0);
    expected.resize(2 << 20, 0);
    assert!(fs::read(at.join("f")).unwrap() == expected);
    fs::copy(at.join("f"), at.join("copy")).unwrap();
    assert!(fs::read(at.join("copy")).unwrap() == expected);
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) }, 128 << 10);
    let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(at.join("f")).unwrap();
    let mut whole = Vec::new();
    (&direct).read_to_end(&mut whole).unwrap();
    assert!(whole == expected);
    drop((file, direct));
    judge(&running);
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> std::io::Result<()> {
    let (path, name) = (terminated(path.to_str().unwrap()), terminated(name));
    // SAFETY: terminated strings and a buffer of the length given, that live through the call.
    let code = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn xattr(path: &Path, name: &str) -> std::io::Result<Vec<u8>> {
    let (path, name) = (terminated(path.to_str().unwrap()), terminated(name));
    let mut value = vec![0u8; 70_000];
    // SAFETY: terminated strings and a buffer of the length given, that live through the call.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    let length = usize::try_from(length).map_err(|_| std::io::Error::last_os_error())?;
    value.truncate(length);
    Ok(value)
}

fn xattr_names(path: &Path) -> Vec<String> {
    let (path, mut list) = (terminated(path.to_str().unwrap()), [0u8; 1024]);
    // SAFETY: the path is terminated, and the list has as much room as is said.
    let length = unsafe { libc::listxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    let list = &list[..length.try_into().unwrap()];
    let mut names: Vec<String> =
        String::from_utf8_lossy(list).split_terminator('\0').map(str::to_owned).collect();
    names.sort();
    names
}

pub fn terminated(text: &str) -> std::ffi::CString {
    std::ffi::CString::new(text).unwrap()
}

#[test]
fn quotas_and_properties_reach_files_of_a_mount() {
    let Some((running, top)) = start() else { return };
    let space = |owner| {
        let request = ListSpace { dataset: "tank".into(), owner };
        let all = block_on(running.daemon.list_space(request)).unwrap();
        all.into_iter().find(|of| of.id == 12_345).unwrap_or_default()
    };
    let commit = || block_on(running.daemon.sync_pools(Default::default())).map(drop).unwrap();
    set(&running, "tank", "userquota@12345", "150K");
    set(&running, "tank", "groupobjquota@12345", "2");
    set(&running, "tank", "recordsize", "16K");
    assert_eq!((space(Owner::User).quota, space(Owner::Group).object_quota), (150 << 10, 2));
    let mut state = 1u64;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    });
    let noise: Vec<u8> = noise.take(200_000).collect();
    let path = top.join("file");
    fs::write(&path, &noise).unwrap();
    std::os::unix::fs::chown(&path, Some(12_345), Some(12_345)).unwrap();
    assert_eq!(path.metadata().unwrap().blksize(), 16 << 10);
    commit();
    let used = space(Owner::User);
    assert!(used.used > 150 << 10 && used.objects == Some(1), "{used:?}");
    let mut file = File::options().append(true).open(&path).unwrap();
    assert_eq!(errno(file.write_all(b"more").and_then(|()| file.sync_all())), libc::EDQUOT);
    let other = top.join("other");
    fs::write(&other, b"").unwrap();
    assert_eq!(errno(std::os::unix::fs::chown(&other, Some(12_345), None)), libc::EDQUOT);
    set(&running, "tank", "userquota@12345", "none");
    std::os::unix::fs::chown(&other, Some(12_345), Some(12_345)).unwrap();
    file.write_all(b"more").unwrap();
    drop(file);
    commit();
    assert_eq!(space(Owner::Group).objects, Some(2));
    let third = top.join("third");
    fs::write(&third, b"").unwrap();
    assert_eq!(errno(std::os::unix::fs::chown(&third, None, Some(12_345))), libc::EDQUOT);
    judge(&running);
}

/// What `statvfs` says of the filesystem at `path`. Writes into new files in each of some directories at
/// once, until there is no room. The bytes in each, and why it ended.
fn fill_at_once(directories: &[PathBuf], most: u64) -> Vec<(u64, i32)> {
    let fill = |directory: &PathBuf| {
        let file = File::create(directory.join("fill")).unwrap();
        let (piece, mut done) = ([7; 128 << 10], 0);
        while done < most {
            match file.write_all_at(&piece, done) {
                Ok(()) => done += piece.len() as u64,
                Err(error) => return (done, error.raw_os_error().unwrap()),
            }
        }
        (done, 0)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> =
            directories.iter().map(|directory| scope.spawn(move || fill(directory))).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn who_write_at_once_share_a_quota_and_leave_what_is_reserved_for_another() {
    let Some((running, at)) = start() else { return };
    let total = figures(&at).f_bavail * figures(&at).f_frsize;
    create(&running, "tank/top", &[("quota", "16M"), ("compression", "off")]);
    let children = ["a", "b", "c", "d"].map(|name| {
        create(&running, &format!("tank/top/{name}"), &[]);
        at.join("top").join(name)
    });
    let filled = fill_at_once(&children, 16 << 20);
    assert!(filled.iter().all(|(_, errno)| *errno == libc::EDQUOT), "{filled:?}");
    let sum: u64 = filled.iter().map(|(bytes, _)| bytes).sum();
    assert!((8 << 20..=16 << 20).contains(&sum), "{filled:?}");

    let reserved = total / 4;
    create(&running, "tank/reserved", &[("reservation", &reserved.to_string()), ("compression", "off")]);
    let others = ["e", "f", "g", "h"].map(|name| {
        create(&running, &format!("tank/{name}"), &[("compression", "off")]);
        at.join(name)
    });
    let filled = fill_at_once(&others, total);
    assert!(filled.iter().all(|(_, errno)| *errno == libc::ENOSPC), "{filled:?}");
    let own = fill_at_once(&[at.join("reserved")], reserved / 10 * 9);
    assert_eq!(own, [((reserved / 10 * 9).next_multiple_of(128 << 10), 0)], "{filled:?}");
    judge(&running);
}

fn figures(path: &Path) -> libc::statvfs {
    let path = terminated(path.to_str().unwrap());
    // SAFETY: an all-zero `statvfs` is a valid one.
    let mut figures: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated string and a place for the answer, that live through the call.
    let code = unsafe { libc::statvfs(path.as_ptr(), &mut figures) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    figures
}

/// Gives a directory a project that what is made in it inherits.
fn set_project(path: &Path, project: u32) {
    const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401c_5820;
    const FS_XFLAG_PROJINHERIT: u32 = 0x200;
    // `struct fsxattr`: flags, size of extents, their number, project, and what is not used here.
    let wanted: [u32; 7] = [FS_XFLAG_PROJINHERIT, 0, 0, project, 0, 0, 0];
    let directory = File::open(path).unwrap();
    // SAFETY: the descriptor is open, and the argument has the size that the request tells.
    let code = unsafe { libc::ioctl(directory.as_raw_fd(), FS_IOC_FSSETXATTR, wanted.as_ptr()) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_directory_of_a_project_tells_the_projects_quota() {
    let Some((running, top)) = start() else { return };
    let project = top.join("project");
    fs::create_dir(&project).unwrap();
    set_project(&project, 7);
    // The change asked for room, which figures of free space leave out.
    let all = figures(&top);
    let told = |path: &Path| {
        let told = figures(path);
        (told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize, told.f_files)
    };
    assert_eq!(figures(&project).f_files, all.f_files, "no quota yet");
    set(&running, "tank", "projectquota@7", "16M");
    set(&running, "tank", "projectobjquota@7", "50");
    // The directory itself counts.
    let (size, before, files) = told(&project);
    assert_eq!((size, files), (16 << 20, 50));
    assert!((15 << 20..=16 << 20).contains(&before), "{before}");
    let content = (0..5u32 << 18).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes());
    fs::write(project.join("file"), content.collect::<Vec<u8>>()).unwrap();
    block_on(running.daemon.sync_pools(Default::default())).unwrap();
    let (size, free, files) = told(&project);
    assert_eq!((size, files, figures(&project).f_ffree), (16 << 20, 50, 48));
    assert!(free < before, "{free}");
    assert!(figures(&top).f_blocks * figures(&top).f_frsize > 16 << 20, "elsewhere it is the pool's");
    judge(&running);
}

#[test]
fn space_is_told_in_records_and_is_what_a_listing_says() {
    let Some((running, _)) = start() else { return };
    // Not within each other, so that they are mounted where nothing can be written too.
    let place_of = |name: &str| running.altroot().join(name.replace('/', "-"));
    let assert_right = |name: &str, record: u64| {
        let list = ListDatasets {
            names: vec![name.into()],
            depth: Some(0),
            properties: vec!["referenced".into(), "available".into()],
            ..ListDatasets::default()
        };
        let listed = block_on(running.daemon.list_datasets(list)).unwrap();
        let number = |property| -> u64 {
            let property = listed.entries[0].property(property).unwrap();
            property.parsable.as_ref().unwrap().parse().unwrap()
        };
        let told = figures(&place_of(name));
        assert_eq!((told.f_bsize, told.f_frsize), (record, record), "{name}");
        assert_eq!((told.f_bfree, told.f_bavail), (number("available") / record, told.f_bfree), "{name}");
        assert_eq!(told.f_blocks - told.f_bfree, number("referenced").div_ceil(record), "{name}");
        assert_eq!(told.f_ffree, number("available") / 512, "{name}: inodes have no records");
    };
    let commit = || block_on(running.daemon.sync_pools(Default::default())).map(drop).unwrap();
    type Properties = &'static [(&'static str, &'static str)];
    let all: &[(&str, u64, Properties)] = &[
        ("tank/default", 128 << 10, &[]),
        ("tank/smallest", 512, &[("recordsize", "512")]),
        ("tank/quota", 64 << 10, &[("recordsize", "64K"), ("quota", "20M")]),
        ("tank/refquota", 8 << 10, &[("recordsize", "8K"), ("refquota", "3000K")]),
        ("tank/reserved", 16 << 20, &[("recordsize", "16M"), ("refreservation", "40M")]),
        ("tank/tight", 16 << 20, &[("recordsize", "16M"), ("quota", "10M")]),
    ];
    for (name, _, properties) in all {
        let mountpoint = format!("/{}", name.replace('/', "-"));
        create(&running, name, &[*properties, &[("mountpoint", &mountpoint)]].concat());
        fs::write(place_of(name).join("file"), vec![7; 300_000]).unwrap();
    }
    let assert_all = || all.iter().for_each(|(name, record, _)| assert_right(name, *record));
    commit();
    assert_all();
    // Room that is less than a record can be reserved all the same.
    let file = File::options().write(true).open(place_of("tank/tight").join("file")).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 4 << 20) }, 0);
    drop(file);
    set(&running, "tank/default", "recordsize", "32K");
    commit();
    assert_right("tank/default", 32 << 10);
    // The same where nothing can be written.
    block_on(running.daemon.export(ExportPool { all: true, ..ExportPool::default() })).unwrap();
    let (place, altroot) = (running.place.path(), running.altroot());
    block_on(running.daemon.import(crate::harness::import_request("tank", place, &altroot))).unwrap();
    all[1..].iter().for_each(|(name, record, _)| assert_right(name, *record));
    assert_right("tank/default", 32 << 10);
    judge(&running);
}

#[test]
fn many_files_are_made_stable_at_once_while_others_are_read() {
    let Some((running, top)) = start() else { return };
    const WRITERS: usize = 40;
    let path = |number: usize| top.join(format!("file{number}"));
    std::thread::scope(|scope| {
        for number in 0..WRITERS {
            scope.spawn(move || {
                let file = File::create(path(number)).unwrap();
                for round in 0..10u8 {
                    file.write_all_at(&[round; 1000], u64::from(round) * 1000).unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert!(fs::metadata(top.join("nothing")).is_err());
                    names(&top);
                }
            });
        }
    });
    again(&running);
    let written: Vec<u8> = (0..10u8).flat_map(|round| [round; 1000]).collect();
    for number in 0..WRITERS {
        assert!(fs::read(path(number)).unwrap() == written, "file {number}");
    }
    judge(&running);
}
