//! vhost-user-blk as a virtual machine sees it: `vhost`'s frontend, and a driver that is written here.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "system calls of the machine's side")]

mod driver;
mod harness;
mod hostile;

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use driver::*;
use harness::{Disk, Served, one};
use server::block::{Limits, Stability};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

const SIZE_BYTES: usize = 16 << 20;
const LIMIT: Duration = Duration::from_secs(30);

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| ((index + seed) % 251) as u8).collect()
}

/// Waits for what is to come about.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_written_is_read_whatever_the_ring_is_like() {
    let (_folder, disk, _, served) = one(SIZE_BYTES);
    for features in [0, F_INDIRECT, F_EVENT_INDEX, F_INDIRECT | F_EVENT_INDEX] {
        for has_inflight in [false, true] {
            let options = Options { rings: 2, features, has_inflight };
            let mut machine = Machine::connect(&served.socket("tank/disk"), options);
            for ring in 0..2 {
                let data = pattern(ring + features as usize, 12288);
                let pieces: &[u32] = if features & F_INDIRECT != 0 { &[512, 7680, 4096] } else { &[12288] };
                machine.set_data(ring, 0, &data);
                assert_eq!(machine.ask(ring, (WRITE, 9), pieces), OK);
                assert_eq!(disk.bytes(9 * 512, data.len()), data);
                machine.set_data(ring, 0, &vec![0; data.len()]);
                assert_eq!(machine.ask(ring, (READ, 9), pieces), OK);
                assert_eq!(machine.data(ring, 0, data.len()), data);
            }
            // More than the ring's indices count.
            for number in 0..300u64 {
                assert_eq!(machine.ask(0, (READ, number), &[512]), OK);
            }
            // A ring that was stopped goes on where it was.
            let base = machine.frontend.get_vring_base(0).unwrap();
            assert_eq!(base as u16, machine.available(0));
            machine.start(0, base as u16);
            assert_eq!(machine.ask(0, (READ, 1), &[512]), OK);
            assert_eq!(machine.ask(0, (GET_ID, 0), &[20]), OK);
            assert_eq!(machine.data(0, 0, 20), b"123456789abcdef0\0\0\0\0");
        }
    }
    assert_eq!(disk.stable_writes.load(Ordering::Relaxed), 0);
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let (_folder, disk, _, served) = one(SIZE_BYTES);
    let mut machine =
        Machine::connect(&served.socket("tank/disk"), Options { rings: 4, ..Options::default() });
    disk.close();
    for ring in 0..4 {
        let before = machine.available(ring);
        for slot in 0..SLOTS {
            let at = ring as u64 * 4096 + u64::from(slot) * 8;
            machine.set_data(ring, slot, &pattern(at as usize, 4096));
            let head = machine.prepare(ring, slot, (WRITE, at), &[4096]);
            machine.offer(ring, head);
        }
        machine.kick(ring, before);
    }
    disk.open();
    for ring in 0..4 {
        let mut answered = 0;
        while answered < usize::from(SLOTS) {
            let more = machine.wait(ring, LIMIT);
            assert!(!more.is_empty(), "no more answers after {answered}");
            answered += more.len();
        }
        for slot in 0..SLOTS {
            assert_eq!(machine.status(ring, slot), OK);
            let at = ring * 4096 + usize::from(slot) * 8;
            assert_eq!(disk.bytes(at * 512, 4096), pattern(at, 4096));
        }
    }
}

