//! Encrypted datasets that OpenZFS made are written: files and volumes change at random, with crashes and
//! without, and are the same afterwards. Nothing of their contents is on the devices, and no initialization
//! vector comes twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::block_on;
use engine::dsl::edit::{self, NewSnapshot};
use engine::dsl::{Dsl, LiveDataset};
use engine::env::Seeded;
use engine::pool::import::ImportOptions;
use engine::pool::live::{LivePool, Surroundings};
use engine::zpl::LiveZpl;
use engine::zpl::live::{NewKind, NewNode, WriteOptions, XattrPlace, XattrSet};
use engine::zvol::LiveZvol;
use engine::{Error, Pool};
use ondisk::ObjsetId;
use ondisk::vdev_config::PoolState;
use ondisk::zpl::FileType;
use testkit::{GoldenPool, Rng};

use crate::files::{FILE, Seen, change, see};
use crate::ivs::Ivs;
use crate::support::{Disks, committing, crashed, surroundings};

const POOL: &str = "crypt";
/// The encryption roots, and where their keys are.
const ROOTS: [(&str, &str); 3] = [("crypt/gcm", "pass"), ("crypt/ccm", "rawkey"), ("crypt/vol", "hex")];
const FILESYSTEMS: [&str; 3] = ["crypt/gcm", "crypt/gcm/child", "crypt/ccm"];
const VOLUME: &str = "crypt/vol";
/// In everything that is written here.
pub const PLANTED: &[u8] = b"only the owner of the key may ever read this";

/// Copies of a golden pool, one after the other.
struct Bed {
    golden: GoldenPool,
    ivs: Ivs,
}

impl Bed {
    fn new() -> Option<Self> {
        Some(Self { golden: testkit::golden::pool(POOL)?, ivs: Ivs::default() })
    }

    async fn import(&self, disks: &Disks, seed: u64) -> Arc<LivePool> {
        let found = disks.found(POOL).await;
        let env = self.ivs.env(seed);
        let options = ImportOptions { force: true, ..Default::default() };
        LivePool::import(&found, &options, Surroundings { env, ..surroundings(seed) }).await.unwrap()
    }

    async fn load_keys(&self, pool: &Arc<LivePool>) {
        self.ivs.count().unwrap();
        load_keys(&self.golden, pool).await;
    }
}

/// Loads all keys of the golden pool, and replays what waits for them.
pub async fn load_keys(golden: &GoldenPool, pool: &Arc<LivePool>) {
    load_keys_of(golden, &pool.view()).await;
    pool.replay_unlocked().await.unwrap();
}

/// Loads all keys of the golden pool.
pub async fn load_keys_of(golden: &GoldenPool, pool: &Arc<Pool>) {
    for (root, _) in ROOTS {
        load_key(golden, pool, root).await;
    }
}

async fn load_key(golden: &GoldenPool, pool: &Arc<Pool>, root: &str) {
    let (_, file) = ROOTS.iter().find(|(name, _)| *name == root).unwrap();
    let key = std::fs::read(golden.expect(file)).unwrap();
    let key = if *file == "rawkey" { &key[..] } else { key.trim_ascii_end() };
    Dsl::open(pool).await.unwrap().load_key(root, key, false).await.unwrap();
}

async fn id(pool: &Arc<LivePool>, name: &str) -> ObjsetId {
    Dsl::open(&pool.view()).await.unwrap().find(name).await.unwrap().objset_id()
}

async fn filesystem(pool: &Arc<LivePool>, name: &str) -> Arc<LiveZpl> {
    pool.filesystem(id(pool, name).await).await.unwrap()
}

async fn volume(pool: &Arc<LivePool>) -> Arc<LiveZvol> {
    pool.volume(id(pool, VOLUME).await).await.unwrap()
}

async fn dataset(pool: &Arc<LivePool>, name: &str) -> Arc<LiveDataset> {
    pool.dataset(id(pool, name).await).await.unwrap()
}

