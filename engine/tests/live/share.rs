//! Blocks that become references to equal ones afterwards: what files and volumes hold never changes, also
//! beside writers and after crashes, times stay, and `zdb` counts every reference.

use std::sync::Arc;

use device::block_on;
use engine::dmu::{Shared, StoredBlock};
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::env::{Env, Seeded};
use engine::pool::live::{Layout, LivePool, Syncing};
use engine::vdev::Class;
use engine::zpl::LiveZpl;
use engine::zpl::live::{FileBlocks, NewKind, NewNode, WriteOptions};
use engine::zvol::LiveZvol;
use futures_util::future::join;
use ondisk::ObjectId;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, committing, crashed, new_pool, objset_of, surroundings};

/// Bytes of a block of the volumes and files.
pub const BLOCK: u64 = 8192;
const BLOCKS: u64 = 64;
/// Different contents of blocks.
const CONTENTS: u64 = 4;

/// Blocks that do not compress.
fn of_number(number: u64) -> Vec<u8> {
    let dice = Seeded::new(number + 1);
    (0..BLOCK).map(|_| dice.random() as u8).collect()
}

/// A pool with these datasets.
pub async fn pool_with(disks: &Disks, datasets: &[(&str, NewContents)]) -> Arc<LivePool> {
    let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
    let pool = LivePool::create(new, surroundings(1)).await.unwrap();
    for (name, contents) in datasets {
        let size = match contents {
            NewContents::Volume { .. } => ("volblocksize", BLOCK),
            NewContents::Filesystem => ("recordsize", BLOCK),
        };
        let new = NewDataset {
            name: (*name).into(),
            contents: contents.clone(),
            properties: vec![(size.0.to_owned(), size.1.to_string())],
        };
        pool.change(move |s: Syncing| async move { edit::create(&s, &new).await }).await.unwrap();
    }
    pool
}

const VOLUME: NewContents = NewContents::Volume { size: BLOCK * BLOCKS, sparse: true };
const VOLUMES: [(&str, NewContents); 2] = [("tank/a", VOLUME), ("tank/b", VOLUME)];

/// The volumes `tank/a` and `tank/b`.
pub async fn volumes(pool: &Arc<LivePool>) -> Vec<Arc<LiveZvol>> {
    let mut volumes = Vec::new();
    for name in ["a", "b"] {
        volumes.push(pool.volume(objset_of(pool, name).await.unwrap()).await.unwrap());
    }
    volumes
}

/// All that a volume holds.
pub async fn content(volume: &LiveZvol) -> Vec<u8> {
    let mut bytes = vec![0; volume.size() as usize];
    volume.read_at(0, &mut bytes).await.unwrap();
    bytes
}

/// Blocks of volumes with equal digests, each with the first one of them.
async fn pairs(volumes: &[Arc<LiveZvol>]) -> Vec<((usize, u64), (usize, u64))> {
    let mut all: Vec<(usize, StoredBlock)> = Vec::new();
    for (at, volume) in volumes.iter().enumerate() {
        let mut next = Some(0);
        while let Some(first) = next {
            let found = volume.stored_blocks(first, 7).await.unwrap();
            all.extend(found.blocks.into_iter().map(|block| (at, block)));
            next = found.next;
        }
    }
    let first = |of: &StoredBlock| all.iter().find(|(_, block)| block.digest == of.digest);
    let pair = |(at, block): &(usize, StoredBlock)| {
        let (first_at, first) = first(block)?;
        (first.place != block.place).then_some(((*first_at, first.id), (*at, block.id)))
    };
    all.iter().filter_map(pair).collect()
}

