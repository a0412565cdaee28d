//! Send streams: a dataset or its changes as a sequence of records.
//!
//! A stream is `BEGIN`, records, `END`. A compound stream (`zfs send -R`, `-I`) is a `BEGIN` with an nvlist
//! that describes the datasets, its `END`, then any number of plain streams, and a last `END`. Each record is
//! 312 bytes, in the byte order of the sender (which the magic of `BEGIN` tells), and may be followed by a
//! payload:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | `drr_type` | kind |
//! | 4 | 4 | `drr_payloadlen` | of `BEGIN`: bytes of the nvlist that follows |
//! | 8 | 304 | | body |
//! | 280 | 32 | `drr_checksum` | end of the body of all but `BEGIN`: checksum so far, or zero |
//!
//! Bodies (offsets within the record; `crypt` is salt (8), IV (12), MAC (16), zero unless the stream is raw):
//!
//! | number | kind | body | payload |
//! |---|---|---|---|
//! | 0 | `BEGIN` | 8 magic, 16 versioninfo, 24 creation time, 32 u32 objset type, 36 u32 flags, 40 toguid, 48 fromguid, 56 toname (256) | nvlist |
//! | 1 | `OBJECT` | 8 object, 16 u32 type, 20 u32 bonus type, 24 u32 block size, 28 u32 bonus length, 32 u8 checksum, 33 u8 compression, 34 u8 dnode slots, 35 u8 flags, 36 u32 raw bonus length, 40 toguid, 48 u8 indirect block shift, 49 u8 levels, 50 u8 block pointers, 56 last block id | bonus |
//! | 2 | `FREEOBJECTS` | 8 first object, 16 count, 24 toguid | |
//! | 3 | `WRITE` | 8 object, 16 u32 type, 24 offset, 32 logical size, 40 toguid, 48 u8 checksum, 49 u8 flags, 50 u8 compression, 56 dedup key (40), 96 compressed size, 104 crypt | data |
//! | 4 | `FREE` | 8 object, 16 offset, 24 length, 32 toguid | |
//! | 5 | `END` | 8 checksum of all before (32), 40 toguid | |
//! | 6 | `WRITE_BYREF` | 8 object, 16 offset, 24 length, 32 toguid, 40 refguid, 48 refobject, 56 refoffset, 64 u8 checksum, 65 u8 flags, 72 dedup key | |
//! | 7 | `SPILL` | 8 object, 16 length, 24 toguid, 32 u8 flags, 33 u8 compression, 40 compressed size, 48 crypt, 84 u32 type | data |
//! | 8 | `WRITE_EMBEDDED` | 8 object, 16 offset, 24 length, 32 toguid, 40 u8 compression, 41 u8 kind, 48 u32 lsize, 52 u32 psize | data, padded to 8 |
//! | 9 | `OBJECT_RANGE` | 8 first object, 16 slots, 24 toguid, 32 crypt, 68 u8 flags | |
//! | 10 | `REDACT` | 8 object, 16 offset, 24 length, 32 toguid | |
//!
//! `versioninfo`: bits 0-1 header type (1 plain, 2 compound), bits 2-57 [features](feature).
//!
//! The checksum is a fletcher4 that runs over the whole stream, payloads included, in the sender's byte
//! order; see [`stream::StreamReader`] for what it covers at which place.
//!
//! Source of the facts: OpenZFS 2.3 `zfs_ioctl.h`, `dmu_send.h`, `dmu_send.c`, `libzfs_sendrecv.c`.

use crate::blkptr::CryptParts;
use crate::ddt::DdtKey;
use crate::words::{Word, word_struct};
use crate::{ByteOffset, ByteOrder, Error, Guid, ObjectId, Reader, Result, Writer};

pub mod key_data;
pub mod package;
pub mod stream;

pub use key_data::{KeyData, RawObjset};
pub use package::{Hold, Package, PackagedDataset, PackagedProperty, PackagedValue};
pub use stream::{Item, StreamReader, StreamWriter};

const WHAT: &str = "send stream";

