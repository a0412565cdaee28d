//! Pools that are written over and over, and pools that are full.

use std::sync::Arc;
use std::time::Duration;

use device::block_on;
use engine::Error;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::dsl::{Dsl, Walk, with_room};
use engine::pool::import::{ImportOptions, import};
use engine::pool::live::{Layout, LivePool, Surroundings, Syncing};
use engine::pool::verify::{self, Report, VerifyOptions};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::zpl::live::WriteOptions;
use engine::zvol::LiveZvol;
use futures_util::{FutureExt, poll};
use ondisk::ObjectId;
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;

use crate::files::FILE;
use crate::filesystem;
use crate::support::{Disks, committing, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;

/// A volume of a new pool, open as the server opens it.
async fn volume(pool: &Arc<LivePool>, size: u64, block: &str) -> Arc<LiveZvol> {
    let new = NewDataset {
        name: "tank/vol".into(),
        contents: NewContents::Volume { size, sparse: true },
        properties: vec![("volblocksize".into(), block.into())],
    };
    let create = pool.change(move |s| async move { edit::create(&s, &new).await });
    let id = committing(pool, create).await.unwrap();
    let dataset = pool.dataset(id).await.unwrap();
    let volume = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.unwrap();
    volume.set_room(dataset.room.clone());
    volume
}

/// A mebibyte that does not compress.
fn noise(seed: u64) -> Vec<u8> {
    noise_of(seed, MIB)
}

fn noise_of(seed: u64, length: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length / 8).flat_map(|_| next().to_le_bytes()).collect()
}

