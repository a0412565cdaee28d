//! Rows of the encryption suites, beside `openssl speed`.
//!
//! Ours includes all that a block costs: the look-up of its key, and for decryption a copy of the block, because decrypting in place consumes it.

use crate::corpus;
use crate::external::openssl;
use crate::table::{SIZES, Table};
use codec::crypt::{DatasetKey, Suite, decrypt_block, encrypt_block};
use ondisk::blkptr::{Blkptr, BlkptrParts, ChecksumType, CompressType, CryptParts, Dva};
use ondisk::dmu::DmuType;
use ondisk::{Asize, ByteOffset, ByteOrder, Level, Lsize, Psize, Txg, VdevId};
use std::hint::black_box;

const SALT: [u8; 8] = [1; 8];
const IV: [u8; 12] = [2; 12];

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
                let mut block = corpus::text(size);
                let encrypt = |block: &mut [u8]| {
                    encrypt_block(
                        &key,
                        DmuType::PLAIN_FILE_CONTENTS,
                        ByteOrder::Little,
                        SALT,
                        IV,
                        black_box(block),
                    )
                    .expect("any block can be encrypted")
                };
                let peer = openssl(suite.name(), size, decrypt);
                let beside = |table: &mut Table, ours: &mut dyn FnMut()| match peer {
                    Some(rate) => table.row_beside(&name, size, ours, "openssl speed", rate),
                    None => table.row(&name, size, ours, None),
                };
                if decrypt {
                    let bp = pointer(size, encrypt(&mut block));
                    let mut copy = block.clone();
                    beside(table, &mut || {
                        copy.copy_from_slice(&block);
                        decrypt_block(&key, &bp, black_box(&mut copy)).expect("the block is intact");
                    });
                } else {
                    beside(table, &mut || {
                        encrypt(&mut block);
                    });
                }
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
