//! [`SiblingPrefetch`]: loads small files ahead of a reader that reads one after the other.
//!
//! # The idea
//! `tar`, `grep -r`, a compiler or a mail server read many files of one block each. A reader of one such file
//! has no blocks to read ahead, so each file would cost a wait for the devices. But files that were created
//! together have neighbouring dnodes. When [`ENOUGH`] files of one dnode block were begun, the first blocks
//! of all other files there are loaded too. When the files of a prefetched dnode block are being read, the
//! files of the next dnode block are loaded in advance. [`WATCHED`] dnode blocks are watched at a time:
//! enough for a directory of two thousand files that is read in the order of its hashes, and few enough that
//! scattered reads in a large tree never trigger loads.
//!
//! A reader notes here that it begins to read a file ([`Reader::load_ahead`](super::Reader::load_ahead)). The
//! loads are [`background`](crate::background) work, like a reader's own; they end in the ARC. Only files of
//! one block are loaded, because they are read whole. An error is ignored until its file is read.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `watched` | the dnode blocks that are watched; held to note one file, never across an await | taken alone |

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use device::IgnorePoison;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::ObjectId;
use ondisk::dmu::DmuType;

use super::object::Object;
use super::objset::Objset;

/// The number of dnode blocks that are watched at a time.
const WATCHED: usize = 64;
/// The number of files of a dnode block that must be begun before the others are loaded.
const ENOUGH: u32 = 3;
/// The number of files of a prefetched block that must be begun before the next block is loaded.
const ENOUGH_FOR_NEXT: u32 = 8;
/// The most bytes that are loaded for one dnode block.
const MOST_BYTES: u64 = 1 << 20;

/// The recent reads of files of an object set, by the places of their dnodes.
#[derive(Debug, Default)]
pub(super) struct SiblingPrefetch {
    /// The most recently used block is the first.
    watched: Mutex<VecDeque<Watched>>,
}

/// A dnode block whose files are being read.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    block: u64,
    /// The file that was begun last; 0 if there was none.
    last: u64,
    /// How many files were begun, not counting one that is begun again at once.
    begun: u32,
    is_loaded: bool,
    /// Whether the files of the next block are loaded.
    is_next_loaded: bool,
}

impl SiblingPrefetch {
    /// Notes that `object` will be read from its beginning.
    pub(super) fn note(&self, object: &Object) {
        let objset = object.objset();
        if !is_small_file(object) || !objset.primary().get().takes(false) {
            return;
        }
        let slots = objset.slots_per_dnode_block();
        let wanted = self.wanted(object.id().0, slots);
        if let Some(block) = wanted {
            let loaded = Arc::clone(objset);
            objset.pool().load_ahead(async move { load(&loaded, block, slots).await });
        }
    }

    /// The dnode block whose files should be loaded after `id` was begun.
    fn wanted(&self, id: u64, slots: u64) -> Option<u64> {
        let block = id / slots;
        let mut watched = self.watched.lock().ignore_poison();
        let place = watched.iter().position(|it| it.block == block);
        let known = place.and_then(|place| watched.remove(place));
        let mut here = known.unwrap_or(Watched { block, ..Watched::default() });
        let wanted = here.begin(id);
        if let Some(next) = wanted.filter(|wanted| *wanted != block) {
            if watched.iter().any(|it| it.block == next && it.is_loaded) {
                watched.push_front(here);
                return None;
            }
            watched.retain(|it| it.block != next);
            watched.push_front(Watched { block: next, is_loaded: true, ..Watched::default() });
        }
        watched.push_front(here);
        watched.truncate(WATCHED);
        wanted
    }
}

impl Watched {
    /// The dnode block whose files should be loaded after `id` of this one was begun.
    fn begin(&mut self, id: u64) -> Option<u64> {
        if self.last == id {
            return None;
        }
        (self.last, self.begun) = (id, self.begun.saturating_add(1));
        if !self.is_loaded {
            self.is_loaded = self.begun >= ENOUGH;
            return self.is_loaded.then_some(self.block);
        }
        let is_time = self.begun >= ENOUGH_FOR_NEXT && !self.is_next_loaded;
        self.is_next_loaded |= is_time;
        is_time.then_some(self.block + 1)
    }
}

/// Whether it is a file of one block.
fn is_small_file(object: &Object) -> bool {
    let dnode = object.dnode();
    dnode.dmu_type == DmuType::PLAIN_FILE_CONTENTS && dnode.max_block_id.0 == 0
}

/// Loads small files of a dnode block.
async fn load(objset: &Arc<Objset>, block: u64, slots: u64) {
    let mut bytes = 0;
    let mut loads = FuturesUnordered::new();
    // Not by searching the next object: it may be far away.
    for id in block * slots..(block + 1) * slots {
        if let Ok(object) = objset.object(ObjectId(id)).await
            && is_small_file(&object)
        {
            bytes += object.block_size();
            if bytes > MOST_BYTES {
                break;
            }
            loads.push(async move { object.warm(0).await });
        }
    }
    while loads.next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u64 = 32;

    fn wanted(prefetch: &SiblingPrefetch, ids: impl IntoIterator<Item = u64>) -> Vec<u64> {
        ids.into_iter().filter_map(|id| prefetch.wanted(id, SLOTS)).collect()
    }

    #[test]
    fn files_read_in_order_are_loaded_a_block_ahead_and_once() {
        assert_eq!(wanted(&SiblingPrefetch::default(), 64..192), [2, 3, 4, 5, 6]);
        assert_eq!(wanted(&SiblingPrefetch::default(), (64..192).flat_map(|id| [id, id])), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn files_of_a_directory_in_any_order_are_loaded_once() {
        let mut loaded = wanted(&SiblingPrefetch::default(), (0..1600).map(|n| 64 + n * 1597 % 1600));
        loaded.sort_unstable();
        // The block after the last one has none of them.
        assert_eq!(loaded, (2..=52).collect::<Vec<_>>());
    }

    #[test]
    fn files_here_and_there_load_nothing() {
        assert!(wanted(&SiblingPrefetch::default(), (0..1000).map(|n| n * 7919 % 1_000_003)).is_empty());
        // The same two files again and again do not count.
        assert!(wanted(&SiblingPrefetch::default(), [70, 70, 70, 70]).is_empty());
    }

    #[test]
    fn two_who_read_at_once_do_not_disturb_each_other() {
        let both = (0..64).flat_map(|n| [64 + n, 6400 + n]);
        assert_eq!(wanted(&SiblingPrefetch::default(), both), [2, 200, 3, 201, 4, 202]);
    }
}
