//! Which threads of a mount read requests.
//!
//! # Why not all of them
//! The kernel gives a request to the thread that has waited longest: the one whose caches are coldest, and which sleeps. Where one program works with many small files, each of its requests so
//! costs two changes of threads, which take longer than the answer. So one thread reads and answers, and the others rest:
//!
//! - A thread that waits in a request and sees that there is another one ([`device::Duty`]) *leaves*: a resting one reads in its place. So does one that is going to compute for long.
//! - A thread that found [`BUSY`] requests in a row without waiting for one calls another to help. One that finds none rests, if others read.
//! - The last one looks for requests for a while ([`LOOKING`]) before it sleeps in the kernel: a program that has its answer asks again soon, and to be woken takes longer than that. One
//!   that was called in another's place and answered nothing yet sleeps at once: the program waits for the other.
//!
//! # Invariants
//! As long as not all threads are busy in requests, one reads at least. A thread that ends or panics counts as one that leaves.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | who reads and who rests; for a few lines | taken alone |

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use device::Duty;

/// Requests in a row that were there already, after which another thread is called.
const BUSY: u32 = 16;
/// How long the last one that reads looks for the next request before it sleeps. A single processor is better used by who has something to do.
static LOOKING: LazyLock<Duration> = LazyLock::new(|| {
    let has_several = thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    Duration::from_micros(if has_several { 50 } else { 0 })
});

/// The threads of a mount.
#[derive(Debug, Default)]
pub struct Readers {
    state: Mutex<State>,
    called: Condvar,
    /// Whether more than one reads.
    several: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that read, those that were called among them.
    reading: usize,
    /// Threads that wait until they are called.
    resting: usize,
    /// Threads that were called and do not know it yet.
    calls: usize,
    /// The connection ended.
    over: bool,
}

impl Readers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes who reads, and calls as many as `change` says.
    fn change(&self, change: impl FnOnce(&mut State) -> usize) {
        let mut state = self.state();
        let called = change(&mut state).min(state.resting - state.calls);
        state.calls += called;
        state.reading += called;
        self.several.store(state.reading > 1, Ordering::Relaxed);
        drop(state);
        (0..called).for_each(|_| self.called.notify_one());
    }

    /// Waits until a thread has to read; false when the connection ended.
    fn wait_for_turn(&self) -> bool {
        let mut state = self.state();
        if state.reading == 0 {
            state.reading = 1;
            return !state.over;
        }
        state.resting += 1;
        while state.calls == 0 && !state.over {
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.resting -= 1;
        state.calls = state.calls.saturating_sub(1);
        !state.over
    }

    fn leave(&self) {
        self.change(|state| {
            state.reading -= 1;
            usize::from(state.reading == 0)
        });
    }

    fn rests_beside_others(&self) -> bool {
        let mut rests = false;
        if self.several.load(Ordering::Relaxed) {
            self.change(|state| {
                rests = state.reading > 1;
                state.reading -= usize::from(rests);
                0
            });
        }
        rests
    }

    fn end(&self) {
        self.state().over = true;
        self.called.notify_all();
    }
}

/// One of the threads. Belongs to the thread that made it.
#[derive(Debug)]
pub struct Reader {
    readers: Arc<Readers>,
    /// Whether it reads, or answers in such a way that nobody else needs to read.
    reads: Rc<Cell<bool>>,
    /// Requests in a row that were there already.
    streak: u32,
    /// Whether it answered something in this turn.
    is_warm: bool,
}

impl Reader {
    /// This thread, which reads from `device`.
    pub fn new(readers: &Arc<Readers>, device: OwnedFd) -> Self {
        let reads = Rc::new(Cell::new(false));
        let (is_ours, handed, those) = (Rc::clone(&reads), Rc::clone(&reads), Arc::clone(readers));
        device::set_duty(Some(Duty {
            device: Arc::new(device),
            is_ours: Box::new(move || is_ours.get()),
            hand_over: Box::new(move || {
                if handed.replace(false) {
                    those.leave();
                }
            }),
        }));
        Self { readers: Arc::clone(readers), reads, streak: 0, is_warm: false }
    }

    /// Waits until this thread has to read, unless it reads; false when the connection ended.
    pub fn wait_for_turn(&mut self) -> bool {
        if !self.reads.get() {
            (self.streak, self.is_warm) = (0, false);
            self.reads.set(self.readers.wait_for_turn());
        }
        self.reads.get()
    }

    /// A request was there at once, or came later.
    pub fn note_request(&mut self, at_once: bool) {
        self.is_warm = true;
        self.streak = if at_once { self.streak + 1 } else { 0 };
        if self.streak >= BUSY {
            self.streak = 0;
            self.readers.change(|_| 1);
        }
    }

    /// There is no request. True if others will find the next one: this thread has to wait for its turn.
    pub fn rests_beside_others(&mut self) -> bool {
        let rests = self.readers.rests_beside_others();
        self.reads.set(!rests);
        rests
    }

    /// How long to look for a request.
    pub fn looks_for(&self) -> Duration {
        if self.is_warm { *LOOKING } else { Duration::ZERO }
    }

    /// This thread will be busy for a while.
    pub fn leave(&self) {
        if self.reads.replace(false) {
            self.readers.leave();
        }
    }

