//! Volumes: what was promised to be stable is there after a crash, in pools of several kinds.
//!
//! Nothing commits groups here but the test itself, so that it knows what the log must have done. A crash is
//! a copy of the devices between two operations; what a power cut does to writes that are under way is for
//! the crash simulator to find out.

use std::sync::Arc;

use device::{IoBuf, block_on};
use engine::Block;
use engine::dmu::{Dirtied, Payload, Room};
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::env::{Env, Seeded};
use engine::pool::live::{Layout, LivePool, NewTop, Syncing};
use engine::vdev::Class;
use engine::zvol::{LiveZvol, Zvol};
use futures_util::future::join;
use futures_util::poll;
use ondisk::vdev_config::PoolState;
use ondisk::{ObjsetId, Txg};

use crate::support::{Disks, committing, crashed, new_pool, surroundings};

const SIZE: u64 = 8 << 20;

async fn create(tops: Vec<NewTop>, block_size: u32, logbias: &str) -> (Arc<LivePool>, ObjsetId) {
    let pool = LivePool::create(new_pool(tops, 12), surroundings(1)).await.unwrap();
    let new = NewDataset {
        name: "tank/vol".into(),
        contents: NewContents::Volume { size: SIZE, sparse: true },
        properties: vec![("volblocksize".into(), block_size.to_string()), ("logbias".into(), logbias.into())],
    };
    let create = move |s: Syncing| async move { edit::create(&s, &new).await };
    let id = pool.change(create).await.unwrap();
    (pool, id)
}

async fn open(pool: &Arc<LivePool>, id: ObjsetId) -> Arc<LiveZvol> {
    let dataset = pool.dataset(id).await.unwrap();
    LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.unwrap()
}

async fn close(pool: Arc<LivePool>, id: ObjsetId) {
    let dataset = pool.dataset(id).await.unwrap();
    committing(&pool, dataset.zil.close()).await.unwrap();
    pool.close(PoolState::Exported).await.unwrap();
}

async fn content(volume: &LiveZvol) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    volume.read_at(0, &mut bytes).await.unwrap();
    bytes
}

/// A buffer with the size and the place of a block becomes that block; of all others the bytes are copied.
#[test]
fn buffers_of_any_size_and_place_are_written_and_stay_what_the_writer_keeps() {
    const BLOCK: u64 = 8192;
    let disks = Disks::new(96 << 20);
    let top = disks.top(Layout::Single, Class::Normal, "d", 1);
    block_on(async {
        let (pool, id) = create(vec![top], BLOCK as u32, "latency").await;
        let volume = open(&pool, id).await;
        let mut model = vec![0u8; SIZE as usize];
        let places = [
            (0, BLOCK),
            (BLOCK, BLOCK),
            (BLOCK, 512),
            (3 * BLOCK - 512, BLOCK),
            (4 * BLOCK, 3 * BLOCK),
            (5 * BLOCK + 512, 100),
            (SIZE - BLOCK, BLOCK),
        ];
        for round in 0..3u8 {
            let mut kept = Vec::new();
            for (index, (offset, length)) in places.into_iter().enumerate() {
                let fill = 1 + round * 16 + index as u8;
                let block = Block::from(IoBuf::from(&vec![fill; length as usize][..]));
                let payload = Payload::of_blocks(std::slice::from_ref(&block), length as usize);
                volume.write_payload(offset, payload, false).await.unwrap();
                kept.push((block, fill));
                model[offset as usize..(offset + length) as usize].fill(fill);
            }
            assert!(content(&volume).await == model, "round {round}");
            // What was written over a part of a block did so in a copy.
            assert!(kept.iter().all(|(block, fill)| block.iter().all(|byte| byte == fill)));
            committing(&pool, pool.txgs().wait_synced(pool.txgs().open_txg())).await.unwrap();
            assert!(content(&volume).await == model, "round {round}, committed");
        }
        drop(volume);
        close(pool, id).await;
    });
}

fn random_history(layout: Layout, count: usize, with_log: bool, block_size: u32, logbias: &str, seed: u64) {
    let random = Seeded::new(seed);
    let pick = |below: u64| random.random() % below;
    let mut disks = Disks::new(96 << 20);
    let mut tops = vec![disks.top(layout, Class::Normal, "d", count)];
    if with_log {
        tops.push(disks.top(Layout::Single, Class::Log, "log", 1));
    }
    let (mut pool, id) = block_on(create(tops, block_size, logbias));
    let mut model = vec![0u8; SIZE as usize];
    for round in 0..3 {
        let volume = block_on(open(&pool, id));
        // The first of a chain waits for its group.
        block_on(committing(&pool, volume.write_at(0, &[1; 512], true))).unwrap();
        model[..512].fill(1);
        for _ in 0..20 {
            let length = 1 + if pick(4) == 0 { pick(300_000) } else { pick(20_000) };
            let offset = pick(SIZE - length + 1);
            let range = offset as usize..(offset + length) as usize;
            match pick(8) {
                0 => {
                    block_on(volume.write_zeroes(offset, length, false, false)).unwrap();
                    model[range].fill(0);
                }
                1 => drop(block_on(pool.sync()).unwrap()),
                2 => block_on(volume.flush()).unwrap(),
                _ => {
                    let fill = pick(255) as u8 + 1;
                    block_on(volume.write_at(offset, &vec![fill; length as usize], pick(2) == 0)).unwrap();
                    model[range].fill(fill);
                }
            }
        }
        // Without any group being committed: this is the log's work alone.
        block_on(volume.flush()).unwrap();
        let lost = SIZE - 4096;
        let expected = model.clone();
        block_on(volume.write_at(lost, &[0xee; 4096], false)).unwrap();
        drop(volume);

        let copy = crashed(&disks);
        drop(pool);
        disks = copy;
        if round == 1 {
            disks.judge("tank");
        }
        pool = block_on(disks.import("tank", seed + 1));
        let volume = block_on(open(&pool, id));
        assert!(block_on(content(&volume)) == expected, "seed {seed}");
    }
    block_on(close(pool, id));
    disks.judge("tank");
    let pool = block_on(disks.import("tank", seed + 2));
    let volume = block_on(open(&pool, id));
    assert!(block_on(content(&volume)) == model, "seed {seed}");
}

