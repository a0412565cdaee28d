//! From a block to the blocks that it points to.
//!
//! Levels only go down: a pointer in an indirect block must be of the level below, a pointer in a dnode of
//! the level that the dnode states. So no walk is endless, however damaged the pool. Datasets are met as
//! objects of the MOS; each is entered once.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use ondisk::blkptr::{Blkptr, ChecksumType, Dva};
use ondisk::bpobj::{BpobjPhys, blkptrs, is_free, subobjs};
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODE_MIN_SIZE, Dnode};
use ondisk::dsl_dataset::DslDatasetPhys;
use ondisk::objset::Objset as ObjsetPhys;
use ondisk::pool_directory::{self as directory, DIRECTORY_OBJECT};
use ondisk::zil::record::WriteData;
use ondisk::zil::{LogBlock, Record, ZilHeader};
use ondisk::{ByteOrder, ObjectId, ObjsetId, Reader, Txg};

use super::queue::Work;
use super::{BlockError, BlockKind, Depth, Results, Shared};
use crate::Bookmark;
use crate::Pool;
use crate::dmu::{Objset, zap};
use crate::error::{Attempt, Error, Result};
use crate::vdev::read::Request;
use crate::vdev::scrub::{Extent, Scrubbed, Window};
use crate::zio::{How, decode, decode_embedded};

/// Most blocks of one intent log that are followed.
const MAX_LOG_BLOCKS: usize = 1 << 24;
/// Most lists of blocks that include each other.
const MAX_LISTS: usize = 1 << 20;

/// Where a verification begins.
pub(super) struct Roots {
    pub work: Vec<Work>,
    /// Blocks that nothing refers to any more and that are not free yet.
    pub waiting_to_be_freed: Vec<Blkptr>,
    /// What cannot be followed.
    pub notes: Vec<String>,
}

/// The MOS, and all that is newer than `min_txg`.
pub(super) fn root(pool: &Pool, min_txg: Txg) -> Work {
    let (bp, at) = (*pool.root_blkptr(), Bookmark::objset_root(0));
    Work { bp, at, min_txg, is_snapshot: false, log_only: false, is_leaving: false }
}

pub(super) async fn roots(pool: &Arc<Pool>) -> Result<Roots> {
    let mos = Objset::open(pool, ObjsetId::MOS, pool.root_blkptr()).await?;
    let work = vec![root(pool, Txg::NONE)];
    let root = mos.object(DIRECTORY_OBJECT).await?;
    let mut waiting_to_be_freed = Vec::new();
    for list in [directory::SYNC_BPOBJ, directory::FREE_BPOBJ] {
        if let Some(id) = zap::lookup_u64(&root, list).await? {
            read_list(&mos, ObjectId(id), &mut waiting_to_be_freed).await?;
        }
    }
    of_deleted_clones(&mos, &mut waiting_to_be_freed).await?;
    let mut roots = Roots { work, waiting_to_be_freed, notes: Vec::new() };
    if let Some(id) = zap::lookup_u64(&root, directory::BPTREE_OBJ).await? {
        destroyed(&mos, ObjectId(id), &mut roots).await?;
    }
    Ok(roots)
}

/// Adds the blocks of destroyed clones that are not freed yet.
pub(super) async fn of_deleted_clones(mos: &Arc<Objset>, pointers: &mut Vec<Blkptr>) -> Result<()> {
    let root = mos.object(DIRECTORY_OBJECT).await?;
    let Some(id) = zap::lookup_u64(&root, directory::DELETED_CLONES).await? else { return Ok(()) };
    for deadlist in numbers(mos, ObjectId(id)).await? {
        for livelist in numbers(mos, deadlist).await? {
            live(mos, livelist, pointers).await?;
        }
    }
    Ok(())
}

/// The object numbers that are the values of a ZAP.
async fn numbers(mos: &Arc<Objset>, id: ObjectId) -> Result<Vec<ObjectId>> {
    let entries = zap::Zap::open(&mos.object(id).await?).await?.entries(MAX_LISTS).await?;
    Ok(entries.iter().filter_map(|entry| entry.value.as_u64().map(ObjectId)).collect())
}

