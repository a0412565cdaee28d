//! A virtual machine's monitor and the driver in its guest, in one: `vhost`'s frontend, and rings that are
//! filled by hand. Also the load generator of `benches/serve.rs`.

#![allow(dead_code, reason = "tests and benches use different parts")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::Duration;

use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserInflight, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};
use vmm_sys_util::eventfd::EventFd;

pub const READ: u32 = 0;
pub const WRITE: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;
pub const DISCARD: u32 = 11;
pub const WRITE_ZEROES: u32 = 13;

pub const OK: u8 = 0;
pub const FAILED: u8 = 1;
pub const UNSUPPORTED: u8 = 2;
/// No answer yet.
pub const UNANSWERED: u8 = 0xee;

pub const NEXT: u16 = 1;
pub const WRITABLE: u16 = 2;
pub const INDIRECT: u16 = 4;

pub const F_READ_ONLY: u64 = 1 << 5;
pub const F_INDIRECT: u64 = 1 << 28;
pub const F_EVENT_INDEX: u64 = 1 << 29;
const F_PROTOCOL: u64 = 1 << 30;
const F_VERSION_1: u64 = 1 << 32;

/// Descriptors of each ring.
pub const SIZE: u16 = 128;
/// Requests that each ring may have under way: three descriptors each, unless they are indirect.
pub const SLOTS: u16 = 42;
/// Data of each request.
pub const DATA_BYTES: usize = 128 << 10;

const RING_BYTES: u64 = 64 << 10;
const TABLE: u64 = 0;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x5000;
const HEADERS: u64 = 0x8000;
const TABLES: u64 = 0xc000;
const DATA: u64 = 4 << 20;
const MOST_RINGS: usize = 4;
pub const MEMORY_BYTES: u64 = DATA + MOST_RINGS as u64 * SLOTS as u64 * DATA_BYTES as u64;

/// What stays when a client connects anew: the guest's memory, and the file of requests under way.
pub struct Memory {
    pub map: GuestMemoryMmap,
    pub file: OwnedFd,
    user_address: u64,
    inflight: Option<(VhostUserInflight, OwnedFd)>,
    /// Of each ring, the answers that the driver has seen.
    seen: Vec<u16>,
}

impl Memory {
    pub fn new() -> Self {
        let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, MEMORY_BYTES).unwrap();
        let mapped = FileOffset::new(std::fs::File::from(file.try_clone().unwrap()), 0);
        let mapped = MmapRegion::from_file(mapped, MEMORY_BYTES as usize).unwrap();
        let user_address = mapped.as_ptr() as u64;
        let region = GuestRegionMmap::new(mapped, GuestAddress(0)).unwrap();
        let map = GuestMemoryMmap::from_regions(vec![region]).unwrap();
        Self { map, file, user_address, inflight: None, seen: Vec::new() }
    }
}

/// A ring, as the driver knows it.
pub struct Ring {
    kick: EventFd,
    call: EventFd,
    next_available: u16,
    seen_used: u16,
}

/// How a machine connects.
#[derive(Clone, Copy)]
pub struct Options {
    pub rings: usize,
    pub features: u64,
    pub has_inflight: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { rings: 1, features: F_INDIRECT | F_EVENT_INDEX, has_inflight: true }
    }
}

/// A machine that uses a disk.
pub struct Machine {
    pub frontend: Frontend,
    pub memory: Memory,
    pub rings: Vec<Ring>,
    /// The device's features.
    pub offered: u64,
    features: u64,
}

impl Machine {
    pub fn connect(socket: &Path, options: Options) -> Self {
        Self::connect_with(socket, options, Memory::new())
    }

