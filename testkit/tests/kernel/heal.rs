//! Scrubs and resilvers that one side begins and the other ends; the error log of both; damaged golden pools
//! that are healed here.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::block_on;
use engine::dsl::Dsl;
use engine::pool::errlog;
use engine::pool::live::{Layout, LivePool, ScrubRange, TakeOffline};
use engine::pool::status::{Progress, Scan, ScanKind};
use engine::scan::ScanLimits;
use engine::zvol::LiveZvol;
use ondisk::vdev_config::PoolState;
use ondisk::{Guid, ObjsetId};
use testkit::kernel::{Job, KernelVm};
use testkit::manifest::hex_sha256;

use super::scrub::import;
use super::{DISK_BYTES, VOLUME_BYTES, content, create};

/// Batches that are small enough for a scan to be interrupted between them.
const SMALL: u64 = 256 << 10;

fn small_batches() -> ScanLimits {
    ScanLimits { batch_bytes: SMALL, ..ScanLimits::default() }
}

/// A folder with a mirror of two disks, exported.
fn mirror() -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().expect("a folder");
    let disks: Vec<PathBuf> = (0..2).map(|index| folder.path().join(format!("d{index}"))).collect();
    for disk in &disks {
        std::fs::File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("a disk");
    }
    create(Layout::Mirror, &disks, &content(VOLUME_BYTES));
    (folder, disks)
}

fn scan(pool: &LivePool) -> Scan {
    pool.scan_status().expect("a scan")
}

/// Waits until the scan that runs has ended.
fn ended(pool: &LivePool) -> Scan {
    let began = Instant::now();
    while scan(pool).state == Progress::Running {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", scan(pool));
        std::thread::sleep(Duration::from_millis(5));
    }
    scan(pool)
}

fn export(pool: &Arc<LivePool>) {
    block_on(pool.close(PoolState::Exported)).expect("an export");
}

