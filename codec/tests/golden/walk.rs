//! The least that reaches all blocks of a pool: newest uberblock, MOS, datasets, object sets, dnodes, block
//! trees.
//!
//! Every block's checksum is verified on the way, so the bytes need no other oracle.

use codec::crypt::{DatasetKey, decrypt_block, verify_indirect_mac};
use codec::{checksum, compress};
use ondisk::blkptr::{Blkptr, Protection};
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODES_PER_BLOCK, Dnode};
use ondisk::label::{FRONT_SIZE, UBERBLOCK_RING};
use ondisk::objset::Objset;
use ondisk::uberblock::Uberblock;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// `size` bytes at `offset` of a device, counted from the end of its front labels.
pub fn read_front(disk: &File, offset: u64, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    disk.read_exact_at(&mut bytes, FRONT_SIZE + offset).unwrap();
    bytes
}

/// The newest uberblock of a device.
pub fn uberblock(disk: &File) -> Uberblock {
    let slots = UBERBLOCK_RING.step_by(1024).filter_map(|offset| {
        let mut bytes = [0; 1024];
        disk.read_exact_at(&mut bytes, offset).unwrap();
        Uberblock::parse(&bytes).ok()
    });
    slots.max_by_key(Uberblock::recency).unwrap()
}

/// Reads blocks of one dataset, or of the MOS when there is no key.
pub struct Walk<'a> {
    /// The stored bytes of a block.
    fetch: &'a dyn Fn(&Blkptr) -> Vec<u8>,
    key: Option<&'a DatasetKey>,
    /// Which blocks were read: their protection, and whether they hold dnodes.
    pub seen: Vec<(Protection, bool)>,
}

/// Dnodes by object number.
pub type Dnodes = BTreeMap<usize, Dnode>;

impl<'a> Walk<'a> {
    /// Starts with nothing seen.
    pub fn new(fetch: &'a dyn Fn(&Blkptr) -> Vec<u8>, key: Option<&'a DatasetKey>) -> Self {
        Walk { fetch, key, seen: Vec::new() }
    }

    /// The content of a block.
    pub fn read(&mut self, bp: &Blkptr) -> Vec<u8> {
        let mut block = vec![0; bp.lsize().get() as usize];
        if let Some(embedded) = bp.embedded() {
            compress::decompress(embedded.compress, embedded.bytes(), &mut block).unwrap();
            return block;
        }
        let mut stored = (self.fetch)(bp);
        let (ty, order, expected) = (bp.checksum_type(), bp.byte_order(), bp.checksum());
        let verified = if bp.uses_crypt() && bp.dmu_type() != DmuType::OBJSET {
            checksum::verify_encrypted(ty, &stored, order, None, &expected)
        } else {
            checksum::verify(ty, &stored, order, None, &expected)
        };
        verified.unwrap_or_else(|error| panic!("{bp}: {error}"));
        if let Some(key) = self.key {
            decrypt_block(key, bp, &mut stored).unwrap_or_else(|error| panic!("{bp}: {error}"));
        }
        compress::decompress(bp.compress(), &stored, &mut block)
            .unwrap_or_else(|error| panic!("{bp}: {error}"));
        if bp.protection() == Protection::IndirectMac {
            verify_indirect_mac(bp, &block).unwrap_or_else(|error| panic!("{bp}: {error}"));
        }
        let kind = (bp.protection(), bp.dmu_type() == DmuType::DNODE);
        if !self.seen.contains(&kind) {
            self.seen.push(kind);
        }
        block
    }

    /// The level 0 blocks below `bp`, by block id.
    fn data(&mut self, bp: &Blkptr, id: usize, data: &mut BTreeMap<usize, Vec<u8>>) {
        if bp.is_hole() {
            return;
        }
        let block = self.read(bp);
        if bp.level().get() == 0 {
            data.insert(id, block);
            return;
        }
        let fanout = block.len() / Blkptr::SIZE;
        for (index, child) in block.chunks_exact(Blkptr::SIZE).enumerate() {
            self.data(&Blkptr::parse(child, bp.byte_order()).unwrap(), id * fanout + index, data);
        }
    }

    fn object(&mut self, dnode: &Dnode) -> BTreeMap<usize, Vec<u8>> {
        let mut data = BTreeMap::new();
        dnode.spill.iter().for_each(|bp| self.data(bp, 0, &mut BTreeMap::new()));
        dnode.blkptrs.iter().enumerate().for_each(|(id, bp)| self.data(bp, id, &mut data));
        data
    }

    /// An object set and all its dnodes.
    pub fn dnodes(&mut self, root: &Blkptr) -> (Objset, Dnodes) {
        let objset = Objset::parse(&self.read(root), root.byte_order()).unwrap();
        let slots_per_block = DNODES_PER_BLOCK as usize;
        let mut dnodes = BTreeMap::new();
        for (id, block) in self.object(&objset.meta_dnode) {
            let mut slot = 0;
            while slot < slots_per_block {
                let dnode = Dnode::parse(&block[512 * slot..], objset.order).unwrap();
                let used = dnode.as_ref().map_or(1, Dnode::slots);
                dnode.map(|dnode| dnodes.insert(slots_per_block * id + slot, dnode));
                slot += used as usize;
            }
        }
        (objset, dnodes)
    }

    /// Reads all blocks of all objects.
    pub fn objects(&mut self, objset: &Objset, dnodes: &Dnodes) {
        let accounting = [&objset.user_used_dnode, &objset.group_used_dnode, &objset.project_used_dnode];
        for dnode in accounting.into_iter().flatten().chain(dnodes.values()) {
            self.object(dnode);
        }
    }

    /// The root block pointers of the datasets, by the number of their object in the MOS.
    pub fn dataset_roots(&mut self, uberblock: &Uberblock) -> BTreeMap<usize, Blkptr> {
        let (_, dnodes) = self.dnodes(&uberblock.root_bp);
        let datasets = dnodes.iter().filter(|(_, dnode)| dnode.bonus_type == DmuType::DSL_DATASET);
        let root = |dnode: &Dnode| Blkptr::parse(&dnode.bonus[128..256], dnode.order).unwrap();
        datasets.map(|(&object, dnode)| (object, root(dnode))).filter(|(_, root)| !root.is_hole()).collect()
    }
}
