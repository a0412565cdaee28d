//! Nothing that was promised is lost, at whatever moment the power fails.
//!
//! A run of clients and an administrator on a pool is recorded; at many points of it the disks are rebuilt as
//! a power cut could have left them, in several variants; each such state is imported for writing, which
//! replays intent logs, and compared with what was promised. Some are imported without devices that the pool
//! can do without. On some of them the import itself suffers a power cut, after which the missing devices are
//! back; on some every block is verified and `zdb` is asked.
//!
//! | module | what it owns |
//! |---|---|
//! | `pools` | kinds of pools, on recorded devices |
//! | `history` | the run: clients, commits, a device that dies |
//! | `administrator` | changes of the tree of datasets while clients write |
//! | `logs` | log devices that are taken away and given back |
//! | `keys` | keys of encrypted datasets |
//! | `ivs` | no initialization vector comes twice |
//! | `contents` | what volumes and snapshots hold |
//! | `judge` | whether what is left is right |
//! | `filesystem` | the same for files |
//! | `healing` | the same for scrubs, resilvers and devices that change |
//! | `reshaping` | the same for volumes that get another block size |
//! | `pruning` | the same for clones beside prunes of dedup tables |
//!
//! | variable | meaning |
//! |---|---|
//! | `CENOTE_CRASH_SECONDS` | how long to go on; without it about a minute |
//! | `CENOTE_CRASH_SEED` | the first seed; printed with each failure. With `CENOTE_CRASH_SECONDS=0` it is the only one, and tried to its end |

#![allow(clippy::unwrap_used, reason = "a test")]

mod administrator;
mod contents;
mod filesystem;
mod healing;
mod history;
#[path = "../../../engine/tests/live/ivs.rs"]
mod ivs;
mod judge;
mod keys;
mod logs;
mod pools;
mod pruning;
mod reshaping;
#[allow(dead_code, reason = "parts of it are for others")]
#[path = "../../../engine/tests/live/support.rs"]
mod support;

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use testkit::Rng;
use testkit::crash::{Disk, Player};

use history::History;
use judge::Care;
use pools::{KINDS, Kind};

/// Points at which a run is looked at.
const POINTS: usize = 40;
/// States at each of them.
const STATES: u64 = 4;
/// Steps of each client.
const STEPS: usize = 40;
/// One state in so many is shown to `zdb`, which takes as long as a hundred others.
const ZDB_ONCE_IN: u64 = 240;

#[derive(Default, Debug)]
struct Tally {
    runs: usize,
    points: usize,
    states: usize,
    second_cuts: usize,
    without_devices: usize,
    /// Removals of log vdevs in all runs.
    logs_removed: usize,
    /// States while one was under way.
    removing_logs: usize,
    /// States after one, whose devices may hold anything.
    without_logs: usize,
    /// States that were first scrubbed without keys.
    locked: usize,
    /// Blocks that were encrypted, in all runs and what became of them.
    ivs: usize,
    verified: usize,
    /// Of these, states of pools from whose dedup tables entries were pruned.
    verified_pruned: usize,
    asked_zdb: usize,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.points += other.points;
        self.states += other.states;
        self.second_cuts += other.second_cuts;
        self.without_devices += other.without_devices;
        self.logs_removed += other.logs_removed;
        self.removing_logs += other.removing_logs;
        self.without_logs += other.without_logs;
        self.locked += other.locked;
        self.ivs += other.ivs;
        self.verified += other.verified;
        self.verified_pruned += other.verified_pruned;
        self.asked_zdb += other.asked_zdb;
    }
}

/// A number that the environment gives.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn kind_of(seed: u64) -> &'static Kind {
    &KINDS[(seed as usize) % KINDS.len()]
}

