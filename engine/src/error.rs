//! [`Error`]: why an operation of the engine failed, by what the caller can do about it.
//!
//! Errors of the block layer carry the [`Bookmark`] of the block and every copy that was tried, so that a
//! message says which file and offset could not be read and because of which device. Errors above it carry
//! the name that the user gave.

use std::fmt;

use crate::Bookmark;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No copy of the block could be read from its devices.
    #[error("{at}: cannot be read from any device{}", tried_list(.tried))]
    Io {
        /// Which block.
        at: Bookmark,
        /// What was tried, in order.
        tried: Vec<Attempt>,
    },

    /// Copies were read, none has the right checksum.
    #[error("{at}: every copy is damaged (checksum mismatch){}", tried_list(.tried))]
    Checksum {
        /// Which block.
        at: Bookmark,
        /// What was tried, in order.
        tried: Vec<Attempt>,
    },

    /// The block could not be written to as many devices as it needs.
    #[error("{at}: cannot be written{}", tried_list(.tried))]
    NotWritten {
        /// Which block.
        at: Bookmark,
        /// What was tried, in order.
        tried: Vec<Attempt>,
    },

    /// There is no room for what was to be written.
    #[error("{0}: no space left")]
    NoSpace(String),

    /// There is room on the pool, but a quota of the dataset, or of one above it, is used up.
    #[error("{0}: disk quota exceeded")]
    Quota(String),

    /// The block is encrypted and its dataset's key is not loaded.
    #[error("{at}: encrypted, and the key of its dataset is not loaded")]
    KeyNotLoaded {
        /// Which block.
        at: Bookmark,
    },

    /// The block's checksum is right but its authentication code is not: made with another key, or tampered
    /// with.
    #[error("{at}: authentication failed (wrong key, or the block was tampered with)")]
    Authentication {
        /// Which block.
        at: Bookmark,
    },

    /// The key or passphrase given does not unlock this encryption root.
    #[error("incorrect key for '{dataset}'")]
    WrongKey {
        /// The encryption root.
        dataset: String,
    },

    /// A block passed its checksum, yet what it says is impossible.
    #[error("{what}: damaged: {detail}")]
    Corrupt {
        /// The structure, with its place.
        what: String,
        /// What is wrong.
        detail: String,
    },

    /// Bytes did not become the structure they should be.
    #[error("{what}: {error}")]
    Format {
        /// Which structure, with its place.
        what: String,
        /// What is wrong.
        error: ondisk::Error,
    },

    /// The named thing does not exist.
    #[error("{0}: does not exist")]
    NotFound(String),

    /// A fault of this program ended an operation before it changed anything.
    #[error("the program failed inside this operation, which changed nothing: {0}")]
    Panicked(String),

    /// The named thing is of another kind than the operation needs.
    #[error("{what}: {detail}")]
    WrongType {
        /// The thing.
        what: String,
        /// What it is, and what was expected.
        detail: String,
    },

    /// The caller's argument makes no sense.
    #[error("{0}")]
    Invalid(String),

    /// Well-formed, but this version cannot do it; says what to do instead.
    #[error("{0}")]
    Unsupported(String),

    /// A write was asked of something opened for reading.
    #[error("{0}: read-only")]
    ReadOnly(String),

    /// Nothing can be written any more: a device failed in a way that redundancy cannot make up for.
    #[error("{0}")]
    Suspended(String),

    /// In use by somebody else.
    #[error("{0}")]
    Busy(String),

    /// There is something of this name already.
    #[error("{0}: already exists")]
    Exists(String),

    /// The operating system refused something that is not a device transfer (opening, listing a directory).
    #[error("{what}: {}", std::io::Error::from_raw_os_error(*.errno))]
    Os {
        /// What was being done, with the path.
        what: String,
        /// The system's error number.
        errno: i32,
    },
}

impl Error {
    /// Whether what a device holds could not be read, or is damaged: nothing is wrong with what was asked.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Checksum { .. } | Self::Corrupt { .. } | Self::Format { .. })
    }

    /// A structure that passed its checksum and yet makes no sense.
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

/// One copy of a block that was tried, and how it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The vdev by the name that `zpool status` gives it: a leaf's path, or `raidz1-0`.
    pub vdev: String,
    /// Offset within that vdev's allocatable space, in bytes.
    pub offset_bytes: u64,
    /// How it failed.
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
    /// The checksum is right but the bytes do not decompress, or a gang header makes no sense.
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
