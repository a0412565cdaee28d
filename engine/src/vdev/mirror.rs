//! Mirror, replacing and spare vdevs: each child holds every block.
//!
//! The child with the fewest transfers in progress is read first. Among equals the offset decides, in pieces
//! of 2 MiB, so that a sequential reader stays on one disk for a while and several readers spread. When the
//! read fails, or its bytes fail the verdict, the other children are read in turn. Children that missed the
//! block's txg come last, and only when a verdict can refuse old bytes.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_mirror.c`.

use super::Vdev;
use super::read::{ReadResult, Request};
use crate::error::{Attempt, Failure};

/// Offsets within one piece of this size prefer the same child.
const LOCALITY_SHIFT: u32 = 21;

/// The one of `count` equal children that is read first at this offset.
pub(super) fn favourite(offset: u64, count: usize) -> usize {
    ((offset >> LOCALITY_SHIFT) % count.max(1) as u64) as usize
}

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

    /// The children to read, best first. Unusable children are added to `tried`.
    fn children_in_order(&self, request: &Request<'_>, tried: &mut Vec<Attempt>) -> Vec<&Vdev> {
        let count = self.children.len().max(1);
        let favourite = favourite(request.offset, count);
        let mut candidates = Vec::with_capacity(count);
        for (index, child) in self.children.iter().enumerate() {
            let stale = child.is_stale(request.txg);
            if !child.status().is_readable() {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::{Device, MemoryDevice, block_on};
    use ondisk::Guid;
    use ondisk::nvlist::Nvlist;
    use ondisk::vdev_config::VdevConfig;

    use super::super::config::{Devices, build_tree};
    use super::super::dtl::TxgRanges;
    use super::super::read::Request;
    use super::super::{LABEL_END_BYTES, LABEL_START_BYTES, VdevTree};
    use crate::error::Failure;

    const SPACE_BYTES: u64 = 1 << 20;
    const AWAY: u64 = 10;
    const PRESENT: u64 = 20;

    fn config(kind: &str, id: u64, guid: u64, children: Vec<Nvlist>) -> Nvlist {
        let mut config = Nvlist::new();
        config.push("type", kind);
        config.push("id", id);
        config.push("guid", guid);
        config.push("ashift", 9u64);
        if !children.is_empty() {
            config.push("children", children);
        }
        config
    }

    /// A mirror whose child `n` is full of `n` (from 1), and whose first child missed the txg `AWAY`.
    fn mirror(children: u64, present: impl Fn(u64) -> bool) -> VdevTree {
        let leaves = (1..=children).map(|n| config("file", n - 1, n, Vec::new())).collect();
        let root = config("root", 0, 100, vec![config("mirror", 0, 99, leaves)]);
        let root = VdevConfig::parse(&root).expect("well-formed");
        let size = LABEL_START_BYTES + SPACE_BYTES + LABEL_END_BYTES;
        let devices: Devices = (1..=children)
            .filter(|n| present(*n))
            .map(|n| {
                let bytes = vec![n as u8; size as usize];
                (Guid(n), Arc::new(MemoryDevice::with_content("memory", bytes)) as Arc<dyn Device>)
            })
            .collect();
        let tree = build_tree(&root, &devices, None).expect("builds");
        tree.tops[0].children[0].missing_txgs.load(TxgRanges::new([(AWAY, AWAY + 1)]));
        tree
    }

    fn is_first(bytes: &[u8]) -> Result<(), Failure> {
        if bytes.iter().all(|byte| *byte == 1) { Ok(()) } else { Err(Failure::Checksum) }
    }

    #[test]
    fn a_child_that_missed_the_txg_is_not_believed() {
        let tree = mirror(2, |_| true);
        let read = |txg| block_on(tree.tops[0].read(Request::new(&tree, 0, 512, txg, None)));
        assert_eq!(read(AWAY).expect("reads")[0], 2);
        assert_eq!(read(PRESENT).expect("reads")[0], 1);
    }

    #[test]
    fn without_a_checksum_a_stale_child_is_worse_than_none() {
        let tree = mirror(2, |n| n == 1);
        let tried = block_on(tree.tops[0].read(Request::new(&tree, 0, 512, AWAY, None))).unwrap_err();
        assert!(tried.iter().any(|attempt| attempt.failure == Failure::Stale), "{tried:?}");
    }

    #[test]
    fn a_checksum_can_prove_a_stale_child_right() {
        let tree = mirror(2, |n| n == 1);
        let request = Request::new(&tree, 0, 512, AWAY, Some(&is_first));
        assert_eq!(block_on(tree.tops[0].read(request)).expect("reads")[0], 1);
    }

    #[test]
    fn wrong_children_are_passed_over_and_counted() {
        let tree = mirror(3, |_| true);
        let request = Request::new(&tree, 512, 512, PRESENT, Some(&is_first));
        assert_eq!(block_on(tree.tops[0].read(request)).expect("reads")[0], 1);
        let third_only = |bytes: &[u8]| if bytes[0] == 3 { Ok(()) } else { Err(Failure::Checksum) };
        let request = Request::new(&tree, 512, 512, PRESENT, Some(&third_only));
        assert_eq!(block_on(tree.tops[0].read(request)).expect("reads")[0], 3);
        let counted: Vec<u64> = tree.leaves().map(|leaf| leaf.errors.checksum()).collect();
        assert_eq!(counted, [1, 1, 0]);
        assert_eq!(tree.tops[0].errors.checksum(), 0);
    }
}
