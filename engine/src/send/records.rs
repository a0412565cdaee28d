//! From steps to records.
//!
//! Neighbouring frees become one record, so that the last one waits until another record comes.
//!
//! In two cases OpenZFS makes records that no receiver can make sense of, and this module others:
//!
//! | case | OpenZFS with `-e` | here |
//! |---|---|---|
//! | a spill block that is embedded in its pointer | `WRITE_EMBEDDED` at an offset beyond all files | `SPILL` |
//! | an embedded block larger than 128 KiB, without `-L` | `WRITE_EMBEDDED` larger than the object's blocks | `WRITE`s of 128 KiB |

use std::ops::Range;

use ondisk::blkptr::{Blkptr, ChecksumType, CompressType, CryptParts, EmbeddedType, LARGE_BLOCK_BYTES};
use ondisk::ddt::DdtKey;
use ondisk::dmu::DmuType;
use ondisk::dnode::DNODES_PER_BLOCK;
use ondisk::send::{
    Begin, ByteRange, FreeObjects, Object as ObjectRecord, ObjectRange, Record, Spill, StreamWriter, Write,
    WriteEmbedded, feature, record_flag,
};
use ondisk::{ByteOffset, ByteOrder, Guid, ObjectId, Txg};

use super::Piece;
use super::fetch::{Fetched, Form, other_order};
use super::found::{Data, Object};
use crate::Bookmark;
use crate::error::{Error, Result};

/// The length of a range that has no end.
const TO_THE_END: u64 = u64::MAX;

/// A free that waits for its neighbour.
#[derive(Debug, Clone, Copy)]
enum Pending {
    Objects(FreeObjects),
    Range(ByteRange),
}

/// Makes the records of one stream.
#[derive(Debug)]
pub(super) struct Records {
    writer: StreamWriter,
    order: ByteOrder,
    features: u64,
    to_guid: Guid,
    from: Txg,
    /// The object set has no objects from this number on.
    objects_end: u64,
    pending: Option<Pending>,
    /// What was made and not taken.
    made: Vec<Piece>,
    made_bytes: u64,
}

