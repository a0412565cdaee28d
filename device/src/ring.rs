//! One io_uring per thread.
//!
//! # The idea
//! A ring belongs to the thread that made it: no lock, no cross-thread submission, and the kernel may run
//! completions only when that thread enters (`SINGLE_ISSUER`, `DEFER_TASKRUN`), which spares interrupts. A
//! future that is polled on a thread puts its request into that thread's ring. Requests are batched: they
//! reach the kernel when the thread is about to sleep, or when [`SUBMIT_BATCH`] of them wait; reads of
//! neighbouring ranges as one (`joined`).
//!
//! The ring is made when a driven thread first needs it. Kernels before 6.1 get fewer flags; where there is
//! no io_uring at all (an old kernel, a container that forbids it), requests are performed by plain system
//! calls.
//!
//! # Invariants
//! - A request is started only while the thread has a driver ([`enter_driver`]); the last driver to leave
//!   waits until nothing is in flight. So a future that moved to another thread is always completed.
//! - A slot holds its `Op`, and with it the buffer and the open file, from before submission until the
//!   completion. The ring is dropped only when nothing is in flight.
//! - At most [`MAX_IN_FLIGHT`] requests are in the kernel, fewer than the completion queue holds; the rest
//!   wait here.
//! - Wakers run (and ops are dropped) with no borrow of the thread's state: they may start requests.

#![allow(unsafe_code, reason = "the kernel writes into buffers of a ring")]

mod joined;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};

use self::joined::{Joined, Waiting, run_length};
use crate::operation::Op;

pub(crate) use self::joined::Place;

/// How many requests may wait for the thread to sleep before they are submitted anyway.
const SUBMIT_BATCH: usize = 32;

/// How many requests may be in the kernel at a time.
const MAX_IN_FLIGHT: usize = 1024;

const SUBMISSION_ENTRIES: u32 = 128;
const COMPLETION_ENTRIES: u32 = 2048;

/// Marks the completion of the read of the notification eventfd; no slot has this number.
const NOTIFIED: u64 = u64::MAX;

/// Marks the completion of the poll of a watched file; no slot has this number.
const WATCHED: u64 = u64::MAX - 1;

/// Marks the completion of joined reads, beside their number; no slot has a number as large.
const JOINED: u64 = 1 << 62;

thread_local! {
    static DRIVERS: Cell<usize> = const { Cell::new(0) };
    static RING: RefCell<Slot> = const { RefCell::new(Slot::Untried) };
}

/// Where the thread's ring is, if it has one.
#[derive(Default)]
enum Slot {
    #[default]
    Untried,
    Unavailable,
    Ready(Box<ThreadRing>),
}

/// Whether this thread drives a ring, so that requests may be started on it.
pub(crate) fn is_driven() -> bool {
    DRIVERS.try_with(|drivers| drivers.get() > 0).unwrap_or(false)
}

/// Counts one more driver on this thread, until [`leave_driver`].
pub(crate) fn enter_driver() {
    DRIVERS.with(|drivers| drivers.set(drivers.get() + 1));
}

/// Counts one driver less. The last one waits until nothing is in flight.
pub(crate) fn leave_driver() {
    // Still driven while it drains: a waker may poll a future that asks for more.
    if DRIVERS.with(Cell::get) == 1 {
        while with_ring(|ring| ring.is_busy()) == Some(true) {
            with_ring(|ring| ring.enter(1));
            reap();
        }
    }
    DRIVERS.with(|drivers| drivers.set(drivers.get() - 1));
}

/// Starts a request on this thread's ring, or performs it at once where there is none.
pub(crate) fn start(op: &Arc<Op>) {
    let started = with_ring_or_new(|ring| ring.start(Arc::clone(op)));
    if started.is_none() {
        op.land_synchronously();
    }
}

/// Submits what waits and completes what the kernel has done, without sleeping. Returns whether anything was
/// completed.
///
/// A thread whose ring is embedded in another reactor (see `RingDriver`) calls this before it sleeps and when
/// the ring's eventfd is readable. It does nothing, cheaply, where there is nothing to do.
pub fn submit_and_reap() -> bool {
    with_ring(ThreadRing::turn);
    reap()
}

/// Submits what waits and sleeps until something completes or the notification eventfd is written; or,
/// perhaps, `watched` has become readable since an earlier sleep.
pub(crate) fn sleep(watched: Option<BorrowedFd<'_>>) {
    with_ring(|ring| {
        ring.arm_notification();
        watched.iter().for_each(|watched| ring.arm_watch(*watched));
        ring.enter(1);
    });
    reap();
}

