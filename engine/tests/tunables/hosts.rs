//! Pools that several hosts see.

use std::path::Path;
use std::time::{Duration, Instant};

use device::block_on;
use engine::env::Multihost;
use engine::pool::import::ImportOptions;
use engine::pool::live::{LivePool, Surroundings, properties};
use engine::tunables;
use ondisk::vdev_config::PoolState;

use crate::bed::{Bed, Turn, lazy};

/// How often a file is written within this time. Nothing but marks writes an idle pool.
fn marks_within(file: &Path, time: Duration) -> usize {
    let written = || std::fs::metadata(file).unwrap().modified().unwrap();
    let (mut last, mut marks, until) = (written(), 0, Instant::now() + time);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
        let now = written();
        marks += usize::from(now != last);
        last = now;
    }
    marks
}

#[test]
fn marks_of_multihost_pools_come_as_is_said() {
    let turn = Turn::take();
    turn.set(&tunables::ZFS_MULTIHOST_INTERVAL, 250);
    turn.set(&tunables::ZFS_MULTIHOST_FAIL_INTERVALS, 4);
    turn.set(&tunables::ZFS_MULTIHOST_IMPORT_INTERVALS, 7);
    let Multihost { interval, fail_intervals, import_intervals } = Multihost::tuned();
    assert_eq!((interval, fail_intervals, import_intervals), (Duration::from_millis(250), 4, 7));
    let bed = Bed::new();
    block_on(bed.pool.change(|s| async move { properties::set(&s, "multihost", "on").await })).unwrap();
    bed.commit();
    let marks = || marks_within(&bed.disks.file("d0"), Duration::from_secs(2));
    let often = marks();
    assert!((4..=9).contains(&often), "each 250 ms: {often}");
    let mark = bed.pool.view().uberblock().mmp.unwrap();
    assert_eq!((mark.interval_ms(), mark.fail_intervals()), (Some(250), Some(4)));
    turn.set(&tunables::ZFS_MULTIHOST_INTERVAL, 5000);
    assert!(marks() <= 2);
    bed.end();
}

#[test]
fn a_pool_of_another_host_is_watched_as_long_as_is_said() {
    let turn = Turn::take();
    turn.set(&tunables::ZFS_MULTIHOST_INTERVAL, 100);
    turn.set(&tunables::ZFS_MULTIHOST_FAIL_INTERVALS, 0);
    let bed = Bed::new();
    block_on(bed.pool.change(|s| async move { properties::set(&s, "multihost", "on").await })).unwrap();
    let Bed { disks, mut pool, volume } = bed;
    drop(volume);
    let mut watched = |intervals, host_id: u64| {
        turn.set(&tunables::ZFS_MULTIHOST_IMPORT_INTERVALS, intervals);
        pool.abandon("its host goes down");
        block_on(pool.close(PoolState::Exported)).unwrap_err();
        let found = block_on(disks.found("tank"));
        let options = ImportOptions { host_id, force: true, ..ImportOptions::default() };
        let surroundings = Surroundings { host: (host_id, format!("host-{host_id}")), ..lazy() };
        let started = Instant::now();
        pool = block_on(LivePool::import(&found, &options, surroundings)).unwrap();
        pool.start().unwrap();
        started.elapsed()
    };
    let short = watched(1, 2);
    let long = watched(30, 3);
    assert!(long >= Duration::from_secs(3) && short < long, "{short:?} {long:?}");
    block_on(pool.close(PoolState::Exported)).unwrap();
}
