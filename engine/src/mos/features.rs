//! The version of a pool that is written, and its features: reference counts in memory and in the MOS.
//!
//! A feature that is enabled has an entry in one of two ZAPs; one that is used has a count above zero there.
//! Those that a reader must know before it can read the MOS are named in every label too, so that using the
//! first of them, or no longer using it, makes the labels out of date.
//!
//! Source of the facts: OpenZFS 2.3 `zfeature.c`.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `counts` | the counts; for a few lines, never across an await | alone |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use device::IgnorePoison;
use ondisk::features::{Feature, Flags};
use ondisk::nvlist::{NvValue, Nvlist};
use ondisk::pool_directory as directory;
use ondisk::pool_version;

use super::MosTask;
use crate::dmu::zap;
use crate::error::{Error, Result};
use crate::zio::{GangHeaders, WriterFeatures};

/// The version of a pool, and counts of the features that are enabled.
#[derive(Debug)]
pub struct LiveFeatures {
    version: AtomicU64,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// Other features are named in labels than since labels were last written.
    labels_are_old: AtomicBool,
}

impl LiveFeatures {
    /// Those of a pool of this version.
    pub(crate) fn new(version: u64, counts: impl IntoIterator<Item = (Feature, u64)>) -> Self {
        let counts = counts.into_iter().map(|(feature, count)| (feature.guid(), count)).collect();
        Self { version: version.into(), counts: Mutex::new(counts), labels_are_old: false.into() }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.counts.lock().ignore_poison()
    }

    /// The version of the pool.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::Release);
    }

    /// The count of a feature; absent when it is not enabled.
    pub(crate) fn count(&self, feature: Feature) -> Option<u64> {
        self.counts().get(feature.guid()).copied()
    }

    /// What the labels say.
    pub(crate) fn for_labels(&self) -> Nvlist {
        let mut list = Nvlist::new();
        let counts = self.counts();
        let mut names: Vec<&str> = counts
            .iter()
            .filter(|(_, count)| **count > 0)
            .filter_map(|(guid, _)| Feature::from_guid(guid))
            .filter(|feature| feature.info().flags.contains(Flags::MOS))
            .map(Feature::guid)
            .collect();
        names.sort_unstable();
        for name in names {
            list.push(name, NvValue::Boolean);
        }
        list
    }

    /// Whether labels name other features than [`Self::for_labels`] since this was last asked: the caller
    /// writes them.
    pub(crate) fn take_labels_are_old(&self) -> bool {
        self.labels_are_old.swap(false, Ordering::Relaxed)
    }

    /// What the blocks of the pool may be.
    pub(super) fn of_writer(&self) -> WriterFeatures {
        let version = self.version();
        let active = |feature| self.count(feature).is_some_and(|count| count > 0);
        WriterFeatures {
            hole_birth: active(Feature::HoleBirth),
            embedded_data: self.count(Feature::EmbeddedData).is_some(),
            lz4_compress: active(Feature::Lz4Compress),
            intent_logs: version >= pool_version::FAST_SNAP,
            gang_headers: match self.count(Feature::DynamicGangHeader) {
                None => GangHeaders::Small,
                Some(0) => GangHeaders::SmallYet,
                Some(_) => GangHeaders::Large,
            },
            max_copies: match version >= pool_version::DITTO_BLOCKS {
                true => WriterFeatures::ALL.max_copies,
                false => 1,
            },
            used_in_bytes: version >= pool_version::DNODE_BYTES,
        }
    }
}

/// The pool directory's name of the ZAP in which a feature is counted.
fn list_of(feature: Feature) -> &'static str {
    match feature.is_readonly_compatible() {
        true => directory::FEATURES_FOR_WRITE,
        false => directory::FEATURES_FOR_READ,
    }
}

