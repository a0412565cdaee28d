use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn begin(header: HeaderType, payload_bytes: u32) -> Record {
    Record::Begin(Begin {
        header,
        features: feature::LARGE_BLOCKS | feature::COMPRESSED,
        creation_time: 1,
        objset_type: 2,
        flags: begin_flag::FREERECORDS,
        to_guid: Guid(3),
        from_guid: Guid(4),
        to_name: b"pool/fs@snap".to_vec(),
        payload_bytes,
    })
}

fn end() -> Record {
    Record::End(End { checksum: [0; 4], to_guid: Guid(3) })
}

fn crypt(n: u8) -> CryptParts {
    CryptParts { salt: [n; 8], iv: [n; 12], mac: [n; 16] }
}

/// One record of each kind but `BEGIN` and `END`, with payloads of `size` bytes (a multiple of 8) where there
/// can be one.
fn all_kinds(size: u32, n: u64) -> Vec<Record> {
    let range =
        ByteRange { object: ObjectId(n), offset: ByteOffset(n), length: u64::from(size), to_guid: Guid(3) };
    let key = DdtKey { checksum: [n; 4], prop: n };
    vec![
        Record::ObjectRange(ObjectRange {
            first: ObjectId(n),
            slots: 32,
            to_guid: Guid(3),
            crypt: crypt(5),
            flags: record_flag::RAW_BYTESWAP,
        }),
        Record::Object(Object {
            object: ObjectId(n),
            dmu_type: 19,
            bonus_type: 44,
            block_bytes: 131072,
            bonus_bytes: size,
            checksum: 1,
            compress: 2,
            dnode_slots: 3,
            flags: record_flag::OBJECT_SPILL,
            raw_bonus_bytes: 0,
            to_guid: Guid(3),
            indirect_block_shift: 17,
            levels: 2,
            block_pointers: 1,
            max_block_id: n,
        }),
        Record::Object(Object { raw_bonus_bytes: size, ..Object::default() }),
        Record::FreeObjects(FreeObjects { first: ObjectId(n), count: n, to_guid: Guid(3) }),
        Record::Write(Write {
            object: ObjectId(n),
            dmu_type: 19,
            offset: ByteOffset(n),
            logical_bytes: u64::from(size),
            to_guid: Guid(3),
            checksum: 7,
            flags: record_flag::CHECKSUM_DEDUP,
            compress: 0,
            key,
            compressed_bytes: 0,
            crypt: crypt(0),
        }),
        Record::Write(Write {
            compress: 15,
            logical_bytes: 1 << 20,
            compressed_bytes: size.into(),
            crypt: crypt(9),
            ..Write::default()
        }),
        Record::Free(range),
        Record::WriteByRef(WriteByRef {
            range,
            ref_guid: Guid(n),
            ref_object: ObjectId(n),
            ref_offset: ByteOffset(n),
            checksum: 8,
            flags: 1,
            key,
        }),
        Record::Spill(Spill { logical_bytes: size.into(), object: ObjectId(n), ..Spill::default() }),
        Record::Spill(Spill {
            logical_bytes: 512,
            compressed_bytes: size.into(),
            flags: record_flag::SPILL_UNMODIFIED,
            compress: 2,
            crypt: crypt(1),
            dmu_type: 44,
            ..Spill::default()
        }),
        Record::WriteEmbedded(WriteEmbedded {
            range,
            compress: 15,
            kind: 0,
            logical_bytes: 131072,
            physical_bytes: size.saturating_sub(3),
        }),
        Record::Redact(range),
    ]
}

fn write(writer: &mut StreamWriter, record: &Record, stream: &mut Vec<u8>) {
    let payload: Vec<u8> = (0..record.payload_bytes()).map(|n| n as u8).collect();
    stream.extend(writer.put(record, &payload).unwrap());
    stream.extend(payload);
}

fn read(mut input: &[u8]) -> Result<Vec<Record>> {
    let mut reader = StreamReader::new();
    let mut records = Vec::new();
    while let Some(item) = reader.next_in(&mut input)? {
        assert_eq!(item.payload.len() as u64, item.record.payload_bytes());
        records.push(item.record);
    }
    Ok(records)
}

fn sample(order: ByteOrder, size: u32) -> (Vec<Record>, Vec<u8>) {
    let mut writer = StreamWriter::new(order);
    let (mut records, mut stream) = (vec![begin(HeaderType::Plain, size)], Vec::new());
    records.extend(all_kinds(size, 7));
    records.push(end());
    for record in &records {
        write(&mut writer, record, &mut stream);
    }
    (records, stream)
}

fn without_end(records: &[Record]) -> Vec<&Record> {
    records.iter().filter(|record| !matches!(record, Record::End(_))).collect()
}

