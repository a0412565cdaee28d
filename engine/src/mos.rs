//! The meta object set (MOS) of a pool that is written, and changes of it.
//!
//! # The idea
//! The MOS is changed in syncing context only, by one task after the other, so that no task sees half of
//! another one's change. What every such task needs is a [`MosTask`]: the MOS, the transaction group, the
//! pool's version and features, the block writer, and the time. It has the operations that all layers share:
//! the entries of the pool directory, new ZAPs, reference counts of features.
//!
//! The layers above put more beside it: [`crate::dsl::SyncTask`] has the open datasets,
//! [`crate::pool::live::Syncing`] the pool. Each gives what lies below by dereference, so that a function
//! takes the least that it needs, and its caller passes what it has.
//!
//! | module | what it owns |
//! |---|---|
//! | `features` | the version of the pool, and how often each feature is used |

mod features;

pub use features::LiveFeatures;
pub(crate) use features::enlarge_gang_headers;

use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::features::Feature;
use ondisk::pool_directory::DIRECTORY_OBJECT;
use ondisk::{ObjectId, Txg};

use crate::Pool;
use crate::alloc::Allocator;
use crate::dmu::zap::{self, edit as zap_edit};
use crate::dmu::{LiveObject, LiveObjset};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::txg::Tx;
use crate::zio::Writer;

/// The MOS of a pool that is written, with what every change of it needs.
#[derive(Debug)]
pub struct LiveMos {
    objset: Arc<LiveObjset>,
    writer: Writer,
    features: Arc<LiveFeatures>,
    env: Arc<dyn Env>,
}

impl LiveMos {
    /// Puts the parts together. From here on `writer` writes what the features allow.
    pub(crate) fn new(
        objset: Arc<LiveObjset>,
        writer: Writer,
        features: Arc<LiveFeatures>,
        env: Arc<dyn Env>,
    ) -> Arc<Self> {
        let mos = Self { objset, writer, features, env };
        mos.allow_in_blocks();
        Arc::new(mos)
    }

    /// The object set itself.
    pub(crate) fn objset(&self) -> &Arc<LiveObjset> {
        &self.objset
    }

    /// The pool as devices, cache and keys see it.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        self.objset.pool()
    }

    /// Writes blocks.
    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Where space comes from.
    pub(crate) fn allocator(&self) -> &Arc<Allocator> {
        self.writer.allocator()
    }

    /// The version of the pool, and how often each feature is used.
    pub(crate) fn features(&self) -> &Arc<LiveFeatures> {
        &self.features
    }

    /// Time and randomness.
    pub(crate) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Has blocks written as the pool's version and features are now.
    fn allow_in_blocks(&self) {
        self.writer.set_features(self.features.of_writer());
    }
}

/// A change of the MOS as part of one transaction group. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MosTask {
    /// The group.
    pub tx: Arc<Tx>,
    mos: Arc<LiveMos>,
}

impl MosTask {
    pub(crate) fn new(mos: &Arc<LiveMos>, tx: Tx) -> Self {
        Self { tx: Arc::new(tx), mos: Arc::clone(mos) }
    }

    /// The group's number.
    pub fn txg(&self) -> Txg {
        self.tx.txg()
    }

    /// The meta object set.
    pub fn mos(&self) -> &Arc<LiveObjset> {
        self.mos.objset()
    }

    /// The pool as devices, cache and keys see it.
    pub fn pool(&self) -> &Arc<Pool> {
        self.mos.pool()
    }

    /// Writes blocks.
    pub fn writer(&self) -> &Writer {
        self.mos.writer()
    }

    /// Where space comes from.
    pub fn allocator(&self) -> &Arc<Allocator> {
        self.mos.allocator()
    }

    /// Seconds since 1970.
    pub fn now(&self) -> u64 {
        self.mos.env.now().as_secs()
    }

    /// A random number, for guids.
    pub fn random(&self) -> u64 {
        self.mos.env.random()
    }

    /// Random bytes for keys.
    pub(crate) fn secret(&self, bytes: &mut [u8]) -> Result<()> {
        self.mos.env.fill_secret(bytes)
    }

    /// User and group that the root of a new filesystem belongs to.
    pub fn owner(&self) -> (u32, u32) {
        self.mos.env.owner()
    }

    /// The version of the pool.
    pub fn version(&self) -> u64 {
        self.mos.features.version()
    }

    /// Whether the pool has this version or a newer one.
    pub(crate) fn has_version(&self, version: u64) -> bool {
        self.version() >= version
    }

    /// Raises the version of the pool. The caller makes what the new version must have, and has the labels
    /// written.
    pub(crate) fn set_version(&self, version: u64) {
        self.mos.features.set_version(version);
        self.mos.allow_in_blocks();
    }

    /// How often a feature is used; absent when it is not enabled.
    pub fn feature_count(&self, feature: Feature) -> Option<u64> {
        self.mos.features.count(feature)
    }

    /// Whether a feature is enabled, used or not.
    pub(crate) fn feature_enabled(&self, feature: Feature) -> bool {
        self.feature_count(feature).is_some()
    }

    /// Counts more (or fewer) uses of a feature (`spa_feature_incr`/`decr`). The first use activates it.
    pub(crate) async fn use_feature(&self, feature: Feature, change: i64) -> Result<()> {
        features::change(self, feature, change).await
    }

    /// Enables a feature and those that it depends on. Nothing when it is enabled.
    pub async fn enable_feature(&self, feature: Feature) -> Result<()> {
        features::enable(self, feature).await
    }

    /// The number under `name` in the pool directory.
    pub(crate) async fn directory_u64(&self, name: &str) -> Result<Option<u64>> {
        let directory = self.mos().object(DIRECTORY_OBJECT).await?;
        let value = zap_edit::lookup(&directory, &zap::Key::Name(name.into())).await?;
        Ok(value.and_then(|value| value.as_u64()))
    }

    /// The object that the pool directory calls `name`.
    pub(crate) async fn directory_object(&self, name: &str) -> Result<Arc<LiveObject>> {
        let id = self.directory_u64(name).await?;
        let id = id.ok_or_else(|| Error::corrupt("pool directory", format!("no entry {name}")))?;
        self.mos().object(ObjectId(id)).await
    }

    /// Sets an entry of the pool directory.
    pub async fn set_in_directory(&self, name: &str, value: zap::Value) -> Result<()> {
        let directory = self.mos().object(DIRECTORY_OBJECT).await?;
        zap_edit::set(&directory, &self.tx, &zap::Key::Name(name.into()), &value).await
    }

    /// Creates a ZAP of metadata and enters it in the pool directory.
    pub(crate) async fn create_in_directory(&self, name: &str) -> Result<Arc<LiveObject>> {
        let zap = self.create_zap(zap::metadata_type()).await?;
        self.set_in_directory(name, zap::Value::U64(vec![zap.id().get()])).await?;
        Ok(zap)
    }

    /// Creates a ZAP in the MOS.
    pub async fn create_zap(&self, dmu_type: DmuType) -> Result<Arc<LiveObject>> {
        zap_edit::create(self.mos(), &self.tx, zap_edit::NewZap::of(dmu_type)).await
    }
}
