//! From records to bytes.

use super::{Acl, Record, RecordHeader, RenameKind, WHAT, WriteData};
use crate::blkptr::Blkptr;
use crate::{ByteOrder, Error, Result, Txg, Writer};

fn write_acl_counts(writer: &mut Writer, acl: &Acl<'_>, domains: usize) {
    writer.u64s(&[acl.count, domains as u64, acl.fuids.len() as u64, acl.entries.len() as u64, acl.flags]);
}

fn write_acl(writer: &mut Writer, acl: &Acl<'_>) {
    writer.bytes(acl.entries).zeros(acl.entries.len().wrapping_neg() & 7).u64s(&acl.fuids);
}

fn write_texts(writer: &mut Writer, texts: &[&[u8]]) {
    for text in texts {
        writer.bytes(text).u8(0);
    }
}
impl Record<'_> {
    /// The bytes in the log. Fails for a record that contradicts itself: a name with a NUL inside, a number
    /// of domains that its ids do not announce, inline data that is not as long as stated (or empty).
    pub fn encode(&self, txg: Txg, seq: u64, order: ByteOrder) -> Result<Vec<u8>> {
        let mut writer = Writer::new(order);
        RecordHeader { txtype: self.kind_number(), reclen: 0, txg, seq }.write(&mut writer);
        self.write_body(&mut writer);
        writer.align(8);
        let length = writer.position() as u64;
        writer.patch(8, &order.u64_bytes(length));
        let bytes = writer.finish();
        match Record::parse(&bytes, order) {
            Ok(again) if again == *self => Ok(bytes),
            _ => Err(Error::invalid(WHAT, format!("cannot be written: {self:?}"))),
        }
    }

    fn write_body(&self, w: &mut Writer) {
        match self {
            Record::Create { directory, object, attributes, acl, domains, name, .. } => {
                w.u64(directory.get());
                object.write(w);
                if let Some(acl) = acl {
                    write_acl_counts(w, acl, domains.len());
                }
                if let Some(attributes) = attributes {
                    attributes.write(w);
                }
                if let Some(acl) = acl {
                    write_acl(w, acl);
                }
                write_texts(w, domains);
                write_texts(w, &[name]);
            }
            Record::Symlink { directory, object, name, target } => {
                w.u64(directory.get());
                object.write(w);
                write_texts(w, &[name, target]);
            }
            Record::Remove { directory, name } | Record::Rmdir { directory, name } => {
                w.u64(directory.get());
                write_texts(w, &[name]);
            }
            Record::Link { directory, object, name } => {
                w.u64s(&[directory.get(), object.get()]);
                write_texts(w, &[name]);
            }
            Record::Rename { kind, source, target, source_name, target_name } => {
                w.u64s(&[source.get(), target.get()]);
                if let RenameKind::Whiteout(object) = kind {
                    object.write(w);
                }
                write_texts(w, &[source_name, target_name]);
            }
            Record::Write { object, offset, length, data } => {
                w.u64s(&[object.get(), *offset, *length, 0]);
                match data {
                    WriteData::Inline(data) => w.zeros(Blkptr::SIZE).bytes(data),
                    WriteData::Block(bp) => w.bytes(&bp.encode(w.order())),
                };
            }
            Record::Write2 { object, offset, length, block } => {
                w.u64s(&[object.get(), *offset, *length, 0]);
                block.write(w);
            }
            Record::Truncate { object, offset, length } => {
                w.u64s(&[object.get(), *offset, *length]);
            }
            Record::SetAttr { object, mask, mode, uid, gid, size, atime, mtime, attributes, domains } => {
                w.u64s(&[object.get(), *mask, *mode, *uid, *gid, *size]);
                atime.write(w);
                mtime.write(w);
                if let Some(attributes) = attributes {
                    attributes.write(w);
                }
                write_texts(w, domains);
            }
            Record::AclV0 { object, count, entries } => {
                w.u64s(&[object.get(), *count]).bytes(entries);
            }
            Record::Acl { object, acl, domains } => {
                w.u64(object.get());
                write_acl_counts(w, acl, domains.len());
                write_acl(w, acl);
                write_texts(w, domains);
            }
            Record::SetSaXattr { object, name, value } => {
                w.u64s(&[object.get(), value.len() as u64]);
                write_texts(w, &[name]);
                w.bytes(value);
            }
            Record::CloneRange { object, offset, length, block_bytes, blocks } => {
                w.u64s(&[object.get(), *offset, *length, *block_bytes, blocks.len() as u64]);
                for block in blocks {
                    block.write(w);
                }
            }
        }
    }
}
