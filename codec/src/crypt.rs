//! Encryption and authentication of datasets.
//!
//! # Keys
//! A user's secret (passphrase, 64 hex digits or 32 raw bytes) becomes a [`WrappingKey`]. It opens the
//! dataset's [`WrappedKey`], stored in the pool, and yields a
//! [`DatasetKey`]: a master key and an HMAC key. Changing the secret only wraps these again. No block is encrypted with the master key itself: each block
//! pointer holds a salt, and HKDF-SHA512 of master key and salt is the key of the block. Many blocks share a
//! salt, so derived keys are cached.
//!
//! # Blocks
//! | what the block pointer says | where the truth is | function |
//! |---|---|---|
//! | encrypted data (level 0) | MAC in checksum words 2 and 3, IV and salt in the third DVA and the fill count | [`decrypt_block`] |
//! | encrypted dnode block | as above; only bonus areas of private types are secret, the rest is authenticated ("AAD") | [`decrypt_block`] |
//! | intent log block | MAC in the block's own header; record headers and block pointers are AAD | [`decrypt_block`] |
//! | authenticated data (level 0 of types that must be readable without key) | truncated HMAC-SHA512 in checksum words 2 and 3 | [`decrypt_block`] |
//! | object set | two HMACs inside the block | [`decrypt_block`], [`verify_objset_macs`] |
//! | indirect block | truncated SHA-512 over the MACs below, no key needed | [`verify_indirect_mac`] |
//!
//! All but the last are computed over the block as stored, before decompression; that of an indirect block
//! over its decompressed content. Byte order matters: data are authenticated as they stand, but what a raw
//! send may change (allocation, checksum, dedup bits) is masked out, and the rest of each block pointer is
//! taken as little-endian.
//!
//! # Limits
//! Ciphers and hashes are never our own (`ring`, RustCrypto); of the modes, only CCM is. Keys that are kept,
//! with their expanded schedules, lie in memory that is not swapped out where that is allowed, not part of core
//! dumps, and wiped when they are dropped (`locked`). What those libraries have on the stack while they work
//! is not wiped.
//!
//! Source of the facts: OpenZFS 2.3 `zio_crypt.c`, `dsl_crypt.c`, `hkdf.c`, `libzfs_crypto.c`, `zio.c`
//! (`zio_decrypt`).

mod block;
mod ccm;
mod cipher;
mod key;
mod layout;
mod locked;
mod mac;

pub use block::{decrypt_block, encrypt_block};
pub use cipher::Suite;
pub use key::{DatasetKey, WrappedKey, WrappingKey};
pub use mac::{ObjsetMacs, indirect_mac, objset_macs, verify_indirect_mac, verify_objset_macs};

/// Result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a key or a block was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The user's key is well-formed but does not open the dataset's key.
    #[error("incorrect key")]
    WrongKey,
    /// The user's key cannot be one: wrong length or not hexadecimal.
    #[error("not a valid key: {0}")]
    KeyFormat(&'static str),
    /// An encryption suite that is not known here.
    #[error("unknown encryption suite {0}")]
    UnknownSuite(u64),
    /// A format version of the wrapped key that is not known here.
    #[error("unknown encryption format version {0}")]
    UnknownVersion(u64),
    /// The block is not what was written with this key: it was damaged or tampered with.
    #[error("authentication failed")]
    Authentication,
    /// The block's structure is impossible, so that its encrypted parts cannot be distinguished from the
    /// others.
    #[error("encrypted block is malformed: {0}")]
    Malformed(&'static str),
}

/// Bytes of the salt in a block pointer.
pub const SALT_BYTES: usize = 8;
/// Bytes of an initialization vector.
pub const IV_BYTES: usize = 12;
/// Bytes of a MAC in a block pointer.
pub const MAC_BYTES: usize = 16;
