//! Features that datasets use.
//!
//! A feature of the kind *per dataset* is counted by the datasets that use it: each says so with an entry
//! under the feature's guid in the ZAP that its object is. A snapshot or clone uses what its origin used. A
//! dataset begins to use a feature when it is first written under properties that need it; it never stops
//! before it is destroyed.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dataset.c`.

use ondisk::blkptr::{ChecksumType, CompressType};
use ondisk::features::{Feature, Flags};
use ondisk::pool_directory::{FEATURES_FOR_READ, FEATURES_FOR_WRITE};
use ondisk::zap::ZapValue;
use ondisk::{ObjectId, ObjsetId};

use super::objects;
use crate::dsl::SyncTask;
use crate::error::Result;

/// How often a feature is used.
pub(super) async fn count(s: &SyncTask, feature: Feature) -> Result<u64> {
    let name = match feature.is_readonly_compatible() {
        true => FEATURES_FOR_WRITE,
        false => FEATURES_FOR_READ,
    };
    match objects::pool_entry(s, name).await? {
        Some(zap) => Ok(objects::lookup(s, zap, &objects::name(feature.guid())).await?.unwrap_or(0)),
        None => Ok(0),
    }
}

/// Whether a feature is in use.
pub(super) async fn is_active(s: &SyncTask, feature: Feature) -> Result<bool> {
    Ok(count(s, feature).await? > 0)
}

fn per_dataset() -> impl Iterator<Item = Feature> {
    Feature::ALL.iter().copied().filter(|feature| feature.info().flags.contains(Flags::PER_DATASET))
}

/// The features that a dataset uses, with what it notes of them.
pub(super) async fn of_dataset(s: &SyncTask, id: ObjectId) -> Result<Vec<(Feature, ZapValue)>> {
    let mut found = Vec::new();
    if objects::is_zapified(s, id).await? {
        let entries = objects::mos(s).entries(id).await?;
        for feature in per_dataset() {
            let entry = entries.iter().find(|(key, _)| key == feature.guid());
            found.extend(entry.map(|(_, value)| (feature, value.clone())));
        }
    }
    Ok(found)
}

/// A dataset begins to use a feature, if it does not yet.
pub(super) async fn activate(s: &SyncTask, id: ObjectId, feature: Feature, value: &ZapValue) -> Result<()> {
    if objects::field(s, id, feature.guid()).await?.is_some() {
        return Ok(());
    }
    s.use_feature(feature, 1).await?;
    objects::zapify(s, id).await?;
    objects::add(s, id, &objects::name(feature.guid()), value).await
}

/// A dataset begins to use features that need no notes.
pub(super) async fn activate_all(s: &SyncTask, id: ObjectId, features: &[Feature]) -> Result<()> {
    for feature in features {
        activate(s, id, *feature, &objects::one(0)).await?;
    }
    Ok(())
}

/// Whether the intent log of a dataset may have records of extended attributes inside files.
pub async fn logs_xattrs(s: &SyncTask, dataset: ObjsetId) -> Result<bool> {
    let field = objects::field(s, ObjectId(dataset.get()), Feature::Zilsaxattr.guid());
    Ok(field.await?.is_some())
}

/// The intent log of a dataset may have such records when this group is committed.
pub async fn log_xattrs(s: &SyncTask, dataset: ObjsetId) -> Result<()> {
    activate_all(s, ObjectId(dataset.get()), &[Feature::Zilsaxattr]).await
}

/// A filesystem begins to count files and projects, as far as that is enabled.
pub async fn count_files(s: &SyncTask, dataset: ObjsetId) -> Result<()> {
    let mut counting = vec![Feature::UserobjAccounting, Feature::ProjectQuota];
    counting.retain(|feature| s.feature_enabled(*feature));
    activate_all(s, ObjectId(dataset.get()), &counting).await
}

/// A dataset uses what another uses.
pub(super) async fn copy(s: &SyncTask, from: ObjectId, to: ObjectId) -> Result<()> {
    for (feature, value) in of_dataset(s, from).await? {
        activate(s, to, feature, &value).await?;
    }
    Ok(())
}

/// A dataset uses no features any more.
pub(super) async fn deactivate_all(s: &SyncTask, id: ObjectId) -> Result<()> {
    for (feature, _) in of_dataset(s, id).await? {
        objects::take(s, id, &objects::name(feature.guid())).await?;
        s.use_feature(feature, -1).await?;
    }
    Ok(())
}

/// Two datasets exchange what they use.
pub(super) async fn swap(s: &SyncTask, a: ObjectId, b: ObjectId) -> Result<()> {
    let (of_a, of_b) = (of_dataset(s, a).await?, of_dataset(s, b).await?);
    deactivate_all(s, a).await?;
    deactivate_all(s, b).await?;
    for (to, features) in [(b, of_a), (a, of_b)] {
        for (feature, value) in features {
            activate(s, to, feature, &value).await?;
        }
    }
    Ok(())
}

/// The feature that blocks with this checksum need.
pub(crate) fn of_checksum(checksum: ChecksumType) -> Option<Feature> {
    match checksum {
        ChecksumType::Sha512 => Some(Feature::Sha512),
        ChecksumType::Skein => Some(Feature::Skein),
        ChecksumType::Edonr => Some(Feature::Edonr),
        ChecksumType::Blake3 => Some(Feature::Blake3),
        _ => None,
    }
}

/// The feature that blocks with this compression need, if it is one of datasets.
pub(crate) fn of_compression(compress: CompressType) -> Option<Feature> {
    (compress == CompressType::Zstd).then_some(Feature::ZstdCompress)
}
