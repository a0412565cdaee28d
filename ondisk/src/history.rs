//! The pool's history: commands and internal events, in a ring that never forgets how the pool was made.
//!
//! The contents of the object are records, each an 8-byte little endian length and a packed nvlist of that
//! length. The records up to and including the command that created the pool are never overwritten; after
//! them comes a ring. The bonus (type `SPA_HISTORY_OFFSETS`) tells where what is:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `sh_pool_create_len` | end of the part that stays; 0 until the first command is logged |
//! | 8 | 8 | `sh_phys_max_off` | end of the ring in the object |
//! | 16 | 8 | `sh_bof` | logical offset of the oldest record in the ring |
//! | 24 | 8 | `sh_eof` | logical offset of the end |
//! | 32 | 8 | `sh_records_lost` | records overwritten |
//!
//! Logical offsets only grow; modulo the ring's length they are offsets in the object. A record may wrap
//! around.
//!
//! Source of the facts: OpenZFS 2.3 `spa_history.c`, `fs/zfs.h`, `zfs_comutil.c`.

use std::borrow::Cow;
use std::ops::Range;

use crate::nvlist::{NvValue, Nvlist};
use crate::words::word_struct;
use crate::{ByteOrder, Error, Reader, Result};

const WHAT: &str = "history";

/// Largest ring that OpenZFS makes.
pub const MAX_RING_BYTES: u64 = 1 << 30;

word_struct! {
    /// Where what is in the history object (`spa_history_phys_t`).
    pub struct HistoryPhys {
        /// End of the part that stays.
        pub pool_create_len: u64,
        /// End of the ring in the object.
        pub phys_max_off: u64,
        /// Logical offset of the oldest record in the ring.
        pub bof: u64,
        /// Logical offset of the end.
        pub eof: u64,
        /// Records overwritten.
        pub records_lost: u64,
    }
}

impl HistoryPhys {
    /// The ranges of the object that, read one after the other, are all records in order; empty ranges are
    /// left out.
    pub fn extents(&self) -> Result<Vec<Range<u64>>> {
        let HistoryPhys { pool_create_len: start, phys_max_off: end, bof, eof, .. } = *self;
        let ring = end.checked_sub(start).filter(|&ring| ring > 0 && end <= MAX_RING_BYTES);
        let length = eof.checked_sub(bof).filter(|&length| bof >= start && Some(length) <= ring);
        let (Some(ring), Some(length)) = (ring, length) else {
            return Err(Error::invalid(WHAT, format!("offsets contradict each other: {self:?}")));
        };
        let first = start + (bof - start) % ring;
        let before_wrap = length.min(end - first);
        let extents = [0..start, first..first + before_wrap, start..start + (length - before_wrap)];
        Ok(extents.into_iter().filter(|extent| !extent.is_empty()).collect())
    }
}

/// The records in what [`HistoryPhys::extents`] gives. It ends after a length that cannot be; a record that
/// is not an nvlist is an error in its place.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<HistoryRecord>> {
    let mut reader = Reader::new(WHAT, bytes, ByteOrder::Little);
    std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let packed =
            reader.u64().and_then(|length| reader.bytes(usize::try_from(length).unwrap_or(usize::MAX)));
        if packed.is_err() {
            reader = Reader::new(WHAT, &[], ByteOrder::Little);
        }
        Some(packed.and_then(|packed| Ok(HistoryRecord { nvlist: Nvlist::parse(packed)? })))
    })
}

/// The bytes of a record.
pub fn encode_record(record: &HistoryRecord) -> Result<Vec<u8>> {
    let packed = record.nvlist.encode(crate::nvlist::Encoding::Native(ByteOrder::HOST))?;
    let mut bytes = (packed.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&packed);
    Ok(bytes)
}

