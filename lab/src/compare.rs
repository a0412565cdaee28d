//! Results beside each other: two, or many over time.
//!
//! # Two
//! Runs of two results were not made in the same rounds, so they cannot be paired: logarithms of the values of both are compared by Welch's test. Whatever differs between the two
//! (machine, kernel, version, neighbours) is part of the difference; what is known to differ is listed, and the raw device, where both have it, shows how much the machine itself did.
//! P-values are corrected over all comparisons by the goal's metric, from which the answer comes, and over all by the other metrics together; what is smaller than the noise floor of either result is neither better nor worse.
//!
//! # Many
//! The medians of at least [`LEAST_FOR_CHANGES`] results, in the order of time, are searched for changes: the place is taken at which the means before and after differ most in units of
//! their spread (the largest t). How large that becomes by chance, with the place being chosen, is found by drawing series without a change; so the spread between results, which runs
//! within one do not show, counts. Where there is a change, both sides are searched again.
//!
//! Sources: Welch 1947; Scott and Knott 1974 (binary segmentation); the distribution of the largest t by simulation, with a fixed seed.

mod html;
mod text;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use crate::analysis::{self, ALPHA, Findings, Verdict};
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Metric};
use crate::stats::{self, Comparison, Estimate};
use crate::store::Store;

pub use html::{PAGE_MARK, page};
pub use text::text;

/// Results that changes can be found in.
pub const LEAST_FOR_CHANGES: usize = 5;
/// Series drawn to learn what chance does.
const DRAWS: usize = 4000;

/// Results beside each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// In a sentence or two.
    pub verdict: String,
    /// The results, in the order in which they are compared.
    pub results: Vec<Given>,
    /// What is known to differ between them beside their figures.
    pub differences: Vec<String>,
    /// By what they are judged, from the first.
    pub goal: Metric,
    /// Each variant, workload and metric that all of them have.
    pub series: Vec<Series>,
}

/// One of the results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Given {
    /// Its directory.
    pub directory: PathBuf,
    /// When it began: seconds since 1970.
    pub began: u64,
    /// Runs in it.
    pub runs: usize,
    /// What of it was modelled: its figures are those of the model.
    pub modelled: Option<String>,
}

impl Given {
    /// It in words.
    pub fn words(&self) -> String {
        let modelled = self.modelled.as_ref().map(|models| format!(", modelled: {models}"));
        format!("{}, {} runs{}", self.directory.display(), self.runs, modelled.unwrap_or_default())
    }
}

/// One variant with one workload by one metric, over the results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The variant.
    pub variant: String,
    /// The workload.
    pub workload: String,
    /// What was measured.
    pub metric: Metric,
    /// The median in each result.
    pub medians: Vec<Estimate>,
    /// The last against the first.
    pub last_to_first: Difference,
    /// Where it changed, where there are results enough to tell; each the number of the first result after it.
    pub changes: Vec<Change>,
}

/// A difference and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// The ratio and how certain it is.
    pub comparison: Comparison,
    /// The p-value, corrected for all comparisons by the goal's metric, or for all by the other metrics.
    pub corrected_p: f64,
    /// How far two equal variants were apart in either result, as a share.
    pub noise_floor: f64,
    /// What that means, for the last.
    pub verdict: Verdict,
}

/// A change over time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// The first result after it, from zero.
    pub at: usize,
    /// How many times what was before.
    pub ratio: f64,
    /// The chance that series without a change look like it, corrected for as many series.
    pub p: f64,
    /// What that means.
    pub verdict: Verdict,
}

impl Compared {
    /// Compares the results in these directories: two in the order given, more in the order of time.
    pub fn of(directories: &[PathBuf]) -> Result<Self> {
        let mut stores = directories.iter().map(|path| Store::open(path)).collect::<Result<Vec<_>>>()?;
        if stores.len() < 2 {
            return Err(Error::Experiment("it takes two results to compare".into()));
        }
        for store in &stores {
            if store.runs().is_empty() {
                let what = "no run has ended yet".into();
                return Err(Error::Results { path: store.directory().to_owned(), what });
            }
        }
        if stores.len() > 2 {
            stores.sort_by_key(began);
        }
        Ok(Self::of_stores(&stores))
    }

