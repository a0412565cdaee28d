//! Reading what was gathered, in the order of places on devices, and writing what is wrong or missing.
//!
//! # Windows
//! The entries are taken in windows of some MiB. The ranges of a window are read in large transfers
//! ([`crate::vdev::scrub::Window`]) while windows before it are verified.
//!
//! When others use the devices, one window is read at a time, and there is a pause after each that is as long
//! as the window took. A read of others that comes at the wrong time waits for a window. So the windows are
//! made so small that one takes about half of the time that reads of others take on these devices: about
//! 100 KiB on flash, more on disks, where a seek takes most of the time.
//!
//! # Judgement
//! Reads of windows count no errors. A copy that looks wrong, or that a leaf lacks, is a *suspect*. The
//! suspects of a window are repaired while the view is held: the block is read again with all its redundancy,
//! every place of it is compared, and what differs is counted and written ([`Store::heal`]). A block without
//! right bytes anywhere is damaged.
//!
//! # Resilver
//! A block that a leaf lacks is read once, from a window like all others: by what the other leaves have, and
//! rebuilt from their columns. The parts that are lacking are written for a whole window at a time, so that
//! neighbours become one transfer.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{IoBuf, SharedBuf};
use futures_util::stream::FuturesOrdered;
use futures_util::{StreamExt, stream};
use ondisk::blkptr::{Blkptr, ChecksumType, Dva};
use ondisk::{Guid, Txg};

use super::gathered::Entry;
use super::walk::Interrupted;
use super::{Counters, Failed, Gathered, Guard, Purpose, ScanLimits, StaleTops, is_stale_leaf};
use crate::Bookmark;
use crate::store::{Pool, Store};
use crate::vdev::Kind;
use crate::vdev::read::{Request, Verdict};
use crate::vdev::scrub::{Extent, Scratch, Window};
use crate::vdev::write::Missed;
use crate::zio::Healing;

/// Blocks that are repaired at a time.
const REPAIRS_AT_A_TIME: usize = 32;
/// Windows that are read or verified at a time while nothing else uses the devices.
const WINDOWS_AT_A_TIME: usize = 6;
/// The smallest window.
const MIN_WINDOW_BYTES: u64 = 64 << 10;
/// The longest pause after a window while others use the devices.
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// What steers a batch while it reads.
pub(crate) trait Pilot {
    /// Whether to go on.
    fn goes_on(&self) -> bool;
    /// What others do with the devices.
    fn others(&self) -> Others;
    /// The open group.
    fn open_txg(&self) -> Txg;
    /// What was done so far in this batch.
    fn note(&self, counters: &Counters);
    /// Pauses.
    fn pause(&self, pause: Duration);
}

/// What others do with the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// Nothing.
    Idle,
    /// They use them. A read of theirs takes about this long; it is not known while they only write.
    Busy(Option<Duration>),
}

/// How much is read at a time.
struct Pace {
    limits: ScanLimits,
    others: Others,
    /// The size of a window while others use the devices.
    busy_bytes: u64,
}

impl Pace {
    fn new(limits: ScanLimits, others: Others) -> Self {
        Self { limits, others, busy_bytes: limits.busy_window_bytes / 4 }
    }

    fn window_bytes(&self) -> u64 {
        match self.others {
            Others::Idle => self.limits.window_bytes,
            Others::Busy(_) => self.busy_bytes,
        }
    }

    fn windows_at_a_time(&self) -> usize {
        match self.others {
            Others::Idle => WINDOWS_AT_A_TIME,
            Others::Busy(_) => 1,
        }
    }

    /// A window of `bytes` took this long to read.
    fn note(&mut self, bytes: u64, took: Duration) {
        let Others::Busy(Some(read)) = self.others else { return };
        self.busy_bytes = match took > read / 2 {
            true => bytes.min(self.busy_bytes) / 2,
            false => self.busy_bytes + self.busy_bytes / 4,
        };
        let most = self.limits.busy_window_bytes.max(MIN_WINDOW_BYTES);
        self.busy_bytes = self.busy_bytes.clamp(MIN_WINDOW_BYTES, most);
    }
}

