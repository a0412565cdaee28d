//! Files after a power cut.
//!
//! A client changes the files of a filesystem at random and makes them stable now and then, while log devices
//! are taken away and given back; after each change all that can be seen is kept as a *moment*. In half of
//! the runs the filesystem has `logbias=throughput`, so that its log refers to blocks of files; in the others
//! that holds for large writes without log devices. After a cut the filesystem must be such as the promises
//! allow:
//!
//! - Names, links, symbolic links and devices are exactly those of one moment between the last promise of
//!   anything and the cut: the log keeps their order.
//! - Of each file the attributes, and each byte of the content, are of some moment between the last promise
//!   of this file and the cut. Bytes that some of these moments did not have may be zero: a file may have
//!   become longer before what it became longer for was stable.
//! - Extended attributes are of such a moment each, or empty where they are being written.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::dsl::Dsl;
use engine::env::{Env, Seeded};
use engine::pool::live::LivePool;
use engine::zil::SyncMode;
use engine::zpl::live::XattrPlace;
use engine::zpl::{LiveZpl, ZplOptions};
use ondisk::ObjectId;
use testkit::Rng;
use testkit::crash::{Disk, Player, Recorder};

use super::history::{all, turns};
use super::ivs::Ivs;
use super::judge::{self, Care};
use super::keys;
use super::logs::Moves;
use super::pools::{self, Created, KINDS};
use super::support::{POOL, committing};

#[allow(dead_code, reason = "parts of it are for others")]
#[path = "../../../engine/tests/live/files.rs"]
mod files;

pub use files::FILE;
use files::{Seen, change, see};

const CHANGES: usize = 50;
const POINTS: usize = 24;
const TYPE: u32 = 0o170_000;
const SYMLINK: u32 = 0o120_000;

type Moment = BTreeMap<String, Seen>;

/// What became stable.
struct Promise {
    /// Of this file, or of all.
    file: Option<ObjectId>,
    /// All up to this moment.
    moment: usize,
    /// From this point on.
    at: usize,
}

struct Run {
    recorder: Recorder,
    begin: usize,
    moments: Vec<Moment>,
    /// When the change began that led to each moment but the first.
    begun: Vec<usize>,
    promises: Vec<Promise>,
    moves: Moves,
    /// Writes that were logged by pointer.
    by_pointer: u64,
    /// What was used to encrypt, also in what became of the run.
    ivs: Ivs,
}

/// The pool's filesystem, opened for writing.
pub async fn open(pool: &Arc<LivePool>, for_throughput: bool) -> engine::Result<Arc<LiveZpl>> {
    let head = Dsl::open(&pool.view()).await?.find(POOL).await?;
    let dataset = pool.dataset(head.objset_id()).await?;
    dataset.zil.set_for_throughput(for_throughput);
    LiveZpl::open(pool.txgs(), &dataset.objset, &dataset.zil, ZplOptions::default()).await
}

fn run(seed: u64) -> Run {
    pools::run(async move {
        let recorder = Recorder::new(seed);
        let mut rng = Rng::new(seed);
        let kind = &KINDS[seed as usize % KINDS.len()];
        let Created { pool, logs, ivs, .. } = pools::create(&recorder, kind, 12, seed).await;
        let zpl = open(&pool, Rng::new(seed ^ 0xb1a5).once_in(2)).await.expect("a filesystem");
        let mut run = Run {
            begin: recorder.position(),
            recorder: recorder.clone(),
            moments: vec![see(zpl.zpl()).await],
            begun: Vec::new(),
            promises: Vec::new(),
            moves: Moves::default(),
            by_pointer: 0,
            ivs,
        };
        let (is_over, logs_stay) = (Cell::new(false), Cell::new(false));
        let of_files = Rng::new(rng.next_u64());
        all(vec![
            Box::pin(async {
                change_files(&mut run, &pool, &zpl, seed, of_files).await;
                is_over.set(true);
                while !logs_stay.get() {
                    pool.sync().await.expect("a commit");
                    turns(1).await;
                }
            }),
            Box::pin(async {
                let moved = logs.come_and_go(&pool, &recorder, &mut rng, &|| is_over.get(), &|| None).await;
                moved.expect("log devices come and go");
                logs_stay.set(true);
            }),
        ])
        .await;
        run.moves = logs.into_moves();
        run.by_pointer = zpl.objset().stats().zil().snapshot().zil_itx_indirect_count;
        run
    })
}

