//! TRIM: telling devices which ranges of theirs hold nothing any more.
//!
//! # The idea
//! What is trimmed must not be handed out meanwhile, and no state of the pool that somebody could still want may refer to it. Both follow from taking free space the
//! way an allocation does: [`crate::alloc::Allocator::borrow_free`] takes runs out of what may be handed out, as part of the group that is being written, and
//! [`crate::alloc::Allocator::give_back`] returns them before that group's space maps are written. So nothing of it reaches a space map; and what can be taken was freed long enough ago
//! that neither older uberblocks that are kept safe nor views refer to it.
//!
//! - *Trimming by hand* (`zpool trim`): a thread goes through all metaslabs of the chosen devices, a bounded number of runs in each group. How far it is, is
//!   known as long as the pool is open; a new start begins at the front.
//! - *Automatic* (`autotrim=on`): what becomes free is noted by the metaslabs; every few groups what of it is still free is trimmed.
//!
//! Runs shorter than [`MIN_RUN_BYTES`] are left out: they cost more than they give back.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Trims::runs` | trims by hand, by leaf; for a few lines, never across an await | taken alone |
//!
//! Source of the facts: OpenZFS 2.3 `vdev_trim.c`.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ondisk::{Guid, VdevId};

use super::{LivePool, Syncing};
use crate::alloc::{MetaslabId, Run};
use crate::error::{Error, Result};
use crate::vdev::write::Unused;
use crate::vdev::{Kind, Vdev};

/// The shortest run that is trimmed.
pub const MIN_RUN_BYTES: u64 = 32 << 10;
/// Most runs and bytes that one group trims.
const MAX_RUNS: usize = 1024;
const MAX_BYTES: u64 = 4 << 30;
/// What became free is trimmed every so many groups.
const AUTOTRIM_TXGS: u64 = 32;

/// How a trim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimState {
    /// It goes on.
    Active,
    /// It waits to be started again.
    Suspended,
    /// It came to its end.
    Complete,
    /// It was given up.
    Canceled,
}

/// One leaf's trim by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimStatus {
    /// How it stands.
    pub state: TrimState,
    /// Bytes of the top-level vdev that were looked at.
    pub done_bytes: u64,
    /// Of so many.
    pub total_bytes: u64,
    /// When it began or ended, in seconds since 1970.
    pub time: u64,
    /// Bytes a second at most; 0 for as fast as it goes.
    pub rate_bytes: u64,
}

/// What is being trimmed.
#[derive(Debug, Default)]
pub(super) struct Trims {
    automatic: AtomicBool,
    runs: Mutex<BTreeMap<Guid, TrimStatus>>,
}

impl Trims {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<Guid, TrimStatus>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_active(&self, leaf: Guid) -> bool {
        self.runs().get(&leaf).is_some_and(|run| run.state == TrimState::Active)
    }
}

impl LivePool {
    /// Whether what becomes free is trimmed.
    pub(super) fn set_autotrim(&self, on: bool) {
        self.trims.automatic.store(on, Ordering::Relaxed);
        self.allocator().note_freed(on);
    }

    /// How the trims by hand stand, by leaf.
    pub fn trims(&self) -> BTreeMap<Guid, TrimStatus> {
        self.trims.runs().clone()
    }

    /// Begins to trim leaves, or goes on with those whose trim was suspended. `rate_bytes` bounds the bytes a second.
    ///
    /// # Errors
    /// A vdev that is no leaf with a device that can be written, cannot discard, or is being trimmed.
    pub fn trim(self: &Arc<Self>, leaves: &[Guid], rate_bytes: u64) -> Result<()> {
        let mut tops: BTreeMap<u32, HashSet<Guid>> = BTreeMap::new();
        let vdevs = self.pool.vdevs();
        for guid in leaves {
            let top = vdevs.tops.iter().find(|top| top.walk().any(|vdev| vdev.guid == *guid));
            let leaf = vdevs.leaves().find(|leaf| leaf.guid == *guid);
            let (Some(top), Some(leaf)) = (top, leaf) else {
                return Err(Error::NotFound(format!("device {guid}")));
            };
            if !matches!(leaf.kind, Kind::Leaf(_)) || !leaf.status().is_readable() {
                return Err(Error::Busy(format!("{}: device is not writable", leaf.name)));
            }
            if leaf.cannot_discard.load(Ordering::Relaxed) || matches!(top.kind, Kind::Draid(_)) {
                return Err(Error::Unsupported(format!("{}: trim operations are not supported", leaf.name)));
            }
            if self.trims.is_active(*guid) {
                return Err(Error::Busy(format!("{}: currently trimming", leaf.name)));
            }
            tops.entry(u32::try_from(top.id).unwrap_or(u32::MAX)).or_default().insert(*guid);
        }
        let now = self.env.now().as_secs();
        for (top, leaves) in tops {
            let total_bytes = vdevs.top(top).map_or(0, |top| top.asize());
            let mut from = 0;
            for leaf in &leaves {
                let before = self.trims.runs().get(leaf).copied();
                let resumed = before.filter(|run| run.state == TrimState::Suspended);
                from = resumed.map_or(0, |run| run.done_bytes);
                let run = TrimStatus {
                    state: TrimState::Active,
                    done_bytes: from,
                    total_bytes,
                    time: now,
                    rate_bytes,
                };
                self.trims.runs().insert(*leaf, run);
            }
            let pool = Arc::clone(self);
            let run = move || {
                if let Err(error) = device::block_on(pool.trim_top(top, &leaves, from, rate_bytes)) {
                    tracing::warn!(%error, "trimming ended early");
                    pool.end_trim(&leaves, TrimState::Canceled);
                }
            };
            let thread = std::thread::Builder::new().name(format!("trim {}", self.pool.name())).spawn(run);
            thread.map_err(|error| Error::os("starting the thread that trims", &error))?;
        }
        Ok(())
    }

