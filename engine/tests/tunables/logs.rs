//! Intent logs.

use device::block_on;
use engine::stats::ZIL;
use engine::tunables;

use crate::bed::{Bed, MIB, Turn};

/// Bytes that the log got for stable writes of this size.
fn logged(bytes: u64) -> u64 {
    let bed = Bed::new();
    // The first stable write begins the log.
    bed.write(0, 8192);
    block_on(bed.volume.flush()).unwrap();
    let before = bed.pool.writer().written().log_bytes;
    for at in 1..9 {
        bed.write(at * MIB, bytes);
        block_on(bed.volume.flush()).unwrap();
    }
    let logged = bed.pool.writer().written().log_bytes - before;
    bed.end();
    logged
}

#[test]
fn large_writes_do_not_go_through_the_log_from_the_size_that_is_said() {
    let turn = Turn::take();
    let small = logged(16 << 10);
    assert!(small > 8 * (16 << 10), "with their data: {small}");
    turn.set(&tunables::ZFS_IMMEDIATE_WRITE_SZ, 8 << 10);
    let immediate = logged(16 << 10);
    assert!(immediate < small / 2, "{immediate} {small}");
}

/// Blocks of the log for 256 KiB of small writes that become stable together, and their bytes.
fn log_blocks() -> (u64, u64) {
    let bed = Bed::new();
    bed.write(0, 8192);
    block_on(bed.volume.flush()).unwrap();
    let before = ZIL.snapshot();
    for at in 1..33 {
        bed.write(at * MIB, 8192);
    }
    block_on(bed.volume.flush()).unwrap();
    let after = ZIL.snapshot();
    bed.end();
    let blocks = after.zil_itx_metaslab_normal_count - before.zil_itx_metaslab_normal_count;
    (blocks, after.zil_itx_metaslab_normal_write - before.zil_itx_metaslab_normal_write)
}

#[test]
fn blocks_of_the_log_are_as_large_as_is_said() {
    let turn = Turn::take();
    let (usual, _) = log_blocks();
    assert!(usual <= 8, "{usual}");
    for size in [16 << 10, 8 << 10] {
        turn.set(&tunables::ZIL_MAXBLOCKSIZE, size);
        let (blocks, bytes) = log_blocks();
        assert!(blocks >= 16 && bytes <= blocks * size, "{blocks} blocks of {size} have {bytes} bytes");
    }
}
