//! The parts of a pool: what it can do besides committing groups, one line each.
//!
//! # The order
//! Parts are asked in the order of the table, at each point of a pool's life. Where the order matters:
//!
//! | first | then | at | because |
//! |---|---|---|---|
//! | `scan` | `error_scrub` | load | the state of an error scrub is loaded with that of the scan |
//! | `repair`, `l2arc` | `resilver`, `detach` | start | reads of a scan may ask for repairs |
//! | `checkpoint` | `errlog` | sync | what cannot be read while a checkpoint is discarded is in the log of the same group |
//! | `autotrim` | `devices` | sync | devices that fail while they discard are judged in the same group |
//! | `devices` | `grow` | sync | sizes are those of devices that were just judged |
//! | `l2arc` | `multihost` | close | what is written to cache devices at the end is written under the lease |
//!
//! In the sync all of them come after the tasks, the datasets and the tables of the group, so that a scan
//! follows all changes of datasets, and before the configuration, so that what a part changes in it is
//! written with the same group.
//!
//! The keys of jobs have the order of the table too. Clients see jobs in it, so it stays as it is.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use ondisk::{Guid, ObjsetId};

use super::{
    LivePool, Sweep, Syncing, autotrim, checkpoint, dedup, detach, devices, errlog, error_scrub, free_files,
    grow, l2arc, multihost, quota_upgrade, repair, reshape, resilver, scan, sweep,
};
use crate::dsl::Dsl;
use crate::error::Result;
use crate::jobs::{JobStatus, Target, Work};
use crate::pool::properties::PoolProp;

/// What a part does at a point of a pool's life.
pub(super) type Doing<'a> = BoxFuture<'a, Result<()>>;

/// A part of a pool. Each method has a point in the pool's life, and does nothing unless a part needs that
/// point.
pub(super) trait Part: Debug + Send + Sync {
    /// The pool is opened: takes up what it stores. Nothing runs yet, and no group was written.
    ///
    /// # Errors
    /// The pool cannot be opened for writing.
    fn load<'a>(&'a self, _: &'a Arc<LivePool>, _: &'a Dsl) -> Doing<'a> {
        nothing()
    }

    /// The property of the pool that turns it on and off.
    fn property(&self) -> Option<PoolProp> {
        None
    }

    /// Its property was set, or the pool that is opened has it on.
    fn turn(&self, _: &Arc<LivePool>, _is_on: bool) {}

    /// The thread that commits groups runs. Active jobs go on by themselves after this.
    fn start(&self, _: &Arc<LivePool>) {}

    /// A group is quiesced, and no task of it has run.
    fn before_tasks(&self, _: &Arc<LivePool>) {}

    /// The tasks of a group have run and its datasets are written; the MOS is not.
    ///
    /// # Errors
    /// Nothing of the group may be committed: the pool stops.
    fn sync<'a>(&'a self, _: &'a Syncing) -> Doing<'a> {
        nothing()
    }

    /// A group is committed, and its view is the newest one.
    fn committed(&self, _: &Arc<LivePool>) {}

    /// Nothing more is written. May come more than once.
    fn stop(&self, _: &LivePool) {}

    /// The pool is closed, and all of it is committed or nothing more will be. The thread that commits still
    /// runs. Gives back threads and devices.
    fn close<'a>(&'a self, _: &'a LivePool, _is_committed: bool) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    /// Whether what its job works on is there.
    fn target(&self, _: &LivePool, _: JobKey) -> Target {
        Target::Here
    }

    /// Whether [`Part::keep`] writes down how its jobs stand. Others are stored by their own changes, or not
    /// at all.
    fn keeps_jobs(&self) -> bool {
        false
    }

    /// Writes down how jobs of it stand when that is written, and that they came to stand so.
    ///
    /// # Errors
    /// It cannot be written down.
    fn keep<'a>(&'a self, _: &'a Syncing, _: &'a [JobKey]) -> Doing<'a> {
        nothing()
    }

    /// How its jobs that are active are to be done. Jobs that stand in line bring that with them.
    fn work(&self, _: &Arc<LivePool>, _: &[(JobKey, JobStatus)]) -> Vec<Work<LivePool>> {
        Vec::new()
    }
}

/// There is nothing to do.
fn nothing<'a>() -> Doing<'a> {
    ready(Ok(())).boxed()
}

