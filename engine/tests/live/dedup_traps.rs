//! Deduplication where others went wrong: pruning, quotas, clones, devices of tables that fail; and look-ups
//! that are not needed.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

use device::simulated::{Fault, SimulatedDevice};
use device::{Device, MemoryDevice, block_on};
use engine::cache::ArcCache;
use engine::dsl::Dsl;
use engine::jobs::JobState;
use engine::pool::discovery::{Candidate, group};
use engine::pool::import::ImportOptions;
use engine::pool::live::properties::set as set_of_pool;
use engine::pool::live::{
    JobKey, Layout, LivePool, NewLeaf, NewTop, Prune, ScrubRange, Surroundings, Syncing,
};
use engine::pool::verify::{Progress, VerifyOptions, verify};
use engine::vdev::Class;
use engine::vdev::stats::Transfer;
use engine::zpl::LiveZpl;
use engine::zpl::live::WriteOptions;
use ondisk::ObjectId;
use ondisk::vdev_config::PoolState;

use crate::dedup::{
    BLOCK, FILES, GROUPS, Model, born, check, check_pruned, content, create, deduplicating, destroy_snapshot,
    export, mirror, of_number, open, snapshot, tables, unlock,
};
use crate::random::encrypted;
use crate::support::{Disks, committing, surroundings};

pub async fn fast_pool(disks: &Disks) -> Arc<LivePool> {
    LivePool::create(deduplicating(mirror(disks), "on", true), surroundings(1)).await.unwrap()
}

/// A filesystem in such a pool, with empty files.
pub async fn fast_pool_with<const FILES: usize>(
    disks: &Disks,
    names: [&str; FILES],
) -> (Arc<LivePool>, Arc<LiveZpl>, [ObjectId; FILES]) {
    let pool = fast_pool(disks).await;
    let zpl = open(&pool, "tank").await;
    let mut files = [ObjectId(0); FILES];
    for (file, name) in files.iter_mut().zip(names) {
        *file = create(&zpl, name).await;
    }
    (pool, zpl, files)
}

pub async fn write(zpl: &LiveZpl, file: ObjectId, block: u64, numbers: impl Iterator<Item = u64>) {
    let bytes: Vec<u8> = numbers.flat_map(of_number).collect();
    zpl.write(file, block * BLOCK, &bytes, &WriteOptions::default()).await.unwrap();
}

pub async fn commit_groups(pool: &Arc<LivePool>) {
    for _ in 0..GROUPS {
        pool.sync().await.unwrap();
    }
}

pub async fn prune(pool: &Arc<LivePool>, prune: Prune) -> u64 {
    committing(pool, pool.prune_dedup(prune)).await.unwrap()
}

/// Removes files, and looks whether everything is gone.
pub async fn end(pool: Arc<LivePool>, zpl: Arc<LiveZpl>, names: &[String], disks: &Disks) {
    for name in names {
        committing(&pool, zpl.unlink(zpl.zpl().root(), name.as_bytes())).await.unwrap();
    }
    commit_groups(&pool).await;
    assert_eq!(check_pruned(&pool).await, 0, "nothing is left");
    assert_eq!(tables(&pool).await, BTreeSet::new());
    assert_eq!(pool.saved_by_clones(), 0);
    drop(zpl);
    export(pool, disks).await;
}

/// openzfs/zfs#17982, #18520: what a prune leaves is freed once, and all of it.
fn history_with_prunes(clones: bool, suite: Option<&str>) {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let dedups = ["on", "verify", "off", "on"];
        let mut new = deduplicating(mirror(&disks), "on", true);
        if let Some(suite) = suite {
            new = encrypted(new, suite, &[]);
        }
        let pool = born(new, 1).await;
        let mut model = Model { prunes: true, clones, ..Model::begin(&pool).await };
        model.shuffle(&pool, 21, &dedups).await;
        snapshot(&pool, "tank@s").await;
        model.shuffle(&pool, 22, &dedups).await;
        assert!(check_pruned(&pool).await > 0, "something was pruned");
        let Model { zpl, files, contents, .. } = model;
        drop(zpl);
        export(pool, &disks).await;
        let pool = disks.import("tank", 3).await;
        unlock(&pool).await;
        let mut model = Model { zpl: open(&pool, "tank").await, files, contents, prunes: true, clones };
        model.shuffle(&pool, 23, &dedups).await;
        destroy_snapshot(&pool, "tank@s").await;
        let names: Vec<String> = (0..FILES).map(|name| format!("f{name}")).collect();
        end(pool, model.zpl, &names, &disks).await;
    });
}

