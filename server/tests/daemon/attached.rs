//! Volumes as block devices, with something else in the kernel's place.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use device::block_on;
use server::api::{
    Action, AttachVolume, DestroyDataset, DetachVolume, ErrorKind, ExportPool, ListAttached, RenameDataset,
    SetProperties,
};
use server::blockdev::{BlockDevice, BlockDevices};
use server::daemon::{Daemon, DeviceMaker, dispatch};
use server::nbd::Chosen;

use crate::harness::Running;
use crate::volumes::{MEBIBYTE, new_volume};

/// Makes files that stand for devices, and tries what it is given as the kernel would.
#[derive(Debug, Default, Clone)]
struct Fake {
    place: PathBuf,
    is_in_use: Arc<AtomicBool>,
    sizes: Arc<Mutex<Vec<u64>>>,
    made: Arc<Mutex<usize>>,
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

impl BlockDevices for Fake {
    fn is_there(&self) -> bool {
        true
    }

    fn attach(&self, mut chosen: Chosen) -> io::Result<Box<dyn BlockDevice>> {
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
}

impl BlockDevice for FakeDevice {
    fn node(&self) -> &Path {
        &self.node
    }

    fn is_in_use(&self) -> bool {
        self.fake.is_in_use.load(Ordering::Relaxed)
    }

    fn resize(&mut self, size_bytes: u64) -> io::Result<()> {
        self.fake.sizes.lock().unwrap().push(size_bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn detach(&mut self) -> io::Result<()> {
        self.chosen.socket.write_all(&request(2, 0, 0))?;
        std::fs::remove_file(&self.node)
    }
}

struct Place {
    running: Running,
    fake: Fake,
    links: PathBuf,
    _devices: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let devices = tempfile::tempdir().unwrap();
        let fake = Fake { place: devices.path().to_owned(), ..Fake::default() };
        let links = devices.path().join("zvol");
        let maker = DeviceMaker { devices: Arc::new(fake.clone()), links: links.clone() };
        let running = Running::start_as(Daemon::default().making_devices(maker));
        new_volume(&running);
        Self { running, fake, links, _devices: devices }
    }

    /// As over the API.
    fn act<A: Action>(&self, action: &A) -> Result<(), String> {
        let body = serde_json::to_vec(action).unwrap();
        block_on(dispatch(&self.running.daemon, A::NAME, &body)).map(drop).map_err(|error| error.message)
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
    let place = Place::new();
    let daemon = &place.running.daemon;
    let attach = || block_on(daemon.attach_volume(AttachVolume { volume: "tank/vol".into() }));
    let attached = attach().unwrap();
    assert_eq!((Some(attached.node.clone()), place.link("tank/vol")), (place.node(0), place.node(0)));
    assert_eq!(attach().unwrap(), attached, "it has one already");
    assert_eq!(daemon.list_attached(ListAttached {}).unwrap(), [attached]);
    let none = block_on(daemon.attach_volume(AttachVolume { volume: "tank/none".into() })).unwrap_err();
    assert_eq!(none.kind, ErrorKind::NotFound);

    place.fake.is_in_use.store(true, Ordering::Relaxed);
    let detach = |force| block_on(daemon.detach_volume(DetachVolume { volume: "tank/vol".into(), force }));
    let refused = detach(false).unwrap_err();
    assert!(refused.kind == ErrorKind::Busy && refused.message.contains("nbd0"), "{refused}");
    let export = |force| block_on(daemon.export(ExportPool { all: true, force, ..ExportPool::default() }));
    let refused = export(false).unwrap_err();
    assert!(refused.kind == ErrorKind::Busy && refused.message.contains("in use as"), "{refused}");
    assert_eq!(place.link("tank/vol"), place.node(0));
    detach(true).unwrap();
    assert_eq!((place.link("tank/vol"), place.links.join("tank").exists()), (None, false));
    assert_eq!(detach(true).unwrap_err().kind, ErrorKind::NotFound);

    // One that nothing uses does not keep its pool.
    place.fake.is_in_use.store(false, Ordering::Relaxed);
    attach().unwrap();
    export(false).unwrap();
    assert_eq!((place.link("tank/vol"), place.fake.place.join("nbd1").exists()), (None, false));
}

#[test]
fn volmode_makes_and_removes_the_device_with_the_volume() {
    let place = Place::new();
    place.set("volmode", "dev");
    assert_eq!(place.link("tank/vol"), place.node(0));
    place.set("volsize", "16M");
    assert_eq!(*place.fake.sizes.lock().unwrap(), [16 * MEBIBYTE]);
    place.set("volmode", "none");
    assert_eq!(place.link("tank/vol"), None);
    place.set("volmode", "full");
    assert_eq!(place.link("tank/vol"), place.node(1));

    let rename = RenameDataset { from: "tank/vol".into(), to: "tank/new".into(), ..RenameDataset::default() };
    place.act(&rename).unwrap();
    assert_eq!((place.link("tank/vol"), place.link("tank/new")), (None, place.node(2)));
    // One that is in use keeps its volume.
    place.fake.is_in_use.store(true, Ordering::Relaxed);
    let destroy = DestroyDataset { name: "tank/new".into(), ..DestroyDataset::default() };
    assert!(place.act(&destroy).unwrap_err().contains("busy"));
    place.fake.is_in_use.store(false, Ordering::Relaxed);
    place.act(&destroy).unwrap();
    assert_eq!((place.link("tank/new"), place.links.join("tank").exists()), (None, false));
}
