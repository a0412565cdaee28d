//! Encrypted datasets under attack: keys in the pool that were forged, changes that fail half-way, and blocks
//! that are damaged, with the key and without.
//!
//! Forged blocks below right checksums are a test of their own (`mutated`).

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use device::block_on;
use engine::Error;
use engine::dmu::zap::{Key, Value, Zap, edit as zap};
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::pool::errlog;
use engine::pool::live::{Layout, LivePool, NewPool, Syncing};
use engine::pool::verify::{Depth, Progress, Report, VerifyOptions, verify};
use engine::vdev::{Class, LABEL_START_BYTES};
use engine::zpl::live::WriteOptions;
use ondisk::blkptr::Blkptr;
use ondisk::crypto_key::key;
use ondisk::dsl_dir::field::CRYPTO_KEY_OBJ;
use ondisk::vdev_config::PoolState;
use ondisk::{ObjectId, ObjsetId};

use crate::dedup::{content, create, pointers};
use crate::files::FILE;
use crate::scrub::scrubbed;
use crate::support::{Disks, full, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;
const WORDS: &[u8] = b"correct horse battery staple";
const RAW: &[u8] = &[7; 32];

async fn add(pool: &Arc<LivePool>, name: &str, properties: &[(&str, &str)], key: Option<UserKey>) {
    let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let new =
        NewDataset { name: full(name), contents: NewContents::Filesystem, properties: properties.collect() };
    let key = key.map(Arc::new);
    pool.change(|s| async move { edit::create_with_key(&s, &new, key.as_ref()).await }).await.unwrap();
}

/// An encryption root with a passphrase, of two cipher suites' worth, and one with a raw key.
async fn add_roots(pool: &Arc<LivePool>) {
    let words = UserKey::new(KeyFormat::Passphrase, WORDS, Some(100_000), &**pool.env()).unwrap();
    let of_words = [("encryption", "aes-256-gcm"), ("keyformat", "passphrase")];
    add(pool, "words", &of_words, Some(words)).await;
    let raw = UserKey::new(KeyFormat::Raw, RAW, None, &**pool.env()).unwrap();
    add(pool, "raw", &[("encryption", "aes-256-ccm"), ("keyformat", "raw")], Some(raw)).await;
}

fn single(disks: &Disks) -> NewPool {
    new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12)
}

/// The entries of the object that is the key of a dataset, and its number.
async fn stored_key(pool: &Arc<LivePool>, name: &str) -> (ObjectId, Vec<(Key, Value)>) {
    let name = full(name);
    let read = |s: Syncing| async move {
        let dir = Dsl::open_in(s.mos().view()).await?.find_dir(&name).await?.object;
        let dir = s.mos().object(dir).await?;
        let object = zap::lookup_u64(&dir, CRYPTO_KEY_OBJ).await?.map(ObjectId).expect("it has a key");
        let entries = Zap::open(&s.mos().view().object(object).await?).await?.entries(100).await?;
        Ok((object, entries.into_iter().map(|entry| (entry.key, entry.value)).collect()))
    };
    pool.change(read).await.unwrap()
}

async fn store(pool: &Arc<LivePool>, object: ObjectId, entries: Vec<(Key, Value)>) {
    let write = move |s: Syncing| async move {
        let object = s.mos().object(object).await?;
        for (key, value) in &entries {
            zap::set(&object, &s.tx, key, value).await?;
        }
        Ok(())
    };
    pool.change(write).await.unwrap();
}

fn named(name: &str) -> Key {
    Key::Name(name.as_bytes().to_vec())
}

fn value(entries: &[(Key, Value)], name: &str) -> Value {
    entries.iter().find(|(key, _)| *key == named(name)).map(|(_, value)| value.clone()).unwrap()
}

async fn load(pool: &Arc<LivePool>, name: &str, material: &[u8]) -> engine::Result<usize> {
    Dsl::open(&pool.view()).await.unwrap().load_key(&full(name), material, false).await
}

