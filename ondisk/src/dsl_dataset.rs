//! DSL datasets: one version of a filesystem or volume, the head or a snapshot.
//!
//! A dataset is the bonus buffer (type `DSL_DATASET`, 320 bytes) of an object in the MOS. Its heart is
//! `ds_bp`, the block pointer to the object set. With the feature `extensible_dataset` the same object is
//! also a ZAP ([`field`]); there, in addition, each per-dataset feature in use has an entry under its guid
//! ([`crate::features`]).
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `ds_dir_obj` | directory |
//! | 8 | 8 | `ds_prev_snap_obj` | snapshot before this |
//! | 16 | 8 | `ds_prev_snap_txg` | its creation txg |
//! | 24 | 8 | `ds_next_snap_obj` | snapshot or head after this; 0 in the head |
//! | 32 | 8 | `ds_snapnames_zapobj` | ZAP of snapshots' names ([`crate::holds`]); 0 in a snapshot |
//! | 40 | 8 | `ds_num_children` | clones and the next snapshot; 0 in the head |
//! | 48 | 8 | `ds_creation_time` | seconds since 1970 |
//! | 56 | 8 | `ds_creation_txg` | |
//! | 64 | 8 | `ds_deadlist_obj` | blocks of the previous snapshot that this no longer has ([`crate::deadlist`]) |
//! | 72 | 8 | `ds_referenced_bytes` | all space that this references |
//! | 80 | 8 | `ds_compressed_bytes` | the same before allocation overhead |
//! | 88 | 8 | `ds_uncompressed_bytes` | the same before compression |
//! | 96 | 8 | `ds_unique_bytes` | what only this snapshot references |
//! | 104 | 8 | `ds_fsid_guid` | 56 bits, may change to stay unique on a host |
//! | 112 | 8 | `ds_guid` | never changes |
//! | 120 | 8 | `ds_flags` | `FLAG_*` |
//! | 128 | 128 | `ds_bp` | object set |
//! | 256 | 8 | `ds_next_clones_obj` | ZAP of clones of this snapshot (hexadecimal keys), 0 if none |
//! | 264 | 8 | `ds_props_obj` | ZAP of a snapshot's properties, 0 if none |
//! | 272 | 8 | `ds_userrefs_obj` | ZAP of holds, 0 if none |
//! | 280 | 40 | | reserved |
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dataset.h`.

use crate::blkptr::Blkptr;
use crate::words::word_struct;
use crate::{Guid, ObjectId, Txg};

word_struct! {
    /// A DSL dataset (`dsl_dataset_phys_t`).
    pub struct DslDatasetPhys + 5 {
        /// Directory.
        pub dir: ObjectId,
        /// Snapshot before this, 0 if none.
        pub prev_snap: ObjectId,
        /// Its creation txg.
        pub prev_snap_txg: Txg,
        /// Snapshot or head after this, 0 in the head.
        pub next_snap: ObjectId,
        /// ZAP of snapshots' names, 0 in a snapshot.
        pub snapnames_zap: ObjectId,
        /// Clones and the next snapshot, 0 in the head.
        pub num_children: u64,
        /// Seconds since 1970.
        pub creation_time: u64,
        /// When it was created.
        pub creation_txg: Txg,
        /// Deadlist.
        pub deadlist: ObjectId,
        /// All space referenced.
        pub referenced_bytes: u64,
        /// The same before allocation overhead.
        pub compressed_bytes: u64,
        /// The same before compression.
        pub uncompressed_bytes: u64,
        /// Space that only this snapshot references.
        pub unique_bytes: u64,
        /// Filesystem id, may change.
        pub fsid_guid: u64,
        /// Identity, never changes.
        pub guid: Guid,
        /// See `FLAG_*`.
        pub flags: u64,
        /// The object set.
        pub bp: Blkptr,
        /// ZAP of clones of this snapshot, 0 if none.
        pub next_clones: ObjectId,
        /// ZAP of a snapshot's properties, 0 if none.
        pub props: ObjectId,
        /// ZAP of holds, 0 if none.
        pub userrefs: ObjectId,
    }
}

/// Half received or half destroyed: not to be mounted.
pub const FLAG_INCONSISTENT: u64 = 1;
/// Must not be promoted (left by old versions).
pub const FLAG_NOPROMOTE: u64 = 1 << 1;
/// `ds_unique_bytes` is right.
pub const FLAG_UNIQUE_ACCURATE: u64 = 1 << 2;
/// To be destroyed when the last hold and clone go.
pub const FLAG_DEFER_DESTROY: u64 = 1 << 3;
/// The filesystem matches names without regard to case; so must lookups of snapshot names.
pub const FLAG_CI_DATASET: u64 = 1 << 16;

impl DslDatasetPhys {
    /// True for a snapshot, false for a head.
    pub const fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }

    /// True when every flag of `flags` is set.
    pub const fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }
}

/// Keys of the ZAP that an extended dataset is. Values are one u64 unless stated.
pub mod field {
    /// ZAP of bookmarks ([`crate::bookmark`]).
    pub const BOOKMARK_NAMES: &str = "com.delphix:bookmarks";
    /// Identity of the set of IVs of an encrypted snapshot.
    pub const IVSET_GUID: &str = "com.datto:ivset_guid";
    /// Deadlist of blocks remapped away from removed vdevs.
    pub const REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";

    /// Interrupted receive: guid of the snapshot it builds on.
    pub const RESUME_FROMGUID: &str = "com.delphix:resume_fromguid";
    /// Interrupted receive: name of the sent snapshot (a string).
    pub const RESUME_TONAME: &str = "com.delphix:resume_toname";
    /// Interrupted receive: guid of the sent snapshot.
    pub const RESUME_TOGUID: &str = "com.delphix:resume_toguid";
    /// Interrupted receive: object from which to resume (an array, one for each txg in flight).
    pub const RESUME_OBJECT: &str = "com.delphix:resume_object";
    /// Interrupted receive: offset from which to resume.
    pub const RESUME_OFFSET: &str = "com.delphix:resume_offset";
    /// Interrupted receive: bytes received.
    pub const RESUME_BYTES: &str = "com.delphix:resume_bytes";
    /// Interrupted receive: the stream has large blocks (present or absent).
    pub const RESUME_LARGEBLOCK: &str = "com.delphix:resume_largeblockok";
    /// Interrupted receive: the stream has embedded blocks.
    pub const RESUME_EMBEDOK: &str = "com.delphix:resume_embedok";
    /// Interrupted receive: the stream has compressed blocks.
    pub const RESUME_COMPRESSOK: &str = "com.delphix:resume_compressok";
    /// Interrupted receive: the stream is raw.
    pub const RESUME_RAWOK: &str = "com.datto:resume_rawok";
    /// Interrupted receive from a redaction bookmark: guids of its snapshots (an array).
    pub const RESUME_REDACT_BOOKMARK_SNAPS: &str = "com.delphix:resume_redact_book_snaps";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteOrder;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_the_table() {
        assert_eq!(DslDatasetPhys::SIZE, 320);
        let mut words: Vec<u64> = (0..40).collect();
        words[16..32].fill(0);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        let dataset = DslDatasetPhys::parse(&bytes, ByteOrder::Big).unwrap();
        assert_eq!(dataset.guid, Guid(112 / 8));
        assert_eq!(dataset.flags, 120 / 8);
        assert!(dataset.bp.is_hole());
        assert_eq!(dataset.userrefs, ObjectId(272 / 8));
        assert!(dataset.is_snapshot());
    }

    proptest! {
        #[test]
        fn a_dataset_round_trips(before: [u64; 16], after: [u64; 3], big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let words = before.iter().chain(&[0; 16]).chain(&after).chain(&[0; 5]);
            let bytes: Vec<u8> = words.flat_map(|&w| order.u64_bytes(w)).collect();
            let found = DslDatasetPhys::parse(&bytes, order).unwrap();
            prop_assert_eq!(found.encode(order), bytes);
        }
    }
}
