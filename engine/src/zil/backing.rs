//! What the log asks of the pool: space, transfers, the data of writes, and a place for its header.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, Weak};

use device::IoBuf;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ondisk::blkptr::Blkptr;
use ondisk::objset::ObjsetType;
use ondisk::zil::{ChainSeed, ZilHeader};
use ondisk::{ObjectId, ObjsetId, Txg};

use super::lock;
use crate::dmu::LiveObjset;
use crate::error::{Error, Result};
use crate::txg::Tx;
use crate::vdev::Class;
use crate::zio::Writer;
use crate::{Block, Bookmark};

/// A write that goes into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// To what.
    pub object: ObjectId,
    /// Which of the objects that have this number one after the other, as who noted it said.
    pub generation: u64,
    /// Where.
    pub offset: u64,
}

/// What is left of a write when it is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetched {
    /// Its first bytes. What is missing was cut off later, which is noted on its own.
    Bytes(usize),
    /// Nothing: the object is gone, or its number is another object's now.
    Gone,
}

/// Whoever knows what is left of writes whose objects may shrink or go away while they are logged. It must
/// take no lock that is held while a group is waited for.
pub trait Source: Send + Sync + Debug {
    /// Reads what is left of a write.
    fn fetch<'a>(&'a self, write: Written, into: &'a mut [u8]) -> BoxFuture<'a, Result<Fetched>>;
}

/// What the log stands on. The tests have another one than the pool.
pub(super) trait Backing: Send + Sync + Debug {
    /// The object set whose log this is.
    fn objset(&self) -> ObjsetId;

    /// Whether a log of `bytes` is likely to find room.
    fn has_room(&self, bytes: u64) -> bool;

    /// Whether the object set may keep a log, even an empty one.
    fn may_keep_log(&self) -> bool;

    /// Allocates a log block in the open group `txg`.
    fn allocate(&self, txg: Txg, bytes: usize) -> BoxFuture<'_, Result<Blkptr>>;

    /// Writes a sealed log block. It is durable after the next flush; with `durably`, when it is written.
    fn write<'a>(&'a self, bp: &'a Blkptr, bytes: IoBuf, durably: bool) -> BoxFuture<'a, Result<()>>;

    /// Makes log blocks that were written durable.
    fn flush<'a>(&'a self, blocks: &'a [Blkptr]) -> BoxFuture<'a, Result<()>>;

    /// Gives a block back in the group that is being synced.
    fn free<'a>(&'a self, txg: Txg, bp: &'a Blkptr) -> BoxFuture<'a, Result<()>>;

    /// Takes over a block that a log was found to consist of, or to refer to.
    fn claim<'a>(&'a self, txg: Txg, bp: &'a Blkptr) -> BoxFuture<'a, Result<()>>;

    /// Reads a log block, its checksum verified.
    fn read<'a>(&'a self, bp: &'a Blkptr) -> BoxFuture<'a, Result<IoBuf>>;

    /// Reads the data block that a record points to.
    fn read_data<'a>(&'a self, object: ObjectId, bp: &'a Blkptr) -> BoxFuture<'a, Result<Block>>;

    /// Reads what was written to an object.
    fn fetch<'a>(&'a self, write: Written, into: &'a mut [u8]) -> BoxFuture<'a, Result<Fetched>>;

    /// Who knows what is left of writes, if not the object itself.
    fn set_source(&self, source: Weak<dyn Source>);

    /// Whether logs have devices of their own.
    fn has_log_devices(&self) -> bool;

    /// Bytes in a block of an object whose blocks may be written before their group; `None` where that must
    /// not be.
    fn early_block_size(&self, object: ObjectId) -> BoxFuture<'_, Result<Option<u64>>>;

    /// Writes a block as the group `txg` has it. As [`crate::dmu::LiveObject::write_early`].
    fn write_early(&self, txg: Txg, object: ObjectId, block: u64) -> BoxFuture<'_, Result<Option<Blkptr>>>;

    /// The header in the object set, from the group of `tx` on.
    fn set_header(&self, tx: &Tx, header: &ZilHeader);

    /// Fails once the dataset is gone: nothing that was written to it will ever be stable.
    fn check(&self) -> Result<()>;
}

/// An object set of an open pool.
#[derive(Debug)]
pub(super) struct Live {
    objset: Arc<LiveObjset>,
    writer: Writer,
    source: Mutex<Option<Weak<dyn Source>>>,
}

