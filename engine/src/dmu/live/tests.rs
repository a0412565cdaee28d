//! Live objects against a model: bytes in an array, a set of numbers.

mod dmu_sync;
mod paths;
mod speed;
mod sync;

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{IoBuf, block_on};
use futures_util::FutureExt;
use ondisk::blkptr::{ChecksumType, CompressType};
use ondisk::dmu::DmuType;
use ondisk::objset::ObjsetType;
use ondisk::{ByteOrder, ObjectId, ObjsetId, Txg};
use proptest::prelude::*;

use super::*;
use crate::dmu::forge::Forge;
use crate::txg::Tx;
use crate::{Block, Error};

pub(crate) fn policy() -> Policy {
    Policy {
        checksum: ChecksumType::Fletcher4,
        compress: CompressType::Lz4,
        zstd_level: 0,
        copies: 1,
        redundant_metadata: 0,
        special_small_blocks: 0,
        dedup: None,
    }
}

pub(super) fn new_object(block_size: u32) -> NewObject {
    let dmu_type = DmuType::PLAIN_FILE_CONTENTS;
    NewObject { dmu_type, block_size, bonus_type: DmuType::NONE, bonus: Vec::new(), slots: 1 }
}

fn tx(txg: u64) -> Tx {
    Tx::syncing(Txg(txg))
}

fn objset() -> Option<Arc<LiveObjset>> {
    let forge = Forge::new(ByteOrder::Little)?;
    Some(LiveObjset::create(&forge.pool, ObjsetId(77), ObjsetType::Zfs, policy(), &tx(10)))
}

fn object(objset: &Arc<LiveObjset>, block_size: u32) -> Arc<LiveObject> {
    block_on(objset.allocate(&tx(10), new_object(block_size))).unwrap()
}

/// A step that a test does to an object.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Write { offset: u64, length: usize, fill: u8 },
    Punch { offset: u64, length: u64 },
    Truncate { offset: u64 },
    NextTxg,
}

pub(super) fn steps(bytes: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..bytes, 0usize..3000, 1u8..).prop_map(|(offset, length, fill)| Step::Write { offset, length, fill }),
        2 => (0..bytes, 0u64..6000).prop_map(|(offset, length)| Step::Punch { offset, length }),
        1 => (0..bytes).prop_map(|offset| Step::Truncate { offset }),
        1 => Just(Step::NextTxg),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Applies a step to an object and to the bytes that it should contain.
pub(super) async fn apply(object: &LiveObject, model: &mut [u8], step: &Step, tx: &Tx) {
    match *step {
        Step::Write { offset, length, fill } => {
            let length = length.min(model.len() - offset as usize);
            let bytes: Vec<u8> = (0..length).map(|at| fill.wrapping_add(at as u8)).collect();
            object.write_at(tx, offset, &bytes).await.unwrap();
            model[offset as usize..offset as usize + length].copy_from_slice(&bytes);
        }
        Step::Punch { offset, length } => {
            object.punch(tx, offset, length).await.unwrap();
            let end = model.len().min((offset + length) as usize);
            model[(offset as usize).min(end)..end].fill(0);
        }
        Step::Truncate { offset } => {
            object.punch(tx, offset, u64::MAX).await.unwrap();
            model[offset as usize..].fill(0);
        }
        Step::NextTxg => {}
    }
}

