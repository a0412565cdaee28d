//! The parts of a leaf that may change while it is read and written: its device and its status.
//!
//! A device that failed is taken away from its leaf, and put back after it was reopened. A transfer gets the
//! device from the [`Slot`] and keeps it to its end; so a device is closed when the last transfer is done.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Slot` | the device of one leaf, while it is cloned or replaced | taken alone |

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, RwLock, Weak};

use device::{Device, IgnorePoison};

use super::{Aux, State, Status};

/// The device of a leaf, or nothing. Clones are the same slot: the leaf keeps it when the tree changes.
#[derive(Debug, Default, Clone)]
pub struct Slot(Arc<RwLock<Option<Arc<dyn Device>>>>);

impl Slot {
    /// A slot with this device.
    pub fn new(device: Option<Arc<dyn Device>>) -> Self {
        Self(Arc::new(RwLock::new(device)))
    }

    /// The device, if there is one.
    pub fn device(&self) -> Option<Arc<dyn Device>> {
        self.0.read().ignore_poison().clone()
    }

    /// The same slot, which goes with its leaf.
    pub(super) fn downgrade(&self) -> WeakSlot {
        WeakSlot(Arc::downgrade(&self.0))
    }

    /// Replaces the device. Returns the previous one.
    pub(super) fn replace(&self, device: Option<Arc<dyn Device>>) -> Option<Arc<dyn Device>> {
        std::mem::replace(&mut *self.0.write().ignore_poison(), device)
    }
}

/// A slot as long as its leaf is there.
#[derive(Debug)]
pub(super) struct WeakSlot(Weak<RwLock<Option<Arc<dyn Device>>>>);

impl WeakSlot {
    pub(super) fn upgrade(&self) -> Option<Slot> {
        self.0.upgrade().map(Slot)
    }
}

/// A status that can change while other threads read it.
#[derive(Debug)]
pub(super) struct StatusCell(AtomicU16);

const STATES: [State; 6] =
    [State::Offline, State::Removed, State::CantOpen, State::Faulted, State::Degraded, State::Healthy];
const AUXES: [Aux; 11] = [
    Aux::None,
    Aux::OpenFailed,
    Aux::CorruptData,
    Aux::NoReplicas,
    Aux::BadGuidSum,
    Aux::TooSmall,
    Aux::BadLabel,
    Aux::Spared,
    Aux::ErrorsExceeded,
    Aux::External,
    Aux::ChildrenOffline,
];

impl StatusCell {
    pub(super) fn new(status: Status) -> Self {
        Self(AtomicU16::new(pack(status)))
    }

    pub(super) fn get(&self) -> Status {
        let [state, aux] = self.0.load(Ordering::Acquire).to_le_bytes();
        let state = STATES.get(usize::from(state)).copied().unwrap_or(State::CantOpen);
        Status::new(state, AUXES.get(usize::from(aux)).copied().unwrap_or_default())
    }

    /// Sets the status. Returns whether it differs from the previous one.
    pub(super) fn set(&self, status: Status) -> bool {
        self.0.swap(pack(status), Ordering::AcqRel) != pack(status)
    }
}

fn pack(status: Status) -> u16 {
    u16::from_le_bytes([status.state as u8, status.aux as u8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_gives_back_every_status() {
        for state in STATES {
            for aux in AUXES {
                let status = Status::new(state, aux);
                let cell = StatusCell::new(Status::HEALTHY);
                assert_eq!(cell.set(status), status != Status::HEALTHY);
                assert!(!cell.set(status));
                assert_eq!(cell.get(), status);
            }
        }
    }
}
