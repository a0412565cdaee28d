//! Answers that last: streams of snapshots out and in, differences, and states that are lent to programs.
//!
//! Each of these holds a committed state for longer than a request takes. `lent_views` keeps count of these
//! states, so that a pool that has to be closed can take them back; the others stand on it.
//!
//! | module | what it owns |
//! |---|---|
//! | `lent_views` | committed states that are lent, to programs that read the devices themselves too |
//! | `send` | `zfs send` |
//! | `receive` | `zfs receive`: streams that become datasets |
//! | `diff` | `zfs diff`: what happened to the files of a filesystem |

pub(super) mod diff;
pub(super) mod lent_views;
pub(super) mod receive;
pub(super) mod send;
