//! From runs to findings.
//!
//! A finding is one variant with one workload by one metric, compared with the baseline round by round.
//! P-values are corrected in two families: all comparisons by the goal's metric, from which the answer comes,
//! and all others together, which say what it costs. What can be told of a variant alone (medians) is told of
//! each, the raw device too.
//!
//! | verdict | when |
//! |---|---|
//! | better, worse | certain after correction (`p < 0.05`), and larger than the noise floor of its workload and metric: what the baseline and its twin may differ by, as far as the interval of their ratio goes |
//! | no difference | not that, and certainly less than a tenth: a test of equivalence, corrected as well ([`stats::MARGIN`]); and equal variants do not differ by as much themselves |
//! | undecided | all else, with the reason, and how many rounds would decide |

mod best;
pub mod bounds;
mod claims;
mod conclusion;
mod contrast;
mod judge;
mod left_out;
pub mod pareto;
#[cfg(test)]
mod planted_effects;
pub mod timeline;
mod unfinished;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Metric, risk};
use crate::fio::Latency;
use crate::found::{self, SearchResult};
use crate::plan::{BASELINE, Plan, TWIN, Variant, VariantKind};
use crate::stats::{self, Comparison, Estimate};
use crate::store::{Stage, Store};

pub use best::{Best, BestFor, Rival};
pub use claims::{Claimed, Standing};
pub use conclusion::{Outcome, base_words, noise_share, noise_words};
pub(crate) use conclusion::{cost_words, risk_words};
pub use contrast::{Contrast, Subject};
pub use judge::{Compared, Noise, Verdict, Why};
pub(crate) use judge::{judged, verdicts};
pub use left_out::LeftOut;
use pareto::Open;
pub use timeline::Timeline;

/// Chance of a false alarm in a family of comparisons.
pub const ALPHA: f64 = 0.05;
/// Equal variants that may be further apart than this, as a share, show that the machine was busy otherwise.
const NOISY: f64 = 0.25;

/// One variant with one workload by one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The variant's name.
    pub variant: String,
    /// The workload's name.
    pub workload: String,
    /// The measurement.
    pub metric: Metric,
    /// The median over rounds.
    pub median: Estimate,
    /// Each round's value.
    pub values: Vec<f64>,
    /// The numbers of the runs that had them, one by one: `lab report DIR --run N` shows one.
    pub runs: Vec<usize>,
    /// The comparison with the baseline; `None` for the baseline itself and for the raw device.
    pub compared: Option<Compared>,
}

/// All that an experiment found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Findings {
    /// The answer in some sentences, of which the first says the most.
    pub verdict: String,
    /// The same, sentence by sentence.
    #[serde(default)]
    pub sentences: Vec<String>,
    /// Whether the first sentence is an answer, and not that more rounds are needed.
    #[serde(default)]
    pub is_answered: bool,
    /// What of it was modelled: figures are those of the model, and no such hardware was there. Nothing where
    /// all was real.
    #[serde(default)]
    pub modelled: Option<String>,
    /// The missing runs, if the plan is not complete.
    #[serde(default)]
    pub unfinished: Option<String>,
    /// What was left out of rounds, because it failed each time that it was tried.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// A note that there were too few rounds, if so; all that was planned may have been run.
    #[serde(default)]
    pub few: Option<String>,
    /// The best variant by the goal, where one is certainly better than the baseline.
    #[serde(default)]
    pub best: Option<Best>,
    /// The best variant with each workload, by the goal's metric; none where nothing is to be chosen.
    #[serde(default)]
    pub by_workload: Vec<BestFor>,
    /// Whether the goal's value was reached, by the best variant, or the baseline where none is better;
    /// `None` where none was set.
    pub goal_reached: Option<Outcome>,
    /// Rounds in which every run was done or left out.
    pub rounds: usize,
    /// Runs in all.
    pub runs: usize,
    /// The result of a search that has ended.
    pub search_result: Option<SearchResult>,
    /// The variants that no other beats in all metrics of the goal, by the first; empty where it has one
    /// metric only.
    pub front: Vec<String>,
    /// Those of which that could not be decided.
    #[serde(default)]
    pub front_open: Vec<Open>,
    /// The data that can be lost with a variant's settings, if it promises less than others.
    #[serde(default)]
    pub risks: Vec<Risk>,
    /// Bytes of the largest sectors of each variant's pools, where they were asked.
    #[serde(default)]
    pub sectors: BTreeMap<String, u64>,
    /// Written bytes, layer by layer.
    pub layers: Vec<Written>,
    /// How long reads took, and writes, of workloads that have both.
    #[serde(default)]
    pub directions: Vec<Directions>,
    /// The course of runs, if steps were counted.
    #[serde(default)]
    pub within: Vec<Timeline>,
    /// The gain of caches, the cost of missing devices, and the distance of layers.
    #[serde(default)]
    pub beside: Vec<Contrast>,
    /// What became of the experiment's claims.
    #[serde(default)]
    pub claims: Vec<Claimed>,
    /// The difference of the baseline and its twin, of each workload and metric.
    #[serde(default)]
    pub noise: Vec<Twins>,
    /// Each variant, workload and metric.
    pub findings: Vec<Finding>,
}

