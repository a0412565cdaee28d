//! Pruning: entries of old blocks with one reference are removed, so that a table fits into memory.
//!
//! A block whose entry was removed is an ordinary block, though its pointers still say that it is
//! deduplicated ([`super`]). What is written later with the same contents gets an entry of its own.
//!
//! # What is left alone
//! - An entry that is live: the group that is being written refers to it, or gives it up, or may still do
//!   so. Its change is based on what the ZAP says.
//! - An entry in a log: its newest state is not in the ZAP.
//! - An entry whose block is being cloned, or was by a group that is not written yet ([`super::held`]).
//! - Entries of traditional tables. Versions of OpenZFS that write these take a missing entry for damage.
//!
//! Statistics change with each entry that goes. A prune takes a bounded number of entries in each group.
//!
//! Source of the facts: OpenZFS 2.4 `ddt.c` (`ddt_prune_unique_entries`, `prune_candidates_sync`).

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::ddt::{DdtClass, DdtKey, DdtPhys, PhysForm};

use super::Ddt;
use super::stored::{Place, WalkedZap, mos_to_walk};
use super::table::Table;
use crate::Pool;
use crate::error::Result;
use crate::mos::MosTask;

/// Entries that are looked at in one group.
const AT_ONCE: usize = 4096;
/// Entries that are looked at between two waits.
const KEYS: usize = 16 << 10;
/// Most different times that are told apart.
const MOST_TIMES: usize = 4096;
const SECONDS_OF_DAY: u64 = 24 * 60 * 60;

/// Which entries of blocks with one reference are to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// Those that are older than so many days.
    OlderThanDays(u64),
    /// So many percent of them, the oldest first.
    Percent(u64),
}

/// A prune that is under way. One of the oldest part goes through all entries twice: first to learn how old
/// they are.
#[derive(Debug)]
pub(crate) struct Pruning {
    place: Place,
    /// How old entries are, as long as that is learnt, and which part of them is to go.
    ages: Option<(Times, u64)>,
    /// Entries go that are no younger than this, in seconds since 1970.
    until: u64,
    /// No more go than these.
    left: u64,
    /// Those that went.
    pub pruned: u64,
    /// Entries that were looked at.
    pub looked_at: u64,
    /// About as many are looked at in all.
    pub total: u64,
}

/// When entries entered their class, with a number for each time. Times that are near each other become one
/// when there are too many.
#[derive(Debug, Default)]
struct Times {
    shift: u32,
    count_by_time: BTreeMap<u64, u64>,
    total: u64,
}

impl Times {
    fn add(&mut self, seconds: u64) {
        *self.count_by_time.entry(seconds >> self.shift).or_default() += 1;
        self.total += 1;
        while self.count_by_time.len() > MOST_TIMES {
            self.shift += 1;
            for (time, count) in std::mem::take(&mut self.count_by_time) {
                *self.count_by_time.entry(time >> 1).or_default() += count;
            }
        }
    }

    /// The time up to which there are at least `wanted`.
    fn until(&self, wanted: u64) -> u64 {
        let mut sum = 0;
        let found = self.count_by_time.iter().find(|(_, count)| {
            sum += **count;
            sum >= wanted
        });
        found.map_or(u64::MAX, |(time, _)| (*time << self.shift) | ((1 << self.shift) - 1))
    }
}

/// When an entry of a block with one reference entered its class; none of other entries.
fn since(phys: &DdtPhys) -> Option<u64> {
    match phys {
        DdtPhys::Flat(flat) if flat.slot.is_used() && flat.slot.refcount == 1 => Some(flat.class_start),
        _ => None,
    }
}

impl Pruning {
    /// A prune of tables with about so many entries that may go, as of this time in seconds since 1970.
    pub(crate) fn begin(prune: Prune, now: u64, entries: u64) -> Self {
        let begun = Self {
            place: Place::default(),
            ages: None,
            until: 0,
            left: u64::MAX,
            pruned: 0,
            looked_at: 0,
            total: entries,
        };
        match prune {
            Prune::OlderThanDays(days) => {
                Self { until: now.saturating_sub(days.saturating_mul(SECONDS_OF_DAY)), ..begun }
            }
            Prune::Percent(percent) => Self {
                ages: Some((Times::default(), percent.min(100))),
                total: entries.saturating_mul(2),
                ..begun
            },
        }
    }

