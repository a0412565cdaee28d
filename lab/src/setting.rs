//! Settings: the differences between variants, and the part that each applies to.

mod knobs;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::models::{object_store, speed};
use crate::size::Size;

pub use knobs::{KNOBS, Knob, ON_EXT4};

/// Settings by their names.
pub type Settings = BTreeMap<String, String>;

/// A setting and the values to compare.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Its name.
    pub name: String,
    /// Its values; the first is the baseline's.
    pub values: Vec<String>,
    /// Those of its values that its quick form has, the baseline's first; all where left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quick: Vec<String>,
    /// Values that are not measured, because this is the quick form of an experiment that has them. The
    /// report says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The possible loss with a value, if it costs safety and the lab does not know that by itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub risks: BTreeMap<String, String>,
}

impl Factor {
    /// Says what is wrong with its values, where something is.
    pub(crate) fn check(&self) -> Result<()> {
        let name = &self.name;
        let wrong = |what: String| Err(Error::Experiment(format!("factor '{name}': {what}")));
        let values: BTreeSet<&String> = self.values.iter().collect();
        if values.len() != self.values.len() || values.len() < 2 {
            return wrong("it needs at least two different values".into());
        }
        if let Some([one, other]) = self.twice(|value| meaning(name, value)) {
            return wrong(format!("{one} and {other} are the same value"));
        }
        if let Some(value) = self.risks.keys().find(|value| !values.contains(value)) {
            return wrong(format!("risks: it has no value '{value}'"));
        }
        if let Some(value) = self.quick.iter().find(|value| !values.contains(value)) {
            return wrong(format!("quick: it has no value '{value}'"));
        }
        if self.quick.first().is_some_and(|first| Some(first) != self.values.first()) {
            let (first, baseline) = (&self.quick[0], &self.values[0]);
            return wrong(format!(
                "quick: the first is the baseline's, which is '{baseline}' and not '{first}'"
            ));
        }
        let of_quick: BTreeSet<&String> = self.quick.iter().collect();
        if of_quick.len() != self.quick.len() || of_quick.len() == 1 {
            return wrong("quick: it needs at least two different values".into());
        }
        if let Some(value) = self.left_out.iter().find(|value| values.contains(value)) {
            return wrong(format!("left_out: '{value}' is among its values"));
        }
        Ok(())
    }

    /// Two of its values that mean the same, where there are such.
    pub(crate) fn twice(&self, meaning: impl Fn(&str) -> String) -> Option<[&str; 2]> {
        let mut known = BTreeMap::new();
        self.values.iter().find_map(|value| Some([known.insert(meaning(value), value.as_str())?, value]))
    }

    /// Keeps the values of its quick form.
    pub(crate) fn be_quick(&mut self) {
        if self.quick.is_empty() {
            return;
        }
        let all = std::mem::replace(&mut self.values, std::mem::take(&mut self.quick));
        self.left_out.extend(all.into_iter().filter(|value| !self.values.contains(value)));
        self.risks.retain(|value, _| self.values.contains(value));
    }
}

/// What a value of the setting `name` means, as far as the lab knows: values that mean the same are
/// one in several spellings, as 8192 and 8K are.
pub(crate) fn meaning(name: &str, value: &str) -> String {
    match (name, value.parse::<Layout>(), value.parse::<Size>()) {
        ("layout", Ok(layout), _) => format!("{:?}", layout.vdevs()),
        (_, _, Ok(size)) => size.0.to_string(),
        _ => value.to_owned(),
    }
}

