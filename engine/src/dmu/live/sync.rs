//! Writing one group of an object set: objects, then their dnodes, then the object set's own block. Before
//! that, the group's changes go into the sets of numbers ([`super::sets`]).
//!
//! Objects are written side by side, as many as is useful, and their blocks share batches. Each object shows
//! its new tree as soon as that is written; the dnodes follow when all objects are done. Until then the dirty
//! objects are held, so that no caller opens one from its old dnode.
//!
//! All blocks of an encrypted object set are sealed with its key, from the leaves to the object set's block,
//! whose MACs cover the rest ([`crate::zio::Seal`]). They do not cover the header of the intent log: a group
//! that changes nothing else is written without the key, with the MACs as they are. So logs are claimed and
//! given up in datasets whose keys are not loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use codec::crypt::objset_macs;
use device::IoBuf;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODE_BLOCK_SIZE, DNODE_MIN_SIZE, DNODES_PER_BLOCK, Dnode};
use ondisk::objset::Objset as ObjsetPhys;
use ondisk::{ByteOrder, Txg};

use super::accounting::{Counted, Deltas, Usage};
use super::batch::Batcher;
use super::layer::{Core, Layer};
use super::objset::{Dirty, LiveObjset, RESCAN_AFTER_FREED};
use super::policy::Which;
use super::raw::keep_tail;
use super::tree_sync::{Account, Changes, Content, TreeSync};
use super::{Policy, SyncedObjset};
use crate::cache::Retain;
use crate::dmu::Objset;
use crate::dmu::tree::Tree;
use crate::error::{Error, Result};
use crate::zio::{Seal, WriteRequest, Writer};
use crate::{Block, Bookmark};

/// The number of objects that are written side by side.
const OBJECTS: usize = 64;
/// The number of indirect blocks in progress, of all objects.
const FAMILIES: usize = 256;
/// The least number for each object.
const MIN_FAMILIES: usize = 4;

/// A dnode to be put into its block, or none where it is freed; its slots, and what a raw stream said is
/// behind its bonus.
type NewDnode = (Option<Dnode>, usize, Option<Arc<[u8]>>);

/// One dirty object.
pub(super) struct Work {
    core: Arc<Core>,
    pub(super) tree: Arc<Tree>,
    pub(super) dnode: Dnode,
    pub(super) changes: Changes,
    /// Early copies that are not in the tree.
    outdated: Vec<Blkptr>,
    freed: bool,
    /// It is a new object, and all that it had goes.
    reborn: bool,
    /// What a raw stream has behind its bonus.
    tail: Option<Arc<[u8]>>,
}

/// The result for one dirty object.
struct Written {
    core: Arc<Core>,
    /// `None` when it is freed.
    dnode: Option<Dnode>,
    /// Slots that it takes, or took.
    slots: usize,
    account: Account,
    /// What a raw stream has behind its bonus.
    tail: Option<Arc<[u8]>>,
    /// Its usage before.
    before: Usage,
}

impl LiveObjset {
    /// Writes the changes of group `txg`. May be called again for the same group after more changes: blocks
    /// written before are then overwritten in place.
    pub async fn sync(self: &Arc<Self>, writer: &Writer, txg: Txg) -> Result<SyncedObjset> {
        self.settle_sets(txg).await;
        let (committed, dirty) = {
            let mut state = self.lock();
            (Arc::clone(&state.committed), state.dirty.remove(&txg))
        };
        let Some(dirty) = dirty else {
            return Ok(SyncedObjset { root: *committed.root(), ..SyncedObjset::default() });
        };
        let synced = self.write(writer, txg, &committed, &dirty).await;
        if synced.is_err() {
            // Changes that are not written stay visible, and are not forgotten.
            let mut state = self.lock();
            let again = state.dirty.entry(txg).or_default();
            for (id, core) in dirty.objects {
                again.objects.entry(id).or_insert(core);
            }
            again.zil_header = again.zil_header.or(dirty.zil_header);
            again.completes_counts |= dirty.completes_counts;
            again.raw_ranges.extend(dirty.raw_ranges);
        }
        synced
    }

