//! Writing blocks: from bytes to a pointer that leads to them.
//!
//! # The idea
//! A [`Writer`] takes a batch of blocks and returns their new pointers. Each block is first *encoded* (zeroes
//! become a hole, compression, embedding, checksum: `encode`), on all cores at once when the batch is large.
//! Then each block is *placed*, in the order of the batch, so that neighbours in the batch become neighbours
//! on the devices (`place`, or `gang` where no free run is long enough). Finally all pieces of the batch go
//! to the vdev tree in one call. The written blocks are in the ARC under their new pointers.
//!
//! # Overwriting in place
//! A block that an uberblock leads to is never overwritten. But no uberblock leads yet to a block that was
//! written *in this group*; such a block is overwritten in place when the new bytes fit (OpenZFS: the
//! rewrites of late sync passes). So the sync of the pool's own metadata ends, although they describe the
//! very space that they occupy; `encode` explains why sizes settle.
//!
//! A *nop-write* keeps the old pointer when a strong checksum shows that the new bytes are the same. A
//! *deduplicated* block gets a pointer to equal bytes that are stored anywhere in the pool (`dedup`).
//!
//! # Failures
//! A write that fails waits until the pool can write ([`crate::store::suspend`]). Where waiting is of no use,
//! a batch that is not written completely fails. Then its allocations are given back, its pointers are
//! invalid, and blocks that were to be overwritten in place may be damaged: the group cannot be committed. A
//! copy that could not be written is a failure even when other copies were written.
//!
//! | module | what it owns |
//! |---|---|
//! | `dedup` | blocks that are stored already |
//! | `encode` | compress, embed, checksum: pure functions |
//! | `features` | what the pool's features allow |
//! | `seal` | blocks of encrypted object sets |
//! | `place` | space and pieces of a batch |
//! | `gang` | blocks in parts |
//! | `log_block` | blocks of intent logs |
//! | `offload` | batches on the compute threads |
//! | `pace` | the measured speed of encoding |
//! | `written` | counters of written bytes, layer by layer |
//!
//! Source of the facts: OpenZFS 2.3 `zio.c`.

pub(crate) mod dedup;
mod encode;
mod features;
mod gang;
mod log_block;
mod offload;
mod pace;
mod place;
pub(crate) mod seal;
#[cfg(test)]
mod tests;
mod written;

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ondisk::blkptr::{Blkptr, BlkptrParts, ChecksumType, CompressType, Dva, Protection, hole};
use ondisk::dmu::DmuType;
use ondisk::{ByteOrder, Lsize, ObjsetId, Txg};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

pub use self::dedup::Dedup;
use self::dedup::{Candidates, DedupTable, Sharing, Way};
pub(crate) use self::encode::min_alloc;
use self::encode::{Encoded, Stored, Units, encode, level_of, predecessor};
use self::features::LiveWriterFeatures;
pub use self::features::{GangHeaders, WriterFeatures};
use self::gang::{Gang, Refused};
pub use self::log_block::LogRoom;
pub(crate) use self::pace::{Meter, is_heavy};
use self::place::Placement;
use self::seal::Ivs;
pub use self::seal::Seal;
use self::written::Written;
pub use self::written::WrittenBytes;
use super::{GangTree, How};
use crate::alloc::{Allocator, Denied, MetaslabId};
use crate::cache::{ForDevice, Loaded, Retain, fitted, is_kept_compressed};
use crate::env::{Env, System};
use crate::error::{Attempt, Error, Result};
use crate::store::Store;
use crate::vdev::write::Piece;
use crate::vdev::{Class, Kind, Vdev};
use crate::{Block, Bookmark};

/// A batch of at least this many bytes is worth the hand-over to the compute threads.
const OFFLOAD_BYTES: usize = 256 << 10;
/// The same limit for a batch with heavy compression, of a caller that has other work to do.
const OFFLOAD_HEAVY_BYTES: usize = 16 << 10;

/// Who waits for a batch: a group, or a caller that needs it on stable storage.
#[derive(Debug, Clone, Copy)]
enum Haste<'a> {
    /// The sync of a group, which may have a meter.
    Group(Option<&'a Meter>),
    /// A caller that needs the batch stable. It is not encoded behind the batches of groups, nor on the
    /// calling thread, which other requests wait for.
    Stable,
}

