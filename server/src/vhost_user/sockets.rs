//! The sockets of volumes: one for each, in a folder.
//!
//! # Names
//! The volume `tank/vms/one` is `FOLDER/tank/vms/one.sock`, and its snapshot `tank/vms/one@then` is
//! `FOLDER/tank/vms/one@then.sock`. A socket's path has at most 107 bytes; volumes with longer ones, and
//! those whose name a folder has already, are not served this way.
//!
//! # Their life
//! Sockets come and go with the volumes, as soon as [`Exports::changes`] says so. One of a process that died
//! is replaced, one that another process answers on is left alone ([`crate::socket`]). When a volume goes,
//! its sessions end.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::IgnorePoison;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::inflight::Claims;
use super::session::{self, Common};
use crate::block::{Caller, Exports, Limits, Resources, accepted};
use crate::runtime::Shards;
use crate::socket::{self, SocketFile};

/// After how long a socket that could not be made is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Bytes of the longest path of a socket.
const MOST_PATH_BYTES: usize = 107;

/// Where a volume's socket is in a folder; none where its path would be too long.
pub fn socket_of(folder: &Path, volume: &str) -> Option<PathBuf> {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    let path = folder.join(format!("{volume}.sock"));
    (volume.split('/').all(is_plain) && path.as_os_str().len() <= MOST_PATH_BYTES).then_some(path)
}

/// Why volumes have no socket, for a person, by their names. Clones tell of the same ones.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<BTreeMap<String, String>>>);

impl Faults {
    /// Why this volume has none.
    pub fn of(&self, volume: &str) -> Option<String> {
        self.0.lock().ignore_poison().get(volume).cloned()
    }
}

/// A volume's socket.
struct Open {
    _file: SocketFile,
    /// Dropped to end its sessions.
    _open: watch::Sender<()>,
    accepting: tokio::task::AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Serves all volumes that there are or will be, each on its socket in `folder`, until dropped. A socket that
/// cannot be made is reported in `faults`, and tried again.
pub async fn serve_folder<X: Exports>(
    (folder, faults): (PathBuf, Faults),
    exports: Arc<X>,
    shards: Arc<Shards>,
    limits: Limits,
) -> Infallible {
    let common = Arc::new(Common {
        shards: Arc::downgrade(&shards),
        claims: Claims::default(),
        handshake: limits.handshake,
        patience: limits.stall,
    });
    let resources = Resources::new(limits);
    let mut accepting = JoinSet::new();
    let mut open: BTreeMap<String, Open> = BTreeMap::new();
    let mut refused: BTreeMap<String, Instant> = BTreeMap::new();
    let mut changes = exports.changes();
    loop {
        let listed = exports.listed(Caller::default()).await;
        let names: BTreeSet<String> = listed.into_iter().map(|listed| listed.name).collect();
        open.retain(|name, _| names.contains(name));
        refused.retain(|name, _| names.contains(name));
        faults.0.lock().ignore_poison().retain(|name, _| names.contains(name));
        for name in names {
            if open.contains_key(&name) || refused.get(&name).is_some_and(|at| at.elapsed() < AGAIN) {
                continue;
            }
            let listening = match socket_of(&folder, &name) {
                Some(path) => socket::listen(&path).await,
                None => Err(io::Error::new(io::ErrorKind::InvalidInput, "its path would be too long")),
            };
            match listening {
                Ok((listener, file)) => {
                    let (sender, receiver) = watch::channel(());
                    let accept = accept(
                        (listener, name.clone()),
                        Arc::clone(&exports),
                        Arc::clone(&shards),
                        (Arc::clone(&common), Arc::clone(&resources)),
                        receiver,
                    );
                    let accepting = accepting.spawn(accept);
                    refused.remove(&name);
                    faults.0.lock().ignore_poison().remove(&name);
                    open.insert(name, Open { _file: file, _open: sender, accepting });
                }
                Err(error) => {
                    if !refused.contains_key(&name) {
                        tracing::error!(volume = name, %error, "a volume has no vhost-user socket");
                    }
                    faults.0.lock().ignore_poison().insert(name.clone(), error.to_string());
                    refused.insert(name, Instant::now());
                }
            }
        }
        loop {
            tokio::select! {
                () = changes.next() => break,
                () = sleep(AGAIN), if !refused.is_empty() => break,
                Some(_) = accepting.join_next() => {}
            }
        }
    }
}

/// Accepts clients of a volume.
async fn accept<X: Exports>(
    (listener, name): (UnixListener, String),
    exports: Arc<X>,
    shards: Arc<Shards>,
    (common, resources): (Arc<Common>, Arc<Resources>),
    open: watch::Receiver<()>,
) {
    loop {
        let stream = match accepted(listener.accept().await).await {
            Ok(Some((stream, _))) => stream,
            Ok(None) => continue,
            Err(error) => {
                tracing::error!(volume = name, %error, "a vhost-user socket fails");
                return;
            }
        };
        let Some(seat) = resources.seat() else {
            tracing::warn!(volume = name, "too many vhost-user clients; one was sent away");
            continue;
        };
        let (exports, common, name, open) =
            (Arc::clone(&exports), Arc::clone(&common), name.clone(), open.clone());
        let stream = stream.into_std();
        shards.spawn(async move {
            let served = async {
                let stream = UnixStream::from_std(stream?)?;
                let export = exports.open(&name, Caller::default()).await;
                let export =
                    export.map_err(|why| io::Error::other(format!("it cannot be opened: {why:?}")))?;
                tracing::info!(volume = name, "a vhost-user session begins");
                session::serve(stream, export, common, seat, open).await
            };
            match served.await {
                Ok(()) => tracing::info!(volume = name, "a vhost-user session ended"),
                Err(error) => tracing::warn!(volume = name, %error, "a vhost-user session was ended"),
            }
        });
    }
}
