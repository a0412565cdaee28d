//! Pools on files, their rebirth, what `zdb` says of them, and changes of their trees of datasets. Tests of
//! other crates take this file along.

use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use device::{Device, OpenOptions};
use engine::Result;
use engine::dsl::{Dsl, edit};
use engine::env::Seeded;
use engine::pool::discovery;
use engine::pool::import::ImportOptions;
use engine::pool::live::{
    Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, Syncing, default_features,
};
use engine::txg::Limits;
use engine::vdev::Class;
use futures_util::future::join;
use ondisk::ObjsetId;
use testkit::tree::Change;

/// The name of all pools here.
pub const POOL: &str = "tank";

/// A folder of sparse files that a pool is made of.
pub struct Disks {
    pub folder: tempfile::TempDir,
    pub size_bytes: u64,
}

impl Disks {
    pub fn new(size_bytes: u64) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), size_bytes }
    }

    /// A copy of a pool that OpenZFS made; none where such tests are left out.
    pub fn of_golden(name: &str) -> Option<Self> {
        let golden = testkit::golden::pool(name)?;
        let disks = Self::new(0);
        golden.private_copy(disks.path()).unwrap();
        Some(disks)
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A new file for a pool.
    pub fn leaf(&self, name: &str) -> NewLeaf {
        let path = self.file(name);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(self.size_bytes).unwrap();
        NewLeaf { device: open(&path), path, is_file: true, whole_disk: false }
    }

    /// A top-level vdev of `count` new files.
    pub fn top(&self, layout: Layout, class: Class, prefix: &str, count: usize) -> NewTop {
        let leaves = (0..count).map(|index| self.leaf(&format!("{prefix}{index}"))).collect();
        NewTop { layout, class, leaves }
    }

    /// Opens the pool that the files hold, for writing.
    pub async fn import(&self, name: &str, seed: u64) -> Arc<LivePool> {
        let found = self.found(name).await;
        LivePool::import(&found, &ImportOptions { force: true, ..Default::default() }, surroundings(seed))
            .await
            .unwrap()
    }

    /// The pool that the files hold, with devices open for writing.
    pub async fn found(&self, name: &str) -> discovery::FoundPool {
        let found = discovery::scan(&[self.path()]).await.unwrap();
        let mut found = discovery_select(found, name);
        for candidate in found.candidates.values_mut() {
            candidate.device = open(candidate.device.path());
        }
        found
    }

    /// Asks OpenZFS's `zdb` what it thinks of the pool, whose files must not be in use.
    pub fn judge(&self, name: &str) {
        if let Some(complaint) = testkit::oracle::complaint(self.path(), name) {
            panic!("{complaint}");
        }
    }
}

/// The devices as they are now.
pub fn crashed(disks: &Disks) -> Disks {
    let copy = Disks::new(disks.size_bytes);
    for entry in std::fs::read_dir(disks.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn discovery_select(found: Vec<discovery::FoundPool>, name: &str) -> discovery::FoundPool {
    engine::pool::import::select(found, name).unwrap()
}

pub fn open(path: &Path) -> Arc<dyn Device> {
    Arc::new(OpenOptions::read_write().open(path).unwrap())
}

pub fn surroundings(seed: u64) -> Surroundings {
    Surroundings {
        env: Arc::new(Seeded::new(seed)),
        cache: None,
        limits: Limits::default(),
        host: (0x1234_5678, "test".into()),
    }
}

/// A pool called `tank` of these vdevs.
pub fn new_pool(tops: Vec<NewTop>, ashift: u8) -> NewPool {
    NewPool {
        name: POOL.into(),
        tops,
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(ashift),
        version: ondisk::pool_version::FEATURES,
        features: default_features(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        altroot: None,
        command: Some("zpool create tank".into()),
    }
}

/// Drives a future and commits groups until it is done.
pub async fn committing<T>(pool: &Arc<LivePool>, future: impl Future<Output = T>) -> T {
    let done = AtomicBool::new(false);
    let work = async {
        let result = future.await;
        done.store(true, Ordering::Relaxed);
        result
    };
    let commit = async {
        while !done.load(Ordering::Relaxed) && pool.sync().await.is_ok() {
            // A caller that waits for its turn to commit gets it.
            yield_now().await;
        }
    };
    join(work, commit).await.0
}

/// Lets others go first.
async fn yield_now() {
    let mut again = true;
    poll_fn(|context| {
        if std::mem::take(&mut again) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// The object set of a dataset, whose name is without the pool's.
pub async fn objset_of(pool: &Arc<LivePool>, name: &str) -> Result<ObjsetId> {
    Ok(Dsl::open(&pool.view()).await?.find(&full(name)).await?.objset_id())
}

/// A name with the pool's.
pub fn full(name: &str) -> String {
    format!("{POOL}/{name}")
}

/// Makes a change of the tree of datasets. Groups must be committed meanwhile.
pub async fn make_change(pool: &Arc<LivePool>, change: &Change) -> Result<()> {
    match change.clone() {
        Change::Snapshot { to, .. } => {
            let new = vec![edit::NewSnapshot { name: full(&to), properties: Vec::new() }];
            pool.change(|s| async move { edit::snapshot(&s, &new).await }).await
        }
        Change::Clone { from, to } => {
            let clone = |s: Syncing| async move { edit::clone(&s, &full(&from), &full(&to), &[]).await };
            pool.change(clone).await.map(drop)
        }
        Change::DestroySnapshot(name) => {
            pool.change(|s| async move { edit::destroy_snapshots(&s, &[full(&name)], false).await }).await
        }
        Change::DestroyHead(name) => {
            close_log(pool, &name).await?;
            let destroy = |s: Syncing| async move {
                let destroyed = edit::destroy(&s, &full(&name)).await?;
                s.forget_dataset(destroyed.objset);
                Ok(())
            };
            pool.change(destroy).await
        }
        Change::RenameSnapshot { from, to } | Change::RenameHead { from, to } => {
            pool.change(|s| async move { edit::rename(&s, &full(&from), &full(&to)).await }).await
        }
        Change::Rollback { of, to } => {
            close_log(pool, &of).await?;
            let rollback = |s: Syncing| async move {
                let id = edit::rollback(&s, &full(&of), Some(&full(&to))).await?;
                s.forget_dataset(id);
                Ok(())
            };
            pool.change(rollback).await
        }
        Change::Promote(clone) => {
            pool.change(|s| async move { edit::promote(&s, &full(&clone)).await }).await
        }
    }
}

/// What is destroyed or rolled back has given its intent log back before.
async fn close_log(pool: &Arc<LivePool>, name: &str) -> Result<()> {
    let id = objset_of(pool, name).await?;
    pool.close_log(id).await
}
