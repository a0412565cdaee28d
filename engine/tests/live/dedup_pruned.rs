//! Blocks whose entries were pruned from a dedup table are not cloned but copied, so that no block reference
//! table counts them: OpenZFS 2.4.0 to 2.4.2 free such a block while a clone refers to it. `zdb` of 2.3 would
//! stop at such a block.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use device::block_on;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::{LivePool, Prune, Syncing};
use engine::zpl::LiveZpl;
use engine::zpl::live::FileBlocks;
use engine::zvol::LiveZvol;
use futures_util::future::{join, join4};
use futures_util::task::AtomicWaker;
use ondisk::ObjectId;
use ondisk::features::Feature;
use ondisk::zil::Record;

use crate::dedup::{
    BLOCK, check_pruned, content, create, deduplicating, export, mirror, of_number, open, pointers,
};
use crate::dedup_traps::{commit_groups, end, fast_pool, fast_pool_with, prune, write};
use crate::support::{Disks, committing, crashed, objset_of, surroundings};

const ALL: Prune = Prune::OlderThanDays(0);

fn bytes_of(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    numbers.flat_map(of_number).collect()
}

/// No block reference table: no clone is counted but by a dedup table.
fn has_no_cloned_blocks(pool: &LivePool) -> bool {
    pool.feature_count(Feature::BlockCloning) == Some(0)
}

/// Which blocks of two files are the same stored ones.
async fn shared(zpl: &LiveZpl, file: ObjectId, other: ObjectId) -> Vec<u64> {
    let (these, those) = (pointers(zpl, file).await, pointers(zpl, other).await);
    let same = (0u64..).zip(these.iter().zip(&those)).filter(|(_, (one, other))| one.dva(0) == other.dva(0));
    same.map(|(id, _)| id).collect()
}

/// A pool with a file of twenty blocks, of which those that `other` has too keep their entries.
async fn half_pruned(disks: &Disks) -> (Arc<LivePool>, Arc<LiveZpl>, ObjectId) {
    let (pool, zpl, [file, other]) = fast_pool_with(disks, ["file", "other"]).await;
    write(&zpl, file, 0, 0..20).await;
    write(&zpl, other, 0, [2, 3, 4, 7, 9, 11, 12, 13, 18, 19].into_iter()).await;
    commit_groups(&pool).await;
    assert_eq!(prune(&pool, ALL).await, 10);
    assert_eq!(check_pruned(&pool).await, 10);
    (pool, zpl, file)
}

#[test]
fn a_block_whose_entry_was_pruned_is_copied_and_not_cloned() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, zpl, file) = half_pruned(&disks).await;
        let clone = create(&zpl, "clone").await;
        assert_eq!(zpl.copy_range(file, 0, clone, 0, 20 * BLOCK).await.unwrap(), 20 * BLOCK);
        // The copies have entries, the blocks that they are copies of have none.
        assert_eq!(check_pruned(&pool).await, 10);
        assert!(has_no_cloned_blocks(&pool));
        assert_eq!(shared(&zpl, file, clone).await, [2, 3, 4, 7, 9, 11, 12, 13, 18, 19]);
        assert_eq!(pool.saved_by_clones(), 20 * BLOCK);
        assert!(content(&zpl, clone).await == bytes_of(0..20));
        // And once more, from the copy: all are shared.
        let again = create(&zpl, "again").await;
        assert_eq!(zpl.copy_range(clone, 0, again, 0, 20 * BLOCK).await.unwrap(), 20 * BLOCK);
        assert_eq!(check_pruned(&pool).await, 10);
        assert_eq!(shared(&zpl, clone, again).await, (0..20).collect::<Vec<u64>>());
        assert!(has_no_cloned_blocks(&pool));
        drop(zpl);
        export(pool, &disks).await;

        let pool = disks.import("tank", 2).await;
        let zpl = open(&pool, "tank").await;
        let into_pruned = create(&zpl, "more").await;
        assert_eq!(zpl.copy_range(file, BLOCK, into_pruned, 0, 4 * BLOCK).await.unwrap(), 4 * BLOCK);
        zpl.punch(file, 0, 10 * BLOCK).await.unwrap();
        check_pruned(&pool).await;
        assert!(has_no_cloned_blocks(&pool));
        assert!(content(&zpl, into_pruned).await == bytes_of(1..5));
        assert!(content(&zpl, again).await == bytes_of(0..20));
        let names = ["file", "clone", "other", "again", "more"].map(str::to_owned);
        end(pool, zpl, &names, &disks).await;
    });
}

