//! Checksums that a block carries about itself: labels, gang headers and intent-log blocks.
//!
//! Such a block ends with (intent log: holds in its chain header) a trailer, `zio_eck`:
//!
//! | offset | size | name | meaning |
//! |---:|---:|---|---|
//! | 0 | 8 | `zec_magic` | [`MAGIC`]; its byte order is the byte order of the whole block |
//! | 8 | 32 | `zec_cksum` | the digest |
//!
//! The digest covers the whole block, with the digest's own place filled by the **verifier**: four words that
//! say what block this is meant to be, so that a valid block in a wrong place does not pass.
//!
//! | kind | digest | verifier |
//! |---|---|---|
//! | label (nvlist, uberblock, boot area) | sha256 | byte offset on the device, 0, 0, 0 |
//! | gang header | sha256 | vdev and offset of the pointer's first DVA, birth txg, 0 |
//! | `zilog` (trailer at the end) | fletcher2 | the checksum of the block pointer: two guids, objset, sequence number |
//! | `zilog2` (trailer in `zil_chain`, at the block's start; only the used bytes count) | fletcher4 | the same |
//!
//! An encrypted log block has a MAC in words 2 and 3 of the trailer's digest, as a block pointer would.
//!
//! The hashing goes around the digest's place in three pieces; no block is copied or changed to be verified.
//!
//! Source: OpenZFS 2.3 `zio_checksum.c`, `zio.h`, `zil.h`.

use super::{Digest, Fletcher2, Fletcher4, beside_mac, require_equal, words};
use crate::{Error, Result};
use ondisk::ByteOrder;
use ondisk::blkptr::ChecksumType;
use sha2::{Digest as _, Sha256};
use std::ops::Range;

/// Marks a trailer.
pub const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Size of a trailer.
pub const TRAILER_BYTES: usize = 40;
/// Size of a gang header.
pub const GANG_HEADER_BYTES: usize = 512;

const MAGIC_BYTES: usize = 8;
/// `zil_chain`: where the count of used bytes stands.
const CHAIN_USED: Range<usize> = 136..144;
/// `zil_chain`: where the trailer stands.
const CHAIN_TRAILER: usize = 144;
/// Used bytes of a log block are rounded up to this.
const LOG_GRAIN_BYTES: u64 = 4096;

/// Verifies a block of a label that was read from byte `offset` of the device. Returns its byte order.
pub fn verify_label(block: &[u8], offset: u64) -> Result<ByteOrder> {
    verify_sha256(block, [offset, 0, 0, 0])
}

/// Writes the trailer of a label block that will stand at byte `offset` of the device.
pub fn seal_label(block: &mut [u8], offset: u64, order: ByteOrder) -> Result<()> {
    seal_sha256(block, [offset, 0, 0, 0], order)
}

/// Verifies a gang header born in `birth`. Returns its byte order. `vdev` and `offset` are those of the first
/// DVA of its block pointer, whichever copy it was read from: all copies are the same bytes.
///
/// Under a pointer that has a MAC (`with_mac`) half of the digest is folded into the other, as in the pointer
/// itself, although a header has none.
pub fn verify_gang(header: &[u8], vdev: u64, offset: u64, birth: u64, with_mac: bool) -> Result<ByteOrder> {
    let verifier = [vdev, offset, birth, 0];
    if !with_mac {
        return verify_sha256(header, verifier);
    }
    let trailer = Trailer::at_end(header)?;
    let order = trailer.order(header)?;
    let [a, b] = folded(sha256_around(header, &trailer, verifier, order));
    let stated = trailer.digest(header, order);
    require_equal([stated[0], stated[1], 0, 0], [a, b, 0, 0])?;
    Ok(order)
}

/// Writes the trailer of a gang header, as [`verify_gang`] wants it.
pub fn seal_gang(
    header: &mut [u8],
    vdev: u64,
    offset: u64,
    birth: u64,
    with_mac: bool,
    order: ByteOrder,
) -> Result<()> {
    let verifier = [vdev, offset, birth, 0];
    seal_sha256(header, verifier, order)?;
    if with_mac {
        let trailer = Trailer::at_end(header)?;
        let [a, b] = folded(trailer.digest(header, order));
        trailer.put_digest(header, [a, b, 0, 0], order);
    }
    Ok(())
}

