//! Tables of blocks with several pointers.
//!
//! Most blocks have one pointer, and are free when that is gone. If a pool has more pointers to one block, a
//! table counts them. So whenever a block of data is freed, the code first asks: is this the last reference
//! ([`Tables::release`])? Only this module knows which tables a pool has.
//!
//! | module | what it owns |
//! |---|---|
//! | [`brt`] | blocks that were cloned (`block_cloning`) |
//! | [`ddt`] | deduplicated blocks |
//!
//! # Order
//! A deduplicated block is in a dedup table, and a clone of it is one reference more there. Only when that
//! table does not know the block (its entry was pruned) the block is an ordinary one: the block reference
//! table is asked, and when that does not know it either, its space is free. New references go the same way.
//!
//! # No clones of pruned blocks
//! A deduplicated block without an entry should have no entry in the block reference table either: OpenZFS
//! 2.4.0 to 2.4.2 do not look there when they free it. So such a block is not cloned but copied
//! ([`ddt::DedupReferences`]). There are two exceptions, and the order above is right for both: pools in
//! which OpenZFS, or an earlier version of this, made such clones; and records of clones in an intent log of
//! OpenZFS, which count as references until they are replayed (as copies).
//!
//! Source of the facts: OpenZFS 2.4 `brt.c` (`brt_pending_apply`), `zio.c` (`zio_ddt_free`, `zio_brt_free`).

mod brt;
pub(crate) mod ddt;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ondisk::blkptr::Blkptr;

use crate::Pool;
use crate::dmu::LiveObjset;
use crate::dmu::references::References;
use crate::error::Result;
use crate::mos::MosTask;
use crate::txg::Txgs;
use crate::zio::dedup::DedupTable;
use brt::Brt;
use ddt::{Ddt, DedupReferences, Newest, Released};

/// The tables of a pool that is open for writing.
#[derive(Debug)]
pub struct Tables {
    brt: Brt,
    ddt: Arc<Ddt>,
    /// Of this group.
    freed_at_once: AtomicUsize,
}

impl Tables {
    /// No tables yet.
    pub(crate) fn none(mos: &Arc<LiveObjset>) -> Self {
        Self { brt: Brt::default(), ddt: Arc::new(Ddt::none(mos)), freed_at_once: AtomicUsize::new(0) }
    }

    /// Reads the tables of a pool.
    pub(crate) async fn load(pool: &Pool, mos: &Arc<LiveObjset>) -> Result<Self> {
        let (brt, ddt) = (Brt::load(pool, mos).await?, Arc::new(Ddt::load(mos).await?));
        Ok(Self { brt, ddt, freed_at_once: AtomicUsize::new(0) })
    }

    /// The dedup tables, as the writer of blocks sees them.
    pub(crate) fn for_writer(&self) -> Arc<dyn DedupTable> {
        Arc::clone(&self.ddt) as Arc<dyn DedupTable>
    }

    /// The dedup tables.
    pub(crate) fn ddt(&self) -> &Ddt {
        &self.ddt
    }

    /// Whether the pool has a dedup table.
    pub(crate) fn has_dedup(&self) -> bool {
        self.ddt.has_table()
    }

    /// How many of `most` deduplicated blocks that files gave up this group may still free.
    pub(crate) fn may_free_at_once(&self, most: usize) -> usize {
        most.saturating_sub(self.freed_at_once.load(Ordering::Relaxed))
    }

    /// So many deduplicated blocks that files gave up are freed in this group.
    pub(crate) fn freed_at_once(&self, blocks: usize) {
        self.freed_at_once.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Reads what is known of blocks that will be released, many at a time.
    pub(crate) async fn prepare_release(&self, blocks: &[Blkptr]) -> Result<()> {
        self.ddt.load_of(blocks).await
    }

    /// A reference to a block is gone. Returns true when it was the last one, so that the block must be
    /// freed.
    pub(crate) async fn release(&self, m: &MosTask, bp: &Blkptr) -> Result<bool> {
        match self.ddt.release(bp).await? {
            Released::Counted => Ok(false),
            Released::Unknown => self.brt.release(m, bp).await,
        }
    }

    /// Counts new references to used blocks, one for each given pointer. Must be called at the beginning of a
    /// group's sync, before the first release.
    pub(crate) async fn reference(&self, m: &MosTask, pointers: &[Blkptr]) -> Result<()> {
        self.freed_at_once.store(0, Ordering::Relaxed);
        self.ddt.begin(m).await?;
        let ordinary = self.ddt.reference(m.txg(), pointers).await?;
        self.brt.reference(m, &ordinary).await
    }

    /// The group that was written is committed.
    pub(crate) fn committed(&self) {
        self.ddt.committed();
    }

    /// Who knows which deduplicated blocks of a pool with these groups and views may be cloned.
    pub(crate) fn references(&self, txgs: &Arc<Txgs>, views: Arc<dyn Newest>) -> Arc<dyn References> {
        Arc::new(DedupReferences::new(Arc::clone(&self.ddt), Arc::clone(txgs), views))
    }

    /// Writes the changes, after all of the group's references and releases.
    pub(crate) async fn write(&self, m: &MosTask) -> Result<()> {
        self.ddt.write(m).await?;
        self.brt.write(m).await
    }

    /// The deflated bytes that blocks would occupy in addition if each pointer had its own.
    pub(crate) fn saved_bytes(&self) -> u64 {
        self.brt.saved_bytes().saturating_add(self.ddt.saved_bytes())
    }
}
