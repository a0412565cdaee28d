//! Many figures at one look: a table of the goal's metric whose cells are shaded by how good they are.
//!
//! | experiment | rows | columns | cells |
//! |---|---|---|---|
//! | compares nothing | size and pattern of each workload | queue depth | the baseline as a share of the raw device |
//! | compares ways to a volume | the same | the same | two tables: the pool as a share of the raw device, the export as one of the pool |
//! | all combinations of two factors or more | values of all factors but the last | values of the last | the figure itself |
//! | others, of two workloads or more | variants | workloads | times the baseline |
//!
//! Figures that were not shown to differ are marked and not shaded, so that a reader does not take noise for
//! a gap.

use super::section::Section;
use crate::analysis::{Finding, Findings, Verdict};
use crate::experiment::{Experiment, Metric, Mode};
use crate::metric::written;
use crate::plan::{self, BASELINE, DEVICE, Plan, TWIN, Variant, VariantKind};

/// Workloads from which on those that nothing is compared with are worth a table.
const LEAST_WORKLOADS: usize = 4;

/// A cell: its text, and how good its value is (a logarithm, 0 without a value).
type Cell = Option<(String, f64)>;

/// The tables, where there is something to show at one look.
pub fn sections(experiment: &Experiment, findings: &Findings) -> Vec<Section> {
    let gaps = gaps(experiment, findings);
    if gaps.is_empty() { section(experiment, findings).into_iter().collect() } else { gaps }
}

fn section(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    if !experiment.compares() {
        let text = "As a share of the raw device";
        return by_depth(experiment, findings, "All at one look", text, [BASELINE, DEVICE]);
    }
    if experiment.mode == Mode::Full && experiment.factors.len() > 1 {
        return combinations(experiment, findings);
    }
    by_workload(experiment, findings)
}

/// How much better `value` is than `other`, as a logarithm.
fn goodness(metric: Metric, value: f64, other: f64) -> f64 {
    let ratio = (value.max(f64::MIN_POSITIVE) / other.max(f64::MIN_POSITIVE)).ln();
    if metric.more_is_better() { ratio } else { -ratio }
}

fn of_cells(
    title: &'static str,
    text: String,
    head: Vec<String>,
    rows: Vec<(String, Vec<Cell>)>,
) -> Option<Section> {
    if rows.iter().all(|(_, cells)| cells.iter().all(Option::is_none)) {
        return None;
    }
    let mut words = vec![head];
    let mut shades = Vec::new();
    for (name, cells) in rows {
        shades.push(cells.iter().map(|cell| cell.as_ref().map_or(0.0, |(_, good)| *good)).collect());
        let cells = cells.into_iter().map(|cell| cell.map_or_else(|| "-".to_owned(), |(text, _)| text));
        words.push(std::iter::once(name).chain(cells).collect());
    }
    Some(Section { title, text, rows: words, shades })
}

/// The meaning of marks.
const MARKS: &str = "\"=\" is no difference of a tenth or more, and \"?\" could not be decided: neither is \
    shaded, and no gap.";

/// The mark of what was not shown to differ.
pub(super) fn mark(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Better | Verdict::Worse => None,
        Verdict::NoDifference => Some("="),
        Verdict::Undecided => Some("?"),
    }
}

/// Whether a variant is the best, or cannot be distinguished from it.
fn is_best(findings: &Findings, finding: &Finding) -> bool {
    findings.best.as_ref().is_some_and(|best| {
        best.variant == finding.variant || best.equals().any(|name| name == finding.variant)
    })
}

/// In the order in which they come first.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut known, one| {
        if !known.contains(&one) {
            known.push(one);
        }
        known
    })
}

/// The gap by layer, where nothing but ways to a volume is compared.
fn gaps(experiment: &Experiment, findings: &Findings) -> Vec<Section> {
    let ways =
        plan::ways(experiment).filter(|_| experiment.factors.len() == 1 && experiment.variants.is_empty());
    let Some([pool, export]) = ways else { return Vec::new() };
    let of_pool = "The volume, measured in the process that has the pool open, as a share of the raw device \
        (more than all of it where the pool's cache or its larger blocks save requests)";
    let of_export = "The volume over NBD, as a share of the volume measured in the process that has the pool \
        open";
    let all = [
        by_depth(experiment, findings, "From the device to the pool", of_pool, [&pool, DEVICE]),
        by_depth(experiment, findings, "From the pool to the export", of_export, [&export, &pool]),
    ];
    all.into_iter().flatten().collect()
}