/// The difference of two equal variants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Twins {
    /// The workload's name.
    pub workload: String,
    /// The measurement.
    pub metric: Metric,
    /// By how much.
    #[serde(flatten)]
    pub noise: Noise,
}

/// The cost of a variant in safety.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Risk {
    /// The variant's name.
    pub variant: String,
    /// Its setting, with the value.
    pub setting: String,
    /// The data that can be lost with it.
    pub loss: String,
}

/// The way of a written byte: medians over rounds, per byte of the client's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// The variant's name.
    pub variant: String,
    /// The workload's name.
    pub workload: String,
    /// The numbers of the runs that had them.
    #[serde(default)]
    pub runs: Vec<usize>,
    /// Bytes of each of [`crate::counters::Layers::NAMES`], where they were counted.
    pub layers: [Option<f64>; 7],
    /// Bytes that were read from the devices meanwhile, where the client read none: of blocks that were
    /// written in part, and of what describes blocks.
    #[serde(default)]
    pub read: Option<f64>,
}

/// How long reads took, and writes with their flushes: medians over rounds. Findings have the times of both
/// together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Directions {
    /// The variant's name.
    pub variant: String,
    /// The workload's name.
    pub workload: String,
    /// The numbers of the runs that had them.
    pub runs: Vec<usize>,
    /// The reads.
    pub reads: Latency,
    /// The writes.
    pub writes: Latency,
}

impl Findings {
    /// One of them.
    pub fn find(&self, variant: &str, workload: &str, metric: Metric) -> Option<&Finding> {
        self.findings.iter().find(|finding| {
            finding.variant == variant && finding.workload == workload && finding.metric == metric
        })
    }

    /// The difference of two equal variants, if both had two rounds.
    pub fn noise(&self, workload: &str, metric: Metric) -> Option<Noise> {
        self.noise.iter().find(|it| it.workload == workload && it.metric == metric).map(|it| it.noise)
    }
}

/// The values of a metric, by variant, workload and round, each with the number of its run.
type Values<'a> = BTreeMap<(&'a str, &'a str), BTreeMap<usize, (usize, f64)>>;

fn values(store: &Store, metric: Metric) -> Values<'_> {
    let mut values = Values::new();
    for (number, run) in store.compared() {
        if let Some(value) = run.metric(metric) {
            values.entry((&run.variant, &run.workload)).or_default().insert(run.round, (number, value));
        }
    }
    values
}

fn compare(values: &Values<'_>, variant: &str, baseline: &str, workload: &str) -> Option<Comparison> {
    let (ours, theirs) = (values.get(&(variant, workload))?, values.get(&(baseline, workload))?);
    let pairs: Vec<(f64, f64)> =
        ours.iter().filter_map(|(round, (_, value))| Some((*value, theirs.get(round)?.1))).collect();
    stats::compare(&pairs)
}

/// Whether all changes of the goal's metric and workload are known as exactly as the experiment wants.
pub fn is_precise(store: &Store) -> bool {
    let experiment = store.experiment();
    let values = values(store, experiment.goal.metric);
    let plan = found::plan(store);
    let goal = experiment.workloads.iter().position(|workload| workload.name == experiment.goal_workload());
    let variants = plan.variants().iter().enumerate();
    let is_compared = |(at, variant): &(usize, &Variant)| {
        variant.kind == VariantKind::Change && goal.is_some_and(|goal| plan.has(*at, goal))
    };
    variants
        .filter(is_compared)
        .filter(|(_, variant)| !left_out::is_never_measured(store, &variant.name, experiment.goal_workload()))
        .map(|(_, variant)| compare(&values, &variant.name, BASELINE, experiment.goal_workload()))
        .all(|comparison| {
            comparison.is_some_and(|it| (it.ratio.high / it.ratio.low).sqrt() - 1.0 <= experiment.precision)
        })
}

