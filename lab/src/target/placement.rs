//! Which runs share a volume or filesystem.
//!
//! Rounds of a variant share one, so that it ages. Workloads that leave different kinds of data do not:
//! otherwise one would read the other's data and report its space. Workloads that need missing devices have
//! pools of their own. When a pool is made, [`bytes_of_a_variant`] says how much will be in it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::experiment::{Experiment, Settings, Work, Workload};
use crate::plan::{Variant, VariantKind};
use crate::size::Size;
use crate::workload::Sort;

/// The kind of data that a workload leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Content {
    /// Data that were made up, all over it.
    Created {
        /// Share that compresses away, in per cent.
        compressible: u32,
        /// Share that is there already, in per cent.
        duplicates: u32,
        /// Whether some of it is taken away again.
        holes: bool,
    },
    /// Files of their own, that were made up.
    Files {
        /// Share that compresses away, in per cent.
        compressible: u32,
        /// Share that is there already, in per cent.
        duplicates: u32,
    },
    /// The user's files.
    Copied {
        /// From where.
        source: PathBuf,
        /// Whether they lie there as on a disk.
        as_disk: bool,
        /// Which of them.
        only: Option<Sort>,
    },
}

impl Content {
    pub(super) fn of(workload: &Workload) -> Self {
        let (compressible, duplicates) = (workload.compressible, workload.duplicates);
        match (workload.work(), &workload.source) {
            (Work::Copy, Some(source)) => {
                Self::Copied { source: source.clone(), as_disk: workload.as_disk, only: workload.only }
            }
            (Work::Create | Work::Open | Work::Stat | Work::Delete, _) => {
                Self::Files { compressible, duplicates }
            }
            // What a trace takes away is known only when it is read.
            (work, _) => {
                let holes = work == Work::Replay || workload.rw.contains("trim");
                Self::Created { compressible, duplicates, holes }
            }
        }
    }

    /// Most bytes that it is, where `workload` leaves it in a target of `size`.
    fn bytes(&self, workload: &Workload, size: Size) -> u64 {
        match self {
            Self::Created { .. } => size.0,
            Self::Files { .. } => u64::from(workload.files).saturating_mul(workload.bs.0),
            Self::Copied { .. } => workload.extent(size).0,
        }
    }
}

/// A variant as one of its workloads needs it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// Its variant's name.
    pub(super) variant: String,
    /// Whether it is no pool at all.
    pub(super) is_device: bool,
    /// All settings, with the devices that the workload wants missing.
    pub(super) settings: Settings,
    content: Content,
}

impl Placement {
    /// Of a workload that has the variant's settings.
    pub fn of(variant: &Variant, workload: &Workload) -> Self {
        let mut settings = variant.settings.clone();
        if workload.missing > 0 {
            settings.insert("missing".into(), workload.missing.to_string());
        }
        Self {
            variant: variant.name.clone(),
            is_device: variant.kind == VariantKind::Device,
            settings,
            content: Content::of(workload),
        }
    }
}

/// Bytes that one variant's volumes or filesystems hold at most, with all that its workloads leave. Those
/// with devices missing are in other pools, and count as if they were in the same.
pub(super) fn bytes_of_a_variant(experiment: &Experiment) -> u64 {
    let size = experiment.target.size();
    let mut most = BTreeMap::new();
    for workload in &experiment.workloads {
        let content = Content::of(workload);
        let bytes = content.bytes(workload, size);
        let known = most.entry((workload.missing, content)).or_insert(0);
        *known = bytes.max(*known);
    }
    most.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = r#"
        name = "mixed"
        [target]
        kind = "filesystem"
        size = "64M"
        [[workload]]
        name = "half"
        rw = "write"
        compressible = 50
        [[workload]]
        name = "half, read"
        rw = "randread"
        size = "16M"
        compressible = 50
        [[workload]]
        name = "all"
        rw = "write"
        [[workload]]
        name = "trimmed"
        rw = "randtrim"
        [[workload]]
        name = "copied"
        rw = "copy"
        source = "/usr"
        size = "8M"
        [[workload]]
        name = "copied, more"
        rw = "copy"
        source = "/usr"
        size = "16M"
        [[workload]]
        name = "files"
        rw = "create"
        files = 1024
    "#;

    #[test]
    fn workloads_share_what_leaves_the_same() {
        let experiment = Experiment::parse(MIXED).unwrap();
        let variant =
            Variant { name: "v".into(), kind: VariantKind::Baseline, settings: Settings::default() };
        let of = |index: usize| Placement::of(&variant, &experiment.workloads[index]);
        assert_eq!(of(0), of(1));
        assert_eq!(of(4), of(5));
        let kinds = [of(0), of(2), of(3), of(4), of(6)];
        assert_eq!(std::collections::BTreeSet::from(kinds).len(), 5);
        let missing = Workload { missing: 1, ..experiment.workloads[0].clone() };
        assert_ne!(Placement::of(&variant, &missing), of(0));
        assert_eq!(Placement::of(&variant, &missing).settings["missing"], "1");
    }

    #[test]
    fn a_variant_holds_all_that_its_workloads_leave() {
        let experiment = Experiment::parse(MIXED).unwrap();
        assert_eq!(bytes_of_a_variant(&experiment) >> 20, 64 + 64 + 64 + 16 + 4);
    }
}
