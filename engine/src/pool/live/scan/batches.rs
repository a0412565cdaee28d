//! The batches of a scrub or a resilver ([`crate::scan`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use ondisk::Txg;

use super::{Batch, Done, HELD};
use crate::error::Result;
use crate::jobs::{Job, Step, Turn};
use crate::pool::live::{JobKey, Lent, LivePool};
use crate::scan::{
    Counters, Failed, Guard, Interrupted, Issue, Others, Pilot, StaleTops, Verified, Walked, Walking, walk,
};
use crate::store::Pool;
use crate::tunables;
use crate::vdev::stats::Transfer;

/// The pause while the pool is suspended, or after a batch whose view was taken back.
const WAIT: Duration = Duration::from_millis(500);
/// Others use the devices when a transfer of theirs ended within this time.
const BUSY: Duration = Duration::from_millis(100);
/// The fewest bytes that a batch reads, however slow devices are, and however often its view was taken back.
const MIN_BATCH_BYTES: u64 = 16 << 20;
/// Bytes that the first batch reads, when it is not known how long that takes.
const FIRST_BATCH_BYTES: u64 = 256 << 20;
/// How long a batch takes, about. So much is repeated after a crash or an export.
const BATCH_TIME: Duration = Duration::from_secs(30);

impl Guard for Lent {
    fn hold(&self) -> Option<Arc<Pool>> {
        Lent::hold(self)
    }
}

/// Does the batches of the scan that is under way.
#[derive(Debug)]
pub(super) struct Scanning {
    /// The most that the next batch reads.
    batch_bytes: u64,
}

impl Default for Scanning {
    fn default() -> Self {
        Self { batch_bytes: FIRST_BATCH_BYTES }
    }
}

impl Job<LivePool> for Scanning {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn step<'a>(&'a mut self, turn: &'a Turn<'a, LivePool>) -> LocalBoxFuture<'a, Result<Step>> {
        self.next(turn).boxed_local()
    }
}

impl Scanning {
    async fn next(&mut self, turn: &Turn<'_, LivePool>) -> Result<Step> {
        let pool = turn.host()?;
        if pool.suspended().is_some() {
            return Ok(Step::More { pause: WAIT });
        }
        if tunables::ZFS_SCAN_SUSPEND_PROGRESS.is_on() {
            return Ok(Step::More { pause: HELD });
        }
        let Some((mut batch, lent)) = pool.begin_batch().await? else { return Ok(Step::Complete) };
        batch.limits.batch_bytes = batch.limits.batch_bytes.min(self.batch_bytes);
        let (bytes, began) = (batch.limits.batch_bytes, Instant::now());
        match work(&pool, turn, batch, lent).await {
            Ok(done) => {
                self.batch_bytes = next_batch_bytes(bytes, began.elapsed());
                // A leaf whose flush fails counts as away from then on.
                let _ = pool.pool().vdevs().flush().await;
                match pool.change(move |s| async move { s.finish_batch(done).await }).await? {
                    true => Ok(Step::Complete),
                    false => Ok(Step::More { pause: Duration::ZERO }),
                }
            }
            Err(Interrupted::Stopped) => Ok(Step::More { pause: Duration::ZERO }),
            Err(Interrupted::Taken) => {
                self.batch_bytes = (bytes / 4).max(MIN_BATCH_BYTES);
                Ok(Step::More { pause: WAIT })
            }
            Err(Interrupted::Failed(error)) if pool.suspended().is_some() => {
                tracing::info!(pool = pool.pool().name(), %error, "a scan waits for devices");
                Ok(Step::More { pause: WAIT })
            }
            Err(Interrupted::Failed(error)) => Err(error),
        }
    }
}

/// How much the batch after one of so many bytes reads, which took so long.
fn next_batch_bytes(bytes: u64, took: Duration) -> u64 {
    let most = BATCH_TIME.as_micros().saturating_mul(bytes.into()) / took.as_micros().max(1);
    u64::try_from(most).unwrap_or(u64::MAX).min(bytes.saturating_mul(2)).max(MIN_BATCH_BYTES)
}

