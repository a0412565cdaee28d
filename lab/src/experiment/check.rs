//! What is wrong with an experiment by itself, before any machine is looked at.

use std::collections::BTreeSet;

use device::simulated::Model;
use ondisk::nearest::meant;

use super::{Experiment, Mode, ignored_options};
use crate::error::{Error, Result, fault};
use crate::layout::Layout;
use crate::load::Load;
use crate::metric::Metric;
use crate::plan::{Plan, VariantKind};
use crate::setting::{self, FIO, PROCESS, SETTINGS, SettingOwner, Settings, THROUGH};
use crate::workload::{CacheState, Workload, decided};

/// Most runs that a plan may have.
const MOST_RUNS: usize = 20_000;

/// Which layouts survive missing devices.
const BEARING: &str = "they are missing in its first vdev: a mirror survives all but one, raidzN and draidN \
    survive N, a single disk survives none";

/// Properties that are no factors: a filesystem that is mounted nowhere would be measured as whatever is
/// there.
const DECIDED: [&str; 8] = [
    "volsize",
    "mountpoint",
    "canmount",
    "zoned",
    "readonly",
    "pool.altroot",
    "pool.cachefile",
    "pool.readonly",
];

impl Experiment {
    /// Reads and checks one.
    pub fn parse(text: &str) -> Result<Self> {
        let experiment = Self::read(text)?;
        experiment.check()?;
        Ok(experiment)
    }

    /// Says what is wrong with it, where something is: all of it.
    pub fn check(&self) -> Result<()> {
        let faults = self.faults();
        match faults.len() {
            0 => Ok(()),
            1 => Err(Error::Experiment(faults.concat())),
            _ => Err(Error::Experiment(format!(
                "{} things are wrong:\n  {}",
                faults.len(),
                faults.join("\n  ")
            ))),
        }
    }