/// Declares the parts: the name of each, its type, and of one with jobs the key of a job. Behind the key
/// stand the word for the job, and the vdev or the object of the dataset that it works on; 0 for the pool.
macro_rules! parts {
    ($(
        $name:ident: $type:ty
        $(, $(#[$doc:meta])+ $job:ident $(($($arg:ident: $of:ty),+))? => ($word:expr, $target:expr))?;
    )+) => {
        /// The parts of one pool, with what each knows.
        #[derive(Debug, Default)]
        pub(super) struct Parts {
            $(pub $name: $type,)+
        }

        impl Parts {
            /// All of them, in order.
            pub fn all(&self) -> impl Iterator<Item = &dyn Part> {
                [$(&self.$name as &dyn Part,)+].into_iter()
            }

            /// What belongs to jobs, by the parts that have these.
            pub(super) fn by_part<T: Copy>(
                &self,
                of_jobs: &[T],
                key: impl Fn(&T) -> JobKey,
            ) -> Vec<(&dyn Part, Vec<T>)> {
                let mut found: Vec<(&dyn Part, Vec<T>)> = Vec::new();
                $($(
                    let own = of_jobs.iter().filter(|one| matches!(key(one), JobKey::$job { .. }));
                    found.push((&self.$name, own.copied().collect()));
                )?)+
                found.retain(|(_, own)| !own.is_empty());
                found
            }
        }

        /// The names of all, in order.
        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($name),)+];

        /// Which job.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum JobKey {
            $($($(#[$doc])+ $job $(($($of),+))?,)?)+
        }

        impl JobKey {
            /// Which, in a word, and the vdev or the object of the dataset that it works on; 0 for the pool.
            pub fn words(self) -> (&'static str, u64) {
                match self {
                    $($(JobKey::$job $(($($arg),+))? => ($word, $target),)?)+
                }
            }

            /// The part that does it.
            pub(super) fn part(self, parts: &Parts) -> &dyn Part {
                match self {
                    $($(JobKey::$job { .. } => &parts.$name,)?)+
                }
            }
        }
    };
}

parts! {
    repair: repair::ReadRepair;
    l2arc: l2arc::Feeding;
    sweep: sweep::Sweeps,
        /// Going through the free space of a leaf.
        Sweep(work: Sweep, leaf: Guid) => (work.name(), leaf.get());
    quota_upgrade: quota_upgrade::QuotaUpgrades,
        /// Counting the files of a filesystem.
        QuotaUpgrade(filesystem: ObjsetId) => ("quota_upgrade", filesystem.get());
    free_files: free_files::FreedFiles,
        /// Freeing large files of a filesystem that have no name.
        FreeFiles(filesystem: ObjsetId) => ("free_files", filesystem.get());
    reshape: reshape::Reshapes,
        /// Copying a volume, to this one, whose blocks have another size.
        Reshape(copy: ObjsetId) => ("reshape", copy.get());
    scan: scan::ScanControl,
        /// A scrub or a resilver.
        Scan => ("scan", 0);
    error_scrub: error_scrub::ErrorScrubs,
        /// Looking again at the blocks of the error log.
        ErrorScrub => ("error_scrub", 0);
    dedup: dedup::Filters,
        /// Filling a filter of the dedup tables.
        DedupFilter => ("dedup_filter", 0);
    prunes: dedup::Prunes,
        /// Removing old entries of dedup tables: the prune with this number.
        DedupPrune(_number: u64) => ("dedup_prune", 0);
    checkpoint: checkpoint::Checkpoint;
    errlog: errlog::ErrorLog;
    autotrim: autotrim::Autotrim;
    devices: devices::DeviceStates;
    grow: grow::Growth;
    resilver: resilver::Looks,
        /// Looking whether a resilver is needed.
        LookForResilver => ("look_for_resilver", 0);
    detach: detach::Detaching,
        /// Detaching devices whose work is done.
        DetachResilvered => ("detach", 0);
    multihost: multihost::Heartbeat;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pairs of the table in the head of this module.
    const IN_ORDER: &[(&str, &str)] = &[
        ("scan", "error_scrub"),
        ("repair", "resilver"),
        ("repair", "detach"),
        ("l2arc", "resilver"),
        ("l2arc", "detach"),
        ("checkpoint", "errlog"),
        ("autotrim", "devices"),
        ("devices", "grow"),
        ("l2arc", "multihost"),
    ];

    #[test]
    fn parts_come_in_the_order_that_they_need() {
        let place = |name: &str| NAMES.iter().position(|known| *known == name).expect("a part");
        for (first, then) in IN_ORDER {
            assert!(place(first) < place(then), "{first} comes before {then}");
        }
    }

    #[test]
    fn each_part_gets_its_own_jobs() {
        let parts = Parts::default();
        let (leaf, copy) = (Guid(7), ObjsetId(8));
        let keys = [
            JobKey::Scan,
            JobKey::Sweep(Sweep::Trim, leaf),
            JobKey::Reshape(copy),
            JobKey::Sweep(Sweep::Initialize, leaf),
            JobKey::DetachResilvered,
        ];
        let all = parts.by_part(&keys, |key| *key);
        let keys: Vec<_> = all.iter().map(|(_, keys)| &keys[..]).collect();
        assert_eq!(
            keys,
            [
                &[JobKey::Sweep(Sweep::Trim, leaf), JobKey::Sweep(Sweep::Initialize, leaf)][..],
                &[JobKey::Reshape(copy)],
                &[JobKey::Scan],
                &[JobKey::DetachResilvered],
            ]
        );
        let kept: Vec<bool> = all.iter().map(|(part, _)| part.keeps_jobs()).collect();
        assert_eq!(kept, [true, true, false, false], "a scan is stored by its own changes");
        assert_eq!(JobKey::Sweep(Sweep::Trim, leaf).words(), ("trim", 7));
        assert_eq!(JobKey::Scan.words(), ("scan", 0));
    }
}