#[test]
fn a_history_with_prunes_leaks_no_space_and_frees_none_twice() {
    history_with_prunes(false, None);
}

#[test]
fn a_history_with_prunes_and_clones_leaks_no_space_and_frees_none_twice() {
    history_with_prunes(true, None);
}

#[test]
fn an_encrypted_history_with_prunes_and_clones_leaks_no_space_and_frees_none_twice() {
    history_with_prunes(true, Some("aes-256-gcm"));
}

#[test]
fn a_prune_takes_entries_of_one_reference_by_age_or_the_oldest_part() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, zpl, [file]) = fast_pool_with(&disks, ["file"]).await;
        // Hundred of one reference, ten of two.
        write(&zpl, file, 0, (0..110).chain(100..110)).await;
        assert_eq!(prune(&pool, Prune::Percent(100)).await, 0, "all are in the log");
        commit_groups(&pool).await;
        assert_eq!(prune(&pool, Prune::OlderThanDays(1)).await, 0, "all are younger");
        assert_eq!(prune(&pool, Prune::Percent(25)).await, 25);
        assert_eq!(check_pruned(&pool).await, 25);
        assert_eq!(prune(&pool, Prune::OlderThanDays(0)).await, 75);
        assert_eq!(check_pruned(&pool).await, 100);
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        let counted = dsl.pool_space().await.unwrap();
        assert_eq!(counted.dedup.total().blocks, 10, "statistics (openzfs/zfs#17607)");
        assert_eq!(prune(&pool, Prune::Percent(100)).await, 0, "the others have two");
        let bytes: Vec<u8> = (0..110).chain(100..110).flat_map(of_number).collect();
        assert!(content(&zpl, file).await == bytes);
        end(pool, zpl, &["file".to_owned()], &disks).await;
    });
}

#[test]
fn an_entry_stays_while_a_write_of_the_same_group_refers_to_it() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, zpl, [file, other]) = fast_pool_with(&disks, ["file", "other"]).await;
        write(&zpl, file, 0, 0..50).await;
        commit_groups(&pool).await;
        // The group that prunes has these writes, and frees of other entries.
        write(&zpl, other, 0, 0..10).await;
        zpl.punch(file, 40 * BLOCK, 10 * BLOCK).await.unwrap();
        let pruned = prune(&pool, Prune::Percent(100)).await;
        assert_eq!(pruned, 30, "ten have two references now, and ten none");
        assert_eq!(check_pruned(&pool).await, 30);
        // What was pruned is written again: with an entry of its own, beside the block that has none.
        write(&zpl, other, 10, 10..40).await;
        assert_eq!(check_pruned(&pool).await, 30);
        commit_groups(&pool).await;
        end(pool, zpl, &["other".to_owned(), "file".to_owned()], &disks).await;
    });
}

#[test]
fn the_last_reference_goes_beside_a_clone_of_the_same_block() {
    for (is_pruned, removed_first) in [(false, "clone"), (false, "file"), (true, "clone"), (true, "file")] {
        let disks = Disks::new(128 << 20);
        block_on(async {
            let (pool, zpl, [file, clone]) = fast_pool_with(&disks, ["file", "clone"]).await;
            write(&zpl, file, 0, 0..20).await;
            commit_groups(&pool).await;
            if is_pruned {
                assert_eq!(prune(&pool, Prune::Percent(50)).await, 10);
            }
            assert_eq!(zpl.copy_range(file, 0, clone, 0, 20 * BLOCK).await.unwrap(), 20 * BLOCK);
            // The reference goes in the group in which the clone comes, or later.
            zpl.punch(file, 0, 5 * BLOCK).await.unwrap();
            assert_eq!(check_pruned(&pool).await > 0, is_pruned);
            commit_groups(&pool).await;
            zpl.unlink(zpl.zpl().root(), removed_first.as_bytes()).await.unwrap();
            check_pruned(&pool).await;
            let left = if removed_first == "file" { "clone" } else { "file" };
            let expected: Vec<u8> = (0..20u64)
                .flat_map(|number| match left == "file" && number < 5 {
                    true => vec![0; BLOCK as usize],
                    false => of_number(number),
                })
                .collect();
            assert!(content(&zpl, if left == "file" { file } else { clone }).await == expected);
            end(pool, zpl, &[left.to_owned()], &disks).await;
        });
    }
}

