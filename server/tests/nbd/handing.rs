//! Clients that another task goes on with, at any byte of what they say.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::IoBuf;
use server::block::{Caller, Export, ExportError, Exports, Extent, Limits, Listed, Unopened};
use server::gate::Gate;

use crate::harness::{Served, pattern};
use crate::protocol::{Client, request};

const SIZE: usize = 32 << 20;
const READ: u16 = 0;
const WRITE: u16 = 1;

/// A disk in memory that has a name.
struct Disk(Mutex<Vec<u8>>);

impl Export for Disk {
    fn size_bytes(&self) -> u64 {
        SIZE as u64
    }

    fn block_bytes(&self) -> u32 {
        4096
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn name(&self) -> Option<String> {
        Some("disk".into())
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        into.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..into.len()]);
        Ok(())
    }

    async fn write(&self, offset: u64, data: IoBuf, _: bool) -> Result<(), ExportError> {
        self.0.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(&data);
        Ok(())
    }

    async fn extent(&self, _: u64) -> Result<Extent, ExportError> {
        Ok(Extent { len_bytes: SIZE as u64, is_hole: false })
    }
}

struct One(Arc<Disk>);

impl Exports for One {
    type Export = Disk;

    async fn listed(&self, _: Caller<'_>) -> Vec<Listed> {
        vec![Listed::to_all("disk")]
    }

    async fn open(&self, name: &str, _: Caller<'_>) -> Result<Arc<Disk>, Unopened> {
        if name == "disk" { Ok(Arc::clone(&self.0)) } else { Err(Unopened::Unknown) }
    }
}

fn served() -> (Served, Gate) {
    let gate = Gate::default();
    let disk = One(Arc::new(Disk(Mutex::new(pattern(SIZE)))));
    (Served::start_limited(disk, Limits { gate: gate.clone(), ..Limits::default() }), gate)
}

/// Has other tasks go on with all clients. How many.
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
fn another_task_goes_on_at_any_byte() {
    let (served, gate) = served();
    let mut client = Client::chosen(&served, "disk", false);
    let payload: Vec<u8> = (1..=40).collect();
    for (turn, cut) in (0..=28 + payload.len() + 28).enumerate() {
        let (offset, cookie) = (turn as u64 * 512, turn as u64);
        let write = request(0, WRITE, cookie, offset, payload.len() as u32);
        // One that is refused, whose payload is passed over, and a read of what was written.
        let refused = request(0, WRITE, cookie + 1000, SIZE as u64, 8);
        let read = request(0, READ, cookie + 2000, offset, payload.len() as u32);
        let said = [&write[..], &payload, &refused, &[9; 8], &read].concat();
        let cut = if turn % 2 == 0 { cut } else { said.len() - cut };
        client.send(&[&said[..cut]]);
        assert_eq!(hand_over(&gate), 1);
        client.send(&[&said[cut..]]);
        assert_eq!(client.simple_reply(), (0, cookie), "{cut}");
        let (error, of) = client.simple_reply();
        assert!(error != 0 && of == cookie + 1000, "{cut}");
        assert_eq!(client.simple_reply(), (0, cookie + 2000), "{cut}");
        assert_eq!(client.take_vec(payload.len()), payload, "{cut}");
    }
}

#[test]
fn replies_that_did_not_leave_leave_later_and_whole() {
    let (served, gate) = served();
    let mut client = Client::chosen(&served, "disk", true);
    const BYTES: u32 = 4 << 20;
    for cookie in 0..6 {
        client.request(0, READ, cookie, cookie * u64::from(BYTES), BYTES);
    }
    // Nothing is taken: what the system's buffers cannot hold waits.
    for _ in 0..3 {
        assert_eq!(hand_over(&gate), 1);
    }
    let expected = pattern(SIZE);
    for _ in 0..6 {
        let (_, cookie, data) = client.chunk();
        let offset = cookie as usize * BYTES as usize;
        assert_eq!(data[..8], (offset as u64).to_be_bytes());
        assert!(data[8..] == expected[offset..][..BYTES as usize], "{cookie}");
        assert_eq!(hand_over(&gate), 1);
    }
}

#[test]
fn a_client_goes_on_as_it_was_when_the_gate_opens_again() {
    let (served, gate) = served();
    let mut client = Client::chosen(&served, "disk", false);
    let said = [&request(0, WRITE, 7, 0, 4)[..], b"abcd"].concat();
    for cut in 0..=said.len() {
        client.send(&[&said[..cut]]);
        drop(gate.close(Duration::from_secs(60)).unwrap());
        client.send(&[&said[cut..]]);
        assert_eq!(client.simple_reply(), (0, 7), "{cut}");
    }
    // Others come in meanwhile, and wait.
    let closed = gate.close(Duration::from_secs(60)).unwrap();
    let mut late = std::os::unix::net::UnixStream::connect(served.socket()).unwrap();
    late.write_all(&3u32.to_be_bytes()).unwrap();
    drop(closed);
    let mut client = Client::chosen(&served, "disk", false);
    client.request(0, READ, 8, 0, 4);
    assert_eq!((client.simple_reply(), client.take_vec(4)), ((0, 8), b"abcd".to_vec()));
}
