//! One dedup table: its objects in the MOS, look-up of entries, and writing a group's changes.
//!
//! A traditional table is nothing but its ZAPs, which the pool directory names. A fast table has a directory
//! of its own, which the pool directory names: in it are the ZAPs, the logs, and two numbers that say what it
//! is. [`ondisk::ddt`] describes the format.
//!
//! The ZAPs of a table go together, when none has an entry. A fast table's directory and logs go when the
//! logs have none either; only then the table is gone.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use ondisk::ObjectId;
use ondisk::blkptr::{Blkptr, ChecksumType, Dva};
use ondisk::ddt::log::DdtLogRecord;
use ondisk::ddt::{
    self, DdtClass, DdtHistogram, DdtKey, DdtPhys, DdtSlot, DdtStat, FLAG_FLAT, FLAG_LOG, PhysForm, dir_key,
};
use ondisk::dmu::DmuType;
use ondisk::features::Feature;
use ondisk::pool_directory::{DDT_STATISTICS, DIRECTORY_OBJECT};
use ondisk::zap::ZapFlags;

use super::kept::{EntryMap, Words};
use super::live::{Live, Origin, take_unreferenced};
use super::log::{Log, Logged};
use super::packed;
use crate::Block;
use crate::dmu::LiveObjset;
use crate::dmu::zap::edit::{self, Edit, NewZap};
use crate::dmu::zap::{Key, Value, metadata_type};
use crate::error::{Error, Result};
use crate::mos::MosTask;

/// Bytes in a block of a new ZAP of entries (`ddt_zap_default_bs`).
const ZAP_BLOCK_BYTES: u32 = 32 << 10;
/// Leaves that are read, and blocks that are freed, side by side.
const AT_ONCE: usize = 32;

/// The kind of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    form: PhysForm,
    is_logged: bool,
    /// It has a directory of its own.
    is_fast: bool,
}

impl Kind {
    pub(super) const FAST: Self = Self { form: PhysForm::Flat, is_logged: true, is_fast: true };
    pub(super) const TRADITIONAL: Self =
        Self { form: PhysForm::Traditional, is_logged: false, is_fast: false };

    fn flags(self) -> u64 {
        let flat = if self.form == PhysForm::Flat { FLAG_FLAT } else { 0 };
        flat | if self.is_logged { FLAG_LOG } else { 0 }
    }
}

/// The entries of one class.
#[derive(Debug)]
struct Class {
    zap: ObjectId,
    histogram: DdtHistogram,
    /// Whether the histogram is not written yet.
    is_changed: bool,
}

/// The table of one checksum function.
#[derive(Debug)]
pub(super) struct Table {
    checksum: ChecksumType,
    kind: Kind,
    /// Where the names are; a fast table gets its directory with its first entry.
    directory: Option<ObjectId>,
    /// By the numbers of classes.
    classes: [Option<Class>; 3],
    log: Option<Log>,
    /// The entries of the group that is being written.
    pub live: EntryMap<Live>,
    /// The bytes of blocks that are being written, by the words of keys and slot.
    pub being_written: HashMap<(Words, usize), Block>,
}

/// The ZAPs in which an entry may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Zaps {
    form: PhysForm,
    zaps: [Option<ObjectId>; 3],
}

/// What the ZAPs say of a key.
pub(super) type Found = (DdtKey, Option<(DdtClass, DdtPhys)>);

fn key_in_zap(key: &DdtKey) -> Key {
    Key::Words(key.words().to_vec())
}

fn name(name: &str) -> Key {
    Key::Name(name.as_bytes().to_vec())
}

impl Zaps {
    /// Whether there is no ZAP.
    pub(super) fn are_none(&self) -> bool {
        self.zaps.iter().all(Option::is_none)
    }

    /// The stored entries of keys, which are sorted, with their classes. Each leaf is read once.
    pub(super) async fn look_up(self, mos: &Arc<LiveObjset>, keys: Vec<DdtKey>) -> Result<Vec<Found>> {
        let mut found = Vec::with_capacity(keys.len());
        let mut left = keys;
        for (class, zap) in DdtClass::ALL.into_iter().zip(self.zaps) {
            let Some(zap) = zap.filter(|_| !left.is_empty()) else { continue };
            let zap = mos.object(zap).await?;
            let keys: Vec<Key> = left.iter().map(key_in_zap).collect();
            let values = edit::lookup_many(&zap, &keys, AT_ONCE).await?;
            let mut without = Vec::new();
            for (key, value) in left.into_iter().zip(values) {
                match value {
                    Some(value) => found.push((key, Some((class, packed::unpack(&value, self.form)?)))),
                    None => without.push(key),
                }
            }
            left = without;
        }
        found.extend(left.into_iter().map(|key| (key, None)));
        Ok(found)
    }
}

