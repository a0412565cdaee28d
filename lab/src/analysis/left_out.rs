//! Runs that were left out, because they failed each time that they were tried.
//!
//! Variants are compared within rounds. So a round that lacks a run drops out of every comparison that the
//! run has a part in, and out of no other one: nothing stands in for it. The findings name what is missing,
//! how often, and why, so that no reader takes a gap for a result.

use serde::{Deserialize, Serialize};

use crate::plan::{BASELINE, DEVICE, Plan, TWIN};
use crate::store::Store;

/// A variant with a workload, of which runs were left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The variant's name.
    pub variant: String,
    /// The workload's name.
    pub workload: String,
    /// The rounds that have no run of it, from 1.
    pub rounds: Vec<usize>,
    /// How many rounds have one.
    pub measured: usize,
    /// Why the last of them failed.
    pub why: String,
}

impl LeftOut {
    /// It in a sentence or two.
    pub fn sentence(&self) -> String {
        let Self { variant, workload, rounds, measured, why } = self;
        let of = format!("{variant} with \"{workload}\"");
        let why = why.trim_end_matches('.');
        if *measured == 0 {
            return format!("Left out: {of} could not be measured, so nothing is said of it. {why}.");
        }
        let named: Vec<String> = rounds.iter().map(usize::to_string).collect();
        let rounds = match named.as_slice() {
            [one] => format!("round {one}"),
            some => format!("rounds {}", some.join(", ")),
        };
        let compared = match variant.as_str() {
            BASELINE => "What is compared with the baseline, is so by the other rounds only",
            TWIN => "How far equal variants differ is known from the other rounds only",
            DEVICE => "Its figures are those of the other rounds",
            _ => "It is compared by the other rounds only",
        };
        format!("Left out: {of} in {rounds}. {compared}. {why}.")
    }
}

/// All of them, in the order of the plan.
pub(super) fn all(store: &Store, plan: &Plan) -> Vec<LeftOut> {
    let mut all = Vec::new();
    for variant in plan.variants() {
        for workload in &store.experiment().workloads {
            let its = |run: &&crate::store::Run| run.variant == variant.name && run.workload == workload.name;
            let runs: Vec<_> = store.left_out().filter(its).collect();
            let Some(last) = runs.last() else { continue };
            all.push(LeftOut {
                variant: variant.name.clone(),
                workload: workload.name.clone(),
                rounds: runs.iter().map(|run| run.round + 1).collect(),
                measured: store.compared().filter(|(_, run)| its(run)).count(),
                why: last.notes.concat(),
            });
        }
    }
    all
}

/// Whether all runs of a variant with a workload were left out.
pub(super) fn is_never_measured(store: &Store, variant: &str, workload: &str) -> bool {
    let its = |run: &crate::store::Run| run.variant == variant && run.workload == workload;
    store.left_out().any(its) && !store.compared().any(|(_, run)| its(run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Verdict, findings, is_precise};
    use crate::experiment::Metric;
    use crate::report;
    use crate::store::{Run, Stage};

    const TEXT: &str = "name = \"x\"\nrounds = 6\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                        [[factor]]\nname = \"f\"\nvalues = [\"0\", \"1\", \"2\"]\n\
                        [[workload]]\nname = \"w\"\nrw = \"read\"\n";
    const PLANTED: [(&str, &str, f64); 5] = [
        (BASELINE, "w", 1000.0),
        (TWIN, "w", 1000.0),
        (DEVICE, "w", 5000.0),
        ("f=1", "w", 2000.0),
        ("f=2", "w", 500.0),
    ];

    /// Six rounds, without those runs for which this is so.
    fn without(is_left_out: impl Fn(usize, &str) -> bool) -> Store {
        let whole = Store::planted(TEXT, &PLANTED);
        let runs = whole.runs().iter().map(|run| match is_left_out(run.round, &run.variant) {
            true => Run::left_out(run.round, &run.variant, &run.workload, "It failed 3 times: broken".into()),
            false => run.clone(),
        });
        Store::of_runs(whole.experiment().clone(), runs.collect())
    }

    #[test]
    fn a_round_without_a_run_drops_out_of_its_comparisons_and_of_no_other() {
        let store = without(|round, variant| [1, 4].contains(&round) && variant == "f=1");
        let found = findings(&store);
        let finding = |variant| found.find(variant, "w", Metric::Iops).unwrap();
        assert_eq!((finding("f=1").values.len(), finding("f=2").values.len()), (4, 6));
        let pairs = |variant| finding(variant).compared.unwrap().comparison.rounds;
        assert_eq!((pairs("f=1"), pairs("f=2")), (4, 6));
        assert_eq!(finding("f=1").compared.unwrap().verdict, Verdict::Better);
        assert_eq!((found.rounds, found.runs, found.unfinished.as_ref()), (6, 28, None));
        let told = found.left_out[0].sentence();
        assert_eq!(
            told,
            "Left out: f=1 with \"w\" in rounds 2, 5. It is compared by the other rounds only. It failed 3 \
             times: broken."
        );
        let csv = report::csv(&store, &found);
        assert_eq!(csv.lines().filter(|line| line.contains(",left out,")).count(), 2, "{csv}");
        for text in [report::markdown(&store, &found), report::brief(&store, &found)] {
            assert!(text.contains(&format!("**{told}**")), "{text}");
            assert_eq!(text.matches("broken").count(), 1, "{text}");
        }
    }

    #[test]
    fn rounds_without_a_baseline_compare_nothing() {
        let store = without(|round, variant| round < 2 && variant == BASELINE);
        let found = findings(&store);
        for variant in ["f=1", "f=2"] {
            let finding = found.find(variant, "w", Metric::Iops).unwrap();
            assert_eq!((finding.values.len(), finding.compared.unwrap().comparison.rounds), (6, 4));
        }
        assert!(found.left_out[0].sentence().contains("by the other rounds only"), "{:?}", found.left_out);
        let none = findings(&without(|_, variant| variant == BASELINE));
        assert!(none.verdict.contains("no result: the baseline could not be measured"), "{}", none.verdict);
    }

    #[test]
    fn of_what_was_never_measured_nothing_is_said_and_no_rounds_are_added_for_it() {
        let store = without(|_, variant| variant == "f=1");
        let found = findings(&store);
        assert_eq!(found.find("f=1", "w", Metric::Iops), None);
        assert!(found.left_out[0].sentence().contains("could not be measured"), "{:?}", found.left_out);
        // What is left is not the answer to what was asked.
        assert!(!found.verdict.contains("keep that"), "{}", found.verdict);
        assert!(is_precise(&store));
        assert_eq!(store.runs().iter().filter(|run| run.stage == Stage::LeftOut).count(), 6);
    }
}
