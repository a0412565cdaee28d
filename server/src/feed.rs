//! Clients of the feed of changes: `GET /v1/events`, as server-sent events.
//!
//! # What a client gets
//! A client that begins gets a *snapshot* of the state, and then each change after it once, in its order. A
//! client that comes back with the id of the last message that it got (`Last-Event-ID`, or `?from=ID`) gets
//! what came after that. Where the daemon does not have all of that any more, it says so: a message *missed*,
//! and a new snapshot behind it. The same is told a client that reads so slowly that changes fall out of the
//! ring before it came to them. An id has the epoch of the daemon's feed, so that ids of a daemon that ended
//! are recognized.
//!
//! Figures (space, progress) come when they moved, at most every [`FIGURES_PAUSE`], and have no id: a client
//! that comes back gets the newest ones when they move again. Every [`HEARTBEAT`] there is a comment, so that
//! what lies between can see that the connection lives; heartbeats of all clients come together.
//!
//! # What a client costs
//! A task with its place in the feed, and [`PIECES_AHEAD`] pieces of text of [`PIECE_BYTES`] or so, whatever
//! changes and however slowly the client reads. A snapshot is shared (`daemon::watch::feed`), and a client
//! that does not take the next piece of it within [`STALL`] is dropped, so that it cannot be kept. A client
//! that goes away is dropped at once: its connection ends, and with it its task.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::events::feed::{Batch, Feed, Reader, What};
use futures_util::future::BoxFuture;
use futures_util::stream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::api::{Action, ApiError, FollowChanges, LAST_EVENT_ID};
use crate::caller::Caller;
use crate::daemon::{Daemon, Seen, told};

/// How often a client is shown that the connection lives.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The least time between two messages with figures to a client.
const FIGURES_PAUSE: Duration = Duration::from_secs(1);
/// Changes in a piece of text.
const MAX_BATCH: usize = 64;
/// Bytes of a piece of a snapshot.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait for their client.
const PIECES_AHEAD: usize = 1;
/// How long a client may take for a piece of a snapshot.
const STALL: Duration = Duration::from_secs(30);

/// The request of a `GET`, as JSON: what the path says, and the header of a client that comes back.
///
/// # Errors
/// It cannot be written as JSON.
pub(crate) fn request(headers: &HeaderMap, asked: FollowChanges) -> Result<Bytes, ApiError> {
    // A browser that comes back says it so, whatever the path says.
    let request = FollowChanges { from: last_of(headers).or(asked.from.clone()), ..asked };
    serde_json::to_vec(&request).map(Bytes::from).map_err(|error| ApiError::failed(error.to_string()))
}

/// The id of the last message that a client got who comes back.
pub(crate) fn last_of(headers: &HeaderMap) -> Option<String> {
    headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()).map(str::to_owned)
}

/// The request of a `POST` of a client that comes back.
///
/// # Errors
/// It is no such request.
pub(crate) fn request_from(body: &[u8], last: Option<String>) -> Result<Bytes, ApiError> {
    let named = |error: serde_json::Error| ApiError::invalid(format!("{}: {error}", FollowChanges::NAME));
    let asked: FollowChanges = serde_json::from_slice(body).map_err(named)?;
    let request = FollowChanges { from: last.or(asked.from.clone()), ..asked };
    serde_json::to_vec(&request).map(Bytes::from).map_err(|error| ApiError::failed(error.to_string()))
}

