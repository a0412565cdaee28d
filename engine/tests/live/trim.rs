//! TRIM: what is free is given back to the devices, and nothing else.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use device::block_on;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::jobs::JobState;
use engine::pool::live::{Layout, LivePool, Sweep, properties};
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, new_pool, surroundings};

pub const MIB: u64 = 1 << 20;

pub async fn volume(pool: &Arc<LivePool>, name: &str) -> Arc<LiveZvol> {
    let new = NewDataset {
        name: format!("tank/{name}"),
        contents: NewContents::Volume { size: 64 * MIB, sparse: true },
        properties: vec![("volblocksize".into(), "64K".into()), ("compression".into(), "off".into())],
    };
    let id = pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
    let dataset = pool.dataset(id).await.unwrap();
    LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.unwrap()
}

pub async fn commit(pool: &Arc<LivePool>, groups: usize) {
    for _ in 0..groups {
        pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
    }
}

pub async fn fill(volume: &LiveZvol, mib: u64, byte: u8) {
    for at in 0..mib {
        volume.write_at(at * MIB, &vec![byte; MIB as usize], false).await.unwrap();
    }
}

pub async fn holds(volume: &LiveZvol, mib: u64, byte: u8) {
    let mut read = vec![0; MIB as usize];
    for at in 0..mib {
        volume.read_at(at * MIB, &mut read).await.unwrap();
        assert!(read.iter().all(|read| *read == byte), "{byte} in mebibyte {at}");
    }
}

/// Bytes that all files really take.
fn taken(disks: &Disks) -> u64 {
    let files = std::fs::read_dir(disks.path()).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn a_trim_gives_back_what_is_free_and_nothing_else() {
    for (layout, count, factor) in
        [(Layout::Single, 1, 1), (Layout::Mirror, 2, 2), (Layout::Raidz { nparity: 1 }, 3, 1)]
    {
        let disks = Disks::new(192 * MIB);
        block_on(async {
            let new = new_pool(vec![disks.top(layout, Class::Normal, "d", count)], 12);
            let pool = LivePool::create(new, surroundings(1)).await.unwrap();
            pool.start().unwrap();
            let kept = volume(&pool, "kept").await;
            let freed = volume(&pool, "freed").await;
            fill(&kept, 8, 1).await;
            fill(&freed, 32, 2).await;
            commit(&pool, 1).await;
            freed.trim(0, 64 * MIB, false).await.unwrap();
            commit(&pool, 4).await;
            let before = taken(&disks);
            let leaves: Vec<_> = pool.pool().vdevs().leaves().map(|leaf| leaf.guid).collect();
            pool.sweep(Sweep::Trim, &leaves, 0).await.unwrap();
            pool.wait_for_jobs(|_, state| state == JobState::Active).await;
            assert!(pool.sweeps().values().all(|run| run.state == JobState::Complete));
            let given_back = before - taken(&disks);
            assert!(given_back > 28 * MIB * factor, "{layout:?}: {given_back} bytes");
            fill(&freed, 4, 3).await;
            commit(&pool, 1).await;
            drop((kept, freed));
            pool.close(PoolState::Exported).await.unwrap();
        });
        disks.judge("tank");
        block_on(async {
            let pool = disks.import("tank", 2).await;
            pool.start().unwrap();
            for (name, mib, byte) in [("kept", 8, 1), ("freed", 4, 3)] {
                let dsl = engine::dsl::Dsl::open(&pool.view()).await.unwrap();
                let dir = dsl.find_dir(&format!("tank/{name}")).await.unwrap();
                let id = ondisk::ObjsetId(dir.phys.head_dataset.get());
                let dataset = pool.dataset(id).await.unwrap();
                let volume = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.unwrap();
                holds(&volume, mib, byte).await;
            }
            pool.close(PoolState::Exported).await.unwrap();
        });
    }
}

#[test]
fn with_autotrim_devices_get_back_what_becomes_free() {
    let disks = Disks::new(192 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        pool.change(|s| async move { properties::set(&s, "autotrim", "on").await }).await.unwrap();
        let volume = volume(&pool, "vol").await;
        fill(&volume, 32, 7).await;
        commit(&pool, 1).await;
        let before = taken(&disks);
        volume.trim(4 * MIB, 60 * MIB, false).await.unwrap();
        commit(&pool, 40).await;
        assert!(taken(&disks) + 24 * MIB < before, "{} of {before}", taken(&disks));
        holds(&volume, 4, 7).await;
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
