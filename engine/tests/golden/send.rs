//! Send streams, byte for byte those that OpenZFS made of the same pools.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use device::block_on;
use engine::Pool;
use engine::dsl::Dsl;
use engine::send::{Flags, Order, Piece, Plan, Stream};
use ondisk::ObjectId;
use ondisk::blkptr::CompressType;
use ondisk::send::{Record, StreamReader};

use crate::support::import_golden;

/// The bytes of all that a command makes.
pub fn made(pool: &Arc<Pool>, order: &Order) -> engine::Result<Vec<u8>> {
    block_on(async {
        let dsl = Dsl::open(pool).await?;
        let plan = Plan::make(&dsl, order).await?;
        let mut bytes = Vec::new();
        let mut add =
            |pieces: Vec<Piece>| pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.as_ref()));
        add(plan.header()?);
        for planned in &plan.streams {
            let mut stream = Stream::open(&dsl, &planned.request).await?;
            while let Some(pieces) = stream.next().await? {
                add(pieces);
            }
        }
        add(plan.conclusion());
        Ok(bytes)
    })
}

/// The records of a stream, in words, with the checksum of each payload.
fn records(bytes: &[u8]) -> Vec<String> {
    let mut reader = StreamReader::new();
    let mut input = bytes;
    let mut records = Vec::new();
    loop {
        match reader.next_in(&mut input) {
            Ok(Some(item)) => {
                let sum = codec::checksum::fletcher4(item.payload, reader.order());
                records.push(format!("{:?} {sum:?}", item.record));
            }
            Ok(None) => return records,
            Err(error) => {
                records.push(error.to_string());
                return records;
            }
        }
    }
}

/// Says at which record streams part.
fn assert_same(what: &str, found: &[u8], expected: &[u8]) {
    if found == expected {
        return;
    }
    let (of_found, of_expected) = (records(found), records(expected));
    let part = (0..).zip(of_found.iter().zip(&of_expected)).find(|(_, (found, expected))| found != expected);
    let lengths = (found.len(), expected.len(), of_found.len(), of_expected.len());
    panic!("{what}: {part:#?}, bytes and records: {lengths:?}");
}

fn order(to: &str) -> Order {
    Order { to: to.to_owned(), ..Order::default() }
}

fn compare(pool: &Arc<Pool>, folder: &Path, name: &str, order: &Order) {
    let expected = fs::read(folder.join(name)).unwrap();
    let found = made(pool, order).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_same(name, &found, &expected);
}

/// Compares record by record but for spill blocks: where one is embedded in its pointer, OpenZFS makes a
/// record of it that says to write beyond the end of all files.
fn compare_records(pool: &Arc<Pool>, folder: &Path, name: &str, order: &Order) {
    let (found, expected) = (made(pool, order).unwrap(), fs::read(folder.join(name)).unwrap());
    let (found, expected) = (records(&found), records(&expected));
    assert_eq!(found.len(), expected.len(), "{name}");
    let differing: Vec<_> =
        found.iter().zip(&expected).filter(|(found, expected)| found != expected).collect();
    let [(spill, beyond), (end, of_expected)] = differing[..] else { panic!("{name}: {differing:#?}") };
    assert!(spill.starts_with("Spill(") && beyond.starts_with("WriteEmbedded("), "{name}: {spill} {beyond}");
    assert!(end.starts_with("End(") && of_expected.starts_with("End("), "{name}: {end}");
}

#[test]
fn streams_are_those_that_openzfs_made() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let pool = import_golden(&golden).unwrap();
    let folder = golden.expect("streams");
    let from = |from: &str, to: &str| Order { from: Some(from.to_owned()), ..order(to) };
    compare(&pool, &folder, "full", &order("streams/fs@a"));
    let all = Flags { large_blocks: true, embedded: true, compressed: true, raw: false };
    compare_records(&pool, &folder, "full-Lec", &Order { flags: all, ..order("streams/fs@a") });
    compare(&pool, &folder, "inc", &from("streams/fs@a", "streams/fs@b"));
    compare(&pool, &folder, "inc-bm", &from("streams/fs#bm", "streams/fs@b"));
    compare(&pool, &folder, "vol", &order("streams/v@x"));
    let large = Flags { large_blocks: true, ..Flags::default() };
    compare(&pool, &folder, "full-Lp", &Order { flags: large, properties: true, ..order("streams/fs@b") });
    let between = Order { all_between: true, ..from("streams/fs@a", "streams/fs@c") };
    compare(&pool, &folder, "inc-I", &between);
    compare(&pool, &folder, "repl", &Order { replicate: true, ..order("streams/fs@c") });
}

#[test]
fn streams_of_blocks_that_were_rewritten_have_what_changed_for_readers() {
    let Some(golden) = testkit::golden::pool("clones24") else { return };
    let pool = import_golden(&golden).unwrap();
    let folder = golden.expect("streams");
    compare(&pool, &folder, "full", &order("clones24/fs@a"));
    let from = Some("clones24/fs@a".to_owned());
    compare(&pool, &folder, "inc-after-rewrite", &Order { from, ..order("clones24/fs@b") });
}

