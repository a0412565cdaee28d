//! The variants, and the order in which they run.
//!
//! One change at a time: the baseline has the first value of each factor; every other value of each factor is
//! one more variant, and so is each listed variant. A full plan has all combinations. A plan after a search
//! has the variant that it found. The baseline is there twice, as [`BASELINE`] and [`TWIN`]: their difference
//! is noise.

use serde::{Deserialize, Serialize};

use crate::experiment::{Claim, Experiment, Mode};
use crate::setting::{GUEST, Knob, NBD, PROCESS, SettingOwner, Settings, THROUGH};

/// The variant that all others are compared with.
pub const BASELINE: &str = "baseline";
/// The same again.
pub const TWIN: &str = "baseline again";
/// A file, or a directory, of the file system beside the pools' files, with no pool at all: what cannot be
/// beaten by much.
pub const DEVICE: &str = "raw device";

/// One way to set everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Its name: what it changes.
    pub name: String,
    /// Its use.
    pub kind: VariantKind,
    /// All its settings: those held fixed, and its value of each factor.
    pub settings: Settings,
}

/// The use of a variant.
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
    /// A run: a variant and a workload.
    pairs: Vec<(usize, usize)>,
    /// Where runs of a round take turns, as those of pools on the same disks do, the number of the turn of
    /// each.
    turns: Option<Vec<usize>>,
    seed: u64,
}

impl Plan {
    /// The plan of an experiment, in which a search may have found these settings. The same seed gives the
    /// same order.
    pub fn new(experiment: &Experiment, found: Option<&Settings>, seed: u64) -> Self {
        let base = experiment.design().baseline();
        let twin = Variant { name: TWIN.into(), kind: VariantKind::Twin, settings: base.clone() };
        let mut variants = vec![Variant::of(experiment, base.clone()), twin];
        let changes = match experiment.mode {
            Mode::Each => [one_at_a_time(experiment, &base), several_at_once(experiment, &base)].concat(),
            Mode::Full => combinations(experiment, &base),
            Mode::Search | Mode::Improve => found.cloned().into_iter().collect(),
        };
        for settings in changes {
            if variants.iter().all(|variant| variant.settings != settings) {
                variants.push(Variant::of(experiment, settings));
            }
        }
        // A file is no limit of what plays, or is, another medium.
        let is_on_files = experiment.target.pools().is_some_and(|pools| pools.disks.is_empty());
        if is_on_files && experiment.modelled().is_none() {
            let settings = Settings::new();
            variants.push(Variant { name: DEVICE.into(), kind: VariantKind::Device, settings });
        }
        let all = (0..variants.len()).flat_map(|at| (0..experiment.workloads.len()).map(move |of| (at, of)));
        let is_possible = |(variant, workload): &(usize, usize)| {
            let (variant, workload) = (&variants[*variant], &experiment.workloads[*workload]);
            match variant.kind {
                VariantKind::Device => workload.missing == 0,
                _ => experiment.bears(&variant.settings, workload),
            }
        };
        let pairs: Vec<(usize, usize)> = all.filter(is_possible).collect();
        let turn = |(variant, workload): &(usize, usize)| {
            let (settings, workload) = (&variants[*variant].settings, &experiment.workloads[*workload]);
            experiment.target.turn(settings, workload)
        };
        let turns: Option<Vec<Settings>> = pairs.iter().map(turn).collect();
        let turns = turns.map(|all| {
            let mut known: Vec<Settings> = Vec::new();
            let number = |turn: Settings| {
                known.iter().position(|other| *other == turn).unwrap_or_else(|| {
                    known.push(turn);
                    known.len() - 1
                })
            };
            all.into_iter().map(number).collect()
        });
        Self { variants, pairs, turns, seed }
    }

    /// The variants: the baseline, its twin, the changes, and where there is one the raw device.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// How many runs a round has: each variant with each workload, where its layout allows that.
    pub fn round_length(&self) -> usize {
        self.pairs.len()
    }

    /// Whether a variant is run with a workload.
    pub fn has(&self, variant: usize, workload: usize) -> bool {
        self.pairs.contains(&(variant, workload))
    }

