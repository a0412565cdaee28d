//! Files that share blocks: what each holds is its own, and `zdb` counts every reference.

use std::sync::Arc;

use device::block_on;
use engine::dmu::Stored;
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewSnapshot};
use engine::env::{Env, Seeded};
use engine::pool::live::{Layout, LivePool, Syncing};
use engine::vdev::Class;
use engine::zpl::live::{NewKind, NewNode, WriteOptions};
use engine::zpl::{LiveZpl, ZplOptions};
use ondisk::ObjectId;
use ondisk::blkptr::Blkptr;
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;
use ondisk::zil::Record;

use crate::support::{Disks, committing, crashed, new_pool, surroundings};

const BLOCK: u64 = 4096;
const FILES: usize = 5;

async fn open(pool: &Arc<LivePool>, name: &str) -> Arc<LiveZpl> {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let head = dsl.find(name).await.unwrap();
    let dataset = pool.dataset(head.objset_id()).await.unwrap();
    let zpl = LiveZpl::open(pool.txgs(), &dataset.objset, &dataset.zil, ZplOptions::default()).await.unwrap();
    zpl.set_record_size(BLOCK as u32);
    zpl
}

async fn content(zpl: &LiveZpl, file: ObjectId) -> Vec<u8> {
    let size = zpl.zpl().node(file).await.unwrap().stat().unwrap().size;
    let mut bytes = vec![0; size as usize];
    assert_eq!(zpl.read(file, 0, &mut bytes).await.unwrap(), bytes.len());
    bytes
}

fn put(model: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    model.resize(model.len().max(end), 0);
    model[offset as usize..end].copy_from_slice(bytes);
}

/// Random writes, copies, holes and cuts, in groups of random length.
async fn shuffle(pool: &Arc<LivePool>, zpl: &LiveZpl, files: &[ObjectId], models: &mut [Vec<u8>], seed: u64) {
    let dice = Seeded::new(seed);
    let roll = |sides: u64| dice.random() % sides.max(1);
    for _ in 0..250 {
        let (at, other) = (roll(FILES as u64) as usize, roll(FILES as u64) as usize);
        let offset = roll(40) * BLOCK;
        match roll(10) {
            0..=2 => {
                let mut bytes = vec![0; (1 + roll(5 * BLOCK)) as usize];
                bytes.iter_mut().for_each(|byte| *byte = dice.random() as u8);
                let offset = offset + if roll(2) == 0 { 0 } else { roll(BLOCK) };
                zpl.write(files[at], offset, &bytes, &WriteOptions::default()).await.unwrap();
                put(&mut models[at], offset, &bytes);
            }
            3..=6 => {
                let from = if roll(3) == 0 { 0 } else { roll(20) * BLOCK };
                let length = if roll(2) == 0 { u64::MAX >> 2 } else { roll(30) * BLOCK + roll(2) * 100 };
                let source = models[other].clone();
                let length = length.min((source.len() as u64).saturating_sub(from));
                if at == other && from < offset + length && offset < from + length {
                    continue;
                }
                let copied = zpl.copy_range(files[other], from, files[at], offset, length).await.unwrap();
                assert_eq!(copied, length);
                if length > 0 {
                    put(&mut models[at], offset, &source[from as usize..(from + length) as usize]);
                }
            }
            7 => {
                let length = roll(4 * BLOCK);
                zpl.punch(files[at], offset, length).await.unwrap();
                let end = models[at].len().min((offset + length) as usize);
                if let Some(range) = models[at].get_mut(offset as usize..end) {
                    range.fill(0);
                }
            }
            8 => {
                let size = roll(40 * BLOCK);
                zpl.truncate(files[at], size).await.unwrap();
                models[at].resize(size as usize, 0);
            }
            _ => drop(pool.sync().await.unwrap()),
        }
        let found = content(zpl, files[at]).await;
        assert!(found == models[at], "file {at} before the commit");
    }
    pool.sync().await.unwrap();
    for (file, model) in files.iter().zip(models) {
        assert!(content(zpl, *file).await == *model);
    }
}

