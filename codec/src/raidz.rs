//! RAID-Z: where the sectors of a block lie on the children of a raidz vdev, and the arithmetic that rebuilds
//! lost ones.
//!
//! - [`Raidz`] (in `geometry`) turns a logical range of the vdev into a [`Map`]: rows of columns, each column
//!   a piece of one child.
//! - `expansion` does the same for blocks that were written before the vdev was widened, and while the
//!   widening still runs.
//! - [`generate_parity`] and [`reconstruct()`] compute with the columns of one row.
//! - [`Map::hypotheses`] lists which columns to distrust, in which order, when every read succeeded and the
//!   checksum is still wrong.
//!
//! Nothing here does I/O. dRAID (`crate::draid`) produces the same [`Map`] and shares all that comes after
//! it.

mod combine;
mod expansion;
mod field;
mod geometry;
mod map;
mod parity;
mod reconstruct;

pub use expansion::Reflow;
pub use geometry::Raidz;
pub use map::{Column, Hypotheses, Map};
pub use parity::generate as generate_parity;
pub use reconstruct::reconstruct;

/// The largest parity of a raidz or draid vdev.
pub const MAX_PARITY: usize = 3;

/// The most children that a raidz or draid vdev can have.
pub const MAX_CHILDREN: usize = 255;

/// Largest physical size of one block (16 MiB), which bounds what a map can cover.
pub(crate) const MAX_BLOCK_BYTES: u64 = 16 << 20;

/// Why a layout or a rebuild was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The vdev's own numbers (parity, children, sector size, expansions) contradict each other.
    #[error("impossible raidz layout: {0}")]
    Layout(&'static str),
    /// The range asked for is not one that a block of this vdev can have.
    #[error("no block of this vdev can lie at offset {offset:#x} with {size} bytes")]
    Range {
        /// Logical offset in the vdev, in bytes.
        offset: u64,
        /// Physical size in bytes.
        size: u64,
    },
    /// More columns of a row are lost than there is usable parity.
    #[error("{missing} columns are lost but only {parity} parity columns are usable")]
    TooManyMissing {
        /// Lost columns.
        missing: usize,
        /// Parity columns that could be read.
        parity: usize,
    },
    /// The columns handed in are not a row of this layout.
    #[error("columns do not form a row: {0}")]
    Columns(&'static str),
}
