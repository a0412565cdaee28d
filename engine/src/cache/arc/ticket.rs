//! The load of a block: what its loader holds until it is done.

use std::sync::Arc;

use super::flight::{Flight, Outcome};
use super::shard::{Freed, RECENT};
use super::{ArcCache, Key};
use crate::cache::{Block, Loaded, Retain};
use crate::error::Result;

/// The right and the duty to load one block. If it is dropped without [`Ticket::finish`], a waiter takes
/// over.
pub(super) struct Ticket<'a> {
    pub(super) cache: &'a ArcCache,
    pub(super) hash: u64,
    pub(super) key: Key,
    pub(super) flight: Arc<Flight>,
}

impl Ticket<'_> {
    /// Ends the load: the cache keeps the block where `retain` says so, and those who wait get it.
    pub(super) fn finish(self, loaded: Result<Loaded>, retain: Retain) -> Result<Block> {
        let result = loaded.as_ref().map(|loaded| loaded.block.clone()).map_err(Clone::clone);
        let freed = {
            let mut shard = self.cache.shard(self.hash);
            shard.flights.remove(&self.key);
            shard.budget = self.cache.share();
            match loaded {
                Ok(loaded) if retain == Retain::In || retain.waits() => {
                    let freed = shard.insert_into(RECENT, self.hash, self.key, loaded, retain.waits());
                    if retain == Retain::Ahead {
                        shard.note_prefetched(self.hash, &self.key);
                    }
                    freed
                }
                _ => Freed::default(),
            }
        };
        // Freed outside of the lock.
        self.cache.note_evicted(&freed);
        drop(freed);
        self.flight.land(Outcome::Done(result.clone()));
        result
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.flight.is_under_way() {
            self.cache.shard(self.hash).flights.remove(&self.key);
            self.flight.land(Outcome::Abandoned);
        }
    }
}
