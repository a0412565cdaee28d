//! Keys that lie on a server: `keylocation=https://…` and `http://…`.
//!
//! # The idea
//! The daemon asks with `GET`, and the body of the answer is the key, as the content of a file would be.
//! What comes is not trusted before the key fits: the answer is bounded ([`MAX_BYTES`], whatever it claims),
//! and so are its head, the redirects and the time (`Limits`). An answer that breaks off is no key.
//!
//! | what | as in OpenZFS, which lets libcurl do it | here |
//! |---|---|---|
//! | time | 30 s for all | the same, and 10 s to reach an address |
//! | redirects | followed | at most [`MAX_REDIRECTS`], and none from `https` to `http` |
//! | statuses | 2xx are keys, all others errors | the same |
//! | authorities | the system's, `SSL_CA_CERT_FILE`, `SSL_CA_CERT_PATH` | the same, of the daemon |
//! | a server's own authority | trusted where it is one of these | where it is all of the first |
//! | own certificate | `SSL_CLIENT_CERT_FILE`, `SSL_CLIENT_KEY_FILE` | the same |
//! | name and password in the address | sent | refused: everyone who lists the dataset would read them |
//!
//! The caller is a thread of its own, which waits; it must hold no lock and no view of a pool meanwhile.
//! Buffers of ours with the key are wiped; the library of TLS keeps its own to itself.
//!
//! Source of the facts: OpenZFS 2.4 `libzfs_crypto.c` (`get_key_material_https`).

use std::fmt;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::api::{Secret, wipe};
use crate::outgoing::{self, Address, Trust, in_full};

/// The longest answer, in bytes: as of a file with a key.
pub(crate) const MAX_BYTES: usize = 4096;
/// The longest head of an answer, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// The most lines in the head of an answer.
const MAX_HEADERS: usize = 64;
/// The most redirects that are followed.
const MAX_REDIRECTS: usize = 5;
/// What is shown of an address that a server names, in characters.
const MAX_SHOWN: usize = 200;

/// How long it may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Until an address of the server is reached, and until TLS has begun.
    connect: Duration,
    /// For all, names and redirects among it.
    total: Duration,
}

const LIMITS: Limits = Limits { connect: Duration::from_secs(10), total: Duration::from_secs(30) };

/// Why there is no key.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to tell the user.
    pub(crate) message: String,
    /// The server did not answer in time.
    pub(crate) is_silent: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Whether a `keylocation` is on a server.
pub(crate) fn is_address(location: &str) -> bool {
    location.starts_with("https://") || location.starts_with("http://")
}

/// The server of an address, by which one that does not answer is known again.
pub(crate) fn server_of(location: &str) -> Option<String> {
    Address::web(location).ok().map(|server| server.host_and_port())
}

/// Gets the key that lies at an address.
///
/// # Errors
/// No answer in time, another one than a key, and what keeps a connection from being trusted.
pub(crate) fn fetch(location: &str) -> Result<Secret, Failure> {
    fetch_with(location, &Trust::of_environment(), LIMITS)
}

fn fetch_with(location: &str, trust: &Trust, limits: Limits) -> Result<Secret, Failure> {
    let failed = |message| Failure { message, is_silent: false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(format!("cannot wait for {location}: {error}")))?;
    let got = runtime.block_on(async { timeout(limits.total, get(location, trust, limits)).await });
    // A name that is still looked up must not keep the thread.
    runtime.shutdown_background();
    match got {
        Ok(Ok(key)) => Ok(key),
        Ok(Err(Fault::Connection(fault))) => {
            let message = format!("Failed to connect to {location}: {fault}");
            Err(Failure { message, is_silent: matches!(fault, outgoing::Fault::Silent(_)) })
        }
        Ok(Err(Fault::Answer(why))) => Err(failed(format!("Couldn't GET {location}: {why}"))),
        Err(_) => Err(Failure {
            message: format!(
                "Failed to connect to {location}: no answer in {} s",
                limits.total.as_secs_f32().ceil()
            ),
            is_silent: true,
        }),
    }
}

