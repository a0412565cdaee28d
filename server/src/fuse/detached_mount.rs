//! A mount that is moved along when another filesystem is mounted around it.
//!
//! A mount hides everything below its directory. So before a filesystem is mounted, the daemon holds the
//! mounts below that directory, and afterwards attaches them at the same paths inside the new filesystem.
//! Where the kernel can move a mount, it stays the same mount: open files and programs that work in it notice
//! nothing. The kernel does not move a mount out of a *shared* one (under systemd all are shared). Then
//! another mount of the same filesystem is attached, with all mounts inside it, and the hidden one goes when
//! its last user closes it.

#![allow(unsafe_code, reason = "system calls on mounts")]

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A mount, wherever it is, with what is mounted inside.
#[derive(Debug)]
pub struct DetachedMount(File);

impl DetachedMount {
    /// The mount at a path that is not a link.
    ///
    /// # Errors
    /// The error of the system.
    pub fn of(at: &Path) -> io::Result<Self> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        Ok(Self(OpenOptions::new().read(true).custom_flags(flags).open(at)?))
    }

    /// Puts it at a directory. Only root may.
    ///
    /// # Errors
    /// The error of the system; the mount is where it was then.
    pub fn put(&self, at: &Path) -> io::Result<()> {
        match move_mount(self.0.as_raw_fd(), at) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            moved => return moved,
        }
        let copy = clone_mount(self.0.as_raw_fd(), c"", libc::AT_RECURSIVE | libc::AT_EMPTY_PATH)?;
        // As long as both were one group, what is mounted inside would be taken away from the copy too.
        leave_groups(&copy)?;
        move_mount(copy.as_raw_fd(), at)?;
        let hidden = CString::new(format!("/proc/self/fd/{}", self.0.as_raw_fd()))?;
        // SAFETY: it is a terminated string that lives through the call.
        if unsafe { libc::umount2(hidden.as_ptr(), libc::MNT_DETACH) } != 0 {
            tracing::warn!(at = %at.display(), "a hidden mount stays: {}", io::Error::last_os_error());
        }
        Ok(())
    }

    /// Removes a directory by its path from the root of what is mounted, if it is empty.
    ///
    /// # Errors
    /// The error of the system.
    pub fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: `path` is a terminated string that lives through the call, and the descriptor is open.
        match unsafe { libc::unlinkat(self.0.as_raw_fd(), path.as_ptr(), libc::AT_REMOVEDIR) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Another mount of what is mounted at a path from a descriptor on; it is in no directory.
pub fn clone_mount(from: RawFd, path: &std::ffi::CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    const OPEN_TREE_CLONE: libc::c_int = 1;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | flags;
    // SAFETY: `path` is a terminated string that lives through the call.
    let opened = unsafe { libc::syscall(libc::SYS_open_tree, from, path.as_ptr(), flags) };
    match RawFd::try_from(opened) {
        // SAFETY: the kernel just opened it, and no other code knows it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Another mount of what is mounted at a path, with all that is mounted inside, which follows no others.
///
/// # Errors
/// The error of the system: only root may.
pub fn clone_mount_tree(at: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let copy = clone_mount(libc::AT_FDCWD, &path, libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW)?;
    leave_groups(&copy)?;
    Ok(copy)
}

/// Makes a tree of mounts follow no others.
fn leave_groups(mounts: &OwnedFd) -> io::Result<()> {
    set_propagation(mounts, libc::MS_PRIVATE, libc::AT_RECURSIVE)
}

/// Says how a mount follows others.
pub fn set_propagation(mounts: &OwnedFd, propagation: u64, flags: libc::c_int) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: 0, attr_clr: 0, propagation, userns_fd: 0 };
    let flags = flags | libc::AT_EMPTY_PATH;
    // SAFETY: the string is terminated, and both it and the attributes live through the call.
    match unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mounts.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts the mount that a descriptor is of at a directory.
///
/// # Errors
/// The error of the system.
pub fn move_mount(from: RawFd, at: &Path) -> io::Result<()> {
    const MOVE_MOUNT_F_EMPTY_PATH: libc::c_int = 4;
    let path = CString::new(at.as_os_str().as_bytes())?;
    let (nothing, flags) = (c"".as_ptr(), MOVE_MOUNT_F_EMPTY_PATH);
    // SAFETY: both are terminated strings that live through the call.
    match unsafe { libc::syscall(libc::SYS_move_mount, from, nothing, libc::AT_FDCWD, path.as_ptr(), flags) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
