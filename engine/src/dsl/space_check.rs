//! Room for data: refusing what would not fit before it is accepted.
//!
//! # The idea
//! What is accepted must be written, or the pool stops. So what accepts data asks first, while it holds the
//! group that the data will be in. Each demand ([`Dirtied`]: blocks, indirect blocks, descriptions of
//! files) has two prices, both in deflated bytes as free space is counted ([`costs`]):
//!
//! | price | of | bounded by | says |
//! |---|---|---|---|
//! | exact | blocks as they are before compression, in whole sectors, with parity, padding and copies; a share for metadata | quotas and reservations ([`tempreserve`]); of the pool, what is free less half of the slop | whether the data fit at all |
//! | worst | the same as gangs, where blocks are not sure to find a free run; all indirect blocks, dnodes and directory leaves with the copies that metadata have; entries of space maps | what is free less a part of the slop that is for the MOS | whether they fit into this group |
//!
//! What is accepted counts until its group is committed and the figures include it. The sum of worst prices
//! of the groups under way, and what logs were lent, never exceeds what is free: this is why no group lacks
//! space. It is far above what blocks take, so as a pool fills its groups become small, and what does not fit
//! waits until the groups under way are committed ([`Txgs::begin_dirtying`]). What each group writes once,
//! above all indirect blocks, is the larger a part of it the smaller it is. So a group that lacks room is not
//! committed before it has seven eighths of what it may have with no other under way. What was freed waits to
//! be reusable for two more: [`with_room`] tries again that often. It costs speed near the end, and no room:
//! how full a pool gets is up to the exact price.
//!
//! # What the prices rest on
//! - Space: sectors that may be handed out. What was freed and waits for its two groups is not free.
//! - A block that the group has dirty already costs nothing more, unless it began to be written early
//!   (`dmu::live::dmu_sync`). One that is written early counts once more from then on: it is claimed after a
//!   crash, and written again by the replay. Where it is claimed it may cut a free run in two, as may a block
//!   of a log, so both also count with the longest part that is lost by that ([`Costs::apart`]).
//! - Which blocks can become gangs follows from the free runs ([`costs`]).
//! - Overwriting counts like anything else, since the new block is written before the old one is free.
//! - An indirect block that was compressed since its object was opened, to half of its size at most, counts
//!   with its bytes on disk, and with what it grows by for each pointer that changes
//!   (`codec::compress::POINTER_GROWTH`). All others count with their size. Random writes touch an indirect
//!   block each, so this decides how large the groups of a nearly full pool are.
//! - A user that raises `copies` while a group is open pays for what that accepted; where there is no room for
//!   it, what was accepted is written as it was accepted ([`DatasetRoom::write_more_copies`]).
//! - A clone takes no block. It counts for quotas as if it did; of the pool it takes indirect blocks and
//!   entries in the block reference table.
//! - A deduplicated block counts as if it were stored, and with its entry: at worst that is a leaf of a
//!   traditional table, or a record in the log of a fast one. What a group flushes of a log is of the slop.
//! - The first demand of a dataset in a group pays for what is written once: the dnodes' indirect blocks,
//!   counts of users, deadlists, the object set's own block.
//! - What the MOS takes beside that is bounded by the part of the slop that no other user is given.
//!
//! # Giving space back
//! Removing files makes dnodes and directory leaves dirty too. Such changes have half of what is kept for the
//! MOS beside what others have, wait for groups when that is used up, and go on without when nothing is under
//! way that they could wait for: one alone always fits.
//!
//! # Intent logs
//! What a log holds was accepted as data, and stays accepted until its group is committed; so when the pool
//! is lost before that, the replay finds the room that was kept for the group. A replay does not ask for
//! room, and may take the slop. The blocks of the log itself, where they take of the same space, are lent
//! ([`LogSpace`]), no more than half of what is free, so that data are still accepted while a log's blocks
//! wait to be free again. Data leave a share for logs, unless they are alone: otherwise a dataset whose group
//! takes long to be written would keep all others from having anything logged meanwhile.
//!
//! Source of the idea: OpenZFS 2.3 `dsl_dir.c` (`dsl_dir_tempreserve_space`), `spa_misc.c`
//! (`spa_get_worst_case_asize`).
//!
//! | module | what it owns |
//! |---|---|
//! | `changes` | the same of changes of datasets, properties and the pool |
//! | `costs` | what blocks take on the devices |
//! | `tempreserve` | what all datasets accept together, by directories |
//!
//! | lock | guards | order |
//! |---|---|---|
//! | a gauge's mutex | its figures; for a few lines | dataset's, then pool's, then that of shares, then the allocator's |

