//! The time that simulated devices live in.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    future::Future,
    num::NonZeroU64,
    pin::{Pin, pin},
    sync::{
        Arc, Condvar, LazyLock, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use crate::IgnorePoison;

/// Tells the time and waits for it.
pub trait Clock: Send + Sync + Debug {
    /// Nanoseconds since some moment.
    fn now_ns(&self) -> u64;

    /// Completes when [`now_ns`](Clock::now_ns) has reached `deadline_ns`.
    fn sleep_until(&self, deadline_ns: u64) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The time of the machine. Sleepers are woken by one thread for all.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

/// A time that stands still until everyone sleeps, and then jumps to the earliest deadline.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    timers: Arc<Timers>,
}

/// Who sleeps until when.
#[derive(Debug, Default)]
struct Timers {
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TimerState {
    /// The virtual time; the real clock does not use it.
    now_ns: u64,
    next_number: u64,
    /// By deadline, then in the order in which they went to sleep.
    sleepers: BTreeMap<(u64, u64), Waker>,
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().ignore_poison()
    }
}

impl TimerState {
    fn take_due(&mut self, now_ns: u64) -> Vec<Waker> {
        let later = self.sleepers.split_off(&(now_ns.saturating_add(1), 0));
        std::mem::replace(&mut self.sleepers, later).into_values().collect()
    }
}

/// One sleeper. Its entry goes with it.
struct Sleep {
    timers: Arc<Timers>,
    now_ns: fn(&Timers) -> u64,
    deadline_ns: u64,
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if (self.now_ns)(&self.timers) >= self.deadline_ns {
            return Poll::Ready(());
        }
        let timers = Arc::clone(&self.timers);
        let mut state = timers.lock();
        let number = *self.number.get_or_insert_with(|| {
            state.next_number += 1;
            state.next_number
        });
        let replaced = state.sleepers.insert((self.deadline_ns, number), context.waker().clone());
        drop(state);
        drop(replaced);
        timers.changed.notify_one();
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let removed = self.timers.lock().sleepers.remove(&(self.deadline_ns, number));
            drop(removed);
        }
    }
}

impl VirtualClock {
    /// A clock that shows 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `future` to its end, moving the time on whenever it can do nothing but sleep.
    ///
    /// # Panics
    /// When the future waits for something that is neither the time nor already on its way: then it would
    /// wait forever.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        loop {
            if woken.0.swap(false, Ordering::Acquire) {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return output;
                }
            } else {
                assert!(self.advance(), "everyone waits, and nobody for the time");
            }
        }
    }

    /// Jumps to the next deadline and wakes its sleeper. Returns whether there was one.
    fn advance(&self) -> bool {
        let mut state = self.timers.lock();
        let Some(&(deadline_ns, _)) = state.sleepers.keys().next() else { return false };
        state.now_ns = state.now_ns.max(deadline_ns);
        let due = state.take_due(deadline_ns);
        drop(state);
        due.into_iter().for_each(Waker::wake);
        true
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.timers.lock().now_ns
    }

    fn sleep_until(&self, deadline_ns: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let now_ns = |timers: &Timers| timers.lock().now_ns;
        Box::pin(Sleep { timers: Arc::clone(&self.timers), now_ns, deadline_ns, number: None })
    }
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

static REAL_TIMERS: LazyLock<Arc<Timers>> = LazyLock::new(|| {
    let timers = Arc::new(Timers::default());
    let served = Arc::clone(&timers);
    let thread = thread::Builder::new().name(THREAD_NAME.to_owned());
    if let Err(error) = thread.spawn(move || wake_on_time(&served)) {
        // No sleeper would ever wake up.
        panic!("no thread can be started that keeps the time of modelled devices: {error}");
    }
    timers
});

/// What the thread that keeps the real time is called.
const THREAD_NAME: &str = "modelled-time";

fn real_now_ns() -> u64 {
    u64::try_from(EPOCH.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The thread that wakes the sleepers of the real clock, for as long as the process lives.
///
/// A thread may be woken late by its timer slack, of which 50 µs are the default: five times what the
/// quickest medium takes. It has none here.
fn wake_on_time(timers: &Timers) {
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        tracing::warn!(%error, "modelled devices take up to 50 us longer than they should: no timer slack \
            could be set");
    }
    let mut state = timers.lock();
    loop {
        let now_ns = real_now_ns();
        let due = state.take_due(now_ns);
        if !due.is_empty() {
            drop(state);
            due.into_iter().for_each(Waker::wake);
            state = timers.lock();
            continue;
        }
        state = match state.sleepers.keys().next() {
            None => timers.changed.wait(state).ignore_poison(),
            Some(&(deadline_ns, _)) => {
                let wait = Duration::from_nanos(deadline_ns.saturating_sub(now_ns));
                timers.changed.wait_timeout(state, wait).ignore_poison().0
            }
        };
    }
}

impl Clock for RealClock {
    fn now_ns(&self) -> u64 {
        real_now_ns()
    }

    fn sleep_until(&self, deadline_ns: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Sleep {
            timers: Arc::clone(&REAL_TIMERS),
            now_ns: |_| real_now_ns(),
            deadline_ns,
            number: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_the_real_time_is_woken_without_slack() {
        crate::block_on(RealClock.sleep_until(RealClock.now_ns() + 1_000_000));
        let is_it = |task: &std::path::Path| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == THREAD_NAME)
        };
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
        let task = tasks.into_iter().find(|task| is_it(task)).unwrap();
        let own = std::path::Path::new("/proc").join(task.file_name().unwrap());
        assert_eq!(std::fs::read_to_string(own.join("timerslack_ns")).unwrap().trim(), "1");
    }
}
