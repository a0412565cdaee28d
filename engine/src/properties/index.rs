//! The words of index properties and their numbers in a ZAP.
//!
//! An index property is stored as a number and shown as a word. Several words may have the same number: the
//! first in the table is shown, all are accepted. Source of the facts: OpenZFS 2.3 `zfs_prop.c`,
//! `zpool_prop.c` and the enumerations of `zfs.h`, `zio.h` and `zio_compress.h`.

/// Words and numbers of one index property, in the order in which a number is looked up.
pub type Names = &'static [(&'static str, u64)];

/// `off` and `on`.
pub const BOOLEAN: Names = &[("off", 0), ("on", 1)];
/// `off`, `on` and not applicable (vdev properties).
pub const BOOLEAN_NA: Names = &[("off", 0), ("on", 1), ("-", 2)];
/// `checksum`.
pub const CHECKSUM: Names = &[
    ("on", 1),
    ("off", 2),
    ("fletcher2", 6),
    ("fletcher4", 7),
    ("sha256", 8),
    ("noparity", 10),
    ("sha512", 11),
    ("skein", 12),
    ("edonr", 13),
    ("blake3", 14),
];

/// Bit that asks for a byte comparison of deduplicated blocks.
const VERIFY: u64 = 1 << 8;

/// `dedup`: a checksum, with or without the verify bit.
pub const DEDUP: Names = &[
    ("on", 1),
    ("off", 2),
    ("verify", 1 | VERIFY),
    ("sha256", 8),
    ("sha256,verify", 8 | VERIFY),
    ("sha512", 11),
    ("sha512,verify", 11 | VERIFY),
    ("skein", 12),
    ("skein,verify", 12 | VERIFY),
    ("edonr,verify", 13 | VERIFY),
    ("blake3", 14),
    ("blake3,verify", 14 | VERIFY),
];

/// Zstandard with an explicit level: the algorithm in the low seven bits, the level above.
const fn zstd(level: u64) -> u64 {
    16 | level << 7
}

/// Zstandard's negative levels follow number 102.
const fn zstd_fast(ordinal: u64) -> u64 {
    zstd(102 + ordinal)
}

/// `compression`.
pub const COMPRESSION: Names = &[
    ("on", 1),
    ("off", 2),
    ("lzjb", 3),
    ("gzip", 10),
    ("gzip-1", 5),
    ("gzip-2", 6),
    ("gzip-3", 7),
    ("gzip-4", 8),
    ("gzip-5", 9),
    ("gzip-6", 10),
    ("gzip-7", 11),
    ("gzip-8", 12),
    ("gzip-9", 13),
    ("zle", 14),
    ("lz4", 15),
    ("zstd", 16),
    ("zstd-fast", zstd_fast(1)),
    ("zstd-1", zstd(1)),
    ("zstd-2", zstd(2)),
    ("zstd-3", zstd(3)),
    ("zstd-4", zstd(4)),
    ("zstd-5", zstd(5)),
    ("zstd-6", zstd(6)),
    ("zstd-7", zstd(7)),
    ("zstd-8", zstd(8)),
    ("zstd-9", zstd(9)),
    ("zstd-10", zstd(10)),
    ("zstd-11", zstd(11)),
    ("zstd-12", zstd(12)),
    ("zstd-13", zstd(13)),
    ("zstd-14", zstd(14)),
    ("zstd-15", zstd(15)),
    ("zstd-16", zstd(16)),
    ("zstd-17", zstd(17)),
    ("zstd-18", zstd(18)),
    ("zstd-19", zstd(19)),
    ("zstd-fast-1", zstd_fast(1)),
    ("zstd-fast-2", zstd_fast(2)),
    ("zstd-fast-3", zstd_fast(3)),
    ("zstd-fast-4", zstd_fast(4)),
    ("zstd-fast-5", zstd_fast(5)),
    ("zstd-fast-6", zstd_fast(6)),
    ("zstd-fast-7", zstd_fast(7)),
    ("zstd-fast-8", zstd_fast(8)),
    ("zstd-fast-9", zstd_fast(9)),
    ("zstd-fast-10", zstd_fast(10)),
    ("zstd-fast-20", zstd_fast(11)),
    ("zstd-fast-30", zstd_fast(12)),
    ("zstd-fast-40", zstd_fast(13)),
    ("zstd-fast-50", zstd_fast(14)),
    ("zstd-fast-60", zstd_fast(15)),
    ("zstd-fast-70", zstd_fast(16)),
    ("zstd-fast-80", zstd_fast(17)),
    ("zstd-fast-90", zstd_fast(18)),
    ("zstd-fast-100", zstd_fast(19)),
    ("zstd-fast-500", zstd_fast(20)),
    ("zstd-fast-1000", zstd_fast(21)),
];

/// `encryption`.
pub const ENCRYPTION: Names = &[
    ("on", 1),
    ("off", 2),
    ("aes-128-ccm", 3),
    ("aes-192-ccm", 4),
    ("aes-256-ccm", 5),
    ("aes-128-gcm", 6),
    ("aes-192-gcm", 7),
    ("aes-256-gcm", 8),
];
/// `keyformat`.
pub const KEYFORMAT: Names = &[("none", 0), ("raw", 1), ("hex", 2), ("passphrase", 3)];
/// `keystatus`.
pub const KEYSTATUS: Names = &[("none", 0), ("unavailable", 1), ("available", 2)];
/// `snapdir`.
pub const SNAPDIR: Names = &[("hidden", 0), ("visible", 1), ("disabled", 2)];
/// `snapdev`.
pub const SNAPDEV: Names = &[("hidden", 0), ("visible", 1)];
/// `aclmode`.
pub const ACLMODE: Names = &[("discard", 0), ("groupmask", 2), ("passthrough", 3), ("restricted", 4)];
/// `acltype`; the last three are older spellings.
pub const ACLTYPE: Names =
    &[("off", 0), ("posix", 1), ("nfsv4", 2), ("disabled", 0), ("noacl", 0), ("posixacl", 1)];
