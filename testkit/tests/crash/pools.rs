//! Pools on recorded devices, and their rebirth from what is left of them.

use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use engine::cache::ArcCache;
use engine::pool::discovery::{Candidate, FoundPool, group};
use engine::pool::import::ImportOptions;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewTop, Surroundings};
use engine::tunables::L2ARC_REBUILD_BLOCKS_MIN_L2SIZE;
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use ondisk::features::Feature;
use testkit::Rng;
use testkit::crash::{Disk, Recorder};

use super::ivs::Ivs;
use super::keys::{self, Root};
use super::logs::Logs;
use super::support::{self, POOL, new_pool};

/// What a pool is made of.
pub struct Kind {
    pub name: &'static str,
    /// Layout, class and number of devices of each top-level vdev.
    tops: &'static [(Layout, Class, usize)],
    /// Cache devices.
    caches: usize,
    /// Bytes of each device: the smallest that such a pool may have.
    device_bytes: u64,
    /// The property `dedup` of all datasets, if not `off`, and whether the tables have logs.
    dedup: Option<(&'static str, bool)>,
    /// The suite of its encrypted datasets, if it has any.
    pub encryption: Option<&'static str>,
}

const SMALLEST: u64 = 64 << 20;
/// Bytes of a cache device.
const CACHE_BYTES: u64 = 48 << 20;
const SINGLE: (Layout, Class, usize) = (Layout::Single, Class::Normal, 1);
const MIRROR: (Layout, Class, usize) = (Layout::Mirror, Class::Normal, 2);
const LOG: (Layout, Class, usize) = (Layout::Single, Class::Log, 1);
const LOG_MIRROR: (Layout, Class, usize) = (Layout::Mirror, Class::Log, 2);
const DRAID: Layout = Layout::Draid { nparity: 1, ndata: 2, nspares: 1 };

const fn raidz(nparity: u8, count: usize) -> (Layout, Class, usize) {
    (Layout::Raidz { nparity }, Class::Normal, count)
}

const fn kind(name: &'static str, tops: &'static [(Layout, Class, usize)]) -> Kind {
    Kind { name, tops, caches: 0, device_bytes: SMALLEST, dedup: None, encryption: None }
}

const fn deduplicated(name: &'static str, dedup: &'static str, has_logs: bool) -> Kind {
    Kind { dedup: Some((dedup, has_logs)), ..kind(name, &[MIRROR]) }
}

const fn encrypted(name: &'static str, tops: &'static [(Layout, Class, usize)], suite: &'static str) -> Kind {
    Kind { encryption: Some(suite), ..kind(name, tops) }
}

/// The kinds of pools that power cuts are tried on.
pub const KINDS: &[Kind] = &[
    kind("single", &[SINGLE]),
    kind("mirror", &[MIRROR]),
    kind("raidz1", &[raidz(1, 3)]),
    kind("log", &[SINGLE, LOG]),
    kind("stripe", &[SINGLE, SINGLE]),
    kind("raidz2", &[raidz(2, 4)]),
    kind("special", &[MIRROR, (Layout::Mirror, Class::Special, 2), LOG_MIRROR]),
    Kind { device_bytes: 128 << 20, ..kind("draid", &[(DRAID, Class::Normal, 5)]) },
    kind("raidz3", &[raidz(3, 5)]),
    kind("mirrors", &[MIRROR, (Layout::Mirror, Class::Normal, 3)]),
    kind("logs", &[SINGLE, LOG, LOG]),
    kind("mirrored logs", &[MIRROR, LOG_MIRROR, LOG]),
    Kind { caches: 1, ..kind("cache", &[SINGLE]) },
    deduplicated("dedup", "on", true),
    deduplicated("verified dedup", "sha512,verify", true),
    deduplicated("traditional dedup", "on", false),
    encrypted("encrypted", &[SINGLE], "aes-256-gcm"),
    encrypted("encrypted mirror with a log", &[MIRROR, LOG], "aes-128-ccm"),
    encrypted("encrypted raidz2", &[raidz(2, 4)], "aes-256-ccm"),
    Kind { caches: 1, ..encrypted("encrypted with a cache", &[SINGLE], "aes-192-gcm") },
    Kind { encryption: Some("aes-128-gcm"), ..deduplicated("encrypted dedup", "on", true) },
];

impl Kind {
    /// Whether its datasets are deduplicated.
    pub fn is_deduplicated(&self) -> bool {
        self.dedup.is_some()
    }

    /// How many devices a top-level vdev can do without.
    fn spare(layout: Layout, count: usize) -> usize {
        match layout {
            Layout::Single => 0,
            Layout::Mirror => count - 1,
            Layout::Raidz { nparity } | Layout::Draid { nparity, .. } => nparity.into(),
        }
    }

    /// How many devices the pool can do without at best.
    pub fn spare_devices(&self) -> usize {
        self.tops.iter().map(|(layout, _, count)| Self::spare(*layout, *count)).sum()
    }

    /// Up to `most` devices of each top-level vdev that the pool can do without, all together.
    pub fn expendable(&self, rng: &mut Rng, most: usize) -> Vec<usize> {
        let mut first = 0;
        let mut chosen = Vec::new();
        for (layout, _, count) in self.tops {
            let spare = Self::spare(*layout, *count).min(most);
            let mut numbers: Vec<usize> = (first..first + count).collect();
            for _ in 0..rng.index(spare + 1) {
                chosen.push(numbers.swap_remove(rng.index(numbers.len())));
            }
            first += count;
        }
        chosen
    }

