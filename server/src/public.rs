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
//! (`MAX_BODY_BYTES`). Who has too many connections is told so, as long as there are few of those
//! (`MAX_REFUSALS`).

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path as UrlPath, State};
use axum::response::Response;
use axum::routing::post;
use axum::serve::Listener;
use device::IgnorePoison;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::api::{
    AbortReceive, Action, AddHook, AddVdevs, ApiError, AttachDevice, AttachVolume, CheckpointPool,
    ClearErrors, ClearEvents, ClearInjections, ClearLabel, CloneSnapshot, CompareFiles, CreateBookmark,
    CreateDataset, CreatePool, DestroyDataset, DestroyPool, DetachDevice, DiscoverPools, ExportPool,
    FreezePool, GetCounters, GetEvents, GetIoStats, GetScrubSchedules, GetStatus, GetWhatIf, Hello,
    HoldSnapshots, HoldView, ImportPool, InheritProperty, InjectFault, ListDatasets, ListHolds, ListHooks,
    ListInjections, ListMounts, ListPools, ListShares, ListSpace, ListTunables, ListVdevs, LoadKey, Mount,
    OfflineDevices, OnlineDevices, PoolHistory, Promote, ReceiveStream, ReguidPool, RemoveDevices,
    RemoveHook, RenameDataset, ReopenPools, Rollback, ScanPool, SendSnapshot, SetPoolProperty, SetProperties,
    SetScrubSchedule, SetTunables, SweepDevices, SyncPools, TakeSnapshots, TestHook, UnloadKey, Unmount,
    UpgradePools,
};
use crate::bounded::Bounded;
use crate::daemon::Daemon;
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
/// Most connections at a time that are told why they are refused.
const MAX_REFUSALS: usize = 16;
/// How long one that is refused may take to ask.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);
/// How long a connection lasts.
const DEADLINE: Duration = Duration::from_secs(120);
/// Actions for any user.
const FOR_ANYONE: [&str; 9] = [
    Hello::NAME,
    ListPools::NAME,
    ListVdevs::NAME,
    GetStatus::NAME,
    GetIoStats::NAME,
    GetCounters::NAME,
    ListDatasets::NAME,
    ListHolds::NAME,
    ListMounts::NAME,
];
/// Properties that tell what users have in a filesystem.
const OF_USERS: [&str; 4] = ["user", "group", "project", "id"];

/// The socket of the machine's daemon, for users who have no daemon of their own.
pub fn of_the_machine() -> PathBuf {
    Path::new("/run/cenote").join(FILE_NAME)
}

/// Whether anyone may ask for an action.
pub fn is_for_anyone(action: &str) -> bool {
    FOR_ANYONE.contains(&action)
}

/// The request as it is answered to anyone: without what only some may see.
fn permitted(action: &str, body: &[u8]) -> Result<Vec<u8>, ApiError> {
    let wrong = |error: serde_json::Error| ApiError::invalid(format!("{action}: {error}"));
    let again = |error: serde_json::Error| ApiError::failed(error.to_string());
    match action {
        GetStatus::NAME => {
            let request: GetStatus = serde_json::from_slice(body).map_err(wrong)?;
            serde_json::to_vec(&GetStatus { files: false, ..request }).map_err(again)
        }
        ListDatasets::NAME => {
            let request: ListDatasets = serde_json::from_slice(body).map_err(wrong)?;
            match request.properties.iter().find(|name| is_of_users(name)) {
                Some(name) => Err(denied(&format!("cannot get property '{name}'"))),
                None => Ok(body.to_vec()),
            }
        }
        _ if is_for_anyone(action) => Ok(body.to_vec()),
        _ => Err(denied(&attempted(action, body))),
    }
}