    fn of_stores(stores: &[Store]) -> Self {
        let findings: Vec<Findings> = stores.iter().map(analysis::findings).collect();
        let goal = stores.first().map_or(Metric::default(), |store| store.experiment().goal.metric);
        let others: Vec<Metric> = Metric::ALL.into_iter().filter(|metric| *metric != goal).collect();
        let series = [&[goal], others.as_slice()].map(|family| of_family(&findings, family)).concat();
        let results = stores.iter().map(|store| Given {
            directory: store.directory().to_owned(),
            began: began(store),
            runs: store.runs().len(),
            modelled: store.experiment().modelled(),
        });
        let mut compared = Self {
            verdict: String::new(),
            results: results.collect(),
            differences: differences(stores),
            goal,
            series,
        };
        compared.verdict = compared.in_words();
        compared
    }

    fn in_words(&self) -> String {
        let of_goal: Vec<&Series> = self.series.iter().filter(|series| series.metric == self.goal).collect();
        if of_goal.is_empty() {
            return "They have nothing in common to compare.".to_owned();
        }
        let name = |series: &Series| format!("{} with \"{}\"", series.variant, series.workload);
        let mut sentence = String::new();
        for (verdict, word) in [(Verdict::Better, "better"), (Verdict::Worse, "worse")] {
            let names: Vec<String> = of_goal
                .iter()
                .filter(|series| series.last_to_first.verdict == verdict)
                .map(|series| {
                    format!("{} ({:.2} times)", name(series), series.last_to_first.comparison.ratio.value)
                })
                .collect();
            if !names.is_empty() {
                sentence.push_str(&format!(
                    "The last has {word} {}: {}. ",
                    self.goal.title(),
                    names.join(", ")
                ));
            }
        }
        if sentence.is_empty() {
            sentence =
                format!("No difference in {} was shown between the first and the last. ", self.goal.title());
        }
        let undecided = of_goal.iter().filter(|series| series.last_to_first.verdict == Verdict::Undecided);
        let undecided: Vec<String> = undecided.map(|series| name(series)).collect();
        if !undecided.is_empty() {
            sentence.push_str(&format!("Undecided: {}. ", undecided.join(", ")));
        }
        for series in &of_goal {
            for change in &series.changes {
                let directory =
                    self.results.get(change.at).map(|given| given.directory.display().to_string());
                sentence.push_str(&format!(
                    "{} changed to {:.2} times with {}. ",
                    name(series),
                    change.ratio,
                    directory.unwrap_or_default()
                ));
            }
        }
        let modelled = self.results.iter().filter(|given| given.modelled.is_some()).count();
        if modelled > 0 {
            let which = if modelled == self.results.len() { "All" } else { "Some" };
            sentence
                .push_str(&format!("{which} of these results are modelled: no such hardware was there. "));
        }
        sentence.trim_end().to_owned()
    }
}

fn began(store: &Store) -> u64 {
    store.runs().iter().map(|run| run.began).min().unwrap_or(0)
}

/// What differs between experiments and machines.
fn differences(stores: &[Store]) -> Vec<String> {
    let mut told = Vec::new();
    let mut tell = |what: &str, of: &dyn Fn(&Store) -> String| {
        let values: Vec<String> = stores.iter().map(of).collect();
        if values.iter().collect::<BTreeSet<_>>().len() > 1 {
            told.push(format!("{what}: {}", values.join(" | ")));
        }
    };
    tell("version", &|store| store.environment().version.clone());
    tell("processor", &|store| store.environment().cpu.clone());
    tell("cores", &|store| store.environment().cores.to_string());
    tell("memory", &|store| format!("{} MiB", store.environment().memory_bytes >> 20));
    tell("kernel", &|store| store.environment().kernel.clone());
    tell("governor", &|store| store.environment().governor.clone().unwrap_or_else(|| "none".into()));
    tell("instructions", &|store| store.environment().cpu_flags.join(" "));
    // Rounds and their number may differ: figures are those of a run all the same.
    let question = |experiment: &Experiment| Experiment {
        question: String::new(),
        rounds: 0,
        max_rounds: None,
        more_rounds: None,
        seed: None,
        precision: 0.0,
        ..experiment.clone()
    };
    if stores.windows(2).any(|pair| question(pair[0].experiment()) != question(pair[1].experiment())) {
        told.push("the experiments themselves: only what all of them have is compared".to_owned());
    }
    told
}

