//! Power cuts while a pool heals: scrubs of damaged devices, resilvers, and devices that are attached,
//! detached, replaced and spared, with writes beside all of it.
//!
//! # The idea
//! A story is a pool to which a few of these things happen one after the other. It runs with the pool's own
//! threads, so a seed names the things that happen and not the order of every write. Each write of a slot is
//! one block and stable, and its place in the log is known; so at every point of the log it is known which
//! contents a slot may have.
//!
//! At many points the pool is imported as a power cut could have left it. It must hold what was promised,
//! have every device back, finish the resilver that was under way, take writes, and have nothing to repair
//! after a scrub. On some states the power fails again while all that happens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, IoBuf};
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::inject::{ALWAYS, DeviceError, Fault, Operation};
use engine::jobs::{Host, JobState};
use engine::pool::live::{Auxiliary, JobKey, Layout, LivePool, NewLeaf, NewTop, ScrubRange};
use engine::pool::status::{Progress, Scan};
use engine::scan::ScanLimits;
use engine::vdev::topology::Purpose;
use engine::vdev::{Class, Kind, State, Vdev};
use engine::zvol::LiveZvol;
use ondisk::Guid;
use ondisk::vdev_config::PoolState;
use testkit::Rng;
use testkit::crash::{Disk, Player, Recorder, RecordingDevice};

use super::judge::{Care, verify_blocks, zdb};
use super::support::{self, POOL, new_pool, objset_of};
use super::{fail, pools};

const MIB: u64 = 1 << 20;
/// The smallest that a draid vdev may have.
const DISK_BYTES: u64 = 128 * MIB;
pub const SLOT_BYTES: u64 = 16 << 10;
pub const SLOTS: u64 = 96;
/// Devices beside those of the first layout.
const MORE: usize = 3;
/// Things that happen in a story.
const DEEDS: usize = 3;
/// Points at which each of them is looked at.
const POINTS: usize = 10;
/// How long a resilver may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Layouts, and how many devices they begin with.
const LAYOUTS: [(Layout, usize); 5] = [
    (Layout::Mirror, 2),
    (Layout::Raidz { nparity: 1 }, 3),
    (Layout::Single, 1),
    (Layout::Raidz { nparity: 2 }, 4),
    (Layout::Draid { nparity: 1, ndata: 2, nspares: 0 }, 4),
];

/// Something that happens to the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    /// A device rots, and is scrubbed.
    Scrub,
    /// A device is away for a while.
    Away,
    /// A device is replaced.
    Replace,
    /// A device is attached, resilvered, and the one beside it detached.
    AttachAndDetach,
    /// A device fails, a spare takes its place, and the device comes back.
    Spare,
    /// The same, and the spare stays for good.
    SpareForGood,
}

/// A write of a slot.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    pub slot: u64,
    pub version: u64,
    pub begun: usize,
    /// When it was promised; not yet if the log ends before.
    pub promised: usize,
}

/// What happened.
struct Story {
    seed: u64,
    recorder: Recorder,
    devices: Vec<Arc<RecordingDevice>>,
    /// Devices that are in no vdev.
    free: Vec<usize>,
    pool: Arc<LivePool>,
    volume: Arc<LiveZvol>,
    writes: Vec<Written>,
    deeds: Vec<Deed>,
    rng: Rng,
}

/// How much was tried.
#[derive(Debug, Default)]
pub struct Tally {
    pub stories: usize,
    pub states: usize,
    second_cuts: usize,
    asked_zdb: usize,
    deeds: BTreeMap<Deed, usize>,
}

fn path(number: usize) -> PathBuf {
    pools::device_path(number)
}

