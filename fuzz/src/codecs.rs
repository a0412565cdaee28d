//! Compression, checksums and encryption of hostile blocks.

use codec::checksum::{self, Digest};
use codec::compress as compression;
use codec::crypt::{self, DatasetKey, Suite, WrappedKey, WrappingKey};
use ondisk::ByteOrder;
use ondisk::blkptr::{Blkptr, ChecksumType, CompressType};
use ondisk::dmu::DmuType;

use crate::input::{Input, ORDERS};

/// Decompression into a block of a hostile size.
pub fn decompress(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some(kind) = input.pick(CompressType::ALL) else { return };
    let size = match input.u8() {
        small @ 0..16 => usize::from(small),
        more => usize::from(more) << 9,
    };
    let mut block = vec![0xa5; size];
    let _ = compression::decompress(kind, input.0, &mut block);
    // A frame of zstd says which level made it.
    let level = compression::zstd_level(bytes.len() as u8);
    let _ = level;
}

/// Whatever is compressed comes back.
pub fn compress(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (Some(kind), level) = (input.pick(CompressType::ALL), input.u8()) else { return };
    let plain = &input.0[..input.0.len().min(128 << 10)];
    let mut packed = vec![0; plain.len() + plain.len() / 8 + 64];
    // Levels that do not exist are for the caller to refuse; 255 is the default.
    let Some(length) = compression::compress(kind, if level < 20 { level } else { 255 }, plain, &mut packed)
    else {
        return;
    };
    let mut back = vec![0; plain.len()];
    compression::decompress(kind, &packed[..length], &mut back).expect("what was compressed decompresses");
    assert!(back == plain, "{kind}: other bytes came back");
}

/// Checksums of blocks of any size.
pub fn checksum(bytes: &[u8]) {
    let salt = [7; 32];
    for kind in ChecksumType::ALL {
        for order in ORDERS {
            let Ok(sum) = checksum::compute(*kind, bytes, order, Some(&salt)) else { continue };
            assert!(checksum::verify(*kind, bytes, order, Some(&salt), &sum).is_ok());
            let _ = checksum::verify_encrypted(*kind, bytes, order, Some(&salt), &sum);
            let _ = checksum::compute(*kind, bytes, order, None);
        }
    }
}

/// Blocks that hold their own checksum: labels, gang headers, intent logs.
pub fn embedded_checksum(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (vdev, offset, birth) = (input.u64(), input.u64(), input.u64());
    let verifier: Digest = [vdev, offset, birth, input.u64()];
    let block = input.0;
    let _ = checksum::verify_label(block, offset);
    let _ = checksum::verify_gang(block, vdev, offset, birth, false);
    let _ = checksum::verify_gang(block, vdev, offset, birth, true);
    for kind in [ChecksumType::Zilog, ChecksumType::Zilog2, ChecksumType::Sha256] {
        for encrypted in [false, true] {
            let _ = checksum::verify_zilog(kind, block, &verifier, encrypted);
            for order in ORDERS {
                let mut sealed = block.to_vec();
                if checksum::seal_zilog(kind, &mut sealed, &verifier, encrypted, order).is_ok() {
                    let found = checksum::verify_zilog(kind, &sealed, &verifier, encrypted);
                    assert!(found.is_ok_and(|found| found == order), "what was sealed verifies");
                }
            }
        }
    }
    for order in ORDERS {
        let mut sealed = block.to_vec();
        if checksum::seal_label(&mut sealed, offset, order).is_ok() {
            assert!(checksum::verify_label(&sealed, offset).is_ok_and(|found| found == order));
        }
        if checksum::seal_gang(&mut sealed, vdev, offset, birth, false, order).is_ok() {
            let found = checksum::verify_gang(&sealed, vdev, offset, birth, false);
            assert!(found.is_ok_and(|found| found == order));
        }
    }
}

/// Encryption, MACs and keys over hostile blocks.
pub fn crypt(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Ok(suite) = Suite::from_raw(u64::from(input.u8() % 10)) else { return };
    let key = DatasetKey::from_random(suite, input.u64(), [3; 32], [4; 64]);
    let types = [DmuType::DNODE, DmuType::INTENT_LOG, DmuType::PLAIN_FILE_CONTENTS, DmuType::OBJSET];
    let Some(ty) = input.pick(&types) else { return };
    let pointer = input.take(Blkptr::SIZE);
    let block = input.0;
    for order in ORDERS {
        let _ = crypt::indirect_mac(block, order);
        let _ = crypt::objset_macs(&key, block, order);
        let _ = crypt::verify_objset_macs(&key, block, order);
        if let Ok(bp) = Blkptr::parse(pointer, order) {
            let _ = crypt::verify_indirect_mac(&bp, block);
            let _ = crypt::decrypt_block(&key, &bp, &mut block.to_vec());
            round_trip(&key, ty, order, &bp, block);
        }
    }
    let wrapped = WrappedKey {
        suite,
        guid: 1,
        version: u64::from(bytes.len() as u8 & 3),
        iv: [1; 12],
        mac: input.array(),
        master_key: input.array(),
        hmac_key: input.array(),
    };
    let Ok(wrapping) = WrappingKey::from_raw(&[9; 32]) else { return };
    assert!(wrapped.unwrap(&wrapping).is_err(), "a random key was accepted");
    let _ = WrappingKey::from_hex(block);
    let _ = WrappingKey::from_raw(block);
}

/// What was encrypted under a block pointer decrypts to the same bytes under it.
fn round_trip(key: &DatasetKey, ty: DmuType, order: ByteOrder, bp: &Blkptr, block: &[u8]) {
    let mut secret = block.to_vec();
    let (salt, iv) = (bp.salt(), bp.iv());
    let Ok(mac) = crypt::encrypt_block(key, ty, order, salt, iv, &mut secret) else { return };
    let [low, high] = [&mac[..8], &mac[8..]]
        .map(|half| half.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    let mut words = *bp.words();
    // The same pointer, of this type and byte order, with the MAC in the words where it stands.
    words[6] = words[6] & !(0xff << 48 | 1 << 63 | 0x1f << 56)
        | u64::from(ty.raw()) << 48
        | u64::from(order == ByteOrder::Little) << 63
        | 1 << 61;
    words[14] = low;
    words[15] = high;
    let Ok(bp) = Blkptr::from_words(words) else { return };
    if bp.mac() != mac || bp.salt() != salt || bp.iv() != iv || ty == DmuType::INTENT_LOG {
        return;
    }
    if crypt::decrypt_block(key, &bp, &mut secret).is_ok() {
        assert!(secret == block, "other bytes came back");
    }
}
