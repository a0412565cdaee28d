//! Large objects are freed in parts.
//!
//! # The idea
//! A group that frees blocks has all of their pointers in memory, 128 bytes each: those of a file of 1 TiB in
//! blocks of 8K would take 16 GiB, and the group would take minutes. So what frees a range with more than
//! `zfs_delete_blocks` blocks makes it a hole part by part, from its end, each part in a change of its own
//! ([`LiveObject::last_part`]). A group takes a bounded number of blocks of all parts
//! ([`crate::txg::Txgs::wait_to_free`]); the next part waits for the next group. Locks are released between
//! two parts.
//!
//! Blocks are counted by the fill counts of indirect blocks, without reading these. A part is of whole
//! indirect blocks of level 1, at least one. What was written since the last commit is not counted: dirty
//! data are bounded already. A hole is no part, however large it is.
//!
//! Source of the facts: OpenZFS 2.4 `dmu.c` (`dmu_free_long_range`), which takes its parts from the end too.

use std::ops::Range;
use std::sync::Arc;

use super::LiveObject;
use crate::error::Result;
use crate::tunables;

impl LiveObject {
    /// Of the blocks that lie in a range of bytes as a whole, the part that is to be freed first: where it
    /// begins, and about how many committed blocks it has. It ends with the range, and begins with it when
    /// there is nothing before that.
    pub(crate) async fn last_part(&self, range: &Range<u64>) -> Result<(u64, u64)> {
        let most = tunables::ZFS_DELETE_BLOCKS.get();
        loop {
            let (tree, block_size, end) = {
                let state = self.core.lock();
                (Arc::clone(&state.tree), u64::from(state.block_size), state.end)
            };
            // Behind its end is what groups free that are not committed yet.
            let blocks = range.start.div_ceil(block_size)..range.end.div_ceil(block_size).min(end);
            match tree.last_part(self.objset().pool(), blocks.clone(), most).await {
                Ok((first, count)) if first <= blocks.start => return Ok((range.start, count)),
                Ok((first, count)) => return Ok((first.saturating_mul(block_size), count)),
                Err(_) if !self.is_current(&tree) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether so many blocks are committed that it is freed in parts.
    pub(crate) fn has_parts(&self) -> bool {
        self.core.lock().tree.filled_blocks() > tunables::ZFS_DELETE_BLOCKS.get()
    }
}