/// The first of two variants as a share of the second.
fn by_depth(
    experiment: &Experiment,
    findings: &Findings,
    title: &'static str,
    text: &str,
    [of, whole]: [&str; 2],
) -> Option<Section> {
    let (metric, workloads) = (experiment.goal.metric, &experiment.workloads);
    let depths = distinct(workloads.iter().map(|workload| workload.iodepth));
    let patterns = distinct(workloads.iter().map(|workload| (workload.bs, workload.rw.as_str())));
    if workloads.len() < LEAST_WORKLOADS || depths.len() < 2 {
        return None;
    }
    let cell = |bs, rw: &str, depth: u32| -> Cell {
        let workload = workloads.iter().find(|it| it.bs == bs && it.rw == rw && it.iodepth == depth)?;
        let median = |variant| Some(findings.find(variant, &workload.name, metric)?.median.value);
        let compared = findings.layer(of, whole, &workload.name).map(|it| it.compared);
        let good = match compared {
            Some(compared) => goodness(metric, compared.comparison.ratio.value, 1.0),
            None => goodness(metric, median(of)?, median(whole)?),
        };
        let share = format!("{:.0} %", good.exp() * 100.0);
        Some(match mark(compared.map_or(Verdict::Undecided, |it| it.verdict)) {
            Some(mark) => (format!("{share} {mark}"), 0.0),
            None => (share, good),
        })
    };
    let rows = patterns
        .iter()
        .map(|(bs, rw)| (format!("{bs} {rw}"), depths.iter().map(|depth| cell(*bs, rw, *depth)).collect()));
    let head = std::iter::once("depth".to_owned()).chain(depths.iter().map(u32::to_string));
    let text = format!("{text}, by {}. {MARKS}", metric.title());
    of_cells(title, text, head.collect(), rows.collect())
}

fn combinations(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let (metric, workload) = (experiment.goal.metric, experiment.goal_workload());
    let plan = Plan::new(experiment, None, 0);
    let variants: Vec<&Variant> = plan
        .variants()
        .iter()
        .filter(|it| matches!(it.kind, VariantKind::Baseline | VariantKind::Change))
        .collect();
    let (last, others) = experiment.factors.split_last()?;
    let row_of = |variant: &Variant| {
        let values = others
            .iter()
            .filter_map(|factor| Some(format!("{}={}", factor.name, variant.settings.get(&factor.name)?)));
        values.collect::<Vec<_>>().join(" ")
    };
    let found = |variant: &Variant| findings.find(&variant.name, workload, metric);
    // Chance may have put what is marked above what is certain.
    let mark_of = |finding: &Finding| finding.compared.and_then(|compared| mark(compared.verdict));
    let certain = variants.iter().filter_map(|variant| found(variant).filter(|it| mark_of(it).is_none()));
    let best = certain
        .map(|finding| finding.median.value)
        .reduce(|best, it| if goodness(metric, it, best) > 0.0 { it } else { best })?;
    let rows = distinct(variants.iter().map(|variant| row_of(variant))).into_iter().map(|row| {
        let cell = |column: &String| -> Cell {
            let is_it = |it: &&&Variant| row_of(it) == row && it.settings.get(&last.name) == Some(column);
            let finding = found(variants.iter().find(is_it)?)?;
            let value = finding.median.value;
            Some(match mark_of(finding) {
                Some(mark) => (format!("{} {mark}", written(metric, value)), 0.0),
                None if is_best(findings, finding) => (written(metric, value), 0.0),
                None => (written(metric, value), goodness(metric, value, best)),
            })
        };
        let cells = last.values.iter().map(cell).collect();
        (row, cells)
    });
    let head = std::iter::once(format!("{}:", last.name)).chain(last.values.iter().cloned());
    let text = format!(
        "{} with \"{workload}\"; the paler, the nearer to the best; a choice that cannot be distinguished \
         from the best is as pale as that. Beside the baseline ({}), {MARKS}",
        metric.title(),
        findings
            .find(BASELINE, workload, metric)
            .map_or_else(|| "-".to_owned(), |it| written(metric, it.median.value))
    );
    of_cells("All at one look", text, head.collect(), rows.collect())
}

