//! An experiment made into another: of other factors, on another host, or short ([`Experiment::quick`]).

use std::time::Duration;

use super::Experiment;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::metric::Metric;
use crate::plan::Plan;
use crate::setting::{Factor, SettingOwner, Settings, THROUGH};
use crate::site::host::Host;
use crate::site::{ExperimentTarget, Quick};
use crate::size::Size;
use crate::workload::Work;

impl Quick {
    const USUAL: Self = Self { runs: 400, seconds: 120.0, within_seconds: QUICK_WITHIN_SECONDS };
    /// Where variants have pools of their own, which are made and filled each.
    const WITH_POOLS: Self = Self { runs: 165, ..Self::USUAL };
    /// Most runs, and their total time, where devices are modelled: what is done between runs takes as long
    /// as on such devices.
    const MODELLED: (usize, f64) = (60, 90.0);
}

/// Rounds of a quick experiment, where there are not too many runs: two say little where much is compared.
pub(crate) const QUICK_ROUNDS: std::ops::RangeInclusive<usize> = 2..=5;
/// What a copy should move at most then: it goes on to its end.
const QUICK_COPY: Size = Size(16 << 20);
/// How long a quick form may take until its last round ends, on a machine of any speed; what is made and
/// removed around it comes to that.
const QUICK_WITHIN_SECONDS: f64 = 240.0;
/// A run should be no shorter than that.
const LEAST_SECONDS: f64 = 0.25;
impl Experiment {
    /// Asks of other factors, each `name=value,value…`, and where given of pools of another layout. What was
    /// held fixed and is a factor now is held fixed no more.
    pub fn vary(&mut self, factors: &[String], layout: Option<&str>) -> Result<()> {
        if !factors.is_empty() {
            self.factors.clear();
            self.variants.clear();
            self.claims.clear();
        }
        for text in factors {
            let (name, values) = text.split_once('=').ok_or_else(|| {
                Error::Experiment(format!("factor '{text}': write for example sync=standard,always"))
            })?;
            let values = values.split(',').map(|value| value.trim().to_owned()).collect();
            self.settings.remove(name);
            self.factors.push(Factor { name: name.to_owned(), values, ..Factor::default() });
        }
        self.compare_layers();
        if let (Some(wanted), Some(pools)) = (layout, self.target.pools_mut()) {
            wanted.parse::<Layout>()?;
            wanted.clone_into(&mut pools.layout);
            self.settings.remove("layout");
        }
        self.leave_out_claims();
        self.check()
    }

    /// Moves it below `dataset` of a host that runs OpenZFS. Gives back the settings that are left out,
    /// because only the host decides them.
    pub fn move_to_host(&mut self, dataset: String) -> Settings {
        let target = ExperimentTarget::Host(Host { dataset, size: self.target.size() });
        let mut left_out: Settings =
            self.settings.extract_if(.., |name, _| !target.has(SettingOwner::of(name))).collect();
        self.target = target;
        left_out.extend(self.leave_out_ways());
        left_out.extend(self.leave_out_metrics());
        self.leave_out_claims();
        left_out
    }

    /// Drops metrics that the target does not report. Gives back what they were to be weighed by;
    /// the goal itself stays, and is refused.
    pub(super) fn leave_out_metrics(&mut self) -> Option<(String, String)> {
        let left_out = self.goal.also.extract_if(.., |metric| self.target.has_no(*metric).is_some());
        let names: Vec<String> = left_out.map(Metric::name).collect();
        (!names.is_empty()).then(|| ("goal.also".to_owned(), names.join(",")))
    }

    /// Drops claims about what is not measured any more.
    fn leave_out_claims(&mut self) {
        let plan = Plan::new(self, None, 0);
        let mut claims = std::mem::take(&mut self.claims);
        claims.retain(|claim| claim.faults(self, &plan).is_empty());
        self.claims = claims;
    }

    /// Compares no ways to a volume where the target has but one. Gives back what was to be compared.
    pub(super) fn leave_out_ways(&mut self) -> Option<(String, String)> {
        let has_ways = self.target.has(SettingOwner::Way);
        let left_out = self.factors.extract_if(.., |factor| !has_ways && factor.name == THROUGH).next();
        left_out.map(|factor| (factor.name, factor.values.join(",")))
    }

