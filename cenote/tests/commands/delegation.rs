//! `zfs allow` and `zfs unallow`, `cenote audit`, and groups that have roles, through the binary.

use std::fs::File;
use std::path::Path;

use crate::session::Session;

fn create(session: &Session, place: &Path) {
    let disk = place.join("d0");
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    session.print(&["zpool", "create", "-O", "mountpoint=none", "tank", disk.to_str().unwrap()]);
}

/// What is shown of a dataset and those above it.
fn shown(session: &Session, dataset: &str) -> String {
    session.print(&["zfs", "allow", dataset])
}

#[test]
fn grants_are_kept_in_the_pool_and_nothing_of_them_is_left_behind() {
    let session = Session::start();
    let place = tempfile::tempdir().unwrap();
    create(&session, place.path());
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        session.print(&["zfs", "create", name]);
    }
    let zfs = |line: &str| session.print(&[&["zfs"], &line.split(' ').collect::<Vec<_>>()[..]].concat());
    zfs("allow -s @basic snapshot,compress tank/a");
    zfs("allow root @basic,send tank/a");
    zfs("allow -l -g root mount tank/a");
    zfs("allow -d everyone hold tank/a");
    zfs("allow -e release tank/a");
    zfs("allow -c destroy,@basic tank/a");
    zfs("allow -u 70000 userprop tank/a/b");
    let of_a = "\
---- Permissions on tank/a -------------------------------------------
Permission sets:
\t@basic compression,snapshot
Create time permissions:
\t@basic,destroy
Local permissions:
\tgroup root mount
Descendent permissions:
\teveryone hold
Local+Descendent permissions:
\tuser root @basic,send
\teveryone release
";
    assert_eq!(shown(&session, "tank/a"), of_a);
    let of_b = "\
---- Permissions on tank/a/b -----------------------------------------
Local+Descendent permissions:
\tuser (unknown: 70000) userprop
";
    assert_eq!(shown(&session, "tank/a/b"), format!("{of_b}{of_a}"));
    assert_eq!(shown(&session, "tank/c"), "");
    // A dataset that is made gets what its creator is to have; one that is renamed keeps what it has.
    zfs("create tank/a/new");
    assert!(shown(&session, "tank/a/new").contains("Local permissions:\n\tuser root @basic,destroy\n"));
    zfs("rename tank/a/b tank/c/b");
    assert_eq!(shown(&session, "tank/c/b"), of_b.replace("tank/a/b -", "tank/c/b -"));
    zfs("snapshot tank/a/new@s");
    zfs("clone tank/a/new@s tank/c/clone");
    zfs("promote tank/c/clone");
    assert!(shown(&session, "tank/a/new").contains("user root @basic,destroy"));
    zfs("unallow root send tank/a");
    zfs("unallow -e tank/a");
    zfs("unallow -s @basic compression tank/a");
    zfs("unallow -l -g root tank/a");
    let left = shown(&session, "tank/a");
    assert!(left.contains("\t@basic snapshot\n") && left.contains("\tuser root @basic\n"), "{left}");
    assert!(!left.contains("everyone") && !left.contains("group"), "{left}");
    // After an export and an import it is the same, and OpenZFS's zdb finds no object without a use: it knows
    // the list of each dataset, but not what that leads to.
    let check = |lists: usize| {
        session.print(&["zpool", "export", "tank"]);
        if let Some(told) = testkit::oracle::zdb_of(place.path(), "-d", "tank", &[]) {
            let leaked: Vec<&str> = told.lines().filter(|line| line.contains("leaked")).collect();
            assert!(leaked.iter().all(|line| line.contains("(DSL permissions)")), "{told}");
            assert_eq!(leaked.len(), lists, "{told}");
        }
        if let Some(verdict) = testkit::oracle::zdb_of(place.path(), "-bcc", "tank", &[]) {
            assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
        }
        session.print(&["zpool", "import", "-N", "-d", place.path().to_str().unwrap(), "tank"]);
    };
    check(9);
    assert_eq!(shown(&session, "tank/a"), left);
    zfs("unallow -r everyone tank");
    zfs("unallow -r root tank");
    zfs("unallow -r -c tank");
    zfs("unallow -r -s @basic tank");
    assert_eq!(shown(&session, "tank/a"), "");
    zfs("allow root mount tank/c/clone");
    zfs("destroy -R tank/c");
    check(0);
    let history = session.print(&["zpool", "history", "-i", "tank"]);
    for event in ["permission update tank/a", "permission who remove tank/a", "permission remove tank/a"] {
        assert!(history.contains(event), "{event}: {history}");
    }
    assert!(history.contains("zfs allow -s @basic snapshot,compress tank/a"), "{history}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let session = Session::start();
    let place = tempfile::tempdir().unwrap();
    create(&session, place.path());
    session.print(&["zfs", "create", "tank/a"]);
    for line in [
        "allow -s @a tank/a",
        "allow root atime,created,mounted tank/a",
        "allow tank/a tank",
        "allow -c tank/a",
        "allow -u root tank/a",
        "allow -u root -g root create tank/a",
        "allow -u root -e mountpoint tank/a",
        "allow root add tank/a",
        "allow root used tank/a",
        "allow no-such-user-or-group mount tank/a",
        "allow -s nothing mount tank/a",
        "allow root mount tank/a@s",
        "allow root mount tank/none",
        "allow tank/none",
        "unallow tank/a",
        "unallow -c -l tank/a",
        "unallow everyone everyone tank/a",
    ] {
        let ended = session.run(&[&["zfs"], &line.split(' ').collect::<Vec<_>>()[..]].concat());
        assert_ne!(ended.code, 0, "{line}");
        assert!(!ended.err.is_empty(), "{line}");
    }
    assert_eq!(shown(&session, "tank/a"), "");
}

