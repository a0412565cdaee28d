//! Reading through the vdev tree: requests, verdicts, leaves, and the dispatch by kind.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Instant;

use device::{IgnorePoison, IoBuf};
use futures_util::future::BoxFuture;
use ondisk::Guid;

use super::report::EIO;
use super::stats::{Queue, Transfer, UnderWay};
use super::{BOOT_AREA_OFFSET, Kind, LABEL_START_BYTES, Vdev, VdevTree};
use crate::Bookmark;
use crate::error::{Attempt, Failure};

/// How deep vdevs may lead to each other: a mirror in a spare in a raidz, and indirect vdevs that lead to
/// indirect vdevs.
pub(super) const MAX_DEPTH: u32 = 64;

/// Judges whether bytes are the requested ones, and if not, returns the failure.
pub type Verdict<'a> = &'a (dyn Fn(&[u8]) -> Result<(), Failure> + Sync);

/// The leaves that failed while a block was read. Their bytes of it should be rewritten if another place had
/// the right bytes.
#[derive(Debug, Default)]
pub struct Noticed(Mutex<Vec<Guid>>);

impl Noticed {
    fn note(&self, vdev: &Vdev) {
        let mut leaves = self.0.lock().ignore_poison();
        if vdev.children.is_empty() && !leaves.contains(&vdev.guid) {
            leaves.push(vdev.guid);
        }
    }

    /// The leaves, without duplicates.
    pub fn into_leaves(self) -> Vec<Guid> {
        self.0.into_inner().ignore_poison()
    }
}

/// The bytes, or all attempts.
pub type ReadResult = Result<IoBuf, Vec<Attempt>>;

/// A request to read.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The tree that the vdev belongs to.
    pub tree: &'a VdevTree,
    /// Offset in the vdev's allocatable space, in bytes.
    pub offset: u64,
    /// The number of bytes.
    pub size: usize,
    /// The transaction group in which the block was written there.
    pub txg: u64,
    /// The test that the bytes must pass. `None`: right and wrong bytes cannot be distinguished here.
    pub verdict: Option<Verdict<'a>>,
    /// Collects the leaves that failed.
    pub(super) noticed: Option<&'a Noticed>,
    /// Whether the block may not exist (a reader finds the end of an intent log this way): failures are not
    /// the devices' fault and are not counted.
    pub(super) speculative: bool,
    /// The offset counts from the boot area, where an interrupted raidz expansion keeps sectors.
    pub(super) scratch: bool,
    /// The block that is read, for messages.
    pub(super) at: Option<Bookmark>,
    /// Steps down the tree so far.
    pub(super) depth: u32,
}

impl<'a> Request<'a> {
    /// A request to a top-level vdev.
    pub fn new(tree: &'a VdevTree, offset: u64, size: usize, txg: u64, verdict: Option<Verdict<'a>>) -> Self {
        let (noticed, speculative, scratch, at, depth) = (None, false, false, None, 0);
        Self { tree, offset, size, txg, verdict, noticed, speculative, scratch, at, depth }
    }

    /// The same request for this block.
    pub fn of_block(self, at: Option<Bookmark>) -> Self {
        Self { at, ..self }
    }

    /// The same request, which adds failing leaves to `noticed`.
    pub fn noticing(self, noticed: Option<&'a Noticed>) -> Self {
        Self { noticed, ..self }
    }

    /// The same request for a block that may not exist.
    pub fn speculative(self, speculative: bool) -> Self {
        Self { speculative, ..self }
    }

    pub(super) fn judge(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.verdict.map_or(Ok(()), |verdict| verdict(bytes))
    }

    /// Counts a failed transfer of `vdev`. `errno` is the system's error number.
    pub(super) fn count_read(&self, vdev: &Vdev, errno: i32) {
        if !self.speculative {
            vdev.errors.count_read(self.tree.report_read(vdev, self, errno));
        }
        if let Some(noticed) = self.noticed {
            noticed.note(vdev);
        }
    }

    /// Counts wrong bytes of `vdev`.
    pub(super) fn count_checksum(&self, vdev: &Vdev) {
        if !self.speculative {
            vdev.errors.count_checksum(self.tree.report_checksum(vdev, self));
        }
        if let Some(noticed) = self.noticed {
            noticed.note(vdev);
        }
    }

    /// Counts that `vdev` could not make up for the failures of its children.
    pub(super) fn count_failure(&self, vdev: &Vdev, tried: &[Attempt]) {
        let damaged =
            |attempt: &Attempt| matches!(attempt.failure, Failure::Checksum | Failure::Malformed(_));
        if tried.iter().any(damaged) {
            self.count_checksum(vdev);
        } else {
            self.count_read(vdev, 0);
        }
    }

    pub(super) fn is_too_deep(&self) -> bool {
        self.depth > MAX_DEPTH
    }

