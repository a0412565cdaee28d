//! Where volumes are served, as the daemon is told when it starts, and where clients find them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::UnixListener;

use super::exports::NO_KEY;
use super::list::Volume;
use crate::api::{self, ApiError, ServedVolume};
use crate::block::{Limits, Protocol};
use crate::daemon::{Daemon, NbdAddresses, OpenPool, Volumes};
use crate::listening::{Listener, Listening};
use crate::runtime::Shards;
use crate::socket::SocketFile;
use crate::{iscsi, nbd, vhost_user};

/// The service of NBD over TCP, for messages.
pub const TCP: &str = "NBD over TCP";
/// The service of iSCSI, for messages.
pub const ISCSI: &str = "iSCSI";
/// The service of NFS, for messages.
pub const NFS: &str = "NFS";

/// Where volumes are served beside the Unix socket.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// NBD over TCP; nothing is served without TLS where there is a key.
    pub tcp: Option<Listener<Option<nbd::Tls>>>,
    /// NBD over TCP is with TLS.
    pub has_tls: bool,
    /// iSCSI; nothing is served without a proof where there are secrets.
    pub iscsi: Option<Listener<Option<iscsi::Secrets>>>,
    /// NFS, for filesystems.
    pub nfs: Option<Listener>,
    /// The folder of the sockets for vhost-user-blk.
    pub vhost_user: Option<PathBuf>,
}

impl Daemon {
    /// Serves the volumes, and by NFS the filesystems, of all pools that are open now or later, on `shards`,
    /// until the future is dropped: over NBD on the socket, and wherever else is asked for.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn serve_volumes(
        self: Arc<Self>,
        socket: (UnixListener, SocketFile),
        others: Endpoints,
        shards: Arc<Shards>,
    ) -> std::io::Result<()> {
        let (unix, file) = socket;
        let Endpoints { tcp, has_tls, iscsi, nfs, vhost_user } = others;
        let vhost_user = vhost_user.map(|folder| (folder, vhost_user::Faults::default()));
        // Only the first server is known; there is one a process.
        let listening = tcp.as_ref().map(Listener::listening);
        let _ = self.nbd.set(NbdAddresses { socket: file.path().to_owned(), tcp: listening, has_tls });
        self.has_socket_at(&unix, file.path());
        if let Some(tcp) = &tcp {
            self.listens(TCP, tcp.listening());
        }
        if let Some(iscsi) = &iscsi {
            self.listens(ISCSI, iscsi.listening());
        }
        if let Some(nfs) = &nfs {
            self.listens(NFS, nfs.listening());
        }
        let _ = self.own.set(Arc::downgrade(&self));
        let _ = self.shards.set(Arc::downgrade(&shards));
        if let Some(iscsi) = &iscsi {
            let _ = self.iscsi.set(iscsi.listening());
        }
        if let Some(folder) = &vhost_user {
            let _ = self.vhost_user.set(folder.clone());
        }
        let volumes = |protocol| Arc::new(Volumes::of(Arc::clone(&self), protocol));
        let limits = || Limits {
            shared: self.requests.clone(),
            gate: self.clients_gate().clone(),
            ..Limits::default()
        };
        let on_unix = nbd::serve_unix(unix, volumes(Protocol::Nbd), Arc::clone(&shards), limits());
        let on_tcp = async {
            let Some(listener) = tcp else { return Ok(()) };
            match nbd::serve_tcp(listener, volumes(Protocol::Nbd), Arc::clone(&shards), limits()).await {}
        };
        let on_iscsi = async {
            let Some(listener) = iscsi else { return Ok(()) };
            match iscsi::serve_tcp(listener, volumes(Protocol::Iscsi), Arc::clone(&shards), limits()).await {}
        };
        let on_vhost_user = async {
            let Some(folder) = vhost_user else { return Ok(()) };
            let volumes = volumes(Protocol::VhostUser);
            match vhost_user::serve_folder(folder, volumes, Arc::clone(&shards), limits()).await {}
        };
        let on_nfs = Arc::clone(&self).serve_files(nfs);
        tokio::try_join!(on_unix, on_tcp, on_iscsi, on_vhost_user, on_nfs).map(|_| ())
    }

    /// The volumes that are served, and those whose keys are not loaded.
    ///
    /// # Errors
    /// None.
    pub fn list_volumes(&self, _: api::ListVolumes) -> Result<Vec<ServedVolume>, ApiError> {
        Ok(self.open_pools().iter().flat_map(|pool| self.served_volumes(pool)).collect())
    }

    /// Where clients of a protocol find a volume that it serves.
    pub(in crate::daemon) fn addresses_of(&self, volume: &Volume, protocol: Protocol) -> Vec<String> {
        let ServedVolume { uri, tcp_uris, iscsi_uris, vhost_user_socket, .. } = self.served(volume);
        match protocol {
            Protocol::Nbd => uri.into_iter().chain(tcp_uris).collect(),
            Protocol::Iscsi => iscsi_uris,
            Protocol::VhostUser => {
                vhost_user_socket.iter().map(|socket| socket.display().to_string()).collect()
            }
        }
    }

    /// Where it does not listen yet over TCP, and why.
    pub fn waiting_listeners(&self) -> Vec<String> {
        let nbd = self.nbd.get().and_then(|nbd| nbd.tcp.as_ref());
        let nfs = self.nfs.get().map(|nfs| &nfs.listening);
        let listeners = [("NBD", nbd), ("iSCSI", self.iscsi.get()), ("NFS", nfs)];
        let waiting =
            listeners.into_iter().filter_map(|(name, listening)| Some((name, listening?.waiting())));
        let told = waiting.flat_map(|(name, waiting)| {
            waiting
                .into_iter()
                .map(move |why| format!("{name} does not listen yet: {why}; it is tried again"))
        });
        told.collect()
    }

    /// Why clients of a protocol do not find a volume, or not everywhere where the daemon is to listen.
    pub(in crate::daemon) fn not_listening(&self, volume: &Volume, protocol: Protocol) -> Vec<String> {
        match protocol {
            Protocol::Nbd => {
                self.nbd.get().and_then(|nbd| nbd.tcp.as_ref()).map(Listening::waiting).unwrap_or_default()
            }
            Protocol::Iscsi => {
                let Some(listening) = self.iscsi.get() else { return Vec::new() };
                let share = volume.share(protocol);
                match share.is_some_and(|share| iscsi::target(&volume.name, &share).is_none()) {
                    true => vec!["the name of its target would have more than 223 bytes".into()],
                    false => listening.waiting(),
                }
            }
            Protocol::VhostUser => match self.vhost_user.get() {
                Some((folder, faults)) => match vhost_user::socket_of(folder, &volume.name) {
                    Some(_) => faults.of(&volume.name).into_iter().collect(),
                    None => vec!["the path of its socket would have more than 107 bytes".into()],
                },
                None => Vec::new(),
            },
        }
    }

    pub(in crate::daemon) fn served_volumes(&self, pool: &OpenPool) -> Vec<ServedVolume> {
        let list = pool.volumes();
        let served = list.iter().map(|volume| self.served(volume));
        served.chain(list.locked().map(locked)).collect()
    }

    fn served(&self, volume: &Volume) -> ServedVolume {
        let nbd = self.nbd.get().filter(|_| volume.share(Protocol::Nbd).is_some());
        ServedVolume {
            uri: nbd.map(|nbd| nbd.uri(&volume.name)),
            tcp_uris: nbd.map(|nbd| nbd.tcp_uris(&volume.name)).unwrap_or_default(),
            iscsi_uris: volume.share(Protocol::Iscsi).map_or_else(Vec::new, |share| {
                let addresses = self.iscsi.get().map(Listening::addresses).unwrap_or_default();
                addresses.into_iter().filter_map(|at| iscsi::uri(at, &volume.name, &share)).collect()
            }),
            vhost_user_socket: volume.share(Protocol::VhostUser).and_then(|_| {
                let (folder, faults) = self.vhost_user.get()?;
                vhost_user::socket_of(folder, &volume.name).filter(|_| faults.of(&volume.name).is_none())
            }),
            name: volume.name.clone(),
            size_bytes: volume.size_bytes,
            block_bytes: volume.block_bytes,
            unavailable: None,
        }
    }
}

