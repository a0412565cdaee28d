//! The pool under torture, on files whose devices can be made to fail.
//!
//! Each file is opened behind a [`SimulatedDevice`], which the rig keeps weakly: when the pool closes a device
//! and opens the file again by its path, the new device is not simulated, and cannot be pulled until the pool
//! is imported again.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use device::simulated::{Fault, SimulatedDevice};
use device::{Cause, Device, OpenOptions, block_on};
use engine::cache::ArcCache;
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::dsl::{Dsl, edit};
use engine::pool::discovery::{Candidate, group};
use engine::pool::import::ImportOptions;
use engine::pool::live::{LivePool, NewLeaf, NewTop, Surroundings, Syncing};
use engine::vdev::Vdev;
use ondisk::Guid;
use ondisk::vdev_config::PoolState;
use testkit::Rng;

use super::ivs::Ivs;
use super::layouts::Shape;
use super::load::{SECTOR_BYTES, Volumes};
use super::support::{self, POOL, new_pool};

/// Where labels end and data begin.
const DATA_BYTES: u64 = 4 << 20;
/// The labels at the end.
const END_LABELS_BYTES: u64 = 512 << 10;

/// How long a transfer of a pool that is closed may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A file that is, was, or may become a device of the pool.
#[derive(Default)]
struct Disk {
    device: Weak<SimulatedDevice>,
}

/// The volumes: one that is plain, and one that is encrypted.
const VOLUMES: [&str; 2] = ["vol", "secret"];
/// The user's key of the latter.
const KEY: [u8; 32] = [7; 32];
const SUITES: [&str; 6] =
    ["aes-256-gcm", "aes-128-ccm", "aes-192-gcm", "aes-256-ccm", "aes-128-gcm", "aes-192-ccm"];

/// The pool, and its devices.
pub struct Rig {
    folder: tempfile::TempDir,
    disks: BTreeMap<PathBuf, Disk>,
    next: usize,
    pool: Option<Arc<LivePool>>,
    seed: u64,
    device_bytes: u64,
    ivs: Ivs,
}

impl Rig {
    fn surroundings(&self) -> Surroundings {
        // Small, so that most reads come from devices.
        let cache = Some(Arc::new(ArcCache::new(16 << 20)));
        Surroundings { env: self.ivs.env(self.seed), cache, ..support::surroundings(self.seed) }
    }

    /// A new pool with volumes of so many sectors, which is committed by its own thread.
    pub fn create(shape: &Shape, seed: u64, sectors: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let device_bytes = shape.device_bytes;
        let ivs = Ivs::default();
        let mut rig = Self { folder, disks: BTreeMap::new(), next: 0, pool: None, seed, device_bytes, ivs };
        let mut tops = Vec::new();
        for (layout, class, count) in shape.tops {
            let leaves = (0..*count).map(|_| rig.new_disk(device_bytes)).collect();
            tops.push(NewTop { layout: *layout, class: *class, leaves });
        }
        let mut new = new_pool(tops, 12);
        new.spares = (0..shape.spares).map(|_| rig.new_disk(device_bytes)).collect();
        block_on(async {
            let pool = LivePool::create(new, rig.surroundings()).await.expect("a pool");
            pool.start().expect("a thread");
            let key = UserKey::new(KeyFormat::Raw, &KEY, None, &**pool.env()).expect("a key");
            let suite = SUITES[(seed >> 2) as usize % SUITES.len()];
            for (name, key) in VOLUMES.into_iter().zip([None, Some(Arc::new(key))]) {
                let mut volume = edit::NewDataset {
                    name: support::full(name),
                    contents: edit::NewContents::Volume { size: sectors * SECTOR_BYTES as u64, sparse: true },
                    properties: vec![("volblocksize".into(), "16384".into())],
                };
                if key.is_some() {
                    let encryption = [("encryption", suite), ("keyformat", "raw")];
                    volume.properties.extend(encryption.map(|(name, value)| (name.into(), value.into())));
                }
                let create =
                    move |s: Syncing| async move { edit::create_with_key(&s, &volume, key.as_ref()).await };
                pool.change(create).await.expect("a volume");
            }
            rig.pool = Some(pool);
        });
        rig
    }

