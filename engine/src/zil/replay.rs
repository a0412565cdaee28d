//! Applying the records of a log.
//!
//! Records are applied in the order of the log, each in an open group of its own choice. The header of that
//! group contains the number of the last applied record, so that a crash during the replay does not apply a
//! record twice that must not be. Records of groups that were committed before the crash are left out. When
//! all are applied, the whole log is freed in one group.
//!
//! A record of an object that is gone is no error if such records may be logged late. Any other error ends
//! the replay, and the log stays.

use std::sync::Arc;

use device::IoBuf;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ondisk::ObjectId;
use ondisk::blkptr::Blkptr;
use ondisk::zil::record::WriteData;
use ondisk::zil::{ChainSeed, FLAG_CLAIM_LR_SEQ_VALID, LogBlock, Record, ZilHeader};

use super::chain::State;
use super::claim::{Walk, cloned};
use super::{Inner, lock};
use crate::Block;
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Largest block.
const MAX_BLOCK_BYTES: u64 = 16 << 20;

/// The target to which records are applied.
pub trait Replay: Send + Sync {
    /// Applies a record. Data are always inline. There may be more data than were written, up to the end of
    /// the block that contains the write, if the block was logged as a whole. Clones that cannot be shared
    /// ([`Replay::share`]) come as writes. Each group in which the record changes something is passed to
    /// `applied` while it is held.
    fn apply(&self, record: &Record<'_>, applied: &Applied) -> impl Future<Output = Result<()>> + Send;

    /// Applies a record of cloned blocks to a range of an object by sharing these blocks, in one group.
    /// Returns false, without a change, if that is not possible: then their contents come as writes.
    fn share(
        &self,
        _: (ObjectId, u64, u64),
        _: (u64, &[Blkptr]),
        _: &Applied,
    ) -> impl Future<Output = Result<bool>> + Send {
        async { Ok(false) }
    }
}

/// Records the group in which a record was applied.
#[derive(Debug, Clone)]
pub struct Applied {
    inner: Arc<Inner>,
    seq: u64,
}

impl Applied {
    /// For a part of a record that is not its last part: only the records before this one are applied
    /// completely.
    pub fn before(&self) -> Self {
        Self { seq: self.seq.saturating_sub(1), ..self.clone() }
    }

    /// The last change of the record belongs to the group of `tx`.
    pub fn with(&self, tx: &Tx) {
        lock(&self.inner.chain).applied(tx.txg(), self.seq);
        self.inner.make_dirty(tx);
    }
}

/// The result of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Records that were applied.
    pub records: u64,
    /// Log blocks that were read.
    pub blocks: u64,
}

/// What a claimed log has in the pool.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Its blocks.
    pub blocks: Vec<Blkptr>,
    /// Blocks of data that are its alone.
    pub referred: Vec<Blkptr>,
    /// References to blocks that may have other references.
    pub clones: Vec<Blkptr>,
}

/// What the claimed log of a header has, which is known without any key.
pub(crate) async fn held<'a>(
    header: &ZilHeader,
    read: impl Fn(Blkptr) -> BoxFuture<'a, Result<IoBuf>>,
) -> Held {
    let mut held = Held::default();
    let mut walk = Walk::new(header);
    while let Some(bp) = walk.block() {
        held.blocks.push(bp);
        let Ok(bytes) = read(bp).await else { break };
        let Some(block) = walk.follow(&bp, &bytes) else { break };
        for raw in block.records() {
            let Some(raw) = raw.ok().filter(|raw| walk.includes(raw.header.seq)) else { return held };
            match raw.parse() {
                Ok(Record::Write { data: WriteData::Block(data), .. })
                    if !data.is_hole()
                        && data.birth() >= header.claim_txg
                        && !held.referred.contains(&data) =>
                {
                    held.referred.push(data);
                }
                Ok(Record::CloneRange { blocks, .. }) => held.clones.extend(cloned(&blocks)),
                _ => {}
            }
        }
    }
    held
}