/// Adds what is left of a deleted clone's livelist: what was allocated and not freed since. A block of a
/// dedup table may be there several times.
async fn live(mos: &Arc<Objset>, id: ObjectId, pointers: &mut Vec<Blkptr>) -> Result<()> {
    let mut entries = Vec::new();
    read_list(mos, id, &mut entries).await?;
    let mut counts: HashMap<(Option<Dva>, Txg), i64> = HashMap::new();
    for entry in &entries {
        let change = if is_free(entry) { -1 } else { 1 };
        *counts.entry((entry.dva(0), entry.birth())).or_default() += change;
    }
    for entry in entries.into_iter().filter(|entry| !is_free(entry)) {
        if let Some(count) = counts.get_mut(&(entry.dva(0), entry.birth()))
            && *count > 0
        {
            *count -= 1;
            pointers.push(entry);
        }
    }
    Ok(())
}

/// Adds the roots of datasets that are being destroyed, and not the part of them that is freed already.
///
/// The object is an array of entries (block pointer, txg before which nothing is to be freed, bookmark to go
/// on at); the bonus area says which entries are left (`bptree_phys`: begin, end, three sizes).
async fn destroyed(mos: &Arc<Objset>, id: ObjectId, roots: &mut Roots) -> Result<()> {
    const ENTRY_BYTES: u64 = 168;
    let what = || format!("list of datasets being destroyed, object {id}");
    let object = mos.object(id).await?;
    let (bonus, order) = object.bonus();
    let mut reader = Reader::new("datasets being destroyed", bonus, order);
    let [begin, end] = reader.u64s().map_err(Error::format(what()))?;
    for index in begin..end.min(begin.saturating_add(MAX_LISTS as u64)) {
        let mut bytes = [0; ENTRY_BYTES as usize];
        object.read_at(index.saturating_mul(ENTRY_BYTES), &mut bytes).await?;
        let mut reader = Reader::new("dataset being destroyed", &bytes, order);
        let bp = Blkptr::read(&mut reader).map_err(Error::format(what()))?;
        let [birth, objset, number, level, blkid] = reader.u64s().map_err(Error::format(what()))?;
        if [objset, number, level, blkid] != [0; 4] {
            roots.notes.push("a dataset is half destroyed: its remaining space shows as leaked".into());
            continue;
        }
        if !bp.is_hole() && bp.birth().get() > birth {
            let at = Bookmark::objset_root(0);
            let work =
                Work { bp, at, min_txg: Txg(birth), is_snapshot: true, log_only: false, is_leaving: true };
            roots.work.push(work);
        }
    }
    Ok(())
}

/// Adds all pointers of a list and of the lists that it includes.
async fn read_list(mos: &Arc<Objset>, id: ObjectId, pointers: &mut Vec<Blkptr>) -> Result<()> {
    let mut pending = vec![id];
    let mut read = 0;
    while let Some(id) = pending.pop() {
        read += 1;
        if read > MAX_LISTS {
            return Err(Error::corrupt(format!("block list {id}"), "lists include each other without end"));
        }
        let list = mos.object(id).await?;
        let (bonus, order) = list.bonus();
        let phys = BpobjPhys::parse(bonus, order).map_err(Error::format(format!("block list {id}")))?;
        let mut left = phys.num_blkptrs;
        for block in 0..=list.dnode().max_block_id.get() {
            // A list has no holes, and looking for its end in a forged one would take for ever.
            let Some(found) = list.block(block).await?.filter(|_| left > 0) else { break };
            for pointer in
                blkptrs(&found.block, found.order).take(usize::try_from(left).unwrap_or(usize::MAX))
            {
                pointers.push(pointer.map_err(Error::format(format!("block list {id}")))?);
                left -= 1;
            }
        }
        let included = phys.included();
        if included.count > 0 {
            let of = mos.object(included.object).await?;
            let mut left = included.count;
            for block in 0..=of.dnode().max_block_id.get() {
                let Some(found) = of.block(block).await?.filter(|_| left > 0) else { break };
                let before = pending.len();
                pending.extend(
                    subobjs(&found.block, found.order).take(usize::try_from(left).unwrap_or(usize::MAX)),
                );
                left -= (pending.len() - before) as u64;
            }
        }
    }
    Ok(())
}