/// Says what is wrong with a value of the setting `name`, where the lab itself has to understand it. What a
/// property may be, its pool says when it is made.
pub(crate) fn check(name: &str, value: &str) -> Result<()> {
    let wrong = |what: &str| Err(Error::Experiment(format!("{name}={value}: {what}")));
    let named = |error: Error| match error {
        Error::Experiment(what) => Error::Experiment(format!("{name}={value}: {what}")),
        error => error,
    };
    match name {
        "layout" => value.parse::<Layout>().map(drop).map_err(named),
        "devices" if object_store::store(value).is_some() => Ok(()),
        "devices" => speed::device(value).map(drop).map_err(named),
        "log" | "l2arc" if value != "none" && value != "file" => {
            speed::device(value).map(drop).map_err(named)
        }
        DEVICE_LUKS if !["off", "on"].contains(&value) => wrong("it is off or on"),
        // 0 is what the devices say.
        "ashift" if !value.parse::<u32>().is_ok_and(|ashift| ashift == 0 || (9..=16).contains(&ashift)) => {
            wrong("it is the power of two of a sector's bytes, from 9 to 16")
        }
        "missing" | "iodepth" | "numjobs" | "fsync" | "fdatasync" | "rwmixread"
            if value.parse::<u64>().is_err() =>
        {
            wrong("it is not a number")
        }
        _ if Tunable::named(name).is_some_and(|tunable| !(tunable.takes)(value)) => {
            let values = Tunable::named(name).map_or("", |tunable| tunable.values);
            wrong(&format!("it is not {values}"))
        }
        _ if Knob::named(name).is_some_and(|knob| !knob.values.contains(&value)) => {
            let values = Knob::named(name).map_or(String::new(), |knob| knob.values.join(", "));
            wrong(&format!("it is one of {values}"))
        }
        _ if name.starts_with("feature@") && value != "enabled" && value != "disabled" => {
            wrong("it is enabled or disabled")
        }
        _ => Ok(()),
    }
}

/// What a serving process is started with: its option `--name`, with `-` for `_`.
#[derive(Debug, Clone, Copy)]
pub struct Tunable {
    /// The setting's name.
    pub name: &'static str,
    /// Its values, in words.
    pub values: &'static str,
    /// Whether it takes a value.
    pub takes: fn(&str) -> bool,
}

/// All of them: one that the process learns is a factor when it stands here.
pub const TUNABLES: [Tunable; 1] =
    [Tunable { name: "arc_max", values: "a size, as 512M is", takes: |value| value.parse::<Size>().is_ok() }];

impl Tunable {
    /// That of this name.
    pub fn named(name: &str) -> Option<Self> {
        TUNABLES.into_iter().find(|tunable| tunable.name == name)
    }
}

/// The part that a setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingOwner {
    /// The load: an option of fio.
    Job,
    /// The process that serves: it must be another.
    Server,
    /// The process that serves, while it runs: a number that is set before each run.
    Tunable,
    /// The pool: it must be made anew.
    Pool,
    /// The stack: it is another of its layers.
    Layer,
    /// The volume or filesystem: a property.
    Dataset,
    /// The guest: it is another.
    Guest,
    /// The way to the volume: it is the same volume, reached by another.
    Way,
}

/// The prefix of an option of fio that is a setting without being a known one.
pub const FIO: &str = "fio.";

/// The prefix of a pool's property that is a setting.
pub const POOL: &str = "pool.";

/// The prefix of a tunable of the process that serves, which is set live.
pub const TUNABLE: &str = "tunable.";

/// Settings that are no properties, and no options of fio with [`FIO`] before their names.
pub const SETTINGS: [&str; OTHERS.len() + TUNABLES.len() + KNOBS.len()] = {
    let mut all = [""; OTHERS.len() + TUNABLES.len() + KNOBS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < OTHERS.len() {
            OTHERS[at]
        } else if at < OTHERS.len() + TUNABLES.len() {
            TUNABLES[at - OTHERS.len()].name
        } else {
            KNOBS[at - OTHERS.len() - TUNABLES.len()].name
        };
        at += 1;
    }
    all
};

/// Those that are no tunables.
const OTHERS: [&str; 20] = [
    "rw",
    "bs",
    "iodepth",
    "numjobs",
    "rwmixread",
    "fsync",
    "fdatasync",
    "sync_job",
    "direct",
    "random_distribution",
    "buffer_compress_percentage",
    "dedupe_percentage",
    "layout",
    "log",
    "l2arc",
    "ashift",
    "devices",
    "missing",
    DEVICE_LUKS,
    THROUGH,
];