/// The answer, which lasts until the client goes away.
///
/// # Errors
/// There are too many clients, or the request makes no sense.
pub(crate) fn answer(daemon: Arc<Daemon>, caller: &Caller, body: &[u8]) -> Result<Response, ApiError> {
    let request = daemon.request_by_role::<FollowChanges>(caller, body)?;
    let place = Arc::clone(&daemon.feed_clients().places).try_acquire_owned();
    let place = place.map_err(|_| {
        ApiError::busy("cannot follow changes: too many programs do; try again when some have ended")
    })?;
    let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
    // A client that was answered is told of all that comes from then on.
    let client = Client::new(daemon, sender, request);
    tokio::spawn(async move {
        let _place = place;
        // A client that is gone needs no answer.
        let _gone = client.run().await;
    });
    let pieces = stream::unfold(pieces, async |mut pieces| {
        let piece: Bytes = pieces.recv().await?;
        Some((Ok::<_, Infallible>(piece), pieces))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((StatusCode::OK, headers, Body::from_stream(pieces)).into_response())
}

/// Why a client gets nothing more: it is gone, or all have to end.
#[derive(Debug)]
struct Over;

/// A client, for its task.
struct Client {
    daemon: Arc<Daemon>,
    feed: Arc<Feed>,
    sender: mpsc::Sender<Bytes>,
    ending: watch::Receiver<()>,
    request: FollowChanges,
    reader: Reader,
    seen: Seen,
}

impl Client {
    fn new(daemon: Arc<Daemon>, sender: mpsc::Sender<Bytes>, request: FollowChanges) -> Self {
        let (feed, ending) = (daemon.feed(), daemon.feed_clients().ending());
        let reader = feed.reader(feed.last());
        Self { daemon, feed, sender, ending, request, reader, seen: Seen::default() }
    }

    /// Tells until it is over.
    async fn run(mut self) -> Result<(), Over> {
        match self.request.from.as_ref().map(|id| number_of(&self.feed, id)) {
            Some(Ok(number)) => {
                self.reader.skip_to(number);
                self.send_place().await?;
            }
            Some(Err(why)) => {
                self.send_missed(why).await?;
                self.begin_anew().await?;
            }
            None => self.begin_anew().await?,
        }
        let mut figures: Option<BoxFuture<'static, Result<Bytes, ApiError>>> = None;
        let mut quiet_until = Instant::now();
        let mut heartbeat = self.next_heartbeat();
        loop {
            let is_quiet = figures.is_some() || Instant::now() < quiet_until;
            tokio::select! {
                biased;
                () = self.sender.closed() => return Err(Over),
                _ = self.ending.changed() => return self.end().await,
                looked = async {
                    match &mut figures {
                        Some(looking) => looking.await,
                        None => pending().await,
                    }
                } => {
                    figures = None;
                    quiet_until = Instant::now() + FIGURES_PAUSE;
                    match looked {
                        Ok(text) => self.send(message("figures", None, &text)).await?,
                        Err(error) => tracing::warn!(%error, "figures of pools are not told"),
                    }
                }
                (batch, has_moved) = self.reader.next(MAX_BATCH, !is_quiet) => {
                    if has_moved {
                        let daemon = Arc::clone(&self.daemon);
                        let moves = self.feed.moves();
                        figures = Some(Box::pin(daemon.shared_figures(moves)));
                    }
                    if batch.missed {
                        self.send_missed("too-old").await?;
                    }
                    match batch.missed && !self.request.without_snapshot {
                        true => self.begin_anew().await?,
                        false => self.tell(batch).await?,
                    }
                }
                () = sleep_until(quiet_until), if is_quiet && figures.is_none() => {}
                () = sleep_until(heartbeat) => {
                    heartbeat = self.next_heartbeat();
                    self.send(Bytes::from_static(b":\n\n")).await?;
                }
            }
        }
    }

    fn next_heartbeat(&self) -> Instant {
        let began = self.daemon.feed_clients().began;
        let beats = began.elapsed().as_secs() / HEARTBEAT.as_secs() + 1;
        Instant::from_std(began + HEARTBEAT * u32::try_from(beats).unwrap_or(u32::MAX))
    }

    async fn send_missed(&mut self, why: &str) -> Result<(), Over> {
        self.send(message("missed", None, format!("{{\"why\":\"{why}\"}}").as_bytes())).await
    }

    /// A snapshot, from which on the client is told of changes.
    async fn begin_anew(&mut self) -> Result<(), Over> {
        if self.request.without_snapshot {
            return self.send_place().await;
        }
        let snapshot = match self.daemon.shared_snapshot(self.sender.closed()).await {
            Ok(Some(snapshot)) => snapshot,
            Ok(None) => return Err(Over),
            Err(error) => {
                tracing::warn!(%error, "a client of the feed gets no snapshot");
                return Err(Over);
            }
        };
        let id = id_of(&self.feed, snapshot.number);
        let head = Bytes::from(format!("event: snapshot\nid: {id}\ndata: "));
        let mut text = snapshot.text.clone();
        self.reader.skip_to(snapshot.number);
        self.seen = snapshot.seen.clone();
        self.send(head).await?;
        while !text.is_empty() {
            let piece = text.split_to(text.len().min(PIECE_BYTES));
            let sent = timeout(STALL, self.send(piece)).await;
            sent.map_err(|_| Over)??;
        }
        // Not before: as long as one client has it, those that come get the same.
        drop(snapshot);
        self.send(Bytes::from_static(b"\n\n")).await
    }

    /// The id of the last message that the client needs no more.
    async fn send_place(&mut self) -> Result<(), Over> {
        self.send(format!("id: {}\n\n", id_of(&self.feed, self.reader.last())).into()).await
    }

    async fn tell(&mut self, batch: Batch) -> Result<(), Over> {
        let mut text = Vec::new();
        let mut left_out = None;
        for (number, change) in batch.changes {
            left_out = Some(number);
            if self.seen.has(&change) || self.request.without_events && matches!(change.what, What::Event(_))
            {
                continue;
            }
            match told(&change) {
                Ok((name, data)) => {
                    text.extend_from_slice(&message(name, Some(&id_of(&self.feed, number)), &data));
                    left_out = None;
                }
                Err(error) => tracing::error!(%error, "a change cannot be told"),
            }
        }
        if let Some(number) = left_out {
            // The client comes back with the number of the last one, whether it was told or not.
            text.extend_from_slice(format!("id: {}\n\n", id_of(&self.feed, number)).as_bytes());
        }
        match text.is_empty() {
            true => Ok(()),
            false => self.send(text.into()).await,
        }
    }

    /// Waits until the client takes it.
    async fn send(&mut self, piece: Bytes) -> Result<(), Over> {
        tokio::select! {
            biased;
            sent = self.sender.send(piece) => sent.map_err(|_| Over),
            _ = self.ending.changed() => Err(Over),
        }
    }

    /// The last word.
    async fn end(&mut self) -> Result<(), Over> {
        let text = message("end", None, b"{\"message\":\"the daemon ends\"}");
        // A client that does not read is not waited for.
        self.sender.try_send(text).map_err(|_| Over)
    }
}

/// A server-sent event. JSON has no line breaks.
fn message(name: &str, id: Option<&str>, data: &[u8]) -> Bytes {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    let head = format!("event: {name}\n{id}data: ");
    [head.as_bytes(), data, b"\n\n"].concat().into()
}

fn id_of(feed: &Feed, number: u64) -> String {
    format!("{:x}-{number}", feed.epoch())
}

/// The number of the change after which a client goes on, or why it cannot.
fn number_of(feed: &Feed, id: &str) -> Result<u64, &'static str> {
    let parts = id.split_once('-');
    let parsed = parts.and_then(|(epoch, number)| {
        Some((u64::from_str_radix(epoch, 16).ok()?, number.parse::<u64>().ok()?))
    });
    match parsed {
        Some((epoch, number)) if epoch == feed.epoch() => match feed.after(number, 0).missed {
            true => Err("too-old"),
            false => Ok(number),
        },
        _ => Err("restarted"),
    }
}
