//! Entries in memory: of the group that is being written, and of the logs.
//!
//! # The idea
//! A log has as many entries as a hundred groups change, and a group as many as it writes and frees blocks.
//! So what an entry takes is what counts. Entries lie in chunks, one behind the other, with their keys; a
//! hash table has their numbers. There is no pointer to an entry, and no room is left for those that may
//! come, but for the last chunk and the hash table.
//!
//! | an entry of flat form | bytes |
//! |---|---|
//! | key | 40 |
//! | value ([`KeptPhys`]) with what else its owner notes | 88 (log), 96 (group) |
//! | its number in the hash table, which is between 7/16 and 7/8 full | 6 to 12 |
//! | its number in the order of keys (the log that is flushed) | 4 |
//! | together | at most 145 (log), 149 (group) |
//!
//! An entry of a traditional table has a box of 288 bytes more.

use std::cmp::Reverse;
use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use ondisk::ddt::{DdtFlat, DdtKey, DdtPhys, DdtSlot};

use crate::error::{Error, Result};

/// The words of a key.
pub(super) type Words = [u64; DdtKey::WORDS];

/// Entries in a chunk.
const CHUNK: usize = 1024;

/// The value of an entry, in no more room than its form needs.
#[derive(Debug, Clone)]
pub(super) enum KeptPhys {
    Traditional(Box<[DdtSlot; 4]>),
    Flat(DdtFlat),
}

impl KeptPhys {
    /// This value.
    pub(super) fn of(phys: DdtPhys) -> Self {
        match phys {
            DdtPhys::Traditional(slots) => Self::Traditional(Box::new(slots)),
            DdtPhys::Flat(flat) => Self::Flat(flat),
        }
    }

    /// The value.
    pub(super) fn phys(&self) -> DdtPhys {
        match self {
            Self::Traditional(slots) => DdtPhys::Traditional(**slots),
            Self::Flat(flat) => DdtPhys::Flat(*flat),
        }
    }
}

/// Entries by key.
#[derive(Debug)]
pub(super) struct EntryMap<T> {
    /// Numbers of entries.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// All are full but the last one. An entry that was taken out leaves its place for the next one.
    chunks: Vec<Vec<(Words, Option<T>)>>,
    vacant: Vec<u32>,
}

impl<T> Default for EntryMap<T> {
    fn default() -> Self {
        let (index, hasher) = (HashTable::new(), DefaultHashBuilder::default());
        Self { index, hasher, chunks: Vec::new(), vacant: Vec::new() }
    }
}

fn place<T>(chunks: &[Vec<(Words, Option<T>)>], number: u32) -> Option<&(Words, Option<T>)> {
    chunks.get(number as usize / CHUNK)?.get(number as usize % CHUNK)
}

impl<T> EntryMap<T> {
    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    fn number(&self, words: &Words) -> Option<u32> {
        let is_it = |number: &u32| place(&self.chunks, *number).is_some_and(|(other, _)| other == words);
        self.index.find(self.hasher.hash_one(words), is_it).copied()
    }

    /// The entry of a key.
    pub(super) fn get(&self, words: &Words) -> Option<&T> {
        place(&self.chunks, self.number(words)?)?.1.as_ref()
    }

    /// The entry of a key, to be changed.
    pub(super) fn get_mut(&mut self, words: &Words) -> Option<&mut T> {
        let number = self.number(words)? as usize;
        self.chunks.get_mut(number / CHUNK)?.get_mut(number % CHUNK)?.1.as_mut()
    }

    /// Whether a key has an entry.
    pub(super) fn contains(&self, words: &Words) -> bool {
        self.number(words).is_some()
    }

