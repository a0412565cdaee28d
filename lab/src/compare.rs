//! Comparing results: two, or many over time.
//!
//! # Two
//! Runs of two results were not made in the same rounds, so they cannot be paired: the logarithms of their
//! values are compared by Welch's test. Every difference between the two sessions (machine, kernel, version,
//! neighbours) is part of the result. Known differences of machines and experiments are listed, and the raw
//! device, if both have it, shows the part of the machine itself. Changes from one session to the next cannot
//! be seen in two results, and the report says so. A workload whose load differs between the results is not
//! compared, even if its name is the same. P-values are corrected over all comparisons by the goal's metric,
//! from which the answer comes, and over all by the other metrics together. Verdicts are those of
//! [`crate::analysis`], with the noise floor of the noisier result.
//!
//! # Many
//! The medians of at least [`LEAST_FOR_CHANGES`] results, in the order of time, are searched for changes: the
//! chosen place is the one where the means before and after differ most in units of their spread (the largest
//! t). Series without a change are drawn to find how large this t becomes by chance when the place is chosen;
//! so the spread between results, which runs within one do not show, counts. After a change, both sides are
//! searched again. The correction covers all places that were examined, in all series of a family.
//!
//! Sources: Welch 1947; Scott and Knott 1974 (binary segmentation); the distribution of the largest t by
//! simulation, with a fixed seed, and where chance hardly reaches by the bound that as many places cannot be
//! more probable than the sum of each (Bonferroni): so that a change is also found among hundreds of series.

mod shown;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::analysis::{self, ALPHA, Finding, Findings, LeftOut, Noise, Verdict};
use crate::error::{Error, Result};
use crate::experiment::Metric;
use crate::stats::{self, Estimate};
use crate::store::Store;

pub use shown::{PAGE_MARK, document_of, json, page};
pub use text::text;

/// Results that changes can be found in.
pub const LEAST_FOR_CHANGES: usize = 5;
/// Series drawn to learn what chance does.
const DRAWS: usize = 4000;
/// Where chance is known to reach more seldom than this, draws say nothing.
const RARE: f64 = 0.002;
/// The limits of comparing one session with another.
const UNKNOWN: &str = "Each result is a session of its own. What changes from session to session by itself \
    (heat, neighbours, where files lie on the device) is in the difference of the last to the first, and \
    neither its interval nor its p-value accounts for it: a difference between sessions is proven by several \
    sessions of each, as changes over time are.";

/// How many of many series the verdict names; the tables have all.
const MOST_SERIES: usize = 3;
/// How many of many differences beside figures it names.
const MOST_DIFFERENCES: usize = 6;

/// The first `most` of some things, and how many more there are.
fn first_of<S: std::borrow::Borrow<str>>(all: &[S], most: usize) -> String {
    let (named, more) = all.split_at(all.len().min(most));
    let more = if more.is_empty() { String::new() } else { format!("; and {} more", more.len()) };
    format!("{}{more}", named.join("; "))
}

/// Results beside each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// In a sentence or two.
    pub verdict: String,
    /// The results, in the order in which they are compared.
    pub results: Vec<Given>,
    /// Known differences between them besides their figures.
    pub differences: Vec<String>,
    /// The limits of the difference of the last to the first.
    pub unknown: &'static str,
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
    /// The missing runs.
    pub unfinished: Option<String>,
    /// A note that it has too few rounds.
    pub few: Option<String>,
    /// What was left out of it, because it failed.
    pub left_out: Vec<String>,
}

impl Given {
    /// It in words.
    pub fn words(&self) -> String {
        let modelled = self.modelled.as_ref().map(|models| format!(", modelled: {models}"));
        // The first sentence says what, the others what to do.
        let unfinished = self.unfinished.as_ref().or(self.few.as_ref()).and_then(|it| it.split(". ").next());
        let unfinished = unfinished.map(|it| format!(". {it}")).unwrap_or_default();
        let modelled = modelled.unwrap_or_default();
        let left_out = match self.left_out.len() {
            0 => String::new(),
            _ => ". It lacks runs that failed".to_owned(),
        };
        format!("{}, {} runs{modelled}{unfinished}{left_out}", self.directory.display(), self.runs)
    }
}

