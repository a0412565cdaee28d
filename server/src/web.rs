//! The dashboard: the API and a page for browsers over TCP, for persons who sign in.
//!
//! # What is answered
//! | request | answer |
//! |---|---|
//! | `GET /`, `/app.js`, `/app.css`, `/icon.svg` | the files of the page, which are in the binary |
//! | `POST /sign-in` | a session, for a one-time link or a password |
//! | `GET /session`, `POST /sign-out` | whose session it is; its end |
//! | `POST /v1/ACTION`, `GET /v1/events` | as on the Unix socket ([`crate::http`]), by the role of the session or token |
//! | `GET /metrics` | as on the listener for metrics, for a token |
//!
//! Who may come, and as whom, is decided by [`crate::accounts`]; what that person may ask for is decided
//! where all requests are (`daemon::admission`). Actions that only make sense for a process of this machine
//! are refused.
//!
//! # What a stranger meets
//! - Nothing listens unless it is asked for; by default at 127.0.0.1. Beyond the machine itself TLS is used,
//!   with a given certificate or a self-made one, unless the user insists.
//! - A request whose `Host` or `Origin` is not this page's is refused before all else (`origin`).
//! - The cookie of a session is for this page only (`HttpOnly`, `SameSite=Strict`), and a request that comes
//!   with it must have the session's token in a header too.
//! - The page may load nothing but its own files, and be put in no frame ([`POLICY`]).
//! - Connections are few, in all and of one address. One that has not signed in ends soon. Heads, bodies and
//!   answers have limits in bytes and in time, so that slow clients hold nothing up. Passwords are hashed few
//!   at a time, on other threads.
//!
//! # Hand-over
//! A daemon that takes over gets the listening sockets, also of a dashboard that was begun on request.
//! Sessions and links are not handed over: users sign in again. Users and tokens are in their file.
//!
//! | module | what it owns |
//! |---|---|
//! | `files` | the files of the page |
//! | `origin` | whether a request was meant for this page |
//! | `patient` | connections that have to take what they are sent |
//! | `seats` | how many connections there are |
//! | `security` | certificates |
//! | `visitor` | as whom a request comes |
//! | `routes` | requests and answers |
//! | [`untrusted`] | all of it for any bytes, for fuzzers |

mod files;
mod origin;
mod patient;
mod routes;
mod seats;
mod security;
pub mod untrusted;
mod visitor;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::api::ApiError;
use crate::bounded::Bounded;
use crate::caller::Connection;
use crate::daemon::{Begin, Begun, Daemon};
use crate::listening::{HostPort, Listener};
use crate::socket::Inherited;
use origin::Names;
use patient::Patient;
use routes::Peer;
use seats::{Seat, Seats};
use security::Security;

pub use routes::POLICY;

/// The service, for messages and for a daemon that takes over.
pub const SERVICE: &str = "the dashboard";
/// Where it listens if nothing else is said.
pub const USUAL_PLACE: &str = "127.0.0.1:7227";
/// How long a connection lasts that has not signed in.
const DEADLINE: Duration = Duration::from_secs(120);
/// How long the beginning of TLS may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and so how long a connection may be idle.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// How long a client may take nothing of an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 32 << 10;
/// Headers of a request.
const MAX_HEADERS: usize = 64;
/// Requests to begin that wait.
const BEGINS_AHEAD: usize = 4;

/// How the dashboard is served.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where it listens; nowhere until that is asked for.
    pub listen: Vec<HostPort>,
    /// A certificate and its private key, as PEM files.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Its names besides its addresses.
    pub hosts: Vec<String>,
    /// Without TLS also beyond this machine.
    pub is_insecure: bool,
    /// Where a self-made certificate is kept.
    pub folder: Option<PathBuf>,
}

/// The dashboard of a daemon, which may listen already.
#[derive(Debug)]
pub struct Dashboard {
    options: Options,
    listener: Option<Listener<Security>>,
}

impl Dashboard {
    /// Listens where that is asked for, as soon as it can be.
    pub async fn bind(options: Options) -> Self {
        Self::bind_with(options, &mut Inherited::default()).await
    }

    /// The same, on sockets that listen already where there are some, also where they were begun on request.
    pub async fn bind_with(mut options: Options, inherited: &mut Inherited) -> Self {
        if options.listen.is_empty() {
            let places = inherited.places(SERVICE).into_iter();
            options.listen = places.filter_map(|place| place.parse().ok()).collect();
        }
        let listener = match options.listen.is_empty() {
            true => None,
            false => Some(listen(&options, inherited).await),
        };
        Self { options, listener }
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listener.as_ref().map(|listener| listener.listening().addresses()).unwrap_or_default()
    }

