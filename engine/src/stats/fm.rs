//! `fm`: reports of errors.

use std::sync::atomic::Ordering;

use super::counters;
use crate::events::DROPPED_EREPORTS;

counters! {
    /// Reports of errors of the process (`ereport` events).
    FmStats in "fm" {
        erpt_dropped: Counter, "Errors that became no event, because they came too often.";
        erpt_set_failed: Counter, "Events without some of their fields: always 0.";
        fmri_set_failed: Counter, "The same of names of resources: always 0.";
        payload_set_failed: Counter, "The same of payloads: always 0.";
    }
}

impl FmStats {
    /// The numbers now.
    pub fn snapshot() -> Self {
        Self { erpt_dropped: DROPPED_EREPORTS.load(Ordering::Relaxed), ..Self::default() }
    }
}
