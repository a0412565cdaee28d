//! The features of a pool that is written: reference counts in memory and in the MOS.
//!
//! A feature that is enabled has an entry in one of two ZAPs; one that is used has a count above zero there.
//! Those that a reader must know before it can read the MOS are named in every label too, so that using the
//! first of them, or no longer using it, changes the configuration.
//!
//! Source of the facts: OpenZFS 2.3 `zfeature.c`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ondisk::features::{Feature, Flags};
use ondisk::nvlist::{NvValue, Nvlist};
use ondisk::pool_directory as directory;

use super::Syncing;
use crate::dmu::zap;
use crate::error::{Error, Result};

/// Counts of the features that are enabled.
#[derive(Debug, Default)]
pub(super) struct LiveFeatures {
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl LiveFeatures {
    pub(super) fn new(counts: impl IntoIterator<Item = (Feature, u64)>) -> Self {
        let counts = counts.into_iter().map(|(feature, count)| (feature.guid(), count)).collect();
        Self { counts: Mutex::new(counts) }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The count of a feature; absent when it is not enabled.
    pub(super) fn count(&self, feature: Feature) -> Option<u64> {
        self.counts().get(feature.guid()).copied()
    }

    /// What the labels say.
    pub(super) fn for_labels(&self) -> Nvlist {
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
}

/// The pool directory's name of the ZAP in which a feature is counted.
fn list_of(feature: Feature) -> &'static str {
    match feature.is_readonly_compatible() {
        true => directory::FEATURES_FOR_WRITE,
        false => directory::FEATURES_FOR_READ,
    }
}

/// Enables a feature and those that it depends on. Nothing when it is enabled.
pub(super) async fn enable(s: &Syncing, feature: Feature) -> Result<()> {
    if s.feature_enabled(feature) {
        return Ok(());
    }
    for needed in feature.info().depends {
        Box::pin(enable(s, *needed)).await?;
    }
    let info = feature.info();
    let description = info.description.bytes().chain([0]).collect();
    let key = zap::Key::Name(feature.guid().into());
    let descriptions = s.directory_object(directory::FEATURE_DESCRIPTIONS).await?;
    zap::edit::set(&descriptions, &s.tx, &key, &zap::Value::U8(description)).await?;
    store(s, feature, u64::from(info.flags.contains(Flags::ACTIVATE_ON_ENABLE))).await?;
    if s.feature_enabled(Feature::EnabledTxg) {
        let txgs = match s.directory_u64(directory::FEATURE_ENABLED_TXG).await? {
            Some(_) => s.directory_object(directory::FEATURE_ENABLED_TXG).await?,
            None => s.create_in_directory(directory::FEATURE_ENABLED_TXG).await?,
        };
        change(s, Feature::EnabledTxg, 1).await?;
        zap::edit::set(&txgs, &s.tx, &key, &zap::Value::U64(vec![s.txg().get()])).await?;
    }
    Ok(())
}

/// Counts more or fewer uses of a feature.
pub(super) async fn change(s: &Syncing, feature: Feature, by: i64) -> Result<()> {
    let count = s.pool.features.count(feature).ok_or_else(|| {
        Error::Unsupported(format!(
            "feature@{} is not enabled on this pool; see zpool upgrade",
            feature.name()
        ))
    })?;
    let changed = count.checked_add_signed(by);
    let changed = changed.ok_or_else(|| Error::corrupt(feature.guid(), "it is used fewer than no times"))?;
    if changed == count { Ok(()) } else { store(s, feature, changed).await }
}

/// Gang headers are larger from this group on, if a gang of an earlier one would have needed that and the
/// pool may have them.
pub(super) async fn enlarge_gang_headers(s: &Syncing) -> Result<()> {
    let is_wanted = s.pool.writer.wanted_larger_gang_headers();
    if is_wanted && s.pool.features.count(Feature::DynamicGangHeader) == Some(0) {
        change(s, Feature::DynamicGangHeader, 1).await?;
    }
    Ok(())
}

async fn store(s: &Syncing, feature: Feature, count: u64) -> Result<()> {
    let list = s.directory_object(list_of(feature)).await?;
    let key = zap::Key::Name(feature.guid().into());
    zap::edit::set(&list, &s.tx, &key, &zap::Value::U64(vec![count])).await?;
    let before = s.pool.features.counts().insert(feature.guid(), count);
    s.pool.allow_in_blocks();
    let was_used = before.is_some_and(|count| count > 0);
    if feature.info().flags.contains(Flags::MOS) && was_used != (count > 0) {
        s.pool.config_changed();
    }
    Ok(())
}
