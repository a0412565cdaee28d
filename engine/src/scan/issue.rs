//! Reading what was gathered, in the order of places on devices, and writing what is wrong or missing.
//!
//! # Windows
//! The entries of each top-level vdev are taken in windows of about a MiB for each leaf. The ranges of a
//! window are read in large transfers ([`crate::vdev::scrub::Window`]) while windows before it are verified.
//! A few windows of each vdev are under way at a time: more of them make devices slower, not faster.
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
//! right bytes anywhere is damaged. Of intent logs nothing is counted, and none is damaged: a log ends where
//! a block cannot be read.
//!
//! # Resilver
//! A block that a leaf lacks is read once, from a window like all others: by what the other leaves have, and
//! rebuilt from their columns. The parts that are lacking are written for a whole window at a time, so that
//! neighbours become one transfer, while other windows are read and verified.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::SharedBuf;
use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, stream};
use ondisk::blkptr::{Blkptr, ChecksumType, Dva};
use ondisk::{Guid, Txg};

use super::walk::Interrupted;
use super::{Counters, Failed, Gathered, Guard, Purpose, ScanLimits, StaleTops, Verified, is_stale_leaf};
use crate::Bookmark;
use crate::store::{Pool, Store};
use crate::vdev::read::{Request, Verdict};
use crate::vdev::scrub::{Extent, Scratch, Window};
use crate::vdev::write::Missed;
use crate::vdev::{Kind, Vdev};
use crate::zio::{Healing, Repaired};