/// Bytes of a record without its payload.
pub const RECORD_SIZE: usize = 312;
/// Where the running checksum is in a record.
pub const CHECKSUM_OFFSET: usize = RECORD_SIZE - 32;
/// The magic number of a stream, after type and payload length (`DMU_BACKUP_MAGIC`).
pub const MAGIC: u64 = 0x2_f5ba_cbac;
/// Bytes of the name in `BEGIN`, terminator included.
const NAME_BYTES: usize = 256;

/// Features of a stream: what the receiver must know.
pub mod feature {
    /// Records refer to earlier ones (`WRITE_BYREF`); no longer made nor received.
    pub const DEDUP: u64 = 1;
    /// Dedup keys are complete.
    pub const DEDUPPROPS: u64 = 1 << 1;
    /// System attributes and spill blocks.
    pub const SA_SPILL: u64 = 1 << 2;
    /// `WRITE_EMBEDDED`.
    pub const EMBED_DATA: u64 = 1 << 16;
    /// LZ4 in compressed or embedded data.
    pub const LZ4: u64 = 1 << 17;
    /// Records larger than 128 KiB.
    pub const LARGE_BLOCKS: u64 = 1 << 19;
    /// Continues an interrupted stream.
    pub const RESUMING: u64 = 1 << 20;
    /// Blocks were left out.
    pub const REDACTED: u64 = 1 << 21;
    /// Data is compressed as it is on disk.
    pub const COMPRESSED: u64 = 1 << 22;
    /// Dnodes larger than 512 bytes.
    pub const LARGE_DNODE: u64 = 1 << 23;
    /// Blocks are as on disk, encrypted if they are so there.
    pub const RAW: u64 = 1 << 24;
    /// Zstandard in compressed data.
    pub const ZSTD: u64 = 1 << 25;
    /// The nvlist lists holds.
    pub const HOLDS: u64 = 1 << 26;
    /// An incremental stream may go over to large blocks.
    pub const SWITCH_TO_LARGE_BLOCKS: u64 = 1 << 27;
    /// Names longer than 255 bytes.
    pub const LONGNAME: u64 = 1 << 28;
    /// Microzaps larger than 128 KiB.
    pub const LARGE_MICROZAP: u64 = 1 << 29;

    /// Every feature that OpenZFS 2.3 receives.
    pub const KNOWN: u64 = SA_SPILL
        | EMBED_DATA
        | LZ4
        | LARGE_BLOCKS
        | RESUMING
        | REDACTED
        | COMPRESSED
        | LARGE_DNODE
        | RAW
        | ZSTD
        | HOLDS
        | SWITCH_TO_LARGE_BLOCKS
        | LONGNAME
        | LARGE_MICROZAP;
}

/// Flags of `BEGIN`.
pub mod begin_flag {
    /// The stream may become a clone.
    pub const CLONE: u32 = 1;
    /// The filesystem matches names without regard to case.
    pub const CI_DATA: u32 = 1 << 1;
    /// A full stream has the free records that an incremental one has.
    pub const FREERECORDS: u32 = 1 << 2;
    /// `OBJECT` tells which objects have spill blocks, and `SPILL` which are unmodified.
    pub const SPILL_BLOCK: u32 = 1 << 3;
}

/// Flags of the other records.
pub mod record_flag {
    /// The checksum is fit for dedup.
    pub const CHECKSUM_DEDUP: u8 = 1;
    /// A raw block is in the other byte order than the sender's.
    pub const RAW_BYTESWAP: u8 = 1 << 1;
    /// `OBJECT`: it has a spill block.
    pub const OBJECT_SPILL: u8 = 1 << 2;
    /// `SPILL`: only for old receivers, the block did not change.
    pub const SPILL_UNMODIFIED: u8 = 1 << 2;
}

/// Names in the nvlist of a plain stream's `BEGIN`.
pub mod begin_key {
    /// Guids of the snapshots that the stream is redacted with respect to (array).
    pub const REDACT_SNAPS: &str = "redact_snaps";
    /// Guids of the redaction bookmark that it is incremental from (array).
    pub const REDACT_FROM_SNAPS: &str = "redact_from_snaps";
    /// Object from which it resumes.
    pub const RESUME_OBJECT: &str = "resume_object";
    /// Offset from which it resumes.
    pub const RESUME_OFFSET: &str = "resume_offset";
    /// Wrapped keys of a raw stream.
    pub const CRYPT_KEYDATA: &str = "crypt_keydata";
}

