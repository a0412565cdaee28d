//! Blocks in memory: the [`Block`] handle and the ARC that keeps them under one byte budget.

pub mod arc;
pub mod block;
mod counting;
pub mod primary;
pub mod sizing;
pub mod what_if;

pub use arc::{ArcCache, ArcStats};
pub use block::Block;
pub use primary::{Primary, PrimaryCache, Retain};
