//! Space of pools that OpenZFS made: loaded, changed and written to a meta object set in memory, and loaded
//! again.

use std::sync::Arc;

use device::block_on;
use ondisk::blkptr::{ChecksumType, CompressType};
use ondisk::features::Feature;
use ondisk::pool_directory::{self, DIRECTORY_OBJECT};
use ondisk::{ObjectId, ObjsetId, Txg, VdevId};

use super::load::load;
use crate::Pool;
use crate::alloc::Allocator;
use crate::alloc::allocator::{MetaslabId, State};
use crate::alloc::group::Use;
use crate::dmu::{LiveObjset, Objset, Policy, zap};
use crate::dsl::Dsl;
use crate::dsl::pool_features::Features;
use crate::dsl::pool_space::PoolSpace;
use crate::pool::discovery;
use crate::pool::import::{ImportOptions, import};
use crate::txg::Tx;
use crate::vdev::Class;

fn open(name: &str) -> Option<Arc<Pool>> {
    let golden = testkit::golden::pool(name)?;
    Some(block_on(async {
        let found = discovery::scan(&[&golden.dir]).await.unwrap().remove(0);
        import(&found, &ImportOptions::read_only()).await.unwrap()
    }))
}

fn live_mos(pool: &Arc<Pool>) -> Arc<LiveObjset> {
    let policy = Policy {
        checksum: ChecksumType::Fletcher4,
        compress: CompressType::Lz4,
        zstd_level: 0,
        copies: 3,
        redundant_metadata: 0,
        special_small_blocks: 0,
        dedup: None,
    };
    block_on(LiveObjset::open(pool, ObjsetId::MOS, pool.root_blkptr(), policy)).unwrap()
}

/// Size and allocated bytes of each vdev.
fn vdevs(state: &State) -> Vec<(u64, u64, u64)> {
    let groups = state.groups.iter().flatten();
    groups
        .map(|group| {
            let totals = group.totals(Use::Class).plus(group.totals(Use::EmbeddedLog));
            (group.vdev.into(), totals.size, totals.allocated)
        })
        .collect()
}

#[test]
fn golden_pools_have_the_space_that_their_headers_say() {
    for name in testkit::golden::names().unwrap() {
        let Some(pool) = open(&name) else { return };
        let space = block_on(async { PoolSpace::load(&Dsl::open(&pool).await.unwrap()).await.unwrap() });
        let mos = block_on(Objset::open(&pool, ObjsetId::MOS, pool.root_blkptr())).unwrap();
        match block_on(load(&pool, &mos)) {
            Ok(state) => {
                let expected: Vec<_> =
                    space.vdevs.iter().map(|vdev| (vdev.id, vdev.size_bytes, vdev.allocated_bytes)).collect();
                assert_eq!(vdevs(&state), expected, "{name}");
                let allocator = Allocator::of(pool.store(), state);
                let saved = space.dedup.saved_bytes() + space.clones.saved_bytes;
                let put_off = space.checkpoint_bytes + space.deferred_frees_bytes;
                assert_eq!(allocator.usable_bytes() + saved, space.adjusted_bytes() + put_off, "{name}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// The number of logs, in pools that have them.
async fn logs(mos: &Arc<LiveObjset>) -> Option<usize> {
    let root = mos.view().object(DIRECTORY_OBJECT).await.unwrap();
    let zap = zap::lookup_u64(&root, pool_directory::LOG_SPACEMAP_ZAP).await.unwrap()?;
    let zap = zap::Zap::open(&mos.view().object(ObjectId(zap)).await.unwrap()).await.unwrap();
    Some(zap.entries(1 << 20).await.unwrap().len())
}

/// Reads the maps of all metaslabs.
async fn load_all(allocator: &Allocator) {
    let ids: Vec<MetaslabId> = {
        let state = allocator.state();
        let groups = state.groups.iter().flatten();
        let places = groups.flat_map(|group| (0..group.metaslabs().len()).map(|place| (group.vdev, place)));
        places.map(|(vdev, place)| MetaslabId { vdev: VdevId(vdev), place }).collect()
    };
    for id in ids {
        allocator.load_metaslab(id).await.unwrap();
    }
    let (loaded, all) = allocator.loaded_metaslabs();
    assert_eq!(loaded, all, "some cannot be read");
}

#[test]
fn what_a_sync_writes_is_what_is_loaded_next() {
    let mut with_logs = 0;
    for name in ["features0", "single", "rz1", "dr2", "classes", "triple", "legacy28", "rz1s9"] {
        let Some(pool) = open(name) else { return };
        block_on(async {
            let mos = live_mos(&pool);
            let had_logs = logs(&mos).await.is_some();
            let is_logged = Features::load(Dsl::open(&pool).await.unwrap().mos())
                .await
                .unwrap()
                .is_enabled(Feature::LogSpacemap);
            let allocator = Allocator::load(pool.store(), &mos).await.unwrap();
            let committed = pool.uberblock().txg.get();
            let mut blocks = Vec::new();
            let mut changes = Vec::new();
            for txg in committed + 1..committed + 6 {
                let tx = Tx::syncing(Txg(txg));
                for pass in 0..3u64 {
                    for number in 0..40u64 {
                        let class = [Class::Normal, Class::Special, Class::Log][number as usize % 3];
                        let psize = 512 * (1 + (number * 7 + pass + txg) % 256);
                        let copies = 1 + number as usize % 3;
                        let allocate = |class| allocator.allocate(class, psize, copies, Txg(txg));
                        // Few pools have space that only logs may use.
                        let dvas = match allocate(class).await.unwrap() {
                            None => allocate(Class::Normal).await.unwrap(),
                            dvas => dvas,
                        };
                        blocks.extend(dvas.unwrap());
                    }
                    for _ in 0..30 {
                        let dva = blocks.swap_remove((txg as usize * 31 + pass as usize) % blocks.len());
                        allocator.free(&dva, Txg(txg), false).unwrap();
                        assert!(allocator.free(&dva, Txg(txg), false).is_err());
                    }
                    assert!(allocator.sync(&mos, &tx).await.unwrap());
                }
                assert!(!allocator.sync(&mos, &tx).await.unwrap());
                let again = Allocator::load(pool.store(), &mos).await.unwrap();
                allocator.sync_done(Txg(txg), Txg(txg));
                assert_eq!(vdevs(&again.state()), vdevs(&allocator.state()), "{name}");
                load_all(&again).await;
                assert_eq!(vdevs(&again.state()), vdevs(&allocator.state()), "{name}");
                changes.extend(allocator.take_feature_changes());
            }
            // After a flush, only the log of the last group is needed.
            allocator.flush_all();
            let tx = Tx::syncing(Txg(committed + 6));
            let flushed = allocator.sync(&mos, &tx).await.unwrap();
            assert!(!allocator.sync(&mos, &tx).await.unwrap());
            assert_eq!((logs(&mos).await, flushed), if is_logged { (Some(1), true) } else { (None, false) });
            let again = Allocator::load(pool.store(), &mos).await.unwrap();
            load_all(&again).await;
            allocator.sync_done(Txg(committed + 6), Txg(committed + 6));
            assert_eq!(vdevs(&again.state()), vdevs(&allocator.state()), "{name}");
            let begun = changes.contains(&(Feature::LogSpacemap, 1));
            assert_eq!(begun, is_logged && !had_logs, "{name}: {changes:?}");
            with_logs += usize::from(had_logs);
        });
    }
    assert!(with_logs > 0);
}
