//! Volumes as block devices by ublk, with something else in the kernel's place. What it is told it reads at
//! offsets of its own, as the kernel would.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use device::block_on;
use rustix::event::{EventfdFlags, eventfd};
use server::api::{
    AttachVolume, AttachedVolume, DetachVolume, ErrorKind, ListAttached, SetProperties, TakeSnapshots,
    Through,
};
use server::blockdev::ublk::kernel::{Character, Kernel, Queue};
use server::blockdev::ublk::{Command, Header};
use server::blockdev::{BlockDevices, KernelNbd, Ublk};
use server::daemon::{Daemon, DeviceMaker, VolumeExport, dispatch};
use tempfile::TempDir;

use crate::harness::Running;
use crate::volumes::{MEBIBYTE, new_volume};

const PATIENCE: Duration = Duration::from_secs(60);
const FEATURES: u64 = 1 << 6 | 1 << 7;
const UPDATE_SIZE: u64 = 1 << 10;
const FETCH: u32 = 0xc010_7520;
const COMMIT_AND_FETCH: u32 = 0xc010_7521;

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const WRITE_ZEROES: u32 = 5;
const FUA: u32 = 1 << 13;

/// A driver without a kernel.
#[derive(Debug, Clone)]
struct Fake {
    state: Arc<Mutex<State>>,
    changed: Arc<Condvar>,
    nodes: PathBuf,
}

#[derive(Debug, Default)]
struct State {
    features: u64,
    /// The kernel refuses the first requests of this queue.
    refused_queue: Option<u16>,
    devices: BTreeMap<u32, Device>,
    /// Control commands that changed something.
    log: Vec<Command>,
}

#[derive(Debug)]
struct Device {
    info: [u8; 64],
    parameters: Vec<u8>,
    is_live: bool,
    is_open: bool,
    queues: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    signal: OwnedFd,
    tags: Vec<Tag>,
    done: VecDeque<(u16, i32)>,
}

#[derive(Debug, Default, Clone)]
struct Tag {
    /// With the kernel.
    is_active: bool,
    request: [u8; 24],
    data: Vec<u8>,
    result: Option<i32>,
}

impl Lane {
    fn complete(&mut self, tag: usize, code: i32) {
        self.tags[tag].is_active = false;
        self.done.push_back((tag as u16, code));
        rustix::io::write(&self.signal, &1u64.to_ne_bytes()).unwrap();
    }
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap())
}

fn half(bytes: &[u8], at: usize) -> usize {
    u16::from_ne_bytes(*bytes[at..].first_chunk().unwrap()).into()
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits until something is as it is to be.
    fn wait<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.state();
        loop {
            if let Some(found) = look(&mut state) {
                return found;
            }
            let (next, waited) = self.changed.wait_timeout(state, PATIENCE).unwrap();
            assert!(!waited.timed_out(), "waited in vain");
            state = next;
        }
    }

    /// What is asked of a block device, on one of its queues, and the data or the error that it answers.
    fn ask(
        &self,
        id: u32,
        queue: usize,
        what: u32,
        (first, sectors): (u64, u32),
        data: &[u8],
    ) -> Result<Vec<u8>, i32> {
        let bytes = sectors as usize * 512;
        let tag = self.wait(|state| {
            let lane = &mut state.devices.get_mut(&id)?.queues[queue];
            // Who asked before has taken the answer.
            let is_free = |tag: &Tag| tag.is_active && tag.result.is_none();
            let free = lane.tags.iter().rposition(is_free)?;
            let tag = &mut lane.tags[free];
            let parts = [&what.to_ne_bytes()[..], &sectors.to_ne_bytes(), &first.to_ne_bytes(), &[0; 8]];
            tag.request = *parts.concat().first_chunk().unwrap();
            tag.data = if data.is_empty() { vec![0xee; bytes] } else { data.to_vec() };
            lane.complete(free, 0);
            Some(free)
        });
        let (result, data) = self.wait(|state| {
            let tag = &mut state.devices.get_mut(&id)?.queues[queue].tags[tag];
            tag.result.take().map(|result| (result, tag.data.clone()))
        });
        match (result, what & 0xff) {
            (error, _) if error < 0 => Err(error),
            (all, READ | WRITE) => {
                assert_eq!(all as usize, bytes);
                Ok(data)
            }
            (none, _) => {
                assert_eq!(none, 0);
                Ok(Vec::new())
            }
        }
    }

    fn read(&self, id: u32, queue: usize, at: (u64, u32)) -> Result<Vec<u8>, i32> {
        self.ask(id, queue, READ, at, &[])
    }
}

