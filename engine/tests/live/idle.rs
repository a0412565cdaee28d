//! Datasets without users are closed, and are what they were when they are opened again; threads of a pool
//! without users rest.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::block_on;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::{Layout, LivePool, Surroundings};
use engine::txg::Limits;
use engine::vdev::Class;
use ondisk::ObjsetId;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, committing, crashed, new_pool, surroundings};

const VOLUMES: usize = 20;
/// More groups than it takes to close what is idle.
const LONG: usize = 40;

async fn write(pool: &Arc<LivePool>, id: ObjsetId, fill: u8, stable: bool) {
    let volume = pool.volume(id).await.unwrap();
    committing(pool, volume.write_at(0, &[fill; 20_000], stable)).await.unwrap();
}

async fn read(pool: &Arc<LivePool>, id: ObjsetId) -> u8 {
    let mut bytes = [0; 20_000];
    pool.volume(id).await.unwrap().read_at(0, &mut bytes).await.unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

async fn wait(pool: &Arc<LivePool>) {
    for _ in 0..LONG {
        pool.sync().await.unwrap();
    }
}

#[test]
fn what_nobody_uses_is_closed() {
    let disks = Disks::new(128 << 20);
    let ids = block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        let mut ids = Vec::new();
        for number in 0..VOLUMES {
            let new = NewDataset {
                name: format!("tank/vol{number}"),
                contents: NewContents::Volume { size: 1 << 20, sparse: true },
                properties: Vec::new(),
            };
            ids.push(pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap());
        }
        let held = pool.volume(ids[0]).await.unwrap();
        for (number, id) in ids.iter().enumerate() {
            // Some have a log.
            write(&pool, *id, number as u8 + 1, number % 2 == 0).await;
        }
        assert!(pool.open_datasets() >= VOLUMES);
        wait(&pool).await;
        assert_eq!(pool.open_datasets(), 1, "one is held");
        held.write_at(0, &[99; 20_000], false).await.unwrap();
        for (number, id) in ids.iter().enumerate().skip(1) {
            assert_eq!(read(&pool, *id).await, number as u8 + 1);
        }
        for id in &ids[1..] {
            write(&pool, *id, 100, true).await;
            write(&pool, *id, 101, true).await;
        }
        ids
    });
    // Opened again, their logs are as good as before.
    let disks = crashed(&disks);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        for id in &ids[1..] {
            assert_eq!(read(&pool, *id).await, 101);
        }
        wait(&pool).await;
        assert_eq!(pool.open_datasets(), 0);
        assert_eq!(read(&pool, ids[5]).await, 101);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// How often threads of this process with such a name went to rest, and so were woken.
fn rests(name: &str) -> u64 {
    let mut rests = 0;
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let read = |file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
        if read("comm").trim() == name {
            let status = read("status");
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            rests += line.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0);
        }
    }
    rests
}

#[test]
fn the_thread_of_a_pool_that_nobody_uses_is_not_woken_and_what_comes_is_committed_in_time() {
    const LOOKED: Duration = Duration::from_secs(1);
    let disks = Disks::new(128 << 20);
    block_on(async {
        let mut new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        new.name = "idle".into();
        let limits = Limits { timeout: Duration::from_millis(10), ..Limits::default() };
        let pool = LivePool::create(new, Surroundings { limits, ..surroundings(1) }).await.unwrap();
        pool.start().unwrap();
        let new = NewDataset {
            name: "idle/vol".into(),
            contents: NewContents::Volume { size: 1 << 20, sparse: true },
            properties: Vec::new(),
        };
        let id = pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
        let (mut before, mut began) = (rests("txg-sync idle"), Instant::now());
        let mut synced = pool.txgs().synced_txg();
        while began.elapsed() < LOOKED {
            // What was created may need a group or two more.
            if pool.txgs().synced_txg() != synced {
                (before, began, synced) = (rests("txg-sync idle"), Instant::now(), pool.txgs().synced_txg());
            }
            std::thread::yield_now();
        }
        let woken = rests("txg-sync idle") - before;
        assert!(before > 0 && woken <= 3, "woken {woken} times");
        // The daemon looks for devices whose work is done again and again.
        let began = Instant::now();
        while began.elapsed() < LOOKED {
            pool.detach_done();
            std::thread::yield_now();
        }
        assert_eq!(pool.txgs().synced_txg(), synced, "looking for devices commits nothing");
        // No caller asks for this group.
        pool.volume(id).await.unwrap().write_at(0, &[7; 4096], false).await.unwrap();
        while pool.txgs().synced_txg() == synced {
            std::thread::yield_now();
        }
        pool.close(PoolState::Exported).await.unwrap();
    });
}
