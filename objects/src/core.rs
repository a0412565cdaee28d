//! A device that is open: reads, writes, commits, checkpoints, compaction.
//!
//! # Who does what
//! All of it runs as tasks of one thread (`tokio::task::spawn_local`), which share the state and never hold
//! it across an `.await`. What waits looks again whenever something has changed.
//!
//! # The life of a write
//! 1. Its regions of the map are loaded, and there is room among the bytes that are not in the store yet.
//! 2. Its bytes go to the end of the segment that is being filled, its entry to the list of the next commit,
//!    and the map says where it is. A segment that is full is sent on its way. The write is done.
//! 3. A flush makes a commit of all entries so far: it waits for the segments among them, and makes the
//!    commit. When that is in the store, the flush is done.
//!
//! # The life of an object
//! It is dead when no sector of the map is in it. A segment is deleted when a commit that says so is in the
//! store. Reads that began before are waited for.
//!
//! Pages of the map and commits are superseded by a checkpoint. They are deleted when the pointers to that
//! are in the store, and a commit that was begun after them is too. So a host that opened the device from an
//! older checkpoint either meets that commit, or looks at its checkpoint once more after it has taken over
//! and finds the pointer. A commit that took over is never deleted.
//!
//! # When the store does not answer
//! Segments and commits are sent until they arrive. What waits for them is told the error after
//! [`Options::patience`]; nothing is lost, and a later flush finds it done. Another host's commit in the
//! place of the own one ends all: [`Error::TakenOver`].

mod checkpoints;
mod commits;
mod compaction;
mod reads;

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::device::StoreUse;
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use crate::bucket::{Bucket, BucketError};
use crate::error::Error;
use crate::format::{
    self, CheckpointNumber, Entry, HEAD_BYTES, Head, Kind, ObjectId, Origin, Place, SECTOR_BYTES, Sequence,
};
use crate::map::Map;
use crate::opening::{self, Found};
use crate::requests::{self, Waits};

/// How a device works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a segment.
    pub segment_bytes: usize,
    /// The most bytes that a commit carries itself.
    pub inline_bytes: usize,
    /// Bytes that were written and are not in the store.
    pub unsent_bytes: usize,
    /// How long a request is tried before an error is told. Writes and flushes wait for a store that is slow
    /// as long as it takes something in each such time.
    pub patience: Duration,
    /// Entries after which a checkpoint is made.
    pub checkpoint_entries: usize,
    /// Commits after which a checkpoint is made.
    pub checkpoint_commits: u64,
    /// The share of what is needed that may be kept without need: at 1.0, the store has twice what is needed.
    pub garbage_share: f64,
    /// Runs of the map in memory, each some 40 bytes.
    pub map_runs: usize,
    /// Gaps between ranges of one object that are read along, in bytes.
    pub gap_bytes: u64,
    /// How often the lease is written; never at zero.
    pub lease_interval: Duration,
    /// The most bytes of a request that several reads are joined to.
    pub joined_bytes: u64,
    /// After which time a range is asked for once more, in case the first request is lost or slow.
    pub hedge: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            inline_bytes: 1 << 20,
            unsent_bytes: 128 << 20,
            patience: Duration::from_secs(30),
            checkpoint_entries: 32 << 10,
            checkpoint_commits: 512,
            garbage_share: 1.0,
            map_runs: 4 << 20,
            gap_bytes: 64 << 10,
            lease_interval: crate::lease::INTERVAL,
            joined_bytes: 2 << 20,
            hedge: Duration::from_secs(2),
        }
    }
}

/// What was done since the device was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that wrote.
    pub puts: u64,
    /// Bytes of those.
    pub put_bytes: u64,
    /// Requests that read.
    pub gets: u64,
    /// Bytes of those.
    pub got_bytes: u64,
    /// Requests that were made once more because the first took long.
    pub hedged: u64,
    /// Objects that were deleted.
    pub deletes: u64,
    /// Bytes that clients wrote.
    pub written_bytes: u64,
    /// Bytes that were moved by compaction.
    pub moved_bytes: u64,
    /// Commits.
    pub commits: u64,
    /// Checkpoints.
    pub checkpoints: u64,
}

/// The segment that is being filled.
#[derive(Debug)]
struct Filling {
    id: ObjectId,
    /// With room for the head.
    data: Vec<u8>,
    entries: Vec<Entry>,
}

