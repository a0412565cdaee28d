//! From the log to the disks after a power cut.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::record::{Event, SECTOR_BYTES};
use super::{Disk, Recorder};
use crate::Rng;

/// Goes through a log, forwards, and gives disks as a power cut could leave them.
#[derive(Clone)]
pub struct Player {
    log: std::sync::Arc<[Event]>,
    point: usize,
    /// What nothing can take away any more.
    durable: Vec<Disk>,
    /// Places in the log of changes that may be lost, by device.
    volatile: Vec<BTreeSet<usize>>,
    /// When those were answered.
    answered: HashMap<usize, usize>,
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Player(at {} of {})", self.point, self.log.len())
    }
}

impl Player {
    /// At the beginning of what was recorded up to now.
    pub fn new(recorder: &Recorder) -> Self {
        let (durable, log) = recorder.recorded();
        let volatile = vec![BTreeSet::new(); durable.len()];
        Self { log: log.into(), point: 0, durable, volatile, answered: HashMap::new() }
    }

    /// The last point.
    pub fn end(&self) -> usize {
        self.log.len()
    }

    /// How many changes may be lost at the present point.
    pub fn volatile(&self) -> usize {
        self.volatile.iter().map(BTreeSet::len).sum()
    }

    /// Goes forward to `point`: so many events have happened.
    pub fn advance(&mut self, point: usize) {
        while self.point < point.min(self.log.len()) {
            match &self.log[self.point] {
                Event::Write { device, .. } | Event::Discard { device, .. } => {
                    self.volatile[*device].insert(self.point);
                }
                Event::Done { begun } => {
                    self.answered.insert(*begun, self.point);
                }
                Event::DoneDurably { begun } => self.keep(*begun),
                Event::Flushed { device, begun } => self.flush(*device, *begun),
            }
            self.point += 1;
        }
    }

    /// A flush covers what was answered before it was given to the device.
    fn flush(&mut self, device: usize, begun: usize) {
        let covered = |at: &usize| self.answered.get(at).is_some_and(|answered| *answered < begun);
        let (safe, rest) = self.volatile[device].iter().copied().partition::<BTreeSet<_>, _>(covered);
        for at in safe {
            apply(&mut self.durable[device], &self.log[at], |_| true);
            self.answered.remove(&at);
        }
        self.volatile[device] = rest;
    }

    /// A write is durable by itself. What lies below it and was given to the device before cannot come back
    /// on top of it.
    fn keep(&mut self, begun: usize) {
        let log = std::sync::Arc::clone(&self.log);
        let Some((device, range)) = log.get(begun).and_then(place) else { return };
        let is_below = |at: &usize| {
            place(&log[*at]).is_some_and(|(_, other)| other.start < range.end && range.start < other.end)
        };
        let safe: Vec<_> = self.volatile[device].range(..=begun).copied().filter(is_below).collect();
        for at in safe {
            apply(&mut self.durable[device], &log[at], |_| true);
            self.volatile[device].remove(&at);
            self.answered.remove(&at);
        }
    }

    /// The disks as a power cut here could leave them. The generator decides which unflushed changes are
    /// there.
    pub fn disks_after_power_cut(&self, rng: &mut Rng) -> Vec<Disk> {
        let mut disks = self.durable.clone();
        for (disk, volatile) in disks.iter_mut().zip(&self.volatile) {
            let fate = Fate::new(rng, volatile.len() as u64);
            for (number, at) in volatile.iter().enumerate() {
                match fate.of(rng, number as u64) {
                    Arrived::No => {}
                    Arrived::Whole => apply(disk, &self.log[*at], |_| true),
                    Arrived::Torn => {
                        let tear = Tear::new(rng, &self.log[*at]);
                        apply(disk, &self.log[*at], |sector| tear.keeps(sector));
                    }
                }
            }
        }
        disks
    }
}

enum Arrived {
    No,
    Whole,
    Torn,
}

