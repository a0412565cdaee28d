//! What is shared, with whom, and what becomes of clients when that changes.

use crate::client::{ACCES, Client, JUKEBOX, NOENT, ROFS, STALE, User};
use crate::{Served, address};

/// For root, from any port.
const ALL: &str = "rw,no_root_squash,insecure";

#[test]
fn the_property_says_who_is_let_in() {
    let served = Served::start();
    let session = &served.session;
    let mut client = served.connect(User::root());
    assert_eq!(client.mount("/nfs-test/none"), Err(NOENT));
    let path = served.share("fs", "ro=@10.0.0.0/8,insecure");
    assert_eq!(client.exports(), [(path.clone(), vec!["10.0.0.0/8".to_owned()])]);
    assert_eq!(client.mount(&path), Err(ACCES));

    let set = |options: &str| session.print(&["zfs", "set", &format!("sharenfs={options}"), "tank/fs"]);
    set("ro=@127.0.0.0/8,insecure");
    let root = client.mount(&path).unwrap();
    assert_eq!(client.create(&root, "a", 0o600), Err(ROFS));
    assert_eq!(client.access(&root, 63).unwrap() & (4 | 8 | 16), 0);
    assert_eq!(client.mount(&format!("{path}/../etc")), Err(NOENT));

    // Each request is checked, and not only the mount.
    set("rw=@10.0.0.0/8,insecure");
    assert_eq!(client.stat(&root), Err(ACCES));
    set("rw,insecure");
    assert_eq!(client.create(&root, "a", 0o600), Err(ACCES), "root is squashed, and the directory is root's");
    set(ALL);
    let dir = client.make_directory(&root, "dir", 0o755).unwrap();
    assert_eq!(client.mount(&format!("{path}/dir")).unwrap(), dir, "a directory in a share");
    let file = client.create(&root, "a", 0o600).unwrap();
    assert_eq!(client.mount(&format!("{path}/a")), Err(20));
    set("rw,all_squash,anonuid=77,anongid=78,insecure");
    assert_eq!(client.read(&file, 0, 1), Err(ACCES));
    session.print(&["zfs", "set", "readonly=on", "tank/fs"]);
    set(ALL);
    assert_eq!(client.write(&file, 0, b"x", 0), Err(ROFS));
    session.print(&["zfs", "set", "readonly=off", "tank/fs"]);
    client.write(&file, 0, b"x", 0).unwrap();
    set("off");
    assert_eq!(client.stat(&root), Err(STALE));
    assert_eq!(client.exports(), []);
}

#[test]
fn only_ports_of_root_are_let_in_unless_said_otherwise() {
    let served = Served::start();
    let path = served.share("fs", "rw");
    assert_eq!(served.connect(User::root()).mount(&path), Err(ACCES));
    let mut client = Client::connect_reserved(served.address, [127, 0, 0, 1], User::root());
    let root = client.mount(&path).unwrap();
    assert_eq!(client.stat(&root).unwrap().uid, 0);
    served.session.print(&["zfs", "set", "sharenfs=rw=127.0.0.3,no_root_squash,ro=127.0.0.2", "tank/fs"]);
    assert_eq!(client.stat(&root), Err(ACCES));
    let from = |last| Client::connect_reserved(served.address, [127, 0, 0, last], User::root());
    assert_eq!(from(2).create(&root, "a", 0o600), Err(ROFS));
    from(3).create(&root, "a", 0o600).unwrap();
}

#[test]
fn filesystems_inherit_and_each_is_a_share_of_its_own() {
    let served = Served::start();
    let (mut client, root) = served.root("a", ALL);
    served.session.print(&["zfs", "create", "-u", "tank/a/b"]);
    let inner = client.mount("/nfs-test/a/b").unwrap();
    assert_ne!(client.stat(&root).unwrap().filesystem, client.stat(&inner).unwrap().filesystem);
    let file = client.create(&inner, "file", 0o600).unwrap();
    assert_eq!(client.rename((&inner, "file"), (&root, "file")), Err(18));
    assert_eq!(client.link(&file, &root, "file"), Err(18));
    served.session.print(&["zfs", "set", "-u", "canmount=off", "tank/a/b"]);
    assert_eq!(client.stat(&inner), Err(STALE));
    served.session.print(&["zfs", "set", "-u", "canmount=on", "tank/a/b"]);
    assert_eq!(client.stat(&file).unwrap().kind, 1);
}

