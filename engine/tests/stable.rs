//! What is to be stable does not wait for what others have compressed.
//!
//! The compute threads of this process are held by the test, so that no group that has anything to be encoded
//! there ends: as slow as a machine can be. That is why these tests are a program of their own,
//! and run one after the other.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use device::{IgnorePoison, block_on};
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::pool::live::{Layout, LivePool, Surroundings};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::zpl::LiveZpl;
use engine::zpl::live::WriteOptions;
use ondisk::vdev_config::PoolState;
use ondisk::{ObjectId, ObjsetId};

use files::FILE;
use support::{Disks, new_pool, surroundings};

#[allow(dead_code, reason = "parts of it are for others")]
#[path = "live/files.rs"]
mod files;
#[allow(dead_code, reason = "parts of it are for others")]
#[path = "live/support.rs"]
mod support;

const MIB: u64 = 1 << 20;
/// What may be dirty in these pools.
const DIRTY_BYTES: u64 = 32 * MIB;
/// Longer than anything here takes by itself: who waits so long waits for the threads that are held.
const NEVER: Duration = Duration::from_secs(60);

/// One test at a time: they share the compute threads.
static TURN: Mutex<()> = Mutex::new(());

/// The compute threads, which do nothing else until this is dropped.
struct Held {
    over: Arc<(Mutex<bool>, Condvar)>,
}

impl Held {
    fn all() -> Self {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let (held, all) = (Arc::new(AtomicUsize::new(0)), rayon::current_num_threads());
        for _ in 0..all {
            let (over, held) = (Arc::clone(&over), Arc::clone(&held));
            rayon::spawn(move || {
                held.fetch_add(1, Ordering::SeqCst);
                let is_over = over.0.lock().unwrap();
                drop(over.1.wait_while(is_over, |is_over| !*is_over).unwrap());
            });
        }
        while held.load(Ordering::SeqCst) < all {
            std::thread::yield_now();
        }
        Self { over }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.over.0.lock().unwrap() = true;
        self.over.1.notify_all();
    }
}

/// A writer of bytes that do not compress, who writes until it is told to end.
struct Writer {
    ends: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn begin(zpl: &Arc<LiveZpl>) -> Self {
        let (zpl, ends, written) =
            (Arc::clone(zpl), Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let thread = std::thread::spawn({
            let (ends, written) = (Arc::clone(&ends), Arc::clone(&written));
            move || {
                let file = block_on(zpl.create(zpl.zpl().root(), b"bulk", &FILE)).unwrap();
                for at in 0.. {
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                    let bytes = noise(at + 1, MIB);
                    block_on(zpl.write(file, at % 64 * MIB, &bytes, &WriteOptions::default())).unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Self { ends, written, thread: Some(thread) }
    }

    /// Waits until it waits: it has written something, and then nothing for a while.
    fn is_held_up(&self) {
        let mut before = 0;
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let now = self.written.load(Ordering::SeqCst);
            if now > 0 && now == before {
                return;
            }
            before = now;
        }
    }

    fn end(mut self) {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn noise(seed: u64, length: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length / 8).flat_map(|_| next().to_le_bytes()).collect()
}

async fn dataset(
    pool: &Arc<LivePool>,
    name: &str,
    volume: Option<u64>,
    properties: &[(&str, &str)],
) -> ObjsetId {
    let properties: Vec<_> =
        properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let contents = match volume {
        Some(size) => NewContents::Volume { size, sparse: true },
        None => NewContents::Filesystem,
    };
    let new = NewDataset { name: format!("tank/{name}"), contents, properties };
    pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap()
}

async fn pool(disks: &Disks) -> Arc<LivePool> {
    let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
    let limits = Limits { dirty_bytes: DIRTY_BYTES, sync_bytes: DIRTY_BYTES / 4, ..Limits::default() };
    let pool = LivePool::create(new, Surroundings { limits, ..surroundings(1) }).await.unwrap();
    pool.start().unwrap();
    pool
}

/// Does it on a thread of its own, and fails when that comes to no end.
fn at_once<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(work()));
    told.recv_timeout(NEVER).unwrap_or_else(|_| panic!("{what} waits for what others have compressed"))
}

async fn written_and_synced(zpl: &LiveZpl, file: ObjectId, at: u64) {
    zpl.write(file, at, &noise(at + 9, 4096), &WriteOptions::default()).await.unwrap();
    zpl.fsync(file).await.unwrap();
}

async fn commit(pool: &LivePool) {
    pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
}

/// A file of another dataset, whose log is on disk, beside one who writes into `compression=gzip-9` and
/// waits.
fn fsync_beside(
    bulk_properties: &'static [(&'static str, &'static str)],
    bulk_and_file_share_a_dataset: bool,
) {
    let _turn = TURN.lock().ignore_poison();
    let disks = Disks::new(512 * MIB);
    block_on(async {
        let pool = pool(&disks).await;
        let bulk = pool.filesystem(dataset(&pool, "bulk", None, bulk_properties).await).await.unwrap();
        let quick = match bulk_and_file_share_a_dataset {
            true => Arc::clone(&bulk),
            false => pool.filesystem(dataset(&pool, "quick", None, &[]).await).await.unwrap(),
        };
        let file = quick.create(quick.zpl().root(), b"log", &FILE).await.unwrap();
        written_and_synced(&quick, file, 0).await;
        written_and_synced(&quick, file, 4096).await;
        commit(&pool).await;
        let held = Held::all();
        let writer = Writer::begin(&bulk);
        writer.is_held_up();
        let stable = Arc::clone(&quick);
        at_once("an fsync", move || {
            block_on(async {
                for at in 0..32 {
                    written_and_synced(&stable, file, at * 4096).await;
                }
            });
        });
        drop(held);
        writer.end();
        commit(&pool).await;
        drop((bulk, quick));
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn an_fsync_returns_while_a_closing_group_of_another_dataset_is_compressed() {
    fsync_beside(&[("compression", "gzip-9")], false);
}

#[test]
fn an_fsync_of_a_small_file_returns_beside_a_writer_of_the_same_dataset() {
    fsync_beside(&[("compression", "gzip-9")], true);
}

#[test]
fn an_fsync_returns_while_others_have_all_that_may_be_dirty() {
    fsync_beside(&[("compression", "off")], false);
}

#[test]
fn large_writes_that_are_logged_by_pointer_are_not_compressed_behind_groups() {
    let _turn = TURN.lock().ignore_poison();
    let disks = Disks::new(512 * MIB);
    block_on(async {
        let pool = pool(&disks).await;
        let bulk = dataset(&pool, "bulk", None, &[("compression", "gzip-9")]).await;
        let bulk = pool.filesystem(bulk).await.unwrap();
        let properties = [("compression", "gzip-9"), ("volblocksize", "64K")];
        let vol = dataset(&pool, "vol", Some(64 * MIB), &properties).await;
        let vol = pool.volume(vol).await.unwrap();
        // The first flush begins the log, and waits for its group.
        vol.write_at(0, &noise(2, 4096), true).await.unwrap();
        commit(&pool).await;
        let held = Held::all();
        let writer = Writer::begin(&bulk);
        writer.is_held_up();
        let written = Arc::clone(&vol);
        at_once("a flush", move || block_on(written.write_at(0, &noise(1, 256 << 10), true)).unwrap());
        drop(held);
        writer.end();
        let mut read = vec![0; 256 << 10];
        vol.read_at(0, &mut read).await.unwrap();
        assert!(read == noise(1, 256 << 10));
        drop((bulk, vol));
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
