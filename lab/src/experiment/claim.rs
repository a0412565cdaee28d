//! Claims: statements that an experiment confirms or refutes.

use serde::{Deserialize, Serialize};

use super::{Experiment, Metric, Settings};
use crate::plan::{self, Plan, VariantKind};

/// What a claim says of one variant beside another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// It has more of the metric.
    More,
    /// It has less.
    Less,
    /// It has as much, to a tenth.
    Same,
}

/// A statement about two variants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The statement in words.
    pub text: String,
    /// By what.
    pub metric: Metric,
    /// With which workload; by default the goal's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// What the variant changes of the baseline; nothing for the baseline itself.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub of: Settings,
    /// The same of the variant that it is compared with.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub than: Settings,
    /// What is claimed.
    pub is: Relation,
}

impl Claim {
    /// The workload's name.
    pub fn workload<'a>(&'a self, experiment: &'a Experiment) -> &'a str {
        self.workload.as_deref().unwrap_or_else(|| experiment.goal_workload())
    }

    /// The names of both variants, where the plan has them.
    pub fn variants<'a>(&self, experiment: &Experiment, plan: &'a Plan) -> Option<[&'a str; 2]> {
        let name = |changes: &Settings| {
            let mut settings = plan::baseline(experiment);
            settings.extend(changes.clone());
            let is_it = |kind| matches!(kind, VariantKind::Baseline | VariantKind::Change);
            let found = plan.variants().iter().find(|it| is_it(it.kind) && it.settings == settings)?;
            Some(found.name.as_str())
        };
        Some([name(&self.of)?, name(&self.than)?])
    }

    /// What is wrong with it.
    pub(super) fn faults(&self, experiment: &Experiment, plan: &Plan) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |what: &str| faults.push(format!("[[claim]] '{}': {what}", self.text));
        if self.text.trim().is_empty() {
            fault("it says nothing: 'text' is the statement in words");
        }
        if self.of == self.than {
            fault("'of' and 'than' are the same variant");
        }
        if experiment.workloads.iter().all(|workload| workload.name != self.workload(experiment)) {
            fault(&format!("there is no workload '{}'", self.workload(experiment)));
        }
        if let Some(why) = experiment.target.has_no(self.metric) {
            fault(why);
        }
        if experiment.is_searched() {
            fault("the variants of a search are not known before it");
        } else if self.variants(experiment, plan).is_none() {
            fault(
                "no variant has exactly these settings; 'of' and 'than' name what it changes of the baseline",
            );
        }
        faults
    }
}