/// Blocks that are repaired at a time.
const REPAIRS_AT_A_TIME: usize = 32;
/// Windows of a top-level vdev that are read at a time while nothing else uses the devices.
const WINDOWS_AT_A_TIME: usize = 4;
/// The most windows of all vdevs that are read at a time, and the most that are written.
const MOST_WINDOWS: usize = 32;
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

    /// Bytes of a window on each leaf.
    fn window_bytes(&self) -> u64 {
        match self.others {
            Others::Idle => self.limits.reading_bytes / WINDOWS_AT_A_TIME as u64,
            Others::Busy(_) => self.busy_bytes,
        }
    }

    /// Windows that are read at a time, of a vdev and of all.
    fn windows_at_a_time(&self) -> (usize, usize) {
        match self.others {
            Others::Idle => (WINDOWS_AT_A_TIME, MOST_WINDOWS),
            Others::Busy(_) => (1, 1),
        }
    }

    /// Windows that are written at a time.
    fn writes_at_a_time(&self) -> usize {
        match self.others {
            Others::Idle => MOST_WINDOWS,
            Others::Busy(_) => 0,
        }
    }

    /// A window took this long to read.
    fn note(&mut self, took: Duration) {
        let Others::Busy(Some(read)) = self.others else { return };
        self.busy_bytes = match took > read / 2 {
            true => self.busy_bytes / 2,
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
    /// What needs not be read.
    pub known: &'a Verified,
    /// What is right, of what was read.
    pub verified: Verified,
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
    /// Where other pointers to it are.
    also_at: Vec<Bookmark>,
}

impl Suspect {
    /// Where all pointers to it are.
    fn all_at(&self) -> impl Iterator<Item = &Bookmark> {
        std::iter::once(&self.at).chain(&self.also_at)
    }
}

/// What a window came to.
#[derive(Default)]
struct Checked {
    suspects: Vec<Suspect>,
    /// Copies that are right and lack nothing.
    right: Vec<(Blkptr, Dva)>,
    /// Blocks with right bytes that a leaf lacks.
    lacking: Vec<(Blkptr, SharedBuf)>,
}

impl Issue<'_> {
    /// Reads all entries.
    ///
    /// # Errors
    /// The view was taken back, or the batch is not to go on. Nothing of it counts then but what was
    /// verified; what was written is right.
    pub async fn run(&mut self, mut gathered: Gathered) -> Result<(), Interrupted> {
        self.leave_out_known(&mut gathered);
        gathered.sort();
        let mut writing = Writing::default();
        let read = self.read_all(&gathered, &mut writing).await;
        // Those that are under way hold their view.
        while let Some(copied) = writing.next().await {
            self.note_copied(copied);
        }
        read
    }

    /// Leaves out what was read before.
    fn leave_out_known(&mut self, gathered: &mut Gathered) {
        if self.known.is_empty() {
            return;
        }
        let left_out = Cell::new(0);
        gathered.retain(|bp, copy| {
            let dva = bp.dva(copy).filter(|dva| self.known.has(bp, dva));
            left_out.set(left_out.get() + dva.map_or(0, |dva| dva.asize.get()));
            dva.is_none()
        });
        self.counters.issued += left_out.get();
        self.pilot.note(&self.counters);
    }

    async fn read_all(&mut self, gathered: &Gathered, writing: &mut Writing) -> Result<(), Interrupted> {
        let mut pace = Pace::new(self.limits, self.pilot.others());
        let mut lanes = Lanes::of(gathered);
        let mut reading = FuturesUnordered::new();
        loop {
            while let Some(window) = lanes.next_window(gathered, self.store, &pace) {
                reading.push(read(self.store, window));
            }
            let Some(Read { lane, copies, window, began, took }) =
                self.next_read(&mut reading, writing).await
            else {
                return Ok(());
            };
            lanes.has_read(lane);
            if !self.pilot.goes_on() {
                return Err(Interrupted::Stopped);
            }
            pace.note(took);
            let mut left = copies.as_slice();
            while !left.is_empty() {
                let (checked, judged) = self.check(left, &window).await;
                left = left.get(judged..).unwrap_or_default();
                if !self.purpose.is_resilver {
                    checked.right.iter().for_each(|(bp, dva)| self.verified.note(bp, dva));
                }
                self.repair(checked, writing).await?;
                if !self.pilot.goes_on() {
                    return Err(Interrupted::Stopped);
                }
            }
            for copy in &copies {
                self.counters.issued += match self.purpose.is_resilver {
                    true => copy.bp.asize().get(),
                    false => copy.dva().map_or(0, |dva| dva.asize.get()),
                };
            }
            while writing.len() > pace.writes_at_a_time()
                && let Some(copied) = writing.next().await
            {
                self.note_copied(copied);
            }
            self.pilot.note(&self.counters);
            pace.others = self.pilot.others();
            if pace.others != Others::Idle && reading.is_empty() {
                self.pilot.pause(began.elapsed().min(MAX_PAUSE));
            }
        }
    }

    /// The next window that was read. Writes go on meanwhile.
    async fn next_read<F: Future<Output = Read>>(
        &mut self,
        reading: &mut FuturesUnordered<F>,
        writing: &mut Writing,
    ) -> Option<Read> {
        loop {
            match select(reading.next(), writing.next()).await {
                Either::Left((read, _)) => return read,
                Either::Right((Some(copied), _)) => self.note_copied(copied),
                Either::Right((None, reading)) => return reading.await,
            }
        }
    }

    fn note_copied(&mut self, copied: Repaired) {
        self.counters.processed += copied.bytes;
        for (leaf, birth) in copied.failed {
            note(&mut self.failed, leaf, birth);
            self.unwritten.insert(leaf);
        }
    }

    /// Judges the copies of a window, until so many are suspect that these are to be repaired first: on a
    /// device that fails or is slow, the rest of the window may take long. Also returns how many were judged.
    async fn check(&self, copies: &[Copy], window: &Window) -> (Checked, usize) {
        let tree = self.store.vdevs();
        let (mut checked, mut scratch) = (Checked::default(), Scratch::default());
        // A block with several pointers is met with each of them, one after the other.
        let (mut right_before, mut suspect_before): (Option<&Copy>, Option<&Copy>) = (None, None);
        for (judged, copy) in copies.iter().enumerate() {
            if checked.suspects.len() >= REPAIRS_AT_A_TIME {
                return (checked, judged);
            }
            let &Copy { bp, at, .. } = copy;
            // What is lacking is written for all copies at once.
            let is_lacking = copy.index == 0 && self.stale.lack(tree, &bp);
            let is_injected = tree.injections().has_block(&at);
            if right_before.is_some_and(|before| before.is_of_same_block(copy)) && !is_injected {
                continue;
            }
            if suspect_before.is_some_and(|before| before.is_of_same_block(copy))
                && !is_injected
                && let Some(suspect) = checked.suspects.last_mut()
            {
                suspect.also_at.push(at);
                continue;
            }
            let right = match copy.place(self.store) {
                // Windows know nothing of blocks.
                Some(_) if is_injected => None,
                Some((top, dva)) => {
                    let verdict = |bytes: &[u8]| self.store.verify(&bp, bytes);
                    let judged: Option<Verdict<'_>> = if is_judged(&bp) { Some(&verdict) } else { None };
                    let (size, birth) = (bp.psize().get() as usize, bp.physical_birth().get());
                    let request = Request::new(tree, dva.offset.get(), size, birth, judged).speculative(true);
                    if let Some(right) = top.right_in_window(&request, window, &mut scratch) {
                        match is_lacking {
                            true => checked.lacking.push((bp, right.into())),
                            false => checked.right.push((bp, dva)),
                        }
                        right_before = Some(copy);
                        continue;
                    }
                    let found = top.scrub(request, window).await;
                    found.bytes.filter(|_| found.bad.is_empty())
                }
                None => None,
            };
            match right {
                None => {
                    checked.suspects.push(Suspect { bp, at, also_at: Vec::new() });
                    suspect_before = Some(copy);
                }
                Some(bytes) if is_lacking => checked.lacking.push((bp, bytes.into())),
                Some(_) => {}
            }
        }
        (checked, copies.len())
    }

    /// Begins to write what leaves lack, and repairs suspects.
    async fn repair(&mut self, checked: Checked, writing: &mut Writing) -> Result<(), Interrupted> {
        let Checked { mut suspects, lacking, .. } = checked;
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
        if !lacking.is_empty() {
            let view = Arc::clone(&view);
            writing.push(async move { view.copy_missed(lacking, txg).await }.boxed());
        }
        if suspects.is_empty() {
            return Ok(());
        }
        let leaves: Vec<Guid> = view.vdevs().leaves().map(|leaf| leaf.guid).collect();
        let repairs = suspects.into_iter().map(|suspect| {
            let (view, leaves) = (&view, &leaves);
            async move {
                // A block of a log may never have been written to all devices: that is no error.
                let is_of_log = suspect.at.level == Bookmark::LEVEL_ZIL;
                let healing = Healing { txg, counted: if is_of_log { leaves } else { &[] }, missed };
                let healed = view.heal(&suspect.bp, &suspect.at, healing).await;
                let is_damaged = !is_of_log
                    && healed.is_unreadable
                    && view.read_raw(&suspect.bp, &suspect.at).await.is_err();
                (suspect, healed, is_damaged)
            }
        });
        let mut repairs = stream::iter(repairs).buffer_unordered(REPAIRS_AT_A_TIME);
        while let Some((suspect, healed, is_damaged)) = repairs.next().await {
            self.counters.processed += healed.bytes;
            if healed.bytes > 0 && healed.failed.is_empty() && !healed.is_unreadable {
                let birth = suspect.bp.physical_birth();
                suspect.all_at().for_each(|at| view.damage.mended(at, birth));
            }
            for (leaf, birth) in healed.failed {
                note(&mut self.failed, leaf, birth);
                self.unwritten.insert(leaf);
            }
            if is_damaged {
                note_unread(&view, &suspect.bp, &mut self.failed);
                let damaged = &mut self.damaged;
                let new = suspect.all_at().filter(|at| damaged.insert(**at)).count();
                self.counters.errors += new as u64;
            }
        }
        Ok(())
    }
}

