//! The contents of a cache device (L2ARC): a header, and log blocks between the cached blocks.
//!
//! A cache device is a ring of blocks that lie there as they lie in the pool. The blocks say nothing of
//! themselves. After every `dh_log_entries` blocks there is a *log block* that says where each of them is,
//! and that leads to an older log block. The device's header leads to the two newest log blocks: with both of
//! them a reader can fetch the next one while it takes in the last one. So there are two chains, of every
//! other log block each.
//!
//! Everything is 64-bit words in the byte order of the machine that wrote the device; the magic numbers show
//! which one that is. All addresses are bytes from the beginning of the device, front labels included.
//!
//! The header ([`DeviceHeader`], `l2arc_dev_hdr_phys_t`) is at 4 MiB. It takes a whole sector of the device,
//! and the embedded checksum of labels is at the end of that sector.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `dh_magic` | "ZFSCACHE" |
//! | 8 | 8 | `dh_version` | 1 |
//! | 16 | 8 | `dh_spa_guid` | the pool |
//! | 24 | 8 | `dh_vdev_guid` | the device |
//! | 32 | 8 | `dh_log_entries` | entries of each log block; 0: there are no log blocks |
//! | 40 | 8 | `dh_evict` | what lies between the end of the newest log block and this address is invalid |
//! | 48 | 8 | `dh_flags` | bit 0: the device was not written to its end yet |
//! | 56 | 16 | `dh_start`, `dh_end` | the ring |
//! | 72 | 128 | `dh_start_lbps` | the two newest log blocks, the newest first |
//! | 200 | 16 | `dh_lb_asize`, `dh_lb_count` | bytes and number of log blocks |
//! | 216 | 16 | `dh_trim_action_time`, `dh_trim_state` | when the whole device was trimmed, and whether it was |
//! | 232 | 240 | | zero |
//! | 472 | 40 | `dh_tail` | the embedded checksum, on a device with sectors of 512 bytes |
//!
//! A pointer to a log block ([`LogPointer`], `l2arc_log_blkptr_t`):
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `lbp_daddr` | its address |
//! | 8 | 8 | `lbp_payload_asize` | bytes of the blocks that it describes |
//! | 16 | 8 | `lbp_payload_start` | the address of the first of them |
//! | 24 | 8 | `lbp_prop` | [`LogPointer::lsize`], [`LogPointer::asize`], compression, checksum |
//! | 32 | 32 | `lbp_cksum` | fletcher4 of the log block as it lies there |
//!
//! A log block ([`LogBlock`], `l2arc_log_blk_phys_t`) has 64 KiB before it is compressed:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `lb_magic` | "LOGBLKHD" |
//! | 8 | 64 | `lb_prev_lbp` | the log block before the last one |
//! | 72 | 56 | | zero |
//! | 128 | 64 x 1022 | `lb_entries` | the blocks, oldest first |
//!
//! An entry ([`LogEntry`], `l2arc_log_ent_phys_t`):
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 16 | `le_dva` | first address of the block in the pool |
//! | 16 | 8 | `le_birth` | its physical birth |
//! | 24 | 8 | `le_prop` | [`EntryProperties`] |
//! | 32 | 8 | `le_daddr` | its address on the cache device |
//! | 40 | 8 | `le_complevel` | level of its compression |
//! | 48 | 16 | | zero |
//!
//! `lbp_prop` and `le_prop`: bits 0-15 logical size in sectors less one, 16-31 physical size likewise (of log
//! blocks the size with padding), 32-38 compression, 39 prefetched, 40-47 checksum (of log blocks), 48-55
//! kind plus one (0 data, 1 metadata), 56 encrypted or authenticated, 57-60 the list of the ARC.
//!
//! Source of the facts: OpenZFS 2.4 `arc_impl.h`, `arc.c`; 2.3 has the same.

use crate::blkptr::{ChecksumType, CompressType};
use crate::words::word_struct;
use crate::{ByteOrder, Error, Guid, Lsize, Psize, Reader, Result, Txg, Writer};

/// Bytes of the header, without what fills its sector up.
pub const HEADER_BYTES: usize = 512;
/// Bytes of a log block before it is compressed.
pub const LOG_BLOCK_BYTES: usize = 64 << 10;
/// The most entries of a log block (`L2ARC_LOG_BLK_MAX_ENTRIES`).
pub const MAX_LOG_ENTRIES: usize = 1022;
/// The version that is known here (`L2ARC_PERSISTENT_VERSION`).
pub const VERSION: u64 = 1;
/// The device was not written to its end yet (`L2ARC_DEV_HDR_EVICT_FIRST`).
pub const FLAG_FIRST_SWEEP: u64 = 1;
/// The state of a device that was trimmed as a whole (`VDEV_TRIM_COMPLETE`).
pub const TRIM_COMPLETE: u64 = 4;

/// "ZFSCACHE".
const HEADER_MAGIC: u64 = 0x5a46_5343_4143_4845;
/// "LOGBLKHD".
const LOG_MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
/// Where the entries of a log block begin.
const ENTRIES_OFFSET: usize = 128;

const SECTOR_SHIFT: u32 = 9;

