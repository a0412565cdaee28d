//! Sessions that another task goes on with: with their numbers, and with the reservations of their volumes.

use std::time::Duration;

use server::block::Limits;
use server::gate::Gate;

use crate::harness::{Initiator, Served, TARGET};

const SIZE: usize = 8 << 20;
const READ_ONE: [u8; 10] = [0x28, 0, 0, 0, 5, 0, 0, 0, 1, 0];
const WRITE_ONE: [u8; 10] = [0x2a, 0, 0, 0, 5, 0, 0, 0, 1, 0];
const CONFLICT: u8 = 0x18;

fn served() -> (Served, Gate) {
    let gate = Gate::default();
    (Served::start(SIZE, None, Limits { gate: gate.clone(), ..Limits::default() }), gate)
}

/// Has other tasks go on with all sessions. How many.
fn hand_over(gate: &Gate) -> usize {
    let closed = gate.close(Duration::from_secs(60)).unwrap();
    let clients = closed.take();
    let count = clients.len();
    closed.give_away();
    gate.hand_in(clients);
    gate.open();
    count
}

#[test]
fn a_session_keeps_its_numbers() {
    let (served, gate) = served();
    let mut one = Initiator::log_in(&served, TARGET, &["ImmediateData=Yes"]);
    let mut status = None;
    for turn in 0..20u8 {
        let wrote = one.command(&WRITE_ONE, 512, false, &[turn; 512]);
        assert_eq!((wrote.header[0], wrote.header[3]), (0x21, 0), "{wrote:?}");
        if let Some(before) = status {
            assert_eq!(wrote.word(24), before, "a number of an answer was left out or repeated");
        }
        assert_eq!(hand_over(&gate), 1);
        let read = one.command(&READ_ONE, 512, true, &[]);
        assert_eq!(read.data, [turn; 512], "{turn}");
        assert_eq!(read.word(24), wrote.word(24) + 1);
        status = Some(read.word(24) + 1);
    }
}

#[test]
fn a_write_whose_data_are_awaited_is_done_first() {
    let (served, gate) = served();
    let mut one = Initiator::log_in(&served, TARGET, &["ImmediateData=No"]);
    one.begin(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 4, 0], 2048, false, &[]);
    let asked = one.answer().unwrap();
    assert_eq!(asked.header[0], 0x31, "{asked:?}");
    let closing = std::thread::spawn({
        let gate = gate.clone();
        move || hand_over(&gate)
    });
    while !gate.is_closed() {
        std::thread::yield_now();
    }
    // It comes before the data of the write. Where the session knows of the gate already, it waits for the
    // task that goes on.
    one.begin(&[0x28, 0, 0, 0, 0, 0, 0, 0, 4, 0], 2048, true, &[]);
    let mut header = [0; 48];
    (header[0], header[1]) = (5, 0x80);
    header[16..24].copy_from_slice(&asked.header[16..24]);
    one.send(header, &[8; 2048]);
    let (first, second) = (one.answer().unwrap(), one.answer().unwrap());
    let (wrote, read, before) = if first.header[0] == 0x21 { (first, second, 8) } else { (second, first, 0) };
    assert_eq!((wrote.header[0], wrote.header[3]), (0x21, 0), "{wrote:?}");
    assert_eq!(read.header[0], 0x25, "{read:?}");
    assert_eq!(read.data, vec![before; 2048]);
    assert_eq!(closing.join().unwrap(), 1);
    let read = one.command(&[0x28, 0, 0, 0, 0, 0, 0, 0, 4, 0], 2048, true, &[]);
    assert_eq!(read.data, vec![8; 2048]);
}

#[test]
fn reservations_stay() {
    let (served, gate) = served();
    let mut one = Initiator::log_in(&served, TARGET, &["ImmediateData=Yes"]);
    let mut other = Initiator::log_in(&served, TARGET, &["ImmediateData=Yes"]);
    // RESERVE(6).
    assert_eq!(one.command(&[0x16, 0, 0, 0, 0, 0], 0, false, &[]).header[3], 0);
    for _ in 0..3 {
        assert_eq!(other.command(&READ_ONE, 512, true, &[]).header[3], CONFLICT);
        assert_eq!(hand_over(&gate), 2);
    }
    assert_eq!(one.command(&READ_ONE, 512, true, &[]).data.len(), 512);
    assert_eq!(one.command(&[0x17, 0, 0, 0, 0, 0], 0, false, &[]).header[3], 0);
    // REGISTER with a key, not to be kept, and RESERVE: write exclusive.
    let mut register = [0; 24];
    register[15] = 9;
    assert_eq!(one.command(&[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], 24, false, &register).header[3], 0);
    let mut reserve = [0; 24];
    reserve[7] = 9;
    assert_eq!(one.command(&[0x5f, 1, 1, 0, 0, 0, 0, 0, 24, 0], 24, false, &reserve).header[3], 0);
    for _ in 0..3 {
        assert_eq!(other.command(&WRITE_ONE, 512, false, &[1; 512]).header[3], CONFLICT);
        assert_eq!(one.command(&WRITE_ONE, 512, false, &[2; 512]).header[3], 0);
        assert_eq!(hand_over(&gate), 2);
    }
    assert_eq!(other.command(&READ_ONE, 512, true, &[]).data, [2; 512]);
}
