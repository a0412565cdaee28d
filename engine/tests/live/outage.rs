//! Devices that give read errors for a while, each time from another read of the sync of a group on: the pool
//! waits for `zpool clear`, and then the group is committed with all that was in it.

use std::sync::Arc;
use std::thread;

use device::simulated::{Fault, SimulatedDevice};
use device::{Device, MemoryDevice, block_on};
use engine::cache::ArcCache;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::pool::discovery::{Candidate, group};
use engine::pool::import::ImportOptions;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewTop, Surroundings, Syncing};
use engine::pool::verify::{Progress, VerifyOptions, verify};
use engine::vdev::Class;
use engine::zpl::LiveZpl;
use engine::zpl::live::WriteOptions;
use engine::zvol::LiveZvol;
use futures_util::FutureExt;
use futures_util::future::join_all;
use ondisk::ObjectId;
use ondisk::vdev_config::PoolState;

use crate::files::{DIRECTORY, FILE};
use crate::support::{Disks, POOL, committing, full, new_pool, objset_of, surroundings};

const DISK_BYTES: u64 = 64 << 20;
const VOLUME_BYTES: u64 = 4 << 20;
/// Every so many outages the pool is given to `zdb`.
const JUDGED: u64 = 16;

async fn create(pool: &Arc<LivePool>, name: &str, contents: NewContents) {
    let properties = vec![("compression".into(), "off".into())];
    let new = NewDataset { name: full(name), contents, properties };
    committing(pool, pool.change(|s| async move { edit::create(&s, &new).await })).await.unwrap();
}

async fn volume(pool: &Arc<LivePool>) -> Arc<LiveZvol> {
    let dataset = pool.dataset(objset_of(pool, "vol").await.unwrap()).await.unwrap();
    LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.unwrap()
}

async fn files(pool: &Arc<LivePool>) -> Arc<LiveZpl> {
    let dataset = pool.dataset(objset_of(pool, "fs").await.unwrap()).await.unwrap();
    let options = engine::zpl::ZplOptions::default();
    LiveZpl::open_as_it_is(pool.txgs(), &dataset.objset, &dataset.zil, options).await.unwrap()
}

async fn snapshot(s: Syncing, name: &str) -> engine::Result<()> {
    let new = NewSnapshot { name: full(name), properties: Vec::new() };
    edit::snapshot(&s, &[new]).await.map(drop)
}

/// A pool with datasets of several kinds, of which there are blocks everywhere.
fn prepared() -> Vec<u8> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("/dev/d0", DISK_BYTES as usize));
    let leaf =
        NewLeaf { device: Arc::clone(&device), path: "/dev/d0".into(), is_file: true, whole_disk: false };
    let top = NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] };
    block_on(async {
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        create(&pool, "fs", NewContents::Filesystem).await;
        create(&pool, "gone", NewContents::Filesystem).await;
        create(&pool, "vol", NewContents::Volume { size: VOLUME_BYTES, sparse: true }).await;
        let zpl = files(&pool).await;
        let dir = committing(&pool, zpl.create(zpl.zpl().root(), b"dir", &DIRECTORY)).await.unwrap();
        for number in 0..300 {
            let name = format!("a file with a name that makes the directory large {number}");
            let file = committing(&pool, zpl.create(dir, name.as_bytes(), &FILE)).await.unwrap();
            let bytes = vec![number as u8; 3000];
            let options = WriteOptions::default();
            committing(&pool, zpl.write(file, 0, &bytes, &options)).await.unwrap();
        }
        let volume = volume(&pool).await;
        committing(&pool, volume.write_at(0, &vec![1; VOLUME_BYTES as usize], false)).await.unwrap();
        for name in ["vol@one", "fs@one"] {
            committing(&pool, pool.change(move |s| snapshot(s, name))).await.unwrap();
        }
        committing(&pool, volume.write_at(0, &vec![2; VOLUME_BYTES as usize / 2], false)).await.unwrap();
        drop((volume, zpl));
        pool.close(PoolState::Exported).await.unwrap();
    });
    block_on(device.read(0, DISK_BYTES as usize)).unwrap().to_vec()
}

async fn import(device: &Arc<SimulatedDevice>, seed: u64) -> Arc<LivePool> {
    let candidate = Candidate::examine(Arc::clone(device) as Arc<dyn Device>).await;
    let mut found = group(candidate.into_iter().collect());
    let options = ImportOptions { force: true, ..ImportOptions::default() };
    // Blocks do not stay in the ARC, so that the sync reads them.
    let cache = Some(Arc::new(ArcCache::new(1)));
    LivePool::import(&found.pop().unwrap(), &options, Surroundings { cache, ..surroundings(seed) })
        .await
        .unwrap()
}

