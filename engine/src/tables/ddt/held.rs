//! Entries of blocks that are about to be cloned: they are not pruned, and what was pruned is not cloned.
//!
//! # Why
//! A clone of a deduplicated block is one reference more of its entry. Where a prune has removed the entry
//! there is nothing to count it: it would be counted in the block reference table, and versions of OpenZFS
//! free such a block while a clone refers to it ([`crate::tables`]). So it is copied.
//!
//! # The race
//! A clone is accepted while its group is open, and counted when that is written. In between, earlier groups
//! are written, and one of them may prune. Therefore the code that clones *holds* the entries of its blocks,
//! from before it looks for them until its group counts them:
//!
//! | the prune comes | what happens |
//! |---|---|
//! | before the entry is held | it is *going*: the look-up says that it is not there |
//! | after that, in an earlier group | it finds the entry held, and leaves it |
//! | in the group of the clone | the clone is counted first: the entry has two references and stays |
//! | in a later group | the same |
//!
//! An entry stays held until then even if the clone is overwritten in its group: a crash may leave a record
//! of it in the intent log, whose replay refers to the block once more.
//!
//! # Looking
//! Clones are made beside the sync, which has the tables to itself while it writes them. So a look-up asks
//! what is in memory first, and then the ZAPs as the newest view has them. *It is there* is always right:
//! the code that clones a block has a pointer to it, so its references do not end; prunes are seen as above.
//! *It is not there* may be wrong while a group is written, as entries are on their way from a log to a ZAP.
//! Then the look-up waits for the commit and tries once more. If it is wrong again, a block is copied that
//! could have been shared.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};

use device::IgnorePoison;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use ondisk::Txg;
use ondisk::blkptr::Blkptr;
use ondisk::ddt::DdtPhys;

use super::packed::unpack;
use super::stored::{mos_of, stored_tables};
use super::{Ddt, entry_of};
use crate::Pool;
use crate::dmu::references::{Hold, References};
use crate::dmu::zap::Zap;
use crate::error::Result;
use crate::txg::Txgs;
use crate::zio::dedup::EntryId;

/// Entries that are looked up side by side.
const AT_ONCE: usize = 32;

/// Gives the newest committed state of a pool.
pub(crate) trait Newest: Send + Sync + Debug {
    /// The state, whose blocks stay as long as it is used.
    fn newest(&self) -> Arc<Pool>;
}

#[derive(Debug, Default)]
struct State {
    /// Held by code that runs, how often.
    by_holders: HashMap<EntryId, usize>,
    /// Held until references of a group are counted.
    by_group: BTreeMap<Txg, HashSet<EntryId>>,
    /// Pruned by the group that is being written.
    going: HashSet<EntryId>,
    /// The group that is being written.
    syncing: Option<Txg>,
    /// How often that changed.
    changes: u64,
}

/// The entries that are held.
#[derive(Debug, Default)]
pub(super) struct HeldEntries(Mutex<State>);