/// The findings of the runs so far.
pub fn findings(store: &Store) -> Findings {
    let (experiment, plan) = (store.experiment(), found::plan(store));
    let (findings, noise) = compared(store, &plan);
    let (by_workload, goal) = (best::each(store, &plan, &findings), experiment.goal_workload());
    let runs_of_round = plan.round_length();
    let rounds = (0..)
        .take_while(|round| store.in_rounds().filter(|run| run.round == *round).count() == runs_of_round);
    let mut all = Findings {
        verdict: String::new(),
        sentences: Vec::new(),
        is_answered: false,
        modelled: experiment.modelled(),
        unfinished: None,
        left_out: left_out::all(store, &plan),
        few: None,
        best: by_workload.iter().find(|it| it.workload == goal).and_then(|it| it.best.clone()),
        by_workload,
        goal_reached: None,
        rounds: rounds.count(),
        runs: store.runs().iter().filter(|run| !matches!(run.stage, Stage::Torn | Stage::LeftOut)).count(),
        search_result: found::found(store),
        front: Vec::new(),
        front_open: Vec::new(),
        risks: Vec::new(),
        sectors: sectors(store),
        layers: layers(store, &plan),
        directions: directions(store, &plan),
        within: timeline::all(store, &plan, &noise),
        beside: Vec::new(),
        claims: Vec::new(),
        noise,
        findings,
    };
    let by_metric: BTreeMap<Metric, Values<'_>> =
        pareto::metrics(experiment).into_iter().map(|metric| (metric, self::values(store, metric))).collect();
    let front = pareto::front(experiment, &all, |one, other, metric| {
        compare(by_metric.get(&metric)?, one, other, experiment.goal_workload())
    });
    (all.front, all.front_open) = (front.unbeaten, front.open);
    all.beside =
        contrast::all(experiment, &plan, all.best.as_ref(), &all.noise, |metric| values(store, metric));
    all.claims = claims::all(experiment, &plan, &all.noise, |metric| values(store, metric));
    all.risks = risks(experiment, &plan);
    all.unfinished = unfinished::told(store, &plan, all.rounds);
    all.few = unfinished::few(store, all.rounds).filter(|_| all.unfinished.is_none());
    let said = conclusion::verdict(experiment, &plan, &all, &unfinished::resume(store));
    (all.sentences, all.goal_reached, all.is_answered) = (said.sentences, said.outcome, said.is_answer);
    all.sentences.extend(all.claims.iter().map(Claimed::sentence));
    all.verdict = all.sentences.join(" ");
    all
}

/// All findings with what they mean, and the noise.
fn compared(store: &Store, plan: &Plan) -> (Vec<Finding>, Vec<Twins>) {
    let goal = store.experiment().goal.metric;
    let (mut findings, mut noise) = (Vec::new(), Vec::new());
    let (mut of_goal, mut of_others) = (Vec::new(), Vec::new());
    for metric in Metric::ALL {
        let family = if metric == goal { &mut of_goal } else { &mut of_others };
        of_metric(store, plan, metric, &mut findings, &mut noise, family);
    }
    for family in [of_goal, of_others] {
        let comparisons: Vec<(Comparison, Noise, bool)> = family
            .iter()
            .map(|it| (it.comparison, it.noise, findings[it.at].metric.more_is_better()))
            .collect();
        for (waiting, compared) in family.iter().zip(judged(&comparisons)) {
            findings[waiting.at].compared = Some(compared);
        }
    }
    (findings, noise)
}

/// A comparison that waits for the others of its family: what it means depends on how many there are.
struct Waiting {
    /// Which finding it is of.
    at: usize,
    comparison: Comparison,
    noise: Noise,
}

