//! Block pointers: where a block is, how big it is, how it was transformed, and its checksum.
//!
//! A block pointer is 16 words of 64 bits. Three shapes share them, told apart by the property word:
//!
//! | word | regular | encrypted (X, level 0, encrypted type) | embedded (E) |
//! |---|---|---|---|
//! | 0-1 | DVA 0 | DVA 0 | payload |
//! | 2-3 | DVA 1 | DVA 1 | payload |
//! | 4-5 | DVA 2 | salt; first 8 bytes of the IV | payload |
//! | 6 | properties | properties | properties |
//! | 7 | zero, but for bit 63, R: rewritten | as regular | payload |
//! | 8 | zero | zero | payload |
//! | 9 | physical birth txg, 0 if equal to the logical | as regular | payload |
//! | 10 | logical birth txg | as regular | logical birth txg |
//! | 11 | fill count | low half: fill count, high half: last 4 bytes of the IV | payload |
//! | 12-15 | checksum | 12-13 checksum, 14-15 MAC | payload |
//!
//! DVA (data virtual address):
//!
//! | word | bits | name | meaning |
//! |---|---|---|---|
//! | 0 | 0-23 | asize | allocated sectors of 512 bytes, 0: no address here |
//! | 0 | 32-55 | vdev | top-level vdev |
//! | 1 | 0-62 | offset | in sectors of 512 bytes after the front labels |
//! | 1 | 63 | G | the address is of a gang header |
//!
//! Property word:
//!
//! | bits | regular | embedded |
//! |---|---|---|
//! | 0-15 | lsize in sectors, minus one | 0-24: lsize in bytes, minus one |
//! | 16-31 | psize in sectors, minus one | 25-31: psize in bytes, minus one |
//! | 32-38 | compression | compression |
//! | 39 | E: 0 | E: 1 |
//! | 40-47 | checksum function | kind of payload |
//! | 48-55 | object type | object type |
//! | 56-60 | level | level |
//! | 61 | X: encrypted, authenticated, or indirect with a MAC of MACs | 0 |
//! | 62 | D: deduplicated | 0 |
//! | 63 | B: byte order of the block, 1 is little endian | byte order of the writer |
//!
//! # Births
//! The *logical* birth is the group in which a block got its contents, the *physical* birth the group in
//! which the bytes were written where they are. They differ for three kinds of blocks:
//!
//! | block | physical birth | the pointer took its space in ([`Blkptr::birth`]) |
//! |---|---|---|
//! | deduplicated or cloned | earlier | its logical birth |
//! | moved by a device removal, and pointed to anew | later | its logical birth |
//! | rewritten in place of itself (R) | later | its physical birth |
//!
//! What has the space (deadlists, livelists, snapshots, walks that claim) goes by [`Blkptr::birth`]; what has
//! the contents (send streams, holes) by the logical birth; what has the bytes on the devices (cache,
//! resilver, checksums of gang headers) by the physical one.
//!
//! A pointer whose first DVA is all zero is a hole: it reads as zeros, and keeps its logical birth if it was
//! ever written. A [`Blkptr`] that parsed has a known type, compression and checksum function, sizes of at
//! most 16 MiB and addresses that do not overflow; whether an address lies inside its vdev only the pool can
//! say.
//!
//! Source: OpenZFS 2.4 `spa.h`, `blkptr.c`, `zio.c` (verification), `zio_crypt.c` (encrypted form).

use std::fmt;

use crate::dmu::DmuType;
use crate::{Asize, ByteOffset, ByteOrder, Error, Level, Lsize, Psize, Reader, Result, Txg, VdevId, Writer};

mod build;
mod functions;

pub use build::{BlkptrParts, CryptParts, embed, hole};
pub use functions::{ChecksumType, CompressType};

