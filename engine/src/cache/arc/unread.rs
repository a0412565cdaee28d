//! Blocks that were loaded ahead of a stream, and evicted before they were read.
//!
//! A shard remembers the hashes of a few that were evicted last. Ghosts may be too few for that: there are
//! none while all blocks are recent.

/// Places for hashes.
const PLACES: usize = 256;

/// The hashes, each in the place that follows from it.
#[derive(Debug)]
pub(super) struct Unread([u64; PLACES]);

impl Default for Unread {
    fn default() -> Self {
        Self([0; PLACES])
    }
}

impl Unread {
    /// A block is evicted.
    pub(super) fn note(&mut self, hash: u64) {
        self.0[hash as usize % PLACES] = hash;
    }

    /// A block is read that is not there. True, once, if it was evicted unread.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        let place = &mut self.0[hash as usize % PLACES];
        let is_known = *place == hash;
        if is_known {
            *place = 0;
        }
        is_known
    }
}
