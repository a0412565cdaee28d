//! The vdev tree, which turns (top-level vdev, offset, size) into transfers on devices.
//!
//! # The idea
//! A [`VdevTree`] holds the top-level vdevs that DVAs name by number. A read enters at the top with a
//! *verdict*: a function that judges whether bytes are the right ones. Redundant vdevs use it to distinguish
//! a good copy from a bad one. So silent damage is handled where the redundancy is, and the layer above gets
//! right bytes or a list of the attempts. Inside raidz and draid a single column has no verdict of its own;
//! there the verdict judges the assembled block.
//!
//! # Stale devices
//! A device that was away while others were written has a dirty time log ([`dtl`]): the txgs that it missed.
//! Its bytes for those txgs are old data, perhaps of another block. They are read only as a last resort, and
//! only when a verdict can refuse old bytes; a block without a checksum is never taken from such a device.
//!
//! # Counting of errors
//! Errors are counted as in OpenZFS: on the leaf that failed, and on each vdev above it that could not make
//! up for it.
//!
//! | module | what it owns |
//! |---|---|
//! | `config` | building a tree from a label's or the MOS's config and opened devices |
//! | `label` | reading the four labels of a device and their uberblocks |
//! | `capacity` | how much space devices provide; vdevs that grow with them |
//! | `top_level` | the list of top-level vdevs, which grows and whose vdevs are replaced |
//! | `topology` | changes of the devices of a top-level vdev, on its configuration |
//! | `open` | opening devices for writing |
//! | `slot` | the changeable parts of a leaf: device and status |
//! | `health` | giving up devices that fail, and reopening them |
//! | `spares` | hot spares that several pools have |
//! | `gpt` | partition tables of whole disks |
//! | `release` | giving devices back to the system |
//! | `read` | requests, leaf reads, dispatch by kind |
//! | `mirror` | mirror, replacing, spare: order of children, retry |
//! | `raidz` | raidz and draid: columns, reconstruction |
//! | `sources` | the leaves that hold a column: both halves of a spare |
//! | `scrub` | reading all copies and parity |
//! | `indirect` | removed vdevs: the new places of their blocks |
//! | `write` | writing blocks, flushing, discarding, labels and uberblocks |
//! | `errors` | counters of errors, and when they are too many |
//! | `stats` | counters of transfers |
//! | `report` | events about errors and changes of state |
//! | `dtl` | dirty time logs |

pub(crate) mod capacity;
pub mod config;
pub mod dtl;
mod errors;
pub mod gpt;
pub mod health;
pub mod indirect;
pub mod label;
mod mirror;
pub mod open;
mod raidz;
pub mod read;
pub mod release;
mod report;
pub mod scrub;
pub mod slot;
mod sources;
pub mod spares;
pub mod stats;
mod top_level;
pub mod topology;
pub mod write;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use codec::draid::Draid;
use codec::raidz::Raidz;
use device::Device;
use ondisk::Guid;
use ondisk::vdev_config::VdevConfig;

use crate::events::Reporter;
use crate::inject::Injections;
use crate::stats::{Io, StoreStats, VdevStats};
use dtl::Missed;
use health::Changes;
use indirect::Moved;
use slot::{Slot, StatusCell};
use stats::{Queue, Stats, Transfer};
use write::{LabelRounds, Stable, Unflushed};

pub use errors::{ErrorCounters, Threshold, Thresholds};
pub use top_level::{Auxiliary, Tops};

/// Bytes at the front of every leaf for labels and boot area; allocatable space begins after them.
pub const LABEL_START_BYTES: u64 = 4 << 20;
/// The offset of the boot area, after the two front labels.
pub const BOOT_AREA_OFFSET: u64 = 512 << 10;
/// Bytes at the end of every leaf for labels.
pub const LABEL_END_BYTES: u64 = 512 << 10;

/// All vdevs of a pool that hold blocks, and the auxiliary devices.
#[derive(Debug, Default)]
pub struct VdevTree {
    /// Top-level vdevs; the index is the number that DVAs use.
    pub tops: Tops,
    /// Hot spares.
    pub spares: Auxiliary,
    /// Cache devices.
    pub l2cache: Auxiliary,
    /// The order in which labels were written.
    pub(crate) label_rounds: LabelRounds,
    /// Serializes changes of statuses.
    pub(crate) changes: Changes,
    /// Posts the events of the pool.
    reporter: Arc<Reporter>,
    /// Faults that are made on demand.
    injections: Arc<Injections>,
}

impl VdevTree {
    /// A tree of devices that are in no pool's tree yet, or no more: to label them.
    pub(crate) fn apart(devices: Auxiliary) -> Self {
        Self { spares: devices, ..Self::default() }
    }