/// A copy of a block that is to be looked at.
struct Copy {
    bp: Blkptr,
    at: Bookmark,
    /// Which of the block's addresses it has.
    index: usize,
}

impl Copy {
    fn dva(&self) -> Option<Dva> {
        self.bp.dva(self.index)
    }

    /// Whether both lead to the same bytes in the same place, which must match the same checksum.
    fn is_of_same_block(&self, other: &Self) -> bool {
        let is_same = |one: &Blkptr, other: &Blkptr| {
            let of = |bp: &Blkptr| (bp.checksum_type(), bp.checksum(), bp.psize(), bp.physical_birth());
            of(one) == of(other)
        };
        self.index == other.index && self.dva() == other.dva() && is_same(&self.bp, &other.bp)
    }

    /// The vdev and the address, where all that is stored of it can be read from a window.
    fn place<'a>(&self, store: &'a Store) -> Option<(&'a Vdev, Dva)> {
        let dva = self.dva()?;
        let top = store.top_for(&dva).ok()?;
        let is_simple = !self.bp.is_gang() && !matches!(top.kind, Kind::Indirect(_));
        is_simple.then_some((top, dva))
    }
}

/// Windows whose missing parts are being written.
type Writing = FuturesUnordered<BoxFuture<'static, Repaired>>;