/// `aclinherit`; `secure` is an older spelling.
pub const ACLINHERIT: Names = &[
    ("discard", 0),
    ("noallow", 1),
    ("restricted", 4),
    ("passthrough", 3),
    ("secure", 4),
    ("passthrough-x", 5),
];
/// `casesensitivity`.
pub const CASE: Names = &[("sensitive", 0), ("insensitive", 1), ("mixed", 2)];
/// `copies`.
pub const COPIES: Names = &[("1", 1), ("2", 2), ("3", 3)];
/// `normalization`: the flags of the Unicode preparation of names.
pub const NORMALIZATION: Names =
    &[("none", 0), ("formD", 0x10), ("formKC", 0x60), ("formC", 0x50), ("formKD", 0x20)];
/// `version` of a filesystem.
pub const VERSION: Names = &[("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5), ("current", 5)];
/// `logbias`.
pub const LOGBIAS: Names = &[("latency", 0), ("throughput", 1)];
/// `canmount`.
pub const CANMOUNT: Names = &[("off", 0), ("on", 1), ("noauto", 2)];
/// `primarycache`, `secondarycache` and `prefetch`.
pub const NONE_METADATA_ALL: Names = &[("none", 0), ("metadata", 1), ("all", 2)];
/// `sync`.
pub const SYNC: Names = &[("standard", 0), ("always", 1), ("disabled", 2)];
/// `xattr`.
pub const XATTR: Names = &[("off", 0), ("sa", 2), ("on", 2), ("dir", 1)];
/// `dnodesize`.
pub const DNODESIZE: Names =
    &[("legacy", 0), ("auto", 1), ("1k", 1024), ("2k", 2048), ("4k", 4096), ("8k", 8192), ("16k", 16384)];
/// `redundant_metadata`.
pub const REDUNDANT_METADATA: Names = &[("all", 0), ("most", 1), ("some", 2), ("none", 3)];
/// `volmode`.
pub const VOLMODE: Names = &[("default", 0), ("full", 1), ("geom", 1), ("dev", 2), ("none", 3)];
/// `direct`.
pub const DIRECT: Names = &[("disabled", 0), ("standard", 1), ("always", 2)];
/// `failmode` of a pool.
pub const FAILMODE: Names = &[("wait", 0), ("continue", 1), ("panic", 2)];

/// The word shown for `value`.
pub fn word(names: Names, value: u64) -> Option<&'static str> {
    names.iter().find(|(_, number)| *number == value).map(|(word, _)| *word)
}

/// The number of `word`.
pub fn number(names: Names, word: &str) -> Option<u64> {
    names.iter().find(|(name, _)| *name == word).map(|(_, number)| *number)
}

/// The words to choose from, in the form for messages: levels of one kind as one.
pub fn choices(names: Names) -> String {
    let level = |word: &'static str| -> Option<(&'static str, u32)> {
        let (stem, level) = word.rsplit_once('-')?;
        Some((stem, level.parse().ok()?))
    };
    let mut shown: Vec<String> = Vec::new();
    let mut words = names.iter().map(|(word, _)| *word).peekable();
    while let Some(word) = words.next() {
        let Some((stem, first)) = level(word) else {
            shown.push(word.to_owned());
            continue;
        };
        let mut ranges = vec![first..=first];
        while let Some((_, next)) =
            words.next_if(|word| level(word).is_some_and(|(other, _)| other == stem)).and_then(level)
        {
            match ranges.last_mut() {
                Some(range) if range.end() + 1 == next => *range = *range.start()..=next,
                _ => ranges.push(next..=next),
            }
        }
        let told = ranges.iter().map(|range| match range.start() == range.end() {
            true => range.start().to_string(),
            false => format!("{}-{}", range.start(), range.end()),
        });
        shown.push(format!("{stem}-[{}]", told.collect::<Vec<_>>().join(",")));
    }
    shown.join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_of_many_levels_are_told_in_short() {
        assert_eq!(choices(SYNC), "standard | always | disabled");
        assert_eq!(choices(COPIES), "1 | 2 | 3");
        assert_eq!(
            choices(COMPRESSION),
            "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-fast | zstd-[1-19] | \
             zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]"
        );
    }

    #[test]
    fn the_first_word_of_a_number_is_shown_and_all_are_understood() {
        assert_eq!(word(COMPRESSION, 10), Some("gzip"));
        assert_eq!(number(COMPRESSION, "gzip-6"), Some(10));
        assert_eq!(word(XATTR, 2), Some("sa"));
        assert_eq!(word(VOLMODE, 1), Some("full"));
        assert_eq!(word(ACLTYPE, 9), None);
    }

    #[test]
    fn zstd_levels_stand_above_the_algorithm() {
        assert_eq!(number(COMPRESSION, "zstd-19"), Some(16 | 19 << 7));
        assert_eq!(word(COMPRESSION, 16 | 103 << 7), Some("zstd-fast"));
        assert_eq!(number(COMPRESSION, "zstd-fast-1000"), Some(16 | 123 << 7));
    }
}
