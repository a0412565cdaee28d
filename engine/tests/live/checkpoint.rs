//! The pool's checkpoint: nothing of it is written over while the pool goes on, it can be gone back to, and
//! given up.

use std::sync::Arc;

use device::block_on;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::error::Error;
use engine::pool::import::{ImportError, ImportOptions};
use engine::pool::live::{Layout, LivePool, NewTop};
use engine::vdev::Class;
use ondisk::ObjsetId;
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, committing, crashed, new_pool, objset_of, surroundings};

const SIZE: u64 = 4 << 20;

async fn create(tops: Vec<NewTop>) -> (Arc<LivePool>, ObjsetId) {
    let pool = LivePool::create(new_pool(tops, 12), surroundings(1)).await.unwrap();
    let id = create_volume(&pool, "tank/vol").await;
    (pool, id)
}

async fn create_volume(pool: &Arc<LivePool>, name: &str) -> ObjsetId {
    let new = NewDataset {
        name: name.into(),
        contents: NewContents::Volume { size: SIZE, sparse: true },
        properties: vec![("volblocksize".into(), "8192".into()), ("compression".into(), "off".into())],
    };
    pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap()
}

/// Fills every `step`th block of a volume, so that each block of it is another one.
async fn fill(pool: &Arc<LivePool>, id: ObjsetId, seed: u64, step: usize) {
    let volume = pool.volume(id).await.unwrap();
    for at in (0..SIZE).step_by(8192 * step) {
        let bytes: Vec<u8> = (0..8192u64).map(|byte| ((at / 8192) * 31 + byte * 7 + seed) as u8).collect();
        volume.write_at(at, &bytes, false).await.unwrap();
    }
    pool.change(|_| async { Ok(()) }).await.unwrap();
}

async fn content(pool: &Arc<LivePool>, id: ObjsetId) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    pool.volume(id).await.unwrap().read_at(0, &mut bytes).await.unwrap();
    bytes
}

async fn export(pool: Arc<LivePool>) {
    pool.close(PoolState::Exported).await.unwrap();
}

/// Writes over everything, destroys and creates datasets, for more groups than it takes to use freed space
/// again.
async fn go_on(pool: &Arc<LivePool>, id: ObjsetId, seed: u64) {
    for round in 0..8 {
        fill(pool, id, seed + round, 1 + (round as usize % 3)).await;
        let snapshot = vec![NewSnapshot { name: format!("tank/vol@s{seed}-{round}"), properties: vec![] }];
        pool.change(move |s| async move { edit::snapshot(&s, &snapshot).await }).await.unwrap();
        let name = format!("tank/more{}", round % 2);
        if let Ok(id) = objset_of(pool, &name["tank/".len()..]).await {
            committing(pool, pool.dataset(id).await.unwrap().zil.close()).await.unwrap();
            let gone = name.clone();
            pool.change(|s| async move { edit::destroy(&s, &gone).await.map(drop) }).await.unwrap();
        }
        let more = create_volume(pool, &name).await;
        fill(pool, more, round, 2).await;
    }
}

async fn rewind(disks: &Disks) -> Result<Arc<LivePool>, ImportError> {
    let options = ImportOptions { force: true, rewind_to_checkpoint: true, ..Default::default() };
    LivePool::import(&disks.found("tank").await, &options, surroundings(9)).await
}

fn goes_back(layout: Layout, count: usize) {
    let disks = Disks::new(256 << 20);
    let tops = vec![disks.top(layout, Class::Normal, "d", count)];
    let (before, id) = block_on(async {
        let (pool, id) = create(tops).await;
        fill(&pool, id, 100, 1).await;
        pool.take_checkpoint().await.unwrap();
        let before = content(&pool, id).await;
        assert!(matches!(pool.take_checkpoint().await, Err(Error::Busy(_))), "there is one");
        assert!(matches!(pool.reguid(None).await, Err(Error::Busy(_))), "it has the old guid");
        go_on(&pool, id, 200).await;
        assert!(pool.allocator().kept_bytes() >= SIZE, "all blocks of then are kept");
        assert_ne!(content(&pool, id).await, before);
        export(pool).await;
        (before, id)
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        assert!(pool.checkpoint().is_some());
        let kept = pool.allocator().kept_bytes();
        go_on(&pool, id, 300).await;
        assert!(pool.allocator().kept_bytes() >= kept);
        // Not exported.
    });
    disks.judge("tank");
    block_on(async {
        let pool = rewind(&disks).await.unwrap();
        assert!(pool.checkpoint().is_none() && !pool.is_discarding());
        assert_eq!(pool.allocator().kept_bytes(), 0);
        assert!(content(&pool, id).await == before, "what was there at the checkpoint");
        assert!(objset_of(&pool, "more0").await.is_err(), "it came later");
        drop(pool);
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 3).await;
        assert!(content(&pool, id).await == before, "there is no way back to the other state");
        go_on(&pool, id, 400).await;
        export(pool).await;
    });
    disks.judge("tank");
    assert!(matches!(block_on(rewind(&disks)), Err(ImportError::NoCheckpoint(_))));
}

