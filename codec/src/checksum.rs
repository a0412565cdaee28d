//! Block checksums: which algorithm, over which bytes, giving which four words.
//!
//! A [`Digest`] is the four 64-bit words of a block pointer's checksum, as integers. How a hash of 32 bytes
//! becomes four integers differs, and is fixed here alone:
//!
//! | type | words |
//! |---|---|
//! | fletcher2, fletcher4 | integer sums over words read in the block's byte order |
//! | sha256 | the hash as big-endian words, whatever the block's byte order |
//! | sha512 (SHA-512/256), skein, edonr, blake3 | the hash as words of the block's byte order |
//!
//! Skein, edonr and blake3 are keyed with the pool's 32-byte salt, which is the value
//! `org.illumos:checksum_salt` of the MOS object directory.
//!
//! An encrypted block's pointer keeps a MAC in words 2 and 3, so only words 0 and 1 belong to the checksum;
//! weak sums are folded there rather than cut ([`verify_encrypted`]).
//!
//! Labels, gang headers and intent-log blocks carry their own checksum: [`embedded`].
//!
//! Source: OpenZFS 2.3 `zio_checksum.c`, `sha2_zfs.c`, `skein_zfs.c`, `edonr_zfs.c`, `blake3_zfs.c`.

mod edonr;
pub mod embedded;
mod fletcher2;
mod fletcher4;
mod skein;

use crate::{Error, Result};
use edonr::Edonr;
use ondisk::ByteOrder;
use ondisk::blkptr::ChecksumType;
use sha2::{Digest as _, Sha256, Sha512_256};
use skein::Skein;
use std::cell::RefCell;

pub use embedded::{seal_gang, seal_label, seal_zilog, verify_gang, verify_label, verify_zilog};
pub use fletcher2::{Fletcher2, fletcher2};
pub use fletcher4::{Fletcher4, fletcher4, fletcher4_scalar};

/// The four words of a block pointer's checksum, as integers.
pub type Digest = [u64; 4];

/// The digest of `data` as a block pointer of byte order `order` states it.
///
/// `salt` is needed by skein, edonr and blake3 alone. `off` gives zeros. Self-checksumming types
/// are an error here: see [`embedded`].
pub fn compute(ty: ChecksumType, data: &[u8], order: ByteOrder, salt: Option<&[u8; 32]>) -> Result<Digest> {
    let salt = || salt.ok_or(Error::NoSalt(ty));
    Ok(match ty {
        ChecksumType::Off | ChecksumType::NoParity => [0; 4],
        ChecksumType::Fletcher2 => fletcher2(data, order),
        ChecksumType::Fletcher4 => fletcher4(data, order),
        ChecksumType::Sha256 => words(&Sha256::digest(data), ByteOrder::Big),
        ChecksumType::Sha512 => words(&Sha512_256::digest(data), order),
        ChecksumType::Skein => words(&salted(salt()?, |keyed| keyed.skein.hash(data)), order),
        ChecksumType::Edonr => words(&salted(salt()?, |keyed| keyed.edonr.hash(data)), order),
        ChecksumType::Blake3 => words(blake3::keyed_hash(salt()?, data).as_bytes(), order),
        ChecksumType::Inherit
        | ChecksumType::On
        | ChecksumType::Label
        | ChecksumType::GangHeader
        | ChecksumType::Zilog
        | ChecksumType::Zilog2 => return Err(Error::NotAChecksum(ty)),
    })
}

/// Whether `data` gives the digest that its block pointer states.
pub fn verify(
    ty: ChecksumType,
    data: &[u8],
    order: ByteOrder,
    salt: Option<&[u8; 32]>,
    expected: &Digest,
) -> Result<()> {
    require_equal(*expected, compute(ty, data, order, salt)?)
}

/// As [`verify`], for an encrypted block: words 2 and 3 of `expected` are the MAC and are left to the
/// decryption. Objset blocks are not meant: their MACs stand inside the block, so their checksum is whole.
pub fn verify_encrypted(
    ty: ChecksumType,
    data: &[u8],
    order: ByteOrder,
    salt: Option<&[u8; 32]>,
    expected: &Digest,
) -> Result<()> {
    let [a, b] = beside_mac(ty, compute(ty, data, order, salt)?);
    require_equal([expected[0], expected[1], 0, 0], [a, b, 0, 0])
}