    /// Makes this the entry of a key.
    ///
    /// # Errors
    /// There are four billion entries.
    pub(super) fn insert(&mut self, words: Words, value: T) -> Result<()> {
        if let Some(there) = self.get_mut(&words) {
            *there = value;
            return Ok(());
        }
        let number = match self.vacant.pop() {
            Some(number) => {
                let (chunk, at) = (number as usize / CHUNK, number as usize % CHUNK);
                if let Some(place) = self.chunks.get_mut(chunk).and_then(|chunk| chunk.get_mut(at)) {
                    *place = (words, Some(value));
                }
                number
            }
            None => {
                let is_full = self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK);
                if is_full {
                    let room = if self.chunks.is_empty() { 0 } else { CHUNK };
                    self.chunks.push(Vec::with_capacity(room));
                }
                let before = (self.chunks.len() - 1) * CHUNK;
                let Some(chunk) = self.chunks.last_mut() else { return Err(too_many()) };
                let number = u32::try_from(before + chunk.len()).map_err(|_| too_many())?;
                chunk.push((words, Some(value)));
                number
            }
        };
        let Self { index, hasher, chunks, .. } = self;
        let hash_of = |number: &u32| place(chunks, *number).map_or(0, |(words, _)| hasher.hash_one(words));
        index.insert_unique(hasher.hash_one(words), number, hash_of);
        Ok(())
    }

    /// Takes the entry of a key out.
    pub(super) fn remove(&mut self, words: &Words) -> Option<T> {
        let Self { index, hasher, chunks, vacant } = self;
        let is_it = |number: &u32| place(chunks, *number).is_some_and(|(other, _)| other == words);
        let hash_of = |number: &u32| place(chunks, *number).map_or(0, |(words, _)| hasher.hash_one(words));
        let number = match index.entry(hasher.hash_one(words), is_it, hash_of) {
            Entry::Occupied(entry) => entry.remove().0,
            Entry::Vacant(_) => return None,
        };
        let at = number as usize;
        let gone = chunks.get_mut(at / CHUNK).and_then(|chunk| chunk.get_mut(at % CHUNK));
        let gone = gone.and_then(|(_, value)| value.take());
        match index.is_empty() {
            true => *self = Self::default(),
            false => vacant.push(number),
        }
        gone
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Words, &T)> {
        let all = self.chunks.iter().flatten();
        all.filter_map(|(words, value)| Some((words, value.as_ref()?)))
    }

    /// The numbers of all entries, from the highest key down. A number stays an entry's while no other entry
    /// comes.
    pub(super) fn numbers_from_highest(&self) -> Vec<u32> {
        let all = (0u32..).zip(self.chunks.iter().flatten());
        let mut numbers: Vec<u32> =
            all.filter_map(|(number, (_, value))| value.is_some().then_some(number)).collect();
        let words = |number: u32| place(&self.chunks, number).map(|(words, _)| *words);
        numbers.sort_unstable_by_key(|number| Reverse(words(*number)));
        numbers
    }

    /// The key of the entry with a number, if it is still there.
    pub(super) fn key_of(&self, number: u32) -> Option<Words> {
        place(&self.chunks, number).filter(|(_, value)| value.is_some()).map(|(words, _)| *words)
    }

    /// All entries, which it has no longer.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Words, T)> + use<T> {
        let all = std::mem::take(self).chunks.into_iter().flatten();
        all.filter_map(|(words, value)| Some((words, value?)))
    }

    /// Bytes that the entries take, without boxes of theirs.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let entries: usize = self.chunks.iter().map(Vec::capacity).sum();
        entries * size_of::<(Words, Option<T>)>() + self.index.allocation_size() + self.vacant.capacity() * 4
    }
}

fn too_many() -> Error {
    Error::NoSpace("a dedup table has more entries in memory than can be numbered".into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ondisk::ddt::PhysForm;

    use super::super::live::Live;
    use super::super::log::Kept;
    use super::*;
    use crate::env::{Env, Seeded};

    #[test]
    fn entries_come_and_go_as_in_a_map() {
        let (mut map, mut model) = (EntryMap::default(), BTreeMap::new());
        let dice = Seeded::new(4);
        for round in 0..40_000u64 {
            let words = [dice.random() % 3000, 7, 8, 9, dice.random() % 2];
            match dice.random() % 5 {
                0 | 1 => assert_eq!(map.remove(&words), model.remove(&words)),
                _ => {
                    map.insert(words, round).unwrap();
                    model.insert(words, round);
                }
            }
            assert_eq!(map.get(&words), model.get(&words));
            assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        }
        let numbers = map.numbers_from_highest();
        let keys: Vec<Words> = numbers.iter().rev().map(|number| map.key_of(*number).unwrap()).collect();
        assert!(keys.iter().eq(model.keys()));
        let drained: BTreeMap<Words, u64> = map.drain().collect();
        assert_eq!(drained, model);
        assert!(map.is_empty() && map.iter().next().is_none());
    }

    /// The figures of this module's table.
    #[test]
    fn an_entry_takes_less_than_150_bytes() {
        fn bytes_of_each<T>(entries: u64, value: impl Fn() -> T) -> usize {
            let mut map = EntryMap::default();
            (0..entries).for_each(|number| map.insert([number, 1, 2, 3, 4], value()).unwrap());
            map.bytes().div_ceil(entries as usize)
        }
        let phys = || DdtPhys::unused(PhysForm::Flat);
        // Full hash tables, and such as have just grown.
        for entries in [114_688, 114_689, 200_000] {
            let logged = bytes_of_each(entries, || Kept { class: None, phys: KeptPhys::of(phys()) });
            let live = bytes_of_each(entries, || Live::new(PhysForm::Flat));
            println!("{entries} entries: {logged} bytes in a log, {live} in a group");
            assert!(logged + 4 <= 145 && live <= 149, "{entries}: {logged} {live}");
        }
    }
}
