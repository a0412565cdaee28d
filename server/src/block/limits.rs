//! What the clients of one socket may use together: seats and time; and memory, which all sockets share.
//!
//! # The idea
//! A hostile client must not affect other clients. So everything that clients make the server keep is
//! bounded, and scarce resources go back to clients that use them:
//!
//! - *Newcomers*, which have not chosen an export yet, have seats of their own. When these are taken, the
//!   oldest newcomer is disconnected, after a minimum time: ten thousand connections that stay silent delay
//!   an honest client by that time, and take no seat from clients that are served.
//! - *Clients* with an export have a fixed number of seats. A client beyond that gets an error.
//! - *Memory* for requests under way (reads whose reply was not taken yet, writes whose bytes are arriving):
//!   each client has [`OWN_BYTES`] of its own. For more it takes a [`Loan`] from the memory that all share
//!   ([`SharedMemory`]) before it takes a buffer, and waits when that is used up. A request that needs more
//!   than there is goes alone. A client that holds a loan while others wait, and transfers less than
//!   [`LEAST_BYTES`] in a while, is disconnected.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use device::IgnorePoison;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

use crate::gate::Gate;

/// Memory that each client has for itself: more than most clients ever ask for at once.
pub const OWN_BYTES: usize = 2 << 20;

/// The bytes that a client with a loan must transfer in [`Limits::stall`] while others wait.
const LEAST_BYTES: u64 = 256 << 10;

/// The most memory that all clients share.
pub const MOST_SHARED_BYTES: usize = 256 << 20;

/// Memory for requests under way, which the clients of one or several sockets share. Clones share it too.
#[derive(Debug, Clone)]
pub struct SharedMemory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    size: Mutex<Size>,
    permits: Arc<Semaphore>,
    /// Clients in line for memory.
    waiting: AtomicUsize,
    /// Bytes under way of all clients, those that they have for themselves included.
    used: AtomicUsize,
}

#[derive(Debug)]
struct Size {
    bytes: usize,
    /// Bytes by which it became smaller, and which are lent still.
    owed: usize,
}

impl SharedMemory {
    /// Memory of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Shared {
            size: Mutex::new(Size { bytes, owed: 0 }),
            permits: Arc::new(Semaphore::new(bytes)),
            waiting: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
        }))
    }

    /// The bytes that clients share.
    pub fn bytes(&self) -> usize {
        self.0.size.lock().ignore_poison().bytes
    }

    /// Bytes of requests and replies under way, with those that clients have for themselves.
    pub fn used_bytes(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Makes it larger or smaller. It becomes smaller as bytes come back and no client is in line, which may
    /// wait for more than there is afterwards: then the next call goes on with it.
    pub fn resize(&self, bytes: usize) {
        let mut size = self.0.size.lock().ignore_poison();
        let all = size.bytes.saturating_add(size.owed);
        self.0.permits.add_permits(bytes.saturating_sub(all));
        *size = Size { bytes, owed: all.saturating_sub(bytes) };
        // A client gets in line before it looks at the size.
        if size.owed > 0 && self.0.waiting.load(Ordering::SeqCst) == 0 {
            size.owed -= self.0.permits.forget_permits(size.owed);
        }
    }
}

/// The limits for the clients of one socket.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Clients that use an export.
    pub clients: usize,
    /// Clients that have not chosen one yet.
    pub newcomers: usize,
    /// How long one of these has at least, whatever other clients come.
    pub grace: Duration,
    /// How long it has at most.
    pub handshake: Duration,
    /// Memory of requests and replies under way beyond what each client has for itself.
    pub shared: SharedMemory,
    /// How long a client may keep some of them without moving while others wait for them.
    pub stall: Duration,
    /// Brings clients to a boundary, to hand them over.
    pub gate: Gate,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 128,
            newcomers: 128,
            grace: Duration::from_millis(100),
            handshake: Duration::from_secs(30),
            shared: SharedMemory::new(MOST_SHARED_BYTES),
            stall: Duration::from_secs(10),
            gate: Gate::default(),
        }
    }
}

/// The seats of one socket.
#[derive(Debug)]
pub(crate) struct Resources {
    pub limits: Limits,
    seats: Arc<Semaphore>,
}

impl Resources {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { seats: Arc::new(Semaphore::new(limits.clients)), limits })
    }

    /// A seat for a client that chose an export, if there is one.
    pub fn seat(self: &Arc<Self>) -> Option<Seat> {
        let permit = Arc::clone(&self.seats).try_acquire_owned().ok()?;
        Some(Seat { resources: Arc::clone(self), _permit: permit })
    }
}

/// A client's seat among those that use an export, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    resources: Arc<Resources>,
    _permit: OwnedSemaphorePermit,
}

