//! Clients that another task or another daemon served before ([`crate::gate`]).
//!
//! Such a client goes on behind its handshake. What was read from it already comes before the bytes of its
//! socket, and what did not leave yet leaves first.

use std::io::{self, IoSlice};
use std::net::TcpStream as StdTcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use super::handshake::Session;
use super::transmission::{self, Before};
use crate::block::{Caller, Exports, Resources, Unopened};
use crate::gate::{Guest, Parked, Told};

/// A stream that another task may go on with.
pub(super) trait Movable {
    /// A copy of its socket, and the bytes that come before those of the socket. Nothing where it cannot go.
    fn moved(&self) -> Option<io::Result<(OwnedFd, &[u8])>>;
}

impl Movable for UnixStream {
    fn moved(&self) -> Option<io::Result<(OwnedFd, &[u8])>> {
        Some(self.as_fd().try_clone_to_owned().map(|socket| (socket, &[][..])))
    }
}

impl Movable for TcpStream {
    fn moved(&self) -> Option<io::Result<(OwnedFd, &[u8])>> {
        Some(self.as_fd().try_clone_to_owned().map(|socket| (socket, &[][..])))
    }
}

/// The state of the encryption cannot be taken out.
impl<S> Movable for TlsStream<S> {
    fn moved(&self) -> Option<io::Result<(OwnedFd, &[u8])>> {
        None
    }
}

/// A stream from which something was read already.
struct Behind<S> {
    read: Vec<u8>,
    /// How much of that was taken.
    taken: usize,
    stream: S,
}

impl<S: Movable> Movable for Behind<S> {
    fn moved(&self) -> Option<io::Result<(OwnedFd, &[u8])>> {
        let left = self.read.get(self.taken..).unwrap_or_default();
        Some(self.stream.moved()?.map(|(socket, _)| (socket, left)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Behind<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = this.read.get(this.taken..).unwrap_or_default();
        if left.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, into);
        }
        let now = left.len().min(into.remaining());
        into.put_slice(left.get(..now).unwrap_or_default());
        this.taken += now;
        if this.taken == this.read.len() {
            (this.read, this.taken) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Behind<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

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
    let skip_bytes = u32::try_from(told.fact("skip")).map_err(|_| wrong("too many bytes are to be skipped"))?;
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
    let stream = Behind { read, taken: 0, stream };
    transmission::serve(stream, session, seat, guest, Before { unsent, skip_bytes }).await
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a client that was handed over: {what}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn what_was_read_comes_before_the_socket() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut client, server) = UnixStream::pair().unwrap();
            let mut behind = Behind { read: b"abc".to_vec(), taken: 0, stream: server };
            client.write_all(b"def").await.unwrap();
            let mut two = [0; 2];
            behind.read_exact(&mut two).await.unwrap();
            assert_eq!((&two, behind.moved().unwrap().unwrap().1), (b"ab", &b"c"[..]));
            let mut four = [0; 4];
            behind.read_exact(&mut four).await.unwrap();
            assert_eq!((&four, behind.moved().unwrap().unwrap().1), (b"cdef", &b""[..]));
        });
    }
}
