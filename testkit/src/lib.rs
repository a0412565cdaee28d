//! What the tests of every crate share: the golden pools that OpenZFS made, and the manifests that say what a
//! right reader sees in them.
//!
//! Nothing here is linked into the product. Nothing here knows the engine: a test brings its own reader as a
//! [`manifest::Tree`], so that the engine, the FUSE mount and `extract` are judged by the same code.

pub mod crash;
pub mod fsx;
pub mod golden;
pub mod kernel;
pub mod manifest;
pub mod mutate;
pub mod oracle;
pub mod search;
mod skip;
pub mod tree;
pub mod ztest;

pub use golden::GoldenPool;
pub use kernel::KernelVm;
pub use manifest::{HostTree, Manifest, Tree};
pub use mutate::Rng;
pub use skip::skipped;