    /// What the pool transferred until now.
    pub(crate) fn io(&self) -> Io {
        self.tops.iter().fold(Io::default(), |sum, top| {
            let (read, write) = (top.stats.totals(Transfer::Read), top.stats.totals(Transfer::Write));
            Io {
                reads: sum.reads + read.0,
                nread: sum.nread + read.1,
                writes: sum.writes + write.0,
                nwritten: sum.nwritten + write.1,
            }
        })
    }

    /// The top-level vdev with the number `id` in DVAs.
    pub fn top(&self, id: u32) -> Option<&Vdev> {
        self.tops.get(usize::try_from(id).ok()?)
    }

    /// Faults that are made on demand.
    pub(crate) fn injections(&self) -> &Arc<Injections> {
        &self.injections
    }

    /// The device as the handlers of its leaf leave it.
    fn injected(&self, leaf: &Vdev, device: Arc<dyn Device>) -> Arc<dyn Device> {
        match self.injections.is_about(leaf.guid) {
            true => self.injections.wrap(leaf.guid, device),
            false => device,
        }
    }

    /// Has the transfers of a leaf go through its handlers.
    pub(crate) fn inject_into(&self, leaf: &Vdev) {
        if let Kind::Leaf(slot) = &leaf.kind
            && let Some(device) = slot.device()
        {
            slot.replace(Some(self.injections.wrap(leaf.guid, device)));
        }
    }

    /// All leaves that hold blocks.
    pub fn leaves(&self) -> impl Iterator<Item = &Vdev> {
        self.tops.iter().flat_map(Vdev::walk).filter(|vdev| vdev.children.is_empty())
    }

    /// The top-level vdev that has the vdev with this guid, or is it.
    pub fn top_above(&self, guid: Guid) -> Option<&Vdev> {
        self.tops.iter().find(|top| top.walk().any(|vdev| vdev.guid == guid))
    }

    /// The vdev with this guid, at any depth, including spares and cache devices.
    pub fn find(&self, guid: Guid) -> Option<&Vdev> {
        let all = self.tops.iter().chain(self.spares.iter()).chain(self.l2cache.iter());
        all.flat_map(Vdev::walk).find(|vdev| vdev.guid == guid)
    }
}

/// One vdev of the tree. It never changes: when the tree does, its top-level vdev is built anew
/// (`VdevTree::rebuild_top`). What goes on meanwhile is in [`Lasting`].
#[derive(Debug)]
pub struct Vdev {
    /// Position among its siblings; for a top-level vdev the number that DVAs use.
    pub id: u64,
    /// Its guid.
    pub guid: Guid,
    /// Its name as `zpool status` prints it: a leaf's path, or `mirror-0`.
    pub name: String,
    /// Its kind, with the data of that kind.
    pub kind: Kind,
    /// Its children, in the order of the config.
    pub children: Vec<Vdev>,
    /// The class of a top-level vdev, once its ZAP was read.
    pub(crate) class: OnceLock<Class>,
    /// Sector size of the top-level vdev as a power of two.
    pub ashift: u32,
    /// The config that it was built from, without the children.
    pub config: VdevConfig,
    /// What it shares with its successors.
    lasting: Arc<Lasting>,
}

/// What a vdev shares with all vdevs of its guid that took its place when the tree changed. So transfers that
/// began in the old tree count in the new one.
#[derive(Debug)]
pub struct Lasting {
    /// Allocatable bytes of a top-level vdev, which may grow; 0 if unknown.
    asize: AtomicU64,
    /// Whether it is usable, and why not.
    pub(in crate::vdev) status: StatusCell,
    /// Bytes that a leaf needs for its part of the top-level vdev, without labels; 0 if unknown.
    pub(crate) bytes_needed: AtomicU64,
    /// Errors since the pool was opened.
    pub errors: ErrorCounters,
    /// Transfers since the pool was opened.
    pub stats: Stats,
    /// It was a spare or cache device that was removed.
    pub(crate) is_removed: AtomicBool,
    /// Its device was asked to discard and cannot, or has not been open yet.
    pub(crate) cannot_discard: AtomicBool,
    /// The transaction groups that its device missed.
    pub missing_txgs: Missed,
    /// How often it became unusable since the pool was opened.
    pub(crate) absences: AtomicU64,
    /// Writes to its device that were not flushed yet.
    pub(crate) unflushed: Unflushed,
    /// Whether there were stable writes to it a short while ago.
    pub(crate) stable: Stable,
    /// Transfers in progress, to spread load over the children of a mirror.
    pub in_flight: AtomicU32,
    /// The space of a cache device, and how much of it holds something.
    pub(crate) cache_space: CacheSpace,
}

/// The space of a cache device, in bytes.
#[derive(Debug, Default)]
pub(crate) struct CacheSpace {
    size: AtomicU64,
    used: AtomicU64,
}

