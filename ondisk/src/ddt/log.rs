//! The log of a fast dedup table: changes that are not in the table yet.
//!
//! A table has two log objects; one takes new records while the other is flushed into the table, in order of
//! keys. To know an entry, look into both logs before the table. The bonus is a header:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `dlh_info` | bits 0-7 version (1), 8-15 flags ([`LOG_FLUSHING`], [`LOG_CHECKPOINT`]) |
//! | 8 | 8 | `dlh_length` | bytes of contents that count, whole blocks |
//! | 16 | 8 | `dlh_first_txg` | txg in which this log began |
//! | 24 | 40 | `dlh_checkpoint` | key up to which (inclusive) the flush has come |
//!
//! The contents are records that never cross a block; the rest of a block is zero. A later record replaces an
//! earlier one of the same key:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `dlr_info` | bits 0-7 kind (0 end of block, 1 entry), 8-23 length of the whole record, 48-55 storage type (0 ZAP, 1 none yet), 56-63 class (3 none yet) |
//! | 8 | 40 | `dlre_key` | key |
//! | 48 | 72 or 256 | `dlre_phys` | unpacked value |

use super::{DdtClass, DdtKey, DdtPhys, PhysForm, WHAT};
use crate::words::word_struct;
use crate::{ByteOrder, Error, Reader, Result, Txg, Writer};

/// The log is being flushed into the table.
pub const LOG_FLUSHING: u8 = 1;
/// The header has a checkpoint.
pub const LOG_CHECKPOINT: u8 = 1 << 1;

const LOG_VERSION: u8 = 1;

word_struct! {
    /// The header of a log (`ddt_log_header_t`).
    pub struct DdtLogHeader {
        /// Version and flags.
        pub info: u64,
        /// Bytes of contents that count.
        pub length_bytes: u64,
        /// When this log began.
        pub first_txg: Txg,
        /// Valid only through [`DdtLogHeader::checkpoint`].
        pub raw_checkpoint: DdtKey,
    }
}

impl DdtLogHeader {
    /// The header of a log of so many bytes. With a checkpoint, the log is being flushed.
    pub fn new(flags: u8, length_bytes: u64, first_txg: Txg, checkpoint: Option<DdtKey>) -> DdtLogHeader {
        let flags = match checkpoint {
            Some(_) => flags | LOG_CHECKPOINT,
            None => flags & !LOG_CHECKPOINT,
        };
        DdtLogHeader {
            info: u64::from(LOG_VERSION) | u64::from(flags) << 8,
            length_bytes,
            first_txg,
            raw_checkpoint: checkpoint.unwrap_or_default(),
        }
    }

    /// Refuses a log of a version that is not known.
    pub fn check_version(&self) -> Result<()> {
        match self.info as u8 {
            LOG_VERSION => Ok(()),
            other => Err(Error::unsupported("dedup log", format!("version {other}"))),
        }
    }

    /// The flags.
    pub const fn flags(&self) -> u8 {
        (self.info >> 8) as u8
    }

    /// The key up to which records are in the table already.
    pub fn checkpoint(&self) -> Option<DdtKey> {
        (self.flags() & LOG_CHECKPOINT != 0).then_some(self.raw_checkpoint)
    }
}

/// A record: an entry to add or replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdtLogRecord {
    /// Class in whose ZAP the entry is, or was last; nothing for an entry that was never in the table.
    pub class: Option<DdtClass>,
    /// Key.
    pub key: DdtKey,
    /// Value.
    pub phys: DdtPhys,
}

impl DdtLogRecord {
    const KIND_ENTRY: u64 = 1;
    const NO_STORAGE: u8 = 1;
    const NO_CLASS: u8 = 3;

    /// Bytes of a record of a table with values of `form`.
    pub const fn size(form: PhysForm) -> usize {
        8 + DdtKey::SIZE + form.size()
    }

    /// Appends the record.
    pub fn write(&self, writer: &mut Writer) {
        let length = DdtLogRecord::size(self.phys.form()) as u64;
        let (storage, class) = match self.class {
            Some(class) => (0, class as u8),
            None => (Self::NO_STORAGE, Self::NO_CLASS),
        };
        writer.u64(Self::KIND_ENTRY | length << 8 | u64::from(storage) << 48 | u64::from(class) << 56);
        self.key.write(writer);
        self.phys.write(writer);
    }
}

/// Whole blocks of a log, of `block_bytes` each, with these records: as many in each as fit into it.
pub fn blocks(
    records: &[DdtLogRecord],
    form: PhysForm,
    block_bytes: usize,
    order: ByteOrder,
) -> impl Iterator<Item = Vec<u8>> {
    let in_each = (block_bytes / DdtLogRecord::size(form)).max(1);
    records.chunks(in_each).map(move |records| {
        let mut writer = Writer::new(order);
        records.iter().for_each(|record| record.write(&mut writer));
        writer.zeros_to(block_bytes);
        writer.finish()
    })
}

