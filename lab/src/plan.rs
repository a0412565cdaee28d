//! Which variants there are, and in which order they run.
//!
//! One change at a time: the baseline has the first value of each factor; every other value of each factor is one more variant. A full plan has all combinations.
//! The baseline is there twice, as [`BASELINE`] and [`TWIN`]: what the two differ by is noise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Target};

/// What all others are compared with.
pub const BASELINE: &str = "baseline";
/// The same again.
pub const TWIN: &str = "baseline again";
/// The file system's file beside the pools' files, with no pool at all: what cannot be beaten by much.
pub const DEVICE: &str = "raw device";

/// One way to set everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Its name: what it changes.
    pub name: String,
    /// What it is for.
    pub kind: VariantKind,
    /// All its settings: those held fixed, and its value of each factor.
    pub settings: BTreeMap<String, String>,
}

/// What a variant is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariantKind {
    /// The others are compared with it.
    Baseline,
    /// It equals the baseline.
    Twin,
    /// It differs from the baseline.
    Change,
    /// It has no pool.
    Device,
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step {
    /// In which round, from zero.
    pub round: usize,
    /// Which variant.
    pub variant: usize,
    /// Which workload.
    pub workload: usize,
}

/// The variants of an experiment and the order of its runs.
#[derive(Debug, Clone)]
pub struct Plan {
    variants: Vec<Variant>,
    workloads: usize,
    seed: u64,
}

impl Plan {
    /// The plan of an experiment. The same seed gives the same order.
    pub fn new(experiment: &Experiment, seed: u64) -> Self {
        let mut base = experiment.settings.clone();
        for factor in &experiment.factors {
            base.extend(factor.values.first().map(|value| (factor.name.clone(), value.clone())));
        }
        let variant = |name: String, kind, settings: &BTreeMap<String, String>| Variant {
            name,
            kind,
            settings: settings.clone(),
        };
        let mut variants = vec![
            variant(BASELINE.into(), VariantKind::Baseline, &base),
            variant(TWIN.into(), VariantKind::Twin, &base),
        ];
        for settings in changes(experiment, &base) {
            let changed = experiment.factors.iter().filter_map(|factor| {
                let value =
                    settings.get(&factor.name).filter(|value| base.get(&factor.name) != Some(value))?;
                Some(format!("{}={value}", factor.name))
            });
            let name = changed.collect::<Vec<_>>().join(" ");
            variants.push(variant(name, VariantKind::Change, &settings));
        }
        // A file is no limit of what plays another medium.
        if matches!(experiment.target, Target::Volume { .. }) && experiment.modelled().is_none() {
            variants.push(variant(DEVICE.into(), VariantKind::Device, &BTreeMap::new()));
        }
        Self { variants, workloads: experiment.workloads.len(), seed }
    }

    /// The variants: the baseline, its twin, the changes, and where there is one the raw device.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The runs of a round, in their order.
    pub fn round(&self, round: usize) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..self.variants.len())
            .flat_map(|variant| (0..self.workloads).map(move |workload| Step { round, variant, workload }))
            .collect();
        let mut rng = fastrand::Rng::with_seed(
            self.seed.wrapping_add(round as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        );
        rng.shuffle(&mut steps);
        steps
    }
}

fn changes(experiment: &Experiment, base: &BTreeMap<String, String>) -> Vec<BTreeMap<String, String>> {
    if experiment.full {
        let mut all = vec![base.clone()];
        for factor in &experiment.factors {
            all = all
                .iter()
                .flat_map(|settings| {
                    factor.values.iter().map(|value| {
                        let mut settings = settings.clone();
                        settings.insert(factor.name.clone(), value.clone());
                        settings
                    })
                })
                .collect();
        }
        all.retain(|settings| settings != base);
        return all;
    }
    let one = |name: &String, value: &String| {
        let mut settings = base.clone();
        settings.insert(name.clone(), value.clone());
        settings
    };
    let factors = experiment.factors.iter();
    factors.flat_map(|factor| factor.values.iter().skip(1).map(|value| one(&factor.name, value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(full: bool) -> Experiment {
        let text = format!(
            r#"
            name = "x"
            full = {full}
            [target]
            kind = "volume"
            size = "64M"
            [[factor]]
            name = "volblocksize"
            values = ["16K", "8K", "64K"]
            [[factor]]
            name = "compression"
            values = ["off", "lz4"]
            [[workload]]
            name = "a"
            rw = "read"
            bs = "4K"
            [[workload]]
            name = "b"
            rw = "write"
            bs = "4K"
            "#
        );
        Experiment::parse(&text).unwrap()
    }

    #[test]
    fn one_thing_is_changed_at_a_time() {
        let plan = Plan::new(&experiment(false), 1);
        let names: Vec<&str> = plan.variants().iter().map(|variant| variant.name.as_str()).collect();
        let expected = [BASELINE, TWIN, "volblocksize=8K", "volblocksize=64K", "compression=lz4", DEVICE];
        assert_eq!(names, expected);
        assert_eq!(plan.variants()[2].settings["compression"], "off");
    }

    #[test]
    fn a_full_plan_has_every_combination_once() {
        let plan = Plan::new(&experiment(true), 1);
        assert_eq!(plan.variants().len(), 2 + 5 + 1);
        assert!(plan.variants().iter().any(|variant| variant.name == "volblocksize=64K compression=lz4"));
    }

    #[test]
    fn every_round_has_each_run_once_in_an_order_of_its_own() {
        let plan = Plan::new(&experiment(false), 1);
        let (first, second) = (plan.round(0), plan.round(1));
        assert_eq!(first, Plan::new(&experiment(false), 1).round(0));
        let order =
            |steps: &[Step]| steps.iter().map(|step| (step.variant, step.workload)).collect::<Vec<_>>();
        assert_ne!(order(&first), order(&second));
        let sorted = |steps: &[Step]| {
            let mut steps = order(steps);
            steps.sort_unstable();
            steps.dedup();
            steps
        };
        assert_eq!(sorted(&first), sorted(&second));
        assert_eq!(sorted(&first).len(), 12);
    }
}
