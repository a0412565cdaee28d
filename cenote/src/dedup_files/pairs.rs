//! From a list of blocks to pairs of those that seem to be equal.

use server::api::{BlockPair, BlockPlace, ListedBlock, MOST_PAIR_BLOCKS};

use super::found::Subject;
use super::report::Report;

/// The most bytes of a pair: it is locked while it is compared.
const PAIR_BYTES: u64 = 1 << 20;

/// A block that can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    digest: u64,
    place: u64,
    birth: u64,
    /// Its number in the file or volume.
    id: u64,
    /// The number of the file or volume in the list of these.
    subject: usize,
    block_bytes: u32,
    allocated_bytes: u32,
}

impl Block {
    /// As the daemon lists it.
    pub fn of(listed: &ListedBlock, subject: usize, block_bytes: u64) -> Self {
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Self {
            digest: listed.digest,
            place: listed.place,
            birth: listed.birth,
            id: listed.block,
            subject,
            block_bytes: small(block_bytes),
            allocated_bytes: small(listed.allocated_bytes),
        }
    }
}

/// A block of a file or volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The number in the list of files and volumes.
    pub subject: usize,
    /// The number of the block.
    pub block: u64,
}

/// Blocks that seem to be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// What stays.
    pub kept: Place,
    /// What becomes a reference to it.
    pub other: Place,
    blocks: u64,
    block_bytes: u64,
}

impl Pair {
    /// Bytes of its blocks.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes)
    }

    /// Takes one pair more, if it is the next one and there is room.
    fn takes(&mut self, next: &Self) -> bool {
        let follows =
            |here: Place, next: Place| here.subject == next.subject && here.block + self.blocks == next.block;
        let most = (PAIR_BYTES / self.block_bytes.max(1)).clamp(1, MOST_PAIR_BLOCKS);
        let fits = self.blocks < most && self.block_bytes == next.block_bytes;
        // Ranges of one file must not overlap.
        let is_apart = self.kept.subject != self.other.subject
            || self.kept.block.abs_diff(self.other.block) > self.blocks;
        let takes = fits && is_apart && follows(self.kept, next.kept) && follows(self.other, next.other);
        self.blocks += u64::from(takes);
        takes
    }

    /// As the daemon is asked.
    pub fn request(&self, subjects: &[Subject]) -> BlockPair {
        let place = |place: Place| {
            let subject = subjects.get(place.subject);
            BlockPlace {
                dataset: subject.map(|subject| subject.dataset.clone()).unwrap_or_default(),
                file: subject.and_then(|subject| subject.file),
                block: place.block,
            }
        };
        BlockPair { kept: place(self.kept), other: place(self.other), blocks: self.blocks }
    }
}

/// All pairs, by pool.
#[derive(Debug, Default)]
pub struct Pairs(Vec<(String, Vec<Pair>)>);

impl Pairs {
    /// Of all blocks. The report learns of those that seem to be equal.
    pub fn of(mut blocks: Vec<Block>, subjects: &[Subject], report: &mut Report) -> Self {
        let pool = |block: &Block| subjects.get(block.subject).map(Subject::pool).unwrap_or_default();
        blocks.sort_unstable_by_key(|block| (block.digest, block.birth, block.subject, block.id));
        let mut singles: Vec<Pair> = Vec::new();
        for group in blocks.chunk_by(|block, next| block.digest == next.digest) {
            let mut rest: Vec<&Block> = group.iter().collect();
            // Blocks of other pools may have the same digest, as blocks of other sizes hardly ever.
            while let Some(kept) = rest.first().copied() {
                let is_alike =
                    |block: &&Block| block.block_bytes == kept.block_bytes && pool(block) == pool(kept);
                let (alike, others): (Vec<&Block>, Vec<&Block>) = rest.into_iter().partition(is_alike);
                rest = others;
                if alike.len() > 1 {
                    report.contents += 1;
                }
                for block in alike.into_iter().skip(1) {
                    if block.place == kept.place {
                        report.already_blocks += 1;
                        continue;
                    }
                    report.equal_blocks += 1;
                    report.equal_bytes = report.equal_bytes.saturating_add(block.block_bytes.into());
                    let allocated = u64::from(block.allocated_bytes);
                    report.equal_allocated_bytes = report.equal_allocated_bytes.saturating_add(allocated);
                    singles.push(Pair {
                        kept: Place { subject: kept.subject, block: kept.id },
                        other: Place { subject: block.subject, block: block.id },
                        blocks: 1,
                        block_bytes: block.block_bytes.into(),
                    });
                }
            }
        }
        drop(blocks);
        singles.sort_unstable_by_key(|pair| (pair.other.subject, pair.other.block));
        let mut all = Self::default();
        for pair in singles {
            let pool = subjects.get(pair.other.subject).map(Subject::pool).unwrap_or_default();
            let place = all.0.iter().position(|(name, _)| *name == pool).unwrap_or_else(|| {
                all.0.push((pool.to_owned(), Vec::new()));
                all.0.len() - 1
            });
            let Some((_, pairs)) = all.0.get_mut(place) else { continue };
            if !pairs.last_mut().is_some_and(|last| last.takes(&pair)) {
                pairs.push(pair);
            }
        }
        all
    }

