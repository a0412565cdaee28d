//! What a verification does with a block: it counts it, claims its space, reads all that is stored of it, and
//! follows intent logs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use codec::crypt::{DatasetKey, decrypt_block};
use device::IgnorePoison;
use ondisk::blkptr::{Blkptr, ChecksumType};
use ondisk::dmu::DmuType;
use ondisk::dnode::Dnode;
use ondisk::objset::Objset as ObjsetPhys;
use ondisk::zil::record::WriteData;
use ondisk::zil::{LogBlock, Record, ZilHeader};
use ondisk::{ByteOrder, ObjsetId, Reader, Txg};

use super::roots::{Of, Work, dataset_root};
use super::{BlockError, BlockKind, Depth, Results, Shared};
use crate::error::{Attempt, Error, Result};
use crate::traverse::{Leads, Survey};
use crate::vdev::read::Request;
use crate::vdev::scrub::{Extent, Scrubbed, Window};
use crate::zio::{How, decode, decode_embedded};
use crate::{Block, Bookmark};

/// Most blocks of one intent log that are followed.
const MAX_LOG_BLOCKS: usize = 1 << 24;

impl Survey for Shared<'_> {
    type Tag = Of;
    type Found = Results;
    type Ahead = Window;

    fn after(&self, of: &Of) -> Txg {
        of.min_txg
    }

    async fn read_ahead(&self, batch: &[Work]) -> Window {
        let mut extents: Vec<Extent<'_>> = Vec::new();
        for work in batch.iter().filter(|work| self.is_scrubbed(work)) {
            self.extents(&work.bp, &mut extents);
        }
        Window::read(extents).await
    }

    async fn block(&self, work: &Work, window: &Window, results: &mut Results) -> Result<Option<Block>> {
        if work.tag.log_only {
            self.visit_log(work, results).await;
            return Ok(None);
        }
        let kind = if work.tag.is_leaving { BlockKind::DeferredFree } else { BlockKind::of(&work.bp) };
        self.count(results, &work.bp, kind);
        let block = self.read(work, window, results).await?;
        if let Some(block) = block.as_ref().filter(|_| work.leads() == Leads::ToObjects)
            && !work.tag.is_snapshot
        {
            let order = work.bp.byte_order();
            let phys = ObjsetPhys::parse(block, order);
            let phys = phys.map_err(Error::format(format!("objset {}", work.at.objset)))?;
            match log_header(work, &phys, order) {
                Ok(header) => self.intent_log(work, &header, results).await,
                Err(error) => self.damaged(work.at, error, results),
            }
        }
        Ok(block)
    }

    fn object(&self, work: &Work, object: u64, dnode: &Dnode, results: &mut Results) -> Result<Option<Work>> {
        if let Some(detail) = fault_of_blocks(dnode.levels, dnode.max_block_id.get(), dnode.data_block_size())
        {
            let at = Bookmark { objset: work.at.objset, object, level: 0, blkid: 0 };
            let error = Error::corrupt(format!("objset {}, object {object}", at.objset), detail);
            self.damaged(at, error, results);
        }
        let is_dataset = work.at.objset == 0 && dnode.bonus_type == DmuType::DSL_DATASET;
        match is_dataset && !work.tag.is_leaving {
            true => dataset_root(object, dnode, work.tag.min_txg),
            false => Ok(None),
        }
    }

    fn damaged(&self, at: Bookmark, error: Error, results: &mut Results) {
        let tried = match &error {
            Error::Io { tried, .. } | Error::Checksum { tried, .. } => tried.clone(),
            _ => Vec::new(),
        };
        results.report(self.progress, BlockError { at, tried, fatal: Some(error) });
    }

    fn merge(&self, results: &mut Results, more: Results) {
        results.merge(more);
    }

    fn is_cancelled(&self) -> bool {
        self.progress.cancel.load(Ordering::Relaxed)
    }
}

impl Shared<'_> {
    fn is_scrubbed(&self, work: &Work) -> bool {
        match self.options.depth {
            _ if work.tag.log_only => false,
            Depth::Structure => false,
            Depth::Metadata => work.bp.is_metadata(),
            Depth::Everything => true,
        }
    }

    /// The key with which a block is authenticated, if its dataset has one and that is loaded. What waits to
    /// be freed may be of a dataset whose number is another one's now.
    fn key_of(&self, work: &Work) -> Option<Arc<DatasetKey>> {
        let has_key = work.bp.uses_crypt() && !work.tag.is_leaving;
        has_key.then(|| self.pool.keystore().get(ObjsetId(work.at.objset)))?
    }

    /// Reads a block as thoroughly as was asked for. Its contents, if it leads to others.
    async fn read(&self, work: &Work, window: &Window, results: &mut Results) -> Result<Option<Block>> {
        let bp = &work.bp;
        let leads_on = work.leads() != Leads::Nowhere;
        if let Some(embedded) = bp.embedded() {
            return leads_on.then(|| decode_embedded(&embedded, &work.at)).transpose();
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
        } else if leads_on {
            self.pool.read_raw(bp, &work.at).await?
        } else {
            self.claim_gang(bp, &work.at, results).await?;
            return Ok(None);
        };
        let key = self.key_of(work);
        if !leads_on && key.is_none() {
            return Ok(None);
        }
        let block = decode(bp, &work.at, bytes, key.as_deref())?;
        results.authenticated_blocks += u64::from(key.is_some());
        Ok(leads_on.then_some(block))
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
            let Ok(mut bytes) = self.pool.read_raw(&next, &at).await else { return };
            if let Some(key) = self.key_of(work).filter(|_| next.uses_crypt()) {
                if decrypt_block(&key, &next, &mut bytes).is_err() {
                    return self.damaged(at, Error::Authentication { at }, results);
                }
                results.authenticated_blocks += 1;
            }
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
        if self.log_blocks.lock().ignore_poison().insert(place) {
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
