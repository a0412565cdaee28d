//! Checks of devices: after histories with power cuts, and beside owners at work.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use objects::bucket::{Bucket, BucketFuture, Fault, FaultyBucket, Listed, MemoryBucket};
use objects::check::{CheckOptions, Report, check};
use objects::format::{
    self, Checkpoint, CheckpointNumber, Commit, Kind, ObjectId, REGION_SECTORS, SECTOR_BYTES, Sequence,
};
use objects::{Core, Error, Options};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::histories::{STEP_SECTORS, step_at};
use super::{Model, faults, options, run, sector_of, seeds, value_of};

/// Bytes of a device with several regions of the map.
const SIZE: u64 = 4 << 30;
/// Sectors around each border between regions.
const AREA: u64 = 500;
const AREAS: u64 = 3;

fn first_of(area: u64) -> u64 {
    (area + 1) * u64::from(REGION_SECTORS) - AREA / 2
}

fn small() -> Options {
    Options { map_runs: 100, ..options() }
}

async fn step(core: &Core, model: &mut Model, rng: &mut Rng, next: &mut u64) -> Result<(), Error> {
    let sector = first_of(rng.u64(..AREAS)) + rng.u64(..AREA - STEP_SECTORS);
    step_at(core, model, (rng, next), sector).await
}

async fn compare(core: &Core, model: &mut Model, why: &str) {
    for area in 0..AREAS {
        let first = first_of(area);
        let bytes = core.read(first * SECTOR_BYTES, (AREA * SECTOR_BYTES) as usize).await.unwrap();
        for at in 0..AREA {
            let value = value_of(&bytes[(at * SECTOR_BYTES) as usize..][..SECTOR_BYTES as usize]);
            let values = model.0.entry(first + at).or_insert_with(|| vec![0]);
            assert!(values.contains(&value), "{why}: {} has {value:x}, not {values:x?}", first + at);
            *values = vec![value];
        }
    }
}

/// What the objects of a store are by the format alone.
#[derive(Debug, Default)]
struct Objects {
    needed: BTreeSet<String>,
    /// The others, with their openings.
    left: BTreeMap<String, u64>,
    opening: u64,
    /// Needed commits before the checkpoint that took over.
    took_over: u64,
}

impl Objects {
    fn of(store: &MemoryBucket) -> Self {
        let all = store.objects().clone();
        let sectors = SIZE / SECTOR_BYTES;
        let opening = |key: &str| u64::from_le_bytes(all[key][40..48].try_into().unwrap());
        let is = |key: &str, kind: Kind| format::kind_of(&all[key]) == Some(kind as u16);
        let is_checkpoint = |key: &&String| key.starts_with("checkpoint/") && is(key, Kind::Checkpoint);
        let newest = all.keys().rfind(is_checkpoint).unwrap();
        let number = format::number_in(newest).unwrap();
        let object = format::decode(newest, &all[newest], Kind::Checkpoint, None, number).unwrap();
        let checkpoint = Checkpoint::read(newest, &object.body, 4).unwrap();
        let mut found = Self { opening: opening(newest), ..Self::default() };
        let mut map: BTreeMap<u64, ObjectId> = BTreeMap::new();
        for (region, page) in &checkpoint.regions {
            let key = format::map_key(page.id);
            let bytes = &all[&key][page.offset as usize..][..page.bytes as usize];
            found.needed.insert(key.clone());
            for run in format::read_page(&key, bytes).unwrap() {
                let first = u64::from(*region) * u64::from(REGION_SECTORS) + u64::from(run.start);
                map.extend((0..u64::from(run.sectors)).map(|at| (first + at, run.place.id)));
            }
        }
        let read = |sequence: u64| {
            let key = format::commit_key(Sequence(sequence));
            let object = format::decode(&key, all.get(&key)?, Kind::Commit, None, sequence).unwrap();
            Some((key.clone(), Commit::read(&key, &object.body, sectors).unwrap()))
        };
        let mut sequence = checkpoint.sequence.0 + 1;
        while let Some((key, commit)) = read(sequence) {
            found.opening = opening(&key);
            for entry in commit.entries {
                for sector in entry.sector..entry.sector + u64::from(entry.sectors) {
                    match entry.place {
                        Some(place) => map.insert(sector, place.id),
                        None => map.remove(&sector),
                    };
                }
            }
            sequence += 1;
        }
        found.needed.extend(map.values().map(|id| id.key()));
        for key in all.keys() {
            let commit = key.starts_with("commit/").then(|| format::number_in(key).unwrap());
            let is_needed = !key.contains('/')
                || key.starts_with("checkpoint/")
                || commit.is_some_and(|number| {
                    number >= checkpoint.sequence.0 || read(number).unwrap().1.takes_over
                });
            if is_needed {
                found.took_over += u64::from(commit.is_some_and(|number| number < checkpoint.sequence.0));
                found.needed.insert(key.clone());
            } else if !found.needed.contains(key) {
                found.left.insert(key.clone(), opening(key));
            }
        }
        found
    }
}