impl HeldEntries {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().ignore_poison()
    }

    /// A group begins to be written.
    pub(super) fn begin(&self, txg: Txg) {
        let mut state = self.state();
        if state.syncing != Some(txg) {
            (state.syncing, state.changes) = (Some(txg), state.changes + 1);
            state.going.clear();
        }
    }

    /// The references of a group are counted.
    pub(super) fn counted(&self, txg: Txg) {
        let mut state = self.state();
        let later = state.by_group.split_off(&Txg(txg.get() + 1));
        state.by_group = later;
    }

    /// The group that was written is committed.
    pub(super) fn committed(&self) {
        let mut state = self.state();
        (state.syncing, state.changes) = (None, state.changes + 1);
        state.going.clear();
    }

    /// Whether an entry may be pruned. If so it is going.
    pub(super) fn let_go(&self, entry: &EntryId) -> bool {
        let mut state = self.state();
        let is_held = state.by_holders.contains_key(entry)
            || state.by_group.values().any(|entries| entries.contains(entry));
        if !is_held {
            state.going.insert(*entry);
        }
        !is_held
    }

    fn hold(&self, entries: &[EntryId]) {
        let mut state = self.state();
        entries.iter().for_each(|entry| *state.by_holders.entry(*entry).or_default() += 1);
    }

    fn release(&self, entries: &[EntryId]) {
        let mut state = self.state();
        for entry in entries {
            if let Some(holders) = state.by_holders.get_mut(entry) {
                *holders -= 1;
                if *holders == 0 {
                    state.by_holders.remove(entry);
                }
            }
        }
    }

    fn hold_until_counted(&self, txg: Txg, entries: &[EntryId]) {
        self.state().by_group.entry(txg).or_default().extend(entries);
    }

    /// The group that is being written, and how often that has changed.
    fn moment(&self) -> (Option<Txg>, u64) {
        let state = self.state();
        (state.syncing, state.changes)
    }

    fn are_going(&self, entries: &[(EntryId, Blkptr)]) -> Vec<bool> {
        let state = self.state();
        entries.iter().map(|(entry, _)| state.going.contains(entry)).collect()
    }
}

/// Holds deduplicated blocks of a pool.
#[derive(Debug)]
pub(crate) struct DedupReferences {
    ddt: Arc<Ddt>,
    txgs: Arc<Txgs>,
    views: Arc<dyn Newest>,
}

#[derive(Debug)]
struct HeldBlocks {
    ddt: Arc<Ddt>,
    entries: Vec<EntryId>,
    refused: HashSet<Blkptr>,
}

impl Hold for HeldBlocks {
    fn refuses(&self, bp: &Blkptr) -> bool {
        self.refused.contains(bp)
    }

    fn until_counted(&self, txg: Txg) {
        self.ddt.held.hold_until_counted(txg, &self.entries);
    }
}

impl Drop for HeldBlocks {
    fn drop(&mut self) {
        self.ddt.held.release(&self.entries);
    }
}

impl DedupReferences {
    pub(crate) fn new(ddt: Arc<Ddt>, txgs: Arc<Txgs>, views: Arc<dyn Newest>) -> Self {
        Self { ddt, txgs, views }
    }

    async fn hold_all(&self, blocks: Vec<Blkptr>) -> Result<Box<dyn Hold>> {
        let (mut wanted, mut refused) = (Vec::new(), HashSet::new());
        for bp in blocks {
            match entry_of(&bp) {
                Some(entry) => wanted.push((entry, bp)),
                None => {
                    refused.insert(bp);
                }
            }
        }
        let entries: Vec<EntryId> = wanted.iter().map(|(entry, _)| *entry).collect();
        self.ddt.held.hold(&entries);
        let mut held = HeldBlocks { ddt: Arc::clone(&self.ddt), entries, refused };
        for is_last in [false, true] {
            let before = self.ddt.held.moment();
            wanted = self.ddt.not_there(&self.views.newest(), wanted).await?;
            let after = self.ddt.held.moment();
            let is_sure = before.0.is_none() && before == after;
            if is_sure || is_last || wanted.is_empty() {
                break;
            }
            if let (Some(syncing), _) = after {
                self.txgs.wait_synced(syncing).await?;
            }
        }
        held.refused.extend(wanted.into_iter().map(|(_, bp)| bp));
        Ok(Box::new(held))
    }
}

impl References for DedupReferences {
    fn hold(&self, blocks: Vec<Blkptr>) -> BoxFuture<'_, Result<Box<dyn Hold>>> {
        Box::pin(self.hold_all(blocks))
    }
}

/// Whether an entry counts the block that a pointer leads to.
fn counts(phys: &DdtPhys, bp: &Blkptr) -> bool {
    phys.all_slots().iter().any(|slot| slot.is_of(bp) && slot.refcount > 0)
}

