//! The second way of requests: rings that the kernel writes requests into and takes answers from (FUSE over
//! io_uring, Linux 6.14).
//!
//! # The idea
//! Through the device a request costs two system calls, one to read it and one to write its answer, and the
//! next free thread gets it. With rings the kernel keeps a *queue* for each processor. A request goes to the
//! queue of the processor on which the program runs, and one system call gives an answer and fetches the next
//! request.
//!
//! A queue has [`RingEntry`]s: memory for one request and its answer. An entry belongs to the kernel until
//! the kernel brings a request, and to the daemon until the daemon gives it back with the answer. Here each
//! entry has a thread of its own, with an io_uring of its own for nothing else. So an entry is with the
//! kernel exactly when its thread is idle, the kernel never gives a request to a busy thread, and a request
//! that waits for a device or a commit waits on its own thread and delays no other.
//!
//! Threads stay on the processor of their queue: the program sleeps until the answer is there, so no other
//! processor has to be woken and nothing moves between caches. That shows when processors are busy with other
//! work (small files are created twice as fast then); on an idle machine there is no clear difference. A
//! thread inherits the processors of the thread that starts it, so threads that the whole process shares are
//! started before ([`begin_shared_threads`]).
//!
//! # Queues that grow
//! The kernel serves no request before every queue has an entry, so each queue begins with one thread. With
//! its first request it gets more: [`SPARE_THREADS`] should be idle, up to [`USUAL_THREADS`] in all. Threads
//! that wait until a file is stable do not count there, up to [`MOST_WAITING`] of them: many of them take no
//! longer than one, and reads must not wait behind them. Threads have to exist before they are needed: the
//! kernel gives queued requests to threads that answer, not to threads that start. It prefers the thread that
//! answered last. Threads stay until the connection ends, because an entry cannot be withdrawn.
//!
//! # What stays with the device
//! Forgotten nodes, requests that are interrupted, and notifications to the kernel. A single thread reads
//! there.
//!
//! # Whether there are rings
//! They must be switched on, in the kernel and with the mount option `ring`. [`Prepared::new`] finds out why
//! they are not available, and takes what may run out before the daemon asks the kernel for rings; after that
//! the kernel serves no request without them. If a thread cannot start all the same, [`take_back`] lets the
//! kernel go on with the device.
//!
//! # The end
//! When the connection ends, the kernel gives all entries back without requests and refuses answers. A thread
//! whose entry comes back so ends.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `staff` | the counts of one queue; held for a few lines | taken alone |
//!
//! Source: Linux, `Documentation/filesystems/fuse-io-uring.rst`, `include/uapi/linux/fuse.h`.

#![allow(unsafe_code, reason = "memory that is shared with the kernel comes back")]

mod entry;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;

use device::IgnorePoison;
use io_uring::{IoUring, cqueue, squeue};

use super::connection::{Device, Life};
use super::filesystem::{Mounted, Outcome};
use super::wire::Room;
use crate::cpu_latency;
use entry::{Given, RingEntry};

/// Threads of a queue that do not wait for a commit: misses wait on the thread that took them, so that more
/// of them than one keep a device busy.
const USUAL_THREADS: usize = 8;
/// Threads of a queue that are to have nothing to do, ready for the next requests.
const SPARE_THREADS: usize = 2;
/// Threads of a queue that wait for a commit and do not count.
const MOST_WAITING: usize = 32;

/// The kernel's switch.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Which processors there may be.
const PROCESSORS: &str = "/sys/devices/system/cpu/possible";

type Uring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Why a filesystem is mounted without rings.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// An old kernel, or one without this.
    #[error("this kernel has no FUSE over io_uring; Linux 6.14 and later can have it (CONFIG_FUSE_IO_URING)")]
    Unknown,
    /// It is switched off.
    #[error(
        "the kernel's FUSE over io_uring is switched off; 'echo Y > {SWITCH}' switches it on for mounts from \
         then on"
    )]
    SwitchedOff,
    /// The kernel did not offer it when the session began.
    #[error("the kernel did not offer FUSE over io_uring; mount again")]
    NotOffered,
    /// There is no io_uring, or not for us.
    #[error("no io_uring: {0}; check the limit of open files and /proc/sys/kernel/io_uring_disabled")]
    NoUring(#[source] io::Error),
    /// A thread could not begin.
    #[error(
        "a queue could not start: {0}; check the limits of threads, memory and open files, and mount again"
    )]
    NotBegun(#[source] io::Error),
}

