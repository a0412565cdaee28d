//! Usershares of Samba that follow properties and mounts, with something else in Samba's place. Needs
//! `/dev/fuse`; `CENOTE_SKIP=fuse` leaves these tests out.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use server::api::{
    Action, CreateDataset, CreatePool, DestroyDataset, ExportPool, ImportPool, Mount, NewDevices, NewLayout,
    NewVdev, RenameDataset, SetProperties, ShareFilesystems, ShareProtocol, SharesChanged, Unmount,
    UnshareFilesystems,
};
use server::daemon::{Daemon, dispatch};
use server::smb::{Options, Usershare, Usershares};

use crate::harness::{Running, skips_fuse};
use crate::volumes::MEBIBYTE;

/// Keeps usershares in memory.
#[derive(Debug, Default, Clone)]
struct Fake {
    shares: Arc<Mutex<Vec<Usershare>>>,
    is_away: Arc<AtomicBool>,
    refuses: Arc<AtomicBool>,
}

impl Usershares for Fake {
    fn is_there(&self) -> bool {
        !self.is_away.load(Ordering::Relaxed)
    }

    fn list(&self) -> io::Result<Vec<Usershare>> {
        Ok(self.shares.lock().unwrap().clone())
    }

    fn put(&self, share: &Usershare) -> io::Result<()> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(io::Error::other("usershares are currently disabled"));
        }
        assert!(share.path.is_dir(), "{share:?}");
        let mut shares = self.shares.lock().unwrap();
        shares.retain(|other| other.name != share.name);
        shares.push(share.clone());
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.shares.lock().unwrap().retain(|other| other.name != name);
        Ok(())
    }
}

struct Rig {
    running: Running,
    fake: Fake,
}

impl Rig {
    fn new(fake: Fake) -> Self {
        let running = Running::start_as(Daemon::default().keeping_usershares(Arc::new(fake.clone())));
        let rig = Self { running, fake };
        let disk = rig.running.place.path().join("disk");
        std::fs::File::create(&disk).unwrap().set_len(128 * MEBIBYTE).unwrap();
        let vdev = NewVdev { layout: NewLayout::Single, class: Default::default(), devices: vec![disk] };
        rig.act(&CreatePool {
            name: "tank".into(),
            devices: NewDevices { vdevs: vec![vdev], ..NewDevices::default() },
            altroot: Some(rig.running.altroot()),
            ..CreatePool::default()
        });
        rig.act(&CreateDataset { name: "tank/fs".into(), ..CreateDataset::default() });
        rig
    }

    fn asked<A: Action>(&self, action: &A) -> Result<A::Reply, String> {
        let body = serde_json::to_vec(action).unwrap();
        let reply = dispatch(&self.running.daemon, A::NAME, &body).map_err(|error| error.message)?;
        Ok(serde_json::from_slice(&reply).unwrap())
    }

    /// As over the API, with the warnings.
    fn act<A: Action>(&self, action: &A) -> A::Reply {
        self.asked(action).unwrap()
    }

    fn set(&self, dataset: &str, name: &str, value: &str) -> Vec<String> {
        let set = SetProperties {
            datasets: vec![dataset.into()],
            properties: vec![(name.into(), value.into())],
            ..SetProperties::default()
        };
        let set = self.act(&set);
        assert!(set.failed.is_empty(), "{:?}", set.failed);
        set.warnings
    }

    fn share(&self, target: Option<&str>) -> Result<SharesChanged, String> {
        let (dataset, protocol) = (target.map(str::to_owned), Some(ShareProtocol::Smb));
        self.asked(&ShareFilesystems { dataset, protocol })
    }

    fn unshare(&self, target: Option<&str>) -> Result<SharesChanged, String> {
        self.asked(&UnshareFilesystems { target: target.map(str::to_owned), protocol: None })
    }

    /// Waits until these are the usershares: an action may be answered while another thread brings them in
    /// line.
    fn expect(&self, shares: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.shares() != shares {
            assert!(Instant::now() < deadline, "{:?} where {shares:?} are expected", self.shares());
            std::thread::yield_now();
        }
    }

    /// Names of the usershares, and where they are below the altroot.
    fn shares(&self) -> Vec<String> {
        let altroot = self.running.altroot();
        let shown = |share: &Usershare| {
            let at = share.path.strip_prefix(&altroot).unwrap_or(&share.path);
            format!("{}={}", share.name, at.display())
        };
        let mut shares: Vec<String> = self.fake.shares.lock().unwrap().iter().map(shown).collect();
        shares.sort();
        shares
    }
}