    /// Connects with memory that was used before; requests that were not answered are still in its rings.
    pub fn connect_with(socket: &Path, options: Options, mut memory: Memory) -> Self {
        let (mut frontend, offered) = greet(socket, options.rings);
        let features = (F_PROTOCOL | F_VERSION_1 | options.features) & offered;
        frontend.set_features(features).unwrap();
        let protocol = frontend.get_protocol_features().unwrap();
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        frontend.set_protocol_features(protocol & wanted).unwrap();
        frontend.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
        if options.has_inflight {
            let (shape, file) = memory.inflight.take().unwrap_or_else(|| {
                let wanted = VhostUserInflight::new(0, 0, options.rings as u16, SIZE);
                let (shape, file) = frontend.get_inflight_fd(&wanted).unwrap();
                (shape, file.into())
            });
            frontend.set_inflight_fd(&shape, file.as_raw_fd()).unwrap();
            memory.inflight = Some((shape, file));
        }
        frontend.set_mem_table(&[region(&memory)]).unwrap();
        let mut machine = Self { frontend, memory, rings: Vec::new(), offered, features };
        for number in 0..options.rings {
            let used: u16 = machine.read(ring_at(number) + USED + 2);
            let seen = machine.memory.seen.get(number).copied().unwrap_or(used);
            let available: u16 = machine.read(ring_at(number) + AVAILABLE + 2);
            let eventfd = || EventFd::new(libc::EFD_NONBLOCK).unwrap();
            let ring = Ring { kick: eventfd(), call: eventfd(), next_available: available, seen_used: seen };
            machine.rings.push(ring);
            machine.start(number, used);
        }
        machine
    }

