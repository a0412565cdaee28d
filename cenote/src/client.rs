//! Talks to a daemon: one connection for a command. A daemon of this machine is started when none answers;
//! that of another machine (`--remote`) is asked over TLS with a token, and nothing is started.
//!
//! # Which daemon is asked, and which is started
//! There may be two: the machine's, which is root's and answers other users what their role and `zfs allow`
//! let them have, and one of the user's own.
//!
//! - `--remote` and `CENOTE_REMOTE` name the daemon of another machine ([`crate::remotes`]). Then no other
//!   one is asked, whatever comes of that, and what only programs of its own machine may ask for is refused.
//! - `CENOTE_SOCKET` names the daemon that is asked: on that socket, or where that is another user's, on the
//!   public one beside it. Else root asks the machine's.
//! - Another user asks the own daemon if that has a pool open, else the machine's, whose refusal says so
//!   ("permission denied"). Where both are there and the own one answers, that is said on standard error.
//! - A daemon is started for root, or where `CENOTE_SOCKET` says, by every command that changes something.
//!   For another user it is started only by what brings a pool into it (`BRINGS_POOLS`): a tunable, a hook,
//!   a share or a schedule of the own daemon is of no use to a user who meant the machine's.
//!
//! | module | what it owns |
//! |---|---|
//! | `local` | which daemon of this machine is asked, and which is started |
//! | `wire` | a connection, here or afar, and one request on it; what is said of one that broke off |
//! | `frames` | answers that come in pieces |

mod frames;
mod local;
mod wire;

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame as BodyFrame, Incoming};
use serde::de::DeserializeOwned;
use server::api::{Action, Effects, Role, Wiped};
use server::outgoing::{self, Address, Presented};
use tokio::net::UnixStream;

use crate::remotes::{self, Remote};
pub use frames::Frame;
use frames::{MAX_LINE_BYTES, Unframing, take_lines};
use wire::{CONNECT_LIMIT, Wire, exchange, refusal, send, send_body};

/// How often it is asked whether to hang up.
const LOOK: Duration = Duration::from_millis(50);
/// How long another machine may take where a user waits for a word to be completed.
const QUIET_LIMIT: Duration = Duration::from_secs(3);

/// A request as it travels: what is done with it is the same for every action, and compiled once.
struct Message {
    action: &'static str,
    role: Role,
    changes: bool,
    is_local: bool,
    body: Bytes,
}

impl Message {
    fn of<A: Action>(action: &A) -> Result<Self> {
        Ok(Self {
            action: A::NAME,
            role: A::DECLARED.role,
            changes: A::DECLARED.effects != Effects::NONE,
            is_local: A::DECLARED.is_local,
            body: Bytes::from_owner(Wiped::json(action)?),
        })
    }
}

/// Sends one request and waits for its reply, starting the daemon where none answers.
pub fn call<A: Action>(action: &A) -> Result<A::Reply> {
    reply(&ask(Message::of(action)?)?)
}

fn ask(message: Message) -> Result<Bytes> {
    runtime()?.block_on(async {
        let wire = match afar(&message).await? {
            Some(wire) => wire,
            None => Wire::Here(local::open(&message).await?),
        };
        exchange(wire, message).await
    })
}

/// Sends one request to the daemon of this machine elsewhere.
pub fn call_to<A: Action>(remote: Remote, action: &A) -> Result<A::Reply> {
    reply(&ask_of(remote, Message::of(action)?)?)
}

fn ask_of(remote: Remote, message: Message) -> Result<Bytes> {
    runtime()?.block_on(async { exchange(Wire::to(remote).await?, message).await })
}

/// The certificate that a server shows, whether it is trusted or not.
pub fn certificate_of(server: &Address) -> Result<Presented> {
    let looked = runtime()?.block_on(outgoing::look(server, CONNECT_LIMIT));
    looked.with_context(|| format!("cannot reach {}", server.host_and_port()))
}

/// A connection to the daemon of another machine, if one is meant.
async fn afar(message: &Message) -> Result<Option<Wire>> {
    let Some(remote) = remotes::chosen()? else { return Ok(None) };
    if message.is_local {
        bail!(
            "{} answers this to programs of its own machine only ({}): run the command there",
            remote.label(),
            message.action
        );
    }
    Wire::to(remote).await.map(Some)
}

/// A connection to the daemon that answers questions; `None` where none runs that this user may ask.
async fn running(message: &Message) -> Result<Option<Wire>> {
    match afar(message).await? {
        Some(wire) => Ok(Some(wire)),
        None => Ok(local::running().await?.map(Wire::Here)),
    }
}

/// Whether nothing is said about which daemon answers.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Says nothing about which daemon answers, in this process.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Sends one request to the daemon that listens on `socket`.
pub fn call_at<A: Action>(socket: &Path, action: &A) -> Result<A::Reply> {
    reply(&ask_at(socket, Message::of(action)?)?)
}

