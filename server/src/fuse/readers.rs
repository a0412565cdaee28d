//! Which threads of a mount read requests, and how many there are.
//!
//! # Why not all of them
//! The kernel gives a request to the thread that has waited longest: the one with the coldest caches, which
//! sleeps. When one program works with many small files, each of its requests then costs two thread switches,
//! which take longer than the answer. So one thread reads and answers, and the others rest:
//!
//! - A thread that waits inside a request and sees that another request is there ([`device::Duty`]) *leaves*,
//!   and a resting thread reads in its place. So does a thread that is going to compute for long.
//! - A thread that found [`BUSY`] requests in a row without waiting calls another thread to help. A thread
//!   that finds no request rests, if others read.
//! - The last reader polls for requests for a while ([`LOOKING`]) before it sleeps in the kernel: a program
//!   that got its answer soon asks again, and waking up takes longer than that. A thread that was called in
//!   place of another and has not answered yet sleeps at once, because the program waits for the other
//!   thread.
//!
//! # How many
//! A machine may have thousands of mounts, most of them idle. So a mount begins without a thread, and gets
//! one with its first request ([`idle`](super::idle)). If a thread is called and none rests, one more starts,
//! up to the maximum; a thread that has rested for [`PATIENCE`] ends. The last one parks the mount and ends
//! when no request came for as long.
//!
//! # Invariants
//! While not all threads are busy in requests, at least one reads, or the mount is parked and has none. A
//! thread that panics counts as one that leaves. A thread that cannot read any more is not replaced: it keeps
//! its place in the maximum.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | which threads read and rest; held for a few lines | taken alone |

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use device::{Duty, IgnorePoison};

/// Requests in a row that were there already, after which another thread is called.
const BUSY: u32 = 16;
/// How long a thread rests before it ends, and how long the last one waits for a request before it gives back
/// what it can get again.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long the last one that reads looks for the next request before it sleeps. A single processor is better
/// used by who has something to do.
static LOOKING: LazyLock<Duration> = LazyLock::new(|| {
    let has_several = thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    Duration::from_micros(if has_several { 50 } else { 0 })
});

/// Begins a thread that makes itself a [`Reader`] of the same mount.
pub type Begin = dyn Fn() -> io::Result<()>;

/// The threads of a mount.
#[derive(Debug)]
pub struct Readers {
    state: Mutex<State>,
    called: Condvar,
    /// Whether more than one reads.
    several: AtomicBool,
    /// Most threads.
    most: usize,
    patience: Duration,
    /// A thread could not begin, and that was logged.
    has_failed: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// All threads, those that are just beginning among them.
    threads: usize,
    /// Threads that read, those that were called or are beginning among them.
    reading: usize,
    /// Threads that wait until they are called.
    resting: usize,
    /// Threads that were called and do not know it yet.
    calls: usize,
    /// The connection ended.
    over: bool,
}

