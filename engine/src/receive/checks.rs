//! What records may say: everything that an object must be so that it can be written.
//!
//! Source of the facts: OpenZFS 2.4 `dmu_recv.c` (`recv_check_*`).

use ondisk::ObjectId;
use ondisk::blkptr::{Blkptr, ChecksumType, CompressType, LARGE_BLOCK_BYTES, MAX_BLOCK_SIZE};
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODE_CORE_SIZE, DNODE_MIN_SIZE, DNODES_PER_BLOCK, Dnode, MAX_OBJECT};
use ondisk::send::{ByteRange, Object, ObjectRange, Spill, Write, WriteEmbedded, feature, record_flag};

use crate::error::{Error, Result};

/// log2 of the sizes that indirect blocks have.
const INDIRECT_SHIFTS: std::ops::RangeInclusive<u8> = 12..=17;
/// Most bytes that a block pointer has embedded.
const MAX_EMBEDDED_BYTES: u32 = 112;

fn invalid<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(text.into()))
}

/// An object number that a dataset can have.
pub(super) fn object_number(id: ObjectId) -> Result<()> {
    match id.is_none() || id.get() >= MAX_OBJECT {
        true => invalid(format!("object number {id}")),
        false => Ok(()),
    }
}

/// The type of something in a dataset. Blocks of these types count what they hold, or are no objects'.
fn dmu_type(raw: u32) -> Result<DmuType> {
    let known = u8::try_from(raw).ok().and_then(|raw| DmuType::from_raw(raw).ok());
    match known {
        Some(DmuType::DNODE | DmuType::OBJSET | DmuType::INTENT_LOG) | None => {
            invalid(format!("an object of type {raw}"))
        }
        Some(dmu_type) => Ok(dmu_type),
    }
}

fn block_bytes(bytes: u64, features: u64) -> Result<u32> {
    let most = match features & feature::LARGE_BLOCKS {
        0 => LARGE_BLOCK_BYTES,
        _ => MAX_BLOCK_SIZE,
    };
    match u32::try_from(bytes) {
        Ok(fits) if bytes != 0 && bytes <= most && bytes.is_multiple_of(512) => Ok(fits),
        _ => invalid(format!("a block of {bytes} bytes, and {most} are the most")),
    }
}

/// An object as a record describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Described {
    pub dmu_type: DmuType,
    pub bonus_type: DmuType,
    pub block_bytes: u32,
    pub slots: u8,
    pub has_spill: bool,
}

impl Described {
    /// Block pointers of its dnode.
    pub fn pointers(&self, bonus_bytes: usize) -> usize {
        pointers(self.bonus_type, bonus_bytes, self.slots)
    }
}

/// Block pointers of a dnode.
pub(super) fn pointers(bonus_type: DmuType, bonus_bytes: usize, slots: u8) -> usize {
    if bonus_type == DmuType::SA {
        return 1;
    }
    (1 + (bonus_capacity(slots).saturating_sub(bonus_bytes) >> Blkptr::SHIFT)).min(3)
}

/// Bytes of the bonus area of a dnode with one block pointer.
pub(super) fn bonus_capacity(slots: u8) -> usize {
    (usize::from(slots) * DNODE_MIN_SIZE).saturating_sub(DNODE_CORE_SIZE + Blkptr::SIZE)
}

/// What `OBJECT` says, as far as it can be.
pub(super) fn object(object: &Object, features: u64, tells_spill: bool) -> Result<Described> {
    if object.flags & !record_flag::OBJECT_SPILL != 0 || object.raw_bonus_bytes != 0 {
        return invalid("a part of a raw stream in a plain one");
    }
    if object.indirect_block_shift != 0 || object.levels != 0 || object.block_pointers != 0 {
        return invalid("a part of a raw stream in a plain one");
    }
    any_object(object, features, tells_spill)
}

/// The functions that were chosen for an object.
pub(super) fn functions(object: &Object) -> Result<(ChecksumType, CompressType)> {
    match (ChecksumType::from_raw(object.checksum), CompressType::from_raw(object.compress)) {
        (Ok(checksum), Ok(compress)) => Ok((checksum, compress)),
        _ => invalid(format!("checksum {} and compression {}", object.checksum, object.compress)),
    }
}

