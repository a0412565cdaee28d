//! Nothing of what is encrypted is on the devices: not in blocks, not in intent logs on a log device, not on
//! a cache device, not in what is free again.
//!
//! Text is planted wherever a file or volume can have it, in an encrypted dataset and, another one, in a
//! plain one. After each kind of operation the raw devices are searched for both: the plain one shows that
//! the search finds what is there.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::pool::live::{Layout, LivePool, NewPool, Syncing};
use engine::tunables;
use engine::vdev::Class;
use engine::zpl::live::{RenameMode, WriteOptions};
use ondisk::vdev_config::PoolState;
use testkit::search;

use crate::encrypted::{PLANTED, plant};
use crate::files::FILE;
use crate::support::{Disks, POOL, full, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;
const VOLUME_BYTES: u64 = 2 * MIB;
const KEY: &[u8; 32] = b"and this is the key of that user";
/// In the plain datasets.
const PUBLIC: &[u8] = b"everyone who has the disk may read this one";

/// The devices on which something is.
fn with(disks: &Disks, text: &[u8]) -> Vec<PathBuf> {
    let files = fs::read_dir(disks.path()).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| search::find(path, text).unwrap().is_some()).collect()
}

/// Nothing that is secret is on any device.
fn search_all(disks: &Disks, after: &str) {
    for secret in [PLANTED, KEY] {
        let found = with(disks, secret);
        assert!(found.is_empty(), "after {after}: {} on {found:?}", String::from_utf8_lossy(secret));
    }
}

async fn create(pool: &Arc<LivePool>, suite: Option<&str>, dedup: &str, name: &str, contents: NewContents) {
    let mut new = NewDataset { name: full(name), contents, properties: Vec::new() };
    new.properties.extend([("compression".into(), "off".into()), ("dedup".into(), dedup.into())]);
    let mut key = None;
    if let Some(suite) = suite {
        let encryption = [("encryption", suite), ("keyformat", "raw")];
        new.properties.extend(encryption.map(|(name, value)| (name.into(), value.into())));
        key = Some(Arc::new(UserKey::new(KeyFormat::Raw, KEY, None, &**pool.env()).unwrap()));
    }
    pool.change(|s| async move { edit::create_with_key(&s, &new, key.as_ref()).await }).await.unwrap();
}

/// Writes text into a file or volume, with what makes it stable at once.
async fn write(pool: &Arc<LivePool>, name: &str, file: &str, text: &[u8]) {
    let zpl = pool.filesystem(objset_of(pool, name).await.unwrap()).await.unwrap();
    let file = zpl.create(zpl.zpl().root(), file.as_bytes(), &FILE).await.unwrap();
    zpl.write(file, 0, text, &WriteOptions::default()).await.unwrap();
    zpl.fsync(file).await.unwrap();
    zpl.write(file, 4096, &text.repeat(40), &WriteOptions::default()).await.unwrap();
    zpl.fsync(file).await.unwrap();
}

async fn write_volume(pool: &Arc<LivePool>, name: &str, text: &[u8]) {
    let volume = pool.volume(objset_of(pool, name).await.unwrap()).await.unwrap();
    let bytes: Vec<u8> = text.iter().copied().cycle().take(VOLUME_BYTES as usize / 2).collect();
    volume.write_at(0, &bytes[..4096], true).await.unwrap();
    volume.write_at(8192, &bytes, true).await.unwrap();
}

/// Reads everything of a volume, a block here and a block there, so that nothing is read ahead.
async fn read_volume(pool: &Arc<LivePool>, name: &str) {
    let volume = pool.volume(objset_of(pool, name).await.unwrap()).await.unwrap();
    let blocks = VOLUME_BYTES / volume.block_size();
    for step in 0..blocks {
        let block = step * 37 % blocks;
        volume.read_at(block * volume.block_size(), &mut [0; 512]).await.unwrap();
    }
}

/// Reads, and has the cache device fed until nothing is left to feed.
async fn feed(pool: &Arc<LivePool>) {
    let written = || pool.pool().l2arc().stats().l2_write_bytes.get();
    for _ in 0..100 {
        let before = written();
        for name in ["vol", "open-vol"] {
            read_volume(pool, name).await;
        }
        pool.feed_l2arc().await;
        if before > 0 && written() == before {
            return;
        }
    }
    panic!("feeding does not end: {} bytes", written());
}

/// Reads of a volume that a cache device answers.
async fn hits(pool: &Arc<LivePool>, name: &str) -> u64 {
    pool.flush_cache();
    let hits = || pool.pool().l2arc().stats().l2_hits.get();
    let before = hits();
    read_volume(pool, name).await;
    hits() - before
}

/// Cuts and renames files, and removes one.
async fn shuffle(pool: &Arc<LivePool>, name: &str) {
    let zpl = pool.filesystem(objset_of(pool, name).await.unwrap()).await.unwrap();
    let root = zpl.zpl().root();
    let text = PLANTED.repeat(500);
    for (number, length) in [(0, 5), (1, 4096), (2, 20_000)] {
        let (before, after) = (format!("cut {number}"), [PLANTED, &[b'0' + number]].concat());
        let file = zpl.create(root, before.as_bytes(), &FILE).await.unwrap();
        zpl.write(file, 0, &text, &WriteOptions::default()).await.unwrap();
        zpl.fsync(file).await.unwrap();
        zpl.truncate(file, length).await.unwrap();
        zpl.rename(root, before.as_bytes(), root, &after, RenameMode::Replace).await.unwrap();
        zpl.fsync(file).await.unwrap();
        zpl.copy_range(file, 0, file, 1 << 20, length).await.unwrap();
    }
    zpl.unlink(root, &[PLANTED, b"1"].concat()).await.unwrap();
    zpl.sync_all().await.unwrap();
}

