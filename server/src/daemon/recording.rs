//! Records of what clients ask of volumes, for `cenote lab record`.
//!
//! A [`Recorder`] belongs to a volume of an open pool; all connections of the volume share it. Without a
//! recording client it costs each request one test of a flag. The recording client asks again and again and
//! gets the requests since its last call. Records that it does not fetch are bounded twice: by their number
//! ([`MOST_NOTES`], beyond which requests are only counted), and by time ([`ABANDONED`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Daemon, OpenPool, lock};
use crate::api::{self, ApiError, Traced, TracedOperation, TracedRequest};

/// Requests that are kept until the client fetches them: 24 MiB.
const MOST_NOTES: usize = 1 << 20;
/// After this time without a look the recording ends.
const ABANDONED: Duration = Duration::from_secs(10);

/// Notes what is asked of one volume.
#[derive(Debug, Default)]
pub struct Recorder {
    is_on: AtomicBool,
    notes: Mutex<Option<Notes>>,
}

/// The recorders of a pool, by volume.
pub(super) type Recorders = Mutex<BTreeMap<String, Arc<Recorder>>>;

#[derive(Debug)]
struct Notes {
    began: Instant,
    looked: Instant,
    taken: Traced,
}

impl Recorder {
    /// Records a request, if a client is recording.
    pub fn note(&self, operation: TracedOperation, offset: u64, length: u64) {
        // Which requests are the first and the last is of no weight, so nothing need be ordered by this.
        if self.is_on.load(Ordering::Relaxed) {
            self.keep(operation, offset, length, Instant::now());
        }
    }

    #[cold]
    fn keep(&self, operation: TracedOperation, offset: u64, length: u64, now: Instant) {
        let mut notes = lock(&self.notes);
        if notes.as_ref().is_some_and(|notes| now.saturating_duration_since(notes.looked) > ABANDONED) {
            self.is_on.store(false, Ordering::Relaxed);
            *notes = None;
        }
        let Some(notes) = notes.as_mut() else { return };
        if notes.taken.requests.len() >= MOST_NOTES {
            notes.taken.lost += 1;
            return;
        }
        let since = now.saturating_duration_since(notes.began);
        let at_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        notes.taken.requests.push(TracedRequest { at_us, operation, offset, length });
    }

    /// The records since the last call; the first call starts recording.
    fn take(&self, stop: bool, now: Instant) -> Traced {
        let mut notes = lock(&self.notes);
        let taken = notes.as_mut().map(|notes| {
            notes.looked = now;
            std::mem::take(&mut notes.taken)
        });
        if stop {
            *notes = None;
        } else if notes.is_none() {
            *notes = Some(Notes { began: now, looked: now, taken: Traced::default() });
        }
        self.is_on.store(!stop, Ordering::Relaxed);
        taken.unwrap_or_default()
    }
}

impl OpenPool {
    /// The recorder of a volume.
    pub(super) fn recorder(&self, volume: &str) -> Arc<Recorder> {
        Arc::clone(lock(&self.recorders).entry(volume.to_owned()).or_default())
    }
}

impl Daemon {
    /// The requests of a volume's clients since the last such call.
    ///
    /// # Errors
    /// When there is no such volume.
    pub fn take_trace(&self, request: api::TakeTrace) -> Result<Traced, ApiError> {
        let pool = self.pool_of(&request.volume)?;
        if pool.volumes().get(&request.volume).is_none() {
            return Err(ApiError::not_found(format!("there is no volume '{}'", request.volume)));
        }
        Ok(pool.recorder(&request.volume).take(request.stop, Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_while_somebody_records_is_noted() {
        let recorder = Recorder::default();
        recorder.note(TracedOperation::Read, 0, 1);
        assert_eq!(recorder.take(false, Instant::now()), Traced::default());
        recorder.note(TracedOperation::Write, 4096, 8192);
        recorder.note(TracedOperation::Flush, 0, 0);
        let taken = recorder.take(false, Instant::now());
        let operations: Vec<_> =
            taken.requests.iter().map(|it| (it.operation, it.offset, it.length)).collect();
        assert_eq!(operations, [(TracedOperation::Write, 4096, 8192), (TracedOperation::Flush, 0, 0)]);
        recorder.note(TracedOperation::Trim, 0, 512);
        assert_eq!(recorder.take(true, Instant::now()).requests.len(), 1);
        recorder.note(TracedOperation::Read, 0, 1);
        assert_eq!(recorder.take(false, Instant::now()), Traced::default());
    }

    #[test]
    fn notes_are_bounded_and_do_not_outlive_who_wanted_them() {
        let recorder = Recorder::default();
        let began = Instant::now();
        recorder.take(false, began);
        for _ in 0..MOST_NOTES + 3 {
            recorder.keep(TracedOperation::Read, 0, 1, began);
        }
        let taken = recorder.take(false, began);
        assert_eq!((taken.requests.len(), taken.lost), (MOST_NOTES, 3));
        recorder.keep(TracedOperation::Read, 0, 1, began + ABANDONED);
        recorder.keep(TracedOperation::Read, 0, 1, began + ABANDONED * 2);
        assert!(!recorder.is_on.load(Ordering::Relaxed));
        assert_eq!(recorder.take(false, began + ABANDONED * 3), Traced::default());
    }
}
