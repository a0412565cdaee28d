//! Blocks that a walk in order will need next, read before it comes to them.
//!
//! Only blocks that lead to others are read here; what becomes of data is the visitor's affair. They are read
//! as they lie on disk, past the ARC: a walk meets each once. Reads that were begun go on while the walk
//! waits for one of them, and are dropped with it. So no load that others may wait for is left half done.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use ondisk::blkptr::Blkptr;

use super::Node;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::zio::{decode, decode_embedded};
use crate::{Block, Bookmark};

/// Reads the blocks that lead a walk on.
pub trait ReadBlocks: Send + Sync {
    /// The contents of a block that lies on devices. What leads on is in the clear in encrypted datasets too.
    fn read<'a>(&'a self, bp: &'a Blkptr, at: &'a Bookmark) -> BoxFuture<'a, Result<Block>>;
}

impl ReadBlocks for Store {
    fn read<'a>(&'a self, bp: &'a Blkptr, at: &'a Bookmark) -> BoxFuture<'a, Result<Block>> {
        Box::pin(async move { decode(bp, at, self.read_raw(bp, at).await?, None) })
    }
}

/// Most blocks that are read ahead, and most bytes of them when they are decompressed.
const MAX_BLOCKS: usize = 128;
const MAX_BYTES: u64 = 8 << 20;

type Reading = BoxFuture<'static, (Bookmark, Result<Block>)>;

/// Reads of one walk.
pub(super) struct ReadAhead {
    reader: Arc<dyn ReadBlocks>,
    under_way: FuturesUnordered<Reading>,
    /// The outcome of each read that was begun and is still wanted, when it is known.
    wanted: HashMap<Bookmark, Option<Result<Block>>>,
    bytes: u64,
}

impl std::fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadAhead").field("blocks", &self.wanted.len()).finish_non_exhaustive()
    }
}

impl ReadAhead {
    pub fn new(reader: Arc<dyn ReadBlocks>) -> Self {
        Self { reader, under_way: FuturesUnordered::new(), wanted: HashMap::new(), bytes: 0 }
    }

    /// Begins to read a block that comes soon. False when there is no room for it now.
    pub fn begin(&mut self, node: &Node) -> bool {
        if node.bp.is_embedded() || self.wanted.contains_key(&node.at) {
            return true;
        }
        let bytes = node.bp.lsize().get();
        let has_room = self.wanted.len() < MAX_BLOCKS && self.bytes.saturating_add(bytes) <= MAX_BYTES;
        if has_room {
            self.begin_anyway(node);
        }
        has_room
    }

    fn begin_anyway(&mut self, node: &Node) {
        let (reader, bp, at) = (Arc::clone(&self.reader), node.bp, node.at);
        self.wanted.insert(at, None);
        self.bytes += bp.lsize().get();
        self.under_way.push(Box::pin(async move { (at, reader.read(&bp, &at).await) }));
    }

    /// Forgets a block that is not needed after all.
    pub fn forget(&mut self, node: &Node) {
        if self.wanted.remove(&node.at).is_some() {
            self.bytes = self.bytes.saturating_sub(node.bp.lsize().get());
        }
    }

    /// The contents of a block, which the walk has come to.
    pub async fn take(&mut self, node: &Node) -> Result<Block> {
        if node.bp.is_embedded() {
            let embedded = node.bp.embedded();
            let lost = || Error::corrupt(node.at.to_string(), "an embedded block without contents");
            return decode_embedded(&embedded.ok_or_else(lost)?, &node.at);
        }
        if !self.wanted.contains_key(&node.at) {
            self.begin_anyway(node);
        }
        loop {
            if let Some(Some(_)) = self.wanted.get(&node.at)
                && let Some(Some(block)) = self.wanted.remove(&node.at)
            {
                self.bytes = self.bytes.saturating_sub(node.bp.lsize().get());
                return block;
            }
            match self.under_way.next().await {
                // One that was forgotten has no place any more.
                Some((at, block)) => {
                    if let Some(outcome) = self.wanted.get_mut(&at) {
                        *outcome = Some(block);
                    }
                }
                None => return Err(Error::Invalid(format!("{}: its read was lost", node.at))),
            }
        }
    }
}
