//! A volume in memory, against bytes in an array.

use std::sync::Arc;

use device::block_on;
use ondisk::blkptr::{ChecksumType, CompressType};
use ondisk::dmu::DmuType;
use ondisk::objset::ObjsetType;
use ondisk::{ByteOrder, ObjsetId, Txg};

use super::*;
use crate::alloc::Allocator;
use crate::dmu::forge::Forge;
use crate::dmu::zap::{Key, Value, edit};
use crate::dmu::{Dirtied, LiveObjset, NewObject, Policy, Room};
use crate::env::{Env, Seeded};
use crate::txg::{Limits, Tx, Txgs};
use crate::zil::{SyncMode, Zil};
use crate::zio::Writer;

const SIZE: u64 = 1 << 20;
const BLOCK: u64 = 8192;

fn policy() -> Policy {
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

fn volume() -> Option<(Arc<Txgs>, Arc<LiveZvol>)> {
    let forge = Forge::new(ByteOrder::Little)?;
    let txgs = Txgs::new(Txg(9), Limits::default());
    let tx = Tx::syncing(Txg(10));
    let objset = LiveObjset::create(&forge.pool, ObjsetId(77), ObjsetType::Zvol, policy(), &tx);
    block_on(async {
        let content = NewObject {
            dmu_type: DmuType::ZVOL,
            block_size: BLOCK as u32,
            bonus_type: DmuType::NONE,
            bonus: Vec::new(),
            slots: 1,
        };
        objset.claim(&tx, CONTENT, content).await.unwrap();
        let properties = NewObject {
            dmu_type: DmuType::ZVOL_PROP,
            block_size: 512,
            bonus_type: DmuType::NONE,
            bonus: Vec::new(),
            slots: 1,
        };
        let properties = objset.claim(&tx, PROPERTIES, properties).await.unwrap();
        edit::initialize(&properties, &tx, edit::NewZap::of(DmuType::ZVOL_PROP)).await.unwrap();
        edit::set(&properties, &tx, &Key::Name(b"size".to_vec()), &Value::U64(vec![SIZE])).await.unwrap();
    });
    let writer = Writer::new(Arc::clone(forge.pool.store()), Allocator::empty(forge.pool.store(), true));
    let env: Arc<dyn Env> = Arc::new(Seeded::new(1));
    let zil = Zil::open(&objset, &writer, &txgs, &env);
    let volume = block_on(LiveZvol::open(&txgs, &objset, &zil)).unwrap();
    Some((txgs, volume))
}

fn content(volume: &LiveZvol) -> Vec<u8> {
    let mut bytes = vec![0; volume.size() as usize];
    block_on(volume.read_at(0, &mut bytes)).unwrap();
    bytes
}

#[test]
fn any_changes_leave_the_bytes_that_they_should() {
    let Some((_, volume)) = volume() else { return };
    let random = Seeded::new(7);
    let pick = |below: u64| random.random() % below;
    let mut model = vec![0u8; SIZE as usize];
    let reader = block_on(volume.reader()).unwrap();
    for _ in 0..200 {
        let length = 1 + if pick(3) == 0 { pick(200_000) } else { pick(3 * BLOCK) };
        let offset = pick(SIZE - length + 1);
        let range = offset as usize..(offset + length) as usize;
        match pick(5) {
            0 => {
                block_on(volume.trim(offset, length, false)).unwrap();
                let first = offset.next_multiple_of(BLOCK);
                let end = (offset + length) / BLOCK * BLOCK;
                if first < end {
                    model[first as usize..end as usize].fill(0);
                }
            }
            1 => {
                let allocate = pick(2) == 0;
                block_on(volume.write_zeroes(offset, length, allocate, false)).unwrap();
                model[range.clone()].fill(0);
            }
            _ => {
                let bytes: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_mul(3) | 1).collect();
                block_on(volume.write_at(offset, &bytes, false)).unwrap();
                model[range.clone()].copy_from_slice(&bytes);
            }
        }
        let mut seen = vec![0; length as usize];
        block_on(reader.read_at(offset, &mut seen)).unwrap();
        assert!(seen == model[range]);
    }
    assert!(content(&volume) == model);
}

#[test]
fn extents_follow_what_is_written_and_trimmed() {
    let Some((_, volume)) = volume() else { return };
    block_on(async {
        volume.write_at(BLOCK, &[1; 3 * BLOCK as usize], false).await.unwrap();
        volume.trim(2 * BLOCK, BLOCK, false).await.unwrap();
        let extents = volume.extents(0, SIZE, 99).await.unwrap();
        let expected = [(1, true), (1, false), (1, true), (1, false), (SIZE / BLOCK - 4, true)];
        let expected = expected.map(|(blocks, is_hole)| Extent { length: blocks * BLOCK, is_hole });
        assert_eq!(extents, expected);
    });
}

#[test]
fn a_volume_that_shrinks_and_grows_again_has_lost_its_end() {
    let Some((txgs, volume)) = volume() else { return };
    let write = |offset: u64| block_on(volume.write_at(offset, &[7; 512], false));
    write(0).unwrap();
    write(SIZE - 512).unwrap();
    let resize = |size| {
        let mut resized = Box::pin(volume.resize(size));
        let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(resized.as_mut().poll(context).is_pending(), "it waits for its group");
        let txg = block_on(txgs.quiesce()).unwrap();
        txgs.committed(txg);
        block_on(resized).unwrap();
    };
    resize(SIZE / 2);
    assert!(write(SIZE / 2).is_err());
    resize(SIZE);
    write(SIZE / 2).unwrap();
    let bytes = content(&volume);
    assert_eq!((bytes[0], bytes[SIZE as usize / 2], bytes[SIZE as usize - 1]), (7, 7, 0));
    assert!(block_on(volume.resize(SIZE + 512)).is_err());
}

#[derive(Debug)]
struct Full;

impl Room for Full {
    fn require(&self, _: Txg, _: &Dirtied) -> Result<()> {
        Err(Error::NoSpace("the test".into()))
    }
}

#[test]
fn without_room_writes_are_refused_and_trims_are_not() {
    let Some((_, volume)) = volume() else { return };
    volume.set_room(Arc::new(Full));
    assert!(block_on(volume.write_at(0, &[1; 512], false)).is_err());
    assert!(block_on(volume.write_zeroes(0, 512, true, false)).is_err());
    block_on(volume.write_zeroes(0, 512, false, false)).unwrap();
    block_on(volume.trim(0, SIZE, false)).unwrap();
    assert!(content(&volume).iter().all(|byte| *byte == 0));
}

#[test]
fn beyond_the_end_nothing_is_written() {
    let Some((_, volume)) = volume() else { return };
    for (offset, length) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 1)] {
        assert!(block_on(volume.write_at(offset, &vec![1; length], false)).is_err());
        assert!(block_on(volume.trim(offset, length as u64, false)).is_err());
        assert!(block_on(volume.write_zeroes(offset, length as u64, false, false)).is_err());
    }
}

#[test]
fn without_sync_a_flush_waits_for_nothing() {
    let Some((_, volume)) = volume() else { return };
    volume.zil().set_sync_mode(SyncMode::Disabled);
    block_on(volume.write_at(0, &[1; 512], true)).unwrap();
    block_on(volume.flush()).unwrap();
    // Data written then are made stable by a flush after the mode changes.
    volume.zil().set_sync_mode(SyncMode::Standard);
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::pin!(volume.flush()).poll(context).is_pending());
}