/// What went wrong.
enum Fault {
    /// No connection that can be trusted.
    Connection(outgoing::Fault),
    /// An answer that is no key.
    Answer(String),
}

impl From<outgoing::Fault> for Fault {
    fn from(fault: outgoing::Fault) -> Self {
        Self::Connection(fault)
    }
}

/// Where a server sends its client on to.
fn follow(from: &Address, to: &str) -> Result<Address, String> {
    let shown: String = to.escape_debug().take(MAX_SHOWN).collect();
    let refuse = |why: &str| Err(format!("it leads on to '{shown}', which is not followed: {why}"));
    let scheme = from.scheme.name();
    let address = match to {
        whole if is_address(whole) => whole.to_owned(),
        hosts if hosts.starts_with("//") => format!("{scheme}:{hosts}"),
        path if path.starts_with('/') => format!("{scheme}://{}{path}", from.host_and_port()),
        _ => return refuse("it is neither an https:// or http:// address nor an absolute path"),
    };
    match Address::web(&address) {
        Ok(next) if from.scheme.is_secure() && !next.scheme.is_secure() => {
            refuse("the key would not be encrypted")
        }
        Ok(next) => Ok(next),
        Err(why) => refuse(&why),
    }
}

async fn get(location: &str, trust: &Trust, limits: Limits) -> Result<Secret, Fault> {
    let unusable = |why| Fault::Connection(outgoing::Fault::Connection(why));
    let mut server = Address::web(location).map_err(unusable)?;
    let mut connector = None;
    for _ in 0..=MAX_REDIRECTS {
        let stream = outgoing::reach(&server, limits.connect).await?;
        let next = if server.scheme.is_secure() {
            let connector = match &connector {
                Some(connector) => connector,
                None => connector.insert(trust.connector().map_err(unusable)?),
            };
            ask(&server, outgoing::begin_tls(&server, connector, stream, limits.connect).await?).await?
        } else {
            ask(&server, stream).await?
        };
        match next {
            Answer::Key(key) => return Ok(key),
            Answer::Elsewhere(to) => server = follow(&server, &to).map_err(Fault::Answer)?,
        }
    }
    Err(Fault::Answer(format!("it leads on more than {MAX_REDIRECTS} times")))
}

enum Answer {
    Key(Secret),
    Elsewhere(String),
}

/// Sends the request, and takes the answer.
async fn ask(
    server: &Address,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Answer, Fault> {
    let broken = |error: hyper::Error| Fault::Answer(in_full(&error));
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let connection = tokio::spawn(connection);
    let request = Request::get(&server.path)
        .header(header::HOST, server.host_and_port())
        .header(header::USER_AGENT, "cenote")
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new());
    let request = request.map_err(|error| Fault::Answer(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(broken)?;
    let status = response.status();
    if status.is_redirection() {
        let to = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
        return to
            .map(|to| Answer::Elsewhere(to.to_owned()))
            .ok_or_else(|| Fault::Answer(status.to_string()));
    }
    if !status.is_success() {
        return Err(Fault::Answer(status.to_string()));
    }
    let mut frames = Vec::new();
    let taken = take(response, &mut frames).await;
    // The connection's buffers go with it; what is left of them are the frames.
    connection.abort();
    let _ = connection.await;
    drop(sender);
    let taken = taken.map(|()| {
        // One piece of memory, of which no copy is left behind.
        let mut key = Vec::with_capacity(MAX_BYTES);
        frames.iter().for_each(|frame: &Bytes| key.extend_from_slice(frame));
        Answer::Key(key.into())
    });
    for frame in frames {
        if let Ok(mut bytes) = frame.try_into_mut() {
            wipe(&mut bytes);
        }
    }
    taken
}

/// Takes the body, as much as a key may have.
async fn take(response: Response<Incoming>, frames: &mut Vec<Bytes>) -> Result<(), Fault> {
    let mut body = response.into_body();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Fault::Answer(format!("it broke off: {}", in_full(&error))))?;
        let Ok(data) = frame.into_data() else { continue };
        total += data.len();
        frames.push(data);
        if total > MAX_BYTES {
            return Err(Fault::Answer("it is too long for a key".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
