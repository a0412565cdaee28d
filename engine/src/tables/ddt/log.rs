//! The log of a fast dedup table: changed entries that are not in its ZAPs yet.
//!
//! # The idea
//! An entry is a small part of a leaf of a ZAP, and the entries that a group changes are spread over all
//! leaves. To write them there would be to write most of the table again in each group. So a group appends
//! them to a log, one after the other, and keeps them in memory. Later they go into the ZAPs in the order of
//! keys, which is the order of leaves: many entries for each leaf.
//!
//! There are two logs. The *active* one takes what groups append. The *flushing* one does not grow any more:
//! each group moves some of its entries, from the lowest key on, into the ZAPs, and notes in the header how
//! far it has come. When it is empty it is cut to nothing, and when the active one is old or large enough,
//! both change their roles.
//!
//! # Invariants
//! - The newest state of an entry is in the active log if it is there, else in the flushing one, else in a
//!   ZAP. In memory it is in one of both logs only: an entry that changes moves into the active one. On disk
//!   the flushing log still has what it was, which the import leaves out.
//! - A record says in which class's ZAP the key is, so that the flush finds what it replaces.
//! - An entry without references is a record too: it takes the entry out of the ZAP. Its space is free
//!   already, and its slots are empty. (OpenZFS frees that space with the flush, so its logs have slots
//!   without references.)
//!
//! # Pace
//! A group flushes a hundredth of all entries in both logs, at least 200, and a quarter more
//! (`zfs_dedup_log_flush_txgs`, `zfs_dedup_log_flush_entries_min`, `zfs_dedup_log_flush_entries_max`): so the
//! logs stay about a hundred groups of changes long. Logs change roles after eight groups
//! (`zfs_dedup_log_txg_max`), or earlier when the active one takes half of the memory that both may take
//! (`zfs_dedup_log_mem_max`).
//!
//! Source of the facts: OpenZFS 2.4 `ddt_log.c`, `ddt.c` (`ddt_sync_flush_log`).

use std::sync::Arc;

use ondisk::blkptr::{ChecksumType, Dva};
use ondisk::ddt::log::{DdtLogHeader, DdtLogRecord, LOG_FLUSHING, blocks, records};
use ondisk::ddt::{DdtClass, DdtKey, DdtPhys, DdtStat, PhysForm, log_name};
use ondisk::dmu::{Byteswap, DmuType};
use ondisk::{ByteOrder, ObjectId, Txg};

use super::kept::{EntryMap, KeptPhys, Words};
use crate::dmu::zap::{Key, edit};
use crate::dmu::{LiveObject, LiveObjset, NewObject};
use crate::error::{Error, Result};
use crate::mos::MosTask;
use crate::tunables;

/// Bytes in a block of a new log.
const BLOCK_BYTES: u32 = 128 << 10;
/// The type of the objects, and of their headers (`DMU_OTN_UINT64_METADATA`).
const OBJECT_TYPE: DmuType = DmuType::self_describing(Byteswap::Uint64, true, false);
/// Memory of an entry besides its value: key, class, and links.
const ENTRY_BYTES: usize = 72;

const ORDER: ByteOrder = ByteOrder::Little;

/// What tells how many bytes an address takes without parity.
pub(super) type Dsize<'a> = &'a (dyn Fn(&Dva) -> u64 + Sync);

/// The state of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Logged {
    /// The class in whose ZAP the key is.
    pub class: Option<DdtClass>,
    pub phys: DdtPhys,
}

/// The state of an entry as it is kept in memory ([`super::kept`]).
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub class: Option<DdtClass>,
    pub phys: KeptPhys,
}

impl Kept {
    fn of(logged: &Logged) -> Self {
        Self { class: logged.class, phys: KeptPhys::of(logged.phys) }
    }

    fn logged(&self) -> Logged {
        Logged { class: self.class, phys: self.phys.phys() }
    }
}

