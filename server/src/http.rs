//! The HTTP API on a Unix socket.
//!
//! One route, `POST /v1/{action}`: how an action is answered follows from its declaration, and what a caller
//! may ask for from its role ([`crate::caller`]). `GET /v1/events` is the action `follow` for browsers and
//! `curl`. The same router answers on the socket for any user ([`crate::public`]). This socket's mode (0600)
//! decides which processes may connect, and the peer's credentials are checked again: the daemon's own user
//! and root. Bodies are bounded. A request that is dropped midway changes nothing that its action had not
//! finished.

use std::convert::Infallible;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use axum::RequestExt;
use axum::body::{Body, Bytes};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path as UrlPath, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::{IncomingStream, Listener};
use futures_util::future::ready;
use futures_util::{StreamExt, stream};
use http_body_util::LengthLimitError;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinError;

use crate::api::{self, Action, ApiError, FollowChanges, Form, ReceivePart, ReceiveStream, Wiped};
use crate::caller::Caller;
use crate::daemon::{self, Daemon, FileComparison, Sending};
use crate::feed;
use crate::gate::Gate;
use crate::socket::{self, Inherited, SocketFile};

/// Parts of an answer that wait for their client.
const PARTS_AHEAD: usize = 4;
/// Frames of a stream that wait for their client, or pairs of them.
const FRAMES_AHEAD: usize = 8;
/// Largest request body, in bytes: an action's arguments, never data.
const MAX_BODY_BYTES: usize = 1 << 20;

/// A listening socket that accepts only the daemon's own user and root, and removes its file when dropped.
#[derive(Debug)]
pub struct ApiSocket {
    listener: UnixListener,
    file: SocketFile,
    /// Holds callers back.
    gate: Gate,
}

impl ApiSocket {
    /// Listens on `path`, see [`socket::listen`].
    ///
    /// # Errors
    /// Another daemon answers there, or the system refuses.
    pub async fn bind(path: &Path) -> std::io::Result<Self> {
        Self::bind_with(path, &mut Inherited::default()).await
    }

    /// The same on a socket that listens already, where there is one.
    ///
    /// # Errors
    /// As those of [`ApiSocket::bind`].
    pub async fn bind_with(path: &Path, inherited: &mut Inherited) -> std::io::Result<Self> {
        let (listener, file) = inherited.listen(path).await?;
        Ok(Self { listener, file, gate: Gate::default() })
    }
}

impl Listener for ApiSocket {
    type Io = UnixStream;
    type Addr = Caller;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.gate.while_open(self.listener.accept()).await {
                Ok((stream, _)) => match Caller::of(&stream) {
                    Ok(caller) if socket::is_trusted(&stream) => return (stream, caller),
                    _ => tracing::warn!("refused an API connection of another user"),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an API connection");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(Caller::own())
    }
}

impl Connected<IncomingStream<'_, ApiSocket>> for Caller {
    fn connect_info(stream: IncomingStream<'_, ApiSocket>) -> Self {
        stream.remote_addr().clone()
    }
}

/// Answers requests until `stop` completes.
pub async fn serve(
    mut socket: ApiSocket,
    daemon: Arc<Daemon>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    socket.gate = daemon.requests_gate().clone();
    daemon.has_socket_at(&socket.listener, socket.file.path());
    daemon.answers_at(socket.file.path());
    let ending = Arc::clone(&daemon);
    let router = router(daemon, MAX_BODY_BYTES);
    // Connections whose answers last would be waited for.
    let stop = async move {
        stop.await;
        ending.end_lasting_answers();
    };
    let service = router.into_make_service_with_connect_info::<Caller>();
    axum::serve(socket, service).with_graceful_shutdown(stop).await
}

/// What answers on the sockets of the API. Callers are known by their connections.
pub(crate) fn router(daemon: Arc<Daemon>, max_body_bytes: usize) -> axum::Router {
    axum::Router::new()
        .route("/v1/{action}", post(act).get(follow))
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .with_state(daemon)
}

/// One line of JSON, and nothing more until the pool is closed. The client that goes away drops the view with
/// the answer.
fn hold_view(daemon: &Daemon, caller: &Caller, body: &[u8]) -> Result<Response, ApiError> {
    let (told, lent) = daemon::dispatch_view(daemon, caller, body)?;
    let mut line = serde_json::to_vec(&told).map_err(|error| ApiError::failed(error.to_string()))?;
    line.push(b'\n');
    let first = stream::once(ready(Ok::<_, Infallible>(Bytes::from(line))));
    let held = stream::once(async move {
        lent.ended().await;
        Ok(Bytes::new())
    });
    let body = Body::from_stream(first.chain(held));
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// A line of JSON for each part. The comparison goes as fast as its client reads, and ends when the client
/// goes away, or with the state that it reads.
async fn compare_files(
    daemon: Arc<Daemon>,
    caller: Caller,
    body: Bytes,
) -> Result<Result<Response, ApiError>, JoinError> {
    let begin = move || daemon::dispatch_comparison(&daemon, &caller, &body);
    let begun = tokio::task::spawn_blocking(begin).await?;
    let comparison = match begun {
        Ok(comparison) => comparison,
        Err(error) => return Ok(Err(error)),
    };
    let lent = Arc::clone(comparison.lent());
    let (sender, receiver) = mpsc::channel(PARTS_AHEAD);
    tokio::task::spawn_blocking(move || {
        comparison.run(|part| sender.blocking_send(part).is_ok());
    });
    let parts = stream::unfold(Some((receiver, lent)), async |state| {
        let (mut receiver, lent) = state?;
        tokio::select! {
            biased;
            () = lent.ended() => Some((FileComparison::taken_back(), None)),
            part = receiver.recv() => Some((part?, Some((receiver, lent)))),
        }
    });
    let lines = parts.map(|part| {
        let mut line = serde_json::to_vec(&part)?;
        line.push(b'\n');
        Ok::<_, serde_json::Error>(line)
    });
    let body = Body::from_stream(lines);
    Ok(Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body).into_response()))
}

