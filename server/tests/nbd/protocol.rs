//! The protocol byte by byte, and clients that do not keep to it.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use server::block::{Caller, Exports, Limits, Listed, Unopened};

use crate::harness::{DeviceExport, Named, Served, pattern};

const SIZE_BYTES: usize = 1 << 20;
const NAME: &str = "tank/vol";

const OPT_EXPORT_NAME: u32 = 1;
const OPT_ABORT: u32 = 2;
const OPT_LIST: u32 = 3;
const OPT_STARTTLS: u32 = 5;
const OPT_INFO: u32 = 6;
const OPT_GO: u32 = 7;
const OPT_STRUCTURED_REPLY: u32 = 8;
const OPT_SET_META_CONTEXT: u32 = 10;

const REP_ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const REP_META_CONTEXT: u32 = 4;
const ERR_UNSUP: u32 = 0x8000_0001;
const ERR_POLICY: u32 = 0x8000_0002;
const ERR_INVALID: u32 = 0x8000_0003;
const ERR_UNKNOWN: u32 = 0x8000_0006;

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_FLUSH: u16 = 3;
const CMD_TRIM: u16 = 4;
const CMD_BLOCK_STATUS: u16 = 7;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;

fn served() -> Served {
    Served::start(|directory| {
        let bad = 700_000..700_001;
        Named::default()
            .with(NAME, DeviceExport::in_memory(pattern(SIZE_BYTES)).with_bad_range(bad))
            .with("tank/file", DeviceExport::in_file(&directory.join("disk"), &pattern(SIZE_BYTES)))
    })
}

/// A client that says exactly what it is told to.
pub struct Client(pub UnixStream);

