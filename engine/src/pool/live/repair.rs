//! Read repair: places that held a block wrong when it was read are rewritten.
//!
//! # The idea
//! The reader goes on as soon as it has right bytes from somewhere; the repair is asked for
//! ([`crate::store::repairs`]) and done in the background. Closing the pool waits for it.
//!
//! # Never over another block
//! What the reader had was a pointer, and since it was looked up the block may have been freed, and its space
//! given to another one. So the repair looks the block up anew, by its bookmark, in the last committed state,
//! and goes on only when the pointer there is the very same. It holds the view of that state until the last
//! byte is written, and space that a view refers to is not reused while it is held. A block that is of a
//! group not committed yet may still be written again in its place; it waits for its group.
//!
//! # Never without a right
//! Nothing is written when the pool is suspended, has lost its lease to another host, or stopped. A device
//! that is offline or given up is not written either ([`crate::vdev::write`]). A repair that fails is an
//! error of the device, not of the read.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use futures_util::StreamExt;
use futures_util::stream;
use ondisk::blkptr::Blkptr;
use ondisk::{ObjectId, ObjsetId};

use super::LivePool;
use super::parts::Part;
use crate::Bookmark;
use crate::Pool;
use crate::dmu::Objset;
use crate::dsl::Dsl;
use crate::error::Result;
use crate::store::repairs::{Repair, Running};
use crate::txg::Txgs;
use crate::vdev::write::Missed;
use crate::zio::Healing;

/// Repairs for which one view is held.
const BATCH: usize = 64;
/// Of these, so many are under way at a time.
const AT_A_TIME: usize = 8;

/// Makes the repairs that reads ask for, while groups are committed.
#[derive(Debug, Default)]
pub(super) struct ReadRepair;

impl Part for ReadRepair {
    fn start(&self, pool: &Arc<LivePool>) {
        let live = Arc::downgrade(pool);
        pool.pool.repairs.begin(move |running| {
            let live = Weak::clone(&live);
            if let Some(pool) = live.upgrade().map(|live| Arc::clone(&live.pool)) {
                pool.load_ahead(repair_all(live, running));
            }
        });
    }

    fn stop(&self, pool: &LivePool) {
        pool.pool.repairs.give_up();
    }
}

impl LivePool {
    /// Waits until the repairs that were asked for are made.
    pub async fn repairs_done(&self) {
        self.pool.repairs.done().await;
    }
}

/// Makes repairs until none is asked for any more.
async fn repair_all(live: Weak<LivePool>, mut running: Running) {
    loop {
        let batch = running.take(BATCH);
        if batch.is_empty() {
            return;
        }
        let Some((view, txgs)) = live.upgrade().map(|live| (live.view(), Arc::clone(&live.txgs))) else {
            return;
        };
        repair(&view, &txgs, batch, &running).await;
    }
}

async fn repair(view: &Arc<Pool>, txgs: &Arc<Txgs>, batch: Vec<Repair>, running: &Running) {
    let mut state = State::of(view);
    let mut found = Vec::new();
    for repair in batch {
        if repair.bp.physical_birth() > view.uberblock().txg {
            running.put_off(repair);
        } else if matches!(state.pointer(&repair.at).await, Ok(Some(bp)) if bp == repair.bp) {
            found.push(repair);
        }
    }
    let repairs = found.into_iter().map(|repair| async move {
        if txgs.stopped().is_some() || view.suspension.why().is_some() {
            return;
        }
        let healing = Healing { txg: txgs.open_txg(), counted: &repair.counted, missed: Missed::Left };
        let healed = view.heal(&repair.bp, &repair.at, healing).await;
        let (bytes, failed) = (healed.bytes, healed.failed.len());
        let (pool, at) = (view.name(), &repair.at);
        if bytes > 0 && failed == 0 {
            view.damage.mended(at, repair.bp.physical_birth());
        }
        if bytes > 0 {
            tracing::info!(pool, %at, bytes, "rewrote what a device held wrong of a block");
        }
        if failed > 0 {
            tracing::warn!(pool, %at, failed, "a device did not take the right bytes of a block");
        }
    });
    stream::iter(repairs).buffer_unordered(AT_A_TIME).collect::<()>().await;
}

/// The last committed state, in which blocks are looked up.
pub(super) struct State<'a> {
    view: &'a Arc<Pool>,
    /// Object sets that were opened, with the pointers to them.
    objsets: HashMap<u64, Arc<Objset>>,
}

impl<'a> State<'a> {
    /// What a view shows.
    pub(super) fn of(view: &'a Arc<Pool>) -> Self {
        Self { view, objsets: HashMap::new() }
    }

    /// The pointer that the state has in this place.
    pub(super) async fn pointer(&mut self, at: &Bookmark) -> Result<Option<Blkptr>> {
        let objset = match self.objsets.get(&at.objset) {
            Some(objset) => Arc::clone(objset),
            None => {
                let root = self.root(at.objset).await?;
                if at.level == Bookmark::LEVEL_ROOT {
                    return Ok(Some(root));
                }
                // Its structure can be followed without a key.
                let objset = Objset::open_without_key(self.view, ObjsetId(at.objset), &root).await?;
                self.objsets.insert(at.objset, Arc::clone(&objset));
                objset
            }
        };
        objset.pointer_of(at).await
    }

    async fn root(&self, objset: u64) -> Result<Blkptr> {
        if objset == ObjsetId::MOS.get() {
            return Ok(*self.view.root_blkptr());
        }
        Ok(Dsl::open(self.view).await?.dataset_of_object(ObjectId(objset)).await?.phys.bp)
    }
}
