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
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use device::IgnorePoison;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

pub use chap::{Malformed, Secrets};

use crate::block::{Caller, Changes, Export, Exports, Limits, Listed, Newcomers, Resources, Share};
use crate::gate::{Behind, Guest, Next, Parked};
use crate::listening::{Listener, Listening};
use crate::runtime::Shards;
use login::{Agreed, Door, Initiator, PORTAL_GROUP, Target};
use pdu::Digests;
use scsi::{Opened, Reach, Shared, Surroundings, Unit, Units};
use session::{Directory, Place};

/// The name of the protocol, among clients that are handed over.
pub(crate) const PROTOCOL: &str = "iscsi";
/// What reservations are called there, before the number of their volume.
const RESERVATIONS: &str = "reservations:";
/// An initiator that has not logged in yet, for a person.
const NEWCOMER: &str = "an iSCSI initiator in its login";

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
    let gate = limits.gate.clone();
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
        let (stream, peer) = match gate.next(PROTOCOL, listener.accept()).await {
            Next::Came(came) => came,
            Next::Handed(first, guest) => {
                let mut handed = gate.take_all_handed(PROTOCOL);
                handed.push((first, guest));
                portal.take_over_reservations(&handed).await;
                for (parked, guest) in handed {
                    let portal = Arc::clone(&portal);
                    shards.spawn(async move {
                        let initiator = parked.told.text("initiator").unwrap_or_default().to_owned();
                        if let Err(error) = portal.take_up(parked, guest).await {
                            tracing::debug!(initiator, %error, "an iSCSI connection ended");
                        }
                    });
                }
                continue;
            }
        };
        let (stream, guest) = (stream.into_std(), gate.guest(NEWCOMER));
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
                let socket = stream.as_fd().try_clone_to_owned().ok();
                portal.serve(stream, session, (address, peer.ip()), Place { guest, socket, tsih }).await
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

    /// Has the reservations that the sessions knew which are taken up: of each volume those that were told
    /// last.
    async fn take_over_reservations(&self, handed: &[(Parked, Guest)]) {
        let mut last: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
        for told in handed.iter().map(|(parked, _)| &parked.told) {
            for (name, text) in &told.texts {
                let Some(guid) = name.strip_prefix(RESERVATIONS) else { continue };
                let turn = told.fact(name);
                if last.get(guid).is_none_or(|(before, _)| *before < turn) {
                    last.insert(guid, (turn, text.as_str()));
                }
            }
        }
        for (guid, (_, text)) in last {
            let Ok(number) = guid.parse() else { continue };
            let shared = Arc::clone(self.shared.lock().ignore_poison().entry(number).or_default());
            if let Err(error) = shared.take_over(text).await {
                tracing::error!(guid, error, "reservations of a volume are not taken over");
            }
        }
    }

    /// Serves a session that another task, or another daemon, served before.
    async fn take_up(&self, parked: Parked, guest: Guest) -> io::Result<()> {
        let Parked { socket, told, bytes } = parked;
        let wrong =
            |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("it was handed over {what}"));
        let stream = std::net::TcpStream::from(socket);
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream)?;
        let address = stream.local_addr()?;
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let peer = stream.peer_addr()?.ip().to_canonical();
        let word = |name: &str| u32::try_from(told.fact(name)).map_err(|_| wrong("with a wrong number"));
        let [_, _, isid @ ..] = told.fact("isid").to_be_bytes();
        let name = told.text("initiator").ok_or_else(|| wrong("without a name"))?.to_owned();
        let target = told.text("target").ok_or_else(|| wrong("without a target"))?.to_owned();
        let shared_with = told.text("shared-with").map(str::to_owned);
        let caller = Caller { address: Some(peer), name: shared_with.as_deref() };
        let own = Some(told.fact("own")).filter(|own| *own != 0);
        let target = login::open_again(&*self.exports, caller, target, own).await.map_err(|why| {
            tracing::error!(initiator = name, target = told.volume, ?why, "an iSCSI session is not taken up");
            wrong("for a target whose volumes cannot be opened")
        })?;
        let agreed = Agreed {
            digests: Digests { header: told.is("header-digest"), data: told.is("data-digest") },
            their_data_bytes: word("their-data")? as usize,
            burst_bytes: word("burst")?,
            first_burst_bytes: word("first-burst")?,
            immediate_data: told.is("immediate-data"),
        };
        let tsih = u16::try_from(told.fact("tsih")).map_err(|_| wrong("with a wrong number"))?;
        self.next_session.fetch_max(tsih.wrapping_add(1), Ordering::Relaxed);
        let session = login::Session {
            initiator: Initiator { name, isid },
            shared_with,
            target: Some(target),
            agreed,
            command: word("command")?,
            window_end: word("window-end")?,
            status: word("status")?,
            seat: self.resources.seat().ok_or_else(|| wrong("where there are too many"))?,
        };
        let socket = stream.as_fd().try_clone_to_owned().ok();
        let stream = Behind::new(bytes, stream);
        self.serve(stream, session, (address, peer), Place { guest, socket, tsih }).await
    }

    async fn serve<S>(
        &self,
        stream: S,
        mut session: login::Session<X::Export>,
        (address, peer): (SocketAddr, IpAddr),
        place: Place,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let tsih = place.tsih;
        let initiator = session.initiator.clone();
        let name = &initiator.name;
        let shared_with = session.shared_with.take();
        let caller = Caller { address: Some(peer), name: shared_with.as_deref() };
        let wake = Arc::new(Notify::new());
        let directory = Names { portal: self, address, caller, initiator: &initiator, wake: &wake };
        let Some(target) = session.target.take() else {
            // A session that only looks for targets is never replaced.
            let (_sender, replaced) = oneshot::channel();
            return session::serve(stream, session, None, &directory, replaced, &place).await;
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
        let served = session::serve(stream, session, Some(units), &directory, replaced, &place).await;
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
