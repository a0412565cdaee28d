//! Volumes that are open for writing.
//!
//! # The idea
//! A write locks its range, holds the open group, changes the object and notes the write for the intent log.
//! So it ends in its first poll, unless there are too many dirty data, or a partly written block must be read
//! first. A large write is split into small ones, one after the other. A stable write is committed through
//! the intent log after the range is unlocked.
//!
//! All users of a volume share one [`LiveZvol`], because only then their changes are ordered. Each reader has
//! its own read-ahead: [`LiveZvol::reader`].
//!
//! Source: OpenZFS 2.3 `zvol.c`, `zvol_os.c`.

mod clone;
mod share;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use device::IgnorePoison;
use ondisk::Txg;
use ondisk::zil::Record;
use ondisk::zil::record::WriteData;

use super::{CONTENT, Extent, PROPERTIES, Zvol};
use crate::dmu::room::{Room, begin_freeing};
use crate::dmu::zap::{Key, Value, edit};
use crate::dmu::{Dirtied, LiveObject, LiveObjset, Payload, Reader, Sink};
use crate::range_locks::{Locked, RangeLocks};
use crate::txg::{Tx, Txgs};
use crate::zil::{Applied, Replay, SyncMode, Zil};
use crate::{Block, Error, Result};

/// The most bytes that are written in one group.
const PIECE_BYTES: u64 = 1 << 20;
/// The same when little space is left.
const LEAST_PIECE_BYTES: u64 = 128 << 10;
/// Roughly, the dirty bytes of a change that writes no data: a few indirect blocks.
const METADATA_BYTES: u64 = 128 << 10;

/// Whether a change is noted for the intent log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    With,
    Without,
}

/// A volume that is open for writing.
pub struct LiveZvol {
    txgs: Arc<Txgs>,
    objset: Arc<LiveObjset>,
    zil: Zil,
    content: Arc<LiveObject>,
    block_size: u64,
    size: AtomicU64,
    locks: RangeLocks,
    room: RwLock<Option<Arc<dyn Room>>>,
}

impl LiveZvol {
    /// Opens the volume of an object set that is open for writing, whose intent log is `zil`.
    pub async fn open(txgs: &Arc<Txgs>, objset: &Arc<LiveObjset>, zil: &Zil) -> Result<Arc<Self>> {
        let size = Zvol::open(&objset.view()).await?.size();
        let content = objset.object(CONTENT).await?;
        Ok(Arc::new(Self {
            txgs: Arc::clone(txgs),
            objset: Arc::clone(objset),
            zil: zil.clone(),
            block_size: content.block_size(),
            content,
            size: AtomicU64::new(size),
            locks: RangeLocks::default(),
            room: RwLock::new(None),
        }))
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<LiveObjset> {
        &self.objset
    }

    /// The intent log.
    pub fn zil(&self) -> &Zil {
        &self.zil
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Size of a block in bytes.
    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    /// Sets the source of space, which is asked before data are accepted.
    pub fn set_room(&self, room: Arc<dyn Room>) {
        *self.room.write().ignore_poison() = Some(room);
    }

    fn require_room(&self, txg: Txg, dirtied: &Dirtied) -> Result<()> {
        self.room().map_or(Ok(()), |room| room.require(txg, dirtied))
    }

    fn room(&self) -> Option<Arc<dyn Room>> {
        self.room.read().ignore_poison().clone()
    }

    /// The groups of its changes.
    pub fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// A reader with a read-ahead of its own. It sees all written data.
    pub async fn reader(self: &Arc<Self>) -> Result<LiveReader> {
        let content = self.objset.view().object(CONTENT).await?;
        Ok(LiveReader { volume: Arc::clone(self), content: Reader::new(content) })
    }

    /// Fills `into` with the bytes from `offset` on, without reading ahead.
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len() as u64)?;
        self.objset.stats().count_read(into.len() as u64);
        self.content.read_at(offset, into).await
    }

    /// Writes `bytes`. When `stable`, they survive a crash from the moment at which this returns.
    pub async fn write_at(&self, offset: u64, bytes: &[u8], stable: bool) -> Result<()> {
        self.write_payload(offset, bytes.into(), stable).await
    }

    /// The same for bytes that may be in blocks already.
    pub async fn write_payload(&self, offset: u64, payload: Payload<'_>, stable: bool) -> Result<()> {
        let length = payload.len() as u64;
        self.check(offset, length)?;
        self.objset.stats().count_write(length);
        self.write_pieces(offset, payload, Log::With).await?;
        self.settle(stable).await
    }