    /// Ends trims, for good or for now. Returns how many there were.
    pub fn stop_trim(&self, leaves: &[Guid], suspend: bool) -> usize {
        let mut runs = self.trims.runs();
        let active = leaves.iter().filter_map(|leaf| match runs.get(leaf).map(|run| run.state) {
            Some(TrimState::Active) => Some(*leaf),
            Some(TrimState::Suspended) if !suspend => Some(*leaf),
            _ => None,
        });
        let active: Vec<Guid> = active.collect();
        for leaf in &active {
            if let Some(run) = runs.get_mut(leaf) {
                run.state = if suspend { TrimState::Suspended } else { TrimState::Canceled };
            }
        }
        active.len()
    }

    fn end_trim(&self, leaves: &HashSet<Guid>, state: TrimState) {
        let now = self.env.now().as_secs();
        for (_, run) in self.trims.runs().iter_mut().filter(|(leaf, _)| leaves.contains(leaf)) {
            if run.state == TrimState::Active {
                (run.state, run.time) = (state, now);
                if state == TrimState::Complete {
                    run.done_bytes = run.total_bytes;
                }
            }
        }
    }

    async fn trim_top(
        self: &Arc<Self>,
        top: u32,
        leaves: &HashSet<Guid>,
        from: u64,
        rate: u64,
    ) -> Result<()> {
        for id in self.allocator().metaslabs(VdevId(top)) {
            let Some((start, end)) = self.allocator().extent(id).filter(|(_, end)| *end > from) else {
                continue;
            };
            self.allocator().load_metaslab(id).await?;
            let mut at = start;
            while at < end {
                let still: HashSet<Guid> =
                    leaves.iter().copied().filter(|leaf| self.trims.is_active(*leaf)).collect();
                if still.is_empty() {
                    return Ok(());
                }
                let chosen = still.clone();
                let (next, bytes) =
                    self.change(move |s| async move { Ok(trim_some(&s, id, at, &chosen).await) }).await?;
                at = next.unwrap_or(end);
                for (_, run) in self.trims.runs().iter_mut().filter(|(leaf, _)| still.contains(leaf)) {
                    run.done_bytes = at;
                }
                if let Some(pause) = (bytes * 1000).checked_div(rate) {
                    std::thread::sleep(Duration::from_millis(pause));
                }
            }
        }
        self.end_trim(leaves, TrimState::Complete);
        Ok(())
    }

    /// Every few groups: trims what became free.
    pub(super) async fn autotrim(&self, s: &Syncing) {
        if !self.trims.automatic.load(Ordering::Relaxed) || !s.txg().get().is_multiple_of(AUTOTRIM_TXGS) {
            return;
        }
        let allocator = self.allocator();
        // Vdevs that were added since note it too from now on.
        allocator.note_freed(true);
        let mut runs = Vec::new();
        for (id, freed) in allocator.take_freed() {
            for (from, to) in freed {
                let room = MAX_RUNS.saturating_sub(runs.len());
                runs.extend(allocator.borrow_free(id, (from, to), MIN_RUN_BYTES, room, u64::MAX, s.txg()));
            }
        }
        discard(self, &runs, None).await;
        allocator.give_back(&runs, s.txg());
    }
}

/// Trims some of a metaslab, from an offset of its vdev on. Gives where to go on, if there is more, and the bytes.
async fn trim_some(s: &Syncing, id: MetaslabId, from: u64, leaves: &HashSet<Guid>) -> (Option<u64>, u64) {
    let allocator = s.pool.allocator();
    let Some((_, end)) = allocator.extent(id) else { return (None, 0) };
    let runs = allocator.borrow_free(id, (from, end), MIN_RUN_BYTES, MAX_RUNS, MAX_BYTES, s.txg());
    discard(&s.pool, &runs, Some(leaves)).await;
    allocator.give_back(&runs, s.txg());
    (runs.last().map(|run| run.to), runs.iter().map(|run| run.to - run.from).sum())
}

async fn discard(pool: &LivePool, runs: &[Run], leaves: Option<&HashSet<Guid>>) {
    if runs.is_empty() {
        return;
    }
    let unused =
        |run: &Run| Unused { top: run.vdev.get(), offset_bytes: run.from, size_bytes: run.to - run.from };
    let unused: Vec<Unused> = runs.iter().map(unused).collect();
    let is_chosen = |leaf: &Vdev| leaves.is_none_or(|leaves| leaves.contains(&leaf.guid));
    let bytes = pool.pool.vdevs().discard(&unused, &is_chosen).await;
    tracing::debug!(pool = pool.pool.name(), runs = runs.len(), bytes, "trimmed");
}
