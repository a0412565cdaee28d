//! Room for data: refusing what would not fit before it is accepted.
//!
//! # The idea
//! What is accepted must be written, or the pool stops. So whoever accepts data asks a gauge first. After each group the sync thread sets two kinds of gauges:
//! one for each open dataset, to what quotas and reservations leave it, and one for the pool, to what is free on the devices. Between two groups what was
//! accepted is taken off, also of what others may accept below the same quota or beside the same reservation ([`super::shares`]); what was accepted into the group that is being written stays taken off until that group is committed and the figures include it.
//!
//! Data are counted by the blocks that they make dirty in the open group, before compression, times what they may take at worst: copies, parity of small blocks, and a share for metadata. Overwriting
//! counts like anything else, since the new block is written before the old one is free; so does writing again to a block that was, or is just being, written before its group (`dmu::live::early`). A small write may make an indirect block dirty that is much larger than it: each is
//! counted as two copies of one, until a group has counted as many as the dataset can have. When the room is used up the open group is committed at once:
//! what it frees may make room, and its real sizes replace the guesses. A writer that is refused in the meantime is told so; the pool's slop, which
//! no dataset may use, covers what guesses leave out. Intent logs ask too before they take of the same space ([`LogSpace`]), and are lent no more than half of what is
//! free, so that data are still accepted while a log's blocks wait to be free again. Who serves a person's program waits for that commit and tries again before it says no ([`with_room`]).
//!
//! Source of the idea: OpenZFS 2.3 `dsl_dir.c` (`dsl_dir_tempreserve_space`).
//!
//! | lock | guards | order |
//! |---|---|---|
//! | a gauge's mutex | its figures; for a few lines | dataset's, then pool's, then that of shares, then the allocator's |

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::LivePool;
use super::shares::{Level, Shares};
use ondisk::ObjsetId;
use ondisk::objset::ObjsetType;

use crate::dataset::dsl::edit;
use crate::dataset::zvol;
use crate::error::{Error, Result};
use crate::txg::Txgs;
use crate::vdev::Class;
use crate::zio::LogRoom;

/// Added to data for their share of metadata: one part in this many.
const METADATA_SHARE: u64 = 32;
/// Largest indirect block, uncompressed, in two copies.
const INDIRECT_BYTES: u64 = 2 * (128 << 10);
/// Block pointers in it.
const POINTERS: u64 = 1024;
/// Size of the blocks of a filesystem, as far as its indirect blocks are concerned: most are larger.
const FILE_BLOCK_BYTES: u64 = 8 << 10;

/// How often a change is tried for which there seems to be no room: what a group frees can be used two groups later.
const ROOM_TRIES: u32 = 4;

/// Makes a change that may be refused because there seems to be no room: what is freed counts when it is committed, so a refusal is tried again after a
/// commit. Needs somebody who commits groups.
pub async fn with_room<T, F: Future<Output = Result<T>>>(txgs: &Txgs, change: impl Fn() -> F) -> Result<T> {
    for _ in 1..ROOM_TRIES {
        match change().await {
            Err(Error::NoSpace(_) | Error::Quota(_)) => txgs.wait_synced(txgs.open_txg()).await?,
            done => return done,
        }
    }
    change().await
}

/// What may still be accepted.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    /// Bytes that were free as of the last group.
    free: u64,
    /// Accepted into the open group, and into the one being written.
    accepted: [u64; 2],
    /// Of a pool: lent to intent logs since.
    lent: u64,
    by_quota: bool,
    /// Of a pool: bytes beyond `free` for those who write so that they can give space back.
    reserve: u64,
    /// Bytes that a dataset refers to as of the last group.
    referenced: u64,
    /// Size of its blocks.
    block: u64,
    /// Bytes of indirect blocks that the open group was charged with.
    indirect: u64,
    /// Of a dataset: beyond one, how often each block is written.
    more_copies: u64,
}

impl State {
    fn left(&self) -> u64 {
        self.free.saturating_sub(self.taken())
    }

    fn taken(&self) -> u64 {
        self.accepted[0].saturating_add(self.accepted[1]).saturating_add(self.lent)
    }

    fn copies(&self) -> u64 {
        self.more_copies + 1
    }

    /// What may be lent to logs.
    fn left_to_lend(&self) -> u64 {
        (self.free / 2).saturating_sub(self.taken())
    }