/// Changes files, and notes what was to be seen after each change.
async fn change_files(run: &mut Run, pool: &Arc<LivePool>, zpl: &Arc<LiveZpl>, seed: u64, mut rng: Rng) {
    let recorder = run.recorder.clone();
    let random = Seeded::new(seed);
    let xattrs = if rng.once_in(4) { XattrPlace::Attributes } else { XattrPlace::Directory };
    let always = rng.once_in(3);
    zpl.create(zpl.zpl().root(), b"name0", &FILE).await.expect("a file");
    run.begun.push(run.begin);
    run.moments.push(see(zpl.zpl()).await);
    if always {
        zpl.set_sync_mode(SyncMode::Always);
    }
    for _ in 0..CHANGES {
        run.begun.push(recorder.position());
        committing(pool, change(zpl, &random, xattrs)).await;
        run.moments.push(see(zpl.zpl()).await);
        let moment = run.moments.len() - 1;
        if always {
            // What was refused made nothing stable, and changed nothing.
            let changed = run.moments[moment] != run.moments[moment - 1];
            let promised = if changed { moment } else { continue };
            run.promises.push(Promise { file: None, moment: promised, at: recorder.position() });
            continue;
        }
        match random.random() % 8 {
            0 => drop(pool.sync().await.expect("a commit")),
            1 | 2 => {
                committing(pool, zpl.sync_all()).await.expect("stable");
                run.promises.push(Promise { file: None, moment, at: recorder.position() });
            }
            3 => {
                let files: Vec<ObjectId> = run.moments[moment].values().map(|seen| seen.id).collect();
                let file = files[random.random() as usize % files.len()];
                committing(pool, zpl.fsync(file)).await.expect("stable");
                run.promises.push(Promise { file: Some(file), moment, at: recorder.position() });
            }
            _ => {}
        }
    }
}

/// All that a file may be.
struct Allowed<'a> {
    moments: Vec<&'a Seen>,
}

impl Allowed<'_> {
    fn judge(&self, found: &Seen) -> Result<(), String> {
        let sizes: Vec<u64> = self.moments.iter().map(|seen| seen.size).collect();
        let (least, most) = (sizes.iter().min().copied(), sizes.iter().max().copied());
        let one = |what: &dyn Fn(&Seen) -> u64, name: &str| {
            let values: BTreeSet<u64> = self.moments.iter().map(|seen| what(seen)).collect();
            match values.contains(&what(found)) {
                true => Ok(()),
                false => Err(format!("{name} {:#o}, not one of {values:x?}", what(found))),
            }
        };
        one(&|seen| seen.mode.into(), "mode")?;
        one(&|seen| seen.owner.0.into(), "owner")?;
        one(&|seen| seen.owner.1.into(), "group")?;
        if found.content.len() as u64 == found.size {
            if Some(found.size) < least || Some(found.size) > most {
                return Err(format!("size {}, not in {least:?} to {most:?}", found.size));
            }
            let shortest = least.unwrap_or(0) as usize;
            let is_right = |(at, byte): (usize, &u8)| {
                (*byte == 0 && at >= shortest)
                    || self.moments.iter().any(|seen| seen.content.get(at) == Some(byte))
            };
            if let Some((at, byte)) = found.content.iter().enumerate().find(|pair| !is_right(*pair)) {
                return Err(format!("byte {at} is {byte:#x}, which it never was; size {}", found.size));
            }
        }
        let names: BTreeSet<&Vec<u8>> =
            self.moments.iter().flat_map(|seen| seen.xattrs.keys()).chain(found.xattrs.keys()).collect();
        for name in names {
            let values: BTreeSet<Option<&Vec<u8>>> =
                self.moments.iter().map(|seen| seen.xattrs.get(name)).collect();
            let value = found.xattrs.get(name);
            let under_way = values.len() > 1 && value.is_some_and(Vec::is_empty);
            if !values.contains(&value) && !under_way {
                return Err(format!("attribute {}", String::from_utf8_lossy(name)));
            }
        }
        Ok(())
    }
}

/// What the log keeps in order.
fn names(moment: &Moment) -> BTreeMap<&str, String> {
    let shown = |seen: &Seen| {
        let kind = seen.mode & TYPE;
        let target = if kind == SYMLINK { seen.content.as_slice() } else { &[] };
        let Seen { id, generation, links, device, .. } = seen;
        format!("{id} of {generation}, {kind:o}, {links} links, {device:?} {target:?}")
    };
    moment.iter().map(|(path, seen)| (path.as_str(), shown(seen))).collect()
}

