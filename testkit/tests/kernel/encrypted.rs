//! Encrypted datasets of all suites: the module scrubs them without keys, opens them with the keys of their
//! users, reads what we wrote, writes, takes snapshots, gives a root another key, and replays an intent log
//! of ours. Then we open what it left with the new key.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::pool::live::LivePool;
use engine::zpl::live::WriteOptions;
use ondisk::vdev_config::PoolState;
use testkit::kernel::{Job, KernelVm};
use testkit::manifest::hex_sha256;

use super::dedup::{check, disks_in, mirror, volume};
use super::log::files::FILE;
use super::scrub::import;
use super::{VOLUME_BYTES, content, surroundings};

const SUITES: [&str; 6] =
    ["aes-128-ccm", "aes-192-ccm", "aes-256-ccm", "aes-128-gcm", "aes-192-gcm", "aes-256-gcm"];
pub const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const PASSPHRASE: &str = "correct horse battery staple";

pub async fn create(
    pool: &Arc<LivePool>,
    name: &str,
    contents: NewContents,
    properties: &[(&str, &str)],
    key: Option<UserKey>,
) {
    let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let new = NewDataset { name: name.into(), contents, properties: properties.collect() };
    let key = key.map(Arc::new);
    let created = pool.change(|s| async move { edit::create_with_key(&s, &new, key.as_ref()).await }).await;
    created.expect("a dataset");
}

pub async fn write_file(pool: &Arc<LivePool>, of: &str, name: &[u8], bytes: &[u8], is_sync: bool) {
    let id = Dsl::open(&pool.view()).await.expect("datasets").find(of).await.expect(of).objset_id();
    let zpl = pool.filesystem(id).await.expect("a filesystem");
    let file = zpl.create(zpl.zpl().root(), name, &FILE).await.expect("a file");
    zpl.write(file, 0, bytes, &WriteOptions::default()).await.expect("a write");
    if is_sync {
        zpl.sync_all().await.expect("stable");
    }
}

pub async fn load(pool: &Arc<LivePool>, root: &str, key: &str) {
    let dsl = Dsl::open(&pool.view()).await.expect("datasets");
    dsl.load_key(root, key.as_bytes(), false).await.expect(root);
    pool.replay_unlocked().await.expect("logs");
}

