//! Clients of volumes: who they are, what they did, and what they wait for.
//!
//! A request that takes longer than [`SLOW`] is reported: by a warning, by an event of its pool, in
//! `cenote shares`, and among the counters of its client. What it waits for is what a person has to look at.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use engine::events::{field, text};

use crate::api::{self, Numbers, WaitingRequest};
use crate::block::{BlockOperation, BlockRequest, ExportError, Layer, Pending, SLOW};
use crate::daemon::{OpenPool, VolumeExport, lock};

/// The event of a request that takes long.
const EVENT: &str = "volume_delay";

/// What a client did.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Done {
    reads: AtomicU64,
    nread: AtomicU64,
    writes: AtomicU64,
    nwritten: AtomicU64,
}

/// Reads, bytes read, writes and bytes written, as counters of a client.
pub(in crate::daemon) fn transfers(numbers: [u64; 4]) -> Numbers {
    let names = ["reads", "nread", "writes", "nwritten"].map(str::to_owned);
    Numbers(names.into_iter().zip(numbers).collect())
}

impl Done {
    fn read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.nread.fetch_add(bytes, Ordering::Relaxed);
    }

    fn wrote(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.nwritten.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reads, bytes read, writes, bytes written.
    pub fn numbers(&self) -> [u64; 4] {
        let Self { reads, nread, writes, nwritten } = self;
        [reads, nread, writes, nwritten].map(|number| number.load(Ordering::Relaxed))
    }
}

/// Reads, writes and copies are counted once they are done.
impl Layer for Done {
    async fn around<T: Send, F>(&self, asked: BlockRequest, request: Pin<&mut F>) -> Result<T, ExportError>
    where
        F: Future<Output = Result<T, ExportError>> + Send,
    {
        let answer = request.await?;
        match asked.operation {
            BlockOperation::Read => self.read(asked.len_bytes),
            BlockOperation::Write => self.wrote(asked.len_bytes),
            _ => {}
        }
        Ok(answer)
    }

    fn copied(&self, _: u64, len_bytes: u64) {
        self.wrote(len_bytes);
    }
}

/// Who connects.
#[derive(Debug, Clone)]
pub(in crate::daemon) struct Client {
    /// The protocol.
    pub protocol: &'static str,
    /// The initiator's name, or its address.
    pub name: Option<String>,
}

impl Client {
    /// One that has no name.
    pub fn unnamed(protocol: &'static str) -> Self {
        Self { protocol, name: None }
    }
}

/// A client of a volume, for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::daemon) struct Connected {
    pub volume: String,
    /// What kind of client it is, and which one.
    pub client: String,
}

impl Connected {
    /// The client of an export.
    pub fn of(export: &VolumeExport) -> Self {
        let Client { protocol, name } = &export.layer.client;
        let kind = match *protocol {
            "nbd" => "an NBD client",
            "iscsi" => "an iSCSI initiator",
            "vhost-user" => "a virtual machine",
            "ublk" => "a block device of this machine",
            "load" => "a load of the lab",
            other => other,
        };
        let client = match name {
            Some(name) => format!("{kind} ({name})"),
            None => kind.to_owned(),
        };
        Self { volume: export.inner.name().to_string(), client }
    }

    /// Who is connected to what, for a message: each kind of client of a volume once.
    pub fn sentence(connected: &[Self]) -> String {
        let mut told: Vec<String> = Vec::new();
        for Self { volume, client } in connected {
            let one = format!("{client} is connected to '{volume}'");
            if !told.contains(&one) {
                told.push(one);
            }
        }
        told.join("\n")
    }

    /// The clients among these, each once.
    pub fn clients(connected: &[Self]) -> String {
        let mut told: Vec<&str> = Vec::new();
        for Self { client, .. } in connected {
            if !told.contains(&client.as_str()) {
                told.push(client);
            }
        }
        told.join(", ")
    }
}

