//! A filter in memory that knows of most new blocks that no table has them.
//!
//! # The idea
//! Every block that is written with `dedup` is looked for in a table. Of a block that is new this finds
//! nothing, and while the table is larger than memory it costs a read or two of a device. The filter is a
//! Bloom filter over the keys of all tables: a key sets some bits, and a key of which a bit is not set is in
//! no table. So most new blocks need no read. The bits of a key lie within 64 bytes, one line of a
//! processor's cache.
//!
//! # Why it is never wrong
//! Wrong would be *not there* for a key that a ZAP of entries has. It is asked only for keys that are neither
//! live nor in a log, and used only when it is complete. Then each key in a ZAP is in it:
//!
//! - Bits are set and never cleared. An entry that goes leaves its bits, and costs a read that is not needed.
//! - A filter begins, empty, when a group's changes begin to be written ([`Filters::begin`]). Nothing is live
//!   then. It takes all keys of the logs at once, and from then on the key of every entry that changes,
//!   before the change is written ([`Filters::enter`]).
//! - So a key that is *not* in it from then on does not move: it stays in the ZAP where it was when the
//!   filter began. The job that fills it walks all ZAPs of the state that was committed then, or later
//!   ones, by hash, and meets all keys that do not move. Where it goes on in a newer state, leaves may
//!   have split; the order of hashes is the same.
//! - Only when the job has met the last key of the last ZAP the filter counts as complete
//!   ([`Filters::complete`]). A walk that meets damage ends without that, and every key *may be* there.
//!
//! Nothing of it is on disk. So after a crash, an import, an export, a rewind to an older group or to a
//! checkpoint there is none, until a new one was made from what is there then. A prune only removes keys. A
//! table that ends, and comes back with the other kind of values, has the same keys: the filter is about
//! keys, of all tables.
//!
//! If it were wrong all the same, nothing would be lost: the new entry would meet the old one in its ZAP, and
//! the pool would stop before the group is committed.
//!
//! # What it costs
//! It is made with 16 bits for each entry, and made anew when the entries are twice as many. It counts as
//! part of the ARC's budget, and takes no more than `zfs_dedup_filter_max` and an eighth of the ARC; where
//! that is less than 4 bits an entry there is none. While it is made anew, the old one and the new one are in
//! memory.
//!
//! | bits an entry | bytes for 33.6 million entries | new blocks that are looked for all the same |
//! |---|---|---|
//! | 16 (just made) | 67 MB | 0.12 % |
//! | 8 (twice the entries) | 34 MB | 2.3 % |
//! | 4 (the least) | 17 MB | 21 % |
//!
//! To make it costs a walk over the ZAPs, in the order of their leaves, beside everything else, without a
//! place in the ARC. [`tests`] measures the last column.

use std::sync::Arc;

use ondisk::blkptr::ChecksumType;
use ondisk::ddt::DdtKey;

use super::kept::Words;
use crate::cache::ArcCache;
use crate::tunables;

/// 64-bit words of a line: all bits of a key lie in one.
const LINE_WORDS: usize = 8;
/// Bits that a key sets.
const BITS_OF_KEY: u32 = 6;
/// Bits for each entry of a new filter, and the least that is worth it.
const BITS: u64 = 16;
const LEAST_BITS: u64 = 4;
/// The entries that a small filter is made for.
const LEAST_ENTRIES: u64 = 1 << 14;
/// The part of the ARC's budget that filters may take: one in this many.
const CACHE_SHARE: u64 = 8;

/// One filter.
#[derive(Debug)]
struct Filter {
    lines: Box<[[u64; LINE_WORDS]]>,
    /// Keys that were entered and set a bit.
    entered: u64,
    /// What is worth a new one: so many of them.
    full: u64,
}

/// Spreads the bits of a number over all 64 (the finalizer of SplitMix64).
const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Two hashes of an entry. Its checksum is mixed anew: edonr and blake3 are trusted no more than the others.
fn hashes(checksum: ChecksumType, words: &Words) -> (u64, u64) {
    let [first, second, third, fourth, prop] = *words;
    let line = mix(first ^ third.rotate_left(32) ^ mix(prop ^ u64::from(checksum.raw()) << 56));
    (line, mix(second ^ fourth.rotate_left(32) ^ line))
}

impl Filter {
    /// A filter for so many entries, of at most so many bytes. None where that is not worth it.
    fn new(entries: u64, most_bytes: u64) -> Option<Self> {
        let entries = entries.max(LEAST_ENTRIES);
        let bytes = (entries.saturating_mul(BITS) / 8).min(most_bytes);
        if bytes < entries.saturating_mul(LEAST_BITS) / 8 {
            return None;
        }
        let lines = usize::try_from(bytes / (LINE_WORDS as u64 * 8)).ok().filter(|lines| *lines > 0)?;
        let lines = vec![[0; LINE_WORDS]; lines].into_boxed_slice();
        Some(Self { lines, entered: 0, full: entries.saturating_mul(2) })
    }

