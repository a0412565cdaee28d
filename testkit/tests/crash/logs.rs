//! Log devices that are taken away while clients write stable data, and given back.
//!
//! A removed log vdev belongs to no pool as soon as the removal is answered, until it is added again:
//! whatever its devices hold then must make no difference. A state after a power cut has them as the removal
//! left them, blank, full of noise, or as they were when the removal was asked for: with labels of the pool
//! and a log that was right once.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use engine::pool::live::{LivePool, NewTop};
use engine::vdev::{Class, Vdev};
use testkit::Rng;
use testkit::crash::{Disk, Recorder};

use super::history::turns;
use super::support::committing;

/// Turns before something is done, at most.
const MOST_TURNS: u64 = 120;
/// Further points to look at of each removal.
const POINTS: usize = 16;
/// Events at the end of a removal in which half of them lie: the last commit, and what comes after it.
const LAST_EVENTS: usize = 80;
/// How much of the beginning of a device is filled with noise: two labels and a piece of what is behind them.
const NOISE_BYTES: usize = 1 << 20;

/// What happens to a log vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It is taken away.
    Away,
    /// It is given back.
    Back,
}

/// Something that is done to a log vdev: to the one of this number.
#[derive(Clone, Copy, Debug)]
struct Move {
    log: usize,
    way: Way,
}

struct Made {
    what: Move,
    devices: Range<usize>,
    /// What they held before.
    before: Vec<Disk>,
    begun_at: usize,
    done_at: Option<usize>,
}

impl Made {
    fn is_done(&self, point: usize) -> bool {
        self.done_at.is_some_and(|at| at <= point)
    }
}

/// The log vdevs of a pool, as they can be given back.
pub struct Logs {
    tops: Vec<(NewTop, Range<usize>)>,
    ashift: u8,
    made: RefCell<Vec<Made>>,
}

impl Logs {
    /// Those of a new pool, with the numbers of their devices.
    pub fn new(tops: Vec<(NewTop, Range<usize>)>, ashift: u8) -> Self {
        Self { tops, ashift, made: RefCell::default() }
    }

    fn last_way(&self, log: usize) -> (Way, bool) {
        let made = self.made.borrow();
        let last = made.iter().rev().find(|made| made.what.log == log);
        last.map_or((Way::Back, true), |made| (made.what.way, made.done_at.is_some()))
    }

    /// Whether the pool counts on this device: it is of no log vdev that is away or on its way back.
    pub fn counts_on(&self, device: usize) -> bool {
        let log = self.tops.iter().position(|(_, devices)| devices.contains(&device));
        log.is_none_or(|log| matches!(self.last_way(log), (Way::Back, true) | (Way::Away, false)))
    }

    /// Takes them away and gives them back until all is over. `dead` tells a device that cannot be given
    /// back.
    pub async fn come_and_go(
        &self,
        pool: &Arc<LivePool>,
        recorder: &Recorder,
        rng: &mut Rng,
        is_over: &dyn Fn() -> bool,
        dead: &dyn Fn() -> Option<usize>,
    ) -> Result<(), String> {
        while !self.tops.is_empty() {
            for _ in 0..rng.below(MOST_TURNS) {
                turns(1).await;
                if is_over() {
                    return Ok(());
                }
            }
            let Some(what) = self.choose(rng, dead()) else { continue };
            let made = self.make(pool, recorder, what);
            // One group after the other, or as others commit them.
            let made = if rng.once_in(2) { committing(pool, made).await } else { made.await };
            made.map_err(|error| format!("{what:?}: {error}"))?;
        }
        Ok(())
    }

    /// Something that can be done now, where `dead` is a device that cannot be given back.
    fn choose(&self, rng: &mut Rng, dead: Option<usize>) -> Option<Move> {
        let log = rng.index(self.tops.len());
        let (_, devices) = self.tops.get(log)?;
        match self.last_way(log).0 {
            Way::Back => Some(Move { log, way: Way::Away }),
            Way::Away if dead.is_some_and(|dead| devices.contains(&dead)) => None,
            Way::Away => Some(Move { log, way: Way::Back }),
        }
    }

