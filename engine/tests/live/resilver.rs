//! Resilvers: devices that were away get what they missed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::block_on;
use engine::dsl::{Dsl, history};
use engine::events::Events;
use engine::inject::{ALWAYS, Fault, Operation};
use engine::pool::live::{Layout, LivePool, NewTop, ScrubRange, TakeOffline};
use engine::pool::status::{Progress, ScanKind};
use engine::vdev::{Class, State, Vdev};
use ondisk::vdev_config::PoolState;

use crate::scrub::{MIB, committed, create_volume, fill, holds, scanned, small_batches};
use crate::support::{Disks, new_pool, surroundings};

/// How long a resilver may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const PLAIN: [(&str, &str); 1] = [("compression", "off")];

fn leaf(pool: &LivePool, index: usize) -> &Vdev {
    pool.pool().vdevs().leaves().nth(index).unwrap()
}

fn lacks_nothing(pool: &LivePool) -> bool {
    pool.pool().vdevs().leaves().all(|leaf| leaf.missing_txgs.is_empty())
}

/// A pool of which one device missed MiBs 2 to 6 of a volume.
async fn one_away(disks: &Disks, top: NewTop, away: usize) -> Arc<LivePool> {
    let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
    pool.start().unwrap();
    create_volume(&pool, "vol", &PLAIN, 8 * MIB).await;
    fill(&pool, "vol", 0..4, 0).await;
    pool.offline(leaf(&pool, away).guid, TakeOffline::Persistently).await.unwrap();
    fill(&pool, "vol", 2..6, 40).await;
    assert!(disks.path().exists() && !lacks_nothing(&pool));
    pool
}

/// A mirror of three, of which the second device missed MiBs 2 to 8 of a volume, and the third one 6 to 8.
async fn two_away(disks: &Disks) -> Arc<LivePool> {
    let pool = one_away(disks, disks.top(Layout::Mirror, Class::Normal, "d", 3), 1).await;
    pool.offline(leaf(&pool, 2).guid, TakeOffline::Persistently).await.unwrap();
    fill(&pool, "vol", 6..8, 60).await;
    pool
}

#[test]
fn a_device_that_comes_back_gets_what_it_missed_in_every_layout() {
    let raidz = |nparity| Layout::Raidz { nparity };
    let draid = Layout::Draid { nparity: 1, ndata: 2, nspares: 1 };
    for (layout, count) in [(Layout::Mirror, 2), (raidz(1), 3), (raidz(2), 5), (draid, 4)] {
        let disks = Disks::new(128 * MIB);
        block_on(async {
            let pool = one_away(&disks, disks.top(layout, Class::Normal, "d", count), 1).await;
            let status = pool.online(leaf(&pool, 1).guid).await.unwrap();
            assert_eq!(status.state, State::Healthy);
            let scan = scanned(&pool).await;
            assert_eq!((scan.kind, scan.state, scan.errors), (ScanKind::Resilver, Progress::Finished, 0));
            assert!(scan.processed >= MIB && scan.skipped > 0, "{layout:?}: {scan:?}");
            assert!(lacks_nothing(&pool), "{layout:?}");
            // The others may go now, and all is there.
            if layout == Layout::Mirror {
                pool.offline(leaf(&pool, 0).guid, TakeOffline::Temporarily).await.unwrap();
            }
            holds(&pool, "vol", 2..6, 40).await;
            holds(&pool, "vol", 0..2, 0).await;
            if layout == Layout::Mirror {
                pool.online(leaf(&pool, 0).guid).await.unwrap();
                scanned(&pool).await;
            }
            pool.scrub(ScrubRange::default()).await.unwrap();
            let scrub = scanned(&pool).await;
            assert_eq!((scrub.kind, scrub.processed, scrub.errors), (ScanKind::Scrub, 0, 0), "{layout:?}");
            pool.close(PoolState::Exported).await.unwrap();
        });
        disks.judge("tank");
    }
}

