//! The version of a pool that is written, and taking it to a newer one (`zpool upgrade -V`,
//! `zpool set version=`).
//!
//! Pools had version numbers before they had features: 1 to 28, each of which allows what those before it
//! allow and a little more. Version 5000 means that features say what is allowed. A pool is written as its
//! version and features allow, so that the software it is kept old for can still open it.
//!
//! | version | what is not written below it |
//! |---|---|
//! | 5000 | features, of which the pool directory has no lists before |
//! | 28 | (nothing that is written here) |
//! | 27 | intent logs: a snapshot must not have one below 27, so `fsync` waits for its group instead |
//! | 26 | nothing: such a pool is read only here |
//!
//! Below 26 deadlists are flat lists, blocks of what is destroyed are freed at once, and directories do not
//! know their clones. Nothing here keeps such structures up; OpenZFS can upgrade those pools.
//!
//! Source of the facts: OpenZFS 2.3 `sys/fs/zfs.h` (`SPA_VERSION_*`), `spa.c` (`spa_sync_version`,
//! `spa_sync_upgrades`).

use ondisk::features::Feature;
use ondisk::pool_directory as directory;

use super::{LivePool, Syncing, features};
use crate::dmu::zap;
use crate::error::{Error, Result};
use crate::zio::{GangHeaders, WriterFeatures};

/// The oldest version that is written.
pub const OLDEST_WRITTEN: u64 = 26;
/// From this version on a snapshot may be taken of a dataset that has an intent log
/// (`SPA_VERSION_FAST_SNAP`).
const FAST_SNAP: u64 = 27;
/// The last version before features.
pub const LAST_NUMBERED: u64 = 28;
/// The version of pools with features.
pub const FEATURES: u64 = 5000;

/// Whether a pool of this version can be written.
pub fn is_written(version: u64) -> bool {
    (OLDEST_WRITTEN..=LAST_NUMBERED).contains(&version) || version == FEATURES
}

/// What the blocks of a pool may be.
pub(super) fn writer_features(version: u64, features: &super::LiveFeatures) -> WriterFeatures {
    let active = |feature| features.count(feature).is_some_and(|count| count > 0);
    WriterFeatures {
        hole_birth: active(Feature::HoleBirth),
        embedded_data: features.count(Feature::EmbeddedData).is_some(),
        lz4_compress: active(Feature::Lz4Compress),
        intent_logs: version >= FAST_SNAP,
        gang_headers: match features.count(Feature::DynamicGangHeader) {
            None => GangHeaders::Small,
            Some(0) => GangHeaders::SmallYet,
            Some(_) => GangHeaders::Large,
        },
    }
}

impl LivePool {
    /// The version of the pool.
    pub fn version(&self) -> u64 {
        self.config().version
    }

    /// What the property `compatibility` says, if anything.
    pub fn compatibility(&self) -> Option<String> {
        let config = self.config();
        config.compatibility.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    /// Has blocks written as the pool's version and features are now, those of open datasets too.
    pub(super) fn allow_in_blocks(&self) {
        self.writer.set_features(writer_features(self.version(), &self.features));
        let can_clone = self.feature_count(Feature::BlockCloning).is_some();
        self.datasets().values().for_each(|dataset| dataset.objset.set_can_clone(can_clone));
    }
}

/// Takes the pool to a newer version. Nothing when it has it.
///
/// # Errors
/// The version does not exist, or is older than the pool's.
pub async fn set(s: &Syncing, version: u64) -> Result<()> {
    let now = s.pool.version();
    if version == now {
        return Ok(());
    }
    if version < now || !is_written(version) {
        return Err(Error::Invalid(format!(
            "version {version}: the pool has version {now}, and can get up to {LAST_NUMBERED} or {FEATURES}"
        )));
    }
    if version == FEATURES {
        create_lists(s).await?;
    }
    s.pool.config().version = version;
    s.pool.config_changed();
    s.pool.allow_in_blocks();
    Ok(())
}

/// Creates the lists of features in the pool directory.
pub(super) async fn create_lists(s: &Syncing) -> Result<()> {
    let lists =
        [directory::FEATURES_FOR_READ, directory::FEATURES_FOR_WRITE, directory::FEATURE_DESCRIPTIONS];
    for list in lists {
        s.create_in_directory(list).await?;
    }
    Ok(())
}

/// Completes what older software left out: the salt of checksums, and that lz4 is in use once it is enabled.
pub(super) async fn complete(s: &Syncing) -> Result<()> {
    let directory = s.mos().object(directory::DIRECTORY_OBJECT).await?;
    let key = zap::Key::Name(directory::CHECKSUM_SALT.into());
    if zap::edit::lookup(&directory, &key).await?.is_none() {
        let fresh: Vec<u8> = (0..4).flat_map(|_| s.random().to_le_bytes()).collect();
        if let Ok(fresh) = <[u8; 32]>::try_from(fresh) {
            let salt = *s.pool.pool().salt().get_or_init(|| fresh);
            zap::edit::set(&directory, &s.tx, &key, &zap::Value::U8(salt.to_vec())).await?;
        }
    }
    if s.pool.features.count(Feature::Lz4Compress) == Some(0) {
        features::change(s, Feature::Lz4Compress, 1).await?;
    }
    Ok(())
}
