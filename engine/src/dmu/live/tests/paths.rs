//! Which indirect blocks need no look before a write, because the group changes blocks below them already.

use super::sync::{Rig, noise};
use super::*;
use crate::dmu::live::layer::StoredIndirect;

const BLOCK: u64 = 512;
/// Blocks below an indirect block of level 1.
const BELOW: u64 = 1024;

fn write(rig: &Rig, object: &LiveObject, id: u64) {
    block_on(object.write_at(&rig.tx(), id * BLOCK, &[id as u8 | 1; BLOCK as usize])).unwrap();
}

/// An object with three indirect blocks of level 1, which is committed.
fn tall(rig: &mut Rig) -> Arc<LiveObject> {
    let object = block_on(rig.objset.allocate(&rig.tx(), new_object(BLOCK as u32))).unwrap();
    block_on(object.write_at(&rig.tx(), 0, &noise((3 * BELOW * BLOCK) as usize))).unwrap();
    rig.commit();
    object
}

#[test]
fn a_path_is_checked_with_the_first_block_below_it() {
    let Some(rig) = &mut Rig::new(64 << 20, 9, policy()) else { return };
    let object = tall(rig);
    let checked = |id: u64| object.core.lock().has_checked_path(id);
    assert!(![5, BELOW, 3 * BELOW].into_iter().any(checked), "nothing is dirty");
    write(rig, &object, BELOW + 7);
    let around = [BELOW - 1, BELOW, 2 * BELOW - 1, 2 * BELOW];
    assert_eq!(around.map(checked), [false, true, true, false]);
    block_on(object.punch(&rig.tx(), (BELOW + 7) * BLOCK, BLOCK)).unwrap();
    assert_eq!(around.map(checked), [false; 4], "nothing that was written is there");

    // Beyond the end there is no pointer that could be wrong.
    write(rig, &object, 4 * BELOW + 1);
    assert!(checked(4 * BELOW) && !checked(5 * BELOW));
    rig.commit();
    assert!(!checked(4 * BELOW), "the next group looks again");

    // A pointer that is not known to be right is looked at each time.
    write(rig, &object, 1);
    assert!(checked(2));
    let wrong = StoredIndirect { size: 1, is_sound: false };
    object.core.lock().indirects.insert(0, wrong);
    assert!(!checked(2));
    object.core.lock().indirects.remove(&0);
    assert!(!checked(2));
    rig.commit();
    write(rig, &object, 3);
    assert!(checked(2), "the sync found all of them right");
}

#[test]
fn an_indirect_block_is_sound_if_each_of_its_pointers_is_right() {
    let Some(rig) = &mut Rig::new(64 << 20, 9, policy()) else { return };
    let object = tall(rig);
    let tree = Arc::clone(&object.core.lock().tree);
    let (_, block) = block_on(tree.indirect(rig.writer.store(), 1, 1)).unwrap().unwrap();
    assert!(tree.is_sound(&block, BELOW));
    // The sizes and the level are in the seventh word: another size, another level, no known compression.
    for (byte, bits) in [(48, 0x01), (55, 0x01), (52, 0x7f)] {
        for pointer in [0, 500, BELOW as usize - 1] {
            let mut wrong = block.to_vec();
            wrong[pointer * 128 + byte] ^= bits;
            assert!(!tree.is_sound(&wrong, BELOW), "byte {byte} of pointer {pointer}");
        }
    }
    let mut punched = block.to_vec();
    punched[128..256].fill(0);
    assert!(tree.is_sound(&punched, BELOW));
}

#[test]
fn what_is_counted_does_not_depend_on_what_is_known_to_be_touched() {
    let Some(rig) = &mut Rig::new(64 << 20, 9, policy()) else { return };
    let object = tall(rig);
    let mut seed = 7u64;
    let mut next = |most: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % most
    };
    for step in 0..600 {
        let (id, count) = (next(4 * BELOW), 1 + next(3) * next(BELOW));
        let range = id * BLOCK..(id + count) * BLOCK;
        let known = object.newly_dirty(Txg(rig.txg), &range, None);
        let touched: Vec<_> = {
            let mut state = object.core.lock();
            state.layers.iter_mut().map(|layer| std::mem::take(&mut layer.touched)).collect()
        };
        assert_eq!(object.newly_dirty(Txg(rig.txg), &range, None), known, "step {step}");
        let mut state = object.core.lock();
        for (layer, touched) in state.layers.iter_mut().zip(touched) {
            for indirect in &touched {
                let below = indirect * BELOW..(indirect + 1) * BELOW;
                assert!(layer.blocks.range(below).next().is_some(), "step {step}: {indirect}");
            }
            layer.touched = touched;
        }
        drop(state);
        match next(40) {
            0 => drop(rig.commit()),
            1..8 => block_on(object.punch(&rig.tx(), range.start, range.end - range.start)).unwrap(),
            _ => write(rig, &object, id),
        }
    }
}