/// The records in one block of a log, in order. It ends after an error.
pub fn records(block: &[u8], form: PhysForm, order: ByteOrder) -> impl Iterator<Item = Result<DdtLogRecord>> {
    let mut reader = Reader::new("dedup log", block, order);
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended || reader.remaining() < 8 {
            return None;
        }
        let found = next_record(&mut reader, form);
        ended = !matches!(found, Ok(Some(_)));
        found.transpose()
    })
}

fn next_record(reader: &mut Reader<'_>, form: PhysForm) -> Result<Option<DdtLogRecord>> {
    let info = reader.clone().u64()?;
    match info & 0xff {
        0 => return Ok(None),
        DdtLogRecord::KIND_ENTRY => {}
        other => return Err(Error::unsupported("dedup log", format!("record of kind {other}"))),
    }
    let length = (info >> 8 & 0xffff) as usize;
    let class = match ((info >> 48) as u8, (info >> 56) as u8) {
        (DdtLogRecord::NO_STORAGE, _) | (_, DdtLogRecord::NO_CLASS) => None,
        (0, class) => Some(DdtClass::from_raw(class)?),
        (storage, _) => return Err(Error::unsupported(WHAT, format!("storage type {storage}"))),
    };
    let mut record = reader.sub(length)?;
    record.skip(8)?;
    let key = DdtKey::read(&mut record)?;
    let phys = DdtPhys::read(&mut record, form)?;
    Ok(Some(DdtLogRecord { class, key, phys }))
}

#[cfg(test)]
mod tests {
    use super::super::{DdtFlat, DdtSlot};
    use super::*;
    use crate::words::word_struct_round_trips;
    use proptest::prelude::*;

    word_struct_round_trips! { a_header_round_trips: DdtLogHeader; }

    fn record(n: u64, flat: bool) -> DdtLogRecord {
        let slot = DdtSlot { refcount: n, phys_birth: Txg(n + 1), ..DdtSlot::default() };
        let phys = if flat {
            DdtPhys::Flat(DdtFlat { slot, class_start: n })
        } else {
            DdtPhys::Traditional([slot; 4])
        };
        let class = n.is_multiple_of(2).then_some(DdtClass::Unique);
        DdtLogRecord { class, key: DdtKey { checksum: [n; 4], prop: n }, phys }
    }

    proptest! {
        #[test]
        fn records_round_trip_and_the_rest_of_the_block_is_ignored(count in 0..9u64, flat: bool, big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let form = if flat { PhysForm::Flat } else { PhysForm::Traditional };
            let expected: Vec<_> = (0..count).map(|n| record(n, flat)).collect();
            let mut writer = Writer::new(order);
            expected.iter().for_each(|one| one.write(&mut writer));
            prop_assert_eq!(writer.position(), expected.len() * DdtLogRecord::size(form));
            writer.zeros_to(4096);
            let block = writer.finish();
            let found: Vec<_> = records(&block, form, order).collect::<Result<_>>().unwrap();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn blocks_hold_all_records_and_none_crosses_a_block(count in 0..40u64, flat: bool) {
            let form = if flat { PhysForm::Flat } else { PhysForm::Traditional };
            let expected: Vec<_> = (0..count).map(|n| record(n, flat)).collect();
            let order = ByteOrder::Little;
            let blocks: Vec<_> = blocks(&expected, form, 1024, order).collect();
            prop_assert!(blocks.iter().all(|block| block.len() == 1024));
            prop_assert_eq!(blocks.len(), expected.len().div_ceil(1024 / DdtLogRecord::size(form)));
            let found: Vec<_> =
                blocks.iter().flat_map(|block| records(block, form, order)).collect::<Result<_>>().unwrap();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(0..3u8, 0..600), flat: bool) {
            let form = if flat { PhysForm::Flat } else { PhysForm::Traditional };
            prop_assert!(records(&bytes, form, ByteOrder::Little).count() <= bytes.len() / 8 + 1);
        }
    }

    #[test]
    fn a_record_too_short_for_its_value_is_an_error_and_the_end() {
        let mut writer = Writer::new(ByteOrder::Little);
        writer.u64(1 | 8 << 8).zeros(500);
        let block = writer.finish();
        let mut all = records(&block, PhysForm::Flat, ByteOrder::Little);
        assert!(all.next().unwrap().is_err());
        assert!(all.next().is_none());
    }

    #[test]
    fn the_checkpoint_is_valid_only_with_its_flag() {
        let mut header = DdtLogHeader { info: 1, ..DdtLogHeader::default() };
        assert_eq!((header.check_version(), header.checkpoint()), (Ok(()), None));
        header.info |= u64::from(LOG_FLUSHING | LOG_CHECKPOINT) << 8;
        assert_eq!(header.checkpoint(), Some(DdtKey::default()));
        header.info = 2;
        assert!(header.check_version().is_err());
        let key = DdtKey { checksum: [7; 4], prop: 1 };
        let made = DdtLogHeader::new(LOG_FLUSHING, 4096, Txg(8), Some(key));
        assert_eq!((made.check_version(), made.checkpoint()), (Ok(()), Some(key)));
        assert_eq!(made.flags(), LOG_FLUSHING | LOG_CHECKPOINT);
        assert_eq!(DdtLogHeader::new(LOG_CHECKPOINT, 0, Txg(8), None).flags(), 0);
    }
}
