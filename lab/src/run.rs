//! Runs a plan.
//!
//! Before each run the pool commits what the run before left, and after it what this run left, so that each
//! run pays for its own writes. Every run is kept when it ends, so an experiment can be stopped at any
//! moment, within a run too, and continued. The interrupted round is then repeated as a whole; no other round
//! is. Rounds go on beyond the minimum while the goal's intervals are too wide. That decision looks only at
//! widths, never at which variant wins, because otherwise it would find winners where there are none.
//!
//! # Runs that fail
//! One run that fails (a guest that does not boot, a fio that ends with an error) must not take the others
//! along. It is tried again, with all of its variant's made anew, `TRIES` times in all (`tries`); then its
//! place in the round is left out ([`Stage::LeftOut`]), and the report says so
//! ([`crate::analysis::LeftOut`]). A variant with a workload that is left out `GIVEN_UP` times in a row is
//! not tried any more by this process. Where the experiment itself is at fault it ends with the error: before
//! any run succeeded, and when `IN_A_ROW` different ones (all, where there are fewer) were left out one after
//! the other. A search has no gaps: it ends with the error of a run that fails each time, and can be
//! continued.
//!
//! | module | what it owns |
//! |---|---|
//! | `tries` | one run, tried again where it fails |
//! | `search` | the runs of a search, before the rounds |
//! | `time_left` | how long the rest takes |

mod search;
pub(crate) mod time_left;
mod tries;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::analysis;
use crate::error::{Error, Result};
use crate::experiment::{Work, Workload};
use crate::found;
use crate::plan::{Plan, Step, Variant};
use crate::progress::{Ended, Progress};
use crate::store::{Run, Stage, Store};
use crate::target::Bench;
use crate::trace::Trace;

use time_left::TimeLeft;
use tries::{TRIES, now, tried};

/// After how many runs that were left out one after the other a variant with a workload is given up.
const GIVEN_UP: usize = 2;
/// How many different runs that are left out one after the other end the experiment.
const IN_A_ROW: usize = 4;

/// Runs what is not done yet.
pub fn run(store: &mut Store, bench: &mut Bench<'_>, progress: &dyn Progress) -> Result<Ended> {
    let began = Instant::now();
    // Where runs ended before, pools may be on the disks.
    if store.runs().is_empty() && store.experiment().measured.is_none() {
        match bench.limits(progress) {
            Err(Error::Stopped) => return Ok(Ended::Stopped),
            measured => measured?.map_or(Ok(()), |rates| store.keep_measured(rates))?,
        }
    }
    for (workload, passes) in hold_passes(store)? {
        bench.hold_passes(&workload, passes);
    }
    let mut pace = TimeLeft::default();
    if search::carry_out(store, bench, progress, &mut pace)? == Ended::Stopped {
        return Ok(Ended::Stopped);
    }
    let measure =
        |round, variant: &_, workload: &_| tried(bench, progress, Stage::Rounds, round, variant, workload);
    match rounds(store, progress, &mut pace, began, measure) {
        Err(Error::Stopped) => Ok(Ended::Stopped),
        ended => ended,
    }
}

