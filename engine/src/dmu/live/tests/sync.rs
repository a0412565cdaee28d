//! The blocks that a sync writes, read again through the read side, on a pool of one device in memory.

use std::collections::BTreeSet;

use device::{Device, MemoryDevice};
use ondisk::nvlist::Nvlist;
use ondisk::pool_directory::DIRECTORY_OBJECT;
use ondisk::vdev_config::VdevConfig;
use ondisk::{Guid, Level};

use super::*;
use crate::alloc::Allocator;
use crate::cache::Retain;
use crate::dmu::zap::edit::{self, NewZap};
use crate::dmu::{Object, Objset};
use crate::store::{Pool, Store};
use crate::vdev::Class;
use crate::vdev::config::{Devices, build_tree};
use crate::zio::Writer;

const DATASET: ObjsetId = ObjsetId(54);

/// A pool with a MOS and one dataset, and the code that drives their syncs.
pub(in crate::dmu::live) struct Rig {
    pub(in crate::dmu::live) pool: Arc<Pool>,
    pub(in crate::dmu::live) writer: Writer,
    mos: Arc<LiveObjset>,
    pub(in crate::dmu::live) objset: Arc<LiveObjset>,
    pub(in crate::dmu::live) root: Blkptr,
    pub(in crate::dmu::live) txg: u64,
    /// The referenced space, as the sum of the results of the syncs.
    used: u64,
    mos_used: u64,
}

impl Rig {
    pub(in crate::dmu::live) fn new(size: usize, ashift: u64, policy: Policy) -> Option<Self> {
        Self::of_kind(ObjsetType::Zvol, size, ashift, policy)
    }

