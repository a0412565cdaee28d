//! Requests about equal blocks of files and volumes, which can become shared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// Most pairs in one request.
pub const MOST_PAIRS: usize = 1024;
/// Most blocks in one pair.
pub const MOST_PAIR_BLOCKS: u64 = 256;

/// Asks what is known of the blocks of files of a filesystem, or of a volume, so that equal ones are found.
/// What was written since the last commit is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListBlocks {
    /// The filesystem or volume.
    pub dataset: String,
    /// Numbers of files of the filesystem: what `stat` calls their inode. None for a volume.
    pub files: Vec<u64>,
    /// The first block of the first file, or of the volume, that is asked for.
    pub first_block: u64,
}

impl Action for ListBlocks {
    const DECLARED: Declaration = Declaration::reads(
        "block-list",
        Part::Datasets,
        Role::Admin,
        "Lists blocks of files and volumes by what their pointers say, so that equal ones are found",
    )
    .in_words("list the blocks of", "dataset");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// Of the files in their order. An answer is not longer than some thousand blocks: files that are missing
    /// are to be asked for again.
    type Reply = Vec<ListedBlocks>;
}

/// Blocks of a file or volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedBlocks {
    /// The number of the file; none for a volume.
    pub file: Option<u64>,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// The blocks that can be shared.
    pub blocks: Vec<ListedBlock>,
    /// The block with which to go on, where there are more.
    pub next_block: Option<u64>,
    /// Why the file has none.
    pub error: Option<String>,
}

/// A block that can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedBlock {
    /// Its number in the file or volume.
    pub block: u64,
    /// The same for blocks of one pool that seem to be equal and are stored in the same way.
    pub digest: u64,
    /// The same where one stored block is shared.
    pub place: u64,
    /// The transaction group in which it was stored.
    pub birth: u64,
    /// Bytes that it takes on its vdevs.
    pub allocated_bytes: u64,
}

/// Has equal blocks shared: each pair is locked, compared byte for byte, and shared only where it is equal.
/// Contents, sizes and times stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ShareBlocks {
    /// The pairs, at most 1024, all of one pool.
    pub pairs: Vec<BlockPair>,
}

/// Blocks that seem to be equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockPair {
    /// What stays where it is.
    pub kept: BlockPlace,
    /// What becomes a reference to it.
    pub other: BlockPlace,
    /// How many blocks from there on, at most 256.
    pub blocks: u64,
}

/// A block of a file or volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockPlace {
    /// The filesystem or volume.
    pub dataset: String,
    /// The number of the file; none for a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<u64>,
    /// The number of the block.
    pub block: u64,
}

impl Action for ShareBlocks {
    const DECLARED: Declaration = Declaration::changes(
        "block-share",
        Part::Datasets,
        Role::Admin,
        Effects::DATASETS,
        "Compares blocks of files or volumes, and makes equal ones share their space",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// What became of the first pairs, in their order; the others are to be asked for again.
    type Reply = Vec<PairShared>;
}

/// What became of a pair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PairShared {
    /// Blocks that are shared now.
    pub shared_blocks: u64,
    /// Bytes that these took on their vdevs. They are free when no snapshot refers to them.
    pub allocated_bytes: u64,
    /// Blocks that were shared already.
    pub already_blocks: u64,
    /// Blocks that differ by now, or were written since the last commit: they are left alone.
    pub different_blocks: u64,
    /// Why nothing of it was shared.
    pub error: Option<String>,
}
