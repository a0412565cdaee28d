//! Clients that have not chosen an export yet, and what may be overlooked when one is accepted.

use std::collections::VecDeque;
use std::io;

use tokio::sync::oneshot;
use tokio::time::{self, Instant};

use super::limits::{Limits, Resources};

/// The clients of a listener that have not chosen an export yet, in the order in which they came.
#[derive(Default)]
pub(crate) struct Newcomers(VecDeque<(Instant, oneshot::Sender<()>)>);

impl Newcomers {
    /// One more. When there are too many the first of them is sent away, as soon as it had its moment.
    pub(crate) async fn admit(&mut self, limits: &Limits) -> Newcomer {
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
pub(crate) struct Newcomer {
    /// Only [`Newcomers`] has the other end.
    sent_away: oneshot::Receiver<()>,
}

impl Newcomer {
    /// Lets it choose, unless it takes too long.
    pub(crate) async fn in_time<T>(
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
pub(crate) async fn accepted<T>(result: io::Result<T>) -> io::Result<Option<T>> {
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
