//! Requests under way in memory that outlives the daemon.
//!
//! # The idea
//! The client keeps a file in memory that the daemon made, and gives it back when it connects anew, to this
//! daemon or to the next one. It says which requests of each ring were taken and not answered: those are done
//! again, in the order in which they were taken. The protocol lays this part out:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | features | 0 |
//! | 8 | 2 | version | 1 |
//! | 10 | 2 | desc_num | descriptors of the ring |
//! | 12 | 2 | last_batch_head | the request that is being answered |
//! | 14 | 2 | used_idx | the ring's index after the last answer |
//! | 16 + 16n | 1 | inflight | 1 while request n is under way |
//! | 16 + 16n + 6 | 2 | next | the request answered before it |
//! | 16 + 16n + 8 | 8 | counter | order in which requests were taken |
//!
//! One such part for each ring, each a multiple of 64 bytes long. All numbers are in the machine's order.
//!
//! # Writes that are not stable
//! A write may be answered before it is stable, and the guest goes on when the daemon is killed. The next
//! daemon must not let such a loss pass in silence. So behind these parts, where clients do not look, is a
//! part of our own ([`MARK_BYTES`]):
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 8 | which opening of the pool the guest wrote to |
//! | 16 | 8 | writes answered that were not stable then |
//! | 24 | 8 | how many of them a flush made stable since |
//! | 32 | 8 | the transaction group that the last of them is in, or a later one |
//! | 40 | 8 | 1 where the guest chose that writes are stable when they are answered |
//!
//! Writes are lost if not all of them are stable, the pool was opened anew, and it was opened as of a group
//! before theirs. A pool that was closed in order has lost none.
//!
//! Nothing in the file is trusted: a client can change all of it.
//!
//! Source of the layout: QEMU, "Vhost-user Protocol", inflight I/O tracking.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use device::IgnorePoison;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use vm_memory::VolatileMemory;

use super::memory::Mapped;
use crate::block::Durability;

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const ALIGNMENT_BYTES: usize = 64;
const VERSION: u16 = 1;

/// Bytes of the part of our own.
const MARK_BYTES: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"cenotevu");

/// The file, mapped.
#[derive(Debug)]
pub(super) struct Inflight {
    mapped: Mapped,
    queues: u16,
    size: u16,
    identity: (u64, u64),
}

/// Where the marks of writes begin.
fn queues_bytes(queues: u16, size: u16) -> usize {
    usize::from(queues) * queue_bytes(size)
}

/// Bytes of one ring's part.
fn queue_bytes(size: u16) -> usize {
    (HEADER_BYTES + usize::from(size) * ENTRY_BYTES).next_multiple_of(ALIGNMENT_BYTES)
}

impl Inflight {
    /// A new file for so many rings of so many descriptors, and its length.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(queues: u16, size: u16) -> io::Result<(OwnedFd, u64)> {
        let file = memfd_create("cenote-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let bytes = (queues_bytes(queues, size) + MARK_BYTES) as u64;
        ftruncate(&file, bytes)?;
        rustix::io::pwrite(&file, &MAGIC.to_ne_bytes(), queues_bytes(queues, size) as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((file, bytes))
    }

    /// The file that a client gives back.
    ///
    /// # Errors
    /// It is too short for what is said to be in it.
    pub fn open(file: OwnedFd, offset: u64, len_bytes: u64, (queues, size): (u16, u16)) -> io::Result<Self> {
        if (queues_bytes(queues, size) as u64) > len_bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a short file of requests under way"));
        }
        let stat = fstat(file.as_fd())?;
        let identity = (stat.st_dev, stat.st_ino);
        Ok(Self { mapped: Mapped::new(file, offset, len_bytes)?, queues, size, identity })
    }

    /// Which file it is.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// The part of a ring, if it has one for so many descriptors.
    pub fn queue(self: &Arc<Self>, number: u16, size: u16) -> Option<Queue> {
        let is_there = number < self.queues && size <= self.size;
        let start = usize::from(number) * queue_bytes(self.size);
        is_there.then(|| Queue { all: Arc::clone(self), start, size: self.size, counter: 0 })
    }

    fn load<T: vm_memory::ByteValued>(&self, offset: usize) -> Option<T> {
        self.mapped.region().get_ref::<T>(offset).ok().map(|at| at.load())
    }

    fn store<T: vm_memory::ByteValued>(&self, offset: usize, value: T) {
        if let Ok(at) = self.mapped.region().get_ref::<T>(offset) {
            at.store(value);
        }
    }

    /// A number of our own part; nothing where the file is another backend's.
    fn mark(&self, offset: usize) -> Option<&AtomicU64> {
        let start = queues_bytes(self.queues, self.size);
        let number = |offset| self.mapped.region().get_atomic_ref::<AtomicU64>(start + offset).ok();
        number(0).filter(|magic| magic.load(Ordering::Acquire) == MAGIC)?;
        number(offset)
    }

