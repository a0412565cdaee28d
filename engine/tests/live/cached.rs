//! What the ARC takes in of volumes (`primarycache`) and files, as its counters say.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use device::block_on;
use engine::cache::Primary;
use engine::dmu::Reader;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::pool::live::{Layout, LivePool, Syncing};
use engine::vdev::Class;
use engine::zpl::live::WriteOptions;
use engine::zvol::LiveZvol;
use futures_util::FutureExt;
use ondisk::vdev_config::PoolState;
use ondisk::{ObjectId, ObjsetId};

use crate::files::FILE;
use crate::filesystem;
use crate::support::{Disks, committing, new_pool, surroundings};

const BLOCK: u64 = 16 << 10;
const SIZE: u64 = 4 << 20;
/// The object of a volume that is its content.
const CONTENT: ObjectId = ObjectId(1);

/// A pool with a written and committed volume.
async fn create(disks: &Disks, primary: &str) -> (Arc<LivePool>, ObjsetId) {
    let top = disks.top(Layout::Single, Class::Normal, "d", 1);
    let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
    let new = NewDataset {
        name: "tank/vol".into(),
        contents: NewContents::Volume { size: SIZE, sparse: true },
        properties: vec![
            ("volblocksize".into(), BLOCK.to_string()),
            ("compression".into(), "off".into()),
            ("primarycache".into(), primary.into()),
        ],
    };
    let create = move |s: Syncing| async move { edit::create(&s, &new).await };
    let id = pool.change(create).await.unwrap();
    let volume = open(&pool, id).await;
    for block in 0..SIZE / BLOCK {
        volume.write_at(block * BLOCK, &[block as u8; BLOCK as usize], false).await.unwrap();
    }
    pool.sync().await.unwrap();
    (pool, id)
}

async fn open(pool: &Arc<LivePool>, id: ObjsetId) -> Arc<LiveZvol> {
    pool.volume(id).await.unwrap()
}

async fn close(pool: Arc<LivePool>, id: ObjsetId) {
    let dataset = pool.dataset(id).await.unwrap();
    committing(&pool, dataset.zil.close()).await.unwrap();
    drop(dataset);
    pool.close(PoolState::Exported).await.unwrap();
}

fn misses(pool: &Arc<LivePool>) -> u64 {
    pool.view().cache().stats().misses
}

/// Reads pieces of some blocks, here and there; how often the devices were asked.
async fn read(pool: &Arc<LivePool>, volume: &LiveZvol) -> u64 {
    let before = misses(pool);
    for block in [50, 3, 90, 17, 71] {
        for piece in [1, 0, 3] {
            let mut bytes = [0; 4096];
            volume.read_at(block * BLOCK + piece * 4096, &mut bytes).await.unwrap();
            assert_eq!(bytes, [block as u8; 4096]);
        }
    }
    misses(pool) - before
}

async fn set(pool: &Arc<LivePool>, primary: &str) {
    let value = vec![("primarycache".to_owned(), primary.to_owned())];
    pool.change(move |s| async move { edit::set_properties(&s, "tank", &value).await.map(drop) })
        .await
        .unwrap();
}

#[test]
fn what_is_written_and_read_is_cached_as_the_property_says() {
    for (primary, first, again) in [("all", 0, 0), ("metadata", 15, 15)] {
        let disks = Disks::new(128 << 20);
        block_on(async {
            let (pool, id) = create(&disks, primary).await;
            let volume = open(&pool, id).await;
            assert_eq!(read(&pool, &volume).await, first, "{primary}, just written");
            assert_eq!(read(&pool, &volume).await, again, "{primary}, again");
            drop(volume);
            close(pool, id).await;
        });
        disks.judge("tank");
    }
    // An open volume keeps what it looked up last, so that of its metadata some more is asked for at first
    // only.
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, id) = create(&disks, "none").await;
        let volume = open(&pool, id).await;
        assert!((16..20).contains(&read(&pool, &volume).await));
        drop(volume);
        close(pool, id).await;
    });
}

#[test]
fn a_block_that_is_changed_in_part_or_was_read_ahead_is_loaded_once() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, id) = create(&disks, "metadata").await;
        let volume = open(&pool, id).await;
        // Its old bytes are read for the new ones; what was written is not kept.
        let before = misses(&pool);
        volume.write_at(3 * BLOCK + 100, &[7; 512], false).await.unwrap();
        assert_eq!(misses(&pool) - before, 1);
        pool.sync().await.unwrap();
        let before = misses(&pool);
        let mut bytes = [0; 512];
        volume.read_at(3 * BLOCK + 100, &mut bytes).await.unwrap();
        assert_eq!((bytes, misses(&pool) - before), ([7; 512], 1));

        // What is there ahead stays until its end was read.
        let content = pool.dataset(id).await.unwrap().objset.object(CONTENT).await.unwrap();
        let before = misses(&pool);
        content.warm(9).await.unwrap();
        let mut bytes = [0; 4096];
        for piece in 0..4 {
            volume.read_at(9 * BLOCK + piece * 4096, &mut bytes).await.unwrap();
        }
        assert_eq!(misses(&pool) - before, 1);
        volume.read_at(9 * BLOCK, &mut bytes).await.unwrap();
        assert_eq!(misses(&pool) - before, 2);
        drop((volume, content));
        close(pool, id).await;
    });
    disks.judge("tank");
}

