//! The procedures: what a right client gets.

use std::collections::BTreeSet;

use crate::client::{ACCES, Client, EXIST, NFS, NOENT, STALE, Share, User, Xdr};
use crate::{Served, address};

/// For root, from any port.
const ALL: &str = "rw,no_root_squash,insecure";

#[test]
fn a_file_lives_from_its_creation_to_its_end() {
    let served = Served::start();
    let (mut client, root) = served.root("fs", ALL);
    let (outcome, answer) = client.call_as(NFS, 3, 0, &Xdr::default());
    assert!(outcome == 0 && answer.is_at_end(), "the procedure that does nothing");

    let file = client.create(&root, "file", 0o640).unwrap();
    let told = client.stat(&file).unwrap();
    assert_eq!((told.kind, told.mode, told.uid, told.links, told.size), (1, 0o640, 0, 1, 0));
    assert_eq!(client.create(&root, "file", 0o600).unwrap(), file, "it may be there");
    assert_eq!(client.create_new(&root, "file", 1, 0), Err(EXIST));

    let data: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    let mut verifiers = BTreeSet::new();
    for (number, part) in data.chunks(1 << 20).enumerate() {
        let stability = number as u32 % 3;
        let (stable, verifier) = client.write(&file, (number as u64) << 20, part, stability).unwrap();
        assert_eq!(stable, if stability == 0 { 0 } else { 2 });
        verifiers.insert(verifier);
    }
    verifiers.insert(client.commit(&file).unwrap());
    assert_eq!(verifiers.len(), 1);
    assert!(client.content(&file).unwrap() == data);
    assert_eq!(client.read(&file, 3_000_000, 100), Ok((vec![], true)));
    assert_eq!(client.read(&file, u64::MAX, 100), Ok((vec![], true)));
    assert_eq!(client.read(&file, 2_999_990, 100), Ok((data[2_999_990..].to_vec(), true)));

    let told = client.set(&file, Some(0o600), Some(10)).unwrap().unwrap();
    assert_eq!((told.mode, told.size), (0o600, 10));
    assert_eq!(client.content(&file).unwrap(), data[..10]);

    let dir = client.make_directory(&root, "dir", 0o755).unwrap();
    client.link(&file, &dir, "other").unwrap();
    assert_eq!(client.stat(&file).unwrap().links, 2);
    assert_eq!(client.remove_directory(&root, "dir"), Err(66), "not empty");
    assert_eq!(client.remove(&root, "dir"), Err(21), "a directory");
    assert_eq!(client.remove_directory(&dir, "other"), Err(20), "no directory");
    let link = client.symlink(&root, "link", "../else/where").unwrap();
    assert_eq!(client.read_link(&link).unwrap(), b"../else/where");
    client.make_fifo(&root, "fifo").unwrap();
    let device = client.make_device(&root, "device", (0xabc, 0x12345)).unwrap();
    assert_eq!(client.stat(&device).unwrap().device, (0xabc, 0x12345));

    // Over a file that is there: its handle is of nothing then.
    let replaced = client.create(&root, "replaced", 0o600).unwrap();
    client.rename((&dir, "other"), (&root, "replaced")).unwrap();
    assert_eq!(client.lookup(&root, "replaced").unwrap(), file);
    assert_eq!(client.stat(&replaced), Err(STALE));
    assert!(client.rename((&root, "dir"), (&dir, "below")).is_err(), "into itself");
    client.remove_directory(&root, "dir").unwrap();

    client.remove(&root, "file").unwrap();
    assert_eq!(client.remove(&root, "file"), Err(NOENT));
    assert_eq!(client.stat(&file).unwrap().links, 1);
    client.remove(&root, "replaced").unwrap();
    assert_eq!(client.stat(&file), Err(STALE));
    assert_eq!(client.read(&file, 0, 10), Err(STALE));
    assert_eq!(client.write(&file, 0, b"x", 0), Err(STALE));
}

#[test]
fn an_exclusive_create_that_comes_again_is_the_same() {
    let served = Served::start();
    let (mut client, root) = served.root("fs", ALL);
    let file = client.create_new(&root, "file", 2, 0x0102_0304_0506_0708).unwrap();
    assert_eq!(client.create_new(&root, "file", 2, 0x0102_0304_0506_0708).unwrap(), file);
    assert_eq!(client.create_new(&root, "file", 2, 0x0102_0304_0506_0709), Err(EXIST));
}

