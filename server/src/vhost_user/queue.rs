//! One ring of a device, on one shard.
//!
//! # The idea
//! A ring is served as a connection of NBD is: one task on one shard takes the requests that are there,
//! starts each, and polls it once on the spot. What is cached is answered by that first poll; what has to
//! wait stays with the ring as a future. Answers of one round are signalled together, and only if the driver
//! asked to be told. An eventfd of the client wakes the task. Its counter is never read: each kick is an edge
//! of its own, and a client that reads the counter itself could make the read block.
//!
//! # Invariants
//! - No more requests are under way than the ring has descriptors. Their data take memory as for all clients
//!   ([`Loan`]); a request that has to wait for it keeps later ones in the ring.
//! - A request is noted as under way before it is begun, and as answered after its answer is in the ring.
//! - A ring that is *stopped* answers all that it took, if that takes no longer than a moment: the pool may
//!   be suspended, and the client waits. Afterwards, where a file of requests under way is in use, the others
//!   stay noted in it, and are done again when the ring is served again. Without one the client has more
//!   patience, and then they fail. What changes the volume is done to its end all the same ([`Rest`]), before
//!   the ring is served again.
//! - A ring whose client is *gone* touches guest memory no more: reads are dropped, and what changes the
//!   volume is done to its end. The same holds when the volume is taken away: its requests are not answered,
//!   so that a guest whose daemon is restarted sees no error.
//!
//! A guest that breaks a rule of the ring ends the session ([`Failure`]).

#![allow(unsafe_code, reason = "tokio watches a descriptor that the queue owns")]

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use device::IgnorePoison;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use super::chain::{Chain, Violation};
use super::device::Disk;
use super::inflight;
use super::memory::Memory;
use super::request::{Ended, Request, Status, write_status};
use crate::block::{Export, Loan};

/// Descriptors of a ring.
pub(super) const MOST_DESCRIPTORS: u16 = 1024;
/// Requests that are taken before other tasks of the shard have their turn.
const TURNS: usize = 128;

/// How long requests may take after the ring was stopped, where they are noted in a file.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Where a ring is.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingPlace {
    pub size: u16,
    pub table: GuestAddress,
    pub available: GuestAddress,
    pub used: GuestAddress,
    /// The first request to take.
    pub next: u16,
    pub has_event_index: bool,
}

/// What a client may change while the ring is served.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub memory: Arc<Memory>,
    /// Signalled after answers.
    pub call: Option<Arc<OwnedFd>>,
}