    /// Whether the guest was told of writes that are gone. From here on, marks are those of what is open now.
    /// Where nothing can be written now, all that was not stable counts as gone.
    pub fn take_over(&self, now: Option<Durability>) -> bool {
        let [opened, written, stable, group] = [8, 16, 24, 32].map(|at| self.mark(at));
        let (Some(opened), Some(written), Some(stable), Some(group)) = (opened, written, stable, group)
        else {
            return false;
        };
        let load = |at: &AtomicU64| at.load(Ordering::Acquire);
        let is_all_stable = load(written) == load(stable);
        let Some(now) = now else { return !is_all_stable };
        if load(opened) == now.opened {
            return false;
        }
        let is_lost = !is_all_stable && load(group) > now.opened_at;
        if !is_lost {
            for (at, value) in [(written, 0), (stable, 0), (group, 0), (opened, now.opened)] {
                at.store(value, Ordering::Release);
            }
        }
        is_lost
    }

    /// The guest begins anew: what it wrote before does not matter to it any more.
    pub fn forget_writes(&self, now: Option<Durability>) {
        let [written, stable, group] = [16, 24, 32].map(|at| self.mark(at));
        for at in [written, stable, group].into_iter().flatten() {
            at.store(0, Ordering::Release);
        }
        if let (Some(opened), Some(now)) = (self.mark(8), now) {
            opened.store(now.opened, Ordering::Release);
        }
    }

    /// What the guest chose; nothing where the file is another backend's.
    pub fn writes_through(&self) -> Option<bool> {
        self.mark(40).map(|chosen| chosen.load(Ordering::Acquire) == 1)
    }

    /// Notes what the guest chose: a client does not tell it again.
    pub fn set_writes_through(&self, writes_through: bool) {
        if let Some(chosen) = self.mark(40) {
            chosen.store(writes_through.into(), Ordering::Release);
        }
    }

    /// Notes a write that is not stable, before it is answered.
    pub fn note_write(&self, now: &Durability) {
        if let (Some(written), Some(group)) = (self.mark(16), self.mark(32)) {
            group.fetch_max(now.group, Ordering::AcqRel);
            written.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The number of writes that were noted.
    pub fn written(&self) -> u64 {
        self.mark(16).map_or(0, |written| written.load(Ordering::Acquire))
    }

    /// So many of them are stable.
    pub fn note_stable(&self, until: u64) {
        if let Some(stable) = self.mark(24) {
            stable.fetch_max(until, Ordering::AcqRel);
        }
    }
}

/// The part of one ring.
#[derive(Debug)]
pub(super) struct Queue {
    all: Arc<Inflight>,
    start: usize,
    size: u16,
    counter: u64,
}

impl Queue {
    fn entry(&self, head: u16) -> usize {
        self.start + HEADER_BYTES + usize::from(head) * ENTRY_BYTES
    }

    /// The requests that were taken and not answered, in their order, where `used` is the ring's index of
    /// answers.
    pub fn recover(&mut self, used: u16) -> Vec<u16> {
        let all = Arc::clone(&self.all);
        if all.load::<u16>(self.start + 8) != Some(VERSION) {
            all.store(self.start + 8, VERSION);
            all.store(self.start + 10, self.size);
        }
        if all.load::<u16>(self.start + 14) != Some(used) {
            // The answer is in the ring already.
            if let Some(last) = all.load::<u16>(self.start + 12).filter(|last| *last < self.size) {
                all.store(self.entry(last), 0u8);
            }
            all.store(self.start + 14, used);
        }
        let mut found: Vec<(u64, u16)> = (0..self.size)
            .filter(|head| all.load::<u8>(self.entry(*head)) == Some(1))
            .map(|head| (all.load::<u64>(self.entry(head) + 8).unwrap_or_default(), head))
            .collect();
        found.sort_unstable();
        self.counter = found.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        found.into_iter().map(|(_, head)| head).collect()
    }

    /// A request was taken.
    pub fn begin(&mut self, head: u16) {
        let at = self.entry(head);
        self.all.store(at + 8, self.counter);
        self.counter = self.counter.wrapping_add(1);
        self.all.store(at, 1u8);
    }

    /// A request is about to be answered.
    pub fn ends(&self, head: u16) {
        let last = self.all.load::<u16>(self.start + 12).unwrap_or_default();
        self.all.store(self.entry(head) + 6, last);
        self.all.store(self.start + 12, head);
    }

    /// It was answered, and the ring's index is `used` now.
    pub fn ended(&self, head: u16, used: u16) {
        self.all.store(self.entry(head), 0u8);
        self.all.store(self.start + 14, used);
    }
}

/// Which files are in use by sessions. A client that connects anew gives back its file while the session that
/// it had may still be ending; that one's requests must be gone before they are done again.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<HashMap<(u64, u64), Arc<Semaphore>>>);

impl Claims {
    /// The file for this session alone, as soon as the one before has ended.
    pub async fn claim(&self, identity: (u64, u64)) -> Option<OwnedSemaphorePermit> {
        let turn = {
            let mut claims = self.0.lock().ignore_poison();
            claims.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(claims.entry(identity).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        turn.acquire_owned().await.ok()
    }
}
