//! Blocks in memory: the [`Block`] handle and the ARC that keeps them under one byte budget.

pub mod block;

pub use block::{AlignedBuf, Block};