async fn content(volume: &LiveZvol) -> Vec<u8> {
    let mut bytes = vec![0; volume.size() as usize];
    volume.read_at(0, &mut bytes).await.unwrap();
    bytes
}

/// Everything that the datasets hold.
async fn everything(pool: &Arc<LivePool>) -> (Vec<BTreeMap<String, Seen>>, Vec<u8>) {
    let mut all = Vec::new();
    for name in FILESYSTEMS {
        all.push(see(filesystem(pool, name).await.zpl()).await);
    }
    (all, content(&*volume(pool).await).await)
}

async fn export(pool: Arc<LivePool>) {
    pool.start().unwrap();
    pool.close(PoolState::Exported).await.unwrap();
}

/// Nothing of what was written is readable on the devices.
fn assert_secret(disks: &Disks) {
    for entry in std::fs::read_dir(disks.path()).unwrap() {
        let path = entry.unwrap().path();
        let found = path.is_file().then(|| testkit::search::find(&path, PLANTED).unwrap()).flatten();
        assert!(found.is_none(), "{}: plaintext at {found:?}", path.display());
    }
}

/// Removes the files that are too large to be read as a whole.
async fn remove_huge(pool: &Arc<LivePool>) {
    for name in FILESYSTEMS {
        let zpl = filesystem(pool, name).await;
        let mut waiting = vec![zpl.zpl().root()];
        while let Some(dir) = waiting.pop() {
            for entry in zpl.read_dir(dir, 2, 10_000).await.unwrap() {
                let node = zpl.zpl().node(entry.object).await.unwrap();
                if node.file_type() == FileType::Directory {
                    waiting.push(entry.object);
                } else if node.stat().unwrap().size > 1 << 30 {
                    zpl.unlink(dir, &entry.name).await.unwrap();
                }
            }
        }
    }
}

/// What `zdb` says with the keys.
fn judge(golden: &GoldenPool, disks: &Disks) {
    disks.judge(POOL);
    // It takes no raw keys.
    for name in ["crypt/gcm", "crypt/gcm/child", VOLUME] {
        let (_, file) = ROOTS.iter().find(|(root, _)| name.starts_with(root)).unwrap();
        let key = std::fs::read(golden.expect(file)).unwrap();
        let key = String::from_utf8(key.trim_ascii_end().to_vec()).unwrap();
        let dir = disks.path().to_str().unwrap();
        let Some(text) = testkit::oracle::zdb(&["-e", "-p", dir, "-K", &key, "-dddd", name]) else { return };
        assert!(text.contains("Dataset ") && text.contains("Object  lvl"), "{name}: {text}");
        assert!(!text.contains("rror") || name.contains("rror"), "{name}: {text}");
    }
}

