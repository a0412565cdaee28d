//! Looking into snapshots, and bringing back files, by the dashboard.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};
use server::api::{
    CreatePool, DestroyDataset, ExportPool, ImportPool, Mount, NewDevices, NewLayout, NewVdev, TakeSnapshots,
};

use crate::harness::{Answer, Browser, Served};

/// All extended attributes of a file.
fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut room = vec![0; 4096];
    let length = rustix::fs::listxattr(path, &mut room[..]).unwrap();
    let names = room[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let values = names.map(|name| {
        let name = String::from_utf8(name.to_vec()).unwrap();
        let mut value = vec![0; 65_536];
        let length = rustix::fs::getxattr(path, name.as_str(), &mut value[..]).unwrap();
        value.truncate(length);
        (name, value)
    });
    values.collect()
}

fn restore(browser: &Browser, snapshot: &str, path: &str, more: &Value) -> Answer {
    let mut body = json!({ "snapshot": snapshot, "path": path });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    browser.act("file-restore", &body)
}

/// All entries of a directory, some at a time.
fn names(browser: &Browser, dataset: &str, path: &str) -> BTreeMap<String, Value> {
    let (mut all, mut after) = (BTreeMap::new(), Value::Null);
    loop {
        let body = json!({ "dataset": dataset, "path": path, "after": after, "limit": 5 });
        let answer = browser.act("file-list", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let told = answer.json();
        for entry in told["entries"].as_array().unwrap() {
            let before = all.insert(entry["name"].as_str().unwrap().to_owned(), entry.clone());
            assert!(before.is_none(), "{entry}");
        }
        after = told["next"].clone();
        if after.is_null() {
            return all;
        }
    }
}

#[test]
fn a_file_comes_back_as_it_was() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    if testkit::skipped("fuse", "mounts") {
        return;
    }
    let served = Served::start();
    let browser = served.admin();
    let place = tempfile::tempdir().unwrap();
    let altroot = place.path().join("mnt");
    golden.private_copy(place.path()).unwrap();
    let import = ImportPool {
        pool: Some("single".into()),
        search: vec![place.path().to_owned()],
        altroot: Some(altroot.clone()),
        no_mount: true,
        ..ImportPool::default()
    };
    served.as_root(&import).unwrap();
    let snapshot = TakeSnapshots { names: vec!["single/sa@t".into()], ..TakeSnapshots::default() };
    served.as_root(&snapshot).unwrap();

    let expected: Vec<String> = golden
        .manifest("single/sa")
        .unwrap()
        .rows
        .keys()
        .map(|path| String::from_utf8(path.clone()).unwrap())
        .filter(|path| !path.contains('/') && path != ".")
        .collect();
    let listed = names(&browser, "single/sa@t", "/");
    assert_eq!(listed.keys().cloned().collect::<Vec<_>>(), expected);
    assert_eq!(
        (&listed["a"]["kind"], &listed["link-short"]["kind"]),
        (&"directory".into(), &"symlink".into())
    );
    assert_eq!((&listed["tiny"]["size"], &listed["tiny"]["mode"]), (&60.into(), &0o4771.into()));
    assert_eq!(names(&browser, "single/sa", "a/b/c/d/e").keys().collect::<Vec<_>>(), ["deep"]);
    for (path, status) in
        [("none", 404), ("../..", 400), (".zfs/snapshot", 400), ("tiny", 400), ("tiny/x", 404)]
    {
        let answer = browser.act("file-list", &json!({ "dataset": "single/sa@t", "path": path }));
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    let missing = browser.act("file-list", &json!({ "dataset": "single/sa@none", "path": "" }));
    assert_eq!(missing.status, 404, "{missing:?}");

    // Not mounted.
    let again = restore(&browser, "single/sa@t", "text-300k", &json!({ "to": "a/again" }));
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.json()["size"], 301_797);
    // Mounted, with a kernel that knows that it is not there.
    served.as_root(&Mount { dataset: Some("single/sa".into()), ..Mount::default() }).unwrap();
    let mounts = served.as_root(&server::api::ListMounts {}).unwrap();
    let root = mounts.iter().find(|mount| mount.dataset == "single/sa").unwrap().mountpoint.clone();
    let old = root.join(".zfs/snapshot/t");
    for name in ["tiny", "zeros-1m", "rand-odd", "one", "empty"] {
        let before = xattrs(&old.join(name));
        std::fs::remove_file(root.join(name)).unwrap();
        assert!(!root.join(name).exists());
        let answer = restore(&browser, "single/sa@t", name, &json!({}));
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        let (was, is) = (old.join(name).metadata().unwrap(), root.join(name).metadata().unwrap());
        let facts = |of: &std::fs::Metadata| {
            (of.mode(), of.uid(), of.gid(), of.size(), of.mtime(), of.mtime_nsec(), of.nlink())
        };
        assert_eq!(facts(&was), facts(&is), "{name}");
        assert!(std::fs::read(old.join(name)).unwrap() == std::fs::read(root.join(name)).unwrap(), "{name}");
        assert_eq!(before, xattrs(&root.join(name)), "{name}");
    }
    assert_eq!(std::fs::read(root.join("a/again")).unwrap(), std::fs::read(old.join("text-300k")).unwrap());
    std::fs::remove_file(root.join("link-short")).unwrap();
    assert_eq!(restore(&browser, "single/sa@t", "link-short", &json!({})).status, 200);
    assert_eq!(std::fs::read_link(root.join("link-short")).unwrap(), Path::new("small-text"));

    // What is there stays, unless it is asked for.
    std::fs::write(root.join("one"), "new").unwrap();
    let refused = restore(&browser, "single/sa@t", "one", &json!({}));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(std::fs::read(root.join("one")).unwrap(), b"new");
    assert_eq!(restore(&browser, "single/sa@t", "one", &json!({ "overwrite": true })).status, 200);
    assert_eq!(std::fs::read(root.join("one")).unwrap(), std::fs::read(old.join("one")).unwrap());
    for (path, more, status) in [
        ("a", json!({}), 422),
        ("fifo", json!({ "to": "fifo2" }), 422),
        ("tiny", json!({ "to": "none/tiny" }), 404),
        ("tiny", json!({ "to": "../tiny" }), 400),
        ("tiny", json!({ "to": "/" }), 400),
        ("tiny", json!({ "to": "a", "overwrite": true }), 422),
        ("none", json!({}), 404),
    ] {
        let answer = restore(&browser, "single/sa@t", path, &more);
        assert_eq!(answer.status, status, "{path} {more}: {answer:?}");
    }
    // A folder, elsewhere first, then over what is there.
    let whole = |to: &str, more: Value| {
        let (mut files, mut kept, mut after) = (0, 0, Value::Null);
        loop {
            let mut body = more.clone();
            body["to"] = to.into();
            body["after"] = after;
            let answer = restore(&browser, "single/sa@t", "a", &body);
            assert_eq!(answer.status, 200, "{answer:?}");
            let told = answer.json();
            files += told["files"].as_u64().unwrap();
            kept += told["kept"].as_u64().unwrap();
            after = told["next"].clone();
            if after.is_null() {
                return (files, kept);
            }
        }
    };
    let all = |top: &Path| -> Vec<(String, u32, u64, i64)> {
        let mut found = Vec::new();
        let mut waiting = vec![top.to_owned()];
        while let Some(at) = waiting.pop() {
            let facts = at.symlink_metadata().unwrap();
            let name = at.strip_prefix(top).unwrap().to_string_lossy().into_owned();
            let size = if facts.is_dir() { 0 } else { facts.size() };
            found.push((name, facts.mode(), size, facts.mtime()));
            if facts.is_dir() {
                waiting.extend(std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        found.sort();
        found
    };
    let (files, kept) = whole("folder", json!({}));
    assert!(files > 0 && kept == 0);
    assert_eq!(all(&old.join("a")), all(&root.join("folder")));
    let refused = restore(&browser, "single/sa@t", "a", &json!({ "to": "folder" }));
    assert_eq!(refused.status, 422, "{refused:?}");
    let deep = root.join("folder/b/c/d/e/deep");
    std::fs::write(&deep, "new").unwrap();
    assert_eq!(whole("folder", json!({ "keep": true })), (0, files));
    assert_eq!(std::fs::read(&deep).unwrap(), b"new");
    assert_eq!(whole("folder", json!({ "overwrite": true })), (files, 0));
    assert_eq!(std::fs::read(&deep).unwrap(), std::fs::read(old.join("a/b/c/d/e/deep")).unwrap());
    // A link in the place of a folder is not followed.
    let outside = place.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::remove_dir_all(root.join("folder/b/c")).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("folder/b/c")).unwrap();
    let refused = restore(&browser, "single/sa@t", "a", &json!({ "to": "folder", "overwrite": true }));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.message().contains("at 'b/c'"), "{refused:?}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    for after in ["x", "1.2.3", "", "n9999999999999", "0.0.0.0.0.0.0.0.0.0.0.0"] {
        let body = json!({ "to": "folder", "keep": true, "after": after });
        let answer = restore(&browser, "single/sa@t", "a", &body);
        assert!(matches!(answer.status, 200 | 400 | 422), "{after}: {answer:?}");
    }
    let left =
        std::fs::read_dir(&root).unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    assert!(left.into_iter().all(|name| !name.starts_with(".cenote-restore")));
    let lines = served.audit();
    assert!(lines.iter().any(|line| line.action == "file-restore" && line.from.is_some()));
    served.as_root(&ExportPool { all: true, force: true, ..ExportPool::default() }).unwrap();
}

#[test]
fn datasets_are_listed_in_pages() {
    let served = Served::start();
    let browser = served.admin();
    let place = tempfile::tempdir().unwrap();
    let disk = place.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let vdev = NewVdev { layout: NewLayout::Single, class: Default::default(), devices: vec![disk] };
    let devices = NewDevices { vdevs: vec![vdev], ..NewDevices::default() };
    let create = CreatePool { name: "tank".into(), devices, no_mount: true, ..CreatePool::default() };
    served.as_root(&create).unwrap();
    for number in 0..12 {
        let names = vec![format!("tank@s{}", 11 - number)];
        served.as_root(&TakeSnapshots { names, ..TakeSnapshots::default() }).unwrap();
    }
    let page_of = |depth: Value, after: &Value, newest_first: bool| -> (Vec<String>, Value) {
        let body = json!({
            "names": ["tank"], "kinds": ["snapshot"], "depth": depth,
            "properties": ["name", "used", "creation", "mountpoint"],
            "after": after, "limit": 5, "newest_first": newest_first,
        });
        let answer = browser.act("dataset-list", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let told = answer.json();
        let entries = told["entries"].as_array().unwrap();
        assert!(entries.iter().all(|entry| entry["properties"][1]["value"].is_string()), "{told}");
        (
            entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect(),
            told["next"].clone(),
        )
    };
    let page = |after: &Value, newest_first: bool| page_of(1.into(), after, newest_first);
    for (newest_first, depth) in
        [(false, 1.into()), (true, 1.into()), (false, Value::Null), (true, Value::Null)]
    {
        let (mut all, mut after) = (Vec::new(), Value::Null);
        loop {
            let (names, next) = page_of(depth.clone(), &after, newest_first);
            assert!(names.len() <= 5);
            all.extend(names);
            after = next;
            if after.is_null() {
                break;
            }
        }
        let mut expected: Vec<String> = (0..12).map(|number| format!("tank@s{}", 11 - number)).collect();
        if newest_first {
            expected.reverse();
        }
        assert_eq!(all, expected);
    }
    // The entry at which a page ended may be destroyed meanwhile.
    let (names, next) = page(&Value::Null, false);
    let destroy = DestroyDataset { name: names[4].clone(), ..DestroyDataset::default() };
    served.as_root(&destroy).unwrap();
    assert_eq!(page(&next, false).0[0], "tank@s6");
    for wrong in [json!({ "after": "x" }), json!({ "limit": 0 })] {
        assert_eq!(browser.act("dataset-list", &wrong).status, 400, "{wrong}");
    }
    served.as_root(&ExportPool { all: true, force: true, ..ExportPool::default() }).unwrap();
}
