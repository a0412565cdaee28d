//! Object sets that are written.

use std::sync::Arc;

use ondisk::blkptr::{Blkptr, ChecksumType, CompressType};
use ondisk::dmu::DmuType;
use ondisk::dnode::Dnode;
use ondisk::objset::ObjsetType;
use ondisk::zil::ZilHeader;
use ondisk::{ObjectId, ObjsetId, Txg};

use super::{Objset, OrderedBlock};
use crate::error::Result;
use crate::txg::Tx;
use crate::zio::Writer;
use crate::{Block, Pool};

/// How the blocks of an object set are written: what its dataset's properties say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Checksum of data; metadata use at least fletcher4.
    pub checksum: ChecksumType,
    /// Compression of data; metadata use lz4 (or lzjb in pools without the feature).
    pub compress: CompressType,
    /// Level code of zstd.
    pub zstd_level: u8,
    /// Copies of data; metadata have one more, the MOS has three.
    pub copies: u8,
    /// `redundant_metadata`: 0 all, 1 most, 2 none, 3 some.
    pub redundant_metadata: u8,
    /// `special_small_blocks` in bytes; 0 for none.
    pub special_small_blocks: u64,
}

/// What a new object is.
#[derive(Debug, Clone)]
pub struct NewObject {
    /// Type of its contents.
    pub dmu_type: DmuType,
    /// Bytes in a data block.
    pub block_size: u32,
    /// Type of the bonus area.
    pub bonus_type: DmuType,
    /// The bonus area.
    pub bonus: Vec<u8>,
    /// Slots of 512 bytes for its dnode, at least 1.
    pub slots: u8,
}

/// What a sync of an object set did.
#[derive(Debug, Clone, Default)]
pub struct SyncedObjset {
    /// The pointer to the object set's block, as of now.
    pub root: Blkptr,
    /// Deflated, physical and logical bytes of the blocks written.
    pub born: Space,
    /// Blocks that the object set no longer refers to, not freed yet. Those born in this group are among them and count as freed.
    pub killed: Vec<Blkptr>,
}

/// Space in the three ways in which datasets count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Allocated, less parity.
    pub used: u64,
    /// After compression.
    pub compressed: u64,
    /// Before compression.
    pub uncompressed: u64,
}

/// An object set that is written: its committed state and what the groups not yet committed changed.
#[derive(Debug)]
pub struct LiveObjset {}

/// An object of a [`LiveObjset`].
#[derive(Debug)]
pub struct LiveObject {}

#[expect(unused_variables)]
impl LiveObjset {
    /// Opens the object set whose block is at `root`.
    pub async fn open(pool: &Arc<Pool>, id: ObjsetId, root: &Blkptr, policy: Policy) -> Result<Arc<Self>> {
        todo!()
    }

    /// A new, empty object set, to be written with the group of `tx`.
    pub fn create(pool: &Arc<Pool>, id: ObjsetId, kind: ObjsetType, policy: Policy, tx: &Tx) -> Arc<Self> {
        todo!()
    }

    /// Object number of the dataset in the MOS; 0 is the MOS.
    pub fn id(&self) -> ObjsetId {
        todo!()
    }

    /// What it is for.
    pub fn kind(&self) -> ObjsetType {
        todo!()
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        todo!()
    }

    /// How its blocks are written.
    pub fn policy(&self) -> Arc<Policy> {
        todo!()
    }

    /// From the next block on.
    pub fn set_policy(&self, policy: Policy) {
        todo!()
    }

    /// Opens an object.
    pub async fn object(self: &Arc<Self>, id: ObjectId) -> Result<Arc<LiveObject>> {
        todo!()
    }

    /// Creates an object under a number of the object set's choice.
    pub async fn allocate(self: &Arc<Self>, tx: &Tx, new: NewObject) -> Result<Arc<LiveObject>> {
        todo!()
    }

    /// Creates an object under a number that is free.
    pub async fn claim(self: &Arc<Self>, tx: &Tx, id: ObjectId, new: NewObject) -> Result<Arc<LiveObject>> {
        todo!()
    }

    /// Frees an object and all its blocks.
    pub async fn free(self: &Arc<Self>, tx: &Tx, id: ObjectId) -> Result<()> {
        todo!()
    }

    /// The object set as readers see it: objects opened from it show what was changed up to now, in whatever group.
    pub fn view(self: &Arc<Self>) -> Arc<Objset> {
        todo!()
    }

    /// Whether the group `txg` changed anything.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        todo!()
    }

    /// The header of its intent log.
    pub fn zil_header(&self) -> ZilHeader {
        todo!()
    }

    /// Another header of its intent log, from the group of `tx` on.
    pub fn set_zil_header(&self, tx: &Tx, header: ZilHeader) {
        todo!()
    }

    /// Writes what group `txg` changed. May be called again for the same group after more changes: blocks written before are then written in place.
    pub async fn sync(self: &Arc<Self>, writer: &Writer, txg: Txg) -> Result<SyncedObjset> {
        todo!()
    }
}

#[expect(unused_variables)]
impl LiveObject {
    /// The object set.
    pub fn objset(&self) -> &Arc<LiveObjset> {
        todo!()
    }

    /// Its number.
    pub fn id(&self) -> ObjectId {
        todo!()
    }

    /// Its dnode, changes included; block pointers and space used are those of the last sync.
    pub fn dnode(&self) -> Dnode {
        todo!()
    }

    /// Bytes in a data block.
    pub fn block_size(&self) -> u64 {
        todo!()
    }

    /// First byte after the last block that is not a hole at the end.
    pub fn end(&self) -> u64 {
        todo!()
    }

    /// The bonus area.
    pub fn bonus(&self) -> Arc<[u8]> {
        todo!()
    }

    /// Another bonus area.
    pub fn set_bonus(&self, tx: &Tx, bonus_type: DmuType, bonus: &[u8]) {
        todo!()
    }

    /// Another type of contents (`dmu_object_zapify`).
    pub fn set_type(&self, tx: &Tx, dmu_type: DmuType) {
        todo!()
    }

    /// Another block size. Refused when the object has more than its first block.
    pub async fn set_block_size(&self, tx: &Tx, bytes: u32) -> Result<()> {
        todo!()
    }

    /// The spill block.
    pub async fn spill(&self) -> Result<Option<OrderedBlock>> {
        todo!()
    }

    /// Another spill block, or none.
    pub fn set_spill(&self, tx: &Tx, spill: Option<Block>) {
        todo!()
    }

    /// Data block `id`; `None` for a hole, and after the last block.
    pub async fn block(&self, id: u64) -> Result<Option<OrderedBlock>> {
        todo!()
    }

    /// Fills `into` with the bytes from `offset` on.
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        todo!()
    }

    /// Writes a whole block.
    pub fn write_block(&self, tx: &Tx, id: u64, block: Block) {
        todo!()
    }

    /// Writes bytes anywhere. Finishes in the first poll when the blocks that it writes parts of are cached.
    pub async fn write_at(&self, tx: &Tx, offset: u64, bytes: &[u8]) -> Result<()> {
        todo!()
    }

    /// Makes a range read as zeroes: whole blocks become holes. `length` may be `u64::MAX` for all to the end.
    pub async fn punch(&self, tx: &Tx, offset: u64, length: u64) -> Result<()> {
        todo!()
    }
}