    /// What is left for those who give space back.
    fn left_to_free(&self) -> u64 {
        self.free.saturating_add(self.reserve).saturating_sub(self.taken())
    }

    /// What one more write of `bytes` into the open group may make dirty of a dataset's indirect blocks.
    fn indirect_of(&self, bytes: u64) -> u64 {
        let block = self.block.max(512);
        let touched = bytes / (block * POINTERS) + 1;
        let all = self.referenced / block * (INDIRECT_BYTES / POINTERS);
        touched.saturating_mul(INDIRECT_BYTES).min(all.saturating_sub(self.indirect))
    }
}

impl Gauge {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open group was closed.
    pub(super) fn quiesced(&self) {
        let mut state = self.state();
        state.accepted = [0, state.accepted[0] + state.accepted[1]];
        state.indirect = 0;
    }

    /// The closed group is committed, and `free` bytes are left after it.
    pub(super) fn set(&self, free: u64, by_quota: bool) {
        let mut state = self.state();
        (state.free, state.by_quota, state.accepted[1]) = (free, by_quota, 0);
    }
}

/// Who is asked before intent logs take of the space that is for data.
#[derive(Debug)]
pub(super) struct LogSpace {
    pub(super) pool: Arc<Gauge>,
    pub(super) txgs: Arc<Txgs>,
}

impl LogRoom for LogSpace {
    fn has(&self, bytes: u64) -> bool {
        let has = bytes <= self.pool.state().left_to_lend();
        if !has {
            self.txgs.kick();
        }
        has
    }

    fn lend(&self, bytes: u64) -> bool {
        let (is_lent, is_due) = {
            let mut state = self.pool.state();
            let is_lent = bytes <= state.left_to_lend();
            if is_lent {
                state.lent += bytes;
            }
            // As data do: half of what may be lent is lent.
            (is_lent, state.lent > state.left_to_lend())
        };
        if is_due {
            self.txgs.kick();
        }
        is_lent
    }
}

/// Who is asked before a dataset accepts data.
#[derive(Debug)]
pub struct DatasetRoom {
    pub(super) gauge: Gauge,
    head: ObjsetId,
    pool: Arc<Gauge>,
    shares: Arc<Shares>,
    txgs: Arc<Txgs>,
    name: String,
}

impl DatasetRoom {
    pub(super) fn new(
        head: ObjsetId,
        (pool, shares): (&Arc<Gauge>, &Arc<Shares>),
        txgs: &Arc<Txgs>,
        name: String,
    ) -> Arc<Self> {
        let (pool, shares, txgs) = (Arc::clone(pool), Arc::clone(shares), Arc::clone(txgs));
        Arc::new(Self { gauge: Gauge::default(), head, pool, shares, txgs, name })
    }

    /// Accepts `bytes` of data, or fails when there is no room for them.
    pub fn accept(&self, bytes: u64) -> Result<()> {
        let mut dataset = self.gauge.state();
        let mut pool = self.pool.state();
        let indirect = dataset.indirect_of(bytes);
        let needed = bytes.saturating_add(indirect.max(bytes / METADATA_SHARE));
        let own = needed <= dataset.left() && needed <= pool.left();
        let shared = own.then(|| self.shares.accept(self.head, needed.saturating_mul(dataset.copies())));
        let Some(Ok(left)) = shared else {
            let by_quota = match shared {
                Some(Err(left)) => left.by_quota,
                _ => dataset.by_quota && needed > dataset.left(),
            };
            drop((dataset, pool));
            self.txgs.kick();
            return Err(match by_quota {
                true => Error::Quota(self.name.clone()),
                false => Error::NoSpace(self.name.clone()),
            });
        };
        dataset.indirect += indirect;
        dataset.accepted[0] += needed;
        pool.accepted[0] += needed;
        // Half of the room is accepted: better commit now than refuse what would have fitted.
        if pool.accepted[0] > pool.left()
            || dataset.accepted[0] > dataset.left()
            || left.accepted > left.bytes
        {
            self.txgs.kick();
        }
        Ok(())
    }
}

impl crate::dataset::zvol::Room for DatasetRoom {
    fn require(&self, bytes: u64) -> Result<()> {
        self.accept(bytes)
    }