/// One of the two logs.
#[derive(Debug)]
struct One {
    /// Its number, which is in its name.
    which: u8,
    /// None before the first entry of the table.
    object: Option<ObjectId>,
    length_bytes: u64,
    first_txg: Txg,
    /// The key up to which it is flushed.
    checkpoint: Option<DdtKey>,
    entries: EntryMap<Kept>,
    /// The numbers of entries from the highest key down, once they were asked for. Nothing comes after that.
    order: Option<Vec<u32>>,
}

/// The logs of a table.
#[derive(Debug)]
pub(super) struct Log {
    form: PhysForm,
    active: One,
    flushing: One,
    /// The sum over all entries; none before it is asked for.
    statistics: Option<DdtStat>,
}

fn statistics_of(key: &DdtKey, phys: &DdtPhys, dsize: Dsize<'_>) -> Result<DdtStat> {
    DdtStat::of_entry(key, phys, dsize).map_err(Error::format("an entry of a dedup log"))
}

impl One {
    fn new(which: u8) -> Self {
        let (entries, order) = (EntryMap::default(), None);
        Self { which, object: None, length_bytes: 0, first_txg: Txg::NONE, checkpoint: None, entries, order }
    }

    /// Reads a log, with all its records that count. Whether it is being flushed.
    async fn load(mos: &Arc<LiveObjset>, id: ObjectId, which: u8, form: PhysForm) -> Result<(Self, bool)> {
        let object = mos.object(id).await?;
        let header = DdtLogHeader::parse(&object.bonus(), ORDER).map_err(|error| object.corrupt(error))?;
        header.check_version().map_err(Error::format("dedup log"))?;
        if header.length_bytes > object.end() {
            return Err(object.corrupt("a log that is longer than its object"));
        }
        let checkpoint = header.checkpoint();
        let mut one = Self {
            object: Some(id),
            length_bytes: header.length_bytes,
            first_txg: header.first_txg,
            checkpoint,
            ..Self::new(which)
        };
        for block in 0..header.length_bytes.div_ceil(object.block_size().max(1)) {
            let Some(found) = object.block(block).await? else {
                return Err(object.corrupt("a hole in a log"));
            };
            if found.order != ORDER {
                return Err(Error::Unsupported("a dedup log was written by a big-endian machine".to_owned()));
            }
            for record in records(&found.block, form, ORDER) {
                let DdtLogRecord { class, key, phys } = record.map_err(|error| object.corrupt(error))?;
                if checkpoint.is_none_or(|flushed| flushed.words() < key.words()) {
                    one.entries.insert(key.words(), Kept::of(&Logged { class, phys }))?;
                }
            }
        }
        Ok((one, header.flags() & LOG_FLUSHING != 0))
    }

    /// Takes the entry of the lowest key out.
    fn pop_lowest(&mut self) -> Option<(Words, Kept)> {
        let order = self.order.get_or_insert_with(|| self.entries.numbers_from_highest());
        loop {
            // Those that moved into the active log are not there.
            let Some(words) = self.entries.key_of(order.pop()?) else { continue };
            return self.entries.remove(&words).map(|kept| (words, kept));
        }
    }

    async fn write_header(&self, m: &MosTask, flags: u8) -> Result<()> {
        let Some(id) = self.object else { return Ok(()) };
        let header = DdtLogHeader::new(flags, self.length_bytes, self.first_txg, self.checkpoint);
        m.mos().object(id).await?.set_bonus(&m.tx, OBJECT_TYPE, &header.encode(ORDER));
        Ok(())
    }

    async fn create(&mut self, m: &MosTask, place: (ObjectId, ChecksumType), flags: u8) -> Result<()> {
        let (directory, checksum) = place;
        self.first_txg = m.txg();
        let new = NewObject {
            dmu_type: OBJECT_TYPE,
            block_size: BLOCK_BYTES,
            bonus_type: OBJECT_TYPE,
            bonus: DdtLogHeader::new(flags, 0, self.first_txg, None).encode(ORDER),
            slots: 1,
        };
        let id = m.mos().allocate(&m.tx, new).await?.id();
        let directory = m.mos().object(directory).await?;
        edit::set_u64(&directory, &m.tx, log_name(checksum, self.which), id.get()).await?;
        self.object = Some(id);
        Ok(())
    }

