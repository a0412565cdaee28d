//! The contents of a new volume: its data, and a ZAP with its size.
//!
//! Source: behaviour of OpenZFS 2.3 `zvol_create_cb`.

use std::sync::Arc;

use ondisk::dmu::DmuType;

use super::{CONTENT, PROPERTIES};
use crate::dmu::zap::edit as zap;
use crate::dmu::{LiveObjset, NewObject};
use crate::error::Result;
use crate::txg::Tx;

/// Fills an object set that was just created: a volume of `volsize` bytes in blocks of `volblocksize`.
pub async fn create_volume(objset: &Arc<LiveObjset>, tx: &Tx, volsize: u64, volblocksize: u32) -> Result<()> {
    let content = NewObject {
        dmu_type: DmuType::ZVOL,
        block_size: volblocksize,
        bonus_type: DmuType::NONE,
        bonus: Vec::new(),
        slots: 1,
    };
    objset.claim(tx, CONTENT, content).await?;
    let new = zap::NewZap::of(DmuType::ZVOL_PROP);
    let properties = objset.claim(tx, PROPERTIES, new.object()).await?;
    zap::initialize(&properties, tx, new).await?;
    zap::set_u64(&properties, tx, "size", volsize).await
}
