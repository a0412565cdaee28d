//! The contents of a device: chunks that copies share until one of them changes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const CHUNK_BYTES: usize = 16 << 10;

/// Contents of a device. What was never written is zeroes and takes no memory.
#[derive(Clone)]
pub struct Disk {
    size_bytes: u64,
    chunks: Vec<Option<Arc<[u8; CHUNK_BYTES]>>>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = self.chunks.iter().flatten().count() * CHUNK_BYTES;
        write!(f, "Disk({} bytes, {used} of them written)", self.size_bytes)
    }
}

impl Disk {
    /// Zeroes.
    pub fn new(size_bytes: u64) -> Self {
        let chunks = size_bytes.div_ceil(CHUNK_BYTES as u64) as usize;
        Self { size_bytes, chunks: vec![None; chunks] }
    }

    /// Bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether the range lies within the disk.
    pub fn has(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.size_bytes)
    }

    /// Fills `into` from `offset` on, which must lie within the disk.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        for (chunk, within, range) in pieces(offset, into.len()) {
            match &self.chunks[chunk] {
                Some(bytes) => into[range.clone()].copy_from_slice(&bytes[within..within + range.len()]),
                None => into[range].fill(0),
            }
        }
    }

    /// Puts `bytes` at `offset`, within the disk.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (chunk, within, range) in pieces(offset, bytes.len()) {
            let chunk = self.chunks[chunk].get_or_insert_with(|| Arc::new([0; CHUNK_BYTES]));
            Arc::make_mut(chunk)[within..within + range.len()].copy_from_slice(&bytes[range]);
        }
    }

    /// Makes a range zeroes.
    pub fn clear(&mut self, offset: u64, length: u64) {
        for (chunk, within, range) in pieces(offset, length as usize) {
            if range.len() == CHUNK_BYTES {
                self.chunks[chunk] = None;
            } else if let Some(bytes) = &mut self.chunks[chunk] {
                Arc::make_mut(bytes)[within..within + range.len()].fill(0);
            }
        }
    }

    /// Writes the contents as a sparse file.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size_bytes)?;
        for (index, chunk) in self.chunks.iter().enumerate() {
            if let Some(bytes) = chunk {
                let offset = (index * CHUNK_BYTES) as u64;
                let length = (self.size_bytes - offset).min(CHUNK_BYTES as u64);
                file.write_all_at(&bytes[..length as usize], offset)?;
            }
        }
        Ok(())
    }
}

/// (chunk, offset in it, range of the buffer) of each chunk that a range touches.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= length {
            return None;
        }
        let at = offset as usize + done;
        let (chunk, within) = (at / CHUNK_BYTES, at % CHUNK_BYTES);
        let here = (CHUNK_BYTES - within).min(length - done);
        done += here;
        Some((chunk, within, done - here..done))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn a_disk_is_an_array_of_bytes_and_copies_are_apart() {
        let mut rng = Rng::new(1);
        let mut model = vec![0u8; 100_000];
        let mut disk = Disk::new(100_000);
        for step in 0..300u32 {
            let offset = rng.index(100_000);
            let length = rng.index(40_000).min(100_000 - offset);
            let before = (disk.clone(), model.clone());
            if rng.once_in(4) {
                model[offset..offset + length].fill(0);
                disk.clear(offset as u64, length as u64);
            } else {
                let bytes = vec![step as u8; length];
                model[offset..offset + length].copy_from_slice(&bytes);
                disk.write(offset as u64, &bytes);
            }
            for (disk, model) in [(&disk, &model), (&before.0, &before.1)] {
                let mut all = vec![1; 100_000];
                disk.read(0, &mut all);
                assert!(all == *model);
            }
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        disk.save(file.path()).unwrap();
        assert!(std::fs::read(file.path()).unwrap() == model);
    }
}
