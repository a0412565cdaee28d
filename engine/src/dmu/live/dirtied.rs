//! What a change makes dirty: what there must be room for before it is accepted.
//!
//! A block that the group has dirty already costs nothing more. So each object says what of a change is new
//! to the group, blocks of data and the indirect blocks above them; those who know what blocks take on the
//! devices turn that into bytes of these (`dsl::space_check`).

use ondisk::Txg;
use ondisk::dnode::{DNODE_BLOCK_SIZE, Dnode};

use super::layer::{Layer, State};

/// What a change makes dirty that its group does not have dirty yet. All numbers are upper bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dirtied {
    /// Blocks of data.
    pub blocks: u64,
    /// Bytes of each of them, before compression.
    pub block_bytes: u64,
    /// Bytes of a smaller block, dirty already, that one of them takes the place of.
    pub replaced_bytes: u64,
    /// Blocks that become references to stored ones.
    pub cloned: u64,
    /// Bytes of these.
    pub cloned_bytes: u64,
    /// Bytes of indirect blocks.
    pub indirect_bytes: u64,
    /// Files whose description, or name, changes.
    pub files: u64,
    /// Bytes of blocks of dnodes, and of directories.
    pub described_bytes: u64,
    /// Bytes of extended attributes and the like.
    pub attribute_bytes: u64,
}

impl Dirtied {
    /// What a change of one file takes that is no content: a block of dnodes.
    pub fn file() -> Self {
        Self { files: 1, described_bytes: DNODE_BLOCK_SIZE as u64, ..Self::default() }
    }

    /// What a new file takes: a block of dnodes, and attributes that do not fit its dnode.
    pub fn new_file() -> Self {
        Self { files: 1, described_bytes: 2 * DNODE_BLOCK_SIZE as u64, ..Self::default() }
    }

    /// Extended attributes of so many bytes, and the file that holds them.
    pub fn attributes(bytes: u64) -> Self {
        Self { attribute_bytes: bytes, ..Self::new_file() }
    }

    /// Bytes of data.
    pub fn data_bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes).saturating_sub(self.replaced_bytes)
    }

    /// Both of two changes, one of which replaces nothing. The blocks of both are counted as the larger ones.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_add(other.blocks),
            block_bytes: self.block_bytes.max(other.block_bytes),
            replaced_bytes: self.replaced_bytes.max(other.replaced_bytes),
            cloned: self.cloned.saturating_add(other.cloned),
            cloned_bytes: self.cloned_bytes.saturating_add(other.cloned_bytes),
            indirect_bytes: self.indirect_bytes.saturating_add(other.indirect_bytes),
            files: self.files.saturating_add(other.files),
            described_bytes: self.described_bytes.saturating_add(other.described_bytes),
            attribute_bytes: self.attribute_bytes.saturating_add(other.attribute_bytes),
        }
    }
}

impl State {
    /// What writing to the blocks `first..after` of `block_size` bytes makes dirty in the group `txg`. Those
    /// that it has are dirty already, unless they began to be written early and have to be written again.
    pub(super) fn newly_dirty(&self, txg: Txg, first: u64, after: u64, block_size: u64) -> Dirtied {
        let layer = self.layers.iter().find(|layer| layer.txg == txg);
        let (mut there, mut replaced_bytes) = (0, 0);
        if let Some(layer) = layer {
            let dirty = layer.blocks.range(first..after.max(first));
            for (_, block) in dirty.filter(|(id, _)| !layer.begun_early.contains(id)) {
                match block.len() as u64 {
                    length if length >= block_size => there += 1,
                    // The only block of a file, which grows.
                    length => replaced_bytes = length,
                }
            }
        }
        Dirtied {
            blocks: after.saturating_sub(first).saturating_sub(there),
            block_bytes: block_size,
            replaced_bytes,
            indirect_bytes: self.newly_dirty_indirect(layer, first, after),
            ..Dirtied::default()
        }
    }

    /// Bytes of the indirect blocks above `first..after` that have nothing dirty below them in the layer.
    pub(super) fn newly_dirty_indirect(&self, layer: Option<&Layer>, first: u64, after: u64) -> u64 {
        if first >= after {
            return 0;
        }
        let dnode = self.tree.dnode();
        let before = layer.map_or(0, |layer| layer.end);
        let indirects = Indirects::of(dnode, before, after.max(self.end));
        let dirty = |from: u64, to: u64| {
            layer.is_some_and(|layer| {
                layer.blocks.range(from..to).next().is_some() || layer.cloned.range(from..to).next().is_some()
            })
        };
        indirects.touched(first, after, dirty).saturating_mul(dnode.indirect_block_size())
    }
}

/// The indirect blocks of a tree.
struct Indirects {
    /// Pointers in one, as a power of two.
    shift: u32,
    /// Levels of them that there are, or are going to be.
    levels: u32,
    /// Of these, those that there are not yet: the first block of each takes up the pointers of the dnode.
    new_levels: u32,
}

impl Indirects {
    /// Of an object that has so many blocks now, `before` of them as far as the group has counted.
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

    /// How many are above `first..after` that have nothing dirty below them.
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
            // Those between the first and the last have all of their blocks in the range.
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
