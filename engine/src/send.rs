//! Send streams: a snapshot, or its changes since an earlier one, as records.
//!
//! # The idea
//! A [`Stream`] walks an object set in order ([`crate::traverse::Walk`] with gaps) and makes a record, or a
//! few, of all that it comes to: objects, blocks, holes, free slots. What was born before the ancestor is
//! left out with all that it leads to, so that an incremental stream costs what changed. The caller takes
//! the stream piece by piece ([`Stream::next`]), as fast as it likes; nothing is made ahead but reads.
//!
//! The stream is byte for byte the one that OpenZFS makes of the same snapshot with the same flags: the judge
//! of this module.
//!
//! # Invariants
//! - A stream reads one committed state, which it holds: its space is not reused meanwhile.
//! - Memory: at most `AHEAD_BYTES` (16 MiB) of blocks that are read ahead and one block more, 512 steps of
//!   the walk, and what the walk itself reads ahead (8 MiB).
//! - Damage ends the stream with an error. A stream without its end is refused by every receiver.
//! - What cannot be told to a receiver is refused before the first byte: redacted datasets.
//! - A stream has the byte order of the dataset's own block, so that nothing is converted. What was written
//!   in another order since is converted where that is possible, and refused otherwise.
//!
//! | module | what it owns |
//! |---|---|
//! | `plan`, `gather` | which streams a command makes, and the list before them |
//! | `estimate` | how large a stream will be |
//! | `token` | what a receiver has got of an interrupted stream |
//! | `begin` | features of a stream, the list after its first record, ancestors |
//! | `found` | what the walk comes to, as steps |
//! | `fetch` | blocks, read ahead |
//! | `records` | from steps to records |
//! | `stream` | all together |
//!
//! Source of the facts: OpenZFS 2.4 `dmu_send.c`, `dmu_traverse.c`, `libzfs_sendrecv.c`.

mod begin;
mod estimate;
mod fetch;
mod found;
mod gather;
mod plan;
mod records;
mod stream;
mod token;

use std::ops::Range;

use ondisk::{Guid, ObjectId, Txg};

pub use plan::{Order, Plan, Planned, Warning};
pub use stream::Stream;
pub use token::Token;

use crate::Block;
use crate::dsl::Dataset;

/// Most bytes of blocks that are read ahead of the record that is made (`zfs_send_queue_length`).
const AHEAD_BYTES: u64 = 16 << 20;
/// The message of ancestors that are none.
const NOT_EARLIER: &str = "not an earlier snapshot from the same fs";

/// What a receiver takes beyond plain records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    /// Records larger than 128 KiB (`-L`).
    pub large_blocks: bool,
    /// Blocks that are embedded in their pointers, as they are (`-e`).
    pub embedded: bool,
    /// Blocks compressed as they are on disk (`-c`).
    pub compressed: bool,
    /// Blocks of encrypted datasets as they are on disk, and all of the others (`-w`).
    pub raw: bool,
}

/// What an incremental stream builds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ancestor {
    /// Guid of the snapshot.
    pub guid: Guid,
    /// Group in which it was made.
    pub txg: Txg,
    /// Its set of IVs, if it is encrypted.
    ivset_guid: Guid,
    /// It is in the origin of a clone.
    is_other_dataset: bool,
    is_redacted: bool,
}

/// One stream.
#[derive(Debug, Clone)]
pub struct Request {
    /// The snapshot, or the filesystem or volume as it is in the state that is read.
    pub dataset: Dataset,
    /// What it is incremental from; none for a full stream.
    pub from: Option<Ancestor>,
    /// What the receiver takes.
    pub flags: Flags,
    /// The object, and the offset in it, from which an interrupted stream goes on.
    pub resume: Option<(ObjectId, u64)>,
}

/// A part of a stream.
#[derive(Debug, Clone)]
pub enum Piece {
    /// Records and small payloads.
    Bytes(Vec<u8>),
    /// A part of a block.
    Block(Block, Range<usize>),
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        match self {
            Piece::Bytes(bytes) => bytes,
            Piece::Block(block, range) => block.get(range.clone()).unwrap_or_default(),
        }
    }
}
