//! What blocks take on the devices of a pool, before they are written: upper bounds.
//!
//! All figures are deflated bytes, those in which free space and datasets are counted. A block takes whole sectors; on raidz and draid its parity and padding,
//! which are more than usual when it is small; and all that once for each copy. That is the *exact* figure of a block that does not compress and finds a free run.
//!
//! Where no free run is long enough the block becomes a gang: at worst, leaves of the smallest size that can be allocated, and headers above them. A gang splits in three, of whole units;
//! so `n` leaves have fewer than `3n/4` headers (two leaves have one, four or five have two or three, and tripling the leaves adds one header to three times as many).
//! Headers have two copies at least. That is the *worst* figure.

use std::collections::HashMap;

use ondisk::Txg;
use ondisk::blkptr::GANG_HEADER_SIZE;

use crate::alloc::Allocator;
use crate::zio::min_alloc;

/// Copies of a gang header at least.
const GANG_HEADER_COPIES: u64 = 2;
/// Sizes that are remembered: files of one block have all kinds of sizes.
const MOST_KNOWN: usize = 4096;

/// What blocks of a pool take. What was worked out once is remembered until its vdevs may have changed.
#[derive(Debug, Default)]
pub(super) struct Costs {
    txg: Txg,
    /// The smallest allocation; 0 while that is not known.
    unit: u64,
    /// Of one copy of a block, by its size.
    known: HashMap<u64, u64>,
}

impl Costs {
    /// Vdevs may have changed with this group.
    pub(super) fn forget(&mut self, txg: Txg) {
        *self = Self { txg, ..Self::default() };
    }

    /// One copy of a block of `bytes`.
    fn copy(&mut self, allocator: &Allocator, bytes: u64) -> u64 {
        if let Some(known) = self.known.get(&bytes) {
            return *known;
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let takes = allocator.most_for(bytes, self.txg);
        self.known.insert(bytes, takes);
        takes
    }

    /// A block of `bytes` that finds a free run for each of its copies.
    pub(super) fn exact(&mut self, allocator: &Allocator, bytes: u64, copies: u64) -> u64 {
        match bytes {
            0 => 0,
            _ => self.copy(allocator, bytes).saturating_mul(copies),
        }
    }

    /// A block of `bytes` wherever there is space for it.
    pub(super) fn worst(&mut self, allocator: &Allocator, bytes: u64, copies: u64) -> u64 {
        if self.unit == 0 {
            self.unit = min_alloc(allocator.vdevs()).max(1);
        }
        let exact = self.exact(allocator, bytes, copies);
        let leaves = bytes.div_ceil(self.unit);
        if leaves <= 1 {
            return exact;
        }
        let (leaf, header) = (self.copy(allocator, self.unit), self.copy(allocator, GANG_HEADER_SIZE as u64));
        exact.max(gang(
            leaves,
            leaf.saturating_mul(copies),
            header.saturating_mul(copies.max(GANG_HEADER_COPIES)),
        ))
    }
}

/// A gang of so many leaves.
fn gang(leaves: u64, leaf: u64, header: u64) -> u64 {
    let headers = leaves.saturating_mul(3) / 4;
    leaves.saturating_mul(leaf).saturating_add(headers.saturating_mul(header))
}

#[cfg(test)]
mod tests {
    /// Headers of a gang of so many leaves, made as blocks are cut.
    fn headers(units: u64) -> u64 {
        let (mut rest, mut headers) = (units, 1);
        for left in (1..=3).rev() {
            let part = rest.div_ceil(left).min(rest);
            rest -= part;
            headers += if part > 1 { self::headers(part) } else { 0 };
            if rest == 0 {
                break;
            }
        }
        headers
    }

    #[test]
    fn no_gang_has_more_headers_than_counted() {
        for units in 2..5000 {
            assert!(headers(units) <= units * 3 / 4, "{units} units: {} headers", headers(units));
        }
    }
}
