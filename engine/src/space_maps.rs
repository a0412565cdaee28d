//! Space maps: what is allocated, as the MOS has it.
//!
//! A top-level vdev is cut into metaslabs, each with an object in the MOS, its space map: a log of allocations
//! and frees. What groups change is first put into logs for all metaslabs together where the pool has the
//! feature `log_spacemap`. The sets of free runs that blocks are given from are in memory, in
//! [`crate::alloc`].
//!
//! | module | what it owns |
//! |---|---|
//! | `load` | reading it when a pool is opened, and laying out a new vdev |
//! | `sync` | writing what a group changed |
//! | `flush` | writing the log, and metaslabs that are flushed |
//! | `replay` | reading a space map object |
//! | `append` | which words a change becomes |
//! | `vdev_maps` | space maps of whole vdevs |
//! | `checkpoint` | giving up what is kept for a checkpoint |
//! | `remove` | vdevs that leave the pool |
//! | `dtl` | dirty time logs, which have the same format |

mod append;
mod checkpoint;
mod dtl;
mod flush;
mod load;
mod remove;
pub mod replay;
mod sync;
mod vdev_maps;

pub(crate) use dtl::sync_dtls;

#[cfg(test)]
mod golden_tests;
