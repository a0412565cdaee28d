//! What goes wrong, where and when.

use std::ops::Range;

use crate::Cause;

/// Bits are flipped one in each sector of this size.
const FLIP_SECTOR_BYTES: u64 = 512;

/// Something that goes wrong with a simulated device.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The device is gone: every operation fails.
    Missing,
    /// Reads that touch the range fail with `EIO`, until it is written.
    ReadError(Range<u64>),
    /// Every read fails with `EIO` after so many more, as behind a controller that resets.
    ReadOutage {
        /// How many reads go well before it.
        after_reads: u64,
    },
    /// Writes that touch the range fail with `EIO`.
    WriteError(Range<u64>),
    /// One in so many operations fails with `EIO`, and may succeed when repeated.
    Flaky {
        /// The odds; 1 means every operation.
        one_in: u64,
    },
    /// Reads return the range with one bit flipped in each of its sectors, always the same one, until it is
    /// written.
    FlippedBits(Range<u64>),
    /// Power fails during a later write: a seeded number of its first sectors reach the medium, and the
    /// device is gone.
    TornWrite {
        /// How many writes go well before it.
        after_writes: u64,
    },
    /// Operations that touch the range take longer.
    Delay {
        /// The slow range.
        range: Range<u64>,
        /// By how much.
        delay_ns: u64,
    },
}

/// What becomes of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteFate {
    Whole,
    Torn { kept_bytes: u64 },
}

/// All faults of a device.
pub(super) struct Faults {
    seed: u64,
    random: Random,
    missing: bool,
    read_errors: Ranges,
    write_errors: Ranges,
    flipped: Ranges,
    flaky_one_in: Option<u64>,
    reads_until_outage: Option<u64>,
    writes_until_torn: Option<u64>,
    delays: Vec<(Range<u64>, u64)>,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            random: Random::new(seed),
            missing: false,
            read_errors: Ranges::default(),
            write_errors: Ranges::default(),
            flipped: Ranges::default(),
            flaky_one_in: None,
            reads_until_outage: None,
            writes_until_torn: None,
            delays: Vec::new(),
        }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Missing => self.missing = true,
            Fault::ReadError(range) => self.read_errors.add(range),
            Fault::ReadOutage { after_reads } => self.reads_until_outage = Some(after_reads),
            Fault::WriteError(range) => self.write_errors.add(range),
            Fault::Flaky { one_in } => self.flaky_one_in = Some(one_in.max(1)),
            Fault::FlippedBits(range) => self.flipped.add(range),
            Fault::TornWrite { after_writes } => self.writes_until_torn = Some(after_writes),
            Fault::Delay { range, delay_ns } => self.delays.push((range, delay_ns)),
        }
    }

    pub(super) fn heal(&mut self) {
        let random = self.random.clone();
        *self = Self { random, ..Self::new(self.seed) };
    }

    pub(super) fn check_presence(&self) -> Result<(), Cause> {
        if self.missing { Err(Cause::Missing) } else { Ok(()) }
    }

    pub(super) fn check_read(&mut self, offset: u64, len: u64) -> Result<(), Cause> {
        self.check_presence()?;
        match &mut self.reads_until_outage {
            Some(0) => return Err(INPUT_OUTPUT),
            Some(reads) => *reads -= 1,
            None => {}
        }
        if self.stumbles() || self.read_errors.touch(offset, len) { Err(INPUT_OUTPUT) } else { Ok(()) }
    }

    pub(super) fn check_write(
        &mut self,
        offset: u64,
        len: u64,
        sector_bytes: u64,
    ) -> Result<WriteFate, Cause> {
        self.check_presence()?;
        match &mut self.writes_until_torn {
            Some(0) => {
                self.missing = true;
                let kept_bytes = self.random.below(len.div_ceil(sector_bytes)) * sector_bytes;
                return Ok(WriteFate::Torn { kept_bytes });
            }
            Some(writes) => *writes -= 1,
            None => {}
        }
        if self.stumbles() || self.write_errors.touch(offset, len) {
            return Err(INPUT_OUTPUT);
        }
        Ok(WriteFate::Whole)
    }

    /// A write replaced the range and what was damaged of it.
    pub(super) fn replaced(&mut self, offset: u64, len: u64) {
        self.read_errors.remove(offset, len);
        self.flipped.remove(offset, len);
    }

    pub(super) fn flip_bits(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        for range in &self.flipped.0 {
            let first_touched = range.start.max(offset);
            let mut sector = first_touched - first_touched % FLIP_SECTOR_BYTES;
            while sector < range.end.min(end) {
                let draw = Random::new(self.seed ^ sector).next();
                // Within the part of the sector that the fault names.
                let first = sector.max(range.start);
                let last = (sector + FLIP_SECTOR_BYTES).min(range.end);
                let position = first + draw / 8 % (last - first);
                if (offset..end).contains(&position) {
                    bytes[(position - offset) as usize] ^= 1 << (draw % 8);
                }
                sector += FLIP_SECTOR_BYTES;
            }
        }
    }

    pub(super) fn delay_ns(&self, offset: u64, len: u64) -> u64 {
        let touched = self.delays.iter().filter(|(range, _)| overlaps(range, offset, len));
        touched.map(|(_, delay_ns)| *delay_ns).fold(0, u64::saturating_add)
    }

    fn stumbles(&mut self) -> bool {
        self.flaky_one_in.is_some_and(|one_in| self.random.below(one_in) == 0)
    }
}

