//! The document of an experiment: its tables and sentences, which Markdown has as well, with plots beside
//! them.
//!
//! | plot | figures beside it |
//! |---|---|
//! | bars of a metric with a workload | the table of the metric |
//! | percentiles | their table |
//! | the goal's figure over time, and rates within runs | a table of where each line begins, ends and turns |
//! | the goal's metric against another one | the tables of the choices that no other beats, and of the others |

use super::document::{
    Answer, Axis, Bar, Block, Class, Course, Document, Dot, Line, Percentiles, Unit, finite, in_unit,
};
use super::figures::{self, named};
use super::markdown::{facts, modelled};
use super::section::{Section, plan_of};
use super::{choices, metrics};
use crate::analysis::pareto;
use crate::analysis::{Finding, Findings, LeftOut, Timeline, Verdict, base_words, bounds, timeline};
use crate::experiment::{Experiment, Metric, Workload};
use crate::metric::written;
use crate::plan::{BASELINE, DEVICE, Plan, TWIN};
use crate::store::Store;

/// All that the report says.
pub fn document_of(store: &Store, findings: &Findings) -> Document {
    let experiment = store.experiment();
    let mut document = Document::new(&experiment.name, &experiment.question);
    let left_out = findings.left_out.iter().map(LeftOut::sentence);
    let notes = modelled(experiment).into_iter().chain(findings.unfinished.clone());
    document.notes = notes.chain(findings.few.clone()).chain(left_out).collect();
    document.answer = (!findings.sentences.is_empty())
        .then(|| Answer { sentences: findings.sentences.clone(), is_answered: findings.is_answered });
    let blocks = &mut document.blocks;
    for section in choices::all(experiment, findings) {
        let is_front = section.title == choices::FRONT;
        blocks.extend(of_section(section, 2));
        if is_front {
            blocks.extend(weighed(experiment, findings));
        }
    }
    let plan = plan_of(experiment, findings);
    for workload in &experiment.workloads {
        blocks.extend(of_workload(store, findings, &plan, workload));
    }
    for section in choices::last(experiment, findings) {
        blocks.extend(of_section(section, 2));
    }
    document.facts = facts(store, findings);
    document
}

/// A section below a heading of this level.
fn of_section(section: Section, level: u8) -> Vec<Block> {
    let mut blocks = vec![Block::heading(level, section.title)];
    if !section.text.is_empty() {
        blocks.push(Block::prose(section.text));
    }
    if !section.rows.is_empty() {
        blocks.push(Block::shaded(section.rows, section.shades));
    }
    blocks
}

fn of_workload(store: &Store, findings: &Findings, plan: &Plan, workload: &Workload) -> Vec<Block> {
    let experiment = store.experiment();
    let mut blocks = vec![Block::heading(2, &workload.name)];
    let Some(overview) = figures::overview(store, findings, workload) else {
        blocks.push(Block::prose("not run yet"));
        return blocks;
    };
    blocks.push(Block::table(overview.rows));
    if !overview.text.is_empty() {
        blocks.push(Block::prose(overview.text));
    }
    if let Some(text) = choices::caution(experiment, findings, workload) {
        blocks.push(Block::Prose { text, strong: true });
    }
    for metric in metrics(store, findings) {
        let of = figures::of(findings, workload, metric);
        if of.is_empty() {
            continue;
        }
        let table = figures::of_metric(experiment, metric, &of);
        blocks.push(Block::heading_with(3, table.title, table.text));
        let lines = limits(experiment, plan, workload, metric, &of);
        blocks.push(bars(experiment, metric, &of, lines));
        blocks.push(Block::table(table.rows));
    }
    blocks.extend(spread(experiment, findings, workload));
    blocks.extend(over_time(store, findings, workload));
    blocks.extend(within_runs(store, findings, workload));
    let more = [
        choices::directions(experiment, findings, &workload.name),
        choices::layers(experiment, findings, &workload.name),
    ];
    blocks.extend(more.into_iter().flatten().flat_map(|section| of_section(section, 3)));
    blocks
}

/// The figures of a workload by a metric as bars.
fn bars(experiment: &Experiment, metric: Metric, of: &[&Finding], lines: Vec<Line>) -> Block {
    let base = base_words(experiment);
    let bar = |it: &&Finding| {
        let label = if it.variant == BASELINE { &base } else { &it.variant };
        Bar::of(label, metric, &it.median, class(it))
    };
    Block::Bars { unit: Unit::of(metric), bars: of.iter().map(bar).collect(), lines }
}

