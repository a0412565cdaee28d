//! `MemoryDevice`: a device of plain memory, for tests and for simulations.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::RwLock,
};

use crate::{
    Cause, Device, IgnorePoison, IoBuf, IoError, IoFuture, Operation, SectorSizes, check_range, copy,
};

/// A device whose bytes are in memory. Every operation completes in the first poll.
pub struct MemoryDevice {
    name: PathBuf,
    bytes: RwLock<Vec<u8>>,
    size_bytes: u64,
    sector_sizes: SectorSizes,
}

impl MemoryDevice {
    /// A device of `size_bytes` zeros, of which memory is used only for what is written.
    pub fn new(name: impl Into<PathBuf>, size_bytes: usize) -> Self {
        Self::with_content(name, vec![0; size_bytes])
    }

    /// A device that begins with `bytes` as its content.
    pub fn with_content(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Self {
        Self {
            name: name.into(),
            size_bytes: bytes.len() as u64,
            bytes: RwLock::new(bytes),
            sector_sizes: SectorSizes::BYTES_512,
        }
    }

    /// Sets the sector sizes that the device states. Writes must be made of whole logical sectors.
    pub fn with_sector_sizes(self, sector_sizes: SectorSizes) -> Self {
        Self { sector_sizes, ..self }
    }

    /// A copy of the present content.
    pub fn content(&self) -> Vec<u8> {
        self.bytes.read().ignore_poison().clone()
    }

    fn modify(&self, offset: u64, len: u64, change: impl FnOnce(&mut [u8])) -> Result<(), Cause> {
        check_range(self.size_bytes, offset, len)?;
        let unit_bytes = self.sector_sizes.logical_bytes;
        if !offset.is_multiple_of(unit_bytes.into()) || !len.is_multiple_of(unit_bytes.into()) {
            return Err(Cause::Unaligned { unit_bytes });
        }
        let mut bytes = self.bytes.write().ignore_poison();
        change(&mut bytes[offset as usize..(offset + len) as usize]);
        Ok(())
    }
}

impl Device for MemoryDevice {
    fn path(&self) -> &Path {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn sector_sizes(&self) -> SectorSizes {
        self.sector_sizes
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            check_range(self.size_bytes, offset, len as u64)
                .map_err(|cause| IoError::new(&self.name, Operation::Read, offset, len as u64, cause))?;
            let bytes = self.bytes.read().ignore_poison();
            Ok(IoBuf::from(&bytes[offset as usize..offset as usize + len]))
        })
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            let len = data.len() as u64;
            self.modify(offset, len, |range| copy(range, &data))
                .map_err(|cause| IoError::new(&self.name, Operation::Write, offset, len, cause))?;
            Ok(data)
        })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.modify(offset, len, |range| range.fill(0))
                .map_err(|cause| IoError::new(&self.name, Operation::Discard, offset, len, cause))
        })
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("name", &self.name)
            .field("size_bytes", &self.size_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_on;

    #[test]
    fn what_is_written_is_read() {
        let device = MemoryDevice::new("<memory>", 8192);
        block_on(device.write(512, IoBuf::from(&[7; 1024][..]))).unwrap();
        assert_eq!(*block_on(device.read(1000, 600)).unwrap(), [[7; 536].as_slice(), &[0; 64]].concat());
        block_on(device.discard(1024, 512)).unwrap();
        assert_eq!(*block_on(device.read(512, 1024)).unwrap(), [[7; 512].as_slice(), &[0; 512]].concat());
    }

    #[test]
    fn ranges_outside_and_parts_of_sectors_are_refused() {
        let sector_sizes = SectorSizes { logical_bytes: 4096, physical_bytes: 4096 };
        let device = MemoryDevice::new("<memory>", 8192).with_sector_sizes(sector_sizes);
        let refused = block_on(device.read(8000, 193)).unwrap_err();
        assert_eq!(refused.cause, Cause::OutOfRange { size_bytes: 8192 });
        let refused = block_on(device.write(512, IoBuf::zeroed(4096))).unwrap_err();
        assert_eq!(refused.cause, Cause::Unaligned { unit_bytes: 4096 });
    }
}
