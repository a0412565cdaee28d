//! Uberblocks: the root of the pool at one txg.
//!
//! A commit of the pool ends with writing an uberblock into the next slot of the ring in each label. The
//! valid one of the highest txg (then timestamp, then heartbeat sequence) is the pool's state.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `0x00bab10c`, tells the byte order |
//! | 8 | 8 | version | pool version, 5000 with feature flags |
//! | 16 | 8 | txg | txg of the commit |
//! | 24 | 8 | guid_sum | sum of the guids of all vdevs, tells missing devices |
//! | 32 | 8 | timestamp | seconds since 1970, UTC |
//! | 40 | 128 | rootbp | block pointer of the MOS |
//! | 168 | 8 | software_version | highest version that the writer supports |
//! | 176 | 8 | mmp_magic | `0xa11cea11` when the multihost fields are there |
//! | 184 | 8 | mmp_delay | nanoseconds between heartbeats, 0: multihost is off |
//! | 192 | 8 | mmp_config | bits 0-2: which of the others are valid; 8-31: interval in ms; 32-47: sequence; 48-63: fail intervals |
//! | 200 | 8 | checkpoint_txg | not 0: this is a checkpoint, taken at that txg |
//! | 208 | 8 | raidz_reflow_info | bits 0-54: progress of raidz expansion in sectors of 512 bytes; 55-63: state of the scratch area |
//!
//! Source: OpenZFS 2.3 `uberblock_impl.h`, `uberblock.c`.

use crate::blkptr::Blkptr;
use crate::{ByteOffset, ByteOrder, Error, Reader, Result, Txg, Writer};

/// First word.
pub const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
/// Marks the multihost fields as present.
pub const MMP_MAGIC: u64 = 0xa11c_ea11;
/// Bytes of an uberblock; its slot is larger.
pub const UBERBLOCK_SIZE: usize = 216;

/// The root of the pool at one txg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uberblock {
    /// Byte order of the writer.
    pub order: ByteOrder,
    /// Pool version.
    pub version: u64,
    /// Txg of the commit.
    pub txg: Txg,
    /// Wrapping sum of the guids of all vdevs.
    pub guid_sum: u64,
    /// Seconds since 1970.
    pub timestamp: u64,
    /// Block pointer of the MOS.
    pub root_bp: Blkptr,
    /// Highest version that the writer supports.
    pub software_version: u64,
    /// Multihost protection; `None` from writers that do not know it.
    pub mmp: Option<Mmp>,
    /// Not 0: this uberblock is a checkpoint taken at that txg.
    pub checkpoint_txg: Txg,
    /// Progress of raidz expansion, raw; see [`Uberblock::reflow_offset`].
    pub raidz_reflow_info: u64,
}

/// Multihost heartbeat state. All but the delay are known only if the writer said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mmp {
    /// Nanoseconds between heartbeats; 0: multihost is off.
    pub delay_ns: u64,
    /// Raw configuration word.
    pub config: u64,
}

impl Mmp {
    /// The fields of a heartbeat.
    pub fn new(delay_ns: u64, interval_ms: u64, sequence: u16, fail_intervals: u16) -> Self {
        let config =
            7 | interval_ms.min(0xff_ffff) << 8 | u64::from(sequence) << 32 | u64::from(fail_intervals) << 48;
        Self { delay_ns, config }
    }

    /// Interval between writes to one device in milliseconds.
    pub fn interval_ms(&self) -> Option<u64> {
        (self.config & 1 != 0).then_some(self.config >> 8 & 0xff_ffff)
    }

    /// Heartbeats since the last commit.
    pub fn sequence(&self) -> Option<u16> {
        (self.config & 2 != 0).then_some((self.config >> 32) as u16)
    }

    /// Missed heartbeats after which the writer suspends itself.
    pub fn fail_intervals(&self) -> Option<u16> {
        (self.config & 4 != 0).then_some((self.config >> 48) as u16)
    }
}

/// Whether the scratch area of a raidz expansion holds the only copy of the first rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReflowScratch {
    /// No expansion has begun to move data.
    NotInUse,
    /// The first rows are in the scratch area: they must be copied back before anything is read.
    Valid,
    /// The first rows are back in place.
    Synced,
    /// As `Synced`, done while importing.
    SyncedOnImport,
    /// As `Synced`, and the reflow has gone on.
    SyncedReflow,
}

impl Uberblock {
    /// Parses the start of a slot, whose checksum the caller verifies.
    pub fn parse(bytes: &[u8]) -> Result<Uberblock> {
        let magic = Reader::new("uberblock", bytes, ByteOrder::Little).array()?;
        let Some(order) = ByteOrder::of_magic(UBERBLOCK_MAGIC, magic) else {
            return Err(Error::BadMagic { what: "uberblock", found: u64::from_le_bytes(magic) });
        };
        let mut reader = Reader::new("uberblock", bytes, order);
        reader.skip(8)?;
        let [version, txg, guid_sum, timestamp] = reader.u64s()?;
        let root_bp = Blkptr::read(&mut reader)?;
        let [software_version, mmp_magic, delay_ns, config, checkpoint_txg, raidz_reflow_info] =
            reader.u64s()?;
        Ok(Uberblock {
            order,
            version,
            txg: Txg(txg),
            guid_sum,
            timestamp,
            root_bp,
            software_version,
            mmp: (mmp_magic == MMP_MAGIC).then_some(Mmp { delay_ns, config }),
            checkpoint_txg: Txg(checkpoint_txg),
            raidz_reflow_info,
        })
    }

