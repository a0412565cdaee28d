//! The memory of buffers of a page and more: mapped apart from the allocator, by size class.
//!
//! # The idea
//! The ARC and dirty data are nearly all of the memory of a process, and lie in buffers of whole pages. An
//! allocator for small objects serves these badly: for an alignment of a page it takes a page more of each (8
//! KiB cost 12), it keeps a run of pages as long as one of its blocks is in use, and it does not say what it
//! keeps. Buffers of whole pages need none of this, since the system takes back single pages. So each size
//! class has address space of its own, and a buffer that is freed becomes one of these:
//!
//! | state | its memory | next |
//! |---|---|---|
//! | kept | stays, with old content | taken first, the one that was freed last first |
//! | cold | was given back; the address space stays | taken when none is kept; the system zeroes its pages |
//!
//! So the memory of the process is what is in use and what is kept, to the page, whatever was freed in which
//! order. There are four classes per doubling, so that at most a quarter is wasted.
//!
//! # What is kept
//! At most as much as [`keep_unused`] says, over all classes. The smallest number that a class kept since the
//! last look is the number that was not needed: [`give_back_unused`] gives so many back. A caller with a
//! clock calls it now and then. A steady load keeps what it needs, and an idle process keeps nothing.
//!
//! # Huge pages
//! The processor finds the addresses of few pages fast, and the ARC has many: a cached read of 4 KiB waits a
//! fifth of its time for that, in a virtual machine more. So once a class has [`HUGE_FROM_BYTES`], its
//! further address space is filled in huge pages where the system has them. At most one of them is not in
//! use, so a class takes at most a sixtieth more than it would in small ones. It is so only until all
//! of a mapping was used once: a huge page that comes later would bring memory back that was given back
//! around a buffer in use. Giving back a part splits a huge page: from then on the process does not have
//! that part, and the system takes it when it is short of memory.
//!
//! # Growth
//! A thread that looks after the memory of the process need not look all the time: it asks to be woken when
//! the memory of buffers has grown ([`wait_for_growth`]).
//!
//! # Invariants
//! - Each address is in one place: in use, kept, cold, or in the part of a mapping that was never used.
//! - The lock of a class is never held while memory is given back, and never together with another lock.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::{ALIGNMENT_BYTES, machine_memory_bytes};
use crate::IgnorePoison;

/// Address space that a class takes at once; a buffer may be larger.
const MAPPING_BYTES: usize = 4 << 20;
/// The same for a class that gets huge pages.
const HUGE_MAPPING_BYTES: usize = 16 << 20;
/// A class with so much address space gets huge pages for more.
const HUGE_FROM_BYTES: usize = 128 << 20;
/// The size and alignment of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The part of the machine's memory that is kept unless [`keep_unused`] was called: one in so many, within
/// bounds.
const KEPT_SHARE: u64 = 64;
/// The size of read-ahead and write bursts on a small machine; on a large one, the default limit of dirty
/// data.
const KEPT_BYTES: RangeInclusive<u64> = 64 << 20..=256 << 20;

/// All of the process.
pub(super) static PAGES: Pages = Pages::new();

/// The memory of buffers of a page and more, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferMemory {
    /// Of buffers in use.
    pub used_bytes: u64,
    /// Of freed buffers, kept for the next ones.
    pub kept_bytes: u64,
}

/// The memory of all buffers of the process now.
pub fn buffer_memory() -> BufferMemory {
    let bytes = |counter: &AtomicUsize| counter.load(Ordering::Relaxed) as u64;
    BufferMemory { used_bytes: bytes(&PAGES.used_bytes), kept_bytes: bytes(&PAGES.kept_bytes) }
}

/// From now on at most `bytes` of freed buffers are kept; what is kept beyond that goes back to the system.
pub fn keep_unused(bytes: u64) {
    PAGES.keep_at_most(usize::try_from(bytes).unwrap_or(usize::MAX));
}

/// Gives memory that was not needed since the last call back to the system. Returns the bytes.
pub fn give_back_unused() -> usize {
    PAGES.give_back_unused()
}

