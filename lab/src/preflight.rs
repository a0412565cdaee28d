//! All faults of an experiment, reported at once before anything of it is made.
//!
//! An experiment may take hours, and a fault of its last value or of the machine would be found only when its
//! turn comes. So everything that can be checked before is checked before:
//!
//! | what | checked by |
//! |---|---|
//! | the experiment by itself | [`Experiment::faults`] |
//! | names and values of properties, with the nearest valid name, and values that make no difference | [`KnownProperties`], of the program that makes pools and volumes |
//! | names and values of fio's options | fio itself, which reads its arguments and does nothing (`--parse-only`) |
//! | traces and sources of copies, measured files and devices, the directory of results, free space | the machine: [`faults_here`] |

mod planned;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::experiment::{
    self, Experiment, POOL, SETTINGS, SettingOwner, Settings, TUNABLE, Work, Workload, faults_of_options,
};
use crate::fio::{self, Endpoint};
use crate::plan::{Plan, Variant, VariantKind};
use crate::setting::DEVICE_LUKS;
use crate::site::{Access, DatasetKind, Server};
use crate::size::Size;
use crate::store;
use crate::subprocess::is_program;
use crate::target;
use crate::trace::Trace;
use ondisk::nearest::meant;

pub use planned::{Planned, left_out_words, planned, told};

/// fio is asked about so many different jobs at most.
const MOST_ASKED: usize = 200;

/// The properties known to the program that makes pools and volumes.
pub trait KnownProperties {
    /// The properties that a new volume or filesystem can be given.
    fn properties(&self, of_volume: bool) -> Vec<&str>;
    /// Why a new volume or filesystem cannot have a property, or such a value of it; nothing where it can.
    fn fault(&self, of_volume: bool, name: &str, value: &str) -> Option<String>;
    /// The meaning of a value for the program that serves it: values with the same meaning are one in several
    /// spellings. Nothing where it is none.
    fn meaning(&self, name: &str, value: &str) -> Option<String>;
    /// Why what is measured does not depend on a property; nothing where it does, or may.
    fn idle(&self, name: &str) -> Option<&str>;
    /// The properties that a new pool can be given.
    fn pool_properties(&self) -> Vec<&str>;
    /// Why a new pool cannot have a property, or such a value of it; nothing where it can.
    fn pool_fault(&self, name: &str, value: &str) -> Option<String>;
    /// Why a tunable cannot have such a value, or cannot be compared; nothing where it can.
    fn tunable_fault(&self, name: &str, value: &str) -> Option<String>;
    /// Why what is measured does not depend on a pool's property; nothing where it does, or may.
    fn pool_idle(&self, name: &str) -> Option<&str>;
}

/// The faults of the experiment on any machine.
pub fn faults(experiment: &Experiment, known: &dyn KnownProperties) -> Vec<String> {
    let mut all = experiment.faults();
    all.extend(alike(experiment, known));
    all.extend(names(experiment, known));
    all.extend(idle(experiment, known));
    all.extend(of_fio(experiment));
    all
}

/// Why devices of pools cannot be encrypted here, where a variant has such.
fn luks(experiment: &Experiment) -> Option<String> {
    let settings = experiment.design().all_settings();
    let is_asked = |(name, value): &(&String, &String)| *name == DEVICE_LUKS && *value == "on";
    settings.iter().find(|setting| is_asked(setting))?;
    let pools = experiment.target.pools();
    let why = if pools.is_some_and(|pools| !pools.disks.is_empty()) {
        "the lab encrypts files, and no disks: leave out `disks`".to_owned()
    } else if experiment.modelled().is_some() {
        "what is modelled cannot be encrypted: leave out modelled devices and links".to_owned()
    } else {
        format!("{}; leave the value out", target::fault_of_luks()?)
    };
    Some(format!("{DEVICE_LUKS}=on: {why}"))
}

