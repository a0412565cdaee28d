use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn any_time() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0..1_000_000_000u64).prop_map(|(seconds, nanoseconds)| Time { seconds, nanoseconds })
}

/// An id of this host, or a FUID of one of two domains.
fn any_id() -> impl Strategy<Value = u64> {
    (0..3u64, any::<u32>()).prop_map(|(domain, id)| domain << 32 | u64::from(id))
}

fn any_object() -> impl Strategy<Value = NewObject> {
    let numbers = (0..1u64 << 48, 1..=32u8, any::<u64>(), any_id(), any_id(), any::<u64>());
    (numbers, any_time(), any::<u64>()).prop_map(
        |((object, slots, mode, uid, gid, generation), crtime, rdev)| NewObject {
            foid: NewObject::foid_of(ObjectId(object), slots),
            mode,
            uid,
            gid,
            generation,
            crtime,
            rdev,
        },
    )
}

fn any_attributes() -> impl Strategy<Value = Attributes> {
    (vec(any::<u32>(), 1..4), any::<u64>(), any_time(), any::<[u8; 32]>())
        .prop_map(|(mask, bits, crtime, stamp)| Attributes { mask, bits, crtime, stamp })
}

fn any_text() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=255u8, 0..40)
}

/// Bytes and numbers from which each kind of record is made.
#[derive(Debug, Clone)]
struct Material {
    numbers: [u64; 6],
    texts: Vec<Vec<u8>>,
    data: Vec<u8>,
    fuids: Vec<u64>,
    object: NewObject,
    attributes: Option<Attributes>,
    times: (Time, Time),
    with_acl: bool,
}

fn any_material() -> impl Strategy<Value = Material> {
    let texts = vec(any_text(), 4);
    let attributes = proptest::option::of(any_attributes());
    let times = (any_time(), any_time());
    let rest = (any_object(), attributes, times, any::<bool>());
    (any::<[u64; 6]>(), texts, vec(any::<u8>(), 1..100), vec(any::<u64>(), 0..4), rest).prop_map(
        |(numbers, texts, data, fuids, (object, attributes, times, with_acl))| Material {
            numbers,
            texts,
            data,
            fuids,
            object,
            attributes,
            times,
            with_acl,
        },
    )
}

fn all_kinds(m: &Material) -> Vec<Record<'_>> {
    let [a, b, c, d, e, f] = m.numbers;
    let id = ObjectId;
    let [name, other, first_domain, second_domain] = &m.texts[..] else { unreachable!() };
    let all_domains: Vec<&[u8]> = vec![first_domain, second_domain];
    let own_domains = all_domains[..m.object.domains() as usize].to_vec();
    let acl = || Acl { count: a, flags: b, entries: &m.data, fuids: m.fuids.clone() };
    let create = |kind, acl: Option<Acl<'static>>, attributes| {
        let domains = own_domains.clone();
        Record::Create { kind, directory: id(a), object: m.object, attributes, acl, domains, name }
    };
    let mut kinds = vec![
        create(CreateKind::File, None, m.attributes.clone()),
        create(CreateKind::Directory, None, m.attributes.clone()),
        create(CreateKind::XattrDirectory, None, None),
        Record::Symlink { directory: id(a), object: m.object, name, target: other },
        Record::Remove { directory: id(a), name },
        Record::Rmdir { directory: id(a), name },
        Record::Link { directory: id(a), object: id(b), name },
        Record::Write {
            object: id(a),
            offset: b,
            length: m.data.len() as u64,
            data: WriteData::Inline(&m.data),
        },
        Record::Write { object: id(a), offset: b, length: c, data: WriteData::Block(Blkptr::HOLE) },
        Record::Write2 { object: id(a), offset: b, length: c, block: Blkptr::HOLE },
        Record::Truncate { object: id(a), offset: b, length: c },
        Record::AclV0 { object: id(a), count: b, entries: &m.data[..m.data.len() / 8 * 8] },
        Record::Acl { object: id(a), acl: acl(), domains: all_domains.clone() },
        Record::SetSaXattr { object: id(a), name, value: &m.data },
        Record::SetSaXattr { object: id(a), name, value: &[] },
        Record::CloneRange {
            object: id(a),
            offset: b,
            length: c,
            block_bytes: d,
            blocks: vec![Blkptr::HOLE; 3],
        },
    ];
    for kind in [RenameKind::Replace, RenameKind::Exchange, RenameKind::Whiteout(m.object)] {
        kinds.push(Record::Rename {
            kind,
            source: id(a),
            target: id(b),
            source_name: name,
            target_name: other,
        });
    }
    if m.with_acl {
        for kind in [CreateKind::File, CreateKind::Directory] {
            kinds.push(Record::Create {
                kind,
                directory: id(a),
                object: m.object,
                attributes: m.attributes.clone(),
                acl: Some(acl()),
                domains: all_domains.clone(),
                name,
            });
        }
    }
    let ids = set_attr_mask::UID | set_attr_mask::GID;
    let attributes = m.attributes.clone();
    let mask = if attributes.is_some() { ids | set_attr_mask::XVATTR } else { ids };
    let (atime, mtime) = m.times;
    let (uid, gid, size) = (m.object.uid, m.object.gid, f);
    let object = id(a);
    let domains = own_domains;
    kinds.push(Record::SetAttr { object, mask, mode: e, uid, gid, size, atime, mtime, attributes, domains });
    kinds
}

