//! The daemon's state and its actions.
//!
//! # The idea
//! A [`Daemon`] holds the open pools, each with its mounted filesystems and the connections to its volumes.
//! An action is a method; [`dispatch`] calls it with its request. Most actions only read, each of them one
//! committed state of a pool, and any number of them run at once. An action that changes a pool waits for the
//! commit before it answers.
//!
//! # Locks
//! | lock | guards | held |
//! |---|---|---|
//! | `Daemon::pools` | which pools are open | to look up, insert or remove; never across an `.await` |
//! | `Daemon::snapshot_turn` | runs of the snapshot schedules, one after the other | across `.await`, by those only |
//! | `Lab::turn` | experiments that begin, go, or are applied, one after the other | across `.await`, by those only |
//! | `OpenPool::changes` | mounting, unmounting, keys, changes of datasets and closing of one pool, one after the other; shared by requests that only add datasets or snapshots, until they are served | across `.await`, by those only |
//! | `OpenPool::mounts`, `OpenPool::connections` | the lists | to look up or change; never across an `.await` |
//!
//! They are taken in this order. Reading data, listing and status hold no lock for longer than a look-up: a
//! device that hangs under one pool blocks only callers that change that pool or read from that device.
//!
//! | module, the lowest first | what it owns |
//! |---|---|
//! | `names`, `host` | the rules for names; this host as pools know it |
//! | `handing` | gates and sockets, for a daemon that hands over or takes over |
//! | `dashboard` | links to the dashboard, its users and tokens |
//! | `refusals` | refusals that many requests have in common |
//! | `sync_tasks` | calling the engine for changes, and what OpenZFS calls these in the history |
//! | `mounts` | mounted filesystems: where, in which order, with which options |
//! | `volumes` | volumes and their clients |
//! | `shares` | filesystems that are shared with a network, and their clients |
//! | `datasets` | listing and changing datasets, permissions, keys |
//! | `streams` | send, receive, diff, and states that are lent |
//! | `pools` | pools as a whole, and their vdevs |
//! | `watch` | events, the feed of changes, what follows from them, numbers |
//! | `standby` | pools that this host takes over from another one |
//! | `lab` | experiments: processes of this program, and what they found |
//! | `actions`, `admission` | the table of all actions; who may have what, and what is written down of that |
//! | `open_pool` | an open pool: plain data of all rooms, and the right to change it |
//!
//! A module imports from those above it in this table and from `open_pool`; a test of testkit looks for that.
//! Each of these rooms has a module for one thing, and its head says which. A file adds methods to [`Daemon`]
//! or [`OpenPool`] for its part.

mod actions;
mod admission;
mod dashboard;
mod datasets;
mod handing;
mod host;
mod lab;
mod mounts;
mod names;
mod open_pool;
mod pools;
mod refusals;
mod shares;
mod standby;
mod streams;
mod sync_tasks;
mod volumes;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, Weak};

use device::modelled::Link;
use device::{IgnorePoison, machine_memory_bytes};
use engine::cache::ArcCache;
use engine::events::Events;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::sync::watch::Sender;

use crate::accounts::Accounts;
use crate::api::{self, Action, ApiError, Effects};
use crate::audit::AuditLog;
use crate::block::{Announcer, SharedMemory};
use crate::caller::{Caller, Roles};
use crate::listening::Listening;
use crate::runtime::Shards;
use crate::smb::{Net, Usershares};
use crate::vhost_user;

pub use actions::{Known, actions, known, openapi};
pub use dashboard::{Begin, Begun, machine_name};
pub use handing::HandedSocket;
use handing::Handing;
use lab::Lab;
pub use open_pool::OpenPool;
use pools::closing::Ending;
pub use pools::handing_over::{HandedOver, LoadedKey};
pub use pools::import_cached::Importing;
pub use pools::properties::fault_of_new as new_pool_fault;
pub use standby::Place as StandbyPlace;
use standby::Standby;
pub use streams::diff::{FileComparison, dispatch_comparison};
pub use streams::lent_views::dispatch_view;
pub use streams::receive::{StreamInput, StreamSource, dispatch_receive, stream_of_client};
pub use streams::send::{Sending, dispatch_send};
pub use volumes::VolumeExport;
pub use volumes::attached::DeviceMaker;
pub use volumes::endpoints::{Endpoints, ISCSI as ISCSI_SERVICE, NFS as NFS_SERVICE, TCP as TCP_SERVICE};
pub use volumes::exports::Volumes;
pub use volumes::list::VolumeList;
pub(crate) use watch::feed::{Seen, told};
use watch::hooks::Hooks;
pub use watch::hooks::SHORT_NAMES as EVENT_SHORT_NAMES;
use watch::{feed, memory};

