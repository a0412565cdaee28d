//! Group commit.
//!
//! # The idea
//! At any time at most one *batch* is being written; callers that want stability meanwhile become part of the
//! next batch. When a batch is done, one of the callers that wait for the next takes all their notes and
//! writes them, while the others wait for the same future. Any of them that is polled drives the future, so
//! that it continues when one of them gives up. A batch without callers rests until the next commit, or until
//! the sync of the group in which it allocated blocks.
//!
//! A batch plans its blocks, allocates all missing ones in the open group, writes them side by side and
//! flushes once. Most batches have a single block, which is written durably instead.
//!
//! Callers that waited for a batch usually want the next one too, a moment later. If a caller started the
//! next batch without them, they would wait for two batches. So a caller lets others go first, a few times,
//! while fewer callers want the next batch than were in the last one or wanted the next when that was done.
//!
//! When the log cannot be used (no chain yet, no space, a failed device, more data than is worth writing
//! twice), the outcome is a group to wait for.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use device::IoBuf;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, try_join_all};
use ondisk::blkptr::Blkptr;
use ondisk::zil::ChainSeed;
use ondisk::{ObjectId, Txg};

use super::backing::{Fetched, Written};
use super::chain::{LogBlock, State};
use super::itx::{Noted, Scope, What};
use super::plan::{self, MAX_BLOCK_BYTES, Part, Planned};
use super::{Inner, lock};
use crate::error::{Error, Result};
use crate::txg::Tx;
use crate::vdev::read::yield_now;
use crate::waits;

/// The number of blocks of a batch whose bytes are in memory at once.
const WAVE_BLOCKS: usize = 32;

/// A batch of at least this size is not logged if it is the greater part of the dirty data, and they are
/// encoded quickly: its group is committed instead.
const WORTH_A_GROUP_BYTES: u64 = 8 << 20;

/// A batch of at least this size is never logged.
const MAX_BATCH_BYTES: u64 = 64 << 20;

/// How many times a caller that could start a batch lets others go first.
const TURNS_FOR_OTHERS: usize = 8;

/// The outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It is in the log.
    Stable,
    /// It will be stable when this group is committed.
    Wait(Txg),
}

/// A batch, as its waiters see it.
#[derive(Debug, Default)]
struct Batch {
    outcome: OnceLock<Outcome>,
}

/// The batch being written, and the scope of the next one.
#[derive(Debug, Default)]
pub(super) struct Groups {
    next: Arc<Batch>,
    wanted: Scope,
    /// How many callers wait for the next batch, and how many may soon.
    waiting: usize,
    expected: usize,
    running: Option<Shared<BoxFuture<'static, ()>>>,
}

impl Inner {
    pub(super) async fn commit(self: &Arc<Self>, scope: Scope) -> Result<()> {
        self.count(|zil| zil.zil_commit_count.bump());
        let batch = {
            let mut groups = lock(&self.groups);
            groups.wanted.add(scope);
            groups.waiting += 1;
            Arc::clone(&groups.next)
        };
        let mut turns = TURNS_FOR_OTHERS;
        let outcome = loop {
            let running = {
                let mut groups = lock(&self.groups);
                if let Some(outcome) = batch.outcome.get() {
                    break *outcome;
                }
                match &groups.running {
                    Some(running) => Some(running.clone()),
                    None if groups.waiting < groups.expected && turns > 0 => None,
                    None => Some(self.begin(&mut groups)),
                }
            };
            match running {
                Some(running) => waits::noting("the intent log", running).await,
                None => {
                    turns -= 1;
                    yield_now().await;
                }
            }
        };
        match outcome {
            Outcome::Stable => Ok(()),
            Outcome::Wait(txg) => self.txgs.wait_synced(txg).await,
        }
    }

