//! Pools of old versions and pools without features: what is written into them is what they allow, as `zdb`
//! sees it.

use std::sync::Arc;

use device::block_on;
use engine::Error;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::discovery;
use engine::pool::live::{Layout, LivePool, NewPool, default_features, set_version};
use engine::vdev::Class;
use engine::zpl::live::WriteOptions;
use ondisk::features::Feature;
use ondisk::pool_version as version;
use ondisk::vdev_config::PoolState;

use crate::history::History;
use crate::support::{Disks, committing, new_pool, surroundings};
use crate::{files, golden_written, random};

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;

/// Checks that an exported pool without features has nothing of a newer form: no features, no block that
/// needs one, no hole with a birth.
pub fn assert_is_old(disks: &Disks, name: &str, version: u64) {
    block_on(async {
        let pool = disks.import(name, 77).await;
        assert_eq!((pool.version(), pool.pool().uberblock().version), (version, version));
        let is_enabled = |feature: &&Feature| pool.feature_count(**feature).is_some();
        assert_eq!(Feature::ALL.iter().find(is_enabled), None);
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    });
    disks.judge(name);
    let Some(blocks) = testkit::oracle::zdb_of(disks.path(), "-bbbbb", name, &[]) else { return };
    let newer = [" lz4 ", " zstd ", "EMBEDDED", "HOLE", " sha512 ", " skein ", " edonr ", " blake3 "];
    let found = blocks.lines().find(|line| newer.iter().any(|word| line.contains(word)));
    assert_eq!(found, None, "{name}");
    assert!(blocks.contains(" lzjb "), "its blocks are listed");
    let Some(objects) = testkit::oracle::zdb_of(disks.path(), "-dddd", name, &[]) else { return };
    assert!(!objects.contains("com.delphix:log_spacemap_zap") && !objects.contains("empty_bpobj"), "{name}");
}

pub fn old_pool(disks: &Disks, version: u64) -> NewPool {
    let tops = vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)];
    NewPool { version, features: Vec::new(), ..new_pool(tops, 12) }
}

fn old_with(disks: &Disks, version: u64, layout: Layout) -> NewPool {
    let tops = vec![disks.top(layout, Class::Normal, "d", 4)];
    NewPool { version, features: Vec::new(), ..new_pool(tops, 9) }
}

fn run(name: &str, version: u64) {
    let disks = Disks::new(128 * MIB);
    random::run_on(name, &disks, false, |disks| old_pool(disks, version));
    assert_is_old(&disks, "tank", version);
}

#[test]
fn random_without_features() {
    run("random_without_features", version::FEATURES);
}

#[test]
fn random_version_28() {
    run("random_version_28", 28);
}

#[test]
fn random_version_26() {
    run("random_version_26", 26);
}

/// What `zdb` shows of a pool that has each thing from its version on, and not before.
#[test]
fn nothing_is_written_that_is_newer_than_the_version() {
    for version in [1, 2, 3, 4, 10, 11, 25, 26] {
        let disks = Disks::new(96 * MIB);
        block_on(async {
            let pool = LivePool::create(old_pool(&disks, version), surroundings(1)).await.unwrap();
            committing(&pool, golden_written::change(&pool)).await;
            committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
        });
        disks.judge("tank");
        let Some(blocks) = testkit::oracle::zdb_of(disks.path(), "-bbbbb", "tank", &[]) else { return };
        assert_eq!(blocks.contains("DVA[1]="), version >= version::DITTO_BLOCKS, "version {version}");
        let Some(objects) = testkit::oracle::zdb_of(disks.path(), "-dddd", "tank", &[]) else { return };
        for (what, since) in [
            ("USED_BYTES", version::DNODE_BYTES),
            ("deflate = ", version::RAIDZ_DEFLATE),
            ("history = ", version::HISTORY),
            ("$ORIGIN", version::ORIGIN),
            ("free_bpobj = ", version::DEADLISTS),
            ("$FREE", version::DEADLISTS),
        ] {
            assert_eq!(objects.contains(what), version >= since, "version {version}: {what}");
        }
    }
}

/// Random operations in a pool of the first of these versions, which is then taken to the others, with more
/// operations after each.
fn run_through(name: &str, versions: &[u64], layout: Layout, steps: u64) {
    let disks = Disks::new(96 * MIB);
    let children = if layout == Layout::Mirror { 2 } else { 3 };
    let tops = vec![disks.top(layout, Class::Normal, "d", children)];
    let given = |name: &str| std::env::var(name).ok()?.parse().ok();
    let seed = given("CENOTE_RANDOM_SEED").unwrap_or(versions[0] * 7 + steps);
    let steps = given("CENOTE_RANDOM_STEPS").unwrap_or(steps);
    println!("{name}: versions {versions:?}, CENOTE_RANDOM_SEED={seed}");
    block_on(async {
        let new = NewPool { version: versions[0], features: Vec::new(), ..new_pool(tops, 9) };
        let pool = LivePool::create(new, surroundings(seed)).await.unwrap();
        let mut run = History::begin(pool, seed).await;
        let mut number = 0;
        for version in versions {
            run.open.clear();
            if run.pool.version() != *version {
                let features = if *version == version::FEATURES { default_features() } else { Vec::new() };
                let version = *version;
                let set = run.pool.change(move |s| async move {
                    set_version(&s, version).await?;
                    for feature in features {
                        s.enable_feature(feature).await?;
                    }
                    Ok(())
                });
                committing(&run.pool, set).await.unwrap();
            }
            for _ in 0..steps {
                number += 1;
                run.step(number).await;
            }
            run = random::reborn(run, &disks, seed + version).await;
            assert_eq!(run.pool.version(), *version);
            for _ in 0..steps / 2 {
                number += 1;
                run.step(number).await;
            }
        }
        random::reborn(run, &disks, seed + 1).await.check().await;
    });
}

