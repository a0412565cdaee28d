//! Standing by: pools in object stores that this host takes over when their owner is gone, or on command.
//!
//! # The idea
//! A device in an object store has one owner, and any host may become it ([`objects`]): opening it to write
//! fences the owner before. So a take-over is a forced import. All that stands here is about when to do it,
//! and what becomes of the pool on the host that lost it.
//!
//! One thread for each pool does the following, again and again:
//!
//! | the pool | what it does |
//! |---|---|
//! | is open here | looks whether another host took it over; if so, drops it |
//! | is not, and its lease changes | waits |
//! | is not, and its lease is over or free | waits for a random time, looks again, takes it over; failures wait longer |
//! | is not, and was exported by a person | waits for a command |
//! | is not, and its store does not answer | waits; the owner then has the time of all intervals again |
//!
//! # A pool that another host took over
//! Nothing of it can be written any more, whatever this host believes. It is given up, its clients are
//! disconnected without an answer, its mounts end, and it leaves the list. Its labels and the cache file stay
//! as they are. A daemon that does not stand by for it keeps it in the list, suspended, until a person
//! exports it by force.
//!
//! # Start and end
//! A pool that is on standby is not imported at the start from the cache file: another host may have it. The
//! end of the daemon leaves a free lease, so that another host goes on at once; `zpool export` says that the
//! pool was exported, and no host imports it by itself. An upgrade in place leaves the lease as it is.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Entry::seen` | what is known of a pool; held for a few lines | taken alone |
//! | `Entry::wake` | that the thread is to look at once; held while it sleeps | taken alone |

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use device::address::is_address;
use engine::events::text;
use objects::Address;
use objects::lease::{INTERVALS, Seen, State, Watch};
use ondisk::vdev_config::PoolState;
use tokio::runtime::{Builder, Runtime};

use super::names::pool_name_fault;
use super::pools::closing::Order;
use super::{Daemon, OpenPool, lock};
use crate::api::{self, ApiError, StandbyPool, StandbyState};
use crate::cachefile;

/// How often it is looked whether a pool that is open here was taken over.
const OWNED_LOOK: Duration = Duration::from_millis(250);
/// How long it is waited after a take-over that failed, the first time and at most.
const FAILED_WAIT: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];
/// How long it is waited for a store that cannot be opened.
const STORE_WAIT: Duration = Duration::from_secs(5);
/// The event of a pool that was lost to another host.
const LOST: &str = "pool_taken_over";

/// A pool to stand by for, and where its devices are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The pool.
    pub pool: String,
    /// The addresses of its devices.
    pub addresses: Vec<String>,
}

impl std::str::FromStr for Place {
    type Err = String;

    /// `POOL=ADDRESS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (pool, address) = text.split_once('=').ok_or_else(|| format!("'{text}' is not POOL=ADDRESS"))?;
        if let Some(fault) = pool_name_fault(pool) {
            return Err(format!("'{pool}' is no name of a pool: {fault}"));
        }
        let address: Address = address.parse().map_err(|error: objects::AddressError| error.to_string())?;
        Ok(Self { pool: pool.to_owned(), addresses: vec![address.to_string()] })
    }
}

/// The pools that a daemon stands by for.
#[derive(Debug, Default)]
pub(super) struct Standby {
    entries: Vec<Arc<Entry>>,
    /// Pools are taken over when their leases are over.
    by_lease: bool,
}

/// A pool that is stood by for.
#[derive(Debug)]
struct Entry {
    place: Place,
    seen: Mutex<StandbyPool>,
    wake: Mutex<bool>,
    is_woken: Condvar,
}

impl Entry {
    fn new(place: Place, by_lease: bool) -> Self {
        let (pool, addresses) = (place.pool.clone(), place.addresses.clone());
        let seen = StandbyPool { pool, addresses, by_lease, ..StandbyPool::default() };
        Self { place, seen: Mutex::new(seen), wake: Mutex::default(), is_woken: Condvar::new() }
    }

    /// Sleeps until it is woken, at most for so long.
    fn sleep(&self, most: Duration) {
        let woken = self.wake.lock().ignore_poison();
        let (mut woken, _) = self.is_woken.wait_timeout_while(woken, most, |woken| !*woken).ignore_poison();
        *woken = false;
    }

    fn wake(&self) {
        *self.wake.lock().ignore_poison() = true;
        self.is_woken.notify_all();
    }

    fn set(&self, state: StandbyState, message: Option<String>) {
        let mut seen = lock(&self.seen);
        let before = seen.state;
        (seen.state, seen.message) = (state, message);
        if before != state {
            let (pool, owner, message) = (&seen.pool, &seen.owner, &seen.message);
            tracing::info!(pool, owner, message, state = state.word(), "standing by for a pool");
        }
    }

