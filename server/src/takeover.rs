//! The two ends of an upgrade in place ([`crate::handover`]): the daemon that gives, and the one that takes.
//!
//! The old daemon listens on a socket of its own for that ([`give_on`]), on a thread. Each connection has a
//! thread, so that a second daemon that asks meanwhile is refused at once. The new daemon asks with the
//! thread that starts it ([`take`]): it has no runtime and no pool before it knows that it gets everything.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;

use crate::api::{ApiError, Secret};
use crate::daemon::{Daemon, HandedOver, LoadedKey};
use crate::fuse::GivenMount;
use crate::gate::Parked;
use crate::handover::{Channel, FILE_NAME, Frame, Manager, Message, OpenedAs};
use crate::socket::{self, Inherited};

/// How long the other daemon may take for a message that it has no reason to wait with.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the daemon of this API socket hands over.
pub fn path_beside(api: &Path) -> PathBuf {
    api.with_file_name(FILE_NAME)
}

/// Tells a service manager which process is the daemon from now on.
pub type TellOwner = Box<dyn Fn(u32) + Send + Sync>;

/// What a daemon gives beside what it has.
pub struct Giver {
    daemon: Arc<Daemon>,
    manager: Manager,
    tell: TellOwner,
    /// Held by the daemon that takes over.
    turn: Mutex<()>,
}

impl std::fmt::Debug for Giver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Giver").field("manager", &self.manager).finish_non_exhaustive()
    }
}

/// Hands everything over to the first daemon that asks on this socket and can take it. `tell` is called with
/// its process before this one ends.
///
/// # Errors
/// No thread can be started.
pub fn give_on(
    listener: tokio::net::UnixListener,
    daemon: &Arc<Daemon>,
    manager: Manager,
    tell: TellOwner,
) -> io::Result<()> {
    let listener: UnixListener = listener.into_std()?;
    listener.set_nonblocking(false)?;
    let giver = Giver { daemon: Arc::clone(daemon), manager, tell, turn: Mutex::default() };
    let giver = Arc::new(giver);
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                std::thread::sleep(Duration::from_millis(100));
                // A daemon that could not take over has the same socket, and may have left it otherwise.
                let _ = listener.set_nonblocking(false);
                continue;
            };
            if giver.daemon.was_succeeded() {
                return;
            }
            let giver = Arc::clone(&giver);
            let give = move || {
                if let Err(error) = giver.give(stream) {
                    tracing::warn!("nothing is handed over: {error}");
                }
            };
            let thread = std::thread::Builder::new().name("hand-over".into());
            if let Err(error) = thread.stack_size(device::STACK_BYTES).spawn(give) {
                tracing::warn!("nothing is handed over: {error}");
            }
        }
    };
    std::thread::Builder::new().name("hand-over".into()).spawn(accept).map(drop)
}

impl Giver {
    /// Hands over to the process at the other end.
    fn give(&self, stream: UnixStream) -> io::Result<()> {
        let peer = socket_peercred(&stream)?;
        let is_trusted = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
        if !is_trusted {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "a process of another user asked"));
        }
        let mut channel = Channel::new(stream);
        channel.set_patience(Some(PATIENCE))?;
        let (version, force) = match channel.receive() {
            Ok(Some(Frame { message: Message::TakeOver { version, force }, .. })) => (version, force),
            // One that only looks whether a daemon listens.
            Ok(None) => return Ok(()),
            Ok(Some(_)) => return Err(unexpected()),
            Err(error) => {
                let why = error.to_string();
                let _ = channel.send(&Message::Refused { why }, &[], None);
                return Err(error);
            }
        };
        let refuse = |channel: &mut Channel, why: String| channel.send(&Message::Refused { why }, &[], None);
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return refuse(&mut channel, "another process is taking over already".into());
            }
        };
        let process = peer.pid.as_raw_nonzero().get();
        tracing::info!(process, version, "another daemon takes over");
        let handed = match self.daemon.hand_over(force) {
            Ok(handed) => handed,
            Err(error) => {
                tracing::warn!("{error}");
                return refuse(&mut channel, error.message);
            }
        };
        match self.send(&mut channel, &handed).and_then(|()| wait(&mut channel)) {
            Ok(()) => {
                socket::keep_files(true);
                (self.tell)(process.unsigned_abs());
                tracing::info!(process, "the other daemon took over; this one ends");
                self.daemon.is_succeeded();
                // The gate stays closed: requests that still come here are not begun.
                std::mem::forget(handed);
                Ok(())
            }
            Err(error) => {
                self.daemon.take_back(handed);
                Err(error)
            }
        }
    }

    /// Gives all of it.
    fn send(&self, channel: &mut Channel, handed: &HandedOver) -> io::Result<()> {
        for (service, place, socket) in self.daemon.handed_sockets() {
            channel.send(&Message::Listener { service, place }, &[], Some(socket.as_fd()))?;
        }
        for Parked { socket, told, bytes } in &handed.clients {
            channel.send(&Message::Client(told.clone()), bytes, Some(socket.as_fd()))?;
        }
        for pool in &handed.pools {
            channel.send(&Message::Pool(pool.clone()), &[], None)?;
        }
        for GivenMount { told, connection } in &handed.mounts {
            channel.send(&Message::Mount(told.clone()), &[], Some(connection.as_fd()))?;
        }
        for LoadedKey { pool, root, key } in &handed.keys {
            channel.send(&Message::Key { pool: *pool, root: root.clone() }, key.bytes(), None)?;
        }
        channel.send(&Message::Manager(self.manager.clone()), &[], None)?;
        channel.send(&Message::Given, &[], None)
    }
}

