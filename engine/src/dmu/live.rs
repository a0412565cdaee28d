//! Object sets that are open for writing.
//!
//! # The idea
//! A [`LiveObjset`] consists of the committed state, an [`super::Objset`] and the block trees of the open
//! objects, and of the changes of groups that are not committed yet: at most two layers in each open object
//! (the module `layer`), and lists of created and freed objects. Changes are made in memory and take no
//! longer than a copy if their blocks are cached. [`LiveObjset::sync`] writes one group's layers: blocks,
//! then the indirect blocks above them, then dnodes, which are the blocks of the meta-dnode, then the object
//! set's own block. A layer stays in place, visible to readers, until its changes are in the tree below.
//!
//! Only the sync itself changes the MOS, with `Tx::syncing`. The MOS is synced several times in one group,
//! until nothing changes any more.
//!
//! | module | what it owns |
//! |---|---|
//! | `layer` | changes of one object, as plain data |
//! | `object` | [`LiveObject`]: reading and writing through layers |
//! | `objset` | [`LiveObjset`]: open and dirty objects, object numbers |
//! | `dnodes` | slots of dnode blocks, new dnodes |
//! | `dmu_sync` | blocks that are written before their group, for the intent log |
//! | `parts` | large objects that are freed in parts |
//! | `pieces` | blocks that become those of another object |
//! | `raw` | object sets that raw streams fill |
//! | `references` | which stored blocks may be referred to |
//! | `sharing` | blocks that become references to equal ones |
//! | `sync` | writing a group: objects, dnodes, the object set's block |
//! | `tree_sync` | writing one block tree |
//! | `accounting` | space and files per user, group and project |
//! | `batch` | blocks of many objects in batches |
//! | `sets` | sets of numbers that change when their group is written |
//! | `policy` | checksum, compression, copies and class of each block |
//!
//! | lock | guards | order |
//! |---|---|---|
//! | object state | layers and tree of one object; held to look up, insert or copy one block, never across an await | first |
//! | objset state | tables of the object set; held for a few look-ups, never across an await | second |

mod accounting;
mod batch;
mod dirtied;
mod dmu_sync;
mod dnodes;
mod layer;
mod object;
mod objset;
mod parts;
mod pieces;
mod policy;
mod raw;
pub(crate) mod references;
mod sets;
mod sharing;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod tree_sync;

use std::ops::AddAssign;

use ondisk::blkptr::{Blkptr, ChecksumType, CompressType};
use ondisk::dmu::DmuType;

pub use dirtied::Dirtied;
pub use dmu_sync::Early;
pub use object::{LiveObject, Stored};
pub use objset::LiveObjset;
pub use pieces::{Piece, Pieces};
pub(crate) use raw::RawDnode;
pub(crate) use sharing::pieces_of;
pub use sharing::{Shared, StoredBlock, StoredBlocks};

use crate::zio::{Dedup, Writer};

/// How the blocks of an object set are written, according to its dataset's properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Checksum of data; metadata use at least fletcher4.
    pub checksum: ChecksumType,
    /// Compression of data; metadata use lz4 (or lzjb in pools without the feature).
    pub compress: CompressType,
    /// Level code of zstd.
    pub zstd_level: u8,
    /// Copies of data; metadata have one more, the MOS has three.
    pub copies: u8,
    /// `redundant_metadata`: 0 all, 1 most, 2 none, 3 some.
    pub redundant_metadata: u8,
    /// `special_small_blocks` in bytes; 0 for none.
    pub special_small_blocks: u64,
    /// Deduplication of data: the checksum function, which counts in place of the other, and how.
    pub dedup: Option<(ChecksumType, Dedup)>,
}

/// The description of a new object.
#[derive(Debug, Clone)]
pub struct NewObject {
    /// Type of its contents.
    pub dmu_type: DmuType,
    /// Bytes in a data block.
    pub block_size: u32,
    /// Type of the bonus area.
    pub bonus_type: DmuType,
    /// The bonus area.
    pub bonus: Vec<u8>,
    /// Slots of 512 bytes for its dnode, at least 1.
    pub slots: u8,
}

/// The result of a sync of an object set.
#[derive(Debug, Clone, Default)]
pub struct SyncedObjset {
    /// The present pointer to the object set's block.
    pub root: Blkptr,
    /// Deflated, physical and logical bytes of the written blocks.
    pub born: Space,
    /// These blocks, if requested ([`LiveObjset::list_births`]).
    pub born_blocks: Option<Vec<Blkptr>>,
    /// Blocks that the object set no longer refers to, not freed yet. They include blocks born in this group,
    /// which count as freed.
    pub killed: Vec<Blkptr>,
    /// Some written blocks keep their previous logical birth.
    pub keeps_births: bool,
    /// Some blocks of `born` are larger than 128 KiB.
    pub has_large_blocks: bool,
    /// Some written dnodes have more than one slot.
    pub has_large_dnodes: bool,
}

/// Space in the three ways in which datasets count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Allocated, without parity.
    pub used: u64,
    /// After compression.
    pub compressed: u64,
    /// Before compression.
    pub uncompressed: u64,
}

impl Space {
    /// The space of a block. Metadata count by their stored size.
    pub fn of(writer: &Writer, bp: &Blkptr) -> Self {
        if bp.is_hole() {
            return Self::default();
        }
        let compressed = bp.psize().0;
        let uncompressed = if bp.is_metadata() { compressed } else { bp.lsize().0 };
        Self { used: writer.dsize(bp), compressed, uncompressed }
    }
}

impl AddAssign for Space {
    fn add_assign(&mut self, other: Self) {
        self.used += other.used;
        self.compressed += other.compressed;
        self.uncompressed += other.uncompressed;
    }
}