/// Whether a `BEGIN` starts one stream or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderType {
    /// One snapshot.
    Plain,
    /// A list of streams.
    Compound,
}

/// The beginning of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Plain or compound.
    pub header: HeaderType,
    /// Flags for the receiver.
    pub features: u64,
    /// Creation time of the snapshot, seconds since 1970.
    pub creation_time: u64,
    /// Type of the object set (2 filesystem, 3 volume).
    pub objset_type: u32,
    /// See [`begin_flag`].
    pub flags: u32,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// Guid of what the stream is incremental from, 0 for a full one.
    pub from_guid: Guid,
    /// Name of the snapshot.
    pub to_name: Vec<u8>,
    /// Bytes of the nvlist that follows.
    pub payload_bytes: u32,
}

/// An object and its bonus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs)] // The fields are those of the table, under the names that a dnode gives them.
pub struct Object {
    pub object: ObjectId,
    pub dmu_type: u32,
    pub bonus_type: u32,
    pub block_bytes: u32,
    pub bonus_bytes: u32,
    pub checksum: u8,
    pub compress: u8,
    pub dnode_slots: u8,
    pub flags: u8,
    /// Bytes of the bonus of a raw stream, 0 for the others.
    pub raw_bonus_bytes: u32,
    pub to_guid: Guid,
    pub indirect_block_shift: u8,
    pub levels: u8,
    pub block_pointers: u8,
    pub max_block_id: u64,
}

word_struct! {
    /// Objects that are to be freed.
    pub struct FreeObjects {
        /// First object.
        pub first: ObjectId,
        /// How many.
        pub count: u64,
        /// Guid of the snapshot.
        pub to_guid: Guid,
    }
}

/// A block of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Write {
    /// Object.
    pub object: ObjectId,
    /// Its type.
    pub dmu_type: u32,
    /// Where the block begins.
    pub offset: ByteOffset,
    /// Size of the block.
    pub logical_bytes: u64,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// Checksum function of the dedup key.
    pub checksum: u8,
    /// See [`record_flag`].
    pub flags: u8,
    /// Compression of the payload, 0 for none.
    pub compress: u8,
    /// Checksum and sizes of the block on the sender.
    pub key: DdtKey,
    /// Bytes of a compressed payload.
    pub compressed_bytes: u64,
    /// Encryption of the payload of a raw stream.
    pub crypt: CryptParts,
}

word_struct! {
    /// A range of an object: to be freed, or that was left out by redaction.
    pub struct ByteRange {
        /// Object.
        pub object: ObjectId,
        /// Where it begins.
        pub offset: ByteOffset,
        /// How long it is, all ones: to the end.
        pub length: u64,
        /// Guid of the snapshot.
        pub to_guid: Guid,
    }
}

word_struct! {
    /// The end of a stream.
    pub struct End {
        /// Checksum of all before this record.
        pub checksum: [u64; 4],
        /// Guid of the snapshot.
        pub to_guid: Guid,
    }
}

/// A block whose data came earlier in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WriteByRef {
    /// Where the data belongs.
    pub range: ByteRange,
    /// Guid of the snapshot that has it already.
    pub ref_guid: Guid,
    /// In which object.
    pub ref_object: ObjectId,
    /// Where.
    pub ref_offset: ByteOffset,
    /// Checksum function of the key.
    pub checksum: u8,
    /// See [`record_flag`].
    pub flags: u8,
    /// Key of the data.
    pub key: DdtKey,
}

/// A spill block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Spill {
    /// Object.
    pub object: ObjectId,
    /// Size of the block.
    pub logical_bytes: u64,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// See [`record_flag`].
    pub flags: u8,
    /// Compression of the payload of a raw stream.
    pub compress: u8,
    /// Bytes of the payload of a raw stream, 0 for the others.
    pub compressed_bytes: u64,
    /// Encryption of the payload of a raw stream.
    pub crypt: CryptParts,
    /// Type of a raw stream's block.
    pub dmu_type: u32,
}