/// The queues of a mount.
#[derive(Debug)]
pub struct Rings {
    queues: Vec<Queue>,
}

impl Rings {
    /// How many requests were answered.
    pub fn answered(&self) -> u64 {
        self.queues.iter().map(|queue| queue.answered.load(Ordering::Relaxed)).sum()
    }

    /// How many threads answer.
    pub fn threads(&self) -> usize {
        self.queues.iter().map(|queue| queue.staff().threads).sum()
    }

    /// How many queues there are.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }
}

/// The queue of one processor.
#[derive(Debug)]
struct Queue {
    number: u16,
    answered: AtomicU64,
    staff: Mutex<Staff>,
}

impl Queue {
    fn staff(&self) -> MutexGuard<'_, Staff> {
        self.staff.lock().ignore_poison()
    }
}

/// The threads of a queue.
#[derive(Debug)]
struct Staff {
    threads: usize,
    /// Of these, those that have a request.
    busy: usize,
    /// Of these, those that wait for a commit.
    waiting: usize,
    /// A thread could not begin: there are no more.
    is_complete: bool,
}

impl Staff {
    /// One, who is not busy.
    const FIRST: Self = Self { threads: 1, busy: 0, waiting: 0, is_complete: false };

    /// Counts the threads that there are to be; how many more than before.
    fn hire(&mut self) -> usize {
        let most = match self.is_complete {
            false => USUAL_THREADS + self.waiting.min(MOST_WAITING),
            true => self.threads,
        };
        let hired = (self.busy + SPARE_THREADS).min(most).saturating_sub(self.threads);
        self.threads += hired;
        hired
    }
}

/// The threads and memory of queues, before the kernel is asked for rings.
#[derive(Debug)]
pub struct Prepared {
    rings: Arc<Rings>,
    urings: Vec<Disabled>,
}

impl Prepared {
    /// Finds out whether there can be rings, and makes them.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn new() -> Result<Self, Missing> {
        // Who opens the device loads the module.
        let _ = File::open("/dev/fuse");
        is_switched_on(Path::new(SWITCH))?;
        let processors = fs::read_to_string(PROCESSORS).ok().and_then(|list| count_of(&list));
        let queue = |number| Queue { number, answered: AtomicU64::new(0), staff: Mutex::new(Staff::FIRST) };
        let queues: Vec<_> = (0..processors.ok_or(Missing::Unknown)?).map(queue).collect();
        begin_shared_threads();
        let urings = queues.iter().map(|_| Disabled::new()).collect::<io::Result<_>>();
        Ok(Self { urings: urings.map_err(Missing::NoUring)?, rings: Arc::new(Rings { queues }) })
    }

    /// The queues.
    pub fn rings(&self) -> &Arc<Rings> {
        &self.rings
    }

    /// Begins to answer, on threads that end with the connection. The kernel must have agreed.
    ///
    /// # Errors
    /// Not all queues have begun, so that the kernel serves none of them.
    pub fn start(self, device: &Device, mounted: &Mounted, life: &Arc<Life>) -> io::Result<()> {
        let Self { rings, urings } = self;
        let (report, begun) = mpsc::channel();
        let (device, life) = (Arc::clone(device), Arc::clone(life));
        let crew = Crew { device, mounted: mounted.clone(), rings, _life: life };
        let crew = Arc::new(crew);
        for (place, uring) in urings.into_iter().enumerate() {
            let report = report.clone();
            crew.spawn(place, uring, move |begun| {
                // The receiver is gone when another one failed.
                let _ = report.send(begun);
            })?;
        }
        drop(report);
        let begun: Vec<()> = begun.iter().collect::<io::Result<_>>()?;
        match begun.len() == crew.rings.queues() {
            true => Ok(()),
            false => Err(io::Error::other("io_uring fails")),
        }
    }
}

