//! Memory for requests and answers.
//!
//! The kernel demands a buffer that fits the largest request before it gives any request, and almost all
//! requests are small. So this memory takes none before it is written, and is given back to the system when
//! it was not needed for a while. An allocator might keep it, or write zeros into all of it.

#![allow(unsafe_code, reason = "a buffer of mapped memory")]

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes, zeros at first.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is this buffer's alone.
unsafe impl Send for Buffer {}

impl Buffer {
    /// So many bytes.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn new(length: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses a place where nothing is.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let buffer = Self { start, length };
        // Small requests are to take a page, not a huge one.
        buffer.advise(Advice::LinuxNoHugepage);
        Ok(buffer)
    }

    /// Makes all bytes zeros, and takes no memory until some are written again.
    pub fn clear(&mut self) {
        self.advise(Advice::LinuxDontNeed);
    }

    fn advise(&self, advice: Advice) {
        // SAFETY: the mapping is ours, and private: zeros are valid bytes. A kernel that does not take the
        // advice changes nothing.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.length, advice) };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and there are no borrows any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: all of the mapping can be read, and is borrowed as long as this is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and there are no other borrows.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cleared_is_zeros_again() {
        let mut buffer = Buffer::new(10_000).unwrap();
        assert_eq!(buffer[..], [0; 10_000]);
        buffer.fill(7);
        assert_eq!(buffer[..], [7; 10_000]);
        buffer.clear();
        assert_eq!(buffer[..], [0; 10_000]);
    }
}
