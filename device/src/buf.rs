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
//! # The pool
//! Freed allocations of up to 16 MiB are kept per size class (four classes per doubling, so that at most a
//! quarter is wasted) and reused by the next request of that class, without the allocator and without
//! zeroing. The pool keeps at most a small part of the machine's memory; the rest goes back to the allocator.
//!
//! The allocation that was freed last is taken first, so unneeded ones stay at the bottom. The smallest
//! number that a class had since the last look is the number that was not needed: [`give_back_unused`] gives
//! so many back. A caller with a clock calls it now and then. A steady load keeps what it needs, and an idle
//! process keeps nothing.
//!
//! # Invariants
//! - Every byte of an allocation is initialised: it is zeroed when it is allocated and only ever overwritten.
//!   A recycled buffer shows old content of this process, never undefined memory.
//! - `start + len <= capacity`.

#![allow(unsafe_code, reason = "memory with an alignment")]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    fmt,
    ops::{Deref, DerefMut, Range, RangeInclusive},
    ptr::NonNull,
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::IgnorePoison;

/// The alignment of a buffer's memory, but for small ones.
pub const ALIGNMENT_BYTES: usize = 4096;
/// The largest buffer that is small.
const SMALL_MAX_BYTES: usize = 2048;
/// The smallest allocation, and its alignment.
const SMALLEST_BYTES: usize = 512;

/// The part of the machine's memory that the pool keeps at most, over all size classes: one in so many,
/// within bounds.
const POOL_SHARE: u64 = 64;
/// The size of read-ahead and write bursts on a small machine; on a large one, the default limit of dirty
/// data.
const POOL_BYTES: RangeInclusive<u64> = 64 << 20..=256 << 20;

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
        let class = SizeClass::of(capacity).filter(|_| capacity >= ALIGNMENT_BYTES);
        class.and_then(|class| POOL.take(class)).unwrap_or_else(|| Self::allocate(capacity))
    }

    fn layout(capacity: usize) -> Layout {
        // Cannot overflow for what can be allocated at all; what cannot is refused as an allocation failure
        // is.
        Layout::from_size_align(capacity, capacity.min(ALIGNMENT_BYTES))
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<[u8; ALIGNMENT_BYTES]>()))
    }

    fn allocate(capacity: usize) -> Self {
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is not zero: a small buffer has 512 bytes at least, a size class a page,
        // and larger requests more.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        Self { pointer, capacity, recycled: false }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.capacity >= ALIGNMENT_BYTES
            && let Some(class) = SizeClass::of(self.capacity)
            && POOL.keep(class, self.pointer)
        {
            return;
        }
        // SAFETY: allocated by `allocate` with this same layout, and not kept by the pool.
        unsafe { dealloc(self.pointer.as_ptr(), Self::layout(self.capacity)) }
    }
}

/// A class of allocation sizes: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 … pages, up to 16 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SizeClass(usize);

impl SizeClass {
    const COUNT: usize = 44;

    /// The smallest class that holds `len` bytes, or `None` where the pool keeps none so large.
    fn of(len: usize) -> Option<Self> {
        let pages = len.div_ceil(ALIGNMENT_BYTES).max(1);
        if pages <= 4 {
            return Some(Self(pages - 1));
        }
        let doubling = (pages - 1).ilog2() as usize;
        let step_pages = 1 << (doubling - 2);
        let step = (pages - (1 << doubling)).div_ceil(step_pages);
        let index = 4 * (doubling - 1) + step - 1;
        (index < Self::COUNT).then_some(Self(index))
    }

    fn capacity(self) -> usize {
        let pages = if self.0 < 4 {
            self.0 + 1
        } else {
            let doubling = self.0 / 4 + 1;
            (1 << doubling) + (self.0 % 4 + 1) * (1 << (doubling - 2))
        };
        pages * ALIGNMENT_BYTES
    }
}

/// Freed allocations by size class. Each class has its own lock, held for a push or a pop, or to take out
/// unneeded memory.
struct Pool {
    classes: [Mutex<Stack>; SizeClass::COUNT],
    kept_bytes: AtomicUsize,
}

/// Those of one class, the one freed last on top.
struct Stack {
    kept: Vec<Kept>,
    /// How few there were at once since the last look.
    fewest: usize,
}

/// An unused allocation of its class.
struct Kept(NonNull<u8>);

// SAFETY: the pool owns the allocation exclusively while it is kept.
unsafe impl Send for Kept {}

/// Memory of the machine, in bytes; 0 if unknown.
pub fn machine_memory_bytes() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page_bytes).unwrap_or(0))
}

