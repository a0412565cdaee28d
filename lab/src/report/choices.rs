//! Sections of a report: the result of a search, gains and costs of each choice, safety, the distance to the
//! raw device, and written bytes from client to device. Both kinds of report show these rows of words.

use super::figures::named;
use super::grid::apart;
use super::section::{Section, plan_of};
use super::subject::block_of;
use super::{grid, guests, workloads};
use crate::analysis::pareto;
use crate::analysis::{Contrast, Findings, Subject, base_words, bounds};
use crate::experiment::{CacheState, Experiment, Metric, Mode, Work, Workload};
use crate::layout::Layout;
use crate::metric::written;
use crate::models::space::cost;
use crate::plan::{self, BASELINE, DEVICE, TWIN, Variant, VariantKind};
use crate::stats;

/// The sections about the whole experiment, before its workloads.
pub fn all(experiment: &Experiment, findings: &Findings) -> Vec<Section> {
    let before = [
        search(experiment, findings),
        workloads::section(experiment, findings),
        risks(findings),
        front(experiment, findings),
    ];
    let after = [
        beside(experiment, findings, Subject::Cache),
        beside(experiment, findings, Subject::Missing),
        space(experiment, findings),
        gap(experiment, findings),
        ways(experiment, findings),
        limits(experiment, findings),
    ];
    let before = guests::sections(experiment, findings).into_iter().chain(before.into_iter().flatten());
    let before = before.chain(grid::sections(experiment, findings));
    before.chain(after.into_iter().flatten()).collect()
}

/// The sections after the workloads, with further details.
pub fn last(experiment: &Experiment, findings: &Findings) -> Vec<Section> {
    [runs(experiment, findings), terms(experiment, findings)].into_iter().flatten().collect()
}

/// The numbers of the runs behind all figures of a variant with a workload, whichever figures each of them
/// had.
fn runs(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let mut variants: Vec<&str> = Vec::new();
    for finding in &findings.findings {
        if !variants.contains(&finding.variant.as_str()) {
            variants.push(&finding.variant);
        }
    }
    let of = |variant: &str, workload: &str| {
        let found = findings.findings.iter().filter(|it| it.variant == variant && it.workload == workload);
        let runs: Vec<usize> = found.flat_map(|it| it.runs.iter().copied()).collect();
        if runs.is_empty() { "-".to_owned() } else { ranges(&runs) }
    };
    let workloads = || experiment.workloads.iter().map(|workload| workload.name.as_str());
    let head = std::iter::once("variant").chain(workloads()).map(str::to_owned).collect();
    let rows = variants.iter().map(|variant| {
        std::iter::once((*variant).to_owned())
            .chain(workloads().map(|workload| of(variant, workload)))
            .collect()
    });
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let text =
        "Every figure of a variant with a workload, in every table, is of those of these runs that had it: \
         `cenote lab report DIR --run N` prints one."
            .to_owned();
    (rows.len() > 1).then(|| Section::new("The runs behind the figures", text, rows))
}