#[test]
fn nothing_promised_is_lost_when_the_power_fails() {
    let limit = Duration::from_secs(number("CENOTE_CRASH_SECONDS").unwrap_or(60));
    let only_one = limit.is_zero();
    let next = AtomicU64::new(number("CENOTE_CRASH_SEED").unwrap_or(1));
    let began = Instant::now();
    let tally = Mutex::new(Tally::default());
    // The first failure ends all of them.
    let failed = AtomicBool::new(false);
    let is_over = || failed.load(Ordering::Relaxed) || (began.elapsed() >= limit && !only_one);
    let go_through_seeds = || {
        let _guard = NoteFailure(&failed);
        while !is_over() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let history = history::run(seed, kind_of(seed), STEPS);
            let mut of_run = Tally { runs: 1, logs_removed: history.moves.removals(), ..Tally::default() };
            try_points(&history, &mut of_run, &is_over);
            of_run.ivs =
                history.ivs.count().unwrap_or_else(|twice| panic!("CENOTE_CRASH_SEED={seed}: {twice}"));
            tally.lock().ignore_poison().add(&of_run);
            if only_one {
                return;
            }
        }
    };
    let threads =
        std::thread::available_parallelism().map_or(1, usize::from).min(if only_one { 1 } else { 8 });
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| pools::alone(go_through_seeds));
        }
    });
    let tally = tally.into_inner().ignore_poison();
    // Past what captures the output of tests: how much was tried is part of the result.
    let _ = writeln!(std::io::stderr(), "power cuts: {tally:?} in {:?}", began.elapsed());
}

#[test]
fn a_pool_that_heals_goes_on_after_any_power_cut() {
    let limit = Duration::from_secs(number("CENOTE_CRASH_SECONDS").unwrap_or(40));
    let only_one = limit.is_zero();
    let next = AtomicU64::new(number("CENOTE_CRASH_SEED").unwrap_or(1));
    let began = Instant::now();
    let failed = AtomicBool::new(false);
    let is_over = || failed.load(Ordering::Relaxed) || (began.elapsed() >= limit && !only_one);
    let tallies = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..if only_one { 1 } else { 2 } {
            scope.spawn(|| {
                let _guard = NoteFailure(&failed);
                let mut tally = healing::Tally::default();
                while !is_over() {
                    healing::tell(next.fetch_add(1, Ordering::Relaxed), &mut tally, &is_over);
                    if only_one {
                        break;
                    }
                }
                tallies.lock().ignore_poison().push(tally);
            });
        }
    });
    let tallies = tallies.into_inner().ignore_poison();
    let _ = writeln!(std::io::stderr(), "power cuts while pools heal: {tallies:?} in {:?}", began.elapsed());
}

#[test]
fn a_volume_that_gets_another_block_size_keeps_what_was_promised() {
    let limit = Duration::from_secs(number("CENOTE_CRASH_SECONDS").unwrap_or(15));
    let only_one = limit.is_zero();
    let mut seed = number("CENOTE_CRASH_SEED").unwrap_or(1);
    let began = Instant::now();
    let is_over = || began.elapsed() >= limit && !only_one;
    let mut tally = reshaping::Tally::default();
    loop {
        reshaping::tell(seed, &mut tally, &is_over);
        seed += 1;
        if only_one || is_over() {
            break;
        }
    }
    let _ = writeln!(
        std::io::stderr(),
        "power cuts while volumes are copied: {tally:?} in {:?}",
        began.elapsed()
    );
}

#[test]
fn clones_beside_a_prune_survive_any_power_cut() {
    let limit = Duration::from_secs(number("CENOTE_CRASH_SECONDS").unwrap_or(15));
    let only_one = limit.is_zero();
    let mut seed = number("CENOTE_CRASH_SEED").unwrap_or(1);
    let began = Instant::now();
    let is_over = || began.elapsed() >= limit && !only_one;
    let mut tally = pruning::Tally::default();
    pools::alone(|| {
        loop {
            pruning::tell(seed, &mut tally, only_one, &is_over);
            seed += 1;
            if only_one || is_over() {
                break;
            }
        }
    });
    let _ = writeln!(std::io::stderr(), "power cuts beside prunes: {tally:?} in {:?}", began.elapsed());
}

#[test]
fn a_seed_names_one_history() {
    for seed in [1, 7, 11] {
        let runs = || pools::alone(|| history::run(seed, kind_of(seed), 15).recorder.fingerprint());
        assert_eq!(runs(), runs(), "seed {seed}");
    }
}

struct NoteFailure<'a>(&'a AtomicBool);

