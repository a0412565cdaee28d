//! Devices in object stores: the check of what is left over, and images for OpenZFS.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::session::{Ended, Session};

/// A pool in a folder, with some datasets, exported.
fn exported(session: &Session, folder: &Path) -> String {
    let address = format!("file://{}", folder.display());
    let made = session.run(&["zpool", "create", "-m", "none", "tank", &format!("{address}?size=512M")]);
    assert_eq!(made.code, 0, "{}", made.err);
    for number in 0..12 {
        let name = format!("tank/fs{number}");
        session.print(&["zfs", "create", "-o", "mountpoint=none", &name]);
        session.print(&["zfs", "snapshot", &format!("{name}@one")]);
    }
    session.print(&["zpool", "export", "tank"]);
    address
}

fn check(session: &Session, arguments: &[&str]) -> (Ended, Value) {
    let ended = session.run(&[&["object-check", "--json"], arguments].concat());
    let json = serde_json::from_str(&ended.out).unwrap_or(Value::Null);
    (ended, json)
}

#[test]
fn a_check_tells_and_removes_what_is_left_over_and_an_image_is_a_pool_of_openzfs() {
    let session = Session::start();
    let folder = session.directory().join("store");
    let address = exported(&session, &folder);
    let (ended, clean) = check(&session, &[&address, "--data"]);
    assert_eq!(ended.code, 0, "{} {}", ended.out, ended.err);
    assert!(clean["used_bytes"].as_u64() > Some(0) && clean["verified_bytes"].as_u64() > Some(0), "{clean}");
    assert_eq!(clean["problems"], Value::Array(Vec::new()));
    session.print(&["zpool", "import", "-d", &address, "tank"]);
    let (ended, _) = check(&session, &[&address]);
    assert_eq!(ended.code, 0, "a pool that is open: {} {}", ended.out, ended.err);
    // It is this host's: it is not taken from the daemon.
    let (ended, _) = check(&session, &[&address, "--remove", "--take-over"]);
    assert_eq!(ended.code, 3, "{} {}", ended.out, ended.err);
    assert!(ended.err.contains("export its pool before"), "{}", ended.err);
    session.print(&["zpool", "export", "tank"]);
    let (ended, all) = check(&session, &[&address, "--remove", "--take-over"]);
    assert_eq!(ended.code, 0, "{} {}", ended.out, ended.err);
    assert_eq!(all["left_over"]["segments"]["count"], 0);
    assert_eq!(all["of_owner"]["segments"]["count"], 0);
    let text = session.print(&["object-check", &address]);
    assert!(text.contains("left over: nothing") && text.contains("damage: none"), "{text}");

    let images = session.directory().join("images");
    fs::create_dir(&images).unwrap();
    let image = images.join("tank.img");
    session.print(&["export-image", &address, image.to_str().unwrap()]);
    assert_eq!(image.metadata().unwrap().len(), 512 << 20);
    assert!(std::os::unix::fs::MetadataExt::blocks(&image.metadata().unwrap()) * 512 < 64 << 20, "no holes");
    assert_eq!(testkit::oracle::complaint(&images, "tank"), None);
    let again = session.run(&["export-image", &address, image.to_str().unwrap()]);
    assert!(again.code == 1 && again.err.contains("is there already"), "{}", again.err);
    // The same pool, from the file.
    session.print(&["zpool", "import", "-d", images.to_str().unwrap(), "tank"]);
    let listed = session.print(&["zfs", "list", "-H", "-t", "all", "-o", "name"]);
    assert_eq!(listed.lines().count(), 25, "{listed}");
    session.print(&["zpool", "export", "tank"]);
}

#[test]
fn damage_and_missing_devices_have_exit_codes_of_their_own() {
    let session = Session::start();
    let folder = session.directory().join("store");
    let address = exported(&session, &folder);
    let commits = fs::read_dir(folder.join("commit")).unwrap().map(|entry| entry.unwrap().path());
    let mut commits: Vec<_> = commits.collect();
    commits.sort();
    fs::remove_file(&commits[commits.len() - 2]).unwrap();
    let none = format!("file://{}/none", session.directory().display());
    for (arguments, code, says) in [
        (vec![none.as_str()], 3, "no such folder"),
        (vec!["nothing://x"], 3, "it begins with s3://"),
        (vec![&address, "--take-over"], 2, "--remove"),
    ] {
        let (ended, _) = check(&session, &arguments);
        assert_eq!(ended.code, code, "{}", ended.err);
        assert!(ended.err.contains(says), "{}", ended.err);
    }
    let (ended, report) = check(&session, &[&address]);
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert_eq!(report["problems"][0]["problem"], "it is missing", "{report}");
    for (arguments, says) in [
        (vec!["export-image", "/dev/null", "/x"], "not the address"),
        (vec!["export-image", "memory://a", "/x", "memory://b"], "needs a FILE"),
    ] {
        let ended = session.run(&arguments);
        assert!(ended.code != 0 && ended.err.contains(says), "{}", ended.err);
    }
}
