//! Bringing clients to a boundary, all or none: for a daemon that hands over ([`crate::handover`]).
//!
//! # The idea
//! Every connection that may be handed over is a guest. Closing the gate wakes all guests; each parks as soon
//! as nothing of it is under way. Those that do not park in time are named, and the gate opens again. The
//! check on the way of a request is one load of an atomic.

mod behind;

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use futures_util::task::AtomicWaker;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

pub(crate) use behind::{Behind, Movable};

/// How long a client that has not chosen an export yet is waited for.
const NEWCOMERS_LIMIT: Duration = Duration::from_millis(300);

/// How long tasks may take to end whose clients go on elsewhere.
const LEAVING_LIMIT: Duration = Duration::from_secs(1);

/// A client at a boundary.
#[derive(Debug)]
pub struct Parked {
    /// Its socket.
    pub socket: OwnedFd,
    /// What its protocol agreed on with it.
    pub told: Told,
    /// Bytes that were read but are no whole request, and answers that did not leave, as `told` says.
    pub bytes: Vec<u8>,
}

/// What a protocol agreed on with a client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// Which protocol takes it up.
    pub protocol: String,
    /// The volume.
    pub volume: String,
    /// Flags and numbers of the protocol, by name.
    #[serde(default)]
    pub facts: BTreeMap<String, u64>,
    /// Names of the protocol, by what they are of.
    #[serde(default)]
    pub texts: BTreeMap<String, String>,
    /// How many bytes beside it were read from the client; the others are on the way to it.
    #[serde(default)]
    pub read_bytes: u64,
}

impl Told {
    /// A fact; 0 for one that is not there.
    pub fn fact(&self, name: &str) -> u64 {
        self.facts.get(name).copied().unwrap_or_default()
    }

    /// A text; nothing for one that is not there.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// A fact that is true or false.
    pub fn is(&self, name: &str) -> bool {
        self.fact(name) != 0
    }
}

/// Lets clients in and requests through, or holds all of them at a boundary. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    is_closed: AtomicBool,
    /// Told when it opens or closes, or when a client waits to be taken up.
    changes: watch::Sender<()>,
    state: Mutex<State>,
    /// A guest parked or left, or a visit ended.
    settled: Condvar,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            is_closed: AtomicBool::new(false),
            changes: watch::Sender::new(()),
            state: Mutex::default(),
            settled: Condvar::new(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    guests: BTreeMap<u64, Entry>,
    next: u64,
    /// Visits that go on, by what they are.
    visits: BTreeMap<u64, String>,
    /// Clients that wait to be taken up.
    handed: VecDeque<Parked>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    waker: Arc<AtomicWaker>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// It has no export yet.
    New,
    Served,
    /// At a boundary, with what goes over, where it can.
    Parked(Option<Parked>, oneshot::Sender<()>),
    /// Another task is to go on with it.
    Leaving,
}

/// What comes next to a listener.
pub(crate) enum Next<T> {
    /// A connection.
    Came(T),
    /// A client that was another task's, or another daemon's, and its place among the guests.
    Handed(Parked, Guest),
}

