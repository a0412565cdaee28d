//! System attributes: the typed fields of a file (times, mode, size, …) packed into its bonus area and spill
//! block.
//!
//! Each filesystem numbers attributes itself. The *registry* ZAP maps an attribute's name to its number,
//! length and byteswap class; the *layouts* ZAP maps a layout number to the sequence of attributes in an
//! area. An area says which layout it has; each attribute begins at the next multiple of eight.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `0x2f505a`, tells the byte order; 0: nothing is stored |
//! | 4 | 2 | layout_info | bits 0-9: layout; 10-15: size of this header / 8 |
//! | 6 | 2 each | lengths | of the attributes of variable length, in order |
//! | rounded up to 8 | | | the attributes |
//!
//! Registry value: bits 0-15 number, 16-23 byteswap class, 24-39 length (0: variable).
//!
//! The first 16 attributes keep the numbers 0 to 15 everywhere: that is their sequence in a `znode_phys`,
//! which files of filesystems before version 5 have instead ([`AreaKind::Znode`]); it needs no header and is
//! in the byte order of its dnode.
//!
//! Source: OpenZFS 2.3 `sa_impl.h`, `sa.c`, `zfs_sa.c`.

use std::collections::BTreeMap;

use crate::{ByteOrder, Error, Reader, Result, Writer};

const WHAT: &str = "system attributes";
const MAGIC: u32 = 0x002f_505a;
/// Where the lengths begin.
const LENGTHS: usize = 6;

/// Size of the `znode_phys` of old files.
pub const ZNODE_SIZE: usize = 264;

/// How an attribute changes between byte orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SaByteswap {
    /// 64-bit integers.
    Uint64 = 0,
    /// 32-bit integers.
    Uint32 = 1,
    /// 16-bit integers.
    Uint16 = 2,
    /// Bytes.
    Uint8 = 3,
    /// An ACL.
    Acl = 4,
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal $length:literal $byteswap:ident,)*) => {
        /// The attributes of files.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Attr {
            $($(#[$doc])* $variant,)*
        }

        impl Attr {
            /// All attributes; the first 16 are in the order of old znodes.
            pub const ALL: &[Attr] = &[$(Attr::$variant),*];

            /// The name in the registry.
            pub const fn name(self) -> &'static str {
                match self { $(Attr::$variant => $name,)* }
            }

            /// Length in bytes; 0: variable.
            pub const fn length(self) -> u16 {
                match self { $(Attr::$variant => $length,)* }
            }

            /// How it changes between byte orders.
            pub const fn byteswap(self) -> SaByteswap {
                match self { $(Attr::$variant => SaByteswap::$byteswap,)* }
            }
        }
    };
}

attributes! {
    /// Last access: seconds and nanoseconds.
    Atime = "ZPL_ATIME" 16 Uint64,
    /// Last modification of the content.
    Mtime = "ZPL_MTIME" 16 Uint64,
    /// Last change of the attributes.
    Ctime = "ZPL_CTIME" 16 Uint64,
    /// Creation.
    Crtime = "ZPL_CRTIME" 16 Uint64,
    /// Txg of creation.
    Gen = "ZPL_GEN" 8 Uint64,
    /// Type and permissions.
    Mode = "ZPL_MODE" 8 Uint64,
    /// Size in bytes; entries of a directory.
    Size = "ZPL_SIZE" 8 Uint64,
    /// Object of the directory above.
    Parent = "ZPL_PARENT" 8 Uint64,
    /// Number of links.
    Links = "ZPL_LINKS" 8 Uint64,
    /// Object of the directory of extended attributes.
    Xattr = "ZPL_XATTR" 8 Uint64,
    /// Device number.
    Rdev = "ZPL_RDEV" 8 Uint64,
    /// See [`crate::zpl::ZnodeFlags`].
    Flags = "ZPL_FLAGS" 8 Uint64,
    /// Owner, see [`crate::zpl::Fuid`].
    Uid = "ZPL_UID" 8 Uint64,
    /// Group, see [`crate::zpl::Fuid`].
    Gid = "ZPL_GID" 8 Uint64,
    /// Unused words of old znodes.
    Pad = "ZPL_PAD" 32 Uint64,
    /// ACL of old znodes, see [`crate::zpl::AclPhys`].
    ZnodeAcl = "ZPL_ZNODE_ACL" 88 Uint8,
    /// Number of entries of the ACL.
    DaclCount = "ZPL_DACL_COUNT" 8 Uint64,
    /// Target of a symbolic link.
    Symlink = "ZPL_SYMLINK" 0 Uint8,
    /// Mark of a virus scanner.
    Scanstamp = "ZPL_SCANSTAMP" 32 Uint8,
    /// Entries of the ACL.
    DaclAces = "ZPL_DACL_ACES" 0 Acl,
    /// Extended attributes as a packed nvlist.
    Dxattr = "ZPL_DXATTR" 0 Uint8,
    /// Project.
    ProjectId = "ZPL_PROJID" 8 Uint64,
}