/// Its faults on this machine, with its results in `directory`, which need not exist yet.
pub fn faults_here(experiment: &Experiment, directory: &Path, may_overwrite: bool) -> Vec<String> {
    let mut all = Vec::new();
    for workload in &experiment.workloads {
        let name = &workload.name;
        if let Some(path) = &workload.trace {
            let extent = workload.extent(experiment.target.size());
            if let Err(what) = Trace::read(path).and_then(|trace| trace.within(extent)) {
                all.push(format!("workload '{name}': trace {}: {what}", path.display()));
            }
        }
        if let Some(path) = &workload.source {
            let is_empty = || fs::read_dir(path).map(|mut entries| entries.next().is_none());
            match fs::metadata(path) {
                Err(error) => all.push(format!("workload '{name}': source {}: {error}", path.display())),
                Ok(metadata) if metadata.is_dir() => match is_empty() {
                    Ok(false) => {}
                    Ok(true) => {
                        all.push(format!("workload '{name}': source {}: it is empty", path.display()))
                    }
                    Err(error) => {
                        all.push(format!("workload '{name}': source {}: {error}", path.display()));
                    }
                },
                Ok(metadata) if metadata.is_file() => {}
                Ok(_) => all.push(format!(
                    "workload '{name}': source {}: it is neither a file nor a directory",
                    path.display()
                )),
            }
        }
        let copied_by = experiment.target.facts().copied_by.filter(|_| workload.work() == Work::Copy);
        if let Some(program) = copied_by.filter(|it| !is_program(it)) {
            all.push(format!("workload '{name}': copies over NBD need {program}, which is not on the PATH"));
        }
    }
    if let Some((what, programs)) = experiment.target.facts().programs {
        let missing = programs.iter().filter(|it| !is_program(it));
        all.extend(missing.map(|it| format!("{what} need {it}, which is not on the PATH")));
    }
    all.extend(luks(experiment));
    let variants = Plan::new(experiment, None, 0).variants().len();
    all.extend(experiment.target.faults_here(experiment.design(), variants));
    all.extend(target::faults(experiment, may_overwrite || experiment.target.may_overwrite(), None));
    all.extend(store::require_free(directory).err().map(|error| error.to_string()));
    all.extend(room(experiment, directory));
    all
}

/// A factor whose two values are the same in two spellings.
pub fn alike(experiment: &Experiment, known: &dyn KnownProperties) -> Vec<String> {
    let meaning = |name: &str, value: &str| {
        let of_property =
            (SettingOwner::of(name) == SettingOwner::Dataset).then(|| known.meaning(name, value)).flatten();
        of_property.unwrap_or_else(|| experiment::meaning(name, value))
    };
    let of_factors = experiment.factors.iter().filter_map(|factor| {
        // What the lab itself tells apart by no more is told already.
        factor.twice(|value| experiment::meaning(&factor.name, value)).is_none().then_some(())?;
        let [one, other] = factor.twice(|value| meaning(&factor.name, value))?;
        (one != other).then(|| format!("factor '{}': {one} and {other} are the same value", factor.name))
    });
    let mut all: Vec<String> = of_factors.collect();
    if !experiment.variants.is_empty() && all.is_empty() && experiment.faults().is_empty() {
        let plan = Plan::new(experiment, None, 0);
        let compared = |it: &&Variant| matches!(it.kind, VariantKind::Baseline | VariantKind::Change);
        let mut meant: BTreeMap<Settings, &str> = BTreeMap::new();
        for variant in plan.variants().iter().filter(compared) {
            let settings = variant.settings.iter();
            let means = settings.map(|(name, value)| (name.clone(), meaning(name, value))).collect();
            if let Some(other) = meant.insert(means, &variant.name) {
                all.push(format!("[[variant]]: {other} and {} are the same in two spellings", variant.name));
            }
        }
    }
    all
}

