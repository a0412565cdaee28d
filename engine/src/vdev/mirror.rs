//! Mirror, replacing and spare vdevs: each child holds every block.
//!
//! The child with the fewest transfers under way is asked first; among equals the offset decides, in pieces of 2 MiB, so
//! that a sequential reader stays on one disk for a while and several readers spread. When the answer is an error or fails
//! the verdict, the others are asked in turn. Children that missed the block's txg come last, and only when a verdict can
//! refuse what they hold.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_mirror.c`.

use super::Vdev;
use super::read::{ReadResult, Request};
use crate::error::{Attempt, Failure};

/// Offsets within one piece of this size prefer the same child.
const LOCALITY_SHIFT: u32 = 21;

impl Vdev {
    pub(super) async fn read_mirror(&self, request: Request<'_>) -> ReadResult {
        let mut tried = Vec::new();
        for child in self.children_in_order(&request, &mut tried) {
            match child.read(request.deeper()).await {
                Ok(bytes) => return Ok(bytes),
                Err(more) => tried.extend(more),
            }
        }
        request.count_failure(self, &tried);
        Err(tried)
    }

    /// Children to ask, best first. Those that cannot be asked are added to `tried`.
    fn children_in_order(&self, request: &Request<'_>, tried: &mut Vec<Attempt>) -> Vec<&Vdev> {
        let count = self.children.len().max(1);
        let favourite = ((request.offset >> LOCALITY_SHIFT) % count as u64) as usize;
        let mut candidates = Vec::with_capacity(count);
        for (index, child) in self.children.iter().enumerate() {
            let stale = child.is_stale(request.txg);
            if !child.status.is_readable() {
                tried.extend(child.failed(request.offset, Failure::Unavailable));
            } else if stale && request.verdict.is_none() {
                tried.extend(child.failed(request.offset, Failure::Stale));
            } else {
                candidates.push((stale, child.load(), (index + count - favourite) % count, child));
            }
        }
        candidates.sort_by_key(|&(stale, load, turn, _)| (stale, load, turn));
        candidates.into_iter().map(|(.., child)| child).collect()
    }
}
