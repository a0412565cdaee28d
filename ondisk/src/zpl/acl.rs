//! Access control lists of files.
//!
//! Files with system attributes keep the entries in `ZPL_DACL_ACES` and their number in `ZPL_DACL_COUNT`. Old
//! znodes have an [`AclPhys`] of 88 bytes with room for a short list, or the object number of a long one:
//!
//! | offset | size | version 1 | version 0 |
//! |---|---|---|---|
//! | 0 | 8 | object of the entries, 0: they are here | the same |
//! | 8 | 4 | bytes of the entries | number of entries |
//! | 12 | 2 | version, 1 | version, 0 |
//! | 14 | 2 | number of entries | bytes of the entries |
//! | 16 | 72 | entries | entries |
//!
//! Entries of version 1 have three sizes. The short one is for owner, owning group and everyone:
//!
//! | offset | size | name |
//! |---|---|---|
//! | 0 | 2 | type |
//! | 2 | 2 | flags |
//! | 4 | 4 | access mask |
//! | 8 | 8 | who ([`Fuid`]), not in the short form |
//! | 16 | 16 | object type, in object entries |
//! | 32 | 16 | inherited object type, in object entries |
//!
//! Entries of version 0 have 12 bytes: who (4), access mask (4), flags (2), type (2).
//!
//! Source: OpenZFS 2.3 `zfs_acl.h`, `zfs_acl.c`.

use super::Fuid;
use crate::{ByteOrder, Error, ObjectId, Reader, Result, Writer};

const WHAT: &str = "ACL";
const INLINE_SIZE: usize = 72;
const OLD_ACE_SIZE: usize = 12;

/// Bits of an entry's flags.
#[allow(missing_docs)] // The names are those of NFSv4.
pub mod ace_flags {
    pub const FILE_INHERIT: u16 = 0x1;
    pub const DIRECTORY_INHERIT: u16 = 0x2;
    pub const NO_PROPAGATE_INHERIT: u16 = 0x4;
    pub const INHERIT_ONLY: u16 = 0x8;
    pub const SUCCESSFUL_ACCESS: u16 = 0x10;
    pub const FAILED_ACCESS: u16 = 0x20;
    pub const IDENTIFIER_GROUP: u16 = 0x40;
    pub const INHERITED: u16 = 0x80;
    pub const OWNER: u16 = 0x1000;
    pub const GROUP: u16 = 0x2000;
    pub const EVERYONE: u16 = 0x4000;
    /// The flags that say whom the entry is about.
    pub const WHO: u16 = OWNER | GROUP | EVERYONE | IDENTIFIER_GROUP;
}

/// Bits of an entry's access mask.
#[allow(missing_docs)] // The names are those of NFSv4.
pub mod ace_mask {
    pub const READ_DATA: u32 = 0x1;
    pub const WRITE_DATA: u32 = 0x2;
    pub const APPEND_DATA: u32 = 0x4;
    pub const READ_NAMED_ATTRS: u32 = 0x8;
    pub const WRITE_NAMED_ATTRS: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
    pub const DELETE_CHILD: u32 = 0x40;
    pub const READ_ATTRIBUTES: u32 = 0x80;
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    pub const DELETE: u32 = 0x1_0000;
    pub const READ_ACL: u32 = 0x2_0000;
    pub const WRITE_ACL: u32 = 0x4_0000;
    pub const WRITE_OWNER: u32 = 0x8_0000;
    pub const SYNCHRONIZE: u32 = 0x10_0000;
}

/// The effect of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AceType {
    /// Grants access.
    Allow,
    /// Refuses access.
    Deny,
    /// Logs access.
    Audit,
    /// Raises an alarm.
    Alarm,
    /// One of the entries that only Windows knows, by its number.
    Other(u16),
}

impl AceType {
    const fn from_raw(raw: u16) -> AceType {
        match raw {
            0 => AceType::Allow,
            1 => AceType::Deny,
            2 => AceType::Audit,
            3 => AceType::Alarm,
            other => AceType::Other(other),
        }
    }

    const fn raw(self) -> u16 {
        match self {
            AceType::Allow => 0,
            AceType::Deny => 1,
            AceType::Audit => 2,
            AceType::Alarm => 3,
            AceType::Other(other) => other,
        }
    }

    /// Its entries name object types.
    pub const fn has_object(self) -> bool {
        matches!(self, AceType::Other(5..=8))
    }
}

/// Whom an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AceWho {
    /// The owner of the file.
    Owner,
    /// The group of the file.
    OwningGroup,
    /// Everyone.
    Everyone,
    /// A user.
    User(Fuid),
    /// A group.
    Group(Fuid),
}

/// Object types of an object entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AceObject {
    /// Object type.
    pub object_type: [u8; 16],
    /// Inherited object type.
    pub inherited_type: [u8; 16],
}

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ace {
    /// Its effect.
    pub ace_type: AceType,
    /// Inheritance and subject, see [`ace_flags`].
    pub flags: u16,
    /// Access, see [`ace_mask`].
    pub mask: u32,
    /// Subject as stored; the short form has none.
    pub fuid: Option<Fuid>,
    /// In object entries.
    pub object: Option<AceObject>,
}