impl Live {
    pub(super) fn new(objset: &Arc<LiveObjset>, writer: &Writer) -> Self {
        Self { objset: Arc::clone(objset), writer: writer.clone(), source: Mutex::default() }
    }

    fn bookmark(&self, bp: &Blkptr) -> Bookmark {
        log_bookmark(self.objset.id(), bp)
    }
}

/// Which block of a log this is.
pub(super) fn log_bookmark(objset: ObjsetId, bp: &Blkptr) -> Bookmark {
    let blkid = ChainSeed::of(bp).seq;
    Bookmark { objset: objset.get(), object: 0, level: Bookmark::LEVEL_ZIL, blkid }
}

impl Backing for Live {
    fn objset(&self) -> ObjsetId {
        self.objset.id()
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.writer.has_log_room(bytes)
    }

    fn allocate(&self, txg: Txg, bytes: usize) -> BoxFuture<'_, Result<Blkptr>> {
        self.writer.allocate_log_block(txg, bytes as u64).boxed()
    }

    fn write<'a>(&'a self, bp: &'a Blkptr, bytes: IoBuf, durably: bool) -> BoxFuture<'a, Result<()>> {
        self.writer.write_log_block(bp, bytes, durably).boxed()
    }

    fn flush<'a>(&'a self, blocks: &'a [Blkptr]) -> BoxFuture<'a, Result<()>> {
        let mut tops: Vec<u32> = blocks.iter().flat_map(Blkptr::dvas).map(|dva| dva.vdev.get()).collect();
        tops.sort_unstable();
        tops.dedup();
        async move {
            let flushed = self.writer.store().vdevs().flush_tops(&tops).await;
            let at = blocks.first().map_or(Bookmark::objset_root(0), |bp| self.bookmark(bp));
            flushed.map_err(|tried| Error::NotWritten { at, tried })
        }
        .boxed()
    }

    fn free<'a>(&'a self, txg: Txg, bp: &'a Blkptr) -> BoxFuture<'a, Result<()>> {
        self.writer.free(txg, bp).boxed()
    }

    fn claim<'a>(&'a self, txg: Txg, bp: &'a Blkptr) -> BoxFuture<'a, Result<()>> {
        self.writer.claim(txg, bp).boxed()
    }

    fn read<'a>(&'a self, bp: &'a Blkptr) -> BoxFuture<'a, Result<IoBuf>> {
        async move { self.writer.store().read_raw(bp, &self.bookmark(bp)).await }.boxed()
    }

    fn read_data<'a>(&'a self, object: ObjectId, bp: &'a Blkptr) -> BoxFuture<'a, Result<Block>> {
        let at = Bookmark { object: object.get(), ..self.bookmark(bp) };
        async move { self.writer.store().read_block(bp, &at).await }.boxed()
    }

    fn fetch<'a>(&'a self, write: Written, into: &'a mut [u8]) -> BoxFuture<'a, Result<Fetched>> {
        let source = lock(&self.source).as_ref().and_then(Weak::upgrade);
        async move {
            if let Some(source) = source {
                return source.fetch(write, into).await;
            }
            self.objset.object(write.object).await?.read_at(write.offset, into).await?;
            Ok(Fetched::Bytes(into.len()))
        }
        .boxed()
    }

    fn set_source(&self, source: Weak<dyn Source>) {
        *lock(&self.source) = Some(source);
    }

    fn may_keep_log(&self) -> bool {
        self.writer.features().intent_logs
    }

    fn has_log_devices(&self) -> bool {
        let tops = &self.writer.store().vdevs().tops;
        tops.iter().any(|top| top.class() == Class::Log)
    }

    fn early_block_size(&self, object: ObjectId) -> BoxFuture<'_, Result<Option<u64>>> {
        async move {
            // A file may be cut off while it is logged.
            match self.objset.kind() {
                ObjsetType::Zvol => Ok(Some(self.objset.object(object).await?.block_size())),
                _ => Ok(None),
            }
        }
        .boxed()
    }

    fn write_early(&self, txg: Txg, object: ObjectId, block: u64) -> BoxFuture<'_, Result<Option<Blkptr>>> {
        async move { self.objset.object(object).await?.write_early(&self.writer, txg, block).await }.boxed()
    }

    fn set_header(&self, tx: &Tx, header: &ZilHeader) {
        self.objset.set_zil_header(tx, *header);
    }

    fn check(&self) -> Result<()> {
        self.objset.check()
    }
}
