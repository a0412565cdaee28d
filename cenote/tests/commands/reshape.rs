//! Volumes that get another block size, through the binary.

use std::fs::{self, File};

use crate::session::Session;

#[test]
fn a_volume_gets_another_block_size_by_a_property_and_by_a_command() {
    let session = Session::start();
    let place = session.directory().join("disks");
    fs::create_dir_all(&place).unwrap();
    let disk = place.join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    session.print(&["zpool", "create", "-m", "none", "tank", disk.to_str().unwrap()]);
    session.print(&["zfs", "create", "-V", "16M", "-o", "volblocksize=16K", "tank/vol"]);
    let refused = |arguments: &[&str]| {
        let refused = session.run(arguments);
        assert_eq!(refused.code, 1, "{arguments:?}: {}", refused.err);
        refused.err
    };
    let told = session.print(&["reshape", "tank/vol", "--volblocksize", "64K", "--dry-run"]);
    assert!(told.contains("blocks of 64K instead of 16K") && told.contains("room: about "), "{told}");
    assert!(told.contains("time: not known: there is nothing to read"), "{told}");
    session.print(&["zpool", "wait", "-t", "reshape", "tank"]);
    assert!(refused(&["reshape", "tank/vol", "--status"]).contains("is not being changed"));
    assert!(refused(&["reshape", "tank/vol", "--cancel"]).contains("is not being changed"));
    assert!(refused(&["zfs", "set", "volblocksize=3000", "tank/vol"]).contains("must be power of 2"));
    assert!(refused(&["zfs", "set", "volblocksize=8K", "tank"]).contains("does not apply"));
    assert!(refused(&["reshape", "tank", "--volblocksize", "8K"]).contains("not applicable"));

    let set = session.run(&["zfs", "set", "volblocksize=64K", "org.test:a=b", "tank/vol"]);
    assert!(set.code == 0 && set.err.contains("cenote reshape tank/vol --status"), "{}", set.err);
    session.print(&["zpool", "wait", "-t", "reshape", "tank"]);
    assert!(session.print(&["reshape", "tank/vol", "--status"]).contains(" is complete, "));
    let get = |name: &str, property: &str| {
        session.print(&["zfs", "get", "-Hp", "-o", "value", property, name]).trim().to_owned()
    };
    assert_eq!(get("tank/vol", "volblocksize"), "65536");
    assert_eq!((get("tank/vol", "org.test:a"), get("tank/vol", "readonly")), ("b".into(), "off".into()));
    assert_eq!(get("tank/vol.volblocksize-16K", "refreservation"), "0");
    let status = session.print(&["zpool", "status", "tank"]);
    let line = "reshape: tank/vol from volblocksize 16K to 64K is complete, the old volume is kept as \
                tank/vol.volblocksize-16K";
    assert!(status.contains(line), "{status}");
    let json = session.print(&["zpool", "status", "-j", "tank"]);
    assert!(json.contains("\"reshape_stats\":[{\"volume\":\"tank/vol\""), "{json}");

    let json = session.print(&["reshape", "tank/vol", "--volblocksize", "32K", "--wait", "--json"]);
    assert!(json.contains("\"state\": \"complete\"") && json.contains("volblocksize-64K"), "{json}");
    session.print(&["zfs", "destroy", "tank/vol.volblocksize-16K"]);
    let history = session.print(&["zpool", "history", "-i", "tank"]);
    assert!(history.contains("reshape tank/vol --volblocksize 32K --wait --json"), "{history}");
    assert!(history.contains("reshape tank/vol"), "{history}");
    session.print(&["zpool", "export", "tank"]);
}
