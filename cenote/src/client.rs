//! Talks to the daemon: one connection for a command, the daemon started when none answers.
//!
//! # Which daemon is asked, and which is started
//! There may be two: the machine's, which is root's and answers other users what their role and `zfs allow`
//! let them have, and one of the user's own.
//!
//! - `CENOTE_SOCKET` names the daemon that is asked: on that socket, or where that is another user's, on the
//!   public one beside it. Else root asks the machine's.
//! - Another user asks the own daemon if that has a pool open, else the machine's, whose refusal says so
//!   ("permission denied"). Where both are there and the own one answers, that is said on standard error.
//! - A daemon is started for root, or where `CENOTE_SOCKET` says, by every command that changes something.
//!   For another user it is started only by what brings a pool into it ([`BRINGS_POOLS`]): a tunable, a hook,
//!   a share or a schedule of the own daemon is of no use to a user who meant the machine's.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use futures_util::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame as BodyFrame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use server::api::{
    Action, ApiError, CreatePool, DiscoverPools, FRAME_HEAD_BYTES, FrameKind, ImportPool, ListPools, Listed,
    PoolEntry, Role, Wiped,
};
use server::public;
use tokio::net::UnixStream;

/// How long a daemon may take to listen after it was started.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Actions for which a user other than root gets a daemon of the own.
const BRINGS_POOLS: [&str; 3] = [CreatePool::NAME, ImportPool::NAME, DiscoverPools::NAME];

/// How often it is asked whether to hang up.
const LOOK: Duration = Duration::from_millis(50);

/// A request as it travels: what is done with it is the same for every action, and compiled once.
struct Message {
    action: &'static str,
    role: Role,
    body: Bytes,
}

impl Message {
    fn of<A: Action>(action: &A) -> Result<Self> {
        Ok(Self { action: A::NAME, role: A::DECLARED.role, body: Bytes::from_owner(Wiped::json(action)?) })
    }
}

/// Sends one request and waits for its reply, starting the daemon where none answers.
pub fn call<A: Action>(action: &A) -> Result<A::Reply> {
    reply(&ask(Message::of(action)?)?)
}

fn ask(message: Message) -> Result<Bytes> {
    runtime()?.block_on(async {
        let path = server::socket::default_socket();
        let is_root = rustix::process::geteuid().is_root();
        let starts = may_start(message.action, is_root || is_named());
        // Who only asks is not in need of a daemon of his own.
        let stream = match message.role == Role::Viewer || !starts {
            true => connect_or_read(&path).await?,
            false => match connect(&path).await {
                Ok(own) => {
                    if own.is_some() {
                        tell_of_own(&path, &public_beside(&path), "answers").await;
                    }
                    own
                }
                // It is another user's, and may answer any user beside it.
                Err(error) => match server::socket::connect(&public_beside(&path)).await {
                    Ok(stream) => Some(stream),
                    Err(_) => return Err(error),
                },
            },
        };
        let stream = match stream {
            Some(stream) => stream,
            None if starts => {
                tell_of_own(&path, &public_beside(&path), "is started").await;
                start_daemon(&path).await?
            }
            None => bail!(
                "no daemon runs that you may use, and this command starts none; 'cenote serve', or a pool \
                 that you create or import, starts one of your own"
            ),
        };
        exchange(stream, message).await
    })
}

/// Whether a daemon is started for an action where none answers: always for whom `is_owner` of it, root or
/// who named its socket.
fn may_start(action: &str, is_owner: bool) -> bool {
    is_owner || BRINGS_POOLS.contains(&action)
}

/// Whether the user named the daemon's socket.
fn is_named() -> bool {
    std::env::var_os("CENOTE_SOCKET").is_some()
}

/// The public socket of the daemon that is meant beside the own one.
fn public_beside(own: &Path) -> PathBuf {
    if is_named() { own.with_file_name(public::FILE_NAME) } else { public::of_the_machine() }
}

/// Whether nothing is said about which daemon answers.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Says nothing about which daemon answers, in this process.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Says once that the user's own daemon is used, where the machine's is there too.
async fn tell_of_own(own: &Path, public: &Path, verb: &str) {
    // Sockets side by side are one daemon's.
    let is_other = own.parent() != public.parent() && UnixStream::connect(public).await.is_ok();
    if is_other && !IS_QUIET.swap(true, Ordering::Relaxed) {
        eprintln!(
            "note: your own daemon {verb} ({}), not the machine's, whose pools are others",
            own.display()
        );
    }
}

/// Sends one request to the daemon that listens on `socket`.
pub fn call_at<A: Action>(socket: &Path, action: &A) -> Result<A::Reply> {
    reply(&ask_at(socket, Message::of(action)?)?)
}

