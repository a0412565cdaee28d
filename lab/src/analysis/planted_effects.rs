//! Whether findings are true: experiments on modelled devices, in which effects of known size are planted.
//!
//! Everything is as in `lab run` except fio and the pools: the plan with its order, the rounds and their end,
//! the store, the findings. A run simulates clients that each read at random places, wait, and read again, on
//! a medium of [`device::simulated`] in its own time, so that hundreds of experiments take seconds. A
//! variant's devices are some per cent slower than the baseline's. The difficulties are those of a real
//! machine:
//!
//! - *the medium's own spread*: the arm and the rotation of a disk, in short runs;
//! - *neighbours*: in some runs another program reads from the same device, each time at another rate;
//! - *drift*: from the first run to the last the devices become slower by a third; or, on the worse of the
//!   two machines, they suddenly are slower from some run on.
//!
//! With neighbours the true ratio is not the planted one, because they take a larger share of a slower
//! device. So the true ratio is measured, with many runs and the same conditions for both devices.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use device::Operation;
use device::simulated::{Medium, Model};

use super::*;
use crate::error::Result;
use crate::experiment::Workload;
use crate::fio::Figures;
use crate::progress::{Ended, Progress};
use crate::run;
use crate::store::{Run, Stage};

const DEVICE_BYTES: u64 = 1 << 40;
const BLOCK_BYTES: u64 = 4096;
/// The size of a neighbour's reads.
const NEIGHBOUR_BYTES: u64 = 128 << 10;
/// Rounds at most.
const MOST_ROUNDS: usize = 12;

/// Other activity while an experiment runs.
#[derive(Debug)]
struct Surroundings {
    name: &'static str,
    /// How often a run has a neighbour, and the share of the device that it takes at most.
    neighbours: f64,
    most_taken: f64,
    /// How many times as long everything takes at the end of the rounds.
    drift: f64,
    /// The same from some run on, in every other experiment, instead of that.
    jump: Option<f64>,
}

const QUIET: Surroundings =
    Surroundings { name: "quiet", neighbours: 0.1, most_taken: 0.02, drift: 1.33, jump: None };
const NOISY: Surroundings =
    Surroundings { name: "noisy", neighbours: 0.3, most_taken: 0.1, drift: 1.33, jump: Some(1.2) };

/// How much slower the variants' devices are, in per cent; nothing twice, because it is nothing that must not
/// be found.
const PLANTED: [u32; 5] = [0, 3, 10, 50, 0];

/// A device and what is asked of it.
struct Setting {
    model: Model,
    depth: usize,
    /// Of a run, on the device's own clock.
    seconds: f64,
}

const SETTINGS: [Setting; 6] = [
    Setting { model: Model::HDD_7200, depth: 1, seconds: 10.0 },
    Setting { model: Model::HDD_7200, depth: 8, seconds: 10.0 },
    Setting { model: Model::SATA_SSD, depth: 1, seconds: 0.08 },
    Setting { model: Model::SATA_SSD, depth: 32, seconds: 0.01 },
    Setting { model: Model::NVME, depth: 1, seconds: 0.05 },
    Setting { model: Model::NVME, depth: 64, seconds: 0.0025 },
];

/// The events on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reader {
    Client,
    Neighbour,
}

impl Setting {
    /// Another process that reads from the device: the nanoseconds between its reads.
    fn neighbour(&self, around: &Surroundings, rng: &mut fastrand::Rng) -> Option<f64> {
        // Both are always drawn, so that runs of equal chance stay so.
        let (is_there, share) = (rng.f64() < around.neighbours, rng.f64() * around.most_taken);
        let positioning = self.model.arm.map_or(0, |arm| {
            arm.shortest_seek_ns + (arm.longest_seek_ns - arm.shortest_seek_ns) / 2 + arm.rotation_ns / 2
        });
        let moving = NEIGHBOUR_BYTES as f64 * 1e9 / self.model.read_bytes_per_second as f64;
        is_there.then(|| (positioning as f64 + moving) / share.max(0.001))
    }

