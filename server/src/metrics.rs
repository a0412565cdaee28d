//! `GET /metrics`: counters for Prometheus, over TCP, where that is asked for.
//!
//! # Names
//! Boards and alerts exist for two programs that report on OpenZFS, so their names are used for what they
//! report: those of Prometheus' node exporter (`node_zfs_arc_*`, `node_zfs_zfetch_*`, `node_zfs_zil_*`,
//! `node_zfs_dmu_tx_*`, `node_zfs_zpool_*`, `node_zfs_zpool_dataset_*`), and those of `zfs_exporter`
//! (`zfs_pool_*`, `zfs_dataset_*`). What only Cenote has begins with `cenote_`.
//!
//! # What a client can do
//! Read, and nothing else. There is one route; connections are few (`MAX_CONNECTIONS`) and none lasts
//! longer than `DEADLINE`. One text is made at a time. A text is at most about `MAX_BYTES` long: what
//! does not fit is left out, and `cenote_metrics_truncated` says so.
//!
//! Source of names: `node_exporter` `zfs_linux.go`; `zfs_exporter` `pool.go`, `dataset.go`; the text format
//! of Prometheus.

mod render;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::bounded::Bounded;
use crate::daemon::Daemon;
use crate::gate::Gate;
use crate::listening::{self, HostPort};
use crate::socket::Inherited;

/// The service, for messages.
const SERVICE: &str = "the listener for metrics";
/// Most connections.
const MAX_CONNECTIONS: usize = 16;
/// How long a connection lasts.
const DEADLINE: Duration = Duration::from_secs(60);
/// The longest text, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// The form of the text.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A listening socket for readers of metrics.
#[derive(Debug)]
pub struct MetricsSocket {
    listener: listening::Listener,
    /// Holds readers back.
    gate: Gate,
    places: Arc<Semaphore>,
}

impl MetricsSocket {
    /// Listens on an address, as soon as it is there.
    pub async fn bind(place: HostPort) -> Self {
        Self::bind_with(place, &mut Inherited::default()).await
    }

    /// The same on a socket that listens already, where there is one.
    pub async fn bind_with(place: HostPort, inherited: &mut Inherited) -> Self {
        let listener = listening::Listener::bind_with(SERVICE, vec![place], || Ok(()), inherited).await;
        Self { listener, gate: Gate::default(), places: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }

    /// Where it listens; nowhere yet where the address is not there.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.listening().addresses().first().copied()
    }
}

impl Listener for MetricsSocket {
    type Io = Bounded<TcpStream, Option<OwnedSemaphorePermit>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // A connection that finds no place waits in the system's queue.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (stream, address) = self.gate.while_open(self.listener.accept()).await;
        (Bounded::new(stream, DEADLINE, place), address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.address().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }
}

/// What answers: the daemon, and the turn of the request that makes a text.
#[derive(Debug, Clone)]
pub(crate) struct Texts {
    daemon: Arc<Daemon>,
    turn: Arc<Mutex<()>>,
}

/// Answers until `stop` completes.
///
/// # Errors
/// When the listener itself fails.
pub async fn serve(
    mut socket: MetricsSocket,
    daemon: Arc<Daemon>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    socket.gate = daemon.requests_gate().clone();
    daemon.listens(SERVICE, socket.listener.listening());
    let router = axum::Router::new().route("/metrics", get(metrics)).with_state(Texts::of(daemon));
    axum::serve(socket, router).with_graceful_shutdown(stop).await
}

async fn metrics(State(texts): State<Texts>) -> Response {
    texts.answer().await
}

impl Texts {
    /// Those of a daemon.
    pub(crate) fn of(daemon: Arc<Daemon>) -> Self {
        Self { daemon, turn: Arc::default() }
    }

    /// Answers a reader.
    pub(crate) async fn answer(&self) -> Response {
        let _turn = self.turn.lock().await;
        let daemon = Arc::clone(&self.daemon);
        // Reading properties may wait for devices, through the ring of the thread.
        let text = tokio::task::spawn_blocking(move || render::text(&daemon, MAX_BYTES)).await;
        match text {
            Ok(Ok(text)) => (StatusCode::OK, [(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
            Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
            Err(panic) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{panic}\n")).into_response(),
        }
    }
}