fn ask_at(socket: &Path, message: Message) -> Result<Bytes> {
    runtime()?.block_on(async {
        let stream = server::socket::connect(socket).await;
        let stream = stream.with_context(|| format!("no daemon answers on {}", socket.display()))?;
        exchange(stream, message).await
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
            body = exchange(stream, message) => body.map(Some),
            () = stopped => Ok(None),
        }
    })
}

/// Like [`call`], but `None` when no daemon runs: for what makes no sense without one.
pub fn call_running<A: Action>(action: &A) -> Result<Option<A::Reply>> {
    ask_running(Message::of(action)?)?.map(|body| reply(&body)).transpose()
}

fn ask_running(message: Message) -> Result<Option<Bytes>> {
    runtime()?.block_on(async {
        match connect_or_read(&server::socket::default_socket()).await? {
            Some(stream) => exchange(stream, message).await.map(Some),
            None => Ok(None),
        }
    })
}

fn reply<R: DeserializeOwned>(body: &[u8]) -> Result<R> {
    serde_json::from_slice(body).context(OTHER_VERSION)
}

/// Largest line of an answer that lasts or comes in parts, in bytes: it names the devices of one pool, or a
/// few files.
const MAX_LINE_BYTES: usize = 16 << 20;

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
        let Ok(stream) = server::socket::connect(&server::socket::default_socket()).await else {
            return Ok(None);
        };
        let (response, _connection) = send(stream, message).await?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let mut body = response.into_body();
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') && line.len() < MAX_LINE_BYTES {
            let frame = body.frame().await.context("the daemon's answer broke off")?;
            let frame = frame.context("the daemon's answer broke off")?;
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
        let Some(stream) = connect_or_read(&server::socket::default_socket()).await? else { return Ok(None) };
        let (response, _connection) = send(stream, message).await?;
        match response.status().is_success() {
            true => Ok(Some(response.into_body())),
            false => Err(refusal(response).await),
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
        let Some(stream) = connect_or_read(&server::socket::default_socket()).await? else { return Ok(None) };
        let (response, _connection) = send(stream, message).await?;
        take_lines(response, take).await.map(Some)
    })
}

/// Takes an answer line by line.
async fn take_lines(response: Response<Incoming>, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    if !response.status().is_success() {
        return Err(refusal(response).await);
    }
    let mut body = response.into_body();
    let mut waiting = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the daemon's answer broke off")?;
        waiting.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        anyhow::ensure!(waiting.len() < MAX_LINE_BYTES, OTHER_VERSION);
        while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
            take(&waiting[..end])?;
            waiting.drain(..=end);
        }
    }
    Ok(())
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
        let Some(connection) = connect_or_read(&server::socket::default_socket()).await? else {
            return Ok(None);
        };
        let first = futures_util::stream::once(std::future::ready(Ok(BodyFrame::data(message.body))));
        let rest = futures_util::stream::unfold(pieces, async |mut pieces| {
            let piece = pieces.recv().await?;
            Some((piece.map(BodyFrame::data), pieces))
        });
        let body = BodyExt::boxed(StreamBody::new(first.chain(rest)));
        let (response, _connection) = send_body(connection, message.action, body).await?;
        take_lines(response, take).await.map(Some)
    })
}

/// What comes in an answer that is a stream.
#[derive(Debug)]
pub enum Frame<'a, P> {
    /// Bytes of the stream.
    Bytes(&'a [u8]),
    /// What is told beside it.
    Part(P),
    /// Nothing came for a while.
    Nothing,
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
        let Some(stream) = connect_or_read(&server::socket::default_socket()).await? else { return Ok(None) };
        let (response, _connection) = send(stream, message).await?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let mut body = response.into_body();
        let mut unframing = Unframing::new();
        loop {
            let Ok(frame) = tokio::time::timeout(patience, body.frame()).await else {
                take(Frame::Nothing)?;
                continue;
            };
            let Some(frame) = frame else { return Ok(Some(())) };
            let frame = frame.context("the daemon's answer broke off")?;
            unframing.add(frame.data_ref().map_or(&[][..], |data| data), take)?;
        }
    })
}

/// Takes an answer in frames apart. The bytes of the stream are not copied.
#[derive(Debug)]
enum Unframing {
    /// The head of a frame comes, of which this came already.
    Head(Vec<u8>),
    /// So many bytes of the stream come.
    Stream(usize),
    /// A part comes, of which this came already; so many bytes are still to come.
    Part(Vec<u8>, usize),
}

impl Unframing {
    const fn new() -> Self {
        Self::Head(Vec::new())
    }