impl Kernel for Fake {
    fn control(&self, command: Command, header: Header, bytes: &mut [u8], _: Duration) -> io::Result<()> {
        let mut guard = self.state();
        let state = &mut *guard;
        if !matches!(command, Command::GetFeatures | Command::GetInfo) {
            state.log.push(command);
        }
        match command {
            Command::GetFeatures if state.features == 0 => return Err(error(libc::ENOENT)),
            Command::GetFeatures => {
                bytes.copy_from_slice(&state.features.to_ne_bytes());
                return Ok(());
            }
            Command::Add => {
                assert_eq!((header.device, bytes.len(), word(bytes, 12)), (u32::MAX, 64, u32::MAX));
                let id = (0..).find(|id| !state.devices.contains_key(id)).unwrap();
                bytes[12..16].copy_from_slice(&id.to_ne_bytes());
                let signal = || eventfd(0, EventfdFlags::NONBLOCK).unwrap();
                let tags = vec![Tag::default(); half(bytes, 2)];
                let lane = |_| Lane { signal: signal(), tags: tags.clone(), done: VecDeque::new() };
                let device = Device {
                    info: *bytes.first_chunk().unwrap(),
                    parameters: Vec::new(),
                    is_live: false,
                    is_open: false,
                    queues: (0..half(bytes, 0)).map(lane).collect(),
                };
                state.devices.insert(id, device);
                return Ok(());
            }
            _ => {}
        }
        let id = header.device;
        let node = self.node(id);
        let device = state.devices.get_mut(&id).ok_or_else(|| error(libc::ENODEV))?;
        match command {
            Command::GetInfo => bytes.copy_from_slice(&device.info),
            Command::SetParameters => {
                // As the kernel checks them.
                let power = |at: usize| bytes[at];
                assert!(!device.is_live && word(bytes, 0) as usize == bytes.len());
                assert!((9..=12).contains(&power(12)) && power(12) <= power(13));
                assert!(word(bytes, 16) <= word(&device.info, 8) / 512);
                if word(bytes, 4) & 2 != 0 {
                    assert!(half(bytes, 56) == 1 && word(bytes, 44).is_power_of_two());
                }
                device.parameters = bytes.to_vec();
            }
            Command::Start => {
                assert_eq!(header.data, u64::from(std::process::id()));
                drop(guard);
                self.wait(|state| {
                    let mut tags = state.devices[&id].queues.iter().flat_map(|queue| &queue.tags);
                    tags.all(|tag| tag.is_active).then_some(())
                });
                // It looks for partitions.
                self.state().devices.get_mut(&id).unwrap().is_live = true;
                std::fs::write(&node, b"")?;
                self.read(id, 0, (0, 8)).map_err(|code| error(-code))?;
            }
            Command::UpdateSize => device.parameters[24..32].copy_from_slice(&header.data.to_ne_bytes()),
            Command::Stop => {
                if std::mem::take(&mut device.is_live) {
                    std::fs::remove_file(&node)?;
                }
                device.info[4..6].fill(0);
                for queue in &mut device.queues {
                    for tag in 0..queue.tags.len() {
                        if queue.tags[tag].is_active {
                            queue.complete(tag, -libc::ENODEV);
                        }
                    }
                }
            }
            // A kernel that only knows how to wait.
            Command::DeleteLater => return Err(error(libc::EOPNOTSUPP)),
            Command::Delete => {
                assert!(!device.is_live && !device.is_open, "it would wait for ever");
                state.devices.remove(&id);
            }
            Command::GetFeatures | Command::Add => unreachable!(),
        }
        Ok(())
    }

    fn ids(&self) -> io::Result<Vec<u32>> {
        Ok(self.state().devices.keys().copied().collect())
    }

    fn node(&self, id: u32) -> PathBuf {
        self.nodes.join(format!("ublkb{id}"))
    }