    /// Those of each pool.
    pub fn by_pool(&self) -> impl Iterator<Item = (&str, &[Pair])> {
        self.0.iter().map(|(pool, pairs)| (&**pool, &**pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(dataset: &str, file: Option<u64>) -> Subject {
        Subject { dataset: dataset.to_owned(), file, path: dataset.into() }
    }

    fn block(subject: usize, id: u64, digest: u64, birth: u64) -> Block {
        let place = birth * 1000 + digest * 100 + subject as u64 * 10 + id;
        Block { digest, place, birth, id, subject, block_bytes: 4096, allocated_bytes: 4096 }
    }

    #[test]
    fn the_oldest_block_is_kept_and_neighbours_become_one_pair() {
        let subjects = [subject("tank/a", Some(5)), subject("tank/a", Some(6)), subject("dozer", None)];
        let mut blocks: Vec<Block> = (0..600).map(|id| block(0, id, id, 9)).collect();
        blocks.extend((0..600).map(|id| block(1, id, id, 3)));
        // Another pool has the same contents, once.
        blocks.extend((0..600).map(|id| block(2, id, id, 1)));
        let mut report = Report::default();
        let pairs = Pairs::of(blocks, &subjects, &mut report);
        let [("tank", of_tank)] = &pairs.by_pool().collect::<Vec<_>>()[..] else { panic!("{pairs:?}") };
        assert_eq!(of_tank.iter().map(|pair| pair.blocks).collect::<Vec<_>>(), [256, 256, 88]);
        assert_eq!(of_tank[1].kept, Place { subject: 1, block: 256 });
        assert_eq!(of_tank[1].other, Place { subject: 0, block: 256 });
        assert_eq!((report.equal_blocks, report.equal_bytes, report.contents), (600, 600 * 4096, 600));
        let request = of_tank[2].request(&subjects);
        assert_eq!((request.blocks, request.kept.file, request.other.file), (88, Some(6), Some(5)));
        assert_eq!((request.kept.block, request.other.block), (512, 512));
    }

    #[test]
    fn ranges_of_one_file_never_overlap_and_what_is_shared_is_left_out() {
        let subjects = [subject("tank/v", None)];
        // All blocks are equal, then the same again behind them.
        let mut blocks: Vec<Block> = (0..8).map(|id| block(0, id, id % 4, id)).collect();
        blocks.push(Block { id: 8, ..blocks[0] });
        let mut report = Report::default();
        let pairs = Pairs::of(blocks, &subjects, &mut report);
        let (_, pairs) = pairs.by_pool().next().unwrap();
        assert_eq!(report.already_blocks, 1);
        let ranges: Vec<_> =
            pairs.iter().map(|pair| (pair.kept.block, pair.other.block, pair.blocks)).collect();
        assert_eq!(ranges, [(0, 4, 4)]);
        let same: Vec<Block> = (0..5).map(|id| block(0, id, 7, id)).collect();
        let pairs = Pairs::of(same, &subjects, &mut Report::default());
        let (_, pairs) = pairs.by_pool().next().unwrap();
        assert!(pairs.iter().all(|pair| pair.kept.block == 0 && pair.blocks == 1) && pairs.len() == 4);
    }
}
