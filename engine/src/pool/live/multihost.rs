//! Multihost protection (MMP): two hosts that see the same devices must not write one pool.
//!
//! # The idea
//! As long as the property `multihost` is on, a thread of the host that has the pool marks it as in use: in
//! turn on each leaf it writes the last uberblock again, with a new time or sequence number, into the slot of
//! the ring that is kept for that. It says in it how often it does, and after which time without success it
//! stops writing the pool. A host that wants to import the pool watches the uberblocks for twice that time;
//! when a newer one appears, the pool is in use.
//!
//! For this to be safe a host must not write when it cannot mark. So each mark extends a lease, and
//! everything that is written asks for the lease first ([`crate::store::suspend`]).
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Heartbeat::state` | what the next mark says; for a few lines, never across an await | before `Suspension::state` |
//!
//! Source of the facts: OpenZFS 2.3 `mmp.c` (its opening comment), `spa.c` (`spa_activity_check`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use ondisk::Guid;
use ondisk::label::LABELS;
use ondisk::uberblock::{Mmp, Uberblock};
use ondisk::vdev_config::PoolState;

use super::LivePool;
use super::parts::Part;
use crate::env::{Env, Multihost};
use crate::pool::discovery::FoundPool;
use crate::pool::import::{ImportError, ImportOptions, uberblocks};
use crate::pool::properties::PoolProp;

/// How often the devices are looked at while they are watched.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A pool is watched for so many times the time after which its writer gives up.
const SAFETY_FACTOR: u32 = 2;

/// The marks of this host.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    on: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    has_thread: bool,
    /// What was committed last.
    uberblock: Option<Uberblock>,
    sequence: u16,
    last: Option<Instant>,
    delay: Duration,
    /// The leaf whose turn it is.
    next: usize,
}

impl Heartbeat {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// What an uberblock says about protection.
    pub(super) fn fields(&self, env: &dyn Env) -> Mmp {
        if !self.on.load(Ordering::Acquire) {
            return Mmp { delay_ns: 0, config: 0 };
        }
        self.state().fields(env.multihost(), 0)
    }

    /// This is what marks repeat from now on.
    pub(super) fn repeat(&self, uberblock: &Uberblock) {
        let mut state = self.state();
        (state.uberblock, state.sequence) = (Some(uberblock.clone()), 1);
    }
}

impl Part for Heartbeat {
    fn property(&self) -> Option<PoolProp> {
        Some(PoolProp::Multihost)
    }

    fn turn(&self, pool: &Arc<LivePool>, is_on: bool) {
        pool.set_multihost(is_on);
    }

    /// No more marks.
    fn close<'a>(&'a self, _: &'a LivePool, _: bool) -> BoxFuture<'a, ()> {
        self.on.store(false, Ordering::Release);
        self.changed.notify_all();
        ready(()).boxed()
    }
}

impl State {
    fn fields(&self, multihost: Multihost, sequence: u16) -> Mmp {
        let interval_ms = u64::try_from(multihost.interval.as_millis()).unwrap_or(u64::MAX);
        let delay = self.delay.max(Duration::from_millis(1));
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Mmp::new(delay_ns, interval_ms, sequence, multihost.fail_intervals)
    }

    /// The bytes of the next mark.
    fn next_mark(&mut self, env: &dyn Env) -> Option<Vec<u8>> {
        let mut uberblock = self.uberblock.clone()?;
        let now = env.now().as_secs().max(uberblock.timestamp);
        if now > uberblock.timestamp {
            (uberblock.timestamp, self.sequence) = (now, 1);
            self.uberblock = Some(uberblock.clone());
        }
        uberblock.mmp = Some(self.fields(env.multihost(), self.sequence));
        self.sequence = self.sequence.saturating_add(1);
        Some(uberblock.encode())
    }

    /// A mark is on a device: the delays that others must expect follow it, quickly up and slowly down.
    fn marked(&mut self, least: Duration) {
        let now = Instant::now();
        let delay = self.last.map_or(Duration::ZERO, |last| now - last);
        self.delay = match delay >= self.delay {
            true => delay,
            false => ((delay + self.delay * 127) / 128).max(least),
        };
        self.last = Some(now);
    }
}

impl LivePool {
    /// Turns protection on or off.
    fn set_multihost(self: &Arc<Self>, on: bool) {
        self.parts.multihost.on.store(on, Ordering::Release);
        if !on {
            self.parts.multihost.changed.notify_all();
            self.pool.suspension.lease(None);
            return;
        }
        let multihost = self.env.multihost();
        let mut state = self.parts.multihost.state();
        state.delay = multihost.interval;
        state.last = Some(Instant::now());
        self.extend_lease(multihost);
        if state.uberblock.is_none() {
            let newest = self.views.newest();
            state.uberblock = (!newest.root_blkptr().is_hole()).then(|| newest.uberblock().clone());
        }
        if state.has_thread {
            return;
        }
        let pool = Arc::downgrade(self);
        let run = move || {
            while let Some(pool) =
                pool.upgrade().filter(|pool| pool.parts.multihost.on.load(Ordering::Acquire))
            {
                let leaves = pool.uberblock_leaves();
                device::block_on(pool.mark(&leaves));
                let pause = pool.env.multihost().interval / u32::try_from(leaves.len().max(1)).unwrap_or(1);
                let heartbeat = pool.parts.multihost.state();
                // Not longer than that is the pool kept from being dropped.
                let _ = pool.parts.multihost.changed.wait_timeout(heartbeat, pause);
            }
            if let Some(pool) = pool.upgrade() {
                pool.parts.multihost.state().has_thread = false;
            }
        };
        let spawned = std::thread::Builder::new().name(format!("mmp {}", self.pool.name())).spawn(run);
        match spawned {
            Ok(_) => state.has_thread = true,
            // Without marks the lease runs out.
            Err(error) => tracing::error!(%error, "no thread for multihost protection"),
        }
    }

    fn extend_lease(&self, multihost: Multihost) {
        if multihost.fail_intervals > 0 {
            let until = Instant::now() + multihost.interval * u32::from(multihost.fail_intervals);
            self.pool.suspension.lease(Some(until));
        }
    }

    /// Marks the pool as in use on the first leaf, from the one whose turn it is, that takes it.
    async fn mark(&self, leaves: &[Guid]) {
        let env = &*self.env;
        let multihost = env.multihost();
        for _ in leaves {
            let (leaf, mark) = {
                let mut state = self.parts.multihost.state();
                state.next = (state.next + 1) % leaves.len();
                (leaves.get(state.next).copied(), state.next_mark(env))
            };
            let (Some(leaf), Some(mark)) = (leaf, mark) else { return };
            if self.pool.suspension.check().is_err() || !self.parts.multihost.on.load(Ordering::Acquire) {
                return;
            }
            let label = (env.random() % LABELS as u64) as usize;
            if self.pool.vdevs().write_heartbeat(leaf, label, &mark).await.is_ok() {
                let least = multihost.interval / u32::try_from(leaves.len()).unwrap_or(u32::MAX).max(1);
                self.parts.multihost.state().marked(least);
                if self.parts.multihost.on.load(Ordering::Acquire) {
                    self.extend_lease(multihost);
                }
                return;
            }
        }
    }
}

/// Watches a pool with protection that another host may have open.
///
/// # Errors
/// It has: a newer uberblock than the newest appeared.
pub(super) async fn watch(
    found: &FoundPool,
    options: &ImportOptions,
    env: &dyn Env,
) -> Result<(), ImportError> {
    let Some(newest) = uberblocks(found).await.into_iter().next().filter(Uberblock::is_multihost) else {
        return Ok(());
    };
    if options.host_id == 0 {
        return Err(ImportError::NoHostId(found.name.clone()));
    }
    let host_id = found.label.host_id.unwrap_or(0);
    let is_own = host_id == options.host_id && found.state() == PoolState::Exported;
    if is_own || found.state() == PoolState::Destroyed {
        return Ok(());
    }
    let time = watching_time(&newest, env.multihost());
    // Of two hosts that watch each other one is to end first.
    let time = time + time * u32::try_from(env.random() % 250).unwrap_or(0) / 1000;
    tracing::info!(
        pool = found.name,
        seconds = time.as_secs(),
        "watching whether another host uses the pool"
    );
    let end = Instant::now() + time;
    loop {
        let now = uberblocks(found).await.into_iter().next();
        if now.is_some_and(|now| now.recency() > newest.recency()) {
            let host = found.label.host_name.as_ref();
            return Err(ImportError::Active {
                name: found.name.clone(),
                host: host.map_or_else(
                    || "<unknown>".into(),
                    |name| String::from_utf8_lossy(name.as_bytes()).into(),
                ),
                host_id,
            });
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK_INTERVAL));
    }
}

/// For how long a pool is watched whose newest uberblock says this.
fn watching_time(newest: &Uberblock, own: Multihost) -> Duration {
    let least = (own.interval * own.import_intervals.max(1)).max(Duration::from_secs(1));
    let Some(mmp) = newest.mmp else { return least };
    let delay = Duration::from_nanos(mmp.delay_ns);
    match (mmp.interval_ms().map(Duration::from_millis), mmp.fail_intervals()) {
        (Some(interval), Some(fail)) if fail > 0 => interval * u32::from(fail) * SAFETY_FACTOR,
        (Some(interval), Some(_)) => least.max((interval + delay) * own.import_intervals),
        _ => least.max((own.interval + delay) * own.import_intervals),
    }
}

#[cfg(test)]
mod tests {
    use ondisk::blkptr::Blkptr;
    use ondisk::{ByteOrder, Txg};

    use super::*;

    fn uberblock(mmp: Mmp) -> Uberblock {
        Uberblock {
            order: ByteOrder::Little,
            version: 5000,
            txg: Txg(10),
            guid_sum: 1,
            timestamp: 1,
            root_bp: Blkptr::HOLE,
            software_version: 5000,
            mmp: Some(mmp),
            checkpoint_txg: Txg::NONE,
            raidz_reflow_info: 0,
        }
    }

    #[test]
    fn a_pool_is_watched_for_twice_the_time_after_which_its_writer_gives_up() {
        let time = |mmp| watching_time(&uberblock(mmp), Multihost::default());
        assert_eq!(time(Mmp::new(500_000_000, 1000, 0, 10)), Duration::from_secs(20));
        assert_eq!(time(Mmp::new(1, 100, 3, 2)), Duration::from_millis(400));
        // One that never gives up may come back late.
        assert_eq!(time(Mmp::new(100_000_000, 10_000, 0, 0)), Duration::from_secs(202));
        assert_eq!(time(Mmp { delay_ns: 1_000_000_000, config: 0 }), Duration::from_secs(40));
    }

    #[test]
    fn each_mark_is_newer_than_the_one_before() {
        let env = crate::env::Seeded::new(1);
        let fields = Mmp::new(1, 1000, 0, 10);
        let mut state = State { uberblock: Some(uberblock(fields)), ..State::default() };
        state.uberblock.as_mut().expect("set").timestamp = u64::MAX >> 1;
        let marks: Vec<_> = (0..3)
            .map(|_| Uberblock::parse(&state.next_mark(&env).expect("a mark")).expect("parses"))
            .collect();
        assert!(marks.windows(2).all(|pair| pair[0].recency() < pair[1].recency()));
        assert!(marks.iter().all(|mark| mark.is_multihost() && mark.txg == Txg(10)));
    }
}
