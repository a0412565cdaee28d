//! What a volume may hold after a power cut.
//!
//! Steps on a volume are numbered in the order in which they were begun; one begins when the one before it
//! was answered. So a volume's contents at any time are those after some number of steps, and after a crash
//! they must again be: at least as many as were promised to be stable, at most as many as were begun. Of the
//! last one, a part may be there: it was never answered.
//!
//! Each sector that a step writes says which step wrote it, so that contents tell their steps.
//!
//! Volumes that are written at the same time, or parts of a volume that different clients write, are a
//! [`Volume`] each.

use crate::Rng;

/// The unit in which volumes are written.
pub const SECTOR_BYTES: usize = 4096;

/// A load on a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Sectors are written.
    Write {
        /// The first one.
        first: u64,
        /// How many.
        sectors: u64,
    },
    /// Sectors become zeroes.
    Zero {
        /// The first one.
        first: u64,
        /// How many.
        sectors: u64,
    },
}

impl Step {
    fn touches(&self, sector: u64) -> bool {
        let (Step::Write { first, sectors } | Step::Zero { first, sectors }) = *self;
        sector >= first && sector - first < sectors
    }
}

#[derive(Debug, Clone)]
struct Taken {
    step: Step,
    begun_at: usize,
}

/// The history of a volume.
#[derive(Debug, Clone)]
pub struct Volume {
    id: u64,
    sectors: u64,
    taken: Vec<Taken>,
    /// By sector: the steps that touched it.
    touching: Vec<Vec<usize>>,
    /// (point, steps): from that point on, so many steps are promised.
    promises: Vec<(usize, usize)>,
}

impl Volume {
    /// A volume of zeroes. `id` tells it from others.
    pub fn new(id: u64, sectors: u64) -> Self {
        Self {
            id,
            sectors,
            taken: Vec::new(),
            touching: vec![Vec::new(); sectors as usize],
            promises: Vec::new(),
        }
    }

    /// Its size.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// How many steps were begun.
    pub fn steps(&self) -> usize {
        self.taken.len()
    }

    /// A step begins, at this point of the log. Gives the bytes that a write writes.
    pub fn begin(&mut self, step: Step, point: usize) -> Vec<u8> {
        self.taken.push(Taken { step, begun_at: point });
        let number = self.taken.len();
        let (Step::Write { first, sectors } | Step::Zero { first, sectors }) = step;
        for touching in &mut self.touching[first as usize..(first + sectors) as usize] {
            touching.push(number);
        }
        match step {
            Step::Write { first, sectors } => {
                (first..first + sectors).flat_map(|sector| content(self.id, number, sector)).collect()
            }
            Step::Zero { .. } => Vec::new(),
        }
    }

    /// From `point` on the first `steps` steps are promised to survive.
    pub fn promise(&mut self, steps: usize, point: usize) {
        self.promises.push((point, steps));
    }

    /// Steps that must be there after a power cut at `point`, and those that may.
    pub fn bounds(&self, point: usize) -> (usize, usize) {
        let promised = self.promises.iter().filter(|(from, _)| *from <= point).map(|(_, steps)| *steps);
        let begun = self.taken.iter().take_while(|taken| taken.begun_at <= point).count();
        (promised.max().unwrap_or(0), begun)
    }

    /// Judges contents. Gives a number of steps, from `least` to `most`, after which the volume held them.
    pub fn judge(&self, contents: &[u8], least: usize, most: usize) -> Result<usize, String> {
        if contents.len() as u64 != self.sectors * SECTOR_BYTES as u64 {
            return Err(format!("{} bytes instead of {} sectors", contents.len(), self.sectors));
        }
        let most = most.min(self.taken.len());
        if least > most {
            return Err(format!("volume {}: {least} steps promised, but only {most} begun", self.id));
        }
        // How many sectors agree with each number of steps, as differences between neighbours.
        let mut agree = vec![0i64; most + 2];
        for (sector, bytes) in contents.chunks_exact(SECTOR_BYTES).enumerate() {
            let found = self.origin(sector as u64, bytes)?;
            let mut free_from = 0;
            for (from, until) in self.moments(sector, found, most) {
                let from = from.max(free_from);
                if from < until {
                    agree[from] += 1;
                    agree[until] -= 1;
                    free_from = until;
                }
            }
        }
        let mut sum = 0;
        for count in &mut agree {
            sum += *count;
            *count = sum;
        }
        let in_bounds = least..most + 1;
        if let Some(steps) = in_bounds.clone().rev().find(|steps| agree[*steps] == self.sectors as i64) {
            return Ok(steps);
        }
        Err(self.complain(contents, in_bounds, &agree))
    }

