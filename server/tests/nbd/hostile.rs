//! Clients that mean harm, and a good one beside them that must not notice.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use device::IoBuf;
use server::block::{
    Caller, Export, ExportError, Exports, Extent, Limits, Listed, OWN_BYTES, SharedMemory, Unopened,
};
use tokio::sync::Semaphore;

use crate::harness::Served;
use crate::protocol::{Client, go, request, string};

const NAME: &str = "tank/vol";
const SIZE_BYTES: u64 = 1 << 30;
const MIB: usize = 1 << 20;
/// Replies in a socket's buffer do not count for the server any more; more than Linux's default.
const SOCKET_BYTES: usize = MIB;

const OPT_GO: u32 = 7;
const ERR_POLICY: u32 = 0x8000_0002;
const REP_ACK: u32 = 1;
const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_DISC: u16 = 2;
const CMD_FLUSH: u16 = 3;

/// An export without bytes: it counts what it is asked for, and changes wait until they are let through.
#[derive(Debug)]
struct Counted {
    /// Bytes of reads.
    read: AtomicUsize,
    /// Changes that wait or waited.
    begun: AtomicUsize,
    /// Changes that are done.
    done: AtomicUsize,
    /// Changes that are to be done neither now nor later.
    given_up: AtomicUsize,
    gate: Semaphore,
}

impl Counted {
    fn new() -> Arc<Self> {
        let zero = AtomicUsize::default;
        Arc::new(Self {
            read: zero(),
            begun: zero(),
            done: zero(),
            given_up: zero(),
            gate: Semaphore::new(0),
        })
    }
}

/// Counts a change that is dropped half-way.
struct Begun<'a>(&'a Counted, bool);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Begun(counted, is_done) = self;
        if *is_done { &counted.done } else { &counted.given_up }.fetch_add(1, Ordering::SeqCst);
    }
}

impl Export for Counted {
    fn size_bytes(&self) -> u64 {
        SIZE_BYTES
    }

    fn block_bytes(&self) -> u32 {
        4096
    }

    fn is_writable(&self) -> bool {
        true
    }

    async fn read(&self, _: u64, into: &mut [u8]) -> Result<(), ExportError> {
        // As if a disk had to be asked.
        tokio::task::yield_now().await;
        self.read.fetch_add(into.len(), Ordering::SeqCst);
        into.fill(7);
        Ok(())
    }

    async fn extent(&self, _: u64) -> Result<Extent, ExportError> {
        Ok(Extent { len_bytes: 4096, is_hole: true })
    }

    async fn write(&self, _: u64, _: IoBuf, _: bool) -> Result<(), ExportError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut begun = Begun(self, false);
        self.gate.acquire().await.expect("an open gate").forget();
        begun.1 = true;
        Ok(())
    }
}

struct One(Arc<Counted>);

impl Exports for One {
    type Export = Counted;

    async fn listed(&self, _: Caller<'_>) -> Vec<Listed> {
        vec![Listed::to_all(NAME)]
    }

    async fn open(&self, name: &str, _: Caller<'_>) -> Result<Arc<Counted>, Unopened> {
        (name == NAME).then(|| Arc::clone(&self.0)).ok_or(Unopened::Unknown)
    }
}

/// Limits that no test reaches by accident; stalled clients stay.
fn limits() -> Limits {
    Limits { shared: SharedMemory::new(64 * MIB), stall: Duration::from_secs(3600), ..Limits::default() }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within half a minute");
}

fn assert_reads(client: &mut Client, len: u32) {
    client.request(0, CMD_READ, 9, 4096, len);
    assert_eq!(client.simple_reply(), (0, 9));
    assert!(client.take_vec(len as usize).iter().all(|byte| *byte == 7));
}

/// A client that reads on and on beside what a test does, and has seen no error in the end.
struct GoodClient {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<usize>,
}

impl GoodClient {
    fn start(served: &Served) -> Self {
        let mut client = Client::chosen(served, NAME, false);
        let is_over = Arc::<AtomicBool>::default();
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut count = 0;
            while !until.load(Ordering::Relaxed) || count == 0 {
                assert_reads(&mut client, 100_000);
                count += 1;
            }
            count
        });
        Self { is_over, thread }
    }

    fn finish(self) {
        self.is_over.store(true, Ordering::Relaxed);
        assert!(self.thread.join().expect("a good client was disturbed") > 0);
    }
}