async fn checked(bucket: &Arc<dyn Bucket>, options: &CheckOptions) -> Result<Report, Error> {
    check(bucket, options, &|_| {}).await
}

/// A life of an owner on a store with faults, which may end at any request.
async fn life(
    store: &Arc<MemoryBucket>,
    model: &mut Model,
    (rng, next): (&mut Rng, &mut u64),
    why: &str,
) -> Option<(Core, Arc<FaultyBucket>)> {
    let client = Arc::new(FaultyBucket::new(Arc::clone(store) as _, faults(rng), rng.u64(..)));
    client.cut_after(if rng.u32(..3) > 0 { rng.u64(1..500) } else { u64::MAX });
    let steps = rng.u32(1..300);
    let live = async {
        let of = Arc::clone(&client) as Arc<dyn Bucket>;
        let core = objects::open(of, small()).await.unwrap();
        compare(&core, model, why).await;
        for _ in 0..steps {
            step(&core, model, rng, next).await.unwrap();
            sleep(Duration::from_millis(rng.u64(..20))).await;
        }
        if rng.bool() {
            core.flush().await.unwrap();
            model.flushed();
            core.settle().await;
        }
        core
    };
    let dark = async {
        while !client.is_cut() {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_millis(100)).await;
    };
    let lived = tokio::select! { core = live => Some(core), () = dark => None };
    if rng.bool() {
        client.do_late_copies().await;
    }
    // One that is alive keeps its power from now on: a request that never ends is not what the others wait
    // for.
    let lived = lived.filter(|_| !client.is_cut());
    client.cut_after(u64::MAX);
    lived.map(|core| (core, client))
}

fn after_a_history(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let store = Arc::new(MemoryBucket::default());
    let plain = Arc::clone(&store) as Arc<dyn Bucket>;
    run(objects::create(&*store, SIZE, &small())).unwrap();
    let (mut model, mut next) = (Model::default(), 1);
    for number in 0..rng.u32(1..6) {
        let why = format!("seed {seed}, life {number}");
        run(async { drop(life(&store, &mut model, (&mut rng, &mut next), &why).await) });
    }
    run(async {
        let why = format!("seed {seed}");
        // Nothing is removed, and everything is told.
        let before = store.objects().clone();
        let options = CheckOptions { data: true, device: small(), ..CheckOptions::default() };
        let report = checked(&plain, &options).await.unwrap();
        assert!(report.is_right() && report.verified_bytes >= report.used_bytes, "{why}: {report:?}");
        assert_eq!(*store.objects(), before, "{why}");
        let objects = Objects::of(&store);
        // While the owner may go by an older checkpoint, commits that took over are told as being with it.
        let (needed, with_owner) = (report.needed.sum().count, report.with_owner.sum().count);
        let needed_then = objects.needed.len() as u64;
        let is_told = needed <= needed_then && needed + objects.took_over >= needed_then;
        assert!(is_told && (needed == needed_then || with_owner > 0), "{why}: {needed_then}, {report:?}");
        let all = needed + report.garbage.sum().count + with_owner;
        assert_eq!(all, before.len() as u64, "{why}: {report:?}");
        let others =
            |(key, opening): &(&String, &u64)| key.starts_with("segment/") && **opening != objects.opening;
        let segments = objects.left.iter().filter(others).count() as u64;
        assert_eq!(report.garbage.segments.count, segments, "{why}: {report:?}");
        // As much as is safe beside an owner, by a client with faults and a listing that may be old.
        let faulty = FaultyBucket::new(Arc::clone(&store) as _, faults(&mut rng), rng.u64(..));
        let faulty = Arc::new(faulty) as Arc<dyn Bucket>;
        let removing = CheckOptions { remove: true, ..options.clone() };
        let report = checked(&faulty, &removing).await.unwrap();
        assert!(report.is_right(), "{why}: {report:?}");
        let now = Objects::of(&store);
        assert_eq!(now.needed, objects.needed, "{why}");
        // Everything.
        let taking = CheckOptions { take_over: true, ..removing };
        let report = checked(&plain, &taking).await.unwrap();
        assert!(report.is_right(), "{why}: {report:?}");
        assert_eq!((report.garbage.sum().count, report.with_owner.sum().count), (0, 0), "{why}");
        assert_eq!(Objects::of(&store).left, BTreeMap::new(), "{why}");
        let core = objects::open(Arc::clone(&plain), small()).await.unwrap();
        compare(&core, &mut model, &why).await;
    });
}

