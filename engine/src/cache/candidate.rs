//! What the ARC knows of a block beside its bytes, as long as a cache device may get the block.
//!
//! The ARC holds blocks decompressed; a cache device holds them as they are in the pool. Compressing a block
//! again would cost time and need not give the same bytes. So a block that came in compressed, and that a
//! cache device may get, brings its physical bytes along. They are part of the ARC's budget, with a share of
//! their own that is soon full when nothing is written to cache devices; then blocks come in without. They
//! are dropped when a cache device has the block ([`super::ArcCache::fed`]), or with the block.

use device::IoBuf;
use ondisk::blkptr::{Blkptr, ChecksumType, CompressType, Dva};

use super::Block;

/// A block that comes into the ARC.
#[derive(Debug)]
pub struct Loaded {
    /// The block.
    pub(super) block: Block,
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
    /// Its bytes as they are in the pool, where these are others than the block's.
    pub physical: Option<Block>,
}

impl From<Block> for Loaded {
    fn from(block: Block) -> Self {
        Self { block, candidate: None }
    }
}

impl Loaded {
    /// A block to which `bp` leads, which a cache device may get. `physical` are its bytes as they are in the
    /// pool; it may be absent for a block that is not compressed.
    pub(crate) fn feedable(block: Block, bp: &Blkptr, physical: Option<Block>) -> Self {
        let candidate = Candidate::of(bp, physical, block.len() as u64);
        Self { block, candidate: candidate.map(Box::new) }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.block.memory_bytes() + self.physical_bytes()
    }

    /// The memory of what a cache device may get.
    pub(super) fn physical_bytes(&self) -> usize {
        let of = |candidate: &Candidate| candidate.physical.as_ref().map_or(0, Block::memory_bytes);
        self.candidate.as_ref().map_or(0, |candidate| of(candidate) + size_of::<Candidate>())
    }
}

impl Candidate {
    /// Whether a cache device may get the block that `bp` leads to.
    pub(crate) fn is_possible(bp: &Blkptr) -> bool {
        // Pools with encrypted datasets are only read.
        !bp.is_hole() && !bp.is_embedded() && !bp.uses_crypt() && Self::has_checksum(bp)
    }

    /// Whether the checksum of a block tells right bytes from wrong ones. OpenZFS also caches others.
    pub(crate) fn has_checksum(bp: &Blkptr) -> bool {
        !matches!(
            bp.checksum_type(),
            ChecksumType::Off | ChecksumType::NoParity | ChecksumType::Inherit | ChecksumType::On
        )
    }

    fn of(bp: &Blkptr, physical: Option<Block>, length: u64) -> Option<Self> {
        if !Self::is_possible(bp) {
            return None;
        }
        let (lsize, psize) = (bp.lsize().get(), bp.psize().get());
        let has_bytes = match &physical {
            Some(physical) => physical.len() as u64 == psize,
            None => bp.compress() == CompressType::Off && length == psize && length == lsize,
        };
        let is_metadata = bp.level().0 > 0 || bp.dmu_type().is_metadata();
        has_bytes.then_some(Self {
            dva: bp.dva(0)?,
            birth: bp.physical_birth().get(),
            lsize,
            psize,
            compress: bp.compress(),
            is_metadata,
            physical,
        })
    }
}

/// Bytes in memory of their own size: a buffer for compressed bytes is as large as the block before.
pub(crate) fn fitted(bytes: &[u8]) -> Block {
    IoBuf::from(bytes).into()
}
