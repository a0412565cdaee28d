//! Volumes over NBD, read by libnbd's tools.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use device::block_on;
use server::api::{ErrorKind, ExportPool, ImportPool, ListVolumes, LoadKey};
use testkit::manifest::hex_sha256;

use crate::harness::{Running, golden, import_request};

/// Runs a program and returns what it printed. `scripts/install-test-tools` installs all that are used here.
fn run(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; see scripts/install-test-tools"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{errors}", output.status);
    output.stdout
}

#[test]
fn every_volume_and_its_snapshots_read_as_recorded() {
    let Some(golden) = golden("volumes") else { return };
    let running = Running::start();
    let request = import_request("volumes", &golden.dir, &running.altroot());
    let imported = block_on(running.daemon.import(ImportPool { no_mount: true, ..request })).unwrap();
    let served = running.daemon.list_volumes(ListVolumes {}).unwrap();
    assert_eq!(imported.pools[0].volumes, served);
    let recorded = golden.volumes().unwrap();
    assert!(!recorded.is_empty());
    let target = running.place.path().join("copy");
    for name in &recorded {
        let volume = served.iter().find(|volume| volume.name == *name).unwrap_or_else(|| panic!("{name}"));
        run("nbdcopy", &[volume.uri.as_deref().unwrap(), target.to_str().unwrap()]);
        let copy = std::fs::read(&target).unwrap();
        assert_eq!(copy.len() as u64, volume.size_bytes, "{name}");
        assert_eq!(hex_sha256(&copy), golden.volume_sha256(name).unwrap(), "{name}");
        std::fs::remove_file(&target).unwrap();
    }
    let uri = format!("nbd+unix:///?socket={}", running.place.path().join("nbd.sock").display());
    let listed = run("nbdinfo", &["--list", "--json", &uri]);
    let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
    let listed = listed["exports"].as_array().unwrap().iter();
    let mut names: Vec<&str> = listed.map(|export| export["export-name"].as_str().unwrap()).collect();
    let mut expected: Vec<&str> = served.iter().map(|volume| volume.name.as_str()).collect();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn an_encrypted_volume_is_served_once_its_key_is_loaded() {
    let Some(golden) = golden("crypt") else { return };
    let running = Running::start();
    let request = import_request("crypt", &golden.dir, &running.altroot());
    block_on(running.daemon.import(ImportPool { no_mount: true, ..request })).unwrap();
    assert!(running.daemon.list_volumes(ListVolumes {}).unwrap().is_empty());
    let key = std::fs::read(golden.expect("hex")).unwrap();
    let load = LoadKey { dataset: "crypt/vol".into(), key: Some(key), ..LoadKey::default() };
    block_on(running.daemon.load_key(load)).unwrap();
    let served = running.daemon.list_volumes(ListVolumes {}).unwrap();
    let target = running.place.path().join("copy");
    run("nbdcopy", &[served[0].uri.as_deref().unwrap(), target.to_str().unwrap()]);
    let copy = std::fs::read(&target).unwrap();
    assert_eq!(hex_sha256(&copy), golden.volume_sha256("crypt/vol").unwrap());
}

#[test]
fn a_client_keeps_the_pool_until_forced() {
    let Some(golden) = golden("volumes") else { return };
    let running = Running::start();
    let request = import_request("volumes", &golden.dir, &running.altroot());
    block_on(running.daemon.import(ImportPool { no_mount: true, ..request })).unwrap();
    let mut client = Client::connect(&running.place.path().join("nbd.sock"), "volumes/v4K");
    assert_eq!(client.read(0, 512), 0);
    let export = |force| ExportPool { all: true, force, ..ExportPool::default() };
    let error = block_on(running.daemon.export(export(false))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    assert_eq!(running.daemon.open_pools().len(), 1);
    block_on(running.daemon.export(export(true))).unwrap();
    assert_ne!(client.read(0, 512), 0, "a read after the export must fail");
}

/// The least of an NBD client.
struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path, export: &str) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        // Fixed newstyle, no zeroes; the option that only names an export.
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        let length = export.len() as u32;
        stream
            .write_all(
                &[b"IHAVEOPT", &1u32.to_be_bytes()[..], &length.to_be_bytes(), export.as_bytes()].concat(),
            )
            .unwrap();
        let mut size_and_flags = [0; 10];
        stream.read_exact(&mut size_and_flags).unwrap();
        Self(stream)
    }

    /// Reads, and gives the error number of the reply.
    fn read(&mut self, offset: u64, length: u32) -> u32 {
        let request =
            [&0x2560_9513u32.to_be_bytes()[..], &[0; 12], &offset.to_be_bytes(), &length.to_be_bytes()];
        self.0.write_all(&request.concat()).unwrap();
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        let error = u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]]);
        if error == 0 {
            self.0.read_exact(&mut vec![0; length as usize]).unwrap();
        }
        error
    }
}
