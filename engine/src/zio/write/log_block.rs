//! Blocks of intent logs: allocated before they are written, sealed by their writer.
//!
//! A log is a chain: each block contains the pointer to the next, which is allocated first. So allocation and
//! writing are two steps. The pointer's checksum words are no checksum: they identify the log and the block.
//! The log fills them in.
//!
//! # Room
//! Logs have log vdevs, or a metaslab of each large normal vdev. When these are full, or do not exist, as on
//! small pools, a log takes space that is meant for data. It takes the space at once, but accepted data get
//! their places only when their group is written. A log that took all free space would leave none for these
//! data, and the pool would stop. Therefore the layer that accepts data lends the space ([`LogRoom`]); when
//! it lends nothing, the log's caller must wait for a group.
//!
//! # Encryption
//! A log block of an encrypted dataset gets its salt and IV when it is allocated, because the block before
//! it, which has its pointer, is written first. Its MAC lies in the block. It is encrypted by its log.
//!
//! Source of the facts: OpenZFS 2.3 `zio.c` (`zio_alloc_zil`).

use std::fmt::Debug;

use codec::crypt::DatasetKey;
use device::{IoBuf, SharedBuf};
use ondisk::blkptr::{Blkptr, BlkptrParts, ChecksumType, CompressType, CryptParts};
use ondisk::dmu::DmuType;
use ondisk::{ByteOrder, Level, Lsize, ObjsetId, Psize, Txg};

use super::Writer;
use crate::Bookmark;
use crate::error::{Error, Result};
use crate::vdev::Class;
use crate::vdev::write::Piece;

/// The layer that accepts data, and lends intent logs some of the space for data. Sizes are bytes of blocks,
/// without parity.
pub trait LogRoom: Send + Sync + Debug {
    /// Whether it would lend `bytes` now.
    fn has(&self, bytes: u64) -> bool;

    /// Lends `bytes` until the free space is counted again, or nothing.
    fn lend(&self, bytes: u64) -> bool;

    /// Lends the copies of a block of `bytes` that is written before its group, until the group is committed,
    /// or nothing: after a crash its log leads to them, and the replay writes the block again.
    fn lend_early(&self, txg: Txg, bytes: u64, copies: u64) -> bool;

    /// Takes back what was lent for a block that was not written early after all.
    fn give_back_early(&self, txg: Txg, bytes: u64, copies: u64);
}

/// How many times the size of a log must be free where only logs are written: blocks are larger than their
/// contents, and there is parity.
const LOG_SHARE: u64 = 4;

impl Writer {
    /// Whether a log of `bytes` is likely to find room. Pools of very old versions have no logs.
    pub fn has_log_room(&self, bytes: u64) -> bool {
        if !self.features().intent_logs {
            return false;
        }
        let is_lent = || self.log_room.as_ref().is_none_or(|room| room.has(bytes));
        self.allocator.free_for_log() / LOG_SHARE >= bytes || is_lent()
    }

    /// Borrows space for the copies of a block of `bytes` that is about to be written before its group;
    /// returns false when it is not lent.
    pub(crate) fn borrow_for_early(&self, txg: Txg, bytes: u64, copies: u64) -> bool {
        self.log_room.as_ref().is_none_or(|room| room.lend_early(txg, bytes, copies))
    }

    /// The block was not written early after all.
    pub(crate) fn give_back_early(&self, txg: Txg, bytes: u64, copies: u64) {
        if let Some(room) = &self.log_room {
            room.give_back_early(txg, bytes, copies);
        }
    }

    /// Borrows `bytes` of the space for data for a log; returns false when they are not lent.
    fn borrow_for_log(&self, bytes: u64) -> bool {
        self.log_room.as_ref().is_none_or(|room| room.lend(bytes))
    }

    /// Allocates a log block of `size` bytes (a multiple of 4 KiB) in the open group `txg`: from working log
    /// devices if there are any, else from the log class embedded in normal vdevs, else from the space for
    /// data. The pointer has no checksum words yet; its checksum type is `Zilog2`. With the `key` of its
    /// dataset, the block is to be encrypted with the salt and IV in the pointer.
    pub async fn allocate_log_block(&self, txg: Txg, size: u64, key: Option<&DatasetKey>) -> Result<Blkptr> {
        let crypt = match key {
            Some(key) => Some(self.ivs.next(key)?),
            None => None,
        };
        let crypt = crypt.map(|(salt, iv)| CryptParts { salt, iv, ..CryptParts::default() });
        let dvas = match self.allocator.allocate(Class::Log, size, 1, txg).await? {
            None if self.borrow_for_log(size) => self.allocator.allocate(Class::Normal, size, 1, txg).await?,
            dvas => dvas,
        };
        let dvas =
            dvas.ok_or_else(|| Error::NoSpace(format!("intent log of pool '{}'", self.store.name())))?;
        let parts = BlkptrParts {
            dvas: dvas.clone(),
            lsize: Lsize(size),
            psize: Psize(size),
            compress: CompressType::Off,
            checksum_type: ChecksumType::Zilog2,
            checksum: [0; 4],
            dmu_type: DmuType::INTENT_LOG,
            level: Level::DATA,
            dedup: false,
            byte_order: ByteOrder::Little,
            logical_birth: txg,
            physical_birth: txg,
            fill: 0,
            crypt,
        };
        parts.build().map_err(|error| {
            self.give_back(&dvas, txg);
            Error::Invalid(format!("an intent-log block of {size} bytes: {error}"))
        })
    }

    /// Writes the sealed bytes of a log block. They are flushed, and durable, only with `durably`.
    pub async fn write_log_block(&self, bp: &Blkptr, bytes: IoBuf, durably: bool) -> Result<()> {
        let psize = bp.psize().get();
        let [_, _, objset, sequence] = bp.checksum();
        let at = Bookmark { objset, object: 0, level: Bookmark::LEVEL_ZIL, blkid: sequence };
        if bytes.len() as u64 != psize || bp.is_gang() {
            return Err(Error::Invalid(format!("{at}: {} bytes for a block of {psize}", bytes.len())));
        }
        self.store.suspension.check()?;
        let bytes = SharedBuf::from(bytes);
        let (txg, vdevs) = (bp.physical_birth(), self.store.vdevs());
        for dva in bp.dvas() {
            let piece = Piece { top: dva.vdev.get(), offset_bytes: dva.offset.get(), data: bytes.clone() };
            let written = match durably {
                true => vdevs.write_durably(txg, piece).await,
                false => vdevs.write(txg, vec![piece]).await.into_iter().collect(),
            };
            written.map_err(|tried| Error::NotWritten { at, tried })?;
        }
        let dataset = self.store.datasets.of(ObjsetId(objset));
        self.written.count_log(bp, vdevs, &dataset);
        Ok(())
    }
}
