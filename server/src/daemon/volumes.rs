//! Volumes and their snapshots as NBD exports, named like the datasets.
//!
//! Each connection has an export of its own, with its own handle on the volume: two readers do not disturb each other's
//! read-ahead, and closing a pool by force can take the volume from each connection. What is encrypted is listed once
//! its key is loaded.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use engine::dataset::dsl::{Dataset, Dsl, Kind, Walk};
use engine::dataset::zvol::Zvol;
use tokio::net::{TcpListener, UnixListener};

use super::{Daemon, NbdAddresses, OpenPool, lock};
use crate::api::{self, ApiError, ServedVolume};
use crate::nbd::{self, Errno, Export, ExportError, Exports, Extent};
use crate::runtime::Shards;
use crate::socket::SocketFile;

/// Request size to tell clients where a volume's own block size is not one that the protocol allows.
const DEFAULT_BLOCK_BYTES: u32 = 4096;

/// How long a connection may take to notice that its client is gone.
const SETTLE_LIMIT: Duration = Duration::from_millis(500);
/// How often that is looked at.
const SETTLE_STEP: Duration = Duration::from_millis(5);

/// A volume, or a snapshot of one, that can be read.
#[derive(Debug, Clone)]
pub struct Volume {
    name: String,
    size_bytes: u64,
    block_bytes: u32,
}

/// One connection's view of a volume.
#[derive(Debug)]
pub struct VolumeExport {
    name: String,
    size_bytes: u64,
    block_bytes: u32,
    /// Taken away when the pool is closed by force.
    zvol: RwLock<Option<Arc<Zvol>>>,
}

impl VolumeExport {
    fn zvol(&self) -> Result<Arc<Zvol>, ExportError> {
        self.zvol.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(|| ExportError {
            errno: Errno::Shutdown,
            message: format!("the pool of '{}' was exported", self.name),
        })
    }

    fn failed(&self, error: engine::Error) -> ExportError {
        tracing::warn!(volume = self.name, %error, "cannot read from a volume");
        ExportError { errno: Errno::Io, message: format!("{}: {error}", self.name) }
    }
}

impl Export for VolumeExport {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        self.zvol()?.read_at(offset, into).await.map_err(|error| self.failed(error))
    }

    async fn extent(&self, offset: u64) -> Result<Extent, ExportError> {
        let zvol = self.zvol()?;
        let span = zvol.object().span(offset).await.map_err(|error| self.failed(error))?;
        Ok(Extent { len_bytes: span.end.saturating_sub(offset), is_hole: span.is_hole })
    }
}

/// The volumes of all open pools, for the NBD server.
#[derive(Debug, Clone)]
pub struct Volumes(Arc<Daemon>);

impl Exports for Volumes {
    type Export = VolumeExport;

    async fn names(&self) -> Vec<String> {
        let pools = self.0.open_pools();
        pools.iter().flat_map(|pool| pool.volumes()).map(|volume| volume.name).collect()
    }

    async fn open(&self, name: &str) -> Option<Arc<VolumeExport>> {
        let pool = self.0.pool_of(name).ok()?;
        match pool.connect(name).await {
            Ok(export) => Some(export),
            Err(error) => {
                tracing::debug!(name, %error, "no such export");
                None
            }
        }
    }
}

impl OpenPool {
    /// The volumes that can be read.
    pub fn volumes(&self) -> Vec<Volume> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks for the volumes that can be read, each followed by its snapshots. Keeps those that were found before an error.
    pub(super) async fn find_volumes(&self) -> engine::Result<()> {
        let mut volumes = Vec::new();
        let result = self.add_volumes(&mut volumes).await;
        *self.volumes.write().unwrap_or_else(PoisonError::into_inner) = volumes;
        result
    }