/// log2 of the smallest sector and of the unit of sizes in block pointers.
pub const MIN_BLOCK_SHIFT: u32 = 9;
/// Largest block.
pub const MAX_BLOCK_SIZE: u64 = 1 << 24;
/// Blocks with more bytes need the feature `large_blocks` (`SPA_OLD_MAXBLOCKSIZE`).
pub const LARGE_BLOCK_BYTES: u64 = 128 << 10;
/// Smallest size of a gang header: what it is in pools without the feature `dynamic_gang_header`, whatever
/// the sector size of the vdev.
pub const GANG_HEADER_SIZE: usize = 512;
/// Bytes of the trailer of a gang header: magic and checksum.
const GANG_TRAILER_SIZE: usize = 40;

/// How many block pointers a gang header of so many bytes has room for.
pub const fn gang_pointers(header_bytes: usize) -> usize {
    header_bytes.saturating_sub(GANG_TRAILER_SIZE) / Blkptr::SIZE
}

/// Bytes that an embedded block pointer can hold.
pub const EMBEDDED_PAYLOAD_MAX: usize = 14 * 8;

const PROPERTIES: usize = 6;
const MORE_PROPERTIES: usize = 7;
const PHYSICAL_BIRTH: usize = 9;
const LOGICAL_BIRTH: usize = 10;
const FILL: usize = 11;
const CHECKSUM: usize = 12;

/// Data virtual address: one copy of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dva {
    /// Top-level vdev.
    pub vdev: VdevId,
    /// Offset after the front labels of the vdev, a multiple of 512.
    pub offset: ByteOffset,
    /// Space allocated there; for a gang, its members included. A multiple of 512.
    pub asize: Asize,
    /// A gang header stands there instead of the block.
    pub gang: bool,
}

impl Dva {
    /// Takes apart the two words; `None` when they hold no address.
    pub fn from_words(words: [u64; 2]) -> Result<Option<Dva>> {
        let asize = bits(words[0], 0, 24) << MIN_BLOCK_SHIFT;
        if asize == 0 {
            return Ok(None);
        }
        let sector = bits(words[1], 0, 63);
        if sector >> (64 - MIN_BLOCK_SHIFT) != 0 {
            return Err(Error::invalid("DVA", format!("offset of {sector:#x} sectors overflows")));
        }
        Ok(Some(Dva {
            vdev: VdevId(bits(words[0], 32, 24) as u32),
            offset: ByteOffset(sector << MIN_BLOCK_SHIFT),
            asize: Asize(asize),
            gang: words[1] >> 63 != 0,
        }))
    }

    /// The two words.
    pub fn to_words(&self) -> Result<[u64; 2]> {
        let asize = field("DVA asize", sectors(self.asize.0)?, 24)?;
        let vdev = field("DVA vdev", self.vdev.0.into(), 24)?;
        let offset = sectors(self.offset.0)?;
        Ok([asize | vdev << 32, offset | u64::from(self.gang) << 63])
    }
}

impl fmt::Display for Dva {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:x}:{:x}", self.vdev, self.offset, self.asize)
    }
}

/// The kind of payload in an embedded block pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EmbeddedType {
    /// The block itself, compressed as the pointer says.
    Data = 0,
    /// Never written by a release.
    Reserved = 1,
    /// Nothing: the block was left out of a redacted send stream.
    Redacted = 2,
}

/// The block that an embedded block pointer holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Embedded {
    /// Kind of payload.
    pub kind: EmbeddedType,
    /// Size after decompression.
    pub lsize: Lsize,
    /// Compressed size: length of [`Embedded::bytes`].
    pub psize: Psize,
    /// Compression of the payload.
    pub compress: CompressType,
    payload: [u8; EMBEDDED_PAYLOAD_MAX],
}

impl Embedded {
    /// The payload, still compressed.
    pub fn bytes(&self) -> &[u8] {
        let length = self.psize.0 as usize;
        self.payload.get(..length).unwrap_or(&self.payload)
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Embedded({:?} {} {}/{})", self.kind, self.compress, self.lsize, self.psize)
    }
}

/// The meaning of the X bit of a block pointer for its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protection {
    /// No MAC.
    None,
    /// The block is encrypted; the MAC authenticates it.
    Encrypted,
    /// The block is in clear; the MAC authenticates it.
    Authenticated,
    /// An indirect block: the MAC words are a hash of the MACs below.
    IndirectMac,
}

