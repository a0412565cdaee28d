//! Runs a search: answers the questions of [`crate::search`] by measurements.
//!
//! What was answered before is asked of the stored runs ([`crate::found`]), so that a search continues where
//! it was.
//!
//! An improvement compares values within rounds. So an interrupted round of it is repeated as a whole, like
//! rounds of the plan: otherwise runs of different times would be compared. A search for the best point
//! compares means of runs that are spread over its whole time anyway, so it continues after the last run.

use std::collections::BTreeMap;
use std::time::Instant;

use super::time_left::TimeLeft;
use super::tries::tried;
use crate::error::{Error, Result};
use crate::experiment::Mode;
use crate::found::{Kept, seek, worth};
use crate::plan::Variant;
use crate::progress::{Ended, Progress};
use crate::search::{MOST_SEARCHED, Measure, Point};
use crate::store::{Stage, Store};
use crate::target::Bench;

/// Runs what the search of the experiment in `store` still asks for.
pub(crate) fn carry_out(
    store: &mut Store,
    bench: &mut Bench<'_>,
    progress: &dyn Progress,
    pace: &mut TimeLeft,
) -> Result<Ended> {
    let experiment = store.experiment().clone();
    if !experiment.is_searched() {
        return Ok(Ended::Complete);
    }
    tear(store)?;
    let kept = Kept::of(store);
    let mut measuring = Measuring { store, bench, progress, pace, kept, recent: Vec::new() };
    match seek(&experiment, &mut measuring) {
        Ok(_) => {
            let recent = std::mem::take(&mut measuring.recent);
            recent.iter().try_for_each(|variant| measuring.bench.release(variant))?;
            Ok(Ended::Complete)
        }
        Err(None) => Ok(Ended::Stopped),
        Err(Some(error)) => Err(error),
    }
}

/// Marks the runs of an improvement's rounds that were interrupted.
fn tear(store: &mut Store) -> Result<()> {
    let experiment = store.experiment();
    if experiment.mode != Mode::Improve {
        return Ok(());
    }
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for run in store.runs().iter().filter(|run| run.stage == Stage::Search) {
        *counts.entry(run.round).or_default() += 1;
    }
    let rounds = experiment.searched_rounds().max(1);
    let is_whole = |round: &usize, count: &usize| {
        experiment.factors.get(round / rounds).is_none_or(|factor| *count >= factor.values.len())
    };
    counts.retain(|round, count| !is_whole(round, count));
    match counts.is_empty() {
        true => Ok(()),
        false => store.tear(|run| run.stage == Stage::Search && counts.contains_key(&run.round)),
    }
}

/// Answers by new runs, where there are none yet.
struct Measuring<'a, 'b> {
    store: &'a mut Store,
    bench: &'a mut Bench<'b>,
    progress: &'a dyn Progress,
    pace: &'a mut TimeLeft,
    kept: Kept,
    /// Variants that exist, the one that was used last at the end.
    recent: Vec<String>,
}

impl Measuring<'_, '_> {
    fn run(&mut self, round: usize, variant: &Variant) -> Result<f64> {
        let experiment = &self.kept.experiment;
        let goal = experiment.goal_workload();
        let workload = experiment.workloads.iter().find(|workload| workload.name == goal);
        let workload =
            workload.ok_or_else(|| Error::Experiment(format!("goal: there is no workload '{goal}'")))?;
        let began = Instant::now();
        let (run, said) = tried(self.bench, self.progress, Stage::Search, round, variant, workload)?;
        self.pace.note(&variant.name, workload, began.elapsed(), run.seconds_to_prepare());
        let title = experiment.goal.metric.title();
        let worth = worth(experiment, &run)
            .ok_or_else(|| Error::Experiment(format!("goal: a run of '{goal}' says nothing of {title}")))?;
        self.progress.ended(&run);
        self.store.add(&run, &said)?;
        self.recent.retain(|name| *name != variant.name);
        self.recent.push(variant.name.clone());
        if self.recent.len() > MOST_SEARCHED {
            self.bench.release(&self.recent.remove(0))?;
        }
        Ok(worth)
    }
}

impl Measure for Measuring<'_, '_> {
    /// An error, or `None` if the user stopped it.
    type Error = Option<Error>;