/// Walks and reads.
async fn work(
    pool: &Arc<LivePool>,
    turn: &Turn<'_, LivePool>,
    batch: Batch,
    lent: Arc<Lent>,
) -> Result<Done, Interrupted> {
    let Batch { number, scan, as_of, known, mut cursor, purpose, limits } = batch;
    let store = pool.pool().store();
    let stale = StaleTops::of(store.vdevs());
    let guard: Arc<dyn Guard> = Arc::<Lent>::clone(&lent);
    let goes_on = || turn.goes_on() && !lent.has_ended();
    let walking = Walking { store, guard, purpose, limits, stale: &stale, goes_on: &goes_on };
    let walked = walk(&walking, &mut cursor).await.map_err(|interrupted| taken(interrupted, &lent))?;
    let Walked { gathered, counters, damaged, is_all } = walked;
    let pilot = Steering { pool, turn, number, lent: &lent, seen: std::cell::Cell::default() };
    pilot.note(&counters);
    let failed = Failed::new();
    let mut issue = Issue {
        store,
        guard: &*lent,
        purpose,
        limits,
        stale: &stale,
        pilot: &pilot,
        known: &known,
        verified: Verified::as_of(as_of),
        counters,
        damaged,
        failed,
        unwritten: BTreeSet::new(),
    };
    if let Err(interrupted) = issue.run(gathered).await {
        pool.scan().keep(scan, issue.verified);
        return Err(taken(interrupted, &lent));
    }
    Ok(Done {
        number,
        cursor,
        counters: issue.counters,
        failed: issue.failed,
        unwritten: issue.unwritten,
        is_all,
    })
}

/// A batch that does not go on because its view was taken back is to be made smaller.
fn taken(interrupted: Interrupted, lent: &Lent) -> Interrupted {
    match interrupted {
        Interrupted::Stopped if lent.has_ended() => Interrupted::Taken,
        interrupted => interrupted,
    }
}

/// Steers a batch.
struct Steering<'a> {
    pool: &'a Arc<LivePool>,
    turn: &'a Turn<'a, LivePool>,
    number: u64,
    lent: &'a Lent,
    seen: std::cell::Cell<Seen>,
}

/// Transfers of others.
#[derive(Clone, Copy, Default)]
struct Seen {
    reads: u64,
    /// How long all reads took.
    total_ns: u64,
    writes: u64,
    /// When there were new ones.
    since: Option<Instant>,
    /// How long reads took lately.
    read_ns: Option<u64>,
}

impl Pilot for Steering<'_> {
    fn goes_on(&self) -> bool {
        self.turn.goes_on() && !self.lent.has_ended() && self.pool.suspended().is_none()
    }

    fn others(&self) -> Others {
        let of_leaf = |leaf: &crate::vdev::Vdev| {
            let [read, of_scan, log] =
                [Transfer::Read, Transfer::Scrub, Transfer::SyncWrite].map(|kind| leaf.stats.snapshot(kind));
            // What the scan itself repairs is seldom.
            let of_others = read.since(&of_scan);
            (of_others.operations, of_others.total_ns, log.operations)
        };
        let leaves = self.pool.pool().vdevs().leaves().map(of_leaf);
        let (reads, total_ns, writes) = leaves.fold((0, 0, 0), |sum: (u64, u64, u64), leaf| {
            (sum.0 + leaf.0, sum.1.saturating_add(leaf.1), sum.2 + leaf.2)
        });
        let mut seen = self.seen.get();
        if (reads, writes) != (seen.reads, seen.writes) {
            let is_first = seen.reads == 0 && seen.writes == 0;
            let new = (reads.saturating_sub(seen.reads), total_ns.saturating_sub(seen.total_ns));
            if let (Some(mean_ns), false) = (new.1.checked_div(new.0), is_first) {
                // A mean in which older reads fade.
                let older = seen.read_ns.unwrap_or(mean_ns);
                seen.read_ns = Some((older / 8).saturating_mul(7).saturating_add(mean_ns / 8));
            }
            let since = Some(Instant::now()).filter(|_| !is_first);
            seen = Seen { reads, total_ns, writes, since, read_ns: seen.read_ns };
        }
        self.seen.set(seen);
        match seen.since.is_some_and(|since| since.elapsed() < BUSY) {
            true => Others::Busy(seen.read_ns.map(Duration::from_nanos)),
            false => Others::Idle,
        }
    }

    fn open_txg(&self) -> Txg {
        self.pool.txgs().open_txg()
    }

    fn note(&self, counters: &Counters) {
        let (done, total) = {
            let mut state = self.pool.scan();
            if !state.note_progress(self.number, counters) {
                return;
            }
            let phys = &state.phys;
            let issued = phys.examined.saturating_sub(phys.skipped).saturating_add(counters.issued);
            (issued, phys.to_examine.saturating_sub(phys.skipped.saturating_add(counters.skipped)))
        };
        self.pool.jobs.advance(self.pool, &JobKey::Scan, done, total);
    }

    fn pause(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_take_about_half_a_minute() {
        const MIB: u64 = 1 << 20;
        let next = |mib: u64, seconds| next_batch_bytes(mib * MIB, Duration::from_secs(seconds)) / MIB;
        assert_eq!((next(256, 60), next(256, 30), next(256, 20), next(256, 1)), (128, 256, 384, 512));
        assert_eq!(next(16, 3600), 16);
    }
}
