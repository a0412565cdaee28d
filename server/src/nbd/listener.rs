//! Sockets, and which shard gets a connection.

use std::{collections::VecDeque, io, sync::Arc};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::oneshot,
    time::{self, Instant},
};

use super::handshake::{Outcome, Security};
use super::limits::{Limits, Resources};
use super::{Exports, Tls, handshake, transmission};
use crate::runtime::Shards;

/// Accepts connections on a Unix socket until dropped, and serves each on one of the shards in turn.
///
/// # Errors
/// When the listener itself fails.
pub async fn serve_unix<X: Exports>(
    listener: UnixListener,
    exports: Arc<X>,
    shards: Arc<Shards>,
    limits: Limits,
) -> io::Result<()> {
    let resources = Resources::new(limits);
    let mut newcomers = Newcomers::default();
    loop {
        let Some((stream, _)) = accepted(listener.accept().await).await? else { continue };
        let stream = stream.into_std();
        let newcomer = newcomers.admit(&resources.limits).await;
        let (exports, resources) = (Arc::clone(&exports), Arc::clone(&resources));
        let serve =
            async move { serve_plain(UnixStream::from_std(stream?)?, &*exports, &resources, newcomer).await };
        shards.spawn(log_end(serve));
    }
}

/// Accepts connections on a TCP socket until dropped, and serves each on one of the shards in turn; with
/// `tls`, none without it.
///
/// # Errors
/// When the listener itself fails.
pub async fn serve_tcp<X: Exports>(
    listener: TcpListener,
    exports: Arc<X>,
    tls: Option<Tls>,
    shards: Arc<Shards>,
    limits: Limits,
) -> io::Result<()> {
    let resources = Resources::new(limits);
    let mut newcomers = Newcomers::default();
    loop {
        let Some((stream, _)) = accepted(listener.accept().await).await? else { continue };
        let stream = stream.into_std();
        let newcomer = newcomers.admit(&resources.limits).await;
        let (exports, tls, resources) = (Arc::clone(&exports), tls.clone(), Arc::clone(&resources));
        let serve = async move {
            let stream = TcpStream::from_std(stream?)?;
            // A reply must not wait for the next one to fill a packet.
            stream.set_nodelay(true)?;
            // A client whose machine is gone gives its place back, some hours later.
            SockRef::from(&stream).set_keepalive(true)?;
            match tls {
                None => serve_plain(stream, &*exports, &resources, newcomer).await,
                Some(tls) => serve_secured(stream, &tls, &*exports, &resources, newcomer).await,
            }
        };
        shards.spawn(log_end(serve));
    }
}

/// Serves one client from the greeting to its end.
async fn serve_plain<S, X>(
    mut socket: S,
    exports: &X,
    resources: &Arc<Resources>,
    newcomer: Newcomer,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    let chosen = handshake::negotiate(&mut socket, exports, resources, Security::None);
    match newcomer.in_time(chosen, resources).await? {
        Outcome::Chosen(session, place) => transmission::serve(socket, session, place).await,
        Outcome::Left | Outcome::Secure(_) => Ok(()),
    }
}

/// As [`serve_plain`], over TLS.
async fn serve_secured<S, X>(
    mut socket: S,
    tls: &Tls,
    exports: &X,
    resources: &Arc<Resources>,
    newcomer: Newcomer,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    let chosen = async {
        let begun = handshake::negotiate(&mut socket, exports, resources, Security::Required).await?;
        let Outcome::Secure(client) = begun else { return Ok(None) };
        let mut stream = tls.accept(socket).await?;
        match handshake::resume(&mut stream, exports, resources, client).await? {
            Outcome::Chosen(session, place) => Ok(Some((stream, session, place))),
            Outcome::Left | Outcome::Secure(_) => Ok(None),
        }
    };
    match newcomer.in_time(chosen, resources).await? {
        Some((stream, session, place)) => transmission::serve(stream, session, place).await,
        None => Ok(()),
    }
}

/// The clients of a listener that have not chosen an export yet, in the order in which they came.
#[derive(Default)]
struct Newcomers(VecDeque<(Instant, oneshot::Sender<()>)>);

impl Newcomers {
    /// One more. When there are too many the first of them is sent away, as soon as it had its moment.
    async fn admit(&mut self, limits: &Limits) -> Newcomer {
        self.0.retain(|(_, newcomer)| !newcomer.is_closed());
        if self.0.len() >= limits.newcomers
            && let Some((since, mut first)) = self.0.pop_front()
        {
            // It may be done before that.
            let _ = time::timeout_at(since + limits.grace, first.closed()).await;
        }
        let (sender, sent_away) = oneshot::channel();
        self.0.push_back((Instant::now(), sender));
        Newcomer { sent_away }
    }
}

/// A client that has not chosen an export yet.
struct Newcomer {
    /// Only [`Newcomers`] has the other end.
    sent_away: oneshot::Receiver<()>,
}

impl Newcomer {
    /// Lets it choose, unless it takes too long.
    async fn in_time<T>(
        self,
        chosen: impl Future<Output = io::Result<T>>,
        resources: &Resources,
    ) -> io::Result<T> {
        let too_late = |why| Err(io::Error::new(io::ErrorKind::TimedOut, why));
        tokio::select! {
            chosen = time::timeout(resources.limits.handshake, chosen) => chosen.unwrap_or_else(|_| too_late("handshake: it took too long")),
            _ = self.sent_away => too_late("handshake: it took too long while other clients waited"),
        }
    }
}

/// Passes over what concerns one client only, or goes by: a connection that was given up, a network that is
/// down, a want of descriptors.
async fn accepted<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ECONNABORTED | libc::EINTR) => Ok(None),
            // Linux passes a network's errors on to `accept`.
            Some(
                libc::ENETDOWN
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
                | libc::EPERM
                | libc::ETIMEDOUT,
            ) => Ok(None),
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                tracing::warn!(%error, "cannot accept a connection");
                time::sleep(time::Duration::from_millis(100)).await;
                Ok(None)
            }
            _ => Err(error),
        },
    }
}

/// Serves a connection, and says in the log why it ended.
async fn log_end(serve: impl Future<Output = io::Result<()>>) {
    if let Err(error) = serve.await {
        tracing::debug!(%error, "an NBD connection ended");
    }
}
