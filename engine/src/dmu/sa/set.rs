//! The attributes of one object as plain data: unpacked, changed, and packed again into the bonus area and
//! the spill block.
//!
//! # Placement
//! Attributes are in a sequence; a new one is appended. All go into the bonus area if they fit with their
//! header. Otherwise the spill block is needed, whose pointer takes the last 128 bytes of the dnode. Then the
//! bonus area keeps as many attributes from the front as fit into the rest, and the others go into the spill
//! block, which is as large as they need, in steps of 512 bytes.
//!
//! Attributes that this code does not know keep their places.
//!
//! Source: behaviour of OpenZFS 2.3 `sa.c`; [`ondisk::sa`] describes the format.

use std::collections::BTreeMap;
use std::ops::Range;

use ondisk::blkptr::Blkptr;
use ondisk::sa::{Attr, Registration, Tables};
use ondisk::{ByteOrder, Error, Result};

const WHAT: &str = "system attributes";
const MAGIC: u32 = 0x002f_505a;
/// The offset in the header of the lengths of attributes of variable length.
const LENGTHS: usize = 6;
/// Largest spill block (`SPA_OLD_MAXBLOCKSIZE`).
const MAX_SPILL: usize = 128 << 10;
const SECTOR: usize = 512;
/// Bits of the layout's number; above them is the header's size.
const LAYOUT_BITS: u32 = 10;

/// Numbers and layouts of the attributes of one filesystem.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    /// The number of each known attribute, in the sequence of [`Attr::ALL`].
    pub(super) numbers: Vec<u16>,
    /// The length of the attribute of each number; 0: variable.
    pub(super) lengths: BTreeMap<u16, u16>,
    /// Attributes of each layout.
    pub(super) layouts: BTreeMap<u16, Box<[u16]>>,
}

impl Schema {
    fn number(&self, attr: Attr) -> u16 {
        self.numbers.get(attr as usize).copied().unwrap_or(u16::MAX)
    }

    /// The tables in the form for readers.
    pub(super) fn to_tables(&self) -> Result<Tables> {
        let name = |number: u16| {
            let index = self.numbers.iter().position(|other| *other == number);
            index.and_then(|index| Attr::ALL.get(index)).map_or("", |attr| attr.name())
        };
        let registry = self.lengths.iter().map(|(number, length)| {
            let entry = Registration { number: *number, byteswap: 0, length: *length };
            (name(*number).as_bytes(), entry.to_raw())
        });
        let layouts: Vec<_> =
            self.layouts.iter().map(|(number, numbers)| (number.to_string(), numbers.to_vec())).collect();
        Tables::new(registry, layouts.iter().map(|(number, numbers)| (number.as_bytes(), numbers.clone())))
    }

    fn length(&self, number: u16) -> Result<usize> {
        let found = self.lengths.get(&number).copied();
        Ok(found.ok_or_else(|| Error::invalid(WHAT, format!("attribute {number} is not registered")))?.into())
    }

    /// The places of the attributes of an area, in their sequence.
    pub(super) fn locate(&self, area: &[u8]) -> Result<Vec<(u16, Range<usize>)>> {
        let mut reader = ondisk::Reader::new(WHAT, area, ByteOrder::Little);
        let magic = reader.u32()?;
        if magic == 0 {
            return Ok(Vec::new());
        }
        if magic != MAGIC {
            return Err(Error::BadMagic { what: WHAT, found: magic.into() });
        }
        let info = reader.u16()?;
        let layout = info & ((1 << LAYOUT_BITS) - 1);
        let numbers: &[u16] = match self.layouts.get(&layout) {
            Some(numbers) => numbers,
            None if layout == 1 => &[],
            None => return Err(Error::invalid(WHAT, format!("layout {layout} is not defined"))),
        };
        let mut at = usize::from(info >> LAYOUT_BITS) * 8;
        let mut found = Vec::with_capacity(numbers.len() + 1);
        for number in numbers {
            let length = match self.length(*number)? {
                0 => usize::from(reader.u16()?),
                length => length,
            };
            if at + length > area.len() {
                return Err(Error::invalid(WHAT, format!("attribute {number} reaches beyond its area")));
            }
            found.push((*number, at..at + length));
            at = (at + length).next_multiple_of(8);
        }
        Ok(found)
    }
}

/// The attributes of one object, in their sequence.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttrSet {
    bytes: Vec<u8>,
    places: Vec<(u16, Range<usize>)>,
}