const fn size_at(prop: u64, shift: u32) -> u64 {
    ((prop >> shift & 0xffff) + 1) << SECTOR_SHIFT
}

/// The bits of a size, a multiple of 512 up to 32 MiB.
const fn size_bits(bytes: u64, shift: u32) -> u64 {
    ((bytes >> SECTOR_SHIFT).wrapping_sub(1) & 0xffff) << shift
}

word_struct! {
    /// A pointer to a log block.
    pub struct LogPointer {
        /// Address of the log block.
        pub address: u64,
        /// Bytes of the blocks that it describes.
        pub payload_bytes: u64,
        /// Address of the first of them.
        pub payload_start: u64,
        /// Sizes, compression and checksum.
        pub prop: u64,
        /// Fletcher4 of the log block as it lies there.
        pub checksum: [u64; 4],
    }
}

impl LogPointer {
    /// A pointer to a log block of `asize` bytes (a multiple of 512, up to 64 KiB).
    pub fn new(
        address: u64,
        payload: (u64, u64),
        asize: usize,
        compress: CompressType,
        checksum: [u64; 4],
    ) -> LogPointer {
        let prop = size_bits(LOG_BLOCK_BYTES as u64, 0)
            | size_bits(asize as u64, 16)
            | u64::from(compress.raw()) << 32
            | u64::from(ChecksumType::Fletcher4.raw()) << 40;
        LogPointer { address, payload_start: payload.0, payload_bytes: payload.1, prop, checksum }
    }

    /// Whether it leads nowhere.
    pub fn is_empty(&self) -> bool {
        self.address == 0
    }

    /// Bytes before compression.
    pub fn lsize(&self) -> u64 {
        size_at(self.prop, 0)
    }

    /// Bytes on the device.
    pub fn asize(&self) -> u64 {
        size_at(self.prop, 16)
    }

    /// How the log block is compressed.
    pub fn compress(&self) -> Result<CompressType> {
        CompressType::from_raw((self.prop >> 32 & 0x7f) as u8)
    }
}

word_struct! {
    /// The header of a cache device, without magic and checksum.
    pub struct DeviceHeader {
        /// Version.
        pub version: u64,
        /// The pool.
        pub pool: Guid,
        /// The device.
        pub vdev: Guid,
        /// Entries of each log block.
        pub log_entries: u64,
        /// What lies between the end of the newest log block and this address is invalid.
        pub evict: u64,
        /// [`FLAG_FIRST_SWEEP`].
        pub flags: u64,
        /// First address of the ring.
        pub start: u64,
        /// End of the ring.
        pub end: u64,
        /// The two newest log blocks, the newest first.
        pub newest: [LogPointer; 2],
        /// Bytes of all log blocks.
        pub log_bytes: u64,
        /// Number of all log blocks.
        pub log_blocks: u64,
        /// When the whole device was trimmed, in seconds since 1970.
        pub trim_time: u64,
        /// How far it is trimmed ([`TRIM_COMPLETE`]).
        pub trim_state: u64,
    }
}

impl DeviceHeader {
    /// The header at the beginning of a sector, and its byte order. The caller has checked the checksum.
    pub fn parse_sector(sector: &[u8]) -> Result<(DeviceHeader, ByteOrder)> {
        let order = order_of("L2ARC device header", sector, HEADER_MAGIC)?;
        let mut reader = Reader::new("L2ARC device header", sector, order);
        reader.skip(8)?;
        Ok((DeviceHeader::read(&mut reader)?, order))
    }

    /// A sector of `bytes` bytes with the header at its beginning, which the caller seals.
    pub fn encode_sector(&self, bytes: usize, order: ByteOrder) -> Vec<u8> {
        let mut writer = Writer::new(order);
        writer.u64(HEADER_MAGIC);
        self.write(&mut writer);
        writer.zeros_to(bytes.max(HEADER_BYTES));
        writer.finish()
    }
}

/// What an entry says of its block besides its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryProperties {
    /// Logical size.
    pub lsize: Lsize,
    /// Physical size.
    pub psize: Psize,
    /// Compression.
    pub compress: CompressType,
    /// It was read ahead.
    pub prefetch: bool,
    /// It is metadata.
    pub is_metadata: bool,
    /// It is encrypted or authenticated.
    pub protected: bool,
    /// It is in the ARC's list of frequently used blocks.
    pub frequent: bool,
}

/// The lists of the ARC (`arc_state_type_t`).
const STATE_MRU: u64 = 1;
const STATE_MFU: u64 = 3;

impl EntryProperties {
    /// The properties in `le_prop`.
    pub fn from_word(prop: u64) -> Result<EntryProperties> {
        Ok(EntryProperties {
            lsize: Lsize(size_at(prop, 0)),
            psize: Psize(size_at(prop, 16)),
            compress: CompressType::from_raw((prop >> 32 & 0x7f) as u8)?,
            prefetch: prop >> 39 & 1 != 0,
            is_metadata: prop >> 48 & 0xff == 2,
            protected: prop >> 56 & 1 != 0,
            frequent: prop >> 57 & 0xf == STATE_MFU,
        })
    }

