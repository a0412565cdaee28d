//! A server with disks in memory, and an initiator that says what it is told to say.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use device::IoBuf;
use server::block::{
    Announcer, Caller, Changes, Copied, Export, ExportError, Exports, Extent, Limits, Listed, Protocol, Room,
    Share, Shares, Unopened,
};
use server::iscsi::{self, Secrets};
use server::listening::Listener;
use server::runtime::Shards;
use tokio::sync::oneshot;

/// Bytes of a block of the volume.
const BLOCK_BYTES: usize = 4096;

/// A disk in memory. What was never written, or was zeroed, is a hole.
pub struct Disk {
    guid: u64,
    /// As initiators count, so that what they assume of alignment is so.
    pub block_bytes: AtomicU32,
    bytes: Mutex<Vec<u8>>,
    holes: Mutex<Vec<bool>>,
    is_writable: bool,
    kept: Mutex<Option<String>>,
    /// The room for what is written.
    pub room: Mutex<Option<Room>>,
    /// Bytes that came from other disks without an initiator's doing.
    pub copied: AtomicUsize,
}

impl Disk {
    pub fn new(guid: u64, size: usize, is_writable: bool) -> Self {
        let holes = Mutex::new(vec![true; size / BLOCK_BYTES]);
        Self {
            guid,
            block_bytes: AtomicU32::new(512),
            bytes: Mutex::new(vec![0; size]),
            holes,
            is_writable,
            kept: Mutex::default(),
            room: Mutex::default(),
            copied: AtomicUsize::new(0),
        }
    }

    /// It has another size from now on.
    pub fn resize(&self, size: usize) {
        self.bytes.lock().unwrap().resize(size, 0);
        self.holes.lock().unwrap().resize(size / BLOCK_BYTES, true);
    }

    fn mark(&self, offset: u64, len: usize, is_hole: bool) {
        let mut holes = self.holes.lock().unwrap();
        let (start, end) = (offset as usize, offset as usize + len);
        let blocks = match is_hole {
            true => start.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES,
            false => start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES),
        };
        for block in blocks {
            holes[block] = is_hole;
        }
    }
}

impl Export for Disk {
    fn size_bytes(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes.load(Ordering::Relaxed)
    }

    fn room(&self) -> Option<Room> {
        *self.room.lock().unwrap()
    }

    fn guid(&self) -> u64 {
        self.guid
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        into.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..into.len()]);
        Ok(())
    }

    async fn extent(&self, offset: u64) -> Result<Extent, ExportError> {
        let block = offset as usize / BLOCK_BYTES;
        let is_hole = self.holes.lock().unwrap()[block];
        Ok(Extent { len_bytes: ((block + 1) * BLOCK_BYTES) as u64 - offset, is_hole })
    }

    async fn write(&self, offset: u64, data: IoBuf, _stable: bool) -> Result<(), ExportError> {
        self.mark(offset, data.len(), false);
        self.bytes.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(&data);
        Ok(())
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        _allocate: bool,
        _stable: bool,
    ) -> Result<(), ExportError> {
        self.mark(offset, len as usize, true);
        self.bytes.lock().unwrap()[offset as usize..][..len as usize].fill(0);
        Ok(())
    }

    async fn copy_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        len: u64,
    ) -> Result<Option<Copied>, ExportError> {
        if self.guid == source.guid {
            return Ok(None);
        }
        let bytes = source.bytes.lock().unwrap()[source_offset as usize..][..len as usize].to_vec();
        self.mark(offset, bytes.len(), false);
        self.bytes.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        self.copied.fetch_add(bytes.len(), Ordering::Relaxed);
        Ok(Some(Copied { cloned_bytes: len }))
    }

    async fn kept(&self) -> Result<Option<String>, ExportError> {
        Ok(self.kept.lock().unwrap().clone())
    }

    async fn keep(&self, text: Option<String>) -> Result<(), ExportError> {
        *self.kept.lock().unwrap() = text;
        Ok(())
    }
}

/// A disk, and how it is shared.
type Shared = (Share, Arc<Disk>);

/// Disks, and how they are shared.
#[derive(Clone, Default)]
pub struct Disks {
    by_name: Arc<Mutex<BTreeMap<String, Shared>>>,
    /// Names of those that cannot be opened now.
    pub broken: Arc<Mutex<BTreeSet<String>>>,
    /// How often one of these was to be opened.
    pub refused: Arc<AtomicUsize>,
    announcer: Announcer,
}

impl Disks {
    /// With one more, shared as the property's value says.
    pub fn with(self, name: &str, shares: &str, disk: &Arc<Disk>) -> Self {
        self.share(name, shares, disk);
        self
    }

