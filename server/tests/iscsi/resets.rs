//! Commands that another session ends, and what its initiator is told.

use std::sync::Arc;

use server::block::Limits;

use crate::harness::{Answer, Disk, Disks, Initiator, Served, TARGET};
use crate::units::{register, sense};

const SIZE: usize = 1 << 20;
const TEST_UNIT_READY: [u8; 6] = [0; 6];
const WRITE_ONE: [u8; 10] = [0x2a, 0, 0, 0, 0, 1, 0, 0, 1, 0];

fn status(answer: &Answer) -> u8 {
    answer.header[3]
}

/// Three initiators, and a write of the second whose data the target waits for.
fn sessions(served: &Served) -> ([Initiator; 3], u32) {
    let mut sessions =
        ["a", "b", "c"].map(|name| Initiator::log_in_as(served, &format!("iqn.test:{name}"), TARGET, &[]));
    let tag = sessions[1].begin(&WRITE_ONE, 512, false, &[]);
    let asked = sessions[1].answer().expect("a request for data");
    assert_eq!((asked.header[0], asked.word(16)), (0x31, tag));
    (sessions, tag)
}

#[test]
fn a_reset_ends_the_commands_of_all_sessions_and_the_others_are_told() {
    let served = Served::start(SIZE, None, Limits::default());
    // Of the unit; of the target, warm and cold.
    for function in [5, 6, 7] {
        let ([mut one, mut other, mut third], tag) = sessions(&served);
        assert_eq!(one.manage(function).header[2], 0, "function {function} is complete");
        let ended = other.answer().expect("an answer");
        assert_eq!((ended.header[0], status(&ended), ended.word(16)), (0x21, 0x40, tag), "aborted");
        for told in [&mut other, &mut third] {
            let answer = told.command(&TEST_UNIT_READY, 0, false, &[]);
            assert_eq!(sense(&answer), (6, 0x29, 3), "function {function}");
            assert_eq!(status(&told.command(&TEST_UNIT_READY, 0, false, &[])), 0, "it is told once");
        }
        assert_eq!(status(&one.command(&TEST_UNIT_READY, 0, false, &[])), 0, "it did it itself");
        // Data that come too late change nothing, and the next write does.
        let write = other.command(&WRITE_ONE, 512, false, &[7; 512]);
        assert_eq!(status(&write), 0);
    }
}

#[test]
fn a_reset_of_one_unit_leaves_the_others_alone() {
    let disks = Disks::default()
        .with("tank/a", "iscsi(target=vms,lun=0)", &Arc::new(Disk::new(1, SIZE, true)))
        .with("tank/b", "iscsi(target=vms,lun=1)", &Arc::new(Disk::new(2, SIZE, true)));
    let served = Served::start_with(disks, None, Limits::default());
    let [mut one, mut other] =
        ["a", "b"].map(|name| Initiator::log_in_as(&served, name, "iqn.2026-11.org.cenote:vms", &[]));
    // The session has its units when it answers.
    assert_eq!(status(&other.command(&TEST_UNIT_READY, 0, false, &[])), 0);
    one.lun = 1;
    assert_eq!(one.manage(5).header[2], 0);
    assert_eq!(status(&other.command(&TEST_UNIT_READY, 0, false, &[])), 0);
    other.lun = 1;
    assert_eq!(sense(&other.command(&TEST_UNIT_READY, 0, false, &[])), (6, 0x29, 3));
}

#[test]
fn a_cleared_task_set_is_told_to_those_that_had_tasks() {
    let served = Served::start(SIZE, None, Limits::default());
    let ([mut one, mut other, third], tag) = sessions(&served);
    assert_eq!(one.manage(4).header[2], 0);
    let ended = other.answer().expect("an answer");
    assert_eq!((status(&ended), ended.word(16)), (0x40, tag));
    assert_eq!(sense(&other.command(&TEST_UNIT_READY, 0, false, &[])), (6, 0x2f, 0));
    for mut none in [one, third] {
        assert_eq!(status(&none.command(&TEST_UNIT_READY, 0, false, &[])), 0);
    }
}