#[test]
fn a_filesystem_is_a_usershare_while_it_is_mounted_and_its_property_says_so() {
    if skips_fuse() {
        return;
    }
    let rig = Rig::new(Fake::default());
    assert!(rig.set("tank/fs", "sharesmb", "on").is_empty());
    rig.expect(&["tank_fs=tank/fs"]);
    // Children inherit it, and are shared when they are made.
    rig.act(&CreateDataset { name: "tank/fs/in-it".into(), ..CreateDataset::default() });
    rig.expect(&["tank_fs=tank/fs", "tank_fs_in_it=tank/fs/in-it"]);
    rig.set("tank/fs/in-it", "sharesmb", "name=Docs,description=All of them,ro,guestok");
    rig.expect(&["docs=tank/fs/in-it", "tank_fs=tank/fs"]);
    {
        let shares = rig.fake.shares.lock().unwrap();
        let docs = shares.iter().find(|share| share.name == "docs").unwrap();
        assert!(docs.is_read_only && docs.lets_guests_in && docs.comment.starts_with("All of them "));
    }
    rig.act(&Unmount { target: Some("tank/fs/in-it".into()), ..Unmount::default() });
    rig.expect(&["tank_fs=tank/fs"]);
    rig.act(&Mount { dataset: Some("tank/fs/in-it".into()), ..Mount::default() });
    rig.expect(&["docs=tank/fs/in-it", "tank_fs=tank/fs"]);
    let rename = RenameDataset { from: "tank/fs".into(), to: "tank/new".into(), ..RenameDataset::default() };
    rig.act(&rename);
    rig.expect(&["docs=tank/new/in-it", "tank_new=tank/new"]);
    rig.set("tank/new", "mountpoint", "/elsewhere");
    rig.expect(&["docs=elsewhere/in-it", "tank_new=elsewhere"]);
    rig.act(&DestroyDataset { name: "tank/new/in-it".into(), ..DestroyDataset::default() });
    rig.set("tank/new", "sharesmb", "off");
    rig.expect(&[]);
}

#[test]
fn shares_end_and_begin_by_command_and_with_the_pool() {
    if skips_fuse() {
        return;
    }
    let rig = Rig::new(Fake::default());
    rig.set("tank", "sharesmb", "on");
    rig.expect(&["tank=tank", "tank_fs=tank/fs"]);
    assert_eq!(rig.unshare(Some("tank/fs")).unwrap().done, ["tank/fs"]);
    rig.expect(&["tank=tank"]);
    assert_eq!(rig.unshare(Some("tank/fs")).unwrap_err(), "cannot unshare 'tank/fs': not currently shared");
    rig.set("tank/fs", "atime", "off");
    rig.expect(&["tank=tank"]);
    rig.share(Some("tank/fs")).unwrap();
    assert_eq!(rig.share(Some("tank/fs")).unwrap_err(), "cannot share 'tank/fs': filesystem already shared");
    assert_eq!(rig.unshare(None).unwrap().done, ["tank", "tank/fs"]);
    rig.expect(&[]);
    assert!(rig.share(None).unwrap().failed.is_empty());
    rig.expect(&["tank=tank", "tank_fs=tank/fs"]);
    // One that another program made stays, and one that a daemon left behind goes.
    let by_hand = Usershare { comment: "by hand".into(), ..left("tank/fs", "mine") };
    rig.act(&ExportPool { all: true, ..ExportPool::default() });
    rig.expect(&[]);
    rig.fake.shares.lock().unwrap().extend([by_hand, left("tank/fs", "old"), left("other", "other")]);
    rig.act(&ImportPool {
        search: vec![rig.running.place.path().to_owned()],
        altroot: Some(rig.running.altroot()),
        ..ImportPool::default()
    });
    rig.expect(&["mine=/srv", "other=/srv", "tank=tank", "tank_fs=tank/fs"]);
}

/// A usershare for a dataset.
fn left(dataset: &str, name: &str) -> Usershare {
    Usershare { name: name.into(), ..Options::default().of(dataset, Path::new("/srv")) }
}

#[test]
fn what_cannot_be_shared_is_said_and_tried_again() {
    if skips_fuse() {
        return;
    }
    let rig = Rig::new(Fake::default());
    rig.fake.is_away.store(true, Ordering::Relaxed);
    let said = rig.set("tank/fs", "sharesmb", "on");
    assert!(said.len() == 1 && said[0].contains("install Samba"), "{said:?}");
    assert!(rig.share(Some("tank/fs")).unwrap_err().contains("install Samba"));
    rig.fake.is_away.store(false, Ordering::Relaxed);
    rig.fake.refuses.store(true, Ordering::Relaxed);
    assert!(rig.share(Some("tank/fs")).unwrap_err().contains("currently disabled"));
    rig.fake.refuses.store(false, Ordering::Relaxed);
    // Another's share of that name is not replaced.
    let by_hand = Usershare { comment: "by hand".into(), ..left("tank/fs", "TANK_FS") };
    rig.fake.shares.lock().unwrap().push(by_hand);
    let refused = rig.share(Some("tank/fs")).unwrap_err();
    assert!(refused.contains("there is another share 'tank_fs'"), "{refused}");
    rig.fake.shares.lock().unwrap().clear();
    rig.share(Some("tank/fs")).unwrap();
    rig.expect(&["tank_fs=tank/fs"]);
    rig.set("tank", "sharesmb", "name=tank_fs");
    rig.expect(&["tank_fs=tank/fs"]);
}
