//! Space comes and goes for many groups, and `zdb` finds every block of it accounted for.

use std::sync::Arc;

use device::block_on;
use engine::dmu::NewObject;
use engine::pool::live::{Layout, LivePool, Syncing};
use engine::vdev::Class;
use ondisk::ObjectId;
use ondisk::dmu::DmuType;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, new_pool, surroundings};

/// Creates and frees objects of the MOS, some hundred kilobytes of them, that nothing refers to.
async fn churn(s: Syncing, round: u64, kept: Vec<ObjectId>) -> engine::Result<Vec<ObjectId>> {
    let mut objects = kept;
    for number in 0..12u64 {
        let new = NewObject {
            dmu_type: DmuType::SPACE_MAP,
            block_size: 4096 << (number % 4),
            bonus_type: DmuType::NONE,
            bonus: Vec::new(),
            slots: 1,
        };
        let object = s.mos().allocate(&s.tx, new).await?;
        // Bytes that compress more or less well.
        let mut state = round << 32 | number;
        let bytes: Vec<u8> = (0..(number + 1) * 9000)
            .map(|at| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if at % (number + 2) == 0 { (state >> 33) as u8 } else { 0 }
            })
            .collect();
        object.write_at(&s.tx, 0, &bytes).await?;
        objects.push(object.id());
    }
    for _ in 0..10 {
        let id = objects.swap_remove((round as usize * 7) % objects.len());
        s.mos().free(&s.tx, id).await?;
    }
    Ok(objects)
}

async fn churn_for(pool: &Arc<LivePool>, rounds: u64) {
    let mut kept = Vec::new();
    for round in 0..rounds {
        kept = pool.change(move |s| churn(s, round, kept)).await.unwrap();
    }
    // Nothing of it may stay: zdb calls objects that nothing refers to leaked.
    pool.change(move |s| async move {
        for id in kept {
            s.mos().free(&s.tx, id).await?;
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// Changes a pool for many groups, twice, and judges it each time.
fn churn_and_judge(layout: Layout, count: usize, ashift: u8, more: &[Class]) {
    let disks = Disks::new(128 << 20);
    let mut tops = vec![disks.top(layout, Class::Normal, "d", count)];
    tops.extend(
        (0..).zip(more).map(|(number, class)| disks.top(Layout::Single, *class, &format!("m{number}-"), 1)),
    );
    block_on(async {
        let pool = LivePool::create(new_pool(tops, ashift), surroundings(1)).await.unwrap();
        churn_for(&pool, 15).await;
        // Not exported: what changed is in logs only.
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let (loaded, all) = pool.allocator().loaded_metaslabs();
        assert!(loaded < all, "an import reads no maps that it does not need");
        let before = pool.allocator().space(Class::Normal);
        // More groups than logs are kept for without flushing.
        churn_for(&pool, 45).await;
        for _ in 0..4 {
            pool.change(|_| async { Ok(()) }).await.unwrap();
        }
        let after = pool.allocator().space(Class::Normal);
        assert!(after.allocated_bytes < before.allocated_bytes + (4 << 20), "{before:?} {after:?}");
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn stripes_lose_no_space_in_many_groups() {
    churn_and_judge(Layout::Single, 1, 12, &[Class::Normal, Class::Normal]);
}

#[test]
fn small_sectors_lose_no_space_in_many_groups() {
    churn_and_judge(Layout::Mirror, 2, 9, &[]);
}

#[test]
fn raidz_loses_no_space_in_many_groups() {
    churn_and_judge(Layout::Raidz { nparity: 2 }, 5, 12, &[]);
}

#[test]
fn classes_lose_no_space_in_many_groups() {
    churn_and_judge(Layout::Raidz { nparity: 1 }, 3, 12, &[Class::Special, Class::Log]);
}
