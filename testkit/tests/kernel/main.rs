//! OpenZFS's kernel module judges pools that we wrote: it imports and scrubs them, reads the same bytes,
//! writes and snapshots, exports; then we read what it wrote.
//!
//! Needs the virtual machine that `scripts/make-kernel-vm` makes; `CENOTE_SKIP=kernel` leaves it out.

#![allow(clippy::unwrap_used, reason = "a test")]

mod dedup;
mod diff;
#[allow(dead_code, reason = "parts of it are for others")]
#[path = "../../../engine/tests/live/diff_model.rs"]
mod diff_model;
mod encrypted;
mod heal;
mod l2arc;
mod log;
mod old_versions;
mod raw;
mod reshaped;
mod scrub;
mod streams;

use std::path::PathBuf;
use std::sync::Arc;

use device::{Device, OpenOptions, block_on};
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::env::Seeded;
use engine::pool::import::{ImportOptions, select};
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, default_features};
use engine::pool::{discovery, verify};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use ondisk::pool_version as version;
use ondisk::vdev_config::PoolState;
use testkit::kernel::{Job, KernelVm};
use testkit::manifest::hex_sha256;

const DISK_BYTES: u64 = 256 << 20;
const VOLUME_BYTES: u64 = 16 << 20;
/// What the kernel writes over the first mebibyte.
const WRITTEN_BYTES: usize = 1 << 20;

fn open(path: &PathBuf) -> Arc<dyn Device> {
    Arc::new(OpenOptions::read_write().open(path).expect("a disk"))
}

fn surroundings(seed: u64) -> Surroundings {
    Surroundings {
        env: Arc::new(Seeded::new(seed)),
        cache: None,
        limits: Limits::default(),
        host: (0x1234_5678, "test".into()),
    }
}

/// Bytes that do not repeat, half of them compressible.
fn content(length: u64) -> Vec<u8> {
    let mut state = 7u64;
    let mut bytes = Vec::with_capacity(length as usize);
    while (bytes.len() as u64) < length {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let word = if bytes.len() / 65536 % 2 == 0 { state } else { state & 0xff };
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

fn create(layout: Layout, disks: &[PathBuf], bytes: &[u8]) {
    create_of(version::FEATURES, layout, disks, bytes);
}

/// The same of a version, with what that has.
fn create_of(version: u64, layout: Layout, disks: &[PathBuf], bytes: &[u8]) {
    let has_features = version == version::FEATURES;
    let leaves = disks.iter().map(|path| NewLeaf {
        device: open(path),
        path: path.clone(),
        // The module refuses vdevs of the kind "file" that are block devices.
        is_file: false,
        whole_disk: false,
    });
    let new = NewPool {
        name: "tank".into(),
        tops: vec![NewTop { layout, class: Class::Normal, leaves: leaves.collect() }],
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(12),
        version,
        features: if has_features { default_features() } else { Vec::new() },
        properties: Vec::new(),
        root_properties: Vec::new(),
        altroot: None,
        command: Some("zpool create tank".into()),
    };
    block_on(async {
        let pool = LivePool::create(new, surroundings(1)).await.expect("a pool");
        pool.start().expect("a thread");
        let make = |name: &str, contents, properties: &[(&str, &str)]| NewDataset {
            name: name.into(),
            contents,
            properties: properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        };
        let volume = make(
            "tank/vol",
            NewContents::Volume { size: VOLUME_BYTES, sparse: true },
            &[("volblocksize", "16K"), ("compression", "on"), ("checksum", "sha256")],
        );
        let newer: &[(&str, &str)] = &[("compression", "zstd"), ("recordsize", "1M")];
        let filesystem = make("tank/fs", NewContents::Filesystem, if has_features { newer } else { &[] });
        let id =
            pool.change(move |s| async move { edit::create(&s, &volume).await }).await.expect("a volume");
        pool.change(move |s| async move { edit::create(&s, &filesystem).await }).await.expect("a filesystem");
        let dataset = pool.dataset(id).await.expect("open");
        let live = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.expect("open");
        for (place, piece) in (0u64..).zip(bytes.chunks(128 << 10)) {
            live.write_at(place * (128 << 10), piece, place % 16 == 0).await.expect("a write");
        }
        live.flush().await.expect("a flush");
        drop(live);
        let snapshot = NewSnapshot { name: "tank/vol@ours".into(), properties: Vec::new() };
        pool.change(move |s| async move { edit::snapshot(&s, &[snapshot]).await }).await.expect("a snapshot");
        pool.close(PoolState::Exported).await.expect("an export");
    });
}

fn judge(vm: &KernelVm, layout: Layout, count: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let disks: Vec<PathBuf> = (0..count).map(|index| folder.path().join(format!("d{index}"))).collect();
    for disk in &disks {
        std::fs::File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("a disk");
    }
    let bytes = content(VOLUME_BYTES);
    create(layout, &disks, &bytes);
    let script = "
        set -e
        zpool import -d /dev tank
        zpool scrub -w tank
        zpool status -v tank
        udevd=no; for i in $(seq 20); do [ -e /dev/zd0 ] && break; sleep 1; done
        sha256sum /dev/zd0
        mkdir -p /m; mount -t zfs -o zfsutil tank/fs /m
        echo written by the kernel > /m/file; sync; umount /m
        dd if=/dev/zero bs=1M count=1 2>/dev/null | tr '\\0' 'K' | dd of=/dev/zd0 bs=1M conv=notrunc,fsync \
        2>/dev/null
        zfs snapshot -r tank@kernel
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
    // Back here: what it wrote, what it kept, and every block of the pool.
    let pool = block_on(async {
        let found = discovery::scan(&[folder.path()]).await.expect("a scan");
        let found = select(found, "tank").expect("the pool");
        let pool =
            engine::pool::import::import(&found, &ImportOptions::read_only()).await.expect("an import");
        let dsl = engine::dsl::Dsl::open(&pool).await.expect("its datasets");
        let mut expected = bytes.clone();
        for (name, overwritten) in [("tank/vol@ours", false), ("tank/vol@kernel", true), ("tank/vol", true)] {
            if overwritten {
                expected[..WRITTEN_BYTES].fill(b'K');
            }
            let dataset = dsl.find(name).await.expect(name);
            let objset = dsl.open_objset(&dataset).await.expect(name);
            let volume = engine::zvol::Zvol::open(&objset).await.expect(name);
            let mut read = vec![0; VOLUME_BYTES as usize];
            volume.read_at(0, &mut read).await.expect(name);
            assert!(read == expected, "{name} differs");
        }
        pool
    });
    let options = verify::VerifyOptions::default();
    let report = verify::verify(&pool, options, &verify::Progress::default()).expect("a verify");
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn the_kernel_takes_a_mirror_scrubs_it_and_writes_to_it() {
    let Some(vm) = KernelVm::find() else { return };
    judge(&vm, Layout::Mirror, 2);
}

#[test]
fn the_kernel_takes_a_raidz_scrubs_it_and_writes_to_it() {
    let Some(vm) = KernelVm::find() else { return };
    judge(&vm, Layout::Raidz { nparity: 1 }, 3);
}
