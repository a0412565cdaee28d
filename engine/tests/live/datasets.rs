//! Changes of the tree of datasets, judged by `zdb` after each of a pool's lives.

use std::sync::Arc;

use device::block_on;
use engine::dsl::edit::{self, Grant, NewContents, NewDataset, NewSnapshot};
use engine::dsl::{Asker, Dsl};
use engine::pool::live::{Layout, LivePool, Syncing};
use engine::vdev::Class;
use engine::{Error, Result};
use ondisk::deleg::{DelegKey, Scope, Who};
use ondisk::vdev_config::PoolState;
use ondisk::{ObjectId, ObjsetId};

use crate::support::{Disks, new_pool, surroundings};

const BLOCK: u64 = 16 << 10;

/// Runs a change in a group of its own.
macro_rules! change {
    ($pool:expr, |$s:ident| $body:expr) => {
        $pool.change(move |$s: Syncing| async move { $body.await }).await
    };
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

fn typed(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn create(
    pool: &Arc<LivePool>,
    name: &str,
    size: Option<u64>,
    properties: &[(&str, &str)],
) -> Result<ObjsetId> {
    let contents = match size {
        Some(size) => NewContents::Volume { size, sparse: true },
        None => NewContents::Filesystem,
    };
    let new = NewDataset { name: name.to_owned(), contents, properties: typed(properties) };
    change!(pool, |s| async move { edit::create(&s, &new).await })
}

/// One that is not root.
fn user() -> Asker {
    Asker::User { uid: 12_345, gid: 12_345, groups: vec![500] }
}

async fn create_as(pool: &Arc<LivePool>, asker: Asker, name: &str) -> Result<()> {
    let contents = NewContents::Filesystem;
    let new = NewDataset { name: name.to_owned(), contents, properties: Vec::new() };
    change!(pool, |s| async move { edit::create(&s.asked_by(asker), &new).await }).map(drop)
}

async fn snapshot_as(pool: &Arc<LivePool>, asker: Asker, name: &str) -> Result<()> {
    let new = vec![NewSnapshot { name: name.to_owned(), properties: Vec::new() }];
    change!(pool, |s| async move { edit::snapshot(&s.asked_by(asker), &new).await })
}

async fn set(pool: &Arc<LivePool>, name: &'static str, properties: &[(&str, &str)]) {
    let properties = typed(properties);
    change!(pool, |s| async move { edit::set_properties(&s, name, &properties).await }).unwrap();
}

async fn snapshot(pool: &Arc<LivePool>, names: &[&str]) {
    let new: Vec<_> =
        names.iter().map(|name| NewSnapshot { name: (*name).to_owned(), properties: Vec::new() }).collect();
    change!(pool, |s| async move { edit::snapshot(&s, &new).await }).unwrap();
}

/// Fills the first blocks of a volume with bytes that do not compress.
async fn fill(pool: &Arc<LivePool>, id: ObjsetId, blocks: u64, seed: u64) {
    let dataset = pool.dataset(id).await.unwrap();
    let content = dataset.objset.object(ObjectId(1)).await.unwrap();
    let tx = pool.txgs().begin(blocks * BLOCK).await.unwrap();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for block in 0..blocks {
        let mut bytes = vec![0; BLOCK as usize];
        for byte in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8;
        }
        content.write_at(&tx, block * BLOCK, &bytes).await.unwrap();
    }
    let txg = tx.txg();
    drop(tx);
    pool.txgs().wait_synced(txg).await.unwrap();
}

/// One life of the pool, from import to export; then `zdb`.
async fn life(disks: &Disks, seed: u64, work: impl AsyncFnOnce(&Arc<LivePool>)) {
    let pool = disks.import("tank", seed).await;
    pool.start().unwrap();
    work(&pool).await;
    pool.close(PoolState::Exported).await.unwrap();
    drop(pool);
    disks.judge("tank");
}

#[test]
fn datasets_come_and_go_through_many_lives() {
    let disks = Disks::new(192 << 20);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        create(&pool, "tank/fs", None, &[("compression", "zstd-3"), ("recordsize", "1M")]).await.unwrap();
        create(&pool, "tank/fs/below", None, &[("quota", "50M"), ("org.example:note", "yes")]).await.unwrap();
        let volume = create(&pool, "tank/v", Some(8 << 20), &[("checksum", "sha256")]).await.unwrap();
        fill(&pool, volume, 100, 1).await;
        snapshot(&pool, &["tank@all", "tank/fs@all", "tank/fs/below@all", "tank/v@all"]).await;
        fill(&pool, volume, 50, 2).await;
        snapshot(&pool, &["tank/v@two"]).await;
        let taken = Dsl::open(&pool.view()).await.unwrap().find("tank/fs@all").await.unwrap().objset_id();
        assert!(matches!(pool.filesystem(taken).await, Err(Error::ReadOnly(_))));
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        disks.judge("tank");

        life(&disks, 2, async |pool| {
            let clone = change!(pool, |s| async move {
                edit::clone(&s, "tank/v@all", "tank/clone", &typed(&[("refreservation", "10M")])).await
            })
            .unwrap();
            fill(pool, clone, 20, 3).await;
            change!(pool, |s| async move { edit::create_bookmark(&s, "tank/v#mark", "tank/v@all").await })
                .unwrap();
            change!(pool, |s| async move { edit::hold(&s, &strings(&["tank/v@two"]), "keep").await })
                .unwrap();
            fill(pool, volume, 30, 4).await;
        })
        .await;

        life(&disks, 3, async |pool| {
            let held = change!(pool, |s| async move {
                edit::destroy_snapshots(&s, &strings(&["tank/v@two"]), false).await
            });
            assert!(matches!(held, Err(Error::Busy(_))));
            change!(pool, |s| async move { edit::promote(&s, "tank/clone").await }).unwrap();
            change!(pool, |s| async move { edit::rename(&s, "tank/v", "tank/fs/moved").await }).unwrap();
            change!(pool, |s| async move { edit::rename(&s, "tank/fs@all", "tank/fs@some").await }).unwrap();
        })
        .await;

        life(&disks, 4, async |pool| {
            let dsl = Dsl::open(&pool.view()).await.unwrap();
            let shared = dsl.find("tank/clone@all").await.unwrap();
            assert_eq!(
                dsl.clones(&shared).await.unwrap(),
                ["tank/fs/moved"],
                "which has a snapshot of its own"
            );
            drop((shared, dsl));
            fill(pool, volume, 60, 5).await;
            change!(pool, |s| async move { edit::rollback(&s, "tank/fs/moved", None).await }).unwrap();
            change!(pool, |s| async move {
                edit::destroy_snapshots(&s, &strings(&["tank/fs/moved@two"]), true).await
            })
            .unwrap();
            let gone = change!(pool, |s| async move {
                edit::release(&s, &strings(&["tank/fs/moved@two"]), "keep").await
            });
            assert_eq!(gone.unwrap(), ["tank/fs/moved@two"]);
            change!(pool, |s| async move {
                edit::set_properties(
                    &s,
                    "tank/fs",
                    &typed(&[("filesystem_limit", "2"), ("snapshot_limit", "10")]),
                )
                .await
            })
            .unwrap();
            create_as(pool, user(), "tank/fs/more").await.unwrap_err();
        })
        .await;

        life(&disks, 5, async |pool| {
            change!(pool, |s| async move { edit::destroy(&s, "tank/fs/moved").await }).unwrap();
            create(pool, "tank/fs/more", None, &[("copies", "2")]).await.unwrap();
            let marks = change!(pool, |s| async move { edit::destroy_bookmark(&s, "tank/clone#mark").await });
            marks.unwrap();
        })
        .await;

        life(&disks, 6, async |pool| {
            change!(pool, |s| async move {
                edit::destroy_snapshots(&s, &strings(&["tank/clone@all"]), false).await?;
                edit::destroy(&s, "tank/clone").await
            })
            .unwrap();
        })
        .await;
    });
}

