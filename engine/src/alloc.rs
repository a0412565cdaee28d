//! Space: which of it is free, and which block gets it. [`crate::space_maps`] keeps it on disk.
//!
//! A top-level vdev is cut into metaslabs. Each metaslab has an object in the MOS that records its allocated
//! space, the space map: a log of allocations and frees. In memory a metaslab is the set of its free runs,
//! and the changes of the groups that are not committed yet.
//!
//! | module | what it owns |
//! |---|---|
//! | `free_set` | the free runs of a metaslab by place and by length |
//! | `metaslab` | one metaslab: free, allocating, freeing, deferred |
//! | `group` | the metaslabs of one vdev: which one gives the next block |
//! | `class` | vdevs of one purpose: which one gives the next block |
//! | `allocator` | all space of a pool, by class |
//! | `log` | the log space maps: their contents, and when metaslabs are flushed |
//! | `vdev_map` | space maps of whole vdevs: obsolete ranges, ranges kept for the checkpoint |
//! | `grow` | vdevs that become larger |
//! | `checkpoint` | space that only the checkpoint refers to: keeping it, and freeing it afterwards |

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
