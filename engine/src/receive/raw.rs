//! Records of raw streams: blocks as they are stored, and dnodes with their bonus areas as they are.
//!
//! A block of dnodes begins with `OBJECT_RANGE`, which says with what it is protected, and each of its dnodes
//! follows, changed or not. What a record says of sizes is checked against the object, since a block that
//! does not fit could not be written as it is. Whether ciphertext is what it claims to be is found out with
//! the key: a MAC that is wrong is an error of the reader.

use std::sync::Arc;

use device::IoBuf;
use ondisk::ObjectId;
use ondisk::blkptr::CompressType;
use ondisk::dnode::{DNODES_PER_BLOCK, Dnode, FLAG_SPILL_BLKPTR};
use ondisk::send::{ByteRange, Object, ObjectRange, Spill, Write, record_flag};

use super::Receiver;
use super::checks::{self, Described};
use super::objects::METADATA_BYTES;
use crate::Block;
use crate::dmu::{Dirtied, LiveObject, NewObject, RawDnode};
use crate::error::{Error, Result};

fn invalid<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(text.into()))
}

/// What is said of a dnode, and its bonus.
pub(super) struct RawObject {
    pub dnode: RawDnode,
    pub new: NewObject,
    pub has_spill: bool,
}

impl RawObject {
    pub fn of(record: &Object, described: &Described, payload: &[u8]) -> Result<Self> {
        let bonus = record.bonus_bytes as usize;
        let (bonus, tail) = payload.split_at_checked(bonus).ok_or_else(|| {
            Error::Invalid(format!("a bonus of {bonus} bytes in an area of {}", payload.len()))
        })?;
        let (checksum, compress) = checks::functions(record)?;
        let dnode = RawDnode {
            levels: record.levels,
            indirect_block_shift: record.indirect_block_shift,
            checksum,
            compress,
            max_block_id: record.max_block_id,
            tail: tail.into(),
        };
        let new = NewObject {
            dmu_type: described.dmu_type,
            block_size: described.block_bytes,
            bonus_type: described.bonus_type,
            bonus: bonus.to_vec(),
            slots: described.slots,
        };
        Ok(Self { dnode, new, has_spill: described.has_spill })
    }

    /// Whether an object that is there cannot keep its blocks.
    fn is_another(&self, dnode: &Dnode) -> bool {
        let (new, raw) = (&self.new, &self.dnode);
        u64::from(new.block_size) != dnode.data_block_size()
            || raw.indirect_block_shift != dnode.indirect_block_shift
            || raw.levels < dnode.levels
            || checks::pointers(new.bonus_type, new.bonus.len(), new.slots) != dnode.blkptrs.len()
    }
}

impl Receiver {
    /// Whether the stream is raw.
    pub(super) fn is_raw(&self) -> bool {
        self.begun.raw.is_some()
    }

    /// The stream has ended: its object set is written once more where it has no object at all.
    pub(super) async fn finish_raw(&self) -> Result<()> {
        if self.is_raw() {
            let tx = self.hold(|_| Dirtied::file(), 0).await?;
            self.objset().touch_raw(&tx);
        }
        Ok(())
    }

    pub(super) fn object_range(&mut self, range: &ObjectRange) -> Result<()> {
        if !self.is_raw() {
            return invalid("a part of a raw stream in a plain one");
        }
        checks::object_range(range)?;
        self.range = Some(*range);
        Ok(())
    }

    /// The block of dnodes of an object, which the stream must be in.
    fn range_of(&self, id: ObjectId) -> Result<(u64, ObjectRange)> {
        let block = id.get() / DNODES_PER_BLOCK;
        let last = self.begun.raw.as_ref().map_or(0, |keys| keys.objset.max_block_id.0);
        if block > last {
            return invalid(format!("object {id}, and the last block of dnodes is {last}"));
        }
        match self.range.filter(|range| range.first.get() / DNODES_PER_BLOCK == block) {
            Some(range) => Ok((block, range)),
            None => invalid(format!("object {id} without the range of its block of dnodes")),
        }
    }

    /// An object as it is on the sender.
    pub(super) async fn raw_object(&mut self, record: &Object, payload: &[u8], bytes: u64) -> Result<()> {
        let described = checks::raw_object(record, self.begin.features, self.tells_spill())?;
        let raw = RawObject::of(record, &described, payload)?;
        let id = record.object;
        let (block, range) = self.range_of(id)?;
        if let Some(object) = self.find(id).await? {
            if object.dnode().slots() == u64::from(raw.new.slots) {
                return self.change_raw(&object, (raw, block, range), bytes).await;
            }
            self.free_object(id).await?;
            self.commit().await?;
        }
        self.free_covered(id, raw.new.slots).await?;
        let (tx, object) = self.claim(id, &raw.new).await?;
        object.set_raw(&tx, raw.dnode);
        self.objset().note_raw_range(&tx, block, range.crypt);
        self.note_point(&tx, id, 0, bytes);
        self.current = Some(object);
        Ok(())
    }