#[test]
fn a_block_that_is_cloned_and_then_pruned_keeps_its_entry() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, zpl, [file, clone]) = fast_pool_with(&disks, ["file", "clone"]).await;
        write(&zpl, file, 0, 0..20).await;
        commit_groups(&pool).await;
        assert_eq!(zpl.copy_range(file, 0, clone, 0, 10 * BLOCK).await.unwrap(), 10 * BLOCK);
        // The group that prunes is the one that has the clone, and then a later one.
        assert_eq!(prune(&pool, ALL).await, 10, "the others have one reference");
        assert_eq!(check_pruned(&pool).await, 10);
        commit_groups(&pool).await;
        assert_eq!(prune(&pool, ALL).await, 0);
        assert!(has_no_cloned_blocks(&pool));
        assert_eq!(pool.saved_by_clones(), 10 * BLOCK);
        // One of both references goes: what is left may be pruned again.
        zpl.punch(file, 0, 10 * BLOCK).await.unwrap();
        commit_groups(&pool).await;
        assert_eq!(prune(&pool, ALL).await, 10);
        assert!(content(&zpl, clone).await == bytes_of(0..10));
        end(pool, zpl, &["file".to_owned(), "clone".to_owned()], &disks).await;
    });
}

/// Something that one future waits for.
#[derive(Default)]
struct Signal {
    has_come: AtomicBool,
    waker: AtomicWaker,
}

impl Signal {
    fn send(&self) {
        self.has_come.store(true, Ordering::Release);
        self.waker.wake();
    }

    async fn wait(&self) {
        poll_fn(|context| {
            self.waker.register(context.waker());
            if self.has_come.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

async fn copied(zpl: Arc<LiveZpl>, from: ObjectId, to: ObjectId) {
    assert_eq!(zpl.copy_range(from, 0, to, 0, 10 * BLOCK).await.unwrap(), 10 * BLOCK);
}

/// The entries are pruned by a group that is not committed yet when the clone is made.
#[test]
fn a_clone_finds_no_entries_that_the_group_that_is_being_written_has_pruned() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, zpl, [file, clone]) = fast_pool_with(&disks, ["file", "clone"]).await;
        write(&zpl, file, 0, 0..20).await;
        commit_groups(&pool).await;
        let signals = [(); 3].map(|()| Arc::new(Signal::default()));
        let [is_asked_for, is_pruned, is_cloning] = signals;
        let asked_for = Arc::clone(&is_asked_for);
        // The prune and the task after it come into one group, as another is being written until then.
        let holds = move |_: Syncing| async move {
            asked_for.wait().await;
            Ok(())
        };
        let (pruned, cloning) = (Arc::clone(&is_pruned), Arc::clone(&is_cloning));
        let waits = move |_: Syncing| async move {
            pruned.send();
            cloning.wait().await;
            Ok(())
        };
        let clones = async {
            is_pruned.wait().await;
            let mut copying = std::pin::pin!(copied(Arc::clone(&zpl), file, clone));
            poll_fn(|context| {
                let done = copying.as_mut().poll(context);
                is_cloning.send();
                done
            })
            .await;
        };
        let release = async { is_asked_for.send() };
        let both = join(pool.prune_dedup(ALL), pool.change(waits));
        let (held, (pruned, waited), (), ()) = join4(pool.change(holds), both, release, clones).await;
        held.unwrap();
        assert_eq!(pruned.unwrap(), 20);
        waited.unwrap();
        assert_eq!(check_pruned(&pool).await, 20);
        assert!(has_no_cloned_blocks(&pool));
        assert_eq!(shared(&zpl, file, clone).await, [0u64; 0]);
        end(pool, zpl, &["file".to_owned(), "clone".to_owned()], &disks).await;
    });
}

/// As OpenZFS logs it, which makes such clones.
#[test]
fn a_logged_clone_of_a_block_without_entry_is_replayed_as_a_copy() {
    let disks = Disks::new(128 << 20);
    let (after_crash, to) = block_on(async {
        let (pool, zpl, file) = half_pruned(&disks).await;
        let to = create(&zpl, "to").await;
        committing(&pool, zpl.sync_all()).await.unwrap();
        pool.sync().await.unwrap();
        let blocks = pointers(&zpl, file).await[..5].to_vec();
        assert_eq!(blocks.iter().filter(|bp| bp.is_dedup()).count(), 5);
        let record =
            Record::CloneRange { object: to, offset: 0, length: 5 * BLOCK, block_bytes: BLOCK, blocks };
        let dataset = pool.dataset(zpl.objset().id()).await.unwrap();
        let tx = pool.txgs().begin(0).await.unwrap();
        dataset.zil.note_object(&tx, to.get(), &record);
        drop(tx);
        // The log refers to its blocks when the file does not any more.
        zpl.unlink(zpl.zpl().root(), b"file").await.unwrap();
        dataset.zil.commit().await.unwrap();
        (crashed(&disks), to)
    });
    block_on(async {
        let pool = after_crash.import("tank", 2).await;
        let zpl = open(&pool, "tank").await;
        assert!(content(&zpl, to).await == bytes_of(0..5));
        commit_groups(&pool).await;
        assert_eq!(check_pruned(&pool).await, 0);
        assert!(has_no_cloned_blocks(&pool), "the log has ended");
        end(pool, zpl, &["to".to_owned(), "other".to_owned()], &after_crash).await;
    });
}

