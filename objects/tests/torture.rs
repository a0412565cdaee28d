//! Random histories on a faulty store: power cuts at any request, several owners, and the model of what must
//! be there.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use objects::bucket::{Bucket, BucketFuture, Fault, FaultyBucket, Listed, MemoryBucket};
use objects::format::SECTOR_BYTES;
use objects::{Core, Error, Options};
use tokio::task::LocalSet;

const SIZE: u64 = 64 << 20;
/// Sectors that histories write, so that they overwrite each other.
const SECTORS: u64 = 2000;

fn options() -> Options {
    Options {
        segment_bytes: 256 << 10,
        inline_bytes: 64 << 10,
        unsent_bytes: 1 << 20,
        patience: Duration::from_secs(100_000),
        checkpoint_entries: 60,
        checkpoint_commits: 10,
        garbage_share: 0.5,
        map_runs: 300,
        ..Options::default()
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, future)
}

/// What may be read of each sector: values since the last flush that was acknowledged, the newest last.
#[derive(Debug, Default, Clone)]
struct Model(BTreeMap<u64, Vec<u64>>);

impl Model {
    fn write(&mut self, sector: u64, value: u64) {
        self.0.entry(sector).or_insert_with(|| vec![0]).push(value);
    }

    /// What is read now is the newest, and after a flush nothing else.
    fn flushed(&mut self) {
        for values in self.0.values_mut() {
            values.drain(..values.len() - 1);
        }
    }
}

fn sector_of(value: u64) -> Vec<u8> {
    let words = (0..SECTOR_BYTES / 8).map(|at| if value == 0 { 0 } else { value ^ at << 48 });
    words.flat_map(u64::to_le_bytes).collect()
}

fn value_of(bytes: &[u8]) -> u64 {
    let value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, sector_of(value), "a sector is torn");
    value
}

/// Reads all, and takes it as what is there from now on.
async fn check(core: &Core, model: &mut Model, why: &str) {
    let bytes = core.read(0, (SECTORS * SECTOR_BYTES) as usize).await.unwrap();
    for sector in 0..SECTORS {
        let at = (sector * SECTOR_BYTES) as usize;
        let value = value_of(&bytes[at..at + SECTOR_BYTES as usize]);
        let values = model.0.entry(sector).or_insert_with(|| vec![0]);
        assert!(values.contains(&value), "{why}: sector {sector} has {value:x}, and may have {values:x?}");
        *values = vec![value];
    }
}

/// One step of a client; whether it was done.
async fn step(core: &Core, model: &mut Model, rng: &mut Rng, next: &mut u64) -> Result<(), Error> {
    let sector = rng.u64(..SECTORS - 40);
    let sectors = rng.u64(1..40);
    match rng.u32(..100) {
        0..60 => {
            let values: Vec<u64> = (0..sectors).map(|at| *next + at).collect();
            *next += sectors;
            // It may be done in part if it is not done.
            (0..sectors).for_each(|at| model.write(sector + at, values[at as usize]));
            let data: Vec<u8> = values.into_iter().flat_map(sector_of).collect();
            core.write(sector * SECTOR_BYTES, Bytes::from(data)).await
        }
        60..70 => {
            (0..sectors).for_each(|at| model.write(sector + at, 0));
            core.discard(sector * SECTOR_BYTES, sectors * SECTOR_BYTES).await
        }
        70..90 => {
            let bytes = core.read(sector * SECTOR_BYTES, (sectors * SECTOR_BYTES) as usize).await?;
            for at in 0..sectors {
                let part = &bytes[(at * SECTOR_BYTES) as usize..][..SECTOR_BYTES as usize];
                let newest = model.0.get(&(sector + at)).map_or(0, |values| values[values.len() - 1]);
                assert_eq!(value_of(part), newest, "sector {}", sector + at);
            }
            Ok(())
        }
        _ => {
            core.flush().await?;
            model.flushed();
            Ok(())
        }
    }
}

fn faults(rng: &mut Rng) -> Fault {
    let mut one = |most: u64| if rng.bool() { rng.u64(4..most) } else { 0 };
    Fault {
        errors: one(40),
        lost_answers: one(40),
        late_copies: one(40),
        old_lists: one(10),
        short_bodies: one(40),
    }
}