#[test]
fn a_resilver_goes_on_after_an_export_and_begins_with_an_import() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let pool = one_away(&disks, disks.top(Layout::Mirror, Class::Normal, "d", 2), 0).await;
        pool.set_scan_limits(small_batches());
        pool.online(leaf(&pool, 0).guid).await.unwrap();
        while pool.scan_status().is_none() {
            committed(&pool).await;
        }
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        let scan = scanned(&pool).await;
        assert_eq!((scan.kind, scan.state, scan.errors), (ScanKind::Resilver, Progress::Finished, 0));
        assert!(lacks_nothing(&pool));
        pool.scrub(ScrubRange::default()).await.unwrap();
        assert_eq!(scanned(&pool).await.processed, 0);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_scrub_gives_way_to_a_resilver() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let pool = one_away(&disks, disks.top(Layout::Mirror, Class::Normal, "d", 2), 1).await;
        pool.set_scan_limits(small_batches());
        pool.scrub(ScrubRange::default()).await.unwrap();
        pool.online(leaf(&pool, 1).guid).await.unwrap();
        loop {
            let scan = scanned(&pool).await;
            if scan.kind == ScanKind::Resilver {
                assert_eq!((scan.state, scan.errors), (Progress::Finished, 0));
                break;
            }
        }
        assert!(lacks_nothing(&pool));
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_device_that_comes_back_during_a_resilver_is_covered_too() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let pool = two_away(&disks).await;
        pool.set_scan_limits(small_batches());
        for index in [1, 2] {
            pool.online(leaf(&pool, index).guid).await.unwrap();
            (0..4 * index).for_each(|_| std::thread::yield_now());
            committed(&pool).await;
        }
        while !lacks_nothing(&pool) {
            let scan = scanned(&pool).await;
            assert_eq!((scan.kind, scan.errors), (ScanKind::Resilver, 0));
        }
        // Gone and back while it is under way.
        pool.offline(leaf(&pool, 1).guid, TakeOffline::Temporarily).await.unwrap();
        fill(&pool, "vol", 0..2, 80).await;
        pool.online(leaf(&pool, 1).guid).await.unwrap();
        committed(&pool).await;
        pool.offline(leaf(&pool, 1).guid, TakeOffline::Temporarily).await.unwrap();
        committed(&pool).await;
        pool.online(leaf(&pool, 1).guid).await.unwrap();
        while !lacks_nothing(&pool) {
            scanned(&pool).await;
        }
        pool.scrub(ScrubRange::default()).await.unwrap();
        assert_eq!(scanned(&pool).await.processed, 0);
        holds(&pool, "vol", 2..6, 40).await;
        holds(&pool, "vol", 6..8, 60).await;
        holds(&pool, "vol", 0..2, 80).await;
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_resilver_that_has_just_begun_begins_anew_for_another_device_and_the_history_says_so() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let pool = two_away(&disks).await;
        // The only device that has all is so slow that nothing ends by itself.
        let (source, latency) = (leaf(&pool, 0).guid.get(), Duration::from_secs(1));
        let slow = Fault::Delay { leaf: source, latency, lanes: 1, operation: Operation::Read };
        pool.inject(slow, ALWAYS).unwrap();
        let events = Arc::new(Events::default());
        pool.pool().vdevs().reporter().attach(&events);
        let starts = || {
            let posted = events.since(0).events;
            posted.iter().filter(|event| event.class == "sysevent.fs.zfs.resilver_start").count()
        };
        for index in [1, 2] {
            pool.online(leaf(&pool, index).guid).await.unwrap();
            assert_eq!(starts(), index, "it has begun when the answer is there");
        }
        pool.clear_injections(None);
        while !lacks_nothing(&pool) {
            assert_eq!(scanned(&pool).await.errors, 0);
        }
        assert_eq!(starts(), 2);
        let history = history::read(&Dsl::open(&pool.view()).await.unwrap()).await.unwrap();
        assert!(format!("{history:?}").contains("starting deferred resilver"));
        holds(&pool, "vol", 6..8, 60).await;
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_resilver_that_waited_goes_on_when_the_one_before_it_is_given_up() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let pool = two_away(&disks).await;
        pool.set_scan_limits(small_batches());
        let (source, latency) = (leaf(&pool, 0).guid.get(), Duration::from_millis(50));
        let slow = Fault::Delay { leaf: source, latency, lanes: 1, operation: Operation::Read };
        pool.inject(slow, ALWAYS).unwrap();
        pool.online(leaf(&pool, 1).guid).await.unwrap();
        // So far that it does not begin anew for another device.
        let running = || pool.scan_status().filter(|scan| scan.state == Progress::Running);
        while running().is_some_and(|scan| scan.issued < scan.to_examine / 4) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let of_one = running().expect("it is too slow to be done").start_time;
        pool.online(leaf(&pool, 2).guid).await.unwrap();
        assert_eq!(running().expect("it goes on").start_time, of_one);
        pool.cancel_scan().await.unwrap();
        pool.clear_injections(None);
        // The one that was given up is not done: only the device that waited must be complete.
        let began = Instant::now();
        while !leaf(&pool, 2).missing_txgs.is_empty() {
            assert!(began.elapsed() < PATIENCE, "{:?}", pool.scan_status());
            std::thread::sleep(Duration::from_millis(1));
        }
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