#[test]
fn blocks_without_entry_are_left_alone_when_equal_ones_are_shared() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, zpl, file) = half_pruned(&disks).await;
        let twin = create(&zpl, "twin").await;
        write(&zpl, twin, 0, 0..20).await;
        pool.sync().await.unwrap();
        let blocks = |file| FileBlocks { file, first: 0 };
        // What has no entry becomes a reference, but nothing becomes a reference to it.
        let found = zpl.share_blocks(blocks(twin), &zpl, blocks(file), 20).await.unwrap();
        assert_eq!((found.blocks, found.already, found.different), (0, 10, 10));
        let found = zpl.share_blocks(blocks(file), &zpl, blocks(twin), 20).await.unwrap();
        assert_eq!((found.blocks, found.already, found.different), (10, 10, 0));
        assert_eq!(check_pruned(&pool).await, 0);
        assert!(has_no_cloned_blocks(&pool));
        assert!(content(&zpl, file).await == bytes_of(0..20));
        end(pool, zpl, &["file", "other", "twin"].map(str::to_owned), &disks).await;
    });
}

/// Where the copies are not deduplicated, and on volumes.
#[test]
fn volumes_copy_blocks_without_entry_and_clone_the_others() {
    const BLOCKS: u64 = 300;
    let disks = Disks::new(128 << 20);
    block_on(async {
        let pool =
            LivePool::create(deduplicating(mirror(&disks), "on", true), surroundings(1)).await.unwrap();
        let mut volumes: Vec<Arc<LiveZvol>> = Vec::new();
        for (name, dedup) in [("a", "on"), ("b", "off")] {
            let properties = [("volblocksize", "4K"), ("dedup", dedup)];
            let new = NewDataset {
                name: format!("tank/{name}"),
                contents: NewContents::Volume { size: BLOCKS * BLOCK, sparse: true },
                properties: properties.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            };
            pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
            volumes.push(pool.volume(objset_of(&pool, name).await.unwrap()).await.unwrap());
        }
        // Every third block twice.
        let bytes = bytes_of((0..BLOCKS).map(|id| if id % 3 == 0 { id / 6 } else { 1000 + id }));
        volumes[0].write_at(0, &bytes, false).await.unwrap();
        commit_groups(&pool).await;
        assert_eq!(prune(&pool, ALL).await, 200);
        let saved = pool.saved_by_clones();
        let copied = committing(&pool, volumes[1].clone_range_from(&volumes[0], 0, 0, BLOCKS * BLOCK)).await;
        assert_eq!(copied.unwrap(), BLOCKS * BLOCK);
        assert_eq!(check_pruned(&pool).await, 200);
        assert!(has_no_cloned_blocks(&pool));
        assert_eq!(pool.saved_by_clones(), saved + 100 * BLOCK);
        volumes[0].write_zeroes(0, BLOCKS * BLOCK, true, false).await.unwrap();
        commit_groups(&pool).await;
        assert_eq!(check_pruned(&pool).await, 0);
        let mut found = vec![0; bytes.len()];
        volumes[1].read_at(0, &mut found).await.unwrap();
        assert!(found == bytes);
        drop(volumes);
        export(pool, &disks).await;
    });
}

/// The thread that commits prunes, while another clones and writes over.
#[test]
fn clones_and_prunes_at_the_same_time_leave_no_clone_without_an_entry() {
    let disks = Disks::new(128 << 20);
    let pool = block_on(fast_pool(&disks));
    let zpl = block_on(open(&pool, "tank"));
    let (file, clone) = block_on(async { (create(&zpl, "file").await, create(&zpl, "clone").await) });
    pool.start().unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                block_on(pool.prune_dedup(ALL)).unwrap();
            }
        });
        block_on(async {
            for round in 0..60 {
                let first = (round % 4) * 100;
                write(&zpl, file, 0, first..first + 40).await;
                let tx = pool.txgs().open_txg();
                if round % 3 == 0 {
                    pool.txgs().wait_synced(tx).await.unwrap();
                }
                let length = 40 * BLOCK;
                assert_eq!(zpl.copy_range(file, 0, clone, 0, length).await.unwrap(), length);
                zpl.punch(file, 0, (round % 39 + 1) * BLOCK).await.unwrap();
                assert!(content(&zpl, clone).await == bytes_of(first..first + 40), "{round}");
            }
            pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
        });
        is_done.store(true, Ordering::Release);
    });
    assert!(has_no_cloned_blocks(&pool));
    block_on(async {
        check_pruned(&pool).await;
        drop(zpl);
        export(pool, &disks).await;
    });
}