#[test]
fn a_member_of_a_cluster_that_is_preempted_and_aborted_writes_no_more() {
    let served = Served::start(SIZE, None, Limits::default());
    let ([mut one, mut other, _], tag) = {
        let mut sessions = ["a", "b", "c"].map(|name| Initiator::log_in_as(&served, name, TARGET, &[]));
        for (session, key) in sessions.iter_mut().zip([0xa, 0xb]) {
            assert_eq!(status(&register(session, key, 0)), 0);
        }
        let tag = sessions[1].begin(&WRITE_ONE, 512, false, &[]);
        assert_eq!(sessions[1].answer().expect("a request for data").header[0], 0x31);
        (sessions, tag)
    };
    let mut list = [0; 24];
    list[..8].copy_from_slice(&0xau64.to_be_bytes());
    list[8..16].copy_from_slice(&0xbu64.to_be_bytes());
    let preempted = one.command(&[0x5f, 5, 5, 0, 0, 0, 0, 0, 24, 0], 24, false, &list);
    assert_eq!(status(&preempted), 0);
    let ended = other.answer().expect("an answer");
    assert_eq!((status(&ended), ended.word(16)), (0x40, tag));
    assert_eq!(sense(&other.command(&TEST_UNIT_READY, 0, false, &[])), (6, 0x2a, 5));
}

#[test]
fn a_write_of_fewer_bytes_than_its_blocks_is_refused_and_a_read_is_cut() {
    let served = Served::start(SIZE, None, Limits::default());
    let mut one = Initiator::log_in(&served, TARGET, &[]);
    let two = |operation: u8| [operation, 0, 0, 0, 0, 8, 0, 0, 2, 0];
    assert_eq!(status(&one.command(&two(0x2a), 1024, false, &[1; 1024])), 0);
    for (expected, data) in [(512, &[2; 512][..]), (1000, &[2; 1000]), (0, &[])] {
        let refused = one.command(&two(0x2a), expected, false, data);
        assert_eq!((status(&refused), sense(&refused)), (2, (5, 0x0e, 3)), "{expected} bytes");
        let is_overflow = refused.header[1] & 6;
        assert_eq!((is_overflow, refused.word(44)), (4, 1024 - expected), "what was not moved");
    }
    // An initiator that says it reads sends nothing.
    assert_eq!(sense(&one.command(&two(0x2a), 1024, true, &[])), (5, 0x0e, 3));
    let short = one.command(&two(0x28), 512, true, &[]);
    assert_eq!((short.header[3], short.header[1] & 6, short.word(44)), (0, 4, 512), "a read is cut");
    assert!(short.data == [1; 512]);
    // More than its blocks is passed over.
    let long = one.command(&two(0x2a), 1536, false, &[3; 1536]);
    assert_eq!((status(&long), long.header[1] & 6, long.word(44)), (0, 2, 512));
    let read = one.command(&two(0x28), 1536, true, &[]);
    assert_eq!((&read.data[..], read.header[1] & 6, read.word(44)), (&[3; 1024][..], 2, 512));
}

#[test]
fn reservations_are_listed_among_the_operations() {
    let served = Served::start(SIZE, None, Limits::default());
    let mut one = Initiator::log_in(&served, TARGET, &[]);
    let report = |options: u8, operation: u8, action: u8| {
        [0xa3, 0x0c, options, operation, 0, action, 0, 0, 16, 0, 0, 0]
    };
    let all = one.command(&report(0, 0, 0), 4096, true, &[]).data;
    let listed: Vec<(u8, u8)> = all[4..].chunks_exact(8).map(|one| (one[0], one[3])).collect();
    for (operation, actions) in [(0x5e, 0..4), (0x5f, 0..7)] {
        for action in actions {
            assert!(listed.contains(&(operation, action)), "{operation:#x} {action}");
            let alone = one.command(&report(2, operation, action), 4096, true, &[]).data;
            assert_eq!((alone[1] & 7, alone[3], alone[4]), (3, 10, operation));
        }
        let none = one.command(&report(2, operation, 0x1f), 4096, true, &[]).data;
        assert_eq!(none[1] & 7, 1, "not supported");
    }
}