fn nothing_is_readable(suite: &str, dedup: &str, seed: u64) {
    // A busy machine makes any device slow.
    tunables::L2ARC_BYPASS_SLOW.set(0).unwrap();
    let disks = Disks::new(128 * MIB);
    let new = NewPool {
        l2cache: vec![disks.leaf("cache")],
        ..new_pool(
            vec![
                disks.top(Layout::Single, Class::Normal, "data", 1),
                disks.top(Layout::Single, Class::Log, "log", 1),
            ],
            12,
        )
    };
    let devices = |text| {
        let mut names: Vec<String> = with(&disks, text)
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    block_on(async {
        let pool = LivePool::create(new, surroundings(seed)).await.unwrap();
        pool.start().unwrap();
        let volume = NewContents::Volume { size: VOLUME_BYTES, sparse: true };
        create(&pool, Some(suite), dedup, "fs", NewContents::Filesystem).await;
        create(&pool, Some(suite), dedup, "vol", volume.clone()).await;
        create(&pool, None, dedup, "open", NewContents::Filesystem).await;
        create(&pool, None, dedup, "open-vol", volume).await;
        search_all(&disks, "creating");

        let zpl = pool.filesystem(objset_of(&pool, "fs").await.unwrap()).await.unwrap();
        plant(&zpl, 1).await;
        drop(zpl);
        write(&pool, "open", "first", PUBLIC).await;
        write_volume(&pool, "vol", PLANTED).await;
        write_volume(&pool, "open-vol", PUBLIC).await;
        assert!(devices(PUBLIC).contains(&"log0".to_owned()), "the log device has the plain text");
        search_all(&disks, "writing what is stable");

        pool.change(|_| async { Ok(()) }).await.unwrap();
        assert!(devices(PUBLIC).contains(&"data0".to_owned()), "the pool has the plain text");
        search_all(&disks, "a commit");

        let new = NewSnapshot { name: full("fs@s"), properties: Vec::new() };
        pool.change(|s| async move { edit::snapshot(&s, &[new]).await }).await.unwrap();
        let clone = |s: Syncing| async move { edit::clone(&s, &full("fs@s"), &full("clone"), &[]).await };
        pool.change(clone).await.unwrap();
        write(&pool, "clone", "in the clone", PLANTED).await;
        write(&pool, "fs", "after the snapshot", PLANTED).await;
        write_volume(&pool, "vol", PLANTED).await;
        pool.change(|_| async { Ok(()) }).await.unwrap();
        search_all(&disks, "a snapshot and a clone");

        for name in ["fs", "clone"] {
            shuffle(&pool, name).await;
        }
        search_all(&disks, "changes of files");
        pool.change(|_| async { Ok(()) }).await.unwrap();
        search_all(&disks, "a commit of them");

        pool.flush_cache();
        feed(&pool).await;
        assert!(devices(PUBLIC).contains(&"cache".to_owned()), "the cache device has the plain text");
        search_all(&disks, "feeding the cache device");
        // The text fills blocks in eleven ways.
        let different = if dedup == "on" { 11 } else { VOLUME_BYTES / 2 / (16 << 10) };
        assert!(hits(&pool, "vol").await >= different, "ciphertext is there too");

        for name in ["fs", "vol"] {
            pool.unload_key(&full(name)).await.unwrap();
        }
        pool.change(|_| async { Ok(()) }).await.unwrap();
        search_all(&disks, "unloading the keys");
        pool.close(PoolState::Exported).await.unwrap();
        search_all(&disks, "the export");
    });
    block_on(async {
        let pool = disks.import(POOL, seed + 1).await;
        pool.start().unwrap();
        for name in ["fs", "vol"] {
            let dsl = Dsl::open(&pool.view()).await.unwrap();
            dsl.load_key(&full(name), KEY, false).await.unwrap();
        }
        feed(&pool).await;
        write(&pool, "fs", "after the import", PLANTED).await;
        for name in ["clone", "vol"] {
            let id = objset_of(&pool, name).await.unwrap();
            pool.close_log(id).await.unwrap();
            pool.change(move |s| async move { edit::destroy(&s, &full(name)).await }).await.unwrap();
        }
        pool.change(|_| async { Ok(()) }).await.unwrap();
        search_all(&disks, "destroying");
        pool.close(PoolState::Exported).await.unwrap();
    });
    search_all(&disks, "all");
    disks.judge(POOL);
}

#[test]
fn nothing_of_a_gcm_dataset_is_readable_on_any_device() {
    nothing_is_readable("aes-256-gcm", "off", 71);
}

#[test]
fn nothing_of_a_ccm_dataset_is_readable_on_any_device() {
    nothing_is_readable("aes-128-ccm", "off", 81);
}

#[test]
fn nothing_of_a_deduplicated_dataset_is_readable_on_any_device() {
    nothing_is_readable("aes-256-gcm", "on", 91);
}
