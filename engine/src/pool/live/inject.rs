//! Faults on demand in a pool that is written ([`crate::inject`]).

use std::sync::Arc;

use ondisk::Guid;

use super::LivePool;
use crate::error::{Error, Result};
use crate::inject::{Fault, Handler};
use crate::vdev::{Aux, Kind, State, Status};

impl LivePool {
    /// From now on a fault is made, so often out of a million. Returns the number of its handler.
    ///
    /// # Errors
    /// There is no such device, or there are too many handlers.
    pub fn inject(&self, fault: Fault, frequency: u32) -> Result<u64> {
        let vdevs = self.pool.vdevs();
        if let Some(leaf) = fault.leaf() {
            let found = vdevs.find(leaf).filter(|vdev| matches!(vdev.kind, Kind::Leaf(_)));
            vdevs.inject_into(found.ok_or_else(|| Error::NotFound(format!("device {leaf}")))?);
        }
        let added = vdevs.injections().add(fault, frequency);
        added.ok_or_else(|| Error::Busy("the pool has too many handlers; clear some of them".into()))
    }

    /// Stops making a fault, or all. Returns how many there were.
    pub fn clear_injections(&self, id: Option<u64>) -> usize {
        self.pool.vdevs().injections().remove(id).len()
    }

    /// The faults that are being made.
    pub fn injections(&self) -> Vec<Arc<Handler>> {
        self.pool.vdevs().injections().list()
    }

    /// Declares a device degraded, as one with too many errors (`zinject -A degrade`).
    ///
    /// # Errors
    /// There is no such device, or it is not in use.
    pub fn degrade(&self, leaf: Guid) -> Result<()> {
        let vdev = self.leaf(leaf)?;
        if !matches!(vdev.kind, Kind::Leaf(_)) || !vdev.status().is_readable() {
            return Err(Error::Busy(format!("device {leaf} is not in use")));
        }
        self.pool.vdevs().set_status(vdev, Status::new(State::Degraded, Aux::ErrorsExceeded));
        self.txgs.kick();
        Ok(())
    }

    /// Forgets all cached blocks, so that they are read from devices again (`zinject -a`).
    pub fn flush_cache(&self) {
        self.pool.cache().evict_pool(self.pool.cache_id);
    }
}
