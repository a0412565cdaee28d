//! The intent logs of filesystems: what was made stable is there after a crash, as it was.
//!
//! Nothing commits groups here but the test itself, so that it knows what the log must have done. A crash is a copy of the devices between two operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::block_on;
use device::simulated::{Fault, SimulatedDevice};
use engine::dataset::dsl::Dsl;
use engine::dataset::zpl::live::{
    AllocateMode, NewKind, NewNode, RenameMode, SetAttributes, WriteOptions, XattrPlace, XattrSet,
};
use engine::dataset::zpl::{LiveZpl, Time, Zpl, ZplOptions};
use engine::env::{Env, Seeded};
use engine::pool::import::{ImportError, ImportOptions};
use engine::pool::live::{Layout, LiveDataset, LivePool};
use engine::vdev::Class;
use engine::zil::SyncMode;
use ondisk::ObjectId;
use ondisk::vdev_config::PoolState;
use ondisk::zpl::{FileType, ZnodeFlags};

use crate::support::{Disks, committing, new_pool, surroundings};
use crate::volumes::crashed;

const FILE: NewNode<'_> = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
const DIRECTORY: NewNode<'_> = NewNode { kind: NewKind::Directory, mode: 0o755, umask: 0, uid: 7, gid: 8 };

/// What a replay must bring back of a file; times of changes are those of the replay.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    id: ObjectId,
    generation: u64,
    mode: u32,
    owner: (u32, u32),
    links: u32,
    size: u64,
    crtime: Time,
    device: (u32, u32),
    flags: u64,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

async fn see(zpl: &Arc<Zpl>) -> BTreeMap<String, Seen> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(String::new(), zpl.root())];
    while let Some((path, id)) = waiting.pop() {
        let node = zpl.node(id).await.unwrap();
        let stat = node.stat().unwrap();
        let mut content = Vec::new();
        match node.file_type() {
            FileType::Directory => {
                let mut cursor = node.read_dir(2).await.unwrap();
                while let Some(entry) = cursor.next().await.unwrap() {
                    let name = String::from_utf8(entry.name).unwrap();
                    waiting.push((format!("{path}/{name}"), entry.object));
                }
            }
            FileType::Symlink => content = node.read_link().await.unwrap(),
            FileType::Regular => {
                content.resize(stat.size as usize, 0);
                node.read_at(0, &mut content).await.unwrap();
            }
            _ => {}
        }
        let mut xattrs = BTreeMap::new();
        for name in node.list_xattrs().await.unwrap() {
            let value = node.xattr(&name).await.unwrap().unwrap();
            xattrs.insert(name, value);
        }
        let seen = Seen {
            id,
            generation: stat.generation,
            mode: stat.mode,
            owner: (stat.uid, stat.gid),
            links: stat.nlink,
            size: stat.size,
            crtime: stat.crtime,
            device: stat.device,
            flags: stat.flags.0,
            content,
            xattrs,
        };
        found.insert(path, seen);
    }
    found
}

async fn create(layout: Layout, count: usize, disks: &Disks) -> Arc<LivePool> {
    let mut tops = vec![disks.top(layout, Class::Normal, "d", count)];
    if count > 1 {
        tops.push(disks.top(Layout::Single, Class::Log, "log", 1));
    }
    LivePool::create(new_pool(tops, 12), surroundings(1)).await.unwrap()
}

async fn open(pool: &Arc<LivePool>) -> (Arc<LiveDataset>, Arc<LiveZpl>) {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let head = dsl.find("tank").await.unwrap();
    let dataset = pool.dataset(head.objset_id()).await.unwrap();
    let zpl = LiveZpl::open(pool.txgs(), &dataset.objset, &dataset.zil, ZplOptions::default()).await.unwrap();
    (dataset, zpl)
}

