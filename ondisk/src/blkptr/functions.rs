//! Checksum and compression functions by their numbers.
//!
//! Source: OpenZFS 2.3 `zio.h`, `zio_compress.h`, and the tables in `zio_checksum.c` and `zio_compress.c`.

use std::fmt;

use crate::{Error, Result};

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident, $what:literal, $($variant:ident = $raw:literal $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`")] $variant = $raw,)*
        }

        impl $name {
            /// All functions in order of their numbers.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The function of this number.
            pub fn from_raw(raw: u8) -> Result<$name> {
                Self::ALL
                    .get(usize::from(raw))
                    .copied()
                    .ok_or_else(|| Error::unsupported($what, format!("number {raw}")))
            }

            /// The number on disk.
            pub const fn raw(self) -> u8 {
                self as u8
            }

            /// The name that OpenZFS prints.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

functions! {
    /// Checksum function (`enum zio_checksum`). `Label`, `GangHeader`, `Zilog` and `Zilog2` stand inside the
    /// block they protect.
    ChecksumType, "checksum function",
    Inherit = 0 "inherit",
    On = 1 "on",
    Off = 2 "off",
    Label = 3 "label",
    GangHeader = 4 "gang_header",
    Zilog = 5 "zilog",
    Fletcher2 = 6 "fletcher2",
    Fletcher4 = 7 "fletcher4",
    Sha256 = 8 "sha256",
    Zilog2 = 9 "zilog2",
    NoParity = 10 "noparity",
    Sha512 = 11 "sha512",
    Skein = 12 "skein",
    Edonr = 13 "edonr",
    Blake3 = 14 "blake3",
}

impl ChecksumType {
    /// The checksum stands inside the block that it protects.
    pub const fn is_embedded(self) -> bool {
        use ChecksumType::*;
        matches!(self, Label | GangHeader | Zilog | Zilog2)
    }

    /// Strong enough to tell blocks apart (`ZCHECKSUM_FLAG_DEDUP`). When such a checksum shares its words
    /// with a MAC it is simply cut; a weaker one is folded.
    pub const fn is_dedup(self) -> bool {
        use ChecksumType::*;
        matches!(self, Sha256 | Sha512 | Skein | Blake3)
    }

    /// Strong enough that equal checksums stand for equal bytes (`ZCHECKSUM_FLAG_NOPWRITE`).
    pub const fn is_nopwrite(self) -> bool {
        use ChecksumType::*;
        matches!(self, Sha256 | Sha512 | Skein | Edonr | Blake3)
    }

    /// Keyed by the pool's checksum salt.
    pub const fn is_salted(self) -> bool {
        use ChecksumType::*;
        matches!(self, Skein | Edonr | Blake3)
    }
}

functions! {
    /// Compression function (`enum zio_compress`).
    CompressType, "compression function",
    Inherit = 0 "inherit",
    On = 1 "on",
    Off = 2 "uncompressed",
    Lzjb = 3 "lzjb",
    Empty = 4 "empty",
    Gzip1 = 5 "gzip-1",
    Gzip2 = 6 "gzip-2",
    Gzip3 = 7 "gzip-3",
    Gzip4 = 8 "gzip-4",
    Gzip5 = 9 "gzip-5",
    Gzip6 = 10 "gzip-6",
    Gzip7 = 11 "gzip-7",
    Gzip8 = 12 "gzip-8",
    Gzip9 = 13 "gzip-9",
    Zle = 14 "zle",
    Lz4 = 15 "lz4",
    Zstd = 16 "zstd",
}
