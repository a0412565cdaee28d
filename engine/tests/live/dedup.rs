//! Deduplicated filesystems: what each file holds is its own, every entry counts as many references as there
//! are pointers, and when all is gone no table, log or space is left.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::block_on;
use engine::dmu::Objset;
use engine::dmu::zap::Zap;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::dsl::{Dsl, Kind, Walk};
use engine::env::{Env, Seeded};
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, import};
use engine::pool::live::{Layout, LivePool, NewPool, NewTop, Prune, Syncing};
use engine::pool::verify::{Depth, Progress, VerifyOptions, verify};
use engine::vdev::Class;
use engine::zpl::live::{NewKind, NewNode, WriteOptions};
use engine::zpl::{LiveZpl, ZplOptions};
use ondisk::blkptr::Blkptr;
use ondisk::features::Feature;
use ondisk::pool_directory::{DDT_STATISTICS, DIRECTORY_OBJECT};
use ondisk::vdev_config::PoolState;
use ondisk::zpl::FileType;
use ondisk::{ObjectId, ObjsetId};

use crate::random;
use crate::support::{Disks, committing, crashed, new_pool, surroundings};

pub const BLOCK: u64 = 4096;
pub const FILES: usize = 6;
/// Different contents of blocks.
const CONTENTS: u64 = 25;
/// More groups than entries stay in a log.
pub const GROUPS: usize = 40;

pub fn mirror(disks: &Disks) -> Vec<NewTop> {
    vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)]
}

/// A pool whose root deduplicates, with the feature `fast_dedup` or without.
pub fn deduplicating(tops: Vec<NewTop>, dedup: &str, is_fast: bool) -> NewPool {
    let mut new = new_pool(tops, 12);
    new.features.retain(|feature| is_fast || *feature != Feature::FastDedup);
    let properties = [("dedup", dedup), ("compression", "off"), ("recordsize", "4K")];
    new.root_properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    new
}

/// A new pool. One whose root is encrypted has a key.
pub async fn born(new: NewPool, seed: u64) -> Arc<LivePool> {
    let surroundings = surroundings(seed);
    let is_encrypted = new.root_properties.iter().any(|(name, _)| name == "encryption");
    let key = is_encrypted.then(|| random::user_key(random::KEYS[0], &*surroundings.env));
    LivePool::create_with_key(new, key, surroundings).await.unwrap()
}

/// Loads the key of an imported pool, if its root is encrypted.
pub async fn unlock(pool: &Arc<LivePool>) {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    if dsl.encryption_root_of("tank").await.is_ok() {
        dsl.load_key("tank", random::KEYS[0].as_bytes(), false).await.unwrap();
        drop(dsl);
        committing(pool, pool.replay_unlocked()).await.unwrap();
    }
}

pub async fn open(pool: &Arc<LivePool>, name: &str) -> Arc<LiveZpl> {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let head = dsl.find(name).await.unwrap();
    let dataset = pool.dataset(head.objset_id()).await.unwrap();
    let zpl = LiveZpl::open(pool.txgs(), &dataset.objset, &dataset.zil, ZplOptions::default()).await.unwrap();
    zpl.set_record_size(BLOCK as u32);
    zpl
}

pub async fn create(zpl: &LiveZpl, name: &str) -> ObjectId {
    let node = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
    zpl.create(zpl.zpl().root(), name.as_bytes(), &node).await.unwrap()
}

pub async fn content(zpl: &LiveZpl, file: ObjectId) -> Vec<u8> {
    let size = zpl.zpl().node(file).await.unwrap().stat().unwrap().size;
    let mut bytes = vec![0; size as usize];
    assert_eq!(zpl.read(file, 0, &mut bytes).await.unwrap(), bytes.len());
    bytes
}

/// One of the contents that blocks have here.
pub fn of_number(number: u64) -> Vec<u8> {
    let dice = Seeded::new(number + 1000);
    // The last third of a block is zeroes, so that some compressions make it shorter.
    (0..BLOCK).map(|at| if at < BLOCK * 2 / 3 { dice.random() as u8 | 1 } else { 0 }).collect()
}