/// Memory for cached blocks of all pools: this part of the machine's.
const CACHE_SHARE_OF_MEMORY: u64 = 4;
/// Bounds of that.
const CACHE_BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=32 << 30;

/// The pools of this machine that are open, and how they are served.
#[derive(Debug)]
pub struct Daemon {
    pools: RwLock<BTreeMap<String, Arc<OpenPool>>>,
    /// Tells protocols of other volumes.
    volume_changes: Announcer,
    cache: Arc<ArcCache>,
    /// The size of the cache that was asked for at the start.
    arc_asked: u64,
    /// Memory of requests of clients of volumes.
    requests: SharedMemory,
    nbd: OnceLock<NbdAddresses>,
    /// Where volumes are served by iSCSI.
    iscsi: OnceLock<Listening>,
    /// Where filesystems are served by NFS.
    nfs: OnceLock<shares::NfsServer>,
    /// Where sockets of volumes for virtual machines are.
    vhost_user: OnceLock<(PathBuf, vhost_user::Faults)>,
    /// How many imports of the pools of the cache file go on.
    importing: Sender<usize>,
    /// The modelled link between volumes and their clients.
    link: Option<Arc<Link>>,
    /// Pools fail at once where they would wait for their devices.
    gives_up: bool,
    /// Whether clients may run load on volumes.
    takes_loads: bool,
    /// Makes block devices of volumes.
    device_maker: DeviceMaker,
    /// Keeps what Samba shares.
    usershares: Arc<dyn Usershares>,
    /// What is done before each request.
    before_requests: Option<BeforeRequests>,
    /// Itself, for what asks it from outside of a request, once it serves.
    own: Arc<OnceLock<Weak<Daemon>>>,
    /// Who has which role.
    roles: Roles,
    /// Where it is written down who asked for which change.
    audit: Option<AuditLog>,
    /// The file with the pools that come back after the next start.
    cachefile: Option<PathBuf>,
    /// Who may come by the dashboard, once that was asked for.
    accounts: OnceLock<Arc<Accounts>>,
    /// What has the dashboard begin to listen.
    dashboard: OnceLock<tokio::sync::mpsc::Sender<Begin>>,
    /// The events of all pools.
    events: RwLock<Arc<Events>>,
    keeping_events: Mutex<()>,
    /// Had by the run of the snapshot schedules that goes on.
    snapshot_turn: tokio::sync::Mutex<datasets::Turn>,
    /// Clients of the feed of changes.
    feed_clients: feed::Clients,
    /// What runs on them.
    hooks: Hooks,
    /// The threads that serve volumes, once they do.
    shards: OnceLock<Weak<Shards>>,
    ending: Ending,
    /// The pools that it stands by for.
    standby: Standby,
    /// What it needs for experiments.
    lab: Lab,
    /// What it needs to hand over.
    handing: Handing,
    stop: Notify,
}

/// What is done before each request.
struct BeforeRequests(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for BeforeRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeRequests")
    }
}

/// Where clients find the volumes.
#[derive(Debug, Clone)]
struct NbdAddresses {
    socket: PathBuf,
    tcp: Option<Listening>,
    /// TCP is served with TLS only.
    has_tls: bool,
}

impl Default for Daemon {
    fn default() -> Self {
        Self::with_cache(
            (machine_memory_bytes() / CACHE_SHARE_OF_MEMORY).clamp(*CACHE_BYTES.start(), *CACHE_BYTES.end()),
        )
    }
}

impl Daemon {
    /// A daemon whose pools together cache about `bytes` of blocks.
    pub fn with_cache(bytes: u64) -> Self {
        Self {
            pools: RwLock::default(),
            volume_changes: Announcer::default(),
            cache: Arc::new(ArcCache::new(bytes)),
            arc_asked: bytes,
            requests: memory::for_requests(bytes),
            nbd: OnceLock::new(),
            iscsi: OnceLock::new(),
            nfs: OnceLock::new(),
            vhost_user: OnceLock::new(),
            importing: Sender::default(),
            link: None,
            gives_up: false,
            takes_loads: false,
            own: Arc::default(),
            roles: Roles::default(),
            audit: None,
            cachefile: None,
            accounts: OnceLock::new(),
            dashboard: OnceLock::new(),
            device_maker: DeviceMaker::default(),
            usershares: Arc::<Net>::default(),
            before_requests: None,
            events: RwLock::default(),
            keeping_events: Mutex::default(),
            snapshot_turn: tokio::sync::Mutex::default(),
            feed_clients: feed::Clients::default(),
            hooks: Hooks::default(),
            shards: OnceLock::new(),
            ending: Ending::default(),
            standby: Standby::default(),
            lab: Lab::default(),
            handing: Handing::default(),
            stop: Notify::new(),
        }
    }
}