/// Everything but what was asked for and is under way.
#[derive(Debug)]
struct State {
    origin: Origin,
    sectors: u64,
    map: Map,
    /// The last commit that is in the store.
    last: Sequence,
    checkpoint: CheckpointNumber,
    /// The commit of that.
    stored: Sequence,
    /// The commit that began this opening; none of a device that is only read.
    epoch: Option<Sequence>,
    count: u64,
    filling: Option<Filling>,
    /// Since the last commit that was begun.
    entries: Vec<Entry>,
    /// Entries ever, and how many of them are in commits that are in the store.
    appended: u64,
    durable: u64,
    /// Objects that are not in the store yet.
    unsent: BTreeMap<ObjectId, Bytes>,
    unsent_bytes: usize,
    is_committing: bool,
    /// For the next checkpoint.
    entries_since: usize,
    commits_since: u64,
    is_checkpointing: bool,
    is_compacting: bool,
    /// Commits of which nothing is needed but their place in the sequence, until a checkpoint is after it.
    /// Those that began an opening are never among them: an owner before may try to make them at any time.
    empty_commits: BTreeSet<Sequence>,
    /// Keys of objects that the last checkpoint supersedes, to be deleted after the next commit.
    superseded: Vec<String>,
    /// Segments that may be deleted, each with the reads that are to end before.
    deletable: Vec<(ObjectId, u64)>,
    is_deleting: bool,
    /// Objects with pages of the map.
    maps: BTreeSet<ObjectId>,
    reads: BTreeSet<u64>,
    next_read: u64,
    /// The last error of what is sent in the background.
    fault: Option<Error>,
    /// When the store took something last.
    went_on: Instant,
    ended: Option<Error>,
    counts: Counts,
}

/// What all tasks share.
#[derive(Debug)]
struct Shared {
    bucket: Arc<dyn Bucket>,
    options: Options,
    size_bytes: u64,
    state: RefCell<State>,
    changed: Notify,
    /// Tasks are to end.
    is_dropped: Cell<bool>,
}

/// A device in an object store, open. It belongs to one thread, within a `LocalSet`; see the module
/// documentation.
#[derive(Debug)]
pub struct Core(Rc<Shared>);

pub(crate) use reads::Read;

impl Drop for Core {
    fn drop(&mut self) {
        self.0.end(Error::Closed);
        self.0.is_dropped.set(true);
    }
}

impl Core {
    pub(crate) fn new(
        bucket: Arc<dyn Bucket>,
        found: Found,
        epoch: Option<Sequence>,
        options: Options,
    ) -> Self {
        let maps = found.map.pages().map(|page| page.id).collect();
        let state = State {
            origin: found.origin,
            sectors: found.size_bytes / SECTOR_BYTES,
            map: found.map,
            last: found.last,
            checkpoint: found.checkpoint,
            stored: found.stored,
            epoch,
            count: 0,
            filling: None,
            entries: Vec::new(),
            appended: 0,
            durable: 0,
            unsent: BTreeMap::new(),
            unsent_bytes: 0,
            is_committing: false,
            entries_since: 0,
            commits_since: found.last.0 - found.stored.0,
            is_checkpointing: false,
            is_compacting: false,
            empty_commits: BTreeSet::new(),
            superseded: Vec::new(),
            deletable: Vec::new(),
            is_deleting: false,
            maps,
            reads: BTreeSet::new(),
            next_read: 0,
            fault: None,
            went_on: Instant::now(),
            ended: None,
            counts: Counts::default(),
        };
        let shared = Shared {
            bucket,
            options,
            size_bytes: found.size_bytes,
            state: RefCell::new(state),
            changed: Notify::new(),
            is_dropped: Cell::new(false),
        };
        Self(Rc::new(shared))
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    /// What was done.
    pub fn counts(&self) -> Counts {
        self.0.state().counts
    }

    /// Bytes that are needed, and bytes of all objects with data.
    pub fn space(&self) -> (u64, u64) {
        self.0.state().space()
    }

    /// The same as the pool counts it.
    pub(crate) fn store_use(&self) -> StoreUse {
        let (counts, (needed_bytes, kept_bytes)) = (self.counts(), self.space());
        StoreUse {
            puts: counts.puts,
            put_bytes: counts.put_bytes,
            gets: counts.gets + counts.hedged,
            got_bytes: counts.got_bytes,
            deletes: counts.deletes,
            written_bytes: counts.written_bytes,
            moved_bytes: counts.moved_bytes,
            needed_bytes,
            kept_bytes,
        }
    }

    /// Who writes it, and the commit that began that; none where it is only read.
    pub(crate) fn opening(&self) -> (Origin, Option<Sequence>) {
        let state = self.0.state();
        (state.origin, state.epoch)
    }

    /// Ends: another host has it.
    pub(crate) fn is_taken_over(&self) {
        self.0.end(Error::TakenOver);
    }

    /// Why it has ended, if it has.
    pub fn ended(&self) -> Option<Error> {
        self.0.state().ended.clone()
    }

    /// Reads `length` bytes at `offset`, which lie within the device. What was never written is zeros.
    ///
    /// # Errors
    /// The store does not answer; the device has ended.
    pub async fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        let (answer, answered) = oneshot::channel();
        reads::read(&self.0, vec![Read { offset, length, answer }]).await;
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Answers several reads, each as of [`Core::read`]. What lies near each other in an object is fetched at
    /// once.
    pub(crate) async fn read_all(&self, reads: Vec<Read>) {
        reads::read(&self.0, reads).await;
    }

    /// Writes whole sectors. It is done when a flush that begins later will make it durable.
    ///
    /// # Errors
    /// As of reads.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        self.0.write(offset, data).await
    }

