//! Random histories on a faulty store in memory, and what becomes of objects that are not needed.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "torture/checks.rs"]
mod checks;
#[path = "common/histories.rs"]
mod histories;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use histories::{Model, Place, SECTORS, SIZE, faults, history, options, sector_of, split, value_of};
use objects::Options;
use objects::bucket::{Bucket, BucketFuture, Fault, FaultyBucket, Listed, MemoryBucket};
use objects::format::SECTOR_BYTES;

/// A store in memory, whose time goes by as fast as it can.
fn memory() -> (Arc<MemoryBucket>, Place) {
    let store = Arc::new(MemoryBucket::default());
    (Arc::clone(&store), Place { store, is_real: false })
}

fn run<T>(future: impl Future<Output = T>) -> T {
    memory().1.run(future)
}

/// How many objects there are whose keys begin so.
fn objects_of(store: &MemoryBucket, prefix: &str) -> usize {
    store.objects().keys().filter(|key| key.starts_with(prefix)).count()
}

#[test]
fn what_is_not_needed_any_more_goes() {
    let (store, place) = memory();
    place.run(objects::create(&*store, SIZE, &options())).unwrap();
    place.run(async {
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
    let (store, place) = memory();
    place.run(objects::create(&*store, SIZE, &options())).unwrap();
    place.run(async {
        // Its requests take turns.
        let bucket = Arc::new(FaultyBucket::new(Arc::clone(&place.store), Fault::default(), 1));
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
    seeds(300).for_each(|seed| history(seed, &memory().1));
}

#[test]
fn of_two_owners_the_first_is_told_before_it_acknowledges_anything() {
    seeds(200).for_each(|seed| split(seed, &memory().1));
}