    fn open(&self, id: u32) -> io::Result<Arc<dyn Character>> {
        let mut state = self.state();
        let device = state.devices.get_mut(&id).ok_or_else(|| error(libc::ENODEV))?;
        assert!(!std::mem::replace(&mut device.is_open, true), "it is opened once");
        Ok(Arc::new(Opened { fake: self.clone(), id }))
    }
}

#[derive(Debug)]
struct Opened {
    fake: Fake,
    id: u32,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.fake.state().devices.get_mut(&self.id).unwrap().is_open = false;
    }
}

impl Opened {
    fn with_lane<T>(&self, queue: u16, action: impl FnOnce(&mut Lane) -> T) -> T {
        let mut state = self.fake.state();
        action(&mut state.devices.get_mut(&self.id).unwrap().queues[usize::from(queue)])
    }
}

impl Character for Opened {
    fn queue(self: Arc<Self>, number: u16, _depth: u16) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(Pushed { opened: self, number }))
    }

    fn take_data(&self, queue: u16, tag: u16, into: &mut [u8]) -> io::Result<()> {
        self.with_lane(queue, |lane| into.copy_from_slice(&lane.tags[usize::from(tag)].data));
        Ok(())
    }

    fn give_data(&self, queue: u16, tag: u16, data: &[u8]) -> io::Result<()> {
        self.with_lane(queue, |lane| lane.tags[usize::from(tag)].data.copy_from_slice(data));
        Ok(())
    }
}

struct Pushed {
    opened: Arc<Opened>,
    number: u16,
}

impl Queue for Pushed {
    fn signal(&self) -> io::Result<OwnedFd> {
        self.opened.with_lane(self.number, |lane| lane.signal.try_clone())
    }

    fn push(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let is_refused = self.opened.fake.state().refused_queue == Some(self.number);
        self.opened.with_lane(self.number, |lane| {
            let tag = &mut lane.tags[usize::from(tag)];
            assert!(!std::mem::replace(&mut tag.is_active, true), "one command of a tag at a time");
            match command {
                FETCH => assert_eq!((result, tag.result), (0, None)),
                COMMIT_AND_FETCH => tag.result = Some(result),
                other => panic!("there is no command {other:#x}"),
            }
            if is_refused {
                lane.complete(0, -libc::EINVAL);
            }
        });
        self.opened.fake.changed.notify_all();
        Ok(())
    }

    fn turn(&mut self, done: &mut Vec<(u16, i32)>) -> io::Result<()> {
        self.opened.with_lane(self.number, |lane| done.extend(lane.done.drain(..)));
        Ok(())
    }

    fn request(&self, tag: u16) -> [u8; 24] {
        self.opened.with_lane(self.number, |lane| lane.tags[usize::from(tag)].request)
    }
}

struct Rig {
    running: Running,
    fake: Fake,
    links: PathBuf,
    _devices: TempDir,
}

impl Rig {
    fn new(features: u64) -> Self {
        let devices = tempfile::tempdir().unwrap();
        let state = State { features, ..State::default() };
        let fake = Fake {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::default(),
            nodes: devices.path().to_owned(),
        };
        let links = devices.path().join("zvol");
        let ublk: Arc<dyn BlockDevices<VolumeExport>> = Arc::new(Ublk::of(Arc::new(fake.clone())));
        let ways = vec![(Through::Ublk, ublk), (Through::Nbd, Arc::<KernelNbd>::default())];
        let running =
            Running::start_as(Daemon::default().making_devices(DeviceMaker { ways, links: links.clone() }));
        new_volume(&running);
        Self { running, fake, links, _devices: devices }
    }

    fn attach(&self, volume: &str) -> AttachedVolume {
        let attach = AttachVolume { volume: volume.into(), through: Some(Through::Ublk) };
        block_on(self.running.daemon.attach_volume(attach)).unwrap()
    }

    fn detach(&self, volume: &str) {
        let detach = DetachVolume { volume: volume.into(), force: false };
        block_on(self.running.daemon.detach_volume(detach)).unwrap();
    }

    fn set(&self, name: &str, value: &str) {
        let set = SetProperties {
            datasets: vec!["tank/vol".into()],
            properties: vec![(name.into(), value.into())],
            ..SetProperties::default()
        };
        let body = serde_json::to_vec(&set).unwrap();
        dispatch(&self.running.daemon, "property-set", &body).unwrap();
    }