/// Random writes, holes and commits, with blocks that are shared in between, also of ranges that are not
/// equal. Returns how many blocks became shared.
async fn shuffle(pool: &Arc<LivePool>, models: &mut [Vec<u8>], seed: u64) -> u64 {
    let dice = Seeded::new(seed);
    let roll = |sides: u64| dice.random() % sides.max(1);
    let volumes = volumes(pool).await;
    let mut shared = 0;
    for _ in 0..150 {
        let (at, other, first) = (roll(2) as usize, roll(2) as usize, roll(BLOCKS - 8));
        let offset = (first * BLOCK) as usize;
        match roll(7) {
            0..=2 => {
                let bytes: Vec<u8> = (0..1 + roll(8)).flat_map(|_| of_number(roll(CONTENTS))).collect();
                volumes[at].write_at(offset as u64, &bytes, false).await.unwrap();
                models[at][offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            3 => {
                volumes[at].trim(offset as u64, BLOCK, false).await.unwrap();
                models[at][offset..offset + BLOCK as usize].fill(0);
            }
            4 => drop(pool.sync().await.unwrap()),
            5 => {
                let (from, count) = (roll(BLOCKS - 8), 1 + roll(8));
                if at == other && from < first + count && first < from + count {
                    let refused = volumes[at].share_blocks(first, &volumes[other], from, count).await;
                    assert!(refused.is_err());
                    continue;
                }
                let share = volumes[at].share_blocks(first, &volumes[other], from, count);
                let done = committing(pool, share).await.unwrap();
                assert_eq!(done.blocks + done.already + done.different, count);
                shared += done.blocks;
            }
            _ => {
                for ((kept_at, kept), (at, id)) in pairs(&volumes).await {
                    let share = volumes[at].share_blocks(id, &volumes[kept_at], kept, 1);
                    shared += committing(pool, share).await.unwrap().blocks;
                }
            }
        }
    }
    for (volume, model) in volumes.iter().zip(models.iter()) {
        assert!(content(volume).await == *model, "seed {seed}");
        committing(pool, volume.flush()).await.unwrap();
    }
    shared
}

#[test]
fn volumes_that_share_equal_blocks_hold_what_they_held_after_crashes_too() {
    let mut disks = Disks::new(128 << 20);
    let mut models = vec![vec![0; (BLOCK * BLOCKS) as usize]; 2];
    let mut pool = block_on(pool_with(&disks, &VOLUMES));
    for seed in 1..5 {
        let shared = block_on(shuffle(&pool, &mut models, seed));
        assert!(shared > 50, "{shared} blocks");
        let copy = crashed(&disks);
        drop(pool);
        disks = copy;
        pool = block_on(disks.import("tank", seed + 10));
        for (volume, model) in block_on(volumes(&pool)).iter().zip(&models) {
            assert!(block_on(content(volume)) == *model, "after a crash, seed {seed}");
        }
    }
    block_on(async {
        let volumes = volumes(&pool).await;
        pool.sync().await.unwrap();
        for ((kept_at, kept), (at, id)) in pairs(&volumes).await {
            volumes[at].share_blocks(id, &volumes[kept_at], kept, 1).await.unwrap();
        }
        pool.sync().await.unwrap();
        assert_eq!(pairs(&volumes).await, [], "all equal blocks are shared");
        let dataset = pool.volume(objset_of(&pool, "a").await.unwrap()).await.unwrap();
        assert!(content(&dataset).await == models[0]);
        assert!(pool.saved_by_clones() > BLOCK * BLOCKS / 2);
        drop((dataset, volumes));
        pool.close(PoolState::Exported).await.unwrap();
    });
    drop(pool);
    disks.judge("tank");
}

#[test]
fn a_writer_beside_loses_nothing() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let pool = pool_with(&disks, &VOLUMES).await;
        let volumes = volumes(&pool).await;
        let same: Vec<u8> = (0..BLOCKS).flat_map(|_| of_number(1)).collect();
        let mut models = vec![same.clone(), same.clone()];
        for volume in &volumes {
            volume.write_at(0, &same, false).await.unwrap();
        }
        pool.sync().await.unwrap();
        let dice = Seeded::new(9);
        let write = async {
            for number in 0..400 {
                let (at, first) = ((dice.random() % 2) as usize, dice.random() % BLOCKS);
                let bytes = of_number(number % CONTENTS);
                volumes[at].write_at(first * BLOCK, &bytes, false).await.unwrap();
                models[at][(first * BLOCK) as usize..][..BLOCK as usize].copy_from_slice(&bytes);
                if number % 20 == 0 {
                    pool.sync().await.unwrap();
                }
            }
        };
        let share = async {
            let mut all = Shared::default();
            for number in 0..400 {
                let (first, from) = (number % BLOCKS, number * 7 % BLOCKS);
                let done = volumes[0].share_blocks(first, &volumes[1], from, 1).await.unwrap();
                all.blocks += done.blocks;
                all.different += done.different;
            }
            all
        };
        let ((), all) = join(write, share).await;
        assert!(all.blocks > 0 && all.different > 0, "{all:?}");
        for (volume, model) in volumes.iter().zip(&models) {
            assert!(content(volume).await == *model);
        }
        drop(volumes);
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    });
    disks.judge("tank");
}