/// Enables a feature and those that it depends on. Nothing when it is enabled.
pub(super) async fn enable(m: &MosTask, feature: Feature) -> Result<()> {
    if m.feature_enabled(feature) {
        return Ok(());
    }
    for needed in feature.info().depends {
        Box::pin(enable(m, *needed)).await?;
    }
    let info = feature.info();
    let description = info.description.bytes().chain([0]).collect();
    let key = zap::Key::Name(feature.guid().into());
    let descriptions = m.directory_object(directory::FEATURE_DESCRIPTIONS).await?;
    zap::edit::set(&descriptions, &m.tx, &key, &zap::Value::U8(description)).await?;
    store(m, feature, u64::from(info.flags.contains(Flags::ACTIVATE_ON_ENABLE))).await?;
    if m.feature_enabled(Feature::EnabledTxg) {
        let txgs = match m.directory_u64(directory::FEATURE_ENABLED_TXG).await? {
            Some(_) => m.directory_object(directory::FEATURE_ENABLED_TXG).await?,
            None => m.create_in_directory(directory::FEATURE_ENABLED_TXG).await?,
        };
        change(m, Feature::EnabledTxg, 1).await?;
        zap::edit::set(&txgs, &m.tx, &key, &zap::Value::U64(vec![m.txg().get()])).await?;
    }
    Ok(())
}

/// Counts more or fewer uses of a feature.
pub(super) async fn change(m: &MosTask, feature: Feature, by: i64) -> Result<()> {
    let count = m.feature_count(feature).ok_or_else(|| {
        Error::Unsupported(format!(
            "feature@{} is not enabled on this pool; see zpool upgrade",
            feature.name()
        ))
    })?;
    let changed = count.checked_add_signed(by);
    let changed = changed.ok_or_else(|| Error::corrupt(feature.guid(), "it is used fewer than no times"))?;
    if changed == count { Ok(()) } else { store(m, feature, changed).await }
}

/// Gang headers are larger from this group on, if a gang of an earlier one would have needed that and the
/// pool may have them.
pub(crate) async fn enlarge_gang_headers(m: &MosTask) -> Result<()> {
    let is_wanted = m.writer().wanted_larger_gang_headers();
    if is_wanted && m.feature_count(Feature::DynamicGangHeader) == Some(0) {
        change(m, Feature::DynamicGangHeader, 1).await?;
    }
    Ok(())
}

async fn store(m: &MosTask, feature: Feature, count: u64) -> Result<()> {
    let list = m.directory_object(list_of(feature)).await?;
    let key = zap::Key::Name(feature.guid().into());
    zap::edit::set(&list, &m.tx, &key, &zap::Value::U64(vec![count])).await?;
    let features = m.mos.features();
    let before = features.counts().insert(feature.guid(), count);
    m.mos.allow_in_blocks();
    let was_used = before.is_some_and(|count| count > 0);
    if feature.info().flags.contains(Flags::MOS) && was_used != (count > 0) {
        features.labels_are_old.store(true, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_the_version_and_the_features_allow() {
        let of = |version, counts: &[(Feature, u64)]| {
            LiveFeatures::new(version, counts.iter().copied()).of_writer()
        };
        let oldest = of(pool_version::OLDEST, &[]);
        assert_eq!((oldest.max_copies, oldest.used_in_bytes, oldest.intent_logs), (1, false, false));
        let before_logs = of(pool_version::FAST_SNAP - 1, &[]);
        assert_eq!((before_logs.max_copies, before_logs.used_in_bytes), (3, true));
        assert!(!before_logs.intent_logs && of(pool_version::FAST_SNAP, &[]).intent_logs);
        let enabled = of(pool_version::FEATURES, &[(Feature::Lz4Compress, 0), (Feature::EmbeddedData, 0)]);
        assert_eq!((enabled.lz4_compress, enabled.embedded_data), (false, true));
        assert!(of(pool_version::FEATURES, &[(Feature::Lz4Compress, 1)]).lz4_compress);
        let gangs = |count| of(pool_version::FEATURES, &[(Feature::DynamicGangHeader, count)]).gang_headers;
        assert_eq!([gangs(0), gangs(1)], [GangHeaders::SmallYet, GangHeaders::Large]);
    }

    #[test]
    fn labels_name_the_features_in_use_that_readers_of_the_mos_need() {
        let counts = [(Feature::HoleBirth, 1), (Feature::EmbeddedData, 0), (Feature::Lz4Compress, 1)];
        let features = LiveFeatures::new(pool_version::FEATURES, counts);
        let list = features.for_labels();
        assert!(list.contains(Feature::HoleBirth.guid()));
        assert!(!list.contains(Feature::EmbeddedData.guid()) && !list.contains(Feature::Lz4Compress.guid()));
        assert!(!features.take_labels_are_old(), "they are as they were read");
    }
}
