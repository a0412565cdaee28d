//! Every structure in the meta object sets of the golden pools is decoded, and counts that the format keeps
//! twice agree.

use std::sync::Arc;

use crate::support::import_golden;
use device::block_on;
use engine::Pool;
use engine::dmu::zap::{Key, Zap};
use engine::dmu::{Object, Objset};
use ondisk::blkptr::ChecksumType;
use ondisk::bpobj::BpobjPhys;
use ondisk::brt::BrtVdevPhys;
use ondisk::ddt::{self, DdtClass, DdtHistogram, DdtKey, DdtPhys, PackedPhys, PhysForm};
use ondisk::deadlist::DeadlistPhys;
use ondisk::dmu::DmuType;
use ondisk::dsl_dataset::DslDatasetPhys;
use ondisk::dsl_dir::DslDirPhys;
use ondisk::history::{HistoryEvent, HistoryPhys};
use ondisk::space_map::{Entries, Entry, MapType, SpaceMapPhys};
use ondisk::{ByteOrder, ObjectId, ObjsetId, Txg, VdevId, bpobj, brt, deadlist, history, pool_directory};

/// No structure in a MOS of a golden pool is larger.
const LIMIT: usize = 64 << 20;

/// What was found, so that a test can insist that it met what its pool was made for.
#[derive(Debug, Default)]
struct Found {
    dirs: usize,
    datasets: usize,
    deadlists: usize,
    block_lists: usize,
    listed_blocks: u64,
    space_maps: usize,
    history_records: usize,
    dedup_entries: u64,
    clone_entries: u64,
}

async fn mos(pool: &Arc<Pool>) -> Arc<Objset> {
    Objset::open(pool, ObjsetId::MOS, pool.root_blkptr()).await.unwrap()
}

/// Decodes the bonus of every object by its type, and the contents that go with it.
async fn walk(mos: &Arc<Objset>, expected_history: Option<&str>, found: &mut Found) {
    let mut next = mos.next_object(ObjectId(1)).await.unwrap();
    while let Some(id) = next {
        let object = mos.object(id).await.unwrap();
        let (bonus, order) = object.bonus();
        match object.dnode().bonus_type {
            DmuType::DSL_DIR => {
                let dir = DslDirPhys::parse(bonus, order).unwrap();
                assert_eq!(dir.encode(order), bonus[..DslDirPhys::SIZE], "directory {id}");
                found.dirs += 1;
            }
            DmuType::DSL_DATASET => {
                let dataset = DslDatasetPhys::parse(bonus, order).unwrap();
                assert_eq!(dataset.encode(order), bonus[..DslDatasetPhys::SIZE], "dataset {id}");
                found.datasets += 1;
            }
            DmuType::DEADLIST_HDR => check_deadlist(mos, &object, found).await,
            DmuType::BPOBJ_HDR => check_block_list(&object, found).await,
            DmuType::SPACE_MAP_HEADER => {
                check_space_map(&object).await;
                found.space_maps += 1;
            }
            DmuType::SPA_HISTORY_OFFSETS => {
                found.history_records += check_history(&object, expected_history).await;
            }
            _ => {}
        }
        next = mos.next_object(ObjectId(id.get() + 1)).await.unwrap();
    }
}

async fn check_deadlist(mos: &Arc<Objset>, object: &Object, found: &mut Found) {
    let (bonus, order) = object.bonus();
    let header = DeadlistPhys::parse(bonus, order).unwrap();
    let mut used = 0;
    for entry in Zap::open(object).await.unwrap().entries(1000).await.unwrap() {
        assert!(deadlist::parse_key(entry.key.name().unwrap()).unwrap() < Txg(1 << 40));
        let list = mos.object(ObjectId(entry.value.as_u64().unwrap())).await.unwrap();
        let (bonus, order) = list.bonus();
        used += BpobjPhys::parse(bonus, order).unwrap().bytes;
    }
    assert_eq!(used, header.used_bytes, "deadlist {}", object.id());
    found.deadlists += 1;
}