async fn write_volume(volume: &LiveZvol, rng: &mut Rng, stable: bool) {
    let most = if rng.once_in(4) { 300 } else { 40 };
    let length = 512 * (1 + rng.below(most));
    let offset = 512 * rng.below((volume.size() - length) / 512 + 1);
    let mut bytes: Vec<u8> = (0..length / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    if rng.once_in(2) {
        bytes = PLANTED.iter().copied().cycle().take(length as usize).collect();
    }
    volume.write_at(offset, &bytes, stable).await.unwrap();
}

/// Plants text wherever a file can have it.
pub async fn plant(zpl: &Arc<LiveZpl>, number: u64) {
    let root = zpl.zpl().root();
    let text = String::from_utf8_lossy(PLANTED);
    let file = zpl.create(root, format!("{text} {number}").as_bytes(), &FILE).await.unwrap();
    let many: Vec<u8> = PLANTED.iter().copied().cycle().take(200_000).collect();
    zpl.write(file, 0, PLANTED, &WriteOptions::default()).await.unwrap();
    zpl.fsync(file).await.unwrap();
    zpl.write(file, 1 << 20, &many, &WriteOptions::default()).await.unwrap();
    zpl.fsync(file).await.unwrap();
    for (place, length) in
        [(XattrPlace::Attributes, 60), (XattrPlace::Attributes, 9000), (XattrPlace::Directory, 700)]
    {
        let name = format!("user.{place:?}{length}");
        zpl.set_xattr(file, name.as_bytes(), &many[..length], XattrSet::Any, place).await.unwrap();
    }
    let link = NewNode { kind: NewKind::Symlink(PLANTED), ..FILE };
    zpl.create(root, format!("link {number}").as_bytes(), &link).await.unwrap();
    let gone = zpl.create(root, format!("gone {number}").as_bytes(), &FILE).await.unwrap();
    zpl.write(gone, 0, &many, &WriteOptions::default()).await.unwrap();
    zpl.fsync(gone).await.unwrap();
    zpl.unlink(root, format!("gone {number}").as_bytes()).await.unwrap();
}

#[test]
fn golden_crypt_is_written_and_read_again() {
    let Some(bed) = Bed::new() else { return };
    let disks = Disks::of_golden(POOL).unwrap();
    let random = Seeded::new(3);
    let mut rng = Rng::new(4);
    let expected = block_on(async {
        let pool = bed.import(&disks, 1).await;
        committing(&pool, bed.load_keys(&pool)).await;
        committing(&pool, remove_huge(&pool)).await;
        for (number, name) in FILESYSTEMS.iter().enumerate() {
            let zpl = filesystem(&pool, name).await;
            committing(&pool, plant(&zpl, number as u64)).await;
            for _ in 0..60 {
                committing(&pool, change(&zpl, &random, XattrPlace::Attributes)).await;
            }
        }
        let vol = volume(&pool).await;
        for _ in 0..60 {
            committing(&pool, write_volume(&vol, &mut rng, false)).await;
        }
        drop(vol);
        let expected = everything(&pool).await;
        export(pool).await;
        expected
    });
    assert_secret(&disks);
    block_on(async {
        let pool = bed.import(&disks, 2).await;
        committing(&pool, bed.load_keys(&pool)).await;
        assert!(everything(&pool).await == expected, "what is read is not what was written");
        export(pool).await;
    });
    judge(&bed.golden, &disks);
}

/// With keys not loaded: what was claimed stays, snapshots come and go, everything is scrubbed, and a dataset
/// is destroyed. With them, the log is replayed.
#[test]
fn logs_wait_for_their_keys_and_are_replayed() {
    let Some(bed) = Bed::new() else { return };
    let mut disks = Disks::of_golden(POOL).unwrap();
    let random = Seeded::new(13);
    let mut rng = Rng::new(14);
    for round in 0..3u64 {
        let (expected, copy) = block_on(async {
            let pool = bed.import(&disks, 100 + 2 * round).await;
            committing(&pool, bed.load_keys(&pool)).await;
            committing(&pool, remove_huge(&pool)).await;
            let vol = volume(&pool).await;
            let mut all = Vec::new();
            for name in FILESYSTEMS {
                // The first commit of a log waits for its group.
                let zpl = filesystem(&pool, name).await;
                dataset(&pool, name).await.zil.set_for_throughput(round == 1);
                let first = format!("first {round}");
                let create = zpl.create(zpl.zpl().root(), first.as_bytes(), &FILE);
                let file = committing(&pool, create).await.unwrap();
                committing(&pool, zpl.fsync(file)).await.unwrap();
                all.push(zpl);
            }
            committing(&pool, vol.write_at(0, PLANTED.repeat(512).get(..8192).unwrap(), true)).await.unwrap();
            pool.sync().await.unwrap();
            for (number, zpl) in (10 * round..).zip(&all) {
                committing(&pool, plant(zpl, number)).await;
            }
            // No group is committed from here on.
            let synced = pool.txgs().synced_txg();
            for zpl in &all {
                for _ in 0..25 {
                    change(zpl, &random, XattrPlace::Directory).await;
                }
                zpl.sync_all().await.unwrap();
            }
            for _ in 0..25 {
                write_volume(&vol, &mut rng, true).await;
            }
            assert_eq!(pool.txgs().synced_txg(), synced, "this is the log's work alone");
            let expected = everything(&pool).await;
            let copy = crashed(&disks);
            (expected, copy)
        });
        assert_secret(&copy);
        disks = copy;
        block_on(async {
            let pool = bed.import(&disks, 101 + 2 * round).await;
            let locked = pool.filesystem(id(&pool, "crypt/gcm").await).await.unwrap_err();
            assert!(matches!(locked, Error::KeyNotLoaded { .. }), "{locked}");
            let new = |name: &str| NewSnapshot { name: name.into(), properties: Vec::new() };
            let names = ["crypt/gcm@locked", "crypt/gcm/child@locked", "crypt/vol@locked"];
            let taken = names.map(new).to_vec();
            let take = pool.change(|s| async move { edit::snapshot(&s, &taken).await });
            committing(&pool, take).await.unwrap();
            let gone = names.map(str::to_owned).to_vec();
            let destroy = pool.change(|s| async move { edit::destroy_snapshots(&s, &gone, false).await });
            committing(&pool, destroy).await.unwrap();
            // It stays over another export, too.
            export(pool).await;
            let pool = bed.import(&disks, 500 + round).await;
            committing(&pool, bed.load_keys(&pool)).await;
            assert!(everything(&pool).await == expected, "round {round}");
            export(pool).await;
        });
        assert_secret(&disks);
        disks.judge(POOL);
    }
    judge(&bed.golden, &disks);
}

#[test]
fn datasets_go_without_their_keys() {
    let Some(bed) = Bed::new() else { return };
    let disks = Disks::of_golden(POOL).unwrap();
    let copy = block_on(async {
        let pool = bed.import(&disks, 31).await;
        committing(&pool, bed.load_keys(&pool)).await;
        // Logs that will never be replayed.
        for name in ["crypt/gcm/child", "crypt/ccm"] {
            let zpl = filesystem(&pool, name).await;
            let file = committing(&pool, zpl.create(zpl.zpl().root(), b"first", &FILE)).await.unwrap();
            committing(&pool, zpl.fsync(file)).await.unwrap();
            zpl.write(file, 0, &PLANTED.repeat(3000), &WriteOptions::default()).await.unwrap();
            zpl.fsync(file).await.unwrap();
        }
        crashed(&disks)
    });
    block_on(async {
        let pool = bed.import(&copy, 32).await;
        for name in ["crypt/gcm/child", "crypt/ccm"] {
            let id = id(&pool, name).await;
            committing(&pool, pool.settle_log(id)).await.unwrap();
            let destroy = pool.change(move |s| async move { edit::destroy(&s, name).await });
            committing(&pool, destroy).await.unwrap();
        }
        for _ in 0..8 {
            pool.sync().await.unwrap();
        }
        export(pool).await;
    });
    copy.judge(POOL);
}

/// A log whose key is not there: a change that is refused leaves it, and one that is made takes it along.
#[test]
fn logs_of_locked_datasets_go_with_the_change_and_only_then() {
    const NAME: &str = "crypt/gcm";
    let Some(bed) = Bed::new() else { return };
    let disks = Disks::of_golden(POOL).unwrap();
    let text = PLANTED.repeat(3000);
    let logged = async |pool: &Arc<LivePool>, name: &[u8]| {
        let zpl = filesystem(pool, NAME).await;
        let file = committing(pool, zpl.create(zpl.zpl().root(), name, &FILE)).await.unwrap();
        committing(pool, zpl.fsync(file)).await.unwrap();
        zpl.write(file, 0, &text, &WriteOptions::default()).await.unwrap();
        zpl.fsync(file).await.unwrap();
    };
    let first = block_on(async {
        let pool = bed.import(&disks, 61).await;
        committing(&pool, bed.load_keys(&pool)).await;
        logged(&pool, b"first").await;
        crashed(&disks)
    });
    let second = block_on(async {
        let pool = bed.import(&first, 62).await;
        let id = id(&pool, NAME).await;
        committing(&pool, pool.settle_log(id)).await.unwrap();
        let destroy = pool.change(|s| async move { edit::destroy(&s, NAME).await });
        let refused = committing(&pool, destroy).await.unwrap_err();
        assert!(refused.to_string().contains("has snapshots"), "{refused}");
        let rollback = pool.change(|s| async move { edit::rollback(&s, NAME, Some("crypt/gcm@none")).await });
        assert!(committing(&pool, rollback).await.is_err());
        export(pool).await;
        let pool = bed.import(&first, 63).await;
        committing(&pool, bed.load_keys(&pool)).await;
        let zpl = filesystem(&pool, NAME).await;
        let file = zpl.lookup(zpl.zpl().root(), b"first").await.unwrap().expect("it was replayed");
        let mut found = vec![0; text.len()];
        zpl.read(file, 0, &mut found).await.unwrap();
        assert!(found == text);
        logged(&pool, b"second").await;
        crashed(&first)
    });
    block_on(async {
        let pool = bed.import(&second, 64).await;
        let id = id(&pool, NAME).await;
        committing(&pool, pool.settle_log(id)).await.unwrap();
        // The snapshot has a log of its own time, which cannot be taken out of it without the key.
        let rollback = pool.change(|s| async move { edit::rollback(&s, NAME, Some("crypt/gcm@s")).await });
        let refused = committing(&pool, rollback).await.unwrap_err();
        assert!(refused.to_string().contains("key is not loaded"), "{refused}");
        export(pool).await;
        let pool = bed.import(&second, 65).await;
        committing(&pool, bed.load_keys(&pool)).await;
        let zpl = filesystem(&pool, NAME).await;
        for name in [b"first" as &[u8], b"second"] {
            assert!(zpl.lookup(zpl.zpl().root(), name).await.unwrap().is_some());
        }
        drop(zpl);
        export(pool).await;
    });
    second.judge(POOL);
}

#[test]
fn a_key_is_unloaded_after_what_was_changed_with_it_is_committed() {
    let Some(bed) = Bed::new() else { return };
    let disks = Disks::of_golden(POOL).unwrap();
    block_on(async {
        let pool = bed.import(&disks, 41).await;
        committing(&pool, bed.load_keys(&pool)).await;
        let zpl = filesystem(&pool, "crypt/ccm").await;
        let busy = committing(&pool, pool.unload_key("crypt/ccm")).await.unwrap_err();
        assert!(matches!(busy, Error::Busy(_)), "{busy}");
        let root = zpl.zpl().root();
        let file = committing(&pool, zpl.create(root, b"late", &FILE)).await.unwrap();
        committing(&pool, zpl.fsync(file)).await.unwrap();
        zpl.write(file, 0, PLANTED, &WriteOptions::default()).await.unwrap();
        drop(zpl);
        committing(&pool, pool.unload_key("crypt/ccm")).await.unwrap();
        pool.sync().await.unwrap();
        let locked = pool.filesystem(id(&pool, "crypt/ccm").await).await.unwrap_err();
        assert!(matches!(locked, Error::KeyNotLoaded { .. }), "{locked}");
        load_key(&bed.golden, &pool.view(), "crypt/ccm").await;
        let zpl = filesystem(&pool, "crypt/ccm").await;
        let late = zpl.lookup(root, b"late").await.unwrap();
        assert_eq!(late, Some(file));
        drop(zpl);
        export(pool).await;
    });
    judge(&bed.golden, &disks);
}