/// Answers one request of a caller: `action` is the last part of its path, `body` its JSON. The reply is JSON
/// too.
///
/// # Errors
/// An unknown action, one that the caller may not ask for, a body that is not of the action's type, or what
/// the action itself refuses.
///
/// The calling thread waits for devices through its own ring ([`device::block_on`]), and so must be no thread
/// of an async runtime.
pub fn dispatch_for(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    action: &str,
    body: &[u8],
) -> Result<Vec<u8>, ApiError> {
    daemon.prepare();
    device::block_on(caller.clone().scope(async {
        let admitted = daemon.admit(caller, action, body).await?;
        let answer = daemon.act(admitted.known, &admitted.body).await;
        admitted.end(&answer);
        answer
    }))
}

/// The same for a request of this process, which leaves no line in the audit log.
///
/// # Errors
/// As those of [`dispatch_for`].
pub fn dispatch(daemon: &Arc<Daemon>, action: &str, body: &[u8]) -> Result<Vec<u8>, ApiError> {
    daemon.prepare();
    let known = known(action)?;
    device::block_on(daemon.act(known, body))
}

/// Answers a request for load on a volume: [`dispatch_for`] for the one action whose work is done on the
/// threads that serve volumes. Dropping the future ends it.
///
/// # Errors
/// As those of [`dispatch_for`].
pub fn dispatch_load<'a>(
    daemon: &'a Daemon,
    caller: &'a Caller,
    body: &'a [u8],
) -> BoxFuture<'a, Result<Vec<u8>, ApiError>> {
    Box::pin(async move {
        let admitted = daemon.admit_by_role(caller, api::RunLoad::NAME, body)?;
        let answer = actions::answer(&admitted.body, async |request| daemon.run_load(request).await).await;
        admitted.end(&answer);
        answer
    })
}

impl Daemon {
    /// Does what is to be done before each request.
    fn prepare(&self) {
        if let Some(BeforeRequests(act)) = &self.before_requests {
            act();
        }
    }

    /// Does what an admitted request asks for, and all that follows from it.
    async fn act(self: &Arc<Self>, known: &Known, body: &[u8]) -> Result<Vec<u8>, ApiError> {
        let answer = known.answer(self, body).await;
        self.follow(known.declared.effects, answer.is_ok()).await;
        answer
    }

    /// Brings in line what depends on what an action may have changed.
    async fn follow(self: &Arc<Self>, effects: Effects, is_done: bool) {
        if effects.has(Effects::VOLUMES) {
            // After failed ones too: what stood in their way was detached.
            self.catch_up().await;
        } else if effects != Effects::NONE {
            // What is being changed by others is left to them, and to the agents.
            self.catch_up_idle().await;
        }
        // There may be files that are devices of pools.
        if is_done && effects.has(Effects::MOUNTS) {
            self.import_nested().await;
        }
    }

    /// Does what a request of this process asks for, as if it had come through the socket. See [`dispatch`].
    ///
    /// # Errors
    /// Those of the action.
    pub fn ask<A: Action>(self: &Arc<Self>, request: &A) -> Result<A::Reply, ApiError> {
        let failed = |error: serde_json::Error| ApiError::failed(format!("{}: {error}", A::NAME));
        let reply = dispatch(self, A::NAME, &serde_json::to_vec(request).map_err(failed)?)?;
        serde_json::from_slice(&reply).map_err(failed)
    }

    /// The same, with volumes served as if over a link.
    #[must_use]
    pub fn behind(self, link: Option<Arc<Link>>) -> Self {
        Self { link, ..self }
    }

    /// The same, whose pools fail at once, for good, where they would wait for their devices.
    #[must_use]
    pub fn giving_up(self, gives_up: bool) -> Self {
        Self { gives_up, ..self }
    }