    /// Begins to listen, where it does not yet.
    async fn begin(&mut self, daemon: &Daemon, place: Option<String>) -> Result<Begun, ApiError> {
        let place: Option<HostPort> = match place.map(|place| place.parse()).transpose() {
            Ok(place) => place,
            Err(why) => return Err(ApiError::invalid(format!("cannot open the dashboard: {why}"))),
        };
        let is_new = self.listener.is_none();
        if is_new {
            let usual = USUAL_PLACE.parse().map_err(ApiError::failed);
            self.options.listen = vec![place.map_or(usual, Ok)?];
            self.listener = Some(listen(&self.options, &mut Inherited::default()).await);
        } else if place.is_some_and(|place| !self.options.listen.contains(&place)) {
            let places: Vec<String> = self.options.listen.iter().map(ToString::to_string).collect();
            let places = places.join(", ");
            return Err(ApiError::busy(format!(
                "cannot open the dashboard there: it listens on {places} already"
            )));
        }
        let Some(listener) = &mut self.listener else { return Err(ApiError::failed("nothing listens")) };
        let listening = listener.listening();
        let addresses = listening.addresses();
        if addresses.is_empty() {
            let why = listening.waiting().join("; ");
            if is_new {
                self.listener = None;
            }
            return Err(ApiError::failed(format!("cannot open the dashboard: it does not listen: {why}")));
        }
        if is_new {
            daemon.listens(SERVICE, listening);
        }
        let security = listener.loaded().await;
        Ok(Begun { addresses, has_tls: security.has_tls(), fingerprint: security.fingerprint() })
    }
}

/// Listens on the places of the options.
async fn listen(options: &Options, inherited: &mut Inherited) -> Listener<Security> {
    let (places, options) = (options.listen.clone(), options.clone());
    Listener::bind_with(SERVICE, places, move || Security::load(&options), inherited).await
}

/// Answers until `stop` completes.
///
/// # Errors
/// None by now; the listener tries again by itself.
pub async fn serve(
    mut dashboard: Dashboard,
    daemon: Arc<Daemon>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (sender, mut begins) = mpsc::channel::<Begin>(BEGINS_AHEAD);
    daemon.has_dashboard(sender);
    if let Some(listener) = &dashboard.listener {
        daemon.listens(SERVICE, listener.listening());
    }
    let gate = daemon.requests_gate().clone();
    let names = Names::new(&dashboard.options.hosts);
    let is_insecure = dashboard.options.is_insecure;
    let router = routes::router(Arc::clone(&daemon), names);
    let seats = Arc::<Seats>::default();
    let (stopping, is_stopping) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let accepting = async {
            match &mut dashboard.listener {
                Some(listener) => {
                    // It is there: no client is let in without it.
                    let security = listener.loaded().await;
                    let (stream, peer) = gate.while_open(listener.accept()).await;
                    (stream, peer, security)
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut stop => break,
            Some(begin) = begins.recv() => {
                let begun = dashboard.begin(&daemon, begin.listen).await;
                // A client that is gone needs no answer.
                let _ = begin.answer.send(begun);
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (stream, peer, security) = accepting => {
                let Some(seat) = seats.take(peer.ip()) else {
                    tracing::debug!(%peer, "too many connections to the dashboard: one is closed");
                    continue;
                };
                let visit = Visit { peer: peer.ip(), seat, security, is_insecure, router: router.clone() };
                connections.spawn(visit.serve(stream, is_stopping.clone()));
            }
        }
    }
    // Answers that last would be waited for.
    daemon.end_lasting_answers();
    drop(stopping);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// A connection.
struct Visit {
    peer: IpAddr,
    seat: Seat,
    security: Security,
    is_insecure: bool,
    router: Router,
}

impl Visit {
    async fn serve(self, stream: TcpStream, stopping: watch::Receiver<()>) {
        let Ok(local) = stream.local_addr() else { return };
        let address = local.ip().to_canonical();
        if !self.security.has_tls() && !self.is_insecure && !address.is_loopback() {
            tracing::warn!(peer = %self.peer, "the dashboard closes a connection from outside without TLS");
            return;
        }
        // Small answers are not to wait for more.
        let _ = stream.set_nodelay(true);
        let connection = Connection::default();
        let peer = Peer {
            address: self.peer,
            local: address,
            port: local.port(),
            has_tls: self.security.has_tls(),
            connection: connection.clone(),
        };
        let service = self.router.layer(Extension(peer));
        let ended = match self.security.acceptor() {
            None => {
                let stream = Bounded::new(Patient::new(stream, PATIENCE), DEADLINE, self.seat);
                answer(stream.unless(connection), service, stopping).await
            }
            Some(acceptor) => match timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let stream = Bounded::new(Patient::new(stream, PATIENCE), DEADLINE, self.seat);
                    answer(stream.unless(connection), service, stopping).await
                }
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("TLS took too long to begin".to_owned()),
            },
        };
        if let Err(error) = ended {
            tracing::debug!(peer = %self.peer, error, "a connection to the dashboard ended");
        }
    }
}

/// Answers the requests of a connection.
async fn answer<S>(stream: S, service: Router, mut stopping: watch::Receiver<()>) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
    builder.max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD_BYTES);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = pin!(connection);
    tokio::select! {
        ended = &mut connection => return ended.map_err(|error| error.to_string()),
        _ = stopping.changed() => connection.as_mut().graceful_shutdown(),
    }
    connection.await.map_err(|error| error.to_string())
}
