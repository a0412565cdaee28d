//! Pools that are filled to the end, of every combination of sector size, layout, size of records, copies and
//! compression.
//!
//! A pool is filled with writes, some of them stable, until there is no room; written over; killed, which
//! leaves what its devices hold; imported for writing; looked at: what was flushed is there; filled again;
//! emptied by half, and written to again. It never stops. At last everything in it is verified.
//!
//! A failure names its seed. `CENOTE_FILL_SEED` runs that one, `CENOTE_FILL_COMBINATIONS` runs more. `zdb` is
//! asked of some of them.

mod target;

use std::path::PathBuf;
use std::sync::Arc;

use device::{Device, MemoryDevice, block_on};
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::dsl::with_room;
use engine::pool::discovery::{Candidate, FoundPool, group};
use engine::pool::import::{ImportOptions, import};
use engine::pool::live::{Layout, LivePool, NewLeaf, NewTop, Surroundings};
use engine::pool::verify::{self, VerifyOptions};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::zil::SyncMode;
use engine::zpl::{LiveZpl, ZplOptions};
use engine::zvol::LiveZvol;
use engine::{Error, Result};
use ondisk::vdev_config::PoolState;
use testkit::Rng;

use self::target::{Noise, Place, Target};
use crate::files::FILE;
use crate::support::{POOL, committing, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;
/// Combinations of a run that was asked for nothing else.
const COMBINATIONS: u64 = 2;
const FIRST_SEED: u64 = 7;
/// One combination in so many is shown to `zdb`.
const JUDGED: u64 = 6;
/// Of a pool that is full, at least this share holds data, in percent of what datasets may occupy.
const LEAST_FULL_PERCENT: u64 = 50;

/// Slots that are written over before a pool is killed, and after.
const CHANGES: u64 = 200;

/// Layouts, and how many devices they have.
const LAYOUTS: [(Layout, usize); 13] = [
    (Layout::Single, 1),
    (Layout::Single, 1),
    (Layout::Mirror, 2),
    (Layout::Raidz { nparity: 1 }, 2),
    (Layout::Raidz { nparity: 1 }, 3),
    (Layout::Raidz { nparity: 1 }, 5),
    (Layout::Raidz { nparity: 2 }, 4),
    (Layout::Raidz { nparity: 2 }, 6),
    (Layout::Raidz { nparity: 3 }, 5),
    (Layout::Raidz { nparity: 3 }, 8),
    (Layout::Draid { nparity: 1, ndata: 2, nspares: 1 }, 5),
    (Layout::Draid { nparity: 2, ndata: 3, nspares: 0 }, 6),
    (Layout::Draid { nparity: 1, ndata: 4, nspares: 1 }, 7),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Volume,
    File,
    Files,
}

/// What a pool is like, and what is written to it.
#[derive(Clone, Copy, Debug)]
struct Combination {
    ashift: u8,
    layout: Layout,
    devices: usize,
    device_bytes: u64,
    with_log: bool,
    kind: Kind,
    /// `recordsize`, or `volblocksize`.
    block: u64,
    copies: u64,
    compression: &'static str,
    is_compressible: bool,
    always: bool,
    /// Free space is in small pieces when it begins.
    fragmented: bool,
    slot_bytes: u64,
    /// One write in so many is stable.
    stable_once_in: u64,
    dirty_bytes: u64,
}

impl Combination {
    fn random(rng: &mut Rng) -> Self {
        let pick = |rng: &mut Rng, from: &[u64]| *rng.pick(from).expect("it is not empty");
        let (layout, devices) = *rng.pick(&LAYOUTS).expect("it is not empty");
        let kind = *rng.pick(&[Kind::Volume, Kind::File, Kind::Files]).expect("it is not empty");
        let block = 512 << rng.below(12);
        let slot_bytes = match kind {
            // In one piece of a group each: a write of several may be there in part.
            Kind::Volume | Kind::File => block.max(pick(rng, &[4096, 16 << 10, 128 << 10])),
            Kind::Files => pick(rng, &[512, 1024, 3000, 20_000, 100_000]),
        };
        let is_draid = matches!(layout, Layout::Draid { .. });
        Self {
            ashift: pick(rng, &[9, 12, 12, 13, 14]) as u8,
            layout,
            devices,
            device_bytes: pick(rng, &[64, 80, 96]) * MIB * if is_draid { 2 } else { 1 },
            with_log: rng.once_in(3),
            kind,
            block,
            copies: 1 + rng.below(3),
            compression: if rng.once_in(2) { "off" } else { "lz4" },
            is_compressible: rng.once_in(2),
            always: rng.once_in(3),
            fragmented: rng.once_in(3),
            slot_bytes,
            stable_once_in: pick(rng, &[1, 8, 64, 100_000]),
            dirty_bytes: pick(rng, &[4, 16, 256]) * MIB,
        }
    }

    fn surroundings(&self, seed: u64) -> Surroundings {
        let limits = Limits { dirty_bytes: self.dirty_bytes, ..Limits::default() };
        Surroundings { limits, ..surroundings(seed) }
    }

    /// The datasets: what is written, and what makes free space come in pieces.
    fn new_dataset(&self, size: u64) -> NewDataset {
        let property = |name: &str, value: String| (name.into(), value);
        let common =
            [property("copies", self.copies.to_string()), property("compression", self.compression.into())];
        let (contents, block) = match self.kind {
            Kind::Volume => (NewContents::Volume { size, sparse: true }, "volblocksize"),
            _ => (NewContents::Filesystem, "recordsize"),
        };
        let properties = common.into_iter().chain([property(block, self.block.to_string())]).collect();
        NewDataset { name: format!("{POOL}/data"), contents, properties }
    }
}

/// Devices of memory.
#[derive(Clone)]
struct Disks(Vec<Arc<MemoryDevice>>);

impl Disks {
    fn new(of: &Combination) -> Self {
        let count = of.devices + usize::from(of.with_log);
        let bytes = of.device_bytes as usize;
        Self(
            (0..count)
                .map(|number| Arc::new(MemoryDevice::new(format!("/dev/disk{number}"), bytes)))
                .collect(),
        )
    }

    fn leaf(&self, number: usize) -> NewLeaf {
        let device = Arc::clone(&self.0[number]);
        NewLeaf { path: device.path().to_owned(), device, is_file: false, whole_disk: false }
    }

    fn tops(&self, of: &Combination) -> Vec<NewTop> {
        let data = (0..of.devices).map(|number| self.leaf(number)).collect();
        let data = NewTop { layout: of.layout, class: Class::Normal, leaves: data };
        let log = of.with_log.then(|| NewTop {
            layout: Layout::Single,
            class: Class::Log,
            leaves: vec![self.leaf(of.devices)],
        });
        std::iter::once(data).chain(log).collect()
    }

    async fn found(&self) -> FoundPool {
        let mut candidates = Vec::new();
        for device in &self.0 {
            candidates.extend(Candidate::examine(Arc::clone(device) as Arc<dyn Device>).await);
        }
        group(candidates).remove(0)
    }

    async fn import(&self, of: &Combination, seed: u64) -> Arc<LivePool> {
        let options = ImportOptions { force: true, ..Default::default() };
        LivePool::import(&self.found().await, &options, of.surroundings(seed))
            .await
            .expect("it opens for writing")
    }

    /// All blocks can be read, and the space maps know of each.
    async fn verify(&self) {
        let pool = import(&self.found().await, &ImportOptions::read_only()).await.expect("it opens");
        let report = verify::verify(&pool, VerifyOptions::default(), &verify::Progress::default())
            .expect("it is verified");
        assert!(report.is_clean(), "{:?} {:?}", report.errors, report.space);
    }

    fn judge(&self) {
        let folder = tempfile::tempdir().expect("a folder");
        for (number, device) in self.0.iter().enumerate() {
            std::fs::write(folder.path().join(PathBuf::from(format!("disk{number}"))), device.content())
                .expect("it is written");
        }
        if let Some(complaint) = testkit::oracle::complaint(folder.path(), POOL) {
            panic!("{complaint}");
        }
    }
}

async fn open(pool: &Arc<LivePool>, of: &Combination) -> Place {
    let id = objset_of(pool, "data").await.expect("it is there");
    let dataset = pool.dataset(id).await.expect("it opens");
    dataset.zil.set_sync_mode(if of.always { SyncMode::Always } else { SyncMode::Standard });
    if of.kind == Kind::Volume {
        let volume = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.expect("it opens");
        volume.set_room(dataset.room.clone());
        return Place::Volume(volume);
    }
    let zpl = LiveZpl::open(pool.txgs(), &dataset.objset, &dataset.zil, ZplOptions::default())
        .await
        .expect("it opens");
    zpl.set_room(dataset.room.clone());
    zpl.set_record_size(of.block as u32);
    if of.kind == Kind::Files {
        return Place::Files(zpl);
    }
    let root = zpl.zpl().root();
    let file = match zpl.lookup(root, b"file").await.expect("it can be looked up") {
        Some(file) => file,
        None => committing(pool, zpl.create(root, b"file", &FILE)).await.expect("it is made"),
    };
    Place::File(zpl, file)
}

/// A change, tried again while there may be more room.
async fn with_commits<F: Future<Output = Result<()>>>(
    pool: &Arc<LivePool>,
    change: impl Fn() -> F,
) -> Result<()> {
    let changed = committing(pool, with_room(pool.txgs(), change)).await;
    if let Some(error) = pool.txgs().stopped() {
        panic!("the pool stopped: {error}");
    }
    match changed {
        Err(error) if !matches!(error, Error::NoSpace(_)) => panic!("{error}"),
        changed => changed,
    }
}

async fn commit(pool: &Arc<LivePool>) {
    pool.sync().await.expect("what was accepted is written");
}

/// One life of a pool after the other.
struct Run<'a> {
    of: Combination,
    rng: Rng,
    pool: Arc<LivePool>,
    target: Target<'a>,
    /// Slots that there are.
    slots: u64,
}

