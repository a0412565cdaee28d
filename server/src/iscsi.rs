//! iSCSI: volumes as disks for virtual machines' hosts and whatever else speaks the protocol.
//!
//! # The idea
//! Each volume is a target with one logical unit, number 0, unless its share makes it a unit of another
//! target (`names`, [`crate::block::shares`]). A session has one connection, which is one task on one shard.
//! What its commands do is the same as for every other protocol ([`crate::block::Export`]); here is only how
//! they are asked for and answered.
//!
//! | module | what it owns |
//! |---|---|
//! | `pdu` | units of the protocol, their headers and digests |
//! | `text` | keys and values |
//! | `names` | names of targets |
//! | `inventory` | which volumes are the units of a target |
//! | `chap` | secrets and proofs |
//! | `login` | from the first unit to a session |
//! | `session` | commands and their data |
//! | `scsi` | what commands mean |
//! | `untrusted` | reading any bytes as what initiators send, for fuzzers |
//!
//! # What an initiator cannot do
//! Log in without the proof that is asked for, with another initiator's proof, or under the name that another
//! one's secret is bound to (`chap`); be told of targets before; have more commands or bytes
//! under way than it was told; take for ever to log in; affect others ([`crate::block::Limits`]). A unit that
//! breaks the framing ends the connection.
//!
//! # What is left out
//! Several connections of one session, and recovery within a session (levels 1 and 2): initiators that want
//! two paths log in twice.
//!
//! Source of the facts: RFC 7143.

mod chap;
mod inventory;
mod login;
mod names;
mod pdu;
mod scsi;
mod session;
mod text;
pub mod untrusted;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use device::IgnorePoison;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

pub use chap::{Malformed, Secrets};

use crate::block::{Caller, Changes, Export, Exports, Limits, Listed, Newcomers, Resources, Share};
use crate::listening::{Listener, Listening};
use crate::runtime::Shards;
use login::{Door, Initiator, PORTAL_GROUP, Target};
use scsi::{Opened, Reach, Shared, Surroundings, Unit, Units};
use session::Directory;

/// The target that a volume is a unit of, shared so. None where its name would be too long.
pub fn target(volume: &str, share: &Share) -> Option<String> {
    names::of(volume, share)
}

/// Where initiators find a volume that is shared so: its address as `libiscsi` and `qemu` take it. None where
/// the name of its target would be too long.
pub fn uri(address: SocketAddr, volume: &str, share: &Share) -> Option<String> {
    names::of(volume, share).map(|target| format!("iscsi://{address}/{target}/{}", share.lun))
}

/// A session that goes on.
struct Present {
    number: u16,
    /// Told when another one takes its place.
    replaced: oneshot::Sender<()>,
}

/// What all connections of a listener share.
struct Portal<X: Exports> {
    exports: Arc<X>,
    secrets: Option<Secrets>,
    /// The addresses of the portal group.
    listening: Listening,
    resources: Arc<Resources>,
    next_session: AtomicU16,
    /// By initiator and target.
    sessions: Mutex<HashMap<(Initiator, String), Present>>,
    /// Of each volume that had sessions, by its number.
    shared: Mutex<HashMap<u64, Arc<Shared>>>,
    reach: Arc<Reach<X::Export>>,
}

