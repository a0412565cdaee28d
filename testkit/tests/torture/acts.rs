//! The acts: what is done to a pool under load, and how it recovers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::block_on;
use device::simulated::Fault;
use engine::dsl::Dsl;
use engine::pool::import::{ImportOptions, import, select};
use engine::pool::live::{LivePool, NewLeaf, ScrubRange, TakeOffline};
use engine::pool::status::{Progress as ScanState, ScanKind};
use engine::pool::verify::{Depth, Progress, VerifyOptions, verify};
use engine::pool::{discovery, status};
use engine::vdev::topology::Purpose;
use engine::vdev::{Aux, Kind, State, Vdev};
use ondisk::Guid;
use testkit::Rng;

use super::harm::{Harm, Hurt};
use super::layouts::Shape;
use super::load::{Lane, Load};
use super::rig::Rig;
use super::support::POOL;

/// Clients, and the sectors of each.
const LANES: u64 = 4;
const LANE_SECTORS: u64 = 1024;
/// So many leaves a pool gets by attaching.
const MOST_LEAVES: usize = 12;
/// How long anything may take before it is taken for stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// A scrub that runs.
struct Scrub {
    /// The round in which it began.
    began: usize,
    /// The devices that were there since then: all that is wrong on them will be right.
    present: BTreeSet<PathBuf>,
}

/// A pool under torture.
pub struct Torture {
    rig: Rig,
    load: Option<Load>,
    harm: Harm,
    /// When devices were corrupted last, as a number of the round.
    corrupted: BTreeMap<PathBuf, usize>,
    /// The scrub that runs, if it began here.
    scrub: Option<Scrub>,
    round: usize,
    steps: u64,
    log: Vec<String>,
}

/// The acts, with how often each is tried.
const ACTS: &[(&str, u64)] = &[
    ("corrupt", 6),
    ("pull", 4),
    ("return", 5),
    ("offline", 3),
    ("online", 4),
    ("flaky", 2),
    ("slow", 2),
    ("mend", 3),
    ("crash", 2),
    ("export", 1),
    ("lock", 1),
    ("attach", 2),
    ("detach", 2),
    ("replace", 3),
    ("grow", 1),
    ("renew", 1),
    ("spare", 3),
    ("scrub", 5),
    ("cache", 4),
    ("pause", 1),
    ("cancel", 1),
    ("settle", 3),
    ("wait", 3),
];

impl Torture {
    /// A new pool under load.
    pub fn begin(shape: &Shape, seed: u64) -> Self {
        let rig = Rig::create(shape, seed, LANES * LANE_SECTORS);
        let lanes = (0..LANES).map(|id| Lane::new(id, id * LANE_SECTORS, LANE_SECTORS, seed)).collect();
        let load = Load::start(&rig.volumes(), lanes);
        Self {
            rig,
            load: Some(load),
            harm: Harm::default(),
            corrupted: BTreeMap::new(),
            scrub: None,
            round: 0,
            steps: 0,
            log: Vec::new(),
        }
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<LivePool> {
        self.rig.pool()
    }

    /// A new file, as a device that the pool may get.
    pub fn new_disk(&mut self, size_bytes: u64) -> NewLeaf {
        self.rig.new_disk(size_bytes)
    }

    /// Makes a device fail, if it can be made to.
    pub fn inject(&self, path: &Path, fault: Fault) {
        self.rig.inject(path, fault);
    }

    /// Takes all faults of a device away.
    pub fn heal(&self, path: &Path) {
        self.rig.heal(path);
    }

    /// What was done so far.
    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// The devices, as the pool and the torturer know them.
    pub fn describe(&self) -> String {
        fn of(vdev: &Vdev, harm: &Harm, depth: usize, text: &mut String) {
            let missing = vdev.missing_txgs.ranges();
            let path = Path::new(&vdev.name);
            let _ = writeln!(
                text,
                "{:depth$}{} {} {:?} misses {:?} {:?}",
                "",
                vdev.type_name(),
                name(path),
                vdev.status(),
                missing.ranges(),
                harm.of(path)
            );
            vdev.children.iter().for_each(|child| of(child, harm, depth + 2, text));
        }
        let mut text = String::new();
        if let Some(pool) = self.rig.open_pool() {
            pool.pool().vdevs().tops.iter().for_each(|top| of(top, &self.harm, 2, &mut text));
            let _ = writeln!(text, "  {:?}", pool.scan_status());
        }
        text
    }

    /// Steps of all clients.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Keeps the devices.
    pub fn keep(self) -> PathBuf {
        self.rig.keep()
    }

    /// Does the next act. Gives its name.
    pub fn round(&mut self, rng: &mut Rng) -> Result<&'static str, String> {
        self.round += 1;
        self.look_at_scan()?;
        let act = loop {
            let act = choose(rng);
            if let Some(what) = self.act(act, rng)? {
                self.log.push(format!("{}: {act} {what}", self.round));
                break act;
            }
        };
        std::thread::sleep(Duration::from_millis(rng.below(40)));
        match self.load.as_ref().and_then(Load::trouble) {
            Some(trouble) => Err(trouble),
            None => Ok(act),
        }
    }

