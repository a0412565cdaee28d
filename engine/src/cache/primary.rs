//! `primarycache`: what of a dataset the ARC takes in.
//!
//! # The idea
//! A read says what it wants the cache to hold afterwards ([`Retain`]). Of a dataset that is cached that is
//! always the block. Of one that is not, what was loaded goes to the reader and nowhere else, with one
//! exception: what is read ahead of a stream, or before a group in which a part of it is changed, has to wait
//! somewhere. That waits in the ARC, and who reads it to its end, or changes it, takes it out again. So a
//! stream in small pieces loads each block once, and random reads go to the devices each time.
//!
//! Metadata are indirect blocks, spill blocks, dnodes, and objects of a type that is metadata (directories
//! and the like), as in OpenZFS.
//!
//! Source of the facts: OpenZFS 2.3 `dbuf.h` (`DBUF_IS_CACHEABLE`), `dbuf.c` (`dbuf_is_metadata`), `arc.c`
//! (the state of what is not cached).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The values of `primarycache`, by the numbers that they are stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Primary {
    /// Nothing.
    None = 0,
    /// Metadata only.
    Metadata = 1,
    /// Everything.
    #[default]
    All = 2,
}

impl Primary {
    /// The value that is stored as `number`; everything is cached where that is none.
    pub fn from_number(number: u64) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Metadata,
            _ => Self::All,
        }
    }

    /// Whether such a block is taken in.
    pub fn takes(self, is_metadata: bool) -> bool {
        match self {
            Self::None => false,
            Self::Metadata => is_metadata,
            Self::All => true,
        }
    }
}

/// The `primarycache` of an open object set, for all who read it: it can be set meanwhile.
#[derive(Debug, Clone)]
pub struct PrimaryCache(Arc<AtomicU8>);

impl Default for PrimaryCache {
    fn default() -> Self {
        Self(Arc::new(AtomicU8::new(Primary::default() as u8)))
    }
}

impl PrimaryCache {
    /// What it is.
    pub fn get(&self) -> Primary {
        Primary::from_number(self.0.load(Ordering::Relaxed).into())
    }

    /// From the next block on.
    pub fn set(&self, primary: Primary) {
        self.0.store(primary as u8, Ordering::Relaxed);
    }
}

/// What a read or a write of a block leaves in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retain {
    /// The block.
    In,
    /// The block, for somebody who is going to read it: that read will be its first use.
    Ahead,
    /// What there was: the block if it was there, or if what it is written instead of was.
    AsItWas,
    /// Not the block, nor what it is written instead of.
    Out,
}

impl Retain {
    /// What a read up to byte `end` of a block of `size` bytes leaves of a block that is not to be cached:
    /// whoever goes on after it needs it again.
    pub fn of_part(end: usize, size: u64) -> Self {
        if end as u64 >= size { Self::Out } else { Self::AsItWas }
    }
}
