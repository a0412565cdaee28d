//! Rows of the compressions: each direction, on text and on machine code, with the ratio that is reached.

use crate::corpus;
use crate::table::{Peer, SIZES, Table};
use codec::compress::{compress, decompress, zstd_level_code};
use ondisk::blkptr::CompressType;
use std::hint::black_box;

/// Adds them.
pub fn rows(table: &mut Table) {
    type Corpus = fn(usize) -> Vec<u8>;
    for size in SIZES {
        rows_of(table, "lz4 noise", CompressType::Lz4, 0, &corpus::noise(size), Some(&mut Lz4));
    }
    for (kind, corpus) in [("text", corpus::text as Corpus), ("binary", corpus::binary)] {
        for size in SIZES {
            let data = corpus(size);
            let zstd = |level| zstd_level_code(level).expect("a level of OpenZFS");
            rows_of(table, &format!("lz4 {kind}"), CompressType::Lz4, 0, &data, Some(&mut Lz4));
            rows_of(table, &format!("lzjb {kind}"), CompressType::Lzjb, 0, &data, None);
            rows_of(table, &format!("zle {kind}"), CompressType::Zle, 0, &data, None);
            for (level, ty) in [(1, CompressType::Gzip1), (6, CompressType::Gzip6), (9, CompressType::Gzip9)]
            {
                let name = format!("gzip-{level} {kind}");
                rows_of(table, &name, ty, 0, &data, Some(&mut Zlib::new(level)));
            }
            for level in [-10, 1, 3, 9] {
                let name = if level < 0 { format!("zstd-fast-{}", -level) } else { format!("zstd-{level}") };
                let name = format!("{name} {kind}");
                rows_of(table, &name, CompressType::Zstd, zstd(level), &data, Some(&mut Zstd::new(level)));
            }
        }
    }
}

/// A second implementation of a compression. Its format may differ in headers.
trait Other {
    fn name(&self) -> &'static str;
    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> usize;
    fn decompress(&mut self, src: &[u8], dst: &mut [u8]);
}

fn rows_of(
    table: &mut Table,
    name: &str,
    ty: CompressType,
    level: u8,
    data: &[u8],
    other: Option<&mut dyn Other>,
) {
    let (pack, unpack) = (format!("{name} pack"), format!("{name} unpack"));
    if !table.wants(&pack) && !table.wants(&unpack) {
        return;
    }
    let mut block = vec![0; data.len() * 2];
    let mut out = vec![0; data.len()];
    let used = compress(ty, level, data, &mut block).expect("room for twice the data");
    let mut scratch = vec![0; data.len() * 2];
    let mut ours_pack = || {
        black_box(compress(ty, level, black_box(data), &mut scratch));
    };
    let packed = block[..used].to_vec();
    let mut ours_unpack = || decompress(ty, black_box(&packed), black_box(&mut out)).expect("own block");
    match other {
        None => {
            table.row(&pack, data.len(), &mut ours_pack, None);
            table.row(&unpack, data.len(), &mut ours_unpack, None);
        }
        Some(other) => {
            let mut their_block = vec![0; data.len() * 2];
            let their_used = other.compress(data, &mut their_block);
            let label =
                format!("{} ({:.2}x : {:.2}x)", other.name(), ratio(data, used), ratio(data, their_used));
            let mut theirs = || {
                black_box(other.compress(black_box(data), &mut their_block));
            };
            table.row(&pack, data.len(), &mut ours_pack, Some(Peer { name: &label, run: &mut theirs }));
            let their_used = other.compress(data, &mut their_block);
            let mut their_out = vec![0; data.len()];
            let mut theirs =
                || other.decompress(black_box(&their_block[..their_used]), black_box(&mut their_out));
            table.row(&unpack, data.len(), &mut ours_unpack, Some(Peer { name: &label, run: &mut theirs }));
        }
    }
}

fn ratio(data: &[u8], used: usize) -> f64 {
    data.len() as f64 / used as f64
}

struct Lz4;

impl Other for Lz4 {
    fn name(&self) -> &'static str {
        "lz4_flex"
    }

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> usize {
        lz4_flex::block::compress_into(src, dst).expect("room for the worst case")
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) {
        let len = lz4_flex::block::decompress_into(src, dst).expect("it reads itself");
        assert_eq!(len, dst.len());
    }
}

struct Zlib {
    encoder: flate2::Compress,
    decoder: flate2::Decompress,
}

impl Zlib {
    fn new(level: u32) -> Self {
        Zlib {
            encoder: flate2::Compress::new(flate2::Compression::new(level), true),
            decoder: flate2::Decompress::new(true),
        }
    }
}

impl Other for Zlib {
    fn name(&self) -> &'static str {
        "zlib"
    }

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> usize {
        self.encoder.reset();
        self.encoder.compress(src, dst, flate2::FlushCompress::Finish).expect("zlib compresses");
        self.encoder.total_out() as usize
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) {
        self.decoder.reset(true);
        self.decoder.decompress(src, dst, flate2::FlushDecompress::Finish).expect("zlib reads itself");
        assert_eq!(self.decoder.total_out(), dst.len() as u64);
    }
}

/// The same library called without our header and checks: shows what those cost.
struct Zstd {
    encoder: zstd_safe::CCtx<'static>,
    decoder: zstd_safe::DCtx<'static>,
    level: i32,
}

impl Zstd {
    fn new(level: i32) -> Self {
        Zstd { encoder: zstd_safe::CCtx::create(), decoder: zstd_safe::DCtx::create(), level }
    }
}

impl Other for Zstd {
    fn name(&self) -> &'static str {
        "libzstd"
    }

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> usize {
        self.encoder.compress(dst, src, self.level).expect("zstd compresses")
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) {
        assert_eq!(self.decoder.decompress(dst, src).expect("zstd reads itself"), dst.len());
    }
}
