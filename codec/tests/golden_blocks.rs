//! Blocks that OpenZFS 2.3.2 wrote, cut out of the pools `codecs`, `crypt` and `zilreplay` made by its kernel
//! module, with the checksums that their block pointers state (as `zdb -bbbbbb` prints them) and the sha256
//! of the files.

#![allow(clippy::unwrap_used, reason = "a test")]

use codec::checksum::{Digest, verify, verify_encrypted, verify_label, verify_zilog};
use codec::compress::{compress, decompress};
use codec::{Error, is_all_zero};
use ondisk::ByteOrder;
use ondisk::blkptr::{ChecksumType, CompressType};
use sha2::{Digest as _, Sha256};

/// `org.illumos:checksum_salt` of the pool `codecs`.
const SALT: [u8; 32] = [
    0x3b, 0x5f, 0x46, 0x16, 0xb4, 0x07, 0x77, 0x55, 0x2e, 0xdc, 0xf9, 0x53, 0xcb, 0xaf, 0x5c, 0x1a, 0x58,
    0xfb, 0x28, 0x2b, 0x70, 0x01, 0x0a, 0xf7, 0x0d, 0x03, 0x9f, 0xbd, 0x1b, 0x03, 0xf7, 0xfe,
];

#[test]
fn every_checksum_is_the_one_in_the_block_pointer() {
    #[rustfmt::skip]
    let blocks: [(ChecksumType, &[u8], Digest); 8] = [
        (ChecksumType::Fletcher2, include_bytes!("data/file-fletcher2.bin"),
         [0xde77c2c22811f256, 0x81fcfbec9258869d, 0x2ecd90a122fd65fc, 0xa809333588824ef1]),
        (ChecksumType::Fletcher4, include_bytes!("data/objset-fletcher4.bin"),
         [0x00000012ba2e6e2d, 0x00000641a8ce1c8d, 0x000120e5268d6093, 0x0024dd7cfdfce1cd]),
        (ChecksumType::Sha256, include_bytes!("data/objset-sha256.bin"),
         [0x1b94567add262350, 0x7ac53dd3c788a030, 0x67ab2b505c6d5eaa, 0xc41f33a3206fe9cc]),
        (ChecksumType::Sha512, include_bytes!("data/objset-sha512.bin"),
         [0xd54432380f6d1740, 0x4baabef3337e300a, 0xe620bae2652f7ccc, 0xf2d89710dcf0ef99]),
        (ChecksumType::Skein, include_bytes!("data/objset-skein.bin"),
         [0x55776e2b30292ecd, 0x5ea4480450f4b56e, 0x7075a0335ca52eca, 0xa046659a752855e1]),
        (ChecksumType::Edonr, include_bytes!("data/objset-edonr.bin"),
         [0xd4f46a027cff9cca, 0x0247ccfb9804898d, 0x444f5573f11bef1e, 0x4697bd714b62f317]),
        (ChecksumType::Blake3, include_bytes!("data/objset-blake3.bin"),
         [0x7c17a2a53b60e443, 0xb7354373f40b395d, 0x398a86620d185d24, 0x896d8e1a6a63567a]),
        (ChecksumType::Fletcher4, include_bytes!("data/file-lzjb.bin"),
         [0x0000007ea9cfc294, 0x0000be1bfe376494, 0x00a48971bf4aaa74, 0x683215fc06fb783d]),
    ];
    for (ty, block, stated) in blocks {
        assert_eq!(verify(ty, block, ByteOrder::Little, Some(&SALT), &stated), Ok(()), "{ty}");
        let mut damaged = block.to_vec();
        damaged[17] ^= 4;
        let found = verify(ty, &damaged, ByteOrder::Little, Some(&SALT), &stated);
        assert!(matches!(found, Err(Error::ChecksumMismatch { .. })), "{ty}");
        if ty.is_salted() {
            assert_eq!(verify(ty, block, ByteOrder::Little, None, &stated), Err(Error::NoSalt(ty)));
            assert!(verify(ty, block, ByteOrder::Little, Some(&[0; 32]), &stated).is_err(), "{ty}");
        }
    }
}

#[test]
fn the_checksum_of_an_encrypted_block_stands_beside_its_mac() {
    let block = include_bytes!("data/encrypted.bin");
    let stated = [0x0002f69fade73005, 0x0061602ea17509eb, 0x202778b9a3e84112, 0x60fa906022f9df0f];
    let ty = ChecksumType::Fletcher4;
    assert_eq!(verify_encrypted(ty, block, ByteOrder::Little, None, &stated), Ok(()));
    assert!(verify(ty, block, ByteOrder::Little, None, &stated).is_err());
}

