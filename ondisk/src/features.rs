//! Feature flags: what a pool of version 5000 may contain beyond version 28.
//!
//! Each feature has a guid, `reverse.dns:short_name`. A pool keeps these ZAPs in its MOS, keyed by guid:
//!
//! | ZAP | value |
//! |---|---|
//! | `features_for_read`, `features_for_write` | one u64: 0 = enabled, more = active, by so many users; absent = disabled |
//! | `feature_descriptions` | text for a person whose software does not know the guid |
//! | `feature_enabled_txg` | one u64: when it was enabled |
//!
//! A feature is in `features_for_write` when a pool that uses it may still be opened read-only by software
//! that does not know it, else in `features_for_read`. The labels repeat the guids of the active features
//! that are needed to read the MOS itself ([`Flags::MOS`]). A per-dataset feature is additionally recorded in
//! the ZAP of each dataset that uses it, under its guid: value 0, or an array of u64 for a feature of type
//! [`Flags::UINT64_ARRAY`].
//!
//! The order of [`Feature::ALL`] is the order of `zpool get all`. Source of the facts: OpenZFS 2.4
//! `zfeature_common.h` and `zfeature_common.c`. The descriptions are our own words; nothing depends on them.

use std::fmt;
use std::ops::BitOr;

/// Flags of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// None of the below.
    pub const NONE: Flags = Flags(0);
    /// Software that does not know the feature may still open the pool read-only.
    pub const READONLY_COMPAT: Flags = Flags(1);
    /// Needed to read the MOS, hence listed in the labels while active.
    pub const MOS: Flags = Flags(1 << 1);
    /// Becomes active in the moment it is enabled.
    pub const ACTIVATE_ON_ENABLE: Flags = Flags(1 << 2);
    /// Counted by the number of datasets that use it; each of them says so in its own ZAP.
    pub const PER_DATASET: Flags = Flags(1 << 3);
    /// The dataset's entry is an array of u64, not a bare mark.
    pub const UINT64_ARRAY: Flags = Flags(1 << 4);
    /// Enabled only where it is named: an upgrade to all features leaves it out, since boot loaders do not
    /// know it.
    pub const NO_UPGRADE: Flags = Flags(1 << 5);

    /// True when every flag of `other` is set in `self`.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    const fn union(all: &[Flags]) -> Flags {
        let mut bits = 0;
        let mut i = 0;
        while i < all.len() {
            bits |= all[i].0;
            i += 1;
        }
        Flags(bits)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Flags, &str); 6] = [
            (Flags::READONLY_COMPAT, "READONLY_COMPAT"),
            (Flags::MOS, "MOS"),
            (Flags::ACTIVATE_ON_ENABLE, "ACTIVATE_ON_ENABLE"),
            (Flags::PER_DATASET, "PER_DATASET"),
            (Flags::UINT64_ARRAY, "UINT64_ARRAY"),
            (Flags::NO_UPGRADE, "NO_UPGRADE"),
        ];
        f.debug_list().entries(NAMES.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, n)| n)).finish()
    }
}

/// Everything that is known of a feature before a pool is looked at.
#[derive(Clone, Copy, Debug)]
pub struct FeatureInfo {
    /// The feature itself.
    pub feature: Feature,
    /// The key in the feature ZAPs and in the datasets' ZAPs.
    pub guid: &'static str,
    /// The part after the colon of the guid, and after `feature@` in `zpool get`.
    pub name: &'static str,
    /// Its flags.
    pub flags: Flags,
    /// Features that must be enabled before this one (direct ones; they have their own).
    pub depends: &'static [Feature],
    /// One sentence for a person.
    pub description: &'static str,
}

