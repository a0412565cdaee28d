//! Settings: what differs between variants, and what has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// What can be lost with a value, where it costs safety and the lab does not know it by itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub risks: BTreeMap<String, String>,
}

/// What has a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The load: an option of fio.
    Job,
    /// The process that serves: it must be another.
    Server,
    /// The pool: it must be made anew.
    Pool,
    /// The stack: it is another of its layers.
    Layer,
    /// The volume or filesystem: a property.
    Dataset,
    /// The way to the volume: it is the same volume, reached by another.
    Way,
}

/// What stands before the name of an option of fio that is a setting and not known to be one.
pub const FIO: &str = "fio.";

/// The setting that says how a volume is reached.
pub const THROUGH: &str = "through";
/// Over NBD, by fio.
pub const NBD: &str = "nbd";
/// By the process that has the pool open.
pub const PROCESS: &str = "process";

impl Place {
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
            "arc_max" => Self::Server,
            "layer" => Self::Layer,
            THROUGH => Self::Way,
            "layout" | "log" | "ashift" | "devices" | "missing" => Self::Pool,
            _ if name.starts_with("feature@") => Self::Pool,
            _ => Self::Dataset,
        }
    }

    /// Those of `settings` that it has.
    pub fn pick(self, settings: &Settings) -> Settings {
        let its = settings.iter().filter(|(name, _)| Self::of(name) == self);
        its.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}