/// Does something to some file. What cannot be done is refused, and that is all right.
async fn change(zpl: &LiveZpl, random: &Seeded, xattrs: XattrPlace) {
    let pick = |below: u64| random.random() % below;
    let root = zpl.zpl().root();
    // Directories and other files, with their names.
    let (mut dirs, mut files) = (vec![root], Vec::new());
    let mut next = 0;
    while let Some(dir) = dirs.get(next).copied() {
        for entry in zpl.read_dir(dir, 2, 1000).await.unwrap() {
            match entry.file_type {
                Some(FileType::Directory) => dirs.push(entry.object),
                _ => files.push(entry.object),
            }
        }
        next += 1;
    }
    let dir = dirs[pick(dirs.len() as u64) as usize];
    let to_dir = dirs[pick(dirs.len() as u64) as usize];
    let file = files.get(pick(files.len().max(1) as u64) as usize).copied().unwrap_or(root);
    let name = format!("name{}", pick(6));
    let to = format!("name{}", pick(6));
    let offset = if pick(3) == 0 { pick(400_000) } else { pick(5000) };
    let length = 1 + if pick(5) == 0 { pick(250_000) } else { pick(6000) };
    let bytes = vec![1 + pick(255) as u8; length as usize];
    let done = match pick(22) {
        0..=2 => zpl.create(dir, name.as_bytes(), &FILE).await.map(drop),
        3 => zpl.create(dir, name.as_bytes(), &DIRECTORY).await.map(drop),
        4 => {
            let kind = match pick(4) {
                0 => NewKind::Symlink(b"to somewhere else"),
                1 => NewKind::Special(FileType::Fifo, 0),
                _ => NewKind::Special(FileType::CharDevice, 0x123),
            };
            zpl.create(dir, name.as_bytes(), &NewNode { kind, ..FILE }).await.map(drop)
        }
        5 => zpl.unlink(dir, name.as_bytes()).await,
        6 => zpl.rmdir(dir, name.as_bytes()).await,
        7 => zpl.link(file, dir, name.as_bytes()).await,
        8 | 9 => {
            let mode = match pick(5) {
                0 => RenameMode::Exchange,
                1 => RenameMode::Whiteout { uid: 3, gid: 4 },
                2 => RenameMode::NoReplace,
                _ => RenameMode::Replace,
            };
            zpl.rename(dir, name.as_bytes(), to_dir, to.as_bytes(), mode).await
        }
        10..=14 => {
            let options = WriteOptions { append: pick(3) == 0, kill_privileges: pick(2) == 0 };
            zpl.write(file, offset, &bytes, &options).await.map(drop)
        }
        15 => zpl.truncate(file, offset).await,
        16 => {
            let mode = match pick(2) {
                0 => AllocateMode::Punch,
                _ => AllocateMode::ZeroRange { keep_size: pick(2) == 0 },
            };
            zpl.allocate(file, mode, offset, length).await
        }
        17 | 18 => {
            let flags = ZnodeFlags([0, ZnodeFlags::HIDDEN.0, ZnodeFlags::ARCHIVE.0][pick(3) as usize]);
            let set = SetAttributes {
                mode: (pick(2) == 0).then(|| pick(0o10000) as u32),
                uid: (pick(3) == 0).then(|| pick(100) as u32),
                gid: (pick(3) == 0).then(|| pick(100) as u32),
                size: (pick(3) == 0).then_some(offset),
                mtime: Some(Time { seconds: 5, nanoseconds: 6 }),
                flags: (pick(3) == 0).then_some(flags),
                ..SetAttributes::default()
            };
            zpl.set_attributes(file, &set).await
        }
        19 | 20 => {
            let value = &bytes[..bytes.len().min(30_000)];
            zpl.set_xattr(file, format!("user.{to}").as_bytes(), value, XattrSet::Any, xattrs).await
        }
        _ => zpl.remove_xattr(file, format!("user.{to}").as_bytes()).await,
    };
    let refused = matches!(
        done,
        Ok(()) | Err(engine::Error::NotFound(_) | engine::Error::Exists(_) | engine::Error::Os { .. })
    );
    assert!(refused, "{done:?}");
}

