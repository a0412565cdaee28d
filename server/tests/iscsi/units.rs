//! Targets with several units: numbers, sizes, copies between them, and reservations that are kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use server::block::{Limits, Room};

use crate::harness::{Disk, Disks, Initiator, Served};

const VMS: &str = "iqn.2026-11.org.cenote:vms";
const SIZE: usize = 8 << 20;

struct Bed {
    disks: Disks,
    one: Arc<Disk>,
    two: Arc<Disk>,
    three: Arc<Disk>,
}

impl Bed {
    fn new() -> Self {
        let [one, two, three] = [0x1110, 0x2220, 0x3330].map(|guid| Arc::new(Disk::new(guid, SIZE, true)));
        let disks = Disks::default()
            .with("tank/a", "iscsi(target=vms)", &one)
            .with("tank/b", "iscsi(target=vms,lun=3)", &two)
            .with("tank/c", "iscsi(target=vms,lun=3)", &three)
            .with("tank/d", "iscsi(sector=4096,initiator=iqn.test:large*)", &three);
        Self { disks, one, two, three }
    }

    fn serve(&self) -> Served {
        Served::start_with(self.disks.clone(), None, Limits::default())
    }
}

/// The key, code and qualifier of a command that failed.
pub fn sense(answer: &crate::harness::Answer) -> (u8, u8, u8) {
    assert_eq!(answer.header[3], 2, "{answer:?}");
    (answer.data[4], answer.data[14], answer.data[15])
}

const REPORT_LUNS: [u8; 12] = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
const READ_ONE: [u8; 10] = [0x28, 0, 0, 0, 0, 5, 0, 0, 1, 0];

#[test]
fn units_have_numbers_and_contents_of_their_own() {
    let bed = Bed::new();
    let served = bed.serve();
    let mut host = Initiator::log_in(&served, VMS, &[]);
    let listed = host.command(&REPORT_LUNS, 256, true, &[]).data;
    assert_eq!(listed[..4], 16u32.to_be_bytes());
    assert_eq!([listed[9], listed[17]], [0, 3]);
    host.lun = 3;
    assert_eq!(host.command(&[0x2a, 0, 0, 0, 0, 5, 0, 0, 1, 0], 512, false, &[7; 512]).header[3], 0);
    assert_eq!(host.command(&READ_ONE, 512, true, &[]).data, [7; 512]);
    host.lun = 0;
    assert_eq!(host.command(&READ_ONE, 512, true, &[]).data, [0; 512]);
    host.lun = 1;
    assert_eq!(sense(&host.command(&READ_ONE, 512, true, &[])), (5, 0x25, 0));
    assert_eq!(host.command(&[0x12, 0, 0, 0, 96, 0], 96, true, &[]).data[0], 0x7f, "there is no unit");
}

#[test]
fn a_unit_may_have_large_sectors_and_few_initiators() {
    let served = Bed::new().serve();
    let target = "iqn.2026-11.org.cenote:tank:d";
    let mut refused = Initiator::connect(&served);
    let keys = ["InitiatorName=iqn.test:other", &format!("TargetName={target}")];
    let answer = refused.login(1, 3, &keys).expect("an answer");
    assert_eq!((answer.header[36], answer.header[37]), (2, 3), "as if it were not there");
    let mut host = Initiator::log_in_as(&served, "iqn.test:large1", target, &[]);
    let capacity = host.command(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32, true, &[]).data;
    assert_eq!(capacity[..8], (SIZE as u64 / 4096 - 1).to_be_bytes());
    assert_eq!(capacity[8..12], 4096u32.to_be_bytes());
    host.command(&[0x2a, 0, 0, 0, 0, 5, 0, 0, 1, 0], 4096, false, &[9; 4096]);
    assert_eq!(host.command(&READ_ONE, 4096, true, &[]).data, [9; 4096]);
}

/// EXTENDED COPY of one segment between units of these guids.
pub fn copy(
    host: &mut Initiator,
    guids: [u64; 2],
    blocks: u16,
    from: u64,
    to: u64,
) -> crate::harness::Answer {
    let mut list = vec![0; 16];
    list[3] = 64;
    list[11] = 28;
    for guid in guids {
        let mut unit = [0; 32];
        unit[..8].copy_from_slice(&[0xe4, 0, 0, 0, 1, 3, 0, 8]);
        unit[8..16].copy_from_slice(&(guid >> 4 | 3 << 60).to_be_bytes());
        list.extend(unit);
    }
    list.extend([2, 0, 0, 24, 0, 0, 0, 1, 0, 0]);
    list.extend(blocks.to_be_bytes());
    list.extend(from.to_be_bytes());
    list.extend(to.to_be_bytes());
    let [.., high, low] = (list.len() as u32).to_be_bytes();
    let descriptor = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low, 0, 0];
    host.command(&descriptor, list.len() as u32, false, &list)
}

