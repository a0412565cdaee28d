//! Comparisons that are not choices between settings: what the cache gives, what a missing device costs, and
//! how far one layer is from the layer below it.
//!
//! Both figures are of the same rounds, so their ratio is one of pairs, like that of a variant to the
//! baseline ([`stats::compare`]). The verdict follows the same rules, with the noise of the noisier of the
//! two workloads, and p-values that are corrected for all comparisons of the same [`Subject`].
//!
//! | subject | of | to |
//! |---|---|---|
//! | cache | a workload | the same with the emptiest cache that was measured: cold, then warm |
//! | missing | a workload with devices missing | the same with the fewest missing |
//! | layer | the upper layer: the export, the pool | the layer below: the pool, the raw device |

use serde::{Deserialize, Serialize};

use super::best::Best;
use super::{Compared, Findings, Noise, Twins, Values, judged};
use crate::experiment::{CacheState, Experiment, Metric, Workload};
use crate::plan::{self, BASELINE, DEVICE, Plan, TWIN};
use crate::stats;

/// The kind of contrast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The contents of the caches when the runs began.
    Cache,
    /// Devices that were offline.
    Missing,
    /// The layer that was measured.
    Layer,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cache, Self::Missing, Self::Layer];
}

/// A figure beside another of the same rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contrast {
    /// The kind of contrast.
    pub subject: Subject,
    /// The variant.
    pub variant: String,
    /// With which workload.
    pub workload: String,
    /// The variant that it is set beside.
    pub to_variant: String,
    /// With which workload.
    pub to_workload: String,
    /// By what.
    pub metric: Metric,
    /// The ratio of the first to the second, and what that means.
    pub compared: Compared,
}

/// Which figures are compared: a variant with a workload, and another.
type Pair<'a> = [(&'a str, &'a str); 2];

/// All that can be set beside each other. `values` are those by a metric; `best` is what the goal chooses,
/// where it chooses something.
pub(super) fn all<'v>(
    experiment: &Experiment,
    plan: &Plan,
    best: Option<&Best>,
    noise: &[Twins],
    values: impl Fn(Metric) -> Values<'v>,
) -> Vec<Contrast> {
    let goal = experiment.goal.metric;
    // What caches and missing devices change is speed, whatever the goal is.
    let is_speed = |metric| {
        use Metric::{Iops, Latency, LatencyP50, LatencyP99, LatencyP999, Throughput};
        matches!(metric, Iops | Throughput | Latency | LatencyP50 | LatencyP99 | LatencyP999)
    };
    let speed = if is_speed(goal) { goal } else { Metric::Iops };
    let layers = of_layers(experiment, best);
    let layers =
        layers.iter().map(|pair| pair.each_ref().map(|(variant, workload)| (variant.as_str(), *workload)));
    let layers: Vec<Pair<'_>> = layers.collect();
    let of_subject = |subject: Subject| {
        let (pairs, metric) = match subject {
            Subject::Cache => (of_workloads(experiment, plan, emptiness, alike_but_cache), speed),
            Subject::Missing => (of_workloads(experiment, plan, |it| it.missing, alike_but_missing), speed),
            Subject::Layer => (layers.clone(), goal),
        };
        family(subject, &pairs, metric, noise, &values(metric))
    };
    Subject::ALL.into_iter().flat_map(of_subject).collect()
}