fn put(model: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    model.resize(model.len().max(end), 0);
    model[offset as usize..end].copy_from_slice(bytes);
}

pub async fn set(pool: &Arc<LivePool>, name: &str, property: &str, value: &str) {
    let properties = vec![(property.to_owned(), value.to_owned())];
    let name = name.to_owned();
    let change = |s: Syncing| async move {
        for id in edit::set_properties(&s, &name, &properties).await?.policies {
            if let Some(open) = s.open_dataset(id) {
                open.objset.set_policy(edit::policy(&s, id).await?);
            }
        }
        Ok(())
    };
    pool.change(change).await.unwrap();
}

/// What the tables count is what a walk over all blocks finds, and what the pool says of its space is what
/// the tables say.
pub async fn check(pool: &Arc<LivePool>) {
    assert_eq!(check_pruned(pool).await, 0, "pointers whose entries are gone");
}

/// The same where entries were pruned. Gives the number of pointers that have no entry.
pub async fn check_pruned(pool: &Arc<LivePool>) -> u64 {
    pool.sync().await.unwrap();
    let view = pool.view();
    let options = VerifyOptions { threads: 1, depth: Depth::Structure, check_space: true };
    let checked = Arc::clone(&view);
    let report = std::thread::spawn(move || verify(&checked, options, &Progress::default()).unwrap());
    let report = report.join().unwrap();
    let dedup = report.dedup.unwrap_or_default();
    assert_eq!(dedup.wrong_entries, 0, "{dedup:?}");
    assert_eq!((report.unreadable_blocks, report.damaged_blocks), (0, 0), "{:?}", report.errors.first());
    let dsl = Dsl::open(&view).await.unwrap();
    let space = dsl.pool_space().await.unwrap();
    let saved = space.dedup.saved_bytes() + space.clones.saved_bytes;
    assert_eq!(pool.saved_by_clones(), saved, "{:?}", space.dedup);
    assert!(space.dedup.entries >= dedup.entries, "{} {:?}", dedup.entries, space.dedup);
    dedup.without_entry
}

/// Names of dedup tables in the pool directory.
pub async fn tables(pool: &Arc<LivePool>) -> BTreeSet<String> {
    let view = pool.view();
    let mos = Objset::open(&view, ObjsetId::MOS, view.root_blkptr()).await.unwrap();
    let directory = Zap::open(&mos.object(DIRECTORY_OBJECT).await.unwrap()).await.unwrap();
    let entries = directory.entries(10_000).await.unwrap();
    let names = entries.iter().filter_map(|entry| entry.key.name());
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
    names.filter(|name| name.starts_with("DDT-") && name != DDT_STATISTICS).collect()
}

pub async fn export(pool: Arc<LivePool>, disks: &Disks) {
    committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    drop(pool);
    let view = {
        let found = discovery::scan(&[disks.path()]).await.unwrap().pop().unwrap();
        import(&found, &ImportOptions::read_only()).await.unwrap()
    };
    let verified = std::thread::spawn(move || verify(&view, VerifyOptions::default(), &Progress::default()));
    let report = verified.join().unwrap().unwrap();
    assert!(report.is_clean(), "{:?} {:?}", report.errors.first(), report.dedup);
    disks.judge("tank");
}

/// A filesystem under test, and what its files hold.
pub struct Model {
    pub zpl: Arc<LiveZpl>,
    pub files: Vec<ObjectId>,
    pub contents: Vec<Vec<u8>>,
    /// Whether entries are pruned.
    pub prunes: bool,
    /// Whether blocks are cloned.
    pub clones: bool,
}

impl Model {
    pub async fn begin(pool: &Arc<LivePool>) -> Self {
        let zpl = open(pool, "tank").await;
        let mut files = Vec::new();
        for name in 0..FILES {
            files.push(create(&zpl, &format!("f{name}")).await);
        }
        Self { zpl, files, contents: vec![Vec::new(); FILES], prunes: false, clones: true }
    }

