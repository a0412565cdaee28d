//! Which request comes next: a pure function of the load, the client and what came before.
//!
//! Where blocks are not chosen evenly, the ranks are those of Gray et al., "Quickly generating billion-record
//! synthetic databases" (SIGMOD 1994), which fio's `zipf` is made after too; a hash of the rank says which
//! block that is, so that those asked for most do not lie together.
//!
//! Where sizes differ, as with fio's `bssplit`, each direction has its own. Places are multiples of its
//! smallest size, counted from where the client begins, and the size is drawn for each request, among those
//! that fit between its place and the end. A sequence begins anew where not even the smallest fits.
//!
//! Source of what fio does: fio 3.33, its `HOWTO`, and what it asks an NBD server for.

use crate::api::{Load, SizeShare};

/// Terms of a sum that are added one by one; those after them are taken for an integral.
const EXACT_TERMS: u64 = 1 << 20;

/// The operation, its offset, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Read { offset: u64, bytes: u32 },
    Write { offset: u64, bytes: u32 },
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
            Self::Read { .. } => Kind::Read,
            Self::Write { .. } => Kind::Write,
            Self::Flush => Kind::Flush,
        }
    }

    pub fn bytes(self) -> u64 {
        match self {
            Self::Read { bytes, .. } | Self::Write { bytes, .. } => bytes.into(),
            Self::Flush => 0,
        }
    }
}

/// The sizes of a direction's requests.
fn shares(sizes: &[SizeShare], load: &Load) -> Vec<SizeShare> {
    match sizes {
        [] => vec![SizeShare { bytes: load.block_bytes, percent: 100 }],
        sizes => sizes.to_vec(),
    }
}

/// The smallest and the largest of all requests.
pub(super) fn sizes(load: &Load) -> (u64, u64) {
    let all = [shares(&load.read_sizes, load), shares(&load.write_sizes, load)].concat();
    all.iter().fold((u64::MAX, 1), |(least, most), size| {
        let bytes = u64::from(size.bytes).max(1);
        (least.min(bytes), most.max(bytes))
    })
}

