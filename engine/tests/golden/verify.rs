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
    // What it looked at is known apart from other reads.
    let read = |transfer| -> u64 {
        let leaves = pool.vdevs().tops.iter().flat_map(Vdev::walk).filter(|vdev| vdev.children.is_empty());
        leaves.map(|leaf| leaf.stats.snapshot(transfer).bytes).sum()
    };
    let (looked_at, all) = (read(Transfer::Scrub), read(Transfer::Read));
    assert!(looked_at > 0 && looked_at < all, "{name}: {looked_at} of {all}");
    report
}

/// What `zdb -bbcc` of OpenZFS 2.4.4 says of its pools, which the installed one may not understand. No copies
/// are in the same metaslab, and nothing is deduplicated.
const OF_2_4: &[(&str, &str)] = &[
    (
        "default24",
        "bp count: 760\n ganged count: 0\n bp logical: 17972224\n bp physical: 6723584\n bp allocated: 7033856\n bp deduped: 0 ref>1: 0\n
         bp cloned: 132096 count: 2\n additional, non-pointer bps of type 0: 315\n Dittoed blocks on same vdev: 184",
    ),
    (
        "clones24",
        "bp count: 551\n ganged count: 0\n bp logical: 16188416\n bp physical: 5785600\n bp allocated: 6033920\n bp deduped: 0 ref>1: 0\n
         bp cloned: 1408512 count: 13\n additional, non-pointer bps of type 0: 286\n Dittoed blocks on same vdev: 143",
    ),
    (
        "gang24",
        "bp count: 681\n ganged count: 222\n bp logical: 15848448\n bp physical: 9555968\n bp allocated: 12267520\n bp deduped: 0 ref>1: 0\n
         bp cloned: 0 count: 0\n additional, non-pointer bps of type 0: 50\n Dittoed blocks on same vdev: 242",
    ),
    (
        "classes24",
        "bp count: 949\n ganged count: 0\n bp logical: 18713600\n bp physical: 9007104\n bp allocated: 11077120\n bp deduped: 0 ref>1: 0\n
         bp cloned: 0 count: 0\n additional, non-pointer bps of type 0: 324\n Dittoed blocks on same vdev: 137",
    ),
];

/// The numbers of `zdb -bb`, by the words before them.
fn zdb(name: &str, dir: &Path) -> Option<HashMap<String, Vec<u64>>> {
    let recorded = OF_2_4.iter().find(|(pool, _)| *pool == name);
    let output = match recorded {
        Some((_, output)) if !testkit::oracle::zdb_is_of_2_4() => (*output).to_owned(),
        _ => testkit::oracle::zdb_of(dir, "-bb", name, &[])?,
    };
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
