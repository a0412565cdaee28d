//! Copies of the golden pools, which OpenZFS made, are written: snapshots of all that they hold, new
//! datasets, changes of those that were there, snapshots destroyed. What they held is still there, and `zdb`
//! finds nothing wrong.

use std::sync::Arc;

use device::block_on;
use engine::Error;
use engine::dsl::edit::{self, NewContents, NewDataset, NewSnapshot};
use engine::dsl::{Dsl, Kind, Walk};
use engine::pool::discovery;
use engine::pool::import::{ImportError, ImportOptions, import};
use engine::pool::live::LivePool;
use engine::pool::verify::{Progress, VerifyOptions, verify};
use engine::zpl::live::WriteOptions;
use engine::zpl::{AclType, Zpl, ZplOptions};
use engine::zvol::Zvol;
use ondisk::ObjsetId;
use ondisk::pool_version as version;
use ondisk::vdev_config::PoolState;
use testkit::GoldenPool;
use testkit::manifest::hex_sha256;

use crate::data::Open;
use crate::encrypted;
use crate::files::FILE;
use crate::golden_support::{self, EngineTree};
use crate::old_versions;
use crate::support::{Disks, committing, surroundings};

/// The snapshot of everything that is taken before anything is changed.
const BEFORE: &str = "cenote-before";
const NOISE_BYTES: usize = 3 << 20;

/// All heads of the pool: name, object set, whether it is a volume.
pub async fn heads(pool: &Arc<LivePool>) -> Vec<(String, ObjsetId, bool)> {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let mut heads = Vec::new();
    for entry in dsl.list(None, Walk::HEADS).await.unwrap() {
        let dataset = entry.dataset().unwrap();
        heads.push((dataset.name.clone(), dataset.objset_id(), entry.kind == Kind::Volume));
    }
    heads
}