/// All comparisons by some metrics: what they mean depends on how many there are.
fn of_family(findings: &[Findings], metrics: &[Metric]) -> Vec<Series> {
    let Some((first, rest)) = findings.split_first() else { return Vec::new() };
    let Some(last) = rest.last() else { return Vec::new() };
    let mut found = Vec::new();
    let mut p_values = Vec::new();
    let mut floors = Vec::new();
    let mut medians = Vec::new();
    for mine in first.findings.iter().filter(|finding| metrics.contains(&finding.metric)) {
        let metric = mine.metric;
        let of =
            |findings: &Findings| findings.find(&mine.variant, &mine.workload, metric).map(|it| it.median);
        let Some(all) = findings.iter().map(of).collect::<Option<Vec<Estimate>>>() else { continue };
        let Some(theirs) = last.find(&mine.variant, &mine.workload, metric) else { continue };
        let Some(comparison) = stats::compare_unpaired(&theirs.values, &mine.values) else { continue };
        let floor =
            findings.iter().map(|findings| noise_floor(findings, &mine.workload, metric)).fold(0.0, f64::max);
        p_values.push(comparison.p);
        floors.push(floor);
        medians.push(all);
        found.push((mine, comparison));
    }
    let changes: Vec<Vec<(usize, f64, f64)>> = medians.iter().map(|medians| changes(medians)).collect();
    // The first change of each series is one comparison; those after it were looked for because of it.
    let firsts: Vec<f64> = changes.iter().map(|of| of.first().map_or(1.0, |(_, _, p)| *p)).collect();
    let (corrected, corrected_firsts) = (stats::holm(&p_values), stats::holm(&firsts));
    let mut series = Vec::new();
    for (index, (mine, comparison)) in found.into_iter().enumerate() {
        let (metric, corrected_p, noise_floor) = (mine.metric, corrected[index], floors[index]);
        let verdict = analysis::judge(&comparison, corrected_p, noise_floor, metric.more_is_better());
        let is_certain = corrected_firsts[index] < ALPHA;
        let is_seen = |ratio: f64| ratio.ln().abs() > noise_floor.ln_1p();
        let of_change = |&(at, ratio, p): &(usize, f64, f64)| Change {
            at,
            ratio,
            p: p.max(corrected_firsts[index]),
            verdict: if (ratio > 1.0) == metric.more_is_better() { Verdict::Better } else { Verdict::Worse },
        };
        let mut changes: Vec<Change> = changes[index]
            .iter()
            .filter(|(_, ratio, p)| is_certain && *p < ALPHA && is_seen(*ratio))
            .map(of_change)
            .collect();
        changes.sort_by_key(|change| change.at);
        series.push(Series {
            variant: mine.variant.clone(),
            workload: mine.workload.clone(),
            metric,
            medians: medians[index].clone(),
            last_to_first: Difference { comparison, corrected_p, noise_floor, verdict },
            changes,
        });
    }
    series
}

/// The noise floor of a workload in a result: the same for all of its variants.
fn noise_floor(findings: &Findings, workload: &str, metric: Metric) -> f64 {
    let of = findings.findings.iter().filter(|it| it.workload == workload && it.metric == metric);
    of.filter_map(|it| it.compared).map(|compared| compared.noise_floor).fold(0.0, f64::max)
}