    /// Random writes, copies, holes and cuts, in groups of random length, under properties that change.
    pub async fn shuffle(&mut self, pool: &Arc<LivePool>, seed: u64, dedups: &[&str]) {
        let dice = Seeded::new(seed);
        let roll = |sides: u64| dice.random() % sides.max(1);
        for _ in 0..220 {
            let (at, other) = (roll(FILES as u64) as usize, roll(FILES as u64) as usize);
            let (file, offset) = (self.files[at], roll(40) * BLOCK);
            match roll(24) {
                0..=10 => {
                    let numbers = (0..1 + roll(6)).map(|_| roll(CONTENTS));
                    let bytes: Vec<u8> = numbers.flat_map(of_number).collect();
                    self.zpl.write(file, offset, &bytes, &WriteOptions::default()).await.unwrap();
                    put(&mut self.contents[at], offset, &bytes);
                }
                11 => {
                    let bytes = vec![roll(3) as u8; (1 + roll(2 * BLOCK)) as usize];
                    let offset = offset + roll(BLOCK);
                    self.zpl.write(file, offset, &bytes, &WriteOptions::default()).await.unwrap();
                    put(&mut self.contents[at], offset, &bytes);
                }
                12..=14 if at != other && self.clones => {
                    let source = self.contents[other].clone();
                    let length = source.len() as u64;
                    let copied =
                        self.zpl.copy_range(self.files[other], 0, file, offset, length).await.unwrap();
                    assert_eq!(copied, length);
                    if length > 0 {
                        put(&mut self.contents[at], offset, &source);
                    }
                }
                15 => {
                    let length = roll(8 * BLOCK);
                    self.zpl.punch(file, offset, length).await.unwrap();
                    let end = self.contents[at].len().min((offset + length) as usize);
                    if let Some(range) = self.contents[at].get_mut(offset as usize..end) {
                        range.fill(0);
                    }
                }
                16 | 17 => {
                    let size = roll(40 * BLOCK);
                    self.zpl.truncate(file, size).await.unwrap();
                    self.contents[at].resize(size as usize, 0);
                }
                18 => {
                    let dedup = dedups[roll(dedups.len() as u64) as usize];
                    committing(pool, set(pool, "tank", "dedup", dedup)).await;
                }
                19 => {
                    let (property, values) = match roll(2) {
                        0 => ("compression", ["off", "lzjb", "gzip-1"]),
                        _ => ("copies", ["1", "2", "1"]),
                    };
                    committing(pool, set(pool, "tank", property, values[roll(3) as usize])).await;
                }
                20 if self.prunes => {
                    let pruned = pool.prune_dedup(Prune::Percent(30 + roll(71)));
                    committing(pool, pruned).await.unwrap();
                    check_pruned(pool).await;
                }
                _ => {
                    pool.sync().await.unwrap();
                    pool.fill_dedup_filter().await.unwrap();
                }
            }
            let found = content(&self.zpl, file).await;
            assert!(found == self.contents[at], "file {at} before the commit");
        }
        assert!(check_pruned(pool).await == 0 || self.prunes);
        for (file, contents) in self.files.iter().zip(&self.contents) {
            assert!(content(&self.zpl, *file).await == *contents);
        }
    }
}

pub async fn snapshot(pool: &Arc<LivePool>, name: &str) {
    let new = vec![NewSnapshot { name: name.into(), properties: Vec::new() }];
    pool.change(move |s: Syncing| async move { edit::snapshot(&s, &new).await }).await.unwrap();
}

pub async fn destroy_snapshot(pool: &Arc<LivePool>, name: &'static str) {
    let destroy =
        move |s: Syncing| async move { edit::destroy_snapshots(&s, &[name.to_owned()], false).await };
    pool.change(destroy).await.unwrap();
}