#[test]
fn a_request_that_comes_twice_is_done_once() {
    let served = Served::start();
    let (mut client, root) = served.root("fs", ALL);
    client.create(&root, "file", 0o600).unwrap();
    let mut record = client.head(0x7777, NFS, 3, 12);
    record.0.extend_from_slice(&Xdr::default().opaque(&root).opaque(b"file").0);
    client.send(&record.0);
    let mut first = client.receive().unwrap();
    // On another connection, as after the loss of the first.
    let mut again = served.connect(User::root());
    again.send(&record.0);
    let mut second = again.receive().unwrap();
    let words: Vec<u32> = (0..7).map(|_| first.number()).collect();
    assert_eq!(words[6], 0);
    assert_eq!((0..7).map(|_| second.number()).collect::<Vec<_>>(), words);
    assert_eq!(client.remove(&root, "file"), Err(NOENT), "another request");
}

#[test]
fn handles_and_stable_data_outlive_the_daemon() {
    let served = Served::start();
    let (mut client, root) = served.root("fs", ALL);
    let dir = client.make_directory(&root, "dir", 0o700).unwrap();
    let file = client.create(&dir, "file", 0o600).unwrap();
    let (_, verifier) = client.write(&file, 0, b"stable", 2).unwrap();
    let gone = client.create(&dir, "gone", 0o600).unwrap();
    client.remove(&dir, "gone").unwrap();
    drop(client);

    let served = served.crash();
    let mut client = served.connect(User::root());
    assert_eq!(client.stat(&root).unwrap().kind, 2);
    assert_eq!(client.lookup(&root, "dir").unwrap(), dir);
    assert_eq!(client.content(&file).unwrap(), b"stable");
    let (_, now) = client.write(&file, 6, b" and not", 0).unwrap();
    assert_ne!(now, verifier, "what was not stable may be lost");
    assert_eq!(client.commit(&file).unwrap(), now);
    // A number may be another file's now.
    for number in 0..50 {
        client.create(&dir, &format!("new{number}"), 0o600).unwrap();
    }
    assert_eq!(client.stat(&gone), Err(STALE));
    drop(client);

    let served = served.restart();
    let mut client = served.connect(User::root());
    assert_eq!(client.content(&file).unwrap(), b"stable and not");
    assert_eq!(client.list(&dir, 8192).unwrap().len(), 53);
}

#[test]
fn ten_thousand_entries_are_listed_in_parts() {
    let served = Served::start();
    let (mut client, root) = served.root("fs", "rw,no_root_squash,insecure,async");
    let names: BTreeSet<String> = (0..10_000).map(|number| format!("a-file-with-number-{number}")).collect();
    for name in &names {
        client.create(&root, name, 0o600).unwrap();
    }
    for bytes in [4096, 100_000] {
        let listed = client.list(&root, bytes).unwrap();
        assert_eq!(listed.len(), 10_002);
        let own: BTreeSet<String> = listed.into_iter().filter(|name| !name.starts_with('.')).collect();
        assert!(own == names);
    }
    let all = client.list_all(&root, 32 << 10).unwrap();
    assert_eq!(all.len(), 10_002);
    assert!(all.iter().all(|(_, attributes, handle)| attributes.is_some() && handle.is_some()));
    let (name, _, handle) = &all[5000];
    assert_eq!(client.lookup(&root, std::str::from_utf8(name).unwrap()).as_ref().ok(), handle.as_ref());
    // While a directory is listed it changes.
    let arguments = Xdr::default().opaque(&root).long(0).long(0).number(4096);
    client.call(16, &arguments).unwrap();
    for name in names.iter().step_by(2) {
        client.remove(&root, name).unwrap();
    }
    assert_eq!(client.list(&root, 4096).unwrap().len(), 5002);
}