/// The second part of a batch.
pub(crate) struct Issue<'a> {
    pub store: &'a Arc<Store>,
    pub guard: &'a dyn Guard,
    pub purpose: Purpose,
    pub limits: ScanLimits,
    pub stale: &'a StaleTops,
    pub pilot: &'a dyn Pilot,
    /// What was counted, in this part and before.
    pub counters: Counters,
    /// Blocks that are known to be damaged.
    pub damaged: BTreeSet<Bookmark>,
    /// Groups that leaves lack still.
    pub failed: Failed,
    /// Leaves that did not take something.
    pub unwritten: BTreeSet<Guid>,
}

/// A block that is to be repaired.
struct Suspect {
    bp: Blkptr,
    at: Bookmark,
}

/// What a window came to.
#[derive(Default)]
struct Checked {
    suspects: Vec<Suspect>,
    /// Blocks with right bytes that a leaf lacks.
    lacking: Vec<(Blkptr, SharedBuf)>,
}

impl Issue<'_> {
    /// Reads all entries.
    ///
    /// # Errors
    /// The view was taken back, or the batch is not to go on. Nothing of it counts then; what was written is
    /// right.
    pub async fn run(&mut self, mut gathered: Gathered) -> Result<(), Interrupted> {
        gathered.sort();
        let entries = gathered.entries();
        let (mut pace, mut next) = (Pace::new(self.limits, self.pilot.others()), 0);
        let mut flying = FuturesOrdered::new();
        loop {
            while next < entries.len() && flying.len() < pace.windows_at_a_time() {
                let (end, bytes) = window_end(&gathered, next, pace.window_bytes());
                flying.push_back(read(self.store, &gathered, next..end, bytes));
                next = end;
            }
            let Some(Read { range, bytes, window, began, took }) = flying.next().await else { return Ok(()) };
            if !self.pilot.goes_on() {
                return Err(Interrupted::Stopped);
            }
            pace.note(bytes, took);
            let entries = &entries[range];
            let checked = self.check(&gathered, entries, &window).await;
            for (bp, _, copy) in entries.iter().filter_map(|entry| gathered.block(entry)) {
                self.counters.issued += match self.purpose.is_resilver {
                    true => bp.asize().get(),
                    false => bp.dva(copy).map_or(0, |dva| dva.asize.get()),
                };
            }
            self.repair(checked).await?;
            self.pilot.note(&self.counters);
            pace.others = self.pilot.others();
            if pace.others != Others::Idle && flying.is_empty() {
                self.pilot.pause(began.elapsed().min(MAX_PAUSE));
            }
        }
    }

    /// Judges the copies of a window.
    async fn check(&self, gathered: &Gathered, entries: &[Entry], window: &Window) -> Checked {
        let tree = self.store.vdevs();
        let (mut checked, mut scratch) = (Checked::default(), Scratch::default());
        for entry in entries {
            let Some((bp, at, copy)) = gathered.block(entry) else { continue };
            // What is lacking is written for all copies at once.
            let is_lacking = copy == 0 && self.stale.lack(tree, &bp);
            let right = match simple(self.store, gathered, entry) {
                Some((bp, dva)) => {
                    let verdict = |bytes: &[u8]| self.store.verify(&bp, bytes);
                    let judged: Option<Verdict<'_>> = if is_judged(&bp) { Some(&verdict) } else { None };
                    let (size, birth) = (bp.psize().get() as usize, bp.physical_birth().get());
                    let request = Request::new(tree, dva.offset.get(), size, birth, judged).speculative(true);
                    let Some(top) = tree.top(dva.vdev.get()) else { continue };
                    if let Some(bytes) = top.right_in_window(&request, window, &mut scratch) {
                        if is_lacking {
                            checked.lacking.push((bp, IoBuf::from(bytes).into()));
                        }
                        continue;
                    }
                    let found = top.scrub(request, window).await;
                    found.bytes.filter(|_| found.bad.is_empty())
                }
                None => None,
            };
            match right {
                None => checked.suspects.push(Suspect { bp, at }),
                Some(bytes) if is_lacking => checked.lacking.push((bp, bytes.into())),
                Some(_) => {}
            }
        }
        checked
    }

    /// Writes what leaves lack, and repairs suspects.
    async fn repair(&mut self, checked: Checked) -> Result<(), Interrupted> {
        let Checked { mut suspects, lacking } = checked;
        let mut seen = HashSet::new();
        let damaged = &self.damaged;
        suspects.retain(|suspect| !damaged.contains(&suspect.at) && seen.insert(suspect.at));
        if suspects.is_empty() && lacking.is_empty() {
            return Ok(());
        }
        let Some(view) = self.guard.hold() else { return Err(Interrupted::Taken) };
        if let Some(error) = view.suspension.why() {
            return Err(Interrupted::Failed(error));
        }
        let (missed, txg) = (Missed::Written, self.pilot.open_txg());
        let copied = view.copy_missed(lacking, txg).await;
        self.counters.processed += copied.bytes;
        for (leaf, birth) in copied.failed {
            note(&mut self.failed, leaf, birth);
            self.unwritten.insert(leaf);
        }
        let repairs = suspects.into_iter().map(|suspect| {
            let view = &view;
            async move {
                let healed = view.heal(&suspect.bp, Healing { txg, counted: &[], missed }).await;
                let is_damaged =
                    healed.is_unreadable && view.read_raw(&suspect.bp, &suspect.at).await.is_err();
                (suspect, healed, is_damaged)
            }
        });
        let mut repairs = stream::iter(repairs).buffer_unordered(REPAIRS_AT_A_TIME);
        while let Some((suspect, healed, is_damaged)) = repairs.next().await {
            self.counters.processed += healed.bytes;
            if healed.bytes > 0 && healed.failed.is_empty() && !healed.is_unreadable {
                view.damage.mended(&suspect.at, suspect.bp.physical_birth());
            }
            for (leaf, birth) in healed.failed {
                note(&mut self.failed, leaf, birth);
                self.unwritten.insert(leaf);
            }
            if is_damaged {
                note_unread(&view, &suspect.bp, &mut self.failed);
                if self.damaged.insert(suspect.at) {
                    self.counters.errors += 1;
                }
            }
        }
        Ok(())
    }
}

