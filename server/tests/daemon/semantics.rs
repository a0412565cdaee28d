//! What programs expect of any filesystem of Linux, and the kernel leaves to the one that serves it. Needs
//! root and `/dev/fuse`; `CENOTE_SKIP=fuse` leaves these tests out.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use device::block_on;
use server::api::{BlockError, BlockFault, ImportPool, InjectFault, InjectTarget, Mount, Unmount};

use crate::filesystems::{again, as_user, create, errno, names, set, snapshot, start, terminated};
use crate::harness::Running;

/// Mounts a filesystem again, with options.
fn mount_with(running: &Running, dataset: &str, options: &[&str]) {
    let target = Some(dataset.to_owned());
    block_on(running.daemon.unmount(Unmount { target, ..Unmount::default() })).unwrap();
    let options = options.iter().map(|word| (*word).to_owned()).collect();
    let mount = Mount { dataset: Some(dataset.into()), options, ..Mount::default() };
    block_on(running.daemon.mount(mount)).unwrap();
}

fn accessed(path: &Path) -> SystemTime {
    fs::symlink_metadata(path).unwrap().accessed().unwrap()
}

#[test]
fn reading_is_an_access_although_the_kernel_keeps_what_is_read() {
    let Some((running, at)) = start() else { return };
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    // The properties, whether the first access is noted, and whether a second one is.
    let cases = [("on", "off", true, true), ("on", "on", true, false), ("off", "on", false, false)];
    for (number, (atime, relatime, is_noted, is_noted_again)) in cases.into_iter().enumerate() {
        let name = format!("tank/{number}");
        create(&running, &name, &[("atime", atime), ("relatime", relatime)]);
        let top = at.join(number.to_string());
        let (dir, file) = (top.join("dir"), top.join("dir/file"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, "content").unwrap();
        let read = |path: &Path, flags: i32| {
            let mut opened = OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap();
            match path == dir {
                true => assert_eq!(names(&dir), ["file"]),
                false => assert_eq!(opened.read_to_end(&mut Vec::new()).unwrap(), 7),
            }
        };
        let case = format!("atime={atime} relatime={relatime}");
        for path in [&file, &dir] {
            // The kernel keeps it from here on.
            read(path, 0);
            let set = OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(path).unwrap();
            set.set_times(FileTimes::new().set_accessed(past)).unwrap();
            assert_eq!(accessed(path), past, "{case}");
            if path == &file {
                read(path, libc::O_NOATIME);
                assert_eq!(accessed(path), past, "{case}: O_NOATIME");
            }
            read(path, 0);
            let first = accessed(path);
            assert_eq!(first > past, is_noted, "{case}: {}", path.display());
            read(path, 0);
            assert_eq!(accessed(path) > first, is_noted_again, "{case}: {} again", path.display());
        }
    }
    // No directory is listed here, whatever properties say.
    mount_with(&running, "tank/0", &["nodiratime"]);
    let dir = at.join("0/dir");
    let before = accessed(&dir);
    assert_eq!(names(&dir), ["file"]);
    assert_eq!(accessed(&dir), before);
    // When it was created stays as it was.
    let created = fs::metadata(dir.join("file")).unwrap().created().unwrap();
    assert!(created > past && created <= SystemTime::now());
    fs::write(dir.join("file"), "other").unwrap();
    let file = fs::metadata(dir.join("file")).unwrap();
    assert!(file.created().unwrap() == created && file.modified().unwrap() > created);
}

#[test]
fn the_kernel_keeps_data_only_where_primarycache_lets_the_arc_keep_them() {
    let Some((running, at)) = start() else { return };
    for (primarycache, is_kept) in [("all", true), ("metadata", false), ("none", false)] {
        create(&running, &format!("tank/{primarycache}"), &[("primarycache", primarycache)]);
        let file = at.join(primarycache).join("file");
        fs::write(&file, vec![7; 64 << 10]).unwrap();
        let target = InjectTarget::File {
            path: file.to_str().unwrap().to_owned(),
            dnode: false,
            level: 0,
            range: None,
            copies: 0,
            what: BlockFault::Read(BlockError::Io),
        };
        let fault = InjectFault { target: Some(target), empty_cache: true, ..InjectFault::default() };
        block_on(running.daemon.inject_fault(fault)).unwrap();
        assert_eq!(fs::read(&file).is_ok(), is_kept, "primarycache={primarycache}");
    }
}

#[test]
fn what_is_made_in_a_directory_of_a_group_is_the_groups() {
    const USER: u32 = 12_345;
    let Some((running, at)) = start() else { return };
    fs::set_permissions(running.place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = at.join("dir");
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(USER), Some(7)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o2777)).unwrap();
    as_user(USER, USER, || {
        fs::write(dir.join("file"), "").unwrap();
        fs::create_dir(dir.join("dir")).unwrap();
        std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
        OpenOptions::new().write(true).create_new(true).mode(0o2755).open(dir.join("strange")).unwrap();
    });
    let see = |name: &str| {
        let metadata = fs::symlink_metadata(dir.join(name)).unwrap();
        (metadata.gid(), metadata.mode() & 0o7000)
    };
    assert_eq!(["file", "dir", "link", "strange"].map(see), [(7, 0), (7, 0o2000), (7, 0), (7, 0)]);
    // Who is not of the group does not keep the bit.
    as_user(USER, USER, || fs::set_permissions(dir.join("dir"), fs::Permissions::from_mode(0o2755)).unwrap());
    assert_eq!(see("dir"), (7, 0));
}

