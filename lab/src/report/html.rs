//! The report as one self-contained page.

use super::charts::{Course, Percentiles, courses, percentiles};
use super::choices;
use super::markdown::{facts, modelled};
use super::plot::{Axis, Bar, Dot, Line, bars, dots_of, escaped};
use super::section::{Section, plan_of};
use super::{figures, metrics};
use crate::analysis::pareto;
use crate::analysis::{Finding, Findings, LeftOut, Timeline, Verdict, base_words, bounds, timeline};
use crate::experiment::{Experiment, Metric, Workload};
use crate::metric::written;
use crate::plan::{BASELINE, DEVICE, Plan, TWIN};
use crate::store::Store;
use crate::table;

/// How pages look.
pub(crate) const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a}\
.verdict{font-size:1.15rem;border-left:4px solid #2a6;padding:.4rem 1rem;background:#f3f8f5}.verdict.open{border-color:#999;background:#f5f5f5}\
.modelled{border-left:4px solid #c83;padding:.4rem 1rem;background:#fbf4ea}\
svg{max-width:100%;height:auto;font-size:13px}table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}\
td,th{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}td:first-child,th:first-child,.words{text-align:left}th{white-space:normal;vertical-align:bottom}td:first-child{white-space:normal;min-width:9rem}.verdict ul{font-size:1rem;margin:.3rem 0;padding-left:1.2rem}\
rect{fill:#9ab}rect.baseline{fill:#678}rect.better{fill:#2a6}rect.worse{fill:#c55}rect.limit{fill:#ccc}circle{fill:#9ab}circle.marked{fill:#2a6}path.axis{stroke:#888;fill:none}path.grid{stroke:#888;stroke-opacity:.25;fill:none}path.limit{stroke:#c83;fill:none;stroke-dasharray:5 3}\
path.interval{stroke:#111;fill:none;stroke-width:1.5}code{font-size:12px;word-break:break-all}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}text{fill:#ddd}.verdict{background:#1d2b23}.verdict.open{background:#222}.modelled{background:#2b2418}td,th{border-color:#333}path.interval{stroke:#eee}}\
@media screen{text{paint-order:stroke;stroke:#fff;stroke-width:3px}}@media screen and \
(prefers-color-scheme:dark){text{stroke:#161616}}\
@media print{body{max-width:none;margin:0;font-size:11px}table{overflow:visible;font-size:8.5px}td,th{white-space:normal;padding:.15rem .3rem}td:first-child{min-width:0}svg,tr{break-inside:avoid}text{paint-order:stroke;stroke:#fff;stroke-width:3px}}";

/// The page.
pub fn page(store: &Store, findings: &Findings) -> String {
    let experiment = store.experiment();
    let name = escaped(&experiment.name);
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\">\
         <title>{name}</title><style>{STYLE}</style><h1>{name}</h1><p>{}</p>{}{}",
        escaped(&experiment.question),
        modelled(experiment)
            .into_iter()
            .chain(findings.unfinished.clone())
            .chain(findings.few.clone())
            .chain(findings.left_out.iter().map(LeftOut::sentence))
            .map(|it| format!("<p class=\"modelled\">{}</p>", prose(&it)))
            .collect::<String>(),
        answer(findings)
    );
    for section in choices::all(experiment, findings) {
        page.push_str(&words(&section));
        if section.title == choices::FRONT {
            page.push_str(&weighed(experiment, findings));
        }
    }
    let plan = plan_of(experiment, findings);
    for workload in &experiment.workloads {
        page.push_str(&of_workload(store, findings, &plan, workload));
    }
    for section in choices::last(experiment, findings) {
        page.push_str(&words(&section));
    }
    page.push_str("<h2>How it was measured</h2><ul>");
    for fact in facts(store, findings) {
        page.push_str(&format!("<li>{}</li>", prose(&fact)));
    }
    page.push_str("</ul></html>\n");
    page
}

/// A text as it may stand in HTML, with what is between backticks as code.
pub(super) fn prose(text: &str) -> String {
    let parts: Vec<String> = escaped(text).split('`').map(str::to_owned).collect();
    // Of pairs only.
    if parts.len().is_multiple_of(2) {
        return parts.join("`");
    }
    let part = |(at, part): (usize, &String)| match at % 2 {
        0 => part.clone(),
        _ => format!("<code>{part}</code>"),
    };
    parts.iter().enumerate().map(part).collect()
}

/// The answer: what it says first, and the rest below.
fn answer(findings: &Findings) -> String {
    let Some((first, more)) = findings.sentences.split_first() else { return String::new() };
    let more: String = more.iter().map(|sentence| format!("<li>{}", prose(sentence))).collect();
    let more = if more.is_empty() { more } else { format!("<ul>{more}</ul>") };
    // Green is for an answer only.
    let class = if findings.is_answered { "verdict" } else { "verdict open" };
    format!("<div class=\"{class}\">{}{more}</div>", prose(first))
}

fn of_workload(store: &Store, findings: &Findings, plan: &Plan, workload: &Workload) -> String {
    let experiment = store.experiment();
    let mut page = format!("<h2>{}</h2>", escaped(&workload.name));
    let Some(overview) = figures::overview(store, findings, workload) else {
        page.push_str("<p>not run yet</p>");
        return page;
    };
    page.push_str(&rows(&overview.rows, &[]));
    if !overview.text.is_empty() {
        page.push_str(&format!("<p>{}</p>", escaped(&overview.text)));
    }
    if let Some(caution) = choices::caution(experiment, findings, workload) {
        page.push_str(&format!("<p><strong>{}</strong></p>", prose(&caution)));
    }
    let base = base_words(experiment);
    for metric in metrics(store, findings) {
        let of = figures::of(findings, workload, metric);
        if of.is_empty() {
            continue;
        }
        let table = figures::of_metric(experiment, metric, &of);
        page.push_str(&format!("<h3>{} <small>({})</small></h3>", table.title, table.text));
        let all: Vec<Bar<'_>> = of
            .iter()
            .map(|it| Bar {
                label: if it.variant == BASELINE { &base } else { &it.variant },
                text: written(metric, it.median.value),
                value: it.median.value,
                interval: (it.median.low, it.median.high),
                class: class(it),
            })
            .collect();
        page.push_str(&bars(&all, &limits(experiment, plan, workload, metric, &of)));
        page.push_str(&rows(&table.rows, &[]));
    }
    page.push_str(&spread(experiment, findings, workload));
    page.push_str(&over_time(store, findings, workload));
    page.push_str(&within_runs(experiment, findings, workload));
    let more = [
        choices::directions(experiment, findings, &workload.name),
        choices::layers(experiment, findings, &workload.name),
    ];
    page.extend(more.into_iter().flatten().map(|section| words(&section)));
    page
}

fn words(section: &Section) -> String {
    let mut text = format!("<h3>{}</h3><p>{}</p>", section.title, prose(&section.text));
    if !section.rows.is_empty() {
        text.push_str(&rows(&section.rows, &section.shades));
    }
    text
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
    let device = device.map(|it| Line { label: DEVICE.to_owned(), value: it.median.value });
    let reads = bounds::share_of_reads(workload).filter(|_| metric == Metric::Throughput);
    let bounds = reads.into_iter().flat_map(|reads| {
        bounds::of_none(experiment, plan, reads).into_iter().map(move |bound| Line {
            label: format!("{}: {}", bound.name, written(metric, bound.at(reads))),
            value: bound.at(reads),
        })
    });
    device.into_iter().chain(bounds).collect()
}

/// What round values of a metric are round in.
fn unit(metric: Metric) -> f64 {
    if matches!(metric, Metric::Throughput | Metric::Memory) { 1048576.0 } else { 1.0 }
}

/// How latencies spread.
fn spread(experiment: &Experiment, findings: &Findings, workload: &Workload) -> String {
    let Some(table) = figures::percentiles(experiment, findings, workload) else { return String::new() };
    let all = figures::percentiles_of(findings, workload);
    let plotted: Vec<Percentiles<'_>> = all
        .iter()
        .map(|all| {
            let values: Vec<f64> = all.iter().map(|it| it.median.value).collect();
            let words: Vec<String> = all.iter().map(|it| written(it.metric, it.median.value)).collect();
            Percentiles { label: &all[0].variant, text: words.join(" / "), values }
        })
        .collect();
    format!(
        "<h3>{} <small>(on a logarithmic axis)</small></h3><p>{}</p>{}{}",
        table.title,
        escaped(&table.text),
        percentiles(&plotted, &|value| written(figures::PERCENTILES[0], value)),
        rows(&table.rows, &[])
    )
}

/// Rounds from which on figures have a course.
const LEAST_ROUNDS: usize = 3;

/// The goal's figure from round to round, as time went on.
fn over_time(store: &Store, findings: &Findings, workload: &Workload) -> String {
    let metric = store.experiment().goal.metric;
    let began = |number: &usize| store.runs().get(number - 1).map_or(0, |run| run.began);
    let of: Vec<&Finding> = findings
        .findings
        .iter()
        .filter(|it| it.workload == workload.name && it.metric == metric && it.runs.len() >= LEAST_ROUNDS)
        .collect();
    let Some(first) = of.iter().flat_map(|it| it.runs.iter().map(began)).min() else { return String::new() };
    let all: Vec<Course<'_>> = of
        .iter()
        .map(|it| {
            let times = it.runs.iter().map(|number| (began(number) - first) as f64);
            let points = times.zip(it.values.iter().copied()).collect();
            Course { label: &it.variant, points, band: Vec::new() }
        })
        .collect();
    let most = of.iter().flat_map(|it| &it.values).copied().fold(0.0, f64::max);
    let title = metric.title();
    let axis = Axis { title, write: &|value| written(metric, value), unit: unit(metric) };
    format!("<h3>{title} over time</h3>{}", courses(&all, &axis, most, "since the first run began"))
}

/// Most variants beside the baseline whose runs are looked into: more lines than that say nothing.
const MOST_WITHIN: usize = 3;
/// Most lines that have bands.
const MOST_BANDS: usize = 2;

/// What happens within the runs of a workload: the baseline, and the best of the others by the goal.
fn within_runs(experiment: &Experiment, findings: &Findings, workload: &Workload) -> String {
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
    let Some(first) = shown.first() else { return String::new() };
    let quartiles: Vec<_> = shown.iter().map(|within| within.quartiles()).collect();
    let has_bands = shown.len() <= MOST_BANDS;
    let all: Vec<Course<'_>> = shown
        .iter()
        .zip(&quartiles)
        .map(|(within, quartiles)| Course {
            label: &within.variant,
            points: quartiles.iter().map(|(at, [_, median, _])| (*at, *median)).collect(),
            band: quartiles.iter().filter(|_| has_bands).map(|(_, [low, _, high])| (*low, *high)).collect(),
        })
        .collect();
    let highest = |(_, [_, median, high]): &(f64, [f64; 3])| if has_bands { *high } else { *median };
    let most = quartiles.iter().flatten().map(highest).fold(0.0, f64::max);
    let told = match left_out {
        0 => String::new(),
        more => format!("; the baseline and the best {MOST_WITHIN}, without {more} others"),
    };
    let bands = if has_bands { ", and between its quartiles" } else { "" };
    let title = first.metric.title();
    let axis = Axis { title, write: &|value| written(first.metric, value), unit: unit(first.metric) };
    let plot = courses(&all, &axis, most, "since the run began");
    let seen = timeline::told(&findings.within, workload);
    let seen = seen.map_or_else(String::new, |seen| format!("<p>{}</p>", escaped(&seen)));
    format!(
        "<h3>{title} within the runs <small>(the median of all rounds in each {:.2} \
         s{bands}{told})</small></h3>{plot}{seen}",
        first.step
    )
}

/// How a cell looks whose figure is so good, as a logarithm: twice as good or as bad is the strongest colour.
fn shade(good: f64) -> String {
    let strength = (good.abs() / std::f64::consts::LN_2).clamp(0.0, 1.0) * 0.6;
    let colour = if good > 0.0 { "34,170,102" } else { "204,85,85" };
    if strength < 0.01 {
        String::new()
    } else {
        format!(" style=\"background:rgba({colour},{strength:.2})\"")
    }
}

/// Rows under the first of them, with how good their cells are where that is reported.
fn rows(rows: &[Vec<String>], shades: &[Vec<f64>]) -> String {
    let mut text = String::from("<table>");
    let are_words = table::are_words(rows);
    for (number, row) in rows.iter().enumerate() {
        let cell = if number == 0 { "th" } else { "td" };
        text.push_str("<tr>");
        for (column, word) in row.iter().enumerate() {
            let good = number.checked_sub(1).and_then(|row| shades.get(row)?.get(column.checked_sub(1)?));
            let class = if column > 0 && are_words[column] { " class=\"words\"" } else { "" };
            text.push_str(&format!(
                "<{cell}{class}{}>{}",
                good.map_or_else(String::new, |it| shade(*it)),
                escaped(word)
            ));
        }
    }
    text.push_str("</table>");
    text
}

/// The goal's metric against each of the others that count.
fn weighed(experiment: &Experiment, findings: &Findings) -> String {
    let metrics = pareto::metrics(experiment);
    let placed = pareto::placed(experiment, findings);
    let plot = |(at, metric): (usize, &Metric)| {
        let dots: Vec<Dot<'_>> = placed
            .iter()
            .map(|one| Dot {
                label: one.variant,
                x: one.values[at],
                y: one.values[0],
                is_marked: findings.front.iter().any(|name| name == one.variant),
            })
            .collect();
        let better =
            |metric: Metric| if metric.more_is_better() { "more is better" } else { "less is better" };
        let titles = [*metric, metrics[0]].map(|metric| format!("{} ({})", metric.title(), better(metric)));
        let (across, up) = (|value| written(*metric, value), |value| written(metrics[0], value));
        let [across, up]: [(Metric, &dyn Fn(f64) -> String); 2] = [(*metric, &across), (metrics[0], &up)];
        let axis = |(metric, write), title| Axis { title, write, unit: unit(metric) };
        dots_of(&dots, &axis(across, &titles[0]), &axis(up, &titles[1]))
    };
    metrics.iter().enumerate().skip(1).map(plot).collect()
}

fn class(finding: &Finding) -> &'static str {
    match (finding.variant.as_str(), finding.compared.map(|compared| compared.verdict)) {
        (BASELINE | TWIN, _) => "baseline",
        (DEVICE, _) => "limit",
        (_, Some(Verdict::Better)) => "better",
        (_, Some(Verdict::Worse)) => "worse",
        _ => "same",
    }
}
