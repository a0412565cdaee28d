//! What runs report beside their figures: notes for readers, and what was made ready before them.

use std::collections::BTreeMap;

use crate::store::Prepared;

/// Notes and preparations since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    notes: Vec<String>,
    prepared: Prepared,
}

impl Remarks {
    /// A note for readers.
    pub(super) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// So many bytes were filled in so many seconds.
    pub(super) fn filled(&mut self, bytes: u64, seconds: f64) {
        self.prepared.count += 1;
        self.prepared.bytes += bytes;
        self.prepared.seconds += seconds;
    }

    /// A volume that holds data was rewritten in so many seconds.
    pub(super) fn rewritten(&mut self, seconds: f64) {
        self.prepared.rewritten += 1;
        self.prepared.rewrite_seconds += seconds;
    }

    /// The notes.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The preparations; nothing if there was none.
    pub(super) fn take_prepared(&mut self) -> Option<Prepared> {
        let prepared = std::mem::take(&mut self.prepared);
        (prepared.count + prepared.rewritten > 0).then_some(prepared)
    }
}

/// How traces are replayed.
#[derive(Debug, Default)]
pub(super) struct Replays {
    /// How often workloads replay their traces on end in a run, by their names: one time may be over too
    /// soon.
    passes: BTreeMap<String, usize>,
    /// Whether the last run did more than what it measured, before.
    did_more: bool,
}

impl Replays {
    /// How often a workload replays its trace on end; nothing before its first run.
    pub(super) fn passes(&self, workload: &str) -> Option<usize> {
        self.passes.get(workload).copied()
    }

    /// Has a workload replay its trace so often on end.
    pub(super) fn hold(&mut self, workload: &str, passes: usize) {
        self.passes.insert(workload.to_owned(), passes);
    }

    /// The last run did more than what it measured.
    pub(super) fn note_more(&mut self) {
        self.did_more = true;
    }

    /// Whether it did; asked once.
    pub(super) fn take_more(&mut self) -> bool {
        std::mem::take(&mut self.did_more)
    }
}
