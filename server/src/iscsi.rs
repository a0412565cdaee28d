//! iSCSI: volumes as disks for virtual machines' hosts and whatever else speaks the protocol.
//!
//! # The idea
//! Each volume is a target with one logical unit, number 0 (`names`). A session has one connection, which
//! is one task on one shard. What its commands do is the same as for every other protocol
//! ([`crate::block::Export`]); here is only how they are asked for and answered.
//!
//! | module | what it owns |
//! |---|---|
//! | `pdu` | units of the protocol, their headers and digests |
//! | `text` | keys and values |
//! | `names` | names of targets |
//! | `chap` | secrets and proofs |
//! | `login` | from the first unit to a session |
//! | `session` | commands and their data |
//! | `scsi` | what commands mean |
//!
//! # What an initiator cannot do
//! Log in without the proof that is asked for, or be told of targets before; have more commands or bytes
//! under way than it was told; take for ever to log in; affect others ([`crate::block::Limits`]). A unit that
//! breaks the framing ends the connection.
//!
//! # What is left out
//! Several connections of one session, and recovery within a session (levels 1 and 2): initiators that want
//! two paths log in twice.
//!
//! Source of the facts: RFC 7143.

mod chap;
mod login;
mod names;
mod pdu;
mod scsi;
mod session;
mod text;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use device::IgnorePoison;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

pub use chap::{Malformed, Secrets};

use crate::block::{Export, Exports, Limits, Newcomers, Resources, accepted};
use crate::runtime::Shards;
use login::{Door, Initiator, PORTAL_GROUP};
use scsi::{Shared, Unit};
use session::Directory;

/// Where initiators find a volume: its address as `libiscsi` and `qemu` take it. None where the name of its
/// target would be too long.
pub fn uri(address: SocketAddr, volume: &str) -> Option<String> {
    names::target(volume).map(|target| format!("iscsi://{address}/{target}/0"))
}

/// A session that goes on.
struct Present {
    number: u16,
    /// Told when another one takes its place.
    replaced: oneshot::Sender<()>,
}

/// What all connections of a listener share.
struct Portal<X> {
    exports: Arc<X>,
    secrets: Option<Secrets>,
    resources: Arc<Resources>,
    next_session: AtomicU16,
    /// By initiator and target.
    sessions: Mutex<HashMap<(Initiator, String), Present>>,
    /// Of each volume that had sessions, by its number.
    shared: Mutex<HashMap<u64, Arc<Shared>>>,
}

/// Accepts connections until dropped, and serves each on one of the shards in turn; with `secrets`, none
/// without a proof.
///
/// # Errors
/// When the listener itself fails.
pub async fn serve_tcp<X: Exports>(
    listener: TcpListener,
    exports: Arc<X>,
    secrets: Option<Secrets>,
    shards: Arc<Shards>,
    limits: Limits,
) -> io::Result<()> {
    let portal = Arc::new(Portal {
        exports,
        secrets,
        resources: Resources::new(limits),
        next_session: AtomicU16::new(1),
        sessions: Mutex::default(),
        shared: Mutex::default(),
    });
    let mut newcomers = Newcomers::default();
    loop {
        let Some((stream, _)) = accepted(listener.accept().await).await? else { continue };
        let stream = stream.into_std();
        let newcomer = newcomers.admit(&portal.resources.limits).await;
        let portal = Arc::clone(&portal);
        shards.spawn(async move {
            let served = async {
                let mut stream = TcpStream::from_std(stream?)?;
                // An answer must not wait for the next one to fill a packet.
                stream.set_nodelay(true)?;
                // An initiator whose machine is gone gives its place back, some hours later.
                SockRef::from(&stream).set_keepalive(true)?;
                let address = stream.local_addr()?;
                let door = Door {
                    exports: &*portal.exports,
                    secrets: portal.secrets.as_ref(),
                    resources: &portal.resources,
                    tsih: portal.next_number(),
                };
                let tsih = door.tsih;
                let login = login::log_in(&mut stream, &door);
                let Some(session) = newcomer.in_time(login, &portal.resources).await? else { return Ok(()) };
                portal.serve(stream, session, tsih, address).await
            };
            if let Err(error) = served.await {
                let error: io::Error = error;
                tracing::debug!(%error, "an iSCSI connection ended");
            }
        });
    }
}

impl<X: Exports> Portal<X> {
    /// The number of the next session, which is not 0.
    fn next_number(&self) -> u16 {
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        if number == 0 { self.next_session.fetch_add(1, Ordering::Relaxed) } else { number }
    }

    async fn serve(
        &self,
        stream: TcpStream,
        session: login::Session<X::Export>,
        tsih: u16,
        address: SocketAddr,
    ) -> io::Result<()> {
        let directory = Names { portal: self, address };
        let Some((target, export)) = session.target.clone() else {
            // A session that only looks for targets is never replaced.
            let (_sender, replaced) = oneshot::channel();
            return session::serve(stream, session, None, &directory, replaced).await;
        };
        tracing::info!(initiator = session.initiator.name, target, "an iSCSI session begins");
        let key = (session.initiator.clone(), target.clone());
        let (sender, replaced) = oneshot::channel();
        // An initiator that logs in anew has given up the session that it had.
        let present = Present { number: tsih, replaced: sender };
        if let Some(old) = self.sessions.lock().ignore_poison().insert(key.clone(), present) {
            let _ = old.replaced.send(());
        }
        let shared = Arc::clone(self.shared.lock().ignore_poison().entry(export.guid()).or_default());
        let unit = Unit::new(export, target, PORTAL_GROUP, session.initiator.clone(), shared);
        let served = session::serve(stream, session, Some(unit), &directory, replaced).await;
        let mut sessions = self.sessions.lock().ignore_poison();
        if sessions.get(&key).is_some_and(|present| present.number == tsih) {
            sessions.remove(&key);
        }
        served
    }
}

/// The targets, as an initiator that came to this address is told.
struct Names<'a, X> {
    portal: &'a Portal<X>,
    address: SocketAddr,
}

impl<X: Exports> Directory for Names<'_, X> {
    async fn targets(&self) -> Vec<(String, String)> {
        let names = self.portal.exports.names().await;
        let targets = names.iter().filter_map(|name| names::target(name));
        targets.map(|target| (target, format!("{},{PORTAL_GROUP}", self.address))).collect()
    }
}