    /// Tells the device of a ring, which begins with the request `base`.
    pub fn start(&mut self, number: usize, base: u16) {
        let at = self.memory.user_address + ring_at(number);
        let config = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: at + TABLE,
            used_ring_addr: at + USED,
            avail_ring_addr: at + AVAILABLE,
            log_addr: None,
        };
        let ring = &self.rings[number];
        self.frontend.set_vring_num(number, SIZE).unwrap();
        self.frontend.set_vring_base(number, base).unwrap();
        self.frontend.set_vring_addr(number, &config).unwrap();
        self.frontend.set_vring_call(number, &ring.call).unwrap();
        self.frontend.set_vring_kick(number, &ring.kick).unwrap();
        self.frontend.set_vring_enable(number, true).unwrap();
    }

    /// Goes away, and keeps what a machine keeps.
    pub fn leave(mut self) -> Memory {
        self.memory.seen = self.rings.iter().map(|ring| ring.seen_used).collect();
        self.memory
    }

    pub fn config(&mut self) -> Vec<u8> {
        let flags = VhostUserConfigFlags::empty();
        self.frontend.get_config(0, 60, flags, &[0; 60]).unwrap().1
    }

    pub fn write_through(&mut self) {
        self.frontend.set_config(32, VhostUserConfigFlags::WRITABLE, &[0]).unwrap();
    }

    pub fn read<T: vm_memory::ByteValued>(&self, at: u64) -> T {
        self.memory.map.read_obj(GuestAddress(at)).unwrap()
    }

    pub fn write<T: vm_memory::ByteValued>(&self, at: u64, value: T) {
        self.memory.map.write_obj(value, GuestAddress(at)).unwrap();
    }

    pub fn describe(&self, table: u64, index: u16, (address, len, flags, next): (u64, u32, u16, u16)) {
        let at = table + u64::from(index) * 16;
        self.write(at, address);
        self.write(at + 8, len);
        self.write(at + 12, flags);
        self.write(at + 14, next);
    }

    /// The data of a slot.
    pub fn data(&self, ring: usize, slot: u16, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.map.read_slice(&mut bytes, GuestAddress(data_at(ring, slot))).unwrap();
        bytes
    }

    pub fn set_data(&self, ring: usize, slot: u16, bytes: &[u8]) {
        self.memory.map.write_slice(bytes, GuestAddress(data_at(ring, slot))).unwrap();
    }

    /// Describes a request in a slot, without making it available. Its data are in pieces of these lengths.
    pub fn prepare(&self, ring: usize, slot: u16, (kind, sector): (u32, u64), pieces: &[u32]) -> u16 {
        let header = header_at(ring, slot);
        self.write(header, kind);
        self.write(header + 4, 0u32);
        self.write(header + 8, sector);
        self.write(header + 16, UNANSWERED);
        let is_indirect = self.features & F_INDIRECT != 0;
        let (table, first, head) = match is_indirect {
            true => (ring_at(ring) + TABLES + u64::from(slot) * 192, 0, slot),
            false => (ring_at(ring) + TABLE, slot * 3, slot * 3),
        };
        assert!(pieces.len() <= if is_indirect { 10 } else { 1 });
        let data_flags = if matches!(kind, READ | GET_ID) { WRITABLE } else { 0 };
        let mut index = first;
        self.describe(table, index, (header, 16, NEXT, index + 1));
        let mut at = data_at(ring, slot);
        for piece in pieces {
            index += 1;
            self.describe(table, index, (at, *piece, data_flags | NEXT, index + 1));
            at += u64::from(*piece);
        }
        index += 1;
        self.describe(table, index, (header + 16, 1, WRITABLE, 0));
        if is_indirect {
            let len = u32::from(index + 1) * 16;
            self.describe(ring_at(ring) + TABLE, head, (table, len, INDIRECT, 0));
        }
        head
    }

    /// Makes the chain available.
    pub fn offer(&mut self, ring: usize, head: u16) {
        let at = ring_at(ring) + AVAILABLE;
        let next = self.rings[ring].next_available;
        self.write(at + 4 + u64::from(next % SIZE) * 2, head);
        self.rings[ring].next_available = next.wrapping_add(1);
        let index = GuestAddress(at + 2);
        self.memory.map.store(next.wrapping_add(1), index, Ordering::Release).unwrap();
    }

    /// Tells the device, if it wants to be told of what was offered since the index was `before`.
    pub fn kick(&self, ring: usize, before: u16) {
        fence(Ordering::SeqCst);
        let now = self.rings[ring].next_available;
        let is_wanted = match self.features & F_EVENT_INDEX != 0 {
            true => {
                let event: u16 = self.read(ring_at(ring) + USED + 4 + u64::from(SIZE) * 8);
                now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
            }
            false => self.read::<u16>(ring_at(ring) + USED) & 1 == 0,
        };
        if is_wanted {
            self.rings[ring].kick.write(1).unwrap();
        }
    }

    /// Tells the device, whether it wants to be told or not.
    pub fn force_kick(&self, ring: usize) {
        self.rings[ring].kick.write(1).unwrap();
    }

    /// The heads that were answered since the last time, with the bytes written.
    pub fn answered(&mut self, ring: usize) -> Vec<(u32, u32)> {
        let at = ring_at(ring) + USED;
        let now: u16 = self.memory.map.load(GuestAddress(at + 2), Ordering::Acquire).unwrap();
        let mut heads = Vec::new();
        while self.rings[ring].seen_used != now {
            let entry = at + 4 + u64::from(self.rings[ring].seen_used % SIZE) * 8;
            heads.push((self.read(entry), self.read(entry + 4)));
            self.rings[ring].seen_used = self.rings[ring].seen_used.wrapping_add(1);
        }
        heads
    }

    /// Asks to be told of the next answer. Whether none is there already.
    pub fn wants_call(&mut self, ring: usize) -> bool {
        self.write(ring_at(ring) + AVAILABLE + 4 + u64::from(SIZE) * 2, self.rings[ring].seen_used);
        fence(Ordering::SeqCst);
        let _ = self.rings[ring].call.read();
        self.read::<u16>(ring_at(ring) + USED + 2) == self.rings[ring].seen_used
    }

    /// What is signalled after answers.
    pub fn call(&self, ring: usize) -> i32 {
        self.rings[ring].call.as_raw_fd()
    }

    /// Stops a ring once what it took is answered.
    pub fn stop(self, ring: usize) -> u32 {
        self.frontend.get_vring_base(ring).unwrap()
    }

    /// Waits until something was answered. Nothing when the device does not answer for this long.
    pub fn wait(&mut self, ring: usize, limit: Duration) -> Vec<(u32, u32)> {
        loop {
            // The device is to tell of the next answer.
            self.write(ring_at(ring) + AVAILABLE + 4 + u64::from(SIZE) * 2, self.rings[ring].seen_used);
            fence(Ordering::SeqCst);
            let answered = self.answered(ring);
            if !answered.is_empty() {
                return answered;
            }
            if !is_readable(self.rings[ring].call.as_raw_fd(), limit) {
                return Vec::new();
            }
            let _ = self.rings[ring].call.read();
        }
    }

    /// One request from its beginning to its status.
    pub fn ask(&mut self, ring: usize, request: (u32, u64), pieces: &[u32]) -> u8 {
        let head = self.prepare(ring, 0, request, pieces);
        let before = self.rings[ring].next_available;
        self.offer(ring, head);
        self.kick(ring, before);
        let answered = self.wait(ring, Duration::from_secs(30));
        assert_eq!(answered.iter().map(|(head, _)| *head).collect::<Vec<_>>(), [u32::from(head)]);
        self.status(ring, 0)
    }

    pub fn status(&self, ring: usize, slot: u16) -> u8 {
        self.read(header_at(ring, slot) + 16)
    }

    /// The slot of a head.
    pub fn slot(&self, head: u32) -> u16 {
        if self.features & F_INDIRECT != 0 { head as u16 } else { head as u16 / 3 }
    }

    pub fn available(&self, ring: usize) -> u16 {
        self.rings[ring].next_available
    }

    /// Whether the session ends.
    pub fn is_ended(&self) -> bool {
        is_readable(self.frontend.as_raw_fd(), Duration::from_secs(30))
    }
}