impl Table {
    /// A table without entries.
    pub(super) fn new(checksum: ChecksumType, kind: Kind) -> Self {
        Self {
            checksum,
            kind,
            directory: (!kind.is_fast).then_some(DIRECTORY_OBJECT),
            classes: [const { None }; 3],
            log: kind.is_logged.then(|| Log::new(kind.form)),
            live: EntryMap::default(),
            being_written: HashMap::new(),
        }
    }

    /// Reads a table, if there is one.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: a table of a kind that is not known.
    pub(super) async fn load(mos: &Arc<LiveObjset>, checksum: ChecksumType) -> Result<Option<Self>> {
        let pool_directory = mos.object(DIRECTORY_OBJECT).await?;
        let own = edit::lookup_u64(&pool_directory, ddt::directory_name(checksum)).await?.map(ObjectId);
        let (kind, directory) = match own {
            None => (Kind::TRADITIONAL, Arc::clone(&pool_directory)),
            Some(own) => {
                let directory = mos.object(own).await?;
                let number = async |name| Ok(edit::lookup_u64(&directory, name).await?.unwrap_or(0));
                let (version, flags): (u64, u64) =
                    (number(dir_key::VERSION).await?, number(dir_key::FLAGS).await?);
                if version != ddt::VERSION_FAST || flags & !(FLAG_FLAT | FLAG_LOG) != 0 {
                    return Err(Error::Unsupported(format!(
                        "the dedup table of {checksum} has version {version} and flags {flags:#x}, which are \
                         not written yet"
                    )));
                }
                let is_logged = flags & FLAG_LOG != 0;
                (Kind { form: PhysForm::from_flags(flags), is_logged, is_fast: true }, directory)
            }
        };
        let statistics = edit::lookup_u64(&pool_directory, DDT_STATISTICS).await?.map(ObjectId);
        let mut table = Self::new(checksum, kind);
        table.directory = Some(directory.id());
        for (class, place) in DdtClass::ALL.into_iter().zip(&mut table.classes) {
            let name = ddt::object_name(checksum, class);
            let Some(zap) = edit::lookup_u64(&directory, &name).await?.map(ObjectId) else { continue };
            let histogram = histogram(mos, statistics, &name).await?;
            *place = Some(Class { zap, histogram, is_changed: false });
        }
        if kind.is_logged {
            table.log = Some(Log::load(mos, &directory, checksum, kind.form).await?);
        }
        Ok((kind.is_fast || table.classes.iter().any(Option::is_some)).then_some(table))
    }

    /// The form of its values.
    pub(super) fn form(&self) -> PhysForm {
        self.kind.form
    }

    /// Whether entries may have been removed from it while blocks refer to them.
    pub(super) fn may_be_pruned(&self) -> bool {
        self.kind.form == PhysForm::Flat
    }

    /// Makes an entry live that is in a log. False when it must be looked up in the ZAPs.
    pub(super) fn find_in_memory(&mut self, key: &DdtKey) -> Result<bool> {
        if self.live.contains(&key.words()) {
            return Ok(true);
        }
        let Some(Logged { class, phys }) = self.log.as_ref().and_then(|log| log.find(key)) else {
            return Ok(false);
        };
        self.live.insert(key.words(), Live::found(phys, Origin::Logged, class))?;
        Ok(true)
    }

    /// The value of an entry that is live or in a log.
    pub(super) fn value_in_memory(&self, key: &DdtKey) -> Option<DdtPhys> {
        let live = self.live.get(&key.words()).map(Live::phys);
        live.or_else(|| self.log.as_ref()?.find(key).map(|logged| logged.phys))
    }

    /// Whether an entry is live or in a log, so that the ZAPs may not have its newest state.
    pub(super) fn is_in_memory(&self, key: &DdtKey) -> bool {
        self.live.contains(&key.words()) || self.log.as_ref().is_some_and(|log| log.find(key).is_some())
    }

    /// Removes stored entries of blocks with one reference, and leaves their blocks.
    pub(super) async fn prune(&mut self, m: &MosTask, entries: &[(DdtKey, DdtPhys)]) -> Result<()> {
        for (key, phys) in entries {
            self.count_less(m, DdtClass::Unique, key, phys)?;
        }
        let edits: Vec<Edit> = entries.iter().map(|(key, _)| Edit::Remove(key_in_zap(key))).collect();
        let zap = m.mos().object(self.class(DdtClass::Unique)?.zap).await?;
        edit::edit_many(&zap, &m.tx, &edits).await
    }