#[test]
fn copies_go_from_unit_to_unit_within_the_server() {
    let bed = Bed::new();
    let served = bed.serve();
    let mut host = Initiator::log_in(&served, VMS, &[]);
    let data: Vec<u8> = (0..16 * 512u32).map(|index| (index / 3) as u8).collect();
    host.command(&[0x2a, 0, 0, 0, 0, 8, 0, 0, 16, 0], data.len() as u32, false, &data);
    assert_eq!(copy(&mut host, [0x1110, 0x2220], 16, 8, 100).header[3], 0);
    assert_eq!(bed.two.copied.load(Ordering::Relaxed), data.len());
    // Within one unit, one over the other.
    assert_eq!(copy(&mut host, [0x1110, 0x1110], 16, 8, 12).header[3], 0);
    host.command(&[0x28, 0, 0, 0, 0, 12, 0, 0, 16, 0], data.len() as u32, true, &[]);
    let read = |host: &mut Initiator, first: u8| {
        let answer = host.command(&[0x28, 0, 0, 0, 0, first, 0, 0, 16, 0], data.len() as u32, true, &[]);
        assert_eq!(answer.data, data, "from block {first}");
    };
    read(&mut host, 12);
    host.lun = 3;
    read(&mut host, 100);
    // A unit that this initiator does not have open, and blocks that there are not.
    assert_eq!(sense(&copy(&mut host, [0x1110, 0x3330], 1, 0, 0)), (0xa, 8, 4));
    assert_eq!(sense(&copy(&mut host, [0x1110, 0x2220], 2, (SIZE / 512 - 1) as u64, 0)), (0xa, 0, 0));
}

pub fn register(host: &mut Initiator, key: u64, flags: u8) -> crate::harness::Answer {
    let mut list = [0; 24];
    list[8..16].copy_from_slice(&key.to_be_bytes());
    list[20] = flags;
    host.command(&[0x5f, 6, 0, 0, 0, 0, 0, 0, 24, 0], 24, false, &list)
}

/// For reads and writes of this initiator alone.
pub fn reserve(host: &mut Initiator, key: u64) -> crate::harness::Answer {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    host.command(&[0x5f, 1, 3, 0, 0, 0, 0, 0, 24, 0], 24, false, &list)
}

#[test]
fn reservations_outlast_the_server_where_that_was_asked_for() {
    let bed = Bed::new();
    {
        let served = bed.serve();
        let mut host = Initiator::log_in_as(&served, "iqn.test:holder", VMS, &[]);
        assert_eq!(register(&mut host, 77, 1).header[3], 0);
        assert_eq!(reserve(&mut host, 77).header[3], 0);
        host.lun = 3;
        assert_eq!(register(&mut host, 78, 0).header[3], 0);
    }
    let served = bed.serve();
    let mut other = Initiator::log_in_as(&served, "iqn.test:other", VMS, &[]);
    assert_eq!(other.command(&READ_ONE, 512, true, &[]).header[3], 0x18, "a reservation is in the way");
    let keys = other.command(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], 64, true, &[]).data;
    assert_eq!((keys.len(), &keys[8..16]), (16, &77u64.to_be_bytes()[..]));
    other.lun = 3;
    let keys = other.command(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], 64, true, &[]).data;
    assert_eq!(keys.len(), 8, "that one lived as long as the server");
    let mut holder = Initiator::log_in_as(&served, "iqn.test:holder", VMS, &[]);
    assert_eq!(holder.command(&READ_ONE, 512, true, &[]).header[3], 0);
}

#[test]
fn a_new_size_is_told_without_asking_and_with_the_next_command() {
    let bed = Bed::new();
    let served = bed.serve();
    let mut host = Initiator::log_in(&served, VMS, &[]);
    assert_eq!(host.command(&READ_ONE, 512, true, &[]).data.len(), 512);
    bed.one.resize(2 * SIZE);
    let told = host.answer().expect("a message");
    assert_eq!((told.header[0], told.header[36], told.data[4], told.data[14]), (0x32, 0, 6, 0x2a));
    assert_eq!(sense(&host.command(&READ_ONE, 512, true, &[])), (6, 0x2a, 9));
    assert_eq!(host.command(&READ_ONE, 512, true, &[]).data.len(), 512);
}