    fn require_to_free(&self, bytes: u64) -> Result<()> {
        let mut dataset = self.gauge.state();
        let mut pool = self.pool.state();
        if bytes > pool.left_to_free() {
            drop((dataset, pool));
            self.txgs.kick();
            return Err(Error::NoSpace(self.name.clone()));
        }
        dataset.accepted[0] += bytes;
        pool.accepted[0] += bytes;
        self.shares.charge(self.head, bytes.saturating_mul(dataset.copies()));
        Ok(())
    }

    fn figures(&self) -> (u64, u64) {
        let dataset = *self.gauge.state();
        let shared = self.shares.left(self.head).bytes / dataset.copies();
        (dataset.referenced, dataset.left().min(self.pool.state().left()).min(shared))
    }
}

impl LivePool {
    /// What the devices have room for, in deflated bytes and as carefully as parity of small blocks asks for.
    pub(super) fn free_on_devices(&self) -> u64 {
        let space = self.allocator().space(Class::Normal);
        let free = space.deflated_size_bytes.saturating_sub(space.deflated_allocated_bytes);
        // Half of the slop is for metadata alone: a small write can make a large indirect block dirty.
        free.saturating_sub(self.slop_bytes() / 2) / self.worst_ratio()
    }

    /// What of the other half is for those who give space back.
    fn reserve_on_devices(&self) -> u64 {
        self.slop_bytes() / 8 / self.worst_ratio()
    }

    fn slop_bytes(&self) -> u64 {
        let size = self.allocator().space(Class::Normal).deflated_size_bytes;
        size.saturating_sub(self.allocator().usable_bytes())
    }

    fn worst_ratio(&self) -> u64 {
        let tops = self.pool.vdevs().tops.iter();
        tops.filter(|top| top.class() == Class::Normal).map(worst_ratio).max().unwrap_or(1).max(1)
    }

    /// Sets all gauges as of the group that was just committed. For those who have the turn.
    pub(super) async fn set_rooms(self: &Arc<Self>) -> Result<()> {
        {
            let mut room = self.room.state();
            // With the lock, so that what is lent is counted once: before as lent, afterwards as allocated. A block whose place is only now being looked for is not counted until the next
            // group; there are few of each log, and the slop is for such.
            room.free = self.free_on_devices();
            (room.accepted[1], room.lent, room.reserve) = (0, 0, self.reserve_on_devices());
        }
        let open: Vec<_> = self.datasets().values().cloned().collect();
        let mut ways = Vec::with_capacity(open.len());
        for dataset in open {
            ways.push((dataset.objset.id(), self.set_gauge(&dataset).await?));
        }
        self.shares.committed(&ways);
        Ok(())
    }

    /// Sets the gauge of a dataset that was just opened.
    pub(super) async fn set_room(self: &Arc<Self>, dataset: &super::LiveDataset) -> Result<()> {
        let way = self.set_gauge(dataset).await?;
        self.shares.opened(dataset.objset.id(), &way);
        Ok(())
    }

    /// Sets a dataset's own gauge. The dataset, and what is above it.
    async fn set_gauge(self: &Arc<Self>, dataset: &super::LiveDataset) -> Result<Vec<Level>> {
        let room = edit::room(&self.reading(), dataset.objset.id()).await?;
        let copies = u64::from(dataset.objset.policy().copies.max(1));
        dataset.room.gauge.set(room.bytes / copies, room.by_quota);
        let block = match dataset.objset.kind() {
            ObjsetType::Zvol => {
                let content = dataset.objset.object(zvol::CONTENT).await;
                content.map_or(FILE_BLOCK_BYTES, |content| content.block_size())
            }
            _ => FILE_BLOCK_BYTES,
        };
        let mut state = dataset.room.gauge.state();
        (state.referenced, state.block, state.more_copies) = (room.referenced_bytes, block, copies - 1);
        Ok(room.way)
    }
}

/// How many times the space of a large block a small one may take on a vdev.
fn worst_ratio(top: &crate::vdev::Vdev) -> u64 {
    match &top.kind {
        crate::vdev::Kind::Raidz(raidz) => raidz.nparity() as u64 + 1,
        crate::vdev::Kind::Draid(draid) => (draid.config().data + draid.config().nparity) as u64,
        _ => 1,
    }
}
