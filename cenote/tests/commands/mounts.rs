//! `zfs mount`, `zfs unmount`. Needs `/dev/fuse`; `CENOTE_SKIP=fuse` leaves this out.

use crate::session::Session;

#[test]
fn filesystems_are_mounted_named_by_path_and_unmounted() {
    if testkit::skipped("fuse", "mounts") {
        return;
    }
    let Some(golden) = testkit::golden::pool("single") else { return };
    let session = Session::start();
    let root = session.directory().join("root");
    let (place, root) = (golden.dir.to_str().unwrap(), root.to_str().unwrap());
    session.print(&["zpool", "import", "-N", "-o", "readonly=on", "-R", root, "-d", place, "single"]);
    assert_eq!(session.print(&["zfs", "mount"]), "");

    session.print(&["zfs", "mount", "single/fs"]);
    let at = format!("{root}/fs");
    assert_eq!(session.print(&["zfs", "mount"]), format!("{:<30}  {at}\n", "single/fs"));
    let again = session.run(&["zfs", "mount", "single/fs"]);
    let message = "cannot mount 'single/fs': filesystem already mounted\n";
    assert_eq!((again.code, again.err.as_str()), (1, message));
    assert_eq!(session.print(&["zfs", "list", "-Ho", "name,mounted", &at]), "single/fs\tyes\n");
    let source = session.print(&["zfs", "get", "-Ho", "value,source", "readonly", "single/fs"]);
    assert_eq!(source, "on\ttemporary\n");

    let snapshot = session.directory().join("snapshot");
    let snapshot = snapshot.to_str().unwrap();
    session.print(&["zfs", "mount", "--at", snapshot, "single/fs@one"]);
    let has_entries = std::fs::read_dir(snapshot).unwrap().next().is_some();
    assert!(has_entries, "the snapshot shows its files");
    let listed: serde_json::Value = serde_json::from_str(&session.print(&["zfs", "mount", "-j"])).unwrap();
    assert_eq!(listed["datasets"].as_object().unwrap().keys().collect::<Vec<_>>(), ["single/fs"]);

    session.print(&["zfs", "unmount", snapshot]);
    session.print(&["zfs", "unmount", "single/fs"]);
    session.print(&["zfs", "mount", "-a"]);
    let count = session.print(&["zfs", "mount"]).lines().count();
    assert_eq!(count, 9, "all filesystems");
    session.print(&["zfs", "umount", "-a"]);
    assert_eq!(session.print(&["zfs", "mount"]), "");
}