/// A well-formed block pointer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blkptr {
    words: [u64; 16],
}

impl Blkptr {
    /// Bytes on disk.
    pub const SIZE: usize = 128;
    /// log2 of [`Blkptr::SIZE`].
    pub const SHIFT: u32 = 7;
    /// A block that was never written.
    pub const HOLE: Blkptr = Blkptr { words: [0; 16] };

    /// Parses 128 bytes that stand in a block of byte order `order`.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Blkptr> {
        Blkptr::read(&mut Reader::new("block pointer", bytes, order))
    }

    /// Reads a block pointer from a cursor.
    pub fn read(reader: &mut Reader<'_>) -> Result<Blkptr> {
        Blkptr::from_words(reader.u64s()?)
    }

    /// Checks 16 words in host order.
    pub fn from_words(words: [u64; 16]) -> Result<Blkptr> {
        let bp = Blkptr { words };
        let properties = words[PROPERTIES];
        DmuType::from_raw(bits(properties, 48, 8) as u8)?;
        CompressType::from_raw(bits(properties, 32, 7) as u8)?;
        if bp.is_embedded() {
            let kind = bits(properties, 40, 8);
            if kind > EmbeddedType::Redacted as u64 {
                return Err(Error::unsupported("embedded block pointer", format!("kind {kind}")));
            }
            check_size("embedded lsize", bp.lsize().0, MAX_BLOCK_SIZE)?;
            check_size("embedded psize", bits(properties, 25, 7) + 1, EMBEDDED_PAYLOAD_MAX as u64)?;
            return Ok(bp);
        }
        check_size("block pointer lsize", bp.lsize().0, MAX_BLOCK_SIZE)?;
        if bp.is_hole() {
            return Ok(bp);
        }
        check_size("block pointer psize", bp.psize().0, MAX_BLOCK_SIZE)?;
        ChecksumType::from_raw(bits(properties, 40, 8) as u8)?;
        for index in 0..bp.dva_slots() {
            let dva = Dva::from_words(bp.dva_words(index))?;
            if index == 0 && dva.is_none() {
                return Err(Error::invalid("block pointer", "neither a hole nor an address"));
            }
        }
        Ok(bp)
    }

    /// 128 bytes of a block of byte order `order` that [`Blkptr::parse`] accepted before: the caller has kept
    /// the bytes unchanged since then. `None` when they are fewer.
    pub fn of_parsed_bytes(bytes: &[u8], order: ByteOrder) -> Option<Blkptr> {
        let bytes: &[u8; Blkptr::SIZE] = bytes.first_chunk()?;
        let mut words = [0; 16];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = order.u64(*chunk);
        }
        debug_assert!(Blkptr::from_words(words).is_ok(), "it was parsed before");
        Some(Blkptr { words })
    }

    /// The 16 words in host order.
    pub const fn words(&self) -> &[u64; 16] {
        &self.words
    }

    /// The 128 bytes, for a block of byte order `order`.
    pub fn encode(&self, order: ByteOrder) -> [u8; Blkptr::SIZE] {
        let mut bytes = [0; Blkptr::SIZE];
        for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words) {
            *chunk = order.u64_bytes(word);
        }
        bytes
    }

    /// Appends the block pointer to an output.
    pub fn write(&self, writer: &mut Writer) {
        writer.u64s(&self.words);
    }

    /// Never written or punched out: reads as zeros.
    pub const fn is_hole(&self) -> bool {
        !self.is_embedded() && self.words[0] == 0 && self.words[1] == 0
    }

    /// The block stands inside the pointer.
    pub const fn is_embedded(&self) -> bool {
        self.words[PROPERTIES] >> 39 & 1 != 0
    }

    /// The block was left out of a redacted send stream, reading it is an error.
    pub const fn is_redacted(&self) -> bool {
        self.is_embedded() && bits(self.words[PROPERTIES], 40, 8) == EmbeddedType::Redacted as u64
    }

    /// The block inside the pointer, if it is there.
    pub fn embedded(&self) -> Option<Embedded> {
        if !self.is_embedded() {
            return None;
        }
        let kind = match bits(self.words[PROPERTIES], 40, 8) {
            0 => EmbeddedType::Data,
            1 => EmbeddedType::Reserved,
            _ => EmbeddedType::Redacted,
        };
        let mut payload = [0; EMBEDDED_PAYLOAD_MAX];
        // The payload fills words from their low byte up, in whatever order the block stands on disk.
        let words = self.words.iter().enumerate().filter(|(index, _)| is_payload_word(*index));
        for (chunk, (_, word)) in payload.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        Some(Embedded {
            kind,
            lsize: Lsize(bits(self.words[PROPERTIES], 0, 25) + 1),
            psize: Psize(bits(self.words[PROPERTIES], 25, 7) + 1),
            compress: self.compress(),
            payload,
        })
    }

    /// The first address is of a gang header.
    pub const fn is_gang(&self) -> bool {
        !self.is_embedded() && self.words[1] >> 63 != 0
    }

    /// How many of the DVA places hold addresses (the rest is payload, salt and IV).
    const fn dva_slots(&self) -> usize {
        if self.is_embedded() {
            0
        } else if matches!(self.protection_bits(), (true, true)) && self.type_is_encrypted() {
            2
        } else {
            3
        }
    }

    /// (X bit, level 0)
    const fn protection_bits(&self) -> (bool, bool) {
        (self.words[PROPERTIES] >> 61 & 1 != 0, bits(self.words[PROPERTIES], 56, 5) == 0)
    }

    const fn type_is_encrypted(&self) -> bool {
        DmuType::raw_is_encrypted(bits(self.words[PROPERTIES], 48, 8) as u8)
    }

    fn dva_words(&self, index: usize) -> [u64; 2] {
        match self.words.get(index * 2..index * 2 + 2) {
            Some(&[first, second]) => [first, second],
            _ => [0; 2],
        }
    }

    /// The address in place `index` (0 to 2), if one is there.
    pub fn dva(&self, index: usize) -> Option<Dva> {
        if index >= self.dva_slots() {
            return None;
        }
        Dva::from_words(self.dva_words(index)).ok().flatten()
    }

    /// The addresses of the copies; none for holes and embedded blocks.
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + '_ {
        (0..3).filter_map(|index| self.dva(index))
    }

    /// Number of copies.
    pub fn copies(&self) -> usize {
        self.dvas().count()
    }

    /// Space allocated for all copies.
    pub fn asize(&self) -> Asize {
        Asize(self.dvas().map(|dva| dva.asize.0).sum())
    }

    /// Logical size. For a redacted block 0, as OpenZFS counts it.
    pub const fn lsize(&self) -> Lsize {
        let properties = self.words[PROPERTIES];
        if !self.is_embedded() {
            Lsize((bits(properties, 0, 16) + 1) << MIN_BLOCK_SHIFT)
        } else if bits(properties, 40, 8) == EmbeddedType::Data as u64 {
            Lsize(bits(properties, 0, 25) + 1)
        } else {
            Lsize(0)
        }
    }

    /// Physical size on disk: 0 for an embedded block.
    pub const fn psize(&self) -> Psize {
        if self.is_embedded() {
            Psize(0)
        } else {
            Psize((bits(self.words[PROPERTIES], 16, 16) + 1) << MIN_BLOCK_SHIFT)
        }
    }

    /// Compression of the block.
    pub fn compress(&self) -> CompressType {
        CompressType::from_raw(bits(self.words[PROPERTIES], 32, 7) as u8).unwrap_or(CompressType::Off)
    }

    /// Checksum function; off for holes and embedded blocks.
    pub fn checksum_type(&self) -> ChecksumType {
        if self.is_embedded() || self.is_hole() {
            return ChecksumType::Off;
        }
        ChecksumType::from_raw(bits(self.words[PROPERTIES], 40, 8) as u8).unwrap_or(ChecksumType::Off)
    }

    /// The four words of the checksum in host order. Under [`Protection`] other than `None` the last two are
    /// the MAC (except for object sets, whose MACs are inside them).
    pub const fn checksum(&self) -> [u64; 4] {
        [self.words[CHECKSUM], self.words[CHECKSUM + 1], self.words[CHECKSUM + 2], self.words[CHECKSUM + 3]]
    }

    /// Type of the object that the block belongs to.
    pub fn dmu_type(&self) -> DmuType {
        DmuType::from_raw(bits(self.words[PROPERTIES], 48, 8) as u8).unwrap_or(DmuType::NONE)
    }

    /// Level in the block tree: 0 is data.
    pub const fn level(&self) -> Level {
        Level(bits(self.words[PROPERTIES], 56, 5) as i8)
    }

    /// Indirect block, or data of a metadata object.
    pub fn is_metadata(&self) -> bool {
        self.level() > Level::DATA || self.dmu_type().is_metadata()
    }

    /// The block is (or was, when written) referenced from the dedup table.
    pub const fn is_dedup(&self) -> bool {
        self.words[PROPERTIES] >> 62 & 1 != 0
    }

    /// Byte order of the block that this points to.
    pub const fn byte_order(&self) -> ByteOrder {
        if self.words[PROPERTIES] >> 63 != 0 { ByteOrder::Little } else { ByteOrder::Big }
    }

    /// Txg in which the block became part of its object.
    pub const fn logical_birth(&self) -> Txg {
        Txg(self.words[LOGICAL_BIRTH])
    }

    /// Txg in which the bytes were written; earlier than the logical birth for dedup and cloned blocks. 0 for
    /// embedded blocks.
    pub const fn physical_birth(&self) -> Txg {
        if self.is_embedded() {
            Txg(0)
        } else if self.words[PHYSICAL_BIRTH] != 0 {
            Txg(self.words[PHYSICAL_BIRTH])
        } else {
            Txg(self.words[LOGICAL_BIRTH])
        }
    }

    /// The block was written anew with the contents that it had, and keeps its logical birth (the feature
    /// `physical_rewrite`).
    pub const fn is_rewritten(&self) -> bool {
        !self.is_embedded() && self.words[MORE_PROPERTIES] >> 63 != 0
    }

    /// Txg in which the space of the block became this pointer's (`BP_GET_BIRTH`): a snapshot of an earlier
    /// group cannot have it.
    pub const fn birth(&self) -> Txg {
        if self.is_rewritten() { self.physical_birth() } else { self.logical_birth() }
    }

    /// Number of non-hole blocks below and including this one; for dnode blocks, of allocated dnodes.
    pub fn fill(&self) -> u64 {
        match self.protection() {
            Protection::Encrypted => bits(self.words[FILL], 0, 32),
            _ if self.is_embedded() => 1,
            _ => self.words[FILL],
        }
    }

    /// The X bit as it stands.
    pub const fn uses_crypt(&self) -> bool {
        !self.is_embedded() && self.protection_bits().0
    }

    /// The meaning of the X bit here.
    pub const fn protection(&self) -> Protection {
        if !self.uses_crypt() {
            return Protection::None;
        }
        match (self.protection_bits().1, self.type_is_encrypted()) {
            (false, _) => Protection::IndirectMac,
            (true, true) => Protection::Encrypted,
            (true, false) => Protection::Authenticated,
        }
    }

    /// Salt from which the key of an encrypted block is derived; zeros for others.
    pub fn salt(&self) -> [u8; 8] {
        match self.protection() {
            Protection::Encrypted => self.byte_order().u64_bytes(self.words[4]),
            _ => [0; 8],
        }
    }

    /// IV of an encrypted block; zeros for others.
    pub fn iv(&self) -> [u8; 12] {
        let mut iv = [0; 12];
        if self.protection() == Protection::Encrypted {
            let (first, last) = iv.split_at_mut(8);
            first.copy_from_slice(&self.byte_order().u64_bytes(self.words[5]));
            last.copy_from_slice(&self.byte_order().u32_bytes(bits(self.words[FILL], 32, 32) as u32));
        }
        iv
    }

    /// What an encrypted block has in the place of the third address: its salt and most of its IV. That is
    /// all a dedup table keeps of them.
    pub fn salt_and_iv_words(&self) -> Option<[u64; 2]> {
        (self.protection() == Protection::Encrypted).then(|| self.dva_words(2))
    }

    /// MAC of a block under [`Protection`]; zeros for object sets, which hold theirs, and for unprotected
    /// blocks.
    pub fn mac(&self) -> [u8; 16] {
        let mut mac = [0; 16];
        // A hole keeps no X bit but contributes its (zero) words to the MAC of its parent.
        if self.dmu_type() != DmuType::OBJSET && (self.uses_crypt() || self.is_hole()) {
            let (first, last) = mac.split_at_mut(8);
            first.copy_from_slice(&self.byte_order().u64_bytes(self.words[CHECKSUM + 2]));
            last.copy_from_slice(&self.byte_order().u64_bytes(self.words[CHECKSUM + 3]));
        }
        mac
    }
}