#[test]
fn limits_bind_users_but_neither_root_nor_those_who_may_change_them() {
    block_on(async {
        let disks = Disks::new(256 << 20);
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(7)).await.unwrap();
        pool.start().unwrap();
        for name in ["tank/a", "tank/a/b", "tank/from"] {
            create(&pool, name, None, &[]).await.unwrap();
        }
        let limits = [("filesystem_limit", "1"), ("snapshot_limit", "0")];
        set(&pool, "tank/a", &limits).await;
        set(&pool, "tank/a/b", &limits.map(|(name, _)| (name, "0"))).await;
        let is_refused = |result: Result<()>| matches!(result, Err(Error::NoSpace(_)));
        assert!(is_refused(create_as(&pool, user(), "tank/a/c").await));
        assert!(is_refused(create_as(&pool, user(), "tank/a/b/c").await));
        assert!(is_refused(snapshot_as(&pool, user(), "tank/a@s").await));
        let into_a =
            |s: Syncing| async move { edit::rename(&s.asked_by(user()), "tank/from", "tank/a/to").await };
        assert!(is_refused(pool.change(into_a).await));
        // Root is not bound, and what it makes counts.
        create_as(&pool, Asker::Root, "tank/a/b/c").await.unwrap();
        snapshot_as(&pool, Asker::Root, "tank/a/b@s").await.unwrap();
        // A limit that the user may change does not bind, but one above it does.
        let grant = |key: DelegKey, permissions: &[&str]| {
            let (pool, grants) = (&pool, vec![Grant { key, permissions: strings(permissions) }]);
            let allow = |s: Syncing| async move { edit::allow(&s, "tank/a/b", &grants).await };
            async move { pool.change(allow).await.unwrap() }
        };
        let (all, both) = (Who::Group(500), ["filesystem_limit", "snapshot_limit"]);
        grant(DelegKey { who: all.clone(), scope: Scope::Local, sets: false }, &both).await;
        assert!(is_refused(create_as(&pool, user(), "tank/a/b/d").await), "tank/a has a limit too");
        set(&pool, "tank/a", &[("filesystem_limit", "none"), ("snapshot_limit", "none")]).await;
        create_as(&pool, user(), "tank/a/b/d").await.unwrap();
        snapshot_as(&pool, user(), "tank/a/b@t").await.unwrap();
        // It was granted for the dataset itself, and not for those below.
        set(&pool, "tank/a/b/c", &limits.map(|(name, _)| (name, "0"))).await;
        assert!(is_refused(create_as(&pool, user(), "tank/a/b/c/e").await));
        grant(DelegKey { who: all, scope: Scope::Descendent, sets: false }, &both).await;
        create_as(&pool, user(), "tank/a/b/c/e").await.unwrap();
        set(&pool, "tank/a/b", &[("zoned", "on")]).await;
        assert!(is_refused(create_as(&pool, user(), "tank/a/b/c/f").await), "grants do not count there");
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn snapshots_are_renamed_all_or_none() {
    block_on(async {
        let disks = Disks::new(256 << 20);
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(7)).await.unwrap();
        for name in ["tank/a", "tank/b"] {
            create(&pool, name, None, &[]).await.unwrap();
        }
        snapshot(&pool, &["tank/a@s", "tank/b@s"]).await;
        snapshot(&pool, &["tank/b@t"]).await;
        let rename = |pairs: &[(&str, &str)]| {
            let (pool, pairs) = (Arc::clone(&pool), typed(pairs));
            async move { change!(pool, |s| async move { edit::rename_snapshots(&s, &pairs).await }) }
        };
        let refused = rename(&[("tank/a@s", "tank/a@t"), ("tank/b@s", "tank/b@t")]).await;
        assert!(matches!(refused, Err(Error::Exists(name)) if name == "tank/b@t"));
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        assert!(dsl.find("tank/a@s").await.is_ok() && dsl.find("tank/a@t").await.is_err());
        drop(dsl);
        rename(&[("tank/a@s", "tank/a@t"), ("tank/b@s", "tank/b@u")]).await.unwrap();
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        assert!(dsl.find("tank/a@t").await.is_ok() && dsl.find("tank/b@u").await.is_ok());
    });
}

#[test]
fn a_change_that_panics_before_it_changed_anything_fails_alone() {
    block_on(async {
        let disks = Disks::new(256 << 20);
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(8)).await.unwrap();
        pool.start().unwrap();
        let refused: Result<()> =
            change!(pool, |s| async move { panic!("on purpose, in group {}", s.txg()) });
        assert!(matches!(&refused, Err(Error::Panicked(said)) if said.contains("on purpose")), "{refused:?}");
        create(&pool, "tank/a", None, &[]).await.unwrap();
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn half_a_change_is_never_committed() {
    block_on(async {
        let disks = Disks::new(256 << 20);
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(9)).await.unwrap();
        let volume = create(&pool, "tank/v", Some(1 << 20), &[("volblocksize", "16K")]).await.unwrap();
        pool.start().unwrap();
        let half: Result<()> = change!(pool, |s| async move {
            let new = NewDataset {
                name: "tank/half".into(),
                contents: NewContents::Filesystem,
                properties: vec![],
            };
            edit::create(&s, &new).await?;
            panic!("on purpose")
        });
        assert!(matches!(half, Err(Error::Suspended(_))), "{half:?}");
        assert!(pool.close(PoolState::Exported).await.is_err());
        drop(pool);

        let pool = disks.import("tank", 10).await;
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        assert!(matches!(dsl.find("tank/half").await, Err(Error::NotFound(_))));
        drop(dsl);
        // What a request changes outside of tasks is half a change as well where a panic ends it.
        let content = pool.dataset(volume).await.unwrap().objset.object(ObjectId(1)).await.unwrap();
        let tx = pool.txgs().begin(BLOCK).await.unwrap();
        content.write_at(&tx, 0, &[1; BLOCK as usize]).await.unwrap();
        let panics = std::thread::spawn(move || {
            let _held = tx;
            panic!("on purpose");
        });
        assert!(panics.join().is_err());
        assert!(matches!(pool.txgs().stopped(), Some(Error::Suspended(_))));
        // A group that was only held has nothing in it that could be half done.
        drop(content);
        drop(pool);
        let pool = disks.import("tank", 11).await;
        let tx = pool.txgs().begin(BLOCK).await.unwrap();
        let panics = std::thread::spawn(move || {
            let _held = tx;
            panic!("on purpose");
        });
        assert!(panics.join().is_err());
        assert!(pool.txgs().stopped().is_none());
        pool.close(PoolState::Exported).await.unwrap();
    });
}