/// Settings that are properties, with names or values that there are none of.
pub fn names(experiment: &Experiment, known: &dyn KnownProperties) -> Vec<String> {
    let Some(kind) = experiment.target.facts().dataset else { return Vec::new() };
    let of_volume = kind == DatasetKind::Volume;
    let properties = known.properties(of_volume);
    let mut told = BTreeSet::new();
    let mut all = Vec::new();
    for (name, value) in experiment.design().all_settings() {
        let fault = match SettingOwner::of(name) {
            SettingOwner::Dataset => known.fault(of_volume, name, value).and_then(|why| {
                let is_host = experiment.target.below().is_some();
                if properties.contains(&name.as_str()) {
                    // What values a host's properties may have, only the host knows.
                    return (!is_host).then(|| format!("{name}={value}: {why}"));
                }
                let meant = meant(name, properties.iter().copied().chain(SETTINGS));
                // A host may have properties that are not known here. Each value has the same fault.
                let is_told = (!is_host || !meant.is_empty()) && told.insert(name.clone());
                let of_other = known.properties(!of_volume).contains(&name.as_str());
                let why = if of_other { format!(" ({why})") } else { meant };
                is_told.then(|| {
                    let kind = kind.word();
                    format!("'{name}' is no property that a new {kind} can have, and no other setting{why}")
                })
            }),
            SettingOwner::Tunable => {
                let fault = name.strip_prefix(TUNABLE).and_then(|name| known.tunable_fault(name, value));
                fault.map(|why| format!("{name}={value}: {why}"))
            }
            SettingOwner::Pool => {
                let property = name.strip_prefix(POOL);
                let property = property.or(name.starts_with("feature@").then_some(name));
                property.and_then(|property| {
                    let why = known.pool_fault(property, value)?;
                    let is_known = known.pool_properties().contains(&property);
                    let nearest =
                        if is_known { String::new() } else { meant(property, known.pool_properties()) };
                    Some(format!("{name}={value}: {why}{nearest}"))
                })
            }
            _ => None,
        };
        all.extend(fault);
    }
    all
}

/// Factors and variants that make no difference to the measurement, because its server does not
/// look at these properties. What a host's kernel looks at is not known here.
pub fn idle(experiment: &Experiment, known: &dyn KnownProperties) -> Vec<String> {
    if matches!(experiment.target.server(), None | Some(Server::Kernel)) {
        return Vec::new();
    }
    let why = |name: &str| match (SettingOwner::of(name), name.strip_prefix(POOL)) {
        (SettingOwner::Dataset, _) => known.idle(name).or_else(|| of_layouts(experiment, name)),
        (_, Some(property)) => known.pool_idle(property),
        _ => None,
    };
    let of_factors = experiment.factors.iter().filter_map(|factor| {
        let why = why(&factor.name)?;
        Some(format!("factor '{}': its values would make no difference: {why}", factor.name))
    });
    let of_variants = experiment.variants.iter().filter_map(|variant| {
        let whys: Option<Vec<String>> =
            variant.keys().map(|name| Some(format!("{name}: {}", why(name)?))).collect();
        let whys = whys.filter(|whys| !whys.is_empty())?.join("; ");
        Some(format!("[[variant]]: one of them would make no difference ({whys})"))
    });
    of_factors.chain(of_variants).collect()
}

/// Why a property makes no difference in any pool of a [`crate::layout::Layout`].
fn of_layouts(experiment: &Experiment, name: &str) -> Option<&'static str> {
    let has_l2arc = || {
        experiment.design().all_settings().iter().any(|(name, value)| *name == "l2arc" && *value != "none")
    };
    match name {
        "special_small_blocks" => Some("pools of the lab have no special devices"),
        "secondarycache" if !has_l2arc() => Some("the pool has no cache device (l2arc)"),
        _ => None,
    }
}

/// The kinds of places where fio is to work, each as one of them.
fn places(experiment: &Experiment) -> Vec<Endpoint> {
    let of = |access: Access<'_>| match access {
        Access::Nbd(uri) => Some(Endpoint::Nbd(uri.to_owned())),
        Access::Iscsi(uri) => Some(Endpoint::Iscsi(uri.to_owned())),
        Access::File => Some(Endpoint::Path("/cenote-lab".into())),
        Access::Process => None,
    };
    let mut all: Vec<Endpoint> =
        experiment.target.accesses(experiment.design()).into_iter().filter_map(of).collect();
    all.dedup();
    all
}

/// A job as fio can be asked about it: faults that the lab itself finds are reported already, and
/// fio is asked about the rest of the job's options with a job that is right.
fn asked(job: Workload, experiment: &Experiment) -> Option<Workload> {
    let target = &experiment.target;
    if job.faults(target).is_empty() {
        return Some(job);
    }
    let is_wrong = |(name, value): (&String, &String)| {
        let alone = BTreeMap::from([(name.clone(), value.clone())]);
        !faults_of_options(&alone, target.size()).is_empty()
    };
    let options = job.options.iter().filter(|option| !is_wrong(*option));
    let options = options.map(|(name, value)| (name.clone(), value.clone())).collect::<BTreeMap<_, _>>();
    if options.is_empty() {
        return None;
    }
    let right = Workload::of_options(&job.name, options);
    // Where the target is wrong, so is every job.
    right.faults(target).is_empty().then_some(right)
}

