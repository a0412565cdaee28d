//! A scrub that the kernel module leaves unfinished goes on while datasets change here, on a pool that grew
//! before.

use std::path::PathBuf;

use device::block_on;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewSnapshot};
use engine::jobs::JobState;
use engine::pool::import::{ImportOptions, select};
use engine::pool::live::{Layout, LivePool, Sweep};
use engine::pool::status::{self, Progress, ScanKind};
use engine::pool::{discovery, verify};
use ondisk::vdev_config::PoolState;
use testkit::kernel::{Job, KernelVm};

use super::{DISK_BYTES, VOLUME_BYTES, content, create, open, surroundings};

/// The pool on these disks, open for writing.
pub async fn import(disks: &[PathBuf], seed: u64) -> std::sync::Arc<LivePool> {
    import_as("tank", disks, seed).await
}

/// The same of a pool with another name.
pub async fn import_as(name: &str, disks: &[PathBuf], seed: u64) -> std::sync::Arc<LivePool> {
    let folder = disks[0].parent().expect("a folder");
    let found = discovery::scan(&[folder]).await.expect("a scan");
    let mut found = select(found, name).expect("the pool");
    for candidate in found.candidates.values_mut() {
        candidate.device = open(&candidate.device.path().to_path_buf());
    }
    let options = ImportOptions { force: true, ..ImportOptions::default() };
    let pool = LivePool::import(&found, &options, surroundings(seed)).await.expect("an import");
    pool.start().expect("a thread");
    pool
}

#[test]
fn the_kernel_ends_a_scrub_that_it_began_before_we_wrote_and_finds_a_grown_and_initialized_pool() {
    let Some(vm) = KernelVm::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let disks: Vec<PathBuf> = (0..2).map(|index| folder.path().join(format!("d{index}"))).collect();
    let resize = |bytes| {
        for disk in &disks {
            let file = std::fs::File::options().create(true).truncate(false).write(true).open(disk);
            file.and_then(|file| file.set_len(bytes)).expect("a disk");
        }
    };
    resize(DISK_BYTES);
    create(Layout::Mirror, &disks, &content(VOLUME_BYTES));
    resize(DISK_BYTES * 2);
    let size = block_on(async {
        let pool = import(&disks, 2).await;
        let leaves: Vec<_> = pool.pool().vdevs().leaves().map(|leaf| leaf.guid).collect();
        pool.expand(leaves[0]).expect("a leaf");
        pool.change(|_| async { Ok(()) }).await.expect("a commit");
        pool.sweep(Sweep::Initialize, &leaves, 0).await.expect("begins");
        while pool.sweeps().values().any(|run| run.state == JobState::Active) {
            std::thread::yield_now();
        }
        let size = pool.pool().vdevs().tops[0].asize();
        pool.close(PoolState::Exported).await.expect("an export");
        size
    });
    assert!(size > DISK_BYTES * 3 / 2);
    let script = "
        set -e
        zpool import -d /dev tank
        zpool status -i tank
        zpool get -Hp -o value size tank
        zpool scrub -w tank
        zpool status -v tank
        echo 1 > /sys/module/zfs/parameters/zfs_scan_suspend_progress
        zfs create -o compression=off tank/more
        zfs snapshot tank/more@a
        zpool scrub tank
        sleep 8
        zpool status tank
        zpool export tank
    ";
    let outcome = vm.run(&Job::new(script, disks.clone())).expect("the machine runs");
    let output = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{output}");
    assert_eq!(output.matches("(100% initialized, completed at").count(), 2, "{output}");
    assert!(output.contains("with 0 errors") && output.contains("scrub in progress"), "{output}");
    block_on(async {
        let pool = import(&disks, 3).await;
        let health = status::health(&Dsl::open(&pool.view()).await.expect("datasets")).await.expect("health");
        let scan = health.scan.expect("a scan");
        assert_eq!(scan.kind, ScanKind::Scrub);
        assert_ne!(scan.state, Progress::Canceled);
        pool.change(|s| async move {
            edit::destroy_snapshots(&s, &["tank/more@a".into()], false).await?;
            let destroyed = edit::destroy(&s, "tank/more").await?;
            s.forget_dataset(destroyed.objset);
            edit::snapshot(&s, &[NewSnapshot { name: "tank/fs@between".into(), properties: Vec::new() }])
                .await
        })
        .await
        .expect("changes");
        pool.close(PoolState::Exported).await.expect("an export");
    });
    let script = "
        set -e
        zpool import -d /dev tank
        zpool wait -t scrub tank
        zpool status -v tank
        zfs list -t all
        zpool scrub -w tank
        zpool status -v tank
        zpool export tank
    ";
    let outcome = vm.run(&Job::new(script, disks.clone())).expect("the machine runs");
    let output = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{output}");
    assert_eq!(output.matches("with 0 errors").count(), 2, "{output}");
    assert_eq!(output.matches("errors: No known data errors").count(), 2, "{output}");
    let pool = block_on(async {
        let found = discovery::scan(&[folder.path()]).await.expect("a scan");
        let found = select(found, "tank").expect("the pool");
        engine::pool::import::import(&found, &ImportOptions::read_only()).await.expect("an import")
    });
    let options = verify::VerifyOptions::default();
    let report = verify::verify(&pool, options, &verify::Progress::default()).expect("a verify");
    assert!(report.is_clean(), "{report:?}");
}