    /// The stored blocks to which group `txg`, which no operation changes any more, adds references: once for
    /// each.
    pub fn cloned(&self, txg: Txg) -> Vec<Blkptr> {
        let dirty: Vec<Arc<Core>> = match self.lock().dirty.get(&txg) {
            Some(dirty) => dirty.objects.values().cloned().collect(),
            None => return Vec::new(),
        };
        let mut cloned = Vec::new();
        for core in dirty {
            let state = core.lock();
            let layers = state.layers.iter().filter(|layer| layer.txg == txg);
            cloned.extend(layers.flat_map(|layer| layer.cloned.values()));
        }
        cloned
    }

    async fn write(
        self: &Arc<Self>,
        writer: &Writer,
        txg: Txg,
        committed: &Arc<Objset>,
        dirty: &Dirty,
    ) -> Result<SyncedObjset> {
        let policy = self.policy_of(txg);
        let seal = self.seal(committed, dirty)?;
        let births = self.lists_births();
        let batcher = Batcher::new(writer, (self.id(), txg), self.progress(), births, seal.clone());
        let work: Vec<_> = dirty.objects.values().filter_map(|core| Work::of(core, txg)).collect();
        let families = (FAMILIES / work.len().clamp(1, OBJECTS)).max(MIN_FAMILIES);
        let mut account = Account::default();
        let mut dnodes = BTreeMap::new();
        let mut freed = Vec::new();
        let mut phys = committed.phys().clone();
        let counted = Counted::of(&phys, self.lock().completing.as_ref());
        let mut deltas = Deltas::default();
        let (batcher, policy) = (&batcher, &*policy);
        let tasks = futures_util::stream::iter(work)
            .map(|work| self.write_object(batcher, policy, work, txg, families, counted))
            .buffer_unordered(OBJECTS);
        for written in batcher.drive(tasks).await? {
            let id = written.core.id.0;
            account.add(written.account);
            if let Some(counted) = counted {
                let completing = &self.lock().completing;
                let had_project = completing.as_ref().is_none_or(|completing| completing.has_counted(id));
                deltas.note(counted, (written.before, had_project), written.dnode.as_ref().map(Usage::of));
            }
            if written.dnode.is_none() {
                freed.push(id);
            }
            dnodes.insert(id, (written.dnode, written.slots, written.tail));
        }
        if counted.is_some_and(|counted| counted.drops_all) {
            account.add(self.drop_counts(batcher, policy, &mut phys).await?);
        } else if counted.is_some_and(|counted| counted.drops_projects) {
            account.add(self.drop_projects(batcher, policy, &mut phys).await?);
        }
        account.add(self.count(batcher, policy, txg, deltas, &mut phys).await?);
        let has_large_dnodes = dnodes.values().any(|(dnode, slots, _)| dnode.is_some() && *slots > 1);
        if !dnodes.is_empty() {
            let mut blocks = self.patch_dnode_blocks(committed, &dnodes).await?;
            let last = blocks.last().map_or(0, |(id, _)| id + 1);
            let end = last.max(phys.meta_dnode.max_block_id.0 + 1);
            let is_raw = self.is_raw();
            if is_raw {
                blocks = self.sealed_dnodes(committed, dirty, blocks).await?;
            }
            let changes = Changes { blocks, end, is_raw, ..Changes::default() };
            let meta = phys.meta_dnode.clone();
            let sync = TreeSync::new(batcher, policy, self.id(), committed.meta(), meta, FAMILIES);
            let (meta_dnode, meta_account) = batcher.drive_one(sync.write(changes)).await?;
            phys.meta_dnode = meta_dnode;
            account.add(meta_account);
        }
        if let Some(header) = &dirty.zil_header {
            let bytes = header.encode(ByteOrder::Little);
            phys.zil_header =
                bytes.try_into().map_err(|_| self.impossible("its log header has another size"))?;
        }
        if let Some(completing) = self.lock().completing.as_ref().filter(|_| dirty.completes_counts) {
            completing.complete(&mut phys);
        }
        let root = self.write_root(writer, txg, policy, committed.root(), &mut phys, seal).await?;
        account.replace(batcher, committed.root(), &root);
        let mut state = self.lock();
        if dirty.completes_counts {
            state.completing = None;
        } else if counted.is_some_and(|counted| counted.completes_projects || counted.restarts)
            && let Some(completing) = &mut state.completing
        {
            completing.note(dnodes.keys().copied());
        }
        let keyless = self.is_raw();
        state.committed = Objset::of(self.pool(), self.id(), (root, keyless), phys, self.primary().clone());
        state.pending.retain(|_, (_, created)| *created > txg);
        for id in &freed {
            state.freed.remove(id);
            state.cores.remove(id);
        }
        state.freed_since_rescan += freed.len() as u64;
        if state.freed_since_rescan >= RESCAN_AFTER_FREED {
            state.freed_since_rescan = 0;
            state.cursor = 1;
        }
        drop(state);
        let born_blocks = batcher.lists_births().then_some(account.born_blocks);
        let Account { born, killed, keeps_births, has_large_blocks, .. } = account;
        Ok(SyncedObjset { root, born, born_blocks, killed, keeps_births, has_large_blocks, has_large_dnodes })
    }

