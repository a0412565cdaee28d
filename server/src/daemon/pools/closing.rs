//! Closing pools in any state.
//!
//! # The idea
//! Closing reverses opening: unmount, deepest filesystem first; refuse if something is in use, unless forced;
//! remove the pool from the list; commit the rest; release the devices. With force, a filesystem that cannot
//! be unmounted delays nothing: it is not served any more, and its data are committed all the same. The
//! pool's devices are released even if a client still refers to the pool, so that other programs can use them
//! at once.
//!
//! Closing waits for devices, which may never answer. So each pool is closed on a thread of its own, in
//! parallel with others, and the caller watches that thread:
//!
//! | observation | action |
//! |---|---|
//! | the pool is suspended, or does not commit any more | it is given up: requests that wait for its devices get an error |
//! | no operation on its devices finished for [`STALL_LIMIT`] | the same; a large commit that makes progress is waited for |
//! | it was given up [`RELEASE_LIMIT`] ago, and the thread still waits | the thread is left behind, the pool leaves the list, and its devices close when their last transfers end |
//!
//! Without force, and as long as the pool is in the list, it is not given up: the closing is cancelled.
//!
//! A pool that was given up is in the state after a crash. Stable data are in the last group or in the intent
//! logs, and are there after the next import.
//!
//! # The end of the process
//! [`Daemon::close_all`] begins it: from then on no pool is opened. Pools that are being opened are waited
//! for, up to [`OPENING_LIMIT`]; pools that are not open by then are left as in a crash too.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Ending::state` | which pools are being opened, and whether any may be; held for a few lines | taken alone |
//! | `Closing::step` | whether it can be cancelled; held for a few lines | taken alone |

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use engine::events::feed::What;
use engine::vdev::release::release;
use objects::lease;
use ondisk::vdev_config::PoolState;

use crate::api::{self, ApiError, ErrorKind};
use crate::daemon::refusals::{refused, suspended};
use crate::daemon::sync_tasks;
use crate::daemon::volumes::clients::Connected;
use crate::daemon::{Daemon, OpenPool, lock};

/// How long nothing may happen on the devices of a pool that is being closed.
const STALL_LIMIT: Duration = Duration::from_secs(30);
/// How long a pool that was given up may take to let its devices go.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// How long the end waits for pools that are being opened.
const OPENING_LIMIT: Duration = Duration::from_secs(10);
/// How often the pools that are being closed are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How a pool is to be closed.
#[derive(Debug, Clone)]
pub(in crate::daemon) struct Order {
    /// Even if it is in use.
    pub force: bool,
    /// The pool's state in its labels from then on.
    pub state: PoolState,
    /// For the history.
    pub command: Option<String>,
    /// Another daemon goes on with the clients of its volumes.
    pub hands_over: bool,
}

impl Order {
    /// The operation, for messages.
    fn doing(&self, pool: &OpenPool) -> String {
        let verb = match self.state {
            PoolState::Destroyed => "destroy",
            _ if self.hands_over => "hand over",
            _ => "export",
        };
        format!("cannot {verb} '{}'", pool.name())
    }

    /// The error about a pool that was given up.
    fn crashed(&self, pool: &OpenPool, why: &str) -> ApiError {
        ApiError::failed(format!(
            "{}: it is closed as after a crash: {why}\n\
             stable data are there when it is imported again",
            self.doing(pool)
        ))
    }
}

/// How far the closing of one pool is.
#[derive(Debug)]
struct Closing(Mutex<Step>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The pool can stay as it is.
    Asking,
    /// It will be closed, one way or the other.
    Final,
    /// It stays.
    CalledOff,
}

impl Closing {
    fn is_called_off(&self) -> bool {
        *lock(&self.0) == Step::CalledOff
    }

    /// Goes on from asking, unless something else came first. Whether it is as wanted.
    fn becomes(&self, wanted: Step) -> bool {
        let mut step = lock(&self.0);
        if *step == Step::Asking {
            *step = wanted;
        }
        *step == wanted
    }
}

/// A pool that is being closed, for its watcher.
struct Watched<'a> {
    open: Arc<OpenPool>,
    order: &'a Order,
    closing: Arc<Closing>,
    thread: Option<JoinHandle<Result<(), ApiError>>>,
    /// Its progress when it last made any, and the time of that.
    progress: (u64, Instant),
    given_up: Option<Instant>,
    outcome: Option<Result<(), ApiError>>,
}

/// Reports that a thread ended, in any way.
struct Ended(Sender<usize>, usize);