/// A block that was embedded in its block pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WriteEmbedded {
    /// The block's range.
    pub range: ByteRange,
    /// Compression.
    pub compress: u8,
    /// Kind of embedded data.
    pub kind: u8,
    /// Uncompressed size of the payload.
    pub logical_bytes: u32,
    /// Size of the payload before padding.
    pub physical_bytes: u32,
}

/// A range of dnodes of a raw stream: what they are encrypted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ObjectRange {
    /// First object.
    pub first: ObjectId,
    /// How many slots.
    pub slots: u64,
    /// Guid of the snapshot.
    pub to_guid: Guid,
    /// Encryption of the dnode block.
    pub crypt: CryptParts,
    /// See [`record_flag`].
    pub flags: u8,
}

/// A record without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is documented at its type.
pub enum Record {
    Begin(Begin),
    Object(Object),
    FreeObjects(FreeObjects),
    Write(Write),
    Free(ByteRange),
    End(End),
    WriteByRef(WriteByRef),
    Spill(Spill),
    WriteEmbedded(WriteEmbedded),
    ObjectRange(ObjectRange),
    /// The range was left out.
    Redact(ByteRange),
}

fn read_crypt(reader: &mut Reader<'_>) -> Result<CryptParts> {
    Ok(CryptParts { salt: reader.array()?, iv: reader.array()?, mac: reader.array()? })
}

fn write_crypt(w: &mut Writer, crypt: &CryptParts) {
    w.bytes(&crypt.salt).bytes(&crypt.iv).bytes(&crypt.mac);
}

impl Begin {
    fn read(r: &mut Reader<'_>, payload_bytes: u32) -> Result<Begin> {
        let magic = r.u64()?;
        if magic != MAGIC {
            return Err(Error::BadMagic { what: WHAT, found: magic });
        }
        let versioninfo = r.u64()?;
        let header = match versioninfo & 3 {
            1 => HeaderType::Plain,
            2 => HeaderType::Compound,
            other => return Err(Error::unsupported(WHAT, format!("header type {other}"))),
        };
        Ok(Begin {
            header,
            features: versioninfo >> 2 & ((1 << 56) - 1),
            creation_time: r.u64()?,
            objset_type: r.u32()?,
            flags: r.u32()?,
            to_guid: Guid(r.u64()?),
            from_guid: Guid(r.u64()?),
            to_name: r.bytes(NAME_BYTES)?.split(|&byte| byte == 0).next().unwrap_or_default().to_vec(),
            payload_bytes,
        })
    }

    fn write(&self, w: &mut Writer) {
        let header = match self.header {
            HeaderType::Plain => 1,
            HeaderType::Compound => 2,
        };
        w.u64s(&[MAGIC, self.features << 2 | header, self.creation_time]);
        w.u32(self.objset_type).u32(self.flags).u64(self.to_guid.get()).u64(self.from_guid.get());
        w.bytes(self.to_name.get(..NAME_BYTES - 1).unwrap_or(&self.to_name));
    }

    /// Features that OpenZFS 2.3 does not know.
    pub const fn unknown_features(&self) -> u64 {
        self.features & !feature::KNOWN
    }
}

impl Object {
    fn read(r: &mut Reader<'_>) -> Result<Object> {
        let object = ObjectId(r.u64()?);
        let (dmu_type, bonus_type, block_bytes, bonus_bytes) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let [checksum, compress, dnode_slots, flags] = r.array()?;
        let (raw_bonus_bytes, to_guid) = (r.u32()?, Guid(r.u64()?));
        let [indirect_block_shift, levels, block_pointers, ..] = r.array::<8>()?;
        Ok(Object {
            object,
            dmu_type,
            bonus_type,
            block_bytes,
            bonus_bytes,
            checksum,
            compress,
            dnode_slots,
            flags,
            raw_bonus_bytes,
            to_guid,
            indirect_block_shift,
            levels,
            block_pointers,
            max_block_id: r.u64()?,
        })
    }

