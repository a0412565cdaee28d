//! Records that change objects.
//!
//! An object keeps its blocks when a record describes it anew, as those that did not change are not sent
//! again; unless it must be another object: then its blocks go. Its number can be used again for a dnode of
//! another size when the group is committed that frees it, which is waited for.

use std::ops::Range;
use std::sync::Arc;

use ondisk::blkptr::{Blkptr, CompressType};
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODES_PER_BLOCK, Dnode, MAX_OBJECT};
use ondisk::send::{ByteRange, FreeObjects, Object, Record, Spill, Write, WriteEmbedded, record_flag};
use ondisk::{ByteOrder, ObjectId, Txg};

use super::checks::{self, Described};
use super::{Receiver, ResumePoint, data};
use crate::Block;
use crate::dmu::room::begin_freeing;
use crate::dmu::{Dirtied, LiveObject, NewObject, Payload, Room};
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Roughly, the dirty bytes of a change that writes no data: a few indirect blocks.
pub(super) const METADATA_BYTES: u64 = 128 << 10;
/// Number of the spill block among the blocks of an object (`DMU_SPILL_BLKID`).
const SPILL_BLOCK_ID: u64 = u64::MAX - 1;
/// Offsets of the generation of a file: behind the header of attributes, and in old bonus areas.
const SA_GENERATION: usize = 16;
const ZNODE_GENERATION: usize = 64;

impl Receiver {
    /// Applies a record; `bytes` of the stream were read then.
    pub(super) async fn apply(&mut self, record: &Record, payload: &[u8], bytes: u64) -> Result<()> {
        match record {
            Record::Object(object) if self.is_raw() => self.raw_object(object, payload, bytes).await,
            Record::Object(object) => self.object(object, payload, bytes).await,
            Record::FreeObjects(free) => self.free_objects(free).await,
            Record::Write(write) if self.is_raw() => self.raw_write(write, payload, bytes).await,
            Record::Write(write) => self.write(write, payload, bytes).await,
            Record::Free(range) => self.free(range).await,
            Record::Spill(spill) if self.is_raw() => self.raw_spill(spill, payload).await,
            Record::Spill(spill) => self.spill(spill, payload).await,
            Record::WriteEmbedded(_) if self.is_raw() => {
                Err(Error::Invalid("an embedded block in a raw stream".to_owned()))
            }
            Record::WriteEmbedded(write) => self.write_embedded(write, payload, bytes).await,
            Record::WriteByRef(_) => Err(Error::Unsupported(
                "deduplicated streams are no longer received: 'zstream redup' makes it a plain one"
                    .to_owned(),
            )),
            Record::Redact(_) => {
                Err(Error::Unsupported("redacted streams cannot be received by this version".to_owned()))
            }
            Record::ObjectRange(range) => self.object_range(range),
            Record::Begin(_) | Record::End(_) => Err(Error::Invalid("a record out of place".to_owned())),
        }
    }