/// Lets the kernel go on with the device alone, before all queues have begun: it gives up rings when
/// something is registered that cannot be.
pub fn take_back(device: &Device) -> io::Result<()> {
    let mut uring = Disabled::new()?.enable()?;
    match uring.exchange(RingEntry::new(u16::MAX).register(device.as_fd().as_raw_fd()))? {
        (_, 0) => Err(io::Error::other("the kernel has one queue too many")),
        _ => Ok(()),
    }
}

/// The shared state of the threads of a mount.
struct Crew {
    device: Device,
    mounted: Mounted,
    rings: Arc<Rings>,
    _life: Arc<Life>,
}

impl Crew {
    /// Begins a thread of a queue, which was counted. `begun` is told when the kernel has its entry, or why
    /// not.
    fn spawn(
        self: &Arc<Self>,
        place: usize,
        uring: Disabled,
        begun: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> io::Result<()> {
        let crew = Arc::clone(self);
        let name = format!("fuse-ring-{}", self.rings.queues[place].number);
        let work = move || {
            if let Err(error) = crew.serve(place, uring, begun) {
                tracing::error!(%error, "a queue of FUSE requests has one thread less");
            }
            crew.rings.queues[place].staff().threads -= 1;
        };
        thread::Builder::new().name(name).stack_size(device::STACK_BYTES).spawn(work).map(drop)
    }

    /// Answers requests of a queue until the connection ends.
    fn serve(
        self: &Arc<Self>,
        place: usize,
        uring: Disabled,
        begun: impl FnOnce(io::Result<()>),
    ) -> io::Result<()> {
        let queue = &self.rings.queues[place];
        stay_on(queue.number);
        let device = self.device.as_fd().as_raw_fd();
        let mut uring = match uring.enable() {
            Ok(uring) => uring,
            Err(error) => {
                begun(Err(error));
                return Ok(());
            }
        };
        let given = RingEntry::new(queue.number).register(device);
        let early = uring.submit(&given)?;
        match early {
            Some(code) if code < 0 => {
                begun(Err(io::Error::from_raw_os_error(-code)));
                // SAFETY: the kernel completed the command.
                drop(unsafe { given.back() });
                return Ok(());
            }
            _ => begun(Ok(())),
        }
        let (mut entry, mut code) = match early {
            // SAFETY: the kernel completed the command.
            Some(code) => (unsafe { given.back() }, code),
            None => uring.finish(given)?,
        };
        loop {
            match -code {
                0 => {
                    self.answer(place, &mut entry);
                    (entry, code) = uring.exchange(entry.commit(device))?;
                }
                error if is_the_end(error) => return Ok(()),
                refused => {
                    // The answer is lost, but not the entry.
                    let error = io::Error::from_raw_os_error(refused);
                    tracing::error!(%error, "the kernel refuses an answer");
                    (entry, code) = uring.exchange(entry.register(device))?;
                    if code != 0 {
                        return Err(io::Error::from_raw_os_error(-code));
                    }
                }
            }
        }
    }

    fn answer(self: &Arc<Self>, place: usize, entry: &mut RingEntry) {
        let queue = &self.rings.queues[place];
        self.change(place, |staff| staff.busy += 1);
        // The answer is given with the call that asks for the next request: much sooner than anything is
        // exchanged, which takes a commit.
        entry.answer(|request, room| match self.mounted.answer(request, room).0 {
            Outcome::Answer(answer) => answer,
            Outcome::WhenStable(number) => {
                self.change(place, |staff| staff.waiting += 1);
                let answer = self.mounted.make_stable(number);
                queue.staff().waiting -= 1;
                answer
            }
            // The threads of a queue answer the kernel's pages too: none waits for them.
            Outcome::WhenWrittenBack(seek) => {
                self.mounted.look_for_in_data(&seek).and_then(|found| Room::new(room).offset(found))
            }
            Outcome::WhenTaken(name, by) => {
                self.change(place, |staff| staff.waiting += 1);
                let answer = self.mounted.take_snapshot(&name, by, room);
                queue.staff().waiting -= 1;
                answer
            }
            // The last request; the kernel itself ends the connection.
            Outcome::End => Ok(0),
            // Such requests come through the device, but each entry is to be given back.
            Outcome::Nothing => Ok(0),
        });
        queue.staff().busy -= 1;
        queue.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes the counts of a queue, and gives it the threads that it needs then.
    fn change(self: &Arc<Self>, place: usize, change: impl FnOnce(&mut Staff)) {
        let queue = &self.rings.queues[place];
        let hired = {
            let mut staff = queue.staff();
            change(&mut staff);
            staff.hire()
        };
        for _ in 0..hired {
            let crew = Arc::clone(self);
            let begun =
                move |begun: io::Result<()>| begun.unwrap_or_else(|error| crew.end_growth(place, &error));
            if let Err(error) = Disabled::new().and_then(|uring| self.spawn(place, uring, begun)) {
                queue.staff().threads -= 1;
                self.end_growth(place, &error);
            }
        }
    }

    /// A thread could not begin. The next one could not either.
    fn end_growth(&self, place: usize, error: &io::Error) {
        self.rings.queues[place].staff().is_complete = true;
        if !error.raw_os_error().is_some_and(is_the_end) {
            tracing::warn!(%error, "a queue of FUSE requests cannot get another thread");
        }
    }
}

/// Whether an entry that comes back so says that the connection has ended.
fn is_the_end(error: i32) -> bool {
    matches!(error, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV)
}

/// An io_uring that belongs to no thread yet.
#[derive(Debug)]
struct Disabled(UringOfOne);

impl Disabled {
    fn new() -> io::Result<Self> {
        // Room for one entry. Only its thread enters, and what the kernel has to write is written then.
        let uring = IoUring::builder()
            .dontfork()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(1)?;
        Ok(Self(UringOfOne(uring)))
    }

    /// Makes it this thread's.
    fn enable(self) -> io::Result<UringOfOne> {
        self.0.0.submitter().register_enable_rings()?;
        Ok(self.0)
    }
}

/// An io_uring with at most one command under way.
struct UringOfOne(Uring);

impl std::fmt::Debug for UringOfOne {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringOfOne").finish_non_exhaustive()
    }
}

impl UringOfOne {
    /// Gives an entry to the kernel, and waits until it comes back: with a request and 0, or with an error.
    fn exchange(&mut self, given: Given) -> io::Result<(RingEntry, i32)> {
        self.push(&given)?;
        self.finish(given)
    }