/// The eventfd that ends this thread's [`sleep`] when it is written; `None` while the thread has no ring.
pub(crate) fn notification() -> Option<Arc<OwnedFd>> {
    with_ring(|ring| Arc::clone(&ring.notification))
}

/// An eventfd that the kernel signals at every completion of this thread's ring; `None` where there is no
/// io_uring.
pub(crate) fn register_eventfd() -> io::Result<Option<OwnedFd>> {
    with_ring_or_new(|ring| {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.uring.submitter().register_eventfd(signal.as_raw_fd())?;
        Ok(signal)
    })
    .transpose()
}

/// Undoes [`register_eventfd`].
pub(crate) fn unregister_eventfd() {
    with_ring(|ring| ring.uring.submitter().unregister_eventfd());
}

/// Gives back the ring of this thread, which has waited long: its memory and its descriptors. The next
/// request makes another one. A thread that drives it keeps it.
pub fn release_ring() {
    if !is_driven() {
        // Dropped when nothing is borrowed: it waits for what is in flight.
        drop(RING.try_with(RefCell::take));
    }
}

fn with_ring<T>(action: impl FnOnce(&mut ThreadRing) -> T) -> Option<T> {
    RING.try_with(|slot| match &mut *slot.borrow_mut() {
        Slot::Ready(ring) => Some(action(ring)),
        Slot::Untried | Slot::Unavailable => None,
    })
    .ok()
    .flatten()
}

fn with_ring_or_new<T>(action: impl FnOnce(&mut ThreadRing) -> T) -> Option<T> {
    RING.try_with(|slot| {
        let slot = &mut *slot.borrow_mut();
        if let Slot::Untried = slot {
            *slot = match ThreadRing::new() {
                Ok(ring) => Slot::Ready(Box::new(ring)),
                Err(error) => {
                    tracing::debug!(%error, "no io_uring on this thread, using plain reads and writes");
                    Slot::Unavailable
                }
            };
        }
        match slot {
            Slot::Ready(ring) => Some(action(ring)),
            Slot::Untried | Slot::Unavailable => None,
        }
    })
    .ok()
    .flatten()
}

/// Completes what the kernel has done, with the thread's state not borrowed.
fn reap() -> bool {
    let Some(mut landed) = with_ring(ThreadRing::take_landed) else { return false };
    let any = !landed.is_empty();
    for (op, result) in landed.drain(..) {
        op.land(result);
    }
    with_ring(|ring| ring.landed = landed);
    any
}

struct ThreadRing {
    uring: IoUring,
    /// Operations that the kernel has, by the number that a completion names.
    slots: Vec<Option<Arc<Op>>>,
    free_slots: Vec<usize>,
    /// Operations that wait for a slot.
    waiting: VecDeque<Arc<Op>>,
    /// Reads that have a slot and wait to be submitted.
    reads: Vec<Waiting>,
    /// Joined reads that the kernel has, by number.
    joined: Vec<Option<Joined>>,
    /// Written by other threads to end a sleep. Read by the ring into `notified_count`, always one read at a
    /// time.
    notification: Arc<OwnedFd>,
    notified_count: Box<u64>,
    notification_armed: bool,
    /// A poll of the watched file is in the kernel. It needs nothing of ours, and ends with the ring.
    watch_armed: bool,
    /// An empty vector kept for its memory.
    landed: Vec<(Arc<Op>, i32)>,
}

