//! Simulated devices: faults that stay where they are, media that take their time, runs that replay by their
//! seed.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use device::{
    Cause, Device, IoBuf, MemoryDevice, SectorSizes, block_on,
    simulated::{Clock, Fault, Model, RealClock, SimulatedDevice, VirtualClock},
};
use futures_util::future::join_all;

const EIO: Cause = Cause::Os { errno: 5 };

fn over_memory(seed: u64) -> (Arc<MemoryDevice>, SimulatedDevice) {
    let memory = Arc::new(MemoryDevice::new("<memory>", 1 << 20));
    (Arc::clone(&memory), SimulatedDevice::new(memory, seed))
}

#[test]
fn a_device_without_faults_is_the_device_below() {
    let (memory, device) = over_memory(1);
    block_on(device.write(4096, IoBuf::from(&[9; 4096][..]))).unwrap();
    assert_eq!(*block_on(device.read(4096, 4096)).unwrap(), [9; 4096]);
    assert_eq!(memory.content()[4096..8192], [9; 4096]);
    assert_eq!(device.size_bytes(), 1 << 20);
    assert_eq!(device.sector_sizes(), SectorSizes::BYTES_512);
}

#[test]
fn a_bad_range_fails_every_read_until_it_is_written() {
    let (_, device) = over_memory(1);
    device.inject(Fault::ReadError(1000..1001));
    assert_eq!(block_on(device.read(512, 512)).unwrap_err().cause, EIO);
    assert_eq!(block_on(device.read(0, 4096)).unwrap_err().cause, EIO);
    block_on(device.read(1024, 4096)).unwrap();
    block_on(device.write(512, IoBuf::zeroed(512))).unwrap();
    block_on(device.read(0, 4096)).unwrap();
}

#[test]
fn flipped_bits_are_the_same_at_every_read_and_gone_after_a_write() {
    let (_, device) = over_memory(7);
    device.inject(Fault::FlippedBits(0..8192));
    let first = block_on(device.read(0, 8192)).unwrap();
    assert_eq!(first.iter().map(|byte| byte.count_ones()).sum::<u32>(), 16);
    assert_eq!(*block_on(device.read(100, 5000)).unwrap(), first[100..5100]);
    block_on(device.write(0, IoBuf::zeroed(4096))).unwrap();
    let after = block_on(device.read(0, 8192)).unwrap();
    assert_eq!(after[..4096], [0; 4096]);
    assert_eq!(after[4096..], first[4096..]);
}

#[test]
fn a_torn_write_keeps_only_first_sectors_and_the_device_is_gone() {
    for seed in 0..50 {
        let (memory, device) = over_memory(seed);
        device.inject(Fault::TornWrite { after_writes: 1 });
        block_on(device.write(0, IoBuf::from(&[1; 4096][..]))).unwrap();
        let torn = block_on(device.write(0, IoBuf::from(&[2; 4096][..]))).unwrap_err();
        assert_eq!(torn.cause, Cause::Missing);
        assert_eq!(block_on(device.read(0, 512)).unwrap_err().cause, Cause::Missing);
        assert_eq!(block_on(device.flush()).unwrap_err().cause, Cause::Missing);
        let content = memory.content();
        let kept = content.iter().take_while(|byte| **byte == 2).count();
        assert!(kept.is_multiple_of(512) && kept < 4096);
        assert_eq!(content[kept..4096], [1; 4096][kept..]);
    }
}

#[test]
fn healing_removes_all_faults() {
    let (_, device) = over_memory(1);
    device.inject(Fault::Missing);
    device.inject(Fault::WriteError(0..1 << 20));
    assert_eq!(block_on(device.read(0, 1)).unwrap_err().cause, Cause::Missing);
    device.heal();
    block_on(device.write(0, IoBuf::zeroed(512))).unwrap();
}

#[test]
fn a_virtual_disk_takes_its_time_and_costs_none_of_ours() {
    let clock = VirtualClock::new();
    // Many tracks.
    let memory = Arc::new(MemoryDevice::new("<memory>", 64 << 20));
    let device = SimulatedDevice::new(memory, 1).with_model(Model::HDD_7200, Arc::new(clock.clone()));
    clock.run(async {
        for index in 0..1000 {
            device.read(index * 7919 % 16381 * 4096, 4096).await.unwrap();
        }
    });
    let per_read_ns = clock.now_ns() / 1000;
    assert!((5_000_000..25_000_000).contains(&per_read_ns), "{per_read_ns} ns a read");
}

#[test]
fn an_unflushed_device_takes_the_time_of_a_flush_and_asks_nobody_below() {
    let clock = VirtualClock::new();
    let (memory, _) = over_memory(1);
    let below = Arc::new(SimulatedDevice::new(memory, 1));
    below.inject(Fault::Missing);
    let over = || SimulatedDevice::new(below.clone(), 1).with_model(Model::HDD_7200, Arc::new(clock.clone()));
    clock.run(async {
        assert_eq!(over().flush().await.unwrap_err().cause, Cause::Missing);
        let unflushed = over().unflushed();
        let before_ns = clock.now_ns();
        unflushed.flush().await.unwrap();
        assert!(clock.now_ns() - before_ns >= Model::HDD_7200.flush_ns);
        unflushed.inject(Fault::Missing);
        assert_eq!(unflushed.flush().await.unwrap_err().cause, Cause::Missing);
    });
}

#[test]
fn the_same_seed_replays_the_same_run() {
    let run = |seed| {
        let clock = VirtualClock::new();
        let (memory, _) = over_memory(seed);
        let device = SimulatedDevice::new(memory, seed).with_model(Model::SATA_SSD, Arc::new(clock.clone()));
        device.inject(Fault::Flaky { one_in: 5 });
        device.inject(Fault::Delay { range: 0..4096, delay_ns: 1_000_000 });
        let results = clock.run(join_all((0..200).map(|index| device.read(index % 50 * 4096, 4096))));
        (clock.now_ns(), results.iter().map(Result::is_ok).collect::<Vec<bool>>())
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11).1, run(12).1);
}

#[test]
fn on_the_real_clock_an_operation_ends_no_earlier_than_the_medium_allows() {
    let (_, device) = over_memory(1);
    device.inject(Fault::Delay { range: 0..512, delay_ns: 3_000_000 });
    let begin_ns = RealClock.now_ns();
    block_on(join_all((0..8).map(|_| device.read(0, 512))));
    assert!(RealClock.now_ns() - begin_ns >= 3_000_000);
}
