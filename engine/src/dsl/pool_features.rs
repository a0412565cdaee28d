//! Pool features: which are enabled and active, and which this version cannot read.
//!
//! The pool directory names two ZAPs of feature guid to reference count: features that matter to readers, and
//! features that matter to writers only. Presence means enabled, a count above zero active. Pools with a
//! version number instead of features have neither. Source of the facts: OpenZFS 2.3 `zfeature.c`.

use std::collections::BTreeMap;

use ondisk::ObjectId;
use ondisk::features::{Feature, FeatureState};
use ondisk::pool_directory::{self, DIRECTORY_OBJECT};

use crate::dsl::{Dsl, Mos};
use crate::error::Result;

/// Reference counts of all features of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    counts: BTreeMap<String, u64>,
    /// Unknown features in the order of the pool's ZAPs: those that matter to readers first.
    unknown: Vec<String>,
}

impl Features {
    /// The features of a pool that is open.
    pub async fn of(dsl: &Dsl) -> Result<Features> {
        Self::load(dsl.mos()).await
    }

    pub(crate) async fn load(mos: &Mos) -> Result<Features> {
        let mut features = Features::default();
        for name in [pool_directory::FEATURES_FOR_READ, pool_directory::FEATURES_FOR_WRITE] {
            let Some(zap) = mos.u64(DIRECTORY_OBJECT, name).await? else { continue };
            for (guid, count) in mos.u64_entries(ObjectId(zap)).await? {
                if Feature::from_guid(&guid).is_none() {
                    features.unknown.push(guid.clone());
                }
                features.counts.insert(guid, count);
            }
        }
        Ok(features)
    }

    /// The state of a feature.
    pub fn state(&self, feature: Feature) -> FeatureState {
        FeatureState::from_refcount(self.count(feature.guid()))
    }

    /// The reference count stored under a guid.
    pub fn count(&self, guid: &str) -> Option<u64> {
        self.counts.get(guid).copied()
    }

    /// Whether a feature may be used.
    pub fn is_enabled(&self, feature: Feature) -> bool {
        self.count(feature.guid()).is_some()
    }

    /// Whether a feature is in use.
    pub fn is_active(&self, feature: Feature) -> bool {
        self.count(feature.guid()).is_some_and(|count| count > 0)
    }

    /// Guids that the pool has and this version does not know.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.iter().map(String::as_str)
    }
}
