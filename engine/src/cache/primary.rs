//! `primarycache` and `secondarycache`: which blocks of a dataset the ARC and cache devices keep.
//!
//! # The idea
//! A reader specifies what the cache shall hold afterwards ([`Retain`]). For a cached dataset that is always
//! the block. For an uncached dataset, a loaded block goes only to the reader, with one exception: a block
//! that is read ahead of a stream, or before a change of a part of it, has to wait somewhere. It waits in the
//! ARC, and the reader that reads it to its end, or the change, removes it again. So a stream in small pieces
//! loads each block once, and random reads go to the devices each time.
//!
//! Metadata are indirect blocks, spill blocks, dnodes, and objects of a type that is metadata (directories
//! and the like), as in OpenZFS.
//!
//! Source of the facts: OpenZFS 2.3 `dbuf.h` (`DBUF_IS_CACHEABLE`), `dbuf.c` (`dbuf_is_metadata`), `arc.c`
//! (the state of what is not cached).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The values of `primarycache` and `secondarycache`, by their stored numbers.
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
    /// The value with the stored `number`; an unknown number means all.
    pub fn from_number(number: u64) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Metadata,
            _ => Self::All,
        }
    }

    /// Whether a block of this kind is cached.
    pub fn takes(self, is_metadata: bool) -> bool {
        match self {
            Self::None => false,
            Self::Metadata => is_metadata,
            Self::All => true,
        }
    }
}

/// The `primarycache` and the `secondarycache` of an open object set, shared by all its readers: they can be
/// set meanwhile.
#[derive(Debug, Clone)]
pub struct PrimaryCache(Arc<[AtomicU8; 2]>);

impl Default for PrimaryCache {
    fn default() -> Self {
        Self(Arc::new([(); 2].map(|()| AtomicU8::new(Primary::default() as u8))))
    }
}

impl PrimaryCache {
    /// The present value.
    pub fn get(&self) -> Primary {
        Primary::from_number(self.0[0].load(Ordering::Relaxed).into())
    }

    /// Sets the value, from the next block on.
    pub fn set(&self, primary: Primary) {
        self.0[0].store(primary as u8, Ordering::Relaxed);
    }

    /// The present `secondarycache`. A cache device gets only blocks that the ARC has.
    pub fn secondary(&self) -> Primary {
        Primary::from_number(self.0[1].load(Ordering::Relaxed).into())
    }

    /// Sets `secondarycache`, for blocks that come into the ARC from now on.
    pub fn set_secondary(&self, secondary: Primary) {
        self.0[1].store(secondary as u8, Ordering::Relaxed);
    }
}

/// What the cache holds after a read or a write of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retain {
    /// The block.
    In,
    /// The block, for a reader that will come: that read will be its first use.
    Ahead,
    /// The block, for a change of a part of it, which reads it then.
    ForChange,
    /// The same as before: the block if it, or the block that it overwrites, was in the cache.
    AsItWas,
    /// Neither the block nor the block that it overwrites.
    Out,
}

impl Retain {
    /// Whether the block waits in the cache for a read that is to come.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::Ahead | Self::ForChange)
    }

    /// The choice for an uncached block of `size` bytes after a read up to byte `end`: a reader that stops
    /// before the end needs the block again.
    pub fn of_part(end: usize, size: u64) -> Self {
        if end as u64 >= size { Self::Out } else { Self::AsItWas }
    }
}
