//! Room for dirty bytes: in the limit of the pool, and in what the cache lends to all pools.
//!
//! Pools take of the same cache, so what was found to be free is claimed in one step: [`Txgs::try_lend`]
//! fails when the cache lends more or less by now than [`Txgs::room`] saw, and the caller looks again.

use super::limits::{self, LEAST_DIRTY_BYTES};
use super::{State, Tx, Txgs};

/// Whether a change may begin, as far as memory goes.
#[derive(Debug)]
pub(super) struct Room {
    /// It fits the limits.
    pub(super) fits: bool,
    /// The cache lends as much, though it may exceed the limit of the pool.
    pub(super) fits_over: bool,
    /// What the cache lent when this was found.
    pub(super) lent_bytes: u64,
}

impl Txgs {
    /// Adds dirty bytes of a held group, if there is room for them.
    pub(super) fn try_make_dirty(&self, tx: &Tx, more: u64) -> bool {
        if more == 0 {
            return true;
        }
        let mut state = self.state();
        let room = self.room(&state, more);
        if !room.fits_over || !self.try_lend(more, room.lent_bytes) {
            return false;
        }
        let index = usize::from(tx.txg() != state.open);
        let was_clean = state.dirty[index] == 0;
        state.dirty[index] = state.dirty[index].saturating_add(more);
        if index == 0 && was_clean {
            self.due.notify_all();
        }
        state.lanes.change(tx.who, index, more, 0);
        drop(state);
        if let Some(cache) = &self.cache {
            cache.make_room_for_lent(more);
        }
        true
    }

    /// Subtracts dirty bytes of a held group.
    pub(super) fn make_less_dirty(&self, tx: &Tx, less: u64) {
        if less == 0 {
            return;
        }
        let mut state = self.state();
        let index = usize::from(tx.txg() != state.open);
        let less = less.min(state.dirty[index]);
        state.dirty[index] -= less;
        state.lanes.change(tx.who, index, 0, less);
        state.lanes.wake_all();
        drop(state);
        self.give_back(less);
    }

    /// Whether `bytes` more may be dirty. A pool without dirty data may always begin a change, so that a
    /// change larger than the whole budget goes alone. A few bytes are reserved for every pool, so that it
    /// does not wait for another pool, perhaps a suspended one, whose dirty bytes use up all that the shared
    /// cache lends.
    pub(super) fn room(&self, state: &State, bytes: u64) -> Room {
        let before: u64 = state.dirty.iter().sum();
        let dirty = before.saturating_add(bytes);
        let Some(cache) = &self.cache else {
            return Room { fits: before == 0 || dirty <= self.dirty_limit(), fits_over: true, lent_bytes: 0 };
        };
        let (lent_bytes, most) = (cache.lent_bytes(), limits::most_lent(cache));
        let is_lent = |most: u64| {
            let is_reserved = before == 0 || dirty <= LEAST_DIRTY_BYTES;
            is_reserved || lent_bytes.saturating_add(bytes) <= most
        };
        let fits = before == 0 || dirty <= self.dirty_limit() && is_lent(limits::without_over(most));
        Room { fits, fits_over: is_lent(most), lent_bytes }
    }

    /// Takes memory for dirty bytes from the cache, as long as it lends no more than before.
    pub(super) fn try_lend(&self, bytes: u64, lent_bytes: u64) -> bool {
        self.cache.as_ref().is_none_or(|cache| cache.try_lend(bytes, lent_bytes))
    }
}
