//! Removed vdevs: the new places of their blocks.
//!
//! Removing a top-level vdev copies its allocated space in segments to other vdevs and leaves an *indirect*
//! vdev behind. Block pointers keep their old addresses, and a mapping in the MOS maps each range of the old
//! address space to its new place. A block may straddle segments; it is then assembled from pieces on
//! different vdevs. The new place may itself be on a vdev that was removed later.
//!
//! A second array, the *births*, contains the txg in which each range was copied. For a device that was away
//! (see [`super::dtl`]) that txg counts, not the block's birth.
//!
//! The pieces of a straddling block have no checksums of their own. When the whole is wrong and pieces are on
//! mirrors, combinations of their copies are tried until the whole is right, as in OpenZFS.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_indirect.c`, `vdev_indirect_mapping.h`.

use device::IoBuf;
use futures_util::future::try_join_all;
use ondisk::indirect::{BirthEntry, IndirectMapping, Piece, phys_birth};
use ondisk::{ByteOffset, VdevId};

use super::read::{ReadResult, Request, yield_now};
use super::{Kind, Vdev, VdevTree};
use crate::error::{Attempt, Error, Failure, Result};
use crate::tunables;

/// After checking this many bytes, the thread yields to its other work.
const TURN_BYTES: usize = 64 << 20;
/// The most moves from one removed vdev to the next.
const MAX_MOVES: u32 = 64;

/// Where the space of a removed vdev was moved, and when.
#[derive(Debug, Clone, Default)]
pub struct Moved {
    /// The new place of each range.
    pub mapping: IndirectMapping,
    /// When each range was copied there, by end offset.
    pub births: Vec<BirthEntry>,
}

/// A range of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The vdev.
    pub vdev: VdevId,
    /// First byte.
    pub from: u64,
    /// First byte after it.
    pub to: u64,
    /// Whether the vdev was removed, so that the place holds no data any more.
    pub is_removed: bool,
}

impl VdevTree {
    /// All places of a range: itself and, if its vdev was removed, the places to which its pieces were moved,
    /// from one to the next.
    ///
    /// # Errors
    /// A part of it was not moved, or the chain of moves is too long.
    pub fn places(&self, vdev: VdevId, from: u64, to: u64) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        let mut pending = vec![(vdev, from, to, 0)];
        while let Some((vdev, from, to, moves)) = pending.pop() {
            let Some(Kind::Indirect(moved)) = self.top(vdev.get()).map(|top| &top.kind) else {
                places.push(Place { vdev, from, to, is_removed: false });
                continue;
            };
            places.push(Place { vdev, from, to, is_removed: true });
            let what = || format!("top-level vdev {vdev}, {from:#x}..{to:#x}");
            let moved = moved.get().filter(|_| moves < MAX_MOVES);
            let moved = moved.ok_or_else(|| Error::corrupt(what(), "was moved to an unknown place"))?;
            let pieces = moved.mapping.pieces(ByteOffset(from), to.saturating_sub(from));
            for piece in pieces.map_err(Error::format(what()))? {
                let start = piece.offset.get();
                let end = start.saturating_add(piece.length_bytes);
                pending.push((piece.vdev, start, end, moves + 1));
            }
        }
        Ok(places)
    }
}

