//! Whether dedup tables count right: every pointer to a deduplicated block is one reference of its entry.
//!
//! All entries of all tables and logs are read first. Each pointer that the verification meets takes one
//! reference away; at the end none must be left. A pointer that no entry knows is one of a block whose entry
//! was pruned. An entry may know more copies than a pointer, because copies were added after that was made:
//! the space of all of them is claimed with the first pointer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use device::IgnorePoison;
use ondisk::ObjectId;
use ondisk::blkptr::{Blkptr, ChecksumType, Dva};
use ondisk::ddt::log::{DdtLogHeader, LOG_FLUSHING, records};
use ondisk::ddt::{self, DdtKey, DdtPhys, PhysForm};

use crate::Pool;
use crate::dmu::zap::{self, Zap};
use crate::dmu::{Object, Objset};
use crate::error::{Error, Result};
use crate::tables::ddt::stored::{StoredTable, entry_of, mos_of, stored_tables};

/// Most contradictions that are kept with their details.
const MAX_KEPT: usize = 20;

/// An entry: the checksum function of its table, and the words of its key.
type Id = (u8, [u64; DdtKey::WORDS]);
/// What an entry counts by its slots: the value, and references that were not met yet.
type Counted = (DdtPhys, [u64; 4]);

/// The outcome of the comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DedupReport {
    /// Entries of all tables and logs.
    pub entries: u64,
    /// Entries that count other references than there are.
    pub wrong_entries: u64,
    /// The first of these, for people.
    pub wrong: Vec<String>,
    /// Pointers to blocks whose entries were pruned.
    pub without_entry: u64,
}

/// The entries of a pool while pointers are counted.
#[derive(Debug)]
pub(super) struct Entries {
    counted: Mutex<(HashMap<Id, Counted>, u64)>,
}

fn left_of(phys: &DdtPhys) -> [u64; 4] {
    let mut left = [0; 4];
    for (left, slot) in left.iter_mut().zip(phys.all_slots()) {
        *left = if slot.is_used() { slot.refcount } else { 0 };
    }
    left
}

impl Entries {
    /// Reads all entries; none where the pool has no table.
    pub async fn load(pool: &Arc<Pool>) -> Result<Option<Self>> {
        let mos = mos_of(pool).await?;
        let tables = stored_tables(&mos).await?;
        let mut all = HashMap::new();
        for StoredTable { checksum, form, directory, zaps } in &tables {
            for (_, object) in zaps {
                read_zap(object, checksum.raw(), *form, &mut all).await?;
            }
            if let Some(directory) = directory {
                read_logs(&mos, directory, *checksum, *form, &mut all).await?;
            }
        }
        let counted = all.into_iter().map(|(id, phys)| (id, (phys, left_of(&phys)))).collect();
        Ok((!tables.is_empty()).then(|| Self { counted: Mutex::new((counted, 0)) }))
    }

    /// Counts a pointer. The addresses of its block, as the entry has them.
    pub fn count(&self, bp: &Blkptr) -> Option<Vec<Dva>> {
        let key = DdtKey::of(bp);
        let mut counted = self.counted.lock().ignore_poison();
        let found = counted.0.get_mut(&(bp.checksum_type().raw(), key.words()));
        let known = found.and_then(|(phys, left)| {
            let place = phys.slot_of(bp)?;
            // Below nothing it is far off, and stays so.
            let left = left.get_mut(place)?;
            *left = left.wrapping_sub(1);
            phys.all_slots().get(place)?.dvas(key.is_encrypted()).ok()
        });
        if known.is_none() {
            counted.1 += 1;
        }
        known
    }

    /// What does not match.
    pub fn report(self) -> DedupReport {
        let (all, without_entry) = self.counted.into_inner().ignore_poison();
        let mut report = DedupReport { entries: all.len() as u64, without_entry, ..DedupReport::default() };
        for ((checksum, words), (phys, left)) in all {
            if left.iter().all(|left| *left == 0) {
                continue;
            }
            report.wrong_entries += 1;
            if report.wrong.len() < MAX_KEPT {
                let left = left.map(|left| left as i64);
                let slots: Vec<_> = phys.slots().map(|slot| (slot.refcount, slot.phys_birth)).collect();
                report.wrong.push(format!(
                    "checksum {checksum}, key {words:x?}: references and births {slots:?}, not met {left:?}"
                ));
            }
        }
        report
    }
}

async fn read_zap(object: &Object, raw: u8, form: PhysForm, all: &mut HashMap<Id, DdtPhys>) -> Result<()> {
    let zap = Zap::open(object).await?;
    let mut entries = zap.cursor(0);
    while let Some(entry) = entries.next().await? {
        let (key, phys) = entry_of(object, &entry, form)?;
        if all.insert((raw, key.words()), phys).is_some() {
            return Err(object.corrupt("an entry that another class has too"));
        }
    }
    Ok(())
}

/// The records of logs replace what ZAPs say; where both logs have one, that of the growing one counts.
async fn read_logs(
    mos: &Arc<Objset>,
    names: &Object,
    checksum: ChecksumType,
    form: PhysForm,
    all: &mut HashMap<Id, DdtPhys>,
) -> Result<()> {
    let mut logs = Vec::new();
    for which in 0..2 {
        let name = ddt::log_name(checksum, which);
        let Some(id) = zap::lookup_u64(names, &name).await? else { continue };
        let object = mos.object(ObjectId(id)).await?;
        let (bonus, order) = object.bonus();
        let header = DdtLogHeader::parse(bonus, order).map_err(Error::format(&name))?;
        header.check_version().map_err(Error::format(&name))?;
        logs.push((header.flags() & LOG_FLUSHING == 0, header, object));
    }
    logs.sort_by_key(|(grows, ..)| *grows);
    for (_, header, object) in logs {
        let flushed = header.checkpoint().map(|key| key.words());
        let blocks = header.length_bytes.min(object.end()).div_ceil(object.block_size().max(1));
        for block in 0..blocks {
            let Some(found) = object.block(block).await? else { continue };
            for record in records(&found.block, form, found.order) {
                let record = record.map_err(|error| object.corrupt(error))?;
                let words = record.key.words();
                if flushed.is_none_or(|flushed| flushed < words) {
                    all.insert((checksum.raw(), words), record.phys);
                }
            }
        }
    }
    Ok(())
}
