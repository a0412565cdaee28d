//! The block reference tables of a pool that is open for writing: the number of other references to a block.
//!
//! # The idea
//! A cloned block looks like any other to its users. So the code that frees a block of data asks here first.
//! While the table of the block's vdev has an entry for it, which counts the references beyond the first, one
//! of these is subtracted and nothing is freed. Most frees need no look-up of an entry: each table counts its
//! entries by range of the vdev, and these counts are in memory.
//!
//! # Order
//! References come before frees: at the beginning of a group's sync all clones of the group are counted
//! ([`Brt::reference`]), then datasets are written and release blocks ([`Brt::release`]). Both change the
//! entries in the MOS at once; the counts and sums are written when both are done ([`Brt::write`]), before
//! the MOS is. Metadata are never cloned, so frees by the writing of the MOS itself need no look-up.
//!
//! A table exists while it has entries, and each existing table is a use of the feature `block_cloning`.
//! [`ondisk::brt`] describes the format. The format of entries depends on the feature `block_cloning_endian`,
//! which is used by all tables of a pool or by none. When it is enabled, the first table begins to use it.
//!
//! Source of the facts: OpenZFS 2.4 `brt.c`.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `tables` | headers and counts; for a few lines, never across an await | alone |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use device::IgnorePoison;
use ondisk::blkptr::Blkptr;
use ondisk::brt::{BrtVdevPhys, directory_key, entry_counts, parse_entry_count};
use ondisk::dmu::{Byteswap, DmuType};
use ondisk::features::Feature;
use ondisk::pool_directory::DIRECTORY_OBJECT;
use ondisk::zap::ZapFlags;
use ondisk::{ByteOffset, ByteOrder, ObjectId, VdevId};

use crate::Pool;
use crate::dmu::zap::{self, edit::NewZap};
use crate::dmu::{LiveObject, LiveObjset, NewObject};
use crate::error::{Error, Result};
use crate::mos::MosTask;

/// The bytes of a vdev that one count covers.
const RANGE_BYTES: u64 = 16 << 20;
/// Bytes in a block of the counts.
const BLOCK_BYTES: usize = 32 << 10;
/// The number of counts in such a block.
const BLOCK_COUNTS: usize = BLOCK_BYTES / 2;
/// Bytes in a block of the ZAP of entries.
const ENTRIES_BLOCK_BYTES: u32 = 8 << 10;
/// The type of the object of the counts (`DMU_OTN_UINT64_METADATA`).
const COUNTS_TYPE: DmuType = DmuType::self_describing(Byteswap::Uint64, true, false);

/// The tables of all vdevs.
#[derive(Debug, Default)]
pub(super) struct Brt {
    tables: Mutex<BTreeMap<u32, Table>>,
}

/// The table of one vdev, without its entries.
#[derive(Debug)]
struct Table {
    object: ObjectId,
    phys: BrtVdevPhys,
    /// The number of entries by range.
    counts: Vec<u16>,
    /// Whether anything changed.
    changed: bool,
    /// The changed blocks of the counts.
    blocks: BTreeSet<usize>,
}

/// The place of a block, as key of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    vdev: u32,
    offset: u64,
}

impl Place {
    /// `None` for blocks that cannot be cloned.
    fn of(bp: &Blkptr) -> Option<Self> {
        let dva = bp.dva(0).filter(|_| !bp.is_metadata() && !bp.is_hole() && !bp.is_embedded())?;
        Some(Self { vdev: dva.vdev.get(), offset: dva.offset.get() })
    }

    fn key(self) -> zap::Key {
        zap::Key::Words(vec![self.offset])
    }
}

