//! Pools on object stores whose host ends at any request.
//!
//! A run writes to a volume of a pool whose devices are in buckets of memory that log each request that
//! changes something, in one order for all of them. What the buckets hold after any number of these requests
//! is a state that a host leaves which ends there: nothing is done that was not asked for, and requests that
//! were under way are left out. From such states the pool is opened by another host. It must have all that
//! was promised before, and be whole.

#![allow(clippy::unwrap_used, reason = "a test")]

#[allow(dead_code, reason = "parts of it are for others")]
#[path = "../../../engine/tests/live/support.rs"]
mod support;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::{Device, IgnorePoison, block_on};
use engine::dsl::edit;
use engine::pool::discovery::{Candidate, group};
use engine::pool::import::{ImportOptions, import as import_to_read};
use engine::pool::live::{Layout, LivePool, NewLeaf, NewTop};
use engine::pool::verify::{Depth, Progress, VerifyOptions, verify};
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use objects::bucket::{Bucket, BucketError, BucketFuture, Listed, MemoryBucket};
use objects::{Mode, ObjectDevice, Options};
use ondisk::vdev_config::PoolState;
use support::{POOL, committing, new_pool, objset_of, surroundings};
use testkit::Rng;
use testkit::crash::{SECTOR_BYTES, Step, Volume};

const DEVICE_BYTES: u64 = 64 << 20;
const VOLUME_SECTORS: u64 = 512;
/// Seconds that are spent, unless `CENOTE_CRASH_SECONDS` says else.
const SECONDS: u64 = 20;

/// A change of a bucket: of which, its key, and the bytes; none where the object was deleted.
type Change = (usize, String, Option<Bytes>);

/// What all buckets of a run did, in order.
#[derive(Debug, Default, Clone)]
struct Log(Arc<Mutex<Vec<Change>>>);

impl Log {
    fn position(&self) -> usize {
        self.0.lock().ignore_poison().len()
    }

    /// The buckets after so many changes.
    fn buckets(&self, count: usize, point: usize) -> Vec<BTreeMap<String, Bytes>> {
        let mut buckets = vec![BTreeMap::new(); count];
        for (bucket, key, body) in self.0.lock().ignore_poison().iter().take(point) {
            match body {
                Some(body) => drop(buckets[*bucket].insert(key.clone(), body.clone())),
                None => drop(buckets[*bucket].remove(key)),
            }
        }
        buckets
    }
}

/// A bucket of memory that logs what changes it.
#[derive(Debug)]
struct LoggedBucket {
    number: usize,
    below: MemoryBucket,
    log: Log,
}

impl LoggedBucket {
    /// Changes an object, if `may` allows that; logged in the same step.
    fn change(&self, key: &str, body: Option<Bytes>, is_new: bool) -> Result<(), BucketError> {
        let mut log = self.log.0.lock().ignore_poison();
        let mut objects = self.below.objects();
        if is_new && objects.contains_key(key) {
            return Err(BucketError::Exists);
        }
        match &body {
            Some(body) => drop(objects.insert(key.to_owned(), body.clone())),
            None => drop(objects.remove(key)),
        }
        log.push((self.number, key.to_owned(), body));
        Ok(())
    }
}

impl Bucket for LoggedBucket {
    fn address(&self) -> &str {
        "logged:"
    }

    fn create(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let done = self.change(key, Some(body), true);
        Box::pin(async { done })
    }

    fn put(&self, key: &str, body: Bytes) -> BucketFuture<'_, ()> {
        let done = self.change(key, Some(body), false);
        Box::pin(async { done })
    }

    fn get(&self, key: &str, range: Range<u64>) -> BucketFuture<'_, Bytes> {
        self.below.get(key, range)
    }

    fn get_all(&self, key: &str, limit: u64) -> BucketFuture<'_, Bytes> {
        self.below.get_all(key, limit)
    }

    fn delete(&self, key: &str) -> BucketFuture<'_, ()> {
        let done = self.change(key, None, false);
        Box::pin(async { done })
    }

    fn list(&self, prefix: &str, after: &str, limit: usize) -> BucketFuture<'_, Vec<Listed>> {
        self.below.list(prefix, after, limit)
    }
}

