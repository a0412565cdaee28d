//! [`Locked`]: a box for keys, whose memory is not swapped out, not part of core dumps, and wiped.
//!
//! The kernel locks and leaves out whole pages, so keys lie on pages of their own, which nothing else uses
//! and which are never given back. A page is cut into slots of one size, a power of two. Where locking is not
//! allowed (`RLIMIT_MEMLOCK`) the page is only left out of dumps; where there are no pages at all, the box is
//! an ordinary one that is wiped.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `FREE` | the slots that are not in use; for a few lines | taken alone |

#![allow(unsafe_code, reason = "memory of keys is mapped, locked and wiped")]

use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

/// The smallest slot, in bytes, as a power of two, and the largest.
const SMALLEST: u32 = 6;
const LARGEST: u32 = 12;
/// Bytes that are mapped at a time.
const MAPPED_BYTES: usize = 16 << 10;

/// Slots that are not in use, by size.
static FREE: Mutex<[Vec<usize>; (LARGEST - SMALLEST + 1) as usize]> =
    Mutex::new([const { Vec::new() }; (LARGEST - SMALLEST + 1) as usize]);

/// A value on a page of keys.
pub(super) struct Locked<T> {
    at: NonNull<T>,
    /// Which of the sizes the slot has; none where it is an ordinary box.
    size: Option<usize>,
}

// SAFETY: it owns its value, as a box does.
unsafe impl<T: Send> Send for Locked<T> {}
// SAFETY: it gives out shared references only, as a box does.
unsafe impl<T: Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Moves a value there.
    pub fn new(value: T) -> Self {
        let size = size_of::<T>().max(1 << SMALLEST).next_power_of_two();
        let class = (size.trailing_zeros() - SMALLEST) as usize;
        let fits = size <= 1 << LARGEST && align_of::<T>() <= size;
        match fits.then(|| slot(class, size)).flatten() {
            Some(at) => {
                let at = at.cast::<T>();
                // SAFETY: the slot is mapped, aligned to its size, at least as large as the value, and only
                // this box's.
                unsafe { at.write(value) };
                Self { at, size: Some(class) }
            }
            None => Self { at: NonNull::from(Box::leak(Box::new(value))), size: None },
        }
    }
}

impl<T> Deref for Locked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value was written there when the box was made, and lives as long as it.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        // SAFETY: the value is there, and is not used after this.
        unsafe { self.at.drop_in_place() };
        let bytes = self.at.cast::<u8>();
        // SAFETY: the memory is still this box's, and holds no value any more.
        unsafe { ptr::write_bytes(bytes.as_ptr(), 0, size_of::<T>()) };
        // Makes the stores observable, so that they are not removed as dead.
        std::hint::black_box(bytes);
        match self.size {
            Some(size) => {
                let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(slots) = free.get_mut(size) {
                    slots.push(bytes.as_ptr().expose_provenance());
                }
            }
            // SAFETY: it came from a box of a value that is never dropped again.
            None => drop(unsafe { Box::from_raw(self.at.as_ptr().cast::<std::mem::ManuallyDrop<T>>()) }),
        }
    }
}

/// A slot of this size.
fn slot(class: usize, size: usize) -> Option<NonNull<u8>> {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let slots = free.get_mut(class)?;
    if slots.is_empty() {
        let page = map()?;
        slots.extend((0..MAPPED_BYTES / size).map(|slot| page + slot * size));
    }
    NonNull::new(ptr::with_exposed_provenance_mut(slots.pop()?))
}

/// Maps memory for slots, and gives its address.
fn map() -> Option<usize> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory is asked for, wherever there is room.
    let page = unsafe { libc::mmap(ptr::null_mut(), MAPPED_BYTES, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the memory was mapped just now. Refusals change nothing about it.
    unsafe {
        libc::mlock(page, MAPPED_BYTES);
        libc::madvise(page, MAPPED_BYTES, libc::MADV_DONTDUMP);
    }
    Some(page.expose_provenance())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn values_are_kept_dropped_and_their_slots_used_again() {
        let counted = Rc::new(());
        let boxes: Vec<_> = (0..1000).map(|number| Locked::new((number, Rc::clone(&counted)))).collect();
        assert!(boxes.iter().enumerate().all(|(at, one)| one.0 == at));
        assert_eq!(Rc::strong_count(&counted), 1001);
        drop(boxes);
        assert_eq!(Rc::strong_count(&counted), 1);
        // One that is larger than any slot.
        let large = Locked::new(([7u8; 10_000], Rc::clone(&counted)));
        assert!(large.size.is_none() && large.0 == [7; 10_000]);
        drop(large);
        assert_eq!(Rc::strong_count(&counted), 1);
    }

    #[test]
    fn memory_of_keys_is_left_out_of_core_dumps() {
        let key = Locked::new([0x5a_u8; 32]);
        let at = key.at.as_ptr().expose_provenance();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        let flags = maps.lines().find(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bounds = range.and_then(|(from, to)| {
                Some(usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?)
            });
            if let Some(bounds) = bounds {
                inside = bounds.contains(&at);
            }
            inside && line.starts_with("VmFlags:")
        });
        assert!(flags.unwrap().split(' ').any(|flag| flag == "dd"), "{flags:?}");
    }
}