/// A handle of a file, as servers of NFS keep them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; 128],
}

impl Handle {
    fn of(path: &Path) -> Self {
        let mut handle = Self { bytes: 128, kind: 0, handle: [0; 128] };
        let (path, mut mount) = (terminated(path.to_str().unwrap()), 0);
        let place = (&raw mut handle).cast();
        // SAFETY: the path is terminated, the handle has as much room as it says, and all live through the
        // call.
        let code = unsafe { libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), place, &mut mount, 0) };
        assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
        handle
    }

    fn open(mut self, mount: &Path) -> std::io::Result<File> {
        let mount = File::open(mount).unwrap();
        // SAFETY: the descriptor is open, and the handle, which the kernel made, lives through the call.
        let code =
            unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut self).cast(), libc::O_RDONLY) };
        match code {
            // SAFETY: the kernel opened it, and no other code knows it.
            0.. => Ok(unsafe { OwnedFd::from_raw_fd(code) }.into()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Of a file of the same number that lived at another time.
    fn of_another_time(mut self) -> Self {
        // Behind the number of the node.
        self.handle[8] ^= 1;
        self
    }
}

#[test]
fn handles_of_files_outlive_mounts_and_not_files() {
    let Some((running, at)) = start() else { return };
    fs::create_dir(at.join("dir")).unwrap();
    let path = at.join("dir/file");
    fs::write(&path, "content").unwrap();
    let [file, dir] = [Handle::of(&path), Handle::of(&at.join("dir"))];
    let read = |handle: Handle| std::io::read_to_string(handle.open(&at)?);
    assert_eq!(read(file).unwrap(), "content");
    again(&running);
    // The kernel knows nothing of it.
    assert_eq!(read(file).unwrap(), "content");
    let opened = dir.open(&at).unwrap();
    assert_eq!(fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap(), at.join("dir"));
    drop(opened);
    for handle in [file.of_another_time(), dir.of_another_time()] {
        assert_eq!(errno(handle.open(&at)), libc::ESTALE);
    }
    // Another name is as good; no name is not.
    fs::hard_link(&path, at.join("other")).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(read(file).unwrap(), "content");
    fs::remove_file(at.join("other")).unwrap();
    assert_eq!(errno(read(file)), libc::ESTALE);
    fs::remove_dir(at.join("dir")).unwrap();
    assert_eq!(errno(dir.open(&at)), libc::ESTALE);
    // An open file stays, as in any filesystem; no longer.
    fs::write(at.join("kept"), "kept").unwrap();
    let kept = Handle::of(&at.join("kept"));
    let open = File::open(at.join("kept")).unwrap();
    fs::remove_file(at.join("kept")).unwrap();
    drop(open);
    // The kernel tells a moment later that it was closed.
    while kept.open(&at).is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(errno(kept.open(&at)), libc::ESTALE);
}

#[test]
fn a_mount_with_sync_or_dirsync_has_made_stable_what_it_answered() {
    let Some((running, at)) = start() else { return };
    for option in ["sync", "dirsync"] {
        mount_with(&running, "tank", &[option]);
        let mounted = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounted.lines().find(|line| line.contains(at.to_str().unwrap())).unwrap();
        assert!(line.split([' ', ',']).any(|word| word == option), "{line}");
        let dir = at.join(option);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("old"), "content").unwrap();
        fs::rename(dir.join("old"), dir.join("new")).unwrap();
        if option == "sync" {
            fs::set_permissions(dir.join("new"), fs::Permissions::from_mode(0o600)).unwrap();
        }
        // What a crash leaves at this moment.
        let left = Running::start();
        let (disk, copy) = (running.place.path().join("disk"), left.place.path().join("disk"));
        assert!(Command::new("cp").arg("--sparse=auto").args([disk, copy]).status().unwrap().success());
        let import = ImportPool {
            pool: Some("tank".into()),
            search: vec![left.place.path().to_owned()],
            altroot: Some(left.altroot()),
            force: true,
            ..ImportPool::default()
        };
        let imported = block_on(left.daemon.import(import)).unwrap();
        let dir = imported.pools[0].mounts[0].mountpoint.join(option);
        assert_eq!(names(&dir), ["new"], "{option}");
        if option == "sync" {
            assert_eq!(fs::read_to_string(dir.join("new")).unwrap(), "content");
            assert_eq!(fs::metadata(dir.join("new")).unwrap().mode() & 0o777, 0o600);
        }
    }
}

