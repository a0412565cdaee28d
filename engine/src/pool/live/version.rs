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
//! | 26 | deadlists in parts, lists of clones in directories, `$FREE` with its list: below, a deadlist is one list and what is destroyed is freed at once |
//! | 24 | filesystems of version 5 |
//! | 22 | received values of properties |
//! | 20 | the compression `zle` |
//! | 19 | holes where log devices were |
//! | 18 | holds, and destruction that waits for the last of them |
//! | 17 | `raidz3` |
//! | 16 | user properties of 1024 bytes and more |
//! | 15 | space by users: object sets have 1024 bytes below; filesystems of version 4 |
//! | 14 | `aclinherit=passthrough-x` |
//! | 13 | what the space of a directory is used for |
//! | 12 | properties of snapshots |
//! | 11 | `$ORIGIN`, of which everything is a clone; the clones of a snapshot |
//! | 10 | cache devices |
//! | 9 | `refquota`, `refreservation`; unique space that is right; filesystems of version 3 |
//! | 7 | log devices |
//! | 6 | `bootfs` |
//! | 5 | the compression `gzip` |
//! | 4 | the history |
//! | 3 | spares, `raidz2`, space less its parity, space of dnodes in bytes, lists that count compressed space |
//! | 2 | copies: blocks have one address |
//!
//! # The way up
//! [`set`] makes what the versions on the way brought and what the pool must have: `$ORIGIN` and the lists of
//! clones, `$FREE` and the clones of directories. Old deadlists stay as they are until their snapshots go: a
//! snapshot that is taken leaves its head with a deadlist of the new form, so that in each chain the old ones
//! come first. Filesystems keep their versions (`zfs upgrade`).
//!
//! Source of the facts: OpenZFS 2.4 `sys/fs/zfs.h` (`SPA_VERSION_*`) and all that asks for them; `spa.c`
//! (`spa_sync_version`, `spa_sync_upgrades`), `dsl_pool.c` (`dsl_pool_upgrade_clones`,
//! `dsl_pool_upgrade_dir_clones`).

use ondisk::features::Feature;
use ondisk::pool_directory as directory;
use ondisk::zpl::ZPL_VERSION;

use super::{LivePool, Spare, Syncing, create, features};
use crate::dataset::dsl::edit;
use crate::dmu::zap;
use crate::error::{Error, Result};
use crate::zio::{GangHeaders, WriterFeatures};

/// The oldest version.
pub const OLDEST: u64 = 1;
/// Blocks may have several addresses (`SPA_VERSION_DITTO_BLOCKS`).
pub const DITTO_BLOCKS: u64 = 2;
/// Hot spares.
pub const SPARES: u64 = 3;
/// raidz with two parity columns.
pub const RAIDZ2: u64 = 3;
/// Lists of blocks count compressed and uncompressed space too (`SPA_VERSION_BPOBJ_ACCOUNT`).
pub const BPOBJ_ACCOUNT: u64 = 3;
/// Space is counted without its parity (`SPA_VERSION_RAIDZ_DEFLATE`).
pub const RAIDZ_DEFLATE: u64 = 3;
/// Dnodes count their space in bytes.
pub const DNODE_BYTES: u64 = 3;
/// The pool's history.
pub const HISTORY: u64 = 4;
/// The compression gzip.
pub const GZIP: u64 = 5;
/// The property `bootfs`.
pub const BOOTFS: u64 = 6;
/// Log devices.
pub const SLOGS: u64 = 7;
/// Filesystems of version 3.
const FUID: u64 = 9;
/// The properties `refquota` and `refreservation`.
pub const REFRESERVATION: u64 = 9;
/// What is unique to a head is right (`SPA_VERSION_UNIQUE_ACCURATE`).
pub const UNIQUE_ACCURATE: u64 = 9;
/// Cache devices.
pub const L2CACHE: u64 = 10;
/// `$ORIGIN`, and lists of the clones of a snapshot (`SPA_VERSION_ORIGIN`, `SPA_VERSION_NEXT_CLONES`).
pub const ORIGIN: u64 = 11;
/// Properties of snapshots.
pub const SNAP_PROPS: u64 = 12;
/// Directories count what their space is used for.
pub const USED_BREAKDOWN: u64 = 13;
/// `aclinherit=passthrough-x`.
pub const PASSTHROUGH_X: u64 = 14;
/// Space by users and groups.
pub const USERSPACE: u64 = 15;
/// Long values of user properties (`SPA_VERSION_STMF_PROP`).
pub const LONG_VALUES: u64 = 16;
/// raidz with three parity columns.
pub const RAIDZ3: u64 = 17;
/// Holds on snapshots.
pub const USERREFS: u64 = 18;
/// Holes in the vdev tree, so that log devices can be removed.
pub const HOLES: u64 = 19;
/// The compression zle.
pub const ZLE: u64 = 20;
/// Filesystems of version 5.
pub const SYSTEM_ATTRIBUTES: u64 = 24;
/// Deadlists in parts; directories know their clones (`SPA_VERSION_DEADLISTS`, `SPA_VERSION_DIR_CLONES`).
pub const DEADLISTS: u64 = 26;
/// A snapshot may be taken of a dataset that has an intent log (`SPA_VERSION_FAST_SNAP`).
const FAST_SNAP: u64 = 27;
/// The last version before features.
pub const LAST_NUMBERED: u64 = 28;
/// The version of pools with features.
pub const FEATURES: u64 = 5000;
/// Blocks that an upgrade takes, of a pool with some dozens of datasets.
const UPGRADE_BLOCKS: u64 = 32;

/// Whether there is such a version.
pub fn exists(version: u64) -> bool {
    (OLDEST..=LAST_NUMBERED).contains(&version) || version == FEATURES
}

/// The first version of pools that may have filesystems of a version (`zfs_spa_version_map`).
pub fn for_filesystem(filesystem: u64) -> u64 {
    match filesystem {
        ..3 => OLDEST,
        3 => FUID,
        4 => USERSPACE,
        _ => SYSTEM_ATTRIBUTES,
    }
}

/// The newest version of filesystems in a pool of this version (`zfs_zpl_version_map`).
pub fn newest_filesystem(version: u64) -> u64 {
    (1..=ZPL_VERSION).rev().find(|filesystem| for_filesystem(*filesystem) <= version).unwrap_or(1)
}

/// What OpenZFS says where a pool is too old for what a dataset is to be.
pub(crate) fn too_old() -> Error {
    Error::Unsupported("pool must be upgraded to set this property or value".to_owned())
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
        max_copies: if version >= DITTO_BLOCKS { WriterFeatures::ALL.max_copies } else { 1 },
        used_in_bytes: version >= DNODE_BYTES,
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
    if version < now || !exists(version) {
        return Err(Error::Invalid(format!(
            "version {version}: the pool has version {now}, and can get up to {LAST_NUMBERED} or {FEATURES}"
        )));
    }
    s.require_for_change(Spare::Reserved, UPGRADE_BLOCKS)?;
    // What is made on the way is made as by a pool of the version before: readers look at each part.
    let reaches = |step: u64| now < step && version >= step;
    if reaches(RAIDZ_DEFLATE) && s.pool.allocator().deflate_if_equal() {
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
    if s.pool.features.count(Feature::Lz4Compress) == Some(0) {
        features::change(s, Feature::Lz4Compress, 1).await?;
    }
    Ok(())
}