#[test]
fn stable_writes_survive_crashes_on_a_single_device() {
    random_history(Layout::Single, 1, false, 16384, "latency", 1);
}

#[test]
fn stable_writes_survive_crashes_on_a_mirror_with_a_log_device() {
    random_history(Layout::Mirror, 2, true, 4096, "latency", 2);
}

#[test]
fn stable_writes_survive_crashes_on_raidz() {
    random_history(Layout::Raidz { nparity: 1 }, 3, false, 65536, "latency", 3);
}

#[test]
fn stable_writes_survive_crashes_when_they_are_logged_by_pointer() {
    random_history(Layout::Mirror, 2, true, 8192, "throughput", 4);
}

#[test]
fn a_log_that_ends_with_its_pool_leaves_nothing_behind() {
    let disks = Disks::new(96 << 20);
    let tops = vec![disks.top(Layout::Single, Class::Normal, "d", 1)];
    block_on(async {
        let (pool, id) = create(tops, 16384, "latency").await;
        let volume = open(&pool, id).await;
        committing(&pool, volume.write_at(0, &[7; 9000], true)).await.unwrap();
        volume.write_at(9000, &[8; 9000], true).await.unwrap();
        let dataset = pool.dataset(id).await.unwrap();
        assert!(!dataset.objset.zil_header().is_empty());
        committing(&pool, dataset.zil.close()).await.unwrap();
        assert!(dataset.objset.zil_header().is_empty());
    });
    let disks = crashed(&disks);
    disks.judge("tank");
}

#[derive(Debug)]
struct Full;

impl Room for Full {
    fn require(&self, _: Txg, _: &Dirtied) -> engine::Result<()> {
        Err(engine::Error::NoSpace("full".into()))
    }
}

#[test]
fn a_full_volume_can_be_trimmed() {
    let disks = Disks::new(96 << 20);
    let tops = vec![disks.top(Layout::Single, Class::Normal, "d", 1)];
    block_on(async {
        let (pool, id) = create(tops, 16384, "latency").await;
        let volume = open(&pool, id).await;
        volume.write_at(0, &[7; 100_000], false).await.unwrap();
        volume.set_room(Arc::new(Full));
        assert!(volume.write_at(0, &[7; 100_000], false).await.is_err());
        volume.trim(0, SIZE, false).await.unwrap();
        pool.sync().await.unwrap();
        assert_eq!(volume.extents(0, SIZE, 9).await.unwrap().len(), 1);
    });
}

#[test]
fn a_snapshot_has_all_that_was_written_before_it_was_asked_for() {
    let disks = Disks::new(96 << 20);
    let tops = vec![disks.top(Layout::Single, Class::Normal, "d", 1)];
    block_on(async {
        let (pool, id) = create(tops, 16384, "latency").await;
        let volume = open(&pool, id).await;
        volume.write_at(0, &[1; 16384], false).await.unwrap();
        // A group is to be committed, and cannot be yet: what is written now is of the next one.
        let held = pool.txgs().begin(0).await.unwrap();
        let mut group = Box::pin(pool.sync());
        assert!(poll!(group.as_mut()).is_pending());
        volume.write_at(0, &[2; 16384], false).await.unwrap();
        let new = [NewSnapshot { name: "tank/vol@now".into(), properties: Vec::new() }];
        let mut asked = Box::pin(pool.change(move |s| async move { edit::snapshot(&s, &new).await }));
        assert!(poll!(asked.as_mut()).is_pending());
        drop(held);
        let (committed, taken) = join(group, asked).await;
        committed.unwrap();
        taken.unwrap();
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        let objset = dsl.open_objset(&dsl.find("tank/vol@now").await.unwrap()).await.unwrap();
        let mut bytes = vec![0; 16384];
        Zvol::open(&objset).await.unwrap().read_at(0, &mut bytes).await.unwrap();
        assert!(bytes == [2; 16384], "it begins with {}", bytes[0]);
        drop(volume);
        close(pool, id).await;
    });
    disks.judge("tank");
}
