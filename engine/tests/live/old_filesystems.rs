//! Filesystems of every version: those below 5 have files from before system attributes.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::block_on;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::env::Seeded;
use engine::pool::live::LivePool;
use engine::zpl::LiveZpl;
use engine::zpl::live::{NewKind, NewNode, XattrPlace, XattrSet};
use ondisk::vdev_config::PoolState;

use crate::files;
use crate::old_versions::{MIB, old_pool};
use crate::support::{Disks, committing, objset_of, surroundings};

/// Changes of files; some have no room to be made, or are not allowed.
async fn change_files(pool: &Arc<LivePool>, zpl: &LiveZpl, random: &Seeded) {
    for step in 0..60 {
        files::change(zpl, random, XattrPlace::Attributes).await;
        if step % 20 == 19 {
            pool.sync().await.unwrap();
        }
    }
}

/// What zdb calls the bonus area of files of a dataset.
fn bonus_types(disks: &Disks, dataset: &str) -> Option<(usize, usize)> {
    let objects = testkit::oracle::zdb_of(disks.path(), "-dddd", dataset, &[])?;
    let count = |name: &str| objects.lines().filter(|line| line.ends_with(name)).count();
    Some((count("ZFS znode"), count("System attributes")))
}

/// Filesystems of every version, in a pool of an old version: written, judged, upgraded, and written again.
#[test]
fn filesystems_of_every_version_are_written_and_upgraded() {
    let disks = Disks::new(128 * MIB);
    let mut seen = BTreeMap::new();
    let random = Seeded::new(29);
    block_on(async {
        let pool = LivePool::create(old_pool(&disks, 28), surroundings(1)).await.unwrap();
        committing(&pool, async {
            for version in 1..=5u64 {
                let name = format!("tank/v{version}");
                let properties = vec![("version".to_owned(), version.to_string())];
                let new = NewDataset { name: name.clone(), contents: NewContents::Filesystem, properties };
                let id = pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
                let zpl = pool.filesystem(id).await.unwrap();
                assert_eq!(zpl.zpl().version(), version);
                change_files(&pool, &zpl, &random).await;
                let root = zpl.zpl().root();
                let long = vec![b't'; 900];
                for (name, target) in [("short", &b"somewhere"[..]), ("long", &long)] {
                    let link = NewNode { kind: NewKind::Symlink(target), ..files::FILE };
                    zpl.create(root, name.as_bytes(), &link).await.unwrap();
                }
                let file = zpl.create(root, b"attributes", &files::FILE).await.unwrap();
                zpl.set_xattr(file, b"user.a", b"value", XattrSet::Any, XattrPlace::Attributes)
                    .await
                    .unwrap();
                seen.insert(name, files::see(zpl.zpl()).await);
            }
            pool.close(PoolState::Exported).await.unwrap();
        })
        .await;
    });
    disks.judge("tank");
    for version in 1..=5u64 {
        let Some((old, new)) = bonus_types(&disks, &format!("tank/v{version}")) else { return };
        assert_eq!((old > 0, new > 0), (version < 5, version == 5), "{version}: {old} old, {new} new");
    }
    block_on(async {
        let pool = disks.import("tank", 2).await;
        committing(&pool, async {
            for version in 1..=5u64 {
                let name = format!("tank/v{version}");
                let id = objset_of(&pool, &name["tank/".len()..]).await.unwrap();
                let zpl = pool.filesystem(id).await.unwrap();
                assert_eq!(files::see(zpl.zpl()).await, seen[&name], "{name} after an import");
                zpl.upgrade(5).await.unwrap();
                zpl.upgrade(4).await.unwrap_err();
                assert_eq!(zpl.zpl().version(), 5);
                change_files(&pool, &zpl, &random).await;
                zpl.create(zpl.zpl().root(), b"new", &files::FILE).await.unwrap();
                seen.insert(name, files::see(zpl.zpl()).await);
            }
            pool.close(PoolState::Exported).await.unwrap();
        })
        .await;
    });
    disks.judge("tank");
    for version in 1..=5u64 {
        let Some((old, new)) = bonus_types(&disks, &format!("tank/v{version}")) else { return };
        assert_eq!((old > 0, new > 0), (version < 5, true), "{version}: {old} old, {new} new");
    }
    block_on(async {
        let pool = disks.import("tank", 3).await;
        for (name, seen) in &seen {
            let id = objset_of(&pool, &name["tank/".len()..]).await.unwrap();
            let zpl = pool.filesystem(id).await.unwrap();
            assert_eq!(files::see(zpl.zpl()).await, *seen, "{name} after its upgrade");
        }
    });
}
