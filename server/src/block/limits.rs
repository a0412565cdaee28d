//! What the clients of one socket may use together: places, memory, time.
//!
//! # The idea
//! A hostile client must not affect other clients. So everything that clients make the server keep is
//! bounded, and scarce resources go back to clients that use them:
//!
//! - *Newcomers*, which have not chosen an export yet, have places of their own. When these are taken, the
//!   oldest newcomer is disconnected, after a minimum time: ten thousand connections that stay silent delay
//!   an honest client by that time, and take no place from clients that are served.
//! - *Clients* with an export have a fixed number of places. A client beyond that gets an error.
//! - *Memory* for requests under way (reads whose reply was not taken yet, writes whose bytes are arriving):
//!   each client has [`OWN_BYTES`] of its own. For more it takes a [`Loan`] from the memory that all share,
//!   and waits when that is used up. A client that holds a loan while others wait, and transfers less than
//!   [`LEAST_BYTES`] in a while, is disconnected.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Memory that each client has for itself: more than most clients ever ask for at once.
pub const OWN_BYTES: usize = 2 << 20;

/// The bytes that a client with a loan must transfer in [`Limits::stall`] while others wait.
const LEAST_BYTES: u64 = 256 << 10;

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
    /// Bytes of requests and replies under way beyond what each client has for itself.
    pub shared_bytes: usize,
    /// How long a client may keep some of them without moving while others wait for them.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 128,
            newcomers: 128,
            grace: Duration::from_millis(100),
            handshake: Duration::from_secs(30),
            shared_bytes: 256 << 20,
            stall: Duration::from_secs(10),
        }
    }
}

/// The places and the memory of one socket.
#[derive(Debug)]
pub(crate) struct Resources {
    pub limits: Limits,
    places: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    /// Clients in line for memory.
    waiting: AtomicUsize,
}

impl Resources {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(limits.clients)),
            memory: Arc::new(Semaphore::new(limits.shared_bytes)),
            waiting: AtomicUsize::new(0),
            limits,
        })
    }

    /// A place for a client that chose an export, if there is one.
    pub fn place(self: &Arc<Self>) -> Option<Place> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Place { resources: Arc::clone(self), _permit: permit })
    }
}

/// A client's place among those that use an export, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    resources: Arc<Resources>,
    _permit: OwnedSemaphorePermit,
}

/// A client's part of the shared memory.
#[derive(Debug)]
pub(crate) struct Loan {
    place: Arc<Place>,
    own_bytes: usize,
    held: Option<OwnedSemaphorePermit>,
    line: Option<InLine>,
    watch: Option<Watch>,
}

impl Loan {
    pub fn none(place: Place) -> Self {
        Self::of_part(Arc::new(place), 1)
    }

    /// For one of `parts` of a client, which divide its own memory.
    pub fn of_part(place: Arc<Place>, parts: usize) -> Self {
        Self { place, own_bytes: OWN_BYTES / parts, held: None, line: None, watch: None }
    }

    fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Ready once `bytes` may be under way.
    pub fn poll_cover(&mut self, bytes: usize, context: &mut Context<'_>) -> Poll<()> {
        let resources = &self.place.resources;
        let held = self.held_bytes();
        // What is more than all share is covered by all of it.
        let missing =
            bytes.saturating_sub(self.own_bytes).min(resources.limits.shared_bytes).saturating_sub(held);
        if missing == 0 {
            self.line = None;
            return Poll::Ready(());
        }
        let line = self.line.get_or_insert_with(|| InLine::new(resources, missing));
        let more = ready!(line.permit.as_mut().poll(context));
        self.line = None;
        match (&mut self.held, more) {
            (Some(held), Ok(more)) => held.merge(more),
            (held, more) => *held = more.ok(),
        }
        Poll::Ready(())
    }

    /// Stands in line no longer: for who could not use what it would get.
    pub fn leave_line(&mut self) {
        self.line = None;
    }

    /// Gives back what `bytes` under way do not need.
    pub fn shrink_to(&mut self, bytes: usize) {
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
        let Resources { limits, waiting, .. } = &*self.place.resources;
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

/// A client that waits for memory. It counts as such until dropped.
struct InLine {
    resources: Arc<Resources>,
    permit: Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>,
}

impl InLine {
    fn new(resources: &Arc<Resources>, bytes: usize) -> Self {
        resources.waiting.fetch_add(1, Ordering::Relaxed);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let permit = Arc::clone(&resources.memory).acquire_many_owned(bytes);
        Self { resources: Arc::clone(resources), permit: Box::pin(permit) }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.resources.waiting.fetch_sub(1, Ordering::Relaxed);
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
        Resources::new(Limits { clients: 3, shared_bytes, ..Limits::default() })
    }

    fn loan(resources: &Arc<Resources>) -> Loan {
        Loan::none(resources.place().expect("a place"))
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
        assert_eq!(resources.memory.available_permits(), 10);
        assert_eq!(resources.waiting.load(Ordering::Relaxed), 0);
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
    async fn places_are_counted() {
        let resources = resources(0);
        let places: Vec<_> = (0..3).map(|_| resources.place()).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(resources.place().is_none());
        drop(places);
        assert!(resources.place().is_some());
    }

    #[tokio::test]
    async fn who_does_not_move_is_stalled_once_others_wait() {
        let stall = Duration::from_millis(1);
        let resources = Resources::new(Limits { clients: 2, shared_bytes: 10, stall, ..Limits::default() });
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