    /// The same, which lets clients run load on volumes, overwriting their data.
    #[must_use]
    pub fn taking_loads(self, takes_loads: bool) -> Self {
        Self { takes_loads, ..self }
    }

    /// The same, which calls a function before each request.
    #[must_use]
    pub fn before_requests(self, act: impl Fn() + Send + Sync + 'static) -> Self {
        Self { before_requests: Some(BeforeRequests(Box::new(act))), ..self }
    }

    /// The daemon that answers.
    ///
    /// # Errors
    /// None.
    pub fn hello(&self, _: api::Hello) -> Result<api::DaemonInfo, ApiError> {
        let nbd = self.nbd.get();
        Ok(api::DaemonInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            pools: self.open_pools().iter().map(|pool| pool.name().to_owned()).collect(),
            nbd_socket: nbd.map(|nbd| nbd.socket.clone()),
            nbd_address: nbd.and_then(|nbd| nbd.tcp.as_ref()?.addresses().first().copied()),
        })
    }

    /// Interrupts an experiment, closes every pool, by force, and ends the daemon: [`Daemon::stopped`] completes. Blocks the thread,
    /// which is the request's own.
    ///
    /// # Errors
    /// Pools that were closed as after a crash. What cannot be unmounted is none: it leaves the tree at once
    /// and ends with its last user.
    pub async fn shutdown(self: &Arc<Self>, _: api::Shutdown) -> Result<(), ApiError> {
        self.end_experiments();
        let closed = self.close_all();
        // A waiter may come later: the permit is kept for it.
        self.stop.notify_one();
        closed
    }

    /// What clients of the feed share.
    pub(crate) fn feed_clients(&self) -> &feed::Clients {
        &self.feed_clients
    }

    /// Completes when the end was requested. One task may wait.
    pub async fn stopped(&self) {
        self.stop.notified().await;
    }

    /// The open pools, by name.
    pub fn open_pools(&self) -> Vec<Arc<OpenPool>> {
        self.pools.read().ignore_poison().values().cloned().collect()
    }

    /// The open pool called `name`.
    fn find_pool(&self, name: &str) -> Option<Arc<OpenPool>> {
        self.pools.read().ignore_poison().get(name).cloned()
    }

    /// The open pool called `name`.
    fn pool(&self, name: &str) -> Result<Arc<OpenPool>, ApiError> {
        self.find_pool(name).ok_or_else(|| ApiError::not_found(format!("cannot open '{name}': no such pool")))
    }

    /// The open pool that the dataset, snapshot or bookmark called `name` would be in. A hidden dataset is no
    /// argument of a request, but of those that use [`Daemon::pool_of_any`].
    fn pool_of(&self, name: &str) -> Result<Arc<OpenPool>, ApiError> {
        names::refuse_hidden(name)?;
        self.pool_of_any(name)
    }

    /// The same, and also for what a receive fills (`%recv`), for requests that only read, or destroy it.
    fn pool_of_any(&self, name: &str) -> Result<Arc<OpenPool>, ApiError> {
        let pool = name.split(['/', '@', '#']).next().unwrap_or_default();
        self.find_pool(pool)
            .ok_or_else(|| ApiError::not_found(format!("cannot open '{name}': dataset does not exist")))
    }

    /// The pools called `names`, or all where there are none, and an error for each that is not open.
    fn pools_named(&self, names: &[String]) -> (Vec<Arc<OpenPool>>, Vec<ApiError>) {
        if names.is_empty() {
            return (self.open_pools(), Vec::new());
        }
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        for name in names {
            match self.pool(name) {
                Ok(pool) => found.push(pool),
                Err(error) => failed.push(error),
            }
        }
        (found, failed)
    }
}

/// The error of an operation on a dataset, in OpenZFS's words where it has some.
fn dataset_error(doing: &str, name: &str, error: engine::Error) -> ApiError {
    match error {
        engine::Error::NotFound(_) => {
            ApiError::not_found(format!("cannot {doing} '{name}': dataset does not exist"))
        }
        other => {
            let ApiError { kind, message } = other.into();
            ApiError { kind, message: format!("cannot {doing} '{name}': {message}") }
        }
    }
}

/// The error about a dataset to which a command does not apply.
fn not_of_this_type(name: &str) -> ApiError {
    ApiError::invalid(format!("cannot open '{name}': operation not applicable to datasets of this type"))
}

/// Locks; what a thread that panicked left behind is whole, since every change is one insertion or removal.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}
