//! Pools of old versions, as they are and taken to others by us: the kernel module scrubs them, and destroys
//! what we made in them.

use std::path::PathBuf;

use device::block_on;
use engine::dsl::edit::{self, NewSnapshot};
use engine::pool::import::{ImportOptions, select};
use engine::pool::live::{Layout, Syncing, set_version};
use engine::pool::{discovery, verify};
use engine::zvol::LiveZvol;
use ondisk::pool_version as version;
use ondisk::vdev_config::PoolState;
use testkit::kernel::{Job, KernelVm};
use testkit::manifest::hex_sha256;

use super::scrub::import;
use super::{DISK_BYTES, VOLUME_BYTES, content, create_of};

/// Snapshots of a volume with something between them, and a clone; taken to these versions meanwhile.
async fn write(disks: &[PathBuf], upgrades: &[u64]) {
    let pool = import(disks, 2).await;
    let change = |round: u64| {
        move |s: Syncing| async move {
            let new = NewSnapshot { name: format!("tank/vol@round{round}"), properties: Vec::new() };
            edit::snapshot(&s, &[new]).await?;
            let (from, to) = (format!("tank/vol@round{round}"), format!("tank/clone{round}"));
            edit::clone(&s, &from, &to, &[]).await
        }
    };
    let last = pool.version();
    for (round, version) in (1..).zip([last].iter().chain(upgrades)) {
        let version = *version;
        pool.change(move |s| async move { set_version(&s, version).await }).await.expect("an upgrade");
        pool.change(change(round)).await.expect("a snapshot and a clone");
        let dsl = engine::dsl::Dsl::open(&pool.view()).await.expect("datasets");
        let id = dsl.find("tank/vol").await.expect("a volume").objset_id();
        drop(dsl);
        let dataset = pool.dataset(id).await.expect("open");
        let live = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.expect("open");
        live.write_at(round << 20, &content(VOLUME_BYTES)[..3 << 20], true).await.expect("a write");
    }
    pool.close(PoolState::Exported).await.expect("an export");
}

fn judge(vm: &KernelVm, first: u64, upgrades: &[u64]) {
    let folder = tempfile::tempdir().expect("a folder");
    let disks: Vec<PathBuf> = (0..2).map(|index| folder.path().join(format!("d{index}"))).collect();
    for disk in &disks {
        std::fs::File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("a disk");
    }
    let mut bytes = content(VOLUME_BYTES);
    create_of(first, Layout::Mirror, &disks, &bytes);
    block_on(write(&disks, upgrades));
    let new = content(VOLUME_BYTES);
    for round in 1..=1 + upgrades.len() {
        bytes[round << 20..(round + 3) << 20].copy_from_slice(&new[..3 << 20]);
    }
    let script = "
        set -e
        zpool import -d /dev tank
        zpool scrub -w tank
        zpool status -v tank
        for i in $(seq 20); do [ -e /dev/zvol/tank/vol ] && break; sleep 1; done
        for d in /dev/zd*; do sha256sum $d; done
        zfs snapshot tank/vol@kernel
        zfs promote tank/clone1
        zfs destroy tank/vol@kernel
        zfs destroy tank/fs
        zfs list -t all
        zpool scrub -w tank
        zpool status tank
        zpool export tank
    ";
    let outcome = vm.run(&Job::new(script, disks.clone())).expect("the machine runs");
    let output = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{output}");
    assert!(output.contains(&hex_sha256(&bytes)), "the kernel reads other bytes:\n{output}");
    assert_eq!(output.matches("errors: No known data errors").count(), 2, "{output}");
    assert_eq!(output.matches("with 0 errors").count(), 2, "{output}");
    // Back here: all that is left goes, if it is not the origin of a clone.
    let pool = block_on(async {
        let pool = import(&disks, 3).await;
        let destroy = |s: Syncing| async move {
            let destroyed = edit::destroy(&s, "tank/vol").await;
            if let Ok(destroyed) = &destroyed {
                s.forget_dataset(destroyed.objset);
            }
            destroyed.map(|_| ())
        };
        let gone = pool.change(destroy).await;
        assert!(matches!(gone, Ok(()) | Err(engine::Error::Busy(_))), "{gone:?}");
        pool.close(PoolState::Exported).await.expect("an export");
        let found = discovery::scan(&[folder.path()]).await.expect("a scan");
        let found = select(found, "tank").expect("the pool");
        engine::pool::import::import(&found, &ImportOptions::read_only()).await.expect("an import")
    });
    let options = verify::VerifyOptions::default();
    let report = verify::verify(&pool, options, &verify::Progress::default()).expect("a verify");
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn the_kernel_takes_pools_of_versions_before_26() {
    let Some(vm) = KernelVm::find() else { return };
    judge(&vm, 1, &[]);
    judge(&vm, 14, &[25]);
}

#[test]
fn the_kernel_takes_pools_that_were_upgraded_from_versions_before_26() {
    let Some(vm) = KernelVm::find() else { return };
    judge(&vm, 2, &[11, 26, version::FEATURES]);
    judge(&vm, 22, &[28]);
}
