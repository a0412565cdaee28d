//! What to set: the variants that were found to be better, as changes.
//!
//! The answer of a report is for people; this is the same for programs that offer to carry it out. A variant
//! counts whose figure is certainly better than the baseline's by the goal, with the goal's workload; ways to
//! a volume are no choice ([`crate::analysis::Best`]). Its changes are the settings that differ from the
//! baseline's, and its gain is that of all of them together: so a variant with a change that is no property
//! of a dataset is not offered, and [`Verdict::why_not`] says what to do instead.

use serde::Serialize;

use super::section::plan_of;
use crate::analysis::{self, Best, Finding, Findings, base_words};
use crate::experiment::Experiment;
use crate::plan::Variant;
use crate::setting::{DEVICE_LUKS, POOL, SettingOwner, TUNABLE};
use crate::stats;

/// A variant that is better than the baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Its name.
    pub variant: String,
    /// What it gains, and what it costs.
    pub text: String,
    /// The settings that differ from the baseline's, with its values.
    pub changes: Vec<(String, String)>,
    /// Why it cannot be had by setting properties of a dataset, and what to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// Properties that only say how blocks are written.
const OF_NEW_BLOCKS: [&str; 7] = [
    "checksum",
    "compression",
    "copies",
    "dedup",
    "recordsize",
    "redundant_metadata",
    "special_small_blocks",
];
/// The property of a volume that is changed by writing all of it again.
const REWRITES: &str = "volblocksize";
/// Properties that a dataset gets when it is created.
const OF_CREATION: [&str; 6] =
    ["casesensitivity", "encryption", "keyformat", "normalization", "pbkdf2iters", "utf8only"];

/// All of them, the best first.
pub(super) fn all(experiment: &Experiment, findings: &Findings) -> Vec<Verdict> {
    let Some(best) = &findings.best else { return Vec::new() };
    let plan = plan_of(experiment, findings);
    let names = std::iter::once(&best.variant).chain(best.rivals.iter().map(|rival| &rival.variant));
    let of = |name: &String| {
        let variant = plan.variants().iter().find(|variant| variant.name == *name)?;
        let finding = findings.find(name, experiment.goal_workload(), experiment.goal.metric)?;
        let changes = changes(experiment, variant);
        Some(Verdict {
            variant: name.clone(),
            text: text(experiment, findings, best, variant, finding, &changes),
            why_not: why_not(experiment, &changes),
            changes,
        })
    };
    names.filter_map(of).collect()
}

