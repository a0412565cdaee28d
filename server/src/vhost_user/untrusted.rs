//! Any bytes read as a guest's memory, and as what a client kept of requests under way: for fuzzers.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vm_memory::GuestAddress;

use super::chain::Chain;
use super::inflight::Inflight;
use super::memory::{Described, Memory};
use super::request::{MOST_DATA_BYTES, Request, Status, write_status};

const MEMORY_BYTES: u64 = 64 << 10;
/// Where the client has the guest's memory in its own address space.
const USER_ADDRESS: u64 = 1 << 40;
const RING_SIZE: u16 = 16;

/// Reads the chains of a ring whose table is at the beginning of a guest's memory, as requests that are
/// answered. Then takes the bytes as what is kept over a restart of the daemon. Returns for any bytes.
pub fn read(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(MEMORY_BYTES as usize)];
    // Without memory for it, or a descriptor, there is nothing to read.
    if let Some(memory) = file(bytes).and_then(|file| guest_memory(file).ok()) {
        for head in 0..RING_SIZE {
            answer(&memory, head);
        }
    }
    let inflight = |file| Inflight::open(file, 0, MEMORY_BYTES, (2, RING_SIZE)).ok();
    if let Some(inflight) = file(bytes).and_then(inflight).map(Arc::new) {
        inflight.take_over(None);
        for number in 0..3 {
            if let Some(mut queue) = inflight.queue(number, RING_SIZE) {
                let heads = queue.recover(0);
                assert!(heads.len() <= RING_SIZE.into() && heads.iter().all(|head| *head < RING_SIZE));
            }
        }
    }
}

fn file(bytes: &[u8]) -> Option<OwnedFd> {
    let file = memfd_create("untrusted", MemfdFlags::CLOEXEC).ok()?;
    ftruncate(&file, MEMORY_BYTES).ok()?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).ok()?;
    Some(file.into())
}

fn guest_memory(file: OwnedFd) -> std::io::Result<Memory> {
    let described =
        Described { guest_address: 0, len_bytes: MEMORY_BYTES, user_address: USER_ADDRESS, file_offset: 0 };
    Memory::default().with(described, file)
}

fn answer(memory: &Memory, head: u16) {
    let Ok(chain) = Chain::read(memory, GuestAddress(0), RING_SIZE, head) else { return };
    let Ok(request) = Request::parse(memory, head, chain) else { return };
    assert!(request.memory_bytes() as u64 <= MOST_DATA_BYTES);
    let mut data = vec![0; 512];
    let _ = memory.gather(request.data(), &mut data);
    let _ = memory.scatter(request.data(), &data);
    assert!(write_status(memory, &request.ended(Status::Ok, 0)).is_ok());
}