#[test]
fn copies_of_stored_blocks_share_them_until_the_last_is_gone() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        let zpl = open(&pool, "tank").await;
        let root = zpl.zpl().root();
        let node = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
        let mut files = Vec::new();
        for name in 0..FILES {
            files.push(zpl.create(root, format!("f{name}").as_bytes(), &node).await.unwrap());
        }
        let mut models = vec![Vec::new(); FILES];
        // One file, and its copy.
        models[0] = (0..20 * BLOCK + 77).map(|at| ((at * 2_654_435_761) >> 13) as u8).collect();
        zpl.write(files[0], 0, &models[0], &WriteOptions::default()).await.unwrap();
        pool.sync().await.unwrap();
        let size = models[0].len() as u64;
        assert_eq!(zpl.copy_range(files[0], 0, files[1], 0, u64::MAX >> 2).await.unwrap(), size);
        models[1] = models[0].clone();
        pool.sync().await.unwrap();
        assert_eq!(pool.saved_by_clones(), 20 * BLOCK, "all but the last, which is within its pointer");
        assert_eq!(pool.feature_count(Feature::BlockCloning), Some(1));
        shuffle(&pool, &zpl, &files, &mut models, 1).await;
        let snapshot = vec![NewSnapshot { name: "tank@s".into(), properties: Vec::new() }];
        pool.change(move |s: Syncing| async move { edit::snapshot(&s, &snapshot).await }).await.unwrap();
        shuffle(&pool, &zpl, &files, &mut models, 2).await;
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        disks.judge("tank");

        let pool = disks.import("tank", 2).await;
        let zpl = open(&pool, "tank").await;
        for (file, model) in files.iter().zip(&models) {
            assert!(content(&zpl, *file).await == *model, "after an import");
        }
        shuffle(&pool, &zpl, &files, &mut models, 3).await;
        for name in 0..FILES {
            zpl.unlink(root, format!("f{name}").as_bytes()).await.unwrap();
        }
        pool.sync().await.unwrap();
        pool.change(|s: Syncing| async move { edit::destroy_snapshots(&s, &["tank@s".into()], false).await })
            .await
            .unwrap();
        pool.sync().await.unwrap();
        assert_eq!((pool.feature_count(Feature::BlockCloning), pool.saved_by_clones()), (Some(0), 0));
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        disks.judge("tank");
    });
}

#[test]
fn filesystems_that_are_open_during_an_upgrade_clone_at_once() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let mut new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        new.features.retain(|feature| *feature != Feature::BlockCloning);
        let pool = LivePool::create(new, surroundings(5)).await.unwrap();
        let zpl = open(&pool, "tank").await;
        let root = zpl.zpl().root();
        let node = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
        let mut files = Vec::new();
        for name in 0..3 {
            files.push(zpl.create(root, format!("f{name}").as_bytes(), &node).await.unwrap());
        }
        let bytes: Vec<u8> = (0..8 * BLOCK).map(|at| ((at * 2_654_435_761) >> 13) as u8).collect();
        let size = bytes.len() as u64;
        zpl.write(files[0], 0, &bytes, &WriteOptions::default()).await.unwrap();
        pool.sync().await.unwrap();
        for (file, saved) in [(files[1], 0), (files[2], size)] {
            assert_eq!(zpl.copy_range(files[0], 0, file, 0, size).await.unwrap(), size);
            pool.sync().await.unwrap();
            assert_eq!(pool.saved_by_clones(), saved);
            pool.change(|s: Syncing| async move { s.enable_feature(Feature::BlockCloning).await })
                .await
                .unwrap();
        }
        assert!(content(&zpl, files[2]).await == bytes);
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        disks.judge("tank");
    });
}

