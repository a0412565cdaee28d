//! Driving a thread's ring: by [`block_on`], or embedded in another reactor with a [`RingDriver`].
//!
//! # The idea
//! Futures of this crate do not say who completes them; the thread that polls them does. A thread *drives its
//! ring* while it is inside `block_on` or holds a `RingDriver`. Then requests go into its ring, and it enters
//! the kernel once for all of them when it has nothing else to do.
//!
//! `block_on` sleeps in the ring itself. A waker called on another thread ends that sleep through an eventfd
//! that the ring reads. A waker called on this thread (as all completions of its own ring are) costs one
//! atomic store.

use std::{
    cell::RefCell,
    fmt,
    future::Future,
    io,
    marker::PhantomData,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    pin::{Pin, pin},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Wake, Waker},
    thread::{self, Thread},
};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::ring;

/// Something that one of several threads has to do, and that must not wait while this one waits in
/// [`block_on`].
pub struct Duty {
    /// Is readable when there is something to do.
    pub device: Arc<dyn AsFd + Send + Sync>,
    /// Whether it is this thread's now.
    pub is_ours: Box<dyn Fn() -> bool>,
    /// Makes it another thread's. Must neither wait nor call [`set_duty`].
    pub hand_over: Box<dyn Fn()>,
}

thread_local! {
    static DUTY: RefCell<Option<Duty>> = const { RefCell::new(None) };
}

/// Gives this thread a duty, or takes it away. While it waits for its own ring, the duty is handed over as
/// soon as there is something to do; else before it waits.
pub fn set_duty(duty: Option<Duty>) {
    DUTY.with(|place| *place.borrow_mut() = duty);
}

/// Does something with the duty, while it is this thread's.
fn with_duty<T>(action: impl FnOnce(&Duty) -> T) -> Option<T> {
    DUTY.with(|duty| duty.borrow().as_ref().filter(|duty| (duty.is_ours)()).map(action))
}

/// Hands the duty over, if this thread has one: it is about to wait for something else than its ring, as a
/// lock that is held while others wait.
pub fn hand_duty_over() {
    with_duty(|duty| (duty.hand_over)());
}

impl Duty {
    fn is_due(&self) -> bool {
        let mut polled = [PollFd::new(&self.device, PollFlags::IN)];
        // An error is for who does it to find.
        !matches!(rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }
}

impl fmt::Debug for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duty").field("device", &self.device.as_fd()).finish_non_exhaustive()
    }
}

/// Runs `future` to its end on this thread, which sleeps in its ring while it waits.
///
/// Before it returns it also waits for requests that dropped or moved futures have left in this thread's
/// ring. It may be called within itself and on a thread with a [`RingDriver`], where it keeps the thread busy
/// until it is done.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut output = None;
    run(pin!(async { output = Some(future.await) }));
    output.expect("a future that has ended has its output")
}

/// The part of [`block_on`] that is the same for every future, so that it is compiled once.
fn run(mut future: Pin<&mut dyn Future<Output = ()>>) {
    let _driver = Driver::enter();
    let sleeper = Arc::new(Sleeper::new());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut context = Context::from_waker(&waker);
    while future.as_mut().poll(&mut context).is_pending() {
        sleeper.sleep_until_woken();
    }
}

/// Counts as a driver of this thread while it lives.
struct Driver {
    /// A driver belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Driver {
    fn enter() -> Self {
        ring::enter_driver();
        Self { not_send: PhantomData }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        ring::leave_driver();
    }
}

/// Embeds this thread's ring into another reactor.
///
/// While it lives, futures polled on this thread use the ring. Its owner must call
/// [`submit_and_reap`](crate::submit_and_reap) before the thread sleeps and whenever the eventfd becomes
/// readable. The eventfd is signalled at each completion; with an edge-triggered poll it needs no reading.
/// (Polling the ring's own descriptor would hang: with deferred task work a completion appears there only
/// after entering.)
///
/// Dropping it waits until nothing is in flight.
pub struct RingDriver {
    eventfd: OwnedFd,
    _driver: Driver,
}

impl RingDriver {
    /// Starts driving this thread's ring; `None` where io_uring is not available, and all I/O is synchronous.
    pub fn attach() -> io::Result<Option<Self>> {
        Ok(ring::register_eventfd()?.map(|eventfd| Self { eventfd, _driver: Driver::enter() }))
    }
}

impl AsFd for RingDriver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

impl AsRawFd for RingDriver {
    fn as_raw_fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }
}

impl Drop for RingDriver {
    fn drop(&mut self) {
        ring::unregister_eventfd();
    }
}

impl fmt::Debug for RingDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingDriver").finish_non_exhaustive()
    }
}

/// One `block_on` and how to wake it.
struct Sleeper {
    state: AtomicU8,
    thread: Thread,
    /// Ends a sleep in the ring. Set before the state says so.
    notification: OnceLock<Arc<OwnedFd>>,
}

const AWAKE: u8 = 0;
const WOKEN: u8 = 1;
/// Sleeping in `thread::park`: the thread has no ring yet.
const PARKED: u8 = 2;
/// Sleeping in the ring.
const IN_RING: u8 = 3;

impl Sleeper {
    fn new() -> Self {
        Self { state: AtomicU8::new(AWAKE), thread: thread::current(), notification: OnceLock::new() }
    }

    fn sleep_until_woken(&self) {
        loop {
            if self.state.swap(AWAKE, Ordering::SeqCst) == WOKEN {
                return;
            }
            let sleeping = match ring::notification() {
                Some(notification) => {
                    self.notification.get_or_init(|| notification);
                    IN_RING
                }
                None => PARKED,
            };
            if sleeping == PARKED {
                hand_duty_over();
            }
            if self.state.compare_exchange(AWAKE, sleeping, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            if sleeping == PARKED {
                thread::park();
                continue;
            }
            let watched = with_duty(|duty| Arc::clone(&duty.device));
            ring::sleep(watched.as_ref().map(|device| device.as_fd()));
            // Who was woken is done soon, or sleeps again and sees then what there is to do.
            if watched.is_some() && self.state.load(Ordering::SeqCst) != WOKEN {
                with_duty(|duty| {
                    if duty.is_due() {
                        (duty.hand_over)()
                    }
                });
            }
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.state.swap(WOKEN, Ordering::SeqCst) {
            PARKED => self.thread.unpark(),
            IN_RING if thread::current().id() != self.thread.id() => {
                if let Some(notification) = self.notification.get() {
                    // Cannot fail: the counter is far from full.
                    let _ = rustix::io::write(notification, &1u64.to_ne_bytes());
                }
            }
            _ => {}
        }
    }
}
