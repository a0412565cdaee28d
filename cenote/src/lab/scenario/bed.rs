//! A pool of a scenario: files, devices, one volume, and what it must hold.
//!
//! Each sector of the volume begins with [`MAGIC`], then has its own number and a generation, then noise that
//! follows from both. So what a sector must be is known without being kept, and the devices know sectors of
//! the volume when they see them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use device::simulated::{Model, RealClock, SimulatedDevice};
use device::{Device, OpenOptions, block_on};
use engine::cache::ArcCache;
use engine::dsl::edit::{NewContents, NewDataset, create};
use engine::env::System;
use engine::pool::live::{
    Layout, LivePool, NewLeaf, NewPool, NewTop, ScrubRange, Surroundings, default_features,
};
use engine::pool::status::{Progress, Scan};
use engine::txg::Limits;
use engine::vdev::stats::Transfer;
use engine::vdev::{Class, Kind, Vdev};
use engine::zvol::LiveZvol;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::vdev_config::PoolState;
use ondisk::{Guid, ObjsetId};
use tempfile::TempDir;

use super::spoiled::{MAGIC, SECTOR_BYTES, SpoiledDevice};

pub const MIB: u64 = 1 << 20;
/// The cache of a pool: small, so that reads come from devices.
pub const CACHE_BYTES: u64 = 4 << 20;
/// Writes of the volume under way.
const DEPTH: usize = 16;
/// How long anything may take before a scenario gives it up.
const PATIENCE: Duration = Duration::from_secs(1800);

/// What a pool is made of.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// Its top-level vdevs: layout, and number of disks.
    pub tops: &'a [(Layout, usize)],
    /// Bytes of a disk.
    pub disk_bytes: u64,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Bytes of a block of the volume.
    pub block_bytes: u64,
    /// What disks play.
    pub model: Option<Model>,
}

/// A pool with a volume that is full.
pub struct Bed {
    folder: TempDir,
    next: usize,
    model: Option<Model>,
    /// The disks, in the order in which they were made.
    pub disks: Vec<Arc<SpoiledDevice>>,
    pub pool: Arc<LivePool>,
    pub volume: Arc<LiveZvol>,
    /// The object set of the volume.
    pub objset: ObjsetId,
    pub volume_bytes: u64,
    pub block_bytes: u64,
}

/// Blocks that are not what they must be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Lost {
    /// Blocks that are read without an error, and are wrong.
    pub wrong: u64,
    /// Blocks that cannot be read.
    pub unreadable: u64,
}

impl Bed {
    /// A pool in `directory` whose volume holds its first generation.
    pub fn new(directory: &Path, plan: &Plan<'_>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("disks-").tempdir_in(directory);
        let folder = folder.with_context(|| format!("cannot make files in {}", directory.display()))?;
        let mut disks = Vec::new();
        let mut tops = Vec::new();
        let mut next = 0;
        for (layout, count) in plan.tops {
            let mut leaves = Vec::new();
            for _ in 0..*count {
                let path = folder.path().join(format!("disk{next}"));
                let device = open_new(&path, plan.disk_bytes, plan.model, next)?;
                next += 1;
                disks.push(Arc::clone(&device));
                leaves.push(NewLeaf { device, path, is_file: true, whole_disk: false });
            }
            tops.push(NewTop { layout: *layout, class: Class::Normal, leaves });
        }
        let surroundings = Surroundings {
            env: Arc::new(System),
            limits: Limits::default(),
            cache: Some(Arc::new(ArcCache::new(CACHE_BYTES))),
            host: (1, "lab".into()),
        };
        let pool = block_on(LivePool::create(new_pool(tops), surroundings))?;
        pool.start()?;
        let contents = NewContents::Volume { size: plan.volume_bytes, sparse: true };
        let properties =
            vec![("volblocksize".into(), plan.block_bytes.to_string()), ("compression".into(), "off".into())];
        let new = NewDataset { name: "lab/volume".into(), contents, properties };
        let objset = block_on(pool.change(move |s| async move { create(&s, &new).await }))?;
        let volume = block_on(pool.volume(objset))?;
        let (model, volume_bytes, block_bytes) = (plan.model, plan.volume_bytes, plan.block_bytes);
        let bed = Self { folder, next, model, disks, pool, volume, objset, volume_bytes, block_bytes };
        bed.write(1)?;
        Ok(bed)
    }

    /// A new disk of this size, to be attached.
    pub fn new_disk(&mut self, bytes: u64) -> Result<NewLeaf> {
        let path = self.folder.path().join(format!("disk{}", self.next));
        let device = open_new(&path, bytes, self.model, self.next)?;
        self.next += 1;
        self.disks.push(Arc::clone(&device));
        Ok(NewLeaf { device, path, is_file: true, whole_disk: false })
    }

    /// Writes a generation of the whole volume and commits it.
    pub fn write(&self, generation: u64) -> Result<()> {
        block_on(async {
            let mut flying = FuturesUnordered::new();
            for block in 0..self.blocks() {
                let (at, bytes) = (block * self.block_bytes, self.content(block, generation));
                flying.push(async move { self.volume.write_at(at, &bytes, false).await });
                if flying.len() >= DEPTH {
                    flying.next().await.transpose()?;
                }
            }
            while let Some(written) = flying.next().await {
                written?;
            }
            self.commit().await
        })
    }