/// The operation of a refused request, in OpenZFS's words.
fn attempted(action: &str, body: &[u8]) -> String {
    let Some(&(_, what, field)) = REFUSED.iter().find(|(refused, ..)| *refused == action) else {
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

/// Actions that are refused to users: the action, its operation in words, and the field with the name of its
/// object.
const REFUSED: [(&str, &str, &str); 60] = [
    (ReceiveStream::NAME, "receive", "name"),
    (AbortReceive::NAME, "abort receive into", "name"),
    (ListShares::NAME, "show the shares of", "names"),
    (GetScrubSchedules::NAME, "show the schedule of", "pools"),
    (SetScrubSchedule::NAME, "schedule scrubs of", "pool"),
    (InjectFault::NAME, "inject faults into", "pool"),
    (ListInjections::NAME, "show injected faults", ""),
    (ClearInjections::NAME, "clear injected faults", ""),
    (GetWhatIf::NAME, "show what caches would do for", "pools"),
    (ListTunables::NAME, "show tunables", ""),
    (SetTunables::NAME, "set tunables", ""),
    (ListHooks::NAME, "show hooks", ""),
    (AddHook::NAME, "add a hook", ""),
    (RemoveHook::NAME, "remove the hook", "name"),
    (TestHook::NAME, "test the hook", "name"),
    (GetEvents::NAME, "show events", ""),
    (ClearEvents::NAME, "clear events", ""),
    (DiscoverPools::NAME, "discover pools", ""),
    (ImportPool::NAME, "import", "pool"),
    (ExportPool::NAME, "export", "pools"),
    (CreatePool::NAME, "create", "name"),
    (DestroyPool::NAME, "destroy", "pool"),
    (AddVdevs::NAME, "add to", "pool"),
    (ClearErrors::NAME, "clear errors for", "pool"),
    (OfflineDevices::NAME, "offline", "devices"),
    (OnlineDevices::NAME, "online", "devices"),
    (AttachDevice::NAME, "attach to or replace", "device"),
    (DetachDevice::NAME, "detach", "device"),
    (RemoveDevices::NAME, "remove", "devices"),
    (SweepDevices::NAME, "trim or initialize", "pool"),
    (ScanPool::NAME, "scan", "pool"),
    (ReopenPools::NAME, "reopen", "pools"),
    (ReguidPool::NAME, "reguid", "pool"),
    (CheckpointPool::NAME, "checkpoint", "pool"),
    (UpgradePools::NAME, "upgrade", "pools"),
    (SyncPools::NAME, "sync", "pools"),
    (FreezePool::NAME, "freeze", "pool"),
    (ClearLabel::NAME, "clear the label of", "device"),
    (SetPoolProperty::NAME, "set property for", "pool"),
    (PoolHistory::NAME, "show history for pool", "pools"),
    (HoldView::NAME, "open", "pool"),
    (CompareFiles::NAME, "compare the files of", "from"),
    (SendSnapshot::NAME, "send", "snapshot"),
    (CreateDataset::NAME, "create", "name"),
    (DestroyDataset::NAME, "destroy", "name"),
    (RenameDataset::NAME, "rename", "from"),
    (TakeSnapshots::NAME, "create snapshot", "names"),
    (Rollback::NAME, "rollback to", "snapshot"),
    (CloneSnapshot::NAME, "create", "target"),
    (Promote::NAME, "promote", "dataset"),
    (HoldSnapshots::NAME, "hold or release snapshot", "snapshots"),
    (CreateBookmark::NAME, "create bookmark", "bookmark"),
    (SetProperties::NAME, "set property for", "datasets"),
    (InheritProperty::NAME, "inherit property for", "datasets"),
    (ListSpace::NAME, "get used/quota for", "dataset"),
    (LoadKey::NAME, "load key for", "dataset"),
    (UnloadKey::NAME, "unload key for", "dataset"),
    (Mount::NAME, "mount", "dataset"),
    (Unmount::NAME, "unmount", "target"),
    (AttachVolume::NAME, "attach", "volume"),
];

fn denied(what: &str) -> ApiError {
    ApiError::refused(format!("{what}: permission denied"))
}

/// `userused@…`, `groupobjquota@…` and their kin.
fn is_of_users(property: &str) -> bool {
    let Some((name, _)) = property.split_once('@') else { return false };
    OF_USERS.iter().any(|of| name.starts_with(of)) && (name.ends_with("used") || name.ends_with("quota"))
}

/// A listening socket for anyone, which removes its file when dropped.
#[derive(Debug)]
pub struct PublicSocket {
    listener: UnixListener,
    _file: SocketFile,
    users: Arc<Users>,
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

    /// Answers one request with the reason why there is no connection.
    fn refuse(&self, mut stream: UnixStream) {
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        let error = ApiError::busy(format!(
            "the daemon has {MAX_OF_USER} connections of this user already, or {MAX_CONNECTIONS} in all; try \
             again when one of them has ended"
        ));
        let body = serde_json::to_string(&error).unwrap_or_default();
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            body.len()
        );
        tokio::spawn(async move {
            let _permit = permit;
            let answered = async {
                // A request that is not read would reset the connection before the answer is.
                let mut request = vec![0; MAX_BODY_BYTES];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            };
            let _ = tokio::time::timeout(REFUSED_WITHIN, answered).await;
        });
    }
}

/// How many connections each user has.
#[derive(Debug, Default)]
struct Users(Mutex<HashMap<u32, usize>>);

impl Users {
    /// One more, unless there are too many.
    fn admit(self: &Arc<Self>, user: u32) -> Option<Place> {
        let mut counts = self.0.lock().ignore_poison();
        let (all, own) = (counts.values().sum::<usize>(), counts.get(&user).copied().unwrap_or(0));
        if all >= MAX_CONNECTIONS || own >= MAX_OF_USER {
            return None;
        }
        counts.insert(user, own + 1);
        Some(Place { users: Arc::clone(self), user })
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
                    let user = stream.peer_cred().ok().map(|peer| peer.uid());
                    let Some(place) = user.and_then(|user| self.users.admit(user)) else {
                        tracing::debug!(user, "too many connections of a user");
                        self.refuse(stream);
                        continue;
                    };
                    return (Bounded::new(stream, DEADLINE, place), address);
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

/// Answers what anyone may ask, until `stop` completes.
///
/// # Errors
/// When the listener itself fails.
pub async fn serve(
    socket: PublicSocket,
    daemon: Arc<Daemon>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let router = axum::Router::new()
        .route("/v1/{action}", post(act))
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut places: Vec<Place> = std::iter::from_fn(|| users.admit(7)).collect();
        assert_eq!(places.len(), MAX_OF_USER);
        assert!(users.admit(8).is_some());
        places.pop();
        assert!(users.admit(7).is_some());
        let all: Vec<Place> = (100..1000).flat_map(|user| users.admit(user)).collect();
        assert_eq!(all.len() + places.len(), MAX_CONNECTIONS);
    }
}
