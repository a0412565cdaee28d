//! Walking along a chain that was found, and claiming it.
//!
//! Only the blocks themselves show what a crash left behind: those that were allocated after the last
//! committed group are free according to the space maps. So before any allocation in the first new group, the
//! chains of all datasets are followed and their blocks, including the last one of each, marked as allocated.
//! The header gets the numbers of the last block and the last record, so that no later reader follows the log
//! any further. A block that cannot be claimed, because its space is allocated otherwise, ends the log like
//! a block with a wrong checksum.
//!
//! # The end of a log
//! A log ends where the block that comes next was never written: something else is there, so the checksum is
//! wrong. A device that cannot be read says nothing about what it holds. The log may go on there with changes
//! that were promised, and once it is claimed without them they are lost. So an error of a device is no end
//! ([`Error::UnreadableLog`]), unless the caller gives up what only that device holds. The same holds for the
//! blocks that records of large writes refer to: damaged, they were never promised; unreadable, they may be.
//! As in OpenZFS, an error of one copy counts more than the wrong checksum of another, but a device that is
//! not there counts less.
//!
//! The owners of blocks that records clone may free these blocks before the records are applied. So the log
//! refers to them like a file, from the claim until it ends.
//!
//! A log without records gets a new seed and stays in use: the block that its header points to waits for the
//! first record.
//!
//! # Without keys
//! Logs of encrypted datasets are claimed before keys are loaded. Links, record headers and block pointers
//! are not encrypted; the rest of a record is ciphertext here and says nothing. Blocks that records point to
//! are verified by their checksums. A log without records is given up, so that no block is encrypted twice
//! with the IV in its pointer.
//!
//! Source of the facts: OpenZFS 2.3 `zil.c` (`zil_check_log_chain`, `zil_claim_write`), `vdev_mirror.c`.

use std::collections::HashSet;

use device::IoBuf;
use ondisk::blkptr::{Blkptr, ChecksumType};
use ondisk::zil::record::WriteData;
use ondisk::zil::{ChainSeed, FLAG_CLAIM_LR_SEQ_VALID, FLAG_REPLAY_NEEDED, LogBlock, Record, ZilHeader};
use ondisk::{ByteOrder, ObjsetId, Txg};

use super::backing::{Backing, check_data, log_bookmark};
use super::chain::Chain;
use super::{Inner, lock, plan};
use crate::env::Env;
use crate::error::{Error, Failure, Result};
use crate::store::Store;
use crate::txg::Tx;
use crate::{Bookmark, Pool};

/// More blocks than any log has: a bound for chains that lead back into themselves.
const MAX_BLOCKS: usize = 1 << 22;

/// A chain, followed block by block.
pub(super) struct Walk {
    header: ZilHeader,
    next: Blkptr,
    blocks: usize,
}

impl Walk {
    pub(super) fn new(header: &ZilHeader) -> Self {
        Self { header: *header, next: header.log, blocks: 0 }
    }

    /// The next block of the log; its contents may be anything. After reading them, the caller continues with
    /// [`Walk::follow`].
    pub(super) fn block(&mut self) -> Option<Blkptr> {
        let next = std::mem::take(&mut self.next);
        let belongs = !next.is_hole()
            && !next.is_embedded()
            && self.header.includes_block(ChainSeed::of(&next).seq)
            && self.blocks < MAX_BLOCKS;
        self.blocks += 1;
        belongs.then_some(next)
    }

    /// Parses the contents of a block, whose checksum is verified. `None` when they are not part of this
    /// chain, so that the chain has ended.
    pub(super) fn follow<'a>(&mut self, bp: &Blkptr, bytes: &'a [u8]) -> Option<LogBlock<'a>> {
        let block = LogBlock::parse(bp, bytes).ok()?;
        self.next = block.next;
        Some(block)
    }

    /// Whether a record belongs to the log.
    pub(super) fn includes(&self, seq: u64) -> bool {
        self.header.includes_record(seq)
    }
}

/// What an error of a device means for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// The log may go on: it cannot be claimed.
    Refused,
    /// What comes after it is given up.
    GivenUp,
}

impl Unreadable {
    /// The error of a block of the log of `objset`, if it is not the end of the log.
    fn refuse(self, objset: ObjsetId, error: Error) -> Result<()> {
        match self {
            Unreadable::Refused if is_of_device(&error) => {
                Err(Error::UnreadableLog { log: format!("objset {objset}"), error: Box::new(error) })
            }
            _ => Ok(()),
        }
    }
}

/// Whether a device said nothing about the contents of a block.
fn is_of_device(error: &Error) -> bool {
    match error {
        Error::Io { .. } => true,
        Error::Checksum { tried, .. } => {
            tried.iter().any(|attempt| matches!(attempt.failure, Failure::Io(_)))
        }
        _ => false,
    }
}