/// From which byte of a volume on a client works, and on how many bytes; nothing where no request fits there.
pub(super) fn region(load: &Load, client: u32, volume_bytes: u64) -> Option<(u64, u64)> {
    let (least, most) = sizes(load);
    let start = u64::from(client).checked_mul(load.offset_increment_bytes)?;
    let start = start.checked_next_multiple_of(least)?;
    let length = load.extent_bytes.min(volume_bytes.checked_sub(start)?);
    (length >= most).then_some((start, length))
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
#[derive(Debug, Clone)]
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

/// The reads or the writes of a client.
#[derive(Debug)]
struct Direction {
    sizes: Vec<SizeShare>,
    /// The smallest of the sizes.
    unit: u64,
    /// Bytes that are worked on, and how many of the smallest size they have room for.
    length: u64,
    units: u64,
    zipf: Option<Zipf>,
    /// Where the next of a sequence is.
    next: u64,
}

impl Direction {
    fn new(sizes: Vec<SizeShare>, length: u64) -> Self {
        let unit = sizes.iter().map(|size| u64::from(size.bytes)).min().unwrap_or(1).max(1);
        Self { sizes, unit, length, units: (length / unit).max(1), zipf: None, next: 0 }
    }

    /// The size of a request at `place`: of those that fit there.
    fn size(&self, place: u64, random: &mut Random) -> u32 {
        if let [size] = self.sizes.as_slice() {
            return size.bytes;
        }
        let fit = || self.sizes.iter().filter(|size| place + u64::from(size.bytes) <= self.length);
        let mut drawn = random.below(fit().map(|size| u64::from(size.percent)).sum());
        for size in fit() {
            match drawn.checked_sub(size.percent.into()) {
                Some(rest) => drawn = rest,
                None => return size.bytes,
            }
        }
        self.unit as u32
    }

    /// Place and size of the next request.
    fn draw(&mut self, is_random: bool, random: &mut Random) -> (u64, u32) {
        let place = match &self.zipf {
            Some(zipf) => mixed(zipf.rank(random)) % self.units * self.unit,
            None if is_random => random.below(self.units) * self.unit,
            None if self.next + self.unit > self.length => 0,
            None => self.next,
        };
        let bytes = self.size(place, random);
        self.next = place + u64::from(bytes);
        (place, bytes)
    }
}

/// The requests of one client, one after the other.
#[derive(Debug)]
pub(super) struct Requests {
    is_random: bool,
    read_percent: u64,
    flush_every: u32,
    /// From which byte of the volume on this client works.
    start: u64,
    reads: Direction,
    writes: Direction,
    random: Random,
    /// Writes since the last flush.
    unflushed: u32,
}

impl Requests {
    /// Of a load that was checked, on a volume of so many bytes.
    pub fn new(load: &Load, client: u32, volume_bytes: u64) -> Self {
        let (start, length) = region(load, client, volume_bytes).unwrap_or((0, load.extent_bytes));
        let mut reads = Direction::new(shares(&load.read_sizes, load), length);
        let mut writes = Direction::new(shares(&load.write_sizes, load), length);
        if let Some(theta) = load.zipf.filter(|_| load.is_random) {
            let zipf = Zipf::new(reads.units, theta);
            writes.zipf =
                Some(if writes.units == reads.units { zipf.clone() } else { Zipf::new(writes.units, theta) });
            reads.zipf = Some(zipf);
        }
        Self {
            is_random: load.is_random,
            read_percent: u64::from(load.read_percent),
            flush_every: load.flush_every,
            start,
            reads,
            writes,
            random: Random::new(load.seed, u64::from(client)),
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
        let direction = if is_read { &mut self.reads } else { &mut self.writes };
        let (place, bytes) = direction.draw(self.is_random, &mut self.random);
        let offset = self.start + place;
        if is_read {
            return Request::Read { offset, bytes };
        }
        self.unflushed = self.unflushed.saturating_add(1);
        Request::Write { offset, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tests::{load, mixed_sizes};

    const VOLUME_BYTES: u64 = 1 << 20;

    /// Offset and size of each of so many requests of a client.
    fn asked(load: &Load, client: u32, count: usize) -> Vec<(Kind, u64, u64)> {
        let mut requests = Requests::new(load, client, VOLUME_BYTES);
        let asked = (0..count).map(|_| requests.next());
        let asked = asked.map(|request| match request {
            Request::Read { offset, .. } | Request::Write { offset, .. } => {
                (request.kind(), offset, request.bytes())
            }
            Request::Flush => panic!("nothing is flushed"),
        });
        asked.collect()
    }

    #[test]
    fn sizes_have_their_shares_and_places_are_multiples_of_the_smallest() {
        let load = Load { is_random: true, read_percent: 50, extent_bytes: VOLUME_BYTES, ..mixed_sizes() };
        for zipf in [None, Some(1.1)] {
            let all = asked(&Load { zipf, ..load.clone() }, 0, 20_000);
            for (kind, sizes, unit) in
                [(Kind::Read, &load.read_sizes, 4096), (Kind::Write, &load.write_sizes, 8192)]
            {
                let its: Vec<_> = all.iter().filter(|(it, ..)| *it == kind).collect();
                assert!(
                    its.iter()
                        .all(|(_, offset, bytes)| offset.is_multiple_of(unit)
                            && offset + bytes <= VOLUME_BYTES)
                );
                assert!(its.iter().any(|(_, offset, bytes)| !offset.is_multiple_of(*bytes)), "{kind:?}");
                for size in sizes {
                    let count = its.iter().filter(|(.., bytes)| *bytes == u64::from(size.bytes)).count();
                    let percent = count as f64 * 100.0 / its.len() as f64;
                    // Near the end the largest do not fit.
                    assert!((percent - f64::from(size.percent)).abs() < 2.0, "{kind:?} {size:?}: {percent}");
                }
            }
        }
    }

    #[test]
    fn a_sequence_of_sizes_has_no_gaps_and_begins_anew_where_the_smallest_does_not_fit() {
        let load = Load { read_percent: 100, extent_bytes: (100 << 10) + 512, ..mixed_sizes() };
        let (mut expected, mut turns) = (0, 0);
        for (_, offset, bytes) in asked(&load, 0, 1000) {
            if offset == 0 && expected > 0 {
                assert!(expected + 4096 > load.extent_bytes, "{expected}");
                (expected, turns) = (0, turns + 1);
            }
            assert!(offset == expected && offset + bytes <= load.extent_bytes);
            expected += bytes;
        }
        assert!(turns > 50, "{turns}");
    }

    #[test]
    fn each_client_begins_further_on_as_far_as_the_volume_goes() {
        let load = Load {
            read_percent: 100,
            clients: 8,
            extent_bytes: VOLUME_BYTES,
            // 12 per cent.
            offset_increment_bytes: VOLUME_BYTES * 12 / 100,
            ..load()
        };
        for client in 0..8 {
            let start = (u64::from(client) * load.offset_increment_bytes).next_multiple_of(4096);
            let all = asked(&load, client, 300);
            let (last, blocks) = ((VOLUME_BYTES - 4096), (VOLUME_BYTES - start) / 4096);
            assert_eq!(all[0].1, start);
            assert_eq!(all.iter().map(|(_, offset, _)| *offset).max(), Some(last.min(start + 299 * 4096)));
            if blocks < 300 {
                assert_eq!(all[blocks as usize].1, start, "client {client}");
            }
            let random = Load { is_random: true, extent_bytes: 64 << 10, ..load.clone() };
            let all = asked(&random, client, 300);
            assert!(all.iter().all(|(_, offset, _)| (start..start + (64 << 10)).contains(offset)));
        }
    }

    #[test]
    fn a_sequence_goes_to_the_last_whole_block_and_begins_anew() {
        let load = Load { extent_bytes: 3 * 4096 + 512, read_percent: 100, ..load() };
        let offsets: Vec<u64> = asked(&load, 0, 5).into_iter().map(|(_, offset, _)| offset).collect();
        assert_eq!(offsets, [0, 4096, 8192, 0, 4096]);
    }

    #[test]
    fn every_so_many_writes_are_flushed() {
        let mut requests = Requests::new(&Load { flush_every: 2, ..load() }, 0, VOLUME_BYTES);
        let kinds: Vec<_> = (0..6).map(|_| requests.next().kind()).collect();
        assert_eq!(kinds, [Kind::Write, Kind::Write, Kind::Flush].repeat(2));
    }

    #[test]
    fn random_requests_are_blocks_of_the_extent_and_the_same_for_the_same_seed() {
        let load = Load { is_random: true, read_percent: 70, extent_bytes: 40 << 10, ..load() };
        let of = |load: &Load, client| asked(load, client, 2000);
        let all = of(&load, 0);
        let mut seen = [0; 10];
        for (_, offset, bytes) in &all {
            assert!(offset % 4096 == 0 && *bytes == 4096);
            seen[(offset / 4096) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (120..280).contains(count)), "{seen:?}");
        let reads = all.iter().filter(|(kind, ..)| *kind == Kind::Read).count();
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