/// What a block leads to.
enum Structure {
    /// Nothing: data.
    None,
    /// Pointers of the level below.
    Indirect,
    /// Dnodes.
    Dnodes,
    /// An object set.
    Objset,
}

impl Structure {
    fn of(work: &Work) -> Self {
        match work.bp.dmu_type() {
            _ if work.at.level == Bookmark::LEVEL_ZIL => Self::None,
            _ if work.bp.level().get() > 0 => Self::Indirect,
            DmuType::DNODE => Self::Dnodes,
            DmuType::OBJSET if work.at.level == Bookmark::LEVEL_ROOT => Self::Objset,
            _ => Self::None,
        }
    }
}

impl Shared<'_> {
    /// Visits a batch: counts, reads, and adds what it leads to to the queue.
    pub(super) async fn process(&self, batch: Vec<Work>) -> (usize, Results) {
        let mut results = Results::default();
        let mut extents: Vec<Extent<'_>> = Vec::new();
        for work in &batch {
            if self.is_scrubbed(work) {
                self.extents(&work.bp, &mut extents);
            }
        }
        let window = Window::read(extents).await;
        for work in &batch {
            if work.log_only {
                self.visit_log(work, &mut results).await;
                continue;
            }
            let kind = if work.is_leaving { BlockKind::DeferredFree } else { BlockKind::of(&work.bp) };
            self.count(&mut results, &work.bp, kind);
            if let Err(error) = self.visit(work, &window, &mut results).await {
                let tried = match &error {
                    Error::Io { tried, .. } | Error::Checksum { tried, .. } => tried.clone(),
                    _ => Vec::new(),
                };
                results.report(self.progress, BlockError { at: work.at, tried, fatal: Some(error) });
            }
        }
        (batch.len(), results)
    }

    fn is_scrubbed(&self, work: &Work) -> bool {
        match self.options.depth {
            _ if work.log_only => false,
            Depth::Structure => false,
            Depth::Metadata => work.bp.is_metadata(),
            Depth::Everything => true,
        }
    }

    async fn visit(&self, work: &Work, window: &Window, results: &mut Results) -> Result<()> {
        let structure = Structure::of(work);
        let bp = &work.bp;
        if bp.is_embedded() {
            if !matches!(structure, Structure::None)
                && let Some(embedded) = bp.embedded()
            {
                let block = decode_embedded(&embedded, &work.at)?;
                return self.descend(work, structure, &block, results).await;
            }
            return Ok(());
        }
        let bytes = if self.is_scrubbed(work) {
            let Scrubbed { bytes, bad } = self.scrub(bp, window, results).await;
            let Some(bytes) = bytes else {
                return Err(Error::Checksum { at: work.at, tried: bad });
            };
            if !bad.is_empty() {
                results.report(self.progress, BlockError { at: work.at, tried: bad, fatal: None });
            }
            bytes
        } else if matches!(structure, Structure::None) {
            return self.claim_gang(bp, &work.at, results).await;
        } else {
            self.pool.read_raw(bp, &work.at).await?
        };
        if matches!(structure, Structure::None) {
            return Ok(());
        }
        let block = decode(bp, &work.at, bytes, None)?;
        self.descend(work, structure, &block, results).await
    }

    fn extents<'a>(&'a self, bp: &Blkptr, extents: &mut Vec<Extent<'a>>) {
        let tree = self.pool.vdevs();
        for dva in bp.dvas().filter(|dva| !dva.gang) {
            if let Some(top) = tree.top(dva.vdev.get()) {
                let (size, birth) = (bp.psize().get() as usize, bp.physical_birth().get());
                top.extents(&Request::new(tree, dva.offset.get(), size, birth, None), extents);
            }
        }
    }

    /// Reads all copies. The bytes are those of the first right one.
    async fn scrub(&self, bp: &Blkptr, window: &Window, results: &mut Results) -> Scrubbed {
        let tree = self.pool.vdevs();
        let verdict = |bytes: &[u8]| self.pool.verify(bp, bytes);
        let has_checksum = !matches!(bp.checksum_type(), ChecksumType::Off | ChecksumType::NoParity);
        let mut found = Scrubbed::default();
        for dva in bp.dvas() {
            let of_copy = match tree.top(dva.vdev.get()) {
                Some(top) if !dva.gang => {
                    let verdict: Option<crate::vdev::read::Verdict<'_>> =
                        if has_checksum { Some(&verdict) } else { None };
                    let (size, birth) = (bp.psize().get() as usize, bp.physical_birth().get());
                    top.scrub(Request::new(tree, dva.offset.get(), size, birth, verdict), window).await
                }
                // A gang is read piece by piece, and a pointer to no vdev fails with its reason.
                _ => match self.pool.read_copy(bp, &dva, &How::default()).await {
                    Ok(bytes) => Scrubbed { bytes: Some(bytes), bad: Vec::new() },
                    Err(bad) => Scrubbed { bytes: None, bad },
                },
            };
            found.bad.extend(of_copy.bad);
            found.bytes = found.bytes.or(of_copy.bytes);
        }
        self.claim_members(bp, results).await;
        found
    }

    async fn claim_gang(&self, bp: &Blkptr, at: &Bookmark, results: &mut Results) -> Result<()> {
        if self.options.check_space && bp.is_gang() {
            self.pool.read_raw(bp, at).await?;
            self.claim_members(bp, results).await;
        }
        Ok(())
    }

    /// Claims what the gang headers of a block point to, if it is a gang and space is checked.
    pub(super) async fn claim_members(&self, bp: &Blkptr, results: &mut Results) {
        if !self.options.check_space || !bp.is_gang() {
            return;
        }
        let mut members = Vec::new();
        // What cannot be read was reported, and will show as leaked.
        let _: Result<(), Vec<Attempt>> = self.pool.gang_members(bp, How::default(), &mut members).await;
        for member in members {
            let birth = member.physical_birth().get();
            results.claims.extend(member.dvas().map(|dva| super::Claim::of(self.pool, &dva, birth)));
        }
    }

    async fn descend(
        &self,
        work: &Work,
        structure: Structure,
        block: &[u8],
        results: &mut Results,
    ) -> Result<()> {
        let order = work.bp.byte_order();
        match structure {
            Structure::None => Ok(()),
            Structure::Indirect => self.indirect(work, block, order, results),
            Structure::Dnodes => self.dnodes(work, block, order, results),
            Structure::Objset => self.objset(work, block, order, results).await,
        }
    }

    fn indirect(&self, work: &Work, block: &[u8], order: ByteOrder, results: &mut Results) -> Result<()> {
        let level = work.at.level - 1;
        let pointers = block.len() as u64 / Blkptr::SIZE as u64;
        let mut found = Vec::new();
        for (index, bytes) in (0u64..).zip(block.chunks_exact(Blkptr::SIZE)) {
            let blkid = work.at.blkid.wrapping_mul(pointers).wrapping_add(index);
            let at = Bookmark { level, blkid, ..work.at };
            self.pointer(Blkptr::parse(bytes, order), work, at, &mut found, results);
        }
        self.queue.push(found);
        Ok(())
    }

    /// Takes a pointer into the work to do, unless it was met in an older snapshot or makes no sense.
    fn pointer(
        &self,
        bp: ondisk::Result<Blkptr>,
        parent: &Work,
        at: Bookmark,
        found: &mut Vec<Work>,
        results: &mut Results,
    ) {
        let wrong = |error: Error| BlockError { at, tried: Vec::new(), fatal: Some(error) };
        match bp {
            Ok(bp) if bp.is_hole() || bp.is_redacted() || bp.birth() <= parent.min_txg => {}
            Ok(bp) if i64::from(bp.level().get()) != at.level.max(0) => {
                let detail = format!("the pointer says level {}", bp.level());
                results.report(self.progress, wrong(Error::corrupt(at.to_string(), detail)));
            }
            Ok(bp) => found.push(Work { bp, at, ..*parent }),
            Err(error) => results.report(self.progress, wrong(Error::corrupt(at.to_string(), error))),
        }
    }

    fn dnodes(&self, work: &Work, block: &[u8], order: ByteOrder, results: &mut Results) -> Result<()> {
        let mut found = Vec::new();
        let slots_per_block = (block.len() / DNODE_MIN_SIZE) as u64;
        let mut slot = 0;
        while let Some(bytes) = block.get(slot * DNODE_MIN_SIZE..).filter(|bytes| !bytes.is_empty()) {
            let object = work.at.blkid.wrapping_mul(slots_per_block).wrapping_add(slot as u64);
            match Dnode::parse(bytes, order) {
                Ok(Some(dnode)) => {
                    slot += usize::try_from(dnode.slots()).unwrap_or(usize::MAX).max(1);
                    self.dnode(work, object, &dnode, &mut found, results);
                    if work.at.objset == 0 && !work.is_leaving && dnode.bonus_type == DmuType::DSL_DATASET {
                        found.extend(dataset_root(object, &dnode, work.min_txg)?);
                    }
                }
                Ok(None) => slot += 1,
                Err(error) => {
                    let at = Bookmark { object, level: 0, blkid: 0, ..work.at };
                    let error = Error::corrupt(format!("objset {}, dnode {object}", at.objset), error);
                    results.report(self.progress, BlockError { at, tried: Vec::new(), fatal: Some(error) });
                    slot += 1;
                }
            }
        }
        self.queue.push(found);
        Ok(())
    }

    fn dnode(&self, work: &Work, object: u64, dnode: &Dnode, found: &mut Vec<Work>, results: &mut Results) {
        let level = i64::from(dnode.levels) - 1;
        if let Some(detail) = fault_of_blocks(dnode.levels, dnode.max_block_id.get(), dnode.data_block_size())
        {
            let at = Bookmark { objset: work.at.objset, object, level: 0, blkid: 0 };
            let fatal = Some(Error::corrupt(format!("objset {}, object {object}", at.objset), detail));
            results.report(self.progress, BlockError { at, tried: Vec::new(), fatal });
        }
        for (blkid, bp) in (0u64..).zip(&dnode.blkptrs) {
            let at = Bookmark { objset: work.at.objset, object, level, blkid };
            self.pointer(Ok(*bp), work, at, found, results);
        }
        if let Some(spill) = dnode.spill {
            self.pointer(Ok(spill), work, Bookmark::spill(work.at.objset, object), found, results);
        }
    }

    async fn objset(&self, work: &Work, block: &[u8], order: ByteOrder, results: &mut Results) -> Result<()> {
        let what = || format!("objset {}", work.at.objset);
        let phys = ObjsetPhys::parse(block, order).map_err(Error::format(what()))?;
        let mut found = Vec::new();
        self.dnode(work, 0, &phys.meta_dnode, &mut found, results);
        // Their object numbers are -1, -2 and -3.
        let accounting = [&phys.user_used_dnode, &phys.group_used_dnode, &phys.project_used_dnode];
        for (index, dnode) in (0u64..).zip(accounting) {
            if let Some(dnode) = dnode {
                self.dnode(work, u64::MAX - index, dnode, &mut found, results);
            }
        }
        self.queue.push(found);
        if !work.is_snapshot {
            self.intent_log(work, &log_header(work, &phys, order)?, results).await;
        }
        Ok(())
    }

    /// The intent log of an object set that was met in a snapshot, where errors of its block were reported.
    async fn visit_log(&self, work: &Work, results: &mut Results) {
        let Ok(bytes) = self.pool.read_raw(&work.bp, &work.at).await else { return };
        let Ok(block) = decode(&work.bp, &work.at, bytes, None) else { return };
        let order = work.bp.byte_order();
        let Ok(phys) = ObjsetPhys::parse(&block, order) else { return };
        if let Ok(header) = log_header(work, &phys, order) {
            self.intent_log(work, &header, results).await;
        }
    }

    /// Counts the blocks of an intent log and what its records point to. A log ends where a block does not
    /// verify: that is no error.
    async fn intent_log(&self, work: &Work, header: &ZilHeader, results: &mut Results) {
        let first_free_txg = Txg(self.pool.uberblock().txg.get().saturating_add(1));
        let mut next = header.log;
        for _ in 0..MAX_LOG_BLOCKS {
            let [.., seq] = next.checksum();
            let unclaimed_and_new = header.claim_txg == Txg::NONE && next.birth() >= first_free_txg;
            if next.is_hole() || next.is_embedded() || unclaimed_and_new || !header.includes_block(seq) {
                return;
            }
            let at = Bookmark { level: Bookmark::LEVEL_ZIL, blkid: seq, object: 0, ..work.at };
            self.count_log_block(&next, results);
            let Ok(bytes) = self.pool.read_raw(&next, &at).await else { return };
            let Ok(log) = LogBlock::parse(&next, &bytes) else { return };
            for record in log.records() {
                let Ok(record) = record else { break };
                if !header.includes_record(record.header.seq) {
                    return;
                }
                if let Ok(Record::Write { data: WriteData::Block(bp), .. }) = record.parse()
                    && !bp.is_hole()
                    && header.claim_txg != Txg::NONE
                    && bp.birth() >= header.claim_txg
                {
                    self.count_log_block(&bp, results);
                }
            }
            next = log.next;
        }
    }

    fn count_log_block(&self, bp: &Blkptr, results: &mut Results) {
        let Some(dva) = bp.dva(0) else { return };
        let place = (dva.vdev.get(), dva.offset.get());
        if self.log_blocks.lock().unwrap_or_else(PoisonError::into_inner).insert(place) {
            self.count(results, bp, BlockKind::of(bp));
        }
    }
}

