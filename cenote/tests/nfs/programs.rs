//! libnfs's programs: another implementation of the protocol.

use std::fs;
use std::process::{Command, Output};

use crate::Served;

/// Whether the programs are missing, and tests of them are left out.
fn are_missing() -> bool {
    if testkit::skipped("nfs", "libnfs's programs") {
        return true;
    }
    assert!(
        Command::new("nfs-ls").arg("--help").output().is_ok(),
        "no libnfs-utils (scripts/install-test-tools)"
    );
    false
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn done(program: &str, arguments: &[&str]) -> Vec<u8> {
    let ended = run(program, arguments);
    assert!(ended.status.success(), "{program} {arguments:?}: {ended:?}");
    ended.stdout
}

#[test]
fn libnfs_writes_reads_and_lists() {
    if are_missing() {
        return;
    }
    let served = Served::start();
    let path = served.share("fs", "rw,no_root_squash,insecure");
    let port = served.address.port();
    let url = |name: &str| {
        format!("nfs://127.0.0.1{path}{name}?version=3&nfsport={port}&mountport={port}&uid=0&gid=0")
    };
    let folder = served.session.directory();
    let data: Vec<u8> =
        (0..5_000_000u32).flat_map(|at| (at.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()).collect();
    let (here, back) = (folder.join("here"), folder.join("back"));
    fs::write(&here, &data).unwrap();
    done("nfs-cp", &[here.to_str().unwrap(), &url("/copied")]);
    assert!(done("nfs-cat", &[&url("/copied")]) == data);
    done("nfs-cp", &[&url("/copied"), back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == data);
    let listed = String::from_utf8(done("nfs-ls", &[&url("")])).unwrap();
    assert!(listed.contains("copied") && listed.contains(&data.len().to_string()), "{listed}");
    assert!(!run("nfs-cat", &[&url("/none")]).status.success());
    // By the daemon's own eyes, from the pool that was exported.
    served.session.print(&["zpool", "export", "tank"]);
    let disk = served.disk.to_str().unwrap();
    let (bytes, ended) = served.session.run_bytes(&["cat", "-d", disk, "tank/fs:/copied"]);
    assert!(ended.code == 0 && bytes == data, "{} {}", ended.code, ended.err);
}

#[test]
fn libnfs_is_squashed_and_kept_out() {
    if are_missing() {
        return;
    }
    let served = Served::start();
    let path = served.share("fs", "rw,insecure");
    let port = served.address.port();
    let url = format!("nfs://127.0.0.1{path}/a?version=3&nfsport={port}&mountport={port}&uid=0&gid=0");
    let here = served.session.directory().join("here");
    fs::write(&here, "a").unwrap();
    let here = here.to_str().unwrap();
    assert!(!run("nfs-cp", &[here, &url]).status.success(), "root is nobody");
    served.session.print(&["zfs", "set", "sharenfs=ro,no_root_squash,insecure", "tank/fs"]);
    assert!(!run("nfs-cp", &[here, &url]).status.success(), "it is read-only");
    served.session.print(&["zfs", "set", "sharenfs=rw=@10.0.0.0/8,no_root_squash,insecure", "tank/fs"]);
    assert!(!run("nfs-cp", &[here, &url]).status.success(), "it is for others");
    served.session.print(&["zfs", "set", "sharenfs=rw,no_root_squash,insecure", "tank/fs"]);
    done("nfs-cp", &[here, &url]);
}
