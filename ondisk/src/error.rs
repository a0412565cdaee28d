//! What can be wrong with bytes that claim to be a ZFS structure.

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why bytes could not become a type. Callers add where (pool, vdev, object, block) the bytes came from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The input ends inside the structure.
    #[error("{what}: needs {needed} bytes at offset {offset}, only {available} left")]
    Truncated {
        /// Structure or field being read.
        what: &'static str,
        /// Position of the read inside the input.
        offset: usize,
        /// Bytes that the read needs.
        needed: usize,
        /// Bytes left at that position.
        available: usize,
    },
    /// A magic number is neither of the two byte orders: this is not the structure, or it was overwritten.
    #[error("{what}: bad magic {found:#018x}")]
    BadMagic {
        /// Structure being read.
        what: &'static str,
        /// The value in place of the magic number.
        found: u64,
    },
    /// Well-formed, but of a version or kind that this code does not know.
    #[error("{what}: unsupported ({detail})")]
    Unsupported {
        /// Structure or field.
        what: &'static str,
        /// The version or kind found.
        detail: String,
    },
    /// A field contradicts the format.
    #[error("{what}: {detail}")]
    Invalid {
        /// Structure or field.
        what: &'static str,
        /// The fault.
        detail: String,
    },
    /// A bound that protects memory or time was reached.
    #[error("{what}: more than {limit}")]
    TooLarge {
        /// The quantity that exceeds its limit.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// The checksum that the structure carries does not match its bytes.
    #[error("{what}: checksum mismatch")]
    BadChecksum {
        /// Structure.
        what: &'static str,
    },
    /// A named part that the caller requires is absent (an nvlist pair, an attribute).
    #[error("{what}: no {name:?}")]
    Missing {
        /// Structure that was searched.
        what: &'static str,
        /// The thing that was not found.
        name: String,
    },
}

impl Error {
    /// A field contradicts the format.
    pub fn invalid(what: &'static str, detail: impl Into<String>) -> Error {
        Error::Invalid { what, detail: detail.into() }
    }

    /// A version or kind that this code does not know.
    pub fn unsupported(what: &'static str, detail: impl Into<String>) -> Error {
        Error::Unsupported { what, detail: detail.into() }
    }

    /// A named part is absent.
    pub fn missing(what: &'static str, name: impl Into<String>) -> Error {
        Error::Missing { what, name: name.into() }
    }
}
