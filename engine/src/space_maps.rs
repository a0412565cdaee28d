//! Space maps: the allocated space, as the MOS records it.
//!
//! A top-level vdev is cut into metaslabs. Each has an object in the MOS, its space map: a log of allocations
//! and frees. In pools with the feature `log_spacemap`, the changes of a group first go into a log for all
//! metaslabs together. The sets of free runs, from which blocks are allocated, are in memory, in
//! [`crate::alloc`].
//!
//! | module | what it owns |
//! |---|---|
//! | `load` | reading space maps when a pool is opened, and laying out a new vdev |
//! | `sync` | writing the changes of a group |
//! | `flush` | writing the log, and metaslabs that are flushed |
//! | `replay` | reading a space map object |
//! | `append` | the words of a change |
//! | `vdev_maps` | space maps of whole vdevs |
//! | `checkpoint` | freeing the space that was kept for a checkpoint |
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
