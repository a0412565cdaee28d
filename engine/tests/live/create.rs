//! New pools of every layout.

use device::block_on;
use engine::pool::live::{Layout, LivePool};
use engine::vdev::Class;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, new_pool, surroundings};

fn create_and_judge(layout: Layout, count: usize, ashift: u8) {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let new = new_pool(vec![disks.top(layout, Class::Normal, "d", count)], ashift);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        for _ in 0..4 {
            pool.sync().await.unwrap();
        }
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_new_stripe_is_a_valid_pool() {
    create_and_judge(Layout::Single, 1, 12);
}

#[test]
fn a_new_mirror_is_a_valid_pool() {
    create_and_judge(Layout::Mirror, 2, 9);
}

#[test]
fn a_new_raidz_is_a_valid_pool() {
    create_and_judge(Layout::Raidz { nparity: 1 }, 3, 12);
    create_and_judge(Layout::Raidz { nparity: 2 }, 5, 9);
    create_and_judge(Layout::Raidz { nparity: 3 }, 5, 13);
}

#[test]
fn a_pool_that_got_more_vdevs_is_valid_and_has_their_space() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        let before = pool.allocator().usable_bytes();
        let more = vec![
            disks.top(Layout::Mirror, Class::Normal, "e", 2),
            disks.top(Layout::Single, Class::Log, "log", 1),
        ];
        pool.add(more, Some(12)).await.unwrap();
        assert!(pool.allocator().usable_bytes() > before);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        assert_eq!(pool.pool().vdevs().tops.len(), 3);
        pool.sync().await.unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