impl Readers {
    /// None yet: [`Self::begin`] is for the first; `most` in all when they are needed.
    pub fn new(most: usize) -> Self {
        Self {
            state: Mutex::new(State { threads: 0, reading: 0, resting: 0, calls: 0, over: false }),
            called: Condvar::new(),
            several: AtomicBool::new(false),
            most,
            patience: PATIENCE,
            has_failed: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Begins a thread that reads, where there is none.
    ///
    /// # Errors
    /// As `begin`; there is none then.
    pub fn begin(&self, begin: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state();
        (state.threads, state.reading) = (1, 1);
        drop(state);
        begin().inspect_err(|_| {
            let mut state = self.state();
            (state.threads, state.reading) = (0, 0);
        })
    }

    /// Whether the thread that reads was the only one, and is none any more.
    fn park(&self) -> bool {
        let mut state = self.state();
        let is_last = state.threads == 1 && state.reading == 1 && !state.over;
        if is_last {
            (state.threads, state.reading) = (0, 0);
        }
        is_last
    }

    /// Changes who reads, and calls as many as `change` says: those that rest, and new ones where too few do.
    fn change(&self, begin: &Begin, change: impl FnOnce(&mut State) -> usize) {
        let mut state = self.state();
        let wanted = change(&mut state);
        self.call(state, wanted, begin);
    }

    fn call(&self, mut state: MutexGuard<'_, State>, wanted: usize, begin: &Begin) {
        let called = wanted.min(state.resting - state.calls);
        let room = if state.over { 0 } else { self.most.saturating_sub(state.threads) };
        let begun = (wanted - called).min(room);
        state.calls += called;
        state.reading += called + begun;
        state.threads += begun;
        self.several.store(state.reading > 1, Ordering::Relaxed);
        drop(state);
        (0..called).for_each(|_| self.called.notify_one());
        for _ in 0..begun {
            if let Err(error) = begin() {
                self.note_failure(&error);
                let mut state = self.state();
                state.threads -= 1;
                state.reading -= 1;
                // One that came to rest meanwhile, because this one was counted. Who is busy reads again when
                // it is done.
                let wanted = usize::from(state.reading == 0 && state.resting > state.calls);
                self.call(state, wanted, begin);
            }
        }
    }

    fn note_failure(&self, error: &io::Error) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "a FUSE session has fewer threads; check the limits of threads and \
                memory");
        }
    }

    /// Waits until a thread has to read; false when it is to end: the connection did, or it was not needed
    /// for long. It is not counted then.
    fn wait_for_turn(&self) -> bool {
        let mut state = self.state();
        if state.reading == 0 && !state.over {
            state.reading = 1;
            return true;
        }
        state.resting += 1;
        let is_idle = |state: &mut State| state.calls == 0 && !state.over;
        let waited = self.called.wait_timeout_while(state, self.patience, is_idle);
        state = waited.ignore_poison().0;
        state.resting -= 1;
        let reads = state.calls > 0 && !state.over;
        state.calls = state.calls.saturating_sub(1);
        // While this is locked: a thread that looks for one to call finds none here, and room for another.
        state.threads -= usize::from(!reads);
        reads
    }

    fn leave(&self, begin: &Begin) {
        self.change(begin, |state| {
            state.reading -= 1;
            usize::from(state.reading == 0)
        });
    }

    fn rests_beside_others(&self) -> bool {
        if !self.several.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.state();
        let rests = state.reading > 1;
        state.reading -= usize::from(rests);
        self.several.store(state.reading > 1, Ordering::Relaxed);
        rests
    }

    /// The threads are to end, those that rest at once.
    pub fn stop(&self) {
        self.end();
    }

    fn end(&self) {
        self.state().over = true;
        self.called.notify_all();
    }
}

/// One of the threads. Belongs to the thread that made it.
pub struct Reader {
    readers: Arc<Readers>,
    begin: Rc<Begin>,
    /// Whether it reads, or answers in such a way that no other thread needs to read.
    reads: Rc<Cell<bool>>,
    /// Whether it is one of the threads that are counted.
    is_counted: bool,
    /// Requests in a row that were there already.
    streak: u32,
    /// Whether it answered something in this turn.
    is_warm: bool,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("reads", &self.reads).finish_non_exhaustive()
    }
}

impl Reader {
    /// This thread, which was counted as one that reads before it began. `begin` begins others.
    pub fn new(readers: &Arc<Readers>, begin: Rc<Begin>) -> Self {
        let reads = Rc::new(Cell::new(true));
        Self { readers: Arc::clone(readers), begin, reads, is_counted: true, streak: 0, is_warm: false }
    }

    /// It reads from `device` from now on.
    pub fn read_from(&self, device: Arc<dyn AsFd + Send + Sync>) {
        let (is_ours, handed) = (Rc::clone(&self.reads), Rc::clone(&self.reads));
        let (readers, begin) = (Arc::clone(&self.readers), Rc::clone(&self.begin));
        device::set_duty(Some(Duty {
            device,
            is_ours: Box::new(move || is_ours.get()),
            hand_over: Box::new(move || {
                if handed.replace(false) {
                    readers.leave(&*begin);
                }
            }),
        }));
    }

    /// Waits until this thread has to read, unless it reads; false when it is to end.
    pub fn wait_for_turn(&mut self) -> bool {
        if !self.reads.get() {
            (self.streak, self.is_warm) = (0, false);
            let reads = self.readers.wait_for_turn();
            self.reads.set(reads);
            self.is_counted = reads;
        }
        self.reads.get()
    }