impl CacheSpace {
    /// Sets both.
    pub fn set(&self, size: u64, used: u64) {
        self.size.store(size, Ordering::Relaxed);
        self.used.store(used, Ordering::Relaxed);
    }

    /// More is used.
    pub fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Less is used.
    pub fn sub(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The size, and how much is used.
    pub fn get(&self) -> (u64, u64) {
        (self.size.load(Ordering::Relaxed), self.used.load(Ordering::Relaxed))
    }
}

impl Lasting {
    /// Whether its device is part of the pool and works.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_removed.load(Ordering::Acquire) && self.status.get().is_readable()
    }
}

impl Deref for Vdev {
    type Target = Lasting;

    fn deref(&self) -> &Lasting {
        &self.lasting
    }
}

/// The kind of a vdev.
#[derive(Debug)]
pub enum Kind {
    /// A file or block device, or nothing when it could not be opened.
    Leaf(Slot),
    /// Every child holds all data.
    Mirror,
    /// A mirror of an old device and its replacement.
    Replacing,
    /// A mirror of a failing device and the hot spare in use for it.
    Spare,
    /// Blocks striped over the children, with parity.
    Raidz(Raidz),
    /// Parity groups and spare space spread over many children.
    Draid(Draid),
    /// A spare made of the draid vdev's reserved space; a leaf without a device of its own.
    DraidSpare {
        /// The draid top-level vdev.
        top: Guid,
        /// The index of the spare.
        spare: usize,
    },
    /// A removed vdev; its blocks are elsewhere.
    Indirect(OnceLock<Moved>),
    /// A number that no vdev uses any more.
    Hole,
    /// A top-level vdev without any known config.
    Missing,
}

/// The class of a top-level vdev.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// All data.
    #[default]
    Normal,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
    /// The intent log.
    Log,
}

/// The states of OpenZFS, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// An administrator took it offline.
    Offline,
    /// It was removed from the system.
    Removed,
    /// It cannot be opened.
    CantOpen,
    /// It was declared unusable.
    Faulted,
    /// It works with less redundancy than it should have.
    Degraded,
    /// It works, with all its redundancy.
    Healthy,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Offline => "OFFLINE",
            Self::Removed => "REMOVED",
            Self::CantOpen => "UNAVAIL",
            Self::Faulted => "FAULTED",
            Self::Degraded => "DEGRADED",
            Self::Healthy => "ONLINE",
        })
    }
}

/// More about a state (`vdev_aux_t`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Aux {
    /// No further information.
    #[default]
    None,
    /// The device could not be opened.
    OpenFailed,
    /// Its label could not be read.
    CorruptData,
    /// Too many children are unusable.
    NoReplicas,
    /// The sum of all guids differs from the uberblock's: a top-level vdev is missing from the config.
    BadGuidSum,
    /// The device is smaller than its config says.
    TooSmall,
    /// The label belongs to another pool or vdev, or is damaged.
    BadLabel,
    /// Another pool, or another host, uses it (a spare).
    Spared,
    /// Too many errors made it unusable.
    ErrorsExceeded,
    /// An outside agent declared it unusable.
    External,
    /// All children are offline.
    ChildrenOffline,
}

/// A state with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The state.
    pub state: State,
    /// The reason, if there is one.
    pub aux: Aux,
}

impl Status {
    /// The status of a healthy vdev.
    pub const HEALTHY: Status = Status { state: State::Healthy, aux: Aux::None };

    /// A state with its reason.
    pub const fn new(state: State, aux: Aux) -> Self {
        Self { state, aux }
    }

    /// Whether blocks can be read from a vdev in this state.
    pub fn is_readable(&self) -> bool {
        self.state >= State::Degraded
    }
}

impl Vdev {
    /// What it shares with its successors.
    pub(crate) fn lasting(&self) -> &Arc<Lasting> {
        &self.lasting
    }

    /// The class of a top-level vdev.
    pub fn class(&self) -> Class {
        self.class.get().copied().unwrap_or_default()
    }

