//! How long a sync takes. Not a test of anything: `cargo test --release -p cenote-engine --lib
//! dmu::live::tests::speed -- --ignored --nocapture`.

use std::time::Instant;

use super::sync::{Rig, noise};
use super::*;

const BLOCKS: u64 = 100_000;
const BLOCK: usize = 8192;

#[test]
#[ignore = "measures"]
fn a_hundred_thousand_dirty_blocks() {
    for compress in [CompressType::Off, CompressType::Lz4] {
        let policy = Policy { compress, ..policy() };
        let Some(mut rig) = Rig::new(6 << 30, 12, policy) else { return };
        let object = block_on(rig.objset.allocate(&rig.tx(), new_object(BLOCK as u32))).unwrap();
        let bytes = noise(BLOCK + 4096);
        let mut state = 1u64;
        for round in 0..3 {
            let start = Instant::now();
            for turn in 0..BLOCKS {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // Spread over 8 GiB: each indirect block gets a hundred of them.
                let place = (state >> 33) % (1 << 20);
                let from = (turn % 4096) as usize;
                block_on(object.write_at(&rig.tx(), place * BLOCK as u64, &bytes[from..from + BLOCK]))
                    .unwrap();
            }
            let written = start.elapsed();
            let start = Instant::now();
            let txg = Txg(rig.txg);
            let killed = rig.sync_objset();
            let took = start.elapsed();
            println!(
                "{compress}, round {round}: {BLOCKS} writes of 8 KiB in {written:?}, sync in {took:?} \
                 ({:.0} MB/s), {} killed, group {txg}",
                (BLOCKS * BLOCK as u64) as f64 / took.as_secs_f64() / 1e6,
                killed,
            );
            rig.commit();
        }
    }
}