#[test]
fn the_audit_log_outlives_the_daemon_and_says_who_did_what() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("audit.log");
    let arguments = ["--audit", log.to_str().unwrap()];
    let session = Session::start_serving(&arguments);
    create(&session, place.path());
    session.print(&["zfs", "create", "tank/a"]);
    assert_ne!(session.run(&["zfs", "destroy", "tank/none"]).code, 0);
    session.print(&["zpool", "export", "tank"]);
    session.stop();
    let session = Session::start_serving(&arguments);
    let told = session.print(&["audit", "-n", "4"]);
    let lines: Vec<&str> = told.lines().collect();
    let [made, created, failed, exported] = lines[..] else { panic!("{told}") };
    assert!(made.ends_with("pool-create 'tank': ok"), "{made}");
    assert!(created.ends_with("dataset-create 'tank/a': ok"), "{created}");
    assert!(failed.contains("dataset-destroy 'tank/none': cannot open"), "{failed}");
    assert!(exported.ends_with("pool-export 'tank': ok"), "{exported}");
    let json: serde_json::Value =
        serde_json::from_str(&session.print(&["audit", "--json", "-n", "1"])).unwrap();
    assert_eq!(json["audit"][0]["action"], "pool-export");
    assert_eq!(json["audit"][0]["role"], "admin");
    let none = Session::start_serving(&["--audit", "none"]);
    assert!(none.run(&["audit"]).err.contains("keeps no audit log"));
}

#[test]
fn a_group_that_does_not_exist_ends_the_daemon_at_its_start() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("api.sock");
    for option in ["--operator", "--viewer"] {
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_cenote"))
            .args(["serve", "--socket", socket.to_str().unwrap(), option, "no-such-group"])
            .output()
            .unwrap();
        assert!(!ended.status.success());
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains(&format!("{option} no-such-group: there is no such group")), "{said}");
    }
}

/// A user who is not root.
const ANOTHER: u32 = 12_345;

