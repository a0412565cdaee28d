//! Pools that OpenZFS made, opened for writing with the features that they use, changed, and judged by `zdb`.

use std::sync::Arc;

use device::block_on;
use engine::dsl::edit;
use engine::pool::live::{LivePool, Syncing};
use ondisk::ObjectId;
use ondisk::dmu::DmuType;
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;

use crate::support::Disks;

/// One life of the pool, from import to export; then `zdb`.
async fn life(disks: &Disks, name: &str, seed: u64, work: impl AsyncFnOnce(&Arc<LivePool>)) {
    let pool = disks.import(name, seed).await;
    pool.start().unwrap();
    work(&pool).await;
    pool.close(PoolState::Exported).await.unwrap();
    drop(pool);
    disks.judge(name);
}

/// Writes the beginning of every `step`th file of a filesystem again.
async fn touch_files(pool: &Arc<LivePool>, name: &str, step: usize) {
    let view = pool.view();
    let dsl = engine::dsl::Dsl::open(&view).await.unwrap();
    let id = dsl.find(name).await.unwrap().objset_id();
    drop(view);
    let dataset = pool.dataset(id).await.unwrap();
    let mut files = Vec::new();
    for number in 1..2000 {
        let Ok(object) = dataset.objset.object(ObjectId(number)).await else { continue };
        if object.dnode().dmu_type == DmuType::PLAIN_FILE_CONTENTS && object.end() > 0 {
            files.push(object);
        }
    }
    assert!(!files.is_empty(), "{name} has files");
    for object in files.into_iter().step_by(step) {
        let tx = pool.txgs().begin(object.block_size()).await.unwrap();
        let mut bytes = number_bytes(object.id().get());
        bytes.truncate(object.block_size() as usize);
        object.write_at(&tx, 0, &bytes).await.unwrap();
    }
}

fn number_bytes(number: u64) -> Vec<u8> {
    (0..200).flat_map(|index: u64| (number * 7919 + index).to_le_bytes()).collect()
}

/// Runs a change in a group of its own.
macro_rules! change {
    ($pool:expr, |$s:ident| $body:expr) => {
        $pool.change(move |$s: Syncing| async move { $body.await }).await
    };
}

#[test]
fn a_clone_of_openzfs_keeps_its_livelist_until_it_is_destroyed() {
    let Some(disks) = Disks::of_golden("single") else { return };
    block_on(async {
        let before = async |pool: &Arc<LivePool>| pool.feature_count(Feature::Livelist).unwrap();
        life(&disks, "single", 1, async |pool| {
            let count = before(pool).await;
            touch_files(pool, "single/fs", 50).await;
            change!(pool, |s| async move {
                edit::clone(&s, "single/fs@one", "single/ours", &[]).await.map(|_| ())
            })
            .unwrap();
            touch_files(pool, "single/ours", 200).await;
            assert_eq!(before(pool).await, count + 1);
        })
        .await;
        life(&disks, "single", 2, async |pool| {
            touch_files(pool, "single/clone", 20).await;
            change!(pool, |s| async move { edit::destroy(&s, "single/ours").await.map(|_| ()) }).unwrap();
            change!(pool, |s| async move { edit::destroy(&s, "single/clone").await.map(|_| ()) }).unwrap();
            while change!(pool, |s| async move { edit::free_some(&s, 100).await }).unwrap() {}
            assert_eq!(before(pool).await, 0);
        })
        .await;
    });
}

#[test]
fn blocks_that_were_cloned_are_freed_with_their_last_reference() {
    let Some(disks) = Disks::of_golden("bclone") else { return };
    block_on(async {
        life(&disks, "bclone", 1, async |pool| {
            assert_eq!(pool.feature_count(Feature::BlockCloning), Some(1));
            let saved = pool.saved_by_clones();
            touch_files(pool, "bclone/fs", 1).await;
            pool.change(|_| async { Ok(()) }).await.unwrap();
            assert!(pool.saved_by_clones() < saved, "what was written over is shared no more");
        })
        .await;
        life(&disks, "bclone", 2, async |pool| {
            change!(pool, |s| async move { edit::destroy(&s, "bclone/fs").await.map(|_| ()) }).unwrap();
            while change!(pool, |s| async move { edit::free_some(&s, 100).await }).unwrap() {}
            assert_eq!((pool.feature_count(Feature::BlockCloning), pool.saved_by_clones()), (Some(0), 0));
        })
        .await;
    });
}

#[test]
fn what_is_freed_of_a_removed_device_is_noted_as_obsolete() {
    let Some(disks) = Disks::of_golden("removed") else { return };
    block_on(async {
        let count = |pool: &Arc<LivePool>| pool.feature_count(Feature::ObsoleteCounts).unwrap();
        life(&disks, "removed", 1, async |pool| {
            let before = count(pool);
            touch_files(pool, "removed/fs", 2).await;
            pool.change(|_| async { Ok(()) }).await.unwrap();
            assert_eq!(count(pool), before, "its space map goes on");
        })
        .await;
        life(&disks, "removed", 2, async |pool| {
            let before = count(pool);
            touch_files(pool, "removed/fs", 1).await;
            change!(pool, |s| async move { edit::destroy(&s, "removed/fs").await.map(|_| ()) }).unwrap();
            while change!(pool, |s| async move { edit::free_some(&s, 100).await }).unwrap() {}
            assert_eq!(count(pool), before, "there is one space map for each removed device");
        })
        .await;
    });
}
