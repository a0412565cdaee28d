//! Log space maps: the changes of all metaslabs in one txg, in one space map.
//!
//! With the feature `log_spacemap` a sync appends its allocations and frees to one log instead of to every
//! metaslab's own space map; metaslabs are flushed in turn, and a log is freed once every metaslab is flushed
//! past its txg. The pool directory's [`LOG_SPACEMAP_ZAP`](crate::pool_directory::LOG_SPACEMAP_ZAP) leads to
//! a ZAP:
//!
//! | key | value (one u64) |
//! |---|---|
//! | txg in hexadecimal | object of the space map that is that txg's log |
//!
//! The log's entries are two-word entries ([`crate::space_map`]) that name their vdev; offset and length
//! count sectors of 512 bytes, and the offset is from the start of the vdev.
//!
//! To load the metaslabs of a pool: read each metaslab's own space map, then replay all logs in order of txg,
//! applying an entry to the metaslab that contains it only if the log's txg is not below the metaslab's
//! unflushed txg ([`MetaslabUnflushedPhys`]).
//!
//! Source of the facts: OpenZFS 2.3 `spa_log_spacemap.c`.

use crate::metaslab::MetaslabUnflushedPhys;
use crate::pool_directory::{hex_key, parse_hex_key};
use crate::{Error, Result, Txg};

/// The key of a txg's log.
pub fn key(txg: Txg) -> String {
    hex_key(txg.get())
}

/// The txg that a key means.
pub fn parse_key(key: &[u8]) -> Result<Txg> {
    parse_hex_key(key).map(Txg).ok_or_else(|| {
        Error::invalid("log space map", format!("key {:?} is no txg", String::from_utf8_lossy(key)))
    })
}

/// True when an entry of the log of `log_txg` is not yet in the metaslab's own space map.
pub fn applies(log_txg: Txg, metaslab: MetaslabUnflushedPhys) -> bool {
    log_txg >= metaslab.unflushed_txg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hexadecimal_txgs() {
        assert_eq!(key(Txg(0x1ab)), "1ab");
        assert_eq!(parse_key(b"1ab"), Ok(Txg(0x1ab)));
        assert!(parse_key(b"zz").is_err());
    }

    proptest::proptest! {
        #[test]
        fn keys_round_trip(txg: u64) {
            proptest::prop_assert_eq!(parse_key(key(Txg(txg)).as_bytes()), Ok(Txg(txg)));
        }
    }

    #[test]
    fn a_flushed_metaslab_ignores_older_logs() {
        let metaslab = MetaslabUnflushedPhys { unflushed_txg: Txg(10) };
        assert!(!applies(Txg(9), metaslab));
        assert!(applies(Txg(10), metaslab));
    }
}