/// Attributes that were found in an object, or will be stored in it.
impl AttrSet {
    pub(super) fn take(&mut self, schema: &Schema, area: &[u8]) -> Result<()> {
        for (number, place) in schema.locate(area)? {
            self.put(number, area.get(place).unwrap_or_default());
        }
        Ok(())
    }

    fn put(&mut self, number: u16, value: &[u8]) {
        let start = self.bytes.len();
        let place = self.places.iter_mut().find(|(other, _)| *other == number);
        match place {
            Some((_, place)) if place.len() == value.len() => {
                self.bytes[place.clone()].copy_from_slice(value);
                return;
            }
            Some((_, place)) => *place = start..start + value.len(),
            None => self.places.push((number, start..start + value.len())),
        }
        self.bytes.extend_from_slice(value);
    }

    /// Sets an attribute; a new one is appended. A new project is placed after the number of links, where the
    /// accounting of space looks for it.
    pub(super) fn set(&mut self, schema: &Schema, attr: Attr, value: &[u8]) -> Result<()> {
        let length = usize::from(attr.length());
        if (length != 0 && length != value.len()) || u16::try_from(value.len()).is_err() {
            return Err(Error::invalid(WHAT, format!("{} of {} bytes", attr.name(), value.len())));
        }
        let before = self.places.len();
        self.put(schema.number(attr), value);
        if attr == Attr::ProjectId && self.places.len() > before {
            let links = schema.number(Attr::Links);
            let behind =
                self.places.iter().position(|(number, _)| *number == links).map_or(before, |at| at + 1);
            if let Some(tail) = self.places.get_mut(behind..) {
                tail.rotate_right(1);
            }
        }
        Ok(())
    }

    /// Removes an attribute.
    pub(super) fn remove(&mut self, schema: &Schema, attr: Attr) {
        let number = schema.number(attr);
        self.places.retain(|(other, _)| *other != number);
    }

    /// The bytes of the first `count` attributes, and those of their header.
    fn size(&self, schema: &Schema, places: &[(u16, Range<usize>)]) -> Result<(usize, usize)> {
        let (mut variable, mut bytes) = (0usize, 0usize);
        for (number, place) in places {
            variable += usize::from(schema.length(*number)? == 0);
            bytes = bytes.next_multiple_of(8) + place.len();
        }
        Ok((header_size(variable), bytes))
    }

    /// How many attributes fit into a bonus area of `capacity` bytes.
    pub(super) fn split(&self, schema: &Schema, capacity: usize) -> Result<usize> {
        let fits = |count: usize, room: usize| -> Result<bool> {
            let (header, bytes) = self.size(schema, self.places.get(..count).unwrap_or_default())?;
            Ok(header + bytes <= room)
        };
        if fits(self.places.len(), capacity)? {
            return Ok(self.places.len());
        }
        let room = capacity.saturating_sub(Blkptr::SIZE);
        let mut count = 0;
        while count < self.places.len() && fits(count + 1, room)? {
            count += 1;
        }
        Ok(count)
    }

    /// The numbers of the attributes in the bonus area, and of those in the spill block.
    pub(super) fn numbers(&self, in_bonus: usize) -> (Vec<u16>, Vec<u16>) {
        let numbers: Vec<u16> = self.places.iter().map(|(number, _)| *number).collect();
        let (bonus, spill) = numbers.split_at(in_bonus.min(numbers.len()));
        (bonus.to_vec(), spill.to_vec())
    }

    /// The bonus area.
    pub(super) fn bonus(
        &self,
        schema: &Schema,
        in_bonus: usize,
        layout: u16,
        capacity: usize,
    ) -> Result<Vec<u8>> {
        let mut area = self.area(schema, self.places.get(..in_bonus).unwrap_or_default(), layout)?;
        if in_bonus < self.places.len() {
            area.resize(capacity.saturating_sub(Blkptr::SIZE), 0);
        }
        Ok(area)
    }

    /// The spill block.
    pub(super) fn spill(&self, schema: &Schema, in_bonus: usize, layout: u16) -> Result<Vec<u8>> {
        let mut area = self.area(schema, self.places.get(in_bonus..).unwrap_or_default(), layout)?;
        if area.len() > MAX_SPILL {
            return Err(Error::TooLarge { what: WHAT, limit: MAX_SPILL as u64 });
        }
        area.resize(area.len().next_multiple_of(SECTOR), 0);
        Ok(area)
    }