/// The rounds of the plan that are not done yet, each run by `measure`, which gets the round. All of it,
/// with what was looked for before, `began` then. What `measure` cannot measure is left out.
pub(crate) fn rounds(
    store: &mut Store,
    progress: &dyn Progress,
    pace: &mut TimeLeft,
    began: Instant,
    mut measure: impl FnMut(usize, &Variant, &Workload) -> Result<(Run, String)>,
) -> Result<Ended> {
    let experiment = store.experiment().clone();
    let plan = found::plan(store);
    tear(store, &plan)?;
    let least = experiment.least_rounds();
    let most = experiment.max_rounds.unwrap_or(least).max(least);
    let mut longest = Duration::ZERO;
    let mut failures = Failures { most: IN_A_ROW.min(plan.round_length()), ..Failures::default() };
    for round in 0..most {
        if round < least && experiment.is_over(round, began.elapsed(), longest) {
            store.leave_out_rounds_after(round)?;
            break;
        }
        let of_round = Instant::now();
        if round >= least && analysis::is_precise(store) {
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
            let others = store.runs().len() - store.in_rounds().count();
            let total = others + compared * least.max(round + 1);
            let what = format!("round {}: {}, {}", round + 1, variant.name, workload.name);
            let planned: Vec<Step> = (round..least.max(round + 1)).flat_map(|it| plan.round(it)).collect();
            let is_left = |it: &&Step| {
                let workload = &experiment.workloads[it.workload].name;
                !store.has(it.round, &plan.variants()[it.variant].name, workload)
            };
            let left = pace.rounds(&experiment, &plan, planned.iter().filter(is_left), began.elapsed());
            progress.begins(store.runs().len(), total, left, &what);
            let of_run = Instant::now();
            let has_any = store.runs().iter().any(|run| !matches!(run.stage, Stage::LeftOut | Stage::Torn));
            let measured = match failures.given_up(variant, workload) {
                Some(why) => Err(why),
                None => match measure(step.round, variant, workload) {
                    Err(error) if error.is_of_a_run() && has_any => {
                        match failures.add(round, variant, workload, &error) {
                            Some(why) => Err(why),
                            None => {
                                // The experiment is at fault, not these runs.
                                store
                                    .tear(|run| is_of_rounds(run) && failures.rounds.contains(&run.round))?;
                                return Err(error);
                            }
                        }
                    }
                    measured => Ok(measured?),
                },
            };
            let (run, said) = match measured {
                Ok((run, said)) => {
                    failures.end(variant, workload);
                    pace.note(&variant.name, workload, of_run.elapsed(), run.seconds_to_prepare());
                    (run, said)
                }
                Err(why) => {
                    let left_out = Run::left_out(step.round, &variant.name, &workload.name, why);
                    (Run { began: now(), ..left_out }, "{}".to_owned())
                }
            };
            progress.ended(&run);
            store.add(&run, &said)?;
        }
        // The first one makes and fills what all others find.
        if round > 0 {
            longest = longest.max(of_round.elapsed());
        }
    }
    Ok(Ended::Complete)
}

/// The runs that were left out one after the other.
#[derive(Default)]
struct Failures {
    /// How often in a row, by variant and workload, and why the last time.
    of_each: BTreeMap<(String, String), (usize, String)>,
    /// Which ones, since a run succeeded.
    in_a_row: BTreeSet<(String, String)>,
    /// The rounds that these were in.
    rounds: BTreeSet<usize>,
    /// How many of them end the experiment.
    most: usize,
}

impl Failures {
    fn key(variant: &Variant, workload: &Workload) -> (String, String) {
        (variant.name.clone(), workload.name.clone())
    }

    /// Why a run is not tried any more, where it is not.
    fn given_up(&self, variant: &Variant, workload: &Workload) -> Option<String> {
        let of_it = self.of_each.get(&Self::key(variant, workload));
        of_it.filter(|(times, _)| *times >= GIVEN_UP).map(|(_, why)| why.clone())
    }

    /// One more; why it is left out, or nothing where so many failed that they are not at fault.
    fn add(&mut self, round: usize, variant: &Variant, workload: &Workload, error: &Error) -> Option<String> {
        let key = Self::key(variant, workload);
        self.rounds.insert(round);
        self.in_a_row.insert(key.clone());
        if self.in_a_row.len() >= self.most {
            return None;
        }
        let (times, why) = self.of_each.entry(key).or_default();
        *times += 1;
        *why = format!("It failed {TRIES} times, the last time so: {error}");
        if *times >= GIVEN_UP {
            why.push_str(". After that it was not tried any more");
        }
        Some(why.clone())
    }

    /// A run succeeded.
    fn end(&mut self, variant: &Variant, workload: &Workload) {
        self.of_each.remove(&Self::key(variant, workload));
        self.in_a_row.clear();
        self.rounds.clear();
    }
}

/// Whether a run, or the place of one, is one of the rounds.
fn is_of_rounds(run: &Run) -> bool {
    matches!(run.stage, Stage::Rounds | Stage::LeftOut)
}

