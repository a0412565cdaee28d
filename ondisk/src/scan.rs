//! The state of a scrub, a resilver or an error scrub, as the pool directory holds it.
//!
//! Each is an array of 64-bit words under a fixed name ([`crate::pool_directory::SCAN`],
//! [`crate::pool_directory::ERROR_SCRUB`]).
//!
//! # `scan`: 24 words
//! | word | name | meaning |
//! |---|---|---|
//! | 0 | `scn_func` | [`Function`] |
//! | 1 | `scn_state` | [`ScanState`] |
//! | 2 | `scn_queue_obj` | ZAP of datasets that come next: object (hexadecimal) to the txg after which blocks count |
//! | 3, 4 | `scn_min_txg`, `scn_max_txg` | blocks born after the first and not after the second are looked at |
//! | 5, 6 | `scn_cur_min_txg`, `scn_cur_max_txg` | the same for the dataset that is being walked |
//! | 7, 8 | `scn_start_time`, `scn_end_time` | seconds since 1970 |
//! | 9 | `scn_to_examine` | allocated bytes when it began |
//! | 10 | `scn_examined` | bytes whose pointers were met |
//! | 11 | `scn_skipped` | bytes that needed no look |
//! | 12 | `scn_processed` | bytes that were written to leaves |
//! | 13 | `scn_errors` | blocks that could not be made right |
//! | 14 | `scn_ddt_class_max` | dedup tables up to this class are walked first |
//! | 15-18 | `scn_ddt_bookmark` | place in the dedup tables: class, type, checksum, cursor |
//! | 19-22 | `scn_bookmark` | place in the object sets: object set, object, level, block |
//! | 23 | `scn_flags` | [`FLAG_VISIT_AGAIN`], [`FLAG_PAUSED`] |
//!
//! # `error_scrub`: 9 words
//! Function, state, cursor in the error log, start, end, blocks to examine, blocks examined, errors, paused.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_scan.h`, `fs/zfs.h` (`pool_scan_func_t`, `dsl_scan_state_t`).

use crate::{ObjectId, Txg};

/// The dataset in progress is to be walked once more when it is done, because its predecessor was destroyed.
pub const FLAG_VISIT_AGAIN: u64 = 1;
/// The scrub is paused.
pub const FLAG_PAUSED: u64 = 1 << 1;
/// The object set of a bookmark between two datasets (`ZB_DESTROYED_OBJSET`).
pub const BETWEEN: u64 = u64::MAX;
/// The class of a dedup table after the last one: nothing is left to be walked there.
pub const DDT_DONE: u64 = 3;

/// The purpose of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Function {
    /// None: there never was a scan.
    #[default]
    None = 0,
    /// Verifies all blocks.
    Scrub = 1,
    /// Copies what devices missed.
    Resilver = 2,
    /// Verifies the blocks of the error log.
    ErrorScrub = 3,
}

impl Function {
    /// The function with this number, if there is one.
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::None, Self::Scrub, Self::Resilver, Self::ErrorScrub]
            .into_iter()
            .find(|function| *function as u64 == number)
    }
}

/// How a scan stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ScanState {
    /// There never was one.
    #[default]
    None = 0,
    /// It is under way.
    Scanning = 1,
    /// It came to its end.
    Finished = 2,
    /// It was given up.
    Canceled = 3,
    /// An error scrub is under way.
    ErrorScrubbing = 4,
}

impl ScanState {
    /// The state with this number, if there is one.
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::None, Self::Scanning, Self::Finished, Self::Canceled, Self::ErrorScrubbing]
            .into_iter()
            .find(|state| *state as u64 == number)
    }
}

/// The state of a scrub or resilver (`dsl_scan_phys_t`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanPhys {
    /// The purpose.
    pub function: Function,
    /// How it stands.
    pub state: ScanState,
    /// ZAP of datasets that come next; 0 for none.
    pub queue: ObjectId,
    /// Blocks born after this group are looked at,
    pub min_txg: Txg,
    /// and not after this one.
    pub max_txg: Txg,
    /// The first bound in the dataset in progress,
    pub cur_min_txg: Txg,
    /// and the second.
    pub cur_max_txg: Txg,
    /// When it began, in seconds since 1970.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// Allocated bytes when it began.
    pub to_examine: u64,
    /// Bytes whose pointers were met.
    pub examined: u64,
    /// Bytes that needed no look.
    pub skipped: u64,
    /// Bytes that were written to leaves.
    pub processed: u64,
    /// Blocks that could not be made right.
    pub errors: u64,
    /// Dedup tables up to this class are walked first.
    pub ddt_class_max: u64,
    /// Place in the dedup tables: class, type, checksum, cursor.
    pub ddt_bookmark: [u64; 4],
    /// Place in the object sets: object set, object, level, block.
    pub bookmark: [u64; 4],
    /// `FLAG_*`.
    pub flags: u64,
}