    /// All that is wrong with it by itself, each in a sentence.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.faults_of_numbers();
        faults.extend(self.target.faults(self.design()));
        faults.extend(self.faults_of_workloads());
        faults.extend(self.faults_of_goal());
        faults.extend(self.faults_of_factors());
        faults.extend(self.faults_of_names());
        faults.extend(self.faults_of_values());
        faults.extend(self.fault_of_disks());
        faults.extend(fault(self.check_ways()));
        faults.extend(fault(ignored_options::check(self)));
        faults.extend(self.faults_of_runs());
        if faults.is_empty() {
            faults.extend(self.fault_of_missing());
            let plan = Plan::new(self, None, 0);
            faults.extend(self.claims.iter().flat_map(|claim| claim.faults(self, &plan)));
        }
        let mut told = BTreeSet::new();
        faults.retain(|what: &String| told.insert(what.clone()));
        faults
    }

    /// Of its name, its numbers, and the size of its target.
    fn faults_of_numbers(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= 64
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        if !is_name(&self.name) {
            faults.push(format!(
                "'{}' is not a name: letters, digits, '-', '_' and '.', at most 64",
                self.name
            ));
        }
        if self.rounds < 2 || self.max_rounds.is_some_and(|most| most < self.rounds) {
            faults.push("rounds: at least 2, and max_rounds not fewer than rounds".into());
        }
        if self.within_seconds.is_some_and(|most| !(1.0..1e6).contains(&most)) {
            faults.push("within_seconds: at least 1, and at most 1000000".into());
        }
        if self.boot_seconds.is_some_and(|most| !(1.0..1e6).contains(&most)) {
            faults.push("boot_seconds: at least 1, and at most 1000000".into());
        }
        if self.boot_seconds.is_some() && !self.target.has(SettingOwner::Guest) {
            faults.push("boot_seconds: only targets of kind guest boot anything".into());
        }
        if !(0.001..1.0).contains(&self.precision) {
            faults.push(format!("precision {} is not between 0.001 and 1", self.precision));
        }
        if self.target.size().0 < 1 << 20 {
            faults.push(format!("target: size {} is less than 1M", self.target.size()));
        }
        faults
    }

    /// Of its workloads.
    fn faults_of_workloads(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.workloads.is_empty() {
            faults.push("there is no [[workload]]".into());
        }
        let mut names = BTreeSet::new();
        for workload in &self.workloads {
            let name = &workload.name;
            if name.is_empty() || !names.insert(name) {
                faults.push(format!("workload '{name}': names must differ and not be empty"));
            }
            faults.extend(workload.faults(&self.target));
        }
        let dirty = self.workloads.iter().find(|workload| workload.cache == CacheState::Dirty);
        if let Some(workload) = dirty.filter(|_| self.target.is_as_found() && !self.design().overwrites()) {
            faults.push(format!(
                "workload '{}': cache = \"dirty\" writes all that is read, and no workload writes to this \
                 target: measure it in a directory, where the lab has a file of its own, or leave it out",
                workload.name
            ));
        }
        faults
    }

    /// Of its goal.
    fn faults_of_goal(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.workloads.iter().all(|workload| workload.name != self.goal_workload()) {
            faults.push(format!("goal: there is no workload '{}'", self.goal_workload()));
        }
        if self.workloads.iter().any(|workload| !workload.quick && workload.name == self.goal_workload()) {
            faults.push(format!(
                "workload '{}': the goal is about it, so the quick form cannot leave it out",
                self.goal_workload()
            ));
        }
        let goal = self.workloads.iter().find(|workload| workload.name == self.goal_workload());
        faults.extend(self.goal.faults(&self.target, goal));
        let is_counted =
            matches!(self.goal.metric, Metric::Amplification | Metric::ReadAmplification | Metric::Cpu);
        if let Some(beside) = goal.and_then(Workload::counted_beside).filter(|_| is_counted) {
            faults.push(format!(
                "goal: {} cannot be reported for '{}', because it would count {beside} too",
                self.goal.metric.title(),
                self.goal_workload()
            ));
        }
        faults
    }

    /// Of its factors, bounds and variants.
    fn faults_of_factors(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut factors = BTreeSet::new();
        for factor in &self.factors {
            let name = &factor.name;
            if !factors.insert(name) {
                faults.push(format!("factor '{name}' appears twice"));
            }
            faults.extend(fault(factor.check()));
            if self.settings.contains_key(name) {
                faults.push(format!("'{name}' is both a factor and a fixed setting"));
            }
        }
        if let Some(bound) = self.bounds.iter().find(|bound| bound.bytes_per_second().is_none()) {
            faults.push(format!(
                "[[bound]] '{}': rate '{}' is not a link (1gbe, 10gbe) or bytes a second (117M)",
                bound.name, bound.rate
            ));
        }
        if !self.variants.is_empty() && self.mode != Mode::Each {
            faults.push("[[variant]]: only mode = \"each\" has them".into());
        }
        if self.variants.iter().any(Settings::is_empty) {
            faults.push("[[variant]]: one of them changes nothing".into());
        }
        faults
    }

    /// Of the names of its settings: those that the target does not have, and those that the lab decides.
    fn faults_of_names(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let of_layer = self.factors.iter().filter(|factor| factor.name == "layer");
        let is_layer = |value: &&String| self.target.layers().iter().any(|layer| layer.name == **value);
        if let Some(value) = of_layer.flat_map(|factor| &factor.values).find(|value| !is_layer(value)) {
            faults.push(format!("factor 'layer': the target has no layer '{value}'"));
        }
        let of_variants = self.variants.iter().flat_map(Settings::keys);
        let of_factors = self.factors.iter().map(|factor| &factor.name);
        let all = of_factors.chain(self.settings.keys()).chain(of_variants);
        for name in all {
            if !self.target.has(SettingOwner::of(name)) {
                let names = SETTINGS.into_iter().filter(|other| self.target.has(SettingOwner::of(other)));
                faults.push(format!("this target has no setting '{name}'{}", meant(name, names)));
            }
            if DECIDED.contains(&name.as_str()) {
                faults.push(format!(
                    "'{name}': the lab decides that, because its volumes and filesystems have a size and a \
                     mountpoint, and are written"
                ));
            }
            if let Some(decided) = name.strip_prefix(FIO).and_then(decided) {
                faults.push(format!("'{name}': {decided}"));
            }
        }
        faults
    }

    /// Of the runs that it would take.
    fn faults_of_runs(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let first = self.design().baseline();
        let means_nothing = self.target.fault_of_settings(&first).is_some();
        let unborne = self.workloads.iter().find(|workload| !self.bears(&first, workload));
        if let Some(workload) = unborne.filter(|_| !means_nothing) {
            faults.push(format!(
                "workload '{}': the baseline's layout does not survive so many missing devices: {BEARING}",
                workload.name
            ));
        }
        if self.budget.is_some() && self.mode != Mode::Search {
            faults.push("budget: only mode = \"search\" has one".into());
        }
        if self.budget == Some(0) {
            faults.push("budget: a search takes one run at least".into());
        }
        if self.is_searched() && self.factors.is_empty() {
            faults.push("there is no [[factor]] to search among".into());
        }
        let runs = self.variant_count().saturating_mul(self.workloads.len());
        let runs = runs.saturating_mul(self.least_rounds());
        let runs = runs.saturating_add(self.search_runs());
        if runs > MOST_RUNS {
            faults.push(format!(
                "it would take {runs} runs, more than {MOST_RUNS}: leave out values or workloads"
            ));
        }
        faults
    }

    /// The values that would never be run, because no possible layout survives so many missing devices. Where
    /// everything else is right.
    fn fault_of_missing(&self) -> Option<String> {
        let bears =
            |settings: &Settings| self.workloads.iter().any(|workload| self.bears(settings, workload));
        let told = |settings: &Settings| {
            let layout = settings.get("layout").or(self.target.pools().map(|pools| &pools.layout));
            format!(
                "missing={}: layout '{}' does not survive so many missing devices: {BEARING}",
                settings.get("missing").map_or("0", String::as_str),
                layout.map_or("", String::as_str)
            )
        };
        let missing = self.design().values_of("missing");
        let base = self.design().baseline();
        match self.mode {
            _ if missing.is_empty() => None,
            // Any combination may be asked for.
            Mode::Search | Mode::Improve => {
                let layouts = self.design().values_of("layout").into_iter().map(Some);
                let layouts = layouts.chain([base.get("layout")]);
                let all = layouts.flat_map(|layout| missing.iter().map(move |count| (layout, *count)));
                all.map(|(layout, count)| {
                    let layout = layout.map(|layout| ("layout".to_owned(), layout.clone()));
                    let both = layout.into_iter().chain([("missing".to_owned(), count.clone())]);
                    Settings::from_iter(both)
                })
                .find(|settings| !bears(settings))
                .map(|settings| told(&settings))
            }
            Mode::Each | Mode::Full => {
                let plan = Plan::new(self, None, 0);
                let changes = || plan.variants().iter().filter(|it| it.kind == VariantKind::Change);
                let has_runs = |value: &String| {
                    changes().any(|it| it.settings.get("missing") == Some(value) && bears(&it.settings))
                };
                let in_vain = changes().filter(|it| !bears(&it.settings)).find(|it| {
                    let value = it.settings.get("missing");
                    self.mode == Mode::Each || value.is_some_and(|value| !has_runs(value))
                });
                in_vain.map(|variant| told(&variant.settings))
            }
        }
    }

    /// Which values could not be used when their turn comes, which may be hours later.
    fn faults_of_values(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, value) in self.design().all_settings() {
            faults.extend(fault(setting::check(name, value)));
            if SettingOwner::of(name) == SettingOwner::Job {
                let settings = Settings::from([(name.clone(), value.clone())]);
                let of_workload = |workload: &Workload| {
                    let own = workload.faults(&self.target);
                    let with = match workload.with(&settings) {
                        Ok(job) => job.faults(&self.target),
                        Err(error) => fault::<()>(Err(error)).into_iter().collect(),
                    };
                    // What is wrong with it anyway is told anyway.
                    let what = with.into_iter().find(|what| !own.contains(what))?;
                    let named = format!("{name}={value}: ");
                    Some(if what.starts_with(&named) { what } else { named + &what })
                };
                faults.extend(self.workloads.iter().find_map(of_workload));
            }
        }
        let Some(pools) = self.target.pools() else { return faults };
        faults.extend(fault(setting::check("layout", &pools.layout)));
        faults.extend(pools.devices.iter().find_map(|model| fault(setting::check("devices", model))));
        if let Some(link) = pools.link.as_ref().filter(|link| Model::link(link).is_none()) {
            faults.push(format!("target: there is no model of a link '{link}'"));
        }
        faults
    }

    /// The faults of the disks that pools are to be made of.
    fn fault_of_disks(&self) -> Option<String> {
        let pools = self.target.pools().filter(|pools| !pools.disks.is_empty())?;
        let models = pools.devices.iter().chain(self.design().values_of("devices"));
        let logs = self.design().values_of("log").into_iter().chain(self.design().values_of("l2arc"));
        let logs = logs.filter(|log| *log != "none" && *log != "file");
        if let Some(model) = models.chain(logs).next() {
            return Some(format!(
                "disks: disks cannot play another medium: leave out '{model}', or the \
                disks"
            ));
        }
        if pools.device_size.is_some() {
            return Some("device_size: it is only for files, not for disks".to_owned());
        }
        let names: BTreeSet<_> = pools.disks.iter().collect();
        if names.len() != pools.disks.len() {
            return Some("disks: one is named twice".to_owned());
        }
        // Each pool is made of the first of them, so that all are on the same.
        let layouts = self.design().values_of("layout").into_iter().chain([&pools.layout]);
        let layouts = layouts.filter_map(|layout| layout.parse::<Layout>().ok());
        let largest = layouts.max_by_key(Layout::devices)?;
        (largest.devices() > pools.disks.len() as u64).then(|| {
            let (count, needed) = (pools.disks.len(), largest.devices());
            format!(
                "disks: a pool of {largest} has {needed} devices, and {count} disks are named: name \
                more, or leave out that layout"
            )
        })
    }

    /// Says what is wrong with the ways to volumes, and with what workloads ask for on them.
    fn check_ways(&self) -> Result<()> {
        let of_factors = |name: &str| {
            let its = self.factors.iter().filter(|factor| factor.name == name);
            its.flat_map(|factor| &factor.values).collect::<Vec<_>>()
        };
        let of_others = self.variants.iter().chain([&self.settings]);
        let ways = self.design().values_of(THROUGH);
        let known = self.target.facts().ways;
        if let Some(way) = ways.iter().find(|way| !known.contains(&way.as_str())) {
            return Err(Error::Experiment(format!("{THROUGH}={way}: it is {}", known.join(" or "))));
        }
        if !of_factors(THROUGH).is_empty() && matches!(self.mode, Mode::Search | Mode::Improve) {
            let what = "decides where something is measured and is nothing to search for: mode = \"each\" or \
                 \"full\"";
            return Err(Error::Experiment(format!("factor '{THROUGH}' {what}")));
        }
        if !ways.iter().any(|way| *way == PROCESS) {
            return Ok(());
        }
        // Whether a setting of the job can be done does not depend on others.
        let of_factors = self.factors.iter().flat_map(|factor| {
            factor.values.iter().map(|value| Settings::from([(factor.name.clone(), value.clone())]))
        });
        let jobs: Vec<Settings> = of_others.cloned().chain(of_factors).collect();
        for workload in &self.workloads {
            let volume = self.target.size();
            jobs.iter().try_for_each(|settings| Load::of(&workload.with(settings)?, volume, 0).map(drop))?;
        }
        Ok(())
    }
}
