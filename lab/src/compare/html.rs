//! Compared results as one self-contained page.

use super::Compared;
use super::text::{shown, verdict};
use crate::analysis::{Verdict, noise_words};
use crate::experiment::Metric;
use crate::report::{Bar, STYLE, bars, escaped, written};

/// The mark near the beginning of a page that the lab wrote.
pub const PAGE_MARK: &str = "<meta name=\"generator\" content=\"cenote lab\">";

/// The page.
pub fn page(compared: &Compared) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\">{PAGE_MARK}\
         <title>Results compared</title><style>{STYLE}</style><h1>Results compared</h1><p \
         class=\"verdict\">{}</p><ol>",
        escaped(&compared.verdict)
    );
    for given in &compared.results {
        page.push_str(&format!("<li>{}</li>", escaped(&given.words())));
    }
    page.push_str("</ol>");
    for metric in Metric::ALL {
        let of = shown(compared, metric);
        if of.is_empty() {
            continue;
        }
        let better = if metric.more_is_better() { "more is better" } else { "less is better" };
        page.push_str(&format!("<h2>{} <small>({better})</small></h2>", metric.title()));
        for series in of {
            let (variant, workload) = (escaped(&series.variant), escaped(&series.workload));
            let labels: Vec<String> = (1..=series.medians.len()).map(|number| number.to_string()).collect();
            let rows: Vec<Bar<'_>> = series
                .medians
                .iter()
                .zip(&labels)
                .enumerate()
                .map(|(index, (median, label))| Bar {
                    label,
                    text: written(metric, median.value),
                    value: median.value,
                    interval: (median.low, median.high),
                    class: class(series, index),
                })
                .collect();
            let ratio = series.last_to_first.comparison.ratio;
            page.push_str(&format!(
                "<h3>{variant}, {workload}</h3>{}<p>last to first {}, p {:.4}; {}: {}</p>",
                bars(&rows, &[]),
                ratio.ratio_words(),
                series.last_to_first.corrected_p,
                noise_words(series.noise),
                escaped(&verdict(series))
            ));
        }
    }
    page.push_str(&format!("<p>{}</p>", escaped(compared.unknown)));
    if !compared.differences.is_empty() {
        page.push_str("<h2>What else differs</h2><ul>");
        for difference in &compared.differences {
            page.push_str(&format!("<li>{}</li>", escaped(difference)));
        }
        page.push_str("</ul>");
    }
    page.push_str("</html>\n");
    page
}

/// The colour of one result: what the last change before it was, or of the last result how it compares.
fn class(series: &super::Series, index: usize) -> &'static str {
    let changed = series.changes.iter().rev().find(|change| change.at <= index).map(|change| change.verdict);
    let compared = (index > 0 && index + 1 == series.medians.len()).then_some(series.last_to_first.verdict);
    match changed.or(compared) {
        Some(Verdict::Better) => "better",
        Some(Verdict::Worse) => "worse",
        _ if index == 0 => "baseline",
        _ => "same",
    }
}
