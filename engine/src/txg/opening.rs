//! Which opening of a pool transaction groups belong to.

use std::hash::{BuildHasher, Hasher, RandomState};

use ondisk::Txg;

/// One opening of a pool for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// A number that no other opening has.
    pub number: u64,
    /// The last group that was committed before it.
    pub synced: Txg,
}

impl Opening {
    /// A new one, after this group.
    pub(super) fn after(synced: Txg) -> Self {
        // Seeded at random by the standard library.
        Self { number: RandomState::new().build_hasher().finish(), synced }
    }
}
