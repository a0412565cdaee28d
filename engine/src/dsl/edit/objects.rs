//! The objects of the DSL in the MOS, as its changes see them: bonus areas as structures, ZAPs as
//! dictionaries of numbers.
//!
//! Nothing is held between two changes. Who changes a directory or a dataset says what becomes of it
//! ([`change_dir`], [`change_dataset`]), and the structure is read, changed and put back in one go: so that
//! no stale copy can undo what another part of the same operation did. What was read is in memory, since the
//! MOS of an open pool is.

use std::sync::Arc;

use ondisk::dmu::{Byteswap, DmuType};
use ondisk::dsl_dataset::DslDatasetPhys;
use ondisk::dsl_dir::DslDirPhys;
use ondisk::features::Feature;
use ondisk::pool_directory::{DIRECTORY_OBJECT, hex_key};
use ondisk::zap::ZapValue;
use ondisk::{ByteOrder, ObjectId};

use crate::dmu::zap::{self, Key, edit::NewZap};
use crate::dmu::{LiveObject, NewObject};
use crate::dsl::SyncTask;
use crate::dsl::{Mos, ValueExt};
use crate::error::{Error, Result};

/// Pools are written in little-endian only.
pub(super) const ORDER: ByteOrder = ByteOrder::Little;
/// Bytes in a block of an object whose contents are a ZAP or nothing.
const SMALL_BLOCK_BYTES: u32 = 512;
/// What the objects of directories and datasets become when they hold a ZAP too (`DMU_OTN_ZAP_METADATA`).
pub(super) const ZAP_METADATA: DmuType = DmuType::self_describing(Byteswap::Zap, true, false);
/// Numbers that have no type of their own (`DMU_OTN_UINT64_METADATA`).
pub(super) const NUMBERS_METADATA: DmuType = DmuType::self_describing(Byteswap::Uint64, true, false);

/// The MOS as readers see it.
pub(super) fn mos(s: &SyncTask) -> Mos {
    Mos::of(s.mos().view())
}

pub(super) fn corrupt(id: ObjectId, detail: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("object {id} of the MOS"), detail)
}

fn bonus_of(object: &LiveObject, bonus_type: DmuType) -> Result<Arc<[u8]>> {
    let dnode = object.dnode();
    if dnode.bonus_type != bonus_type {
        return Err(corrupt(object.id(), format!("is a {}, not a {bonus_type}", dnode.bonus_type)));
    }
    Ok(object.bonus())
}

/// What the bonus area of an object is, with the object.
pub(super) async fn bonus<T, E: std::fmt::Display>(
    s: &SyncTask,
    id: ObjectId,
    bonus_type: DmuType,
    parse: impl FnOnce(&[u8], ByteOrder) -> std::result::Result<T, E>,
) -> Result<(Arc<LiveObject>, T)> {
    let object = s.mos().object(id).await?;
    let parsed =
        parse(&bonus_of(&object, bonus_type)?, ORDER).map_err(|error| corrupt(object.id(), error))?;
    Ok((object, parsed))
}

/// The directory that is object `id`.
pub(super) async fn dir(s: &SyncTask, id: ObjectId) -> Result<DslDirPhys> {
    Ok(bonus(s, id, DmuType::DSL_DIR, DslDirPhys::parse).await?.1)
}

/// Changes the directory that is object `id`.
pub(super) async fn change_dir<T>(
    s: &SyncTask,
    id: ObjectId,
    change: impl FnOnce(&mut DslDirPhys) -> T,
) -> Result<T> {
    let (object, before) = bonus(s, id, DmuType::DSL_DIR, DslDirPhys::parse).await?;
    let mut phys = before;
    let result = change(&mut phys);
    if phys != before {
        object.set_bonus(&s.tx, DmuType::DSL_DIR, &phys.encode(ORDER));
    }
    Ok(result)
}

/// The dataset that is object `id`.
pub(super) async fn dataset(s: &SyncTask, id: ObjectId) -> Result<DslDatasetPhys> {
    Ok(bonus(s, id, DmuType::DSL_DATASET, DslDatasetPhys::parse).await?.1)
}

/// Changes the dataset that is object `id`.
pub(super) async fn change_dataset<T>(
    s: &SyncTask,
    id: ObjectId,
    change: impl FnOnce(&mut DslDatasetPhys) -> T,
) -> Result<T> {
    let (object, before) = bonus(s, id, DmuType::DSL_DATASET, DslDatasetPhys::parse).await?;
    let mut phys = before;
    let result = change(&mut phys);
    if phys != before {
        object.set_bonus(&s.tx, DmuType::DSL_DATASET, &phys.encode(ORDER));
    }
    Ok(result)
}

/// Creates an object that is nothing but its bonus area, at first.
pub(super) async fn create_object(s: &SyncTask, dmu_type: DmuType, bonus: Vec<u8>) -> Result<ObjectId> {
    let new = NewObject { dmu_type, block_size: SMALL_BLOCK_BYTES, bonus_type: dmu_type, bonus, slots: 1 };
    Ok(s.mos().allocate(&s.tx, new).await?.id())
}

