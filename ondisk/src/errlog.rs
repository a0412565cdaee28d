//! Error logs: which blocks could not be read.
//!
//! The pool directory names two, `errlog_scrub` (of the running scrub) and `errlog_last`. Each is a ZAP in
//! the MOS, in one of two forms, the second with the feature `head_errlog` active:
//!
//! | form | key | value |
//! |---|---|---|
//! | old | `objset:object:level:block` ([`ErrorBookmark`]) | a string that may be empty |
//! | by head | object number of a head dataset | one u64: the number of a ZAP with the errors below it |
//! | below a head | `object:level:block:birth` ([`HeadError`]); the birth tells in which snapshots the block is | a string that may be empty |
//!
//! All numbers are hexadecimal; a negative level is written as its 64-bit two's complement. Source of the
//! facts: OpenZFS 2.3 `spa_errlog.c`.

use crate::pool_directory::parse_hex_key;
use crate::{BlockId, ObjectId, ObjsetId, Txg};

/// A key of an old error log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorBookmark {
    /// Object set.
    pub objset: ObjsetId,
    /// Object.
    pub object: ObjectId,
    /// Level, as stored.
    pub level: i64,
    /// Block.
    pub block: BlockId,
}

/// A key of a head dataset's error log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeadError {
    /// Object.
    pub object: ObjectId,
    /// Level, as stored.
    pub level: i64,
    /// Block.
    pub block: BlockId,
    /// Txg in which the block was born; 0 when unknown.
    pub birth: Txg,
}

fn four_numbers(key: &[u8]) -> Option<[u64; 4]> {
    let mut parts = key.split(|&c| c == b':');
    let mut numbers = [0; 4];
    for number in &mut numbers {
        *number = parse_hex_key(parts.next()?)?;
    }
    parts.next().is_none().then_some(numbers)
}

impl ErrorBookmark {
    /// Reads a key.
    pub fn parse(key: &[u8]) -> Option<ErrorBookmark> {
        let [objset, object, level, block] = four_numbers(key)?;
        Some(ErrorBookmark {
            objset: ObjsetId(objset),
            object: ObjectId(object),
            level: level as i64,
            block: BlockId(block),
        })
    }

    /// The key in the ZAP.
    pub fn encode(&self) -> String {
        format!("{:x}:{:x}:{:x}:{:x}", self.objset, self.object, self.level, self.block)
    }
}

impl HeadError {
    /// Reads a key.
    pub fn parse(key: &[u8]) -> Option<HeadError> {
        let [object, level, block, birth] = four_numbers(key)?;
        Some(HeadError {
            object: ObjectId(object),
            level: level as i64,
            block: BlockId(block),
            birth: Txg(birth),
        })
    }

    /// The key in the ZAP.
    pub fn encode(&self) -> String {
        format!("{:x}:{:x}:{:x}:{:x}", self.object, self.level, self.block, self.birth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_is_four_hexadecimal_numbers() {
        assert_eq!(
            ErrorBookmark::parse(b"36:2:0:1f"),
            Some(ErrorBookmark {
                objset: ObjsetId(0x36),
                object: ObjectId(2),
                level: 0,
                block: BlockId(0x1f)
            })
        );
        for bad in ["", "1:2:3", "1:2:3:4:5", "1:2:3:", "1:2:x:4"] {
            assert_eq!(ErrorBookmark::parse(bad.as_bytes()), None, "{bad}");
            assert_eq!(HeadError::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn keys_round_trip(a: u64, b: u64, level: i64, c: u64) {
            let old = ErrorBookmark { objset: ObjsetId(a), object: ObjectId(b), level, block: BlockId(c) };
            prop_assert_eq!(ErrorBookmark::parse(old.encode().as_bytes()), Some(old));
            let new = HeadError { object: ObjectId(a), level, block: BlockId(b), birth: Txg(c) };
            prop_assert_eq!(HeadError::parse(new.encode().as_bytes()), Some(new));
        }
    }
}