impl Default for Blkptr {
    fn default() -> Blkptr {
        Blkptr::HOLE
    }
}

impl fmt::Debug for Blkptr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blkptr({self})")
    }
}

/// One line in the form that `zdb` prints.
impl fmt::Display for Blkptr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, ty, birth) = (self.level(), self.dmu_type(), self.logical_birth());
        if self.is_hole() {
            return write!(f, "HOLE [L{level} {ty}] size={:x}L birth={birth}L", self.lsize());
        }
        if let Some(embedded) = self.embedded() {
            return write!(
                f,
                "EMBEDDED [L{level} {ty}] et={} {} size={:x}L/{:x}P birth={birth}L",
                embedded.kind as u8, embedded.compress, embedded.lsize, embedded.psize
            );
        }
        for (index, dva) in self.dvas().enumerate() {
            write!(f, "DVA[{index}]=<{dva}> ")?;
        }
        let protection = match self.protection() {
            Protection::None => "unencrypted",
            Protection::Encrypted => {
                let iv2 = bits(self.words[FILL], 32, 32);
                write!(f, "salt={:x} iv={:x}:{iv2:x} ", self.words[4], self.words[5])?;
                "encrypted"
            }
            Protection::Authenticated => "authenticated",
            Protection::IndirectMac => "indirect-MAC",
        };
        let [c0, c1, c2, c3] = self.checksum();
        write!(
            f,
            "[L{level} {ty}] {} {} {protection} {} {} {} {} size={:x}L/{:x}P birth={birth}L/{}P fill={} \
             cksum={c0:016x}:{c1:016x}:{c2:016x}:{c3:016x}",
            self.checksum_type(),
            self.compress(),
            if self.byte_order() == ByteOrder::Big { "BE" } else { "LE" },
            if self.is_gang() { "gang" } else { "contiguous" },
            if self.is_dedup() { "dedup" } else { "unique" },
            ["zero", "single", "double", "triple"].get(self.copies()).unwrap_or(&"zero"),
            self.lsize(),
            self.psize(),
            self.physical_birth(),
            self.fill(),
        )
    }
}

const fn is_payload_word(index: usize) -> bool {
    index != PROPERTIES && index != LOGICAL_BIRTH
}

const fn bits(word: u64, low: u32, length: u32) -> u64 {
    word >> low & ((1 << length) - 1)
}

fn field(what: &'static str, value: u64, length: u32) -> Result<u64> {
    if value >> length != 0 {
        return Err(Error::invalid(what, format!("{value:#x} does not fit {length} bits")));
    }
    Ok(value)
}

fn sectors(bytes: u64) -> Result<u64> {
    if !bytes.is_multiple_of(1 << MIN_BLOCK_SHIFT) {
        return Err(Error::invalid("block pointer", format!("{bytes} is not a multiple of 512")));
    }
    Ok(bytes >> MIN_BLOCK_SHIFT)
}

fn check_size(what: &'static str, size: u64, limit: u64) -> Result<()> {
    if size > limit {
        return Err(Error::invalid(what, format!("{size} bytes, more than {limit}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