impl Drop for Ended {
    fn drop(&mut self) {
        // The watcher may be gone.
        let _ = self.0.send(self.1);
    }
}

impl Watched<'_> {
    /// Makes sure that it ends. True when it has.
    fn look(&mut self) -> bool {
        if self.outcome.is_some() {
            return true;
        }
        if let Some(since) = self.given_up {
            if since.elapsed() > RELEASE_LIMIT {
                self.leave_behind();
            }
            return self.outcome.is_some();
        }
        let progress = self.open.progress();
        if progress != self.progress.0 {
            self.progress = (progress, Instant::now());
        }
        let is_stalled = self.progress.1.elapsed() > STALL_LIMIT;
        let is_suspended = self.open.is_suspended();
        if !is_stalled && !is_suspended {
            return false;
        }
        let seconds = STALL_LIMIT.as_secs();
        if self.closing.becomes(Step::CalledOff) {
            let doing = self.order.doing(&self.open);
            self.outcome = Some(Err(match is_suspended {
                true => suspended(&doing),
                false => ApiError::busy(format!("{doing}: no progress for {seconds} s; force gives it up")),
            }));
            return true;
        }
        if let Some(live) = self.open.live() {
            live.abandon(&format!("no progress on its devices for {seconds} s"));
        }
        self.given_up = Some(Instant::now());
        false
    }

    /// Nothing waits for the thread any more, which may wait for ever.
    fn leave_behind(&mut self) {
        let why = match self.open.live() {
            Some(live) => {
                drop(live.let_go());
                live.txgs().stopped().map(|error| error.to_string())
            }
            None => None,
        };
        let why = why.unwrap_or_else(|| "it is still in use".to_owned());
        self.outcome = Some(Err(self.order.crashed(&self.open, &why)));
    }

    /// The thread ended.
    fn ended(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let ended = thread.join().unwrap_or_else(|_| {
            let doing = self.order.doing(&self.open);
            Err(ApiError::failed(format!("{doing}: closing it ended with a panic")))
        });
        self.outcome.get_or_insert(ended);
    }
}

impl OpenPool {
    /// A number that changes as long as something is done.
    fn progress(&self) -> u64 {
        let mounts = lock(&self.mounts).len() as u64;
        self.live().map_or(0, |live| live.progress()).wrapping_add(mounts)
    }
}

impl Daemon {
    /// Closes pools. Blocks the thread, which is the request's own.
    ///
    /// # Errors
    /// The first pool that is in use, not open, or closed as after a crash. Those before it are closed, those
    /// after it are not.
    pub async fn export(self: &Arc<Self>, request: api::ExportPool) -> Result<Vec<String>, ApiError> {
        let pools = match request.all {
            true => self.open_pools(),
            false => request.pools.iter().map(|name| self.pool(name)).collect::<Result<_, _>>()?,
        };
        let pools = self.inside_out(pools).into_iter().flatten();
        let state = if request.stays_open { PoolState::Active } else { PoolState::Exported };
        let order =
            Order { force: request.force, state, command: request.command.clone(), hands_over: false };
        let mut exported = Vec::new();
        for pool in pools {
            // Hosts that stand by leave it alone: a person took it out of service.
            let state = if request.stays_open { lease::State::Free } else { lease::State::Exported };
            pool.leave_leases(Some(state));
            if let Err(error) = self.close(&pool, &order) {
                pool.leave_leases(Some(lease::State::Free));
                // Devices were detached for it. What still holds the pool is not waited for.
                self.catch_up_idle().await;
                return Err(error);
            }
            if !request.stays_open {
                self.keep_no_more(&pool);
            }
            exported.push(pool.name().to_owned());
        }
        Ok(exported)
    }

    /// Closes all pools by force, side by side, and opens no more: for the end of the process, which does not
    /// wait for devices that do not answer. Blocks the thread.
    ///
    /// # Errors
    /// Pools that were closed as after a crash, now or when this was called before, and why.
    pub fn close_all(self: &Arc<Self>) -> Result<(), ApiError> {
        let mut failed: Vec<String> = self.ending.begin();
        let order = Order { force: true, state: PoolState::Exported, command: None, hands_over: false };
        let groups = self.inside_out(self.open_pools()).into_iter();
        let closed = groups.flat_map(|pools| self.close_side_by_side(pools, &order)).collect::<Vec<_>>();
        // One that is not there any more was closed by a request meanwhile.
        let failures = closed.into_iter().filter_map(Result::err);
        let failures = failures.filter(|error| error.kind != ErrorKind::NotFound);
        failed.extend(failures.map(|error| error.message));
        self.end_agents();
        match self.ending.remember(failed) {
            all if all.is_empty() => Ok(()),
            all => Err(ApiError::failed(all.join("\n"))),
        }
    }