    /// Makes an entry live as the ZAPs have it, if it is not live by now.
    pub(super) fn make_live(&mut self, (key, found): Found) -> Result<()> {
        if self.live.contains(&key.words()) {
            return Ok(());
        }
        let live = match found {
            Some((class, phys)) => Live::found(phys, Origin::Stored(class), Some(class)),
            None => Live::new(self.kind.form),
        };
        self.live.insert(key.words(), live)
    }

    /// The checksum function of its blocks.
    pub(super) fn checksum(&self) -> ChecksumType {
        self.checksum
    }

    /// The words of the keys of all entries in logs.
    pub(super) fn logged_keys(&self) -> impl Iterator<Item = &Words> {
        self.log.iter().flat_map(Log::keys)
    }

    /// About as many entries as it has.
    pub(super) fn entries(&self) -> u64 {
        let stored = self.classes.iter().flatten().map(|class| class.histogram.total().blocks);
        let logged = self.log.as_ref().map_or(0, |log| log.len() as u64);
        stored.fold(logged, u64::saturating_add)
    }

    /// The entries in its logs, and those in the one that is being flushed. None without logs.
    pub(super) fn logged(&self) -> Option<(u64, u64)> {
        self.log.as_ref().map(|log| (log.len() as u64, log.flushing_len() as u64))
    }

    /// As many stored entries as may be pruned.
    pub(super) fn prunable(&self) -> u64 {
        let unique = self.classes.get(DdtClass::Unique as usize).and_then(Option::as_ref);
        let unique = unique.filter(|_| self.may_be_pruned());
        unique.map_or(0, |class| class.histogram.total().blocks)
    }

    /// Where entries are looked up that are not in memory.
    pub(super) fn zaps(&self) -> Zaps {
        let zaps = self.classes.each_ref().map(|class| class.as_ref().map(|class| class.zap));
        Zaps { form: self.kind.form, zaps }
    }

    /// Ends the lives of all entries. Those that changed, in the order of keys.
    pub(super) fn take_changes(&mut self) -> Vec<(DdtKey, Live)> {
        self.being_written = HashMap::new();
        let changed = self.live.drain().filter(|(_, live)| live.is_changed());
        let mut changed: Vec<_> = changed.map(|(words, live)| (DdtKey::from_words(words), live)).collect();
        changed.sort_unstable_by_key(|(key, _)| key.words());
        changed
    }

    /// Whether it has nothing on disk.
    pub(super) fn is_nowhere(&self) -> bool {
        let has_directory = self.kind.is_fast && self.directory.is_some();
        !has_directory && self.classes.iter().all(Option::is_none)
    }

