//! Deadlists: how much space a dataset's blocks had that its next snapshot has no more.
//!
//! A deadlist sorts dead blocks by the snapshot before which they were born: a ZAP whose keys are transaction
//! groups and whose values are block lists, with the total in the bonus area. Old pools have one plain block
//! list instead.

use ondisk::blkptr::Blkptr;
use ondisk::bookmark::BookmarkSpace;
use ondisk::bpobj::{self, BpobjPhys};
use ondisk::deadlist::{self, DeadlistPhys};
use ondisk::dmu::DmuType;
use ondisk::{ObjectId, Txg};

use super::mos::Mos;
use crate::error::{Error, Result};

/// Lists within lists: no more.
const MAX_LISTS: usize = 1 << 20;
/// More block pointers than an old pool, which has plain lists, can have in one.
const MAX_PLAIN_ENTRIES: u64 = 1 << 30;

/// Space of the whole deadlist `id`.
pub(super) async fn total(mos: &Mos, id: ObjectId) -> Result<BookmarkSpace> {
    if id.is_none() {
        return Ok(BookmarkSpace::default());
    }
    if is_plain(mos, id).await? {
        return Ok(space_of(&mos.bonus(id, BpobjPhys::parse).await?.1));
    }
    let phys = mos.bonus(id, DeadlistPhys::parse).await?.1;
    Ok(BookmarkSpace {
        referenced_bytes: phys.used_bytes,
        compressed_bytes: phys.comp_bytes,
        uncompressed_bytes: phys.uncomp_bytes,
    })
}

/// What a block list says of all its blocks. The oldest pools do not count compression.
fn space_of(phys: &BpobjPhys) -> BookmarkSpace {
    BookmarkSpace {
        referenced_bytes: phys.bytes,
        compressed_bytes: phys.space.map_or(phys.bytes, |space| space.comp_bytes),
        uncompressed_bytes: phys.space.map_or(phys.bytes, |space| space.uncomp_bytes),
    }
}

/// Adds space to a sum.
pub(super) fn add(sum: &mut BookmarkSpace, more: &BookmarkSpace) {
    sum.referenced_bytes = sum.referenced_bytes.saturating_add(more.referenced_bytes);
    sum.compressed_bytes = sum.compressed_bytes.saturating_add(more.compressed_bytes);
    sum.uncompressed_bytes = sum.uncompressed_bytes.saturating_add(more.uncompressed_bytes);
}

/// Space of the blocks in the deadlist `id` that were born before or with the snapshot of `txg`. `dsize`
/// tells the deflated size of a block, which only a plain list needs.
pub(super) async fn born_until(
    mos: &Mos,
    id: ObjectId,
    txg: Txg,
    dsize: &(dyn Fn(&Blkptr) -> u64 + Sync),
) -> Result<BookmarkSpace> {
    if id.is_none() {
        return Ok(BookmarkSpace::default());
    }
    if is_plain(mos, id).await? {
        return plain_born_until(mos, id, txg, dsize).await;
    }
    let mut sum = BookmarkSpace::default();
    for (key, list) in mos.u64_entries(id).await? {
        let since = deadlist::parse_key(key.as_bytes())
            .map_err(|error| Error::corrupt(format!("deadlist {id}"), error))?;
        if since < txg {
            let (_, list) = mos.bonus(ObjectId(list), BpobjPhys::parse).await?;
            add(&mut sum, &space_of(&list));
        }
    }
    Ok(sum)
}

async fn is_plain(mos: &Mos, id: ObjectId) -> Result<bool> {
    Ok(mos.object(id).await?.dnode().dmu_type == DmuType::BPOBJ)
}

/// A plain list must be read through, with the lists that it includes.
async fn plain_born_until(
    mos: &Mos,
    id: ObjectId,
    txg: Txg,
    dsize: &(dyn Fn(&Blkptr) -> u64 + Sync),
) -> Result<BookmarkSpace> {
    let mut lists = vec![id];
    let mut sum = BookmarkSpace::default();
    let mut seen = 0;
    while let Some(id) = lists.pop() {
        seen += 1;
        let object = mos.object(id).await?;
        let (bytes, order) = object.bonus();
        let phys = BpobjPhys::parse(bytes, order).map_err(|error| object.corrupt(error))?;
        let included = phys.included();
        let most = MAX_PLAIN_ENTRIES.min(object.end() / Blkptr::SIZE as u64);
        if seen > MAX_LISTS || phys.num_blkptrs > most {
            return Err(object.corrupt("more block pointers than a deadlist can have"));
        }
        let mut left = phys.num_blkptrs;
        let mut block_id = 0;
        while left > 0 {
            let Some(found) = object.block(block_id).await? else {
                return Err(object.corrupt("a hole among its block pointers"));
            };
            let here = left.min(found.block.len() as u64 / Blkptr::SIZE as u64).max(1);
            let entries = found.block.get(..here as usize * Blkptr::SIZE).unwrap_or_default();
            for entry in bpobj::blkptrs(entries, found.order) {
                let entry = entry.map_err(|error| object.corrupt(error))?;
                if entry.birth() <= txg {
                    let before = if entry.is_metadata() { entry.psize().get() } else { entry.lsize().get() };
                    let space = BookmarkSpace {
                        referenced_bytes: dsize(&entry),
                        compressed_bytes: entry.psize().get(),
                        uncompressed_bytes: before,
                    };
                    add(&mut sum, &space);
                }
            }
            left -= here;
            block_id += 1;
        }
        if !included.object.is_none() {
            let numbers = mos.object(included.object).await?;
            let length = included.count.saturating_mul(8);
            let bytes = numbers.read_all(length, MAX_LISTS * 8).await?;
            // The numbers are in the byte order of their block, which is the pool's.
            let order = numbers.block(0).await?.map_or(order, |found| found.order);
            lists.extend(bpobj::subobjs(&bytes, order));
        }
    }
    Ok(sum)
}
