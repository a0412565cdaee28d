//! Guests and clients that do what none may do.

use std::io::{Read, Write};
use std::time::Duration;

use server::block::Limits;
use vhost::VhostBackend;
use vm_memory::{Bytes, GuestAddress};

use super::harness::{Disk, Served, one};
use super::*;

/// Numbers by seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

fn works(served: &Served) {
    let mut machine = Machine::connect(&served.socket("tank/disk"), Options::default());
    assert_eq!(machine.ask(0, (READ, 0), &[4096]), OK);
}

#[test]
fn chains_of_any_kind_end_with_an_error_or_end_the_session() {
    let (_folder, _, _, served) = one(SIZE_BYTES);
    let mut ended = 0;
    for seed in 0..150u64 {
        let mut random = Random(seed);
        let has_inflight = random.below(2) == 0;
        let features = random.one_of(&[0, F_INDIRECT | F_EVENT_INDEX]);
        let mut machine =
            Machine::connect(&served.socket("tank/disk"), Options { rings: 1, features, has_inflight });
        let valid = machine.prepare(0, 5, (READ, 0), &[4096]);
        for _ in 0..40 {
            let addresses = [
                0,
                data_at(0, 1),
                header_at(0, 1),
                table_at(0),
                MEMORY_BYTES - 8,
                MEMORY_BYTES,
                1 << 40,
                u64::MAX - 7,
            ];
            let lengths = [0, 1, 15, 16, 17, 512, 4096, 65536, 1 << 24, u32::MAX];
            for index in 0..8 {
                let address = random.one_of(&addresses);
                let len = random.one_of(&lengths);
                let flags = random.below(8) as u16;
                let next = random.one_of(&[0, 1, 2, 3, 7, SIZE, u16::MAX]);
                if random.below(3) == 0 {
                    machine.describe(table_at(0), index, (address, len, flags, next));
                }
            }
            machine.write(
                header_at(0, 1),
                random.one_of(&[READ, WRITE, FLUSH, GET_ID, DISCARD, WRITE_ZEROES, 99]),
            );
            machine.write(header_at(0, 1) + 8, random.one_of(&[0, 1, 1 << 20, u64::MAX]));
            let before = machine.available(0);
            machine.offer(0, random.one_of(&[0, 1, 3, valid, SIZE - 1, SIZE, u16::MAX]));
            if random.below(20) == 0 {
                // An index that is out of the ring.
                let index = GuestAddress(ring_at(0) + 0x4002);
                machine.memory.map.write_obj(before.wrapping_add(random.next() as u16), index).unwrap();
            }
            machine.kick(0, before);
            if machine.wait(0, Duration::from_millis(20)).is_empty() {
                break;
            }
        }
        ended += u32::from(is_readable(std::os::fd::AsRawFd::as_raw_fd(&machine.frontend), Duration::ZERO));
    }
    assert!(ended > 50, "{ended} sessions were ended");
    works(&served);
}

#[test]
fn messages_of_any_kind_end_the_session() {
    let (_folder, _, _, served) = one(SIZE_BYTES);
    for seed in 0..400u64 {
        let mut random = Random(seed);
        let mut stream = connect(&served.socket("tank/disk"));
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        for _ in 0..10 {
            let request = random.below(50) as u32;
            let flags = random.one_of(&[1u32, 1, 1, 9, 9, 0, 2, 5, u32::MAX]);
            let length = random.one_of(&[0u32, 8, 8, 12, 16, 24, 40, 264, 4096, 4097, u32::MAX]);
            let payload: Vec<u8> = (0..length.min(5000))
                .map(|_| if random.below(3) == 0 { random.next() as u8 } else { random.below(2) as u8 })
                .collect();
            let message =
                [request, flags, length].iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
            let message = [message, payload].concat();
            let most = if random.below(10) == 0 {
                random.below(message.len() as u64) as usize
            } else {
                message.len()
            };
            if stream.write_all(&message[..most]).is_err() {
                break;
            }
            if random.below(4) == 0 {
                let _ = stream.read(&mut [0; 512]);
            }
        }
    }
    works(&served);
}