/// A history from the first entry of a table to its end, with a snapshot, a clone and an import in between.
async fn history(disks: &Disks, new: NewPool, dedups: &[&str], seed: u64) {
    let is_fast = new.features.contains(&Feature::FastDedup);
    let pool = born(new, seed).await;
    let mut model = Model::begin(&pool).await;
    model.shuffle(&pool, seed, dedups).await;
    assert!(!tables(&pool).await.is_empty());
    assert_eq!(pool.feature_count(Feature::FastDedup).is_some_and(|count| count > 0), is_fast);
    snapshot(&pool, "tank@s").await;
    model.shuffle(&pool, seed + 1, dedups).await;
    let clone = |s: Syncing| async move { edit::clone(&s, "tank@s", "tank/clone", &[]).await };
    pool.change(clone).await.unwrap();
    let of_clone = open(&pool, "tank/clone").await;
    for number in 0..30 {
        let bytes: Vec<u8> = [number % CONTENTS, 7].into_iter().flat_map(of_number).collect();
        let file = model.files[number as usize % FILES];
        of_clone.write(file, number * BLOCK, &bytes, &WriteOptions::default()).await.unwrap();
    }
    drop(of_clone);
    check(&pool).await;
    let Model { zpl, files, contents, .. } = model;
    drop(zpl);
    export(pool, disks).await;

    let pool = disks.import("tank", seed + 2).await;
    check(&pool).await;
    unlock(&pool).await;
    let mut model = Model { zpl: open(&pool, "tank").await, files, contents, prunes: false, clones: true };
    for (file, contents) in model.files.iter().zip(&model.contents) {
        assert!(content(&model.zpl, *file).await == *contents, "after an import");
    }
    model.shuffle(&pool, seed + 3, dedups).await;
    // Everything goes, in an order that leaves the last references now here and now there.
    for name in 0..FILES / 2 {
        model.zpl.unlink(model.zpl.zpl().root(), format!("f{name}").as_bytes()).await.unwrap();
    }
    check(&pool).await;
    pool.dataset(Dsl::open(&pool.view()).await.unwrap().find("tank/clone").await.unwrap().objset_id())
        .await
        .unwrap()
        .zil
        .close()
        .await
        .unwrap();
    let destroy = |s: Syncing| async move {
        let destroyed = edit::destroy(&s, "tank/clone").await?;
        s.forget_dataset(destroyed.objset);
        Ok(())
    };
    committing(&pool, pool.change(destroy)).await.unwrap();
    check(&pool).await;
    destroy_snapshot(&pool, "tank@s").await;
    check(&pool).await;
    for name in FILES / 2..FILES {
        model.zpl.unlink(model.zpl.zpl().root(), format!("f{name}").as_bytes()).await.unwrap();
    }
    for _ in 0..GROUPS {
        pool.sync().await.unwrap();
    }
    check(&pool).await;
    assert_eq!(tables(&pool).await, BTreeSet::new());
    assert_eq!(pool.saved_by_clones(), 0);
    assert!(pool.feature_count(Feature::FastDedup).is_none_or(|count| count == 0));
    drop(model);
    export(pool, disks).await;
}

macro_rules! histories {
    ($($test:ident: $dedups:expr, fast $fast:literal, seed $seed:literal $(, $suite:literal)?;)*) => {
        $(
            #[test]
            fn $test() {
                let disks = Disks::new(128 << 20);
                let dedups: &[&str] = &$dedups;
                let new = deduplicating(mirror(&disks), dedups[0], $fast);
                $(let new = random::encrypted(new, $suite, &[]);)?
                block_on(history(&disks, new, dedups, $seed));
            }
        )*
    };
}

histories! {
    dedup_fast: ["on"], fast true, seed 1;
    dedup_fast_verified: ["verify"], fast true, seed 2;
    dedup_fast_of_many: ["sha512", "blake3", "edonr,verify", "skein,verify", "off", "on"], fast true, seed 3;
    dedup_traditional: ["on"], fast false, seed 4;
    dedup_traditional_of_many: ["on", "off", "sha256,verify", "skein", "edonr,verify"], fast false, seed 5;
    dedup_encrypted: ["on"], fast true, seed 11, "aes-256-gcm";
    dedup_encrypted_of_many: ["sha512", "blake3", "edonr,verify", "skein,verify", "off", "on"], fast true,
        seed 12, "aes-128-ccm";
    dedup_encrypted_traditional: ["verify", "on", "off"], fast false, seed 13, "aes-192-gcm";
}

