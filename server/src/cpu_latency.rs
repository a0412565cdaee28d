//! Keeps idle processors from deep sleep while requests of mounts arrive densely.
//!
//! # Why
//! A program that works with many small files waits for the daemon again and again, and in between the daemon
//! waits for the program. A process that waits lets its processor sleep, and the processor takes time to wake
//! up: microseconds on bare metal, about fifty in a virtual machine whose idle processors go back to the
//! hypervisor. That is several times the time of an answer, twice in each request.
//!
//! # The idea
//! Linux lets a program limit the time in which idle processors must be back (PM QoS): a number of
//! microseconds, written to [`DEVICE`], holds as long as the file is open. Here a thread counts the requests
//! of each [`TICK`]. While they are [`DENSE`], it holds the file open. At the first tick with fewer requests
//! it closes the file and sleeps until the next request. So an idle machine saves power as before, and so
//! does a machine that only streams a film.
//!
//! | idle processors | requested latency |
//! |---|---|
//! | go back to the hypervisor (`haltpoll`) | 0: they poll for work instead of sleeping; not on machines with more than [`MOST_POLLING`] processors, whose owner would notice |
//! | have sleep states of their own | [`SHALLOW_MICROSECONDS`]: the first of these states |
//!
//! A daemon that may not write the file (without root) does nothing.
//!
//! Source: Linux, `Documentation/power/pm_qos_interface.rst`, `Documentation/admin-guide/pm/cpuidle.rst`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// The file that is held open.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// Which driver lets processors be idle.
const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// How often requests are counted.
const TICK: Duration = Duration::from_millis(10);
/// Requests in a tick that are worth it.
const DENSE: u64 = 5;
/// Most processors that are kept from sleeping at all.
const MOST_POLLING: usize = 8;
/// Time to wake from the first sleeping state of usual processors.
const SHALLOW_MICROSECONDS: i32 = 2;

static MACHINE: LazyLock<Option<CpuLatency>> = LazyLock::new(|| {
    let driver = fs::read_to_string(IDLE_DRIVER).ok()?;
    let processors = thread::available_parallelism().map_or(usize::MAX, usize::from);
    Some(CpuLatency::new(Path::new(DEVICE), latency_limit(driver.trim(), processors)?))
});

/// A request came.
pub(crate) fn note_request() {
    if let Some(machine) = &*MACHINE {
        machine.note_request();
    }
}

/// How many microseconds idle processors may take to be back, if anything is to be asked for.
fn latency_limit(driver: &str, processors: usize) -> Option<i32> {
    match driver {
        "none" | "" => None,
        "haltpoll" => (processors <= MOST_POLLING).then_some(0),
        _ => Some(SHALLOW_MICROSECONDS),
    }
}

/// Counts requests, and holds a file open while they are dense.
struct CpuLatency {
    device: PathBuf,
    microseconds: i32,
    requests: AtomicU64,
    /// The next request is to wake the thread, or to start it.
    asleep: AtomicBool,
    /// Absent when there can be none.
    keeper: OnceLock<Option<Thread>>,
}

impl CpuLatency {
    fn new(device: &Path, microseconds: i32) -> Self {
        Self {
            device: device.to_owned(),
            microseconds,
            requests: AtomicU64::new(0),
            asleep: AtomicBool::new(true),
            keeper: OnceLock::new(),
        }
    }

    fn note_request(&'static self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            let keeper = self.keeper.get_or_init(|| self.start());
            keeper.iter().for_each(Thread::unpark);
        }
    }

    fn start(&'static self) -> Option<Thread> {
        let work = || {
            if let Err(error) = self.keep() {
                tracing::debug!(%error, "cannot keep idle processors from deep sleep");
            }
        };
        let started = thread::Builder::new().name("cpu-latency".into()).spawn(work);
        started.ok().map(|handle| handle.thread().clone())
    }

    /// Returns only when the file cannot be written; then no request wakes this thread any more.
    fn keep(&self) -> io::Result<()> {
        loop {
            while self.asleep.load(Ordering::Acquire) {
                thread::park();
            }
            self.hold_while_dense()?;
            self.asleep.store(true, Ordering::Release);
        }
    }

    fn hold_while_dense(&self) -> io::Result<()> {
        let mut held: Option<File> = None;
        let mut seen = self.requests.load(Ordering::Relaxed);
        loop {
            thread::sleep(TICK);
            let now = self.requests.load(Ordering::Relaxed);
            if now.wrapping_sub(seen) < DENSE {
                return Ok(());
            }
            seen = now;
            if held.is_none() {
                let mut file = OpenOptions::new().write(true).open(&self.device)?;
                file.write_all(&self.microseconds.to_ne_bytes())?;
                held = Some(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_processors_of_a_virtual_machine_do_not_sleep_and_others_only_lightly() {
        assert_eq!(latency_limit("haltpoll", 2), Some(0));
        assert_eq!(latency_limit("haltpoll", MOST_POLLING + 1), None);
        assert_eq!(latency_limit("intel_idle", 64), Some(SHALLOW_MICROSECONDS));
        assert_eq!(latency_limit("none", 2), None);
    }

    #[test]
    fn dense_requests_hold_the_file_and_their_end_lets_the_thread_sleep() {
        let place = tempfile::tempdir().unwrap();
        let device = place.path().join("latency");
        fs::write(&device, "").unwrap();
        let latency: &'static CpuLatency = Box::leak(Box::new(CpuLatency::new(&device, 7)));
        for _ in 0..2 {
            fs::write(&device, "").unwrap();
            while fs::read(&device).unwrap() != 7i32.to_ne_bytes() {
                latency.note_request();
                thread::yield_now();
            }
            while !latency.asleep.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn where_the_file_cannot_be_written_the_thread_ends_and_requests_wake_nobody() {
        let latency: &'static CpuLatency =
            Box::leak(Box::new(CpuLatency::new(Path::new("/nowhere/at/all"), 0)));
        latency.asleep.store(false, Ordering::Release);
        // A pause of this thread is no reason to sleep, from which only a thread of its own is woken.
        let kept = thread::spawn(|| {
            loop {
                latency.hold_while_dense()?;
            }
        });
        while !kept.is_finished() {
            latency.note_request();
            thread::yield_now();
        }
        let failed: io::Result<()> = kept.join().unwrap();
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(latency.keeper.get().is_none());
    }
}