impl Table {
    /// Counts one entry more, or less, at a place.
    fn count(&mut self, place: Place, more: bool) -> Result<()> {
        let what =
            |detail: &str| Error::corrupt(format!("block reference table of vdev {}", place.vdev), detail);
        let range =
            self.phys.range_of(ByteOffset(place.offset)).and_then(|range| usize::try_from(range).ok());
        let range = range.ok_or_else(|| what("a block beyond its end"))?;
        let count = self.counts.get_mut(range).ok_or_else(|| what("a block beyond its counts"))?;
        let (of_range, in_all) = match more {
            true => (count.checked_add(1), self.phys.totalcount.checked_add(1)),
            false => (count.checked_sub(1), self.phys.totalcount.checked_sub(1)),
        };
        let (Some(of_range), Some(in_all)) = (of_range, in_all) else {
            return Err(what("its counts contradict its entries"));
        };
        (*count, self.phys.totalcount) = (of_range, in_all);
        self.blocks.insert(range / BLOCK_COUNTS);
        Ok(())
    }
}

/// The number of ranges of a vdev, up to the end of its metaslabs.
fn ranges(asize: u64, metaslab_shift: Option<u64>, range_bytes: u64) -> u64 {
    let metaslab = 1u64.checked_shl(metaslab_shift.unwrap_or(0) as u32).unwrap_or(1).max(1);
    (asize - asize % metaslab).div_ceil(range_bytes.max(1))
}

/// The number of ranges of a vdev of an open pool.
fn ranges_of(m: &MosTask, vdev: u32, range_bytes: u64) -> u64 {
    let top = m.pool().vdevs().top(vdev);
    // A removed vdev has no metaslabs any more, but still their configuration.
    let of_config = || top.and_then(|top| top.config.metaslab_shift);
    let shift = m.allocator().metaslab_shift(VdevId(vdev)).or_else(of_config);
    ranges(top.map_or(0, |top| top.asize()), shift.map(u64::from), range_bytes)
}