mod changes;
mod costs;
mod tempreserve;

pub use changes::Spare;
pub use tempreserve::Level;
pub(super) use tempreserve::Shares;

use std::sync::{Arc, Mutex, MutexGuard};

use device::IgnorePoison;
use ondisk::features::Feature;
use ondisk::{ObjsetId, Txg};

use super::edit;
use super::live_dataset::LiveDataset;
use super::pool::DslPool;
use crate::alloc::Allocator;
use crate::dmu::Dirtied;
use crate::error::{Error, Result};
use crate::txg::Txgs;
use crate::zio::LogRoom;
use costs::{Costs, Worst};
use tempreserve::Charge;

/// Added to data for their share of metadata: one part in this many.
const METADATA_SHARE: u64 = 32;
/// What a change of a file that writes no data takes on average: files share the blocks that describe them.
const FILE_BYTES: u64 = 2 << 10;
/// Bytes of a block of dnodes, and of a leaf of a directory.
const SMALL_METADATA_BYTES: u64 = 16 << 10;
/// Bytes of an indirect block, and of the largest other block of metadata.
const LARGE_METADATA_BYTES: u64 = 128 << 10;
/// Blocks of both sizes that a dataset makes dirty once in each group, however little it changes.
const DATASET_SMALL_BLOCKS: u64 = 6;
const DATASET_LARGE_BLOCKS: u64 = 6;
/// Bytes of the MOS for each block that is written: entries of space maps for it and for what it replaces, an
/// entry of a deadlist, three copies of all.
const BLOCK_MOS_BYTES: u64 = 768;
/// A leaf of the block reference table, of which each clone may change another.
const CLONE_LEAF_BYTES: u64 = 8 << 10;
/// Bytes of it that a clone takes on average.
const CLONE_BYTES: u64 = 256;
/// A leaf of a dedup table, of which each block may change another.
const DEDUP_LEAF_BYTES: u64 = 32 << 10;
/// Bytes of a table that an entry takes, in all copies of it.
const DEDUP_BYTES: u64 = 768;
/// Copies of what is in the MOS.
const MOS_COPIES: u64 = 3;
/// Most copies of a block.
const MAX_COPIES: u64 = 3;

/// Logs may have one part in so many of what is free, up to a limit, whatever data are accepted.
const LOG_SHARE: u64 = 16;
const MOST_FOR_LOGS: u64 = 64 << 20;

/// How often a change is tried for which there seems to be no room: what a group frees can be used two groups
/// later.
const ROOM_TRIES: u32 = 4;

/// Makes a change that may be refused because there seems to be no room: what is freed can be used some
/// groups later, so a refusal is tried again after a commit. Needs a thread that commits groups.
pub async fn with_room<T, F: Future<Output = Result<T>>>(txgs: &Txgs, change: impl Fn() -> F) -> Result<T> {
    for _ in 1..ROOM_TRIES {
        match change().await {
            Err(Error::NoSpace(_) | Error::Quota(_)) => txgs.wait_synced(txgs.open_txg()).await?,
            done => return done,
        }
    }
    change().await
}

/// What a demand takes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Price {
    exact: u64,
    worst: Worst,
    /// Of clones, what the dataset counts them for.
    cloned: u64,
}

/// What was accepted into the open group, and into the one that is being written.
#[derive(Debug, Default, Clone, Copy)]
struct Accepted([Price; 2]);

impl Accepted {
    fn of(&mut self, txg: Txg) -> &mut Price {
        &mut self.0[(txg.get() % 2) as usize]
    }

    fn add(&mut self, txg: Txg, price: Price) {
        let all = self.of(txg);
        all.exact = all.exact.saturating_add(price.exact);
        all.worst = all.worst + price.worst;
        all.cloned = all.cloned.saturating_add(price.cloned);
    }

