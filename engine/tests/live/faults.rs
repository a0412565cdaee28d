//! Devices that fail while a pool is written: it goes on while it can, waits where it must, and takes them
//! back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::simulated::{Fault, SimulatedDevice};
use device::{Device, IoBuf, IoFuture, MemoryDevice, SectorSizes, block_on};
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::{Layout, LivePool, NewLeaf, NewTop, TakeOffline};
use engine::vdev::{Class, State, Vdev};
use engine::zvol::LiveZvol;
use ondisk::vdev_config::PoolState;

use crate::support::{Disks, new_pool, surroundings};

const MIB: u64 = 1 << 20;

/// Devices in memory that can be made to fail.
pub fn simulated(count: u64) -> (Vec<Arc<SimulatedDevice>>, Vec<NewLeaf>) {
    let device = |seed| {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("<memory>", 80 << 20));
        Arc::new(SimulatedDevice::new(memory, seed))
    };
    let devices: Vec<_> = (0..count).map(device).collect();
    let leaf = |device: &Arc<SimulatedDevice>| NewLeaf {
        device: Arc::clone(device) as Arc<dyn Device>,
        path: "<memory>".into(),
        is_file: true,
        whole_disk: false,
    };
    let leaves = devices.iter().map(leaf).collect();
    (devices, leaves)
}

pub async fn volume(pool: &Arc<LivePool>) -> Arc<LiveZvol> {
    volume_of(pool, 8 * MIB).await
}

async fn volume_of(pool: &Arc<LivePool>, size: u64) -> Arc<LiveZvol> {
    let new = NewDataset {
        name: "tank/vol".into(),
        contents: NewContents::Volume { size, sparse: true },
        properties: vec![("compression".into(), "off".into())],
    };
    let id = pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
    let dataset = pool.dataset(id).await.unwrap();
    LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.unwrap()
}

pub async fn committed(pool: &Arc<LivePool>) {
    pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
}

pub fn leaf(pool: &LivePool, index: usize) -> &Vdev {
    pool.pool().vdevs().leaves().nth(index).unwrap()
}

fn states(pool: &LivePool) -> Vec<State> {
    pool.pool().vdevs().tops.iter().flat_map(Vdev::walk).map(|vdev| vdev.status().state).collect()
}

async fn holds(volume: &LiveZvol, at: u64, byte: u8) {
    let mut read = vec![0; 64 << 10];
    volume.read_at(at, &mut read).await.unwrap();
    assert!(read.iter().all(|read| *read == byte), "{byte} at {at}");
}

