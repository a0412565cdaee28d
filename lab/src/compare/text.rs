//! Compared results for a terminal.

use super::{Compared, Series};
use crate::analysis::Verdict;
use crate::experiment::Metric;
use crate::metric::written;
use crate::stats::times;
use crate::table;

/// All that is of interest: the goal's metric, and of the others what differs.
pub fn text(compared: &Compared) -> String {
    let mut text = format!("**{}**\n\n", compared.verdict);
    for (index, given) in compared.results.iter().enumerate() {
        text.push_str(&format!("{}. {}\n", index + 1, given.words()));
    }
    for metric in Metric::ALL {
        let of = shown(compared, metric);
        if of.is_empty() {
            continue;
        }
        text.push_str(&format!("\n## {}\n\n{}", metric.title(), table::markdown(&rows(compared, &of))));
    }
    text.push_str(&format!("\n{}\n", compared.unknown));
    if !compared.differences.is_empty() {
        text.push_str("\nWhat else differs:\n");
        for difference in &compared.differences {
            text.push_str(&format!("- {difference}\n"));
        }
    }
    text
}

/// Series of a metric as the rows of a table, under its head.
pub(super) fn rows(compared: &Compared, of: &[&Series]) -> Vec<Vec<String>> {
    let numbers = (1..=compared.results.len()).map(|number| number.to_string());
    let head = ["variant", "workload"].map(str::to_owned).into_iter().chain(numbers);
    let head = head.chain(["last to first", "verdict"].map(str::to_owned)).collect();
    let row = |series: &&Series| {
        let medians = series.medians.iter().map(|median| written(series.metric, median.value));
        let mut row = vec![series.variant.clone(), series.workload.clone()];
        row.extend(medians);
        row.push(series.last_to_first.comparison.ratio.ratio_words());
        row.push(verdict(series));
        row
    };
    std::iter::once(head).chain(of.iter().map(row)).collect()
}

/// The series of a metric that are shown.
pub(super) fn shown(compared: &Compared, metric: Metric) -> Vec<&Series> {
    let differs = |series: &Series| {
        matches!(series.last_to_first.verdict, Verdict::Better | Verdict::Worse) || !series.changes.is_empty()
    };
    let of = compared.series.iter().filter(|series| series.metric == metric);
    of.filter(|series| metric == compared.goal || differs(series)).collect()
}

/// A series in words.
pub(super) fn verdict(series: &Series) -> String {
    let changes = series
        .changes
        .iter()
        .map(|change| format!(", {} times from {} on", times(change.ratio), change.at + 1));
    format!("{}{}", series.last_to_first.short(), changes.collect::<String>())
}
