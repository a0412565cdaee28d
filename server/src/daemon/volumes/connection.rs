//! The connection of a client to a volume: the volume, and what is done around each request of this client.
//!
//! | layer, the outermost first | what it does |
//! |---|---|
//! | `under_way` | lists requests that wait |
//! | `recorder` | records requests for `cenote lab record` |
//! | `link` | waits as long as a modelled link takes |
//! | `done` | counts what was read and written |
//!
//! A further concern is a type with a [`Layer`] of its own, a field here, and a line in `around`.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::modelled::Link;

use super::clients::{Client, Done};
use super::open_volume::OpenVolume;
use super::recording::Recorder;
use crate::block::{BlockRequest, ExportError, Layer, Layered, UnderWay};

/// One connection's view of a volume.
pub type VolumeExport = Layered<Connection, OpenVolume>;

/// The number of the next connection.
static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// A client of a volume, and what is done around its requests.
#[derive(Debug)]
pub struct Connection {
    pub(in crate::daemon) client: Client,
    /// The name that the volume had when the client came, for the log.
    volume: String,
    /// The number of the connection.
    pub(in crate::daemon) id: u64,
    pub(in crate::daemon) under_way: Arc<UnderWay>,
    recorder: Arc<Recorder>,
    link: Option<Arc<Link>>,
    pub(in crate::daemon) done: Done,
}

impl Connection {
    pub(super) fn new(
        client: Client,
        volume: String,
        recorder: Arc<Recorder>,
        link: Option<Arc<Link>>,
    ) -> Self {
        let id = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
        let Client { protocol, name } = &client;
        let client_name = name.as_deref();
        tracing::info!(
            volume,
            protocol,
            client = client_name,
            connection = id,
            "a client of a volume connected"
        );
        Self { client, volume, id, under_way: Arc::default(), recorder, link, done: Done::default() }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Self { client: Client { protocol, name }, volume, id, .. } = self;
        let [reads, nread, writes, nwritten] = self.done.numbers();
        tracing::info!(
            volume,
            protocol,
            client = name.as_deref(),
            connection = id,
            reads,
            nread,
            writes,
            nwritten,
            "a client of a volume is gone"
        );
    }
}

impl Layer for Connection {
    async fn around<T: Send, F>(&self, asked: BlockRequest, request: Pin<&mut F>) -> Result<T, ExportError>
    where
        F: Future<Output = Result<T, ExportError>> + Send,
    {
        let counted = pin!(self.done.around(asked, request));
        let linked = pin!(self.link.around(asked, counted));
        let recorded = pin!(self.recorder.around(asked, linked));
        self.under_way.around(asked, recorded).await
    }

    fn copied(&self, offset: u64, len_bytes: u64) {
        self.done.copied(offset, len_bytes);
        self.recorder.copied(offset, len_bytes);
    }

    fn copied_away(&self, offset: u64, len_bytes: u64) {
        self.recorder.copied_away(offset, len_bytes);
    }

    fn under_way(&self) -> Option<&Arc<UnderWay>> {
        Some(&self.under_way)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::sync::Notify;

    use super::*;
    use crate::block::BlockOperation;

    #[test]
    fn a_request_is_listed_while_it_waits_and_counted_when_it_is_done() {
        let connection = Connection::new(Client::unnamed("nbd"), "tank/v".to_owned(), Arc::default(), None);
        let asked =
            BlockRequest { operation: BlockOperation::Read, offset: 4096, len_bytes: 512, is_stable: false };
        let answer = Notify::new();
        let request = pin!(async {
            answer.notified().await;
            Ok(7)
        });
        let mut asking = Box::pin(connection.around(asked, request));
        assert_eq!((&mut asking).now_or_never(), None);
        assert_eq!(connection.under_way.older_than(Duration::ZERO).len(), 1);
        assert_eq!(connection.done.numbers()[0], 0);
        answer.notify_one();
        assert_eq!(asking.now_or_never(), Some(Ok(7)));
        assert_eq!(connection.done.numbers()[..2], [1, 512]);
        assert!(connection.under_way().unwrap().older_than(Duration::ZERO).is_empty());
    }
}