    fn add(&mut self, mut bytes: &[u8], take: &mut dyn FnMut(Frame<'_, &[u8]>) -> Result<()>) -> Result<()> {
        while !bytes.is_empty() {
            let wanted = match self {
                Self::Head(came) => FRAME_HEAD_BYTES.saturating_sub(came.len()),
                Self::Stream(left) | Self::Part(_, left) => *left,
            };
            let (here, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            let left = wanted - here.len();
            let next = match self {
                Self::Head(came) => {
                    came.extend_from_slice(here);
                    came.first_chunk().map(|head| Self::begun(*head)).transpose()?
                }
                Self::Stream(wanted) => {
                    *wanted = left;
                    take(Frame::Bytes(here))?;
                    (left == 0).then(Self::new)
                }
                Self::Part(came, wanted) => {
                    *wanted = left;
                    came.extend_from_slice(here);
                    if left == 0 {
                        take(Frame::Part(came))?;
                    }
                    (left == 0).then(Self::new)
                }
            };
            if let Some(next) = next {
                *self = next;
            }
        }
        Ok(())
    }

    /// What follows this head.
    fn begun(head: [u8; FRAME_HEAD_BYTES]) -> Result<Self> {
        let (kind, length) = FrameKind::parse(head).context(OTHER_VERSION)?;
        let length = usize::try_from(length).context(OTHER_VERSION)?;
        Ok(match (kind, length) {
            (_, 0) => Self::new(),
            (FrameKind::Stream, length) => Self::Stream(length),
            (FrameKind::Part, length) => Self::Part(Vec::new(), length),
        })
    }
}

/// Connects to the daemon; `None` where none listens. An error if another user owns the socket: no daemon
/// could be started there either.
async fn connect(path: &Path) -> Result<Option<UnixStream>> {
    match server::socket::connect(path).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(error).with_context(|| format!("cannot use the daemon on {}", path.display()))
        }
        Err(_) => Ok(None),
    }
}

/// The same; where that is another user's daemon, one without pools, or none, the socket on which root's
/// daemon answers anyone what all may see. It refuses everything else, with a word about permissions.
async fn connect_or_read(path: &Path) -> Result<Option<UnixStream>> {
    connect_or_else(path, &public_beside(path)).await
}

async fn connect_or_else(path: &Path, public: &Path) -> Result<Option<UnixStream>> {
    let own = connect(path).await;
    // Sockets side by side are one daemon's, which tells its own user more on this one.
    if path.parent() == public.parent() && matches!(own, Ok(Some(_))) {
        return own;
    }
    if let Ok(Some(stream)) = own
        && has_pools(stream).await
    {
        tell_of_own(path, public, "answers").await;
        return connect(path).await;
    }
    match server::socket::connect(public).await {
        Ok(stream) => Ok(Some(stream)),
        Err(_) => connect(path).await,
    }
}

/// Whether the daemon at the other end has a pool open, as far as it says so. A failed command that needed a
/// daemon leaves one that has none.
async fn has_pools(daemon: UnixStream) -> bool {
    let Ok(message) = Message::of(&ListPools::default()) else { return true };
    let pools = exchange(daemon, message).await.and_then(|body| reply::<Listed<PoolEntry>>(&body));
    pools.map_or(true, |listed| !listed.entries.is_empty())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the client's runtime")
}

/// Said of an answer that makes no sense.
pub const OTHER_VERSION: &str = "the daemon's answer is of another version than this command";

async fn exchange(stream: UnixStream, message: Message) -> Result<Bytes> {
    let (response, connection) = send(stream, message).await?;
    if !response.status().is_success() {
        return Err(refusal(response).await);
    }
    let body = response.into_body().collect().await.context("the daemon's answer broke off")?.to_bytes();
    connection.abort();
    Ok(body)
}

/// Why the daemon did not do what was asked.
async fn refusal(response: Response<Incoming>) -> anyhow::Error {
    let status = response.status();
    let body = match response.into_body().collect().await.context("the daemon's answer broke off") {
        Ok(body) => body.to_bytes(),
        Err(error) => return error,
    };
    match serde_json::from_slice::<ApiError>(&body) {
        Ok(error) => error.into(),
        Err(_) => anyhow!("the daemon answered with HTTP status {status}"),
    }
}

type Connection = tokio::task::JoinHandle<hyper::Result<()>>;

async fn send(stream: UnixStream, message: Message) -> Result<(Response<Incoming>, Connection)> {
    let body = BodyExt::boxed(Full::new(message.body).map_err(|never| match never {}));
    send_body(stream, message.action, body).await
}

async fn send_body(
    stream: UnixStream,
    action: &str,
    body: BoxBody<Bytes, std::io::Error>,
) -> Result<(Response<Incoming>, Connection)> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .context("cannot talk to the daemon")?;
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("/v1/{action}"))
        .header("host", "cenote")
        .header("content-type", "application/json")
        .body(body)?;
    let response = sender.send_request(request).await.context("the daemon closed the connection")?;
    Ok((response, connection))
}