    fn bytes(&self) -> u64 {
        size_of_val(&*self.lines) as u64
    }

    fn line(&self, hash: u64) -> usize {
        // The product has the line in its upper half.
        ((u128::from(hash) * self.lines.len() as u128) >> 64) as usize
    }

    fn bits(hash: u64) -> impl Iterator<Item = (usize, u64)> {
        let bit = move |number| (hash >> (number * 9)) as usize % (LINE_WORDS * 64);
        (0..BITS_OF_KEY).map(bit).map(|bit| (bit / 64, 1 << (bit % 64)))
    }

    fn enter(&mut self, (line, bits): (u64, u64)) {
        let at = self.line(line);
        let Some(line) = self.lines.get_mut(at) else { return };
        let mut is_new = false;
        for (word, bit) in Self::bits(bits) {
            let word = &mut line[word % LINE_WORDS];
            is_new |= *word & bit == 0;
            *word |= bit;
        }
        self.entered += u64::from(is_new);
    }

    fn may_have(&self, (line, bits): (u64, u64)) -> bool {
        let line = self.lines.get(self.line(line));
        line.is_none_or(|line| Self::bits(bits).all(|(word, bit)| line[word % LINE_WORDS] & bit != 0))
    }
}

/// The filter of a pool, and the next one.
#[derive(Debug, Default)]
pub(super) struct Filters {
    complete: Option<Filter>,
    begun: Option<Filter>,
    /// Whether a walk fills the one that has begun.
    is_filled: bool,
    /// A walk met damage: there is none until the next import.
    has_failed: bool,
    /// Whose budget they are part of, and so many bytes of it.
    cache: Option<Arc<ArcCache>>,
    accounted_bytes: u64,
}

impl Filters {
    /// The filters of a pool with this cache.
    pub(super) fn within(cache: &Arc<ArcCache>) -> Self {
        let mut filters = Self::default();
        filters.cache = Some(Arc::clone(cache));
        filters
    }

    /// Whether one has begun that no walk fills. The caller's walk does so from now on.
    pub(super) fn take_to_fill(&mut self) -> bool {
        self.begun.is_some() && !std::mem::replace(&mut self.is_filled, true)
    }

    fn most_bytes(&self) -> u64 {
        let share = self.cache.as_ref().map_or(u64::MAX, |cache| cache.budget_bytes() / CACHE_SHARE);
        tunables::ZFS_DEDUP_FILTER_MAX.get().min(share)
    }

    /// Whether one should begin for tables of so many entries.
    pub(super) fn is_due(&self, entries: u64) -> bool {
        let is_full = self.complete.as_ref().is_none_or(|filter| filter.entered >= filter.full);
        is_full && self.begun.is_none() && !self.has_failed && entries > 0
    }

    /// Begins one for tables of so many entries, with these keys. Must be called when a group's changes begin
    /// to be written and nothing is live, with all keys of all logs. False where none is worth it.
    pub(super) fn begin<'a>(
        &mut self,
        entries: u64,
        keys: impl Iterator<Item = (ChecksumType, &'a Words)>,
    ) -> bool {
        // A full one is of some use until then, but not beyond its bounds.
        if self.complete.as_ref().is_some_and(|filter| filter.bytes() > self.most_bytes()) {
            self.complete = None;
        }
        (self.begun, self.is_filled) = (Filter::new(entries, self.most_bytes()), false);
        if let Some(begun) = &mut self.begun {
            keys.for_each(|(checksum, words)| begun.enter(hashes(checksum, words)));
        }
        self.account();
        self.begun.is_some()
    }

    /// Enters a key: one whose entry changes, or one that the walk met.
    pub(super) fn enter(&mut self, checksum: ChecksumType, words: &Words) {
        let hashes = hashes(checksum, words);
        self.complete.iter_mut().chain(&mut self.begun).for_each(|filter| filter.enter(hashes));
    }

    /// Enters a key that the walk met, into the filter that is being made.
    pub(super) fn meet(&mut self, checksum: ChecksumType, key: &DdtKey) {
        if let Some(begun) = &mut self.begun {
            begun.enter(hashes(checksum, &key.words()));
        }
    }

    /// The walk has met all keys of all ZAPs.
    pub(super) fn complete(&mut self) {
        if let Some(mut begun) = self.begun.take() {
            begun.full = begun.full.max(begun.entered.saturating_mul(2));
            self.complete = Some(begun);
        }
        self.account();
    }

    /// The walk could not go on.
    pub(super) fn fail(&mut self) {
        (self.begun, self.has_failed) = (None, true);
        self.account();
    }

    /// Whether a key that is neither live nor in a log may be in a ZAP.
    pub(super) fn may_have(&self, checksum: ChecksumType, words: &Words) -> bool {
        self.complete.as_ref().is_none_or(|filter| filter.may_have(hashes(checksum, words)))
    }