fn ask_at(socket: &Path, message: Message) -> Result<Bytes> {
    runtime()?.block_on(async {
        let stream = server::socket::connect(socket).await;
        let stream = stream.with_context(|| format!("no daemon answers on {}", socket.display()))?;
        exchange(Wire::Here(stream), message).await
    })
}

/// Like [`call_at`], but hangs up when `stops` says so, which is asked again and again: `None` then.
pub fn call_at_unless<A: Action>(
    socket: &Path,
    action: &A,
    stops: &dyn Fn() -> bool,
) -> Result<Option<A::Reply>> {
    ask_at_unless(socket, Message::of(action)?, stops)?.map(|body| reply(&body)).transpose()
}

fn ask_at_unless(socket: &Path, message: Message, stops: &dyn Fn() -> bool) -> Result<Option<Bytes>> {
    let stopped = async {
        while !stops() {
            tokio::time::sleep(LOOK).await;
        }
    };
    runtime()?.block_on(async {
        let stream = UnixStream::connect(socket).await;
        let stream = stream.with_context(|| format!("nothing listens on {}", socket.display()))?;
        tokio::select! {
            body = exchange(Wire::Here(stream), message) => body.map(Some),
            () = stopped => Ok(None),
        }
    })
}

/// Like [`call`], but `None` when no daemon runs: for what makes no sense without one.
pub fn call_running<A: Action>(action: &A) -> Result<Option<A::Reply>> {
    ask_running(Message::of(action)?)?.map(|body| reply(&body)).transpose()
}

fn ask_running(message: Message) -> Result<Option<Bytes>> {
    let asking = async {
        match running(&message).await? {
            Some(wire) => exchange(wire, message).await.map(Some),
            None => Ok(None),
        }
    };
    let is_hurried = IS_QUIET.load(Ordering::Relaxed) && remotes::is_afar();
    runtime()?.block_on(async {
        match is_hurried {
            true => tokio::time::timeout(QUIET_LIMIT, asking).await.context("no answer in time")?,
            false => asking.await,
        }
    })
}

fn reply<R: DeserializeOwned>(body: &[u8]) -> Result<R> {
    serde_json::from_slice(body).context(OTHER_VERSION)
}

/// A request whose answer lasts: the daemon keeps what it gave until this is dropped.
#[derive(Debug)]
pub struct Lasting<R> {
    /// The daemon's answer.
    pub told: R,
    body: Incoming,
    // Nothing runs on it any more; the connection is open as long as it is there.
    runtime: tokio::runtime::Runtime,
}

impl<R> Lasting<R> {
    /// Whether the daemon ended the answer.
    pub fn has_ended(&mut self) -> bool {
        let body = &mut self.body;
        self.runtime.block_on(async { tokio::time::timeout(LOOK, body.frame()).await.is_ok() })
    }
}

/// Sends a request whose answer lasts, of which the first line is read. `None` when no daemon runs that this
/// user may ask.
pub fn call_lasting<A: Action>(action: &A) -> Result<Option<Lasting<A::Reply>>> {
    let Some((line, body, runtime)) = ask_lasting(Message::of(action)?)? else { return Ok(None) };
    Ok(Some(Lasting { told: reply(&line)?, body, runtime }))
}

fn ask_lasting(message: Message) -> Result<Option<(Vec<u8>, Incoming, tokio::runtime::Runtime)>> {
    let runtime = runtime()?;
    let answered = runtime.block_on(async {
        let wire = match afar(&message).await? {
            Some(wire) => wire,
            None => match server::socket::connect(&server::socket::default_socket()).await {
                Ok(stream) => Wire::Here(stream),
                Err(_) => return Ok(None),
            },
        };
        let (response, asked, _connection) = send(wire, message).await?;
        if !response.status().is_success() {
            return Err(refusal(response, &asked).await);
        }
        let mut body = response.into_body();
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') && line.len() < MAX_LINE_BYTES {
            let frame = body.frame().await.context("the daemon's answer broke off")?;
            let frame = frame.map_err(|error| asked.broke_off(error))?;
            line.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
        Ok(Some((line, body)))
    })?;
    Ok(answered.map(|(line, body)| (line, body, runtime)))
}

/// An answer that lasts, as it comes.
#[derive(Debug)]
pub struct Followed {
    /// What drives the connection, which is open as long as this is there.
    pub runtime: tokio::runtime::Runtime,
    /// The answer.
    pub body: Incoming,
}