macro_rules! features {
    ($($id:ident, $org:literal, $name:literal, [$($flag:ident),*], [$($dep:ident),*], $text:literal;)*) => {
        /// A feature flag that OpenZFS 2.4 knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Feature {
            $(#[doc = $text] $id,)*
        }

        impl Feature {
            /// Every feature, in the order in which `zpool get` lists them.
            pub const ALL: &'static [Feature] = &[$(Feature::$id),*];

            /// The description of this feature.
            pub const fn info(self) -> &'static FeatureInfo {
                match self {
                    $(Feature::$id => {
                        const INFO: FeatureInfo = FeatureInfo {
                            feature: Feature::$id,
                            guid: concat!($org, ":", $name),
                            name: $name,
                            flags: Flags::union(&[$(Flags::$flag),*]),
                            depends: &[$(Feature::$dep),*],
                            description: $text,
                        };
                        &INFO
                    })*
                }
            }

            /// The feature with this guid (`org.illumos:lz4_compress`).
            pub fn from_guid(guid: &str) -> Option<Feature> {
                match guid {
                    $(concat!($org, ":", $name) => Some(Feature::$id),)*
                    _ => None,
                }
            }

            /// The feature with this short name (`lz4_compress`).
            pub fn from_name(name: &str) -> Option<Feature> {
                match name {
                    $($name => Some(Feature::$id),)*
                    _ => None,
                }
            }
        }
    };
}