impl Inner {
    pub(super) async fn replay(self: &Arc<Self>, onto: &impl Replay) -> Result<Replayed> {
        let header = match lock(&self.chain).state {
            State::Claimed(header) => header,
            _ => return Ok(Replayed::default()),
        };
        let mut replayed = Replayed::default();
        let mut blocks: Vec<Blkptr> = Vec::new();
        let mut referred: Vec<Blkptr> = Vec::new();
        let mut clones: Vec<Blkptr> = Vec::new();
        let mut last_record = 0;
        let mut walk = Walk::new(&header);
        'blocks: while let Some(bp) = walk.block() {
            blocks.push(bp);
            let Ok(mut bytes) = self.backing.read(&bp).await else { break };
            if LogBlock::parse(&bp, &bytes).is_err() {
                break;
            }
            self.backing.decrypt(&bp, &mut bytes)?;
            let Some(block) = walk.follow(&bp, &bytes) else { break };
            replayed.blocks += 1;
            for raw in block.records() {
                let Ok(raw) = raw else { break 'blocks };
                if !walk.includes(raw.header.seq) {
                    break 'blocks;
                }
                last_record = raw.header.seq;
                let record = raw.parse().map_err(Error::format(self.what(raw.header.seq)))?;
                match &record {
                    Record::Write { data: WriteData::Block(data), .. }
                        if !data.is_hole()
                            && data.birth() >= header.claim_txg
                            && !referred.contains(data) =>
                    {
                        referred.push(*data);
                    }
                    Record::CloneRange { blocks, .. } => clones.extend(cloned(blocks)),
                    _ => {}
                }
                if raw.header.seq <= header.replay_seq || raw.header.txg < header.claim_txg {
                    continue;
                }
                let applied = Applied { inner: Arc::clone(self), seq: raw.header.seq };
                self.apply(onto, &record, &applied).await?;
                replayed.records += 1;
            }
        }
        self.require_all(&header, blocks.last(), last_record)?;
        lock(&self.chain).adopt(blocks, referred, clones);
        self.end().await?;
        Ok(replayed)
    }

    /// Gives up a claimed log with all its records, which needs no key.
    pub(super) async fn discard(&self) -> Result<()> {
        let header = match lock(&self.chain).state {
            State::Claimed(header) => header,
            _ => return Ok(()),
        };
        let read = |bp: Blkptr| async move { self.backing.read(&bp).await }.boxed();
        let Held { blocks, referred, clones } = held(&header, read).await;
        lock(&self.chain).adopt(blocks, referred, clones);
        self.end().await
    }

    async fn apply(&self, onto: &impl Replay, record: &Record<'_>, applied: &Applied) -> Result<()> {
        let result = match record {
            Record::Write { object, offset, length, data: WriteData::Block(bp) } => {
                // The whole block that contains the write.
                let start = if bp.is_hole() { *offset } else { offset - offset % bp.lsize().get().max(1) };
                let length = offset.saturating_add(*length) - start;
                self.apply_block(onto, *object, (start, length), bp, applied).await
            }
            Record::CloneRange { object, offset, length, block_bytes, blocks } => {
                let range = (*object, *offset, *length);
                let shared = onto.share(range, (*block_bytes, blocks), applied).await;
                let (is_shared, mut result) =
                    shared.map_or_else(|error| (true, Err(error)), |shared| (shared, Ok(())));
                let end = offset.saturating_add(*length);
                let mut at = *offset;
                for (index, bp) in blocks.iter().enumerate().filter(|_| !is_shared) {
                    let length = end.saturating_sub(at).min(*block_bytes);
                    let applied = if index + 1 < blocks.len() { applied.before() } else { applied.clone() };
                    result = self.apply_block(onto, *object, (at, length), bp, &applied).await;
                    at = at.saturating_add(length);
                    if result.is_err() || at >= end {
                        break;
                    }
                }
                result
            }
            _ => onto.apply(record, applied).await,
        };
        match result {
            Err(Error::NotFound(_)) if record.may_be_out_of_order() => Ok(()),
            Err(error) => {
                tracing::error!(objset = %self.backing.objset(), seq = applied.seq, %error, "a record of the intent log cannot be applied");
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Applies the write of a block that is stored elsewhere. `length` bytes of it were written at `offset`.
    async fn apply_block(
        &self,
        onto: &impl Replay,
        object: ObjectId,
        (offset, length): (u64, u64),
        bp: &Blkptr,
        applied: &Applied,
    ) -> Result<()> {
        let data = match bp.is_hole() {
            true => Block::zero(usize::try_from(length.min(MAX_BLOCK_BYTES)).unwrap_or_default()),
            false => self.backing.read_data(object, bp).await?,
        };
        let write = Record::Write { object, offset, length, data: WriteData::Inline(&data) };
        onto.apply(&write, applied).await
    }

    /// Fails unless all claimed records are still there.
    fn require_all(&self, header: &ZilHeader, last_block: Option<&Blkptr>, last_record: u64) -> Result<()> {
        let last_block = last_block.map_or(0, |bp| ChainSeed::of(bp).seq);
        let claimed_record = match header.flags & FLAG_CLAIM_LR_SEQ_VALID {
            0 => 0,
            _ => header.claim_lr_seq,
        };
        if last_block < header.claim_blk_seq || last_record < claimed_record {
            return Err(Error::corrupt(
                format!("intent log of objset {}", self.backing.objset()),
                format!(
                    "claimed up to block {} and record {claimed_record}, it ends with block {last_block} and record {last_record}",
                    header.claim_blk_seq
                ),
            ));
        }
        Ok(())
    }

    fn what(&self, seq: u64) -> String {
        format!("intent log of objset {}, record {seq}", self.backing.objset())
    }
}