/// Checks that remove, one after the other, until they are told to end. None may tell damage.
async fn checks(store: Arc<MemoryBucket>, mut rng: Rng, is_over: Rc<Cell<bool>>, why: String) -> u64 {
    let mut removed = 0;
    while !is_over.get() {
        let client = Arc::new(FaultyBucket::new(Arc::clone(&store) as _, faults(&mut rng), rng.u64(..)));
        let bucket = Arc::clone(&client) as Arc<dyn Bucket>;
        let patience = Duration::from_secs(rng.u64(5..60));
        let options = CheckOptions {
            data: rng.bool(),
            remove: true,
            take_over: false,
            device: Options { patience, ..small() },
        };
        match checked(&bucket, &options).await {
            Ok(report) => {
                // It has little patience for objects that come in part.
                let came_in_part = objects::Damage::Short.to_string();
                let is_right = report.problems.iter().all(|problem| problem.what == came_in_part);
                assert!(is_right, "{why}: {:?}", report.problems);
                removed += report.removed.sum().count;
            }
            Err(Error::Store { .. } | Error::Damaged { what: objects::Damage::Short, .. }) => {}
            Err(error) => panic!("{why}: {error}"),
        }
        if rng.bool() {
            client.do_late_copies().await;
        }
        sleep(Duration::from_millis(rng.u64(..500))).await;
    }
    removed
}

fn beside_owners(seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let store = Arc::new(MemoryBucket::default());
    let plain = Arc::clone(&store) as Arc<dyn Bucket>;
    run(objects::create(&*store, SIZE, &small())).unwrap();
    run(async {
        let why = format!("seed {seed}");
        let is_over = Rc::new(Cell::new(false));
        let of = Rng::with_seed(rng.u64(..));
        let checking = spawn_local(checks(Arc::clone(&store), of, Rc::clone(&is_over), why.clone()));
        let (mut model, mut next) = (Model::default(), 1);
        let mut olds: Vec<(Core, Arc<FaultyBucket>)> = Vec::new();
        for _ in 0..rng.u32(2..7) {
            let lived = life(&store, &mut model, (&mut rng, &mut next), &why).await;
            // Owners that do not know that they were taken over go on, and are never told of success.
            let mut waking = Rng::with_seed(rng.u64(..));
            for (old, late) in olds.extract_if(.., |_| waking.bool()) {
                late.do_late_copies().await;
                let sector = first_of(rng.u64(..AREAS));
                let written = old.write(sector * SECTOR_BYTES, Bytes::from(sector_of(u64::MAX >> 16))).await;
                let told = if written.is_ok() { old.flush().await } else { written };
                // A life that was cut off while it opened the device may not have taken it over.
                assert!(told.is_err() || lived.is_none(), "{why}");
                if told.is_ok() {
                    model.write(sector, u64::MAX >> 16);
                    model.flushed();
                }
            }
            olds.extend(lived);
        }
        drop(olds);
        is_over.set(true);
        let removed = checking.await.unwrap();
        let options = CheckOptions { data: true, device: small(), ..CheckOptions::default() };
        let report = checked(&plain, &options).await.unwrap();
        assert!(report.is_right(), "{why}: {report:?}");
        let core = objects::open(plain, small()).await.unwrap();
        compare(&core, &mut model, &why).await;
        removed
    })
}

