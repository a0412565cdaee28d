//! Pools in memory, their rebirth, and what `zdb` says of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use device::{Device, OpenOptions};
use engine::env::Seeded;
use engine::pool::discovery;
use engine::pool::import::ImportOptions;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, default_features};
use engine::txg::Limits;
use engine::vdev::Class;

/// A folder of sparse files that a pool is made of.
pub struct Disks {
    pub folder: tempfile::TempDir,
    size_bytes: u64,
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

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn leaf(&self, name: &str) -> NewLeaf {
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
        for options in [&["-bcc"][..], &["-d"]] {
            let output = Command::new("zdb")
                .args(["-e", "-p"])
                .arg(self.path())
                .args(options)
                .arg(name)
                .env("PATH", path())
                .output();
            let output = output.expect("zdb is installed by scripts/install-test-tools");
            let text = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            let bad = [
                "leaked space",
                "errors in",
                "ASSERT",
                "error:",
                "Deadlist",
                "can't open",
                "block traversal size",
            ];
            let bad = bad.iter().find(|bad| text.contains(**bad));
            assert!(output.status.success() && bad.is_none(), "zdb {options:?} {bad:?}: {text}");
            assert!(
                options[0] != "-bcc" || text.contains("No leaks (block sum matches space maps exactly)"),
                "{text}"
            );
        }
    }
}

fn discovery_select(found: Vec<discovery::FoundPool>, name: &str) -> discovery::FoundPool {
    engine::pool::import::select(found, name).unwrap()
}

fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn open(path: &Path) -> Arc<dyn Device> {
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
        name: "tank".into(),
        tops,
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(ashift),
        features: default_features(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        altroot: None,
        command: Some("zpool create tank".into()),
    }
}