    fn of_kind(kind: ObjsetType, size: usize, ashift: u64, policy: Policy) -> Option<Self> {
        let forge = Forge::new(ByteOrder::Little)?;
        let pool = forge.pool;
        let mut leaf = Nvlist::new();
        for (name, value) in
            [("id", 0), ("guid", 1), ("ashift", ashift), ("asize", (size - (5 << 20)) as u64)]
        {
            leaf.push(name, value);
        }
        leaf.push("type", "file");
        let mut tree = Nvlist::new();
        tree.push("type", "root");
        tree.push("id", 0u64);
        tree.push("guid", 100u64);
        tree.push("children", vec![leaf]);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_content("disk", vec![0; size]));
        let devices: Devices = [(Guid(1), device)].into_iter().collect();
        let vdevs = build_tree(&VdevConfig::parse(&tree).unwrap(), &devices, None).unwrap();
        let store = Store::new(pool.name().into(), None, vdevs, Arc::clone(pool.cache()));
        let pool = Pool::of(store, pool.guid(), pool.config().clone(), pool.uberblock().clone(), None);
        let tx = tx(4);
        let mos = LiveObjset::create(&pool, ObjsetId::MOS, ObjsetType::Meta, policy.clone(), &tx);
        let allocator = Allocator::empty(pool.store(), true);
        let writer = Writer::new(Arc::clone(pool.store()), Arc::clone(&allocator));
        let objset = LiveObjset::create(&pool, DATASET, kind, policy, &tx);
        let new = NewObject { dmu_type: DmuType::OBJECT_DIRECTORY, ..new_object(512) };
        block_on(async {
            let directory = mos.claim(&tx, DIRECTORY_OBJECT, new).await.unwrap();
            edit::initialize(&directory, &tx, NewZap::of(DmuType::OBJECT_DIRECTORY)).await.unwrap();
            let features = edit::create(&mos, &tx, NewZap::of(DmuType::ZAP_OTHER)).await.unwrap();
            let key = crate::dmu::zap::Key::Name(b"features_for_write".to_vec());
            let value = ondisk::zap::ZapValue::U64(vec![features.id().0]);
            edit::set(&directory, &tx, &key, &value).await.unwrap();
            allocator.add_top(&mos, &tx, pool.vdevs().top(0).unwrap(), None).await.unwrap();
        });
        Some(Self { pool, writer, mos, objset, root: Blkptr::HOLE, txg: 4, used: 0, mos_used: 0 })
    }

    pub(in crate::dmu::live) fn tx(&self) -> Tx {
        tx(self.txg)
    }

    fn account(&mut self, synced: &SyncedObjset, txg: Txg, is_mos: bool) {
        let used = if is_mos { &mut self.mos_used } else { &mut self.used };
        *used += synced.born.used;
        let mut seen = BTreeSet::new();
        for pointer in &synced.killed {
            assert!(!pointer.is_hole());
            assert!(pointer.is_embedded() || seen.insert(pointer.dva(0)), "{pointer} is killed twice");
            *used -= self.writer.dsize(pointer);
            block_on(self.writer.free(txg, pointer)).unwrap();
        }
    }

    /// Syncs the dataset. Returns the number of blocks that it gave up.
    pub(in crate::dmu::live) fn sync_objset(&mut self) -> usize {
        let txg = Txg(self.txg);
        let synced = block_on(self.objset.sync(&self.writer, txg)).unwrap();
        assert!(!self.objset.is_dirty(txg));
        self.account(&synced, txg, false);
        self.root = synced.root;
        synced.killed.len()
    }

    /// Syncs the open group. Returns the number of passes that the MOS took.
    pub(in crate::dmu::live) fn commit(&mut self) -> usize {
        let txg = Txg(self.txg);
        self.sync_objset();
        let tx = tx(self.txg);
        let allocator = Arc::clone(self.writer.allocator());
        let mut passes = 0;
        loop {
            let more = block_on(allocator.sync(&self.mos, &tx)).unwrap();
            if !more && !self.mos.is_dirty(txg) {
                break;
            }
            let synced = block_on(self.mos.sync(&self.writer, txg)).unwrap();
            self.account(&synced, txg, true);
            passes += 1;
            assert!(passes < 20, "the MOS does not settle");
        }
        allocator.sync_done(txg, txg);
        let space = allocator.space(Class::Normal);
        assert_eq!(self.used + self.mos_used, space.deflated_allocated_bytes - deflated_deferred(space));
        self.txg += 1;
        passes
    }

    /// The dataset as stored on the device.
    pub(in crate::dmu::live) fn reopened(&self) -> Arc<Objset> {
        self.pool.cache().evict_pool(self.pool.cache_id);
        block_on(Objset::open(&self.pool, DATASET, &self.root)).unwrap()
    }

    /// Reopens the dataset for writing.
    fn reopen(&mut self, policy: Policy) {
        self.objset = block_on(LiveObjset::open(&self.pool, DATASET, &self.root, policy)).unwrap();
    }

    /// Checks that space and counts of all objects match their trees; returns the space of all.
    async fn check_trees(&self, objset: &Arc<Objset>) -> u64 {
        let mut total = self.writer.dsize(&self.root);
        let mut from = ObjectId(1);
        let mut objects = 0;
        while let Some(id) = objset.next_object(from).await.unwrap() {
            let object = objset.object(id).await.unwrap();
            let spill = object.dnode().spill.map_or(0, |spill| self.writer.dsize(&spill));
            let used = self.tree_space(&object).await.0 + spill;
            assert_eq!(object.dnode().used_bytes(), used, "{object:?}");
            total += used;
            objects += 1;
            from = ObjectId(id.0 + 1);
        }
        let (meta, fill) = self.tree_space(&objset.meta_dnode()).await;
        assert_eq!(objset.meta_dnode().dnode().used_bytes(), meta);
        assert_eq!((fill, self.root.fill()), (objects, objects));
        total + meta
    }

    /// The space of a tree, and the fill of its tops.
    async fn tree_space(&self, object: &Object) -> (u64, u64) {
        let dnode = object.dnode();
        let mut space = 0;
        for level in 0..dnode.levels {
            let last = dnode.ancestor(dnode.max_block_id, Level(level as i8)).0;
            for place in 0..=last {
                let first = place << (dnode.pointers_per_indirect_shift() * u32::from(level));
                let Some(pointer) = object.blkptr(level, first).await.unwrap() else { continue };
                space += self.writer.dsize(&pointer);
                if level > 0 {
                    let mut fill = 0;
                    let children = 1 << dnode.pointers_per_indirect_shift();
                    let shift = dnode.pointers_per_indirect_shift() * u32::from(level - 1);
                    for child in place * children..(place + 1) * children {
                        if child > dnode.ancestor(dnode.max_block_id, Level(level as i8 - 1)).0 {
                            break;
                        }
                        let child = object.blkptr(level - 1, child << shift).await.unwrap();
                        fill += child.map_or(0, |child| child.fill());
                    }
                    assert_eq!(pointer.fill(), fill);
                    assert!(fill > 0, "an indirect block of holes");
                }
            }
        }
        (space, dnode.blkptrs.iter().map(Blkptr::fill).sum())
    }
}