/// What is wrong with the blocks of an object: below indirect blocks, and where there are several, they must
/// be of a power of two.
fn fault_of_blocks(levels: u8, max_block_id: u64, size: u64) -> Option<String> {
    let may_be_any = (levels == 1 && max_block_id == 0) || size.is_power_of_two();
    (!may_be_any).then(|| format!("blocks of {size} bytes, which is no power of two, in {levels} levels"))
}

fn log_header(work: &Work, phys: &ObjsetPhys, order: ByteOrder) -> Result<ZilHeader> {
    let mut reader = Reader::new("intent log header", &phys.zil_header, order);
    ZilHeader::read(&mut reader).map_err(Error::format(format!("objset {}", work.at.objset)))
}

/// The way into a dataset that is an object of the MOS, if it has something newer than `min_txg`.
fn dataset_root(object: u64, dnode: &Dnode, min_txg: Txg) -> Result<Option<Work>> {
    let what = format!("dataset {object}");
    let mut reader = Reader::new("dataset", &dnode.bonus, dnode.order);
    let phys = DslDatasetPhys::read(&mut reader).map_err(Error::format(what))?;
    let at = Bookmark::objset_root(object);
    let is_snapshot = phys.num_children != 0;
    let log_only = phys.bp.birth() <= phys.prev_snap_txg;
    let nothing_new = phys.bp.is_hole() || phys.bp.birth() <= min_txg || (log_only && is_snapshot);
    let min_txg = phys.prev_snap_txg.max(min_txg);
    let work = Work { bp: phys.bp, at, min_txg, is_snapshot, log_only, is_leaving: false };
    Ok(if nothing_new { None } else { Some(work) })
}

#[cfg(test)]
mod tests {
    use super::fault_of_blocks;

    #[test]
    fn only_the_only_block_of_an_object_may_be_of_any_size() {
        assert!(fault_of_blocks(1, 0, 33_792).is_none());
        assert!(fault_of_blocks(3, 900, 131_072).is_none());
        // As openzfs/zfs#18322 leaves files behind.
        let fault = fault_of_blocks(2, 0, 33_792).expect("it has levels");
        assert!(fault.contains("33792 bytes") && fault.contains("2 levels"), "{fault}");
        assert!(fault_of_blocks(1, 1, 1536).is_some());
    }
}
