//! `zfs mount`, `zfs unmount`, and the helper of the system's `mount`. Needs `/dev/fuse`; `CENOTE_SKIP=fuse` leaves this out.

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

    assert_eq!(session.run(&["zfs", "mount", "-R"]).code, 2);
    session.print(&["zfs", "mount", "-fR", "-o", "noexec", "single/fs"]);
    let mounted = session.print(&["zfs", "mount"]);
    assert!(!mounted.is_empty() && mounted.lines().all(|line| line.starts_with("single/fs")), "{mounted}");
    assert_eq!(
        session.print(&["zfs", "get", "-Hpo", "value,source", "exec", "single/fs"]),
        "off\ttemporary\n"
    );
    session.print(&["zfs", "unmount", "-fu", "-a"]);
    assert_eq!(session.print(&["zfs", "mount"]), "");
}

#[test]
fn the_system_mounts_what_is_legacy_again_and_otherwise() {
    if testkit::skipped("fuse", "legacy mounts") {
        return;
    }
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("left out: legacy mounts need root");
        return;
    }
    let session = Session::start();
    let disk = session.directory().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let (disk, root) = (disk.to_str().unwrap(), session.directory().join("root"));
    session.print(&["zpool", "create", "-R", root.to_str().unwrap(), "tank", disk]);
    session.print(&["zfs", "create", "-o", "mountpoint=legacy", "tank/fs"]);
    let at = session.directory().join("at");
    std::fs::create_dir(&at).unwrap();
    let at = at.to_str().unwrap();
    let refused = session.run(&["mount.cenote", "tank", at]);
    assert_eq!(refused.code, 32);
    assert!(refused.err.contains("its mountpoint is not legacy"), "{}", refused.err);

    let file = format!("{at}/file");
    // Each time right after somebody unmounted it without asking the daemon.
    for round in 0..5 {
        session.print(&["mount.cenote", "tank/fs", at, "-o", "rw,noexec,nofail"]);
        std::fs::write(&file, [round]).unwrap();
        if round < 4 {
            let unmounted = std::process::Command::new("umount").arg(at).status().unwrap();
            assert!(unmounted.success());
            assert!(!std::fs::exists(&file).unwrap());
        }
    }
    session.print(&["mount.cenote", "tank/fs", at, "-o", "remount,ro,noatime,user_id=0"]);
    let kind = std::fs::write(&file, b"no").unwrap_err().kind();
    assert_eq!(kind, std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(std::fs::read(&file).unwrap(), [4]);
    let words =
        session.print(&["zfs", "get", "-Hpo", "property,value,source", "exec,readonly,atime", "tank/fs"]);
    assert_eq!(words, "exec\toff\ttemporary\nreadonly\ton\ttemporary\natime\ton\tdefault\n");
    session.print(&["zfs", "mount", "-o", "remount,rw", "tank/fs"]);
    std::fs::write(&file, b"yes").unwrap();
    session.print(&["zpool", "export", "tank"]);
}