/// What is still to be read of the top-level vdevs.
struct Lanes {
    lanes: Vec<Lane>,
    /// The one whose turn it is.
    turn: usize,
    reading: usize,
}

/// What is still to be read of a top-level vdev.
struct Lane {
    entries: Range<usize>,
    /// Its windows that are being read.
    reading: usize,
}

impl Lanes {
    fn of(gathered: &Gathered) -> Self {
        let lanes = gathered.by_vdev().map(|entries| Lane { entries, reading: 0 }).collect();
        Self { lanes, turn: 0, reading: 0 }
    }

    /// The next window, if one is to be read now. The vdevs take turns.
    fn next_window(&mut self, gathered: &Gathered, store: &Store, pace: &Pace) -> Option<Unread> {
        let (of_one, of_all) = pace.windows_at_a_time();
        if self.reading >= of_all {
            return None;
        }
        let count = self.lanes.len();
        let mut turns = (self.turn..self.turn + count).map(|turn| turn % count);
        let lane = turns.find(|lane| {
            self.lanes.get(*lane).is_some_and(|lane| !lane.entries.is_empty() && lane.reading < of_one)
        })?;
        self.turn = lane + 1;
        self.reading += 1;
        let Lane { entries, reading } = self.lanes.get_mut(lane)?;
        *reading += 1;
        let copies = take_window(gathered, store, entries, pace.window_bytes());
        Some(Unread { lane, copies })
    }

    /// A window of this lane is not being read any more.
    fn has_read(&mut self, lane: usize) {
        self.reading -= 1;
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.reading -= 1;
        }
    }
}

/// A window that is to be read.
struct Unread {
    lane: usize,
    copies: Vec<Copy>,
}

/// A window that was read.
struct Read {
    lane: usize,
    copies: Vec<Copy>,
    window: Window,
    began: Instant,
    /// How long the reads took.
    took: Duration,
}

/// Reads the ranges of a window.
async fn read(store: &Store, unread: Unread) -> Read {
    let began = Instant::now();
    let Unread { lane, copies } = unread;
    let mut extents: Vec<Extent<'_>> = Vec::new();
    for copy in &copies {
        if let Some((top, dva)) = copy.place(store) {
            let (size, birth) = (copy.bp.psize().get() as usize, copy.bp.physical_birth().get());
            top.extents(&Request::new(store.vdevs(), dva.offset.get(), size, birth, None), &mut extents);
        }
    }
    let window = Window::read(extents).await;
    Read { lane, copies, window, began, took: began.elapsed() }
}

/// Takes the copies of a window with about so many bytes on each leaf.
fn take_window(
    gathered: &Gathered,
    store: &Store,
    entries: &mut Range<usize>,
    bytes_of_leaf: u64,
) -> Vec<Copy> {
    let (mut copies, mut bytes) = (Vec::new(), 0);
    let rest = gathered.entries().get(entries.clone()).unwrap_or_default();
    let mut rest = rest.iter();
    while (copies.is_empty() || bytes < bytes_of_leaf)
        && let Some(entry) = rest.next()
    {
        if let Some((bp, at, index)) = gathered.block(entry) {
            let copy = Copy { bp, at, index };
            bytes += match copy.place(store) {
                Some((Vdev { kind: Kind::Raidz(_) | Kind::Draid(_), children, .. }, dva)) => {
                    dva.asize.get() / children.len().max(1) as u64
                }
                _ => bp.psize().get(),
            };
            copies.push(copy);
        }
    }
    entries.start = entries.end - rest.len();
    copies
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