/// A block to be written.
#[derive(Debug, Clone)]
pub struct WriteRequest {
    /// The bookmark of the block, for messages. Its level goes into the pointer.
    pub at: Bookmark,
    /// The bytes, of the block's logical size (a multiple of 512).
    pub data: Block,
    /// The type of its object.
    pub dmu_type: DmuType,
    /// Checksum; never `Inherit` or `On`.
    pub checksum: ChecksumType,
    /// Compression; never `Inherit`. `On` is the pool's own choice ([`WriterFeatures`]).
    pub compress: CompressType,
    /// Level code of zstd (`codec::compress::zstd_level_code`), ignored by others.
    pub zstd_level: u8,
    /// Copies, 1 to 3.
    pub copies: u8,
    /// The class in which it is placed, if the pool has such a class.
    pub class: Class,
    /// A block of the normal class that is stored in at most this many bytes goes to the special class, if
    /// that has room for data.
    pub small_bytes: u64,
    /// Whether the block may be embedded in the pointer when it compresses well enough.
    pub may_embed: bool,
    /// Whether the block may be written in parts where no free run is long enough.
    pub may_gang: bool,
    /// Whether to keep `previous` when the bytes are the same (a strong checksum, compression on).
    pub nopwrite: bool,
    /// Whether equal bytes that are stored already stand for the block. Only the sync of groups may ask for
    /// it.
    pub dedup: Option<Dedup>,
    /// The pointer that the new one replaces. A block of the same txg is overwritten in place when the new
    /// bytes fit; a gang stays a gang.
    pub previous: Option<Blkptr>,
    /// How much of the block the cache keeps afterwards: nothing of a block that is unlikely to be read soon.
    pub retain: Retain,
    /// Whether a cache device may get the block while the ARC has it.
    pub may_feed: bool,
    /// How the block is protected, in an encrypted object set.
    pub seal: Option<Seal>,
    /// The fill count of the pointer: non-hole blocks below, including this one; for blocks of dnodes, the
    /// allocated dnodes.
    pub fill: u64,
}

/// Writes and frees blocks of a pool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Writer {
    store: Arc<Store>,
    allocator: Arc<Allocator>,
    features: Arc<LiveWriterFeatures>,
    written: Arc<Written>,
    log_room: Option<Arc<dyn LogRoom>>,
    dedup: Option<Arc<dyn DedupTable>>,
    ivs: Ivs,
}

impl Writer {
    /// A writer for a pool that has [`WriterFeatures::ALL`].
    pub fn new(store: Arc<Store>, allocator: Arc<Allocator>) -> Self {
        let (features, written) = (Arc::default(), Arc::default());
        let ivs = Ivs::new(Arc::new(System));
        Self { store, allocator, features, written, log_room: None, dedup: None, ivs }
    }

    /// The features that blocks of the pool may use.
    pub fn features(&self) -> WriterFeatures {
        self.features.get()
    }

    /// Sets the features that blocks of the pool may use from now on, for all clones of this writer.
    pub fn set_features(&self, features: WriterFeatures) {
        self.features.set(features);
    }

    /// Whether a gang was written since the last call that larger headers would have helped, in a pool that
    /// may have them.
    pub(crate) fn wanted_larger_gang_headers(&self) -> bool {
        self.features.take_wanted_larger_gang_headers()
    }

    /// Makes logs ask for the space that they take from data; without this, they take it unasked.
    pub fn with_log_room(self, log_room: Arc<dyn LogRoom>) -> Self {
        Self { log_room: Some(log_room), ..self }
    }

    /// Gives the dedup tables; without them no block is deduplicated.
    pub(crate) fn with_dedup(self, table: Arc<dyn DedupTable>) -> Self {
        Self { dedup: Some(table), ..self }
    }

    /// Takes salts and initialization vectors from `env`.
    pub(crate) fn with_env(self, env: &Arc<dyn Env>) -> Self {
        Self { ivs: Ivs::new(Arc::clone(env)), ..self }
    }

    /// The store below the blocks.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The bytes that this writer and its clones wrote until now.
    pub fn written(&self) -> WrittenBytes {
        self.written.snapshot()
    }

