//! What new object sets begin with.

use ondisk::objset::ObjsetType;

use std::sync::Arc;

use super::FoundHead;
use super::create::{NewContents, NewDataset};
use super::properties::Assignment;
use crate::dmu::{LiveObjset, Objset};
use crate::error::{Error, Result};
use crate::pool::live::Syncing;

/// What a head's object set is for.
pub(super) async fn kind(s: &Syncing, head: &FoundHead) -> Result<ObjsetType> {
    if head.phys.bp.is_hole() {
        return Ok(ObjsetType::None);
    }
    let pool = s.pool.pool();
    let id = ondisk::ObjsetId(head.object.get());
    Ok(Objset::open_without_key(pool, id, &head.phys.bp).await?.objset_type())
}

/// Fills a new object set.
pub(super) async fn fill(
    _s: &Syncing,
    _objset: &Arc<LiveObjset>,
    new: &NewDataset,
    _plan: &[Assignment],
) -> Result<()> {
    let what = match new.contents {
        NewContents::Filesystem => "filesystems",
        NewContents::Volume { .. } => "volumes",
    };
    Err(Error::Unsupported(format!("{what} cannot be created yet")))
}

/// Size and block size of a volume, in bytes.
pub(super) async fn volume_size(s: &Syncing, head: &FoundHead) -> Result<(u64, u64)> {
    let id = ondisk::ObjsetId(head.object.get());
    let objset = Objset::open(s.pool.pool(), id, &head.phys.bp).await?;
    let volume = crate::dataset::zvol::Zvol::open(&objset).await?;
    Ok((volume.size(), volume.block_size()))
}
