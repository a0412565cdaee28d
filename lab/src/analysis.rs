//! From runs to findings.
//!
//! A finding is one variant with one workload by one metric, compared with the baseline round by round. All findings of one metric are one family for the correction of
//! p-values. A difference is called one when it is certain after that (`p < 0.05`) and larger than the noise floor of its workload and metric, which the baseline and its twin
//! show. What can be told of a variant alone (medians) is told of each, the raw device too.

pub mod bounds;
mod verdict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Metric, risk};
use crate::pareto;
use crate::plan::{BASELINE, Plan, TWIN, Variant, VariantKind};
use crate::run;
use crate::seek::{self, Sought};
use crate::stats::{self, Comparison, Estimate};
use crate::store::Store;

pub use verdict::{apart, base_words};

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
    let changes = plan.variants().iter().filter(|variant| variant.kind == VariantKind::Change);
    changes.map(|variant| compare(&values, &variant.name, BASELINE, experiment.goal_workload())).all(
        |comparison| {
            comparison.is_some_and(|it| (it.ratio.high / it.ratio.low).sqrt() - 1.0 <= experiment.precision)
        },
    )
}

/// What the runs so far say.
pub fn findings(store: &Store) -> Findings {
    let (experiment, plan) = (store.experiment(), run::plan(store));
    let findings: Vec<Finding> =
        Metric::ALL.into_iter().flat_map(|metric| of_metric(store, &plan, metric)).collect();
    let runs_of_round = plan.variants().len() * experiment.workloads.len();
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
            let shares: Vec<[f64; 6]> = runs
                .filter_map(|run| {
                    let written = run.figures.written_bytes;
                    let layers = run.served?.layers.filter(|_| written > 0)?;
                    Some(layers.bytes().map(|bytes| bytes as f64 / written as f64))
                })
                .collect();
            let median_of =
                |at: usize| stats::median(&shares.iter().map(|shares| shares[at]).collect::<Vec<_>>());
            if !shares.is_empty() {
                all.push(Written {
                    variant: variant.name.clone(),
                    workload: workload.name.clone(),
                    layers: std::array::from_fn(|at| median_of(at).unwrap_or_default()),
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
    use crate::environment::Environment;
    use crate::fio::Figures;
    use crate::store::{Run, Stage};

    /// An experiment whose variants have planted speeds: the baseline 1000, the others as given, with 2 % noise and a drift.
    fn planted(ratios: &[f64], rounds: usize, seed: u64) -> (tempfile::TempDir, Store) {
        let values: Vec<String> = (0..=ratios.len()).map(|value| value.to_string()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        planted_by("f", &values, ratios, 0.02, rounds, seed)
    }

    /// The same with a factor of this name and these values, the baseline's first, and this noise.
    fn planted_by(
        factor: &str,
        values: &[&str],
        ratios: &[f64],
        noise: f64,
        rounds: usize,
        seed: u64,
    ) -> (tempfile::TempDir, Store) {
        let text = format!(
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[factor]]\nname = \"{factor}\"\nvalues = {values:?}\n\
             [[workload]]\nname = \"w\"\nrw = \"read\"\nbs = \"4K\"\n"
        );
        let ratio_of = |value: &str| ratios[values.iter().position(|it| *it == value).unwrap() - 1];
        let directory = tempfile::tempdir().unwrap();
        let experiment = Experiment::parse(&text).unwrap();
        let mut store = Store::create(directory.path(), experiment, Environment::default()).unwrap();
        let plan = run::plan(&store);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut drift = 1.0;
        for round in 0..rounds {
            for step in plan.round(round) {
                let variant = &plan.variants()[step.variant];
                let truth = match variant.kind {
                    VariantKind::Change => ratio_of(&variant.settings[factor]),
                    _ => 1.0,
                };
                drift *= 0.999;
                let iops = 1000.0 * truth * drift * (noise * stats::normal(&mut rng)).exp();
                // The faster, the larger the latency: a price to be told.
                let figures = Figures { iops, latency: 10.0 * iops, ..Figures::default() };
                let run = Run {
                    stage: Stage::Rounds,
                    round,
                    variant: variant.name.clone(),
                    workload: "w".into(),
                    began: 0,
                    command: vec![],
                    figures,
                    served: None,
                    space: None,
                };
                store.add(&run, "{}").unwrap();
            }
        }
        (directory, store)
    }

    fn verdict_of(findings: &Findings, value: usize) -> Verdict {
        findings.find(&format!("f={value}"), "w", Metric::Iops).unwrap().compared.unwrap().verdict
    }

    #[test]
    fn planted_effects_are_found_and_planted_nothing_is_not() {
        let (_directory, store) = planted(&[1.0, 1.1, 1.5, 0.7], 8, 3);
        let findings = findings(&store);
        let verdicts: Vec<Verdict> = (1..=4).map(|value| verdict_of(&findings, value)).collect();
        assert_eq!(verdicts, [Verdict::NoDifference, Verdict::Better, Verdict::Better, Verdict::Worse]);
        assert!(findings.verdict.starts_with("f=3 has the best IOPS"), "{}", findings.verdict);
        assert_eq!(findings.rounds, 8);
    }

    #[test]
    fn a_gain_is_not_told_without_its_price() {
        let values = ["standard", "always", "disabled"];
        let (_directory, store) = planted_by("sync", &values, &[0.5, 3.0], 0.02, 8, 3);
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
        let (_directory, store) = planted_by("sync", &values, &[3.0, 0.5], 0.02, 8, 3);
        let told = findings(&store).verdict;
        assert!(told.starts_with("sync=always has the best IOPS") && !told.contains("Mind"), "{told}");
    }

    #[test]
    fn a_machine_that_was_not_quiet_is_told_of() {
        let told = |noise| {
            let (_directory, store) = planted_by("f", &["0", "1"], &[1.0], noise, 3, 7);
            findings(&store).verdict
        };
        assert!(told(1.0).contains("This machine was not quiet"), "{}", told(1.0));
        assert!(!told(0.01).contains("quiet"), "{}", told(0.01));
    }

    #[test]
    fn false_alarms_are_rarer_than_one_in_twenty() {
        let alarms = (0..60).filter(|seed| {
            let (_directory, store) = planted(&[1.0; 4], 5, 100 + seed);
            let findings = findings(&store);
            (1..=4).any(|value| matches!(verdict_of(&findings, value), Verdict::Better | Verdict::Worse))
        });
        let alarms = alarms.count();
        assert!(alarms <= 3, "{alarms} of 60 experiments");
    }

    #[test]
    fn precision_is_what_ends_an_experiment() {
        let (_directory, store) = planted(&[1.5], 10, 5);
        assert!(is_precise(&store));
        let (_directory, store) = planted(&[1.5], 2, 5);
        assert!(!is_precise(&store));
    }
}