/// A history with power cuts.
fn history(seed: u64) {
    // That of waits.
    fastrand::seed(seed);
    let mut rng = Rng::with_seed(seed);
    let store = Arc::new(MemoryBucket::default());
    let (mut model, mut next) = (Model::default(), 1);
    run(objects::create(&*store, SIZE, &options())).unwrap();
    for life in 0..rng.u32(2..6) {
        let fault = faults(&mut rng);
        let client = Arc::new(FaultyBucket::new(Arc::clone(&store), fault, rng.u64(..)));
        let steps = rng.u32(1..200);
        let cut = if rng.u32(..4) > 0 { rng.u64(1..400) } else { u64::MAX };
        run(async {
            client.cut_after(cut);
            let of = Arc::clone(&client) as Arc<dyn Bucket>;
            let live = async {
                let core = objects::open(of, options()).await.unwrap();
                check(&core, &mut model, &format!("seed {seed}, life {life}")).await;
                for _ in 0..steps {
                    step(&core, &mut model, &mut rng, &mut next).await.unwrap();
                }
                if rng.bool() {
                    core.flush().await.unwrap();
                    model.flushed();
                    core.settle().await;
                }
            };
            // A request of a machine without power never ends, and its time does not go by.
            let dark = async {
                while !client.is_cut() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            };
            tokio::select! { () = live => {}, () = dark => {} }
        });
        run(client.do_late_copies());
    }
    run(async {
        let core = objects::open(Arc::clone(&store) as Arc<dyn Bucket>, options()).await.unwrap();
        check(&core, &mut model, &format!("seed {seed}, at the end")).await;
    });
}

/// An owner that was taken over writes.
async fn wake(old: &Core, late: &FaultyBucket, seed: u64) {
    late.do_late_copies().await;
    let data = Bytes::from(sector_of(u64::MAX >> 16));
    let written = old.write(seed % SECTORS * SECTOR_BYTES, data).await;
    let told = if written.is_ok() { old.flush().await } else { written };
    assert_eq!(told, Err(Error::TakenOver), "seed {seed}");
}

/// Two owners who do not know of each other: what one was told is durable, the other finds, as long as it
/// took over later.
fn split(seed: u64) {
    fastrand::seed(seed);
    let mut rng = Rng::with_seed(seed);
    let store = Arc::new(MemoryBucket::default());
    run(objects::create(&*store, SIZE, &options())).unwrap();
    run(async {
        let (mut model, mut next) = (Model::default(), 1);
        let client = |rng: &mut Rng| {
            let fault = faults(rng);
            Arc::new(FaultyBucket::new(Arc::clone(&store), fault, rng.u64(..)))
        };
        let first = client(&mut rng);
        let mut owner = objects::open(Arc::clone(&first) as Arc<dyn Bucket>, options()).await.unwrap();
        let mut olds: Vec<(Core, Arc<FaultyBucket>)> = vec![];
        let mut bucket = first;
        for _ in 0..rng.u32(1..5) {
            for _ in 0..rng.u32(..300) {
                step(&owner, &mut model, &mut rng, &mut next).await.unwrap();
            }
            // The old owner has written what it has not flushed, and begins to: that may be there or not.
            let flushing = rng.bool();
            let mut own = model.clone();
            let taken = client(&mut rng);
            let opening = objects::open(Arc::clone(&taken) as Arc<dyn Bucket>, options());
            let (flushed, new) =
                tokio::join!(async { if flushing { owner.flush().await.is_ok() } else { false } }, opening);
            let new = new.unwrap();
            if flushed {
                model.flushed();
                own.flushed();
            }
            check(&new, &mut model, &format!("seed {seed}")).await;
            olds.push((owner, bucket));
            (owner, bucket) = (new, taken);
            // Old owners go on to write, some after a long sleep, and are never told that it is durable.
            for (old, late) in olds.extract_if(.., |_| rng.u32(..3) == 0) {
                wake(&old, &late, seed).await;
            }
        }
        for _ in 0..40 {
            step(&owner, &mut model, &mut rng, &mut next).await.unwrap();
        }
        owner.flush().await.unwrap();
        model.flushed();
        owner.settle().await;
        for (old, late) in olds {
            wake(&old, &late, seed).await;
        }
        owner.flush().await.unwrap();
        drop(owner);
        let again = objects::open(Arc::clone(&store) as Arc<dyn Bucket>, options()).await.unwrap();
        check(&again, &mut model, &format!("seed {seed}, again")).await;
    });
}

/// How many objects there are whose keys begin so.
fn objects_of(store: &MemoryBucket, prefix: &str) -> usize {
    store.objects().keys().filter(|key| key.starts_with(prefix)).count()
}