/// The property that deduplicates.
const DEDUP: &str = "dedup";

/// Whether data of a variant with these settings are deduplicated.
pub(crate) fn is_deduplicated(settings: &Settings) -> bool {
    settings.get(DEDUP).is_some_and(|value| value != "off")
}

/// The property that encrypts.
const ENCRYPTION: &str = "encryption";
/// The setting that has devices of a pool encrypted below it.
pub const DEVICE_LUKS: &str = "device_luks";

/// Whether a dataset with these settings is an encryption root, for which the lab has to make a key.
pub(crate) fn is_encrypted(settings: &Settings) -> bool {
    settings.get(ENCRYPTION).is_some_and(|value| value != "off") && !settings.contains_key("keyformat")
}

/// Whether the devices of a pool with these settings are encrypted.
pub(crate) fn has_device_luks(settings: &Settings) -> bool {
    settings.get(DEVICE_LUKS).is_some_and(|value| value == "on")
}

/// The setting that says how a volume is reached.
pub const THROUGH: &str = "through";
/// Over NBD, by fio.
pub const NBD: &str = "nbd";
/// By the process that has the pool open.
pub const PROCESS: &str = "process";
/// In a guest, whose disk it is.
pub const GUEST: &str = "guest";

impl SettingOwner {
    /// Of the setting `name`.
    pub fn of(name: &str) -> Self {
        match name {
            "rw"
            | "bs"
            | "iodepth"
            | "numjobs"
            | "rwmixread"
            | "fsync"
            | "fdatasync"
            | "sync_job"
            | "direct"
            | "random_distribution"
            | "buffer_compress_percentage"
            | "dedupe_percentage" => Self::Job,
            _ if name.starts_with(FIO) => Self::Job,
            _ if Tunable::named(name).is_some() => Self::Server,
            _ if name.starts_with(TUNABLE) => Self::Tunable,
            "layer" => Self::Layer,
            THROUGH => Self::Way,
            _ if Knob::named(name).is_some() => Self::Guest,
            "layout" | "log" | "l2arc" | "ashift" | "devices" | "missing" | DEVICE_LUKS => Self::Pool,
            _ if name.starts_with("feature@") || name.starts_with(POOL) => Self::Pool,
            _ => Self::Dataset,
        }
    }

    /// Whether variants that differ in it cannot be in one pool.
    pub(crate) fn needs_a_pool(self) -> bool {
        matches!(self, Self::Pool | Self::Server)
    }

    /// The settings that a pool has of its own among others, beside who serves it. Deduplicated data would
    /// share blocks with those of another variant, so that they have a pool for each variant.
    pub(crate) fn of_a_pool(settings: &Settings) -> Settings {
        let mut own = Self::Pool.pick(settings);
        if is_deduplicated(settings) {
            own.extend(Self::Dataset.pick(settings));
        }
        own
    }

    /// Those of `settings` that it has.
    pub fn pick(self, settings: &Settings) -> Settings {
        let its = settings.iter().filter(|(name, _)| Self::of(name) == self);
        its.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_no_properties_are_listed() {
        for tunable in TUNABLES {
            assert!(
                SettingOwner::of(tunable.name) == SettingOwner::Server && SETTINGS.contains(&tunable.name)
            );
            assert!(check(tunable.name, "").unwrap_err().to_string().contains(tunable.values));
        }
        assert!(SETTINGS.iter().all(|name| SettingOwner::of(name) != SettingOwner::Dataset));
        assert_eq!(SettingOwner::of("tunable.zfs_txg_timeout"), SettingOwner::Tunable);
        let of = |dedup: &str| {
            let settings = [("dedup", dedup), ("ashift", "12"), ("compression", "lz4"), ("bs", "8K")];
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
            SettingOwner::of_a_pool(&Settings::from(settings)).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(of("off"), ["ashift"]);
        assert_eq!(of("verify"), ["ashift", "compression", "dedup"]);
        assert_eq!(
            (SettingOwner::of("pool.autotrim"), SettingOwner::of("atime")),
            (SettingOwner::Pool, SettingOwner::Dataset)
        );
    }
}