#[test]
fn raw_streams_need_no_key_and_are_those_that_openzfs_made() {
    let Some(golden) = testkit::golden::pool("crypt") else { return };
    let pool = import_golden(&golden).unwrap();
    let expected = unpacked(&golden.expect("raw.zstream.zst"));
    let raw = Flags { large_blocks: true, embedded: true, compressed: true, raw: true };
    let found = made(&pool, &Order { flags: raw, ..order("crypt/gcm@s") }).unwrap();
    assert_same("raw", &found, &expected);
    let refused = made(&pool, &order("crypt/gcm@s")).unwrap_err();
    assert!(matches!(refused, engine::Error::KeyNotLoaded { .. }), "{refused}");
}

fn unpacked(path: &Path) -> Vec<u8> {
    let zstd = std::process::Command::new("zstd").arg("-dcq").arg(path).output().unwrap();
    assert!(zstd.status.success());
    zstd.stdout
}

#[test]
fn a_stream_is_read_back_to_its_end() {
    let Some(golden) = testkit::golden::pool("streams") else { return };
    let pool = import_golden(&golden).unwrap();
    let bytes = made(&pool, &order("streams/fs@a")).unwrap();
    let mut reader = StreamReader::new();
    let mut input = &bytes[..];
    let mut last = None;
    while let Some(item) = reader.next_in(&mut input).unwrap() {
        last = Some(item.record);
    }
    assert!(matches!(last, Some(Record::End(_))) && reader.may_end());
}

/// The bytes of one stream from an object, and an offset in it, on.
fn resumed(pool: &Arc<Pool>, order: &Order, at: (u64, u64)) -> Vec<u8> {
    block_on(async {
        let dsl = Dsl::open(pool).await.unwrap();
        let plan = Plan::make(&dsl, order).await.unwrap();
        let mut request = plan.streams[0].request.clone();
        request.resume = Some((ObjectId(at.0), at.1));
        let mut stream = Stream::open(&dsl, &request).await.unwrap();
        let mut bytes = Vec::new();
        while let Some(pieces) = stream.next().await.unwrap() {
            pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.as_ref()));
        }
        bytes
    })
}

#[test]
fn a_resumed_stream_goes_on_where_the_first_one_was_cut() {
    for (name, snapshot, raw) in [("streams", "streams/fs@a", false), ("crypt", "crypt/gcm@s", true)] {
        let Some(golden) = testkit::golden::pool(name) else { return };
        let pool = import_golden(&golden).unwrap();
        let order = Order { flags: Flags { raw, ..Flags::default() }, ..order(snapshot) };
        let whole = records(&made(&pool, &order).unwrap());
        let mut places = Vec::new();
        let bytes = made(&pool, &order).unwrap();
        let (mut reader, mut input, mut index) = (StreamReader::new(), &bytes[..], 0);
        while let Some(item) = reader.next_in(&mut input).unwrap() {
            if let Record::Write(write) = item.record {
                places.push((index, (write.object.0, write.offset.0)));
            }
            index += 1;
        }
        for (index, at) in places.iter().step_by(places.len() / 20 + 1) {
            let rest = resumed(&pool, &order, *at);
            let begin = StreamReader::new().next_in(&mut &rest[..]).unwrap().unwrap();
            let list = ondisk::nvlist::Nvlist::parse(begin.payload).unwrap();
            assert_eq!(
                (list.find_u64("resume_object"), list.find_u64("resume_offset")),
                (Some(at.0), Some(at.1))
            );
            let Record::Begin(begin) = begin.record else { panic!("{name}") };
            assert!(begin.features & ondisk::send::feature::RESUMING != 0);
            let rest = records(&rest);
            let object = rest.iter().find(|record| record.starts_with("Object(")).unwrap();
            assert!(object.contains(&format!("object: ObjectId({})", at.0)), "{at:?}: {object}");
            // All but the last, which has a checksum of what came before.
            let (first, last) = (whole.len() - 1, rest.len() - 1);
            let same = first - index;
            assert_eq!(rest[last - same..last], whole[*index..first], "{name} {at:?}");
        }
    }
}

#[test]
fn encrypted_datasets_are_sent_decrypted_with_their_key() {
    let Some(golden) = testkit::golden::pool("crypt") else { return };
    let pool = import_golden(&golden).unwrap();
    crate::encrypted::load_keys(&golden, &pool);
    for compressed in [false, true] {
        let flags = Flags { compressed, ..Flags::default() };
        let bytes = made(&pool, &Order { flags, ..order("crypt/gcm@s") }).unwrap();
        let (mut reader, mut input) = (StreamReader::new(), &bytes[..]);
        let mut objects: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        while let Some(item) = reader.next_in(&mut input).unwrap() {
            if let Record::Write(write) = &item.record {
                assert_eq!(write.crypt, Default::default());
                let mut block = vec![0; write.logical_bytes as usize];
                match CompressType::from_raw(write.compress).unwrap() {
                    CompressType::Inherit => block.copy_from_slice(item.payload),
                    compress => codec::compress::decompress(compress, item.payload, &mut block).unwrap(),
                }
                objects.insert((write.object.0, write.offset.0), block);
            }
        }
        assert!(!objects.is_empty());
        let objset = crate::support::objset(&pool, "crypt/gcm@s").unwrap();
        for ((object, offset), block) in objects {
            let object = block_on(objset.object(ObjectId(object))).unwrap();
            let found = block_on(object.block(offset / object.block_size())).unwrap().unwrap();
            assert!(found.block[..] == block[..], "object {} at {offset}", object.id());
        }
    }
}
