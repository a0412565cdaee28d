//! Volumes as block devices, with something else in the kernel's place.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::block_on;
use engine::tunables;
use server::api::{
    Action, AttachVolume, DestroyDataset, DetachVolume, ErrorKind, ExportPool, HoldSnapshots, ListAttached,
    RenameDataset, SetProperties, Shutdown, TakeSnapshots, Through,
};
use server::block::Export;
use server::blockdev::{BlockDevice, BlockDevices, Offered};
use server::daemon::{Daemon, DeviceMaker, VolumeExport, dispatch};
use server::nbd::Chosen;

use crate::harness::Running;
use crate::volumes::{MEBIBYTE, new_volume};

/// Makes files that stand for devices, and tries what it is given as the kernel would.
#[derive(Debug, Default, Clone)]
struct Fake {
    place: PathBuf,
    is_in_use: Arc<AtomicBool>,
    /// Devices keep their sizes.
    keeps_sizes: Arc<AtomicBool>,
    /// The kernel cannot write what it keeps of devices.
    cannot_flush: Arc<AtomicBool>,
    sizes: Arc<Mutex<Vec<u64>>>,
    made: Arc<Mutex<usize>>,
    /// What was done with devices at their end.
    ends: Arc<Mutex<Vec<&'static str>>>,
}

#[derive(Debug)]
struct FakeDevice {
    fake: Fake,
    node: PathBuf,
    chosen: Chosen,
}