/// A volume whose key is not loaded.
fn locked(volume: &Volume) -> ServedVolume {
    ServedVolume {
        name: volume.name.clone(),
        size_bytes: 0,
        block_bytes: 0,
        unavailable: Some(NO_KEY.to_owned()),
        uri: None,
        tcp_uris: Vec::new(),
        iscsi_uris: Vec::new(),
        vhost_user_socket: None,
    }
}

impl NbdAddresses {
    fn uri(&self, export: &str) -> String {
        let socket = encode(&self.socket.to_string_lossy(), b"/");
        format!("nbd+unix:///{}?socket={socket}", encode(export, b"/@"))
    }

    fn tcp_uris(&self, export: &str) -> Vec<String> {
        let addresses = self.tcp.as_ref().map(Listening::addresses).unwrap_or_default();
        addresses.into_iter().map(|address| tcp_uri(address, self.has_tls, export)).collect()
    }
}

fn tcp_uri(address: SocketAddr, has_tls: bool, export: &str) -> String {
    let scheme = if has_tls { "nbds" } else { "nbd" };
    format!("{scheme}://{address}/{}", encode(export, b"/@"))
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
        let address = "[::1]:10809".parse().unwrap();
        let nbd = NbdAddresses { socket: "/run/my pools/nbd.sock".into(), tcp: None, has_tls: false };
        assert_eq!(
            nbd.uri("tank/a b:c@100%"),
            "nbd+unix:///tank/a%20b%3Ac@100%25?socket=/run/my%20pools/nbd.sock"
        );
        assert_eq!(tcp_uri(address, false, "tank/v"), "nbd://[::1]:10809/tank/v");
        assert_eq!(tcp_uri(address, true, "tank/v"), "nbds://[::1]:10809/tank/v");
    }
}