#[test]
fn share_and_unshare_are_openzfs_s() {
    let served = Served::start();
    let session = &served.session;
    let (mut client, root) = served.root("fs", ALL);
    let refused = |words: &[&str], message: &str| {
        let ended = session.run(words);
        assert_eq!((ended.code, ended.err.as_str()), (1, message), "{words:?}");
    };
    refused(&["zfs", "share", "tank/fs"], "cannot share 'tank/fs': filesystem already shared\n");
    session.print(&["zfs", "unshare", "tank/fs"]);
    assert_eq!(client.stat(&root), Err(STALE));
    refused(&["zfs", "unshare", "tank/fs"], "cannot unshare 'tank/fs': not currently shared\n");
    session.print(&["zfs", "share", "tank/fs"]);
    client.stat(&root).unwrap();
    session.print(&["zfs", "unshare", "/nfs-test/fs"]);
    assert_eq!(client.stat(&root), Err(STALE));
    session.print(&["zfs", "share", "-a"]);
    client.stat(&root).unwrap();
    session.print(&["zfs", "unshare", "-a"]);
    assert_eq!(client.stat(&root), Err(STALE));
    session.print(&["zfs", "share", "nfs", "tank/fs"]);
    client.stat(&root).unwrap();
    refused(
        &["zfs", "share", "tank"],
        "cannot share 'tank': legacy share\nuse exports(5) or smb.conf(5) to share this filesystem, or set the \
         sharenfs or sharesmb property\n",
    );
    session.print(&["zfs", "set", "sharenfs=rw", "tank"]);
    refused(&["zfs", "share", "tank"], "cannot share 'tank': no mountpoint set\n");
    let ended = session.run(&["zfs", "set", "sharenfs=rw=*.example.org", "tank/fs"]);
    assert!(
        ended.code == 0 && ended.err.contains("'*.example.org' is no address, network or name"),
        "{ended:?}"
    );
    assert_eq!(client.stat(&root), Err(ACCES));
    assert!(session.print(&["nfs"]).contains("sharenfs: '*.example.org' is no address"));
    let ended = session.run(&["zfs", "share"]);
    assert_eq!(ended.code, 2);
}

#[test]
fn what_is_done_to_a_filesystem_is_done_to_its_clients() {
    let served = Served::start();
    let session = &served.session;
    let (mut client, root) = served.root("fs", ALL);
    let file = client.create(&root, "file", 0o600).unwrap();
    client.write(&file, 0, b"before", 0).unwrap();
    session.print(&["zfs", "snapshot", "tank/fs@one"]);
    client.write(&file, 0, b"after!", 0).unwrap();
    let later = client.create(&root, "later", 0o600).unwrap();

    // Snapshots are there for clients too.
    let control = client.lookup(&root, ".zfs").unwrap();
    assert!(!client.list(&root, 4096).unwrap().contains(&".zfs".to_owned()), "hidden");
    let snapshots = client.lookup(&control, "snapshot").unwrap();
    assert_eq!(client.list(&snapshots, 4096).unwrap(), [".", "..", "one"]);
    let old_root = client.lookup(&snapshots, "one").unwrap();
    assert_eq!(client.lookup(&old_root, "..").unwrap(), snapshots);
    let old = client.lookup(&old_root, "file").unwrap();
    assert_eq!(client.content(&old).unwrap(), b"before");
    assert_eq!(client.write(&old, 0, b"x", 0), Err(ROFS));
    assert_ne!(client.stat(&old).unwrap().number, client.stat(&file).unwrap().number);
    session.print(&["zfs", "set", "snapdir=visible", "tank/fs"]);
    assert!(client.list(&root, 4096).unwrap().contains(&".zfs".to_owned()));
    assert_eq!(client.make_directory(&root, ".zfs", 0o700), Err(1));

    session.print(&["zfs", "rollback", "tank/fs@one"]);
    assert_eq!(client.content(&file).unwrap(), b"before");
    assert_eq!(client.stat(&later), Err(STALE));
    client.write(&file, 0, b"again!", 2).unwrap();

    session.print(&["zfs", "rename", "-u", "tank/fs", "tank/new"]);
    assert_eq!(client.content(&file).unwrap(), b"again!", "handles do not depend on names");
    assert_eq!(client.content(&old).unwrap(), b"before");
    session.print(&["zfs", "destroy", "tank/new@one"]);
    assert_eq!(client.stat(&old), Err(STALE));
    session.print(&["zfs", "destroy", "tank/new"]);
    assert_eq!(client.stat(&root), Err(STALE));
    assert_eq!(client.lookup(&root, "file"), Err(STALE));
}