    /// An object of the dataset, if there is one of this number.
    pub(super) async fn find(&mut self, id: ObjectId) -> Result<Option<Arc<LiveObject>>> {
        if let Some(current) = self.current.as_ref().filter(|current| current.id() == id)
            && !current.is_freed()
        {
            return Ok(Some(Arc::clone(current)));
        }
        match self.objset().object(id).await {
            Ok(object) => {
                self.current = Some(Arc::clone(&object));
                Ok(Some(object))
            }
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn existing(&mut self, id: ObjectId) -> Result<Arc<LiveObject>> {
        checks::object_number(id)?;
        self.find(id).await?.ok_or_else(|| Error::Invalid(format!("there is no object {id}")))
    }

    /// Holds the open group for a change.
    pub(super) async fn hold(&self, dirtied: impl Fn(Txg) -> Dirtied, more_bytes: u64) -> Result<Tx> {
        let dirtied = |txg| {
            let dirtied = dirtied(txg);
            (dirtied, dirtied.data_bytes().saturating_add(more_bytes))
        };
        let room = &self.dataset.room;
        let require = |txg, dirtied: Dirtied| room.require(txg, &dirtied);
        self.pool.txgs().begin_dirtying(self.objset().id(), dirtied, require).await
    }

    /// The same for a change that frees space.
    async fn hold_to_free(&self, dirtied: impl Fn(Txg) -> Dirtied) -> Result<Tx> {
        let room: Arc<dyn Room> = self.dataset.room.clone();
        begin_freeing((self.pool.txgs(), self.objset().id()), Some(room), METADATA_BYTES, dirtied).await
    }

    /// Waits until all that was changed is committed.
    pub(super) async fn commit(&self) -> Result<()> {
        let txgs = self.pool.txgs();
        txgs.kick();
        txgs.wait_synced(txgs.open_txg()).await
    }

    /// The stream may go on from here.
    pub(super) fn note_point(&self, tx: &Tx, object: ObjectId, offset: u64, bytes: u64) {
        if self.target.resumable || self.begun.resumes.is_some() {
            let point = ResumePoint { object: object.get(), offset, bytes };
            self.dataset.note_resume_point(tx.txg(), point);
        }
    }

    async fn object(&mut self, record: &Object, payload: &[u8], bytes: u64) -> Result<()> {
        let described = checks::object(record, self.begin.features, self.tells_spill())?;
        let bonus = payload.get(..record.bonus_bytes as usize);
        let bonus = bonus.ok_or_else(|| Error::Invalid("a bonus that is not there".to_owned()))?;
        let turned = data::turned(bonus, self.order, described.bonus_type)?;
        let bonus = turned.as_deref().unwrap_or(bonus);
        let id = record.object;
        if let Some(object) = self.find(id).await? {
            if object.dnode().slots() == u64::from(described.slots) {
                return self.change_object(&object, &described, bonus, bytes).await;
            }
            self.free_object(id).await?;
            self.commit().await?;
        }
        self.free_covered(id, described.slots).await?;
        let (tx, object) = self.claim(id, &new_object(&described, bonus)).await?;
        self.note_point(&tx, id, 0, bytes);
        self.current = Some(object);
        Ok(())
    }

    /// Creates an object under its number.
    pub(super) async fn claim(&self, id: ObjectId, new: &NewObject) -> Result<(Tx, Arc<LiveObject>)> {
        let dirtied = |_| Dirtied::new_file();
        let tx = self.hold(dirtied, METADATA_BYTES).await?;
        match self.objset().claim(&tx, id, new.clone()).await {
            Err(Error::Busy(_)) => {
                // Its slots were freed in a group that is not committed yet; or they are another object's.
                drop(tx);
                self.commit().await?;
                let tx = self.hold(dirtied, METADATA_BYTES).await?;
                let claimed = self.objset().claim(&tx, id, new.clone()).await;
                let taken = |error| match error {
                    Error::Busy(_) => Error::Invalid(format!("object {id} overlaps another one")),
                    error => error,
                };
                Ok((tx, claimed.map_err(taken)?))
            }
            claimed => claimed.map(|object| (tx, object)),
        }
    }

    /// Frees the objects that begin in the slots behind the first one of a new dnode.
    pub(super) async fn free_covered(&mut self, id: ObjectId, slots: u8) -> Result<()> {
        let end = id.get() + u64::from(slots);
        debug_assert!(end <= (id.get() / DNODES_PER_BLOCK + 1) * DNODES_PER_BLOCK);
        if slots <= 1 {
            return Ok(());
        }
        let mut from = ObjectId(id.get() + 1);
        let mut freed = false;
        while let Some(next) = self.objset().next_object(from).await?
            && next.get() < end
        {
            self.free_object(next).await?;
            freed = true;
            from = ObjectId(next.get() + 1);
        }
        if freed { self.commit().await } else { Ok(()) }
    }

    /// An object that is there is described anew.
    async fn change_object(
        &mut self,
        object: &Arc<LiveObject>,
        described: &Described,
        bonus: &[u8],
        bytes: u64,
    ) -> Result<()> {
        let dnode = object.dnode();
        if self.is_another(&dnode, object, described, bonus)? {
            // Its attributes need not come again.
            let keeps = self.tells_spill() && described.has_spill;
            let kept = if keeps { object.spill().await? } else { None };
            let kept = kept.filter(|kept| kept.order == ByteOrder::Little);
            object.prepare_free().await?;
            let bytes_kept = kept.as_ref().map_or(0, |kept| kept.block.len() as u64);
            let tx = self.hold(|_| Dirtied::new_file(), METADATA_BYTES + bytes_kept).await?;
            object.replace(&tx, &new_object(described, bonus))?;
            if let Some(kept) = kept {
                check_room_for_spill(object)?;
                object.set_bonus_and_spill(&tx, described.bonus_type, bonus, Some(kept.block));
            }
            self.note_point(&tx, object.id(), 0, bytes);
            return Ok(());
        }
        let has_spill = object.bonus_alone().is_none();
        let is_same = dnode.dmu_type == described.dmu_type
            && dnode.data_block_size() == u64::from(described.block_bytes)
            && object.bonus_type() == described.bonus_type
            && dnode.bonus.len() == bonus.len();
        // A stream that does not tell has it again behind an object that is not the same.
        let drops_spill = has_spill && if self.tells_spill() { !described.has_spill } else { !is_same };
        let spill = if has_spill && !drops_spill { Blkptr::SIZE } else { 0 };
        if bonus.len() + spill + (dnode.blkptrs.len() - 1) * Blkptr::SIZE
            > checks::bonus_capacity(described.slots)
        {
            return Err(Error::Invalid(format!("a bonus of {} bytes that does not fit", bonus.len())));
        }
        let tx = self.hold(|_| Dirtied::new_file(), METADATA_BYTES).await?;
        if dnode.dmu_type != described.dmu_type {
            object.set_type(&tx, described.dmu_type);
        }
        match drops_spill {
            true => object.set_bonus_and_spill(&tx, described.bonus_type, bonus, None),
            false => object.set_bonus(&tx, described.bonus_type, bonus),
        }
        self.note_point(&tx, object.id(), 0, bytes);
        Ok(())
    }

    /// Whether what is described cannot have blocks of the object that is there.
    fn is_another(
        &self,
        dnode: &Dnode,
        object: &LiveObject,
        described: &Described,
        bonus: &[u8],
    ) -> Result<bool> {
        let blocks = u64::from(described.block_bytes);
        if described.pointers(bonus.len()) < dnode.blkptrs.len() {
            return Ok(true);
        }
        if blocks == dnode.data_block_size() {
            return Ok(false);
        }
        let is_file = |dmu_type| dmu_type == DmuType::PLAIN_FILE_CONTENTS;
        let both_files = is_file(described.dmu_type) && is_file(dnode.dmu_type);
        if self.is_full() || !both_files || dnode.max_block_id.0 == 0 {
            return Ok(true);
        }
        let generations =
            (generation(object.bonus_type(), &object.bonus()), generation(described.bonus_type, bonus));
        match generations {
            (Some(before), Some(now)) if before == now => match blocks > dnode.data_block_size() {
                // The same file, which is sent with larger blocks from now on: it keeps those that it has.
                true => Ok(false),
                false => Err(Error::Invalid(format!("object {}: smaller blocks than before", object.id()))),
            },
            (Some(_), Some(_)) => Ok(true),
            _ => Err(Error::Invalid(format!("object {}: without a generation", object.id()))),
        }
    }

    pub(super) async fn free_object(&mut self, id: ObjectId) -> Result<()> {
        let Some(object) = self.find(id).await? else { return Ok(()) };
        self.free_parts(&object, 0..u64::MAX).await?;
        object.prepare_free().await?;
        let tx = self.hold_to_free(|_| Dirtied::file()).await?;
        self.objset().free(&tx, id).await?;
        self.current = None;
        Ok(())
    }

    /// Must be called before a range is freed: makes all of it a hole that would be too much for a group.
    pub(super) async fn free_parts(&self, object: &Arc<LiveObject>, range: Range<u64>) -> Result<()> {
        let mut range = range;
        while object.has_parts() {
            let (at, blocks) = object.last_part(&range).await?;
            self.pool.txgs().wait_to_free(blocks).await?;
            if at <= range.start {
                break;
            }
            object.prepare_punch(at..range.end).await?;
            let end = range.end;
            let tx =
                self.hold_to_free(|txg| object.newly_dirty_by_cut(txg, end).plus(Dirtied::file())).await?;
            object.punch(&tx, at, end - at).await?;
            range.end = at;
        }
        Ok(())
    }

    async fn free_objects(&mut self, free: &FreeObjects) -> Result<()> {
        let first = free.first.get();
        let Some(end) = first.checked_add(free.count) else {
            return Err(Error::Invalid("objects beyond 2^64 that are free".to_owned()));
        };
        let end = end.min(MAX_OBJECT);
        let mut from = ObjectId(first.max(1));
        while from.get() < end
            && let Some(next) = self.objset().next_object(from).await?
            && next.get() < end
        {
            self.free_object(next).await?;
            from = ObjectId(next.get() + 1);
        }
        Ok(())
    }

    /// Blocks come in the order of their objects and offsets.
    pub(super) fn go_on(&mut self, object: ObjectId, offset: u64) -> Result<()> {
        let place = (object.get(), offset);
        if place < self.last {
            return Err(Error::Invalid(format!("object {object}, offset {offset}: not in order")));
        }
        self.last = place;
        Ok(())
    }

    async fn write(&mut self, write: &Write, payload: &[u8], bytes: u64) -> Result<()> {
        let compress = checks::write(write, self.begin.features)?;
        let object = self.existing(write.object).await?;
        self.go_on(write.object, write.offset.get())?;
        let size = usize::try_from(write.logical_bytes).unwrap_or(usize::MAX);
        let stays = compress != CompressType::Off && self.keeps_compressed && self.order == ByteOrder::Little;
        let block = match payload.get(..usize::try_from(write.compressed_bytes).unwrap_or(usize::MAX)) {
            Some(payload) if stays => data::packed(payload, compress, size)?,
            _ => data::block(payload, compress, (size, size), (self.order, object.dnode().dmu_type))?,
        };
        self.store(&object, write.offset.get(), block, bytes).await
    }

    async fn write_embedded(&mut self, write: &WriteEmbedded, payload: &[u8], bytes: u64) -> Result<()> {
        let compress = checks::embedded(write, self.begin.features)?;
        let range = &write.range;
        let object = self.existing(range.object).await?;
        let payload = payload.get(..write.physical_bytes as usize).unwrap_or(payload);
        if range.offset.get() == SPILL_BLOCK_ID.wrapping_mul(object.block_size()) {
            // OpenZFS sends embedded spill blocks as if they were data, and loses them when it receives.
            let size = checks::spill_bytes(write.logical_bytes.into(), self.begin.features)?;
            return self.store_spill(&object, payload, (compress, size)).await;
        }
        self.go_on(range.object, range.offset.get())?;
        let sizes = (write.logical_bytes as usize, usize::try_from(range.length).unwrap_or(usize::MAX));
        let block = data::block(payload, compress, sizes, (self.order, object.dnode().dmu_type))?;
        self.store(&object, range.offset.get(), block, bytes).await
    }

    /// Writes a block of the stream, which may be several of the object, or a part of one.
    pub(super) async fn store(
        &mut self,
        object: &Arc<LiveObject>,
        offset: u64,
        block: Block,
        bytes: u64,
    ) -> Result<()> {
        let range = offset..offset + block.len() as u64;
        object.prepare_write(range.clone()).await?;
        let stored = block.stored_form().map_or(0, |(_, stored)| stored.len() as u64);
        let tx = self.hold(|txg| object.newly_dirty(txg, &range, None), stored).await?;
        object
            .write_payload(&tx, offset, Payload::of_blocks(std::slice::from_ref(&block), block.len()))
            .await?;
        self.note_point(&tx, object.id(), offset, bytes);
        Ok(())
    }

    async fn free(&mut self, range: &ByteRange) -> Result<()> {
        checks::range(range)?;
        let object = self.existing(range.object).await?;
        self.check_raw_free(range, &object)?;
        self.free_range(&object, (range.offset.get(), range.length)).await
    }

    /// Makes a range of an object a hole.
    pub(super) async fn free_range(
        &self,
        object: &Arc<LiveObject>,
        (from, length): (u64, u64),
    ) -> Result<()> {
        let to = from.saturating_add(length);
        if from >= object.end() || from >= to {
            return Ok(());
        }
        self.free_parts(object, from..to).await?;
        object.prepare_punch(from..to).await?;
        let dirtied = |txg| {
            let [from, to] = [from, to].map(|edge| object.newly_dirty_by_cut(txg, edge));
            from.plus(to).plus(Dirtied::file())
        };
        let tx = self.hold_to_free(dirtied).await?;
        object.punch(&tx, from, length).await
    }

    async fn spill(&mut self, spill: &Spill, payload: &[u8]) -> Result<()> {
        let object = self.existing(spill.object).await?;
        let is_there = object.bonus_alone().is_none();
        if is_there && self.tells_spill() && spill.flags & record_flag::SPILL_UNMODIFIED != 0 {
            return Ok(());
        }
        let size = checks::spill_bytes(spill.logical_bytes, self.begin.features)?;
        if spill.compressed_bytes != 0 || spill.compress != 0 || payload.len() != size as usize {
            return Err(Error::Invalid("a part of a raw stream in a plain one".to_owned()));
        }
        self.store_spill(&object, payload, (CompressType::Off, size)).await
    }

    /// Sets the spill block of an object, of so many bytes.
    async fn store_spill(
        &self,
        object: &Arc<LiveObject>,
        payload: &[u8],
        (compress, size): (CompressType, u32),
    ) -> Result<()> {
        check_room_for_spill(object)?;
        let (bonus, bonus_type) = (object.bonus(), object.bonus_type());
        let sizes = (size as usize, size as usize);
        let block = data::block(payload, compress, sizes, (self.order, bonus_type))?;
        let tx = self.hold(|_| Dirtied::attributes(size.into()), size.into()).await?;
        object.set_bonus_and_spill(&tx, bonus_type, &bonus, Some(block));
        Ok(())
    }
}

/// A pointer to a spill block lies behind the bonus.
fn check_room_for_spill(object: &LiveObject) -> Result<()> {
    let dnode = object.dnode();
    let used = object.bonus().len() + dnode.blkptrs.len() * Blkptr::SIZE;
    match used > checks::bonus_capacity(dnode.extra_slots.saturating_add(1)) {
        true => Err(Error::Invalid(format!("object {}: no room for a spill block", object.id()))),
        false => Ok(()),
    }
}

fn new_object(described: &Described, bonus: &[u8]) -> NewObject {
    NewObject {
        dmu_type: described.dmu_type,
        block_size: described.block_bytes,
        bonus_type: described.bonus_type,
        bonus: bonus.to_vec(),
        slots: described.slots,
    }
}

/// The generation of a file, which tells it from others that had its number.
fn generation(bonus_type: DmuType, bonus: &[u8]) -> Option<u64> {
    let at = match bonus_type {
        DmuType::ZNODE => ZNODE_GENERATION,
        DmuType::SA => {
            let layout =
                bonus.get(4..).and_then(|bytes| bytes.first_chunk()).map(|b| u16::from_le_bytes(*b))?;
            usize::from(layout >> 10) * 8 + SA_GENERATION
        }
        _ => return None,
    };
    bonus.get(at..).and_then(|bytes| bytes.first_chunk()).map(|bytes| u64::from_le_bytes(*bytes))
}
