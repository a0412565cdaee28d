//! Which variant is the best by the goal, and which others cannot be distinguished from it.
//!
//! All variants that are certainly better than the baseline were compared with the baseline, not with each
//! other: the one with the best median may be first by chance. So it is compared with each of the others,
//! round by round, with a correction for the choice ([`stats::against_all`]).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{ALPHA, Finding, Verdict, values};
use crate::experiment::{Metric, THROUGH, Workload};
use crate::plan::{Plan, Variant, VariantKind};
use crate::stats::{self, Comparison};
use crate::store::Store;

/// The best variant by the goal's metric with a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The one with the best median of those that are certainly better than the baseline.
    pub variant: String,
    /// The others that are certainly better than the baseline.
    pub rivals: Vec<Rival>,
}

/// Another variant that is better than the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rival {
    /// The variant's name.
    pub variant: String,
    /// The best one to it; its p-value is corrected. `None` of too few rounds.
    pub comparison: Option<Comparison>,
    /// Whether it is certainly less good than the best, by more than noise.
    pub is_less: bool,
}

impl Best {
    /// The names of those that cannot be distinguished from it.
    pub fn equals(&self) -> impl Iterator<Item = &str> {
        self.rivals.iter().filter(|rival| !rival.is_less).map(|rival| rival.variant.as_str())
    }
}

/// The variants that are compared with the baseline. Another way to the volume is none: it is a layer that is
/// measured, and nothing to choose.
pub(super) fn changes(plan: &Plan) -> impl Iterator<Item = &Variant> {
    let way = plan.variants().first().and_then(|baseline| baseline.settings.get(THROUGH));
    let changes = plan.variants().iter().filter(|variant| variant.kind == VariantKind::Change);
    changes.filter(move |variant| variant.settings.get(THROUGH) == way)
}

/// The best for a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestFor {
    /// The workload's name.
    pub workload: String,
    /// The best variant with it by the goal's metric, where one is certainly better than the baseline.
    pub best: Option<Best>,
}

/// The best for each workload; nothing where there are no variants to choose from.
pub(super) fn each(store: &Store, plan: &Plan, findings: &[Finding]) -> Vec<BestFor> {
    let workloads = store.experiment().workloads.iter().filter(|_| changes(plan).next().is_some());
    let of = |workload: &Workload| BestFor {
        workload: workload.name.clone(),
        best: find(store, plan, findings, &workload.name),
    };
    workloads.map(of).collect()
}

fn find(store: &Store, plan: &Plan, findings: &[Finding], workload: &str) -> Option<Best> {
    let metric = store.experiment().goal.metric;
    let names: Vec<&str> = changes(plan).map(|variant| variant.name.as_str()).collect();
    let is_better = |it: &&Finding| {
        let is_it = it.metric == metric && it.workload == workload && names.contains(&it.variant.as_str());
        is_it && it.compared.is_some_and(|compared| compared.verdict == Verdict::Better)
    };
    let mut all: Vec<&Finding> = findings.iter().filter(is_better).collect();
    // The first of equals stays so.
    all.sort_by(|one, other| {
        let [one, other] = [one, other].map(|it| it.median.value);
        if metric.more_is_better() { other.total_cmp(&one) } else { one.total_cmp(&other) }
    });
    let (best, others) = all.split_first()?;
    let noise_floor = best.compared.map_or(0.0, |compared| compared.noise_floor);
    let compared = side_by_side(store, metric, workload, &all);
    let rivals = others.iter().zip(compared).map(|(other, comparison)| Rival {
        variant: other.variant.clone(),
        comparison,
        is_less: comparison.is_some_and(|it| {
            let gain = if metric.more_is_better() { it.ratio.value.ln() } else { -it.ratio.value.ln() };
            it.p < ALPHA && gain > noise_floor.ln_1p()
        }),
    });
    Some(Best { variant: best.variant.clone(), rivals: rivals.collect() })
}

/// The first of some findings with each of the others, in the rounds that all of them have.
fn side_by_side(store: &Store, metric: Metric, workload: &str, all: &[&Finding]) -> Vec<Option<Comparison>> {
    let values = values(store, metric);
    let all: Vec<_> = all.iter().filter_map(|it| values.get(&(it.variant.as_str(), workload))).collect();
    let rounds = all.iter().map(|of| of.keys().copied().collect::<BTreeSet<usize>>());
    let rounds = rounds.reduce(|all, of| &all & &of).unwrap_or_default();
    let series: Vec<Vec<f64>> =
        all.iter().map(|of| rounds.iter().map(|round| of[round].1).collect()).collect();
    series.split_first().map_or_else(Vec::new, |(first, others)| stats::against_all(first, others))
}