fn random_history(layout: Layout, count: usize, xattrs: XattrPlace, seed: u64) {
    let random = Seeded::new(seed);
    let pick = |below: u64| random.random() % below;
    let mut disks = Disks::new(96 << 20);
    let mut pool = block_on(create(layout, count, &disks));
    for round in 0..5 {
        let (dataset, zpl) = block_on(open(&pool));
        dataset.zil.set_sync_mode(if round == 4 { SyncMode::Always } else { SyncMode::Standard });
        // The first of a chain waits for its group, and so does every change of attributes in the file.
        let first = async {
            let _ = zpl.create(zpl.zpl().root(), b"first", &FILE).await;
            zpl.sync_all().await
        };
        block_on(committing(&pool, first)).unwrap();
        for _ in 0..60 {
            match pick(12) {
                0 => drop(block_on(pool.sync()).unwrap()),
                1 => block_on(committing(&pool, zpl.fsync(ObjectId(pick(40))))).unwrap(),
                _ => block_on(committing(&pool, change(&zpl, &random, xattrs))),
            }
        }
        let before = pool.txgs().synced_txg();
        if xattrs == XattrPlace::Directory {
            block_on(zpl.sync_all()).unwrap();
            assert_eq!(pool.txgs().synced_txg(), before, "this is the log's work alone");
        } else {
            block_on(committing(&pool, zpl.sync_all())).unwrap();
        }
        let expected = block_on(see(zpl.zpl()));
        drop(zpl);
        let copy = crashed(&disks);
        drop((dataset, pool));
        disks = copy;
        pool = block_on(disks.import("tank", seed + 1));
        let (_, zpl) = block_on(open(&pool));
        let found = block_on(see(zpl.zpl()));
        for (path, seen) in &expected {
            let found = found.get(path).map(|seen| Seen { content: Vec::new(), ..copy_of(seen) });
            let shown = Seen { content: Vec::new(), ..copy_of(seen) };
            assert_eq!(found.as_ref(), Some(&shown), "seed {seed}, round {round}: {path}");
        }
        assert!(found == expected, "seed {seed}, round {round}");
    }
    block_on(async {
        pool.start().unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

fn copy_of(seen: &Seen) -> Seen {
    Seen { content: seen.content.clone(), xattrs: seen.xattrs.clone(), ..*seen }
}

#[test]
fn what_was_made_stable_of_files_survives_crashes_on_a_single_device() {
    random_history(Layout::Single, 1, XattrPlace::Directory, 1);
}

#[test]
fn what_was_made_stable_of_files_survives_crashes_on_a_mirror_with_a_log_device() {
    random_history(Layout::Mirror, 2, XattrPlace::Attributes, 2);
}

#[test]
fn a_log_that_its_device_cannot_read_is_given_up_only_by_name() {
    let disks = Disks::new(96 << 20);
    let bad = block_on(async {
        let pool = create(Layout::Mirror, 2, &disks).await;
        let (dataset, zpl) = open(&pool).await;
        let file = zpl.create(zpl.zpl().root(), b"file", &FILE).await.unwrap();
        committing(&pool, zpl.sync_all()).await.unwrap();
        let options = WriteOptions::default();
        zpl.write(file, 0, b"in the log alone", &options).await.unwrap();
        zpl.fsync(file).await.unwrap();
        // Past the labels and the boot area.
        let log = dataset.objset.zil_header().log.dva(0).unwrap();
        log.offset.get() + (4 << 20)
    });
    let options = |missing_log| ImportOptions { force: true, missing_log, ..ImportOptions::default() };
    let import = |disks: &Disks, missing_log| {
        block_on(async {
            let mut found = disks.found("tank").await;
            for candidate in found.candidates.values_mut() {
                if candidate.device.path().to_string_lossy().contains("log") {
                    let device = SimulatedDevice::new(Arc::clone(&candidate.device), 1);
                    device.inject(Fault::ReadError(bad..bad + 4096));
                    candidate.device = Arc::new(device);
                }
            }
            LivePool::import(&found, &options(missing_log), surroundings(3)).await
        })
    };
    let size = |pool: &Arc<LivePool>| {
        block_on(async {
            let (_, zpl) = open(pool).await;
            let file = zpl.lookup(zpl.zpl().root(), b"file").await.unwrap().unwrap();
            zpl.zpl().node(file).await.unwrap().size()
        })
    };
    let copy = crashed(&disks);
    let refused = import(&copy, false).unwrap_err();
    assert!(matches!(refused, ImportError::UnreadableLog { .. }), "{refused}");
    assert!(refused.to_string().contains("'-m'"), "{refused}");
    assert_eq!(size(&block_on(copy.import("tank", 4))), 16, "refusing did no harm");
    assert_eq!(size(&import(&crashed(&disks), true).unwrap()), 0);
}