    /// A request was there at once, or came later.
    pub fn note_request(&mut self, at_once: bool) {
        self.is_warm = true;
        self.streak = if at_once { self.streak + 1 } else { 0 };
        if self.streak >= BUSY {
            self.streak = 0;
            self.readers.change(&*self.begin, |_| 1);
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

    /// No request came for long.
    pub fn cool_down(&mut self) {
        self.is_warm = false;
    }

    /// Whether this thread was the only one and `park` sees to it that another begins with the next request
    /// ([`Readers::begin`]): it is not counted any more, and has to end.
    pub fn parks(&mut self, park: impl FnOnce() -> io::Result<()>) -> bool {
        if !self.reads.get() || !self.readers.park() {
            return false;
        }
        if let Err(error) = park() {
            self.readers.note_failure(&error);
            // It goes on.
            return self.readers.begin(|| Ok(())).is_err();
        }
        self.reads.set(false);
        self.is_counted = false;
        true
    }

    /// This thread will be busy for a while.
    pub fn leave(&self) {
        if self.reads.replace(false) {
            self.readers.leave(&*self.begin);
        }
    }

    /// The connection ended.
    pub fn end(&self) {
        self.readers.end();
    }

    /// This thread cannot read, and ends. It keeps its place: another one might fail in the same way, and
    /// again.
    pub fn fail(&mut self) {
        self.is_counted = false;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        device::set_duty(None);
        let (read, was_counted) = (self.reads.replace(false), self.is_counted);
        self.readers.change(&*self.begin, |state| {
            state.threads -= usize::from(was_counted);
            state.reading -= usize::from(read);
            usize::from(read && state.reading == 0)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    use device::{Device, FileDevice};

    use super::*;

    /// Threads that tell when they have a turn or have to end, leave when they are told to, and come back
    /// when they are told that.
    struct Crew {
        readers: Arc<Readers>,
        turns: mpsc::Sender<(usize, bool)>,
        /// One for each that began.
        tell: Mutex<Vec<mpsc::Sender<()>>>,
    }

    impl Crew {
        /// The first has begun.
        fn begin(readers: Readers) -> (Arc<Self>, mpsc::Receiver<(usize, bool)>) {
            let (turns, turn) = mpsc::channel();
            let crew = Arc::new(Self { readers: Arc::new(readers), turns, tell: Mutex::default() });
            crew.begin_first();
            (crew, turn)
        }

        fn begin_first(self: &Arc<Self>) {
            let begin = || {
                self.begin_one();
                Ok(())
            };
            self.readers.begin(begin).unwrap();
        }

        fn begin_one(self: &Arc<Self>) {
            let (tell, told) = mpsc::channel();
            let number = {
                let mut all = self.tell.lock().unwrap();
                all.push(tell);
                all.len() - 1
            };
            let crew = Arc::clone(self);
            thread::spawn(move || {
                let mut reader = Reader::new(&crew.readers, crew.beginner());
                reader.read_from(Arc::new(requests().0));
                loop {
                    let goes_on = reader.wait_for_turn();
                    crew.turns.send((number, goes_on)).unwrap();
                    if !goes_on || told.recv().is_err() {
                        return;
                    }
                    reader.leave();
                    if told.recv().is_err() {
                        return;
                    }
                }
            });
        }

        fn beginner(self: &Arc<Self>) -> Rc<Begin> {
            let crew = Arc::clone(self);
            Rc::new(move || {
                crew.begin_one();
                Ok(())
            })
        }

        fn tell(&self, number: usize) {
            self.tell.lock().unwrap()[number].send(()).unwrap();
        }

        fn wait_until(&self, holds: impl Fn(&State) -> bool) {
            while !holds(&self.readers.state()) {
                thread::yield_now();
            }
        }
    }

    /// Readers of which the test's own thread is the first.
    fn begun(most: usize) -> Arc<Readers> {
        let readers = Arc::new(Readers::new(most));
        readers.begin(|| Ok(())).unwrap();
        readers
    }

    /// No thread starts.
    fn nobody() -> Rc<Begin> {
        Rc::new(|| Err(io::Error::other("nobody")))
    }

    #[test]
    fn one_reads_and_another_one_in_its_place_and_new_ones_begin_where_none_rests() {
        let (crew, turn) = Crew::begin(Readers::new(3));
        assert_eq!(turn.recv().unwrap(), (0, true));
        // None rests: a new one begins, and again, and no more than three.
        crew.tell(0);
        assert_eq!(turn.recv().unwrap(), (1, true));
        crew.tell(1);
        assert_eq!(turn.recv().unwrap(), (2, true));
        crew.tell(2);
        crew.wait_until(|state| state.reading == 0);
        assert_eq!(crew.readers.state().threads, 3);
        // Who comes back first reads.
        crew.tell(0);
        assert_eq!(turn.recv().unwrap(), (0, true));
        crew.tell(1);
        crew.tell(2);
        crew.wait_until(|state| state.resting == 2);
        let mut last = 0;
        for _ in 0..100 {
            crew.tell(last);
            let next = turn.recv().unwrap().0;
            assert_ne!(last, next);
            crew.tell(last);
            last = next;
            crew.wait_until(|state| state.resting == 2);
            let state = crew.readers.state();
            assert_eq!((state.reading, state.threads), (1, 3));
        }
        // Ends those that rest; and the one that reads, when it comes back.
        crew.readers.end();
        (0..2).for_each(|_| crew.tell(last));
        let ended: Vec<bool> = (0..3).map(|_| turn.recv().unwrap().1).collect();
        assert_eq!(ended, [false; 3]);
    }

    #[test]
    fn who_rests_for_long_ends_and_one_stays() {
        let (crew, turn) = Crew::begin(Readers { patience: Duration::from_millis(20), ..Readers::new(4) });
        assert_eq!(turn.recv().unwrap(), (0, true));
        for number in 0..3 {
            crew.tell(number);
            assert_eq!(turn.recv().unwrap(), (number + 1, true));
        }
        (0..3).for_each(|number| crew.tell(number));
        let mut ended: Vec<_> = (0..3).map(|_| turn.recv().unwrap()).collect();
        ended.sort_unstable();
        assert_eq!(ended, [(0, false), (1, false), (2, false)]);
        let state = crew.readers.state();
        assert_eq!((state.threads, state.reading, state.resting), (1, 1, 0));
        drop(state);
        // And more begin again.
        crew.tell(3);
        assert_eq!(turn.recv().unwrap(), (4, true));
    }

    #[test]
    fn who_ends_while_it_reads_leaves_the_channel_to_another() {
        let (crew, turn) = Crew::begin(Readers::new(2));
        assert_eq!(turn.recv().unwrap(), (0, true));
        // As a panic does.
        crew.tell.lock().unwrap()[0] = mpsc::channel().0;
        assert_eq!(turn.recv().unwrap(), (1, true));
        crew.wait_until(|state| state.threads == 1);
        // One that fails keeps its place, so that not one after the other begins and fails.
        let readers = begun(2);
        for left in [1, 0] {
            let begun = Rc::new(Cell::new(0));
            let counted = Rc::clone(&begun);
            let begin = move || {
                counted.set(counted.get() + 1);
                Ok(())
            };
            let mut reader = Reader::new(&readers, Rc::new(begin));
            reader.fail();
            drop(reader);
            assert_eq!(begun.get(), left);
        }
    }

    #[test]
    fn only_the_last_thread_parks_and_the_next_one_begins_anew() {
        let readers = begun(2);
        let mut first = Reader::new(&readers, Rc::new(|| Ok(())));
        // Another one that was called, and has not begun yet.
        (0..BUSY).for_each(|_| first.note_request(true));
        assert!(!first.parks(|| unreachable!("there are two")));
        drop(Reader::new(&readers, nobody()));
        assert!(!first.parks(|| Err(io::Error::other("no room"))));
        assert_eq!(readers.state().reading, 1);
        assert!(first.parks(|| Ok(())) && !first.parks(|| unreachable!("it is not counted any more")));
        drop(first);
        let state = readers.state();
        assert_eq!((state.threads, state.reading), (0, 0));
        drop(state);
        readers.begin(|| Err(io::Error::other("no thread"))).unwrap_err();
        readers.begin(|| Ok(())).unwrap();
        let state = readers.state();
        assert_eq!((state.threads, state.reading), (1, 1));
    }

    #[test]
    fn where_no_thread_can_begin_who_is_there_reads_on() {
        let readers = begun(3);
        let mut reader = Reader::new(&readers, nobody());
        for _ in 0..3 {
            assert!(reader.wait_for_turn());
            (0..BUSY).for_each(|_| reader.note_request(true));
            reader.leave();
            let state = readers.state();
            assert_eq!((state.threads, state.reading), (1, 0));
        }
        assert!(reader.wait_for_turn());
    }

    #[test]
    fn more_read_while_requests_stand_in_line_and_rest_afterwards() {
        let (crew, turn) = Crew::begin(Readers::new(2));
        assert_eq!(turn.recv().unwrap(), (0, true));
        // This thread in the place of the first.
        let mut first = Reader::new(&crew.readers, crew.beginner());
        crew.readers.state().reading += 1;
        crew.readers.state().threads += 1;
        crew.tell(0);
        crew.tell(0);
        crew.wait_until(|state| state.resting == 1);
        (0..BUSY - 1).for_each(|_| first.note_request(true));
        first.note_request(false);
        assert_eq!(crew.readers.state().reading, 1);
        (0..BUSY).for_each(|_| first.note_request(true));
        assert_eq!(turn.recv().unwrap(), (0, true));
        assert_eq!(crew.readers.state().reading, 2);
        assert!(first.rests_beside_others());
        assert_eq!(crew.readers.state().reading, 1);
        // No thread rests: the one that left reads on.
        (0..2).for_each(|_| crew.tell(0));
        assert_eq!(turn.recv().unwrap(), (0, true));
        assert_eq!(crew.readers.state().reading, 1);
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
        let readers = begun(1);
        let (device, _line) = requests();
        let mut reader = Reader::new(&readers, nobody());
        reader.read_from(Arc::new(device));
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
        let readers = begun(1);
        let (device, mut line) = requests();
        let mut come = UnixStream::from(device.try_clone().unwrap());
        let mut reader = Reader::new(&readers, nobody());
        reader.read_from(Arc::new(device));
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
