//! Vdevs that grow with their devices.

use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::{Layout, LivePool, properties};
use engine::pool::status;
use engine::vdev::{Class, State};
use engine::zvol::LiveZvol;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;

async fn volume(pool: &Arc<LivePool>) -> Arc<LiveZvol> {
    let dataset = pool.dataset(objset_of(pool, "vol").await.unwrap()).await.unwrap();
    LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.unwrap()
}

async fn new_volume(pool: &Arc<LivePool>) -> Arc<LiveZvol> {
    let new = NewDataset {
        name: "tank/vol".into(),
        contents: NewContents::Volume { size: 1024 * MIB, sparse: true },
        properties: vec![("volblocksize".into(), "64K".into()), ("compression".into(), "off".into())],
    };
    pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
    volume(pool).await
}

async fn commit(pool: &Arc<LivePool>) {
    pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
}

async fn fill(volume: &LiveZvol, mib: std::ops::Range<u64>) {
    for at in mib {
        volume.write_at(at * MIB, &vec![at as u8 | 1; MIB as usize], false).await.unwrap();
    }
}

async fn holds(volume: &LiveZvol, mib: u64) {
    let mut read = vec![0; MIB as usize];
    for at in 0..mib {
        volume.read_at(at * MIB, &mut read).await.unwrap();
        assert!(read.iter().all(|byte| *byte == at as u8 | 1), "mebibyte {at}");
    }
}

fn resize(disks: &Disks, name: &str, bytes: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(disks.path().join(name)).unwrap();
    file.set_len(bytes).unwrap();
}

fn asizes(pool: &LivePool) -> (u64, u64) {
    let tops = &pool.pool().vdevs().tops;
    (tops[0].asize(), tops[0].expandable_bytes())
}

async fn size_listed(pool: &Arc<LivePool>) -> u64 {
    status::vdevs_with_space(&Dsl::open(&pool.view()).await.unwrap()).await.unwrap().space.unwrap().size
}

const KINDS: [(Layout, usize); 4] = [
    (Layout::Single, 1),
    (Layout::Mirror, 2),
    (Layout::Raidz { nparity: 1 }, 3),
    (Layout::Draid { nparity: 1, ndata: 2, nspares: 1 }, 4),
];

#[test]
fn a_vdev_grows_as_far_as_its_smallest_device_when_it_is_wanted() {
    for (layout, count) in KINDS {
        let size = 128 * MIB;
        let disks = Disks::new(size);
        let mib = block_on(async {
            let new = new_pool(vec![disks.top(layout, Class::Normal, "d", count)], 12);
            let pool = LivePool::create(new, surroundings(1)).await.unwrap();
            pool.start().unwrap();
            let volume = new_volume(&pool).await;
            fill(&volume, 0..8).await;
            commit(&pool).await;
            let (before, listed) = (asizes(&pool), size_listed(&pool).await);
            let usable = pool.allocator().usable_bytes();
            assert_eq!(before.1, 0);
            for number in 1..count {
                resize(&disks, &format!("d{number}"), size * 3);
            }
            pool.reopen().await;
            commit(&pool).await;
            if count > 1 {
                assert_eq!(asizes(&pool), before, "{layout:?}: the smallest decides");
            }
            resize(&disks, "d0", size * 2 + 12345);
            pool.reopen().await;
            commit(&pool).await;
            let (asize, expandable) = asizes(&pool);
            assert_eq!(
                (asize, size_listed(&pool).await),
                (before.0, listed),
                "{layout:?}: it was not asked for"
            );
            assert!(expandable >= (size - 16 * MIB) / 16 / MIB * 16 * MIB, "{layout:?}: {expandable}");
            let leaf = pool.pool().vdevs().leaves().next().unwrap().guid;
            pool.expand(leaf).unwrap();
            assert_eq!(pool.online(leaf).await.unwrap().state, State::Healthy);
            commit(&pool).await;
            commit(&pool).await;
            assert_eq!(asizes(&pool).1, 0, "{layout:?}");
            assert!(asizes(&pool).0 >= asize + expandable);
            let grown = size_listed(&pool).await;
            // Metaslabs of draid vdevs are a little smaller.
            let exact = !matches!(layout, Layout::Draid { .. });
            let least = if exact { listed + expandable } else { listed + expandable - MIB };
            assert!(
                (least..=listed + expandable).contains(&grown),
                "{layout:?}: {grown}, {listed} + {expandable}"
            );
            let mib = usable / MIB + 16;
            fill(&volume, 8..mib).await;
            commit(&pool).await;
            drop(volume);
            pool.close(PoolState::Exported).await.unwrap();
            mib
        });
        disks.judge("tank");
        block_on(async {
            // The labels at the new ends are as good as the others.
            for number in 0..count {
                let file = disks.path().join(format!("d{number}"));
                let device = device::FileDevice::open(&file).unwrap();
                let labels = engine::vdev::label::read_labels(&device).await;
                let found = labels.map(|label| label.unwrap().txg);
                assert!(found.iter().all(|txg| *txg == found[0]), "{layout:?}: {found:?}");
                let uberblocks = engine::vdev::label::read_uberblocks(&device, 12).await;
                let last = uberblocks.iter().filter(|(label, ..)| *label == 3).count();
                assert_eq!(last, uberblocks.len() / 4, "{layout:?}: rings are copied");
            }
            let pool = disks.import("tank", 2).await;
            pool.start().unwrap();
            let volume = volume(&pool).await;
            holds(&volume, mib).await;
            drop(volume);
            pool.close(PoolState::Exported).await.unwrap();
        });
    }
}

#[test]
fn with_autoexpand_a_vdev_grows_when_the_pool_is_imported_or_its_devices_are_looked_at() {
    let disks = Disks::new(64 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let before = asizes(&pool).0;
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        for name in ["d0", "d1"] {
            resize(&disks, name, 128 * MIB);
        }
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        commit(&pool).await;
        assert_eq!(asizes(&pool), (before, 64 * MIB), "nobody wants it to grow");
        pool.change(|s| async move { properties::set(&s, "autoexpand", "on").await }).await.unwrap();
        commit(&pool).await;
        assert_eq!(asizes(&pool), (before + 64 * MIB, 0));
        for name in ["d0", "d1"] {
            resize(&disks, name, 192 * MIB);
        }
        pool.reopen().await;
        commit(&pool).await;
        assert_eq!(asizes(&pool), (before + 128 * MIB, 0));
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        for name in ["d0", "d1"] {
            resize(&disks, name, 256 * MIB);
        }
        let pool = disks.import("tank", 3).await;
        pool.start().unwrap();
        commit(&pool).await;
        assert_eq!(asizes(&pool), (before + 192 * MIB, 0));
        let volume = new_volume(&pool).await;
        fill(&volume, 0..128).await;
        commit(&pool).await;
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
