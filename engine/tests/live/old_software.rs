//! Pools that the software of their day made, of versions 1 to 15, from OpenZFS's own tests: written as they
//! are, then taken to newer versions step by step, and judged by `zdb` each time. Only where OpenZFS's tests
//! are installed.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use device::block_on;
use engine::Error;
use engine::dsl::edit::{self, NewSnapshot};
use engine::dsl::{Dsl, Walk};
use engine::pool::live::{LivePool, default_features, set_version};
use engine::zpl::live::WriteOptions;
use ondisk::ObjsetId;
use ondisk::pool_version as version;
use ondisk::vdev_config::PoolState;

use crate::data::Open;
use crate::files::FILE;
use crate::golden_written::{change, heads};
use crate::support::{Disks, committing};

/// Where OpenZFS's tests keep them.
const FOLDER: &str = "/usr/share/zfs/zfs-tests/tests/functional/cli_root/zpool_upgrade/blockfiles";
/// What their names begin with.
const PREFIX: &str = "zfs-pool-v";

/// A pool on files unpacked from those whose names go on like this.
fn unpacked(files: &[String]) -> Option<Disks> {
    let disks = Disks::new(0);
    for name in files {
        let packed = Path::new(FOLDER).join(format!("{PREFIX}{name}.dat.bz2"));
        if !packed.is_file() {
            eprintln!("left out: {} is not there", packed.display());
            return None;
        }
        let unpacked = Command::new("bzcat").arg(&packed).output().ok()?;
        assert!(unpacked.status.success(), "{}", packed.display());
        std::fs::write(disks.path().join(format!("{name}.dat")), unpacked.stdout).unwrap();
    }
    Some(disks)
}

/// Writes a little that does not compress; most of these pools are small.
async fn scribble(pool: &Arc<LivePool>, id: ObjsetId, salt: u64) {
    let dataset = pool.dataset(id).await.unwrap();
    let mut rng = testkit::Rng::new(salt);
    let bytes: Vec<u8> = (0..40_000).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    match Open::new(pool, &dataset).await.unwrap() {
        Open::Volume(volume) => volume.write_at(0, &bytes, true).await.unwrap(),
        Open::Files(zpl) => {
            let name = format!("scribble{}", salt % 3);
            let root = zpl.zpl().root();
            let file = match zpl.lookup(root, name.as_bytes()).await.unwrap() {
                Some(file) => file,
                None => zpl.create(root, name.as_bytes(), &FILE).await.unwrap(),
            };
            zpl.write(file, 0, &bytes, &WriteOptions::default()).await.unwrap();
        }
    }
}

/// Takes snapshots of everything, changes it, makes a clone of something and promotes it, and destroys what
/// the round before left.
async fn go_on(pool: &Arc<LivePool>, round: u64) {
    let all = heads(pool).await;
    let new = |name: &String| NewSnapshot { name: format!("{name}@round{round}"), properties: Vec::new() };
    let new: Vec<NewSnapshot> = all.iter().map(|(name, ..)| new(name)).collect();
    pool.change(|s| async move { edit::snapshot(&s, &new).await }).await.unwrap();
    for (salt, (_, id, _)) in (round * 100..).zip(&all) {
        scribble(pool, *id, salt).await;
    }
    pool.sync().await.unwrap();
    let name = pool.pool().name().to_owned();
    let (from, to) = (format!("{name}/cenote-fs@round{round}"), format!("{name}/clone{round}"));
    let promoted = to.clone();
    let id = pool.change(|s| async move { edit::clone(&s, &from, &to, &[]).await }).await.unwrap();
    scribble(pool, id, round).await;
    if round % 2 == 1 {
        pool.change(|s| async move { edit::promote(&s, &promoted).await }).await.unwrap();
    }
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    let listed = dsl.list(None, Walk { snapshots: true, ..Walk::HEADS }).await.unwrap();
    drop(dsl);
    let names = listed.iter().filter_map(|entry| entry.dataset()).map(|one| one.name.clone());
    for snapshot in names.filter(|name| name.contains('@') && !name.ends_with(&format!("@round{round}"))) {
        let gone = pool.change(|s| async move { edit::destroy_snapshots(&s, &[snapshot], false).await });
        let gone = gone.await;
        assert!(matches!(gone, Ok(()) | Err(Error::Busy(_))), "{gone:?}");
    }
}

async fn export(pool: Arc<LivePool>) {
    committing(&pool, pool.close(PoolState::Exported)).await.unwrap();
}

/// Writes a pool of `first` version, and takes it to these.
fn run(name: &str, files: &[String], first: u64, upgrades: &[u64]) {
    let Some(disks) = unpacked(files) else { return };
    println!("{name}: {first}, then {upgrades:?}");
    block_on(async {
        let pool = disks.import(name, 5).await;
        assert_eq!(pool.version(), first);
        committing(&pool, change(&pool)).await;
        export(pool).await;
        disks.judge(name);
        for (round, version) in (1..).zip([first].iter().chain(upgrades)) {
            let pool = disks.import(name, round).await;
            if *version != pool.version() {
                let version = *version;
                let features = if version == version::FEATURES { default_features() } else { Vec::new() };
                let set = pool.change(move |s| async move {
                    set_version(&s, version).await?;
                    for feature in features {
                        s.enable_feature(feature).await?;
                    }
                    Ok(())
                });
                committing(&pool, set).await.unwrap();
            }
            committing(&pool, go_on(&pool, round)).await;
            export(pool).await;
            disks.judge(name);
        }
    });
}

fn one(version: u64, upgrades: &[u64]) {
    run(&format!("v{version}-pool"), &[version.to_string()], version, upgrades);
}

fn three(kind: &str, version: u64, upgrades: &[u64]) {
    let files: Vec<String> = (1..=3).map(|number| format!("{version}{kind}{number}")).collect();
    run(&format!("pool-v{version}{kind}"), &files, version, upgrades);
}

#[test]
fn pools_of_versions_1_and_2_are_written_and_upgraded() {
    one(1, &[version::FEATURES]);
    three("mirror", 1, &[2, 3, 11, 26, version::FEATURES]);
    three("raidz", 1, &[14, version::FEATURES]);
    three("stripe", 1, &[28]);
    one(2, &[9, 26]);
    three("mirror", 2, &[version::FEATURES]);
    three("raidz", 2, &[27, version::FEATURES]);
}

#[test]
fn pools_of_version_3_are_written_and_upgraded() {
    one(3, &[28, version::FEATURES]);
    three("mirror", 3, &[version::FEATURES]);
    three("raidz", 3, &[10, 25, 26]);
    three("raidz2", 3, &[version::FEATURES]);
    three("hotspare", 3, &[12, version::FEATURES]);
}

#[test]
fn pools_of_versions_4_to_15_are_written_and_upgraded() {
    for version in 4..=15 {
        one(version, &[version + 11, version::FEATURES]);
    }
}