#[test]
fn random_dedup_raidz1_12() {
    run_random("random_dedup_raidz1_12", 128 << 20, true, false, |disks| {
        vec![disks.top(Layout::Raidz { nparity: 1 }, Class::Normal, "d", 3)]
    });
}

#[test]
fn random_dedup_traditional_classes_12() {
    run_random("random_dedup_traditional_classes_12", 128 << 20, false, false, |disks| {
        let dedup = disks.top(Layout::Single, Class::Dedup, "dedup", 1);
        vec![disks.top(Layout::Mirror, Class::Normal, "d", 2), dedup]
    });
}

#[test]
fn random_dedup_full_mirror_12() {
    run_random("random_dedup_full_mirror_12", 96 << 20, true, true, mirror);
}

#[test]
fn random_dedup_full_traditional_12() {
    run_random("random_dedup_full_traditional_12", 96 << 20, false, true, mirror);
}

fn run_random(name: &str, disk_bytes: u64, is_fast: bool, fill: bool, tops: fn(&Disks) -> Vec<NewTop>) {
    let disks = Disks::new(disk_bytes);
    random::run_on(name, &disks, fill, |disks| {
        let mut new = deduplicating(tops(disks), "on", is_fast);
        new.root_properties.retain(|(name, _)| name == "dedup");
        new
    });
}

#[test]
fn dedup_in_a_pool_of_version_28() {
    let disks = Disks::new(128 << 20);
    let new = NewPool { version: 28, features: Vec::new(), ..deduplicating(mirror(&disks), "on", false) };
    block_on(history(&disks, new, &["on", "verify"], 6));
}

/// The pointers of a file.
pub async fn pointers(zpl: &LiveZpl, file: ObjectId) -> Vec<Blkptr> {
    let object = zpl.objset().object(file).await.unwrap();
    let mut found = Vec::new();
    for id in 0..object.end().div_ceil(object.block_size()) {
        match object.stored(id).await.unwrap() {
            engine::dmu::Stored::Block(pointer) => found.push(pointer),
            engine::dmu::Stored::Hole => found.push(Blkptr::HOLE),
            engine::dmu::Stored::Changed => panic!("block {id} is not stored"),
        }
    }
    found
}

#[test]
fn equal_blocks_are_stored_once_wherever_they_are_in_a_group() {
    for is_fast in [false, true] {
        let disks = Disks::new(128 << 20);
        block_on(async {
            let pool = LivePool::create(deduplicating(mirror(&disks), "on", is_fast), surroundings(1))
                .await
                .unwrap();
            let zpl = open(&pool, "tank").await;
            let (one, other) = (create(&zpl, "one").await, create(&zpl, "other").await);
            let thrice: Vec<u8> =
                [of_number(1), of_number(1), of_number(1), vec![0; BLOCK as usize]].concat();
            for file in [one, other] {
                zpl.write(file, 0, &thrice, &WriteOptions::default()).await.unwrap();
            }
            check(&pool).await;
            let all: Vec<Blkptr> = [pointers(&zpl, one).await, pointers(&zpl, other).await].concat();
            let stored: Vec<&Blkptr> = all.iter().filter(|bp| !bp.is_hole()).collect();
            assert_eq!(stored.len(), 6, "zeroes are not stored, although compression is off");
            assert!(stored.iter().all(|bp| bp.is_dedup() && bp.dva(0) == stored[0].dva(0)));
            assert_eq!(pool.saved_by_clones(), 5 * BLOCK);
            // Written again: the same block, born anew, and no reference more.
            let before = stored[0].physical_birth();
            zpl.write(one, 0, &of_number(1), &WriteOptions::default()).await.unwrap();
            check(&pool).await;
            let again = pointers(&zpl, one).await;
            assert_eq!((again[0].dva(0), again[0].physical_birth()), (all[0].dva(0), before));
            assert!(again[0].logical_birth() > before);
            assert_eq!(pool.saved_by_clones(), 5 * BLOCK);
            // The last reference goes.
            for file in [one, other] {
                zpl.truncate(file, 0).await.unwrap();
            }
            check(&pool).await;
            assert_eq!(pool.saved_by_clones(), 0);
            drop(zpl);
            export(pool, &disks).await;
        });
    }
}