/// Bytes that do not compress.
pub(in crate::dmu::live) fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

fn deflated_deferred(space: crate::alloc::ClassSpace) -> u64 {
    // One device without parity: deflation only rounds the ratio, which is exact here.
    space.deferred_bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_synced_is_read_again(
        shift in 9u32..13,
        compress: bool,
        sha: bool,
        rounds in proptest::collection::vec((0usize..3, steps(60_000)), 1..6),
    ) {
        let compress = if compress { CompressType::Lz4 } else { CompressType::Off };
        let checksum = if sha { ChecksumType::Sha256 } else { ChecksumType::Fletcher4 };
        let policy = Policy { checksum, compress, ..policy() };
        let Some(mut rig) = Rig::new(64 << 20, 9, policy.clone()) else { return Ok(()) };
        let mut objects: Vec<_> = (0..3)
            .map(|_| block_on(rig.objset.allocate(&rig.tx(), new_object(1 << shift))).unwrap().id())
            .collect();
        objects.sort();
        let mut models = vec![vec![0; 60_000]; 3];
        for (turn, (which, steps)) in rounds.iter().enumerate() {
            let object = block_on(rig.objset.object(objects[*which])).unwrap();
            for step in steps {
                block_on(apply(&object, &mut models[*which], step, &rig.tx()));
                if matches!(step, Step::NextTxg) {
                    rig.commit();
                }
            }
            rig.commit();
            let reopened = rig.reopened();
            for (id, model) in objects.iter().zip(&models) {
                let read = block_on(reopened.object(*id)).unwrap();
                let mut found = vec![0xee; model.len()];
                block_on(read.read_at(0, &mut found)).unwrap();
                prop_assert!(&found == model, "{:?} in turn {turn}", read);
                block_on(check(&block_on(rig.objset.object(*id)).unwrap(), model));
            }
            prop_assert_eq!(block_on(rig.check_trees(&reopened)), rig.used);
            if turn % 2 == 1 {
                rig.reopen(policy.clone());
            }
        }
        for id in &objects {
            block_on(rig.objset.free(&rig.tx(), *id)).unwrap();
        }
        rig.commit();
        let reopened = rig.reopened();
        prop_assert_eq!(block_on(reopened.next_object(ObjectId(1))).unwrap(), None);
        prop_assert_eq!(rig.used, rig.writer.dsize(&rig.root), "only the object set's own block is left");
    }
}

#[test]
fn an_object_that_is_replaced_gives_up_all_that_it_had() {
    let Some(mut rig) = Rig::new(64 << 20, 9, policy()) else { return };
    // With one pointer, so that there is room for that of a spill block.
    let first = NewObject { bonus_type: DmuType::SA, bonus: vec![1; 64], ..new_object(1024) };
    let object = block_on(rig.objset.allocate(&rig.tx(), first)).unwrap();
    block_on(object.write_at(&rig.tx(), 0, &noise(200_000))).unwrap();
    object.set_spill(&rig.tx(), Some(Block::from(device::IoBuf::from(&noise(512)[..]))));
    rig.commit();
    // What is not committed goes too.
    block_on(object.write_at(&rig.tx(), 300_000, &noise(5000))).unwrap();
    let new = NewObject { bonus: vec![5; 64], ..new_object(1536) };
    object.replace(&rig.tx(), &new).unwrap();
    assert_eq!((object.block_size(), object.end()), (1536, 0));
    assert_eq!((&*object.bonus(), block_on(object.spill()).unwrap().is_none()), (&[5; 64][..], true));
    let mut found = vec![1; 4000];
    block_on(object.read_at(0, &mut found)).unwrap();
    assert_eq!(found, [0; 4000]);
    let bytes = noise(1536);
    block_on(object.write_at(&rig.tx(), 0, &bytes)).unwrap();
    rig.commit();
    let reopened = rig.reopened();
    let read = block_on(reopened.object(object.id())).unwrap();
    let dnode = read.dnode();
    assert_eq!((dnode.data_block_size(), dnode.levels, dnode.max_block_id.0), (1536, 1, 0));
    assert!(dnode.spill.is_none() && *dnode.bonus == [5; 64]);
    let mut found = vec![0; 1536];
    block_on(read.read_at(0, &mut found)).unwrap();
    assert_eq!(found, bytes);
    assert_eq!(block_on(rig.check_trees(&reopened)), rig.used);
    // One that takes more slots is none.
    assert!(object.replace(&rig.tx(), &NewObject { slots: 2, ..new_object(512) }).is_err());
}