    fn write(&self, w: &mut Writer) {
        w.u64(self.object.get()).u32(self.dmu_type).u32(self.bonus_type).u32(self.block_bytes);
        w.u32(self.bonus_bytes).bytes(&[self.checksum, self.compress, self.dnode_slots, self.flags]);
        w.u32(self.raw_bonus_bytes).u64(self.to_guid.get());
        w.bytes(&[self.indirect_block_shift, self.levels, self.block_pointers, 0, 0, 0, 0, 0]);
        w.u64(self.max_block_id);
    }
}

impl Write {
    fn read(r: &mut Reader<'_>) -> Result<Write> {
        let (object, dmu_type, _) = (ObjectId(r.u64()?), r.u32()?, r.u32()?);
        let [offset, logical_bytes, to_guid] = r.u64s()?;
        let [checksum, flags, compress, ..] = r.array::<8>()?;
        Ok(Write {
            object,
            dmu_type,
            offset: ByteOffset(offset),
            logical_bytes,
            to_guid: Guid(to_guid),
            checksum,
            flags,
            compress,
            key: DdtKey::read(r)?,
            compressed_bytes: r.u64()?,
            crypt: read_crypt(r)?,
        })
    }

    fn write(&self, w: &mut Writer) {
        w.u64(self.object.get()).u32(self.dmu_type).u32(0);
        w.u64s(&[self.offset.get(), self.logical_bytes, self.to_guid.get()]);
        w.bytes(&[self.checksum, self.flags, self.compress, 0, 0, 0, 0, 0]);
        self.key.write(w);
        w.u64(self.compressed_bytes);
        write_crypt(w, &self.crypt);
    }
}

impl WriteByRef {
    fn read(r: &mut Reader<'_>) -> Result<WriteByRef> {
        let range = ByteRange::read(r)?;
        let [ref_guid, ref_object, ref_offset] = r.u64s()?;
        let [checksum, flags, ..] = r.array::<8>()?;
        Ok(WriteByRef {
            range,
            ref_guid: Guid(ref_guid),
            ref_object: ObjectId(ref_object),
            ref_offset: ByteOffset(ref_offset),
            checksum,
            flags,
            key: DdtKey::read(r)?,
        })
    }

    fn write(&self, w: &mut Writer) {
        self.range.write(w);
        w.u64s(&[self.ref_guid.get(), self.ref_object.get(), self.ref_offset.get()]);
        w.bytes(&[self.checksum, self.flags, 0, 0, 0, 0, 0, 0]);
        self.key.write(w);
    }
}

impl Spill {
    fn read(r: &mut Reader<'_>) -> Result<Spill> {
        let [object, logical_bytes, to_guid] = r.u64s()?;
        let [flags, compress, ..] = r.array::<8>()?;
        Ok(Spill {
            object: ObjectId(object),
            logical_bytes,
            to_guid: Guid(to_guid),
            flags,
            compress,
            compressed_bytes: r.u64()?,
            crypt: read_crypt(r)?,
            dmu_type: r.u32()?,
        })
    }

    fn write(&self, w: &mut Writer) {
        w.u64s(&[self.object.get(), self.logical_bytes, self.to_guid.get()]);
        w.bytes(&[self.flags, self.compress, 0, 0, 0, 0, 0, 0]).u64(self.compressed_bytes);
        write_crypt(w, &self.crypt);
        w.u32(self.dmu_type);
    }
}

impl WriteEmbedded {
    fn read(r: &mut Reader<'_>) -> Result<WriteEmbedded> {
        let range = ByteRange::read(r)?;
        let [compress, kind, ..] = r.array::<8>()?;
        Ok(WriteEmbedded { range, compress, kind, logical_bytes: r.u32()?, physical_bytes: r.u32()? })
    }

    fn write(&self, w: &mut Writer) {
        self.range.write(w);
        w.bytes(&[self.compress, self.kind, 0, 0, 0, 0, 0, 0]);
        w.u32(self.logical_bytes).u32(self.physical_bytes);
    }
}