impl Ace {
    /// Whom the entry is about.
    pub fn who(&self) -> AceWho {
        let fuid = self.fuid.unwrap_or_default();
        match self.flags & ace_flags::WHO {
            ace_flags::OWNER => AceWho::Owner,
            ace_flags::EVERYONE => AceWho::Everyone,
            flags if flags == ace_flags::GROUP | ace_flags::IDENTIFIER_GROUP => AceWho::OwningGroup,
            ace_flags::IDENTIFIER_GROUP => AceWho::Group(fuid),
            _ => AceWho::User(fuid),
        }
    }

    /// The entry is stored without subject.
    fn is_short(ace_type: AceType, flags: u16) -> bool {
        let who = flags & ace_flags::WHO;
        matches!(ace_type, AceType::Allow | AceType::Deny)
            && (who == ace_flags::OWNER
                || who == ace_flags::EVERYONE
                || who == ace_flags::GROUP | ace_flags::IDENTIFIER_GROUP)
    }
}

/// Parses `count` entries of an ACL of this version.
pub fn parse_aces(bytes: &[u8], version: u16, count: u64, order: ByteOrder) -> Result<Vec<Ace>> {
    let mut reader = Reader::new(WHAT, bytes, order);
    let read = match version {
        0 => read_old_ace,
        1 => read_ace,
        _ => return Err(Error::unsupported(WHAT, format!("version {version}"))),
    };
    let mut aces = Vec::new();
    for _ in 0..count {
        aces.push(read(&mut reader)?);
    }
    Ok(aces)
}

fn read_old_ace(reader: &mut Reader<'_>) -> Result<Ace> {
    let fuid = Some(Fuid(reader.u32()?.into()));
    let mask = reader.u32()?;
    let flags = reader.u16()?;
    let ace_type = AceType::from_raw(reader.u16()?);
    Ok(Ace { ace_type, flags, mask, fuid, object: None })
}

fn read_ace(reader: &mut Reader<'_>) -> Result<Ace> {
    let ace_type = AceType::from_raw(reader.u16()?);
    let flags = reader.u16()?;
    let mask = reader.u32()?;
    let fuid = if Ace::is_short(ace_type, flags) { None } else { Some(Fuid(reader.u64()?)) };
    let object = if ace_type.has_object() {
        Some(AceObject { object_type: reader.array()?, inherited_type: reader.array()? })
    } else {
        None
    };
    Ok(Ace { ace_type, flags, mask, fuid, object })
}

/// Packs entries for an ACL of this version.
pub fn write_aces(aces: &[Ace], version: u16, order: ByteOrder) -> Result<Vec<u8>> {
    let mut writer = Writer::new(order);
    for ace in aces {
        let fuid = ace.fuid.unwrap_or_default().0;
        if version == 0 {
            let who = u32::try_from(fuid).map_err(|_| Error::unsupported(WHAT, "domains in version 0"))?;
            writer.u32(who).u32(ace.mask).u16(ace.flags).u16(ace.ace_type.raw());
            continue;
        }
        writer.u16(ace.ace_type.raw()).u16(ace.flags).u32(ace.mask);
        if !Ace::is_short(ace.ace_type, ace.flags) {
            writer.u64(fuid);
        }
        if ace.ace_type.has_object() {
            let object = ace.object.unwrap_or(AceObject { object_type: [0; 16], inherited_type: [0; 16] });
            writer.bytes(&object.object_type).bytes(&object.inherited_type);
        }
    }
    Ok(writer.finish())
}

/// ACL of an old znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclPhys {
    /// Object of the entries, if they are not here.
    pub external: Option<ObjectId>,
    /// 0 or 1.
    pub version: u16,
    /// Number of entries.
    pub count: u64,
    /// Bytes of the entries.
    pub size: u64,
    /// The entries, when there is no object.
    pub inline: [u8; INLINE_SIZE],
    /// Byte order of the znode.
    pub order: ByteOrder,
}

impl AclPhys {
    /// Bytes on disk.
    pub const SIZE: usize = 16 + INLINE_SIZE;