/// A client's part of the shared memory.
#[derive(Debug)]
pub(crate) struct Loan {
    seat: Arc<Seat>,
    own_bytes: usize,
    /// Bytes that may be under way.
    covered_bytes: usize,
    held: Option<OwnedSemaphorePermit>,
    line: Option<InLine>,
    watch: Option<Watch>,
}

impl Loan {
    pub fn none(seat: Seat) -> Self {
        Self::of_part(Arc::new(seat), 1)
    }

    /// For one of `parts` of a client, which divide its own memory.
    pub fn of_part(seat: Arc<Seat>, parts: usize) -> Self {
        Self { seat, own_bytes: OWN_BYTES / parts, covered_bytes: 0, held: None, line: None, watch: None }
    }

    fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// The memory that it is a part of.
    fn shared(&self) -> &Shared {
        &self.seat.resources.limits.shared.0
    }

    /// Counts what is under way.
    fn count(&mut self, bytes: usize) {
        let used = &self.shared().used;
        // Modulo the range of the counter.
        used.fetch_add(bytes.wrapping_sub(self.covered_bytes), Ordering::Relaxed);
        self.covered_bytes = bytes;
    }

    /// Ready once `bytes` may be under way.
    pub fn poll_cover(&mut self, bytes: usize, context: &mut Context<'_>) -> Poll<()> {
        let (held, beyond_own) = (self.held_bytes(), bytes.saturating_sub(self.own_bytes));
        if beyond_own > held {
            let memory = &self.seat.resources.limits.shared;
            let line = self.line.get_or_insert_with(|| InLine::new(memory, beyond_own, held));
            let more = ready!(line.permit.as_mut().poll(context));
            match (&mut self.held, more) {
                (Some(held), Ok(more)) => held.merge(more),
                (held, more) => *held = more.ok(),
            }
        }
        self.line = None;
        self.count(bytes);
        Poll::Ready(())
    }

    /// Stands in line no longer: for who could not use what it would get.
    pub fn leave_line(&mut self) {
        self.line = None;
    }

