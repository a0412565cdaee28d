//! Connections that this program makes to servers elsewhere: where they lead, and which are trusted.
//!
//! | who connects | for | trusted |
//! |---|---|---|
//! | the daemon | keys (`keylocation=https://…`), webhooks, ntfy, relays of mail | by an authority |
//! | commands with `--remote` | the daemon of another machine | by an authority, or by a kept fingerprint |
//!
//! Authorities are the system's, or those that `SSL_CA_CERT_FILE` and `SSL_CA_CERT_PATH` name. Each way to a
//! server is bounded in time by its caller; [`reach`] bounds each address by itself, so that one that does
//! not answer leaves time for the next. Nothing here sends or reads what the connection is for.
//!
//! | module | what it owns |
//! |---|---|
//! | `address` | addresses of servers, taken apart |
//! | `trust` | certificates: authorities, fingerprints, the own one |

mod address;
mod trust;

use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

pub use address::{Address, Scheme, is_loopback_name};
pub use trust::{Connector, Fingerprint, Presented, Trust};

/// When a connection without traffic is probed, how often, and how many probes may be lost.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(20);
const KEEPALIVE_EACH: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 4;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// An address did not answer in time.
    Silent(String),
    /// There is none, or it cannot be trusted.
    Connection(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why) | Self::Connection(why) => f.write_str(why),
        }
    }
}

impl Error for Fault {}

/// Connects to the first address of a server that answers.
///
/// # Errors
/// None does, each within this time.
pub async fn reach(server: &Address, limit: Duration) -> Result<TcpStream, Fault> {
    let found = tokio::net::lookup_host((server.host.as_str(), server.port)).await;
    let found: Vec<SocketAddr> = found.map_err(|error| Fault::Connection(error.to_string()))?.collect();
    let mut last = Fault::Connection("its name stands for no address".to_owned());
    for address in found {
        if server.is_for_loopback_only && !address.ip().to_canonical().is_loopback() {
            last = Fault::Connection(format!("{address} is not this machine, and the way is not encrypted"));
            continue;
        }
        last = match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => Fault::Connection(format!("{address}: {error}")),
            Err(_) => Fault::Silent(format!("{address} does not answer")),
        };
    }
    Err(last)
}

/// Begins TLS on a connection.
///
/// # Errors
/// The server does not answer in this time, or is not trusted.
pub async fn begin_tls(
    server: &Address,
    connector: &Connector,
    stream: TcpStream,
    limit: Duration,
) -> Result<TlsStream<TcpStream>, Fault> {
    let name = ServerName::try_from(server.host.clone());
    let name = name.map_err(|error| Fault::Connection(error.to_string()))?;
    let begun = timeout(limit, connector.tls().connect(name, stream)).await;
    let silent = |_| Fault::Silent(format!("{} does not begin TLS", server.host_and_port()));
    begun.map_err(silent)?.map_err(|error| Fault::Connection(connector.explain(error.to_string())))
}

/// The certificate that a server shows, whether it is trusted or not. Nothing is sent to it.
///
/// # Errors
/// It is not reached, or speaks no TLS.
pub async fn look(server: &Address, limit: Duration) -> Result<Presented, Fault> {
    let connector = Trust::of_environment().only_to_look().connector().map_err(Fault::Connection)?;
    let stream = reach(server, limit).await?;
    drop(begin_tls(server, &connector, stream, limit).await?);
    connector.presented().ok_or_else(|| Fault::Connection("it showed no certificate".to_owned()))
}

/// Has the kernel notice within about a minute that the other end is gone.
pub fn notice_its_end(stream: &TcpStream) {
    let probes = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EACH);
    let socket = SockRef::from(stream);
    // Without it the end is noticed later.
    let _ = socket.set_tcp_keepalive(&probes.with_retries(KEEPALIVE_PROBES));
    let unanswered = KEEPALIVE_AFTER + KEEPALIVE_EACH * KEEPALIVE_PROBES;
    let _ = socket.set_tcp_user_timeout(Some(unanswered));
}

/// A connection to a server, with TLS or without.
#[derive(Debug)]
pub enum Stream {
    /// Without.
    Plain(TcpStream),
    /// With.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Connects to a server, with TLS where its address asks for it.
    ///
    /// # Errors
    /// As those of [`reach`] and [`begin_tls`]; no authority is trusted at all.
    pub async fn open(server: &Address, trust: &Trust, limit: Duration) -> Result<Self, Fault> {
        let stream = reach(server, limit).await?;
        // Small requests are not to wait for more.
        let _ = stream.set_nodelay(true);
        match server.scheme.is_secure() {
            false => Ok(Self::Plain(stream)),
            true => {
                let connector = trust.connector().map_err(Fault::Connection)?;
                Ok(Self::Tls(Box::new(begin_tls(server, &connector, stream, limit).await?)))
            }
        }
    }

    /// The connection below TLS.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// An error with what is behind it.
pub fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