#[test]
fn a_mirror_goes_on_without_a_device_that_is_gone_and_knows_what_it_missed() {
    block_on(async {
        let (devices, leaves) = simulated(2);
        let top = NewTop { layout: Layout::Mirror, class: Class::Normal, leaves };
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        let volume = volume(&pool).await;
        devices[0].inject(Fault::Missing);
        pool.start().unwrap();
        volume.write_at(0, &[7; 64 << 10], false).await.unwrap();
        committed(&pool).await;
        assert_eq!(states(&pool), [State::Degraded, State::Removed, State::Healthy]);
        assert!(!leaf(&pool, 0).missing_txgs.is_empty() && leaf(&pool, 1).missing_txgs.is_empty());
        let error = pool.offline(leaf(&pool, 1).guid, TakeOffline::Persistently).await.unwrap_err();
        assert_eq!(error.to_string(), "no valid replicas");
        // What it was told stands in the configuration, so that the next import knows too.
        committed(&pool).await;
        let view = pool.view();
        let told = view.config().vdev_tree.as_ref().unwrap().leaves();
        assert!(told[0].removed && told[0].dtl_object.is_some() && !told[1].removed);
        drop(view);

        devices[0].heal();
        pool.clear(None).await.unwrap();
        assert_eq!(states(&pool), [State::Healthy; 3]);
        assert_eq!(leaf(&pool, 0).errors.write(), 0);
        // It is back, and yet not relied on for what it missed.
        assert!(!leaf(&pool, 0).missing_txgs.is_empty());
        assert!(pool.offline(leaf(&pool, 1).guid, TakeOffline::Temporarily).await.is_err());
        volume.write_at(MIB, &[8; 64 << 10], false).await.unwrap();
        committed(&pool).await;
        holds(&volume, 0, 7).await;
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn a_pool_without_redundancy_waits_for_its_device_and_loses_nothing() {
    block_on(async {
        let (devices, leaves) = simulated(1);
        let top = NewTop { layout: Layout::Single, class: Class::Normal, leaves };
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        let volume = volume(&pool).await;
        pool.start().unwrap();
        volume.write_at(0, &[1; 64 << 10], true).await.unwrap();
        devices[0].inject(Fault::Missing);
        volume.write_at(MIB, &[2; 64 << 10], false).await.unwrap();
        let open = pool.txgs().open_txg();
        pool.txgs().kick();
        while pool.suspended().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(states(&pool), [State::Removed]);
        // Still there: it is only cleared in vain.
        pool.clear(None).await.unwrap();
        while pool.suspended().is_none() {
            std::thread::yield_now();
        }
        holds(&volume, MIB, 2).await;
        assert!(pool.txgs().synced_txg() < open);

        devices[0].heal();
        pool.clear(None).await.unwrap();
        pool.txgs().wait_synced(open).await.unwrap();
        assert!(pool.suspended().is_none());
        assert_eq!(states(&pool), [State::Healthy]);
        assert!(leaf(&pool, 0).missing_txgs.is_empty(), "all that failed was written again");
        holds(&volume, 0, 1).await;
        holds(&volume, MIB, 2).await;
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn what_has_no_place_because_a_device_is_away_waits_for_it_too() {
    block_on(async {
        let (devices, leaves) = simulated(1);
        let top = NewTop { layout: Layout::Single, class: Class::Normal, leaves };
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        let volume = volume_of(&pool, 40 * MIB).await;
        pool.start().unwrap();
        // Several batches: when the first could not be written, the device is given up, and there is no room
        // for the others.
        for at in 0..40 {
            volume.write_at(at * MIB, &vec![at as u8 + 1; MIB as usize], false).await.unwrap();
        }
        let open = pool.txgs().open_txg();
        devices[0].inject(Fault::Missing);
        pool.txgs().kick();
        while pool.suspended().is_none() {
            std::thread::yield_now();
        }
        let why = pool.suspended().unwrap().0.to_string();
        assert!(why.contains("<memory>"), "{why}");
        devices[0].heal();
        pool.clear(None).await.unwrap();
        pool.txgs().wait_synced(open).await.unwrap();
        for at in 0..40 {
            holds(&volume, at * MIB, at as u8 + 1).await;
        }
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn a_suspended_pool_can_be_given_up() {
    block_on(async {
        let (devices, leaves) = simulated(1);
        let top = NewTop { layout: Layout::Single, class: Class::Normal, leaves };
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        pool.start().unwrap();
        devices[0].inject(Fault::Missing);
        pool.txgs().kick();
        while pool.suspended().is_none() {
            std::thread::yield_now();
        }
        let users = |device: &Arc<SimulatedDevice>| Arc::strong_count(device);
        assert!(users(&devices[0]) > 1);
        pool.abandon("it was tried");
        let waited = pool.txgs().wait_synced(pool.txgs().open_txg()).await;
        let told = waited.unwrap_err().to_string();
        assert!(told.contains("pool 'tank' was given up: ") && told.contains("missing"), "{told}");
        assert!(pool.close(PoolState::Exported).await.is_err());
        assert_eq!(users(&devices[0]), 1, "others can have it");
    });
}

#[test]
fn who_must_not_wait_for_devices_gets_the_error() {
    block_on(async {
        let (devices, leaves) = simulated(1);
        let top = NewTop { layout: Layout::Single, class: Class::Normal, leaves };
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        let volume = volume(&pool).await;
        pool.start().unwrap();
        pool.never_wait();
        volume.write_at(0, &[1; 64 << 10], false).await.unwrap();
        devices[0].inject(Fault::Missing);
        let told = volume.flush().await.unwrap_err().to_string();
        assert!(told.contains("missing"), "{told}");
        assert!(volume.write_at(0, &[1; 64 << 10], false).await.is_err());
        assert!(pool.close(PoolState::Exported).await.is_err());
    });
}

/// A device whose writes can be made to panic.
#[derive(Debug)]
struct Panicking {
    device: MemoryDevice,
    panics: AtomicBool,
}

impl Device for Panicking {
    fn path(&self) -> &Path {
        self.device.path()
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn sector_sizes(&self) -> SectorSizes {
        self.device.sector_sizes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        self.device.read(offset, len)
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        assert!(!self.panics.load(Ordering::Relaxed), "on purpose");
        self.device.write(offset, data)
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.device.discard(offset, len)
    }
}

#[test]
fn a_panic_while_a_group_is_committed_stops_the_pool() {
    let device = MemoryDevice::new("<memory>", 80 << 20);
    let device = Arc::new(Panicking { device, panics: AtomicBool::new(false) });
    let leaf = NewLeaf {
        device: Arc::clone(&device) as Arc<dyn Device>,
        path: "<memory>".into(),
        is_file: true,
        whole_disk: false,
    };
    let top = NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] };
    block_on(async {
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        let volume = volume(&pool).await;
        pool.start().unwrap();
        volume.write_at(0, &[1; 64 << 10], false).await.unwrap();
        device.panics.store(true, Ordering::Relaxed);
        // One by way of the intent log, one for the group.
        for waited in [volume.flush().await, pool.txgs().wait_synced(pool.txgs().open_txg()).await] {
            let told = waited.unwrap_err().to_string();
            assert_eq!(told, "the thread that commits ended with a panic: on purpose");
        }
        assert!(volume.write_at(0, &[1; 64 << 10], false).await.is_err());
        assert!(pool.suspended().is_some());
        assert!(pool.close(PoolState::Exported).await.is_err());
        assert_eq!(Arc::strong_count(&device), 1, "others can have it");
    });
}

#[test]
fn a_device_that_fails_again_and_again_is_given_up() {
    block_on(async {
        let (devices, leaves) = simulated(3);
        let top = NewTop { layout: Layout::Raidz { nparity: 1 }, class: Class::Normal, leaves };
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        let volume = volume(&pool).await;
        pool.start().unwrap();
        // Its labels can be written, nothing else.
        devices[1].inject(Fault::WriteError(4 * MIB..79 * MIB));
        for at in 0..8 {
            volume.write_at(at * MIB, &vec![9; MIB as usize], false).await.unwrap();
            committed(&pool).await;
        }
        assert_eq!(states(&pool), [State::Degraded, State::Healthy, State::Faulted, State::Healthy]);
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn a_device_that_was_offline_is_not_believed_after_an_import() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        let written = volume(&pool).await;
        pool.start().unwrap();
        written.write_at(0, &[1; 64 << 10], false).await.unwrap();
        committed(&pool).await;
        pool.offline(leaf(&pool, 0).guid, TakeOffline::Persistently).await.unwrap();
        written.write_at(0, &[2; 64 << 10], false).await.unwrap();
        committed(&pool).await;
        drop(written);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        assert_eq!(states(&pool), [State::Degraded, State::Offline, State::Healthy]);
        let status = pool.online(leaf(&pool, 0).guid).await.unwrap();
        assert_eq!(status.state, State::Healthy);
        committed(&pool).await;
        assert!(!leaf(&pool, 0).missing_txgs.is_empty());
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