    /// Whole sectors are no longer needed; they read as zeros.
    ///
    /// # Errors
    /// As of reads.
    pub async fn discard(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.0.discard(offset, length).await
    }

    /// Makes all durable that was written before.
    ///
    /// # Errors
    /// As of reads. What was written is kept, and the next flush tries again.
    pub async fn flush(&self) -> Result<(), Error> {
        self.0.flush().await
    }

    /// Waits until nothing goes on in the background: checkpoints, compaction, deletions.
    pub async fn settle(&self) {
        let is_busy = |state: &State| state.is_checkpointing || state.is_compacting || state.is_deleting;
        while self.ended().is_none() && is_busy(&self.0.state()) {
            self.0.changed.notified().await;
        }
    }
}

impl State {
    fn space(&self) -> (u64, u64) {
        let sum = self.map.sum();
        (sum.live * SECTOR_BYTES, sum.total * SECTOR_BYTES)
    }

    /// The id of the next segment or object of the map.
    fn next_id(&mut self) -> Result<ObjectId, Error> {
        let epoch = self.epoch.ok_or(Error::Closed)?;
        let id = ObjectId::new(epoch, self.count).ok_or(Error::Closed)?;
        self.count += 1;
        Ok(id)
    }
}

impl Shared {
    fn state(&self) -> Ref<'_, State> {
        self.state.borrow()
    }

    fn state_mut(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Ends all, for this reason.
    fn end(&self, why: Error) {
        self.state_mut().ended.get_or_insert(why);
        self.changed.notify_waiters();
    }

    fn check(&self) -> Result<(), Error> {
        self.state().ended.clone().map_or(Ok(()), Err)
    }

    /// The store has taken something.
    fn went_on(state: &mut State) {
        state.fault = None;
        state.went_on = Instant::now();
    }

    /// Waits until something has changed. A store that is slow is waited for as long as it goes on: at most
    /// until `until`, or until it has taken nothing for so long.
    async fn wait(&self, until: Instant) -> Result<(), Error> {
        let until = until.max(self.state().went_on + self.options.patience);
        let late = || Error::Store {
            address: self.bucket.address().to_owned(),
            key: String::new(),
            error: BucketError::Unsure("the store takes too long".into()),
        };
        match timeout_at(until, self.changed.notified()).await {
            Ok(()) => self.check(),
            Err(_) if self.state().went_on + self.options.patience > Instant::now() => self.check(),
            Err(_) => Err(self.state().fault.clone().unwrap_or_else(late)),
        }
    }

    /// Loads the regions of a range. They may be forgotten at the next `.await`.
    async fn load(&self, sector: u64, sectors: u64) -> Result<(), Error> {
        loop {
            let missing = self.state().map.to_load(sector, sectors);
            let Some((region, page)) = missing else { return Ok(()) };
            let read = opening::page_at(&*self.bucket, page, &self.options).await;
            let mut state = self.state_mut();
            state.counts.gets += 1;
            state.counts.got_bytes += u64::from(page.bytes);
            match read {
                Ok(runs) => state.map.load(region, page, runs),
                // Others have loaded it meanwhile, and it has changed: the page is not needed any more.
                Err(_) if state.map.to_load(sector, sectors) != missing => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn write(self: &Rc<Self>, offset: u64, data: Bytes) -> Result<(), Error> {
        let until = Instant::now() + self.options.patience;
        let (sector, sectors) = (offset / SECTOR_BYTES, data.len() as u64 / SECTOR_BYTES);
        loop {
            self.check()?;
            self.load(sector, sectors).await?;
            if self.state().unsent_bytes < self.options.unsent_bytes {
                break;
            }
            self.wait(until).await?;
        }
        self.append(sector, &data)?;
        self.state_mut().counts.written_bytes += data.len() as u64;
        Ok(())
    }

    /// Puts bytes at the end of what is being filled. The regions are loaded.
    fn append(self: &Rc<Self>, mut sector: u64, mut data: &[u8]) -> Result<(), Error> {
        while !data.is_empty() {
            let mut state = self.state_mut();
            if state.filling.is_none() {
                let id = state.next_id()?;
                let data = vec![0; HEAD_BYTES];
                state.filling = Some(Filling { id, data, entries: Vec::new() });
            }
            let State { filling: Some(filling), map, entries, appended, unsent_bytes, .. } = &mut *state
            else {
                return Err(Error::Closed);
            };
            let room = (self.options.segment_bytes + HEAD_BYTES).saturating_sub(filling.data.len());
            let length = data.len().min(room / SECTOR_BYTES as usize * SECTOR_BYTES as usize);
            if length == 0 {
                drop(state);
                self.seal()?;
                continue;
            }
            let place = Place { id: filling.id, offset: filling.data.len() as u32 };
            let (now, rest) = data.split_at(length);
            filling.data.extend_from_slice(now);
            let sectors = (length as u64 / SECTOR_BYTES) as u32;
            let entry = Entry { sector, sectors, place: Some(place), hash: format::data_hash(now) };
            filling.entries.push(entry);
            entries.push(entry);
            *appended += 1;
            *unsent_bytes += length;
            map.set(sector, sectors.into(), Some(place));
            (sector, data) = (sector + u64::from(sectors), rest);
        }
        Ok(())
    }

    /// Sends what is being filled on its way.
    fn seal(self: &Rc<Self>) -> Result<(), Error> {
        let mut state = self.state_mut();
        let Some(filling) = state.filling.take() else { return Ok(()) };
        let total = ((filling.data.len() - HEAD_BYTES) as u64 / SECTOR_BYTES) as u32;
        state.map.add_object(filling.id, total);
        let head = Head { origin: state.origin, number: filling.id.0, data_bytes: 0 };
        let bytes =
            format::encode(Kind::Segment, head, filling.data, &format::segment_body(&filling.entries));
        state.unsent.insert(filling.id, bytes.clone());
        drop(state);
        begin(self, async move |shared| {
            if send(shared, &filling.id.key(), &bytes).await {
                let mut state = shared.state_mut();
                state.unsent.remove(&filling.id);
                state.unsent_bytes -= (u64::from(total) * SECTOR_BYTES) as usize;
            }
        });
        Ok(())
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), Error> {
        let (mut sector, end) = (offset / SECTOR_BYTES, (offset + length) / SECTOR_BYTES);
        while sector < end {
            let sectors = (end - sector).min(format::REGION_SECTORS.into()) as u32;
            loop {
                self.check()?;
                self.load(sector, sectors.into()).await?;
                if self.state().map.to_load(sector, sectors.into()).is_none() {
                    break;
                }
            }
            let mut state = self.state_mut();
            if state.epoch.is_none() {
                return Err(Error::Closed);
            }
            if state.map.get(sector, sectors.into()).iter().any(|piece| piece.place.is_some()) {
                state.map.set(sector, sectors.into(), None);
                state.entries.push(Entry { sector, sectors, place: None, hash: 0 });
                state.appended += 1;
            }
            sector += u64::from(sectors);
        }
        Ok(())
    }
}

/// Sends until it has arrived, or all has ended; whether it has.
async fn send(shared: &Shared, key: &str, body: &Bytes) -> bool {
    let mut waits = Waits::default();
    loop {
        if shared.check().is_err() {
            return false;
        }
        match shared.bucket.put(key, body.clone()).await {
            Ok(()) => {
                let mut state = shared.state_mut();
                Shared::went_on(&mut state);
                state.counts.puts += 1;
                state.counts.put_bytes += body.len() as u64;
                return true;
            }
            Err(error) => {
                tracing::warn!(key, %error, "the object store");
                shared.state_mut().fault = Some(requests::failed(&*shared.bucket, key, error));
            }
        }
        waits.wait().await;
    }
}

/// Begins a task that ends with the device.
fn begin(shared: &Rc<Shared>, task: impl AsyncFnOnce(&Rc<Shared>) + 'static) {
    let shared = Rc::clone(shared);
    spawn_local(async move {
        task(&shared).await;
        shared.changed.notify_waiters();
    });
}