#[test]
fn a_tree_grows_to_many_levels_and_is_killed_as_a_whole() {
    let Some(mut rig) = Rig::new(64 << 20, 9, policy()) else { return };
    let object = block_on(rig.objset.allocate(&rig.tx(), new_object(512))).unwrap();
    // The first block, then further and further: one, two, three, four levels of indirect blocks.
    let places = [0, 2, 5, 3 << 10, 5 << 20, 7 << 30, 9 << 40];
    for (turn, place) in places.into_iter().enumerate() {
        block_on(object.write_at(&rig.tx(), place * 512, &[turn as u8 + 1; 512])).unwrap();
        rig.commit();
    }
    assert_eq!(object.dnode().levels, 6);
    let read = block_on(rig.reopened().object(object.id())).unwrap();
    for (turn, place) in places.into_iter().enumerate() {
        let mut found = [0; 512];
        block_on(read.read_at(place * 512, &mut found)).unwrap();
        assert_eq!(found, [turn as u8 + 1; 512]);
        assert_eq!(
            block_on(read.next_data((place * 512).saturating_sub(100), u64::MAX)).unwrap(),
            place * 512
        );
    }
}

#[test]
fn the_end_of_an_object_follows_its_truncation() {
    let Some(mut rig) = Rig::new(64 << 20, 9, policy()) else { return };
    let object = block_on(rig.objset.allocate(&rig.tx(), new_object(4096))).unwrap();
    block_on(object.write_at(&rig.tx(), 0, &[1; 40_960])).unwrap();
    rig.commit();
    assert_eq!(block_on(rig.reopened().object(object.id())).unwrap().end(), 40_960);
    block_on(object.punch(&rig.tx(), 10_000, u64::MAX)).unwrap();
    assert_eq!(object.end(), 12_288);
    rig.commit();
    assert_eq!(object.end(), 12_288);
    assert_eq!(block_on(rig.reopened().object(object.id())).unwrap().end(), 12_288);
    block_on(object.punch(&rig.tx(), 0, u64::MAX)).unwrap();
    rig.commit();
    assert_eq!((object.end(), object.dnode().used_bytes()), (0, 0));
}

#[test]
fn changes_of_the_next_group_stay_out_of_this_one() {
    let Some(mut rig) = Rig::new(64 << 20, 9, policy()) else { return };
    let object = block_on(rig.objset.allocate(&rig.tx(), new_object(4096))).unwrap();
    let next = tx(rig.txg + 1);
    block_on(async {
        object.write_at(&rig.tx(), 0, &[1; 4096]).await.unwrap();
        object.set_bonus(&rig.tx(), DmuType::UINT64_OTHER, &[1; 8]);
        object.write_at(&next, 100, &[2; 10]).await.unwrap();
        object.set_bonus(&next, DmuType::UINT64_OTHER, &[2; 16]);
        object.set_block_size(&next, 8192).await.unwrap();
    });
    rig.commit();
    let read = block_on(rig.reopened().object(object.id())).unwrap();
    assert_eq!((read.bonus().0, read.block_size()), (&[1u8; 8][..], 4096));
    assert_eq!(block_on(read.block(0)).unwrap().unwrap().block[..], [1; 4096]);
    assert_eq!((object.block_size(), &object.bonus()[..]), (8192, &[2u8; 16][..]));
    rig.commit();
    let read = block_on(rig.reopened().object(object.id())).unwrap();
    assert_eq!((read.bonus().0, read.block_size()), (&[2u8; 16][..], 8192));
    let mut found = [0xee; 8192];
    block_on(read.read_at(0, &mut found)).unwrap();
    assert_eq!((found[99], found[100], found[110], found[4095], found[4096]), (1, 2, 1, 1, 0));
}

