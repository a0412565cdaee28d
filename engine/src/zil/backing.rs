//! The services of the pool that the log uses: space, transfers, the data of writes, and a place for its
//! header.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

use codec::crypt::{self, MAC_BYTES, decrypt_block, encrypt_block};
use device::IoBuf;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ondisk::blkptr::Blkptr;
use ondisk::zil::{ChainSeed, ZilChain, ZilHeader};
use ondisk::{ObjectId, ObjsetId, Txg};

use super::lock;
use crate::dmu::{Early, LiveObjset};
use crate::error::{Error, Result};
use crate::stats::ZilCounters;
use crate::store::Store;
use crate::txg::Tx;
use crate::vdev::Class;
use crate::zio::Writer;
use crate::{Block, Bookmark};

/// A write that goes into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The object.
    pub object: ObjectId,
    /// The generation of the object with this number, from its note.
    pub generation: u64,
    /// The offset.
    pub offset: u64,
}

/// The data of a write that are left when it is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetched {
    /// Its first bytes. The rest was truncated later, which has a note of its own.
    Bytes(usize),
    /// None: the object is gone, or its number belongs to another object now.
    Gone,
}

/// The source of the data of writes, for objects that may shrink or go away while they are logged. It must
/// take no lock that is held while a group is waited for.
pub trait Source: Send + Sync + Debug {
    /// Reads the remaining data of a write.
    fn fetch<'a>(&'a self, write: Written, into: &'a mut [u8]) -> BoxFuture<'a, Result<Fetched>>;

    /// How many bytes the object has from the start of a write on; `None` if it is gone, or its number
    /// belongs to another object now.
    fn left(&self, write: Written) -> BoxFuture<'_, Result<Option<u64>>>;
}

/// The layer below the log. The tests have an implementation without a pool.
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

    /// Frees a block in the group that is being synced.
    fn free<'a>(&'a self, txg: Txg, bp: &'a Blkptr) -> BoxFuture<'a, Result<()>>;

    /// Claims a block that a found log consists of, or refers to.
    fn claim<'a>(&'a self, txg: Txg, bp: &'a Blkptr) -> BoxFuture<'a, Result<()>>;

    /// Reads a log block, its checksum verified.
    fn read<'a>(&'a self, bp: &'a Blkptr) -> BoxFuture<'a, Result<IoBuf>>;

    /// Reads the data block that a record points to.
    fn read_data<'a>(&'a self, object: ObjectId, bp: &'a Blkptr) -> BoxFuture<'a, Result<Block>>;

    /// Reads the data block that a record points to and verifies its checksum. Needs no key.
    fn check_data<'a>(&'a self, object: ObjectId, bp: &'a Blkptr) -> BoxFuture<'a, Result<()>> {
        async move { self.read_data(object, bp).await.map(drop) }.boxed()
    }

    /// Encrypts a log block that is complete but for its checksum, if its pointer says that it is encrypted.
    fn encrypt(&self, _bp: &Blkptr, _bytes: &mut [u8]) -> Result<()> {
        Ok(())
    }

    /// Decrypts a log block that was read, and verifies that it is what was written.
    fn decrypt(&self, _bp: &Blkptr, _bytes: &mut [u8]) -> Result<()> {
        Ok(())
    }

    /// Reads the data of a write to an object.
    fn fetch<'a>(&'a self, write: Written, into: &'a mut [u8]) -> BoxFuture<'a, Result<Fetched>>;

    /// See [`Source::left`].
    fn left(&self, write: Written) -> BoxFuture<'_, Result<Option<u64>>>;

    /// Sets the source of the data of writes, if it is not the object itself.
    fn set_source(&self, source: Weak<dyn Source>);

    /// Whether logs have devices of their own.
    fn has_log_devices(&self) -> bool;

    /// Bytes in a block of an object; `None` if it is gone.
    fn early_block_size(&self, object: ObjectId) -> BoxFuture<'_, Result<Option<u64>>>;

    /// Writes a block with its contents in the group `txg`. See [`crate::dmu::LiveObject::write_early`].
    fn write_early(&self, txg: Txg, object: ObjectId, block: u64) -> BoxFuture<'_, Result<Option<Early>>>;

    /// Sets the header in the object set, from the group of `tx` on.
    fn set_header(&self, tx: &Tx, header: &ZilHeader);

    /// Fails once the dataset is gone: its writes will never be stable.
    fn check(&self) -> Result<()>;

    /// The counters of the dataset, if it has any.
    fn stats(&self) -> Option<&ZilCounters> {
        None
    }

    /// Whether a log block lies on a log device.
    fn is_on_log_device(&self, _bp: &Blkptr) -> bool {
        false
    }
}