/// What becomes of the unflushed changes of one device: kinds of power cuts that find different mistakes.
enum Fate {
    /// Each change has this chance in 16 to arrive, and one of those in four is torn.
    Chance(u64),
    /// The first ones arrive, the next is torn, the others are lost.
    UpTo(u64),
    /// The first ones are lost: the device wrote in the opposite order.
    From(u64),
    /// All but one arrive.
    AllBut(u64),
    /// One arrives.
    Only(u64),
}

impl Fate {
    fn new(rng: &mut Rng, changes: u64) -> Self {
        match rng.below(10) {
            0 => Self::Chance(0),
            1 => Self::Chance(16),
            2 => Self::Chance(1),
            3 => Self::Chance(15),
            4 | 5 => Self::Chance(8),
            6 => Self::UpTo(rng.below(changes)),
            7 => Self::From(rng.below(changes)),
            8 => Self::AllBut(rng.below(changes)),
            _ => Self::Only(rng.below(changes)),
        }
    }

    fn of(&self, rng: &mut Rng, number: u64) -> Arrived {
        let whole = |arrived| if arrived { Arrived::Whole } else { Arrived::No };
        match *self {
            Self::Chance(chance @ (0 | 16)) => whole(chance == 16),
            Self::Chance(chance) => match rng.below(16) < chance {
                true if rng.once_in(4) => Arrived::Torn,
                arrived => whole(arrived),
            },
            Self::UpTo(last) if number == last => Arrived::Torn,
            Self::UpTo(last) => whole(number < last),
            Self::From(first) => whole(number >= first),
            Self::AllBut(lost) => whole(number != lost),
            Self::Only(one) => whole(number == one),
        }
    }
}

/// Which sectors of a torn change arrive.
enum Tear {
    Before(u64),
    After(u64),
    /// Each with even chance, by the bits of a generator.
    Some(u64),
}

impl Tear {
    fn new(rng: &mut Rng, event: &Event) -> Self {
        let length = match event {
            Event::Write { bytes, .. } => bytes.len() as u64,
            Event::Discard { length, .. } => *length,
            _ => 0,
        };
        let sectors = length / SECTOR_BYTES;
        match rng.below(3) {
            0 => Self::Before(rng.below(sectors + 1)),
            1 => Self::After(rng.below(sectors + 1)),
            _ => Self::Some(rng.next_u64()),
        }
    }

    fn keeps(&self, sector: u64) -> bool {
        match *self {
            Self::Before(limit) => sector < limit,
            Self::After(limit) => sector >= limit,
            Self::Some(seed) => Rng::new(seed ^ sector).once_in(2),
        }
    }
}

/// The device that an event changes, and where.
fn place(event: &Event) -> Option<(usize, Range<u64>)> {
    match event {
        Event::Write { device, offset, bytes } => Some((*device, *offset..offset + bytes.len() as u64)),
        Event::Discard { device, offset, length } => Some((*device, *offset..offset + length)),
        Event::Done { .. } | Event::DoneDurably { .. } | Event::Flushed { .. } => None,
    }
}

