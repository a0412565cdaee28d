//! What became of the claims of an experiment.
//!
//! Both variants are compared in pairs of the same rounds, as all variants are with the baseline
//! ([`stats::compare`]), with p-values that are corrected for all claims. A claim is confirmed when the
//! difference is certain and in its direction, refuted when it is certain that there is no such difference,
//! and open otherwise.

use serde::{Deserialize, Serialize};

use super::{Compared, Noise, Twins, Values, Verdict, compare, judged};
use crate::experiment::{Claim, Experiment, Metric, Relation};
use crate::plan::Plan;
use crate::stats::{Comparison, times};

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It holds.
    Confirmed,
    /// It does not.
    Refuted,
    /// That is not known.
    Open,
}

/// A claim with what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claimed {
    /// The statement.
    pub text: String,
    /// The variant.
    pub variant: String,
    /// The variant that it is compared with.
    pub than: String,
    /// With which workload.
    pub workload: String,
    /// By what.
    pub metric: Metric,
    /// What is claimed.
    pub is: Relation,
    /// What became of it.
    pub standing: Standing,
    /// The ratio of the first to the second, where there were two rounds.
    pub compared: Option<Compared>,
}

impl Claimed {
    /// In one sentence.
    pub fn sentence(&self) -> String {
        let standing = match self.standing {
            Standing::Confirmed => "confirmed",
            Standing::Refuted => "refuted",
            Standing::Open => "not decided",
        };
        let figures = self.compared.map_or("there were no two rounds of both".to_owned(), |compared| {
            let ratio = compared.comparison.ratio;
            let title = self.metric.title();
            format!("{} times the {title} ({})", times(ratio.value), ratio.interval(times))
        });
        format!("Claim \"{}\": {standing}, with \"{}\" {figures}.", self.text, self.workload)
    }
}

/// The claims of an experiment. `values` are those by a metric.
pub(super) fn all<'v>(
    experiment: &Experiment,
    plan: &Plan,
    noise: &[Twins],
    values: impl Fn(Metric) -> Values<'v>,
) -> Vec<Claimed> {
    let mut claimed = Vec::new();
    let mut comparisons: Vec<(Comparison, Noise, bool)> = Vec::new();
    let mut waiting = Vec::new();
    for claim in &experiment.claims {
        // The quick form has not all variants and workloads.
        let Some([variant, than]) = plan.claimed(experiment, claim) else { continue };
        let workload = claim.workload(experiment);
        if experiment.workloads.iter().all(|it| it.name != workload) {
            continue;
        }
        if let Some(comparison) = compare(&values(claim.metric), variant, than, workload) {
            let of = |it: &&Twins| it.workload == workload && it.metric == claim.metric;
            let noise = noise.iter().find(of).map_or_else(Noise::default, |it| it.noise);
            // "Better" is then "more".
            comparisons.push((comparison, noise, true));
            waiting.push(claimed.len());
        }
        claimed.push(open(claim, variant, than, workload));
    }
    for (at, compared) in waiting.into_iter().zip(judged(&comparisons)) {
        claimed[at].standing = standing(claimed[at].is, compared.verdict);
        claimed[at].compared = Some(compared);
    }
    claimed
}

fn open(claim: &Claim, variant: &str, than: &str, workload: &str) -> Claimed {
    Claimed {
        text: claim.text.clone(),
        variant: variant.to_owned(),
        than: than.to_owned(),
        workload: workload.to_owned(),
        metric: claim.metric,
        is: claim.is,
        standing: Standing::Open,
        compared: None,
    }
}

fn standing(is: Relation, verdict: Verdict) -> Standing {
    match (is, verdict) {
        (_, Verdict::Undecided) => Standing::Open,
        (Relation::More, Verdict::Better)
        | (Relation::Less, Verdict::Worse)
        | (Relation::Same, Verdict::NoDifference) => Standing::Confirmed,
        _ => Standing::Refuted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::findings;
    use crate::fio::Figures;
    use crate::store::{Run, Stage, Store};

    const TEXT: &str = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
        [settings]\nsync = \"standard\"\ncompression = \"off\"\n\
        [[variant]]\nsync = \"always\"\n[[variant]]\nsync = \"always\"\ncompression = \"lz4\"\n\
        [[workload]]\nname = \"w\"\nrw = \"read\"\nbs = \"4K\"\n";

    fn claim(of: &str, than: &str, is: &str) -> String {
        format!("[[claim]]\ntext = \"{is}\"\nmetric = \"iops\"\nof = {of}\nthan = {than}\nis = \"{is}\"\n")
    }

    /// What becomes of claims where `always` has a third more than the baseline, and `lz4` with it as much.
    fn standings(claims: &[String], rounds: usize) -> Vec<Standing> {
        let experiment = Experiment::parse(&format!("{TEXT}{}", claims.concat())).unwrap();
        let plan = Plan::new(&experiment, None, 1);
        let mut rng = fastrand::Rng::with_seed(5);
        let mut runs = Vec::new();
        for round in 0..rounds {
            for step in plan.round(round) {
                let variant = &plan.variants()[step.variant];
                let more = variant.settings.get("sync").is_some_and(|sync| sync == "always");
                let noise = (0.005 * crate::stats::normal(&mut rng)).exp();
                let figures =
                    Figures { iops: if more { 1330.0 } else { 1000.0 } * noise, ..Figures::default() };
                runs.push(Run { round, figures, ..Run::of(Stage::Rounds, &variant.name, "w") });
            }
        }
        let found = findings(&Store::of_runs(experiment, runs));
        for claimed in &found.claims {
            assert!(found.sentences.contains(&claimed.sentence()), "{:?}", found.sentences);
        }
        found.claims.iter().map(|claimed| claimed.standing).collect()
    }

    #[test]
    fn claims_are_confirmed_or_refuted_by_what_was_measured() {
        let always = "{ sync = \"always\" }";
        let both = "{ sync = \"always\", compression = \"lz4\" }";
        let claims = [
            claim(always, "{}", "more"),
            claim(always, "{}", "less"),
            claim("{}", always, "less"),
            claim(both, always, "same"),
            claim(both, always, "more"),
        ];
        use Standing::{Confirmed, Open, Refuted};
        assert_eq!(standings(&claims, 8), [Confirmed, Refuted, Confirmed, Confirmed, Refuted]);
        assert_eq!(standings(&claims[..1], 1), [Open], "one round shows nothing");
    }

    #[test]
    fn claims_about_what_is_not_measured_are_faults() {
        let fault = |claim: String| Experiment::parse(&format!("{TEXT}{claim}")).unwrap_err().to_string();
        let unknown = fault(claim("{ sync = \"disabled\" }", "{}", "more"));
        assert!(unknown.contains("[[claim]] 'more': no variant has exactly these settings"), "{unknown}");
        assert!(fault(claim("{}", "{}", "more")).contains("are the same variant"));
        let workload = claim("{ sync = \"always\" }", "{}", "more") + "workload = \"v\"\n";
        assert!(fault(workload).contains("there is no workload 'v'"));
    }
}
