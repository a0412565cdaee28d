//! What deduplication and block cloning save.
//!
//! Dedup tables keep histograms of their blocks by number of references, with the space they take and the space they
//! would take. Fast dedup tables in addition have logs of entries that are not in the tables yet; those are counted
//! one by one. Cloned blocks are counted per vdev.

use std::collections::BTreeMap;

use ondisk::ObjectId;
use ondisk::VdevId;
use ondisk::blkptr::ChecksumType;
use ondisk::brt::{self, BrtVdevPhys};
use ondisk::ddt::log::{self, DdtLogHeader};
use ondisk::ddt::{self, DdtClass, DdtHistogram, DdtKey, DdtPhys, PhysForm};
use ondisk::pool_directory::{self, DIRECTORY_OBJECT};

use super::PoolSpace;
use crate::dataset::dsl::Mos;
use crate::error::{Error, Result};

/// Checksum functions that dedup can use.
const DEDUP_CHECKSUMS: [ChecksumType; 6] = [
    ChecksumType::Sha256,
    ChecksumType::Sha512,
    ChecksumType::Skein,
    ChecksumType::Edonr,
    ChecksumType::Blake3,
    ChecksumType::Fletcher4,
];

/// What the dedup tables say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DedupSpace {
    /// Deflated bytes that deduplicated blocks take.
    pub stored_bytes: u64,
    /// Deflated bytes that they would take without deduplication.
    pub referenced_bytes: u64,
    /// Bytes that the tables themselves take.
    pub table_bytes: u64,
}

impl DedupSpace {
    /// Bytes that deduplication saves.
    pub fn saved_bytes(&self) -> u64 {
        self.referenced_bytes.saturating_sub(self.stored_bytes)
    }

    /// The dedup ratio, as a hundredfold.
    pub fn ratio(&self) -> u64 {
        ratio(self.referenced_bytes, self.stored_bytes)
    }
}

/// What the tables of cloned blocks say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CloneSpace {
    /// Bytes that cloned blocks take.
    pub used_bytes: u64,
    /// Bytes that cloning saves.
    pub saved_bytes: u64,
}

impl CloneSpace {
    /// The cloning ratio, as a hundredfold.
    pub fn ratio(&self) -> u64 {
        ratio(self.used_bytes.saturating_add(self.saved_bytes), self.used_bytes)
    }
}

fn ratio(whole: u64, part: u64) -> u64 {
    if part == 0 {
        100
    } else {
        u64::try_from(u128::from(whole) * 100 / u128::from(part)).unwrap_or(u64::MAX)
    }
}

/// Adds up all dedup tables.
pub(super) async fn dedup(mos: &Mos, space: &PoolSpace) -> Result<DedupSpace> {
    let mut sum = DedupSpace::default();
    let statistics = mos.u64(DIRECTORY_OBJECT, pool_directory::DDT_STATISTICS).await?;
    for checksum in DEDUP_CHECKSUMS {
        let fast = mos.u64(DIRECTORY_OBJECT, &ddt::directory_name(checksum)).await?;
        let directory = fast.map_or(DIRECTORY_OBJECT, ObjectId);
        for class in DdtClass::ALL {
            let name = ddt::object_name(checksum, class);
            let Some(table) = mos.u64(directory, &name).await? else { continue };
            let taken = mos.object(ObjectId(table)).await?.dnode().used_bytes();
            sum.table_bytes = sum.table_bytes.saturating_add(taken);
            let words = match statistics {
                Some(statistics) => mos.value(ObjectId(statistics), &name).await?,
                None => None,
            };
            if let Some(words) = words {
                let histogram = DdtHistogram::from_words(&words.to_u64s())
                    .map_err(|error| Error::corrupt(&name, error))?;
                let total = histogram.total();
                sum.stored_bytes = sum.stored_bytes.saturating_add(total.dsize);
                sum.referenced_bytes = sum.referenced_bytes.saturating_add(total.ref_dsize);
            }
        }
        if let Some(directory) = fast {
            add_logs(mos, space, checksum, ObjectId(directory), &mut sum).await?;
        }
    }
    Ok(sum)
}

/// Adds the entries of a fast table's two logs; where both have one, the log that still grows is right.
async fn add_logs(
    mos: &Mos,
    space: &PoolSpace,
    checksum: ChecksumType,
    directory: ObjectId,
    sum: &mut DedupSpace,
) -> Result<()> {
    let flags = mos.u64(directory, ddt::dir_key::FLAGS).await?.unwrap_or(0);
    let form = PhysForm::from_flags(flags);
    let mut entries: BTreeMap<[u64; 5], (bool, DdtKey, DdtPhys)> = BTreeMap::new();
    for which in 0..2 {
        let name = ddt::log_name(checksum, which);
        let Some(id) = mos.u64(directory, &name).await? else { continue };
        let object = mos.object(ObjectId(id)).await?;
        sum.table_bytes = sum.table_bytes.saturating_add(object.dnode().used_bytes());
        let (_, header) = mos.bonus(ObjectId(id), DdtLogHeader::parse).await?;
        header.check_version().map_err(|error| object.corrupt(error))?;
        let growing = header.flags() & log::LOG_FLUSHING == 0;
        let done = header.checkpoint().map(|key| order_of(&key));
        let blocks = header.length_bytes.min(object.end()).div_ceil(object.block_size());
        for block_id in 0..blocks {
            let Some(found) = object.block(block_id).await? else { continue };
            for record in log::records(&found.block, form, found.order) {
                let record = record.map_err(|error| object.corrupt(error))?;
                let order = order_of(&record.key);
                let flushed = done.is_some_and(|done| order <= done);
                let outdated = entries.get(&order).is_some_and(|(newer, ..)| *newer && !growing);
                if !flushed && !outdated {
                    entries.insert(order, (growing, record.key, record.phys));
                }
            }
        }
    }
    // An entry without references waits to be dropped.
    let live = entries.into_values().filter(|(.., phys)| phys.total_refcount() > 0);
    for (_, key, phys) in live {
        for slot in phys.slots().filter(|slot| slot.is_used()) {
            let copies = slot.dvas(key.is_encrypted()).map_err(|error| Error::corrupt("dedup log", error))?;
            let bytes = copies.iter().fold(0u64, |bytes, dva| {
                bytes.saturating_add(space.deflated(u64::from(dva.vdev.0), dva.asize))
            });
            sum.stored_bytes = sum.stored_bytes.saturating_add(bytes);
            sum.referenced_bytes = sum.referenced_bytes.saturating_add(bytes.saturating_mul(slot.refcount));
        }
    }
    Ok(())
}

fn order_of(key: &DdtKey) -> [u64; 5] {
    let [a, b, c, d] = key.checksum;
    [a, b, c, d, key.prop]
}

/// Adds up the cloned blocks of the first `vdevs` top-level vdevs.
pub(super) async fn clones(mos: &Mos, vdevs: usize) -> Result<CloneSpace> {
    let mut sum = CloneSpace::default();
    for vdev in (0..vdevs).filter_map(|vdev| u32::try_from(vdev).ok()) {
        if let Some(id) = mos.u64(DIRECTORY_OBJECT, &brt::directory_key(VdevId(vdev))).await? {
            let (_, phys) = mos.bonus(ObjectId(id), BrtVdevPhys::parse).await?;
            sum.used_bytes = sum.used_bytes.saturating_add(phys.usedspace_bytes);
            sum.saved_bytes = sum.saved_bytes.saturating_add(phys.savedspace_bytes);
        }
    }
    Ok(sum)
}