impl OpenPool {
    /// The clients of its volumes.
    pub(in crate::daemon) fn connected_clients(&self) -> Vec<api::Client> {
        let connections = lock(&self.connections);
        let connected = connections.iter().flatten().filter_map(Weak::upgrade);
        let client = |export: Arc<VolumeExport>| {
            let connection = &export.layer;
            api::Client {
                kind: connection.client.protocol.to_owned(),
                id: connection.id,
                pool: self.name().to_owned(),
                dataset: export.inner.name().to_string(),
                client: connection.client.name.clone(),
                mountpoint: None,
                counters: transfers(connection.done.numbers()),
                waiting: waiting(&export),
            }
        };
        connected.map(client).collect()
    }

    /// Takes the volumes from all clients, for good: what they read from now on fails.
    pub(in crate::daemon) fn disconnect(&self) {
        let connections = lock(&self.connections).take();
        for connection in connections.iter().flatten().filter_map(Weak::upgrade) {
            connection.inner.access.remove();
        }
    }

    /// What clients of a volume wait for, each request with its client.
    pub(in crate::daemon) fn waiting_requests(&self, volume: &str) -> Vec<WaitingRequest> {
        let connections = lock(&self.connections);
        let connected = connections.iter().flatten().filter_map(Weak::upgrade);
        let meant = connected.filter(|connected| *connected.inner.name() == *volume);
        meant.flat_map(|export| waiting(&export)).collect()
    }

    /// Tells of requests that take long, of each client the oldest, each once.
    pub(in crate::daemon) fn tell_of_slow_requests(&self) {
        let connected: Vec<_> = match lock(&self.connections).as_ref() {
            Some(connections) => connections.iter().filter_map(Weak::upgrade).collect(),
            None => return,
        };
        for export in connected {
            let slow = export.layer.under_way.newly_older_than(SLOW);
            let Some(oldest) = slow.first() else { continue };
            let (request, count) = (told(&export, oldest), slow.len() as u64);
            let WaitingRequest { protocol, client, what, offset, length, seconds, waits_for } = &request;
            let (volume, client) = (&*export.inner.name(), client.as_deref().unwrap_or_default());
            tracing::warn!(
                volume,
                protocol,
                client,
                request = what,
                offset,
                length,
                seconds,
                waits_for,
                count,
                "a request of a volume's client takes long"
            );
            let fields = vec![
                text("dataset", volume),
                text("protocol", protocol),
                text("client", client),
                text("request", what),
                field("offset", *offset),
                field("length", *length),
                field("seconds", *seconds),
                text("waits_for", waits_for),
                field("requests", count),
            ];
            self.view().vdevs().reporter().sysevent(EVENT, None, fields);
        }
    }
}

fn waiting(export: &VolumeExport) -> Vec<WaitingRequest> {
    export.layer.under_way.older_than(SLOW).iter().map(|pending| told(export, pending)).collect()
}

fn told(export: &VolumeExport, pending: &Pending) -> WaitingRequest {
    let Client { protocol, name } = &export.layer.client;
    WaitingRequest {
        protocol: (*protocol).to_owned(),
        client: name.clone(),
        what: pending.asked.what.to_owned(),
        offset: pending.asked.offset,
        length: pending.asked.len_bytes,
        seconds: pending.began.elapsed().as_secs(),
        waits_for: pending.waits_for.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;
    use crate::block::FailureKind;

    #[test]
    fn only_what_was_done_is_counted() {
        let done = Done::default();
        let failure = || ExportError { kind: FailureKind::Io, message: String::new() };
        let ask = |operation, fails: bool| {
            let asked = BlockRequest { operation, offset: 0, len_bytes: 512, is_stable: false };
            let answer = if fails { Err(failure()) } else { Ok(()) };
            let answered = done.around(asked, pin!(ready(answer.clone()))).now_or_never();
            assert_eq!(answered, Some(answer));
        };
        ask(BlockOperation::Read, false);
        ask(BlockOperation::Read, false);
        ask(BlockOperation::Write, false);
        assert_eq!(done.numbers(), [2, 1024, 1, 512]);
        ask(BlockOperation::Read, true);
        ask(BlockOperation::Write, true);
        ask(BlockOperation::Trim, false);
        ask(BlockOperation::Flush, false);
        ask(BlockOperation::Copy, false);
        assert_eq!(done.numbers(), [2, 1024, 1, 512]);
        done.copied(0, 8);
        assert_eq!(done.numbers(), [2, 1024, 2, 520]);
    }
}
