//! [`Error`]: the reason why an operation of the engine failed, by the caller's possible reactions.
//!
//! Errors of the block layer contain the [`Bookmark`] of the block and every copy that was tried, so that a
//! message names the file and offset that could not be read, and the device that failed. Errors of higher
//! layers contain the name that the user gave.

use std::fmt;

use crate::Bookmark;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No copy of the block could be read from its devices.
    #[error("{at}: cannot be read from any device{}", tried_list(.tried))]
    Io {
        /// The block.
        at: Bookmark,
        /// The attempts, in order.
        tried: Vec<Attempt>,
    },

    /// Copies were read, but none has the right checksum.
    #[error("{at}: every copy is damaged (checksum mismatch){}", tried_list(.tried))]
    Checksum {
        /// The block.
        at: Bookmark,
        /// The attempts, in order.
        tried: Vec<Attempt>,
    },

    /// A device hides whether an intent log goes on, with changes that were promised.
    #[error("the intent log of {log} cannot be followed to its end: {error}")]
    UnreadableLog {
        /// The dataset.
        log: String,
        /// What could not be read.
        error: Box<Error>,
    },

    /// The block could not be written to as many devices as it needs.
    #[error("{at}: cannot be written{}", tried_list(.tried))]
    NotWritten {
        /// The block.
        at: Bookmark,
        /// The attempts, in order.
        tried: Vec<Attempt>,
    },

    /// There is no space for the data to write.
    #[error("{0}: no space left; remove files or snapshots, or add devices (zpool add)")]
    NoSpace(String),

    /// The pool has space, but a quota of the dataset, or of one above it, is used up.
    #[error("{0}: disk quota exceeded; raise the quota, or remove files or snapshots")]
    Quota(String),

    /// The block is encrypted and its dataset's key is not loaded.
    #[error("{at}: encrypted, and the key of its dataset is not loaded")]
    KeyNotLoaded {
        /// The block.
        at: Bookmark,
    },

    /// The block's checksum is right but its authentication code is not: it was made with another key, or was
    /// tampered with.
    #[error("{at}: authentication failed (wrong key, or the block was tampered with)")]
    Authentication {
        /// The block.
        at: Bookmark,
    },

    /// The key or passphrase given does not unlock this encryption root.
    #[error("incorrect key for '{dataset}'")]
    WrongKey {
        /// The encryption root.
        dataset: String,
    },

    /// A block passed its checksum, but its contents are impossible.
    #[error("{what}: damaged: {detail}")]
    Corrupt {
        /// The structure, with its place.
        what: String,
        /// The fault.
        detail: String,
    },

    /// Bytes could not be parsed as the expected structure.
    #[error("{what}: {error}")]
    Format {
        /// The structure, with its place.
        what: String,
        /// The fault.
        error: ondisk::Error,
    },

    /// The named object does not exist.
    #[error("{0}: does not exist")]
    NotFound(String),

    /// A bug in this program ended an operation before it changed anything.
    #[error("the program failed inside this operation, which changed nothing: {0}")]
    Panicked(String),

    /// The named object has another type than the operation needs.
    #[error("{what}: {detail}")]
    WrongType {
        /// The object.
        what: String,
        /// Its type, and the expected one.
        detail: String,
    },

    /// The caller's argument is invalid.
    #[error("{0}")]
    Invalid(String),

    /// The request is well-formed, but this version cannot do it; the message names an alternative.
    #[error("{0}")]
    Unsupported(String),

    /// A write to an object that is open for reading only.
    #[error("{0}: read-only")]
    ReadOnly(String),

    /// Nothing can be written any more: a device failed in a way that redundancy cannot make up for.
    #[error("{0}")]
    Suspended(String),

    /// Another user or process uses it.
    #[error("{0}")]
    Busy(String),

    /// The name already exists.
    #[error("{0}: already exists")]
    Exists(String),

    /// The operating system refused an operation that is not a device transfer (opening, listing a
    /// directory).
    #[error("{what}: {}", std::io::Error::from_raw_os_error(*.errno))]
    Os {
        /// The operation, with the path.
        what: String,
        /// The system's error number.
        errno: i32,
    },
}

impl Error {
    /// Whether the data on a device could not be read, or are damaged: the request itself was valid.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Checksum { .. } | Self::Corrupt { .. } | Self::Format { .. })
    }

    /// Whether the same read may succeed later, because a device was away or failed.
    pub fn may_pass(&self) -> bool {
        let may = |attempt: &Attempt| matches!(attempt.failure, Failure::Unavailable | Failure::Io(_));
        matches!(self, Self::Io { tried, .. } | Self::Checksum { tried, .. } if tried.iter().any(may))
    }

    /// An error about a structure that passed its checksum but is invalid.
    pub fn corrupt(what: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::Corrupt { what: what.into(), detail: detail.to_string() }
    }

    /// The context for a parse error: `map_err(Error::format("..."))` fits `ondisk`'s results.
    pub fn format(what: impl Into<String>) -> impl FnOnce(ondisk::Error) -> Self {
        let what = what.into();
        move |error| Self::Format { what, error }
    }

    /// An operating-system error with its context.
    pub fn os(what: impl Into<String>, error: &std::io::Error) -> Self {
        Self::Os { what: what.into(), errno: error.raw_os_error().unwrap_or(5) }
    }
}

/// One copy of a block that was tried, and its failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The vdev by its name in `zpool status`: a leaf's path, or `raidz1-0`.
    pub vdev: String,
    /// Offset within that vdev's allocatable space, in bytes.
    pub offset_bytes: u64,
    /// Its failure.
    pub failure: Failure,
}

/// How one copy failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The device is missing, offline, faulted or removed.
    Unavailable,
    /// The device missed the transaction group in which the block was written.
    Stale,
    /// The transfer failed.
    Io(String),
    /// The bytes do not match the block pointer's checksum.
    Checksum,
    /// The checksum is right but the bytes do not decompress, or a gang header is invalid.
    Malformed(String),
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}: ", self.vdev, self.offset_bytes)?;
        match &self.failure {
            Failure::Unavailable => f.write_str("unavailable"),
            Failure::Stale => f.write_str("missed this write"),
            Failure::Io(why) => f.write_str(why),
            Failure::Checksum => f.write_str("checksum mismatch"),
            Failure::Malformed(why) => f.write_str(why),
        }
    }
}

fn tried_list(tried: &[Attempt]) -> String {
    let mut text = String::new();
    for (i, attempt) in tried.iter().enumerate() {
        text.push_str(if i == 0 { " (" } else { "; " });
        text.push_str(&attempt.to_string());
    }
    if !tried.is_empty() {
        text.push(')');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_error_names_the_block_and_every_copy_tried() {
        let tried = vec![
            Attempt { vdev: "/d0".into(), offset_bytes: 4096, failure: Failure::Checksum },
            Attempt { vdev: "/d1".into(), offset_bytes: 4096, failure: Failure::Unavailable },
        ];
        let text = Error::Checksum { at: Bookmark::data(54, 7, 3), tried }.to_string();
        assert_eq!(
            text,
            "objset 54, object 7, block 3: every copy is damaged (checksum mismatch) \
             (/d0 at offset 4096: checksum mismatch; /d1 at offset 4096: unavailable)"
        );
    }
}
