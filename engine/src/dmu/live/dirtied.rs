//! The blocks that a change makes dirty, for which there must be room before the change is accepted.
//!
//! A block that is already dirty in the group costs nothing more. So each object reports which blocks of
//! data, and indirect blocks above them, a change makes newly dirty in the group. `dsl::space_check` knows
//! how much space blocks take on the devices and converts them to bytes.

use std::ops::Range;

use codec::compress::POINTER_GROWTH;
use ondisk::Txg;
use ondisk::dnode::{DNODE_BLOCK_SIZE, Dnode};

use super::layer::{Layer, State};

/// What a pointer that changes counts for, where its indirect block counts with its size on disk (which is
/// half of its bytes at most). A block that grows beyond seven eighths of its bytes is stored with all of
/// them, so what it grows by counts for a third more.
const GROWTH_BYTES: u64 = POINTER_GROWTH as u64 * 4 / 3 + 1;

/// The blocks that a change makes newly dirty in its group. All numbers are upper bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dirtied {
    /// Blocks of data.
    pub blocks: u64,
    /// Bytes of each of them, before compression.
    pub block_bytes: u64,
    /// Bytes of a smaller, already dirty block that one of them replaces.
    pub replaced_bytes: u64,
    /// Blocks that become references to stored blocks.
    pub cloned: u64,
    /// Bytes of these.
    pub cloned_bytes: u64,
    /// Bytes of indirect blocks.
    pub indirect_bytes: u64,
    /// Indirect blocks that count in this with their bytes on disk: each may take one unit of allocation and
    /// a third of one more.
    pub compressed_indirects: u64,
    /// Files whose attributes, or name, change.
    pub files: u64,
    /// Bytes of blocks of dnodes, and of directories.
    pub described_bytes: u64,
    /// Bytes of extended attributes and the like.
    pub attribute_bytes: u64,
}

impl Dirtied {
    /// The cost of a change of one file apart from its content: a block of dnodes.
    pub fn file() -> Self {
        Self { files: 1, described_bytes: DNODE_BLOCK_SIZE as u64, ..Self::default() }
    }

    /// The cost of a new file: a block of dnodes, and attributes that do not fit its dnode.
    pub fn new_file() -> Self {
        Self { files: 1, described_bytes: 2 * DNODE_BLOCK_SIZE as u64, ..Self::default() }
    }

    /// Extended attributes of this many bytes, and the file that holds them.
    pub fn attributes(bytes: u64) -> Self {
        Self { attribute_bytes: bytes, ..Self::new_file() }
    }

    /// Bytes of data.
    pub fn data_bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes).saturating_sub(self.replaced_bytes)
    }

    /// The sum of two changes, one of which replaces nothing. The blocks of both count with the larger size.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_add(other.blocks),
            block_bytes: self.block_bytes.max(other.block_bytes),
            replaced_bytes: self.replaced_bytes.max(other.replaced_bytes),
            cloned: self.cloned.saturating_add(other.cloned),
            cloned_bytes: self.cloned_bytes.saturating_add(other.cloned_bytes),
            indirect_bytes: self.indirect_bytes.saturating_add(other.indirect_bytes),
            compressed_indirects: self.compressed_indirects.saturating_add(other.compressed_indirects),
            files: self.files.saturating_add(other.files),
            described_bytes: self.described_bytes.saturating_add(other.described_bytes),
            attribute_bytes: self.attribute_bytes.saturating_add(other.attribute_bytes),
        }
    }
}

impl State {
    /// The blocks that writing to the blocks `first..after` of `block_size` bytes makes dirty in the group
    /// `txg`. Blocks in its layer are dirty already, except those that began to be written early and have to
    /// be written again.
    pub(super) fn newly_dirty(&self, txg: Txg, first: u64, after: u64, block_size: u64) -> Dirtied {
        let layer = self.layers.iter().find(|layer| layer.txg == txg);
        let (mut there, mut replaced_bytes) = (0, 0);
        if let Some(layer) = layer {
            // Most changes are of one block, which is found faster than a range is.
            let single = (after == first.saturating_add(1)).then(|| layer.blocks.get_key_value(&first));
            let range = single.is_none().then(|| layer.blocks.range(first..after.max(first)));
            let dirty = single.flatten().into_iter().chain(range.into_iter().flatten());
            for (_, block) in dirty.filter(|(id, _)| !layer.begun_early.contains(id)) {
                match block.len() as u64 {
                    length if length >= block_size => there += 1,
                    // The only block of a file that grows.
                    length => replaced_bytes = length,
                }
            }
        }
        let blocks = after.saturating_sub(first).saturating_sub(there);
        let (indirect_bytes, compressed_indirects) = self.newly_dirty_indirect(layer, first, after, blocks);
        Dirtied {
            blocks,
            block_bytes: block_size,
            replaced_bytes,
            indirect_bytes,
            compressed_indirects,
            ..Dirtied::default()
        }
    }

