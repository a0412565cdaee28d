//! The course of runs: is there a steady state, and do dips come back regularly?
//!
//! Runs of the same variant and workload are laid over each other, step by step: a feature that all of them
//! have belongs to the workload, a feature of one run does not. Two findings are reported:
//!
//! | finding | when it is reported |
//! |---|---|
//! | no steady state | the last quarter of a run is faster or slower than its first: in every round, certainly (the interval of the median), and by more than two equal variants differ by |
//! | dips | in most runs the rate falls at least three times below half of the run's median, at similar distances |
//!
//! A steady state is only expected of constant loads: a trace or a copy of files changes by itself.

use serde::{Deserialize, Serialize};

use super::{ALPHA, Twins};
use crate::experiment::{CacheState, Metric, Work, Workload};
use crate::plan::{BASELINE, Plan, VariantKind};
use crate::series::Series;
use crate::stats::{self, Comparison, MARGIN};
use crate::store::{Run, Store};

/// Fewer steps have no quarters.
const LEAST_STEPS: usize = 8;
/// A step is deep whose rate is below this share of the median.
const DEEP: f64 = 0.5;
/// The least number of dips in a run that is reported.
const LEAST_DIPS: usize = 3;
/// How much three quarters of the times between dips may differ from their median, as a share of it.
const REGULAR: f64 = 0.35;

/// The course of the runs of one variant with one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The variant's name.
    pub variant: String,
    /// The workload's name.
    pub workload: String,
    /// The unit of the rates: operations (`iops`) or bytes (`throughput`) in a second.
    pub metric: Metric,
    /// Seconds of a step.
    pub step: f64,
    /// The numbers of the runs.
    pub runs: Vec<usize>,
    /// The rates of each of them, step by step.
    pub rates: Vec<Vec<f64>>,
    /// The rate of the last quarter to that of the first, where that is no noise.
    #[serde(default)]
    pub drift: Option<Comparison>,
    /// Regular dips, if there are any.
    #[serde(default)]
    pub dips: Option<Dips>,
}

/// Times at which little is done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Dips {
    /// How many a run has: the median.
    pub count: f64,
    /// Seconds from one to the next: the median.
    pub period: f64,
    /// The lowest rate of one, as a share of the run's median: the median.
    pub depth: f64,
}

impl Timeline {
    /// Seconds since the run began, and the quartiles of all runs: the middle of each step.
    pub fn quartiles(&self) -> Vec<(f64, [f64; 3])> {
        let steps = self.rates.iter().map(Vec::len).min().unwrap_or(0);
        let of = |at: usize| {
            let mut values: Vec<f64> = self.rates.iter().map(|rates| rates[at]).collect();
            values.sort_by(f64::total_cmp);
            let quartile = |share: f64| {
                let place = share * (values.len() - 1) as f64;
                let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
                low + (high - low) * place.fract()
            };
            ((at as f64 + 0.5) * self.step, [0.25, 0.5, 0.75].map(quartile))
        };
        (0..steps).map(of).collect()
    }
}

/// The metric whose rates show the goal.
fn metric(goal: Metric) -> Metric {
    if goal == Metric::Throughput { goal } else { Metric::Iops }
}

/// Of all variants and workloads whose runs were counted step by step.
pub(super) fn all(store: &Store, plan: &Plan, noise: &[Twins]) -> Vec<Timeline> {
    let experiment = store.experiment();
    let metric = metric(experiment.goal.metric);
    let mut all = Vec::new();
    for workload in &experiment.workloads {
        let floor = noise.iter().find(|it| it.workload == workload.name && it.metric == metric);
        let floor = floor.map(|it| it.noise.floor);
        for variant in plan.variants() {
            let its = |run: &&(usize, &Run)| run.1.variant == variant.name && run.1.workload == workload.name;
            let runs: Vec<(usize, &Run)> = store.compared().filter(|run| its(&run)).collect();
            let Some(mut within) = laid_over(&runs, metric) else { continue };
            within.dips = dips(&within);
            let is_steady = workload.work() == Work::Transfers && variant.kind != VariantKind::Device;
            within.drift = drift(&within.rates, floor.unwrap_or(0.0)).filter(|_| is_steady);
            all.push(within);
        }
    }
    // What is certain of one need not be among many.
    let alarms = all.iter().filter(|it| it.rates.len() > 1).count().max(1) as f64;
    for within in &mut all {
        within.drift = within.drift.filter(|drift| drift.p * alarms < ALPHA);
    }
    all
}

