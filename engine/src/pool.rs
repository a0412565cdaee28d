//! An open pool.

pub mod discovery;
pub mod errlog;
pub mod features;
pub mod history;
pub mod import;
pub mod properties;
pub mod space;
pub mod status;
pub mod verify;

use ondisk::blkptr::Blkptr;

use crate::cache::Block;
use crate::error::{Error, Result};
use crate::zio::Bookmark;

/// An open pool, shared as `Arc<Pool>`.
#[derive(Debug)]
pub struct Pool {
    name: String,
    root: Blkptr,
}

impl Pool {
    /// The name under which the pool is imported.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The block pointer of the meta object set, from the uberblock that the pool was opened at.
    pub fn root_blkptr(&self) -> &Blkptr {
        &self.root
    }

    /// The block that `bp` points to: from the ARC, or read, verified, decrypted and decompressed.
    ///
    /// A hole reads as zeroes of its logical size. `at` says which block this is, for error messages; it does not change what is read.
    /// When the block is cached the future completes in its first poll without allocating.
    pub async fn read_block(&self, bp: &Blkptr, at: &Bookmark) -> Result<Block> {
        if bp.is_hole() {
            return Ok(Block::zero(bp.lsize().to_usize().unwrap_or(usize::MAX)));
        }
        Err(Error::Unsupported(format!("{at}: this pool has no devices yet")))
    }
}
