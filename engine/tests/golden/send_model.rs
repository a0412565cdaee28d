//! Streams of all golden pools, applied to a model of a receiver: it must have what the sender has.
//!
//! The model knows objects, their bonus areas, spill blocks and blocks of data, and nothing else; it does
//! with records what OpenZFS's receiver does. A full stream of each snapshot, and incremental ones from each
//! snapshot to the next, are compared with what reading the snapshot shows: plain ones and with all flags, of
//! one pool with each combination of flags.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::block_on;
use engine::Pool;
use engine::dmu::Objset;
use engine::dsl::{Dsl, Walk};
use engine::send::{Flags, Order};
use ondisk::blkptr::CompressType;
use ondisk::send::{Object, Record, StreamReader};
use ondisk::{ByteOrder, ObjectId};

use crate::send::made;
use crate::support::import_golden;

#[derive(Debug, Default, Clone)]
struct Received {
    header: Object,
    bonus: Vec<u8>,
    spill: Option<Vec<u8>>,
    /// By their offsets.
    blocks: BTreeMap<u64, Vec<u8>>,
}

#[derive(Debug, Default, Clone)]
struct Model {
    objects: BTreeMap<u64, Received>,
    order: Option<ByteOrder>,
    /// Records of each kind.
    counts: [usize; 11],
}

fn decompressed(compress: u8, payload: &[u8], length: u64) -> Vec<u8> {
    let mut block = vec![0; usize::try_from(length).unwrap()];
    match CompressType::from_raw(compress).unwrap() {
        CompressType::Inherit => block.copy_from_slice(payload),
        CompressType::Off => block[..payload.len()].copy_from_slice(payload),
        compress => codec::compress::decompress(compress, payload, &mut block).unwrap(),
    }
    block
}

impl Model {
    fn receive(&mut self, stream: &[u8]) {
        let (mut reader, mut input) = (StreamReader::new(), stream);
        while let Some(item) = reader.next_in(&mut input).unwrap() {
            self.counts[item.record.kind_number() as usize] += 1;
            self.apply(&item.record, item.payload);
        }
        assert!(reader.may_end());
        self.order = Some(reader.order());
    }

    fn apply(&mut self, record: &Record, payload: &[u8]) {
        match record {
            Record::Begin(_) | Record::End(_) | Record::ObjectRange(_) => {}
            Record::Object(header) => {
                let object = self.objects.entry(header.object.0).or_default();
                let is_other = object.header.block_bytes != header.block_bytes
                    || object.header.dnode_slots != header.dnode_slots;
                if is_other {
                    object.blocks.clear();
                }
                if header.flags & ondisk::send::record_flag::OBJECT_SPILL == 0 {
                    object.spill = None;
                }
                object.header = *header;
                object.bonus = payload[..header.bonus_bytes as usize].to_vec();
            }
            Record::FreeObjects(free) => {
                self.objects.retain(|number, _| !(free.first.0..free.first.0 + free.count).contains(number));
            }
            Record::Free(range) => {
                let end = range.offset.0.saturating_add(range.length);
                if let Some(object) = self.objects.get_mut(&range.object.0) {
                    object.blocks.retain(|offset, _| !(range.offset.0..end).contains(offset));
                }
            }
            Record::Write(write) => {
                let object = self.objects.get_mut(&write.object.0).expect("an object before its blocks");
                assert_eq!(write.dmu_type, object.header.dmu_type);
                assert!(write.logical_bytes <= object.header.block_bytes.into(), "{write:?}");
                let block = decompressed(write.compress, payload, write.logical_bytes);
                object.blocks.insert(write.offset.0, block);
            }
            Record::WriteEmbedded(write) => {
                let object =
                    self.objects.get_mut(&write.range.object.0).expect("an object before its blocks");
                let payload = &payload[..write.physical_bytes as usize];
                let block = decompressed(write.compress, payload, write.range.length);
                object.blocks.insert(write.range.offset.0, block);
            }
            Record::Spill(spill) => {
                let object = self.objects.get_mut(&spill.object.0).expect("an object before its spill block");
                assert_eq!(spill.logical_bytes, payload.len() as u64);
                object.spill = Some(payload.to_vec());
            }
            Record::WriteByRef(_) | Record::Redact(_) => panic!("{record:?}"),
        }
    }

    /// Compares it with an object set.
    fn assert_is(&self, objset: &Arc<Objset>, what: &str) {
        let mut next = 1;
        let mut numbers = Vec::new();
        while let Some(id) = block_on(objset.next_object(ObjectId(next))).unwrap() {
            numbers.push(id.0);
            next = id.0 + 1;
        }
        let received: Vec<u64> = self.objects.keys().copied().collect();
        assert_eq!(received, numbers, "{what}: objects");
        for (number, received) in &self.objects {
            let what = format!("{what}, object {number}");
            let object = block_on(objset.object(ObjectId(*number))).unwrap();
            let dnode = object.dnode();
            assert_eq!(received.header.dmu_type, u32::from(dnode.dmu_type.raw()), "{what}");
            assert_eq!(received.header.bonus_type, u32::from(dnode.bonus_type.raw()), "{what}");
            assert!(received.bonus[..] == dnode.bonus[..], "{what}: its bonus");
            let spill = block_on(object.spill()).unwrap();
            let is_spill = spill.as_ref().map(|spill| &spill.block[..]) == received.spill.as_deref();
            // A block of the other byte order is converted where it is read.
            assert!(is_spill || self.order != Some(ByteOrder::Little), "{what}: its spill block");
            self.assert_blocks(&object, received, &what);
        }
    }