/// Verifies an intent-log block against the checksum words of the block pointer that leads to it. Returns its
/// byte order. For an encrypted block the MAC in words 2 and 3 is left to the decryption.
pub fn verify_zilog(ty: ChecksumType, block: &[u8], verifier: &Digest, encrypted: bool) -> Result<ByteOrder> {
    let (trailer, order) = log_trailer(ty, block)?;
    let covered = log_covered(ty, block, order)?;
    let stated = trailer.digest(block, order);
    let actual = log_digest(ty, covered, &trailer, verifier, order)?;
    if encrypted {
        let [a, b] = beside_mac(ty, actual);
        require_equal([stated[0], stated[1], 0, 0], [a, b, 0, 0])?;
    } else {
        require_equal(stated, actual)?;
    }
    Ok(order)
}

/// Writes the trailer of an intent-log block, whose header (`zilog2`: used bytes included) is in place. For
/// an encrypted block the MAC must already stand in words 2 and 3 of the trailer's digest, and stays.
pub fn seal_zilog(
    ty: ChecksumType,
    block: &mut [u8],
    verifier: &Digest,
    encrypted: bool,
    order: ByteOrder,
) -> Result<()> {
    let trailer = Trailer { start: log_trailer_start(ty, block)? };
    trailer.put_magic(block, order);
    let mut digest = log_digest(ty, log_covered(ty, block, order)?, &trailer, verifier, order)?;
    if encrypted {
        let [a, b] = beside_mac(ty, digest);
        let [_, _, c, d] = trailer.digest(block, order);
        digest = [a, b, c, d];
    }
    trailer.put_digest(block, digest, order);
    Ok(())
}

/// Where a trailer stands. It lies within the block for which it was made.
struct Trailer {
    start: usize,
}

impl Trailer {
    /// The trailer at the end of `block`.
    fn at_end(block: &[u8]) -> Result<Self> {
        match block.len().checked_sub(TRAILER_BYTES) {
            Some(start) => Ok(Trailer { start }),
            None => Err(too_short("checksum trailer", TRAILER_BYTES, block.len())),
        }
    }

    fn digest_place(&self) -> Range<usize> {
        self.start + MAGIC_BYTES..self.start + TRAILER_BYTES
    }

    /// The byte order that the magic number states.
    fn order(&self, block: &[u8]) -> Result<ByteOrder> {
        let mut magic = [0; MAGIC_BYTES];
        magic.copy_from_slice(&block[self.start..self.start + MAGIC_BYTES]);
        ByteOrder::of_magic(MAGIC, magic).ok_or(Error::NoTrailer { found: u64::from_le_bytes(magic) })
    }

    fn digest(&self, block: &[u8], order: ByteOrder) -> Digest {
        words(&block[self.digest_place()], order)
    }

    fn put_magic(&self, block: &mut [u8], order: ByteOrder) {
        block[self.start..self.start + MAGIC_BYTES].copy_from_slice(&order.u64_bytes(MAGIC));
    }

    fn put_digest(&self, block: &mut [u8], digest: Digest, order: ByteOrder) {
        block[self.digest_place()].copy_from_slice(&digest_bytes(digest, order));
    }

    /// The input of the digest: the bytes before its place, the verifier, the bytes after its place.
    fn pieces<'a>(&self, covered: &'a [u8], verifier: &'a [u8; 32]) -> [&'a [u8]; 3] {
        let place = self.digest_place();
        [&covered[..place.start], verifier, &covered[place.end..]]
    }
}

fn digest_bytes(digest: Digest, order: ByteOrder) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(digest) {
        *bytes = order.u64_bytes(word);
    }
    bytes
}

fn too_short(what: &'static str, needed: usize, available: usize) -> Error {
    Error::TooShort { what, needed: needed as u64, available: available as u64 }
}

/// Self-checksums count as weak: no word of the digest may be lost.
fn folded([a, b, c, d]: Digest) -> [u64; 2] {
    [a ^ c, b ^ d]
}

