//! The pool: import, vdevs, zio, ARC, DMU, DSL, ZPL, volumes.
//!
//! The folders follow the way of a block from the edge to the platter; `ARCHITECTURE.md` has the table.
//! Everything is runtime-neutral `async` over `Send + Sync` shared state, and the block layer has one entry:
//! [`store::Store::read_block`].

#![forbid(unsafe_code)]

pub mod alloc;
pub mod background;
mod bookmark;
pub mod cache;
pub mod dmu;
pub mod dsl;
pub mod env;
pub mod error;
pub mod events;
pub mod inject;
pub mod jobs;
pub mod l2arc;
pub mod mos;
mod patience;
pub mod pool;
pub mod properties;
mod queue;
mod range_locks;
pub mod range_set;
pub mod receive;
pub mod scan;
pub mod send;
pub mod space_maps;
pub mod stats;
pub mod store;
mod tables;
pub mod traverse;
pub mod tunables;
pub mod txg;
pub mod vdev;
pub mod waits;
pub mod zil;
pub mod zio;
pub mod zpl;
pub mod zvol;

pub use bookmark::Bookmark;
pub use cache::Block;
pub use error::{Error, Result};
pub use store::Pool;