impl ObjectRange {
    fn read(r: &mut Reader<'_>) -> Result<ObjectRange> {
        let [first, slots, to_guid] = r.u64s()?;
        Ok(ObjectRange {
            first: ObjectId(first),
            slots,
            to_guid: Guid(to_guid),
            crypt: read_crypt(r)?,
            flags: r.u8()?,
        })
    }

    fn write(&self, w: &mut Writer) {
        w.u64s(&[self.first.get(), self.slots, self.to_guid.get()]);
        write_crypt(w, &self.crypt);
        w.u8(self.flags);
    }
}

impl Record {
    /// Reads a record in the byte order of its stream's `BEGIN`.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Record> {
        let mut reader = Reader::new(WHAT, bytes, order).sub(RECORD_SIZE)?;
        let r = &mut reader;
        let (kind, payload_bytes) = (r.u32()?, r.u32()?);
        Ok(match kind {
            0 => Record::Begin(Begin::read(r, payload_bytes)?),
            1 => Record::Object(Object::read(r)?),
            2 => Record::FreeObjects(FreeObjects::read(r)?),
            3 => Record::Write(Write::read(r)?),
            4 => Record::Free(ByteRange::read(r)?),
            5 => Record::End(End::read(r)?),
            6 => Record::WriteByRef(WriteByRef::read(r)?),
            7 => Record::Spill(Spill::read(r)?),
            8 => Record::WriteEmbedded(WriteEmbedded::read(r)?),
            9 => Record::ObjectRange(ObjectRange::read(r)?),
            10 => Record::Redact(ByteRange::read(r)?),
            other => return Err(Error::unsupported(WHAT, format!("record of kind {other}"))),
        })
    }

    /// The bytes in a stream, with zeros in the place of the running checksum. The name in `BEGIN` is cut to
    /// what fits.
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut writer = Writer::new(order);
        let w = &mut writer;
        let payload = if let Record::Begin(begin) = self { begin.payload_bytes } else { 0 };
        w.u32(self.kind_number()).u32(payload);
        match self {
            Record::Begin(begin) => begin.write(w),
            Record::Object(object) => object.write(w),
            Record::FreeObjects(free) => Word::write(free, w),
            Record::Write(write) => write.write(w),
            Record::Free(range) | Record::Redact(range) => Word::write(range, w),
            Record::End(end) => Word::write(end, w),
            Record::WriteByRef(write) => write.write(w),
            Record::Spill(spill) => spill.write(w),
            Record::WriteEmbedded(write) => write.write(w),
            Record::ObjectRange(range) => range.write(w),
        }
        w.zeros_to(RECORD_SIZE);
        writer.finish()
    }

    /// The number of the kind.
    pub const fn kind_number(&self) -> u32 {
        match self {
            Record::Begin(_) => 0,
            Record::Object(_) => 1,
            Record::FreeObjects(_) => 2,
            Record::Write(_) => 3,
            Record::Free(_) => 4,
            Record::End(_) => 5,
            Record::WriteByRef(_) => 6,
            Record::Spill(_) => 7,
            Record::WriteEmbedded(_) => 8,
            Record::ObjectRange(_) => 9,
            Record::Redact(_) => 10,
        }
    }

    /// Bytes of the payload that follows.
    pub const fn payload_bytes(&self) -> u64 {
        const fn padded(bytes: u32) -> u64 {
            (bytes as u64).next_multiple_of(8)
        }
        match self {
            Record::Begin(begin) => begin.payload_bytes as u64,
            Record::Object(object) if object.raw_bonus_bytes != 0 => object.raw_bonus_bytes as u64,
            Record::Object(object) => padded(object.bonus_bytes),
            Record::Write(write) if write.compress != 0 => write.compressed_bytes,
            Record::Write(write) => write.logical_bytes,
            Record::Spill(spill) if spill.compressed_bytes != 0 => spill.compressed_bytes,
            Record::Spill(spill) => spill.logical_bytes,
            Record::WriteEmbedded(write) => padded(write.physical_bytes),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