pub fn content(slot: u64, version: u64) -> Vec<u8> {
    let mut rng = Rng::new(slot << 32 | version);
    (0..SLOT_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

fn leaves(pool: &LivePool) -> Vec<&Vdev> {
    pool.pool().vdevs().leaves().collect()
}

fn leaf_at(pool: &LivePool, number: usize) -> Option<Guid> {
    let name = path(number);
    leaves(pool).into_iter().find(|leaf| Path::new(&leaf.name) == name).map(|leaf| leaf.guid)
}

fn is_healthy(pool: &LivePool) -> bool {
    leaves(pool).iter().all(|leaf| leaf.status().state == State::Healthy && leaf.missing_txgs.is_empty())
}

fn is_scanning(pool: &LivePool) -> bool {
    let is_due = [JobKey::Scan, JobKey::LookForResilver, JobKey::DetachResilvered]
        .iter()
        .any(|key| pool.jobs().state_of(key) == Some(JobState::Active));
    is_due || pool.scan_status().is_some_and(|scan| scan.state == Progress::Running)
}

fn few_blocks_at_a_time() -> ScanLimits {
    ScanLimits { memory_bytes: 8 << 10, ..ScanLimits::default() }
}

impl Story {
    async fn begin(seed: u64) -> Self {
        let (layout, count) = LAYOUTS[seed as usize % LAYOUTS.len()];
        let recorder = Recorder::new(seed);
        let devices: Vec<_> =
            (0..count + MORE).map(|number| recorder.device(path(number), Disk::new(DISK_BYTES))).collect();
        let leaves = (0..count).map(|number| new_leaf(&devices, number)).collect();
        let new = new_pool(vec![NewTop { layout, class: Class::Normal, leaves }], 12);
        let pool = LivePool::create(new, support::surroundings(seed)).await.unwrap();
        pool.start().unwrap();
        pool.set_scan_limits(few_blocks_at_a_time());
        let new = NewDataset {
            name: format!("{POOL}/vol"),
            contents: NewContents::Volume { size: SLOTS * SLOT_BYTES, sparse: true },
            properties: vec![("compression".into(), "off".into())],
        };
        let id = pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
        let volume = pool.volume(id).await.unwrap();
        let free = (count..count + MORE).collect();
        let rng = Rng::new(seed ^ 0x4ea1);
        let (writes, deeds) = Default::default();
        let mut story = Self { seed, recorder, devices, free, pool, volume, writes, deeds, rng };
        for slot in 0..SLOTS {
            story.write(slot).await;
        }
        story.commit().await;
        story
    }

    async fn commit(&self) {
        self.pool.change(|_| async { Ok(()) }).await.unwrap();
    }

    /// Writes a slot, and returns when that is promised.
    async fn write(&mut self, slot: u64) {
        let version = self.writes.len() as u64;
        let begun = self.recorder.position();
        let bytes = content(slot, version);
        self.volume.write_at(slot * SLOT_BYTES, &bytes, true).await.unwrap();
        self.writes.push(Written { slot, version, begun, promised: self.recorder.position() });
    }

    async fn write_some(&mut self) {
        let slot = self.rng.below(SLOTS);
        self.write(slot).await;
    }

    /// Writes until nothing is scanned any more and every device has everything.
    async fn write_while_it_heals(&mut self) {
        let start = Instant::now();
        loop {
            self.write_some().await;
            let mut vdevs = self.pool.pool().vdevs().tops.iter().flat_map(Vdev::walk);
            if !is_scanning(&self.pool) && !vdevs.any(|vdev| matches!(vdev.kind, Kind::Replacing)) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "a scan does not end: {:?}", self.pool.scan_status());
        }
    }

    fn in_use(&self) -> Vec<usize> {
        (0..self.devices.len()).filter(|number| leaf_at(&self.pool, *number).is_some()).collect()
    }

    /// Spoils a part of what a device holds.
    async fn rot(&mut self, number: usize) {
        let disk = self.recorder.disks().swap_remove(number);
        let mut sector = [0; 4096];
        for offset in (4 * MIB..DISK_BYTES - MIB).step_by(sector.len()) {
            disk.read(offset, &mut sector);
            if sector.iter().any(|byte| *byte != 0) && self.rng.once_in(3) {
                let garbage: Vec<u8> = sector.iter().map(|byte| byte ^ 0x5a).collect();
                self.devices[number].write(offset, IoBuf::from(&garbage[..])).await.unwrap();
            }
        }
        self.pool.flush_cache();
    }

    /// A fault happens until the pool has given the device up.
    async fn suffers(&mut self, leaf: Guid, fault: Fault) {
        self.pool.inject(fault, ALWAYS).unwrap();
        while self.pool.pool().vdevs().find(leaf).is_some_and(|leaf| leaf.status().is_readable()) {
            self.write_some().await;
            self.commit().await;
        }
    }

    /// What can happen now.
    fn choices(&self) -> Vec<Deed> {
        let top = &self.pool.pool().vdevs().tops[0];
        let has_parity = matches!(top.kind, Kind::Draid(_) | Kind::Raidz(_));
        let has_copies = self.in_use().len() > 1;
        let mut choices = Vec::new();
        if has_copies {
            choices.extend([Deed::Scrub, Deed::Away]);
        }
        if !self.free.is_empty() {
            choices.push(Deed::Replace);
            if !has_parity {
                choices.push(Deed::AttachAndDetach);
            }
            if has_copies {
                choices.extend([Deed::Spare, Deed::SpareForGood]);
            }
        }
        choices
    }

    async fn happens(&mut self, deed: Deed) {
        let in_use = self.in_use();
        let number = in_use[self.rng.index(in_use.len())];
        let leaf = leaf_at(&self.pool, number).unwrap();
        match deed {
            Deed::Scrub => {
                self.rot(number).await;
                self.pool.scrub(ScrubRange::default()).await.unwrap();
                self.write_some().await;
                if self.rng.once_in(3) && self.pool.pause_scrub().await.is_ok() && self.is_scrubbing() {
                    self.write_some().await;
                    self.pool.scrub(ScrubRange::default()).await.unwrap();
                }
            }
            Deed::Away => {
                self.suffers(leaf, Fault::Gone { leaf: leaf.get() }).await;
                for _ in 0..12 {
                    self.write_some().await;
                }
                self.commit().await;
                self.pool.clear_injections(None);
                self.pool.online(leaf).await.unwrap();
            }
            Deed::Replace | Deed::AttachAndDetach => {
                let new = self.free.remove(0);
                let purpose = if deed == Deed::Replace { Purpose::Replace } else { Purpose::Mirror };
                self.pool.attach(leaf, new_leaf(&self.devices, new), purpose, None).await.unwrap();
                self.write_while_it_heals().await;
                if deed == Deed::AttachAndDetach {
                    self.pool.detach(leaf).await.unwrap();
                }
            }
            Deed::Spare | Deed::SpareForGood => {
                let new = self.free.remove(0);
                let spares = vec![new_leaf(&self.devices, new)];
                self.pool.add_auxiliary(Auxiliary::Spares, spares).await.unwrap();
                let fails = |operation| {
                    let error = DeviceError::Io;
                    Fault::Device { leaf: leaf.get(), error, operation, label: None }
                };
                self.pool.inject(fails(Operation::Probe), ALWAYS).unwrap();
                self.suffers(leaf, fails(Operation::All)).await;
                self.pool.clear_injections(None);
                assert!(self.pool.kick_in_spare(leaf).await.unwrap().is_some());
                self.write_while_it_heals().await;
                match deed {
                    Deed::Spare => self.pool.clear(None).await.unwrap(),
                    _ => self.pool.detach(leaf).await.unwrap(),
                }
            }
        }
        self.write_while_it_heals().await;
        self.commit().await;
        self.write_while_it_heals().await;
        if deed == Deed::Scrub {
            // Reads of the groups may have met what had rotted before the scrub did: ten of them, and the
            // device is degraded until a user forgets its errors.
            self.pool.clear(None).await.unwrap();
            self.write_while_it_heals().await;
        }
        let states = states(&self.pool);
        assert!(is_healthy(&self.pool), "seed {}: {deed:?} leaves {states:?}", self.seed);
    }

    fn is_scrubbing(&self) -> bool {
        self.pool.scan_status().is_some_and(|scan| scan.state == Progress::Running)
    }
}

fn new_leaf(devices: &[Arc<RecordingDevice>], number: usize) -> NewLeaf {
    let device = Arc::clone(&devices[number]) as Arc<dyn Device>;
    NewLeaf { device, path: path(number), is_file: false, whole_disk: false }
}

/// What each slot may hold at a point of the log.
fn check(writes: &[Written], point: usize, slot: u64, found: &[u8]) -> Result<(), String> {
    let of_slot = || writes.iter().filter(|write| write.slot == slot);
    let least = of_slot().filter(|write| write.promised <= point).map(|write| write.version).max();
    let mut allowed = of_slot().filter(|write| write.begun <= point && Some(write.version) >= least);
    let is_right = allowed.any(|write| content(slot, write.version) == found)
        || (least.is_none() && found.iter().all(|byte| *byte == 0));
    if is_right {
        return Ok(());
    }
    let is = of_slot().find(|write| content(slot, write.version) == found).map(|write| write.version);
    Err(format!("slot {slot} holds version {is:?}; at least {least:?} was promised"))
}

pub async fn check_all(writes: &[Written], point: usize, volume: &LiveZvol) -> Result<(), String> {
    let mut found = vec![0; SLOT_BYTES as usize];
    for slot in 0..SLOTS {
        let read = volume.read_at(slot * SLOT_BYTES, &mut found).await;
        read.map_err(|error| format!("slot {slot}: {error}"))?;
        check(writes, point, slot, &found)?;
    }
    Ok(())
}

/// Waits until no scan is under way.
async fn rest(pool: &Arc<LivePool>) -> Result<Option<Scan>, String> {
    let start = Instant::now();
    while is_scanning(pool) {
        pool.wait_for_jobs(|key, state| {
            matches!(key, JobKey::Scan | JobKey::LookForResilver | JobKey::DetachResilvered)
                && state == JobState::Active
        })
        .await;
        if start.elapsed() > PATIENCE {
            return Err(format!("a scan does not end: {:?}", pool.scan_status()));
        }
        std::thread::yield_now();
    }
    Ok(pool.scan_status())
}

/// Takes every device back, and waits until each has everything.
async fn heal(pool: &Arc<LivePool>) -> Result<(), String> {
    let start = Instant::now();
    // A paused scrub waits for a user.
    let _ = pool.scrub(ScrubRange::default()).await;
    loop {
        rest(pool).await?;
        if is_healthy(pool) {
            return Ok(());
        }
        pool.clear(None).await.map_err(|error| format!("clear: {error}"))?;
        let away: Vec<Guid> = leaves(pool)
            .into_iter()
            .filter(|leaf| leaf.status().state == State::Offline)
            .map(|leaf| leaf.guid)
            .collect();
        for leaf in away {
            pool.online(leaf).await.map_err(|error| format!("online: {error}"))?;
        }
        pool.change(|_| async { Ok(()) }).await.map_err(|error| format!("a group: {error}"))?;
        if start.elapsed() > PATIENCE {
            return Err(format!("it does not heal: {:?}", states(pool)));
        }
    }
}

fn states(pool: &LivePool) -> Vec<String> {
    let word = |leaf: &Vdev| {
        format!("{} {:?} lacks {:?}", leaf.name, leaf.status(), leaf.missing_txgs.ranges().ranges())
    };
    leaves(pool).into_iter().map(word).collect()
}

/// A scrub, from its beginning to its end.
pub async fn scrubbed(pool: &Arc<LivePool>) -> Result<Scan, String> {
    pool.scrub(ScrubRange::default()).await.map_err(|error| format!("scrub: {error}"))?;
    rest(pool).await?.ok_or_else(|| "there was no scrub".to_owned())
}

/// Imports what a power cut at `point` left, has it heal, and compares it with what was promised. Returns
/// what was recorded meanwhile, up to the first new write.
fn judge(writes: &[Written], point: usize, disks: Vec<Disk>, seed: u64) -> Result<(Recorder, usize), String> {
    let recorder = Recorder::new(seed);
    let until = device::block_on(async {
        let pool = pools::import(&recorder, disks, &[], seed).await?;
        let volume = pool.volume(objset_of(&pool, "vol").await.map_err(|error| error.to_string())?).await;
        let volume = volume.map_err(|error| format!("the volume: {error}"))?;
        check_all(writes, point, &volume).await.map_err(|error| format!("after the import: {error}"))?;
        pool.start().map_err(|error| format!("start: {error}"))?;
        pool.set_scan_limits(few_blocks_at_a_time());
        heal(&pool).await?;
        pool.flush_cache();
        check_all(writes, point, &volume).await.map_err(|error| format!("after it healed: {error}"))?;
        let until = recorder.position();
        volume.write_at(0, &content(0, u64::MAX), true).await.map_err(|error| format!("a write: {error}"))?;
        // The first one may find what had rotted before the power failed.
        let first = scrubbed(&pool).await?;
        let second = scrubbed(&pool).await?;
        if first.errors > 0 || (second.errors, second.processed) != (0, 0) {
            return Err(format!("scrubs: {first:?}, {second:?}"));
        }
        drop(volume);
        pool.close(PoolState::Exported).await.map_err(|error| format!("export: {error}"))?;
        Ok::<_, String>(until)
    })?;
    Ok((recorder, until))
}

/// Tells a story and looks at what power cuts leave of it, until it is over.
pub fn tell(seed: u64, tally: &mut Tally, is_over: &impl Fn() -> bool) {
    let mut story = device::block_on(Story::begin(seed));
    tally.stories += 1;
    for _ in 0..DEEDS {
        let choices = story.choices();
        let deed = choices[story.rng.index(choices.len())];
        let start = story.recorder.position();
        story.deeds.push(deed);
        device::block_on(story.happens(deed));
        *tally.deeds.entry(deed).or_default() += 1;
        try_points(&mut story, start, tally, is_over);
        if is_over() {
            break;
        }
    }
    let Story { pool, volume, .. } = story;
    drop(volume);
    device::block_on(pool.close(PoolState::Exported)).unwrap();
}

fn try_points(story: &mut Story, start: usize, tally: &mut Tally, is_over: &impl Fn() -> bool) {
    let mut player = Player::new(&story.recorder);
    let events = player.end() - start;
    for number in 0..POINTS {
        let from = start + events * number / POINTS;
        let point = from + story.rng.index((events / POINTS).max(1));
        player.advance(point);
        let seed = story.rng.next_u64();
        let mut rng = Rng::new(seed);
        let disks = player.disks_after_power_cut(&mut rng);
        let where_from =
            format!("CENOTE_CRASH_SEED={}, {:?}, point {point}, state {seed}", story.seed, story.deeds);
        let (recorder, until) = tried(&story.writes, point, disks, seed, &where_from);
        tally.states += 1;
        if rng.once_in(4) {
            let after = recorder.disks();
            let asks_zdb = rng.once_in(8);
            tally.asked_zdb += usize::from(asks_zdb);
            if let Err(error) = verified(&after, seed, asks_zdb) {
                fail(&after, &where_from, &error);
            }
        }
        if rng.once_in(3) {
            let mut player = Player::new(&recorder);
            let again = rng.index(until + 1);
            player.advance(again);
            let disks = player.disks_after_power_cut(&mut rng);
            let where_from = format!("{where_from}, cut again at {again}");
            tried(&story.writes, point, disks, seed ^ 2, &where_from);
            tally.states += 1;
            tally.second_cuts += 1;
        }
        if is_over() {
            return;
        }
    }
}

fn tried(
    writes: &[Written],
    point: usize,
    disks: Vec<Disk>,
    seed: u64,
    where_from: &str,
) -> (Recorder, usize) {
    match judge(writes, point, disks.clone(), seed) {
        Ok(recorded) => recorded,
        Err(error) => fail(&disks, where_from, &error),
    }
}

fn verified(disks: &[Disk], seed: u64, asks_zdb: bool) -> Result<(), String> {
    if asks_zdb {
        zdb(disks, &[])?;
    }
    verify_blocks(disks.to_vec(), seed, &Care::default())
}
