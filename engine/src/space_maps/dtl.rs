//! Storing dirty time logs ([`crate::vdev::dtl`]).
//!
//! In the sync of a group, [`sync_dtls`] writes each log that changed into its object, as one list of ranges.
//! That is done once more in each turn of writing the MOS, because a device may miss what is written there:
//! so the groups that were missed are on disk with the last of them. Failures of its last flush are written
//! with the next group. The objects have the short header, without a histogram, so that they do not count as
//! users of the feature `spacemap_histogram`.

use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::space_map::{MapType, SpaceMapPhys};
use ondisk::{ByteOffset, ByteOrder, Guid, ObjectId};

use super::append::{Form, Words};
use crate::dmu::{LiveObjset, NewObject};
use crate::error::{Error, Result};
use crate::txg::Tx;
use crate::vdev::dtl::TxgRanges;
use crate::vdev::{Kind, Vdev, VdevTree};

/// Bytes in a block of a log's object (`zfs_vdev_dtl_sm_blksz`).
const BLOCK_BYTES: u32 = 4 << 10;

/// Writes the changed logs of all leaves. Returns the leaves whose log has a new object: it goes into their
/// config as `DTL`. Part of the sync of the MOS, so that it may be called again in the same group.
///
/// # Errors
/// The MOS cannot be changed.
pub async fn sync_dtls(tree: &VdevTree, mos: &Arc<LiveObjset>, tx: &Tx) -> Result<Vec<(Guid, ObjectId)>> {
    let mut created = Vec::new();
    for leaf in tree.leaves().filter(|leaf| matches!(leaf.kind, Kind::Leaf(_) | Kind::DraidSpare { .. })) {
        let missed = &leaf.missing_txgs;
        if !missed.is_unstored() {
            continue;
        }
        // The version first: groups that are missed meanwhile change it.
        let version = missed.version();
        let ranges = missed.ranges();
        let object = object_of(leaf);
        if object.is_none() && ranges.is_empty() {
            missed.set_stored(version);
            continue;
        }
        let is_new = object.is_none();
        let object = write_log(mos, tx, object, &ranges).await?;
        if is_new {
            created.push((leaf.guid, object));
            missed.set_object(object);
        }
        missed.set_stored(version);
    }
    Ok(created)
}

/// The object of a leaf's log.
fn object_of(leaf: &Vdev) -> Option<ObjectId> {
    leaf.missing_txgs.object().or(leaf.config.dtl_object)
}

/// Replaces the contents of a log's object, or creates the object.
async fn write_log(
    mos: &Arc<LiveObjset>,
    tx: &Tx,
    object: Option<ObjectId>,
    ranges: &TxgRanges,
) -> Result<ObjectId> {
    let empty = SpaceMapPhys { object: ObjectId(0), length_bytes: 0, allocated_bytes: 0, histogram: None };
    let object = match object {
        Some(id) => mos.object(id).await?,
        None => {
            let new = NewObject {
                dmu_type: DmuType::SPACE_MAP,
                block_size: BLOCK_BYTES,
                bonus_type: DmuType::SPACE_MAP_HEADER,
                bonus: empty.encode(ByteOrder::Little),
                slots: 1,
            };
            mos.allocate(tx, new).await?
        }
    };
    let form = Form { start: ByteOffset(0), shift: 0, block_bytes: object.block_size(), two_words: false };
    let mut words = Words::new(form, 0);
    words.batch(MapType::Alloc, (tx.txg(), 1), None, ranges.ranges().iter().copied())?;
    object.punch(tx, 0, u64::MAX).await?;
    object.write_at(tx, 0, &words.bytes()).await?;
    // A header with a histogram keeps it: the histogram is for sizes of free space, of which there is none
    // here.
    let order = object.dnode().order;
    let phys = SpaceMapPhys::parse(&object.bonus(), order).map_err(Error::format("dirty time log"))?;
    let missed: u64 = ranges.ranges().iter().map(|(start, end)| end - start).sum();
    let allocated_bytes = i64::try_from(missed).unwrap_or(i64::MAX);
    let phys = SpaceMapPhys { length_bytes: words.length_bytes(), allocated_bytes, ..phys };
    object.set_bonus(tx, DmuType::SPACE_MAP_HEADER, &phys.encode(order));
    Ok(object.id())
}

#[cfg(test)]
mod tests {
    use ondisk::Txg;

    use super::*;
    use crate::space_maps::replay;

    #[test]
    fn logs_are_stored_when_they_changed_and_read_again() {
        use crate::dmu::{Policy, forge::Forge};
        use device::block_on;
        use ondisk::blkptr::{ChecksumType, CompressType};
        use ondisk::{ObjsetId, objset::ObjsetType};

        let Some(forge) = Forge::new(ByteOrder::Little) else { return };
        let policy = Policy {
            checksum: ChecksumType::Fletcher4,
            compress: CompressType::Lz4,
            zstd_level: 0,
            copies: 1,
            redundant_metadata: 0,
            special_small_blocks: 0,
            dedup: None,
        };
        let tx = Tx::syncing(Txg(10));
        let mos = LiveObjset::create(&forge.pool, ObjsetId(77), ObjsetType::Meta, policy, &tx);
        let tree = forge.pool.vdevs();
        let sync = || block_on(sync_dtls(tree, &mos, &tx)).expect("stores");
        assert!(sync().is_empty(), "nobody missed anything");

        let leaf = tree.leaves().next().expect("one");
        let stored = |object| {
            let mut found = TxgRanges::default();
            let phys = block_on(replay::for_each(&mos.view(), object, |segment| {
                assert_eq!(segment.kind, MapType::Alloc);
                found.add(segment.offset_units, segment.offset_units + segment.run_units);
                Ok(())
            }));
            (found, phys.expect("reads").allocated_bytes)
        };
        leaf.missing_txgs.note(Txg(5));
        // Too long for one entry.
        leaf.missing_txgs.note_range(Txg(100), Txg(99_999));
        let created = sync();
        assert_eq!(created.iter().map(|(guid, _)| *guid).collect::<Vec<_>>(), [leaf.guid]);
        let object = created[0].1;
        assert_eq!(stored(object), (TxgRanges::new([(5, 6), (100, 100_000)]), 99_901));

        leaf.missing_txgs.forget(Txg(0), Txg(99_000));
        assert!(sync().is_empty(), "it has its object");
        assert_eq!(stored(object), (TxgRanges::new([(99_000, 100_000)]), 1000));
        leaf.missing_txgs.forget(Txg(0), Txg(u64::MAX));
        assert!(sync().is_empty() && !leaf.missing_txgs.is_unstored());
        assert_eq!(stored(object), (TxgRanges::default(), 0));
    }
}
