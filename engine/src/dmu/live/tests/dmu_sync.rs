//! Blocks that are written before their group.

use super::sync::{Rig, noise};
use super::*;
use crate::vdev::Class;

const BLOCK: usize = 8192;

/// The pointer to block `id` on the device.
fn on_device(rig: &Rig, object: &LiveObject, id: u64) -> Option<Blkptr> {
    block_on(async { rig.reopened().object(object.id()).await.unwrap().blkptr(0, id).await.unwrap() })
}

#[test]
fn what_was_written_early_and_not_changed_since_is_not_written_again() {
    let Some(mut rig) = Rig::new(64 << 20, 12, policy()) else { return };
    let object = block_on(rig.objset.allocate(&rig.tx(), new_object(BLOCK as u32))).unwrap();
    let early = |rig: &Rig, id: u64| {
        let early = block_on(object.write_early(&rig.writer, Txg(rig.txg), id)).unwrap();
        early.map(|early| early.pointer)
    };
    let write = |rig: &Rig, at: usize, bytes: &[u8]| {
        block_on(object.write_at(&rig.tx(), at as u64, bytes)).unwrap();
    };
    let mut model = noise(4 * BLOCK);
    write(&rig, 0, &model);
    let kept = early(&rig, 0).unwrap();
    assert_eq!(early(&rig, 0), Some(kept), "it is there");
    let (patched, punched, again) =
        (early(&rig, 1).unwrap(), early(&rig, 2).unwrap(), early(&rig, 3).unwrap());
    write(&rig, BLOCK, &[7; 100]);
    model[BLOCK..BLOCK + 100].fill(7);
    block_on(object.punch(&rig.tx(), 2 * BLOCK as u64, BLOCK as u64)).unwrap();
    model[2 * BLOCK..3 * BLOCK].fill(0);
    write(&rig, 3 * BLOCK, &[8; 100]);
    model[3 * BLOCK..3 * BLOCK + 100].fill(8);
    let last = early(&rig, 3).unwrap();
    assert_ne!(last.dva(0), again.dva(0), "a record may lead to what was written before");
    // Blocks that this group never wrote, or that occupy no space.
    assert_eq!((early(&rig, 2), early(&rig, 9)), (None, None));
    write(&rig, 4 * BLOCK, &[0; BLOCK]);
    model.extend([0; BLOCK]);
    assert_eq!(early(&rig, 4), None);
    // The commit checks that space adds up.
    rig.commit();
    assert_eq!(on_device(&rig, &object, 0), Some(kept));
    assert_eq!(on_device(&rig, &object, 3), Some(last));
    assert_ne!(on_device(&rig, &object, 1).unwrap().dva(0), patched.dva(0));
    assert_ne!(on_device(&rig, &object, 2).and_then(|hole| hole.dva(0)), punched.dva(0));
    block_on(check(&object, &model));
    // The next group has no part of it.
    write(&rig, 0, &[9; 100]);
    rig.commit();
    assert_ne!(on_device(&rig, &object, 0).unwrap().dva(0), kept.dva(0));
}

#[test]
fn what_was_written_early_or_was_to_be_needs_room_again_when_it_is_written_to() {
    const LARGE: usize = 8 << 20;
    for is_gang in [false, true] {
        let Some(rig) = Rig::new(64 << 20, 12, policy()) else { return };
        let object = block_on(rig.objset.allocate(&rig.tx(), new_object(LARGE as u32))).unwrap();
        block_on(object.write_at(&rig.tx(), 0, &noise(LARGE))).unwrap();
        let newly_dirty = || object.newly_dirty(Txg(rig.txg), &(0..1), None).data_bytes();
        assert_eq!(newly_dirty(), 0);
        // No run of free space is long enough any more.
        for _ in 0..if is_gang { 3 } else { 0 } {
            let taken = rig.writer.allocator().allocate(Class::Normal, 11 << 20, 1, Txg(rig.txg));
            assert!(block_on(taken).unwrap().is_some());
        }
        let early = block_on(object.write_early(&rig.writer, Txg(rig.txg), 0)).unwrap();
        assert_eq!(early.is_none(), is_gang);
        assert_eq!(newly_dirty(), LARGE as u64);
    }
}

#[test]
fn an_early_block_says_where_its_data_end() {
    let Some(rig) = Rig::new(64 << 20, 12, policy()) else { return };
    let object = block_on(rig.objset.allocate(&rig.tx(), new_object(BLOCK as u32))).unwrap();
    block_on(object.write_at(&rig.tx(), 100, &[7; 1000])).unwrap();
    for _ in ["written", "there already"] {
        let early = block_on(object.write_early(&rig.writer, Txg(rig.txg), 0)).unwrap();
        assert_eq!(early.map(|early| early.data_bytes), Some(1100));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_changes_around_early_writes_keep_contents_and_space(
        rounds in proptest::collection::vec((steps(60_000), proptest::collection::vec(0u64..15, 0..12)), 1..5),
    ) {
        let Some(mut rig) = Rig::new(64 << 20, 9, policy()) else { return Ok(()) };
        let object = block_on(rig.objset.allocate(&rig.tx(), new_object(4096))).unwrap();
        let mut model = vec![0; 60_000];
        for (steps, early) in &rounds {
            let mut early = early.iter();
            for step in steps {
                block_on(apply(&object, &mut model, step, &rig.tx()));
                if let Some(id) = early.next() {
                    block_on(object.write_early(&rig.writer, Txg(rig.txg), *id)).unwrap();
                }
            }
            rig.commit();
            block_on(check(&object, &model));
        }
        block_on(rig.objset.free(&rig.tx(), object.id())).unwrap();
        rig.commit();
    }
}