#[test]
fn blocks_that_want_more_copies_than_an_entry_has_are_stored_on_their_own() {
    for is_fast in [false, true] {
        let disks = Disks::new(128 << 20);
        block_on(async {
            let pool = LivePool::create(deduplicating(mirror(&disks), "on", is_fast), surroundings(1))
                .await
                .unwrap();
            let new = NewDataset {
                name: "tank/two".into(),
                contents: NewContents::Filesystem,
                properties: vec![("copies".into(), "2".into())],
            };
            pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
            let (zpl, two) = (open(&pool, "tank").await, open(&pool, "tank/two").await);
            let mut found = Vec::new();
            for zpl in [&zpl, &two, &two, &zpl] {
                let file = create(zpl, &format!("f{}", found.len())).await;
                zpl.write(file, 0, &of_number(3), &WriteOptions::default()).await.unwrap();
                check(&pool).await;
                let bp = pointers(zpl, file).await[0];
                found.push((bp.copies(), bp.is_dedup()));
            }
            // A traditional entry has a place for each number of copies.
            assert_eq!(found, [(1, true), (2, !is_fast), (2, !is_fast), (1, true)]);
            drop((zpl, two));
            export(pool, &disks).await;
        });
    }
}

/// All regular files of a filesystem.
async fn regular_files(zpl: &LiveZpl) -> Vec<ObjectId> {
    let (mut dirs, mut files) = (vec![zpl.zpl().root()], Vec::new());
    while let Some(dir) = dirs.pop() {
        for entry in zpl.read_dir(dir, 2, 1000).await.unwrap() {
            match entry.file_type {
                Some(FileType::Directory) => dirs.push(entry.object),
                Some(FileType::Regular) => files.push(entry.object),
                _ => {}
            }
        }
    }
    files
}

/// Data of every filesystem are written once more, so that they meet the entries that OpenZFS made; then all
/// filesystems go, and with them every entry.
fn golden(name: &str) {
    let Some(disks) = Disks::of_golden(name) else { return };
    block_on(async {
        let pool = disks.import(name, 3).await;
        let mut saved = pool.saved_by_clones();
        println!("{name}: {saved} bytes are saved");
        check(&pool).await;
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        let heads: Vec<String> = dsl
            .list(None, Walk::HEADS)
            .await
            .unwrap()
            .iter()
            .filter_map(|entry| {
                let is_below = entry.kind == Kind::Filesystem && entry.dataset()?.name.contains('/');
                is_below.then(|| entry.dataset().map(|dataset| dataset.name.clone()))?
            })
            .collect();
        drop(dsl);
        assert!(heads.len() > 1, "{heads:?}");
        for head in &heads {
            let objset = Dsl::open(&pool.view()).await.unwrap().find(head).await.unwrap().objset_id();
            let zpl = pool.filesystem(objset).await.unwrap();
            for (number, file) in (0..).zip(regular_files(&zpl).await) {
                let bytes = content(&zpl, file).await;
                let again = create(&zpl, &format!("cenote-{number}")).await;
                committing(&pool, zpl.write(again, 0, &bytes, &WriteOptions::default())).await.unwrap();
                pool.sync().await.unwrap();
                assert!(content(&zpl, again).await == bytes);
            }
            check(&pool).await;
            let now = pool.saved_by_clones();
            println!("{head}: saved {saved}, {now} after everything was written once more");
            assert!(now > saved, "{head}: what is there is found");
            saved = now;
            pool.dataset(objset).await.unwrap().zil.close().await.unwrap();
        }
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        let all = dsl.list(None, Walk { snapshots: true, ..Walk::HEADS }).await.unwrap();
        let names = all.iter().filter_map(|entry| entry.dataset()).map(|one| one.name.clone());
        let snapshots: Vec<String> = names.filter(|name| name.contains('@')).collect();
        drop((all, dsl));
        let destroy = |s: Syncing| async move { edit::destroy_snapshots(&s, &snapshots, false).await };
        committing(&pool, pool.change(destroy)).await.unwrap();
        for head in heads.into_iter().rev() {
            let destroy = |s: Syncing| async move {
                let destroyed = edit::destroy(&s, &head).await?;
                s.forget_dataset(destroyed.objset);
                Ok(())
            };
            committing(&pool, pool.change(destroy)).await.unwrap();
        }
        for _ in 0..GROUPS {
            pool.sync().await.unwrap();
        }
        check(&pool).await;
        assert_eq!(tables(&pool).await, BTreeSet::new());
        assert_eq!(pool.saved_by_clones(), 0);
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
    });
    disks.judge(name);
}