/// Runs with series, in steps of the same length.
fn laid_over(runs: &[(usize, &Run)], metric: Metric) -> Option<Timeline> {
    let series: Vec<(usize, &Series)> =
        runs.iter().filter_map(|(number, run)| Some((*number, run.series.as_ref()?))).collect();
    let (_, run) = runs.first()?;
    let step = series.iter().map(|(_, series)| series.step).reduce(f64::max)?;
    let rates = |series: &Series| {
        let same = series.in_steps_of(step);
        same.rates(if metric == Metric::Throughput { &same.bytes } else { &same.operations })
    };
    Some(Timeline {
        variant: run.variant.clone(),
        workload: run.workload.clone(),
        metric,
        step,
        runs: series.iter().map(|(number, _)| *number).collect(),
        // What is less than an operation in a second is nothing.
        rates: series
            .iter()
            .map(|(_, series)| rates(series).iter().map(|rate| rate.round()).collect())
            .collect(),
        drift: None,
        dips: None,
    })
}

/// The last quarter of each run to its first, where that is the same in all and more than noise.
fn drift(rates: &[Vec<f64>], noise_floor: f64) -> Option<Comparison> {
    let quarters = |rates: &Vec<f64>| {
        let quarter = rates.len() / 4;
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        (rates.len() >= LEAST_STEPS).then(|| (mean(&rates[rates.len() - quarter..]), mean(&rates[..quarter])))
    };
    let pairs: Vec<(f64, f64)> = rates.iter().map(quarters).collect::<Option<_>>()?;
    let is_same = |of: fn(&(f64, f64)) -> bool| pairs.iter().all(of);
    let goes_one_way = is_same(|(last, first)| last > first) || is_same(|(last, first)| last < first);
    let drift = stats::compare(&pairs)?;
    // Less than that is no reason for longer runs.
    let least = (1.0 + noise_floor.max(MARGIN)).ln();
    let is_more = drift.ratio.value.ln().abs() > least;
    (goes_one_way && is_more && (drift.ratio.low > 1.0 || drift.ratio.high < 1.0)).then_some(drift)
}

fn dips(within: &Timeline) -> Option<Dips> {
    let (mut counts, mut gaps, mut depths) = (Vec::new(), Vec::new(), Vec::new());
    for rates in &within.rates {
        let usual = stats::median(rates)?;
        let is_deep = |at: usize| rates[at] < DEEP * usual;
        let begins: Vec<usize> = (1..rates.len()).filter(|at| is_deep(*at) && !is_deep(at - 1)).collect();
        counts.push(begins.len() as f64);
        gaps.extend(begins.windows(2).map(|pair| (pair[1] - pair[0]) as f64 * within.step));
        depths.extend(begins.iter().map(|begin| {
            let low = rates[*begin..].iter().take_while(|rate| **rate < DEEP * usual);
            low.copied().fold(f64::MAX, f64::min) / usual
        }));
    }
    let (count, period) = (stats::median(&counts)?, stats::median(&gaps)?);
    let near = gaps.iter().filter(|gap| (**gap / period - 1.0).abs() <= REGULAR).count();
    let is_regular = near * 4 >= gaps.len() * 3 && period >= 2.0 * within.step;
    (count >= LEAST_DIPS as f64 && is_regular).then_some(Dips {
        count,
        period,
        depth: stats::median(&depths)?,
    })
}