async fn check_block_list(object: &Object, found: &mut Found) {
    let (bonus, order) = object.bonus();
    let phys = BpobjPhys::parse(bonus, order).unwrap();
    assert_eq!(phys.encode(order), bonus, "block list {}", object.id());
    let length = phys.num_blkptrs * ondisk::blkptr::Blkptr::SIZE as u64;
    let contents = object.read_all(length, LIMIT).await.unwrap();
    let own_bytes: u64 = bpobj::blkptrs(&contents, order)
        .map(|bp| if phys.num_freed.unwrap_or(0) > 0 { 0 } else { bp.unwrap().asize().get() })
        .sum();
    let frees = bpobj::blkptrs(&contents, order).filter(|bp| bp.as_ref().is_ok_and(bpobj::is_free)).count();
    if let Some(freed) = phys.num_freed.filter(|&freed| freed > 0) {
        assert_eq!(frees as u64, freed, "block list {}", object.id());
    }
    // Parity is not counted in the sum, so that it can only be smaller than what the DVAs say.
    assert!(phys.included().count > 0 || phys.num_freed.is_some_and(|n| n > 0) || phys.bytes <= own_bytes);
    found.block_lists += 1;
    found.listed_blocks += phys.num_blkptrs;
}

async fn check_space_map(object: &Object) {
    let (bonus, order) = object.bonus();
    let phys = SpaceMapPhys::parse(bonus, order).unwrap();
    let contents = object.read_all(phys.length_bytes, LIMIT).await.unwrap();
    let mut units = 0;
    for block in contents.chunks(object.block_size() as usize) {
        for entry in Entries::new(block, order) {
            if let Entry::Segment(segment) = entry.unwrap() {
                let run = segment.run_units as i64;
                units += if segment.kind == MapType::Alloc { run } else { -run };
            }
        }
    }
    // The unit depends on who uses the map; some power of two must fit.
    let fits = [0, 9, 12].iter().any(|&shift| units << shift == phys.allocated_bytes);
    assert!(fits, "space map {}: {units} units, {} bytes", object.id(), phys.allocated_bytes);
}

async fn check_history(object: &Object, expected: Option<&str>) -> usize {
    let (bonus, order) = object.bonus();
    let phys = HistoryPhys::parse(bonus, order).unwrap();
    assert_eq!(phys.encode(order), bonus[..HistoryPhys::SIZE]);
    let mut bytes = Vec::new();
    for extent in phys.extents().unwrap() {
        let mut part = vec![0; (extent.end - extent.start) as usize];
        object.read_at(extent.start, &mut part).await.unwrap();
        bytes.extend(part);
    }
    let mut count = 0;
    for record in history::records(&bytes) {
        let record = record.unwrap();
        assert!(record.time().is_some());
        match record.event() {
            HistoryEvent::Unknown => panic!("unknown event {record:?}"),
            // Recorded a moment before the export, which is a command of its own.
            HistoryEvent::Command(command) if !command.starts_with("zpool export") => {
                assert!(expected.is_none_or(|text| text.contains(&*command)), "{command}");
            }
            _ => {}
        }
        count += 1;
    }
    count
}

/// Decodes all dedup tables, and compares them with the statistics that the pool keeps.
async fn check_dedup(mos: &Arc<Objset>, found: &mut Found) {
    let root = Zap::open(&mos.object(pool_directory::DIRECTORY_OBJECT).await.unwrap()).await.unwrap();
    let Some(statistics) = root.lookup_u64(pool_directory::DDT_STATISTICS).await.unwrap() else { return };
    let statistics = Zap::open(&mos.object(ObjectId(statistics)).await.unwrap()).await.unwrap();
    for &checksum in ChecksumType::ALL {
        let described = root.lookup_u64(ddt::directory_name(checksum)).await.unwrap();
        let (dir, form) = match described {
            None => (None, PhysForm::Traditional),
            Some(dir) => {
                let dir = Zap::open(&mos.object(ObjectId(dir)).await.unwrap()).await.unwrap();
                assert_eq!(dir.lookup_u64(ddt::dir_key::VERSION).await.unwrap(), Some(1));
                let flags = dir.lookup_u64(ddt::dir_key::FLAGS).await.unwrap().unwrap();
                (Some(dir), PhysForm::from_flags(flags))
            }
        };
        let names = dir.as_ref().unwrap_or(&root);
        for class in DdtClass::ALL {
            let name = ddt::object_name(checksum, class);
            let Some(table) = names.lookup_u64(&name).await.unwrap() else { continue };
            let table = Zap::open(&mos.object(ObjectId(table)).await.unwrap()).await.unwrap();
            let histogram = statistics.lookup(&name).await.unwrap().unwrap();
            let total = DdtHistogram::from_words(&histogram.to_u64s()).unwrap().total();
            let (mut blocks, mut references, mut lsize) = (0, 0, 0);
            for entry in table.entries(100_000).await.unwrap() {
                let Key::Words(words) = &entry.key else { panic!("{name}: key {:?}", entry.key) };
                let [c0, c1, c2, c3, prop] = words[..] else { panic!("{name}: {} words", words.len()) };
                let key = DdtKey { checksum: [c0, c1, c2, c3], prop };
                let packed = PackedPhys::parse(entry.value.as_bytes().unwrap()).unwrap();
                let mut plain = vec![0; form.size()];
                codec::compress::decompress(packed.compress, packed.bytes, &mut plain).unwrap();
                let phys = DdtPhys::parse(&plain, form, packed.order).unwrap();
                for slot in phys.slots() {
                    blocks += 1;
                    references += slot.refcount;
                    lsize += key.lsize().get();
                    let bp = slot.blkptr(&key, checksum).unwrap();
                    assert_eq!(DdtKey::of(&bp), key);
                    assert!(bp.copies() > 0 && slot.dvas(false).unwrap().len() == bp.copies());
                }
            }
            assert_eq!((blocks, references, lsize), (total.blocks, total.ref_blocks, total.lsize), "{name}");
            found.dedup_entries += blocks;
        }
        for which in 0..2 {
            let Some(log) = names.lookup_u64(ddt::log_name(checksum, which)).await.unwrap() else { continue };
            let log = mos.object(ObjectId(log)).await.unwrap();
            let (bonus, order) = log.bonus();
            let header = ddt::log::DdtLogHeader::parse(bonus, order).unwrap();
            header.check_version().unwrap();
            let contents = log.read_all(header.length_bytes, LIMIT).await.unwrap();
            for block in contents.chunks(log.block_size() as usize) {
                assert!(ddt::log::records(block, form, order).all(|record| record.is_ok()));
            }
        }
    }
}

