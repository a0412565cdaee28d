//! [`Bookmark`]: the logical block of a dataset, for error messages and error logs (`zbookmark_phys`).

use std::fmt;

/// The logical place of a block: objset, object, level of indirection, number within that level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bookmark {
    /// Object number in the MOS of the dataset that owns the block; 0 is the MOS itself.
    pub objset: u64,
    /// Object number in that objset; 0 is its meta-dnode.
    pub object: u64,
    /// 0 for data, 1 and up for indirect blocks, [`Bookmark::LEVEL_ROOT`] or [`Bookmark::LEVEL_ZIL`].
    pub level: i64,
    /// Number of the block within its level.
    pub blkid: u64,
}

impl Bookmark {
    /// The level of an objset's own block (`ZB_ROOT_LEVEL`).
    pub const LEVEL_ROOT: i64 = -1;
    /// The level of intent-log blocks (`ZB_ZIL_LEVEL`).
    pub const LEVEL_ZIL: i64 = -2;
    /// The `blkid` of a spill block (`DMU_SPILL_BLKID`).
    pub const BLKID_SPILL: u64 = u64::MAX;

    /// A data block (level 0) of an object.
    pub const fn data(objset: u64, object: u64, blkid: u64) -> Self {
        Self { objset, object, level: 0, blkid }
    }

    /// An object's spill block.
    pub const fn spill(objset: u64, object: u64) -> Self {
        Self { objset, object, level: 0, blkid: Self::BLKID_SPILL }
    }

    /// The block that holds an objset's `objset_phys`.
    pub const fn objset_root(objset: u64) -> Self {
        Self { objset, object: 0, level: Self::LEVEL_ROOT, blkid: 0 }
    }
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objset, object, level, blkid } = *self;
        match (level, blkid) {
            (Self::LEVEL_ROOT, _) => write!(f, "objset {objset}, its root block"),
            (Self::LEVEL_ZIL, _) => write!(f, "objset {objset}, intent-log block {blkid}"),
            (_, Self::BLKID_SPILL) => write!(f, "objset {objset}, object {object}, its spill block"),
            (0, _) => write!(f, "objset {objset}, object {object}, block {blkid}"),
            _ => write!(f, "objset {objset}, object {object}, level {level}, block {blkid}"),
        }
    }
}
