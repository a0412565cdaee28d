//! An experiment, as a TOML file describes it.
//!
//! ```toml
//! name = "volblocksize"
//! question = "Which volblocksize is best for random writes of 4K?"
//! seed = 7                      # seed of all random choices; by default random
//! rounds = 5                    # at least; more while intervals are wider than `precision`
//! max_rounds = 10
//! precision = 0.05              # half the width of an interval that is narrow enough, as a share
//! mode = "each"                 # one change at a time; full: all combinations; search: the best of them,
//!                               # within `budget` runs; improve: keep what proves itself
//!
//! [goal]
//! metric = "iops"               # iops, throughput, latency, latency_p50, latency_p99, latency_p999, space,
//!                               # cpu, memory, amplification, read_amplification
//! workload = "4K random write"  # by default the first one
//! at_least = 20000              # the value of success, or at_most; with the metric's unit: "500 MiB/s",
//!                               # "5ms" (a number without is bytes, or nanoseconds); may be left out
//! also = ["space"]              # further metrics: the report shows the variants that no other beats
//!
//! [target]
//! kind = "volume"               # volume, filesystem, path, nbd, host …: see below
//! size = "512M"
//!
//! [[bound]]                     # a bound that cannot be beaten, such as a network's line rate; optional
//! name = "the network"
//! rate = "1gbe"                 # or bytes a second: "117M"
//!
//! [settings]                    # held fixed
//! compression = "lz4"
//!
//! [[factor]]
//! name = "volblocksize"
//! values = ["16K", "8K", "64K"] # the first is the baseline's
//! quick = ["16K", "64K"]        # values that `--quick` compares, the baseline's first; by default all
//! risks = { 64K = "…" }         # the loss that a value risks, if the lab does not know it by itself
//!
//! [[variant]]                   # a variant that changes several settings at once; optional
//! volblocksize = "64K"
//! compression = "zstd"
//!
//! [[claim]]                     # a statement to confirm or to refute; optional
//! text = "zstd costs IOPS"
//! metric = "iops"
//! workload = "4K random write"  # by default the goal's
//! of = { volblocksize = "64K", compression = "zstd" } # what the variant changes of the baseline
//! than = { volblocksize = "64K" } # the same of the one that it is compared with; by default the baseline
//! is = "less"                   # more, less, same
//!
//! [[workload]]
//! name = "4K random write"
//! rw = "randwrite"
//! bs = "4K"
//! seconds = 10
//! quick = true                  # whether `--quick` runs it; by default true
//! ```
//!
//! # Targets
//! [`crate::site`] lists the kinds of targets, with their fields.
//!
//! # Settings
//! A setting is known by its name. [`SettingOwner::of`] says what has it: the job (`iodepth`, `bs` …: fio's
//! options), the process that serves (`arc_max`: bytes of its cache), the pool (`layout`, `log`, `l2arc`,
//! `ashift`, `devices`, `missing`: devices of the first vdev that are offline, `device_luks`, `feature@…`,
//! and its properties with `pool.` before their names), a stack (`layer`), the way to a volume (`through`),
//! else it is a property of the volume or filesystem. So a factor is data: a property that the engine learns
//! is at once one, and so is every option of fio with `fio.` before its name (`fio.thinktime`).
//!
//! `through = "nbd"` is a volume as fio finds it over NBD; with `through = "process"` the process that has
//! the pool open does the same itself ([`crate::load`]), behind no modelled link. The gap between the two is
//! what the export costs, and that to the raw device what the pool costs. What workloads ask for that this
//! process does not do is refused.
//!
//! # Workloads
//! A workload is a job of fio ([`Workload`] has the fields), or starts from a preset that others are added
//! to: `preset = "database-8k"`. [`presets`] lists them.
//!
//! # Parts
//! What a kind of target has to know lies below this module: settings ([`crate::setting`]), workloads
//! ([`crate::workload`]), metrics ([`crate::metric`]), and what of them an experiment has
//! ([`Experiment::design`]). So do targets ([`crate::site`]). What needs the plan ([`crate::plan`]), as the
//! check does, lies above.
//!
//! | module | what it owns |
//! |---|---|
//! | `goal` | what counts |
//! | `risk` | what a setting costs in safety |
//! | `claim` | what is to be confirmed or refuted |
//! | `check`, `claim_faults`, `workload_faults` | what is wrong with it |
//! | `adapted` | other factors, another host, its quick form |
//! | `changed` | what was changed since its runs were made |
//! | `ignored_options` | options of fio that make no difference, and where |
//! | `parse_error` | what is wrong with the text |
//! | `presets` | workloads that come with the program |
//! | [`mod@format`] | the reference of the file: every key |
//! | [`draft`] | an experiment out of a few words |