/// The most memory that the pool keeps.
fn pool_limit_bytes() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let share = machine_memory_bytes() / POOL_SHARE;
        usize::try_from(share.clamp(*POOL_BYTES.start(), *POOL_BYTES.end())).unwrap_or(usize::MAX)
    })
}

static POOL: Pool = Pool {
    classes: [const { Mutex::new(Stack { kept: Vec::new(), fewest: 0 }) }; SizeClass::COUNT],
    kept_bytes: AtomicUsize::new(0),
};

/// Gives memory that was not needed since the last call back to the allocator. Returns the bytes.
pub fn give_back_unused() -> usize {
    POOL.give_back_unused()
}

impl Pool {
    fn take(&self, class: SizeClass) -> Option<Memory> {
        let Kept(pointer) = {
            let mut stack = self.stack(class);
            let taken = stack.kept.pop()?;
            stack.fewest = stack.fewest.min(stack.kept.len());
            taken
        };
        self.kept_bytes.fetch_sub(class.capacity(), Ordering::Relaxed);
        Some(Memory { pointer, capacity: class.capacity(), recycled: true })
    }

    /// Keeps the allocation, which must be of `class`, unless the pool is full.
    fn keep(&self, class: SizeClass, pointer: NonNull<u8>) -> bool {
        let bytes = class.capacity();
        if self.kept_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > pool_limit_bytes() {
            self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.stack(class).kept.push(Kept(pointer));
        true
    }

    fn stack(&self, class: SizeClass) -> MutexGuard<'_, Stack> {
        self.classes[class.0].lock().ignore_poison()
    }

    fn give_back_unused(&self) -> usize {
        let mut given_bytes = 0;
        for class in (0..SizeClass::COUNT).map(SizeClass) {
            let unused: Vec<Kept> = {
                let mut stack = self.stack(class);
                let fewest = stack.fewest;
                let unused = stack.kept.drain(..fewest).collect();
                stack.fewest = stack.kept.len();
                unused
            };
            let bytes = unused.len() * class.capacity();
            self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
            given_bytes += bytes;
            for Kept(pointer) in unused {
                // SAFETY: allocated by `allocate` with the layout of its class, and taken out of the pool, so
                // that there is no other reference.
                unsafe { dealloc(pointer.as_ptr(), Memory::layout(class.capacity())) }
            }
        }
        given_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_size_class_holds_its_sizes_and_wastes_at_most_a_quarter(len in 0usize..=16 << 20) {
            let capacity = SizeClass::of(len).unwrap().capacity();
            prop_assert!(capacity >= len);
            prop_assert!(capacity <= len + (len / 4).max(ALIGNMENT_BYTES));
            prop_assert_eq!(SizeClass::of(capacity).unwrap().capacity(), capacity);
        }
    }

    #[test]
    fn size_classes_ascend_and_end_at_16_mib() {
        let capacities: Vec<usize> = (0..SizeClass::COUNT).map(|index| SizeClass(index).capacity()).collect();
        assert!(capacities.is_sorted());
        assert_eq!(capacities.first(), Some(&4096));
        assert_eq!(capacities.last(), Some(&(16 << 20)));
        assert_eq!(SizeClass::of((16 << 20) + 1), None);
    }

    #[test]
    fn what_a_load_does_not_need_is_given_back_and_no_more() {
        let pool = Pool {
            classes: [const { Mutex::new(Stack { kept: Vec::new(), fewest: 0 }) }; SizeClass::COUNT],
            kept_bytes: AtomicUsize::new(0),
        };
        let class = SizeClass::of(20_000).unwrap();
        let held = |count: usize| -> Vec<NonNull<u8>> {
            let take = |_| {
                let memory = pool.take(class).unwrap_or_else(|| Memory::allocate(class.capacity()));
                std::mem::ManuallyDrop::new(memory).pointer
            };
            (0..count).map(take).collect()
        };
        let free = |all: Vec<NonNull<u8>>| all.into_iter().for_each(|one| assert!(pool.keep(class, one)));
        let kept = || pool.kept_bytes.load(Ordering::Relaxed) / class.capacity();
        // Ten at once: all are kept, as they were needed a moment ago.
        free(held(10));
        assert_eq!((pool.give_back_unused(), kept()), (0, 10));
        // Then three at once, again and again.
        for _ in 0..5 {
            free(held(3));
        }
        assert_eq!((pool.give_back_unused(), kept()), (7 * class.capacity(), 3));
        free(held(3));
        assert_eq!((pool.give_back_unused(), kept()), (0, 3));
        // No sleepers at all.
        assert_eq!((pool.give_back_unused(), kept()), (3 * class.capacity(), 0));
        assert!(pool.take(class).is_none());
    }

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