const ATTRS: usize = Attr::ALL.len();
/// Attributes of old znodes, whose numbers never change.
const LEGACY: usize = 16;

/// Value of an attribute in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// Number of the attribute in this filesystem.
    pub number: u16,
    /// Byteswap class as stored.
    pub byteswap: u8,
    /// Length in bytes; 0: variable.
    pub length: u16,
}

impl Registration {
    /// Unpacks the value.
    pub const fn from_raw(raw: u64) -> Registration {
        Registration { number: raw as u16, byteswap: (raw >> 16) as u8, length: (raw >> 24) as u16 }
    }

    /// Packs the value.
    pub const fn to_raw(self) -> u64 {
        self.number as u64 | (self.byteswap as u64) << 16 | (self.length as u64) << 24
    }
}

/// One place of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    /// The attribute; `None` for one that this code does not know.
    attr: Option<Attr>,
    /// 0: variable.
    length: u16,
}

/// The kind of an area of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AreaKind {
    /// Bonus of type `SA`, or a spill block: it has a header.
    Sa,
    /// Bonus of type `ZNODE`: a `znode_phys`.
    Znode,
}

/// The attributes and layouts of a filesystem.
#[derive(Debug, Clone)]
pub struct Tables {
    layouts: BTreeMap<u16, Box<[Slot]>>,
}

impl Default for Tables {
    /// The tables of a filesystem without registry, whose files are all old.
    fn default() -> Tables {
        Tables { layouts: BTreeMap::new() }
    }
}