#[test]
fn forged_keys_are_refused_by_name_and_leave_nothing() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let pool = LivePool::create(single(&disks), surroundings(1)).await.unwrap();
        pool.start().unwrap();
        add_roots(&pool).await;
        for name in ["words", "raw"] {
            pool.unload_key(&full(name)).await.unwrap();
        }
        let (object, right) = stored_key(&pool, "words").await;
        let (_, other) = stored_key(&pool, "raw").await;
        let number = |number: u64| Value::U64(vec![number]);
        let flipped = |name: &str| match value(&right, name) {
            Value::U8(mut bytes) => {
                bytes[0] ^= 1;
                Value::U8(bytes)
            }
            value => panic!("{name}: {value:?}"),
        };
        let wrapped = [key::IV, key::MAC, key::MASTER_KEY, key::HMAC_KEY];
        let wrong = "incorrect key for 'tank/words'";
        type Forged = (String, Vec<(&'static str, Value)>, &'static str);
        let mut forged: Vec<Forged> = vec![
            ("fewer rounds".into(), vec![(key::PBKDF2_ITERS, number(1))], wrong),
            ("no rounds".into(), vec![(key::PBKDF2_ITERS, number(0))], "PBKDF2"),
            ("endless rounds".into(), vec![(key::PBKDF2_ITERS, number(u64::MAX))], "rounds of PBKDF2"),
            ("hours of rounds".into(), vec![(key::PBKDF2_ITERS, number(1 << 31))], "rounds of PBKDF2"),
            ("another salt".into(), vec![(key::PBKDF2_SALT, number(5))], wrong),
            ("another guid".into(), vec![(key::GUID, number(5))], wrong),
            ("the mode of another suite".into(), vec![(key::SUITE, number(5))], wrong),
            ("a shorter key's suite".into(), vec![(key::SUITE, number(6))], wrong),
            ("no such suite".into(), vec![(key::SUITE, number(99))], "tank/words"),
            ("no encryption".into(), vec![(key::SUITE, number(2))], "tank/words"),
            ("the old wrapping".into(), vec![(key::VERSION, number(0))], wrong),
            ("a wrapping of the future".into(), vec![(key::VERSION, number(9))], "tank/words"),
            ("another format".into(), vec![(key::KEYFORMAT, number(1))], ""),
            ("no such format".into(), vec![(key::KEYFORMAT, number(9))], "key format 9"),
            ("a cut MAC".into(), vec![(key::MAC, Value::U8(vec![1; 15]))], "DSL_CRYPTO_MAC"),
            ("a cut key".into(), vec![(key::MASTER_KEY, Value::U8(vec![1; 16]))], "DSL_CRYPTO_MASTER_KEY_1"),
            ("a MAC of words".into(), vec![(key::MAC, number(1))], "DSL_CRYPTO_MAC"),
        ];
        for name in wrapped {
            forged.push((format!("a bit of {name}"), vec![(name, flipped(name))], wrong));
        }
        let of_other = wrapped.iter().map(|name| (*name, value(&other, name))).collect();
        forged.push(("the key of another dataset".into(), of_other, wrong));
        for (what, changes, expected) in forged {
            let changes = changes.into_iter().map(|(name, value)| (named(name), value)).collect();
            store(&pool, object, changes).await;
            let error = load(&pool, "words", WORDS).await.expect_err(&what).to_string();
            assert!(error.contains(expected), "{what}: {error}");
            let id = objset_of(&pool, "words").await.unwrap();
            let locked = pool.filesystem(id).await.unwrap_err();
            assert!(matches!(locked, Error::KeyNotLoaded { .. }), "{what}: {locked}");
            store(&pool, object, right.clone()).await;
        }
        // Keys of users that are wrong, cut, or another dataset's.
        for material in [&WORDS[1..], &WORDS[..7], b"", RAW, &[0xff; 4000]] {
            load(&pool, "words", material).await.unwrap_err();
        }
        for material in [&RAW[1..], WORDS, b"", &[8; 32]] {
            load(&pool, "raw", material).await.unwrap_err();
        }
        assert_eq!(load(&pool, "words", WORDS).await.unwrap(), 1);
        assert_eq!(load(&pool, "raw", RAW).await.unwrap(), 1);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// A new dataset whose creation fails after its key was made is not there, and no number has a key.
#[test]
fn a_failed_task_leaves_no_key() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let pool = LivePool::create(single(&disks), surroundings(1)).await.unwrap();
        pool.start().unwrap();
        add_roots(&pool).await;
        let before = keys(&pool);
        let raw = Arc::new(UserKey::new(KeyFormat::Raw, RAW, None, &**pool.env()).unwrap());
        for (name, properties) in [
            // Found out before anything is changed, and at different depths of it.
            ("raw/new", vec![("encryption", "nonsense")]),
            ("raw/no/such/parent", vec![("keyformat", "raw")]),
            ("raw", vec![("encryption", "on"), ("keyformat", "raw")]),
            ("raw/new", vec![("encryption", "on"), ("keyformat", "raw"), ("copies", "3")]),
            ("raw/new", vec![("encryption", "on"), ("keyformat", "raw"), ("reservation", "1T")]),
        ] {
            let properties: Vec<(String, String)> =
                properties.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            let what = format!("{name} {properties:?}");
            let new = NewDataset { name: full(name), contents: NewContents::Filesystem, properties };
            let key = Arc::clone(&raw);
            let made = pool.change(|s| async move { edit::create_with_key(&s, &new, Some(&key)).await });
            assert!(made.await.is_err(), "{what}");
            pool.sync().await.unwrap();
            assert_eq!(keys(&pool), before, "{what}");
        }
        // Numbers of objects are used again.
        add(&pool, "plain", &[], None).await;
        assert!(!pool.pool().keystore().is_loaded(objset_of(&pool, "plain").await.unwrap()));
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// The object sets that have a key.
fn keys(pool: &Arc<LivePool>) -> Vec<u64> {
    let view = pool.view();
    (0..1000).filter(|number| view.keystore().is_loaded(ObjsetId(*number))).collect()
}

/// Flips bits of a block on one disk.
fn damage(disks: &Disks, disk: &str, pointer: &Blkptr) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(disks.file(disk)).unwrap();
    for dva in pointer.dvas() {
        let (at, mut bytes) = (dva.offset.get() + LABEL_START_BYTES, [0; 64]);
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
        file.write_all_at(&bytes, at).unwrap();
    }
}