/// What `OBJECT` of a raw stream says, as far as it can be.
pub(super) fn raw_object(object: &Object, features: u64, tells_spill: bool) -> Result<Described> {
    if object.flags & !(record_flag::OBJECT_SPILL | record_flag::RAW_BYTESWAP) != 0 {
        return invalid(format!("an object with the flags {:#x}", object.flags));
    }
    if object.flags & record_flag::RAW_BYTESWAP != 0 {
        return Err(Error::Unsupported(
            "raw objects of big-endian machines cannot be received by this version".to_owned(),
        ));
    }
    let described = any_object(object, features, tells_spill)?;
    let (levels, shift) = (object.levels, object.indirect_block_shift);
    if levels == 0 || levels > Dnode::MAX_LEVELS || !INDIRECT_SHIFTS.contains(&shift) {
        return invalid(format!("an object of {levels} levels with indirect blocks of 2^{shift} bytes"));
    }
    let pointers = described.pointers(object.bonus_bytes as usize);
    if usize::from(object.block_pointers) != pointers {
        return invalid(format!("{} block pointers, and there must be {pointers}", object.block_pointers));
    }
    let below = (u32::from(shift) - Blkptr::SHIFT).saturating_mul(u32::from(levels) - 1);
    if object.max_block_id.checked_shr(below).unwrap_or(0) >= pointers as u64 {
        return invalid(format!("block {} is not below {pointers} pointers", object.max_block_id));
    }
    let end =
        object.max_block_id.checked_add(1).and_then(|end| end.checked_mul(described.block_bytes.into()));
    if end.is_none() || object.max_block_id > 0 && !described.block_bytes.is_power_of_two() {
        let (last, bytes) = (object.max_block_id, described.block_bytes);
        return invalid(format!("a last block {last} of {bytes} bytes"));
    }
    let spill = if described.has_spill { Blkptr::SIZE } else { 0 };
    let room = bonus_capacity(described.slots).saturating_sub(((pointers - 1) << Blkptr::SHIFT) + spill);
    if object.raw_bonus_bytes < object.bonus_bytes || object.raw_bonus_bytes as usize > room {
        let (raw, bonus) = (object.raw_bonus_bytes, object.bonus_bytes);
        return invalid(format!("an area of {raw} bytes for a bonus of {bonus}, where {room} fit"));
    }
    Ok(described)
}

/// What `OBJECT_RANGE` says, as far as it can be.
pub(super) fn object_range(range: &ObjectRange) -> Result<()> {
    if range.flags & record_flag::RAW_BYTESWAP != 0 {
        return Err(Error::Unsupported(
            "raw objects of big-endian machines cannot be received by this version".to_owned(),
        ));
    }
    let (first, slots) = (range.first.get(), range.slots);
    match slots == DNODES_PER_BLOCK && first.is_multiple_of(slots) && first < MAX_OBJECT {
        true => Ok(()),
        false => invalid(format!("a range of {slots} objects from {first} on")),
    }
}

/// What `WRITE` of a raw stream says, as far as it can be. Gives the compression of its payload.
pub(super) fn raw_write(write: &Write, features: u64) -> Result<CompressType> {
    object_number(write.object)?;
    dmu_type(write.dmu_type)?;
    block_bytes(write.logical_bytes, features)?;
    if write.offset.get().checked_add(write.logical_bytes).is_none() {
        return invalid("a block beyond 2^64");
    }
    stored(write.compress, (write.compressed_bytes, write.logical_bytes), features)
}

/// What `SPILL` of a raw stream says, as far as it can be. Gives the compression of its payload.
pub(super) fn raw_spill(spill: &Spill, features: u64) -> Result<CompressType> {
    block_bytes(spill.logical_bytes, features)?;
    stored(spill.compress, (spill.compressed_bytes, spill.logical_bytes), features)
}

/// A block as it is stored, in so many bytes of so many.
fn stored(compress: u8, (stored, logical): (u64, u64), features: u64) -> Result<CompressType> {
    let compress = compression(compress, features)?;
    let is_whole = compress == CompressType::Off;
    if stored == 0 || stored > logical || !stored.is_multiple_of(512) || is_whole && stored != logical {
        return invalid(format!("a block of {logical} bytes that is stored in {stored}"));
    }
    Ok(compress)
}

