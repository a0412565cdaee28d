//! Filesystems mounted by the daemon. Needs `/dev/fuse`; `CENOTE_SKIP=fuse` leaves these tests out.

use std::fs::File;
use std::io::Read;

use device::block_on;
use server::api::{ErrorKind, ExportPool, ListMounts, LoadKey, Mount, UnloadKey, Unmount};
use testkit::manifest::HostTree;

use crate::harness::{Running, golden, skips_fuse};

#[test]
fn an_import_mounts_every_filesystem_where_it_belongs() {
    let Some(golden) = golden("single").filter(|_| !skips_fuse()) else { return };
    let running = Running::start();
    let imported = running.import(&golden);
    assert_eq!(imported.pools[0].warnings, Vec::<String>::new());
    let mounts = &imported.pools[0].mounts;
    let mut checked = 0;
    for filesystem in golden.filesystems().unwrap().iter().filter(|name| !name.contains('@')) {
        let mount = mounts.iter().find(|mount| mount.dataset == *filesystem).unwrap();
        assert!(mount.mountpoint.starts_with(running.altroot()));
        golden.manifest(filesystem).unwrap().assert_same(filesystem, &HostTree::new(&mount.mountpoint));
        checked += 1;
    }
    assert_eq!(checked, mounts.len());
    let export = ExportPool { all: true, ..ExportPool::default() };
    block_on(running.daemon.export(export)).unwrap();
    assert!(!running.altroot().exists(), "directories that were made are removed");
}

#[test]
fn a_filesystem_in_use_keeps_its_pool_until_forced() {
    let Some(golden) = golden("single").filter(|_| !skips_fuse()) else { return };
    let running = Running::start();
    running.import(&golden);
    let before = running.daemon.list_mounts(ListMounts {}).unwrap();
    let fs = before.iter().find(|mount| mount.dataset == "single/fs").unwrap();
    let open = File::open(&fs.mountpoint).unwrap();
    let export = |force| ExportPool { all: true, force, ..ExportPool::default() };
    let error = block_on(running.daemon.export(export(false))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    assert_eq!(running.daemon.list_mounts(ListMounts {}).unwrap(), before, "a failed export changes nothing");
    block_on(running.daemon.export(export(true))).unwrap();
    assert!(running.daemon.list_mounts(ListMounts {}).unwrap().is_empty());
    drop(open);
}

#[test]
fn filesystems_are_unmounted_with_what_is_below_and_mounted_again() {
    let Some(golden) = golden("single").filter(|_| !skips_fuse()) else { return };
    let running = Running::start();
    running.import(&golden);
    let before = running.daemon.list_mounts(ListMounts {}).unwrap();
    let unmount = Unmount { target: Some("single".into()), ..Unmount::default() };
    let done = block_on(running.daemon.unmount(unmount.clone())).unwrap().done;
    assert_eq!(done.len(), before.len());
    assert_eq!(done.last().unwrap().dataset, "single", "what is around goes last");
    assert_eq!(block_on(running.daemon.unmount(unmount)).unwrap_err().kind, ErrorKind::Invalid);
    let done = block_on(running.daemon.mount(Mount::default())).unwrap();
    assert!(done.failed.is_empty(), "{:?}", done.failed);
    assert_eq!(running.daemon.list_mounts(ListMounts {}).unwrap(), before);
    let twice = Mount { dataset: Some("single/fs".into()), ..Mount::default() };
    assert_eq!(block_on(running.daemon.mount(twice)).unwrap_err().kind, ErrorKind::Busy);
}

#[test]
fn a_snapshot_can_be_mounted_anywhere() {
    let Some(golden) = golden("single").filter(|_| !skips_fuse()) else { return };
    let running = Running::start();
    running.import(&golden);
    let at = running.place.path().join("of/snapshot");
    let mount = Mount { dataset: Some("single/fs@one".into()), at: Some(at.clone()), ..Mount::default() };
    block_on(running.daemon.mount(mount)).unwrap();
    golden.manifest("single/fs@one").unwrap().assert_same("single/fs@one", &HostTree::new(&at));
}

#[test]
fn an_encrypted_filesystem_waits_for_its_key_and_keeps_it_while_mounted() {
    let Some(golden) = golden("crypt").filter(|_| !skips_fuse()) else { return };
    let running = Running::start();
    let imported = running.import(&golden);
    assert!(imported.pools[0].mounts.iter().all(|mount| !mount.dataset.starts_with("crypt/gcm")));
    assert!(imported.pools[0].warnings.iter().any(|warning| warning.contains("'crypt/gcm' is not mounted")));
    let load = |key: &[u8]| LoadKey {
        dataset: "crypt/gcm".into(),
        key: Some(key.to_vec().into()),
        ..LoadKey::default()
    };
    let error = block_on(running.daemon.load_key(load(b"not the passphrase"))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    let key = std::fs::read(golden.expect("pass")).unwrap();
    assert_eq!(block_on(running.daemon.load_key(load(&key))).unwrap().datasets, 2);

    let mounted = block_on(running.daemon.mount(Mount::default())).unwrap().done;
    assert_eq!(
        mounted.iter().map(|mount| &mount.dataset[..]).collect::<Vec<_>>(),
        ["crypt/gcm", "crypt/gcm/child"]
    );
    for mount in &mounted {
        golden
            .manifest(&mount.dataset)
            .unwrap()
            .assert_same(&mount.dataset, &HostTree::new(&mount.mountpoint));
    }
    let unload = || running.daemon.unload_key(UnloadKey { dataset: "crypt/gcm".into() });
    assert_eq!(block_on(unload()).unwrap_err().kind, ErrorKind::Busy);
    let unmount = Unmount { target: Some("crypt/gcm".into()), ..Unmount::default() };
    block_on(running.daemon.unmount(unmount)).unwrap();
    block_on(unload()).unwrap();
    let mount = Mount { dataset: Some("crypt/gcm".into()), ..Mount::default() };
    assert_eq!(block_on(running.daemon.mount(mount)).unwrap_err().kind, ErrorKind::Refused);
}

#[test]
fn many_readers_at_once_read_the_same_bytes() {
    let Some(golden) = golden("single").filter(|_| !skips_fuse()) else { return };
    let running = Running::start();
    let imported = running.import(&golden);
    let mount = imported.pools[0].mounts.iter().find(|mount| mount.dataset == "single/r4k").unwrap();
    let manifest = golden.manifest("single/r4k").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| manifest.assert_same("single/r4k", &HostTree::new(&mount.mountpoint)));
        }
        // And the daemon answers meanwhile.
        let status = block_on(running.daemon.status(server::api::GetStatus::default())).unwrap();
        assert_eq!(status.entries.len(), 1);
    });
    let mut nothing = Vec::new();
    assert!(
        File::open(mount.mountpoint.join("no such file"))
            .and_then(|mut file| file.read_to_end(&mut nothing))
            .is_err()
    );
}
