//! Blocks that are written before their group.
//!
//! # The idea
//! The intent log need not hold the data of a large write: the block is written at once to its final place,
//! and the log holds its pointer (OpenZFS: `dmu_sync`, `WR_INDIRECT`). The layer remembers the pointer
//! together with the written block. If the layer still has the same block when the group is written, the
//! pointer goes into the tree, and nothing is written twice. If the block was changed, punched or dropped
//! since, the early copy is freed with the group. It is not freed before, because until the group is
//! committed a record of the log may lead to it.
//!
//! # Room
//! Data are accepted for one place of each block, and the early copy takes that place. Therefore a block no
//! longer counts as dirty from the moment when its early write begins: a later write to it needs another
//! place and asks for it. After a crash the log leads to the early copy, and the replay writes the block
//! again, so that the crash takes one more place. An early write borrows that when it begins
//! ([`crate::zio::LogRoom`]); where it is not lent, the block is not written early. Neither is one for which
//! no free run is long enough: as a gang it would have to be written again, and its space is free again only
//! with the group. (A writer that asked just before that moment, and writes just after, has no other place:
//! that is at most one block of each writer, which the slop covers.)
//!
//! A block of a dataset with deduplication is written early like any other, with the checksum that dedup
//! needs. The sync of its group enters it in a table, or finds that it is stored already
//! ([`Writer::enter_early`]). OpenZFS writes an encrypted one once more then, as its early copy has a random
//! initialization vector; here it gets at once the one that dedup needs.
//!
//! # Invariants
//! - A block that was written early is never overwritten in place: the log contains its checksum.
//! - The caller of [`LiveObject::write_early`] ensures that the group is not written before the call has
//!   ended.
//!
//! Source of the facts: OpenZFS 2.3 `dmu.c`.

use std::collections::BTreeMap;

use ondisk::Txg;
use ondisk::blkptr::{Blkptr, CompressType};

use super::LiveObject;
use super::layer::Layer;
use super::policy::Which;
use crate::cache::Retain;
use crate::error::{Error, Result};
use crate::zio::{Seal, WriteRequest, Writer};
use crate::{Block, Bookmark};

/// A block that was written before its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Early {
    /// The pointer to it.
    pub pointer: Blkptr,
    /// Its bytes up to the last one that is not zero.
    pub data_bytes: u64,
}

impl Early {
    fn of(pointer: Blkptr, block: &Block) -> Self {
        let last = block.iter().rposition(|byte| *byte != 0);
        Self { pointer, data_bytes: last.map_or(0, |last| last as u64 + 1) }
    }
}

impl LiveObject {
    /// Writes block `id` with its contents in group `txg`, unflushed. `None` if that group has not written
    /// the block, if the block occupies no space of its own on the devices (zeroes), if no free run is long
    /// enough, or if the pool has no room for another place of it.
    pub async fn write_early(&self, writer: &Writer, txg: Txg, id: u64) -> Result<Option<Early>> {
        let (bytes, dnode) = {
            let state = self.core.lock();
            let Some(at) = state.layers.iter().position(|layer| layer.txg == txg) else { return Ok(None) };
            let Some(layer) = state.layers.get(at) else { return Ok(None) };
            let Some(block) = layer.blocks.get(&id) else { return Ok(None) };
            if let Some((pointer, written)) = layer.early.get(&id)
                && written.is_same(block)
            {
                return Ok(Some(Early::of(*pointer, block)));
            }
            (block.len(), state.dnode_below(at + 1))
        };
        let objset = self.objset();
        let which = Which { level: 0, dmu_type: dnode.dmu_type, is_spill: false };
        let way = objset.policy_of(txg).way(objset.id(), Some(&dnode), which);
        let (way, seal) = way.with(objset.key()?.map(Seal::of), which);
        let copies = u64::from(way.copies);
        if !writer.borrow_for_early(txg, bytes as u64, copies) {
            return Ok(None);
        }
        let not_after_all = || writer.give_back_early(txg, bytes as u64, copies);
        let block = {
            let mut state = self.core.lock();
            let layer = state.layers.iter_mut().find(|layer| layer.txg == txg);
            layer.and_then(|layer| layer.begin_early(id, bytes))
        };
        let Some(block) = block else {
            not_after_all();
            return Ok(None);
        };
        let at = Bookmark::data(objset.id().get(), self.id().get(), id);
        let is_cached = objset.primary().get().takes(dnode.dmu_type.is_metadata());
        let request = WriteRequest {
            at,
            data: block.clone(),
            dmu_type: dnode.dmu_type,
            checksum: way.checksum,
            // Deduplicated zeroes are holes, compressed or not.
            compress: match (way.compress, way.dedup) {
                (CompressType::Off, Some(_)) => CompressType::Empty,
                (compress, _) => compress,
            },
            zstd_level: way.zstd_level,
            copies: way.copies,
            class: way.class,
            small_bytes: way.small_bytes,
            may_embed: false,
            may_gang: false,
            nopwrite: false,
            dedup: None,
            previous: None,
            retain: if is_cached { Retain::In } else { Retain::Out },
            may_feed: objset.primary().secondary().takes(dnode.dmu_type.is_metadata()),
            seal,
            fill: 1,
        };
        let written = match writer.write_promptly(txg, vec![request]).await {
            Err(Error::NoSpace(_)) => {
                not_after_all();
                return Ok(None);
            }
            written => written?,
        };
        let Some(pointer) = written.first().copied().filter(|pointer| !pointer.is_hole()) else {
            not_after_all();
            return Ok(None);
        };
        let early = Early::of(pointer, &block);
        let is_remembered = !pointer.is_gang() && {
            let mut state = self.core.lock();
            let layer = state.layers.iter_mut().find(|layer| layer.txg == txg);
            layer.map(|layer| layer.remember_early(id, pointer, block)).is_some()
        };
        if is_remembered {
            return Ok(Some(early));
        }
        writer.free(txg, &pointer).await?;
        Ok(None)
    }
}

impl Layer {
    /// Begins to write a block early, if it still has so many bytes.
    fn begin_early(&mut self, id: u64, bytes: usize) -> Option<Block> {
        let block = self.blocks.get(&id).filter(|block| block.len() == bytes)?.clone();
        self.begun_early.insert(id);
        Some(block)
    }

    fn remember_early(&mut self, id: u64, pointer: Blkptr, block: Block) {
        if let Some((before, _)) = self.early.insert(id, (pointer, block)) {
            self.outdated.push(before);
        }
    }

    /// The blocks on disk whose contents are still those of the layer, and the other blocks that were written
    /// early.
    pub(super) fn early(&self) -> (BTreeMap<u64, Blkptr>, Vec<Blkptr>) {
        let mut outdated = self.outdated.clone();
        let mut current = BTreeMap::new();
        for (id, (pointer, written)) in &self.early {
            let is_current = self.blocks.get(id).is_some_and(|block| block.is_same(written));
            if is_current && !self.freed {
                current.insert(*id, *pointer);
            } else {
                outdated.push(*pointer);
            }
        }
        (current, outdated)
    }
}
