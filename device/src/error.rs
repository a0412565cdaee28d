//! What can go wrong on a leaf device, said so that a person can act on it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// An operation on a device failed: which, where, and why.
///
/// Cloneable, because one failed read may answer several waiters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {operation}{}: {cause}", path.display(), Range { offset: *offset, len: *len })]
pub struct IoError {
    /// The device.
    pub path: PathBuf,
    /// The operation that failed.
    pub operation: Operation,
    /// Where it began, in bytes.
    pub offset: u64,
    /// How many bytes it was about; 0 where the operation has no range.
    pub len: u64,
    /// Why it failed.
    pub cause: Cause,
}

/// An operation on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening it and asking for its geometry.
    Open,
    /// Reading a range.
    Read,
    /// Writing a range.
    Write,
    /// Making earlier writes durable.
    Flush,
    /// Giving up a range.
    Discard,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The range does not lie within the device: the caller's arithmetic, or a damaged pointer.
    #[error("the range ends past the device's size of {size_bytes} bytes")]
    OutOfRange {
        /// The size of the device.
        size_bytes: u64,
    },
    /// The device ended before its stated size: it shrank since it was opened.
    #[error("the device ended after {read_bytes} bytes of it")]
    UnexpectedEnd {
        /// How much could be read.
        read_bytes: u64,
    },
    /// The offset or the length is not a multiple of what the device asks for.
    #[error("offset and length must be multiples of {unit_bytes} bytes")]
    Unaligned {
        /// The multiple asked for.
        unit_bytes: u32,
    },
    /// The device was opened read-only.
    #[error("the device is open read-only")]
    ReadOnly,
    /// Another process (or another open in this one) holds the device.
    #[error("the device is in use by another process")]
    InUse,
    /// Neither a regular file nor a block device.
    #[error("neither a regular file nor a block device")]
    NotADevice,
    /// The device is gone (simulated), as a pulled disk is.
    #[error("the device is missing")]
    Missing,
    /// Another host has opened the device to write, and has it now.
    #[error("another host has taken the device over")]
    TakenOver,
    /// What the device lies in cannot be reached now: an object store that does not answer. What was written
    /// is kept until it can.
    #[error("{said}")]
    Unreachable {
        /// What was seen of it.
        said: String,
    },
    /// What the device lies in says so: an object store, which is asked by messages and not by the system.
    #[error("{said}")]
    Store {
        /// What it said.
        said: String,
    },
    /// The operating system says so.
    #[error("{}", in_words(&std::io::Error::from_raw_os_error(*errno)))]
    Os {
        /// The error number.
        errno: i32,
    },
}

impl IoError {
    /// An error of an operation on a range.
    pub fn new(path: &Path, operation: Operation, offset: u64, len: u64, cause: Cause) -> Self {
        Self { path: path.to_owned(), operation, offset, len, cause }
    }

    /// The nearest error number, for callers who must answer with one (FUSE, NBD).
    pub fn errno(&self) -> i32 {
        match self.cause {
            Cause::OutOfRange { .. }
            | Cause::UnexpectedEnd { .. }
            | Cause::TakenOver
            | Cause::Store { .. } => libc::EIO,
            Cause::Unaligned { .. } | Cause::NotADevice => libc::EINVAL,
            Cause::ReadOnly => libc::EROFS,
            Cause::InUse => libc::EBUSY,
            Cause::Missing | Cause::Unreachable { .. } => libc::ENXIO,
            Cause::Os { errno } => errno,
        }
    }
}

/// An error of the system as people say it, without its number.
pub fn in_words(error: &std::io::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.find(" (os error ").unwrap_or(text.len()));
    text
}

impl From<rustix::io::Errno> for Cause {
    fn from(errno: rustix::io::Errno) -> Self {
        Cause::Os { errno: errno.raw_os_error() }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
        })
    }
}

/// Says nothing for operations without a range.
struct Range {
    offset: u64,
    len: u64,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len {
            0 => Ok(()),
            len => write!(f, " of {len} bytes at offset {}", self.offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_device_operation_range_and_reason() {
        let error =
            IoError::new(Path::new("/dev/sdx"), Operation::Read, 4096, 512, Cause::Os { errno: libc::EIO });
        assert_eq!(error.to_string(), "/dev/sdx: read of 512 bytes at offset 4096: Input/output error");
        let error = IoError::new(Path::new("d0"), Operation::Flush, 0, 0, Cause::ReadOnly);
        assert_eq!(error.to_string(), "d0: flush: the device is open read-only");
    }
}