    /// An object that is there is described anew.
    async fn change_raw(
        &mut self,
        object: &Arc<LiveObject>,
        (raw, block, range): (RawObject, u64, ObjectRange),
        bytes: u64,
    ) -> Result<()> {
        let dnode = object.dnode();
        let is_another = raw.is_another(&dnode);
        if is_another {
            self.free_parts(object, 0..u64::MAX).await?;
            object.prepare_free().await?;
        } else {
            // Nothing is behind the last block.
            let end = raw.dnode.max_block_id.saturating_add(1).saturating_mul(dnode.data_block_size());
            self.free_range(object, (end, u64::MAX)).await?;
        }
        let tx = self.hold(|_| Dirtied::new_file(), METADATA_BYTES).await?;
        let has_spill = object.bonus_alone().is_none();
        if is_another {
            object.replace(&tx, &raw.new)?;
        } else {
            if dnode.dmu_type != raw.new.dmu_type {
                object.set_type(&tx, raw.new.dmu_type);
            }
            match has_spill && !raw.has_spill {
                true => object.set_bonus_and_spill(&tx, raw.new.bonus_type, &raw.new.bonus, None),
                false => object.set_bonus(&tx, raw.new.bonus_type, &raw.new.bonus),
            }
        }
        object.set_raw(&tx, raw.dnode);
        self.objset().note_raw_range(&tx, block, range.crypt);
        self.note_point(&tx, object.id(), 0, bytes);
        Ok(())
    }

    pub(super) async fn raw_write(&mut self, write: &Write, payload: &[u8], bytes: u64) -> Result<()> {
        let compress = checks::raw_write(write, self.begin.features)?;
        let object = self.existing(write.object).await?;
        self.go_on(write.object, write.offset.get())?;
        let dnode = object.dnode();
        let (size, offset) = (dnode.data_block_size(), write.offset.get());
        if write.logical_bytes != size || !offset.is_multiple_of(size) {
            let logical = write.logical_bytes;
            return invalid(format!(
                "object {}: {logical} bytes at {offset}, and its blocks have {size} bytes",
                write.object
            ));
        }
        if offset / size > dnode.max_block_id.0 || u32::from(dnode.dmu_type.raw()) != write.dmu_type {
            return invalid(format!("object {}: a block that it does not have", write.object));
        }
        let block = sealed(size, payload, (compress, write.compressed_bytes), write.flags, &write.crypt)?;
        self.store(&object, offset, block, bytes).await
    }

    /// A range of blocks that are holes.
    pub(super) fn check_raw_free(&self, range: &ByteRange, object: &LiveObject) -> Result<()> {
        let size = object.block_size();
        let is_whole = |bytes: u64| bytes.is_multiple_of(size);
        let (offset, length) = (range.offset.get(), range.length);
        match !self.is_raw() || is_whole(offset) && (length == u64::MAX || is_whole(length)) {
            true => Ok(()),
            false => invalid(format!("object {}: a part of a block that is freed", range.object)),
        }
    }

    pub(super) async fn raw_spill(&mut self, spill: &Spill, payload: &[u8]) -> Result<()> {
        let object = self.existing(spill.object).await?;
        let compress = checks::raw_spill(spill, self.begin.features)?;
        if object.bonus_alone().is_none() && spill.flags & record_flag::SPILL_UNMODIFIED != 0 {
            return Ok(());
        }
        let dnode = object.dnode();
        let has_room = dnode.bonus.len() + dnode.blkptrs.len() * ondisk::blkptr::Blkptr::SIZE
            <= checks::bonus_capacity(dnode.extra_slots.saturating_add(1));
        if !has_room && dnode.flags & FLAG_SPILL_BLKPTR == 0 {
            return invalid(format!("object {}: no room for a spill block", object.id()));
        }
        let size = spill.logical_bytes;
        let block = sealed(size, payload, (compress, spill.compressed_bytes), spill.flags, &spill.crypt)?;
        let tx = self.hold(|_| Dirtied::attributes(size), size).await?;
        let (bonus, bonus_type) = (object.bonus(), object.bonus_type());
        object.set_bonus_and_spill(&tx, bonus_type, &bonus, Some(block));
        Ok(())
    }
}

/// A block as it is stored.
fn sealed(
    size: u64,
    payload: &[u8],
    (compress, stored_bytes): (CompressType, u64),
    flags: u8,
    crypt: &ondisk::blkptr::CryptParts,
) -> Result<Block> {
    if flags & record_flag::RAW_BYTESWAP != 0 {
        return Err(Error::Unsupported(
            "raw blocks of big-endian machines cannot be received by this version".to_owned(),
        ));
    }
    if payload.len() as u64 != stored_bytes {
        return invalid(format!("{stored_bytes} bytes are told, and {} came", payload.len()));
    }
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    Ok(Block::sealed(size, IoBuf::from(payload), compress, *crypt))
}