/// Sends a request whose answer is taken as it comes. `None` when no daemon runs that this user may ask.
pub fn follow<A: Action>(action: &A) -> Result<Option<Followed>> {
    let (runtime, message) = (runtime()?, Message::of(action)?);
    let answered = runtime.block_on(async {
        let Some(wire) = running(&message).await? else { return Ok(None) };
        let (response, asked, _connection) = send(wire, message).await?;
        match response.status().is_success() {
            true => Ok(Some(response.into_body())),
            false => Err(refusal(response, &asked).await),
        }
    })?;
    Ok(answered.map(|body| Followed { runtime, body }))
}

/// Sends a request whose answer comes in parts, a line for each, and takes them as they come. `None` when no
/// daemon runs that this user may ask.
pub fn call_in_parts<A: Action>(
    action: &A,
    mut take: impl FnMut(A::Reply) -> Result<()>,
) -> Result<Option<()>> {
    ask_in_parts(Message::of(action)?, &mut |line| take(reply(line)?))
}

fn ask_in_parts(message: Message, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Option<()>> {
    runtime()?.block_on(async {
        let Some(wire) = running(&message).await? else { return Ok(None) };
        let (response, asked, _connection) = send(wire, message).await?;
        take_lines(response, &asked, take).await.map(Some)
    })
}

/// Pieces of a stream that wait to be sent.
const PIECES_AHEAD: usize = 4;
/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;

/// Sends a request with a stream behind it, and takes the parts of the answer as they come. The stream is
/// read until it or the answer ends. `None` when no daemon runs that this user may ask.
pub fn call_with_stream<A: Action>(
    action: &A,
    stream: impl Read + Send + 'static,
    mut take: impl FnMut(A::Reply) -> Result<()>,
) -> Result<Option<()>> {
    let mut message = Message::of(action)?;
    let mut line = Wiped::default();
    line.extend(&message.body);
    line.extend(b"\n");
    message.body = Bytes::from_owner(line);
    ask_with_stream(message, Box::new(stream), &mut |line| take(reply(line)?))
}

fn ask_with_stream(
    message: Message,
    mut stream: Box<dyn Read + Send>,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Option<()>> {
    let (sender, pieces) = tokio::sync::mpsc::channel::<std::io::Result<Bytes>>(PIECES_AHEAD);
    // It may wait for the stream for ever, and ends with this process.
    std::thread::spawn(move || {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let read = match stream.read(&mut piece) {
                Ok(0) => return,
                Ok(length) => {
                    piece.truncate(length);
                    Ok(Bytes::from(piece))
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            if sender.blocking_send(read).is_err() {
                return;
            }
        }
    });
    runtime()?.block_on(async {
        let Some(wire) = running(&message).await? else { return Ok(None) };
        let first = futures_util::stream::once(std::future::ready(Ok(BodyFrame::data(message.body.clone()))));
        let rest = futures_util::stream::unfold(pieces, async |mut pieces| {
            let piece = pieces.recv().await?;
            Some((piece.map(BodyFrame::data), pieces))
        });
        let body = BodyExt::boxed(StreamBody::new(first.chain(rest)));
        let (_, response, asked, _connection) = send_body(wire, &message, body).await?;
        take_lines(response, &asked, take).await.map(Some)
    })
}

/// Sends a request whose answer is a stream in frames, and takes them as they come, or [`Frame::Nothing`]
/// when none came for `patience`. `None` when no daemon runs that this user may ask.
pub fn call_in_frames<A: Action>(
    action: &A,
    patience: Duration,
    mut take: impl FnMut(Frame<'_, A::Reply>) -> Result<()>,
) -> Result<Option<()>> {
    ask_in_frames(Message::of(action)?, patience, &mut |frame| match frame {
        Frame::Bytes(bytes) => take(Frame::Bytes(bytes)),
        Frame::Part(part) => take(Frame::Part(reply(part)?)),
        Frame::Nothing => take(Frame::Nothing),
    })
}

fn ask_in_frames(
    message: Message,
    patience: Duration,
    take: &mut dyn FnMut(Frame<'_, &[u8]>) -> Result<()>,
) -> Result<Option<()>> {
    runtime()?.block_on(async {
        let Some(wire) = running(&message).await? else { return Ok(None) };
        let (response, asked, _connection) = send(wire, message).await?;
        if !response.status().is_success() {
            return Err(refusal(response, &asked).await);
        }
        let mut body = response.into_body();
        let mut unframing = Unframing::new();
        loop {
            let Ok(frame) = tokio::time::timeout(patience, body.frame()).await else {
                take(Frame::Nothing)?;
                continue;
            };
            let Some(frame) = frame else { return Ok(Some(())) };
            let frame = frame.map_err(|error| asked.broke_off(error))?;
            unframing.add(frame.data_ref().map_or(&[][..], |data| data), take)?;
        }
    })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the client's runtime")
}

/// Said of an answer that makes no sense.
pub const OTHER_VERSION: &str = "the daemon's answer is of another version than this command";