    /// Notes what the lease says.
    fn note(&self, found: &Seen) {
        let (lease, unchanged) = match found {
            Seen::Held { lease, unchanged } => (lease.as_ref(), Some(*unchanged)),
            Seen::Over(lease) => (lease.as_ref(), None),
            Seen::Free(lease) | Seen::Exported(lease) => (Some(lease), None),
            Seen::Unknown(why) => return self.set(StandbyState::Unreachable, Some(why.clone())),
        };
        let failed = {
            let mut seen = lock(&self.seen);
            seen.owner = lease.map(|lease| lease.host.clone());
            seen.unchanged_ms = unchanged.map(|unchanged| unchanged.as_millis() as u64);
            // Why the last try failed stays to be seen until there is news.
            let is_free = matches!(found, Seen::Over(_) | Seen::Free(_));
            seen.message.clone().filter(|_| is_free && seen.state == StandbyState::Failed)
        };
        match found {
            Seen::Exported(_) => {
                let how = "it was exported; 'cenote standby take-over' opens it here".to_owned();
                self.set(StandbyState::Exported, Some(how));
            }
            Seen::Over(_) | Seen::Free(_) if failed.is_some() => self.set(StandbyState::Failed, failed),
            Seen::Over(_) | Seen::Free(_) => self.set(StandbyState::Free, None),
            _ => self.set(StandbyState::Watching, None),
        }
    }
}

impl Daemon {
    /// The same, which stands by for pools: these, or where none are given those of its cache file that lie
    /// in object stores. With `by_lease` it takes them over when their leases are over, else on command only.
    ///
    /// # Errors
    /// The cache file cannot be read; there is no pool to stand by for; one is named twice at one address.
    pub fn standing_by(mut self, places: &[Place], by_lease: bool) -> Result<Self, String> {
        let mut pools: Vec<Place> = Vec::new();
        for Place { pool, addresses } in places {
            match pools.iter_mut().find(|place| place.pool == *pool) {
                Some(known) => known.addresses.extend(addresses.iter().cloned()),
                None => pools.push(Place { pool: pool.clone(), addresses: addresses.clone() }),
            }
        }
        if places.is_empty() {
            pools = self.places_of_cachefile()?;
        }
        if pools.is_empty() {
            return Err(
                "--standby: the cache file has no pool in an object store; name one, as POOL=ADDRESS"
                    .to_owned(),
            );
        }
        let entries = pools.into_iter().map(|place| Arc::new(Entry::new(place, by_lease))).collect();
        self.standby = Standby { entries, by_lease };
        Ok(self)
    }

    fn places_of_cachefile(&self) -> Result<Vec<Place>, String> {
        let Some(file) = self.cachefile.as_deref().filter(|file| file.exists()) else {
            return Ok(Vec::new());
        };
        let cached = cachefile::read(file);
        let cached = cached
            .map_err(|error| format!("--standby: cannot read cache file {}: {error}", file.display()))?;
        let place = |pool: &cachefile::Cached| {
            let paths = pool.devices.iter().map(|(_, path)| path.as_path()).filter(|path| is_address(path));
            let addresses: Vec<_> = paths.filter_map(Path::to_str).map(str::to_owned).collect();
            (!addresses.is_empty()).then(|| Place { pool: pool.name.clone(), addresses })
        };
        Ok(cached.iter().filter_map(place).collect())
    }

