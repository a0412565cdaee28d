//! Reads of neighbouring ranges, which the kernel gets as one request.
//!
//! # The idea
//! Blocks that were written together lie side by side, and are often read together. Each request costs the
//! kernel the way through the filesystem, a look at the pages of the buffer, and a completion, as much as it
//! takes to move some kilobytes. So reads that wait in a ring until it is submitted, and that are neighbours
//! in the same file, become one `readv` into all their buffers, of at most [`MOST_BYTES`]: more would keep a
//! device from working on several at a time.
//!
//! No reader notices. Where the request fails or ends early, each read that did not get all of its bytes is
//! submitted again by itself, so that its result is its own.

use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

/// The most bytes of one request, as `zfs_vdev_aggregation_limit_non_rotating` has them.
const MOST_BYTES: usize = 128 << 10;
/// The most reads of one request.
const MOST_READS: usize = 64;

/// A read that waits to be submitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Its number in the ring.
    pub slot: usize,
    pub place: Place,
}

/// What a read reads, and where to. The memory is that of an op in a slot, and stays until its completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub fd: RawFd,
    pub offset: u64,
    pub memory: *mut u8,
    pub len: usize,
}

impl Place {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.len as u64)
    }

    pub(super) fn entry(&self) -> squeue::Entry {
        opcode::Read::new(types::Fd(self.fd), self.memory, self.len as u32).offset(self.offset).build()
    }
}

/// One request for several reads.
#[derive(Debug)]
pub(super) struct Joined {
    /// The numbers and lengths of the reads.
    reads: Vec<(usize, usize)>,
    /// Their memory. The kernel reads this until the completion.
    vectors: Vec<libc::iovec>,
}

/// How many of these sorted reads, from the first one on, make one request.
pub(super) fn run_length(reads: &[Waiting]) -> usize {
    let mut bytes = reads.first().map_or(0, |first| first.place.len);
    let continues = |pair: &&[Waiting]| {
        let [one, next] = pair else { return false };
        bytes += next.place.len;
        one.place.fd == next.place.fd && one.place.end() == next.place.offset && bytes <= MOST_BYTES
    };
    1 + reads.windows(2).take(MOST_READS - 1).take_while(continues).count()
}

impl Joined {
    pub fn new(run: &[Waiting]) -> Self {
        let vector =
            |read: &Waiting| libc::iovec { iov_base: read.place.memory.cast(), iov_len: read.place.len };
        Self {
            reads: run.iter().map(|read| (read.slot, read.place.len)).collect(),
            vectors: run.iter().map(vector).collect(),
        }
    }

    /// The request. It points into this, which must be kept until the completion.
    pub fn entry(&self, first: &Place) -> squeue::Entry {
        let (vectors, count) = (self.vectors.as_ptr(), self.vectors.len() as u32);
        opcode::Readv::new(types::Fd(first.fd), vectors, count).offset(first.offset).build()
    }

    /// What the result means for each of the reads: its number, and the bytes that it got, or `None` where it
    /// has to be submitted again.
    pub fn results(&self, result: i32) -> impl Iterator<Item = (usize, Option<i32>)> {
        let mut left = usize::try_from(result).unwrap_or(0);
        self.reads.iter().map(move |&(slot, len)| {
            let is_whole = left >= len;
            left = if is_whole { left - len } else { 0 };
            (slot, i32::try_from(len).ok().filter(|_| is_whole))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(slot: usize, fd: RawFd, offset: u64, len: usize) -> Waiting {
        Waiting { slot, place: Place { fd, offset, memory: std::ptr::null_mut(), len } }
    }

    #[test]
    fn only_neighbours_in_one_file_are_joined_and_not_too_many() {
        let neighbours = [read(0, 3, 0, 4096), read(1, 3, 4096, 8192), read(2, 3, 12288, 512)];
        assert_eq!(run_length(&neighbours), 3);
        assert_eq!(run_length(&[read(0, 3, 0, 4096), read(1, 3, 4608, 4096)]), 1, "a gap");
        assert_eq!(run_length(&[read(0, 3, 0, 4096), read(1, 3, 2048, 4096)]), 1, "they overlap");
        assert_eq!(run_length(&[read(0, 3, 0, 4096), read(1, 4, 4096, 4096)]), 1, "another file");
        let many: Vec<_> = (0..100).map(|slot| read(slot, 3, slot as u64 * 512, 512)).collect();
        assert_eq!(run_length(&many), MOST_READS);
        let large: Vec<_> = (0..9).map(|slot| read(slot, 3, (slot as u64) << 15, 1 << 15)).collect();
        assert_eq!(run_length(&large), 4);
        assert_eq!(run_length(&[read(0, 3, 0, 1 << 20), read(1, 3, 1 << 20, 4096)]), 1, "large by itself");
    }

    #[test]
    fn what_a_joined_read_did_not_get_is_read_again() {
        let joined = Joined::new(&[read(5, 3, 0, 4096), read(2, 3, 4096, 8192), read(9, 3, 12288, 512)]);
        let results = |result| joined.results(result).collect::<Vec<_>>();
        assert_eq!(results(12800), [(5, Some(4096)), (2, Some(8192)), (9, Some(512))]);
        assert_eq!(results(12288), [(5, Some(4096)), (2, Some(8192)), (9, None)]);
        assert_eq!(results(8000), [(5, Some(4096)), (2, None), (9, None)]);
        assert_eq!(results(0), [(5, None), (2, None), (9, None)]);
        assert_eq!(results(-libc::EIO), [(5, None), (2, None), (9, None)]);
    }
}