    async fn write_object(
        &self,
        batcher: &Batcher<'_>,
        policy: &Policy,
        work: Work,
        txg: Txg,
        families: usize,
        counted: Option<Counted>,
    ) -> Result<Written> {
        let Work { core, tree, mut dnode, mut changes, outdated, freed, reborn, tail } = work;
        let keyless = self.is_raw();
        changes.is_raw = keyless;
        for pointer in &outdated {
            batcher.writer().free(txg, pointer).await?;
        }
        let before = Usage::of(tree.dnode());
        dnode.flags |= counted.map_or(0, Counted::flags);
        let slots = dnode.slots() as usize;
        let mut gone = Account::default();
        let tree = match reborn && !freed {
            true => {
                let old = tree.dnode().clone();
                gone = TreeSync::new(batcher, policy, self.id(), &tree, old, families).free().await?;
                let blank = dnode.clone();
                Arc::new(Tree::new(self.id(), core.id, blank, keyless, self.primary().clone()))
            }
            false => tree,
        };
        let sync = TreeSync::new(batcher, policy, self.id(), &tree, dnode, families);
        if freed {
            let account = sync.free().await?;
            let dropped = core.lock().commit(txg, Arc::clone(&tree), Vec::new());
            drop(dropped);
            return Ok(Written { core, dnode: None, slots, account, tail: None, before });
        }
        let (dnode, mut account) = sync.write(changes).await?;
        account.add(gone);
        let indirects = std::mem::take(&mut account.indirects);
        let tree = Arc::new(Tree::new(self.id(), core.id, dnode.clone(), keyless, self.primary().clone()));
        let dropped = core.lock().commit(txg, tree, indirects);
        drop(dropped);
        Ok(Written { core, dnode: Some(dnode), slots, account, tail, before })
    }

    /// The dnode blocks with the new dnodes in them.
    async fn patch_dnode_blocks(
        &self,
        committed: &Arc<Objset>,
        dnodes: &BTreeMap<u64, NewDnode>,
    ) -> Result<Vec<(u64, Content)>> {
        let mut loads = FuturesUnordered::new();
        let mut blocks = BTreeMap::new();
        let mut ids: Vec<u64> = dnodes.keys().map(|id| id / DNODES_PER_BLOCK).collect();
        ids.dedup();
        let mut ids = ids.into_iter();
        loop {
            for id in ids.by_ref().take(OBJECTS.saturating_sub(loads.len())) {
                loads.push(
                    async move { (id, committed.meta().block(self.pool(), id, Retain::AsItWas).await) },
                );
            }
            let Some((id, found)) = loads.next().await else { break };
            let buffer = match found? {
                None => IoBuf::zeroed(DNODE_BLOCK_SIZE),
                Some(found) if found.order == ByteOrder::Little && found.block.len() == DNODE_BLOCK_SIZE => {
                    IoBuf::from(&found.block[..])
                }
                Some(_) => {
                    return Err(self.impossible("a dnode block of a big-endian machine, or of another size"));
                }
            };
            blocks.insert(id, buffer);
        }
        for (id, (dnode, slots, tail)) in dnodes {
            let start = (id % DNODES_PER_BLOCK) as usize * DNODE_MIN_SIZE;
            let place = blocks.get_mut(&(id / DNODES_PER_BLOCK));
            let place = place.and_then(|block| block.get_mut(start..start + slots * DNODE_MIN_SIZE));
            let place = place.ok_or_else(|| self.impossible("a dnode that leaves its block"))?;
            match dnode {
                None => place.fill(0),
                Some(dnode) => {
                    let what = || format!("objset {}, dnode of object {id}", self.id());
                    let mut bytes = dnode.encode().map_err(Error::format(what()))?;
                    if self.is_raw() {
                        keep_tail(dnode, tail.as_deref(), place, &mut bytes);
                    }
                    if bytes.len() != place.len() {
                        return Err(self.impossible("a dnode of another size"));
                    }
                    place.copy_from_slice(&bytes);
                }
            }
        }
        Ok(blocks.into_iter().map(|(id, buffer)| (id, Content::Data(Block::from(buffer)))).collect())
    }