#[test]
fn permissions_are_those_of_the_user_who_asks() {
    let served = Served::start();
    let (mut root_client, root) = served.root("fs", ALL);
    root_client.set(&root, Some(0o1777), None).unwrap();
    let mut one = served.connect(User { uid: 1001, gid: 1001, groups: vec![50] });
    let mut two = served.connect(User::of(1002));

    let file = one.create(&root, "file", 0o640).unwrap();
    assert_eq!((one.stat(&file).unwrap().uid, one.stat(&file).unwrap().gid), (1001, 1001));
    one.write(&file, 0, b"of one", 0).unwrap();
    assert_eq!(two.read(&file, 0, 10), Err(ACCES));
    assert_eq!(two.write(&file, 0, b"of two", 0), Err(ACCES));
    assert_eq!(two.set(&file, Some(0o666), None), Err(1), "not the owner");
    assert_eq!(two.set(&file, None, Some(0)), Err(ACCES));
    assert_eq!(two.remove(&root, "file"), Err(ACCES), "sticky");
    assert_eq!(two.rename((&root, "file"), (&root, "mine")), Err(ACCES));
    // Read, look up, modify, extend, delete, execute.
    assert_eq!(one.access(&file, 63).unwrap(), 1 | 4 | 8);
    assert_eq!(two.access(&file, 63).unwrap(), 0);
    assert_eq!(root_client.access(&root, 63).unwrap(), 1 | 2 | 4 | 8 | 16);

    // The owner has it open, and took the rights away.
    one.set(&file, Some(0o000), None).unwrap();
    assert_eq!(one.read(&file, 0, 10).unwrap().0, b"of one");
    one.set(&file, Some(0o604), None).unwrap();
    assert_eq!(two.read(&file, 0, 10).unwrap().0, b"of one");

    let dir = one.make_directory(&root, "dir", 0o700).unwrap();
    one.create(&dir, "inside", 0o666).unwrap();
    assert_eq!(two.lookup(&dir, "inside"), Err(ACCES));
    assert_eq!(two.list(&dir, 4096), Err(ACCES));
    assert_eq!(two.create(&dir, "new", 0o600), Err(ACCES));
    one.set(&dir, Some(0o744), None).unwrap();
    assert_eq!(two.list(&dir, 4096).unwrap().len(), 3);
    let told = two.list_all(&dir, 4096).unwrap();
    assert!(told.iter().all(|(_, attributes, handle)| attributes.is_none() && handle.is_none()));

    // A group that is not the first one, and set-group-id.
    let shared = root_client.make_directory(&root, "shared", 0o700).unwrap();
    let arguments = Xdr::default().opaque(&shared).number(1).number(0o2770).number(0).number(1).number(50);
    root_client.call(2, &arguments.number(0).number(0).number(0).number(0)).unwrap();
    assert_eq!(two.create(&shared, "new", 0o600), Err(ACCES));
    let new = one.create(&shared, "new", 0o660).unwrap();
    assert_eq!(one.stat(&new).unwrap().gid, 50);
    assert_eq!(one.make_device(&root, "device", (1, 3)), Err(1), "root alone makes devices");
    one.make_fifo(&root, "fifo").unwrap();

    // A program of root's that another user writes is not root's any more.
    let program = root_client.create(&root, "program", 0o6777).unwrap();
    assert_eq!(one.stat(&program).unwrap().mode, 0o6777);
    one.write(&program, 0, b"#!", 0).unwrap();
    assert_eq!(one.stat(&program).unwrap().mode, 0o777);

    // A client that does not say who asks is the anonymous user.
    let mut unnamed = served.connect(User::root());
    unnamed.user = None;
    let by_none = unnamed.create(&root, "unnamed", 0o600).unwrap();
    assert_eq!(unnamed.stat(&by_none).unwrap().uid, 65_534);
}

#[test]
fn posix_acls_count() {
    if testkit::skipped("fuse", "a mount sets the ACL") {
        return;
    }
    let served = Served::start();
    let at = served.session.directory().join("mnt");
    let at = at.to_str().unwrap();
    let mountpoint = format!("mountpoint={at}");
    let options = ["-o", &mountpoint, "-o", "acltype=posix", "-o", "sharenfs=rw,no_root_squash,insecure"];
    served.session.print(&[&["zfs", "create"], &options[..], &["tank/fs"]].concat());
    let mut client = served.connect(User::root());
    let root = client.mount(at).unwrap();
    let file = client.create(&root, "file", 0o600).unwrap();
    client.write(&file, 0, b"secret", 2).unwrap();
    client.set(&root, Some(0o755), None).unwrap();
    let mut named = served.connect(User::of(1001));
    assert_eq!(named.read(&file, 0, 10), Err(ACCES));
    let set = std::process::Command::new("setfacl").args(["-m", "u:1001:r", &format!("{at}/file")]).status();
    assert!(set.unwrap().success());
    assert_eq!(named.read(&file, 0, 10).unwrap().0, b"secret");
    assert_eq!(named.write(&file, 0, b"x", 0), Err(ACCES));
    assert_eq!(served.connect(User::of(1002)).read(&file, 0, 10), Err(ACCES));
    served.session.print(&["zfs", "unmount", "tank/fs"]);
}