/// The two words of a digest that share a block pointer with a MAC.
pub fn beside_mac(ty: ChecksumType, [a, b, c, d]: Digest) -> [u64; 2] {
    // Strong hashes can be cut anywhere. Sums hold different things in each word, so all words are kept in
    // the fold; edonr counts as weak here.
    if ty.is_dedup() { [a, b] } else { [a ^ c, b ^ d] }
}

fn require_equal(expected: Digest, actual: Digest) -> Result<()> {
    if expected == actual { Ok(()) } else { Err(Error::ChecksumMismatch { expected, actual }) }
}

/// The first four words of a hash.
fn words(hash: &[u8], order: ByteOrder) -> Digest {
    let mut digest = [0; 4];
    for (word, bytes) in digest.iter_mut().zip(hash.as_chunks::<8>().0) {
        *word = order.u64(*bytes);
    }
    digest
}

/// The states that depend on the salt alone.
struct Keyed {
    salt: [u8; 32],
    skein: Skein,
    edonr: Edonr,
}

/// Runs `hash` with the states keyed by `salt`. The last salt's states are kept for each thread: a thread
/// seldom changes the pool, and keying costs as much as hashing 600 bytes.
fn salted<T>(salt: &[u8; 32], hash: impl FnOnce(&Keyed) -> T) -> T {
    thread_local!(static LAST: RefCell<Option<Keyed>> = const { RefCell::new(None) });
    LAST.with_borrow_mut(|last| {
        if let Some(keyed) = last.as_ref().filter(|keyed| keyed.salt == *salt) {
            return hash(keyed);
        }
        hash(last.insert(Keyed { salt: *salt, skein: Skein::keyed(salt), edonr: Edonr::keyed(salt) }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: [u8; 512] = [0x5a; 512];

    #[test]
    fn sha256_is_big_endian_words_in_both_orders() {
        let expected = [0xba7816bf8f01cfea, 0x414140de5dae2223, 0xb00361a396177a9c, 0xb410ff61f20015ad];
        for order in [ByteOrder::Little, ByteOrder::Big] {
            assert_eq!(compute(ChecksumType::Sha256, b"abc", order, None), Ok(expected));
        }
    }

    #[test]
    fn other_hashes_are_words_of_the_blocks_order() {
        let salt = [9; 32];
        for ty in [ChecksumType::Sha512, ChecksumType::Skein, ChecksumType::Edonr, ChecksumType::Blake3] {
            let little = compute(ty, &DATA, ByteOrder::Little, Some(&salt)).unwrap();
            let big = compute(ty, &DATA, ByteOrder::Big, Some(&salt)).unwrap();
            assert_eq!(little.map(u64::swap_bytes), big, "{ty}");
        }
    }

    #[test]
    fn changing_salts_do_not_mix() {
        for ty in [ChecksumType::Skein, ChecksumType::Edonr] {
            let with = |salt| compute(ty, &DATA, ByteOrder::Little, Some(&[salt; 32])).unwrap();
            let (one, two) = (with(1), with(2));
            assert_ne!(one, two);
            assert_eq!((with(1), with(2)), (one, two));
        }
    }

    #[test]
    fn only_words_beside_the_mac_count_for_encrypted_blocks() {
        let digest = compute(ChecksumType::Sha512, &DATA, ByteOrder::Little, None).unwrap();
        let stated = [digest[0], digest[1], 1, 2];
        assert!(verify_encrypted(ChecksumType::Sha512, &DATA, ByteOrder::Little, None, &stated).is_ok());
        let stated = [digest[0], digest[1] ^ 1, 1, 2];
        assert!(verify_encrypted(ChecksumType::Sha512, &DATA, ByteOrder::Little, None, &stated).is_err());
        // Sums are folded, so damage that only the last words would show is not lost.
        assert_eq!(beside_mac(ChecksumType::Fletcher4, [1, 2, 4, 8]), [5, 10]);
        assert_eq!(beside_mac(ChecksumType::Edonr, [1, 2, 4, 8]), [5, 10]);
    }

    #[test]
    fn names_of_no_algorithm_are_refused() {
        for ty in ChecksumType::ALL.iter().copied().filter(|ty| ty.is_embedded()) {
            assert_eq!(compute(ty, &DATA, ByteOrder::Little, None), Err(Error::NotAChecksum(ty)));
        }
        assert_eq!(compute(ChecksumType::Off, &DATA, ByteOrder::Little, None), Ok([0; 4]));
    }
}