/// openzfs/zfs#18412, #18724.
#[test]
fn a_clone_lies_over_a_range_that_was_cut_in_the_same_group() {
    for is_cut_first in [true, false] {
        let disks = Disks::new(128 << 20);
        block_on(async {
            let (pool, zpl, [file, target]) = fast_pool_with(&disks, ["file", "target"]).await;
            write(&zpl, file, 0, 0..20).await;
            write(&zpl, target, 0, 10..30).await;
            pool.sync().await.unwrap();
            if is_cut_first {
                zpl.truncate(target, 5 * BLOCK).await.unwrap();
            }
            assert_eq!(zpl.copy_range(file, 0, target, 0, 20 * BLOCK).await.unwrap(), 20 * BLOCK);
            if !is_cut_first {
                zpl.truncate(target, 5 * BLOCK).await.unwrap();
                zpl.truncate(target, 20 * BLOCK).await.unwrap();
            }
            check(&pool).await;
            let expected: Vec<u8> = (0..20u64)
                .flat_map(|number| match is_cut_first || number < 5 {
                    true => of_number(number),
                    false => vec![0; BLOCK as usize],
                })
                .collect();
            assert!(content(&zpl, target).await == expected);
            end(pool, zpl, &["file".to_owned(), "target".to_owned()], &disks).await;
        });
    }
}

async fn set_quota(pool: &Arc<LivePool>, quota: &'static str) {
    let set = move |s: Syncing| async move { set_of_pool(&s, "dedup_table_quota", quota).await };
    committing(pool, pool.change(set)).await.unwrap();
}

#[test]
fn a_quota_is_reached_in_the_middle_of_a_group() {
    for is_fast in [true, false] {
        let disks = Disks::new(128 << 20);
        block_on(async {
            let new = deduplicating(mirror(&disks), "on", is_fast);
            let pool = LivePool::create(new, surroundings(1)).await.unwrap();
            let zpl = open(&pool, "tank").await;
            let (file, other) = (create(&zpl, "file").await, create(&zpl, "other").await);
            // More blocks than there is room for entries, each twice, in one group.
            set_quota(&pool, "100K").await;
            write(&zpl, file, 0, (0..2000).map(|at| at / 2)).await;
            pool.sync().await.unwrap();
            let entries = {
                let dsl = Dsl::open(&pool.view()).await.unwrap();
                dsl.pool_space().await.unwrap().dedup.entries
            };
            assert_eq!(entries, (100 << 10) / 196, "those for which there is room");
            let saved = pool.saved_by_clones();
            assert_eq!(saved, entries * BLOCK);
            check(&pool).await;
            // What is new gets no entry now, and what is known is referred to.
            set_quota(&pool, "1K").await;
            write(&zpl, other, 0, (0..10).chain(3000..3010).chain(3000..3010)).await;
            check(&pool).await;
            assert_eq!(pool.saved_by_clones(), saved + 10 * BLOCK);
            set_quota(&pool, "none").await;
            write(&zpl, other, 40, (3000..3010).chain(3000..3010)).await;
            check(&pool).await;
            assert_eq!(pool.saved_by_clones(), saved + 20 * BLOCK);
            end(pool, zpl, &["file".to_owned(), "other".to_owned()], &disks).await;
        });
    }
}