    fn measure(&mut self, round: usize, point: &Point) -> std::result::Result<f64, Option<Error>> {
        if let Ok(worth) = self.kept.measure(round, point) {
            return Ok(worth);
        }
        if self.progress.stops() {
            return Err(None);
        }
        let variant = self.kept.variant(point);
        let experiment = &self.kept.experiment;
        let compared = experiment.variant_count() * experiment.workloads.len() * experiment.rounds;
        let torn = self.store.runs().iter().filter(|run| run.stage == Stage::Torn).count();
        let total = experiment.search_runs() + compared + torn;
        let done = self.store.runs().len();
        let goal = experiment.workloads.iter().find(|it| it.name == experiment.goal_workload());
        let left = goal.and_then(|goal| self.pace.any(total.saturating_sub(done), goal));
        self.progress.begins(done, total, left, &format!("search: {}", variant.name));
        self.run(round, &variant).map_err(|error| match error {
            Error::Stopped => None,
            error => Some(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use crate::environment::Environment;
    use crate::fio::Figures;
    use crate::found::found;
    use crate::store::Run;

    /// Answers with planted figures, and keeps them as runs.
    struct Planting<'a> {
        store: &'a mut Store,
        kept: Kept,
        most: usize,
    }

    impl Measure for Planting<'_> {
        type Error = ();

        fn measure(&mut self, round: usize, point: &Point) -> std::result::Result<f64, ()> {
            if let Ok(worth) = self.kept.measure(round, point) {
                return Ok(worth);
            }
            if self.store.runs().len() == self.most {
                return Err(());
            }
            let latency = 100.0 - 10.0 * point.iter().sum::<usize>() as f64 + round as f64;
            let figures = Figures { latency, ..Figures::default() };
            let variant = self.kept.variant(point).name;
            let run = Run { round, figures, ..Run::of(Stage::Search, &variant, "w") };
            let worth = worth(&self.kept.experiment, &run).unwrap();
            self.store.add(&run, "{}").unwrap();
            Ok(worth)
        }
    }

    #[test]
    fn a_round_of_an_improvement_that_was_interrupted_is_done_again_as_a_whole() {
        let [whole, torn] = [Stage::Search, Stage::Torn];
        for (mode, expected) in [
            ("improve", [whole, whole, whole, torn, torn].as_slice()),
            ("search", [whole, whole, whole, whole, whole].as_slice()),
        ] {
            let text = format!(
                "name = \"x\"\nmode = \"{mode}\"\nrounds = 2\nbudget = 12\n[goal]\nmetric = \
                 \"latency\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                 [[factor]]\nname = \"a\"\nvalues = [\"0\", \"1\", \"2\"]\n[[factor]]\nname = \"b\"\nvalues \
                 = [\"0\", \"1\"]\n\
                 [[workload]]\nname = \"w\"\nrw = \"read\"\n"
            );
            let text = if mode == "improve" { text.replace("budget = 12\n", "") } else { text };
            let experiment = Experiment::parse(&text).unwrap();
            let mut store = Store::in_memory(experiment.clone());
            let go_on = |store: &mut Store, most| {
                tear(store).unwrap();
                let kept = Kept::of(store);
                seek(&experiment, &mut Planting { store, kept, most })
            };
            // The second round ends after two of its three runs.
            assert!(go_on(&mut store, 5).is_err());
            let search_result = go_on(&mut store, usize::MAX).unwrap();
            let stages: Vec<Stage> = store.runs().iter().take(5).map(|run| run.stage).collect();
            assert_eq!(stages, expected, "{mode}");
            assert_eq!(found(&store), Some(search_result), "{mode}");
            if mode == "improve" {
                // Three values and two, in two rounds each; the two runs that are torn, again.
                assert_eq!(store.runs().len(), 2 * (3 + 2) + 2);
                let again = store.runs()[5..8].iter().map(|run| (run.stage, run.round));
                assert_eq!(again.collect::<Vec<_>>(), [(whole, 1); 3]);
            }
            // What is whole stays.
            let count = store.runs().len();
            tear(&mut store).unwrap();
            assert_eq!((go_on(&mut store, count).is_ok(), store.runs().len()), (true, count), "{mode}");
        }
    }

    #[test]
    fn what_was_found_is_found_again_in_the_runs_that_were_kept() {
        for mode in ["search", "improve"] {
            let text = format!(
                "name = \"x\"\nmode = \"{mode}\"\nrounds = 4\n[goal]\nmetric = \"latency\"\n[target]\nkind = \
                 \"volume\"\nsize = \"64M\"\n\
                 [[factor]]\nname = \"a\"\nvalues = [\"0\", \"1\", \"2\"]\n[[factor]]\nname = \"b\"\nvalues \
                 = [\"0\", \"1\"]\n\
                 [[workload]]\nname = \"w\"\nrw = \"read\"\n"
            );
            let experiment = Experiment::parse(&text).unwrap();
            let directory = tempfile::tempdir().unwrap();
            let mut store =
                Store::create(directory.path(), experiment.clone(), Environment::default()).unwrap();
            let mut planting = |most| {
                let kept = Kept::of(&store);
                seek(&experiment, &mut Planting { store: &mut store, kept, most })
            };
            let search_result = planting(usize::MAX).unwrap();
            assert_eq!(
                (search_result.settings["a"].as_str(), search_result.settings["b"].as_str()),
                ("2", "1"),
                "{mode}"
            );
            assert_eq!(found(&store), Some(search_result), "{mode}");

            let directory = tempfile::tempdir().unwrap();
            let mut store =
                Store::create(directory.path(), experiment.clone(), Environment::default()).unwrap();
            let kept = Kept::of(&store);
            assert!(seek(&experiment, &mut Planting { store: &mut store, kept, most: 3 }).is_err());
            assert_eq!(found(&store), None, "it has not ended");
        }
    }
}