mod adapted;
mod changed;
mod check;
mod claim;
mod claim_faults;
pub mod draft;
pub mod format;
mod goal;
pub(crate) mod ignored_options;
mod parse_error;
pub mod presets;
pub(crate) mod risk;
mod workload_faults;

use serde::{Deserialize, Serialize};

use crate::design::Design;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::search::MOST_SEARCHED;

pub use crate::metric::Metric;
pub(crate) use crate::setting::meaning;
pub use crate::setting::{
    FIO, Factor, NBD, POOL, PROCESS, SETTINGS, SettingOwner, Settings, THROUGH, TUNABLE, TUNABLES, Tunable,
};
pub use crate::site::{ExperimentTarget, Pools};
pub use crate::workload::{CacheState, Work, Workload};
pub(crate) use crate::workload::{does_write, faults_of_options};
pub(crate) use adapted::QUICK_ROUNDS;
pub(crate) use changed::changed;
pub use claim::{Claim, Relation};
pub use goal::{Bound, Goal, Rates};

/// A question, a target and loads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// A short name, for directories and titles.
    pub name: String,
    /// The question in a sentence.
    #[serde(default)]
    pub question: String,
    /// Rounds at least.
    #[serde(default = "five")]
    pub rounds: usize,
    /// Rounds at most; as `rounds` where left out.
    #[serde(default)]
    pub max_rounds: Option<usize>,
    /// Half the width of a ratio's interval, as a share, that needs no more rounds.
    #[serde(default = "five_percent")]
    pub precision: f64,
    /// Which variants there are.
    #[serde(default)]
    pub mode: Mode,
    /// Runs that a search may take; a quarter of what all combinations would, where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<usize>,
    /// Names of workloads that are not measured, because this is the quick form of an experiment that has
    /// them. The report says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out_workloads: Vec<String>,
    /// The seed of all random choices: the order of runs, what a search tries, where fio reads and
    /// writes. Drawn itself when the experiment is begun, where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// Rounds at least, because the user asked for more of an experiment that was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_rounds: Option<usize>,
    /// How long all of it should take, where it is a quick form: rounds that would take it beyond are left
    /// out, but for two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<f64>,
    /// Rounds that were left out for that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out_rounds: usize,
    /// How many seconds a guest may take to boot; where left out, that follows from the boots that were
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_seconds: Option<f64>,
    /// The speed of the target's disks before pools were made of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Rates>,
    /// The goal.
    #[serde(default)]
    pub goal: Goal,
    /// The target.
    pub target: ExperimentTarget,
    /// The bound.
    #[serde(default, rename = "bound", skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Bound>,
    /// Settings that all variants have.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
    /// Settings that differ.
    #[serde(default, rename = "factor")]
    pub factors: Vec<Factor>,
    /// Variants that change several settings at once, beside those that the factors make. What they do not
    /// name is as in the baseline.
    #[serde(default, rename = "variant", skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Settings>,
    /// Statements to confirm or to refute.
    #[serde(default, rename = "claim", skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    /// The loads for each variant.
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
}

/// Which variants of an experiment are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Each value of each factor, one changed at a time.
    #[default]
    Each,
    /// All combinations.
    Full,
    /// The best combination that a search within a budget finds ([`crate::search::find`]).
    Search,
    /// The result of changing one factor after the other, and keeping only proven improvements
    /// ([`crate::search::improve`]).
    Improve,
}