/// Variants are compared within rounds. So one that was interrupted is done again as a whole: its two parts
/// may have had very different machines.
fn tear(store: &mut Store, plan: &Plan) -> Result<()> {
    let Some(last) = store.in_rounds().map(|run| run.round).max() else { return Ok(()) };
    let experiment = store.experiment();
    let is_done = |step: &Step| {
        let variant = &plan.variants()[step.variant];
        store.has(last, &variant.name, &experiment.workloads[step.workload].name)
    };
    match plan.round(last).iter().all(is_done) {
        true => Ok(()),
        false => store.tear(|run| is_of_rounds(run) && run.round == last),
    }
}

/// How often workloads replay their traces on end, of which there are runs: all that follow do the same. Runs
/// that replayed one fewer times are done again, which were made while that was still found by each run anew.
fn hold_passes(store: &mut Store) -> Result<Vec<(String, usize)>> {
    let workloads = store.experiment().workloads.clone();
    let mut held = Vec::new();
    for Workload { name, trace, .. } in workloads.iter().filter(|it| it.work() == Work::Replay) {
        let is_untold = |run: &Run| run.workload == *name && run.passes.is_none();
        let trace = trace.as_ref().filter(|_| store.runs().iter().any(is_untold));
        let once = trace.and_then(|path| Trace::read(path).ok()).map_or(0, |trace| trace.bytes());
        let of = |run: &Run| {
            let bytes = run.figures.read_bytes + run.figures.written_bytes;
            let is_whole = once > 0 && bytes > 0 && bytes.is_multiple_of(once);
            run.passes.or_else(|| usize::try_from(bytes / once.max(1)).ok().filter(|_| is_whole))
        };
        let counts = |run: &&Run| run.workload == *name && run.stage != Stage::Torn;
        let Some(most) = store.runs().iter().filter(counts).filter_map(of).max() else { continue };
        let is_fewer = |run: &Run| counts(&run) && of(run).is_some_and(|passes| passes < most);
        let compared = store.runs().iter().filter(|run| run.stage == Stage::Rounds && is_fewer(run));
        let rounds: BTreeSet<usize> = compared.map(|run| run.round).collect();
        store.tear(|run| match run.stage {
            // They are compared within rounds.
            Stage::Rounds => run.workload == *name && rounds.contains(&run.round),
            Stage::Search => is_fewer(run),
            Stage::Torn | Stage::LeftOut => false,
        })?;
        held.push((name.clone(), most));
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use crate::fio::Figures;
    use crate::plan::TWIN;

    struct Silent;

    impl Progress for Silent {
        fn begins(&self, _: usize, _: usize, _: Option<Duration>, _: &str) {}
        fn ended(&self, _: &Run) {}
        fn stops(&self) -> bool {
            false
        }
    }

    const TWO: &str = "name = \"x\"\nrounds = 2\nseed = 5\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                       [[workload]]\nname = \"w\"\nrw = \"read\"\n";

    /// Carries rounds out until so many runs are done.
    fn carried(store: &mut Store, mut most: usize) -> Result<Ended> {
        rounds(store, &Silent, &mut TimeLeft::default(), Instant::now(), |round, variant, workload| {
            most = most.checked_sub(1).ok_or(Error::Stopped)?;
            ran(round, variant, workload)
        })
    }

    /// A run that was done.
    fn ran(round: usize, variant: &Variant, workload: &Workload) -> Result<(Run, String)> {
        let run = Run { round, ..Run::of(Stage::Rounds, &variant.name, &workload.name) };
        Ok((run, "{}".to_owned()))
    }

    #[test]
    fn a_round_that_was_interrupted_is_done_again_as_a_whole() {
        let mut store = Store::in_memory(Experiment::parse(TWO).unwrap());
        // Baseline, twin and raw device: the second round ends after its first run.
        assert!(matches!(carried(&mut store, 4), Err(Error::Stopped)));
        assert_eq!(carried(&mut store, usize::MAX).unwrap(), Ended::Complete);
        let stages: Vec<Stage> = store.runs().iter().map(|run| run.stage).collect();
        let [whole, torn] = [Stage::Rounds, Stage::Torn];
        assert_eq!(stages, [whole, whole, whole, torn, whole, whole, whole]);
        assert_eq!(store.compared().map(|(number, _)| number).collect::<Vec<_>>(), [1, 2, 3, 5, 6, 7]);
        // What is whole stays, also where nothing was under way.
        assert_eq!(carried(&mut store, 0).unwrap(), Ended::Complete);
        assert_eq!(store.compared().count(), 6);
    }

    fn broken() -> Error {
        Error::Failed { command: "fio".into(), output: "broken".into() }
    }

    /// Carries rounds out, of which those runs fail whose round and variant are these.
    fn failing(store: &mut Store, fails: impl Fn(usize, &str) -> bool) -> (Result<Ended>, usize) {
        let mut tried = 0;
        let measure = |round: usize, variant: &Variant, workload: &Workload| {
            tried += 1;
            if fails(round, &variant.name) { Err(broken()) } else { ran(round, variant, workload) }
        };
        let ended = rounds(store, &Silent, &mut TimeLeft::default(), Instant::now(), measure);
        (ended, tried)
    }

    #[test]
    fn one_run_that_fails_leaves_out_its_place_and_nothing_else() {
        let text = TWO.replace("rounds = 2", "rounds = 5");
        let mut store = Store::in_memory(Experiment::parse(&text).unwrap());
        let (ended, tried) = failing(&mut store, |round, variant| round > 0 && variant == TWIN);
        // It is given up after two rounds.
        assert_eq!((ended.unwrap(), tried), (Ended::Complete, 5 * 3 - 2));
        assert_eq!((store.compared().count(), store.left_out().count()), (11, 4));
        let notes: Vec<String> = store.left_out().map(|run| run.notes.concat()).collect();
        assert!(notes.iter().all(|note| note.contains("'fio' failed: broken")), "{notes:?}");
        assert!(notes[3].ends_with("not tried any more"), "{notes:?}");
        // It is complete: nothing is done again.
        assert_eq!(failing(&mut store, |_, _| true).1, 0);
    }

    #[test]
    fn where_everything_fails_the_experiment_ends_and_keeps_no_gaps() {
        let text = TWO.replace(
            "[[workload]]",
            "[[factor]]\nname = \"compression\"\nvalues = [\"off\", \"lz4\", \"zstd\"]\n[[workload]]",
        );
        let mut store = Store::in_memory(Experiment::parse(&text).unwrap());
        assert_eq!(failing(&mut store, |_, _| true).1, 1, "no run succeeded yet");
        let (ended, _) = failing(&mut store, |round, _| round > 0);
        assert!(ended.is_err_and(|error| error.to_string().contains("broken")));
        assert_eq!((store.compared().count(), store.left_out().count()), (5, 0));
        assert_eq!(failing(&mut store, |_, _| false).0.unwrap(), Ended::Complete);
        assert_eq!((store.compared().count(), store.left_out().count()), (10, 0));
    }

    #[test]
    fn runs_that_replayed_a_trace_fewer_times_are_done_again() {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("trace");
        std::fs::write(&trace, "fio version 3 iolog\n0 v add\n0 v open\n0 v read 0 4096\n5 v read 0 4096\n")
            .unwrap();
        let text = TWO.replace("rw = \"read\"", &format!("rw = \"replay\"\ntrace = \"{}\"", trace.display()));
        let mut store = Store::in_memory(Experiment::parse(&text).unwrap());
        let mut made = 0;
        // The second run was over sooner, before results kept how often each replays it.
        let ended = rounds(
            &mut store,
            &Silent,
            &mut TimeLeft::default(),
            Instant::now(),
            |round, variant, workload| {
                made += 1;
                let read_bytes = 8192 * if made < 2 { 15 } else { 40 };
                let figures = Figures { read_bytes, ..Figures::default() };
                let (run, said) = ran(round, variant, workload)?;
                Ok((Run { figures, ..run }, said))
            },
        );
        assert_eq!(ended.unwrap(), Ended::Complete);
        let expected = [("w".to_owned(), 40)];
        assert_eq!(hold_passes(&mut store).unwrap(), expected);
        assert_eq!(store.compared().map(|(_, run)| run.round).collect::<Vec<_>>(), [1; 3]);
        let ended = rounds(
            &mut store,
            &Silent,
            &mut TimeLeft::default(),
            Instant::now(),
            |round, variant, workload| {
                let (run, said) = ran(round, variant, workload)?;
                Ok((Run { passes: Some(40), ..run }, said))
            },
        );
        assert_eq!((ended.unwrap(), store.compared().count()), (Ended::Complete, 6));
        assert_eq!(hold_passes(&mut store).unwrap(), expected);
        assert_eq!(store.compared().count(), 6);
    }

    #[test]
    fn a_quick_form_leaves_out_rounds_where_the_machine_is_slow_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let environment = crate::environment::Environment::default();
        let mut experiment = Experiment::parse(&TWO.replace("rounds = 2", "rounds = 5")).unwrap();
        experiment.quick(1.0);
        assert_eq!((experiment.rounds, experiment.within_seconds.is_some()), (5, true));
        let mut store = Store::create(directory.path(), experiment, environment).unwrap();
        // Two rounds that took the rest of it.
        let slow = |store: &mut Store, within| {
            let text = std::fs::read_to_string(directory.path().join("experiment.toml")).unwrap();
            let text = text.replace("within_seconds = 240.0", &format!("within_seconds = {within}"));
            std::fs::write(directory.path().join("experiment.toml"), text).unwrap();
            *store = Store::in_memory(Experiment::parse(TWO).unwrap());
            *store = Store::open(directory.path()).unwrap();
        };
        slow(&mut store, "1.0");
        let mut took = 0;
        let ended = rounds(
            &mut store,
            &Silent,
            &mut TimeLeft::default(),
            Instant::now(),
            |round, variant, workload| {
                took += 1;
                if took == 6 {
                    std::thread::sleep(Duration::from_millis(600));
                }
                ran(round, variant, workload)
            },
        );
        assert_eq!(ended.unwrap(), Ended::Complete);
        let left_out = store.experiment().left_out();
        assert_eq!((store.compared().count(), left_out.len()), (6, 1));
        assert!(left_out[0].contains("3 of 5 rounds"), "{left_out:?}");
        // That is all, also when it continues; asking for more gives more.
        assert_eq!(carried(&mut store, 0).unwrap(), Ended::Complete);
        store.want_rounds(3).unwrap();
        carried(&mut store, usize::MAX).unwrap();
        assert_eq!(store.compared().count(), 9);
    }

    #[test]
    fn more_rounds_can_be_wanted_of_an_experiment_that_ended() {
        let directory = tempfile::tempdir().unwrap();
        let environment = crate::environment::Environment::default();
        let mut store =
            Store::create(directory.path(), Experiment::parse(TWO).unwrap(), environment).unwrap();
        carried(&mut store, usize::MAX).unwrap();
        assert!(store.want_rounds(2).unwrap_err().to_string().contains("rounds already"));
        store.want_rounds(4).unwrap();
        drop(store);
        let mut store = Store::open(directory.path()).unwrap();
        carried(&mut store, usize::MAX).unwrap();
        assert_eq!(store.compared().map(|(_, run)| run.round).max(), Some(3));
    }

    #[test]
    fn orders_and_what_fio_draws_are_of_the_seed_that_is_kept() {
        let of = |seed: &str| Experiment::parse(&TWO.replace("seed = 5", seed)).unwrap();
        let (one, other, old) = (of("seed = 5"), of("seed = 6"), of(""));
        assert_eq!(one.seed_of_round(0), of("seed = 5").seed_of_round(0));
        let mut seeds =
            [one.seed_of_round(0), one.seed_of_round(1), other.seed_of_round(0), old.seed_of_round(0)];
        seeds.sort_unstable();
        assert!(seeds.windows(2).all(|pair| pair[0] < pair[1]) && seeds[0] > 0, "{seeds:?}");
        let mut drawn = old.clone();
        drawn.draw_seed();
        assert_eq!(Experiment::parse(&drawn.to_toml().unwrap()).unwrap().seed, drawn.seed);
        assert!(drawn.seed.is_some());
    }
}
