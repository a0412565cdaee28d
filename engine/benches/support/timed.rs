//! A disk of benches.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::simulated::SimulatedDevice;
use device::{Device, IoBuf, IoError, IoFuture, SectorSizes};

/// A disk that has its timing only when that is measured.
#[derive(Debug)]
pub struct Disk {
    /// Without timing.
    pub plain: Arc<dyn Device>,
    /// With it.
    pub timed: SimulatedDevice,
    /// Which of the two serves.
    pub is_timed: AtomicBool,
}

impl Disk {
    fn now(&self) -> &dyn Device {
        if self.is_timed.load(Ordering::Relaxed) { &self.timed } else { &*self.plain }
    }
}

impl Device for Disk {
    fn path(&self) -> &Path {
        self.plain.path()
    }

    fn size_bytes(&self) -> u64 {
        self.plain.size_bytes()
    }

    fn update_size(&self) -> Result<u64, IoError> {
        self.plain.update_size()
    }

    fn sector_sizes(&self) -> SectorSizes {
        self.plain.sector_sizes()
    }

    fn is_read_only(&self) -> bool {
        self.plain.is_read_only()
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        self.now().read(offset, len)
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        self.now().write(offset, data)
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        self.now().flush()
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.now().discard(offset, len)
    }
}
