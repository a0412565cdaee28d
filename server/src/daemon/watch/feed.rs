//! The feed of changes for its clients: what it tells in the words of the API, the snapshot to begin with,
//! and the figures.
//!
//! # The idea
//! The engine's feed ([`engine::events::feed`]) has all changes with their numbers. A client is a task with a
//! reader of it (`crate::feed`). What is the same for all clients is made once here:
//!
//! - A snapshot is made for one client, and lent to all that come while it is held by any and while the feed
//!   has all changes since. So 200 clients at once cost one look at the pools.
//! - Figures are looked at when they moved, at most once for each time that they did, and only while a client
//!   waits for them.
//!
//! # A snapshot and the changes after it fit together
//! A snapshot has the number of the last change before the look at the pools. Changes with later numbers may
//! be in it already. Each pool in it is one committed state, whose group it names; a change of that group or
//! one before is in it, and its client is not told of it again ([`Seen`]). What belongs to no group says how
//! something stands, and may be told twice.
//!
//! | lock | guards | held |
//! |---|---|---|
//! | `Clients::snapshot`, `Clients::figures` | that one task looks at the pools for all; exist to be held across that | across `.await`, alone |

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use axum::body::Bytes;
use engine::dsl::{Kind, Walk};
use engine::events::feed::{Change, Feed, What};
use engine::jobs::JobState;
use engine::pool::live::JobKey;
use engine::pool::status;
use engine::vdev::State;
use ondisk::pool_directory::hidden_dir;
use ondisk::{ObjectId, Txg};
use tokio::sync::{Semaphore, watch};

use crate::api::edge::Edge;
use crate::api::{self, ApiError, DatasetFigures, DatasetSnapshot, Figures, JobFigures, PoolSnapshot};
use crate::daemon::{Daemon, OpenPool};

/// Most clients at a time.
const MAX_CLIENTS: usize = 1024;

/// What clients of the feed share.
#[derive(Debug)]
pub(crate) struct Clients {
    /// Their places.
    pub(crate) places: Arc<Semaphore>,
    /// Changes when all that there are have to end.
    ending: watch::Sender<()>,
    snapshot: tokio::sync::Mutex<Weak<Snapshot>>,
    /// The last figures, and how often they had moved then.
    figures: tokio::sync::Mutex<Option<(u64, Bytes)>>,
    /// Heartbeats of all come together, at multiples of their interval after this.
    pub(crate) began: Instant,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MAX_CLIENTS)),
            ending: watch::channel(()).0,
            snapshot: tokio::sync::Mutex::default(),
            figures: tokio::sync::Mutex::default(),
            began: Instant::now(),
        }
    }
}

impl Clients {
    /// Changes when the clients that there are by now have to end.
    pub(crate) fn ending(&self) -> watch::Receiver<()> {
        self.ending.subscribe()
    }

    /// All end.
    pub(in crate::daemon) fn end(&self) {
        self.ending.send_replace(());
    }
}

/// The state of the daemon, as it is sent.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The number of the last change before it.
    pub(crate) number: u64,
    /// The JSON.
    pub(crate) text: Bytes,
    /// The group of each pool, by its guid.
    pub(crate) seen: Seen,
}

/// The groups of pools up to which a client knows all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(BTreeMap<u64, Txg>);

impl Seen {
    /// Whether a change is known already.
    pub(crate) fn has(&mut self, change: &Change) -> bool {
        let guid = change.guid.get();
        if change.what == What::Closed {
            // It may be opened again at an older state.
            self.0.remove(&guid);
        }
        change.txg != Txg::NONE && self.0.get(&guid).is_some_and(|seen| change.txg <= *seen)
    }
}

impl Daemon {
    /// The feed of all changes.
    pub fn feed(&self) -> Arc<Feed> {
        Arc::clone(self.events().feed())
    }