impl Gate {
    /// One that is closed, for a daemon that takes over.
    pub fn closed() -> Self {
        let gate = Self::default();
        gate.0.is_closed.store(true, Ordering::SeqCst);
        gate
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().ignore_poison()
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Acquire)
    }

    /// Lets all through from now on.
    pub fn open(&self) {
        let mut state = self.state();
        self.0.is_closed.store(false, Ordering::SeqCst);
        for guest in state.guests.values_mut() {
            if let Stage::Parked(..) = guest.stage
                && let Stage::Parked(_, go_on) = std::mem::replace(&mut guest.stage, Stage::Served)
            {
                // It may have ended meanwhile.
                let _ = go_on.send(());
            }
        }
        drop(state);
        self.0.changes.send_replace(());
    }

    /// A connection that has not chosen an export yet. `name` says for a person what it is.
    pub fn guest(&self, name: impl Into<String>) -> Guest {
        self.add(&mut self.state(), name.into(), Stage::New)
    }

    fn add(&self, state: &mut State, name: String, stage: Stage) -> Guest {
        let (number, waker) = (state.next, Arc::<AtomicWaker>::default());
        state.next += 1;
        state.guests.insert(number, Entry { name, waker: Arc::clone(&waker), stage });
        Guest { gate: self.clone(), number, waker }
    }

    /// A request that is let through, if the gate is open. While it lasts, the gate is not closed without
    /// having waited for it.
    pub fn enter(&self, what: &str) -> Option<Visit> {
        let mut state = self.state();
        // Looked at under the lock: whatever closes the gate sees this one afterwards.
        if self.is_closed() {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.visits.insert(number, what.to_owned());
        drop(state);
        Some(Visit { gate: self.clone(), number })
    }

    /// Waits for a connection as long as the gate is open, or for a client of this protocol that waits to be
    /// taken up.
    pub(crate) async fn next<T>(&self, protocol: &str, accept: impl Future<Output = T>) -> Next<T> {
        let mut changes = self.0.changes.subscribe();
        let mut accept = pin!(accept);
        loop {
            changes.mark_unchanged();
            if let Some((parked, guest)) = self.take_handed(protocol) {
                return Next::Handed(parked, guest);
            }
            let is_open = !self.is_closed();
            tokio::select! {
                biased;
                // It is told for as long as the gate is there.
                _ = changes.changed() => {}
                came = &mut accept, if is_open => return Next::Came(came),
            }
        }
    }

    /// Waits for something as long as the gate is open.
    pub async fn while_open<T>(&self, wanted: impl Future<Output = T>) -> T {
        let mut changes = self.0.changes.subscribe();
        let mut wanted = pin!(wanted);
        loop {
            changes.mark_unchanged();
            let is_open = !self.is_closed();
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                came = &mut wanted, if is_open => return came,
            }
        }
    }

    /// All clients of this protocol that wait to be taken up.
    pub(crate) fn take_all_handed(&self, protocol: &str) -> Vec<(Parked, Guest)> {
        std::iter::from_fn(|| self.take_handed(protocol)).collect()
    }

    /// It is a guest from the moment on at which it waits no more, so that a gate that closes misses none.
    fn take_handed(&self, protocol: &str) -> Option<(Parked, Guest)> {
        let mut state = self.state();
        let at = state.handed.iter().position(|parked| parked.told.protocol == protocol)?;
        let parked = state.handed.remove(at)?;
        let guest = self.add(&mut state, parked.told.volume.clone(), Stage::Served);
        Some((parked, guest))
    }

    /// Has clients taken up by their protocols.
    pub fn hand_in(&self, clients: Vec<Parked>) {
        self.state().handed.extend(clients);
        self.0.changes.send_replace(());
    }

    /// Closes it, and waits until all guests are at a boundary and all visits are over. Blocks the thread.
    ///
    /// # Errors
    /// The guests and visits that were not there within the limit. The gate is open again then.
    pub fn close(&self, limit: Duration) -> Result<Closed, Vec<String>> {
        let began = Instant::now();
        let mut state = self.state();
        self.0.is_closed.store(true, Ordering::SeqCst);
        self.0.changes.send_replace(());
        state.guests.values().for_each(|guest| guest.waker.wake());
        let closed = Closed { gate: self.clone(), opens: true };
        loop {
            let is_awaited = |guest: &Entry| match guest.stage {
                Stage::New => began.elapsed() < NEWCOMERS_LIMIT,
                Stage::Served => true,
                Stage::Parked(..) | Stage::Leaving => false,
            };
            let mut awaited = state.guests.values().filter(|guest| is_awaited(guest)).peekable();
            if awaited.peek().is_none() && state.visits.is_empty() {
                drop(state);
                return Ok(closed);
            }
            if began.elapsed() >= limit {
                let late = awaited.filter(|guest| !matches!(guest.stage, Stage::New));
                let mut late: Vec<String> = late.map(|guest| guest.name.clone()).collect();
                late.extend(state.visits.values().cloned());
                late.dedup();
                drop(state);
                drop(closed);
                return Err(late);
            }
            drop(awaited);
            // A newcomer is looked at again when its time is over.
            let wait = NEWCOMERS_LIMIT.min(limit.saturating_sub(began.elapsed()));
            (state, _) = self.0.settled.wait_timeout(state, wait).ignore_poison();
        }
    }

    fn changed(&self) {
        self.0.settled.notify_all();
    }
}

