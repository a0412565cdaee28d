//! With several metrics there is often no best variant: each choice gains in one metric and loses in another.
//!
//! One variant *beats* another when it is as good by every metric of the goal (its own and those of `also`)
//! and better by one. The *front* consists of the variants that no other on it beats: the others need not be
//! considered, whatever each metric is worth. "Better" and "as good" are the verdicts of all comparisons:
//! each pair is compared round by round, with p-values corrected for all pairs and metrics. So no variant is
//! dropped without proof. A variant that is on the front only because one comparison was undecided (another
//! is certainly better by some metric and perhaps as good by the rest) is listed separately.
//!
//! "As good within a margin" is not transitive: a first variant may beat a second, and that a third which the
//! first does not beat. So only variants on the front drop others, and of a circle all stay.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::analysis::{Findings, Verdict, verdicts};
use crate::experiment::{Experiment, Metric};
use crate::plan::{DEVICE, TWIN};
use crate::stats::Comparison;

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

/// The variants that have figures by all metrics of the goal; without the raw device, which has no settings,
/// and the baseline's twin.
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

/// The known relation between two variants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Front {
    /// The names of those that no other beats, nor would but for what could not be decided; the best by the
    /// first metric first.
    pub unbeaten: Vec<String>,
    /// Those of which that could not be decided.
    pub open: Vec<Open>,
}

/// One that may be beaten: another is certainly better by one metric, and by none was it shown to be worse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Its name.
    pub variant: String,
    /// The other's.
    pub by: String,
}

/// Which variant beats which; nothing if only one metric counts. `pair` compares two variants, round by
/// round.
pub fn front(
    experiment: &Experiment,
    findings: &Findings,
    pair: impl Fn(&str, &str, Metric) -> Option<Comparison>,
) -> Front {
    let metrics = metrics(experiment);
    if metrics.len() < 2 {
        return Front::default();
    }
    let all = placed(experiment, findings);
    let relations = Relations::of(experiment, findings, &all, &metrics, pair);
    let mut front: Vec<usize> = Vec::new();
    let mut left: Vec<usize> = (0..all.len()).collect();
    while !left.is_empty() {
        let is_free = |one: usize| !left.iter().any(|other| relations.beats(*other, one));
        let (free, beaten): (Vec<usize>, Vec<usize>) = left.iter().copied().partition(|one| is_free(*one));
        if free.is_empty() {
            front.extend(beaten);
            break;
        }
        front.extend(free);
        left = beaten
            .into_iter()
            .filter(|one| !front.iter().any(|other| relations.beats(*other, *one)))
            .collect();
    }
    front.sort_by(|a, b| gain(metrics[0], all[*b].values[0], all[*a].values[0]).total_cmp(&0.0));
    let may_be_beaten = |one: &usize| front.iter().find(|other| relations.may_beat(**other, *one));
    let (open, unbeaten): (Vec<usize>, Vec<usize>) =
        front.iter().partition(|one| may_be_beaten(one).is_some());
    let name = |at: usize| all[at].variant.to_owned();
    if unbeaten.is_empty() {
        return Front { unbeaten: open.into_iter().map(name).collect(), open: Vec::new() };
    }
    let open = open.into_iter().filter_map(|one| {
        let by = *may_be_beaten(&one)?;
        Some(Open { variant: name(one), by: name(by) })
    });
    Front { open: open.collect(), unbeaten: unbeaten.into_iter().map(name).collect() }
}

/// How each of some variants compares with each other, by each metric; all of it is one family.
struct Relations(BTreeMap<(usize, usize), Vec<Verdict>>);