/// Waits until the other daemon has everything: as long as it lives, for a pool may take long to open.
fn wait(channel: &mut Channel) -> io::Result<()> {
    channel.set_patience(None)?;
    match channel.receive()? {
        Some(Frame { message: Message::Took, .. }) => Ok(()),
        Some(Frame { message: Message::Failed { why }, .. }) => {
            Err(io::Error::other(format!("the other daemon could not take over: {why}")))
        }
        Some(_) => Err(unexpected()),
        None => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the other daemon ended before it had taken over; this one goes on",
        )),
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an unexpected message")
}

/// All that another daemon had, which owns it until [`Taken::confirm`].
#[derive(Debug)]
pub struct Taken {
    /// Its sockets.
    pub sockets: Inherited,
    /// How it told a service manager.
    pub manager: Manager,
    clients: Vec<Parked>,
    pools: Vec<OpenedAs>,
    keys: Vec<LoadedKey>,
    mounts: Vec<GivenMount>,
    channel: Channel,
}

/// Has the daemon that hands over on this socket give everything. Blocks the thread. With `force` also what
/// is in use, and fails for its users.
///
/// # Errors
/// There is none, or it refuses, for a person. It goes on then.
pub fn take(at: &Path, force: bool) -> Result<Taken, String> {
    let failed = |error: io::Error| format!("cannot take over from the daemon on {}: {error}", at.display());
    let stream = UnixStream::connect(at).map_err(failed)?;
    let peer = socket_peercred(&stream).map_err(|error| failed(error.into()))?;
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, "it is another user's")));
    }
    // As long as they are the other daemon's.
    socket::keep_files(true);
    let mut channel = Channel::new(stream);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    channel.send(&Message::TakeOver { version, force }, &[], None).map_err(failed)?;
    let (mut sockets, mut clients) = (Inherited::default(), Vec::new());
    let (mut pools, mut keys, mut mounts) = (Vec::new(), Vec::new(), Vec::new());
    let mut manager = Manager::default();
    loop {
        let Some(Frame { message, bytes, file }) = channel.receive().map_err(failed)? else {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        };
        match (message, file) {
            (Message::Refused { why }, _) => return Err(format!("the daemon that runs goes on: {why}")),
            (Message::Listener { service, place }, Some(socket)) => sockets.add(service, place, socket),
            (Message::Client(told), Some(socket)) => {
                clients.push(Parked { socket, told, bytes: bytes.bytes().to_vec() });
            }
            (Message::Pool(pool), None) => pools.push(pool),
            (Message::Key { pool, root }, None) => {
                keys.push(LoadedKey { pool, root, key: Secret::from(bytes.bytes().to_vec()) });
            }
            (Message::Mount(told), Some(connection)) => mounts.push(GivenMount { told, connection }),
            (Message::Manager(told), None) => manager = told,
            (Message::Given, None) => break,
            _ => return Err(failed(unexpected())),
        }
    }
    Ok(Taken { sockets, manager, clients, pools, keys, mounts, channel })
}

impl Taken {
    /// Opens the pools, and owns everything then. Blocks the thread.
    ///
    /// # Errors
    /// The pools that could not be opened, or the other daemon is gone. This one has no pool open, and the
    /// other one goes on.
    pub fn confirm(mut self, daemon: &Arc<Daemon>) -> Result<(), ApiError> {
        let failed = daemon.take_up(&self.pools, &self.keys);
        let why: Vec<String> = failed.into_iter().map(|error| error.message).collect();
        let confirmed = match why.is_empty() {
            true => self.channel.send(&Message::Took, &[], None).map_err(|error| error.to_string()),
            false => Err(why.join("\n")),
        };
        if let Err(why) = confirmed {
            // Before the other one opens them.
            let closed = daemon.close_all();
            let _ = self.channel.send(&Message::Failed { why: why.clone() }, &[], None);
            closed?;
            return Err(ApiError::failed(why));
        }
        socket::keep_files(false);
        let (clients, others): (Vec<_>, Vec<_>) =
            self.clients.into_iter().partition(|client| daemon.serves_protocol(&client.told.protocol));
        for Parked { told, .. } in others {
            tracing::warn!(
                protocol = told.protocol,
                volume = told.volume,
                "a client is disconnected: this \
                daemon does not serve its protocol"
            );
        }
        daemon.clients_gate().hand_in(clients);
        daemon.clients_gate().open();
        daemon.serve_again(&self.pools, self.mounts);
        daemon.requests_gate().open();
        Ok(())
    }
}