/// Waits until the memory of buffers has grown by so many bytes, but at most so long. Returns whether it has
/// grown; that another thread waits for less counts too.
pub fn wait_for_growth(bytes: u64, limit: Duration) -> bool {
    PAGES.wait_for_growth(usize::try_from(bytes).unwrap_or(usize::MAX), limit)
}

/// A class of sizes: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 … pages, up to 32 MiB: the largest
/// request of a client. The allocator would keep the memory of one that another thread gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeClass(usize);

impl SizeClass {
    const COUNT: usize = 48;

    /// The smallest class that holds `len` bytes, or `None` where there is none so large.
    pub(super) fn of(len: usize) -> Option<Self> {
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

    pub(super) fn capacity(self) -> usize {
        let pages = if self.0 < 4 {
            self.0 + 1
        } else {
            let doubling = self.0 / 4 + 1;
            (1 << doubling) + (self.0 % 4 + 1) * (1 << (doubling - 2))
        };
        pages * ALIGNMENT_BYTES
    }
}

/// Buffers by size class. Each class has its own lock, held for a push or a pop, for a mapping, or to take
/// out unneeded memory.
pub(super) struct Pages {
    classes: [Mutex<Class>; SizeClass::COUNT],
    used_bytes: AtomicUsize,
    kept_bytes: AtomicUsize,
    /// The most that is kept; 0 before it is known.
    most_kept_bytes: AtomicUsize,
    growth: Growth,
}

/// What wakes those who wait for growth.
struct Growth {
    /// They are woken when buffers have this much memory.
    wake_at_bytes: AtomicUsize,
    /// How often they were woken.
    wakes: Mutex<u64>,
    woken: Condvar,
}

impl Growth {
    /// Nothing is waited for.
    const NEVER: usize = usize::MAX;

    const fn new() -> Self {
        Self { wake_at_bytes: AtomicUsize::new(Self::NEVER), wakes: Mutex::new(0), woken: Condvar::new() }
    }

    /// Wakes them when so much memory is enough for that.
    fn reached(&self, bytes: usize) {
        if bytes < self.wake_at_bytes.load(Ordering::Relaxed) {
            return;
        }
        let mut wakes = self.wakes.lock().ignore_poison();
        if self.wake_at_bytes.swap(Self::NEVER, Ordering::Relaxed) != Self::NEVER {
            *wakes += 1;
            self.woken.notify_all();
        }
    }

