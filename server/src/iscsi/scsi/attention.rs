//! What an initiator is told of a unit without having asked.
//!
//! A unit may become something else than the initiator was told: it is larger, its blocks are, its target has
//! other units, or its room becomes scarce. The initiator is told so in two ways. An asynchronous message
//! comes at once, which it may pass over. The next command to the unit is not done, but answered with the
//! news. Each is told once in each way; where an initiator was answered so before the message was sent, there
//! is no message.
//!
//! Source of the facts: SAM-5, section 5.14; SPC-4, sections 5.1 and 6.33 (REPORT LUNS); RFC 7143, section
//! 11.9.

use super::Sense;

/// What an initiator may know of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// Its blocks.
    pub capacity: u64,
    /// Bytes of a block of the volume.
    pub volume_block_bytes: u32,
    /// There is less room for it than its threshold.
    pub is_scarce: bool,
}

/// What an initiator knows of a unit.
#[derive(Debug)]
pub(super) struct Attentions {
    /// What it was told, or could ask for.
    told: State,
    /// What the last messages said.
    announced: State,
    /// The target has other units than it knows.
    has_other_units: bool,
}

impl Attentions {
    /// Those of a unit that is new to the initiator.
    pub fn new(state: State) -> Self {
        Self { told: state, announced: state, has_other_units: false }
    }

    /// The target has other units.
    pub fn add_other_units(&mut self) {
        self.has_other_units = true;
    }

    /// The initiator asks which units there are.
    pub fn forget_other_units(&mut self) {
        self.has_other_units = false;
    }

    /// What the next command is answered with instead of being done.
    pub fn next(&mut self, now: State) -> Option<Sense> {
        let now = self.if_there(now);
        if std::mem::take(&mut self.has_other_units) {
            return Some(Sense::OTHER_UNITS);
        }
        if std::mem::replace(&mut self.told.capacity, now.capacity) != now.capacity {
            return Some(Sense::CAPACITY_CHANGED);
        }
        let blocks = std::mem::replace(&mut self.told.volume_block_bytes, now.volume_block_bytes);
        if blocks != now.volume_block_bytes {
            return Some(Sense::INQUIRY_CHANGED);
        }
        let was_scarce = std::mem::replace(&mut self.told.is_scarce, now.is_scarce);
        (now.is_scarce && !was_scarce).then_some(Sense::THRESHOLD_REACHED)
    }

    /// A unit without blocks was taken away, and nothing but that is to be said of it.
    fn if_there(&self, now: State) -> State {
        if now.capacity == 0 { self.told } else { now }
    }

    /// What messages are to say.
    pub fn news(&mut self, now: State) -> impl Iterator<Item = Sense> + use<> {
        let now = self.if_there(now);
        let (told, before) = (self.told, std::mem::replace(&mut self.announced, now));
        let capacity = now.capacity != told.capacity && now.capacity != before.capacity;
        let blocks = now.volume_block_bytes;
        let inquiry = blocks != told.volume_block_bytes && blocks != before.volume_block_bytes;
        let is_scarce = now.is_scarce && !told.is_scarce && !before.is_scarce;
        let news = [
            capacity.then_some(Sense::CAPACITY_CHANGED),
            inquiry.then_some(Sense::INQUIRY_CHANGED),
            is_scarce.then_some(Sense::THRESHOLD_REACHED),
        ];
        news.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: State = State { capacity: 100, volume_block_bytes: 8192, is_scarce: false };

    #[test]
    fn each_change_is_told_once_in_each_way() {
        let mut unit = Attentions::new(FIRST);
        let now = State { capacity: 200, volume_block_bytes: 65536, is_scarce: false };
        let both = [Sense::CAPACITY_CHANGED, Sense::INQUIRY_CHANGED];
        assert_eq!(unit.news(FIRST).count(), 0);
        assert_eq!(unit.news(now).collect::<Vec<_>>(), both);
        assert_eq!(unit.news(now).count(), 0);
        unit.add_other_units();
        assert_eq!(unit.next(now), Some(Sense::OTHER_UNITS));
        assert_eq!([unit.next(now), unit.next(now)], both.map(Some));
        assert_eq!(unit.next(now), None);
        // What a command was answered with needs no message.
        assert_eq!(unit.next(FIRST), Some(Sense::CAPACITY_CHANGED));
        assert_eq!(unit.news(FIRST).collect::<Vec<_>>(), [Sense::INQUIRY_CHANGED]);
    }

    #[test]
    fn room_that_becomes_scarce_is_told_and_room_that_there_is_not() {
        let mut unit = Attentions::new(FIRST);
        let scarce = State { is_scarce: true, ..FIRST };
        for _ in 0..2 {
            assert_eq!(unit.news(scarce).collect::<Vec<_>>(), [Sense::THRESHOLD_REACHED]);
            assert_eq!(unit.next(scarce), Some(Sense::THRESHOLD_REACHED));
            assert_eq!((unit.news(scarce).count(), unit.next(scarce)), (0, None));
            assert_eq!((unit.news(FIRST).count(), unit.next(FIRST)), (0, None));
        }
    }

    #[test]
    fn an_initiator_that_asks_for_the_units_need_not_be_told() {
        let mut unit = Attentions::new(FIRST);
        unit.add_other_units();
        unit.forget_other_units();
        assert_eq!(unit.next(FIRST), None);
    }
}