/// A gate that is closed, with all clients at a boundary. It opens again when this is dropped, and they go
/// on, unless they were given away.
#[derive(Debug)]
pub struct Closed {
    gate: Gate,
    opens: bool,
}

impl Closed {
    /// Takes what the clients handed in, and those that were not taken up yet. They still wait.
    pub fn take(&self) -> Vec<Parked> {
        let mut state = self.gate.state();
        let not_taken_up: Vec<Parked> = state.handed.drain(..).collect();
        let parked = state.guests.values_mut().filter_map(|guest| match &mut guest.stage {
            Stage::Parked(parked, _) => parked.take(),
            Stage::New | Stage::Served | Stage::Leaving => None,
        });
        parked.chain(not_taken_up).collect()
    }

    /// Ends the tasks that served the clients, for other tasks to go on, and waits for their ends, not for
    /// long. The gate stays closed.
    pub fn give_away(mut self) {
        self.opens = false;
        let mut state = self.gate.state();
        for guest in state.guests.values_mut().filter(|guest| matches!(guest.stage, Stage::Parked(..))) {
            // Without the other end, it leaves.
            guest.stage = Stage::Leaving;
        }
        let are_leaving =
            |state: &mut State| state.guests.values().any(|guest| matches!(guest.stage, Stage::Leaving));
        let waited = self.gate.0.settled.wait_timeout_while(state, LEAVING_LIMIT, are_leaving);
        drop(waited.ignore_poison());
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        if self.opens {
            self.gate.open();
        }
    }
}

/// A connection of a client.
#[derive(Debug)]
pub struct Guest {
    gate: Gate,
    number: u64,
    waker: Arc<AtomicWaker>,
}

impl Guest {
    fn change(&self, act: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.gate.state().guests.get_mut(&self.number) {
            act(entry);
        }
        self.gate.changed();
    }

    /// It has an export from now on.
    pub fn is_served(&self, name: impl Into<String>) {
        self.change(|entry| (entry.name, entry.stage) = (name.into(), Stage::Served));
    }

    /// Whether it is to come to a boundary. If not, the task is woken when it is.
    pub fn is_to_park(&self, context: &Context<'_>) -> bool {
        if self.gate.is_closed() {
            return true;
        }
        self.waker.register(context.waker());
        self.gate.is_closed()
    }

