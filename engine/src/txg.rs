//! Transaction groups: which one is open, which operations hold it open, how much of it may be dirty.
//!
//! # The idea
//! Every change belongs to one transaction group (*txg*). At any time one group is open: a [`Tx`] holds it
//! open while one operation changes memory, never for longer. To commit it, the sync thread *quiesces* it: it
//! opens the next group for new operations, waits until the last [`Tx`] of the old one is dropped, and writes
//! the group out. At most one group is being written while the next one is open, so that a change is always
//! in one of two places.
//!
//! # Back-pressure
//! An operation that begins a change declares how many bytes it will make dirty, and in which dataset. All
//! dirty bytes, of both groups, share one budget. When it is used up, changes wait, and continue as the sync
//! thread writes dirty bytes out. So the speed of writers follows the speed of the devices smoothly, and
//! memory is bounded. The pool's cache lends the dirty bytes from its budget ([`ArcCache::lend`]) and shrinks
//! by them; pools that share a cache share the bytes that it lends.
//!
//! Each dataset has a lane of its own (`lanes`). A dataset with heavy compression has no more dirty data than
//! the processors encode in two seconds, as measured in its last syncs. A dataset with little dirty data does
//! not wait for others. So a client with few stable writes does not queue behind clients with many writes,
//! and the time for closing a group is bounded however scarce processors are.
//!
//! # Streams
//! A commit is worth its cost when the group has much dirty data ([`Limits::sync_bytes`]): data that are
//! overwritten meanwhile are stored once, and more blocks share indirect blocks. Large new blocks, as in a
//! copy of files, gain neither. If the group waited until it is full, the devices would be idle until then,
//! and a caller that waits at the end would wait for all of it. So a group is also committed when
//! `STREAM_BYTES` of such blocks came fast. If the devices are slower, groups grow all the same: while one is
//! written, the next one fills.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | numbers, holds and waiters; held for a few lines, never across an await | taken alone |

mod due;
mod lanes;
mod limits;
mod opening;
mod room;
mod stream;

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::task::{Poll, Waker};
use std::time::Instant;

use device::IgnorePoison;
use ondisk::{ObjsetId, Txg};

pub(crate) use self::lanes::GUESSED_BYTES_PER_SECOND;
use self::lanes::{Change, Lanes, MOST_DEBT, Verdict, nanos};
use self::limits::LEAST_DIRTY_BYTES;
pub use self::limits::Limits;
pub use self::opening::Opening;
use self::room::Room;
use self::stream::Stream;
use crate::cache::ArcCache;
use crate::error::{Error, Result};
use crate::patience;
use crate::queue::{Place, Queue, Queued};
use crate::stats::{DMU_TX, TxgHistory};
use crate::{tunables, waits};

/// How many times a change without room waits for a group to make some: later changes may take it each time.
const ROOM_TRIES: u32 = 16;

/// The most that is freed of large objects in a group, in parts of `zfs_delete_blocks`.
const PARTS_OF_GROUP: u64 = 8;

/// The lane of changes that belong to no dataset.
const NOBODY: u64 = 0;

/// Holds a transaction group open for one operation, until it is dropped. If a panic drops it, its change may
/// be half done and must not be committed: the pool stops.
#[derive(Debug)]
pub struct Tx {
    txg: Txg,
    /// The lane of its dirty bytes.
    who: u64,
    /// Absent for the sync thread's own changes.
    held: Option<Arc<Txgs>>,
    /// Whether anything was changed in it.
    changed: AtomicBool,
    /// Why its changes are half done, if they are.
    half_done: OnceLock<Error>,
}

impl Tx {
    /// The group to which its changes belong.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// Notes that this many bytes of large new blocks were written.
    pub(crate) fn note_streamed(&self, bytes: u64) {
        if let Some(txgs) = self.held.as_ref().filter(|_| bytes > 0) {
            txgs.note_streamed(self.txg, bytes);
        }
    }

