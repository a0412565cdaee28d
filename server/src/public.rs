//! The socket for any user: it answers what OpenZFS lets every user see of pools, and nothing else.
//!
//! # What is answered
//! Listings of pools, vdevs and datasets with their properties, status and transfer statistics, holds and
//! mounts. Not the names of damaged files, the space of users, the history, or anything of keys; OpenZFS
//! keeps these from users too. No request changes anything or makes the daemon look at devices that belong to
//! no pool. All other requests are refused in OpenZFS's words.
//!
//! # What a user cannot do
//! Delay others. Connections are few for each user (`MAX_OF_USER`) and in all (`MAX_CONNECTIONS`), and none
//! lasts longer than `DEADLINE`, so that the threads for requests cannot run out. Requests are small
//! (`MAX_BODY_BYTES`).

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path as UrlPath, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use axum::serve::Listener;
use device::IgnorePoison;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::api::{Action, ApiError, FollowChanges, Role, Words};
use crate::bounded::Bounded;
use crate::daemon::{self, Daemon};
use crate::feed;
use crate::http;
use crate::socket::{self, SocketFile};

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

/// The request as it is answered to anyone: without what only some may see.
fn permitted(action: &str, body: &[u8]) -> Result<Vec<u8>, ApiError> {
    match daemon::known(action) {
        Ok(known) if known.declared.role == Role::Viewer => known.for_viewer(body),
        Ok(known) => Err(denied(&attempted(known.declared.words, body))),
        // Which actions there are is not told.
        Err(_) => Err(denied(&attempted(None, body))),
    }
}

/// The operation of a refused request, in OpenZFS's words.
fn attempted(words: Option<Words>, body: &[u8]) -> String {
    let Some(Words { what, field }) = words else {
        return "only root, and the user who runs the daemon, may ask for that".into();
    };
    let request: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let named = request.get(field).map(|named| named.get(0).unwrap_or(named));
    match named.and_then(serde_json::Value::as_str) {
        Some(name) => format!("cannot {what} '{}'", name.escape_debug()),
        None => {
            let without = |what: &'static str, end: &str| what.strip_suffix(end).unwrap_or(what);
            format!("cannot {}", [" pool", " for", " to"].into_iter().fold(what, without))
        }
    }
}

fn denied(what: &str) -> ApiError {
    ApiError::refused(format!("{what}: permission denied"))
}

/// A listening socket for anyone, which removes its file when dropped.
#[derive(Debug)]
pub struct PublicSocket {
    listener: UnixListener,
    _file: SocketFile,
    users: Arc<Users>,
    /// Places of connections that are told why they are refused.
    refusals: Arc<Semaphore>,
}