    /// Does it. Another task must commit groups meanwhile.
    async fn make(&self, pool: &Arc<LivePool>, recorder: &Recorder, what: Move) -> engine::Result<()> {
        let (top, devices) = &self.tops[what.log];
        let before = recorder.disks().drain(devices.clone()).collect();
        let begun_at = recorder.position();
        self.made.borrow_mut().push(Made { what, devices: devices.clone(), before, begun_at, done_at: None });
        let done = match what.way {
            Way::Away => take_away(pool, top).await,
            Way::Back => pool.add(vec![top.clone()], Some(self.ashift)).await,
        };
        if let Some(made) = self.made.borrow_mut().last_mut() {
            made.done_at = Some(recorder.position());
        }
        done
    }

    /// What was done.
    pub fn into_moves(self) -> Moves {
        Moves(self.made.into_inner())
    }
}

async fn take_away(pool: &Arc<LivePool>, log: &NewTop) -> engine::Result<()> {
    let is_of_it = |vdev: &Vdev| log.leaves.iter().any(|leaf| leaf.path.as_os_str() == vdev.name.as_str());
    let vdevs = pool.pool().vdevs();
    let top = vdevs.tops.iter().find(|top| top.class() == Class::Log && top.walk().any(is_of_it));
    let guid = top.map(|top| top.guid);
    pool.remove(guid.ok_or_else(|| engine::Error::Invalid("the log vdev is not there".into()))?).await
}

/// A device without a pool.
#[derive(Clone, Copy, Debug)]
pub enum Afterlife {
    /// As the removal left it.
    AsLeft,
    Blank,
    Noise,
    /// As it was before.
    AsBefore,
}

/// What was done to log vdevs in a run.
#[derive(Default)]
pub struct Moves(Vec<Made>);

impl Moves {
    /// How many removals were answered.
    pub fn removals(&self) -> usize {
        self.0.iter().filter(|made| made.what.way == Way::Away && made.done_at.is_some()).count()
    }

    /// Whether a removal was under way at `point`.
    pub fn is_removing(&self, point: usize) -> bool {
        self.begun(point).any(|made| made.what.way == Way::Away && !made.is_done(point))
    }

    /// Whether this device was in no pool at `point`.
    pub fn is_gone(&self, device: usize, point: usize) -> bool {
        self.gone(point).any(|made| made.devices.contains(&device))
    }

    /// Points worth looking at, beside others: moments of each move, and the one in which a removal is
    /// answered.
    pub fn points(&self, rng: &mut Rng) -> Vec<usize> {
        let mut points = Vec::new();
        for made in &self.0 {
            let Some(done_at) = made.done_at else { continue };
            let late = made.begun_at.max(done_at.saturating_sub(LAST_EVENTS));
            for number in 0..POINTS {
                let from = if number % 2 == 0 { made.begun_at } else { late };
                points.push(from + rng.index(done_at - from + 1));
            }
            points.push(done_at);
        }
        points
    }

    /// Fills devices that were in no pool at `point`.
    pub fn haunt(&self, point: usize, disks: &mut [Disk], rng: &mut Rng) -> Vec<(usize, Afterlife)> {
        let mut all = Vec::new();
        for made in self.gone(point) {
            for (device, before) in made.devices.clone().zip(&made.before) {
                let kinds = [Afterlife::AsLeft, Afterlife::Blank, Afterlife::Noise, Afterlife::AsBefore];
                let afterlife = kinds[rng.index(kinds.len())];
                match afterlife {
                    Afterlife::AsLeft => {}
                    Afterlife::Blank => disks[device] = Disk::new(before.size_bytes()),
                    Afterlife::Noise => {
                        let noise = (0..NOISE_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes());
                        disks[device].write(0, &noise.collect::<Vec<u8>>());
                    }
                    Afterlife::AsBefore => disks[device] = before.clone(),
                }
                all.push((device, afterlife));
            }
        }
        all
    }

    /// What was begun before `point`, and of each log vdev the last only.
    fn begun(&self, point: usize) -> impl Iterator<Item = &Made> {
        let begun = move |made: &&Made| made.begun_at <= point;
        self.0.iter().enumerate().filter(move |(_, made)| begun(made)).filter_map(move |(number, made)| {
            let is_same = |other: &&Made| other.what.log == made.what.log;
            let later = self.0[number + 1..].iter().filter(begun).any(|other| is_same(&other));
            (!later).then_some(made)
        })
    }

    fn gone(&self, point: usize) -> impl Iterator<Item = &Made> {
        self.begun(point).filter(move |made| made.what.way == Way::Away && made.is_done(point))
    }
}