    fn total(&self, part: impl Fn(&Price) -> u64) -> u64 {
        part(&self.0[0]).saturating_add(part(&self.0[1]))
    }

    fn exact(&self) -> u64 {
        self.total(|price| price.exact)
    }

    fn worst(&self) -> Worst {
        self.0[0].worst + self.0[1].worst
    }
}

/// What a pool may still accept.
#[derive(Debug)]
pub(super) struct PoolGauge {
    allocator: Arc<Allocator>,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Deflated bytes that data may take, as of the last group.
    free: u64,
    /// Deflated bytes that groups may take at worst.
    safe: Worst,
    /// The same of those who give space back.
    safe_to_free: Worst,
    accepted: Accepted,
    /// Lent to intent logs since the last group.
    lent: u64,
    /// The same at worst: a crash leaves these blocks where they are, between free runs.
    lent_at_worst: Worst,
    /// What changes of the group that is being synced take ([`changes`]).
    changes: u64,
    costs: Costs,
}

impl PoolState {
    fn left(&self) -> u64 {
        self.free.saturating_sub(self.accepted.exact()).saturating_sub(self.lent)
    }

    fn at_worst(&self) -> Worst {
        self.accepted.worst() + self.lent_at_worst
    }

    /// Whether so much more at worst finds room, beside what is kept for logs.
    fn is_safe(&self, more: Worst, kept: u64) -> bool {
        (self.at_worst() + more + Worst::all(kept)).fits(self.safe)
    }

    /// What logs may have, however much data are accepted.
    fn for_logs(&self) -> u64 {
        (self.free.min(self.safe.as_smallest()) / LOG_SHARE).min(MOST_FOR_LOGS)
    }

    /// What of that is not lent yet: data that come to others leave it.
    fn kept_for_logs(&self) -> u64 {
        if self.is_idle() { 0 } else { self.for_logs().saturating_sub(self.lent) }
    }

    /// What may be lent to logs.
    fn left_to_lend(&self) -> u64 {
        let exact = self.accepted.exact();
        let kept = self.for_logs().min(self.free.saturating_sub(exact));
        let by_free = (self.free / 2).saturating_sub(exact).max(kept).saturating_sub(self.lent);
        by_free.min(self.safe.less(self.at_worst()).most())
    }

    /// Whether a group beside `txg` is under way.
    fn is_another_under_way(&mut self, txg: Txg) -> bool {
        self.accepted.of(Txg(txg.get() + 1)).worst != Worst::default()
    }

    /// Whether so much is accepted that a group is better committed now than refuses much more.
    fn is_nearly_used_up(&self) -> bool {
        let at_worst = self.at_worst().map(|bytes| bytes.saturating_add(bytes / 7));
        !at_worst.fits(self.safe)
    }

    fn is_idle(&self) -> bool {
        self.at_worst() == Worst::default()
    }
}

impl PoolGauge {
    pub(super) fn new(allocator: &Arc<Allocator>) -> Self {
        Self { allocator: Arc::clone(allocator), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().ignore_poison()
    }

    /// What data of the group after `txg` take and take at worst, and what changes of `txg` take.
    fn accepted_after(&self, txg: Txg) -> (u64, Worst, u64) {
        let mut state = self.state();
        let Price { exact, worst, .. } = *state.accepted.of(Txg(txg.get() + 1));
        (exact, worst, state.changes)
    }

    /// What a block of the MOS takes.
    fn metadata_price(&self, bytes: u64) -> u64 {
        self.state().costs.exact(&self.allocator, bytes, MOS_COPIES)
    }

    /// A change takes so much.
    fn accept_change(&self, bytes: u64) {
        self.state().changes += bytes;
    }
}

/// Who is asked before intent logs take of the space that is for data.
#[derive(Debug)]
pub(super) struct LogSpace {
    pub(super) pool: Arc<PoolGauge>,
    pub(super) txgs: Arc<Txgs>,
}

impl LogSpace {
    /// What a block of a log takes of the space that is for data; and a log that is not cut into blocks yet.
    fn taken(&self, state: &mut PoolState, bytes: u64) -> (u64, Worst) {
        let (allocator, costs) = (&*self.pool.allocator, &mut state.costs);
        let (whole, rest) = (bytes / LARGE_METADATA_BYTES, bytes % LARGE_METADATA_BYTES);
        let exact = |costs: &mut Costs, bytes: u64| costs.exact(allocator, bytes, 1);
        let taken = whole.saturating_mul(exact(costs, LARGE_METADATA_BYTES));
        let taken = taken.saturating_add(exact(costs, rest));
        let worst = costs.apart(allocator, LARGE_METADATA_BYTES, 1) * whole;
        let worst = if rest > 0 { worst + costs.apart(allocator, rest, 1) } else { worst };
        (taken, worst)
    }

