//! Events: what happens to a pool is posted with OpenZFS's classes and values.

use std::sync::Arc;
use std::time::Duration;

use device::block_on;
use device::simulated::Fault as DeviceFault;
use engine::events::{Event, Events, Value};
use engine::inject::{ALWAYS, DeviceError, Fault, Operation};
use engine::pool::live::{Auxiliary, Layout, LivePool, NewTop, properties};
use engine::vdev::{Class, State};
use ondisk::vdev_config::PoolState;

use crate::faults::{committed, leaf, simulated, volume};
use crate::support::{new_pool, surroundings};

async fn mirror() -> (Vec<Arc<device::simulated::SimulatedDevice>>, Arc<LivePool>, Arc<Events>) {
    let (devices, leaves) = simulated(2);
    let top = NewTop { layout: Layout::Mirror, class: Class::Normal, leaves };
    let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
    let events = Arc::new(Events::default());
    pool.pool().vdevs().reporter().attach(&events);
    (devices, pool, events)
}

fn of_class(events: &Events, class: &str) -> Vec<Event> {
    events.since(0).events.into_iter().filter(|event| event.class == class).collect()
}

#[test]
fn a_device_that_goes_and_comes_back_is_told_with_its_states() {
    block_on(async {
        let (devices, pool, events) = mirror().await;
        let volume = volume(&pool).await;
        pool.start().unwrap();
        devices[0].inject(DeviceFault::Missing);
        volume.write_at(0, &[7; 64 << 10], false).await.unwrap();
        committed(&pool).await;
        let guid = leaf(&pool, 0).guid;
        let changes = of_class(&events, "resource.fs.zfs.statechange");
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!((changes[0].pool(), changes[0].vdev()), (Some("tank"), Some(guid)));
        let states = ["vdev_state", "vdev_laststate"].map(|name| changes[0].number(name));
        assert_eq!(states, [Some(State::Removed.number()), Some(State::Healthy.number())]);
        assert_eq!(of_class(&events, "resource.fs.zfs.removed").len(), 1);
        let errors = of_class(&events, "ereport.fs.zfs.io");
        assert!(!errors.is_empty() && errors.iter().all(|event| event.vdev() == Some(guid)));
        assert!(errors[0].number("zio_err") == Some(5) && errors[0].number("parent_guid").is_some());
        let counts = ["vdev_read_errors", "vdev_write_errors"].map(|name| errors[0].number(name));
        assert_eq!(counts.map(Option::unwrap_or_default).iter().sum::<u64>(), 1, "itself included");
        assert!(pool.devices_that_are_back().await.is_empty());

        devices[0].heal();
        assert_eq!(pool.devices_that_are_back().await, [guid]);
        assert_eq!(pool.online(guid).await.unwrap().state, State::Healthy);
        assert_eq!(of_class(&events, "sysevent.fs.zfs.vdev_online").len(), 1);
        let changes = of_class(&events, "resource.fs.zfs.statechange");
        assert_eq!(changes.last().unwrap().number("vdev_state"), Some(State::Healthy.number()));
        committed(&pool).await;
        assert!(!of_class(&events, "sysevent.fs.zfs.config_sync").is_empty());
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn changes_of_datasets_are_history_events() {
    block_on(async {
        let (_, pool, events) = mirror().await;
        volume(&pool).await;
        let made = of_class(&events, "sysevent.fs.zfs.history_event");
        let created = made.iter().find(|event| event.text("history_dsname").is_some()).unwrap();
        assert_eq!(created.text("history_internal_name"), Some("create"));
        assert_eq!(created.text("history_dsname"), Some("tank/vol"));
        assert!(created.number("history_txg").is_some_and(|txg| txg > 0));
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn properties_of_the_pool_are_history_events() {
    block_on(async {
        let (_, pool, events) = mirror().await;
        pool.start().unwrap();
        pool.change(|s| async move { properties::set(&s, "comment", "of mine").await }).await.unwrap();
        let made = of_class(&events, "sysevent.fs.zfs.history_event");
        let set = made.iter().find(|event| event.text("history_internal_name") == Some("set")).unwrap();
        assert_eq!(set.text("history_internal_str"), Some("comment=of mine"));
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn a_pool_that_is_suspended_says_so() {
    block_on(async {
        let (devices, pool, events) = mirror().await;
        let volume = volume(&pool).await;
        pool.start().unwrap();
        devices.iter().for_each(|device| device.inject(DeviceFault::Missing));
        volume.write_at(0, &[7; 64 << 10], false).await.unwrap();
        pool.txgs().kick();
        while pool.suspended().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(of_class(&events, "ereport.fs.zfs.io_failure").len(), 1);
        devices.iter().for_each(|device| device.heal());
        pool.clear(None).await.unwrap();
        committed(&pool).await;
        // One for each device that was given up; nothing of that happens to those that are there.
        assert_eq!(of_class(&events, "sysevent.fs.zfs.vdev_clear").len(), 2);
        pool.clear(None).await.unwrap();
        assert_eq!(of_class(&events, "sysevent.fs.zfs.vdev_clear").len(), 2);
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn slow_transfers_degrade_a_device_where_its_properties_say_so() {
    block_on(async {
        let (_, pool, events) = mirror().await;
        let volume = volume(&pool).await;
        let slow = leaf(&pool, 1).guid;
        for (name, value) in [("slow_io_n", "3"), ("slow_io_t", "600")] {
            let set = pool.change(move |s| async move {
                engine::pool::live::properties::set_of_vdev(&s, slow, name, value).await
            });
            set.await.unwrap();
        }
        let thresholds = leaf(&pool, 1).errors.thresholds();
        assert_eq!(thresholds.slow.map(|slow| slow.count), Some(3));
        assert_eq!(leaf(&pool, 0).errors.thresholds().slow, None);
        pool.start().unwrap();
        engine::tunables::ZIO_SLOW_IO_MS.set(40).expect("in range");
        let operation = Operation::Write;
        let delay =
            Fault::Delay { leaf: slow.get(), latency: Duration::from_millis(50), lanes: 4, operation };
        let id = pool.inject(delay, ALWAYS).unwrap();
        for round in 0..6 {
            volume.write_at(0, &[round; 64 << 10], false).await.unwrap();
            committed(&pool).await;
        }
        engine::tunables::ZIO_SLOW_IO_MS.reset();
        assert_eq!(pool.clear_injections(Some(id)), 1);
        assert!(!of_class(&events, "ereport.fs.zfs.delay").is_empty());
        assert_eq!(leaf(&pool, 1).status().state, State::Degraded);
        assert_eq!(leaf(&pool, 0).status().state, State::Healthy);
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn errors_in_the_same_place_are_told_once_until_they_are_cleared() {
    block_on(async {
        let (_, pool, events) = mirror().await;
        let volume = volume(&pool).await;
        volume.write_at(0, &[7; 16 << 10], false).await.unwrap();
        pool.sync().await.unwrap();
        let fault = |leaf: u64| Fault::Device {
            leaf,
            error: DeviceError::Checksum,
            operation: Operation::Read,
            label: None,
        };
        for index in 0..2 {
            pool.inject(fault(leaf(&pool, index).guid.get()), ALWAYS).unwrap();
        }
        let mut bytes = vec![0; 16 << 10];
        for _ in 0..3 {
            pool.flush_cache();
            volume.read_at(0, &mut bytes).await.unwrap_err();
        }
        let errors = of_class(&events, "ereport.fs.zfs.checksum");
        assert_eq!(errors.len(), 2, "{errors:?}");
        let counted: Vec<u64> = pool.pool().vdevs().leaves().map(|leaf| leaf.errors.checksum()).collect();
        assert_eq!(counted, [1, 1], "the counters agree with the events");
        assert!(errors.iter().all(|event| event.number("zio_object") == Some(1)));
        assert!(errors[0].number("zio_err") == Some(52) && errors[0].number("zio_size") == Some(16 << 10));
        let data = of_class(&events, "ereport.fs.zfs.data");
        assert_eq!((data.len(), data[0].number("zio_blkid")), (1, Some(0)));
        assert!(matches!(data[0].get("detector"), Some(Value::Nested(_))));
        pool.clear(None).await.unwrap();
        pool.flush_cache();
        volume.read_at(0, &mut bytes).await.unwrap_err();
        assert_eq!(of_class(&events, "ereport.fs.zfs.checksum").len(), 4);
        pool.clear_injections(None);
        volume.read_at(0, &mut bytes).await.unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn other_spares_are_another_configuration() {
    block_on(async {
        let (_, pool, events) = mirror().await;
        pool.start().unwrap();
        committed(&pool).await;
        let before = of_class(&events, "sysevent.fs.zfs.config_sync").len();
        let (_, leaves) = simulated(1);
        pool.add_auxiliary(Auxiliary::Spares, leaves).await.unwrap();
        assert_eq!(of_class(&events, "sysevent.fs.zfs.config_sync").len(), before + 1);
        pool.close(PoolState::Exported).await.unwrap();
    });
}
