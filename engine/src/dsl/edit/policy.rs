//! How a dataset's blocks are written: its [`Policy`], from its properties and those that it inherits.
//!
//! The features that datasets count (large blocks, zstd, strong checksums, large dnodes) become a dataset's
//! own when it first writes under properties that may need them; OpenZFS waits for the first such block,
//! which a reader cannot tell apart.
//!
//! Source of the facts: OpenZFS 2.3 `dmu_objset.c` (property callbacks), `zio_checksum.c`, `zio_compress.c`.

use ondisk::ObjectId;
use ondisk::blkptr::{ChecksumType, CompressType};
use ondisk::dsl_dir::DslDirPhys;
use ondisk::dsl_dir::field::CRYPTO_KEY_OBJ;
use ondisk::features::Feature;
use ondisk::pool_version as version;
use ondisk::{ObjsetId, Txg};

use super::{features, objects, properties, space};
use crate::cache::Primary;
use crate::dmu::Policy;
use crate::dsl::{Settings, SyncTask};
use crate::error::Result;
use crate::properties::Prop;
use crate::zil::SyncMode;
use crate::zio::Dedup;
use crate::zpl::live::XattrPlace;
use crate::zpl::{self, AclRules, AclType};

/// `on` of `checksum` and `compression`.
const ON: u64 = 1;
/// `off` of `dedup`.
const OFF: u64 = 2;
/// The bit of values of `dedup` that have blocks compared.
const VERIFY: u64 = 1 << 8;
/// Level code of compressions without levels, and of zstd's default level.
const DEFAULT_LEVEL: u8 = 255;

/// The policy of a head.
pub async fn policy(s: &SyncTask, dataset: ObjsetId) -> Result<Policy> {
    let phys = objects::dataset(s, ObjectId(dataset.get())).await?;
    of_dir(s, phys.dir).await
}

/// How a head behaves while it is open.
pub async fn settings(s: &SyncTask, dataset: ObjsetId) -> Result<Settings> {
    let phys = objects::dataset(s, ObjectId(dataset.get())).await?;
    let chain = space::chain(s, phys.dir).await?;
    Ok(Settings {
        sync: match properties::effective(s, &chain, Prop::Sync).await? {
            1 => SyncMode::Always,
            2 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        },
        for_throughput: properties::effective(s, &chain, Prop::Logbias).await? == 1,
        read_only: properties::effective(s, &chain, Prop::Readonly).await? != 0,
        primary_cache: Primary::from_number(properties::effective(s, &chain, Prop::Primarycache).await?),
        secondary_cache: Primary::from_number(properties::effective(s, &chain, Prop::Secondarycache).await?),
        filesystem: filesystem(s, &chain).await?,
    })
}

/// How a filesystem behaves while it is open.
async fn filesystem(s: &SyncTask, chain: &[(ObjectId, DslDirPhys)]) -> Result<zpl::Settings> {
    let number = async |prop| properties::effective(s, chain, prop).await;
    Ok(zpl::Settings {
        record_size: u32::try_from(number(Prop::Recordsize).await?).unwrap_or(u32::MAX),
        dnode_slots: zpl::Settings::slots(number(Prop::Dnodesize).await?),
        atime: zpl::Settings::atime(number(Prop::Atime).await? != 0, number(Prop::Relatime).await? != 0),
        xattrs: match number(Prop::Xattr).await? {
            0 => None,
            1 => Some(XattrPlace::Directory),
            _ => Some(XattrPlace::Attributes),
        },
        acl: match number(Prop::Acltype).await? {
            1 => AclType::Posix,
            2 => AclType::Nfs4,
            _ => AclType::Off,
        },
        acl_rules: AclRules::from_numbers(number(Prop::Aclinherit).await?, number(Prop::Aclmode).await?),
        long_names: number(Prop::Longname).await? != 0,
    })
}

/// Lets what is open of these datasets write and behave as their properties say now. What cannot be written
/// is not open.
pub(super) async fn refresh(s: &SyncTask, datasets: &[ObjsetId]) -> Result<()> {
    for id in datasets {
        if let Some(open) = s.open_dataset(*id) {
            let policy = policy(s, *id).await?;
            let next = Txg(s.txg().get() + 1);
            match open.room.write_more_copies(next, policy.copies) {
                true => open.objset.set_policy(policy),
                // What is accepted already is written as it was accepted.
                false => open.objset.set_policy_since(Txg(next.get() + 1), policy),
            }
            open.set(settings(s, *id).await?);
        }
    }
    Ok(())
}

/// Whether a directory's datasets are encrypted.
pub(super) async fn is_encrypted(s: &SyncTask, dir: ObjectId) -> Result<bool> {
    Ok(objects::field(s, dir, CRYPTO_KEY_OBJ).await?.is_some_and(|key| key != 0))
}

