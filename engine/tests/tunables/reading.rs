//! Reading ahead.

use std::time::Duration;

use device::block_on;
use engine::stats::ZFETCH;
use engine::tunables;
use engine::vdev::stats::Transfer;

use crate::bed::{Bed, MIB, Turn};

/// Bytes that devices gave for some reads in order.
fn read_in_order(reads: u64) -> u64 {
    let bed = Bed::new();
    for at in 0..32 {
        bed.write(at * MIB, MIB);
    }
    bed.commit();
    let bed = bed.again();
    let before = bed.reads(Transfer::Read).0;
    let reader = block_on(bed.volume.reader()).unwrap();
    let mut into = vec![0; 8192];
    for at in 0..reads {
        block_on(reader.read_at(at * 8192, &mut into)).unwrap();
    }
    drop(reader);
    // What was asked for ahead may still be on its way.
    std::thread::sleep(Duration::from_millis(300));
    let read = bed.reads(Transfer::Read).0 - before;
    bed.end();
    read
}

#[test]
fn blocks_are_loaded_ahead_as_far_as_is_said_or_not_at_all() {
    let turn = Turn::take();
    let usual = read_in_order(128);
    turn.set(&tunables::ZFETCH_MAX_DISTANCE, 64 << 10);
    let short = read_in_order(128);
    turn.set(&tunables::ZFETCH_MAX_DISTANCE, 0);
    let no_distance = read_in_order(128);
    turn.set(&tunables::ZFETCH_MAX_DISTANCE, 64 << 10);
    turn.set(&tunables::ZFS_PREFETCH_DISABLE, 1);
    let none = read_in_order(128);
    assert_eq!(no_distance, none, "no distance is nothing ahead");
    assert!(none < short && short < usual, "{none} {short} {usual}");
    assert!(short - none <= 256 << 10 && usual - none > MIB, "{none} {short} {usual}");
}

#[test]
fn as_many_streams_are_followed_as_is_said() {
    let (turn, bed) = (Turn::take(), Bed::new());
    // Six streams in turn.
    let continued = || {
        let before = ZFETCH.snapshot().hits;
        let reader = block_on(bed.volume.reader()).unwrap();
        let mut into = vec![0; 8192];
        for step in 0..16 {
            for stream in 0..6 {
                block_on(reader.read_at(stream * 8 * MIB + step * 8192, &mut into)).unwrap();
            }
        }
        ZFETCH.snapshot().hits - before
    };
    let usual = continued();
    assert!(usual >= 6 * 15, "{usual}");
    turn.set(&tunables::ZFETCH_MAX_STREAMS, 2);
    assert_eq!(continued(), 0, "each read pushes out another stream");
    bed.end();
}
