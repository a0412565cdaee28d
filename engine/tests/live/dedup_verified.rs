//! `dedup=verify`: what is stored is read before it stands for a block, many blocks at a time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use device::simulated::{Clock, Fault, SimulatedDevice};
use device::{Device, block_on};
use engine::pool::live::{Layout, LivePool, NewLeaf, NewTop};
use engine::vdev::Class;
use engine::zpl::LiveZpl;
use ondisk::vdev_config::PoolState;

use crate::dedup::{check, create, deduplicating, open, set};
use crate::dedup_traps::{commit_groups, import, memory_disk, write};
use crate::support::{committing, surroundings};

/// What each transfer takes.
const DELAY_NS: u64 = 1_000_000;
const BLOCKS: u64 = 64;

/// A time that jumps to the end of a wait when all others had their turns. So it tells how many waits came
/// one after the other, however busy the machine is.
#[derive(Clone, Debug, Default)]
struct Jumps(Arc<AtomicU64>);

impl Clock for Jumps {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn sleep_until(&self, deadline_ns: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (now, mut turns) = (Arc::clone(&self.0), 200);
        Box::pin(poll_fn(move |context| {
            if turns == 0 {
                now.fetch_max(deadline_ns, Ordering::Relaxed);
                return Poll::Ready(());
            }
            turns -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

#[test]
fn blocks_that_are_compared_are_read_side_by_side() {
    let disk = memory_disk("/dev/d0");
    block_on(async {
        let path = disk.path().to_owned();
        let leaf = NewLeaf { device: Arc::clone(&disk), path, is_file: false, whole_disk: false };
        let tops = vec![NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] }];
        let pool = LivePool::create(deduplicating(tops, "on", true), surroundings(1)).await.unwrap();
        let zpl = open(&pool, "tank").await;
        let file = create(&zpl, "file").await;
        write(&zpl, file, 0, 0..BLOCKS).await;
        commit_groups(&pool).await;
        drop(zpl);
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    });
    let clock = Jumps::default();
    let slow = SimulatedDevice::new(disk, 1).with_clock(Arc::new(clock.clone()));
    slow.inject(Fault::Delay { range: 0..u64::MAX, delay_ns: DELAY_NS });
    block_on(async {
        let pool = import(&[Arc::new(slow) as Arc<dyn Device>]).await;
        let zpl = open(&pool, "tank").await;
        // The entries are live in both groups, so that tables are read alike.
        let waits = async |zpl: &LiveZpl, name: &str, dedup: &str| {
            committing(&pool, set(&pool, "tank", "dedup", dedup)).await;
            let file = create(zpl, name).await;
            pool.sync().await.unwrap();
            write(zpl, file, 0, 0..BLOCKS).await;
            let (before, saved) = (clock.now_ns(), pool.saved_by_clones());
            pool.sync().await.unwrap();
            assert!(pool.saved_by_clones() >= saved + BLOCKS * 4096, "{dedup}: all are found");
            (clock.now_ns() - before) / DELAY_NS
        };
        let by_checksum = waits(&zpl, "by checksum", "on").await;
        let verified = waits(&zpl, "verified", "verify").await;
        assert!(verified <= by_checksum + BLOCKS / 4, "{verified} waits, without comparing {by_checksum}");
        check(&pool).await;
        drop(zpl);
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    });
}
