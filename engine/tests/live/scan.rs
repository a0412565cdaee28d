//! A scrub that OpenZFS left unfinished.

use device::block_on;
use engine::dmu::zap::{self, edit};
use engine::dsl::Dsl;
use engine::pool::live::{Layout, LivePool};
use engine::pool::status::{self, Progress, ScanKind};
use engine::vdev::Class;
use ondisk::ObjectId;
use ondisk::dmu::DmuType;
use ondisk::pool_directory::SCAN;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, new_pool, surroundings};

/// The state of a scan in the pool directory, and how many datasets are in its queue.
async fn scan(pool: &std::sync::Arc<LivePool>) -> (Vec<u64>, usize) {
    pool.change(|s| async move {
        let directory = s.mos().object(ondisk::pool_directory::DIRECTORY_OBJECT).await?;
        let Some(zap::Value::U64(words)) = edit::lookup(&directory, &zap::Key::Name(SCAN.into())).await?
        else {
            panic!("no scan");
        };
        let queue = zap::Zap::open(&s.mos().view().object(ObjectId(words[2])).await?).await?;
        Ok((words, queue.entries(100).await?.len()))
    })
    .await
    .unwrap()
}

#[test]
fn it_begins_anew_when_the_pool_is_written() {
    let disks = Disks::new(64 << 20);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        // As OpenZFS leaves it in the middle of a dataset.
        pool.change(|s| async move {
            let queue = s.create_zap(DmuType::SCAN_QUEUE).await?;
            edit::set_u64(&queue, &s.tx, "36", 4).await?;
            let mut words = vec![0; 24];
            (words[0], words[1], words[2], words[4], words[6], words[7]) =
                (1, 1, queue.id().get(), 4, 4, 1234);
            (words[9], words[10], words[14]) = (1 << 20, 1 << 19, 2);
            (words[19], words[20], words[22], words[23]) = (54, 2, 7, 1 << 2 | 1);
            s.set_in_directory(SCAN, zap::Value::U64(words)).await
        })
        .await
        .unwrap();
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        let (words, queued) = scan(&pool).await;
        assert_eq!(queued, 0);
        assert_eq!((words[0], words[1], words[9], words[14], words[23]), (1, 1, 1 << 20, 2, 1 << 2));
        assert!(words[4] > 4 && words[7] != 1234, "{words:?}");
        assert!(words[10..14].iter().chain(&words[15..23]).all(|word| *word == 0), "no position: {words:?}");
        let health = status::health(&Dsl::open(&pool.view()).await.unwrap()).await.unwrap();
        let told = health.scan.unwrap();
        assert_eq!((told.kind, told.state, told.examined), (ScanKind::Scrub, Progress::Running, 0));
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