    /// Makes it short: of each factor the values of its quick form, the workloads that have one, five rounds
    /// at most, and runs of no more than `seconds`; fewer rounds, and shorter runs, where one has many. Its
    /// findings are less certain, and say so by their intervals.
    pub fn quick(&mut self, seconds: f64) {
        self.factors.iter_mut().for_each(Factor::be_quick);
        let left_out = self.workloads.extract_if(.., |workload| !workload.quick);
        self.left_out_workloads.extend(left_out.map(|workload| workload.name));
        self.leave_out_claims();
        let in_a_round = Plan::new(self, None, 0).round_length().max(1);
        let of_pools = if self.has_own_pools() { Quick::WITH_POOLS } else { Quick::USUAL };
        let mut quick = self.target.facts().quick.unwrap_or(of_pools);
        if self.modelled().is_some() {
            (quick.runs, quick.seconds) = Quick::MODELLED;
        }
        let most = (quick.runs / in_a_round).clamp(*QUICK_ROUNDS.start(), *QUICK_ROUNDS.end());
        self.rounds = self.rounds.min(most);
        self.max_rounds = None;
        self.within_seconds = Some(quick.within_seconds);
        let runs = in_a_round * self.rounds;
        let seconds = seconds.min((quick.seconds / runs as f64).max(LEAST_SECONDS));
        for workload in &mut self.workloads {
            workload.seconds = workload.seconds.min(seconds);
            workload.ramp_seconds = 0.0;
            if workload.work() == Work::Copy {
                workload.size = Some(workload.extent(self.target.size()).min(QUICK_COPY));
            }
        }
    }

    /// Leaves out a value of a factor that this machine cannot measure, with the claims about it, and the
    /// factor where no other value is left; whether there was one. The question says what is missing, and
    /// why.
    pub fn leave_out_here(&mut self, name: &str, value: &str, why: &str) -> bool {
        if !self.leave_out(name, value) {
            return false;
        }
        self.factors.retain(|factor| factor.values.len() > 1);
        let is_about = |settings: &Settings| settings.get(name).is_some_and(|its| its == value);
        self.claims.retain(|claim| !is_about(&claim.of) && !is_about(&claim.than));
        self.question.push_str(&format!(" (Without {name}={value} on this machine: {why}.)"));
        true
    }

    /// Leaves out a value of a factor; whether there was one to leave out.
    pub fn leave_out(&mut self, name: &str, value: &str) -> bool {
        let factor = self.factors.iter_mut().filter(|factor| factor.name == name);
        let values = factor.flat_map(|factor| {
            let place = factor.values.iter().position(|it| it == value);
            place.map(|at| factor.values.remove(at))
        });
        values.count() > 0
    }

    /// The parts that its quick form left out: settings, each with the values that are not measured, and
    /// workloads.
    pub fn left_out(&self) -> Vec<String> {
        let factors = self.factors.iter().filter(|factor| !factor.left_out.is_empty());
        let factors = factors.map(|factor| format!("{}={}", factor.name, factor.left_out.join(",")));
        let workloads = (!self.left_out_workloads.is_empty()).then(|| {
            let count = self.left_out_workloads.len();
            format!(
                "{count} of {} workloads ({})",
                count + self.workloads.len(),
                self.left_out_workloads.join("; ")
            )
        });
        let rounds = (self.left_out_rounds > 0).then(|| {
            let (left_out, all) = (self.left_out_rounds, self.rounds + self.left_out_rounds);
            let most = self.within_seconds.unwrap_or(QUICK_WITHIN_SECONDS);
            format!(
                "{left_out} of {all} rounds, which would have ended later than {most:.0} s after the \
                 beginning on this machine (`--rounds N` runs this number)"
            )
        });
        factors.chain(workloads).chain(rounds).collect()
    }

    /// Whether another round, which takes as long as the longest one did, would go beyond the time that a
    /// quick form has. Two are run in any case, and as many as the user asked for later.
    pub(crate) fn is_over(&self, rounds_done: usize, elapsed: Duration, longest_round: Duration) -> bool {
        let most = self.within_seconds.filter(|_| rounds_done >= *QUICK_ROUNDS.start());
        let most = most.filter(|_| self.more_rounds.is_none_or(|more| rounds_done >= more));
        most.is_some_and(|most| (elapsed + longest_round).as_secs_f64() > most)
    }

    /// Whether variants differ in what only a pool or its server can have.
    fn has_own_pools(&self) -> bool {
        let of_factors = self.factors.iter().map(|factor| &factor.name);
        of_factors
            .chain(self.variants.iter().flat_map(Settings::keys))
            .any(|name| SettingOwner::of(name).needs_a_pool())
    }
}