/// Small ones, so that there is much of everything.
fn options() -> Options {
    Options {
        segment_bytes: 256 << 10,
        inline_bytes: 32 << 10,
        checkpoint_entries: 400,
        checkpoint_commits: 12,
        garbage_share: 0.3,
        map_runs: 400,
        ..Options::default()
    }
}

fn device(bucket: Arc<dyn Bucket>, mode: Mode) -> Arc<dyn Device> {
    Arc::new(ObjectDevice::open(bucket, mode, options()).unwrap())
}

fn layout(devices: usize) -> Layout {
    match devices {
        1 => Layout::Single,
        2 => Layout::Mirror,
        _ => Layout::Raidz { nparity: 1 },
    }
}

/// What was written, and what the buckets did.
struct History {
    seed: u64,
    devices: usize,
    log: Log,
    volume: Volume,
    /// From here on there is a volume.
    begin: usize,
}

/// A pool in so many buckets, and writes to its volume.
fn history(seed: u64, devices: usize, steps: usize) -> History {
    let log = Log::default();
    let mut rng = Rng::new(seed);
    let buckets = (0..devices).map(|number| {
        let bucket = LoggedBucket { number, below: MemoryBucket::default(), log: log.clone() };
        Arc::new(bucket) as Arc<dyn Bucket>
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let leaves = buckets.enumerate().map(|(number, bucket)| {
        runtime.block_on(objects::create(&*bucket, DEVICE_BYTES, &options())).unwrap();
        let path = format!("memory://{number}").into();
        NewLeaf { device: device(bucket, Mode::Write), path, is_file: true, whole_disk: false }
    });
    let top = NewTop { layout: layout(devices), class: Class::Normal, leaves: leaves.collect() };
    block_on(async {
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(seed)).await.unwrap();
        let size = VOLUME_SECTORS * SECTOR_BYTES as u64;
        let new = edit::NewDataset {
            name: format!("{POOL}/v"),
            contents: edit::NewContents::Volume { size, sparse: true },
            properties: vec![("volblocksize".into(), "8192".into())],
        };
        pool.change(|s| async move { edit::create(&s, &new).await }).await.unwrap();
        pool.sync().await.unwrap();
        let volume = open_volume(&pool).await;
        let begin = log.position();
        let mut model = Volume::new(1, VOLUME_SECTORS);
        for _ in 0..steps {
            let most = if rng.once_in(5) { 200 } else { 12 };
            let sectors = 1 + rng.below(most);
            let first = rng.below(VOLUME_SECTORS - sectors);
            let bytes = model.begin(Step::Write { first, sectors }, log.position());
            let stable = rng.once_in(5);
            let offset = first * SECTOR_BYTES as u64;
            committing(&pool, volume.write_at(offset, &bytes, stable)).await.unwrap();
            if stable {
                model.promise(model.steps(), log.position());
            }
            match rng.below(12) {
                0 => {
                    pool.sync().await.unwrap();
                    model.promise(model.steps(), log.position());
                }
                1 => {
                    committing(&pool, volume.flush()).await.unwrap();
                    model.promise(model.steps(), log.position());
                }
                _ => {}
            }
        }
        History { seed, devices, log, volume: model, begin }
    })
}

async fn open_volume(pool: &Arc<LivePool>) -> Arc<LiveZvol> {
    let dataset = pool.dataset(objset_of(pool, "v").await.unwrap()).await.unwrap();
    LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.unwrap()
}

/// What another host finds that opens the pool after a point. Some devices may be missing.
fn judge(history: &History, point: usize, is_thorough: bool, without: Option<usize>) -> Result<(), String> {
    let buckets: Vec<Arc<MemoryBucket>> = history
        .log
        .buckets(history.devices, point)
        .into_iter()
        .map(|objects| {
            let bucket = MemoryBucket::default();
            *bucket.objects() = objects;
            Arc::new(bucket)
        })
        .collect();
    let found = |mode| async move {
        let mut candidates = Vec::new();
        for (number, bucket) in buckets.clone().into_iter().enumerate() {
            if Some(number) != without {
                candidates.extend(Candidate::examine(device(bucket, mode)).await);
            }
        }
        let mut found = group(candidates);
        match found.len() {
            1 => Ok(found.remove(0)),
            count => Err(format!("{count} pools are found")),
        }
    };
    let done = block_on(async {
        let options = ImportOptions { force: true, ..ImportOptions::default() };
        let found = found.clone()(Mode::Write).await?;
        let pool = LivePool::import(&found, &options, surroundings(history.seed)).await;
        let pool = pool.map_err(|error| format!("import: {error}"))?;
        let volume = open_volume(&pool).await;
        let mut contents = vec![0; volume.size() as usize];
        volume.read_at(0, &mut contents).await.map_err(|error| format!("read: {error}"))?;
        let (least, most) = history.volume.bounds(point);
        history.volume.judge_sectors(&contents, least, most)?;
        if !is_thorough {
            return Ok::<_, String>(());
        }
        let bytes = vec![7; 300 * SECTOR_BYTES];
        committing(&pool, volume.write_at(0, &bytes, true))
            .await
            .map_err(|error| format!("write: {error}"))?;
        let closed = committing(&pool, pool.close(PoolState::Exported)).await;
        closed.map_err(|error| format!("export: {error}"))
    });
    done?;
    if !is_thorough {
        return Ok(());
    }
    let pool = block_on(async {
        let options = ImportOptions { readonly: true, force: true, ..ImportOptions::default() };
        let found = found(Mode::Read).await?;
        import_to_read(&found, &options).await.map_err(|error| format!("again: {error}"))
    })?;
    let options = VerifyOptions { threads: 1, depth: Depth::Everything, check_space: true };
    let report = verify(&pool, options, &Progress::default()).map_err(|error| format!("verify: {error}"))?;
    let blocks = report.unreadable_blocks == 0 && (report.damaged_blocks == 0 || without.is_some());
    let space = report.space.as_ref().is_none_or(|space| space.is_clean());
    match blocks && space && report.notes.is_empty() {
        true => Ok(()),
        false => Err(format!("verify: {:?} {:?} {:?}", report.errors, report.space, report.notes)),
    }
}

#[test]
fn what_was_promised_is_there_after_any_request() {
    let seconds = std::env::var("CENOTE_CRASH_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let first = std::env::var("CENOTE_CRASH_SEED").ok().and_then(|text| text.parse().ok());
    let (mut states, mut thorough, mut requests, mut deleted) = (0, 0, 0, 0);
    let mut seed = first.unwrap_or(1);
    loop {
        let devices = 1 + (seed % 3) as usize;
        let history = history(seed, devices, 120);
        let all = history.log.position();
        requests += all;
        deleted += history.log.0.lock().ignore_poison().iter().filter(|(.., body)| body.is_none()).count();
        let mut rng = Rng::new(seed ^ 1);
        for point in history.begin..=all {
            let is_thorough = rng.once_in(16);
            let without = (devices > 1 && rng.once_in(4)).then(|| rng.index(devices));
            if let Err(error) = judge(&history, point, is_thorough, without) {
                panic!("CENOTE_CRASH_SEED={seed}, {devices} devices, after {point} of {all}: {error}");
            }
            states += 1;
            thorough += usize::from(is_thorough);
            if Instant::now() > end && states > 60 {
                println!(
                    "{states} states, {thorough} of them verified, {requests} requests, {deleted} deletions"
                );
                assert!(deleted > 20, "nothing was superseded: {deleted}");
                return;
            }
        }
        seed += 1;
    }
}
