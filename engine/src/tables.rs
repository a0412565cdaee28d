//! Tables of blocks that several pointers refer to.
//!
//! Most blocks have one pointer, and are free when that is gone. Where a pool has more for one block, a table
//! counts them. So wherever a block of data is freed, one question is asked first: is this the last
//! reference ([`Tables::release`])? Nothing else in the engine knows which tables a pool has.
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

/// The tables of a pool that is written.
#[derive(Debug, Default)]
pub struct Tables {
    brt: Brt,
}

impl Tables {
    /// Reads what a pool has.
    pub(crate) async fn load(pool: &Pool, mos: &Arc<LiveObjset>) -> Result<Self> {
        Ok(Self { brt: Brt::load(pool, mos).await? })
    }

    /// A reference to a block is gone. True when it was the last one, so that the block is to be freed.
    pub(crate) async fn release(&self, m: &MosTask, bp: &Blkptr) -> Result<bool> {
        self.brt.release(m, bp).await
    }

    /// Counts new references to blocks that are in use, one for each pointer given. Before anything is
    /// released in the same group.
    pub(crate) async fn reference(&self, m: &MosTask, pointers: &[Blkptr]) -> Result<()> {
        self.brt.reference(m, pointers).await
    }

    /// Writes what changed, after all of the group's references and releases.
    pub(crate) async fn write(&self, m: &MosTask) -> Result<()> {
        self.brt.write(m).await
    }

    /// Deflated bytes that blocks would take more if each pointer had its own.
    pub(crate) fn saved_bytes(&self) -> u64 {
        self.brt.saved_bytes()
    }
}