impl Drop for NoteFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn try_points(history: &History, tally: &mut Tally, is_over: &impl Fn() -> bool) {
    let mut player = Player::new(&history.recorder);
    let mut rng = Rng::new(history.seed ^ 0xc4a5);
    let events = player.end() - history.begin;
    // Even steps with a random offset each: no stretch of a run is left out.
    let even = (0..POINTS).map(|number| history.begin + events * number / POINTS);
    let mut points: Vec<usize> = even.map(|from| from + rng.index((events / POINTS).max(1))).collect();
    points.extend(history.moves.points(&mut rng));
    points.sort_unstable();
    for point in points {
        player.advance(point);
        tally.points += 1;
        let is_gone = |device: &usize| history.moves.is_gone(*device, point);
        let died = history.died.filter(|(_, at)| *at <= point).map(|(device, _)| device);
        let died = died.filter(|device| !is_gone(device));
        for _ in 0..STATES {
            let seed = rng.next_u64();
            let mut disks = player.disks_after_power_cut(&mut Rng::new(seed));
            let haunted = history.moves.haunt(point, &mut disks, &mut Rng::new(seed ^ 3));
            tally.removing_logs += usize::from(history.moves.is_removing(point));
            tally.without_logs += usize::from(!haunted.is_empty());
            let mut missing: Vec<usize> = died.filter(|_| rng.once_in(2)).into_iter().collect();
            if rng.once_in(4) {
                let mut more = history.kind.expendable(&mut rng, 3);
                more.retain(|device| !is_gone(device));
                more.extend(died);
                if history.kind.can_do_without(&more) {
                    missing = more;
                }
            }
            missing.sort_unstable();
            missing.dedup();
            let stale = died.is_some_and(|died| !missing.contains(&died));
            let pruned = history.pruned(point);
            let (verify, zdb) = (rng.once_in(8), rng.once_in(ZDB_ONCE_IN));
            let locked = history.kind.encryption.is_some() && rng.once_in(6);
            let care = Care { verify, zdb, missing, stale, locked, pruned };
            let where_from = format!(
                "{}, CENOTE_CRASH_SECONDS=0 CENOTE_CRASH_SEED={}, point {point}, state {seed}, {care:?}, \
                 died {:?}, devices that are no longer the pool's {haunted:?}",
                history.kind.name, history.seed, history.died
            );
            try_state(history, point, disks, seed, &care, &where_from, tally);
        }
        if is_over() {
            return;
        }
    }
}

fn try_state(
    history: &History,
    point: usize,
    disks: Vec<Disk>,
    seed: u64,
    care: &Care,
    where_from: &str,
    tally: &mut Tally,
) {
    tally.states += 1;
    tally.verified += usize::from(care.verify);
    tally.verified_pruned += usize::from(care.verify && care.pruned > 0);
    tally.asked_zdb += usize::from(care.zdb);
    tally.locked += usize::from(care.locked);
    tally.without_devices += usize::from(!care.missing.is_empty());
    let recorder = match judge::judge(history, point, disks.clone(), seed, care) {
        Ok(recorder) => recorder,
        Err(error) => fail(&disks, where_from, &error),
    };
    // The power fails again while the pool is imported. Devices that were missing come back, without what was
    // written meanwhile.
    let mut rng = Rng::new(seed ^ 1);
    if !rng.once_in(6) {
        return;
    }
    // What was done after the import is nothing that the history knows.
    if care.verify || care.zdb {
        return;
    }
    let mut player = Player::new(&recorder);
    let again = rng.index(player.end() + 1);
    player.advance(again);
    let disks = player.disks_after_power_cut(&mut rng);
    tally.second_cuts += 1;
    tally.states += 1;
    let stale = care.stale || !care.missing.is_empty();
    let pruned = care.pruned;
    let again_care = Care { verify: rng.once_in(4), stale, pruned, ..Care::default() };
    if let Err(error) = judge::judge(history, point, disks.clone(), seed ^ 2, &again_care) {
        fail(&disks, &format!("{where_from}, cut again at {again}"), &error);
    }
}

/// Keeps the disks for a developer to examine.
fn fail(disks: &[Disk], where_from: &str, error: &str) -> ! {
    let kept = tempfile::Builder::new().prefix("cenote-crash-").tempdir().map(|dir| dir.keep());
    if let Ok(dir) = &kept {
        let _ = judge::save(disks, &[], dir);
    }
    panic!("{where_from}: {error}\nthe disks after the power cut are in {kept:?}");
}
