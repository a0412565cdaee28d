//! Blocks that could not be read: what the error log of the pool is made of (`spa_log_error`).
//!
//! A read that fails for good notes its block here. A pool that is open for writing writes the notes down
//! with the next group ([`crate::pool::live`], its module `errlog`), at the latest when a group is due. A
//! pool that is open only for reading cannot write them down: they are shown together with the persistent
//! log ([`crate::pool::errlog`]), and forgotten when the pool is closed.
//!
//! Blocks that are right again are noted here too, so that the log forgets them.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | everything; for a few lines, never across an await | taken alone |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use device::IgnorePoison;
use ondisk::Txg;

use crate::Bookmark;
use crate::txg::Txgs;

/// The largest number of blocks that are remembered. A pool with more damage than this has lost its disks,
/// and further blocks add no information.
const MAX_BLOCKS: usize = 100_000;
/// The most blocks that one group writes down; the others wait for the next one.
const MAX_IN_GROUP: usize = 10_000;

/// Blocks that could not be read.
#[derive(Debug, Default)]
pub struct Damage {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Blocks, with the groups in which they were written to their present places.
    found: BTreeMap<Bookmark, Txg>,
    /// Blocks that the group which is being committed writes down.
    being_written: BTreeMap<Bookmark, Txg>,
    mended: BTreeMap<Bookmark, Txg>,
    rotate: bool,
    /// Whether the log on the devices has entries.
    has_log: bool,
    /// The groups of a pool that is open for writing.
    txgs: Option<Weak<Txgs>>,
}

/// What the next group writes down.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// Blocks that could not be read, with their births.
    pub found: BTreeMap<Bookmark, Txg>,
    /// Blocks that are right again, or that nothing refers to any more.
    pub mended: BTreeMap<Bookmark, Txg>,
    /// A scan ended: its log takes the place of the last one.
    pub rotate: bool,
}

impl Damage {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// From now on, notes are written down with groups. `has_log`: whether the log on the devices has
    /// entries.
    pub(crate) fn is_written_with(&self, txgs: &Arc<Txgs>, has_log: bool) {
        let mut state = self.state();
        state.txgs = Some(Arc::downgrade(txgs));
        state.has_log = has_log;
        state.ask_for_group();
    }

    /// Notes a block that could not be read. `birth` is the group in which it was written to its present
    /// place.
    pub(crate) fn note(&self, at: &Bookmark, birth: Txg) {
        let mut state = self.state();
        if state.found.len() < MAX_BLOCKS && state.found.insert(*at, birth) != Some(birth) {
            state.mended.remove(at);
            state.ask_for_group();
        }
    }

    /// Notes that a block is right again, or that nothing refers to it any more. Nothing happens if the log
    /// does not know it.
    pub(crate) fn mended(&self, at: &Bookmark, birth: Txg) {
        let mut state = self.state();
        if state.found.get(at) == Some(&birth) {
            state.found.remove(at);
        }
        let has_log = state.has_log || state.being_written.contains_key(at);
        if has_log && state.txgs.is_some() && state.mended.len() < MAX_BLOCKS {
            state.mended.insert(*at, birth);
            state.ask_for_group();
        }
    }

    /// A scan ended: with the next group its log takes the place of the last one (`spa_errlog_rotate`).
    pub(crate) fn rotate(&self) {
        self.state().rotate = true;
    }

    /// What is to be written down, if anything is. The caller reports with [`Damage::written`].
    pub(crate) fn take(&self) -> Option<Noted> {
        let mut state = self.state();
        if state.found.is_empty() && state.mended.is_empty() && !state.rotate {
            return None;
        }
        state.being_written = first_of(&mut state.found);
        let noted = Noted {
            found: state.being_written.clone(),
            mended: first_of(&mut state.mended),
            rotate: std::mem::take(&mut state.rotate),
        };
        state.ask_for_group();
        Some(noted)
    }

    /// What was taken is part of the group that is being committed.
    pub(crate) fn written(&self, has_log: bool) {
        self.state().has_log = has_log;
    }

    /// The group is committed, and the log of the pool has what was taken.
    pub(crate) fn committed(&self) {
        self.state().being_written.clear();
    }

    /// All blocks that no committed group has in its log yet, in order, with the groups in which they were
    /// written.
    pub fn blocks(&self) -> Vec<(Bookmark, Txg)> {
        let state = self.state();
        let mut all = state.being_written.clone();
        all.extend(state.found.iter().map(|(at, birth)| (*at, *birth)));
        all.into_iter().collect()
    }
}

/// Takes as many blocks as one group writes down.
fn first_of(blocks: &mut BTreeMap<Bookmark, Txg>) -> BTreeMap<Bookmark, Txg> {
    let rest = match blocks.keys().nth(MAX_IN_GROUP).copied() {
        Some(first) => blocks.split_off(&first),
        None => BTreeMap::new(),
    };
    std::mem::replace(blocks, rest)
}

impl State {
    fn ask_for_group(&self) {
        if (!self.found.is_empty() || !self.mended.is_empty())
            && let Some(txgs) = self.txgs.as_ref().and_then(Weak::upgrade)
        {
            txgs.want_in_time();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txg::Limits;

    #[test]
    fn what_is_noted_is_shown_until_it_is_committed_and_mended_blocks_are_forgotten() {
        let damage = Damage::default();
        let (one, two) = (Bookmark::data(54, 2, 0), Bookmark::data(54, 2, 1));
        damage.note(&one, Txg(7));
        damage.note(&two, Txg(8));
        damage.mended(&one, Txg(6));
        assert_eq!(damage.blocks(), [(one, Txg(7)), (two, Txg(8))], "another block was mended");
        damage.mended(&one, Txg(7));
        let txgs = Txgs::new(Txg(9), Limits::default());
        damage.is_written_with(&txgs, false);
        let noted = damage.take().unwrap_or_default();
        assert_eq!(noted.found, BTreeMap::from([(two, Txg(8))]));
        assert!(noted.mended.is_empty() && !noted.rotate);
        assert_eq!(damage.blocks(), [(two, Txg(8))]);
        damage.written(true);
        damage.committed();
        assert!(damage.blocks().is_empty() && damage.take().is_none());
        damage.mended(&two, Txg(8));
        damage.rotate();
        let noted = damage.take().unwrap_or_default();
        assert!(noted.rotate && noted.found.is_empty() && noted.mended.contains_key(&two));
    }
}