    /// Writes, in as many pieces as it takes.
    async fn write_pieces(&self, offset: u64, bytes: Payload<'_>, log: Log) -> Result<()> {
        let _locked = self.lock(offset, bytes.len() as u64).await?;
        let (mut at, mut rest) = (offset, bytes);
        let mut most = PIECE_BYTES;
        while !rest.is_empty() {
            let here = most - at % most;
            let (piece, later) = rest.split_at(here as usize);
            match self.write_piece(at, piece, log).await {
                // If blocks take many times their size, a group may have space for less.
                Err(Error::NoSpace(_)) if most > self.block_size.max(LEAST_PIECE_BYTES) => {
                    most = self.block_size.max(LEAST_PIECE_BYTES);
                    continue;
                }
                written => written?,
            }
            at += piece.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Locks a range, and checks that it still exists then.
    async fn lock(&self, offset: u64, length: u64) -> Result<Locked<&RangeLocks>> {
        let locked = self.locks.lock(offset..offset.saturating_add(length)).await;
        // A resize holds the lock while it makes the volume smaller.
        self.check(offset, length)?;
        Ok(locked)
    }

    /// Writes as much as fits a group.
    async fn write_piece(&self, offset: u64, bytes: Payload<'_>, log: Log) -> Result<()> {
        let length = bytes.len() as u64;
        let tx = self.begin_write(offset, length).await?;
        self.content.write_payload(&tx, offset, bytes).await?;
        if log == Log::With {
            self.zil.note_write(&tx, CONTENT.get(), offset, length);
        }
        Ok(())
    }

    /// Writes a part of a copy of another volume, without the intent log: what a crash takes away is copied
    /// again.
    pub(crate) async fn copy_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len() as u64)?;
        self.write_pieces(offset, bytes.into(), Log::Without).await
    }

    /// Makes a range of a copy of another volume a hole, without the intent log.
    pub(crate) async fn copy_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.check(offset, length)?;
        self.punch(offset, length, Log::Without).await
    }

    async fn begin_write(&self, offset: u64, length: u64) -> Result<Tx> {
        let range = offset..offset.saturating_add(length);
        self.content.prepare_write(range.clone()).await?;
        let dirtied = |txg| {
            let dirtied = self.content.newly_dirty(txg, &range, None);
            (dirtied, dirtied.data_bytes())
        };
        let require = |txg, dirtied: Dirtied| self.require_room(txg, &dirtied);
        self.txgs.begin_dirtying(self.objset.id(), dirtied, require).await
    }

    /// Holds the open group for a change that makes a range a hole.
    async fn begin_punching(&self, offset: u64, length: u64) -> Result<Tx> {
        let end = offset.saturating_add(length);
        self.content.prepare_punch(offset..end).await?;
        let dirtied = |txg| {
            let [from, to] = [offset, end].map(|edge| self.content.newly_dirty_by_cut(txg, edge));
            from.plus(to).plus(Dirtied::file())
        };
        begin_freeing((&self.txgs, self.objset.id()), self.room(), METADATA_BYTES, dirtied).await
    }

    /// Ends a change.
    async fn settle(&self, stable: bool) -> Result<()> {
        match self.zil.sync_mode() {
            SyncMode::Standard if !stable => Ok(()),
            _ => self.flush().await,
        }
    }

    /// Makes all written data stable.
    pub async fn flush(&self) -> Result<()> {
        self.zil.commit().await
    }

    /// Frees space: blocks that are completely in the range become holes and read as zeroes; other bytes
    /// stay.
    pub async fn trim(&self, offset: u64, length: u64, stable: bool) -> Result<()> {
        self.check(offset, length)?;
        let first = offset.next_multiple_of(self.block_size);
        let end = offset + length;
        let end = if end == self.size() { end } else { end - end % self.block_size };
        if first < end {
            self.punch(first, end - first, Log::With).await?;
        }
        self.settle(stable).await
    }

    /// Makes a range read as zeroes. It occupies no space afterwards, unless `allocate`.
    pub async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool, stable: bool) -> Result<()> {
        self.check(offset, length)?;
        if !allocate {
            self.punch(offset, length, Log::With).await?;
            return self.settle(stable).await;
        }
        let zeroes = Block::zero(PIECE_BYTES as usize);
        let end = offset + length;
        {
            let _locked = self.lock(offset, length).await?;
            let mut at = offset;
            while at < end {
                let here = (PIECE_BYTES - at % PIECE_BYTES).min(end - at);
                self.write_piece(at, zeroes.get(..here as usize).unwrap_or_default().into(), Log::With)
                    .await?;
                at += here;
            }
        }
        self.settle(stable).await
    }

    /// Must be called before a range is made a hole: all of it that would be too much for a group becomes a
    /// hole, part by part from the end. The caller makes all of the range a hole again, and logs that: what
    /// was written meanwhile was written before.
    async fn punch_parts(&self, offset: u64, length: u64) -> Result<()> {
        let mut end = offset.saturating_add(length);
        while self.content.has_parts() {
            let (at, blocks) = self.content.last_part(&(offset..end)).await?;
            self.txgs.wait_to_free(blocks).await?;
            if at <= offset {
                break;
            }
            let _locked = self.locks.lock(at..end).await;
            let tx = self.begin_punching(at, end - at).await?;
            self.content.punch(&tx, at, end - at).await?;
            end = at;
        }
        Ok(())
    }

    async fn punch(&self, offset: u64, length: u64, log: Log) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        self.punch_parts(offset, length).await?;
        let _locked = self.lock(offset, length).await?;
        let tx = self.begin_punching(offset, length).await?;
        self.content.punch(&tx, offset, length).await?;
        if log == Log::With {
            self.zil.note_object(&tx, CONTENT.get(), &truncate(offset, length));
        }
        Ok(())
    }

    /// Changes the size of the volume to a multiple of its block size. Data beyond a smaller size are lost.
    pub async fn resize(&self, size: u64) -> Result<()> {
        if size == 0 || !size.is_multiple_of(self.block_size) {
            return Err(Error::Invalid(format!(
                "a volume of {size} bytes: not a multiple of its block size, {}",
                self.block_size
            )));
        }
        let properties = self.objset.object(PROPERTIES).await?;
        let before = {
            let _locked = self.locks.lock(0..u64::MAX).await;
            let before = self.size();
            self.size.store(size.min(before), Ordering::Release);
            before
        };
        if size < before {
            self.punch_parts(size, u64::MAX - size).await?;
        }
        let _locked = self.locks.lock(0..u64::MAX).await;
        let txg = {
            let tx = self.begin_punching(size, u64::MAX - size).await?;
            edit::set(&properties, &tx, &Key::Name(b"size".to_vec()), &Value::U64(vec![size])).await?;
            if size < before {
                self.content.punch(&tx, size, u64::MAX - size).await?;
            }
            tx.txg()
        };
        // The log does not contain sizes: before the new size is on disk, nothing may be logged that only it
        // allows.
        self.txgs.wait_synced(txg).await?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// The extents of a range, as in [`Zvol::extents`].
    pub async fn extents(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Extent>> {
        self.check(offset, length)?;
        let end = offset + length;
        let mut at = offset;
        let mut extents = Vec::new();
        while at < end {
            let span = self.content.span(at).await?;
            // A block that was written meanwhile may end where the search began.
            let length = span.end.min(end).saturating_sub(at).max(1);
            if !super::add_extent(&mut extents, Extent { length, is_hole: span.is_hole }, limit) {
                break;
            }
            at += length;
        }
        Ok(extents)
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        super::check(self.size(), offset, length)
    }
}

fn truncate(offset: u64, length: u64) -> Record<'static> {
    Record::Truncate { object: CONTENT, offset, length }
}