fn any_object(object: &Object, features: u64, tells_spill: bool) -> Result<Described> {
    object_number(object.object)?;
    let dmu_type_of = dmu_type(object.dmu_type)?;
    if dmu_type_of == DmuType::NONE {
        return invalid("an object of no type");
    }
    let bonus_type = dmu_type(object.bonus_type)?;
    let block_bytes = block_bytes(object.block_bytes.into(), features)?;
    let slots = object.dnode_slots.max(1);
    let slot = object.object.get() % DNODES_PER_BLOCK;
    if slot + u64::from(slots) > DNODES_PER_BLOCK {
        return invalid(format!("object {} of {slots} slots leaves its block", object.object));
    }
    if slots > 1 && features & feature::LARGE_DNODE == 0 {
        return invalid(format!("object {} of {slots} slots, in a stream without such", object.object));
    }
    functions(object)?;
    let has_spill = object.flags & record_flag::OBJECT_SPILL != 0;
    if has_spill && !tells_spill {
        return invalid("a spill block in a stream that does not tell them");
    }
    let described = Described { dmu_type: dmu_type_of, bonus_type, block_bytes, slots, has_spill };
    let spill = if has_spill { Blkptr::SIZE } else { 0 };
    let bonus = object.bonus_bytes as usize;
    let used = bonus.saturating_add(spill).saturating_add((described.pointers(bonus) - 1) << Blkptr::SHIFT);
    match used > bonus_capacity(slots) {
        true => invalid(format!("a bonus of {bonus} bytes in {slots} slots")),
        false => Ok(described),
    }
}

/// What `WRITE` says, as far as it can be. Gives the compression of its payload.
pub(super) fn write(write: &Write, features: u64) -> Result<CompressType> {
    object_number(write.object)?;
    dmu_type(write.dmu_type)?;
    block_bytes(write.logical_bytes, features)?;
    if write.offset.get().checked_add(write.logical_bytes).is_none() {
        return invalid("a block beyond 2^64");
    }
    if write.compress == 0 {
        return match write.compressed_bytes {
            0 => Ok(CompressType::Off),
            _ => invalid("a compressed size of an uncompressed block"),
        };
    }
    if features & feature::COMPRESSED == 0 {
        return invalid("a compressed block in a stream without such");
    }
    if write.compressed_bytes == 0 || write.compressed_bytes > write.logical_bytes {
        return invalid(format!("{} bytes in {}", write.logical_bytes, write.compressed_bytes));
    }
    compression(write.compress, features)
}

fn compression(raw: u8, features: u64) -> Result<CompressType> {
    let missing = |name: &str| invalid(format!("{name} in a stream without it"));
    match CompressType::from_raw(raw) {
        Ok(CompressType::Zstd) if features & feature::ZSTD == 0 => missing("zstd"),
        Ok(CompressType::Lz4) if features & feature::LZ4 == 0 => missing("lz4"),
        Ok(CompressType::Inherit | CompressType::On | CompressType::Empty) | Err(_) => {
            invalid(format!("compression {raw}"))
        }
        Ok(known) => Ok(known),
    }
}

/// What `WRITE_EMBEDDED` says, as far as it can be. Gives the compression of its payload.
pub(super) fn embedded(write: &WriteEmbedded, features: u64) -> Result<CompressType> {
    object_number(write.range.object)?;
    if features & feature::EMBED_DATA == 0 {
        return invalid("an embedded block in a stream without such");
    }
    block_bytes(write.range.length, features)?;
    if write.range.offset.get().checked_add(write.range.length).is_none() {
        return invalid("a block beyond 2^64");
    }
    let fits = u64::from(write.logical_bytes) <= write.range.length
        && write.physical_bytes <= MAX_EMBEDDED_BYTES
        && write.physical_bytes <= write.logical_bytes;
    if write.kind != 0 || !fits {
        let (logical, physical) = (write.logical_bytes, write.physical_bytes);
        return invalid(format!("an embedded block of kind {}, {logical} bytes in {physical}", write.kind));
    }
    match write.compress {
        0 => Ok(CompressType::Off),
        raw => compression(raw, features),
    }
}

/// What `FREE` says, as far as it can be.
pub(super) fn range(range: &ByteRange) -> Result<()> {
    object_number(range.object)?;
    match range.length != u64::MAX && range.offset.get().checked_add(range.length).is_none() {
        true => invalid("a range beyond 2^64"),
        false => Ok(()),
    }
}

/// The size of a spill block.
pub(super) fn spill_bytes(bytes: u64, features: u64) -> Result<u32> {
    block_bytes(bytes, features)
}