/// The next answer is a message that says this.
pub fn told(host: &mut Initiator, code: (u8, u8)) {
    let told = host.answer().expect("a message");
    assert_eq!((told.header[0], told.header[36], told.data[4]), (0x32, 0, 6), "{told:?}");
    assert_eq!((told.data[14], told.data[15]), code);
}

pub fn numbers(host: &mut Initiator) -> Vec<u8> {
    let listed = host.command(&REPORT_LUNS, 256, true, &[]).data;
    listed[8..].chunks_exact(8).map(|number| number[1]).collect()
}

#[test]
fn a_session_follows_what_is_shared_with_its_target() {
    const OTHER_UNITS: (u8, u8) = (0x3f, 0x0e);
    let bed = Bed::new();
    let served = bed.serve();
    let mut host = Initiator::log_in(&served, VMS, &[]);
    assert_eq!(host.command(&READ_ONE, 512, true, &[]).header[3], 0);
    // A new unit: each of those that are known says so once.
    bed.disks.share("tank/d", "iscsi(target=vms,lun=7)", &bed.three);
    told(&mut host, OTHER_UNITS);
    for lun in [0, 3, 7] {
        host.lun = lun;
        assert_eq!(sense(&host.command(&READ_ONE, 512, true, &[])), (6, 0x3f, 0x0e), "unit {lun}");
        assert_eq!(host.command(&READ_ONE, 512, true, &[]).data.len(), 512, "unit {lun}");
    }
    assert_eq!(numbers(&mut host), [0, 3, 7]);
    host.command(&[0x2a, 0, 0, 0, 0, 5, 0, 0, 1, 0], 512, false, &[7; 512]);
    assert_eq!(host.command(&READ_ONE, 512, true, &[]).data, [7; 512]);
    // One that is taken away is none any more, and who asks which there are need not be told.
    bed.disks.share("tank/d", "off", &bed.three);
    told(&mut host, OTHER_UNITS);
    assert_eq!(sense(&host.command(&READ_ONE, 512, true, &[])), (5, 0x25, 0));
    assert_eq!(host.command(&[0x12, 0, 0, 0, 96, 0], 96, true, &[]).data[0], 0x7f, "there is no unit");
    assert_eq!(numbers(&mut host), [0, 3]);
    host.lun = 0;
    assert_eq!(host.command(&READ_ONE, 512, true, &[]).header[3], 0);
    // The number is another volume's from now on.
    bed.disks.share("tank/b", "off", &bed.two);
    told(&mut host, OTHER_UNITS);
    told(&mut host, OTHER_UNITS);
    host.lun = 3;
    assert_eq!(sense(&host.command(&READ_ONE, 512, true, &[])), (6, 0x3f, 0x0e));
    assert_eq!(host.command(&READ_ONE, 512, true, &[]).data, [7; 512]);
    // Without any unit the session goes on.
    for (name, disk) in [("tank/a", &bed.one), ("tank/c", &bed.three)] {
        bed.disks.share(name, "off", disk);
        told(&mut host, OTHER_UNITS);
    }
    assert_eq!(sense(&host.command(&READ_ONE, 512, true, &[])), (5, 0x25, 0));
    assert!(numbers(&mut host).is_empty());
    bed.disks.share("tank/a", "iscsi(target=vms)", &bed.one);
    told(&mut host, OTHER_UNITS);
    assert_eq!(numbers(&mut host), [0]);
    host.lun = 0;
    assert_eq!(host.command(&READ_ONE, 512, true, &[]).header[3], 0);
}

#[test]
fn initiators_that_may_not_have_a_unit_are_not_told_of_it() {
    let bed = Bed::new();
    let served = bed.serve();
    let [mut one, mut other] =
        ["iqn.test:one", "iqn.test:other"].map(|name| Initiator::log_in_as(&served, name, VMS, &[]));
    bed.disks.share("tank/d", "iscsi(target=vms,lun=7,initiator=iqn.test:one)", &bed.three);
    told(&mut one, (0x3f, 0x0e));
    assert_eq!((numbers(&mut one), numbers(&mut other)), (vec![0, 3, 7], vec![0, 3]));
    bed.disks.share("tank/d", "iscsi(target=vms,lun=7,initiator=iqn.test:other)", &bed.three);
    told(&mut one, (0x3f, 0x0e));
    told(&mut other, (0x3f, 0x0e));
    assert_eq!((numbers(&mut one), numbers(&mut other)), (vec![0, 3], vec![0, 3, 7]));
}

