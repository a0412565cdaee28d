//! What can go wrong in arithmetic on untrusted bytes.

use crate::checksum::Digest;
use ondisk::blkptr::{ChecksumType, CompressType};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a block could not be checked or decoded. Callers add which block it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not those that were checksummed.
    #[error("checksum mismatch: expected {}, found {}", hex(.expected), hex(.actual))]
    ChecksumMismatch {
        /// The checksum in the block pointer or the trailer.
        expected: Digest,
        /// The checksum of the bytes.
        actual: Digest,
    },
    /// A block that carries its own checksum has no trailer: it is not such a block, or it was overwritten.
    #[error("no checksum trailer: magic {found:#018x}")]
    NoTrailer {
        /// The value in place of the magic number.
        found: u64,
    },
    /// A block is too short, or claims more bytes than it has.
    #[error("{what}: {needed} bytes needed, {available} available")]
    TooShort {
        /// The expected value.
        what: &'static str,
        /// Its size.
        needed: u64,
        /// Bytes at hand.
        available: u64,
    },
    /// A salted checksum was asked for without the pool's salt.
    #[error("checksum {0} needs the pool's salt")]
    NoSalt(ChecksumType),
    /// A value that names no algorithm by itself (`on`, `inherit`), or a self-checksum where a digest was
    /// asked for.
    #[error("{0} is not a checksum of data")]
    NotAChecksum(ChecksumType),
    /// A value that names no compression by itself (`on`, `inherit`, `empty`).
    #[error("{0} is not a compression of data")]
    NotACompression(CompressType),
    /// Compressed bytes that their decoder refuses.
    #[error("{algorithm}: {detail}")]
    Corrupt {
        /// The compression.
        algorithm: &'static str,
        /// The fault that the decoder found.
        detail: &'static str,
    },
    /// A raidz or dRAID layout or rebuild was refused.
    #[error(transparent)]
    Raidz(#[from] crate::raidz::Error),
    /// A key or an encrypted block was refused.
    #[error(transparent)]
    Crypt(#[from] crate::crypt::Error),
}

fn hex(digest: &Digest) -> String {
    let [a, b, c, d] = digest;
    format!("{a:x}:{b:x}:{c:x}:{d:x}")
}