    /// As [`Volume::judge`], for contents that an intent log brought back: each sector by itself must hold
    /// what some step from `least` to `most` left there. A log carries a write with the data that the volume
    /// has when the log is written, later writes to the same place included; what was not promised may so be
    /// there before what was begun earlier, as with the cache of any disk.
    pub fn judge_sectors(&self, contents: &[u8], least: usize, most: usize) -> Result<(), String> {
        let most = most.min(self.taken.len());
        for (sector, bytes) in contents.chunks_exact(SECTOR_BYTES).enumerate() {
            let found = self.origin(sector as u64, bytes)?;
            let right =
                self.moments(sector, found, most).any(|(from, until)| from < most + 1 && until > least);
            if !right {
                let found = found.map_or("zeroes".into(), |step| format!("of step {step}"));
                return Err(format!(
                    "volume {}, sector {sector}: {found}; steps {least} are promised, {most} begun; it was \
                     written by {:?}",
                    self.id, self.touching[sector],
                ));
            }
        }
        match contents.len() == self.sectors as usize * SECTOR_BYTES {
            true => Ok(()),
            false => Err(format!("volume {}: {} bytes", self.id, contents.len())),
        }
    }

    /// The numbers of steps (from, until) after which a sector held what step `found` wrote, or zeroes; those
    /// included of which the next step wrote it already. In order; they may overlap.
    fn moments(
        &self,
        sector: usize,
        found: Option<usize>,
        most: usize,
    ) -> impl Iterator<Item = (usize, usize)> + '_ {
        let touching = &self.touching[sector];
        let begins = std::iter::once(0).chain(touching.iter().copied()).take_while(move |step| *step <= most);
        let ends = touching.iter().copied().chain([usize::MAX]);
        begins.zip(ends).filter_map(move |(from, until)| {
            let is = match found {
                Some(step) => step == from,
                None => from == 0 || matches!(self.taken[from - 1].step, Step::Zero { .. }),
            };
            is.then_some((from.saturating_sub(1), until.min(most + 1)))
        })
    }

    fn complain(&self, contents: &[u8], bounds: std::ops::Range<usize>, agree: &[i64]) -> String {
        let nearest = bounds.clone().max_by_key(|steps| agree[*steps]).unwrap_or(bounds.start);
        let wrong = contents.chunks_exact(SECTOR_BYTES).enumerate().find_map(|(sector, bytes)| {
            let found = self.origin(sector as u64, bytes).ok()?;
            let right = self
                .moments(sector, found, bounds.end - 1)
                .any(|(from, until)| (from..until).contains(&nearest));
            (!right).then_some((sector, found))
        });
        let detail = match wrong {
            Some((sector, Some(step))) => format!("sector {sector} is of step {step}"),
            Some((sector, None)) => format!("sector {sector} is zeroes"),
            None => "nothing else is wrong".into(),
        };
        let steps: Vec<String> = (nearest + 1..bounds.end)
            .map(|number| format!("{number}: {:?}", self.taken[number - 1].step))
            .take(20)
            .collect();
        format!(
            "volume {}: contents of no moment between step {} and {}; nearest is step {nearest}, with {} \
             wrong sectors: {detail}; steps {}",
            self.id,
            bounds.start,
            bounds.end - 1,
            self.sectors as i64 - agree[nearest],
            steps.join(", "),
        )
    }

    /// The step that wrote these bytes; `None` for zeroes.
    fn origin(&self, sector: u64, bytes: &[u8]) -> Result<Option<usize>, String> {
        if bytes == [0; SECTOR_BYTES] {
            return Ok(None);
        }
        let step = bytes.first_chunk::<8>().map_or(0, |head| u64::from_le_bytes(*head)) as usize;
        let written = self
            .taken
            .get(step.wrapping_sub(1))
            .is_some_and(|taken| matches!(taken.step, Step::Write { .. }) && taken.step.touches(sector));
        if !written || content(self.id, step, sector) != bytes {
            return Err(format!("volume {}, sector {sector}: bytes that no step wrote", self.id));
        }
        Ok(Some(step))
    }
}

