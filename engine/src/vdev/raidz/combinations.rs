//! Which bytes of a block are wrong, when all were read and the verdict refuses what they make together.
//!
//! There are two kinds of doubt, which are tried together:
//! - A column has several copies that differ. One *choice* takes a copy for each such column.
//! - The bytes of a child are wrong in all copies. A *hypothesis* distrusts a set of children and rebuilds
//!   their columns ([`Map::hypotheses`]).
//!
//! Few distrusted children come before many, and for each number of them all choices are tried. A leaf is
//! first chosen as a whole: all of its columns, or none. If no such choice is right, each column is chosen
//! for itself, as two leaves may be damaged in different columns. The number of attempts is bounded.

use codec::raidz::Map;
use device::IoBuf;

use super::super::read::yield_now;
use super::{Columns, Piece, TooManyLost, put};

/// The most attempts. Every set of three of 84 children fits.
const MAX_ATTEMPTS: usize = 100_000;
/// The most attempts in which each column is chosen for itself.
const MAX_ATTEMPTS_BY_COLUMN: usize = 4096;
/// The most bytes that are rebuilt and checked for one block before it is given up.
const MAX_TRIED_BYTES: usize = 64 << 30;
/// After this many bytes, the thread yields to its other work.
const TURN_BYTES: usize = 64 << 20;

/// The columns that are chosen together, and the copy for each.
type Choice = Vec<(usize, usize)>;
/// Choices of which one is taken; the first is what was tried before.
type Doubt = Vec<Choice>;

/// The rows of a block, all their columns; nothing for rows that are as they were read.
type Rows = Vec<Option<Vec<Vec<u8>>>>;

impl Columns<'_> {
    /// Everything was read, but the block is wrong: tries combinations until it is right.
    pub(super) async fn try_combinations(&mut self) -> Option<IoBuf> {
        self.request.verdict?;
        let before = self.pieces.clone();
        let (whole, single) = (self.doubts_by_child(), self.doubts_by_column());
        let right = self.try_doubts(&whole, MAX_ATTEMPTS).await;
        if right.is_some() || single.len() <= whole.len() {
            return right;
        }
        self.pieces.clone_from(&before);
        let right = self.try_doubts(&single, MAX_ATTEMPTS_BY_COLUMN).await;
        if right.is_none() {
            self.pieces = before;
        }
        right
    }

    async fn try_doubts(&mut self, doubts: &[Doubt], most: usize) -> Option<IoBuf> {
        let map: &Map = self.map;
        let lost: Vec<usize> = (0..self.pieces.len()).filter(|&index| !self.is_read(index)).collect();
        let mut block = IoBuf::for_overwrite(map.data_bytes() as usize);
        let size = block.len().max(1);
        let (per_turn, most) = (TURN_BYTES.div_ceil(size), most.min(MAX_TRIED_BYTES / size));
        let mut attempts = 0usize;
        for blamed in 0..=map.nparity() {
            let mut choice = vec![0; doubts.len()];
            loop {
                self.choose(doubts, &choice);
                // What was read first was judged before.
                let is_new = blamed == 0 && choice.iter().any(|&chosen| chosen > 0);
                let none_blamed = is_new.then(|| lost.clone());
                for hypothesis in none_blamed.into_iter().chain(map.hypotheses_blaming(&lost, blamed)) {
                    attempts += 1;
                    if attempts > most {
                        return None;
                    }
                    if attempts.is_multiple_of(per_turn) {
                        yield_now().await;
                    }
                    if self.is_right_without(&hypothesis, &mut block) {
                        return Some(block);
                    }
                }
                if !advance(&mut choice, doubts) {
                    break;
                }
            }
        }
        None
    }

    /// Puts the block together with the columns of `hypothesis` rebuilt. Whether it is right then.
    fn is_right_without(&self, hypothesis: &[usize], block: &mut IoBuf) -> bool {
        let Ok(rows) = self.rebuild(hypothesis) else { return false };
        for (row, columns) in self.rows().zip(&rows) {
            for index in row.clone().filter(|&index| self.is_data(index)) {
                let bytes = columns.as_ref().map_or(self.bytes(index), |columns| &columns[index - row.start]);
                put(block, self.column(index), bytes);
            }
        }
        self.request.judge(self.wanted(block)).is_ok()
    }

    /// The rows with the columns of `hypothesis` recomputed.
    fn rebuild(&self, hypothesis: &[usize]) -> Result<Rows, TooManyLost> {
        let rows = self.rows().map(|row| {
            let missing: Vec<usize> =
                hypothesis.iter().copied().filter(|index| row.contains(index)).collect();
            if missing.is_empty() { Ok(None) } else { self.rebuild_row(row, &missing).map(Some) }
        });
        rows.collect()
    }

    fn choose(&mut self, doubts: &[Doubt], choice: &[usize]) {
        for (index, copy) in doubts.iter().zip(choice).flat_map(|(doubt, &chosen)| &doubt[chosen]) {
            self.pieces[*index] = Piece::Read(*copy);
        }
    }

    /// For each column whose copies differ, one of each content.
    fn doubts_by_column(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        for (index, copies) in self.copies.iter().enumerate() {
            let Piece::Read(taken) = self.pieces[index] else { continue };
            let mut distinct: Vec<usize> = vec![taken];
            for (copy, content) in copies.iter().enumerate() {
                let content = self.copy(index, content);
                if distinct.iter().all(|&known| self.copy(index, &copies[known]) != content) {
                    distinct.push(copy);
                }
            }
            if distinct.len() > 1 {
                doubts.push(distinct.into_iter().map(|copy| vec![(index, copy)]).collect());
            }
        }
        doubts
    }

    /// For each child of whose columns the copies differ, the leaves.
    fn doubts_by_child(&self) -> Vec<Doubt> {
        let mut children: Vec<(usize, Vec<usize>)> = Vec::new();
        for column in self.doubts_by_column().iter().filter_map(|doubt| doubt.first()?.first()) {
            let child = self.column(column.0).child;
            match children.iter_mut().find(|(known, _)| *known == child) {
                Some((_, columns)) => columns.push(column.0),
                None => children.push((child, vec![column.0])),
            }
        }
        let doubt = |columns: Vec<usize>| {
            let taken = |&index: &usize| match self.pieces[index] {
                Piece::Read(taken) => (index, taken),
                _ => (index, 0),
            };
            let before: Choice = columns.iter().map(taken).collect();
            let mut doubt = vec![before.clone()];
            let mut sources = Vec::new();
            for copy in columns.iter().flat_map(|&index| &self.copies[index]) {
                if sources.iter().all(|known: &super::Source<'_>| !known.is(&copy.source)) {
                    sources.push(copy.source);
                }
            }
            for source in sources {
                // Where it could not be read, another one is taken.
                let of_source = before.iter().map(|&(index, taken)| {
                    let copy = self.copies[index].iter().position(|copy| copy.source.is(&source));
                    (index, copy.unwrap_or(taken))
                });
                let choice: Choice = of_source.collect();
                if !doubt.contains(&choice) {
                    doubt.push(choice);
                }
            }
            doubt
        };
        children.into_iter().map(|(_, columns)| doubt(columns)).collect()
    }
}

/// Steps to the next choice. False when there is none.
fn advance(choice: &mut [usize], doubts: &[Doubt]) -> bool {
    for (chosen, doubt) in choice.iter_mut().zip(doubts) {
        if *chosen + 1 < doubt.len() {
            *chosen += 1;
            return true;
        }
        *chosen = 0;
    }
    false
}
