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
//! # What a replay writes
//! A replay writes the whole block of a pointer, where data in the log are written to their range alone.
//! What the block contains of earlier changes is in the file already when the record is applied, and what it
//! contains of later ones is harmless: these are noted, or will be. So:
//!
//! - The block must have all changes of older groups. A replay leaves out records of committed groups, and
//!   would put the block over their changes. Therefore nothing gets a pointer while an operation holds the
//!   group before the open one.
//! - The block must have the data of the write. A file may be truncated, removed, or get larger blocks
//!   between the write and the log. Therefore a record gets a pointer only if the file had all of the write
//!   before its block was written and still has it afterwards, and if the block is as large as blocks were
//!   when the write was cut.
//! - The file must reach to the last byte of the block that is not zero: bytes of a later write behind the
//!   end of the file would appear when it grows again. Therefore the record covers them, if the file does.
//!
//! Otherwise the write goes into the log with the data that are left of it, as if nothing had been written
//! early, and by the same rules.
//!
//! # Invariant
//! The chain gets the group of a block that is being written early as `in_flight`, so that the sync of the
//! group waits for the batch.
//!
//! Source of the facts: OpenZFS 2.3 `zil.c` (`zil_write_state`), `zvol.c`, `zfs_vnops.c` (`zfs_get_data`).

use std::sync::atomic::Ordering;

use futures_util::{StreamExt, TryStreamExt, stream};
use ondisk::blkptr::Blkptr;
use ondisk::zil::Record;
use ondisk::zil::record::WriteData;
use ondisk::{ByteOrder, Txg};

use super::backing::Written;
use super::itx::{Noted, What};
use super::{Inner, lock};
use crate::dmu::Early;
use crate::error::{Error, Result};
use crate::tunables;

/// The number of blocks that are written at once.
const AT_ONCE: usize = 32;

/// What happens to a part of a note.
enum Step {
    /// It goes into the log with its data.
    Keep(Noted),
    /// Its block is written.
    Write {
        /// The write, and its length.
        write: Written,
        length: u64,
        /// The number of its block, and the size of blocks.
        block: u64,
        block_size: u64,
    },
}

impl Inner {
    /// Writes the blocks of large writes. Returns the notes, with pointer records in their places, and the
    /// blocks that must be flushed with the log.
    pub(super) async fn write_early(&self, notes: Vec<Noted>) -> Result<(Vec<Noted>, Vec<Blkptr>)> {
        let for_throughput = self.for_throughput.load(Ordering::Acquire);
        let large_bytes = tunables::ZFS_IMMEDIATE_WRITE_SZ.get();
        let is_large = |length: u64| for_throughput || length >= large_bytes;
        let is_meant = |noted: &Noted| matches!(noted.what, What::Write { length, .. } if is_large(length));
        if !notes.iter().any(is_meant) || (!for_throughput && self.backing.has_log_devices()) {
            return Ok((notes, Vec::new()));
        }
        let txg = {
            let tx = self.txgs.hold()?;
            lock(&self.chain).in_flight = Some(tx.txg());
            tx.txg()
        };
        if self.txgs.is_held_before(txg) {
            return Ok((notes, Vec::new()));
        }
        let mut steps = Vec::with_capacity(notes.len());
        for noted in notes {
            match noted.what {
                What::Write { object, generation, offset, length }
                    if noted.txg == txg && is_meant(&noted) =>
                {
                    match self.backing.early_block_size(object.into()).await? {
                        Some(block_size) if block_size > 0 => {
                            let write = Written { object: object.into(), generation, offset };
                            cut(&mut steps, txg, (write, length), block_size, for_throughput)
                        }
                        _ => steps.push(Step::Keep(noted)),
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
        let (write, length, block, block_size) = match step {
            Step::Keep(noted) => return Ok((noted, None)),
            Step::Write { write, length, block, block_size } => (write, length, block, block_size),
        };
        let kept = Noted { txg, what: with_data(write, length) };
        if !self.is_there(write, length).await? {
            return Ok((kept, None));
        }
        let Some(Early { pointer, data_bytes }) = self.backing.write_early(txg, write.object, block).await?
        else {
            return Ok((kept, None));
        };
        let Written { object, offset, .. } = write;
        let data_end = block.saturating_mul(block_size).saturating_add(data_bytes);
        let covered = length.max(data_end.saturating_sub(offset));
        if pointer.lsize().get() != block_size || !self.is_there(write, covered).await? {
            return Ok((kept, None));
        }
        let record = Record::Write { object, offset, length: covered, data: WriteData::Block(pointer) };
        let record =
            record.encode(txg, 0, ByteOrder::Little).map_err(Error::format("a record of a block"))?;
        self.count_indirect(length);
        Ok((Noted { txg, what: What::Record(record) }, Some(pointer)))
    }

    /// Whether the object has all of a write.
    async fn is_there(&self, write: Written, length: u64) -> Result<bool> {
        Ok(self.backing.left(write).await?.is_some_and(|left| left >= length))
    }
}

/// A write that goes into the log with its data.
fn with_data(write: Written, length: u64) -> What {
    let Written { object, generation, offset } = write;
    What::Write { object: object.get(), generation, offset, length }
}

/// Cuts a write at the boundaries of blocks. Parts that go into the log with their data stay together.
fn cut(
    steps: &mut Vec<Step>,
    txg: Txg,
    (write, length): (Written, u64),
    block_size: u64,
    for_throughput: bool,
) {
    let mut offset = write.offset;
    let end = offset.saturating_add(length);
    let mut kept = offset;
    let part = |from: u64| Written { offset: from, ..write };
    let keep = |steps: &mut Vec<Step>, from: u64, to: u64| {
        if from < to {
            steps.push(Step::Keep(Noted { txg, what: with_data(part(from), to - from) }));
        }
    };
    while offset < end {
        let block = offset / block_size;
        let next = block.saturating_add(1).saturating_mul(block_size).min(end);
        if for_throughput || (next - offset) * 2 >= block_size {
            keep(steps, kept, offset);
            steps.push(Step::Write { write: part(offset), length: next - offset, block, block_size });
            kept = next;
        }
        offset = next;
    }
    keep(steps, kept, end);
}