/// Where a series changes, the surest first: the first place after it, the ratio, and the chance of it without a change.
fn changes(medians: &[Estimate]) -> Vec<(usize, f64, f64)> {
    let logs: Vec<f64> = medians.iter().map(|median| median.value.ln()).collect();
    if logs.iter().any(|log| !log.is_finite()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut left = vec![(0, logs.len())];
    while let Some((from, to)) = left.pop() {
        if to - from < LEAST_FOR_CHANGES {
            continue;
        }
        let part = &logs[from..to];
        let (at, largest) = largest_t(part);
        let p = chance_of(largest, part.len());
        if p >= ALPHA && !found.is_empty() {
            continue;
        }
        let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
        found.push((from + at, (mean(&part[at..]) - mean(&part[..at])).exp(), p));
        if p < ALPHA {
            left.extend([(from, from + at), (from + at, to)]);
        }
    }
    found
}

/// The place at which the means before and after differ most, in units of their spread, and by how much.
fn largest_t(logs: &[f64]) -> (usize, f64) {
    let n = logs.len();
    let t = |at: usize| {
        let (before, after) = logs.split_at(at);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let (a, b) = (mean(before), mean(after));
        let squares = |part: &[f64], mean: f64| part.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        let variance = (squares(before, a) + squares(after, b)) / (n - 2) as f64;
        let error = (variance * (1.0 / before.len() as f64 + 1.0 / after.len() as f64)).sqrt();
        // Equal to the last digit on both sides: a step is certain, none is none.
        if error > 0.0 {
            (b - a).abs() / error
        } else if a == b {
            0.0
        } else {
            f64::INFINITY
        }
    };
    let places = (1..n).map(|at| (at, t(at)));
    places.max_by(|x, y| x.1.total_cmp(&y.1)).unwrap_or((1, 0.0))
}

/// The chance that the largest t of `n` results without a change is at least `t`.
fn chance_of(t: f64, n: usize) -> f64 {
    let mut rng = fastrand::Rng::with_seed(n as u64);
    let reached = (0..DRAWS).filter(|_| {
        let drawn: Vec<f64> = (0..n).map(|_| stats::normal(&mut rng)).collect();
        largest_t(&drawn).1 >= t
    });
    (reached.count() + 1) as f64 / (DRAWS + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::fio::Figures;
    use crate::store::{Run, Stage};

    /// A result whose two variants have these IOPS, with noise within it.
    fn result(directory: &std::path::Path, baseline: f64, change: f64, began: u64, seed: u64) -> Store {
        let text = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[factor]]\nname = \"f\"\nvalues = [\"0\", \"1\"]\n\
             [[workload]]\nname = \"w\"\nrw = \"read\"\nbs = \"4K\"\n";
        let experiment = Experiment::parse(text).unwrap();
        let mut store = Store::create(directory, experiment, Environment::default()).unwrap();
        let mut rng = fastrand::Rng::with_seed(seed);
        for round in 0..5 {
            for (variant, truth) in [("baseline", baseline), ("baseline again", baseline), ("f=1", change)] {
                let iops = truth * (0.02 * stats::normal(&mut rng)).exp();
                store.add(&run(round, variant, iops, began), "{}").unwrap();
            }
        }
        store
    }

    fn run(round: usize, variant: &str, iops: f64, began: u64) -> Run {
        Run {
            stage: Stage::Rounds,
            round,
            variant: variant.into(),
            workload: "w".into(),
            began,
            command: vec![],
            figures: Figures { iops, ..Figures::default() },
            served: None,
            space: None,
            series: None,
            prepared: None,
            notes: Vec::new(),
        }
    }

    fn series<'a>(compared: &'a Compared, variant: &str) -> &'a Series {
        compared.series.iter().find(|it| it.variant == variant && it.metric == Metric::Iops).unwrap()
    }

    #[test]
    fn a_planted_difference_between_two_results_is_found_and_none_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let paths = [directory.path().join("a"), directory.path().join("b")];
        result(&paths[0], 1000.0, 1000.0, 10, 1);
        result(&paths[1], 1000.0, 1300.0, 20, 2);
        let compared = Compared::of(&paths).unwrap();
        assert_eq!(series(&compared, "baseline").last_to_first.verdict, Verdict::NoDifference);
        let change = series(&compared, "f=1").last_to_first;
        assert_eq!(change.verdict, Verdict::Better);
        assert!((change.comparison.ratio.low..=change.comparison.ratio.high).contains(&1.3), "{change:?}");
        assert!(compared.verdict.contains("f=1 with \"w\""), "{}", compared.verdict);
        let (text, page) = (text(&compared), page(&compared));
        assert!(text.contains("f=1") && page.contains("f=1") && page.contains("<svg"), "{text}");
        let turned = Compared::of(&[paths[1].clone(), paths[0].clone()]).unwrap();
        assert_eq!(series(&turned, "f=1").last_to_first.verdict, Verdict::Worse);
        assert!(Compared::of(&paths[..1]).is_err());
    }

    #[test]
    fn results_that_were_modelled_are_called_so() {
        let given = |modelled: Option<&str>| Given {
            directory: "a".into(),
            began: 0,
            runs: 3,
            modelled: modelled.map(str::to_owned),
        };
        assert_eq!(given(None).words(), "a, 3 runs");
        assert_eq!(given(Some("nvme, 1gbe")).words(), "a, 3 runs, modelled: nvme, 1gbe");
        let directory = tempfile::tempdir().unwrap();
        let paths = [directory.path().join("a"), directory.path().join("b")];
        let stores = [result(&paths[0], 1000.0, 1000.0, 10, 1), result(&paths[1], 1000.0, 1000.0, 20, 2)];
        drop(stores);
        let real = Compared::of(&paths).unwrap();
        assert!(!text(&real).contains("odelled") && !page(&real).contains("odelled:"));
        let results = [given(Some("nvme")), given(None)].to_vec();
        let mut one = Compared { results, ..real };
        one.verdict = one.in_words();
        assert!(
            text(&one).contains("Some of these results are modelled")
                && text(&one).contains("modelled: nvme")
        );
        assert!(page(&one).contains("modelled: nvme"));
    }

    #[test]
    fn results_that_equal_each_other_are_seldom_called_different() {
        let mut rng = fastrand::Rng::with_seed(11);
        let draw =
            |rng: &mut fastrand::Rng| (0..5).map(|_| (0.03 * stats::normal(rng)).exp()).collect::<Vec<f64>>();
        let trials = 1000;
        let alarms = (0..trials)
            .filter(|_| stats::compare_unpaired(&draw(&mut rng), &draw(&mut rng)).unwrap().p < 0.05);
        let alarms = alarms.count();
        assert!(alarms <= trials * 65 / 1000, "{alarms} of {trials}");
    }

    #[test]
    fn a_change_over_time_is_found_where_it_was_planted() {
        let directory = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for index in 0..8_u64 {
            // Given out of order: time counts.
            let path = directory.path().join(format!("{}", 7 - index));
            let speed = if index < 5 { 1000.0 } else { 800.0 };
            result(&path, speed, 1000.0, 100 + index, index);
            paths.push(path);
        }
        paths.reverse();
        let compared = Compared::of(&paths).unwrap();
        let changes = &series(&compared, "baseline").changes;
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!((changes[0].at, changes[0].verdict), (5, Verdict::Worse));
        assert!((changes[0].ratio - 0.8).abs() < 0.03);
        assert!(series(&compared, "f=1").changes.is_empty());
    }

    #[test]
    fn series_without_a_change_seldom_show_one() {
        let mut rng = fastrand::Rng::with_seed(12);
        for n in [5, 8, 20] {
            let trials = 200;
            let alarms = (0..trials).filter(|_| {
                let logs: Vec<f64> = (0..n).map(|_| stats::normal(&mut rng)).collect();
                chance_of(largest_t(&logs).1, n) < ALPHA
            });
            let alarms = alarms.count();
            assert!(alarms <= trials * 9 / 100, "{n}: {alarms} of {trials}");
        }
    }

    #[test]
    fn steps_are_found_also_when_the_last_result_alone_shows_them_and_when_there_are_two() {
        let estimates = |values: &[f64]| {
            let of = |value: &f64| Estimate { value: *value, low: *value, high: *value };
            values.iter().map(of).collect::<Vec<_>>()
        };
        let last = changes(&estimates(&[100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 150.0]));
        assert!(last[0].0 == 6 && last[0].2 < ALPHA, "{last:?}");
        let mut two = vec![100.0, 101.0, 99.0, 100.5, 99.5, 100.2];
        two.extend([130.0, 131.0, 129.0, 130.5, 129.5, 130.1]);
        two.extend([90.0, 91.0, 89.0, 90.5, 89.5, 90.2]);
        let mut places: Vec<usize> =
            changes(&estimates(&two)).iter().filter(|it| it.2 < ALPHA).map(|it| it.0).collect();
        places.sort_unstable();
        assert_eq!(places, [6, 12]);
    }
}