    /// Bytes of the indirect blocks above `first..after`, of which so many blocks are not dirty yet: those
    /// without dirty blocks below them in the layer, and what others grow by. Then the number of those that
    /// count with their size on disk.
    fn newly_dirty_indirect(&self, layer: Option<&Layer>, first: u64, after: u64, blocks: u64) -> (u64, u64) {
        if first >= after {
            return (0, 0);
        }
        let dnode = self.tree.dnode();
        let before = layer.map_or(0, |layer| layer.end);
        let indirects = Indirects::of(dnode, before, after.max(self.end));
        // A small change has no others than those at its ends.
        let ends = [first >> indirects.shift, (after - 1) >> indirects.shift];
        let ends = ends.iter().take(if ends[0] == ends[1] { 1 } else { 2 });
        let is_touched = |id: u64| layer.is_some_and(|layer| layer.has_touched(id));
        let dirty = |from: u64, to: u64| {
            is_touched(from >> indirects.shift)
                || layer.is_some_and(|layer| {
                    layer.blocks.range(from..to).next().is_some()
                        || layer.cloned.range(from..to).next().is_some()
                })
        };
        let size = dnode.indirect_block_size();
        // All above one that is dirty are dirty too.
        let touched = match ends.len() == 1 && is_touched(first >> indirects.shift) {
            true => indirects.new_levels.into(),
            false => indirects.touched(first, after, dirty),
        };
        let mut bytes = touched.saturating_mul(size);
        let mut compressed = 0;
        for (id, stored) in ends.filter_map(|id| Some((*id, *self.indirects.get(id)?))) {
            let below = self.tree.below(1, id);
            let pointers = after.min(below.end).saturating_sub(first.max(below.start)).min(blocks);
            bytes = bytes.saturating_add(growth(pointers, size));
            if dirty(below.start, below.end) {
                continue;
            }
            if let Some(stored) =
                self.stored_indirect(stored.size, below, size).filter(|stored| *stored < size)
            {
                bytes = bytes.saturating_sub(size - stored);
                compressed += 1;
            }
        }
        (bytes, compressed)
    }

    /// The bytes that an indirect block of level 1 takes at most before what the open group changes: its size
    /// on disk, and the growth by what another group changes. Punched ranges may change any number of
    /// pointers.
    fn stored_indirect(&self, stored: u32, below: Range<u64>, size: u64) -> Option<u64> {
        let is_punched = |layer: &Layer| layer.punched.within(below.start, below.end).next().is_some();
        if self.layers.iter().any(|layer| layer.freed || layer.reborn.is_some() || is_punched(layer)) {
            return None;
        }
        let changed = self.layers.iter().map(|layer| {
            layer.blocks.range(below.clone()).count() + layer.cloned.range(below.clone()).count()
        });
        Some(u64::from(stored).saturating_add(growth(changed.sum::<usize>() as u64, size)))
    }

    /// What a changed pointer to a block adds to the indirect block above it.
    pub(super) fn pointer_growth(&self, id: u64) -> u64 {
        let dnode = self.tree.dnode();
        let is_known = self.indirects.contains_key(&(id >> self.fan_out_shift()));
        if is_known { growth(1, dnode.indirect_block_size()) } else { 0 }
    }
}

/// What so many pointers that change count for, in an indirect block of `size`.
fn growth(pointers: u64, size: u64) -> u64 {
    pointers.saturating_mul(GROWTH_BYTES).min(size)
}

/// The indirect blocks of a tree.
struct Indirects {
    /// Pointers in one, as a power of two.
    shift: u32,
    /// The number of their levels, present or future.
    levels: u32,
    /// Of these, the levels that do not exist yet: the first block of each takes the pointers of the dnode.
    new_levels: u32,
}

impl Indirects {
    /// The indirect blocks of an object with this many blocks now, of which the group has counted `before`.
    fn of(dnode: &Dnode, before: u64, blocks: u64) -> Self {
        let shift = dnode.pointers_per_indirect_shift().max(1);
        let in_dnode = (dnode.blkptrs.len() as u64).max(1);
        let levels_of = |blocks: u64| {
            let (mut levels, mut here) = (0, blocks);
            while here > in_dnode && levels < u32::from(Dnode::MAX_LEVELS) {
                here = here.div_ceil(1u64.checked_shl(shift).unwrap_or(u64::MAX));
                levels += 1;
            }
            levels
        };
        let there = levels_of(before).max(u32::from(dnode.levels.saturating_sub(1)));
        let levels = levels_of(blocks).max(there);
        Self { shift, levels, new_levels: levels - there }
    }

    /// The number of indirect blocks above `first..after` without dirty blocks below them.
    fn touched(&self, first: u64, after: u64, dirty: impl Fn(u64, u64) -> bool) -> u64 {
        let mut touched = u64::from(self.new_levels);
        for level in 1..=self.levels {
            let shift = self.shift.saturating_mul(level);
            let block_of = |id: u64| id.checked_shr(shift).unwrap_or(0);
            let bytes_from = |block: u64| block.checked_shl(shift).unwrap_or(u64::MAX);
            let (from, to) = (block_of(first), block_of(after - 1));
            let is_new = |block: u64| {
                let end = bytes_from(block).saturating_add(1u64.checked_shl(shift).unwrap_or(u64::MAX));
                !dirty(bytes_from(block), end)
            };
            // All blocks below those between the first and the last are in the range.
            touched += to.saturating_sub(from).saturating_sub(1);
            touched += u64::from(is_new(from)) + u64::from(to > from && is_new(to));
        }
        touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indirects(levels: u32, new_levels: u32) -> Indirects {
        Indirects { shift: 10, levels, new_levels }
    }

    #[test]
    fn each_level_above_a_block_is_touched_once() {
        assert_eq!(indirects(0, 0).touched(0, 1, |_, _| false), 0);
        assert_eq!(indirects(1, 0).touched(5, 6, |_, _| false), 1);
        assert_eq!(indirects(3, 0).touched(5, 6, |_, _| false), 3);
        assert_eq!(indirects(1, 0).touched(0, 3000, |_, _| false), 3);
        assert_eq!(indirects(2, 1).touched(1023, 1025, |_, _| false), 2 + 1 + 1);
    }

    #[test]
    fn those_with_something_dirty_below_are_not_counted_again() {
        let dirty = |from: u64, to: u64| (from..to).contains(&7);
        assert_eq!(indirects(2, 0).touched(9, 10, dirty), 0);
        assert_eq!(indirects(2, 0).touched(1024, 1025, dirty), 1);
    }
}