#[test]
fn spill_blocks_and_large_dnodes_are_read_again() {
    let Some(mut rig) = Rig::new(64 << 20, 12, policy()) else { return };
    let new = NewObject { bonus_type: DmuType::SA, bonus: vec![3; 500], slots: 4, ..new_object(512) };
    let object = block_on(rig.objset.allocate(&rig.tx(), new)).unwrap();
    let neighbour = block_on(rig.objset.allocate(&rig.tx(), new_object(512))).unwrap();
    assert_eq!(neighbour.id().0, object.id().0 + 4);
    let spill: Vec<u8> = (0..1536).map(|at| (at * 7) as u8).collect();
    object.set_spill(&rig.tx(), Some(Block::from(IoBuf::from(&spill[..]))));
    rig.commit();
    let reopened = rig.reopened();
    let read = block_on(reopened.object(object.id())).unwrap();
    assert_eq!(block_on(read.spill()).unwrap().unwrap().block[..], spill);
    assert_eq!((read.bonus().0.len(), read.dnode().slots()), (500, 4));
    assert_eq!(block_on(rig.check_trees(&reopened)), rig.used);
    object.set_spill(&rig.tx(), None);
    rig.commit();
    let reopened = rig.reopened();
    assert!(block_on(block_on(reopened.object(object.id())).unwrap().spill()).unwrap().is_none());
    assert_eq!(block_on(rig.check_trees(&reopened)), rig.used);
}

#[test]
fn a_number_is_free_again_when_the_group_that_freed_it_is_committed() {
    let Some(mut rig) = Rig::new(64 << 20, 9, policy()) else { return };
    let id = block_on(rig.objset.allocate(&rig.tx(), new_object(512))).unwrap().id();
    rig.commit();
    block_on(rig.objset.free(&rig.tx(), id)).unwrap();
    assert!(block_on(rig.objset.claim(&rig.tx(), id, new_object(512))).is_err());
    rig.commit();
    let again = block_on(rig.objset.claim(&rig.tx(), id, new_object(1024))).unwrap();
    block_on(again.write_at(&rig.tx(), 0, &[9; 100])).unwrap();
    rig.commit();
    assert_eq!(block_on(rig.reopened().object(id)).unwrap().block_size(), 1024);
}

#[test]
fn the_same_bytes_again_are_not_written_under_a_strong_checksum() {
    let policy = Policy { checksum: ChecksumType::Sha256, ..policy() };
    let Some(mut rig) = Rig::new(64 << 20, 9, policy) else { return };
    let object = block_on(rig.objset.allocate(&rig.tx(), new_object(4096))).unwrap();
    let bytes = noise(40_960);
    block_on(object.write_at(&rig.tx(), 0, &bytes)).unwrap();
    rig.commit();
    let before = object.dnode().blkptrs;
    block_on(object.write_at(&rig.tx(), 0, &bytes)).unwrap();
    rig.commit();
    assert_eq!(object.dnode().blkptrs, before);
}

#[test]
fn users_are_charged_for_their_files() {
    let Some(mut rig) = Rig::of_kind(ObjsetType::Zfs, 64 << 20, 9, policy()) else { return };
    let bonus = |uid: u64, gid: u64| {
        let mut words = [0u64; 8];
        (words[0], words[4], words[5]) = (0x002f_505a | (1 << 10 | 2) << 32, uid, gid);
        words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
    };
    let counts = |rig: &Rig, of_group: bool| {
        let objset = rig.reopened();
        let object = if of_group { objset.group_used() } else { objset.user_used() };
        let entries = object.map_or(Vec::new(), |object| {
            let zap = block_on(crate::dmu::zap::Zap::open(&object)).unwrap();
            block_on(zap.entries(100)).unwrap()
        });
        let entry = |entry: crate::dmu::zap::Entry| {
            (String::from_utf8(entry.key.name().unwrap().to_vec()).unwrap(), entry.value.as_u64().unwrap())
        };
        entries.into_iter().map(entry).collect::<BTreeMap<_, _>>()
    };
    let files: Vec<_> = [(10, 20), (255, 20)]
        .into_iter()
        .map(|(uid, gid)| {
            let new = NewObject { bonus_type: DmuType::SA, bonus: bonus(uid, gid), ..new_object(4096) };
            block_on(rig.objset.allocate(&rig.tx(), new)).unwrap()
        })
        .collect();
    block_on(rig.objset.allocate(&rig.tx(), new_object(512))).unwrap();
    block_on(files[0].write_at(&rig.tx(), 0, &noise(8192))).unwrap();
    rig.commit();
    let used = |at: usize| files[at].dnode().used_bytes() + 512;
    assert_eq!(counts(&rig, false), BTreeMap::from([("a".into(), used(0)), ("ff".into(), 512)]));
    assert_eq!(counts(&rig, true), BTreeMap::from([("14".into(), used(0) + 512)]));
    // The file grows, and gets another owner.
    block_on(files[1].write_at(&rig.tx(), 0, &noise(20_000))).unwrap();
    files[0].set_bonus(&rig.tx(), DmuType::SA, &bonus(255, 21));
    rig.commit();
    assert_eq!(counts(&rig, false), BTreeMap::from([("ff".into(), used(0) + used(1))]));
    assert_eq!(counts(&rig, true), BTreeMap::from([("14".into(), used(1)), ("15".into(), used(0))]));
    block_on(rig.objset.free(&rig.tx(), files[1].id())).unwrap();
    rig.commit();
    assert_eq!(counts(&rig, false), BTreeMap::from([("ff".into(), used(0))]));
    assert_eq!(counts(&rig, true), BTreeMap::from([("15".into(), used(0))]));
}

