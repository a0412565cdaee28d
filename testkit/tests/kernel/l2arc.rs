//! Cache devices: what one side put on them, the other side finds again and reads.

use std::path::PathBuf;
use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents};
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::pool::live::{Auxiliary, Layout, LivePool, NewLeaf, Syncing};
use ondisk::vdev_config::PoolState;
use testkit::kernel::{Job, KernelVm};
use testkit::manifest::hex_sha256;

use super::dedup::volume;
use super::encrypted::HEX;
use super::scrub::import;
use super::{DISK_BYTES, VOLUME_BYTES, content, create, open};

const BLOCK: u64 = 16 << 10;
/// Smaller cache devices have no log blocks.
const CACHE_BYTES: u64 = 1280 << 20;

/// Reads the volume into the ARC, here and there.
async fn read(pool: &Arc<LivePool>, name: &str, bytes: &[u8]) {
    let id = Dsl::open(&pool.view()).await.unwrap().find(name).await.unwrap().objset_id();
    let volume = pool.volume(id).await.expect("a volume");
    let count = VOLUME_BYTES / BLOCK;
    let mut found = vec![0; BLOCK as usize];
    for step in 0..count {
        let at = (step * 257 % count * BLOCK) as usize;
        volume.read_at(at as u64, &mut found).await.expect("a read");
        assert!(found == bytes[at..at + BLOCK as usize], "byte {at}");
    }
}

/// Feeds the cache device until nothing is left to be written.
async fn feed(pool: &Arc<LivePool>) {
    let stats = pool.pool().l2arc().stats();
    for _ in 0..100 {
        let before = stats.l2_write_bytes.get();
        pool.feed_l2arc().await;
        if stats.l2_write_bytes.get() == before {
            return;
        }
    }
}

fn run(vm: &KernelVm, script: &str, disks: &[PathBuf]) -> String {
    let outcome = vm.run(&Job::new(script, disks.to_vec())).expect("the machine runs");
    assert_eq!(outcome.code, Some(0), "{}", outcome.output);
    outcome.output
}

/// A counter of the module.
fn counter(output: &str, name: &str) -> u64 {
    let line = output.lines().rev().find(|line| line.split_whitespace().next() == Some(name));
    let value =
        line.and_then(|line| line.split_whitespace().nth(2)).unwrap_or_else(|| panic!("{name}: {output}"));
    value.parse().expect("a number")
}

/// The same bytes in an encrypted volume, in the place of the plain one.
async fn encrypt(pool: &Arc<LivePool>, name: &str, bytes: &[u8]) {
    let key = UserKey::new(KeyFormat::Hex, HEX.as_bytes(), None, &**pool.env()).expect("a key");
    let contents = NewContents::Volume { size: VOLUME_BYTES, sparse: true };
    let properties = [("encryption", "aes-256-gcm"), ("keyformat", "hex"), ("volblocksize", "16K")];
    super::encrypted::create(pool, name, contents, &properties, Some(key)).await;
    let written = volume(pool, name).await;
    for (place, piece) in (0u64..).zip(bytes.chunks(128 << 10)) {
        written.write_at(place * (128 << 10), piece, false).await.expect("a write");
    }
    drop(written);
    let snapshot = ["tank/vol@ours".to_owned()];
    let destroy = |s: Syncing| async move { edit::destroy_snapshots(&s, &snapshot, false).await };
    pool.change(destroy).await.expect("its snapshot");
    let destroy = |s: Syncing| async move { edit::destroy(&s, "tank/vol").await.map(drop) };
    pool.change(destroy).await.expect("the plain one");
    pool.flush_cache();
}

#[test]
fn the_kernel_finds_our_cached_blocks_again_and_we_find_its() {
    share("tank/vol", false);
}

#[test]
fn the_kernel_decrypts_what_we_cached_and_we_decrypt_what_it_did() {
    share("tank/secret", true);
}

