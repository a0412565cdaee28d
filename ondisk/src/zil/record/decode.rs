//! From bytes to records.

use super::{
    Acl, Attributes, CreateKind, NewObject, Record, RecordHeader, RenameKind, Time, WHAT, WriteData,
    domains_of, kind, set_attr_mask,
};
use crate::blkptr::Blkptr;
use crate::{ByteOrder, Error, ObjectId, Reader, Result};

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let length = reader.rest().iter().position(|&byte| byte == 0);
    let found = reader.bytes(length.ok_or_else(|| Error::invalid(WHAT, "unterminated name"))?)?;
    reader.skip(1)?;
    Ok(found)
}

fn domains<'a>(reader: &mut Reader<'a>, count: u64) -> Result<Vec<&'a [u8]>> {
    (0..bounded(count, 1, reader)?).map(|_| text(reader)).collect()
}

/// `count` if that many items of `size` bytes can still follow.
fn bounded(count: u64, size: usize, reader: &Reader<'_>) -> Result<usize> {
    let most = reader.remaining() / size;
    match usize::try_from(count) {
        Ok(count) if count <= most => Ok(count),
        _ => Err(Error::invalid(WHAT, format!("{count} items where at most {most} fit"))),
    }
}

struct AclCounts {
    count: u64,
    domains: u64,
    fuids: u64,
    bytes: u64,
    flags: u64,
}

impl AclCounts {
    fn read(reader: &mut Reader<'_>) -> Result<AclCounts> {
        let [count, domains, fuids, bytes, flags] = reader.u64s()?;
        Ok(AclCounts { count, domains, fuids, bytes, flags })
    }