#[test]
fn what_is_overwritten_is_used_again_without_an_import() {
    let disks = Disks::new(256 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let volume = volume(&pool, 32 * MIB, "16K").await;
        // Three times the size of the device.
        for round in 0..24 {
            for at in 0..32 {
                volume.write_at(at * MIB, &noise(round * 32 + at), false).await.unwrap();
            }
            pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
        }
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_full_pool_refuses_data_and_goes_on_when_some_was_given_back() {
    let disks = Disks::new(256 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let volume = volume(&pool, 1024 * MIB, "16K").await;
        let mut written = 0;
        let refused = loop {
            match volume.write_at(written * MIB, &noise(written + 1), written % 8 == 0).await {
                Ok(()) => written += 1,
                Err(error) => {
                    // What was guessed may have been too much: a commit tells.
                    pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
                    if volume.write_at(written * MIB, &noise(written + 1), false).await.is_err() {
                        break error;
                    }
                    written += 1;
                }
            }
        };
        assert!(matches!(refused, Error::NoSpace(_)), "{refused}");
        assert!((64..256).contains(&written), "{written} MiB fitted");
        volume.trim(0, written / 2 * MIB, true).await.unwrap();
        for _ in 0..3 {
            pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
        }
        volume.write_at(0, &noise(7), true).await.unwrap();
        let mut read = vec![0; MIB as usize];
        volume.read_at((written - 1) * MIB, &mut read).await.unwrap();
        assert!(read == noise(written), "what was accepted is there");
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// What a verification finds in the state that the disks are in.
async fn verified(disks: &Disks) -> Report {
    let copy = Disks::new(0);
    for disk in std::fs::read_dir(disks.path()).unwrap() {
        let disk = disk.unwrap();
        std::fs::copy(disk.path(), copy.path().join(disk.file_name())).unwrap();
    }
    let found = copy.found("tank").await;
    let pool = import(&found, &ImportOptions { force: true, ..ImportOptions::read_only() }).await.unwrap();
    verify::verify(&pool, VerifyOptions::default(), &verify::Progress::default()).unwrap()
}

#[test]
fn blocks_that_fit_no_metaslab_become_gangs_and_are_freed_as_a_whole() {
    // With its parity a block is larger than any of the metaslabs, so that each is a gang.
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Raidz { nparity: 1 }, Class::Normal, "d", 2)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        let volume = volume(&pool, 16 * MIB, "16M").await;
        for round in 0..3 {
            for at in 0..16 {
                volume.write_at(at * MIB, &noise(round * 16 + at + 1), false).await.unwrap();
            }
            for _ in 0..3 {
                pool.sync().await.unwrap();
                let report = verified(&disks).await;
                assert!(report.is_clean(), "{:?} {:?}", report.errors, report.space);
                assert!(report.stats.total().gangs > 0, "no gang was written");
            }
        }
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn encrypted_blocks_that_fit_no_metaslab_become_gangs_too() {
    let disks = Disks::new(128 * MIB);
    let material = [b'6'; 64];
    block_on(async {
        let env = surroundings(1);
        let key = UserKey::new(KeyFormat::Hex, &material, None, &*env.env).unwrap();
        let mut new = new_pool(vec![disks.top(Layout::Raidz { nparity: 1 }, Class::Normal, "d", 2)], 12);
        let properties = [("encryption", "aes-256-gcm"), ("keyformat", "hex")];
        new.root_properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let pool = LivePool::create_with_key(new, Some(Arc::new(key)), env).await.unwrap();
        let volume = volume(&pool, 16 * MIB, "16M").await;
        for round in 0..2 {
            for at in 0..16 {
                volume.write_at(at * MIB, &noise(round * 16 + at + 1), false).await.unwrap();
            }
            pool.sync().await.unwrap();
            let report = verified(&disks).await;
            assert!(report.is_clean(), "{:?} {:?}", report.errors, report.space);
            assert!(report.stats.total().gangs > 0, "no gang was written");
        }
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
    block_on(async {
        let pool = disks.import("tank", 2).await;
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        dsl.load_key("tank", &material, false).await.unwrap();
        let volume = pool.volume(objset_of(&pool, "vol").await.unwrap()).await.unwrap();
        let mut read = vec![0; MIB as usize];
        for at in 0..16 {
            volume.read_at(at * MIB, &mut read).await.unwrap();
            assert!(read == noise(16 + at + 1), "mebibyte {at}");
        }
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn gangs_that_would_need_more_pointers_activate_larger_headers() {
    for enabled in [false, true] {
        // With its parity not even a third of a block fits into a metaslab of 16 MiB.
        let disks = Disks::new(84 * MIB);
        block_on(async {
            let layout = Layout::Raidz { nparity: 2 };
            let tops = ["d", "e"].map(|prefix| disks.top(layout, Class::Normal, prefix, 3));
            let mut new = new_pool(tops.into(), 12);
            if enabled {
                new.features.push(Feature::DynamicGangHeader);
            }
            let pool = LivePool::create(new, surroundings(1)).await.unwrap();
            let volume = volume(&pool, 16 * MIB, "16M").await;
            let count = || pool.feature_count(Feature::DynamicGangHeader);
            for round in 0..4 {
                for at in 0..16 {
                    volume.write_at(at * MIB, &noise(round * 16 + at + 1), false).await.unwrap();
                }
                assert_eq!(count(), enabled.then_some(u64::from(round > 0)), "round {round}");
                for _ in 0..3 {
                    pool.sync().await.unwrap();
                }
                let report = verified(&disks).await;
                assert!(report.is_clean(), "{:?} {:?}", report.errors, report.space);
                assert!(report.stats.total().gangs > 0, "no gang was written");
                for at in 0..16 {
                    let mut read = vec![0; MIB as usize];
                    volume.read_at(at * MIB, &mut read).await.unwrap();
                    assert!(read == noise(round * 16 + at + 1));
                }
            }
            drop(volume);
            pool.close(PoolState::Exported).await.unwrap();
            drop(pool);
            let found = disks.found("tank").await;
            let pool = import(&found, &ImportOptions::read_only()).await.unwrap();
            let named = &pool.config().features_for_read;
            let is_named =
                named.iter().any(|name| name.as_bytes() == Feature::DynamicGangHeader.guid().as_bytes());
            assert_eq!(is_named, enabled, "the labels name what is needed to read the pool");
        });
        if !enabled || testkit::oracle::zdb_is_of_2_4() {
            disks.judge("tank");
        }
    }
}

/// Writes a mebibyte after the other until there is no room.
async fn filled<F: Future<Output = engine::Result<()>>>(
    pool: &Arc<LivePool>,
    write: impl Fn(u64, Vec<u8>) -> F,
) -> u64 {
    let mut written = 0;
    loop {
        let full = with_room(pool.txgs(), || write(written * MIB, noise(written + 1))).await;
        match full {
            Ok(()) => written += 1,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace(_)), "{error}");
                return written;
            }
        }
    }
}

/// A little of each block: what is accepted must be written, and that is whole blocks.
async fn little_of_each<F: Future<Output = engine::Result<()>>>(
    pool: &Arc<LivePool>,
    blocks: u64,
    write: impl Fn(u64, Vec<u8>) -> F,
) {
    // What was given back can be used two groups later.
    for _ in 0..3 {
        pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
    }
    let mut changed = 0;
    for round in 0..2 {
        for block in 0..blocks {
            let bytes = noise_of(round * blocks + block + 1, 512);
            match write(block * RECORD, bytes).await {
                Ok(()) => changed += 1,
                Err(Error::NoSpace(_)) => {
                    pool.txgs()
                        .wait_synced(pool.txgs().open_txg())
                        .await
                        .expect("what was accepted is written");
                }
                Err(error) => panic!("{error}"),
            }
            assert!(pool.txgs().dirty_bytes() <= 300 * MIB, "{} bytes are dirty", pool.txgs().dirty_bytes());
        }
    }
    pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("what was accepted is written");
    assert!(changed * RECORD > GIVEN_BACK / 2, "{changed} changes of {blocks} blocks");
}

const RECORD: u64 = 128 << 10;
/// What is free when little of each block is written.
const GIVEN_BACK: u64 = 24 * MIB;

#[test]
fn a_small_write_into_a_large_block_needs_room_for_the_block() {
    let disks = Disks::new(320 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let volume = volume(&pool, 1024 * MIB, "128K").await;
        let write = |at, bytes: Vec<u8>| {
            let volume = &volume;
            async move { volume.write_at(at, &bytes, false).await }
        };
        let written = filled(&pool, write).await - GIVEN_BACK / MIB;
        volume.trim(written * MIB, GIVEN_BACK, false).await.unwrap();
        little_of_each(&pool, written * MIB / RECORD, write).await;
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_file_that_is_changed_or_cut_needs_room_for_its_blocks() {
    let disks = Disks::new(320 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        let head = dsl.find("tank").await.unwrap();
        let dataset = pool.dataset(head.objset_id()).await.unwrap();
        let zpl = filesystem::open(&pool).await;
        zpl.set_room(dataset.room.clone());
        let root = zpl.zpl().root();
        let mut files = Vec::new();
        for number in 0..64 {
            files.push(zpl.create(root, format!("cut{number}").as_bytes(), &FILE).await.unwrap());
        }
        let file = zpl.create(root, b"file", &FILE).await.unwrap();
        for (number, file) in (1..).zip(&files) {
            zpl.write(*file, 0, &noise(number), &WriteOptions::default()).await.unwrap();
        }
        let write = |at, bytes: Vec<u8>| {
            let zpl = &zpl;
            async move { zpl.write(file, at, &bytes, &WriteOptions::default()).await.map(|_| ()) }
        };
        let written = filled(&pool, write).await - GIVEN_BACK / MIB;
        zpl.truncate(file, written * MIB).await.unwrap();
        little_of_each(&pool, written * MIB / RECORD, write).await;
        // Each keeps nine hundred thousand bytes, and gives a little back.
        for file in &files {
            with_room(pool.txgs(), || zpl.truncate(*file, 900_001)).await.unwrap();
        }
        pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
        drop((zpl, dataset, dsl));
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// Writes the same volume over and over, stable each time. What a log takes until its group is committed is
/// not there for the data of that group.
async fn kept_up(pool: &Arc<LivePool>, volume: &LiveZvol, length: u64) {
    let (bytes, block) = (&noise_of(7, length), volume.block_size());
    for turn in 0..SMALL_POOL / 2 / length {
        let at = turn % (VOLUME / block) * block;
        let written = with_room(pool.txgs(), || volume.write_at(at, bytes, true)).await;
        written.unwrap_or_else(|error| panic!("blocks of {block}, write {turn}: {error}"));
        assert!(pool.txgs().stopped().is_none());
    }
    pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
}

/// The size of the pool's one device, and of a volume that does not fill it.
const SMALL_POOL: u64 = 64 * MIB;
const VOLUME: u64 = 8 * MIB;

/// Whole blocks that are logged, and halves of blocks that are written to their place before their group is.
const WAYS: [(&str, u64); 2] = [("4K", 4 << 10), ("64K", 32 << 10)];

#[test]
fn logs_leave_room_for_the_data_of_a_small_pool() {
    for (block, length) in WAYS {
        let disks = Disks::new(SMALL_POOL);
        block_on(async {
            let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
            // Nothing but what is dirty, and room, has groups committed.
            let limits = Limits { timeout: Duration::from_secs(3600), ..Limits::default() };
            let pool = LivePool::create(new, Surroundings { limits, ..surroundings(1) }).await.unwrap();
            pool.start().unwrap();
            let volume = volume(&pool, VOLUME, block).await;
            kept_up(&pool, &volume, length).await;
            drop(volume);
            pool.close(PoolState::Exported).await.unwrap();
        });
        disks.judge("tank");
    }
}

#[test]
fn what_is_being_written_early_needs_room_again_when_it_is_written_to() {
    const BLOCK: u64 = 64 << 10;
    let disks = Disks::new(SMALL_POOL);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let volume = volume(&pool, VOLUME, "64K").await;
        // Begins the log.
        volume.write_at(BLOCK, &[1], true).await.unwrap();
        let bytes = noise_of(1, BLOCK);
        let mut write = Box::pin(volume.write_at(0, &bytes, true));
        assert!(poll!(write.as_mut()).is_pending(), "the device has not been asked yet");
        // What comes now needs a place beside the one that is being written to.
        let content = volume.objset().object(ObjectId(1)).await.unwrap();
        assert_eq!(content.newly_dirty(pool.txgs().open_txg(), &(0..1), None).data_bytes(), BLOCK);
        write.as_mut().await.unwrap();
        drop((write, content));
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn a_block_that_cannot_be_written_early_leaves_room_for_its_group() {
    // Each block is a gang: what is written early of it is given back at once, and free when its group is
    // committed.
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Raidz { nparity: 1 }, Class::Normal, "d", 2)], 12);
        let limits = Limits { timeout: Duration::from_secs(3600), ..Limits::default() };
        let pool = LivePool::create(new, Surroundings { limits, ..surroundings(1) }).await.unwrap();
        pool.start().unwrap();
        let volume = volume(&pool, 16 * MIB, "16M").await;
        volume.zil().set_for_throughput(true);
        for at in 0..16 {
            let bytes = noise(at + 1);
            with_room(pool.txgs(), || volume.write_at(at * MIB, &bytes, false)).await.unwrap();
        }
        for turn in 0..12 {
            let bytes = noise_of(turn + 1, 4096);
            with_room(pool.txgs(), || volume.write_at(0, &bytes, true)).await.unwrap();
            assert!(pool.txgs().stopped().is_none(), "write {turn}");
        }
        drop(volume);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// Destroys all that is below the pool's own filesystem.
async fn destroy_all(pool: &Arc<LivePool>) {
    loop {
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        let listed = dsl.list(None, Walk::ALL).await.unwrap();
        let listed: Vec<String> = listed.iter().map(|entry| entry.name().to_owned()).collect();
        drop(dsl);
        let (snapshots, heads): (Vec<String>, Vec<String>) =
            listed.into_iter().filter(|name| name != "tank").partition(|name| name.contains('@'));
        if !snapshots.is_empty() {
            let destroy =
                move |s: Syncing| async move { edit::destroy_snapshots(&s, &snapshots, false).await };
            pool.change(destroy).await.unwrap();
        } else if heads.is_empty() {
            return;
        }
        for name in heads {
            let destroy = move |s: Syncing| async move {
                let destroyed = edit::destroy(&s, &name).await?;
                s.forget_dataset(destroyed.objset);
                Ok(())
            };
            pool.change(destroy).await.unwrap();
        }
    }
}

/// User properties that are as long as they can be and hardly compress.
fn texts(seed: u32, count: u32) -> Vec<(String, String)> {
    let letter = |byte: u8| char::from(b'0' + byte % 64);
    (0..count)
        .map(|number| {
            let bytes = noise_of((u64::from(seed) << 8) + u64::from(number) + 1, 8000);
            (format!("user:{seed}-{number}"), bytes.into_iter().map(letter).collect())
        })
        .collect()
}

/// Makes changes until one is refused, and gives the refusal.
async fn until_refused<F: Future<Output = engine::Result<()>>>(change: impl Fn(u32) -> F) -> Error {
    for number in 0..20_000 {
        if let Err(error) = change(number).await {
            return error;
        }
    }
    panic!("nothing was refused");
}

#[test]
fn changes_of_a_full_pool_are_refused_with_figures_and_what_gives_space_back_is_not() {
    let disks = Disks::new(96 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let volume = volume(&pool, 1024 * MIB, "128K").await;
        let write = |at, bytes: Vec<u8>| {
            let volume = &volume;
            async move { volume.write_at(at, &bytes, false).await }
        };
        filled(&pool, write).await;
        drop(volume);
        let pool = &pool;
        let set = |properties: Vec<(String, String)>| {
            pool.change(|s| async move { edit::set_properties(&s, "tank/vol", &properties).await.map(drop) })
        };
        let refused = [
            until_refused(|number| {
                let name = format!("tank/vol@{number}");
                let new = [NewSnapshot { name, properties: texts(number, 1) }];
                pool.change(move |s| async move { edit::snapshot(&s, &new).await })
            })
            .await,
            until_refused(|number| {
                let name = format!("tank/fs{number}");
                let new = NewDataset { name, contents: NewContents::Filesystem, properties: Vec::new() };
                pool.change(move |s| async move { edit::create(&s, &new).await.map(drop) })
            })
            .await,
            until_refused(|number| set(texts(number, 10))).await,
        ];
        for error in refused {
            assert!(matches!(&error, Error::NoSpace(_)), "{error}");
            assert!(error.to_string().contains("available"), "{error}");
        }
        // What may help goes on.
        for reservation in ["4K", "none"] {
            set(vec![("reservation".into(), reservation.into())]).await.unwrap();
        }
        destroy_all(pool).await;
        let new = NewDataset {
            name: "tank/again".into(),
            contents: NewContents::Filesystem,
            properties: Vec::new(),
        };
        pool.change(move |s| async move { edit::create(&s, &new).await.map(drop) }).await.unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// Copies are raised while a group is open that accepted all that there was room for.
#[test]
fn more_copies_do_not_take_the_room_of_what_was_accepted() {
    let disks = Disks::new(320 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        let volume = volume(&pool, 1024 * MIB, "128K").await;
        let dataset = pool.dataset(volume.objset().id()).await.unwrap();
        for (round, room_for_copies) in [(0, true), (1, false)] {
            // The next group is open while this one waits.
            let held = pool.txgs().begin(0).await.unwrap();
            let copies = if room_for_copies { "2" } else { "3" };
            let properties = vec![("copies".to_owned(), copies.to_owned())];
            let set =
                |s: Syncing| async move { edit::set_properties(&s, "tank/vol", &properties).await.map(drop) };
            let mut set = Box::pin(pool.change(set));
            assert!(poll!(set.as_mut()).is_pending());
            for number in 0..if room_for_copies { 8 } else { 320 } {
                let at = round * 320 + number;
                let bytes = noise(at + 1);
                match volume.write_at(at * MIB, &bytes, false).now_or_never() {
                    Some(written) => written.unwrap(),
                    // There is no room in this group.
                    None => break,
                }
            }
            drop(held);
            set.await.unwrap();
            assert_eq!(dataset.objset.policy().copies.to_string(), copies);
            pool.sync().await.expect("what was accepted is written");
            pool.sync().await.unwrap();
        }
        drop((volume, dataset));
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
