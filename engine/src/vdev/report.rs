//! Events about vdevs: errors of leaves where they are counted, slow transfers, changes of state.
//!
//! Only leaves report errors: what happens above them follows from it. Reads that may find nothing, as those
//! of intent logs, report none. The places of errors are offsets in the space of the leaf without its labels.
//! Reports of transfers return whether the error is a new one: one in a place that was reported a short while
//! ago is not counted again (`zfs_ereport_post`, `EALREADY`).
//!
//! Source of the facts: OpenZFS 2.4 `zfs_fm.c`, `zio.c` (`zio_done`), `vdev.c` (`vdev_stat_update`).

use std::sync::Arc;
use std::time::Duration;

use device::IoError;

use super::read::Request;
use super::stats::{SlowTransfer, Transfer};
use super::{Kind, LABEL_START_BYTES, State, Vdev, VdevTree};
use crate::Bookmark;
use crate::events::{ECKSUM, Reporter, VdevFacts, ZIO_FLUSH, ZIO_READ, ZIO_TRIM, ZIO_WRITE, ZioFacts};

/// Linux's number for errors of devices that say no more.
pub(super) const EIO: i32 = 5;
/// `ZIO_PRIORITY_SYNC_READ`, `_ASYNC_WRITE` and `_SCRUB`.
const SYNC_READ: u64 = 0;
const ASYNC_WRITE: u64 = 3;
const SCRUB: u64 = 4;

impl State {
    /// OpenZFS's number (`vdev_state_t`).
    pub fn number(self) -> u64 {
        match self {
            Self::Offline => 2,
            Self::Removed => 3,
            Self::CantOpen => 4,
            Self::Faulted => 5,
            Self::Degraded => 6,
            Self::Healthy => 7,
        }
    }
}

impl VdevTree {
    /// Posts the pool's events.
    pub fn reporter(&self) -> &Arc<Reporter> {
        &self.reporter
    }

    /// What events say of a vdev.
    pub fn facts(&self, vdev: &Vdev) -> VdevFacts {
        let has_child = |parent: &&Vdev| parent.children.iter().any(|child| child.guid == vdev.guid);
        let parent = self.tops.iter().flat_map(Vdev::walk).find(has_child);
        VdevFacts {
            guid: vdev.guid,
            kind: vdev.config.kind.type_name().to_owned(),
            path: vdev.config.path.as_ref().map(ToString::to_string),
            ashift: vdev.ashift,
            state: vdev.status().state.number(),
            errors: [vdev.errors.read(), vdev.errors.write(), vdev.errors.checksum()],
            slow: vdev.stats.slow(),
            parent: parent.map(|parent| (parent.guid, parent.config.kind.type_name().to_owned())),
        }
    }

    fn report(&self, kind: &'static str, vdev: &Vdev, zio: ZioFacts) -> bool {
        if !matches!(vdev.kind, Kind::Leaf(_)) {
            return true;
        }
        let mut facts = self.facts(vdev);
        // The error itself is counted afterwards, if it is a new one.
        let [read, write, checksum] = &mut facts.errors;
        match (kind, zio.kind) {
            ("checksum", _) => *checksum += 1,
            ("io", ZIO_READ) => *read += 1,
            ("io", ZIO_WRITE) => *write += 1,
            _ => {}
        }
        self.reporter.ereport(kind, Some(&facts), Some(&zio), None)
    }

    /// Reports that a leaf failed to read. `errno` is the system's error number.
    pub(super) fn report_read(&self, vdev: &Vdev, request: &Request<'_>, errno: i32) -> bool {
        self.report("io", vdev, read_facts(request, errno))
    }

    /// Reports that a leaf returned wrong bytes.
    pub(super) fn report_checksum(&self, vdev: &Vdev, request: &Request<'_>) -> bool {
        self.report("checksum", vdev, read_facts(request, ECKSUM))
    }

    /// Reports that a leaf holds wrong bytes where it was looked at, or could not be read there. `position`
    /// counts from the beginning of the device.
    pub(super) fn report_found(&self, vdev: &Vdev, is_wrong: bool, position: u64, size: u64) -> bool {
        let offset = Some(position.saturating_sub(LABEL_START_BYTES));
        let (name, errno) = if is_wrong { ("checksum", ECKSUM) } else { ("io", EIO) };
        let (kind, priority) = (ZIO_READ, SCRUB);
        self.report(name, vdev, ZioFacts { errno, kind, priority, offset, size, ..ZioFacts::default() })
    }

    /// Reports that a leaf failed to flush.
    pub(super) fn report_flush(&self, vdev: &Vdev, error: &IoError) {
        let zio = ZioFacts { errno: error.errno(), kind: ZIO_FLUSH, ..ZioFacts::default() };
        self.report("io", vdev, zio);
    }

    /// Reports that a leaf does not work at all: a probe of it failed.
    pub(super) fn report_probe(&self, vdev: &Vdev) {
        let facts = self.facts(vdev);
        self.reporter.ereport("probe_failure", Some(&facts), None, Some(facts.state));
    }

    /// Reports that the device of a leaf could not be opened.
    pub(super) fn report_open(&self, vdev: &Vdev, kind: &'static str) {
        let facts = self.facts(vdev);
        self.reporter.ereport(kind, Some(&facts), None, Some(facts.state));
    }

    /// Reports a slow transfer of a leaf.
    pub(super) fn report_slow(&self, vdev: &Vdev, slow: &SlowTransfer) {
        let (kind, priority) = match slow.transfer {
            Transfer::Read => (ZIO_READ, SYNC_READ),
            Transfer::Scrub => (ZIO_READ, SCRUB),
            Transfer::Write | Transfer::SyncWrite => (ZIO_WRITE, ASYNC_WRITE),
            Transfer::Flush => (ZIO_FLUSH, ASYNC_WRITE),
            Transfer::Discard => (ZIO_TRIM, ASYNC_WRITE),
        };
        let (size, duration) = (slow.bytes, slow.duration);
        self.report("delay", vdev, ZioFacts { kind, priority, size, duration, ..ZioFacts::default() });
    }

    /// Reports that a leaf failed to write. `position` counts from the beginning of the device.
    pub(super) fn report_write(&self, vdev: &Vdev, position: u64, size: u64) -> bool {
        let offset = Some(position.saturating_sub(LABEL_START_BYTES));
        let (errno, kind, priority) = (EIO, ZIO_WRITE, ASYNC_WRITE);
        self.report("io", vdev, ZioFacts { errno, kind, priority, offset, size, ..ZioFacts::default() })
    }

    /// Reports that a block could not be read from anywhere.
    pub(crate) fn report_data(&self, at: &Bookmark, is_damaged: bool) {
        let errno = if is_damaged { ECKSUM } else { EIO };
        let zio =
            ZioFacts { errno, kind: ZIO_READ, priority: SYNC_READ, at: Some(*at), ..ZioFacts::default() };
        self.reporter.ereport("data", None, Some(&zio), None);
    }
}

fn read_facts(request: &Request<'_>, errno: i32) -> ZioFacts {
    let (kind, priority, duration) = (ZIO_READ, SYNC_READ, Duration::ZERO);
    let (offset, size, at) = (Some(request.offset), request.size as u64, request.at);
    ZioFacts { errno, kind, priority, offset, size, duration, at }
}
