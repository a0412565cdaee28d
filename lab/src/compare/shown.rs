//! Compared results as a document, and its page.

use serde::Serialize;

use super::Compared;
use super::text::{rows, shown, verdict};
use crate::analysis::{Verdict, noise_words};
use crate::error::{Error, Result};
use crate::experiment::Metric;
use crate::report;
use crate::report::document::{Answer, Bar, Block, Class, Document, Unit};

/// The mark near the beginning of a page of compared results.
pub const PAGE_MARK: &str = "<meta name=\"generator\" content=\"cenote lab\">";

/// The page.
///
/// # Errors
/// This program has no page for documents.
pub fn page(compared: &Compared) -> Result<String> {
    let page = report::page(&document_of(compared))?;
    Ok(page.replacen("<title>", &format!("{PAGE_MARK}<title>"), 1))
}

/// For programs: what was compared, and the same as a document.
///
/// # Errors
/// It cannot be written as JSON.
pub fn json(compared: &Compared) -> Result<String> {
    let whole = Whole { compared, document: document_of(compared) };
    serde_json::to_string_pretty(&whole)
        .map_err(|error| Error::Results { path: "the comparison".into(), what: error.to_string() })
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    compared: &'a Compared,
    document: Document,
}

/// All that is said of them.
pub fn document_of(compared: &Compared) -> Document {
    let mut document = Document::new("Results compared", "");
    document.notes = compared.cautions();
    let sentences = compared.sentences().into_iter().chain(compared.differ()).collect();
    document.answer = Some(Answer { sentences, is_answered: compared.is_answered() });
    let results = compared.results.iter().map(super::Given::words).collect();
    let blocks = &mut document.blocks;
    blocks.push(Block::List { items: results, ordered: true });
    for metric in Metric::ALL {
        let of = shown(compared, metric);
        if of.is_empty() {
            continue;
        }
        let better = if metric.more_is_better() { "more is better" } else { "less is better" };
        blocks.push(Block::heading_with(2, metric.title(), better));
        blocks.push(Block::table(rows(compared, &of)));
        for series in of {
            let bars = series.medians.iter().enumerate().map(|(index, median)| {
                Bar::of(&(index + 1).to_string(), metric, median, class(series, index))
            });
            let ratio = series.last_to_first.comparison.ratio;
            blocks.extend([
                Block::heading(3, format!("{}, {}", series.variant, series.workload)),
                Block::Bars { unit: Unit::of(metric), bars: bars.collect(), lines: Vec::new() },
                Block::prose(format!(
                    "last to first {}, p {:.4}; {}: {}",
                    ratio.ratio_words(),
                    series.last_to_first.corrected_p,
                    noise_words(series.noise),
                    verdict(series)
                )),
            ]);
        }
    }
    blocks.push(Block::prose(compared.unknown));
    if !compared.differences.is_empty() {
        blocks.push(Block::heading(2, "What else differs"));
        blocks.push(Block::list(compared.differences.clone()));
    }
    document
}

/// What one result means: what the last change before it was, or of the last result how it compares.
fn class(series: &super::Series, index: usize) -> Class {
    let changed = series.changes.iter().rev().find(|change| change.at <= index).map(|change| change.verdict);
    let compared = (index > 0 && index + 1 == series.medians.len()).then_some(series.last_to_first.verdict);
    match changed.or(compared) {
        Some(Verdict::Better) => Class::Better,
        Some(Verdict::Worse) => Class::Worse,
        _ if index == 0 => Class::Baseline,
        _ => Class::Same,
    }
}
