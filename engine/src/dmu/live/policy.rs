//! How each block of an object set is written (`dmu_write_policy`, `spa_preferred_class`).
//!
//! Source of the facts: OpenZFS 2.3 `dmu.c`, `zio.c`, `spa_misc.c`.

use ondisk::ObjsetId;
use ondisk::blkptr::{ChecksumType, CompressType};
use ondisk::dmu::DmuType;
use ondisk::dnode::Dnode;

use super::Policy;
use crate::vdev::Class;
use crate::zio::{Dedup, Seal};

/// From this level on, `redundant_metadata=most` keeps another copy of indirect blocks.
const MOST_DITTO_LEVEL: u8 = 2;
/// The most copies of blocks of private types in encrypted object sets: the third address is salt and IV.
const ENCRYPTED_COPIES: u8 = 2;
/// Copies of everything in the MOS.
const MOS_COPIES: u8 = 3;

/// The parameters for writing one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) checksum: ChecksumType,
    pub(super) compress: CompressType,
    pub(super) zstd_level: u8,
    pub(super) copies: u8,
    pub(super) class: Class,
    pub(super) small_bytes: u64,
    pub(super) may_embed: bool,
    pub(super) nopwrite: bool,
    pub(super) dedup: Option<Dedup>,
}

/// The block in question.
#[derive(Debug, Clone, Copy)]
pub(super) struct Which {
    /// Its level in its tree.
    pub(super) level: u8,
    /// The type in its pointer.
    pub(super) dmu_type: DmuType,
    /// Whether it is a spill block, which is metadata whatever its type is.
    pub(super) is_spill: bool,
}

impl Which {
    fn is_metadata(self) -> bool {
        self.level > 0 || self.dmu_type.is_metadata() || self.is_spill
    }
}

impl Way {
    /// The same in an object set whose blocks are protected by `seal`, and how this block is.
    pub(super) fn with(self, seal: Option<Seal>, which: Which) -> (Self, Option<Seal>) {
        let Some(seal) = seal else { return (self, None) };
        let way = self.sealed(which);
        (way, Some(if way.dedup.is_some() { seal.for_dedup() } else { seal }))
    }

    /// The same in an encrypted object set. Dnodes and object sets are not compressed there, so that what is
    /// readable in them is. Only what is encrypted is deduplicated: entries of tables do not tell types, and
    /// what is only authenticated has a MAC and three addresses.
    pub(super) fn sealed(self, which: Which) -> Self {
        let is_private = which.dmu_type.is_encrypted();
        let is_bare = which.level == 0 && matches!(which.dmu_type, DmuType::DNODE | DmuType::OBJSET);
        Self {
            copies: if is_private { self.copies.min(ENCRYPTED_COPIES) } else { self.copies },
            compress: if is_bare { CompressType::Empty } else { self.compress },
            may_embed: false,
            nopwrite: false,
            dedup: self.dedup.filter(|_| is_private),
            ..self
        }
    }
}

impl Policy {
    /// Whether encoding blocks of data takes a different time than under `before`.
    pub(super) fn is_encoded_otherwise(&self, before: &Self) -> bool {
        let of = |policy: &Self| (policy.compress, policy.zstd_level, policy.checksum, policy.dedup);
        of(self) != of(before)
    }

