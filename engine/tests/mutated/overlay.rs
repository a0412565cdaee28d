//! A device over a file that is never written: what is written stays in memory, so that a damaged pool costs
//! nothing to make.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use device::{Cause, Device, IgnorePoison, IoBuf, IoError, IoFuture, Operation, SectorSizes};

/// Bytes of the unit in which changes are kept.
pub const SECTOR: u64 = 512;

/// The file below one or many overlays.
#[derive(Debug)]
pub struct Base {
    file: File,
    /// Where the file is.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// Its parts that are not holes, as offset and length.
    pub data: Vec<(u64, u64)>,
}

impl Base {
    /// Opens a file and finds its data.
    pub fn open(path: &Path) -> io::Result<Arc<Base>> {
        let file = File::open(path)?;
        let size_bytes = file.metadata()?.len();
        let seek = |offset: u64, whence| {
            // SAFETY: lseek takes any numbers; the descriptor is open.
            let found = unsafe { libc::lseek(file.as_raw_fd(), offset as i64, whence) };
            u64::try_from(found).ok()
        };
        let mut data = Vec::new();
        let mut at = 0;
        while let Some(start) = seek(at, libc::SEEK_DATA) {
            at = seek(start, libc::SEEK_HOLE).unwrap_or(size_bytes);
            data.push((start, at - start));
        }
        Ok(Arc::new(Base { file, path: path.to_owned(), size_bytes, data }))
    }
}

/// A device that can be changed and cut short.
#[derive(Debug)]
pub struct Overlay {
    base: Arc<Base>,
    path: PathBuf,
    size_bytes: u64,
    changed: RwLock<BTreeMap<u64, [u8; SECTOR as usize]>>,
}

impl Overlay {
    /// The file as it is, or as much of it as `size_bytes`.
    pub fn new(base: &Arc<Base>, name: &str, size_bytes: u64) -> Overlay {
        let size_bytes = size_bytes.min(base.size_bytes);
        Overlay {
            base: base.clone(),
            path: base.path.with_file_name(name),
            size_bytes,
            changed: RwLock::default(),
        }
    }

    /// Reads what lies within the device; beyond it there are zeroes.
    pub fn peek(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut done = 0;
        while done < length {
            match self.base.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) | Err(_) => break,
                Ok(read) => done += read,
            }
        }
        let changed = self.changed.read().ignore_poison();
        let end = offset + length as u64;
        for (&sector, new) in changed.range(offset / SECTOR..end.div_ceil(SECTOR)) {
            for (byte, at) in new.iter().zip(sector * SECTOR..) {
                if (offset..end).contains(&at) {
                    bytes[(at - offset) as usize] = *byte;
                }
            }
        }
        bytes
    }

    /// Writes at any offset.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let start = offset / SECTOR * SECTOR;
        let end = (offset + bytes.len() as u64).next_multiple_of(SECTOR);
        let mut sectors = self.peek(start, (end - start) as usize);
        sectors[(offset - start) as usize..][..bytes.len()].copy_from_slice(bytes);
        let mut changed = self.changed.write().ignore_poison();
        for (sector, bytes) in (start / SECTOR..).zip(sectors.as_chunks().0) {
            changed.insert(sector, *bytes);
        }
    }
}

impl Device for Overlay {
    fn path(&self) -> &Path {
        &self.path
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn sector_sizes(&self) -> SectorSizes {
        SectorSizes::BYTES_512
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            let size_bytes = self.size_bytes;
            if offset.checked_add(len as u64).is_none_or(|end| end > size_bytes) {
                let cause = Cause::OutOfRange { size_bytes };
                return Err(IoError::new(&self.path, Operation::Read, offset, len as u64, cause));
            }
            Ok(IoBuf::from(&self.peek(offset, len)[..]))
        })
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        let refused = IoError::new(&self.path, Operation::Write, offset, data.len() as u64, Cause::ReadOnly);
        Box::pin(async move { Err(refused) })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        let refused = IoError::new(&self.path, Operation::Discard, offset, len, Cause::ReadOnly);
        Box::pin(async move { Err(refused) })
    }
}