    /// Whether so much may be lent, and the price of it.
    fn price(&self, state: &mut PoolState, bytes: u64) -> Option<(u64, Worst)> {
        let (taken, worst) = self.taken(state, bytes);
        (taken <= state.left_to_lend() && state.is_safe(worst, 0)).then_some((taken, worst))
    }
}

impl LogRoom for LogSpace {
    fn has(&self, bytes: u64) -> bool {
        let has = self.price(&mut self.pool.state(), bytes).is_some();
        if !has {
            self.txgs.kick();
        }
        has
    }

    fn lend(&self, bytes: u64) -> bool {
        let (is_lent, is_due) = {
            let mut state = self.pool.state();
            let price = self.price(&mut state, bytes);
            if let Some((taken, worst)) = price {
                state.lent += taken;
                state.lent_at_worst = state.lent_at_worst + worst;
            }
            // As data do: half of what may be lent is lent.
            (price.is_some(), state.lent > state.left_to_lend())
        };
        if is_due {
            self.txgs.kick();
        }
        is_lent
    }

    fn lend_early(&self, txg: Txg, bytes: u64, copies: u64) -> bool {
        let mut state = self.pool.state();
        let worst = state.costs.apart(&self.pool.allocator, bytes, copies);
        let is_lent = state.is_safe(worst, state.kept_for_logs());
        if is_lent {
            state.accepted.add(txg, Price { worst, ..Price::default() });
        }
        is_lent
    }

    fn give_back_early(&self, txg: Txg, bytes: u64, copies: u64) {
        // What a committed group borrowed is forgotten, and its place is another group's.
        if txg <= self.txgs.synced_txg() {
            return;
        }
        let mut state = self.pool.state();
        let worst = state.costs.apart(&self.pool.allocator, bytes, copies);
        let accepted = state.accepted.of(txg);
        accepted.worst = accepted.worst.less(worst);
    }
}

/// The dedup table that blocks of a dataset are entered in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Entered {
    /// None.
    #[default]
    Nowhere,
    /// A table without a log.
    InTable,
    /// One with a log.
    InLog,
}

/// What a dataset may accept.
#[derive(Debug, Default)]
struct DatasetState {
    /// Bytes until the dataset refers to as much as it may at most, as of the last group.
    below_refquota: u64,
    accepted: Accepted,
    /// Bytes that it refers to as of the last group.
    referenced: u64,
    /// How often each block is written, of data and of metadata.
    copies: u64,
    metadata_copies: u64,
    entered: Entered,
}

impl DatasetState {
    fn left(&self) -> u64 {
        self.below_refquota.saturating_sub(self.accepted.total(|price| price.exact + price.cloned))
    }