    /// The parameters for writing a block. `dnode` is that of its object, or none for an object set's own
    /// block.
    pub(super) fn way(&self, objset: ObjsetId, dnode: Option<&Dnode>, which: Which) -> Way {
        let is_metadata = which.is_metadata();
        let (checksum, compress, copies) = if is_metadata {
            let more = u8::from(self.is_redundant(which));
            (metadata_checksum(self.checksum), CompressType::On, self.copies.saturating_add(more))
        } else {
            let checksum = dnode.map_or(ChecksumType::Inherit, |dnode| dnode.checksum);
            let compress = dnode.map_or(CompressType::Inherit, |dnode| dnode.compress);
            let checksum = match self.dedup {
                Some((checksum, _)) => checksum,
                None => data_checksum(checksum, self.checksum),
            };
            (checksum, data_compress(compress, self.compress), self.copies)
        };
        let dedup = self.dedup.map(|(_, dedup)| dedup).filter(|_| !is_metadata);
        let copies = if objset == ObjsetId::MOS { MOS_COPIES } else { copies.clamp(1, 3) };
        Way {
            checksum,
            compress,
            zstd_level: self.zstd_level,
            copies,
            class: class(which),
            small_bytes: if is_metadata { 0 } else { self.special_small_blocks },
            may_embed: which.level == 0 && !which.is_spill && !which.dmu_type.has_fill(),
            nopwrite: !is_metadata
                && dedup.is_none()
                && checksum.is_nopwrite()
                && compress != CompressType::Off,
            dedup,
        }
    }

    /// Whether a block of metadata has one more copy.
    fn is_redundant(&self, which: Which) -> bool {
        let metadata = which.dmu_type.is_metadata();
        match self.redundant_metadata {
            0 => true,
            1 => which.level >= MOST_DITTO_LEVEL || metadata || which.is_spill,
            3 => metadata && is_critical(which),
            _ => false,
        }
    }
}

/// The class of vdevs that a block belongs on.
pub(super) fn class(which: Which) -> Class {
    if matches!(which.dmu_type, DmuType::DDT_ZAP | DmuType::DDT_STATS) {
        Class::Dedup
    } else if which.is_metadata() {
        Class::Special
    } else {
        Class::Normal
    }
}

/// `DMU_OT_IS_CRITICAL`: without such blocks, many others are lost.
fn is_critical(which: Which) -> bool {
    (which.dmu_type != DmuType::DNODE || which.level > 0)
        && which.dmu_type != DmuType::DIRECTORY_CONTENTS
        && which.dmu_type != DmuType::SA
}

/// The checksum chosen for data if it is good enough for metadata, otherwise fletcher4.
fn metadata_checksum(chosen: ChecksumType) -> ChecksumType {
    use ChecksumType::*;
    match chosen {
        Sha256 | Sha512 | Skein | Edonr | Blake3 => chosen,
        _ => Fletcher4,
    }
}

fn data_checksum(of_object: ChecksumType, of_dataset: ChecksumType) -> ChecksumType {
    match (of_object, of_dataset) {
        (ChecksumType::Inherit, ChecksumType::On | ChecksumType::Inherit) | (ChecksumType::On, _) => {
            ChecksumType::Fletcher4
        }
        (ChecksumType::Inherit, chosen) | (chosen, _) => chosen,
    }
}

