//! Faults on demand: each leads to what it says, and to nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::block_on;
use engine::inject::{ALWAYS, BlockError, Blocks, DeviceError, Fault, Flip, LabelPart, Operation};
use engine::pool::live::{Layout, LivePool, ScrubRange};
use engine::vdev::{Class, State};
use engine::zvol::LiveZvol;
use ondisk::ObjsetId;
use ondisk::vdev_config::PoolState;

use crate::faults::{committed, leaf, volume};
use crate::scrub::scrubbed;
use crate::support::{Disks, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 16 << 10;

async fn pool(disks: &Disks, layout: Layout, count: usize) -> (Arc<LivePool>, Arc<LiveZvol>) {
    let top = disks.top(layout, Class::Normal, "d", count);
    let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
    let volume = volume(&pool).await;
    for block in 0..4 {
        volume.write_at(block * BLOCK as u64, &[block as u8 + 1; BLOCK], false).await.unwrap();
    }
    pool.start().unwrap();
    committed(&pool).await;
    (pool, volume)
}

async fn read(pool: &LivePool, volume: &LiveZvol, block: u64) -> Option<Vec<u8>> {
    pool.flush_cache();
    let mut bytes = vec![0; BLOCK];
    volume.read_at(block * BLOCK as u64, &mut bytes).await.ok().map(|_| bytes)
}

fn wrong_bits(block: u64, bytes: &[u8]) -> u32 {
    bytes.iter().map(|byte| (byte ^ (block as u8 + 1)).count_ones()).sum()
}

fn blocks(objset: ObjsetId, range: (u64, u64)) -> Blocks {
    Blocks { objset: objset.get(), object: Some(1), level: Some(0), blocks: range, copies: 0 }
}

fn device(leaf: u64, error: DeviceError, operation: Operation) -> Fault {
    Fault::Device { leaf, error, operation, label: None }
}

#[test]
fn a_device_with_errors_is_made_up_for_and_given_up() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let (pool, volume) = pool(&disks, Layout::Mirror, 2).await;
        let guid = leaf(&pool, 0).guid.get();
        for (error, operation) in [
            (DeviceError::Io, Operation::Read),
            (DeviceError::Checksum, Operation::Read),
            (DeviceError::Corrupt, Operation::Read),
            (DeviceError::Nxio, Operation::Read),
        ] {
            let id = pool.inject(device(guid, error, operation), ALWAYS).unwrap();
            let before = (leaf(&pool, 0).errors.read(), leaf(&pool, 0).errors.checksum());
            // The other child is not asked first.
            leaf(&pool, 1).in_flight.fetch_add(1 << 20, std::sync::atomic::Ordering::Relaxed);
            for block in 0..4 {
                assert_eq!(wrong_bits(block, &read(&pool, &volume, block).await.unwrap()), 0);
            }
            leaf(&pool, 1).in_flight.fetch_sub(1 << 20, std::sync::atomic::Ordering::Relaxed);
            let after = (leaf(&pool, 0).errors.read(), leaf(&pool, 0).errors.checksum());
            assert_ne!(before, after, "{error:?}");
            assert!(pool.injections()[0].counts().1 > 0);
            assert_eq!(pool.clear_injections(Some(id)), 1);
            pool.repairs_done().await;
            // Otherwise the same places would not be counted again.
            pool.clear(None).await.unwrap();
        }
        // Writes too, and the probe: it is given up.
        pool.inject(device(guid, DeviceError::Io, Operation::All), ALWAYS).unwrap();
        pool.inject(device(guid, DeviceError::Io, Operation::Probe), ALWAYS).unwrap();
        volume.write_at(0, &[1; BLOCK], false).await.unwrap();
        committed(&pool).await;
        committed(&pool).await;
        assert_eq!(leaf(&pool, 0).status().state, State::Faulted);
        pool.clear_injections(None);
        pool.clear(None).await.unwrap();
        assert_eq!(leaf(&pool, 0).status().state, State::Healthy);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn devices_that_fail_together_are_used_on_and_one_that_fails_alone_is_not() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let (pool, volume) = pool(&disks, Layout::Raidz { nparity: 1 }, 4).await;
        let guids: Vec<u64> = (0..4).map(|index| leaf(&pool, index).guid.get()).collect();
        for guid in &guids {
            pool.inject(device(*guid, DeviceError::Io, Operation::All), ALWAYS).unwrap();
        }
        for block in (0..4).cycle().take(60) {
            assert!(read(&pool, &volume, block).await.is_none());
            pool.diagnose().await;
        }
        // Reading ends at the block that leads to the others, which is on some of the devices only. A place
        // counts once, however often it fails.
        let has_errors = |index: &usize| leaf(&pool, *index).errors.read() > 0;
        assert!((0..4).filter(has_errors).count() > 1, "none of them fails alone");
        assert!((0..4).all(|index| leaf(&pool, index).status().state == State::Healthy));
        pool.clear_injections(None);
        assert_eq!(wrong_bits(0, &read(&pool, &volume, 0).await.unwrap()), 0);
        pool.clear(None).await.unwrap();

        pool.inject(device(guids[0], DeviceError::Io, Operation::All), ALWAYS).unwrap();
        for block in (0..4).cycle().take(60) {
            assert_eq!(wrong_bits(block, &read(&pool, &volume, block).await.unwrap()), 0);
            pool.diagnose().await;
        }
        let states: Vec<State> = (0..4).map(|index| leaf(&pool, index).status().state).collect();
        assert_eq!(states, [State::Faulted, State::Healthy, State::Healthy, State::Healthy]);
        pool.clear_injections(None);
        pool.clear(None).await.unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_device_that_is_gone_comes_back_when_that_is_cleared() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let (pool, volume) = pool(&disks, Layout::Mirror, 2).await;
        let guid = leaf(&pool, 1).guid;
        let id = pool.inject(Fault::Gone { leaf: guid.get() }, ALWAYS).unwrap();
        volume.write_at(0, &[1; BLOCK], false).await.unwrap();
        committed(&pool).await;
        committed(&pool).await;
        assert_eq!(leaf(&pool, 1).status().state, State::Removed);
        assert!(pool.devices_that_are_back().await.is_empty());
        assert!(!pool.online(guid).await.unwrap().is_readable(), "it is still gone");
        pool.clear_injections(Some(id));
        assert_eq!(pool.devices_that_are_back().await, [guid]);
        assert!(pool.online(guid).await.unwrap().is_readable());
        committed(&pool).await;
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn transfers_take_as_long_as_their_lanes_say() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let (pool, volume) = pool(&disks, Layout::Single, 1).await;
        let latency = Duration::from_millis(20);
        let (leaf, operation) = (leaf(&pool, 0).guid.get(), Operation::Read);
        let id = pool.inject(Fault::Delay { leaf, latency, lanes: 1, operation }, ALWAYS).unwrap();
        pool.flush_cache();
        let started = Instant::now();
        let mut all = vec![0; 4 * BLOCK];
        volume.read_at(0, &mut all).await.unwrap();
        assert!(started.elapsed() >= 4 * latency, "{:?}", started.elapsed());
        pool.clear_injections(Some(id));
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn blocks_fail_as_far_as_they_are_meant() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let (pool, volume) = pool(&disks, Layout::Mirror, 2).await;
        let objset = objset_of(&pool, "vol").await.unwrap();
        for error in [BlockError::Io, BlockError::Checksum, BlockError::Decompress] {
            let id = pool.inject(Fault::Block { blocks: blocks(objset, (1, 2)), error }, ALWAYS).unwrap();
            let mut readable = Vec::new();
            for block in 0..4 {
                readable.push(read(&pool, &volume, block).await.is_some());
            }
            assert_eq!(readable, [true, false, false, true], "{error:?}");
            pool.clear_injections(Some(id));
        }
        for leaf in pool.pool().vdevs().leaves() {
            assert!(leaf.errors.checksum() > 0 && leaf.errors.read() > 0, "each device is blamed");
        }
        assert!(read(&pool, &volume, 1).await.is_some());
        // A file has one copy; metadata have more.
        let copy = Blocks { copies: 0b10, ..blocks(objset, (0, 9)) };
        pool.inject(Fault::Block { blocks: copy, error: BlockError::Io }, ALWAYS).unwrap();
        assert!(read(&pool, &volume, 1).await.is_some(), "the second copy is not asked for");
        pool.clear_injections(None);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn scans_meet_the_faults_of_blocks() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let (pool, volume) = pool(&disks, Layout::Mirror, 2).await;
        let objset = objset_of(&pool, "vol").await.unwrap();
        let fault = Fault::Block { blocks: blocks(objset, (1, 2)), error: BlockError::Io };
        pool.inject(fault, ALWAYS).unwrap();
        assert_eq!(scrubbed(&pool).await.errors, 2);
        assert!(pool.pool().vdevs().leaves().all(|leaf| leaf.errors.read() == 2));
        pool.clear_injections(None);
        assert_eq!(scrubbed(&pool).await.errors, 0);
        assert!(read(&pool, &volume, 1).await.is_some());
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_scrub_rewrites_what_a_failing_device_holds_as_it_goes_on() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let (pool, volume) = pool(&disks, Layout::Mirror, 2).await;
        const BLOCKS: u64 = 480;
        for block in 0..BLOCKS {
            volume.write_at(block * BLOCK as u64, &[1; BLOCK], false).await.unwrap();
        }
        committed(&pool).await;
        let failing = leaf(&pool, 0).guid;
        let set = pool.change(move |s| async move {
            engine::pool::live::properties::set_of_vdev(&s, failing, "io_n", "100000").await
        });
        set.await.unwrap();
        let (leaf_guid, latency, operation) = (failing.get(), Duration::from_millis(2), Operation::Read);
        pool.inject(device(leaf_guid, DeviceError::Io, operation), ALWAYS).unwrap();
        pool.inject(Fault::Delay { leaf: leaf_guid, latency, lanes: 1, operation }, ALWAYS).unwrap();
        pool.scrub(ScrubRange::default()).await.unwrap();
        while leaf(&pool, 0).stats.healed_bytes() == 0 {
            std::thread::yield_now();
        }
        let failed = pool.injections()[0].counts().1;
        assert!(failed < BLOCKS, "{failed} reads failed before the first was mended");
        pool.cancel_scan().await.unwrap();
        pool.clear_injections(None);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn bits_that_flip_before_a_check_or_after_a_checksum_are_found_and_others_are_not() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let (pool, volume) = pool(&disks, Layout::Single, 1).await;
        let objset = objset_of(&pool, "vol").await.unwrap();
        let flip = |flip, block| Fault::Memory { blocks: blocks(objset, (block, block)), flip };

        assert!(!flip(Flip::BeforeCheck, 0).damages() && flip(Flip::AfterCheck, 0).damages());
        pool.inject(flip(Flip::BeforeCheck, 0), ALWAYS).unwrap();
        assert!(read(&pool, &volume, 0).await.is_none());
        pool.clear_injections(None);
        assert_eq!(
            wrong_bits(0, &read(&pool, &volume, 0).await.unwrap()),
            0,
            "nothing is wrong on the device"
        );

        pool.inject(flip(Flip::AfterCheck, 1), ALWAYS).unwrap();
        assert_eq!(wrong_bits(1, &read(&pool, &volume, 1).await.unwrap()), 1, "the reader is given a lie");
        pool.clear_injections(None);
        assert_eq!(wrong_bits(1, &read(&pool, &volume, 1).await.unwrap()), 0);

        pool.inject(flip(Flip::AfterChecksum, 2), ALWAYS).unwrap();
        volume.write_at(2 * BLOCK as u64, &[3; BLOCK], false).await.unwrap();
        committed(&pool).await;
        pool.clear_injections(None);
        assert!(read(&pool, &volume, 2).await.is_none(), "found by the checksum");

        pool.inject(flip(Flip::BeforeChecksum, 3), ALWAYS).unwrap();
        volume.write_at(3 * BLOCK as u64, &[4; BLOCK], false).await.unwrap();
        committed(&pool).await;
        pool.clear_injections(None);
        assert_eq!(wrong_bits(3, &read(&pool, &volume, 3).await.unwrap()), 1, "no checksum can find it");
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn a_label_that_cannot_be_written_is_an_error_of_its_device_alone() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let (pool, volume) = pool(&disks, Layout::Mirror, 2).await;
        let (leaf, error, operation) = (leaf(&pool, 0).guid.get(), DeviceError::Io, Operation::Write);
        let label = Some(LabelPart::Uber);
        pool.inject(Fault::Device { leaf, error, operation, label }, ALWAYS).unwrap();
        volume.write_at(0, &[1; BLOCK], false).await.unwrap();
        committed(&pool).await;
        assert!(crate::faults::leaf(&pool, 0).errors.write() > 0);
        assert_eq!(crate::faults::leaf(&pool, 1).errors.write(), 0);
        pool.clear_injections(None);
        committed(&pool).await;
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