fn share(name: &str, is_encrypted: bool) {
    let Some(vm) = KernelVm::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let disks: Vec<PathBuf> = ["d0", "cache"].map(|name| folder.path().join(name)).into();
    for (disk, bytes) in disks.iter().zip([DISK_BYTES, CACHE_BYTES]) {
        std::fs::File::create(disk).and_then(|file| file.set_len(bytes)).expect("a disk");
    }
    let bytes = content(VOLUME_BYTES);
    create(Layout::Single, &disks[..1], &bytes);
    block_on(async {
        let pool = import(&disks, 2).await;
        if is_encrypted {
            encrypt(&pool, name, &bytes).await;
        }
        let leaf =
            NewLeaf { device: open(&disks[1]), path: disks[1].clone(), is_file: false, whole_disk: false };
        pool.add_auxiliary(Auxiliary::Cache, vec![leaf]).await.expect("a cache device");
        pool.feed_l2arc().await;
        read(&pool, name, &bytes).await;
        feed(&pool).await;
        let stats = pool.pool().l2arc().stats();
        assert!(stats.l2_log_blk_count.get() > 5);
        // All that is on the device is what the pool has.
        pool.flush_cache();
        read(&pool, name, &bytes).await;
        assert!(stats.l2_hits.get() >= VOLUME_BYTES / BLOCK / 2, "{:?}", stats.all());
        assert_eq!((stats.l2_cksum_bad.get(), stats.l2_io_error.get()), (0, 0), "{:?}", stats.all());
        pool.close(PoolState::Exported).await.expect("an export");
    });
    let load = if is_encrypted { format!("echo {HEX} | zfs load-key {name}") } else { "true".to_owned() };
    if is_encrypted {
        let planted = [&bytes[100_000..100_048], &bytes[(8 << 20) + 5..][..48]];
        // The other disk had the plain volume.
        for planted in planted {
            assert_eq!(testkit::search::find(&disks[1], planted).expect("the cache device"), None);
        }
    }
    let script = format!(
        "
        set -e
        echo 0 > /sys/module/zfs/parameters/l2arc_noprefetch
        zpool import -d /dev tank
        {load}
        for i in $(seq 30); do
            grep -q 'l2_rebuild_success .* 1$' /proc/spl/kstat/zfs/arcstats && [ -e /dev/zd0 ] && break
            sleep 1
        done
        sha256sum /dev/zd0
        grep ^l2_ /proc/spl/kstat/zfs/arcstats
        zpool iostat -v tank
        dd if=/dev/zero of=/dev/zd0 bs=1M count=1 conv=notrunc,fsync 2>/dev/null
        sync; zpool sync
        sha256sum /dev/zd0 > /dev/null
        sleep 5
        grep ^l2_ /proc/spl/kstat/zfs/arcstats
        zpool export tank
        "
    );
    let output = run(&vm, &script, &disks);
    let said = &output[..output.find("capacity").expect("iostat")];
    assert!(said.contains(&hex_sha256(&bytes)), "{said}");
    assert_eq!(counter(said, "l2_rebuild_success"), 1, "{said}");
    assert!(counter(said, "l2_rebuild_bufs") >= VOLUME_BYTES / BLOCK, "{said}");
    assert!(counter(said, "l2_hits") > 100, "{said}");
    // The module finds some encrypted blocks unfit, others in each run, and takes them from the pool: one to
    // 13 of 1024 were seen. That all on the device are right was looked at above.
    let unfit = if is_encrypted { VOLUME_BYTES / BLOCK / 10 } else { 0 };
    assert!(counter(said, "l2_cksum_bad") <= unfit, "{said}");
    assert_eq!(counter(said, "l2_io_error"), 0, "{said}");

    let mut now = bytes;
    now[..1 << 20].fill(0);
    block_on(async {
        let pool = import(&disks, 3).await;
        pool.feed_l2arc().await;
        if is_encrypted {
            let dsl = Dsl::open(&pool.view()).await.expect("datasets");
            dsl.load_key(name, HEX.as_bytes(), false).await.expect("the key");
        }
        let stats = pool.pool().l2arc().stats();
        assert_eq!(stats.l2_rebuild_success.get(), 1, "{:?}", stats.all());
        pool.flush_cache();
        read(&pool, name, &now).await;
        // The module drops encrypted blocks that it found unfit, and what was read ahead with them.
        let least = if is_encrypted { 100 } else { VOLUME_BYTES / BLOCK / 2 };
        assert!(stats.l2_hits.get() >= least, "{:?}", stats.all());
        assert_eq!((stats.l2_cksum_bad.get(), stats.l2_io_error.get()), (0, 0), "{:?}", stats.all());
        pool.close(PoolState::Exported).await.expect("an export");
    });
    if let Some(said) = testkit::oracle::cache_device(&disks[1]) {
        assert!(said.contains("0 with invalid cksum"), "{said}");
    }
}
