//! For tests: object sets that were never on a disk.
//!
//! A [`Forge`] makes blocks and puts them into the ARC of an open pool under its own pointers. So all layers
//! above the block layer can be tested on structures that no golden pool has: the other byte order, deep
//! trees, old files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{IoBuf, block_on};
use ondisk::blkptr::{Blkptr, BlkptrParts, ChecksumType, CompressType, Dva};
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODE_MIN_SIZE, Dnode};
use ondisk::objset::{OBJSET_SIZE_V1, Objset as ObjsetPhys, ObjsetType, ZIL_HEADER_SIZE};
use ondisk::zap::{MicroEntry, MicroZap};
use ondisk::{Asize, BlockId, ByteOffset, ByteOrder, Level, Lsize, ObjsetId, Psize, Txg, VdevId};

use super::Objset;
use crate::pool::discovery;
use crate::pool::import::{ImportOptions, import};
use crate::{Block, Pool};

/// Makes one object set.
pub(crate) struct Forge {
    pub(crate) pool: Arc<Pool>,
    pub(crate) order: ByteOrder,
    dnodes: BTreeMap<u64, Dnode>,
}

/// A vdev that does not exist in any pool.
const NOWHERE: VdevId = VdevId(1 << 20);
/// Fan-out of four, so that few blocks make a deep tree.
pub(crate) const INDIRECT_SHIFT: u8 = 9;

impl Forge {
    /// `None` when golden pools are to be skipped.
    pub(crate) fn new(order: ByteOrder) -> Option<Self> {
        let golden = testkit::golden::pool("features0")?;
        let pool = block_on(async {
            let found = discovery::scan(&[&golden.dir]).await.unwrap().remove(0);
            import(&found, &ImportOptions::read_only()).await.unwrap()
        });
        Some(Self { pool, order, dnodes: BTreeMap::new() })
    }

    /// Puts a block into the ARC.
    pub(crate) fn block(&self, bytes: &[u8], dmu_type: DmuType, level: u8) -> Blkptr {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let size = bytes.len() as u64;
        let pointer = BlkptrParts {
            dvas: vec![Dva {
                vdev: NOWHERE,
                offset: ByteOffset(NEXT.fetch_add(1, Ordering::Relaxed) << 12),
                asize: Asize(size),
                gang: false,
            }],
            lsize: Lsize(size),
            psize: Psize(size),
            compress: CompressType::Off,
            checksum_type: ChecksumType::Fletcher4,
            checksum: [0; 4],
            dmu_type,
            level: Level(level as i8),
            dedup: false,
            byte_order: self.order,
            logical_birth: Txg(10),
            physical_birth: Txg(10),
            fill: 1,
            crypt: None,
        };
        let pointer = pointer.build().unwrap();
        let mut buffer = IoBuf::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        self.pool.cache().insert(self.pool.cache_key(&pointer, false), Block::from(buffer));
        pointer
    }

    /// A dnode with these data blocks; absent ones are holes.
    pub(crate) fn dnode(
        &self,
        dmu_type: DmuType,
        block_size: usize,
        blocks: &BTreeMap<u64, Vec<u8>>,
    ) -> Dnode {
        let last = blocks.keys().next_back().copied().unwrap_or(0);
        let mut row: BTreeMap<u64, Blkptr> =
            blocks.iter().map(|(id, bytes)| (*id, self.block(bytes, dmu_type, 0))).collect();
        let fan_out = 1u64 << (INDIRECT_SHIFT - 7);
        let mut levels = 1;
        let mut top = last;
        while top > 0 {
            let mut above: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
            for (id, pointer) in row {
                let indirect = above.entry(id / fan_out).or_insert_with(|| vec![0; 1 << INDIRECT_SHIFT]);
                let start = (id % fan_out) as usize * Blkptr::SIZE;
                indirect[start..start + Blkptr::SIZE].copy_from_slice(&pointer.encode(self.order));
            }
            row = above.iter().map(|(id, bytes)| (*id, self.block(bytes, dmu_type, levels))).collect();
            levels += 1;
            top /= fan_out;
        }
        Dnode {
            dmu_type,
            indirect_block_shift: INDIRECT_SHIFT,
            levels,
            blkptrs: vec![row.get(&0).copied().unwrap_or(Blkptr::HOLE)],
            bonus_type: DmuType::NONE,
            checksum: ChecksumType::Inherit,
            compress: CompressType::Inherit,
            flags: 0,
            data_block_sectors: (block_size / 512) as u16,
            extra_slots: 0,
            max_block_id: BlockId(last),
            used: 0,
            bonus: Box::new([]),
            spill: None,
            order: self.order,
        }
    }

    /// Adds an object.
    pub(crate) fn add(&mut self, id: u64, dnode: Dnode) {
        self.dnodes.insert(id, dnode);
    }

    /// Removes an object, so that it can be changed.
    pub(crate) fn take(&mut self, id: u64) -> Dnode {
        self.dnodes.remove(&id).unwrap()
    }

    /// Adds an object with `content` in one block, and with this bonus.
    pub(crate) fn file(&mut self, id: u64, dmu_type: DmuType, content: &[u8], bonus: (DmuType, &[u8])) {
        let size = content.len().next_multiple_of(512).max(512);
        let mut block = content.to_vec();
        block.resize(size, 0);
        let blocks = if content.is_empty() { BTreeMap::new() } else { BTreeMap::from([(0, block)]) };
        let dnode = self.dnode(dmu_type, size, &blocks);
        self.add(id, Dnode { bonus_type: bonus.0, bonus: bonus.1.into(), ..dnode });
    }

    /// The block of a micro ZAP.
    pub(crate) fn micro_zap(&self, normalization: u64, entries: &[(&str, u64)]) -> Vec<u8> {
        let entries: Vec<_> = entries
            .iter()
            .map(|(name, value)| MicroEntry { name: name.as_bytes(), value: *value, cd: 0 })
            .collect();
        let size = (entries.len() + 1) * 64;
        MicroZap::encode(
            size.next_multiple_of(512),
            self.order,
            0x1234_5678_9abc_def1,
            normalization,
            &entries,
        )
        .unwrap()
    }

    /// The object set with all added objects.
    pub(crate) fn objset(&self, objset_type: ObjsetType) -> Arc<Objset> {
        const BLOCK: usize = 16384;
        let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (id, dnode) in &self.dnodes {
            let at = *id as usize * DNODE_MIN_SIZE;
            let block = blocks.entry((at / BLOCK) as u64).or_insert_with(|| vec![0; BLOCK]);
            let bytes = dnode.encode().unwrap();
            block[at % BLOCK..at % BLOCK + bytes.len()].copy_from_slice(&bytes);
        }
        let phys = ObjsetPhys {
            meta_dnode: self.dnode(DmuType::DNODE, BLOCK, &blocks),
            zil_header: [0; ZIL_HEADER_SIZE],
            objset_type,
            flags: 0,
            portable_mac: [0; 32],
            local_mac: [0; 32],
            user_used_dnode: None,
            group_used_dnode: None,
            project_used_dnode: None,
            size: OBJSET_SIZE_V1,
            order: self.order,
        };
        let root = self.block(&phys.encode().unwrap(), DmuType::OBJSET, 0);
        block_on(Objset::open(&self.pool, ObjsetId(1 << 40), &root)).unwrap()
    }
}
