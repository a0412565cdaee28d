//! Nothing that was promised is lost, at whatever moment the power fails.
//!
//! A run of clients on a pool is recorded; at many points of it the disks are rebuilt as a power cut could have left them, in several
//! variants; each such state is imported for writing, which replays intent logs, and compared with what was promised. On some of them the
//! import itself suffers a power cut, and on some every block is verified and `zdb` is asked.
//!
//! | variable | meaning |
//! |---|---|
//! | `CENOTE_CRASH_SECONDS` | how long to go on; without it about a minute |
//! | `CENOTE_CRASH_SEED` | the first seed of a longer run; printed with each failure |

mod history;
mod judge;
mod pools;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use testkit::Rng;
use testkit::crash::{Disk, Player};

use history::History;
use judge::Care;
use pools::TOPOLOGIES;

/// Points at which a run is looked at.
const POINTS: usize = 60;
/// States at each of them.
const STATES: u64 = 4;

#[derive(Default, Debug)]
struct Tally {
    runs: usize,
    points: usize,
    states: usize,
    second_cuts: usize,
    verified: usize,
    asked_zdb: usize,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.points += other.points;
        self.states += other.states;
        self.second_cuts += other.second_cuts;
        self.verified += other.verified;
        self.asked_zdb += other.asked_zdb;
    }
}

/// A number that the environment gives.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_promised_is_lost_when_the_power_fails() {
    let limit = Duration::from_secs(number("CENOTE_CRASH_SECONDS").unwrap_or(60));
    let next = AtomicU64::new(number("CENOTE_CRASH_SEED").unwrap_or(1));
    let began = Instant::now();
    let tally = Mutex::new(Tally::default());
    // The first failure ends all of them.
    let failed = AtomicBool::new(false);
    let go_through_seeds = || {
        let _guard = NoteFailure(&failed);
        while began.elapsed() < limit && !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let (kind, topology) = TOPOLOGIES[(seed as usize) % TOPOLOGIES.len()];
            let history = history::run(seed, topology, 40);
            let mut of_run = Tally { runs: 1, ..Tally::default() };
            try_points(&history, kind, &mut of_run, began + limit);
            tally.lock().unwrap_or_else(PoisonError::into_inner).add(&of_run);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(go_through_seeds);
        }
    });
    println!("{:?} in {:?}", tally.into_inner().unwrap_or_else(PoisonError::into_inner), began.elapsed());
}

struct NoteFailure<'a>(&'a AtomicBool);

impl Drop for NoteFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn try_points(history: &History, kind: &str, tally: &mut Tally, until: Instant) {
    let mut player = Player::new(&history.recorder);
    let mut rng = Rng::new(history.seed ^ 0xc4a5);
    let events = player.end() - history.begin;
    // Even steps with a random offset each: no stretch of a run is left out.
    for number in 0..POINTS {
        let from = history.begin + events * number / POINTS;
        let point = from + rng.index((events / POINTS).max(1));
        player.advance(point);
        tally.points += 1;
        for _ in 0..STATES {
            let seed = rng.next_u64();
            let disks = player.disks_after_power_cut(&mut Rng::new(seed));
            let care = Care { verify: rng.once_in(8), zdb: rng.once_in(150) };
            let where_from =
                format!("{kind}, CENOTE_CRASH_SEED={}, point {point}, state {seed}", history.seed);
            try_state(history, point, disks, seed, care, &where_from, tally);
        }
        if Instant::now() > until {
            return;
        }
    }
}

fn try_state(
    history: &History,
    point: usize,
    disks: Vec<Disk>,
    seed: u64,
    care: Care,
    where_from: &str,
    tally: &mut Tally,
) {
    tally.states += 1;
    tally.verified += usize::from(care.verify);
    tally.asked_zdb += usize::from(care.zdb);
    let recorder = match judge::judge(history, point, disks.clone(), seed, care) {
        Ok(recorder) => recorder,
        Err(error) => fail(&disks, where_from, &error),
    };
    // The power fails again while the pool is imported.
    let mut rng = Rng::new(seed ^ 1);
    if !rng.once_in(6) {
        return;
    }
    let mut player = Player::new(&recorder);
    let again = rng.index(player.end() + 1);
    player.advance(again);
    let disks = player.disks_after_power_cut(&mut rng);
    tally.second_cuts += 1;
    // What was written after the first import changes the last sector, which the history does not know.
    if care.verify || care.zdb {
        return;
    }
    let care = Care { verify: rng.once_in(4), zdb: false };
    if let Err(error) = judge::judge(history, point, disks.clone(), seed ^ 2, care) {
        fail(&disks, &format!("{where_from}, cut again at {again}"), &error);
    }
}

/// Keeps the disks for somebody to look at.
fn fail(disks: &[Disk], where_from: &str, error: &str) -> ! {
    let kept = tempfile::Builder::new().prefix("cenote-crash-").tempdir().map(|dir| dir.keep());
    if let Ok(dir) = &kept {
        let _ = judge::save(disks, dir);
    }
    panic!("{where_from}: {error}\nthe disks after the power cut are in {kept:?}");
}
