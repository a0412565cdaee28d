//! A client of each protocol.

use std::time::{Duration, Instant};

use crate::driver::{FLUSH, Machine, OK, Options, WRITE, WRITE_ZEROES};
use crate::iscsi::{self, Initiator};
use crate::nbd::{self, CMD_FLUSH, CMD_WRITE_ZEROES, FLAG_FUA};
use crate::served::Served;
use crate::support::POOL;

const BLOCK_BYTES: u64 = 512;
const LIMIT: Duration = Duration::from_secs(30);

/// A client of one volume, one request at a time.
pub trait Client {
    /// Writes; stable if that is asked for and the protocol has it. Whether it is stable.
    fn write(&mut self, offset: u64, bytes: &[u8], stable: bool) -> bool;
    /// The same with zeroes.
    fn zero(&mut self, offset: u64, len_bytes: u64) -> bool;
    /// What was answered is stable.
    fn flush(&mut self);
}

/// Waits until something is there.
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "{what} is not there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub struct NbdClient(nbd::Client);

impl NbdClient {
    pub fn new(served: &Served) -> Self {
        until("the socket of NBD", || served.nbd().exists().then_some(()));
        Self(nbd::Client::connect(&served.nbd(), &format!("{POOL}/nbd")))
    }
}

impl Client for NbdClient {
    fn write(&mut self, offset: u64, bytes: &[u8], stable: bool) -> bool {
        assert_eq!(self.0.write(offset, bytes, if stable { FLAG_FUA } else { 0 }), 0);
        stable
    }

    fn zero(&mut self, offset: u64, len_bytes: u64) -> bool {
        assert_eq!(self.0.request(CMD_WRITE_ZEROES, offset, len_bytes as u32), 0);
        false
    }

    fn flush(&mut self) {
        assert_eq!(self.0.request(CMD_FLUSH, 0, 0), 0);
    }
}

pub struct IscsiInitiator(Initiator);

impl IscsiInitiator {
    pub fn new(served: &Served) -> Self {
        let target = format!("iqn.2026-11.org.cenote:{POOL}:iscsi");
        let agreed = ["MaxRecvDataSegmentLength=262144", "FirstBurstLength=65536", "ImmediateData=Yes"];
        Self(Initiator::log_in(&iscsi::Served::elsewhere(served.iscsi()), &target, &agreed))
    }

    fn ask(&mut self, operation: u8, flags: u8, (offset, len_bytes): (u64, u64), data: &[u8]) {
        let mut descriptor = [0; 16];
        descriptor[..2].copy_from_slice(&[operation, flags]);
        descriptor[2..10].copy_from_slice(&(offset / BLOCK_BYTES).to_be_bytes());
        descriptor[10..14].copy_from_slice(&((len_bytes / BLOCK_BYTES) as u32).to_be_bytes());
        let answer = self.0.command(&descriptor, data.len() as u32, false, data);
        assert_eq!(answer.header[3], 0, "{answer:?}");
    }
}

impl Client for IscsiInitiator {
    fn write(&mut self, offset: u64, bytes: &[u8], stable: bool) -> bool {
        // WRITE (16), with FUA.
        self.ask(0x8a, if stable { 8 } else { 0 }, (offset, bytes.len() as u64), bytes);
        stable
    }

    fn zero(&mut self, offset: u64, len_bytes: u64) -> bool {
        // WRITE SAME (16), with UNMAP.
        self.ask(0x93, 8, (offset, len_bytes), &[0; BLOCK_BYTES as usize]);
        false
    }

    fn flush(&mut self) {
        // SYNCHRONIZE CACHE (16), of all.
        self.ask(0x91, 0, (0, 0), &[]);
    }
}

pub struct VirtualMachine {
    machine: Machine,
    is_through: bool,
}

impl VirtualMachine {
    pub fn new(served: &Served, volume: &str, is_through: bool) -> Self {
        let socket = served.vhost_user(volume);
        until("the socket of a machine", || socket.exists().then_some(()));
        let mut machine = Machine::connect(&socket, Options::default());
        if is_through {
            machine.write_through();
        }
        Self { machine, is_through }
    }
}

impl Client for VirtualMachine {
    fn write(&mut self, offset: u64, bytes: &[u8], _: bool) -> bool {
        self.machine.set_data(0, 0, bytes);
        assert_eq!(self.machine.ask(0, (WRITE, offset / BLOCK_BYTES), &[bytes.len() as u32]), OK);
        self.is_through
    }

    fn zero(&mut self, offset: u64, len_bytes: u64) -> bool {
        let blocks = (len_bytes / BLOCK_BYTES) as u32;
        let range = [&(offset / BLOCK_BYTES).to_le_bytes()[..], &blocks.to_le_bytes(), &[0; 4]].concat();
        self.machine.set_data(0, 0, &range);
        assert_eq!(self.machine.ask(0, (WRITE_ZEROES, 0), &[16]), OK);
        self.is_through
    }

    fn flush(&mut self) {
        assert_eq!(self.machine.ask(0, (FLUSH, 0), &[]), OK);
    }
}
