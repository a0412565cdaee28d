//! The design of an experiment: what its variants differ in, what is held fixed, and the work that is
//! measured.
//!
//! It is the part of an [`crate::Experiment`] that a target has to know: a [`crate::site::Site`] says by it
//! what cannot be done there. It does not have the target itself, nor how often something is measured.

use crate::setting::{Factor, Settings};
use crate::workload::Workload;

/// What an experiment compares, and with which work.
#[derive(Debug, Clone, Copy)]
pub struct Design<'a> {
    /// Settings that are held fixed.
    pub settings: &'a Settings,
    /// Settings that differ, with their values.
    pub factors: &'a [Factor],
    /// Variants that change several settings at once.
    pub variants: &'a [Settings],
    /// The work.
    pub workloads: &'a [Workload],
    /// Whether a search looks for the variant to compare.
    pub is_searched: bool,
}

impl<'a> Design<'a> {
    /// Settings of the baseline: what is held fixed, and the first value of each factor.
    pub(crate) fn baseline(self) -> Settings {
        self.with_values(&vec![0; self.factors.len()])
    }

    /// Settings with the given value of each factor, by index.
    pub(crate) fn with_values(self, values: &[usize]) -> Settings {
        let mut settings = self.settings.clone();
        let chosen = self.factors.iter().zip(values);
        let chosen =
            chosen.filter_map(|(factor, at)| Some((factor.name.clone(), factor.values.get(*at)?.clone())));
        settings.extend(chosen);
        settings
    }

    /// All settings with all their values: of factors, held fixed, and of variants.
    pub(crate) fn all_settings(self) -> Vec<(&'a String, &'a String)> {
        let of_factors =
            self.factors.iter().flat_map(|it| it.values.iter().map(move |value| (&it.name, value)));
        of_factors.chain(self.settings.iter()).chain(self.variants.iter().flatten()).collect()
    }

    /// The values of a setting that are compared, or the one that is held fixed.
    pub(crate) fn compared(self, name: &str) -> Option<Vec<&'a str>> {
        match self.factors.iter().find(|factor| factor.name == name) {
            Some(factor) => Some(factor.values.iter().map(String::as_str).collect()),
            None => self.settings.get(name).map(|value| vec![value.as_str()]),
        }
    }

    /// All values that a setting has.
    pub(crate) fn values_of(self, name: &str) -> Vec<&'a String> {
        let of_factors =
            self.factors.iter().filter(|factor| factor.name == name).flat_map(|factor| &factor.values);
        let of_variants = self.variants.iter().filter_map(|variant| variant.get(name));
        of_factors.chain(self.settings.get(name)).chain(of_variants).collect()
    }

    /// Whether a workload writes to what is measured, so that it can be written before as well. Traces are
    /// read to find that out.
    pub fn overwrites(self) -> bool {
        let others = self.values_of("rw");
        let is_always_other =
            self.settings.contains_key("rw") || self.factors.iter().any(|factor| factor.name == "rw");
        self.workloads.iter().any(|it| {
            let with = |rw: &&String| Workload { rw: (*rw).clone(), ..it.clone() }.writes();
            (!is_always_other && it.writes()) || others.iter().any(with)
        })
    }
}
