//! Events: how many are kept, and how many errors become some.

use std::time::{Duration, Instant};

use device::block_on;
use engine::events::Events;
use engine::inject::{ALWAYS, DeviceError, Fault, Operation};
use engine::tunables;

use crate::bed::{Bed, MIB, Turn, count};

#[test]
fn the_ring_of_events_has_its_length() {
    let turn = Turn::take();
    turn.set(&tunables::ZFS_ZEVENT_LEN_MAX, 10);
    let events = Events::default();
    for _ in 0..25 {
        events.post("sysevent.fs.zfs.config_sync".into(), Vec::new());
    }
    assert_eq!(events.since(0).events.len(), 10);
}

/// Events of checksum errors of 30 blocks, and the seconds in which they came.
fn checksum_events(bed: &Bed, first: u64) -> (usize, u64) {
    let (events, started) = (bed.events(), Instant::now());
    let mut into = vec![0; 8192];
    for block in first..first + 30 {
        block_on(bed.volume.read_at(block * 8192, &mut into)).unwrap_err();
    }
    (count(&events, "ereport.fs.zfs.checksum"), started.elapsed().as_secs() + 1)
}

#[test]
fn so_many_checksum_errors_of_a_second_become_events() {
    let (turn, bed) = (Turn::take(), Bed::new());
    bed.write(0, 2 * MIB);
    bed.commit();
    bed.pool.flush_cache();
    // Only data are read from the device afterwards.
    block_on(bed.volume.read_at(MIB, &mut [0; 8192])).unwrap();
    let (leaf, error, operation) = (bed.leaf(0).guid.get(), DeviceError::Checksum, Operation::Read);
    bed.pool.inject(Fault::Device { leaf, error, operation, label: None }, ALWAYS).unwrap();
    let (usual, _) = checksum_events(&bed, 0);
    assert!(usual >= 20, "{usual}");
    turn.set(&tunables::ZFS_CHECKSUM_EVENTS_PER_SECOND, 0);
    assert_eq!(checksum_events(&bed, 40).0, 0);
    turn.set(&tunables::ZFS_CHECKSUM_EVENTS_PER_SECOND, 3);
    std::thread::sleep(Duration::from_secs(1));
    let (few, seconds) = checksum_events(&bed, 80);
    assert!(few > 0 && few as u64 <= 3 * (seconds + 1), "{few} in {seconds} s");
    bed.pool.clear_injections(None);
    bed.end();
}

#[test]
fn transfers_are_slow_after_the_time_that_is_said_and_so_many_become_events() {
    let (turn, bed) = (Turn::take(), Bed::new());
    let latency = Duration::from_millis(30);
    let (leaf, operation) = (bed.leaf(0).guid.get(), Operation::Write);
    bed.pool.inject(Fault::Delay { leaf, latency, lanes: 64, operation }, ALWAYS).unwrap();
    let delays = |byte: u64| {
        let events = bed.events();
        bed.write(byte * MIB, 64 << 10);
        bed.commit();
        bed.commit();
        count(&events, "ereport.fs.zfs.delay")
    };
    assert_eq!(delays(0), 0, "half a minute is slow");
    turn.set(&tunables::ZIO_SLOW_IO_MS, 20);
    assert!(delays(1) > 0);
    turn.set(&tunables::ZFS_SLOW_IO_EVENTS_PER_SECOND, 0);
    let before = bed.leaf(0).stats.slow();
    assert_eq!(delays(2), 0);
    assert!(bed.leaf(0).stats.slow() > before, "they are counted all the same");
    bed.pool.clear_injections(None);
    bed.end();
}