/// New blocks are looked for in no table once the filter is complete; before, and where it says maybe, they
/// are, and what is there is found.
#[test]
fn blocks_that_are_surely_new_need_no_read_of_a_table() {
    let disks = Disks::new(256 << 20);
    block_on(async {
        let (pool, zpl, [file]) = fast_pool_with(&disks, ["file"]).await;
        write(&zpl, file, 0, 0..1000).await;
        commit_groups(&pool).await;
        drop(zpl);
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
        drop(pool);

        let pool = disks.import("tank", 2).await;
        let zpl = open(&pool, "tank").await;
        let step = async |numbers: std::ops::Range<u64>, at: u64| {
            let before = pool.dedup_counters();
            write(&zpl, file, at, numbers).await;
            pool.sync().await.unwrap();
            let now = pool.dedup_counters();
            let new = now.surely_new - before.surely_new;
            (new, now.found - before.found, now.not_found - before.not_found)
        };
        assert!(!pool.dedup_counters().has_filter);
        assert_eq!(step(2000..2100, 2000).await, (0, 0, 100), "there is no filter yet");
        // Begun with the group before, and not complete: what comes meanwhile must be in it.
        assert_eq!(step(2100..2200, 2100).await, (0, 0, 100));
        pool.fill_dedup_filter().await.unwrap();
        let counters = pool.dedup_counters();
        assert!(counters.has_filter && counters.filter_bytes > 0, "{counters:?}");
        let (new, found, not_found) = step(2200..3200, 2200).await;
        assert!(new >= 990 && found == 0 && new + not_found == 1000, "{new} {found} {not_found}");
        // All that is there is found, in the ZAPs or in the log.
        commit_groups(&pool).await;
        let (new, found, not_found) = step(0..1000, 4000).await;
        assert_eq!((new, found, not_found), (0, 1000, 0));
        let (new, found, not_found) = step(2000..3200, 5000).await;
        assert_eq!((new, found, not_found), (0, 1200, 0));
        check(&pool).await;
        // Entries that are gone cost a look-up, and come again.
        commit_groups(&pool).await;
        zpl.truncate(file, 2000 * BLOCK).await.unwrap();
        commit_groups(&pool).await;
        let (new, found, _) = step(2500..2600, 2000).await;
        assert_eq!((new, found), (0, 0));
        check(&pool).await;
        drop(zpl);
        export(pool, &disks).await;
    });
}

/// What the ARC has of tables: their logs too, little after an import, and all of them when they were read
/// ahead.
#[test]
fn the_bytes_that_tables_take_in_the_arc_are_counted() {
    let disks = Disks::new(256 << 20);
    let cached = async |pool: &LivePool| {
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        dsl.dedup_cached_bytes().await.unwrap()
    };
    block_on(async {
        let (pool, zpl, [file]) = fast_pool_with(&disks, ["file"]).await;
        assert_eq!(cached(&pool).await, 0, "there are no tables");
        write(&zpl, file, 0, 0..5000).await;
        pool.sync().await.unwrap();
        assert_eq!(pool.dedup_counters().logged_entries, 5000);
        let of_log = cached(&pool).await;
        assert!(of_log > 0, "the log was just written");
        let groups = 5000 / 250 + GROUPS;
        for _ in 0..groups {
            pool.sync().await.unwrap();
        }
        assert_eq!(pool.dedup_counters().logged_entries, 0);
        drop(zpl);
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
        drop(pool);

        let pool = disks.import("tank", 2).await;
        let after_import = cached(&pool).await;
        pool.sync().await.unwrap();
        pool.fill_dedup_filter().await.unwrap();
        let after_walk = cached(&pool).await;
        let read = pool.prefetch_dedup().await.unwrap();
        let read_ahead = cached(&pool).await;
        println!("{of_log}, {after_import}, {after_walk}, {read} read, {read_ahead}");
        assert!(after_import <= 64 << 10 && after_walk <= 64 << 10, "{after_import} {after_walk}");
        assert!(read_ahead >= 5000 * 40 && read_ahead >= after_walk * 4, "{read_ahead}");
        assert!(read_ahead <= read * 2, "{read_ahead} of {read}");
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    });
}