impl Vdev {
    pub(super) async fn read_indirect(&self, request: Request<'_>, moved: &Moved) -> ReadResult {
        let source = ByteOffset(request.offset);
        let pieces = match moved.mapping.pieces(source, request.size as u64) {
            Ok(pieces) => pieces,
            Err(error) => return Err(self.failed(request.offset, Failure::Malformed(error.to_string()))),
        };
        // A range that was copied after the block was born is missing on devices that were away during the
        // copy.
        let copied = pieces.iter().filter_map(|piece| phys_birth(&moved.births, piece.source)).max();
        let txg = copied.map_or(request.txg, |copied| copied.get().max(request.txg));
        let request = Request { txg, ..request };
        if let [piece] = pieces.as_slice() {
            return match request.tree.top(piece.vdev.get()) {
                Some(vdev) => vdev.read(request_for(&request, piece, request.verdict).deeper()).await,
                None => Err(self.failed(request.offset, Failure::Unavailable)),
            };
        }
        let whole = try_join_all(pieces.iter().map(|piece| self.read_piece(&request, piece))).await;
        let mut tried = match whole.map(|parts| join(request.size, &parts)) {
            Ok(block) => match request.judge(&block) {
                Ok(()) => return Ok(block),
                Err(failure) => self.failed(request.offset, failure),
            },
            Err(tried) => tried,
        };
        if request.verdict.is_some()
            && let Some(block) = self.combine_copies(&request, &pieces, &mut tried).await
        {
            return Ok(block);
        }
        request.count_failure(self, &tried);
        Err(tried)
    }

    async fn read_piece(&self, request: &Request<'_>, piece: &Piece) -> ReadResult {
        match request.tree.top(piece.vdev.get()) {
            Some(vdev) => vdev.read(request_for(request, piece, None).deeper()).await,
            None => Err(self.failed(request.offset, Failure::Unavailable)),
        }
    }

    /// Reads every copy of every piece and tries all combinations.
    async fn combine_copies(
        &self,
        request: &Request<'_>,
        pieces: &[Piece],
        tried: &mut Vec<Attempt>,
    ) -> Option<IoBuf> {
        let mut copies: Vec<Vec<(IoBuf, Option<&Vdev>)>> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let of_piece = self.all_copies(request, piece, tried).await;
            if of_piece.is_empty() {
                return None;
            }
            copies.push(of_piece);
        }
        let mut choice = vec![0; copies.len()];
        let per_turn = TURN_BYTES.div_ceil(request.size.max(1));
        for tried in 0..tunables::ZFS_RECONSTRUCT_INDIRECT_COMBINATIONS_MAX.size() {
            if tried % per_turn == per_turn - 1 {
                yield_now().await;
            }
            let parts: Vec<&IoBuf> = copies.iter().zip(&choice).map(|(copies, &c)| &copies[c].0).collect();
            let block = join(request.size, &parts);
            if request.judge(&block).is_ok() {
                blame_differing(request, &copies, &choice);
                return Some(block);
            }
            let place = (0..choice.len()).find(|&place| choice[place] + 1 < copies[place].len())?;
            choice[place] += 1;
            choice[..place].fill(0);
        }
        None
    }

    /// The different contents of the copies of a piece, with a leaf-side vdev for each.
    async fn all_copies<'a>(
        &self,
        request: &Request<'a>,
        piece: &Piece,
        tried: &mut Vec<Attempt>,
    ) -> Vec<(IoBuf, Option<&'a Vdev>)> {
        let Some(top) = request.tree.top(piece.vdev.get()) else { return Vec::new() };
        let mut copies: Vec<(IoBuf, Option<&Vdev>)> = Vec::new();
        let sources: Vec<&Vdev> = match top.kind {
            Kind::Mirror | Kind::Replacing | Kind::Spare => top.children.iter().collect(),
            _ => vec![top],
        };
        for source in sources {
            match source.read(request_for(request, piece, None).deeper()).await {
                Ok(bytes) if copies.iter().all(|(known, _)| *known != bytes) => {
                    copies.push((bytes, Some(source)))
                }
                Ok(_) => {}
                Err(more) => tried.extend(more),
            }
        }
        copies
    }
}

/// Counts a checksum error where a piece differs from the right contents.
fn blame_differing(request: &Request<'_>, copies: &[Vec<(IoBuf, Option<&Vdev>)>], right: &[usize]) {
    for (copies, &right) in copies.iter().zip(right) {
        for (index, (_, vdev)) in copies.iter().enumerate() {
            if index != right
                && let Some(vdev) = vdev
            {
                request.count_checksum(vdev);
            }
        }
    }
}