    /// `le_prop`.
    pub fn to_word(&self) -> u64 {
        let state = if self.frequent { STATE_MFU } else { STATE_MRU };
        size_bits(self.lsize.get(), 0)
            | size_bits(self.psize.get(), 16)
            | u64::from(self.compress.raw()) << 32
            | u64::from(self.prefetch) << 39
            | (u64::from(self.is_metadata) + 1) << 48
            | u64::from(self.protected) << 56
            | state << 57
    }
}

word_struct! {
    /// An entry of a log block.
    pub struct LogEntry + 2 {
        /// First address of the block in the pool, in words ([`crate::blkptr::Dva::from_words`]).
        pub dva: [u64; 2],
        /// Its physical birth.
        pub birth: Txg,
        /// [`EntryProperties`].
        pub prop: u64,
        /// Its address on the cache device.
        pub address: u64,
        /// Level of its compression.
        pub level: u64,
    }
}

/// A log block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBlock {
    /// The log block before the last one.
    pub previous: LogPointer,
    /// The entries, oldest first; of a block from disk, as many as the header says.
    pub entries: Vec<LogEntry>,
}

impl LogBlock {
    /// The first `entries` entries of a log block that was decompressed.
    pub fn parse(bytes: &[u8], entries: usize) -> Result<LogBlock> {
        let order = order_of("L2ARC log block", bytes, LOG_MAGIC)?;
        if entries > MAX_LOG_ENTRIES {
            return Err(Error::invalid("L2ARC log block", format!("{entries} entries")));
        }
        let mut reader = Reader::new("L2ARC log block", bytes, order);
        reader.skip(8)?;
        let previous = LogPointer::read(&mut reader)?;
        reader.seek(ENTRIES_OFFSET)?;
        let entries: Result<Vec<LogEntry>> = (0..entries).map(|_| LogEntry::read(&mut reader)).collect();
        Ok(LogBlock { previous, entries: entries? })
    }

    /// The 64 KiB of the log block. Entries beyond [`MAX_LOG_ENTRIES`] are left out.
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut writer = Writer::new(order);
        writer.u64(LOG_MAGIC);
        self.previous.write(&mut writer);
        writer.zeros_to(ENTRIES_OFFSET);
        for entry in self.entries.iter().take(MAX_LOG_ENTRIES) {
            entry.write(&mut writer);
        }
        writer.zeros_to(LOG_BLOCK_BYTES);
        writer.finish()
    }
}

fn order_of(what: &'static str, bytes: &[u8], magic: u64) -> Result<ByteOrder> {
    let found = Reader::new(what, bytes, ByteOrder::Little).array::<8>()?;
    ByteOrder::of_magic(magic, found).ok_or_else(|| Error::invalid(what, "the magic number is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::word_struct_round_trips;

    word_struct_round_trips! {
        pointers_round_trip: LogPointer;
        entries_round_trip: LogEntry;
        headers_round_trip: DeviceHeader;
    }

    #[test]
    fn sizes_are_those_of_openzfs() {
        assert_eq!((LogPointer::SIZE, LogEntry::SIZE), (64, 64));
        assert_eq!(8 + DeviceHeader::SIZE, 232);
        assert_eq!(ENTRIES_OFFSET + MAX_LOG_ENTRIES * LogEntry::SIZE, LOG_BLOCK_BYTES);
    }

    #[test]
    fn a_header_fills_its_sector_in_either_order() {
        let header = DeviceHeader { version: VERSION, pool: Guid(7), log_entries: 9, ..Default::default() };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let sector = header.encode_sector(4096, order);
            assert_eq!(sector.len(), 4096);
            assert_eq!(DeviceHeader::parse_sector(&sector), Ok((header, order)));
        }
        assert!(DeviceHeader::parse_sector(&[0; 512]).is_err());
        assert!(DeviceHeader::parse_sector(&[]).is_err());
    }

    #[test]
    fn properties_of_entries_keep_their_bits() {
        let properties = EntryProperties {
            lsize: Lsize(16 << 20),
            psize: Psize(512),
            compress: CompressType::Lz4,
            prefetch: true,
            is_metadata: true,
            protected: false,
            frequent: true,
        };
        assert_eq!(properties.to_word(), 0x0602_008f_0000_7fff);
        assert_eq!(EntryProperties::from_word(properties.to_word()), Ok(properties));
    }

    #[test]
    fn a_log_block_is_read_back_and_never_has_too_many_entries() {
        let entry = LogEntry { dva: [1, 2], birth: Txg(3), prop: 4, address: 5, level: 0 };
        let block =
            LogBlock { previous: LogPointer { address: 9, ..Default::default() }, entries: vec![entry; 3] };
        let bytes = block.encode(ByteOrder::Big);
        assert_eq!(bytes.len(), LOG_BLOCK_BYTES);
        assert_eq!(LogBlock::parse(&bytes, 3), Ok(block));
        assert!(LogBlock::parse(&bytes, MAX_LOG_ENTRIES + 1).is_err());
        assert!(LogBlock::parse(&bytes[..200], 3).is_err());
    }
}
