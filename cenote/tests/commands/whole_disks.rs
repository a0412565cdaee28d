//! Disks that a pool gets as a whole: loop devices, where this machine lets the test make some.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::session::Session;

/// A loop device over a sparse file.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Option<Self> {
        File::create(file).unwrap().set_len(200 << 20).unwrap();
        let output = Command::new("/usr/sbin/losetup").args(["-fP", "--show"]).arg(file).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("/usr/sbin/losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_whole_disk_is_partitioned_and_called_by_its_name() {
    let session = Session::start();
    let file = session.directory().join("disk");
    let Some(disk) = Loop::new(&file) else {
        eprintln!("skipped: no loop devices here (needs root)");
        return;
    };
    let device = &*disk.0;
    session.print(&["zpool", "create", "-n", "-m", "none", "tank", device]);
    assert!(!Path::new(&format!("{device}p1")).exists(), "nothing was written");
    let created = session.run(&["zpool", "create", "-m", "none", "-o", "ashift=12", "tank", device]);
    if created.err.contains("CONFIG_EFI_PARTITION") {
        let expected = format!("{device} was partitioned, but this system does not show its first partition");
        assert!(created.err.contains(&expected), "{}", created.err);
        eprintln!("skipped: this kernel does not show the partitions of a GPT");
        return;
    }
    assert_eq!((created.code, &*created.err), (0, ""));
    assert!(Path::new(&format!("{device}p9")).exists());
    let paths = session.print(&["zpool", "status", "-P", "tank"]);
    assert!(paths.contains(&format!("{device}p1 ")), "{paths}");
    session.print(&["zfs", "create", "tank/fs"]);
    let refused = session.run(&["zpool", "create", "-f", "-m", "none", "other", device]);
    assert!(refused.err.contains("is part of active pool 'tank'"), "{}", refused.err);
    session.print(&["zpool", "export", "tank"]);
    let partition = format!("{device}p1");
    session.print(&["zpool", "import", "-d", &partition, "tank"]);
    session.print(&["zpool", "destroy", "tank"]);
    session.print(&["zpool", "create", "-m", "none", "exported", device]);
    session.print(&["zpool", "export", "exported"]);
    let refused = session.run(&["zpool", "create", "-m", "none", "tank", device]);
    let expected = format!(
        "use '-f' to override the following errors:\n{partition} is part of exported pool 'exported'"
    );
    assert!(refused.err.contains(&expected), "{}", refused.err);
    // A bare partition is used as it is.
    session.print(&["zpool", "create", "-f", "-m", "none", "bare", &partition]);
    assert!(session.print(&["zpool", "status", "-P", "bare"]).contains(&partition));
    session.print(&["zpool", "export", "bare"]);
}
