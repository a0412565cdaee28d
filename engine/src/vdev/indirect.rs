//! Removed vdevs: where their blocks went.
//!
//! Removing a top-level vdev copies its allocated space in segments to other vdevs and leaves an *indirect* vdev behind: block pointers
//! keep their old addresses, and a mapping in the MOS says where each range of the old address space lies now. A block may straddle
//! segments; it is then put together from pieces on different vdevs. The new place may itself be on a vdev that was removed later.
//!
//! The mapping is an array of entries sorted by source offset that do not overlap. A second array, the *births*, tells in which txg a range was copied;
//! for a device that was away (see [`super::dtl`]) that txg counts, not the block's birth.
//!
//! The pieces of a straddling block have no checksums of their own. When the whole is wrong and pieces lie on mirrors, their
//! copies are combined in turn until the whole is right, as OpenZFS does.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_indirect.c`, `vdev_indirect_mapping.h`.

use device::IoBuf;
use futures_util::future::try_join_all;

use super::read::{ReadResult, Request};
use super::{Kind, Vdev};
use crate::error::{Attempt, Failure};

/// Pieces that one block may consist of: one for each sector of the largest block.
const MAX_PIECES: usize = (16 << 20) / 512;
/// Combinations of copies tried before a block is given up (`zfs_reconstruct_indirect_combinations_max` is 4096 too).
const MAX_COMBINATIONS: usize = 4096;

/// One moved range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it was, in bytes of the removed vdev's space.
    pub source: u64,
    /// How long it is, in bytes.
    pub size: u64,
    /// The top-level vdev it is on now.
    pub vdev: u32,
    /// Where it is there, in bytes.
    pub target: u64,
}

/// Where a removed vdev's space went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndirectMapping {
    /// Sorted by source, not overlapping.
    segments: Vec<Segment>,
    /// Sorted by offset: ranges end at the offset and were copied in the txg.
    births: Vec<(u64, u64)>,
}

/// A piece of a block in its new place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The top-level vdev it is on.
    pub vdev: u32,
    /// Offset there, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
    /// The txg in which it was copied there; `None` when the births do not say.
    pub txg: Option<u64>,
}

impl IndirectMapping {
    /// Checks that segments are sorted and disjoint. `births` are pairs of (end offset, txg), ascending.
    pub fn new(segments: Vec<Segment>, births: Vec<(u64, u64)>) -> Option<Self> {
        let end = |segment: &Segment| segment.source.checked_add(segment.size);
        let sound = segments.iter().all(|segment| segment.size > 0 && end(segment).is_some());
        let sorted = segments.is_sorted_by(|a, b| end(a).is_some_and(|end| end <= b.source));
        let births_sorted = births.is_sorted_by(|a, b| a.0 < b.0);
        (sound && sorted && births_sorted).then_some(Self { segments, births })
    }

    /// The moved ranges, by source.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Where `size` bytes at `offset` of the removed vdev are now, or `None` when some of them were never moved.
    pub fn remap(&self, offset: u64, size: u64) -> Option<Vec<Piece>> {
        let end = offset.checked_add(size)?;
        let mut pieces = Vec::new();
        let mut next = offset;
        let mut index = self.segments.partition_point(|segment| segment.source + segment.size <= offset);
        while next < end {
            let segment = self.segments.get(index).filter(|segment| segment.source <= next)?;
            let within = next - segment.source;
            let size = (segment.size - within).min(end - next);
            let offset = segment.target.checked_add(within)?;
            pieces.push(Piece { vdev: segment.vdev, offset, size, txg: self.birth(next) });
            if pieces.len() > MAX_PIECES {
                return None;
            }
            next += size;
            index += 1;
        }
        Some(pieces)
    }

    fn birth(&self, offset: u64) -> Option<u64> {
        let index = self.births.partition_point(|&(end, _)| end <= offset);
        self.births.get(index).map(|&(_, txg)| txg)
    }
}

