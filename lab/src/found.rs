//! What a search found, as the runs say that were kept.
//!
//! A search asks the same questions again when it gets the same answers. So its state need not be stored: to
//! report on it, or to go on with it, the lab starts it from the beginning with the stored runs, and it soon
//! arrives where it was. [`crate::search`] asks; new answers are measured by [`crate::run`].

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Mode, Settings};
use crate::plan::{Plan, Variant};
use crate::search::{self, Measure, Point, Space};
use crate::stats::Comparison;
use crate::store::{Run, Stage, Store};

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The settings that it found.
    pub settings: Settings,
    /// Runs that it took.
    pub runs: usize,
    /// Runs that all combinations would have taken.
    pub exhaustive_runs: usize,
    /// Runs that it might have taken.
    #[serde(default)]
    pub budget: usize,
    /// Combinations that it tried, of how many there are; it knows nothing of the others.
    #[serde(default)]
    pub tried: [usize; 2],
    /// Those of them that its runs cannot distinguish from what it found, the best first: their values of the
    /// factors.
    #[serde(default)]
    pub open: Vec<String>,
    /// The steps, if the search went in steps.
    pub steps: Vec<Change>,
}

/// One factor that was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The factor.
    pub factor: String,
    /// Its value before.
    pub from: String,
    /// The best of its other values.
    pub to: String,
    /// That compared with the one before; a ratio above 1 is better.
    pub comparison: Comparison,
    /// Whether it was kept.
    pub kept: bool,
}

/// The result of the search of the experiment in `store`; `None` if there is none, or it has not ended.
pub fn found(store: &Store) -> Option<SearchResult> {
    let experiment = store.experiment();
    if !experiment.is_searched() {
        return None;
    }
    seek(experiment, &mut Kept::of(store)).ok()
}

/// The plan of the experiment whose results are in `store`, with what a search found, once it has ended.
pub fn plan(store: &Store) -> Plan {
    let found = found(store);
    let experiment = store.experiment();
    Plan::new(experiment, found.as_ref().map(|found| &found.settings), experiment.seed())
}

/// Carries a search out by the answers of `measure`.
pub(crate) fn seek<M: Measure>(
    experiment: &Experiment,
    measure: &mut M,
) -> std::result::Result<SearchResult, M::Error> {
    let space = Space::new(experiment.factors.iter().map(|factor| factor.values.len()).collect());
    let seed = experiment.seed();
    let exhaustive_runs = space.points().saturating_mul(experiment.rounds);
    let settings = |point: &Point| experiment.design().with_values(point);
    let (budget, points) = (experiment.search_runs(), space.points());
    if experiment.mode == Mode::Search {
        let found = search::find(&space, budget, seed, measure)?;
        let words = |point: &Point| {
            let values = experiment.factors.iter().zip(point);
            let words = values
                .filter_map(|(factor, at)| Some(format!("{}={}", factor.name, factor.values.get(*at)?)));
            words.collect::<Vec<_>>().join(" ")
        };
        return Ok(SearchResult {
            settings: settings(&found.best),
            runs: found.runs,
            exhaustive_runs,
            budget,
            tried: [found.tried, points],
            open: found.open.iter().map(words).collect(),
            steps: Vec::new(),
        });
    }
    let improved = search::improve(&space, experiment.searched_rounds(), seed, measure)?;
    let steps = improved.steps.into_iter().map(|step| {
        let factor = &experiment.factors[step.factor];
        Change {
            factor: factor.name.clone(),
            from: factor.values[step.from].clone(),
            to: factor.values[step.to].clone(),
            comparison: step.comparison,
            kept: step.kept,
        }
    });
    Ok(SearchResult {
        settings: settings(&improved.end),
        runs: budget,
        exhaustive_runs,
        budget,
        // The present one is in each step again.
        tried: [1 + experiment.factors.iter().map(|factor| factor.values.len() - 1).sum::<usize>(), points],
        open: Vec::new(),
        steps: steps.collect(),
    })
}

/// How good a run is by the goal: more is better.
pub(crate) fn worth(experiment: &Experiment, run: &Run) -> Option<f64> {
    let metric = experiment.goal.metric;
    let value = run.metric(metric).filter(|value| *value > 0.0)?;
    Some(if metric.more_is_better() { value } else { 1.0 / value })
}

/// Answers that were given before.
pub(crate) struct Kept {
    pub(crate) experiment: Experiment,
    worths: HashMap<(usize, String), f64>,
}

impl Kept {
    /// Those of the runs in `store`.
    pub(crate) fn of(store: &Store) -> Self {
        let experiment = store.experiment().clone();
        let runs = store.runs().iter().filter(|run| run.stage == Stage::Search);
        let worths = runs
            .filter_map(|run| Some(((run.round, run.variant.clone()), worth(&experiment, run)?)))
            .collect();
        Self { experiment, worths }
    }

    /// The variant of a point.
    pub(crate) fn variant(&self, point: &Point) -> Variant {
        Variant::of(&self.experiment, self.experiment.design().with_values(point))
    }
}

impl Measure for Kept {
    /// There is no answer yet.
    type Error = ();

    fn measure(&mut self, round: usize, point: &Point) -> std::result::Result<f64, ()> {
        self.worths.get(&(round, self.variant(point).name)).copied().ok_or(())
    }
}