impl PublicSocket {
    /// Listens on `path`.
    ///
    /// # Errors
    /// As those of [`socket::listen`].
    pub async fn bind(path: &Path) -> io::Result<Self> {
        let (listener, file) = socket::listen_to_anyone(path).await?;
        let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
        Ok(Self { listener, _file: file, users: Arc::default(), refusals })
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
    fn admit(self: &Arc<Self>, user: u32) -> Result<Place, ApiError> {
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
        Ok(Place { users: Arc::clone(self), user })
    }
}

/// One connection of a user.
#[derive(Debug)]
pub struct Place {
    users: Arc<Users>,
    user: u32,
}

impl Drop for Place {
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
    type Io = Bounded<UnixStream, Place>;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let Ok(user) = stream.peer_cred().map(|peer| peer.uid()) else { continue };
                    let error = match self.users.admit(user) {
                        Ok(place) => return (Bounded::new(stream, DEADLINE, place), address),
                        Err(error) => error,
                    };
                    tracing::debug!(user, %error, "a connection of a user is refused");
                    // Beyond these it is closed without a word.
                    if let Ok(place) = Arc::clone(&self.refusals).try_acquire_owned() {
                        tokio::spawn(async move {
                            let _place = place;
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
        self.listener.local_addr()
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

/// Answers what anyone may ask, until `stop` completes.
///
/// # Errors
/// When the listener itself fails.
pub async fn serve(
    socket: PublicSocket,
    daemon: Arc<Daemon>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let ending = Arc::clone(&daemon);
    // Clients of the feed would be waited for.
    let stop = async move {
        stop.await;
        ending.end_lasting_answers();
    };
    let router = axum::Router::new()
        .route("/v1/{action}", post(act).get(follow))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(daemon);
    axum::serve(socket, router).with_graceful_shutdown(stop).await
}

async fn act(State(daemon): State<Arc<Daemon>>, UrlPath(action): UrlPath<String>, body: Bytes) -> Response {
    match permitted(&action, &body) {
        Ok(body) => http::answer(daemon, action, body.into()).await,
        Err(error) => http::refusal(&error),
    }
}

/// As [`http::serve`] answers it, without what only some may see.
async fn follow(
    State(daemon): State<Arc<Daemon>>,
    UrlPath(path): UrlPath<String>,
    query: Query<feed::Query>,
    headers: HeaderMap,
) -> Response {
    match feed::request(&path, &headers, query.0) {
        Ok(body) => act(State(daemon), UrlPath(FollowChanges::NAME.to_owned()), body).await,
        Err(error) => http::refusal(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GetStatus, ListDatasets};

    #[test]
    fn only_listings_are_for_anyone_and_only_what_users_may_see() {
        for action in
            ["pool-destroy", "key-load", "key-list", "pool-view", "shutdown", "userspace", "no-such-action"]
        {
            let refused = permitted(action, b"{}").unwrap_err();
            assert!(refused.message.ends_with("permission denied"), "{action}: {refused}");
        }
        let history = permitted("pool-history", br#"{"pools": ["tank"]}"#).unwrap_err();
        assert_eq!(history.message, "cannot show history for pool 'tank': permission denied");
        for (action, body, what) in [
            ("pool-create", r#"{"name": "tank"}"#, "cannot create 'tank'"),
            ("snapshot-create", r#"{"names": ["tank@a", "tank@b"]}"#, "cannot create snapshot 'tank@a'"),
            ("pool-sync", r#"{"pools": []}"#, "cannot sync"),
            ("pool-history", r#"{"pools": []}"#, "cannot show history"),
            ("property-set", "no JSON", "cannot set property"),
            ("mount", r#"{"dataset": null}"#, "cannot mount"),
            ("dataset-rename", "{\"from\": \"a\\n\"}", "cannot rename 'a\\n'"),
        ] {
            let refused = permitted(action, body.as_bytes()).unwrap_err();
            assert_eq!(refused.message, format!("{what}: permission denied"));
        }
        let status = permitted("pool-status", br#"{"pools": [], "files": true, "dedup": false}"#).unwrap();
        assert!(!serde_json::from_slice::<GetStatus>(&status).unwrap().files);
        let listing = |property: &str| {
            let request = ListDatasets { properties: vec![property.into()], ..ListDatasets::default() };
            permitted("dataset-list", &serde_json::to_vec(&request).unwrap())
        };
        for property in ["userused@root", "groupobjquota@1", "projectquota@5", "userobjused@x"] {
            assert!(listing(property).is_err(), "{property}");
        }
        for property in ["used", "written@now", "org:user@used", "keystatus"] {
            assert!(listing(property).is_ok(), "{property}");
        }
    }

    #[test]
    fn a_user_has_few_connections_and_leaves_room_for_others() {
        let users = Arc::<Users>::default();
        let mut places: Vec<Place> = std::iter::from_fn(|| users.admit(7).ok()).collect();
        assert_eq!(places.len(), MAX_OF_USER);
        assert!(users.admit(8).is_ok());
        places.pop();
        assert!(users.admit(7).is_ok());
        let all: Vec<Place> = (100..1000).flat_map(|user| users.admit(user)).collect();
        assert_eq!(all.len() + places.len(), MAX_CONNECTIONS);
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