/// A client whose checkpoints wait until they may go on.
#[derive(Debug)]
struct Sleeping {
    store: Arc<MemoryBucket>,
    /// Permits to make one.
    awake: tokio::sync::Semaphore,
    sleeps: std::sync::atomic::AtomicBool,
}

impl Bucket for Sleeping {
    fn address(&self) -> &str {
        "sleeping:"
    }

    fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(async move {
            if key.starts_with("checkpoint/") {
                self.sleeps.store(true, std::sync::atomic::Ordering::SeqCst);
                let _awake = self.awake.acquire().await.unwrap();
            }
            self.store.create(&key, body).await
        })
    }

    fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        self.store.put(key, body)
    }

    fn get(&self, key: &str, range: std::ops::Range<u64>) -> BucketFuture<'_, Bytes> {
        self.store.get(key, range)
    }

    fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes> {
        self.store.get_all(key, limit)
    }

    fn delete(&self, key: &str) -> BucketFuture<'_, ()> {
        self.store.delete(key)
    }

    fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>> {
        self.store.list(prefix, after, limit)
    }
}

#[test]
fn pages_of_a_checkpoint_that_sleeps_are_left_alone() {
    run(async {
        let store = Arc::new(MemoryBucket::default());
        let plain = Arc::clone(&store) as Arc<dyn Bucket>;
        objects::create(&*store, SIZE, &small()).await.unwrap();
        let (awake, sleeps) = (tokio::sync::Semaphore::new(0), false.into());
        let sleeping = Arc::new(Sleeping { store: Arc::clone(&store), awake, sleeps });
        let (mut model, mut next) = (Model::default(), 1);
        let mut rng = Rng::with_seed(3);
        let first = objects::open(Arc::clone(&sleeping) as Arc<dyn Bucket>, small()).await.unwrap();
        while !sleeping.sleeps.load(std::sync::atomic::Ordering::SeqCst) {
            step(&first, &mut model, &mut rng, &mut next).await.unwrap();
            tokio::task::yield_now().await;
        }
        first.flush().await.unwrap();
        model.flushed();
        // It makes no checkpoint.
        let lazy = Options { checkpoint_commits: 1000, checkpoint_entries: 100_000, ..small() };
        let second = objects::open(Arc::clone(&plain), lazy).await.unwrap();
        compare(&second, &mut model, "taken over").await;
        second.write(first_of(0) * SECTOR_BYTES, Bytes::from(sector_of(next))).await.unwrap();
        model.write(first_of(0), next);
        second.flush().await.unwrap();
        model.flushed();
        let options = CheckOptions { remove: true, device: small(), ..CheckOptions::default() };
        let report = checked(&plain, &options).await.unwrap();
        assert!(report.is_right() && report.with_owner.maps.count == 1, "{report:?}");
        sleeping.awake.add_permits(100);
        first.settle().await;
        // The newest checkpoint is that of the first.
        let report = checked(&plain, &options).await.unwrap();
        assert!(report.is_right() && report.checkpoint == 1, "{report:?}");
        drop(second);
        let third = objects::open(plain, small()).await.unwrap();
        compare(&third, &mut model, "opened again").await;
    });
}

#[test]
fn a_check_tells_and_removes_what_is_left_over_and_nothing_else() {
    seeds(60).for_each(after_a_history);
}

#[test]
fn a_check_that_removes_beside_owners_takes_nothing_that_is_needed() {
    let removed: u64 = seeds(60).map(beside_owners).sum();
    assert!(removed > 100 || std::env::var("CENOTE_SEED").is_ok(), "only {removed} objects were left over");
}