    /// Does an act, if it can be done now. Gives to what.
    fn act(&mut self, act: &str, rng: &mut Rng) -> Result<Option<String>, String> {
        let done = match act {
            "corrupt" => self.corrupt(rng),
            "pull" => self.pull(rng),
            "return" => self.give_back(rng),
            "offline" => self.take_offline(rng)?,
            "online" => self.bring_online(rng)?,
            "flaky" => self.make_flaky(rng),
            "slow" => self.make_slow(rng),
            "mend" => self.mend()?,
            "crash" => self.crash(rng)?,
            "export" => self.export()?,
            "lock" => self.lock()?,
            "attach" => self.attach(rng)?,
            "detach" => self.detach(rng)?,
            "replace" => self.replace(rng, self.rig.device_bytes())?,
            "grow" => self.replace(rng, self.rig.device_bytes() * 5 / 4)?,
            "renew" => self.renew(rng)?,
            "spare" => self.take_spare(rng)?,
            "scrub" => self.begin_scrub()?,
            "pause" => self.pause_scrub()?,
            "cancel" => self.cancel_scrub()?,
            "settle" => self.settle()?,
            "cache" => self.trouble_cache(rng)?,
            _ => {
                std::thread::sleep(Duration::from_millis(rng.below(200)));
                Some(String::new())
            }
        };
        Ok(done)
    }

    /// A device is attached to another one: it may be read from when it has everything.
    fn attach(&mut self, rng: &mut Rng) -> Result<Option<String>, String> {
        let leaves = self.rig.leaves();
        if leaves.len() >= MOST_LEAVES {
            return Ok(None);
        }
        let Some((guid, path)) = rng.pick(&leaves).cloned() else { return Ok(None) };
        self.attach_to(guid, &path, self.rig.device_bytes(), Purpose::Mirror)
    }

    /// A device is replaced by a new one of this size, whether it works or not.
    fn replace(&mut self, rng: &mut Rng, bytes: u64) -> Result<Option<String>, String> {
        let leaves = self.rig.leaves();
        let Some((guid, path)) = rng.pick(&leaves).cloned() else { return Ok(None) };
        self.attach_to(guid, &path, bytes, Purpose::Replace)
    }