impl Brt {
    /// Reads the tables of a pool.
    pub(super) async fn load(pool: &Pool, mos: &Arc<LiveObjset>) -> Result<Self> {
        let directory = mos.object(DIRECTORY_OBJECT).await?;
        let mut tables = BTreeMap::new();
        for vdev in (0u32..).take(pool.vdevs().tops.len()) {
            let name = directory_key(VdevId(vdev));
            let Some(id) = zap::edit::lookup_u64(&directory, &name).await? else { continue };
            let object = mos.object(ObjectId(id)).await?;
            let phys =
                BrtVdevPhys::parse(&object.bonus(), ByteOrder::Little).map_err(Error::format(&name))?;
            if phys.array_order().map_err(Error::format(&name))? != ByteOrder::Little {
                return Err(Error::Unsupported(format!("{name} was written by a big-endian machine")));
            }
            let asize = pool.vdevs().top(vdev).map_or(0, |top| top.asize());
            let longest = ranges(asize, None, phys.rangesize_bytes);
            if phys.rangesize_bytes < 1 << 20 || phys.size > longest {
                return Err(Error::corrupt(
                    name,
                    format!("{} ranges of {} bytes", phys.size, phys.rangesize_bytes),
                ));
            }
            let mut bytes = vec![0; phys.size as usize * 2];
            object.read_at(0, &mut bytes).await?;
            let counts: Vec<u16> = entry_counts(&bytes, ByteOrder::Little).collect();
            if counts.iter().map(|count| u64::from(*count)).sum::<u64>() != phys.totalcount {
                return Err(Error::corrupt(name, "its counts contradict each other"));
            }
            let table = Table { object: object.id(), phys, counts, changed: false, blocks: BTreeSet::new() };
            tables.insert(vdev, table);
        }
        Ok(Self { tables: Mutex::new(tables) })
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<u32, Table>> {
        self.tables.lock().ignore_poison()
    }

    /// The deflated bytes that clones would occupy if they were copies.
    pub(super) fn saved_bytes(&self) -> u64 {
        self.tables().values().fold(0, |sum, table| sum.saturating_add(table.phys.savedspace_bytes))
    }

    /// The ZAP of a vdev's entries, if this place may have one.
    fn entries_near(&self, place: Place) -> Option<ObjectId> {
        let tables = self.tables();
        let table = tables.get(&place.vdev)?;
        let range = table.phys.range_of(ByteOffset(place.offset))?;
        let count = table.counts.get(usize::try_from(range).ok()?)?;
        (*count > 0).then_some(table.phys.mos_entries)
    }

    fn change(&self, place: Place, change: impl FnOnce(&mut Table) -> Result<()>) -> Result<()> {
        let mut tables = self.tables();
        let missing = || Error::corrupt(format!("vdev {}", place.vdev), "has no block reference table");
        let table = tables.get_mut(&place.vdev).ok_or_else(missing)?;
        table.changed = true;
        change(table)
    }
}

/// The number of references beyond the first in an entry.
async fn references(entries: &Arc<LiveObject>, place: Place) -> Result<u64> {
    match zap::edit::lookup(entries, &place.key()).await? {
        None => Ok(0),
        Some(zap::Value::U8(bytes)) => {
            parse_entry_count(&bytes, ByteOrder::Little).map_err(Error::format("block reference table"))
        }
        Some(zap::Value::U64(words)) if words.len() == 1 => Ok(words.first().copied().unwrap_or(0)),
        Some(_) => Err(Error::corrupt("block reference table", "an entry that is no count")),
    }
}

/// The value of an entry with this many references, in the format of this pool.
fn entry(m: &MosTask, count: u64) -> zap::Value {
    match m.feature_count(Feature::BlockCloningEndian) {
        Some(1..) => zap::Value::U64(vec![count]),
        _ => zap::Value::U8(count.to_le_bytes().to_vec()),
    }
}

/// The parts of a table to write.
struct Changed {
    vdev: u32,
    object: ObjectId,
    phys: BrtVdevPhys,
    /// Blocks of the counts by their numbers.
    blocks: Vec<(usize, Vec<u8>)>,
}

impl Table {
    fn take_changed(&mut self, vdev: u32) -> Changed {
        self.changed = false;
        let bytes = |block: usize| {
            let counts = self.counts.chunks(BLOCK_COUNTS).nth(block).unwrap_or_default();
            let mut bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
            bytes.resize(BLOCK_BYTES, 0);
            (block, bytes)
        };
        let blocks = std::mem::take(&mut self.blocks).into_iter().map(bytes).collect();
        Changed { vdev, object: self.object, phys: self.phys, blocks }
    }
}

impl Brt {
    /// Counts new references to used blocks, one for each given pointer.
    pub(super) async fn reference(&self, m: &MosTask, pointers: &[Blkptr]) -> Result<()> {
        let mut more: BTreeMap<Place, (u64, u64)> = BTreeMap::new();
        for bp in pointers {
            if let Some(place) = Place::of(bp) {
                let (count, _) = *more.entry(place).or_default();
                more.insert(place, (count + 1, m.writer().dsize(bp)));
            }
        }
        for (place, (new, dsize)) in more {
            let entries = m.mos().object(self.entries_of(m, place).await?).await?;
            let before = references(&entries, place).await?;
            let after = before.checked_add(new).ok_or_else(|| entries.corrupt("a count that overflows"))?;
            zap::edit::set(&entries, &m.tx, &place.key(), &entry(m, after)).await?;
            self.change(place, |table| {
                let saved = &mut table.phys.savedspace_bytes;
                *saved = saved.saturating_add(dsize.saturating_mul(new));
                if before == 0 {
                    table.phys.usedspace_bytes = table.phys.usedspace_bytes.saturating_add(dsize);
                    table.count(place, true)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// A reference to a block is gone. Returns true when it was the last one, so that the block must be
    /// freed.
    pub(super) async fn release(&self, m: &MosTask, bp: &Blkptr) -> Result<bool> {
        let Some(place) = Place::of(bp) else { return Ok(true) };
        let Some(entries) = self.entries_near(place) else { return Ok(true) };
        let entries = m.mos().object(entries).await?;
        let before = references(&entries, place).await?;
        let Some(after) = before.checked_sub(1) else { return Ok(true) };
        if after == 0 {
            zap::edit::remove(&entries, &m.tx, &place.key()).await?;
        } else {
            zap::edit::set(&entries, &m.tx, &place.key(), &entry(m, after)).await?;
        }
        let dsize = m.writer().dsize(bp);
        self.change(place, |table| {
            table.phys.savedspace_bytes = table.phys.savedspace_bytes.saturating_sub(dsize);
            if after == 0 {
                table.phys.usedspace_bytes = table.phys.usedspace_bytes.saturating_sub(dsize);
                table.count(place, false)?;
            }
            Ok(())
        })?;
        Ok(false)
    }

    /// The ZAP of the entries of a place's vdev, whose table is created or extended if necessary.
    async fn entries_of(&self, m: &MosTask, place: Place) -> Result<ObjectId> {
        let known = self.tables().get(&place.vdev).map(|table| table.phys.rangesize_bytes);
        let longest = ranges_of(m, place.vdev, known.unwrap_or(RANGE_BYTES));
        {
            let mut tables = self.tables();
            if let Some(table) = tables.get_mut(&place.vdev) {
                if table.phys.range_of(ByteOffset(place.offset)).is_none() {
                    table.phys.size = longest;
                    table.counts.resize(table.phys.size as usize, 0);
                }
                return Ok(table.phys.mos_entries);
            }
        }
        let new = NewZap {
            flags: ZapFlags::HASH64.0 | ZapFlags::UINT64_KEY.0,
            micro_block_bytes: ENTRIES_BLOCK_BYTES,
            ..NewZap::of(zap::metadata_type())
        };
        let entries = zap::edit::create(m.mos(), &m.tx, new).await?.id();
        let phys = BrtVdevPhys {
            mos_entries: entries,
            size: longest,
            rangesize_bytes: RANGE_BYTES,
            ..Default::default()
        };
        let new = NewObject {
            dmu_type: COUNTS_TYPE,
            block_size: BLOCK_BYTES as u32,
            bonus_type: COUNTS_TYPE,
            bonus: phys.encode(ByteOrder::Little),
            slots: 1,
        };
        let object = m.mos().allocate(&m.tx, new).await?.id();
        let name = directory_key(VdevId(place.vdev));
        m.set_in_directory(&name, zap::Value::U64(vec![object.get()])).await?;
        let is_first = m.feature_count(Feature::BlockCloning).unwrap_or(0) == 0;
        let has_numbers = match m.feature_count(Feature::BlockCloningEndian) {
            Some(0) => is_first,
            Some(_) => true,
            None => false,
        };
        if has_numbers {
            m.use_feature(Feature::BlockCloningEndian, 1).await?;
        }
        m.use_feature(Feature::BlockCloning, 1).await?;
        let counts = vec![0; longest as usize];
        let table = Table { object, phys, counts, changed: true, blocks: BTreeSet::from([0]) };
        self.tables().insert(place.vdev, table);
        Ok(entries)
    }

    /// Writes the changes of the tables, and removes tables without entries.
    pub(super) async fn write(&self, m: &MosTask) -> Result<()> {
        let changed: Vec<Changed> = {
            let mut tables = self.tables();
            let changed = tables.iter_mut().filter(|(_, table)| table.changed);
            changed.map(|(vdev, table)| table.take_changed(*vdev)).collect()
        };
        for Changed { vdev, object, phys, blocks } in changed {
            if phys.totalcount == 0 {
                m.mos().free(&m.tx, phys.mos_entries).await?;
                m.mos().free(&m.tx, object).await?;
                let directory = m.mos().object(DIRECTORY_OBJECT).await?;
                let key = zap::Key::Name(directory_key(VdevId(vdev)).into_bytes());
                zap::edit::remove(&directory, &m.tx, &key).await?;
                self.tables().remove(&vdev);
                m.use_feature(Feature::BlockCloning, -1).await?;
                if m.feature_count(Feature::BlockCloningEndian).is_some_and(|count| count > 0) {
                    m.use_feature(Feature::BlockCloningEndian, -1).await?;
                }
                continue;
            }
            let object = m.mos().object(object).await?;
            for (block, bytes) in blocks {
                object.write_at(&m.tx, (block * BLOCK_BYTES) as u64, &bytes).await?;
            }
            object.set_bonus(&m.tx, COUNTS_TYPE, &phys.encode(ByteOrder::Little));
        }
        Ok(())
    }
}