impl Run<'_> {
    /// Writes a slot. False when there is no room.
    async fn write(&mut self, slot: u64) -> bool {
        let stable = self.of.always || self.rng.once_in(self.of.stable_once_in);
        let number = self.target.next();
        let target = &self.target;
        let written = with_commits(&self.pool, || target.write(slot, number, stable)).await.is_ok();
        if written {
            self.target.wrote(slot, number, stable);
        }
        written
    }

    /// Writes what was not written before until there is no room. Gives how many slots that was.
    async fn fill(&mut self) -> u64 {
        let mut filled = 0;
        let used = self.target.used();
        let free = (0..self.slots).filter(|slot| used.binary_search(slot).is_err());
        for slot in free {
            if !self.write(slot).await {
                return filled;
            }
            filled += 1;
        }
        panic!("{filled} slots did not fill the pool");
    }

    /// Writes over what is there, where there is room.
    async fn write_over(&mut self, times: u64) -> u64 {
        let used = self.target.used();
        let mut written = 0;
        for _ in 0..times {
            let Some(slot) = self.rng.pick(&used).copied() else { break };
            written += u64::from(self.write(slot).await);
        }
        written
    }

    async fn remove_half(&mut self) -> usize {
        let mut removed = 0;
        for slot in self.target.used() {
            if self.rng.once_in(2) {
                let target = &self.target;
                let done = with_commits(&self.pool, || target.remove(slot)).await;
                done.expect("what is full can be emptied");
                self.target.removed(slot);
                removed += 1;
            }
        }
        removed
    }
}

