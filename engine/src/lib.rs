//! The pool: import, vdevs, zio, ARC, DMU, DSL, ZPL, volumes.
//!
//! The folders follow the way of a block from the edge to the platter; `ARCHITECTURE.md` has the table.
//! Everything is runtime-neutral `async` over `Send + Sync` shared state, and the block layer has one entry:
//! [`Pool::read_block`].

pub mod alloc;
pub mod background;
pub mod cache;
pub mod dataset;
pub mod dmu;
pub mod env;
pub mod error;
pub mod pool;
mod queue;
pub mod txg;
pub mod vdev;
pub mod zil;
pub mod zio;

pub use cache::Block;
pub use error::{Error, Result};
pub use pool::Pool;
pub use zio::Bookmark;
