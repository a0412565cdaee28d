//! How long the rest of an experiment takes.
//!
//! # The idea
//! The first runs differ from the others: each variant is made and filled before its first run, which often
//! takes longer than the run. So a run is predicted from two parts:
//!
//! | part | predicted by |
//! |---|---|
//! | the run itself | the last one of the same variant and workload; else the mean of those of the workload; else the measured seconds of the workload, and the median overhead of runs |
//! | preparation before it | the mean preparation before first runs of other variants; nothing after a variant's first run, unless pools take turns on the same disks and are filled again each time |
//!
//! There is no prediction before one run has ended. A quick form ends within its seconds, but not before its
//! second round.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::experiment::{Experiment, QUICK_ROUNDS, Workload};
use crate::plan::{Plan, Step};

/// The times of this process's runs.
#[derive(Debug, Default)]
pub(crate) struct TimeLeft {
    /// The seconds of the last run by workload and variant, without what was made ready before it.
    runs: BTreeMap<String, BTreeMap<String, f64>>,
    /// Seconds of each run beyond those that its workload is measured.
    beside: Vec<f64>,
    /// Seconds that were spent to make a variant ready for its first run.
    first: Vec<f64>,
    ready: BTreeSet<String>,
}

impl TimeLeft {
    /// Keeps what a run took in all, and of that, what was made ready before it.
    pub(crate) fn note(&mut self, variant: &str, workload: &Workload, took: Duration, ready: f64) {
        let seconds = (took.as_secs_f64() - ready).max(0.0);
        self.beside.push((seconds - measured(workload)).max(0.0));
        self.runs.entry(workload.name.clone()).or_default().insert(variant.to_owned(), seconds);
        if self.ready.insert(variant.to_owned()) {
            self.first.push(ready);
        }
    }

    /// Seconds that a run will take, without what is made ready before it.
    fn run(&self, variant: &str, workload: &Workload) -> Option<f64> {
        let Some(of) = self.runs.get(&workload.name) else {
            return Some(measured(workload) + median(&self.beside)?);
        };
        of.get(variant).copied().or_else(|| mean(of.values().copied()))
    }

    /// How long the rounds of a plan still take: those steps that are left.
    pub(crate) fn rounds<'a>(
        &self,
        experiment: &Experiment,
        plan: &Plan,
        left: impl Iterator<Item = &'a Step>,
        elapsed: Duration,
    ) -> Option<Duration> {
        let to_ready = mean(self.first.iter().copied())?;
        let is_always_made = plan.turns() > 1;
        let mut ready: BTreeSet<&str> = self.ready.iter().map(String::as_str).collect();
        let [mut needed, mut all] = [0.0; 2];
        for step in left {
            let variant = plan.variants()[step.variant].name.as_str();
            let mut seconds = self.run(variant, &experiment.workloads[step.workload])?;
            if is_always_made || ready.insert(variant) {
                seconds += to_ready;
            }
            all += seconds;
            if step.round < *QUICK_ROUNDS.start() {
                needed += seconds;
            }
        }
        let within = experiment.within_seconds.map_or(f64::INFINITY, |most| most - elapsed.as_secs_f64());
        Duration::try_from_secs_f64(all.min(within.max(needed))).ok()
    }

    /// How long so many runs of one workload take, of unknown variants.
    pub(crate) fn any(&self, runs: usize, workload: &Workload) -> Option<Duration> {
        let of = self.runs.get(&workload.name)?;
        let each = mean(of.values().copied())? + mean(self.first.iter().copied())?;
        Duration::try_from_secs_f64(each * runs as f64).ok()
    }
}

/// Seconds that a workload is measured, and warms up before.
fn measured(workload: &Workload) -> f64 {
    workload.seconds + workload.ramp_seconds
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"x\"\nrounds = 5\nseed = 5\n[target]\nkind = \"volume\"\nsize = \"64M\"\n\
                        [[factor]]\nname = \"compression\"\nvalues = [\"off\", \"lz4\", \"zstd\", \"gzip\"]\n\
                        [[workload]]\nname = \"a\"\nrw = \"read\"\nseconds = 4\n\
                        [[workload]]\nname = \"b\"\nrw = \"write\"\nseconds = 2\n";

    /// The time of filling a variant, and the overhead of a run.
    const FILL: f64 = 60.0;
    const BESIDE: f64 = 0.5;

    /// Plays an experiment through: the seconds that were left before each run, as predicted and in truth.
    fn played(experiment: &Experiment) -> Vec<(Option<f64>, f64)> {
        let plan = Plan::new(experiment, None, experiment.seed());
        let steps: Vec<Step> = (0..experiment.rounds).flat_map(|round| plan.round(round)).collect();
        let (mut pace, mut now, mut ready) = (TimeLeft::default(), 0.0, BTreeSet::new());
        let mut said = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let left = pace.rounds(experiment, &plan, steps[at..].iter(), Duration::from_secs_f64(now));
            said.push((left.map(|left| left.as_secs_f64()), now));
            let workload = &experiment.workloads[step.workload];
            let filled = if ready.insert(step.variant) { FILL } else { 0.0 };
            let took = measured(workload) + BESIDE + filled;
            now += took;
            let name = &plan.variants()[step.variant].name;
            pace.note(name, workload, Duration::from_secs_f64(took), filled);
        }
        said.into_iter().map(|(left, at)| (left, now - at)).collect()
    }

    #[test]
    fn from_the_third_run_on_the_rest_is_right_within_half() {
        let said = played(&Experiment::parse(TEXT).unwrap());
        assert_eq!(said[0].0, None);
        for (at, (predicted, truth)) in said.iter().enumerate().skip(3) {
            let ratio = predicted.unwrap() / truth;
            assert!((1.0 / 1.5..=1.5).contains(&ratio), "after {at} runs: {predicted:?} of {truth}");
        }
    }

    #[test]
    fn a_quick_form_ends_when_its_time_is_over_but_not_before_two_rounds() {
        let mut experiment = Experiment::parse(TEXT).unwrap();
        let plan = Plan::new(&experiment, None, 5);
        let mut pace = TimeLeft::default();
        pace.note("baseline", &experiment.workloads[0], Duration::from_secs(5), 0.0);
        let left = |experiment: &Experiment, rounds: usize, elapsed| {
            let steps: Vec<Step> = (1..rounds).flat_map(|round| plan.round(round)).collect();
            pace.rounds(experiment, &plan, steps.iter(), Duration::from_secs(elapsed)).unwrap().as_secs_f64()
        };
        let [two, five] = [left(&experiment, 2, 0), left(&experiment, 5, 0)];
        assert_eq!(five, 4.0 * two);
        experiment.within_seconds = Some(1.5 * two);
        assert_eq!([left(&experiment, 5, 0), left(&experiment, 5, two as u64)], [1.5 * two, two]);
    }

    #[test]
    fn what_has_no_seconds_of_its_own_takes_what_it_took_with_others() {
        let experiment = Experiment::parse(TEXT).unwrap();
        let workload = &experiment.workloads[0];
        let mut pace = TimeLeft::default();
        assert_eq!(pace.any(10, workload), None);
        pace.note("baseline", workload, Duration::from_secs(130), 10.0);
        assert_eq!(pace.run("compression=lz4", workload), Some(120.0));
        assert_eq!(pace.any(10, workload), Some(Duration::from_secs(1300)));
    }
}