    /// The pool, which is open but for the middle of an import.
    pub fn pool(&self) -> &Arc<LivePool> {
        self.pool.as_ref().expect("a pool")
    }

    /// The pool, if it is open.
    pub fn open_pool(&self) -> Option<&Arc<LivePool>> {
        self.pool.as_ref()
    }

    /// Opens the volumes.
    pub fn volumes(&self) -> Volumes {
        VOLUMES.map(|name| {
            block_on(async {
                let id = support::objset_of(self.pool(), name).await.expect("the volume");
                self.pool().volume(id).await.expect("the volume opens")
            })
        })
    }

    /// Unloads the key of the encrypted volume, which must not be open.
    pub fn lock(&self) -> Result<(), String> {
        block_on(self.pool().unload_key(&support::full(VOLUMES[1]))).map_err(|error| format!("lock: {error}"))
    }

    /// Loads it, and has its log replayed.
    pub fn unlock(&self) -> Result<(), String> {
        let load = async {
            let dsl = Dsl::open(&self.pool().view()).await?;
            dsl.load_key(&support::full(VOLUMES[1]), &KEY, false).await?;
            self.pool().replay_unlocked().await
        };
        block_on(load).map_err(|error| format!("unlock: {error}"))
    }

    /// What was used to encrypt.
    pub fn ivs(&self) -> &Ivs {
        &self.ivs
    }

    /// A new file of this size, as a device that the pool may get.
    pub fn new_disk(&mut self, size_bytes: u64) -> NewLeaf {
        let path = self.folder.path().join(format!("disk{}", self.next));
        self.next += 1;
        File::create(&path).and_then(|file| file.set_len(size_bytes)).expect("a file");
        self.disks.insert(path.clone(), Disk::default());
        NewLeaf { device: self.open(&path).expect("opens"), path, is_file: true, whole_disk: false }
    }

    /// Replaces a file by an empty one of the same size.
    pub fn renewed_disk(&mut self, path: &Path) -> NewLeaf {
        let size_bytes = std::fs::metadata(path).map_or(self.device_bytes, |file| file.len());
        std::fs::remove_file(path).expect("it goes");
        File::create(path).and_then(|file| file.set_len(size_bytes)).expect("a file");
        NewLeaf {
            device: self.open(path).expect("opens"),
            path: path.into(),
            is_file: true,
            whole_disk: false,
        }
    }

    /// Removes a file that the pool did not take.
    pub fn forget(&mut self, path: &Path) {
        self.disks.remove(path);
        let _ = std::fs::remove_file(path);
    }