    /// Begins to stand by, on a thread for each pool.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start_standby(self: &Arc<Self>) -> std::io::Result<()> {
        for entry in &self.standby.entries {
            let (daemon, entry) = (Arc::downgrade(self), Arc::clone(entry));
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let run = move || stand_by(&daemon, &entry, &runtime);
            std::thread::Builder::new().name("standby".into()).stack_size(device::STACK_BYTES).spawn(run)?;
        }
        Ok(())
    }

    /// Whether this host stands by for a pool.
    pub(super) fn stands_by_for(&self, pool: &str) -> bool {
        self.standby_entry(pool).is_some()
    }

    fn standby_entry(&self, pool: &str) -> Option<&Arc<Entry>> {
        self.standby.entries.iter().find(|entry| entry.place.pool == pool)
    }

    /// The pools that this host stands by for.
    ///
    /// # Errors
    /// None.
    pub fn list_standby(&self, _: api::ListStandby) -> Result<Vec<StandbyPool>, ApiError> {
        Ok(self.standby.entries.iter().map(|entry| lock(&entry.seen).clone()).collect())
    }

    /// Takes a pool over, unless this host has it.
    ///
    /// # Errors
    /// It is not known where the pool is; those of the import.
    pub async fn take_over(self: &Arc<Self>, request: api::TakeOverPool) -> Result<Vec<String>, ApiError> {
        let api::TakeOverPool { pool, addresses, command } = request;
        if let Some(open) = self.find_pool(&pool) {
            match open.fence.is_closed() {
                false => return Ok(Vec::new()),
                true => self.drop_lost(&open),
            }
        }
        let entry = self.standby_entry(&pool);
        let addresses = match (addresses.is_empty(), entry) {
            (false, _) => addresses,
            (true, Some(entry)) => entry.place.addresses.clone(),
            (true, None) => {
                return Err(ApiError::not_found(format!(
                    "cannot take over '{pool}': this host does not stand by for it; say where its devices are"
                )));
            }
        };
        for address in &addresses {
            let parsed = address.parse::<Address>();
            parsed.map_err(|error| ApiError::invalid(format!("cannot take over '{pool}': {error}")))?;
        }
        let began = Instant::now();
        let request = api::ImportPool {
            pool: Some(pool.clone()),
            search: addresses.iter().map(PathBuf::from).collect(),
            force: true,
            load_keys: true,
            command,
            ..api::ImportPool::default()
        };
        let imported = self.import(request).await;
        if let Some(entry) = entry {
            match &imported {
                Ok(_) => {
                    let mut seen = lock(&entry.seen);
                    seen.take_overs += 1;
                    seen.took_ms = Some(began.elapsed().as_millis() as u64);
                    seen.owner = Some(objects::lease::host_name());
                    (seen.state, seen.message, seen.unchanged_ms) = (StandbyState::Active, None, None);
                }
                Err(error) => entry.set(StandbyState::Failed, Some(error.message.clone())),
            }
            entry.wake();
        }
        let milliseconds = began.elapsed().as_millis() as u64;
        let imported = imported?;
        tracing::warn!(pool, milliseconds, "a pool was taken over");
        Ok(imported.pools.into_iter().flat_map(|opened| opened.warnings).collect())
    }

    /// Ends what this host does with a pool that another host took over. Blocks the thread.
    fn drop_lost(self: &Arc<Self>, open: &Arc<OpenPool>) {
        self.give_up_lost(open);
        let order = Order { force: true, state: PoolState::Active, command: None, hands_over: false };
        if let Err(error) = self.close(open, &order) {
            // That nothing was committed is meant.
            tracing::info!(pool = open.name(), %error, "a pool that was taken over is closed");
        }
    }

    /// Has nothing wait for a pool that another host took over.
    fn give_up_lost(&self, open: &OpenPool) {
        open.fence.close();
        if let Some(live) = open.live().filter(|live| live.txgs().stopped().is_none()) {
            let host = open.fence.host();
            let host = host.as_deref().unwrap_or("another host");
            tracing::error!(pool = open.name(), host, "a pool was taken over; this host has it no more");
            let fields = vec![text("host", host)];
            open.view().vdevs().reporter().sysevent(LOST, None, fields);
            live.abandon(&format!("it was taken over by {host}"));
        }
        open.disconnect();
    }

    /// Looks for pools that another host took over and that this one does not stand by for.
    pub(in crate::daemon) fn look_for_lost(&self) {
        let open = self.open_pools();
        let lost = open.iter().filter(|open| open.fence.look() && !self.stands_by_for(open.name()));
        lost.for_each(|open| self.give_up_lost(open));
    }
}

/// Stands by for one pool, until the daemon ends.
fn stand_by(daemon: &Weak<Daemon>, entry: &Entry, runtime: &Runtime) {
    let mut watch: Option<Watch> = None;
    let mut retry: Option<(Instant, Duration)> = None;
    loop {
        let pause = {
            let Some(daemon) = daemon.upgrade().filter(|daemon| !daemon.is_ending()) else { return };
            match daemon.find_pool(&entry.place.pool) {
                Some(open) => {
                    (watch, retry) = (None, None);
                    look_at_owned(&daemon, entry, &open)
                }
                None => look_at_lease(&daemon, entry, runtime, &mut watch, &mut retry),
            }
        };
        entry.sleep(pause);
    }
}