/// Names of the pairs of a record.
pub mod key {
    /// Seconds since 1970.
    pub const TIME: &str = "history time";
    /// Command line.
    pub const COMMAND: &str = "history command";
    /// User id.
    pub const WHO: &str = "history who";
    /// Zone.
    pub const ZONE: &str = "history zone";
    /// Host.
    pub const HOST: &str = "history hostname";
    /// Txg of an internal event.
    pub const TXG: &str = "history txg";
    /// Number of an internal event, in old pools.
    pub const INTERNAL_EVENT: &str = "history internal event";
    /// Text of an internal event.
    pub const INTERNAL_TEXT: &str = "history internal str";
    /// Name of an internal event.
    pub const INTERNAL_NAME: &str = "internal_name";
    /// Name of an ioctl.
    pub const IOCTL: &str = "ioctl";
    /// Its input.
    pub const INPUT: &str = "in_nvl";
    /// Its output.
    pub const OUTPUT: &str = "out_nvl";
    /// Size of its output, when that was too large to keep.
    pub const OUTPUT_SIZE: &str = "out_size";
    /// Dataset.
    pub const DATASET_NAME: &str = "dsname";
    /// Its object number.
    pub const DATASET_ID: &str = "dsid";
    /// Error.
    pub const ERRNO: &str = "errno";
    /// How long it took.
    pub const ELAPSED_NS: &str = "elapsed_ns";
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryRecord {
    /// All that is recorded.
    pub nvlist: Nvlist,
}

/// The subject of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryEvent<'a> {
    /// A command line.
    Command(Cow<'a, str>),
    /// An internal event of an old pool.
    LegacyInternal {
        /// Its number, see [`legacy_event_name`].
        event: u64,
        /// Txg.
        txg: u64,
        /// Text.
        text: Cow<'a, str>,
    },
    /// An internal event.
    Internal {
        /// Its name.
        name: Cow<'a, str>,
        /// Txg.
        txg: u64,
        /// Name and object number of the dataset that it is about.
        dataset: Option<(Cow<'a, str>, u64)>,
        /// Text.
        text: Cow<'a, str>,
    },
    /// A call from user space.
    Ioctl {
        /// Its name.
        name: Cow<'a, str>,
        /// Input.
        input: Option<&'a Nvlist>,
        /// Output.
        output: Option<&'a Nvlist>,
        /// Size of the output, when it was left out.
        omitted_output_bytes: Option<i64>,
        /// Error.
        errno: Option<i64>,
    },
    /// None of the above.
    Unknown,
}

impl HistoryRecord {
    /// Texts are bytes on disk, and readers of the history want text.
    fn text(&self, key: &str) -> Option<Cow<'_, str>> {
        match self.nvlist.get(key)? {
            NvValue::String(text) => Some(String::from_utf8_lossy(text.as_bytes())),
            _ => None,
        }
    }

    fn number(&self, key: &str) -> Option<u64> {
        match self.nvlist.get(key)? {
            NvValue::Uint64(number) => Some(*number),
            _ => None,
        }
    }

    fn signed(&self, key: &str) -> Option<i64> {
        match self.nvlist.get(key)? {
            NvValue::Int64(number) => Some(*number),
            _ => None,
        }
    }

    fn list(&self, key: &str) -> Option<&Nvlist> {
        match self.nvlist.get(key)? {
            NvValue::Nvlist(list) => Some(list),
            _ => None,
        }
    }

    /// Seconds since 1970.
    pub fn time(&self) -> Option<u64> {
        self.number(key::TIME)
    }

    /// In which group it was noted, where that is known.
    pub fn txg(&self) -> Option<u64> {
        self.number(key::TXG)
    }

    /// How long it took, in nanoseconds.
    pub fn elapsed_ns(&self) -> Option<i64> {
        self.signed(key::ELAPSED_NS)
    }

    /// Who did it.
    pub fn who(&self) -> Option<u64> {
        self.number(key::WHO)
    }

    /// On which host.
    pub fn host(&self) -> Option<Cow<'_, str>> {
        self.text(key::HOST)
    }

    /// In which zone.
    pub fn zone(&self) -> Option<Cow<'_, str>> {
        self.text(key::ZONE)
    }

    /// Its subject.
    pub fn event(&self) -> HistoryEvent<'_> {
        let text = self.text(key::INTERNAL_TEXT).unwrap_or_default();
        let txg = self.number(key::TXG).unwrap_or_default();
        if let Some(command) = self.text(key::COMMAND) {
            HistoryEvent::Command(command)
        } else if let Some(event) = self.number(key::INTERNAL_EVENT) {
            HistoryEvent::LegacyInternal { event, txg, text }
        } else if let Some(name) = self.text(key::INTERNAL_NAME) {
            let dataset = self.text(key::DATASET_NAME).zip(self.number(key::DATASET_ID));
            HistoryEvent::Internal { name, txg, dataset, text }
        } else if let Some(name) = self.text(key::IOCTL) {
            HistoryEvent::Ioctl {
                name,
                input: self.list(key::INPUT),
                output: self.list(key::OUTPUT),
                omitted_output_bytes: self.signed(key::OUTPUT_SIZE),
                errno: self.signed(key::ERRNO),
            }
        } else {
            HistoryEvent::Unknown
        }
    }
}

