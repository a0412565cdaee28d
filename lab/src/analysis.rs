//! From runs to findings.
//!
//! A finding is one variant with one workload by one metric, compared with the baseline round by round. All findings of one metric are one family for the correction of
//! p-values. A difference is called one when it is certain after that (`p < 0.05`) and larger than the noise floor of its workload and metric, which the baseline and its twin
//! show. What can be told of a variant alone (medians) is told of each, the raw device too.

pub mod bounds;
#[cfg(test)]
mod truth;
mod verdict;
pub mod within;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Metric, risk};
use crate::pareto;
use crate::plan::{BASELINE, Plan, TWIN, Variant, VariantKind};
use crate::run;
use crate::seek::{self, Sought};
use crate::stats::{self, Comparison, Estimate};
use crate::store::Store;

pub use verdict::{apart, base_words, noise_words};
pub use within::Within;

/// Chance of a false alarm in a family of comparisons.
pub const ALPHA: f64 = 0.05;
/// Half the width of an interval beyond which "no difference" would say too much: it is then called undecided.
const UNDECIDED: f64 = 0.1;

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Certainly better than the baseline, by more than noise.
    Better,
    /// Certainly worse.
    Worse,
    /// Nothing that this machine could show.
    NoDifference,
    /// The interval is too wide to say either.
    Undecided,
}

impl Verdict {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifference => "no difference",
            Self::Undecided => "undecided",
        }
    }
}

/// One variant with one workload by one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The variant's name.
    pub variant: String,
    /// The workload's name.
    pub workload: String,
    /// What was measured.
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

/// A comparison with what it means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The ratio to the baseline and how certain it is.
    pub comparison: Comparison,
    /// The p-value, corrected for all comparisons by this metric.
    pub corrected_p: f64,
    /// How far two equal variants were apart, as a share.
    pub noise_floor: f64,
    /// What that means.
    pub verdict: Verdict,
}

/// All that an experiment found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Findings {
    /// The answer in a sentence or two.
    pub verdict: String,
    /// Whether the goal's value was reached, by which variant; `None` where none was set.
    pub goal_reached: Option<bool>,
    /// Rounds in which every run was done.
    pub rounds: usize,
    /// Runs in all.
    pub runs: usize,
    /// What a search came to, where there was one and it has ended.
    pub sought: Option<Sought>,
    /// The variants that no other beats in all metrics of the goal, by the first; empty where it has one metric only.
    pub front: Vec<String>,
    /// What can be lost with a variant's settings, where it promises less than others.
    #[serde(default)]
    pub risks: Vec<Risk>,
    /// What became of written bytes.
    pub layers: Vec<Written>,
    /// What happens within runs, where that was counted.
    #[serde(default)]
    pub within: Vec<Within>,
    /// Each variant, workload and metric.
    pub findings: Vec<Finding>,
}

/// What a variant costs in safety.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Risk {
    /// The variant's name.
    pub variant: String,
    /// Its setting, with the value.
    pub setting: String,
    /// What can be lost with it.
    pub loss: String,
}

/// What became of a byte that was written: medians over rounds, per byte of the client's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// The variant's name.
    pub variant: String,
    /// The workload's name.
    pub workload: String,
    /// Bytes of each of [`crate::target::Layers::NAMES`].
    pub layers: [f64; 6],
    /// Bytes that were read from the devices meanwhile, where the client read none: of blocks that were written in part, and of what describes blocks.
    #[serde(default)]
    pub read: Option<f64>,
}