#[test]
fn an_uberblock_verifies_at_its_offset() {
    let block = include_bytes!("data/uberblock.bin");
    assert_eq!(verify_label(block, 0x21400), Ok(ByteOrder::Little));
    assert!(verify_label(block, 0x21000).is_err());
}

#[test]
fn log_blocks_verify_at_their_place_in_the_chain() {
    let plain = include_bytes!("data/zilog2.bin");
    let verifier = [0xffc81e132ecbc497, 0xca312116abf87959, 0x55, 0xc];
    assert_eq!(verify_zilog(ChecksumType::Zilog2, plain, &verifier, false), Ok(ByteOrder::Little));
    assert!(
        verify_zilog(ChecksumType::Zilog2, plain, &[verifier[0], verifier[1], 0x55, 0xd], false).is_err()
    );
}

#[test]
fn an_encrypted_log_block_verifies_without_its_mac() {
    let block = include_bytes!("data/zilog2-encrypted.bin");
    let verifier = [0x27fbd9c29ba064b5, 0xae121f2558c442b5, 0x8a, 1];
    assert_eq!(verify_zilog(ChecksumType::Zilog2, block, &verifier, true), Ok(ByteOrder::Little));
    assert!(verify_zilog(ChecksumType::Zilog2, block, &verifier, false).is_err());
}

/// Length and sha256 of the file that a block holds.
type File = (usize, &'static str);

#[test]
fn every_compression_gives_the_file_back() {
    #[rustfmt::skip]
    let blocks: [(CompressType, &[u8], usize, File); 9] = [
        (CompressType::Gzip1, include_bytes!("data/file-gzip-1.bin"), 4096,
         (3893, "13e08392823b00f4419d69fec2659fdb48c8e0de7651b55edb1b61f13d145cca")),
        (CompressType::Gzip6, include_bytes!("data/file-gzip-6.bin"), 3584,
         (3184, "54985b95b98f1ce4334f72d5e8d5ec3e95f9f99a4224182a4ac1ef510a7f29be")),
        (CompressType::Gzip9, include_bytes!("data/file-gzip-9.bin"), 3072,
         (3063, "07a808df4af4047a3347ee478e4a5032a717676836abdbe64adc619c67c45e67")),
        (CompressType::Lz4, include_bytes!("data/file-lz4.bin"), 3584,
         (3214, "f6e2d8ee5b4f034e54abea4f68efa2148e99f979c8e38730f74f17ab29274416")),
        (CompressType::Lzjb, include_bytes!("data/file-lzjb.bin"), 4096,
         (3734, "82cf7b6021cd8daa8fee82983a21056c77181aa37afdf6aafa523c3bbb363cd7")),
        (CompressType::Zstd, include_bytes!("data/file-zstd-1.bin"), 3072,
         (3003, "e20844206fbd9ef7c33bf667c7c2efdeccb9683fa7068ca92d1096d0ba27e09a")),
        (CompressType::Zstd, include_bytes!("data/file-zstd-3.bin"), 4096,
         (3833, "9bc880d9967abff9f9b4302607b3b4a8bad7549d5cbeb8f13dd01bc818dc1983")),
        (CompressType::Zstd, include_bytes!("data/file-zstd-19.bin"), 3584,
         (3118, "738ea684ae217793c64bcd9f79342db78fddc3119051dd716dd45ba9f6293dcc")),
        (CompressType::Zstd, include_bytes!("data/file-zstd-fast-10.bin"), 3584,
         (3391, "282252701b2b90b7727d13912518bdc0912a755f219f9dcacf2a51f11cd91487")),
    ];
    for (ty, block, logical, (len, sha256)) in blocks {
        let mut data = vec![0xee; logical];
        assert_eq!(decompress(ty, block, &mut data), Ok(()), "{ty}");
        let hash: String = Sha256::digest(&data[..len]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, sha256, "{ty}");
        assert!(is_all_zero(&data[len..]), "{ty}: the file ends in zeros");
    }
}

#[test]
fn lzjb_and_zle_write_the_very_bytes_of_openzfs() {
    let blocks: [(CompressType, &[u8], usize); 2] = [
        (CompressType::Lzjb, include_bytes!("data/file-lzjb.bin"), 4096),
        (CompressType::Zle, include_bytes!("data/file-zle.bin"), 128 << 10),
    ];
    for (ty, block, logical) in blocks {
        let mut data = vec![0; logical];
        decompress(ty, block, &mut data).unwrap();
        // OpenZFS asks for an eighth to be saved, and fills the last sector with zeros.
        let mut again = vec![0; logical - logical / 8];
        let used = compress(ty, 0, &data, &mut again).unwrap();
        assert_eq!(used.next_multiple_of(512), block.len());
        assert!(again.starts_with(block), "{ty}");
    }
}
