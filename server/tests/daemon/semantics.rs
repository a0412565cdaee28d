//! What programs expect of any filesystem of Linux, and the kernel leaves to the one that serves it. Needs root and `/dev/fuse`; `CENOTE_SKIP=fuse` leaves these tests out.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::filesystems::{again, as_user, errno, start, terminated};

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
        // SAFETY: the path is terminated, the handle has as much room as it says, and all live through the call.
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
            // SAFETY: the kernel opened it, and nobody else knows it.
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
    // Whoever has it open keeps it, as in any filesystem; no longer.
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