proptest! {
    #[test]
    fn every_kind_round_trips(size in 0..40u32, n: u64, big: bool) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        for record in all_kinds(size * 8, n) {
            let bytes = record.encode(order);
            prop_assert_eq!(bytes.len(), RECORD_SIZE);
            prop_assert_eq!(&bytes[CHECKSUM_OFFSET..], &[0; 32]);
            prop_assert_eq!(Record::parse(&bytes, order).unwrap(), record);
        }
    }

    #[test]
    fn a_stream_is_read_as_it_was_written(size in 0..40u32, big: bool) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let (records, stream) = sample(order, size * 8);
        let found = read(&stream).unwrap();
        prop_assert_eq!(without_end(&found), without_end(&records));
    }

    #[test]
    fn a_changed_byte_is_noticed(at: prop::sample::Index, change in 1..=255u8) {
        let (records, mut stream) = sample(ByteOrder::Little, 64);
        let at = at.index(stream.len());
        stream[at] ^= change;
        // Bytes of the last checksum, if they become zero, claim nothing; all else must fail.
        if let Ok(found) = read(&stream) {
            prop_assert_eq!(without_end(&found), without_end(&records));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), RECORD_SIZE), kind in 0..12u8) {
        let mut bytes = bytes;
        bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
        let _ = Record::parse(&bytes, ByteOrder::Little);
        let _ = read(&bytes);
    }
}

#[test]
fn a_compound_stream_is_streams_between_its_begin_and_a_last_end() {
    let order = ByteOrder::Little;
    let mut writer = StreamWriter::new(order);
    let mut stream = Vec::new();
    for record in [begin(HeaderType::Compound, 16), end(), begin(HeaderType::Plain, 0), end()] {
        write(&mut writer, &record, &mut stream);
    }
    // OpenZFS writes the end of the list without any checksum.
    stream.extend(end().encode(order));
    let kinds: Vec<u32> = read(&stream).unwrap().iter().map(Record::kind_number).collect();
    assert_eq!(kinds, [0, 5, 0, 5, 5]);
}

#[test]
fn a_stream_that_ends_early_is_truncated() {
    let (_, stream) = sample(ByteOrder::Big, 64);
    assert!(matches!(read(&stream[..stream.len() - 1]), Err(Error::Truncated { .. })));
    assert!(matches!(read(&stream[..stream.len() - RECORD_SIZE]), Err(Error::Truncated { .. })));
}

#[test]
fn records_without_checksums_are_accepted() {
    let order = ByteOrder::Little;
    let mut stream = begin(HeaderType::Plain, 0).encode(order);
    stream.extend(Record::Free(ByteRange::default()).encode(order));
    assert!(read(&[stream.clone(), end().encode(order)].concat()).is_err());
    let mut reader = StreamReader::new();
    let mut input = &stream[..];
    assert!(reader.next_in(&mut input).unwrap().is_some());
    assert!(reader.next_in(&mut input).unwrap().is_some());
}

#[test]
fn a_payload_beyond_the_largest_block_is_refused_before_it_is_read() {
    let order = ByteOrder::Little;
    let mut writer = StreamWriter::new(order);
    let mut stream = writer.put(&begin(HeaderType::Plain, 0), &[]).unwrap();
    stream.extend(Record::Write(Write { logical_bytes: 1 << 40, ..Write::default() }).encode(order));
    assert!(matches!(read(&stream), Err(Error::TooLarge { .. })));
}

#[test]
fn records_outside_of_a_stream_are_refused() {
    let free = Record::Free(ByteRange::default()).encode(ByteOrder::Little);
    assert!(matches!(read(&free), Err(Error::Invalid { .. })));
    let twice = begin(HeaderType::Plain, 0).encode(ByteOrder::Little).repeat(2);
    assert!(matches!(read(&twice), Err(Error::Invalid { .. })));
}

#[test]
fn a_payload_with_a_known_checksum_gives_the_same_stream() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let payload: Vec<u8> = (0..131_072u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let write = Record::Write(Write { logical_bytes: payload.len() as u64, ..Write::default() });
        let mut alone = stream::Running::default();
        alone.add(&payload, order);
        let [mut whole, mut summed] = [StreamWriter::new(order), StreamWriter::new(order)];
        for _ in 0..3 {
            let expected = whole.put(&write, &payload).unwrap();
            let found = summed.put_summed(&write, payload.len() as u64, alone.0).unwrap();
            assert_eq!(found, expected);
        }
        assert_eq!(summed.put(&end(), &[]).unwrap(), whole.put(&end(), &[]).unwrap());
        assert!(summed.put_summed(&write, 8, alone.0).is_err());
    }
}

#[test]
fn the_ends_of_a_compound_stream_claim_nothing_of_themselves() {
    let mut writer = StreamWriter::new(ByteOrder::Little);
    let mut stream = Vec::new();
    write(&mut writer, &begin(HeaderType::Compound, 0), &mut stream);
    stream.extend(writer.end_of_list());
    stream.extend(writer.conclusion());
    let (mut reader, mut input) = (StreamReader::new(), &stream[..]);
    let mut kinds = Vec::new();
    while let Some(item) = reader.next_in(&mut input).unwrap() {
        kinds.push(item.record.kind_number());
    }
    assert_eq!(kinds, [0, 5, 5]);
    let last = &stream[stream.len() - RECORD_SIZE..];
    assert!(last[4..].iter().all(|byte| *byte == 0));
}