#[test]
fn a_copy_of_a_copy_of_the_same_group_shares_blocks_whatever_becomes_of_the_first() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(5)).await.unwrap();
        let zpl = open(&pool, "tank").await;
        let root = zpl.zpl().root();
        let node = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
        let mut files = Vec::new();
        for name in 0..3 {
            files.push(zpl.create(root, format!("f{name}").as_bytes(), &node).await.unwrap());
        }
        let bytes: Vec<u8> = (0..8 * BLOCK).map(|at| ((at * 2_654_435_761) >> 13) as u8).collect();
        zpl.write(files[0], 0, &bytes, &WriteOptions::default()).await.unwrap();
        pool.sync().await.unwrap();
        let size = bytes.len() as u64;
        for (from, to) in [(0, 1), (1, 2)] {
            assert_eq!(zpl.copy_range(files[from], 0, files[to], 0, size).await.unwrap(), size);
        }
        pool.sync().await.unwrap();
        assert_eq!(pool.saved_by_clones(), 2 * size);
        // Again, and both sources go in that same group.
        for name in [b"f3", b"f4"] {
            files.push(zpl.create(root, name, &node).await.unwrap());
        }
        for (from, to) in [(2, 3), (3, 4)] {
            assert_eq!(zpl.copy_range(files[from], 0, files[to], 0, size).await.unwrap(), size);
        }
        for name in [b"f0", b"f1", b"f2", b"f3"] {
            zpl.unlink(root, name).await.unwrap();
        }
        pool.sync().await.unwrap();
        assert_eq!(pool.saved_by_clones(), 0);
        assert!(content(&zpl, files[4]).await == bytes);
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        disks.judge("tank");
    });
}

#[test]
fn clones_in_a_log_are_applied_although_their_source_is_written_over() {
    let disks = Disks::new(96 << 20);
    let bytes: Vec<u8> = (0..3 * BLOCK).map(|at| ((at * 2_654_435_761) >> 13) as u8).collect();
    let (from, to) = block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        let zpl = open(&pool, "tank").await;
        let root = zpl.zpl().root();
        let node = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
        let from = zpl.create(root, b"from", &node).await.unwrap();
        let to = zpl.create(root, b"to", &node).await.unwrap();
        zpl.write(from, 0, &bytes, &WriteOptions::default()).await.unwrap();
        committing(&pool, zpl.sync_all()).await.unwrap();
        pool.sync().await.unwrap();
        let source = zpl.objset().object(from).await.unwrap();
        let mut blocks = Vec::new();
        for id in 0..3 {
            match source.stored(id).await.unwrap() {
                Stored::Block(pointer) => blocks.push(pointer),
                _ => panic!("block {id} is stored"),
            }
        }
        // As OpenZFS logs it.
        let record =
            Record::CloneRange { object: to, offset: 0, length: 3 * BLOCK, block_bytes: BLOCK, blocks };
        let dataset = pool.dataset(zpl.objset().id()).await.unwrap();
        let tx = pool.txgs().begin(0).await.unwrap();
        dataset.zil.note_object(&tx, to.get(), &record);
        drop(tx);
        zpl.unlink(root, b"from").await.unwrap();
        let before = pool.txgs().synced_txg();
        dataset.zil.commit().await.unwrap();
        assert_eq!(pool.txgs().synced_txg(), before, "this is in the log only");
        (from, to)
    });
    let disks = crashed(&disks);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let zpl = open(&pool, "tank").await;
        assert!(zpl.zpl().node(from).await.is_err());
        assert!(content(&zpl, to).await == bytes);
        for _ in 0..3 {
            pool.sync().await.unwrap();
        }
        // The log was a reference until it ended.
        assert_eq!((pool.feature_count(Feature::BlockCloning), pool.saved_by_clones()), (Some(0), 0));
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// The pointers to the blocks of a file, where they are stored.
async fn pointers(zpl: &LiveZpl, file: ObjectId) -> Vec<Blkptr> {
    let object = zpl.objset().object(file).await.unwrap();
    let mut found = Vec::new();
    for id in 0..object.end().div_ceil(object.block_size()) {
        match object.stored(id).await.unwrap() {
            Stored::Block(pointer) => found.push(pointer),
            Stored::Hole => found.push(Blkptr::HOLE),
            Stored::Changed => panic!("block {id} is not stored"),
        }
    }
    found
}