    /// The allocator that gives the space.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// Writes a batch, in order: neighbours in the batch become neighbours on the device. Returns one pointer
    /// for each request. A pointer with the same addresses as the request's `previous` means that the block
    /// was overwritten in place or kept; otherwise the caller frees `previous`.
    pub async fn write(&self, txg: Txg, batch: Vec<WriteRequest>) -> Result<Vec<Blkptr>> {
        self.write_in(txg, batch, Haste::Group(None)).await
    }

    /// Like [`Writer::write`], and measures the encoding.
    pub(crate) async fn write_metered(
        &self,
        txg: Txg,
        batch: Vec<WriteRequest>,
        meter: &Meter,
    ) -> Result<Vec<Blkptr>> {
        self.write_in(txg, batch, Haste::Group(Some(meter))).await
    }

    /// Like [`Writer::write`], for a caller that waits for stable storage: the batch is not encoded behind
    /// the batches of groups.
    pub(crate) async fn write_promptly(&self, txg: Txg, batch: Vec<WriteRequest>) -> Result<Vec<Blkptr>> {
        self.write_in(txg, batch, Haste::Stable).await
    }

    // In a box, so that it is compiled once, and not again in every caller.
    fn write_in<'a>(
        &'a self,
        txg: Txg,
        batch: Vec<WriteRequest>,
        haste: Haste<'a>,
    ) -> BoxFuture<'a, Result<Vec<Blkptr>>> {
        Box::pin(self.write_batch(txg, batch, haste))
    }

    async fn write_batch(
        &self,
        txg: Txg,
        mut batch: Vec<WriteRequest>,
        haste: Haste<'_>,
    ) -> Result<Vec<Blkptr>> {
        let features = self.features();
        for request in &mut batch {
            request.may_embed &= features.embedded_data;
            request.copies = request.copies.min(features.max_copies);
            request.compress = features.compress(request.compress);
            self.ivs.give(request)?;
        }
        let units = Units::of(self.store.vdevs());
        let salt = self.store.salt.get().copied();
        let injections = self.store.vdevs().injections();
        let batch = match injections.has_blocks() {
            true => encode::flipped_before(injections, batch),
            false => batch,
        };
        let (batch, mut encoded) = encode_all(batch, units, salt, txg, haste).await?;
        self.ivs.note(&batch, &encoded);
        if injections.has_blocks() {
            encode::flip_after(injections, &batch, &mut encoded);
        }
        let gangs = self.gangs_to_rewrite(&batch, &encoded, txg).await?;
        let mut candidates = self.candidates(&batch, &encoded).await?;
        let mut placed = loop {
            match self.place(&batch, &encoded, (&gangs, &candidates), units, txg) {
                Ok(Placed::All(placed)) => break placed,
                Ok(Placed::Load(id)) => self.allocator.load_metaslab(id).await?,
                Ok(Placed::Compare) => self.compare(&batch, &encoded, &mut candidates).await,
                Err(error @ Error::NoSpace(_)) => self.wait_for_room(error).await?,
                Err(error) => return Err(error),
            }
        };
        // Nothing was waited for since the tables were asked.
        let made = self.enter(&mut placed.sharing)?;
        let Batch { pointers, stored, pieces, owners, fresh, wants_larger_headers, .. } = placed;
        if wants_larger_headers {
            self.features.want_larger_gang_headers();
        }
        let at = |owner: usize| batch.get(owner).map_or(Bookmark::objset_root(0), |request| request.at);
        if let Err(error) = self.write_pieces(txg, pieces, owners, at).await {
            self.give_back(&fresh, txg);
            return Err(error);
        }
        if let Some(table) = self.dedup.as_ref().filter(|_| !made.is_empty()) {
            table.written(&made);
        }
        let mut is_stored = vec![false; batch.len()];
        for owner in stored {
            if let (Some(request), Some(pointer)) = (batch.get(owner), pointers.get(owner)) {
                is_stored[owner] = true;
                let key = |pointer: &Blkptr| self.store.cache_key(pointer, pointer.uses_crypt());
                let old = request.previous.as_ref().filter(|old| !old.is_hole() && !old.is_embedded());
                let loaded = || self.loaded(request, pointer, encoded.get(owner));
                self.store.cache().supersede(old.map(key), key(pointer), loaded, request.retain);
            }
        }
        self.count_written(&batch, &pointers, &is_stored);
        Ok(pointers)
    }

    /// Counts a batch that is written.
    fn count_written(&self, batch: &[WriteRequest], pointers: &[Blkptr], is_stored: &[bool]) {
        let mut dataset = None;
        for ((request, pointer), is_stored) in batch.iter().zip(pointers).zip(is_stored) {
            let objset = request.at.objset;
            // Most batches are of one dataset.
            let (_, stats) = match dataset.take() {
                Some((of, stats)) if of == objset => dataset.insert((of, stats)),
                _ => dataset.insert((objset, self.store.datasets.of(ObjsetId(objset)))),
            };
            self.written.count(request, (pointer, *is_stored), self.store.vdevs(), stats);
        }
    }

    /// A written block as the ARC takes it in.
    fn loaded(&self, request: &WriteRequest, pointer: &Blkptr, encoded: Option<&Encoded>) -> Loaded {
        let block = request.data.plain();
        let Some(Encoded::Stored(stored)) = encoded else { return block.into() };
        let vdevs = self.store.vdevs();
        // Bytes that were changed on demand are not those of the block.
        let is_unchanged = !vdevs.injections().has_blocks();
        let is_for_device = is_unchanged && request.may_feed && self.store.l2arc.wants(pointer, vdevs);
        let is_compressed = stored.compress != CompressType::Off && is_unchanged;
        let is_wanted = is_compressed && (is_for_device || is_kept_compressed());
        // The ARC has blocks decrypted.
        let physical = match (&stored.plain, pointer.protection()) {
            (Some(plain), _) => Some(plain.clone()),
            (None, Protection::Encrypted) => None,
            (None, _) => is_wanted.then(|| fitted(&stored.bytes)),
        };
        let for_device = if is_for_device { ForDevice::of(pointer, &stored.bytes) } else { ForDevice::No };
        Loaded::of(block, pointer, physical, for_device)
    }

    /// For a caller whose allocation failed: no block is placed on a vdev that is away, so there may be room
    /// when it is back. Returns the error when no vdev is away.
    async fn wait_for_room(&self, error: Error) -> Result<()> {
        let holds_data = |top: &&Vdev| !matches!(top.kind, Kind::Indirect(_) | Kind::Hole);
        let is_away = |top: &&Vdev| top.class() != Class::Log && !top.status().is_readable();
        let mut tops = self.store.vdevs().tops.iter().filter(holds_data);
        let Some(away) = tops.find(is_away) else { return Err(error) };
        let why = format!("{error}, while '{}' is away", away.name);
        self.store.suspension.wait(Error::Suspended(why)).await
    }

    /// Finds places for a batch, all or none.
    fn place(
        &self,
        batch: &[WriteRequest],
        encoded: &[Encoded],
        (gangs, candidates): (&HashMap<usize, GangTree>, &Candidates),
        units: Units,
        txg: Txg,
    ) -> Result<Placed> {
        let salt = self.store.salt.get();
        let mut sharing = Sharing::default();
        let mut placement = Placement::new(&*self.allocator, units, self.features(), txg);
        let mut pointers = Vec::with_capacity(batch.len());
        let mut stored = Vec::with_capacity(batch.len());
        for (owner, (request, encoded)) in batch.iter().zip(encoded).enumerate() {
            let result = match encoded {
                Encoded::Hole => self.hole(request, txg).map_err(Unplaced::Failed),
                Encoded::Embedded(pointer) => Ok(*pointer),
                Encoded::Stored(block) => {
                    match self.way(candidates, &mut sharing, (owner, request, block), txg) {
                        Err(error) => Err(Unplaced::Failed(error)),
                        Ok(Way::Compare) => Err(Unplaced::NotCompared),
                        Ok(Way::Known(pointer)) => Ok(pointer),
                        Ok(Way::Enter(entry)) => {
                            stored.push(owner);
                            let placed =
                                store(&mut placement, owner, request, block.clone(), (None, true), salt);
                            if let Ok(pointer) = &placed
                                && pointer.is_dedup()
                            {
                                sharing.enter(entry, request, pointer);
                            }
                            placed
                        }
                        Ok(Way::Plain) => {
                            stored.push(owner);
                            let gang = gangs.get(&owner);
                            store(&mut placement, owner, request, block.clone(), (gang, false), salt)
                        }
                    }
                }
            };
            match result {
                Ok(pointer) => pointers.push(pointer),
                Err(unplaced) => {
                    self.allocator.undo(&placement.fresh, txg);
                    return match unplaced {
                        Unplaced::NotLoaded(id) => Ok(Placed::Load(id)),
                        Unplaced::NotCompared => Ok(Placed::Compare),
                        Unplaced::Failed(error) => Err(error),
                    };
                }
            }
        }
        let Placement { pieces, owners, fresh, wants_larger_headers, .. } = placement;
        Ok(Placed::All(Batch { pointers, stored, pieces, owners, fresh, wants_larger_headers, sharing }))
    }

    /// Writes all pieces, and repeats those that fail as long as the pool waits for its devices. Returns the
    /// error of the first block with a failed piece.
    async fn write_pieces(
        &self,
        txg: Txg,
        mut pieces: Vec<Piece>,
        mut owners: Vec<usize>,
        at: impl Fn(usize) -> Bookmark,
    ) -> Result<()> {
        while !pieces.is_empty() {
            self.store.suspension.check()?;
            let vdevs = self.store.vdevs();
            let written = vdevs.write(txg, pieces.clone()).await;
            if vdevs.has_unseen_errors() {
                vdevs.diagnose().await;
            }
            let mut failed: Option<(usize, Vec<Attempt>)> = None;
            let mut again = (Vec::new(), Vec::new());
            for ((owner, piece), result) in owners.into_iter().zip(pieces).zip(written) {
                let Err(tried) = result else { continue };
                let (first, all) = failed.get_or_insert_with(|| (owner, Vec::new()));
                if *first == owner {
                    all.extend(tried);
                }
                again.0.push(piece);
                again.1.push(owner);
            }
            (pieces, owners) = again;
            if let Some((owner, tried)) = failed {
                self.store.suspension.wait(Error::NotWritten { at: at(owner), tried }).await?;
            }
        }
        Ok(())
    }

    /// The pointer to zeroes. A block that was never written has no birth.
    fn hole(&self, request: &WriteRequest, txg: Txg) -> Result<Blkptr> {
        let was_written = request.previous.is_some_and(|previous| previous.logical_birth() != Txg::NONE);
        if !self.features().hole_birth || !was_written {
            return Ok(Blkptr::HOLE);
        }
        hole(Lsize(request.data.len() as u64), request.dmu_type, level_of(request), txg)
            .map_err(Error::format(request.at.to_string()))
    }

    /// The previous pointer, if it leads to the same bytes and may be kept (`zio_nop_write`).
    fn unchanged(&self, request: &WriteRequest, block: &Stored) -> Option<Blkptr> {
        let previous = request.previous.filter(|_| request.nopwrite)?;
        let is_indirect = |dva: &Dva| {
            let top = self.store.vdevs().top(dva.vdev.get());
            top.is_none_or(|top| matches!(top.kind, Kind::Indirect(_)))
        };
        let same = !previous.is_hole()
            && !previous.is_embedded()
            && !previous.uses_crypt()
            && !previous.is_dedup()
            && request.checksum.is_nopwrite()
            && previous.checksum_type() == request.checksum
            && previous.compress() == block.compress
            && previous.psize() == block.psize
            && previous.lsize() == Lsize(request.data.len() as u64)
            && previous.dmu_type() == request.dmu_type
            && previous.level() == level_of(request)
            && previous.byte_order() == ByteOrder::Little
            && previous.copies() == usize::from(request.copies)
            && previous.checksum() == block.digest
            && !previous.dvas().any(|dva| is_indirect(&dva));
        same.then_some(previous)
    }

    /// The trees of the gangs that will be overwritten in place.
    async fn gangs_to_rewrite(
        &self,
        batch: &[WriteRequest],
        encoded: &[Encoded],
        txg: Txg,
    ) -> Result<HashMap<usize, GangTree>> {
        let mut gangs = HashMap::new();
        for (owner, (request, encoded)) in batch.iter().zip(encoded).enumerate() {
            let Encoded::Stored(block) = encoded else { continue };
            if let Some(place) = place_of(request, block, txg).filter(|place| place.is_gang()) {
                gangs.insert(owner, self.gang_tree(place, &request.at).await?);
            }
        }
        Ok(gangs)
    }

    async fn gang_tree(&self, bp: &Blkptr, at: &Bookmark) -> Result<GangTree> {
        loop {
            match self.store.gang_tree(bp, How::default()).await {
                Err(tried) => self.store.until_readable(Error::Io { at: *at, tried }).await?,
                Ok(tree) => return Ok(tree),
            }
        }
    }

    /// Frees the space of a block in `txg`; of a gang, headers and members. Holes and embedded blocks have no
    /// space. The caller knows that nothing else refers to it (`tables`).
    pub async fn free(&self, txg: Txg, bp: &Blkptr) -> Result<()> {
        if bp.is_hole() || bp.is_embedded() {
            return Ok(());
        }
        let kept = self.allocator.keeps(bp, txg);
        self.store.l2arc.forget(bp);
        self.addresses(bp).await?.iter().try_for_each(|dva| self.allocator.free(dva, txg, kept))
    }

    /// The addresses of a block; of a gang, the addresses of its headers and members.
    async fn addresses(&self, bp: &Blkptr) -> Result<Vec<Dva>> {
        let mut places: Vec<Dva> = bp.dvas().collect();
        if bp.is_gang() {
            let at = Bookmark { objset: 0, object: 0, level: bp.level().0.into(), blkid: 0 };
            members(&self.gang_tree(bp, &at).await?, &mut places);
        }
        Ok(places)
    }

    /// Claims the space of a block that no space map contains: all of it or, on an error, nothing. Of a gang,
    /// headers and members.
    pub async fn claim(&self, txg: Txg, bp: &Blkptr) -> Result<()> {
        let places = self.addresses(bp).await?;
        for (index, dva) in places.iter().enumerate() {
            if let Err(error) = self.allocator.claim(dva, txg).await {
                self.give_back(places.get(..index).unwrap_or_default(), txg);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives back the allocations of a failed batch.
    fn give_back(&self, fresh: &[Dva], txg: Txg) {
        for dva in fresh {
            // The caller that made the batch stops committing in any case.
            if let Err(error) = self.allocator.free(dva, txg, false) {
                tracing::warn!(%error, "what a failed write allocated cannot be given back");
            }
        }
    }

    /// Makes all written data durable.
    pub async fn flush(&self) -> Result<()> {
        self.flush_group(Txg(u64::MAX)).await
    }

    /// Like [`Writer::flush`], for the thread that commits group `txg`
    /// ([`crate::vdev::VdevTree::flush_group`]).
    pub(crate) async fn flush_group(&self, txg: Txg) -> Result<()> {
        let flushed = self.store.vdevs().flush_group(txg).await;
        flushed.map_err(|tried| Error::NotWritten { at: Bookmark::objset_root(0), tried })
    }

    /// The bytes that a block counts for in quotas and listings: allocated, without parity (`bp_get_dsize`).
    pub fn dsize(&self, bp: &Blkptr) -> u64 {
        bp.dvas().map(|dva| self.allocator.deflated(&dva)).sum()
    }
}

/// The addresses of everything below a gang header.
fn members(tree: &GangTree, into: &mut Vec<Dva>) {
    for (member, below) in &tree.members {
        into.extend(member.dvas());
        if let Some(below) = below {
            members(below, into);
        }
    }
}

/// A batch whose blocks have their places.
struct Batch {
    pointers: Vec<Blkptr>,
    /// The blocks that are stored.
    stored: Vec<usize>,
    pieces: Vec<Piece>,
    owners: Vec<usize>,
    fresh: Vec<Dva>,
    /// Larger gang headers would have helped.
    wants_larger_headers: bool,
    /// What it means for the dedup tables.
    sharing: Sharing,
}

/// The outcome of placing a batch.
enum Placed {
    All(Batch),
    /// No block is placed: this metaslab must be loaded first.
    Load(MetaslabId),
    /// No block is placed: some must be compared with blocks that were entered meanwhile.
    Compare,
}

/// The reason why a block has no place.
#[derive(Debug)]
enum Unplaced {
    NotLoaded(MetaslabId),
    NotCompared,
    Failed(Error),
}

/// Encodes a batch, here or on the compute threads.
async fn encode_all(
    batch: Vec<WriteRequest>,
    units: Units,
    salt: Option<[u8; 32]>,
    txg: Txg,
    haste: Haste<'_>,
) -> Result<(Vec<WriteRequest>, Vec<Encoded>)> {
    let bytes: usize = batch.iter().map(|request| request.data.len()).sum();
    let _measured = match haste {
        Haste::Group(meter) => meter.map(|meter| meter.begin(bytes as u64)),
        Haste::Stable => None,
    };
    let is_worth_it = match haste {
        Haste::Group(_) => batch.len() > 1 && bytes >= OFFLOAD_BYTES,
        Haste::Stable => {
            bytes >= OFFLOAD_HEAVY_BYTES && batch.iter().any(|request| is_heavy(request.compress))
        }
    };
    if !is_worth_it {
        let encoded: Result<Vec<_>> =
            batch.iter().map(|request| encode(request, &units, salt.as_ref(), txg)).collect();
        return Ok((batch, encoded?));
    }
    let work = move || {
        let encoded: Result<Vec<_>> =
            batch.par_iter().map(|request| encode(request, &units, salt.as_ref(), txg)).collect();
        (batch, encoded)
    };
    let failed = || Error::Invalid("a batch of blocks could not be encoded".into());
    let result = match haste {
        Haste::Group(_) => offload::offload(work).await,
        Haste::Stable => offload::promptly(work).await,
    };
    let (batch, encoded) = result.ok_or_else(failed)?;
    Ok((batch, encoded?))
}

/// The block that an encoded one overwrites in place, if there is one.
fn place_of<'a>(request: &'a WriteRequest, block: &Stored, txg: Txg) -> Option<&'a Blkptr> {
    predecessor(request, txg).filter(|place| {
        let headers = usize::from(request.copies).max(2);
        let copies = if place.is_gang() { headers } else { request.copies.into() };
        place.psize() == block.psize && place.copies() == copies
    })
}

