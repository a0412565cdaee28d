//! Carrying a plan out.
//!
//! Before each run the pool commits what the run before left, and after it what this one left, so that each pays for its own writes. Every run is kept when it ends; one that was kept is never
//! done again, so that an experiment can be stopped at any moment, within a run too, and gone on with. Rounds go on beyond the least number while the goal's intervals are too wide; that only
//! looks at widths, never at who wins, which would find winners where there are none.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::analysis;
use crate::error::{Error, Result};
use crate::experiment::{Work, Workload};
use crate::fio::Figures;
use crate::plan::{Plan, Variant};
use crate::seek;
use crate::size::Size;
use crate::store::{Run, Stage, Store};
use crate::target::{Bench, Counters, Lodging};

/// Something that is made ready before a run, or copied by one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part<'a> {
    /// What is done, to what.
    pub what: &'a str,
    /// Bytes that are done.
    pub done: Size,
    /// Bytes in all.
    pub total: Size,
    /// How long that took.
    pub elapsed: Duration,
}

impl Part<'_> {
    /// Bytes in a second; nothing before there are any.
    pub fn rate(&self) -> Option<f64> {
        let rate = self.done.0 as f64 / self.elapsed.as_secs_f64();
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// How long the rest takes, if it goes on like that.
    pub fn left(&self) -> Option<Duration> {
        let rest = self.total.0.saturating_sub(self.done.0) as f64;
        Duration::try_from_secs_f64(rest / self.rate()?).ok()
    }
}

/// Who is told how it goes.
pub trait Progress {
    /// A run begins: how many are done, how many there are at least, and what it is.
    fn begins(&self, done: usize, total: usize, what: &str);
    /// A run ended.
    fn ended(&self, run: &Run);
    /// A part goes on.
    fn goes_on(&self, _: Part<'_>) {}
    /// Whether somebody wants it to stop: at once. A run that is under way is not kept then, and is done again by whoever goes on.
    fn stops(&self) -> bool;
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All rounds are done.
    Complete,
    /// Somebody wanted it to stop; it can be gone on with.
    Stopped,
}

/// The seed of an experiment: the same for the same name, so that a resumed one has the same order.
pub(crate) fn seed(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The plan of the experiment whose results are in `store`, with what a search found, once it has ended.
pub fn plan(store: &Store) -> Plan {
    let found = seek::found(store);
    Plan::new(store.experiment(), found.as_ref().map(|found| &found.settings), seed(&store.experiment().name))
}

/// Runs what is not done yet.
pub fn run(store: &mut Store, bench: &mut Bench<'_>, progress: &dyn Progress) -> Result<Ended> {
    if seek::carry_out(store, bench, progress)? == Ended::Stopped {
        return Ok(Ended::Stopped);
    }
    let measure =
        |round, variant: &_, workload: &_| one(bench, progress, Stage::Rounds, round, variant, workload);
    match rounds(store, progress, measure) {
        Err(Error::Stopped) => Ok(Ended::Stopped),
        ended => ended,
    }
}

/// The rounds of the plan that are not done yet, each run by `measure`, which is told the round.
pub(crate) fn rounds(
    store: &mut Store,
    progress: &dyn Progress,
    mut measure: impl FnMut(usize, &Variant, &Workload) -> Result<(Run, String)>,
) -> Result<Ended> {
    let experiment = store.experiment().clone();
    let plan = plan(store);
    let most = experiment.max_rounds.unwrap_or(experiment.rounds).max(experiment.rounds);
    for round in 0..most {
        if round >= experiment.rounds && analysis::is_precise(store) {
            break;
        }
        for step in plan.round(round) {
            let variant = &plan.variants()[step.variant];
            let workload = &experiment.workloads[step.workload];
            if store.has(round, &variant.name, &workload.name) {
                continue;
            }
            if progress.stops() {
                return Ok(Ended::Stopped);
            }
            let compared = plan.round_length();
            let searched = store.runs().len() - store.compared().count();
            let total = searched + compared * experiment.rounds.max(round + 1);
            let what = format!("round {}: {}, {}", round + 1, variant.name, workload.name);
            progress.begins(store.runs().len(), total, &what);
            let (run, said) = measure(step.round, variant, workload)?;
            progress.ended(&run);
            store.add(&run, &said)?;
        }
    }
    Ok(Ended::Complete)
}

/// Does one run; what it found, and all that fio said.
pub(crate) fn one(
    bench: &mut Bench<'_>,
    progress: &dyn Progress,
    stage: Stage,
    round: usize,
    variant: &Variant,
    workload: &Workload,
) -> Result<(Run, String)> {
    measured(bench, progress, stage, round, variant, workload).map_err(|error| bench.explained(error))
}

fn measured(
    bench: &mut Bench<'_>,
    progress: &dyn Progress,
    stage: Stage,
    round: usize,
    variant: &Variant,
    workload: &Workload,
) -> Result<(Run, String)> {
    let workload = workload.with(&variant.settings)?;
    let lodging = Lodging::of(variant, &workload);
    bench.ready(&lodging, &workload, progress)?;
    let prepared = bench.prepared();
    let job = bench.job(&lodging, &workload, round as u64 + 1, progress)?;
    let before = bench.counters(&lodging)?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut outcome = bench.run(&lodging, &job, progress)?;
    if matches!(workload.work(), Work::Stat | Work::Delete) {
        // fio counts the size of each file, of which nothing was transferred.
        outcome.figures = Figures { throughput: 0.0, read_bytes: 0, ..outcome.figures };
    }
    bench.settle(&lodging)?;
    let after = bench.counters(&lodging)?;
    let is_of_more = workload.counted_beside().is_some();
    let served = before.zip(after).map(|(before, after)| Counters { is_of_more, ..after.since(&before) });
    let run = Run {
        stage,
        round,
        variant: variant.name.clone(),
        workload: workload.name.clone(),
        began,
        command: job.words(),
        figures: outcome.figures,
        served,
        space: bench.space(&lodging)?,
        series: outcome.series,
        prepared,
        notes: bench.notes(),
    };
    Ok((run, outcome.json))
}