impl Vdev {
    pub(super) async fn read_indirect(&self, request: Request<'_>, mapping: &IndirectMapping) -> ReadResult {
        let Some(pieces) = mapping.remap(request.offset, request.size as u64) else {
            let reason = Failure::Malformed("not in the removed device's mapping".into());
            return Err(self.failed(request.offset, reason));
        };
        if let [piece] = pieces.as_slice() {
            return match request.tree.top(piece.vdev) {
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
        self.count_failure(&tried);
        Err(tried)
    }

    async fn read_piece(&self, request: &Request<'_>, piece: &Piece) -> ReadResult {
        match request.tree.top(piece.vdev) {
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
        for _ in 0..MAX_COMBINATIONS {
            let parts: Vec<&IoBuf> = copies.iter().zip(&choice).map(|(copies, &c)| &copies[c].0).collect();
            let block = join(request.size, &parts);
            if request.judge(&block).is_ok() {
                blame_differing(&copies, &choice);
                return Some(block);
            }
            let place = (0..choice.len()).find(|&place| choice[place] + 1 < copies[place].len())?;
            choice[place] += 1;
            choice[..place].fill(0);
        }
        None
    }

    /// Different contents that the copies of a piece have, with a leaf-side vdev that gave each.
    async fn all_copies<'a>(
        &self,
        request: &Request<'a>,
        piece: &Piece,
        tried: &mut Vec<Attempt>,
    ) -> Vec<(IoBuf, Option<&'a Vdev>)> {
        let Some(top) = request.tree.top(piece.vdev) else { return Vec::new() };
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

/// Counts a checksum error where a piece has other contents than the ones that proved right.
fn blame_differing(copies: &[Vec<(IoBuf, Option<&Vdev>)>], right: &[usize]) {
    for (copies, &right) in copies.iter().zip(right) {
        for (index, (_, vdev)) in copies.iter().enumerate() {
            if index != right
                && let Some(vdev) = vdev
            {
                vdev.errors.count_checksum();
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
        offset: piece.offset,
        // At most the size of the request.
        size: piece.size as usize,
        txg: piece.txg.unwrap_or(request.txg).max(request.txg),
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
    use super::*;

    fn segment(source: u64, size: u64, vdev: u32, target: u64) -> Segment {
        Segment { source, size, vdev, target }
    }

    fn mapping() -> IndirectMapping {
        let segments =
            vec![segment(0, 8192, 1, 100 << 20), segment(8192, 4096, 2, 0), segment(65536, 4096, 1, 0)];
        IndirectMapping::new(segments, vec![(8192, 50), (131_072, 51)]).unwrap()
    }

    #[test]
    fn a_block_inside_a_segment_moves_as_one() {
        let piece = Piece { vdev: 1, offset: (100 << 20) + 512, size: 1024, txg: Some(50) };
        assert_eq!(mapping().remap(512, 1024), Some(vec![piece]));
    }

    #[test]
    fn a_block_across_segments_is_split() {
        let pieces = mapping().remap(4096, 8192).unwrap();
        let places: Vec<_> =
            pieces.iter().map(|piece| (piece.vdev, piece.offset, piece.size, piece.txg)).collect();
        assert_eq!(places, [(1, (100 << 20) + 4096, 4096, Some(50)), (2, 0, 4096, Some(51))]);
    }

    #[test]
    fn what_was_never_moved_has_no_new_place() {
        assert_eq!(mapping().remap(8192, 8192), None);
        assert_eq!(mapping().remap(20_000, 512), None);
        assert_eq!(mapping().remap(65_536 + 4096, 512), None);
        assert_eq!(mapping().remap(u64::MAX - 100, 512), None);
    }

    #[test]
    fn overlapping_or_unsorted_segments_are_refused() {
        assert!(
            IndirectMapping::new(vec![segment(0, 8192, 1, 0), segment(4096, 4096, 1, 0)], vec![]).is_none()
        );
        assert!(IndirectMapping::new(vec![segment(8192, 1, 1, 0), segment(0, 1, 1, 0)], vec![]).is_none());
        assert!(IndirectMapping::new(vec![segment(0, 0, 1, 0)], vec![]).is_none());
    }
}