/// The findings within the runs of a workload, in sentences; nothing if all is steady.
pub fn told(within: &[Timeline], workload: &Workload) -> Option<String> {
    let its: Vec<&Timeline> = within.iter().filter(|it| it.workload == workload.name).collect();
    let name = |it: &Timeline| {
        if it.variant == BASELINE { "the baseline".to_owned() } else { format!("'{}'", it.variant) }
    };
    let mut drifts: Vec<(&Timeline, Comparison)> =
        its.iter().filter_map(|it| Some((*it, it.drift?))).collect();
    let most = |drift: &Comparison| drift.ratio.value.ln().abs();
    drifts.sort_by(|(_, one), (_, other)| most(other).total_cmp(&most(one)));
    let mut sentences = Vec::new();
    if let Some((it, drift)) = drifts.first() {
        let (ratio, others) = (drift.ratio, drifts.len() - 1);
        let others = match others {
            0 => String::new(),
            1 => ", and with another variant likewise".to_owned(),
            more => format!(", and with {more} other variants likewise"),
        };
        // How it goes with the caches as they were made is just what some want to know.
        let advice = match workload.cache {
            CacheState::Cold | CacheState::Dirty => "",
            CacheState::AsItIs | CacheState::Warm => "; a longer `ramp_seconds` leaves the beginning out",
        };
        sentences.push(format!(
            "No steady state within a run: with {} its last quarter is {} times as fast as its \
             first{others}{advice}.",
            name(it),
            ratio.ratio_words()
        ));
    }
    let mut dipping: Vec<(&Timeline, Dips)> = its.iter().filter_map(|it| Some((*it, it.dips?))).collect();
    dipping.sort_by(|(_, one), (_, other)| one.depth.total_cmp(&other.depth));
    if let Some((it, dips)) = dipping.first() {
        sentences.push(format!(
            "The rate drops regularly: with {} about every {:.1} s, {:.0} times a run, down to {:.0} % of \
             the usual rate.",
            name(it),
            dips.period,
            dips.count,
            dips.depth * 100.0
        ));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(rates: Vec<Vec<f64>>) -> Timeline {
        let runs = (1..=rates.len()).collect();
        let (variant, workload) = (BASELINE.to_owned(), "w".to_owned());
        Timeline { variant, workload, metric: Metric::Iops, step: 0.25, runs, rates, drift: None, dips: None }
    }

    fn workload(more: &str) -> Workload {
        toml::from_str(&format!("name = \"w\"\nrw = \"read\"\n{more}")).unwrap()
    }

    /// Rates around 1000 that go to `end` times that, a little different in each round.
    fn going_to(end: f64) -> Vec<Vec<f64>> {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut rate = |at: usize| 1000.0 * (1.0 + (end - 1.0) * at as f64 / 39.0) * (0.95 + 0.1 * rng.f64());
        (0..5).map(|_| (0..40).map(&mut rate).collect()).collect()
    }

    #[test]
    fn a_run_that_slows_down_is_told_of_and_a_steady_one_is_not() {
        let slower = drift(&going_to(0.5), 0.05).unwrap();
        assert!((0.5..0.7).contains(&slower.ratio.value), "{slower:?}");
        assert_eq!(drift(&going_to(1.0), 0.05), None);
        assert_eq!(drift(&going_to(0.5), 0.9), None, "two equal variants differ by as much");
        let mut one_way = going_to(0.5);
        one_way[2].reverse();
        assert_eq!(drift(&one_way, 0.05), None, "not in every round");
        assert_eq!(drift(&[vec![1.0, 2.0, 3.0]], 0.05), None, "too short");
        let slows = [Timeline { drift: Some(slower), ..within(going_to(0.5)) }];
        let said = told(&slows, &workload("")).unwrap();
        assert!(said.contains("the baseline") && said.contains("ramp_seconds"), "{said}");
        let said = told(&slows, &workload("cache = \"cold\"")).unwrap();
        assert!(said.contains("the baseline") && !said.contains("ramp_seconds"), "{said}");
    }

    #[test]
    fn dips_are_told_where_they_return() {
        let rates = |deep: fn(usize) -> bool| -> Vec<f64> {
            (0..40).map(|at| if deep(at) { 100.0 } else { 1000.0 }).collect()
        };
        let regular = dips(&within(vec![rates(|at| at % 8 == 7), rates(|at| at % 8 == 5)])).unwrap();
        assert_eq!(regular, Dips { count: 5.0, period: 2.0, depth: 0.1 });
        let irregular = |at: usize| [3, 5, 20, 36].contains(&at);
        assert_eq!(dips(&within(vec![rates(irregular); 3])), None);
        assert_eq!(dips(&within(vec![rates(|at| at == 20); 3])), None, "once");
        assert_eq!(dips(&within(vec![rates(|_| false); 3])), None);
        let told = told(&[Timeline { dips: Some(regular), ..within(vec![]) }], &workload("")).unwrap();
        assert!(told.contains("every 2.0 s") && told.contains("10 %"), "{told}");
        assert_eq!(super::told(&[within(vec![])], &workload("")), None);
    }

    #[test]
    fn quartiles_stand_at_the_middle_of_steps() {
        let within = within(vec![vec![1.0, 10.0], vec![2.0, 20.0, 5.0], vec![3.0, 40.0]]);
        assert_eq!(within.quartiles(), [(0.125, [1.5, 2.0, 2.5]), (0.375, [15.0, 20.0, 30.0])]);
    }
}
