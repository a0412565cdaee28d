//! The document of an experiment: its tables and sentences, which Markdown has as well, with plots beside
//! them.
//!
//! | plot | where |
//! |---|---|
//! | dots: the goal's metric against another one | behind the choices that no other beats |
//! | bars: a metric with a workload | before the table of the metric |
//! | percentiles | before their table |
//! | courses: the goal's figure over time, and rates within runs | behind the workload's figures |

use super::document::{
    Answer, Axis, Bar, Block, Class, Course, Document, Dot, Line, Percentiles, Unit, finite, in_unit,
};
use super::figures;
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
    blocks.extend(within_runs(experiment, findings, workload));
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

/// Rounds from which on figures have a course.
const LEAST_ROUNDS: usize = 3;

/// The goal's figure from round to round, as time went on.
fn over_time(store: &Store, findings: &Findings, workload: &Workload) -> Vec<Block> {
    let metric = store.experiment().goal.metric;
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
    vec![
        Block::heading(3, format!("{} over time", metric.title())),
        Block::Courses {
            unit: Unit::of(metric),
            title: metric.title().to_owned(),
            across: "since the first run began".to_owned(),
            courses: of.iter().map(course).collect(),
        },
    ]
}

/// Most variants beside the baseline whose runs are looked into: more lines than that say nothing.
const MOST_WITHIN: usize = 3;
/// Most lines that have bands.
const MOST_BANDS: usize = 2;

/// What happens within the runs of a workload: the baseline, and the best of the others by the goal.
fn within_runs(experiment: &Experiment, findings: &Findings, workload: &Workload) -> Vec<Block> {
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
    let title = metric.title();
    let mut blocks = vec![
        Block::heading_with(3, format!("{title} within the runs"), small),
        Block::Courses {
            unit: Unit::of(metric),
            title: title.to_owned(),
            across: "since the run began".to_owned(),
            courses: shown.iter().zip(&quartiles).map(course).collect(),
        },
    ];
    blocks.extend(timeline::told(&findings.within, workload).map(Block::prose));
    blocks
}

