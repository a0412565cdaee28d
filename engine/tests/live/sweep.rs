//! Going through free space: what is done to it, and to nothing else, and that it goes on where it was.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::jobs::{JobState, JobStatus, Stop};
use engine::pool::live::{Layout, LivePool, Sweep, sweeps_of};
use engine::vdev::{Class, LABEL_START_BYTES};
use engine::zvol::LiveZvol;
use ondisk::Guid;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, new_pool, objset_of, surroundings};
use crate::trim::{MIB, commit, fill, holds, volume};

const PATTERN: [u8; 8] = 0xdead_beef_dead_beeeu64.to_le_bytes();

fn leaves(pool: &LivePool) -> Vec<Guid> {
    pool.pool().vdevs().leaves().map(|leaf| leaf.guid).collect()
}

/// Waits until nothing is active.
async fn settle(pool: &LivePool) {
    pool.wait_for_jobs(|_, state| state == JobState::Active).await;
}

fn states(runs: impl IntoIterator<Item = JobStatus>) -> Vec<JobState> {
    runs.into_iter().map(|run| run.state).collect()
}

/// Bytes of a file that hold the pattern.
fn patterned(disks: &Disks, name: &str) -> u64 {
    let file = std::fs::File::open(disks.path().join(name)).unwrap();
    let mut block = vec![0; 64 << 10];
    let mut at = LABEL_START_BYTES;
    let mut bytes = 0;
    while file.read_exact_at(&mut block, at).is_ok() {
        bytes += 8 * block.chunks_exact(8).filter(|word| *word == PATTERN).count() as u64;
        at += block.len() as u64;
    }
    bytes
}

async fn reopened(pool: &Arc<LivePool>) -> Arc<LiveZvol> {
    let dataset = pool.dataset(objset_of(pool, "kept").await.unwrap()).await.unwrap();
    LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.unwrap()
}

#[test]
fn what_is_free_is_initialized_and_nothing_else() {
    for (layout, count) in [(Layout::Single, 1), (Layout::Mirror, 2), (Layout::Raidz { nparity: 1 }, 3)] {
        let disks = Disks::new(96 * MIB);
        block_on(async {
            let new = new_pool(vec![disks.top(layout, Class::Normal, "d", count)], 12);
            let pool = LivePool::create(new, surroundings(1)).await.unwrap();
            pool.start().unwrap();
            let kept = volume(&pool, "kept").await;
            fill(&kept, 16, 7).await;
            commit(&pool, 4).await;
            pool.sweep(Sweep::Initialize, &leaves(&pool), 0).await.unwrap();
            let again = pool.sweep(Sweep::Initialize, &leaves(&pool), 0).await;
            settle(&pool).await;
            assert!(again.is_ok() || again.unwrap_err().to_string().contains("currently initializing"));
            settle(&pool).await;
            let runs = pool.sweeps();
            assert_eq!(states(runs.values().copied()), vec![JobState::Complete; count], "{layout:?}");
            assert!(runs.values().all(|run| run.done == run.total));
            for number in 0..count {
                let bytes = patterned(&disks, &format!("d{number}"));
                assert!(bytes > 48 * MIB && bytes < 80 * MIB, "{layout:?}: {bytes} bytes");
            }
            holds(&kept, 16, 7).await;
            drop(kept);
            pool.close(PoolState::Exported).await.unwrap();
        });
        disks.judge("tank");
        block_on(async {
            let pool = disks.import("tank", 2).await;
            pool.start().unwrap();
            let kept = reopened(&pool).await;
            holds(&kept, 16, 7).await;
            drop(kept);
            let stored = sweeps_of(&Dsl::open(&pool.view()).await.unwrap()).await.unwrap();
            assert_eq!(states(stored.into_values()), vec![JobState::Complete; count], "{layout:?}");
            pool.uninitialize(&leaves(&pool)).await.unwrap();
            assert!(sweeps_of(&Dsl::open(&pool.view()).await.unwrap()).await.unwrap().is_empty());
            pool.close(PoolState::Exported).await.unwrap();
        });
    }
}

#[test]
fn what_is_suspended_or_under_way_goes_on_where_it_was_when_the_pool_is_opened_again() {
    for (layout, count) in [(Layout::Mirror, 2), (Layout::Raidz { nparity: 1 }, 3)] {
        let disks = Disks::new(96 * MIB);
        block_on(async {
            let new = new_pool(vec![disks.top(layout, Class::Normal, "d", count)], 12);
            let pool = LivePool::create(new, surroundings(1)).await.unwrap();
            pool.start().unwrap();
            // So slow that it does not end.
            let all = leaves(&pool);
            pool.sweep(Sweep::Trim, &all, MIB).await.unwrap();
            while pool.sweeps().values().any(|run| run.done == 0) {
                std::thread::yield_now();
            }
            assert_eq!(pool.stop_sweep(Sweep::Trim, &all[..1], Stop::Suspend).await.unwrap(), 1);
            assert_eq!(pool.stop_sweep(Sweep::Trim, &all[..1], Stop::Suspend).await.unwrap(), 0);
            pool.close(PoolState::Exported).await.unwrap();
        });
        disks.judge("tank");
        block_on(async {
            let pool = disks.import("tank", 2).await;
            let before = pool.sweeps();
            let of = |leaf: usize| before[&(Sweep::Trim, leaves(&pool)[leaf])];
            assert_eq!((of(0).state, of(1).state), (JobState::Suspended, JobState::Active), "{layout:?}");
            assert!(of(1).done > 0 && of(1).done < of(1).total && of(1).rate_limit == MIB);
            pool.start().unwrap();
            let all = leaves(&pool);
            assert_eq!(pool.stop_sweep(Sweep::Trim, &all, Stop::Cancel).await.unwrap(), count);
            pool.sweep(Sweep::Trim, &all, 0).await.unwrap();
            settle(&pool).await;
            assert_eq!(states(pool.sweeps().into_values()), vec![JobState::Complete; count]);
            pool.close(PoolState::Exported).await.unwrap();
        });
        disks.judge("tank");
    }
}
