//! Rows of the checksums.

use crate::corpus;
use crate::external::Libzfs;
use crate::table::{Peer, SIZES, Table};
use codec::checksum::{compute, fletcher4_scalar};
use ondisk::ByteOrder;
use ondisk::blkptr::ChecksumType;
use skein::Digest as _;
use std::hint::black_box;

const SALT: [u8; 32] = [7; 32];

/// Adds them.
pub fn rows(table: &mut Table) {
    let libzfs = Libzfs::load();
    for (name, order) in [("fletcher4", ByteOrder::HOST), ("fletcher4 byteswap", ByteOrder::HOST.swapped())] {
        for size in SIZES {
            let data = corpus::text(size);
            let mut ours =
                || drop(black_box(compute(ChecksumType::Fletcher4, black_box(&data), order, None)));
            let mut twin = || {
                black_box(fletcher4_scalar(black_box(&data), order));
            };
            table.row(name, size, &mut ours, Some(Peer { name: "scalar twin", run: &mut twin }));
            if let Some(libzfs) = &libzfs {
                let byteswap = order != ByteOrder::HOST;
                assert_eq!(libzfs.fletcher4(&data, byteswap), fletcher4_scalar(&data, order));
                let mut theirs = || {
                    black_box(libzfs.fletcher4(black_box(&data), byteswap));
                };
                table.row(name, size, &mut ours, Some(Peer { name: "libzfs", run: &mut theirs }));
            }
        }
    }
    for size in SIZES {
        let data = corpus::text(size);
        row_alone(table, "fletcher2", ChecksumType::Fletcher2, &data);
    }
    for size in SIZES {
        let data = corpus::text(size);
        row(table, "sha256", ChecksumType::Sha256, &data, "ring", |data| {
            black_box(ring::digest::digest(&ring::digest::SHA256, data));
        });
    }
    for size in SIZES {
        let data = corpus::text(size);
        row(table, "sha512/256", ChecksumType::Sha512, &data, "ring", |data| {
            black_box(ring::digest::digest(&ring::digest::SHA512_256, data));
        });
    }
    for size in SIZES {
        let data = corpus::text(size);
        row(table, "skein", ChecksumType::Skein, &data, "skein crate, unkeyed", |data| {
            black_box(skein::Skein512_256::digest(data));
        });
    }
    for size in SIZES {
        let zeros = vec![0u8; size];
        let mut ours = || assert!(codec::is_all_zero(black_box(&zeros)));
        let mut theirs = || assert!(black_box(&zeros).iter().all(|byte| *byte == 0));
        table.row("all zero?", size, &mut ours, Some(Peer { name: "byte by byte", run: &mut theirs }));
    }
    for size in SIZES {
        row_alone(table, "edonr", ChecksumType::Edonr, &corpus::text(size));
    }
    for size in SIZES {
        row_alone(table, "blake3", ChecksumType::Blake3, &corpus::text(size));
    }
}

fn row(table: &mut Table, name: &str, ty: ChecksumType, data: &[u8], peer: &str, mut run: impl FnMut(&[u8])) {
    let mut ours = || drop(black_box(compute(ty, black_box(data), ByteOrder::HOST, Some(&SALT))));
    let mut theirs = || run(black_box(data));
    table.row(name, data.len(), &mut ours, Some(Peer { name: peer, run: &mut theirs }));
}

fn row_alone(table: &mut Table, name: &str, ty: ChecksumType, data: &[u8]) {
    let mut ours = || drop(black_box(compute(ty, black_box(data), ByteOrder::HOST, Some(&SALT))));
    table.row(name, data.len(), &mut ours, None);
}
