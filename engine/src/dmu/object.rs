//! An open object: a sparse array of blocks with a bonus area.
//!
//! An object has no length in bytes beyond its last block; the layer that gives it meaning (a file, a volume)
//! keeps the length elsewhere. Reading past the last block returns zeroes, like reading a hole.
//!
//! An object of the view of a live object set shows the present data at each read, and its dnode as it was
//! when it was opened.

use std::fmt;
use std::sync::Arc;

use ondisk::dnode::Dnode;
use ondisk::{ByteOrder, ObjectId};

use super::live::LiveObject;
use super::objset::Objset;
use super::sink::{Sink, read_blocks};
use super::tree::{Found, OrderedBlock, Tree};
use crate::cache::Retain;
use crate::{Bookmark, Error, Result};

/// The most runs that a search for data or a hole passes.
const MAX_STEPS: u32 = 1 << 24;

/// An open object. Cheap to clone.
#[derive(Clone)]
pub struct Object {
    objset: Arc<Objset>,
    tree: Arc<Tree>,
    /// The live object, if the data may change.
    live: Option<Arc<LiveObject>>,
}

/// A run of an object that is all data or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// True when the run was never written and reads as zeroes.
    pub is_hole: bool,
    /// The first byte after the run.
    pub end: u64,
}

impl Object {
    pub(crate) fn new(objset: Arc<Objset>, id: ObjectId, dnode: Dnode) -> Self {
        let primary = objset.primary().clone();
        let tree = Arc::new(Tree::new(objset.id(), id, dnode, objset.is_keyless(), primary));
        Self { objset, tree, live: None }
    }