fn by_workload(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    let metric = experiment.goal.metric;
    let of_goal = findings.findings.iter().filter(|it| it.metric == metric);
    let names = distinct(of_goal.map(|it| it.variant.as_str()));
    let names: Vec<&str> =
        names.into_iter().filter(|name| ![BASELINE, TWIN, DEVICE].contains(name)).collect();
    if experiment.workloads.len() < 2 || names.is_empty() {
        return None;
    }
    let rows = names.iter().map(|name| {
        let cell = |workload: &str| -> Cell {
            let compared = findings.find(name, workload, metric)?.compared?;
            let ratio = compared.comparison.ratio.value;
            Some(match mark(compared.verdict) {
                None => (format!("{ratio:.2}"), goodness(metric, ratio, 1.0)),
                Some(mark) => (mark.to_owned(), 0.0),
            })
        };
        ((*name).to_owned(), experiment.workloads.iter().map(|workload| cell(&workload.name)).collect())
    });
    let head = experiment.workloads.iter().map(|workload| workload.name.clone());
    let head = std::iter::once("variant".to_owned()).chain(head);
    let text = format!(
        "{} in times of the baseline's; \"=\" is no difference, \"?\" could not be decided.",
        metric.title()
    );
    of_cells("All at one look", text, head.collect(), rows.collect())
}