    /// The variants, each with the workloads that it is not run with, because its layout does not survive so
    /// many missing devices; what has all is not there.
    pub fn left_out<'a>(
        &'a self,
        experiment: &'a Experiment,
    ) -> impl Iterator<Item = (&'a Variant, Vec<&'a str>)> {
        let of = move |at: usize| {
            let workloads = experiment.workloads.iter().enumerate().filter(move |(of, _)| !self.has(at, *of));
            workloads.map(|(_, workload)| workload.name.as_str()).collect::<Vec<_>>()
        };
        let variants = self.variants.iter().enumerate().filter(|(_, it)| it.kind != VariantKind::Device);
        variants.map(move |(at, variant)| (variant, of(at))).filter(|(_, workloads)| !workloads.is_empty())
    }

    /// The names of both variants of a claim, where the plan has them.
    pub fn claimed(&self, experiment: &Experiment, claim: &Claim) -> Option<[&str; 2]> {
        let name = |changes: &Settings| {
            let mut settings = experiment.design().baseline();
            settings.extend(changes.clone());
            let is_it = |kind| matches!(kind, VariantKind::Baseline | VariantKind::Change);
            let found = self.variants.iter().find(|it| is_it(it.kind) && it.settings == settings)?;
            Some(found.name.as_str())
        };
        Some([name(&claim.of)?, name(&claim.than)?])
    }

    /// How many turns a round has, as of pools on the same disks; none where runs follow in any order.
    pub fn turns(&self) -> usize {
        self.turns.iter().flatten().max().map_or(0, |most| most + 1)
    }

    /// The runs of a round, in their order: any, or where there are turns, any of turns, and for each any of
    /// its runs.
    pub fn round(&self, round: usize) -> Vec<Step> {
        let mut order: Vec<usize> = (0..self.pairs.len()).collect();
        let mut rng = fastrand::Rng::with_seed(
            self.seed.wrapping_add(round as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        );
        rng.shuffle(&mut order);
        if let Some(pools) = &self.turns {
            let mut turns: Vec<usize> = (0..self.turns()).collect();
            rng.shuffle(&mut turns);
            order.sort_by_key(|at| turns[pools[*at]]);
        }
        let step = |at: usize| {
            let (variant, workload) = self.pairs[at];
            Step { round, variant, workload }
        };
        order.into_iter().map(step).collect()
    }
}

impl Variant {
    /// The one with these settings: the baseline where they are its.
    pub fn of(experiment: &Experiment, settings: Settings) -> Self {
        let base = experiment.design().baseline();
        if settings == base {
            return Self { name: BASELINE.into(), kind: VariantKind::Baseline, settings };
        }
        let changed = |name: &&String| base.get(*name) != settings.get(*name);
        let is_factor = |name: &&String| experiment.factors.iter().any(|factor| factor.name == **name);
        let of_factors = experiment.factors.iter().map(|factor| &factor.name);
        let names = of_factors.chain(settings.keys().filter(|name| !is_factor(name))).filter(changed);
        let words = names.filter_map(|name| Some(format!("{name}={}", settings.get(name)?)));
        let name = words.collect::<Vec<_>>().join(" ");
        Self { name, kind: VariantKind::Change, settings }
    }
}

/// Where volumes are reached in more than one way: the names of the baseline as the process has it that has
/// the pool open, and over NBD.
pub(crate) fn ways(experiment: &Experiment) -> Option<[String; 2]> {
    experiment.factors.iter().find(|factor| factor.name == THROUGH)?;
    if experiment.target.has(SettingOwner::Guest) {
        return None;
    }
    let over = |way: &str| {
        let mut settings = experiment.design().baseline();
        settings.insert(THROUGH.to_owned(), way.to_owned());
        Variant::of(experiment, settings).name
    };
    Some([over(PROCESS), over(NBD)])
}

/// The layers of guests: the variant that has a layer, and the variant, or the raw device, that has what lies
/// below. Where that was not measured it is the next below that was.
pub(crate) fn layers_of_guests(experiment: &Experiment) -> Vec<[String; 2]> {
    if !experiment.target.has(SettingOwner::Guest) {
        return Vec::new();
    }
    let plan = Plan::new(experiment, None, 0);
    let is_layer = |it: &&Variant| matches!(it.kind, VariantKind::Baseline | VariantKind::Change);
    let known: Vec<(&str, Settings)> = plan
        .variants()
        .iter()
        .filter(is_layer)
        .map(|it| (it.name.as_str(), layer_of(&it.settings)))
        .collect();
    let below = |settings: &Settings| {
        let mut settings = settings.clone();
        while below(&mut settings) {
            if let Some((name, _)) = known.iter().find(|(_, own)| *own == settings) {
                return (*name).to_owned();
            }
        }
        DEVICE.to_owned()
    };
    known.iter().map(|(name, settings)| [(*name).to_owned(), below(settings)]).collect()
}