    /// For changes that are part of writing the group out: those of the MOS.
    pub(crate) fn syncing(txg: Txg) -> Self {
        Self { txg, who: NOBODY, held: None, changed: AtomicBool::new(false), half_done: OnceLock::new() }
    }

    fn holding(txg: Txg, who: u64, txgs: &Arc<Txgs>) -> Self {
        let held = Some(Arc::clone(txgs));
        Self { txg, who, held, changed: AtomicBool::new(false), half_done: OnceLock::new() }
    }

    /// Notes that something is changed in it.
    pub(crate) fn note_changed(&self) {
        patience::note_changed();
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Whether anything was changed in it.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }
}

impl Tx {
    /// Notes that a change failed when it was half done: the group must not be committed.
    pub(crate) fn note_half_done(&self, error: Error) {
        self.half_done.get_or_init(|| error);
    }

    /// Why a change is half done, if one is.
    pub(crate) fn half_done(&self) -> Option<&Error> {
        self.half_done.get()
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(txgs) = &self.held {
            if std::thread::panicking() && self.has_changed() {
                txgs.stop(Error::Suspended("a change ended with a panic when it was half made".to_owned()));
            }
            txgs.let_go(self.txg);
        }
    }
}

/// The transaction groups of an open pool.
#[derive(Debug)]
pub struct Txgs {
    limits: Limits,
    opening: Opening,
    state: Mutex<State>,
    /// For the sync thread, which waits without a runtime.
    due: Condvar,
    /// The cache that lends memory for dirty bytes.
    cache: Option<Arc<ArcCache>>,
    /// Whether committing the groups in progress may free space.
    may_gain_room: AtomicBool,
    history: TxgHistory,
}

#[derive(Debug)]
struct State {
    open: Txg,
    synced: Txg,
    /// The number of `Tx`s of the open group, and of the one before it.
    holds: [u64; 2],
    /// The dirty bytes of the open group, and of the one being written.
    dirty: [u64; 2],
    opened_at: Instant,
    /// The stream of the open group.
    stream: Stream,
    /// Blocks of objects that large frees of the open group take ([`Txgs::wait_to_free`]).
    to_free: u64,
    /// The group whose commit a caller waits for.
    wanted: Txg,
    /// The open group has something to write besides dirty data.
    wanted_in_time: bool,
    /// Dirty bytes by dataset, and writers that wait for room.
    lanes: Lanes,
    waiters: Vec<Waker>,
    stopped: Option<Error>,
    /// New changes are refused for now, with this error.
    refused: Option<Error>,
    /// No group is committed any more ([`Txgs::freeze`]).
    frozen: bool,
    ending: bool,
    /// Whether a thread waits for groups to commit.
    has_committer: bool,
}

impl Txgs {
    /// Groups of a pool whose last committed group is `synced`.
    pub fn new(synced: Txg, limits: Limits) -> Arc<Self> {
        Self::of(synced, limits, None)
    }

    /// The same; a cache lends the memory for dirty bytes, which limits them.
    pub fn beside(synced: Txg, limits: Limits, cache: &Arc<ArcCache>) -> Arc<Self> {
        Self::of(synced, limits.within(cache), Some(Arc::clone(cache)))
    }