/// Accepts connections until dropped, and serves each on one of the shards in turn; where the listener has
/// secrets, none without a proof.
pub async fn serve_tcp<X: Exports>(
    mut listener: Listener<Option<Secrets>>,
    exports: Arc<X>,
    shards: Arc<Shards>,
    limits: Limits,
) -> Infallible {
    let secrets = listener.loaded().await;
    if let Some(unbound) = secrets.as_ref().map(Secrets::unbound).filter(|unbound| !unbound.is_empty()) {
        tracing::warn!(
            ?unbound,
            "iSCSI secrets are bound to no initiator: volumes that are shared with named initiators are not \
             for them; lines 'INITIATOR NAME SECRET' bind them"
        );
    }
    let portal = Arc::new(Portal {
        exports,
        secrets,
        listening: listener.listening(),
        resources: Resources::new(limits),
        next_session: AtomicU16::new(1),
        sessions: Mutex::default(),
        shared: Mutex::default(),
        reach: Arc::default(),
    });
    let mut newcomers = Newcomers::default();
    loop {
        let (stream, peer) = listener.accept().await;
        let stream = stream.into_std();
        let newcomer = newcomers.admit(&portal.resources.limits).await;
        let portal = Arc::clone(&portal);
        shards.spawn(async move {
            let served = async {
                let mut stream = TcpStream::from_std(stream?)?;
                // An answer must not wait for the next one to fill a packet.
                stream.set_nodelay(true)?;
                // An initiator whose machine is gone gives its seat back, some hours later.
                SockRef::from(&stream).set_keepalive(true)?;
                let address = stream.local_addr()?;
                let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                let door = Door {
                    exports: &*portal.exports,
                    secrets: portal.secrets.as_ref(),
                    resources: &portal.resources,
                    address: peer.ip(),
                    tsih: portal.next_number(),
                };
                let tsih = door.tsih;
                let login = login::log_in(&mut stream, &door);
                let Some(session) = newcomer.in_time(login, &portal.resources).await? else { return Ok(()) };
                portal.serve(stream, session, tsih, (address, peer.ip())).await
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
        mut session: login::Session<X::Export>,
        tsih: u16,
        (address, peer): (SocketAddr, IpAddr),
    ) -> io::Result<()> {
        let initiator = session.initiator.clone();
        let name = &initiator.name;
        let shared_with = session.shared_with.take();
        let caller = Caller { address: Some(peer), name: shared_with.as_deref() };
        let wake = Arc::new(Notify::new());
        let directory = Names { portal: self, address, caller, initiator: &initiator, wake: &wake };
        let Some(target) = session.target.take() else {
            // A session that only looks for targets is never replaced.
            let (_sender, replaced) = oneshot::channel();
            return session::serve(stream, session, None, &directory, replaced).await;
        };
        let units = self.units(target, &initiator, &wake).await?;
        let target = units.target().to_owned();
        tracing::info!(initiator = name, target, "an iSCSI session begins");
        let key = (initiator.clone(), target);
        let (sender, replaced) = oneshot::channel();
        // An initiator that logs in anew has given up the session that it had.
        let present = Present { number: tsih, replaced: sender };
        if let Some(old) = self.sessions.lock().ignore_poison().insert(key.clone(), present) {
            let _ = old.replaced.send(());
        }
        self.reach.add(name, units.iter().map(|(_, unit)| unit));
        let served = session::serve(stream, session, Some(units), &directory, replaced).await;
        let mut sessions = self.sessions.lock().ignore_poison();
        if sessions.get(&key).is_some_and(|present| present.number == tsih) {
            sessions.remove(&key);
        }
        served
    }
}

impl<X: Exports> Portal<X> {
    /// The units of a target as a session has them.
    ///
    /// # Errors
    /// The reservations that were kept with a volume cannot be taken up. Without them it would be open to
    /// those that were to be kept away.
    async fn units(
        &self,
        target: Target<X::Export>,
        initiator: &Initiator,
        wake: &Arc<Notify>,
    ) -> io::Result<Units<X::Export>> {
        let Target { name, own, volumes } = target;
        let mut units = Opened::new();
        for (number, volume) in volumes {
            units.push((number, self.unit(&name, (number, volume), (initiator, wake)).await?));
        }
        Ok(Units::new(name, own, units, Arc::clone(wake)))
    }

    async fn unit(
        &self,
        target: &str,
        (number, (export, share)): (u8, (Arc<X::Export>, Share)),
        (initiator, wake): (&Initiator, &Arc<Notify>),
    ) -> io::Result<Arc<Unit<X::Export>>> {
        let surroundings = Surroundings {
            target: target.to_owned(),
            port: PORTAL_GROUP,
            initiator: initiator.clone(),
            reach: Arc::clone(&self.reach),
            wake: Arc::clone(wake),
        };
        let shared = Arc::clone(self.shared.lock().ignore_poison().entry(export.guid()).or_default());
        if let Err(error) = shared.load(&*export).await {
            tracing::warn!(target, number, error, "the reservations of a volume cannot be read");
            return Err(io::Error::other(format!("reservations: {error}")));
        }
        Ok(Arc::new(Unit::new(export, &share, &surroundings, shared)))
    }
}

/// The addresses of the portal group, as an initiator is told that came to one of them: that one first. A
/// portal of all interfaces has the address that the initiator came to. Only those that came by the loopback
/// interface can reach its addresses.
fn portals(listening: &[SocketAddr], came_to: SocketAddr) -> Vec<SocketAddr> {
    let mut portals = vec![came_to];
    for portal in listening {
        let is_any = portal.ip().is_unspecified();
        let ip = if is_any { came_to.ip() } else { portal.ip() };
        let portal = SocketAddr::new(ip, portal.port());
        let is_reachable = !ip.is_loopback() || came_to.ip().is_loopback();
        if is_reachable && !portals.contains(&portal) {
            portals.push(portal);
        }
    }
    portals
}

/// The targets and their units, as an initiator that came to this address is told.
struct Names<'a, X: Exports> {
    portal: &'a Portal<X>,
    address: SocketAddr,
    caller: Caller<'a>,
    initiator: &'a Initiator,
    wake: &'a Arc<Notify>,
}

impl<X: Exports> Directory<X::Export> for Names<'_, X> {
    async fn targets(&self) -> Vec<(String, Vec<String>)> {
        // Pools that are being imported have targets, too.
        self.portal.exports.complete().await;
        let listed = self.portal.exports.listed(self.caller).await;
        // One may have several units.
        let targets = listed.iter().filter_map(|listed| names::of(&listed.name, &listed.share));
        let targets: BTreeSet<String> = targets.collect();
        let portals = portals(&self.portal.listening.addresses(), self.address);
        let portals: Vec<String> = portals.iter().map(|portal| format!("{portal},{PORTAL_GROUP}")).collect();
        targets.into_iter().map(|target| (target, portals.clone())).collect()
    }

    fn changes(&self) -> Changes {
        self.portal.exports.changes()
    }

    async fn members(&self, target: &str, own: Option<u64>) -> BTreeMap<u8, Listed> {
        inventory::members(self.portal.exports.listed(self.caller).await, target, own)
    }

    async fn open(&self, target: String, members: BTreeMap<u8, Listed>) -> (Opened<X::Export>, bool) {
        let (mut units, mut is_all) = (Opened::new(), true);
        for (number, Listed { name, share, .. }) in members {
            // What cannot be opened now is left out, as it is at the login.
            let opened = match self.portal.exports.open(&name, self.caller).await {
                Ok(export) => {
                    let session = (self.initiator, self.wake);
                    self.portal.unit(&target, (number, (export, share)), session).await.ok()
                }
                Err(_) => None,
            };
            is_all &= opened.is_some();
            units.extend(opened.map(|unit| (number, unit)));
        }
        self.portal.reach.add(&self.initiator.name, units.iter().map(|(_, unit)| unit));
        (units, is_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initiators_are_told_of_portals_that_they_can_reach() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let told = |listening: &[&str], came_to| {
            let listening: Vec<_> = listening.iter().map(|text| address(text)).collect();
            portals(&listening, address(came_to)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(&["[::]:3260"], "10.0.0.1:3260"), ["10.0.0.1:3260"]);
        assert_eq!(
            told(&["10.0.0.1:3260", "10.1.0.1:3261", "127.0.0.1:3260"], "10.1.0.1:3261"),
            ["10.1.0.1:3261", "10.0.0.1:3260"]
        );
        assert_eq!(
            told(&["10.0.0.1:3260", "127.0.0.1:3260"], "127.0.0.1:3260"),
            ["127.0.0.1:3260", "10.0.0.1:3260"]
        );
        assert_eq!(
            told(&["0.0.0.0:3260", "0.0.0.0:3261"], "10.0.0.1:3261"),
            ["10.0.0.1:3261", "10.0.0.1:3260"]
        );
    }
}
