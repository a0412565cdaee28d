//! Walking over a ZAP in the order of (hash, collision differentiator).

use std::collections::VecDeque;

use ondisk::zap::{Cursor as Position, Leaf, LeafEntry, MicroZap, ZapFlags};

use super::{Entry, Key, Kind, Micro, Value, Zap};
use crate::dmu::OrderedBlock;
use crate::{Error, Result};

/// The number of entries of a micro ZAP that are read at once: a caller may want only a few.
const RUN: usize = 128;

/// An entry of a micro ZAP in the order of the walk: position, and offset in the block.
pub(super) type Place = (Position, u32);

/// A walk over a ZAP.
#[derive(Debug)]
pub struct Cursor {
    zap: Zap,
    /// The position at which the walk continues after the `ready` entries; `None` at the end. In a micro ZAP,
    /// its start.
    position: Option<Position>,
    /// The index at which it continues in the order of a micro ZAP, once that is known.
    place: Option<usize>,
    /// The block of the pointer table of a fat ZAP with one outside of its header, and its number.
    table: Option<(u64, OrderedBlock)>,
    ready: VecDeque<Entry>,
}

impl Cursor {
    pub(super) fn new(zap: Zap, cookie: u64) -> Self {
        // The cookie after the last possible entry.
        let position = (cookie != u64::MAX).then(|| Position::deserialize(cookie, zap.flags()));
        Self { zap, position, place: None, table: None, ready: VecDeque::new() }
    }

    /// The next entry.
    pub async fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Ok(Some(entry));
            }
            let Some(position) = self.position.take() else {
                return Ok(None);
            };
            match &self.zap.kind {
                Kind::Micro(micro) => {
                    let (ready, place) = self.zap.micro_from(micro, position, self.place)?;
                    (self.ready, self.place) = (ready, Some(place));
                    self.position = (!self.ready.is_empty()).then_some(position);
                }
                Kind::Fat(fat) => {
                    // The walk continues after this leaf's hashes; all further hashes are greater.
                    let (block, order) = self.zap.leaf_block_by(fat, position.hash, &mut self.table).await?;
                    let leaf = self.zap.leaf(&block, order, fat, position.hash)?;
                    let flags = fat.header.flags;
                    let found = leaf.entries_from(position).and_then(|entries| {
                        entries.iter().map(|entry| from_leaf(entry, flags)).collect::<ondisk::Result<_>>()
                    });
                    self.ready = found.map_err(|error| self.zap.corrupt(error))?;
                    self.position = leaf.next_hash().map(|hash| Position { hash, cd: 0 });
                }
            }
        }
    }
}

/// The position at which a walk continues after an entry.
fn cookie_after(position: Position, flags: ZapFlags) -> u64 {
    Position { cd: position.cd.saturating_add(1), ..position }.serialize(flags)
}

fn from_leaf(entry: &LeafEntry<'_>, flags: ZapFlags) -> ondisk::Result<Entry> {
    let key = if flags.contains(ZapFlags::UINT64_KEY) {
        Key::Words(entry.key_words()?)
    } else {
        Key::Name(entry.name()?)
    };
    Ok(Entry { key, value: entry.value()?, cookie: cookie_after(entry.cursor(), flags) })
}

impl Zap {
    /// The next [`RUN`] entries of a micro ZAP from an index in its order, or from a position; and the index
    /// after them.
    fn micro_from(
        &self,
        micro: &Micro,
        from: Position,
        place: Option<usize>,
    ) -> Result<(VecDeque<Entry>, usize)> {
        let view = micro.view().map_err(|error| self.corrupt(error))?;
        let sorted = match micro.sorted.get() {
            Some(sorted) => sorted,
            None => {
                let places = self.places(&view)?;
                micro.sorted.get_or_init(|| places)
            }
        };
        let first = place.unwrap_or_else(|| sorted.partition_point(|(position, _)| *position < from));
        let behind = sorted.len().min(first + RUN);
        let run = sorted.get(first..behind).unwrap_or_default();
        let found = run.iter().filter_map(|(position, offset)| {
            let entry = view.entry_at(*offset as usize)?;
            Some(Entry {
                key: Key::Name(entry.name.to_vec()),
                value: Value::U64(vec![entry.value]),
                cookie: cookie_after(*position, ZapFlags::default()),
            })
        });
        Ok((found.collect(), behind))
    }

    fn places(&self, view: &MicroZap<'_>) -> Result<Box<[Place]>> {
        let rules = self.name_rules()?;
        let place = |(offset, entry): (usize, ondisk::zap::MicroEntry<'_>)| -> Result<Place> {
            let hash = if rules.is_exact() {
                view.hash_name(entry.name)
            } else {
                view.hash_name(&rules.prepare(entry.name))
            };
            let offset =
                u32::try_from(offset).map_err(|_| Error::corrupt("micro ZAP", "too many entries"))?;
            Ok((Position { hash, cd: entry.cd }, offset))
        };
        let used = view.slots().filter_map(|(offset, entry)| Some((offset, entry?)));
        let mut places = used.map(place).collect::<Result<Vec<_>>>()?;
        places.sort_unstable();
        Ok(places.into())
    }

    /// A leaf that is checked to be the right one for this hash.
    pub(super) fn leaf<'a>(
        &self,
        block: &'a [u8],
        order: ondisk::ByteOrder,
        fat: &super::Fat,
        hash: u64,
    ) -> Result<Leaf<'a>> {
        let leaf = Leaf::parse(block, order).map_err(|error| self.corrupt(error))?;
        let prefix = hash.checked_shr(64 - leaf.prefix_len).unwrap_or(0);
        if leaf.prefix_len > fat.header.table.shift || leaf.prefix != prefix {
            return Err(self.corrupt(format!(
                "the ZAP leaf for hash {hash:#018x} is that of prefix {:#x} of {} bits",
                leaf.prefix, leaf.prefix_len
            )));
        }
        Ok(leaf)
    }
}
