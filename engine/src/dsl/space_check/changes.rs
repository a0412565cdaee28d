//! Room for changes of the tree of datasets, of properties and of the pool.
//!
//! # The idea
//! Such changes are made while a group is synced and write metadata of the MOS. They take little each, but a
//! full pool has little left, and a thousand of them take what the pool cannot do without. So each says how
//! many blocks it may write, and which part of the slop it may use (OpenZFS: `zfs_space_check_t`):
//!
//! | [`Spare`] | changes | ends with |
//! |---|---|---|
//! | `Normal` | those that make something: datasets, snapshots, clones, bookmarks | half of the slop, as data do |
//! | `Reserved` | those that change what there is: properties, names, holds | a quarter of it |
//! | `Extra` | those that may help: quotas, reservations, the pool's properties | an eighth |
//! | none | those that give space back: destroying, giving back holds | never |
//!
//! # Invariants
//! - What the open group accepted as data ([`super`]) is not touched: a change that would need it is
//!   refused.
//! - What the changes of one group need counts together.
//! - A refusal has changed nothing; it says how much is missing.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_pool.c` (`dsl_pool_unreserved_space`), and what each of its tasks
//! asks for.

use ondisk::Txg;

use super::costs::Worst;
use super::{PoolGauge, SMALL_METADATA_BYTES};
use crate::dsl::{DslPool, SyncTask};
use crate::error::{Error, Result};
use crate::properties::format::nicebytes;

/// Which part of the slop a change may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spare {
    /// None: half of it is for others.
    Normal,
    /// The second quarter.
    Reserved,
    /// All but an eighth.
    Extra,
}

impl Spare {
    /// What must be left.
    fn kept(self, slop: u64) -> u64 {
        match self {
            Spare::Normal => slop / 2,
            Spare::Reserved => slop / 4,
            Spare::Extra => slop / 8,
        }
    }
}

/// All changes of a group together may take so much of the slop, whatever data are accepted at worst.
const SURE_SHARE: u64 = 16;
/// A change that could take space which was freed waits for so many groups, after which that can be used.
const GROUPS_UNTIL_FREE: u32 = 2;
/// Where less than this is left, space that was freed is waited for.
const SCARCE_BYTES: u64 = 16 << 20;

impl SyncTask {
    /// Accepts a change that writes up to `blocks` blocks of metadata, or refuses it with the figures.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn require_for_change(&self, spare: Spare, blocks: u64) -> Result<()> {
        let (free, slop) = (Worst::free(self.allocator(), self.txg()), self.allocator().slop_bytes());
        let room = &self.dsl_pool().room;
        let left = room.left_for_change(self.txg(), free, slop, spare);
        let needed = room.price_of_change(blocks);
        if needed > left {
            let (needed, left, name) = (nicebytes(needed), nicebytes(left), self.pool().name());
            return Err(Error::NoSpace(format!(
                "pool '{name}': the change needs {needed} of metadata, {left} is available"
            )));
        }
        room.accept_change(needed);
        Ok(())
    }
}

impl DslPool {
    /// Where little is free, waits until what was freed can be used: a change that comes right after a file
    /// was removed is not to be refused.
    pub(crate) async fn until_freed_is_free(&self) -> Result<()> {
        for _ in 0..GROUPS_UNTIL_FREE {
            let allocator = self.allocator();
            let left = allocator.free_for_data().saturating_sub(allocator.slop_bytes() / 2);
            if left >= SCARCE_BYTES || !allocator.has_deferred() {
                return Ok(());
            }
            self.txgs().wait_synced(self.txgs().open_txg()).await?;
        }
        Ok(())
    }
}

impl PoolGauge {
    /// What a change of the group `txg`, which is being synced, may take while so much is free.
    fn left_for_change(&self, txg: Txg, free: Worst, slop: u64, spare: Spare) -> u64 {
        let (exact, worst, taken) = self.accepted_after(txg);
        let left = free.as_smallest().saturating_sub(exact).saturating_sub(spare.kept(slop));
        let at_worst = free.less(worst).most().saturating_sub(slop / 8).max(slop / SURE_SHARE);
        left.min(at_worst).saturating_sub(taken)
    }

    fn price_of_change(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.metadata_price(SMALL_METADATA_BYTES))
    }
}