    /// Gives an entry to the kernel without waiting; the code if it came back at once.
    fn submit(&mut self, given: &Given) -> io::Result<Option<i32>> {
        self.push(given)?;
        self.0.submit()?;
        Ok(self.completed())
    }

    /// Waits for the entry that was given.
    fn finish(&mut self, given: Given) -> io::Result<(RingEntry, i32)> {
        loop {
            match self.0.submit_and_wait(1) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                // The kernel may have the entry still: it is never freed.
                Err(error) => return Err(error),
            }
            match self.completed() {
                // Not looked at yet.
                Some(code) if matches!(-code, libc::EINTR | libc::EAGAIN) => self.push(&given)?,
                // SAFETY: the kernel completed the command.
                Some(code) => return Ok((unsafe { given.back() }, code)),
                None => {}
            }
        }
    }

    fn push(&mut self, given: &Given) -> io::Result<()> {
        // SAFETY: what the command points to belongs to `given`, which never frees it and is given up at its
        // completion only.
        let pushed = unsafe { self.0.submission().push(given.command()) };
        pushed.map_err(|_| io::Error::other("more than one command under way"))
    }

    fn completed(&mut self) -> Option<i32> {
        self.0.completion().next().map(|completion| completion.result())
    }
}

/// Begins the threads that requests begin where they are missing, and that live as long as the process: they
/// are not to stay on one processor.
fn begin_shared_threads() {
    engine::background::spawn(async {});
    rayon::current_num_threads();
    cpu_latency::note_request();
}