/// One variant with one workload by one metric, over the results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The variant.
    pub variant: String,
    /// The workload.
    pub workload: String,
    /// The measurement.
    pub metric: Metric,
    /// The median in each result.
    pub medians: Vec<Estimate>,
    /// The largest difference of two equal variants in all results.
    pub noise: Noise,
    /// The last against the first; what that means is said of the last.
    pub last_to_first: analysis::Compared,
    /// Where it changed, if there are enough results; each the number of the first result after
    /// it.
    pub changes: Vec<Change>,
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
    /// Its meaning.
    pub verdict: Verdict,
}

impl Compared {
    /// Compares the results in these directories: two in the order given, more in the order of time.
    pub fn of(directories: &[PathBuf]) -> Result<Self> {
        let places: Vec<_> = directories.iter().map(|path| std::fs::canonicalize(path).ok()).collect();
        for (at, place) in places.iter().enumerate() {
            if place.is_some() && places[..at].contains(place) {
                let what = "it is named twice".into();
                return Err(Error::Results { path: directories[at].clone(), what });
            }
        }
        let mut stores = directories.iter().map(|path| Store::open(path)).collect::<Result<Vec<_>>>()?;
        if stores.len() < 2 {
            return Err(Error::Experiment("a comparison needs two results".into()));
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
        let (differences, other_loads) = differences(stores);
        let is_same = |workload: &str| !other_loads.contains(workload);
        let series =
            [&[goal], others.as_slice()].map(|family| of_family(&findings, family, &is_same)).concat();
        let results = stores.iter().zip(&findings).map(|(store, findings)| Given {
            directory: store.directory().to_owned(),
            began: began(store),
            runs: store.runs().len() - store.left_out().count(),
            modelled: store.experiment().modelled(),
            unfinished: findings.unfinished.clone(),
            few: findings.few.clone(),
            left_out: findings.left_out.iter().map(LeftOut::sentence).collect(),
        });
        let mut compared = Self {
            verdict: String::new(),
            results: results.collect(),
            differences,
            unknown: UNKNOWN,
            goal,
            series,
        };
        compared.verdict = compared.in_words();
        compared
    }

    fn in_words(&self) -> String {
        let sentences = self.sentences().into_iter().chain(self.cautions()).chain(self.differ());
        sentences.collect::<Vec<_>>().join(" ")
    }

    /// What was found by the goal's metric.
    fn sentences(&self) -> Vec<String> {
        let of_goal: Vec<&Series> = self.series.iter().filter(|series| series.metric == self.goal).collect();
        if of_goal.is_empty() {
            return vec!["They have no workload and metric in common.".to_owned()];
        }
        let name = |series: &Series| format!("{} with \"{}\"", series.variant, series.workload);
        let mut sentences = Vec::new();
        for (verdict, word) in [(Verdict::Better, "better"), (Verdict::Worse, "worse")] {
            let ratio = |series: &Series| series.last_to_first.comparison.ratio.value;
            let mut differing: Vec<&&Series> =
                of_goal.iter().filter(|series| series.last_to_first.verdict == verdict).collect();
            // The widest first.
            differing.sort_by(|one, other| ratio(other).ln().abs().total_cmp(&ratio(one).ln().abs()));
            if !differing.is_empty() {
                let names =
                    differing.iter().map(|it| format!("{} ({} times)", name(it), stats::times(ratio(it))));
                let of_how_many = match (differing.len(), of_goal.len()) {
                    (_, 1) => String::new(),
                    (differing, all) => format!(" in {differing} of {all}"),
                };
                sentences.push(format!(
                    "The last has {word} {}{of_how_many}: {}.",
                    self.goal.title(),
                    first_of(&names.collect::<Vec<_>>(), MOST_SERIES)
                ));
            }
        }
        let undecided = of_goal.iter().filter(|series| series.last_to_first.verdict == Verdict::Undecided);
        let undecided: Vec<String> = undecided.map(|series| name(series)).collect();
        let title = self.goal.title();
        if sentences.is_empty() {
            sentences.push(match undecided.is_empty() {
                true => {
                    format!("No difference in {title} between the first and the last, of a tenth or more.")
                }
                false => format!(
                    "Nothing was shown to differ in {title} between the first and the last, but not all \
                     could be decided."
                ),
            });
        }
        if !undecided.is_empty() {
            sentences.push(format!("Undecided: {}.", first_of(&undecided, MOST_SERIES)));
        }
        let changes =
            of_goal.iter().flat_map(|series| series.changes.iter().map(move |change| (series, change)));
        let changes: Vec<String> = changes
            .map(|(series, change)| {
                let directory =
                    self.results.get(change.at).map(|given| given.directory.display().to_string());
                let directory = directory.unwrap_or_default();
                format!("{} changed to {} times with {directory}", name(series), stats::times(change.ratio))
            })
            .collect();
        if !changes.is_empty() {
            sentences.push(format!("Over time: {}.", first_of(&changes, MOST_SERIES)));
        }
        sentences
    }

    /// Whether something was found by the goal's metric, be it that nothing differs.
    fn is_answered(&self) -> bool {
        let mut of_goal = self.series.iter().filter(|series| series.metric == self.goal);
        of_goal.any(|series| series.last_to_first.verdict != Verdict::Undecided || !series.changes.is_empty())
    }

    /// What a reader must know of these results.
    fn cautions(&self) -> Vec<String> {
        let modelled = self.results.iter().filter(|given| given.modelled.is_some()).count();
        let mut cautions = Vec::new();
        if modelled > 0 {
            let (which, more) = match modelled == self.results.len() {
                true => ("All", ""),
                false => ("Some", ", and figures of a model must not be compared with real ones"),
            };
            cautions
                .push(format!("{which} of these results are modelled: there was no such hardware{more}."));
        }
        if self.results.iter().any(|given| given.unfinished.is_some()) {
            cautions.push("Not all of these results are finished.".to_owned());
        }
        cautions
    }

    /// That they differ in more than figures, where they do.
    fn differ(&self) -> Option<String> {
        let what: Vec<&str> = self
            .differences
            .iter()
            .map(|told| told.split_once(": ").map_or(told.as_str(), |it| it.0))
            .collect();
        (!what.is_empty())
            .then(|| format!("They differ in other things as well: {}.", first_of(&what, MOST_DIFFERENCES)))
    }
}

fn began(store: &Store) -> u64 {
    store.runs().iter().map(|run| run.began).min().unwrap_or(0)
}

/// What of a workload is no other load: for how long it runs, and in which form of the experiment.
const OF_NO_LOAD: [&str; 3] = ["seconds", "ramp_seconds", "quick"];

/// The differences between experiments and machines, and the workloads that have one name and are not the
/// same load.
fn differences(stores: &[Store]) -> (Vec<String>, BTreeSet<String>) {
    let mut told = Vec::new();
    let mut tell = |what: &str, of: &dyn Fn(&Store) -> String| {
        let values: Vec<String> = stores.iter().map(of).collect();
        let differs = values.iter().collect::<BTreeSet<_>>().len() > 1;
        if differs {
            told.push(format!("{what}: {}", values.join(" | ")));
        }
        differs
    };
    tell("version", &|store| store.environment().version.clone());
    tell("processor", &|store| store.environment().cpu.clone());
    tell("cores", &|store| store.environment().cores.to_string());
    tell("memory", &|store| format!("{} MiB", store.environment().memory_bytes >> 20));
    tell("kernel", &|store| store.environment().kernel.clone());
    tell("governor", &|store| store.environment().governor.clone().unwrap_or_else(|| "none".into()));
    tell("virtual machine", &|store| if store.environment().is_virtual { "yes" } else { "no" }.to_owned());
    tell("media", &media);
    tell("instructions", &|store| store.environment().cpu_flags.join(" "));
    tell("machines of remote layers", &|store| {
        let guests = store.environment().guests.iter();
        let of = guests.map(|(name, guest)| format!("{name}: {}, kernel {}", guest.cpu, guest.kernel));
        if store.environment().guests.is_empty() { "none".into() } else { of.collect::<Vec<_>>().join(", ") }
    });
    tell("OpenZFS", &|store| store.environment().openzfs.join(", "));
    tell("what is modelled", &|store| store.experiment().modelled().unwrap_or_else(|| "nothing".into()));
    let parts: Vec<BTreeMap<String, String>> = stores.iter().map(parts).collect();
    let names: BTreeSet<&String> = parts.iter().flat_map(BTreeMap::keys).collect();
    let mut other_loads = BTreeSet::new();
    for name in names {
        let of = |store: &Store| {
            let at = stores.iter().position(|it| std::ptr::eq(it, store));
            at.and_then(|at| parts[at].get(name)).map_or_else(|| "none".to_owned(), String::clone)
        };
        if tell(name, &of)
            && let Some((workload, field)) =
                name.strip_prefix("workload ").and_then(|it| it.rsplit_once(", "))
            && !OF_NO_LOAD.contains(&field)
        {
            other_loads.insert(workload.to_owned());
        }
    }
    (told, other_loads)
}

/// What a result's devices and files lay on: by kind, not by their places, which are others in each result.
fn media(store: &Store) -> String {
    let media: BTreeSet<String> =
        store.environment().media.iter().map(|(_, medium)| medium.to_string()).collect();
    if media.is_empty() { "not known".to_owned() } else { media.into_iter().collect::<Vec<_>>().join("; ") }
}

/// What an experiment is made of, each part by its name. Without how many rounds there are: figures are those
/// of a run all the same; and without workloads of which others know nothing.
fn parts(store: &Store) -> BTreeMap<String, String> {
    let mut parts = BTreeMap::new();
    let text = store.experiment().to_toml().unwrap_or_default();
    for (name, value) in text.parse::<toml::Table>().unwrap_or_default() {
        if ![
            "name",
            "question",
            "rounds",
            "max_rounds",
            "more_rounds",
            "seed",
            "precision",
            "budget",
            "measured",
            "within_seconds",
            "left_out_rounds",
        ]
        .contains(&name.as_str())
        {
            of_part(name, &value, &mut parts);
        }
    }
    parts
}

/// Adds a part, and what it is made of.
fn of_part(name: String, value: &toml::Value, parts: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table.iter().filter(|(key, _)| *key != "name") {
                of_part(format!("{name}, {key}"), value, parts);
            }
        }
        toml::Value::Array(all) if all.iter().any(toml::Value::is_table) => {
            for (at, one) in all.iter().enumerate() {
                let own = one.get("name").and_then(toml::Value::as_str);
                let own = own.map_or_else(|| (at + 1).to_string(), str::to_owned);
                of_part(format!("{name} {own}"), one, parts);
            }
        }
        toml::Value::String(text) => drop(parts.insert(name, text.clone())),
        other => drop(parts.insert(name, other.to_string())),
    }
}