impl Run {
    /// The moments that a cut at `point` allows, of a file or of names.
    fn window(&self, point: usize, file: Option<ObjectId>) -> RangeInclusive<usize> {
        let last = self.begun.iter().take_while(|begun| **begun < point).count();
        let covers = |promise: &&Promise| {
            promise.at <= point && (file.is_none() || promise.file.is_none() || promise.file == file)
        };
        let first = self.promises.iter().filter(covers).map(|promise| promise.moment).max().unwrap_or(0);
        first..=last.max(first)
    }

    fn judge(&self, point: usize, found: &Moment) -> Result<(), String> {
        let window = self.window(point, None);
        let seen = names(found);
        if !window.clone().any(|moment| names(&self.moments[moment]) == seen) {
            let nearest = names(&self.moments[*window.start()]);
            let lacking: Vec<_> = nearest.keys().filter(|path| !seen.contains_key(*path)).collect();
            let more: Vec<_> = seen.keys().filter(|path| !nearest.contains_key(*path)).collect();
            return Err(format!(
                "names of none of the moments {window:?}; of the first it lacks {lacking:?}, it has {more:?}"
            ));
        }
        for (path, seen) in found {
            let window = self.window(point, Some(seen.id));
            let moments: Vec<&Seen> = self.moments[window.clone()]
                .iter()
                .filter_map(|moment| {
                    moment.values().find(|other| (other.id, other.generation) == (seen.id, seen.generation))
                })
                .collect();
            Allowed { moments }
                .judge(seen)
                .map_err(|error| format!("{path}, moments {window:?}: {error}"))?;
        }
        Ok(())
    }
}

fn try_state(run: &Run, point: usize, disks: Vec<Disk>, seed: u64, verify: bool) -> Result<(), String> {
    let recorder = Recorder::new(seed);
    pools::run(async {
        let pool = pools::import_counting(&recorder, disks, &[], seed, &run.ivs).await?;
        keys::unlock(&pool, |_| vec![0]).await?;
        let zpl = open(&pool, false).await.map_err(|error| format!("the filesystem: {error}"))?;
        run.judge(point, &see(zpl.zpl()).await)?;
        // It goes on.
        let made = committing(&pool, async {
            let file = zpl.create(zpl.zpl().root(), b"after the cut", &FILE).await?;
            zpl.fsync(file).await
        });
        made.await.map_err(|error| format!("going on: {error}"))?;
        pool.sync().await.map_err(|error| format!("going on: {error}")).map(drop)
    })?;
    run.ivs.count()?;
    match verify {
        true => {
            let care = Care { verify, ..Care::default() };
            judge::verify_with_keys(recorder.disks(), seed, &care, |_| vec![0])
        }
        false => Ok(()),
    }
}

#[test]
fn nothing_promised_of_files_is_lost_when_the_power_fails() {
    let limit = Duration::from_secs(super::number("CENOTE_CRASH_SECONDS").unwrap_or(15));
    let first = super::number("CENOTE_CRASH_SEED").unwrap_or(1);
    let began = Instant::now();
    let (mut states, mut removals, mut without_logs, mut seed) = (0u64, 0, 0u64, first);
    let mut by_pointer = 0;
    pools::alone(|| {
        while seed == first || began.elapsed() < limit {
            let run = run(seed);
            let mut player = Player::new(&run.recorder);
            let mut rng = Rng::new(seed ^ 0xf11e);
            let events = player.end() - run.begin;
            let even = (0..POINTS).map(|number| run.begin + events * number / POINTS);
            let mut points: Vec<_> = even.map(|from| from + rng.index((events / POINTS).max(1))).collect();
            points.extend(run.moves.points(&mut rng));
            points.sort_unstable();
            removals += run.moves.removals();
            by_pointer += run.by_pointer;
            for point in points {
                player.advance(point);
                for state in 0..2 {
                    let mut disks = player.disks_after_power_cut(&mut Rng::new(state));
                    let haunted = run.moves.haunt(point, &mut disks, &mut Rng::new(state ^ point as u64));
                    states += 1;
                    without_logs += u64::from(!haunted.is_empty());
                    if let Err(error) = try_state(&run, point, disks, state ^ states << 8, rng.once_in(8)) {
                        panic!(
                            "CENOTE_CRASH_SECONDS=0 CENOTE_CRASH_SEED={seed}, point {point}, state {state}, \
                             devices that are no longer the pool's {haunted:?}: {error}"
                        );
                    }
                }
                if began.elapsed() >= limit && !limit.is_zero() {
                    break;
                }
            }
            seed += 1;
        }
    });
    println!(
        "{states} states of {} runs in {:?}; {removals} log vdevs were taken away, {without_logs} states \
         without them, {by_pointer} writes were logged by pointer",
        seed - first,
        began.elapsed()
    );
}