    /// Goes on with learning how old entries are, as of this state. False when that is known.
    pub(crate) async fn learn_some(&mut self, view: &Arc<Pool>) -> Result<bool> {
        let Some((times, percent)) = &mut self.ages else { return Ok(false) };
        let Some(zap) = self.place.zap(&mos_to_walk(view).await?).await? else {
            let wanted = u128::from(times.total) * u128::from(*percent) / 100;
            self.left = u64::try_from(wanted).unwrap_or(u64::MAX);
            self.until = times.until(self.left);
            (self.ages, self.place) = (None, Place::default());
            return Ok(false);
        };
        if !has_candidates(&zap) {
            self.place = zap.after();
            return Ok(true);
        }
        let (entries, next) = zap.entries(KEYS).await?;
        entries.iter().filter_map(|(_, phys)| since(phys)).for_each(|seconds| times.add(seconds));
        self.place = next;
        self.looked_at += entries.len() as u64;
        Ok(true)
    }

    /// Whether it is not known yet which entries are to go.
    pub(crate) fn is_learning(&self) -> bool {
        self.ages.is_some()
    }
}

/// Whether entries of this ZAP may go.
fn has_candidates(zap: &WalkedZap) -> bool {
    zap.class == DdtClass::Unique && zap.form == PhysForm::Flat
}

impl Ddt {
    /// About as many entries as a prune looks at, once.
    pub(crate) fn prunable(&self) -> u64 {
        self.tables().values().map(Table::prunable).fold(0, u64::saturating_add)
    }

    /// Goes on with a prune. False when it is over.
    pub(crate) async fn prune_some(&self, m: &MosTask, pruning: &mut Pruning) -> Result<bool> {
        if pruning.left == 0 {
            return Ok(false);
        }
        let Some(zap) = pruning.place.zap(&m.mos().view()).await? else { return Ok(false) };
        if !has_candidates(&zap) {
            pruning.place = zap.after();
            return Ok(true);
        }
        let (entries, next) = zap.entries(AT_ONCE).await?;
        pruning.place = next;
        pruning.looked_at += entries.len() as u64;
        let raw = zap.checksum.raw();
        // Only the sync looks at tables, and this is the sync.
        let Some(mut table) = self.tables().remove(&raw) else { return Ok(true) };
        let is_old = |(_, phys): &(DdtKey, DdtPhys)| since(phys).is_some_and(|since| since <= pruning.until);
        let old = entries.into_iter().filter(is_old).filter(|(key, _)| !table.is_in_memory(key));
        let most = usize::try_from(pruning.left).unwrap_or(usize::MAX);
        let old = old.filter(|(key, _)| self.held.let_go(&(zap.checksum, *key)));
        let old: Vec<(DdtKey, DdtPhys)> = old.take(most).collect();
        let pruned = table.prune(m, &old).await;
        self.tables().insert(raw, table);
        pruned?;
        pruning.pruned += old.len() as u64;
        pruning.left -= old.len() as u64;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_part_of_entries_is_found_by_their_times() {
        let mut times = Times::default();
        assert_eq!(times.until(0), u64::MAX);
        for seconds in [50, 10, 20, 20, 40, 30, 60, 70, 80, 90] {
            times.add(seconds);
        }
        for (wanted, until) in [(0, 10), (1, 10), (2, 20), (3, 20), (4, 30), (10, 90), (11, u64::MAX)] {
            assert_eq!(times.until(wanted), until, "{wanted}");
        }
        let mut times = Times::default();
        (0..100_000).for_each(|seconds| times.add(1_700_000_000 + seconds));
        assert!(times.count_by_time.len() <= MOST_TIMES);
        let until = times.until(25_000) - 1_700_000_000;
        assert!((24_999..25_100).contains(&until), "{until}");
    }
}