pub fn ring_at(ring: usize) -> u64 {
    ring as u64 * RING_BYTES
}

pub fn table_at(ring: usize) -> u64 {
    ring_at(ring) + TABLE
}

pub fn data_at(ring: usize, slot: u16) -> u64 {
    DATA + (ring as u64 * u64::from(SLOTS) + u64::from(slot)) * DATA_BYTES as u64
}

pub fn header_at(ring: usize, slot: u16) -> u64 {
    ring_at(ring) + HEADERS + u64::from(slot) * 32
}

pub fn region(memory: &Memory) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: MEMORY_BYTES,
        userspace_addr: memory.user_address,
        mmap_offset: 0,
        mmap_handle: memory.file.as_raw_fd(),
    }
}

/// Connects as soon as the server answers: other servers have one client at a time, and need a moment to see
/// that the last one left. What is offered.
fn greet(socket: &Path, rings: usize) -> (Frontend, u64) {
    for _ in 0..3000 {
        let frontend = Frontend::from_stream(connect(socket), rings as u64);
        if frontend.set_owner().is_ok()
            && let Ok(offered) = frontend.get_features()
        {
            return (frontend, offered);
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing answers on {}", socket.display());
}

/// Connects as soon as something listens.
pub fn connect(socket: &Path) -> UnixStream {
    for _ in 0..3000 {
        if let Ok(stream) = UnixStream::connect(socket) {
            return stream;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing listens on {}", socket.display());
}

/// Whether something can be read, or the other side is gone, within the limit.
pub fn is_readable(file: i32, limit: Duration) -> bool {
    let mut poll = libc::pollfd { fd: file, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which lives through the call.
    unsafe { libc::poll(&raw mut poll, 1, limit.as_millis() as i32) > 0 }
}

/// Waits until one of them can be read.
pub fn any_readable(files: &[i32], limit: Duration) {
    let mut polls: Vec<_> =
        files.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: as many structures as is said, which live through the call.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, limit.as_millis() as i32) };
}

/// A socket pair: what is told on one end is read at the other.
pub fn channel() -> (UnixStream, OwnedFd) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    // SAFETY: it is given away here.
    let theirs = unsafe { OwnedFd::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(theirs)) };
    (ours, theirs)
}