/// All comparisons of a subject.
fn family(
    subject: Subject,
    pairs: &[Pair<'_>],
    metric: Metric,
    noise: &[Twins],
    values: &Values<'_>,
) -> Vec<Contrast> {
    let mut found: Vec<Pair<'_>> = Vec::new();
    let mut comparisons = Vec::new();
    for [of, to] in pairs {
        let (Some(ours), Some(theirs)) = (values.get(of), values.get(to)) else { continue };
        let rounds = ours.iter().filter_map(|(round, (_, value))| Some((*value, theirs.get(round)?.1)));
        let Some(comparison) = stats::compare(&rounds.collect::<Vec<_>>()) else { continue };
        let noise =
            noise.iter().filter(|it| it.metric == metric && [of.1, to.1].contains(&it.workload.as_str()));
        let noise = noise.map(|it| it.noise).reduce(Noise::or_noisier).unwrap_or_default();
        comparisons.push((comparison, noise, metric.more_is_better()));
        found.push([*of, *to]);
    }
    let beside = |([of, to], compared): (Pair<'_>, Compared)| Contrast {
        subject,
        variant: of.0.to_owned(),
        workload: of.1.to_owned(),
        to_variant: to.0.to_owned(),
        to_workload: to.1.to_owned(),
        metric,
        compared,
    };
    found.into_iter().zip(judged(&comparisons)).map(beside).collect()
}

/// How empty the cache is: the emptiest is the least.
fn emptiness(workload: &Workload) -> u64 {
    match workload.cache {
        CacheState::Cold => 0,
        CacheState::Warm => 1,
        CacheState::AsItIs => 2,
        CacheState::Dirty => 3,
    }
}

/// The same load, whatever it is called and however long it runs.
fn load(workload: &Workload) -> Workload {
    Workload {
        name: String::new(),
        seconds: 0.0,
        ramp_seconds: 0.0,
        once: false,
        quick: true,
        ..workload.clone()
    }
}

fn alike_but_cache(one: &Workload, other: &Workload) -> bool {
    load(one) == Workload { cache: one.cache, ..load(other) }
}

fn alike_but_missing(one: &Workload, other: &Workload) -> bool {
    load(one) == Workload { missing: one.missing, ..load(other) }
}

/// Each workload with the one of its like that comes first in `order`, with each variant but the baseline's
/// twin.
fn of_workloads<'a>(
    experiment: &'a Experiment,
    plan: &'a Plan,
    order: fn(&Workload) -> u64,
    are_alike: fn(&Workload, &Workload) -> bool,
) -> Vec<Pair<'a>> {
    let variants =
        || plan.variants().iter().map(|variant| variant.name.as_str()).filter(|name| *name != TWIN);
    let first_of = |of: &&Workload| {
        let alike = experiment.workloads.iter().filter(|it| are_alike(of, it));
        alike.min_by_key(|it| order(it)).filter(|first| order(first) < order(of))
    };
    let pairs = experiment.workloads.iter().filter_map(|of| Some((of, first_of(&of)?)));
    pairs
        .flat_map(|(of, to)| {
            variants().map(move |variant| [(variant, of.name.as_str()), (variant, to.name.as_str())])
        })
        .collect()
}

/// What lies above what, with each workload: of what compares settings only what the goal chooses, with its
/// workload.
fn of_layers<'a>(experiment: &'a Experiment, best: Option<&Best>) -> Vec<[(String, &'a str); 2]> {
    let chosen = best.map_or(BASELINE, |best| &best.variant).to_owned();
    let device = || DEVICE.to_owned();
    let ways = plan::ways(experiment);
    let of_guests = plan::layers_of_guests(experiment);
    let each = |workload: &'a str| {
        match &ways {
            _ if !of_guests.is_empty() => of_guests.clone(),
            Some([pool, export]) => vec![[pool.clone(), device()], [export.clone(), pool.clone()]],
            None if !experiment.compares() => vec![[BASELINE.to_owned(), device()]],
            None => Vec::new(),
        }
        .into_iter()
        .map(|pair| pair.map(|variant| (variant, workload)))
        .collect::<Vec<_>>()
    };
    let workloads = experiment.workloads.iter().map(|workload| workload.name.as_str());
    let mut pairs: Vec<_> = workloads.flat_map(each).collect();
    let of_goal = [chosen, device()].map(|variant| (variant, experiment.goal_workload()));
    if !pairs.contains(&of_goal) {
        pairs.push(of_goal);
    }
    pairs
}