    /// Sizes of new devices of the pool.
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Opens a file. One that the pool had a moment ago is closed with its last transfer: that is waited for.
    fn open(&mut self, path: &Path) -> Result<Arc<dyn Device>, String> {
        let began = Instant::now();
        let file = loop {
            match OpenOptions::read_write().open(path) {
                Ok(file) => break file,
                Err(error) if error.cause == Cause::InUse && began.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        };
        let device = Arc::new(SimulatedDevice::new(Arc::new(file), self.seed));
        self.disks.entry(path.to_owned()).or_default().device = Arc::downgrade(&device);
        Ok(device)
    }

    /// The guid and path of each leaf that holds blocks.
    pub fn leaves(&self) -> Vec<(Guid, PathBuf)> {
        let leaves = self.pool().pool().vdevs().leaves();
        leaves.map(|leaf| (leaf.guid, PathBuf::from(&leaf.name))).collect()
    }

    /// Whether the pool has found a device again by its path, although the one that it was given is not
    /// there.
    pub fn has_found(&self, path: &Path) -> bool {
        let is_read = |leaf: &Vdev| Path::new(&leaf.name) == path && leaf.status().is_readable();
        self.simulated(path).is_none() && self.pool().pool().vdevs().leaves().any(is_read)
    }

    fn simulated(&self, path: &Path) -> Option<Arc<SimulatedDevice>> {
        self.disks.get(path)?.device.upgrade()
    }

    /// Makes a device fail. Gives whether it can be made to.
    pub fn inject(&self, path: &Path, fault: Fault) -> bool {
        self.simulated(path).map(|device| device.inject(fault)).is_some()
    }

    /// Takes all faults of a device away.
    pub fn heal(&self, path: &Path) {
        if let Some(device) = self.simulated(path) {
            device.heal();
        }
    }

    /// Takes all faults of all devices away.
    pub fn heal_all(&self) {
        self.disks.keys().for_each(|path| self.heal(path));
    }

    /// Overwrites a part of a device's data behind the pool's back; with `labels` the labels at its beginning
    /// too.
    pub fn corrupt(&self, path: &Path, rng: &mut Rng, labels: bool) -> std::io::Result<()> {
        let file = File::options().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        let end = size - END_LABELS_BYTES;
        let data = end - DATA_BYTES;
        let (mut ranges, kind) = (Vec::new(), rng.below(4));
        match kind {
            // A long range, as from a runaway program,
            0 => {
                let start = rng.below(data / 2);
                ranges.push((DATA_BYTES + start, rng.below(data - start)));
            }
            // the whole device,
            1 => ranges.push((DATA_BYTES, data)),
            // or many short ranges.
            _ => {
                for _ in 0..200 {
                    let start = rng.below(data - 65536);
                    ranges.push((DATA_BYTES + start, 1 + rng.below(65536)));
                }
            }
        }
        if labels {
            ranges.push((0, 512 << 10));
        }
        let pattern: Vec<u8> = match rng.below(3) {
            0 => vec![0; 1 << 16],
            1 => vec![0xff; 1 << 16],
            _ => (0..1 << 16).map(|_| rng.below(256) as u8).collect(),
        };
        for (start, length) in ranges {
            let mut at = start;
            while at < start + length {
                let count = ((start + length - at) as usize).min(pattern.len());
                file.write_all_at(&pattern[..count], at)?;
                at += count as u64;
            }
        }
        Ok(())
    }

    /// Ends the pool as a crash of its process does: nothing more is written.
    pub fn crash(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.abandon("it crashes");
            let closed = block_on(pool.close(PoolState::Active));
            assert!(closed.is_err(), "a crashed pool is not closed");
            pool.let_go();
        }
    }

    /// Exports the pool.
    pub fn export(&mut self) -> Result<(), String> {
        let pool = self.pool.take().expect("a pool");
        let closed = block_on(pool.close(PoolState::Exported));
        pool.let_go();
        closed.map_err(|error| format!("export: {error}"))
    }

    /// Imports the pool again, without the devices at `missing`.
    pub fn import(&mut self, missing: &[PathBuf]) -> Result<(), String> {
        self.seed += 1;
        let paths: Vec<PathBuf> = self.disks.keys().filter(|path| !missing.contains(path)).cloned().collect();
        block_on(async {
            let mut candidates = Vec::new();
            for path in paths {
                candidates.extend(Candidate::examine(self.open(&path)?).await);
            }
            let mut found = group(candidates);
            found.retain(|pool| pool.name == POOL);
            let [found] = &found[..] else { return Err(format!("{} pools are found", found.len())) };
            let options = ImportOptions { force: true, ..ImportOptions::default() };
            let pool = LivePool::import(found, &options, self.surroundings()).await;
            let pool = pool.map_err(|error| format!("import: {error}"))?;
            pool.start().map_err(|error| format!("start: {error}"))?;
            self.pool = Some(pool);
            Ok(())
        })?;
        self.unlock()
    }

    /// The folder with the files of the pool.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps the files for a developer to examine.
    pub fn keep(self) -> PathBuf {
        let Self { folder, pool, .. } = self;
        if let Some(pool) = pool {
            pool.abandon("the test failed");
        }
        folder.keep()
    }
}