fn request_for<'a>(
    request: &Request<'a>,
    piece: &Piece,
    verdict: Option<super::read::Verdict<'a>>,
) -> Request<'a> {
    Request {
        offset: piece.offset.get(),
        // At most the size of the request.
        size: piece.length_bytes as usize,
        verdict,
        ..*request
    }
}

fn join<B: AsRef<[u8]>>(size: usize, parts: &[B]) -> IoBuf {
    let mut block = IoBuf::for_overwrite(size);
    let mut rest: &mut [u8] = &mut block;
    for part in parts {
        let part = part.as_ref();
        let (place, behind) = rest.split_at_mut(part.len().min(rest.len()));
        let length = place.len();
        place.copy_from_slice(&part[..length]);
        rest = behind;
    }
    block
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::{Device, MemoryDevice, block_on};
    use ondisk::blkptr::Dva;
    use ondisk::indirect::MappingEntry;
    use ondisk::nvlist::Nvlist;
    use ondisk::vdev_config::VdevConfig;
    use ondisk::{Asize, Guid};

    use super::super::config::{Devices, build_tree};
    use super::super::read::Verdict;
    use super::super::{LABEL_END_BYTES, LABEL_START_BYTES};
    use super::*;

    const PIECE: u64 = 4096;

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

    /// A removed vdev of three pieces, which are on a mirror. Piece `n` is right, which is full of `n`, only
    /// on child `n`.
    fn tree() -> VdevTree {
        let leaves = (0..3).map(|n| config("file", n, n + 1, Vec::new())).collect();
        let tops = vec![config("mirror", 0, 99, leaves), config("indirect", 1, 98, Vec::new())];
        let root = VdevConfig::parse(&config("root", 0, 100, tops)).expect("well-formed");
        let child = |n: u64| {
            let mut bytes = vec![0xff; (LABEL_START_BYTES + (1 << 20) + LABEL_END_BYTES) as usize];
            let at = (LABEL_START_BYTES + n * 2 * PIECE) as usize;
            bytes[at..at + PIECE as usize].fill(n as u8);
            (Guid(n + 1), Arc::new(MemoryDevice::with_content("memory", bytes)) as Arc<dyn Device>)
        };
        let devices: Devices = (0..3).map(child).collect();
        let tree = build_tree(&root, &devices, None).expect("builds");
        let entry = |n: u64| MappingEntry {
            source: ByteOffset(n * PIECE),
            target: Dva {
                vdev: VdevId(0),
                offset: ByteOffset(n * 2 * PIECE),
                asize: Asize(PIECE),
                gang: false,
            },
        };
        let mapping = IndirectMapping::new((0..3).map(entry).collect()).expect("in order");
        let Kind::Indirect(moved) = &tree.tops[1].kind else { panic!("another kind") };
        moved.set(Moved { mapping, births: Vec::new() }).expect("set once");
        tree
    }

    fn is_right(bytes: &[u8]) -> Result<(), Failure> {
        let right = |(at, byte): (usize, &u8)| u64::from(*byte) == at as u64 / PIECE;
        if bytes.iter().enumerate().all(right) { Ok(()) } else { Err(Failure::Checksum) }
    }

    #[test]
    fn copies_of_pieces_are_combined_as_often_as_is_said() {
        let tree = tree();
        let verdict: Verdict<'_> = &is_right;
        let read = || {
            block_on(tree.tops[1].read(Request::new(&tree, 0, 3 * PIECE as usize, 1, Some(verdict)))).is_ok()
        };
        assert!((0..9).all(|_| read()));
        // The first copies that are read may be the right ones now and then.
        tunables::ZFS_RECONSTRUCT_INDIRECT_COMBINATIONS_MAX.set(0).expect("in range");
        assert!(!(0..9).all(|_| read()));
        tunables::ZFS_RECONSTRUCT_INDIRECT_COMBINATIONS_MAX.reset();
    }
}
