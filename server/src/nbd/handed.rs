//! Clients that another task or another daemon served before ([`crate::gate`]).
//!
//! Such a client goes on behind its handshake. What was read from it already comes before the bytes of its
//! socket, and what did not leave yet leaves first.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::handshake::Session;
use super::transmission::{self, Before};
use crate::block::{Caller, Exports, Resources, Unopened};
use crate::gate::{Behind, Guest, Movable, Parked, Told};

/// Serves a client until its end.
///
/// # Errors
/// Its volume cannot be opened any more, or its connection ends.
pub(super) async fn serve<X: Exports>(
    parked: Parked,
    exports: &X,
    resources: &Arc<Resources>,
    guest: &Guest,
) -> io::Result<()> {
    let Parked { socket, told, bytes } = parked;
    let server = (exports, resources, guest);
    if socket_domain(&socket)? == AddressFamily::UNIX {
        let stream = StdUnixStream::from(socket);
        stream.set_nonblocking(true)?;
        return go_on(UnixStream::from_std(stream)?, Caller::default(), (told, bytes), server).await;
    }
    let stream = StdTcpStream::from(socket);
    stream.set_nonblocking(true)?;
    let peer = stream.peer_addr()?;
    let caller = Caller { address: Some(peer.ip().to_canonical()), name: None };
    go_on(TcpStream::from_std(stream)?, caller, (told, bytes), server).await
}

async fn go_on<S, X>(
    stream: S,
    caller: Caller<'_>,
    (told, mut read): (Told, Vec<u8>),
    (exports, resources, guest): (&X, &Arc<Resources>, &Guest),
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Movable,
    X: Exports,
{
    let split = usize::try_from(told.read_bytes).ok().filter(|split| *split <= read.len());
    let unsent = read.split_off(split.ok_or_else(|| wrong("more bytes were read than there are"))?);
    let skip_bytes =
        u32::try_from(told.fact("skip")).map_err(|_| wrong("too many bytes are to be skipped"))?;
    let volume = &told.volume;
    let export = exports.open(volume, caller).await.map_err(|why| {
        let why = match why {
            Unopened::Unknown => "there is no such volume any more".to_owned(),
            Unopened::Unavailable(why) => why,
        };
        tracing::error!(volume, why, "an NBD client cannot be taken up, and is disconnected");
        io::Error::other(why)
    })?;
    let seat = resources.seat().ok_or_else(|| wrong("too many clients"))?;
    let session =
        Session { export, structured: told.is("structured"), base_allocation: told.is("base:allocation") };
    let stream = Behind::new(read, stream);
    transmission::serve(stream, session, seat, guest, Before { unsent, skip_bytes }).await
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a client that was handed over: {what}"))
}
