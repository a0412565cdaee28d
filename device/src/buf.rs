//! `IoBuf`: the memory that device operations read into and write from.
//!
//! # The idea
//! Direct I/O needs page-aligned memory and whole sectors; callers want exactly the bytes they asked for;
//! neither wants a copy. So an [`IoBuf`] owns a page-aligned allocation and shows a *window* (start, length)
//! of it. A read of 512 bytes at offset 100 becomes a read of two sectors and a window onto the middle.
//!
//! Caches are full of blocks that are much smaller than a page. Up to [`SMALL_MAX_BYTES`] an allocation has
//! 512, 1024 or 2048 bytes and is aligned to that: enough for devices with 512-byte sectors, and too short
//! for a sector of other devices anyway.
//!
//! Where larger memory comes from and goes is described in `pages`.
//!
//! # Invariants
//! - Every byte of an allocation is initialised: it is zeroed when it is allocated and only ever overwritten.
//!   A recycled buffer shows old content of this process, never undefined memory.
//! - `start + len <= capacity`.

#![allow(unsafe_code, reason = "memory with an alignment")]

mod pages;

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    fmt,
    ops::{Deref, DerefMut, Range},
    ptr::NonNull,
};

pub use self::pages::{BufferMemory, buffer_memory, give_back_unused, keep_unused, wait_for_growth};
use self::pages::{PAGES, SizeClass};

/// The alignment of a buffer's memory, but for small ones.
pub const ALIGNMENT_BYTES: usize = 4096;
/// The largest buffer that is small.
const SMALL_MAX_BYTES: usize = 2048;
/// The smallest allocation, and its alignment.
const SMALLEST_BYTES: usize = 512;

/// An owned buffer with a window onto its memory, which is page-aligned unless it is small.
pub struct IoBuf {
    memory: Memory,
    start: usize,
    len: usize,
}

impl IoBuf {
    /// A buffer of `len` bytes of unspecified content (old, but initialised), for callers who overwrite all
    /// of it.
    pub fn for_overwrite(len: usize) -> Self {
        Self { memory: Memory::take(len), start: 0, len }
    }

    /// A buffer of `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::for_overwrite(len);
        if buf.memory.recycled {
            buf.fill(0);
        }
        buf
    }

    /// The window's length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the window is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of memory that the buffer holds, for accounting.
    pub fn capacity(&self) -> usize {
        self.memory.capacity
    }

    /// Whether a buffer of its own for the window would take no less memory.
    pub fn is_fitted(&self) -> bool {
        self.memory.capacity <= Memory::capacity_for(self.len)
    }

    /// Narrows the window to `range`, relative to the present one. Moves no byte.
    ///
    /// # Panics
    /// When `range` does not lie within the window.
    pub fn narrow(mut self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} lies outside of {} bytes",
            self.len
        );
        self.start += range.start;
        self.len = range.end - range.start;
        self
    }

    /// Shortens the window to its first `len` bytes; does nothing when it is no longer than that.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Whether the window begins at a multiple of `unit_bytes` in memory.
    pub(crate) fn is_aligned_to(&self, unit_bytes: usize) -> bool {
        self.as_ptr().addr().is_multiple_of(unit_bytes)
    }
}

impl From<&[u8]> for IoBuf {
    fn from(bytes: &[u8]) -> Self {
        let mut buf = Self::for_overwrite(bytes.len());
        copy(&mut buf, bytes);
        buf
    }
}

impl Deref for IoBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the window lies within the allocation, which we own and which is initialised throughout.
        unsafe { std::slice::from_raw_parts(self.memory.pointer.as_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.pointer.as_ptr().add(self.start), self.len) }
    }
}

impl AsRef<[u8]> for IoBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} of {} bytes)", self.len, self.memory.capacity)
    }
}

impl PartialEq for IoBuf {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for IoBuf {}

/// Copies `source` over `target`, which must have the same length.
///
/// glibc copies blocks of 4 KiB and more with one `rep movsb`, which on several processors is slow (by a
/// factor of ten on the worst) when the target lies a little after the source modulo 4096: just where a
/// 16-byte header puts a page-aligned payload. Pieces below glibc's threshold take its vector loop instead,
/// and cost nothing measurable.
///
/// # Panics
/// When the lengths differ.
pub fn copy(target: &mut [u8], source: &[u8]) {
    /// Below the lowest threshold that glibc sets for `rep movsb`, and whole cache lines.
    const PIECE_BYTES: usize = 1984;

    assert_eq!(target.len(), source.len());
    if target.len() <= PIECE_BYTES || target.as_ptr().addr().is_multiple_of(64) {
        return target.copy_from_slice(source);
    }
    for (target, source) in target.chunks_mut(PIECE_BYTES).zip(source.chunks(PIECE_BYTES)) {
        target.copy_from_slice(source);
    }
}

/// An owned allocation of one size class, all of it initialised.
struct Memory {
    pointer: NonNull<u8>,
    capacity: usize,
    /// Whether it came from the pool, with old content.
    recycled: bool,
}

// SAFETY: `Memory` owns its allocation exclusively, as `Box<[u8]>` does; the pointer is not shared.
unsafe impl Send for Memory {}
// SAFETY: shared access only reads the allocation.
unsafe impl Sync for Memory {}

impl Memory {
    /// The memory for `len` bytes.
    fn capacity_for(len: usize) -> usize {
        if (1..=SMALL_MAX_BYTES).contains(&len) {
            return len.next_power_of_two().max(SMALLEST_BYTES);
        }
        SizeClass::of(len).map_or_else(|| len.next_multiple_of(ALIGNMENT_BYTES), SizeClass::capacity)
    }

