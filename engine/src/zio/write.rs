//! Writing blocks.

use std::sync::Arc;

use ondisk::Txg;
use ondisk::blkptr::{Blkptr, ChecksumType, CompressType};
use ondisk::dmu::DmuType;

use crate::alloc::Allocator;
use crate::error::Result;
use crate::vdev::Class;
use crate::{Block, Bookmark, Pool};

/// A block to be written.
#[derive(Debug, Clone)]
pub struct WriteRequest {
    /// Which block, for messages. Its level goes into the pointer.
    pub at: Bookmark,
    /// The bytes, of the block's logical size (a multiple of 512).
    pub data: Block,
    /// Type of its object.
    pub dmu_type: DmuType,
    /// Checksum; never `Inherit` or `On`.
    pub checksum: ChecksumType,
    /// Compression; never `Inherit` or `On`.
    pub compress: CompressType,
    /// Level code of zstd (`codec::compress::zstd_level_code`), ignored by others.
    pub zstd_level: u8,
    /// Copies, 1 to 3.
    pub copies: u8,
    /// Where to put it, if there is such a class.
    pub class: Class,
    /// Whether it may stand in the pointer when it compresses that well.
    pub may_embed: bool,
    /// Whether to keep `previous` when the bytes are the same (a strong checksum, compression on).
    pub nopwrite: bool,
    /// The pointer that this replaces: a block of the same txg and size is written in its place.
    pub previous: Option<Blkptr>,
    /// What the pointer counts: non-hole blocks below, this one included; allocated dnodes for blocks of dnodes.
    pub fill: u64,
}

/// Writes and frees blocks of a pool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Writer {
    pool: Arc<Pool>,
    allocator: Arc<Allocator>,
}

impl Writer {
    /// A writer for a pool.
    pub fn new(pool: Arc<Pool>, allocator: Arc<Allocator>) -> Self {
        Self { pool, allocator }
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Where space comes from.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// Writes a batch, in order: neighbours in the batch become neighbours on the device.
    pub async fn write(&self, _txg: Txg, _batch: Vec<WriteRequest>) -> Result<Vec<Blkptr>> {
        todo!()
    }

    /// Gives the space of a block back in `txg`. Holes and embedded blocks have none. Of a gang, headers and members.
    pub async fn free(&self, _txg: Txg, _bp: &Blkptr) -> Result<()> {
        todo!()
    }

    /// Makes all that was written durable.
    pub async fn flush(&self) -> Result<()> {
        todo!()
    }

    /// Bytes that a block counts for in quotas and listings: allocated, less parity (`bp_get_dsize`).
    pub fn dsize(&self, _bp: &Blkptr) -> u64 {
        todo!()
    }

    /// Allocates a log block of `size` bytes (a multiple of 4 KiB) in the open group `txg`: from log devices when there are any that work,
    /// from the log class embedded in normal vdevs otherwise. The pointer is without checksum words; its checksum type is `Zilog2`.
    pub async fn allocate_log_block(&self, _txg: Txg, _size: u64) -> Result<Blkptr> {
        todo!()
    }

    /// Writes the sealed bytes of a log block to all its copies. Not flushed.
    pub async fn write_log_block(&self, _bp: &Blkptr, _bytes: device::IoBuf) -> Result<()> {
        todo!()
    }
}
