//! Blocks that are written before their group is.
//!
//! # The idea
//! The intent log need not hold the data of a large write: the block is written at once to where it will
//! stay, and the log holds its pointer (OpenZFS: `dmu_sync`, `WR_INDIRECT`). The layer remembers the pointer
//! with the very block that was written. When the group is written and the layer still has that block, the
//! pointer goes into the tree, and nothing is written twice. When the block was changed, punched or dropped
//! since, what was written early is freed with the group: not before, because until the group is committed a
//! record of the log may lead to it.
//!
//! # Room
//! Data are accepted for one place of each block, and what is written early takes that. Therefore a block
//! counts as not dirty from the moment on at which it begins to be written early: whoever writes to it after
//! that has the next place accepted, and early writes ask nobody. A block for which no free run is long
//! enough is not written early: as a gang it would have to be written again, and what is given back is free
//! only with the group. (Who asked just before that moment, and writes just after, has no other place: that
//! is one block of each writer at most, which the slop is for.)
//!
//! # Invariants
//! - A block that was written early is never written over in its place: the log says what its checksum is.
//! - Whoever calls [`LiveObject::write_early`] sees to it that the group is not written before the call has
//!   ended.
//!
//! Source of the facts: OpenZFS 2.3 `dmu.c`.

use std::collections::BTreeMap;

use ondisk::Txg;
use ondisk::blkptr::Blkptr;

use super::LiveObject;
use super::layer::Layer;
use super::policy::Which;
use crate::Bookmark;
use crate::cache::Retain;
use crate::error::{Error, Result};
use crate::zio::{WriteRequest, Writer};

impl LiveObject {
    /// Writes block `id` as group `txg` has it, unflushed, and gives its pointer. `None` when that group has
    /// not written the block, and when it takes no block of its own on the devices (zeroes), or finds no free
    /// run that is long enough.
    pub async fn write_early(&self, writer: &Writer, txg: Txg, id: u64) -> Result<Option<Blkptr>> {
        let (block, dnode) = {
            let mut state = self.core.lock();
            let Some(at) = state.layers.iter().position(|layer| layer.txg == txg) else { return Ok(None) };
            let Some(layer) = state.layers.get_mut(at) else { return Ok(None) };
            let Some(block) = layer.blocks.get(&id) else { return Ok(None) };
            if let Some((pointer, written)) = layer.early.get(&id)
                && written.is_same(block)
            {
                return Ok(Some(*pointer));
            }
            let block = block.clone();
            layer.begun_early.insert(id);
            (block, state.dnode_below(at + 1))
        };
        let objset = self.objset();
        let which = Which { level: 0, dmu_type: dnode.dmu_type, is_spill: false };
        let way = objset.policy_of(txg).way(objset.id(), Some(&dnode), which);
        let at = Bookmark::data(objset.id().get(), self.id().get(), id);
        let is_cached = objset.primary().get().takes(dnode.dmu_type.is_metadata());
        let request = WriteRequest {
            at,
            data: block.clone(),
            dmu_type: dnode.dmu_type,
            checksum: way.checksum,
            compress: way.compress,
            zstd_level: way.zstd_level,
            copies: way.copies,
            class: way.class,
            small_bytes: way.small_bytes,
            may_embed: false,
            may_gang: false,
            nopwrite: false,
            previous: None,
            retain: if is_cached { Retain::In } else { Retain::Out },
            fill: 1,
        };
        let written = match writer.write_promptly(txg, vec![request]).await {
            Err(Error::NoSpace(_)) => return Ok(None),
            written => written?,
        };
        let Some(pointer) = written.first().copied().filter(|pointer| !pointer.is_hole()) else {
            return Ok(None);
        };
        let is_remembered = !pointer.is_gang() && {
            let mut state = self.core.lock();
            let layer = state.layers.iter_mut().find(|layer| layer.txg == txg);
            layer.map(|layer| layer.remember_early(id, pointer, block)).is_some()
        };
        if is_remembered {
            return Ok(Some(pointer));
        }
        writer.free(txg, &pointer).await?;
        Ok(None)
    }
}

impl Layer {
    fn remember_early(&mut self, id: u64, pointer: Blkptr, block: crate::Block) {
        if let Some((before, _)) = self.early.insert(id, (pointer, block)) {
            self.outdated.push(before);
        }
    }

    /// The blocks that are on disk as the layer has them, and what else was written early.
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