/// Adds the findings by one metric, the noise, and the comparisons.
fn of_metric(
    store: &Store,
    plan: &Plan,
    metric: Metric,
    findings: &mut Vec<Finding>,
    noise: &mut Vec<Twins>,
    family: &mut Vec<Waiting>,
) {
    let values = values(store, metric);
    for workload in &store.experiment().workloads {
        let twins = compare(&values, TWIN, BASELINE, &workload.name);
        let of_twins = twins.as_ref().map(Noise::of);
        noise.extend(of_twins.map(|noise| Twins { workload: workload.name.clone(), metric, noise }));
        for variant in plan.variants() {
            let Some(mine) = values.get(&(variant.name.as_str(), workload.name.as_str())) else { continue };
            let (runs, mine): (Vec<usize>, Vec<f64>) = mine.values().copied().unzip();
            let Some(median) = stats::median_estimate(&mine) else { continue };
            if variant.kind == VariantKind::Change
                && let Some(comparison) = compare(&values, &variant.name, BASELINE, &workload.name)
            {
                let noise = of_twins.unwrap_or_default();
                family.push(Waiting { at: findings.len(), comparison, noise });
            }
            findings.push(Finding {
                variant: variant.name.clone(),
                workload: workload.name.clone(),
                metric,
                median,
                values: mine,
                runs,
                compared: None,
            });
        }
    }
}

fn risks(experiment: &Experiment, plan: &Plan) -> Vec<Risk> {
    let variants =
        plan.variants().iter().filter(|it| matches!(it.kind, VariantKind::Baseline | VariantKind::Change));
    let of = |variant: &Variant| {
        let risks = risk::of(&experiment.factors, &variant.settings).into_iter();
        let name = variant.name.clone();
        risks.map(move |(setting, loss)| Risk { variant: name.clone(), setting, loss })
    };
    variants.flat_map(of).collect()
}

fn sectors(store: &Store) -> BTreeMap<String, u64> {
    let mut sectors = BTreeMap::new();
    for (_, run) in store.compared() {
        if let Some(bytes) = run.sector {
            let largest = sectors.entry(run.variant.clone()).or_insert(bytes);
            *largest = bytes.max(*largest);
        }
    }
    sectors
}

fn directions(store: &Store, plan: &Plan) -> Vec<Directions> {
    let mut all = Vec::new();
    for workload in &store.experiment().workloads {
        for variant in plan.variants() {
            let its = store.compared();
            let its = its.filter(|(_, run)| run.variant == variant.name && run.workload == workload.name);
            let (runs, both): (Vec<usize>, Vec<[Latency; 2]>) =
                its.filter_map(|(number, run)| Some((number, run.figures.by_direction?))).unzip();
            let medians = |way: usize| {
                let of = |figure: fn(&Latency) -> f64| {
                    stats::median(&both.iter().map(|both| figure(&both[way])).collect::<Vec<_>>())
                };
                Some(Latency {
                    operations: of(|it| it.operations as f64)? as u64,
                    mean: of(|it| it.mean)?,
                    p50: of(|it| it.p50)?,
                    p99: of(|it| it.p99)?,
                    p999: of(|it| it.p999)?,
                })
            };
            if let Some((reads, writes)) = medians(0).zip(medians(1)) {
                let (variant, workload) = (variant.name.clone(), workload.name.clone());
                all.push(Directions { variant, workload, runs, reads, writes });
            }
        }
    }
    all
}

/// Of one run: bytes of each layer for each that was written, and those that were read for it.
type Shares = ([Option<f64>; 7], Option<f64>);