impl Findings {
    /// One of them.
    pub fn find(&self, variant: &str, workload: &str, metric: Metric) -> Option<&Finding> {
        self.findings.iter().find(|finding| {
            finding.variant == variant && finding.workload == workload && finding.metric == metric
        })
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
    let plan = run::plan(store);
    let goal = experiment.workloads.iter().position(|workload| workload.name == experiment.goal_workload());
    let variants = plan.variants().iter().enumerate();
    let is_compared = |(at, variant): &(usize, &Variant)| {
        variant.kind == VariantKind::Change && goal.is_some_and(|goal| plan.has(*at, goal))
    };
    variants
        .filter(is_compared)
        .map(|(_, variant)| compare(&values, &variant.name, BASELINE, experiment.goal_workload()))
        .all(|comparison| {
            comparison.is_some_and(|it| (it.ratio.high / it.ratio.low).sqrt() - 1.0 <= experiment.precision)
        })
}

/// What the runs so far say.
pub fn findings(store: &Store) -> Findings {
    let (experiment, plan) = (store.experiment(), run::plan(store));
    let findings: Vec<Finding> =
        Metric::ALL.into_iter().flat_map(|metric| of_metric(store, &plan, metric)).collect();
    let runs_of_round = plan.round_length();
    let rounds = (0..)
        .take_while(|round| store.compared().filter(|(_, run)| run.round == *round).count() == runs_of_round);
    let mut all = Findings {
        verdict: String::new(),
        goal_reached: None,
        rounds: rounds.count(),
        runs: store.runs().len(),
        sought: seek::found(store),
        front: Vec::new(),
        risks: Vec::new(),
        layers: layers(store, &plan),
        within: within::all(store, &plan, &findings),
        findings,
    };
    all.front = pareto::front(experiment, &all);
    all.risks = risks(experiment, &plan);
    (all.verdict, all.goal_reached) = verdict::verdict(experiment, &plan, &all);
    all
}

fn of_metric(store: &Store, plan: &Plan, metric: Metric) -> Vec<Finding> {
    let values = values(store, metric);
    let mut findings = Vec::new();
    let mut comparisons = Vec::new();
    for workload in &store.experiment().workloads {
        for variant in plan.variants() {
            let Some(mine) = values.get(&(variant.name.as_str(), workload.name.as_str())) else { continue };
            let (runs, mine): (Vec<usize>, Vec<f64>) = mine.values().copied().unzip();
            let Some(median) = stats::median_estimate(&mine) else { continue };
            if variant.kind == VariantKind::Change
                && let Some(comparison) = compare(&values, &variant.name, BASELINE, &workload.name)
            {
                comparisons.push((findings.len(), comparison));
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
    let p_values: Vec<f64> = comparisons.iter().map(|(_, comparison)| comparison.p).collect();
    for ((at, comparison), corrected_p) in comparisons.into_iter().zip(stats::holm(&p_values)) {
        let twins = compare(&values, TWIN, BASELINE, &findings[at].workload);
        let noise_floor = twins.as_ref().map_or(0.0, stats::noise_floor);
        let verdict = judge(&comparison, corrected_p, noise_floor, metric.more_is_better());
        findings[at].compared = Some(Compared { comparison, corrected_p, noise_floor, verdict });
    }
    findings
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

fn layers(store: &Store, plan: &Plan) -> Vec<Written> {
    let mut all = Vec::new();
    for workload in &store.experiment().workloads {
        for variant in plan.variants() {
            let runs = store.compared().map(|(_, run)| run);
            let runs = runs.filter(|run| run.variant == variant.name && run.workload == workload.name);
            let shares: Vec<([f64; 6], Option<f64>)> = runs
                .filter_map(|run| {
                    let written = run.figures.written_bytes;
                    let served = run.served.filter(|served| written > 0 && !served.is_of_more)?;
                    let share = |bytes: u64| bytes as f64 / written as f64;
                    let read = (run.figures.read_bytes == 0).then(|| share(served.read_bytes));
                    Some((served.layers?.bytes().map(share), read))
                })
                .collect();
            let median_of =
                |at: usize| stats::median(&shares.iter().map(|(layers, _)| layers[at]).collect::<Vec<_>>());
            let read: Option<Vec<f64>> = shares.iter().map(|(_, read)| *read).collect();
            if !shares.is_empty() {
                all.push(Written {
                    variant: variant.name.clone(),
                    workload: workload.name.clone(),
                    layers: std::array::from_fn(|at| median_of(at).unwrap_or_default()),
                    read: read.and_then(|read| stats::median(&read)),
                });
            }
        }
    }
    all
}

/// What a comparison means.
pub(crate) fn judge(comparison: &Comparison, p: f64, noise_floor: f64, more_is_better: bool) -> Verdict {
    let ratio = comparison.ratio;
    let above_noise = ratio.value.ln().abs() > noise_floor.ln_1p();
    if p < ALPHA && above_noise {
        return if (ratio.value > 1.0) == more_is_better { Verdict::Better } else { Verdict::Worse };
    }
    let reach = (ratio.high / ratio.low).sqrt() - 1.0;
    if reach > UNDECIDED && !(ratio.low..=ratio.high).contains(&1.0) || reach > 3.0 * UNDECIDED {
        return Verdict::Undecided;
    }
    Verdict::NoDifference
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::Figures;
    use crate::store::{Run, Stage};

    /// An experiment whose variants have planted speeds: the baseline 1000, the others as given, with 2 % noise and a drift.
    fn planted(ratios: &[f64], rounds: usize, seed: u64) -> Store {
        let values: Vec<String> = (0..=ratios.len()).map(|value| value.to_string()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        planted_by("f", &values, ratios, 0.02, 0.999, rounds, seed)
    }

    /// The same with a factor of this name and these values, the baseline's first, and this noise and drift: how many times as fast each run is as the one before.
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
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[factor]]\nname = \"{factor}\"\nvalues = {values:?}\n\
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
                // The faster, the larger the latency: a price to be told.
                let figures = Figures { iops, latency: 10.0 * iops, ..Figures::default() };
                runs.push(Run {
                    stage: Stage::Rounds,
                    round,
                    variant: variant.name.clone(),
                    workload: "w".into(),
                    began: 0,
                    command: vec![],
                    figures,
                    served: None,
                    space: None,
                    series: None,
                    prepared: None,
                    notes: Vec::new(),
                });
            }
        }
        Store::of_runs(experiment, runs)
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
    fn a_gain_is_not_told_without_its_price() {
        let values = ["standard", "always", "disabled"];
        let store = planted_by("sync", &values, &[0.5, 3.0], 0.02, 0.999, 8, 3);
        let found = findings(&store);
        let told = &found.verdict;
        assert!(told.starts_with("sync=disabled has the best IOPS"), "{told}");
        assert!(told.contains("times the mean latency"), "{told}");
        assert!(
            told.contains("Mind that with sync=disabled what programs were told is stable is lost"),
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
        // Of each hundred experiments five at most raise an alarm over nothing, and of each hundred intervals five miss the truth, give or take what chance does.
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
