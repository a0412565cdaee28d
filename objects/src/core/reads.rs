//! Reads: those that come together are planned together.
//!
//! A request to a store costs tens of milliseconds, whatever it is for. So the ranges that several reads need
//! of an object are joined where they lie near each other, up to [`Options::joined_bytes`](super::Options).
//! Each read is answered when its own ranges are there. A range that takes longer than
//! [`Options::hedge`](super::Options) is asked for once more, and the first answer counts.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::future::{Either, join_all, select};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::{Shared, State};
use crate::bucket::BucketError;
use crate::error::Error;
use crate::format::{ObjectId, Place, SECTOR_BYTES};
use crate::requests;

/// A read, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Read {
    pub offset: u64,
    pub length: usize,
    pub answer: oneshot::Sender<Result<Vec<u8>, Error>>,
}

/// A read under way.
#[derive(Debug)]
struct Answer {
    /// Whole sectors.
    bytes: Vec<u8>,
    /// Bytes before the ones that were asked for, and how many were.
    skipped: usize,
    length: usize,
    /// Ranges that are not there yet.
    lacking: usize,
    to: Option<oneshot::Sender<Result<Vec<u8>, Error>>>,
}

impl Answer {
    fn send_if_whole(&mut self) {
        if self.lacking == 0
            && let Some(to) = self.to.take()
        {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.drain(..self.skipped);
            bytes.truncate(self.length);
            // Who asked may be gone.
            let _ = to.send(Ok(bytes));
        }
    }

    fn fail(&mut self, error: Error) {
        if let Some(to) = self.to.take() {
            let _ = to.send(Err(error));
        }
    }
}

/// A range of an object that a read needs.
#[derive(Debug)]
struct Part {
    id: ObjectId,
    /// In the object.
    start: u64,
    length: usize,
    /// The read, and where in its bytes.
    read: usize,
    at: usize,
}

/// A range of an object that is fetched at once, and the parts in it.
#[derive(Debug)]
struct Fetch {
    id: ObjectId,
    start: u64,
    end: u64,
    parts: Vec<Part>,
}

/// Joins parts that lie near each other.
fn joined(mut parts: Vec<Part>, gap_bytes: u64, most_bytes: u64) -> Vec<Fetch> {
    parts.sort_unstable_by_key(|part| (part.id, part.start));
    let mut fetches: Vec<Fetch> = Vec::new();
    for part in parts {
        let end = part.start + part.length as u64;
        match fetches.last_mut() {
            Some(last)
                if last.id == part.id
                    && part.start <= last.end.saturating_add(gap_bytes)
                    && end.max(last.end) - last.start <= most_bytes =>
            {
                last.end = last.end.max(end);
                last.parts.push(part);
            }
            _ => fetches.push(Fetch { id: part.id, start: part.start, end, parts: vec![part] }),
        }
    }
    fetches
}

/// Answers all of them.
pub(super) async fn read(shared: &Rc<Shared>, reads: Vec<Read>) {
    // Where a read's region has to be loaded first, the others do not wait for that.
    let (mut at_once, mut later) = (Vec::new(), Vec::new());
    for read in reads {
        match shared.check() {
            Err(error) => drop(read.answer.send(Err(error))),
            Ok(()) if shared.state().map.to_load(first(&read), sectors(&read)).is_none() => {
                at_once.push(read)
            }
            Ok(()) => later.push(read),
        }
    }
    let loaded = async |read: Read| match shared.load(first(&read), sectors(&read)).await {
        Ok(()) => answer(shared, vec![read]).await,
        Err(error) => drop(read.answer.send(Err(error))),
    };
    let later = join_all(later.into_iter().map(loaded));
    futures_util::future::join(answer(shared, at_once), later).await;
}

fn first(read: &Read) -> u64 {
    read.offset / SECTOR_BYTES
}

fn sectors(read: &Read) -> u64 {
    (read.offset + read.length as u64).div_ceil(SECTOR_BYTES) - first(read)
}