/// Compares the contents of the object, directly and through a view.
pub(super) async fn check(object: &LiveObject, model: &[u8]) {
    let mut found = vec![0xee; model.len()];
    object.read_at(0, &mut found).await.unwrap();
    assert!(found == model, "{object:?} reads wrong");
    let view = object.objset().view().object(object.id()).await.unwrap();
    found.fill(0xee);
    view.read_at(0, &mut found).await.unwrap();
    assert!(found == model, "{view:?} reads wrong");
    // Runs: holes are zeroes, and runs cover the object.
    let mut at = 0;
    while at < model.len() as u64 {
        let span = object.span(at).await.unwrap();
        assert!(span.end > at);
        let end = span.end.min(model.len() as u64);
        assert!(!span.is_hole || model[at as usize..end as usize].iter().all(|byte| *byte == 0));
        at = end;
    }
    let last = model.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    assert!(object.end() >= last, "{} < {last}", object.end());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_object_is_an_array_of_bytes(shift in 9u32..13, steps in steps(20_000)) {
        let Some(objset) = objset() else { return Ok(()) };
        let object = object(&objset, 1 << shift);
        let mut model = vec![0; 20_000];
        let mut txg = 10;
        block_on(async {
            for step in &steps {
                apply(&object, &mut model, step, &tx(txg)).await;
                if matches!(step, Step::NextTxg) {
                    txg = 11;
                }
                check(&object, &model).await;
            }
        });
    }

    #[test]
    fn a_late_write_of_the_old_group_is_not_lost_in_the_new_one(
        writes in proptest::collection::vec((any::<bool>(), 0usize..40), 1..60),
    ) {
        // Cells of 100 bytes, each of which belongs to one of two writers in different groups.
        let Some(objset) = objset() else { return Ok(()) };
        let object = object(&objset, 512);
        let mut model = vec![0; 8000];
        for (turn, (late, cell)) in writes.into_iter().enumerate() {
            let (txg, cell) = if late { (10, cell * 2) } else { (11, cell * 2 + 1) };
            let step = Step::Write { offset: cell as u64 * 100, length: 100, fill: turn as u8 + 1 };
            block_on(apply(&object, &mut model, &step, &tx(txg)));
            block_on(check(&object, &model));
        }
    }

    #[test]
    fn object_numbers_are_given_out_once(
        steps in proptest::collection::vec((0u8..3, 1u8..8, 0u64..300), 1..80),
    ) {
        let Some(objset) = objset() else { return Ok(()) };
        let mut model: BTreeMap<u64, u8> = BTreeMap::new();
        let mut taken = vec![false; 4096];
        taken[0] = true;
        for (kind, slots, number) in steps {
            let new = NewObject { slots, ..new_object(512) };
            let range = |id: u64| id as usize..id as usize + usize::from(slots);
            match kind {
                0 => {
                    let id = block_on(objset.allocate(&tx(10), new)).unwrap().id().0;
                    prop_assert!(range(id).all(|slot| !taken[slot]));
                    prop_assert_eq!(id / 32, (id + u64::from(slots) - 1) / 32);
                    taken[range(id)].fill(true);
                    model.insert(id, slots);
                }
                1 => {
                    let fits = number % 32 + u64::from(slots) <= 32 && range(number).all(|slot| !taken[slot]);
                    let claimed = block_on(objset.claim(&tx(10), ObjectId(number), new));
                    prop_assert_eq!(claimed.is_ok(), fits);
                    if fits {
                        taken[range(number)].fill(true);
                        model.insert(number, slots);
                    }
                }
                _ => {
                    // The number stays taken until the group is committed.
                    let freed = block_on(objset.free(&tx(10), ObjectId(number)));
                    prop_assert_eq!(freed.is_ok(), model.remove(&number).is_some());
                }
            }
            let mut found = Vec::new();
            let mut from = ObjectId(1);
            while let Some(id) = block_on(objset.view().next_object(from)).unwrap() {
                found.push(id.0);
                from = ObjectId(id.0 + 1);
            }
            prop_assert_eq!(found, model.keys().copied().collect::<Vec<_>>());
        }
        for id in 1..300 {
            prop_assert_eq!(block_on(objset.object(ObjectId(id))).is_ok(), model.contains_key(&id));
        }
    }
}

#[test]
fn a_cached_write_and_a_cached_read_finish_in_the_first_poll() {
    let Some(objset) = objset() else { return };
    let object = object(&objset, 4096);
    assert!(object.write_at(&tx(10), 0, &[1; 8192]).now_or_never().unwrap().is_ok());
    assert!(object.write_at(&tx(10), 100, &[2; 8192]).now_or_never().unwrap().is_ok());
    let mut found = [0; 4096];
    assert!(object.read_at(50, &mut found).now_or_never().unwrap().is_ok());
    assert_eq!((found[49], found[50]), (1, 2));
}

