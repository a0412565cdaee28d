//! Many figures at one look: a table of the goal's metric whose cells are shaded by how good they are.
//!
//! | experiment | rows | columns | cells |
//! |---|---|---|---|
//! | compares nothing | size and pattern of each workload | queue depth | the baseline as a share of the raw device |
//! | compares ways to a volume | the same | the same | two tables: the pool as a share of the raw device, the export as one of the pool |
//! | all combinations of two factors or more | values of all factors but the last | values of the last | the figure itself |
//! | others, of two workloads or more | variants | workloads | times the baseline |

use super::choices::Section;
use super::written;
use crate::analysis::{Findings, Verdict};
use crate::experiment::{Experiment, Metric, Mode};
use crate::plan::{self, BASELINE, DEVICE, Plan, TWIN, Variant, VariantKind};

/// Workloads from which on those that nothing is compared with are worth a table.
const LEAST_WORKLOADS: usize = 4;

/// A cell: what stands in it, and how good that is (a logarithm, nothing is 0).
type Cell = Option<(String, f64)>;

/// The tables, where there is something to show at one look.
pub fn sections(experiment: &Experiment, findings: &Findings) -> Vec<Section> {
    let gaps = gaps(experiment, findings);
    if gaps.is_empty() { section(experiment, findings).into_iter().collect() } else { gaps }
}

fn section(experiment: &Experiment, findings: &Findings) -> Option<Section> {
    if !experiment.compares() {
        let text = "As a share of what the raw device does";
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
    let of_pool = "What the process that has the pool open does to the volume, as a share of what the raw device does (more than all of it where the pool's cache or its larger blocks save requests)";
    let of_export = "The volume over NBD, as a share of what the process that has the pool open does to it";
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
        let good = goodness(metric, median(of)?, median(whole)?);
        Some((format!("{:.0} %", good.exp() * 100.0), good))
    };
    let rows = patterns
        .iter()
        .map(|(bs, rw)| (format!("{bs} {rw}"), depths.iter().map(|depth| cell(*bs, rw, *depth)).collect()));
    let head = std::iter::once("depth".to_owned()).chain(depths.iter().map(u32::to_string));
    of_cells(title, format!("{text}, by {}.", metric.title()), head.collect(), rows.collect())
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
    let value = |variant: &Variant| Some(findings.find(&variant.name, workload, metric)?.median.value);
    let best = variants.iter().filter_map(|variant| value(variant));
    let best = best.reduce(|best, it| if goodness(metric, it, best) > 0.0 { it } else { best })?;
    let rows = distinct(variants.iter().map(|variant| row_of(variant))).into_iter().map(|row| {
        let cell = |column: &String| -> Cell {
            let is_it = |it: &&&Variant| row_of(it) == row && it.settings.get(&last.name) == Some(column);
            let value = value(variants.iter().find(is_it)?)?;
            Some((written(metric, value), goodness(metric, value, best)))
        };
        let cells = last.values.iter().map(cell).collect();
        (row, cells)
    });
    let head = std::iter::once(format!("{}:", last.name)).chain(last.values.iter().cloned());
    let text = format!("{} with \"{workload}\"; the paler, the nearer to the best.", metric.title());
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
            Some(match compared.verdict {
                Verdict::Better | Verdict::Worse => (format!("{ratio:.2}"), goodness(metric, ratio, 1.0)),
                Verdict::NoDifference => ("=".to_owned(), 0.0),
                Verdict::Undecided => ("?".to_owned(), 0.0),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Finding;
    use crate::stats::Estimate;

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
    fn a_matrix_shows_how_near_each_cell_is_to_the_device() {
        let mut text = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n".to_owned();
        let mut findings = Findings::default();
        for (rw, depth, pool) in
            [("read", 1, 50.0), ("read", 4, 100.0), ("write", 1, 25.0), ("write", 4, 10.0)]
        {
            let name = format!("{rw} {depth}");
            text.push_str(&format!("[[workload]]\nname = \"{name}\"\nrw = \"{rw}\"\niodepth = {depth}\n"));
            findings.findings.extend([finding(BASELINE, &name, pool), finding(DEVICE, &name, 100.0)]);
        }
        let section = section(&Experiment::parse(&text).unwrap(), &findings).unwrap();
        assert_eq!(
            section.rows,
            [["depth", "1", "4"], ["4K read", "50 %", "100 %"], ["4K write", "25 %", "10 %"]]
        );
        assert!(section.shades[0][1] == 0.0 && section.shades[1][1] < section.shades[1][0]);
    }

    #[test]
    fn ways_to_a_volume_show_the_gap_by_layer() {
        let mut text = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                        [[factor]]\nname = \"through\"\nvalues = [\"nbd\", \"process\"]\n"
            .to_owned();
        let mut findings = Findings::default();
        for (rw, depth, pool, export) in [
            ("read", 1, 50.0, 20.0),
            ("read", 4, 80.0, 80.0),
            ("write", 1, 25.0, 5.0),
            ("write", 4, 10.0, 20.0),
        ] {
            let name = format!("{rw} {depth}");
            text.push_str(&format!("[[workload]]\nname = \"{name}\"\nrw = \"{rw}\"\niodepth = {depth}\n"));
            let of = [(BASELINE, export), ("through=process", pool), (DEVICE, 100.0)];
            findings.findings.extend(of.map(|(variant, value)| finding(variant, &name, value)));
        }
        let of = |text: &str| sections(&Experiment::parse(text).unwrap(), &findings);
        let [pool, export] = &of(&text)[..] else { panic!("two tables") };
        assert_eq!(
            pool.rows,
            [["depth", "1", "4"], ["4K read", "50 %", "80 %"], ["4K write", "25 %", "10 %"]]
        );
        assert_eq!(
            export.rows,
            [["depth", "1", "4"], ["4K read", "40 %", "100 %"], ["4K write", "20 %", "200 %"]]
        );
        assert!(
            export.shades[0][1] == 0.0
                && export.shades[1][0] < export.shades[0][0]
                && export.shades[1][1] > 0.0
        );
        // Where more is compared, it is not all that there is to see.
        let more = "[[factor]]\nname = \"sync\"\nvalues = [\"standard\", \"always\"]\n";
        assert!(of(&format!("{text}{more}")).iter().all(|section| section.title == "All at one look"));
    }

    #[test]
    fn all_combinations_stand_in_rows_and_columns() {
        let text = "name = \"x\"\nmode = \"full\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                    [[factor]]\nname = \"a\"\nvalues = [\"0\", \"1\"]\n[[factor]]\nname = \"b\"\nvalues = [\"x\", \"y\"]\n\
                    [[workload]]\nname = \"w\"\nrw = \"read\"\n";
        let values = [(BASELINE, 1000.0), ("b=y", 2000.0), ("a=1", 500.0)];
        let findings = values.map(|(variant, value)| finding(variant, "w", value)).to_vec();
        let findings = Findings { findings, ..Findings::default() };
        let section = section(&Experiment::parse(text).unwrap(), &findings).unwrap();
        assert_eq!(section.rows, [["b:", "x", "y"], ["a=0", "1000", "2000"], ["a=1", "500", "-"]]);
        assert!(section.shades[0][1] == 0.0 && section.shades[1][0] < section.shades[0][0]);
    }
}