    /// Waits until buffers have so much memory.
    fn wait(&self, bytes: usize, limit: Duration) -> bool {
        let mut wakes = self.wakes.lock().ignore_poison();
        self.wake_at_bytes.fetch_min(bytes, Ordering::Relaxed);
        let before = *wakes;
        let end = Instant::now() + limit;
        while *wakes == before {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            wakes = match self.woken.wait_timeout(wakes, left) {
                Ok((wakes, _)) => wakes,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        true
    }
}

/// The unused buffers of a class.
struct Class {
    /// With memory, the one freed last on top.
    kept: Vec<Unused>,
    /// How few were kept at once since the last look.
    fewest: usize,
    /// Without memory.
    cold: Vec<Unused>,
    /// The part of the last mapping that was never used.
    fresh: Option<Mapping>,
    /// All address space.
    mapped_bytes: usize,
}

/// Address space of which a part was never used.
struct Mapping {
    begin: NonNull<u8>,
    length: usize,
    is_huge: bool,
    next: Unused,
    /// Buffers that were never used.
    left: usize,
}

// SAFETY: an unused buffer has no other owner, and the beginning only says where the mapping is.
unsafe impl Send for Mapping {}

/// An unused buffer of its class.
struct Unused(NonNull<u8>);

// SAFETY: an unused buffer has no other owner.
unsafe impl Send for Unused {}

impl Pages {
    const fn new() -> Self {
        Self {
            classes: [const { Mutex::new(Class::EMPTY) }; SizeClass::COUNT],
            used_bytes: AtomicUsize::new(0),
            kept_bytes: AtomicUsize::new(0),
            most_kept_bytes: AtomicUsize::new(0),
            growth: Growth::new(),
        }
    }

    /// A buffer of the class, and whether it has old content; it is zeroed otherwise.
    pub(super) fn take(&self, class: SizeClass) -> (NonNull<u8>, bool) {
        let bytes = class.capacity();
        let used = self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut own = self.class(class);
        if let Some(Unused(pointer)) = own.kept.pop() {
            own.fewest = own.fewest.min(own.kept.len());
            drop(own);
            self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return (pointer, true);
        }
        let Unused(pointer) = own.cold.pop().unwrap_or_else(|| own.fresh(bytes));
        drop(own);
        self.growth.reached(used + self.kept_bytes.load(Ordering::Relaxed));
        (pointer, false)
    }

    /// Takes a buffer of the class back.
    ///
    /// # Safety
    /// It came from [`Self::take`] of the same class, and its owner does not use it any more.
    pub(super) unsafe fn give(&self, class: SizeClass, pointer: NonNull<u8>) {
        let bytes = class.capacity();
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if self.kept_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.most_kept_bytes() {
            self.class(class).kept.push(Unused(pointer));
            return;
        }
        self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.give_back(class, vec![Unused(pointer)]);
    }

    fn class(&self, class: SizeClass) -> MutexGuard<'_, Class> {
        self.classes[class.0].lock().ignore_poison()
    }

    fn most_kept_bytes(&self) -> usize {
        let known = self.most_kept_bytes.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let share = (machine_memory_bytes() / KEPT_SHARE).clamp(*KEPT_BYTES.start(), *KEPT_BYTES.end());
        let bytes = usize::try_from(share).unwrap_or(usize::MAX);
        self.most_kept_bytes.store(bytes, Ordering::Relaxed);
        bytes
    }

    fn keep_at_most(&self, bytes: usize) {
        self.most_kept_bytes.store(bytes.max(1), Ordering::Relaxed);
        // Large ones first: these are the fewest steps.
        for class in (0..SizeClass::COUNT).rev().map(SizeClass) {
            let excess = self.kept_bytes.load(Ordering::Relaxed).saturating_sub(bytes);
            if excess == 0 {
                break;
            }
            let count = excess.div_ceil(class.capacity());
            self.give_back_kept(class, |own| count.min(own.kept.len()));
        }
    }

    fn wait_for_growth(&self, bytes: usize, limit: Duration) -> bool {
        let now = self.used_bytes.load(Ordering::Relaxed) + self.kept_bytes.load(Ordering::Relaxed);
        self.growth.wait(now.saturating_add(bytes), limit)
    }

    fn give_back_unused(&self) -> usize {
        let given =
            (0..SizeClass::COUNT).map(|class| self.give_back_kept(SizeClass(class), |own| own.fewest));
        given.sum()
    }

    /// Gives the kept buffers of a class back that were freed first, as many as `count` says. Returns their
    /// bytes.
    fn give_back_kept(&self, class: SizeClass, count: impl FnOnce(&Class) -> usize) -> usize {
        let unused: Vec<Unused> = {
            let mut own = self.class(class);
            let count = count(&own);
            let unused = own.kept.drain(..count).collect();
            own.fewest = own.kept.len();
            unused
        };
        let bytes = unused.len() * class.capacity();
        self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.give_back(class, unused);
        bytes
    }

    /// Gives the memory of buffers back to the system. They are cold then.
    fn give_back(&self, class: SizeClass, unused: Vec<Unused>) {
        for Unused(pointer) in &unused {
            // SAFETY: these are whole pages of an anonymous mapping, which have no other owner; what they
            // contain is not needed.
            let result =
                unsafe { libc::madvise(pointer.as_ptr().cast(), class.capacity(), libc::MADV_DONTNEED) };
            if result != 0 {
                // They are locked in memory, by 'mlockall': a cold buffer is to be zero all the same.
                // SAFETY: as above; the buffer has so many bytes.
                unsafe { pointer.as_ptr().write_bytes(0, class.capacity()) };
            }
        }
        self.class(class).cold.extend(unused);
    }
}

impl Class {
    const EMPTY: Self = Self { kept: Vec::new(), fewest: 0, cold: Vec::new(), fresh: None, mapped_bytes: 0 };

