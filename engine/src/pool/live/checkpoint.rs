//! The checkpoint of a pool that is written: taking it, giving it up, going back to it.
//!
//! # The idea
//! Before anything else of a group is written, the uberblock of the group before is entered in the MOS. From
//! then on the allocator keeps what that uberblock leads to ([`crate::alloc::Allocator::keeps`]). To give the
//! checkpoint up, the entry goes, in the same way before anything else, and then what was kept, some of it in
//! each group; the feature counts until that is done.
//!
//! Going back happens at import: the checkpoint's uberblock becomes the newest one, and is written before
//! anything else is. Intent logs that were not claimed at the checkpoint belong to a time after it, so they
//! are given up.
//!
//! What changes the vdevs in a way that the checkpoint does not know of is refused while there is one.
//!
//! Source of the facts: OpenZFS 2.3 `spa_checkpoint.c`, `spa.c` (`spa_ld_checkpoint_rewind`), `zil.c`
//! (`zil_claim`).

use std::sync::{Arc, Mutex};

use device::IgnorePoison;
use futures_util::FutureExt;
use futures_util::future::ready;
use ondisk::features::Feature;
use ondisk::pool_directory as directory;
use ondisk::uberblock::Uberblock;
use ondisk::{ByteOrder, Txg};

use super::parts::{Doing, Part};
use super::{LivePool, Syncing};
use crate::dmu::zap;
use crate::dsl::Dsl;
use crate::error::{Error, Result};

/// The uberblock that the pool can go back to.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    uberblock: Mutex<Option<Uberblock>>,
}

impl Part for Checkpoint {
    fn load<'a>(&'a self, pool: &'a Arc<LivePool>, _: &'a Dsl) -> Doing<'a> {
        pool.set_checkpoint(pool.pool.checkpoint().cloned());
        ready(Ok(())).boxed()
    }

    fn sync<'a>(&'a self, s: &'a Syncing) -> Doing<'a> {
        let discard = async {
            if discard_some(s).await? {
                s.pool.txgs().kick();
            }
            Ok(())
        };
        discard.boxed()
    }
}

impl LivePool {
    /// The uberblock that the pool can go back to.
    pub fn checkpoint(&self) -> Option<Uberblock> {
        self.parts.checkpoint.uberblock.lock().ignore_poison().clone()
    }

    fn set_checkpoint(&self, checkpoint: Option<Uberblock>) {
        self.allocator().set_checkpoint(checkpoint.as_ref().map(|uberblock| uberblock.txg));
        *self.parts.checkpoint.uberblock.lock().ignore_poison() = checkpoint;
    }

    /// Whether a checkpoint is being given up.
    pub fn is_discarding(&self) -> bool {
        self.feature_count(Feature::ZpoolCheckpoint).is_some_and(|count| count > 0)
            && self.checkpoint().is_none()
    }

    /// Takes a checkpoint: the pool can go back to what was written up to now.
    ///
    /// # Errors
    /// There is one already, or the pool cannot have one.
    pub async fn take_checkpoint(self: &Arc<Self>) -> Result<()> {
        // What was begun before belongs to it.
        self.change(|_| async { Ok(()) }).await?;
        self.change_first(|s| async move { take(&s).await }).await
    }

    /// Gives the checkpoint up; what was kept for it is freed in the groups that follow.
    ///
    /// # Errors
    /// There is none.
    pub async fn discard_checkpoint(self: &Arc<Self>) -> Result<()> {
        self.change_first(|s| async move { discard(&s).await }).await
    }

    /// Refuses what must not happen while there is a checkpoint, or one is being given up.
    pub(super) fn refuse_with_checkpoint(&self) -> Result<()> {
        match (self.checkpoint(), self.is_discarding()) {
            (Some(_), _) => Err(Error::Busy("checkpoint exists".into())),
            (None, true) => Err(Error::Busy("currently discarding checkpoint".into())),
            (None, false) => Ok(()),
        }
    }
}

async fn take(s: &Syncing) -> Result<()> {
    if !s.feature_enabled(Feature::ZpoolCheckpoint) {
        return Err(Error::Unsupported("feature@zpool_checkpoint is not enabled; see zpool upgrade".into()));
    }
    s.pool.refuse_with_checkpoint()?;
    s.pool.allocator().require_keeping(s.feature_enabled(Feature::SpacemapV2))?;
    let mut checkpoint = s.pool.views.newest().uberblock().clone();
    if checkpoint.txg != Txg(s.txg().get() - 1) {
        return Err(Error::corrupt(s.pool.pool().name(), "the group before is not the newest one"));
    }
    checkpoint.checkpoint_txg = checkpoint.txg;
    let bytes = checkpoint.encode();
    let words = bytes.as_chunks::<8>().0.iter().map(|word| ByteOrder::Little.u64(*word)).collect();
    s.set_in_directory(directory::ZPOOL_CHECKPOINT, zap::Value::U64(words)).await?;
    s.use_feature(Feature::ZpoolCheckpoint, 1).await?;
    s.pool.set_checkpoint(Some(checkpoint));
    Ok(())
}

async fn discard(s: &Syncing) -> Result<()> {
    if s.pool.checkpoint().is_none() {
        return Err(match s.pool.is_discarding() {
            true => Error::Busy("currently discarding checkpoint".into()),
            false => Error::NotFound("checkpoint".into()),
        });
    }
    let directory = s.mos().object(directory::DIRECTORY_OBJECT).await?;
    let entry = zap::Key::Name(directory::ZPOOL_CHECKPOINT.into());
    zap::edit::remove(&directory, &s.tx, &entry).await?;
    s.pool.set_checkpoint(None);
    Ok(())
}

/// Frees some of what a checkpoint kept that is given up. True when there is more.
async fn discard_some(s: &Syncing) -> Result<bool> {
    if !s.pool.is_discarding() {
        return Ok(false);
    }
    let more = s.pool.allocator().discard_kept(s.mos(), &s.tx).await?;
    if !more {
        s.use_feature(Feature::ZpoolCheckpoint, -1).await?;
    }
    Ok(more)
}

/// An older uberblock, such as a checkpoint, as the newest one, later than `newest`.
pub(super) fn rewound(older: &Uberblock, newest: Txg, now: u64) -> Uberblock {
    Uberblock { txg: Txg(newest.get().saturating_add(1)), timestamp: now, ..older.clone() }
}
