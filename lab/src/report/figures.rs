//! The figures of a workload as tables, for the page and Markdown: an overview, each metric with
//! intervals and p-values, and the spread of latencies.

use super::metrics;
use super::section::Section;
use crate::analysis::{Finding, Findings, base_words, noise_share, noise_words};
use crate::experiment::{Experiment, Metric, Workload};
use crate::metric::written;
use crate::plan::{BASELINE, DEVICE, TWIN};
use crate::stats;
use crate::store::Store;

/// A variant as tables name it: the baseline with its settings.
pub(super) fn named(experiment: &Experiment, variant: &str) -> String {
    match variant {
        BASELINE if !experiment.factors.is_empty() => format!("baseline ({})", base_words(experiment)),
        variant => variant.to_owned(),
    }
}

/// The findings of a workload by a metric.
pub(super) fn of<'a>(findings: &'a Findings, workload: &Workload, metric: Metric) -> Vec<&'a Finding> {
    let its = findings.findings.iter();
    its.filter(|it| it.workload == workload.name && it.metric == metric).collect()
}

/// Medians by all metrics, and how the first compares; nothing of a workload that was not run yet.
pub(super) fn overview(store: &Store, findings: &Findings, workload: &Workload) -> Option<Section> {
    let experiment = store.experiment();
    let metrics: Vec<Metric> = metrics(store, findings)
        .into_iter()
        .filter(|metric| findings.find(BASELINE, &workload.name, *metric).is_some())
        .filter(|metric| !says_the_same(experiment, *metric))
        .collect();
    let first = *metrics.first()?;
    let mut head = vec!["variant".to_owned()];
    head.extend(metrics.iter().map(|metric| metric.title().to_owned()));
    head.extend([format!("{}, times the baseline", first.title()), "verdict".to_owned()]);
    let row = |finding: &&Finding| {
        let mut row = vec![named(experiment, &finding.variant)];
        for metric in &metrics {
            let value = findings.find(&finding.variant, &workload.name, *metric);
            row.push(value.map_or_else(|| "-".to_owned(), |it| written(*metric, it.median.value)));
        }
        match &finding.compared {
            Some(compared) => {
                let ratio = compared.comparison.ratio;
                row.push(ratio.ratio_words());
                row.push(compared.short());
            }
            None => row.extend([String::new(), role(&finding.variant).to_owned()]),
        }
        row
    };
    let rows = std::iter::once(head).chain(of(findings, workload, first).iter().map(row)).collect();
    let noise = findings.noise(&workload.name, first);
    let text = noise.map_or_else(String::new, |noise| format!("Here {}.", noise_words(noise)));
    Some(Section::new("All figures", text, rows))
}

/// Whether a column would only be that of the goal in another unit: that is shown once, and its verdicts too,
/// which may differ only because they are corrected beside others.
fn says_the_same(experiment: &Experiment, metric: Metric) -> bool {
    let is_other = |pair: [Metric; 2]| pair == [experiment.goal.metric, metric];
    let sizes_differ = experiment.factors.iter().any(|factor| factor.name == "bs");
    !sizes_differ
        && (is_other([Metric::Iops, Metric::Throughput]) || is_other([Metric::Throughput, Metric::Iops]))
}

/// Why one has no verdict.
fn role(variant: &str) -> &'static str {
    match variant {
        BASELINE => "what all are compared with",
        TWIN => "the same settings, for noise",
        DEVICE => "no pool: the limit",
        _ => "",
    }
}

/// The figures by a metric with their intervals, how they compare with the baseline where they are compared
/// (the verdict, the corrected p-values of no difference and of a difference of a tenth), and the runs that
/// they come from.
pub(super) fn of_metric(experiment: &Experiment, metric: Metric, findings: &[&Finding]) -> Section {
    let is_same = says_the_same(experiment, metric);
    let is_compared = !is_same && findings.iter().any(|it| it.compared.is_some());
    let of_compared =
        ["verdict", "times the baseline", "interval", "noise floor", "p, differs", "p, is alike"];
    let of_compared: Vec<&str> = of_compared.into_iter().filter(|_| is_compared).collect();
    let head = ["variant", "median", "interval"].iter().chain(&of_compared).chain(&["runs"]);
    let head: Vec<String> = head.map(|word| (*word).to_owned()).collect();
    let row = |it: &&Finding| {
        let runs: Vec<String> = it.runs.iter().map(usize::to_string).collect();
        let mut row = vec![named(experiment, &it.variant), written(metric, it.median.value), interval(it)];
        match it.compared.filter(|_| is_compared) {
            Some(compared) => {
                let ratio = compared.comparison.ratio;
                row.extend([
                    compared.short(),
                    stats::times(ratio.value),
                    ratio.ratio_interval(),
                    noise_share(compared.noise_floor),
                    format!("{:.4}", compared.corrected_p),
                    format!("{:.4}", compared.corrected_p_apart),
                ]);
            }
            None if is_compared => {
                let times = if it.variant == BASELINE { "1" } else { "-" };
                row.extend([role(&it.variant), times, "-", "-", "-", "-"].map(str::to_owned));
            }
            None => {}
        }
        row.push(runs.join(" "));
        row
    };
    let rows = std::iter::once(head).chain(findings.iter().map(row)).collect();
    let text = if metric.more_is_better() { "more is better" } else { "less is better" };
    let same = match is_same {
        true => format!("; {} in another unit, which compares as that does", experiment.goal.metric.title()),
        false => String::new(),
    };
    Section::new(metric.title(), format!("{text}{same}"), rows)
}

