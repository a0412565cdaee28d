//! Blocks of intent logs: allocated before they are written, sealed by who writes them.
//!
//! A log is a chain: each block holds the pointer to the next, which is allocated first. So allocating and
//! writing are two steps. The pointer's checksum words are not a checksum but say which block of which log is
//! meant; the log puts them in.
//!
//! # Room
//! Logs have log vdevs, or a metaslab of each large normal vdev. Where these are full, or there are none, as
//! on small pools, a log takes what is for data. It takes it at once, while data that were accepted get their
//! place when their group is written: so a log that took what it found would leave nothing for them, and the
//! pool would stop. Therefore who accepts data lends it ([`LogRoom`]), and where nothing is lent the outcome
//! is a group to wait for.
//!
//! Source of the facts: OpenZFS 2.3 `zio.c` (`zio_alloc_zil`).

use std::fmt::Debug;

use device::{IoBuf, SharedBuf};
use ondisk::blkptr::{Blkptr, BlkptrParts, ChecksumType, CompressType};
use ondisk::dmu::DmuType;
use ondisk::{ByteOrder, Level, Lsize, Psize, Txg};

use super::Writer;
use crate::Bookmark;
use crate::error::{Error, Result};
use crate::vdev::Class;
use crate::vdev::write::Piece;

/// Who accepts data, and lends the intent logs of the space that is for them. Bytes are of blocks, without
/// parity.
pub trait LogRoom: Send + Sync + Debug {
    /// Whether `bytes` would be lent now.
    fn has(&self, bytes: u64) -> bool;

    /// Lends `bytes` until what is free is counted anew, or nothing.
    fn lend(&self, bytes: u64) -> bool;
}

/// How many times the space of a log that is to be written must be free where only logs are: blocks are
/// larger than what they hold, and there is parity.
const LOG_SHARE: u64 = 4;

impl Writer {
    /// Whether a log of `bytes` is likely to find room. There are no logs in pools of very old versions.
    pub fn has_log_room(&self, bytes: u64) -> bool {
        if !self.features().intent_logs {
            return false;
        }
        let is_lent = || self.log_room.as_ref().is_none_or(|room| room.has(bytes));
        self.allocator.free_for_log() / LOG_SHARE >= bytes || is_lent()
    }

    /// Takes `bytes` of what is for data, for the sake of a log; false where they are not lent.
    fn borrow_for_log(&self, bytes: u64) -> bool {
        self.log_room.as_ref().is_none_or(|room| room.lend(bytes))
    }

    /// Allocates a log block of `size` bytes (a multiple of 4 KiB) in the open group `txg`: from log devices
    /// when there are any that work, from the log class embedded in normal vdevs otherwise, and of what is
    /// for data where that has no room. The pointer is without checksum words; its checksum type is `Zilog2`.
    pub async fn allocate_log_block(&self, txg: Txg, size: u64) -> Result<Blkptr> {
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
            crypt: None,
        };
        parts.build().map_err(|error| {
            self.give_back(&dvas, txg);
            Error::Invalid(format!("an intent-log block of {size} bytes: {error}"))
        })
    }

    /// Writes the sealed bytes of a log block. Flushed, and durable, only with `durably`.
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
        self.written.count_log(bp, vdevs);
        Ok(())
    }
}
