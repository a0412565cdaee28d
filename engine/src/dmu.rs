//! Objects: dnodes, block trees, ZAP and SA over blocks.
//!
//! An [`Objset`] is an array of dnodes. A dnode is the root of an [`Object`]: a tree of blocks that reads
//! like a sparse file. All other structures are objects: a [`zap`] is a dictionary inside one, [`sa`] are the
//! attributes in an object's bonus area and spill block. `ondisk` does the parsing. This folder finds the
//! block that holds the bytes, waits for it if necessary, and bounds every walk that bytes from a disk could
//! make endless.
//!
//! Blocks come from [`crate::store::Store::read_block`] verified, decrypted and decompressed, in the byte
//! order of the machine that wrote them. Code that reads numbers from a block gets that byte order with it.

mod difference;
#[cfg(test)]
pub(crate) mod forge;
pub mod live;
pub mod object;
pub mod objset;
mod payload;
pub mod reader;
pub(crate) mod room;
pub mod sa;
mod sibling_prefetch;
mod sink;
mod tree;
pub mod zap;

pub(crate) use difference::next_difference;
pub use difference::{DifferingObjects, differing_objects};
pub use live::{
    Dirtied, Early, LiveObject, LiveObjset, NewObject, Piece, Pieces, Policy, Shared, Space, Stored,
    StoredBlock, StoredBlocks, SyncedObjset,
};
pub(crate) use live::{RawDnode, pieces_of, references};
pub use object::{Object, Span};
pub use objset::Objset;
pub use payload::Payload;
pub use reader::Reader;
pub use room::Room;
pub use sink::Sink;
pub use tree::OrderedBlock;
