//! `cenote ls`, `cat` and `extract` on golden pools, compared with what OpenZFS showed of them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output};

use testkit::GoldenPool;
use testkit::manifest::{HostTree, hex_sha256};

fn cenote(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cenote")).args(arguments).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The option for the key of a golden dataset.
fn key(golden: &GoldenPool, dataset: &str) -> Vec<String> {
    let file = match dataset {
        _ if golden.name != "crypt" => return Vec::new(),
        name if name.starts_with("crypt/ccm") => "rawkey",
        name if name.starts_with("crypt/vol") => "hex",
        _ => "pass",
    };
    vec!["--key".into(), text(&golden.expect(file)).into()]
}

fn extract(golden: &GoldenPool, dataset: &str, to: &Path) -> Output {
    let key = key(golden, dataset);
    let mut arguments = vec!["extract", "-q", "-d", text(&golden.dir)];
    arguments.extend(key.iter().map(String::as_str));
    arguments.extend([dataset, text(to)]);
    cenote(&arguments)
}

/// Inode numbers are the destination's own.
fn differences(golden: &GoldenPool, dataset: &str, tree: &Path) -> Vec<String> {
    let manifest = golden.manifest(dataset).unwrap();
    manifest.differences(&HostTree::new(tree)).into_iter().filter(|line| !line.contains(" ino ")).collect()
}

fn check(name: &str) {
    let Some(golden) = testkit::golden::pool(name) else { return };
    let place = tempfile::tempdir().unwrap();
    for (number, dataset) in golden.filesystems().unwrap().iter().enumerate() {
        let to = place.path().join(format!("fs{number}"));
        let output = extract(&golden, dataset, &to);
        assert!(output.status.success(), "{dataset}: {}", String::from_utf8_lossy(&output.stderr));
        let found = differences(&golden, dataset, &to);
        let shown = found[..found.len().min(20)].join("\n");
        assert!(found.is_empty(), "{dataset}: {} differences\n{shown}", found.len());
        std::fs::remove_dir_all(&to).unwrap();
    }
    for dataset in golden.volumes().unwrap() {
        let to = place.path().join("image");
        let output = extract(&golden, &dataset, &to);
        assert!(output.status.success(), "{dataset}: {}", String::from_utf8_lossy(&output.stderr));
        let image = std::fs::read(&to).unwrap();
        assert_eq!(hex_sha256(&image), golden.volume_sha256(&dataset).unwrap(), "{dataset}");
        std::fs::remove_file(&to).unwrap();
    }
}

macro_rules! pools {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

pools! {
    single volumes triple rz1 rz2 rz3 rz1s9 dr2 codecs dedupold dedupfast crypt classes removed expanded bclone
    checkpoint legacy28 features0 degraded corrupt streams
}

#[test]
fn what_only_the_intent_logs_of_a_crashed_pool_hold_is_extracted() {
    let Some(golden) = testkit::golden::pool("zilreplay") else { return };
    let place = tempfile::tempdir().unwrap();
    for (number, dataset) in golden.filesystems().unwrap().iter().enumerate() {
        let to = place.path().join(format!("fs{number}"));
        let output = extract(&golden, dataset, &to);
        assert!(output.status.success(), "{dataset}: {}", String::from_utf8_lossy(&output.stderr));
        let mut found = differences(&golden, dataset, &to);
        // Records of writes and of names tell no time: it is that of the replay.
        found.retain(|line| !line.contains(": mtime_ns is "));
        assert!(found.is_empty(), "{dataset}: {found:?}");
    }
    for dataset in golden.volumes().unwrap() {
        let output = cenote(&["cat", "-d", text(&golden.dir), &dataset]);
        assert_eq!(hex_sha256(&output.stdout), golden.volume_sha256(&dataset).unwrap(), "{dataset}");
    }
}

#[test]
fn ls_and_cat_agree_with_the_manifest() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let output = cenote(&["ls", "-R", "--json", "-d", text(&golden.dir), "single/fs@one"]);
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let manifest = golden.manifest("single/fs@one").unwrap();
    let root = usize::from(manifest.rows.contains_key(&b"."[..]));
    assert_eq!(rows.len() + root, manifest.rows.len());
    let file =
        manifest.rows.values().find(|row| row.size.is_some_and(|size| size > 100_000 && size < 1 << 30));
    let file = file.expect("a file of some size");
    let output = cenote(&["cat", "-d", text(&golden.dir), &format!("single/fs@one:/{}", file.path)]);
    assert_eq!(Some(hex_sha256(&output.stdout)), file.sha256);
}

#[test]
fn what_is_wrong_is_said_and_exits_with_1() {
    let Some(golden) = testkit::golden::pool("single") else { return };
    let dir = text(&golden.dir);
    for (arguments, expected) in [
        (&["ls", "-d", dir, "nopool"][..], "no such pool"),
        (&["ls", "-d", dir, "single/nofs"], "does not exist"),
        (&["ls", "-d", dir, "single/fs:/no/such"], "no such file"),
        (&["cat", "-d", dir, "single/fs:/a"], "is a directory"),
    ] {
        let output = cenote(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(cenote(&["ls"]).status.code(), Some(2));
}

#[test]
fn a_destination_that_is_not_empty_is_left_alone() {
    let Some(golden) = testkit::golden::pool("features0") else { return };
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("mine"), "kept").unwrap();
    let output = extract(&golden, "features0/fs", place.path());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn a_wrong_key_is_refused() {
    let Some(golden) = testkit::golden::pool("crypt") else { return };
    let place = tempfile::tempdir().unwrap();
    let key = place.path().join("key");
    std::fs::write(&key, "not the passphrase\n").unwrap();
    let output = cenote(&["ls", "-d", text(&golden.dir), "--key", text(&key), "crypt/gcm"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("ncorrect key"), "{output:?}");
}
