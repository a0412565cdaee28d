//! The socket for any user: it answers what the role of a user allows, and nothing else.
//!
//! # What is answered
//! A viewer, which is any user unless `--viewer` names groups, gets what OpenZFS lets every user see:
//! listings of pools, vdevs and datasets with their properties, status and transfer statistics, holds and
//! mounts. Not the names of damaged files, the space of users, the history, or anything of keys; OpenZFS
//! keeps these from users too. Members of the groups of `--operator` get what operators may ask for. All
//! other requests are refused in OpenZFS's words. Who may have what is decided where all requests are
//! ([`crate::caller`], `daemon::admission`).
//!
//! # What a user cannot do
//! Delay others. Connections are few for each user (`MAX_OF_USER`) and in all (`MAX_CONNECTIONS`), and none
//! lasts longer than `DEADLINE`, but for what not every user may ask for, so that the threads for
//! requests cannot run out. Requests are small (`MAX_BODY_BYTES`).

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use device::IgnorePoison;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::api::ApiError;
use crate::bounded::Bounded;
use crate::caller::Caller;
use crate::daemon::Daemon;
use crate::gate::Gate;
use crate::http;
use crate::socket::{Inherited, SocketFile};

/// Name of the socket, beside the API's.
pub const FILE_NAME: &str = "read.sock";
/// Largest request, in bytes.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Most connections.
const MAX_CONNECTIONS: usize = 128;
/// Most connections of one user.
const MAX_OF_USER: usize = 16;
/// Most connections at once that are told why they are refused, and how long that may take.
const MAX_REFUSALS: usize = 32;
const REFUSAL_LIMIT: Duration = Duration::from_secs(2);
/// How long a connection lasts.
const DEADLINE: Duration = Duration::from_secs(120);

/// The socket of the machine's daemon, for users who have no daemon of their own.
pub fn of_the_machine() -> PathBuf {
    Path::new("/run/cenote").join(FILE_NAME)
}

/// A listening socket for anyone, which removes its file when dropped.
#[derive(Debug)]
pub struct PublicSocket {
    listener: UnixListener,
    file: SocketFile,
    /// Holds callers back.
    gate: Gate,
    users: Arc<Users>,
    /// Places of connections that are told why they are refused.
    refusals: Arc<Semaphore>,
}

impl PublicSocket {
    /// Listens on `path`.
    ///
    /// # Errors
    /// As those of `socket::listen`.
    pub async fn bind(path: &Path) -> io::Result<Self> {
        Self::bind_with(path, &mut Inherited::default()).await
    }

    /// The same on a socket that listens already, where there is one.
    ///
    /// # Errors
    /// As those of [`PublicSocket::bind`].
    pub async fn bind_with(path: &Path, inherited: &mut Inherited) -> io::Result<Self> {
        let (listener, file) = inherited.listen_to_anyone(path).await?;
        let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
        Ok(Self { listener, file, gate: Gate::default(), users: Arc::default(), refusals })
    }
}

/// How many connections each user has.
#[derive(Debug, Default)]
struct Users(Mutex<HashMap<u32, usize>>);

impl Users {
    /// One more, unless there are too many.
    ///
    /// # Errors
    /// Why it is refused, for the user.
    fn admit(self: &Arc<Self>, user: u32) -> Result<UserSeat, ApiError> {
        let mut counts = self.0.lock().ignore_poison();
        let (all, own) = (counts.values().sum::<usize>(), counts.get(&user).copied().unwrap_or(0));
        if own >= MAX_OF_USER {
            return Err(ApiError::busy(format!(
                "user {user} has {own} requests under way, and more are not answered at once; try again when \
                 some have ended"
            )));
        }
        if all >= MAX_CONNECTIONS {
            return Err(ApiError::busy(format!(
                "users have {all} requests under way, and more are not answered at once; try again"
            )));
        }
        counts.insert(user, own + 1);
        Ok(UserSeat { users: Arc::clone(self), user })
    }
}

/// One connection of a user.
#[derive(Debug)]
pub struct UserSeat {
    users: Arc<Users>,
    user: u32,
}

