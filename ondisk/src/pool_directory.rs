//! Names in the pool's directory, and the other fixed ZAP keys by which a pool's structures are found.
//!
//! Object 1 of the MOS is a ZAP that leads to everything pool-wide. Unless the table says otherwise a value
//! is one u64: the number of an object in the MOS.
//!
//! | name | object or value |
//! |---|---|
//! | `root_dataset` | DSL directory of the root dataset |
//! | `config` | packed nvlist: the pool's trusted configuration; its length is in the bonus |
//! | `features_for_read`, `features_for_write`, `feature_descriptions`, `feature_enabled_txg` | ZAPs by feature guid |
//! | `sync_bplist` | bpobj of frees deferred to the next sync |
//! | `free_bpobj`, `bptree_obj` | blocks and trees of destroyed datasets still to be freed |
//! | `errlog_scrub`, `errlog_last` | error logs (value 0: none), see [`crate::errlog`] |
//! | `spares`, `l2cache` | packed nvlists of hot spares and cache devices |
//! | `deflate` | value 1: space is counted without raidz parity |
//! | `history` | history log, see [`crate::history`] |
//! | `pool_props` | ZAP of the pool's properties |
//! | `tmp_userrefs` | ZAP of temporary holds, see [`crate::holds`] |
//! | `DDT-…` | dedup tables, see [`crate::ddt`] |
//! | `creation_version` | value: the version with which the pool was created |
//! | `scan`, `error_scrub` | array of u64: state of the last scrub or resilver |
//! | `last_scrubbed_txg` | value: txg up to which the last scrub looked |
//! | `empty_bpobj` | the bpobj that all empty block lists share |
//! | `org.illumos:checksum_salt` | 32 bytes (integers of 1 byte): salt of skein, edonr and blake3 |
//! | `com.delphix:vdev_zap_map` | ZAP: the ZAPs of all vdevs |
//! | `com.delphix:removing` | array of u64: [`crate::indirect::SpaRemovingPhys`] |
//! | `com.delphix:obsolete_bpobj` | bpobj of blocks that left removed vdevs |
//! | `com.delphix:condensing_indirect` | array of u64: [`crate::indirect::SpaCondensingIndirectPhys`] |
//! | `com.delphix:zpool_checkpoint` | array of u64: the uberblock of the checkpoint |
//! | `com.delphix:log_spacemap_zap` | ZAP: txg (hex) to log space map, see [`crate::log_space_map`] |
//! | `com.delphix:deleted_clones` | ZAP: livelists of deleted clones |
//! | `com.fudosecurity:brt:vdev:N` | block reference table of top-level vdev N, see [`crate::brt`] |
//!
//! Source of the facts: OpenZFS 2.3 `dmu.h`, `fs/zfs.h`, `spa.c`.

use crate::ObjectId;

/// The object directory of the pool in its MOS.
pub const DIRECTORY_OBJECT: ObjectId = ObjectId(1);

/// The pool's trusted configuration.
pub const CONFIG: &str = "config";
/// Features that software must know to read the pool.
pub const FEATURES_FOR_READ: &str = "features_for_read";
/// Features that software must know only to write the pool.
pub const FEATURES_FOR_WRITE: &str = "features_for_write";
/// Feature guid to a sentence for a person.
pub const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
/// Feature guid to the txg in which it was enabled.
pub const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";
/// DSL directory of the root dataset.
pub const ROOT_DATASET: &str = "root_dataset";
/// Deferred frees.
pub const SYNC_BPOBJ: &str = "sync_bplist";
/// Error log of the running scrub.
pub const ERRLOG_SCRUB: &str = "errlog_scrub";
/// Error log since the last scrub.
pub const ERRLOG_LAST: &str = "errlog_last";
/// Hot spares.
pub const SPARES: &str = "spares";
/// Space is counted without raidz parity.
pub const DEFLATE: &str = "deflate";
/// History log.
pub const HISTORY: &str = "history";
/// Pool properties.
pub const PROPS: &str = "pool_props";
/// Cache devices.
pub const L2CACHE: &str = "l2cache";
/// Temporary holds.
pub const TMP_USERREFS: &str = "tmp_userrefs";
/// Dedup statistics.
pub const DDT_STATISTICS: &str = "DDT-statistics";
/// Version with which the pool was created.
pub const CREATION_VERSION: &str = "creation_version";
/// State of the last scrub or resilver.
pub const SCAN: &str = "scan";
/// State of the last error scrub.
pub const ERROR_SCRUB: &str = "error_scrub";
/// How far the last scrub looked.
pub const LAST_SCRUBBED_TXG: &str = "last_scrubbed_txg";
/// Blocks of destroyed datasets.
pub const FREE_BPOBJ: &str = "free_bpobj";
/// Block trees of destroyed datasets.
pub const BPTREE_OBJ: &str = "bptree_obj";
/// The shared empty block list.
pub const EMPTY_BPOBJ: &str = "empty_bpobj";
/// Salt of the salted checksums.
pub const CHECKSUM_SALT: &str = "org.illumos:checksum_salt";
/// ZAPs of all vdevs.
pub const VDEV_ZAP_MAP: &str = "com.delphix:vdev_zap_map";
/// State of device removal.
pub const REMOVING: &str = "com.delphix:removing";
/// Blocks that left removed vdevs.
pub const OBSOLETE_BPOBJ: &str = "com.delphix:obsolete_bpobj";
/// State of condensing an indirect mapping.
pub const CONDENSING_INDIRECT: &str = "com.delphix:condensing_indirect";
/// Uberblock of the checkpoint.
pub const ZPOOL_CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
/// Log space maps by txg.
pub const LOG_SPACEMAP_ZAP: &str = "com.delphix:log_spacemap_zap";
/// Livelists of deleted clones.
pub const DELETED_CLONES: &str = "com.delphix:deleted_clones";

