//! Commits: what was written so far becomes durable.

use std::rc::Rc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Filling, Shared, State, begin, checkpoints, compaction};
use crate::error::Error;
use crate::format::{
    self, Commit, Entry, HEAD_BYTES, Head, Kind, ObjectId, Place, SECTOR_BYTES, Sequence, commit_key,
};
use crate::opener;
use crate::requests::{self, Waits};

/// How many entries a commit has at most; more are made in several.
const MAX_ENTRIES: usize = 1 << 20;

impl Shared {
    pub(super) async fn flush(self: &Rc<Self>) -> Result<(), Error> {
        let until = Instant::now() + self.options.patience;
        self.check()?;
        let target = self.state().appended;
        while self.state().durable < target {
            if !self.state().is_committing {
                self.state_mut().is_committing = true;
                begin(self, async |shared| {
                    shared.commit().await;
                    shared.state_mut().is_committing = false;
                });
            }
            self.wait(until).await?;
        }
        Ok(())
    }

    /// Makes a commit, and what follows from it. Ends before only with the device.
    async fn commit(self: &Rc<Self>) {
        let Some(prepared) = self.prepare() else { return };
        let Prepared {
            sequence,
            image,
            waits_for,
            appended,
            dead,
            superseded,
            takes_over,
            snapshot,
            inline_bytes,
        } = prepared;
        while self.state().unsent.keys().any(|id| waits_for.contains(id)) {
            if self.check().is_err() {
                return;
            }
            self.changed.notified().await;
        }
        let key = commit_key(sequence);
        let mut waits = Waits::default();
        loop {
            if self.check().is_err() {
                return;
            }
            match requests::create(&*self.bucket, &key, &image, self.options.patience).await {
                Ok(true) => break,
                Ok(false) => {
                    tracing::error!(device = self.bucket.address(), "another host has taken the device over");
                    return self.end(Error::TakenOver);
                }
                Err(error) => {
                    tracing::warn!(%error, "the object store");
                    self.state_mut().fault = Some(error);
                    waits.wait().await;
                }
            }
        }
        {
            let mut state = self.state_mut();
            state.fault = None;
            state.last = sequence;
            state.durable = appended;
            state.counts.commits += 1;
            state.counts.puts += 1;
            state.counts.put_bytes += image.len() as u64;
            let own = ObjectId::of_commit(sequence);
            state.unsent.remove(&own);
            state.unsent_bytes -= inline_bytes;
            if takes_over {
                opener::is_held(state.origin.device, sequence);
                state.epoch = Some(sequence);
                state.count = 0;
            } else if inline_bytes == 0 {
                state.empty_commits.insert(sequence);
            }
            let next_read = state.next_read;
            for id in dead {
                state.map.remove_object(id);
                match id.commit() {
                    Some(sequence) => {
                        state.empty_commits.insert(sequence);
                    }
                    None => state.deletable.push((id, next_read)),
                }
            }
            let most = self.options.map_runs;
            state.map.forget(most);
        }
        self.changed.notify_waiters();
        if let Some(snapshot) = snapshot {
            begin(self, async move |shared| checkpoints::store(shared, snapshot).await);
        }
        if !superseded.is_empty() {
            begin(self, async move |shared| checkpoints::delete(shared, superseded).await);
        }
        compaction::consider(self);
        checkpoints::delete_dead(self);
    }

