//! The result of `statfs` for a filesystem.
//!
//! ZFS has no fixed number of blocks or inodes: all space that the pool can still allocate is free, for files
//! and for inodes alike. Sizes are in records: the property `recordsize` is both the size of a block and that
//! of a fragment, as in the Linux port, because programs use either as the unit in which files are allocated,
//! punched and cloned. Free space of less than a record is not reported.
//!
//! Source: OpenZFS 2.3 `zfs_vfsops.c` (behaviour of `zfs_statvfs`).

/// The possible sizes of a record.
const RECORD_BYTES: std::ops::RangeInclusive<u64> = 512..=16 << 20;
/// The largest object number.
const MAX_OBJECT: u64 = (1 << 48) - 1;
/// The least space of an inode.
const INODE_BYTES: u64 = 512;

/// The figures of a dataset for `statfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that the dataset refers to.
    pub referenced_bytes: u64,
    /// Bytes that it may still allocate, by pool, quotas and reservations.
    pub available_bytes: u64,
    /// Objects in use.
    pub used_objects: u64,
}

/// The result of `statfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the block counts, in bytes: a record.
    pub block_size: u64,
    /// All blocks, used and free.
    pub blocks: u64,
    /// Free blocks, the same for all users.
    pub free_blocks: u64,
    /// All inodes, used and possible.
    pub inodes: u64,
    /// Inodes that can still be created.
    pub free_inodes: u64,
    /// Longest name in bytes.
    pub max_name: u32,
}

impl StatFs {
    /// The result for a dataset with these figures, whose `recordsize` is `record_bytes`.
    pub fn new(space: Space, record_bytes: u64, max_name: u32) -> Self {
        let unit = record_bytes.clamp(*RECORD_BYTES.start(), *RECORD_BYTES.end());
        let free_blocks = space.available_bytes / unit;
        let free_inodes =
            MAX_OBJECT.saturating_sub(space.used_objects).min(space.available_bytes / INODE_BYTES);
        Self {
            block_size: unit,
            blocks: space.referenced_bytes.div_ceil(unit).saturating_add(free_blocks),
            free_blocks,
            inodes: free_inodes.saturating_add(space.used_objects),
            free_inodes,
            max_name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_space_is_rounded_up_and_free_space_down_to_records() {
        let space = Space { referenced_bytes: 1, available_bytes: (1 << 20) + 5, used_objects: 7 };
        let counts = |record_bytes| {
            let stat = StatFs::new(space, record_bytes, 255);
            assert_eq!((stat.inodes, stat.free_inodes), (2048 + 7, 2048), "inodes have no records");
            (stat.block_size, stat.blocks, stat.free_blocks)
        };
        assert_eq!(counts(128 << 10), (128 << 10, 9, 8));
        assert_eq!(counts(512), (512, 2049, 2048));
        assert_eq!(counts(16 << 20), (16 << 20, 1, 0));
        assert_eq!(counts(0), (512, 2049, 2048), "a pool may say anything");
        assert_eq!(counts(u64::MAX).0, 16 << 20);
    }
}
