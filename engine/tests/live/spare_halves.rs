//! A spare that stands in for a device that can be read, but holds wrong bytes, in a raidz with further
//! damage.

use device::block_on;
use engine::pool::live::{Auxiliary, Layout};
use engine::pool::status::ScanKind;
use engine::vdev::Class;

use crate::attach::{MIB, copy, export, holds, leaf, pool_of, shape, top, until, write};
use crate::scrub::{garble, scrubbed};
use crate::support::Disks;

const MIBS: u64 = 6;

/// A pool whose spare `s0` has all that `d1` had before it went bad. As many other devices are bad as the
/// parity makes up for.
async fn damaged(disks: &Disks, nparity: u8) -> Vec<String> {
    let count = 2 * usize::from(nparity) + 2;
    let raidz = disks.top(Layout::Raidz { nparity }, Class::Normal, "d", count);
    let pool = pool_of(vec![raidz]).await;
    pool.add_auxiliary(Auxiliary::Spares, vec![disks.leaf("s0")]).await.unwrap();
    let spare = pool.pool().vdevs().spares.iter().next().unwrap().guid;
    write(&pool, 0).await;
    pool.replace_with_spare(leaf(&pool, "d1").guid, spare).await.unwrap();
    copy(&pool, "d1", "s0").await;
    for at in 1..MIBS {
        write(&pool, at).await;
    }
    assert!(shape(top(&pool)).contains("spare-1(d1 s0)"), "{}", shape(top(&pool)));
    export(pool).await;
    let bad: Vec<String> = (1..=nparity + 1).map(|number| format!("d{number}")).collect();
    bad.iter().for_each(|name| garble(&disks.file(name), |_| true));
    bad
}

#[test]
fn reads_and_scrubs_use_both_halves_of_a_spare_and_blame_the_bad_device() {
    for nparity in 1..=3 {
        for scrubs in [false, true] {
            let disks = Disks::new(96 * MIB);
            block_on(async {
                let bad = damaged(&disks, nparity).await;
                let pool = disks.import("tank", 2).await;
                pool.start().unwrap();
                if scrubs {
                    let scan = scrubbed(&pool).await;
                    assert!(scan.processed > 0 && scan.errors == 0, "{scan:?}");
                }
                holds(&pool, MIBS).await;
                pool.repairs_done().await;
                for leaf in pool.pool().vdevs().leaves() {
                    let is_bad = bad.iter().any(|name| leaf.name.ends_with(&format!("/{name}")));
                    let counted = leaf.errors.checksum() > 0;
                    assert_eq!((counted, leaf.stats.healed_bytes() > 0), (is_bad, is_bad), "{}", leaf.name);
                }
                // The spare stays: no command said that the device is good again.
                let scan = scrubbed(&pool).await;
                assert_eq!(scan.errors, 0);
                assert!(!scrubs || scan.processed == 0, "the first scrub mended everything: {scan:?}");
                export(pool).await;
            });
            disks.judge("tank");
        }
    }
}

#[test]
fn a_spare_goes_back_when_a_scrub_has_verified_a_device_that_had_wrong_bytes() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let bad = damaged(&disks, 1).await;
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        let original = leaf(&pool, "d1");
        // The wrong bytes of a few blocks were read, and mended.
        holds(&pool, 1).await;
        pool.repairs_done().await;
        assert!(bad[0] == "d1" && original.errors.checksum() > 0);
        pool.clear(Some(original.guid)).await.unwrap();
        pool.clear(Some(original.guid)).await.unwrap();
        until(&pool, |pool| shape(top(pool)) == "raidz1-0(d0 d1 d2 d3)").await;
        let scan = pool.scan_status().unwrap();
        assert!(scan.kind == ScanKind::Scrub && scan.processed > 0 && scan.errors == 0, "{scan:?}");
        let healed = leaf(&pool, "d1").stats.healed_bytes();
        assert!(healed >= MIBS * MIB / 4, "{healed} bytes of the device are right again");
        let scan = scrubbed(&pool).await;
        assert_eq!((scan.processed, scan.errors), (0, 0));
        holds(&pool, MIBS).await;
        export(pool).await;
    });
    disks.judge("tank");
}