#[test]
fn room_that_becomes_scarce_is_told_and_both_pages_say_how_much_there_is() {
    const MIB: u64 = 1 << 20;
    let bed = Bed::new();
    bed.disks.share("tank/a", "iscsi(target=vms,threshold=75%)", &bed.one);
    let room = |left: u64| {
        *bed.one.room.lock().unwrap() = Some(Room { left_bytes: left * MIB, most_bytes: 16 * MIB });
    };
    room(5);
    let served = bed.serve();
    let mut host = Initiator::log_in(&served, VMS, &[]);
    let reads = |host: &mut Initiator| {
        assert_eq!(host.command(&READ_ONE, 512, true, &[]).data.len(), 512);
    };
    reads(&mut host);
    let log = host.command(&[0x4d, 0, 0x4c, 0, 0, 0, 0, 0, 255, 0], 255, true, &[]).data;
    let word = |page: &[u8], at: usize| u32::from_be_bytes(page[at..at + 4].try_into().unwrap());
    assert_eq!((log[0], log[3], word(&log, 8), word(&log, 20)), (0x8c, 24, 5, 11), "available and used");
    let listed = host.command(&[0x4d, 0, 0x40, 0, 0, 0, 0, 0, 255, 0], 255, true, &[]).data;
    assert_eq!(listed, [0, 0, 0, 2, 0, 0x0c]);
    let mode = host.command(&[0x5a, 8, 0x1c, 2, 0, 0, 0, 0, 255, 0], 255, true, &[]).data;
    assert_eq!((&mode[8..10], mode[24], word(&mode, 28)), (&[0x5c, 2][..], 0x80, 4));
    let page = host.command(&[0x12, 1, 0xb2, 0, 255, 0], 255, true, &[]).data;
    assert_eq!(page[4], 11, "2048 blocks of 512 bytes are 1 MiB");
    for round in 2..4 {
        room(3);
        told(&mut host, (0x38, 7));
        assert_eq!(sense(&host.command(&READ_ONE, 512, true, &[])), (6, 0x38, 7));
        reads(&mut host);
        // Enough again; the room is looked at whenever the size is.
        room(5);
        bed.one.resize(round * SIZE);
        told(&mut host, (0x2a, 9));
        assert_eq!(sense(&host.command(&READ_ONE, 512, true, &[])), (6, 0x2a, 9));
        reads(&mut host);
    }
    // The same room is scarce where the share says so.
    bed.disks.share("tank/a", "iscsi(target=vms,threshold=50%)", &bed.one);
    told(&mut host, (0x38, 7));
    assert_eq!(sense(&host.command(&READ_ONE, 512, true, &[])), (6, 0x38, 7));
    reads(&mut host);
}

#[test]
fn blocks_of_another_size_are_told_too() {
    let bed = Bed::new();
    let served = bed.serve();
    let mut host = Initiator::log_in(&served, VMS, &[]);
    assert_eq!(host.command(&READ_ONE, 512, true, &[]).header[3], 0);
    bed.one.block_bytes.store(65536, Ordering::Relaxed);
    told(&mut host, (0x3f, 3));
    assert_eq!(sense(&host.command(&READ_ONE, 512, true, &[])), (6, 0x3f, 3));
    let limits = host.command(&[0x12, 1, 0xb0, 0, 255, 0], 255, true, &[]).data;
    assert_eq!(limits[6..8], 128u16.to_be_bytes());
    let capacity = host.command(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32, true, &[]).data;
    assert_eq!(capacity[13] & 0xf, 7);
}

#[test]
fn a_unit_that_could_not_be_opened_is_tried_again_without_another_change() {
    let (first, second) = (Arc::new(Disk::new(1, SIZE, true)), Arc::new(Disk::new(2, SIZE, true)));
    let disks = Disks::default().with("tank/a", "iscsi(target=vms)", &first);
    let served = Served::start_with(disks.clone(), None, Limits::default());
    let mut host = Initiator::log_in(&served, VMS, &[]);
    assert_eq!(numbers(&mut host), [0]);
    disks.broken.lock().unwrap().insert("tank/b".into());
    disks.share("tank/b", "iscsi(target=vms,lun=3)", &second);
    while disks.refused.load(Ordering::Relaxed) == 0 {
        assert_eq!(numbers(&mut host), [0]);
    }
    disks.broken.lock().unwrap().clear();
    told(&mut host, (0x3f, 0x0e));
    assert_eq!(numbers(&mut host), [0, 3]);
}
