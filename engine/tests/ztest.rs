//! Pools left behind by `ztest`, of random topology and killed at random: they import and verify to the last
//! block, and are counted by type as `zdb` counts them.
//!
//! ```text
//! CENOTE_ZTEST_RUNS=20 cargo test -p cenote-engine --test ztest     more pools (the default is two)
//! CENOTE_ZTEST_SEED=7 …                                             pools of this kind, and the following
//! CENOTE_ZTEST_SECONDS=60 …                                         longer runs
//! CENOTE_ZTEST_DIR=/some/dir …                                      a pool that is there already
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::path::Path;

use device::block_on;
use engine::pool::discovery::scan;
use engine::pool::import::{ImportOptions, import, select};
use engine::pool::verify::{BlockKind, Progress, Report, VerifyOptions, verify};
use testkit::oracle::zdb_of;
use testkit::ztest::{POOL, ZtestPool};

/// Count, logical, physical and allocated bytes.
type Sums = [u64; 4];

fn number(variable: &str, default: u64) -> u64 {
    let Ok(text) = env::var(variable) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number"))
}

#[test]
fn pools_left_behind_by_ztest_verify_and_count_as_zdb_does() {
    if let Some(dir) = env::var_os("CENOTE_ZTEST_DIR") {
        let found = judge(Path::new(&dir));
        assert!(found.is_empty(), "{found}");
        return;
    }
    let first = number("CENOTE_ZTEST_SEED", 0);
    for seed in first..first + number("CENOTE_ZTEST_RUNS", 2) {
        let Some(made) = ZtestPool::make(seed, number("CENOTE_ZTEST_SECONDS", 8)) else { return };
        let pool = made.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
        let found = judge(pool.path());
        let options = pool.options.join(" ");
        if !found.is_empty() {
            let (ended, log) = (if pool.succeeded { "well" } else { "badly" }, pool.log());
            let kept = pool.keep();
            panic!(
                "seed {seed}, ztest {options} (ended {ended}), pool kept in {}:\n{found}\n{log}",
                kept.display()
            );
        }
    }
}

/// Everything that is wrong with our reading of a pool.
fn judge(dir: &Path) -> String {
    let report = match verified(dir) {
        Ok(report) => report,
        Err(error) => return error,
    };
    let mut found = String::new();
    if report.unreadable_blocks > 0 {
        let first = report.errors.iter().find(|error| error.fatal.is_some());
        let _ = writeln!(found, "{} blocks unreadable, first: {first:?}", report.unreadable_blocks);
    }
    let Some(text) = zdb_of(dir, "-bbP", POOL, &[]) else { return found };
    // OpenZFS leaks now and then, as where dedup meets gang blocks: a leak is right where zdb sees it too.
    let space = report.space.clone().unwrap_or_default();
    let leaked =
        space.leaked.iter().map(|range| (range.vdev.into(), range.start, range.end - range.start)).collect();
    if leaks(&text) != leaked || space.unallocated_bytes + space.shared_bytes > 0 {
        let _ = writeln!(found, "zdb sees leaks {:?}, we see {space:?}", leaks(&text));
    }
    let theirs = by_type(&text);
    if theirs.is_empty() {
        let _ = writeln!(found, "zdb counts nothing:\n{text}");
    }
    let mut ours: BTreeMap<String, Sums> = BTreeMap::new();
    let total = report.stats.total();
    ours.insert("Total".into(), [total.count, total.lsize, total.psize, total.asize]);
    for (kind, _, _) in report.stats.levels() {
        let sums = report.stats.kind(kind);
        let name = match kind {
            BlockKind::Type(ty) => ty.name().to_owned(),
            BlockKind::DeferredFree => "deferred free".to_owned(),
            BlockKind::Other => "other".to_owned(),
        };
        ours.insert(name, [sums.count, sums.lsize, sums.psize, sums.asize]);
    }
    for name in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
        let (mine, zdb) = (ours.get(name), theirs.get(name));
        // zdb leaves out what has no space of its own.
        if mine != zdb && mine.is_none_or(|sums| sums[3] > 0) {
            let _ = writeln!(found, "{name}: {mine:?}, zdb counts {zdb:?}");
        }
    }
    found
}

fn verified(dir: &Path) -> Result<Report, String> {
    let pools = block_on(scan(&[dir])).map_err(|error| error.to_string())?;
    let pool = select(pools, POOL).map_err(|error| error.to_string())?;
    let pool = block_on(import(&pool, &ImportOptions::read_only())).map_err(|error| error.to_string())?;
    let options = VerifyOptions { threads: 2, ..VerifyOptions::default() };
    verify(&pool, options, &Progress::default()).map_err(|error| error.to_string())
}

/// Vdev, offset and size of what `zdb -b` calls leaked.
fn leaks(text: &str) -> BTreeSet<(u64, u64, u64)> {
    let leak = |line: &str| {
        let rest = line.strip_prefix("leaked space: vdev ")?;
        let (vdev, rest) = rest.split_once(", offset 0x")?;
        let (offset, size) = rest.split_once(", size ")?;
        Some((vdev.parse().ok()?, u64::from_str_radix(offset, 16).ok()?, size.trim().parse().ok()?))
    };
    text.lines().filter_map(leak).collect()
}

/// The table of `zdb -bbP`: eight columns, the last of which is the type.
fn by_type(text: &str) -> BTreeMap<String, Sums> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let columns: Vec<&str> = line.split('\t').map(str::trim).collect();
        let &[count, lsize, psize, asize, _, _, _, name] = &columns[..] else { continue };
        let numbers = [count, lsize, psize, asize].map(|number| number.parse::<u64>().ok());
        if let [Some(count), Some(lsize), Some(psize), Some(asize)] = numbers {
            found.insert(name.to_owned(), [count, lsize, psize, asize]);
        }
    }
    found.remove("Metadata Total");
    found
}