const INPUT_OUTPUT: Cause = Cause::Os { errno: libc::EIO };

fn overlaps(range: &Range<u64>, offset: u64, len: u64) -> bool {
    offset < range.end && offset.saturating_add(len) > range.start
}

/// A few ranges, in no order.
#[derive(Default)]
struct Ranges(Vec<Range<u64>>);

impl Ranges {
    fn add(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.remove(range.start, range.end - range.start);
            self.0.push(range);
        }
    }

    fn remove(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let cut = |range: &Range<u64>| [range.start..range.end.min(offset), range.start.max(end)..range.end];
        self.0 = self.0.iter().flat_map(cut).filter(|range| !range.is_empty()).collect();
    }

    fn touch(&self, offset: u64, len: u64) -> bool {
        self.0.iter().any(|range| overlaps(range, offset, len))
    }
}

/// A small seeded source of numbers (SplitMix64): good enough to choose faults, and the same on every
/// machine.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 where the bound is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let draw = self.next();
        ((u128::from(draw) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_from_a_range_leaves_both_ends() {
        let mut ranges = Ranges::default();
        ranges.add(10..100);
        ranges.remove(20, 30);
        assert!(ranges.touch(0, 11) && ranges.touch(19, 1) && ranges.touch(50, 1));
        assert!(!ranges.touch(20, 30) && !ranges.touch(100, 5) && !ranges.touch(0, 10));
        ranges.add(0..200);
        assert_eq!((ranges.0.len(), &ranges.0[0]), (1, &(0..200)));
    }

    #[test]
    fn a_bit_flips_in_each_sector_of_the_range_whatever_the_read() {
        let mut faults = Faults::new(3);
        faults.inject(Fault::FlippedBits(700..2048));
        let mut whole = vec![0; 4096];
        faults.flip_bits(0, &mut whole);
        let flipped = |range: Range<usize>| whole[range].iter().map(|byte| byte.count_ones()).sum::<u32>();
        assert_eq!(
            [flipped(0..700), flipped(700..1024), flipped(1024..1536), flipped(1536..2048)],
            [0, 1, 1, 1]
        );
        assert_eq!(flipped(2048..4096), 0);
        let mut part = vec![0; 600];
        faults.flip_bits(900, &mut part);
        assert_eq!(part, whole[900..1500]);
    }

    #[test]
    fn flaky_operations_fail_at_the_stated_odds() {
        let mut faults = Faults::new(5);
        faults.inject(Fault::Flaky { one_in: 10 });
        let failed = (0..10_000).filter(|_| faults.check_read(0, 512).is_err()).count();
        assert!((800..1200).contains(&failed), "{failed}");
    }
}
