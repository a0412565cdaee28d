//! The bytes of a stream as they come from a client, and receives that are under way.
//!
//! A task of the HTTP server hands over what it reads, a few pieces ahead, and the thread of the receive
//! waits for them. The end of the pool ends both: the stream is then as if it had broken off.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Receives::state` | who receives; for a few lines | taken alone |

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use device::IgnorePoison;
use tokio::sync::{mpsc, watch};

/// Pieces that wait for the receive.
const PIECES_AHEAD: usize = 8;
/// How long receives may take to end.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The stream of a client, for the thread that receives it.
#[derive(Debug)]
pub struct StreamInput {
    pieces: mpsc::Receiver<Bytes>,
    current: Bytes,
    stop: watch::Sender<bool>,
}

/// The other end of it.
#[derive(Debug)]
pub struct StreamSource {
    pieces: Option<mpsc::Sender<Bytes>>,
    stopped: watch::Receiver<bool>,
}

/// Both ends of a stream.
pub fn stream() -> (StreamSource, StreamInput) {
    let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
    let (stop, stopped) = watch::channel(false);
    (StreamSource { pieces: Some(sender), stopped }, StreamInput { pieces, current: Bytes::new(), stop })
}

impl StreamSource {
    /// Hands over the next piece. False when no more is wanted.
    pub async fn send(&mut self, piece: Bytes) -> bool {
        let Some(pieces) = &self.pieces else { return false };
        tokio::select! {
            biased;
            _ = self.stopped.wait_for(|stopped| *stopped) => false,
            sent = pieces.send(piece) => sent.is_ok(),
        }
    }

    /// Lets the receive know that no more comes.
    pub fn close(&mut self) {
        self.pieces = None;
    }

    /// Completes when no more is wanted, because the pool is closed.
    pub async fn stopped(&mut self) {
        let _ = self.stopped.wait_for(|stopped| *stopped).await;
    }
}

impl Read for StreamInput {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let length = into.len().min(self.current.len());
        let piece = self.current.split_to(length);
        into.get_mut(..length).unwrap_or_default().copy_from_slice(&piece);
        Ok(length)
    }
}

/// The receives of one pool that are under way.
#[derive(Debug, Default)]
pub struct Receives {
    state: Mutex<Vec<watch::Sender<bool>>>,
    ended: Condvar,
}

/// A receive that is under way.
#[derive(Debug)]
pub(super) struct Receiving(Arc<Receives>, watch::Sender<bool>);

impl Receives {
    pub(super) fn add(self: &Arc<Self>, input: &StreamInput) -> Receiving {
        self.state.lock().ignore_poison().push(input.stop.clone());
        Receiving(Arc::clone(self), input.stop.clone())
    }

    /// Whether there are any.
    pub(in crate::daemon) fn are_under_way(&self) -> bool {
        !self.state.lock().ignore_poison().is_empty()
    }

    /// Ends all, and waits until they have given up what they began.
    pub(in crate::daemon) fn end(&self) {
        let until = Instant::now() + END_LIMIT;
        let mut state = self.state.lock().ignore_poison();
        while !state.is_empty() {
            for stop in state.iter() {
                stop.send_replace(true);
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else { return };
            state = self.ended.wait_timeout(state, left).ignore_poison().0;
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.state.lock().ignore_poison().retain(|stop| !stop.same_channel(&self.1));
        self.0.ended.notify_all();
    }
}
