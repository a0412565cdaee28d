//! A connection to a daemon, here or on another machine, and one request on it.
//!
//! A request to another machine has its token. A connection that breaks off leaves open what was done: the
//! error says whether something may have been changed. A daemon that hands over to another one has done
//! nothing, and is asked again.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use server::api::ApiError;
use server::outgoing::{self, Stream, Trust, in_full};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use super::{LOOK, Message};
use crate::remotes::{self, Remote};

/// How long is waited for a daemon that takes over.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(60);
/// How long an address of another machine may take to be reached, and to begin TLS.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The most bytes of an answer that is taken whole: some hundred thousand datasets with their properties.
const MAX_ANSWER_BYTES: usize = 1 << 30;
/// The most bytes of an error.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// A connection to a daemon.
#[derive(Debug)]
pub(super) enum Wire {
    /// One of this machine.
    Here(UnixStream),
    /// One of another machine.
    Afar(Box<Stream>, Box<Remote>),
}

impl Wire {
    /// Connects to the daemon of another machine.
    pub(super) async fn to(remote: Remote) -> Result<Self> {
        if remote.token.is_none() {
            return Err(anyhow!(
                "there is no token for {}: 'cenote remote add' keeps one, or {} has it; 'cenote dashboard \
                 token create' makes one on that machine",
                remote.label(),
                remotes::TOKEN_VARIABLE
            ));
        }
        let trust = Trust::of_environment().pinned_to(remote.fingerprint);
        match Stream::open(&remote.address, &trust, CONNECT_LIMIT).await {
            Ok(stream) => {
                outgoing::notice_its_end(stream.tcp());
                Ok(Self::Afar(Box::new(stream), Box::new(remote)))
            }
            Err(fault) => Err(anyhow!(
                "cannot reach {}: {fault}; nothing was asked of it{}",
                remote.label(),
                hint(&fault.to_string(), &remote)
            )),
        }
    }

    /// What is asked on it, for errors.
    fn asked(&self, message: &Message) -> Asked {
        let afar = match self {
            Self::Here(_) => None,
            Self::Afar(_, remote) => Some((remote.label(), remote.name.clone())),
        };
        Asked { afar, changes: message.changes }
    }
}

/// What to do about a server that is not trusted, or speaks another protocol.
fn hint(why: &str, remote: &Remote) -> String {
    let place = remote.address.host_and_port();
    if why.contains("kept one") {
        return format!(
            "\nif it was replaced: 'cenote remote remove {0}' and 'cenote remote add {0}' anew",
            remote.name
        );
    }
    if why.contains("certificate") {
        return format!(
            "\n'cenote remote add NAME {place}' shows its fingerprint, and trusts it from then on"
        );
    }
    let speaks_otherwise = why.contains("corrupt") || why.contains("InvalidContentType");
    match speaks_otherwise && outgoing::is_loopback_name(&remote.address.host) {
        true => format!("\nit speaks no TLS; this machine itself is spoken to without by 'http://{place}'"),
        false => String::new(),
    }
}

/// What was asked, for errors.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// Of which other machine: its label and its name.
    afar: Option<(String, String)>,
    /// Whether it may change something.
    changes: bool,
}

impl Asked {
    /// The answer broke off.
    pub(super) fn broke_off(&self, error: impl Error + Send + Sync + 'static) -> anyhow::Error {
        self.gone(error, "the daemon's answer broke off")
    }

