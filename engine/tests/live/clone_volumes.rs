//! Volumes that share blocks: each holds what it was given, after crashes too, and `zdb` counts every
//! reference.

use std::sync::Arc;

use device::block_on;
use engine::dsl::edit::{self, NewContents, NewSnapshot};
use engine::env::{Env, Seeded};
use engine::pool::live::{LivePool, Syncing};
use ondisk::vdev_config::PoolState;

use crate::share::{BLOCK, content, pool_with, volumes};
use crate::support::{Disks, committing, crashed};

const SIZE: u64 = 4 << 20;
const VOLUME: NewContents = NewContents::Volume { size: SIZE, sparse: true };

/// Random writes, holes and copies. Returns the bytes that became shared.
async fn shuffle(pool: &Arc<LivePool>, models: &mut [Vec<u8>], seed: u64) -> u64 {
    let dice = Seeded::new(seed);
    let roll = |sides: u64| dice.random() % sides.max(1);
    let volumes = volumes(pool).await;
    let mut shared = 0;
    for _ in 0..120 {
        let [at, other] = [roll(2), roll(2)].map(|index| index as usize);
        let length = (1 + roll(40)) * BLOCK;
        let [to, from] = [roll((SIZE - length) / BLOCK), roll((SIZE - length) / BLOCK)].map(|id| id * BLOCK);
        let (to, from) = (to as usize, from as usize);
        match roll(8) {
            0..=2 => {
                let bytes: Vec<u8> = (0..length - roll(BLOCK)).map(|_| dice.random() as u8).collect();
                volumes[at].write_at(to as u64, &bytes, false).await.unwrap();
                models[at][to..to + bytes.len()].copy_from_slice(&bytes);
            }
            3 => {
                volumes[at].trim(to as u64, length, false).await.unwrap();
                models[at][to..to + length as usize].fill(0);
            }
            4 => drop(pool.sync().await.unwrap()),
            _ => {
                let length = length as usize;
                if at == other && from < to + length && to < from + length {
                    continue;
                }
                let (source, target) = (&volumes[other], &volumes[at]);
                let clone = target.clone_range_from(source, from as u64, to as u64, length as u64);
                let done = committing(pool, clone).await.unwrap() as usize;
                shared += done as u64;
                let bytes = models[other][from..from + length].to_vec();
                target.write_at((to + done) as u64, &bytes[done..], false).await.unwrap();
                models[at][to..to + length].copy_from_slice(&bytes);
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
fn volumes_share_blocks_and_each_holds_what_it_was_given() {
    let mut disks = Disks::new(128 << 20);
    let mut models = vec![vec![0; SIZE as usize]; 2];
    let mut pool = block_on(pool_with(&disks, &[("tank/a", VOLUME), ("tank/b", VOLUME)]));
    for seed in 1..5 {
        let shared = block_on(shuffle(&pool, &mut models, seed));
        assert!(shared > 50 * BLOCK, "{shared} bytes");
        if seed == 2 {
            let snapshot = vec![NewSnapshot { name: "tank/a@s".into(), properties: Vec::new() }];
            block_on(pool.change(move |s: Syncing| async move { edit::snapshot(&s, &snapshot).await }))
                .unwrap();
            continue;
        }
        // What was flushed is there after a crash, without a commit.
        let copy = crashed(&disks);
        drop(pool);
        disks = copy;
        pool = block_on(disks.import("tank", seed + 10));
        for (volume, model) in block_on(volumes(&pool)).iter().zip(&models) {
            assert!(block_on(content(volume)) == *model, "after a crash, seed {seed}");
        }
    }
    block_on(async {
        assert!(pool.saved_by_clones() > 0);
        pool.close(PoolState::Exported).await.unwrap();
    });
    drop(pool);
    disks.judge("tank");
}
