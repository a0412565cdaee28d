//! Object sets that are filled by a raw stream: as their sender has them, and without a key.
//!
//! # The idea
//! A raw stream brings blocks as they are stored, with salt, IV and MAC, and dnodes whose private bonus areas
//! are ciphertext. They are authenticated as one tree: the MAC of a block of dnodes covers what its dnodes
//! and their top pointers say, and the *portable MAC* of the object set covers the dnode of all dnodes. The
//! sender made both. So all that they cover must become what it is there: sizes, levels, last blocks, chosen
//! functions, the sizes of stored blocks. Addresses, births, checksums and used space are not covered.
//!
//! | part | where it comes from |
//! |---|---|
//! | block of level 0, spill block | a sealed block ([`Block::sealed`]): stored as it came |
//! | indirect block | built here; its MAC is a hash of the MACs below it, which takes no key |
//! | dnode | its description ([`RawDnode`]), and its bonus area as it came |
//! | block of dnodes | built here; salt, IV and MAC are those of the stream's range, else those that it had |
//! | object set | built here; its portable MAC comes with the stream, its local MAC is zero |
//!
//! # Invariants
//! - Nothing is read with a key, nor written with one, though the key may be loaded: until the last record
//!   came, blocks of dnodes and the MACs over them do not fit.
//! - Nothing of it goes to the ARC: what is cached there was authenticated.
//! - Users' space is not counted: owners are ciphertext. The object set says so, and the space is counted
//!   from nothing when it is used with its key ([`super::accounting`]).
//!
//! Source of the facts: OpenZFS 2.4 `dsl_crypt.c` (`dsl_crypto_recv_raw_objset_sync`), `dmu_recv.c`
//! (`receive_object`), `dmu_objset.c` (`dmu_objset_sync`).
//!
//! [`Block::sealed`]: crate::Block::sealed

use std::sync::Arc;

use device::IoBuf;
use ondisk::blkptr::{ChecksumType, CompressType, CryptParts};
use ondisk::dnode::Dnode;
use ondisk::objset::{
    FLAG_PROJECT_QUOTA_COMPLETE, FLAG_USER_ACCOUNTING_COMPLETE, FLAG_USER_OBJECT_ACCOUNTING_COMPLETE,
};
use ondisk::send::RawObjset;
use ondisk::{BlockId, ByteOrder};

use super::layer::State as ObjectState;
use super::object::LiveObject;
use super::objset::{Dirty, LiveObjset};
use super::tree_sync::Content;
use crate::Block;
use crate::dmu::Objset;
use crate::dmu::tree::Found;
use crate::error::{Error, Result};
use crate::txg::Tx;

/// What a raw stream says of a dnode, beyond what is said of any new object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawDnode {
    /// Levels of its tree.
    pub levels: u8,
    /// log2 of the size of its indirect blocks.
    pub indirect_block_shift: u8,
    /// Checksum function chosen for it.
    pub checksum: ChecksumType,
    /// Compression chosen for it.
    pub compress: CompressType,
    /// Its last block.
    pub max_block_id: u64,
    /// What lies behind the bonus in its area, which is ciphertext with it.
    pub tail: Arc<[u8]>,
}

impl RawDnode {
    /// Makes a dnode what is said of it.
    pub(super) fn apply(&self, dnode: &mut Dnode) {
        dnode.levels = self.levels;
        dnode.indirect_block_shift = self.indirect_block_shift;
        dnode.checksum = self.checksum;
        dnode.compress = self.compress;
        dnode.max_block_id = BlockId(self.max_block_id);
    }
}

/// Puts what lies behind the bonus into the bytes of a dnode: what came now, else what is there of the same
/// dnode.
pub(super) fn keep_tail(dnode: &Dnode, tail: Option<&[u8]>, before: &[u8], bytes: &mut [u8]) {
    let start = dnode.bonus_offset() + dnode.bonus.len();
    let end = dnode.bonus_offset() + dnode.bonus_capacity();
    let Some(place) = bytes.get_mut(start..end) else { return };
    let kept = || match Dnode::parse(before, ByteOrder::Little) {
        Ok(Some(old))
            if old.bonus_offset() == dnode.bonus_offset() && old.bonus.len() == dnode.bonus.len() =>
        {
            before.get(start..end)
        }
        _ => None,
    };
    let from = tail.or_else(kept).unwrap_or_default();
    let length = from.len().min(place.len());
    place[..length].copy_from_slice(&from[..length]);
}