#[test]
fn keys_and_exports_take_shares_away_and_bring_them_back() {
    let served = Served::start();
    let session = &served.session;
    let key = session.directory().join("key");
    std::fs::write(&key, "a passphrase\n").unwrap();
    let location = format!("keylocation=file://{}", key.display());
    let options = ["-o", "mountpoint=/nfs-test/secret", "-o", "sharenfs=rw,no_root_squash,insecure"];
    let encryption = ["-o", "encryption=on", "-o", "keyformat=passphrase", "-o", &location];
    session.print(&[&["zfs", "create", "-u"], &options[..], &encryption[..], &["tank/secret"]].concat());
    let mut client = served.connect(User::root());
    let root = client.mount("/nfs-test/secret").unwrap();
    let file = client.create(&root, "file", 0o600).unwrap();
    client.write(&file, 0, b"secret", 2).unwrap();
    session.print(&["zfs", "unload-key", "tank/secret"]);
    assert_eq!(client.stat(&file), Err(STALE));
    assert_eq!(client.mount("/nfs-test/secret"), Err(NOENT));
    session.print(&["zfs", "load-key", "tank/secret"]);
    assert_eq!(client.content(&file).unwrap(), b"secret");

    session.print(&["zpool", "export", "tank"]);
    assert_eq!(client.stat(&file), Err(STALE));
    session.print(&["zpool", "import", "-N", "-d", served.disk.to_str().unwrap(), "tank"]);
    session.print(&["zfs", "load-key", "tank/secret"]);
    assert_eq!(client.content(&file).unwrap(), b"secret");
}

#[test]
fn a_full_filesystem_and_a_quota_are_told_apart() {
    let served = Served::start();
    let (mut client, root) = served.root("fs", ALL);
    served.session.print(&["zfs", "set", "quota=16M", "compression=off", "tank/fs"]);
    let file = client.create(&root, "file", 0o600).unwrap();
    let data = vec![7; 1 << 20];
    let full = (0..64).find_map(|at| client.write(&file, at << 20, &data, 0).err());
    assert_eq!(full, Some(69));
    client.remove(&root, "file").unwrap();
    served.session.print(&["zpool", "sync", "tank"]);
    served.session.print(&["zfs", "set", "quota=none", "tank/fs"]);
    let file = client.create(&root, "file", 0o600).unwrap();
    let full = (0..1024).find_map(|at| client.write(&file, at << 20, &data, 0).err());
    assert_eq!(full, Some(28));
}

#[test]
fn the_listing_shows_shares_and_clients() {
    let served = Served::start();
    let (mut client, root) = served.root("fs", ALL);
    let file = client.create(&root, "file", 0o600).unwrap();
    client.write(&file, 0, &[1; 1000], 0).unwrap();
    client.read(&file, 0, 500).unwrap();
    let text = served.session.print(&["nfs"]);
    assert!(text.starts_with(&format!("NFS: {}\n", address(&served.session))), "{text}");
    assert!(text.contains("tank/fs     /nfs-test/fs  rw,no_root_squash,insecure\n"), "{text}");
    let listing: serde_json::Value = serde_json::from_str(&served.session.print(&["nfs", "-j"])).unwrap();
    let client = &listing["clients"][0];
    assert_eq!(client["address"], "127.0.0.1");
    assert_eq!((client["read_bytes"].as_u64(), client["written_bytes"].as_u64()), (Some(500), Some(1000)));
    assert_eq!(client["mounts"][0], "/nfs-test/fs");
    assert_eq!(client["connections"], 1);
    let other = crate::session::Session::start();
    assert!(other.print(&["nfs"]).starts_with("NFS: not served; start the daemon with --nfs"));
    let _ = JUKEBOX;
}