    /// A run on a device for which everything takes `times` as long as for the model.
    fn run(&self, around: &Surroundings, model: Model, times: f64, rng: &mut fastrand::Rng) -> Figures {
        let every_ns = self.neighbour(around, rng);
        let mut medium = Medium::new(model.stretched(times), DEVICE_BYTES, rng.u64(..));
        // Where and when others read is the same whatever the clients do.
        let mut others = fastrand::Rng::with_seed(rng.u64(..));
        let place = |rng: &mut fastrand::Rng| rng.u64(..DEVICE_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
        let end_ns = (self.seconds * 1e9) as u64;
        let mut waiting: BinaryHeap<Reverse<(u64, Reader)>> =
            (0..self.depth).map(|_| Reverse((0, Reader::Client))).collect();
        waiting.extend(every_ns.map(|_| Reverse((0, Reader::Neighbour))));
        let (mut count, mut waited_ns) = (0_u64, 0_u64);
        while let Some(Reverse((now_ns, reader))) =
            waiting.pop().filter(|Reverse((now_ns, _))| *now_ns < end_ns)
        {
            match (reader, every_ns) {
                (Reader::Neighbour, Some(every_ns)) => {
                    medium.serve(now_ns, Operation::Read, place(&mut others), NEIGHBOUR_BYTES);
                    let pause_ns = -every_ns * (1.0 - others.f64()).ln();
                    waiting.push(Reverse((now_ns + pause_ns as u64, reader)));
                }
                _ => {
                    let done_ns = medium.serve(now_ns, Operation::Read, place(rng), BLOCK_BYTES);
                    if done_ns <= end_ns {
                        count += 1;
                        waited_ns += done_ns - now_ns;
                    }
                    waiting.push(Reverse((done_ns, reader)));
                }
            }
        }
        let latency = waited_ns as f64 / count.max(1) as f64;
        Figures { iops: count as f64 / self.seconds, latency, ..Figures::default() }
    }

    /// The true ratios of IOPS to the baseline's, of each planted slowness.
    fn truths(&self, around: &Surroundings) -> [f64; PLANTED.len()] {
        const RUNS: u64 = 150;
        let mean = |percent: u32| {
            let model = slower(self.model, percent);
            let runs =
                (0..RUNS).map(|run| self.run(around, model, 1.0, &mut fastrand::Rng::with_seed(run)).iops);
            runs.sum::<f64>() / RUNS as f64
        };
        let baseline = mean(0);
        PLANTED.map(|percent| if percent == 0 { 1.0 } else { mean(percent) / baseline })
    }

    /// An experiment that has ended.
    fn experiment(&self, around: &Surroundings, seed: u64) -> Store {
        // The first of the values is the baseline's; names tell those that are alike apart.
        let values: Vec<String> =
            PLANTED.iter().enumerate().map(|(at, percent)| format!("{at}: {percent}%")).collect();
        let text = format!(
            "name = \"truth-{seed}\"\nrounds = 5\nmax_rounds = {MOST_ROUNDS}\nprecision = \
             0.01\n[target]\nkind = \"volume\"\nsize = \"1G\"\ndevices = \"{}\"\n\
             [[factor]]\nname = \"planted\"\nvalues = [\"nothing\", \"{}\"]\n\
             [[workload]]\nname = \"reads\"\nrw = \"randread\"\nbs = \"4K\"\niodepth = {}\n",
            self.model,
            values.join("\", \""),
            self.depth,
        );
        let experiment = Experiment::parse(&text).unwrap();
        let mut store = Store::in_memory(experiment);
        let mut rng = fastrand::Rng::with_seed(seed);
        let most = MOST_ROUNDS * (PLANTED.len() + 2);
        let jump_at = rng.usize(..most);
        let mut done = 0;
        let mut measure = |round: usize, variant: &Variant, workload: &Workload| -> Result<(Run, String)> {
            let planted = variant.settings["planted"].split(": ").nth(1);
            let percent = planted.map_or(0, |percent| percent.trim_end_matches('%').parse().unwrap());
            let times = match around.jump.filter(|_| seed % 2 == 1) {
                None => 1.0 + (around.drift - 1.0) * f64::from(done) / most as f64,
                Some(jump) if done as usize >= jump_at => jump,
                Some(_) => 1.0,
            };
            done += 1;
            let figures = self.run(around, slower(self.model, percent), times, &mut rng);
            let run = Run { round, figures, ..Run::of(Stage::Rounds, &variant.name, &workload.name) };
            Ok((run, "{}".to_owned()))
        };
        assert_eq!(
            run::rounds(
                &mut store,
                &Silent,
                &mut run::time_left::TimeLeft::default(),
                std::time::Instant::now(),
                &mut measure
            )
            .unwrap(),
            Ended::Complete
        );
        store
    }
}

fn slower(model: Model, percent: u32) -> Model {
    Model::device(&format!("{}+{percent}%", model.name)).unwrap()
}

struct Silent;

impl Progress for Silent {
    fn begins(&self, _: usize, _: usize, _: Option<std::time::Duration>, _: &str) {}
    fn ended(&self, _: &Run) {}
    fn stops(&self) -> bool {
        false
    }
}

/// The results of many experiments.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Tally {
    experiments: usize,
    /// Experiments in which something was found where nothing was planted.
    alarms: usize,
    /// Variants with nothing planted that were called what they are.
    nothing: usize,
    /// Of each planted slowness the variants that were called worse.
    found: [usize; PLANTED.len()],
    /// Intervals that hold the truth.
    held: usize,
    rounds: usize,
}

