//! What holds for a kind of target, whatever its fields say: a row of a table.

use super::DatasetKind;
use crate::metric::Metric;
use crate::setting::{NBD, PROCESS, SettingOwner};

/// What holds for a kind, whatever its fields say.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// What may have a setting by which variants differ, beside the job.
    pub owners: &'static [SettingOwner],
    /// The values of the setting `through`.
    pub ways: &'static [&'static str],
    /// What is made for variants.
    pub dataset: Option<DatasetKind>,
    /// Metrics without a figure, and why.
    pub unreported: &'static [(&'static [Metric], &'static str)],
    /// Why no limit of the devices is measured; nothing where there is one, or devices are modelled and have
    /// theirs.
    pub no_limit: Option<&'static str>,
    /// What becomes of caches where a workload wants data cold.
    pub cold: Cold,
    /// A limit of what it says, for the report.
    pub caveat: Option<&'static str>,
    /// Programs that must be on the PATH, and what needs them.
    pub programs: Option<(&'static str, &'static [&'static str])>,
    /// The program that copies need.
    pub copied_by: Option<&'static str>,
    /// How much fits into a quick form, where that is not as of other kinds.
    pub quick: Option<Quick>,
    /// What takes turns in a round, where something does ([`super::Site::turn`]).
    pub turns: Turns,
}

/// What takes turns in a round, in words that follow their number.
#[derive(Debug, Clone, Copy)]
pub struct Turns {
    /// Before it began.
    pub planned: &'static str,
    /// After it ended.
    pub done: &'static str,
}

/// Figures of the process that serves.
pub(crate) const OF_SERVER: &[Metric] =
    &[Metric::Cpu, Metric::Memory, Metric::Amplification, Metric::ReadAmplification];

impl Facts {
    /// Of datasets in pools that the lab makes.
    pub const POOLED: Self = Self {
        owners: &[SettingOwner::Server, SettingOwner::Tunable, SettingOwner::Pool, SettingOwner::Dataset],
        ways: &[NBD, PROCESS],
        dataset: None,
        unreported: &[],
        no_limit: None,
        cold: Cold::Imported,
        caveat: None,
        programs: None,
        copied_by: None,
        quick: None,
        turns: Turns {
            planned: "kinds of pools take turns on these disks: each is made and filled anew in every round",
            done: "kinds of pools took turns on the same disks, each of the first as many of them as it \
                has devices: in each round a pool was made and filled anew, its runs followed, and then the \
                next. So all pools are equally old and on the same disks.",
        },
    };

    /// Of what the user named.
    pub const NAMED: Self = Self {
        owners: &[],
        unreported: &[
            (&[Metric::Space], "space on devices is only reported of volumes and filesystems"),
            (
                OF_SERVER,
                "the server of this target does not report that; the lab's own volumes and filesystems do",
            ),
        ],
        cold: Cold::Dropped,
        ..Self::POOLED
    };

    /// Whether variants can differ in a setting of `place`.
    pub fn has(&self, place: SettingOwner) -> bool {
        place == SettingOwner::Job || self.owners.contains(&place)
    }
}

/// What becomes of caches where a workload wants data cold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cold {
    /// Pools are exported and imported again.
    Imported,
    /// They are dropped as far as that is allowed from here; a note of the run says what may remain.
    Dropped,
    /// They stay as they are, and the report says why.
    Kept(&'static str),
}

/// The limits of a quick form.
#[derive(Debug, Clone, Copy)]
pub struct Quick {
    /// Most runs, where two rounds do with them: what a run takes beside its seconds adds up too.
    pub(crate) runs: usize,
    /// Their total time.
    pub(crate) seconds: f64,
    /// How long it may take until its last round ends, on a machine of any speed; what is made and removed
    /// around it comes to that.
    pub(crate) within_seconds: f64,
}