    fn attach_to(
        &mut self,
        guid: Guid,
        path: &Path,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<Option<String>, String> {
        let new = self.rig.new_disk(bytes);
        let to = new.path.clone();
        match block_on(self.rig.pool().attach(guid, new, purpose, None)) {
            Ok(_) => Ok(Some(format!("{} at {}", name(&to), name(path)))),
            Err(error) if is_refusal(&error) => {
                self.rig.forget(&to);
                Ok(None)
            }
            Err(error) => Err(format!("{purpose:?} {} at {}: {error}", name(&to), name(path))),
        }
    }

    /// A device that is not there is replaced by an empty one at its place.
    fn renew(&mut self, rng: &mut Rng) -> Result<Option<String>, String> {
        let offline = self.harm.with(Hurt::Offline);
        let Some(path) = rng.pick(&offline).cloned() else { return Ok(None) };
        let Some((guid, _)) = self.rig.leaves().into_iter().find(|(_, of)| *of == path) else {
            return Ok(None);
        };
        let new = self.rig.renewed_disk(&path);
        match block_on(self.rig.pool().attach(guid, new, Purpose::Replace, None)) {
            Ok(_) => {
                self.harm.remove(&path, Hurt::Offline);
                self.harm.remove(&path, Hurt::Corrupt);
                Ok(Some(name(&path)))
            }
            Err(error) if is_refusal(&error) => Ok(None),
            Err(error) => Err(format!("renew {}: {error}", name(&path))),
        }
    }

    fn detach(&mut self, rng: &mut Rng) -> Result<Option<String>, String> {
        // Not the last one with all data, as the torturer knows it.
        let Some((guid, path)) = self.victim(rng) else { return Ok(None) };
        match block_on(self.rig.pool().detach(guid)) {
            Ok(()) => {
                self.harm.forget(&path);
                Ok(Some(name(&path)))
            }
            Err(error) if is_refusal(&error) => Ok(None),
            Err(error) => Err(format!("detach {}: {error}", name(&path))),
        }
    }

    /// A hot spare is taken for a device that does not work, or for any.
    fn take_spare(&mut self, rng: &mut Rng) -> Result<Option<String>, String> {
        let leaves = self.rig.leaves();
        let Some((guid, path)) = rng.pick(&leaves).cloned() else { return Ok(None) };
        match block_on(self.rig.pool().kick_in_spare(guid)) {
            Ok(Some(_)) => Ok(Some(format!("for {}", name(&path)))),
            Ok(None) => Ok(None),
            Err(error) if is_refusal(&error) => Ok(None),
            Err(error) => Err(format!("a spare for {}: {error}", name(&path))),
        }
    }

    /// What became of the scrub.
    fn look_at_scan(&mut self) -> Result<(), String> {
        let Some(scrub) = &self.scrub else { return Ok(()) };
        let Some(scan) = self.rig.pool().scan_status() else { return Ok(()) };
        if scan.kind != ScanKind::Scrub || scan.state == ScanState::Canceled {
            self.scrub = None;
        } else if scan.state == ScanState::Finished {
            if scan.errors > 0 {
                return Err(format!("a scrub could not repair {} blocks", scan.errors));
            }
            for path in &scrub.present {
                if self.corrupted.get(path).is_some_and(|round| *round < scrub.began) {
                    self.corrupted.remove(path);
                    self.harm.remove(path, Hurt::Corrupt);
                }
            }
            self.scrub = None;
        }
        Ok(())
    }

    /// A device is not there for a time.
    fn goes_away(&mut self, path: &Path) {
        if let Some(scrub) = &mut self.scrub {
            scrub.present.remove(path);
        }
    }

    fn begin_scrub(&mut self) -> Result<Option<String>, String> {
        match block_on(self.rig.pool().scrub(ScrubRange::default())) {
            Ok(()) => {}
            Err(engine::Error::Busy(_)) => return Ok(None),
            Err(error) => return Err(format!("scrub: {error}")),
        }
        if self.scrub.is_some() {
            return Ok(Some("goes on".into()));
        }
        let away = [Hurt::Pulled, Hurt::Offline, Hurt::Flaky];
        let leaves = self.rig.leaves().into_iter().map(|(_, path)| path);
        let present = leaves.filter(|path| !away.iter().any(|hurt| self.harm.has(path, *hurt))).collect();
        self.scrub = Some(Scrub { began: self.round, present });
        Ok(Some(String::new()))
    }

    fn pause_scrub(&mut self) -> Result<Option<String>, String> {
        match block_on(self.rig.pool().pause_scrub()) {
            Ok(()) => Ok(Some(String::new())),
            Err(engine::Error::Busy(_)) => Ok(None),
            Err(error) => Err(format!("pause: {error}")),
        }
    }

    fn cancel_scrub(&mut self) -> Result<Option<String>, String> {
        match block_on(self.rig.pool().cancel_scan()) {
            Ok(()) => Ok(Some(String::new())),
            Err(engine::Error::Busy(_)) => Ok(None),
            Err(error) => Err(format!("cancel: {error}")),
        }
    }

    /// Waits until no scan runs.
    fn settle(&mut self) -> Result<Option<String>, String> {
        let pool = self.rig.pool();
        if pool.scan_status().is_some_and(|scan| scan.paused_time.is_some()) {
            return Ok(None);
        }
        until("a scan", || pool.scan_status().is_none_or(|scan| scan.state != ScanState::Running))?;
        self.look_at_scan()?;
        Ok(Some(String::new()))
    }

    /// A leaf that may be hurt without loss.
    fn victim(&self, rng: &mut Rng) -> Option<(Guid, PathBuf)> {
        let leaves = self.rig.leaves();
        let (guid, path) = rng.pick(&leaves)?.clone();
        // The old half of a device that was replaced by itself has no file any more.
        let may_be = path.exists() && self.harm.allows(self.rig.pool().pool().vdevs(), &path);
        may_be.then_some((guid, path))
    }

    fn corrupt(&mut self, rng: &mut Rng) -> Option<String> {
        let (_, path) = self.victim(rng)?;
        // Before: a client may read at once.
        self.harm.add(&path, Hurt::Corrupt);
        self.corrupted.insert(path.clone(), self.round);
        self.rig.corrupt(&path, rng, rng.clone().once_in(4)).ok()?;
        Some(name(&path))
    }

    fn pull(&mut self, rng: &mut Rng) -> Option<String> {
        let (_, path) = self.victim(rng)?;
        if self.harm.has(&path, Hurt::Pulled) || !self.rig.inject(&path, Fault::Missing) {
            return None;
        }
        self.harm.add(&path, Hurt::Pulled);
        self.goes_away(&path);
        Some(name(&path))
    }

    /// Notes which of the devices that were pulled the pool has found again: it may rely on them.
    fn note_found(&mut self) {
        for path in self.harm.with(Hurt::Pulled) {
            if self.rig.has_found(&path) {
                self.harm.remove(&path, Hurt::Pulled);
            }
        }
    }

    fn give_back(&mut self, rng: &mut Rng) -> Option<String> {
        let pulled = self.harm.with(Hurt::Pulled);
        let path = rng.pick(&pulled)?.clone();
        self.rig.heal(&path);
        self.harm.remove(&path, Hurt::Pulled);
        self.harm.remove(&path, Hurt::Flaky);
        // It looks for all that it lacks.
        block_on(self.rig.pool().reopen());
        self.note_found();
        Some(name(&path))
    }

    fn take_offline(&mut self, rng: &mut Rng) -> Result<Option<String>, String> {
        let Some((guid, path)) = self.victim(rng) else { return Ok(None) };
        if self.harm.has(&path, Hurt::Offline) || self.harm.has(&path, Hurt::Pulled) {
            return Ok(None);
        }
        let how = *rng.pick(&[TakeOffline::Persistently, TakeOffline::Temporarily]).unwrap();
        match block_on(self.rig.pool().offline(guid, how)) {
            Ok(()) => {
                self.harm.add(&path, Hurt::Offline);
                self.goes_away(&path);
                Ok(Some(name(&path)))
            }
            // The pool knows of less redundancy than the torturer: it may refuse.
            Err(engine::Error::Busy(_)) => Ok(None),
            Err(error) => Err(format!("offline {}: {error}", name(&path))),
        }
    }

    fn bring_online(&mut self, rng: &mut Rng) -> Result<Option<String>, String> {
        let offline = self.harm.with(Hurt::Offline);
        let Some(path) = rng.pick(&offline).cloned() else { return Ok(None) };
        self.online(&path)?;
        Ok(Some(name(&path)))
    }

    fn online(&mut self, path: &Path) -> Result<(), String> {
        let leaves = self.rig.leaves();
        if let Some((guid, _)) = leaves.iter().find(|(_, of)| of == path) {
            let status = block_on(self.rig.pool().online(*guid));
            let status = status.map_err(|error| format!("online {}: {error}", name(path)))?;
            if !status.is_readable() {
                return Err(format!("online {}: it is {}", name(path), status.state));
            }
        }
        self.harm.remove(path, Hurt::Offline);
        Ok(())
    }

    fn make_flaky(&mut self, rng: &mut Rng) -> Option<String> {
        let (_, path) = self.victim(rng)?;
        let one_in = 2 + rng.below(40);
        if !self.rig.inject(&path, Fault::Flaky { one_in }) {
            return None;
        }
        self.harm.add(&path, Hurt::Flaky);
        self.goes_away(&path);
        Some(format!("{}, one in {one_in}", name(&path)))
    }

    fn make_slow(&mut self, rng: &mut Rng) -> Option<String> {
        let leaves = self.rig.leaves();
        let (_, path) = rng.pick(&leaves)?;
        let delay_ns = 1_000_000 * (1 + rng.below(20));
        let range = 0..u64::MAX;
        self.rig.inject(path, Fault::Delay { range, delay_ns }).then(|| name(path))
    }

    /// Takes faults away, and lets the pool forget errors.
    fn mend(&mut self) -> Result<Option<String>, String> {
        for path in self.harm.with(Hurt::Flaky) {
            if !self.harm.has(&path, Hurt::Pulled) {
                self.rig.heal(&path);
                self.harm.remove(&path, Hurt::Flaky);
            }
        }
        block_on(self.rig.pool().clear(None)).map_err(|error| format!("clear: {error}"))?;
        Ok(Some(String::new()))
    }

    fn crash(&mut self, rng: &mut Rng) -> Result<Option<String>, String> {
        let Some(load) = self.load.take() else { return Ok(None) };
        load.expect_crash();
        self.note_found();
        self.rig.crash();
        let (lanes, steps) = load.end()?;
        self.steps += steps;
        let missing = self.missing(rng);
        missing.iter().for_each(|path| self.goes_away(path));
        self.reimport(lanes, &missing, true)?;
        Ok(Some(format!("without {:?}", missing.iter().map(|path| name(path)).collect::<Vec<_>>())))
    }

    fn export(&mut self) -> Result<Option<String>, String> {
        let Some(load) = self.load.take() else { return Ok(None) };
        let (lanes, steps) = load.end()?;
        self.steps += steps;
        self.note_found();
        let gone = self.harm.with(Hurt::Pulled);
        self.rig.export()?;
        self.reimport(lanes, &gone, false)?;
        Ok(Some(String::new()))
    }

    /// The key of the encrypted volume is unloaded and loaded again.
    fn lock(&mut self) -> Result<Option<String>, String> {
        let Some(load) = self.load.take() else { return Ok(None) };
        let (mut lanes, steps) = load.end()?;
        self.steps += steps;
        self.rig.lock()?;
        self.rig.unlock()?;
        let volumes = self.rig.volumes();
        lanes.iter_mut().try_for_each(|lane| lane.verify(&volumes, false))?;
        self.load = Some(Load::start(&volumes, lanes));
        Ok(Some(String::new()))
    }

    /// The devices that are not there at the next import: those that are pulled, as a person may have put
    /// them back meanwhile.
    fn missing(&mut self, rng: &mut Rng) -> Vec<PathBuf> {
        let mut missing = self.harm.with(Hurt::Pulled);
        missing.retain(|path| {
            let returns = rng.once_in(3);
            if returns {
                self.harm.remove(path, Hurt::Pulled);
            }
            !returns
        });
        missing
    }

    /// Imports the pool again and verifies everything. Faults of devices end with their handles, but those
    /// that are missing stay away.
    fn reimport(
        &mut self,
        mut lanes: Vec<Lane>,
        missing: &[PathBuf],
        after_crash: bool,
    ) -> Result<(), String> {
        self.rig.import(missing)?;
        for path in self.harm.with(Hurt::Flaky) {
            self.harm.remove(&path, Hurt::Flaky);
        }
        // A pool that was opened without a device, and then gets it back by its path.
        for path in self.harm.with(Hurt::Offline) {
            let is_offline = self
                .rig
                .pool()
                .pool()
                .vdevs()
                .leaves()
                .any(|leaf| Path::new(&leaf.name) == path && leaf.status().state == State::Offline);
            if !is_offline {
                self.harm.remove(&path, Hurt::Offline);
            }
        }
        let volumes = self.rig.volumes();
        for lane in &mut lanes {
            lane.verify(&volumes, after_crash)?;
        }
        self.load = Some(Load::start(&volumes, lanes));
        Ok(())
    }

    /// Gives everything back, and waits until the pool is whole.
    pub fn recover(&mut self) -> Result<(), String> {
        self.log.push("recovers".into());
        self.rig.heal_all();
        self.return_caches()?;
        for path in self.harm.with(Hurt::Pulled) {
            self.harm.remove(&path, Hurt::Pulled);
        }
        for path in self.harm.with(Hurt::Offline) {
            self.online(&path)?;
        }
        block_on(self.rig.pool().reopen());
        self.mend()?;
        // What is still not there was replaced by an empty device, which was detached.
        for (guid, path) in self.rig.leaves() {
            let is_lost = self
                .rig
                .pool()
                .pool()
                .vdevs()
                .find(guid)
                .is_some_and(|leaf| !leaf.status().is_readable() && leaf.status().aux != Aux::Spared);
            if is_lost {
                let bytes = self.rig.device_bytes() * 5 / 4;
                let replaced = self.attach_to(guid, &path, bytes, Purpose::Replace)?;
                self.log.push(format!("  replaces {}: {replaced:?}", name(&path)));
            }
        }
        let Some(load) = self.load.take() else { return Ok(()) };
        let (mut lanes, steps) = load.end()?;
        self.steps += steps;
        let volumes = self.rig.volumes();
        lanes.iter_mut().try_for_each(|lane| lane.verify(&volumes, false))?;
        let stale = || {
            let leaves = self.rig.pool().pool().vdevs().leaves();
            leaves.filter(|leaf| !leaf.missing_txgs.is_empty()).count()
        };
        let pool = Arc::clone(self.rig.pool());
        let is_replacing = || {
            let mut vdevs = pool.pool().vdevs().tops.iter().flat_map(|top| top.walk());
            vdevs.any(|vdev| matches!(vdev.kind, Kind::Replacing))
        };
        until("resilvers", || stale() == 0 && !is_scanning(&pool) && !is_replacing())?;
        if pool.scan_status().is_some_and(|scan| scan.paused_time.is_some()) {
            block_on(pool.cancel_scan()).map_err(|error| format!("cancel: {error}"))?;
        }
        // The first one may find damage, the second must not.
        for (number, may_repair) in [(1, true), (2, false)] {
            let scan = whole_scrub(&pool)?;
            let is_right = scan.kind == ScanKind::Scrub
                && scan.state == ScanState::Finished
                && scan.errors == 0
                && (may_repair || scan.processed == 0);
            if !is_right {
                return Err(format!("scrub {number} of the recovery: {scan:?}"));
            }
        }
        block_on(pool.clear(None)).map_err(|error| format!("clear: {error}"))?;
        let health = block_on(async {
            let dsl = Dsl::open(&pool.view()).await?;
            status::health(&dsl).await
        });
        let health = health.map_err(|error| format!("status: {error}"))?;
        match health.state == State::Healthy && health.error_count == 0 {
            true => Ok(()),
            false => Err(format!("the pool is {} and has {} errors", health.state, health.error_count)),
        }
    }

    /// Exports the pool, and judges it as a whole.
    pub fn judge(&mut self, zdb: bool) -> Result<(), String> {
        self.rig.export()?;
        self.rig.ivs().count()?;
        let folder = self.rig.folder();
        let options = VerifyOptions { threads: 2, depth: Depth::Everything, check_space: true };
        let report = block_on(async {
            let found = discovery::scan(&[folder]).await.map_err(|error| error.to_string())?;
            let found = select(found, POOL).map_err(|error| error.to_string())?;
            let pool =
                import(&found, &ImportOptions::read_only()).await.map_err(|error| error.to_string())?;
            verify(&pool, options, &Progress::default()).map_err(|error| format!("verify: {error}"))
        })?;
        let is_space_clean = report.space.as_ref().is_none_or(|space| space.is_clean());
        if report.unreadable_blocks + report.damaged_blocks > 0 || !is_space_clean {
            return Err(format!("verify: {:?} {:?}", report.errors, report.space));
        }
        match zdb.then(|| testkit::oracle::complaint(folder, POOL)).flatten() {
            Some(complaint) => Err(complaint),
            None => Ok(()),
        }
    }
}

/// Whether a scan goes on.
fn is_scanning(pool: &LivePool) -> bool {
    pool.scan_status().is_some_and(|scan| scan.state == ScanState::Running && scan.paused_time.is_none())
}

/// Scrubs the whole pool. Gives what came of it.
///
/// A pool begins scans by itself, such as the scrub that a spare waits for. One that is under way is waited
/// for first; when one began right after the scrub, the pool is scrubbed once more.
fn whole_scrub(pool: &Arc<LivePool>) -> Result<status::Scan, String> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        match block_on(pool.scrub(ScrubRange::default())) {
            Ok(()) => {}
            Err(engine::Error::Busy(_)) if is_scanning(pool) => {
                until("the pool's own scan", || !is_scanning(pool))?;
                continue;
            }
            // It ended just now.
            Err(engine::Error::Busy(_)) => continue,
            Err(error) => return Err(format!("scrub: {error}")),
        }
        until("a scrub", || !is_scanning(pool))?;
        match pool.scan_status() {
            Some(scan) if scan.state != ScanState::Running => return Ok(scan),
            _ => {}
        }
    }
    Err(format!("no whole scrub within {PATIENCE:?}: {:?}", pool.scan_status()))
}

/// Whether the pool refused an act, which is no failure; a device may be gone meanwhile, because it was
/// replaced.
pub fn is_refusal(error: &engine::Error) -> bool {
    use engine::Error::{Busy, Invalid, NotFound, Unsupported};
    matches!(error, Busy(_) | Invalid(_) | NotFound(_) | Unsupported(_))
}

fn choose(rng: &mut Rng) -> &'static str {
    let all: u64 = ACTS.iter().map(|(_, weight)| weight).sum();
    let mut left = rng.below(all);
    for (act, weight) in ACTS {
        if left < *weight {
            return act;
        }
        left -= weight;
    }
    "wait"
}

/// Waits until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > PATIENCE {
            return Err(format!("{what}: not after {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

pub fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
