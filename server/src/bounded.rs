//! A connection of a client that is not trusted: it has an end, and a seat among few.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::caller::Connection;

/// A connection that lasts no longer than its deadline. It keeps its seat until it is dropped.
#[derive(Debug)]
pub struct Bounded<S, P> {
    stream: S,
    deadline: Pin<Box<Sleep>>,
    lasting: Option<Connection>,
    _seat: P,
}

impl<S, P> Bounded<S, P> {
    /// A connection in a seat, which ends after `patience`.
    pub(crate) fn new(stream: S, patience: Duration, seat: P) -> Self {
        Self { stream, deadline: Box::pin(tokio::time::sleep(patience)), lasting: None, _seat: seat }
    }

    /// The same, without an end once it is said that it may last.
    pub(crate) fn unless(self, lasting: Connection) -> Self {
        Self { lasting: Some(lasting), ..self }
    }

    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.lasting.as_ref().is_some_and(Connection::lasts) {
            return Ok(());
        }
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::TimedOut, "the connection lasted too long")),
            Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin, P: Unpin> AsyncRead for Bounded<S, P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin, P: Unpin> AsyncWrite for Bounded<S, P> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