fn five() -> usize {
    5
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn five_percent() -> f64 {
    0.05
}

impl Experiment {
    /// Reads one that may be changed before it is checked.
    pub fn read(text: &str) -> Result<Self> {
        let wrong = |error: toml::de::Error| Error::Experiment(parse_error::plain(&error));
        let table = toml::from_str(text).map_err(wrong)?;
        if let Some(fault) = parse_error::brackets(&table).or_else(|| parse_error::sizes(&table)) {
            return Err(Error::Experiment(fault));
        }
        let mut experiment: Self = match presets::expanded(table)? {
            Some(table) => table.try_into().map_err(wrong)?,
            // Its errors name lines.
            None => toml::from_str(text).map_err(wrong)?,
        };
        experiment.compare_layers();
        Ok(experiment)
    }

    /// Layers are compared, whatever else is.
    fn compare_layers(&mut self) {
        let is_asked = |name: &str| {
            self.settings.contains_key(name) || self.factors.iter().any(|factor| factor.name == name)
        };
        if self.target.layers().len() > 1 && !is_asked("layer") {
            let values = self.target.layers().iter().map(|layer| layer.name.clone()).collect();
            self.factors.insert(0, Factor { name: "layer".into(), values, ..Factor::default() });
        }
    }

    /// Draws what is random from a seed of its own, where it has none.
    pub fn draw_seed(&mut self) {
        self.seed.get_or_insert_with(|| fastrand::u32(..));
    }

    /// The seed of random numbers. One that was begun before seeds were kept has its name's.
    pub(crate) fn seed(&self) -> u64 {
        let of_name = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        self.seed.map_or_else(|| self.name.bytes().fold(0xcbf2_9ce4_8422_2325, of_name), u64::from)
    }

    /// What fio draws from in a round: the same for all variants, so that they are asked for the same, and
    /// another in each round.
    pub(crate) fn seed_of_round(&self, round: usize) -> u64 {
        let round = (round as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // 0 would be none to fio.
        (fastrand::Rng::with_seed(self.seed() ^ round).u64(..) >> 33) + 1
    }

    /// Whether a search comes before the rounds.
    pub(crate) fn is_searched(&self) -> bool {
        matches!(self.mode, Mode::Search | Mode::Improve)
    }

    /// Rounds of each step of a search: those that it was begun with, however many were left out afterwards.
    pub(crate) fn searched_rounds(&self) -> usize {
        self.rounds + self.left_out_rounds
    }

    /// Rounds at least.
    pub fn least_rounds(&self) -> usize {
        self.more_rounds.unwrap_or(0).max(self.rounds)
    }

    /// As a file that [`Experiment::parse`] reads.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::Experiment(error.to_string()))
    }

    /// Makes its paths absolute, so that it means the same wherever it is gone on with.
    pub fn make_absolute(&mut self) -> Result<()> {
        let of_workloads = self.workloads.iter_mut().flat_map(|it| [&mut it.trace, &mut it.source]).flatten();
        for path in of_workloads {
            *path = std::path::absolute(&*path).map_err(Error::file(&path.clone()))?;
        }
        self.target.make_absolute()
    }

    /// What it compares, and with which work.
    pub fn design(&self) -> Design<'_> {
        let Self { settings, factors, variants, workloads, .. } = self;
        Design { settings, factors, variants, workloads, is_searched: self.is_searched() }
    }

    /// The workload that the goal is about.
    pub fn goal_workload(&self) -> &str {
        let first = self.workloads.first().map_or("", |workload| &workload.name);
        self.goal.workload.as_deref().unwrap_or(first)
    }

    /// Whether a variant with these settings has a pool with as many devices missing as a workload wants.
    pub(crate) fn bears(&self, settings: &Settings, workload: &Workload) -> bool {
        if self.target.fault_of_settings(settings).is_some() {
            return false;
        }
        let of_variant = settings.get("missing").and_then(|count| count.parse().ok()).unwrap_or(0);
        let missing: u64 = if workload.missing > 0 { workload.missing } else { of_variant };
        let Some(pools) = self.target.pools().filter(|_| missing > 0) else { return true };
        let layout = settings.get("layout").unwrap_or(&pools.layout).parse::<Layout>();
        // A layout that is none is refused by the check.
        layout.map_or(true, |layout| layout.vdevs().first().is_some_and(|vdev| vdev.tolerance() >= missing))
    }

    /// Whether pools have more than one device, which are files that lie on the same medium and play no
    /// other.
    pub(crate) fn shares_a_medium(&self) -> bool {
        let Some(pools) = self.target.pools() else { return false };
        if pools.devices.is_some()
            || !pools.disks.is_empty()
            || !self.design().values_of("devices").is_empty()
        {
            return false;
        }
        let layouts = self.design().values_of("layout").into_iter().chain([&pools.layout]);
        let has_many = |layout: &String| layout.parse().is_ok_and(|layout: Layout| layout.devices() > 1);
        layouts.into_iter().any(has_many)
            || ["log", "l2arc"]
                .iter()
                .any(|name| self.design().values_of(name).iter().any(|value| *value == "file"))
    }

    /// Its modelled parts, in words; nothing if all of it is real.
    pub fn modelled(&self) -> Option<String> {
        let Pools { devices, link, .. } = self.target.pools()?;
        let values = |name: &str| self.design().values_of(name).into_iter().cloned();
        let mut models: Vec<String> = values("devices").collect();
        models.extend(devices.clone().filter(|_| models.is_empty()));
        let beside = values("log").chain(values("l2arc"));
        models.extend(beside.filter(|model| model != "none" && model != "file"));
        models.extend(link.clone());
        models.dedup();
        (!models.is_empty()).then(|| models.join(", "))
    }

    /// Most volumes or filesystems that are in one pool: variants that differ in nothing that only a pool or
    /// its server can have, and the baseline's twin.
    pub(crate) fn most_in_a_pool(&self) -> usize {
        let shared = self.factors.iter().filter(|factor| !SettingOwner::of(&factor.name).needs_a_pool());
        let combinations = shared.fold(1, |all: usize, factor| all.saturating_mul(factor.values.len()));
        let combinations = combinations.saturating_add(self.variants.len());
        combinations.min(MOST_SEARCHED.max(self.variant_count())).saturating_add(1)
    }

    /// Whether anything is compared with the baseline.
    pub(crate) fn compares(&self) -> bool {
        !self.factors.is_empty() || !self.variants.is_empty()
    }

    /// Combinations of the factors' values.
    fn combinations(&self) -> usize {
        self.factors.iter().fold(1, |all, factor| all.saturating_mul(factor.values.len()))
    }

    /// Variants that are compared round by round, without the baseline's twin and the raw device.
    pub(crate) fn variant_count(&self) -> usize {
        match self.mode {
            Mode::Each => {
                let changes =
                    self.factors.iter().map(|factor| factor.values.len().saturating_sub(1)).sum::<usize>();
                1 + changes + self.variants.len()
            }
            Mode::Full => self.combinations(),
            Mode::Search | Mode::Improve => 2,
        }
    }

    /// Runs before that, which look for the variant to compare; at most.
    pub fn search_runs(&self) -> usize {
        match self.mode {
            Mode::Each | Mode::Full => 0,
            Mode::Search => {
                self.budget.unwrap_or(self.combinations().saturating_mul(self.searched_rounds()) / 4).max(1)
            }
            Mode::Improve => {
                let values = self.factors.iter().map(|factor| factor.values.len()).sum::<usize>();
                values.saturating_mul(self.searched_rounds())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Plan;

    const SMALL: &str = r#"
        name = "small"
        [target]
        kind = "volume"
        size = "64M"
        [settings]
        compression = "lz4"
        [[factor]]
        name = "volblocksize"
        values = ["16K", "8K"]
        [[workload]]
        name = "w"
        rw = "randwrite"
        bs = "4K"
    "#;

    #[test]
    fn an_experiment_survives_writing_and_reading() {
        let experiment = Experiment::parse(SMALL).unwrap();
        assert_eq!(Experiment::parse(&experiment.to_toml().unwrap()).unwrap(), experiment);
        assert_eq!(experiment.goal_workload(), "w");
    }

    #[test]
    fn a_host_decides_what_is_not_a_property_itself() {
        let mut experiment = Experiment::parse(SMALL).unwrap();
        for (name, value) in [("arc_max", "128M"), ("ashift", "12"), ("iodepth", "4")] {
            experiment.settings.insert(name.to_owned(), value.to_owned());
        }
        let left_out = experiment.move_to_host("tank/lab".to_owned());
        assert_eq!(left_out.keys().collect::<Vec<_>>(), ["arc_max", "ashift"]);
        assert_eq!(experiment.settings.keys().collect::<Vec<_>>(), ["compression", "iodepth"]);
        assert_eq!(experiment.target.size().0, 64 << 20);
        experiment.check().unwrap();
    }

    #[test]
    fn what_no_layout_bears_is_refused_and_what_some_bear_is_told() {
        let of = |mode: &str, layout: &str, factors: &[(&str, &str)]| {
            let factors = factors
                .iter()
                .map(|(name, values)| format!("[[factor]]\nname = \"{name}\"\nvalues = {values}\n"));
            let text = SMALL.replace("size = \"64M\"", &format!("size = \"64M\"\nlayout = \"{layout}\""));
            let text = text.replace("name = \"small\"", &format!("name = \"small\"\nmode = \"{mode}\""));
            Experiment::parse(&(text + &factors.collect::<String>()))
        };
        let missing = ("missing", "[\"0\", \"1\"]");
        for mode in ["each", "full", "search", "improve"] {
            let refused = of(mode, "1", &[missing]).unwrap_err().to_string();
            assert!(
                refused.contains("missing=1: layout '1' does not survive so many missing devices"),
                "{refused}"
            );
            of(mode, "mirror 2", &[missing]).unwrap();
        }
        // Some combinations are left out, and that is told.
        let layouts = ("layout", "[\"mirror 2\", \"2\"]");
        assert!(of("search", "mirror 2", &[layouts, missing]).is_err());
        let full = of("full", "mirror 2", &[layouts, missing]).unwrap();
        let plan = Plan::new(&full, None, 0);
        let told: Vec<_> = plan.left_out(&full).map(|(variant, of)| (variant.name.clone(), of)).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told.iter().all(|(name, of)| name.contains("layout=2 missing=1") && *of == ["w"]),
            "{told:?}"
        );
        let (variant, of) = plan.left_out(&full).next().unwrap();
        let words = crate::preflight::left_out_words(&full, variant, &of);
        assert!(words.contains("missing=1, as its layout"), "{words}");
    }

    #[test]
    fn one_value_in_two_spellings_is_one() {
        let refused = |values: &str| {
            Experiment::parse(&SMALL.replace("[\"16K\", \"8K\"]", values)).unwrap_err().to_string()
        };
        let told = refused("[\"8192\", \"16K\", \"8K\"]");
        assert!(told.contains("8192 and 8K are the same value"), "{told}");
        let layouts = SMALL.replace("\"volblocksize\"", "\"layout\"");
        let of = |values: &str| Experiment::parse(&layouts.replace("[\"16K\", \"8K\"]", values));
        for twice in ["[\"raidz 3\", \"raidz1 3\"]", "[\"mirror 2+1\", \"2\", \"mirror 2 + 1\"]"] {
            let told = of(twice).unwrap_err().to_string();
            assert!(told.contains("are the same value"), "{twice}: {told}");
        }
        // The first vdev is the one that misses devices.
        of("[\"mirror 2 + 1\", \"1 + mirror 2\"]").unwrap();
        for none in ["[]", "[\"16K\"]"] {
            let told = refused(none);
            assert!(told.contains("it needs at least two different values"), "{none}: {told}");
        }
    }

    #[test]
    fn where_there_is_one_way_to_a_volume_none_are_compared() {
        let mut experiment = crate::recipes::find("matrix").unwrap().experiment();
        assert!(experiment.compares());
        let left_out = experiment.move_to_host("tank/lab".to_owned());
        assert_eq!(left_out["through"], "nbd,process");
        experiment.check().unwrap();
        assert!(!experiment.compares());
    }

    #[test]
    fn what_is_quick_stays_so_with_many_workloads() {
        let mut experiment = Experiment::parse(SMALL).unwrap();
        experiment.quick(1.0);
        assert_eq!((experiment.workloads[0].seconds, experiment.rounds), (1.0, 5));
        let is_over = |rounds, elapsed, longest| {
            experiment.is_over(rounds, Duration::from_secs(elapsed), Duration::from_secs(longest))
        };
        assert_eq!([is_over(1, 1000, 900), is_over(2, 180, 90), is_over(2, 140, 70)], [false, true, false]);
        let like = experiment.workloads[0].clone();
        let mut with = |workloads: usize| {
            experiment.rounds = 5;
            experiment.workloads =
                (0..workloads).map(|number| Workload { name: number.to_string(), ..like.clone() }).collect();
            experiment.quick(1.0);
            experiment.rounds
        };
        assert_eq!([with(20), with(21), with(40)], [5, 4, 2]);
        assert!((0.25..0.4).contains(&experiment.workloads[0].seconds), "{:?}", experiment.workloads[0]);
        // Where pools are made for variants, that takes time too.
        for name in ["layout", "arc_max"] {
            experiment.factors[0].name = name.to_owned();
            let mut with = |workloads: usize| {
                experiment.rounds = 5;
                experiment.workloads = (0..workloads)
                    .map(|number| Workload { name: number.to_string(), ..like.clone() })
                    .collect();
                experiment.quick(1.0);
                experiment.rounds
            };
            assert_eq!([with(8), with(9), with(40)], [5, 4, 2], "{name}");
        }
    }

    #[test]
    fn a_quick_form_has_the_values_that_it_names_and_says_which_it_left_out() {
        let with = |quick: &str| {
            SMALL.replace(
                "[\"16K\", \"8K\"]",
                &format!(
                    "[\"16K\", \"8K\", \"32K\"]\nquick = [{quick}]\nrisks = {{ 8K = \"a\", 32K = \"b\" }}"
                ),
            )
        };
        let mut experiment = Experiment::parse(&with("\"16K\", \"32K\"")).unwrap();
        let written = |experiment: &Experiment| Experiment::parse(&experiment.to_toml().unwrap()).unwrap();
        assert_eq!(written(&experiment), experiment);
        assert!(experiment.left_out().is_empty());
        // What is quick already has nothing more to leave out.
        for _ in 0..2 {
            experiment.quick(1.0);
            assert_eq!(experiment.factors[0].values, ["16K", "32K"]);
            assert_eq!(experiment.factors[0].risks.keys().collect::<Vec<_>>(), ["32K"]);
            assert_eq!(experiment.left_out(), ["volblocksize=8K"]);
            assert_eq!(written(&experiment), experiment);
        }
        for (quick, named) in [
            ("\"16K\", \"64K\"", "quick: it has no value '64K'"),
            ("\"8K\", \"16K\"", "which is '16K' and not '8K'"),
            ("\"16K\"", "quick: it needs at least two different values"),
            ("\"16K\", \"8K\", \"8K\"", "quick: it needs at least two different values"),
        ] {
            let error = Experiment::parse(&with(quick)).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("volblocksize"), "{error}");
        }
        let left_out = SMALL.replace("[\"16K\", \"8K\"]", "[\"16K\", \"8K\"]\nleft_out = [\"8K\"]");
        let error = Experiment::parse(&left_out).unwrap_err().to_string();
        assert!(error.contains("'8K' is among its values"), "{error}");
    }

    #[test]
    fn a_quick_form_has_the_workloads_that_say_so_and_says_which_it_left_out() {
        let more = "[[workload]]\nname = \"slow\"\nrw = \"read\"\nquick = false\n[[workload]]\nname = \
            \"x\"\nrw = \"read\"\n";
        let text = format!("{SMALL}{more}");
        let mut experiment = Experiment::parse(&text).unwrap();
        let written = |experiment: &Experiment| Experiment::parse(&experiment.to_toml().unwrap()).unwrap();
        assert_eq!((written(&experiment), experiment.left_out().len()), (experiment.clone(), 0));
        for _ in 0..2 {
            experiment.quick(1.0);
            assert_eq!(
                experiment.workloads.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
                ["w", "x"]
            );
            assert_eq!(experiment.left_out(), ["1 of 3 workloads (slow)"]);
            assert_eq!(written(&experiment), experiment);
        }
        let error = Experiment::parse(&text.replace("[target]", "[goal]\nworkload = \"slow\"\n[target]"));
        assert!(error.unwrap_err().to_string().contains("'slow'"));
    }

    #[test]
    fn layers_are_compared_and_nothing_else_has_them() {
        let layers = "kind = \"layers\"\n[[target.layer]]\nname = \"device\"\nat = \
            \"/dev/sdx\"\n[[target.layer]]\nname = \"export\"\nat = \"nbd://h/v\"\n";
        let text = format!(
            "name = \"x\"\n[target]\nsize = \"1G\"\n{layers}[[workload]]\nname = \"w\"\nrw = \"read\"\n"
        );
        let experiment = Experiment::parse(&text).unwrap();
        assert_eq!(experiment.factors[0].values, ["device", "export"]);
        assert_eq!(Experiment::parse(&experiment.to_toml().unwrap()).unwrap(), experiment);
        let depth = "[[factor]]\nname = \"iodepth\"\nvalues = [\"1\", \"4\"]\n";
        assert_eq!(Experiment::parse(&format!("{text}{depth}")).unwrap().factors.len(), 2);
        let wrong = "[[factor]]\nname = \"layer\"\nvalues = [\"device\", \"guest\"]\n";
        for (wrong, named) in [
            (format!("{text}{wrong}"), "guest"),
            (text.replace("\"export\"", "\"device\""), "differ"),
            (format!("{SMALL}[[factor]]\nname = \"layer\"\nvalues = [\"a\", \"b\"]\n"), "'a'"),
        ] {
            let error = Experiment::parse(&wrong).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn who_writes_and_whose_devices_share_a_medium_is_known() {
        let experiment = |from: &str, to: &str| Experiment::parse(&SMALL.replace(from, to)).unwrap();
        assert!(
            experiment("", "").design().overwrites()
                && !experiment("randwrite", "randread").design().overwrites()
        );
        let of_factor = "[[factor]]\nname = \"rw\"\nvalues = [\"randread\", \"randrw\"]\n[[workload]]";
        assert!(experiment("[[workload]]", of_factor).design().overwrites());
        let shares =
            |to: &str| experiment("kind = \"volume\"", &format!("kind = \"volume\"\n{to}")).shares_a_medium();
        assert!(
            !shares("")
                && shares("layout = \"mirror 2\"")
                && !shares("layout = \"mirror 2\"\ndevices = \"nvme\"")
        );
        let of_log = "[[factor]]\nname = \"log\"\nvalues = [\"none\", \"file\"]\n[[workload]]";
        assert!(experiment("[[workload]]", of_log).shares_a_medium());
    }

    #[test]
    fn what_is_relative_is_made_absolute_and_uris_stay() {
        let here = |name: &str| std::env::current_dir().unwrap().join(name);
        let text = |target: &str| {
            format!(
                "name = \"x\"\n[target]\nsize = \"1G\"\n{target}\n[[workload]]\nname = \"w\"\nrw = \
                 \"replay\"\ntrace = \"t\"\n"
            )
        };
        let absolute = |target: &str| {
            let mut experiment = Experiment::parse(&text(target)).unwrap();
            experiment.make_absolute().unwrap();
            assert_eq!(experiment.workloads[0].trace, Some(here("t")));
            experiment.target
        };
        assert_eq!(absolute("kind = \"path\"\npath = \"./data\"").paths(), [here("data")]);
        let layers = "kind = \"layers\"\n[[target.layer]]\nname = \"a\"\nat = \"b\"\n[[target.layer]]\nname \
            = \"c\"\nat = \"nbd://h/v\"\n";
        let target = absolute(layers);
        assert_eq!(
            (target.paths(), target.layers()[1].at.as_str()),
            (vec![here("b").as_path()], "nbd://h/v")
        );
    }

    #[test]
    fn layers_elsewhere_are_paths_that_a_command_leads_to() {
        let of = |at: &str, by: &str, workload: &str| {
            let layers = format!(
                "[[target.layer]]\nname = \"a\"\nat = \"/b\"\n[[target.layer]]\nname = \"guest\"\nat = \
                 \"{at}\"\nby = {by}\n"
            );
            let text = format!(
                "name = \"x\"\n[target]\nkind = \"layers\"\nsize = \"1G\"\n{layers}[[workload]]\nname = \
                 \"w\"\n{workload}\n"
            );
            Experiment::read(&text).unwrap()
        };
        let ssh = "[\"ssh\", \"root@guest\"]";
        let right = of("/dev/vda", ssh, "rw = \"read\"");
        assert!(right.faults().is_empty(), "{:?}", right.faults());
        // Nothing of it is looked for here.
        assert_eq!((right.target.paths().len(), right.target.uris().len()), (1, 0));
        assert_eq!(
            right.target.elsewhere().next().unwrap().title(),
            "layer 'guest' (/dev/vda by 'ssh root@guest')"
        );
        assert_eq!(Experiment::parse(&right.to_toml().unwrap()).unwrap(), right);
        for (at, by, workload, named) in [
            ("/dev/vda", "[]", "rw = \"read\"", "by is empty"),
            ("/dev/vda", "[\"\"]", "rw = \"read\"", "by is empty"),
            ("nbd://h/v", ssh, "rw = \"read\"", "at is a URI"),
            ("dev/vda", ssh, "rw = \"read\"", "must begin with '/'"),
            ("/dev/\\u0000", ssh, "rw = \"read\"", "NUL"),
            ("/dev/vda", ssh, "rw = \"replay\"\ntrace = \"t\"", "layer 'guest' is remote"),
            ("/dev/vda", ssh, "rw = \"copy\"\nsource = \"t\"", "layer 'guest' is remote"),
        ] {
            let told = of(at, by, workload).faults();
            assert!(
                told.len() == 1 && told[0].contains(named) && told[0].contains("guest"),
                "{named}: {told:?}"
            );
        }
    }

    #[test]
    fn options_of_fio_can_be_factors_but_those_that_the_lab_decides() {
        let with = |name: &str| format!("{SMALL}[[factor]]\nname = \"{name}\"\nvalues = [\"0\", \"1\"]\n");
        assert_eq!(SettingOwner::of("fio.thinktime"), SettingOwner::Job);
        Experiment::parse(&with("fio.thinktime")).unwrap();
        let error = Experiment::parse(&with("fio.filename")).unwrap_err().to_string();
        assert!(error.contains("fio.filename"), "{error}");
    }

    #[test]
    fn a_pool_is_as_large_as_what_shares_it() {
        let mut experiment = Experiment::parse(SMALL).unwrap();
        assert_eq!(experiment.most_in_a_pool(), 3, "two block sizes and a twin");
        experiment.vary(&["layout=2,raidz1 3,mirror 2".to_owned()], None).unwrap();
        assert_eq!(experiment.most_in_a_pool(), 2, "each layout has its own");
    }

    #[test]
    fn factors_and_layout_can_be_others() {
        let mut experiment = Experiment::parse(SMALL).unwrap();
        let factors = ["compression=off, lz4".to_owned(), "layout=2,raidz1 3".to_owned()];
        experiment.vary(&factors, Some("mirror 2")).unwrap();
        assert_eq!(experiment.factors.len(), 2);
        assert_eq!(experiment.factors[0].values, ["off", "lz4"]);
        assert!(experiment.settings.is_empty());
        assert_eq!(experiment.target.pools().unwrap().layout, "mirror 2");
        assert!(experiment.vary(&["sync".to_owned()], None).is_err());
        assert!(experiment.vary(&["sync=always".to_owned()], None).is_err());
        assert!(experiment.vary(&[], Some("mirrored")).is_err());
    }

    #[test]
    fn values_that_could_not_be_used_are_named_before_anything_runs() {
        for (name, right, wrong) in [
            ("rw", "randread:8", "randomread"),
            ("bs", "8K", "8Q"),
            ("bs", "1M", "1G"),
            ("iodepth", "4", "deep"),
            ("numjobs", "4", "many"),
            ("layout", "raidz1 3", "raidz5 3"),
            ("log", "optane", "optan"),
            ("l2arc", "nvme", "nvmee"),
            ("log", "file", "/dev/sdx"),
            ("devices", "hdd-7200+10%", "hdd"),
            ("ashift", "13", "4096"),
            ("missing", "1", "one"),
            ("arc_max", "64M", "half"),
            ("feature@lz4_compress", "enabled", "on"),
        ] {
            let with = |value: &str| {
                let mut experiment = Experiment::parse(SMALL).unwrap();
                experiment.settings.insert(name.to_owned(), value.to_owned());
                experiment.check()
            };
            if name != "missing" {
                with(right).unwrap();
            }
            let error = with(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains(name), "{name}={wrong}: {error}");
            let mut experiment = Experiment::parse(SMALL).unwrap();
            experiment.variants.push(Settings::from([(name.to_owned(), wrong.to_owned())]));
            assert!(experiment.check().is_err(), "{name}={wrong} of a variant");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, named) in [
            ("name = \"small\"", "name = \"a/b\"", "a/b"),
            ("\"64M\"", "\"64\"", "size"),
            ("name = \"small\"", "name = \"small\"\nmode = \"search\"\nbudget = 0", "budget: a search"),
            ("\"64M\"", "\"many\"", "many"),
            ("[\"16K\", \"8K\"]", "[\"16K\"]", "volblocksize"),
            ("compression", "volblocksize", "a fixed setting"),
            ("kind = \"volume\"", "kind = \"path\"\npath = \"x\"", "this target has no setting"),
            ("compression", "volsize", "'volsize': the lab decides"),
            ("bs = \"4K\"", "bs = \"1G\"", "does not fit"),
            ("bs = \"4K\"", "ramp_seconds = 1\n[goal]\nmetric = \"amplification\"", "ramp_seconds"),
            ("bs = \"4K\"", "bs = \"4K\"\noptions = { filename = \"/etc/passwd\" }", "filename"),
            ("rw =", "wr =", "wr"),
            ("\"randwrite\"", "\"sideways\"", "sideways"),
            ("kind = \"volume\"", "kind = \"volume\"\nlayout = \"mirrored two\"", "mirrored two"),
            ("kind = \"volume\"", "kind = \"volume\"\ndevices = \"hdd-9\"", "hdd-9"),
            ("kind = \"volume\"", "kind = \"volume\"\nlink = \"2gbe\"", "2gbe"),
        ] {
            let text = SMALL.replace(from, to);
            assert_ne!(text, SMALL, "{from}");
            let error = Experiment::parse(&text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