    /// Starts the next batch.
    fn begin(self: &Arc<Self>, groups: &mut Groups) -> Shared<BoxFuture<'static, ()>> {
        let members = std::mem::take(&mut groups.waiting);
        let batch = std::mem::take(&mut groups.next);
        let scope = std::mem::take(&mut groups.wanted);
        let notes = {
            let mut pending = lock(&self.pending);
            pending.forget(self.txgs.synced_txg());
            pending.take(&scope)
        };
        let inner = Arc::clone(self);
        let running = async move {
            let outcome = inner.log(notes).await;
            let mut groups = lock(&inner.groups);
            groups.expected = members + groups.waiting;
            let _ = batch.outcome.set(outcome);
            groups.running = None;
        };
        groups.running.insert(running.boxed().shared()).clone()
    }

    async fn log(&self, notes: Vec<Noted>) -> Outcome {
        let newest = notes.iter().map(|noted| noted.txg).max().unwrap_or(Txg::NONE);
        if !notes.is_empty() {
            self.count(|zil| zil.zil_commit_writer_count.bump());
        }
        let outcome =
            match notes.is_empty() {
                true => Ok(Outcome::Stable),
                // Other callers wait for this batch: they must learn that it ended, however it ended.
                false => AssertUnwindSafe(self.log_notes(notes, newest)).catch_unwind().await.unwrap_or_else(
                    |_| Err(Error::Suspended("writing the intent log ended with a panic".to_owned())),
                ),
            };
        let mut chain = lock(&self.chain);
        chain.in_flight = None;
        let outcome = outcome.unwrap_or_else(|error| {
            tracing::warn!(objset = %self.backing.objset(), %error, "the intent log cannot be written");
            self.count(|zil| zil.zil_commit_error_count.bump());
            chain.fail();
            Outcome::Wait(newest)
        });
        if let Outcome::Wait(_) = outcome {
            self.count(|zil| zil.zil_commit_stall_count.bump());
            chain.unlogged = chain.unlogged.max(newest);
        }
        let unlogged = chain.unlogged;
        match outcome {
            Outcome::Wait(txg) => Outcome::Wait(txg.max(unlogged)),
            Outcome::Stable if unlogged > self.txgs.synced_txg() => Outcome::Wait(unlogged),
            Outcome::Stable => Outcome::Stable,
        }
    }

    async fn log_notes(&self, notes: Vec<Noted>, newest: Txg) -> Result<Outcome> {
        let (end, state, unlogged) = {
            let mut chain = lock(&self.chain);
            (chain.end(self.txgs.synced_txg()), chain.state, chain.unlogged)
        };
        if unlogged > self.txgs.synced_txg() {
            // An earlier change is not in the log, so the log must not have later ones: a replay would apply
            // them alone.
            return Ok(Outcome::Wait(newest));
        }
        let weight = plan::weigh(&notes);
        let Some(end) = end else {
            return match state {
                State::Empty if !self.has_room(weight) => Ok(Outcome::Wait(newest)),
                State::Empty => self.start(weight).await.map(|txg| Outcome::Wait(newest.max(txg))),
                State::Starting(txg) => Ok(Outcome::Wait(newest.max(txg))),
                _ => Ok(Outcome::Wait(newest)),
            };
        };
        let is_most = weight >= WORTH_A_GROUP_BYTES && weight >= self.txgs.dirty_bytes() / 2;
        // A frozen pool commits no groups.
        let is_bulk = is_most && !self.txgs.is_slow() && !self.txgs.is_frozen();
        let unloggable = notes.iter().any(|noted| noted.what == What::Unloggable);
        if is_bulk || unloggable || weight >= MAX_BATCH_BYTES || !self.has_room(weight) {
            return Ok(Outcome::Wait(newest));
        }
        let (notes, early) = self.write_early(notes).await?;
        let weight = plan::weigh(&notes);
        let is_whole = self.write(notes, early, end, weight).await?;
        // The change that truncated or removed an object belongs to the open group or an earlier one.
        Ok(if is_whole { Outcome::Stable } else { Outcome::Wait(self.txgs.open_txg()) })
    }

    /// Whether the pool has space for a batch of this many bytes, and for the block that waits after it.
    fn has_room(&self, weight: u64) -> bool {
        self.backing.has_room(weight.saturating_add(MAX_BLOCK_BYTES as u64))
    }

    /// Begins a chain: its header is on disk with the returned group.
    async fn start(&self, weight: u64) -> Result<Txg> {
        let tx = self.txgs.hold()?;
        let bytes = lock(&self.chain).predict(usize::try_from(weight).unwrap_or(usize::MAX / 2));
        let bp = self.backing.allocate(tx.txg(), bytes).await?;
        let seed =
            ChainSeed { guid: [self.env.random(), self.env.random()], objset: self.backing.objset(), seq: 1 };
        let bp = with_seed(&bp, &seed)?;
        lock(&self.chain).start(bp, tx.txg());
        self.make_dirty(&tx);
        Ok(tx.txg())
    }

    /// Makes the object set dirty in the group of `tx`, so that [`Inner::sync`] is called for it.
    pub(super) fn make_dirty(&self, tx: &Tx) {
        let header = lock(&self.chain).dirty(tx.txg());
        self.backing.set_header(tx, &header);
    }

    /// Writes a batch, and flushes its blocks that were written `early` with it. Returns false when the log
    /// lacks data of it, because of a change that is not in the batch.
    async fn write(&self, notes: Vec<Noted>, early: Vec<Blkptr>, end: LogBlock, weight: u64) -> Result<bool> {
        let is_whole = AtomicBool::new(true);
        let planned = plan::plan(notes, end.bp.psize().get() as usize);
        let pointers = self.extend(&planned, end.bp, weight).await?;
        let mut seq = lock(&self.chain).seq;
        let links = pointers.iter().zip(pointers.iter().skip(1));
        let is_alone = planned.len() == 1 && early.is_empty();
        let mut blocks = planned.iter().zip(links);
        loop {
            let mut wave = Vec::new();
            for (planned, (bp, next)) in blocks.by_ref().take(WAVE_BLOCKS) {
                let (buf, places) = plan::lay_out(planned, bp.psize().get() as usize, &mut seq);
                wave.push(self.write_block(planned, buf, places, (bp, next), is_alone, &is_whole));
            }
            if wave.is_empty() {
                break;
            }
            try_join_all(wave).await?;
        }
        if !is_alone {
            // All but the last block, which is not written yet.
            let written = pointers.split_last().map_or(&[][..], |(_, written)| written);
            let written: Vec<_> = written.iter().copied().chain(early).collect();
            self.backing.flush(&written).await?;
        }
        let mut chain = lock(&self.chain);
        chain.seq = seq;
        chain.stabilize();
        Ok(is_whole.into_inner())
    }

    /// Allocates the blocks that a plan needs after the waiting one, and the block that will wait next.
    /// Returns the pointers to all.
    async fn extend(&self, planned: &[Planned], end: Blkptr, weight: u64) -> Result<Vec<Blkptr>> {
        // Held until the chain knows all allocations, and no longer: writing may take its time.
        let tx = self.txgs.hold()?;
        let waiting = {
            let mut chain = lock(&self.chain);
            chain.in_flight = Some(tx.txg());
            chain.predict(usize::try_from(weight).unwrap_or(usize::MAX / 2))
        };
        let mut pointers = vec![end];
        let mut last = end;
        let sizes = planned.iter().skip(1).map(Planned::block_bytes).chain([waiting]);
        for (planned, bytes) in planned.iter().zip(sizes) {
            let bp = self.backing.allocate(tx.txg(), bytes).await?;
            let bp = with_seed(&bp, &ChainSeed::of(&last).next())?;
            lock(&self.chain).extend(planned.max_txg, bp, tx.txg());
            pointers.push(bp);
            last = bp;
        }
        self.make_dirty(&tx);
        Ok(pointers)
    }

    async fn write_block(
        &self,
        planned: &Planned,
        mut buf: IoBuf,
        places: Vec<Range<usize>>,
        (bp, next): (&Blkptr, &Blkptr),
        durably: bool,
        is_whole: &AtomicBool,
    ) -> Result<()> {
        let writes = planned.parts.iter().filter_map(|part| match part {
            Part::Write { object, generation, offset, .. } => {
                Some(Written { object: ObjectId(*object), generation: *generation, offset: *offset })
            }
            Part::Record(_) => None,
        });
        for (write, place) in writes.zip(places) {
            let into = buf.get_mut(place.clone()).unwrap_or_default();
            let length = into.len();
            let (left, is_noted) = match self.backing.fetch(write, into).await? {
                Fetched::Bytes(left) => (left, lock(&self.pending).has(write.object.get())),
                Fetched::Gone => (0, true),
            };
            if left < length {
                plan::shorten(&mut buf, &place, left);
                is_whole.fetch_and(!is_noted, Ordering::Relaxed);
            }
        }
        plan::link(&mut buf, planned, next);
        self.backing.encrypt(bp, &mut buf)?;
        plan::seal(&mut buf, bp).map_err(|error| Error::corrupt("log block", error))?;
        self.backing.write(bp, buf, durably).await?;
        self.count_block(planned, bp);
        Ok(())
    }

    pub(super) async fn sync(self: &Arc<Self>, tx: &Tx) -> Result<Vec<Blkptr>> {
        self.settle(tx.txg()).await;
        let (header, freed) = lock(&self.chain).sync(tx.txg());
        for bp in &freed.blocks {
            self.backing.free(tx.txg(), bp).await?;
        }
        if let Some(header) = header {
            self.backing.set_header(tx, &header);
        }
        Ok(freed.clones)
    }

    /// Waits until no batch is in progress that allocated blocks in a group up to `txg`.
    async fn settle(&self, txg: Txg) {
        loop {
            let running = {
                let groups = lock(&self.groups);
                let is_in_flight = lock(&self.chain).in_flight.is_some_and(|group| group <= txg);
                groups.running.clone().filter(|_| is_in_flight)
            };
            match running {
                Some(running) => running.await,
                None => return,
            }
        }
    }

    pub(super) async fn close(&self) -> Result<()> {
        let (needs_replay, is_empty) = {
            let chain = lock(&self.chain);
            let is_empty = chain.state == State::Empty && chain.unlogged <= self.txgs.synced_txg();
            (chain.needs_replay(), is_empty)
        };
        if is_empty && lock(&self.pending).is_empty() {
            return Ok(());
        }
        if needs_replay {
            let open = self.txgs.open_txg();
            return self.txgs.wait_synced(open).await;
        }
        // All notes belong to the group that frees the log, or to one before it.
        self.end().await
    }

    /// Gives the chain up, so that the next one begins wherever there is space then. Its records are
    /// committed with their groups, and so are changes that are logged meanwhile.
    pub(super) async fn leave(&self) -> Result<()> {
        loop {
            let running = {
                let groups = lock(&self.groups);
                match &groups.running {
                    Some(running) => running.clone(),
                    None => {
                        // No batch begins while this lock is held, and batches that begin later find the
                        // chain broken.
                        let tx = self.txgs.hold()?;
                        lock(&self.chain).fail();
                        drop(groups);
                        self.make_dirty(&tx);
                        return Ok(());
                    }
                }
            };
            running.await;
        }
    }

    pub(super) fn settles(&self) -> bool {
        let is_quiet = lock(&self.groups).running.is_none() && lock(&self.pending).is_empty();
        let (state, unlogged) = {
            let chain = lock(&self.chain);
            (chain.state, chain.unlogged)
        };
        let synced = self.txgs.synced_txg();
        let goes_on = match state {
            State::Running => true,
            State::Starting(txg) => txg <= synced,
            _ => false,
        };
        if is_quiet && goes_on {
            // A log that cannot end now will be asked again.
            let _ = self.begin_end();
        }
        is_quiet && state == State::Empty && unlogged <= synced
    }

    /// Frees the whole log in one group and waits for that. Nothing may be noted meanwhile.
    pub(super) async fn end(&self) -> Result<()> {
        let txg = loop {
            let running = {
                let groups = lock(&self.groups);
                match &groups.running {
                    Some(running) => running.clone(),
                    None => break self.begin_end()?,
                }
            };
            running.await;
        };
        self.txgs.wait_synced(txg).await
    }

    /// The group in which the log ends. No batch may be in progress, or begin meanwhile.
    fn begin_end(&self) -> Result<Txg> {
        let tx = self.txgs.hold()?;
        let mut chain = lock(&self.chain);
        if chain.state != State::Empty {
            chain.state = State::Ending(tx.txg());
            drop(chain);
            self.make_dirty(&tx);
        }
        Ok(tx.txg())
    }
}

fn with_seed(bp: &Blkptr, seed: &ChainSeed) -> Result<Blkptr> {
    plan::with_seed(bp, seed).map_err(Error::format("log block pointer"))
}