    /// Gives back what `bytes` under way do not need.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.count(bytes.min(self.covered_bytes));
        let Some(held) = &mut self.held else { return };
        let surplus = held.num_permits().saturating_sub(bytes.saturating_sub(self.own_bytes));
        drop(held.split(surplus));
        if held.num_permits() == 0 {
            self.held = None;
        }
    }

    /// Ready when it was the client's turn for too long, and it moved too little, while it holds a loan that
    /// others wait for. `moved_bytes` counts all that it ever moved.
    pub fn poll_is_stalled(
        &mut self,
        is_its_turn: bool,
        moved_bytes: u64,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if self.held.is_none() || !is_its_turn {
            self.watch = None;
            return Poll::Pending;
        }
        let limits = &self.seat.resources.limits;
        let waiting = &limits.shared.0.waiting;
        let watch =
            self.watch.get_or_insert_with(|| Watch { timer: Box::pin(sleep(limits.stall)), moved_bytes });
        while watch.timer.as_mut().poll(context).is_ready() {
            if moved_bytes - watch.moved_bytes < LEAST_BYTES && waiting.load(Ordering::Relaxed) > 0 {
                return Poll::Ready(());
            }
            watch.moved_bytes = moved_bytes;
            watch.timer.as_mut().reset(Instant::now() + limits.stall);
        }
        Poll::Pending
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// A client that waits for memory. It counts as such until dropped.
struct InLine {
    memory: SharedMemory,
    permit: Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>,
}

impl InLine {
    /// For a client that needs `bytes`, and holds some of them already.
    fn new(memory: &SharedMemory, bytes: usize, held: usize) -> Self {
        memory.0.waiting.fetch_add(1, Ordering::SeqCst);
        // What is more than all share is covered by all of it.
        let missing = bytes.min(memory.bytes()).saturating_sub(held);
        let permit =
            Arc::clone(&memory.0.permits).acquire_many_owned(u32::try_from(missing).unwrap_or(u32::MAX));
        Self { memory: memory.clone(), permit: Box::pin(permit) }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.memory.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for InLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InLine")
    }
}

/// How much a client moved when it was looked at.
#[derive(Debug)]
struct Watch {
    timer: Pin<Box<Sleep>>,
    moved_bytes: u64,
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use super::*;

    fn resources(shared_bytes: usize) -> Arc<Resources> {
        Resources::new(Limits { clients: 3, shared: SharedMemory::new(shared_bytes), ..Limits::default() })
    }

    fn loan(resources: &Arc<Resources>) -> Loan {
        Loan::none(resources.seat().expect("a seat"))
    }

    async fn is_covered(loan: &mut Loan, bytes: usize) -> bool {
        poll_fn(|context| Poll::Ready(loan.poll_cover(bytes, context).is_ready())).await
    }

    #[tokio::test]
    async fn what_is_given_back_goes_to_who_waits() {
        let resources = resources(10);
        let (mut first, mut second) = (loan(&resources), loan(&resources));
        assert!(is_covered(&mut first, OWN_BYTES + 8).await);
        assert!(is_covered(&mut second, OWN_BYTES).await, "its own is always there");
        assert!(!is_covered(&mut second, OWN_BYTES + 3).await);
        first.shrink_to(OWN_BYTES + 7);
        assert!(is_covered(&mut second, OWN_BYTES + 3).await);
        drop((first, second));
        let shared = &resources.limits.shared;
        assert_eq!((shared.0.permits.available_permits(), shared.used_bytes()), (10, 0));
        assert_eq!(shared.0.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn what_exceeds_all_memory_is_served_alone() {
        let resources = resources(10);
        let (mut first, mut second) = (loan(&resources), loan(&resources));
        assert!(is_covered(&mut first, 1 << 40).await);
        assert!(!is_covered(&mut second, OWN_BYTES + 1).await);
        drop(first);
        assert!(is_covered(&mut second, 1 << 40).await);
    }

    #[tokio::test]
    async fn clients_of_all_sockets_share_memory_and_what_is_under_way_is_counted() {
        let shared = SharedMemory::new(10);
        let sockets = [0; 2].map(|_| Resources::new(Limits { shared: shared.clone(), ..Limits::default() }));
        let [mut first, mut second] = sockets.each_ref().map(loan);
        assert!(is_covered(&mut first, OWN_BYTES + 8).await);
        assert!(!is_covered(&mut second, OWN_BYTES + 3).await);
        assert_eq!(shared.used_bytes(), OWN_BYTES + 8, "what waits has no memory");
        second.leave_line();
        assert!(is_covered(&mut second, 5).await);
        assert_eq!(shared.used_bytes(), OWN_BYTES + 8 + 5);
        drop((first, second));
        assert_eq!(shared.used_bytes(), 0);
    }

    #[tokio::test]
    async fn memory_that_becomes_smaller_loses_what_comes_back_and_no_client_waits_for_ever() {
        let resources = resources(20);
        let shared = &resources.limits.shared;
        let (mut first, mut second) = (loan(&resources), loan(&resources));
        assert!(is_covered(&mut first, OWN_BYTES + 12).await);
        assert!(!is_covered(&mut second, OWN_BYTES + 18).await);
        shared.resize(6);
        assert_eq!(shared.bytes(), 6);
        drop(first);
        assert!(is_covered(&mut second, OWN_BYTES + 18).await, "it was in line before");
        second.shrink_to(0);
        shared.resize(6);
        assert_eq!(shared.0.permits.available_permits(), 6);
        assert!(is_covered(&mut second, OWN_BYTES + 18).await, "alone");
        shared.resize(8);
        second.shrink_to(0);
        assert_eq!(shared.0.permits.available_permits(), 8);
    }

    #[tokio::test]
    async fn places_are_counted() {
        let resources = resources(0);
        let seats: Vec<_> = (0..3).map(|_| resources.seat()).collect();
        assert!(seats.iter().all(Option::is_some));
        assert!(resources.seat().is_none());
        drop(seats);
        assert!(resources.seat().is_some());
    }

    #[tokio::test]
    async fn who_does_not_move_is_stalled_once_others_wait() {
        let stall = Duration::from_millis(1);
        let resources =
            Resources::new(Limits { clients: 2, shared: SharedMemory::new(10), stall, ..Limits::default() });
        let (mut first, mut second) = (loan(&resources), loan(&resources));
        assert!(is_covered(&mut first, OWN_BYTES + 10).await);
        let mut moved_bytes = 0;
        for _ in 0..5 {
            assert!(
                first
                    .poll_is_stalled(true, moved_bytes, &mut Context::from_waker(Waker::noop()))
                    .is_pending(),
                "nobody waits"
            );
            sleep(stall).await;
        }
        assert!(!is_covered(&mut second, OWN_BYTES + 1).await);
        for _ in 0..5 {
            moved_bytes += LEAST_BYTES;
            assert!(
                first
                    .poll_is_stalled(true, moved_bytes, &mut Context::from_waker(Waker::noop()))
                    .is_pending(),
                "it moves"
            );
            sleep(stall).await;
        }
        sleep(stall).await;
        assert!(
            first.poll_is_stalled(false, moved_bytes, &mut Context::from_waker(Waker::noop())).is_pending(),
            "the server's turn"
        );
        assert!(first.watch.is_none(), "the client's turn will begin anew");
        moved_bytes += LEAST_BYTES - 1;
        poll_fn(|context| first.poll_is_stalled(true, moved_bytes, context)).await;
    }
}
