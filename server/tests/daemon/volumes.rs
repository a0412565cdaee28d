//! Volumes over NBD, read by libnbd's tools.

use std::process::Command;

use device::block_on;
use server::api::{
    CreateDataset, CreatePool, ErrorKind, ExportPool, ImportPool, ListVolumes, LoadKey, NewDevices,
    NewLayout, NewVdev, Rollback, SetProperties, TakeSnapshots,
};
use testkit::manifest::hex_sha256;

use crate::harness::{Running, golden, import_request};
use crate::nbd_client::{CMD_FLUSH, Client, FLAG_FUA};

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
    let listed = running.daemon.list_volumes(ListVolumes {}).unwrap();
    assert!(listed.iter().all(|volume| volume.uri.is_none() && volume.size_bytes == 0), "{listed:?}");
    assert!(listed[0].unavailable.as_ref().unwrap().contains("key is not loaded"), "{listed:?}");
    let uri = format!("nbd+unix:///crypt/vol?socket={}", running.place.path().join("nbd.sock").display());
    let refused = Command::new("nbdinfo").arg(&uri).output().unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr);
    // libnbd names the error (NBD_REP_ERR_POLICY) and keeps the server's words to itself.
    assert!(!refused.status.success() && errors.contains("Operation not supported"), "{errors}");
    let key = std::fs::read(golden.expect("hex")).unwrap();
    let load = LoadKey { dataset: "crypt/vol".into(), key: Some(key.into()), ..LoadKey::default() };
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

const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

pub const MEBIBYTE: u64 = 1 << 20;

/// A pool of one file with the volume `tank/vol` of 8 MiB.
pub fn new_volume(running: &Running) {
    let disk = running.place.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(128 * MEBIBYTE).unwrap();
    let vdev = NewVdev { layout: NewLayout::Single, class: Default::default(), devices: vec![disk] };
    let create = CreatePool {
        name: "tank".into(),
        devices: NewDevices { vdevs: vec![vdev], ..NewDevices::default() },
        no_mount: true,
        altroot: Some(running.altroot()),
        ..CreatePool::default()
    };
    block_on(running.daemon.create_pool(create)).unwrap();
    let volume = CreateDataset {
        name: "tank/vol".into(),
        volume_bytes: Some(8 * MEBIBYTE),
        sparse: true,
        ..CreateDataset::default()
    };
    block_on(running.daemon.create_dataset(volume)).unwrap();
}

fn set(running: &Running, name: &str, value: &str) -> Vec<String> {
    let set = SetProperties {
        datasets: vec!["tank/vol".into()],
        properties: vec![(name.into(), value.into())],
        ..SetProperties::default()
    };
    let set = block_on(running.daemon.set_properties(set)).unwrap();
    set.failed.into_iter().map(|error| error.message).collect()
}

#[test]
fn properties_reach_clients_that_are_there() {
    let running = Running::start();
    new_volume(&running);
    let socket = running.place.path().join("nbd.sock");
    let mut one = Client::connect(&socket, "tank/vol");
    let mut other = Client::connect(&socket, "tank/vol");
    assert_eq!(one.write(0, &[1; 4096], 0), 0);

    assert!(set(&running, "readonly", "on").is_empty());
    assert_eq!((one.write(0, &[2; 4096], 0), other.write(0, &[2; 4096], 0)), (EPERM, EPERM));
    assert_eq!((one.request(CMD_FLUSH, 0, 0), one.read(0, 512)), (0, 0));
    assert!(!set(&running, "volsize", "16M").is_empty(), "a volume that is read-only keeps its size");
    // Who comes now is told, and stays read-only.
    let mut late = Client::connect(&socket, "tank/vol");
    assert_eq!((one.flags & 2, late.flags & 2), (0, 2));
    assert!(set(&running, "readonly", "off").is_empty());
    assert_eq!((other.write(4096, &[3; 4096], FLAG_FUA), late.write(0, &[4; 512], 0)), (0, EPERM));

    // All see one size, at once.
    assert!(set(&running, "volsize", "16M").is_empty());
    for client in [&mut one, &mut other] {
        assert_eq!(client.write(12 * MEBIBYTE, &[5; 4096], 0), 0);
    }
    assert_eq!(Client::connect(&socket, "tank/vol").size, 16 * MEBIBYTE);
    assert!(set(&running, "volsize", "4M").is_empty());
    assert_eq!((one.write(12 * MEBIBYTE, &[6; 4096], 0), other.read(12 * MEBIBYTE, 512)), (ENOSPC, EINVAL));
    assert_eq!(other.read(0, 4096), 0);
    assert_eq!(other.bytes, [1; 4096]);
    assert!(set(&running, "volsize", "16M").is_empty());
    assert_eq!(one.read(12 * MEBIBYTE, 4096), 0);
    assert_eq!(one.bytes, [0; 4096], "what was cut off is gone");

    // Without a log nothing is waited for; what was written then counts for a flush that does.
    assert!(set(&running, "sync", "disabled").is_empty());
    assert_eq!((one.write(0, &[7; 4096], FLAG_FUA), one.request(CMD_FLUSH, 0, 0)), (0, 0));
    assert!(set(&running, "sync", "always").is_empty());
    assert_eq!((one.write(8192, &[8; 4096], 0), other.request(CMD_FLUSH, 0, 0)), (0, 0));
}

