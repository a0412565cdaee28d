//! Gives a mount that stays in place another name.
//!
//! The name in the kernel's table belongs to the mount, not to the filesystem, and no system call changes it.
//! So another mount of the same filesystem, with the new name, replaces the old mount: the daemon can make
//! one through the connection, and the session goes on. The new mount is made before the old one goes, so
//! that there always is one. It takes over what the kernel keeps for a mount: options and propagation.
//!
//! A mount is replaced only if no process uses it, as for `umount`, and no other filesystem is mounted in it.
//! For a moment its directory is visible without the filesystem, as at every mounting. Only root may do this.

#![allow(unsafe_code, reason = "system calls on mounts")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use engine::zpl::live::AtimeMode;

use super::detached_mount::{move_mount, set_propagation};
use super::mountpoint::{Mountpoint, Row, Table, shown};
use super::{MountError, MountOptions};

/// A command of `fsconfig`.
const SET_STRING: libc::c_uint = 1;
const CREATE: libc::c_uint = 6;

/// Why a mount keeps its name, or is none any more.
#[derive(Debug)]
pub enum RenameError {
    /// It is as it was.
    Kept(io::Error),
    /// The old one is gone, and the new one could not be put there.
    Lost(io::Error),
}

impl From<io::Error> for RenameError {
    fn from(error: io::Error) -> Self {
        Self::Kept(error)
    }
}

/// Lets the mount at a place, whose session has the connection, be called by another name.
///
/// # Errors
/// [`RenameError::Kept`] also if a process uses it; only [`RenameError::Lost`] changed anything.
pub fn rename(place: &Mountpoint, connection: BorrowedFd<'_>, dataset: &str) -> Result<(), RenameError> {
    let table = Table::read()?;
    let Some(old) = table.topmost(place).filter(|old| old.name.as_bytes() != shown(dataset).as_bytes())
    else {
        return Ok(());
    };
    let refuse = |why: &str| RenameError::Kept(io::Error::other(why.to_owned()));
    let attributes = attributes(&old.options).ok_or_else(|| refuse("it has unknown options"))?;
    if old.groups.iter().any(|group| group == "unbindable") {
        return Err(refuse("it is unbindable"));
    }
    let new = named(connection, &shown(dataset), attributes)?;
    if !old.groups.is_empty() {
        follow(place, &new)?;
    }
    match place.unmount(false) {
        Ok(true) => {}
        Ok(false) => return Err(refuse("it is gone")),
        Err(MountError::Busy { .. }) => return Err(io::Error::from_raw_os_error(libc::EBUSY).into()),
        Err(error) => return Err(refuse(&error.to_string())),
    }
    move_mount(new.as_raw_fd(), place.path()).map_err(RenameError::Lost)?;
    if let Some(propagation) = propagation(old)
        && let Err(error) = set_propagation(&new, propagation, 0)
    {
        tracing::debug!(%error, "a renamed mount has other propagation than before");
    }
    Ok(())
}

/// The options of a mount, by the words of the table; `None` if one of them is unknown.
fn attributes(words: &str) -> Option<u64> {
    let (mut all, mut atime) = (0, libc::MOUNT_ATTR_STRICTATIME);
    for word in words.split(',') {
        match word {
            "rw" => {}
            "ro" => all |= libc::MOUNT_ATTR_RDONLY,
            "nosuid" => all |= libc::MOUNT_ATTR_NOSUID,
            "nodev" => all |= libc::MOUNT_ATTR_NODEV,
            "noexec" => all |= libc::MOUNT_ATTR_NOEXEC,
            "nodiratime" => all |= libc::MOUNT_ATTR_NODIRATIME,
            "nosymfollow" => all |= libc::MOUNT_ATTR_NOSYMFOLLOW,
            "noatime" => atime = libc::MOUNT_ATTR_NOATIME,
            "relatime" => atime = libc::MOUNT_ATTR_RELATIME,
            _ => return None,
        }
    }
    Some(all | atime)
}

/// How a mount is to follow others that was put where another one was; `None` where it does, as one that is
/// put into a shared one is shared.
fn propagation(old: &Row) -> Option<u64> {
    let has = |kind: &str| old.groups.iter().any(|group| group.starts_with(kind));
    match (has("shared:"), has("master:")) {
        (true, _) => None,
        (false, true) => Some(libc::MS_SLAVE),
        (false, false) => Some(libc::MS_PRIVATE),
    }
}

/// The kernel's flags for a mount with these options.
pub fn attributes_of(options: &MountOptions) -> u64 {
    let atime = match options.atime {
        AtimeMode::Off => libc::MOUNT_ATTR_NOATIME,
        AtimeMode::Relative => libc::MOUNT_ATTR_RELATIME,
        AtimeMode::On => libc::MOUNT_ATTR_STRICTATIME,
    };
    let denied = [
        (options.writable, libc::MOUNT_ATTR_RDONLY),
        (options.setuid, libc::MOUNT_ATTR_NOSUID),
        (options.devices, libc::MOUNT_ATTR_NODEV),
        (options.exec, libc::MOUNT_ATTR_NOEXEC),
    ];
    denied.into_iter().filter(|(allowed, _)| !allowed).fold(atime, |all, (_, attribute)| all | attribute)
}

/// Another mount of the filesystem that has a connection. It is in no directory.
///
/// # Errors
/// The error of the system: only root may.
pub fn named(connection: BorrowedFd<'_>, name: &str, attributes: u64) -> io::Result<OwnedFd> {
    let kind = c"fuse";
    // SAFETY: the string is terminated and lives through the call.
    let context = opened(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), libc::FSOPEN_CLOEXEC) })?;
    let number = CString::new(connection.as_raw_fd().to_string())?;
    // The last three are asked for, and those of the filesystem hold.
    for (key, value) in [
        (c"source", &*CString::new(name)?),
        (c"fd", &number),
        (c"rootmode", c"40000"),
        (c"user_id", c"0"),
        (c"group_id", c"0"),
    ] {
        configure(&context, SET_STRING, Some((key, value)))?;
    }
    configure(&context, CREATE, None)?;
    // SAFETY: the descriptor is open.
    opened(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), libc::FSMOUNT_CLOEXEC, attributes)
    })
}

fn opened(descriptor: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(descriptor) {
        // SAFETY: the kernel just opened it, and no other code knows it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn configure(context: &OwnedFd, command: libc::c_uint, set: Option<(&CStr, &CStr)>) -> io::Result<()> {
    let (key, value) =
        set.map_or((std::ptr::null(), std::ptr::null()), |(key, value)| (key.as_ptr(), value.as_ptr()));
    // SAFETY: the strings are terminated and live through the call, and the descriptor is open.
    match unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key, value, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets a new mount follow the mounts that the one at a place follows, and be followed by those that follow
/// that.
fn follow(place: &Mountpoint, new: &OwnedFd) -> io::Result<()> {
    let path = CString::new(place.path().as_os_str().as_bytes())?;
    let flags = libc::MOVE_MOUNT_SET_GROUP | libc::MOVE_MOUNT_T_EMPTY_PATH;
    let new = new.as_raw_fd();
    // SAFETY: both strings are terminated and live through the call, and the descriptor is open.
    match unsafe {
        libc::syscall(libc::SYS_move_mount, libc::AT_FDCWD, path.as_ptr(), new, c"".as_ptr(), flags)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