#[test]
fn a_log_header_alone_makes_a_group_dirty() {
    let Some(mut rig) = Rig::new(64 << 20, 9, policy()) else { return };
    rig.commit();
    let header = ondisk::zil::ZilHeader { claim_lr_seq: 77, ..rig.objset.zil_header() };
    rig.objset.set_zil_header(&rig.tx(), header);
    assert!(rig.objset.is_dirty(Txg(rig.txg)));
    rig.commit();
    rig.reopen(policy());
    assert_eq!(rig.objset.zil_header().claim_lr_seq, 77);
}

#[test]
fn what_a_file_is_overwritten_with_is_cached_only_where_the_old_bytes_were() {
    let Some(mut rig) = Rig::new(64 << 20, 12, policy()) else { return };
    let object = block_on(rig.objset.allocate(&rig.tx(), new_object(4096))).unwrap();
    let mut noise: Vec<u8> = (0..5 * 4096u32).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
    block_on(object.write_at(&rig.tx(), 0, &noise)).unwrap();
    rig.commit();
    let is_cached = |rig: &Rig, id| match block_on(object.stored(id)).unwrap() {
        Stored::Block(pointer) => {
            rig.pool.cache().get(&rig.pool.cache_key(&pointer, false), Retain::In).is_some()
        }
        other => panic!("block {id}: {other:?}"),
    };
    let cached: Vec<bool> = (0..5).map(|id| is_cached(&rig, id)).collect();
    assert_eq!(cached, [false, false, false, false, true], "it may go on at its end");
    noise.reverse();
    // A part of a block, which has to be read; all of a block that was not read; all of a block that was
    // read.
    block_on(object.write_at(&rig.tx(), 4096, &noise[..100])).unwrap();
    block_on(object.write_at(&rig.tx(), 2 * 4096, &noise[..4096])).unwrap();
    block_on(object.block(3)).unwrap();
    block_on(object.write_at(&rig.tx(), 3 * 4096, &noise[4096..2 * 4096])).unwrap();
    rig.commit();
    let cached: Vec<bool> = (0..5).map(|id| is_cached(&rig, id)).collect();
    assert_eq!(cached, [false, true, false, true, true]);
}