    /// The bytes that begin a slot.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.order);
        writer.u64s(&[UBERBLOCK_MAGIC, self.version, self.txg.0, self.guid_sum, self.timestamp]);
        self.root_bp.write(&mut writer);
        writer.u64(self.software_version);
        match self.mmp {
            Some(mmp) => writer.u64s(&[MMP_MAGIC, mmp.delay_ns, mmp.config]),
            None => writer.zeros(24),
        };
        writer.u64(self.checkpoint_txg.0).u64(self.raidz_reflow_info);
        writer.finish()
    }

    /// Later uberblocks are greater: by txg, then time, then heartbeat.
    pub fn recency(&self) -> (Txg, u64, u16) {
        (self.txg, self.timestamp, self.mmp.and_then(|mmp| mmp.sequence()).unwrap_or(0))
    }

    /// This is a checkpoint: it is in the MOS, or the pool was rewound to it and has not overwritten it yet.
    pub fn is_checkpoint(&self) -> bool {
        self.checkpoint_txg != Txg::NONE
    }

    /// Multihost protection was on when this was written.
    pub fn is_multihost(&self) -> bool {
        self.mmp.is_some_and(|mmp| mmp.delay_ns != 0)
    }

    /// Up to where raidz expansion has moved data.
    pub fn reflow_offset(&self) -> ByteOffset {
        ByteOffset((self.raidz_reflow_info & ((1 << 55) - 1)) << 9)
    }

    /// State of the scratch area of raidz expansion.
    pub fn reflow_scratch(&self) -> Result<ReflowScratch> {
        Ok(match self.raidz_reflow_info >> 55 {
            0 => ReflowScratch::NotInUse,
            1 => ReflowScratch::Valid,
            2 => ReflowScratch::Synced,
            3 => ReflowScratch::SyncedOnImport,
            4 => ReflowScratch::SyncedReflow,
            state => return Err(Error::unsupported("uberblock", format!("raidz reflow state {state}"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uberblock(order: ByteOrder) -> Uberblock {
        Uberblock {
            order,
            version: 5000,
            txg: Txg(32),
            guid_sum: u64::MAX,
            timestamp: 1_700_000_000,
            root_bp: Blkptr::HOLE,
            software_version: 5000,
            mmp: Some(Mmp { delay_ns: 1_000_000, config: 20 << 48 | 3 << 32 | 1000 << 8 | 7 }),
            checkpoint_txg: Txg(0),
            raidz_reflow_info: 4 << 55 | 5,
        }
    }

    #[test]
    fn both_byte_orders_round_trip() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let block = uberblock(order);
            let bytes = block.encode();
            assert_eq!(bytes.len(), UBERBLOCK_SIZE);
            assert_eq!(Uberblock::parse(&bytes), Ok(block));
        }
    }

    #[test]
    fn heartbeat_and_reflow_fields_are_unpacked() {
        let block = uberblock(ByteOrder::Little);
        let mmp = block.mmp.unwrap();
        assert_eq!(
            (mmp.interval_ms(), mmp.sequence(), mmp.fail_intervals()),
            (Some(1000), Some(3), Some(20))
        );
        assert!(block.is_multihost() && !block.is_checkpoint());
        assert_eq!(block.reflow_offset(), ByteOffset(5 * 512));
        assert_eq!(block.reflow_scratch(), Ok(ReflowScratch::SyncedReflow));
        let unknown = Mmp { config: mmp.config & !7, ..mmp };
        assert_eq!((unknown.interval_ms(), unknown.sequence(), unknown.fail_intervals()), (None, None, None));
    }

    #[test]
    fn a_later_heartbeat_of_one_txg_wins() {
        let first = uberblock(ByteOrder::Little);
        let later =
            Uberblock { mmp: Some(Mmp { delay_ns: 1, config: 4 << 32 | 2 }), ..uberblock(ByteOrder::Little) };
        assert!(later.recency() > first.recency());
        assert!(Uberblock { txg: Txg(33), timestamp: 0, ..first.clone() }.recency() > later.recency());
    }

    proptest! {
        #[test]
        fn any_numbers_round_trip(numbers: [u64; 7], mmp: Option<(u64, u64)>, big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let [version, txg, guid_sum, timestamp, software_version, checkpoint_txg, raidz_reflow_info] = numbers;
            let block = Uberblock {
                order,
                version,
                txg: Txg(txg),
                guid_sum,
                timestamp,
                root_bp: Blkptr::HOLE,
                software_version,
                mmp: mmp.map(|(delay_ns, config)| Mmp { delay_ns, config }),
                checkpoint_txg: Txg(checkpoint_txg),
                raidz_reflow_info,
            };
            prop_assert_eq!(Uberblock::parse(&block.encode()), Ok(block));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let with_magic = [&UBERBLOCK_MAGIC.to_be_bytes()[..], &bytes].concat();
            let _ = (Uberblock::parse(&bytes), Uberblock::parse(&with_magic));
        }
    }
}
