//! Pools on recorded devices, and their rebirth from what is left of them.

use std::path::PathBuf;
use std::sync::Arc;

use engine::cache::ArcCache;
use engine::dataset::zvol::LiveZvol;
use engine::env::Seeded;
use engine::pool::discovery::{Candidate, FoundPool, group};
use engine::pool::import::ImportOptions;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, default_features};
use engine::txg::Limits;
use engine::vdev::Class;
use testkit::crash::{Disk, Recorder};

/// Bytes of each device: the smallest that a pool may have.
const DEVICE_BYTES: u64 = 64 << 20;
/// The pool's name.
pub const POOL: &str = "tank";

/// What a pool is made of: layout, class and number of devices of each top-level vdev.
pub type Topology = &'static [(Layout, Class, usize)];

/// The kinds of pools that power cuts are tried on.
pub const TOPOLOGIES: &[(&str, Topology)] = &[
    ("single", &[(Layout::Single, Class::Normal, 1)]),
    ("mirror", &[(Layout::Mirror, Class::Normal, 2)]),
    ("raidz1", &[(Layout::Raidz { nparity: 1 }, Class::Normal, 3)]),
    ("log", &[(Layout::Single, Class::Normal, 1), (Layout::Single, Class::Log, 1)]),
    ("stripe", &[(Layout::Single, Class::Normal, 1), (Layout::Single, Class::Normal, 1)]),
];

pub fn surroundings(seed: u64) -> Surroundings {
    Surroundings {
        env: Arc::new(Seeded::new(seed)),
        cache: Some(Arc::new(ArcCache::new(64 << 20))),
        limits: Limits::default(),
        host: (0x1234_5678, "test".into()),
    }
}

/// Where device `number` says that it is.
fn device_path(number: usize) -> PathBuf {
    format!("/dev/disk{number}").into()
}

/// A new pool on new devices.
pub async fn create(recorder: &Recorder, topology: Topology, ashift: u8, seed: u64) -> Arc<LivePool> {
    let mut number = 0;
    let mut tops = Vec::new();
    for (layout, class, count) in topology {
        let mut leaves = Vec::new();
        for _ in 0..*count {
            let path = device_path(number);
            let device = recorder.device(&path, Disk::new(DEVICE_BYTES));
            leaves.push(NewLeaf { device, path, is_file: false, whole_disk: false });
            number += 1;
        }
        tops.push(NewTop { layout: *layout, class: *class, leaves });
    }
    let new = NewPool {
        name: POOL.into(),
        tops,
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(ashift),
        features: default_features(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        altroot: None,
        command: None,
    };
    LivePool::create(new, surroundings(seed)).await.unwrap()
}

/// The pool that these disks hold. What is done to it is recorded anew.
pub async fn find(recorder: &Recorder, disks: Vec<Disk>) -> Result<FoundPool, String> {
    let mut candidates = Vec::new();
    for (number, disk) in disks.into_iter().enumerate() {
        let device = recorder.device(device_path(number), disk);
        candidates.extend(Candidate::examine(device).await);
    }
    let mut found = group(candidates);
    found.retain(|pool| pool.name == POOL);
    match found.len() {
        1 => Ok(found.remove(0)),
        count => Err(format!("{count} pools are found")),
    }
}

/// Opens the pool that these disks hold, for writing.
pub async fn import(recorder: &Recorder, disks: Vec<Disk>, seed: u64) -> Result<Arc<LivePool>, String> {
    let found = find(recorder, disks).await?;
    let options = ImportOptions { force: true, ..ImportOptions::default() };
    LivePool::import(&found, &options, surroundings(seed)).await.map_err(|error| format!("import: {error}"))
}

/// Opens a volume of the pool, for writing.
pub async fn volume(pool: &Arc<LivePool>, name: &str) -> Result<Arc<LiveZvol>, String> {
    let open = async {
        let dsl = engine::dataset::dsl::Dsl::open(&pool.view()).await?;
        let id = dsl.find(&format!("{POOL}/{name}")).await?.objset_id();
        let dataset = pool.dataset(id).await?;
        LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await
    };
    open.await.map_err(|error| format!("volume {name}: {error}"))
}