    fn area(&self, schema: &Schema, places: &[(u16, Range<usize>)], layout: u16) -> Result<Vec<u8>> {
        let (header, bytes) = self.size(schema, places)?;
        let mut area = Vec::with_capacity(header + bytes);
        area.extend_from_slice(&MAGIC.to_le_bytes());
        area.extend_from_slice(&(layout | ((header / 8) as u16) << LAYOUT_BITS).to_le_bytes());
        for (number, place) in places {
            if schema.length(*number)? == 0 {
                area.extend_from_slice(&(place.len() as u16).to_le_bytes());
            }
        }
        area.resize(header, 0);
        for (_, place) in places {
            area.resize(area.len().next_multiple_of(8), 0);
            area.extend_from_slice(self.bytes.get(place.clone()).unwrap_or_default());
        }
        Ok(area)
    }
}

/// The header ends with the lengths of variable attributes; it always has space for at least one.
fn header_size(variable: usize) -> usize {
    (LENGTHS + 2 * variable).next_multiple_of(8).max(8)
}

#[cfg(test)]
mod tests {
    use ondisk::sa::AreaKind;
    use proptest::prelude::*;

    use super::*;

    fn schema(layouts: &[(u16, Vec<u16>)]) -> Schema {
        let lengths = Attr::ALL.iter().map(|attr| (*attr as u16, attr.length())).collect();
        let numbers = (0..Attr::ALL.len() as u16).collect();
        let layouts = layouts.iter().map(|(number, attrs)| (*number, attrs.as_slice().into())).collect();
        Schema { numbers, lengths, layouts }
    }

    fn tables(layouts: &[(u16, Vec<u16>)]) -> Tables {
        let registry = Attr::ALL.iter().map(|attr| {
            let number = *attr as u16;
            let entry = Registration { number, byteswap: attr.byteswap() as u8, length: attr.length() };
            (attr.name().as_bytes(), entry.to_raw())
        });
        let names: Vec<_> =
            layouts.iter().map(|(number, attrs)| (number.to_string(), attrs.clone())).collect();
        Tables::new(registry, names.iter().map(|(name, attrs)| (name.as_bytes(), attrs.clone()))).unwrap()
    }

    proptest! {
        #[test]
        fn what_is_packed_is_found_by_the_read_side(
            chosen in proptest::sample::subsequence(Attr::ALL.to_vec(), 1..16),
            lengths in proptest::collection::vec(0usize..400, 32),
            shuffle: u64, capacity in (24usize..60).prop_map(|words| words * 8),
        ) {
            let mut chosen = chosen;
            let length = chosen.len();
            chosen.rotate_left(shuffle as usize % length);
            let plain = schema(&[]);
            let mut set = AttrSet::default();
            let value = |attr: Attr| {
                let length = if attr.length() == 0 { lengths[attr as usize] } else { attr.length().into() };
                vec![attr as u8 + 1; length]
            };
            for attr in &chosen {
                set.set(&plain, *attr, &[0xee; 400][..value(*attr).len().min(attr.length().into())]).unwrap();
            }
            for attr in chosen.iter().rev() {
                set.set(&plain, *attr, &value(*attr)).unwrap();
            }
            let in_bonus = set.split(&plain, capacity).unwrap();
            let (first, second) = set.numbers(in_bonus);
            let layouts = [(2, first), (3, second.clone())];
            let tables = tables(&layouts);
            let bonus = set.bonus(&plain, in_bonus, 2, capacity).unwrap();
            let room = if second.is_empty() { capacity } else { capacity - 128 };
            prop_assert!(bonus.len() <= room);
            let found = tables.locate(&bonus, AreaKind::Sa, ByteOrder::Little).unwrap();
            let spill = set.spill(&plain, in_bonus, 3).unwrap();
            let spilled = tables.locate(&spill, AreaKind::Sa, ByteOrder::Little).unwrap();
            for attr in Attr::ALL {
                let stored = found.get(&bonus, *attr).or_else(|| spilled.get(&spill, *attr));
                let expected = chosen.contains(attr).then(|| value(*attr));
                prop_assert_eq!(stored, expected.as_deref());
            }
            // And by this code, in the same sequence.
            let schema = schema(&layouts);
            let mut again = AttrSet::default();
            again.take(&schema, &bonus).unwrap();
            if !second.is_empty() {
                again.take(&schema, &spill).unwrap();
            }
            prop_assert_eq!(again.numbers(99).0, set.numbers(99).0);
        }

        #[test]
        fn damaged_areas_never_panic(bytes: Vec<u8>) {
            let area = [&MAGIC.to_le_bytes()[..], &2u16.to_le_bytes(), &bytes].concat();
            let _ = schema(&[(2, vec![17, 5, 19, 99])]).locate(&area);
            let _ = schema(&[]).locate(&bytes);
        }
    }
}