impl Ddt {
    /// Those blocks of held entries that no table counts.
    async fn not_there(
        &self,
        view: &Arc<Pool>,
        blocks: Vec<(EntryId, Blkptr)>,
    ) -> Result<Vec<(EntryId, Blkptr)>> {
        let (mut not_there, mut to_read) = (Vec::new(), Vec::new());
        let are_going = self.held.are_going(&blocks);
        {
            let (tables, filters) = (self.tables(), self.filters());
            for (block, is_going) in blocks.into_iter().zip(are_going) {
                let ((checksum, key), bp) = &block;
                let in_memory = tables.get(&checksum.raw()).and_then(|table| table.value_in_memory(key));
                match in_memory {
                    _ if is_going => not_there.push(block),
                    Some(phys) if counts(&phys, bp) => {}
                    Some(_) => not_there.push(block),
                    None if filters.may_have(*checksum, &key.words()) => to_read.push(block),
                    None => not_there.push(block),
                }
            }
        }
        if !to_read.is_empty() {
            not_there.extend(not_stored(view, to_read).await?);
        }
        Ok(not_there)
    }
}

/// Those blocks that no ZAP of a state counts. An entry that cannot be read counts nothing.
async fn not_stored(view: &Arc<Pool>, blocks: Vec<(EntryId, Blkptr)>) -> Result<Vec<(EntryId, Blkptr)>> {
    let mut zaps = Vec::new();
    for table in stored_tables(&mos_of(view).await?).await? {
        for (_, object) in table.zaps {
            zaps.push((table.checksum, table.form, Zap::open(&object).await?));
        }
    }
    let zaps = &zaps;
    let looked_up = stream::iter(blocks).map(|block| async move {
        let ((checksum, key), bp) = &block;
        for (_, form, zap) in zaps.iter().filter(|(of, ..)| of == checksum) {
            match zap.lookup_words(&key.words()).await {
                Ok(Some(value)) => return Ok((!counts(&unpack(&value, *form)?, bp)).then_some(block)),
                Ok(None) => {}
                Err(error) if error.is_damage() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Some(block))
    });
    let not_there: Vec<Option<(EntryId, Blkptr)>> = looked_up.buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(not_there.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use ondisk::blkptr::{ChecksumType, CompressType};
    use ondisk::ddt::DdtKey;
    use ondisk::{Lsize, Psize};

    use super::*;

    fn entry(number: u64) -> EntryId {
        let key = DdtKey::of_parts([number, 2, 3, 4], Lsize(4096), Psize(4096), CompressType::Off);
        (ChecksumType::Sha256, key)
    }

    #[test]
    fn an_entry_is_held_until_the_references_of_its_group_are_counted() {
        let held = HeldEntries::default();
        held.begin(Txg(5));
        held.hold(&[entry(1), entry(1), entry(2)]);
        assert!(!held.let_go(&entry(1)) && held.let_go(&entry(3)));
        held.hold_until_counted(Txg(7), &[entry(1)]);
        held.release(&[entry(1), entry(1), entry(2)]);
        assert!(!held.let_go(&entry(1)) && held.let_go(&entry(2)));
        for earlier in [5, 6] {
            held.counted(Txg(earlier));
            assert!(!held.let_go(&entry(1)), "{earlier}");
        }
        held.counted(Txg(7));
        assert!(held.let_go(&entry(1)));
        let state = held.state();
        assert!(state.by_group.is_empty() && state.by_holders.is_empty());
    }

    #[test]
    fn what_a_group_pruned_is_going_until_its_commit() {
        let held = HeldEntries::default();
        let blocks = [(entry(1), Blkptr::HOLE), (entry(2), Blkptr::HOLE)];
        held.begin(Txg(5));
        assert!(held.let_go(&entry(2)));
        held.begin(Txg(5));
        assert_eq!(held.are_going(&blocks), [false, true]);
        let during = held.moment();
        held.committed();
        assert_eq!(held.are_going(&blocks), [false, false]);
        assert!(during.0 == Some(Txg(5)) && held.moment() != during && held.moment().0.is_none());
    }
}