    /// The same request one step further down the tree.
    pub(super) fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

impl Vdev {
    /// Reads from this vdev with all its redundancy: bytes that satisfy the request's verdict, or the
    /// attempts.
    pub fn read<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, ReadResult> {
        Box::pin(async move {
            if !self.status().is_readable() {
                return Err(self.failed(request.offset, Failure::Unavailable));
            }
            if request.is_too_deep() {
                let circle = Failure::Malformed("vdevs lead to each other in a circle".into());
                return Err(self.failed(request.offset, circle));
            }
            let started = Instant::now();
            let result = match &self.kind {
                Kind::Leaf(_) | Kind::DraidSpare { .. } => self.read_leaf(request).await,
                Kind::Mirror | Kind::Replacing | Kind::Spare => self.read_mirror(request).await,
                Kind::Raidz(raidz) => match raidz.map(request.offset, request.size as u64, request.txg) {
                    Ok(map) => self.read_columns(request, &map).await,
                    Err(error) => Err(self.failed(request.offset, Failure::Malformed(error.to_string()))),
                },
                Kind::Draid(draid) => match draid.map(request.offset, request.size as u64) {
                    Ok(map) => self.read_columns(request, &map).await,
                    Err(error) => Err(self.failed(request.offset, Failure::Malformed(error.to_string()))),
                },
                Kind::Indirect(mapping) => match mapping.get() {
                    Some(mapping) => self.read_indirect(request, mapping).await,
                    None => Err(self.failed(request.offset, Failure::Unavailable)),
                },
                Kind::Hole | Kind::Missing => Err(self.failed(request.offset, Failure::Unavailable)),
            };
            // Leaves count their transfers themselves.
            if request.depth == 0 && result.is_ok() && !self.children.is_empty() {
                self.stats.count(Transfer::Read, request.size as u64, started);
            }
            result
        })
    }

    /// The attempts of a read that fails on every leaf, because of an injected error.
    pub(crate) fn fail(&self, request: Request<'_>) -> Vec<Attempt> {
        let has_block = |vdev: &&Vdev| vdev.status().is_readable() && !vdev.is_stale(request.txg);
        let leaves = self.walk().filter(|vdev| vdev.children.is_empty()).filter(has_block);
        leaves.fold(Vec::new(), |mut tried, leaf| {
            request.count_read(leaf, EIO);
            tried.extend(leaf.failed(request.offset, Failure::Io("an injected error".into())));
            tried
        })
    }

    /// A single failure of this vdev, as a list for [`ReadResult`].
    pub(super) fn failed(&self, offset_bytes: u64, failure: Failure) -> Vec<Attempt> {
        vec![Attempt { vdev: self.name.clone(), offset_bytes, failure }]
    }

    async fn read_leaf(&self, request: Request<'_>) -> ReadResult {
        let bytes = self.read_device(request).await?;
        match request.judge(&bytes) {
            Ok(()) => Ok(bytes),
            Err(failure) => {
                request.count_checksum(self);
                Err(self.failed(request.offset, failure))
            }
        }
    }

    async fn read_device(&self, request: Request<'_>) -> ReadResult {
        match &self.kind {
            Kind::Leaf(slot) => {
                let Some(device) = slot.device() else {
                    return Err(self.failed(request.offset, Failure::Unavailable));
                };
                let front_bytes = if request.scratch { BOOT_AREA_OFFSET } else { LABEL_START_BYTES };
                let Some(position) = request.offset.checked_add(front_bytes) else {
                    return Err(self.failed(request.offset, Failure::Malformed("offset overflows".into())));
                };
                let _load = Load::on(self, Queue::SyncRead);
                let started = Instant::now();
                let bytes = device.read(position, request.size).await.map_err(|error| {
                    request.count_read(self, error.errno());
                    self.failed(request.offset, Failure::Io(error.to_string()))
                })?;
                self.stats.count(Transfer::Read, request.size as u64, started);
                Ok(bytes)
            }
            Kind::DraidSpare { top, spare } => match behind_spare(request.tree, request.offset, *top, *spare)
            {
                // No verdict for the child: the request was for this leaf, so it judges and counts here.
                Some(child) => child.read(Request { verdict: None, ..request }.deeper()).await,
                None => Err(self.failed(request.offset, Failure::Unavailable)),
            },
            _ => Err(self.failed(request.offset, Failure::Unavailable)),
        }
    }

    /// Transfers in progress on the leaves below.
    pub(super) fn load(&self) -> u32 {
        let own = self.in_flight.load(Ordering::Relaxed);
        self.children.iter().fold(own, |sum, child| sum.saturating_add(child.load()))
    }
}

/// Yields to other work of the thread.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The child of the draid vdev whose reserved space the spare uses at this offset.
pub(super) fn behind_spare(tree: &VdevTree, offset: u64, top: Guid, spare: usize) -> Option<&Vdev> {
    let top = tree.tops.iter().find(|vdev| vdev.guid == top)?;
    let Kind::Draid(draid) = &top.kind else { return None };
    top.children.get(draid.spare_child(spare, offset)?)
}

/// Counts a transfer as in progress on a leaf for as long as it lives.
pub(super) struct Load<'a> {
    vdev: &'a Vdev,
    _under_way: UnderWay<'a>,
}

impl<'a> Load<'a> {
    pub(super) fn on(vdev: &'a Vdev, queue: Queue) -> Self {
        vdev.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { vdev, _under_way: vdev.stats.begin(queue) }
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.vdev.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
