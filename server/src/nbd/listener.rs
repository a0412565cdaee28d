//! Sockets, and which shard gets a connection.

use std::{io, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};

use super::handshake::{Outcome, Security};
use super::{Exports, HANDSHAKE_TIMEOUT, Tls, handshake, transmission};
use crate::runtime::Shards;

/// Connections of one listener at a time. Each holds a bounded amount of memory, so that all together do.
const MAX_CONNECTIONS: usize = 128;

/// Accepts connections on a Unix socket until dropped, and serves each on one of the shards in turn.
///
/// # Errors
/// When the listener itself fails.
pub async fn serve_unix<X: Exports>(
    listener: UnixListener,
    exports: Arc<X>,
    shards: Arc<Shards>,
) -> io::Result<()> {
    let limit = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = permit(&limit).await;
        let Some((stream, _)) = accepted(listener.accept().await).await? else { continue };
        let stream = stream.into_std()?;
        let exports = Arc::clone(&exports);
        let serve = async move { serve_connection(UnixStream::from_std(stream)?, &*exports).await };
        shards.spawn(log_end(serve, permit));
    }
}

/// Accepts connections on a TCP socket until dropped, and serves each on one of the shards in turn; with `tls`, none without it.
///
/// # Errors
/// When the listener itself fails.
pub async fn serve_tcp<X: Exports>(
    listener: TcpListener,
    exports: Arc<X>,
    tls: Option<Tls>,
    shards: Arc<Shards>,
) -> io::Result<()> {
    let limit = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = permit(&limit).await;
        let Some((stream, _)) = accepted(listener.accept().await).await? else { continue };
        // A reply must not wait for the next one to fill a packet.
        stream.set_nodelay(true)?;
        let stream = stream.into_std()?;
        let (exports, tls) = (Arc::clone(&exports), tls.clone());
        let serve = async move {
            let stream = TcpStream::from_std(stream)?;
            match tls {
                None => serve_connection(stream, &*exports).await,
                Some(tls) => serve_secured(stream, &tls, &*exports).await,
            }
        };
        shards.spawn(log_end(serve, permit));
    }
}

/// Serves one client from the greeting to its end.
///
/// # Errors
/// When the client breaks the protocol or the connection, or chooses nothing in time.
pub async fn serve_connection<S, X>(mut socket: S, exports: &X) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    let chosen = handshake::negotiate(&mut socket, exports, Security::None);
    match time::timeout(HANDSHAKE_TIMEOUT, chosen).await?? {
        Outcome::Chosen(session) => transmission::serve(socket, session).await,
        Outcome::Left | Outcome::Secure(_) => Ok(()),
    }
}

/// As [`serve_connection`], over TLS.
async fn serve_secured<S, X>(mut socket: S, tls: &Tls, exports: &X) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    X: Exports,
{
    let chosen = async {
        let begun = handshake::negotiate(&mut socket, exports, Security::Required).await?;
        let Outcome::Secure(client) = begun else { return Ok(None) };
        let mut stream = tls.accept(socket).await?;
        match handshake::resume(&mut stream, exports, client).await? {
            Outcome::Chosen(session) => Ok(Some((stream, session))),
            Outcome::Left | Outcome::Secure(_) => Ok::<_, io::Error>(None),
        }
    };
    match time::timeout(HANDSHAKE_TIMEOUT, chosen).await?? {
        Some((stream, session)) => transmission::serve(stream, session).await,
        None => Ok(()),
    }
}

/// Waits until there may be one more connection. The others wait in the listener's queue.
async fn permit(limit: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(limit).acquire_owned().await.ok()
}

/// Passes over what concerns one client only, or goes by: a connection that was given up, a want of descriptors.
async fn accepted<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ECONNABORTED | libc::EINTR) => Ok(None),
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                tracing::warn!(%error, "cannot accept a connection");
                time::sleep(time::Duration::from_millis(100)).await;
                Ok(None)
            }
            _ => Err(error),
        },
    }
}

/// Serves a connection, which counts until it ends.
async fn log_end(serve: impl Future<Output = io::Result<()>>, _permit: Option<OwnedSemaphorePermit>) {
    if let Err(error) = serve.await {
        tracing::debug!(%error, "an NBD connection ended");
    }
}