    /// What a demand takes in the group `txg`.
    fn price(&mut self, costs: &mut Costs, allocator: &Allocator, txg: Txg, dirtied: &Dirtied) -> Price {
        let (copies, metadata_copies) = (self.copies.max(1), self.metadata_copies.max(1));
        let Dirtied {
            blocks,
            block_bytes,
            replaced_bytes,
            cloned,
            cloned_bytes,
            indirect_bytes,
            compressed_indirects,
            files,
            described_bytes,
            attribute_bytes,
        } = *dirtied;

        let replaced = costs.exact(allocator, replaced_bytes, copies);
        let data =
            blocks.saturating_mul(costs.exact(allocator, block_bytes, copies)).saturating_sub(replaced);
        let described =
            files.saturating_mul(FILE_BYTES).saturating_add(attribute_bytes.saturating_mul(copies));
        let exact = data.saturating_add(data / METADATA_SHARE).saturating_add(described);
        let exact = exact.saturating_add(cloned.saturating_mul(CLONE_BYTES));
        let entries = if self.entered == Entered::Nowhere { 0 } else { blocks };
        let entry_bytes = entries.saturating_mul(DEDUP_BYTES);
        let exact = exact.saturating_add(entry_bytes);
        let per_clone = cloned_bytes.checked_div(cloned).unwrap_or(0);
        let cloned_counts = cloned.saturating_mul(costs.exact(allocator, per_clone, copies));

        let replaced = costs.worst(allocator, replaced_bytes, copies);
        let of_data = (costs.worst(allocator, block_bytes, copies) * blocks).less(replaced);
        let large = costs.worst(allocator, LARGE_METADATA_BYTES, metadata_copies);
        let small = costs.worst(allocator, SMALL_METADATA_BYTES, metadata_copies);
        let clone_leaf = costs.worst(allocator, CLONE_LEAF_BYTES, MOS_COPIES);
        let leaves = if self.entered == Entered::InTable { entries } else { 0 };
        let dedup_leaf = costs.worst(allocator, DEDUP_LEAF_BYTES, MOS_COPIES);
        let of_indirects = {
            // The last unit of each; a block that grew too much to be compressed may lack a third of one.
            let units = compressed_indirects.saturating_mul((costs.unit(allocator) * 4).div_ceil(3));
            let bytes = indirect_bytes.saturating_add(units);
            costs.worst_of_metadata(allocator, bytes, metadata_copies)
        };
        let is_first = self.accepted.of(txg).worst == Worst::default();
        let once = match is_first {
            true => small * DATASET_SMALL_BLOCKS + large * DATASET_LARGE_BLOCKS,
            false => Worst::default(),
        };
        let worst = of_data
            + Worst::all(blocks.saturating_add(cloned).saturating_mul(BLOCK_MOS_BYTES))
            + clone_leaf * cloned
            + dedup_leaf * leaves
            + Worst::all(entry_bytes)
            + of_indirects
            + small * described_bytes.div_ceil(SMALL_METADATA_BYTES)
            + large * attribute_bytes.div_ceil(LARGE_METADATA_BYTES)
            + once;
        Price { exact, worst, cloned: cloned_counts }
    }
}

/// Who is asked before a dataset accepts data.
#[derive(Debug)]
pub struct DatasetRoom {
    state: Mutex<DatasetState>,
    head: ObjsetId,
    pool: Arc<PoolGauge>,
    shares: Arc<Shares>,
    txgs: Arc<Txgs>,
    /// The name of the dataset, for messages.
    name: Mutex<String>,
}

impl DatasetRoom {
    pub(super) fn new(
        head: ObjsetId,
        (pool, shares): (&Arc<PoolGauge>, &Arc<Shares>),
        txgs: &Arc<Txgs>,
        name: String,
    ) -> Arc<Self> {
        let (pool, shares, txgs) = (Arc::clone(pool), Arc::clone(shares), Arc::clone(txgs));
        Arc::new(Self { state: Mutex::default(), head, pool, shares, txgs, name: Mutex::new(name) })
    }

    /// The dataset `from`, with all below it, is `to` from now on.
    pub(super) fn rename(&self, from: &str, to: &str) {
        let mut name = self.name.lock().ignore_poison();
        if let Some(below) =
            name.strip_prefix(from).filter(|below| below.is_empty() || below.starts_with('/'))
        {
            *name = format!("{to}{below}");
        }
    }

    fn state(&self) -> MutexGuard<'_, DatasetState> {
        self.state.lock().ignore_poison()
    }

    /// Has the open group committed, as there is no room in it, unless the room will be there when another
    /// is committed.
    fn refuse(&self, by_quota: bool, is_another_under_way: bool) -> Error {
        if by_quota || !is_another_under_way {
            self.txgs.kick();
        }
        let name = self.name.lock().ignore_poison().clone();
        match by_quota {
            true => Error::Quota(format!("'{name}'")),
            false => Error::NoSpace(format!("'{name}'")),
        }
    }
}

impl DatasetRoom {
    /// The bytes that the dataset may still allocate, and those that it could in an empty pool: as many as
    /// the pool has room for, or the least of the quotas.
    pub fn left_of_most(&self) -> Option<(u64, u64)> {
        let (referenced_bytes, left_bytes) = crate::dmu::Room::figures(self);
        let refquota = self.state().below_refquota.saturating_add(referenced_bytes);
        Some((left_bytes, self.shares.most(self.head)?.min(refquota)))
    }