/// Decodes the block reference tables, whose arrays must count exactly their entries.
async fn check_clones(mos: &Arc<Objset>, found: &mut Found) {
    let root = Zap::open(&mos.object(pool_directory::DIRECTORY_OBJECT).await.unwrap()).await.unwrap();
    for vdev in 0..4 {
        let Some(table) = root.lookup_u64(brt::directory_key(VdevId(vdev))).await.unwrap() else { continue };
        let table = mos.object(ObjectId(table)).await.unwrap();
        let (bonus, order) = table.bonus();
        let phys = BrtVdevPhys::parse(bonus, order).unwrap();
        let array_order = phys.array_order().unwrap();
        let array = table.read_all(phys.size * 2, LIMIT).await.unwrap();
        let mut ranges: Vec<u16> = brt::entry_counts(&array, array_order).collect();
        let entries = Zap::open(&mos.object(phys.mos_entries).await.unwrap()).await.unwrap();
        for entry in entries.entries(100_000).await.unwrap() {
            let Key::Words(words) = &entry.key else { panic!("key {:?}", entry.key) };
            let range = phys.range_of(words[0].into()).unwrap();
            ranges[range as usize] -= 1;
            // A number with the feature `block_cloning_endian`, else bytes.
            let count = match entry.value.as_bytes() {
                Some(bytes) => brt::parse_entry_count(bytes, array_order).unwrap(),
                None => entry.value.as_u64().unwrap(),
            };
            assert!(count > 0);
            found.clone_entries += 1;
        }
        assert!(ranges.iter().all(|&rest| rest == 0));
        assert!(phys.usedspace_bytes > 0 && phys.savedspace_bytes > 0);
    }
}

fn check(name: &str) -> Option<Found> {
    let golden = testkit::golden::pool(name)?;
    let pool = import_golden(&golden).unwrap();
    let expected_history = golden.expect_text("history.txt").ok();
    let mut found = Found::default();
    block_on(async {
        let mos = mos(&pool).await;
        assert_eq!(mos.root().byte_order(), ByteOrder::Little);
        walk(&mos, expected_history.as_deref(), &mut found).await;
        check_dedup(&mos, &mut found).await;
        check_clones(&mos, &mut found).await;
    });
    assert!(found.dirs > 0 && found.datasets > 0 && found.space_maps > 0, "{name}: {found:?}");
    assert!(found.history_records > 1 && found.block_lists > 0, "{name}: {found:?}");
    eprintln!("{name}: {found:?}");
    Some(found)
}

macro_rules! pools {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

pools! {
    single volumes triple rz1 rz2 rz3 rz1s9 dr2 codecs crypt classes removed expanded checkpoint legacy28
    features0 degraded corrupt zilreplay gang24 classes24
}

#[test]
fn dedup_tables_agree_with_their_statistics() {
    for name in ["dedupold", "dedupfast"] {
        assert!(check(name).is_none_or(|found| found.dedup_entries > 0), "{name}");
    }
}

#[test]
fn clone_tables_agree_with_their_arrays() {
    assert!(check("bclone").is_none_or(|found| found.clone_entries > 0));
}