#[test]
fn a_block_that_was_read_does_not_change_when_it_is_written_again() {
    let Some(objset) = objset() else { return };
    let object = object(&objset, 4096);
    block_on(async {
        object.write_at(&tx(10), 0, &[1; 4096]).await.unwrap();
        let read = object.block(0).await.unwrap().unwrap().block;
        object.write_at(&tx(10), 5, &[2]).await.unwrap();
        assert_eq!(read[5], 1);
        drop(read);
        let place = object.block(0).await.unwrap().unwrap().block.as_ptr();
        object.write_at(&tx(10), 6, &[3]).await.unwrap();
        let again = object.block(0).await.unwrap().unwrap().block;
        assert_eq!(
            (again[5], again[6], again.as_ptr()),
            (2, 3, place),
            "nobody else held it: changed in place"
        );
    });
}

#[test]
fn an_object_that_had_several_blocks_keeps_to_powers_of_two() {
    let Some(objset) = objset() else { return };
    let object = object(&objset, 512);
    block_on(async {
        object.write_at(&tx(10), 0, &[7; 4096]).await.unwrap();
        object.punch(&tx(10), 0, u64::MAX).await.unwrap();
        assert_eq!(object.fitting_block_size(1000), 1024);
        assert_eq!(object.fitting_block_size(1100), 1536, "of that no group will have more than a block");
        // Data that one group writes and the next truncates leave their levels behind.
        object.write_at(&tx(10), 0, &[7; 4096]).await.unwrap();
        object.punch(&tx(11), 0, u64::MAX).await.unwrap();
        assert_eq!((object.end(), object.fitting_block_size(1100)), (0, 2048));
        assert!(matches!(object.set_block_size(&tx(11), 1536).await, Err(Error::Invalid(_))));
        object.set_block_size(&tx(11), 2048).await.unwrap();
    });
}

#[test]
fn the_block_size_changes_as_long_as_there_is_one_block() {
    let Some(objset) = objset() else { return };
    let object = object(&objset, 512);
    block_on(async {
        object.write_at(&tx(10), 10, &[7; 100]).await.unwrap();
        object.set_block_size(&tx(11), 1536).await.unwrap();
        assert_eq!((object.block_size(), object.end(), object.dnode().data_block_sectors), (1536, 1536, 3));
        assert!(object.write_at(&tx(11), 1000, &[7; 1000]).await.is_err(), "not a power of two");
        object.set_block_size(&tx(11), 4096).await.unwrap();
        let mut found = [1; 4096];
        object.read_at(0, &mut found).await.unwrap();
        assert_eq!((found[9], found[10], found[109], found[110], found[4095]), (0, 7, 7, 0, 0));
        object.write_at(&tx(11), 4096, &[1]).await.unwrap();
        assert!(matches!(object.set_block_size(&tx(11), 8192).await, Err(Error::Invalid(_))));
        assert!(object.set_block_size(&tx(11), 1000).await.is_err());
    });
}

#[test]
fn bonus_type_and_spill_are_those_of_the_newest_layer() {
    let Some(objset) = objset() else { return };
    let new = NewObject { bonus_type: DmuType::SA, ..new_object(512) };
    block_on(async {
        let object = objset.allocate(&tx(10), new).await.unwrap();
        object.set_bonus(&tx(10), DmuType::SA, &[1; 100]);
        object.set_spill(&tx(10), Some(Block::from(IoBuf::from(&[5; 512][..]))));
        object.set_bonus(&tx(11), DmuType::SA, &[2; 120]);
        object.set_type(&tx(11), DmuType::DIRECTORY_CONTENTS);
        let view = objset.view().object(object.id()).await.unwrap();
        assert_eq!(view.bonus().0, [2; 120]);
        assert_eq!(view.dnode().dmu_type, DmuType::DIRECTORY_CONTENTS);
        assert_eq!(view.spill().await.unwrap().unwrap().block[..], [5; 512]);
        object.set_spill(&tx(11), None);
        assert!(view.spill().await.unwrap().is_none());
    });
}

#[test]
fn a_freed_object_cannot_be_written() {
    let Some(objset) = objset() else { return };
    let object = object(&objset, 512);
    block_on(async {
        object.write_at(&tx(10), 0, &[1; 2000]).await.unwrap();
        objset.free(&tx(11), object.id()).await.unwrap();
        assert!(object.write_at(&tx(11), 0, &[1; 2000]).await.is_err());
        assert!(object.is_freed() && object.block(0).await.unwrap().is_none());
        assert!(matches!(objset.object(object.id()).await, Err(Error::NotFound(_))));
        assert!(objset.free(&tx(11), object.id()).await.is_err());
    });
}