/// A window that was read.
struct Read {
    /// Its entries.
    range: Range<usize>,
    /// The bytes of their blocks.
    bytes: u64,
    window: Window,
    began: Instant,
    /// How long the reads took.
    took: Duration,
}

/// Reads the ranges of a window.
async fn read(store: &Store, gathered: &Gathered, range: Range<usize>, bytes: u64) -> Read {
    let began = Instant::now();
    let tree = store.vdevs();
    let mut extents: Vec<Extent<'_>> = Vec::new();
    for (bp, dva) in
        gathered.entries()[range.clone()].iter().filter_map(|entry| simple(store, gathered, entry))
    {
        if let Some(top) = tree.top(dva.vdev.get()) {
            let (size, birth) = (bp.psize().get() as usize, bp.physical_birth().get());
            top.extents(&Request::new(tree, dva.offset.get(), size, birth, None), &mut extents);
        }
    }
    let window = Window::read(extents).await;
    Read { range, bytes, window, began, took: began.elapsed() }
}

/// The end of the window that begins at an entry, and the bytes of its blocks.
fn window_end(gathered: &Gathered, start: usize, limit: u64) -> (usize, u64) {
    let (mut end, mut bytes) = (start, 0);
    for entry in gathered.entries().iter().skip(start) {
        if bytes >= limit {
            break;
        }
        bytes += gathered.block(entry).map_or(0, |(bp, ..)| bp.psize().get());
        end += 1;
    }
    (end, bytes)
}

/// The block and address of an entry, where all that is stored of it can be read from a window.
fn simple(store: &Store, gathered: &Gathered, entry: &Entry) -> Option<(Blkptr, Dva)> {
    let (bp, _, copy) = gathered.block(entry)?;
    let dva = bp.dva(copy)?;
    let top = store.top_for(&dva).ok()?;
    let is_simple = !bp.is_gang() && !matches!(top.kind, Kind::Indirect(_));
    is_simple.then_some((bp, dva))
}

fn is_judged(bp: &Blkptr) -> bool {
    !matches!(bp.checksum_type(), ChecksumType::Off | ChecksumType::NoParity)
}

/// A leaf lacks a group still.
fn note(failed: &mut Failed, leaf: Guid, birth: Txg) {
    failed.entry(leaf).or_default().add(birth.get(), birth.get().saturating_add(1));
}

/// The leaves that lack a block which cannot be read lack it still.
fn note_unread(view: &Pool, bp: &Blkptr, failed: &mut Failed) {
    let birth = bp.physical_birth();
    let tops = bp.dvas().filter_map(|dva| view.vdevs().top(dva.vdev.get()));
    let leaves = tops.flat_map(|top| top.walk()).filter(|vdev| is_stale_leaf(vdev));
    leaves.filter(|leaf| leaf.is_stale(birth.get())).for_each(|leaf| note(failed, leaf.guid, birth));
}