    /// Blocks have more copies from now on, in the group `open` too, if there is room for all that it
    /// accepted already: false if not. Then they may have them in later groups.
    pub(crate) fn write_more_copies(&self, open: Txg, copies: u8) -> bool {
        let mut dataset = self.state();
        let (before, after) = (dataset.copies.max(1), u64::from(copies.max(1)));
        if after <= before {
            return true;
        }
        (dataset.copies, dataset.metadata_copies) = (after, (after + 1).min(MAX_COPIES));
        let mut pool = self.pool.state();
        let accepted = *dataset.accepted.of(open);
        let more = |bytes: u64| bytes.saturating_mul(after).div_ceil(before).saturating_sub(bytes);
        let (exact, worst) = (more(accepted.exact), accepted.worst.map(more));
        if exact > pool.left() || !pool.is_safe(worst, 0) {
            return false;
        }
        let price = Price { exact, worst, cloned: 0 };
        dataset.accepted.add(open, price);
        pool.accepted.add(open, price);
        self.shares.charge(self.head, Charge { txg: open, bytes: exact, cloned: 0 });
        true
    }
}

impl crate::dmu::Room for DatasetRoom {
    fn require(&self, txg: Txg, dirtied: &Dirtied) -> Result<()> {
        let mut dataset = self.state();
        let mut pool = self.pool.state();
        let price = dataset.price(&mut pool.costs, &self.pool.allocator, txg, dirtied);
        let counted = price.exact.saturating_add(price.cloned);
        let below_refquota = counted <= dataset.left();
        let kept = pool.kept_for_logs();
        let own = below_refquota
            && price.exact.saturating_add(kept) <= pool.left()
            && pool.is_safe(price.worst, kept);
        let charge = Charge { txg, bytes: counted, cloned: price.cloned };
        let shared = own.then(|| self.shares.accept(self.head, charge));
        let Some(Ok(left)) = shared else {
            let by_quota = match shared {
                Some(Err(left)) => left.by_quota,
                _ => !below_refquota,
            };
            let is_another_under_way = pool.is_another_under_way(txg);
            drop((dataset, pool));
            return Err(self.refuse(by_quota, is_another_under_way));
        };
        dataset.accepted.add(txg, price);
        pool.accepted.add(txg, price);
        self.txgs.set_may_gain_room(true);
        // Half of the room is accepted: better commit now than refuse what would have fitted.
        let is_due = pool.accepted.exact() > pool.left()
            || (pool.is_nearly_used_up() && !pool.is_another_under_way(txg))
            || dataset.accepted.exact() > dataset.left()
            || left.accepted > left.bytes;
        drop((dataset, pool));
        if is_due {
            self.txgs.kick();
        }
        Ok(())
    }

    fn require_to_free(&self, txg: Txg, dirtied: &Dirtied) -> Result<()> {
        let mut dataset = self.state();
        let mut pool = self.pool.state();
        let price = dataset.price(&mut pool.costs, &self.pool.allocator, txg, dirtied);
        let fits = (pool.at_worst() + price.worst).fits(pool.safe_to_free);
        if !fits && (dirtied.blocks > 0 || !pool.is_idle()) {
            let is_another_under_way = pool.is_another_under_way(txg);
            drop((dataset, pool));
            return Err(self.refuse(false, is_another_under_way));
        }
        dataset.accepted.add(txg, price);
        pool.accepted.add(txg, price);
        self.txgs.set_may_gain_room(true);
        self.shares.charge(self.head, Charge { txg, bytes: price.exact, cloned: 0 });
        Ok(())
    }

    fn figures(&self) -> (u64, u64) {
        let dataset = self.state();
        let shared = self.shares.left(self.head).bytes;
        (dataset.referenced, dataset.left().min(self.pool.state().left()).min(shared))
    }
}

impl DslPool {
    /// Deflated bytes that the devices have room for.
    pub(crate) fn free_on_devices(&self) -> u64 {
        // The other half of the slop is for metadata alone, and for what is under way.
        self.allocator().free_for_data().saturating_sub(self.allocator().slop_bytes() / 2)
    }