impl Inner {
    pub(super) async fn claim(
        &self,
        tx: &Tx,
        checkpoint: Option<Txg>,
        unreadable: Unreadable,
    ) -> Result<Vec<Blkptr>> {
        let found = lock(&self.chain).found_header();
        let mut clones = Vec::new();
        let header = match checkpoint.filter(|_| found.claim_txg == Txg::NONE) {
            Some(checkpoint) => give_up(&*self.backing, &found, tx.txg(), checkpoint).await?,
            None => claim_log(&*self.backing, &found, tx.txg(), &*self.env, &mut clones, unreadable).await?,
        };
        *lock(&self.chain) = Chain::found(&header, self.txgs.open_txg());
        if header != found {
            self.backing.set_header(tx, &header);
        }
        Ok(clones)
    }
}

/// The header after the claim of the log of `found`. The blocks that its records clone are added to `clones`.
pub(super) async fn claim_log(
    backing: &dyn Backing,
    found: &ZilHeader,
    txg: Txg,
    env: &dyn Env,
    clones: &mut Vec<Blkptr>,
    unreadable: Unreadable,
) -> Result<ZilHeader> {
    if found.is_empty() {
        return Ok(*found);
    }
    let mut header = *found;
    if found.claim_txg == Txg::NONE {
        let claimed = follow(backing, found, txg, clones, unreadable).await?;
        header.claim_txg = txg;
        header.claim_blk_seq = claimed.last_block;
        header.claim_lr_seq = claimed.last_record;
        header.flags |= FLAG_CLAIM_LR_SEQ_VALID;
        if claimed.blocks == 0 {
            return Ok(ZilHeader::default());
        }
        if claimed.records > 0 || claimed.blocks > 1 {
            header.flags |= FLAG_REPLAY_NEEDED;
        }
    }
    if header.flags & FLAG_REPLAY_NEEDED != 0 {
        return Ok(header);
    }
    let bp = &header.log;
    // What was written to an encrypted block before a crash, and is not whole, has used its IV.
    let is_kept = backing.may_keep_log()
        && !bp.uses_crypt()
        && bp.checksum_type() == ChecksumType::Zilog2
        && bp.byte_order() == ByteOrder::Little;
    if !is_kept {
        backing.free(txg, bp).await?;
        return Ok(ZilHeader::default());
    }
    let seed = ChainSeed { guid: [env.random(), env.random()], objset: backing.objset(), seq: 1 };
    let log = plan::with_seed(bp, &seed).map_err(Error::format("log block pointer"))?;
    Ok(ZilHeader { log, ..ZilHeader::default() })
}

/// Frees the blocks of a log that belong to the pool's checkpoint. Later blocks were written after it, and
/// may contain anything now. Returns the header of no log.
async fn give_up(backing: &dyn Backing, found: &ZilHeader, txg: Txg, checkpoint: Txg) -> Result<ZilHeader> {
    let mut places = HashSet::new();
    let mut walk = Walk::new(found);
    while let Some(bp) = walk.block().filter(|bp| bp.birth() <= checkpoint) {
        let place = bp.dva(0).map(|dva| (dva.vdev.get(), dva.offset.get()));
        if !place.is_some_and(|place| places.insert(place)) {
            break;
        }
        backing.free(txg, &bp).await?;
        let Ok(bytes) = backing.read(&bp).await else { break };
        if walk.follow(&bp, &bytes).is_none() {
            break;
        }
    }
    Ok(ZilHeader::default())
}

#[derive(Debug, Default)]
struct Claimed {
    blocks: u64,
    records: u64,
    last_block: u64,
    last_record: u64,
}

async fn follow(
    backing: &dyn Backing,
    header: &ZilHeader,
    txg: Txg,
    clones: &mut Vec<Blkptr>,
    unreadable: Unreadable,
) -> Result<Claimed> {
    let mut claimed = Claimed::default();
    let mut places = HashSet::new();
    let mut walk = Walk::new(header);
    while let Some(bp) = walk.block() {
        if claim_once(backing, &bp, txg, &mut places).await.is_err() {
            break;
        }
        claimed.blocks += 1;
        claimed.last_block = ChainSeed::of(&bp).seq;
        let bytes = match backing.read(&bp).await {
            Ok(bytes) => bytes,
            Err(error) => {
                unreadable.refuse(backing.objset(), error)?;
                break;
            }
        };
        let Some(block) = walk.follow(&bp, &bytes) else { break };
        for record in block.records() {
            let Ok(record) = record else { return Ok(claimed) };
            let can_go_on = match record.parse() {
                Ok(Record::Write { object, data: WriteData::Block(data), .. }) if is_new(&data, txg) => {
                    match backing.check_data(object, &data).await {
                        Ok(()) => claim_once(backing, &data, txg, &mut places).await.is_ok(),
                        Err(error) => {
                            unreadable.refuse(backing.objset(), error)?;
                            false
                        }
                    }
                }
                Ok(Record::CloneRange { blocks, .. }) => {
                    // The place of a block that is in no committed group is unknown.
                    let are_committed = cloned(&blocks).all(|bp| bp.physical_birth() < txg);
                    if are_committed {
                        clones.extend(cloned(&blocks));
                    }
                    are_committed
                }
                _ => true,
            };
            if !can_go_on {
                return Ok(claimed);
            }
            claimed.records += 1;
            claimed.last_record = record.header.seq;
        }
    }
    Ok(claimed)
}