/// Why a ring is not served any more.
#[derive(Debug)]
pub(super) enum Failure {
    Violation(Violation),
    /// Guest memory is not there any more.
    Memory,
    /// The volume does not answer any more.
    Export,
    /// The client is gone.
    Client,
    System(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => write!(f, "the guest's driver breaks a rule: {violation}"),
            Self::Memory => f.write_str("the client made the file of its guest's memory shorter"),
            Self::Export => f.write_str("the volume was taken away"),
            Self::Client => f.write_str("the client is gone"),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<virtio_queue::Error> for Failure {
    fn from(_: virtio_queue::Error) -> Self {
        Self::Violation(Violation("a ring outside of guest memory, or an index beyond its size"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// A request under way.
struct RunningRequest {
    doing: Pin<Box<dyn Future<Output = Ended> + Send>>,
    /// How it ends if it is not waited for.
    failed: Ended,
}

impl Future for RunningRequest {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        self.doing.as_mut().poll(context)
    }
}

/// A ring that was stopped.
pub(super) struct Stopped {
    /// The next request to take.
    pub base: u16,
    pub rest: Rest,
}

/// Changes of the volume that go on after the ring was stopped, and their memory.
pub(super) struct Rest {
    changing: FuturesUnordered<RunningRequest>,
    _loan: Loan,
}

impl Rest {
    /// Ready when all of them are done.
    pub async fn done(mut self) {
        while self.changing.next().await.is_some() {}
    }
}

/// A ring that is served.
pub(super) struct Serving<E> {
    disk: Arc<Disk<E>>,
    ring: Queue,
    control: Arc<Mutex<Control>>,
    memory: Arc<Memory>,
    call: Option<Arc<OwnedFd>>,
    kick: AsyncFd<OwnedFd>,
    inflight: Option<inflight::Queue>,
    /// Requests that an earlier session took and did not answer.
    again: VecDeque<u16>,
    loan: Loan,
    held_bytes: usize,
    /// It waits for memory.
    postponed: Option<Request>,
    reading: FuturesUnordered<RunningRequest>,
    changing: FuturesUnordered<RunningRequest>,
    /// Tells it to stop, and by being dropped that the client is gone.
    stop: oneshot::Receiver<()>,
    is_stopping: bool,
    /// Until when requests are waited for once it stops.
    stop_limit: Pin<Box<Sleep>>,
    /// How long, where they are not noted in a file.
    patience: Duration,
    is_abandoned: bool,
    /// Why it was abandoned.
    failure: Failure,
}

/// Serves a ring until it is stopped. Requests that end no sooner than `patience` fail then, unless they are
/// noted in a file. To be called on the shard.
///
/// # Errors
/// The session has to end.
pub(super) async fn serve<E: Export>(
    disk: Arc<Disk<E>>,
    place: RingPlace,
    (control, kick): (Arc<Mutex<Control>>, OwnedFd),
    inflight: Option<inflight::Queue>,
    loan: Loan,
    (stop, patience): (oneshot::Receiver<()>, Duration),
) -> Result<Stopped, Failure> {
    let mut serving = Serving::begin(disk, place, (control, kick), inflight, loan, (stop, patience))?;
    let base = poll_fn(|context| serving.poll(context)).await?;
    Ok(Stopped { base, rest: Rest { changing: serving.changing, _loan: serving.loan } })
}

impl<E: Export> Serving<E> {
    fn begin(
        disk: Arc<Disk<E>>,
        place: RingPlace,
        (control, kick): (Arc<Mutex<Control>>, OwnedFd),
        mut inflight: Option<inflight::Queue>,
        loan: Loan,
        (stop, patience): (oneshot::Receiver<()>, Duration),
    ) -> Result<Self, Failure> {
        let mut ring = Queue::new(MOST_DESCRIPTORS)?;
        ring.try_set_size(place.size)?;
        ring.try_set_desc_table_address(place.table)?;
        ring.try_set_avail_ring_address(place.available)?;
        ring.try_set_used_ring_address(place.used)?;
        ring.set_event_idx(place.has_event_index);
        ring.set_ready(true);
        let (memory, call) = {
            let control = control.lock().ignore_poison();
            (Arc::clone(&control.memory), control.call.clone())
        };
        if !ring.is_valid(memory.map()) {
            return Err(Violation("a ring outside of guest memory").into());
        }
        let used = ring.used_idx(memory.map(), Ordering::Acquire)?;
        ring.set_next_used(used.0);
        ring.set_next_avail(place.next);
        if let Some(call) = &call {
            // An earlier daemon may have ended between its last answers and telling of them.
            signal(call)?;
        }
        let mut again = VecDeque::new();
        if let Some(inflight) = &mut inflight {
            again = inflight.recover(used.0).into();
            // A client that lost its daemon does not know how far that came.
            let taken = u16::try_from(again.len()).unwrap_or(u16::MAX);
            ring.set_next_avail((used + Wrapping(taken)).0);
        }
        // SAFETY: it owns the descriptor, always names the same one, and closes it when it is dropped.
        let kick = unsafe { AsyncFd::register_with_interest(kick, Interest::READABLE) };
        Ok(Self {
            disk,
            ring,
            control,
            memory,
            call,
            kick: kick.map_err(io::Error::from)?,
            inflight,
            again,
            loan,
            held_bytes: 0,
            postponed: None,
            reading: FuturesUnordered::new(),
            changing: FuturesUnordered::new(),
            stop,
            is_stopping: false,
            stop_limit: Box::pin(sleep(Duration::ZERO)),
            patience,
            is_abandoned: false,
            failure: Failure::Client,
        })
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<u16, Failure>> {
        if !self.is_stopping && !self.is_abandoned {
            match self.stop.poll_unpin(context) {
                Poll::Ready(Ok(())) => {
                    self.is_stopping = true;
                    let limit = if self.inflight.is_some() { STOP_GRACE } else { self.patience };
                    self.stop_limit = Box::pin(sleep(limit));
                }
                Poll::Ready(Err(_)) => {
                    self.is_abandoned = true;
                    self.reading = FuturesUnordered::new();
                }
                Poll::Pending => {}
            }
        }
        if !self.is_abandoned {
            match self.go_round(context) {
                Ok(polled) => return polled.map(Ok),
                Err(failure) => {
                    self.failure = failure;
                    self.is_abandoned = true;
                    self.reading = FuturesUnordered::new();
                }
            }
        }
        while let Poll::Ready(ended) = self.changing.poll_next_unpin(context) {
            if ended.is_none() {
                return Poll::Ready(Err(std::mem::replace(&mut self.failure, Failure::Client)));
            }
        }
        Poll::Pending
    }

    fn go_round(&mut self, context: &mut Context<'_>) -> Result<Poll<u16>, Failure> {
        let mut turns = TURNS;
        loop {
            self.look_at_control();
            let mut moved = false;
            while let Some(ended) = self.next_ended(context) {
                self.answer(ended)?;
                moved = true;
            }
            moved |= self.take(context, &mut turns)?;
            if moved {
                self.signal()?;
            }
            if !self.memory.is_intact() {
                return Err(Failure::Memory);
            }
            if self.disk.is_gone() {
                return Err(Failure::Export);
            }
            if self.under_way() == 0 {
                if self.is_stopping {
                    return Ok(Poll::Ready(self.ring.next_avail()));
                }
                self.loan.shrink_to(0);
            }
            if self.is_stopping && self.stop_limit.as_mut().poll(context).is_ready() {
                self.give_up_waiting()?;
                return Ok(Poll::Ready(self.ring.next_avail()));
            }
            if turns == 0 {
                context.waker().wake_by_ref();
                return Ok(Poll::Pending);
            }
            turns -= 1;
            if moved {
                continue;
            }
            if self.under_way() > 0 {
                // A busy shard seldom sleeps, and only then submits by itself.
                device::submit_and_reap();
            }
            if self.is_stopping || self.postponed.is_some() {
                return Ok(Poll::Pending);
            }
            if self.ring.enable_notification(self.memory.map())? {
                continue;
            }
            match self.kick.poll_read_ready(context)? {
                // Requests that came before it was cleared are looked for again.
                Poll::Ready(mut guard) => guard.clear_ready(),
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
    }

    /// Ends requests that the ring is stopped without.
    fn give_up_waiting(&mut self) -> Result<(), Failure> {
        let waiting = self.reading.iter().chain(self.changing.iter()).map(|request| request.failed);
        let postponed = self.postponed.as_ref().map(|request| request.ended(Status::Failed, 0));
        let unanswered: Vec<Ended> = waiting.chain(postponed).collect();
        self.reading = FuturesUnordered::new();
        self.postponed = None;
        if self.inflight.is_some() {
            return Ok(());
        }
        for ended in unanswered {
            self.answer(ended)?;
        }
        self.signal()
    }

    fn look_at_control(&mut self) {
        let control = self.control.lock().ignore_poison();
        if !Arc::ptr_eq(&control.memory, &self.memory) {
            self.memory = Arc::clone(&control.memory);
        }
        let is_same = match (&control.call, &self.call) {
            (Some(now), Some(before)) => Arc::ptr_eq(now, before),
            (now, before) => now.is_none() && before.is_none(),
        };
        if !is_same {
            self.call = control.call.clone();
        }
    }

    /// Requests that were taken and not answered.
    fn under_way(&self) -> usize {
        self.reading.len() + self.changing.len() + usize::from(self.postponed.is_some())
    }

    fn next_ended(&mut self, context: &mut Context<'_>) -> Option<Ended> {
        for waiting in [&mut self.reading, &mut self.changing] {
            if let Poll::Ready(Some(ended)) = waiting.poll_next_unpin(context) {
                return Some(ended);
            }
        }
        None
    }

    /// Takes the requests that are there. Whether some were.
    fn take(&mut self, context: &mut Context<'_>, turns: &mut usize) -> Result<bool, Failure> {
        let mut moved = false;
        while *turns > 0 {
            let request = match self.postponed.take() {
                Some(request) => request,
                None if self.is_stopping => break,
                None => match self.next_request()? {
                    Some(request) => request,
                    None => break,
                },
            };
            let needed = self.held_bytes + request.memory_bytes();
            if self.loan.poll_cover(needed, context).is_pending() {
                self.postponed = Some(request);
                break;
            }
            self.held_bytes = needed;
            *turns -= 1;
            moved = true;
            self.start(request, context)?;
        }
        Ok(moved)
    }

    /// The next request of the ring, noted as under way.
    fn next_request(&mut self) -> Result<Option<Request>, Failure> {
        let again = self.again.pop_front();
        let head = match again {
            Some(head) => head,
            None => {
                let memory = Arc::clone(&self.memory);
                let Some(chain) = self.ring.iter(memory.map())?.next() else { return Ok(None) };
                chain.head_index()
            }
        };
        if self.under_way() >= usize::from(self.ring.size()) {
            return Err(Violation("more requests under way than the ring has descriptors").into());
        }
        let table = GuestAddress(self.ring.desc_table());
        let chain = Chain::read(&self.memory, table, self.ring.size(), head)?;
        let request = Request::parse(&self.memory, head, chain)?;
        if again.is_none()
            && let Some(inflight) = &mut self.inflight
        {
            inflight.begin(head);
        }
        Ok(Some(request))
    }

    /// Begins a request; what need not wait is answered.
    fn start(&mut self, request: Request, context: &mut Context<'_>) -> Result<(), Failure> {
        let changes = request.operation.changes();
        // A panic ends its request alone.
        let failed = request.ended(Status::Failed, 0);
        let execute = request.execute(Arc::clone(&self.disk), Arc::clone(&self.memory));
        let execute = AssertUnwindSafe(execute).catch_unwind();
        let doing = Box::pin(execute.map(move |ended| ended.unwrap_or(failed)));
        let mut request = RunningRequest { doing, failed };
        match request.poll_unpin(context) {
            Poll::Ready(ended) => self.answer(ended)?,
            Poll::Pending if changes => self.changing.push(request),
            Poll::Pending => self.reading.push(request),
        }
        Ok(())
    }

    /// Puts an answer into the ring.
    fn answer(&mut self, ended: Ended) -> Result<(), Failure> {
        if self.disk.is_gone() {
            // It stays under way, for the daemon that serves the volume next.
            return Err(Failure::Export);
        }
        self.held_bytes = self.held_bytes.saturating_sub(ended.held_bytes);
        write_status(&self.memory, &ended)?;
        if let Some(inflight) = &self.inflight {
            inflight.ends(ended.head);
        }
        self.ring.add_used(self.memory.map(), ended.head, ended.written)?;
        if let Some(inflight) = &self.inflight {
            inflight.ended(ended.head, self.ring.next_used());
        }
        Ok(())
    }

    /// Tells the driver of answers, if it wants to be told.
    fn signal(&mut self) -> Result<(), Failure> {
        let is_wanted = self.ring.needs_notification(self.memory.map())?;
        let Some(call) = self.call.as_ref().filter(|_| is_wanted) else { return Ok(()) };
        if !self.ring.event_idx_enabled() {
            // The first word of the ring of requests says that no interrupt is wanted.
            let flags: u16 = self
                .memory
                .map()
                .load(GuestAddress(self.ring.avail_ring()), Ordering::Relaxed)
                .map_err(|_| Violation("a ring outside of guest memory"))?;
            if u16::from_le(flags) & 1 != 0 {
                return Ok(());
            }
        }
        Ok(signal(call)?)
    }
}

/// Signals an eventfd.
pub(super) fn signal(eventfd: &OwnedFd) -> io::Result<()> {
    // A counter that is full has not been looked at yet.
    match rustix::io::write(eventfd, &1u64.to_ne_bytes()) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
