//! Which forms of blocks the features of a pool allow.
//!
//! Pools of old versions, and pools with disabled features, contain blocks of older forms. The writer asks
//! here for each batch, because `zpool upgrade` may enable a feature while the pool is written.
//!
//! Source of the facts: OpenZFS 2.3 `zio_compress.c` (`zio_compress_select`), `zio.c` (`zio_write_compress`);
//! OpenZFS 2.4 `zio.c` (`zio_write_gang_block`).

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use ondisk::blkptr::CompressType;

/// The number of addresses for which a block pointer has room.
const MAX_COPIES: u8 = 3;

/// How large the gang headers of a pool are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum GangHeaders {
    /// 512 bytes.
    Small,
    /// 512 bytes, until a gang needs more pointers than fit into a header of that size.
    SmallYet,
    /// As large as the smallest allocation of the vdevs on which they lie.
    Large,
}

/// The features of a pool that determine how its blocks may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterFeatures {
    /// Holes record when they were made.
    pub hole_birth: bool,
    /// Small blocks may be embedded in their pointers.
    pub embedded_data: bool,
    /// Compression `on` is lz4; in pools without this feature, lzjb.
    pub lz4_compress: bool,
    /// Datasets may have intent logs.
    pub intent_logs: bool,
    /// How large gang headers are.
    pub gang_headers: GangHeaders,
    /// The most addresses of a block or gang header, 1 to 3.
    pub max_copies: u8,
    /// Dnodes count their space in bytes; in pools without this feature, in sectors of 512 bytes.
    pub used_in_bytes: bool,
}

impl WriterFeatures {
    /// The features of a pool with the default features.
    pub const ALL: Self = Self {
        hole_birth: true,
        embedded_data: true,
        lz4_compress: true,
        intent_logs: true,
        gang_headers: GangHeaders::Small,
        max_copies: MAX_COPIES,
        used_in_bytes: true,
    };

    /// The compression to use: `On` is lz4 where the pool may have it.
    pub(super) fn compress(self, asked: CompressType) -> CompressType {
        match asked {
            CompressType::On if self.lz4_compress => CompressType::Lz4,
            CompressType::On => CompressType::Lzjb,
            named => named,
        }
    }
}

/// The same, for a pool in which `zpool upgrade` may enable more.
#[derive(Debug)]
pub(super) struct LiveWriterFeatures {
    hole_birth: AtomicBool,
    embedded_data: AtomicBool,
    lz4_compress: AtomicBool,
    intent_logs: AtomicBool,
    gang_headers: AtomicU8,
    max_copies: AtomicU8,
    used_in_bytes: AtomicBool,
    /// A gang needed larger headers.
    larger_wanted: AtomicBool,
}

impl LiveWriterFeatures {
    pub(super) fn get(&self) -> WriterFeatures {
        WriterFeatures {
            hole_birth: self.hole_birth.load(Ordering::Relaxed),
            embedded_data: self.embedded_data.load(Ordering::Relaxed),
            lz4_compress: self.lz4_compress.load(Ordering::Relaxed),
            intent_logs: self.intent_logs.load(Ordering::Relaxed),
            gang_headers: match self.gang_headers.load(Ordering::Relaxed) {
                large if large == GangHeaders::Large as u8 => GangHeaders::Large,
                yet if yet == GangHeaders::SmallYet as u8 => GangHeaders::SmallYet,
                _ => GangHeaders::Small,
            },
            max_copies: self.max_copies.load(Ordering::Relaxed),
            used_in_bytes: self.used_in_bytes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn set(&self, features: WriterFeatures) {
        self.hole_birth.store(features.hole_birth, Ordering::Relaxed);
        self.embedded_data.store(features.embedded_data, Ordering::Relaxed);
        self.lz4_compress.store(features.lz4_compress, Ordering::Relaxed);
        self.intent_logs.store(features.intent_logs, Ordering::Relaxed);
        self.gang_headers.store(features.gang_headers as u8, Ordering::Relaxed);
        self.max_copies.store(features.max_copies, Ordering::Relaxed);
        self.used_in_bytes.store(features.used_in_bytes, Ordering::Relaxed);
    }

    /// Notes that larger gang headers would help.
    pub(super) fn want_larger_gang_headers(&self) {
        self.larger_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether larger headers were wanted since the last call.
    pub(super) fn take_wanted_larger_gang_headers(&self) -> bool {
        self.larger_wanted.swap(false, Ordering::Relaxed)
    }
}

impl Default for LiveWriterFeatures {
    fn default() -> Self {
        Self {
            hole_birth: AtomicBool::new(true),
            embedded_data: AtomicBool::new(true),
            lz4_compress: AtomicBool::new(true),
            intent_logs: AtomicBool::new(true),
            gang_headers: AtomicU8::new(GangHeaders::Small as u8),
            max_copies: AtomicU8::new(MAX_COPIES),
            used_in_bytes: AtomicBool::new(true),
            larger_wanted: AtomicBool::new(false),
        }
    }
}