/// A line of JSON for each part, as JSON.
fn lines(parts: mpsc::Receiver<ReceivePart>) -> Body {
    let lines = stream::unfold(parts, async |mut parts| {
        let part = parts.recv().await?;
        Some((part, parts))
    });
    Body::from_stream(lines.map(|part| {
        let mut line = serde_json::to_vec(&part)?;
        line.push(b'\n');
        Ok::<_, serde_json::Error>(line)
    }))
}

/// Receives the stream in the body of a request, behind a line of JSON. The answer begins at once and lasts
/// until the stream was received. A stream of which no more is wanted is read on and dropped, until the
/// client has taken the answer and goes away: an answer to a client that is writing could be lost.
async fn receive_stream(daemon: Arc<Daemon>, caller: Caller, body: Body) -> Response {
    let mut body = body.into_data_stream();
    let mut line = Vec::new();
    let rest = loop {
        match body.next().await {
            Some(Ok(piece)) => match piece.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    line.extend_from_slice(&piece[..end]);
                    break piece.slice(end + 1..);
                }
                None => line.extend_from_slice(&piece),
            },
            Some(Err(_)) | None => break Bytes::new(),
        }
        if line.len() > MAX_BODY_BYTES {
            return refusal(&ApiError::invalid(format!("{}: the request is too long", ReceiveStream::NAME)));
        }
    };
    let (mut source, input) = daemon::stream_of_client();
    tokio::spawn(async move {
        let mut wanted = source.send(rest).await;
        loop {
            let piece = tokio::select! {
                biased;
                () = source.stopped(), if wanted => {
                    wanted = false;
                    source.close();
                    continue;
                }
                piece = body.next() => piece,
            };
            match piece {
                Some(Ok(piece)) if wanted => wanted = source.send(piece).await,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            }
            if !wanted {
                source.close();
            }
        }
    });
    let (sender, parts) = mpsc::channel(PARTS_AHEAD);
    tokio::task::spawn_blocking(move || {
        daemon::dispatch_receive(&daemon, &caller, &line, input, |part| sender.blocking_send(part).is_ok());
    });
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], lines(parts)).into_response()
}

/// Frames of a stream. It goes as fast as its client reads, and ends when the client goes away, or with the
/// state that it reads.
async fn send(
    daemon: Arc<Daemon>,
    caller: Caller,
    body: Bytes,
) -> Result<Result<Response, ApiError>, JoinError> {
    let begin = move || daemon::dispatch_send(&daemon, &caller, &body);
    let begun = tokio::task::spawn_blocking(begin).await?;
    let sending = match begun {
        Ok(sending) => sending,
        Err(error) => return Ok(Err(error)),
    };
    let lent = Arc::clone(sending.lent());
    let (sender, receiver) = mpsc::channel::<Vec<Bytes>>(FRAMES_AHEAD);
    tokio::task::spawn_blocking(move || sending.run(|frames| sender.blocking_send(frames).is_ok()));
    let frames = stream::unfold(Some((receiver, lent)), async |state| {
        let (mut receiver, lent) = state?;
        tokio::select! {
            biased;
            () = lent.ended() => Some((vec![Sending::taken_back()], None)),
            frames = receiver.recv() => Some((frames?, Some((receiver, lent)))),
        }
    });
    let bytes = frames.flat_map(|frames| stream::iter(frames.into_iter().map(Ok::<_, Infallible>)));
    let body = Body::from_stream(bytes);
    Ok(Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/octet-stream")], body).into_response()))
}

/// Does what a caller asks for, in the form that the action declares. A request whose body is not a stream is
/// read whole first.
async fn act(
    State(daemon): State<Arc<Daemon>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    UrlPath(action): UrlPath<String>,
    request: Request,
) -> Response {
    act_for(daemon, caller, action, request).await
}

/// Does what this caller asks for.
pub(crate) async fn act_for(
    daemon: Arc<Daemon>,
    caller: Caller,
    action: String,
    request: Request,
) -> Response {
    let form = daemon::known(&action).map(|known| known.declared.form);
    // Nothing was begun, so that it can be asked of the next daemon.
    if daemon.requests_gate().is_closed() {
        return ask_again();
    }
    if form.as_ref().is_ok_and(|form| *form == Form::StreamIn) {
        return receive_stream(daemon, caller, request.into_body()).await;
    }
    let last = feed::last_of(request.headers());
    let mut kept = Kept(Vec::new());
    match kept.read(request).await {
        // A client that comes back to the feed says where it was as browsers do.
        Ok(body) if last.is_some() && matches!(form, Ok(Form::ServerSentEvents)) => {
            match feed::request_from(&body, last) {
                Ok(body) => answer(daemon, caller, action, body).await,
                Err(error) => refusal(&error),
            }
        }
        // What came goes when the answer is there: the connection has other buffers by then.
        Ok(body) => answer(daemon, caller, action, body).await,
        Err(status) => (status, "the request is too long, or broke off").into_response(),
    }
}

/// Reads a request whole, and wipes the pieces in which it came.
///
/// # Errors
/// It is too long, or broke off.
pub(crate) async fn read_whole(request: Request) -> Result<Bytes, StatusCode> {
    Kept(Vec::new()).read(request).await
}

/// The pieces in which a request came. There may be a key in it, so that they are wiped when they are not
/// needed any more, as far as nothing else refers to their memory.
struct Kept(Vec<Bytes>);

impl Kept {
    /// Reads a request whole.
    async fn read(&mut self, request: Request) -> Result<Bytes, StatusCode> {
        let mut pieces = request.with_limited_body().into_body().into_data_stream();
        let mut whole = Wiped::default();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| match is_limit(&error) {
                true => StatusCode::PAYLOAD_TOO_LARGE,
                false => StatusCode::BAD_REQUEST,
            })?;
            whole.extend(&piece);
            self.0.push(piece);
        }
        Ok(Bytes::from_owner(whole))
    }
}

