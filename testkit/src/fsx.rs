//! Random operations on one file of a mounted filesystem, against a model of it.
//!
//! The idea is that of `fsx`: one file, all the ways to read and change it, in any order and at offsets near
//! which kernels and filesystems go wrong. Ways that have caches of their own are mixed on purpose: the page
//! cache, shared mappings, and direct transfers must always agree. After each read the bytes must be the
//! model's, and now and then all of them, through a handle that was just opened.
//!
//! A failure tells the seed and the step; the same seed does the same again.

#![allow(unsafe_code, reason = "system calls under test")]

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;

use crate::Rng;

/// Alignment of direct transfers.
const DIRECT_BYTES: usize = 4096;
const PAGE_BYTES: usize = 4096;

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Fsx {
    /// Where the random numbers begin.
    pub seed: u64,
    /// Operations.
    pub steps: usize,
    /// Largest size of the file.
    pub max_bytes: usize,
    /// Transfers that go around the page cache too.
    pub direct: bool,
}

/// Does the operations on the file at `path`, which is created; panics where the file is not what it should
/// be.
pub fn run(path: &Path, exercise: Fsx) {
    let mut state = State {
        rng: Rng::new(exercise.seed),
        model: Vec::new(),
        file: open(path, 0).expect("a new file"),
        exercise,
    };
    for step in 0..exercise.steps {
        let what = state.step(path);
        let context = || format!("seed {}, step {step}: {what:?}", exercise.seed);
        if let Err(error) = &what.done {
            panic!("{}: {error}", context());
        }
        if let Some(read) = &what.read
            && let Some(at) = differs(read, state.expected(what.offset, read.len()))
        {
            panic!("{}: another byte at {at}", context());
        }
        let size = state.file.metadata().expect("attributes").len();
        assert_eq!(size, state.model.len() as u64, "{}", context());
        if step % 50 == 49 {
            let all = std::fs::read(path).expect("the whole file");
            assert_eq!(all.len(), state.model.len(), "{}", context());
            if let Some(at) = differs(&all, &state.model) {
                panic!("{}: then another byte at {at}", context());
            }
        }
    }
}

fn differs(read: &[u8], expected: &[u8]) -> Option<usize> {
    if read.len() != expected.len() {
        return Some(read.len().min(expected.len()));
    }
    read.iter().zip(expected).position(|(read, expected)| read != expected)
}

fn open(path: &Path, flags: i32) -> Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}

/// The result of one step.
struct Done {
    name: &'static str,
    offset: usize,
    length: usize,
    done: Result<()>,
    read: Option<Vec<u8>>,
}

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes at {}", self.name, self.length, self.offset)
    }
}

struct State {
    rng: Rng,
    model: Vec<u8>,
    file: File,
    exercise: Fsx,
}

impl State {
    fn expected(&self, offset: usize, length: usize) -> &[u8] {
        self.model.get(offset..offset + length).unwrap_or_default()
    }

    /// A place in a file of `limit` bytes: anywhere, or near where blocks and pages meet.
    fn place(&mut self, limit: usize) -> usize {
        let at = self.rng.index(limit.max(1));
        match self.rng.below(3) {
            0 => at,
            1 => at & !(PAGE_BYTES - 1),
            _ => ((at & !((16 << 10) - 1)) + self.rng.index(3)).saturating_sub(1).min(limit),
        }
    }

