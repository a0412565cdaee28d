//! Rows of the encryption suites, beside `openssl speed`.
//!
//! Ours includes the look-up of a block's key and the check of its MAC. Decrypting in place consumes a block;
//! that it is put back is not counted.

use crate::corpus;
use crate::external::openssl;
use crate::table::{SIZES, Table};
use codec::crypt::{DatasetKey, Suite, decrypt_block, encrypt_block};
use ondisk::blkptr::{Blkptr, BlkptrParts, ChecksumType, CompressType, CryptParts, Dva};
use ondisk::dmu::DmuType;
use ondisk::{Asize, ByteOffset, ByteOrder, Level, Lsize, Psize, Txg, VdevId};
use std::cell::RefCell;
use std::hint::black_box;

const SALT: [u8; 8] = [1; 8];
const IV: [u8; 12] = [2; 12];
/// Bytes between two looks at the clock.
const BATCH: usize = 128 << 10;

/// Adds them.
pub fn rows(table: &mut Table) {
    for suite in [Suite::Aes128Gcm, Suite::Aes192Gcm, Suite::Aes256Gcm, Suite::Aes256Ccm] {
        let key = DatasetKey::from_random(suite, 1, [3; 32], [4; 64]);
        for decrypt in [false, true] {
            let name = format!("{suite} {}", if decrypt { "decrypt" } else { "encrypt" });
            if !table.wants(&name) {
                continue;
            }
            for size in SIZES {
                let mut blocks = corpus::text(BATCH);
                let encrypt = |block: &mut [u8]| {
                    encrypt_block(&key, DmuType::PLAIN_FILE_CONTENTS, ByteOrder::Little, SALT, IV, block)
                        .expect("any block can be encrypted")
                };
                let mut theirs = || openssl(suite.name(), size, decrypt);
                let peer: (_, &mut dyn FnMut() -> _) = ("openssl speed", &mut theirs);
                let pointers: Vec<Blkptr> =
                    blocks.chunks_mut(size).map(|block| pointer(size, encrypt(block))).collect();
                let sealed = blocks.clone();
                let blocks = RefCell::new(blocks);
                // Which pages memory consists of makes a difference of a third at times: each turn has
                // others, as each run of the peer has.
                let mut prepare = |begins| match begins {
                    true => drop(blocks.replace(sealed.clone())),
                    false if decrypt => blocks.borrow_mut().copy_from_slice(&sealed),
                    false => (),
                };
                let mut ours = || {
                    for (bp, block) in pointers.iter().zip(blocks.borrow_mut().chunks_mut(size)) {
                        match decrypt {
                            true => decrypt_block(&key, bp, black_box(block)).expect("the block is intact"),
                            false => _ = encrypt(black_box(block)),
                        }
                    }
                };
                table.row_in_turns(&name, (size, BATCH), (&mut prepare, &mut ours), peer);
            }
        }
    }
}

fn pointer(size: usize, mac: [u8; 16]) -> Blkptr {
    let parts = BlkptrParts {
        dvas: vec![Dva { vdev: VdevId(0), offset: ByteOffset(0), asize: Asize(4096), gang: false }],
        lsize: Lsize(size as u64),
        psize: Psize(size as u64),
        compress: CompressType::Off,
        checksum_type: ChecksumType::Fletcher4,
        checksum: [0; 4],
        dmu_type: DmuType::PLAIN_FILE_CONTENTS,
        level: Level(0),
        dedup: false,
        byte_order: ByteOrder::Little,
        logical_birth: Txg(4),
        physical_birth: Txg(4),
        fill: 1,
        crypt: Some(CryptParts { salt: SALT, iv: IV, mac }),
    };
    parts.build().expect("a well-formed pointer")
}