/// The settings that differ from the baseline's.
fn changes(experiment: &Experiment, variant: &Variant) -> Vec<(String, String)> {
    let base = experiment.design().baseline();
    let differs = |(name, value): &(&String, &String)| base.get(*name) != Some(*value);
    variant.settings.iter().filter(differs).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What a variant gains, what it costs, and what it means for data that are there.
fn text(
    experiment: &Experiment,
    findings: &Findings,
    best: &Best,
    variant: &Variant,
    finding: &Finding,
    changes: &[(String, String)],
) -> String {
    let (title, workload) = (experiment.goal.metric.title(), experiment.goal_workload());
    let mut sentences = Vec::new();
    if let Some(compared) = finding.compared {
        let ratio = compared.comparison.ratio;
        sentences.push(format!(
            "{} times the {title} of {} with \"{workload}\" ({}).",
            stats::times(ratio.value),
            base_words(experiment),
            ratio.ratio_interval()
        ));
    }
    if let Some(rival) = best.rivals.iter().find(|rival| rival.variant == variant.name) {
        sentences.push(match rival.is_less {
            true => format!("Certainly less good than {}.", best.variant),
            false => format!("It may be as good as {}, which has the best median.", best.variant),
        });
    }
    sentences.extend(analysis::cost_words(findings, finding));
    sentences.extend(worse_elsewhere(experiment, findings, variant));
    sentences.extend(analysis::risk_words(experiment, variant));
    let has = |names: &[&str]| changes.iter().any(|(name, _)| names.contains(&name.as_str()));
    if has(&OF_NEW_BLOCKS) {
        sentences.push(
            "It counts for blocks that are written from then on; those that are there stay as they are."
                .to_owned(),
        );
    }
    if has(&[REWRITES]) {
        sentences.push("A volume is rewritten for it, with all its data.".to_owned());
    }
    if let Some(models) = &findings.modelled {
        sentences.push(format!("It was found with models, and not with such hardware: {models}."));
    }
    if findings.unfinished.is_some() || findings.few.is_some() {
        sentences.push("More rounds are needed to rely on it.".to_owned());
    }
    sentences.join(" ")
}

/// The other workloads with which it is certainly worse than the baseline.
fn worse_elsewhere(experiment: &Experiment, findings: &Findings, variant: &Variant) -> Option<String> {
    let others = experiment.workloads.iter().filter(|workload| workload.name != experiment.goal_workload());
    let worse = others.filter_map(|workload| {
        let compared = findings.find(&variant.name, &workload.name, experiment.goal.metric)?.compared?;
        let ratio = stats::times(compared.comparison.ratio.value);
        let is_worse = compared.verdict == analysis::Verdict::Worse;
        is_worse.then(|| format!("\"{}\" ({ratio} times)", workload.name))
    });
    let worse: Vec<String> = worse.collect();
    (!worse.is_empty()).then(|| format!("Worse with {}.", worse.join(", ")))
}

/// Why a dataset cannot be given these changes, where it cannot.
fn why_not(experiment: &Experiment, changes: &[(String, String)]) -> Option<String> {
    if experiment.target.below().is_some() {
        return Some(
            "This was measured with the OpenZFS of the host that was named: set it there, with its `zfs`."
                .to_owned(),
        );
    }
    let mut reasons: Vec<String> = changes.iter().filter_map(|(name, value)| instead(name, value)).collect();
    if reasons.is_empty() {
        return None;
    }
    if reasons.len() < changes.len() {
        reasons.push("The gain is that of all changes together.".to_owned());
    }
    Some(reasons.join(" "))
}

/// What to do for a change that is no property of a dataset; nothing for one that is.
fn instead(name: &str, value: &str) -> Option<String> {
    let is_none = value == "none";
    Some(match SettingOwner::of(name) {
        SettingOwner::Dataset if OF_CREATION.contains(&name) => format!(
            "A dataset gets {name} when it is created: create one with `-o {name}={value}`, and copy the \
             data there."
        ),
        SettingOwner::Dataset => return None,
        SettingOwner::Job => {
            format!("{name}={value} belongs to the load: set it in the program that reads and writes.")
        }
        SettingOwner::Server => format!(
            "{name} belongs to the daemon and all its pools: `cenote tunable set --save zfs_{name}={value}`."
        ),
        SettingOwner::Tunable => format!(
            "This tunable belongs to the daemon and all its pools: `cenote tunable set --save {}={value}`.",
            name.strip_prefix(TUNABLE).unwrap_or(name)
        ),
        SettingOwner::Pool => of_pool(name, value, is_none),
        SettingOwner::Layer => format!("{value} is another layer of the stack: use that one."),
        SettingOwner::Way => format!("{name}={value} is another way to the volume: connect clients by it."),
        SettingOwner::Guest => {
            format!("{name}={value} belongs to the guest: set it where its virtual machine is defined.")
        }
    })
}

/// The same of a setting of pools.
fn of_pool(name: &str, value: &str, is_none: bool) -> String {
    if let Some(property) = name.strip_prefix(POOL) {
        return format!("{property} is a property of the pool: `cenote zpool set {property}={value} POOL`.");
    }
    if name.starts_with("feature@") {
        return match value {
            "enabled" => format!("It is a feature of the pool: `cenote zpool set {name}=enabled POOL`."),
            _ => format!(
                "A pool keeps its features: create one with `-o {name}={value}`, and send the datasets there."
            ),
        };
    }
    match name {
        "layout" => {
            format!("A pool keeps its layout: create one of {value}, and send the datasets there.")
        }
        "log" if is_none => {
            "It is without log device: `cenote zpool remove POOL DEVICE` takes one away.".to_owned()
        }
        "log" => "It needs a log device: `cenote zpool add POOL log mirror DEVICE DEVICE`.".to_owned(),
        "l2arc" if is_none => {
            "It is without cache device: `cenote zpool remove POOL DEVICE` takes one away.".to_owned()
        }
        "l2arc" => "It needs a cache device: `cenote zpool add POOL cache DEVICE`.".to_owned(),
        "ashift" => format!(
            "A vdev keeps its sectors: create a pool with `-o ashift={value}`, and send the datasets there."
        ),
        "missing" => {
            "It differs in devices that are offline: `cenote zpool replace` gives the pool others.".to_owned()
        }
        DEVICE_LUKS => {
            "Encryption below the pool comes before the pool: create one on other devices, and send the \
             datasets there."
                .to_owned()
        }
        _ => format!(
            "{name}={value} is other hardware: create a pool on such devices, and send the datasets \
             there."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::findings;
    use crate::plan::BASELINE;
    use crate::store::Store;

    /// What is said of an experiment with a target and a factor, whose variants have these IOPS.
    fn said(target: &str, factor: &str, of: &[(&str, &str, f64)]) -> Vec<Verdict> {
        let text = format!(
            "name = \"x\"\n[target]\nkind = {target}\nsize = \"64M\"\n{factor}\n[[workload]]\nname = \
             \"w\"\nrw = \"write\"\n[[workload]]\nname = \"r\"\nrw = \"read\"\n"
        );
        let store = Store::planted(&text, of);
        all(store.experiment(), &findings(&store))
    }

    fn factor(name: &str, values: &str) -> String {
        format!("[[factor]]\nname = \"{name}\"\nvalues = [{values}]\n")
    }

    #[test]
    fn better_variants_are_told_as_changes_the_best_first() {
        let of = [
            (BASELINE, "w", 100.0),
            ("volblocksize=32K", "w", 200.0),
            ("volblocksize=64K", "w", 300.0),
            ("volblocksize=8K", "w", 50.0),
            ("volblocksize=128K", "w", 300.5),
            (BASELINE, "r", 100.0),
            ("volblocksize=64K", "r", 50.0),
        ];
        let sizes = "\"16K\", \"32K\", \"64K\", \"8K\", \"128K\"";
        let all = said("\"volume\"", &factor("volblocksize", sizes), &of);
        let names: Vec<&str> = all.iter().map(|it| it.variant.as_str()).collect();
        assert_eq!(names, ["volblocksize=64K", "volblocksize=128K", "volblocksize=32K"]);
        assert_eq!(all[0].changes, [("volblocksize".to_owned(), "64K".to_owned())]);
        assert!(all.iter().all(|it| it.why_not.is_none()), "{all:?}");
        let told = &all[0].text;
        assert!(told.contains(" times the IOPS of volblocksize=16K with \"w\" ("), "{told}");
        assert!(told.contains("Worse with \"r\" (0.5"), "{told}");
        assert!(told.contains("A volume is rewritten for it"), "{told}");
        assert!(all[1].text.contains("It may be as good as volblocksize=64K"), "{all:?}");
        assert!(all[2].text.contains("Certainly less good than volblocksize=64K."), "{all:?}");
        // Nothing is better: nothing is offered.
        let of = [(BASELINE, "w", 100.0), ("sync=disabled", "w", 100.0)];
        assert_eq!(said("\"volume\"", &factor("sync", "\"standard\", \"disabled\""), &of), []);
    }

    #[test]
    fn what_can_be_lost_and_what_stays_as_it_is_is_told() {
        let better = |name: &'static str| [(BASELINE, "w", 100.0), (name, "w", 200.0)];
        let sync = factor("sync", "\"standard\", \"disabled\"");
        let all = said("\"volume\"", &sync, &better("sync=disabled"));
        assert!(all[0].text.contains("Mind that with sync=disabled data that programs"), "{all:?}");
        assert!(!all[0].text.contains("from then on") && all[0].why_not.is_none(), "{all:?}");
        let compression = factor("compression", "\"off\", \"lz4\"");
        let all = said("\"volume\"", &compression, &better("compression=lz4"));
        assert!(all[0].text.contains("written from then on"), "{all:?}");
        let modelled = "\"volume\"\ndevices = \"hdd-7200\"";
        let all = said(modelled, &compression, &better("compression=lz4"));
        assert!(all[0].text.contains("with models, and not with such hardware: hdd-7200"), "{all:?}");
    }

    #[test]
    fn what_is_no_property_of_a_dataset_is_told_with_what_to_do_instead() {
        let why_not = |target: &str, name: &str, values: &str, better: &str| {
            let variant = format!("{name}={better}");
            let of = [(BASELINE, "w", 100.0), (variant.as_str(), "w", 200.0)];
            let all = said(target, &factor(name, values), &of);
            assert_eq!(all.len(), 1, "{name}: {all:?}");
            assert_eq!(all[0].changes, [(name.to_owned(), better.to_owned())]);
            all[0].why_not.clone().unwrap_or_default()
        };
        for (name, values, better, expected) in [
            ("arc_max", "\"64M\", \"1G\"", "1G", "`cenote tunable set --save zfs_arc_max=1G`"),
            ("tunable.zfs_txg_timeout", "\"5\", \"9\"", "9", "tunable set --save zfs_txg_timeout=9`"),
            ("layout", "\"2\", \"mirror 2\"", "mirror 2", "create one of mirror 2, and send"),
            ("log", "\"none\", \"file\"", "file", "cenote zpool add POOL log mirror"),
            ("log", "\"file\", \"none\"", "none", "cenote zpool remove POOL DEVICE"),
            ("l2arc", "\"none\", \"file\"", "file", "cenote zpool add POOL cache DEVICE"),
            ("ashift", "\"9\", \"12\"", "12", "`-o ashift=12`"),
            ("pool.autotrim", "\"off\", \"on\"", "on", "`cenote zpool set autotrim=on POOL`"),
            ("feature@lz4_compress", "\"enabled\", \"disabled\"", "disabled", "-o feature@lz4_compress="),
            ("iodepth", "\"1\", \"8\"", "8", "belongs to the load"),
            ("encryption", "\"off\", \"aes-256-gcm\"", "aes-256-gcm", "when it is created"),
        ] {
            let told = why_not("\"volume\"", name, values, better);
            assert!(told.contains(expected), "{name}: {told}");
            assert!(told.matches('`').count().is_multiple_of(2), "{told}");
        }
        let disk = why_not("\"guest\"", "disk", "\"nbd\", \"vhost-user\"", "vhost-user");
        assert!(disk.contains("belongs to the guest"), "{disk}");
        let host = "\"host\"\ndataset = \"tank/x\"";
        let told = why_not(host, "compression", "\"off\", \"lz4\"", "lz4");
        assert!(told.contains("OpenZFS of the host"), "{told}");
    }

    #[test]
    fn a_change_that_is_partly_a_property_is_not_offered() {
        let variant = "[settings]\nsync = \"always\"\n[[factor]]\nname = \"compression\"\nvalues = \
                       [\"off\", \"lz4\"]\n[[variant]]\ncompression = \"lz4\"\narc_max = \"1G\"\n";
        let name = "compression=lz4 arc_max=1G";
        let of = [(BASELINE, "w", 100.0), (name, "w", 200.0)];
        let all = said("\"volume\"", variant, &of);
        let names: Vec<&str> = all.iter().map(|it| it.variant.as_str()).collect();
        assert_eq!(names, [name]);
        assert_eq!(all[0].changes.len(), 2, "what is held fixed is no change");
        let told = all[0].why_not.clone().unwrap();
        assert!(told.contains("zfs_arc_max=1G") && told.ends_with("of all changes together."), "{told}");
    }
}