    /// Closes one pool. Blocks the thread.
    pub(in crate::daemon) fn close(
        self: &Arc<Self>,
        pool: &Arc<OpenPool>,
        order: &Order,
    ) -> Result<(), ApiError> {
        self.close_side_by_side(vec![Arc::clone(pool)], order).into_iter().collect()
    }

    pub(in crate::daemon) fn close_side_by_side(
        self: &Arc<Self>,
        pools: Vec<Arc<OpenPool>>,
        order: &Order,
    ) -> Vec<Result<(), ApiError>> {
        let (sender, ends) = mpsc::channel();
        let mut watched: Vec<Watched<'_>> = Vec::with_capacity(pools.len());
        for (index, open) in pools.into_iter().enumerate() {
            let first = if order.force { Step::Final } else { Step::Asking };
            let closing = Arc::new(Closing(Mutex::new(first)));
            let (daemon, pool, step) = (Arc::clone(self), Arc::clone(&open), Arc::clone(&closing));
            let (order_of_thread, ended) = (order.clone(), Ended(sender.clone(), index));
            let close = move || {
                let _ended = ended;
                device::block_on(daemon.close_open(&pool, &order_of_thread, &step))
            };
            let thread = thread::Builder::new()
                .name(format!("close {}", open.name()))
                .stack_size(device::STACK_BYTES)
                .spawn(close);
            let (thread, outcome) = match thread {
                Ok(thread) => (Some(thread), None),
                Err(error) => {
                    let doing = order.doing(&open);
                    (None, Some(Err(ApiError::failed(format!("{doing}: cannot start a thread: {error}")))))
                }
            };
            let progress = (open.progress(), Instant::now());
            watched.push(Watched { open, order, closing, thread, progress, given_up: None, outcome });
        }
        while watched.iter_mut().map(Watched::look).filter(|has_ended| !has_ended).count() > 0 {
            if let Ok(index) = ends.recv_timeout(LOOK_INTERVAL)
                && let Some(pool) = watched.get_mut(index)
            {
                pool.ended();
            }
        }
        for pool in watched.iter().filter(|pool| pool.thread.is_some() && pool.given_up.is_some()) {
            self.forget(&pool.open);
            pool.open.tell(What::Closed);
        }
        watched.into_iter().filter_map(|pool| pool.outcome).collect()
    }

    /// Takes a pool out of the list, and away from those who read its devices.
    fn forget(&self, open: &Arc<OpenPool>) {
        open.holds.close();
        let mut pools = self.pools.write().ignore_poison();
        if pools.get(open.name()).is_some_and(|listed| Arc::ptr_eq(listed, open)) {
            pools.remove(open.name());
        }
        drop(pools);
        self.volume_changes.announce();
    }