/// A request of the protocol, which is big-endian.
fn request(kind: u16, offset: u64, length: u32) -> Vec<u8> {
    [
        &0x2560_9513u32.to_be_bytes()[..],
        &0u16.to_be_bytes(),
        &kind.to_be_bytes(),
        &7u64.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

impl<E: Export> BlockDevices<E> for Fake {
    fn is_there(&self) -> bool {
        true
    }

    fn attach(&self, volume: &Offered<'_, E>) -> io::Result<Box<dyn BlockDevice>> {
        let mut chosen = volume.choose()?;
        // The socket takes requests at once, and answers them in the simple form.
        if !chosen.is_read_only() {
            chosen
                .socket
                .write_all(&[request(1, 4096, 512), vec![0x5a; 512], request(0, 4096, 512)].concat())?;
            let mut replies = [0; 16 + 16 + 512];
            chosen.socket.read_exact(&mut replies)?;
            assert_eq!(
                (&replies[..8], &replies[32..]),
                (&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0][..], &[0x5a; 512][..])
            );
        }
        let mut made = self.made.lock().unwrap();
        let node = self.place.join(format!("nbd{made}"));
        *made += 1;
        std::fs::write(&node, b"")?;
        Ok(Box::new(FakeDevice { fake: self.clone(), node, chosen }))
    }

    fn clear_left(&self) -> io::Result<()> {
        Ok(())
    }

    fn is_left(&self, _node: &Path) -> bool {
        false
    }
}

impl BlockDevice for FakeDevice {
    fn node(&self) -> &Path {
        &self.node
    }

    fn is_in_use(&self) -> bool {
        self.fake.is_in_use.load(Ordering::Relaxed)
    }

    fn resize(&mut self, size_bytes: u64) -> io::Result<()> {
        if self.fake.keeps_sizes.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.fake.sizes.lock().unwrap().push(size_bytes);
        Ok(())
    }

    fn flush(&mut self, _limit: Duration) -> io::Result<()> {
        self.fake.ends.lock().unwrap().push("flush");
        match self.fake.cannot_flush.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    fn detach(&mut self, fails: bool) -> io::Result<()> {
        self.fake.ends.lock().unwrap().push(if fails { "fail" } else { "detach" });
        self.chosen.socket.write_all(&request(2, 0, 0))?;
        std::fs::remove_file(&self.node)
    }
}

struct Rig {
    running: Running,
    fake: Fake,
    links: PathBuf,
    _devices: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Self::with(&[Through::Nbd])
    }

    fn with(ways: &[Through]) -> Self {
        let devices = tempfile::tempdir().unwrap();
        let fake = Fake { place: devices.path().to_owned(), ..Fake::default() };
        let links = devices.path().join("zvol");
        let maker = || -> Arc<dyn BlockDevices<VolumeExport>> { Arc::new(fake.clone()) };
        let ways = ways.iter().map(|way| (*way, maker())).collect();
        let maker = DeviceMaker { ways, links: links.clone() };
        let running = Running::start_as(Daemon::default().making_devices(maker));
        new_volume(&running);
        Self { running, fake, links, _devices: devices }
    }

    /// As over the API.
    fn act<A: Action>(&self, action: &A) -> Result<(), String> {
        let body = serde_json::to_vec(action).unwrap();
        dispatch(&self.running.daemon, A::NAME, &body).map(drop).map_err(|error| error.message)
    }

    fn set(&self, name: &str, value: &str) {
        let set = SetProperties {
            datasets: vec!["tank/vol".into()],
            properties: vec![(name.into(), value.into())],
            ..SetProperties::default()
        };
        self.act(&set).unwrap();
    }

    /// Where the link of a volume leads.
    fn link(&self, volume: &str) -> Option<PathBuf> {
        std::fs::read_link(self.links.join(volume)).ok()
    }

    fn node(&self, number: usize) -> Option<PathBuf> {
        Some(self.fake.place.join(format!("nbd{number}")))
    }
}

#[test]
fn a_volume_is_a_device_until_it_is_detached_or_its_pool_exported() {
    let rig = Rig::new();
    let daemon = &rig.running.daemon;
    let attach = || block_on(daemon.attach_volume(AttachVolume { volume: "tank/vol".into(), through: None }));
    let attached = attach().unwrap();
    assert_eq!((Some(attached.node.clone()), rig.link("tank/vol")), (rig.node(0), rig.node(0)));
    assert_eq!(attach().unwrap(), attached, "it has one already");
    assert_eq!(daemon.list_attached(ListAttached {}).unwrap(), [attached]);
    let none = block_on(daemon.attach_volume(AttachVolume { volume: "tank/none".into(), through: None }))
        .unwrap_err();
    assert_eq!(none.kind, ErrorKind::NotFound);

    rig.fake.is_in_use.store(true, Ordering::Relaxed);
    let detach = |force| block_on(daemon.detach_volume(DetachVolume { volume: "tank/vol".into(), force }));
    let refused = detach(false).unwrap_err();
    assert!(refused.kind == ErrorKind::Busy && refused.message.contains("nbd0"), "{refused}");
    let export = |force| block_on(daemon.export(ExportPool { all: true, force, ..ExportPool::default() }));
    let refused = export(false).unwrap_err();
    assert!(refused.kind == ErrorKind::Busy && refused.message.contains("in use as"), "{refused}");
    assert_eq!(rig.link("tank/vol"), rig.node(0));
    detach(true).unwrap();
    assert_eq!((rig.link("tank/vol"), rig.links.join("tank").exists()), (None, false));
    assert_eq!(detach(true).unwrap_err().kind, ErrorKind::NotFound);

    // One that nothing uses does not keep its pool.
    rig.fake.is_in_use.store(false, Ordering::Relaxed);
    attach().unwrap();
    export(false).unwrap();
    assert_eq!((rig.link("tank/vol"), rig.fake.place.join("nbd1").exists()), (None, false));
}

#[test]
fn volmode_makes_and_removes_the_device_with_the_volume() {
    let rig = Rig::new();
    rig.set("volmode", "dev");
    assert_eq!(rig.link("tank/vol"), rig.node(0));
    rig.set("volsize", "16M");
    assert_eq!(*rig.fake.sizes.lock().unwrap(), [16 * MEBIBYTE]);
    rig.set("volmode", "none");
    assert_eq!(rig.link("tank/vol"), None);
    rig.set("volmode", "full");
    assert_eq!(rig.link("tank/vol"), rig.node(1));

    let rename = RenameDataset { from: "tank/vol".into(), to: "tank/new".into(), ..RenameDataset::default() };
    rig.act(&rename).unwrap();
    assert_eq!((rig.link("tank/vol"), rig.link("tank/new")), (None, rig.node(2)));
    // One that is in use keeps its volume.
    rig.fake.is_in_use.store(true, Ordering::Relaxed);
    let destroy = DestroyDataset { name: "tank/new".into(), ..DestroyDataset::default() };
    assert!(rig.act(&destroy).unwrap_err().contains("busy"));
    rig.fake.is_in_use.store(false, Ordering::Relaxed);
    rig.act(&destroy).unwrap();
    assert_eq!((rig.link("tank/new"), rig.links.join("tank").exists()), (None, false));
}

#[test]
fn by_default_a_volume_has_the_device_that_the_tunable_says_until_it_is_detached() {
    let rig = Rig::with(&[Through::Ublk, Through::Nbd]);
    assert_eq!(rig.link("tank/vol"), None, "there is none without it");
    tunables::ZVOL_VOLMODE.set(1).unwrap();
    // The property is looked at with the next change.
    rig.set("volmode", "default");
    assert_eq!(rig.link("tank/vol"), rig.node(0));
    // It gives way to what is asked for.
    let attach = |through| rig.act(&AttachVolume { volume: "tank/vol".into(), through: Some(through) });
    attach(Through::Nbd).unwrap();
    assert_eq!(rig.link("tank/vol"), rig.node(1));
    assert!(attach(Through::Ublk).unwrap_err().contains("detach it first"));
    rig.act(&DetachVolume { volume: "tank/vol".into(), force: false }).unwrap();
    assert_eq!(rig.link("tank/vol"), None);
    rig.set("snapdev", "visible");
    assert_eq!(rig.link("tank/vol"), None, "it was detached by request");
    rig.set("volmode", "full");
    assert_eq!(rig.link("tank/vol"), rig.node(2));
    tunables::ZVOL_VOLMODE.reset();
}

#[test]
fn a_device_that_was_asked_for_goes_with_its_volume_to_another_name() {
    let rig = Rig::new();
    let attach = AttachVolume { volume: "tank/vol".into(), through: Some(Through::Nbd) };
    rig.act(&attach).unwrap();
    for (from, to) in [("tank/vol", "tank/volume"), ("tank/volume", "tank/v")] {
        rig.act(&RenameDataset { from: from.into(), to: to.into(), ..RenameDataset::default() }).unwrap();
        assert_eq!([from, to].map(|name| rig.link(name).is_some()), [false, true]);
    }
}

#[test]
fn a_device_that_keeps_its_size_is_attached_again_unless_it_is_in_use() {
    let rig = Rig::new();
    rig.fake.keeps_sizes.store(true, Ordering::Relaxed);
    rig.set("volmode", "dev");
    rig.fake.is_in_use.store(true, Ordering::Relaxed);
    rig.set("volsize", "16M");
    assert_eq!(rig.link("tank/vol"), rig.node(0));
    rig.fake.is_in_use.store(false, Ordering::Relaxed);
    rig.set("volsize", "24M");
    assert_eq!(rig.link("tank/vol"), rig.node(1));
    assert_eq!(*rig.fake.ends.lock().unwrap(), ["flush", "detach"]);
}

#[test]
fn what_the_kernel_keeps_is_written_before_the_daemon_ends_also_where_it_is_asked_to() {
    let rig = Rig::new();
    rig.set("volmode", "dev");
    // A mount keeps it from being detached only without force.
    rig.fake.is_in_use.store(true, Ordering::Relaxed);
    rig.act(&Shutdown {}).unwrap();
    assert_eq!(*rig.fake.ends.lock().unwrap(), ["flush", "detach"]);
    assert_eq!(rig.link("tank/vol"), None);
}

#[test]
fn a_device_that_cannot_be_flushed_goes_by_force_only() {
    let rig = Rig::new();
    rig.set("volmode", "dev");
    rig.fake.cannot_flush.store(true, Ordering::Relaxed);
    let detach = |force| {
        let detach = DetachVolume { volume: "tank/vol".into(), force };
        block_on(rig.running.daemon.detach_volume(detach))
    };
    assert!(detach(false).unwrap_err().message.contains("stays attached"));
    assert_eq!(rig.link("tank/vol"), rig.node(0));
    detach(true).unwrap();
    assert_eq!(*rig.fake.ends.lock().unwrap(), ["flush", "flush", "fail"]);
    assert_eq!(rig.link("tank/vol"), None);
}

#[test]
fn snapshots_are_devices_where_snapdev_says_so() {
    let rig = Rig::new();
    let snapshot = |name: &str| {
        rig.act(&TakeSnapshots { names: vec![name.into()], ..TakeSnapshots::default() }).unwrap();
    };
    snapshot("tank/vol@a");
    rig.set("snapdev", "visible");
    assert_eq!(rig.link("tank/vol@a"), None, "its volume is no device");
    rig.set("volmode", "dev");
    let is_there = |name: &str| rig.link(name).is_some();
    assert_eq!(["tank/vol", "tank/vol@a"].map(is_there), [true; 2]);
    snapshot("tank/vol@b");
    assert_eq!(["tank/vol", "tank/vol@a", "tank/vol@b"].map(is_there), [true; 3]);
    let destroy = DestroyDataset { name: "tank/vol@a".into(), ..DestroyDataset::default() };
    rig.act(&destroy).unwrap();
    assert_eq!(["tank/vol", "tank/vol@a", "tank/vol@b"].map(is_there), [true, false, true]);
    rig.set("snapdev", "hidden");
    assert_eq!(["tank/vol", "tank/vol@b"].map(is_there), [true, false]);
}

#[test]
fn a_snapshot_that_is_a_device_in_use_does_not_go_with_its_last_hold() {
    let rig = Rig::new();
    rig.set("volmode", "dev");
    rig.set("snapdev", "visible");
    let snapshots = vec!["tank/vol@s".to_owned()];
    rig.act(&TakeSnapshots { names: snapshots.clone(), ..TakeSnapshots::default() }).unwrap();
    let hold = |release| HoldSnapshots {
        snapshots: snapshots.clone(),
        tag: "kept".into(),
        release,
        ..HoldSnapshots::default()
    };
    rig.act(&hold(false)).unwrap();
    let destroy = DestroyDataset { name: "tank/vol@s".into(), defer: true, ..DestroyDataset::default() };
    rig.act(&destroy).unwrap();
    assert!(rig.link("tank/vol@s").is_some(), "it waits");
    rig.fake.is_in_use.store(true, Ordering::Relaxed);
    let refused = rig.act(&hold(true)).unwrap_err();
    assert!(refused.contains("busy"), "{refused}");
    rig.fake.is_in_use.store(false, Ordering::Relaxed);
    rig.act(&hold(true)).unwrap();
    assert_eq!(rig.link("tank/vol@s"), None);
}
