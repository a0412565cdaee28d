//! Space: which is free, and who gets it. How that is kept on disk is [`crate::space_maps`].
//!
//! A top-level vdev is cut into metaslabs. What is allocated in each is an object in the MOS, its space map:
//! a log of allocations and frees. In memory a metaslab is the set of its free runs, and what the groups not
//! yet committed changed.
//!
//! | module | what it owns |
//! |---|---|
//! | `free_set` | the free runs of a metaslab by place and by length |
//! | `metaslab` | one metaslab: free, allocating, freeing, deferred |
//! | `group` | the metaslabs of one vdev: which one gives the next block |
//! | `class` | vdevs of one purpose: which one gives the next block |
//! | `allocator` | all of a pool, by class |
//! | `log` | the log space maps: what is in them, and when metaslabs are flushed |
//! | `vdev_map` | space maps of whole vdevs: what is obsolete of removed ones, what is kept for the checkpoint |
//! | `grow` | vdevs that become larger |
//! | `checkpoint` | space that only the checkpoint refers to: keeping it, giving it up |

pub mod allocator;
pub(crate) mod checkpoint;
pub(crate) mod class;
pub(crate) mod free_set;
pub(crate) mod group;
pub(crate) mod grow;
pub(crate) mod log;
pub(crate) mod metaslab;
mod slop;
mod trim;
pub(crate) mod vdev_map;

pub use allocator::{Allocator, ClassSpace, Denied, MetaslabId};
pub(crate) use slop::slop_bytes;
pub use trim::Run;
