//! Reading space maps: the log of allocations and frees of a range of space.
//!
//! A space map object is an append-only log of words; replaying it yields the allocated ranges. The bonus
//! contains the number of valid bytes of the object. Dirty time logs use the same format for txgs instead of
//! bytes.

use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::space_map::{Entries, Entry, MapType, Segment, SpaceMapPhys};

use crate::dmu::Objset;
use crate::error::{Error, Result};
use crate::range_set::RangeSet;

/// The largest space map that is replayed: 64 GiB of log is more than any pool keeps.
const MAX_LOG_BYTES: u64 = 64 << 30;

/// Calls `each` for every segment of the space map `object` of the MOS, oldest first.
pub async fn for_each(
    mos: &Arc<Objset>,
    object: ObjectId,
    mut each: impl FnMut(Segment) -> Result<()>,
) -> Result<SpaceMapPhys> {
    let what = || format!("space map {object}");
    let map = mos.object(object).await?;
    let (bonus, order) = map.bonus();
    let phys = SpaceMapPhys::parse(bonus, order).map_err(Error::format(what()))?;
    let length = phys.length_bytes;
    if length > MAX_LOG_BYTES || length > map.end() {
        return Err(Error::corrupt(what(), format!("{length} bytes long, more than its object")));
    }
    let block_size = map.block_size();
    for id in 0..length.div_ceil(block_size) {
        let used = (length - id * block_size).min(block_size) as usize;
        let Some(found) = map.block(id).await? else {
            return Err(Error::corrupt(what(), format!("block {id} is a hole")));
        };
        let bytes = found.block.get(..used).unwrap_or(&found.block);
        for entry in Entries::new(bytes, found.order) {
            if let Entry::Segment(segment) = entry.map_err(Error::format(what()))? {
                each(segment)?;
            }
        }
    }
    Ok(phys)
}

/// Replays a space map whose ranges begin at `start` and are in units of `1 << shift`; ranges must lie within
/// `size`.
pub async fn load(mos: &Arc<Objset>, object: ObjectId, start: u64, size: u64, shift: u8) -> Result<RangeSet> {
    let mut set = RangeSet::default();
    for_each(mos, object, |segment| {
        let what = || format!("space map {object}");
        let (from, length) = segment.bytes(start.into(), size, shift).map_err(Error::format(what()))?;
        let end = from.get().saturating_add(length);
        let overlap = match segment.kind {
            MapType::Alloc => set.add(from.get(), end) == 0,
            MapType::Free => set.remove(from.get(), end) == length,
        };
        if overlap {
            Ok(())
        } else {
            Err(Error::corrupt(what(), format!("{:?} twice at {from:#x}", segment.kind)))
        }
    })
    .await?;
    Ok(set)
}
