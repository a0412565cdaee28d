//! Compaction: what is needed of objects that are needed in part is written again, so that they can be
//! deleted.
//!
//! The store may hold [`Options::garbage_share`](super::Options) of what is needed without need. Beyond that
//! the object of which the least part is needed is taken. With a share of 1.0 an object is at most half
//! needed then, so that a byte that a client writes costs at most one that is moved, in the long run.

use std::rc::Rc;

use tokio::time::Instant;

use super::{Shared, begin};
use crate::error::Error;
use crate::format::{self, Entry, Kind, MAX_OBJECT_BYTES, ObjectId, SECTOR_BYTES};
use crate::requests;

/// Bytes without need that are not worth the requests.
const LEAST_BYTES: u64 = 64 << 20;

/// Begins where there is too much that is not needed.
pub(super) fn consider(shared: &Rc<Shared>) {
    if shared.state().is_compacting || victim(shared).is_none() {
        return;
    }
    shared.state_mut().is_compacting = true;
    begin(shared, async |shared| {
        while let Some(id) = victim(shared) {
            if let Err(error) = compact(shared, id).await {
                tracing::warn!(%error, object = id.key(), "an object cannot be compacted");
                break;
            }
            // What was moved out of it is durable before the next one is chosen.
            if shared.flush().await.is_err() {
                break;
            }
        }
        shared.state_mut().is_compacting = false;
    });
}

/// The object of which the least part is needed, if there is too much without need.
fn victim(shared: &Shared) -> Option<ObjectId> {
    let state = shared.state();
    if state.ended.is_some() || state.epoch.is_none() {
        return None;
    }
    let (live, total) = state.space();
    let garbage = total.saturating_sub(live);
    if garbage < LEAST_BYTES.min(shared.size_bytes / 8)
        || garbage as f64 <= live as f64 * shared.options.garbage_share
    {
        return None;
    }
    let is_stored = |id: &ObjectId| {
        let is_filled = state.filling.as_ref().is_some_and(|filling| filling.id == *id);
        // Commits after the checkpoint stay in any case.
        let is_needed = id.commit().is_some_and(|sequence| sequence >= state.stored);
        !is_filled && !is_needed && !state.unsent.contains_key(id)
    };
    let all =
        state.map.objects().filter(|(id, live)| live.live > 0 && live.live < live.total && is_stored(id));
    let share = |live: format::Live| f64::from(live.live) / f64::from(live.total);
    let least = all.min_by(|(_, one), (_, other)| share(*one).total_cmp(&share(*other)))?;
    Some(least.0)
}

/// Writes again what is needed of an object.
async fn compact(shared: &Rc<Shared>, id: ObjectId) -> Result<(), Error> {
    let key = id.key();
    let ask = async || shared.bucket.get_all(&key, MAX_OBJECT_BYTES).await;
    let bytes = requests::ask(&*shared.bucket, &key, shared.options.patience, ask).await?;
    let (device, sectors) = {
        let mut state = shared.state_mut();
        state.counts.gets += 1;
        state.counts.got_bytes += bytes.len() as u64;
        (state.origin.device, state.sectors)
    };
    let entries: Vec<Entry> = match id.commit() {
        Some(sequence) => {
            let object = format::decode(&key, &bytes, Kind::Commit, Some(device), sequence.0)?;
            format::Commit::read(&key, &object.body, sectors)?.entries
        }
        None => {
            let object = format::decode(&key, &bytes, Kind::Segment, Some(device), id.0)?;
            format::read_segment(&key, &object.body, sectors)?
        }
    };
    for entry in entries {
        let Some(place) = entry.place.filter(|place| place.id == id) else { continue };
        let length = (u64::from(entry.sectors) * SECTOR_BYTES) as usize;
        let data = bytes.get(place.offset as usize..place.offset as usize + length);
        let data = data.ok_or_else(|| Error::damaged(&key, crate::error::Damage::Body))?;
        let is_right = format::data_hash(data) == entry.hash;
        let mut done = entry.sector;
        let end = entry.sector + u64::from(entry.sectors);
        while done < end {
            shared.load(done, end - done).await?;
            if shared.state().unsent_bytes >= shared.options.unsent_bytes {
                shared.wait(Instant::now() + shared.options.patience).await?;
                continue;
            }
            // From here to the end of the piece nothing else runs.
            let first = shared.state_mut().map.get(done, end - done).first().copied();
            let Some(piece) = first else { break };
            if let Some(at) = piece.place.filter(|at| at.id == id) {
                // A read that was right then is not to be wrong now, and one that was wrong not to look
                // right.
                if !is_right {
                    return Err(Error::damaged(&key, crate::error::Damage::Hash));
                }
                let from = at.offset as usize;
                let length = (u64::from(piece.sectors) * SECTOR_BYTES) as usize;
                // The map is the store's word too.
                let data = bytes.get(from..from + length);
                let data = data.ok_or_else(|| Error::damaged(&key, crate::error::Damage::Body))?;
                shared.append(piece.sector, data)?;
                shared.state_mut().counts.moved_bytes += length as u64;
            }
            done = piece.sector + u64::from(piece.sectors);
        }
    }
    Ok(())
}
