//! Checkpoints, and what may be deleted after them.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::{Shared, State, begin, send};
use crate::error::Error;
use crate::format::{
    self, Checkpoint, CheckpointNumber, HEAD_BYTES, Head, Kind, LATEST_KEY, Live, MAX_OBJECT_BYTES, ObjectId,
    PagePlace, REGION_BYTES, Run, Sequence, checkpoint_key, commit_key, map_key,
};
use crate::map;
use crate::opening::{self, At};
use crate::requests::{self, Waits};

/// Bytes of an object with pages, beyond which another one is begun.
const MAP_BYTES: usize = 8 << 20;
/// Deletions at once.
const AT_ONCE: usize = 8;

/// The state as of a commit.
#[derive(Debug)]
pub(super) struct Snapshot {
    sequence: Sequence,
    epoch: Sequence,
    clock: u64,
    changed: Vec<(u32, Vec<Run>)>,
    same: Vec<(u32, PagePlace)>,
    objects: Vec<(ObjectId, Live)>,
}

impl Snapshot {
    /// All that is in the map belongs to this commit or those before.
    pub(super) fn of(state: &State, sequence: Sequence, epoch: Sequence) -> Self {
        let map::Snapshot { changed, same } = state.map.snapshot();
        let clock = state.map.clock();
        // What is dead is deleted when the commit is made.
        let objects = state.map.objects().filter(|(_, live)| live.live > 0).collect();
        Self { sequence, epoch, clock, changed, same, objects }
    }
}

/// Stores a checkpoint, and deletes what only those before needed.
pub(super) async fn store(shared: &Rc<Shared>, snapshot: Snapshot) {
    let stored = try_store(shared, snapshot).await;
    shared.state_mut().is_checkpointing = false;
    if stored.is_some() {
        delete_dead(shared);
    }
}

/// None where the device has ended before.
async fn try_store(shared: &Rc<Shared>, snapshot: Snapshot) -> Option<()> {
    let Snapshot { sequence, epoch, clock, changed, mut same, objects } = snapshot;
    let pages = store_pages(shared, changed).await?;
    same.extend(pages.iter().copied());
    same.sort_unstable_by_key(|(region, _)| *region);
    let used: BTreeSet<ObjectId> = same.iter().map(|(_, page)| page.id).collect();
    let checkpoint = Checkpoint { sequence, epoch, objects, regions: same };
    let origin = shared.state().origin;
    let body = checkpoint.body();
    if body.len() as u64 + HEAD_BYTES as u64 > MAX_OBJECT_BYTES {
        tracing::error!("the device has too many objects for a checkpoint");
        return None;
    }
    let mut waits = Waits::default();
    let before = shared.state().checkpoint;
    let mut number = before.next();
    let written = loop {
        shared.check().ok()?;
        let head = Head { origin, number: number.0, data_bytes: 0 };
        let bytes = format::encode(Kind::Checkpoint, head, Vec::new(), &body);
        match requests::create(&*shared.bucket, &checkpoint_key(number), &bytes, shared.options.patience)
            .await
        {
            Ok(true) => break bytes.len(),
            Ok(false) => match older(shared, number, sequence).await {
                // The owner before made one at its end, of a state that this one goes on from.
                Ok(Some(next)) => number = next,
                Ok(None) => {
                    shared.end(Error::TakenOver);
                    return None;
                }
                Err(error) => {
                    shared.state_mut().fault = Some(error);
                    waits.wait().await;
                }
            },
            Err(error) => {
                shared.state_mut().fault = Some(error);
                waits.wait().await;
            }
        }
    };
    {
        let mut state = shared.state_mut();
        state.counts.checkpoints += 1;
        state.counts.puts += 1;
        state.counts.put_bytes += written as u64;
        for (region, page) in pages {
            state.map.stored(region, page, clock);
        }
        (state.checkpoint, state.stored) = (number, sequence);
    }
    let pointer = |of: u64| {
        let head = Head { origin, number: of, data_bytes: 0 };
        format::encode(Kind::Pointer, head, Vec::new(), &number.0.to_le_bytes())
    };
    if !send(shared, LATEST_KEY, &pointer(0)).await {
        return None;
    }
    // From now on who finds one of them is led here.
    for old in (before.0..number.0).map(CheckpointNumber) {
        if !send(shared, &checkpoint_key(old), &pointer(old.0)).await {
            return None;
        }
    }
    // The pages that regions have now are among those of this checkpoint.
    let (maps, commits) = {
        let mut state = shared.state_mut();
        let gone: Vec<ObjectId> = state.maps.iter().filter(|id| !used.contains(id)).copied().collect();
        state.maps.retain(|id| used.contains(id));
        let mut commits: Vec<Sequence> = Vec::new();
        state.empty_commits.retain(|one| {
            let goes = *one < sequence;
            if goes {
                commits.push(*one);
            }
            !goes
        });
        (gone, commits)
    };
    let keys = maps.into_iter().map(map_key).chain(commits.into_iter().map(commit_key));
    shared.state_mut().superseded.extend(keys);
    Some(())
}

