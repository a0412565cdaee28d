//! Multihost protection: two hosts that see the same devices.

use std::sync::Arc;
use std::time::Duration;

use device::block_on;
use engine::env::{Env, Multihost, System};
use engine::pool::import::{ImportError, ImportOptions};
use engine::pool::live::{Layout, LivePool, Surroundings, properties};
use engine::pool::{discovery, import};
use engine::txg::Limits;
use engine::vdev::Class;

use crate::support::{Disks, new_pool};

const MIB: u64 = 1 << 20;

/// A world in which little time is enough.
#[derive(Debug)]
struct Quick;

impl Env for Quick {
    fn now(&self) -> Duration {
        System.now()
    }

    fn random(&self) -> u64 {
        System.random()
    }

    fn multihost(&self) -> Multihost {
        Multihost { interval: Duration::from_millis(300), fail_intervals: 3, import_intervals: 2 }
    }
}

fn host(id: u64) -> Surroundings {
    Surroundings {
        env: Arc::new(Quick),
        cache: None,
        limits: Limits::default(),
        host: (id, format!("host-{id}")),
    }
}

async fn protected(disks: &Disks) -> Arc<LivePool> {
    let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
    let pool = LivePool::create(new, host(1)).await.unwrap();
    pool.start().unwrap();
    pool.change(|s| async move { properties::set(&s, "multihost", "on").await }).await.unwrap();
    pool
}

fn options(host_id: u64) -> ImportOptions {
    ImportOptions { host_id, force: true, ..ImportOptions::default() }
}

#[test]
fn a_pool_that_is_marked_as_in_use_is_not_imported_even_by_force() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let pool = protected(&disks).await;
        let found = discovery::scan(&[disks.path()]).await.unwrap();
        let found = import::select(found, "tank").unwrap();
        let error = LivePool::import(&found, &options(2), host(2)).await.unwrap_err();
        assert!(matches!(error, ImportError::Active { host_id: 1, .. }), "{error}");
        assert!(error.to_string().contains("pool is imported on host 'host-1'"), "{error}");
        let error = LivePool::import(&found, &options(0), host(2)).await.unwrap_err();
        assert!(matches!(error, ImportError::NoHostId(_)), "{error}");
        // Its host goes down.
        pool.abandon("its host goes down");
        assert!(pool.close(ondisk::vdev_config::PoolState::Exported).await.is_err());
        drop((pool, found));
        let found = disks.found("tank").await;
        let pool = LivePool::import(&found, &options(2), host(2)).await.unwrap();
        pool.start().unwrap();
        assert!(pool.view().uberblock().is_multihost());
        pool.close(ondisk::vdev_config::PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_host_that_cannot_mark_its_pool_does_not_write_it() {
    use device::simulated::{Fault, SimulatedDevice};
    use device::{Device, MemoryDevice};
    use engine::pool::live::{NewLeaf, NewTop};

    block_on(async {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("<memory>", 80 << 20));
        let device = Arc::new(SimulatedDevice::new(memory, 1));
        let leaf = NewLeaf {
            device: Arc::clone(&device) as Arc<dyn Device>,
            path: "<memory>".into(),
            is_file: true,
            whole_disk: false,
        };
        let top = NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] };
        let pool = LivePool::create(new_pool(vec![top], 12), host(1)).await.unwrap();
        pool.start().unwrap();
        pool.change(|s| async move { properties::set(&s, "multihost", "on").await }).await.unwrap();
        // Labels cannot be written, all else can.
        device.inject(Fault::WriteError(0..MIB / 2));
        device.inject(Fault::WriteError(79 * MIB..80 * MIB));
        while pool.suspended().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        device.heal();
        let open = pool.txgs().open_txg();
        assert!(pool.txgs().wait_synced(open).await.is_err(), "it may be another host's by now");
        assert!(pool.clear(None).await.is_err());
    });
}