#[test]
fn a_mount_of_this_machine_and_a_client_see_what_the_other_does() {
    if testkit::skipped("fuse", "mounts") {
        return;
    }
    let served = Served::start();
    let at = served.session.directory().join("mnt");
    let mountpoint = format!("mountpoint={}", at.display());
    let options = ["-o", &mountpoint, "-o", "sharenfs=rw,no_root_squash,insecure"];
    served.session.print(&[&["zfs", "create"], &options[..], &["tank/fs"]].concat());
    let mut client = served.connect(User::root());
    let root = client.mount(at.to_str().unwrap()).unwrap();

    // The kernel knows that there is no such name, and how the directory is listed.
    assert!(!at.join("a").exists());
    assert_eq!(std::fs::read_dir(&at).unwrap().count(), 0);
    let file = client.create(&root, "a", 0o644).unwrap();
    client.write(&file, 0, b"first", 0).unwrap();
    assert_eq!(std::fs::read(at.join("a")).unwrap(), b"first");
    assert_eq!(std::fs::read_dir(&at).unwrap().count(), 1);
    client.write(&file, 0, b"other!", 0).unwrap();
    assert_eq!(std::fs::read(at.join("a")).unwrap(), b"other!");
    client.set(&file, None, Some(3)).unwrap();
    assert_eq!(std::fs::read(at.join("a")).unwrap(), b"oth");
    client.rename((&root, "a"), (&root, "b")).unwrap();
    assert!(!at.join("a").exists() && at.join("b").exists());

    std::fs::write(at.join("b"), b"by a program").unwrap();
    assert_eq!(client.content(&file).unwrap(), b"by a program");
    std::fs::write(at.join("c"), b"new").unwrap();
    let new = client.lookup(&root, "c").unwrap();
    assert_eq!(client.content(&new).unwrap(), b"new");

    // A file that a program has open outlives its last name.
    let open = std::fs::File::open(at.join("b")).unwrap();
    client.remove(&root, "b").unwrap();
    assert!(!at.join("b").exists());
    assert_eq!(std::io::read_to_string(open).unwrap(), "by a program");
    std::fs::remove_file(at.join("c")).unwrap();
    assert_eq!(client.lookup(&root, "c"), Err(NOENT));
    served.session.print(&["zfs", "unmount", "tank/fs"]);
}

#[test]
fn a_pool_of_openzfs_is_read_as_it_was_written() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let folder = tempfile::tempdir().unwrap();
    golden.private_copy(folder.path()).unwrap();
    let session = crate::session::Session::start_serving(&["--nfs", "127.0.0.1:0"]);
    let place = folder.path().to_str().unwrap();
    session.print(&["zpool", "import", "-f", "-N", "-R", "/golden", "-d", place, "single"]);
    let mut client = Client::connect(address(&session), User::root());
    let mut judged = 0;
    for dataset in golden.filesystems().unwrap() {
        let Ok(mut manifest) = golden.manifest(&dataset) else { continue };
        // The protocol has no extended attributes, and no times before 1970.
        manifest.rows.values_mut().for_each(|row| row.xattrs.clear());
        if dataset.contains('@') || manifest.rows.values().any(|row| row.mtime_ns < 0) {
            continue;
        }
        let share = ["zfs", "set", "-u", "sharenfs=ro,no_root_squash,insecure", &dataset];
        if session.run(&share).code != 0 {
            continue;
        }
        let path = session.print(&["zfs", "get", "-Ho", "value", "mountpoint", &dataset]);
        let path = path.trim();
        let Ok(root) = client.mount(path) else { continue };
        let tree = Share { client: Client::connect(address(&session), User::root()).into(), root };
        manifest.assert_same(&dataset, &tree);
        judged += 1;
    }
    assert!(judged > 0, "no filesystem of the golden pool was judged");
}