    fn of(synced: Txg, limits: Limits, cache: Option<Arc<ArcCache>>) -> Arc<Self> {
        let state = State {
            open: Txg(synced.get() + 1),
            synced,
            holds: [0; 2],
            dirty: [0; 2],
            opened_at: Instant::now(),
            stream: Stream::none(),
            to_free: 0,
            wanted: Txg::NONE,
            wanted_in_time: false,
            lanes: Lanes::default(),
            waiters: Vec::new(),
            stopped: None,
            refused: None,
            frozen: false,
            ending: false,
            has_committer: false,
        };
        let history = TxgHistory::default();
        history.opened(state.open);
        Arc::new(Self {
            limits,
            opening: Opening::after(synced),
            state: Mutex::new(state),
            due: Condvar::new(),
            cache,
            may_gain_room: AtomicBool::new(false),
            history,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// The group that is open now.
    pub fn open_txg(&self) -> Txg {
        self.state().open
    }

    /// The opening of the pool that these groups belong to.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// The group that is being written, or the open one if none is.
    fn next_to_commit(&self) -> Txg {
        Txg(self.state().synced.get() + 1)
    }

    /// The last committed group.
    pub fn synced_txg(&self) -> Txg {
        self.state().synced
    }

    /// The last groups, and how long each was in which state.
    pub fn history(&self) -> &TxgHistory {
        &self.history
    }

    /// Dirty bytes of all groups.
    pub fn dirty_bytes(&self) -> u64 {
        self.state().dirty.iter().sum()
    }

    /// Like [`Self::begin_of`], for a change that belongs to no dataset.
    pub async fn begin(self: &Arc<Self>, bytes: u64) -> Result<Tx> {
        self.begin_of(ObjsetId(NOBODY), bytes).await
    }

    /// Holds the open group for an operation that makes `bytes` of a dataset dirty, as soon as there is room
    /// for them. The bytes count as dirty until the group is written, or the sync thread subtracts them.
    pub async fn begin_of(self: &Arc<Self>, dataset: ObjsetId, bytes: u64) -> Result<Tx> {
        let who = dataset.get();
        let lane = Lane { txgs: self, who };
        let mut place = Place::new(&lane);
        let mut waited = None;
        let txg = poll_fn(|context| {
            let mut state = self.state();
            if let Some(error) = state.stopped.as_ref().or(state.refused.as_ref()) {
                let is_stopped = state.stopped.is_some();
                if is_stopped { &DMU_TX.dmu_tx_error } else { &DMU_TX.dmu_tx_suspended }.bump();
                return Poll::Ready(Err(error.clone()));
            }
            let is_first = place.is_first(&state.lanes.of(who).queue);
            let most = self.dirty_limit();
            let dirty = state.dirty.iter().sum();
            let is_committed = state.has_committer;
            // Other pools take of the same budget: what was checked is claimed, or checked again.
            let verdict = loop {
                let room = self.room(&state, bytes);
                let Room { fits, fits_over, lent_bytes } = room;
                let change = Change { who, bytes, is_first, fits, fits_over, dirty, most, is_committed };
                let verdict = state.lanes.judge(change);
                if verdict != Verdict::Go || self.try_lend(bytes, lent_bytes) {
                    break verdict;
                }
            };
            if verdict == Verdict::Go {
                if place.leave(&mut state.lanes.of(who).queue) {
                    state.lanes.of(who).queue.wake_first();
                }
                if is_first {
                    state.lanes.first_left(who);
                }
                state.holds[0] += 1;
                let is_first = state.dirty[0] == 0 && bytes > 0;
                state.dirty[0] += bytes;
                state.lanes.change(who, 0, bytes, 0);
                if is_first || self.is_full(&state) {
                    self.due.notify_all();
                }
                return Poll::Ready(Ok(state.open));
            }
            if state.frozen {
                return Poll::Ready(Err(frozen()));
            }
            if waited.is_none() {
                count_wait(verdict, dirty > most);
            }
            waited = Some(verdict);
            waits::note("dirty data that are being written");
            place.wait(&mut state.lanes.of(who).queue, context.waker());
            self.due.notify_all();
            Poll::Pending
        });
        let tx = Tx::holding(txg.await?, who, self);
        DMU_TX.dmu_tx_assigned.bump();
        if let Some(cache) = self.cache.as_ref().filter(|_| bytes > 0) {
            cache.make_room_for_lent(bytes);
        }
        Ok(tx)
    }

    /// Like [`Self::begin_of`], for a change whose dirty bytes depend on the group: for a given group,
    /// `dirtied` returns the blocks that the change makes newly dirty, and how many bytes of data they are.
    /// `require` fails when the held group has no room for the change. As long as groups in progress may free
    /// space, it waits for them: for the one that is being written, and for the open one if none is, so that
    /// the open one is not committed with the little that fits beside another.
    pub async fn begin_dirtying<D>(
        self: &Arc<Self>,
        dataset: ObjsetId,
        dirtied: impl Fn(Txg) -> (D, u64),
        require: impl Fn(Txg, D) -> Result<()>,
    ) -> Result<Tx> {
        for _ in 1..ROOM_TRIES {
            match self.try_begin_dirtying(dataset, &dirtied, &require).await {
                Err(Error::NoSpace(_)) if self.may_gain_room() => {}
                begun => return begun.inspect_err(count_refused),
            }
            self.wait_synced(self.next_to_commit()).await?;
        }
        self.try_begin_dirtying(dataset, &dirtied, &require).await.inspect_err(count_refused)
    }

    async fn try_begin_dirtying<D>(
        self: &Arc<Self>,
        dataset: ObjsetId,
        dirtied: impl Fn(Txg) -> (D, u64),
        require: impl Fn(Txg, D) -> Result<()>,
    ) -> Result<Tx> {
        let (_, mut expected) = dirtied(self.open_txg());
        loop {
            let tx = self.begin_of(dataset, expected).await?;
            // A change that waited may begin in a later group, in which none of the blocks is dirty.
            let (all, bytes) = dirtied(tx.txg());
            if let Err(error) = require(tx.txg(), all) {
                self.make_less_dirty(&tx, expected);
                return Err(error);
            }
            if self.try_make_dirty(&tx, bytes.saturating_sub(expected)) {
                return Ok(tx);
            }
            // Then it waits for room for all of them, which is as much as there can be.
            self.make_less_dirty(&tx, expected);
            expected = bytes;
        }
    }

    /// Whether the open group has enough dirty data for its commit.
    fn is_full(&self, state: &State) -> bool {
        state.dirty[0] >= self.sync_limit() || state.lanes.open_debt() >= nanos(MOST_DEBT) / 4
    }

    /// Whether encoding the dirty data will take the processors a good part of a second, so that waiting for
    /// a group is worse than writing twice.
    pub(crate) fn is_slow(&self) -> bool {
        self.state().lanes.is_slow()
    }

    /// The bytes of a dataset that are encoded in a second, if the dataset is slow.
    pub(crate) fn pace(&self, dataset: ObjsetId) -> Option<u64> {
        self.state().lanes.pace(dataset.get())
    }

    /// Sets the bytes of a dataset that are encoded in a second; `None` means no limit.
    pub(crate) fn set_pace(&self, dataset: ObjsetId, bytes_per_second: Option<u64>) {
        let mut state = self.state();
        state.lanes.set_pace(dataset.get(), bytes_per_second);
        state.lanes.wake_all();
        if self.is_full(&state) {
            self.due.notify_all();
        }
    }

    /// Holds the open group for an operation that makes nothing dirty and must not wait behind those that do:
    /// the intent log's allocations.
    pub(crate) fn hold(self: &Arc<Self>) -> Result<Tx> {
        let mut state = self.state();
        if let Some(error) = &state.stopped {
            return Err(error.clone());
        }
        state.holds[0] += 1;
        Ok(Tx::holding(state.open, NOBODY, self))
    }

    /// Whether an operation may still make changes in a group before `txg`. Once it is false, it stays so.
    pub(crate) fn is_held_before(&self, txg: Txg) -> bool {
        let state = self.state();
        state.open <= txg && state.holds[1] > 0
    }

    fn note_streamed(&self, txg: Txg, bytes: u64) {
        let mut state = self.state();
        if txg == state.open {
            state.stream.note(bytes, Instant::now());
            if state.stream.is_due() {
                self.due.notify_all();
            }
        }
    }

    fn let_go(&self, txg: Txg) {
        let mut state = self.state();
        let index = usize::from(txg != state.open);
        state.holds[index] -= 1;
        if index == 1 && state.holds[1] == 0 {
            state.wake_all();
            self.due.notify_all();
        }
    }

    /// Notes that `bytes` of a dataset, of the group being written, are written.
    pub(crate) fn written(&self, dataset: ObjsetId, bytes: u64) {
        let mut state = self.state();
        let written = bytes.min(state.dirty[1]);
        state.dirty[1] -= written;
        state.lanes.change(dataset.get(), 1, 0, written);
        self.give_back(written);
        state.lanes.wake_all();
    }

    /// Notes that this many bytes are no longer dirty.
    fn give_back(&self, bytes: u64) {
        if let Some(cache) = &self.cache {
            cache.take_back(bytes);
        }
    }

    /// Waits until `txg` is committed, and requests its commit.
    pub async fn wait_synced(&self, txg: Txg) -> Result<()> {
        poll_fn(|context| {
            let mut state = self.state();
            if state.synced >= txg {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = &state.stopped {
                return Poll::Ready(Err(error.clone()));
            }
            if state.frozen {
                return Poll::Ready(Err(frozen()));
            }
            state.wanted = state.wanted.max(txg);
            waits::note("the commit of a transaction group");
            state.waiters.push(context.waker().clone());
            self.due.notify_all();
            Poll::Pending
        })
        .await
    }

    /// Waits, before a change begins that frees about this many blocks of an object, until the open group has
    /// room for them beside those that it frees already. A group with none takes any number.
    pub(crate) async fn wait_to_free(&self, blocks: u64) -> Result<()> {
        let most = tunables::ZFS_DELETE_BLOCKS.get().saturating_mul(PARTS_OF_GROUP);
        loop {
            let open = {
                let mut state = self.state();
                let all = state.to_free.saturating_add(blocks);
                if state.to_free == 0 || all <= most {
                    state.to_free = all;
                    return Ok(());
                }
                state.open
            };
            self.wait_synced(open).await?;
        }
    }

    /// Whether the commit of the groups in progress may free space.
    pub fn may_gain_room(&self) -> bool {
        self.may_gain_room.load(Ordering::Acquire)
    }

    /// See [`Txgs::may_gain_room`].
    pub(crate) fn set_may_gain_room(&self, may: bool) {
        self.may_gain_room.store(may, Ordering::Release);
    }

    /// Requests the commit of the open group.
    pub fn kick(&self) {
        let mut state = self.state();
        state.wanted = state.wanted.max(state.open);
        self.due.notify_all();
    }

    /// The most dirty bytes.
    fn dirty_limit(&self) -> u64 {
        match tunables::ZFS_DIRTY_DATA_MAX.given() {
            None | Some(0) => self.limits.dirty_bytes,
            Some(bytes) => bytes.max(LEAST_DIRTY_BYTES),
        }
    }

    /// With this many dirty bytes the open group is committed before its time is over.
    fn sync_limit(&self) -> u64 {
        let (most, percent) = (&tunables::ZFS_DIRTY_DATA_MAX, &tunables::ZFS_DIRTY_DATA_SYNC_PERCENT);
        match (most.given(), percent.given()) {
            (None, None) => self.limits.sync_bytes,
            _ => self.dirty_limit() / 100 * percent.get(),
        }
    }

    /// Closes the open group, opens the next one, and waits until no operation holds the closed one. The
    /// group before it must be committed.
    ///
    /// # Errors
    /// Nothing can be committed any more. Operations that hold the closed group may go on waiting in vain.
    pub(crate) async fn quiesce(&self) -> Result<Txg> {
        let (txg, dirty) = {
            let mut state = self.state();
            debug_assert_eq!(state.synced.get() + 1, state.open.get(), "one group is written at a time");
            let txg = state.open;
            state.open = Txg(txg.get() + 1);
            state.holds = [0, state.holds[0]];
            state.dirty = [0, state.dirty[0]];
            state.wanted_in_time = false;
            state.lanes.close_group();
            state.opened_at = Instant::now();
            state.stream = Stream::none();
            state.to_free = 0;
            (txg, state.dirty[1])
        };
        self.history.closed(txg, dirty);
        self.history.opened(Txg(txg.get() + 1));
        poll_fn(|context| {
            let mut state = self.state();
            if let Some(error) = &state.stopped {
                return Poll::Ready(Err(error.clone()));
            }
            if state.holds[1] == 0 {
                return Poll::Ready(Ok(txg));
            }
            state.waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await
        .inspect(|txg| self.history.quiesced(*txg))
    }

    /// Notes that the quiesced group is committed.
    pub(crate) fn committed(&self, txg: Txg) {
        let mut state = self.state();
        state.synced = txg;
        self.give_back(std::mem::take(&mut state.dirty[1]));
        state.lanes.committed();
        state.lanes.wake_all();
        state.wake_all();
    }

    /// Nothing can be committed any more: all waiting and later callers get `error`.
    pub(crate) fn stop(&self, error: Error) {
        let mut state = self.state();
        state.stopped.get_or_insert(error);
        state.lanes.wake_all();
        state.wake_all();
        self.due.notify_all();
    }

    /// New changes get this error until it is set to `None`. Changes in progress continue.
    pub(crate) fn refuse(&self, error: Option<Error>) {
        let mut state = self.state();
        state.refused = error;
        state.lanes.wake_all();
    }

    /// No group is committed from now on, so that only intent logs grow. Callers that wait for a group get an
    /// error.
    pub(crate) fn freeze(&self) {
        let mut state = self.state();
        state.frozen = true;
        state.lanes.wake_all();
        state.wake_all();
        self.due.notify_all();
    }

    /// Whether `freeze` was called.
    pub fn is_frozen(&self) -> bool {
        self.state().frozen
    }

    /// The reason why nothing can be committed any more.
    pub fn stopped(&self) -> Option<Error> {
        self.state().stopped.clone()
    }

    /// Lets the sync thread end.
    pub(crate) fn end(&self) {
        self.state().ending = true;
        self.due.notify_all();
    }
}

/// Counts a change that is refused for want of space.
fn count_refused(error: &Error) {
    if matches!(error, Error::NoSpace(_) | Error::Quota(_)) {
        DMU_TX.dmu_tx_quota.bump();
    }
}

/// Counts a change that has to wait.
fn count_wait(verdict: Verdict, is_over: bool) {
    DMU_TX.dmu_tx_delay.bump();
    match verdict {
        Verdict::WaitForLane => DMU_TX.dmu_tx_dirty_delay.bump(),
        Verdict::WaitForBytes => DMU_TX.dmu_tx_dirty_throttle.bump(),
        Verdict::Go => {}
    }
    if is_over {
        DMU_TX.dmu_tx_dirty_over_max.bump();
    }
}

/// The error for callers that wait for a group of a frozen pool.
fn frozen() -> Error {
    Error::Suspended(
        "the pool is frozen: nothing is committed until it is exported and imported again".into(),
    )
}

impl Drop for Txgs {
    fn drop(&mut self) {
        self.give_back(self.dirty_bytes());
    }
}

/// The queue of a dataset.
struct Lane<'a> {
    txgs: &'a Txgs,
    who: u64,
}

impl Queued for Lane<'_> {
    fn with_queue(&self, change: impl FnOnce(&mut Queue)) {
        let mut state = self.txgs.state();
        change(&mut state.lanes.of(self.who).queue);
        // Another change may be the first now, and still has to get its turn among the lanes.
        state.lanes.first_left(self.who);
    }
}

impl State {
    fn wake_all(&mut self) {
        for waker in self.waiters.drain(..) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::stream::{STREAM_BYTES, STREAM_BYTES_PER_SECOND};
    use super::*;

    #[test]
    fn a_fast_stream_is_committed_before_the_group_is_full_and_a_slow_one_is_not() {
        const MIB: u64 = 1 << 20;
        let began = Instant::now();
        let after = |rate: u64, pieces: u64| {
            let mut stream = Stream { bytes: 0, began };
            let micros = |piece: u64| Duration::from_micros(piece * MIB * 1_000_000 / rate);
            (0..pieces).for_each(|piece| stream.note(MIB, began + micros(piece)));
            stream
        };
        assert!(after(2 * STREAM_BYTES_PER_SECOND, STREAM_BYTES / MIB).is_due());
        assert!(!after(2 * STREAM_BYTES_PER_SECOND, STREAM_BYTES / MIB - 1).is_due());
        assert!(!after(STREAM_BYTES_PER_SECOND / 2, 10 * STREAM_BYTES / MIB).is_due());
        // A stream that begins after a pause.
        let mut stream = Stream { bytes: 0, began };
        let later = began + Duration::from_secs(3600);
        stream.note(STREAM_BYTES - 1, later);
        assert!(!stream.is_due());
        stream.note(1, later);
        assert!(stream.is_due());
        // The group that was open then is due, once.
        let txgs = Txgs::new(Txg(4), Limits { timeout: Duration::from_secs(3600), ..Limits::default() });
        let tx = txgs.begin(1).now_or_never().unwrap().unwrap();
        tx.note_streamed(STREAM_BYTES);
        drop(tx);
        assert!(txgs.wait_until_due());
        assert_eq!(txgs.quiesce().now_or_never().unwrap().unwrap(), Txg(5));
        assert!(!txgs.state().stream.is_due());
    }

    #[test]
    fn dirty_bytes_are_lent_from_the_cache_until_they_are_written() {
        let cache = Arc::new(ArcCache::new(1 << 20));
        let txgs = Txgs::beside(Txg(3), Limits::default(), &cache);
        drop(txgs.begin(1000).now_or_never().expect("there is room").expect("not stopped"));
        let txg = txgs.quiesce().now_or_never().expect("nobody holds it").expect("not stopped");
        drop(txgs.begin(10).now_or_never().expect("there is room").expect("not stopped"));
        txgs.written(ObjsetId(0), 400);
        assert_eq!(cache.stats().lent_bytes, 610);
        txgs.committed(txg);
        assert_eq!(cache.stats().lent_bytes, 10);
        drop(txgs);
        assert_eq!(cache.stats().lent_bytes, 0);
    }

    #[test]
    fn no_more_is_dirty_than_the_cache_may_lend() {
        let limits = |mib: u64| {
            let limits = Limits::default().within(&ArcCache::new(mib << 20));
            (limits.dirty_bytes >> 20, limits.sync_bytes >> 20)
        };
        assert_eq!(limits(4096), (256, 64));
        assert_eq!(limits(160), (96, 24), "of 120 MiB");
        assert_eq!(limits(1), (12, 3));
    }

    #[test]
    fn a_large_cache_lends_a_quarter() {
        let limits = |mib: u64| {
            let cache = ArcCache::new(mib << 20);
            let limits = Limits::beside(&cache).within(&cache);
            (limits.dirty_bytes >> 20, limits.sync_bytes >> 20)
        };
        assert_eq!(limits(160), (96, 24));
        assert_eq!(limits(512), (256, 64));
        assert_eq!(limits(4096), (1024, 256));
        assert_eq!(limits(32 << 10), (4096, 1024));
    }

    #[test]
    fn pools_share_what_their_cache_lends_and_none_starves() {
        let cache = Arc::new(ArcCache::new(64 << 20));
        let [one, other] = [3, 9].map(|synced| Txgs::beside(Txg(synced), Limits::default(), &cache));
        drop(one.begin(44 << 20).now_or_never().expect("there is room").expect("not stopped"));
        for _ in 0..2 {
            drop(other.begin(8 << 20).now_or_never().expect("16 MiB are its own").expect("not stopped"));
        }
        let mut more = Box::pin(other.begin(1 << 20));
        assert!(more.as_mut().now_or_never().is_none(), "48 MiB are lendable");
        let txg = one.quiesce().now_or_never().expect("nobody holds it").expect("not stopped");
        one.committed(txg);
        assert!(more.as_mut().now_or_never().is_some_and(|begun| begun.is_ok()));
    }

    #[test]
    fn lanes_with_little_take_no_more_than_the_cache_lends() {
        let cache = Arc::new(ArcCache::new(64 << 20));
        let txgs = Txgs::beside(Txg(3), Limits::default(), &cache);
        let began = |dataset| txgs.begin_of(ObjsetId(dataset), 1 << 20).now_or_never();
        // One fills what changes may take that have no need to go before others.
        let filled = (0..100).take_while(|_| began(1).is_some()).count();
        assert!(filled > 32, "{filled} MiB of 48");
        assert!(began(2).is_some(), "there is a rest for others");
        (2..200).for_each(|dataset| drop(began(dataset)));
        assert_eq!(cache.lent_bytes(), cache.lendable_bytes());
    }

    #[test]
    fn a_change_that_needs_more_in_a_later_group_waits_for_it() {
        let cache = Arc::new(ArcCache::new(64 << 20));
        let txgs = Txgs::beside(Txg(3), Limits::default(), &cache);
        drop(txgs.begin(36 << 20).now_or_never().expect("there is room").expect("not stopped"));
        let asked = std::cell::Cell::new(0);
        // It overwrites what is dirty, until it began in a group in which nothing is.
        let dirtied = |_| ((), if asked.replace(asked.get() + 1) == 0 { 1 } else { 16 << 20 });
        let mut change = Box::pin(txgs.begin_dirtying(ObjsetId(2), dirtied, |_, ()| Ok(())));
        assert!(change.as_mut().now_or_never().is_none(), "48 MiB are lendable");
        assert_eq!(cache.lent_bytes(), 36 << 20);
        let txg = txgs.quiesce().now_or_never().expect("nobody holds it").expect("not stopped");
        txgs.committed(txg);
        assert!(change.as_mut().now_or_never().is_some_and(|begun| begun.is_ok()));
        assert_eq!(cache.lent_bytes(), 16 << 20);
    }

    #[test]
    fn those_behind_a_writer_that_gives_up_go_on_in_their_order() {
        let limits = Limits { dirty_bytes: 100, ..Limits::default() };
        let txgs = Txgs::new(Txg(3), limits);
        let filling = txgs.begin(100).now_or_never().expect("there is room").expect("not stopped");
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(txgs.begin(60))).collect();
        for writer in &mut waiting {
            assert!(writer.as_mut().now_or_never().is_none(), "there is no room");
        }
        // The first change gives up; the others still wait, and keep their places when they look again.
        drop(waiting.remove(0));
        for writer in &mut waiting {
            assert!(writer.as_mut().now_or_never().is_none(), "there is no room");
        }
        assert!(txgs.state().lanes.has_waiting());
        drop(filling);
        let txg = txgs.quiesce().now_or_never().expect("nobody holds it").expect("not stopped");
        txgs.committed(txg);
        assert!(waiting[1].as_mut().now_or_never().is_none(), "it is not its turn");
        let first = waiting[0].as_mut().now_or_never().expect("its turn").expect("not stopped");
        assert_eq!(first.txg(), Txg(5));
        assert!(waiting[1].as_mut().now_or_never().is_none(), "there is no room for both");
        drop(first);
        let txg = txgs.quiesce().now_or_never().expect("nobody holds it").expect("not stopped");
        txgs.committed(txg);
        assert!(waiting[1].as_mut().now_or_never().is_some(), "its turn");
        assert!(!txgs.state().lanes.has_waiting());
    }
}