/// All that a client says from the greeting on: options, requests, the bytes of a write.
fn conversation() -> Vec<u8> {
    let option = |number: u32, data: &[u8]| {
        [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let contexts = [string(NAME), 1u32.to_be_bytes().to_vec(), string("base:allocation")].concat();
    [
        3u32.to_be_bytes().to_vec(),
        option(8, &[]),
        option(3, &[]),
        option(10, &contexts),
        option(6, &go(NAME, &[0, 1, 3])),
        option(OPT_GO, &go(NAME, &[])),
        request(0, CMD_READ, 1, 0, 4096),
        request(0, 7, 2, 0, 1 << 20),
        request(0, CMD_WRITE, 3, 512, 64),
        vec![0x5a; 64],
        request(0, CMD_FLUSH, 4, 0, 0),
        request(0, CMD_DISC, 5, 0, 0),
    ]
    .concat()
}

/// Says all of it, hangs up, and reads what there is to read until the server hangs up too.
fn say(served: &Served, bytes: &[u8]) {
    let mut stream = UnixStream::connect(served.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The server may end it first.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    match stream.read_to_end(&mut Vec::new()) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("the server hangs: {error}"),
        _ => {}
    }
}

#[test]
fn a_client_may_leave_after_any_byte() {
    let counted = Counted::new();
    counted.gate.add_permits(1 << 20);
    let served = Served::start_limited(One(Arc::clone(&counted)), limits());
    let good = GoodClient::start(&served);
    let conversation = conversation();
    for said in 0..=conversation.len() {
        say(&served, &conversation[..said]);
    }
    good.finish();
    assert!(counted.done.load(Ordering::SeqCst) > 0, "some of them got as far as to write");
}

#[test]
fn any_byte_may_be_wrong() {
    let counted = Counted::new();
    counted.gate.add_permits(1 << 20);
    let served = Served::start_limited(One(counted), limits());
    let good = GoodClient::start(&served);
    for at in 0..conversation().len() {
        for wrong in [0x01, 0x80, 0xff] {
            let mut conversation = conversation();
            conversation[at] ^= wrong;
            say(&served, &conversation);
        }
    }
    good.finish();
}

#[test]
fn lengths_that_lie_end_the_handshake_at_once() {
    let served = Served::start_limited(One(Counted::new()), limits());
    for option in 0..20u32 {
        for len in [64u32 << 10, 1 << 31, u32::MAX] {
            let mut client = Client::greeted(&served);
            client.send(&[b"IHAVEOPT", &option.to_be_bytes(), &len.to_be_bytes()]);
            assert!(client.is_closed(), "option {option} of {len} bytes");
        }
    }
    // A name that is longer than its option, one of all that an option may be, and more queries than there
    // are bytes.
    for data in [
        [&u32::MAX.to_be_bytes()[..], b"tank"].concat(),
        go(&"v".repeat(16_000), &[]),
        [string(NAME), u32::MAX.to_be_bytes().to_vec()].concat(),
    ] {
        for option in [6, OPT_GO, 9, 10] {
            let mut client = Client::greeted(&served);
            client.option(option, &data);
            assert_eq!(client.option_reply().1 >> 31, 1, "an error");
            client.option(OPT_GO, &go(NAME, &[]));
            while client.option_reply().1 != REP_ACK {}
            assert_reads(&mut client, 1);
        }
    }
}

#[test]
fn options_without_end_are_not_listened_to() {
    let served = Served::start_limited(One(Counted::new()), limits());
    let mut client = Client::greeted(&served);
    let mut sender = client.try_clone();
    let sending = thread::spawn(move || {
        for _ in 0..10_000 {
            if sender.0.write_all(&[&b"IHAVEOPT"[..], &[0; 8]].concat()).is_err() {
                return;
            }
        }
        panic!("ten thousand options were listened to");
    });
    assert!(client.is_closed());
    sending.join().unwrap();
}

#[test]
fn ten_thousand_silent_connections_take_no_place_from_others() {
    let limits = Limits { newcomers: 256, grace: Duration::from_millis(20), ..limits() };
    let served = Served::start_limited(One(Counted::new()), limits);
    let good = GoodClient::start(&served);
    let silent = |held: &mut VecDeque<UnixStream>| {
        held.push_back(UnixStream::connect(served.socket()).unwrap());
        // The test may not have more descriptors than that; those that were sent away are in the way only
        // here.
        if held.len() > 400 {
            held.pop_front();
        }
    };
    let mut held = VecDeque::new();
    for count in 0..10_000 {
        silent(&mut held);
        if count % 500 == 0 {
            // Who is quick is let in, at the latest when it tries again.
            let is_let_in = || {
                let mut stream = UnixStream::connect(served.socket()).unwrap();
                let said = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &OPT_GO.to_be_bytes()].concat();
                let choice = go(NAME, &[]);
                let said = [&said[..], &(choice.len() as u32).to_be_bytes(), &choice].concat();
                let mut greeting = [0; 18];
                let mut answer = [0; 20];
                stream.write_all(&said).is_ok()
                    && stream.read_exact(&mut greeting).is_ok()
                    && stream.read_exact(&mut answer).is_ok()
            };
            assert!((0..20).any(|_| is_let_in()), "after {count} silent ones");
        }
    }
    good.finish();
}

#[test]
fn who_comes_too_late_is_told_so() {
    let served = Served::start_limited(One(Counted::new()), Limits { clients: 2, ..limits() });
    let mut first = Client::chosen(&served, NAME, false);
    let second = Client::chosen(&served, NAME, false);
    let mut third = Client::greeted(&served);
    third.option(OPT_GO, &go(NAME, &[]));
    let (_, kind, words) = third.option_reply();
    assert_eq!(
        (kind, String::from_utf8(words).unwrap().as_str()),
        (ERR_POLICY, "too many clients: 2 are served")
    );
    let mut fourth = Client::greeted(&served);
    fourth.option(1, NAME.as_bytes());
    assert!(fourth.is_closed());
    drop(second);
    // The server takes note of that in a moment; the third client goes on asking.
    wait_until("a place", || {
        let mut client = third.try_clone();
        client.option(OPT_GO, &go(NAME, &[]));
        let mut kind = client.option_reply().1;
        while kind != ERR_POLICY && kind != REP_ACK {
            kind = client.option_reply().1;
        }
        kind == REP_ACK
    });
    assert_reads(&mut third, 100);
    assert_reads(&mut first, 100);
}

/// Asks for much and takes none of it.
fn greedy(served: &Served) -> Client {
    let mut client = Client::chosen(served, NAME, false);
    let requests: Vec<u8> = (0..64).flat_map(|cookie| request(0, CMD_READ, cookie, 0, MIB as u32)).collect();
    client.send(&[&requests]);
    client
}

#[test]
fn replies_that_nobody_takes_are_bounded_over_all_clients() {
    let counted = Counted::new();
    let limits = limits();
    let shared = limits.shared.bytes();
    let served = Served::start_limited(One(Arc::clone(&counted)), limits);
    let mut good = Client::chosen(&served, NAME, false);
    let greedy: Vec<_> = (0..24).map(|_| greedy(&served)).collect();
    wait_until("memory that is used up", || counted.read.load(Ordering::SeqCst) > shared);
    // They wait in line now, or will; one that takes what it asks for goes on with what is its own.
    let mut own = 0;
    for _ in 0..50 {
        assert_reads(&mut good, MIB as u32);
        own += MIB;
    }
    let held = counted.read.load(Ordering::SeqCst) - own;
    let most = shared + greedy.len() * (OWN_BYTES + MIB + SOCKET_BYTES);
    assert!(held <= most, "{} MiB are held, {} MiB at most were to be", held / MIB, most / MIB);
}

#[test]
fn who_keeps_memory_that_others_wait_for_is_disconnected() {
    let counted = Counted::new();
    let limits = Limits { shared: SharedMemory::new(32 * MIB), stall: Duration::from_millis(50), ..limits() };
    let served = Served::start_limited(One(Arc::clone(&counted)), limits);
    let mut writers: Vec<_> = (0..4)
        .map(|_| {
            // The bytes of a write that never come.
            let mut client = Client::chosen(&served, NAME, false);
            client.request(0, CMD_WRITE, 1, 0, 32 << 20);
            client.send(&[&[1; 1000]]);
            client.0.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            client
        })
        .collect();
    let _readers: Vec<_> = (0..4).map(|_| greedy(&served)).collect();
    let mut good = Client::chosen(&served, NAME, false);
    // Each of them has all that is shared, until another client asks for it.
    while !writers.is_empty() {
        assert_reads(&mut good, 32 << 20);
        writers.retain_mut(|writer| {
            writer.0.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        });
    }
    assert_eq!(counted.begun.load(Ordering::SeqCst), 0);
}

/// A write of a few bytes.
fn small_write(cookie: u64) -> Vec<u8> {
    [request(0, CMD_WRITE, cookie, 0, 16), vec![1; 16]].concat()
}

#[test]
fn requests_without_end_are_taken_as_others_are_done() {
    let counted = Counted::new();
    let served = Served::start_limited(One(Arc::clone(&counted)), limits());
    let good = GoodClient::start(&served);
    let client = Client::chosen(&served, NAME, false);
    let mut sender = client.try_clone();
    let sending = thread::spawn(move || {
        for cookie in 0..100_000 {
            if sender.0.write_all(&small_write(cookie)).is_err() {
                return;
            }
        }
    });
    wait_until("as many as there may be", || counted.begun.load(Ordering::SeqCst) == 256);
    good.finish();
    assert_eq!(counted.begun.load(Ordering::SeqCst), 256);
    // The client takes no replies.
    client.0.shutdown(Shutdown::Both).unwrap();
    sending.join().unwrap();
    counted.gate.add_permits(100_000);
    wait_until("an end", || {
        let [begun, done, given_up] =
            [&counted.begun, &counted.done, &counted.given_up].map(|count| count.load(Ordering::SeqCst));
        done >= 1 && begun == done + given_up
    });
    assert_reads(&mut Client::chosen(&served, NAME, false), 100);
}

#[test]
fn what_waits_is_given_up_with_its_client() {
    let counted = Counted::new();
    let served = Served::start_limited(One(Arc::clone(&counted)), limits());
    let mut client = Client::chosen(&served, NAME, false);
    (0..100).for_each(|cookie| client.send(&[&small_write(cookie)]));
    wait_until("all of them", || counted.begun.load(Ordering::SeqCst) == 100);
    drop(client);
    wait_until("an end", || counted.given_up.load(Ordering::SeqCst) == 100);
    assert_eq!(counted.done.load(Ordering::SeqCst), 0);
}

#[test]
fn what_was_asked_for_before_the_farewell_is_done() {
    let counted = Counted::new();
    let served = Served::start_limited(One(Arc::clone(&counted)), limits());
    for stays in [true, false] {
        let before = counted.done.load(Ordering::SeqCst);
        let mut client = Client::chosen(&served, NAME, false);
        for cookie in 0..3 {
            client.send(&[&request(0, CMD_WRITE, cookie, 0, 4), &[1; 4]]);
        }
        client.request(0, CMD_DISC, 9, 0, 0);
        wait_until("three writes", || counted.begun.load(Ordering::SeqCst) == before + 3);
        let client = stays.then_some(client);
        counted.gate.add_permits(3);
        wait_until("three that are done", || counted.done.load(Ordering::SeqCst) == before + 3);
        if let Some(mut client) = client {
            for _ in 0..3 {
                assert_eq!(client.simple_reply().0, 0);
            }
            assert!(client.is_closed());
        }
    }
    assert_eq!(counted.given_up.load(Ordering::SeqCst), 0);
}

#[test]
fn half_a_request_holds_nothing_up() {
    let served = Served::start_limited(One(Counted::new()), limits());
    let mut halves: Vec<_> = (0..28)
        .map(|said| {
            let mut client = Client::chosen(&served, NAME, false);
            client.send(&[&request(0, CMD_READ, 9, 4096, 100)[..said]]);
            client
        })
        .collect();
    assert_reads(&mut Client::chosen(&served, NAME, false), 100);
    for (said, client) in halves.iter_mut().enumerate() {
        client.send(&[&request(0, CMD_READ, 9, 4096, 100)[said..]]);
        assert_eq!(client.simple_reply(), (0, 9));
        assert_eq!(client.take_vec(100), [7; 100]);
    }
}
