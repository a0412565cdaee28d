//! Taking a pool that is written to a newer version (`zpool upgrade -V`, `zpool set version=`).
//!
//! # The way up
//! [`set_version`] makes what the versions on the way brought and what the pool must have: `$ORIGIN` and the
//! lists of clones, `$FREE` and the clones of directories. Old deadlists stay as they are until their
//! snapshots go: a snapshot that is taken leaves its head with a deadlist of the new form, so that in each
//! chain the old ones come first. Filesystems keep their versions (`zfs upgrade`).
//!
//! Source of the facts: OpenZFS 2.4 `spa.c` (`spa_sync_version`, `spa_sync_upgrades`), `dsl_pool.c`
//! (`dsl_pool_upgrade_clones`, `dsl_pool_upgrade_dir_clones`).

use ondisk::features::Feature;
use ondisk::pool_directory as directory;
use ondisk::pool_version::{DEADLISTS, FEATURES, LAST_NUMBERED, ORIGIN, RAIDZ_DEFLATE, exists};

use super::{LivePool, Syncing, create};
use crate::dmu::zap;
use crate::dsl::{Spare, edit};
use crate::error::{Error, Result};

/// Blocks that an upgrade takes, of a pool with some dozens of datasets.
const UPGRADE_BLOCKS: u64 = 32;

impl LivePool {
    /// What the property `compatibility` says, if anything.
    pub fn compatibility(&self) -> Option<String> {
        let config = self.config();
        config.compatibility.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    }
}

/// Takes the pool to a newer version. Nothing when it has it.
///
/// # Errors
/// The version does not exist, or is older than the pool's.
pub async fn set_version(s: &Syncing, version: u64) -> Result<()> {
    let now = s.version();
    if version == now {
        return Ok(());
    }
    if version < now || !exists(version) {
        return Err(Error::Invalid(format!(
            "version {version}: the pool has version {now}, and can get up to {LAST_NUMBERED} or {FEATURES}"
        )));
    }
    s.require_for_change(Spare::Reserved, UPGRADE_BLOCKS)?;
    // What is made on the way is made as by a pool of the version before: readers look at each part.
    let reaches = |step: u64| now < step && version >= step;
    if reaches(RAIDZ_DEFLATE) && s.allocator().deflate_if_equal() {
        s.set_in_directory(directory::DEFLATE, zap::Value::U64(vec![1])).await?;
    }
    if reaches(ORIGIN) {
        edit::create_origin(s).await?;
        edit::list_clones_of_snapshots(s).await?;
    }
    if reaches(DEADLISTS) {
        edit::create_free(s).await?;
        edit::list_clones_of_directories(s).await?;
    }
    if version == FEATURES {
        create_lists(s).await?;
    }
    s.set_version(version);
    s.pool.config_changed();
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

/// Completes what older software left out: ZAPs of vdevs, the salt of checksums, and that lz4 is in use once it is enabled.
pub(super) async fn complete(s: &Syncing) -> Result<()> {
    create::complete_vdev_zaps(s).await?;
    let directory = s.mos().object(directory::DIRECTORY_OBJECT).await?;
    let key = zap::Key::Name(directory::CHECKSUM_SALT.into());
    if zap::edit::lookup(&directory, &key).await?.is_none() {
        let fresh: Vec<u8> = (0..4).flat_map(|_| s.random().to_le_bytes()).collect();
        if let Ok(fresh) = <[u8; 32]>::try_from(fresh) {
            let salt = *s.pool.pool().salt().get_or_init(|| fresh);
            zap::edit::set(&directory, &s.tx, &key, &zap::Value::U8(salt.to_vec())).await?;
        }
    }
    if s.feature_count(Feature::Lz4Compress) == Some(0) {
        s.use_feature(Feature::Lz4Compress, 1).await?;
    }
    Ok(())
}
