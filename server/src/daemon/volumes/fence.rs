//! The fence of a pool: whether another host has taken it over.
//!
//! A device in an object store belongs to one host; another one may take it over at any time
//! ([`objects::lease`]). From then on nothing that this host would tell clients of the pool is worth telling:
//! an error would be taken for one of the disk, and a cached block may be old. So their connections end
//! without an answer, and clients come again, to where the pool is.
//!
//! A host that could not renew its lease for a while does not know whether that has happened. Requests wait
//! then, reads of cached blocks too.
//!
//! The fence is closed by the first operation on a device that finds it taken over, before its caller gets
//! the error, or by the daemon. It is never opened again: the pool is dropped.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::address::is_address;
use engine::waits;
use objects::lease::Claim;

/// Whether another host has a pool.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Fence {
    is_closed: AtomicBool,
    /// It is closed here, and another host may go on.
    is_leaving: AtomicBool,
    /// Of its devices in object stores: where they are, and whether they are this host's.
    devices: Vec<(String, Arc<Claim>)>,
}

impl Fence {
    /// That of a pool with these devices, which are open.
    pub fn of<'a>(devices: impl Iterator<Item = &'a Path>) -> Self {
        let addresses = devices.filter(|path| is_address(path)).filter_map(Path::to_str);
        let devices = addresses.filter_map(objects::lease::place).flat_map(|place| {
            let claims = objects::lease::claims(&place);
            claims.into_iter().map(move |claim| (place.clone(), claim))
        });
        Self { devices: devices.collect(), ..Self::default() }
    }

    /// Whether another host has the pool.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) || self.devices.iter().any(|(_, claim)| claim.is_taken_over())
    }

    /// Whether clients find the pool on another host, or will.
    pub fn is_elsewhere(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire) || self.is_closed()
    }

    /// This host closes the pool. Where it is one that other hosts can open, its clients are told nothing
    /// more.
    pub fn leave(&self) {
        self.is_leaving.store(!self.devices.is_empty(), Ordering::Release);
    }

    /// Waits as long as it is not known that this host has the pool: what it has in memory may be old.
    pub async fn passed(&self) {
        for (_, claim) in self.devices.iter().filter(|(_, claim)| claim.is_unproven()) {
            waits::noting("the lease of the pool, whose store does not answer", claim.proven()).await;
        }
    }

    /// Looks whether another host has a device that was opened again since the pool was opened.
    pub fn look(&self) -> bool {
        let is_lost = |place: &str| objects::lease::fate(place).is_some_and(|fate| fate.is_taken_over);
        if !self.is_closed() && self.places().any(is_lost) {
            self.close();
        }
        self.is_closed()
    }

    /// Another host has the pool.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// The places of its devices in object stores ([`objects::lease::place`]).
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|(address, _)| address.as_str())
    }

    /// The host that has it, as far as that is known.
    pub fn host(&self) -> Option<String> {
        self.places().find_map(|place| objects::lease::fate(place)?.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_without_devices_in_stores_is_fenced_by_the_daemon_alone() {
        let fence = Fence::of([Path::new("/dev/sda"), Path::new("file:///no/such/device")].into_iter());
        fence.leave();
        assert!(!fence.is_elsewhere());
        assert_eq!((fence.places().count(), fence.host()), (0, None));
        fence.close();
        assert!(fence.is_closed() && fence.is_elsewhere());
    }
}