impl Tally {
    fn add(&mut self, findings: &Findings, truths: &[f64; PLANTED.len()]) {
        self.experiments += 1;
        self.rounds += findings.rounds;
        let mut is_alarm = false;
        for (at, percent) in PLANTED.into_iter().enumerate() {
            let name = format!("planted={at}: {percent}%");
            let compared = findings.find(&name, "reads", Metric::Iops).unwrap().compared.unwrap();
            let ratio = compared.comparison.ratio;
            self.held += usize::from((ratio.low..=ratio.high).contains(&truths[at]));
            self.found[at] += usize::from(compared.verdict == Verdict::Worse);
            if percent == 0 {
                is_alarm |= matches!(compared.verdict, Verdict::Worse | Verdict::Better);
                self.nothing += usize::from(compared.verdict == Verdict::NoDifference);
            }
        }
        self.alarms += usize::from(is_alarm);
    }
}

/// Carries out experiments on all devices. Of each hundred five at most raise an alarm over nothing, and of
/// each hundred intervals five miss the truth, give or take what chance does.
fn tried(around: &Surroundings) -> Tally {
    const EXPERIMENTS: usize = 25;
    let mut all = Tally::default();
    for (number, setting) in SETTINGS.iter().enumerate() {
        let truths = setting.truths(around);
        let mut tally = Tally::default();
        for seed in 0..EXPERIMENTS {
            let findings = findings(&setting.experiment(around, (number * 1000 + seed) as u64));
            tally.add(&findings, &truths);
            all.add(&findings, &truths);
        }
        println!("{}, {} at once, {}: {truths:.4?}: {tally:?}", setting.model, setting.depth, around.name);
    }
    assert!(all.alarms * 100 <= all.experiments * 5, "{all:?}");
    assert!(all.nothing * 100 >= all.experiments * 2 * 95, "{all:?}");
    let intervals = all.experiments * PLANTED.len();
    assert!((intervals * 93..=intervals * 98).contains(&(all.held * 100)), "{all:?}");
    all
}

#[test]
fn what_is_planted_in_devices_is_found_on_a_quiet_machine_and_nothing_else() {
    let Tally { experiments, found: [_, small, ten, fifty, _], .. } = tried(&QUIET);
    assert!(small * 100 >= experiments * 90, "{small} of {experiments}");
    assert_eq!((ten, fifty), (experiments, experiments));
}

#[test]
fn what_is_planted_in_devices_is_found_on_a_noisy_machine_where_it_is_more_than_noise() {
    let Tally { experiments, found: [_, _, ten, fifty, _], .. } = tried(&NOISY);
    assert!(ten * 100 >= experiments * 95, "{ten} of {experiments}");
    assert_eq!(fifty, experiments);
}