    /// Its ZAPs and logs.
    pub(super) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        let zaps = self.classes.iter().flatten().map(|class| class.zap);
        zaps.chain(self.log.iter().flat_map(Log::objects))
    }

    /// The sum over all entries, stored and logged.
    pub(super) fn statistics(&mut self, m: &MosTask) -> DdtStat {
        let mut total = DdtStat::default();
        for class in self.classes.iter().flatten() {
            total.add(&class.histogram.total());
        }
        if let Some(log) = &mut self.log {
            total.add(&log.statistics(&|dva| m.allocator().deflated(dva)));
        }
        total
    }

    /// Writes changed entries, and moves a share of what the logs have into the ZAPs. Frees blocks that have
    /// no references any more. False when the table is gone.
    pub(super) async fn write(
        &mut self,
        m: &MosTask,
        statistics: ObjectId,
        changes: Vec<(DdtKey, Live)>,
    ) -> Result<bool> {
        let mut free = Vec::new();
        let mut to_log = Vec::new();
        let mut to_store = Vec::new();
        let now = m.now();
        let dsize = |dva: &Dva| m.allocator().deflated(dva);
        for (key, live) in changes {
            if let Origin::Stored(class) = live.origin {
                self.count_less(m, class, &key, &live.before())?;
            }
            let mut phys = live.phys();
            self.take_free(&key, &mut phys, &mut free)?;
            phys.set_class_start(now);
            let Some(log) = &mut self.log else {
                to_store.push((key, Logged { class: live.class, phys }));
                continue;
            };
            log.forget(&key, &dsize)?;
            if live.origin != Origin::New || !phys.is_unused() {
                to_log.push(DdtLogRecord { class: live.class, key, phys });
            }
        }
        if !to_log.is_empty() {
            let place = (self.own_directory(m).await?, self.checksum);
            if let Some(log) = &mut self.log {
                log.append(m, place, &to_log, &dsize).await?;
            }
        }
        self.store_all(m, statistics, to_store).await?;
        self.flush(m, statistics, &mut free).await?;
        let freed = stream::iter(free).map(|bp| async move { m.writer().free(m.txg(), &bp).await });
        freed.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        self.finish(m, statistics).await
    }

    /// Takes blocks without references out of an entry, for being freed.
    fn take_free(&self, key: &DdtKey, phys: &mut DdtPhys, free: &mut Vec<Blkptr>) -> Result<()> {
        let pointer = |slot: DdtSlot| slot.blkptr(key, self.checksum);
        let gone: ondisk::Result<Vec<Blkptr>> = take_unreferenced(phys).into_iter().map(pointer).collect();
        free.extend(gone.map_err(Error::format("an entry of a dedup table"))?);
        Ok(())
    }

    /// Moves a share of the flushing log into the ZAPs.
    async fn flush(&mut self, m: &MosTask, statistics: ObjectId, free: &mut Vec<Blkptr>) -> Result<()> {
        let dsize = |dva: &Dva| m.allocator().deflated(dva);
        let mut due = match &mut self.log {
            Some(log) => log.take_due(&dsize)?,
            None => return Ok(()),
        };
        let last = due.last().map(|(key, _)| *key);
        for (key, logged) in &mut due {
            self.take_free(key, &mut logged.phys, free)?;
        }
        self.store_all(m, statistics, due).await?;
        match &mut self.log {
            Some(log) => log.flushed(m, last).await,
            None => Ok(()),
        }
    }

    /// Brings entries, in the order of keys, into the ZAPs of their classes, and out of those where they
    /// were. Those without references go.
    async fn store_all(
        &mut self,
        m: &MosTask,
        statistics: ObjectId,
        entries: Vec<(DdtKey, Logged)>,
    ) -> Result<()> {
        let mut edits: [Vec<Edit>; 3] = Default::default();
        for (key, Logged { class: old, phys }) in entries {
            let references = phys.total_refcount();
            let new = (references > 0).then(|| DdtClass::of_references(references));
            let key_in_zap = key_in_zap(&key);
            if let Some(old) = old.filter(|old| Some(*old) != new)
                && let Some(edits) = edits.get_mut(old as usize)
            {
                edits.push(Edit::Remove(key_in_zap.clone()));
            }
            let Some(new) = new else { continue };
            if self.class(new).is_err() {
                self.create_class(m, statistics, new).await?;
            }
            let value = packed::pack(&phys);
            if let Some(edits) = edits.get_mut(new as usize) {
                edits.push(match old == Some(new) {
                    true => Edit::Set(key_in_zap, value),
                    false => Edit::Insert(key_in_zap, value),
                });
            }
            let entry = self.entry_statistics(m, &key, &phys)?;
            let class = self.class(new)?;
            class.histogram.add_entry(&entry);
            class.is_changed = true;
        }
        for (class, edits) in DdtClass::ALL.into_iter().zip(edits) {
            if !edits.is_empty() {
                let zap = m.mos().object(self.class(class)?.zap).await?;
                edit::edit_many(&zap, &m.tx, &edits).await?;
            }
        }
        Ok(())
    }

    fn class(&mut self, class: DdtClass) -> Result<&mut Class> {
        let found = self.classes.get_mut(class as usize).and_then(Option::as_mut);
        found.ok_or_else(|| Error::corrupt(ddt::object_name(self.checksum, class), "does not exist"))
    }

    fn entry_statistics(&self, m: &MosTask, key: &DdtKey, phys: &DdtPhys) -> Result<DdtStat> {
        let entry = DdtStat::of_entry(key, phys, |dva| m.allocator().deflated(dva));
        entry.map_err(Error::format("an entry of a dedup table"))
    }

    /// A stored entry does not count in the statistics of its class any more.
    fn count_less(&mut self, m: &MosTask, class: DdtClass, key: &DdtKey, phys: &DdtPhys) -> Result<()> {
        let entry = self.entry_statistics(m, key, phys)?;
        let class = self.class(class)?;
        class.histogram.take_entry(&entry);
        class.is_changed = true;
        Ok(())
    }

    /// Where the names of its objects are.
    async fn own_directory(&mut self, m: &MosTask) -> Result<ObjectId> {
        if let Some(directory) = self.directory {
            return Ok(directory);
        }
        let directory = m.create_zap(metadata_type()).await?;
        for (name, number) in [(dir_key::VERSION, ddt::VERSION_FAST), (dir_key::FLAGS, self.kind.flags())] {
            edit::set_u64(&directory, &m.tx, name, number).await?;
        }
        let name = ddt::directory_name(self.checksum);
        m.set_in_directory(&name, Value::U64(vec![directory.id().get()])).await?;
        m.use_feature(Feature::FastDedup, 1).await?;
        self.directory = Some(directory.id());
        Ok(directory.id())
    }

    async fn create_class(&mut self, m: &MosTask, statistics: ObjectId, class: DdtClass) -> Result<()> {
        let directory = self.own_directory(m).await?;
        // Strong checksums are as good as hashes; the others are hashed.
        let pre_hashed = if self.checksum.is_dedup() { ZapFlags::PRE_HASHED_KEY.0 } else { 0 };
        let new = NewZap {
            flags: ZapFlags::HASH64.0 | ZapFlags::UINT64_KEY.0 | pre_hashed,
            micro_block_bytes: ZAP_BLOCK_BYTES,
            ..NewZap::of(DmuType::DDT_ZAP)
        };
        let zap = edit::create(m.mos(), &m.tx, new).await?.id();
        let of_class = ddt::object_name(self.checksum, class);
        let directory = m.mos().object(directory).await?;
        edit::set_u64(&directory, &m.tx, &of_class, zap.get()).await?;
        let new = Class { zap, histogram: DdtHistogram::default(), is_changed: true };
        write_histogram(m, statistics, &of_class, &new.histogram).await?;
        if let Some(place) = self.classes.get_mut(class as usize) {
            *place = Some(new);
        }
        Ok(())
    }

    /// Writes changed statistics; removes what has no entries any more. False when the table is gone.
    async fn finish(&mut self, m: &MosTask, statistics: ObjectId) -> Result<bool> {
        let mut entries = 0;
        for class in self.classes.iter().flatten() {
            entries += edit::count(&m.mos().object(class.zap).await?).await?;
        }
        let is_empty = entries == 0;
        let mut gone = Vec::new();
        for (of, place) in DdtClass::ALL.into_iter().zip(&mut self.classes) {
            let of_class = ddt::object_name(self.checksum, of);
            match place {
                Some(_) if is_empty => gone.extend(place.take().map(|class| (of_class, class.zap))),
                Some(class) if class.is_changed => {
                    write_histogram(m, statistics, &of_class, &class.histogram).await?;
                    class.is_changed = false;
                }
                _ => {}
            }
        }
        let Some(directory) = self.directory else { return Ok(false) };
        for (of_class, zap) in gone {
            let directory = m.mos().object(directory).await?;
            edit::remove(&directory, &m.tx, &name(&of_class)).await?;
            let statistics = m.mos().object(statistics).await?;
            edit::remove(&statistics, &m.tx, &name(&of_class)).await?;
            m.mos().free(&m.tx, zap).await?;
        }
        if !is_empty || self.log.as_ref().is_some_and(|log| !log.is_empty()) {
            return Ok(true);
        }
        if let Some(log) = &mut self.log {
            log.destroy(m, (directory, self.checksum)).await?;
        }
        if self.kind.is_fast {
            let pool_directory = m.mos().object(DIRECTORY_OBJECT).await?;
            let own = name(&ddt::directory_name(self.checksum));
            edit::remove(&pool_directory, &m.tx, &own).await?;
            m.mos().free(&m.tx, directory).await?;
            m.use_feature(Feature::FastDedup, -1).await?;
        }
        Ok(false)
    }
}

async fn histogram(
    mos: &Arc<LiveObjset>,
    statistics: Option<ObjectId>,
    of_class: &str,
) -> Result<DdtHistogram> {
    let missing = || Error::corrupt(DDT_STATISTICS, format!("has no entry {of_class}"));
    let statistics = mos.object(statistics.ok_or_else(missing)?).await?;
    match edit::lookup(&statistics, &name(of_class)).await? {
        Some(Value::U64(words)) => DdtHistogram::from_words(&words).map_err(Error::format(of_class)),
        _ => Err(missing()),
    }
}

async fn write_histogram(
    m: &MosTask,
    statistics: ObjectId,
    of_class: &str,
    histogram: &DdtHistogram,
) -> Result<()> {
    let statistics = m.mos().object(statistics).await?;
    edit::set(&statistics, &m.tx, &name(of_class), &Value::U64(histogram.to_words())).await
}