#[test]
fn the_kernel_and_we_share_encrypted_datasets() {
    let Some(vm) = KernelVm::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let disks = disks_in(folder.path());
    let crashed: Vec<PathBuf> = (0..2).map(|index| folder.path().join(format!("c{index}"))).collect();
    let bytes = content(VOLUME_BYTES);
    let last = b"the log has it alone".to_vec();
    block_on(async {
        let pool = LivePool::create(mirror(&disks, true), surroundings(1)).await.expect("a pool");
        pool.start().expect("a thread");
        for suite in SUITES {
            let name = format!("tank/{suite}");
            let key = UserKey::new(KeyFormat::Hex, HEX.as_bytes(), None, &**pool.env()).expect("a key");
            let properties = [("encryption", suite), ("keyformat", "hex"), ("xattr", "sa")];
            create(&pool, &name, NewContents::Filesystem, &properties, Some(key)).await;
            write_file(&pool, &name, b"data", &bytes[..1 << 20], false).await;
        }
        let key = UserKey::new(KeyFormat::Passphrase, PASSPHRASE.as_bytes(), Some(100_000), &**pool.env());
        let properties = [("encryption", "on"), ("keyformat", "passphrase"), ("copies", "2")];
        create(&pool, "tank/root", NewContents::Filesystem, &properties, Some(key.expect("a key"))).await;
        let contents = NewContents::Volume { size: VOLUME_BYTES, sparse: true };
        create(&pool, "tank/root/vol", contents, &[("volblocksize", "16K")], None).await;
        let written = volume(&pool, "tank/root/vol").await;
        for (place, piece) in (0u64..).zip(bytes.chunks(128 << 10)) {
            written.write_at(place * (128 << 10), piece, place % 16 == 0).await.expect("a write");
        }
        written.flush().await.expect("a flush");
        drop(written);
        let snapshot = NewSnapshot { name: "tank/root/vol@ours".into(), properties: Vec::new() };
        pool.change(move |s| async move { edit::snapshot(&s, &[snapshot]).await }).await.expect("a snapshot");
        let (of, name) = ("tank/root/vol@ours", "tank/root/clone");
        pool.change(move |s| async move { edit::clone(&s, of, name, &[]).await }).await.expect("a clone");
        pool.sync().await.expect("a commit");
        write_file(&pool, "tank/aes-256-gcm", b"last", &last, true).await;
        for (disk, copy) in disks.iter().zip(&crashed) {
            std::fs::copy(disk, copy).expect("a copy");
        }
    });
    let script = format!(
        "
        set -e
        zpool import -f -d /dev tank
        zpool scrub -w tank
        zpool status -v tank
        mkdir -p /m
        for suite in {}; do
          echo {HEX} | zfs load-key tank/$suite
          mount -t zfs -o zfsutil tank/$suite /m
          sha256sum /m/data
          [ $suite != aes-256-gcm ] || sha256sum /m/last
          cp /m/data /m/copy
          umount /m
        done
        ! echo 'a wrong passphrase' | zfs load-key tank/root
        echo '{PASSPHRASE}' | zfs load-key tank/root
        for i in $(seq 20); do [ -e /dev/zd0 ] && [ -e /dev/zd16 ] && break; sleep 1; done
        sha256sum /dev/zd0 /dev/zd16
        dd if=/dev/zero of=/dev/zd0 bs=1M count=1 conv=notrunc,fsync 2>/dev/null
        (echo 'another passphrase'; echo 'another passphrase') | zfs change-key tank/root
        zfs snapshot -r tank@kernel
        zpool scrub -w tank
        zpool status -v tank
        zpool export tank
        ",
        SUITES.join(" ")
    );
    let mut job = Job::new(script, crashed.clone());
    job.limit *= 2;
    let outcome = vm.run(&job).expect("the machine runs");
    let said = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{said}");
    assert_eq!(said.matches("errors: No known data errors").count(), 2, "{said}");
    assert_eq!(said.matches("with 0 errors").count(), 2, "{said}");
    assert_eq!(said.matches(&hex_sha256(&bytes[..1 << 20])).count(), SUITES.len(), "{said}");
    assert_eq!(said.matches(&hex_sha256(&last)).count(), 1, "the log is replayed: {said}");
    assert_eq!(said.matches(&hex_sha256(&bytes)).count(), 2, "the volume and its clone: {said}");
    for disk in &disks {
        std::fs::remove_file(disk).expect("gone");
    }
    block_on(async {
        let pool = import(&crashed, 2).await;
        let dsl = Dsl::open(&pool.view()).await.expect("datasets");
        let old = dsl.load_key("tank/root", PASSPHRASE.as_bytes(), false).await;
        assert!(old.is_err(), "the old key opens nothing");
        load(&pool, "tank/root", "another passphrase").await;
        let mut found = vec![0; bytes.len()];
        for name in ["tank/root/vol", "tank/root/clone"] {
            volume(&pool, name).await.read_at(0, &mut found).await.expect(name);
            let zeroes = found[..1 << 20].iter().all(|byte| *byte == 0);
            assert!(zeroes || found[..1 << 20] == bytes[..1 << 20], "{name}");
            assert!(found[1 << 20..] == bytes[1 << 20..], "{name}");
        }
        for suite in SUITES {
            let name = format!("tank/{suite}");
            load(&pool, &name, HEX).await;
            let id = Dsl::open(&pool.view()).await.expect("datasets").find(&name).await.expect("it is there");
            let zpl = pool.filesystem(id.objset_id()).await.expect("a filesystem");
            let root = zpl.zpl().node(zpl.zpl().root()).await.expect("its root");
            let copy = root.lookup(b"copy").await.expect("its entries").expect("what the module wrote");
            let mut found = vec![0; 1 << 20];
            assert_eq!(zpl.read(copy, 0, &mut found).await.expect("its bytes"), 1 << 20);
            assert!(found == bytes[..1 << 20], "{suite}");
            write_file(&pool, &name, b"ours", &bytes[..1 << 19], false).await;
        }
        pool.close(PoolState::Exported).await.expect("an export");
    });
    let complaint = testkit::oracle::complaint(folder.path(), "tank");
    assert!(complaint.is_none(), "{complaint:?}");
    let script = format!(
        "
        set -e
        zpool import -d /dev tank
        mkdir -p /m
        for suite in {}; do
          echo {HEX} | zfs load-key tank/$suite
          mount -t zfs -o zfsutil tank/$suite /m
          sha256sum /m/ours
          umount /m
        done
        zpool scrub -w tank
        zpool status -v tank
        zfs unload-key -a
        zfs destroy -r tank/root
        zpool sync tank
        zpool export tank
        ",
        SUITES.join(" ")
    );
    let outcome = vm.run(&Job::new(script, crashed)).expect("the machine runs");
    let said = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{said}");
    assert_eq!(said.matches(&hex_sha256(&bytes[..1 << 19])).count(), SUITES.len(), "{said}");
    assert!(said.contains("with 0 errors") && said.contains("errors: No known data errors"), "{said}");
}