/// The lines that no bar can pass: the raw device, and of bandwidth the bounds.
fn limits(
    experiment: &Experiment,
    plan: &Plan,
    workload: &Workload,
    metric: Metric,
    of: &[&Finding],
) -> Vec<Line> {
    let speeds = [Metric::Iops, Metric::Throughput, Metric::Latency, Metric::LatencyP99];
    let device = of.iter().find(|it| it.variant == DEVICE && speeds.contains(&metric));
    let line = |label: String, value: f64| Line { label, value: in_unit(metric, value) };
    let device = device.map(|it| line(DEVICE.to_owned(), it.median.value));
    let reads = bounds::share_of_reads(workload).filter(|_| metric == Metric::Throughput);
    let bounds = reads.into_iter().flat_map(|reads| {
        let all = bounds::of_none(experiment, plan, reads).into_iter();
        all.map(move |bound| (bound.name.clone(), bound.at(reads)))
    });
    let bounds = bounds.map(|(name, at)| line(format!("{name}: {}", written(metric, at)), at));
    device.into_iter().chain(bounds).collect()
}

/// What a figure is beside the baseline.
fn class(finding: &Finding) -> Class {
    match (finding.variant.as_str(), finding.compared.map(|compared| compared.verdict)) {
        (BASELINE | TWIN, _) => Class::Baseline,
        (DEVICE, _) => Class::Limit,
        (_, Some(Verdict::Better)) => Class::Better,
        (_, Some(Verdict::Worse)) => Class::Worse,
        _ => Class::Same,
    }
}

/// How latencies spread.
fn spread(experiment: &Experiment, findings: &Findings, workload: &Workload) -> Vec<Block> {
    let Some(table) = figures::percentiles(experiment, findings, workload) else { return Vec::new() };
    let row = |all: &[&Finding; 3]| {
        let words: Vec<String> = all.iter().map(|it| written(it.metric, it.median.value)).collect();
        let values = all.iter().map(|it| in_unit(it.metric, it.median.value)).collect();
        Percentiles { label: all[0].variant.clone(), text: words.join(" / "), values }
    };
    let rows = figures::percentiles_of(findings, workload).iter().map(row).collect();
    vec![
        Block::heading_with(3, table.title, "on a logarithmic axis"),
        Block::prose(table.text),
        Block::Percentiles { unit: Unit::of(figures::PERCENTILES[0]), rows },
        Block::table(table.rows),
    ]
}

/// Where each of some lines over time begins and ends, and how far it goes down and up.
fn ends(experiment: &Experiment, metric: Metric, courses: &[(&str, Vec<f64>)]) -> Block {
    let head = ["variant", "at first", "at last", "lowest", "highest"].map(str::to_owned).to_vec();
    let row = |(variant, values): &(&str, Vec<f64>)| {
        let ends = [values.first(), values.last()].map(|value| value.copied());
        let reach: [fn(f64, f64) -> f64; 2] = [f64::min, f64::max];
        let reach = reach.map(|reach| values.iter().copied().reduce(reach));
        let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |it| written(metric, it));
        let figures = ends.into_iter().chain(reach).map(figure);
        std::iter::once(named(experiment, variant)).chain(figures).collect()
    };
    Block::table(std::iter::once(head).chain(courses.iter().map(row)).collect())
}

/// Rounds from which on figures have a course.
const LEAST_ROUNDS: usize = 3;

/// The goal's figure from round to round, as time went on.
fn over_time(store: &Store, findings: &Findings, workload: &Workload) -> Vec<Block> {
    let experiment = store.experiment();
    let metric = experiment.goal.metric;
    let began = |number: &usize| store.runs().get(number - 1).map_or(0, |run| run.began);
    let of: Vec<&Finding> = figures::of(findings, workload, metric)
        .into_iter()
        .filter(|it| it.runs.len() >= LEAST_ROUNDS)
        .collect();
    let Some(first) = of.iter().flat_map(|it| it.runs.iter().map(began)).min() else { return Vec::new() };
    let course = |it: &&Finding| {
        let times = it.runs.iter().map(|number| (began(number) - first) as f64);
        let values = it.values.iter().map(|value| in_unit(metric, *value));
        Course { label: it.variant.clone(), points: times.zip(values).collect(), band: Vec::new() }
    };
    let values: Vec<(&str, Vec<f64>)> =
        of.iter().map(|it| (it.variant.as_str(), it.values.clone())).collect();
    vec![
        Block::heading(3, format!("{} over time", metric.title())),
        Block::Courses {
            unit: Unit::of(metric),
            title: metric.title().to_owned(),
            across: "since the first run began".to_owned(),
            courses: of.iter().map(course).collect(),
        },
        ends(experiment, metric, &values),
    ]
}

