//! DSL directories: the nodes of the tree of datasets, where space, quotas and properties live.
//!
//! A directory owns one head dataset and through its snapshot chain all snapshots, and has children by name
//! in `dd_child_dir_zapobj`. It is the bonus buffer (type `DSL_DIR`, 256 bytes) of an object in the MOS. With
//! the feature `extensible_dataset` the same object is also a ZAP with further fields ([`field`]); its object
//! type is then `DMU_OTN_ZAP_METADATA`.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `dd_creation_time` | seconds since 1970 |
//! | 8 | 8 | `dd_head_dataset_obj` | the dataset that is not a snapshot; 0 in `$MOS`, `$FREE`, `$LEAK` |
//! | 16 | 8 | `dd_parent_obj` | parent directory, 0 in the root |
//! | 24 | 8 | `dd_origin_obj` | snapshot of which the head is a clone, 0 if none |
//! | 32 | 8 | `dd_child_dir_zapobj` | ZAP: name to child directory |
//! | 40 | 8 | `dd_used_bytes` | space of the head, its snapshots, children and reservations |
//! | 48 | 8 | `dd_compressed_bytes` | the same before allocation overhead |
//! | 56 | 8 | `dd_uncompressed_bytes` | the same before compression |
//! | 64 | 8 | `dd_quota` | bytes, 0 = none |
//! | 72 | 8 | `dd_reserved` | bytes, 0 = none |
//! | 80 | 8 | `dd_props_zapobj` | ZAP of the properties set here |
//! | 88 | 8 | `dd_deleg_zapobj` | ZAP of delegated permissions ([`crate::deleg`]), 0 if none |
//! | 96 | 8 | `dd_flags` | bit 0: `dd_used_breakdown` is valid |
//! | 104 | 40 | `dd_used_breakdown` | [`UsedBreakdown`] |
//! | 144 | 8 | `dd_clones` | ZAP: directories of clones (hexadecimal keys), 0 if none |
//! | 152 | 104 | | reserved |
//!
//! Words are in the byte order of the block that holds the dnode. Source of the facts: OpenZFS 2.3
//! `dsl_dir.h`.

use crate::ObjectId;
use crate::words::word_struct;

word_struct! {
    /// How `dd_used_bytes` divides.
    pub struct UsedBreakdown {
        /// By the head dataset.
        pub head: u64,
        /// By snapshots.
        pub snap: u64,
        /// By child directories.
        pub child: u64,
        /// By reservations of children that they have not used up.
        pub child_reserved: u64,
        /// By the head's refreservation beyond what it uses.
        pub refreserved: u64,
    }
}

word_struct! {
    /// A DSL directory (`dsl_dir_phys_t`).
    pub struct DslDirPhys + 13 {
        /// Seconds since 1970; kept, but nothing shows it.
        pub creation_time: u64,
        /// The dataset that is not a snapshot.
        pub head_dataset: ObjectId,
        /// Parent directory, 0 in the root.
        pub parent: ObjectId,
        /// Snapshot of which the head is a clone, 0 if none.
        pub origin: ObjectId,
        /// ZAP: name to child directory.
        pub child_dir_zap: ObjectId,
        /// Space used, reservations included.
        pub used_bytes: u64,
        /// Space before allocation overhead.
        pub compressed_bytes: u64,
        /// Space before compression.
        pub uncompressed_bytes: u64,
        /// Quota in bytes, 0 = none.
        pub quota: u64,
        /// Reservation in bytes, 0 = none.
        pub reserved: u64,
        /// ZAP of the properties set here.
        pub props_zap: ObjectId,
        /// ZAP of delegated permissions, 0 if none.
        pub deleg_zap: ObjectId,
        /// Flags, see [`DslDirPhys::used_breakdown`].
        pub flags: u64,
        /// Meaningful only through [`DslDirPhys::used_breakdown`].
        pub raw_used_breakdown: UsedBreakdown,
        /// ZAP: directories of clones of this head's snapshots, 0 if none.
        pub clones: ObjectId,
    }
}

/// `DD_FLAG_USED_BREAKDOWN`: the breakdown is kept.
pub const FLAG_USED_BREAKDOWN: u64 = 1;

impl DslDirPhys {
    /// How the used space divides, if this pool is new enough to know.
    pub fn used_breakdown(&self) -> Option<UsedBreakdown> {
        (self.flags & FLAG_USED_BREAKDOWN != 0).then_some(self.raw_used_breakdown)
    }
}

/// Keys of the ZAP that an extended directory is. Values are one u64 unless stated.
pub mod field {
    /// Filesystems below, this one included; present once limits were used.
    pub const FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
    /// Snapshots below.
    pub const SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";
    /// The crypto key's ZAP ([`crate::crypto_key`]).
    pub const CRYPTO_KEY_OBJ: &str = "com.datto:crypto_key_obj";
    /// Deadlist of the blocks that this clone wrote.
    pub const LIVELIST: &str = "com.delphix:livelist";
    /// Two u64, seconds and nanoseconds: when the set of snapshots last changed.
    pub const SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";
}

/// Suffixes of keys in a properties ZAP beside the plain property name.
pub mod prop_suffix {
    /// The value that came with a received stream.
    pub const RECEIVED: &str = "$recvd";
    /// The received value is overridden by inheriting; the entry's value is empty.
    pub const INHERIT: &str = "$inherit";
    /// The last report of a received value.
    pub const IUV: &str = "$iuv";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteOrder;
    use crate::words::word_struct_round_trips;

    word_struct_round_trips! { a_directory_round_trips: DslDirPhys; }

    #[test]
    fn the_layout_is_the_table() {
        assert_eq!(DslDirPhys::SIZE, 256);
        let bytes: Vec<u8> = (0..32u64).flat_map(u64::to_le_bytes).collect();
        let dir = DslDirPhys::parse(&bytes, ByteOrder::Little).unwrap();
        assert_eq!(dir.used_bytes, 40 / 8);
        assert_eq!(dir.flags, 96 / 8);
        assert_eq!(dir.raw_used_breakdown.head, 104 / 8);
        assert_eq!(dir.clones, ObjectId(144 / 8));
    }

    #[test]
    fn the_breakdown_is_only_there_when_the_flag_says_so() {
        let mut dir = DslDirPhys::default();
        assert_eq!(dir.used_breakdown(), None);
        dir.flags = FLAG_USED_BREAKDOWN;
        assert_eq!(dir.used_breakdown(), Some(UsedBreakdown::default()));
    }
}