    /// Whether one is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.is_some()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.complete.iter().chain(&self.begun).map(Filter::bytes).sum()
    }

    fn account(&mut self) {
        let bytes = self.bytes();
        if let Some(cache) = &self.cache {
            cache.account_index(std::mem::replace(&mut self.accounted_bytes, bytes), bytes);
        }
    }
}

impl Drop for Filters {
    fn drop(&mut self) {
        if let Some(cache) = &self.cache {
            cache.account_index(self.accounted_bytes, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Env, Seeded};

    const CHECKSUM: ChecksumType = ChecksumType::Sha256;

    fn words(dice: &Seeded) -> Words {
        [dice.random(), dice.random(), dice.random(), dice.random(), 0x7_0000]
    }

    /// The table of this module. Seeds are fixed, so these are figures and not chances.
    #[test]
    fn new_keys_are_looked_for_as_seldom_as_is_said_and_old_ones_always() {
        for (entries, entered, most_bytes, bits, least, most) in [
            (40_000, 40_000, u64::MAX, 16, 0.05, 0.25),
            (40_000, 80_000, u64::MAX, 8, 2.0, 3.5),
            (40_000, 40_000, 20_480, 4, 18.0, 23.0),
        ] {
            let mut filter = Filter::new(entries, most_bytes).unwrap();
            assert_eq!(filter.bytes() * 8 / entered / bits, 1, "{entries} {entered}");
            let dice = Seeded::new(entered);
            (0..entered).for_each(|_| filter.enter(hashes(CHECKSUM, &words(&dice))));
            let dice = Seeded::new(entered);
            assert!((0..entered).all(|_| filter.may_have(hashes(CHECKSUM, &words(&dice)))));
            let dice = Seeded::new(1 << 40);
            let found = (0..100_000).filter(|_| filter.may_have(hashes(CHECKSUM, &words(&dice)))).count();
            let percent = found as f64 / 1000.0;
            println!("{bits} bits: {percent} %");
            assert!((least..most).contains(&percent), "{bits} bits an entry: {percent} %");
        }
        assert!(Filter::new(40_000, 19_000).is_none(), "too few bits");
    }

    #[test]
    fn nothing_is_surely_new_before_the_walk_has_ended() {
        let dice = Seeded::new(3);
        let (logged, changed, stored, new) = (words(&dice), words(&dice), words(&dice), words(&dice));
        let mut filters = Filters::default();
        assert!(filters.is_due(1) && !filters.is_due(0) && filters.may_have(CHECKSUM, &new));
        assert!(filters.begin(1, [(CHECKSUM, &logged)].into_iter()));
        assert!(!filters.is_due(1) && filters.may_have(CHECKSUM, &new));
        filters.enter(CHECKSUM, &changed);
        filters.meet(CHECKSUM, &DdtKey::from_words(stored));
        assert!(!filters.is_complete());
        filters.complete();
        assert!(filters.is_complete());
        assert!([&logged, &changed, &stored].into_iter().all(|words| filters.may_have(CHECKSUM, words)));
        assert!(!filters.may_have(CHECKSUM, &new));
        assert!(filters.may_have(ChecksumType::Skein, &stored) != filters.may_have(CHECKSUM, &stored));
        // It fills, and what goes into it goes into its successor too.
        (0..3 * LEAST_ENTRIES).for_each(|_| filters.enter(CHECKSUM, &words(&dice)));
        assert!(filters.is_due(100_000) && filters.begin(100_000, std::iter::empty()));
        filters.enter(CHECKSUM, &new);
        assert!(filters.may_have(CHECKSUM, &new));
        filters.complete();
        assert!(filters.may_have(CHECKSUM, &new) && !filters.may_have(CHECKSUM, &stored), "it was not met");
        filters.begun = Filter::new(1, u64::MAX);
        filters.fail();
        assert!(filters.is_complete() && !filters.is_due(1 << 40), "the old one goes on");
    }

    #[test]
    fn it_is_part_of_the_budget_of_the_cache_and_takes_no_more_than_is_said() {
        let cache = Arc::new(ArcCache::new(64 << 20));
        let mut filters = Filters::within(&cache);
        assert!(filters.begin(1 << 20, std::iter::empty()));
        assert_eq!((filters.bytes(), cache.index_bytes()), (2 << 20, 2 << 20));
        filters.complete();
        assert_eq!(cache.index_bytes(), 2 << 20);
        assert!(!filters.begin(1 << 30, std::iter::empty()), "more than an eighth of the cache");
        tunables::ZFS_DEDUP_FILTER_MAX.set(1 << 20).unwrap();
        let has_begun = filters.begin(1 << 20, std::iter::empty());
        let bytes = filters.bytes();
        tunables::ZFS_DEDUP_FILTER_MAX.set(0).unwrap();
        let has_begun_without = filters.begin(1 << 20, std::iter::empty());
        tunables::ZFS_DEDUP_FILTER_MAX.reset();
        assert!(has_begun && bytes == 1 << 20 && !has_begun_without, "{bytes}");
        assert_eq!(cache.index_bytes(), 0);
    }
}