/// All comparisons by some metrics: what they mean depends on how many there are.
fn of_family(findings: &[Findings], metrics: &[Metric], is_same: &dyn Fn(&str) -> bool) -> Vec<Series> {
    let Some((first, rest)) = findings.split_first() else { return Vec::new() };
    let Some(last) = rest.last() else { return Vec::new() };
    let mut found = Vec::new();
    let (mut family, mut medians) = (Vec::new(), Vec::new());
    let is_one = |finding: &&Finding| metrics.contains(&finding.metric) && is_same(&finding.workload);
    for mine in first.findings.iter().filter(is_one) {
        let metric = mine.metric;
        let of =
            |findings: &Findings| findings.find(&mine.variant, &mine.workload, metric).map(|it| it.median);
        let Some(all) = findings.iter().map(of).collect::<Option<Vec<Estimate>>>() else { continue };
        let Some(theirs) = last.find(&mine.variant, &mine.workload, metric) else { continue };
        let Some(comparison) = stats::compare_unpaired(&theirs.values, &mine.values) else { continue };
        let noise = findings.iter().filter_map(|findings| findings.noise(&mine.workload, metric));
        let noise = noise.reduce(Noise::or_noisier);
        family.push((comparison, noise.unwrap_or_default(), metric.more_is_better()));
        medians.push(all);
        found.push(mine);
    }
    let (judged, changes) = (analysis::judged(&family), changes_of(&medians));
    let mut series = Vec::new();
    for (index, (mine, last_to_first)) in found.into_iter().zip(judged).enumerate() {
        let (metric, noise) = (mine.metric, family[index].1);
        let is_seen = |change: &&Found| change.ratio.ln().abs() > noise.reach.ln_1p();
        let of_change = |change: &Found| Change {
            at: change.at,
            ratio: change.ratio,
            p: change.p,
            verdict: match (change.ratio > 1.0) == metric.more_is_better() {
                true => Verdict::Better,
                false => Verdict::Worse,
            },
        };
        let mut changes: Vec<Change> = changes[index].iter().filter(is_seen).map(of_change).collect();
        changes.sort_by_key(|change| change.at);
        series.push(Series {
            variant: mine.variant.clone(),
            workload: mine.workload.clone(),
            metric,
            medians: medians[index].clone(),
            noise,
            last_to_first,
            changes,
        });
    }
    series
}

