//! Random histories on a faulty store in memory, and what becomes of objects that are not needed.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "common/histories.rs"]
mod histories;

use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use histories::{Place, SECTORS, SIZE, history, options, sector_of, split, value_of};
use objects::bucket::{Bucket, Fault, FaultyBucket, MemoryBucket};
use objects::format::SECTOR_BYTES;

/// A store in memory, whose time goes by as fast as it can.
fn memory() -> (Arc<MemoryBucket>, Place) {
    let store = Arc::new(MemoryBucket::default());
    (Arc::clone(&store), Place { store, is_real: false })
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
