//! Space: which is free, who gets it, and how that is kept on disk.
//!
//! A top-level vdev is cut into metaslabs. What is allocated in each is an object in the MOS, its space map:
//! a log of allocations and frees. In memory a metaslab is the set of its free runs, and what the groups not
//! yet committed changed.
//!
//! | module | what it owns |
//! |---|---|
//! | `range_set` | sets of disjoint ranges |
//! | `free_set` | the free runs of a metaslab by place and by length |
//! | `metaslab` | one metaslab: free, allocating, freeing, deferred |
//! | `group` | the metaslabs of one vdev: which one gives the next block |
//! | `class` | vdevs of one purpose: which one gives the next block |
//! | `allocator` | all of a pool, by class |
//! | `load` | reading it when a pool is opened |
//! | `sync` | writing what a group changed |
//! | `log` | the log space maps: what is in them, and when metaslabs are flushed |
//! | `flush` | writing the log, and metaslabs that are flushed |
//! | `space_map` | space map objects: reading, and which words a change becomes |
//! | `vdev_map` | space maps of whole vdevs: what is obsolete of removed ones, what is kept for the checkpoint |
//! | `grow` | vdevs that become larger |
//! | `checkpoint` | space that only the checkpoint refers to: keeping it, giving it up |

pub mod allocator;
mod checkpoint;
mod class;
mod flush;
mod free_set;
mod group;
mod grow;
mod load;
mod log;
mod metaslab;
pub mod range_set;
mod remove;
mod slop;
pub mod space_map;
mod sync;
mod trim;
mod vdev_map;

pub use allocator::{Allocator, ClassSpace, Denied, MetaslabId};
pub(crate) use load::choose_ms_shift;
pub use range_set::RangeSet;
pub(crate) use slop::slop_bytes;
pub use trim::Run;

#[cfg(test)]
mod golden_tests;
