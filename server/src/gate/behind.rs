//! Streams that another task may go on with, and streams from which something was read already.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// A stream that another task may go on with.
pub(crate) trait Movable {
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
#[derive(Debug)]
pub(crate) struct Behind<S> {
    read: Vec<u8>,
    /// How much of that was taken.
    taken: usize,
    stream: S,
}

impl<S> Behind<S> {
    /// A stream behind these bytes.
    pub fn new(read: Vec<u8>, stream: S) -> Self {
        Self { read, taken: 0, stream }
    }
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn what_was_read_comes_before_the_socket() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut client, server) = UnixStream::pair().unwrap();
            let mut behind = Behind::new(b"abc".to_vec(), server);
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