    /// A buffer that was never used. There is no other unused one.
    fn fresh(&mut self, bytes: usize) -> Unused {
        let mut mapping = self.fresh.take().unwrap_or_else(|| {
            let mapping = Mapping::new(bytes, self.mapped_bytes >= HUGE_FROM_BYTES);
            self.mapped_bytes += mapping.length;
            mapping
        });
        let taken = Unused(mapping.next.0);
        mapping.left -= 1;
        if mapping.left > 0 {
            // SAFETY: it lies in the same mapping, as there is one left.
            mapping.next = Unused(unsafe { taken.0.add(bytes) });
            self.fresh = Some(mapping);
        } else if mapping.is_huge {
            mapping.advise(libc::MADV_NOHUGEPAGE);
        }
        taken
    }
}

impl Mapping {
    /// Address space for buffers of so many bytes. With `is_huge` it will be filled in huge pages.
    fn new(bytes: usize, is_huge: bool) -> Self {
        let (length, alignment) = match is_huge {
            true => (HUGE_MAPPING_BYTES.max(bytes), HUGE_PAGE_BYTES),
            false => ((MAPPING_BYTES / bytes).max(1) * bytes, ALIGNMENT_BYTES),
        };
        let begin = map(length, alignment);
        let mapping = Self { begin, length, is_huge, next: Unused(begin), left: length / bytes };
        mapping.advise(if is_huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE });
        mapping
    }

