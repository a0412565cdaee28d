//! Real clients: libnbd's tools, QEMU's disk tools, fio.

use std::{fs, process::Command};

use crate::harness::{DeviceExport, Named, Served, pattern};

const SIZE_BYTES: usize = 3 << 20;

/// Runs a program and returns what it printed. `scripts/install-test-tools` installs all that are used here.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; see scripts/install-test-tools"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn served() -> Served {
    Served::start(|directory| {
        Named::default()
            .with("tank/memory", DeviceExport::in_memory(pattern(SIZE_BYTES)))
            .with("tank/file@monday", DeviceExport::in_file(&directory.join("disk"), &pattern(SIZE_BYTES)))
    })
}

#[test]
fn nbdinfo_lists_every_export_with_its_facts() {
    let served = served();
    let listed = run("nbdinfo", &["--list", "--json", &served.uri("")]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let exports = listed["exports"].as_array().unwrap();
    let names: Vec<_> = exports.iter().map(|export| export["export-name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tank/file@monday", "tank/memory"]);
    for export in exports {
        assert_eq!(export["export-size"], SIZE_BYTES);
        assert_eq!(export["is_read_only"], true);
        assert_eq!(export["can_multi_conn"], true);
        assert_eq!(export["can_df"], true);
        assert_eq!(export["block_size_minimum"], 1);
        assert_eq!(export["block_size_preferred"], 16384);
        assert_eq!(export["block_size_maximum"], 32 << 20);
        assert_eq!(export["contexts"][0], "base:allocation");
    }
    assert_eq!(listed["structured"], true);
}

#[test]
fn nbdcopy_copies_every_byte_over_many_connections() {
    let served = served();
    let target = served.directory.path().join("copy");
    for name in ["tank/memory", "tank/file@monday"] {
        for options in [["--connections=1", "--requests=1"], ["--connections=4", "--requests=64"]] {
            let _ = fs::remove_file(&target);
            run("nbdcopy", &[options[0], options[1], &served.uri(name), target.to_str().unwrap()]);
            assert!(fs::read(&target).unwrap() == pattern(SIZE_BYTES), "{name} {options:?}");
        }
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    let served = served();
    let target = served.directory.path().join("image.qcow2");
    let target = target.to_str().unwrap();
    for name in ["tank/memory", "tank/file@monday"] {
        run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &served.uri(name), target]);
        let same = run("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &served.uri(name), target]);
        assert!(same.contains("identical"), "{same}");
    }
}

#[test]
fn nbdinfo_maps_the_holes() {
    let served = Served::start(|_| {
        let export = DeviceExport::in_memory(vec![0; 1 << 20]).with_holes(vec![0..65536, 131072..1 << 40]);
        Named::default().with("tank/sparse", export)
    });
    let map = run("nbdinfo", &["--map", "--json", &served.uri("tank/sparse")]);
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    let extents = map.as_array().unwrap().iter();
    let extents: Vec<_> =
        extents.map(|extent| [&extent["offset"], &extent["length"], &extent["type"]]).collect();
    assert_eq!(
        extents,
        [[&0, &65536, &3], [&65536, &65536, &0], [&131072, &917504, &3]].map(|row| row.map(|number| *number))
    );
}

#[test]
fn fio_reads_at_depth() {
    if !run("fio", &["--enghelp"]).lines().any(|line| line.trim() == "nbd") {
        eprintln!("skipped: this fio has no nbd engine");
        return;
    }
    let served = served();
    for name in ["tank/memory", "tank/file@monday"] {
        let uri = format!("--uri={}", served.uri(name));
        let load = ["--rw=randread", "--bs=4k", "--iodepth=32", "--number_ios=5000", "--output-format=json"];
        let report = run("fio", &[&["--name=reads", "--ioengine=nbd", &uri], &load[..]].concat());
        let report: serde_json::Value = serde_json::from_str(&report[report.find('{').unwrap()..]).unwrap();
        assert_eq!(report["jobs"][0]["error"], 0);
        assert!(report["jobs"][0]["read"]["total_ios"].as_u64().unwrap() >= 700);
    }
}

#[test]
fn a_client_that_wants_to_write_is_refused() {
    let served = served();
    let source = served.directory.path().join("source");
    fs::write(&source, pattern(SIZE_BYTES)).unwrap();
    let copied = Command::new("nbdcopy").arg(&source).arg(served.uri("tank/memory")).output().unwrap();
    assert!(!copied.status.success());
}
