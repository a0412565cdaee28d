//! Records of what clients ask of volumes, for `cenote lab record`.
//!
//! A [`Recorder`] belongs to a volume of an open pool; all connections of the volume share it. Without a
//! recording client it costs each request one test of a flag. The recording client asks again and again and
//! gets the requests since its last call. Records that it does not fetch are bounded twice: by their number
//! ([`MOST_NOTES`], beyond which requests are only counted), and by time ([`ABANDONED`]).

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::api::{self, ApiError, Traced, TracedOperation, TracedRequest};
use crate::block::{BlockOperation, BlockRequest, ExportError, Layer};
use crate::daemon::{Daemon, OpenPool, lock};

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
pub(in crate::daemon) type Recorders = Mutex<BTreeMap<String, Arc<Recorder>>>;

#[derive(Debug)]
struct Notes {
    began: Instant,
    looked: Instant,
    taken: Traced,
}

impl Recorder {
    /// Records a request, if a client is recording.
    fn note(&self, operation: TracedOperation, offset: u64, length: u64) {
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

/// Requests are recorded as they come. One that is to be stable is recorded as if a flush came with it, and a
/// copy as what was read and written by it.
impl Layer for Recorder {
    async fn around<T: Send, F>(&self, asked: BlockRequest, request: Pin<&mut F>) -> Result<T, ExportError>
    where
        F: Future<Output = Result<T, ExportError>> + Send,
    {
        let operation = match asked.operation {
            BlockOperation::Read => Some(TracedOperation::Read),
            BlockOperation::Write => Some(TracedOperation::Write),
            BlockOperation::Trim | BlockOperation::WriteZeroes => Some(TracedOperation::Trim),
            BlockOperation::Flush => Some(TracedOperation::Flush),
            BlockOperation::Copy => None,
        };
        if let Some(operation) = operation {
            self.note(operation, asked.offset, asked.len_bytes);
        }
        if asked.is_stable {
            self.note(TracedOperation::Flush, 0, 0);
        }
        request.await
    }

    fn copied(&self, offset: u64, len_bytes: u64) {
        self.note(TracedOperation::Write, offset, len_bytes);
    }

    fn copied_away(&self, offset: u64, len_bytes: u64) {
        self.note(TracedOperation::Read, offset, len_bytes);
    }
}

impl OpenPool {
    /// The recorder of a volume.
    pub(in crate::daemon) fn recorder(&self, volume: &str) -> Arc<Recorder> {
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
    use std::future::ready;
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn as_a_layer_it_records_each_request_as_it_comes() {
        let recorder = Recorder::default();
        recorder.take(false, Instant::now());
        let ask = |operation, is_stable| {
            let asked = BlockRequest { operation, offset: 4096, len_bytes: 512, is_stable };
            recorder.around(asked, pin!(ready(Ok(())))).now_or_never().unwrap().unwrap();
            let taken = recorder.take(false, Instant::now()).requests;
            taken.iter().map(|it| (it.operation, it.offset, it.length)).collect::<Vec<_>>()
        };
        let (flush, bytes) = ((TracedOperation::Flush, 0, 0), |operation| (operation, 4096, 512));
        assert_eq!(ask(BlockOperation::Read, false), [bytes(TracedOperation::Read)]);
        assert_eq!(ask(BlockOperation::Write, true), [bytes(TracedOperation::Write), flush]);
        assert_eq!(ask(BlockOperation::WriteZeroes, false), [bytes(TracedOperation::Trim)]);
        assert_eq!(ask(BlockOperation::Trim, true), [bytes(TracedOperation::Trim), flush]);
        assert_eq!(ask(BlockOperation::Copy, false), [], "it may not be done");
        recorder.copied(0, 8);
        recorder.copied_away(16, 8);
        let taken = recorder.take(true, Instant::now()).requests;
        let copied: Vec<_> = taken.iter().map(|it| (it.operation, it.offset)).collect();
        assert_eq!(copied, [(TracedOperation::Write, 0), (TracedOperation::Read, 16)]);
    }

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