#[test]
fn the_property_holds_for_what_is_open_and_for_what_is_only_read() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let (pool, id) = create(&disks, "metadata").await;
        let inherited = "primarycache";
        let volume = open(&pool, id).await;
        let inherit = move |s: Syncing| async move {
            edit::inherit_property(&s, "tank/vol", inherited, false).await.map(drop)
        };
        pool.change(inherit).await.unwrap();
        assert_eq!(read(&pool, &volume).await, 5, "cached from now on");
        assert_eq!(read(&pool, &volume).await, 0);
        set(&pool, "none").await;
        let snapshot = vec![NewSnapshot { name: "tank/vol@s".into(), properties: vec![] }];
        pool.change(move |s| async move { edit::snapshot(&s, &snapshot).await }).await.unwrap();
        {
            let dsl = Dsl::open(&pool.view()).await.unwrap();
            let head = dsl.dataset_of_object(ObjectId(id.get())).await.unwrap();
            for dataset in dsl.snapshots(&head).await.unwrap().into_iter().chain([head]) {
                let objset = dsl.open_objset(&dataset).await.unwrap();
                assert_eq!(objset.primary().get(), Primary::None, "{}", dataset.name);
            }
        }
        drop(volume);
        close(pool, id).await;
    });
}

/// What is in a file; it does not compress, else it would be in its block pointer.
fn content(id: ObjectId) -> Vec<u8> {
    let word = |at: u64| (id.0 * 4096 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    (0..3000).map(|at| (word(at).wrapping_mul(word(at)) >> 40) as u8).collect()
}

/// How long what is loaded by others is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether all files of a dnode block come to be in the ARC after three were read, within `patience`, in a
/// pool that was just imported.
async fn neighbours_are_loaded(disks: &Disks, primary: &str, patience: Duration) -> bool {
    let pool = disks.import("tank", 5).await;
    set(&pool, primary).await;
    let zpl = filesystem::open(&pool).await;
    let root = zpl.zpl().root();
    let mut files = Vec::new();
    for number in 0..100 {
        let name = format!("file{number}");
        files.push(zpl.lookup(root, name.as_bytes()).await.unwrap().unwrap());
    }
    // The others of the block in which the fiftieth is.
    let together: Vec<ObjectId> = files.iter().copied().filter(|id| id.0 / 32 == files[50].0 / 32).collect();
    assert!(together.len() > 20, "{files:?}");
    let (three, others) = together.split_at(3);
    for id in three {
        let node = zpl.zpl().node(*id).await.unwrap();
        let mut bytes = [0; 3000];
        Reader::new(node.object().clone()).read_at(0, &mut bytes).await.unwrap();
        assert_eq!(bytes[..], content(*id));
    }
    let is_cached = async |id: &ObjectId| {
        let node = zpl.zpl().node(*id).await.unwrap();
        let mut bytes = [0; 3000];
        // What is cached is there in the first poll. What is not is not loaded either: the load is dropped.
        let read = node.object().read_at(0, &mut bytes).now_or_never();
        if let Some(read) = &read {
            assert!(read.is_ok() && bytes[..] == content(*id), "{read:?}");
        }
        read.is_some()
    };
    let end = Instant::now() + patience;
    let mut waiting = others.iter();
    let mut next = waiting.next();
    while let Some(id) = next
        && Instant::now() < end
    {
        if is_cached(id).await {
            next = waiting.next();
        } else {
            thread::sleep(Duration::from_millis(5));
        }
    }
    drop(zpl);
    pool.close(PoolState::Exported).await.unwrap();
    next.is_none()
}

#[test]
fn files_beside_those_that_are_read_are_loaded_too_where_data_are_cached() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let top = disks.top(Layout::Single, Class::Normal, "d", 1);
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        let zpl = filesystem::open(&pool).await;
        for number in 0..100 {
            let name = format!("file{number}");
            let id = zpl.create(zpl.zpl().root(), name.as_bytes(), &FILE).await.unwrap();
            zpl.write(id, 0, &content(id), &WriteOptions::default()).await.unwrap();
        }
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        assert!(neighbours_are_loaded(&disks, "all", PATIENCE).await);
        assert!(!neighbours_are_loaded(&disks, "metadata", Duration::from_secs(1)).await);
    });
}
