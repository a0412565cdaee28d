//! Space maps and metaslabs, read for verification.
//!
//! | module | what it owns |
//! |---|---|
//! | `range_set` | sets of disjoint ranges |
//! | `space_map` | reading a space map object into one |

pub mod range_set;
pub mod space_map;

pub use range_set::RangeSet;

pub mod allocator;

pub use allocator::{Allocator, ClassSpace, NoSpace};