#[test]
fn memory_that_goes_away_ends_the_session_alone() {
    let (_folder, disk, _, served) = one(SIZE_BYTES);
    let mut other = Machine::connect(&served.socket("tank/disk"), Options::default());
    // In the middle of requests, and while the ring itself is gone.
    for left in [data_at(0, 3), 4096, 0] {
        let mut machine = Machine::connect(&served.socket("tank/disk"), Options::default());
        machine.set_data(0, 4, &pattern(1, 4096));
        disk.close();
        let before = machine.available(0);
        let head = machine.prepare(0, 4, (READ, 800), &[4096]);
        machine.offer(0, head);
        if left > 4096 {
            let head = machine.prepare(0, 5, (WRITE, 800), &[4096]);
            machine.offer(0, head);
        }
        machine.kick(0, before);
        rustix::fs::ftruncate(&machine.memory.file, left).unwrap();
        disk.open();
        machine.force_kick(0);
        assert!(machine.is_ended(), "with {left} bytes left");
        // The driver's own mapping must not be touched any more.
        drop(machine);
        assert_eq!(other.ask(0, (READ, 800), &[4096]), OK);
    }
    works(&served);
}

#[test]
fn what_is_no_memory_and_what_is_no_eventfd_is_refused() {
    let (folder, _, _, served) = one(SIZE_BYTES);
    let machine = Machine::connect(&served.socket("tank/disk"), Options::default());
    let mut short = region(&machine.memory);
    short.memory_size += 4096;
    assert!(machine.frontend.set_mem_table(&[short]).is_err(), "a file that is too short");
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.set_len(MEMORY_BYTES).unwrap();
    let mut on_disk = region(&machine.memory);
    on_disk.mmap_handle = std::os::fd::AsRawFd::as_raw_fd(&file);
    assert!(machine.frontend.set_mem_table(&[on_disk]).is_err(), "a file on a disk");
    let twice = [region(&machine.memory), region(&machine.memory)];
    assert!(machine.frontend.set_mem_table(&twice).is_err(), "regions that overlap");
    drop(folder);
}

/// A machine whose write waits until the disk is opened.
fn with_a_write_that_waits(served: &Served, disk: &Disk, has_inflight: bool) -> Machine {
    let options = Options { has_inflight, ..Options::default() };
    let mut machine = Machine::connect(&served.socket("tank/disk"), options);
    disk.close();
    let before = disk.begun.load(Ordering::Relaxed);
    machine.set_data(0, 0, &[7; 512]);
    let head = machine.prepare(0, 0, (WRITE, 8), &[512]);
    machine.offer(0, head);
    machine.force_kick(0);
    until("the write waits", || disk.begun.load(Ordering::Relaxed) > before);
    machine
}

#[test]
fn a_ring_that_waits_for_its_disk_can_be_stopped_and_goes_on_where_it_was() {
    let (_folder, disk, _disks, served) = one(SIZE_BYTES);
    let mut machine = with_a_write_that_waits(&served, &disk, true);
    let base = machine.frontend.get_vring_base(0).unwrap();
    assert_eq!((base, machine.status(0, 0)), (1, UNANSWERED));
    // The guest may change what it gave away: what was begun has the bytes that there were.
    machine.start(0, base as u16);
    assert_eq!(machine.frontend.get_vring_base(0).unwrap(), base, "also before the first is done");
    machine.start(0, base as u16);
    disk.open();
    assert_eq!(machine.wait(0, LIMIT).len(), 1);
    assert_eq!((machine.status(0, 0), disk.bytes(8 * 512, 512)), (OK, vec![7; 512]));
    assert_eq!(disk.writes.load(Ordering::Relaxed), 2, "as it was begun, and once more");
    works(&served);
}

#[test]
fn requests_that_are_not_noted_fail_when_their_ring_is_stopped_for_long() {
    let (folder, disk, disks, served) = one(SIZE_BYTES);
    drop(served);
    let limits = Limits { stall: Duration::from_millis(200), ..Limits::default() };
    let served = Served::start(folder.path(), &disks, limits);
    let mut machine = with_a_write_that_waits(&served, &disk, false);
    assert_eq!((machine.frontend.get_vring_base(0).unwrap(), machine.status(0, 0)), (1, FAILED));
    machine.start(0, 1);
    disk.open();
    machine.answered(0);
    assert_eq!(machine.ask(0, (READ, 8), &[512]), OK);
    assert_eq!(machine.data(0, 0, 512), [7; 512], "what was begun is done first");
}

#[test]
fn clients_have_places_and_a_silent_one_loses_its_own() {
    let (folder, _, disks, served) = one(SIZE_BYTES);
    drop(served);
    let limits = Limits { clients: 2, handshake: Duration::from_millis(300), ..Limits::default() };
    let served = Served::start(folder.path(), &disks, limits);
    let mut one = Machine::connect(&served.socket("tank/disk"), Options::default());
    let mut silent = connect(&served.socket("tank/disk"));
    let mut third = connect(&served.socket("tank/disk"));
    third.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(third.read(&mut [0; 1]).unwrap(), 0, "there is no place for a third");
    silent.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0, "who says nothing is sent away");
    assert_eq!(one.ask(0, (READ, 0), &[512]), OK);
    works(&served);
}
