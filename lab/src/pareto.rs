//! Where several things count, there is often no best: what each choice buys costs something else.
//!
//! One variant *beats* another when it is as good by every metric of the goal (the one that it is about, and `also`) and better by one. The *front* is those that none beats: what is not on it need
//! not be considered by anybody, whatever is worth how much. Figures are medians, and a difference below the noise floor counts as none: it would throw variants out for nothing.

use crate::analysis::Findings;
use crate::experiment::{Experiment, Metric};
use crate::plan::{DEVICE, TWIN};

/// A variant and its figures, one for each metric of the goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed<'a> {
    /// Its name.
    pub variant: &'a str,
    /// Its figures.
    pub values: Vec<f64>,
}

/// The metrics that count, the one that the goal is about first.
pub fn metrics(experiment: &Experiment) -> Vec<Metric> {
    let mut metrics = vec![experiment.goal.metric];
    for metric in &experiment.goal.also {
        if !metrics.contains(metric) {
            metrics.push(*metric);
        }
    }
    metrics
}

/// The variants that have figures by all metrics of the goal; without the raw device, which has no settings, and the baseline's twin.
pub fn placed<'a>(experiment: &Experiment, findings: &'a Findings) -> Vec<Placed<'a>> {
    let workload = experiment.goal_workload();
    let metrics = metrics(experiment);
    let of_first = findings.findings.iter().filter(|it| it.workload == workload && it.metric == metrics[0]);
    let variants = of_first.map(|it| it.variant.as_str()).filter(|name| ![TWIN, DEVICE].contains(name));
    variants
        .filter_map(|variant| {
            let value = |metric: &Metric| Some(findings.find(variant, workload, *metric)?.median.value);
            Some(Placed { variant, values: metrics.iter().map(value).collect::<Option<_>>()? })
        })
        .collect()
}

/// The names of those that no other beats, the best by the first metric first; empty where only one metric counts.
pub fn front(experiment: &Experiment, findings: &Findings) -> Vec<String> {
    let metrics = metrics(experiment);
    if metrics.len() < 2 {
        return Vec::new();
    }
    let floor = |metric: &Metric| {
        let of = findings.findings.iter().filter(|it| it.metric == *metric);
        let of = of.filter(|it| it.workload == experiment.goal_workload());
        of.filter_map(|it| it.compared).map(|compared| compared.noise_floor).next().unwrap_or(0.0)
    };
    let floors: Vec<f64> = metrics.iter().map(floor).collect();
    let all = placed(experiment, findings);
    let beats = |a: &Placed<'_>, b: &Placed<'_>| {
        let gains: Vec<f64> =
            (0..metrics.len()).map(|at| gain(metrics[at], a.values[at], b.values[at])).collect();
        gains.iter().all(|gain| *gain >= 0.0)
            && gains.iter().zip(&floors).any(|(gain, floor)| *gain > floor.ln_1p())
    };
    let is_free = |one: &&Placed<'_>| !all.iter().any(|other| beats(other, one));
    let mut front: Vec<&Placed<'_>> = all.iter().filter(is_free).collect();
    front.sort_by(|a, b| gain(metrics[0], b.values[0], a.values[0]).total_cmp(&0.0));
    front.into_iter().map(|one| one.variant.to_owned()).collect()
}

/// How much better `a` is than `b`, as a logarithm of their ratio.
fn gain(metric: Metric, a: f64, b: f64) -> f64 {
    let ratio = (a.max(f64::MIN_POSITIVE) / b.max(f64::MIN_POSITIVE)).ln();
    if metric.more_is_better() { ratio } else { -ratio }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Finding;
    use crate::stats::Estimate;

    fn finding(variant: &str, metric: Metric, value: f64) -> Finding {
        Finding {
            variant: variant.into(),
            workload: "w".into(),
            metric,
            median: Estimate { value, low: value, high: value },
            values: vec![value],
            runs: vec![1],
            compared: None,
        }
    }

    #[test]
    fn the_front_has_what_no_other_beats_in_all() {
        let text = "name = \"x\"\n[goal]\nmetric = \"throughput\"\nalso = [\"space\"]\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                    [[workload]]\nname = \"w\"\nrw = \"write\"\n";
        let experiment = Experiment::parse(text).unwrap();
        // More throughput and less space are better.
        let planted = [
            ("baseline", 100.0, 0.6),
            ("off", 130.0, 1.0),
            ("lz4", 120.0, 0.5),
            ("gzip", 20.0, 0.4),
            ("bad", 20.0, 0.45),
        ];
        let all = planted.iter().flat_map(|(name, throughput, space)| {
            [finding(name, Metric::Throughput, *throughput), finding(name, Metric::Space, *space)]
        });
        let device = finding(DEVICE, Metric::Throughput, 1e6);
        let findings = Findings { findings: all.chain([device]).collect(), ..Findings::default() };
        assert_eq!(front(&experiment, &findings), ["off", "lz4", "gzip"]);
        let one = Experiment::parse(&text.replace("also = [\"space\"]", "")).unwrap();
        assert!(front(&one, &findings).is_empty());
    }
}