/// The goal's metric against each of the others that count.
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
    metrics.iter().enumerate().skip(1).map(plot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::findings;
    use crate::fio::Figures;
    use crate::store::Run;

    const EXPERIMENT: &str = "name = \"x\"\nquestion = \"which?\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
        [goal]\nmetric = \"iops\"\nalso = [\"latency_p99\"]\n[[factor]]\nname = \"f\"\nvalues = [\"0\", \"1\", \"2\"]\n\
        [[workload]]\nname = \"w\"\nrw = \"read\"\n[[workload]]\nname = \"later\"\nrw = \"read\"\n";

    /// The document of planted figures, a run each ten seconds.
    fn planted() -> Document {
        let iops = [(BASELINE, 100.0), (TWIN, 100.0), ("f=1", 200.0), ("f=2", 50.0), (DEVICE, 400.0)];
        let of = iops.map(|(variant, iops)| (variant, "w", iops));
        let store = Store::planted(EXPERIMENT, &of);
        let with_more = |(at, run): (usize, &Run)| {
            let figures = Figures {
                latency_p50: 1e8 / run.figures.iops,
                latency_p99: 2e8 / run.figures.iops,
                latency_p999: 4e8 / run.figures.iops,
                ..run.figures
            };
            Run { began: 1000 + 10 * at as u64, figures, ..run.clone() }
        };
        let runs = store.runs().iter().enumerate().map(with_more).collect();
        let store = Store::of_runs(store.experiment().clone(), runs);
        document_of(&store, &findings(&store))
    }

    #[test]
    fn the_answer_comes_first_and_plots_have_their_tables_behind_them() {
        let document = planted();
        assert_eq!((document.title.as_str(), document.question.as_str()), ("x", "which?"));
        assert!(document.notes[0].starts_with("Unfinished"), "{document:?}");
        let answer = document.answer.as_ref().unwrap();
        assert!(answer.is_answered && answer.sentences[0].starts_with("f=1 has the best IOPS"), "{answer:?}");
        assert!(document.facts.len() > 3, "{document:?}");
        let at = |text: &str| {
            let is_it = |block: &Block| matches!(block, Block::Heading { text: own, .. } if own == text);
            document.blocks.iter().position(is_it).unwrap_or_else(|| panic!("{text}: {document:?}"))
        };
        let workload = at("w");
        assert!(matches!(document.blocks[workload], Block::Heading { level: 2, .. }));
        assert!(matches!(document.blocks[workload + 1], Block::Table { .. }), "the overview");
        assert!(at("IOPS") > workload && at("IOPS over time") < at("later"));
        // A workload that was not run has a sentence.
        assert_eq!(document.blocks[at("later") + 1], Block::prose("not run yet"));
        for (number, block) in document.blocks.iter().enumerate() {
            let has_figures = matches!(block, Block::Bars { .. } | Block::Percentiles { .. });
            assert!(!has_figures || matches!(document.blocks[number + 1], Block::Table { .. }), "{number}");
        }
    }

    #[test]
    fn bars_say_what_they_are_beside_the_baseline() {
        let document = planted();
        let bars = document.blocks.iter().find_map(|block| match block {
            Block::Bars { unit: Unit::PerSecond, bars, lines } => Some((bars, lines)),
            _ => None,
        });
        let (bars, lines) = bars.unwrap();
        let of: Vec<(&str, Class)> = bars.iter().map(|bar| (bar.label.as_str(), bar.class)).collect();
        let expected = [
            ("f=0", Class::Baseline),
            (TWIN, Class::Baseline),
            ("f=1", Class::Better),
            ("f=2", Class::Worse),
            (DEVICE, Class::Limit),
        ];
        assert_eq!(of, expected);
        assert!(bars.iter().all(|bar| bar.low <= bar.value && bar.value <= bar.high && bar.low > 0.0));
        assert_eq!(lines.iter().map(|line| line.label.as_str()).collect::<Vec<_>>(), [DEVICE]);
        assert_eq!(lines[0].value, bars[4].value);
    }

    #[test]
    fn times_are_in_seconds() {
        let document = planted();
        let percentiles = document.blocks.iter().find_map(|block| match block {
            Block::Percentiles { unit: Unit::Seconds, rows } => Some(&rows[0]),
            _ => None,
        });
        let row = percentiles.unwrap();
        // A hundred million nanoseconds for each of a hundred operations.
        assert!((row.values[0] - 0.001).abs() < 1e-4 && row.values[2] > row.values[1], "{row:?}");
        assert!(row.text.contains(" ms / "), "{row:?}");
        let courses = document.blocks.iter().find_map(|block| match block {
            Block::Courses { unit: Unit::PerSecond, courses, .. } => Some(courses),
            _ => None,
        });
        let courses = courses.unwrap();
        // Six rounds of five runs.
        let seconds = |at: usize| courses[at].points.iter().map(|point| point.0).collect::<Vec<_>>();
        assert_eq!(seconds(0), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0]);
        assert_eq!(seconds(2)[0], 20.0);
        assert!(courses.iter().all(|course| course.band.is_empty()));
    }

    #[test]
    fn dots_of_what_no_other_beats_are_marked() {
        let document = planted();
        let dots = document.blocks.iter().find_map(|block| match block {
            Block::Dots { x, y, dots } => Some((x, y, dots)),
            _ => None,
        });
        let (x, y, dots) = dots.unwrap();
        assert_eq!((x.unit, y.unit), (Unit::Seconds, Unit::PerSecond));
        assert_eq!(y.title, "IOPS (more is better)");
        assert_eq!(x.title, "99th percentile latency (less is better)");
        let of: Vec<(&str, bool)> = dots.iter().map(|dot| (dot.label.as_str(), dot.marked)).collect();
        assert_eq!(of, [(BASELINE, false), ("f=1", true), ("f=2", false)]);
        assert!(dots[1].y > dots[0].y && dots[1].x < dots[0].x && dots[1].x > 0.0, "{dots:?}");
    }
}