fn verify_sha256(block: &[u8], verifier: Digest) -> Result<ByteOrder> {
    let trailer = Trailer::at_end(block)?;
    let order = trailer.order(block)?;
    require_equal(trailer.digest(block, order), sha256_around(block, &trailer, verifier, order))?;
    Ok(order)
}

fn seal_sha256(block: &mut [u8], verifier: Digest, order: ByteOrder) -> Result<()> {
    let trailer = Trailer::at_end(block)?;
    trailer.put_magic(block, order);
    let digest = sha256_around(block, &trailer, verifier, order);
    trailer.put_digest(block, digest, order);
    Ok(())
}

fn sha256_around(block: &[u8], trailer: &Trailer, verifier: Digest, order: ByteOrder) -> Digest {
    let verifier = digest_bytes(verifier, order);
    let mut hash = Sha256::new();
    for piece in trailer.pieces(block, &verifier) {
        hash.update(piece);
    }
    words(&hash.finalize(), ByteOrder::Big)
}

fn log_trailer_start(ty: ChecksumType, block: &[u8]) -> Result<usize> {
    match ty {
        ChecksumType::Zilog => Ok(Trailer::at_end(block)?.start),
        ChecksumType::Zilog2 if block.len() >= CHAIN_TRAILER + TRAILER_BYTES => Ok(CHAIN_TRAILER),
        ChecksumType::Zilog2 => {
            Err(too_short("intent log chain header", CHAIN_TRAILER + TRAILER_BYTES, block.len()))
        }
        _ => Err(Error::NotAChecksum(ty)),
    }
}

fn log_trailer(ty: ChecksumType, block: &[u8]) -> Result<(Trailer, ByteOrder)> {
    let trailer = Trailer { start: log_trailer_start(ty, block)? };
    let order = trailer.order(block)?;
    Ok((trailer, order))
}

/// The part of a log block that its digest covers: all of it, or the used bytes rounded up.
fn log_covered(ty: ChecksumType, block: &[u8], order: ByteOrder) -> Result<&[u8]> {
    if ty != ChecksumType::Zilog2 {
        return Ok(block);
    }
    let used = words(&block[CHAIN_USED], order)[0];
    let available = block.len() as u64;
    // At least the header is used; a header that claims less would leave the trailer itself uncovered.
    let rounded = used.max(1).checked_next_multiple_of(LOG_GRAIN_BYTES).unwrap_or(u64::MAX);
    if rounded > available {
        return Err(Error::TooShort { what: "used part of an intent log block", needed: rounded, available });
    }
    Ok(&block[..rounded as usize])
}