    /// Stops serving a pool and closes it. Waits for its devices.
    async fn close_open(
        &self,
        open: &Arc<OpenPool>,
        order: &Order,
        closing: &Closing,
    ) -> Result<(), ApiError> {
        let doing = order.doing(open);
        let live = open.live().filter(|live| !open.is_suspended() && !live.txgs().is_frozen());
        if let (Some(live), Some(command)) = (live, &order.command) {
            let noted = sync_tasks::change(live, Some(command.clone()), |_| async { Ok(()) }).await;
            if let (Err(error), false) = (noted, order.force) {
                return Err(refused(&doing, error));
            }
        }
        if !order.force
            && !order.hands_over
            && order.state == PoolState::Exported
            && let Some(spare) = open.live().and_then(|live| live.shared_spare_in_use())
        {
            let name = open.name();
            return Err(ApiError::busy(format!(
                "{doing}: '{name}' has an active shared spare which could be used by other pools once \
                 '{name}' is exported: {spare}\nuse '-f' to export it all the same"
            )));
        }
        if !order.force && open.receives.are_under_way() {
            return Err(ApiError::busy(format!("{doing}: pool is busy: a stream is being received")));
        }
        open.receives.end();
        let mut changing = open.change().await?;
        if closing.is_called_off() {
            return Err(suspended(&doing));
        }
        let _shares = open.close_all_shares(&doing, order.force)?;
        if !order.force {
            open.require_unused_mounts()
                .map_err(|error| ApiError { message: format!("{doing}: {}", error.message), ..error })?;
        }
        let in_use = open.detach_devices(|_| true, order.force).into_iter().next().filter(|_| !order.force);
        if let Some(error) = in_use {
            return Err(ApiError { message: format!("{doing}: {}", error.message), ..error });
        }
        let has_to_be_free = !order.force && !order.hands_over;
        let connected = if has_to_be_free { open.connected_settled() } else { Vec::new() };
        if let Some(Connected { volume, client }) = connected.first() {
            return Err(ApiError::busy(format!(
                "{doing}: {client} is connected to volume '{volume}'; disconnect it, or force"
            )));
        }
        let changed = self.unmount_all(open, &changing, order.force).await;
        if order.force {
            // What is left behind is not worth the changes that are not committed yet.
            for error in &changed.failed {
                tracing::warn!("{doing}: continues although a filesystem stays mounted: {error}");
            }
            open.abandon_mounts();
        }
        let failed = changed.failed.into_iter().next().filter(|_| !order.force);
        if failed.is_some() || !closing.becomes(Step::Final) {
            // A failed export changes nothing: what could be unmounted is mounted again.
            self.mount_again(open, &changing, changed.done).await;
            return Err(match failed {
                Some(error) => ApiError { message: format!("{doing}: {}", error.message), ..error },
                None => suspended(&doing),
            });
        }
        if !order.hands_over {
            // Before protocols look again for volumes.
            open.fence.leave();
        }
        self.forget(open);
        changing.closed();
        open.disconnect();
        let closed = match open.live() {
            Some(live) => live.close(order.state).await,
            None => Ok(()),
        };
        let devices = open.let_go();
        if closed.is_ok() {
            // They are free for others when the caller is answered.
            release(devices).await;
            let name = if order.state == PoolState::Destroyed { "pool_destroy" } else { "pool_export" };
            open.view().vdevs().reporter().sysevent(name, None, Vec::new());
        }
        open.tell(What::Closed);
        tracing::info!(pool = open.name(), state = ?order.state, forced = order.force, "a pool is closed");
        closed.map_err(|error| order.crashed(open, &error.to_string()))
    }

    /// Whether the end of the process has begun.
    pub(in crate::daemon) fn is_ending(&self) -> bool {
        lock(&self.ending.state).has_begun
    }

    /// Held while a pool is being opened, as long as it is not in the list.
    ///
    /// # Errors
    /// Another one of that name is being opened, or the process is about to end.
    pub(in crate::daemon) fn begin_opening(&self, doing: &str, name: &str) -> Result<Opening<'_>, ApiError> {
        let mut state = lock(&self.ending.state);
        if state.has_begun {
            return Err(ApiError::refused(format!("{doing}: the daemon is about to end")));
        }
        if state.opening.iter().any(|other| other == name) {
            return Err(ApiError::busy(format!("{doing}: a pool of that name is just being opened")));
        }
        state.opening.push(name.to_owned());
        Ok(Opening { ending: &self.ending, name: name.to_owned() })
    }
}

/// The end of the process, as far as pools are concerned.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Ending {
    state: Mutex<EndingState>,
    /// A pool is no longer being opened.
    opened: Condvar,
}

#[derive(Debug, Default)]
struct EndingState {
    has_begun: bool,
    /// Names of pools that are being opened.
    opening: Vec<String>,
    /// The pools that could not be closed in order.
    failed: Vec<String>,
}

/// A pool that is being opened.
pub(in crate::daemon) struct Opening<'a> {
    ending: &'a Ending,
    name: String,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.ending.state);
        if let Some(at) = state.opening.iter().position(|name| *name == self.name) {
            state.opening.swap_remove(at);
        }
        self.ending.opened.notify_all();
    }
}

impl Ending {
    /// From now on no pool is opened. What is said of those that are still being opened after a while.
    fn begin(&self) -> Vec<String> {
        let mut state = lock(&self.state);
        state.has_begun = true;
        let is_opening = |state: &mut EndingState| !state.opening.is_empty();
        let waited = self.opened.wait_timeout_while(state, OPENING_LIMIT, is_opening);
        let (state, _) = waited.ignore_poison();
        let left =
            |name: &String| format!("pool '{name}' was still being opened: that was aborted, as in a crash");
        state.opening.iter().map(left).collect()
    }

    /// Adds to what could not be closed in order. All of it.
    fn remember(&self, failed: Vec<String>) -> Vec<String> {
        let mut state = lock(&self.state);
        for failure in failed {
            if !state.failed.contains(&failure) {
                state.failed.push(failure);
            }
        }
        state.failed.clone()
    }
}