features! {
    AsyncDestroy, "com.delphix", "async_destroy", [READONLY_COMPAT], [], "Datasets are freed in the \
        background after a destroy.";
    EmptyBpobj, "com.delphix", "empty_bpobj", [READONLY_COMPAT], [], "Empty block lists share one object, so \
        snapshots cost less.";
    Lz4Compress, "org.illumos", "lz4_compress", [ACTIVATE_ON_ENABLE], [], "LZ4 compression.";
    MultiVdevCrashDump, "com.joyent", "multi_vdev_crash_dump", [], [], "Crash dumps may go to a volume on \
        more than one top-level vdev.";
    SpacemapHistogram, "com.delphix", "spacemap_histogram", [READONLY_COMPAT], [], "Space maps keep a \
        histogram of their free segments.";
    EnabledTxg, "com.delphix", "enabled_txg", [READONLY_COMPAT], [], "The txg in which each feature was \
        enabled is recorded.";
    HoleBirth, "com.delphix", "hole_birth", [MOS, ACTIVATE_ON_ENABLE], [EnabledTxg], "Holes remember when \
        they were punched, so incremental sends are exact.";
    ExtensibleDataset, "com.delphix", "extensible_dataset", [], [], "Datasets may carry extra fields; many \
        other features need it.";
    EmbeddedData, "com.delphix", "embedded_data", [MOS, ACTIVATE_ON_ENABLE], [], "A block that compresses to \
        112 bytes or less lives inside its block pointer.";
    Bookmarks, "com.delphix", "bookmarks", [READONLY_COMPAT], [ExtensibleDataset], "Bookmarks of snapshots.";
    FilesystemLimits, "com.joyent", "filesystem_limits", [READONLY_COMPAT], [ExtensibleDataset], "Limits on \
        the number of filesystems and snapshots.";
    LargeBlocks, "org.open-zfs", "large_blocks", [PER_DATASET], [ExtensibleDataset], "Records larger than \
        128 KiB.";
    LargeDnode, "org.zfsonlinux", "large_dnode", [PER_DATASET], [ExtensibleDataset], "Dnodes larger than 512 \
        bytes.";
    Sha512, "org.illumos", "sha512", [PER_DATASET], [ExtensibleDataset], "SHA-512/256 checksums.";
    Skein, "org.illumos", "skein", [PER_DATASET], [ExtensibleDataset], "Skein checksums.";
    Edonr, "org.illumos", "edonr", [PER_DATASET], [ExtensibleDataset], "Edon-R checksums.";
    UserobjAccounting, "org.zfsonlinux", "userobj_accounting", [READONLY_COMPAT, PER_DATASET], [ExtensibleDataset], "Objects are counted by owner and group.";
    Encryption, "com.datto", "encryption", [PER_DATASET], [ExtensibleDataset, BookmarkV2], "Native encryption of datasets.";
    ProjectQuota, "org.zfsonlinux", "project_quota", [READONLY_COMPAT, PER_DATASET], [ExtensibleDataset], "Space and objects are counted by project.";
    DeviceRemoval, "com.delphix", "device_removal", [MOS], [], "Top-level vdevs can be evacuated and \
        removed.";
    ObsoleteCounts, "com.delphix", "obsolete_counts", [READONLY_COMPAT], [ExtensibleDataset, DeviceRemoval], "The mapping of a removed vdev shrinks as its blocks are freed.";
    ZpoolCheckpoint, "com.delphix", "zpool_checkpoint", [READONLY_COMPAT], [], "The state of a pool can be \
        kept and gone back to.";
    SpacemapV2, "com.delphix", "spacemap_v2", [READONLY_COMPAT, ACTIVATE_ON_ENABLE], [], "Two-word space map \
        entries for large segments.";
    AllocationClasses, "org.zfsonlinux", "allocation_classes", [READONLY_COMPAT], [], "Separate vdevs for \
        metadata, small blocks and dedup tables.";
    ResilverDefer, "com.datto", "resilver_defer", [READONLY_COMPAT], [], "A new resilver may wait for the \
        running one.";
    BookmarkV2, "com.datto", "bookmark_v2", [], [ExtensibleDataset, Bookmarks], "Bookmarks may hold more \
        fields.";
    RedactionBookmarks, "com.delphix", "redaction_bookmarks", [], [BookmarkV2, ExtensibleDataset, Bookmarks], "Bookmarks that hold a list of redacted blocks.";
    RedactedDatasets, "com.delphix", "redacted_datasets", [PER_DATASET, UINT64_ARRAY], [ExtensibleDataset], "Datasets received from a redacted stream.";
    BookmarkWritten, "com.delphix", "bookmark_written", [], [BookmarkV2, ExtensibleDataset, Bookmarks], "Bookmarks account for the space written since.";
    LogSpacemap, "com.delphix", "log_spacemap", [READONLY_COMPAT], [SpacemapV2], "Changes of all metaslabs \
        are logged in one space map a txg.";
    Livelist, "com.delphix", "livelist", [READONLY_COMPAT], [ExtensibleDataset], "Clones list their own \
        blocks, so that destroying one is quick.";
    DeviceRebuild, "org.openzfs", "device_rebuild", [READONLY_COMPAT], [], "Sequential rebuild of mirrors \
        and draid.";
    ZstdCompress, "org.freebsd", "zstd_compress", [PER_DATASET], [ExtensibleDataset], "Zstandard \
        compression.";
    Draid, "org.openzfs", "draid", [MOS], [], "Distributed-spare raid.";
    Zilsaxattr, "org.openzfs", "zilsaxattr", [PER_DATASET, READONLY_COMPAT], [ExtensibleDataset], "Extended attributes of xattr=sa are logged in the intent log.";
    HeadErrlog, "com.delphix", "head_errlog", [ACTIVATE_ON_ENABLE], [], "Error logs are kept by head \
        dataset.";
    Blake3, "org.openzfs", "blake3", [PER_DATASET], [ExtensibleDataset], "BLAKE3 checksums.";
    BlockCloning, "com.fudosecurity", "block_cloning", [READONLY_COMPAT], [], "Blocks can be shared by \
        reference (reflinks).";
    VdevZapsV2, "com.klarasystems", "vdev_zaps_v2", [MOS], [], "The root vdev has a ZAP of its own.";
    RedactionListSpill, "com.delphix", "redaction_list_spill", [], [RedactionBookmarks], "Redaction lists \
        may name more snapshots.";
    RaidzExpansion, "org.openzfs", "raidz_expansion", [MOS], [], "A raidz vdev can grow by a disk.";
    FastDedup, "com.klarasystems", "fast_dedup", [READONLY_COMPAT], [], "Dedup tables with a log, a flat \
        value and pruning.";
    Longname, "org.zfsonlinux", "longname", [PER_DATASET], [ExtensibleDataset], "File names of up to 1023 \
        bytes.";
    LargeMicrozap, "com.klarasystems", "large_microzap", [PER_DATASET, READONLY_COMPAT], [ExtensibleDataset, LargeBlocks], "Microzaps larger than 128 KiB.";
    DynamicGangHeader, "com.klarasystems", "dynamic_gang_header", [MOS, NO_UPGRADE], [], "Gang headers are \
        as large as the smallest allocation.";
    BlockCloningEndian, "com.truenas", "block_cloning_endian", [READONLY_COMPAT], [], "Counts of cloned \
        blocks are stored as numbers, not as bytes.";
    PhysicalRewrite, "com.truenas", "physical_rewrite", [READONLY_COMPAT, PER_DATASET], [ExtensibleDataset], "A rewritten block keeps its logical birth.";
}