/// Frees an object.
pub(super) async fn free_object(s: &SyncTask, id: ObjectId) -> Result<()> {
    s.mos().free(&s.tx, id).await
}

/// Whether the object is a ZAP beside its bonus area.
pub(super) async fn is_zapified(s: &SyncTask, id: ObjectId) -> Result<bool> {
    Ok(s.mos().object(id).await?.dnode().dmu_type == ZAP_METADATA)
}

/// Makes the object of a directory or dataset a ZAP too.
pub(super) async fn zapify(s: &SyncTask, id: ObjectId) -> Result<()> {
    let object = s.mos().object(id).await?;
    if object.dnode().dmu_type == ZAP_METADATA {
        return Ok(());
    }
    if !s.feature_enabled(Feature::ExtensibleDataset) {
        return Err(Error::Unsupported("the pool's feature extensible_dataset is not enabled".to_owned()));
    }
    object.set_type(&s.tx, ZAP_METADATA);
    zap::edit::initialize(&object, &s.tx, NewZap::of(ZAP_METADATA)).await?;
    s.use_feature(Feature::ExtensibleDataset, 1).await
}

/// Frees the object of a directory or dataset.
pub(super) async fn free_zapified(s: &SyncTask, id: ObjectId) -> Result<()> {
    if is_zapified(s, id).await? {
        s.use_feature(Feature::ExtensibleDataset, -1).await?;
    }
    free_object(s, id).await
}

/// Creates a ZAP.
pub(super) async fn create_zap(s: &SyncTask, new: NewZap) -> Result<ObjectId> {
    Ok(zap::edit::create(s.mos(), &s.tx, new).await?.id())
}

/// The key of a name.
pub(super) fn name(name: &str) -> Key {
    Key::Name(name.as_bytes().to_vec())
}

/// The key of a number, as ZAPs of object numbers and txgs have it.
pub(super) fn number(number: u64) -> Key {
    name(&hex_key(number))
}

pub(super) fn one(value: u64) -> ZapValue {
    ZapValue::U64(vec![value])
}

/// The number under a key.
pub(super) async fn lookup(s: &SyncTask, zap: ObjectId, key: &Key) -> Result<Option<u64>> {
    let object = s.mos().object(zap).await?;
    Ok(zap::edit::lookup(&object, key).await?.and_then(|value| value.first()))
}

/// Adds an entry that must not be there yet.
pub(super) async fn add(s: &SyncTask, zap: ObjectId, key: &Key, value: &ZapValue) -> Result<()> {
    let object = s.mos().object(zap).await?;
    match zap::edit::insert(&object, &s.tx, key, value).await? {
        true => Ok(()),
        false => Err(corrupt(zap, format!("has an entry {} already", show(key)))),
    }
}

/// Sets an entry.
pub(super) async fn set(s: &SyncTask, zap: ObjectId, key: &Key, value: &ZapValue) -> Result<()> {
    let object = s.mos().object(zap).await?;
    zap::edit::set(&object, &s.tx, key, value).await
}

/// Removes an entry; false when there is none.
pub(super) async fn remove(s: &SyncTask, zap: ObjectId, key: &Key) -> Result<bool> {
    let object = s.mos().object(zap).await?;
    zap::edit::remove(&object, &s.tx, key).await
}

/// Removes an entry that must be there.
pub(super) async fn take(s: &SyncTask, zap: ObjectId, key: &Key) -> Result<()> {
    match remove(s, zap, key).await? {
        true => Ok(()),
        false => Err(corrupt(zap, format!("lacks the entry {}", show(key)))),
    }
}

fn show(key: &Key) -> String {
    match key {
        Key::Name(name) => format!("'{}'", String::from_utf8_lossy(name)),
        Key::Words(words) => format!("{words:?}"),
    }
}

/// All numbers of a ZAP.
pub(super) async fn entries(s: &SyncTask, zap: ObjectId) -> Result<Vec<(String, u64)>> {
    mos(s).u64_entries(zap).await
}

/// A number in the pool's directory.
pub(super) async fn pool_entry(s: &SyncTask, key: &str) -> Result<Option<ObjectId>> {
    Ok(lookup(s, DIRECTORY_OBJECT, &name(key)).await?.map(ObjectId))
}

/// A number that the object of a directory or dataset keeps as a ZAP.
pub(super) async fn field(s: &SyncTask, id: ObjectId, key: &str) -> Result<Option<u64>> {
    if !is_zapified(s, id).await? {
        return Ok(None);
    }
    lookup(s, id, &name(key)).await
}

/// Sets a number that the object of a directory or dataset keeps as a ZAP.
pub(super) async fn set_field(s: &SyncTask, id: ObjectId, key: &str, value: &ZapValue) -> Result<()> {
    zapify(s, id).await?;
    set(s, id, &name(key), value).await
}