    /// The connection ended.
    pub fn end(&self) {
        self.readers.end();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        device::set_duty(None);
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    use device::{Device, FileDevice};

    use super::*;

    /// Begins a thread that tells when it has its turn, leaves when it is told to, and comes back when it is told that.
    fn begin(readers: &Arc<Readers>, number: usize, turns: &mpsc::Sender<(usize, bool)>) -> mpsc::Sender<()> {
        let (readers, turns) = (Arc::clone(readers), turns.clone());
        let (leave, leaves) = mpsc::channel();
        thread::spawn(move || {
            let mut reader = Reader::new(&readers, requests().0);
            loop {
                let goes_on = reader.wait_for_turn();
                turns.send((number, goes_on)).unwrap();
                if !goes_on || leaves.recv().is_err() {
                    return;
                }
                reader.leave();
                if leaves.recv().is_err() {
                    return;
                }
            }
        });
        leave
    }

    #[test]
    fn one_reads_and_another_one_in_its_place() {
        let readers = Arc::<Readers>::default();
        let (turns, turn) = mpsc::channel();
        let leave: Vec<_> = (0..3).map(|number| begin(&readers, number, &turns)).collect();
        let mut last = turn.recv().unwrap().0;
        while readers.state().resting < 2 {
            thread::yield_now();
        }
        for _ in 0..100 {
            leave[last].send(()).unwrap();
            let next = turn.recv().unwrap().0;
            assert_ne!(last, next);
            leave[last].send(()).unwrap();
            last = next;
            while readers.state().resting < 2 {
                thread::yield_now();
            }
            assert_eq!(readers.state().reading, 1);
        }
        // Ends those that rest; and the one that reads, when it comes back.
        readers.end();
        (0..2).for_each(|_| leave[last].send(()).unwrap());
        let ended: Vec<bool> = (0..3).map(|_| turn.recv().unwrap().1).collect();
        assert_eq!(ended, [false; 3]);
    }

    #[test]
    fn more_read_while_requests_stand_in_line_and_rest_afterwards() {
        let readers = Arc::<Readers>::default();
        let (turns, turn) = mpsc::channel();
        let mut first = Reader::new(&readers, requests().0);
        assert!(first.wait_for_turn());
        let second = begin(&readers, 1, &turns);
        while readers.state().resting < 1 {
            thread::yield_now();
        }
        (0..BUSY - 1).for_each(|_| first.note_request(true));
        first.note_request(false);
        assert_eq!(readers.state().reading, 1);
        (0..BUSY).for_each(|_| first.note_request(true));
        assert_eq!(turn.recv().unwrap(), (1, true));
        assert_eq!(readers.state().reading, 2);
        assert!(first.rests_beside_others());
        assert_eq!(readers.state().reading, 1);
        // Nobody rests: who left reads on.
        (0..2).for_each(|_| second.send(()).unwrap());
        assert_eq!(turn.recv().unwrap(), (1, true));
        assert_eq!(readers.state().reading, 1);
        drop(second);
    }

    /// Something to read from, and what makes it readable.
    fn requests() -> (OwnedFd, UnixStream) {
        let (device, line) = UnixStream::pair().unwrap();
        (device.into(), line)
    }

    /// Has `reader` wait in a request until it has left, while `meanwhile` happens on another thread.
    fn wait_until_left(readers: &Arc<Readers>, meanwhile: impl FnOnce() + Send + 'static) {
        let (tell, told) = tokio::sync::oneshot::channel();
        let readers = Arc::clone(readers);
        let other = thread::spawn(move || {
            meanwhile();
            while readers.state().reading > 0 {
                thread::yield_now();
            }
            tell.send(()).unwrap();
        });
        device::block_on(told).unwrap();
        other.join().unwrap();
    }

    #[test]
    fn who_waits_for_another_thread_leaves() {
        let readers = Arc::<Readers>::default();
        let (device, _line) = requests();
        let mut reader = Reader::new(&readers, device);
        assert!(reader.wait_for_turn());
        device::block_on(async {});
        assert_eq!(readers.state().reading, 1);
        wait_until_left(&readers, || {});
        assert!(reader.wait_for_turn());
        drop(reader);
        assert_eq!(readers.state().reading, 0);
    }

    #[test]
    fn who_waits_in_its_ring_leaves_when_there_is_a_request() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let pool = FileDevice::open(file.path()).unwrap();
        // With the first read a thread gets its ring; where there is none, it leaves before it waits.
        let has_ring = device::RingDriver::attach().unwrap().is_some();
        device::block_on(pool.read(0, 4096)).unwrap();
        let readers = Arc::<Readers>::default();
        let (device, mut line) = requests();
        let mut come = UnixStream::from(device.try_clone().unwrap());
        let mut reader = Reader::new(&readers, device);
        for _ in 0..10 {
            assert!(reader.wait_for_turn());
            let there = Arc::clone(&readers);
            let mut there_line = line.try_clone().unwrap();
            wait_until_left(&readers, move || {
                assert!(!has_ring || there.state().reading == 1);
                there_line.write_all(b"1").unwrap();
            });
            come.read_exact(&mut [0]).unwrap();
            // One that this thread reads itself: the kernel may tell the ring of it only when it waits again.
            line.write_all(b"2").unwrap();
            come.read_exact(&mut [0]).unwrap();
        }
    }
}