impl Tables {
    /// Combines the entries of the registry (name and value) with those of the layouts (name, which is a
    /// decimal number, and attribute numbers).
    pub fn new<'a>(
        registry: impl IntoIterator<Item = (&'a [u8], u64)>,
        layouts: impl IntoIterator<Item = (&'a [u8], Vec<u16>)>,
    ) -> Result<Tables> {
        let mut slots: BTreeMap<u16, Slot> =
            (0u16..).zip(&Attr::ALL[..LEGACY]).map(|(number, attr)| (number, legacy_slot(*attr))).collect();
        for (name, raw) in registry {
            let registration = Registration::from_raw(raw);
            let attr = Attr::ALL.iter().copied().find(|attr| attr.name().as_bytes() == name);
            if let Some(attr) = attr
                && attr.length() != registration.length
            {
                let detail = format!("{} has {} bytes", attr.name(), registration.length);
                return Err(Error::unsupported(WHAT, detail));
            }
            slots.insert(registration.number, Slot { attr, length: registration.length });
        }
        let mut known = BTreeMap::new();
        for (name, numbers) in layouts {
            let number = std::str::from_utf8(name).ok().and_then(|text| text.parse::<u16>().ok());
            let number = number
                .filter(|number| *number < 1 << 10)
                .ok_or_else(|| Error::invalid(WHAT, format!("layout {:?}", String::from_utf8_lossy(name))))?;
            let layout = numbers.iter().map(|attribute| {
                slots.get(attribute).copied().ok_or_else(|| {
                    Error::invalid(WHAT, format!("layout {number} has unregistered attribute {attribute}"))
                })
            });
            known.insert(number, layout.collect::<Result<Box<[Slot]>>>()?);
        }
        Ok(Tables { layouts: known })
    }

    /// Finds the attributes of an area. `order` is the byte order of the block that holds the area; an area
    /// with a header states its own.
    pub fn locate(&self, area: &[u8], kind: AreaKind, order: ByteOrder) -> Result<Located> {
        match kind {
            AreaKind::Znode => {
                let slots: [Slot; LEGACY] = std::array::from_fn(|index| legacy_slot(Attr::ALL[index]));
                Located::empty(order).fill(area, 0, &slots, &[])
            }
            AreaKind::Sa => {
                let magic: [u8; 4] = Reader::new(WHAT, area, order).array()?;
                if magic == [0; 4] {
                    return Ok(Located::empty(order));
                }
                let order = [ByteOrder::Little, ByteOrder::Big]
                    .into_iter()
                    .find(|order| order.u32(magic) == MAGIC)
                    .ok_or(Error::BadMagic { what: WHAT, found: order.u32(magic).into() })?;
                let mut reader = Reader::new(WHAT, area, order);
                reader.skip(4)?;
                let info = reader.u16()?;
                let layout = self.layout(info & 0x3ff)?;
                let variable = layout.iter().filter(|slot| slot.length == 0).count();
                // A writer may reserve more header than the lengths need.
                let header = usize::from(info >> 10) * 8;
                if header < header_size(variable) {
                    return Err(Error::invalid(
                        WHAT,
                        format!("header of {header} bytes for {variable} lengths"),
                    ));
                }
                let lengths = (0..variable).map(|_| reader.u16()).collect::<Result<Vec<u16>>>()?;
                Located::empty(order).fill(area, header, layout, &lengths)
            }
        }
    }

    fn layout(&self, number: u16) -> Result<&[Slot]> {
        match self.layouts.get(&number) {
            Some(layout) => Ok(layout),
            // Layout 1 is the one without attributes; it is never stored.
            None if number == 1 => Ok(&[]),
            None => Err(Error::invalid(WHAT, format!("layout {number} is not defined"))),
        }
    }

    /// Packs an area of this layout; the values are in its sequence.
    pub fn encode(&self, layout: u16, values: &[&[u8]], order: ByteOrder) -> Result<Vec<u8>> {
        let slots = self.layout(layout)?;
        if slots.len() != values.len() {
            return Err(Error::invalid(WHAT, format!("{} values for layout {layout}", values.len())));
        }
        let variable = slots.iter().filter(|slot| slot.length == 0).count();
        let header = header_size(variable);
        let mut writer = Writer::new(order);
        writer.u32(MAGIC).u16(layout | ((header / 8) as u16) << 10);
        for (slot, value) in slots.iter().zip(values) {
            let length = u16::try_from(value.len())
                .map_err(|_| Error::TooLarge { what: "system attribute", limit: u16::MAX.into() })?;
            if slot.length == 0 {
                writer.u16(length);
            } else if slot.length != length {
                return Err(Error::invalid(WHAT, format!("{length} bytes for {:?}", slot.attr)));
            }
        }
        writer.zeros_to(header);
        for value in values {
            writer.align(8).bytes(value);
        }
        writer.align(8);
        Ok(writer.finish())
    }
}

fn legacy_slot(attr: Attr) -> Slot {
    Slot { attr: Some(attr), length: attr.length() }
}

/// The header ends with the lengths of variable attributes, for one of which there is always room.
fn header_size(variable: usize) -> usize {
    (LENGTHS + 2 * variable).next_multiple_of(8)
}

/// Where in one area each attribute lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// Byte order of the attributes.
    pub order: ByteOrder,
    places: [Option<(u32, u16)>; ATTRS],
}

impl Located {
    /// An area without attributes.
    pub const fn empty(order: ByteOrder) -> Located {
        Located { order, places: [None; ATTRS] }
    }