/// How far a layer is from the one that lies above it, with a workload: how often that has what this has, and
/// a word of it.
pub(super) fn apart(findings: &Findings, upper: &str, lower: &str, workload: &str) -> Option<(f64, String)> {
    let compared = findings.layer(upper, lower, workload)?.compared;
    let ratio = compared.comparison.ratio;
    let words = ratio.inverse().ratio_words();
    Some(match mark(compared.verdict) {
        Some(mark) => (0.0, format!("{words} {mark}")),
        None => (ratio.value.ln().abs(), words),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::findings;
    use crate::stats::Estimate;
    use crate::store::Store;

    fn finding(variant: &str, workload: &str, value: f64) -> Finding {
        Finding {
            variant: variant.into(),
            workload: workload.into(),
            metric: Metric::Iops,
            median: Estimate { value, low: value, high: value },
            values: vec![value],
            runs: vec![1],
            compared: None,
        }
    }

    #[test]
    fn a_matrix_shows_how_near_each_cell_is_to_the_device_and_marks_what_was_not_shown() {
        let mut text = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n".to_owned();
        let mut planted = Vec::new();
        let cells = [("read", 1, 50.0), ("read", 4, 100.0), ("write", 1, 25.0), ("write", 4, 10.0)];
        let names = cells.map(|(rw, depth, _)| format!("{rw} {depth}"));
        for ((rw, depth, pool), name) in cells.iter().zip(&names) {
            text.push_str(&format!("[[workload]]\nname = \"{name}\"\nrw = \"{rw}\"\niodepth = {depth}\n"));
            planted.extend([(BASELINE, name.as_str(), *pool), (DEVICE, name.as_str(), 100.0)]);
        }
        let store = Store::planted(&text, &planted);
        let of = |store: &Store| section(store.experiment(), &findings(store)).unwrap();
        let it = of(&store);
        let first = |row: usize| it.rows[row].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(first(0), ["depth", "1", "4"]);
        assert!(first(1)[1] == "50 %" && first(1)[2].ends_with(" % ="), "{it:?}");
        assert!(it.shades[0][1] == 0.0 && it.shades[1][1] < it.shades[1][0] && it.shades[0][0] < -0.5);
        // Of one round nothing is known.
        let one: Vec<_> = store.runs().iter().filter(|run| run.round == 0).cloned().collect();
        let it = of(&Store::of_runs(store.experiment().clone(), one));
        assert!(
            it.rows[1..].iter().all(|row| row[1].ends_with(" % ?") && row[2].ends_with(" % ?")),
            "{it:?}"
        );
        assert!(it.shades.iter().flatten().all(|shade| *shade == 0.0));
    }

    #[test]
    fn ways_to_a_volume_show_the_gap_by_layer() {
        let mut text = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                        [[factor]]\nname = \"through\"\nvalues = [\"nbd\", \"process\"]\n"
            .to_owned();
        let cells = [
            ("read", 1, 50.0, 20.0),
            ("read", 4, 80.0, 80.0),
            ("write", 1, 25.0, 5.0),
            ("write", 4, 10.0, 20.0),
        ];
        let names = cells.map(|(rw, depth, ..)| format!("{rw} {depth}"));
        let mut planted = Vec::new();
        for ((rw, depth, pool, export), name) in cells.iter().zip(&names) {
            text.push_str(&format!("[[workload]]\nname = \"{name}\"\nrw = \"{rw}\"\niodepth = {depth}\n"));
            let of = [(BASELINE, *export), ("through=process", *pool), (DEVICE, 100.0)];
            planted.extend(of.map(|(variant, value)| (variant, name.as_str(), value)));
        }
        let store = Store::planted(&text, &planted);
        let found = findings(&store);
        let [pool, export] = &sections(store.experiment(), &found)[..] else { panic!("two tables") };
        let near = |cell: &str, share: f64, mark: &str| {
            let number: f64 = cell.trim_end_matches(mark).trim_end_matches(" %").parse().unwrap();
            assert!(cell.ends_with(&format!(" %{mark}")) && (number / share - 1.0).abs() < 0.05, "{cell}");
        };
        near(&pool.rows[1][1], 50.0, "");
        near(&pool.rows[2][2], 10.0, "");
        near(&export.rows[1][1], 40.0, "");
        near(&export.rows[1][2], 100.0, " =");
        near(&export.rows[2][2], 200.0, "");
        assert!(
            export.shades[0][1] == 0.0
                && export.shades[1][0] < export.shades[0][0]
                && export.shades[1][1] > 0.0
        );
        // Where more is compared, it is not all that there is to see.
        let more = format!("{text}[[factor]]\nname = \"sync\"\nvalues = [\"standard\", \"always\"]\n");
        let more = sections(&Experiment::parse(&more).unwrap(), &found);
        assert!(more.iter().all(|section| section.title == "All at one look"));
    }

    #[test]
    fn combinations_are_marked_by_the_baseline_and_shaded_by_the_best() {
        let text = "name = \"x\"\nmode = \"full\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                    [[factor]]\nname = \"a\"\nvalues = [\"0\", \"1\"]\n[[factor]]\nname = \"b\"\nvalues = \
                    [\"x\", \"y\"]\n\
                    [[workload]]\nname = \"w\"\nrw = \"read\"\n";
        let marks = |values: [f64; 4]| {
            let names = [BASELINE, "b=y", "a=1", "a=1 b=y"];
            let planted: Vec<_> = names.iter().zip(values).map(|(name, value)| (*name, "w", value)).collect();
            let store = Store::planted(text, &planted);
            let it = section(store.experiment(), &findings(&store)).unwrap();
            let cells = it.rows.iter().skip(1).flat_map(|row| row[1..].to_vec());
            let shades = it.shades.iter().flatten();
            cells
                .zip(shades)
                .map(|(cell, shade)| (cell.chars().last().unwrap(), *shade == 0.0))
                .collect::<Vec<_>>()
        };
        // Nothing is better than the baseline, which is the best then: what is no worse is no difference.
        let it = marks([1000.0, 500.0, 1000.0, 500.0]);
        assert!(
            it[0].0.is_ascii_digit() && it[0].1 && it[2] == ('=', true) && !it[1].1 && !it[3].1,
            "{it:?}"
        );
        // Two are, and which of them is the best cannot be told: neither has a shade, nor a mark, for both
        // are better than the baseline.
        let it = marks([1000.0, 2000.0, 1000.0, 2000.0]);
        assert!(
            [it[1], it[3]].iter().all(|(last, is_pale)| last.is_ascii_alphanumeric() && *is_pale),
            "{it:?}"
        );
        assert!(!it[0].1 && it[2] == ('=', true), "{it:?}");
        // What is far from the best is so, whether or not it differs from the baseline.
        let it = marks([1000.0, 1020.0, 1000.0, 4000.0]);
        assert!(it[3].1 && !it[0].1 && it[1].0 != '?', "{it:?}");
    }

    #[test]
    fn all_combinations_stand_in_rows_and_columns() {
        let text = "name = \"x\"\nmode = \"full\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                    [[factor]]\nname = \"a\"\nvalues = [\"0\", \"1\"]\n[[factor]]\nname = \"b\"\nvalues = \
                    [\"x\", \"y\"]\n\
                    [[workload]]\nname = \"w\"\nrw = \"read\"\n";
        let values = [(BASELINE, 1000.0), ("b=y", 2000.0), ("a=1", 500.0)];
        let findings = values.map(|(variant, value)| finding(variant, "w", value)).to_vec();
        let findings = Findings { findings, ..Findings::default() };
        let section = section(&Experiment::parse(text).unwrap(), &findings).unwrap();
        assert_eq!(section.rows, [["b:", "x", "y"], ["a=0", "1000", "2000"], ["a=1", "500", "-"]]);
        assert!(section.shades[0][1] == 0.0 && section.shades[1][0] < section.shades[0][0]);
    }
}