/// Answers reads whose regions are loaded.
async fn answer(shared: &Rc<Shared>, reads: Vec<Read>) {
    let _reading = Reading::begin(shared);
    let mut answers = Vec::with_capacity(reads.len());
    let mut parts = Vec::new();
    {
        let mut state = shared.state_mut();
        for read in reads {
            let (first, sectors) = (first(&read), sectors(&read));
            let mut bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
            let before = parts.len();
            for piece in state.map.get(first, sectors) {
                let at = ((piece.sector - first) * SECTOR_BYTES) as usize;
                let length = (u64::from(piece.sectors) * SECTOR_BYTES) as usize;
                let Some(place) = piece.place else { continue };
                match state.in_memory(place, length) {
                    Some(source) => bytes[at..at + length].copy_from_slice(source),
                    None => {
                        let (id, start) = (place.id, u64::from(place.offset));
                        parts.push(Part { id, start, length, read: answers.len(), at });
                    }
                }
            }
            let skipped = (read.offset - first * SECTOR_BYTES) as usize;
            let (length, lacking, to) = (read.length, parts.len() - before, Some(read.answer));
            answers.push(RefCell::new(Answer { bytes, skipped, length, lacking, to }));
        }
    }
    answers.iter().for_each(|answer| answer.borrow_mut().send_if_whole());
    let fetches = joined(parts, shared.options.gap_bytes, shared.options.joined_bytes);
    let fetch = async |fetch: Fetch| {
        let fetched = fetch_range(shared, fetch.id, fetch.start, fetch.end).await;
        for Part { start, length, read, at, .. } in fetch.parts {
            let mut answer = answers[read].borrow_mut();
            match &fetched {
                Err(error) => answer.fail(error.clone()),
                Ok(_) if answer.to.is_none() => {}
                Ok(body) => {
                    let from = (start - fetch.start) as usize;
                    answer.bytes[at..at + length].copy_from_slice(&body[from..from + length]);
                    answer.lacking -= 1;
                    answer.send_if_whole();
                }
            }
        }
    };
    join_all(fetches.into_iter().map(fetch)).await;
}

/// A range of an object.
async fn fetch_range(shared: &Shared, id: ObjectId, start: u64, end: u64) -> Result<Bytes, Error> {
    let key = id.key();
    let ask = async || {
        let once = async || {
            let body = shared.bucket.get(&key, start..end).await?;
            match body.len() as u64 == end - start {
                true => Ok(body),
                false => Err(BucketError::Unsure("the object came in part".into())),
            }
        };
        let first = Box::pin(once());
        let late = Box::pin(async {
            sleep(shared.options.hedge).await;
            shared.state_mut().counts.hedged += 1;
            once().await
        });
        match select(first, late).await {
            Either::Left((answer, _)) => answer,
            Either::Right((Ok(body), _)) => Ok(body),
            // The first may still be answered.
            Either::Right((Err(_), first)) => first.await,
        }
    };
    let body = requests::ask(&*shared.bucket, &key, shared.options.patience, ask).await?;
    let mut state = shared.state_mut();
    state.counts.gets += 1;
    state.counts.got_bytes += body.len() as u64;
    Ok(body)
}

impl State {
    /// Bytes of an object that is not in the store yet.
    fn in_memory(&self, place: Place, length: usize) -> Option<&[u8]> {
        let from = place.offset as usize;
        match &self.filling {
            Some(filling) if filling.id == place.id => filling.data.get(from..from + length),
            _ => self.unsent.get(&place.id)?.get(from..from + length),
        }
    }
}

/// Reads, until they end or are given up: objects that they may need are not deleted meanwhile.
#[derive(Debug)]
struct Reading<'a> {
    shared: &'a Shared,
    number: u64,
}

impl<'a> Reading<'a> {
    fn begin(shared: &'a Shared) -> Self {
        let mut state = shared.state_mut();
        let number = state.next_read;
        state.next_read += 1;
        state.reads.insert(number);
        Self { shared, number }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.shared.state_mut().reads.remove(&self.number);
        self.shared.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Sequence;

    #[test]
    fn parts_that_are_near_each_other_are_one_request() {
        let part = |object: u64, start: u64, length: usize| {
            let id = ObjectId::of_commit(Sequence(object));
            Part { id, start, length, read: 0, at: 0 }
        };
        let parts = vec![part(2, 0, 8), part(1, 100, 10), part(1, 0, 50), part(1, 55, 5), part(1, 110, 300)];
        let ranges: Vec<(u64, u64, usize)> = joined(parts, 40, 120)
            .into_iter()
            .map(|fetch| (fetch.start, fetch.end, fetch.parts.len()))
            .collect();
        assert_eq!(ranges, [(0, 110, 3), (110, 410, 1), (0, 8, 1)]);
    }
}
