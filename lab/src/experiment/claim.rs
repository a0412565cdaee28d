//! Claims: statements that an experiment confirms or refutes.

use serde::{Deserialize, Serialize};

use super::Experiment;
use crate::metric::Metric;
use crate::setting::Settings;

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
}