impl Findings {
    /// How a layer is to another with a workload, where that was compared.
    pub fn layer(&self, variant: &str, to_variant: &str, workload: &str) -> Option<&Contrast> {
        self.beside.iter().find(|it| {
            it.subject == Subject::Layer
                && it.variant == variant
                && it.to_variant == to_variant
                && it.workload == workload
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Verdict, findings};
    use crate::report;
    use crate::store::Store;

    const HEAD: &str = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\nlayout = \"mirror 2\"\n";

    #[test]
    fn what_caches_give_is_told_of_each_size_with_its_interval() {
        let of = |name: &str, size: &str, cache: &str| {
            format!(
                "[[workload]]\nname = \"{name}\"\nrw = \"randread\"\nsize = \"{size}\"\ncache = \"{cache}\"\n"
            )
        };
        let workloads = [
            of("small, warm", "16M", "warm"),
            of("small, cold", "16M", "cold"),
            of("large, cold", "64M", "cold"),
            of("large, dirty", "64M", "dirty"),
        ];
        let planted: Vec<_> =
            [("small, warm", 900.0), ("small, cold", 300.0), ("large, cold", 300.0), ("large, dirty", 302.0)]
                .into_iter()
                .flat_map(|(workload, iops)| [BASELINE, TWIN].map(|variant| (variant, workload, iops)))
                .collect();
        let store = Store::planted(&format!("{HEAD}{}", workloads.concat()), &planted);
        let found = findings(&store);
        let told: Vec<(&str, &str, Verdict)> = found
            .beside
            .iter()
            .map(|it| (it.workload.as_str(), it.to_workload.as_str(), it.compared.verdict))
            .collect();
        assert_eq!(
            told,
            [
                ("small, warm", "small, cold", Verdict::Better),
                ("large, dirty", "large, cold", Verdict::NoDifference)
            ]
        );
        let ratio = found.beside[0].compared.comparison.ratio;
        assert!((ratio.low..=ratio.high).contains(&3.0) && ratio.high - ratio.low < 0.2, "{ratio:?}");
        let interval = format!("{:.2} to {:.2}", ratio.low, ratio.high);
        let (text, json) = (report::markdown(&store, &found), report::json(&store, &found).unwrap());
        assert!(text.contains("## What the cache gives") && text.contains(&interval), "{text}");
        assert!(json.contains("What the cache gives") && json.contains(&interval), "{json}");
        let told = format!(
            "\"small, warm\" has {:.2} times the figure of \"small, cold\" ({:.2}",
            ratio.value, ratio.low
        );
        assert!(found.verdict.contains(&told), "{}", found.verdict);
    }

    #[test]
    fn what_was_cold_only_at_first_is_told_beside_its_ratio() {
        let text = format!(
            "{HEAD}[[workload]]\nname = \"warm\"\nrw = \"randread\"\ncache = \"warm\"\n[[workload]]\nname = \
             \"cold\"\nrw = \"randread\"\ncache = \"cold\"\n"
        );
        let store = Store::planted(&text, &[(BASELINE, "warm", 300.0), (BASELINE, "cold", 290.0)]);
        let from_devices = |share: u64| {
            let mut runs = store.runs().to_vec();
            for run in &mut runs {
                run.figures.read_bytes = 100;
                run.served = Some(crate::counters::Counters { read_bytes: share, ..Default::default() });
            }
            let store = Store::of_runs(store.experiment().clone(), runs);
            report::markdown(&store, &findings(&store))
        };
        assert!(from_devices(4).contains("But not all of \"cold\" was read from the devices"));
        assert!(!from_devices(96).contains("But not all of"));
    }

    #[test]
    fn what_a_missing_device_costs_is_told_of_each_layout_that_bears_it() {
        let text = format!(
            "{HEAD}[[factor]]\nname = \"layout\"\nvalues = [\"mirror 2\", \"2\"]\n\
             [[workload]]\nname = \"whole\"\nrw = \"randread\"\n[[workload]]\nname = \"missing\"\nrw = \
             \"randread\"\nmissing = 1\n"
        );
        let planted =
            [(BASELINE, "whole", 200.0), (BASELINE, "missing", 100.0), ("layout=2", "whole", 200.0)];
        let store = Store::planted(&text, &planted);
        let found = findings(&store);
        let costs: Vec<&Contrast> = found.beside.iter().filter(|it| it.subject == Subject::Missing).collect();
        assert_eq!(costs.len(), 1, "{costs:?}");
        let Compared { verdict, comparison, .. } = costs[0].compared;
        assert!(verdict == Verdict::Worse && (comparison.ratio.value - 0.5).abs() < 0.02, "{costs:?}");
        let text = report::markdown(&store, &found);
        assert!(text.contains("## What missing devices cost"), "{text}");
    }
}
