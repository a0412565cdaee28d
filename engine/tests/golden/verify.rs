//! Every golden pool verifies to its last block, and is counted as `zdb` counts it.

use std::collections::HashMap;
use std::path::Path;

use device::block_on;
use engine::pool::discovery::scan;
use engine::pool::import::{ImportOptions, import, select};
use engine::pool::verify::{Progress, Report, VerifyOptions, verify};
use engine::vdev::Vdev;
use engine::vdev::stats::Transfer;

fn verified(name: &str, dir: &Path) -> Report {
    let pools = block_on(scan(&[dir])).expect("the directory can be listed");
    let found = select(pools, name).expect("the pool is found by its name");
    let pool =
        block_on(import(&found, &ImportOptions::read_only())).unwrap_or_else(|error| panic!("{error}"));
    let options = VerifyOptions { threads: 2, ..VerifyOptions::default() };
    let report =
        verify(&pool, options, &Progress::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
    // What it looked at is told from what was read otherwise.
    let read = |transfer| -> u64 {
        let leaves = pool.vdevs().tops.iter().flat_map(Vdev::walk).filter(|vdev| vdev.children.is_empty());
        leaves.map(|leaf| leaf.stats.snapshot(transfer).bytes).sum()
    };
    let (looked_at, all) = (read(Transfer::Scrub), read(Transfer::Read));
    assert!(looked_at > 0 && looked_at < all, "{name}: {looked_at} of {all}");
    report
}

/// The numbers of `zdb -bb`, by the words before them.
fn zdb(name: &str, dir: &Path) -> Option<HashMap<String, Vec<u64>>> {
    let output = testkit::oracle::zdb_of(dir, "-bb", name, &[])?;
    let mut numbers = HashMap::new();
    for line in output.lines() {
        if let Some((label, rest)) = line.trim().split_once(':') {
            let words = rest.split_whitespace();
            numbers.insert(label.to_owned(), words.filter_map(|word| word.parse().ok()).collect());
        }
    }
    Some(numbers)
}

#[test]
fn every_golden_pool_verifies_and_counts_as_zdb_does() {
    for name in testkit::golden::names().expect("the golden pools can be listed") {
        let Some(golden) = testkit::golden::pool(&name) else { return };
        let report = verified(&name, &golden.dir);
        assert_eq!(report.unreadable_blocks, 0, "{name}: {:?}", report.errors.first());
        let is_damaged = name == "corrupt";
        assert_eq!(report.damaged_blocks > 0, is_damaged, "{name}: {:?}", report.errors.first());
        let space = report.space.as_ref().expect("asked for");
        assert!(space.is_clean(), "{name}: {space:?}");
        let Some(theirs) = zdb(&name, &golden.dir) else { continue };
        let total = report.stats.total();
        let first = |label: &str| theirs.get(label).and_then(|numbers| numbers.first().copied());
        let second = |label: &str| theirs.get(label).and_then(|numbers| numbers.get(1).copied());
        let stats = &report.stats;
        let pairs = [
            ("count", total.count, first("bp count")),
            ("logical", total.lsize, first("bp logical")),
            ("physical", total.psize, first("bp physical")),
            ("allocated", total.asize, first("bp allocated")),
            ("deduped bytes", stats.dedup_asize, first("bp deduped")),
            ("deduped blocks", stats.dedup_blocks, second("bp deduped")),
            ("cloned bytes", stats.cloned_asize, first("bp cloned")),
            ("cloned blocks", stats.cloned_blocks, second("bp cloned")),
            ("gangs", total.gangs, first("ganged count")),
            // zdb leaves these lines out when they are 0.
            ("same vdev", total.ditto_same_vdev, first("Dittoed blocks on same vdev").or(Some(0))),
            (
                "same metaslab",
                total.ditto_same_metaslab,
                first("Dittoed blocks in same metaslab").or(Some(0)),
            ),
            ("embedded", stats.embedded[0], first("additional, non-pointer bps of type 0").or(Some(0))),
        ];
        for (label, ours, theirs) in pairs {
            assert_eq!(Some(ours), theirs, "{name}: {label}");
        }
    }
}
