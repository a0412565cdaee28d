//! Writing parts: in the order of each leaf, neighbours together.

use std::collections::HashMap;
use std::time::Instant;

use device::{Cause, IoError};
use futures_util::future::join_all;
use ondisk::Txg;

use super::super::read::Load;
use super::super::stats::Transfer;
use super::Until;
use super::plan::Part;
use crate::error::{Attempt, Failure};

/// Longest transfer made of neighbours.
const MAX_TRANSFER_BYTES: u64 = 1 << 20;
/// Most parts of one transfer, far less than the kernel takes.
const MAX_PARTS: usize = 256;

/// Writes all parts. Returns those that failed, filler aside.
pub(super) async fn perform(txg: Txg, parts: &[Part<'_>], until: Until) -> HashMap<usize, Attempt> {
    let transfers = runs(parts).into_iter().map(|run| transfer(txg, parts, run, until));
    join_all(transfers).await.into_iter().flatten().collect()
}

/// The numbers of the parts of each transfer: neighbours on one leaf, with filler between them but at neither end.
fn runs(parts: &[Part<'_>]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&index| (parts[index].leaf.guid, parts[index].position));
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut bridge: Vec<usize> = Vec::new();
    for index in order {
        let part = &parts[index];
        let last = bridge.last().or(runs.last().and_then(|run| run.last()));
        let first = runs.last().and_then(|run| run.first());
        let joins = last.zip(first).is_some_and(|(&last, &first)| {
            let (last, first) = (&parts[last], &parts[first]);
            last.leaf.guid == part.leaf.guid
                && last.position + last.data.len() as u64 == part.position
                && part.position + part.data.len() as u64 - first.position <= MAX_TRANSFER_BYTES
                && runs.last().map_or(0, Vec::len) + bridge.len() < MAX_PARTS
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

async fn transfer(txg: Txg, parts: &[Part<'_>], run: Vec<usize>, until: Until) -> Vec<(usize, Attempt)> {
    let Err(error) = write(txg, parts, &run, until).await else { return Vec::new() };
    let mut failed = Vec::new();
    for index in run {
        let part = &parts[index];
        let result =
            if is_final(&error) { Err(error.clone()) } else { write(txg, parts, &[index], until).await };
        if let Err(error) = result
            && !part.filler
        {
            part.leaf.errors.count_write();
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

async fn write(txg: Txg, parts: &[Part<'_>], run: &[usize], until: Until) -> Result<(), IoError> {
    let Some(first) = run.first().map(|&index| &parts[index]) else { return Ok(()) };
    let data = run.iter().map(|&index| parts[index].data.clone()).collect();
    let bytes = run.iter().map(|&index| parts[index].data.len() as u64).sum();
    let _load = Load::on(first.leaf);
    let started = Instant::now();
    let is_durable = until.is_met_by(&*first.device);
    let result = match is_durable {
        true => first.device.write_durably(first.position, data).await,
        false => first.device.write_gather(first.position, data).await,
    };
    if result.is_ok() {
        first.leaf.stats.count(Transfer::Write, bytes, started);
    }
    if !is_durable {
        // Also one that failed may have left something in the device's cache.
        first.leaf.unflushed.wrote(txg);
    }
    result
}