/// The interval of a figure in its unit.
fn interval(it: &Finding) -> String {
    match it.values.len() {
        1 => "one round".to_owned(),
        _ => it.median.interval(|end| written(it.metric, end)),
    }
}

/// The percentiles that are shown.
pub(super) const PERCENTILES: [Metric; 3] = [Metric::LatencyP50, Metric::LatencyP99, Metric::LatencyP999];

/// How latencies spread, where that was measured: all percentiles of those variants that have them.
pub(super) fn percentiles_of<'a>(findings: &'a Findings, workload: &Workload) -> Vec<[&'a Finding; 3]> {
    let of_median = of(findings, workload, PERCENTILES[0]).into_iter();
    let all = of_median.filter_map(|it| {
        let of = |metric| {
            let found = findings.find(&it.variant, &workload.name, metric)?;
            (found.median.value > 0.0).then_some(found)
        };
        let [p50, p99, p999] = PERCENTILES.map(of);
        Some([p50?, p99?, p999?])
    });
    all.collect()
}

/// The same as a table, with intervals.
pub(super) fn percentiles(
    experiment: &Experiment,
    findings: &Findings,
    workload: &Workload,
) -> Option<Section> {
    let all = percentiles_of(findings, workload);
    let head = ["variant", "50 %", "interval", "99 %", "interval", "99.9 %", "interval"].map(str::to_owned);
    let rows = all.iter().map(|all| {
        let figures = all.iter().flat_map(|it| [written(it.metric, it.median.value), interval(it)]);
        std::iter::once(named(experiment, &all[0].variant)).chain(figures).collect()
    });
    let rows = std::iter::once(head.to_vec()).chain(rows).collect();
    let text = "The time that half, 99 % and 99.9 % of the operations stay below.".to_owned();
    (!all.is_empty()).then(|| Section::new("Latency percentiles", text, rows))
}

#[cfg(test)]
mod tests {
    use crate::analysis::findings;
    use crate::experiment::Experiment;
    use crate::plan::{BASELINE, TWIN};
    use crate::report::{document_of, markdown};
    use crate::store::{Run, Store};

    #[test]
    fn markdown_has_intervals_p_values_and_percentiles_as_the_page_does() {
        let text = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[factor]]\nname = \
            \"f\"\nvalues = [\"0\", \"1\"]\n\
                    [[workload]]\nname = \"w\"\nrw = \"read\"\n";
        let planted = [(BASELINE, "w", 100.0), (TWIN, "w", 101.0), ("f=1", "w", 200.0)];
        let with_latencies = |run: &Run| {
            let mut run = run.clone();
            let figures = &mut run.figures;
            (figures.latency_p50, figures.latency_p99) = (1e8 / figures.iops, 2e8 / figures.iops);
            figures.latency_p999 = 4e8 / figures.iops;
            run
        };
        let runs: Vec<Run> = Store::planted(text, &planted).runs().iter().map(with_latencies).collect();
        let store = Store::of_runs(Experiment::parse(text).unwrap(), runs);
        let found = findings(&store);
        let (page, text) = (document_of(&store, &found).texts(), markdown(&store, &found));
        let it = found.find("f=1", "w", crate::experiment::Metric::Iops).unwrap();
        let interval = super::interval(it);
        let p = format!("{:.4}", it.compared.unwrap().corrected_p_apart);
        for form in [&page, &text] {
            assert!(form.contains(&interval) && form.contains(&p), "{form}");
            assert!(form.contains("p, differs") && form.contains("99.9 %"), "{form}");
            assert!(form.contains("baseline (f=0)") && form.contains("what all are compared with"), "{form}");
        }
        // Cell by cell: the one has what the other has.
        for section in [
            super::overview(&store, &found, &store.experiment().workloads[0]).unwrap(),
            super::of_metric(
                store.experiment(),
                it.metric,
                &super::of(&found, &store.experiment().workloads[0], it.metric),
            ),
            super::percentiles(store.experiment(), &found, &store.experiment().workloads[0]).unwrap(),
        ] {
            assert!(section.rows.len() == 4, "{section:?}");
            let cells = section.rows.iter().flatten();
            assert!(cells.clone().all(|cell| page.contains(cell) && text.contains(cell)), "{section:?}");
        }
        // A terminal has the first of them.
        let brief = super::super::brief(&store, &found);
        assert!(!brief.contains("### IOPS") && brief.contains("baseline (f=0)"), "{brief}");
    }
}