#[test]
fn what_a_group_puts_into_a_set_and_takes_out_again_never_gets_there() {
    let Some(mut rig) = Rig::new(64 << 20, 12, policy()) else { return };
    let objset = Arc::clone(&rig.objset);
    let set = block_on(edit::create(&objset, &rig.tx(), NewZap::of(DmuType::UNLINKED_SET))).unwrap().id();
    let stored = |rig: &Rig| {
        let committed = block_on(Objset::open(&rig.pool, DATASET, &rig.root)).unwrap();
        let object = block_on(committed.object(set)).unwrap();
        let mut entries = block_on(async {
            crate::dmu::zap::Zap::open(&object).await.unwrap().entries(100).await.unwrap()
        });
        entries.sort_by_key(|entry| entry.value.as_u64());
        let born = object.dnode().blkptrs[0].physical_birth();
        (entries.iter().map(|entry| entry.value.as_u64().unwrap()).collect::<Vec<_>>(), born)
    };
    rig.commit();
    let (empty, born) = stored(&rig);
    assert!(empty.is_empty());

    for number in 1..=50 {
        objset.put_in_set(&rig.tx(), set, number);
        objset.take_from_set(&rig.tx(), set, number);
    }
    rig.commit();
    assert_eq!(stored(&rig), (Vec::new(), born), "it is not written");

    // A later group removes a number that is not written yet.
    let next = tx(rig.txg + 1);
    objset.put_in_set(&rig.tx(), set, 0x1f);
    objset.put_in_set(&rig.tx(), set, 32);
    objset.take_from_set(&next, set, 0x1f);
    objset.put_in_set(&next, set, 33);
    assert_eq!(objset.set_changes(set), [(31, true), (32, true), (31, false), (33, true)]);
    rig.commit();
    assert_eq!(stored(&rig).0, [31, 32]);
    assert_eq!(objset.set_changes(set), [(31, false), (33, true)]);
    rig.commit();
    assert_eq!(stored(&rig).0, [32, 33]);

    // Its number stays when a group removes it and adds it again.
    let (_, born) = stored(&rig);
    objset.take_from_set(&rig.tx(), set, 32);
    objset.put_in_set(&rig.tx(), set, 32);
    rig.commit();
    assert_eq!(stored(&rig), (vec![32, 33], born));

    // A set that cannot be read does not prevent writing the others.
    objset.put_in_set(&rig.tx(), ObjectId(set.0 + 1), 1);
    objset.put_in_set(&rig.tx(), set, 34);
    objset.put_in_set(&rig.tx(), ObjectId(set.0 - 1), 1);
    rig.commit();
    assert_eq!(stored(&rig).0, [32, 33, 34]);
}

/// What changing some blocks of an object may take of indirect blocks, as it is accepted, and what it takes.
#[test]
fn indirect_blocks_take_no_more_than_was_accepted_for_them() {
    const SMALL: usize = 512;
    let Some(rig) = &mut Rig::new(256 << 20, 12, policy()) else { return };
    let object = block_on(rig.objset.allocate(&rig.tx(), new_object(SMALL as u32))).unwrap();
    let mut seed = 1u64;
    let mut next = |most: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % most
    };
    let size = object.newly_dirty(Txg(rig.txg), &(0..1), None);
    assert_eq!((size.indirect_bytes, size.compressed_indirects), (0, 0), "it has none yet");
    block_on(object.write_at(&rig.tx(), 0, &vec![1; 2000 * SMALL])).unwrap();
    rig.commit();
    let mut counted_with_less = 0;
    for round in 0..40 {
        let mut accepted = Dirtied::default();
        for _ in 0..=next(if round < 30 { 40 } else { 900 }) {
            let offset = next(2000) * SMALL as u64;
            let range = offset..offset + SMALL as u64;
            let dirtied = object.newly_dirty(Txg(rig.txg), &range, None);
            accepted = accepted.plus(dirtied);
            if next(8) > 0 {
                let bytes: Vec<u8> = (0..SMALL).map(|_| next(256) as u8).collect();
                block_on(object.write_at(&rig.tx(), offset, &bytes)).unwrap();
            } else {
                let [from, to] =
                    [range.start, range.end].map(|edge| object.newly_dirty_by_cut(Txg(rig.txg), edge));
                accepted = accepted.plus(from).plus(to);
                block_on(object.punch(&rig.tx(), offset, SMALL as u64)).unwrap();
            }
        }
        rig.commit();
        let tree = Arc::clone(&object.core.lock().tree);
        let mut taken = 0;
        for level in 1..tree.dnode().levels {
            let blocks =
                2000u64.div_ceil(1 << (u32::from(level) * tree.dnode().pointers_per_indirect_shift()));
            for id in 0..blocks {
                let found = block_on(tree.indirect(rig.writer.store(), level, id)).unwrap();
                let written =
                    found.map(|(pointer, _)| pointer).filter(|p| p.logical_birth() == Txg(rig.txg - 1));
                taken += written.map_or(0, |pointer| pointer.psize().get());
            }
        }
        let most = accepted.indirect_bytes + accepted.compressed_indirects * (4096 * 4 / 3 + 1);
        assert!(taken <= most, "round {round}: {taken} of {most}");
        counted_with_less += accepted.compressed_indirects;
    }
    assert!(counted_with_less > 20, "{counted_with_less}");
}