/// A pool that is open here. How long to wait then.
fn look_at_owned(daemon: &Arc<Daemon>, entry: &Entry, open: &Arc<OpenPool>) -> Duration {
    if open.fence.look() {
        daemon.drop_lost(open);
        entry.set(StandbyState::Watching, None);
        return Duration::ZERO;
    }
    if lock(&entry.seen).state != StandbyState::Active {
        let mut seen = lock(&entry.seen);
        (seen.owner, seen.unchanged_ms) = (Some(objects::lease::host_name()), None);
        drop(seen);
        entry.set(StandbyState::Active, None);
    }
    OWNED_LOOK
}

/// A pool that is not open here. How long to wait then.
fn look_at_lease(
    daemon: &Arc<Daemon>,
    entry: &Entry,
    runtime: &Runtime,
    watch: &mut Option<Watch>,
    retry: &mut Option<(Instant, Duration)>,
) -> Duration {
    if watch.is_none() {
        let address = entry.place.addresses.first().map(String::as_str).unwrap_or_default();
        // A store may want the runtime in which it is asked.
        let _inside = runtime.enter();
        let bucket = address.parse::<Address>().and_then(|address| address.bucket(false));
        match bucket {
            Ok(bucket) => *watch = Some(Watch::new(bucket, INTERVALS)),
            Err(error) => {
                entry.set(StandbyState::Unreachable, Some(error.to_string()));
                return STORE_WAIT;
            }
        }
    }
    let Some(watch) = watch else { return STORE_WAIT };
    let found = runtime.block_on(watch.look());
    entry.note(&found);
    let is_due = retry.is_none_or(|(next, _)| Instant::now() >= next);
    if !daemon.standby.by_lease || !found.may_be_taken() || !is_due || !runtime.block_on(watch.confirm()) {
        return watch.pause();
    }
    let command = Some(format!("cenote standby take-over {}", entry.place.pool));
    let request = api::TakeOverPool { pool: entry.place.pool.clone(), addresses: Vec::new(), command };
    match daemon.ask(&request) {
        Ok(warnings) => {
            warnings.iter().for_each(|warning| tracing::warn!(pool = request.pool, "{warning}"));
            *retry = None;
            Duration::ZERO
        }
        Err(error) => {
            let [first, most] = FAILED_WAIT;
            let wait = retry.map_or(first, |(_, wait)| (wait * 2).min(most));
            *retry = Some((Instant::now() + wait, wait));
            tracing::error!(pool = request.pool, "{error}");
            watch.pause()
        }
    }
}

impl OpenPool {
    /// What the leases of its devices are to say once they are closed: as it is by default, that they are
    /// free.
    pub(in crate::daemon) fn leave_leases(&self, state: Option<State>) {
        self.fence.places().for_each(|place| objects::lease::leave_as(place, state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_pool_and_an_address() {
        let place: Place = "tank=file:///var/objects?size=1G".parse().unwrap();
        assert_eq!(place.pool, "tank");
        assert_eq!(place.addresses, ["file:///var/objects"]);
        for wrong in ["tank", "tank=/dev/sda", "=file:///a", "../x=file:///a", "tank="] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_of_one_pool_belong_together() {
        let places = ["tank=file:///a", "other=file:///c", "tank=file:///b"];
        let places: Vec<Place> = places.iter().map(|place| place.parse().unwrap()).collect();
        let daemon = Daemon::with_cache(64 << 20).standing_by(&places, true).unwrap();
        let listed = daemon.list_standby(api::ListStandby {}).unwrap();
        assert_eq!(listed.len(), 2);
        assert_eq!(listed[0].addresses, ["file:///a", "file:///b"]);
        assert!(daemon.stands_by_for("other") && !daemon.stands_by_for("third"));
        let refused = Daemon::with_cache(64 << 20).standing_by(&[], true).unwrap_err();
        assert!(refused.contains("POOL=ADDRESS"), "{refused}");
    }

    #[test]
    fn what_the_lease_says_is_what_is_shown() {
        let entry = Entry::new("tank=file:///a".parse().unwrap(), true);
        let state = || lock(&entry.seen).state;
        entry.note(&Seen::Held { lease: None, unchanged: Duration::from_secs(2) });
        assert_eq!((state(), lock(&entry.seen).unchanged_ms), (StandbyState::Watching, Some(2000)));
        entry.note(&Seen::Over(None));
        assert_eq!(state(), StandbyState::Free);
        entry.set(StandbyState::Failed, Some("no device".into()));
        entry.note(&Seen::Over(None));
        assert_eq!(lock(&entry.seen).message.as_deref(), Some("no device"), "why it failed is still shown");
        entry.note(&Seen::Unknown("away".into()));
        assert_eq!(
            (state(), lock(&entry.seen).message.clone()),
            (StandbyState::Unreachable, Some("away".into()))
        );
    }
}