impl LiveObjset {
    /// Makes it one that a raw stream fills, from before its first object on.
    ///
    /// # Errors
    /// The blocks that it has are of another structure than those of the stream.
    pub(crate) fn receive_raw(&self, shape: &RawObjset) -> Result<()> {
        let mut state = self.lock();
        let mut phys = state.committed.phys().clone();
        let meta = &mut phys.meta_dnode;
        let root = *state.committed.root();
        let is_same = meta.levels == shape.levels
            && meta.indirect_block_shift == shape.indirect_block_shift
            && meta.max_block_id <= shape.max_block_id;
        if !root.is_hole() && !is_same {
            return Err(Error::Invalid(format!(
                "the stream is of an object set with {} levels of dnodes up to block {}, and here are {} \
                 up to block {}",
                shape.levels, shape.max_block_id, meta.levels, meta.max_block_id
            )));
        }
        (meta.levels, meta.indirect_block_shift) = (shape.levels, shape.indirect_block_shift);
        (meta.checksum, meta.compress) = (shape.checksum, shape.compress);
        meta.max_block_id = shape.max_block_id;
        phys.flags &= !(FLAG_USER_ACCOUNTING_COMPLETE
            | FLAG_USER_OBJECT_ACCOUNTING_COMPLETE
            | FLAG_PROJECT_QUOTA_COMPLETE);
        (phys.portable_mac, phys.local_mac) = (shape.portable_mac, [0; 32]);
        state.committed = Objset::of(self.pool(), self.id(), (root, true), phys, self.primary().clone());
        drop(state);
        self.set_raw();
        Ok(())
    }

    /// Writes the object set's own block with the group of `tx`, though no object may have changed.
    pub(crate) fn touch_raw(&self, tx: &Tx) {
        tx.note_changed();
        self.lock().dirty.entry(tx.txg()).or_default();
    }

    /// With what the sender protected a block of dnodes: it is stored so with the group of `tx`.
    pub(crate) fn note_raw_range(&self, tx: &Tx, dnode_block: u64, crypt: CryptParts) {
        self.lock().dirty.entry(tx.txg()).or_default().raw_ranges.insert(dnode_block, crypt);
    }

    /// Blocks of dnodes as they are stored. Those of nothing but free slots become holes.
    pub(super) async fn sealed_dnodes(
        &self,
        committed: &Objset,
        dirty: &Dirty,
        blocks: Vec<(u64, Content)>,
    ) -> Result<Vec<(u64, Content)>> {
        let mut sealed = Vec::with_capacity(blocks.len());
        for (id, content) in blocks {
            let Content::Data(block) = &content else {
                sealed.push((id, content));
                continue;
            };
            if codec::is_all_zero(block) {
                sealed.push((id, content));
                continue;
            }
            let crypt = match dirty.raw_ranges.get(&id) {
                Some(crypt) => *crypt,
                None => match committed.meta().find(self.pool(), 0, id).await? {
                    Found::Data(bp) => CryptParts { salt: bp.salt(), iv: bp.iv(), mac: bp.mac() },
                    // What nothing vouches for is found out when it is read with the key.
                    Found::Hole { .. } => CryptParts::default(),
                },
            };
            let stored = IoBuf::from(&block[..]);
            let block = Block::sealed(block.len(), stored, CompressType::Off, crypt);
            sealed.push((id, Content::Data(block)));
        }
        Ok(sealed)
    }
}

impl LiveObject {
    /// Makes its dnode what a raw stream says of it. It was described before, in the same group.
    pub(crate) fn set_raw(&self, tx: &Tx, raw: RawDnode) {
        self.change_layer(tx, |state: &mut ObjectState, at| {
            state.last_block = Some(raw.max_block_id);
            if let Some(layer) = state.layers.get_mut(at) {
                layer.raw = Some(raw);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use ondisk::blkptr::Blkptr;
    use ondisk::dmu::DmuType;

    use super::*;
    use crate::dmu::NewObject;
    use crate::dmu::live::dnodes::new_dnode;

    fn dnode(bonus: usize) -> Dnode {
        let bonus = vec![1; bonus];
        let new = NewObject {
            dmu_type: DmuType::PLAIN_FILE_CONTENTS,
            block_size: 512,
            bonus_type: DmuType::SA,
            bonus,
            slots: 1,
        };
        new_dnode(&new).unwrap()
    }

    #[test]
    fn what_lies_behind_a_bonus_stays_with_its_dnode() {
        let dnode = dnode(100);
        let (start, end) = (64 + Blkptr::SIZE + 100, 512);
        let mut bytes = dnode.encode().unwrap();
        keep_tail(&dnode, Some(&vec![7; end - start]), &[0; 512], &mut bytes);
        assert!(bytes[start..].iter().all(|byte| *byte == 7));
        let mut again = dnode.encode().unwrap();
        keep_tail(&dnode, None, &bytes, &mut again);
        assert_eq!(again, bytes);
        // Another dnode has nothing of it.
        let other = super::tests::dnode(96);
        let mut fresh = other.encode().unwrap();
        keep_tail(&other, None, &bytes, &mut fresh);
        assert_eq!(fresh, other.encode().unwrap());
    }
}
