//! Sections of a report, and the plan that they tell of.

use serde::Serialize;

use crate::analysis::Findings;
use crate::experiment::Experiment;
use crate::plan::Plan;

/// A heading, a sentence, and a table with its head.
#[derive(Debug, Serialize)]
pub struct Section {
    pub title: &'static str,
    pub text: String,
    pub rows: Vec<Vec<String>>,
    /// How good each cell is, without the head and the first column; empty where that is not shown.
    pub shades: Vec<Vec<f64>>,
}

impl Section {
    pub(super) fn new(title: &'static str, text: String, rows: Vec<Vec<String>>) -> Self {
        Self { title, text, rows, shades: Vec::new() }
    }
}

/// The variants, with what a search found.
pub(super) fn plan_of(experiment: &Experiment, findings: &Findings) -> Plan {
    Plan::new(experiment, findings.search_result.as_ref().map(|search_result| &search_result.settings), 0)
}
