//! Which vdev gives the next block (OpenZFS: metaslab class and its rotor).
//!
//! A rotor stays on one vdev until the vdev's share, the *aliquot*, is taken, then moves on, so that
//! neighbours in a file lie together on one vdev and long writes keep all vdevs busy. Emptier vdevs have
//! larger shares: in the long run all fill up together.

use super::group::Totals;

/// An almost full vdev keeps this part of its share; an empty vdev among full ones has at most this many
/// shares.
const MAX_BIAS: u64 = 8;

/// The turn of the vdevs of one class.
#[derive(Debug, Default)]
pub struct Rotor {
    /// The indices of the groups.
    pub members: Vec<usize>,
    /// The member whose turn it is.
    at: usize,
    /// The bytes taken in this turn.
    taken_bytes: u64,
}

impl Rotor {
    /// The members in the order in which they are tried.
    pub fn order(&self) -> impl Iterator<Item = usize> + '_ {
        let (before, from) = self.members.split_at(self.at.min(self.members.len()));
        from.iter().chain(before).copied()
    }

    /// Notes that `size` bytes were taken from `group`, whose share is `share_bytes`.
    pub fn took(&mut self, group: usize, size: u64, share_bytes: u64) {
        if self.members.get(self.at) != Some(&group) {
            // The members before it could give nothing.
            self.at = self.members.iter().position(|&member| member == group).unwrap_or(0);
            self.taken_bytes = 0;
        }
        self.taken_bytes += size;
        if self.taken_bytes >= share_bytes {
            self.taken_bytes = 0;
            self.at = (self.at + 1) % self.members.len().max(1);
        }
    }
}

/// The share of a vdev: its aliquot, scaled by how much emptier it is than its class.
pub fn share(aliquot_bytes: u64, vdev: Totals, class: Totals) -> u64 {
    let of_vdev = u128::from(vdev.free()) * u128::from(class.size);
    let of_class = u128::from(class.free()) * u128::from(vdev.size);
    let share = u128::from(aliquot_bytes).saturating_mul(of_vdev).checked_div(of_class).unwrap_or(0);
    let share = u64::try_from(share).unwrap_or(u64::MAX);
    share.clamp(aliquot_bytes / MAX_BIAS, aliquot_bytes.saturating_mul(MAX_BIAS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn() {
        let mut rotor = Rotor { members: vec![3, 5, 9], ..Rotor::default() };
        let mut taken = Vec::new();
        for _ in 0..6 {
            let first = rotor.order().next().unwrap();
            taken.push(first);
            rotor.took(first, 60, 100);
        }
        assert_eq!(taken, [3, 3, 5, 5, 9, 9]);
        rotor.took(9, 60, 100);
        assert_eq!(rotor.order().collect::<Vec<_>>(), [9, 3, 5]);
    }

    #[test]
    fn emptier_vdevs_have_larger_shares() {
        let total = |allocated| Totals { size: 100, allocated, waiting: 0 };
        let class = Totals { size: 200, allocated: 110, waiting: 0 };
        let (full, empty) = (share(1000, total(90), class), share(1000, total(20), class));
        assert_eq!((full, empty), (222, 1777));
        assert_eq!(share(1000, total(100), class), 125);
        assert_eq!(share(1000, total(0), Totals { size: 10_000, allocated: 9_999, waiting: 0 }), 8000);
    }
}