/// Most variants beside the baseline whose runs are looked into: more lines than that say nothing.
const MOST_WITHIN: usize = 3;
/// Most lines that have bands.
const MOST_BANDS: usize = 2;

/// What happens within the runs of a workload: the baseline, and the best of the others by the goal.
fn within_runs(store: &Store, findings: &Findings, workload: &Workload) -> Vec<Block> {
    let experiment = store.experiment();
    let goal = experiment.goal.metric;
    let good = |within: &Timeline| {
        let value = findings.find(&within.variant, &workload.name, goal).map_or(0.0, |it| it.median.value);
        if goal.more_is_better() { value } else { -value }
    };
    let its =
        || findings.within.iter().filter(|it| it.workload == workload.name && !it.quartiles().is_empty());
    let mut others: Vec<&Timeline> =
        its().filter(|it| ![BASELINE, TWIN, DEVICE].contains(&it.variant.as_str())).collect();
    others.sort_by(|one, other| good(other).total_cmp(&good(one)));
    let left_out = others.len().saturating_sub(MOST_WITHIN);
    others.truncate(MOST_WITHIN);
    let shown: Vec<&Timeline> = its().filter(|it| it.variant == BASELINE).chain(others).collect();
    let Some(first) = shown.first() else { return Vec::new() };
    let quartiles: Vec<_> = shown.iter().map(|within| within.quartiles()).collect();
    let has_bands = shown.len() <= MOST_BANDS;
    let metric = first.metric;
    let at = |value: f64| in_unit(metric, value);
    let course = |(within, quartiles): (&&Timeline, &Vec<(f64, [f64; 3])>)| Course {
        label: within.variant.clone(),
        points: quartiles.iter().map(|(time, [_, median, _])| (finite(*time), at(*median))).collect(),
        band: quartiles
            .iter()
            .filter(|_| has_bands)
            .map(|(_, [low, _, high])| (at(*low), at(*high)))
            .collect(),
    };
    let told = match left_out {
        0 => String::new(),
        more => format!("; the baseline and the best {MOST_WITHIN}, without {more} others"),
    };
    let bands = if has_bands { ", and between its quartiles" } else { "" };
    let small = format!("the median of all rounds in each {:.2} s{bands}{told}", first.step);
    let medians = quartiles.iter().map(|of| of.iter().map(|(_, [_, median, _])| *median).collect());
    let values: Vec<(&str, Vec<f64>)> =
        shown.iter().map(|within| within.variant.as_str()).zip(medians).collect();
    let title = metric.title();
    let mut blocks = vec![
        Block::heading_with(3, format!("{title} within the runs"), small),
        Block::Courses {
            unit: Unit::of(metric),
            title: title.to_owned(),
            across: "since the run began".to_owned(),
            courses: shown.iter().zip(&quartiles).map(course).collect(),
        },
        ends(experiment, metric, &values),
    ];
    blocks.extend(timeline::told(&findings.within, workload).map(Block::prose));
    blocks
}

/// The goal's metric against each of the others that count, and the figures of what no table has yet.
fn weighed(experiment: &Experiment, findings: &Findings) -> Vec<Block> {
    let metrics = pareto::metrics(experiment);
    let placed = pareto::placed(experiment, findings);
    let axis = |metric: Metric| {
        let better = if metric.more_is_better() { "more is better" } else { "less is better" };
        Axis { title: format!("{} ({better})", metric.title()), unit: Unit::of(metric) }
    };
    let is_on_front = |variant: &str| findings.front.iter().any(|name| name == variant);
    let plot = |(at, metric): (usize, &Metric)| {
        let dot = |one: &pareto::Placed<'_>| Dot {
            label: one.variant.to_owned(),
            x: in_unit(*metric, one.values[at]),
            y: in_unit(metrics[0], one.values[0]),
            marked: is_on_front(one.variant),
        };
        Block::Dots { x: axis(*metric), y: axis(metrics[0]), dots: placed.iter().map(dot).collect() }
    };
    let mut blocks: Vec<Block> = metrics.iter().enumerate().skip(1).map(plot).collect();
    let others: Vec<_> = placed.iter().filter(|one| !is_on_front(one.variant)).collect();
    if !others.is_empty() {
        let head = std::iter::once("variant").chain(metrics.iter().map(|metric| metric.title()));
        let row = |one: &&pareto::Placed<'_>| {
            let figures = metrics.iter().zip(&one.values).map(|(metric, value)| written(*metric, *value));
            std::iter::once(named(experiment, one.variant)).chain(figures).collect()
        };
        let head = head.map(str::to_owned).collect();
        blocks.push(Block::prose("The other variants:"));
        blocks.push(Block::table(std::iter::once(head).chain(others.iter().map(row)).collect()));
    }
    blocks
}