    /// Forgets all that the log has on disk.
    async fn truncate(&mut self, m: &MosTask) -> Result<()> {
        if let Some(id) = self.object.filter(|_| self.length_bytes > 0) {
            m.mos().object(id).await?.punch(&m.tx, 0, u64::MAX).await?;
        }
        (self.length_bytes, self.checkpoint) = (0, None);
        Ok(())
    }
}

impl Log {
    /// The logs of a table without entries.
    pub(super) fn new(form: PhysForm) -> Self {
        Self { form, active: One::new(0), flushing: One::new(1), statistics: None }
    }

    /// Reads the logs of a table, whose names are in `directory`.
    pub(super) async fn load(
        mos: &Arc<LiveObjset>,
        directory: &Arc<LiveObject>,
        checksum: ChecksumType,
        form: PhysForm,
    ) -> Result<Self> {
        let mut found = Vec::new();
        for which in 0..2 {
            if let Some(id) = edit::lookup_u64(directory, log_name(checksum, which)).await? {
                found.push(One::load(mos, ObjectId(id), which, form).await?);
            }
        }
        let (active, mut flushing) = match <[_; 2]>::try_from(found) {
            Ok([(active, false), (flushing, true)] | [(flushing, true), (active, false)]) => {
                (active, flushing)
            }
            Err(none) if none.is_empty() => return Ok(Self::new(form)),
            _ => return Err(directory.corrupt("the two logs of a dedup table contradict each other")),
        };
        if active.checkpoint.is_some() {
            return Err(directory.corrupt("a dedup log is flushed that is not being flushed"));
        }
        for (words, _) in active.entries.iter() {
            flushing.entries.remove(words);
        }
        Ok(Self { form, active, flushing, statistics: None })
    }

    /// The newest state of an entry that is in a log.
    pub(super) fn find(&self, key: &DdtKey) -> Option<Logged> {
        let words = key.words();
        let found = self.active.entries.get(&words).or_else(|| self.flushing.entries.get(&words));
        found.map(Kept::logged)
    }

    /// The number of entries in both logs.
    pub(super) fn len(&self) -> usize {
        self.active.entries.len() + self.flushing.entries.len()
    }

    /// The number of entries in the log that is being flushed.
    pub(super) fn flushing_len(&self) -> usize {
        self.flushing.entries.len()
    }

