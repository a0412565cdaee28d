//! From a block's bytes to its form on the devices: a hole, an embedded block, or compressed bytes with their
//! checksum.
//!
//! Pure functions on plain data, so that a batch can be spread over threads.
//!
//! # The rules
//! - LZ4 of an indirect block compares pointers with each other, without a search.
//! - A block of zeroes is a hole, unless compression is off and the block is not deduplicated.
//! - Compression must save an eighth of the block, in whole units of allocation, or the block is stored as it
//!   is.
//! - A block that came compressed, with a stream, is stored as it came, whatever compression is asked for:
//!   the bytes were found to decompress to the block when they came (OpenZFS: `ZIO_FLAG_RAW_COMPRESS`).
//! - A block of an encrypted object set is sealed after it is compressed ([`super::seal`]).
//! - A block that came sealed, with a raw stream, is stored as it came: size, compression, salt, IV and MAC
//!   are those of its sender, whatever is asked for (OpenZFS: `ZIO_FLAG_RAW`).
//! - A block that compresses to at most 112 bytes is embedded in its pointer where the caller allows it:
//!   level 0, no dnodes, no object sets.
//! - A block that replaces one of the same group, with a checksum in its pointer, keeps the place whenever it
//!   fits: it is padded to the size of its predecessor. The sync of a group writes its last blocks several
//!   times; so sizes only grow, up to the logical size, and the sync ends. (OpenZFS stops compressing after
//!   some passes for the same purpose.) Deduplicated blocks do not: their sizes are part of their keys. Nor
//!   do blocks of encrypted object sets: no place gets two ciphertexts in a group, and such object sets do
//!   not describe the space that they occupy.
//!
//! Source of the facts: OpenZFS 2.3 `zio.c` (`zio_write_compress`, `zio_get_compression_max_size`), `vdev.c`
//! (`spa_min_alloc`).

use codec::checksum::{self, Digest, beside_mac};
use codec::compress::{compress, compress_pointers};
use codec::is_all_zero;
use device::{IoBuf, SharedBuf};
use ondisk::blkptr::{
    Blkptr, ChecksumType, CompressType, CryptParts, EMBEDDED_PAYLOAD_MAX, MAX_BLOCK_SIZE, embed,
};
use ondisk::dmu::DmuType;
use ondisk::{ByteOrder, Level, Lsize, Psize, Txg};

use super::WriteRequest;
use super::seal::Sealed;
use crate::cache::{Block, SealedForm, fitted, is_kept_compressed};
use crate::error::{Error, Result};
use crate::inject::{Flip, Injections};
use crate::vdev::{Class, Kind, VdevTree};

/// Sizes of the pool that determine the sizes of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Units {
    /// The smallest allocation on any vdev (`spa_min_alloc`).
    pub min_alloc: u64,
    /// The greatest common divisor of all allocations (`spa_gcd_alloc`).
    pub gcd_alloc: u64,
}

/// The smallest allocation on any vdev: gangs are built of pieces of at least this size.
pub(crate) fn min_alloc(tree: &VdevTree) -> u64 {
    Units::of(tree).min_alloc
}

impl Units {
    pub fn of(tree: &VdevTree) -> Self {
        let mut units: Option<Self> = None;
        let holds_blocks = |kind: &Kind| !matches!(kind, Kind::Indirect(_) | Kind::Hole | Kind::Missing);
        let tops = tree.tops.iter().filter(|top| holds_blocks(&top.kind) && top.class() != Class::Log);
        for top in tops {
            let alloc = top.min_alloc();
            let all = units.get_or_insert(Self { min_alloc: alloc, gcd_alloc: alloc });
            all.min_alloc = all.min_alloc.min(alloc);
            all.gcd_alloc = gcd(all.gcd_alloc, alloc);
        }
        units.unwrap_or(Self { min_alloc: 512, gcd_alloc: 512 })
    }

    /// The size in whole units (`zio_roundup_alloc_size`).
    pub fn round_up(&self, bytes: u64) -> u64 {
        if bytes > self.min_alloc { bytes.next_multiple_of(self.gcd_alloc) } else { self.min_alloc }
    }