/// A block with many pointers is read once, and mended once.
#[test]
fn a_scrub_reads_each_deduplicated_block_once_and_mends_it() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, zpl, [file]) = fast_pool_with(&disks, ["file"]).await;
        // Twenty blocks with a hundred pointers each.
        write(&zpl, file, 0, (0..2000).map(|at| at % 20)).await;
        commit_groups(&pool).await;
        drop(zpl);
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
        drop(pool);
        // All that the files of one half of the mirror have, but its labels.
        let path = disks.file("d0");
        let damaged = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut bytes = vec![0; 8 << 20];
        damaged.read_exact_at(&mut bytes, 4 << 20).unwrap();
        let wanted: Vec<Vec<u8>> = (0..20).map(of_number).collect();
        let mut hit = 0;
        for (at, block) in (0u64..).zip(bytes.chunks_exact(BLOCK as usize)) {
            if wanted.iter().any(|wanted| wanted == block) {
                damaged.write_all_at(&[0x55; BLOCK as usize], (4 << 20) + at * BLOCK).unwrap();
                hit += 1;
            }
        }
        assert_eq!(hit, 20, "each is there once");
        drop(damaged);

        let pool = disks.import("tank", 5).await;
        pool.start().unwrap();
        let read = |pool: &LivePool| -> u64 {
            let leaves = pool.pool().vdevs().leaves();
            leaves.map(|leaf| leaf.stats.snapshot(Transfer::Scrub).bytes).sum()
        };
        pool.scrub(ScrubRange::default()).await.unwrap();
        pool.wait_for_jobs(|key, state| *key == JobKey::Scan && state == JobState::Active).await;
        let mended: Vec<u64> = pool.pool().vdevs().leaves().map(|leaf| leaf.errors.checksum()).collect();
        assert_eq!(mended, [20, 0]);
        let before = read(&pool);
        pool.scrub(ScrubRange::default()).await.unwrap();
        pool.wait_for_jobs(|key, state| *key == JobKey::Scan && state == JobState::Active).await;
        let scrubbed = read(&pool) - before;
        assert!(scrubbed < 2000 * BLOCK, "{scrubbed} bytes of both halves, all metadata included");
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        let pool = disks.import("tank", 6).await;
        check(&pool).await;
        export(pool, &disks).await;
    });
}

pub fn memory_disk(name: &str) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, 64 << 20))
}

pub async fn import(devices: &[Arc<dyn Device>]) -> Arc<LivePool> {
    let mut candidates = Vec::new();
    for device in devices {
        candidates.extend(Candidate::examine(Arc::clone(device)).await);
    }
    let found = group(candidates).pop().unwrap();
    let options = ImportOptions { force: true, ..ImportOptions::default() };
    // Blocks do not stay in the ARC, so that look-ups read them.
    let cache = Some(Arc::new(ArcCache::new(1)));
    LivePool::import(&found, &options, Surroundings { cache, ..surroundings(3) }).await.unwrap()
}

/// The only device of the tables gives no answers for a while: the pool waits, and loses nothing.
#[test]
fn a_device_of_tables_fails_and_comes_back() {
    for after_reads in [0, 1, 3, 10, 40] {
        let (data, of_tables) = (memory_disk("/dev/d0"), memory_disk("/dev/d1"));
        let top = |device: &Arc<dyn Device>, class| {
            let path = device.path().to_owned();
            let leaf = NewLeaf { device: Arc::clone(device), path, is_file: true, whole_disk: false };
            NewTop { layout: Layout::Single, class, leaves: vec![leaf] }
        };
        let file = block_on(async {
            let tops = vec![top(&data, Class::Normal), top(&of_tables, Class::Dedup)];
            let pool = LivePool::create(deduplicating(tops, "on", true), surroundings(1)).await.unwrap();
            let zpl = open(&pool, "tank").await;
            let file = create(&zpl, "file").await;
            write(&zpl, file, 0, 0..1500).await;
            pool.sync().await.unwrap();
            let of_log = pool.allocator().space(Class::Dedup).allocated_bytes;
            assert!(of_log >= 64 << 10, "the log lies there: {of_log}");
            commit_groups(&pool).await;
            let of_zaps = pool.allocator().space(Class::Dedup).allocated_bytes;
            assert!(of_zaps >= 64 << 10, "and so do the ZAPs: {of_zaps}");
            drop(zpl);
            committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
            file
        });
        let fails = Arc::new(SimulatedDevice::new(Arc::clone(&of_tables), 1));
        let pool = block_on(import(&[Arc::clone(&data), Arc::clone(&fails) as Arc<dyn Device>]));
        let zpl = block_on(open(&pool, "tank"));
        block_on(write(&zpl, file, 2000, (0..300).chain(5000..5100)));
        block_on(zpl.punch(file, 1000 * BLOCK, 500 * BLOCK)).unwrap();
        pool.start().unwrap();
        fails.inject(Fault::ReadOutage { after_reads });
        let txg = pool.txgs().open_txg();
        let mut waited = false;
        // A group after the one that is waited for may meet the outage too.
        let mut cleared = |pool: &Arc<LivePool>, ended: thread::JoinHandle<engine::Result<()>>| {
            while !ended.is_finished() {
                pool.txgs().kick();
                if pool.suspended().is_some() {
                    waited = true;
                    fails.heal();
                    // It fails when the pool was closed meanwhile.
                    let _ = block_on(pool.clear(None));
                }
                thread::yield_now();
            }
            ended.join().unwrap().unwrap();
        };
        let waiting = Arc::clone(&pool);
        cleared(&pool, thread::spawn(move || block_on(waiting.txgs().wait_synced(txg))));
        fails.heal();
        let bytes = block_on(content(&zpl, file));
        assert!(bytes[2000 * BLOCK as usize..2001 * BLOCK as usize] == of_number(0));
        drop(zpl);
        let closing = Arc::clone(&pool);
        cleared(&pool, thread::spawn(move || block_on(closing.close(PoolState::Exported))));
        assert!(waited || after_reads > 0, "the tables were not in memory");
        drop(pool);
        let pool = block_on(import(&[data, of_tables]));
        let report = verify(&pool.view(), VerifyOptions::default(), &Progress::default()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.dedup.unwrap().without_entry, 0);
    }
}