    fn sectors(&self, id: u32) -> u32 {
        word(&self.fake.state().devices[&id].parameters, 24)
    }
}

#[test]
fn a_volume_is_read_and_written_through_ublk() {
    let rig = Rig::new(FEATURES);
    let fake = &rig.fake;
    let attached = rig.attach("tank/vol");
    let link = rig.links.join("tank/vol");
    assert_eq!((&attached.node, &attached.link), (&fake.node(0), &link));
    assert_eq!(attached.through, Through::Ublk);
    assert_eq!(std::fs::read_link(&link).unwrap(), fake.node(0));
    let queues = {
        let state = fake.state();
        let device = &state.devices[&0];
        // A volatile cache and FUA, sectors of 512 bytes, blocks of 16K.
        assert_eq!(word(&device.parameters, 8), 1 << 2 | 1 << 3);
        assert_eq!(device.parameters[12..16], [9, 14, 14, 14]);
        assert_eq!(word(&device.parameters, 44), 16 << 10);
        device.queues.len()
    };
    assert_eq!(rig.sectors(0), 8 << 11);

    assert_eq!(fake.read(0, 0, (0, 16)).unwrap(), [0; 8192]);
    let data: Vec<u8> = (0..65_536u32).map(|at| (at / 7) as u8).collect();
    fake.ask(0, 0, WRITE, (8, 128), &data).unwrap();
    // All queues have the same volume.
    for queue in 0..queues {
        assert!(fake.read(0, queue, (8, 128)).unwrap() == data);
    }
    fake.ask(0, queues - 1, WRITE | FUA, (9, 1), &[0x5a; 512]).unwrap();
    fake.ask(0, 0, FLUSH, (0, 0), &[]).unwrap();
    assert_eq!(fake.read(0, 0, (8, 3)).unwrap(), [&data[..512], &[0x5a; 512], &data[1024..1536]].concat());
    fake.ask(0, 0, WRITE_ZEROES, (10, 1), &[]).unwrap();
    assert_eq!(fake.read(0, 0, (10, 2)).unwrap(), [&[0; 512], &data[1536..2048]].concat());
    fake.ask(0, 0, DISCARD, (32, 64), &[]).unwrap();
    assert_eq!(fake.read(0, 0, (32, 64)).unwrap(), [0; 32_768]);

    let end = 8 << 11;
    assert_eq!(fake.read(0, 0, (end - 1, 2)), Err(-libc::EIO));
    assert_eq!(fake.ask(0, 0, WRITE, (end, 1), &[1; 512]), Err(-libc::ENOSPC));
    assert_eq!(fake.ask(0, 0, 4, (0, 1), &[]), Err(-libc::EOPNOTSUPP));

    rig.detach("tank/vol");
    let state = fake.state();
    assert!(state.devices.is_empty() && !link.exists() && !fake.nodes.join("ublkb0").exists());
    use Command::*;
    assert_eq!(state.log, [Add, SetParameters, Start, Stop, DeleteLater, Delete]);
}

#[test]
fn many_requests_are_under_way_at_once() {
    let rig = Rig::new(FEATURES);
    rig.attach("tank/vol");
    let fake = &rig.fake;
    std::thread::scope(|scope| {
        for worker in 0..16u64 {
            scope.spawn(move || {
                for round in 0..16u64 {
                    let at = (worker * 1024 + round * 64, 64);
                    let data = vec![(worker * 16 + round) as u8; 32_768];
                    fake.ask(0, 0, WRITE, at, &data).unwrap();
                    assert!(fake.read(0, 0, at).unwrap() == data, "other data at {at:?}");
                }
            });
        }
    });
}