/// Whether a body was longer than it may be.
fn is_limit(error: &(dyn Error + 'static)) -> bool {
    error.is::<LengthLimitError>() || error.source().is_some_and(is_limit)
}

impl Drop for Kept {
    fn drop(&mut self) {
        for piece in self.0.drain(..) {
            if let Ok(mut piece) = piece.try_into_mut() {
                api::wipe(&mut piece);
            }
        }
    }
}

/// `GET /v1/events` follows the feed of changes. Nothing else is got in this way.
async fn follow(
    State(daemon): State<Arc<Daemon>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    UrlPath(path): UrlPath<String>,
    query: Query<FollowChanges>,
    headers: HeaderMap,
) -> Response {
    follow_for(daemon, caller, path, query.0, headers).await
}

/// The same for this caller.
pub(crate) async fn follow_for(
    daemon: Arc<Daemon>,
    caller: Caller,
    path: String,
    asked: FollowChanges,
    headers: HeaderMap,
) -> Response {
    if FollowChanges::DECLARED.got_at != Some(path.as_str()) {
        return refusal(&ApiError::not_found(format!("GET does not answer '{path}': ask by POST")));
    }
    match feed::request(&headers, asked) {
        Ok(body) => answer(daemon, caller, FollowChanges::NAME.to_owned(), body).await,
        Err(error) => refusal(&error),
    }
}

/// Does what was asked, in the form that the action declares.
async fn answer(daemon: Arc<Daemon>, caller: Caller, action: String, body: Bytes) -> Response {
    if daemon.requests_gate().is_closed() {
        return ask_again();
    }
    let form = daemon::known(&action).map(|known| known.declared.form);
    let answered = match form {
        // It waits for no device itself. A client that goes away drops this, and with it the load.
        Ok(Form::OnceByServer) => {
            let answer = daemon::dispatch_load(&daemon, &caller, &body).await;
            Ok(answer.map(|body| response(StatusCode::OK, body)))
        }
        Ok(Form::HeldOpen) => Ok(hold_view(&daemon, &caller, &body)),
        Ok(Form::Parts) => compare_files(daemon, caller, body).await,
        Ok(Form::FramesOut) => send(daemon, caller, body).await,
        Ok(Form::ServerSentEvents) => Ok(feed::answer(daemon, &caller, &body)),
        // An unknown one is refused there.
        Ok(Form::Once | Form::StreamIn) | Err(_) => {
            // Actions wait for devices through the calling thread's ring, which this runtime's threads do
            // not drive.
            let Some(visit) = daemon.requests_gate().enter(&format!("a request ({action})")) else {
                return ask_again();
            };
            let act = move || {
                let _visit = visit;
                daemon::dispatch_for(&daemon, &caller, &action, &body)
            };
            tokio::task::spawn_blocking(act).await.map(|answer| Ok(response(StatusCode::OK, answer?)))
        }
    };
    match answered {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => refusal(&error),
        Err(panic) => refusal(&ApiError::failed(format!("the daemon failed in this request: {panic}"))),
    }
}

fn response(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Said while another daemon takes over.
fn ask_again() -> Response {
    let error = ApiError::busy("another daemon takes over; nothing was done, ask again");
    let body = serde_json::to_vec(&error).unwrap_or_default();
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::RETRY_AFTER, "0")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, body).into_response()
}

/// An error as it travels.
fn refusal(error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response(status, serde_json::to_vec(error).unwrap_or_default())
}