/// Whether this is root, who can run commands as another user.
fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn another_user_does_what_was_allowed_and_nothing_else() {
    if !is_root() {
        return;
    }
    let session = Session::start();
    session.open_to_others();
    let place = tempfile::tempdir().unwrap();
    create(&session, place.path());
    for name in ["tank/a", "tank/b"] {
        session.print(&["zfs", "create", name]);
    }
    let theirs = |line: &str| {
        let words: Vec<&str> = ["zfs"].into_iter().chain(line.split(' ')).collect();
        session.run_as(ANOTHER, &words, b"").1
    };
    let denied = |line: &str| {
        let ended = theirs(line);
        assert!(ended.code == 1 && ended.err.contains("permission denied"), "{line}: {ended:?}");
    };
    let done = |line: &str| {
        let ended = theirs(line);
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{line}");
    };
    denied("snapshot tank/a@s");
    denied("create tank/a/n");
    denied("allow -u 12345 snapshot tank/a");
    session.print(&["zfs", "allow", "-u", "12345", "snapshot,create,mount,send", "tank/a"]);
    done("snapshot tank/a@s");
    done("create tank/a/n");
    denied("destroy tank/a/n");
    denied("set compression=off tank/a");
    denied("create tank/b/n");
    let (stream, sent) = session.run_as(ANOTHER, &["zfs", "send", "tank/a@s"], b"");
    assert_eq!((sent.code, sent.err.as_str()), (0, ""));
    assert_eq!(stream, session.run_bytes(&["zfs", "send", "tank/a@s"]).0);
    let receive = |options: &[&str], name: &str| {
        let words = [&["zfs", "receive"], options, &[name]].concat();
        session.run_as(ANOTHER, &words, &stream).1
    };
    assert!(receive(&[], "tank/b/got").err.contains("permission denied"));
    session.print(&["zfs", "allow", "-u", "12345", "receive,create,mount", "tank/b"]);
    assert!(receive(&["-o", "canmount=off"], "tank/b/got").err.contains("permission denied"));
    assert_eq!(receive(&[], "tank/b/got").code, 0);
    let listed = session.print(&["zfs", "list", "-Ho", "name", "-t", "all", "-r", "tank/b"]);
    assert_eq!(listed, "tank/b\ntank/b/got\ntank/b/got@s\n");
    // A limit binds the user and not root, and no user who may change it.
    session.print(&["zfs", "set", "filesystem_limit=1", "tank/a"]);
    let refused = theirs("create tank/a/more");
    assert!(refused.code == 1 && refused.err.contains("out of space"), "{refused:?}");
    session.print(&["zfs", "create", "tank/a/more"]);
    session.print(&["zfs", "allow", "-l", "-u", "12345", "filesystem_limit", "tank/a"]);
    done("create tank/a/most");
    session.print(&["zfs", "set", "filesystem_limit=1", "tank/b"]);
    let refused = receive(&[], "tank/b/again");
    assert!(refused.code == 1 && refused.err.contains("out of space"), "{refused:?}");
    // The history has the user.
    let history = session.print(&["zpool", "history", "-l", "tank"]);
    let made = history.lines().find(|line| line.contains("zfs create tank/a/n")).unwrap();
    assert!(made.contains("12345"), "{made}");
}

#[test]
fn a_directory_in_the_list_of_snapshots_is_a_snapshot_for_who_may_take_one() {
    if !is_root() || testkit::skipped("fuse", "mounts") {
        return;
    }
    let session = Session::start();
    session.open_to_others();
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let disk = place.path().join("d0");
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let at = place.path().join("tank");
    let mountpoint = format!("mountpoint={}", at.display());
    session.print(&["zpool", "create", "-O", &mountpoint, "tank", disk.to_str().unwrap()]);
    let folder = at.join(".zfs/snapshot");
    let make =
        |name: &str| std::fs::create_dir(folder.join(name)).map_err(|error| error.raw_os_error().unwrap());
    let theirs = |name: &str| {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new("mkdir");
        let ended = command.arg(folder.join(name)).uid(ANOTHER).gid(ANOTHER).output().unwrap();
        String::from_utf8(ended.stderr).unwrap()
    };
    assert_eq!(make("off"), Err(libc::EROFS));
    session.print(&["tunable", "set", "zfs_admin_snapshot=1"]);
    assert_eq!(make("roots"), Ok(()));
    assert!(folder.join("roots").is_dir());
    assert_eq!(make("roots"), Err(libc::EEXIST));
    assert!(theirs("theirs").contains("Operation not permitted"));
    session.print(&["zfs", "allow", "everyone", "snapshot", "tank"]);
    assert_eq!(theirs("theirs"), "");
    assert_eq!(make("a@b"), Err(libc::EINVAL));
    let listed = session.print(&["zfs", "list", "-Ho", "name", "-t", "snapshot"]);
    assert_eq!(listed, "tank@roots\ntank@theirs\n");
    session.print(&["zpool", "export", "tank"]);
}
