//! From runs to findings.
//!
//! A finding is one variant with one workload by one metric, compared with the baseline round by round. All findings of one metric are one family for the correction of
//! p-values. A difference is called one when it is certain after that (`p < 0.05`) and larger than the noise floor of its workload and metric, which the baseline and its twin
//! show. What can be told of a variant alone (medians) is told of each, the raw device too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Metric};
use crate::pareto;
use crate::plan::{BASELINE, DEVICE, Plan, TWIN, VariantKind};
use crate::run;
use crate::seek::{self, Sought};
use crate::stats::{self, Comparison, Estimate};
use crate::store::Store;

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
    /// What became of written bytes.
    pub layers: Vec<Written>,
    /// Each variant, workload and metric.
    pub findings: Vec<Finding>,
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
        layers: layers(store, &plan),
        findings,
    };
    all.front = pareto::front(experiment, &all);
    (all.verdict, all.goal_reached) = verdict(experiment, &plan, &all);
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

/// The answer, and whether the goal was reached.
fn verdict(experiment: &Experiment, plan: &Plan, all: &Findings) -> (String, Option<bool>) {
    let (metric, workload) = (experiment.goal.metric, experiment.goal_workload());
    let of = |variant: &str| all.find(variant, workload, metric);
    let Some(baseline) = of(BASELINE) else {
        return ("There is no result yet.".to_owned(), None);
    };
    let better = |a: f64, b: f64| if metric.more_is_better() { a > b } else { a < b };
    let changes: Vec<&Finding> = plan
        .variants()
        .iter()
        .filter(|variant| variant.kind == VariantKind::Change)
        .filter_map(|variant| of(&variant.name))
        .collect();
    let with = |verdict| {
        changes.iter().filter(move |it| it.compared.is_some_and(|compared| compared.verdict == verdict))
    };
    let best =
        with(Verdict::Better).copied().reduce(|best, it| match better(it.median.value, best.median.value) {
            true => it,
            false => best,
        });
    let base = base_words(experiment);
    let mut sentence = match best.and_then(|best| Some((best, best.compared?))) {
        Some((best, compared)) => {
            let ratio = compared.comparison.ratio;
            format!(
                "{} has the best {} with \"{workload}\": {:.2} times that of {base} (from {:.2} to {:.2}).",
                best.variant,
                metric.title(),
                ratio.value,
                ratio.low,
                ratio.high
            )
        }
        None if with(Verdict::Undecided).count() > 0 => format!(
            "Nothing was shown to have a better {} with \"{workload}\" than {base}, but some intervals are too wide to tell; run more rounds.",
            metric.title()
        ),
        None => format!("Nothing has a better {} with \"{workload}\" than {base}.", metric.title()),
    };
    let names = |verdict| with(verdict).map(|it| it.variant.as_str()).collect::<Vec<_>>().join(", ");
    for (verdict, words) in [(Verdict::Worse, "Worse"), (Verdict::NoDifference, "No difference")] {
        let names = names(verdict);
        if !names.is_empty() {
            sentence.push_str(&format!(" {words}: {names}."));
        }
    }
    if let Some(limit) = of(DEVICE) {
        let value = best.unwrap_or(baseline).median.value;
        sentence.push_str(&format!(" The raw device has {:.2} times of that.", limit.median.value / value));
    }
    let value = best.unwrap_or(baseline).median.value;
    let reached = match (experiment.goal.at_least, experiment.goal.at_most) {
        (None, None) => None,
        (least, most) => {
            Some(least.is_none_or(|least| value >= least) && most.is_none_or(|most| value <= most))
        }
    };
    match reached {
        Some(true) => sentence.push_str(" The goal is reached."),
        Some(false) => sentence.push_str(" The goal is not reached."),
        None => {}
    }
    (sentence, reached)
}

/// The baseline by its values of the factors.
pub fn base_words(experiment: &Experiment) -> String {
    let values: Vec<String> = experiment
        .factors
        .iter()
        .filter_map(|factor| Some(format!("{}={}", factor.name, factor.values.first()?)))
        .collect();
    if values.is_empty() { "the baseline".to_owned() } else { values.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::fio::Figures;
    use crate::store::{Run, Stage};

    /// An experiment whose variants have planted speeds: the baseline 1000, the others as given, with 2 % noise and a drift.
    fn planted(ratios: &[f64], rounds: usize, seed: u64) -> (tempfile::TempDir, Store) {
        let values: Vec<String> = (0..=ratios.len()).map(|value| format!("\"{value}\"")).collect();
        let text = format!(
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[factor]]\nname = \"f\"\nvalues = [{}]\n\
             [[workload]]\nname = \"w\"\nrw = \"read\"\nbs = \"4K\"\n",
            values.join(",")
        );
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
                    VariantKind::Change => ratios[variant.settings["f"].parse::<usize>().unwrap() - 1],
                    _ => 1.0,
                };
                drift *= 0.999;
                let iops = 1000.0 * truth * drift * (0.02 * stats::normal(&mut rng)).exp();
                let figures = Figures { iops, ..Figures::default() };
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
