//! Requests about snapshots by schedule, and the value of the user property that is the schedule.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, ApiError, Declaration, Delegated, Effects, Part, Role, Source};

/// The user property of datasets with the schedule, as [`SnapshotPlan`] writes it.
pub const SNAPSHOT_SCHEDULE: &str = "org.cenote:snapshots";
/// The user property of snapshots that a schedule made: which kind it is.
pub const SNAPSHOT_KIND: &str = "org.cenote:snapshot-kind";
/// The property that keeps datasets out of schedules, and with `:KIND` behind it out of one kind.
pub const AUTO_SNAPSHOT: &str = "com.sun:auto-snapshot";

/// The most snapshots of one kind that a schedule can keep.
const MAX_KEEP: u32 = 10_000;

/// How often a snapshot is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotKind {
    /// Every 15 minutes.
    Frequent,
    /// Every hour.
    Hourly,
    /// Every day.
    Daily,
    /// Every week, from Monday.
    Weekly,
    /// Every month.
    Monthly,
    /// Every year.
    Yearly,
}

impl SnapshotKind {
    /// All, the shortest first.
    pub const ALL: [Self; 6] =
        [Self::Frequent, Self::Hourly, Self::Daily, Self::Weekly, Self::Monthly, Self::Yearly];

    /// Its word, as it stands in names and properties.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Frequent => "frequent",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
        }
    }

    /// The kind of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// The kind that the name of a snapshot says, behind its `@`, in any of the forms.
    pub fn of_name(short: &str) -> Option<Self> {
        let is_like = |text: &str, form: &str| {
            let fits =
                |(byte, like): (u8, u8)| if like == b'0' { byte.is_ascii_digit() } else { byte == like };
            text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
        };
        if let Some(rest) = short.strip_prefix("autosnap_") {
            let (date, word) = rest.rsplit_once('_')?;
            return Self::ALL
                .into_iter()
                .find(|kind| SnapshotNames::Sanoid.word_of(*kind) == word)
                .filter(|_| is_like(date, "0000-00-00_00:00:00"));
        }
        let (word, date) = short.strip_prefix("zfs-auto-snap_")?.split_once('-')?;
        Self::from_word(word).filter(|_| is_like(date, "0000-00-00-0000"))
    }
}

/// How the snapshots of a schedule are called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotNames {
    /// As sanoid does: `autosnap_2026-11-30_09:00:00_hourly`.
    #[default]
    Sanoid,
    /// As zfs-auto-snapshot does: `zfs-auto-snap_hourly-2026-11-30-0900`.
    ZfsAutoSnapshot,
}

impl SnapshotNames {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sanoid, Self::ZfsAutoSnapshot];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sanoid => "sanoid",
            Self::ZfsAutoSnapshot => "zfs-auto-snapshot",
        }
    }

    /// The word of a kind in these names: one of them is another one in sanoid's.
    pub const fn word_of(self, kind: SnapshotKind) -> &'static str {
        match (self, kind) {
            (Self::Sanoid, SnapshotKind::Frequent) => "frequently",
            _ => kind.word(),
        }
    }

    /// The names of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|names| names.word() == word)
    }
}

/// What a schedule keeps: `hourly=24,daily=30,recursive,names=sanoid`, or `off`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotPlan {
    /// The kinds that it takes, and how many of each it keeps. A kind that it does not name is left alone.
    pub keep: Vec<(SnapshotKind, u32)>,
    /// Whether it is for everything below too.
    pub recursive: bool,
    /// How snapshots are called.
    pub names: SnapshotNames,
}

impl SnapshotPlan {
    /// How many of a kind it keeps; none where it does not name the kind.
    pub fn keeps(&self, kind: SnapshotKind) -> Option<u32> {
        self.keep.iter().find(|(of, _)| *of == kind).map(|(_, keep)| *keep)
    }
}