    /// Waits until it is to come to a boundary.
    pub async fn asked_to_park(&self) {
        poll_fn(|context| if self.is_to_park(context) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Waits at a boundary. Whether it is to go on; else what was handed in goes on elsewhere. A client that
    /// cannot be handed over hands in nothing, and ends then.
    pub async fn park(&self, parked: Option<Parked>) -> bool {
        let (go_on, goes_on) = oneshot::channel();
        {
            let mut state = self.gate.state();
            // It may have opened since this guest was asked.
            if !self.gate.is_closed() {
                return true;
            }
            if let Some(entry) = state.guests.get_mut(&self.number) {
                entry.stage = Stage::Parked(parked, go_on);
            }
        }
        self.gate.changed();
        goes_on.await.is_ok()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.gate.state().guests.remove(&self.number);
        self.gate.changed();
    }
}

/// A request that goes on.
#[derive(Debug)]
pub struct Visit {
    gate: Gate,
    number: u64,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.gate.state().visits.remove(&self.number);
        self.gate.changed();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::task::Waker;

    use futures_util::FutureExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_guest_that_parks_when_the_gate_has_opened_goes_on() {
        let gate = Gate::closed();
        let guest = gate.guest("late");
        guest.is_served("late");
        let mut early = Box::pin(guest.park(None));
        assert_eq!((&mut early).now_or_never(), None);
        gate.open();
        assert_eq!(early.now_or_never(), Some(true), "it was parked without anyone to let it go on");
        assert_eq!(guest.park(None).now_or_never(), Some(true), "it parks after the opening");
    }

    #[test]
    fn a_client_that_is_handed_in_is_not_missed_by_a_gate_that_closes() {
        let gate = Gate::default();
        gate.hand_in(vec![parked("nbd")]);
        let closed = gate.close(LIMIT).unwrap();
        assert_eq!(closed.take().len(), 1, "it was not taken up");
        drop(closed);
        gate.hand_in(vec![parked("nbd")]);
        let (_, guest) = gate.take_handed("nbd").unwrap();
        assert!(gate.close(Duration::ZERO).is_err(), "it is taken up and not at a boundary");
        drop(guest);
        assert!(gate.close(LIMIT).is_ok());
    }

    fn parked(protocol: &str) -> Parked {
        let socket = File::open("/dev/null").unwrap().into();
        Parked { socket, told: Told { protocol: protocol.into(), ..Told::default() }, bytes: vec![7] }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// A client that parks when it is asked to. Whether it was to go on.
    fn client(gate: &Gate) -> std::thread::JoinHandle<bool> {
        let guest = gate.guest("new");
        guest.is_served("a client");
        std::thread::spawn(move || {
            runtime().block_on(async {
                guest.asked_to_park().await;
                guest.park(Some(parked("one"))).await
            })
        })
    }

    #[test]
    fn clients_go_on_when_the_gate_opens_again() {
        let gate = Gate::default();
        let clients = [client(&gate), client(&gate)];
        let closed = gate.close(LIMIT).unwrap();
        assert!(gate.is_closed() && gate.enter("a request").is_none());
        drop(closed);
        assert!(!gate.is_closed() && gate.enter("a request").is_some());
        assert_eq!(clients.map(|client| client.join().unwrap()), [true, true]);
    }

    #[test]
    fn clients_that_are_given_away_are_taken_up_elsewhere_once() {
        let gate = Gate::default();
        let client = client(&gate);
        let closed = gate.close(LIMIT).unwrap();
        let given = closed.take();
        assert_eq!((given.len(), closed.take().len()), (1, 0));
        closed.give_away();
        assert!(!client.join().unwrap());
        let there = Gate::closed();
        there.hand_in(given);
        runtime().block_on(async {
            assert!(there.next("other", std::future::ready(())).now_or_never().is_none(), "it is closed");
            let Next::Handed(parked, _guest) = there.next("one", std::future::ready(())).await else {
                panic!()
            };
            assert_eq!(parked.bytes, [7]);
            there.open();
            assert!(matches!(there.next("one", std::future::ready(5)).await, Next::Came(5)));
        });
    }

    #[test]
    fn what_does_not_come_to_a_boundary_is_named_and_the_gate_opens() {
        let gate = Gate::default();
        let parks = client(&gate);
        let hung = gate.guest("new");
        hung.is_served("a hung one");
        let visit = gate.enter("a long request").unwrap();
        let late = gate.close(Duration::from_millis(1)).unwrap_err();
        assert!(late.iter().any(|name| name == "a hung one"), "{late:?}");
        assert!(late.iter().any(|name| name == "a long request"), "{late:?}");
        assert!(!gate.is_closed());
        drop((hung, visit));
        // A client that was too slow for the first time parks the second time.
        drop(gate.close(LIMIT).unwrap());
        assert!(parks.join().unwrap());
    }

    #[test]
    fn a_newcomer_does_not_keep_the_gate_for_long() {
        let gate = Gate::default();
        let _silent = gate.guest("a newcomer");
        assert!(gate.close(LIMIT).is_ok());
    }

    #[test]
    fn a_guest_is_woken_when_the_gate_closes() {
        let gate = Gate::default();
        let guest = gate.guest("one");
        assert!(!guest.is_to_park(&Context::from_waker(Waker::noop())));
        drop(guest);
        let _closed = gate.close(LIMIT).unwrap();
        let late = gate.guest("one that was just accepted");
        assert!(late.is_to_park(&Context::from_waker(Waker::noop())));
    }
}