/// What a file holds.
async fn read_file(pool: &Arc<LivePool>, of: &str, name: &[u8], length: usize) -> Vec<u8> {
    let id = Dsl::open(&pool.view()).await.expect("datasets").find(of).await.expect(of).objset_id();
    let zpl = pool.filesystem(id).await.expect("a filesystem");
    let root = zpl.zpl().node(zpl.zpl().root()).await.expect("its root");
    let file = root.lookup(name).await.expect("its entries").expect("the file");
    let mut found = vec![0; length];
    assert_eq!(zpl.read(file, 0, &mut found).await.expect("its bytes"), length);
    found
}

/// The different records that a file with these bytes has.
fn blocks(bytes: &[u8]) -> HashSet<&[u8]> {
    bytes.chunks(16 << 10).collect()
}

/// The module finds our entries by what it encrypts itself, and we find its entries; both take away what the
/// other one has entered.
fn share_deduplicated(is_fast: bool, suite: &str) {
    let Some(vm) = KernelVm::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let disks = disks_in(folder.path());
    let bytes = content(VOLUME_BYTES);
    let (data, other) = bytes.split_at(1 << 20);
    let other = &other[..1 << 20];
    let fs = "tank/e/fs";
    let entries = block_on(async {
        let pool = LivePool::create(mirror(&disks, is_fast), surroundings(1)).await.expect("a pool");
        pool.start().expect("a thread");
        let key = UserKey::new(KeyFormat::Hex, HEX.as_bytes(), None, &**pool.env()).expect("a key");
        let properties = [
            ("encryption", suite),
            ("keyformat", "hex"),
            ("dedup", "on"),
            ("recordsize", "16K"),
            ("compression", "lz4"),
        ];
        create(&pool, "tank/e", NewContents::Filesystem, &properties, Some(key)).await;
        create(&pool, fs, NewContents::Filesystem, &[("copies", "2")], None).await;
        for name in [b"data" as &[u8], b"twice"] {
            write_file(&pool, fs, name, data, name == b"twice").await;
        }
        let contents = NewContents::Volume { size: VOLUME_BYTES, sparse: true };
        let properties = [("volblocksize", "16K"), ("dedup", "verify")];
        create(&pool, "tank/e/vol", contents, &properties, None).await;
        let written = volume(&pool, "tank/e/vol").await;
        for (place, piece) in (0u64..).zip(bytes.chunks(128 << 10)) {
            written.write_at(place * (128 << 10), piece, place % 4 == 0).await.expect("a write");
        }
        drop(written);
        let entries = check(&pool).await;
        assert!(entries >= VOLUME_BYTES / (16 << 10) / 2, "{entries}");
        pool.close(PoolState::Exported).await.expect("an export");
        entries
    });
    let complaint = testkit::oracle::complaint(folder.path(), "tank");
    assert!(complaint.is_none(), "{complaint:?}");
    let script = format!(
        "
        set -e
        zpool import -d /dev tank
        zpool scrub -w tank
        zpool status -v tank
        echo {HEX} | zfs load-key tank/e
        mkdir -p /m
        mount -t zfs -o zfsutil {fs} /m
        for i in $(seq 20); do [ -e /dev/zd0 ] && break; sleep 1; done
        sha256sum /m/data /m/twice /dev/zd0
        cp /m/data /m/copy; sync
        rm /m/data
        umount /m
        zfs unload-key -a || true
        zpool sync tank
        zpool scrub -w tank
        zpool status -v tank
        zpool export tank
        "
    );
    let outcome = vm.run(&Job::new(script, disks.clone())).expect("the machine runs");
    let said = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{said}");
    assert_eq!(said.matches("errors: No known data errors").count(), 2, "{said}");
    assert_eq!(said.matches("with 0 errors").count(), 2, "{said}");
    assert_eq!(said.matches(&hex_sha256(data)).count(), 2, "both files: {said}");
    assert_eq!(said.matches(&hex_sha256(&bytes)).count(), 1, "the volume: {said}");
    block_on(async {
        let pool = import(&disks, 2).await;
        assert_eq!(check(&pool).await, entries, "its copy found our entries");
        load(&pool, "tank/e", HEX).await;
        for name in [b"copy" as &[u8], b"twice"] {
            assert!(read_file(&pool, fs, name, data.len()).await == data);
        }
        write_file(&pool, fs, b"other", other, true).await;
        write_file(&pool, fs, b"other again", other, false).await;
        let now = check(&pool).await;
        let new = blocks(other).difference(&blocks(data)).count() as u64;
        assert_eq!(now, entries + new, "each block once");
        pool.close(PoolState::Exported).await.expect("an export");
    });
    let complaint = testkit::oracle::complaint(folder.path(), "tank");
    assert!(complaint.is_none(), "{complaint:?}");
    let script = format!(
        "
        set -e
        zpool import -d /dev tank
        echo {HEX} | zfs load-key tank/e
        mkdir -p /m
        mount -t zfs -o zfsutil {fs} /m
        sha256sum /m/other
        rm /m/twice /m/copy /m/other
        umount /m
        zfs destroy tank/e/vol
        zpool sync tank
        zpool wait -t free tank
        zpool scrub -w tank
        zpool status -v tank
        zpool export tank
        "
    );
    let outcome = vm.run(&Job::new(script, disks.clone())).expect("the machine runs");
    let said = &outcome.output;
    assert_eq!(outcome.code, Some(0), "{said}");
    assert_eq!(said.matches(&hex_sha256(other)).count(), 1, "{said}");
    assert!(said.contains("with 0 errors") && said.contains("errors: No known data errors"), "{said}");
    block_on(async {
        let pool = import(&disks, 3).await;
        assert_eq!(check(&pool).await, blocks(other).len() as u64, "those of one file are left");
        load(&pool, "tank/e", HEX).await;
        assert!(read_file(&pool, fs, b"other again", other.len()).await == other);
        pool.close(PoolState::Exported).await.expect("an export");
    });
}

#[test]
fn the_kernel_and_we_share_fast_tables_of_encrypted_blocks() {
    share_deduplicated(true, "aes-256-gcm");
}

#[test]
fn the_kernel_and_we_share_traditional_tables_of_encrypted_blocks() {
    share_deduplicated(false, "aes-128-ccm");
}
