//! What comes into the ARC: a block, with what is known of it beside its bytes.
//!
//! A block that is compressed in the pool may bring its compressed form along ([`Packed`]), in which the ARC
//! can keep it.
//!
//! A cache device holds blocks as they are in the pool. Compressing a block again would cost time and need
//! not give the same bytes. So a block that a cache device may get needs its physical bytes. Where the ARC
//! keeps the compressed form, these are there. Where it does not (`zfs_compressed_arc_enabled`, or too little
//! is saved), the block brings them along for the device alone. They are part of the ARC's budget, with a
//! share of their own that is soon full when nothing is written to cache devices; then blocks come in
//! without. They are dropped when a cache device has the block ([`super::ArcCache::fed`]), or with the block.
//!
//! # Encrypted blocks
//! The ARC has blocks decrypted, and no plaintext may ever be on a device. So an encrypted block brings its
//! ciphertext along, as it was read or written, for the device alone; without it no device gets the block.
//! OpenZFS encrypts once more with the salt and IV of the pointer, for which it needs the key when it feeds;
//! here a key that is unloaded is gone at once, and what waits is ciphertext still. Metadata of encrypted
//! datasets, which are encrypted in part or only authenticated, do not go to devices: OpenZFS's module found
//! three such blocks in a thousand unfit and read them from the pool.

use std::sync::Arc;

use device::IoBuf;
use ondisk::blkptr::{Blkptr, ChecksumType, CompressType, Dva, Protection};

use super::Block;
use super::packed::Packed;
use crate::tunables;

/// A block that comes into the ARC.
#[derive(Debug)]
pub struct Loaded {
    /// The block.
    pub(super) block: Block,
    /// Its compressed form, if the ARC may keep the block in it.
    pub(super) packed: Option<Arc<Packed>>,
    /// What it takes to write it to a cache device, if one may get it.
    pub(super) candidate: Option<Box<Candidate>>,
}

/// What it takes to write a block to a cache device.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Its first copy.
    pub dva: Dva,
    /// Its physical birth.
    pub birth: u64,
    /// Logical size in bytes.
    pub lsize: u64,
    /// Physical size in bytes.
    pub psize: u64,
    /// How it is compressed.
    pub compress: CompressType,
    /// Whether it is metadata.
    pub is_metadata: bool,
    /// Whether it has a MAC of its own, which its pointer keeps.
    pub is_protected: bool,
    /// Whether it is encrypted: what the ARC keeps for itself is not what is in the pool.
    pub is_encrypted: bool,
    /// Its bytes as they are in the pool, where these are others than the block's, and the ARC does not keep
    /// them for itself.
    pub physical: Option<Block>,
}

/// Whether a cache device may get a block.
#[derive(Debug)]
pub(crate) enum ForDevice {
    /// It may not.
    No,
    /// It may. The block is not encrypted.
    Plain,
    /// It may. This is the ciphertext as it is in the pool.
    Encrypted(Block),
}

impl ForDevice {
    /// A block that `bp` leads to and that a device may get. These are its bytes as they are in the pool.
    pub(crate) fn of(bp: &Blkptr, stored: &[u8]) -> Self {
        match bp.protection() {
            Protection::None => Self::Plain,
            Protection::Encrypted if bp.level().0 == 0 && !bp.dmu_type().is_metadata() => {
                Self::Encrypted(fitted(stored))
            }
            _ => Self::No,
        }
    }
}

impl From<Block> for Loaded {
    fn from(block: Block) -> Self {
        Self { block, packed: None, candidate: None }
    }
}

impl Loaded {
    /// A block to which `bp` leads. `physical` are its decrypted bytes as they are in the pool; they may be
    /// absent, and are for a block that is not compressed.
    pub(crate) fn of(block: Block, bp: &Blkptr, physical: Option<Block>, for_device: ForDevice) -> Self {
        let packed = match &physical {
            Some(bytes) if is_kept_compressed() => Packed::of(bytes, bp.compress(), &block),
            _ => None,
        };
        let candidate = match for_device {
            ForDevice::No => None,
            ForDevice::Plain if bp.protection() == Protection::Encrypted => None,
            ForDevice::Plain => Candidate::of(bp, physical, packed.is_some(), block.len() as u64),
            ForDevice::Encrypted(ciphertext) => {
                Candidate::of(bp, Some(ciphertext), false, block.len() as u64)
            }
        };
        Self { block, packed, candidate: candidate.map(Box::new) }
    }
}

/// Whether the ARC keeps blocks compressed that come in now.
pub(crate) fn is_kept_compressed() -> bool {
    tunables::ZFS_COMPRESSED_ARC_ENABLED.get() != 0
}

impl Candidate {
    /// The memory of what is there for a cache device alone.
    pub(super) fn memory_bytes(&self) -> usize {
        self.physical.as_ref().map_or(0, Block::memory_bytes) + size_of::<Self>()
    }

    /// Whether a cache device may get the block that `bp` leads to.
    pub(crate) fn is_possible(bp: &Blkptr) -> bool {
        !bp.is_hole() && !bp.is_embedded() && Self::has_checksum(bp)
    }

    /// Whether the checksum of a block tells right bytes from wrong ones. OpenZFS also caches others.
    pub(crate) fn has_checksum(bp: &Blkptr) -> bool {
        !matches!(
            bp.checksum_type(),
            ChecksumType::Off | ChecksumType::NoParity | ChecksumType::Inherit | ChecksumType::On
        )
    }

    fn of(bp: &Blkptr, physical: Option<Block>, is_kept: bool, length: u64) -> Option<Self> {
        if !Self::is_possible(bp) {
            return None;
        }
        let (lsize, psize) = (bp.lsize().get(), bp.psize().get());
        let has_bytes = match &physical {
            Some(physical) => physical.len() as u64 == psize,
            None => bp.compress() == CompressType::Off && length == psize && length == lsize,
        };
        has_bytes.then_some(Self {
            dva: bp.dva(0)?,
            birth: bp.physical_birth().get(),
            lsize,
            psize,
            compress: bp.compress(),
            is_metadata: bp.level().0 > 0 || bp.dmu_type().is_metadata(),
            is_protected: matches!(bp.protection(), Protection::Encrypted | Protection::Authenticated),
            is_encrypted: bp.protection() == Protection::Encrypted,
            physical: physical.filter(|_| !is_kept),
        })
    }
}

/// Bytes in memory of their own size: a buffer for compressed bytes is as large as the block before.
pub(crate) fn fitted(bytes: &[u8]) -> Block {
    IoBuf::from(bytes).into()
}
