//! Which space is free, and who gets it.

use std::sync::Arc;

use ondisk::blkptr::Dva;
use ondisk::{ObjectId, Txg};

use crate::Pool;
use crate::dmu::LiveObjset;
use crate::error::Result;
use crate::txg::Tx;
use crate::vdev::{Class, Vdev};

/// No free run is long enough, or the pool is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSpace;

/// The space of an open pool: metaslabs of all top-level vdevs, by class.
#[derive(Debug)]
pub struct Allocator {}

/// Space of one class, in raw bytes (parity included).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassSpace {
    /// Size.
    pub size_bytes: u64,
    /// Allocated, what is freed but not yet reusable included.
    pub allocated_bytes: u64,
    /// Of that, freed and waiting to be reusable.
    pub deferred_bytes: u64,
    /// Size less parity, as `available` counts.
    pub deflated_size_bytes: u64,
    /// Allocated less parity, as `used` counts.
    pub deflated_allocated_bytes: u64,
}

impl Allocator {
    /// The space of a pool, as the MOS (and its log space maps) says. Ends with everything known; space maps may be loaded when first needed.
    pub async fn load(_pool: &Arc<Pool>, _mos: &Arc<LiveObjset>) -> Result<Arc<Self>> {
        todo!()
    }

    /// For a pool that is being created: no vdev yet.
    pub fn empty(_pool: &Arc<Pool>) -> Arc<Self> {
        todo!()
    }

    /// Takes up a new top-level vdev: creates its metaslab array in the MOS. Gives (metaslab array, ms_shift).
    pub async fn add_top(&self, _mos: &Arc<LiveObjset>, _tx: &Tx, _top: &Vdev) -> Result<(ObjectId, u8)> {
        todo!()
    }

    /// Space for `copies` copies of a block of `psize` bytes, in `class` or, where that has no room, as OpenZFS falls back. Copies lie on different
    /// vdevs where there are several, and far apart otherwise. Nothing stays allocated on an error.
    pub fn allocate(
        &self,
        _class: Class,
        _psize: u64,
        _copies: usize,
        _txg: Txg,
    ) -> Result<Vec<Dva>, NoSpace> {
        todo!()
    }

    /// Gives one address back in `txg`. It is reused when no state that could be opened refers to it any more.
    pub fn free(&self, _dva: &Dva, _txg: Txg) {
        todo!()
    }

    /// Marks an address of an intent log that was found at import as allocated.
    pub async fn claim(&self, _dva: &Dva, _txg: Txg) -> Result<()> {
        todo!()
    }

    /// Appends what was allocated and freed in the group of `tx` since the last call to the space maps. False when there was nothing.
    pub async fn sync(&self, _mos: &Arc<LiveObjset>, _tx: &Tx) -> Result<bool> {
        todo!()
    }

    /// The group is committed. Space that was freed becomes reusable two groups later, and not before views of the pool from before the group are gone:
    /// `oldest_view` is the oldest group that somebody still reads.
    pub fn sync_done(&self, _txg: Txg, _oldest_view: Txg) {
        todo!()
    }

    /// Space of one class.
    pub fn space(&self, _class: Class) -> ClassSpace {
        todo!()
    }

    /// Deflated bytes of an address: what it counts for in quotas and listings.
    pub fn deflated(&self, _dva: &Dva) -> u64 {
        todo!()
    }
}
