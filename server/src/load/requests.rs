//! Which request comes next: a pure function of the load, the client and what came before.
//!
//! Where blocks are not chosen evenly, the ranks are those of Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994), which fio's `zipf` is made after
//! too; a hash of the rank says which block that is, so that those asked for most do not lie together.

use crate::api::Load;

/// Terms of a sum that are added one by one; those after them are taken for an integral.
const EXACT_TERMS: u64 = 1 << 20;

/// What is asked for, and from which byte on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Read(u64),
    Write(u64),
    Flush,
}

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Flush,
}

impl Request {
    pub fn kind(self) -> Kind {
        match self {
            Self::Read(_) => Kind::Read,
            Self::Write(_) => Kind::Write,
            Self::Flush => Kind::Flush,
        }
    }
}

/// Numbers that look random: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// Another sequence for each seed and number.
    pub fn new(seed: u64, number: u64) -> Self {
        Self(mixed(seed).wrapping_add(mixed(number ^ 0x5851_f42d_4c95_7f2d)))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// From 0 to less than 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A number of which each bit depends on all of `number`'s.
pub(super) fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Ranks from 0 on, of which the first is drawn most often.
#[derive(Debug)]
struct Zipf {
    count: f64,
    theta: f64,
    /// The sum of all ranks' weights; the first rank's is 1.
    weights: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Self {
        let exact = count.min(EXACT_TERMS);
        let sum = |terms: u64| (1..=terms).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        // Of the ranks after those, each weight is about the integral around it.
        let primitive = |rank: f64| (rank + 0.5).powf(1.0 - theta) / (1.0 - theta);
        let weights = sum(exact) + primitive(count as f64) - primitive(exact as f64);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - sum(2) / weights);
        Self { count: count as f64, theta, weights, eta }
    }

    fn rank(&self, random: &mut Random) -> u64 {
        let share = random.share();
        let weight = share * self.weights;
        if weight < 1.0 || self.count < 3.0 {
            return u64::from(weight >= 1.0);
        }
        if weight < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let place = (self.eta * share - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
        (self.count * place).clamp(0.0, self.count - 1.0) as u64
    }
}

/// The requests of one client, one after the other.
#[derive(Debug)]
pub(super) struct Requests {
    is_random: bool,
    read_percent: u64,
    block_bytes: u64,
    blocks: u64,
    flush_every: u32,
    zipf: Option<Zipf>,
    random: Random,
    /// Where the next read and the next write of a sequence are.
    places: [u64; 2],
    /// Writes since the last flush.
    unflushed: u32,
}

impl Requests {
    /// Of a load that was checked.
    pub fn new(load: &Load, client: u32) -> Self {
        let block_bytes = u64::from(load.block_bytes).max(1);
        let blocks = (load.extent_bytes / block_bytes).max(1);
        Self {
            is_random: load.is_random,
            read_percent: u64::from(load.read_percent),
            block_bytes,
            blocks,
            flush_every: load.flush_every,
            zipf: load.zipf.filter(|_| load.is_random).map(|theta| Zipf::new(blocks, theta)),
            random: Random::new(load.seed, u64::from(client)),
            places: [0; 2],
            unflushed: 0,
        }
    }

    pub fn next(&mut self) -> Request {
        if self.flush_every > 0 && self.unflushed >= self.flush_every {
            self.unflushed = 0;
            return Request::Flush;
        }
        let is_read = match self.read_percent {
            0 => false,
            100.. => true,
            percent => self.random.below(100) < percent,
        };
        let block = match &self.zipf {
            Some(zipf) => mixed(zipf.rank(&mut self.random)) % self.blocks,
            None if self.is_random => self.random.below(self.blocks),
            None => {
                let place = &mut self.places[usize::from(is_read)];
                let block = *place;
                *place = (block + 1) % self.blocks;
                block
            }
        };
        let offset = block * self.block_bytes;
        if is_read {
            return Request::Read(offset);
        }
        self.unflushed = self.unflushed.saturating_add(1);
        Request::Write(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tests::load;

    #[test]
    fn a_sequence_goes_to_the_last_whole_block_and_begins_anew() {
        let load = Load { extent_bytes: 3 * 4096 + 512, read_percent: 100, ..load() };
        let mut requests = Requests::new(&load, 0);
        let offsets: Vec<_> = (0..5).map(|_| requests.next()).collect();
        assert_eq!(offsets, [0, 4096, 8192, 0, 4096].map(Request::Read));
    }

    #[test]
    fn every_so_many_writes_are_flushed() {
        let mut requests = Requests::new(&Load { flush_every: 2, ..load() }, 0);
        let kinds: Vec<_> = (0..6).map(|_| requests.next().kind()).collect();
        assert_eq!(kinds, [Kind::Write, Kind::Write, Kind::Flush].repeat(2));
    }

    #[test]
    fn random_requests_are_blocks_of_the_extent_and_the_same_for_the_same_seed() {
        let load = Load { is_random: true, read_percent: 70, extent_bytes: 40 << 10, ..load() };
        let of = |load: &Load, client| {
            let mut requests = Requests::new(load, client);
            (0..2000).map(|_| requests.next()).collect::<Vec<_>>()
        };
        let all = of(&load, 0);
        let mut seen = [0; 10];
        for request in &all {
            let (Request::Read(offset) | Request::Write(offset)) = request else { panic!("{request:?}") };
            assert_eq!(offset % 4096, 0);
            seen[(offset / 4096) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (120..280).contains(count)), "{seen:?}");
        let reads = all.iter().filter(|request| request.kind() == Kind::Read).count();
        assert!((1300..1500).contains(&reads), "{reads}");
        assert_eq!(all, of(&load, 0));
        assert!(all != of(&load, 1) && all != of(&Load { seed: 8, ..load }, 0));
    }

    #[test]
    fn few_blocks_get_most_where_that_is_wanted() {
        for (theta, count) in [(0.6, 1000), (1.1, 1000), (1.2, 3 << 20)] {
            let zipf = Zipf::new(count, theta);
            let mut random = Random::new(1, 0);
            let draws = 100_000;
            let mut first = [0_u32; 2];
            let mut within_tenth = 0;
            for _ in 0..draws {
                let rank = zipf.rank(&mut random);
                assert!(rank < count);
                if let Some(count) = first.get_mut(rank as usize) {
                    *count += 1;
                }
                within_tenth += u32::from(rank < count / 10);
            }
            // By their weights, summed here one by one.
            let weights = |to: u64| (1..=to).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
            let all = weights(count);
            let near = |got: u32, wanted: f64, by: f64| {
                assert!((f64::from(got) / f64::from(draws) - wanted).abs() < by, "{theta}: {got} {wanted}");
            };
            near(first[0], 1.0 / all, 0.01);
            near(first[1], 2_f64.powf(-theta) / all, 0.01);
            near(within_tenth, weights(count / 10) / all, 0.05);
        }
        for count in 1..4 {
            let zipf = Zipf::new(count, 1.1);
            let mut random = Random::new(1, 0);
            assert!((0..1000).all(|_| zipf.rank(&mut random) < count), "{count}");
        }
    }
}