impl ThreadRing {
    fn new() -> io::Result<Self> {
        let notification = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            uring: new_uring()?,
            slots: Vec::new(),
            free_slots: Vec::new(),
            waiting: VecDeque::new(),
            reads: Vec::new(),
            joined: Vec::new(),
            notification: Arc::new(notification),
            notified_count: Box::new(0),
            notification_armed: false,
            watch_armed: false,
            landed: Vec::new(),
        })
    }

    /// Whether requests are in the kernel or wait to be.
    fn is_busy(&self) -> bool {
        self.in_flight() > 0 || !self.waiting.is_empty()
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    fn start(&mut self, op: Arc<Op>) {
        if self.in_flight() >= MAX_IN_FLIGHT {
            self.waiting.push_back(op);
            return;
        }
        let number = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        match op.place() {
            Some(place) => self.reads.push(Waiting { slot: number, place }),
            None => self.push(&op.entry().user_data(number as u64)),
        }
        self.slots[number] = Some(op);
        if self.uring.submission().len() + self.reads.len() >= SUBMIT_BATCH {
            self.enter(0);
        }
    }

    /// Queues the reads that wait, neighbours as one.
    fn queue_reads(&mut self) {
        let mut reads = std::mem::take(&mut self.reads);
        reads.sort_unstable_by_key(|read| (read.place.fd, read.place.offset));
        let mut rest = &reads[..];
        while let Some(first) = rest.first() {
            let (run, later) = rest.split_at(run_length(rest));
            let entry = match run {
                [one] => one.place.entry().user_data(one.slot as u64),
                run => {
                    let joined = Joined::new(run);
                    let entry = joined.entry(&first.place);
                    let free = self.joined.iter().position(Option::is_none);
                    let number = free.unwrap_or_else(|| {
                        self.joined.push(None);
                        self.joined.len() - 1
                    });
                    self.joined[number] = Some(joined);
                    entry.user_data(JOINED | number as u64)
                }
            };
            self.push(&entry);
            rest = later;
        }
        reads.clear();
        self.reads = reads;
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to lives until its completion: an op's buffer and file in its slot,
        // the vectors of joined reads in `joined`, the notification's counter and file in `self`, which is
        // dropped only when nothing is in flight.
        while unsafe { self.uring.submission().push(entry) }.is_err() {
            self.enter(0);
        }
    }

    fn arm_notification(&mut self) {
        if !self.notification_armed {
            self.notification_armed = true;
            let target = (&raw mut *self.notified_count).cast();
            let fd = types::Fd(self.notification.as_raw_fd());
            self.push(&opcode::Read::new(fd, target, size_of::<u64>() as u32).build().user_data(NOTIFIED));
        }
    }

    fn arm_watch(&mut self, watched: BorrowedFd<'_>) {
        if !self.watch_armed {
            self.watch_armed = true;
            let poll = opcode::PollAdd::new(types::Fd(watched.as_raw_fd()), libc::POLLIN as u32);
            self.push(&poll.build().user_data(WATCHED));
        }
    }

    /// Submits without sleeping, where there is something to submit or the kernel has deferred work for us.
    fn turn(&mut self) {
        let has_reads = !self.reads.is_empty();
        let queue = self.uring.submission();
        if has_reads || !queue.is_empty() || queue.taskrun() || queue.cq_overflow() {
            drop(queue);
            self.enter(0);
        }
    }

    /// Submits everything and waits for `wanted` completions, unless some have already arrived.
    fn enter(&mut self, wanted: usize) {
        if !self.reads.is_empty() {
            self.queue_reads();
        }
        loop {
            let wanted = if self.uring.completion().is_empty() { wanted } else { 0 };
            match self.uring.submit_and_wait(wanted) {
                Ok(_) => return,
                // The kernel is short of memory or of room for completions: the caller reaps and comes again.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {
                    std::thread::yield_now();
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // All that remain are wrong uses of the ring by this file. Nothing in flight may be freed
                // now.
                Err(error) => panic!("io_uring_enter: {error}"),
            }
        }
    }

    /// Submits reads that were part of a joined one, which did not do them.
    fn submit_alone(&mut self, slots: &[usize]) {
        for &slot in slots {
            if let Some(entry) = self.slots.get(slot).and_then(Option::as_ref).map(|op| op.entry()) {
                self.push(&entry.user_data(slot as u64));
            }
        }
        if !slots.is_empty() {
            // The thread may be about to sleep.
            self.enter(0);
        }
    }

    /// Takes the completions that have arrived and starts what waited for a slot. The caller lands them.
    fn take_landed(&mut self) -> Vec<(Arc<Op>, i32)> {
        let mut landed = std::mem::take(&mut self.landed);
        let (slots, free_slots) = (&mut self.slots, &mut self.free_slots);
        let mut land = |number: usize, result: i32| {
            if let Some(op) = slots.get_mut(number).and_then(Option::take) {
                free_slots.push(number);
                landed.push((op, result));
            }
        };
        let mut again = Vec::new();
        for completion in self.uring.completion() {
            match completion.user_data() {
                NOTIFIED => {
                    self.notification_armed = false;
                    continue;
                }
                WATCHED => {
                    self.watch_armed = false;
                    continue;
                }
                _ => {}
            }
            let number = completion.user_data();
            if number & JOINED == 0 {
                land(number as usize, completion.result());
                continue;
            }
            let joined = self.joined.get_mut((number & !JOINED) as usize).and_then(Option::take);
            for (slot, result) in joined.iter().flat_map(|joined| joined.results(completion.result())) {
                match result {
                    Some(result) => land(slot, result),
                    None => again.push(slot),
                }
            }
        }
        self.submit_alone(&again);
        while self.in_flight() < MAX_IN_FLIGHT
            && let Some(op) = self.waiting.pop_front()
        {
            self.start(op);
        }
        landed
    }
}