async fn file(zpl: &LiveZpl, name: &str, blocks: &[u64]) -> ObjectId {
    let node = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
    let file = zpl.create(zpl.zpl().root(), name.as_bytes(), &node).await.unwrap();
    let bytes: Vec<u8> = blocks.iter().flat_map(|number| of_number(*number)).collect();
    // The last block is not whole.
    let bytes = bytes.get(..bytes.len() - 100).unwrap();
    zpl.write(file, 0, bytes, &WriteOptions::default()).await.unwrap();
    file
}

#[test]
fn files_of_two_filesystems_share_blocks_and_keep_their_times() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let datasets = [("tank/a", NewContents::Filesystem), ("tank/b", NewContents::Filesystem)];
        let pool = pool_with(&disks, &datasets).await;
        let mut filesystems = Vec::new();
        for name in ["a", "b"] {
            filesystems.push(pool.filesystem(objset_of(&pool, name).await.unwrap()).await.unwrap());
        }
        let [a, b] = &filesystems[..] else { panic!("two filesystems") };
        let (kept, other) = (file(a, "kept", &[1, 2, 3, 4]).await, file(b, "other", &[1, 2, 9, 4]).await);
        let blocks = |file, first| FileBlocks { file, first };
        let early = b.share_blocks(blocks(other, 0), a, blocks(kept, 0), 4).await.unwrap();
        assert_eq!(early, Shared { different: 4, ..Shared::default() }, "nothing is stored yet");
        pool.sync().await.unwrap();
        let stat = async || b.zpl().node(other).await.unwrap().stat().unwrap();
        let before = stat().await;
        let done = b.share_blocks(blocks(other, 0), a, blocks(kept, 0), 4).await.unwrap();
        assert_eq!((done.blocks, done.already, done.different), (3, 0, 1), "{done:?}");
        pool.sync().await.unwrap();
        let after = stat().await;
        assert_eq!(
            (before.size, before.mtime, before.ctime, before.atime),
            (after.size, after.mtime, after.ctime, after.atime)
        );
        let again = b.share_blocks(blocks(other, 0), a, blocks(kept, 0), 4).await.unwrap();
        assert_eq!((again.blocks, again.already, again.different), (0, 3, 1), "{again:?}");
        assert_eq!(pool.saved_by_clones(), 3 * BLOCK);
        // Within one file, in both orders.
        let twice = file(a, "twice", &[5, 6, 5, 6]).await;
        pool.sync().await.unwrap();
        let up = a.share_blocks(blocks(twice, 2), a, blocks(twice, 0), 1).await.unwrap();
        assert_eq!(up.blocks, 1);
        let down = a.share_blocks(blocks(twice, 1), a, blocks(twice, 3), 1).await.unwrap();
        assert_eq!(down.different, 1, "the last block is not whole");
        assert!(a.share_blocks(blocks(twice, 0), a, blocks(twice, 1), 2).await.is_err(), "they overlap");
        let mut bytes = vec![0; 4 * BLOCK as usize];
        assert_eq!(b.read(other, 0, &mut bytes).await.unwrap() as u64, 4 * BLOCK - 100);
        let expected: Vec<u8> = [1, 2, 9, 4].into_iter().flat_map(of_number).collect();
        let length = bytes.len() - 100;
        assert!(bytes[..length] == expected[..length]);
        // What one of them writes, the other does not see.
        a.write(kept, 0, &of_number(7), &WriteOptions::default()).await.unwrap();
        pool.sync().await.unwrap();
        b.read(other, 0, &mut bytes).await.unwrap();
        assert!(bytes[..length] == expected[..length]);
        drop(filesystems);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