/// Keeps this thread on a processor, if it may run there.
fn stay_on(processor: u16) {
    let processor = usize::from(processor);
    // SAFETY: sets of zeros are empty ones, all live through the calls, and the number is one that a set can
    // hold.
    unsafe {
        let [mut allowed, mut wanted]: [libc::cpu_set_t; 2] = std::mem::zeroed();
        let bytes = size_of::<libc::cpu_set_t>();
        if processor < 8 * bytes
            && libc::sched_getaffinity(0, bytes, &mut allowed) == 0
            && libc::CPU_ISSET(processor, &allowed)
        {
            libc::CPU_SET(processor, &mut wanted);
            libc::sched_setaffinity(0, bytes, &wanted);
        }
    }
}

/// Whether the kernel's switch is on.
fn is_switched_on(switch: &Path) -> Result<(), Missing> {
    match fs::read_to_string(switch) {
        Ok(word) if word.trim() == "Y" => Ok(()),
        Ok(_) => Err(Missing::SwitchedOff),
        Err(_) => Err(Missing::Unknown),
    }
}

/// How many numbers a list like `0-3,8` has.
fn count_of(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_says_why_there_are_no_rings() {
        let place = tempfile::tempdir().unwrap();
        let switch = place.path().join("enable_uring");
        assert!(matches!(is_switched_on(&switch), Err(Missing::Unknown)));
        fs::write(&switch, "N\n").unwrap();
        assert!(matches!(is_switched_on(&switch), Err(Missing::SwitchedOff)));
        fs::write(&switch, "Y\n").unwrap();
        assert!(is_switched_on(&switch).is_ok());
        assert!(
            Missing::SwitchedOff.to_string().contains("echo Y > /sys/module/fuse/parameters/enable_uring")
        );
    }

    #[test]
    fn processors_are_counted_as_the_kernel_lists_them() {
        assert_eq!(count_of("0\n"), Some(1));
        assert_eq!(count_of("0-1\n"), Some(2));
        assert_eq!(count_of("0-3,8,10-11\n"), Some(7));
        for wrong in ["", "a", "3-1", "0-65535"] {
            assert_eq!(count_of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_queue_has_a_thread_for_the_next_request_however_many_wait_for_a_commit() {
        let mut staff = Staff::FIRST;
        for waiting in 1..=MOST_WAITING {
            staff.busy += 1;
            staff.hire();
            assert!(staff.threads > staff.busy, "{waiting}");
            staff.waiting += 1;
            staff.hire();
            assert_eq!(staff.threads, staff.busy + SPARE_THREADS);
        }
        assert_eq!(staff.hire(), 0);
    }

    #[test]
    fn a_thread_stays_where_it_may_run() {
        // SAFETY: a set of zeros is an empty one, and lives through the call.
        let allowed = || unsafe {
            let mut allowed: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut allowed), 0);
            (0..1024u16).filter(|number| libc::CPU_ISSET(usize::from(*number), &allowed)).collect::<Vec<_>>()
        };
        thread::spawn(move || {
            let before = allowed();
            let elsewhere = (0..1024).find(|number| !before.contains(number)).unwrap_or(u16::MAX);
            stay_on(elsewhere);
            stay_on(u16::MAX);
            assert_eq!(allowed(), before);
            stay_on(before[0]);
            assert_eq!(allowed(), before[..1]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_queue_that_could_not_grow_does_not_try_again() {
        let mut staff = Staff { is_complete: true, ..Staff::FIRST };
        staff.busy = 1;
        assert_eq!(staff.hire(), 0);
    }

    #[test]
    fn a_queue_has_no_more_threads_than_it_may() {
        let mut staff = Staff::FIRST;
        for _ in 0..100 {
            staff.busy = staff.threads;
            staff.hire();
        }
        assert_eq!(staff.threads, USUAL_THREADS);
        staff.waiting = 1000;
        for _ in 0..100 {
            staff.busy = staff.threads;
            staff.hire();
        }
        assert_eq!(staff.threads, USUAL_THREADS + MOST_WAITING);
    }
}