/// The policy of the head of a directory.
pub(super) async fn of_dir(s: &SyncTask, dir: ObjectId) -> Result<Policy> {
    let chain = space::chain(s, dir).await?;
    let can_dedup = s.has_version(version::DEDUP);
    let (compress, zstd_level) = compression(properties::effective(s, &chain, Prop::Compression).await?);
    Ok(Policy {
        checksum: checksum(properties::effective(s, &chain, Prop::Checksum).await?),
        compress,
        zstd_level,
        copies: properties::effective(s, &chain, Prop::Copies).await?.clamp(1, 3) as u8,
        redundant_metadata: redundant_metadata(
            properties::effective(s, &chain, Prop::RedundantMetadata).await?,
        ),
        special_small_blocks: properties::effective(s, &chain, Prop::SpecialSmallBlocks).await?,
        dedup: dedup(properties::effective(s, &chain, Prop::Dedup).await?).filter(|_| can_dedup),
    })
}

/// What a value of `redundant_metadata` is in a [`Policy`], which numbers `none` and `some` the other way
/// round.
fn redundant_metadata(value: u64) -> u8 {
    match value {
        0 | 1 => value as u8,
        2 => 3,
        _ => 2,
    }
}

/// The checksum that a value of `checksum` means.
fn checksum(value: u64) -> ChecksumType {
    match u8::try_from(value).ok().and_then(|raw| ChecksumType::from_raw(raw).ok()) {
        None | Some(ChecksumType::Inherit | ChecksumType::On) => ChecksumType::Fletcher4,
        Some(checksum) => checksum,
    }
}

/// What a value of `dedup` means. A function that is not strong enough to tell blocks apart has them
/// compared. One that no table can have, which no version sets, turns it off.
fn dedup(value: u64) -> Option<(ChecksumType, Dedup)> {
    let checksum = match value & !VERIFY {
        OFF => return None,
        ON => ChecksumType::Sha256,
        raw => u8::try_from(raw).ok().and_then(|raw| ChecksumType::from_raw(raw).ok())?,
    };
    match value & VERIFY != 0 || !checksum.is_dedup() {
        _ if !checksum.is_nopwrite() => None,
        true => Some((checksum, Dedup::Verified)),
        false => Some((checksum, Dedup::ByChecksum)),
    }
}

/// The compression and level code that a value of `compression` means. `On` is the pool's choice.
fn compression(value: u64) -> (CompressType, u8) {
    if value == ON {
        return (CompressType::On, DEFAULT_LEVEL);
    }
    let level = match u8::try_from(value >> 7) {
        Ok(level @ 1..) => level,
        _ => DEFAULT_LEVEL,
    };
    match CompressType::from_raw((value & 0x7f) as u8) {
        Ok(CompressType::Inherit | CompressType::On) | Err(_) => (CompressType::On, DEFAULT_LEVEL),
        Ok(compress) => (compress, level),
    }
}

/// The features that what a dataset writes under its properties may need.
pub(super) async fn activate_features(s: &SyncTask, dataset: ObjectId) -> Result<()> {
    let phys = objects::dataset(s, dataset).await?;
    let chain = space::chain(s, phys.dir).await?;
    let mut needed = Vec::new();
    needed.extend(features::of_checksum(checksum(properties::effective(s, &chain, Prop::Checksum).await?)));
    let dedup = dedup(properties::effective(s, &chain, Prop::Dedup).await?);
    needed.extend(dedup.and_then(|(checksum, _)| features::of_checksum(checksum)));
    let (compress, _) = compression(properties::effective(s, &chain, Prop::Compression).await?);
    needed.extend(features::of_compression(compress));
    if properties::effective(s, &chain, Prop::Longname).await? != 0 {
        needed.push(Feature::Longname);
    }
    needed.retain(|feature| s.feature_enabled(*feature));
    features::activate_all(s, dataset, &needed).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_means_the_default_of_the_day() {
        assert_eq!(checksum(1), ChecksumType::Fletcher4);
        assert_eq!(checksum(8), ChecksumType::Sha256);
        assert_eq!(dedup(2), None);
        assert_eq!(dedup(1), Some((ChecksumType::Sha256, Dedup::ByChecksum)));
        assert_eq!(dedup(1 | VERIFY), Some((ChecksumType::Sha256, Dedup::Verified)));
        assert_eq!(dedup(14), Some((ChecksumType::Blake3, Dedup::ByChecksum)));
        assert_eq!(dedup(13), Some((ChecksumType::Edonr, Dedup::Verified)));
        assert_eq!((dedup(7 | VERIFY), dedup(0)), (None, None));
        assert_eq!(compression(1), (CompressType::On, DEFAULT_LEVEL));
        assert_eq!(compression(2).0, CompressType::Off);
        assert_eq!(compression(16), (CompressType::Zstd, DEFAULT_LEVEL));
        assert_eq!(compression(16 | 19 << 7), (CompressType::Zstd, 19));
    }
}