proptest! {
    #[test]
    fn every_kind_round_trips(material in any_material(), txg: u64, seq: u64, big: bool) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        for record in all_kinds(&material) {
            let bytes = record.encode(Txg(txg), seq, order).unwrap();
            prop_assert!(bytes.len().is_multiple_of(8));
            let header = RecordHeader::parse(&bytes, order).unwrap();
            prop_assert_eq!(header.reclen, bytes.len() as u64);
            prop_assert_eq!((header.txg, header.seq), (Txg(txg), seq));
            prop_assert_eq!(header.kind_number(), record.kind_number());
            prop_assert_eq!(Record::parse(&bytes, order).unwrap(), record);
        }
    }

    #[test]
    fn any_body_of_any_kind_is_parsed_or_refused(kind in 0..30u64, body in vec(any::<u8>(), 0..400), big: bool) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let mut writer = Writer::new(order);
        writer.u64s(&[kind, (RecordHeader::SIZE + body.len()) as u64, 1, 1]).bytes(&body);
        let _ = Record::parse(&writer.finish(), order);
    }
}

#[test]
fn the_write_record_lies_as_openzfs_writes_it() {
    let record =
        Record::Write { object: ObjectId(8), offset: 16, length: 3, data: WriteData::Inline(b"abc") };
    let bytes = record.encode(Txg(7), 9, ByteOrder::Little).unwrap();
    assert_eq!(bytes.len(), 200);
    assert_eq!(bytes[0], 9);
    assert_eq!(bytes[8], 200);
    assert_eq!(bytes[32], 8);
    assert_eq!(bytes[40], 16);
    assert_eq!(bytes[48], 3);
    assert_eq!(&bytes[192..], b"abc\0\0\0\0\0");
}

#[test]
fn names_may_be_matched_without_case() {
    let mut bytes =
        Record::Remove { directory: ObjectId(1), name: b"A" }.encode(Txg(1), 1, ByteOrder::Little).unwrap();
    bytes[7] = 0x80;
    let header = RecordHeader::parse(&bytes, ByteOrder::Little).unwrap();
    assert!(header.is_case_insensitive());
    assert_eq!(
        Record::parse(&bytes, ByteOrder::Little).unwrap(),
        Record::Remove { directory: ObjectId(1), name: b"A" }
    );
}

#[test]
fn a_record_that_contradicts_itself_is_not_written() {
    let order = ByteOrder::Little;
    assert!(Record::Remove { directory: ObjectId(1), name: b"a\0b" }.encode(Txg(1), 1, order).is_err());
    let short = Record::Write { object: ObjectId(1), offset: 0, length: 9, data: WriteData::Inline(b"abc") };
    assert!(short.encode(Txg(1), 1, order).is_err());
}

#[test]
fn dnode_slots_lie_above_the_object_number() {
    let object = NewObject { foid: NewObject::foid_of(ObjectId(77), 3), ..NewObject::default() };
    assert_eq!((object.object(), object.dnode_slots()), (ObjectId(77), 3));
    assert_eq!(object.foid, 77 | 2 << 56);
}

#[test]
fn a_name_without_end_is_refused() {
    let mut writer = Writer::new(ByteOrder::Little);
    writer.u64s(&[5, 48, 1, 1, 2]).bytes(b"abcdefgh");
    assert!(matches!(Record::parse(&writer.finish(), ByteOrder::Little), Err(Error::Invalid { .. })));
}
