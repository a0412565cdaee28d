//! The dedup tables of a pool that is open for writing: which block has which content, and how many
//! references it has.
//!
//! # The idea
//! There is a [`Table`] for each checksum function in use. Blocks of datasets with `dedup` are looked up
//! there before they get a place ([`crate::zio::dedup`]); a block that is found gets one reference more, one
//! that is not gets an entry. The frees of blocks whose pointers say that they are deduplicated come here
//! first, and take a reference away. A block whose references are all gone is freed when the group's changes
//! are written: until then a write of the same bytes may use it again.
//!
//! # One group
//! The entries that a group needs are *live* ([`live`]): in memory, with all changes of the group. All of it
//! happens in the sync of the group, in this order:
//!
//! 1. [`Ddt::begin`], which measures how many entries the group may add; references by clones
//!    ([`Ddt::reference`]).
//! 2. Datasets are written: [`DedupTable::load`] brings the entries of a batch into memory, many at a time;
//!    [`DedupTable::change`] changes them. Frees: [`Ddt::release`]. Of most new blocks the [`filter`] knows
//!    that no ZAP has them. The keys that are left are looked up in their order, and each leaf is read once.
//! 3. [`Ddt::write`]: space without references is freed, and the changed entries are written. A table with a
//!    log appends them to it, and moves a share of older ones from the log into the ZAPs ([`log`]); a table
//!    without writes them into the ZAPs. Then nothing is live any more.
//!
//! The ZAPs and logs do not change before the third step, so steps one and two read them as the last group
//! left them. They are objects of the MOS, which is written after that. An error in any step stops the pool:
//! what is in memory is not brought back.
//!
//! # Which kind of table
//! A table is made when it gets its first entry: of the fast kind (flat entries, with a log, counted by the
//! feature `fast_dedup`) where the pool has that feature, otherwise of the traditional kind. It keeps its
//! kind until it has no entry; then it goes, and the next one is of the kind of that time.
//!
//! # Pruned entries
//! [`prune`] removes entries of blocks with one reference when a table gets too large. The pointer to such a
//! block still says that it is deduplicated. So a pointer that no entry knows (its key is not there, or has
//! another block by now) leads to an ordinary block ([`Released::Unknown`]). Traditional tables are never
//! pruned: there a missing entry is damage, and the space of the block stays allocated rather than being
//! freed under other pointers.
//!
//! No reference is added to such a block: what would be a clone of it is a copy ([`held`]).
//!
//! # Statistics
//! Each ZAP of entries has a histogram in `DDT-statistics`. An entry that is in a log counts there no longer,
//! as what the ZAP says of it is outdated: the readers of statistics add the logs' entries
//! ([`crate::dsl::pool_space`]). [`Ddt::saved_bytes`] is the sum of both, as of the last group.
//!
//! # Not yet
//! Entries are not extended with copies: a block that wants more than its entry has is stored once more, as
//! an ordinary block.
//!
//! | module | what it owns |
//! |---|---|
//! | [`counters`] | how look-ups ended |
//! | [`fill`] | the walk that fills a filter |
//! | [`filter`] | knowing new blocks without a look-up |
//! | [`held`] | entries of blocks that are about to be cloned |
//! | [`kept`] | entries in memory |
//! | [`live`] | entries with the changes of a group |
//! | [`log`] | the two logs of a fast table |
//! | [`packed`] | values of entries in the ZAPs |
//! | [`prune`] | removing entries of old blocks with one reference |
//! | [`quota`] | how many entries a group may add |
//! | [`stored`] | the ZAPs in a committed state, for walks |
//! | [`table`] | one table: its objects, look-up, writing |
//!
//! Source of the facts: OpenZFS 2.4 `ddt.c`, `ddt_log.c`, `ddt_zap.c`, `ddt_stats.c`.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `tables` | tables and live entries; never across an await | before `filters`, and the allocator's |
//! | `filters` | the filters; never across an await | before the ARC's |
//! | `held` | what is held; never across an await | alone |

mod counters;
mod fill;
mod filter;
mod held;
mod kept;
mod live;
mod log;
mod packed;
mod prune;
mod quota;
pub(crate) mod stored;
mod table;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use device::IgnorePoison;
use futures_util::future::BoxFuture;
use ondisk::blkptr::{Blkptr, ChecksumType};
use ondisk::ddt::{self, DdtKey, DdtStat};
use ondisk::features::Feature;
use ondisk::pool_directory::{DDT_STATISTICS, DIRECTORY_OBJECT};
use ondisk::{ObjectId, Txg};