/// A place at which a series may change.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Found {
    /// The first result after it.
    at: usize,
    ratio: f64,
    /// The chance of it without a change.
    p: f64,
}

/// Where some series change, the surest places of each first: p-values are corrected for all places that were
/// looked for in any of them.
fn changes_of(all: &[Vec<Estimate>]) -> Vec<Vec<Found>> {
    let mut chance = Chance::default();
    let found: Vec<Vec<Found>> = all.iter().map(|medians| looked_for(medians, &mut chance)).collect();
    let p_values: Vec<f64> = found.iter().flatten().map(|it| it.p).collect();
    let mut corrected = stats::holm(&p_values).into_iter();
    let with_corrected = |of: Vec<Found>| {
        let of = of.into_iter().zip(corrected.by_ref()).map(|(it, p)| Found { p, ..it });
        // All were asked for, and those after the first only because of it.
        let of: Vec<Found> = of.collect();
        let is_certain = of.first().is_some_and(|first| first.p < ALPHA);
        of.into_iter().filter(|it| is_certain && it.p < ALPHA).collect()
    };
    found.into_iter().map(with_corrected).collect()
}

/// Places at which a series may change, by itself: the first that was looked for, and where that is one,
/// those on both sides of it.
fn looked_for(medians: &[Estimate], chance: &mut Chance) -> Vec<Found> {
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
        let p = chance.of(largest, part.len());
        let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
        found.push(Found { at: from + at, ratio: (mean(&part[at..]) - mean(&part[..at])).exp(), p });
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

/// What chance does, by how many results there are: the largest t of series without a change, sorted.
#[derive(Default)]
struct Chance(BTreeMap<usize, Vec<f64>>);

impl Chance {
    /// The chance that the largest t of `n` results without a change is at least `t`.
    fn of(&mut self, t: f64, n: usize) -> f64 {
        // At each of the places it is a t by itself.
        let each = StudentsT::new(0.0, 1.0, (n - 2) as f64).map_or(1.0, |student| 2.0 * student.cdf(-t));
        let most = if t.is_finite() { each * (n - 1) as f64 } else { 0.0 };
        if most < RARE {
            return most;
        }
        let drawn = self.0.entry(n).or_insert_with(|| {
            let mut rng = fastrand::Rng::with_seed(n as u64);
            let mut series = || (0..n).map(|_| stats::normal(&mut rng)).collect::<Vec<f64>>();
            let mut drawn: Vec<f64> = (0..DRAWS).map(|_| largest_t(&series()).1).collect();
            drawn.sort_by(f64::total_cmp);
            drawn
        });
        let reached = DRAWS - drawn.partition_point(|drawn| *drawn < t);
        (reached + 1) as f64 / (DRAWS + 1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::experiment::Experiment;
    use crate::fio::Figures;
    use crate::report::document::{Bar, Block, Class};
    use crate::store::{Run, Stage};

    fn bars(block: &Block) -> Option<&[Bar]> {
        if let Block::Bars { bars, .. } = block { Some(bars) } else { None }
    }

    /// A result whose two variants have these IOPS, with noise within it.
    fn result(directory: &std::path::Path, baseline: f64, change: f64, began: u64, seed: u64) -> Store {
        result_of(directory, "", [baseline, change], began, seed)
    }

    /// One of another experiment: with this as well in its workload.
    fn result_of(
        directory: &std::path::Path,
        more: &str,
        [baseline, change]: [f64; 2],
        began: u64,
        seed: u64,
    ) -> Store {
        let text = format!(
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[factor]]\nname = \"f\"\nvalues = \
             [\"0\", \"1\"]\n\
             [[workload]]\nname = \"w\"\nrw = \"read\"\n{more}\n"
        );
        let experiment = Experiment::parse(&text).unwrap();
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
        let figures = Figures { iops, ..Figures::default() };
        Run { round, began, figures, ..Run::of(Stage::Rounds, variant, "w") }
    }

    fn series<'a>(compared: &'a Compared, variant: &str) -> &'a Series {
        compared.series.iter().find(|it| it.variant == variant && it.metric == Metric::Iops).unwrap()
    }

    #[test]
    fn a_result_is_not_compared_with_itself() {
        let directory = tempfile::tempdir().unwrap();
        let again = directory.path().join(".");
        let told = Compared::of(&[directory.path().to_owned(), again]).unwrap_err().to_string();
        assert!(told.contains("it is named twice"), "{told}");
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
        let (text, document) = (text(&compared), document_of(&compared));
        assert!(text.contains("f=1") && document.texts().contains("f=1"), "{text}");
        assert!(document.answer.as_ref().is_some_and(|answer| answer.is_answered), "{document:?}");
        let bars: Vec<&[Bar]> = document.blocks.iter().filter_map(bars).collect();
        // The variant, the baseline and its twin.
        assert_eq!(bars.len(), 3, "{document:?}");
        let classes = |bars: &[Bar]| bars.iter().map(|bar| bar.class).collect::<Vec<_>>();
        assert!(bars.iter().any(|bars| classes(bars) == [Class::Baseline, Class::Better]), "{bars:?}");
        let page = page(&compared).unwrap();
        assert!(page.find(PAGE_MARK).is_some_and(|at| at < 1024) && page.contains("f=1"), "{page}");
        // Only pages like it may be written over without being asked.
        assert!(!crate::report::page(&document).unwrap().contains(PAGE_MARK));
        let json: serde_json::Value = serde_json::from_str(&json(&compared).unwrap()).unwrap();
        // Parsed from a text, as the other one.
        let told = serde_json::to_string(&document).unwrap();
        assert_eq!(json["document"], serde_json::from_str::<serde_json::Value>(&told).unwrap());
        assert_eq!(json["verdict"], compared.verdict);
        let turned = Compared::of(&[paths[1].clone(), paths[0].clone()]).unwrap();
        assert_eq!(series(&turned, "f=1").last_to_first.verdict, Verdict::Worse);
        assert!(Compared::of(&paths[..1]).is_err());
    }

    #[test]
    fn of_many_differences_the_verdict_names_the_widest() {
        let directory = tempfile::tempdir().unwrap();
        let paths = [directory.path().join("a"), directory.path().join("b")];
        result(&paths[0], 1000.0, 1000.0, 10, 1);
        result(&paths[1], 1000.0, 1300.0, 20, 2);
        let mut compared = Compared::of(&paths).unwrap();
        let planted = series(&compared, "f=1").clone();
        compared.series = (1..=5)
            .map(|number| {
                let mut one = planted.clone();
                one.variant = format!("number {number}");
                one.last_to_first.comparison.ratio.value = 1.0 + f64::from(number);
                one
            })
            .collect();
        let told = compared.in_words();
        let named = "number 5 with \"w\" (6.00 times); number 4 with \"w\" (5.00 times); number 3 with \"w\" \
            (4.00 times); and 2 more. ";
        assert!(told.starts_with(&format!("The last has better IOPS in 5 of 5: {named}")), "{told}");
    }

    #[test]
    fn results_that_were_modelled_are_called_so() {
        let given = |modelled: Option<&str>| Given {
            directory: "a".into(),
            began: 0,
            runs: 3,
            modelled: modelled.map(str::to_owned),
            unfinished: None,
            few: None,
            left_out: Vec::new(),
        };
        assert_eq!(given(None).words(), "a, 3 runs");
        assert_eq!(given(Some("nvme, 1gbe")).words(), "a, 3 runs, modelled: nvme, 1gbe");
        let directory = tempfile::tempdir().unwrap();
        let paths = [directory.path().join("a"), directory.path().join("b")];
        let stores = [result(&paths[0], 1000.0, 1000.0, 10, 1), result(&paths[1], 1000.0, 1000.0, 20, 2)];
        drop(stores);
        let real = Compared::of(&paths).unwrap();
        assert!(!text(&real).contains("odelled") && !document_of(&real).texts().contains("odelled"));
        let results = [given(Some("nvme")), given(None)].to_vec();
        let mut one = Compared { results, ..real };
        one.verdict = one.in_words();
        assert!(
            text(&one).contains("Some of these results are modelled")
                && text(&one).contains("modelled: nvme")
        );
        let document = document_of(&one);
        assert!(document.texts().contains("modelled: nvme"));
        assert!(document.notes[0].starts_with("Some of these results are modelled"), "{document:?}");
    }

    #[test]
    fn what_differs_beside_figures_is_told_and_another_load_is_not_compared() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c", "d"].map(|name| directory.path().join(name));
        result(&paths[0], 1000.0, 1000.0, 10, 1);
        result_of(&paths[1], "iodepth = 8", [4000.0, 4000.0], 20, 2);
        result_of(&paths[2], "seconds = 3", [1000.0, 1000.0], 30, 3);
        let of = |at: usize| Compared::of(&[paths[0].clone(), paths[at].clone()]).unwrap();
        let other = of(1);
        assert!(other.series.is_empty(), "{:?}", other.series);
        assert_eq!(other.differences, ["workload w, iodepth: 1 | 8"]);
        assert!(
            other.verdict.contains(
                "no workload and metric in \
            common"
            ) && other.verdict.contains("workload w, iodepth")
        );
        let longer = of(2);
        assert!(!longer.series.is_empty() && longer.differences[0].starts_with("workload w, seconds: "));
        assert!(longer.verdict.starts_with("No difference in IOPS"), "{}", longer.verdict);
        assert!(longer.verdict.contains("They differ in other things as well: workload w, seconds."));
        assert!(
            text(&longer).contains("session of its own")
                && document_of(&longer).texts().contains("session of its own")
        );
        // Ones without runs of the raw device say so.
        result(&paths[3], 1000.0, 1000.0, 40, 4);
        let unfinished = of(3);
        assert!(unfinished.results[1].words().contains(". Unfinished: 0 of 5 rounds"), "{unfinished:?}");
        assert!(unfinished.verdict.contains("Not all of these results are finished."));
    }

    #[test]
    fn other_media_and_a_virtual_machine_are_differences() {
        let directory = tempfile::tempdir().unwrap();
        let stores = [("a", "ext4", false), ("b", "xfs", true)].map(|(name, kind, is_virtual)| {
            let medium = crate::medium::Medium {
                model: Some("sda".into()),
                sector: Some(512),
                filesystem: Some(kind.into()),
                ..Default::default()
            };
            // Its place is another each time, and no difference.
            let media = vec![(directory.path().join(name), medium)];
            let environment = Environment { is_virtual, media, ..Environment::default() };
            let text = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[workload]]\nname = \
                \"w\"\nrw = \"read\"\n";
            Store::create(&directory.path().join(name), Experiment::parse(text).unwrap(), environment)
                .unwrap()
        });
        let told = differences(&stores).0;
        let media = "media: ext4 on sda, sectors of 512 bytes | xfs on sda, sectors of 512 bytes";
        assert_eq!(told, ["virtual machine: no | yes", media]);
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
        let mut chance = Chance::default();
        for n in [5, 8, 20] {
            let trials = 200;
            let alarms = (0..trials).filter(|_| {
                let logs: Vec<f64> = (0..n).map(|_| stats::normal(&mut rng)).collect();
                chance.of(largest_t(&logs).1, n) < ALPHA
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
        let changes = |values: &[f64]| changes_of(&[estimates(values)]).remove(0);
        let last = changes(&[100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 150.0]);
        assert!(last[0].at == 6 && last[0].p < ALPHA, "{last:?}");
        let mut two = vec![100.0, 101.0, 99.0, 100.5, 99.5, 100.2];
        two.extend([130.0, 131.0, 129.0, 130.5, 129.5, 130.1]);
        two.extend([90.0, 91.0, 89.0, 90.5, 89.5, 90.2]);
        let mut places: Vec<usize> = changes(&two).iter().map(|it| it.at).collect();
        places.sort_unstable();
        assert_eq!(places, [6, 12]);
    }

    #[test]
    fn among_hundreds_of_series_a_change_is_found_and_no_other() {
        let mut rng = fastrand::Rng::with_seed(17);
        let mut alarms = 0;
        for _ in 0..20 {
            let mut series = |step: f64| -> Vec<Estimate> {
                let of = |at: usize| if at < 6 { 100.0 } else { 100.0 * step };
                let value = |at: usize| of(at) * (0.02 * stats::normal(&mut rng)).exp();
                (0..12).map(value).map(|value| Estimate { value, low: value, high: value }).collect()
            };
            let mut all: Vec<Vec<Estimate>> = (0..300).map(|_| series(1.0)).collect();
            all.push(series(1.3));
            let found = changes_of(&all);
            assert_eq!(found[300].iter().map(|it| it.at).collect::<Vec<_>>(), [6], "{:?}", found[300]);
            alarms += usize::from(found[..300].iter().any(|of| !of.is_empty()));
        }
        assert!(alarms <= 2, "{alarms} of 20");
    }
}