#[test]
fn after_a_sync_everybody_sees_what_space_a_file_takes() {
    let Some((running, at)) = start() else { return };
    set(&running, "tank", "compression", "off");
    for number in 0..8 {
        let file = at.join(number.to_string());
        fs::write(&file, vec![number; 300_000]).unwrap();
        // The kernel keeps what it is told, for a moment.
        let before = fs::metadata(&file).unwrap().blocks();
        block_on(running.daemon.sync_pools(Default::default())).unwrap();
        let after = fs::metadata(&file).unwrap().blocks();
        assert!(after >= 300_000 / 512, "{before} blocks, then {after}");
    }
}

#[test]
fn copies_take_their_space_each_and_a_quota_ends_a_write_where_it_is_reached() {
    let Some((running, at)) = start() else { return };
    const BYTES: u64 = 2 << 20;
    for copies in 1..=3 {
        let name = copies.to_string();
        create(&running, &format!("tank/{name}"), &[("compression", "off"), ("copies", &name)]);
        let file = at.join(&name).join("file");
        fs::write(&file, vec![7; BYTES as usize]).unwrap();
        block_on(running.daemon.sync_pools(Default::default())).unwrap();
        let taken = fs::metadata(&file).unwrap().blocks() * 512;
        assert!((copies * BYTES..=copies * (BYTES + (64 << 10))).contains(&taken), "{copies}: {taken}");
    }
    create(&running, "tank/small", &[("compression", "off"), ("quota", "5M")]);
    let file = File::create(at.join("small/file")).unwrap();
    file.set_len(20 << 20).unwrap();
    let mut written = 0u64;
    let full = loop {
        match file.write_at(&[7; 64 << 10], written) {
            Ok(bytes) => written += bytes as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(full.raw_os_error(), Some(libc::EDQUOT));
    assert!((4 << 20..=5 << 20).contains(&written), "{written}");
    drop(file);
    block_on(running.daemon.sync_pools(Default::default())).unwrap();
    let content = fs::read(at.join("small/file")).unwrap();
    let (there, hole) = content.split_at(written as usize);
    assert!(there.iter().all(|byte| *byte == 7) && hole.iter().all(|byte| *byte == 0));
}

#[test]
fn what_threads_append_at_once_is_all_there_and_whole() {
    let Some((_running, at)) = start() else { return };
    const TIMES: usize = 80;
    for (number, (threads, bytes, reads)) in
        [(2, 8192, true), (2, 8192, false), (2, 4000, true), (4, 4096, true)].into_iter().enumerate()
    {
        let path = at.join(number.to_string());
        let file = OpenOptions::new().read(reads).append(true).create(true).open(&path).unwrap();
        thread::scope(|scope| {
            for thread in 0..threads {
                let file = &file;
                scope.spawn(move || {
                    for _ in 0..TIMES {
                        let piece = vec![b'a' + thread as u8; bytes];
                        assert_eq!((&*file).write(&piece).unwrap(), bytes);
                    }
                });
            }
        });
        assert_eq!(file.metadata().unwrap().len(), (threads * bytes * TIMES) as u64);
        let content = fs::read(&path).unwrap();
        let is_whole = |piece: &[u8]| piece.iter().all(|byte| *byte == piece[0]);
        assert!(content.chunks(bytes).all(is_whole), "{number}");
        let of_first = content.chunks(bytes).filter(|piece| piece[0] == b'a').count();
        assert_eq!(of_first, TIMES, "{number}");
    }
}

#[test]
fn the_directory_of_snapshots_counts_where_it_is_shown_and_is_as_old_as_their_last_change() {
    let Some((running, at)) = start() else { return };
    let links = || fs::metadata(&at).unwrap().nlink();
    let hidden = links();
    set(&running, "tank", "snapdir", "visible");
    assert_eq!(links(), hidden + 1);
    set(&running, "tank", "snapdir", "hidden");
    assert_eq!(links(), hidden);

    // That is no change of the filesystem itself.
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(&at).unwrap().set_times(FileTimes::new().set_modified(past)).unwrap();
    let seconds = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let before = seconds();
    snapshot(&running, "tank@one");
    let times = fs::metadata(at.join(".zfs/snapshot")).unwrap();
    assert!((before..=seconds()).contains(&(times.mtime() as u64)), "{}", times.mtime());
    assert_eq!(times.ctime(), times.mtime());
}

#[test]
fn root_writes_files_that_dos_calls_read_only() {
    /// `ZFS_IOC_SETDOSFLAGS`.
    const SET_DOS_FLAGS: libc::c_ulong = 0x4008_8302;
    let read_only = 1u64 << 32;
    let Some((_running, at)) = start() else { return };
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    fs::set_permissions(&at, fs::Permissions::from_mode(0o777)).unwrap();
    let path = at.join("file");
    let file = File::create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    // SAFETY: the descriptor is open, and the argument lives through the call.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), SET_DOS_FLAGS, &raw const read_only) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    fs::write(&path, "root").unwrap();
    as_user(1000, 1000, || {
        assert_eq!(errno(OpenOptions::new().append(true).open(&path)), libc::EPERM);
        assert_eq!(fs::read(&path).unwrap(), b"root");
    });
}
