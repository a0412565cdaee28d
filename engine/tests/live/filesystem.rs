//! Filesystems that the engine writes: what was changed is there after an import, and `zdb` finds nothing
//! wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::block_on;
use engine::dsl::Dsl;
use engine::pool::live::{Layout, LivePool};
use engine::vdev::Class;
use engine::zpl::live::{NewKind, NewNode, RenameMode, SetAttributes, WriteOptions, XattrPlace, XattrSet};
use engine::zpl::{LiveZpl, Zpl, ZplOptions};
use ondisk::ObjectId;
use ondisk::vdev_config::PoolState;
use ondisk::zpl::FileType;
use testkit::oracle::zdb_command;

use crate::files::{DIRECTORY, FILE, see};
use crate::support::{Disks, new_pool, surroundings};

pub async fn open(pool: &Arc<LivePool>) -> Arc<LiveZpl> {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let head = dsl.find("tank").await.unwrap();
    let dataset = pool.dataset(head.objset_id()).await.unwrap();
    LiveZpl::open(pool.txgs(), &dataset.objset, &dataset.zil, ZplOptions::default()).await.unwrap()
}

/// Changes of every kind, with commits in between. `salt` makes names and content differ.
async fn change(pool: &Arc<LivePool>, zpl: &LiveZpl, salt: u64) {
    let root = zpl.zpl().root();
    let word = |number: u64| number.wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let many = zpl.create(root, format!("many{salt}").as_bytes(), &DIRECTORY).await.unwrap();
    for index in 0..2600u64 {
        let name = format!("file-{index}-{}", "n".repeat(word(index) as usize % 90));
        let id = zpl.create(many, name.as_bytes(), &FILE).await.unwrap();
        if index % 20 == 0 {
            zpl.write(id, word(index) % 5000, &word(index).to_le_bytes().repeat(9), &WriteOptions::default())
                .await
                .unwrap();
        }
        if index % 900 == 0 {
            pool.sync().await.unwrap();
        }
        if index % 3 == 0 {
            zpl.unlink(many, name.as_bytes()).await.unwrap();
        }
    }
    let deep = zpl.create(root, format!("deep{salt}").as_bytes(), &DIRECTORY).await.unwrap();
    let target = vec![b't'; 900];
    for (name, kind) in [
        (&b"link"[..], NewKind::Symlink(b"somewhere/else")),
        (b"long link", NewKind::Symlink(&target)),
        (b"device", NewKind::Special(FileType::BlockDevice, 0x801)),
        (b"fifo", NewKind::Special(FileType::Fifo, 0)),
    ] {
        zpl.create(deep, name, &NewNode { kind, ..FILE }).await.unwrap();
    }
    let big = zpl.create(deep, b"big", &FILE).await.unwrap();
    let data: Vec<u8> = (0..1_500_000u64).map(|at| (word(at / 64) >> 9) as u8).collect();
    zpl.write(big, 100, &data, &WriteOptions::default()).await.unwrap();
    pool.sync().await.unwrap();
    zpl.punch(big, 300_000, 400_000).await.unwrap();
    zpl.write(big, 500_000, b"in the hole", &WriteOptions::default()).await.unwrap();
    zpl.truncate(big, 1_234_567).await.unwrap();
    zpl.link(big, many, b"another name of it").await.unwrap();
    for (index, place) in [XattrPlace::Attributes, XattrPlace::Directory].into_iter().enumerate() {
        for length in [3usize, 200, 30_000, 60_000] {
            let name = format!("user.{index}.{length}");
            let value = vec![length as u8; length];
            zpl.set_xattr(big, name.as_bytes(), &value, XattrSet::Any, place).await.unwrap();
        }
    }
    pool.sync().await.unwrap();
    zpl.remove_xattr(big, b"user.0.30000").await.unwrap();
    zpl.remove_xattr(big, b"user.1.200").await.unwrap();
    let inner = zpl.create(deep, b"inner", &DIRECTORY).await.unwrap();
    zpl.rename(deep, b"big", inner, b"moved", RenameMode::Replace).await.unwrap();
    zpl.rename(root, format!("deep{salt}").as_bytes(), many, b"deep", RenameMode::NoReplace).await.unwrap();
    zpl.rename(deep, b"link", inner, b"moved", RenameMode::Exchange).await.unwrap();
    let set = SetAttributes { mode: Some(0o4711), uid: Some(99), ..SetAttributes::default() };
    zpl.set_attributes(big, &set).await.unwrap();
    let gone = zpl.create(deep, b"open and unlinked", &FILE).await.unwrap();
    zpl.hold(gone);
    zpl.write(gone, 0, &data[..200_000], &WriteOptions::default()).await.unwrap();
    zpl.unlink(deep, b"open and unlinked").await.unwrap();
}