/// Exports the pool in the middle of a scan, when some of it is done.
fn export_within(pool: &Arc<LivePool>, kind: ScanKind) {
    let began = Instant::now();
    loop {
        let now = scan(pool);
        assert_eq!((now.kind, now.state), (kind, Progress::Running), "it was too fast: {now:?}");
        if now.examined - now.skipped > SMALL {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{now:?}");
        std::thread::yield_now();
    }
    export(pool);
    assert_eq!(scan(pool).state, Progress::Running, "it was too fast");
}

fn leaf(pool: &LivePool, disk: &Path) -> Guid {
    let vdevs = pool.pool().vdevs();
    vdevs.leaves().find(|leaf| Path::new(&leaf.name) == disk).expect("a leaf").guid
}

/// Fills the volume with other bytes.
fn overwrite(pool: &Arc<LivePool>, bytes: &[u8]) {
    block_on(async {
        let id = Dsl::open(&pool.view()).await.unwrap().find("tank/vol").await.unwrap().objset_id();
        let volume: Arc<LiveZvol> = pool.volume(id).await.expect("a volume");
        for (place, piece) in (0u64..).zip(bytes.chunks(128 << 10)) {
            volume.write_at(place * (128 << 10), piece, false).await.expect("a write");
        }
        volume.flush().await.expect("a flush");
        pool.change(|_| async { Ok(()) }).await.expect("a commit");
    });
}

fn other_content() -> Vec<u8> {
    content(VOLUME_BYTES).iter().map(|byte| byte ^ 0x5a).collect()
}

/// Runs a script with the disks; it must succeed.
fn run(vm: &KernelVm, script: &str, disks: &[PathBuf]) -> String {
    let outcome = vm.run(&Job::new(script, disks.to_vec())).expect("the machine runs");
    assert_eq!(outcome.code, Some(0), "{}", outcome.output);
    outcome.output
}

const HASH: &str = "for i in $(seq 20); do [ -e /dev/zd0 ] && break; sleep 1; done; sha256sum /dev/zd0";

#[test]
fn the_kernel_ends_a_scrub_and_a_resilver_that_we_began() {
    let Some(vm) = KernelVm::find() else { return };
    let (_folder, disks) = mirror();
    block_on(async {
        let pool = import(&disks, 2).await;
        pool.set_scan_limits(small_batches());
        pool.scrub(ScrubRange::default()).await.expect("a scrub");
        export_within(&pool, ScanKind::Scrub);
    });
    let output = run(
        &vm,
        "
        set -e
        echo 1 > /sys/module/zfs/parameters/zfs_scan_suspend_progress
        zpool import -d /dev tank
        zpool status tank
        echo 0 > /sys/module/zfs/parameters/zfs_scan_suspend_progress
        zpool wait -t scrub tank
        zpool status -v tank
        zpool export tank
        ",
        &disks,
    );
    assert!(output.contains("scrub in progress") && output.contains("with 0 errors"), "{output}");

    let bytes = other_content();
    block_on(async {
        let pool = import(&disks, 3).await;
        pool.set_scan_limits(small_batches());
        pool.offline(leaf(&pool, &disks[1]), TakeOffline::Persistently).await.expect("offline");
        overwrite(&pool, &bytes);
        pool.online(leaf(&pool, &disks[1])).await.expect("online");
        let began = Instant::now();
        while pool.scan_status().is_none_or(|scan| scan.kind != ScanKind::Resilver) {
            assert!(began.elapsed() < Duration::from_secs(60), "no resilver");
            std::thread::yield_now();
        }
        export_within(&pool, ScanKind::Resilver);
    });
    let output = run(
        &vm,
        &format!(
            "
            set -e
            echo 1 > /sys/module/zfs/parameters/zfs_scan_suspend_progress
            zpool import -d /dev tank
            zpool status tank
            echo 0 > /sys/module/zfs/parameters/zfs_scan_suspend_progress
            zpool wait -t resilver tank
            zpool status -v tank
            zpool scrub -w tank
            zpool status -v tank
            zpool offline tank /dev/vdb
            {HASH}
            zpool online tank /dev/vdb
            zpool wait -t resilver tank
            zpool export tank
            "
        ),
        &disks,
    );
    assert!(output.contains("resilver in progress") && output.contains("resilvered "), "{output}");
    assert!(output.contains("scrub repaired 0B"), "{output}");
    assert!(output.contains(&hex_sha256(&bytes)), "the resilvered disk has other bytes:\n{output}");
}

#[test]
fn we_end_a_scrub_and_a_resilver_that_the_kernel_began() {
    let Some(vm) = KernelVm::find() else { return };
    let (_folder, disks) = mirror();
    let output = run(
        &vm,
        "
        set -e
        zpool import -d /dev tank
        zpool scrub -w tank
        echo 1 > /sys/module/zfs/parameters/zfs_scan_suspend_progress
        zpool scrub tank
        sleep 6
        zpool status tank
        zpool export tank
        ",
        &disks,
    );
    assert!(output.contains("scrub in progress"), "{output}");
    let bytes = other_content();
    block_on(async {
        let pool = import(&disks, 2).await;
        let scrub = ended(&pool);
        assert_eq!((scrub.kind, scrub.state, scrub.errors), (ScanKind::Scrub, Progress::Finished, 0));
        pool.offline(leaf(&pool, &disks[1]), TakeOffline::Persistently).await.expect("offline");
        overwrite(&pool, &bytes);
        export(&pool);
    });
    let output = run(
        &vm,
        "
        set -e
        zpool import -d /dev tank
        zpool status tank
        echo 1 > /sys/module/zfs/parameters/zfs_scan_suspend_progress
        zpool online tank /dev/vdc
        sleep 6
        zpool status tank
        zpool export tank
        ",
        &disks,
    );
    assert!(output.contains("scrub repaired 0B") && output.contains("resilver in progress"), "{output}");
    block_on(async {
        let pool = import(&disks, 3).await;
        let resilver = ended(&pool);
        assert_eq!((resilver.kind, resilver.state), (ScanKind::Resilver, Progress::Finished));
        assert!(pool.pool().vdevs().leaves().all(|leaf| leaf.missing_txgs.is_empty()));
        export(&pool);
    });
    let output = run(
        &vm,
        &format!(
            "
            set -e
            zpool import -d /dev tank
            zpool status tank
            zpool scrub -w tank
            zpool status -v tank
            zpool offline tank /dev/vdb
            {HASH}
            zpool online tank /dev/vdb
            zpool wait -t resilver tank
            zpool export tank
            "
        ),
        &disks,
    );
    assert!(!output.contains("resilver in progress") && output.contains("scrub repaired 0B"), "{output}");
    assert!(output.contains(&hex_sha256(&bytes)), "the resilvered disk has other bytes:\n{output}");
}

/// What is damaged, as `zpool status -v` calls it.
fn damaged(pool: &Arc<LivePool>) -> Vec<String> {
    block_on(async {
        let dsl = Dsl::open(&pool.view()).await.expect("datasets");
        let mut names = Vec::new();
        for block in errlog::read(&dsl).await.expect("an error log") {
            if block.objset != ObjsetId::MOS {
                names.push(errlog::describe(&dsl, &block, &|_| None).await);
            }
        }
        names.sort();
        names.dedup();
        names
    })
}

#[test]
fn the_kernel_reads_the_error_log_that_we_write() {
    let Some(vm) = KernelVm::find() else { return };
    let (_folder, disks) = mirror();
    // A stretch in the middle of what is used, on both disks.
    for disk in &disks {
        let file = std::fs::File::options().write(true).open(disk).expect("a disk");
        file.write_all_at(&vec![0xd6; 2 << 20], 12 << 20).expect("a write");
    }
    let names = block_on(async {
        let pool = import(&disks, 2).await;
        pool.scrub(ScrubRange::default()).await.expect("a scrub");
        let scrub = ended(&pool);
        assert!(scrub.errors > 0, "{scrub:?}");
        let names = damaged(&pool);
        export(&pool);
        pool.let_go();
        drop(pool);
        let pool = import(&disks, 3).await;
        assert_eq!(damaged(&pool), names, "after an import");
        export(&pool);
        names
    });
    assert!(!names.is_empty());
    let output = run(&vm, "zpool import -d /dev tank; zpool status -v tank; zpool export tank", &disks);
    let listed: Vec<&str> = output.lines().map(str::trim).filter(|line| line.starts_with("tank/")).collect();
    // The module leaves a snapshot out that was taken in the group in which the block was written.
    for name in names.iter().filter(|name| !name.contains('@')) {
        assert!(listed.contains(&name.as_str()), "{name} is not in\n{output}");
    }
    for name in listed {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
    }
}

#[test]
fn the_kernel_finds_nothing_to_heal_in_golden_pools_that_were_healed_here() {
    let Some(vm) = KernelVm::find() else { return };
    for name in ["degraded", "corrupt"] {
        let Some(golden) = testkit::golden::pool(name) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        golden.private_copy(folder.path()).expect("a copy");
        let mut disks: Vec<PathBuf> = std::fs::read_dir(folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_file() && path.file_name().is_some_and(|name| name != "manifest.json"))
            .collect();
        disks.sort();
        block_on(async {
            let pool = super::scrub::import_as(name, &disks, 2).await;
            pool.clear(None).await.expect("clear");
            for disk in &disks {
                let vdevs = pool.pool().vdevs();
                let offline = vdevs.leaves().find(|leaf| {
                    Path::new(&leaf.name).file_name() == disk.file_name() && !leaf.status().is_readable()
                });
                if let Some(offline) = offline.map(|leaf| leaf.guid) {
                    let status = pool.online(offline).await.expect("online");
                    assert!(status.is_readable(), "{name}: {status:?}");
                }
            }
            let began = Instant::now();
            let is_stale = || pool.pool().vdevs().leaves().any(|leaf| !leaf.missing_txgs.is_empty());
            while is_stale() {
                assert!(began.elapsed() < Duration::from_secs(120), "{name} is not resilvered");
                std::thread::sleep(Duration::from_millis(10));
            }
            if pool.scan_status().is_some_and(|scan| scan.state == Progress::Running) {
                ended(&pool);
            }
            for may_repair in [true, false] {
                pool.scrub(ScrubRange::default()).await.expect("a scrub");
                let scrub = ended(&pool);
                assert!(scrub.errors == 0 && (may_repair || scrub.processed == 0), "{name}: {scrub:?}");
            }
            export(&pool);
        });
        // The module refuses block devices as vdevs of the kind "file".
        let copies: String = (0..disks.len()).map(|number| format!("{} ", Job::disk_name(number))).collect();
        let script = format!(
            "
            set -e
            mkdir -p /g; mount -t tmpfs -o size=1000m tmpfs /g
            dd if=/dev/zero of=/zeroes bs=1M count=1 2>/dev/null
            for disk in {copies}; do
              size=$(( $(cat /sys/block/$disk/size) / 2048 ))
              dd if=/dev/zero of=/g/$disk bs=1M seek=$size count=0 2>/dev/null
              for at in $(seq 0 $((size - 1))); do
                dd if=/dev/$disk of=/piece bs=1M skip=$at count=1 2>/dev/null
                cmp -s /piece /zeroes || dd if=/piece of=/g/$disk bs=1M seek=$at conv=notrunc 2>/dev/null
              done
            done
            zpool import -d /g {name}
            zpool status {name}
            zpool scrub -w {name}
            zpool status -v {name}
            zpool export {name}
            "
        );
        let output = run(&vm, &script, &disks);
        assert!(output.contains("scrub repaired 0B"), "{name}:\n{output}");
        assert!(output.contains("errors: No known data errors"), "{name}:\n{output}");
        assert!(
            !output.contains("DEGRADED") && !output.contains("resilver in progress"),
            "{name}:\n{output}"
        );
    }
}