impl fmt::Debug for LiveZvol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveZvol({}, {} bytes)", self.objset.id(), self.size())
    }
}

impl Replay for LiveZvol {
    async fn apply(&self, record: &Record<'_>, applied: &Applied) -> Result<()> {
        let clip = |offset: u64, length: u64| length.min(self.size().saturating_sub(offset));
        match *record {
            Record::Write { object: CONTENT, offset, data: WriteData::Inline(data), .. } => {
                let data = data.get(..clip(offset, data.len() as u64) as usize).unwrap_or_default();
                let (mut at, mut rest) = (offset, data);
                while !rest.is_empty() {
                    let here = PIECE_BYTES - at % PIECE_BYTES;
                    let (piece, later) = rest.split_at((rest.len() as u64).min(here) as usize);
                    let tx = self.begin_write(at, piece.len() as u64).await?;
                    self.content.write_at(&tx, at, piece).await?;
                    if later.is_empty() {
                        applied.with(&tx);
                    }
                    at += piece.len() as u64;
                    rest = later;
                }
                Ok(())
            }
            Record::Truncate { object: CONTENT, offset, length } => {
                let length = clip(offset, length);
                self.punch_parts(offset, length).await?;
                let tx = self.begin_punching(offset, length).await?;
                self.content.punch(&tx, offset, length).await?;
                applied.with(&tx);
                Ok(())
            }
            _ => Err(Error::Unsupported(format!(
                "the intent log of volume {} has a record of kind {}, which volumes do not have",
                self.objset.id(),
                record.kind_number()
            ))),
        }
    }
}

/// One reader of a live volume.
#[derive(Debug)]
pub struct LiveReader {
    volume: Arc<LiveZvol>,
    content: Reader,
}

impl LiveReader {
    /// The volume.
    pub fn volume(&self) -> &Arc<LiveZvol> {
        &self.volume
    }

    /// Like [`Zvol::read_at`].
    pub async fn read_at(&self, offset: u64, mut into: &mut [u8]) -> Result<()> {
        self.read_to(offset, into.len() as u64, &mut into).await
    }

    /// Like [`Zvol::read_to`].
    pub async fn read_to(&self, offset: u64, length: u64, sink: &mut dyn Sink) -> Result<()> {
        self.volume.check(offset, length)?;
        self.volume.objset.stats().count_read(length);
        self.content.read_to(offset, length, sink).await
    }

    /// The run of data or hole that contains `offset`.
    pub async fn extent(&self, offset: u64) -> Result<Extent> {
        let rest = self.volume.size().saturating_sub(offset).max(1);
        let extents = self.volume.extents(offset, rest.min(EXTENT_BYTES), 1).await?;
        extents.first().copied().ok_or_else(|| Error::Invalid("an empty range of a volume".into()))
    }
}

/// The length of one search for an extent.
const EXTENT_BYTES: u64 = 1 << 30;