/// Names of the directories that the DSL keeps for itself beside the datasets of users, as children of the
/// root.
pub mod hidden_dir {
    /// Space of the MOS.
    pub const MOS: &str = "$MOS";
    /// The empty snapshot from which every dataset that is no clone descends.
    pub const ORIGIN: &str = "$ORIGIN";
    /// Space waiting to be freed.
    pub const FREE: &str = "$FREE";
    /// Space that could not be freed.
    pub const LEAK: &str = "$LEAK";

    /// True for a name that a user can never give.
    pub fn is_hidden(name: &[u8]) -> bool {
        name.starts_with(b"$")
    }
}

/// Keys in the ZAP of a top-level vdev.
pub mod top_zap {
    /// Space map of the freed parts of a removed vdev's mapping.
    pub const INDIRECT_OBSOLETE_SM: &str = "com.delphix:indirect_obsolete_sm";
    /// Value: the obsolete counts are exact.
    pub const OBSOLETE_COUNTS_ARE_PRECISE: &str = "com.delphix:obsolete_counts_are_precise";
    /// Space map of what the checkpoint still needs.
    pub const POOL_CHECKPOINT_SM: &str = "com.delphix:pool_checkpoint_sm";
    /// Object with one [`MetaslabUnflushedPhys`](crate::metaslab::MetaslabUnflushedPhys) a metaslab.
    pub const MS_UNFLUSHED_PHYS_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";
    /// State of a sequential rebuild.
    pub const VDEV_REBUILD_PHYS: &str = "org.openzfs:vdev_rebuild";
    /// String: `log`, `special` or `dedup`.
    pub const ALLOCATION_BIAS: &str = "org.zfsonlinux:allocation_bias";
    /// State of a raidz expansion.
    pub const RAIDZ_EXPAND_STATE: &str = "org.openzfs:raidz_expand_state";
    /// Seconds since 1970.
    pub const RAIDZ_EXPAND_START_TIME: &str = "org.openzfs:raidz_expand_start_time";
    /// Seconds since 1970.
    pub const RAIDZ_EXPAND_END_TIME: &str = "org.openzfs:raidz_expand_end_time";
    /// Bytes moved so far.
    pub const RAIDZ_EXPAND_BYTES_COPIED: &str = "org.openzfs:raidz_expand_bytes_copied";
}

/// Keys in the ZAP of a leaf vdev.
pub mod leaf_zap {
    /// Offset up to which the leaf is initialized.
    pub const INITIALIZE_LAST_OFFSET: &str = "com.delphix:next_offset_to_initialize";
    /// State of the initialization.
    pub const INITIALIZE_STATE: &str = "com.delphix:vdev_initialize_state";
    /// Seconds since 1970.
    pub const INITIALIZE_ACTION_TIME: &str = "com.delphix:vdev_initialize_action_time";
    /// Offset up to which the leaf is trimmed.
    pub const TRIM_LAST_OFFSET: &str = "org.zfsonlinux:next_offset_to_trim";
    /// State of the trim.
    pub const TRIM_STATE: &str = "org.zfsonlinux:vdev_trim_state";
    /// Seconds since 1970.
    pub const TRIM_ACTION_TIME: &str = "org.zfsonlinux:vdev_trim_action_time";
    /// Bytes a second.
    pub const TRIM_RATE: &str = "org.zfsonlinux:vdev_trim_rate";
    /// Only metaslabs that were ever used.
    pub const TRIM_PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
    /// Secure discard.
    pub const TRIM_SECURE: &str = "org.zfsonlinux:vdev_trim_secure";
}

/// A key of the kind "number in lowercase hexadecimal without prefix", which many ZAPs use (deadlists by txg,
/// log space maps by txg, DSL clones by object, error logs by dataset).
pub fn hex_key(number: u64) -> String {
    format!("{number:x}")
}

/// The number that a hexadecimal key spells, or nothing if it spells none.
pub fn parse_hex_key(key: &[u8]) -> Option<u64> {
    let digits = !key.is_empty() && key.len() <= 16 && key.iter().all(u8::is_ascii_hexdigit);
    if !digits {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(key).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hex_key_is_only_digits() {
        assert_eq!(hex_key(0x1f), "1f");
        for bad in [&b""[..], b"+1", b"-1", b"0x1", b"g", b"11111111111111111", b"1 "] {
            assert_eq!(parse_hex_key(bad), None);
        }
    }

    proptest! {
        #[test]
        fn a_hex_key_is_read_back(number: u64) {
            prop_assert_eq!(parse_hex_key(hex_key(number).as_bytes()), Some(number));
        }
    }
}
