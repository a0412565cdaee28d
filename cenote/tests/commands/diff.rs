//! `zfs diff`: what happened to files, and what is said of names that do not go together.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use crate::session::Session;

/// A pool that is mounted below the session's directory. Where `/tank` is then.
fn create(session: &Session) -> String {
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    let root = session.directory().join("root");
    session.print(&["zpool", "create", "-R", root.to_str().unwrap(), "tank", disk.to_str().unwrap()]);
    root.join("tank").to_str().unwrap().to_owned()
}

/// The lines without an order: objects have the numbers that were free.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn changes_of_a_mounted_filesystem_are_told_also_before_they_are_committed() {
    if testkit::skipped("fuse", "changes of files") {
        return;
    }
    let session = Session::start();
    let at = create(&session);
    session.print(&["zfs", "create", "tank/fs"]);
    let path = |name: &str| Path::new(&at).join("fs").join(name);
    for name in ["removed", "renamed", "modified", "linked", "mode"] {
        fs::write(path(name), name).unwrap();
    }
    for name in ["dir", "dir/inner", "gone"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::write(path("dir/inner/stays"), "").unwrap();
    session.print(&["zfs", "snapshot", "tank/fs@one"]);
    assert_eq!(session.print(&["zfs", "diff", "tank/fs@one"]), "", "nothing happened yet");
    fs::remove_file(path("removed")).unwrap();
    fs::remove_dir(path("gone")).unwrap();
    fs::rename(path("renamed"), path("new name")).unwrap();
    fs::rename(path("dir/inner"), path("dir/outer")).unwrap();
    fs::hard_link(path("linked"), path("dir/link")).unwrap();
    fs::set_permissions(path("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    File::options().write(true).open(path("modified")).unwrap().write_all_at(b"M", 0).unwrap();
    symlink("target", path("sym")).unwrap();
    fs::write(path("ż\\"), "").unwrap();

    let fs = format!("{at}/fs");
    let expected = format!(
        "M\t/\t{fs}/\n-\tF\t{fs}/removed\n-\t/\t{fs}/gone\nR\tF\t{fs}/renamed -> {fs}/new\\0040name\n\
         M\t/\t{fs}/dir\nR\t/\t{fs}/dir/inner -> {fs}/dir/outer\nM\tF\t{fs}/linked\t(+1)\n\
         M\tF\t{fs}/mode\nM\tF\t{fs}/modified\n+\t@\t{fs}/sym\n+\tF\t{fs}/\\0305\\0274\\0134\n"
    );
    assert_eq!(sorted(&session.print(&["zfs", "diff", "-F", "tank/fs@one"])), sorted(&expected));
    session.print(&["zfs", "snapshot", "tank/fs@two"]);
    fs::write(path("later"), "").unwrap();
    for to in ["tank/fs@two", "@two"] {
        let told = session.print(&["zfs", "diff", "-F", "tank/fs@one", to]);
        assert_eq!(sorted(&told), sorted(&expected), "{to}");
    }
    let told = session.print(&["zfs", "diff", "-hH", "@one", "tank/fs@two"]);
    let plain = format!("M\t{fs}/\n");
    assert!(told.contains(&plain) && told.contains(&format!("+\t{fs}/ż\\\n")), "{told}");
    assert!(told.contains(&format!("R\t{fs}/renamed\t{fs}/new name\n")), "{told}");
    let told = session.print(&["zfs", "diff", "@two", "tank/fs"]);
    assert_eq!(sorted(&told), [format!("+\t{fs}/later"), format!("M\t{fs}/")]);

    // As a program reads it, with times.
    let text = session.print(&["zfs", "diff", "-FHt", "tank/fs@one", "@two"]);
    let json: serde_json::Value =
        serde_json::from_str(&session.print(&["zfs", "diff", "-j", "--json-int", "tank/fs@one", "@two"]))
            .unwrap();
    assert_eq!((&json["from"], &json["to"]), (&"tank/fs@one".into(), &"tank/fs@two".into()));
    let lines = json["changes"].as_array().unwrap().iter().map(|change| {
        let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
        let sign = match &*text("change") {
            "added" => '+',
            "removed" => '-',
            "renamed" => 'R',
            _ => 'M',
        };
        let (seconds, nanoseconds) = (&change["ctime"], change["ctime_nanoseconds"].as_u64().unwrap());
        let time = format!("{:>10}.{nanoseconds:09}", seconds.to_string());
        let new = change.get("new_path").map_or(String::new(), |new| format!("\t{}", new.as_str().unwrap()));
        let links = change.get("links").map_or(String::new(), |links| format!("\t(+{links})"));
        format!("{time}\t{sign}\t{}\t{}{new}{links}\n", text("type"), text("path"))
    });
    assert_eq!(lines.collect::<String>(), text);

    // A clone, and after a promotion the filesystem that it came from.
    session.print(&["zfs", "clone", "tank/fs@two", "tank/clone"]);
    File::create(Path::new(&at).join("clone/of the clone")).unwrap();
    let told = session.print(&["zfs", "diff", "tank/fs@two", "tank/clone"]);
    assert_eq!(sorted(&told), [format!("+\t{at}/clone/of\\0040the\\0040clone"), format!("M\t{at}/clone/")]);
    session.print(&["zfs", "promote", "tank/clone"]);
    let told = session.print(&["zfs", "diff", "tank/clone@two", "tank/fs"]);
    assert_eq!(sorted(&told), [format!("+\t{fs}/later"), format!("M\t{fs}/")]);
    // Where it would be mounted.
    session.print(&["zfs", "unmount", "tank/fs"]);
    assert_eq!(session.print(&["zfs", "diff", "tank/clone@two", "tank/fs"]), told);
}

#[test]
fn names_that_do_not_go_together_are_refused_in_openzfs_words() {
    let session = Session::start();
    let said = |names: &[&str]| {
        let ended = session.run(&[&["zfs", "diff"], names].concat());
        assert_eq!(ended.out, "", "{names:?}");
        (ended.code, ended.err)
    };
    let failed = |why: &str| (1, format!("{why}\n"));
    assert_eq!(said(&["tank@a"]), failed("cannot open 'tank': dataset does not exist"));
    let disk = session.directory().join("disk");
    File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let disk = disk.to_str().unwrap();
    session.print(&["zpool", "create", "-O", "mountpoint=none", "tank", disk]);
    session.print(&["zfs", "create", "tank/fs"]);
    session.print(&["zfs", "create", "tank/other"]);
    session.print(&["zfs", "create", "-sV", "1M", "tank/vol"]);
    for snapshot in ["tank/fs@a", "tank/fs@b", "tank/other@a", "tank/vol@a"] {
        session.print(&["zfs", "snapshot", snapshot]);
    }
    for (names, first) in [
        (&[][..], "must provide at least one snapshot name"),
        (&["tank/fs@a", "@b", "@c"], "too many arguments"),
        (&["@a"], "must provide a filesystem with '@'"),
    ] {
        let (code, text) = said(names);
        assert_eq!((code, text.lines().next()), (2, Some(first)));
    }
    assert_eq!(session.run(&["zfs", "diff", "-x", "tank/fs@a"]).code, 2);
    let undetermined = "Unable to determine which snapshots to compare: invalid name";
    let not_earlier = "Unable to obtain diffs: \n   Not an earlier snapshot from the same fs";
    let of_another = "Not an earlier snapshot from the same fs: invalid name";
    let volume = "cannot open 'tank/vol': operation not applicable to datasets of this type";
    for (names, why) in [
        (&["tank/fs"][..], "Badly formed snapshot name tank/fs: missing '@' delimiter in snapshot name"),
        (&["tank/none@a"], "cannot open 'tank/none': dataset does not exist"),
        (&["tank/fs@none"], "cannot open 'tank/fs@none': dataset does not exist"),
        (&["tank/fs@a", "@none"], "cannot open 'tank/fs@none': dataset does not exist"),
        (&["tank/fs@a", "tank/none"], "cannot open 'tank/none': dataset does not exist"),
        (&["tank/fs", "tank/fs@a"], undetermined),
        (&["@a", "@b"], undetermined),
        (&["tank/fs@a", "tank/fs@"], undetermined),
        (&["tank/fs@b", "tank/fs@a"], not_earlier),
        (&["tank/fs@a", "tank/fs@a"], not_earlier),
        (&["tank/fs@a", "tank/other"], of_another),
        (&["tank/fs@a", "tank/other@a"], of_another),
        (&["tank/fs@a", "pool/other@a"], of_another),
        (&["tank/vol@a"], volume),
        (&["tank/fs@a", "tank/vol"], volume),
    ] {
        assert_eq!(said(names), failed(why), "{names:?}");
    }
    for options in ["-h", "-t", "-H", "-FHth"] {
        assert_eq!(session.print(&["zfs", "diff", options, "tank/fs@a", "tank/fs@b"]), "");
    }
    let json = session.print(&["zfs", "diff", "-j", "tank/fs@a"]);
    assert!(json.ends_with("\"from\":\"tank/fs@a\",\"to\":\"tank/fs\",\"changes\":[]}\n"), "{json}");
    assert!(session.print(&["zfs", "diff", "--help"]).contains("-h"));
}

#[test]
fn encrypted_files_are_compared_when_their_key_is_loaded() {
    let Some(golden) = testkit::golden::pool("crypt") else { return };
    let session = Session::start();
    session.import(&golden.dir, "crypt");
    let ended = session.run(&["zfs", "diff", "crypt/gcm@s"]);
    let why = "Key must be loaded to discover path names: permission denied\n";
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (1, "", why));
    let key = std::fs::read(golden.expect("pass")).unwrap();
    assert_eq!(session.run_with(&["zfs", "load-key", "-L", "prompt", "crypt/gcm"], &key).code, 0);
    assert_eq!(session.print(&["zfs", "diff", "-F", "crypt/gcm@s"]), "", "nothing happened to it");
}

#[test]
fn snapshots_and_a_clone_that_openzfs_made_are_compared() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let session = Session::start();
    session.import(&golden.dir, "single");
    let told = session.print(&["zfs", "diff", "-FHt", "single/fs@one", "@two"]);
    assert_eq!(told.lines().count(), 25, "{told}");
    assert_eq!(told.lines().next(), Some("1795241203.584000000\tM\tF\t/m/single/fs/one"));
    let told = session.print(&["zfs", "diff", "-FHt", "single/fs@one", "single/clone"]);
    assert_eq!(told.lines().count(), 2, "{told}");
    assert_eq!(told.lines().next(), Some("1795241209.080000000\tM\t/\t/m/single/clone/"));
}
