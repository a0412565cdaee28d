//! A device between a pool and its file that counts, and that flips bits when it is to.
//!
//! Memory that flips bits in a buffer that was read is, for the pool, a device that gives back other bytes
//! than it holds: good bytes stay on it. A controller that flips bits on their way to the medium leaves wrong
//! bytes there. Only sectors of the scenario's own volume are spoiled, which begin with [`MAGIC`]: the pool's
//! metadata stay as they are, so that a scrub can walk. Parity of an odd number of such sectors begins with
//! it too, and is spoiled as data are.
//!
//! There are no locks: counters are atomic, and which sector is spoiled depends on their number alone.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Device, IoBuf, IoError, IoFuture, SectorSizes, copy};

/// Bytes of a sector of pools of scenarios.
pub const SECTOR_BYTES: usize = 4096;
/// The beginning of each sector of a volume of a scenario.
pub const MAGIC: [u8; 16] = *b"cenote-lab-story";

/// One direction of a device.
#[derive(Debug, Default)]
pub struct Way {
    /// One in so many sectors of the volume is spoiled; 0 for none.
    one_in: AtomicU64,
    sectors: AtomicU64,
    flipped: AtomicU64,
    bytes: AtomicU64,
}

impl Way {
    /// From now on one in so many sectors of the volume gets a wrong bit; 0 for none.
    pub fn spoil(&self, one_in: u64) {
        self.one_in.store(one_in, Ordering::Relaxed);
    }

    /// Bytes of all kinds.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the volume and its parity.
    pub fn content_bytes(&self) -> u64 {
        self.sectors.load(Ordering::Relaxed) * SECTOR_BYTES as u64
    }

    /// Sectors that were spoiled.
    pub fn flipped(&self) -> u64 {
        self.flipped.load(Ordering::Relaxed)
    }

    fn is_spoiling(&self) -> bool {
        self.one_in.load(Ordering::Relaxed) > 0
    }

    fn pass(&self, bytes: &mut [u8]) {
        let one_in = self.one_in.load(Ordering::Relaxed);
        for sector in bytes.chunks_exact_mut(SECTOR_BYTES).filter(|sector| sector.starts_with(&MAGIC)) {
            let number = self.sectors.fetch_add(1, Ordering::Relaxed) + 1;
            if one_in > 0 && number.is_multiple_of(one_in) {
                self.flipped.fetch_add(1, Ordering::Relaxed);
                // Behind the magic, so that the sector is known again.
                let bit = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let place = MAGIC.len() + bit as usize / 8 % (SECTOR_BYTES - MAGIC.len());
                sector[place] ^= 1 << (bit % 8);
            }
        }
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    fn count(&self, bytes: &[u8]) {
        let sectors = bytes.chunks_exact(SECTOR_BYTES).filter(|sector| sector.starts_with(&MAGIC)).count();
        self.sectors.fetch_add(sectors as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
}

/// A device whose transfers are counted and can be spoiled.
#[derive(Debug)]
pub struct SpoiledDevice {
    inner: Arc<dyn Device>,
    /// What is read.
    pub reads: Way,
    /// What is written.
    pub writes: Way,
}

impl SpoiledDevice {
    /// A device like `inner`, as yet with nothing spoiled.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, reads: Way::default(), writes: Way::default() }
    }

    /// One in so many sectors is spoiled, as they are read and as they are written; 0 for none.
    pub fn spoil(&self, reads: u64, writes: u64) {
        self.reads.spoil(reads);
        self.writes.spoil(writes);
    }
}

impl Device for SpoiledDevice {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn update_size(&self) -> Result<u64, IoError> {
        self.inner.update_size()
    }

    fn sector_sizes(&self) -> SectorSizes {
        self.inner.sector_sizes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn modelled(&self) -> Option<String> {
        self.inner.modelled()
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            let mut read = self.inner.read(offset, len).await?;
            self.reads.pass(&mut read);
            Ok(read)
        })
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            if !self.writes.is_spoiling() {
                self.writes.count(&data);
                return self.inner.write(offset, data).await;
            }
            // The caller's bytes stay as they are.
            let mut wrong = IoBuf::for_overwrite(data.len());
            copy(&mut wrong, &data);
            self.writes.pass(&mut wrong);
            self.inner.write(offset, wrong).await?;
            Ok(data)
        })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.inner.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_so_many_sectors_of_the_volume_gets_one_wrong_bit() {
        let device = SpoiledDevice::new(Arc::new(device::MemoryDevice::new("memory", 16 * SECTOR_BYTES)));
        let mut content = vec![0; 8 * SECTOR_BYTES];
        for sector in content.chunks_exact_mut(SECTOR_BYTES).step_by(2) {
            sector[..MAGIC.len()].copy_from_slice(&MAGIC);
        }
        let ones = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        let good = ones(&content);
        device::block_on(async {
            device.write(0, IoBuf::from(&content[..])).await.unwrap();
            device.reads.spoil(2);
            let read = device.read(0, content.len()).await.unwrap();
            assert_eq!((ones(&read), device.reads.flipped()), (good + 2, 2));
            device.spoil(0, 1);
            device.write(0, IoBuf::from(&content[..])).await.unwrap();
            let read = device.read(0, content.len()).await.unwrap();
            assert_eq!((ones(&read), device.writes.flipped()), (good + 4, 4));
            let sector = SECTOR_BYTES as u64;
            assert_eq!((device.writes.content_bytes(), device.writes.bytes()), (8 * sector, 16 * sector));
        });
    }
}