impl ScanPhys {
    /// Words on disk.
    pub const WORDS: usize = 24;

    /// The state that these words are; nothing when there are not so many, or a number makes no sense.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let words: &[u64; Self::WORDS] = words.try_into().ok()?;
        let four = |at: usize| [words[at], words[at + 1], words[at + 2], words[at + 3]];
        Some(Self {
            function: Function::from_number(words[0])?,
            state: ScanState::from_number(words[1])?,
            queue: ObjectId(words[2]),
            min_txg: Txg(words[3]),
            max_txg: Txg(words[4]),
            cur_min_txg: Txg(words[5]),
            cur_max_txg: Txg(words[6]),
            start_time: words[7],
            end_time: words[8],
            to_examine: words[9],
            examined: words[10],
            skipped: words[11],
            processed: words[12],
            errors: words[13],
            ddt_class_max: words[14],
            ddt_bookmark: four(15),
            bookmark: four(19),
            flags: words[23],
        })
    }

    /// The words on disk.
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let [class, kind, checksum, cursor] = self.ddt_bookmark;
        let [objset, object, level, block] = self.bookmark;
        [
            self.function as u64,
            self.state as u64,
            self.queue.get(),
            self.min_txg.get(),
            self.max_txg.get(),
            self.cur_min_txg.get(),
            self.cur_max_txg.get(),
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.skipped,
            self.processed,
            self.errors,
            self.ddt_class_max,
            class,
            kind,
            checksum,
            cursor,
            objset,
            object,
            level,
            block,
            self.flags,
        ]
    }

    /// Whether it is under way, paused or not.
    pub fn is_running(&self) -> bool {
        self.state == ScanState::Scanning
    }

    /// Whether it is a scrub that is paused.
    pub fn is_paused(&self) -> bool {
        self.is_running() && self.function == Function::Scrub && self.flags & FLAG_PAUSED != 0
    }
}

/// The state of an error scrub (`dsl_errorscrub_phys_t`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErrorScrubPhys {
    /// The purpose: none, or error scrub.
    pub function: Function,
    /// How it stands.
    pub state: ScanState,
    /// Cursor in the ZAP of the error log.
    pub cursor: u64,
    /// When it began, in seconds since 1970.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// Blocks that are still to be examined.
    pub to_examine: u64,
    /// Blocks that were examined.
    pub examined: u64,
    /// Blocks that are still wrong.
    pub errors: u64,
    /// Not 0 when it is paused.
    pub paused: u64,
}

impl ErrorScrubPhys {
    /// Words on disk.
    pub const WORDS: usize = 9;

    /// The state that these words are; nothing when there are not so many, or a number makes no sense.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let words: &[u64; Self::WORDS] = words.try_into().ok()?;
        let &[function, state, cursor, start_time, end_time, to_examine, examined, errors, paused] = words;
        Some(Self {
            function: Function::from_number(function)?,
            state: ScanState::from_number(state)?,
            cursor,
            start_time,
            end_time,
            to_examine,
            examined,
            errors,
            paused,
        })
    }

    /// The words on disk.
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        [
            self.function as u64,
            self.state as u64,
            self.cursor,
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.errors,
            self.paused,
        ]
    }

    /// Whether it is under way, paused or not.
    pub fn is_running(&self) -> bool {
        self.state == ScanState::ErrorScrubbing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_are_read_back(mut words in proptest::collection::vec(any::<u64>(), 24), kinds: (u8, u8)) {
            (words[0], words[1]) = (u64::from(kinds.0 % 4), u64::from(kinds.1 % 5));
            let phys = ScanPhys::from_words(&words).unwrap();
            prop_assert_eq!(phys.to_words().to_vec(), words.clone());
            let error_scrub = ErrorScrubPhys::from_words(&words[..9]).unwrap();
            prop_assert_eq!(error_scrub.to_words().to_vec(), words[..9].to_vec());
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_state() {
        assert_eq!(ScanPhys::from_words(&[0; 23]), None);
        assert_eq!(ScanPhys::from_words(&[4; 24]), None);
        assert_eq!(ScanPhys::from_words(&[0; 24]), Some(ScanPhys::default()));
        assert_eq!(ErrorScrubPhys::from_words(&[0; 9]), Some(ErrorScrubPhys::default()));
    }
}