impl Relations {
    fn of(
        experiment: &Experiment,
        findings: &Findings,
        all: &[Placed<'_>],
        metrics: &[Metric],
        pair: impl Fn(&str, &str, Metric) -> Option<Comparison>,
    ) -> Self {
        let pairs = || (1..all.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
        let mut family = Vec::new();
        let mut places = BTreeMap::new();
        for (one, other) in pairs() {
            for (at, metric) in metrics.iter().enumerate() {
                if let Some(comparison) = pair(all[one].variant, all[other].variant, *metric) {
                    let noise = findings.noise(experiment.goal_workload(), *metric).unwrap_or_default();
                    places.insert((one, other, at), family.len());
                    family.push((comparison, noise, metric.more_is_better()));
                }
            }
        }
        let verdicts = verdicts(&family);
        let mut relations = BTreeMap::new();
        for (one, other) in pairs() {
            let of = |at: usize| places.get(&(one, other, at)).map_or(Verdict::Undecided, |it| verdicts[*it]);
            let here: Vec<Verdict> = (0..metrics.len()).map(of).collect();
            let turned = |verdict: &Verdict| match verdict {
                Verdict::Better => Verdict::Worse,
                Verdict::Worse => Verdict::Better,
                same => *same,
            };
            relations.insert((other, one), here.iter().map(turned).collect());
            relations.insert((one, other), here);
        }
        Self(relations)
    }

    fn are(&self, one: usize, other: usize, of: impl Fn(&[Verdict]) -> bool) -> bool {
        self.0.get(&(one, other)).is_some_and(|verdicts| of(verdicts))
    }

    /// Certainly better by one, and by each other as good.
    fn beats(&self, one: usize, other: usize) -> bool {
        self.are(one, other, |verdicts| {
            verdicts.contains(&Verdict::Better)
                && verdicts.iter().all(|it| matches!(it, Verdict::Better | Verdict::NoDifference))
        })
    }

    /// Certainly better by one, and by none certainly worse; as good by all the others it was not shown to
    /// be.
    fn may_beat(&self, one: usize, other: usize) -> bool {
        self.are(one, other, |verdicts| {
            verdicts.contains(&Verdict::Better)
                && !verdicts.contains(&Verdict::Worse)
                && verdicts.contains(&Verdict::Undecided)
        })
    }
}

/// How much better `a` is than `b`, as a logarithm of their ratio.
fn gain(metric: Metric, a: f64, b: f64) -> f64 {
    let ratio = (a.max(f64::MIN_POSITIVE) / b.max(f64::MIN_POSITIVE)).ln();
    if metric.more_is_better() { ratio } else { -ratio }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Finding, Noise, Twins};
    use crate::stats;

    /// Throughput, CPU, space: what a variant has of each, and by how much rounds differ.
    type Planted = (&'static str, [f64; 3]);

    /// The front of variants with these figures, each in six rounds that differ by so much, where two equal
    /// variants do by the floor.
    fn front_of(planted: &[Planted], spread: f64, floor: f64) -> Front {
        let text = "name = \"x\"\n[goal]\nmetric = \"throughput\"\nalso = [\"cpu\", \
            \"space\"]\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                    [[workload]]\nname = \"w\"\nrw = \"write\"\n";
        let metrics = [Metric::Throughput, Metric::Cpu, Metric::Space];
        let mut rng = fastrand::Rng::with_seed(5);
        let finding = |variant: &str, metric, values: Vec<f64>| Finding {
            variant: variant.into(),
            workload: "w".into(),
            metric,
            median: stats::median_estimate(&values).unwrap(),
            runs: (1..=values.len()).collect(),
            values,
            compared: None,
        };
        let mut findings = Findings::default();
        for (name, values) in planted {
            for (metric, value) in metrics.into_iter().zip(values) {
                let values = (0..6).map(|_| value * (spread * stats::normal(&mut rng)).exp()).collect();
                findings.findings.push(finding(name, metric, values));
            }
        }
        findings.findings.push(finding(DEVICE, Metric::Throughput, vec![1e6; 6]));
        let noise = Noise { floor, reach: floor, is_lasting: true };
        findings.noise = metrics.map(|metric| Twins { workload: "w".into(), metric, noise }).to_vec();
        let pair = |one: &str, other: &str, metric| {
            let of = |name| findings.find(name, "w", metric).map(|it| it.values.clone());
            stats::compare(&of(one)?.into_iter().zip(of(other)?).collect::<Vec<_>>())
        };
        let experiment = Experiment::parse(text).unwrap();
        let one = Experiment::parse(&text.replace("also = [\"cpu\", \"space\"]", "")).unwrap();
        assert_eq!(front(&one, &findings, pair), Front::default());
        front(&experiment, &findings, pair)
    }

    #[test]
    fn the_front_has_what_no_other_beats_in_all() {
        // More throughput, and less CPU and space, are better.
        let planted = [
            ("baseline", [100.0, 1.0, 0.6]),
            ("off", [150.0, 1.0, 1.0]),
            ("lz4", [130.0, 1.0, 0.5]),
            ("gzip", [20.0, 1.0, 0.4]),
            ("bad", [20.0, 1.0, 0.5]),
        ];
        let front = front_of(&planted, 0.002, 0.001);
        assert_eq!(
            (front.unbeaten, front.open),
            (["off", "lz4", "gzip"].map(str::to_owned).to_vec(), vec![])
        );
    }

    #[test]
    fn what_is_better_only_by_noise_keeps_nobody_on_the_front() {
        // Half the throughput for a ten-thousandth of the CPU.
        let planted = [("fast", [100.0, 1.0001, 1.0]), ("slow", [50.0, 1.0, 1.0])];
        let front = front_of(&planted, 0.01, 0.005);
        assert_eq!((front.unbeaten, front.open), (vec!["fast".to_owned()], vec![]));
        // What is exact counts.
        assert_eq!(front_of(&planted, 0.0, 0.0).unbeaten, ["fast", "slow"]);
    }

    #[test]
    fn nobody_is_thrown_out_without_proof() {
        // Half the throughput; rounds differ too much to say whether CPU and space are alike.
        let planted = [("fast", [100.0, 1.0, 1.0]), ("slow", [30.0, 1.0, 1.0])];
        let front = front_of(&planted, 0.1, 0.0);
        assert_eq!(front.unbeaten, ["fast"]);
        assert_eq!(front.open, [Open { variant: "slow".into(), by: "fast".into() }]);
        // And where nothing at all can be told, both may be chosen.
        let front = front_of(&planted, 2.0, 0.0);
        assert_eq!((front.unbeaten.len(), front.open), (2, vec![]));
    }

    #[test]
    fn who_is_thrown_out_throws_nobody_out_and_of_a_circle_all_stay() {
        // Each is as good as the one before, within noise, and better by one metric; the first has lost to
        // the last what adds up.
        let chain = [("a", [100.0, 1.0, 1.0]), ("b", [115.0, 1.08, 1.0]), ("c", [110.0, 1.16, 0.8])];
        assert_eq!(front_of(&chain, 0.0, 0.09).unbeaten, ["c", "a"]);
        // Each beats the next: one metric is better by half as much again as noise, the others are worse by
        // less than it.
        let of = |good: [f64; 3]| [good[0].exp(), (-good[1]).exp(), (-good[2]).exp()];
        let circle =
            [("a", of([0.15, -0.075, -0.075])), ("b", of([0.0, 0.0, 0.0])), ("c", of([0.075, -0.15, 0.075]))];
        let mut front = front_of(&circle, 0.0, 0.09).unbeaten;
        front.sort_unstable();
        assert_eq!(front, ["a", "b", "c"]);
    }
}