    /// This vdev and all below it, parents first.
    pub fn walk(&self) -> Box<dyn Iterator<Item = &Vdev> + Send + '_> {
        Box::new(std::iter::once(self).chain(self.children.iter().flat_map(Vdev::walk)))
    }

    /// Whether it missed writes of `txg`.
    pub fn is_stale(&self, txg: u64) -> bool {
        match &self.kind {
            // It is as good as its best child.
            Kind::Mirror | Kind::Replacing | Kind::Spare => self
                .children
                .iter()
                .filter(|child| child.status().is_readable())
                .all(|child| child.is_stale(txg)),
            _ => self.missing_txgs.contains(txg),
        }
    }

    /// The type name that `zdb` and configs use.
    pub fn type_name(&self) -> &'static str {
        match &self.kind {
            Kind::Leaf(_) => "disk",
            Kind::Mirror => "mirror",
            Kind::Replacing => "replacing",
            Kind::Spare => "spare",
            Kind::Raidz(_) => "raidz",
            Kind::Draid(_) => "draid",
            Kind::DraidSpare { .. } => "dspare",
            Kind::Indirect(_) => "indirect",
            Kind::Hole => "hole",
            Kind::Missing => "missing",
        }
    }

    /// The size in bytes of the smallest block that this top-level vdev stores without waste
    /// (`vdev_get_min_alloc`).
    pub fn min_alloc(&self) -> u64 {
        let sector = 1u64.checked_shl(self.ashift).unwrap_or(512);
        match &self.kind {
            Kind::Draid(draid) => sector.saturating_mul(draid.config().data as u64),
            _ => sector,
        }
    }

    /// Bytes that a block of `psize` bytes born in `txg` occupies on this top-level vdev.
    pub fn psize_to_asize(&self, psize: u64, txg: u64) -> Option<u64> {
        match &self.kind {
            Kind::Raidz(raidz) => raidz.asize(psize, txg).ok(),
            Kind::Draid(draid) => draid.asize(psize).ok(),
            Kind::Mirror | Kind::Replacing | Kind::Spare => {
                self.children.iter().map(|child| child.psize_to_asize(psize, txg)).max().flatten()
            }
            _ => psize.checked_next_multiple_of(1u64.checked_shl(self.ashift)?),
        }
    }
}

/// The state of a vdev with children in these states, of which it can do without `spare_children`.
pub fn state_of_parent(children: &[Status], spare_children: usize) -> Status {
    let unusable = children.iter().filter(|child| !child.is_readable()).count();
    let imperfect = children.iter().filter(|child| child.state < State::Healthy).count();
    if unusable > spare_children {
        let all_offline = children.iter().all(|child| child.state == State::Offline);
        let aux = if all_offline { Aux::ChildrenOffline } else { Aux::NoReplicas };
        Status::new(State::CantOpen, aux)
    } else if imperfect > 0 {
        Status::new(State::Degraded, Aux::None)
    } else {
        Status::HEALTHY
    }
}

impl Vdev {
    /// What its device asked of the object store that it lies in, if it does.
    pub fn store_counters(&self) -> Option<StoreStats> {
        let Kind::Leaf(slot) = &self.kind else { return None };
        Some(slot.device()?.store_use()?.into())
    }

    /// The counters of the vdev, without their histograms.
    pub fn counters(&self) -> VdevStats {
        let total = |transfer| {
            let counted = self.stats.snapshot(transfer);
            (counted.operations, counted.bytes, counted.total_ns)
        };
        let (reads, nread, read_ns) = total(Transfer::Read);
        let (writes, nwritten, write_ns) = total(Transfer::Write);
        let (flushes, _, flush_ns) = total(Transfer::Flush);
        let (trims, ntrimmed, _) = total(Transfer::Discard);
        let active =
            [Queue::SyncRead, Queue::SyncWrite, Queue::AsyncWrite, Queue::Scrub, Queue::Trim].into_iter();
        VdevStats {
            reads,
            nread,
            read_ns,
            writes,
            nwritten,
            write_ns,
            sync_writes: self.stats.totals(Transfer::SyncWrite).0,
            scrub_reads: self.stats.totals(Transfer::Scrub).0,
            flushes,
            flush_ns,
            trims,
            ntrimmed,
            asyncq_wait_ns: self.stats.queued(Queue::AsyncWrite).waited_ns,
            slow: self.stats.slow(),
            self_healed: self.stats.healed_bytes(),
            active: active.map(|queue| self.stats.under_way(queue)).sum(),
            read_errors: self.errors.read(),
            write_errors: self.errors.write(),
            checksum_errors: self.errors.checksum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE: Status = Status::new(State::CantOpen, Aux::OpenFailed);
    const AWAY: Status = Status::new(State::Offline, Aux::None);

    #[test]
    fn a_parent_is_as_bad_as_its_redundancy_allows() {
        let healthy = Status::HEALTHY;
        assert_eq!(state_of_parent(&[healthy, healthy], 1), healthy);
        assert_eq!(state_of_parent(&[healthy, GONE], 1).state, State::Degraded);
        assert_eq!(state_of_parent(&[GONE, GONE], 1), Status::new(State::CantOpen, Aux::NoReplicas));
        assert_eq!(state_of_parent(&[AWAY, AWAY], 1).aux, Aux::ChildrenOffline);
        assert_eq!(state_of_parent(&[healthy, AWAY], 1).state, State::Degraded);
    }
}