#[test]
fn clones_that_were_made_stable_share_their_blocks_after_a_crash() {
    const BLOCKS: u64 = 1300;
    let disks = Disks::new(96 << 20);
    let mut bytes: Vec<u8> = (0..BLOCKS * BLOCK).map(|at| ((at * 2_654_435_761) >> 13) as u8).collect();
    bytes.truncate((BLOCKS * BLOCK) as usize - 77);
    let hole = 7 * BLOCK as usize..9 * BLOCK as usize;
    bytes[hole.clone()].fill(0);
    // So much the same that it fits its pointer.
    bytes[11 * BLOCK as usize..12 * BLOCK as usize].fill(7);
    let size = bytes.len() as u64;
    let names: [&[u8]; 6] = [b"from", b"whole", b"again", b"cut", b"over", b"other size"];
    let files = block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        let zpl = open(&pool, "tank").await;
        let root = zpl.zpl().root();
        let node = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
        let mut files = Vec::new();
        for name in names {
            files.push(zpl.create(root, name, &node).await.unwrap());
        }
        zpl.write(files[0], 0, &bytes, &WriteOptions::default()).await.unwrap();
        zpl.punch(files[0], hole.start as u64, hole.len() as u64).await.unwrap();
        // It keeps its larger blocks, to which OpenZFS would apply no smaller ones.
        zpl.set_record_size(4 * BLOCK as u32);
        zpl.write(files[5], 0, &bytes[..5 * BLOCK as usize], &WriteOptions::default()).await.unwrap();
        zpl.set_record_size(BLOCK as u32);
        committing(&pool, zpl.sync_all()).await.unwrap();
        pool.sync().await.unwrap();
        zpl.truncate(files[5], 0).await.unwrap();
        pool.sync().await.unwrap();
        for to in 1..6 {
            assert_eq!(zpl.copy_range(files[0], 0, files[to], 0, size).await.unwrap(), size);
        }
        zpl.truncate(files[3], 3 * BLOCK).await.unwrap();
        zpl.write(files[4], BLOCK, b"new", &WriteOptions::default()).await.unwrap();
        // The source goes in the group that has the copies.
        zpl.unlink(root, b"from").await.unwrap();
        let before = pool.txgs().synced_txg();
        for file in &files[1..] {
            zpl.fsync(*file).await.unwrap();
        }
        assert_eq!(pool.txgs().synced_txg(), before, "this is in the log only");
        assert_eq!(pool.saved_by_clones(), 0);
        files
    });
    let disks = crashed(&disks);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let zpl = open(&pool, "tank").await;
        assert!(zpl.zpl().node(files[0]).await.is_err());
        let mut over = bytes.clone();
        put(&mut over, BLOCK, b"new");
        for (file, expected) in
            files[1..].iter().zip([&bytes, &bytes, &bytes[..3 * BLOCK as usize].to_vec(), &over, &bytes])
        {
            assert!(content(&zpl, *file).await == *expected, "{file}");
        }
        for _ in 0..3 {
            pool.sync().await.unwrap();
        }
        let whole = pointers(&zpl, files[1]).await;
        let is_same = |other: &Blkptr, mine: &Blkptr| other.dva(0) == mine.dva(0);
        assert_eq!(whole.len() as u64, BLOCKS);
        assert!(whole[7].is_hole() && whole[8].is_hole() && whole[11].is_embedded());
        for (file, apart) in [(files[2], 0), (files[3], 0), (files[4], 1)] {
            let found = pointers(&zpl, file).await;
            assert_eq!(found.iter().zip(&whole).filter(|(one, other)| !is_same(one, other)).count(), apart);
        }
        assert!(pool.saved_by_clones() >= 2 * size - 8 * BLOCK, "{}", pool.saved_by_clones());
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn what_is_not_committed_is_logged_with_its_data_when_it_is_cloned() {
    let disks = Disks::new(96 << 20);
    let bytes: Vec<u8> = (0..5 * BLOCK).map(|at| ((at * 2_654_435_761) >> 13) as u8).collect();
    let copy = block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        let zpl = open(&pool, "tank").await;
        let root = zpl.zpl().root();
        let node = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
        let file = zpl.create(root, b"file", &node).await.unwrap();
        let copy = zpl.create(root, b"copy", &node).await.unwrap();
        committing(&pool, zpl.sync_all()).await.unwrap();
        pool.sync().await.unwrap();
        // Copied while it is written nowhere.
        zpl.write(file, 0, &bytes, &WriteOptions::default()).await.unwrap();
        let size = bytes.len() as u64;
        zpl.copy_range(file, 0, copy, 0, 2 * BLOCK).await.unwrap();
        zpl.copy_range(file, 2 * BLOCK, copy, 2 * BLOCK, size - 2 * BLOCK).await.unwrap();
        zpl.fsync(copy).await.unwrap();
        copy
    });
    let disks = crashed(&disks);
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let zpl = open(&pool, "tank").await;
        assert!(content(&zpl, copy).await == bytes);
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