fn data_compress(of_object: CompressType, of_dataset: CompressType) -> CompressType {
    match (of_object, of_dataset) {
        (CompressType::Inherit, CompressType::Inherit) => CompressType::On,
        (CompressType::Inherit, chosen) | (chosen, _) => chosen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATASET: ObjsetId = ObjsetId(54);

    fn policy() -> Policy {
        Policy {
            checksum: ChecksumType::Off,
            compress: CompressType::Off,
            zstd_level: 0,
            copies: 1,
            redundant_metadata: 0,
            special_small_blocks: 4096,
            dedup: None,
        }
    }

    fn which(level: u8, dmu_type: DmuType) -> Which {
        Which { level, dmu_type, is_spill: false }
    }

    #[test]
    fn metadata_always_have_a_checksum_and_compression() {
        for which in [which(1, DmuType::ZVOL), which(0, DmuType::DIRECTORY_CONTENTS)] {
            let way = policy().way(DATASET, None, which);
            assert_eq!((way.checksum, way.compress), (ChecksumType::Fletcher4, CompressType::On));
            assert_eq!((way.copies, way.class), (2, Class::Special));
        }
        let data = policy().way(DATASET, None, which(0, DmuType::ZVOL));
        assert_eq!((data.checksum, data.compress, data.copies), (ChecksumType::Off, CompressType::Off, 1));
        let sha = Policy { checksum: ChecksumType::Sha256, ..policy() };
        assert_eq!(sha.way(DATASET, None, which(1, DmuType::ZVOL)).checksum, ChecksumType::Sha256);
    }

    #[test]
    fn redundant_metadata_says_which_blocks_have_another_copy() {
        let copies = |redundant_metadata, level, dmu_type| {
            Policy { redundant_metadata, ..policy() }.way(DATASET, None, which(level, dmu_type)).copies
        };
        let file = DmuType::PLAIN_FILE_CONTENTS;
        assert_eq!([0, 1, 2, 3].map(|setting| copies(setting, 1, file)), [2, 1, 1, 1]);
        assert_eq!([0, 1, 2, 3].map(|setting| copies(setting, 2, file)), [2, 2, 1, 1]);
        assert_eq!([0, 1, 2, 3].map(|setting| copies(setting, 0, DmuType::DNODE)), [2, 2, 1, 1]);
        assert_eq!([0, 1, 2, 3].map(|setting| copies(setting, 0, DmuType::OBJSET)), [2, 2, 1, 2]);
        assert_eq!(policy().way(ObjsetId::MOS, None, which(0, DmuType::UINT64_OTHER)).copies, 3);
    }

    #[test]
    fn data_alone_are_deduplicated_with_a_checksum_of_its_own_and_without_nop_writes() {
        let dedup = Some((ChecksumType::Sha256, Dedup::ByChecksum));
        let policy =
            Policy { dedup, compress: CompressType::Lz4, checksum: ChecksumType::Fletcher4, ..policy() };
        let data = policy.way(DATASET, None, which(0, DmuType::ZVOL));
        assert_eq!((data.checksum, data.dedup), (ChecksumType::Sha256, Some(Dedup::ByChecksum)));
        assert!(!data.nopwrite);
        let indirect = policy.way(DATASET, None, which(1, DmuType::ZVOL));
        assert_eq!((indirect.checksum, indirect.dedup), (ChecksumType::Fletcher4, None));
        let spill = Which { level: 0, dmu_type: DmuType::SA, is_spill: true };
        assert_eq!(policy.way(DATASET, None, spill).dedup, None);
    }

    #[test]
    fn encrypted_data_are_deduplicated_in_two_copies_at_most() {
        let dedup = Some((ChecksumType::Sha256, Dedup::Verified));
        let policy = Policy { dedup, copies: 3, ..policy() };
        let sealed = |dmu_type| {
            let which = which(0, dmu_type);
            policy.way(DATASET, None, which).sealed(which)
        };
        for (dmu_type, dedup, copies) in [
            (DmuType::ZVOL, Some(Dedup::Verified), 2),
            (DmuType::PLAIN_FILE_CONTENTS, Some(Dedup::Verified), 2),
            (DmuType::DIRECTORY_CONTENTS, None, 2),
        ] {
            let way = sealed(dmu_type);
            assert_eq!((way.dedup, way.copies, way.nopwrite), (dedup, copies, false), "{dmu_type}");
        }
        assert_eq!((sealed(DmuType::ZAP_OTHER).dedup, sealed(DmuType::ZAP_OTHER).copies), (None, 3));
    }

    #[test]
    fn small_data_and_all_metadata_may_go_to_the_special_class() {
        let of = |level, dmu_type| {
            let way = policy().way(DATASET, None, which(level, dmu_type));
            (way.class, way.small_bytes)
        };
        assert_eq!(of(0, DmuType::PLAIN_FILE_CONTENTS), (Class::Normal, 4096));
        assert_eq!(of(1, DmuType::PLAIN_FILE_CONTENTS), (Class::Special, 0));
        assert_eq!(of(0, DmuType::DDT_ZAP), (Class::Dedup, 0));
    }
}