#[test]
fn entries_of_traditional_tables_of_openzfs_are_used_until_the_last_is_gone() {
    golden("dedupold");
}

#[test]
fn entries_of_fast_tables_of_openzfs_are_used_until_the_last_is_gone() {
    golden("dedupfast");
}

/// A group's blocks that are in the intent log by their pointers.
#[test]
fn blocks_that_were_written_early_come_into_the_tables_or_are_found_there() {
    const LARGE: u64 = 64 << 10;
    for (dedup, is_fast, suite) in [
        ("on", true, None),
        ("verify", true, None),
        ("on", false, None),
        ("on", true, Some("aes-256-gcm")),
        ("verify", true, Some("aes-256-ccm")),
        ("on", false, Some("aes-128-gcm")),
    ] {
        let disks = Disks::new(128 << 20);
        block_on(async {
            let mut new = deduplicating(mirror(&disks), dedup, is_fast);
            if let Some(suite) = suite {
                new = random::encrypted(new, suite, &[]);
            }
            let pool = born(new, 1).await;
            let properties = [("volblocksize", "64K"), ("logbias", "throughput")];
            let new = NewDataset {
                name: "tank/v".into(),
                contents: NewContents::Volume { size: 4 << 20, sparse: true },
                properties: properties.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            };
            let id = pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
            let volume = pool.volume(id).await.unwrap();
            let block =
                |number: u64| -> Vec<u8> { (0..16).flat_map(|part| of_number(number * 16 + part)).collect() };
            // Some of them twice and thrice.
            let places = [0, 1, 0, 2, 1, 0];
            let mut model = vec![0; 4 << 20];
            for (group, first) in [(0, 0u64), (1, 20)] {
                for (at, number) in (first..).zip(places) {
                    let bytes = block(number);
                    committing(&pool, volume.write_at(at * LARGE, &bytes, true)).await.unwrap();
                    model[(at * LARGE) as usize..][..LARGE as usize].copy_from_slice(&bytes);
                }
                let after_crash = crashed(&disks);
                let found = after_crash.import("tank", 7 + group).await;
                check(&found).await;
                unlock(&found).await;
                committing(&found, found.dataset(id).await.unwrap().zil.close()).await.unwrap();
                let replayed = found.volume(id).await.unwrap();
                let mut bytes = vec![0; model.len()];
                replayed.read_at(0, &mut bytes).await.unwrap();
                assert!(bytes == model, "after a crash");
                drop(replayed);
                export(found, &after_crash).await;
                check(&pool).await;
                assert_eq!(pool.saved_by_clones(), (3 + 6 * group) * LARGE);
            }
            let mut bytes = vec![0; model.len()];
            volume.read_at(0, &mut bytes).await.unwrap();
            assert!(bytes == model);
            drop(volume);
            export(pool, &disks).await;
        });
    }
}