#[test]
fn a_snapshot_is_read_only() {
    let rig = Rig::new(FEATURES);
    let take = TakeSnapshots { names: vec!["tank/vol@s".into()], ..TakeSnapshots::default() };
    block_on(rig.running.daemon.take_snapshots(take)).unwrap();
    rig.attach("tank/vol@s");
    assert_eq!(rig.fake.state().devices[&0].parameters[4..12], [1, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(rig.fake.read(0, 0, (0, 1)).unwrap(), [0; 512]);
    assert_eq!(rig.fake.ask(0, 0, WRITE, (0, 1), &[1; 512]), Err(-libc::EPERM));
}

#[test]
fn a_new_size_is_the_devices_at_once_or_where_the_kernel_keeps_it_that_of_a_new_one() {
    for (features, command) in [(FEATURES | UPDATE_SIZE, Command::UpdateSize), (FEATURES, Command::Stop)] {
        let rig = Rig::new(features);
        rig.attach("tank/vol");
        rig.set("volsize", "16M");
        assert_eq!(rig.sectors(0), 16 << 11);
        assert!(rig.fake.state().log.contains(&command));
        rig.fake.ask(0, 0, WRITE, ((16 * MEBIBYTE / 512) - 1, 1), &[1; 512]).unwrap();
    }
}

#[test]
fn only_what_a_daemon_of_this_program_left_that_died_is_removed() {
    let rig = Rig::new(FEATURES);
    let left = |process: u32, mark: u32, state: u16| {
        let mut info = [0; 64];
        info[4..6].copy_from_slice(&state.to_ne_bytes());
        info[32..36].copy_from_slice(&process.to_ne_bytes());
        info[36..40].copy_from_slice(&mark.to_ne_bytes());
        Device { info, parameters: Vec::new(), is_live: false, is_open: false, queues: Vec::new() }
    };
    let mark = 0x436e_7465;
    // Beyond the largest number that a process may have.
    let dead = 1 << 30;
    {
        let devices = &mut rig.fake.state().devices;
        devices.insert(3, left(dead, mark, 0));
        devices.insert(4, left(dead, mark, 1));
        devices.insert(5, left(dead, mark + 1, 0));
        devices.insert(6, left(std::os::unix::process::parent_id(), mark, 0));
    }
    rig.attach("tank/vol");
    let ids = rig.fake.ids().unwrap();
    assert_eq!(ids, [0, 4, 5, 6]);

    // At the start too, with links to what is gone.
    rig.fake.state().devices.insert(3, left(dead, mark, 0));
    let dangling = rig.links.join("old/v");
    std::fs::create_dir_all(dangling.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(rig.fake.node(9), &dangling).unwrap();
    rig.running.daemon.clear_left_devices();
    assert_eq!(rig.fake.ids().unwrap(), [0, 4, 5, 6]);
    assert!(!rig.links.join("old").exists() && rig.links.join("tank/vol").exists());
}

#[test]
fn what_cannot_begin_leaves_nothing() {
    let rig = Rig::new(FEATURES);
    rig.fake.state().refused_queue = Some(0);
    let attach = AttachVolume { volume: "tank/vol".into(), through: Some(Through::Ublk) };
    let refused = block_on(rig.running.daemon.attach_volume(attach)).unwrap_err();
    assert!(refused.message.contains("Invalid argument"), "{refused}");
    assert!(rig.fake.state().devices.is_empty() && !rig.links.exists());
    assert_eq!(rig.running.daemon.list_attached(ListAttached {}).unwrap(), []);
    rig.fake.state().refused_queue = None;
    rig.attach("tank/vol");
}

#[test]
fn a_kernel_without_ublk_or_with_an_old_one_is_told_of() {
    for (features, expected) in [(0, "modprobe ublk_drv"), (1 << 6, "Linux 6.5")] {
        let rig = Rig::new(features);
        let attach = AttachVolume { volume: "tank/vol".into(), through: Some(Through::Ublk) };
        let refused = block_on(rig.running.daemon.attach_volume(attach)).unwrap_err();
        assert!(refused.kind == ErrorKind::Refused && refused.message.contains(expected), "{refused}");
    }
}

#[test]
fn one_that_is_attached_stays_in_its_way() {
    let rig = Rig::new(FEATURES);
    let attach = |through| {
        let attach = AttachVolume { volume: "tank/vol".into(), through };
        block_on(rig.running.daemon.attach_volume(attach))
    };
    // The first way that there is.
    assert_eq!(attach(None).unwrap().through, Through::Ublk);
    let refused = attach(Some(Through::Nbd)).unwrap_err();
    assert!(refused.kind == ErrorKind::Busy && refused.message.contains("through ublk"), "{refused}");
}