use crate::Block;
use crate::dmu::LiveObjset;
use crate::dmu::zap::edit;
use crate::error::{Error, Result};
use crate::mos::MosTask;
use crate::zio::dedup::{Change, DedupTable, Entry, EntryId};
use counters::Counters;
use filter::Filters;
use held::HeldEntries;
use live::Live;
use table::{Kind, Table};

pub use counters::DedupCounters;
pub(crate) use fill::Fill;
pub(crate) use held::{DedupReferences, Newest};
pub use prune::Prune;
pub(crate) use prune::Pruning;

/// The most slots of an entry.
const SLOTS: usize = 4;

/// What became of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Released {
    /// A table counted it: the caller frees nothing.
    Counted,
    /// No table knows the block.
    Unknown,
}

/// The dedup tables of a pool.
#[derive(Debug)]
pub(crate) struct Ddt {
    mos: Arc<LiveObjset>,
    tables: Mutex<BTreeMap<u8, Table>>,
    filters: Mutex<Filters>,
    held: HeldEntries,
    counters: Counters,
    /// Whether new tables are of the fast kind.
    makes_fast: AtomicBool,
    room: quota::Room,
    saved_bytes: AtomicU64,
}

/// The checksum functions that tables can have.
fn has_table(checksum: ChecksumType) -> bool {
    checksum.is_nopwrite()
}

/// The entry of the block that a pointer leads to.
fn entry_of(bp: &Blkptr) -> Option<EntryId> {
    let checksum = bp.checksum_type();
    (bp.is_dedup() && has_table(checksum)).then(|| (checksum, DdtKey::of(bp)))
}

impl Ddt {
    /// No tables yet.
    pub(super) fn none(mos: &Arc<LiveObjset>) -> Self {
        Self {
            mos: Arc::clone(mos),
            tables: Mutex::default(),
            filters: Mutex::new(Filters::within(mos.pool().store().cache())),
            held: HeldEntries::default(),
            counters: Counters::default(),
            makes_fast: AtomicBool::new(false),
            room: quota::Room::default(),
            saved_bytes: AtomicU64::new(0),
        }
    }

    /// Reads the tables of a pool, without their stored entries, and replays their logs.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: a table that cannot be written.
    pub(super) async fn load(mos: &Arc<LiveObjset>) -> Result<Self> {
        let mut tables = BTreeMap::new();
        for checksum in ChecksumType::ALL.iter().copied() {
            let Some(table) = Table::load(mos, checksum).await? else { continue };
            if !has_table(checksum) {
                let why =
                    format!("its dedup table of {checksum} was made by a version before the first release");
                return Err(Error::Unsupported(why));
            }
            tables.insert(checksum.raw(), table);
        }
        let ddt = Self::none(mos);
        *ddt.tables() = tables;
        Ok(ddt)
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<u8, Table>> {
        self.tables.lock().ignore_poison()
    }

    fn filters(&self) -> MutexGuard<'_, Filters> {
        self.filters.lock().ignore_poison()
    }

    /// What became of look-ups, and what filters and logs have.
    pub(crate) fn counters(&self) -> DedupCounters {
        let (logged_entries, flushing_entries) = {
            let tables = self.tables();
            let logs = tables.values().filter_map(Table::logged);
            logs.fold((0, 0), |(all, flushing), log| (all + log.0, flushing + log.1))
        };
        let filters = self.filters();
        DedupCounters {
            has_filter: filters.is_complete(),
            filter_bytes: filters.bytes(),
            logged_entries,
            flushing_entries,
            ..self.counters.get()
        }
    }

    /// Whether there is a table.
    pub(super) fn has_table(&self) -> bool {
        self.tables().values().any(|table| !table.is_nowhere())
    }

    /// Whether entries are in logs.
    pub(crate) fn has_logged(&self) -> bool {
        self.tables().values().any(|table| table.logged_keys().next().is_some())
    }

    /// The deflated bytes that deduplicated blocks would occupy in addition if each pointer had its own.
    pub(super) fn saved_bytes(&self) -> u64 {
        self.saved_bytes.load(Ordering::Relaxed)
    }

    /// The sync of a group begins.
    pub(super) async fn begin(&self, m: &MosTask) -> Result<()> {
        self.held.begin(m.txg());
        self.makes_fast.store(m.feature_enabled(Feature::FastDedup), Ordering::Relaxed);
        self.count_saved(m);
        self.begin_filter();
        let objects: Vec<ObjectId> = self.tables().values().flat_map(Table::objects).collect();
        self.room.measure(m, &objects).await
    }