    fn fill(mut self, area: &[u8], start: usize, slots: &[Slot], lengths: &[u16]) -> Result<Located> {
        let mut lengths = lengths.iter().copied();
        let mut start = start;
        for slot in slots {
            let length = if slot.length == 0 { lengths.next().unwrap_or(0) } else { slot.length };
            let end = start + usize::from(length);
            if end > area.len() {
                return Err(Error::Truncated {
                    what: WHAT,
                    offset: start,
                    needed: length.into(),
                    available: area.len().saturating_sub(start),
                });
            }
            if let Some(place) = slot.attr.and_then(|attr| self.places.get_mut(attr as usize)) {
                *place = Some((start as u32, length));
            }
            start = end.next_multiple_of(8);
        }
        Ok(self)
    }

    /// The attribute lies in this area.
    pub fn contains(&self, attr: Attr) -> bool {
        self.place(attr).is_some()
    }

    fn place(&self, attr: Attr) -> Option<(u32, u16)> {
        self.places.get(attr as usize).copied().flatten()
    }

    /// The bytes of an attribute in its area, the one that was given to [`Tables::locate`].
    pub fn get<'a>(&self, area: &'a [u8], attr: Attr) -> Option<&'a [u8]> {
        let (start, length) = self.place(attr)?;
        area.get(start as usize..start as usize + usize::from(length))
    }

    /// An attribute that is one integer.
    pub fn u64(&self, area: &[u8], attr: Attr) -> Option<u64> {
        self.get(area, attr)?.first_chunk().map(|bytes| self.order.u64(*bytes))
    }

    /// An attribute that is two integers: seconds and nanoseconds.
    pub fn pair(&self, area: &[u8], attr: Attr) -> Option<[u64; 2]> {
        let (words, _) = self.get(area, attr)?.as_chunks::<8>();
        words.first_chunk().map(|pair: &[[u8; 8]; 2]| pair.map(|word| self.order.u64(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    /// The registry of a usual filesystem, whose attributes got numbers in another sequence.
    fn tables(layouts: &[(&str, Vec<u16>)]) -> Tables {
        let later = [Attr::Symlink, Attr::DaclCount, Attr::DaclAces, Attr::Dxattr];
        let registry = later.iter().zip(16u16..).map(|(attr, number)| {
            let value = Registration { number, byteswap: attr.byteswap() as u8, length: attr.length() };
            (attr.name().as_bytes(), value.to_raw())
        });
        let foreign = Registration { number: 30, byteswap: 3, length: 5 };
        let registry = registry.chain([(b"FOREIGN".as_slice(), foreign.to_raw())]);
        Tables::new(registry, layouts.iter().map(|(name, layout)| (name.as_bytes(), layout.clone()))).unwrap()
    }

    #[test]
    fn attributes_are_found_behind_foreign_and_variable_ones() {
        let tables = tables(&[("2", vec![5, 16, 30, 19, 6])]);
        for order in ORDERS {
            let (mode, size) = (order.u64_bytes(0o100644), order.u64_bytes(77));
            let area = tables.encode(2, &[&mode, b"target", b"other", b"nvlist", &size], order).unwrap();
            // The order of the block does not matter: the area has its own magic.
            let found = tables.locate(&area, AreaKind::Sa, ByteOrder::Little).unwrap();
            assert_eq!(found.order, order);
            assert_eq!(found.u64(&area, Attr::Mode), Some(0o100644));
            assert_eq!(found.u64(&area, Attr::Size), Some(77));
            assert_eq!(found.get(&area, Attr::Symlink), Some(&b"target"[..]));
            assert_eq!(found.get(&area, Attr::Dxattr), Some(&b"nvlist"[..]));
            assert!(!found.contains(Attr::Uid) && found.u64(&area, Attr::Uid).is_none());
            assert!(tables.locate(&area[..area.len() - 8], AreaKind::Sa, order).is_err());
        }
    }

    #[test]
    fn attributes_begin_where_the_header_says_that_it_ends() {
        let tables = tables(&[("2", vec![5, 6])]);
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let [mode, size] = [7, 8].map(|word| order.u64_bytes(word));
            let mut area = tables.encode(2, &[&mode, &size], order).unwrap();
            area.splice(8..8, [0xff; 8]);
            area[4..6].copy_from_slice(&order.u16_bytes(2 | 2 << 10));
            let located = tables.locate(&area, AreaKind::Sa, order).unwrap();
            assert_eq!((located.u64(&area, Attr::Mode), located.u64(&area, Attr::Size)), (Some(7), Some(8)));
            area[4..6].copy_from_slice(&order.u16_bytes(2));
            assert!(tables.locate(&area, AreaKind::Sa, order).is_err());
        }
    }

    #[test]
    fn an_old_znode_has_a_fixed_layout() {
        for order in ORDERS {
            let words: Vec<u8> = (0..33).flat_map(|word| order.u64_bytes(word)).collect();
            assert_eq!(words.len(), ZNODE_SIZE);
            let found = Tables::default().locate(&words, AreaKind::Znode, order).unwrap();
            assert_eq!(found.pair(&words, Attr::Crtime), Some([6, 7]));
            assert_eq!(found.u64(&words, Attr::Gid), Some(17));
            assert_eq!(found.get(&words, Attr::ZnodeAcl).map(<[u8]>::len), Some(88));
            assert!(Tables::default().locate(&words[8..], AreaKind::Znode, order).is_err());
        }
    }

    #[test]
    fn an_area_without_magic_is_empty_and_a_wrong_magic_an_error() {
        let tables = Tables::default();
        let empty = tables.locate(&[0; 64], AreaKind::Sa, ByteOrder::Little).unwrap();
        assert_eq!(empty, Located::empty(ByteOrder::Little));
        assert!(matches!(
            tables.locate(&[1; 64], AreaKind::Sa, ByteOrder::Little),
            Err(Error::BadMagic { .. })
        ));
    }

    #[test]
    fn tables_that_contradict_themselves_are_refused() {
        let size = Registration { number: 6, byteswap: 0, length: 4 };
        assert!(Tables::new([(b"ZPL_SIZE".as_slice(), size.to_raw())], []).is_err());
        assert!(Tables::new([], [(b"2".as_slice(), vec![99])]).is_err());
        assert!(Tables::new([], [(b"two".as_slice(), vec![])]).is_err());
    }

    #[test]
    fn registrations_are_packed_as_openzfs_packs_them() {
        let registration = Registration { number: 5, byteswap: 4, length: 88 };
        assert_eq!(registration.to_raw(), 88 << 24 | 4 << 16 | 5);
        assert_eq!(Registration::from_raw(registration.to_raw()), registration);
    }

    proptest! {
        #[test]
        fn layouts_round_trip(
            layout in proptest::sample::subsequence((0u16..20).collect::<Vec<_>>(), 0..20),
            lengths in proptest::collection::vec(0usize..300, 20), big: bool,
        ) {
            let order = ORDERS[usize::from(big)];
            let tables = tables(&[("7", layout.clone())]);
            let values: Vec<Vec<u8>> = layout.iter().map(|number| {
                let length = match *number {
                    16 | 18 | 19 => lengths[usize::from(*number)],
                    17 => 8,
                    legacy => Attr::ALL[usize::from(legacy)].length().into(),
                };
                vec![*number as u8 + 1; length]
            }).collect();
            let area = tables.encode(7, &values.iter().map(Vec::as_slice).collect::<Vec<_>>(), order).unwrap();
            let found = tables.locate(&area, AreaKind::Sa, order.swapped()).unwrap();
            let attrs = Attr::ALL[..16].iter().chain(&[Attr::Symlink, Attr::DaclCount, Attr::DaclAces, Attr::Dxattr]);
            for (number, attr) in (0u16..).zip(attrs) {
                let expected = layout.iter().position(|other| *other == number).map(|at| values[at].as_slice());
                prop_assert_eq!(found.get(&area, *attr), expected);
            }
        }

        #[test]
        fn arbitrary_areas_never_panic(bytes: Vec<u8>, big: bool) {
            let order = ORDERS[usize::from(big)];
            let area = [&order.u32_bytes(MAGIC)[..], &order.u16_bytes(3), &bytes].concat();
            let tables = tables(&[("3", vec![16, 5, 18, 19])]);
            let _ = (tables.locate(&area, AreaKind::Sa, order), tables.locate(&bytes, AreaKind::Znode, order));
        }
    }
}
