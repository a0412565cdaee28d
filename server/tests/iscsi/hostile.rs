//! Initiators that mean harm, and a good one beside them that must not notice.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use server::block::Limits;

use crate::harness::{Initiator, Served, TARGET};

const SIZE: usize = 1 << 20;
const READ_ONE: [u8; 10] = [0x28, 0, 0, 0, 0, 5, 0, 0, 1, 0];
/// How long a busy server may take to see its clients.
const LIMIT: Duration = Duration::from_secs(60);
/// More than the server takes of a login.
const MUCH: usize = 128;

/// An initiator that reads on and on beside what a test does, and has seen no error in the end.
struct Good {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<usize>,
}

impl Good {
    fn start(served: &Served) -> Self {
        let mut host = Initiator::log_in(served, TARGET, &[]);
        let is_over = Arc::<AtomicBool>::default();
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut count = 0;
            while !until.load(Ordering::Relaxed) || count == 0 {
                assert_eq!(host.command(&READ_ONE, 512, true, &[]).data.len(), 512);
                count += 1;
            }
            count
        });
        Self { is_over, thread }
    }

    fn finish(self) {
        self.is_over.store(true, Ordering::Relaxed);
        assert!(self.thread.join().expect("a good initiator was disturbed") > 0);
    }
}

/// A unit of the protocol with its data.
fn unit(mut header: [u8; 48], data: &[u8]) -> Vec<u8> {
    header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    let padding = vec![0; data.len().next_multiple_of(4) - data.len()];
    [&header[..], data, &padding].concat()
}

/// The first unit of a login, with these flags and stages; each has an initiator of its own.
fn login(flags: u8, keys: &[&str]) -> Vec<u8> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut header = [0; 48];
    (header[0], header[1]) = (0x43, flags);
    header[8..14].copy_from_slice(&[0x80, 1, 2, 3, 4, 5]);
    header[27] = 1;
    let name = format!("InitiatorName=iqn.test:hostile{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let target = format!("TargetName={TARGET}");
    let keys = [name.as_str(), &target].into_iter().chain(keys.iter().copied());
    let data: Vec<u8> = keys.flat_map(|key| [key.as_bytes(), &[0]].concat()).collect();
    unit(header, &data)
}

/// All that an initiator says, from its login on: a read, a write with its data, a list of units, a text, and
/// its farewell.
fn conversation() -> Vec<u8> {
    let command = |number: u8, flags: u8, expected: u32, descriptor: &[u8], data: &[u8]| {
        let mut header = [0; 48];
        (header[0], header[1], header[19], header[27]) = (1, flags, number, number);
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[32..32 + descriptor.len()].copy_from_slice(descriptor);
        unit(header, data)
    };
    let mut text = [0; 48];
    (text[0], text[1], text[19], text[27]) = (4, 0x80, 4, 4);
    text[20..24].fill(0xff);
    let mut farewell = [0; 48];
    (farewell[0], farewell[1], farewell[19], farewell[27]) = (6, 0x80, 5, 5);
    [
        login(0x87, &["ImmediateData=Yes", "HeaderDigest=None"]),
        command(1, 0xc1, 512, &READ_ONE, &[]),
        command(2, 0xa1, 512, &[0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0], &[7; 512]),
        command(3, 0xc1, 64, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], &[]),
        unit(text, b"SendTargets=\0"),
        unit(farewell, &[]),
    ]
    .concat()
}

/// Says all of it, hangs up, and reads what there is to read until the server hangs up too.
fn say(served: &Served, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(served.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The server may end it first.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answers = Vec::new();
    match stream.read_to_end(&mut answers) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("the server hangs: {error}"),
        _ => answers,
    }
}

/// One that answers each login, as long as an honest initiator tries again.
fn is_let_in(served: &Served) -> bool {
    let mut stream = TcpStream::connect(served.address).unwrap();
    let mut header = [0; 48];
    stream.write_all(&login(0x87, &[])).is_ok()
        && stream.read_exact(&mut header).is_ok()
        && (header[0], header[36]) == (0x23, 0)
}