/// A volume of small blocks fills the pool, and every other block of it is given back.
async fn fragment(pool: &Arc<LivePool>, of: &Combination, noise: &Noise) {
    let block = 1u64 << of.ashift.max(12);
    let new = NewDataset {
        name: format!("{POOL}/pieces"),
        contents: NewContents::Volume { size: 4096 * MIB, sparse: true },
        properties: vec![("volblocksize".into(), block.to_string()), ("compression".into(), "off".into())],
    };
    let create = pool.change(move |s| async move { edit::create(&s, &new).await });
    let id = committing(pool, create).await.expect("it is made");
    let dataset = pool.dataset(id).await.expect("it opens");
    let volume = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.expect("it opens");
    volume.set_room(dataset.room.clone());
    let target = Target::new(Place::Volume(volume), 64 * block, false, noise);
    let mut filled = 0;
    while with_commits(pool, || target.write(filled, filled + 1, false)).await.is_ok() {
        filled += 1;
    }
    let Some(Place::Volume(volume)) = &target.place else { return };
    for pair in 0..filled * 32 {
        with_commits(pool, || volume.trim(pair * 2 * block, block, false)).await.expect("it is given back");
    }
    for _ in 0..3 {
        commit(pool).await;
    }
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let of = Combination::random(&mut rng);
    println!("CENOTE_FILL_SEED={seed}: {of:?}");
    let noise = Noise::new(&mut rng);
    let disks = Disks::new(&of);
    let disks = block_on(async {
        let pool = LivePool::create(new_pool(disks.tops(&of), of.ashift), of.surroundings(seed)).await;
        let pool = pool.expect("it is made");
        let whole = of.device_bytes * of.devices as u64;
        let size = 4 * whole.next_multiple_of(of.slot_bytes.max(of.block));
        let new = of.new_dataset(size);
        let create = pool.change(move |s| async move { edit::create(&s, &new).await });
        committing(&pool, create).await.expect("it is made");
        if of.fragmented {
            fragment(&pool, &of, &noise).await;
        }
        let target = Target::new(open(&pool, &of).await, of.slot_bytes, of.is_compressible, &noise);
        let mut run = Run { of, rng, pool, target, slots: size / of.slot_bytes };
        let filled = run.fill().await;
        commit(&run.pool).await;
        let allocator = run.pool.allocator();
        let used = allocator.space(Class::Normal).deflated_allocated_bytes;
        let percent = used * 100 / allocator.usable_bytes();
        println!("  full at {percent} percent, with {filled} slots");
        assert!(percent >= LEAST_FULL_PERCENT, "full at {percent} percent");
        // Some of this is in the groups under way, and in the log.
        run.write_over(filled.min(CHANGES)).await;

        let Run { rng, pool, mut target, slots, .. } = run;
        target.place = None;
        // It is not closed: the devices keep what they were given.
        drop(pool);
        let pool = disks.import(&of, seed + 1).await;
        target.place = Some(open(&pool, &of).await);
        target.check().await;
        let mut run = Run { of, rng, pool, target, slots };
        run.write_over(filled.min(CHANGES)).await;
        run.fill().await;
        commit(&run.pool).await;

        let removed = run.remove_half().await;
        for _ in 0..3 {
            commit(&run.pool).await;
        }
        let again = run.fill().await;
        assert!(
            again >= removed as u64 / 3,
            "{removed} of {filled} slots were removed, {again} fitted afterwards"
        );
        commit(&run.pool).await;
        run.target.flushed();
        run.target.check().await;
        let Run { pool, target, .. } = run;
        drop(target);
        committing(&pool, pool.close(PoolState::Exported)).await.expect("it is exported");
        drop(pool);
        disks.verify().await;
        disks
    });
    if seed.is_multiple_of(JUDGED) {
        disks.judge();
    }
}

#[test]
fn pools_of_every_kind_are_full_without_stopping() {
    let given = |name: &str| std::env::var(name).ok()?.parse().ok();
    let seed: Option<u64> = given("CENOTE_FILL_SEED");
    let first = seed.unwrap_or(FIRST_SEED);
    let combinations =
        given("CENOTE_FILL_COMBINATIONS").unwrap_or(if seed.is_some() { 1 } else { COMBINATIONS });
    for seed in first..first + combinations {
        run(seed);
    }
    println!("{combinations} combinations, none stopped");
}