    /// An object of a view.
    pub(super) fn live(objset: Arc<Objset>, live: Arc<LiveObject>) -> Self {
        let primary = objset.primary().clone();
        let tree = Arc::new(Tree::new(objset.id(), live.id(), live.dnode(), false, primary));
        Self { objset, tree, live: Some(live) }
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// The object's number.
    pub fn id(&self) -> ObjectId {
        self.tree.object_id()
    }

    /// The dnode.
    pub fn dnode(&self) -> &Dnode {
        self.tree.dnode()
    }

    /// The bonus area and its byte order.
    pub fn bonus(&self) -> (&[u8], ByteOrder) {
        (&self.dnode().bonus, self.dnode().order)
    }

    /// The spill block, for attributes that do not fit into the bonus area.
    pub async fn spill(&self) -> Result<Option<OrderedBlock>> {
        match &self.live {
            Some(live) => Box::pin(live.spill()).await,
            None => self.objset.spill(&self.tree).await,
        }
    }

    /// Bytes in a data block.
    pub fn block_size(&self) -> u64 {
        match &self.live {
            Some(live) => live.block_size(),
            None => self.dnode().data_block_size(),
        }
    }

    /// The first byte after the last block.
    pub fn end(&self) -> u64 {
        if let Some(live) = &self.live {
            return live.end().max(live.block_size());
        }
        self.dnode().max_block_id.0.saturating_add(1).saturating_mul(self.block_size())
    }

    /// Data block `id`; `None` for a hole, and after the last block.
    pub async fn block(&self, id: u64) -> Result<Option<OrderedBlock>> {
        self.block_retaining(id, Retain::AsItWas).await
    }

    /// Loads data block `id` into the ARC, where it waits for a reader that reads it to its end even if it is
    /// not to be cached.
    pub async fn warm(&self, id: u64) -> Result<()> {
        self.block_retaining(id, Retain::Ahead).await.map(|_| ())
    }

    /// Data block `id`. `retain` applies to blocks that the ARC does not cache.
    async fn block_retaining(&self, id: u64, retain: Retain) -> Result<Option<OrderedBlock>> {
        match &self.live {
            Some(live) => Box::pin(live.block_retaining(id, retain)).await,
            None => self.tree.block(self.objset.pool(), id, retain).await,
        }
    }

    /// The block pointer of the block of `level` that is or covers data block `id`; `None` for a hole. In a
    /// view, as of the time when the object was opened.
    pub async fn blkptr(&self, level: u8, id: u64) -> Result<Option<ondisk::blkptr::Blkptr>> {
        Ok(match self.tree.find(self.objset.pool(), level, id).await? {
            Found::Data(pointer) => Some(pointer),
            Found::Hole { .. } => None,
        })
    }

    /// Like [`Object::blkptr`], by the number of the block within its level, as in bookmarks.
    pub async fn blkptr_at(&self, level: u8, id: u64) -> Result<Option<ondisk::blkptr::Blkptr>> {
        let shift = self.dnode().pointers_per_indirect_shift() * u32::from(level);
        match if shift < 64 { id.checked_mul(1 << shift) } else { (id == 0).then_some(0) } {
            Some(first) => self.blkptr(level, first).await,
            None => Ok(None),
        }
    }

    /// The name of block `id` in messages.
    pub fn bookmark(&self, id: u64) -> Bookmark {
        self.tree.bookmark(0, id)
    }

    /// An error about the contents of the object.
    pub fn corrupt(&self, detail: impl fmt::Display) -> Error {
        Error::corrupt(format!("objset {}, object {}", self.objset.id(), self.id()), detail)
    }

    /// Fills `into` with the bytes from `offset` on.
    pub async fn read_at(&self, offset: u64, mut into: &mut [u8]) -> Result<()> {
        self.read_to(offset, into.len() as u64, &mut into).await
    }

    /// Reads `length` bytes from `offset` on into a sink.
    pub async fn read_to(&self, offset: u64, length: u64, sink: &mut dyn Sink) -> Result<()> {
        let end = offset.checked_add(length).ok_or_else(|| self.corrupt("read beyond 2^64"))?;
        let load = |id, retain| self.block_retaining(id, retain);
        read_blocks((offset, end), self.block_size(), sink, load, |id, found, start, len, sink| {
            self.give(id, found, start, len, sink)
        })
        .await
    }

    /// The first `length` bytes, when they are not more than `limit`.
    pub async fn read_all(&self, length: u64, limit: usize) -> Result<Vec<u8>> {
        match usize::try_from(length) {
            Ok(wanted) if wanted <= limit => {
                let mut bytes = vec![0; wanted];
                self.read_at(0, &mut bytes).await?;
                Ok(bytes)
            }
            _ => Err(self.corrupt(format!("{length} bytes, more than {limit}"))),
        }
    }

    /// The run of data or hole that contains `offset`, as far as it is known without reading more than one
    /// indirect block: the next run may be of the same kind. It ends at [`Object::end`] or before; after that
    /// everything is a hole.
    pub async fn span(&self, offset: u64) -> Result<Span> {
        if let Some(live) = &self.live {
            return Box::pin(live.span(offset)).await;
        }
        let block_size = self.block_size();
        let id = offset / block_size;
        let to_bytes = |id: u64| id.saturating_mul(block_size);
        Ok(match self.tree.find(self.objset.pool(), 0, id).await? {
            Found::Data(_) => Span { is_hole: false, end: to_bytes(id.saturating_add(1)) },
            Found::Hole { end: Some(end) } => Span { is_hole: true, end: to_bytes(end) },
            Found::Hole { end: None } => Span { is_hole: true, end: u64::MAX },
        })
    }

    /// The first offset from `offset` on, and below `end`, with data; `end` when there is none.
    pub async fn next_data(&self, offset: u64, end: u64) -> Result<u64> {
        self.next(offset, end, false).await
    }

    /// The first offset from `offset` on, and below `end`, in a hole; `end` when there is none.
    pub async fn next_hole(&self, offset: u64, end: u64) -> Result<u64> {
        self.next(offset, end, true).await
    }

    /// The search must end even in a tree whose blocks point to each other: after [`MAX_STEPS`] the rest
    /// counts as data, which a caller then reads and finds to be zeroes.
    async fn next(&self, offset: u64, end: u64, hole: bool) -> Result<u64> {
        let mut at = offset;
        let mut steps = 0;
        while at < end {
            let span = self.span(at).await?;
            if span.is_hole == hole {
                return Ok(at);
            }
            at = span.end;
            steps += 1;
            if steps >= MAX_STEPS {
                return Ok(if hole { end } else { at.min(end) });
            }
        }
        Ok(end)
    }

    /// Gives a part of block `id`, or of a hole.
    fn give(
        &self,
        id: u64,
        found: Option<&OrderedBlock>,
        start: usize,
        len: usize,
        sink: &mut dyn Sink,
    ) -> Result<()> {
        let Some(found) = found else {
            sink.put_zeroes(len);
            return Ok(());
        };
        match start.checked_add(len) {
            Some(end) if end <= found.block.len() => {
                sink.put_block(&found.block, start..end);
                Ok(())
            }
            _ => Err(Error::corrupt(self.bookmark(id).to_string(), "shorter than its object's blocks")),
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} of {:?}, {})", self.id(), self.objset, self.dnode().dmu_type.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::block_on;
    use ondisk::ByteOrder;
    use ondisk::dmu::DmuType;
    use ondisk::objset::ObjsetType;
    use proptest::prelude::*;

    use super::*;
    use crate::dmu::forge::Forge;

    const BLOCK: usize = 512;
    /// Six levels of indirect blocks.
    const BLOCKS: u64 = 4096;

    fn object(order: ByteOrder, written: &BTreeMap<u64, u8>) -> Option<Object> {
        let mut forge = Forge::new(order)?;
        let blocks = written.iter().map(|(id, fill)| (*id, vec![*fill; BLOCK])).collect();
        forge.add(7, forge.dnode(DmuType::PLAIN_FILE_CONTENTS, BLOCK, &blocks));
        Some(block_on(forge.objset(ObjsetType::Other).object(ObjectId(7))).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_deep_sparse_tree_reads_like_an_array(
            big: bool,
            written in proptest::collection::btree_map(0..BLOCKS, 1u8.., 1..40),
            reads in proptest::collection::vec((0..BLOCKS * 512 + 5000, 0usize..20_000), 1..20),
        ) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let Some(object) = object(order, &written) else { return Ok(()) };
            let byte = |at: u64| written.get(&(at / BLOCK as u64)).copied().unwrap_or(0);
            for (offset, length) in reads {
                let mut found = vec![0xee; length];
                block_on(object.read_at(offset, &mut found)).unwrap();
                let expected: Vec<u8> = (offset..offset + length as u64).map(byte).collect();
                prop_assert_eq!(found, expected);
            }
            // Runs cover the object and distinguish holes from data.
            let mut at = 0;
            while at < object.end() {
                let span = block_on(object.span(at)).unwrap();
                prop_assert!(span.end > at);
                for id in at / 512..span.end.min(object.end()) / 512 {
                    prop_assert_eq!(written.contains_key(&id), !span.is_hole);
                }
                at = span.end;
            }
            let first = *written.keys().next().unwrap() * 512;
            prop_assert_eq!(block_on(object.next_data(0, u64::MAX)).unwrap(), first);
            let last = *written.keys().next_back().unwrap() * 512;
            prop_assert_eq!(block_on(object.next_data(last + 512, object.end())).unwrap(), object.end());
            prop_assert_eq!(block_on(object.next_hole(last, u64::MAX)).unwrap(), last + 512);
        }
    }

    #[test]
    fn a_pointer_to_a_block_of_another_size_or_level_is_damage() {
        let Some(mut forge) = Forge::new(ByteOrder::Little) else { return };
        let good = forge.dnode(DmuType::PLAIN_FILE_CONTENTS, BLOCK, &BTreeMap::from([(0, vec![1; BLOCK])]));
        let short = forge.block(&[1; 512], DmuType::PLAIN_FILE_CONTENTS, 0);
        let high = forge.block(&[1; 1024], DmuType::PLAIN_FILE_CONTENTS, 1);
        forge.add(1, Dnode { data_block_sectors: 2, blkptrs: vec![short], ..good.clone() });
        forge.add(2, Dnode { data_block_sectors: 2, blkptrs: vec![high], ..good });
        let objset = forge.objset(ObjsetType::Other);
        for id in [1, 2] {
            let object = block_on(objset.object(ObjectId(id))).unwrap();
            let error = block_on(object.read_at(0, &mut [0; 8])).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
        assert!(matches!(block_on(objset.object(ObjectId(3))), Err(Error::NotFound(_))));
        assert!(matches!(block_on(objset.object(ObjectId(1 << 40))), Err(Error::NotFound(_))));
    }
}