    /// With `tank/one`, which all may have.
    pub fn with_one(self) -> Self {
        self.with("tank/one", "on", &Arc::new(Disk::new(1, 1 << 20, true)))
    }

    /// It is shared so from now on; not at all if the value says so.
    pub fn share(&self, name: &str, shares: &str, disk: &Arc<Disk>) {
        let shares: Shares = shares.parse().unwrap();
        let mut by_name = self.by_name.lock().unwrap();
        match shares.through(Protocol::Iscsi) {
            Some(share) => drop(by_name.insert(name.to_owned(), (share.clone(), Arc::clone(disk)))),
            None => drop(by_name.remove(name)),
        }
        self.announcer.announce();
    }
}

impl Exports for Disks {
    type Export = Disk;

    async fn listed(&self, caller: Caller<'_>) -> Vec<Listed> {
        let by_name = self.by_name.lock().unwrap();
        let admitted = by_name.iter().filter(|(_, (share, _))| share.admits(&caller));
        let listed = |(name, (share, disk)): (&String, &Shared)| Listed {
            name: name.clone(),
            guid: disk.guid,
            share: share.clone(),
        };
        admitted.map(listed).collect()
    }

    async fn open(&self, name: &str, _: Caller<'_>) -> Result<Arc<Disk>, Unopened> {
        if self.broken.lock().unwrap().contains(name) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Unopened::Unavailable("on purpose".into()));
        }
        let by_name = self.by_name.lock().unwrap();
        by_name.get(name).map(|(_, disk)| Arc::clone(disk)).ok_or(Unopened::Unknown)
    }

    fn changes(&self) -> Changes {
        self.announcer.listen()
    }
}

/// The target of the disk that can be written.
pub const TARGET: &str = "iqn.2026-11.org.cenote:tank:disk";

/// A running server. Stops when dropped.
pub struct Served {
    pub address: SocketAddr,
    /// Those that it runs on, where it is one of its own.
    pub shards: Option<Arc<Shards>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// With `tank/disk` of so many bytes, and its read-only snapshot.
    pub fn start(size: usize, secrets: Option<&str>, limits: Limits) -> Self {
        let disks = Disks::default()
            .with("tank/disk", "on", &Arc::new(Disk::new(0x1234_5678_9abc_def0, size, true)))
            .with("tank/disk@then", "on", &Arc::new(Disk::new(2, size, false)));
        Self::start_with(disks, secrets, limits)
    }

    /// One that something else serves.
    pub fn elsewhere(address: SocketAddr) -> Self {
        Self { address, shards: None, stop: None, thread: None }
    }

    pub fn start_with<X: Exports>(disks: X, secrets: Option<&str>, limits: Limits) -> Self {
        Self::start_at("127.0.0.1:0", disks, secrets, limits)
    }

    /// One that listens on this address.
    pub fn start_at<X: Exports>(at: &str, disks: X, secrets: Option<&str>, limits: Limits) -> Self {
        let disks = Arc::new(disks);
        let shards = Arc::new(Shards::start().unwrap());
        let of_server = Arc::clone(&shards);
        let secrets = secrets.map(|text| Secrets::parse(text).unwrap());
        let listener = TcpListener::bind(at).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let listener = Listener::of("iSCSI", listener, secrets).unwrap();
                tokio::select! {
                    end = iscsi::serve_tcp(listener, disks, of_server, limits) => match end {},
                    _ = stopped => {}
                }
            });
        });
        Self { address, shards: Some(shards), stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return };
        if thread.join().is_err() && !thread::panicking() {
            panic!("the server panicked");
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub header: [u8; 48],
    pub data: Vec<u8>,
}

impl Answer {
    pub fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.header[at..at + 4].try_into().unwrap())
    }
}

/// An initiator.
pub struct Initiator {
    socket: TcpStream,
    command: u32,
    tag: u32,
    /// The last number of a command that the server takes now.
    last: u32,
    /// Whether it takes answers little by little.
    pub is_slow: bool,
    /// The unit that commands are for.
    pub lun: u8,
}