fn noise(salt: u64) -> Vec<u8> {
    let mut rng = testkit::Rng::new(salt);
    (0..NOISE_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

/// Changes a dataset. One that has a quota may refuse.
async fn write(pool: &Arc<LivePool>, id: ObjsetId, salt: u64) {
    let dataset = pool.dataset(id).await.unwrap();
    let bytes = noise(salt);
    match Open::new(pool, &dataset).await.unwrap() {
        Open::Volume(volume) => {
            let length = bytes.len().min(volume.size() as usize);
            room(volume.write_at(0, &bytes[..length], true).await);
        }
        Open::Files(zpl) => {
            let root = zpl.zpl().root();
            let file = zpl.create(root, b"cenote-file", &FILE).await.unwrap();
            room(zpl.write(file, 0, &bytes, &WriteOptions::default()).await);
            let gone = zpl.create(root, b"cenote-gone", &FILE).await.unwrap();
            zpl.write(gone, 5, &bytes[..70_000], &WriteOptions::default()).await.unwrap();
            zpl.unlink(root, b"cenote-gone").await.unwrap();
        }
    }
}

fn room<T>(written: Result<T, Error>) {
    if let Err(error) = written {
        assert!(matches!(error, Error::NoSpace(_)), "{error}");
    }
}

/// Changes everything that there is, and more.
pub async fn change(pool: &Arc<LivePool>) {
    let name = pool.pool().name().to_owned();
    let before = heads(pool).await;
    let new: Vec<NewSnapshot> = before
        .iter()
        .map(|(name, ..)| NewSnapshot { name: format!("{name}@{BEFORE}"), properties: Vec::new() })
        .collect();
    pool.change(|s| async move { edit::snapshot(&s, &new).await }).await.unwrap();
    for (salt, (_, id, _)) in (1..).zip(&before) {
        write(pool, *id, salt).await;
    }
    for (short, contents) in [
        ("cenote-fs", NewContents::Filesystem),
        ("cenote-vol", NewContents::Volume { size: 4 << 20, sparse: true }),
    ] {
        let new = NewDataset { name: format!("{name}/{short}"), contents, properties: Vec::new() };
        let id = pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
        write(pool, id, 99).await;
    }
    pool.sync().await.unwrap();
    // Snapshots that OpenZFS took go, but for those that something is made of or held by.
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let all = dsl.list(None, Walk { snapshots: true, ..Walk::HEADS }).await.unwrap();
    let taken: Vec<String> =
        all.iter().filter_map(|entry| entry.dataset()).map(|one| one.name.clone()).collect();
    drop(dsl);
    for snapshot in taken.into_iter().filter(|name| name.contains('@') && !name.ends_with(BEFORE)).step_by(2)
    {
        let destroyed =
            pool.change(|s| async move { edit::destroy_snapshots(&s, &[snapshot], false).await }).await;
        assert!(matches!(destroyed, Ok(()) | Err(Error::Busy(_))), "{destroyed:?}");
    }
    // And a dataset with children comes and goes.
    let compression = if pool.version() >= version::GZIP { "gzip" } else { "lzjb" };
    let new = NewDataset {
        name: format!("{name}/cenote-gone"),
        contents: NewContents::Filesystem,
        properties: vec![("compression".into(), compression.into()), ("checksum".into(), "sha256".into())],
    };
    let id = pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
    write(pool, id, 7).await;
    pool.dataset(id).await.unwrap().zil.close().await.unwrap();
    let gone = format!("{name}/cenote-gone");
    let destroy = |s: engine::pool::live::Syncing| async move {
        let destroyed = edit::destroy(&s, &gone).await?;
        s.forget_dataset(destroyed.objset);
        Ok(())
    };
    pool.change(destroy).await.unwrap();
}

/// What the pool held before is in the snapshots of before.
fn compare(disks: &Disks, golden: &GoldenPool) {
    let pool = block_on(async {
        let found = discovery::scan(&[disks.path()]).await.unwrap().pop().unwrap();
        import(&found, &ImportOptions::read_only()).await.unwrap()
    });
    if pool.name() == "crypt" {
        block_on(encrypted::load_keys_of(golden, &pool));
    }
    let heads = |names: Vec<String>| names.into_iter().filter(|name| !name.contains('@'));
    for name in heads(golden.volumes().unwrap()) {
        let objset = golden_support::objset(&pool, &format!("{name}@{BEFORE}")).unwrap();
        let bytes = block_on(async {
            let volume = Zvol::open(&objset).await.unwrap();
            let mut bytes = vec![0; volume.size() as usize];
            volume.read_at(0, &mut bytes).await.unwrap();
            bytes
        });
        assert_eq!(hex_sha256(&bytes), golden.volume_sha256(&name).unwrap(), "{name}");
    }
    for name in heads(golden.filesystems().unwrap()) {
        let objset = golden_support::objset(&pool, &format!("{name}@{BEFORE}")).unwrap();
        // As a head, so that its root directory has the number that a head's has.
        let options = ZplOptions { acl: AclType::Posix, ..ZplOptions::default() };
        let tree = EngineTree(block_on(Zpl::open(&objset, options)).unwrap());
        golden.manifest(&name).unwrap().assert_same(&name, &tree);
    }
}

/// Every block of the pool can be read.
fn verify_all(disks: &Disks) {
    let pool = block_on(async {
        let found = discovery::scan(&[disks.path()]).await.unwrap().pop().unwrap();
        import(&found, &ImportOptions::read_only()).await.unwrap()
    });
    let report = verify(&pool, VerifyOptions::default(), &Progress::default()).unwrap();
    assert_eq!(report.unreadable_blocks, 0, "{:?}", report.errors);
    assert!(report.space.is_some_and(|space| space.is_clean()), "what is allocated is what is used");
}

/// Nothing is wrong with any block, and what is allocated is what is referred to: what the installed `zdb`
/// cannot say of pools of OpenZFS 2.4.
fn assert_clean(disks: &Disks) {
    let pool = block_on(async {
        let found = discovery::scan(&[disks.path()]).await.unwrap().pop().unwrap();
        import(&found, &ImportOptions::read_only()).await.unwrap()
    });
    let report = verify(&pool, VerifyOptions::default(), &Progress::default()).unwrap();
    assert!(report.is_clean(), "{:?} {:?}", report.errors.first(), report.space);
}

/// Writes to a copy of a golden pool. `false` if it is refused for writing, by name.
fn write_to(name: &str) -> Option<bool> {
    let golden = testkit::golden::pool(name)?;
    let disks = Disks::of_golden(name)?;
    let written = block_on(async {
        let found =
            discovery::scan(&[disks.path()]).await.unwrap().pop().unwrap().for_writing().await.unwrap();
        let options = ImportOptions { force: true, ..ImportOptions::default() };
        let pool = match LivePool::import(&found, &options, surroundings(5)).await {
            Ok(pool) => pool,
            Err(ImportError::OnlyReadable { .. }) => return false,
            Err(error) => panic!("{name}: {error}"),
        };
        if name == "crypt" {
            committing(&pool, encrypted::load_keys(&golden, &pool)).await;
        }
        committing(&pool, change(&pool)).await;
        committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
        true
    });
    if written {
        match name {
            "features0" => old_versions::assert_is_old(&disks, name, version::FEATURES),
            "legacy28" => old_versions::assert_is_old(&disks, name, 28),
            _ => {}
        }
        // Its scribbles are still there.
        if name != "corrupt" {
            match golden.is_of_2_4() && !testkit::oracle::zdb_is_of_2_4() {
                true => assert_clean(&disks),
                false => disks.judge(name),
            }
        }
        compare(&disks, &golden);
        if name == "expanded" {
            // Blocks of both widths are rebuilt, those that were written now among them.
            std::fs::remove_file(disks.path().join("d1")).unwrap();
            compare(&disks, &golden);
            verify_all(&disks);
        }
    }
    Some(written)
}

macro_rules! pools {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                assert_ne!(write_to($name), Some(false), "it is refused");
            }
        )*
    };
}

pools! {
    golden_single_is_written: "single";
    golden_volumes_is_written: "volumes";
    golden_triple_is_written: "triple";
    golden_rz1_is_written: "rz1";
    golden_rz2_is_written: "rz2";
    golden_rz3_is_written: "rz3";
    golden_rz1s9_is_written: "rz1s9";
    golden_dr2_is_written: "dr2";
    golden_codecs_is_written: "codecs";
    golden_classes_is_written: "classes";
    golden_degraded_is_written: "degraded";
    golden_corrupt_is_written: "corrupt";
    golden_removed_is_written: "removed";
    golden_checkpoint_is_written: "checkpoint";
    golden_expanded_is_written: "expanded";
    golden_features0_is_written: "features0";
    golden_legacy28_is_written: "legacy28";
    golden_crypt_is_written: "crypt";
    golden_default24_is_written: "default24";
    golden_clones24_is_written: "clones24";
    golden_gang24_is_written: "gang24";
    golden_bclone_is_written: "bclone";
    golden_dedupfast_is_written: "dedupfast";
    golden_dedupold_is_written: "dedupold";
    golden_classes24_is_written: "classes24";
}