/// Finds a place for a block, and schedules the write to it. A deduplicated block that becomes a gang is an
/// ordinary block.
fn store<S: place::Space>(
    placement: &mut Placement<'_, S>,
    owner: usize,
    request: &WriteRequest,
    block: Stored,
    (gang_tree, dedup): (Option<&GangTree>, bool),
    salt: Option<&[u8; 32]>,
) -> Result<Blkptr, Unplaced> {
    let copies = usize::from(request.copies.clamp(1, 3));
    let psize = block.psize.get();
    let is_small = request.class == Class::Normal && psize <= request.small_bytes;
    let class = match is_small && placement.space.takes_small_blocks() {
        true => Class::Special,
        false => request.class,
    };
    // Object sets keep their MACs inside the block.
    let with_mac = block.crypt.is_some() && request.dmu_type != DmuType::OBJSET;
    let gang = Gang { owner, class, copies, checksum: request.checksum, salt, with_mac };
    let place = place_of(request, &block, placement.txg).map(|place| place.dvas().collect::<Vec<_>>());
    let (digest, compress, crypt) = (block.digest, block.compress, block.crypt);
    let refused = |refused| match refused {
        Refused::NotLoaded(id) => Unplaced::NotLoaded(id),
        Refused::NoSpace => Unplaced::Failed(Error::NoSpace(request.at.to_string())),
        Refused::Impossible(why) => Unplaced::Failed(Error::Invalid(format!("{}: {why}", request.at))),
    };
    let dvas = match (place, gang_tree) {
        (Some(dvas), Some(tree)) => {
            gang::rewrite(placement, gang, &dvas, tree, block.bytes).map_err(refused)?;
            dvas
        }
        (Some(dvas), None) => {
            placement.write(owner, &dvas, block.bytes);
            dvas
        }
        (None, _) => match placement.allocate(class, psize, copies) {
            Ok(dvas) => {
                placement.write(owner, &dvas, block.bytes);
                dvas
            }
            Err(Denied::NoSpace) if request.may_gang && psize > placement.units.min_alloc => {
                gang::create(placement, gang, block.bytes).map_err(refused)?
            }
            Err(denied) => return Err(refused(denied.into())),
        },
    };
    let dedup = dedup && !dvas.iter().any(|dva| dva.gang);
    let parts = BlkptrParts {
        dvas,
        lsize: Lsize(request.data.len() as u64),
        psize: block.psize,
        compress,
        checksum_type: request.checksum,
        checksum: digest,
        dmu_type: request.dmu_type,
        level: level_of(request),
        dedup,
        byte_order: ByteOrder::Little,
        logical_birth: placement.txg,
        physical_birth: placement.txg,
        fill: request.fill,
        crypt,
    };
    parts.build().map_err(Error::format(request.at.to_string())).map_err(Unplaced::Failed)
}