#[test]
fn an_initiator_may_leave_after_any_byte() {
    let served = Served::start(SIZE, None, Limits::default());
    let good = Good::start(&served);
    let conversation = conversation();
    let whole = say(&served, &conversation);
    assert_eq!(whole[whole.len() - 48], 0x26, "it is understood to its end");
    for said in 0..conversation.len() {
        say(&served, &conversation[..said]);
    }
    good.finish();
}

#[test]
fn any_byte_may_be_wrong() {
    let served = Served::start(SIZE, None, Limits::default());
    let good = Good::start(&served);
    let right = conversation();
    for at in 0..right.len() {
        for wrong in [0x01, 0x80, 0xff] {
            let mut conversation = right.clone();
            conversation[at] ^= wrong;
            say(&served, &conversation);
        }
    }
    good.finish();
}

#[test]
fn thousands_of_half_logins_take_no_place_from_others() {
    const NEWCOMERS: usize = 128;
    const HELD: usize = 300;
    let limits = Limits { newcomers: NEWCOMERS, grace: Duration::from_millis(10), ..Limits::default() };
    let served = Served::start(SIZE, Some("one 0123456789ab"), limits.clone());
    let open = Served::start(SIZE, None, limits);
    let good = Good::start(&open);
    // Nothing; half a header; a header without its data; a challenge that is not answered; keys that go on.
    let whole = login(0x00, &["AuthMethod=CHAP"]);
    let halves: [&[u8]; 5] = [&[], &whole[..30], &whole[..60], &whole, &login(0x40, &[])];
    for served in [&served, &open] {
        let mut held = VecDeque::new();
        for count in 0..3000 {
            let mut stream = TcpStream::connect(served.address).unwrap();
            // It may have been sent away already.
            let _ = stream.write_all(halves[count % halves.len()]);
            held.push_back(stream);
            // The test may not have more descriptors than that.
            if held.len() > HELD {
                held.pop_front();
            }
            if count % 300 == 299 && served.address == open.address {
                assert!((0..50).any(|_| is_let_in(served)), "after {count} halves");
            }
        }
        // What the server keeps of them is bounded, because their number is: all others were sent away.
        let is_kept = |stream: &mut TcpStream| {
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let mut answers = Vec::new();
            // An answer to the half, and then the end, unless it is still there.
            stream.read_to_end(&mut answers).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        // On a busy machine the server may not have seen the last ones yet.
        let began = Instant::now();
        while held.len() > NEWCOMERS {
            held.retain_mut(is_kept);
            assert!(held.len() <= NEWCOMERS || began.elapsed() < LIMIT, "{} are kept", held.len());
        }
    }
    good.finish();
}

#[test]
fn a_login_without_end_is_refused() {
    let served = Served::start(SIZE, None, Limits::default());
    let mut endless = Initiator::connect(&served);
    let mut header = [0; 48];
    (header[0], header[1], header[27]) = (0x43, 0x44, 1);
    let mut answers = 0;
    loop {
        endless.send(header, &[b'x'; 8192]);
        let Some(answer) = endless.answer() else { panic!("it was not told why") };
        answers += 1;
        if answer.header[36] != 0 {
            assert_eq!((answer.header[36], answer.header[37]), (3, 2), "out of resources");
            break;
        }
        assert!(answers < MUCH, "it is still listened to");
    }
    assert!(endless.answer().is_none());
    // Units without end, each of which is right.
    let mut patient = Initiator::connect(&served);
    let keys = ["InitiatorName=iqn.test:patient", &format!("TargetName={TARGET}")];
    let ended = (0..MUCH).position(|_| patient.login(1, 1, &keys).is_none());
    assert!(ended.is_some_and(|units| units > 0), "{ended:?}");
}

#[test]
fn sessions_have_places_and_one_that_leaves_gives_its_own_back() {
    let served = Served::start(SIZE, None, Limits { clients: 2, ..Limits::default() });
    let mut first = Initiator::log_in(&served, TARGET, &[]);
    let second = Initiator::log_in(&served, TARGET, &[]);
    let third = say(&served, &login(0x87, &[]));
    assert_eq!((third[36], third[37]), (3, 2), "out of resources");
    drop(second);
    // The server takes note of that in a moment.
    assert!((0..3000).any(|_| is_let_in(&served) || {
        thread::sleep(Duration::from_millis(10));
        false
    }));
    assert_eq!(first.command(&READ_ONE, 512, true, &[]).data.len(), 512);
}