/// Where the MAC of an encrypted log block lies: in the last half of the checksum in its chain structure.
const MAC_PLACE: Range<usize> = ZilChain::SIZE - MAC_BYTES..ZilChain::SIZE;

/// Reads a block that a record points to, without decrypting it.
pub(super) async fn check_data(store: &Store, bp: &Blkptr, at: &Bookmark) -> Result<()> {
    match bp.uses_crypt() {
        true => store.read_raw(bp, at).await.map(drop),
        false => store.read_block(bp, at).await.map(drop),
    }
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

/// The bookmark of a block of a log.
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
        async move {
            let key = self.objset.key()?;
            self.writer.allocate_log_block(txg, bytes as u64, key.as_deref()).await
        }
        .boxed()
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

    fn check_data<'a>(&'a self, object: ObjectId, bp: &'a Blkptr) -> BoxFuture<'a, Result<()>> {
        let at = Bookmark { object: object.get(), ..self.bookmark(bp) };
        async move { check_data(self.writer.store(), bp, &at).await }.boxed()
    }

    fn encrypt(&self, bp: &Blkptr, bytes: &mut [u8]) -> Result<()> {
        if !bp.uses_crypt() {
            return Ok(());
        }
        let at = self.bookmark(bp);
        let key = self.objset.key()?.ok_or(Error::KeyNotLoaded { at })?;
        let (ty, order) = (bp.dmu_type(), bp.byte_order());
        let mac = encrypt_block(&key, ty, order, bp.salt(), bp.iv(), bytes);
        let mac = mac.map_err(|error| Error::corrupt(at.to_string(), error))?;
        let place =
            bytes.get_mut(MAC_PLACE).ok_or_else(|| Error::corrupt(at.to_string(), "it is too short"))?;
        place.copy_from_slice(&mac);
        Ok(())
    }

    fn decrypt(&self, bp: &Blkptr, bytes: &mut [u8]) -> Result<()> {
        let at = self.bookmark(bp);
        match (self.objset.key()?, bp.uses_crypt()) {
            (None, false) => Ok(()),
            // A plain log of an encrypted dataset was made by another hand.
            (Some(_), false) | (None, true) => Err(Error::Authentication { at }),
            (Some(key), true) => decrypt_block(&key, bp, bytes).map_err(|error| match error {
                crypt::Error::Authentication => Error::Authentication { at },
                error => Error::corrupt(at.to_string(), error),
            }),
        }
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

    fn left(&self, write: Written) -> BoxFuture<'_, Result<Option<u64>>> {
        let source = lock(&self.source).as_ref().and_then(Weak::upgrade);
        async move {
            match source {
                Some(source) => source.left(write).await,
                None => Ok(Some(u64::MAX)),
            }
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
            match self.objset.object(object).await {
                Err(Error::NotFound(_)) => Ok(None),
                object => Ok(Some(object?.block_size())),
            }
        }
        .boxed()
    }

    fn write_early(&self, txg: Txg, object: ObjectId, block: u64) -> BoxFuture<'_, Result<Option<Early>>> {
        async move {
            match self.objset.object(object).await {
                Err(Error::NotFound(_)) => Ok(None),
                object => object?.write_early(&self.writer, txg, block).await,
            }
        }
        .boxed()
    }

    fn set_header(&self, tx: &Tx, header: &ZilHeader) {
        self.objset.set_zil_header(tx, *header);
    }

    fn check(&self) -> Result<()> {
        self.objset.check()
    }

    fn stats(&self) -> Option<&ZilCounters> {
        Some(self.objset.stats().zil())
    }

    fn is_on_log_device(&self, bp: &Blkptr) -> bool {
        let vdevs = self.writer.store().vdevs();
        bp.dva(0).and_then(|dva| vdevs.top(dva.vdev.get())).is_some_and(|top| top.class() == Class::Log)
    }
}
