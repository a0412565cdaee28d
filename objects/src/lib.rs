//! A device in an object store: a log of large immutable objects, and a map of what lies where in them.
//!
//! # The idea
//! Writes are gathered into *segments*, objects of up to 16 MiB that never change. A flush makes a *commit*:
//! a small object, numbered in sequence, that lists what was written since the one before, and carries the
//! bytes itself when they are few. The *map* says for each sector of the device which object has it and
//! where. Now and then the map is stored as a *checkpoint*, so that opening the device reads that and the
//! commits after it. What is no longer needed is deleted object by object; segments that are needed in part
//! are *compacted*.
//!
//! # One owner
//! A commit is made with a `PUT` that succeeds only where no object of that name is. So a sequence has one
//! commit, whatever is sent twice, late, or by two hosts. Who opens the device to write takes it over: it
//! reads commits up to the first that is missing, and makes that one. The owner before finds it there at its
//! next flush, and ends before it has acknowledged anything. Commits that took over are never deleted, so
//! that a request that was on its way all the time finds them too.
//!
//! # What is relied on
//! See [`bucket`]: that each key alone behaves, nothing more. Checkpoints are numbered like commits, so that
//! the newest is found without a listing. Where one is no longer the newest, a pointer replaces it before
//! anything is deleted that it needs; pointers stay, so that a number is never made twice.
//!
//! | module | what it owns |
//! |---|---|
//! | `address` | where a device is |
//! | `opener` | devices by their addresses, for a pool |
//! | [`bucket`] | what is asked of a store |
//! | [`format`](mod@format) | objects to the byte |
//! | `map` | where each sector is |
//! | `opening` | a device that is made, found, taken over |
//! | `core` | a device that is open: reads, writes, commits, checkpoints, compaction |
//! | [`check`] | what is needed, whether it is right, and what is left over |
//! | `device` | the device as the pool has it |
//! | [`lease`] | a sign of life of the owner, for hosts that stand by |
//! | `probe` | whether a store keeps to what is relied on |
//! | `requests` | asking again |
//! | `error` | what can go wrong |

mod address;
pub mod bucket;
pub mod check;
mod core;
mod device;
mod error;
pub mod format;
pub mod lease;
mod map;
mod opener;
mod opening;
mod probe;
mod requests;

pub use address::{Address, AddressError, Scheme};
pub use core::{Core, Counts, Options};
pub use device::{Mode, ObjectDevice};
pub use error::{Damage, Error};
pub use opener::{LOCKS_VARIABLE, ProvideError, provide, register};
pub use opening::{create, open, open_to_read};
pub use probe::{Lack, ProbeError, probe};