/// fio's errors about the arguments of the experiment.
fn of_fio(experiment: &Experiment) -> Vec<String> {
    let base = experiment.design().baseline();
    let mut jobs: Vec<(String, Settings)> = vec![(String::new(), SettingOwner::Job.pick(&base))];
    let of_factors = experiment.factors.iter().flat_map(|factor| {
        factor.values.iter().map(|value| Settings::from([(factor.name.clone(), value.clone())]))
    });
    for changes in of_factors.chain(experiment.variants.iter().cloned()) {
        let changed = SettingOwner::Job.pick(&changes);
        if changed.is_empty() {
            continue;
        }
        let words: Vec<String> = changed.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut settings = SettingOwner::Job.pick(&base);
        settings.extend(changed);
        jobs.push((format!(", {}", words.join(" ")), settings));
    }
    let mut known: Vec<Vec<String>> = Vec::new();
    let mut all: Vec<String> = Vec::new();
    for (words, settings) in jobs {
        for workload in &experiment.workloads {
            if matches!(workload.work(), Work::Copy) {
                continue;
            }
            let job = workload.with(&settings).ok().and_then(|job| asked(job, experiment));
            let Some(job) = job else { continue };
            for place in places(experiment) {
                let arguments = fio::parsed(&job, &place, experiment.target.size());
                if known.contains(&arguments) || known.len() >= MOST_ASKED {
                    continue;
                }
                let fault = match fio::parse(&arguments) {
                    Ok(()) => None,
                    // Once says it.
                    Err(error @ Error::Missing { .. }) => return vec![error.to_string()],
                    Err(Error::Failed { output, .. }) => Some(output),
                    Err(error) => Some(error.to_string()),
                };
                known.push(arguments);
                if let Some(what) = fault {
                    let what = format!("workload '{}'{words}: {what}", workload.name);
                    // An option of the workload itself is wrong with every value of a factor.
                    let known = format!("workload '{}': ", workload.name);
                    let is_known =
                        all.iter().any(|it| it.starts_with(&known) && what.ends_with(&it[known.len()..]));
                    all.extend((!is_known).then_some(what));
                }
            }
        }
    }
    all
}

/// Where the room does not do for what is made.
fn room(experiment: &Experiment, directory: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut require = |at: &Path, needed: Size, what: &str| {
        let Some(free) = free(at) else { return };
        if needed > free {
            all.push(format!(
                "{}: {what} would take {needed}, and {free} are free there: make the target's `size` \
                 smaller, or choose another directory",
                at.display()
            ));
        }
    };
    let size = experiment.target.size();
    for path in experiment.target.paths() {
        let holds = fs::metadata(path).map_or(0, |metadata| if metadata.is_dir() { 0 } else { u64::MAX });
        if holds == 0 {
            require(path, size, "the target");
        }
    }
    if let Some((together, most)) = space(experiment).filter(|_| experiment.target.disks().is_empty()) {
        require(directory, Size(together.0 >> 20 << 20), "all variants together");
        require(directory, most, "the devices of a pool");
    }
    all
}

/// What the data of all variants take together, and what the devices of the largest pool do, where the lab
/// makes pools.
fn space(experiment: &Experiment) -> Option<(Size, Size)> {
    if experiment.target.pools().is_none() || !experiment.faults().is_empty() {
        return None;
    }
    let plan = Plan::new(experiment, None, 0);
    let needs = plan.variants().iter().filter(|variant| variant.kind != VariantKind::Device);
    let needs = needs.filter_map(|variant| target::needs(experiment, &variant.settings).ok());
    let raw = plan.variants().iter().any(|variant| variant.kind == VariantKind::Device);
    let raw = if raw { experiment.target.size().0 } else { 0 };
    let together = needs.clone().fold(raw, |sum, need| sum.saturating_add(need.filled.0));
    Some((Size(together), needs.map(|need| need.at_most).max().unwrap_or_default()))
}

