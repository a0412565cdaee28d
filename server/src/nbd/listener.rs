//! Sockets, and which shard gets a connection.

use std::{convert::Infallible, io, sync::Arc};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixListener, UnixStream},
};

use super::handed;
use super::handshake::{Outcome, Security};
use super::transmission::Before;
use super::{PROTOCOL, PROTOCOL_OVER_TCP, Tls, handshake, transmission};
use crate::block::{Caller, Exports, Limits, Newcomer, Newcomers, Resources, Visit, accepted};
use crate::gate::{Guest, Movable, Next};
use crate::listening::Listener;
use crate::runtime::Shards;

/// A client that has not chosen an export yet, for a person.
const NEWCOMER: &str = "an NBD client in its handshake";

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
    let gate = limits.gate.clone();
    let resources = Resources::new(limits);
    let mut newcomers = Newcomers::default();
    loop {
        let (exports, resources) = (Arc::clone(&exports), Arc::clone(&resources));
        let came = match gate.next(PROTOCOL, listener.accept()).await {
            Next::Came(came) => came,
            Next::Handed(parked, guest) => {
                let serve = async move { handed::serve(parked, &*exports, &resources, &guest).await };
                shards.spawn(log_end(serve));
                continue;
            }
        };
        let Some((stream, _)) = accepted(came).await? else { continue };
        let (stream, guest) = (stream.into_std(), gate.guest(NEWCOMER));
        let newcomer = newcomers.admit(&resources.limits).await;
        let serve = async move {
            let visit = Visit { exports: &*exports, caller: Caller::default() };
            serve_plain(UnixStream::from_std(stream?)?, &visit, &resources, (newcomer, guest)).await
        };
        shards.spawn(log_end(serve));
    }
}

/// Accepts connections over TCP until dropped, and serves each on one of the shards in turn; where the
/// listener has a key, none without TLS.
pub async fn serve_tcp<X: Exports>(
    mut listener: Listener<Option<Tls>>,
    exports: Arc<X>,
    shards: Arc<Shards>,
    limits: Limits,
) -> Infallible {
    let tls = listener.loaded().await;
    let gate = limits.gate.clone();
    let resources = Resources::new(limits);
    let mut newcomers = Newcomers::default();
    loop {
        let (stream, peer) = match gate.next(PROTOCOL_OVER_TCP, listener.accept()).await {
            Next::Came(came) => came,
            Next::Handed(..) if tls.is_some() => {
                tracing::warn!("an NBD client without TLS is not taken up: only those with TLS are served");
                continue;
            }
            Next::Handed(parked, guest) => {
                let (exports, resources) = (Arc::clone(&exports), Arc::clone(&resources));
                let serve = async move { handed::serve(parked, &*exports, &resources, &guest).await };
                shards.spawn(log_end(serve));
                continue;
            }
        };
        let (stream, guest) = (stream.into_std(), gate.guest(NEWCOMER));
        let newcomer = newcomers.admit(&resources.limits).await;
        let (exports, tls, resources) = (Arc::clone(&exports), tls.clone(), Arc::clone(&resources));
        let serve = async move {
            let stream = TcpStream::from_std(stream?)?;
            // A reply must not wait for the next one to fill a packet.
            stream.set_nodelay(true)?;
            // A client whose machine is gone gives its seat back, some hours later.
            SockRef::from(&stream).set_keepalive(true)?;
            let caller = Caller { address: Some(peer.ip()), name: None };
            let visit = Visit { exports: &*exports, caller };
            match tls {
                None => serve_plain(stream, &visit, &resources, (newcomer, guest)).await,
                Some(tls) => serve_secured(stream, &tls, &visit, &resources, (newcomer, guest)).await,
            }
        };
        shards.spawn(log_end(serve));
    }
}

/// Serves one client from the greeting to its end.
async fn serve_plain<S, X>(
    mut socket: S,
    exports: &Visit<'_, X>,
    resources: &Arc<Resources>,
    (newcomer, guest): (Newcomer, Guest),
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Movable,
    X: Exports,
{
    let chosen = handshake::negotiate(&mut socket, exports, resources, Security::None);
    match newcomer.in_time(chosen, resources).await? {
        Outcome::Chosen(session, seat) => {
            transmission::serve(socket, session, seat, &guest, Before::default()).await
        }
        Outcome::Left | Outcome::Secure(_) => Ok(()),
    }
}

/// As [`serve_plain`], over TLS.
async fn serve_secured<S, X>(
    mut socket: S,
    tls: &Tls,
    exports: &Visit<'_, X>,
    resources: &Arc<Resources>,
    (newcomer, guest): (Newcomer, Guest),
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Movable,
    X: Exports,
{
    let chosen = async {
        let begun = handshake::negotiate(&mut socket, exports, resources, Security::Required).await?;
        let Outcome::Secure(client) = begun else { return Ok(None) };
        let mut stream = tls.accept(socket).await?;
        match handshake::resume(&mut stream, exports, resources, client).await? {
            Outcome::Chosen(session, seat) => Ok(Some((stream, session, seat))),
            Outcome::Left | Outcome::Secure(_) => Ok(None),
        }
    };
    match newcomer.in_time(chosen, resources).await? {
        Some((stream, session, seat)) => {
            transmission::serve(stream, session, seat, &guest, Before::default()).await
        }
        None => Ok(()),
    }
}

/// Serves a connection, and says in the log why it ended.
async fn log_end(serve: impl Future<Output = io::Result<()>>) {
    if let Err(error) = serve.await {
        tracing::debug!(%error, "an NBD connection ended");
    }
}