#[test]
fn flush_discard_and_zeroes_do_what_they_say() {
    let (_folder, disk, _, served) = one(SIZE_BYTES);
    let mut machine = Machine::connect(&served.socket("tank/disk"), Options::default());
    machine.set_data(0, 0, &pattern(0, 65536));
    assert_eq!(machine.ask(0, (WRITE, 0), &[65536]), OK);
    assert_eq!(machine.ask(0, (FLUSH, 0), &[]), OK);
    assert_eq!(disk.flushes.load(Ordering::Relaxed), 1);
    let range = |sector: u64, count: u32, flags: u32| {
        [sector.to_le_bytes().as_slice(), &count.to_le_bytes(), &flags.to_le_bytes()].concat()
    };
    for sector in [0, 16] {
        machine.set_data(0, 0, &range(sector, 8, 0));
        assert_eq!(machine.ask(0, (DISCARD, 0), &[16]), OK);
    }
    assert_eq!(disk.trims.load(Ordering::Relaxed), 2);
    machine.set_data(0, 0, &range(32, 8, 1));
    assert_eq!(machine.ask(0, (WRITE_ZEROES, 0), &[16]), OK);
    machine.set_data(0, 0, &range(64, 8, 0));
    assert_eq!(machine.ask(0, (WRITE_ZEROES, 0), &[16]), OK);
    assert_eq!(disk.allocated_zeroes.load(Ordering::Relaxed), 1);
    for (at, is_zero) in [(0, true), (8, false), (16, true), (24, false), (32, true), (64, true), (72, false)]
    {
        let expected = if is_zero { vec![0; 4096] } else { pattern(at * 512, 4096) };
        assert_eq!(disk.bytes(at * 512, 4096), expected, "sector {at}");
    }
    // What is not within the disk, or not a multiple of a sector, or not known.
    let end = (SIZE_BYTES / 512) as u64;
    machine.set_data(0, 0, &range(end - 7, 8, 0));
    assert_eq!(machine.ask(0, (DISCARD, 0), &[16]), FAILED);
    // One range is what the device says that it takes.
    machine.set_data(0, 0, &[range(0, 8, 0), range(16, 8, 0)].concat());
    assert_eq!(machine.ask(0, (DISCARD, 0), &[32]), UNSUPPORTED);
    assert_eq!(disk.trims.load(Ordering::Relaxed), 2, "a request that fails does nothing");
    machine.set_data(0, 0, &range(0, 8, 1));
    assert_eq!(machine.ask(0, (DISCARD, 0), &[16]), UNSUPPORTED);
    for (request, pieces) in [
        ((READ, end - 7), [4096]),
        ((WRITE, u64::MAX), [512]),
        ((READ, u64::MAX / 512), [512]),
        ((WRITE, 0), [100]),
        ((DISCARD, 0), [15]),
    ] {
        assert_eq!(machine.ask(0, request, &pieces), FAILED, "{request:?}");
    }
    assert_eq!(machine.ask(0, (77, 0), &[512]), UNSUPPORTED);
    // The guest turns the cache off.
    assert_eq!(machine.config()[32], 1);
    machine.write_through();
    assert_eq!(machine.config()[32], 0);
    assert_eq!(machine.ask(0, (WRITE, 0), &[512]), OK);
    assert_eq!(disk.stable_writes.load(Ordering::Relaxed), 1);
}

#[test]
fn a_disk_says_what_it_is_and_when_its_size_changes() {
    let (folder, disk, disks, served) = one(SIZE_BYTES);
    let then = Disk::new(SIZE_BYTES, false);
    disks.insert("tank/disk@then", then);
    let mut snapshot = Machine::connect(&served.socket("tank/disk@then"), Options::default());
    assert_ne!(snapshot.offered & F_READ_ONLY, 0);
    assert_eq!(snapshot.ask(0, (WRITE, 0), &[512]), FAILED);
    assert_eq!(snapshot.ask(0, (READ, 0), &[512]), OK);

    let mut machine = Machine::connect(&served.socket("tank/disk"), Options::default());
    assert_eq!(machine.offered & F_READ_ONLY, 0);
    let config = machine.config();
    let word = |at: usize| u32::from_le_bytes(config[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20), config[24], word(28)), ((SIZE_BYTES / 512) as u32, 512, 3, 32));
    let (ours, theirs) = channel();
    machine.frontend.set_backend_request_fd(&theirs).unwrap();
    disk.resize(2 * SIZE_BYTES);
    let mut told = [0; 12];
    std::io::Read::read_exact(&mut &ours, &mut told).unwrap();
    assert_eq!(told[..4], 2u32.to_ne_bytes());
    let config = machine.config();
    assert_eq!(u64::from_le_bytes(config[..8].try_into().unwrap()), (2 * SIZE_BYTES / 512) as u64);
    assert_eq!(machine.ask(0, (READ, (SIZE_BYTES / 512) as u64), &[4096]), OK);

    // Sockets come and go with their volumes.
    let socket = served.socket("tank/disk");
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    disks.rename("tank/disk", "tank/of/another name");
    assert!(machine.is_ended());
    until("the socket goes", || !socket.exists());
    let mut machine = Machine::connect(&served.socket("tank/of/another name"), Options::default());
    assert_eq!(machine.ask(0, (READ, 0), &[512]), OK);
    drop(served);
    assert!(!folder.path().join("tank/of/another name.sock").exists());
}