fn log_digest(
    ty: ChecksumType,
    covered: &[u8],
    trailer: &Trailer,
    verifier: &Digest,
    order: ByteOrder,
) -> Result<Digest> {
    let verifier = digest_bytes(*verifier, order);
    let pieces = trailer.pieces(covered, &verifier);
    match ty {
        ChecksumType::Zilog => {
            // Pieces must split between pairs of words; the digest's place ends the block and is two pairs
            // long.
            let mut sum = Fletcher2::default();
            pieces.into_iter().for_each(|piece| sum.update(piece, order));
            Ok(sum.digest())
        }
        ChecksumType::Zilog2 => {
            let mut sum = Fletcher4::default();
            pieces.into_iter().for_each(|piece| sum.update(piece, order));
            Ok(sum.digest())
        }
        _ => Err(Error::NotAChecksum(ty)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];
    const VERIFIER: Digest = [0x1111, 0x2222, 54, 7];

    fn block(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 / 8) as u8).collect()
    }

    #[test]
    fn a_label_passes_only_at_its_own_offset() {
        for order in ORDERS {
            let mut label = block(1024);
            seal_label(&mut label, 0x21000, order).unwrap();
            assert_eq!(verify_label(&label, 0x21000), Ok(order));
            assert!(matches!(verify_label(&label, 0x21400), Err(Error::ChecksumMismatch { .. })));
        }
    }

    #[test]
    fn a_gang_header_passes_only_for_its_own_dva_and_birth() {
        let mut header = block(GANG_HEADER_BYTES);
        seal_gang(&mut header, 1, 0x4000, 99, true, ByteOrder::Little).unwrap();
        assert!(verify_gang(&header, 1, 0x4000, 99, true).is_ok());
        assert!(verify_gang(&header, 1, 0x4000, 99, false).is_err());
        assert!(verify_gang(&header, 1, 0x4000, 98, true).is_err());
        seal_gang(&mut header, 1, 0x4000, 99, false, ByteOrder::Little).unwrap();
        assert!(verify_gang(&header, 1, 0x4000, 99, true).is_err());
        assert!(verify_gang(&header, 1, 0x4000, 99, false).is_ok());
        assert!(verify_gang(&header, 0, 0x4000, 99, false).is_err());
        assert!(verify_gang(&header, 1, 0x4200, 99, false).is_err());
        assert!(verify_gang(&header, 1, 0x4000, 98, false).is_err());
    }

    #[test]
    fn any_flipped_bit_of_a_label_is_found() {
        let mut label = block(512);
        seal_label(&mut label, 0, ByteOrder::Little).unwrap();
        for bit in 0..label.len() * 8 {
            label[bit / 8] ^= 1 << (bit % 8);
            assert!(verify_label(&label, 0).is_err(), "bit {bit}");
            label[bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn log_block(ty: ChecksumType, used: u64, order: ByteOrder) -> Vec<u8> {
        let mut log = block(12288);
        if ty == ChecksumType::Zilog2 {
            log[CHAIN_USED].copy_from_slice(&order.u64_bytes(used));
        }
        log
    }

    #[test]
    fn a_log_block_passes_only_for_its_own_place_in_the_chain() {
        for ty in [ChecksumType::Zilog, ChecksumType::Zilog2] {
            for order in ORDERS {
                let mut log = log_block(ty, 5000, order);
                seal_zilog(ty, &mut log, &VERIFIER, false, order).unwrap();
                assert_eq!(verify_zilog(ty, &log, &VERIFIER, false), Ok(order));
                assert!(verify_zilog(ty, &log, &[0x1111, 0x2222, 54, 8], false).is_err());
            }
        }
    }

    #[test]
    fn a_log_block_is_covered_up_to_its_used_bytes_rounded_up() {
        let ty = ChecksumType::Zilog2;
        let mut log = log_block(ty, 4097, ByteOrder::Little);
        seal_zilog(ty, &mut log, &VERIFIER, false, ByteOrder::Little).unwrap();
        log[8192] ^= 1;
        assert!(verify_zilog(ty, &log, &VERIFIER, false).is_ok());
        log[8191] ^= 1;
        assert!(verify_zilog(ty, &log, &VERIFIER, false).is_err());
    }

    #[test]
    fn an_encrypted_log_block_keeps_its_mac() {
        for ty in [ChecksumType::Zilog, ChecksumType::Zilog2] {
            let order = ByteOrder::Little;
            let mut log = log_block(ty, 100, order);
            let trailer = Trailer { start: log_trailer_start(ty, &log).unwrap() };
            trailer.put_digest(&mut log, [0, 0, 0xaaaa, 0xbbbb], order);
            seal_zilog(ty, &mut log, &VERIFIER, true, order).unwrap();
            assert_eq!(trailer.digest(&log, order)[2..], [0xaaaa, 0xbbbb]);
            assert_eq!(verify_zilog(ty, &log, &VERIFIER, true), Ok(order));
            assert!(verify_zilog(ty, &log, &VERIFIER, false).is_err());
        }
    }

    #[test]
    fn hostile_sizes_are_errors() {
        let ty = ChecksumType::Zilog2;
        for used in [0, 12289, u64::MAX, u64::MAX - 4095] {
            let mut log = log_block(ty, used, ByteOrder::Little);
            Trailer { start: CHAIN_TRAILER }.put_magic(&mut log, ByteOrder::Little);
            assert!(verify_zilog(ty, &log, &VERIFIER, false).is_err());
        }
        for len in 0..200 {
            assert!(verify_label(&vec![0x11; len], 0).is_err());
            assert!(verify_zilog(ty, &vec![0x11; len], &VERIFIER, false).is_err());
            assert!(verify_zilog(ChecksumType::Zilog, &vec![0x11; len], &VERIFIER, false).is_err());
        }
    }
}
