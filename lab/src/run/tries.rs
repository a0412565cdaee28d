//! One run: it is made ready, measured, and tried again where it fails.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::experiment::{Work, Workload};
use crate::fio::Figures;
use crate::machine::{Busy, Machine};
use crate::plan::{Variant, VariantKind};
use crate::progress::Progress;
use crate::store::{Run, Stage};
use crate::target::{Bench, Placement};

/// How often a run is tried until it is left out.
pub(super) const TRIES: usize = 3;

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Does one run, again where it fails; what it found, and all that fio said.
///
/// # Errors
/// The error of the last try, or one that each try would have.
pub(crate) fn tried(
    bench: &mut Bench<'_>,
    progress: &dyn Progress,
    stage: Stage,
    round: usize,
    variant: &Variant,
    workload: &Workload,
) -> Result<(Run, String)> {
    let what = format!("round {}, {}, {}", round + 1, variant.name, workload.name);
    let bench = std::cell::RefCell::new(bench);
    let failed = |error: &Error, is_tried_again: bool| {
        progress.failed(&what, error, is_tried_again);
        if let Ok(workload) = workload.with(&variant.settings) {
            bench.borrow_mut().renew(&Placement::of(variant, &workload));
        }
    };
    let measure = || one(&mut bench.borrow_mut(), progress, stage, round, variant, workload);
    let ((mut run, said), before) = up_to(TRIES, measure, failed)?;
    run.notes.extend(before.map(|(tries, error)| {
        format!("A run succeeded at try {tries} ({what}); before that it failed: {error}.")
    }));
    Ok((run, said))
}

/// What the first try gives that does not fail, and where it was not the first, which one it was and why the
/// one before failed. `failed` gets each failure, and whether another try follows.
fn up_to<T>(
    tries: usize,
    mut measure: impl FnMut() -> Result<T>,
    mut failed: impl FnMut(&Error, bool),
) -> Result<(T, Option<(usize, Error)>)> {
    let (mut before, mut this) = (None, 1);
    loop {
        match measure() {
            Ok(done) => return Ok((done, before.map(|error| (this, error)))),
            Err(error) if error.is_of_a_run() => {
                failed(&error, this < tries);
                if this >= tries {
                    return Err(error);
                }
                (before, this) = (Some(error), this + 1);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Does one run; what it found, and all that fio said.
fn one(
    bench: &mut Bench<'_>,
    progress: &dyn Progress,
    stage: Stage,
    round: usize,
    variant: &Variant,
    workload: &Workload,
) -> Result<(Run, String)> {
    measured(bench, progress, stage, round, variant, workload).map_err(|error| match error {
        Error::Silent { by, limit, .. } => {
            let run = format!("round {}, {}, {}: ", round + 1, variant.name, workload.name);
            let lodging = workload.with(&variant.settings).map(|workload| Placement::of(variant, &workload));
            let seen = lodging.ok().and_then(|lodging| bench.seen(&lodging));
            Error::Silent { by, limit, run, seen }
        }
        error => bench.explained(error),
    })
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
    let lodging = Placement::of(variant, &workload);
    bench.ready(&lodging, &workload, progress)?;
    let prepared = bench.prepared();
    let job = bench.job(&lodging, &workload, round, progress)?;
    let machine = Machine::default();
    let load = machine.load().unwrap_or_default();
    let ticks = machine.ticks();
    let before = bench.counters(&lodging)?;
    let began = now();
    let mut outcome = bench.run(&lodging, &job, progress)?;
    if matches!(workload.work(), Work::Stat | Work::Delete) {
        // fio counts the size of each file, of which nothing was transferred.
        outcome.figures = Figures { throughput: 0.0, read_bytes: 0, ..outcome.figures };
    }
    bench.settle(&lodging)?;
    let after = bench.counters(&lodging)?;
    let ticks = ticks.zip(machine.ticks());
    let is_of_more = workload.counted_beside().is_some() || bench.did_more();
    let served = before.zip(after).map(|(before, after)| Counters { is_of_more, ..after.since(&before) });
    let served_seconds = match variant.kind {
        VariantKind::Device => Some(0.0),
        _ => served.map(|served| served.cpu_seconds),
    };
    let busy = ticks.map(|(before, after)| Busy::since(before, after, load, served_seconds));
    let mut notes = bench.notes();
    notes.extend(busy.iter().flat_map(Busy::cautions));
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
        sector: bench.sector(&lodging)?,
        series: outcome.series,
        passes: bench.passes(&workload.name).filter(|_| workload.work() == Work::Replay),
        prepared,
        busy,
        notes,
    };
    Ok((run, outcome.json))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken() -> Error {
        Error::Failed { command: "fio".into(), output: "broken".into() }
    }

    #[test]
    fn a_run_is_tried_until_it_succeeds_but_not_for_ever() {
        let tried = |succeeds_at: usize, error: fn() -> Error| {
            let (mut tries, mut told) = (0, Vec::new());
            let done = up_to(
                3,
                || {
                    tries += 1;
                    if tries == succeeds_at { Ok(tries) } else { Err(error()) }
                },
                |_, is_tried_again| told.push(is_tried_again),
            );
            (done.map(|(done, before)| (done, before.map(|(this, _)| this))).ok(), tries, told)
        };
        assert_eq!(tried(1, broken), (Some((1, None)), 1, vec![]));
        assert_eq!(tried(3, broken), (Some((3, Some(3))), 3, vec![true, true]));
        assert_eq!(tried(4, broken), (None, 3, vec![true, true, false]));
        // What each try would have is not tried again.
        assert_eq!(tried(2, || Error::Stopped), (None, 1, vec![]));
    }
}