#[test]
fn whoever_has_a_volume_through_a_rollback_is_told_that_nothing_is_written() {
    let running = Running::start();
    new_volume(&running);
    let socket = running.place.path().join("nbd.sock");
    let write = |byte: u8| {
        let mut client = Client::connect(&socket, "tank/vol");
        assert_eq!(client.write(0, &[byte; 4096], FLAG_FUA), 0);
    };
    write(1);
    let snapshot = TakeSnapshots { names: vec!["tank/vol@one".into()], ..TakeSnapshots::default() };
    block_on(running.daemon.take_snapshots(snapshot)).unwrap();
    write(2);
    // As for a device that came unnoticed.
    let pool = running.daemon.open_pools().remove(0);
    let volume = block_on(async {
        let id = pool.dsl().await.unwrap().find("tank/vol").await.unwrap().objset_id();
        pool.live().unwrap().volume(id).await.unwrap()
    });
    let back = Rollback { snapshot: "tank/vol@one".into(), ..Rollback::default() };
    block_on(running.daemon.rollback(back)).unwrap();
    let mut bytes = [0; 512];
    assert!(block_on(volume.write_at(0, &[3; 4096], false)).is_err());
    assert!(block_on(volume.write_at(512, &[3; 512], true)).is_err());
    assert!(block_on(volume.flush()).is_err());
    assert!(block_on(volume.read_at(0, &mut bytes)).is_err());
    assert!(block_on(volume.trim(0, MEBIBYTE, false)).is_err());
    drop(volume);
    let mut client = Client::connect(&socket, "tank/vol");
    assert_eq!((client.read(0, 4096), client.bytes[0]), (0, 1));
    assert_eq!(client.write(0, &[4; 4096], FLAG_FUA), 0);
}

#[test]
fn a_client_goes_on_with_what_a_rollback_brought_back() {
    let running = Running::start();
    new_volume(&running);
    let socket = running.place.path().join("nbd.sock");
    let [mut one, mut other] = [0; 2].map(|_| Client::connect(&socket, "tank/vol"));
    assert_eq!(one.write(0, &[1; 4096], FLAG_FUA), 0);
    let snapshot = TakeSnapshots { names: vec!["tank/vol@one".into()], ..TakeSnapshots::default() };
    block_on(running.daemon.take_snapshots(snapshot)).unwrap();
    for round in 2..5 {
        // Of what is under way, what was not stable, and what was.
        assert_eq!(one.write(0, &[round; 4096], 0), 0);
        assert_eq!(other.write(4096, &[round; 4096], FLAG_FUA), 0);
        let back = Rollback { snapshot: "tank/vol@one".into(), ..Rollback::default() };
        assert_eq!(block_on(running.daemon.rollback(back)).unwrap().warnings, Vec::<String>::new());
        for client in [&mut one, &mut other] {
            assert_eq!((client.read(0, 4096), client.bytes[0]), (0, 1));
            assert_eq!((client.read(4096, 4096), client.bytes[0]), (0, 0));
        }
    }
    assert_eq!(other.write(4096, &[9; 4096], FLAG_FUA), 0);
    drop((one, other));
    let mut client = Client::connect(&socket, "tank/vol");
    assert_eq!((client.read(4096, 4096), client.bytes[0]), (0, 9));
}

#[test]
fn clients_that_come_during_rollbacks_write_what_stays() {
    let running = Running::start();
    new_volume(&running);
    let socket = running.place.path().join("nbd.sock");
    let snapshot = TakeSnapshots { names: vec!["tank/vol@one".into()], ..TakeSnapshots::default() };
    block_on(running.daemon.take_snapshots(snapshot)).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10 {
                let back = Rollback { snapshot: "tank/vol@one".into(), ..Rollback::default() };
                block_on(running.daemon.rollback(back)).unwrap();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            let Some(mut client) = Client::try_connect(&socket, "tank/vol") else { continue };
            assert_eq!(client.write(0, &[7; 4096], FLAG_FUA), 0);
            // A rollback may come between: then it is as the snapshot has it.
            assert_eq!(client.read(0, 4096), 0);
            assert!([0, 7].contains(&client.bytes[0]));
            // A rollback may be under way.
            let Some(mut other) = Client::try_connect(&socket, "tank/vol") else { continue };
            assert_eq!(other.read(0, 4096), 0);
            assert!([0, 7].contains(&other.bytes[0]));
        }
    });
}