/// A variant of guests as a layer, in words.
pub(crate) fn layer_words(experiment: &Experiment, variant: &str) -> String {
    let plan = Plan::new(experiment, None, 0);
    let settings = plan.variants().iter().find(|it| it.name == variant).map(|it| layer_of(&it.settings));
    let settings = settings.unwrap_or_default();
    match settings.get(THROUGH).map(String::as_str) {
        Some(PROCESS) => "the volume, in the process that has the pool open".to_owned(),
        Some(_) => "its export over NBD, here".to_owned(),
        None if settings.is_empty() => "a guest's bare disk, over vhost-user".to_owned(),
        None => {
            let words: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("in a guest: {}", words.join(" "))
        }
    }
}

/// Settings without what is so anyway.
fn layer_of(settings: &Settings) -> Settings {
    let is_other = |name: &str, value: &str| match Knob::named(name) {
        Some(knob) => name != "accel" && knob.values[0] != value,
        None => name != THROUGH || value != GUEST,
    };
    let its = settings.iter().filter(|(name, value)| is_other(name, value));
    its.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Takes away the uppermost layer; whether there was one.
fn below(settings: &mut Settings) -> bool {
    // How a file is read is nothing that lies on another.
    for name in ["guest_fs", "luks", "lvm", "aio", "iothread", "cache", "bus"] {
        if settings.remove(name).is_some() {
            return true;
        }
    }
    let disk = settings.remove("disk");
    match (settings.get(THROUGH).map(String::as_str), disk.as_deref()) {
        (Some(PROCESS), _) => return false,
        (Some(_), _) | (None, None | Some("iscsi")) => {
            settings.insert(THROUGH.to_owned(), PROCESS.to_owned())
        }
        (None, Some("nbd")) => settings.insert(THROUGH.to_owned(), NBD.to_owned()),
        // An image lies on a filesystem, which is not measured here.
        (None, Some(_)) => return false,
    };
    true
}

fn combinations(experiment: &Experiment, base: &Settings) -> Vec<Settings> {
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
    all
}

fn one_at_a_time(experiment: &Experiment, base: &Settings) -> Vec<Settings> {
    let one = |name: &String, value: &String| {
        let mut settings = base.clone();
        settings.insert(name.clone(), value.clone());
        settings
    };
    let factors = experiment.factors.iter();
    factors.flat_map(|factor| factor.values.iter().skip(1).map(|value| one(&factor.name, value))).collect()
}

fn several_at_once(experiment: &Experiment, base: &Settings) -> Vec<Settings> {
    let over = |changes: &Settings| {
        let mut settings = base.clone();
        settings.extend(changes.clone());
        settings
    };
    experiment.variants.iter().map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(mode: &str) -> Experiment {
        let text = format!(
            r#"
            name = "x"
            mode = "{mode}"
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
    fn pools_on_the_same_disks_take_turns_in_an_order_of_each_round() {
        let text = "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\ndisks = [\"/a\"]\n\
                    [[factor]]\nname = \"ashift\"\nvalues = [\"9\", \"12\", \"13\"]\n\
                    [[factor]]\nname = \"compression\"\nvalues = [\"off\", \"lz4\"]\n\
                    [[workload]]\nname = \"a\"\nrw = \"read\"\n[[workload]]\nname = \"b\"\nrw = \"write\"\n";
        let experiment = Experiment::parse(text).unwrap();
        let plan = Plan::new(&experiment, None, 7);
        assert_eq!(plan.turns(), 3);
        let ashift = |step: &Step| plan.variants()[step.variant].settings["ashift"].clone();
        let mut orders = std::collections::BTreeSet::new();
        for round in 0..20 {
            let steps = plan.round(round);
            assert_eq!(steps.iter().collect::<std::collections::BTreeSet<_>>().len(), plan.round_length());
            let mut order: Vec<String> = steps.iter().map(ashift).collect();
            order.dedup();
            assert_eq!(order.len(), 3, "{order:?}");
            orders.insert(order);
        }
        assert!(orders.len() >= 4, "{orders:?}");
    }

    #[test]
    fn one_thing_is_changed_at_a_time() {
        let plan = Plan::new(&experiment("each"), None, 1);
        let names: Vec<&str> = plan.variants().iter().map(|variant| variant.name.as_str()).collect();
        let expected = [BASELINE, TWIN, "volblocksize=8K", "volblocksize=64K", "compression=lz4", DEVICE];
        assert_eq!(names, expected);
        assert_eq!(plan.variants()[2].settings["compression"], "off");
    }

    #[test]
    fn a_variant_may_change_several_settings_at_once() {
        let mut experiment = experiment("each");
        let settings = |words: &[(&str, &str)]| -> Settings {
            words.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let both = settings(&[("compression", "lz4"), ("sync", "always"), ("volblocksize", "8K")]);
        // The second is there already, by a factor.
        experiment.variants = vec![both, settings(&[("compression", "lz4")])];
        experiment.check().unwrap();
        let plan = Plan::new(&experiment, None, 1);
        let names: Vec<&str> = plan.variants().iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!(names[4..], ["compression=lz4", "volblocksize=8K compression=lz4 sync=always", DEVICE]);
        assert_eq!(plan.variants()[5].settings["sync"], "always");
        assert_eq!(Experiment::parse(&experiment.to_toml().unwrap()).unwrap(), experiment);
        experiment.variants.push(Settings::new());
        assert!(experiment.check().is_err(), "one that changes nothing");
        experiment.variants = vec![settings(&[("sync", "always")])];
        experiment.mode = Mode::Full;
        assert!(experiment.check().is_err());
    }

    #[test]
    fn layouts_that_bear_no_missing_device_are_left_out_where_one_is() {
        let text = |first: &str| {
            format!(
                "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n[[factor]]\nname = \
                 \"layout\"\nvalues = [{first}]\n\
                 [[workload]]\nname = \"a\"\nrw = \"randread\"\n[[workload]]\nname = \"b\"\nrw = \
                 \"randread\"\nmissing = 1\n"
            )
        };
        let experiment = Experiment::parse(&text("\"mirror 2\", \"2\", \"raidz1 3\"")).unwrap();
        let plan = Plan::new(&experiment, None, 1);
        let degraded = (0..plan.variants().len()).filter(|at| plan.has(*at, 1));
        let names: Vec<&str> = degraded.map(|at| plan.variants()[at].name.as_str()).collect();
        assert_eq!(names, [BASELINE, TWIN, "layout=raidz1 3"]);
        assert_eq!(plan.round_length(), 5 + 3);
        let error = Experiment::parse(&text("\"2\", \"mirror 2\"")).unwrap_err().to_string();
        assert!(error.contains("does not survive"), "{error}");
    }

    #[test]
    fn a_full_plan_has_every_combination_once() {
        let plan = Plan::new(&experiment("full"), None, 1);
        assert_eq!(plan.variants().len(), 2 + 5 + 1);
        assert!(plan.variants().iter().any(|variant| variant.name == "volblocksize=64K compression=lz4"));
    }

    #[test]
    fn what_a_search_found_is_compared_with_the_baseline() {
        let experiment = experiment("search");
        let found = experiment.design().with_values(&[2, 1]);
        let names = |found: Option<&Settings>| -> Vec<String> {
            Plan::new(&experiment, found, 1).variants().iter().map(|variant| variant.name.clone()).collect()
        };
        assert_eq!(names(Some(&found)), [BASELINE, TWIN, "volblocksize=64K compression=lz4", DEVICE]);
        assert_eq!(names(Some(&experiment.design().with_values(&[0, 0]))), [BASELINE, TWIN, DEVICE]);
    }

    #[test]
    fn every_round_has_each_run_once_in_an_order_of_its_own() {
        let plan = Plan::new(&experiment("each"), None, 1);
        let (first, second) = (plan.round(0), plan.round(1));
        assert_eq!(first, Plan::new(&experiment("each"), None, 1).round(0));
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