impl FromStr for SnapshotPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        if text == "off" {
            return Ok(plan);
        }
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                None if part == "recursive" => plan.recursive = true,
                Some(("names", word)) => {
                    plan.names = SnapshotNames::from_word(word)
                        .ok_or_else(|| format!("names={word}: they are sanoid or zfs-auto-snapshot"))?;
                }
                Some((word, number)) => {
                    let kind = SnapshotKind::from_word(word)
                        .ok_or_else(|| format!("'{word}' is no kind of snapshot"))?;
                    let keep = number.parse().ok().filter(|keep| *keep <= MAX_KEEP);
                    let keep =
                        keep.ok_or_else(|| format!("{word}={number}: not a number up to {MAX_KEEP}"))?;
                    if plan.keeps(kind).is_some() {
                        return Err(format!("{word} stands there twice"));
                    }
                    plan.keep.push((kind, keep));
                }
                None => return Err(format!("'{part}' is neither KIND=NUMBER nor recursive")),
            }
        }
        plan.keep.sort_by_key(|(kind, _)| *kind);
        Ok(plan)
    }
}

impl fmt::Display for SnapshotPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.keep.is_empty() {
            return f.write_str("off");
        }
        let kinds = self.keep.iter().map(|(kind, keep)| format!("{}={keep}", kind.word()));
        let mut parts: Vec<String> = kinds.collect();
        if self.recursive {
            parts.push("recursive".to_owned());
        }
        if self.names != SnapshotNames::default() {
            parts.push(format!("names={}", self.names.word()));
        }
        f.write_str(&parts.join(","))
    }
}

/// Asks for the schedules of datasets, or of all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetSnapshotSchedules {
    /// Filesystems and volumes, each with everything below; empty for those of all pools.
    pub datasets: Vec<String>,
}

impl Action for GetSnapshotSchedules {
    const DECLARED: Declaration = Declaration::reads(
        "snapshot-schedules",
        Part::Events,
        Role::Viewer,
        "Which datasets get snapshots by schedule, and which snapshots are there",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = super::Listed<SnapshotSchedule>;
}

/// The schedule of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotSchedule {
    /// The dataset.
    pub dataset: String,
    /// The value of the property.
    pub schedule: String,
    /// Where that comes from.
    pub source: Source,
    /// Why it is not run, where it is not.
    pub idle: Option<String>,
    /// What is there of each kind that it names.
    pub kinds: Vec<ScheduledKind>,
}

/// What is there of a kind of snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduledKind {
    /// The kind.
    pub kind: SnapshotKind,
    /// How many are kept.
    pub keep: u32,
    /// How many the schedule made that are there.
    pub there: u32,
    /// When the newest of them was taken, in seconds since 1970.
    pub newest: Option<u64>,
    /// Whether `com.sun:auto-snapshot` rules it out.
    pub ruled_out: bool,
}

/// Has schedules run at once: takes the snapshots that are due, and destroys those beyond what is kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunSnapshotSchedules {
    /// Filesystems and volumes, each with everything below; empty for those of all pools.
    pub datasets: Vec<String>,
    /// Only say what would be done.
    pub dry_run: bool,
    /// The command, for the history.
    pub command: Option<String>,
}

impl Action for RunSnapshotSchedules {
    const DECLARED: Declaration = Declaration::changes(
        "snapshot-schedules-run",
        Part::Events,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Takes the snapshots that are due by schedule, and destroys those beyond what is kept",
    )
    .in_words("run the snapshot schedules of", "datasets");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = SnapshotsScheduled;
}

/// What a run of the schedules did, or would do.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotsScheduled {
    /// Snapshots that were taken.
    pub taken: Vec<String>,
    /// Snapshots that were destroyed.
    pub destroyed: Vec<String>,
    /// Snapshots beyond what is kept that stay, because they are held or have clones.
    pub in_use: Vec<String>,
    /// What could not be done.
    pub failed: Vec<ApiError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_is_written() {
        for text in ["off", "hourly=24", "frequent=4,daily=0,recursive,names=zfs-auto-snapshot"] {
            assert_eq!(text.parse::<SnapshotPlan>().map(|plan| plan.to_string()), Ok(text.to_owned()));
        }
        let plan: SnapshotPlan = "names=sanoid, monthly=1,hourly=2".parse().unwrap();
        assert_eq!(plan.to_string(), "hourly=2,monthly=1");
        assert_eq!(plan.keeps(SnapshotKind::Daily), None);
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        for text in ["", "on", "hourly", "hourly=x", "hourly=-1", "hourly=10001", "minutely=1", "names=x"] {
            assert!(text.parse::<SnapshotPlan>().is_err(), "{text}");
        }
        assert!("hourly=1,hourly=2".parse::<SnapshotPlan>().unwrap_err().contains("twice"));
    }
}
