//! An open object: a sparse array of blocks with a bonus area.
//!
//! An object has no length in bytes beyond its last block; whoever gives it meaning (a file's size, a volume's size) keeps the
//! length elsewhere. Reading past the last block reads zeroes, as reading a hole does.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use ondisk::dnode::Dnode;
use ondisk::{ByteOrder, ObjectId};

use super::objset::Objset;
use super::tree::{Found, OrderedBlock, Tree};
use crate::{Bookmark, Error, Result};

/// Blocks of one large read that are in flight together.
const MAX_IN_FLIGHT: usize = 32;
/// Most runs that a search for data or a hole passes.
const MAX_STEPS: u32 = 1 << 24;

/// An open object. Cheap to clone.
#[derive(Clone)]
pub struct Object {
    objset: Arc<Objset>,
    tree: Arc<Tree>,
}

/// A run of an object that is all data or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// True when the run was never written and reads as zeroes.
    pub is_hole: bool,
    /// First byte after the run.
    pub end: u64,
}

impl Object {
    pub(crate) fn new(objset: Arc<Objset>, id: ObjectId, dnode: Dnode) -> Self {
        let tree = Arc::new(Tree::new(objset.id(), id, dnode, objset.is_keyless()));
        Self { objset, tree }
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

    /// The spill block, where attributes go that the bonus area cannot hold.
    pub async fn spill(&self) -> Result<Option<OrderedBlock>> {
        self.objset.spill(&self.tree).await
    }

    /// Bytes in a data block.
    pub fn block_size(&self) -> u64 {
        self.dnode().data_block_size()
    }

    /// First byte after the last block.
    pub fn end(&self) -> u64 {
        self.dnode().max_block_id.0.saturating_add(1).saturating_mul(self.block_size())
    }

    /// Data block `id`; `None` for a hole, and after the last block.
    pub async fn block(&self, id: u64) -> Result<Option<OrderedBlock>> {
        self.tree.block(self.objset.pool(), id).await
    }

    /// The block pointer of the block of `level` that is or covers data block `id`; `None` for a hole.
    pub async fn blkptr(&self, level: u8, id: u64) -> Result<Option<ondisk::blkptr::Blkptr>> {
        Ok(match self.tree.find(self.objset.pool(), level, id).await? {
            Found::Data(pointer) => Some(pointer),
            Found::Hole { .. } => None,
        })
    }

    /// The name of block `id` in messages.
    pub fn bookmark(&self, id: u64) -> Bookmark {
        self.tree.bookmark(0, id)
    }

    /// An error about what the object says.
    pub fn corrupt(&self, detail: impl fmt::Display) -> Error {
        Error::corrupt(format!("objset {}, object {}", self.objset.id(), self.id()), detail)
    }

    /// Fills `into` with the bytes from `offset` on.
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let block_size = self.block_size();
        let start = (offset % block_size) as usize;
        if start.checked_add(into.len()).is_some_and(|end| end as u64 <= block_size) {
            // The common case: within one block. Nothing is allocated when the block is cached.
            let id = offset / block_size;
            return self.copy_from(id, self.block(id).await?.as_ref(), start, into);
        }
        self.read_many(offset, into).await
    }

    /// A read across blocks: keeps several in flight.
    async fn read_many(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let block_size = self.block_size();
        let end = offset.checked_add(into.len() as u64).ok_or_else(|| self.corrupt("read beyond 2^64"))?;
        let mut next = offset / block_size;
        let mut id = next;
        let after = end.div_ceil(block_size);
        let mut flying = FuturesOrdered::new();
        let mut start = (offset % block_size) as usize;
        let mut rest = into;
        loop {
            while next < after && flying.len() < MAX_IN_FLIGHT {
                flying.push_back(self.block(next));
                next += 1;
            }
            let Some(found) = flying.next().await else {
                return Ok(());
            };
            let found = found?;
            let here = rest.len().min(block_size as usize - start);
            let (piece, later) = std::mem::take(&mut rest).split_at_mut(here);
            self.copy_from(id, found.as_ref(), start, piece)?;
            rest = later;
            start = 0;
            id += 1;
        }
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

    /// The run of data or hole that `offset` is in, as far as it is known without reading more than one indirect block:
    /// the next run may be of the same kind. Ends at [`Object::end`] or before; from there on all is hole.
    pub async fn span(&self, offset: u64) -> Result<Span> {
        let block_size = self.block_size();
        let id = offset / block_size;
        let to_bytes = |id: u64| id.saturating_mul(block_size);
        Ok(match self.tree.find(self.objset.pool(), 0, id).await? {
            Found::Data(_) => Span { is_hole: false, end: to_bytes(id.saturating_add(1)) },
            Found::Hole { end: Some(end) } => Span { is_hole: true, end: to_bytes(end) },
            Found::Hole { end: None } => Span { is_hole: true, end: u64::MAX },
        })
    }

    /// The first offset from `offset` on, and below `end`, where data is; `end` when there is none.
    pub async fn next_data(&self, offset: u64, end: u64) -> Result<u64> {
        self.next(offset, end, false).await
    }

    /// The first offset from `offset` on, and below `end`, where a hole is; `end` when there is none.
    pub async fn next_hole(&self, offset: u64, end: u64) -> Result<u64> {
        self.next(offset, end, true).await
    }

    /// Looking for ever in a tree whose blocks point to each other is no use: after [`MAX_STEPS`] all that was not looked at
    /// is called data, which a caller then reads and finds to be zeroes.
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

    /// Copies a part of block `id`, or of a hole.
    pub(crate) fn copy_from(
        &self,
        id: u64,
        found: Option<&OrderedBlock>,
        start: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let Some(found) = found else {
            into.fill(0);
            return Ok(());
        };
        match start.checked_add(into.len()).and_then(|end| found.block.get(start..end)) {
            Some(bytes) => {
                device::copy(into, bytes);
                Ok(())
            }
            None => Err(Error::corrupt(self.bookmark(id).to_string(), "shorter than its object's blocks")),
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} of {:?}, {})", self.id(), self.objset, self.dnode().dmu_type.name())
    }
}
