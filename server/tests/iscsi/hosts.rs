//! What hosts of virtual machines ask of a disk, in their order, as their makers and others describe it.
//!
//! Sources: VMware's documents on storage primitives (VAAI: ATS, XCOPY, write same, unmap), and Microsoft's
//! on iSCSI targets, shared disks of clusters and thin provisioning.

use server::block::Limits;

use crate::harness::{Answer, Initiator, Served, TARGET};
use crate::units::{copy, register, reserve};

const SIZE: usize = 64 << 20;
const GUID: u64 = 0x1234_5678_9abc_def0;

fn good(answer: Answer) -> Vec<u8> {
    assert_eq!(answer.header[3], 0, "{answer:?}");
    answer.data
}

/// A descriptor of 16 bytes with a first block and a number of blocks.
fn long(operation: u8, flags: u8, first: u64, count: u32) -> [u8; 16] {
    let mut descriptor = [0; 16];
    descriptor[..2].copy_from_slice(&[operation, flags]);
    descriptor[2..10].copy_from_slice(&first.to_be_bytes());
    descriptor[10..14].copy_from_slice(&count.to_be_bytes());
    descriptor
}

/// What every host asks when it finds a disk.
fn attach(host: &mut Initiator) {
    let listed = good(host.command(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256, true, &[]));
    assert_eq!(listed[..4], 8u32.to_be_bytes(), "one unit");
    let standard = good(host.command(&[0x12, 0, 0, 0, 255, 0], 255, true, &[]));
    assert_eq!((standard[0], &standard[8..14]), (0, &b"CENOTE"[..]), "a disk");
    let pages = good(host.command(&[0x12, 1, 0, 0, 255, 0], 255, true, &[]));
    for page in &pages[4..] {
        let body = good(host.command(&[0x12, 1, *page, 0, 255, 0], 255, true, &[]));
        assert_eq!(body[1], *page);
    }
    good(host.command(&[0; 6], 0, false, &[]));
    let capacity = good(host.command(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8, true, &[]));
    assert_eq!(capacity[..4], (SIZE as u32 / 512 - 1).to_be_bytes());
    let capacity = good(host.command(&long(0x9e, 0x10, 0, 32), 32, true, &[]));
    assert_eq!(
        (&capacity[..8], capacity[14] & 0xc0),
        (&(SIZE as u64 / 512 - 1).to_be_bytes()[..], 0xc0),
        "thin"
    );
    let modes = good(host.command(&[0x1a, 0, 0x3f, 0, 255, 0], 255, true, &[]));
    assert_eq!((usize::from(modes[0]) + 1, modes[2] & 0x80), (modes.len(), 0), "it can be written");
    let caching = good(host.command(&[0x1a, 8, 8, 0, 255, 0], 255, true, &[]));
    assert_eq!(caching[6] & 4, 4, "writes are kept until a flush");
}

#[test]
fn a_hypervisor_finds_a_disk_and_leaves_it_the_work() {
    let served = Served::start(SIZE, None, Limits::default());
    let agreed = ["MaxRecvDataSegmentLength=262144", "HeaderDigest=None", "DataDigest=None"];
    let mut host = Initiator::log_in_as(&served, "iqn.1998-01.com.vmware:host", TARGET, &agreed);
    attach(&mut host);
    let groups = good(host.command(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256, true, &[]));
    assert_eq!(groups[4] & 0xf, 0, "active and optimized");
    let limits = good(host.command(&[0x12, 1, 0xb0, 0, 255, 0], 255, true, &[]));
    assert!(limits[5] >= 1, "blocks of an atomic test and set");
    // The lock of a file: compared, and taken only by who expects it to be free.
    let (free, mine, theirs) = ([0; 512], [1; 512], [2; 512]);
    let mut test_and_set = long(0x89, 0, 100, 0);
    test_and_set[13] = 1;
    good(host.command(&test_and_set, 1024, false, &[free, mine].concat()));
    let lost = host.command(&test_and_set, 1024, false, &[free, theirs].concat());
    assert_eq!((lost.header[3], lost.data[4] & 0xf), (2, 0xe), "a miscompare");
    assert_eq!(good(host.command(&long(0x88, 0, 100, 1), 512, true, &[])), mine);
    // A new disk is zeroed, a template is cloned, and a deleted one is given back.
    good(host.command(&long(0x93, 0, 2048, 2048), 512, false, &[0; 512]));
    let template = vec![7; 64 << 10];
    good(host.command(&long(0x8a, 0, 4096, 128), template.len() as u32, false, &template));
    good(copy(&mut host, [GUID, GUID], 128, 4096, 8192));
    assert!(good(host.command(&long(0x88, 0, 8192, 128), template.len() as u32, true, &[])) == template);
    let mut ranges = vec![0, 22, 0, 16, 0, 0, 0, 0];
    ranges.extend(8192u64.to_be_bytes());
    ranges.extend(128u32.to_be_bytes());
    ranges.extend([0; 4]);
    good(host.command(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 24, false, &ranges));
    let status = good(host.command(&long(0x9e, 0x12, 8192, 24), 24, true, &[]));
    assert_eq!(status[20] & 0xf, 1, "deallocated");
}

#[test]
fn members_of_a_cluster_agree_on_a_disk() {
    let served = Served::start(SIZE, None, Limits::default());
    let [mut owner, mut other] = ["iqn.1991-05.com.microsoft:a", "iqn.1991-05.com.microsoft:b"]
        .map(|name| Initiator::log_in_as(&served, name, TARGET, &[]));
    attach(&mut owner);
    attach(&mut other);
    good(register(&mut owner, 0xa, 0));
    good(register(&mut other, 0xb, 0));
    // The one that owns the disk reserves it for those that are registered.
    let mut list = [0; 24];
    list[..8].copy_from_slice(&0xau64.to_be_bytes());
    good(owner.command(&[0x5f, 1, 5, 0, 0, 0, 0, 0, 24, 0], 24, false, &list));
    good(other.command(&long(0x8a, 0, 8, 1), 512, false, &[3; 512]));
    let mut stranger = Initiator::log_in_as(&served, "iqn.1991-05.com.microsoft:c", TARGET, &[]);
    assert_eq!(stranger.command(&long(0x8a, 0, 8, 1), 512, false, &[4; 512]).header[3], 0x18);
    assert_eq!(
        good(stranger.command(&long(0x88, 0, 8, 1), 512, true, &[])),
        [3; 512],
        "reads are let through"
    );
    // The owner does not answer: the other one takes the disk, and the owner can write no more.
    let mut list = [0; 24];
    list[..8].copy_from_slice(&0xbu64.to_be_bytes());
    list[8..16].copy_from_slice(&0xau64.to_be_bytes());
    good(other.command(&[0x5f, 4, 5, 0, 0, 0, 0, 0, 24, 0], 24, false, &list));
    let told = owner.command(&[0; 6], 0, false, &[]);
    assert_eq!((told.header[3], told.data[4], told.data[14]), (2, 6, 0x2a), "it is told");
    assert_eq!(owner.command(&long(0x8a, 0, 8, 1), 512, false, &[5; 512]).header[3], 0x18);
    assert_eq!(reserve(&mut owner, 0xa).header[3], 0x18, "it is registered no more");
    good(other.command(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, false, &[]));
    assert_eq!(good(other.command(&long(0x88, 0, 8, 1), 512, true, &[])), [3; 512]);
}