async fn described(pool: &Arc<LivePool>) -> Vec<String> {
    pool.change(|_| async { Ok(()) }).await.unwrap();
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let mut names = Vec::new();
    for block in errlog::read(&dsl).await.unwrap() {
        names.push(errlog::describe(&dsl, &block, &|_| None).await);
    }
    names.dedup();
    names
}

fn verified(pool: &Arc<LivePool>) -> Report {
    let view = pool.view();
    let options = VerifyOptions { threads: 1, depth: Depth::Everything, check_space: false };
    std::thread::spawn(move || verify(&view, options, &Progress::default()).unwrap()).join().unwrap()
}

#[test]
fn damage_is_mended_without_the_key_and_what_cannot_be_mended_has_a_name_with_it() {
    let disks = Disks::new(128 * MIB);
    let texts: [Vec<u8>; 2] = [3u8, 9].map(|seed| (0..300_000u32).map(|at| (at * 7) as u8 ^ seed).collect());
    let (files, all) = block_on(async {
        let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        add_roots(&pool).await;
        let zpl = pool.filesystem(objset_of(&pool, "raw").await.unwrap()).await.unwrap();
        let (mut files, mut all) = (Vec::new(), Vec::new());
        for (name, text) in ["one", "other"].into_iter().zip(&texts) {
            let file = zpl.create(zpl.zpl().root(), name.as_bytes(), &FILE).await.unwrap();
            zpl.write(file, 0, text, &WriteOptions::default()).await.unwrap();
            pool.sync().await.unwrap();
            files.push(file);
            all.push(pointers(&zpl, file).await);
        }
        create(&zpl, "empty").await;
        drop(zpl);
        pool.close(PoolState::Exported).await.unwrap();
        (files, all)
    });
    // One half of each block of the first, both halves of a block of the second.
    all[0].iter().for_each(|pointer| damage(&disks, "d0", pointer));
    ["d0", "d1"].iter().for_each(|disk| damage(&disks, disk, &all[1][1]));
    block_on(async {
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        let scan = scrubbed(&pool).await;
        assert!(scan.processed > 0 && scan.errors > 0, "{scan:?}");
        let number = format!("tank/raw:<{:#x}>", files[1].get());
        assert_eq!(described(&pool).await, [number.as_str()], "without the key");
        load(&pool, "raw", RAW).await.unwrap();
        assert_eq!(described(&pool).await, ["tank/raw:/other"], "with the key");
        let zpl = pool.filesystem(objset_of(&pool, "raw").await.unwrap()).await.unwrap();
        assert!(content(&zpl, files[0]).await == texts[0], "it is mended");
        let unreadable = zpl.read(files[1], 140_000, &mut [0; 100_000]).await.unwrap_err();
        assert!(unreadable.is_damage(), "{unreadable}");
        let report = verified(&pool);
        assert_eq!((report.unreadable_blocks, report.damaged_blocks), (1, 0), "{:?}", report.errors);
        assert!(report.authenticated_blocks > 10, "{report:?}");
        zpl.unlink(zpl.zpl().root(), b"other").await.unwrap();
        drop(zpl);
        pool.sync().await.unwrap();
        let again = scrubbed(&pool).await;
        assert_eq!((again.processed, again.errors), (0, 0));
        assert_eq!(verified(&pool).unreadable_blocks, 0);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}