impl Drop for ThreadRing {
    /// Waits for what is in flight: the kernel must not write to memory that was freed.
    fn drop(&mut self) {
        if self.notification_armed {
            // Cannot fail: the counter is far from full.
            let _ = rustix::io::write(&self.notification, &1u64.to_ne_bytes());
        }
        while self.is_busy() || self.notification_armed {
            self.enter(1);
            for (op, result) in self.take_landed() {
                op.land(result);
            }
        }
    }
}

/// A ring with the best flags that the kernel knows.
fn new_uring() -> io::Result<IoUring> {
    let deferred = IoUring::builder()
        .dontfork()
        .setup_clamp()
        .setup_cqsize(COMPLETION_ENTRIES)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(SUBMISSION_ENTRIES);
    let uring = match deferred {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::builder()
            .dontfork()
            .setup_clamp()
            .setup_cqsize(COMPLETION_ENTRIES)
            .build(SUBMISSION_ENTRIES),
        other => other,
    }?;
    // Linux 5.7: by then all that we ask for is there, and completions are never lost.
    if uring.params().is_feature_nodrop() && uring.params().is_feature_fast_poll() {
        Ok(uring)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, FileDevice, RingDriver, block_on};

    #[test]
    fn a_ring_that_was_given_back_comes_again_when_it_is_needed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let device = FileDevice::open(file.path()).unwrap();
        for _ in 0..3 {
            block_on(device.read(0, 4096)).unwrap();
            let had_ring = notification().is_some();
            block_on(async { release_ring() });
            assert_eq!(notification().is_some(), had_ring, "driven");
            release_ring();
            assert!(notification().is_none());
        }
    }

    /// Reads all of the ranges at once: the bytes of each, or nothing where that fails.
    fn read_all(device: &FileDevice, ranges: &[(u64, usize)]) -> Vec<Option<Vec<u8>>> {
        block_on(async {
            let reads = ranges.iter().map(|&(offset, len)| device.read(offset, len));
            let read = futures_util::future::join_all(reads).await;
            read.into_iter().map(|read| read.ok().map(|bytes| bytes.to_vec())).collect()
        })
    }

    #[test]
    fn neighbours_are_read_together_and_each_gets_its_own_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 512 % 251) as u8).collect();
        std::fs::write(&file, &content).unwrap();
        let device = FileDevice::open(file.path()).unwrap();
        // Not in order, with a gap, and some of it twice.
        let mut ranges: Vec<(u64, usize)> = (0..20).map(|block| (block * 8192, 8192)).rev().collect();
        ranges.extend([(500 << 10, 4096), (504 << 10, 12288), (8192, 8192), (600 << 10, 4096)]);
        let read = read_all(&device, &ranges);
        for ((offset, len), bytes) in ranges.iter().zip(read) {
            assert_eq!(bytes.as_deref(), content.get(*offset as usize..).map(|rest| &rest[..*len]));
        }
        if let Some(joined) = with_ring(|ring| ring.joined.len()) {
            assert!(joined >= 3, "{joined}");
            assert!(with_ring(|ring| ring.joined.iter().all(Option::is_none)).unwrap());
        }
    }

    #[test]
    fn a_read_together_with_one_that_fails_gets_its_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, [7; 64 << 10]).unwrap();
        let device = FileDevice::open(file.path()).unwrap();
        // The device has become shorter.
        file.as_file().set_len(20 << 10).unwrap();
        let read = read_all(&device, &[(0, 8192), (8192, 8192), (16384, 8192), (24576, 8192)]);
        let whole = Some(vec![7; 8192]);
        assert_eq!(read, [whole.clone(), whole, None, None]);
    }

    #[test]
    fn without_io_uring_everything_is_read_at_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, [5; 10_000]).unwrap();
        let device = FileDevice::open(&file).unwrap();
        RING.with(|slot| *slot.borrow_mut() = Slot::Unavailable);
        assert_eq!(*block_on(device.read(100, 9000)).unwrap(), [5; 9000]);
        assert!(RingDriver::attach().unwrap().is_none());
        assert!(!submit_and_reap());
    }
}