    /// Sets all gauges as of the group `txg` that was just committed. For those who have the turn.
    pub(super) async fn set_rooms(self: &Arc<Self>, txg: Txg) -> Result<()> {
        {
            let mut room = self.room.state();
            // With the lock, so that what is lent is counted once: before as lent, afterwards as allocated. A
            // block whose place is only now being looked for is not counted until the next group; there are
            // few of each log, and the slop is for such.
            let next = Txg(txg.get() + 1);
            let (free, slop) = (Worst::free(self.allocator(), next), self.allocator().slop_bytes());
            room.free = free.as_smallest().saturating_sub(slop / 2);
            room.safe = free.less(Worst::all(slop / 4));
            room.safe_to_free = free.less(Worst::all(slop / 8));
            (room.lent, room.lent_at_worst) = (0, Worst::default());
            room.changes = 0;
            *room.accepted.of(txg) = Price::default();
            room.costs.forget(next);
            self.txgs().set_may_gain_room(!room.is_idle());
        }
        let open: Vec<_> = self.datasets().values().cloned().collect();
        let mut ways = Vec::with_capacity(open.len());
        for dataset in open {
            *dataset.room.state().accepted.of(txg) = Price::default();
            ways.push((dataset.objset.id(), self.set_gauge(&dataset).await?));
        }
        self.shares.committed(txg, &ways);
        Ok(())
    }

    /// Sets the gauge of a dataset that was just opened.
    pub(super) async fn set_room(self: &Arc<Self>, dataset: &LiveDataset) -> Result<()> {
        let way = self.set_gauge(dataset).await?;
        self.shares.opened(dataset.objset.id(), &way);
        Ok(())
    }

    /// Sets a dataset's own gauge. The dataset, and what is above it.
    async fn set_gauge(self: &Arc<Self>, dataset: &LiveDataset) -> Result<Vec<Level>> {
        let room = edit::room(&self.reading(), dataset.objset.id()).await?;
        let policy = dataset.objset.policy();
        let copies = u64::from(policy.copies.max(1));
        let has_log = self.mos().features().count(Feature::FastDedup).is_some();
        let entered = match policy.dedup {
            None => Entered::Nowhere,
            Some(_) if has_log => Entered::InLog,
            Some(_) => Entered::InTable,
        };
        let mut state = dataset.room.state();
        (state.below_refquota, state.referenced) = (room.below_refquota, room.referenced_bytes);
        (state.copies, state.metadata_copies) = (copies, (copies + 1).min(MAX_COPIES));
        state.entered = entered;
        Ok(room.way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_leave_a_share_for_logs_unless_they_are_alone() {
        let mut state = PoolState { free: 1600, safe: Worst::all(1600), ..PoolState::default() };
        assert_eq!((state.kept_for_logs(), state.left_to_lend()), (0, 800));
        state.accepted.add(Txg(7), Price { exact: 1500, worst: Worst::all(1500), cloned: 0 });
        assert_eq!((state.kept_for_logs(), state.left_to_lend()), (100, 100));
        (state.lent, state.lent_at_worst) = (60, Worst::all(60));
        assert_eq!((state.kept_for_logs(), state.left_to_lend()), (40, 40));
        // What data take at worst is never lent.
        state.accepted.add(Txg(7), Price { exact: 0, worst: Worst::all(30), cloned: 0 });
        assert_eq!(state.left_to_lend(), 10);
    }

    #[test]
    fn a_group_is_not_cut_short_by_the_one_that_is_being_written() {
        let mut state = PoolState { free: 1600, safe: Worst::all(1600), ..PoolState::default() };
        let price = |worst: u64| Price { exact: 0, worst: Worst::all(worst), cloned: 0 };
        state.accepted.add(Txg(7), price(1000));
        assert!(!state.is_another_under_way(Txg(7)) && !state.is_nearly_used_up());
        state.accepted.add(Txg(7), price(401));
        assert!(state.is_nearly_used_up() && !state.is_another_under_way(Txg(7)));
        // Now the next one is open.
        assert!(state.is_another_under_way(Txg(8)) && state.is_safe(Worst::all(199), 0));
        assert!(!state.is_safe(Worst::all(200), 0));
    }
}