/// Stores the runs of regions that have changed; where they are then.
async fn store_pages(shared: &Rc<Shared>, changed: Vec<(u32, Vec<Run>)>) -> Option<Vec<(u32, PagePlace)>> {
    let mut pages: Vec<(u32, PagePlace)> = Vec::new();
    let mut data = vec![0; HEAD_BYTES];
    let mut waiting: Vec<(u32, u64, u32, u64)> = Vec::new();
    let mut changed = changed.into_iter().peekable();
    while let Some((region, runs)) = changed.next() {
        let page = format::page(runs.into_iter());
        waiting.push((region, data.len() as u64, page.len() as u32, format::data_hash(&page)));
        data.extend_from_slice(&page);
        if data.len() < MAP_BYTES && changed.peek().is_some() {
            continue;
        }
        let id = shared.state_mut().next_id().ok()?;
        let head = Head { origin: shared.state().origin, number: id.0, data_bytes: 0 };
        let body = format::encode(Kind::Map, head, std::mem::replace(&mut data, vec![0; HEAD_BYTES]), &[]);
        shared.state_mut().maps.insert(id);
        if !send(shared, &map_key(id), &body).await {
            return None;
        }
        let of = |(region, offset, bytes, hash)| (region, PagePlace { id, offset, bytes, hash });
        pages.extend(waiting.drain(..).map(of));
    }
    Some(pages)
}

/// Where to go on where a number is taken: the number after it, if its checkpoint is of a commit before
/// `sequence`. None where it is of a later one: another host has the device.
///
/// So checkpoints with higher numbers are always of later commits.
async fn older(
    shared: &Shared,
    number: CheckpointNumber,
    sequence: Sequence,
) -> Result<Option<CheckpointNumber>, Error> {
    let (device, regions) = (shared.state().origin.device, shared.size_bytes.div_ceil(REGION_BYTES));
    let taken = opening::checkpoint_at(&*shared.bucket, device, number, regions, &shared.options).await?;
    Ok(match taken {
        At::Checkpoint(checkpoint) if checkpoint.sequence >= sequence => None,
        At::Checkpoint(_) => Some(number.next()),
        At::Pointer(next) => Some(next),
        // It was there just now.
        At::Missing => Some(number),
    })
}

/// Deletes segments that are no longer needed, as soon as reads of them have ended.
pub(super) fn delete_dead(shared: &Rc<Shared>) {
    {
        let mut state = shared.state_mut();
        if state.is_deleting || state.deletable.is_empty() {
            return;
        }
        state.is_deleting = true;
    }
    begin(shared, async |shared| {
        loop {
            if shared.check().is_err() {
                break;
            }
            let ready: Vec<ObjectId> = {
                let mut state = shared.state_mut();
                let oldest = state.reads.first().copied().unwrap_or(u64::MAX);
                let (ready, later) =
                    std::mem::take(&mut state.deletable).into_iter().partition(|(_, after)| *after <= oldest);
                state.deletable = later;
                ready.into_iter().map(|(id, _)| id).collect()
            };
            if ready.is_empty() {
                if shared.state().deletable.is_empty() {
                    break;
                }
                shared.changed.notified().await;
                continue;
            }
            delete(shared, ready.into_iter().map(ObjectId::key).collect()).await;
        }
        shared.state_mut().is_deleting = false;
    });
}

/// Deletes objects. One that cannot be is left over, and found by a check.
pub(super) async fn delete(shared: &Rc<Shared>, keys: Vec<String>) {
    use futures_util::{StreamExt, stream};
    let one = async |key: String| {
        let ask = async || shared.bucket.delete(&key).await;
        match requests::ask(&*shared.bucket, &key, shared.options.patience, ask).await {
            Ok(()) => shared.state_mut().counts.deletes += 1,
            Err(error) => tracing::warn!(%error, "an object is left over"),
        }
    };
    stream::iter(keys).map(one).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}
