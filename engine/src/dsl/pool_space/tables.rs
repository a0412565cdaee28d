//! What deduplication and block cloning save.
//!
//! Dedup tables keep histograms of their blocks by number of references, with the space they take and the
//! space they would take. Fast dedup tables in addition have logs of entries that are not in the tables yet;
//! those are counted one by one. Cloned blocks are counted per vdev.

use std::collections::BTreeMap;

use ondisk::ObjectId;
use ondisk::VdevId;
use ondisk::blkptr::{Blkptr, ChecksumType, Dva};
use ondisk::brt::{self, BrtVdevPhys};
use ondisk::ddt::log::{self, DdtLogHeader};
use ondisk::ddt::{self, DdtClass, DdtHistogram, DdtKey, DdtPhys, DdtStat, PhysForm};
use ondisk::pool_directory::{self, DIRECTORY_OBJECT};

use super::PoolSpace;
use crate::dmu::Object;
use crate::dmu::zap::Zap;
use crate::dsl::Mos;
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

/// What OpenZFS keeps in memory for an entry of a log besides the value: key, type, class and links.
const LOG_ENTRY_BYTES: u64 = 72;

/// What the dedup tables say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DedupSpace {
    /// Entries of all tables and logs.
    pub entries: u64,
    /// Bytes that the tables and logs themselves take.
    pub table_bytes: u64,
    /// Bytes that OpenZFS would take to hold all of them in memory.
    pub memory_bytes: u64,
    /// Deduplicated blocks: element `i` has those with `2^i` up to `2^(i+1) - 1` references. May end early.
    pub by_references: Vec<DdtStat>,
}

impl DedupSpace {
    /// All deduplicated blocks.
    pub fn total(&self) -> DdtStat {
        let mut total = DdtStat::default();
        self.by_references.iter().for_each(|bucket| total.add(bucket));
        total
    }

    /// Bytes that deduplication saves.
    pub fn saved_bytes(&self) -> u64 {
        let total = self.total();
        total.ref_dsize.saturating_sub(total.dsize)
    }

    /// The dedup ratio, as a hundredfold.
    pub fn ratio(&self) -> u64 {
        let total = self.total();
        ratio(total.ref_dsize, total.dsize)
    }

    fn add_table(&mut self, entries: u64, disk_bytes: u64, memory_bytes: u64) {
        self.entries = self.entries.saturating_add(entries);
        self.table_bytes = self.table_bytes.saturating_add(disk_bytes);
        self.memory_bytes = self.memory_bytes.saturating_add(memory_bytes);
    }

    fn add_blocks(&mut self, bucket: usize, blocks: &DdtStat) {
        if self.by_references.len() <= bucket {
            self.by_references.resize(bucket + 1, DdtStat::default());
        }
        self.by_references[bucket].add(blocks);
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
            let object = mos.object(ObjectId(table)).await?;
            let dnode = object.dnode();
            let blocks = dnode.blkptrs.iter().fold(0u64, |blocks, bp| blocks.saturating_add(bp.fill()));
            let memory_bytes = blocks.saturating_mul(dnode.data_block_size());
            sum.add_table(Zap::open(&object).await?.count()?, dnode.used_bytes(), memory_bytes);
            let words = match statistics {
                Some(statistics) => mos.value(ObjectId(statistics), &name).await?,
                None => None,
            };
            if let Some(words) = words {
                let histogram = DdtHistogram::from_words(&words.to_u64s())
                    .map_err(|error| Error::corrupt(&name, error))?;
                for (bucket, blocks) in histogram.buckets.iter().enumerate() {
                    if *blocks != DdtStat::default() {
                        sum.add_blocks(bucket, blocks);
                    }
                }
            }
        }
        if let Some(directory) = fast {
            add_logs(mos, space, checksum, ObjectId(directory), &mut sum).await?;
        }
    }
    Ok(sum)
}

