//! Deadlists: the blocks that a dataset's predecessor has and the dataset has no more.
//!
//! When a snapshot is destroyed, the blocks born after the snapshot before it and dead in the one after it
//! can be freed. So that they need not be searched, a deadlist is divided by birth: it is a ZAP (type
//! `DEADLIST`) with one entry for each earlier snapshot, key the txg in hexadecimal, value the number of a
//! [bpobj](crate::bpobj) with the blocks that were born after that txg and not after the next key. A livelist
//! of a clone has the same form; its lists hold allocations and frees ([`crate::bpobj::is_free`]).
//!
//! The header is the bonus buffer (type `DEADLIST_HDR`, 320 bytes):
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `dl_used` | space of all blocks |
//! | 8 | 8 | `dl_comp` | before allocation overhead |
//! | 16 | 8 | `dl_uncomp` | before compression |
//! | 24 | 296 | | reserved |
//!
//! Before version 26 a deadlist is a single bpobj: the object's type is then `BPOBJ` and its bonus a
//! [`BpobjPhys`](crate::bpobj::BpobjPhys).
//!
//! Source of the facts: OpenZFS 2.3 `dsl_deadlist.h`, `dsl_deadlist.c`.

use crate::pool_directory::{hex_key, parse_hex_key};
use crate::words::word_struct;
use crate::{Error, Result, Txg};

word_struct! {
    /// The header of a deadlist (`dsl_deadlist_phys_t`).
    pub struct DeadlistPhys + 37 {
        /// Space of all blocks.
        pub used_bytes: u64,
        /// Before allocation overhead.
        pub comp_bytes: u64,
        /// Before compression.
        pub uncomp_bytes: u64,
    }
}

/// The key of the blocks born after `mintxg`.
pub fn key(mintxg: Txg) -> String {
    hex_key(mintxg.get())
}

/// The txg that a key means.
pub fn parse_key(key: &[u8]) -> Result<Txg> {
    parse_hex_key(key).map(Txg).ok_or_else(|| {
        Error::invalid("deadlist", format!("key {:?} is no txg", String::from_utf8_lossy(key)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::word_struct_round_trips;

    word_struct_round_trips! { a_header_round_trips: DeadlistPhys; }

    #[test]
    fn a_header_takes_320_bytes() {
        assert_eq!(DeadlistPhys::SIZE, 320);
    }

    proptest::proptest! {
        #[test]
        fn keys_round_trip(txg: u64) {
            proptest::prop_assert_eq!(parse_key(key(Txg(txg)).as_bytes()), Ok(Txg(txg)));
        }
    }

    #[test]
    fn keys_are_hexadecimal_txgs() {
        assert_eq!(parse_key(key(Txg(0xbeef)).as_bytes()), Ok(Txg(0xbeef)));
        assert!(parse_key(b"").is_err());
    }
}