/// Makes changes of all kinds in one or two groups, while all reads fail from the given one on, until the
/// pool is cleared. Says whether the pool had to wait, and gives the device's content.
fn outage(image: &[u8], after_reads: u64) -> (bool, Vec<u8>) {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::with_content("/dev/d0".to_owned(), image.to_vec()));
    let device = Arc::new(SimulatedDevice::new(Arc::clone(&memory), 7));
    let waited = block_on(async {
        let pool = import(&device, after_reads + 2).await;
        let (volume, zpl) = (volume(&pool).await, files(&pool).await);
        pool.start().unwrap();
        let dir = zpl.lookup(zpl.zpl().root(), b"dir").await.unwrap().unwrap();
        let file = zpl.create(dir, b"new", &FILE).await.unwrap();
        zpl.write(file, 0, &[3; 100_000], &WriteOptions::default()).await.unwrap();
        zpl.unlink(dir, b"a file with a name that makes the directory large 17").await.unwrap();
        volume.write_at(VOLUME_BYTES / 2, &[4; 64 << 10], false).await.unwrap();

        device.inject(Fault::ReadOutage { after_reads });
        let changing = Arc::clone(&pool);
        let changes = thread::spawn(move || {
            let pool = changing;
            let new = NewDataset {
                name: full("made"),
                contents: NewContents::Filesystem,
                properties: vec![("atime".into(), "off".into())],
            };
            let gone = [full("vol@one")];
            let destroy = |s: Syncing| async move { edit::destroy_snapshots(&s, &gone, false).await };
            let tasks = [
                pool.change(|s| async move { edit::create(&s, &new).await.map(drop) }).boxed_local(),
                pool.change(|s| snapshot(s, "fs@two")).boxed_local(),
                pool.change(destroy).boxed_local(),
                pool.change(|s| async move { edit::destroy(&s, &full("gone")).await.map(drop) })
                    .boxed_local(),
            ];
            block_on(join_all(tasks)).into_iter().collect::<engine::Result<Vec<()>>>().map(drop)
        });
        let mut waited = false;
        while !changes.is_finished() {
            if pool.suspended().is_some() {
                assert!(pool.txgs().stopped().is_none(), "read {after_reads}: {:?}", pool.txgs().stopped());
                waited = true;
                device.heal();
                pool.clear(None).await.unwrap();
            }
            thread::yield_now();
        }
        device.heal();
        changes.join().unwrap().unwrap_or_else(|error| panic!("read {after_reads}: {error}"));

        let view = pool.view();
        let dsl = Dsl::open(&view).await.unwrap();
        for there in ["fs@two", "made", "vol"] {
            dsl.entry(&full(there)).await.unwrap();
        }
        for gone in ["gone", "vol@one"] {
            assert!(dsl.entry(&full(gone)).await.is_err(), "{gone}");
        }
        drop((dsl, view));
        let mut bytes = vec![0; VOLUME_BYTES as usize];
        volume.read_at(0, &mut bytes).await.unwrap();
        let (half, later) = (VOLUME_BYTES as usize / 2, VOLUME_BYTES as usize / 2 + (64 << 10));
        assert!(bytes[..half].iter().all(|byte| *byte == 2));
        assert!(bytes[half..later].iter().all(|byte| *byte == 4));
        assert!(bytes[later..].iter().all(|byte| *byte == 1));
        holds(&zpl, dir, b"new", 3, 100_000).await;
        holds(&zpl, dir, b"a file with a name that makes the directory large 18", 18, 3000).await;
        drop((volume, zpl));
        pool.close(PoolState::Exported).await.unwrap();
        waited
    });
    (waited, block_on(memory.read(0, DISK_BYTES as usize)).unwrap().to_vec())
}

async fn holds(zpl: &LiveZpl, dir: ObjectId, name: &[u8], byte: u8, length: usize) {
    let file = zpl.lookup(dir, name).await.unwrap().unwrap();
    let mut bytes = vec![0; length + 1];
    assert_eq!(zpl.read(file, 0, &mut bytes).await.unwrap(), length);
    assert!(bytes[..length].iter().all(|read| *read == byte));
}

#[test]
fn a_group_in_which_any_read_fails_is_committed_after_clear() {
    let image = prepared();
    let (mut waits, mut after_reads) = (0, 0);
    loop {
        let (waited, content) = outage(&image, after_reads);
        let device: Arc<dyn Device> =
            Arc::new(MemoryDevice::with_content("/dev/d0".to_owned(), content.clone()));
        block_on(async {
            let pool = import(&Arc::new(SimulatedDevice::new(device, 1)), 1).await;
            let results = verify(&pool.view(), VerifyOptions::default(), &Progress::default()).unwrap();
            assert!(results.is_clean(), "read {after_reads}: {results:?}");
        });
        if waits % JUDGED == 0 || !waited {
            let disks = Disks::new(0);
            std::fs::write(disks.file("d0"), &content).unwrap();
            disks.judge(POOL);
        }
        if !waited {
            break;
        }
        waits += 1;
        // The later ones are more of the same kind.
        after_reads += 1 + after_reads / 8;
    }
    assert!(waits > 10, "{waits} reads failed");
}