/// Bytes of the ARC that blocks of dedup tables and their logs take. Loads no more than the pointers to
/// pointers.
pub(in crate::dsl) async fn dedup_cached_bytes(mos: &Mos) -> Result<u64> {
    let mut bytes = 0u64;
    for checksum in DEDUP_CHECKSUMS {
        let fast = mos.u64(DIRECTORY_OBJECT, &ddt::directory_name(checksum)).await?;
        let directory = fast.map_or(DIRECTORY_OBJECT, ObjectId);
        let zaps = DdtClass::ALL.map(|class| ddt::object_name(checksum, class));
        let logs = (0..2).map(|which| ddt::log_name(checksum, which));
        for name in zaps.into_iter().chain(logs) {
            if let Some(id) = mos.u64(directory, &name).await? {
                bytes = bytes.saturating_add(cached_bytes(&mos.object(ObjectId(id)).await?).await?);
            }
        }
    }
    Ok(bytes)
}

/// Bytes of the ARC that the blocks of an object take.
async fn cached_bytes(object: &Object) -> Result<u64> {
    let pool = object.objset().pool();
    let of = |bp: &Blkptr| match bp.is_embedded() || bp.is_hole() {
        true => 0,
        false => pool.cache().bytes_of(&pool.store().cache_key(bp, false)),
    };
    let dnode = object.dnode();
    let blocks = dnode.max_block_id.0.saturating_add(1);
    let fan_out = 1u64.checked_shl(dnode.pointers_per_indirect_shift()).unwrap_or(1).max(1);
    let (mut bytes, mut first) = (0u64, 0);
    while first < blocks {
        let after = first.saturating_add(fan_out).min(blocks);
        // Blocks whose pointers are not in memory were not used for long.
        let above = match dnode.levels > 1 {
            true => object.blkptr(1, first).await?.map(|bp| of(&bp)).unwrap_or(0),
            false => 1,
        };
        if above > 0 {
            bytes = bytes.saturating_add(if dnode.levels > 1 { above } else { 0 });
            for id in first..after {
                let block = object.blkptr(0, id).await?;
                bytes = bytes.saturating_add(block.map(|bp| of(&bp)).unwrap_or(0));
            }
        }
        first = after;
    }
    Ok(bytes)
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
        sum.add_table(0, object.dnode().used_bytes(), 0);
        let (_, header) = mos.bonus(ObjectId(id), DdtLogHeader::parse).await?;
        header.check_version().map_err(|error| object.corrupt(error))?;
        let growing = header.flags() & log::LOG_FLUSHING == 0;
        let done = header.checkpoint().map(|key| key.words());
        let blocks = header.length_bytes.min(object.end()).div_ceil(object.block_size());
        for block_id in 0..blocks {
            let Some(found) = object.block(block_id).await? else { continue };
            for record in log::records(&found.block, form, found.order) {
                let record = record.map_err(|error| object.corrupt(error))?;
                let order = record.key.words();
                let flushed = done.is_some_and(|done| order <= done);
                let outdated = entries.get(&order).is_some_and(|(newer, ..)| *newer && !growing);
                if !flushed && !outdated {
                    entries.insert(order, (growing, record.key, record.phys));
                }
            }
        }
    }
    let count = entries.len() as u64;
    sum.add_table(count, 0, count.saturating_mul(LOG_ENTRY_BYTES + form.size() as u64));
    for (_, key, phys) in entries.into_values() {
        // An entry without references waits to be dropped.
        if let Some(blocks) = blocks_of(&key, &phys, space)? {
            sum.add_blocks(DdtHistogram::bucket_of(blocks.ref_blocks), &blocks);
        }
    }
    Ok(())
}

/// The blocks of one entry of a log; `None` where none has a reference.
fn blocks_of(key: &DdtKey, phys: &DdtPhys, space: &PoolSpace) -> Result<Option<DdtStat>> {
    let dsize = |dva: &Dva| space.deflated(u64::from(dva.vdev.0), dva.asize);
    let all = DdtStat::of_entry(key, phys, dsize).map_err(|error| Error::corrupt("dedup log", error))?;
    Ok((all.ref_blocks > 0).then_some(all))
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