/// A prune of a pool that commits by itself is a job: it says how far it is while it waits for a group, and
/// another one comes after it.
#[test]
fn a_prune_says_how_far_it_is_and_prunes_take_turns() {
    let disks = Disks::new(128 << 20);
    let pool = block_on(async {
        let (pool, zpl, [file]) = fast_pool_with(&disks, ["file"]).await;
        write(&zpl, file, 0, (0..110).chain(100..110)).await;
        commit_groups(&pool).await;
        pool
    });
    pool.start().unwrap();
    assert_eq!(pool.dedup_prune(), None);
    // No group is committed while this one is held.
    let held = block_on(pool.txgs().begin(0)).unwrap();
    let pruned = thread::scope(|scope| {
        let pool = &pool;
        let spawn = |which| scope.spawn(move || block_on(pool.prune_dedup(which)).unwrap());
        let first = spawn(Prune::Percent(50));
        let seen = loop {
            match pool.dedup_prune() {
                Some(seen) if seen.total > 0 && seen.looked_at == seen.total / 2 => break seen,
                _ => thread::yield_now(),
            }
        };
        assert_eq!((seen.total, seen.pruned, seen.waiting), (200, 0, 0), "100 entries, looked at twice");
        let second = spawn(Prune::OlderThanDays(0));
        while pool.dedup_prune().is_none_or(|seen| seen.waiting == 0) {
            thread::yield_now();
        }
        drop(held);
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!(pruned, (50, 50));
    assert_eq!(pool.dedup_prune(), None);
    block_on(pool.close(PoolState::Exported)).unwrap();
}

/// Each dataset counts which of its blocks were new and which were there, and the pool what logs have.
#[test]
fn datasets_count_blocks_that_were_there_already() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, zpl, [file]) = fast_pool_with(&disks, ["file"]).await;
        let id = zpl.objset().id();
        let counted = || {
            let all = pool.view().dataset_stats().all();
            let (_, stats) = all.into_iter().find(|(of, _)| *of == id).unwrap();
            let bytes = stats.amplification();
            (bytes.dedup_new, bytes.dedup_found, bytes.dedup_saved)
        };
        write(&zpl, file, 0, (0..20).chain(0..5)).await;
        pool.sync().await.unwrap();
        let (new, found, saved) = counted();
        assert_eq!((new, found), (20, 5));
        assert!(saved > 0 && saved <= 5 * BLOCK, "{saved}");
        write(&zpl, file, 100, 10..30).await;
        pool.sync().await.unwrap();
        let (new, found, _) = counted();
        assert_eq!((new, found), (30, 15));
        assert_eq!(pool.dedup_counters().logged_entries, 30);
        commit_groups(&pool).await;
        let counters = pool.dedup_counters();
        assert_eq!((counters.logged_entries, counters.flushing_entries), (0, 0));
        drop(zpl);
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    });
}