impl Drop for UserSeat {
    fn drop(&mut self) {
        let mut counts = self.users.0.lock().ignore_poison();
        if let Some(count) = counts.get_mut(&self.user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

impl Listener for PublicSocket {
    type Io = Bounded<UnixStream, UserSeat>;
    type Addr = Caller;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.gate.while_open(self.listener.accept()).await {
                Ok((stream, _)) => {
                    let Ok(caller) = Caller::of(&stream) else { continue };
                    let error = match self.users.admit(caller.uid()) {
                        Ok(seat) => {
                            let lasting = caller.connection.clone();
                            return (Bounded::new(stream, DEADLINE, seat).unless(lasting), caller);
                        }
                        Err(error) => error,
                    };
                    tracing::debug!(user = caller.uid(), %error, "a connection of a user is refused");
                    // Beyond these it is closed without a word.
                    if let Ok(seat) = Arc::clone(&self.refusals).try_acquire_owned() {
                        tokio::spawn(async move {
                            let _seat = seat;
                            let _ = tokio::time::timeout(REFUSAL_LIMIT, refuse(stream, &error)).await;
                        });
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Caller::own())
    }
}

impl Connected<IncomingStream<'_, PublicSocket>> for Caller {
    fn connect_info(stream: IncomingStream<'_, PublicSocket>) -> Self {
        stream.remote_addr().clone()
    }
}

/// Answers a connection, whatever it asks, with an error.
async fn refuse(mut stream: UnixStream, error: &ApiError) -> io::Result<()> {
    let body = serde_json::to_vec(error).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    let mut asked = [0; 4096];
    if stream.read(&mut asked).await? == 0 {
        return Ok(());
    }
    stream.write_all(&[head.as_bytes(), &body].concat()).await?;
    stream.shutdown().await?;
    // With something left to be read the connection would be reset, and the answer could be lost.
    while stream.read(&mut asked).await? > 0 {}
    Ok(())
}

/// Answers what users may ask, until `stop` completes.
///
/// # Errors
/// When the listener itself fails.
pub async fn serve(
    mut socket: PublicSocket,
    daemon: Arc<Daemon>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    socket.gate = daemon.requests_gate().clone();
    daemon.has_socket_at(&socket.listener, socket.file.path());
    let ending = Arc::clone(&daemon);
    // Clients of the feed would be waited for.
    let stop = async move {
        stop.await;
        ending.end_lasting_answers();
    };
    let router = http::router(daemon, MAX_BODY_BYTES);
    let service = router.into_make_service_with_connect_info::<Caller>();
    axum::serve(socket, service).with_graceful_shutdown(stop).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_few_connections_and_leaves_room_for_others() {
        let users = Arc::<Users>::default();
        let mut seats: Vec<UserSeat> = std::iter::from_fn(|| users.admit(7).ok()).collect();
        assert_eq!(seats.len(), MAX_OF_USER);
        assert!(users.admit(8).is_ok());
        seats.pop();
        assert!(users.admit(7).is_ok());
        let all: Vec<UserSeat> = (100..1000).flat_map(|user| users.admit(user)).collect();
        assert_eq!(all.len() + seats.len(), MAX_CONNECTIONS);
    }

    #[test]
    fn a_user_with_too_many_connections_is_told_so() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("read.sock");
            let mut socket = PublicSocket::bind(&path).await.unwrap();
            let mut held = Vec::new();
            for _ in 0..MAX_OF_USER {
                let (client, accepted) = tokio::join!(UnixStream::connect(&path), socket.accept());
                held.push((client.unwrap(), accepted));
            }
            let told = async {
                let mut client = UnixStream::connect(&path).await.unwrap();
                client.write_all(b"POST /v1/pool-list HTTP/1.1\r\n\r\n").await.unwrap();
                let mut text = String::new();
                client.read_to_string(&mut text).await.unwrap();
                text
            };
            let text = tokio::select! { text = told => text, _ = socket.accept() => panic!("it is let in") };
            assert!(text.starts_with("HTTP/1.1 503"), "{text}");
            assert!(text.contains("has 16 requests under way"), "{text}");
            // One that leaves makes room.
            drop(held.pop());
            let (client, _) = tokio::join!(UnixStream::connect(&path), socket.accept());
            client.unwrap();
        });
    }
}