    /// A snapshot of the state, which may be one that was made for another client. Clients wait in line; one
    /// that is `gone` leaves it, and gets none.
    ///
    /// # Errors
    /// The task that makes it failed.
    pub(crate) async fn shared_snapshot(
        self: &Arc<Self>,
        gone: impl Future<Output = ()>,
    ) -> Result<Option<Arc<Snapshot>>, ApiError> {
        let mut last = tokio::select! {
            biased;
            () = gone => return Ok(None),
            last = self.feed_clients.snapshot.lock() => last,
        };
        if let Some(last) = last.upgrade().filter(|last| !self.feed().after(last.number, 0).missed) {
            return Ok(Some(last));
        }
        let daemon = Arc::clone(self);
        let made = tokio::task::spawn_blocking(move || device::block_on(daemon.new_snapshot()));
        let made = made.await.map_err(|panic| ApiError::failed(panic.to_string()))?;
        let made = Arc::new(made.map_err(|error| ApiError::failed(error.to_string()))?);
        *last = Arc::downgrade(&made);
        Ok(Some(made))
    }

    async fn new_snapshot(&self) -> serde_json::Result<Snapshot> {
        let number = self.feed().last();
        let mut pools = Vec::new();
        for open in self.open_pools() {
            pools.push(match snapshot_of(&open).await {
                Ok(pool) => pool,
                // Changes of its next groups are told all the same.
                Err(error) => PoolSnapshot {
                    pool: open.name().to_owned(),
                    pool_guid: open.guid().0,
                    suspended: open.is_suspended(),
                    error: Some(error.to_string()),
                    ..PoolSnapshot::default()
                },
            });
        }
        let seen = Seen(pools.iter().map(|pool| (pool.pool_guid, Txg(pool.txg))).collect());
        let text = serde_json::to_vec(&api::Snapshot { pools })?.into();
        Ok(Snapshot { number, text, seen })
    }

    /// The figures of all pools as JSON, after they moved so often.
    ///
    /// # Errors
    /// The task that looks at them failed.
    pub(crate) async fn shared_figures(self: Arc<Self>, moves: u64) -> Result<Bytes, ApiError> {
        let mut last = self.feed_clients.figures.lock().await;
        if let Some((_, text)) = last.as_ref().filter(|(then, _)| *then >= moves) {
            return Ok(text.clone());
        }
        let daemon = Arc::clone(&self);
        let look = move || {
            let moves = daemon.feed().moves();
            let all = device::block_on(daemon.figures());
            serde_json::to_vec(&all).map(|text| (moves, Bytes::from(text)))
        };
        let looked = tokio::task::spawn_blocking(look).await;
        let looked = looked.map_err(|panic| ApiError::failed(panic.to_string()))?;
        let (moves, text) = looked.map_err(|error| ApiError::failed(error.to_string()))?;
        *last = Some((moves, text.clone()));
        Ok(text)
    }

    async fn figures(&self) -> Vec<Figures> {
        let mut all = Vec::new();
        for open in self.open_pools() {
            match figures_of(&open).await {
                Ok(figures) => all.push(figures),
                Err(error) => tracing::debug!(pool = open.name(), %error, "its figures are not told"),
            }
        }
        all
    }

    /// Ends the answers that last: to clients of the feed, and views that programs have. For the end of the
    /// daemon, which would wait for their connections.
    pub fn end_lasting_answers(&self) {
        self.feed_clients.end();
        self.end_views();
    }
}

async fn snapshot_of(open: &OpenPool) -> engine::Result<PoolSnapshot> {
    let dsl = open.dsl().await?;
    let volumes = open.volumes();
    let mut datasets = Vec::new();
    for entry in dsl.list(None, Walk::HEADS).await? {
        let Some(dataset) = entry.dataset() else { continue };
        let (kind, volume_bytes) = match entry.kind {
            Kind::Volume => {
                (api::DatasetKind::Volume, volumes.get(&dataset.name).map(|volume| volume.size_bytes))
            }
            _ => (api::DatasetKind::Filesystem, None),
        };
        let (name, guid) = (dataset.name.clone(), dataset.phys.guid.0);
        datasets.push(DatasetSnapshot { name, guid, kind, volume_bytes });
    }
    let pool = dsl.pool();
    Ok(PoolSnapshot {
        pool: open.name().to_owned(),
        pool_guid: open.guid().0,
        txg: pool.uberblock().txg.0,
        state: status::state_of(pool).to_string(),
        suspended: open.is_suspended(),
        read_only: open.live().is_none(),
        datasets,
        jobs: jobs_of(open),
        error: None,
    })
}