/// The paths that `zdb` prints for the objects of the filesystem.
fn zdb_paths(disks: &Disks) -> Vec<String> {
    let output =
        zdb_command().args(["-e", "-p"]).arg(disks.path()).args(["-ddddd", "tank/"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    let paths = text.lines().filter_map(|line| line.strip_prefix("\tpath\t")).map(str::to_owned);
    paths.collect()
}

#[test]
fn a_filesystem_is_after_an_import_what_was_made_of_it() {
    let disks = Disks::new(256 << 20);
    let options = ZplOptions::default();
    let mut expected = BTreeMap::new();
    for round in 0..2u64 {
        block_on(async {
            let pool = if round == 0 {
                let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
                LivePool::create(new, surroundings(1)).await.unwrap()
            } else {
                disks.import("tank", 2).await
            };
            pool.start().unwrap();
            let zpl = open(&pool).await;
            // The file that was unlinked while it was open is freed now; nothing else changed.
            assert!(zpl.unlinked().await.unwrap().is_empty());
            if round > 0 {
                assert!(see(zpl.zpl()).await == expected);
            }
            change(&pool, &zpl, round).await;
            expected = see(zpl.zpl()).await;
            assert!(expected.contains_key(&format!("/many{round}/deep/inner/moved")));
            drop(zpl);
            pool.close(PoolState::Exported).await.unwrap();
        });
        disks.judge("tank");
        let paths = zdb_paths(&disks);
        for path in expected.keys().filter(|path| !path.is_empty()) {
            // zdb tells one name of a file that has several.
            let linked = expected[path].links > 1 && !expected[path].content.is_empty();
            assert!(linked || paths.contains(path), "{path}");
        }
        block_on(async {
            let pool = disks.import("tank", 3).await;
            let dsl = Dsl::open(&pool.view()).await.unwrap();
            let head = dsl.find("tank").await.unwrap();
            let zpl = Zpl::open(&dsl.open_objset(&head).await.unwrap(), options).await.unwrap();
            assert!(see(&zpl).await == expected, "as committed");
            assert_eq!(zpl.unlinked().await.unwrap().len(), 1);
            assert_ne!(zpl.root(), ObjectId(0));
            pool.close(PoolState::Exported).await.unwrap();
        });
    }
}

#[test]
fn writers_of_one_file_lose_nothing_while_groups_are_committed() {
    const WRITERS: u64 = 4;
    const ROUNDS: u64 = 120;
    /// Neither a part nor a multiple of a record.
    const LENGTH: u64 = 3000;
    let disks = Disks::new(192 << 20);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let zpl = open(&pool).await;
        zpl.set_record_size(8 << 10);
        let root = zpl.zpl().root();
        let shared = zpl.create(root, b"shared", &FILE).await.unwrap();
        let appended = zpl.create(root, b"appended", &FILE).await.unwrap();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let zpl = &zpl;
                scope.spawn(move || {
                    block_on(async {
                        for round in 0..ROUNDS {
                            let offset = (round * WRITERS + writer) * LENGTH;
                            let bytes = vec![writer as u8 + 1; LENGTH as usize];
                            zpl.write(shared, offset, &bytes, &WriteOptions::default()).await.unwrap();
                            let append = WriteOptions { append: true, ..WriteOptions::default() };
                            zpl.write(appended, 0, &bytes[..100], &append).await.unwrap();
                        }
                    });
                });
            }
            for _ in 0..25 {
                block_on(pool.sync()).unwrap();
            }
        });
        let check = async |zpl: &Arc<Zpl>| {
            let mut content = vec![0; (WRITERS * ROUNDS * LENGTH) as usize + 1];
            assert_eq!(
                zpl.node(shared).await.unwrap().read_at(0, &mut content).await.unwrap(),
                content.len() - 1
            );
            for (index, piece) in content.chunks_exact(LENGTH as usize).enumerate() {
                assert!(
                    piece.iter().all(|byte| *byte == (index as u64 % WRITERS) as u8 + 1),
                    "piece {index}"
                );
            }
            let mut content = vec![0; (WRITERS * ROUNDS * 100) as usize + 1];
            assert_eq!(
                zpl.node(appended).await.unwrap().read_at(0, &mut content).await.unwrap(),
                content.len() - 1
            );
            let whole = content.chunks_exact(100).all(|piece| piece.iter().all(|byte| *byte == piece[0]));
            assert!(whole, "appended pieces are whole");
            for writer in 1..=WRITERS as u8 {
                assert_eq!(content.iter().filter(|byte| **byte == writer).count() as u64, ROUNDS * 100);
            }
        };
        check(zpl.zpl()).await;
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        let pool = disks.import("tank", 2).await;
        check(open(&pool).await.zpl()).await;
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_file_that_was_cut_to_nothing_keeps_blocks_of_a_power_of_two() {
    let disks = Disks::new(128 << 20);
    block_on(async {
        let top = disks.top(Layout::Single, Class::Normal, "d", 1);
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        let zpl = open(&pool).await;
        let bytes: Vec<u8> = (0..600_000u32).map(|at| (at >> 3) as u8 | 1).collect();
        // With a commit after each step, and with none: in every place where a group may end.
        for commits in 0..8 {
            let commit = async |step: u32| {
                if commits & (1 << step) != 0 {
                    pool.sync().await.unwrap();
                }
            };
            let file = zpl.create(zpl.zpl().root(), format!("f{commits}").as_bytes(), &FILE).await.unwrap();
            zpl.set_record_size(512);
            zpl.write(file, 0, &bytes, &WriteOptions::default()).await.unwrap();
            commit(0).await;
            zpl.truncate(file, 0).await.unwrap();
            commit(1).await;
            zpl.set_record_size(128 << 10);
            zpl.write(file, 0, &bytes[..33_348], &WriteOptions::default()).await.unwrap();
            commit(2).await;
            let mut read = vec![0; 33_348];
            zpl.read(file, 0, &mut read).await.unwrap();
            assert!(read == bytes[..33_348]);
        }
        pool.sync().await.unwrap();
        for id in 0..64 {
            let Ok(object) = zpl.objset().object(ObjectId(id)).await else { continue };
            let (dnode, size) = (object.dnode(), object.block_size());
            assert!(dnode.levels == 1 || size.is_power_of_two(), "object {id}: {size} bytes");
        }
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