    /// Tells the system whether to fill it in huge pages. A system that has none refuses.
    fn advise(&self, advice: i32) {
        // SAFETY: the mapping exists as long as the process, and its content stays as it is.
        let _ = unsafe { libc::madvise(self.begin.as_ptr().cast(), self.length, advice) };
    }
}

/// New address space.
fn map(length: usize, alignment: usize) -> NonNull<u8> {
    // The system aligns to pages: the rest is cut off.
    let more = alignment - ALIGNMENT_BYTES;
    // SAFETY: the system chooses an address that is free.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length + more,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    let pointer = NonNull::new(address.cast::<u8>()).filter(|_| address != libc::MAP_FAILED);
    let Some(pointer) = pointer else {
        handle_alloc_error(Layout::from_size_align(length, ALIGNMENT_BYTES).unwrap_or(Layout::new::<u8>()))
    };
    let before = pointer.as_ptr().align_offset(alignment);
    // SAFETY: what is unmapped lies in the mapping made above, before and behind what is used of it; the
    // beginning of that lies in it, too.
    unsafe {
        if before > 0 {
            libc::munmap(address, before);
        }
        if before < more {
            libc::munmap(pointer.as_ptr().add(before + length).cast(), more - before);
        }
        pointer.add(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_size_class_holds_its_sizes_and_wastes_at_most_a_quarter(len in 0usize..=32 << 20) {
            let capacity = SizeClass::of(len).unwrap().capacity();
            prop_assert!(capacity >= len);
            prop_assert!(capacity <= len + (len / 4).max(ALIGNMENT_BYTES));
            prop_assert_eq!(SizeClass::of(capacity).unwrap().capacity(), capacity);
        }
    }

    #[test]
    fn size_classes_ascend_and_end_at_32_mib() {
        let capacities: Vec<usize> = (0..SizeClass::COUNT).map(|index| SizeClass(index).capacity()).collect();
        assert!(capacities.is_sorted());
        assert_eq!(capacities.first(), Some(&4096));
        assert_eq!(capacities.last(), Some(&(32 << 20)));
        assert_eq!(SizeClass::of((32 << 20) + 1), None);
    }

    /// So many buffers at once, all of them written.
    fn taken(pages: &Pages, class: SizeClass, count: usize) -> Vec<NonNull<u8>> {
        let take = |_| {
            let (pointer, _) = pages.take(class);
            // SAFETY: the buffer is this test's, and has so many bytes.
            unsafe { pointer.as_ptr().write_bytes(0xaa, class.capacity()) };
            pointer
        };
        (0..count).map(take).collect()
    }

    fn give(pages: &Pages, class: SizeClass, all: Vec<NonNull<u8>>) {
        // SAFETY: they were taken of this class, and are not used any more.
        all.into_iter().for_each(|one| unsafe { pages.give(class, one) });
    }

    fn resident_pages(pointer: NonNull<u8>, bytes: usize) -> usize {
        let mut pages = vec![0u8; bytes / ALIGNMENT_BYTES];
        // SAFETY: the buffer is mapped, and there is a byte for each of its pages.
        let result = unsafe { libc::mincore(pointer.as_ptr().cast(), bytes, pages.as_mut_ptr()) };
        assert_eq!(result, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    fn what_a_load_does_not_need_is_given_back_and_no_more() {
        let pages = Pages::new();
        let class = SizeClass::of(20_000).unwrap();
        let run = |count| give(&pages, class, taken(&pages, class, count));
        let kept = || pages.kept_bytes.load(Ordering::Relaxed) / class.capacity();
        // Ten at once: all are kept, as they were needed a moment ago.
        run(10);
        assert_eq!((pages.give_back_unused(), kept()), (0, 10));
        // Then three at once, again and again.
        for _ in 0..5 {
            run(3);
        }
        assert_eq!((pages.give_back_unused(), kept()), (7 * class.capacity(), 3));
        run(3);
        assert_eq!((pages.give_back_unused(), kept()), (0, 3));
        // No sleepers at all.
        assert_eq!((pages.give_back_unused(), kept()), (3 * class.capacity(), 0));
        assert!(!pages.take(class).1, "nothing is kept");
    }

    #[test]
    fn the_memory_of_each_freed_buffer_goes_back_while_its_neighbours_are_in_use() {
        let pages = Pages::new();
        let class = SizeClass::of(8192).unwrap();
        let all = taken(&pages, class, 64);
        pages.keep_at_most(0);
        let (freed, used): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(index, _)| index % 2 == 0);
        give(&pages, class, freed.iter().map(|(_, pointer)| **pointer).collect());
        assert!(freed.iter().all(|(_, pointer)| resident_pages(**pointer, 8192) == 0));
        assert!(used.iter().all(|(_, pointer)| resident_pages(**pointer, 8192) == 2));
        assert_eq!(pages.used_bytes.load(Ordering::Relaxed), 32 * 8192);
        // The same address space serves again, zeroed.
        let (again, recycled) = pages.take(class);
        assert!(!recycled && freed.iter().any(|(_, pointer)| **pointer == again));
        // SAFETY: the buffer has so many bytes, all of them initialised.
        assert!(unsafe { std::slice::from_raw_parts(again.as_ptr(), 8192) }.iter().all(|byte| *byte == 0));
    }

    /// The bytes in huge pages, as the system says, of the mapping that has this address.
    fn huge_bytes(pointer: NonNull<u8>) -> Option<usize> {
        let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let address = pointer.as_ptr() as usize;
        let holds = |line: &str| {
            let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
            let [begin, end] = [begin, end].map(|text| usize::from_str_radix(text, 16).ok());
            Some((begin?..end?).contains(&address))
        };
        let of_mapping = text.lines().skip_while(|line| holds(line) != Some(true));
        let mut figures = of_mapping.filter_map(|line| line.strip_prefix("AnonHugePages:"));
        let kib: usize = figures.next()?.split_whitespace().next()?.parse().ok()?;
        Some(kib << 10)
    }

    #[test]
    fn further_buffers_of_a_class_with_much_memory_lie_in_huge_pages_where_the_system_gives_them() {
        let is_given = {
            let mapping = map(HUGE_MAPPING_BYTES, HUGE_PAGE_BYTES);
            // SAFETY: the mapping is this test's, and has so many bytes.
            unsafe {
                libc::madvise(mapping.as_ptr().cast(), HUGE_MAPPING_BYTES, libc::MADV_HUGEPAGE);
                mapping.as_ptr().write_bytes(0xaa, HUGE_MAPPING_BYTES);
            }
            huge_bytes(mapping) == Some(HUGE_MAPPING_BYTES)
        };
        let pages = Pages::new();
        let class = SizeClass::of(12 << 10).unwrap();
        let all = taken(&pages, class, (HUGE_FROM_BYTES + HUGE_MAPPING_BYTES) / class.capacity());
        assert_eq!(huge_bytes(all[0]), Some(0), "not while it has little");
        let last = huge_bytes(all[all.len() - 1]).unwrap();
        assert!(!is_given || last > 0, "the system gives huge pages to others");
    }

    #[test]
    fn a_class_with_much_memory_gives_back_single_buffers_of_its_huge_pages() {
        let pages = Pages::new();
        let class = SizeClass::of(12 << 10).unwrap();
        let count = (HUGE_FROM_BYTES + 2 * HUGE_MAPPING_BYTES) / class.capacity();
        let all = taken(&pages, class, count);
        pages.keep_at_most(0);
        let (freed, used): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(index, _)| index % 2 == 0);
        give(&pages, class, freed.iter().map(|(_, pointer)| **pointer).collect());
        assert!(freed.iter().all(|(_, pointer)| resident_pages(**pointer, class.capacity()) == 0));
        for (_, pointer) in &used {
            // SAFETY: the buffer is this test's, and has so many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(pointer.as_ptr(), class.capacity()) };
            assert!(bytes.iter().all(|byte| *byte == 0xaa));
        }
        let again = taken(&pages, class, freed.len());
        assert_eq!(pages.used_bytes.load(Ordering::Relaxed), count * class.capacity());
        let mut places: Vec<_> = used.iter().map(|(_, pointer)| **pointer).chain(again).collect();
        places.sort_unstable();
        let apart = |pair: &[NonNull<u8>]| pair[1].as_ptr() as usize - pair[0].as_ptr() as usize;
        assert!(places.windows(2).all(|pair| apart(pair) >= class.capacity()), "each has its own memory");
    }

    #[test]
    fn growth_wakes_who_waits_for_it_and_buffers_that_are_used_again_do_not() {
        let pages = Pages::new();
        let class = SizeClass::of(1 << 20).unwrap();
        let waited = |limit| pages.wait_for_growth(3 << 20, limit);
        let all = taken(&pages, class, 8);
        give(&pages, class, all);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waited(Duration::from_secs(600)));
            while pages.growth.wake_at_bytes.load(Ordering::Relaxed) == Growth::NEVER {
                std::thread::yield_now();
            }
            let again = taken(&pages, class, 8);
            assert!(!waiting.is_finished() && *pages.growth.wakes.lock().unwrap() == 0);
            let more = taken(&pages, class, 3);
            assert!(waiting.join().unwrap());
            give(&pages, class, again.into_iter().chain(more).collect());
        });
        assert!(!waited(Duration::from_millis(1)), "nothing grew since");
    }

    #[test]
    fn a_smaller_limit_gives_back_at_once_what_is_kept_beyond_it() {
        let pages = Pages::new();
        let (small, large) = (SizeClass::of(4096).unwrap(), SizeClass::of(1 << 20).unwrap());
        let (of_small, of_large) = (taken(&pages, small, 16), taken(&pages, large, 4));
        give(&pages, small, of_small);
        give(&pages, large, of_large);
        let kept = || pages.kept_bytes.load(Ordering::Relaxed);
        assert_eq!(kept(), (4 << 20) + (64 << 10));
        pages.keep_at_most(2 << 20);
        assert_eq!(kept(), (1 << 20) + (64 << 10));
        pages.keep_at_most(32 << 10);
        assert_eq!(kept(), 32 << 10);
    }
}