/// Numbers, those in a row as `first-last`.
fn ranges(numbers: &[usize]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in sorted {
        match ranges.last_mut() {
            Some((_, last)) if number <= *last + 1 => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let said = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(said).collect::<Vec<_>>().join(", ")
}

/// The terms of tables and verdicts; only those that are in this report.
fn terms(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let has = |name: &str| findings.findings.iter().any(|it| it.variant == name);
    let is_compared = findings.findings.iter().any(|it| it.compared.is_some());
    let baseline = format!("what all others are compared with: {}", base_words(experiment));
    let all = [
        (experiment.compares(), "baseline", baseline.as_str()),
        (
            has(TWIN),
            "baseline again",
            "the same settings once more, as another variant: its difference is chance, and a difference \
             that is no larger is not distinguished from chance",
        ),
        (
            has(DEVICE),
            "raw device",
            "the storage below the pool's devices, measured without a pool: the gap is what the pool adds, \
             or saves",
        ),
        (
            is_compared,
            "noise floor",
            "what two equal variants may differ by, as the baseline and its repetition show",
        ),
        (
            is_compared,
            "better, worse",
            "certain after correction for all comparisons, and more than the \
            noise floor",
        ),
        (is_compared, "no difference", "certain to be less than a tenth"),
        (
            is_compared,
            "undecided, ~12 rounds",
            "neither is certain; so many rounds in all would most likely decide, if they differ as these do",
        ),
        (
            !findings.findings.is_empty(),
            "interval",
            "between these two the true value lies in 95 of 100 cases; the median is the middle one of all \
             rounds",
        ),
        (
            is_compared,
            "times the baseline",
            "how many times the baseline's figure it is: the (geometric) mean over the rounds, each of which \
             has its own two figures. Changes of the machine from round to round are in both figures, and so \
             hardly in this ratio; it need not be the quotient of the two medians. 2 is twice as much, 0.5 \
             is half; an interval that holds 1 may be no difference",
        ),
        (
            is_compared,
            "p, differs",
            "how likely rounds so far apart are if there is no difference: below 0.05 there is one",
        ),
        (
            is_compared,
            "p, is alike",
            "how likely rounds so near each other are if there is a difference of a tenth: below 0.05 there \
             is none",
        ),
    ];
    let head = ["word", "meaning"].map(str::to_owned).to_vec();
    let rows = all.into_iter().filter(|(is_used, ..)| *is_used);
    let rows: Vec<_> = rows.map(|(_, word, meaning)| vec![word.to_owned(), meaning.to_owned()]).collect();
    let text = "Words that this report uses.".to_owned();
    (!rows.is_empty())
        .then(|| Section::new("How to read it", text, std::iter::once(head).chain(rows).collect()))
}

/// The data that can be lost with each variant.
fn risks(findings: &Findings) -> Option<Section> {
    let head = ["variant", "setting", "what can be lost"].map(str::to_owned).to_vec();
    let rows = findings.risks.iter().map(|it| vec![it.variant.clone(), it.setting.clone(), it.loss.clone()]);
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let text = "No figure below shows this: some variants promise less safety than the others.".to_owned();
    (rows.len() > 1).then(|| Section::new("What it costs in safety", text, rows))
}

/// That what should have met the devices was read from memory: then ratios to it say less than they seem to.
fn from_memory(experiment: &Experiment, findings: &Findings, of: &[&Contrast]) -> Option<String> {
    let is_one = |workload: &&Workload| of.iter().any(|it| it.to_workload == workload.name);
    let workloads = experiment.workloads.iter().filter(is_one);
    let is_warm = |it: &&Workload| !it.writes() && caution(experiment, findings, it).is_some();
    let warm = workloads.filter(is_warm);
    let names: Vec<String> = warm.map(|workload| format!("\"{}\"", workload.name)).collect();
    (!names.is_empty()).then(|| {
        format!(
            "But not all of {} was read from the devices, because the cache filled during the run (see \
             there): the devices are slower than that, and ratios to it are nearer to 1 than those to a run \
             that stays cold.",
            names.join(" and ")
        )
    })
}

/// The gain of the cache, or the cost of missing devices, with each variant.
fn beside(experiment: &Experiment, findings: &Findings, subject: Subject) -> Option<Section> {
    let of: Vec<_> = findings.beside.iter().filter(|it| it.subject == subject).collect();
    let metric = of.first()?.metric;
    let (title, text) = match subject {
        Subject::Cache => {
            ("What the cache gives", "Each workload, compared with the same one with less in the cache.")
        }
        Subject::Missing => (
            "What missing devices cost",
            "Each workload with missing devices, compared with the same one on a complete pool.",
        ),
        Subject::Layer => return None,
    };
    let text = format!(
        "{text} \"times\" is how many times the {0} of the second the first has, so that 2.00 is twice as \
         much and 0.50 is half: the (geometric) mean over the rounds, each with its own two figures. It need \
         not be the quotient of the medians shown. Better and worse are meant of the {0}.{1}",
        metric.title(),
        from_memory(experiment, findings, &of).map_or_else(String::new, |told| format!(" {told}"))
    );
    let head =
        ["variant", "workload", metric.title(), "beside", metric.title(), "times", "interval", "verdict"];
    let rows = of.iter().map(|it| {
        let value = |variant: &str, workload: &str| {
            let found = findings.find(variant, workload, metric);
            found.map_or_else(|| "-".to_owned(), |it| written(metric, it.median.value))
        };
        let ratio = it.compared.comparison.ratio;
        vec![
            named(experiment, &it.variant),
            it.workload.clone(),
            value(&it.variant, &it.workload),
            it.to_workload.clone(),
            value(&it.to_variant, &it.to_workload),
            stats::times(ratio.value),
            ratio.ratio_interval(),
            it.compared.short(),
        ]
    });
    let rows = std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
    Some(Section::new(title, text, rows))
}

/// The meaning of marks behind ratios.
const MARKS: &str = "\"=\" is no difference of a tenth or more, \"?\" could not be decided.";

/// How far away the raw device is from the baseline, by workload, where nothing else is compared: the widest
/// gap first.
fn gap(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    if experiment.compares() {
        return None;
    }
    let metric = experiment.goal.metric;
    let of = |workload: &Workload| {
        let median = |variant| Some(findings.find(variant, &workload.name, metric)?.median.value);
        let (pool, device) = (median(BASELINE)?, median(DEVICE)?);
        let (width, words) = apart(findings, BASELINE, DEVICE, &workload.name)
            .unwrap_or_else(|| (0.0, format!("{} ?", stats::times(device / pool))));
        Some((width, [workload.name.clone(), written(metric, pool), written(metric, device), words]))
    };
    let mut gaps: Vec<(f64, [String; 4])> = experiment.workloads.iter().filter_map(of).collect();
    gaps.sort_by(|(width, _), (other, _)| other.total_cmp(width));
    let head = ["workload", "pool", DEVICE, "device to pool"].map(str::to_owned).to_vec();
    let text = format!(
        "By {}, the widest gap first, and those that are certainly none last. \
            {MARKS}",
        metric.title()
    );
    let is_none = gaps.is_empty();
    let rows = std::iter::once(head).chain(gaps.into_iter().map(|(_, row)| row.to_vec())).collect();
    (!is_none).then(|| Section::new("How far away the raw device is", text, rows))
}

/// What each layer of the way to a volume does, by workload: what is lost most between the pool and the
/// export first.
fn ways(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let [pool, export] = plan::ways(experiment)?;
    let metric = experiment.goal.metric;
    let of = |workload: &Workload| {
        let median = |variant: &str| Some(findings.find(variant, &workload.name, metric)?.median.value);
        let (device, of_pool, of_export) = (median(DEVICE), median(&pool)?, median(&export)?);
        let figure =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| written(metric, value));
        let between = |upper: &str, lower: &str| apart(findings, upper, lower, &workload.name);
        let to_device = between(&pool, DEVICE).map_or_else(|| "-".to_owned(), |(_, words)| words);
        let (width, to_pool) = between(&export, &pool)
            .unwrap_or_else(|| (0.0, format!("{} ?", stats::times(of_pool / of_export))));
        let figures = [device, Some(of_pool), Some(of_export)].map(figure);
        let row = std::iter::once(workload.name.clone()).chain(figures).chain([to_device, to_pool]);
        Some((width, row.collect::<Vec<_>>()))
    };
    let mut all: Vec<(f64, Vec<String>)> = experiment.workloads.iter().filter_map(of).collect();
    all.sort_by(|(width, _), (other, _)| other.total_cmp(width));
    let head = ["workload", DEVICE, "pool", "export", "device to pool", "pool to export"];
    let text = format!(
        "By {}, the widest gap between the last two first. The pool is what the process that has it open \
         does to the volume; the export is the same over NBD. The last two columns say how many times the \
         pool's figure the device has, and how many times the export's the pool has, with intervals: as all \
         such ratios, means of what the rounds say, each by its own figures. {MARKS}",
        metric.title()
    );
    let is_none = all.is_empty();
    let rows = std::iter::once(head.map(str::to_owned).to_vec()).chain(all.into_iter().map(|(_, row)| row));
    let rows = rows.collect();
    (!is_none).then(|| Section::new("The gap by layer", text, rows))
}

/// The bounds, and the figures that were reached.
fn limits(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let bounds = bounds::all(experiment, &plan_of(experiment, findings));
    let mixes = experiment.workloads.iter().filter_map(bounds::share_of_reads);
    let mut mixes: Vec<f64> = mixes.filter(|reads| *reads > 0.0 && *reads < 1.0).collect();
    mixes.sort_by(|one, other| other.total_cmp(one));
    mixes.dedup();
    // By the share that is read.
    let shares: Vec<f64> = [1.0, 0.0].into_iter().chain(mixes).collect();
    let title = |reads: f64| match reads {
        1.0 => "reads".to_owned(),
        0.0 => "writes".to_owned(),
        mixed => format!("{:.0} % reads", mixed * 100.0),
    };
    let head = std::iter::once("limit".to_owned()).chain(shares.iter().map(|reads| title(*reads))).collect();
    let row = |name: &str, rate_of: &dyn Fn(f64) -> f64| {
        let rates = shares.iter().map(|reads| match rate_of(*reads) {
            rate if rate > 0.0 && rate.is_finite() => written(Metric::Throughput, rate),
            _ => "-".to_owned(),
        });
        std::iter::once(name.to_owned()).chain(rates).collect::<Vec<_>>()
    };
    let reached = row("the most that was measured", &|reads| bounds::reached(experiment, findings, reads));
    let rows =
        std::iter::once(head).chain(bounds.iter().map(|bound| row(&bound.name, &|reads| bound.at(reads))));
    let text = "What the layout of each variant can transfer of data that do not compress: no other setting \
        beats it, except reads from a cache in front of it."
        .to_owned();
    (!bounds.is_empty()).then(|| Section::new("What the limits are", text, rows.chain([reached]).collect()))
}

/// The space of blocks by the formula of the model, compared with the measurement. Only of data that do not
/// compress, and of layouts of like vdevs.
fn space(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let pools = experiment.target.pools()?;
    let has_content = |workload: &&Workload| matches!(workload.work(), Work::Transfers | Work::Replay);
    let filled = experiment.workloads.iter().find(has_content)?;
    if filled.compressible > 0 || filled.options.contains_key("buffer_compress_percentage") {
        return None;
    }
    let predicted = |variant: &Variant| -> Option<f64> {
        let settings = &variant.settings;
        let layout: Layout = settings.get("layout").unwrap_or(&pools.layout).parse().ok()?;
        let block = block_of(experiment, settings)?;
        // As the pool says: it chooses them by its devices.
        let ashift = findings.sectors.get(&variant.name)?.trailing_zeros();
        let takes = layout.vdevs().iter().map(|vdev| cost(*vdev, ashift, block.0).allocated);
        let first = takes.clone().next()?;
        takes.into_iter().all(|it| it == first).then(|| first as f64 / block.0 as f64)
    };
    let plan = plan_of(experiment, findings);
    let is_of_pools = |it: &&Variant| matches!(it.kind, VariantKind::Baseline | VariantKind::Change);
    let rows = plan.variants().iter().filter(is_of_pools).filter_map(|variant| {
        let measured = findings.find(&variant.name, &filled.name, Metric::Space)?.median.value;
        let predicted = predicted(variant)?;
        let efficiency = |takes: f64| format!("{:.1} %", 100.0 / takes);
        Some(vec![
            variant.name.clone(),
            efficiency(predicted),
            efficiency(measured),
            format!("{:+.1} %", (measured / predicted - 1.0) * 100.0),
        ])
    });
    let head = ["variant", "data, predicted", "data, measured", "takes more by"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let text = "The share of the devices' space that is data: by the formula of `cenote lab model space`, \
        which knows blocks, parity and padding, and as measured, which includes metadata."
        .to_owned();
    (rows.len() > 1).then(|| Section::new("Space, predicted and measured", text, rows))
}

/// Most combinations that are named of those that a search cannot distinguish from the best.
const MOST_OPEN: usize = 8;

/// How the variant that is compared was found.
fn search(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let search_result = findings.search_result.as_ref()?;
    let values: Vec<String> = experiment
        .factors
        .iter()
        .filter_map(|factor| Some(format!("{}={}", factor.name, search_result.settings.get(&factor.name)?)))
        .collect();
    let values = values.join(" ");
    if experiment.mode == Mode::Search {
        let [tried, points] = search_result.tried;
        let mut text = format!(
            "The search took {} of up to {} runs, where all combinations would have taken {}. It tried \
             {tried} of {points} combinations",
            search_result.runs, search_result.budget, search_result.exhaustive_runs
        );
        text.push_str(if tried < points { ", and knows nothing of the others. " } else { ". " });
        text.push_str(&format!("The best of them by its runs is {values}"));
        let (shown, more) = search_result.open.split_at(search_result.open.len().min(MOST_OPEN));
        let more = if more.is_empty() { String::new() } else { format!("; and {} more", more.len()) };
        text.push_str(&match shown {
            [] => "; no other that was tried may be as good. ".to_owned(),
            shown => format!(". These runs cannot distinguish it from: {}{more}. ", shown.join("; ")),
        });
        text.push_str(
            "It was then measured again against the baseline, because the best of many looks \
            better than it is.",
        );
        return Some(Section::new("What the search found", text, Vec::new()));
    }
    let text = format!(
        "One factor after the other was changed, and proven improvements were kept; the search ended with \
         {values}, which was then measured again against the start."
    );
    let head =
        ["factor", "from", "to", "times as good", "interval", "p", "result"].map(str::to_owned).to_vec();
    let steps = search_result.steps.iter().map(|step| {
        let ratio = step.comparison.ratio;
        vec![
            step.factor.clone(),
            step.from.clone(),
            step.to.clone(),
            stats::times(ratio.value),
            ratio.ratio_interval(),
            format!("{:.4}", step.comparison.p),
            if step.kept { "kept" } else { "put back" }.to_owned(),
        ]
    });
    Some(Section::new("Step by step", text, std::iter::once(head).chain(steps).collect()))
}

/// The heading of what no other beats.
pub(super) const FRONT: &str = "What each choice buys and costs";

/// The variants that none beats in all that counts.
fn front(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    if findings.front.is_empty() {
        return None;
    }
    let metrics = pareto::metrics(experiment);
    let mut rows = vec![vec!["variant".to_owned()]];
    rows[0].extend(metrics.iter().map(|metric| metric.title().to_owned()));
    let placed = pareto::placed(experiment, findings);
    for one in findings.front.iter().filter_map(|name| placed.iter().find(|one| one.variant == name)) {
        let figures = metrics.iter().zip(&one.values).map(|(metric, value)| written(*metric, *value));
        rows.push(std::iter::once(named(experiment, one.variant)).chain(figures).collect());
    }
    let mut text = format!(
        "With \"{}\", none of these was shown to be worse than another in every metric.",
        experiment.goal_workload()
    );
    if !findings.front_open.is_empty() {
        let open: Vec<String> =
            findings.front_open.iter().map(|open| format!("{} by {}", open.variant, open.by)).collect();
        text.push_str(&format!(
            " Perhaps beaten, which could not be decided: {}; the other is certainly better in one metric \
             and was not shown to be worse in any.",
            open.join(", ")
        ));
    }
    if findings.front.len() + findings.front_open.len() < placed.len() {
        text.push_str(
            " All other variants are beaten: another one is certainly better in one metric and as good in \
             all others.",
        );
    }
    Some(Section::new(FRONT, text, rows))
}

/// Less than this share of what was to meet the devices met them: then something else was measured.
const LEAST_SHARE: f64 = 0.75;

/// A warning against misreading a workload's figures.
pub fn caution(experiment: &Experiment, findings: &Findings, workload: &Workload) -> Option<String> {
    let of = |metric| {
        let of =
            findings.findings.iter().filter(move |it| it.workload == workload.name && it.metric == metric);
        of.map(|it| it.median.value).reduce(f64::min)
    };
    let size = workload.size.unwrap_or(experiment.target.size());
    let remedy = "a larger `size`, fewer `seconds` or a smaller `arc_max` measures the devices";
    let written = findings.layers.iter().filter(|it| it.workload == workload.name);
    let written = written.filter_map(|it| it.layers[0]);
    if let Some(logical) = written.reduce(f64::min).filter(|logical| *logical < LEAST_SHARE) {
        return Some(format!(
            "Only {:.0} % of the written data left memory: the rest was overwritten there before its \
             transaction group ended, because all writes went to the same {size}. To measure something else, \
             {remedy}.",
            logical * 100.0
        ));
    }
    let read = of(Metric::ReadAmplification).filter(|read| *read < LEAST_SHARE);
    read.filter(|_| workload.cache == CacheState::Cold).map(|read| {
        format!(
            "Only {:.0} % of the read data came from the devices: the cache was cold at first and then held \
             what the same run had read from these {size}. To measure something else, {remedy}.",
            read * 100.0
        )
    })
}

/// How long reads took, and writes, of a workload that has both.
pub fn directions(experiment: &Experiment, findings: &Findings, workload: &str) -> Option<Section> {
    let of: Vec<_> = findings.directions.iter().filter(|it| it.workload == workload).collect();
    let head = ["variant", "read, mean", "read, 99 %", "write, mean", "write, 99 %"];
    let rows = of.iter().map(|it| {
        let times = [it.reads.mean, it.reads.p99, it.writes.mean, it.writes.p99];
        let times = times.map(|time| written(Metric::Latency, time));
        std::iter::once(named(experiment, &it.variant)).chain(times).collect()
    });
    let text = "The latencies above are of reads and writes together. This table has each kind by itself: \
        the mean, and the time that 99 of 100 stay below.";
    let rows = std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
    (!of.is_empty()).then(|| Section::new("Reads and writes apart", text.to_owned(), rows))
}

/// Which of [`crate::counters::Layers::NAMES`] has each device of a mirror.
const MIRRORED: usize = 3;

/// The way of each byte that a workload wrote.
pub fn layers(experiment: &Experiment, findings: &Findings, workload: &str) -> Option<Section> {
    let of: Vec<_> = findings.layers.iter().filter(|it| it.workload == workload).collect();
    if of.is_empty() {
        return None;
    }
    let steps = ["client", "whole blocks", "compressed", "with parity", "on all mirrors"];
    let beside = ["metadata", "intent log", "devices in all", "read for it"];
    let head = std::iter::once("variant").chain(steps).chain(beside).map(str::to_owned).collect();
    let rows = of.iter().map(|it| {
        let bytes = it.layers.iter().chain([&it.read]);
        let bytes = bytes.map(|bytes| bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.2}")));
        [named(experiment, &it.variant), "1".to_owned()].into_iter().chain(bytes).collect()
    });
    let is_counted = of.iter().all(|it| it.layers[MIRRORED].is_some());
    let mirrors = if is_counted {
        "and those on each device of a mirror. Metadata and the intent log are added, both on each device of \
         a mirror too; the total of devices is the sum of these and labels, and may be less by padding, \
         which takes space and need not be written"
    } else {
        "which count a mirror once, however many devices it has: these runs did not count each device. \
         Metadata and the intent log are added, counted likewise; and all writes to devices, each device of \
         a mirror by itself"
    };
    let text = format!(
        "Bytes for each byte that the client wrote, step by step: whole blocks of data, those compressed, \
         those with further copies, parity and padding, {mirrors}. The last column is what had to be read \
         from the devices for that: the rest of blocks that were written in part, and metadata."
    );
    Some(Section::new("What became of a written byte", text, std::iter::once(head).chain(rows).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Finding, Written};
    use crate::stats::Estimate;

    #[test]
    fn numbers_in_a_row_are_told_in_short() {
        assert_eq!(ranges(&[7, 1, 3, 2, 9, 7]), "1-3, 7, 9");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn limits_of_mixes_stand_beside_those_of_reads_and_writes() {
        let text = |rw: &str| {
            format!(
                "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\ndevices = \
                 \"sata-ssd\"\n[[workload]]\nname = \"w\"\nrw = {rw}\n"
            )
        };
        let finding = Finding {
            variant: BASELINE.into(),
            workload: "w".into(),
            metric: Metric::Throughput,
            median: Estimate { value: 1048576.0, low: 1.0, high: 2e6 },
            values: vec![1048576.0],
            runs: vec![1],
            compared: None,
        };
        let of = |rw: &str| {
            let findings = Findings { findings: vec![finding.clone()], ..Findings::default() };
            limits(&Experiment::parse(&text(rw)).unwrap(), &findings).unwrap().rows
        };
        let mixed = of("\"randrw\"\noptions = { rwmixread = \"70\" }");
        assert_eq!(mixed[0], ["limit", "reads", "writes", "70 % reads"]);
        assert!(mixed[1][3].ends_with("MiB/s") && mixed[2][1..] == ["-", "-", "1.00 MiB/s"], "{mixed:?}");
        let reads = of("\"read\"");
        assert!(reads[0].len() == 3 && reads[2][1..] == ["1.00 MiB/s", "-"], "{reads:?}");
    }

    #[test]
    fn space_is_foretold_with_the_sectors_that_the_pools_had() {
        let experiment = Experiment::parse(
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\nlayout = \"raidz1 \
             3\"\n[settings]\nvolblocksize = \"4K\"\n\
             [[workload]]\nname = \"w\"\nrw = \"write\"\n",
        )
        .unwrap();
        let finding = Finding {
            variant: BASELINE.into(),
            workload: "w".into(),
            metric: Metric::Space,
            median: Estimate { value: 2.0, low: 2.0, high: 2.0 },
            values: vec![2.0],
            runs: vec![1],
            compared: None,
        };
        let of = |sector: Option<u64>| {
            let sectors = sector.into_iter().map(|bytes| (BASELINE.to_owned(), bytes)).collect();
            let findings = Findings { sectors, findings: vec![finding.clone()], ..Findings::default() };
            space(&experiment, &findings).map(|section| section.rows[1][1].clone())
        };
        // One sector of data and one of parity; eight and four.
        assert_eq!(
            [of(Some(4096)), of(Some(512)), of(None)],
            [Some("50.0 %".into()), Some("66.7 %".into()), None]
        );
    }

    #[test]
    fn figures_of_memory_are_not_taken_for_those_of_devices() {
        let experiment = Experiment::parse(
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
             [[workload]]\nname = \"w\"\nrw = \"write\"\n[[workload]]\nname = \"r\"\nrw = \"read\"\ncache = \
             \"cold\"\n[[workload]]\nname = \"warm\"\nrw = \"read\"\n",
        )
        .unwrap();
        let of = |logical: f64, read: f64| {
            let written = |workload: &str| Written {
                variant: BASELINE.into(),
                workload: workload.into(),
                runs: vec![0],
                layers: [logical, logical, logical, logical, 0.0, 0.0, logical].map(Some),
                read: None,
            };
            let finding = |workload: &str| Finding {
                variant: BASELINE.into(),
                workload: workload.into(),
                metric: Metric::ReadAmplification,
                median: Estimate { value: read, low: read, high: read },
                values: vec![read],
                runs: vec![0],
                compared: None,
            };
            let findings = Findings {
                layers: vec![written("w")],
                findings: vec![finding("r"), finding("warm")],
                ..Findings::default()
            };
            experiment.workloads.iter().map(|it| caution(&experiment, &findings, it)).collect::<Vec<_>>()
        };
        let [Some(written), Some(read), None] = &of(0.25, 0.2)[..] else { panic!("{:?}", of(0.25, 0.2)) };
        assert!(written.contains("25 %") && written.contains("64M"), "{written}");
        assert!(read.contains("20 %"), "{read}");
        assert_eq!(of(0.98, 0.9), [None, None, None]);
    }
}
