//! Reading what was gathered, in the order of places on devices, and writing what is wrong or missing.
//!
//! # Windows
//! The entries are taken in windows of some MiB. The ranges of a window are read in large transfers
//! ([`crate::vdev::scrub::Window`]) while the window before is verified. When others use the devices the
//! windows are small, and there is a pause after each.
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
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::SharedBuf;
use futures_util::future::join;
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
use crate::vdev::scrub::{Extent, Window};
use crate::vdev::write::Missed;
use crate::zio::Healing;

/// Blocks that are repaired at a time.
const REPAIRS_AT_A_TIME: usize = 32;
/// The longest pause after a window while others use the devices.
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// What steers a batch while it reads.
pub(crate) trait Pilot {
    /// Whether to go on.
    fn goes_on(&self) -> bool;
    /// Whether others use the devices.
    fn is_busy(&self) -> bool;
    /// The open group.
    fn open_txg(&self) -> Txg;
    /// What was done so far in this batch.
    fn note(&self, counters: &Counters);
    /// Pauses.
    fn pause(&self, pause: Duration);
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
        let mut start = 0;
        let mut end = self.window_end(&gathered, start);
        let mut window = self.read(&gathered, &entries[start..end]).await;
        while start < end {
            if !self.pilot.goes_on() {
                return Err(Interrupted::Stopped);
            }
            let began = Instant::now();
            let next_end = self.window_end(&gathered, end);
            let (next, checked) = {
                let next = self.read(&gathered, &entries[end..next_end]);
                let check = self.check(&gathered, &entries[start..end], &window);
                join(next, check).await
            };
            for (bp, _, copy) in entries[start..end].iter().filter_map(|entry| gathered.block(entry)) {
                self.counters.issued += match self.purpose.is_resilver {
                    true => bp.asize().get(),
                    false => bp.dva(copy).map_or(0, |dva| dva.asize.get()),
                };
            }
            self.repair(checked).await?;
            self.pilot.note(&self.counters);
            (start, end, window) = (end, next_end, next);
            if self.pilot.is_busy() {
                self.pilot.pause(began.elapsed().min(MAX_PAUSE));
            }
        }
        Ok(())
    }

    /// The end of the window that begins at an entry.
    fn window_end(&self, gathered: &Gathered, start: usize) -> usize {
        let limit = match self.pilot.is_busy() {
            true => self.limits.busy_window_bytes,
            false => self.limits.window_bytes,
        };
        let mut bytes = 0;
        let rest = gathered.entries().iter().skip(start);
        let fitting = rest.take_while(|entry| {
            let fits = bytes < limit;
            bytes += gathered.block(entry).map_or(0, |(bp, ..)| bp.psize().get());
            fits
        });
        start + fitting.count()
    }

    /// The ranges of a window.
    async fn read(&self, gathered: &Gathered, entries: &[Entry]) -> Window {
        let tree = self.store.vdevs();
        let mut extents: Vec<Extent<'_>> = Vec::new();
        for (bp, dva) in entries.iter().filter_map(|entry| self.simple(gathered, entry)) {
            if let Some(top) = tree.top(dva.vdev.get()) {
                let (size, birth) = (bp.psize().get() as usize, bp.physical_birth().get());
                top.extents(&Request::new(tree, dva.offset.get(), size, birth, None), &mut extents);
            }
        }
        Window::read(extents).await
    }

    /// The block and address of an entry, where all that is stored of it can be read from a window.
    fn simple(&self, gathered: &Gathered, entry: &Entry) -> Option<(Blkptr, Dva)> {
        let (bp, _, copy) = gathered.block(entry)?;
        let dva = bp.dva(copy)?;
        let top = self.store.top_for(&dva).ok()?;
        let is_simple = !bp.is_gang() && !matches!(top.kind, Kind::Indirect(_));
        is_simple.then_some((bp, dva))
    }

    /// Judges the copies of a window.
    async fn check(&self, gathered: &Gathered, entries: &[Entry], window: &Window) -> Checked {
        let tree = self.store.vdevs();
        let mut checked = Checked::default();
        for entry in entries {
            let Some((bp, at, copy)) = gathered.block(entry) else { continue };
            let right = match self.simple(gathered, entry) {
                Some((bp, dva)) => {
                    let verdict = |bytes: &[u8]| self.store.verify(&bp, bytes);
                    let judged: Option<Verdict<'_>> = if is_judged(&bp) { Some(&verdict) } else { None };
                    let (size, birth) = (bp.psize().get() as usize, bp.physical_birth().get());
                    let request = Request::new(tree, dva.offset.get(), size, birth, judged).speculative(true);
                    match tree.top(dva.vdev.get()) {
                        Some(top) => {
                            let found = top.scrub(request, window).await;
                            found.bytes.filter(|_| found.bad.is_empty())
                        }
                        None => None,
                    }
                }
                None => None,
            };
            match right {
                None => checked.suspects.push(Suspect { bp, at }),
                // What is lacking is written for all copies at once.
                Some(bytes) if copy == 0 && self.stale.lack(tree, &bp) => {
                    checked.lacking.push((bp, bytes.into()));
                }
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