    fn gone(&self, error: impl Error + Send + Sync + 'static, here: &'static str) -> anyhow::Error {
        let Some((label, _)) = &self.afar else { return anyhow::Error::new(error).context(here) };
        let outcome = match self.changes {
            true => "it may have done what was asked, or a part of it, or nothing: look before you ask again",
            false => "nothing was changed by this",
        };
        anyhow!("the connection to {label} broke off ({}); {outcome}", in_full(&error))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Here(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Afar(stream, _) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Here(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Afar(stream, _) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Here(stream) => Pin::new(stream).poll_flush(cx),
            Self::Afar(stream, _) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Here(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Afar(stream, _) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Here(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Afar(stream, _) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Here(stream) => stream.is_write_vectored(),
            Self::Afar(stream, _) => stream.is_write_vectored(),
        }
    }
}

/// What drives a connection.
pub(super) type Connection = tokio::task::JoinHandle<hyper::Result<()>>;

/// Sends a request and takes its whole answer.
pub(super) async fn exchange(wire: Wire, message: Message) -> Result<Bytes> {
    let (response, asked, connection) = send(wire, message).await?;
    if !response.status().is_success() {
        return Err(refusal(response, &asked).await);
    }
    let body = whole(response, MAX_ANSWER_BYTES).await.map_err(|error| asked.broke_off(error))?;
    connection.abort();
    Ok(body)
}

/// The whole body of an answer, of at most so many bytes.
async fn whole(response: Response<Incoming>, most: usize) -> io::Result<Bytes> {
    let body = Limited::new(response.into_body(), most).collect().await;
    Ok(body.map_err(io::Error::other)?.to_bytes())
}

/// Why the daemon did not do what was asked.
pub(super) async fn refusal(response: Response<Incoming>, asked: &Asked) -> anyhow::Error {
    let status = response.status();
    let body = match whole(response, MAX_ERROR_BYTES).await {
        Ok(body) => body,
        Err(error) => return asked.broke_off(error),
    };
    match (serde_json::from_slice::<ApiError>(&body), &asked.afar) {
        (Ok(error), Some((label, name))) if status == StatusCode::UNAUTHORIZED => {
            anyhow!("{label} does not let you in: {error}; 'cenote remote add {name} …' keeps another token")
        }
        (Ok(error), Some((label, _))) if status == StatusCode::FORBIDDEN => anyhow!("{label}: {error}"),
        (Ok(error), _) => error.into(),
        (Err(_), Some((label, _))) => anyhow!(
            "{label} answered with HTTP status {status}, and not as a daemon of Cenote does; nothing is \
             known of what it did"
        ),
        (Err(_), None) => anyhow!("the daemon answered with HTTP status {status}"),
    }
}

/// Asks again where a daemon says that another one takes over: it has done nothing then.
pub(super) async fn send(
    mut wire: Wire,
    message: Message,
) -> Result<(Response<Incoming>, Asked, Connection)> {
    let began = Instant::now();
    loop {
        let body = BodyExt::boxed(Full::new(message.body.clone()).map_err(|never| match never {}));
        let (next, response, asked, connection) = send_body(wire, &message, body).await?;
        let is_handing_over = response.status() == StatusCode::SERVICE_UNAVAILABLE
            && response.headers().contains_key(RETRY_AFTER)
            && began.elapsed() < HAND_OVER_LIMIT;
        if !is_handing_over {
            return Ok((response, asked, connection));
        }
        connection.abort();
        tokio::time::sleep(LOOK).await;
        match next.open().await? {
            Some(again) => wire = again,
            None => return Ok((response, asked, connection)),
        }
    }
}

/// How to reach the same daemon again.
pub(super) enum Next {
    Here(Option<std::path::PathBuf>),
    Afar(Box<Remote>),
}

impl Next {
    fn of(wire: &Wire) -> Self {
        match wire {
            Wire::Here(stream) => {
                let address = stream.peer_addr().ok();
                Self::Here(address.as_ref().and_then(|address| address.as_pathname()).map(Into::into))
            }
            Wire::Afar(_, remote) => Self::Afar(remote.clone()),
        }
    }

    async fn open(self) -> Result<Option<Wire>> {
        match self {
            Self::Here(None) => Ok(None),
            Self::Here(Some(path)) => {
                let stream = server::socket::connect(&path).await.context("no daemon took over")?;
                Ok(Some(Wire::Here(stream)))
            }
            Self::Afar(remote) => Wire::to(*remote).await.map(Some),
        }
    }
}

/// Sends a request with this body.
pub(super) async fn send_body(
    wire: Wire,
    message: &Message,
    body: BoxBody<Bytes, io::Error>,
) -> Result<(Next, Response<Incoming>, Asked, Connection)> {
    let (asked, next) = (wire.asked(message), Next::of(&wire));
    let mut request =
        Request::post(format!("/v1/{}", message.action)).header("content-type", "application/json");
    match &wire {
        Wire::Here(_) => request = request.header("host", "cenote"),
        Wire::Afar(_, remote) => {
            request = request.header("host", remote.address.host_and_port());
            let token = remote.token.as_ref().map_or(&[][..], |token| token.bytes());
            let mut bearer = HeaderValue::from_bytes(&[b"Bearer ", token].concat())?;
            bearer.set_sensitive(true);
            request = request.header(AUTHORIZATION, bearer);
        }
    }
    let request = request.body(body)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(wire))
        .await
        .context("cannot talk to the daemon")?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| asked.gone(error, "the daemon closed the connection"))?;
    Ok((next, response, asked, connection))
}
