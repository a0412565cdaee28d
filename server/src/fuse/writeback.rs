//! Makes the kernel write back pages that programs mapped and changed.
//!
//! Writes go through at once. But a page that is mapped shared and changed stays in the kernel until the
//! kernel writes it back, at the latest when the last mapping goes. A snapshot has to contain it, and a mount
//! that is cut must not lose it.
//!
//! `syncfs` makes the kernel start with all of them, and does not wait for the answers. So each file that may
//! be mapped and changed, because it is open for reading and writing, is made stable by itself, which waits.
//! It is opened by the number by which the kernel knows it, whatever its name and even without one. Without
//! root that is not possible; then the kernel has to forget the pages, and writes them first.
//!
//! Not for threads that answer requests.

#![allow(unsafe_code, reason = "system calls that rustix does not have")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use fuser::INodeNo;

use super::served::Served;

/// The handle of a FUSE file for the kernel's `open_by_handle_at` (`FILEID_INO64_GEN`).
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    node: [u32; 2],
    generation: u32,
}

const BY_NODE_AND_GENERATION: i32 = 0x81;

/// Returns when all that was changed before is with `served`. `directory` is any of the mount.
pub fn write_back(directory: &File, served: &Served) {
    // SAFETY: the descriptor is open.
    if unsafe { libc::syncfs(directory.as_raw_fd()) } != 0 {
        let error = io::Error::last_os_error();
        tracing::warn!(%error, dataset = served.name(), "not all mapped pages were written back");
    }
    for (node, generation) in served.perhaps_mapped() {
        let written = open(directory, node, generation).and_then(|file| file.sync_data());
        if let Err(error) = written {
            tracing::debug!(%error, node = node.0, "pages are forgotten instead");
            served.forget_content(node);
        }
    }
}

/// Opens a file that the kernel knows.
fn open(directory: &File, node: INodeNo, generation: u64) -> io::Result<File> {
    let handle = Handle {
        bytes: 12,
        kind: BY_NODE_AND_GENERATION,
        node: [(node.0 >> 32) as u32, node.0 as u32],
        generation: generation as u32,
    };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the descriptor is open, and the handle has as many bytes as it says and lives through the call.
    let opened = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, directory.as_raw_fd(), &raw const handle, flags)
    };
    match i32::try_from(opened) {
        // SAFETY: the kernel just opened it, and no other code knows it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