    fn take(len: usize) -> Self {
        let capacity = Self::capacity_for(len);
        match Self::class(capacity) {
            Some(class) => {
                let (pointer, recycled) = PAGES.take(class);
                Self { pointer, capacity, recycled }
            }
            None => Self::allocate(capacity),
        }
    }

    /// The class of memory of so many bytes; none of memory that is the allocator's.
    fn class(capacity: usize) -> Option<SizeClass> {
        SizeClass::of(capacity).filter(|_| capacity >= ALIGNMENT_BYTES)
    }

    fn layout(capacity: usize) -> Layout {
        // Cannot overflow for what can be allocated at all; what cannot is refused as an allocation failure
        // is.
        Layout::from_size_align(capacity, capacity.min(ALIGNMENT_BYTES))
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<[u8; ALIGNMENT_BYTES]>()))
    }

    fn allocate(capacity: usize) -> Self {
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is not zero: a small buffer has 512 bytes at least, and one that is
        // larger than all classes more.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        Self { pointer, capacity, recycled: false }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(class) = Self::class(self.capacity) {
            // SAFETY: taken by `take` of this class, and no other code has it.
            return unsafe { PAGES.give(class, self.pointer) };
        }
        // SAFETY: allocated by `allocate` with this same layout.
        unsafe { dealloc(self.pointer.as_ptr(), Self::layout(self.capacity)) }
    }
}

/// Memory of the machine, in bytes; 0 if unknown.
pub fn machine_memory_bytes() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page_bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_page_aligned_and_zeroed_where_asked() {
        for len in [0, 4096, 5000, 17 << 20] {
            let mut buf = IoBuf::for_overwrite(len);
            buf.fill(0xaa);
            assert!(buf.as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES));
            drop(buf);
            assert!(IoBuf::zeroed(len).iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn small_memory_is_small_and_aligned_to_its_size() {
        for (len, capacity) in [(1, 512), (512, 512), (513, 1024), (1025, 2048), (2048, 2048), (2049, 4096)] {
            let mut buf = IoBuf::for_overwrite(len);
            assert_eq!(buf.capacity(), capacity);
            assert!(buf.is_aligned_to(capacity));
            buf.fill(0xaa);
            drop(buf);
            assert!(IoBuf::zeroed(len).iter().all(|byte| *byte == 0));
        }
        assert!(!IoBuf::zeroed(1024).narrow(8..100).is_aligned_to(512));
    }

    #[test]
    fn a_buffer_is_fitted_as_long_as_its_window_needs_its_memory() {
        for len in [0, 1, 512, 2048, 2049, 4096, 20_000, 17 << 20] {
            assert!(IoBuf::zeroed(len).is_fitted(), "{len}");
        }
        assert!(IoBuf::zeroed(8192).narrow(0..4097).is_fitted());
        assert!(!IoBuf::zeroed(8192).narrow(0..4096).is_fitted());
        assert!(!IoBuf::zeroed(4096).narrow(0..2048).is_fitted());
    }

    #[test]
    fn copies_are_whole_at_any_alignment() {
        let source: Vec<u8> = (0..10_000u32).map(|index| (index % 251) as u8).collect();
        for (start, len) in [(0, 0), (0, 4096), (16, 4096), (64, 9000), (5, 1984), (5, 1985), (28, 3968)] {
            let mut target = IoBuf::zeroed(start + len + 1);
            copy(&mut target[start..start + len], &source[..len]);
            assert_eq!(target[start..start + len], source[..len]);
            assert_eq!(target[start + len], 0);
        }
    }

    #[test]
    fn a_window_narrows_without_moving_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        let buf = IoBuf::from(&bytes[..]);
        let address = buf.as_ptr().addr();
        let mut window = buf.narrow(10..200).narrow(5..100);
        assert_eq!(window, IoBuf::from(&bytes[15..110]));
        assert_eq!(window.as_ptr().addr(), address + 15);
        window.truncate(3);
        window.truncate(50);
        assert_eq!(*window, [15, 16, 17]);
    }
}