/// Makes a change, of whose sectors those arrive that `keeps` names.
fn apply(disk: &mut Disk, event: &Event, keeps: impl Fn(u64) -> bool) {
    match event {
        Event::Write { offset, bytes, .. } => {
            for (sector, piece) in bytes.chunks(SECTOR_BYTES as usize).enumerate() {
                if keeps(sector as u64) {
                    disk.write(offset + sector as u64 * SECTOR_BYTES, piece);
                }
            }
        }
        Event::Discard { offset, length, .. } => {
            for sector in (0..length / SECTOR_BYTES).filter(|sector| keeps(*sector)) {
                disk.clear(offset + sector * SECTOR_BYTES, SECTOR_BYTES);
            }
        }
        Event::Done { .. } | Event::DoneDurably { .. } | Event::Flushed { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{Device, IoBuf, block_on};

    fn write(device: &impl Device, sector: u64, fill: u8) {
        block_on(device.write(sector * 512, IoBuf::from(&[fill; 1024][..]))).unwrap();
    }

    fn byte(disk: &Disk, sector: u64) -> u8 {
        let mut bytes = [0; 512];
        disk.read(sector * 512, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "sectors are not torn");
        bytes[0]
    }

    #[test]
    fn flushed_writes_are_there_and_all_others_may_be() {
        let recorder = Recorder::new(1);
        let device = recorder.device("a", Disk::new(1 << 20));
        let other = recorder.device("b", Disk::new(1 << 20));
        write(&*device, 0, 1);
        write(&*other, 0, 1);
        block_on(device.flush()).unwrap();
        write(&*device, 0, 2);
        write(&*device, 8, 3);
        let mut player = Player::new(&recorder);
        player.advance(player.end());
        assert_eq!(player.volatile(), 3);
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let disks = player.disks_after_power_cut(&mut Rng::new(seed));
            let again = player.disks_after_power_cut(&mut Rng::new(seed));
            let state = |disks: &[Disk]| {
                [byte(&disks[0], 0), byte(&disks[0], 1), byte(&disks[0], 8), byte(&disks[1], 0)]
            };
            assert_eq!(state(&disks), state(&again), "a seed reproduces");
            seen.insert(state(&disks));
        }
        assert!(seen.iter().all(|[a, b, ..]| *a >= 1 && *b >= 1), "nothing can take a flushed write away");
        for expected in [[1, 1, 0, 0], [2, 2, 3, 1], [1, 1, 3, 0], [2, 2, 0, 1], [2, 1, 0, 0], [1, 2, 3, 1]] {
            assert!(seen.contains(&expected), "{expected:?}");
        }
    }

    #[test]
    fn what_was_written_durably_is_there_and_nothing_older_on_top_of_it() {
        let recorder = Recorder::new(1);
        let device = recorder.device("a", Disk::new(1 << 20));
        write(&*device, 0, 1);
        write(&*device, 8, 1);
        let data = IoBuf::from(&[2; 1024][..]).into();
        block_on(device.write_durably(0, vec![data])).unwrap();
        write(&*device, 1, 3);
        let mut player = Player::new(&recorder);
        player.advance(player.end());
        let state = |seed| {
            let disks = player.disks_after_power_cut(&mut Rng::new(seed));
            [byte(&disks[0], 0), byte(&disks[0], 1), byte(&disks[0], 8)]
        };
        let seen: BTreeSet<_> = (0..200).map(state).collect();
        assert_eq!(seen, BTreeSet::from([[2, 2, 0], [2, 2, 1], [2, 3, 0], [2, 3, 1]]));
    }

    #[test]
    fn a_flush_does_not_cover_what_was_not_answered_when_it_began() {
        // Late answers: the seed makes the write take turns.
        let covered = |seed| {
            let recorder = Recorder::new(seed);
            let device = recorder.device("a", Disk::new(1 << 20));
            block_on(async {
                let mut write = device.write(0, IoBuf::from(&[1; 512][..]));
                let polled = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(write.as_mut().poll(context).is_ready())
                });
                let answered = polled.await;
                device.flush().await.unwrap();
                if !answered {
                    write.await.unwrap();
                }
                let mut player = Player::new(&recorder);
                player.advance(player.end());
                (answered, player.volatile() == 0)
            })
        };
        let all: BTreeSet<_> = (0..40).map(covered).collect();
        assert_eq!(all, BTreeSet::from([(true, true), (false, false)]));
    }

    #[test]
    fn points_go_through_the_log_in_order() {
        let recorder = Recorder::new(3);
        let device = recorder.device("a", Disk::new(1 << 20));
        for fill in 1..=5 {
            write(&*device, 0, fill);
            block_on(device.flush()).unwrap();
        }
        let mut player = Player::new(&recorder);
        let mut before = 0;
        for point in 0..=player.end() {
            player.advance(point);
            let [disk] = &player.disks_after_power_cut(&mut Rng::new(7))[..] else { panic!() };
            let now = byte(disk, 0).min(byte(disk, 1));
            assert!(now + 1 >= before, "a flushed write disappeared");
            before = before.max(now);
        }
        assert_eq!(before, 5);
    }
}