    /// Parses the last 88 bytes of an old znode.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<AclPhys> {
        let mut reader = Reader::new(WHAT, bytes, order);
        let external = reader.u64()?;
        let first = u64::from(reader.u32()?);
        let version = reader.u16()?;
        let second = u64::from(reader.u16()?);
        let (count, size) = match version {
            0 => (first, first * OLD_ACE_SIZE as u64),
            1 => (second, first),
            _ => return Err(Error::unsupported(WHAT, format!("version {version}"))),
        };
        let external = (external != 0).then_some(ObjectId(external));
        if external.is_none() && size > INLINE_SIZE as u64 {
            return Err(Error::invalid(WHAT, format!("{size} bytes of entries in a znode")));
        }
        Ok(AclPhys { external, version, count, size, inline: reader.array()?, order })
    }

    /// The 88 bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let too_large = |_| Error::TooLarge { what: WHAT, limit: u16::MAX.into() };
        // The second number is padding in version 0.
        let (first, second) = if self.version == 0 { (self.count, 0) } else { (self.size, self.count) };
        let mut writer = Writer::new(self.order);
        writer.u64(self.external.map_or(0, |id| id.0)).u32(u32::try_from(first).map_err(too_large)?);
        writer.u16(self.version).u16(u16::try_from(second).map_err(too_large)?).bytes(&self.inline);
        Ok(writer.finish())
    }

    /// The entries that are here; none when they are in an object.
    pub fn inline_aces(&self) -> Result<Vec<Ace>> {
        if self.external.is_some() {
            return Ok(Vec::new());
        }
        let bytes = self.inline.get(..self.size as usize).unwrap_or(&self.inline);
        parse_aces(bytes, self.version, self.count, self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    #[test]
    fn a_long_acl_of_version_0_encodes() {
        let inline = [0; INLINE_SIZE];
        let (external, order) = (Some(ObjectId(9)), ByteOrder::Little);
        let acl =
            AclPhys { external, version: 0, count: 6000, size: 6000 * OLD_ACE_SIZE as u64, inline, order };
        assert_eq!(AclPhys::parse(&acl.encode().unwrap(), order), Ok(acl));
    }

    #[test]
    fn the_subject_is_told_by_flags() {
        let ace = |flags| Ace { ace_type: AceType::Allow, flags, mask: 1, fuid: Some(Fuid(7)), object: None };
        assert_eq!(ace(0x1000).who(), AceWho::Owner);
        assert_eq!(ace(0x2040).who(), AceWho::OwningGroup);
        assert_eq!(ace(0x4000 | ace_flags::INHERITED).who(), AceWho::Everyone);
        assert_eq!(ace(0x40).who(), AceWho::Group(Fuid(7)));
        assert_eq!(ace(ace_flags::FILE_INHERIT).who(), AceWho::User(Fuid(7)));
    }

    #[test]
    fn short_entries_have_eight_bytes() {
        let owner =
            Ace { ace_type: AceType::Deny, flags: ace_flags::OWNER, mask: 5, fuid: None, object: None };
        for order in ORDERS {
            let bytes = write_aces(&[owner], 1, order).unwrap();
            assert_eq!(bytes.len(), 8);
            assert_eq!(parse_aces(&bytes, 1, 1, order), Ok(vec![owner]));
            assert!(parse_aces(&bytes, 1, 2, order).is_err());
        }
    }

    #[test]
    fn old_znodes_hold_either_version() {
        for order in ORDERS {
            for version in [0, 1] {
                let fuid = (version == 0).then_some(Fuid(0));
                let ace =
                    Ace { ace_type: AceType::Allow, flags: ace_flags::OWNER, mask: 9, fuid, object: None };
                let bytes = write_aces(&[ace; 3], version, order).unwrap();
                let mut inline = [0; INLINE_SIZE];
                inline[..bytes.len()].copy_from_slice(&bytes);
                let acl =
                    AclPhys { external: None, version, count: 3, size: bytes.len() as u64, inline, order };
                let parsed = AclPhys::parse(&acl.encode().unwrap(), order).unwrap();
                assert_eq!(parsed, acl);
                assert_eq!(parsed.inline_aces(), Ok(vec![ace; 3]));
                assert!(
                    AclPhys::parse(&AclPhys { count: 7, size: 84, ..acl }.encode().unwrap(), order).is_err()
                );
            }
        }
    }

    fn ace() -> impl Strategy<Value = Ace> {
        (0u16..9, any::<u16>(), any::<u32>(), any::<u64>(), any::<[[u8; 16]; 2]>()).prop_map(
            |(number, flags, mask, fuid, [object_type, inherited_type])| {
                let ace_type = AceType::from_raw(number);
                Ace {
                    ace_type,
                    flags,
                    mask,
                    fuid: (!Ace::is_short(ace_type, flags)).then_some(Fuid(fuid)),
                    object: ace_type.has_object().then_some(AceObject { object_type, inherited_type }),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn entries_round_trip(aces in proptest::collection::vec(ace(), 0..8), big: bool) {
            let order = ORDERS[usize::from(big)];
            let bytes = write_aces(&aces, 1, order).unwrap();
            prop_assert_eq!(parse_aces(&bytes, 1, aces.len() as u64, order).unwrap(), aces);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, version in 0u16..3, count: u64) {
            let _ = parse_aces(&bytes, version, count, ByteOrder::Big);
            if let Ok(acl) = AclPhys::parse(&bytes, ByteOrder::Big) {
                let _ = acl.inline_aces();
            }
        }
    }
}
