//! What happens, and what follows from it: events, the feed of changes, what the daemon does by itself, and
//! the numbers of all that.
//!
//! | module | what it owns |
//! |---|---|
//! | `events` | the ring of events, and its file |
//! | `feed` | the feed of changes for its clients: snapshots, figures, words |
//! | `following` | volumes, block devices and the cache file, brought in line with the feed of changes |
//! | `agents` | what the daemon does by itself when something happens |
//! | `hooks` | commands and webhooks that run on events |
//! | `memory`, `what_if` | the size of the ARC, and what another size would do |
//! | `tunables` | numbers that can be set, and the files with them |
//! | `counters`, `iostat` | counters under OpenZFS's names, and of transfers |

mod agents;
pub(super) mod counters;
pub(super) mod events;
pub(super) mod feed;
pub(super) mod following;
pub(super) mod hooks;
mod iostat;
pub(super) mod memory;
mod tunables;
mod what_if;