impl Initiator {
    pub fn connect(served: &Served) -> Self {
        let socket = TcpStream::connect(served.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { socket, command: 1, tag: 1, last: 1, is_slow: false, lun: 0 }
    }

    pub fn send(&mut self, mut header: [u8; 48], data: &[u8]) {
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let padding = vec![0; data.len().next_multiple_of(4) - data.len()];
        // The server may have closed the connection already; what it answered is still to be read.
        let _ = self.socket.write_all(&[&header[..], data, &padding].concat());
    }

    /// The next answer, unless the server has closed the connection.
    pub fn answer(&mut self) -> Option<Answer> {
        let mut header = [0; 48];
        self.socket.read_exact(&mut header).ok()?;
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; length.next_multiple_of(4)];
        let most = if self.is_slow { 512 } else { data.len().max(1) };
        for piece in data.chunks_mut(most) {
            self.socket.read_exact(piece).ok()?;
            if self.is_slow {
                thread::yield_now();
            }
        }
        data.truncate(length);
        let answer = Answer { header, data };
        // It never becomes smaller.
        let last = answer.word(32);
        assert!(last.wrapping_sub(self.last).cast_signed() >= 0, "{answer:?}");
        self.last = last;
        Some(answer)
    }

    /// Whether the server takes another command now.
    pub fn may_send(&self) -> bool {
        self.last.wrapping_sub(self.command).cast_signed() >= 0
    }

    /// Answers within this time, or there are none.
    pub fn set_patience(&self, patience: Duration) {
        self.socket.set_read_timeout(Some(patience)).unwrap();
    }

    /// One unit of a login: from one stage to another, with these keys.
    pub fn login(&mut self, from: u8, to: u8, keys: &[&str]) -> Option<Answer> {
        let mut header = [0; 48];
        header[0] = 0x43;
        header[1] = if to > from { 0x80 | from << 2 | to } else { from << 2 };
        header[8..14].copy_from_slice(&[0x80, 1, 2, 3, 4, 5]);
        header[24..28].copy_from_slice(&self.command.to_be_bytes());
        let data: Vec<u8> = keys.iter().flat_map(|key| [key.as_bytes(), &[0]].concat()).collect();
        self.send(header, &data);
        self.answer()
    }

    /// Logs in without a proof.
    pub fn log_in(served: &Served, target: &str, keys: &[&str]) -> Self {
        // One that logs in anew gives up what it had.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("iqn.test:{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self::log_in_as(served, &name, target, keys)
    }

    /// The same as an initiator of this name.
    pub fn log_in_as(served: &Served, name: &str, target: &str, keys: &[&str]) -> Self {
        let mut initiator = Self::connect(served);
        let name = format!("InitiatorName={name}");
        let target = format!("TargetName={target}");
        let keys = [&[name.as_str(), &target], keys].concat();
        let answer = initiator.login(1, 3, &keys).expect("an answer");
        assert_eq!((answer.header[1] & 0x83, answer.header[36]), (0x83, 0), "{answer:?}");
        initiator
    }

    /// A command that reads up to `room` bytes, or sends data with it. The last answer.
    pub fn command(&mut self, descriptor: &[u8], expected: u32, reads: bool, data: &[u8]) -> Answer {
        self.begin(descriptor, expected, reads, data);
        self.answer().expect("an answer")
    }

    /// Asks for a function of task management. Its answer.
    pub fn manage(&mut self, function: u8) -> Answer {
        let mut header = [0; 48];
        (header[0], header[1], header[9]) = (0x42, 0x80 | function, self.lun);
        header[16..20].copy_from_slice(&self.tag.to_be_bytes());
        header[20..24].fill(255);
        header[24..28].copy_from_slice(&self.command.to_be_bytes());
        self.tag += 1;
        self.send(header, &[]);
        self.answer().expect("an answer")
    }

    /// Asks which targets there are, in a session that looks for some. The answer's pairs.
    pub fn targets(&mut self) -> Vec<String> {
        let mut header = [0; 48];
        (header[0], header[1]) = (0x04, 0x80);
        header[16..20].copy_from_slice(&self.tag.to_be_bytes());
        header[20..24].fill(255);
        header[24..28].copy_from_slice(&self.command.to_be_bytes());
        self.send(header, b"SendTargets=All\0");
        let text = String::from_utf8(self.answer().expect("an answer").data).expect("text");
        text.split('\0').filter(|pair| !pair.is_empty()).map(str::to_owned).collect()
    }

    /// Sends a command. Its tag.
    pub fn begin(&mut self, descriptor: &[u8], expected: u32, reads: bool, data: &[u8]) -> u32 {
        let mut header = [0; 48];
        header[0] = 1;
        header[1] = 0x81 | if reads { 0x40 } else { 0 } | if data.is_empty() && reads { 0 } else { 0x20 };
        header[9] = self.lun;
        header[16..20].copy_from_slice(&self.tag.to_be_bytes());
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[24..28].copy_from_slice(&self.command.to_be_bytes());
        header[32..32 + descriptor.len()].copy_from_slice(descriptor);
        self.command += 1;
        self.tag += 1;
        self.send(header, data);
        self.tag - 1
    }
}