#[test]
fn a_client_that_connects_anew_gets_every_answer_once() {
    let (folder, disk, disks, mut served) = one(SIZE_BYTES);
    let options = Options { rings: 2, ..Options::default() };
    let mut machine = Machine::connect(&served.socket("tank/disk"), options);
    machine.write_through();
    for round in 0..4u64 {
        assert_eq!(machine.config()[32], 0, "what the guest chose is kept");
        assert_eq!(machine.ask(0, (READ, 0), &[512]), OK);
        disk.close();
        for ring in 0..2 {
            let before = machine.available(ring);
            for slot in 0..20 {
                let at = round * 4096 + ring as u64 * 2048 + u64::from(slot) * 8;
                machine.set_data(ring, slot, &pattern(at as usize, 4096));
                let head = machine.prepare(ring, slot, (WRITE, at), &[4096]);
                machine.offer(ring, head);
            }
            machine.kick(ring, before);
        }
        // The daemon ends, or only the connection; at last the volume is taken away.
        if round == 3 {
            disk.is_gone.store(true, Ordering::Relaxed);
            let head = machine.prepare(0, 20, (READ, 0), &[512]);
            machine.offer(0, head);
            machine.force_kick(0);
            assert!(machine.is_ended());
            assert_eq!(machine.status(0, 20), UNANSWERED);
            machine.set_data(0, 20, &[1; 512]);
            disk.is_gone.store(false, Ordering::Relaxed);
        }
        if round % 2 == 0 {
            drop(served);
            served = Served::start(folder.path(), &disks, Limits::default());
        }
        let memory = machine.leave();
        disk.open();
        machine = Machine::connect_with(&served.socket("tank/disk"), options, memory);
        assert!(is_readable(machine.call(0), LIMIT), "the last daemon may have told of nothing");
        for ring in 0..2 {
            let mut answered = Vec::new();
            let count = if round == 3 && ring == 0 { 21 } else { 20 };
            while answered.len() < count as usize {
                let more = machine.wait(ring, LIMIT);
                assert!(!more.is_empty(), "round {round}: no more answers after {answered:?}");
                answered.extend(more.into_iter().map(|(head, _)| head));
            }
            answered.sort_unstable();
            assert_eq!(answered, (0..count).collect::<Vec<u32>>(), "round {round}");
            for slot in 0..20 {
                assert_eq!(machine.status(ring, slot), OK);
                let at = (round * 4096 + ring as u64 * 2048 + u64::from(slot) * 8) as usize;
                assert_eq!(disk.bytes(at * 512, 4096), pattern(at, 4096));
            }
        }
    }
}

#[test]
fn a_guest_is_not_left_believing_in_writes_that_are_gone() {
    let (folder, disk, disks, served) = one(SIZE_BYTES);
    let mut machine = Machine::connect(&served.socket("tank/disk"), Options::default());
    let mut number = 0;
    use Stability::{Always, ByGroup, WhenAsked};
    // As of which group the next daemon opens the pool, what becomes of writes by themselves, whether the
    // guest flushed, and how reads end then.
    for (committed, stability, is_flushed, status) in [
        (5, WhenAsked, false, OK),
        (8, WhenAsked, true, OK),
        (8, Always, false, OK),
        (5, ByGroup, true, OK),
        (8, ByGroup, true, FAILED),
        (8, WhenAsked, false, FAILED),
    ] {
        disk.group.store(number * 10 + 5, Ordering::Relaxed);
        *disk.stability.lock().unwrap() = stability;
        machine.frontend.reset_device().unwrap();
        machine.start(0, machine.available(0));
        assert_eq!(machine.ask(0, (WRITE, 0), &[512]), OK);
        if is_flushed {
            assert_eq!(machine.ask(0, (FLUSH, 0), &[]), OK);
        }
        let lost = if committed == 5 { 5 } else { 4 };
        disk.committed.store(number * 10 + lost, Ordering::Relaxed);
        number += 1;
        let memory = machine.leave();
        let next = Served::start(&folder.path().join(format!("{number}")), &disks, Limits::default());
        machine = Machine::connect_with(&next.socket("tank/disk"), Options::default(), memory);
        let case = format!("{stability:?}, committed: {committed}, flushed: {is_flushed}");
        assert_eq!(machine.ask(0, (READ, 0), &[512]), status, "{case}");
        assert_eq!(machine.ask(0, (GET_ID, 0), &[20]), OK);
        std::mem::forget(next);
    }
    // A guest that is started anew has a disk that works.
    machine.frontend.reset_device().unwrap();
    machine.start(0, machine.available(0));
    assert_eq!(machine.ask(0, (READ, 0), &[512]), OK);
}