#[test]
fn what_is_not_needed_any_more_goes() {
    let store = Arc::new(MemoryBucket::default());
    run(objects::create(&*store, SIZE, &options())).unwrap();
    run(async {
        let core = objects::open(Arc::clone(&store) as Arc<dyn Bucket>, options()).await.unwrap();
        let mut rng = Rng::with_seed(1);
        // Some of it is written once, and stays.
        let all: Vec<u8> = (0..8000_u64).flat_map(|at| sector_of(at + 1)).collect();
        core.write(0, Bytes::from(all)).await.unwrap();
        for round in 0..400 {
            for _ in 0..20 {
                let sector = rng.u64(..SECTORS) * 4;
                core.write(sector * SECTOR_BYTES, Bytes::from(sector_of(round << 20 | sector)))
                    .await
                    .unwrap();
            }
            core.flush().await.unwrap();
            if round % 16 == 0 {
                core.settle().await;
                core.flush().await.unwrap();
            }
        }
        core.settle().await;
        let (counts, (live, total)) = (core.counts(), core.space());
        assert!(counts.checkpoints > 10 && counts.moved_bytes > 0 && counts.deletes > 300, "{counts:?}");
        assert!(counts.moved_bytes <= counts.written_bytes * 3, "{counts:?}");
        assert_eq!(live, 8000 * SECTOR_BYTES);
        assert!(total <= live * 2 + (12 << 20), "{live} {total}");
        let stored: usize = store.objects().values().map(Bytes::len).sum();
        assert!((stored as u64) < total + (4 << 20), "{stored} {total}");
        assert!(objects_of(&store, "map/") < 8, "{}", objects_of(&store, "map/"));
        core.discard(0, SIZE).await.unwrap();
        core.flush().await.unwrap();
        core.settle().await;
        assert_eq!((core.space().0, objects_of(&store, "segment/")), (0, 0));
    });
}

#[test]
fn what_a_read_needs_is_not_deleted_before_it_ends() {
    let store = Arc::new(MemoryBucket::default());
    run(objects::create(&*store, SIZE, &options())).unwrap();
    run(async {
        // Its requests take turns.
        let bucket = Arc::new(FaultyBucket::new(Arc::clone(&store), Fault::default(), 1));
        let core = objects::open(bucket, options()).await.unwrap();
        let whole = |round: u64| {
            Bytes::from((0..200).flat_map(|at| sector_of(round << 20 | (at + 1))).collect::<Vec<_>>())
        };
        for round in 0..200 {
            core.write(0, whole(round)).await.unwrap();
            core.flush().await.unwrap();
            let again = async {
                core.write(0, whole(round + 1000)).await.unwrap();
                core.flush().await.unwrap();
            };
            let (read, ()) = tokio::join!(core.read(0, (200 * SECTOR_BYTES) as usize), again);
            assert_eq!(value_of(&read.unwrap()[..SECTOR_BYTES as usize]), round << 20 | 1);
        }
        assert!(core.counts().deletes > 100, "{:?}", core.counts());
    });
}

#[test]
fn a_slow_store_slows_writers_down_and_does_not_stop_them() {
    #[derive(Debug)]
    struct Slow(MemoryBucket);
    impl Bucket for Slow {
        fn address(&self) -> &str {
            "slow:"
        }
        fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
            self.0.create(key, body)
        }
        fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
            let key = key.to_owned();
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(20)).await;
                self.0.put(&key, body).await
            })
        }
        fn get(&self, key: &str, range: std::ops::Range<u64>) -> BucketFuture<'_, Bytes> {
            self.0.get(key, range)
        }
        fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes> {
            self.0.get_all(key, limit)
        }
        fn delete(&self, key: &str) -> BucketFuture<'_, ()> {
            self.0.delete(key)
        }
        fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>> {
            self.0.list(prefix, after, limit)
        }
    }
    run(async {
        let bucket = Arc::new(Slow(MemoryBucket::default()));
        let options = Options { patience: Duration::from_secs(30), ..options() };
        objects::create(&*bucket, SIZE, &options).await.unwrap();
        let core = objects::open(bucket, options).await.unwrap();
        let began = tokio::time::Instant::now();
        let data = Bytes::from(vec![7; 1 << 20]);
        let writes = (0..12).map(|at| core.write(at << 20, data.clone()));
        assert!(futures_util::future::join_all(writes).await.iter().all(Result::is_ok));
        core.flush().await.unwrap();
        // Many times the patience.
        assert!(began.elapsed() > Duration::from_secs(200), "{:?}", began.elapsed());
    });
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = std::env::var("CENOTE_SEED").ok().and_then(|seed| seed.parse().ok());
    let many = std::env::var("CENOTE_SEEDS").ok().and_then(|count| count.parse().ok());
    match first {
        Some(first) => first..first + many.unwrap_or(1),
        None => 0..many.unwrap_or(count),
    }
}

#[test]
fn nothing_acknowledged_is_lost_at_any_power_cut() {
    seeds(300).for_each(history);
}

#[test]
fn of_two_owners_the_first_is_told_before_it_acknowledges_anything() {
    seeds(200).for_each(split);
}