/// Whether the data of a record are in a block that no group up to `txg` has committed. A record whose data
/// never reached the disk was never acknowledged.
fn is_new(data: &Blkptr, txg: Txg) -> bool {
    !data.is_hole() && data.birth() >= txg
}

/// Blocks that were allocated in a committed group are allocated already, and so are claimed blocks.
async fn claim_once(
    backing: &dyn Backing,
    bp: &Blkptr,
    txg: Txg,
    places: &mut HashSet<(u32, u64)>,
) -> Result<()> {
    let Some(dva) = bp.dva(0).filter(|_| bp.birth() >= txg) else { return Ok(()) };
    if !places.insert((dva.vdev.get(), dva.offset.get())) {
        return Ok(());
    }
    backing.claim(txg, bp).await
}

/// The blocks of a record that are references to stored blocks.
pub(super) fn cloned(blocks: &[Blkptr]) -> impl Iterator<Item = Blkptr> {
    blocks.iter().copied().filter(|bp| !bp.is_hole() && !bp.is_embedded())
}

/// Follows the log of `header` to its end, in a pool whose next group is `next`.
///
/// # Errors
/// [`Error::UnreadableLog`] when a device hides whether the log goes on, or whether data of its records are
/// there: an import without the device would lose what was promised.
pub async fn check(store: &Store, objset: ObjsetId, header: &ZilHeader, next: Txg) -> Result<()> {
    let mut walk = Walk::new(header);
    while let Some(bp) = walk.block() {
        let at = log_bookmark(objset, &bp);
        let bytes: IoBuf = match store.read_raw(&bp, &at).await {
            Ok(bytes) => bytes,
            Err(error) => return Unreadable::Refused.refuse(objset, error),
        };
        let Some(block) = walk.follow(&bp, &bytes) else { return Ok(()) };
        // What the records of a claimed log refer to was readable when it was claimed.
        let records = block.records().take_while(|_| header.claim_txg == Txg::NONE);
        for record in records {
            let Ok(record) = record else { return Ok(()) };
            if let Ok(Record::Write { object, data: WriteData::Block(data), .. }) = record.parse()
                && is_new(&data, next)
                && let Err(error) = check_data(store, &data, &Bookmark { object: object.get(), ..at }).await
            {
                return Unreadable::Refused.refuse(objset, error);
            }
        }
    }
    Ok(())
}

/// The blocks of a log that was claimed and waits to be applied, and the blocks that its records point to,
/// each with a bookmark. Where a block is something else, the log ends: its last block was never written. A
/// block that a device cannot read is the last one that is found.
pub(crate) async fn waiting_blocks(
    store: &Store,
    objset: ObjsetId,
    header: &ZilHeader,
) -> Vec<(Blkptr, Bookmark)> {
    let mut found = Vec::new();
    if header.claim_txg == Txg::NONE || header.flags & FLAG_REPLAY_NEEDED == 0 {
        return found;
    }
    let mut walk = Walk::new(header);
    while let Some(bp) = walk.block() {
        let at = log_bookmark(objset, &bp);
        let bytes = match store.read_raw(&bp, &at).await {
            Ok(bytes) => bytes,
            Err(error) => {
                found.extend(is_of_device(&error).then_some((bp, at)));
                return found;
            }
        };
        let Some(block) = walk.follow(&bp, &bytes) else { return found };
        found.push((bp, at));
        for record in block.records() {
            let Ok(record) = record else { return found };
            if !walk.includes(record.header.seq) {
                return found;
            }
            let (object, offset, blocks) = match record.parse() {
                Ok(Record::Write { object, offset, data: WriteData::Block(data), .. })
                    if data.birth() >= header.claim_txg =>
                {
                    (object, offset, vec![data])
                }
                // Their owners may have freed them.
                Ok(Record::CloneRange { object, offset, blocks, .. }) => (object, offset, blocks),
                _ => continue,
            };
            for (number, data) in (0..).zip(cloned(&blocks)) {
                let blkid = (offset / data.lsize().get().max(1)).saturating_add(number);
                found.push((data, Bookmark { object: object.get(), blkid, ..at }));
            }
        }
    }
    found
}

/// Whether the log of `header` holds records that are in no committed group.
pub async fn has_records(pool: &Pool, objset: ObjsetId, header: &ZilHeader) -> bool {
    let first = match header.claim_txg {
        Txg::NONE => Txg(pool.uberblock().txg.get().saturating_add(1)),
        claimed => claimed,
    };
    let mut walk = Walk::new(header);
    while let Some(bp) = walk.block() {
        let Ok(bytes) = pool.read_raw(&bp, &log_bookmark(objset, &bp)).await else { return false };
        let Some(block) = walk.follow(&bp, &bytes) else { return false };
        for record in block.records() {
            let Ok(record) = record else { return false };
            if !walk.includes(record.header.seq) {
                return false;
            }
            if record.header.seq > header.replay_seq && record.header.txg >= first {
                return true;
            }
        }
    }
    false
}