impl Records {
    pub(super) fn new(begin: &Begin, from: Txg, order: ByteOrder, last_dnode_block: u64) -> Records {
        Records {
            writer: StreamWriter::new(order),
            order,
            features: begin.features,
            to_guid: begin.to_guid,
            from,
            objects_end: last_dnode_block.saturating_add(1).saturating_mul(DNODES_PER_BLOCK),
            pending: None,
            made: Vec::new(),
            made_bytes: 0,
        }
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Bytes of [`Records::take`].
    pub(super) fn made_bytes(&self) -> u64 {
        self.made_bytes
    }

    /// What was made since it was last taken.
    pub(super) fn take(&mut self) -> Vec<Piece> {
        self.made_bytes = 0;
        std::mem::take(&mut self.made)
    }

    fn add(&mut self, piece: Piece) {
        let length = piece.as_ref().len() as u64;
        self.made_bytes += length;
        match (self.made.last_mut(), piece) {
            (Some(Piece::Bytes(last)), Piece::Bytes(bytes)) => last.extend_from_slice(&bytes),
            (_, piece) => self.made.push(piece),
        }
    }

    fn put(&mut self, record: &Record, payload: &[u8]) -> Result<()> {
        self.flush()?;
        self.put_now(record, payload)
    }

    fn put_now(&mut self, record: &Record, payload: &[u8]) -> Result<()> {
        let mut bytes = self.writer.put(record, payload).map_err(Error::format("send stream"))?;
        bytes.extend_from_slice(payload);
        self.add(Piece::Bytes(bytes));
        Ok(())
    }

    /// A record with a part of a block.
    fn put_block(&mut self, record: &Record, (fetched, range, sums): Part<'_>) -> Result<()> {
        self.flush()?;
        let length = range.len() as u64;
        let bytes = self.writer.put_summed(record, length, sums).map_err(Error::format("send stream"))?;
        self.add(Piece::Bytes(bytes));
        self.add(Piece::Block(fetched.block.clone(), range));
        Ok(())
    }

    /// Puts the free that waits.
    fn flush(&mut self) -> Result<()> {
        match self.pending.take() {
            Some(Pending::Objects(free)) => self.put_now(&Record::FreeObjects(free), &[]),
            Some(Pending::Range(range)) => self.put_now(&Record::Free(range), &[]),
            None => Ok(()),
        }
    }

    pub(super) fn begin(&mut self, begin: Begin, payload: &[u8]) -> Result<()> {
        self.put(&Record::Begin(begin), payload)
    }

    pub(super) fn end(&mut self) -> Result<()> {
        self.put(&Record::End(ondisk::send::End { checksum: [0; 4], to_guid: self.to_guid }), &[])
    }

    pub(super) fn free_objects(&mut self, first: u64, count: u64) -> Result<()> {
        // Old receivers take forever to free objects that cannot be.
        if first >= self.objects_end {
            return Ok(());
        }
        let count = count.min(self.objects_end - first);
        if let Some(Pending::Objects(free)) = &mut self.pending
            && free.first.0 + free.count == first
        {
            free.count += count;
            return Ok(());
        }
        self.flush()?;
        let free = FreeObjects { first: ObjectId(first), count, to_guid: self.to_guid };
        self.pending = Some(Pending::Objects(free));
        Ok(())
    }

    pub(super) fn free(&mut self, object: u64, offset: u64, length: u64) -> Result<()> {
        let has_end = length != TO_THE_END && offset.checked_add(length).is_some();
        if let Some(Pending::Range(range)) = &mut self.pending
            && range.object.0 == object
            && range.offset.0.checked_add(range.length) == Some(offset)
        {
            range.length = if has_end { range.length.saturating_add(length) } else { TO_THE_END };
            return Ok(());
        }
        self.flush()?;
        let (object, offset) = (ObjectId(object), ByteOffset(offset));
        let free_to = if has_end { length } else { TO_THE_END };
        let range = ByteRange { object, offset, length: free_to, to_guid: self.to_guid };
        if length == TO_THE_END {
            return self.put_now(&Record::Free(range), &[]);
        }
        self.pending = Some(Pending::Range(range));
        Ok(())
    }

    pub(super) fn object(&mut self, object: &Object) -> Result<()> {
        let dnode = &object.dnode;
        let at = Bookmark::data(0, object.number, 0);
        if dnode.order != self.order {
            return Err(other_order(&at));
        }
        let mut block_bytes = dnode.data_block_size();
        if !self.has(feature::LARGE_BLOCKS) {
            block_bytes = block_bytes.min(LARGE_BLOCK_BYTES);
        }
        let number = |value: u64| u32::try_from(value).map_err(|_| Error::corrupt(at.to_string(), value));
        let mut record = ObjectRecord {
            object: ObjectId(object.number),
            dmu_type: dnode.dmu_type.raw().into(),
            bonus_type: dnode.bonus_type.raw().into(),
            block_bytes: number(block_bytes)?,
            bonus_bytes: number(dnode.bonus.len() as u64)?,
            checksum: dnode.checksum.raw(),
            compress: dnode.compress.raw(),
            dnode_slots: dnode.extra_slots.saturating_add(1),
            flags: if dnode.spill.is_some() { record_flag::OBJECT_SPILL } else { 0 },
            to_guid: self.to_guid,
            ..ObjectRecord::default()
        };
        let mut sent_bytes = dnode.bonus.len().next_multiple_of(8);
        if self.has(feature::RAW) {
            record.max_block_id = dnode.max_block_id.0;
            record.indirect_block_shift = dnode.indirect_block_shift;
            record.levels = dnode.levels;
            record.block_pointers = u8::try_from(dnode.blkptrs.len()).unwrap_or(u8::MAX);
            if sent_bytes != 0 {
                // What lies beyond the bonus is ciphertext too.
                sent_bytes = dnode.bonus_capacity();
                record.raw_bonus_bytes = number(sent_bytes as u64)?;
            }
        }
        let start = dnode.bonus_offset();
        let bonus = object.slots.get(start..start + sent_bytes);
        let bonus = bonus.ok_or_else(|| Error::corrupt(at.to_string(), "its bonus is beyond its slots"))?;
        self.put(&Record::Object(record), bonus)?;
        let end = dnode.max_block_id.0.wrapping_add(1).wrapping_mul(dnode.data_block_size());
        self.free(object.number, end, TO_THE_END)
    }

    pub(super) fn object_range(&mut self, first: u64, slots: u64, bp: &Blkptr) -> Result<()> {
        if !self.has(feature::RAW) {
            return Ok(());
        }
        let record = ObjectRange {
            first: ObjectId(first),
            slots,
            to_guid: self.to_guid,
            crypt: crypt_parts(bp),
            flags: self.turned(bp),
        };
        self.put(&Record::ObjectRange(record), &[])
    }

    /// The form in which a block goes into the stream; none for one that is sent as it is embedded.
    pub(super) fn form(&self, data: &Data) -> Option<Form> {
        let bp = &data.bp;
        let is_spill = data.at.blkid == Bookmark::BLKID_SPILL;
        if self.is_sent_embedded(bp) && !is_spill {
            return None;
        }
        let lsize = usize::try_from(bp.lsize().get()).unwrap_or(usize::MAX);
        let is_split = bp.lsize().get() > LARGE_BLOCK_BYTES && !self.has(feature::LARGE_BLOCKS);
        let is_compressed = self.has(feature::COMPRESSED)
            && !is_split
            && bp.byte_order() == self.order
            && !bp.is_embedded()
            && !bp.dmu_type().is_metadata();
        Some(match () {
            () if self.has(feature::RAW) => Form::Raw,
            () if is_compressed => Form::Compressed,
            () if is_split && !is_spill => Form::Plain { piece_bytes: LARGE_BLOCK_BYTES as usize },
            () => Form::Plain { piece_bytes: lsize },
        })
    }

    fn is_sent_embedded(&self, bp: &Blkptr) -> bool {
        let compress = bp.compress().raw();
        bp.embedded().is_some_and(|embedded| embedded.kind == EmbeddedType::Data)
            && self.has(feature::EMBED_DATA)
            && (bp.lsize().get() <= LARGE_BLOCK_BYTES || self.has(feature::LARGE_BLOCKS))
            && (compress < CompressType::Lz4.raw() || self.has(feature::LZ4))
            && (bp.compress() != CompressType::Zstd || self.has(feature::ZSTD))
    }

    pub(super) fn embedded(&mut self, data: &Data) -> Result<()> {
        let (bp, at) = (&data.bp, &data.at);
        let lost = || Error::corrupt(at.to_string(), "an embedded block without contents");
        let embedded = bp.embedded().ok_or_else(lost)?;
        let length = bp.lsize().get();
        let mut payload = embedded.bytes().to_vec();
        payload.resize(payload.len().next_multiple_of(8), 0);
        let size = |bytes: u64| u32::try_from(bytes).map_err(|_| Error::corrupt(at.to_string(), bytes));
        let record = WriteEmbedded {
            range: ByteRange {
                object: ObjectId(at.object),
                offset: ByteOffset(offset(at, length)?),
                length,
                to_guid: self.to_guid,
            },
            compress: bp.compress().raw(),
            kind: embedded.kind as u8,
            logical_bytes: size(length)?,
            physical_bytes: size(embedded.psize.get())?,
        };
        self.put(&Record::WriteEmbedded(record), &payload)
    }

    /// The record, or records, of a block that was read in this form.
    pub(super) fn data(&mut self, data: &Data, form: Form, fetched: &Fetched) -> Result<()> {
        let (bp, at) = (&data.bp, &data.at);
        if at.blkid == Bookmark::BLKID_SPILL {
            return self.spill(bp, at, fetched);
        }
        let start = offset(at, bp.lsize().get())?;
        let is_split = bp.lsize().get() > fetched.piece_bytes as u64 && matches!(form, Form::Plain { .. });
        for (range, sums) in fetched.pieces() {
            let mut write = Write {
                object: ObjectId(at.object),
                dmu_type: data.dmu_type.raw().into(),
                offset: ByteOffset(start + range.start as u64),
                logical_bytes: bp.lsize().get(),
                to_guid: self.to_guid,
                checksum: ChecksumType::Off.raw(),
                ..Write::default()
            };
            if is_split {
                write.logical_bytes = range.len() as u64;
            } else {
                self.describe(&mut write, bp, form, range.len() as u64);
            }
            self.put_block(&Record::Write(write), (fetched, range, sums))?;
        }
        Ok(())
    }

    /// What a record says of a whole block.
    fn describe(&self, write: &mut Write, bp: &Blkptr, form: Form, length: u64) {
        if form == Form::Raw || form == Form::Compressed && bp.compress() != CompressType::Off {
            write.compress = bp.compress().raw();
            write.compressed_bytes = length;
        }
        if form == Form::Raw {
            write.flags |= self.turned(bp);
            write.crypt = crypt_parts(bp);
        }
        let is_decrypted = bp.uses_crypt() && form != Form::Raw;
        if bp.is_embedded() || is_decrypted {
            return;
        }
        write.checksum = bp.checksum_type().raw();
        if is_fit_for_dedup(bp.checksum_type()) {
            write.flags |= record_flag::CHECKSUM_DEDUP;
        }
        write.key = DdtKey::of(bp);
    }

    fn spill(&mut self, bp: &Blkptr, at: &Bookmark, fetched: &Fetched) -> Result<()> {
        if bp.dmu_type() != DmuType::SA {
            return Err(Error::corrupt(at.to_string(), "a spill block without system attributes"));
        }
        let mut spill = Spill {
            object: ObjectId(at.object),
            logical_bytes: bp.lsize().get(),
            to_guid: self.to_guid,
            ..Spill::default()
        };
        if bp.logical_birth() <= self.from {
            spill.flags |= record_flag::SPILL_UNMODIFIED;
        }
        if self.has(feature::RAW) {
            spill.flags |= self.turned(bp);
            spill.compress = bp.compress().raw();
            spill.compressed_bytes = bp.psize().get();
            spill.crypt = crypt_parts(bp);
        }
        let whole = (fetched, 0..fetched.block.len(), fetched.sums.first().copied().unwrap_or_default());
        self.put_block(&Record::Spill(spill), whole)
    }

    /// The flag of a raw block that is in the other byte order.
    fn turned(&self, bp: &Blkptr) -> u8 {
        if bp.byte_order() == self.order { 0 } else { record_flag::RAW_BYTESWAP }
    }
}

/// A block, the part of it that is sent, and the checksum of that.
type Part<'a> = (&'a Fetched, Range<usize>, [u64; 4]);

/// Where a block of this size begins.
fn offset(at: &Bookmark, block_bytes: u64) -> Result<u64> {
    let offset = at.blkid.checked_mul(block_bytes).filter(|start| start.checked_add(block_bytes).is_some());
    offset.ok_or_else(|| Error::corrupt(at.to_string(), "lies beyond the largest file"))
}

fn crypt_parts(bp: &Blkptr) -> CryptParts {
    CryptParts { salt: bp.salt(), iv: bp.iv(), mac: bp.mac() }
}

/// Whether equal checksums of this kind make equal blocks (`ZCHECKSUM_FLAG_DEDUP`).
const fn is_fit_for_dedup(checksum: ChecksumType) -> bool {
    matches!(
        checksum,
        ChecksumType::Sha256 | ChecksumType::Sha512 | ChecksumType::Skein | ChecksumType::Blake3
    )
}