async fn start_daemon(socket: &Path) -> Result<UnixStream> {
    let program =
        std::env::current_exe().context("cannot find this program's own file to start the daemon")?;
    let mut command = Command::new(program);
    command.arg("serve").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    {
        use std::os::unix::process::CommandExt;
        // A group of its own: Ctrl-C in the terminal must not reach the daemon.
        command.process_group(0);
    }
    let mut child = command.spawn().context("cannot start the daemon")?;
    let began = Instant::now();
    loop {
        if let Some(stream) = connect(socket).await? {
            return Ok(stream);
        }
        if let Some(status) = child.try_wait()? {
            bail!("the daemon ended at once ({status}); 'cenote serve' in a terminal shows why");
        }
        if began.elapsed() > START_LIMIT {
            bail!("the daemon does not listen on {} after {} s", socket.display(), START_LIMIT.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::future::pending;
    use std::sync::Arc;

    use server::api::{CreatePool, GetAudit, NewDevices, NewLayout, NewVdev};
    use server::audit::AuditLog;
    use server::daemon::Daemon;
    use server::http::ApiSocket;
    use server::public::PublicSocket;

    use super::*;

    #[test]
    fn frames_are_taken_apart_wherever_they_are_cut() {
        let frames = [
            &FrameKind::Stream.head(3)[..],
            b"abc",
            &FrameKind::Part.head(2),
            b"{}",
            &FrameKind::Stream.head(0),
            &FrameKind::Stream.head(1),
            b"d",
        ];
        let all = frames.concat();
        for size in 1..=all.len() {
            let (mut stream, mut parts) = (Vec::new(), Vec::new());
            let mut unframing = Unframing::new();
            for bytes in all.chunks(size) {
                let mut take = |frame: Frame<'_, &[u8]>| {
                    match frame {
                        Frame::Bytes(bytes) => stream.extend_from_slice(bytes),
                        Frame::Part(part) => parts.push(part.to_vec()),
                        Frame::Nothing => {}
                    }
                    Ok(())
                };
                unframing.add(bytes, &mut take).unwrap();
            }
            assert_eq!((&stream[..], &parts[..]), (&b"abcd"[..], &[b"{}".to_vec()][..]), "{size}");
        }
        let refused = Unframing::new().add(&[9; FRAME_HEAD_BYTES], &mut |_| Ok(()));
        assert!(refused.is_err());
    }

    #[test]
    fn only_what_brings_pools_starts_a_daemon_of_a_users_own() {
        use server::api::{AddHook, ClearLabel, InjectFault, LoadKey, SetScrubSchedule, SetTunables};
        assert!(BRINGS_POOLS.iter().all(|action| may_start(action, false)));
        for action in [
            AddHook::NAME,
            ClearLabel::NAME,
            InjectFault::NAME,
            LoadKey::NAME,
            SetScrubSchedule::NAME,
            SetTunables::NAME,
        ] {
            assert!(!may_start(action, false) && may_start(action, true), "{action}");
        }
    }

    #[test]
    fn a_daemon_without_pools_leaves_questions_to_the_machines() {
        let place = tempfile::tempdir().unwrap();
        let (own, machine) = (place.path().join("own/api.sock"), place.path().join("machine/read.sock"));
        runtime().unwrap().block_on(async {
            // Only the own daemon keeps an audit log here.
            let is_own = async || {
                let stream = connect_or_else(&own, &machine).await.unwrap()?;
                let message = Message::of(&GetAudit { count: 1 }).unwrap();
                Some(exchange(stream, message).await.is_ok())
            };
            assert_eq!(is_own().await, None);
            let public = PublicSocket::bind(&machine).await.unwrap();
            tokio::spawn(public::serve(public, Arc::default(), pending()));
            assert_eq!(is_own().await, Some(false), "there is no other");
            let log = AuditLog::new(place.path().join("audit.log"));
            let daemon = Arc::new(Daemon::with_cache(64 << 20).auditing(Some(log)));
            let socket = ApiSocket::bind(&own).await.unwrap();
            tokio::spawn(server::http::serve(socket, Arc::clone(&daemon), pending()));
            assert_eq!(is_own().await, Some(false), "there is one, but without pools");
            let disk = place.path().join("disk");
            File::create(&disk).unwrap().set_len(64 << 20).unwrap();
            let vdev = NewVdev { layout: NewLayout::Single, class: Default::default(), devices: vec![disk] };
            let devices = NewDevices { vdevs: vec![vdev], ..NewDevices::default() };
            let create = CreatePool { name: "tank".into(), devices, no_mount: true, ..CreatePool::default() };
            exchange(connect(&own).await.unwrap().unwrap(), Message::of(&create).unwrap()).await.unwrap();
            assert_eq!(is_own().await, Some(true));
        });
    }
}