    fn assert_blocks(&self, object: &engine::dmu::Object, received: &Received, what: &str) {
        let size = object.block_size();
        let mut left: BTreeMap<u64, &[u8]> =
            received.blocks.iter().map(|(offset, block)| (*offset, &block[..])).collect();
        let mut id = 0;
        while id <= object.dnode().max_block_id.0 {
            // Holes may be long.
            id = block_on(object.next_data(id * size, object.end())).unwrap() / size;
            let Some(found) = block_on(object.block(id)).unwrap() else { break };
            let (start, end) = (id * size, (id + 1) * size);
            let parts: Vec<u64> = left.range(start..end).map(|(offset, _)| *offset).collect();
            assert!(!parts.is_empty(), "{what}: block {id} was not received");
            for offset in parts {
                let part = left.remove(&offset).unwrap();
                let from = usize::try_from(offset - start).unwrap();
                let is_same = found.block[from..from + part.len()] == *part;
                assert!(is_same || self.order != Some(ByteOrder::Little), "{what}: block {id} at {offset}");
            }
            id += 1;
        }
        let extra: Vec<u64> = left.keys().copied().collect();
        assert!(extra.is_empty(), "{what}: blocks that the sender does not have: {extra:?}");
    }
}

/// Plain streams first, those with all flags last.
fn flags(has_all: bool) -> impl Iterator<Item = Flags> {
    let flag = |bits: u8, bit: u8| bits & bit != 0;
    (0..8u8).step_by(if has_all { 1 } else { 7 }).map(move |bits| Flags {
        large_blocks: flag(bits, 1),
        embedded: flag(bits, 2),
        compressed: flag(bits, 4),
        raw: false,
    })
}

/// Streams of all datasets of a pool. Tells how many, and the records of each kind.
fn check(pool: &Arc<Pool>, has_all: bool) -> (usize, [usize; 11]) {
    let dsl = block_on(Dsl::open(pool)).unwrap();
    let entries = block_on(dsl.list(None, Walk::ALL)).unwrap();
    let (mut streams, mut counts) = (0, [0; 11]);
    let mut previous: Option<(String, Vec<Model>)> = None;
    for dataset in entries.iter().filter_map(|entry| entry.dataset()) {
        if block_on(dsl.encryption_root(&dataset.dir)).unwrap().is_some() {
            continue;
        }
        let objset = block_on(dsl.open_objset(dataset)).unwrap();
        let mut models = Vec::new();
        for (index, flags) in flags(has_all).enumerate() {
            let order = Order { to: dataset.name.clone(), flags, ..Order::default() };
            let made_of = |order: &Order| match made(pool, order) {
                Ok(bytes) => Some(bytes),
                Err(engine::Error::Invalid(why)) if why.contains("need -L") => None,
                Err(error) => panic!("{} {flags:?}: {error}", dataset.name),
            };
            let Some(stream) = made_of(&order) else { continue };
            let mut model = Model::default();
            model.receive(&stream);
            model.assert_is(&objset, &format!("{} {flags:?}", dataset.name));
            streams += 1;
            let before = previous.as_ref().filter(|(name, _)| is_of_same(name, &dataset.name));
            if let Some((from, models)) = before
                && let Some(before) = models.get(index)
            {
                let stream = made_of(&Order { from: Some(from.clone()), ..order }).unwrap();
                let mut after = before.clone();
                after.receive(&stream);
                after.assert_is(&objset, &format!("{} since {from} {flags:?}", dataset.name));
                streams += 1;
                counts.iter_mut().zip(after.counts).for_each(|(sum, more)| *sum += more);
            }
            counts.iter_mut().zip(model.counts).for_each(|(sum, more)| *sum += more);
            models.push(model);
        }
        let is_whole = models.len() == flags(has_all).count();
        previous = (dataset.is_snapshot() && is_whole).then(|| (dataset.name.clone(), models));
    }
    (streams, counts)
}

fn is_of_same(one: &str, other: &str) -> bool {
    one.split('@').next() == other.split('@').next()
}

macro_rules! pools {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let Some(golden) = testkit::golden::pool(stringify!($name)) else { return };
            let pool = import_golden(&golden).unwrap();
            let (streams, counts) = check(&pool, stringify!($name) == "streams");
            assert!(streams > 0, "nothing was sent");
            println!("{streams} streams, records of each kind: {counts:?}");
        }
    )*};
}

pools! {
    single codecs dedupfast features0 legacy28 streams volumes clones24 gang24
}
