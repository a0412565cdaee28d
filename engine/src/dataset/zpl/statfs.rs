//! What `statfs` answers for a filesystem.
//!
//! ZFS has no fixed number of blocks or inodes: all that the pool can still give is free, for files and for inodes alike. Sizes
//! are in units of 128 KiB, as the Linux port reports them.
//!
//! Source: OpenZFS 2.3 `zfs_vfsops.c` (behaviour of `zfs_statvfs`).

/// Block size in which space is told.
const UNIT_BYTES: u64 = 128 << 10;
/// Largest object number.
const MAX_OBJECT: u64 = (1 << 48) - 1;
/// Every inode takes at least this much.
const INODE_BYTES: u64 = 512;

/// The figures of a dataset that `statfs` is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that the dataset refers to.
    pub referenced_bytes: u64,
    /// Bytes that it may still allocate, by pool, quotas and reservations.
    pub available_bytes: u64,
    /// Objects in use.
    pub used_objects: u64,
}

/// What `statfs` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the block counts, in bytes.
    pub block_size: u64,
    /// All blocks, used and free.
    pub blocks: u64,
    /// Free blocks, for everyone alike.
    pub free_blocks: u64,
    /// All inodes, used and possible.
    pub inodes: u64,
    /// Inodes that can still be made.
    pub free_inodes: u64,
    /// Longest name in bytes.
    pub max_name: u32,
}

impl StatFs {
    /// The answer for a dataset of these figures.
    pub fn new(space: Space, max_name: u32) -> Self {
        let referenced = space.referenced_bytes.div_ceil(UNIT_BYTES).saturating_mul(UNIT_BYTES);
        let free_inodes =
            MAX_OBJECT.saturating_sub(space.used_objects).min(space.available_bytes / INODE_BYTES);
        Self {
            block_size: UNIT_BYTES,
            blocks: referenced.saturating_add(space.available_bytes) / UNIT_BYTES,
            free_blocks: space.available_bytes / UNIT_BYTES,
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
    fn used_space_is_rounded_up_and_free_space_down() {
        let space = Space { referenced_bytes: 1, available_bytes: (1 << 20) + 5, used_objects: 7 };
        let stat = StatFs::new(space, 255);
        assert_eq!((stat.blocks, stat.free_blocks), (9, 8));
        assert_eq!((stat.inodes, stat.free_inodes), (2048 + 7, 2048));
    }
}
