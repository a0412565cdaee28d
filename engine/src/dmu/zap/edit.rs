//! Changing ZAPs.

use std::sync::Arc;

use ondisk::dmu::DmuType;

use super::{Key, Value};
use crate::dmu::{LiveObject, LiveObjset};
use crate::error::Result;
use crate::txg::Tx;

/// What a new ZAP is like.
#[derive(Debug, Clone, Copy)]
pub struct NewZap {
    /// Type of its object.
    pub dmu_type: DmuType,
    /// Raw flags (`ZapFlags`): 0 for most; with flags it is fat from the beginning.
    pub flags: u64,
    /// Normalization of names (`U8_*` bits), 0 for none.
    pub normalization: u64,
    /// Bytes in a block of a micro ZAP at first; it grows up to 128 KiB before it becomes fat.
    pub micro_block_bytes: u32,
}

impl NewZap {
    /// An ordinary ZAP of metadata.
    pub fn of(dmu_type: DmuType) -> Self {
        Self { dmu_type, flags: 0, normalization: 0, micro_block_bytes: 512 }
    }
}

/// Creates a ZAP.
pub async fn create(_objset: &Arc<LiveObjset>, _tx: &Tx, _new: NewZap) -> Result<Arc<LiveObject>> {
    todo!()
}

/// Makes an object that was just created, or that has no data yet, a ZAP (`mzap_create_impl`; also for `dmu_object_zapify`).
pub async fn initialize(_object: &Arc<LiveObject>, _tx: &Tx, _new: NewZap) -> Result<()> {
    todo!()
}

/// The value under a key.
pub async fn lookup(_object: &Arc<LiveObject>, _key: &Key) -> Result<Option<Value>> {
    todo!()
}

/// Adds an entry. False (and no change) when there is one under this key.
pub async fn insert(_object: &Arc<LiveObject>, _tx: &Tx, _key: &Key, _value: &Value) -> Result<bool> {
    todo!()
}

/// Sets an entry, whether there is one or not.
pub async fn set(_object: &Arc<LiveObject>, _tx: &Tx, _key: &Key, _value: &Value) -> Result<()> {
    todo!()
}

/// Removes an entry. False when there is none.
pub async fn remove(_object: &Arc<LiveObject>, _tx: &Tx, _key: &Key) -> Result<bool> {
    todo!()
}