/// What step `number` writes to a sector: its number, and bytes of which a part compresses.
fn content(id: u64, number: usize, sector: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SECTOR_BYTES);
    bytes.extend((number as u64).to_le_bytes());
    bytes.extend([id, sector].map(u64::to_le_bytes).concat());
    let mut rng = Rng::new(id << 48 ^ (number as u64) << 24 ^ sector);
    let noise = rng.index(SECTOR_BYTES / 8);
    while bytes.len() < SECTOR_BYTES {
        let word = if bytes.len() / 8 < noise { rng.next_u64() } else { bytes.len() as u64 / 64 };
        bytes.extend(word.to_le_bytes());
    }
    bytes.truncate(SECTOR_BYTES);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume after random steps, and its contents after each.
    fn history(seed: u64) -> (Volume, Vec<Vec<u8>>) {
        let mut rng = Rng::new(seed);
        let mut volume = Volume::new(seed, 8);
        let mut contents = vec![vec![0; 8 * SECTOR_BYTES]];
        for point in 0..20 {
            let first = rng.below(8);
            let sectors = 1 + rng.below(8 - first);
            let step = match rng.once_in(4) {
                true => Step::Zero { first, sectors },
                false => Step::Write { first, sectors },
            };
            let bytes = volume.begin(step, point);
            let mut next = contents[point].clone();
            let range = first as usize * SECTOR_BYTES..(first + sectors) as usize * SECTOR_BYTES;
            match step {
                Step::Write { .. } => next[range].copy_from_slice(&bytes),
                Step::Zero { .. } => next[range].fill(0),
            }
            contents.push(next);
        }
        (volume, contents)
    }

    #[test]
    fn contents_of_every_moment_in_bounds_are_right_and_others_are_not() {
        for seed in 0..20 {
            let (volume, contents) = history(seed);
            let partly = |bytes: &[u8], steps: usize| {
                let next = contents.get(steps + 1).unwrap_or(&contents[steps]);
                let sectors = contents[steps].chunks(SECTOR_BYTES).zip(next.chunks(SECTOR_BYTES));
                sectors.zip(bytes.chunks(SECTOR_BYTES)).all(|((one, other), is)| is == one || is == other)
            };
            for (steps, bytes) in contents.iter().enumerate() {
                assert_eq!(volume.judge(bytes, steps, steps), Ok(steps));
                for (least, most) in [(0, 20), (steps, 20), (steps + 1, 20), (0, steps), (steps + 3, 20)] {
                    let right = (least..=most)
                        .rev()
                        .find(|k| partly(bytes, *k) && (*k < most || contents[*k] == *bytes));
                    assert_eq!(volume.judge(bytes, least, most).ok(), right, "{seed} {steps} {least} {most}");
                }
            }
        }
    }

    #[test]
    fn the_step_after_may_be_there_in_part_but_no_two() {
        let mut volume = Volume::new(1, 2);
        let mut all = Vec::new();
        for point in 0..3 {
            all.push(volume.begin(Step::Write { first: 0, sectors: 2 }, point));
        }
        let mixed = |a: usize, b: usize| [&all[a][..SECTOR_BYTES], &all[b][SECTOR_BYTES..]].concat();
        assert_eq!(volume.judge(&mixed(0, 1), 1, 3), Ok(1));
        assert_eq!(volume.judge(&mixed(1, 0), 1, 3), Ok(1));
        assert!(volume.judge(&mixed(0, 2), 1, 3).is_err());
        assert!(volume.judge(&mixed(0, 1), 1, 1).is_err(), "what was not begun cannot be there");
        assert!(volume.judge(&mixed(0, 1), 2, 3).is_err(), "what was promised must be there");
        assert_eq!(volume.judge_sectors(&mixed(0, 2), 1, 3), Ok(()), "each sector by itself");
        assert!(volume.judge_sectors(&mixed(0, 2), 2, 3).is_err(), "what was promised must be there");
        assert!(volume.judge_sectors(&mixed(0, 2), 1, 2).is_err(), "what was not begun cannot be there");
        let mut damaged = mixed(2, 2);
        damaged[5000] ^= 1;
        assert!(volume.judge(&damaged, 0, 3).is_err());
    }

    #[test]
    fn promises_count_from_their_point_on() {
        let mut volume = Volume::new(1, 2);
        for point in [10, 20, 30] {
            volume.begin(Step::Write { first: 0, sectors: 1 }, point);
        }
        volume.promise(2, 25);
        assert_eq!((volume.bounds(5), volume.bounds(24), volume.bounds(25)), ((0, 0), (0, 2), (2, 2)));
        assert_eq!(volume.bounds(100), (2, 3));
    }
}