    async fn add_volumes(&self, into: &mut Vec<Volume>) -> engine::Result<()> {
        let mut first_error = None;
        let dsl = self.dsl().await?;
        for entry in dsl.list(None, Walk::HEADS).await? {
            let (Kind::Volume, Some(head)) = (entry.kind, entry.dataset()) else { continue };
            let snapshots = dsl.snapshots(head).await?;
            let shown = snapshots.iter().filter(|snapshot| !snapshot.name.contains('%'));
            for dataset in std::iter::once(head).chain(shown) {
                match self.open_volume(&dsl, dataset).await {
                    Ok((volume, _)) => into.push(volume),
                    Err(engine::Error::KeyNotLoaded { .. }) => {}
                    Err(error) => {
                        first_error.get_or_insert(error);
                    }
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn open_volume(&self, dsl: &Dsl, dataset: &Dataset) -> engine::Result<(Volume, Arc<Zvol>)> {
        let zvol = Zvol::open(&dsl.open_objset(dataset).await?).await?;
        let block_bytes = u32::try_from(zvol.block_size()).ok();
        let block_bytes = block_bytes
            .filter(|bytes| bytes.is_power_of_two() && (512..=nbd::MAX_REQUEST_BYTES).contains(bytes));
        let volume = Volume {
            name: dataset.name.clone(),
            size_bytes: zvol.size(),
            block_bytes: block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES),
        };
        Ok((volume, zvol))
    }

    async fn connect(&self, name: &str) -> engine::Result<Arc<VolumeExport>> {
        let dsl = self.dsl().await?;
        let dataset = dsl.find(name).await?;
        let (Volume { name, size_bytes, block_bytes }, zvol) = self.open_volume(&dsl, &dataset).await?;
        let export = VolumeExport { name, size_bytes, block_bytes, zvol: RwLock::new(Some(zvol)) };
        let export = Arc::new(export);
        match lock(&self.connections).as_mut() {
            Some(connections) => {
                connections.retain(|other| other.strong_count() > 0);
                connections.push(Arc::downgrade(&export));
                Ok(export)
            }
            None => Err(engine::Error::NotFound(export.name.clone())),
        }
    }

    /// Waits a moment for clients that have gone away, as long as their connections still know nothing of it. Names of the volumes that
    /// have a client all the same.
    ///
    /// Blocks the thread, which is the request's own.
    pub(super) fn connected_volumes_settled(&self) -> Vec<String> {
        let began = Instant::now();
        loop {
            let connected = self.connected_volumes();
            if connected.is_empty() || began.elapsed() > SETTLE_LIMIT {
                return connected;
            }
            std::thread::sleep(SETTLE_STEP);
        }
    }

    /// Names of the volumes that have a client.
    pub(super) fn connected_volumes(&self) -> Vec<String> {
        lock(&self.connections)
            .iter()
            .flatten()
            .filter_map(Weak::upgrade)
            .map(|connection| connection.name.clone())
            .collect()
    }

    /// Takes the volumes from all clients, for good: what they read from now on fails.
    pub(super) fn disconnect(&self) {
        let connections = lock(&self.connections).take();
        for connection in connections.iter().flatten().filter_map(Weak::upgrade) {
            *connection.zvol.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

impl Daemon {
    /// Serves the volumes of all pools that are open now or later, on `shards`, until the future is dropped.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn serve_volumes(
        self: Arc<Self>,
        socket: (UnixListener, SocketFile),
        tcp: Option<TcpListener>,
        shards: Arc<Shards>,
    ) -> std::io::Result<()> {
        let (unix, file) = socket;
        let address = tcp.as_ref().map(TcpListener::local_addr).transpose()?;
        // Only the first server's address is told; there is one a process.
        let _ = self.nbd.set(NbdAddresses { socket: file.path().to_owned(), tcp: address });
        let volumes = Arc::new(Volumes(self));
        let on_unix = nbd::serve_unix(unix, Arc::clone(&volumes), Arc::clone(&shards));
        match tcp {
            Some(tcp) => tokio::try_join!(on_unix, nbd::serve_tcp(tcp, volumes, shards)).map(|_| ()),
            None => on_unix.await,
        }
    }

    /// The volumes that are served.
    ///
    /// # Errors
    /// None.
    pub fn list_volumes(&self, _: api::ListVolumes) -> Result<Vec<ServedVolume>, ApiError> {
        Ok(self.open_pools().iter().flat_map(|pool| self.served_volumes(pool)).collect())
    }

    pub(super) fn served_volumes(&self, pool: &OpenPool) -> Vec<ServedVolume> {
        let served = |volume: Volume| ServedVolume {
            uri: self.nbd.get().map(|nbd| nbd.uri(&volume.name)),
            tcp_uri: self.nbd.get().and_then(|nbd| Some(tcp_uri(nbd.tcp?, &volume.name))),
            name: volume.name,
            size_bytes: volume.size_bytes,
            block_bytes: volume.block_bytes,
        };
        pool.volumes().into_iter().map(served).collect()
    }
}

impl NbdAddresses {
    fn uri(&self, export: &str) -> String {
        let socket = encode(&self.socket.to_string_lossy(), b"/");
        format!("nbd+unix:///{}?socket={socket}", encode(export, b"/@"))
    }
}

fn tcp_uri(address: SocketAddr, export: &str) -> String {
    format!("nbd://{address}/{}", encode(export, b"/@"))
}

/// Percent-encodes what may not stand in a URI as it is.
fn encode(text: &str, also_plain: &[u8]) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || also_plain.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_survives_any_name() {
        let nbd = NbdAddresses { socket: "/run/my pools/nbd.sock".into(), tcp: None };
        assert_eq!(
            nbd.uri("tank/a b:c@100%"),
            "nbd+unix:///tank/a%20b%3Ac@100%25?socket=/run/my%20pools/nbd.sock"
        );
        let address = "[::1]:10809".parse().unwrap();
        assert_eq!(tcp_uri(address, "tank/v"), "nbd://[::1]:10809/tank/v");
    }
}