    /// Whether the pool can do without these devices.
    pub fn can_do_without(&self, devices: &[usize]) -> bool {
        let mut first = 0;
        self.tops.iter().all(|(layout, _, count)| {
            let missing = devices.iter().filter(|device| (first..first + count).contains(*device)).count();
            first += count;
            missing <= Self::spare(*layout, *count)
        })
    }
}

/// Drives a future on this thread. What it gives to compute threads is computed here, between its turns, so
/// that nothing depends on who is faster.
pub fn run<T: Send>(future: impl Future<Output = T>) -> T {
    device::block_on(async {
        let mut future = pin!(future);
        poll_fn(|context| {
            loop {
                if let Poll::Ready(result) = future.as_mut().poll(context) {
                    return Poll::Ready(result);
                }
                let mut computed = false;
                while rayon::yield_now() == Some(rayon::Yield::Executed) {
                    computed = true;
                }
                if !computed {
                    return Poll::Pending;
                }
            }
        })
        .await
    })
}

/// A pool of compute threads of which the thread that runs `work` is the only one, as [`run`] needs it.
pub fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread").install(work)
}

fn surroundings(seed: u64, ivs: &Ivs) -> Surroundings {
    let cache = Some(Arc::new(ArcCache::new(64 << 20)));
    Surroundings { env: ivs.env(seed), cache, ..support::surroundings(seed) }
}

/// Where device `number` says that it is.
pub fn device_path(number: usize) -> PathBuf {
    format!("/dev/disk{number}").into()
}

/// A new pool, and what can be done to its vdevs.
pub struct Created {
    pub pool: Arc<LivePool>,
    /// One more top-level vdev that can be added.
    pub more: Vec<NewTop>,
    /// Log vdevs that can be taken away.
    pub logs: Logs,
    /// What was used to encrypt.
    pub ivs: Ivs,
}

/// A new pool on new devices, which turn out to be larger by half at a look.
pub async fn create(recorder: &Recorder, kind: &Kind, ashift: u8, seed: u64) -> Created {
    let mut number = 0;
    let mut top = |(layout, class, count): (Layout, Class, usize)| {
        let mut leaves = Vec::new();
        for _ in 0..count {
            let path = device_path(number);
            let whole = Disk::new(kind.device_bytes + kind.device_bytes / 2);
            let device = recorder.growing_device(&path, whole, kind.device_bytes);
            leaves.push(NewLeaf { device, path, is_file: false, whole_disk: false });
            number += 1;
        }
        (NewTop { layout, class, leaves }, number - count..number)
    };
    let tops: Vec<_> = kind.tops.iter().map(|one| top(*one)).collect();
    let more = kind.tops.first().map(|first| top(*first).0).into_iter().collect();
    let logs = tops.iter().filter(|(top, _)| top.class == Class::Log).cloned().collect();
    let mut new = new_pool(tops.into_iter().map(|(top, _)| top).collect(), ashift);
    for _ in 0..kind.caches {
        // Log blocks of few entries: many of them.
        L2ARC_REBUILD_BLOCKS_MIN_L2SIZE.set(0).unwrap();
        let path = device_path(number);
        let device = recorder.device(&path, Disk::new(CACHE_BYTES));
        new.l2cache.push(NewLeaf { device, path, is_file: false, whole_disk: false });
        number += 1;
    }
    if let Some((dedup, has_logs)) = kind.dedup {
        new.root_properties.push(("dedup".into(), dedup.into()));
        new.features.retain(|feature| has_logs || *feature != Feature::FastDedup);
    }
    let ivs = Ivs::default();
    let surroundings = surroundings(seed, &ivs);
    let key = kind.encryption.map(|suite| {
        new.root_properties.extend(keys::properties(suite));
        Root::Pool.key(0, &*surroundings.env)
    });
    let pool = LivePool::create_with_key(new, key, surroundings).await.unwrap();
    Created { pool, more, logs: Logs::new(logs, ashift), ivs }
}

/// The pool that these disks hold, those that are `missing` left out. What is done to it is recorded anew.
pub async fn find(recorder: &Recorder, disks: Vec<Disk>, missing: &[usize]) -> Result<FoundPool, String> {
    let mut candidates = Vec::new();
    for (number, disk) in disks.into_iter().enumerate() {
        let device = recorder.device(device_path(number), disk);
        if !missing.contains(&number) {
            candidates.extend(Candidate::examine(device).await);
        }
    }
    let mut found = group(candidates);
    found.retain(|pool| pool.name == POOL);
    match found.len() {
        1 => Ok(found.remove(0)),
        count => Err(format!("{count} pools are found")),
    }
}

/// Opens the pool that these disks hold, for writing.
pub async fn import(
    recorder: &Recorder,
    disks: Vec<Disk>,
    missing: &[usize],
    seed: u64,
) -> Result<Arc<LivePool>, String> {
    import_counting(recorder, disks, missing, seed, &Ivs::default()).await
}

/// The same; what is used to encrypt is counted.
pub async fn import_counting(
    recorder: &Recorder,
    disks: Vec<Disk>,
    missing: &[usize],
    seed: u64,
    ivs: &Ivs,
) -> Result<Arc<LivePool>, String> {
    let found = find(recorder, disks, missing).await?;
    let options = ImportOptions { force: true, ..ImportOptions::default() };
    let imported = LivePool::import(&found, &options, surroundings(seed, ivs)).await;
    imported.map_err(|error| format!("import: {error}"))
}

/// Feeds the cache devices, if there are any, or finds again what they hold.
pub async fn feed(pool: &LivePool) {
    if !pool.pool().vdevs().l2cache.is_empty() {
        pool.feed_l2arc().await;
    }
}

/// Opens a volume of the pool, for writing.
pub async fn open_volume(pool: &Arc<LivePool>, name: &str) -> engine::Result<Arc<LiveZvol>> {
    let dataset = pool.dataset(support::objset_of(pool, name).await?).await?;
    LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await
}