    async fn write_root(
        &self,
        writer: &Writer,
        txg: Txg,
        policy: &Policy,
        previous: &Blkptr,
        phys: &mut ObjsetPhys,
        seal: Option<Seal>,
    ) -> Result<Blkptr> {
        let encoded =
            |phys: &ObjsetPhys| phys.encode().map_err(Error::format(format!("objset {}", self.id())));
        let mut bytes = encoded(phys)?;
        let which = Which { level: 0, dmu_type: DmuType::OBJSET, is_spill: false };
        let mut way = policy.way(self.id(), None, which);
        if let Some(seal) = &seal {
            way = way.sealed(which);
            if let Some(key) = seal.key() {
                let macs = objset_macs(key, &bytes, ByteOrder::Little)
                    .map_err(|error| Error::corrupt(format!("objset {}", self.id()), error))?;
                (phys.portable_mac, phys.local_mac) = (macs.portable, macs.local);
                bytes = encoded(phys)?;
            }
        }
        let request = WriteRequest {
            at: Bookmark::objset_root(self.id().0),
            data: Block::from(IoBuf::from(bytes.as_slice())),
            dmu_type: DmuType::OBJSET,
            checksum: way.checksum,
            compress: way.compress,
            zstd_level: way.zstd_level,
            copies: way.copies,
            class: way.class,
            small_bytes: way.small_bytes,
            may_embed: false,
            may_gang: true,
            nopwrite: false,
            dedup: None,
            previous: (!previous.is_hole()).then_some(*previous),
            // What is cached was authenticated.
            retain: if seal.as_ref().is_some_and(|seal| seal.key().is_none()) {
                Retain::Out
            } else {
                Retain::In
            },
            may_feed: self.primary().secondary().takes(true),
            seal,
            fill: phys.meta_dnode.blkptrs.iter().map(Blkptr::fill).sum(),
        };
        let written = writer.write(txg, vec![request]).await?;
        written.first().copied().ok_or_else(|| self.impossible("its block was not written"))
    }

    fn impossible(&self, detail: &str) -> Error {
        Error::corrupt(format!("objset {}", self.id()), detail)
    }
}

/// Blocks of a layer, in order. Some of them were written `early`.
fn contents(layer: &Layer, early: &BTreeMap<u64, Blkptr>) -> Vec<(u64, Content)> {
    let written = layer.blocks.iter().map(|(id, block)| match early.get(id) {
        Some(pointer) => (*id, Content::Early(*pointer, block.clone())),
        None if layer.rewritten.get(id).is_some_and(|same| same.is_same(block)) => {
            (*id, Content::Rewritten(block.clone()))
        }
        None => (*id, Content::Data(block.clone())),
    });
    let cloned = layer.cloned.iter().map(|(id, pointer)| (*id, Content::Cloned(*pointer)));
    let mut all: Vec<_> = written.chain(cloned).collect();
    if !layer.cloned.is_empty() {
        all.sort_by_key(|(id, _)| *id);
    }
    all
}

impl Work {
    /// The changes in the layer of `txg` of an object.
    pub(super) fn of(core: &Arc<Core>, txg: Txg) -> Option<Self> {
        let state = core.lock();
        let at = state.layers.iter().position(|layer| layer.txg == txg)?;
        let layer = state.layers.get(at)?;
        let (early, outdated) = layer.early();
        let changes = Changes {
            blocks: contents(layer, &early),
            punched: layer.punched.clone(),
            end: layer.end,
            spill: layer.spill.clone(),
            sound: state.sound_indirects(layer),
            storage_type: state.storage_type,
            is_raw: false,
        };
        let mut dnode = state.dnode_below(at + 1);
        let (freed, reborn) = (layer.freed, layer.reborn.is_some());
        let tail = layer.raw.as_ref().map(|raw| Arc::clone(&raw.tail));
        if !reborn {
            // The committed spill block, until it is written or removed.
            dnode.spill = state.tree.dnode().spill;
            dnode.flags = state.tree.dnode().flags;
        }
        let tree = Arc::clone(&state.tree);
        Some(Self { core: Arc::clone(core), tree, dnode, changes, outdated, freed, reborn, tail })
    }
}