/// The name of an internal event of an old pool.
pub fn legacy_event_name(event: u64) -> Option<&'static str> {
    const NAMES: [&str; 41] = [
        "invalid event",
        "pool create",
        "vdev add",
        "pool remove",
        "pool destroy",
        "pool export",
        "pool import",
        "vdev attach",
        "vdev replace",
        "vdev detach",
        "vdev online",
        "vdev offline",
        "vdev upgrade",
        "pool clear",
        "pool scrub",
        "pool property set",
        "create",
        "clone",
        "destroy",
        "destroy_begin_sync",
        "inherit",
        "property set",
        "quota set",
        "permission update",
        "permission remove",
        "permission who remove",
        "promote",
        "receive",
        "rename",
        "reservation set",
        "replay_inc_sync",
        "replay_full_sync",
        "rollback",
        "snapshot",
        "filesystem version upgrade",
        "refquota set",
        "refreservation set",
        "pool scrub done",
        "user hold",
        "user release",
        "pool split",
    ];
    NAMES.get(usize::try_from(event).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::word_struct_round_trips;
    use proptest::prelude::*;

    word_struct_round_trips! { a_header_round_trips: HistoryPhys; }

    fn phys(pool_create_len: u64, phys_max_off: u64, bof: u64, eof: u64) -> HistoryPhys {
        HistoryPhys { pool_create_len, phys_max_off, bof, eof, records_lost: 0 }
    }

    fn command(text: &str) -> HistoryRecord {
        let mut nvlist = Nvlist::new();
        nvlist.push(key::TIME, NvValue::Uint64(12));
        nvlist.push(key::COMMAND, NvValue::String(text.into()));
        HistoryRecord { nvlist }
    }

    #[test]
    fn the_ring_is_read_from_its_oldest_record_around_its_end() {
        assert_eq!(phys(100, 1000, 100, 300).extents().unwrap(), [0..100, 100..300]);
        assert_eq!(phys(100, 1000, 800, 1200).extents().unwrap(), [0..100, 800..1000, 100..300]);
        assert_eq!(phys(100, 1000, 1800, 2200).extents().unwrap(), [0..100, 900..1000, 100..400]);
        assert_eq!(phys(0, 1000, 0, 10).extents().unwrap().first(), Some(&(0..10)));
    }

    #[test]
    fn offsets_that_contradict_each_other_are_refused() {
        for bad in
            [phys(100, 100, 100, 100), phys(100, 1000, 50, 60), phys(100, 1000, 200, 100), phys(0, 10, 0, 11)]
        {
            assert!(bad.extents().is_err(), "{bad:?}");
        }
        assert!(phys(0, MAX_RING_BYTES + 1, 0, 1).extents().is_err());
    }

    #[test]
    fn a_record_tells_what_it_is_about() {
        assert_eq!(command("zpool create x").event(), HistoryEvent::Command("zpool create x".into()));
        let mut nvlist = Nvlist::new();
        nvlist.push(key::INTERNAL_NAME, NvValue::String("snapshot".into()));
        nvlist.push(key::DATASET_NAME, NvValue::String("a@b".into()));
        nvlist.push(key::DATASET_ID, NvValue::Uint64(7));
        nvlist.push(key::TXG, NvValue::Uint64(9));
        let record = HistoryRecord { nvlist };
        let expected = HistoryEvent::Internal {
            name: "snapshot".into(),
            txg: 9,
            dataset: Some(("a@b".into(), 7)),
            text: "".into(),
        };
        assert_eq!(record.event(), expected);
        assert_eq!(legacy_event_name(40), Some("pool split"));
        assert_eq!(legacy_event_name(41), None);
    }

    #[test]
    fn a_length_beyond_the_end_ends_the_records() {
        let mut bytes = encode_record(&command("a")).unwrap();
        bytes.extend_from_slice(&u64::MAX.to_le_bytes());
        let found: Vec<_> = records(&bytes).collect();
        assert_eq!(found[0], Ok(command("a")));
        assert!(found[1].is_err());
        assert_eq!(found.len(), 2);
    }

    proptest! {
        #[test]
        fn records_round_trip(texts in proptest::collection::vec("[a-z ]{1,30}", 0..6)) {
            let expected: Vec<_> = texts.iter().map(|text| command(text)).collect();
            let bytes: Vec<u8> = expected.iter().flat_map(|one| encode_record(one).unwrap()).collect();
            let found: Vec<_> = records(&bytes).collect::<Result<_>>().unwrap();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn extents_are_as_long_as_the_history(start in 0..500u64, ring in 1..1000u64, skipped in 0..5000u64, length in 0..1000u64) {
            prop_assume!(length <= ring);
            let bof = start + skipped;
            let extents = phys(start, start + ring, bof, bof + length).extents().unwrap();
            prop_assert_eq!(extents.iter().map(|e| e.end - e.start).sum::<u64>(), start + length);
            prop_assert!(extents.iter().all(|e| e.end <= start + ring));
        }
    }
}