impl Client {
    pub fn connect(served: &Served) -> Self {
        let stream = UnixStream::connect(served.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(stream)
    }

    /// Connects and answers the greeting, asking for no zeros after `EXPORT_NAME`.
    pub fn greeted(served: &Served) -> Self {
        let mut client = Self::connect(served);
        assert_eq!(client.take::<18>(), *b"NBDMAGICIHAVEOPT\0\x03");
        client.send(&[&3u32.to_be_bytes()]);
        client
    }

    pub fn chosen(served: &Served, name: &str, structured: bool) -> Self {
        let mut client = Self::greeted(served);
        if structured {
            client.option(OPT_STRUCTURED_REPLY, &[]);
            assert_eq!(client.option_reply(), (OPT_STRUCTURED_REPLY, REP_ACK, vec![]));
            client.option(OPT_SET_META_CONTEXT, &meta_context(name, &["base:allocation"]));
            assert_eq!(client.option_reply().1, REP_META_CONTEXT);
            assert_eq!(client.option_reply().1, REP_ACK);
        }
        client.option(OPT_GO, &go(name, &[]));
        while client.option_reply().1 != REP_ACK {}
        client
    }

    pub fn try_clone(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }

    pub fn send(&mut self, parts: &[&[u8]]) {
        self.0.write_all(&parts.concat()).unwrap();
    }

    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn take_vec(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }

    pub fn option(&mut self, option: u32, data: &[u8]) {
        self.send(&[b"IHAVEOPT", &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data]);
    }

    pub fn option_reply(&mut self) -> (u32, u32, Vec<u8>) {
        assert_eq!(self.u64(), 0x0003_e889_0455_65a9);
        let (option, kind, len) = (self.u32(), self.u32(), self.u32());
        (option, kind, self.take_vec(len as usize))
    }

    pub fn request(&mut self, flags: u16, command: u16, cookie: u64, offset: u64, len: u32) {
        self.0.write_all(&request(flags, command, cookie, offset, len)).unwrap();
    }

    /// The error and the cookie of a simple reply.
    pub fn simple_reply(&mut self) -> (u32, u64) {
        assert_eq!(self.u32(), 0x6744_6698);
        (self.u32(), self.u64())
    }

    /// The type, the cookie and the payload of a structured reply of one chunk.
    pub fn chunk(&mut self) -> (u16, u64, Vec<u8>) {
        assert_eq!(self.u32(), 0x668e_33ef);
        assert_eq!(self.take::<2>(), [0, 1]);
        let kind = u16::from_be_bytes(self.take());
        let cookie = self.u64();
        let len = self.u32();
        (kind, cookie, self.take_vec(len as usize))
    }

    /// Whether the server has ended the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

pub fn request(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

pub fn go(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|info| data.extend(info.to_be_bytes()));
    data
}

fn meta_context(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(string(query)));
    data
}

/// Reads a few bytes over a fresh connection: whatever happened to others, the server still serves.
fn assert_still_serves(served: &Served) {
    let mut client = Client::chosen(served, NAME, false);
    client.request(0, CMD_READ, 9, 1000, 10);
    assert_eq!(client.simple_reply(), (0, 9));
    assert_eq!(client.take_vec(10), pattern(2000)[1000..1010]);
}

#[test]
fn options_are_answered_one_by_one_and_errors_do_not_end_the_handshake() {
    let served = served();
    let mut client = Client::greeted(&served);
    client.option(0x4242, b"whatever");
    assert_eq!(client.option_reply(), (0x4242, ERR_UNSUP, vec![]));
    client.option(OPT_STARTTLS, &[]);
    assert_eq!(client.option_reply().1, ERR_POLICY);
    client.option(OPT_LIST, b"x");
    assert_eq!(client.option_reply().1, ERR_INVALID);
    client.option(OPT_LIST, &[]);
    assert_eq!(client.option_reply(), (OPT_LIST, REP_SERVER, string("tank/file")));
    assert_eq!(client.option_reply(), (OPT_LIST, REP_SERVER, string(NAME)));
    assert_eq!(client.option_reply().1, REP_ACK);
    client.option(OPT_SET_META_CONTEXT, &meta_context(NAME, &["base:allocation"]));
    assert_eq!(client.option_reply().1, ERR_INVALID, "structured replies come first");
    client.option(OPT_INFO, &go("tank/none", &[]));
    assert_eq!(client.option_reply().1, ERR_UNKNOWN);
    client.option(OPT_INFO, &go("", &[]));
    assert_eq!(client.option_reply().1, ERR_UNKNOWN, "there are two exports and none is the default");
    let mut lying = go(NAME, &[1]);
    lying.truncate(lying.len() - 1);
    client.option(OPT_GO, &lying);
    assert_eq!(client.option_reply().1, ERR_INVALID);
    client.option(OPT_GO, &go(NAME, &[1]));
    let export = [&[0, 0], &(SIZE_BYTES as u64).to_be_bytes()[..], &[1, 3]].concat();
    assert_eq!(client.option_reply(), (OPT_GO, REP_INFO, export));
    assert_eq!(client.option_reply().2, [&[0, 1], NAME.as_bytes()].concat());
    assert_eq!(client.option_reply().2.len(), 14);
    assert_eq!(client.option_reply().1, REP_ACK);
    client.request(0, CMD_READ, 1, 0, 1);
    assert_eq!(client.simple_reply(), (0, 1));
}

#[test]
fn abort_is_acknowledged_and_ends_the_connection() {
    let served = served();
    let mut client = Client::greeted(&served);
    client.option(OPT_ABORT, &[]);
    assert_eq!(client.option_reply().1, REP_ACK);
    assert!(client.is_closed());
}

#[test]
fn the_old_way_to_choose_an_export_works_with_its_zeros() {
    let served = served();
    let mut client = Client::connect(&served);
    client.take::<18>();
    client.send(&[&1u32.to_be_bytes()]);
    client.option(OPT_EXPORT_NAME, NAME.as_bytes());
    assert_eq!(client.u64(), SIZE_BYTES as u64);
    assert_eq!(client.take::<2>(), [1, 3]);
    assert_eq!(client.take::<124>(), [0; 124]);
    client.request(0, CMD_READ, 5, 4096, 4096);
    assert_eq!(client.simple_reply(), (0, 5));
    assert_eq!(client.take_vec(4096), pattern(8192)[4096..]);
}

#[test]
fn writes_are_refused_and_their_payload_passed_over() {
    let served = served();
    let mut client = Client::chosen(&served, NAME, false);
    client.request(0, CMD_WRITE, 1, 0, 100_000);
    client.send(&[&[0x25; 100_000]]);
    client.request(0, CMD_TRIM, 2, 0, 4096);
    client.request(0, CMD_FLUSH, 3, 0, 0);
    client.request(0, CMD_READ, 4, 0, 100);
    assert_eq!(client.simple_reply(), (EPERM, 1));
    assert_eq!(client.simple_reply(), (EPERM, 2));
    assert_eq!(client.simple_reply(), (0, 3));
    assert_eq!(client.simple_reply(), (0, 4));
    assert_eq!(client.take_vec(100), pattern(100));
}

#[test]
fn requests_that_make_no_sense_get_an_error_each() {
    let served = served();
    let mut client = Client::chosen(&served, NAME, false);
    let size = SIZE_BYTES as u64;
    let senseless = [
        (0, CMD_READ, size, 1),
        (0, CMD_READ, size - 1, 2),
        (0, CMD_READ, u64::MAX, u32::MAX),
        (0, CMD_READ, 0, 0),
        (0, CMD_READ, 0, u32::MAX),
        (1 << 15, CMD_READ, 0, 1),
        (0, CMD_BLOCK_STATUS, 0, 4096),
        (0, 99, 0, 0),
    ];
    for (cookie, (flags, command, offset, len)) in senseless.into_iter().enumerate() {
        client.request(flags, command, cookie as u64, offset, len);
        assert_eq!(client.simple_reply(), (EINVAL, cookie as u64));
    }
}

#[test]
fn structured_replies_carry_data_errors_and_block_status() {
    let served = served();
    let mut client = Client::chosen(&served, NAME, true);
    client.request(0, CMD_READ, 1, 512, 1000);
    let expected = [&512u64.to_be_bytes(), &pattern(1512)[512..]].concat();
    assert_eq!(client.chunk(), (1, 1, expected));
    client.request(0, CMD_READ, 2, 699_999, 10);
    let message = b"block 3 is damaged";
    let expected = [&EIO.to_be_bytes()[..], &(message.len() as u16).to_be_bytes(), message].concat();
    assert_eq!(client.chunk(), (0x8001, 2, expected));
    client.request(0, CMD_READ, 3, u64::MAX, 1);
    assert_eq!(client.chunk().0, 0x8001);
    client.request(0, CMD_BLOCK_STATUS, 4, 4096, 100_000);
    let data = [1u32, 100_000, 0].map(u32::to_be_bytes).concat();
    assert_eq!(client.chunk(), (5, 4, data));
}

#[test]
fn a_flood_of_requests_is_answered_completely_and_rightly() {
    let served = served();
    for name in [NAME, "tank/file"] {
        let mut client = Client::chosen(&served, name, false);
        let expected = pattern(SIZE_BYTES);
        let place =
            |cookie: u64| ((cookie * 7919 % 600_000) as usize, 1 + (cookie * 104_729 % 20_000) as usize);
        let mut sender = Client(client.0.try_clone().unwrap());
        let sending = std::thread::spawn(move || {
            for cookie in 0..5000 {
                let (offset, len) = place(cookie);
                sender.request(0, CMD_READ, cookie, offset as u64, len as u32);
            }
        });
        let mut seen = vec![false; 5000];
        for _ in 0..5000 {
            let (error, cookie) = client.simple_reply();
            assert_eq!(error, 0);
            assert!(!std::mem::replace(&mut seen[cookie as usize], true), "{cookie} was answered twice");
            let (offset, len) = place(cookie);
            assert!(
                client.take_vec(len) == expected[offset..offset + len],
                "{name}: {len} bytes at {offset}"
            );
        }
        sending.join().unwrap();
    }
}

#[test]
fn what_breaks_the_framing_ends_the_connection() {
    let served = served();
    let mut client = Client::connect(&served);
    client.send(&[&0xffff_ffffu32.to_be_bytes()]);
    assert!(client.is_closed(), "unknown client flags");

    let mut client = Client::greeted(&served);
    client.send(&[b"NOTANOPT", &[0; 8]]);
    assert!(client.is_closed(), "no option magic");

    let mut client = Client::greeted(&served);
    client.send(&[b"IHAVEOPT", &OPT_INFO.to_be_bytes(), &u32::MAX.to_be_bytes()]);
    assert!(client.is_closed(), "an endless option");

    let mut client = Client::greeted(&served);
    client.option(OPT_EXPORT_NAME, b"tank/none");
    assert!(client.is_closed(), "no such export");

    let mut client = Client::chosen(&served, NAME, false);
    client.send(&[&[0; 28]]);
    assert!(client.is_closed(), "no request magic");

    let mut client = Client::chosen(&served, NAME, false);
    client.request(0, CMD_WRITE, 1, 0, u32::MAX);
    assert!(client.is_closed(), "an endless write");

    assert_still_serves(&served);
}

#[test]
fn clients_that_leave_midway_harm_nobody() {
    let served = served();
    for _ in 0..20 {
        let mut client = Client::chosen(&served, "tank/file", false);
        for cookie in 0..200 {
            client.request(0, CMD_READ, cookie, cookie * 4096, 4096);
        }
        drop(client);
        let mut client = Client::greeted(&served);
        client.send(&[b"IHAVE"]);
    }
    assert_still_serves(&served);
}

#[test]
fn noise_harms_nobody() {
    let served = served();
    let mut state = 0x1234_5678_9abc_def0u64;
    let mut noise = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let mut client = match round % 3 {
            0 => Client::connect(&served),
            1 => Client::greeted(&served),
            _ => Client::chosen(&served, NAME, round % 2 == 0),
        };
        // Half of it is well-formed, so that noise reaches what is behind the framing.
        let mut bytes = Vec::new();
        for _ in 0..noise() % 40 {
            match noise() % 3 {
                0 => bytes.extend(noise().to_be_bytes()),
                1 => bytes.extend(request(
                    noise() as u16 & 0x1f,
                    noise() as u16 % 9,
                    noise(),
                    noise() >> 40,
                    noise() as u32 >> 18,
                )),
                _ => {
                    let data: Vec<u8> = (0..noise() % 24).map(|_| (noise() % 4) as u8).collect();
                    bytes.extend(b"IHAVEOPT");
                    bytes.extend((noise() as u32 % 12).to_be_bytes());
                    bytes.extend((data.len() as u32).to_be_bytes());
                    bytes.extend(data);
                }
            }
        }
        // The server may be gone before all is sent.
        let _ = client.0.write_all(&bytes);
    }
    assert_still_serves(&served);
}

