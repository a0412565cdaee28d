//! Tables of blocks with several pointers.
//!
//! Most blocks have one pointer, and are free when that is gone. If a pool has more pointers to one block, a
//! table counts them. So whenever a block of data is freed, the code first asks: is this the last reference
//! ([`Tables::release`])? Only this module knows which tables a pool has.
//!
//! | module | what it owns |
//! |---|---|
//! | [`brt`] | blocks that were cloned (`block_cloning`) |

mod brt;

use std::sync::Arc;

use ondisk::blkptr::Blkptr;

use crate::Pool;
use crate::dmu::LiveObjset;
use crate::error::Result;
use crate::mos::MosTask;
use brt::Brt;

/// The tables of a pool that is open for writing.
#[derive(Debug, Default)]
pub struct Tables {
    brt: Brt,
}

impl Tables {
    /// Reads the tables of a pool.
    pub(crate) async fn load(pool: &Pool, mos: &Arc<LiveObjset>) -> Result<Self> {
        Ok(Self { brt: Brt::load(pool, mos).await? })
    }

    /// A reference to a block is gone. Returns true when it was the last one, so that the block must be
    /// freed.
    pub(crate) async fn release(&self, m: &MosTask, bp: &Blkptr) -> Result<bool> {
        self.brt.release(m, bp).await
    }

    /// Counts new references to used blocks, one for each given pointer. Must be called before the first
    /// release in the same group.
    pub(crate) async fn reference(&self, m: &MosTask, pointers: &[Blkptr]) -> Result<()> {
        self.brt.reference(m, pointers).await
    }

    /// Writes the changes, after all of the group's references and releases.
    pub(crate) async fn write(&self, m: &MosTask) -> Result<()> {
        self.brt.write(m).await
    }

    /// The deflated bytes that blocks would occupy in addition if each pointer had its own.
    pub(crate) fn saved_bytes(&self) -> u64 {
        self.brt.saved_bytes()
    }
}