    /// The words of the keys of all entries.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Words> {
        self.active.entries.iter().chain(self.flushing.entries.iter()).map(|(words, _)| words)
    }

    /// The objects of both logs.
    pub(super) fn objects(&self) -> impl Iterator<Item = ObjectId> + use<> {
        [self.active.object, self.flushing.object].into_iter().flatten()
    }

    /// Whether no entry is in a log.
    pub(super) fn is_empty(&self) -> bool {
        self.active.entries.is_empty() && self.flushing.entries.is_empty()
    }

    /// The sum over all entries.
    pub(super) fn statistics(&mut self, dsize: Dsize<'_>) -> DdtStat {
        if let Some(known) = self.statistics {
            return known;
        }
        let mut total = DdtStat::default();
        for (words, kept) in self.active.entries.iter().chain(self.flushing.entries.iter()) {
            // Those that cannot be counted are found when they are flushed.
            if let Ok(entry) = statistics_of(&DdtKey::from_words(*words), &kept.logged().phys, dsize) {
                total.add(&entry);
            }
        }
        *self.statistics.insert(total)
    }

    fn count(&mut self, key: &DdtKey, phys: &DdtPhys, is_more: bool, dsize: Dsize<'_>) -> Result<()> {
        let entry = statistics_of(key, phys, dsize)?;
        if let Some(total) = &mut self.statistics {
            if is_more { total.add(&entry) } else { total.take_away(&entry) }
        }
        Ok(())
    }

    /// The entry is in no log any more.
    pub(super) fn forget(&mut self, key: &DdtKey, dsize: Dsize<'_>) -> Result<()> {
        let words = key.words();
        let of_active = self.active.entries.remove(&words);
        match of_active.or_else(|| self.flushing.entries.remove(&words)) {
            Some(old) => self.count(key, &old.logged().phys, false, dsize),
            None => Ok(()),
        }
    }

    /// Appends records to the active log, in whole blocks. Their entries are in no log. The names of logs are
    /// in the given directory.
    pub(super) async fn append(
        &mut self,
        m: &MosTask,
        place: (ObjectId, ChecksumType),
        new: &[DdtLogRecord],
        dsize: Dsize<'_>,
    ) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let id = match self.active.object {
            Some(id) => id,
            None => {
                self.active.create(m, place, 0).await?;
                self.flushing.create(m, place, LOG_FLUSHING).await?;
                self.active.object.ok_or_else(|| Error::corrupt("a dedup log", "was not created"))?
            }
        };
        let object = m.mos().object(id).await?;
        // The class of vdevs for dedup tables, as far as that has room.
        object.set_storage_type(DmuType::DDT_ZAP);
        let block_bytes = object.block_size();
        let first = self.active.length_bytes / block_bytes.max(1);
        let mut end = first;
        for block in blocks(new, self.form, block_bytes as usize, ORDER) {
            object.write_block(&m.tx, end, device::IoBuf::from(&block[..]).into());
            end += 1;
        }
        self.active.length_bytes = end * block_bytes;
        for DdtLogRecord { class, key, phys } in new {
            self.count(key, phys, true, dsize)?;
            let kept = Kept::of(&Logged { class: *class, phys: *phys });
            self.active.entries.insert(key.words(), kept)?;
        }
        self.active.write_header(m, 0).await
    }

    /// The number of entries that a group flushes.
    fn due(&self) -> usize {
        let least = self.len() / tunables::ZFS_DEDUP_LOG_FLUSH_TXGS.size().max(1);
        let least = least.max(tunables::ZFS_DEDUP_LOG_FLUSH_ENTRIES_MIN.size());
        least.saturating_add(least / 4).min(tunables::ZFS_DEDUP_LOG_FLUSH_ENTRIES_MAX.size())
    }

    /// Takes the entries out of the flushing log that the caller must write into the ZAPs now, in the order
    /// of keys.
    pub(super) fn take_due(&mut self, dsize: Dsize<'_>) -> Result<Vec<(DdtKey, Logged)>> {
        let mut taken = Vec::new();
        for _ in 0..self.due() {
            let Some((words, kept)) = self.flushing.pop_lowest() else { break };
            let (key, logged) = (DdtKey::from_words(words), kept.logged());
            self.count(&key, &logged.phys, false, dsize)?;
            taken.push((key, logged));
        }
        Ok(taken)
    }

    /// Notes that all up to this key is flushed, or nothing in this group; then lets the logs change roles if
    /// it is time.
    pub(super) async fn flushed(&mut self, m: &MosTask, last: Option<DdtKey>) -> Result<()> {
        if self.flushing.entries.is_empty() {
            // What is left on disk went into the active log, or into the ZAPs.
            if self.flushing.length_bytes > 0 {
                self.flushing.truncate(m).await?;
                self.flushing.write_header(m, LOG_FLUSHING).await?;
            }
            if self.is_time_to_swap(m.txg()) {
                std::mem::swap(&mut self.active, &mut self.flushing);
                self.active.order = None;
                self.active.first_txg = m.txg();
                self.active.write_header(m, 0).await?;
                self.flushing.write_header(m, LOG_FLUSHING).await?;
            }
        } else if last.is_some() {
            self.flushing.checkpoint = last;
            self.flushing.write_header(m, LOG_FLUSHING).await?;
        }
        Ok(())
    }

    fn is_time_to_swap(&self, txg: Txg) -> bool {
        let entries = self.active.entries.len();
        let memory = entries.saturating_mul(self.form.size() + ENTRY_BYTES);
        let is_large = memory >= tunables::ZFS_DEDUP_LOG_MEM_MAX.size() / 2;
        let age = tunables::ZFS_DEDUP_LOG_TXG_MAX.get();
        let is_old = txg.get() >= self.active.first_txg.get().saturating_add(age);
        entries > 0 && (is_large || is_old)
    }

    /// Removes the logs, which have no entries.
    pub(super) async fn destroy(&mut self, m: &MosTask, place: (ObjectId, ChecksumType)) -> Result<()> {
        let (directory, checksum) = place;
        let directory = m.mos().object(directory).await?;
        for one in [&mut self.active, &mut self.flushing] {
            if let Some(id) = one.object.take() {
                let name = Key::Name(log_name(checksum, one.which).into_bytes());
                edit::remove(&directory, &m.tx, &name).await?;
                m.mos().free(&m.tx, id).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ondisk::ddt::{DdtFlat, DdtSlot};

    use super::*;

    fn log(entries: u64) -> Log {
        let mut log = Log::new(PhysForm::Flat);
        for number in 0..entries {
            let slot = DdtSlot { refcount: number, phys_birth: Txg(number + 1), ..DdtSlot::default() };
            let phys = DdtPhys::Flat(DdtFlat { slot, class_start: number });
            let logged = Logged { class: None, phys };
            log.flushing.entries.insert([entries - number, 0, 0, 0, 0], Kept::of(&logged)).unwrap();
        }
        log
    }

    #[test]
    fn a_group_flushes_a_hundredth_and_at_least_250_in_the_order_of_keys() {
        for (entries, due) in [(100, 100), (1000, 250), (40_000, 500)] {
            let mut log = log(entries);
            let taken = log.take_due(&|_| 0).unwrap();
            assert_eq!(taken.len(), due, "{entries}");
            assert!(taken.is_sorted_by_key(|(key, _)| key.words()));
            assert_eq!(taken[0].0.words()[0], 1);
        }
        let due_after = |tunable: &tunables::Tunable, value| {
            tunable.set(value).unwrap();
            let due = log(1000).due();
            tunable.reset();
            due
        };
        assert_eq!(due_after(&tunables::ZFS_DEDUP_LOG_FLUSH_TXGS, 2), 625);
        assert_eq!(due_after(&tunables::ZFS_DEDUP_LOG_FLUSH_ENTRIES_MIN, 400), 500);
        assert_eq!(due_after(&tunables::ZFS_DEDUP_LOG_FLUSH_ENTRIES_MAX, 7), 7);
    }

    #[test]
    fn logs_change_roles_when_the_active_one_is_old_or_large() {
        let mut log = log(8192);
        assert!(!log.is_time_to_swap(Txg(100)), "there is nothing in it");
        std::mem::swap(&mut log.active, &mut log.flushing);
        log.active.first_txg = Txg(10);
        let swaps_after = |tunable: &tunables::Tunable, value, txg| {
            tunable.set(value).unwrap();
            let swaps = log.is_time_to_swap(Txg(txg));
            tunable.reset();
            swaps
        };
        assert!(!log.is_time_to_swap(Txg(17)) && log.is_time_to_swap(Txg(18)), "eight groups");
        assert!(swaps_after(&tunables::ZFS_DEDUP_LOG_TXG_MAX, 3, 13));
        assert!(!swaps_after(&tunables::ZFS_DEDUP_LOG_TXG_MAX, 30, 18));
        assert!(swaps_after(&tunables::ZFS_DEDUP_LOG_MEM_MAX, 2 << 20, 10), "a megabyte of entries");
    }

    #[test]
    fn the_active_log_covers_the_flushing_one() {
        let mut log = log(3);
        let key = DdtKey::from_words([2, 0, 0, 0, 0]);
        let newer = Logged { class: Some(DdtClass::Unique), phys: DdtPhys::unused(PhysForm::Flat) };
        log.active.entries.insert(key.words(), Kept::of(&newer)).unwrap();
        assert_eq!(log.find(&key), Some(newer));
        log.forget(&key, &|_| 0).unwrap();
        assert_ne!(log.find(&key), Some(newer));
        log.forget(&key, &|_| 0).unwrap();
        assert_eq!(log.find(&key), None);
    }
}