    /// Takes what is new into a commit; none where there is nothing.
    fn prepare(self: &Rc<Self>) -> Option<Prepared> {
        let few = |filling: &Filling| filling.data.len() - HEAD_BYTES <= self.options.inline_bytes;
        let is_inline = self.state().filling.as_ref().is_some_and(few);
        if !is_inline && self.seal().is_err() {
            return None;
        }
        let mut state = self.state_mut();
        if state.durable == state.appended {
            return None;
        }
        let sequence = state.last.next();
        let own = ObjectId::of_commit(sequence);
        let mut entries = std::mem::take(&mut state.entries);
        let rest = entries.split_off(entries.len().min(MAX_ENTRIES));
        let mut data = vec![0; HEAD_BYTES];
        let mut inline_bytes = 0;
        // A segment that is being filled is not torn apart.
        let filling = if rest.is_empty() { state.filling.take() } else { None };
        if let Some(filling) = filling {
            inline_bytes = filling.data.len() - HEAD_BYTES;
            data = filling.data;
            let total = (inline_bytes as u64 / SECTOR_BYTES) as u32;
            state.map.add_object(own, total);
            relabel(&mut state, filling.id, own, &filling.entries);
            for entry in &mut entries {
                if let Some(place) = &mut entry.place
                    && place.id == filling.id
                {
                    place.id = own;
                }
            }
            state.map.remove_object(filling.id);
        }
        let appended = state.appended - rest.len() as u64;
        state.entries = rest;
        let (epoch, takes_over) = match state.epoch {
            // Ids run out: this opening begins anew.
            Some(_) if state.count > MAX_COUNT => (sequence, true),
            Some(epoch) => (epoch, false),
            None => return None,
        };
        let commit = Commit { epoch, checkpoint: state.checkpoint, takes_over, entries };
        let head = Head { origin: state.origin, number: sequence.0, data_bytes: 0 };
        let image = format::encode(Kind::Commit, head, data, &commit.body());
        if inline_bytes > 0 {
            state.unsent.insert(own, image.clone());
        }
        let waits_for = commit.entries.iter().filter_map(|entry| entry.place).map(|place| place.id);
        let waits_for = waits_for.filter(|id| *id != own && state.unsent.contains_key(id)).collect();
        let (here, mut dead): (Vec<_>, Vec<_>) = {
            let filled = state.filling.as_ref().map(|filling| filling.id);
            state.map.take_dead().into_iter().partition(|id| Some(*id) == filled)
        };
        // What is being filled may be overwritten before it is anywhere.
        here.into_iter().for_each(|id| state.map.is_dead(id));
        if inline_bytes > 0 && state.map.object(own).is_some_and(|live| live.live == 0) {
            dead.push(own);
        }
        state.entries_since += commit.entries.len();
        state.commits_since += 1;
        let is_due = state.entries_since >= self.options.checkpoint_entries
            || state.commits_since >= self.options.checkpoint_commits;
        let is_whole = state.entries.is_empty() && !takes_over;
        let snapshot = if is_due && is_whole && !state.is_checkpointing {
            state.is_checkpointing = true;
            (state.entries_since, state.commits_since) = (0, 0);
            Some(checkpoints::Snapshot::of(&state, sequence, epoch))
        } else {
            None
        };
        let superseded = std::mem::take(&mut state.superseded);
        Some(Prepared {
            sequence,
            image,
            waits_for,
            appended,
            dead,
            superseded,
            takes_over,
            snapshot,
            inline_bytes,
        })
    }
}

/// Counts of ids from which on an opening begins anew.
const MAX_COUNT: u64 = (1 << 24) - (1 << 12);

/// A commit that is ready to be made.
#[derive(Debug)]
struct Prepared {
    sequence: Sequence,
    image: Bytes,
    /// Segments that must be in the store before.
    waits_for: Vec<ObjectId>,
    /// Entries ever, up to its last.
    appended: u64,
    /// Objects of which nothing is needed when it is made.
    dead: Vec<ObjectId>,
    /// Keys of objects that may be deleted when it is made.
    superseded: Vec<String>,
    takes_over: bool,
    snapshot: Option<checkpoints::Snapshot>,
    inline_bytes: usize,
}

/// What is still needed of `old` is in `new` at the same offsets.
fn relabel(state: &mut State, old: ObjectId, new: ObjectId, entries: &[Entry]) {
    for entry in entries {
        // Its regions were loaded when it was written, and are not in the store as they are now.
        for piece in state.map.get(entry.sector, entry.sectors.into()) {
            if let Some(place) = piece.place.filter(|place| place.id == old) {
                let place = Place { id: new, ..place };
                state.map.set(piece.sector, piece.sectors.into(), Some(place));
            }
        }
    }
}