    /// The group that was written is committed: the newest view has it.
    pub(super) fn committed(&self) {
        self.held.committed();
    }

    /// Begins a filter if it is time. Nothing is live now, and what the logs have is what they had when the
    /// last group was committed.
    fn begin_filter(&self) {
        let tables = self.tables();
        let mut filters = self.filters();
        let entries = tables.values().map(Table::entries).fold(0, u64::saturating_add);
        if filters.is_due(entries) {
            let keys = tables.values().flat_map(|table| {
                let checksum = table.checksum();
                table.logged_keys().map(move |words| (checksum, words))
            });
            filters.begin(entries, keys);
        }
    }

    fn enter_into_filters(&self, checksum: ChecksumType, changes: &[(DdtKey, Live)]) {
        let mut filters = self.filters();
        changes.iter().for_each(|(key, _)| filters.enter(checksum, &key.words()));
    }

    fn kind_of_new(&self) -> Kind {
        if self.makes_fast.load(Ordering::Relaxed) { Kind::FAST } else { Kind::TRADITIONAL }
    }

    /// Brings the entries of blocks into memory.
    pub(super) async fn load_of(&self, blocks: &[Blkptr]) -> Result<()> {
        self.load_all(blocks.iter().filter_map(entry_of).collect()).await
    }

    async fn load_all(&self, mut entries: Vec<EntryId>) -> Result<()> {
        entries.sort_unstable_by_key(|(checksum, key)| (checksum.raw(), key.words()));
        entries.dedup();
        for (checksum, zaps, keys) in self.not_in_memory(entries)? {
            let found = zaps.look_up(&self.mos, keys).await?;
            self.counters.read(&found);
            let mut tables = self.tables();
            let Some(table) = tables.get_mut(&checksum.raw()) else { continue };
            // Another batch may have brought some meanwhile.
            found.into_iter().try_for_each(|found| table.make_live(found))?;
        }
        Ok(())
    }

    /// Makes entries live that are in memory, or that are surely new. Gives the others by table, in the order
    /// of keys.
    fn not_in_memory(&self, entries: Vec<EntryId>) -> Result<Vec<(ChecksumType, table::Zaps, Vec<DdtKey>)>> {
        let kind = self.kind_of_new();
        let mut tables = self.tables();
        let filters = self.filters();
        let mut to_read: Vec<(ChecksumType, table::Zaps, Vec<DdtKey>)> = Vec::new();
        for (checksum, key) in entries {
            let table = tables.entry(checksum.raw()).or_insert_with(|| Table::new(checksum, kind));
            if table.find_in_memory(&key)? {
                continue;
            }
            let zaps = table.zaps();
            if zaps.are_none() {
                table.make_live((key, None))?;
            } else if !filters.may_have(checksum, &key.words()) {
                self.counters.surely_new.fetch_add(1, Ordering::Relaxed);
                table.make_live((key, None))?;
            } else {
                match to_read.last_mut().filter(|(of, ..)| *of == checksum) {
                    Some((_, _, keys)) => keys.push(key),
                    None => to_read.push((checksum, zaps, vec![key])),
                }
            }
        }
        Ok(to_read)
    }

    /// Changes a live entry.
    fn with<T>(&self, entry: &EntryId, change: impl FnOnce(&mut Live) -> Result<T>) -> Result<T> {
        let (checksum, key) = entry;
        let mut tables = self.tables();
        let live = tables.get_mut(&checksum.raw()).and_then(|table| table.live.get_mut(&key.words()));
        change(live.ok_or_else(|| Error::corrupt("a dedup table", "an entry that was not loaded"))?)
    }

    /// Counts references to deduplicated blocks, one for each given pointer. Gives the pointers of those that
    /// no table knows, and of all others that are not deduplicated.
    pub(super) async fn reference(&self, txg: Txg, pointers: &[Blkptr]) -> Result<Vec<Blkptr>> {
        self.load_of(pointers).await?;
        let mut ordinary = Vec::new();
        for bp in pointers {
            let is_counted = match entry_of(bp) {
                Some(entry) => self.with(&entry, |live| live.refer_to(bp))?,
                None => false,
            };
            if !is_counted {
                ordinary.push(*bp);
            }
        }
        self.held.counted(txg);
        Ok(ordinary)
    }

