//! Blocks in memory: the [`Block`] handle and the ARC that keeps them under one byte budget.

pub mod arc;
pub mod block;
mod candidate;
mod counting;
mod packed;
pub mod primary;
pub mod sizing;
pub mod what_if;

pub use arc::{ArcCache, ArcStats};
pub(crate) use arc::{Feedable, Selection};
pub use block::Block;
pub(crate) use block::SealedForm;
pub use candidate::Loaded;
pub(crate) use candidate::{Candidate, ForDevice, fitted, is_kept_compressed};
pub(crate) use packed::{Packed, kept_bytes};
pub use primary::{Primary, PrimaryCache, Retain};