#[test]
fn random_version_1_and_on() {
    run_through("random_version_1_and_on", &[1, 11, 26, version::FEATURES], Layout::Mirror, 60);
}

#[test]
fn random_version_2_and_on() {
    run_through("random_version_2_and_on", &[2, 5, 14, 28], Layout::Raidz { nparity: 1 }, 60);
}

#[test]
fn random_version_10_and_on() {
    run_through("random_version_10_and_on", &[10, 25, version::FEATURES], Layout::Mirror, 60);
}

#[test]
fn random_version_18_and_on() {
    run_through("random_version_18_and_on", &[18, 26, 27], Layout::Raidz { nparity: 1 }, 60);
}

/// Every version, at once to features, and by way of another one.
#[test]
#[ignore = "takes many minutes"]
fn random_all_versions() {
    for version in 1..=25 {
        let layout = if version % 2 == 0 { Layout::Mirror } else { Layout::Raidz { nparity: 1 } };
        let between = version + 1 + version % 4;
        run_through("random_all_versions", &[version, version::FEATURES], layout, 120);
        run_through("random_all_versions", &[version, between.min(28), version::FEATURES], layout, 80);
    }
}

/// Pools of old versions and without features get all features, and are written with them then.
fn upgrade(name: &str, disks: &Disks, pool: Arc<LivePool>) {
    block_on(async {
        committing(&pool, async {
            pool.change(|s| async move {
                set_version(&s, version::FEATURES).await?;
                for feature in default_features() {
                    s.enable_feature(feature).await?;
                }
                Ok(())
            })
            .await
            .unwrap();
            assert_eq!(pool.version(), version::FEATURES);
            pool.close(PoolState::Exported).await.unwrap();
        })
        .await;
    });
    drop(pool);
    disks.judge(name);
    block_on(async {
        let pool = disks.import(name, 3).await;
        let lacks = |feature: &&Feature| pool.feature_count(**feature).is_none();
        assert_eq!(Feature::ALL.iter().filter(|feature| feature.is_usual()).find(lacks), None);
        committing(&pool, golden_written::change(&pool)).await;
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    });
    disks.judge(name);
    let Some(blocks) = testkit::oracle::zdb_of(disks.path(), "-bbbbb", name, &[]) else { return };
    assert!(blocks.contains(" lz4 ") && blocks.contains("EMBEDDED"), "{name} is written as its features say");
}

#[test]
fn golden_pools_of_old_versions_are_upgraded() {
    for name in ["legacy28", "features0"] {
        let Some(disks) = Disks::of_golden(name) else { return };
        let pool = block_on(disks.import(name, 2));
        upgrade(name, &disks, pool);
    }
}

#[test]
fn a_pool_is_upgraded_version_by_version() {
    let disks = Disks::new(128 * MIB);
    let pool = block_on(async {
        let pool = LivePool::create(old_pool(&disks, 26), surroundings(1)).await.unwrap();
        let name = "tank/older".to_owned();
        let new = NewDataset { name, contents: NewContents::Filesystem, properties: Vec::new() };
        let create = pool.change(|s| async move { edit::create(&s, &new).await });
        let id = committing(&pool, create).await.unwrap();
        committing(&pool, async {
            let zpl = pool.filesystem(id).await.unwrap();
            let file = zpl.create(zpl.zpl().root(), b"older", &files::FILE).await.unwrap();
            zpl.write(file, 0, &[7; 300_000], &WriteOptions::default()).await.unwrap();
        })
        .await;
        for version in [27, 28] {
            let set = pool.change(move |s| async move { set_version(&s, version).await });
            committing(&pool, set).await.unwrap();
        }
        let back = pool.change(|s| async move { set_version(&s, 27).await });
        committing(&pool, back).await.unwrap_err();
        pool
    });
    upgrade("tank", &disks, pool);
}

#[test]
fn what_an_old_pool_cannot_have_is_refused_before_anything_is_written() {
    type Make = fn(&Disks) -> NewPool;
    let refused: [Make; 8] = [
        |disks| old_pool(disks, version::LAST_NUMBERED + 1),
        |disks| old_with(disks, 2, Layout::Raidz { nparity: 2 }),
        |disks| old_with(disks, 16, Layout::Raidz { nparity: 3 }),
        |disks| {
            let mut new = old_pool(disks, version::SLOGS - 1);
            new.tops.push(disks.top(Layout::Single, Class::Log, "log", 1));
            new
        },
        |disks| {
            let spare = disks.top(Layout::Single, Class::Normal, "spare", 1).leaves;
            NewPool { spares: spare, ..old_pool(disks, version::SPARES - 1) }
        },
        |disks| {
            let cache = disks.top(Layout::Single, Class::Normal, "cache", 1).leaves;
            NewPool { l2cache: cache, ..old_pool(disks, version::L2CACHE - 1) }
        },
        |disks| NewPool { features: default_features(), ..old_pool(disks, 28) },
        |disks| {
            let mut new = old_pool(disks, version::FEATURES);
            new.tops.push(disks.top(Layout::Single, Class::Special, "special", 1));
            new
        },
    ];
    for make in refused {
        let disks = Disks::new(128 * MIB);
        let created = block_on(LivePool::create(make(&disks), surroundings(1)));
        assert!(matches!(created, Err(Error::Unsupported(_) | Error::Invalid(_))), "{created:?}");
        assert!(block_on(discovery::scan(&[disks.path()])).unwrap().is_empty(), "no label was written");
    }
}