/// A device with some data, all of it in segments and a checkpoint.
async fn filled(store: &Arc<MemoryBucket>) {
    objects::create(&**store, SIZE, &small()).await.unwrap();
    let core = objects::open(Arc::clone(store) as Arc<dyn Bucket>, small()).await.unwrap();
    for round in 0..40_u64 {
        let data: Vec<u8> = (0..100).flat_map(|at| sector_of(round << 20 | (at + 1))).collect();
        core.write(first_of(round % AREAS) * SECTOR_BYTES + (round % 4) * 400 * 1024, Bytes::from(data))
            .await
            .unwrap();
        core.flush().await.unwrap();
    }
    core.settle().await;
    // Commits after the last checkpoint.
    for round in 0..4_u64 {
        core.write(first_of(round % AREAS) * SECTOR_BYTES, Bytes::from(sector_of(round + 1))).await.unwrap();
        core.flush().await.unwrap();
    }
}

#[test]
fn damage_is_told_and_then_nothing_is_removed() {
    run(async {
        let impatient = Options { patience: Duration::from_millis(100), ..small() };
        let options = CheckOptions { data: true, device: impatient, ..CheckOptions::default() };
        let store = Arc::new(MemoryBucket::default());
        let bucket = Arc::clone(&store) as Arc<dyn Bucket>;
        filled(&store).await;
        let whole = store.objects().clone();
        let needed = Objects::of(&store).needed;
        let one = |prefix: &str| needed.iter().find(|key| key.starts_with(prefix)).cloned().unwrap();
        let of = async |change: &dyn Fn(&mut BTreeMap<String, Bytes>)| {
            *store.objects() = whole.clone();
            change(&mut store.objects());
            let removing = CheckOptions { remove: true, ..options.clone() };
            match checked(&bucket, &removing).await {
                Ok(report) => report.problems.iter().map(|it| format!("{}: {}", it.key, it.what)).collect(),
                Err(error) => vec![error.to_string()],
            }
        };
        let segment = one("segment/");
        assert_eq!(of(&|_| {}).await, Vec::<String>::new());
        let flip = |key: &str, at: usize| {
            let key = key.to_owned();
            move |all: &mut BTreeMap<String, Bytes>| {
                let mut bytes = all[&key].to_vec();
                bytes[at] ^= 1;
                all.insert(key.clone(), bytes.into());
            }
        };
        let missing = of(&|all| drop(all.remove(&segment))).await;
        assert_eq!(missing, [format!("{segment}: it is missing")]);
        assert_eq!(
            of(&flip(&segment, 5000)).await,
            [format!("{segment}: the checksum of a write in it is wrong")]
        );
        assert_eq!(of(&flip(&segment, 45)).await, [format!("{segment}: its checksum is wrong")]);
        let map = one("map/");
        assert_eq!(of(&flip(&map, 90)).await, [format!("{map}: its checksum is wrong")]);
        let last = needed.iter().rfind(|key| key.starts_with("commit/")).unwrap();
        let number = format::number_in(last).unwrap();
        let before = format::commit_key(Sequence(number - 1));
        assert!(whole.contains_key(&before), "{before}");
        let gap = of(&|all| drop(all.remove(&before))).await;
        assert!(gap.contains(&format!("{before}: it is missing")), "{gap:?}");
        let pointer = format::checkpoint_key(CheckpointNumber(1));
        let lost = of(&|all| drop(all.remove(&pointer))).await;
        assert_eq!(lost, [format!("{pointer}: it is missing")]);
    });
}

#[test]
fn what_is_not_of_the_device_is_left_alone() {
    run(async {
        let store = Arc::new(MemoryBucket::default());
        let bucket = Arc::clone(&store) as Arc<dyn Bucket>;
        filled(&store).await;
        for key in ["notes.txt", "segment/1", "segment/000000000000FFFF", "segment/0000000000000001"] {
            store.put(key, Bytes::from_static(b"mine")).await.unwrap();
        }
        let impatient = Options { patience: Duration::from_millis(100), ..small() };
        let options = CheckOptions { remove: true, take_over: true, data: false, device: impatient };
        let report = checked(&bucket, &options).await.unwrap();
        assert!(report.is_right(), "{report:?}");
        assert_eq!(report.foreign.count, 4);
        assert!(store.objects().contains_key("segment/0000000000000001"));
        let none = Arc::new(FaultyBucket::new(Arc::new(MemoryBucket::default()), Fault::default(), 1))
            as Arc<dyn Bucket>;
        assert!(matches!(checked(&none, &options).await, Err(Error::NoDevice { .. })));
    });
}