async fn figures_of(open: &OpenPool) -> engine::Result<Figures> {
    let dsl = open.dsl().await?;
    let (pool, space) = (dsl.pool(), dsl.pool_space().await?);
    let freeing = dsl.child(dsl.root(), hidden_dir::FREE).await?;
    let mut datasets = Vec::new();
    for objset in pool.vdevs().reporter().written_lately() {
        // One that was destroyed meanwhile has none.
        let Ok(dataset) = dsl.dataset_of_object(ObjectId(objset.get())).await else { continue };
        if !engine::dsl::is_hidden(&dataset.name) {
            datasets.push(DatasetFigures {
                used_bytes: dataset.dir.phys.used_bytes,
                referenced_bytes: dataset.phys.referenced_bytes,
                name: dataset.name,
            });
        }
    }
    Ok(Figures {
        pool: open.name().to_owned(),
        pool_guid: open.guid().0,
        txg: pool.uberblock().txg.0,
        allocated_bytes: space.allocated_bytes(),
        free_bytes: space.free_bytes(),
        freeing_bytes: freeing.map_or(0, |dir| dir.phys.used_bytes),
        datasets,
        jobs: jobs_of(open),
    })
}

/// Jobs that are under way.
fn jobs_of(open: &OpenPool) -> Vec<JobFigures> {
    let Some(live) = open.live() else { return Vec::new() };
    let scan = live.scan_status();
    let all = live.job_statuses().into_iter();
    let all = all.filter(|(_, status)| matches!(status.state, JobState::Active | JobState::Suspended));
    let figures = |(key, status): (JobKey, engine::jobs::JobStatus)| {
        let (job, target) = key.words();
        let (done, total) = match (key, &scan) {
            (JobKey::Scan, Some(scan)) => (scan.examined, scan.to_examine),
            _ => (status.done, status.total),
        };
        JobFigures { job: job.to_owned(), target, state: status.state.word().to_owned(), done, total }
    };
    all.map(figures).collect()
}

/// A change in the words of the API: the name of the message, and its JSON.
pub(crate) fn told(change: &Change) -> serde_json::Result<(&'static str, Vec<u8>)> {
    let Change { pool, guid, txg, what } = change;
    let what = match what {
        What::Event(event) => {
            let event: api::Event = (**event).clone().edge();
            return Ok(("event", serde_json::to_vec(&event)?));
        }
        other => in_words(other),
    };
    let change = api::Change { pool: pool.clone(), pool_guid: guid.get(), txg: txg.get(), what };
    Ok(("change", serde_json::to_vec(&change)?))
}

fn in_words(what: &What) -> api::What {
    match what.clone() {
        What::Opened => api::What::Opened {},
        What::Closed => api::What::Closed {},
        What::Created { name, guid, volume_bytes } => {
            api::What::Created { name, guid: guid.get(), volume_bytes }
        }
        What::Destroyed { name, guid } => api::What::Destroyed { name, guid: guid.get() },
        What::Renamed { from, to, guid } => api::What::Renamed { from, to, guid: guid.get() },
        What::Promoted { name, guid } => api::What::Promoted { name, guid: guid.get() },
        What::Replaced { name, guid } => api::What::Replaced { name, guid: guid.get() },
        What::Resized { name, bytes } => api::What::Resized { name, bytes },
        What::Set { name, guid, property } => api::What::Set { name, guid: guid.get(), property },
        What::PoolSet { property } => api::What::PoolSet { property },
        // Events have a message of their own.
        What::Configured | What::Event(_) => api::What::Configured {},
        What::VdevState { guid, path, state } => {
            api::What::VdevState { guid: guid.get(), path, state: state_word(state) }
        }
        What::Job { job, target, state } => {
            api::What::Job { job: job.to_owned(), target, state: state.to_owned() }
        }
        What::Suspended => api::What::Suspended {},
        What::Resumed => api::What::Resumed {},
        What::Errors => api::What::Errors {},
        What::Served { name, how } => api::What::Served { name, how: how.to_owned() },
    }
}

fn state_word(number: u64) -> String {
    let states =
        [State::Offline, State::Removed, State::CantOpen, State::Faulted, State::Degraded, State::Healthy];
    let found = states.into_iter().find(|state| state.number() == number);
    found.map_or_else(|| "UNKNOWN".to_owned(), |state| state.to_string())
}
