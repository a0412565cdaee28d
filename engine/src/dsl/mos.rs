//! [`Mos`]: the meta object set, read in the units that the DSL thinks in.
//!
//! Directories, datasets and fields of ZAPs come out typed, and errors name the dataset they are about. Sizes
//! are bounded: no ZAP of the DSL is read that claims more entries than [`MAX_ENTRIES`].

use std::sync::Arc;

use ondisk::Reader;
use ondisk::dmu::DmuType;
use ondisk::dsl_dataset::DslDatasetPhys;
use ondisk::dsl_dir::DslDirPhys;
use ondisk::nvlist::Nvlist;
use ondisk::pool_directory::{self, DIRECTORY_OBJECT};
use ondisk::vdev_config::PoolConfig;
use ondisk::zap::ZapValue;
use ondisk::{ByteOrder, ObjectId, ObjsetId};

use super::{Dataset, Dir};
use crate::Pool;
use crate::dmu::zap::{self, Zap};
use crate::dmu::{Object, Objset};
use crate::error::{Error, Result};

/// More entries than any pool has datasets, snapshots of a dataset, or properties.
const MAX_ENTRIES: usize = 4 << 20;

/// A larger configuration than any pool has.
const MAX_CONFIG_BYTES: usize = 64 << 20;

/// The meta object set of a pool.
#[derive(Debug, Clone)]
pub(crate) struct Mos {
    objset: Arc<Objset>,
}

/// What the DSL asks of values.
pub(crate) trait ValueExt {
    /// The first integer, of any size.
    fn first(&self) -> Option<u64>;
    /// The text, where the value is bytes.
    fn text(&self) -> Option<String>;
}

impl ValueExt for ZapValue {
    fn first(&self) -> Option<u64> {
        match self {
            ZapValue::U8(values) => values.first().copied().map(u64::from),
            ZapValue::U16(values) => values.first().copied().map(u64::from),
            ZapValue::U32(values) => values.first().copied().map(u64::from),
            ZapValue::U64(values) => values.first().copied(),
        }
    }

    fn text(&self) -> Option<String> {
        self.as_text().map(|text| String::from_utf8_lossy(text).into_owned())
    }
}

impl Mos {
    pub(crate) async fn open(pool: &Arc<Pool>) -> Result<Mos> {
        Ok(Self::of(Objset::open(pool, ObjsetId::MOS, pool.root_blkptr()).await?))
    }

    /// The meta object set as an open one shows it.
    pub(crate) fn of(objset: Arc<Objset>) -> Mos {
        Mos { objset }
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        self.objset.pool()
    }

    /// The pool's trusted configuration, which every sync that changes it rewrites.
    pub(crate) async fn config(&self) -> Result<PoolConfig> {
        let missing = || Error::corrupt(self.pool().name(), "its directory names no configuration");
        let id = self.u64(DIRECTORY_OBJECT, pool_directory::CONFIG).await?.ok_or_else(missing)?;
        let object = self.object(ObjectId(id)).await?;
        let (bytes, order) = object.bonus();
        let length = Reader::new("packed nvlist size", bytes, order).u64();
        let length = length.map_err(|error| object.corrupt(error))?;
        let packed = object.read_all(length, MAX_CONFIG_BYTES).await?;
        let list = Nvlist::parse(&packed).map_err(|error| object.corrupt(error))?;
        PoolConfig::parse(list).map_err(|error| object.corrupt(error))
    }

    pub(crate) async fn object(&self, id: ObjectId) -> Result<Object> {
        self.objset.object(id).await
    }

    /// The object's type, and what `parse` makes of its bonus area.
    pub(crate) async fn bonus<T, E: std::fmt::Display>(
        &self,
        id: ObjectId,
        parse: impl FnOnce(&[u8], ByteOrder) -> std::result::Result<T, E>,
    ) -> Result<(DmuType, T)> {
        let object = self.object(id).await?;
        let (bytes, order) = object.bonus();
        let parsed = parse(bytes, order).map_err(|error| object.corrupt(error))?;
        Ok((object.dnode().dmu_type, parsed))
    }

    /// The directory that is object `id`.
    pub(crate) async fn dir(&self, id: ObjectId, name: String, parent: Option<Arc<Dir>>) -> Result<Dir> {
        let object = self.object(id).await?;
        let dnode = object.dnode();
        if dnode.bonus_type != DmuType::DSL_DIR {
            return Err(object.corrupt(format!("is a {}, not a directory", dnode.bonus_type.name())));
        }
        let zapified = dnode.dmu_type != DmuType::DSL_DIR;
        let (bytes, order) = object.bonus();
        let phys = DslDirPhys::parse(bytes, order).map_err(|error| object.corrupt(error))?;
        Ok(Dir { object: id, name, phys, parent, zapified })
    }

    /// The dataset that is object `id`.
    pub(crate) async fn dataset(&self, id: ObjectId, name: String, dir: &Arc<Dir>) -> Result<Dataset> {
        let object = self.object(id).await?;
        let dnode = object.dnode();
        if dnode.bonus_type != DmuType::DSL_DATASET {
            return Err(object.corrupt(format!("is a {}, not a dataset", dnode.bonus_type.name())));
        }
        let zapified = dnode.dmu_type != DmuType::DSL_DATASET;
        let (bytes, order) = object.bonus();
        let phys = DslDatasetPhys::parse(bytes, order).map_err(|error| object.corrupt(error))?;
        Ok(Dataset { object: id, name, dir: Arc::clone(dir), phys, zapified })
    }

    /// The object set of a dataset.
    pub(crate) async fn open_objset(&self, dataset: &Dataset) -> Result<Arc<Objset>> {
        Objset::open(self.pool(), dataset.objset_id(), &dataset.phys.bp).await
    }

    /// The value of `name` in the ZAP `id`.
    pub(crate) async fn value(&self, id: ObjectId, name: &str) -> Result<Option<ZapValue>> {
        zap_value(&self.object(id).await?, name).await
    }

    /// The first integer of `name` in the ZAP `id`.
    pub(crate) async fn u64(&self, id: ObjectId, name: &str) -> Result<Option<u64>> {
        Ok(self.value(id, name).await?.and_then(|value| value.first()))
    }

    /// All of the ZAP `id`, in the order in which the ZAP keeps it.
    pub(crate) async fn entries(&self, id: ObjectId) -> Result<Vec<(String, ZapValue)>> {
        let object = self.object(id).await?;
        let entries = Zap::open(&object).await?.entries(MAX_ENTRIES).await?;
        let named = entries.into_iter().filter_map(|entry| match entry.key {
            zap::Key::Name(name) => Some((String::from_utf8_lossy(&name).into_owned(), entry.value)),
            zap::Key::Words(_) => None,
        });
        Ok(named.collect())
    }

    /// As [`Mos::entries`], with the first integer of each value.
    pub(crate) async fn u64_entries(&self, id: ObjectId) -> Result<Vec<(String, u64)>> {
        let entries = self.entries(id).await?;
        Ok(entries.into_iter().map(|(name, value)| (name, value.first().unwrap_or(0))).collect())
    }
}

/// The value of `name` in the ZAP that `object` holds.
pub(crate) async fn zap_value(object: &Object, name: &str) -> Result<Option<ZapValue>> {
    zap::lookup(object, name).await
}