    /// Commits what was written.
    pub async fn commit(&self) -> Result<()> {
        Ok(self.pool.txgs().wait_synced(self.pool.txgs().open_txg()).await?)
    }

    /// Blocks of the volume.
    pub fn blocks(&self) -> u64 {
        self.volume_bytes / self.block_bytes
    }

    fn content(&self, block: u64, generation: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.block_bytes as usize];
        let first = block * self.block_bytes / SECTOR_BYTES as u64;
        for (sector, number) in bytes.chunks_exact_mut(SECTOR_BYTES).zip(first..) {
            fastrand::Rng::with_seed(number << 8 | generation).fill(sector);
            sector[..MAGIC.len()].copy_from_slice(&MAGIC);
        }
        bytes
    }

    /// Reads the whole volume from the devices and counts blocks that are not this generation.
    pub fn verify(&self, generation: u64) -> Lost {
        self.pool.flush_cache();
        let mut lost = Lost::default();
        let mut read = vec![0; self.block_bytes as usize];
        for block in 0..self.blocks() {
            match block_on(self.volume.read_at(block * self.block_bytes, &mut read)) {
                Err(_) => lost.unreadable += 1,
                Ok(_) if read != self.content(block, generation) => lost.wrong += 1,
                Ok(_) => {}
            }
        }
        lost
    }

    /// Scrubs the pool and waits for the end. What scrubs read comes from the devices.
    pub fn scrub(&self) -> Result<Scan> {
        block_on(self.pool.scrub(ScrubRange::default()))?;
        self.wait("a scrub", || !self.is_scanning())?;
        self.pool.scan_status().context("the pool has no scan")
    }

    /// Whether a scrub or resilver is under way.
    pub fn is_scanning(&self) -> bool {
        self.pool.scan_status().is_some_and(|scan| scan.state == Progress::Running)
    }

    /// Whether a device takes another one's place.
    pub fn is_replacing(&self) -> bool {
        let mut vdevs = self.pool.pool().vdevs().tops.iter().flat_map(|top| top.walk());
        vdevs.any(|vdev| matches!(vdev.kind, Kind::Replacing))
    }

    /// Whether a device still lacks something.
    pub fn lacks(&self, leaf: Guid) -> bool {
        self.pool.pool().vdevs().find(leaf).is_some_and(|leaf| !leaf.missing_txgs.is_empty())
    }

    /// Waits for something that comes about by itself.
    pub fn wait(&self, what: &str, mut is_done: impl FnMut() -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_done() {
            if began.elapsed() > PATIENCE {
                bail!("{what} did not end within {} minutes", PATIENCE.as_secs() / 60);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// All leaves that hold blocks.
    pub fn leaves(&self) -> impl Iterator<Item = &Vdev> {
        self.pool.pool().vdevs().leaves()
    }

    /// Checksum errors of all leaves since errors were cleared.
    pub fn checksum_errors(&self) -> u64 {
        self.leaves().map(|leaf| leaf.errors.checksum()).sum()
    }

    /// Bytes that scans read of a leaf.
    pub fn scan_bytes(&self, leaf: Guid) -> u64 {
        let leaf = self.pool.pool().vdevs().find(leaf);
        leaf.map_or(0, |leaf| leaf.stats.snapshot(Transfer::Scrub).bytes)
    }

    /// Exports the pool and removes its files.
    pub fn end(self) -> Result<()> {
        let Self { folder, pool, volume, .. } = self;
        drop(volume);
        let closed = block_on(pool.close(PoolState::Exported));
        pool.let_go();
        drop(folder);
        Ok(closed?)
    }
}

fn new_pool(tops: Vec<NewTop>) -> NewPool {
    NewPool {
        name: "lab".into(),
        tops,
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(12),
        version: ondisk::pool_version::FEATURES,
        features: default_features(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        altroot: None,
        command: None,
    }
}

/// A new file as a disk. Its turns of the platter follow from its number.
fn open_new(path: &Path, bytes: u64, model: Option<Model>, number: usize) -> Result<Arc<SpoiledDevice>> {
    let file = File::create(path).and_then(|file| file.set_len(bytes));
    file.with_context(|| format!("cannot make {}", path.display()))?;
    let file: Arc<dyn Device> = Arc::new(OpenOptions::read_write().buffered().open(path)?);
    // The pool is thrown away in the end: nothing has to outlive this machine's power.
    let device = SimulatedDevice::new(file, number as u64 + 1).unflushed();
    let device = match model {
        Some(model) => device.with_model(model, Arc::new(RealClock)),
        None => device,
    };
    Ok(Arc::new(SpoiledDevice::new(Arc::new(device))))
}

/// What people call a layout.
pub fn named(tops: &[(Layout, usize)]) -> String {
    let names = tops.iter().map(|(layout, count)| match layout {
        Layout::Mirror => format!("mirror {count}"),
        Layout::Raidz { nparity } => format!("raidz{nparity} {count}"),
        _ => count.to_string(),
    });
    names.collect::<Vec<_>>().join(" + ")
}
