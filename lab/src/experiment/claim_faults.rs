//! What is wrong with a claim.

use super::{Claim, Experiment};
use crate::plan::Plan;

impl Claim {
    /// What is wrong with it in an experiment with this plan.
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
        } else if plan.claimed(experiment, self).is_none() {
            fault(
                "no variant has exactly these settings; 'of' and 'than' name what it changes of the baseline",
            );
        }
        faults
    }
}