impl Feature {
    /// The key in the feature ZAPs.
    pub const fn guid(self) -> &'static str {
        self.info().guid
    }

    /// The short name.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// True when a pool in which it is active may be opened read-only by software without it.
    pub const fn is_readonly_compatible(self) -> bool {
        self.info().flags.contains(Flags::READONLY_COMPAT)
    }

    /// True when new pools have it unasked: the stable distributions' OpenZFS 2.3 knows it.
    pub const fn is_usual(self) -> bool {
        (self as u8) < Feature::DynamicGangHeader as u8
    }

    /// True when an upgrade to all features enables it; others must be named.
    pub const fn is_upgraded(self) -> bool {
        !self.info().flags.contains(Flags::NO_UPGRADE)
    }

    /// True when datasets record their use of it.
    pub const fn is_per_dataset(self) -> bool {
        self.info().flags.contains(Flags::PER_DATASET)
    }
}

/// The state of a feature in one pool, from its reference count in the feature ZAPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureState {
    /// No entry.
    Disabled,
    /// An entry of 0: allowed, but nothing on disk uses it.
    Enabled,
    /// Something on disk uses it, this many times.
    Active(u64),
}

impl FeatureState {
    /// From what the ZAP holds under the feature's guid.
    pub const fn from_refcount(entry: Option<u64>) -> FeatureState {
        match entry {
            None => FeatureState::Disabled,
            Some(0) => FeatureState::Enabled,
            Some(n) => FeatureState::Active(n),
        }
    }
}

impl fmt::Display for FeatureState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FeatureState::Disabled => "disabled",
            FeatureState::Enabled => "enabled",
            FeatureState::Active(_) => "active",
        })
    }
}

/// True when `guid` has the form that a feature guid must have: `[a-z0-9.-]*:[a-z0-9_]*`, exactly one colon.
pub fn is_valid_guid(guid: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    guid.split_once(':').is_some_and(|(org, name)| {
        org.bytes().all(|c| plain(c) || c == b'.' || c == b'-') && name.bytes().all(|c| plain(c) || c == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        assert_eq!(Feature::ALL.len(), 47);
        for (i, &f) in Feature::ALL.iter().enumerate() {
            let info = f.info();
            assert_eq!(info.feature as usize, i);
            assert_eq!(info.feature, f);
            assert_eq!(Feature::from_guid(info.guid), Some(f));
            assert_eq!(Feature::from_name(info.name), Some(f));
            assert!(is_valid_guid(info.guid), "{}", info.guid);
            assert!(!info.depends.contains(&f));
            if f.is_per_dataset() {
                assert!(info.depends.contains(&Feature::ExtensibleDataset), "{f:?}");
            }
            assert!(!info.flags.contains(Flags::READONLY_COMPAT | Flags::MOS), "{f:?}");
        }
    }

    #[test]
    fn new_pools_have_what_openzfs_2_3_knows() {
        let newer: Vec<&str> = Feature::ALL.iter().filter(|f| !f.is_usual()).map(|f| f.name()).collect();
        assert_eq!(newer, ["dynamic_gang_header", "block_cloning_endian", "physical_rewrite"]);
        assert!(Feature::ALL.iter().all(|f| f.is_upgraded() == (*f != Feature::DynamicGangHeader)));
    }

    #[test]
    fn a_guid_has_exactly_one_colon() {
        assert!(is_valid_guid("org.open-zfs:large_blocks"));
        assert!(!is_valid_guid("large_blocks"));
        assert!(!is_valid_guid("a:b:c"));
        assert!(!is_valid_guid("com.Delphix:x"));
        assert!(!is_valid_guid("com.delphix:a-b"));
    }

    #[test]
    fn the_refcount_tells_the_state() {
        assert_eq!(FeatureState::from_refcount(None).to_string(), "disabled");
        assert_eq!(FeatureState::from_refcount(Some(0)).to_string(), "enabled");
        assert_eq!(FeatureState::from_refcount(Some(3)).to_string(), "active");
    }
}