    fn length(&mut self, limit: usize) -> usize {
        let most = match self.rng.below(4) {
            0 => 16,
            1 => PAGE_BYTES,
            2 => 40 << 10,
            _ => 300 << 10,
        };
        1 + self.rng.index(most.min(limit.max(1)))
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let word = self.rng.next_u64().to_le_bytes();
        (0..length).map(|at| word[at % 8].wrapping_add((at / 8) as u8)).collect()
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset..end].copy_from_slice(bytes);
    }

    fn step(&mut self, path: &Path) -> Done {
        let most = self.exercise.max_bytes;
        let size = self.model.len();
        match self.rng.below(22) {
            0..=3 => {
                let offset = self.place(most - 1);
                let length = self.length(most - offset);
                let bytes = self.bytes(length);
                let done = self.file.write_all_at(&bytes, offset as u64);
                self.put(offset, &bytes);
                Done { name: "write", offset, length, done, read: None }
            }
            4..=7 => {
                let offset = self.place(size);
                let length = self.length(size - offset.min(size)).min(size - offset.min(size));
                let mut read = vec![0; length];
                let done = self.file.read_exact_at(&mut read, offset as u64);
                Done { name: "read", offset, length, done, read: Some(read) }
            }
            8 | 9 => self.mapped_write(),
            10 | 11 => self.mapped_read(),
            12 => {
                let length = self.place(most);
                let done = self.file.set_len(length as u64);
                self.model.resize(length, 0);
                Done { name: "truncate", offset: 0, length, done, read: None }
            }
            13 => self.allocate("punch", libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
            14 => self.allocate("zero", libc::FALLOC_FL_ZERO_RANGE),
            15 => self.allocate("reserve", 0),
            16 => self.copy(),
            17 => {
                let length = self.length(most - size.min(most - 1)).min(most - size.min(most));
                let bytes = self.bytes(length);
                let done = open(path, libc::O_APPEND)
                    .and_then(|mut file| std::io::Write::write_all(&mut file, &bytes));
                self.put(size, &bytes);
                Done { name: "append", offset: size, length, done, read: None }
            }
            18 => {
                let done = self.file.sync_all();
                Done { name: "fsync", offset: 0, length: 0, done, read: None }
            }
            19 => {
                let opened = open(path, 0).map(|file| self.file = file);
                Done { name: "reopen", offset: 0, length: 0, done: opened, read: None }
            }
            _ if !self.exercise.direct => {
                Done { name: "nothing", offset: 0, length: 0, done: Ok(()), read: None }
            }
            20 => {
                let offset = self.place(most - 1) / DIRECT_BYTES * DIRECT_BYTES;
                let length = self.length(most - offset).next_multiple_of(DIRECT_BYTES);
                let bytes = Aligned::of(&self.bytes(length));
                let done = open(path, libc::O_DIRECT)
                    .and_then(|file| file.write_all_at(bytes.as_slice(), offset as u64));
                self.put(offset, bytes.as_slice());
                Done { name: "direct write", offset, length, done, read: None }
            }
            _ => {
                let offset = self.place(size) / DIRECT_BYTES * DIRECT_BYTES;
                let length = self.length(size - offset.min(size)).next_multiple_of(DIRECT_BYTES);
                let mut buffer = Aligned::of(&vec![0; length]);
                let read = open(path, libc::O_DIRECT)
                    .and_then(|file| file.read_at(buffer.as_mut_slice(), offset as u64));
                let end = size.saturating_sub(offset).min(length);
                let (read, done) = match read {
                    Ok(read) => (buffer.as_slice()[..read].to_vec(), Ok(())),
                    Err(error) => (Vec::new(), Err(error)),
                };
                let short = done.is_ok() && read.len() != end;
                let done = if short { Err(Error::other(format!("{} bytes read", read.len()))) } else { done };
                Done { name: "direct read", offset, length, done, read: Some(read) }
            }
        }
    }

    fn allocate(&mut self, name: &'static str, flags: i32) -> Done {
        let most = self.exercise.max_bytes;
        let offset = self.place(most - 1);
        let length = self.length(most - offset);
        // SAFETY: the descriptor is open.
        let code = unsafe { libc::fallocate(self.file.as_raw_fd(), flags, offset as i64, length as i64) };
        let done = if code == 0 { Ok(()) } else { Err(Error::last_os_error()) };
        if flags & libc::FALLOC_FL_KEEP_SIZE == 0 && self.model.len() < offset + length {
            self.model.resize(offset + length, 0);
        }
        if flags != 0 {
            let end = self.model.len().min(offset + length);
            if let Some(range) = self.model.get_mut(offset..end) {
                range.fill(0);
            }
        }
        Done { name, offset, length, done, read: None }
    }

    /// Copies a range to one that does not overlap it.
    fn copy(&mut self) -> Done {
        let half = self.model.len() / 2;
        let (from, to) = (self.place(half.max(1)).min(half), half + self.place(half.max(1)).min(half));
        let length = self.length(half).min(half - from);
        let (mut at, mut into, mut left) = (from as i64, to as i64, length);
        let mut done = Ok(());
        while left > 0 {
            let file = self.file.as_raw_fd();
            // SAFETY: the descriptor is open, and the offsets live through the call.
            let copied = unsafe { libc::copy_file_range(file, &mut at, file, &mut into, left, 0) };
            match usize::try_from(copied) {
                Ok(0) => done = Err(Error::other("nothing was copied")),
                Ok(copied) => {
                    left -= copied;
                    continue;
                }
                Err(_) => done = Err(Error::last_os_error()),
            }
            break;
        }
        let bytes = self.model[from..from + length].to_vec();
        self.put(to, &bytes);
        Done { name: "copy", offset: to, length, done, read: None }
    }

    /// Changes the file through a shared mapping.
    fn mapped_write(&mut self) -> Done {
        let size = self.model.len();
        let offset = self.place(size);
        let length = self.length(size - offset.min(size)).min(size - offset.min(size));
        let bytes = self.bytes(length);
        let synced = self.rng.once_in(2);
        let done = Map::of(&self.file, offset, length, synced).map(|mut map| map.put(&bytes));
        if length > 0 {
            self.put(offset, &bytes);
        }
        Done { name: "mapped write", offset, length, done, read: None }
    }

    fn mapped_read(&mut self) -> Done {
        let size = self.model.len();
        let offset = self.place(size);
        let length = self.length(size - offset.min(size)).min(size - offset.min(size));
        let map = Map::of(&self.file, offset, length, false);
        let (read, done) = match map {
            Ok(map) => (map.get(), Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        Done { name: "mapped read", offset, length, done, read: Some(read) }
    }
}

/// A shared mapping of some bytes of a file.
struct Map {
    start: *mut libc::c_void,
    mapped_bytes: usize,
    skipped: usize,
    length: usize,
    synced: bool,
}

impl Map {
    fn of(file: &File, offset: usize, length: usize, synced: bool) -> Result<Self> {
        let skipped = offset % PAGE_BYTES;
        let mapped_bytes = (skipped + length).max(1);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let from = (offset - skipped) as i64;
        // SAFETY: a new mapping of an open file; nothing else is replaced.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), mapped_bytes, access, libc::MAP_SHARED, file.as_raw_fd(), from)
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Self { start, mapped_bytes, skipped, length, synced })
    }

    fn put(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.length);
        // SAFETY: the mapping has `skipped + length` bytes, all of them within the file, and no other code
        // uses it.
        unsafe {
            let into = self.start.cast::<u8>().add(self.skipped);
            ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len());
        }
    }

    fn get(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        // SAFETY: as above.
        unsafe {
            let from = self.start.cast::<u8>().add(self.skipped);
            ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), self.length);
        }
        bytes
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and not used any more.
        unsafe {
            if self.synced {
                libc::msync(self.start, self.mapped_bytes, libc::MS_SYNC);
            }
            libc::munmap(self.start, self.mapped_bytes);
        }
    }
}

/// Bytes at an address that direct transfers accept.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    length: usize,
}

impl Aligned {
    fn of(content: &[u8]) -> Self {
        let mut bytes = vec![0; content.len() + DIRECT_BYTES];
        let from = bytes.as_ptr().align_offset(DIRECT_BYTES);
        bytes[from..from + content.len()].copy_from_slice(content);
        Self { bytes, from, length: content.len() }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.length]
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filesystem_of_this_machine_agrees_with_the_model() {
        let place = tempfile::tempdir().unwrap();
        for seed in 0..4 {
            let exercise = Fsx { seed, steps: 300, max_bytes: 400 << 10, direct: false };
            run(&place.path().join(format!("file{seed}")), exercise);
        }
    }
}