/// An export that never opens, and one that says why it does not.
struct Away;

impl Exports for Away {
    type Export = DeviceExport;

    async fn listed(&self, _: Caller<'_>) -> Vec<Listed> {
        vec![Listed::to_all(NAME)]
    }

    async fn open(&self, name: &str, _: Caller<'_>) -> Result<Arc<DeviceExport>, Unopened> {
        match name {
            NAME => std::future::pending().await,
            _ => Err(Unopened::Unavailable("it is away".into())),
        }
    }
}

#[test]
fn a_client_hears_of_an_export_that_cannot_be_opened_now() {
    let handshake = Duration::from_secs(2);
    let served = Served::start_limited(Away, Limits { handshake, ..Limits::default() });
    let mut client = Client::greeted(&served);
    client.option(OPT_GO, &go("other", &[]));
    assert_eq!(client.option_reply(), (OPT_GO, ERR_POLICY, b"it is away".to_vec()));
    client.option(OPT_GO, &go(NAME, &[]));
    let (option, kind, why) = client.option_reply();
    assert_eq!((option, kind), (OPT_GO, ERR_POLICY));
    assert!(String::from_utf8(why).unwrap().contains("cannot be opened now"));
    client.option(OPT_ABORT, &[]);
    assert_eq!(client.option_reply().1, REP_ACK);
}
