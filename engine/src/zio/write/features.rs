//! What the features of a pool allow in its blocks.
//!
//! Pools of old versions, and pools with features disabled, hold blocks of older forms. The writer asks here for each batch, because
//! `zpool upgrade` may enable a feature while the pool is written.
//!
//! Source of the facts: OpenZFS 2.3 `zio_compress.c` (`zio_compress_select`), `zio.c` (`zio_write_compress`).

use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::blkptr::CompressType;

/// The features of a pool that say how its blocks may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterFeatures {
    /// Holes say when they were made.
    pub hole_birth: bool,
    /// Small blocks may stand in their pointers.
    pub embedded_data: bool,
    /// Compression without a name is lz4; lzjb in pools without it.
    pub lz4_compress: bool,
    /// Datasets may have intent logs.
    pub intent_logs: bool,
}

impl WriterFeatures {
    /// What pools with the default features have.
    pub const ALL: Self =
        Self { hole_birth: true, embedded_data: true, lz4_compress: true, intent_logs: true };

    /// The compression that is meant: `On` is lz4 where the pool may have it.
    pub(super) fn compress(self, asked: CompressType) -> CompressType {
        match asked {
            CompressType::On if self.lz4_compress => CompressType::Lz4,
            CompressType::On => CompressType::Lzjb,
            named => named,
        }
    }
}

/// The same, while `zpool upgrade` may enable more.
#[derive(Debug)]
pub(super) struct LiveWriterFeatures {
    hole_birth: AtomicBool,
    embedded_data: AtomicBool,
    lz4_compress: AtomicBool,
    intent_logs: AtomicBool,
}

impl LiveWriterFeatures {
    pub(super) fn get(&self) -> WriterFeatures {
        WriterFeatures {
            hole_birth: self.hole_birth.load(Ordering::Relaxed),
            embedded_data: self.embedded_data.load(Ordering::Relaxed),
            lz4_compress: self.lz4_compress.load(Ordering::Relaxed),
            intent_logs: self.intent_logs.load(Ordering::Relaxed),
        }
    }

    pub(super) fn set(&self, features: WriterFeatures) {
        self.hole_birth.store(features.hole_birth, Ordering::Relaxed);
        self.embedded_data.store(features.embedded_data, Ordering::Relaxed);
        self.lz4_compress.store(features.lz4_compress, Ordering::Relaxed);
        self.intent_logs.store(features.intent_logs, Ordering::Relaxed);
    }
}

impl Default for LiveWriterFeatures {
    fn default() -> Self {
        Self {
            hole_birth: AtomicBool::new(true),
            embedded_data: AtomicBool::new(true),
            lz4_compress: AtomicBool::new(true),
            intent_logs: AtomicBool::new(true),
        }
    }
}
