//! Where several things count, there is often no best: what each choice buys costs something else.
//!
//! One variant *beats* another when it is as good by every metric of the goal (the one that it is about, and `also`) and better by one. The *front* is those that no other on it beats: what is not on
//! it need not be considered by anybody, whatever is worth how much. Figures are medians, and a difference below the noise floor counts as none, to either side: a variant is neither thrown out
//! for nothing, nor kept for nothing.
//!
//! With noise one may beat a second and that a third which the first does not beat. So only those that are on the front themselves throw others out; and of a circle all stay.

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
        gains.iter().zip(&floors).all(|(gain, floor)| *gain >= -floor.ln_1p())
            && gains.iter().zip(&floors).any(|(gain, floor)| *gain > floor.ln_1p())
    };
    let mut front: Vec<&Placed<'_>> = Vec::new();
    let mut open: Vec<&Placed<'_>> = all.iter().collect();
    while !open.is_empty() {
        let is_free = |one: &Placed<'_>| !open.iter().any(|other| beats(other, one));
        let (free, beaten): (Vec<_>, Vec<_>) = open.iter().copied().partition(|one| is_free(one));
        if free.is_empty() {
            front.extend(beaten);
            break;
        }
        front.extend(free);
        open = beaten.into_iter().filter(|one| !front.iter().any(|other| beats(other, one))).collect();
    }
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

    /// The front of variants with these figures of three metrics, in which two equals differ by so much.
    fn front_of(planted: &[(&str, [f64; 3])], noise_floor: f64) -> Vec<String> {
        let text = "name = \"x\"\n[goal]\nmetric = \"throughput\"\nalso = [\"cpu\", \"space\"]\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                    [[workload]]\nname = \"w\"\nrw = \"write\"\n";
        let metrics = [Metric::Throughput, Metric::Cpu, Metric::Space];
        let comparison = crate::stats::compare(&[(1.0, 1.0), (1.0, 1.0)]).unwrap();
        let verdict = crate::analysis::Verdict::NoDifference;
        let compared = crate::analysis::Compared { comparison, corrected_p: 1.0, noise_floor, verdict };
        let all = planted.iter().flat_map(|(name, values)| {
            let of = |(metric, value): (Metric, &f64)| Finding {
                compared: Some(compared),
                ..finding(name, metric, *value)
            };
            metrics.into_iter().zip(values).map(of).collect::<Vec<_>>()
        });
        let findings = Findings { findings: all.collect(), ..Findings::default() };
        front(&Experiment::parse(text).unwrap(), &findings)
    }

    #[test]
    fn what_is_better_only_by_noise_keeps_nobody_on_the_front() {
        // Half the throughput for a ten-thousandth of the CPU.
        let planted = [("fast", [100.0, 1.0001, 1.0]), ("slow", [50.0, 1.0, 1.0])];
        assert_eq!(front_of(&planted, 0.02), ["fast"]);
        assert_eq!(front_of(&planted, 0.0), ["fast", "slow"]);
    }

    #[test]
    fn who_is_thrown_out_throws_nobody_out_and_of_a_circle_all_stay() {
        // Each is as good as the one before, within noise, and better by one metric; the first has lost to the last what adds up.
        let chain = [("a", [100.0, 1.0, 1.0]), ("b", [115.0, 1.08, 1.0]), ("c", [110.0, 1.16, 0.8])];
        assert_eq!(front_of(&chain, 0.1), ["c", "a"]);
        // Each beats the next: one metric is better by half as much again as noise, the others are worse by less than it.
        let of = |good: [f64; 3]| [good[0].exp(), (-good[1]).exp(), (-good[2]).exp()];
        let circle =
            [("a", of([0.15, -0.075, -0.075])), ("b", of([0.0, 0.0, 0.0])), ("c", of([0.075, -0.15, 0.075]))];
        let mut front = front_of(&circle, 0.1);
        front.sort_unstable();
        assert_eq!(front, ["a", "b", "c"]);
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