    fn read_acl<'a>(&self, reader: &mut Reader<'a>) -> Result<Acl<'a>> {
        let length = bounded(self.bytes, 1, reader)?;
        let entries = reader.bytes(length)?;
        reader.skip(length.wrapping_neg() & 7)?;
        let fuids = (0..bounded(self.fuids, 8, reader)?).map(|_| reader.u64()).collect::<Result<_>>()?;
        Ok(Acl { count: self.count, flags: self.flags, entries, fuids })
    }
}
impl<'a> Record<'a> {
    /// Takes apart a record of exactly these bytes.
    pub fn parse(bytes: &'a [u8], order: ByteOrder) -> Result<Record<'a>> {
        let mut reader = Reader::new(WHAT, bytes, order);
        let header = RecordHeader::read(&mut reader)?;
        if header.record_bytes()? != bytes.len() {
            return Err(Error::invalid(WHAT, format!("length {} in {} bytes", header.reclen, bytes.len())));
        }
        Record::read_body(&header, &mut reader)
    }

    fn read_body(header: &RecordHeader, reader: &mut Reader<'a>) -> Result<Record<'a>> {
        use CreateKind::{Directory, File, XattrDirectory};
        Ok(match header.kind_number() {
            kind::CREATE => Record::read_create(reader, File, false, false)?,
            kind::MKDIR => Record::read_create(reader, Directory, false, false)?,
            kind::MKXATTR => Record::read_create(reader, XattrDirectory, false, false)?,
            kind::CREATE_ACL => Record::read_create(reader, File, true, false)?,
            kind::CREATE_ATTR => Record::read_create(reader, File, false, true)?,
            kind::CREATE_ACL_ATTR => Record::read_create(reader, File, true, true)?,
            kind::MKDIR_ACL => Record::read_create(reader, Directory, true, false)?,
            kind::MKDIR_ATTR => Record::read_create(reader, Directory, false, true)?,
            kind::MKDIR_ACL_ATTR => Record::read_create(reader, Directory, true, true)?,
            kind::SYMLINK => Record::Symlink {
                directory: ObjectId(reader.u64()?),
                object: NewObject::read(reader)?,
                name: text(reader)?,
                target: text(reader)?,
            },
            kind::REMOVE => Record::Remove { directory: ObjectId(reader.u64()?), name: text(reader)? },
            kind::RMDIR => Record::Rmdir { directory: ObjectId(reader.u64()?), name: text(reader)? },
            kind::LINK => Record::Link {
                directory: ObjectId(reader.u64()?),
                object: ObjectId(reader.u64()?),
                name: text(reader)?,
            },
            number @ (kind::RENAME | kind::RENAME_EXCHANGE | kind::RENAME_WHITEOUT) => {
                let [source, target] = reader.u64s()?.map(ObjectId);
                let kind = match number {
                    kind::RENAME => RenameKind::Replace,
                    kind::RENAME_EXCHANGE => RenameKind::Exchange,
                    _ => RenameKind::Whiteout(NewObject::read(reader)?),
                };
                Record::Rename {
                    kind,
                    source,
                    target,
                    source_name: text(reader)?,
                    target_name: text(reader)?,
                }
            }
            kind::WRITE => Record::read_write(reader)?,
            kind::WRITE2 => {
                let [object, offset, length, _] = reader.u64s()?;
                Record::Write2 { object: ObjectId(object), offset, length, block: Blkptr::read(reader)? }
            }
            kind::TRUNCATE => {
                let [object, offset, length] = reader.u64s()?;
                Record::Truncate { object: ObjectId(object), offset, length }
            }
            kind::SETATTR => Record::read_set_attr(reader)?,
            kind::ACL_V0 => {
                let [object, count] = reader.u64s()?;
                Record::AclV0 { object: ObjectId(object), count, entries: reader.rest() }
            }
            kind::ACL => {
                let object = ObjectId(reader.u64()?);
                let counts = AclCounts::read(reader)?;
                let acl = counts.read_acl(reader)?;
                Record::Acl { object, acl, domains: domains(reader, counts.domains)? }
            }
            kind::SETSAXATTR => {
                let [object, size] = reader.u64s()?;
                let name = text(reader)?;
                let value = reader.bytes(bounded(size, 1, reader)?)?;
                Record::SetSaXattr { object: ObjectId(object), name, value }
            }
            kind::CLONE_RANGE => {
                let [object, offset, length, block_bytes, count] = reader.u64s()?;
                let count = bounded(count, Blkptr::SIZE, reader)?;
                let blocks = (0..count).map(|_| Blkptr::read(reader)).collect::<Result<_>>()?;
                Record::CloneRange { object: ObjectId(object), offset, length, block_bytes, blocks }
            }
            other => return Err(Error::unsupported(WHAT, format!("kind {other}"))),
        })
    }

    fn read_create(
        reader: &mut Reader<'a>,
        kind: CreateKind,
        acl: bool,
        attributes: bool,
    ) -> Result<Record<'a>> {
        let directory = ObjectId(reader.u64()?);
        let object = NewObject::read(reader)?;
        let counts = if acl { Some(AclCounts::read(reader)?) } else { None };
        let attributes = if attributes { Some(Attributes::read(reader)?) } else { None };
        let acl = counts.as_ref().map(|counts| counts.read_acl(reader)).transpose()?;
        let domains = domains(reader, counts.map_or_else(|| object.domains(), |counts| counts.domains))?;
        let name = text(reader)?;
        Ok(Record::Create { kind, directory, object, attributes, acl, domains, name })
    }

    fn read_write(reader: &mut Reader<'a>) -> Result<Record<'a>> {
        let [object, offset, length, _] = reader.u64s()?;
        let pointer = reader.bytes(Blkptr::SIZE)?;
        let data = if reader.is_empty() {
            WriteData::Block(Blkptr::parse(pointer, reader.order())?)
        } else {
            WriteData::Inline(reader.bytes(bounded(length, 1, reader)?)?)
        };
        Ok(Record::Write { object: ObjectId(object), offset, length, data })
    }

    fn read_set_attr(reader: &mut Reader<'a>) -> Result<Record<'a>> {
        let [object, mask, mode, uid, gid, size] = reader.u64s()?;
        let atime = Time::read(reader)?;
        let mtime = Time::read(reader)?;
        let has_attributes = mask & set_attr_mask::XVATTR != 0;
        let attributes = if has_attributes { Some(Attributes::read(reader)?) } else { None };
        let set = |bit: u64, id: u64| if mask & bit != 0 { id } else { 0 };
        let count = domains_of(set(set_attr_mask::UID, uid), set(set_attr_mask::GID, gid));
        let domains = domains(reader, count)?;
        let object = ObjectId(object);
        Ok(Record::SetAttr { object, mask, mode, uid, gid, size, atime, mtime, attributes, domains })
    }
}