fn layers(store: &Store, plan: &Plan) -> Vec<Written> {
    let mut all = Vec::new();
    for workload in &store.experiment().workloads {
        for variant in plan.variants() {
            let its = store.compared();
            let its = its.filter(|(_, run)| run.variant == variant.name && run.workload == workload.name);
            let (runs, shares): (Vec<usize>, Vec<Shares>) = its
                .filter_map(|(number, run)| {
                    let written = run.figures.written_bytes;
                    let served = run.served.filter(|served| written > 0 && !served.is_of_more)?;
                    let share = |bytes: u64| bytes as f64 / written as f64;
                    let read = run.read_to_write().map(share);
                    Some((number, (served.layers?.bytes().map(|bytes| bytes.map(share)), read)))
                })
                .unzip();
            let median_of = |at: usize| {
                let of: Option<Vec<f64>> = shares.iter().map(|(layers, _)| layers[at]).collect();
                stats::median(&of?)
            };
            let read: Option<Vec<f64>> = shares.iter().map(|(_, read)| *read).collect();
            if !shares.is_empty() {
                all.push(Written {
                    variant: variant.name.clone(),
                    workload: workload.name.clone(),
                    runs,
                    layers: std::array::from_fn(median_of),
                    read: read.and_then(|read| stats::median(&read)),
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::fio::Figures;
    use crate::store::Run;

    /// An experiment whose variants have planted speeds: the baseline 1000, the others as given, with 2 %
    /// noise and a drift.
    fn planted(ratios: &[f64], rounds: usize, seed: u64) -> Store {
        let values: Vec<String> = (0..=ratios.len()).map(|value| value.to_string()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        planted_by("f", &values, ratios, 0.02, 0.999, rounds, seed)
    }

    /// The same with a factor of this name and these values, the baseline's first, and this noise and drift:
    /// how many times as fast each run is as the one before.
    fn planted_by(
        factor: &str,
        values: &[&str],
        ratios: &[f64],
        noise: f64,
        drift: f64,
        rounds: usize,
        seed: u64,
    ) -> Store {
        let text = format!(
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[factor]]\nname = \
             \"{factor}\"\nvalues = {values:?}\n\
             [[workload]]\nname = \"w\"\nrw = \"read\"\nbs = \"4K\"\n"
        );
        let ratio_of = |value: &str| ratios[values.iter().position(|it| *it == value).unwrap() - 1];
        let experiment = Experiment::parse(&text).unwrap();
        let plan = Plan::new(&experiment, None, seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut speed = 1.0;
        let mut runs = Vec::new();
        for round in 0..rounds {
            for step in plan.round(round) {
                let variant = &plan.variants()[step.variant];
                let truth = match variant.kind {
                    VariantKind::Change => ratio_of(&variant.settings[factor]),
                    _ => 1.0,
                };
                speed *= drift;
                let iops = 1000.0 * truth * speed * (noise * stats::normal(&mut rng)).exp();
                // The faster, the larger the latency: a price to be known.
                let figures = Figures { iops, latency: 10.0 * iops, ..Figures::default() };
                runs.push(Run { round, figures, ..Run::of(Stage::Rounds, &variant.name, "w") });
            }
        }
        Store::of_runs(experiment, runs)
    }

    #[test]
    fn the_answer_is_not_corrected_for_what_it_costs() {
        // Of two variants; each has figures by many other metrics beside.
        let found = findings(&planted(&[1.1, 1.0], 8, 3));
        let compared = |metric| found.find("f=1", "w", metric).unwrap().compared.unwrap();
        let (goal, cost) = (compared(Metric::Iops), compared(Metric::Latency));
        assert!((goal.comparison.p / cost.comparison.p - 1.0).abs() < 1e-6, "the same rounds");
        let times = |it: &Compared| (it.corrected_p / it.comparison.p).round();
        let others = found.findings.iter().filter(|it| it.compared.is_some() && it.metric != Metric::Iops);
        // The least of a family is corrected for all of it.
        assert_eq!((times(&goal), times(&cost)), (2.0, others.count() as f64));
    }

    fn verdict_of(findings: &Findings, value: usize) -> Verdict {
        findings.find(&format!("f={value}"), "w", Metric::Iops).unwrap().compared.unwrap().verdict
    }

    #[test]
    fn planted_effects_are_found_and_planted_nothing_is_not() {
        let store = planted(&[1.0, 1.1, 1.5, 0.7], 8, 3);
        let findings = findings(&store);
        let verdicts: Vec<Verdict> = (1..=4).map(|value| verdict_of(&findings, value)).collect();
        assert_eq!(verdicts, [Verdict::NoDifference, Verdict::Better, Verdict::Better, Verdict::Worse]);
        assert!(findings.verdict.starts_with("f=3 has the best IOPS"), "{}", findings.verdict);
        assert_eq!(findings.rounds, 8);
    }

    #[test]
    fn what_is_certain_comes_first_where_the_goal_is_undecided() {
        // IOPS that say nothing, and what was read for each byte, which is sure.
        let store = planted_by("f", &["0", "1", "2"], &[1.1, 1.2], 0.5, 1.0, 4, 3);
        let cost = |variant: &str| match variant {
            "f=1" => 2.0,
            "f=2" => 4.0,
            _ => 1.0,
        };
        let mut runs = store.runs().to_vec();
        for run in &mut runs {
            let read_bytes = (4096.0 * cost(&run.variant) * (1.0 + run.round as f64 / 1000.0)) as u64;
            run.figures = Figures { read_bytes: 4096, ..run.figures };
            run.served = Some(Counters { read_bytes, ..Counters::default() });
        }
        let found = findings(&Store::of_runs(store.experiment().clone(), runs));
        assert_eq!(found.best, None, "{}", found.verdict);
        let expected = "Certain: reads outside the cache (bytes read from the devices for each byte that the \
            client read) with \"w\": 1.00 with f=0, 2.00 with f=1, 4.01 with f=2.";
        assert_eq!(found.sentences[0], expected);
        assert!(found.is_answered && !found.verdict.contains("Undecided:"), "{}", found.verdict);
        let open = findings(&planted_by("f", &["0", "1", "2"], &[1.1, 1.2], 0.5, 1.0, 4, 3));
        assert!(!open.is_answered && open.verdict.contains("Undecided:"), "{}", open.verdict);
    }

    #[test]
    fn what_cannot_be_told_from_the_best_is_named_with_it() {
        // Two are equally good, one is less so, one is not better.
        let mut equals = 0;
        for seed in 0..20 {
            let found = findings(&planted(&[1.5, 1.2, 1.5, 1.0], 10, seed));
            let best = found.best.as_ref().unwrap();
            let (one, other) = if best.variant == "f=1" { ("f=1", "f=3") } else { ("f=3", "f=1") };
            assert_eq!(best.variant, one);
            let told = &found.verdict;
            let less = best.rivals.iter().find(|rival| rival.variant == "f=2").unwrap();
            assert!(less.is_less && less.comparison.unwrap().ratio.low > 1.1, "{less:?}");
            if best.equals().any(|name| name == other) {
                equals += 1;
                assert!(
                    told.starts_with(&format!("{one} has better IOPS with \"w\" than f=0: 1.")),
                    "{told}"
                );
                assert!(told.contains(&format!("was not shown to be better than {other}:")), "{told}");
                assert!(told.contains("Better than f=0 too, but less so: f=2."), "{told}");
            }
        }
        assert!(equals >= 16, "{equals} of 20");
        assert_eq!(findings(&planted(&[1.0, 0.5], 8, 5)).best, None);
    }

    #[test]
    fn a_goal_is_reached_or_missed_by_the_interval_and_not_by_the_point() {
        let of = |rounds, goal: &str| {
            let mut store = planted(&[1.5], rounds, 3);
            let text = store.experiment().to_toml().unwrap();
            let experiment = Experiment::read(&text.replace("[goal]", &format!("[goal]\n{goal}"))).unwrap();
            store = Store::of_runs(experiment, store.runs().to_vec());
            let found = findings(&store);
            (found.goal_reached, found.verdict)
        };
        // The better of the two has 1480 or so.
        let (reached, told) = of(8, "at_least = 1300");
        assert!(
            reached == Some(Outcome::Reached) && told.contains("IOPS of at least 1300, is reached: f=1 has "),
            "{told}"
        );
        assert_eq!(of(8, "at_least = 1700").0, Some(Outcome::Missed));
        let (open, told) = of(8, "at_least = 1490");
        assert!(open == Some(Outcome::Undecided) && told.contains("may be reached or missed"), "{told}");
        assert_eq!(of(8, "at_most = 1300").0, Some(Outcome::Missed));
        assert_eq!(of(1, "at_least = 10").0, Some(Outcome::Undecided), "of one round");
    }

    #[test]
    fn of_one_round_nothing_is_said_to_be_no_difference() {
        let found = findings(&planted(&[1.0, 3.0], 1, 3));
        assert!(found.verdict.contains("but not all could be decided"), "{}", found.verdict);
        assert!(found.verdict.contains("f=2 (one round decides nothing)"), "{}", found.verdict);
        assert!(!found.verdict.contains("keep that") && !found.verdict.contains("No difference"));
    }

    #[test]
    fn nothing_is_recommended_where_rounds_were_too_few_to_tell() {
        // Twice as fast, in two rounds, among many.
        let store = planted_by("f", &["0", "1", "2", "3", "4"], &[2.0, 1.0, 1.0, 1.0], 0.1, 1.0, 2, 3);
        let found = findings(&store);
        assert_eq!(verdict_of(&found, 1), Verdict::Undecided);
        assert!(found.verdict.contains("not all could be decided"), "{}", found.verdict);
        assert!(!found.verdict.contains("keep that"), "{}", found.verdict);
    }

    #[test]
    fn a_gain_is_not_told_without_its_price() {
        let values = ["standard", "always", "disabled"];
        let store = planted_by("sync", &values, &[0.5, 3.0], 0.02, 0.999, 8, 3);
        let found = findings(&store);
        let told = &found.verdict;
        assert!(told.starts_with("sync=disabled has the best IOPS"), "{told}");
        assert!(told.contains("times the mean latency"), "{told}");
        assert!(
            told.contains("Mind that with sync=disabled data that programs believe to be stable are lost"),
            "{told}"
        );
        let risks: Vec<&str> = found.risks.iter().map(|risk| risk.setting.as_str()).collect();
        assert_eq!(risks, ["sync=disabled"]);
        let store = planted_by("sync", &values, &[3.0, 0.5], 0.02, 0.999, 8, 3);
        let told = findings(&store).verdict;
        assert!(told.starts_with("sync=always has the best IOPS") && !told.contains("Mind"), "{told}");
    }

    #[test]
    fn a_machine_that_was_not_quiet_is_told_of() {
        let told = |noise| {
            let store = planted_by("f", &["0", "1"], &[1.0], noise, 0.999, 3, 7);
            findings(&store).verdict
        };
        assert!(told(1.0).contains("This machine was not quiet"), "{}", told(1.0));
        assert!(!told(0.01).contains("quiet"), "{}", told(0.01));
    }

    #[test]
    fn a_machine_that_changes_on_the_way_is_told_of() {
        let told = |drift| findings(&planted_by("f", &["0", "1"], &[1.0], 0.02, drift, 8, 7)).verdict;
        assert!(told(0.98).contains("no steady state"), "{}", told(0.98));
        assert!(!told(0.999).contains("steady"), "{}", told(0.999));
    }

    #[test]
    fn over_hundreds_of_experiments_effects_are_found_nothing_is_not_and_intervals_hold_the_truth() {
        let truths = [1.0, 1.03, 1.1, 1.5, 1.0, 0.9];
        let (trials, rounds) = (200, 12);
        let mut alarms = 0;
        let (mut found, mut held) = ([0; 6], 0);
        for seed in 0..trials {
            let findings = findings(&planted(&truths, rounds, 1000 + seed));
            let mut is_alarm = false;
            for (at, truth) in truths.into_iter().enumerate() {
                let finding = findings.find(&format!("f={}", at + 1), "w", Metric::Iops).unwrap();
                let Compared { comparison, verdict, .. } = finding.compared.unwrap();
                let ratio = comparison.ratio;
                held += usize::from((ratio.low..=ratio.high).contains(&truth));
                found[at] +=
                    usize::from(verdict == if truth > 1.0 { Verdict::Better } else { Verdict::Worse });
                is_alarm |= truth == 1.0 && matches!(verdict, Verdict::Better | Verdict::Worse);
            }
            alarms += usize::from(is_alarm);
        }
        // Of each hundred experiments five at most raise an alarm over nothing, and of each hundred intervals
        // five miss the truth, give or take what chance does.
        assert!(alarms <= 14, "{alarms} of {trials}");
        let intervals = trials as usize * truths.len();
        assert!((intervals * 93 / 100..=intervals * 97 / 100).contains(&held), "{held} of {intervals}");
        // Three per cent are three times what chance does to a mean of so many rounds; more is always found.
        let [_, small, ten, fifty, _, less] = found;
        assert!(small >= 100 && ten == 200 && fifty == 200 && less == 200, "{found:?}");
    }

    #[test]
    fn precision_is_what_ends_an_experiment() {
        let store = planted(&[1.5], 10, 5);
        assert!(is_precise(&store));
        let store = planted(&[1.5], 2, 6);
        assert!(!is_precise(&store));
    }
}