    /// The most bytes that the compressed form of a block may take.
    fn compressed_max(&self, ty: CompressType, lsize: u64) -> u64 {
        let most = lsize - (lsize >> 3);
        // As in OpenZFS: zle may use the whole size.
        if ty == CompressType::Zle {
            return most;
        }
        let most = most - most % self.gcd_alloc;
        if most < self.min_alloc { EMBEDDED_PAYLOAD_MAX as u64 } else { most }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The encoded form of a block.
#[derive(Debug)]
pub(super) enum Encoded {
    /// All zeroes.
    Hole,
    /// It is embedded in this pointer.
    Embedded(Blkptr),
    /// It is to be stored.
    Stored(Stored),
}

/// A block in the form in which it is stored.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    /// Physical size.
    pub psize: Psize,
    /// Compression that was applied.
    pub compress: CompressType,
    /// Checksum over the physical size.
    pub digest: Digest,
    /// The bytes, of the physical size.
    pub bytes: SharedBuf,
    /// What the pointer says of their protection, in an encrypted object set.
    pub crypt: Option<CryptParts>,
    /// The bytes before they were encrypted, if they are compressed and the ARC keeps such.
    pub plain: Option<Block>,
}

/// The block that a request overwrites in the same group, if it has a place of its own.
pub(super) fn predecessor(request: &WriteRequest, txg: Txg) -> Option<&Blkptr> {
    let lsize = request.data.len() as u64;
    request.previous.as_ref().filter(|bp| {
        request.dedup.is_none()
            && request.seal.is_none()
            && !bp.is_hole()
            && !bp.is_embedded()
            && !bp.is_dedup()
            && !bp.uses_crypt()
            && bp.logical_birth() == txg
            && bp.physical_birth() == txg
            && bp.lsize() == Lsize(lsize)
            && bp.checksum_type() != ChecksumType::Off
    })
}

/// Compresses a block and computes its checksum.
pub(super) fn encode(
    request: &WriteRequest,
    units: &Units,
    salt: Option<&[u8; 32]>,
    txg: Txg,
) -> Result<Encoded> {
    let data: &[u8] = &request.data;
    let lsize = data.len() as u64;
    if lsize == 0 || lsize > MAX_BLOCK_SIZE || !lsize.is_multiple_of(512) {
        return Err(Error::Invalid(format!("{}: a block of {lsize} bytes cannot be written", request.at)));
    }
    if let Some(form) = request.data.sealed_form() {
        return encode_sealed(request, form, salt);
    }
    if (request.compress != CompressType::Off || request.dedup.is_some()) && is_all_zero(data) {
        return Ok(Encoded::Hole);
    }
    let place = predecessor(request, txg);
    let mut ty = CompressType::Off;
    let mut bytes = None;
    if let Some((mut buffer, length, compress)) = compressed(request, units) {
        let may_embed = request.may_embed
            && request.seal.is_none()
            && place.is_none()
            && request.at.level <= 0
            && !matches!(request.dmu_type, DmuType::DNODE | DmuType::OBJSET);
        if length <= EMBEDDED_PAYLOAD_MAX && may_embed {
            let level = level_of(request);
            let bp = embed(&buffer[..length], Lsize(lsize), compress, request.dmu_type, level, txg);
            return Ok(Encoded::Embedded(bp.map_err(Error::format(request.at.to_string()))?));
        }
        let mut psize = units.round_up(length as u64);
        if let Some(place) = place {
            psize = psize.max(place.psize().get());
        }
        // The buffer is as long as the block.
        if psize < lsize {
            buffer.truncate(psize as usize);
            buffer[length..].fill(0);
            ty = compress;
            bytes = Some(buffer);
        }
    }
    let mut plain = None;
    let (bytes, crypt) = match &request.seal {
        None => (bytes.map_or_else(|| request.data.to_shared(), SharedBuf::from), None),
        Some(seal) => {
            plain = bytes.as_ref().filter(|_| is_kept_compressed()).map(|bytes| fitted(bytes));
            let Sealed { bytes, crypt } = seal.seal(request, bytes)?;
            (bytes, Some(crypt))
        }
    };
    let digest = digest_of(request, &bytes, crypt.as_ref(), salt)?;
    let psize = Psize(bytes.len() as u64);
    Ok(Encoded::Stored(Stored { psize, compress: ty, digest, bytes, crypt, plain }))
}

/// The checksum over the physical size. Half of it gives way to the MAC, where the pointer has one.
fn digest_of(
    request: &WriteRequest,
    bytes: &[u8],
    crypt: Option<&CryptParts>,
    salt: Option<&[u8; 32]>,
) -> Result<Digest> {
    let digest = checksum::compute(request.checksum, bytes, ByteOrder::Little, salt)
        .map_err(|error| Error::Invalid(format!("{}: {error}", request.at)))?;
    Ok(match crypt.filter(|_| request.dmu_type != DmuType::OBJSET) {
        Some(crypt) => {
            let [a, b] = beside_mac(request.checksum, digest);
            let [c, d] = crypt.mac_words(ByteOrder::Little);
            [a, b, c, d]
        }
        None => digest,
    })
}

/// A block that is stored as it came.
fn encode_sealed(request: &WriteRequest, form: &SealedForm, salt: Option<&[u8; 32]>) -> Result<Encoded> {
    let psize = form.stored.len() as u64;
    if request.seal.as_ref().is_none_or(|seal| seal.key().is_some()) {
        let why = "a block that came encrypted is written where blocks are encrypted anew";
        return Err(Error::Invalid(format!("{}: {why}", request.at)));
    }
    if psize == 0 || !psize.is_multiple_of(512) || psize > request.data.len() as u64 {
        return Err(Error::Invalid(format!("{}: {psize} encrypted bytes cannot be written", request.at)));
    }
    let (crypt, bytes) = (Some(form.crypt), request.data.to_shared());
    let digest = digest_of(request, &bytes, crypt.as_ref(), salt)?;
    let (psize, compress) = (Psize(psize), form.compress);
    Ok(Encoded::Stored(Stored { psize, compress, digest, bytes, crypt, plain: None }))
}

/// The blocks as handlers want them before their checksums are made ([`crate::inject`]).
pub(super) fn flipped_before(injections: &Injections, mut batch: Vec<WriteRequest>) -> Vec<WriteRequest> {
    for request in &mut batch {
        if let Some(flipped) = injections.flipped(&request.at, Flip::BeforeChecksum, &request.data) {
            request.data = flipped.into();
        }
    }
    batch
}

/// The encoded blocks as handlers want them after their checksums were made.
pub(super) fn flip_after(injections: &Injections, batch: &[WriteRequest], encoded: &mut [Encoded]) {
    for (request, encoded) in batch.iter().zip(encoded) {
        if let Encoded::Stored(stored) = encoded
            && let Some(flipped) = injections.flipped(&request.at, Flip::AfterChecksum, &stored.bytes)
        {
            stored.bytes = flipped.into();
        }
    }
}

/// The level that goes into the pointer: object sets count as data.
pub(super) fn level_of(request: &WriteRequest) -> Level {
    Level(i8::try_from(request.at.level.max(0)).unwrap_or(i8::MAX))
}

/// The compressed bytes at the start of a buffer of the logical size, their number, and the compression;
/// `None` when compression saves too little.
fn compressed(request: &WriteRequest, units: &Units) -> Option<(IoBuf, usize, CompressType)> {
    let bytes = request.data.len();
    if let Some((compress, stored)) = request.data.stored_form()
        && units.round_up(stored.len() as u64) < bytes as u64
    {
        let mut buffer = IoBuf::for_overwrite(bytes);
        buffer.get_mut(..stored.len())?.copy_from_slice(stored);
        return Some((buffer, stored.len(), compress));
    }
    if request.compress == CompressType::Off {
        return None;
    }
    let most = units.compressed_max(request.compress, bytes as u64) as usize;
    let mut buffer = IoBuf::for_overwrite(bytes);
    let place = buffer.get_mut(..most)?;
    let is_of_pointers = request.at.level > 0 && request.compress == CompressType::Lz4;
    let length = match is_of_pointers {
        true => compress_pointers(&request.data, place)?,
        false => compress(request.compress, request.zstd_level, &request.data, place)?,
    };
    (length > 0).then_some((buffer, length, request.compress))
}
