//! Large writes: logged by pointer.
//!
//! # The idea
//! Data of a write that goes into the log are written twice: to the log, and with their group. When that
//! costs more than it saves, the block is written at once to its final place
//! ([`crate::dmu::LiveObject::write_early`]), and the record has its pointer instead of data. One flush makes
//! both the log and the block stable.
//!
//! | dataset | writes logged by pointer |
//! |---|---|
//! | `logbias=throughput` | everything |
//! | log devices | none: log devices are faster |
//! | otherwise | blocks that a note of `zfs_immediate_write_sz` or more fills at least half |
//!
//! Only writes of the open group are logged by pointer. Writes of older groups are about to be written
//! anyway, and go into the log with their data. So do writes to blocks that occupy no space of their own.
//!
//! # Invariant
//! The chain gets the group of a block that is being written early as `in_flight`, so that the sync of the
//! group waits for the batch.
//!
//! Source of the facts: OpenZFS 2.3 `zil.c` (`zil_write_state`), `zvol.c`.

use std::sync::atomic::Ordering;

use futures_util::{StreamExt, TryStreamExt, stream};
use ondisk::blkptr::Blkptr;
use ondisk::zil::Record;
use ondisk::zil::record::WriteData;
use ondisk::{ByteOrder, ObjectId, Txg};

use super::itx::{Noted, What};
use super::{Inner, lock};
use crate::error::{Error, Result};
use crate::tunables;

/// The number of blocks that are written at once.
const AT_ONCE: usize = 32;

/// What happens to a part of a note.
enum Step {
    /// It goes into the log with its data.
    Keep(Noted),
    /// Its block is written: object, block, offset and length of the write to it.
    Write(u64, u64, u64, u64),
}

impl Inner {
    /// Writes the blocks of large writes. Returns the notes, with pointer records in their places, and the
    /// blocks that must be flushed with the log.
    pub(super) async fn write_early(&self, notes: Vec<Noted>) -> Result<(Vec<Noted>, Vec<Blkptr>)> {
        let for_throughput = self.for_throughput.load(Ordering::Acquire);
        let large_bytes = tunables::ZFS_IMMEDIATE_WRITE_SZ.get();
        let is_meant = |noted: &Noted| matches!(noted.what, What::Write { length, .. } if for_throughput || length >= large_bytes);
        if !notes.iter().any(is_meant) || (!for_throughput && self.backing.has_log_devices()) {
            return Ok((notes, Vec::new()));
        }
        let txg = {
            let tx = self.txgs.hold()?;
            lock(&self.chain).in_flight = Some(tx.txg());
            tx.txg()
        };
        let mut steps = Vec::with_capacity(notes.len());
        for noted in notes {
            match noted.what {
                // Only writes to volumes: objects with generations may be truncated while they are logged.
                What::Write { object, generation: 0, offset, length }
                    if noted.txg == txg && is_meant(&noted) =>
                {
                    match self.backing.early_block_size(object.into()).await? {
                        Some(block_size) => {
                            cut(&mut steps, &noted, (object, offset, length), block_size, for_throughput)
                        }
                        None => steps.push(Step::Keep(noted)),
                    }
                }
                _ => steps.push(Step::Keep(noted)),
            }
        }
        let mut logged = stream::iter(steps).map(|step| self.take_step(txg, step)).buffered(AT_ONCE);
        let (mut notes, mut blocks) = (Vec::new(), Vec::new());
        while let Some((noted, block)) = logged.try_next().await? {
            notes.push(noted);
            blocks.extend(block);
        }
        Ok((notes, blocks))
    }

    async fn take_step(&self, txg: Txg, step: Step) -> Result<(Noted, Option<Blkptr>)> {
        let (object, block, offset, length) = match step {
            Step::Keep(noted) => return Ok((noted, None)),
            Step::Write(object, block, offset, length) => (object, block, offset, length),
        };
        let Some(pointer) = self.backing.write_early(txg, object.into(), block).await? else {
            return Ok((Noted { txg, what: What::Write { object, generation: 0, offset, length } }, None));
        };
        let record =
            Record::Write { object: ObjectId(object), offset, length, data: WriteData::Block(pointer) };
        let record =
            record.encode(txg, 0, ByteOrder::Little).map_err(Error::format("a record of a block"))?;
        self.count_indirect(length);
        Ok((Noted { txg, what: What::Record(record) }, Some(pointer)))
    }
}

/// Cuts a write at the boundaries of blocks. Parts that go into the log with their data stay together.
fn cut(
    steps: &mut Vec<Step>,
    noted: &Noted,
    (object, mut offset, length): (u64, u64, u64),
    block_size: u64,
    for_throughput: bool,
) {
    let end = offset.saturating_add(length);
    let mut kept = offset;
    let keep = |steps: &mut Vec<Step>, from: u64, to: u64| {
        if from < to {
            let what = What::Write { object, generation: 0, offset: from, length: to - from };
            steps.push(Step::Keep(Noted { txg: noted.txg, what }));
        }
    };
    while offset < end {
        let block = offset / block_size;
        let next = block.saturating_add(1).saturating_mul(block_size).min(end);
        if for_throughput || (next - offset) * 2 >= block_size {
            keep(steps, kept, offset);
            steps.push(Step::Write(object, block, offset, next - offset));
            kept = next;
        }
        offset = next;
    }
    keep(steps, kept, end);
}