    /// A reference to a block is gone.
    pub(super) async fn release(&self, bp: &Blkptr) -> Result<Released> {
        let Some(entry) = entry_of(bp) else { return Ok(Released::Unknown) };
        self.load_of(std::slice::from_ref(bp)).await?;
        if self.with(&entry, |live| live.release(bp))? {
            return Ok(Released::Counted);
        }
        let may_be_pruned = self.tables().get(&entry.0.raw()).is_some_and(Table::may_be_pruned);
        if may_be_pruned {
            return Ok(Released::Unknown);
        }
        tracing::warn!(%bp, "a block is missing in its dedup table: its space stays allocated");
        Ok(Released::Counted)
    }

    /// Writes the changes of the group, and a share of what logs hold.
    pub(super) async fn write(&self, m: &MosTask) -> Result<()> {
        let all: Vec<u8> = self.tables().keys().copied().collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut statistics = m.directory_u64(DDT_STATISTICS).await?.map(ObjectId);
        for raw in all {
            // Only the sync looks at tables, and this is the sync.
            let Some(mut table) = self.tables().remove(&raw) else { continue };
            let changes = table.take_changes();
            self.enter_into_filters(table.checksum(), &changes);
            if changes.is_empty() && table.is_nowhere() {
                continue;
            }
            let statistics = match statistics {
                Some(statistics) => statistics,
                None => *statistics.insert(create_statistics(m).await?),
            };
            if table.write(m, statistics, changes).await? {
                self.tables().insert(raw, table);
            }
        }
        self.count_saved(m);
        Ok(())
    }

    /// Counts what deduplication saves, as of now.
    fn count_saved(&self, m: &MosTask) {
        let mut total = DdtStat::default();
        self.tables().values_mut().for_each(|table| total.add(&table.statistics(m)));
        self.saved_bytes.store(total.ref_dsize.saturating_sub(total.dsize), Ordering::Relaxed);
    }
}

/// The ZAP of the statistics of all tables. It never goes.
async fn create_statistics(m: &MosTask) -> Result<ObjectId> {
    let zap = m.create_zap(ondisk::dmu::DmuType::DDT_STATS).await?;
    let directory = m.mos().object(DIRECTORY_OBJECT).await?;
    edit::set_u64(&directory, &m.tx, DDT_STATISTICS, zap.id().get()).await?;
    Ok(zap.id())
}

impl DedupTable for Ddt {
    fn load(&self, entries: Vec<EntryId>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.load_all(entries))
    }

    fn entry(&self, (checksum, key): &EntryId, copies: u8, made: usize) -> Entry {
        let tables = self.tables();
        let live = tables.get(&checksum.raw()).and_then(|table| table.live.get(&key.words()));
        let Some(live) = live else { return Entry::Unfit };
        match live.entry(key, copies) {
            Entry::New if live.is_nowhere() && !self.room.has_one_after(made) => Entry::Unfit,
            entry => entry,
        }
    }

    fn being_written(&self, (checksum, key): &EntryId, copies: u8) -> Option<Block> {
        let tables = self.tables();
        let table = tables.get(&checksum.raw())?;
        let place = ddt::DdtPhys::place_of(table.form(), copies);
        table.being_written.get(&(key.words(), place)).cloned()
    }

    fn change(&self, changes: Vec<(EntryId, u8, Change)>) -> Result<()> {
        let mut tables = self.tables();
        for ((checksum, key), copies, change) in changes {
            let table = tables.get_mut(&checksum.raw());
            let found = table.and_then(|Table { live, being_written, .. }| {
                Some((live.get_mut(&key.words())?, being_written))
            });
            let (live, being_written) =
                found.ok_or_else(|| Error::corrupt("a dedup table", "an entry that was not loaded"))?;
            match change {
                Change::Stored(block, bytes) => {
                    if live.is_nowhere() {
                        self.room.take_one();
                    }
                    live.store(copies, &block)?;
                    let place = ddt::DdtPhys::place_of(live.form(), copies);
                    bytes.map(|bytes| being_written.insert((key.words(), place), bytes));
                }
                Change::Referred => live.refer(copies)?,
            }
        }
        Ok(())
    }

    fn written(&self, entries: &[EntryId]) {
        let mut tables = self.tables();
        for (checksum, key) in entries {
            let Some(table) = tables.get_mut(&checksum.raw()) else { continue };
            if !table.being_written.is_empty() {
                (0..SLOTS).for_each(|place| drop(table.being_written.remove(&(key.words(), place))));
            }
        }
    }
}
