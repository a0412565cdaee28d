//! Logical block provisioning: how much room there is for a thin unit, and when initiators are told that it
//! becomes scarce.
//!
//! # The idea
//! The room is that of the pool, or of the quota that bounds the volume the most; others may take of it. It
//! is counted in sets of [`SET_BYTES`]. There is one threshold, on what is available: a share of the room,
//! which the volume's share says. When less is left, initiators are told once, and again after there was
//! enough ([`Scarcity`]). Nothing of this can be changed by initiators.
//!
//! | where | what |
//! |---|---|
//! | VPD page B2h | the blocks of a set, as a power of two |
//! | log page 0Ch | sets that are available (1), and that are used (2) |
//! | mode page 1Ch, 02h | the threshold |
//!
//! Source of the facts: SBC-3, sections 4.7.3.8, 6.4.3, 6.5.7 and 6.6.6.

use crate::block::{Percent, Room};

/// Bytes of a set.
const SET_BYTES: u64 = 1 << 20;
/// So much more than the threshold has to be available, as a part of the room, before it is enough again.
const CALM_PART: u64 = 32;

/// The number of the log page.
pub(super) const LOG_PAGE: u8 = 0x0c;

/// The room for a unit and its threshold, in sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Provisioning {
    available: u32,
    used: u32,
    threshold: u32,
}

impl Provisioning {
    /// Of a unit whose volume has this room.
    pub fn new(room: Room, threshold: Percent) -> Self {
        let sets = |bytes: u64| u32::try_from(bytes / SET_BYTES).unwrap_or(u32::MAX);
        let Room { left_bytes, most_bytes } = room;
        Self {
            available: sets(left_bytes),
            used: sets(most_bytes.saturating_sub(left_bytes)),
            threshold: sets(threshold.rest_of(most_bytes)),
        }
    }

    /// The blocks of a set, as a power of two, for a unit with blocks of so many bytes.
    pub fn exponent(block_bytes: u32) -> u8 {
        (SET_BYTES / u64::from(block_bytes)).ilog2() as u8
    }

    /// The parameters of the log page from this code on.
    pub fn log(self, first: u16) -> Option<Vec<u8>> {
        let parameters = [(1u16, self.available), (2, self.used)];
        let mut body = Vec::new();
        for (code, count) in parameters.into_iter().filter(|(code, _)| *code >= first) {
            body.extend(code.to_be_bytes());
            // Not kept by the unit; a list in binary form of 8 bytes.
            body.extend([0x23, 8]);
            body.extend(count.to_be_bytes());
            // Other units take of the same.
            body.extend([2, 0, 0, 0]);
        }
        (!body.is_empty()).then_some(body)
    }

    /// The mode page: one soft threshold, which what is available falls below. All initiators are told.
    pub fn mode_page(self) -> [u8; 24] {
        let [a, b, c, d] = self.threshold.to_be_bytes();
        [0x5c, 2, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0, 0, a, b, c, d]
    }
}

/// Whether the room of a unit is scarce, as its initiator is told.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scarcity(bool);

impl Scarcity {
    /// What it is with this room: once scarce, there has to be a little more than enough.
    pub fn next(self, room: Option<Room>, threshold: Percent) -> Self {
        let Some(room) = room else { return Self(false) };
        let calm = if self.0 { room.most_bytes / CALM_PART } else { 0 };
        Self(Room { left_bytes: room.left_bytes.saturating_sub(calm), ..room }.is_beyond(threshold))
    }

    /// Whether it is.
    pub fn is_scarce(self) -> bool {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn room(left: u64) -> Room {
        Room { left_bytes: left * MIB, most_bytes: 1000 * MIB }
    }

    #[test]
    fn room_becomes_scarce_below_the_threshold_and_enough_a_little_above() {
        let next = |scarcity: Scarcity, left| scarcity.next(Some(room(left)), Percent::OF_ROOM);
        let mut scarcity = Scarcity::default();
        for (left, is_scarce) in [(101, false), (100, false), (99, true), (110, true), (132, false)] {
            scarcity = next(scarcity, left);
            assert_eq!(scarcity.is_scarce(), is_scarce, "{left} left");
        }
        assert!(!next(scarcity, 99).next(None, Percent::OF_ROOM).is_scarce());
    }

    #[test]
    fn sets_are_counted_in_both_pages() {
        let provisioning = Provisioning::new(room(300), Percent::OF_ROOM);
        let log = provisioning.log(0).expect("all parameters");
        let count = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((log.len(), count(4), count(16)), (24, 300, 700));
        assert_eq!(provisioning.log(2).map(|log| log.len()), Some(12));
        assert_eq!(provisioning.log(3), None);
        assert_eq!(provisioning.mode_page()[20..], 100u32.to_be_bytes());
        assert_eq!((Provisioning::exponent(512), Provisioning::exponent(4096)), (11, 8));
    }
}