#[test]
fn a_pool_to_which_a_vdev_was_added_just_now_goes_back_to_its_checkpoint() {
    let disks = Disks::new(160 << 20);
    let (first, added) =
        (disks.top(Layout::Single, Class::Normal, "d", 1), disks.top(Layout::Single, Class::Normal, "e", 1));
    let (before, id) = block_on(async {
        let (pool, id) = create(vec![first]).await;
        pool.add(vec![added], None).await.unwrap();
        fill(&pool, id, 100, 1).await;
        pool.take_checkpoint().await.unwrap();
        let before = content(&pool, id).await;
        go_on(&pool, id, 200).await;
        assert!(pool.allocator().kept_bytes() >= SIZE);
        export(pool).await;
        (before, id)
    });
    disks.judge("tank");
    block_on(async {
        let pool = rewind(&disks).await.unwrap();
        assert!(content(&pool, id).await == before);
        export(pool).await;
    });
    disks.judge("tank");
}

#[test]
fn a_stripe_goes_back_to_its_checkpoint() {
    goes_back(Layout::Single, 1);
}

#[test]
fn raidz_goes_back_to_its_checkpoint() {
    goes_back(Layout::Raidz { nparity: 1 }, 3);
}

#[test]
fn what_was_kept_is_freed_when_the_checkpoint_is_given_up() {
    let disks = Disks::new(96 << 20);
    let tops = vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)];
    block_on(async {
        let (pool, id) = create(tops).await;
        fill(&pool, id, 100, 1).await;
        assert!(matches!(pool.discard_checkpoint().await, Err(Error::NotFound(_))), "there is none");
        pool.take_checkpoint().await.unwrap();
        fill(&pool, id, 200, 1).await;
        let kept = pool.allocator().kept_bytes();
        assert!(kept >= SIZE, "{kept}");
        let allocated = pool.allocator().space(Class::Normal).allocated_bytes;
        pool.discard_checkpoint().await.unwrap();
        for _ in 0..8 {
            pool.change(|_| async { Ok(()) }).await.unwrap();
        }
        assert!(!pool.is_discarding());
        assert_eq!(
            (pool.allocator().kept_bytes(), pool.feature_count(Feature::ZpoolCheckpoint)),
            (0, Some(0))
        );
        let now = pool.allocator().space(Class::Normal).allocated_bytes;
        assert!(now < allocated - SIZE / 2, "{now} of {allocated}");
        // And again: the space maps begin anew.
        pool.take_checkpoint().await.unwrap();
        go_on(&pool, id, 300).await;
        pool.discard_checkpoint().await.unwrap();
        export(pool).await;
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        assert!(pool.checkpoint().is_none());
        for _ in 0..8 {
            pool.change(|_| async { Ok(()) }).await.unwrap();
        }
        assert!(!pool.is_discarding());
        export(pool).await;
    });
    disks.judge("tank");
}

#[test]
fn logs_of_later_are_not_replayed_onto_the_checkpoint() {
    let mut disks = Disks::new(96 << 20);
    let tops = vec![disks.top(Layout::Single, Class::Normal, "d", 1)];
    let (before, id) = block_on(async {
        let (pool, id) = create(tops).await;
        fill(&pool, id, 100, 1).await;
        let volume = pool.volume(id).await.unwrap();
        // The log is in use at the checkpoint, and goes on behind it.
        committing(&pool, volume.write_at(0, &[1; 512], true)).await.unwrap();
        pool.take_checkpoint().await.unwrap();
        let before = content(&pool, id).await;
        volume.write_at(4096, &[2; 512], true).await.unwrap();
        pool.sync().await.unwrap();
        volume.write_at(8192, &[3; 512], true).await.unwrap();
        (before, id)
    });
    let copy = crashed(&disks);
    // Once with all logs replayed in the newer state, once going back at once.
    block_on(async {
        let pool = disks.import("tank", 2).await;
        assert_eq!(content(&pool, id).await[8192..8704], [3; 512]);
        export(pool).await;
    });
    disks.judge("tank");
    for again in [disks, copy] {
        disks = again;
        block_on(async {
            let pool = rewind(&disks).await.unwrap();
            assert!(content(&pool, id).await == before);
            export(pool).await;
        });
        disks.judge("tank");
    }
}

#[test]
fn the_checkpoint_of_openzfs_is_kept_gone_back_to_and_given_up() {
    for back in [false, true] {
        let Some(disks) = Disks::of_golden("checkpoint") else { return };
        block_on(async {
            let pool = disks.import("checkpoint", 1).await;
            let kept = pool.allocator().kept_bytes();
            assert!(kept > 0 && pool.checkpoint().is_some());
            let new = NewDataset {
                name: "checkpoint/ours".into(),
                contents: NewContents::Volume { size: SIZE, sparse: true },
                properties: Vec::new(),
            };
            let id = pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
            fill(&pool, id, 1, 1).await;
            assert!(pool.allocator().kept_bytes() >= kept);
            export(pool).await;
        });
        disks.judge("checkpoint");
        block_on(async {
            let pool = if back {
                let options = ImportOptions { force: true, rewind_to_checkpoint: true, ..Default::default() };
                LivePool::import(&disks.found("checkpoint").await, &options, surroundings(9)).await.unwrap()
            } else {
                let pool = disks.import("checkpoint", 2).await;
                pool.discard_checkpoint().await.unwrap();
                pool
            };
            for _ in 0..8 {
                pool.change(|_| async { Ok(()) }).await.unwrap();
            }
            assert!(pool.checkpoint().is_none() && !pool.is_discarding());
            assert_eq!(pool.feature_count(Feature::ZpoolCheckpoint), Some(0));
            export(pool).await;
        });
        disks.judge("checkpoint");
    }
}
