//! Scrubs and resilvers, through the binary.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::session::Session;

#[test]
fn a_scrub_mends_a_device_and_is_told_of_in_openzfs_s_words() {
    let session = Session::start();
    let place = session.directory().join("disks");
    fs::create_dir_all(&place).unwrap();
    let disks = ["d0", "d1"].map(|name| place.join(name));
    for disk in &disks {
        File::create(disk).unwrap().set_len(128 << 20).unwrap();
    }
    let [first, second] = [0, 1].map(|index: usize| disks[index].to_str().unwrap());
    session.print(&["zpool", "create", "-m", "none", "tank", "mirror", first, second]);
    session.print(&["zfs", "create", "tank/some"]);
    session.print(&["zpool", "export", "tank"]);
    let file = File::options().read(true).write(true).open(first).unwrap();
    let mut sector = vec![0; 4096];
    for at in ((4 << 20)..(127 << 20)).step_by(4096) {
        file.read_exact_at(&mut sector, at).unwrap();
        if sector.iter().any(|byte| *byte != 0) {
            sector.iter_mut().for_each(|byte| *byte ^= 0x5a);
            file.write_all_at(&sector, at).unwrap();
        }
    }
    drop(file);
    session.print(&["zpool", "import", "-d", place.to_str().unwrap(), "tank"]);
    let status = || session.print(&["zpool", "status", "tank"]);
    assert!(!status().contains("scan:"), "{}", status());
    assert_eq!(session.print(&["zpool", "scrub", "-w", "tank"]), "");
    let told = status();
    assert!(told.contains("  scan: scrub repaired ") && told.contains(" with 0 errors on "), "{told}");
    assert!(!told.contains("repaired 0B"), "{told}");
    session.print(&["zpool", "clear", "tank"]);
    session.print(&["zpool", "scrub", "-a", "-w"]);
    assert!(status().contains("  scan: scrub repaired 0B in "), "{}", status());
    let json = session.print(&["zpool", "status", "-j", "tank"]);
    assert!(json.contains("\"function\":\"SCRUB\",\"state\":\"FINISHED\""), "{json}");
    // Only what is newer than the last one, or of one day.
    session.print(&["zpool", "scrub", "-C", "-w", "tank"]);
    session.print(&["zpool", "scrub", "-S", "2020-01-01", "-E", "2099-12-31 23:59", "-w", "tank"]);
    // There is nothing in the error log.
    session.print(&["zpool", "scrub", "-e", "-w", "tank"]);
    session.print(&["zpool", "scrub", "-p", "tank"]);
    session.print(&["zpool", "resilver", "tank"]);
    session.print(&["zpool", "wait", "-t", "scrub,resilver,replace", "tank"]);
    let refused = |arguments: &[&str]| {
        let refused = session.run(arguments);
        (refused.code, refused.err)
    };
    let none = "cannot cancel scrubbing tank: there is no active scrub\n".to_owned();
    assert_eq!(refused(&["zpool", "scrub", "-s", "tank"]), (1, none));
    for (options, told) in [
        (&["-s", "-p"][..], "-s and -p are mutually exclusive"),
        (&["-C", "-e"], "-e and -C are mutually exclusive"),
        (&["-w", "-s"], "-w cannot be used with -p or -s"),
        (&["-S", "yesterday"], "Failed to parse the date."),
        (&["-S", "2026-02-02", "-E", "2026-01-01"], "end date has to be later than start date"),
        (&["-C", "-S", "2026-01-01"], "start/end date is available only with normal scrub"),
    ] {
        let (code, err) = refused(&[&["zpool", "scrub"], options, &["tank"]].concat());
        assert!(code == 2 && err.contains(told), "{options:?}: {err}");
    }
    assert_eq!(refused(&["zpool", "scrub"]).0, 2);
    let history = session.print(&["zpool", "history", "-i", "tank"]);
    for noted in ["scan setup func=1 mintxg=0 ", "scan done errors=0", "zpool scrub -C -w tank"] {
        assert!(history.contains(noted), "{noted}: {history}");
    }
    session.print(&["zpool", "export", "tank"]);
}
