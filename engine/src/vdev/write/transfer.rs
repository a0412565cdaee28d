//! Writing parts: in the order of each leaf, neighbours together.
//!
//! # Stable writes
//! A device handles its transfers more or less in order, so a stable write after the transfers of a whole
//! group would wait for all of them. So a leaf that had stable writes a short while ago ([`Stable`]) gets the
//! transfers of a batch one after the other, and smaller ones. "A short while" is counted in such transfers:
//! without a stable write during the last [`TRANSFERS_IN_TURN`], the remaining ones are submitted together,
//! as to every other leaf.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use device::{Cause, IoError};
use futures_util::future::join_all;
use ondisk::Txg;

use super::super::read::Load;
use super::super::stats::{Queue, Transfer};
use super::Until;
use super::plan::Part;
use crate::error::{Attempt, Failure};

/// The limits of a joined transfer.
#[derive(Clone, Copy)]
struct Longest {
    bytes: u64,
    parts: usize,
}

impl Longest {
    /// Far fewer parts than the kernel accepts.
    const TOGETHER: Self = Self { bytes: 1 << 20, parts: 256 };
    /// On leaves with stable writes: a fraction of a millisecond on a fast device.
    const IN_TURN: Self = Self { bytes: 256 << 10, parts: 64 };
}

/// After a stable write, another one is expected within this many transfers.
const TRANSFERS_IN_TURN: u32 = 16;

/// Whether a leaf had stable writes a short while ago.
#[derive(Debug, Default)]
pub(crate) struct Stable {
    /// The number of transfers that will still give way.
    left: AtomicU32,
}

impl Stable {
    /// Notes a stable write to the leaf.
    pub(super) fn asked(&self) {
        self.left.store(TRANSFERS_IN_TURN, Relaxed);
    }

    fn is_expected(&self) -> bool {
        self.left.load(Relaxed) > 0
    }

    /// Whether the next transfer gives way.
    fn gives_way(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// Writes all parts. Returns the failed ones, without filler.
pub(super) async fn perform(txg: Txg, parts: &[Part<'_>], until: Until) -> HashMap<usize, Attempt> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&index| (parts[index].leaf.guid, parts[index].position));
    let leaves = order.chunk_by(|&one, &other| parts[one].leaf.guid == parts[other].leaf.guid);
    let written = leaves.map(|order| write_leaf(txg, parts, order, until));
    join_all(written).await.into_iter().flatten().collect()
}

/// Writes the parts of one leaf, in this order.
async fn write_leaf(txg: Txg, parts: &[Part<'_>], order: &[usize], until: Until) -> Vec<(usize, Attempt)> {
    let Some(leaf) = order.first().map(|&index| parts[index].leaf) else { return Vec::new() };
    if until == Until::Durable {
        leaf.stable.asked();
    }
    let in_turn = until == Until::Taken && leaf.stable.is_expected();
    let came = Instant::now();
    let (mut failed, mut together) = (Vec::new(), Vec::new());
    let queue = if until == Until::Durable { Queue::SyncWrite } else { Queue::AsyncWrite };
    let runs = runs(parts, order, if in_turn { Longest::IN_TURN } else { Longest::TOGETHER });
    let waiting: Vec<_> = runs.into_iter().map(|run| (run, leaf.stats.wait(queue))).collect();
    for (run, waits) in waiting {
        if in_turn && leaf.stable.gives_way() {
            drop(waits);
            failed.extend(transfer(txg, parts, run, until, came).await);
        } else {
            together.push(async move {
                drop(waits);
                transfer(txg, parts, run, until, came).await
            });
        }
    }
    failed.extend(join_all(together).await.into_iter().flatten());
    failed
}

/// The numbers of the parts of each transfer: neighbours, with filler between them but at neither end.
fn runs(parts: &[Part<'_>], order: &[usize], longest: Longest) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut bridge: Vec<usize> = Vec::new();
    for &index in order {
        let part = &parts[index];
        let last = bridge.last().or(runs.last().and_then(|run| run.last()));
        let first = runs.last().and_then(|run| run.first());
        let joins = last.zip(first).is_some_and(|(&last, &first)| {
            let (last, first) = (&parts[last], &parts[first]);
            last.position + last.data.len() as u64 == part.position
                && part.position + part.data.len() as u64 - first.position <= longest.bytes
                && runs.last().map_or(0, Vec::len) + bridge.len() < longest.parts
        });
        match (joins, part.filler) {
            (true, true) => bridge.push(index),
            (true, false) => {
                if let Some(run) = runs.last_mut() {
                    run.append(&mut bridge);
                    run.push(index);
                }
            }
            (false, filler) => {
                bridge.clear();
                if !filler {
                    runs.push(vec![index]);
                }
            }
        }
    }
    runs
}

async fn transfer(
    txg: Txg,
    parts: &[Part<'_>],
    run: Vec<usize>,
    until: Until,
    came: Instant,
) -> Vec<(usize, Attempt)> {
    let Err(error) = write(txg, parts, &run, until, came).await else { return Vec::new() };
    let mut failed = Vec::new();
    for index in run {
        let part = &parts[index];
        let result = if is_final(&error) {
            Err(error.clone())
        } else {
            write(txg, parts, &[index], until, came).await
        };
        if let Err(error) = result
            && !part.filler
        {
            let vdev = part.leaf.name.clone();
            let failure = Failure::Io(error.to_string());
            failed.push((index, Attempt { vdev, offset_bytes: part.position, failure }));
        }
    }
    failed
}

/// Whether a second try would end the same way.
fn is_final(error: &IoError) -> bool {
    matches!(
        error.cause,
        Cause::Missing | Cause::ReadOnly | Cause::OutOfRange { .. } | Cause::Unaligned { .. }
    )
}

async fn write(
    txg: Txg,
    parts: &[Part<'_>],
    run: &[usize],
    until: Until,
    came: Instant,
) -> Result<(), IoError> {
    let Some(first) = run.first().map(|&index| &parts[index]) else { return Ok(()) };
    let data = run.iter().map(|&index| parts[index].data.clone()).collect();
    let bytes = run.iter().map(|&index| parts[index].data.len() as u64).sum();
    let queue = if until == Until::Durable { Queue::SyncWrite } else { Queue::AsyncWrite };
    let _load = Load::on(first.leaf, queue);
    let started = Instant::now();
    let is_durable = until.is_met_by(&*first.device);
    let result = match is_durable {
        true => first.device.write_durably(first.position, data).await,
        false => first.device.write_gather(first.position, data).await,
    };
    if result.is_ok() {
        let waited = started.saturating_duration_since(came);
        first.leaf.stats.count_after(Transfer::Write, bytes, started, waited);
        first.leaf.stats.count_queued(queue, bytes, waited, run.len());
        if until == Until::Durable {
            first.leaf.stats.count(Transfer::SyncWrite, bytes, started);
        }
    }
    if !is_durable {
        // A failed write may also have left data in the device's cache.
        first.leaf.unflushed.wrote(txg);
    }
    result
}