/// Bytes that are free where something is to be made.
fn free(at: &Path) -> Option<Size> {
    let absolute = std::path::absolute(at).ok()?;
    let exists: PathBuf = absolute.ancestors().find(|above| above.exists())?.to_owned();
    let stat = rustix::fs::statvfs(&exists).ok()?;
    Some(Size(stat.f_bavail.saturating_mul(stat.f_frsize) >> 20 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Few;

    impl KnownProperties for Few {
        fn properties(&self, of_volume: bool) -> Vec<&str> {
            if of_volume { vec!["compression", "volblocksize"] } else { vec!["compression", "recordsize"] }
        }

        fn fault(&self, of_volume: bool, name: &str, value: &str) -> Option<String> {
            let is_there = self.properties(of_volume).contains(&name);
            (!is_there || value == "17K").then(|| format!("no {name} of {value}"))
        }

        fn pool_properties(&self) -> Vec<&str> {
            vec!["autotrim"]
        }

        fn meaning(&self, _: &str, value: &str) -> Option<String> {
            (value == "gzip").then(|| "gzip-6".to_owned())
        }

        fn idle(&self, name: &str) -> Option<&str> {
            (name == "recordsize").then_some("all are alike")
        }

        fn pool_idle(&self, _: &str) -> Option<&str> {
            None
        }

        fn tunable_fault(&self, name: &str, _: &str) -> Option<String> {
            (name != "zfs_txg_timeout").then(|| "there is none".to_owned())
        }

        fn pool_fault(&self, name: &str, _: &str) -> Option<String> {
            (name != "autotrim").then(|| "there is none".to_owned())
        }
    }

    fn experiment(factors: &str, workload: &str) -> Experiment {
        let text = format!(
            "name = \"x\"\n[target]\nkind = \"volume\"\nsize = \"64M\"\n{factors}\n[[workload]]\nname = \
             \"w\"\n{workload}\n"
        );
        Experiment::read(&text).unwrap()
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_with_what_was_meant() {
        let factor =
            |name: &str, values: &str| format!("[[factor]]\nname = \"{name}\"\nvalues = [{values}]\n");
        let factors = factor("compresion", "\"on\", \"off\"")
            + &factor("volblocksize", "\"16K\", \"17K\"")
            + &factor("iodepht", "\"1\", \"2\"")
            + &factor("pool.autotrym", "\"on\", \"off\"")
            + &factor("tunable.zfs_txg_tymeout", "\"1\", \"2\"")
            + &factor("bs", "\"4K\", \"1G\"");
        let told = faults(&experiment(&factors, "rw = \"sideways\"\nseconds = 0"), &Few);
        for named in [
            "did you mean 'compression'?",
            "volblocksize=17K",
            "did you mean 'iodepth'?",
            "did you mean 'autotrim'?",
            "tunable.zfs_txg_tymeout=1: there is none",
            "bs=1G",
            "sideways",
            "seconds",
        ] {
            assert_eq!(told.iter().filter(|it| it.contains(named)).count().min(1), 1, "{named}: {told:#?}");
        }
        assert_eq!(told.iter().filter(|it| it.contains("compresion")).count(), 1, "{told:#?}");
    }

    #[test]
    fn what_is_one_in_two_spellings_is_compared_with_nothing() {
        let factor =
            |name: &str, values: &str| format!("[[factor]]\nname = \"{name}\"\nvalues = [{values}]\n");
        let of = |factors: &str| alike(&experiment(factors, "rw = \"read\""), &Few);
        let told = of(&factor("compression", "\"gzip-6\", \"lz4\", \"gzip\""));
        assert_eq!(told, ["factor 'compression': gzip-6 and gzip are the same value"]);
        assert!(of(&factor("compression", "\"gzip-5\", \"gzip\"")).is_empty());
        // The experiment itself tells of that.
        assert!(of(&factor("volblocksize", "\"8K\", \"8192\"")).is_empty());
        let variants = "[settings]\nvolblocksize = \"16K\"\n[[variant]]\nvolblocksize = \"16384\"\n\
                        [[variant]]\ncompression = \"gzip\"\n[[variant]]\ncompression = \"gzip-6\"\n";
        let told = of(variants);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("baseline and volblocksize=16384"), "{told:?}");
        assert!(told[1].contains("compression=gzip and compression=gzip-6"), "{told:?}");
    }

    #[test]
    fn properties_that_nobody_looks_at_are_no_factors() {
        let of = |text: &str| {
            let text = format!(
                "name = \"x\"\n[target]\nkind = \"filesystem\"\nsize = \"64M\"\n{text}[[workload]]\nname = \
                 \"w\"\nrw = \"read\"\n"
            );
            idle(&Experiment::read(&text).unwrap(), &Few)
        };
        let told = of("[[factor]]\nname = \"recordsize\"\nvalues = [\"1K\", \"2K\"]\n");
        assert_eq!(told, ["factor 'recordsize': its values would make no difference: all are alike"]);
        let told = of("[[variant]]\nrecordsize = \"1K\"\n");
        assert_eq!(told, ["[[variant]]: one of them would make no difference (recordsize: all are alike)"]);
        assert!(of("[[variant]]\nrecordsize = \"1K\"\ncompression = \"lz4\"\n").is_empty());
        assert!(of("[settings]\nrecordsize = \"1K\"\n").is_empty());
    }

    #[test]
    fn fio_is_asked_also_where_something_else_is_wrong() {
        let factors = "[[factor]]\nname = \"compresion\"\nvalues = [\"on\", \"off\"]\n\
                       [[factor]]\nname = \"fio.rwmixwrite\"\nvalues = [\"1\", \"x2\"]\n";
        let told = faults(&experiment(factors, "rw = \"sideways\"\noptions = { thinktime = \"x\" }"), &Few);
        for named in ["sideways", "compresion", "fio.rwmixwrite=x2", "thinktime"] {
            assert!(told.iter().any(|it| it.contains(named)), "{named}: {told:#?}");
        }
    }

    #[test]
    fn goals_that_nothing_can_reach_or_tell_are_refused() {
        let of = |target: &str, goal: &str, workload: &str| {
            let text = format!(
                "name = \"x\"\n[goal]\n{goal}\n[target]\n{target}\nsize = \"64M\"\n[[workload]]\nname = \
                 \"w\"\n{workload}\n"
            );
            Experiment::read(&text).unwrap().faults()
        };
        let (volume, path) = ("kind = \"volume\"", "kind = \"path\"\npath = \"/no/such\"");
        let write = "rw = \"randwrite\"";
        for (target, goal, workload, named) in [
            (volume, "at_most = 20000", write, "write at_least"),
            (volume, "metric = \"throughput\"\nat_most = \"1G\"", write, "at_most makes no sense"),
            (volume, "metric = \"latency\"\nat_least = \"1ms\"", write, "write at_most"),
            (volume, "at_least = 2000\nat_most = 1000", write, "at_least is more than at_most"),
            (path, "metric = \"space\"", write, "space cannot be measured"),
            (path, "metric = \"cpu\"", write, "CPU cannot be measured"),
            (path, "also = [\"memory\"]", write, "also: peak memory"),
            ("kind = \"host\"\ndataset = \"a/b\"", "metric = \"cpu\"", write, "a host's kernel"),
            ("kind = \"nbd\"\nuri = \"nbd://h/v\"", "metric = \"amplification\"", write, "does not report"),
            (volume, "metric = \"read_amplification\"", write, "reads nothing"),
            (volume, "metric = \"amplification\"", "rw = \"read\"", "writes nothing"),
        ] {
            let told = of(target, goal, workload);
            assert!(told.iter().any(|it| it.contains(named)), "{goal}: {told:#?}");
        }
        for (target, goal) in [
            (volume, "also = [\"space\", \"cpu\", \"amplification\"]\nat_least = 5"),
            (path, "metric = \"latency_p99\"\nat_most = \"5ms\""),
            ("kind = \"host\"\ndataset = \"a/b\"", "metric = \"space\""),
        ] {
            assert!(of(target, goal, write).is_empty(), "{:?}", of(target, goal, write));
        }
    }

    #[test]
    fn exports_are_looked_at_before_and_written_only_with_consent() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        crate::export::tests::serve(&at("serves"), 64 << 20, false);
        crate::export::tests::serve(&at("reads"), 1 << 20, true);
        let of = |uri: &str, rw: &str, may| {
            let text = format!(
                "name = \"x\"\n[target]\nkind = \"nbd\"\nuri = \"{uri}\"\nsize = \"64M\"\n[[workload]]\nname \
                 = \"w\"\nrw = \"{rw}\"\n"
            );
            let experiment = Experiment::read(&text).unwrap();
            let here = faults_here(&experiment, &at("out"), may);
            [experiment.faults(), here].concat()
        };
        let uri = |socket: &str| format!("nbd+unix:///v?socket={}", at(socket).display());
        assert!(of(&uri("serves"), "read", false).is_empty(), "{:?}", of(&uri("serves"), "read", false));
        assert!(of(&uri("serves"), "write", true).is_empty());
        for (uri, rw, may, named) in [
            (&uri("serves"), "write", false, "--overwrite"),
            (&uri("reads"), "write", true, "fewer than its size"),
            (&uri("nowhere"), "read", false, "no server answers"),
            (&"nbd:///v".to_owned(), "read", false, "names no server"),
            (&"iscsi://h/t/1".to_owned(), "read", false, "kind = \"iscsi\""),
            (&"file:///etc/passwd".to_owned(), "read", false, "no URI of an export"),
        ] {
            let told = of(uri, rw, may);
            assert!(told.iter().any(|it| it.contains(named)), "{uri}: {told:#?}");
        }
    }

    #[test]
    fn fio_itself_says_what_is_wrong_with_its_options() {
        let told = |factors: &str, options: &str| {
            faults(&experiment(factors, &format!("rw = \"randrw\"\noptions = {{ {options} }}")), &Few)
        };
        assert!(told("", "rwmixread = \"70\", thinktime = \"1\"").is_empty());
        let wrong = told("[[factor]]\nname = \"iodepth\"\nvalues = [\"1\", \"2\"]\n", "thinktyme = \"1\"");
        assert!(wrong.len() == 1 && wrong[0].contains("thinktime"), "{wrong:#?}");
        let wrong = told("[[factor]]\nname = \"fio.rwmixwrite\"\nvalues = [\"1\", \"x2\"]\n", "");
        assert!(wrong.len() == 1 && wrong[0].contains("fio.rwmixwrite=x2"), "{wrong:#?}");
    }

    #[test]
    fn what_is_in_the_way_of_the_labs_files_is_told_before() {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "name = \"x\"\n[target]\nkind = \"path\"\npath = \"{}\"\nsize = \"1M\"\n[[workload]]\nname = \
             \"w\"\nrw = \"read\"\n",
            directory.path().display()
        );
        let experiment = Experiment::parse(&text).unwrap();
        let here = || faults_here(&experiment, &directory.path().join("out"), false);
        assert!(here().is_empty(), "{:?}", here());
        fs::create_dir(directory.path().join("lab-files")).unwrap();
        assert!(here().is_empty(), "{:?}", here());
        fs::write(directory.path().join("lab-files/theirs"), "x").unwrap();
        assert!(here().len() == 1 && here()[0].contains("did not make it"), "{:?}", here());
    }

    #[test]
    fn what_is_missing_on_this_machine_is_told_before() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("empty.trace"), "fio version 3 iolog\n").unwrap();
        fs::create_dir(at("nothing")).unwrap();
        let workload = format!(
            "rw = \"replay\"\ntrace = \"{}\"\n[[workload]]\nname = \"c\"\nrw = \"copy\"\nsource = \
             \"{}\"\n[[workload]]\nname = \"d\"\nrw = \"copy\"\nsource = \"{}\"\n[[workload]]\nname = \
             \"e\"\nrw = \"replay\"\ntrace = \"/dev/zero\"\n[[workload]]\nname = \"f\"\nrw = \
             \"copy\"\nsource = \"/dev/zero\"",
            at("empty.trace").display(),
            at("nothing").display(),
            at("nowhere").display()
        );
        let mut experiment = experiment("", &workload);
        let told = faults_here(&experiment, &at("out"), false);
        for named in
            ["no request", "it is empty", "nowhere", "/dev/zero: it is not a regular file", "it is neither"]
        {
            assert!(told.iter().any(|it| it.contains(named)), "{named}: {told:#?}");
        }
        experiment.target.pools_mut().unwrap().size = Size(1 << 50);
        let told = faults_here(&experiment, &at("out"), false);
        assert!(told.iter().any(|it| it.contains("all variants together")), "{told:#?}");
        assert!(!at("out").exists());
        // Where results go is looked at with all else.
        let told = faults_here(&experiment, &at("empty.trace"), false);
        assert!(told.iter().any(|it| it.contains("this is not a directory")), "{told:#?}");
    }
}
